"""The rows of make bench that are for a GPU: left out where there is none, and with its published peak as ceiling."""

from __future__ import annotations

import pytest

from bench import ceiling, common, pretraining, run, trainer
from bench.row import Plan
from bench.rows import ROWS
from bench.run import Places, bench
from unmask.models.bert import SIZES, Bert

ROW = ROWS["pretrain-gpu"]


def test_without_a_gpu_its_rows_are_left_out_and_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "sees_gpu", lambda: False)
    monkeypatch.setattr(run, "find", lambda names: [ROW, ROWS["ceiling-gpu"]])
    table = tmp_path / "bench.md"
    facts = bench([], {}, threads=1, pairs=1, places=Places(table=table))
    assert [row["lines"] for row in facts["rows"]] == [[], []]
    assert "- pretrain-gpu: Left out: PyTorch sees no GPU here." in table.read_text("utf-8")


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_turns_see_a_gpu_where_it_is_measured(device, tmp_path, monkeypatch):
    asked = []

    def trial(place, name, settings, *, gpu=False, **_):
        asked.append((name, gpu, settings["device"], settings["compile"]))
        counts = {"vocabulary": 9, "tokens": 9, "sentences": 9, "parameters": 9, "corpus": ""}
        return {**counts, "tokens_per_second": 5.0, "filled": 1.0, "flops_per_second": 1.0, "peak": 4.0}

    monkeypatch.setattr(common, "trial", trial)
    settings = ROW.settings.replace(device=device)
    turns, _ = pretraining.compared(settings, ["unmask", "transformers"], Plan(1, 1, tmp_path))
    seen = device == "cuda"
    names = (("corpus", False), ("model", False), ("product", seen), ("unmask", seen), ("transformers", seen))
    assert asked == [(name, gpu, device, True) for name, gpu in names]
    assert (turns["unmask"][0]["ceiling"], turns["unmask"][0]["peak"]) == (1.0, 4.0)


@pytest.mark.parametrize(("peak", "share"), [(None, 1.0), (4e12, 0.5)])
def test_the_ceiling_is_the_published_peak_where_it_is_known(peak, share, tmp_path, monkeypatch):
    from unmask.runs.cost import training_flops

    model = Bert().replace(**SIZES["base"], vocabulary=30_522)
    speed = 2e12 * 100 / training_flops(model, 100.0, 15.0)
    turn = {"tokens_per_second": speed, "tokens_seen": 100.0, "ceiling": 2e12, "peak": peak, "figure": speed}
    monkeypatch.setattr(ceiling, "compared", lambda *_: ({"unmask": [turn]}, {"corpus": {"vocabulary": 5}}))
    found = ceiling.measure(ROW.settings, ["unmask"], Plan(1, 1, tmp_path))
    assert found.turns["unmask"][0]["figure"] == pytest.approx(share)
    assert [note for note in found.notes if "published peak of the GPU, 4 TFLOP/s" in note] == list(found.notes[1:])


def test_a_square_product_says_where_it_ran():
    found = ceiling.product({"square": 32, "precision": "fp32", "device": "cpu", "seconds": 0.0})
    assert (found["device"], found["peak"]) == ("cpu", None)


@pytest.mark.parametrize(("device", "on_cpu"), [("cuda", False), ("cpu", True)])
def test_the_peer_takes_the_same_device(device, on_cpu, tmp_path):
    pytest.importorskip("accelerate")
    settings = {"lr": 1e-4, "precision": "fp32", "seed": 0, "device": device}
    chosen = trainer.arguments(str(tmp_path), settings, max_steps=1)
    assert (chosen.use_cpu, chosen.dataloader_pin_memory) == (on_cpu, not on_cpu)
