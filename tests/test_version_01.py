"""Folders, corpora and runs that version 0.1 wrote open, answer what they answered there, and go on.

`fixtures/v0.1` holds them with what version 0.1 answered; its README.md says how they were made.
"""

from __future__ import annotations

import json
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.text.corpus import Corpus
from unmask.generate import Limits, Search, generate_all
from unmask.models.model import Model
from unmask.train.metrics import read as read_metrics
from unmask.types import Batch

FIXTURES = Path(__file__).parent / "fixtures" / "v0.1"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text("utf-8"))
RUNS = ("pretrained", "classified", "tagged", "translated", "translated-recurrent", "others/both", "tasks/embedding")
END, PAD = 2, 0


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a copy of the fixtures, since runs name their files relative to it."""
    shutil.copytree(FIXTURES, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "README.md"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def near(expected: Any, tolerance: float) -> Any:
    """JSON values of which every number need only be near."""
    if isinstance(expected, dict):
        return {name: near(value, tolerance) for name, value in expected.items()}
    if isinstance(expected, list):
        return [near(value, tolerance) for value in expected]
    return pytest.approx(expected, abs=tolerance, rel=tolerance) if isinstance(expected, float) else expected


@pytest.mark.parametrize(("name", "run"), [("corpus", "pretrained"), ("spelled", "others/both")])
def test_a_corpus_holds_the_text(name: str, run: str, copied: Path) -> None:
    corpus = Corpus(copied / name, verify=True)
    assert corpus.checksum == json.loads((copied / run / "run.json").read_text("utf-8"))["checksums"][0]
    documents = chain(corpus.split("train"), corpus.split("heldout"))
    read = [corpus.tokenizer.decode(np.concatenate(document.sentences).tolist()) for document in documents]
    texts = (copied / "text.txt").read_text("utf-8").lower().split("\n\n")
    assert sorted("".join(text.split()) for text in read) == sorted("".join(text.split()) for text in texts)


@pytest.mark.parametrize("line", EXPECTED["answers"])
def test_a_folder_answers_what_it_answered(line: str, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(line.split())
    printed = capsys.readouterr().out
    if line.startswith("evaluate"):
        scores = json.loads(printed)
        found = [scores["metrics"]] if "metrics" in scores else [scores["exact"], scores["scores"]["chrf"]["value"]]
    else:
        found = [json.loads(row) for row in printed.splitlines()]
    assert found == near(EXPECTED["answers"][line], 2e-6)


@pytest.mark.parametrize("line", EXPECTED["resumed"])
def test_a_run_that_was_stopped_goes_on_to_the_same_end(line: str, copied: Path) -> None:
    metrics = copied / line.split("--out ")[1].split()[0] / "metrics.jsonl"
    before = metrics.read_text("utf-8")
    main(line.split())
    assert metrics.read_text("utf-8").startswith(before)
    for split, losses in EXPECTED["resumed"][line].items():
        last = read_metrics(metrics, split)[-1]
        assert {name: last[name] for name in losses} == near(losses, 1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_a_report_and_curves(name: str, copied: Path) -> None:
    main(["report", name])
    assert "<svg" in (copied / name / "report.html").read_text("utf-8")
    main(["show", "run", name, "--out", "curves.html"])
    assert name in (copied / "curves.html").read_text("utf-8")


def logits(model: Model, batch: Batch, head: str) -> torch.Tensor:
    """Of a head over sequences for each row, of words from the left and then from the right, else at every place."""
    rows, width = batch.tokens.shape
    places = torch.arange(rows) * width if head == "classification" else torch.arange(rows * width)
    hidden = model(batch)
    states = [model.direction(hidden, number) for number in (0, 1)] if head == "words" else [hidden]
    return torch.cat([model.answer(head, x, places, batch) for x in states])


@torch.no_grad()
@pytest.mark.parametrize("name", EXPECTED["systems"])
def test_a_model_in_a_format_of_our_own_answers_alike(name: str) -> None:
    """No other program reads these folders, so that only numbers of version 0.1 show a change of their meaning."""
    expected = EXPECTED["systems"][name]
    model = huggingface.load(FIXTURES / "systems" / name).model
    tokens, source = torch.tensor(expected["tokens"]), expected.get("source")
    batch, starts = Batch(tokens), [np.array(row) for row in tokens[:, :3].tolist()]
    if source is not None:
        values, starts = torch.tensor(source), [np.array(row) for row in source]
        given = Batch(values)
        if model.config.features is not None:
            given, starts = Batch.of_vectors(values), [values[i : i + 1].numpy() for i in range(len(values))]
        batch = Batch(tokens, source=given)
    for head, wanted in expected["logits"].items():
        torch.testing.assert_close(logits(model, batch, head), torch.tensor(wanted), atol=2e-6, rtol=1e-6)
    if "written" in expected:
        search = Search(beam_size=3, n_best=2, limits=Limits(max_length=6))
        found = list(generate_all(model, starts, search, end=END, pad=PAD))
        assert [[[h.tokens, h.score] for h in row] for row in found] == near(expected["written"], 1e-5)
