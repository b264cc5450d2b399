"""Learning curves: nested sets, several seeds, a page; no models are left behind."""

from __future__ import annotations

import json

import pytest
from finetune_toy import Spy, Stopper, arguments, fields

from unmask.cli import main
from unmask.data.labelled.rows import Choices
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import Stopped, UnmaskError
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.finetuning import learning_curve as page
from unmask.runs.finetuning.encoder import prepare
from unmask.runs.finetuning.learning_curve import begun, curve, sizes_in, table
from unmask.runs.report import write_report
from unmask.tasks import MultipleChoice


def config(place, **more):
    return FineTuning().override({**fields(*place), **more})


@pytest.fixture(scope="module")
def run(place, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "curve"
    display = Spy()
    found = curve(config(place, test=place[1] / "test.tsv", seeds=2), out, [8, "all", 32, 8], display=display)
    return out, found, display


def test_every_number_of_rows_has_every_seed(run):
    _, found, _ = run
    assert [(row["rows"], row["seed"]) for row in found] == [(8, 0), (8, 1), (32, 0), (32, 1), (64, 0), (64, 1)]
    assert all({"accuracy", "f1"} <= row["dev"].keys() & row["test"].keys() for row in found)


def test_all_rows_are_the_plain_run(run, place, tmp_path):
    _, found, _ = run
    result = finetune(config(place, test=place[1] / "test.tsv", seeds=2), tmp_path / "run")
    assert [row["test"] for row in found[-2:]] == [row["test"] for row in result.seeds]


def test_a_smaller_set_is_part_of_a_larger_one():
    small, large = page._drawn(1000, 30, 0), page._drawn(1000, 100, 0)
    assert len(set(small)) == 30
    assert set(small) < set(large)
    assert page._drawn(1000, 30, 1) != small
    assert page._drawn(1000, 1000, 5) == list(range(1000))


def test_a_part_of_what_is_encoded_is_its_rows_encoded(place):
    tokenizer = Tokenizer.load(place[0])
    rows = [Choices(f"a plot {i}", choices=("good", "bad film", "dull")[: 2 + i % 2], label="0") for i in range(9)]
    task, places = MultipleChoice(), [1, 2, 5, 8]
    part = page._part(task.encode(rows, tokenizer, 32), places)
    alone = task.encode([rows[i] for i in places], tokenizer, 32)
    assert [e.tokens.tolist() for e in part.examples] == [e.tokens.tolist() for e in alone.examples]
    assert part.of_rows == alone.of_rows
    assert part.rows == alone.rows
    assert part.together == alone.together


def test_nothing_but_numbers_is_kept(run):
    out, found, _ = run
    assert {path.name for path in out.iterdir()} == {"curve.json", "report.html"}
    facts = json.loads((out / "curve.json").read_text())
    assert facts["runs"] == found
    assert facts["all"] == 64
    assert facts["baseline"]["test"]["accuracy"] == 0.5
    means = table(facts, "dev")
    assert list(means) == [8, 32, 64]
    values = [row["dev"]["accuracy"] for row in found[:2]]
    assert means[8]["accuracy"]["mean"] == pytest.approx(sum(values) / 2)
    assert means[8]["accuracy"]["worst"] == min(values)


def test_the_page_shows_the_curve_and_the_baseline(run):
    out, _, display = run
    text = write_report(out).read_text()
    for part in ("Learning curve: classification", "<svg", "baseline (0.5)", "training rows", "on the test rows"):
        assert part in text
    said = "\n".join(display.notes)
    assert "32 training rows, seed 1" in said
    assert "baseline    0.5000" in said


def test_sizes_are_read():
    assert sizes_in("100, 300,all") == [100, 300, "all"]
    for wrong in ("", "100,,300", "some", "1e3", "-5", "²"):
        with pytest.raises(UnmaskError, match="numbers of rows"):
            sizes_in(wrong)


@pytest.mark.parametrize(("sizes", "sentence"), [([65], "there are 64"), ([0, 5], "cannot have 0"), ([], "--curve")])
def test_sizes_that_the_rows_cannot_give(sizes, sentence, place, tmp_path):
    with pytest.raises(UnmaskError, match=sentence):
        curve(config(place), tmp_path / "run", sizes)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_left_alone(run, place, tmp_path):
    (tmp_path / "run").mkdir()  # not ours: nothing here was finished
    with pytest.raises(UnmaskError, match="holds something already"):
        curve(config(place), tmp_path, [8])
    for more, name in (({}, r"rows\.test"), ({"test": place[1] / "test.tsv", "lr": 1e-3}, r"fit\.optimizer\.lr")):
        with pytest.raises(UnmaskError, match=f"curve with another {name}; choose another folder"):
            curve(config(place, **more), run[0], [8])


def test_a_curve_of_other_rows_does_not_go_on(place, tmp_path):
    train = tmp_path / "train.tsv"
    rows = (place[1] / "train.tsv").read_text().splitlines(keepends=True)
    train.write_text("".join(rows[:41]))
    settings = config(place, train=train, seeds=1, epochs=1)
    curve(settings, tmp_path / "run", [4])
    train.write_text("".join(rows[:51]))
    with pytest.raises(UnmaskError, match="a curve of 40 training rows, but there are now 50"):
        curve(settings, tmp_path / "run", [4])


def test_a_curve_that_was_killed_goes_on_where_it_was(place, tmp_path):
    out, settings = tmp_path / "run", config(place, seeds=2, epochs=1)
    display = Spy()
    original = display.note

    def note(text):
        original(text)
        if text.startswith("16 training rows, seed 0"):
            raise KeyboardInterrupt

    display.note = note
    with pytest.raises(KeyboardInterrupt):
        curve(settings, out, [8, 16], display=display)
    before = json.loads((out / "curve.json").read_text())["runs"]
    assert [(row["rows"], row["seed"]) for row in before] == [(8, 0), (8, 1)]
    (out / "run" / "seeds" / "0" / "checkpoints" / "step-00000001").mkdir(parents=True)  # what a kill leaves behind
    (out / "run" / "seeds" / "0" / "metrics.jsonl").write_text("half")
    display = Spy()
    found = curve(settings, out, [8, 16], display=display)
    said = "\n".join(display.notes)
    assert "continues from the runs" in said
    assert "8 training rows, seed 0" not in said
    assert "16 training rows, seed 0" in said
    assert {path.name for path in out.iterdir()} == {"curve.json", "report.html"}
    assert found == json.loads((out / "curve.json").read_text())["runs"] == curve(settings, tmp_path / "new", [8, 16])
    more = curve(settings.replace(seeds=3), out, [4, 8])  # more points of a finished curve
    assert [(row["rows"], row["seed"]) for row in more] == [(4, 0), (4, 1), (4, 2), (8, 0), (8, 1), (8, 2)]
    assert more[3:5] == before
    assert list(table(json.loads((out / "curve.json").read_text()), "dev")) == [4, 8, 16]


@pytest.mark.parametrize("text", ['{"runs": []}', '{"given": 3}', "[]", "{"])
def test_a_damaged_curve_is_refused(text, place, tmp_path):
    (tmp_path / "curve.json").write_text(text)
    with pytest.raises(UnmaskError, match=r"curve"):
        curve(config(place), tmp_path, [8])
    values = json.loads(json.dumps(config(place).places(), default=str))
    values.pop("seeds")
    (tmp_path / "curve.json").write_text(json.dumps({"given": values, "runs": [{"rows": 8}]}))
    with pytest.raises(UnmaskError, match="is damaged: it lists no runs; delete the folder"):
        curve(config(place), tmp_path, [8])


def test_three_seeds_where_nobody_says_otherwise(place, tmp_path):
    assert len(curve(config(place, epochs=1), tmp_path / "run", [4])) == 3


def test_a_curve_that_is_stopped_keeps_what_it_has_and_goes_on(place, tmp_path, capsys):
    display, out = Stopper("seed 1:"), tmp_path / "run"
    asked = config(place, seeds=3, epochs=1)
    with pytest.raises(Stopped, match=r"SIGTERM in seed 1; continue with: unmask finetune --out .*run --resume"):
        curve(asked, out, [8, 16], display=display)
    assert [(row["rows"], row["seed"]) for row in json.loads((out / "curve.json").read_text())["runs"]] == [(8, 0)]
    assert begun(out) == (asked, [8, 16])
    assert "Stopped by SIGTERM in seed 1: the curve shows the 1 run so far." in display.notes
    assert "Stopped by SIGTERM" in (out / "report.html").read_text()
    assert not (out / "run").exists()
    with pytest.raises(SystemExit):
        main(["finetune", "--out", str(out), "--resume", "--curve", "8"])
    assert "continues with its own settings; leave out the others" in capsys.readouterr().err
    main(["finetune", "--out", str(out), "--resume"])
    assert len(json.loads((out / "curve.json").read_text())["runs"]) == 6


def test_one_process_at_a_time_is_at_a_folder(place, tmp_path, monkeypatch):
    out, settings = tmp_path / "run", config(place, seeds=1, epochs=1)
    display = Spy()
    original, refused = display.note, []

    def note(text):
        original(text)
        if text.startswith("4 training rows"):
            with pytest.raises(UnmaskError, match="is writing to") as error:
                curve(settings, out, [8])
            refused.append(error)

    display.note = note
    curve(settings, out, [4], display=display)
    assert len(refused) == 1
    assert {path.name for path in out.iterdir()} == {"curve.json", "report.html"}

    def late(*given):
        """Another process adds a point while this one reads its rows."""
        monkeypatch.undo()
        curve(settings, out, [8])
        return prepare(*given)

    monkeypatch.setattr("unmask.runs.finetuning.learning_curve.prepare", late)
    curve(settings, out, [16])
    assert [row["rows"] for row in json.loads((out / "curve.json").read_text())["runs"]] == [4, 8, 16]


def test_the_command(place, tmp_path, capsys):
    out = tmp_path / "run"
    main(["finetune", *arguments(*place, seeds=1), "--curve", "8,all", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "accuracy on the dev rows" in printed
    assert "the best evaluation, and is optimistic" in printed
    assert {row["rows"] for row in json.loads((out / "curve.json").read_text())["runs"]} == {8, 64}
