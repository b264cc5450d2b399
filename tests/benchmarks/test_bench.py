"""make bench: rows by name and with other fields, missing peers, goals as they are judged, tables and plots."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, replace

import pytest
import torch

from bench import ceiling, common, encoder, inference, pretraining, run, startup, table, turn
from bench.__main__ import main
from bench.row import Measured, Plan, Row, Unit, at_least, at_most, times, within
from bench.rows import ROWS, find
from bench.run import Places, bench
from bench.stopwatch import Stopwatch, attended
from unmask.cli import process
from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.kernels import processor
from unmask.models.bert import Bert
from unmask.types import Batch

SPEED, SECONDS = Unit("tokens/s"), Unit("s", digits=2, time=True)


@dataclass(frozen=True, kw_only=True)
class Toy(Config):
    speed: float = 6.0
    name: str = "a"


def toy(measure=None, **changes):
    """A row whose sides run at 6, 2 and 3 tokens a second."""

    def found(settings, sides, plan):
        speeds = {"unmask": settings.speed, "slow": 2.0, "absent": 3.0}
        return Measured(plan.alternate(sides, SPEED, lambda side, number: {"figure": speeds[side] + number}))

    sides = {"unmask": (), "slow": (), "absent": ("no_such_package",)}
    row = Row("toy-one", "counting", SPEED, sides, Toy(), measure or found, {"slow": times(2)}, {"speed": 1.0})
    return replace(row, **changes)


@pytest.fixture
def rows(monkeypatch):
    """Let `bench` know these rows alone."""

    def give(*given):
        monkeypatch.setattr(run, "find", lambda names: list(given))

    return give


def test_rows_are_found_by_name_and_by_family():
    assert [row.name for row in find([])] == list(ROWS)
    assert [row.name for row in find(["decode", "start-help"])] == ["decode-greedy", "decode-beam", "start-help"]
    with pytest.raises(UnmaskError, match="no row 'pretrain-mni'; did you mean 'pretrain-mini'"):
        find(["pretrain-mni"])


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_every_row_has_a_side_of_ours_that_needs_nobody_and_goals_beside_its_own_peers(row):
    ours, *peers = row.sides
    assert row.sides[ours] == ()
    assert set(row.goals) <= {"", *peers}
    assert row.settings.override(row.quick) != row.settings


def test_a_ratio_says_how_many_times_as_fast_for_speeds_and_for_times():
    assert SPEED.times(6.0, 2.0) == 3.0
    assert SECONDS.times(2.0, 6.0) == 3.0


@pytest.mark.parametrize(
    ("goal", "unit", "ours", "theirs", "reached"),
    [
        (times(3), SPEED, [6.0, 9.0, 1.0], [2.0, 3.0, 1.0], True),
        (times(3), SPEED, [5.9], [2.0], False),
        (times(1), SECONDS, [2.1], [2.0], False),
        (at_least(0.7), SPEED, [0.7], [0.1], True),
        (at_most(0.3), SECONDS, [0.31], [9.0], False),
        (at_most(0.3), SECONDS, [0.3], [9.0], True),
        (within(0.2), SECONDS, [1.1], [1.0], True),
        (within(0.2), SECONDS, [1.3], [1.0], False),
    ],
)
def test_goals_are_judged_by_the_median_of_the_turns(goal, unit, ours, theirs, reached):
    assert goal.is_reached(unit, ours, theirs) is reached


def test_sides_take_turns(tmp_path):
    seen = []
    Plan(1, 2, tmp_path).alternate(["a", "b"], SPEED, lambda side, number: seen.append((side, number)) or {"figure": 1})
    assert seen == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_an_encoder_of_the_same_shape_takes_the_place_of_the_packaged_one(tmp_path, monkeypatch):
    texts = [(f"The function number {i} returns its {i} arguments.", "module") for i in range(60)]
    monkeypatch.setattr(encoder, "passages", lambda: tuple(texts))
    monkeypatch.setattr(encoder, "SHAPE", {**encoder.SHAPE, "layers": 1, "dim": 16, "heads": 2, "hidden": 32})
    monkeypatch.setattr(common, "absent", tuple)
    folder = encoder.minilm(Plan(1, 1, tmp_path))
    assert encoder.minilm(Plan(1, 1, tmp_path)) == folder
    embed = inference.unmask({"model": str(folder), "form": "fp32"})
    vectors = embed(["The function returns.", "An argument."])
    assert vectors.shape == (2, 16)
    assert (vectors**2).sum(1) == pytest.approx([1, 1], abs=1e-5)


def test_a_run_writes_what_it_found_and_names_who_is_missing(rows, tmp_path, capsys):
    rows(toy())
    places = Places(tmp_path / "bench.json", tmp_path / "bench.md")
    facts = bench([], {}, threads=1, pairs=3, places=places)
    (line,) = facts["rows"][0]["lines"]
    assert line["ratio"] == pytest.approx({"median": 7 / 3, "least": 2.0, "greatest": 3.0})
    assert (line["peer"], line["goal"], line["reached"]) == ("slow", "≥ 2 times", True)
    assert json.loads((tmp_path / "bench.json").read_text(encoding="utf-8")) == facts
    text = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert (
        "| toy-one | counting | 7 tokens/s | slow | 3 tokens/s | **2.33** (2.00 to 3.00) | ≥ 2 times: reached |" in text
    )
    assert "- toy-one: absent was left out, without no_such_package." in text
    assert f"torch {common.importlib.metadata.version('torch')}" in text
    assert "absent is left out: no_such_package not installed" in capsys.readouterr().out


def test_a_row_that_fails_is_named_and_the_others_go_on(rows, tmp_path):
    def fail(settings, sides, plan):
        raise UnmaskError("The turn 'slow' failed: no memory")

    rows(toy(fail, name="toy-broken"), toy())
    with pytest.raises(UnmaskError, match=r"Without a result: toy-broken\."):
        bench([], {}, threads=1, pairs=1, places=Places(tmp_path / "bench.json"))
    broken, sound = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))["rows"]
    assert broken["failed"].endswith("no memory")
    assert sound["lines"][0]["ratio"]["median"] == 3.0


def test_without_any_peer_a_row_shows_what_is_ours(rows, tmp_path):
    rows(toy(sides={"unmask": (), "absent": ("no_such_package",)}))
    facts = bench([], {}, threads=1, pairs=1)
    assert facts["rows"][0]["lines"] == [
        {"peer": "", "ours": {"median": 6.0, "least": 6.0, "greatest": 6.0, "shown": "6 tokens/s"}}
    ]
    assert "| toy-one | counting | 6 tokens/s | nobody |" in table.render(facts)


def test_fields_with_several_values_make_all_combinations_which_have_no_goals():
    row = toy()
    found = list(run.variants(row, {"speed": "1,2", "name": "x,y"}, quick=False))
    assert [(row.settings.speed, row.settings.name) for row in found] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert found[0].work == "counting; here with speed 1, name x"
    assert not any(row.goals for row in found)
    assert list(run.variants(row, {"speed": "6"}, quick=False)) == [row]
    assert next(run.variants(row, {"name": "z"}, quick=True)).settings == Toy(speed=1.0, name="z")


@pytest.mark.usefixtures("by_processor")
@pytest.mark.parametrize(("own", "auto"), [(True, "bf16"), (False, "fp32")])
def test_a_row_is_measured_in_the_fastest_precision_of_the_processor(own, auto, monkeypatch):
    monkeypatch.setattr(processor, "abilities", lambda: {"architecture": "x86_64", "avx512_bf16": own})
    monkeypatch.setattr(processor, "library_has_bf16", lambda: own)
    row = ROWS["decode-greedy"]
    found, notes = run.settled(row)
    assert (found.settings.precision, notes) == (auto, [])
    assert f"V 32,000, {auto}, batch 32" in found.says
    asked, notes = run.settled(replace(row, settings=row.settings.override({"precision": "bf16"})))
    assert asked.settings.precision == "bf16"
    assert notes == ([] if own else ["This cpu imitates bf16, which is no faster than fp32; auto is the fastest here."])
    plain = toy()
    assert run.settled(plain) == (plain, [])


def test_what_cannot_be_measured_is_said_before_the_first_turn(rows, tmp_path):
    def measure(settings, sides, plan):
        raise AssertionError("measured")

    rows(toy(measure))
    (tmp_path / "file").touch()
    for arguments, message in [
        (({"spede": "1"}, 1, 1, Places()), "toy-one: There is no field 'spede'; did you mean 'speed'"),
        (({}, 0, 1, Places()), "threads and of pairs"),
        (({}, 1, 0, Places()), "threads and of pairs"),
        (({}, 1, 1, Places(plot=tmp_path / "x.pdf")), r"drawn as \.svg or \.png"),
        (({}, 1, 1, Places(table=tmp_path)), "is a folder"),
        (({}, 1, 1, Places(tmp_path / "file" / "x.json")), r"x\.json could not be written"),
    ]:
        fields, threads, pairs, places = arguments
        with pytest.raises(UnmaskError, match=message):
            bench([], fields, threads=threads, pairs=pairs, places=places)


def test_the_plot_has_a_point_for_each_peer(rows, tmp_path):
    pytest.importorskip("matplotlib")
    rows(toy())
    bench([], {}, threads=1, pairs=2, places=Places(plot=tmp_path / "bench.svg"))
    assert "toy-one / slow" in (tmp_path / "bench.svg").read_text(encoding="utf-8")


def test_the_start_of_processes_is_measured_by_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(startup, "COMMANDS", {**startup.COMMANDS, "import torch": ["-c", "pass"]})
    out = tmp_path / "bench.json"
    main(["start-help", "--quick", "--threads", "1", "--out", str(out)])
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert row["settings"] == {"repeats": 1}
    assert row["turns"]["unmask --help"][0]["figure"] > 0
    assert "| start-help |" in capsys.readouterr().out


def test_the_command_lists_rows_and_fields(capsys):
    main(["decode", "--list"])
    assert "decoding, Transformer-base, V 32,000, the fastest precision, batch 32" in capsys.readouterr().out
    main(["start-help", "--fields"])
    assert capsys.readouterr().out.split() == ["start-help:", "--repeats", "3"]


def test_peers_start_in_the_environment_of_the_benchmark(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    main(["--list"])
    assert "GOMP_SPINCOUNT" not in common.environment(1)
    assert common.environment(3)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("module", "prepared"),
    [
        ("pretraining", []),
        ("finetuning", ["keep_memory"]),
        ("decoding", ["take_large_pages"]),
        ("inference", ["take_large_pages"]),
    ],
)
def test_our_turns_start_as_the_command_that_they_measure(module, prepared, monkeypatch):
    called = []
    for name in ("share_the_machine", "keep_memory", "take_large_pages"):
        monkeypatch.setattr(process, name, lambda name=name: called.append(name))
    turn.start_as_unmask(module)
    assert called == ["share_the_machine", *prepared]


def test_the_smallest_comparison_of_decoding_runs_in_fresh_processes(tmp_path):
    row = replace(ROWS["decode-greedy"], sides={"unmask": ()})
    small = {"size": "tiny", "vocabulary": 200, "batch": 2, "sources": 4}
    found = row.measure(row.settings.override(small), ["unmask"], Plan(1, 1, tmp_path))
    (turn,) = found.turns["unmask"]
    assert turn["figure"] == pytest.approx(turn["tokens"] / turn["seconds"])
    assert found.facts["equal"] == {"unmask": 4}


def test_what_others_do_on_the_machine_meanwhile_is_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "_usable", lambda: {0, 1, 2, 5})
    before, after = common.Worked(all=1000.0, own=50.0), common.Worked(all=1035.0, own=75.0)
    assert common.had_by_others(before, after, 10.0) == pytest.approx((35 - 25) / 40)
    assert common.had_by_others(before, common.Worked(all=1024.9, own=75.0), 10.0) == 0.0  # clocks tick apart
    assert common.had_by_others(None, after, 10.0) is None
    clocks = tmp_path / "stat"
    of_each = "".join(f"cpu{i} 100 0 50 900 3 1 2 {10 * i} 0 0\n" for i in range(6))
    clocks.write_text(f"cpu 1 2 3 4 5 6 7 8\n{of_each}intr 5\n")
    ticks = common.os.sysconf("SC_CLK_TCK")
    assert common.worked(clocks).all == pytest.approx((4 * 153 + 10 * (0 + 1 + 2 + 5)) / ticks)
    clocks.write_text("cpu 0 0\ncpu0 0 0 0 0 0 0 0 0\n")  # as where a sandbox tells nothing
    assert common.worked(clocks) is None
    assert common.worked(tmp_path / "none") is None


def test_a_row_says_where_others_were_at_work_beside_it(rows, tmp_path):
    def found(settings, sides, plan):
        return Measured({"unmask": [{"figure": 1.0, "others": 0.01}, {"figure": 1.0, "others": 0.31}]})

    rows(toy(found, sides={"unmask": ()}))
    path = tmp_path / "bench.md"
    bench([], {}, threads=1, pairs=2, places=Places(table=path))
    assert "toy-one: Others had up to 31% of the machine during a turn" in path.read_text("utf-8")
    assert run.disturbed({"unmask": [{"others": 0.05}, {"others": None}, {}]}) == []


def test_a_turn_that_fails_says_why(tmp_path):
    with pytest.raises(UnmaskError, match=r"The turn 'nobody' failed: KeyError: 'nobody'"):
        common.trial("ceiling", "nobody", {}, threads=1)


def test_attention_is_counted_within_sequences():
    tokens = torch.zeros(2, 6, dtype=torch.int64)
    assert attended(Batch(tokens)) == 2 * 36
    documents = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 2, 3, 3, 3, 3]])
    assert attended(Batch(tokens, documents=documents)) == 9 + 4 + 1 + 1 + 16


def test_the_stopwatch_counts_from_the_first_step_that_counts_to_the_end_of_the_last(monkeypatch):
    clock = iter([0.0, 10.0, 12.0, 16.0])
    monkeypatch.setattr("bench.stopwatch.time.perf_counter", lambda: next(clock))
    watch = Stopwatch()
    for real in (99, 30, 60, 99):
        watch.next_step()
        watch.count(real, 100, real * 10)
    found = watch.result(1, 2)
    assert found["tokens_per_second"] == 90 / 6
    assert (found["seconds_per_step"], found["tokens_per_step"], found["filled"]) == (3.0, 45.0, 0.45)
    assert found["tokens_seen"] == 10


def test_the_share_of_the_ceiling_is_that_of_useful_operations(tmp_path, monkeypatch):
    turn = {"tokens_per_second": 1_000.0, "tokens_seen": 100.0, "ceiling": 1e12, "figure": 1_000.0}
    facts = {"corpus": {"vocabulary": 50}}
    monkeypatch.setattr(ceiling, "compared", lambda *_: ({"unmask": [turn]}, facts))
    asked = pretraining.Comparison(size="tiny", vocabulary=70)
    found = ceiling.measure(asked, ["unmask"], Plan(1, 1, tmp_path)).turns["unmask"][0]["figure"]
    model = Bert().replace(layers=2, dim=128, heads=2, hidden=512, vocabulary=70)
    blocks = sum(p.numel() for p in model.build({}).stack.parameters() if p.dim() == 2)
    head = 128 * 128 + 128 * 70
    per_token = 6 * blocks + 12 * 2 * 128 * 100 + 0.15 * 6 * head
    assert found == pytest.approx(1_000 * per_token / 1e12)


def test_rows_of_the_same_settings_share_their_turns(tmp_path, monkeypatch):
    calls = []

    def trial(place, name, settings, **_):
        calls.append(name)
        return {"tokens_per_second": 5.0, "filled": 1.0, "flops_per_second": 1.0, "corpus": "", "parameters": 1} | {
            "vocabulary": 1,
            "tokens": 1,
            "sentences": 1,
            "losses": {"unmask": 1.0, "transformers": 1.0},
        }

    monkeypatch.setattr(common, "trial", trial)
    plan, asked = Plan(1, 2, tmp_path), pretraining.Comparison()
    pretraining.measure(asked, ["unmask"], plan)
    assert calls == ["corpus", "model", "product", "unmask", "product", "unmask"]
    pretraining.measure(asked, ["unmask"], plan)
    assert len(calls) == 6
    pretraining.measure(asked.replace(seed=1), ["unmask"], plan)
    assert len(calls) == 12


def test_what_two_sides_need_at_once_is_made_once(tmp_path):
    made, plan = [], Plan(1, 1, tmp_path, at_once=2)
    both = threading.Barrier(2)

    def make():
        time.sleep(0.05)
        made.append(1)
        return len(made)

    def turn(side, number):
        both.wait(5)
        return {"figure": plan.once("ceiling", make)}

    assert plan.alternate(["a", "b"], SPEED, turn) == {"a": [{"figure": 1}], "b": [{"figure": 1}]}


def test_sides_that_compute_another_loss_are_not_compared(tmp_path, monkeypatch):
    losses = {"unmask": 1.0, "transformers": 1.1}
    found = {"corpus": "", "parameters": 1, "vocabulary": 1, "tokens": 1, "sentences": 1, "losses": losses}
    monkeypatch.setattr(common, "trial", lambda *_, **__: found)
    with pytest.raises(UnmaskError, match="do not compute the same loss"):
        pretraining.measure(pretraining.Comparison(), ["unmask"], Plan(1, 1, tmp_path))
