"""The search for settings: the published grid, resumed where it stopped, chosen by the dev rows alone."""

from __future__ import annotations

import json

import pytest
from finetune_toy import Spy, Stopper, arguments, fields

from unmask.cli import main
from unmask.errors import Stopped, UnmaskError
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.encoder import prepare
from unmask.runs.finetuning.search import Grid, begun, best_of, search, verdict
from unmask.runs.report import write_report
from unmask.runs.transfer import Transfer

# Only the last point learns anything.
GRID = Grid(batch_size=(16,), lr=(1e-6, 1e-2), epochs=(1.0, 20.0))


def config(place, **more):
    return FineTuning().override({**fields(*place), "seeds": 2, **more})


def test_the_grid_is_the_published_one():
    points = [(p["batch_size"], p["lr"], p["epochs"]) for p in Grid().points]
    assert len(points) == len(set(points)) == 18
    assert {p[0] for p in points} == {16, 32}
    assert {p[1] for p in points} == {5e-5, 3e-5, 2e-5}
    assert {p[2] for p in points} == {2, 3, 4}
    assert Grid.of(Transfer(strategy="top")) == Grid()
    assert Grid.of(Transfer(strategy="lora")).lr == (5e-4, 3e-4, 2e-4)


def test_more_points_of_a_seed_only_add():
    grid = Grid()
    few, more = grid.drawn(6, 1), grid.drawn(12, 1)
    assert more[:6] == few
    assert grid.drawn(6, 2) != few
    assert grid.drawn(None, 1) == grid.points


@pytest.mark.parametrize(("limit", "grid"), [(0, Grid()), (19, Grid()), (None, Grid(lr=())), (None, Grid(lr=(-1.0,)))])
def test_a_grid_that_cannot_be(limit, grid):
    with pytest.raises(UnmaskError, match=r"points|above 0"):
        grid.drawn(limit, 0)


def test_less_is_better_of_an_error():
    points = [{"metric": "rmse", "value": value} for value in (3.0, 1.0, 2.0)]
    assert best_of(points)["value"] == 1.0
    assert best_of([{**point, "metric": "accuracy"} for point in points])["value"] == 3.0


def test_steps_that_do_not_depend_on_the_epochs_are_named():
    point = {"batch_size": 16, "lr": 1e-3, "metric": "accuracy", "value": 0.5, "least_steps": 200, "total": 200}
    said = " ".join(
        verdict([{**point, "epochs": 2.0}, {**point, "epochs": 3.0}], {**point, "epochs": 2.0}, tested=True)
    )
    assert "2 points took the least number of steps, 200" in said
    said = " ".join(verdict([{**point, "epochs": 2.0}], {**point, "epochs": 2.0}, tested=True))
    assert "least number" not in said


@pytest.fixture(scope="module")
def run(place, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "searched"
    display = Spy()
    result = search(config(place, test=place[1] / "test.tsv"), out, grid=GRID, display=display)
    return out, result, display


def test_the_best_point_is_run_with_all_seeds(run):
    out, result, _ = run
    points = json.loads((out / "search.json").read_text())["points"]
    assert len(points) == 4
    values = {(p["lr"], p["epochs"]): p["value"] for p in points}
    used = json.loads((out / "run.json").read_text())["config"]
    assert (used["fit"]["optimizer"]["lr"], used["fit"]["epochs"]) == (1e-2, 20.0)
    assert max(values.values()) == values[1e-2, 20.0] > max(list(values.values())[:3])
    assert [seed["seed"] for seed in result.seeds] == [0, 1]
    # The first seed of the run is the point again: a search that trained otherwise would choose by other numbers.
    assert result.seeds[0]["dev"]["accuracy"] == max(values.values())
    assert not (out / "search").exists()


def test_points_do_not_see_the_test_rows(run):
    out, _, _ = run
    assert all("test" not in point for point in json.loads((out / "search.json").read_text())["points"])


def test_what_is_said_of_a_search(run):
    out, result, display = run
    assert any("replaces --lr and --epochs" in note for note in result.notes)
    assert not any("collapsed" in note for note in result.notes)  # those of points that were not taken are no news
    for said in ("\n".join(result.notes), "\n".join(display.notes)):
        assert "best of 4 points" in said
        assert "the dev score is optimistic; the test rows give an unbiased score" in said
    assert "Point 4 of 4" in "\n".join(display.notes)
    page = write_report(out).read_text()
    assert "The search for settings" in page
    assert "learning rate" in page


def test_the_test_rows_of_a_benchmark_give_the_honest_score(place, tmp_path):
    for name in ("train_5500.label", "TREC_10.label"):
        (tmp_path / name).write_text("".join(f"{('LOC:city', 'NUM:date')[i % 2]} film {i} {name}\n" for i in range(20)))
    settings = config(place, seeds=1, benchmark="TREC-6", train=tmp_path, dev="none")
    one = Grid(batch_size=(16,), lr=(1e-2,), epochs=(1.0,))
    result = search(settings, tmp_path / "run", grid=one)
    assert "test" in result.summary
    assert any("the test rows give an unbiased score" in note for note in result.notes)


def test_a_finished_folder_is_not_searched_again(run, place):
    with pytest.raises(UnmaskError, match="holds something already"):
        search(config(place), run[0], grid=GRID)


def test_an_interrupted_search_goes_on(place, tmp_path, monkeypatch):
    out = tmp_path / "run"
    display = Spy()
    original = display.note

    def note(text):
        original(text)
        if text.startswith("Point 3"):
            raise KeyboardInterrupt

    display.note = note
    with pytest.raises(KeyboardInterrupt):
        search(config(place, seeds=1), out, grid=GRID, display=display)
    assert len(json.loads((out / "search.json").read_text())["points"]) == 2
    with pytest.raises(UnmaskError, match=r"another search|with another fit\.least_steps"):
        search(config(place, seeds=1, least_steps=3), out, grid=GRID)
    (out / "search" / "seeds").mkdir(parents=True)  # what a kill leaves behind
    (out / "seeds" / "0").mkdir(parents=True)
    display = Spy()
    search(config(place, seeds=1), out, grid=GRID, display=display)
    said = "\n".join(display.notes)
    assert "continues from the points" in said
    assert "Point 3 of 4" in said
    assert "Point 2 of 4" not in said
    assert len(json.loads((out / "search.json").read_text())["points"]) == 4


def test_a_signal_ends_a_search_without_a_point(place, tmp_path):
    with pytest.raises(Stopped, match=r"SIGTERM in seed 0; continue with: unmask finetune --out .*run --resume"):
        search(config(place), tmp_path / "run", grid=GRID, display=Stopper())
    assert json.loads((tmp_path / "run" / "search.json").read_text())["points"] == []  # and the next one goes on
    assert not (tmp_path / "run" / "search").exists()


def test_a_signal_during_the_seeds_of_the_best_point_loses_no_point(place, tmp_path):
    one = Grid(batch_size=(16,), lr=(1e-2,), epochs=(2.0,))
    with pytest.raises(Stopped, match="Stopped by SIGTERM in seed 1"):
        search(config(place), tmp_path / "run", grid=one, display=Stopper(during="Seed 1"))
    assert begun(tmp_path / "run") == (config(place), one, None)
    display = Spy()
    result = search(config(place), tmp_path / "run", grid=one, display=display)
    assert [seed["stopped"] for seed in result.seeds] == [None, None]
    said = "\n".join(display.notes)
    assert "continues from the points" in said
    assert "Point 1 of 1" not in said
    with pytest.raises(UnmaskError, match="holds something already"):
        search(config(place), tmp_path / "run", grid=one)
    with pytest.raises(UnmaskError, match="has ended; its scores are in"):
        begun(tmp_path / "run")


def test_a_search_goes_on_with_its_own_settings_and_grid(place, tmp_path, capsys):
    """By --resume alone; other settings are refused."""
    out = tmp_path / "run"
    given = [*arguments(*place, seeds=1), "--search", "1", "--grid.lr", "3e-3", "--grid.epochs", "1"]
    given += ["--grid.batch-size", "16,32", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.runs.finetuning.search.run_seed", die)
        with pytest.raises(Killed):
            main(["finetune", *given])
    with pytest.raises(SystemExit):
        main(["finetune", "--out", str(out), "--resume", "--search", "2"])
    assert "continues with its own settings; leave out the others" in capsys.readouterr().err
    main(["finetune", "--out", str(out), "--resume"])
    facts = json.loads((out / "search.json").read_text())
    assert [(p["lr"], p["epochs"]) for p in facts["points"]] == [(3e-3, 1.0)]
    assert json.loads((out / "results.json").read_text())["seeds"][0]["total"] in (2, 4)


class Killed(BaseException):
    """A death that no code prepares for."""


def die(*given, **named):
    raise Killed


@pytest.mark.parametrize(("epochs", "least"), [((1.0,), 1), (Grid().epochs, 200)])
def test_only_the_published_epochs_take_a_least_number_of_steps(epochs, least, place, tmp_path, monkeypatch):
    found = []

    def see(prepared, *given, **named):
        found.append(prepared.config.fit.least)
        raise Killed

    monkeypatch.setattr("unmask.runs.finetuning.search.run_seed", see)
    with pytest.raises(Killed):
        search(config(place, least_steps=None, epochs=None), tmp_path / "run", grid=Grid(lr=(1e-3,), epochs=epochs))
    assert found == [least]


def test_one_process_at_a_time_is_at_a_folder(place, tmp_path, monkeypatch):
    out, settings = tmp_path / "run", config(place, seeds=1)
    one = Grid(batch_size=(16,), lr=(1e-2,), epochs=(1.0,))
    display = Spy()
    original, refused = display.note, []

    def note(text):
        original(text)
        if text.startswith("Point 1"):
            with pytest.raises(UnmaskError, match="is writing to") as error:
                search(settings, out, grid=one)
            refused.append(error)

    display.note = note
    search(settings, out, grid=one, display=display)
    assert len(refused) == 1
    assert not (out / ".lock").exists()

    def late(*given, **more):
        """Another process does all of it while this one reads its rows."""
        monkeypatch.undo()
        search(settings, tmp_path / "other", grid=one)
        return prepare(*given, **more)

    monkeypatch.setattr("unmask.runs.finetuning.search.prepare", late)
    with pytest.raises(UnmaskError, match="holds something already"):
        search(settings, tmp_path / "other", grid=one)


@pytest.mark.parametrize("text", ['{"points": 3}', '{"config": {}, "points": []}', "[]", "{"])
def test_a_damaged_search_is_refused(text, place, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "search.json").write_text(text)
    with pytest.raises(UnmaskError, match=r"search|run"):
        search(config(place), tmp_path / "run", grid=GRID)


def test_the_command(place, tmp_path, capsys):
    grid = ["--grid.lr", "3e-3", "--grid.epochs", "1,2", "--grid.batch-size", "16"]
    out = tmp_path / "run"
    main(["finetune", *arguments(*place, seeds=1), "--search", "1", *grid, "--out", str(out)])
    assert len(json.loads((out / "search.json").read_text())["points"]) == 1
    assert "a --test file would give an unbiased score" in " ".join(capsys.readouterr().out.split())
    main(["finetune", "--search", "--fields", "--strategy", "lora"])
    assert "--grid.lr" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "tried"),
    [
        (["--epochs", "1", "--batch-size", "32"], {((32,), (5e-5, 3e-5, 2e-5), (1.0,), 1)}),
        (["--fit.epochs", "1", "--lr", "1e-3"], {((16, 32), (1e-3,), (1.0,), 1)}),
        (["--batch", "8", "--epochs", "1", "--grid.epochs", "3"], {((8,), (5e-5, 3e-5, 2e-5), (3.0,), 1)}),
        ([], {((16, 32), (5e-5, 3e-5, 2e-5), (2.0, 3.0, 4.0), 200)}),
    ],
)
def test_a_setting_that_is_asked_for_is_an_axis_of_one_value(more, tried, place, tmp_path, monkeypatch, capsys):
    """Once, `--search --epochs 1` tried 2, 3 and 4 epochs, of 200 steps at least."""
    found = set()

    def see(prepared, *given, **named):
        _, grid, _ = begun(tmp_path / "run")
        found.add((grid.batch_size, grid.lr, grid.epochs, prepared.config.fit.least))
        raise Killed

    monkeypatch.setattr("unmask.runs.finetuning.search.run_seed", see)
    model, rows = place
    given = ["--model", str(model), "--train", str(rows / "train.tsv"), "--dev", str(rows / "dev.tsv"), *more]
    with pytest.raises(Killed):
        main(["finetune", *given, "--search", "1", "--out", str(tmp_path / "run")])
    assert found == tried
    assert ("replaces --epochs;" in " ".join(capsys.readouterr().out.split())) is ("--grid.epochs" in more)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--search", "0", "--grid.lr", "1,2"], "1 to 2, not 0"),
        (["--search", "--curve", "10"], "not allowed with"),
        (["--search", "--grid.rate", "1"], "rate"),
        (["--grid.lr", "1e-3"], "grid.lr"),
        (["--search", "many"], "many"),
    ],
)
def test_bad_searches_are_one_sentence(more, sentence, place, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["finetune", *arguments(*place), "--out", str(tmp_path / "run"), *more])
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
