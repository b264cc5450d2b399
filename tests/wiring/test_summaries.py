"""Summaries: pairs with lists of sentences and several references, scored by ROUGE in training and by `evaluate`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from command_line import run_cli

from unmask.config import read_json
from unmask.data.bitext import reading
from unmask.errors import UnmaskError
from unmask.metrics.rouge import rouge
from unmask.runs.translation import TrainTranslation, evaluate_pairs, systems
from unmask.runs.translation.plain import lead
from unmask.runs.translation.scoring import scoring

STAGED = Path(__file__).resolve().parents[3] / "shared" / "data" / "scitldr"
ABSTRACT = ["We train a small model.", "It reads long texts.", "Results are good, e.g. on news.", "Code is free."]
ROWS = [
    {
        "source": [*ABSTRACT, f"Number {i} is odd."],
        "target": [f"A small model, number {i}.", "We train it."][: 1 + i % 2],
    }
    for i in range(60)
]


def written(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_list_of_targets_is_learned_by_its_first_and_scored_by_all(tmp_path):
    found = reading.read(written(tmp_path / "rows.jsonl", ROWS), columns=("source", "target"))
    assert found.sources[3] == " ".join(ROWS[3]["source"])
    assert found.targets[3] == "A small model, number 3."
    assert found.take([2, 3]).references == [
        ["A small model, number 2.", "A small model, number 3."],
        [None, "We train it."],
    ]
    bad = written(tmp_path / "bad.jsonl", [{"source": "a", "target": ["b", 3]}])
    with pytest.raises(UnmaskError, match=r"bad\.jsonl:1: the column target must be text, not a list"):
        reading.read(bad)


def test_a_run_is_scored_by_rouge_and_evaluate_shows_the_lead(tmp_path, capsys):
    table = written(tmp_path / "train.jsonl", ROWS)
    dev = written(tmp_path / "dev.jsonl", [{**row, "source": row["source"][1:]} for row in ROWS[:9]])
    widths = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("heads", 2))}
    config = systems.find("transformer-tiny").replace(
        model={"dim": 32, "dropout": 0.0, **widths, "encoder_hidden": 64, "decoder_hidden": 64},
        texts={"train": (table,), "dev": (dev,), "columns": ("source", "target"), "tokens": 128, "metric": "rouge"},
        vocabulary={"kind": "word", "size": 60},
        training={"minutes": None, "steps": 2, "precision": "fp32", "device": "cpu"},
    )
    result = TrainTranslation(config, tmp_path / "run").run()
    assert {"rouge1", "rouge2", "rougeL", "rougeLsum"} <= result.heldout.keys()
    facts = read_json(tmp_path / "run" / "run.json")
    assert facts["metric"] == "rouge1"
    assert "refs:best" in facts["signatures"]["rougeL"]

    found = evaluate_pairs(tmp_path / "run", [dev], columns=("source", "target"), metric="rouge")
    pairs = reading.read(dev, columns=("source", "target"))
    leads = [lead(source, 1) for source in pairs.sources]
    assert leads[0] == "It reads long texts."
    assert found["plain"]["lead-1"]["rouge2"] == rouge("rouge2", leads, pairs.references).value
    assert not found["by_length"]
    options = ("--columns", "source,target", "--metric", "rouge")
    _, shown, _ = run_cli(capsys, "evaluate", "--model", str(tmp_path / "run"), "--pairs", dev, *options)
    assert "ROUGE-Lsum" in shown
    assert "lead-3: ROUGE-1" in shown


def test_a_lead_ends_with_sentences():
    assert lead(" ".join(ABSTRACT), 3) == "\n".join(ABSTRACT[:3])  # e.g. ends none


def test_an_unknown_metric_is_named(tmp_path):
    with pytest.raises(UnmaskError, match="did you mean 'rouge'"):
        scoring("rogue")
    config = systems.find("transformer-tiny").replace(texts={"metric": "rogue"})
    with pytest.raises(UnmaskError, match="did you mean 'rouge'"):
        TrainTranslation(config, tmp_path / "run")


@pytest.mark.skipif(not STAGED.is_dir(), reason="the summaries of SciTLDR are not beside this checkout")
def test_real_summaries_have_several_references():
    found = reading.read(str(STAGED / "dev.jsonl.gz"), columns=("source", "target"))
    with gzip.open(STAGED / "dev.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    assert len(found) == len(rows) == 619
    assert len(found.references) == max(len(row["target"]) for row in rows) > 1
    assert found.sources[0] == " ".join(rows[0]["source"])
