"""The tour on a small text: it runs from one end to the other, says what came out, and overwrites nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.data.labelled.dataset import Row
from unmask.data.text import embedded
from unmask.data.text.embedded import TaggedSentence
from unmask.data.text.reading import TextDocument
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models import Bert
from unmask.runs import label_efficiency, quickstart
from unmask.runs.finetuning import Fitted
from unmask.runs.label_efficiency import CODE, LEXICAL, OUTSIDE, PRETRAINED, RANDOM
from unmask.runs.report import write_report
from unmask.tasks import lexical

NAMES = ("axis", "copy", "fit", "order", "dtype", "run")


def sentence(number: int) -> TaggedSentence:
    rng = np.random.default_rng(number)
    name = NAMES[rng.integers(len(NAMES))]
    words = ("If", name, "is", "given", ",", "the", "result", "number", str(number), "is", "returned", ".")
    return TaggedSentence(words, tuple(word == name for word in words), f"pack:module_{number}.py")


def row(number: int) -> Row:
    found = sentence(number)
    return Row(words=found.words, tags=tuple(CODE if tag else OUTSIDE for tag in found.tags))


@pytest.fixture
def small(monkeypatch):
    """A corpus of a few sentences in place of the real one."""
    texts = [
        TextDocument(" ".join(" ".join(sentence(n * 7 + i).words) for i in range(9)), f"pack:{n}") for n in range(90)
    ]
    monkeypatch.setattr(embedded, "documents", lambda exclude=None: iter(texts))
    monkeypatch.setattr(embedded, "code_mentions", lambda: iter(sentence(n) for n in range(80)))
    monkeypatch.setattr(quickstart, "PROMPTS", {"If axis is [MASK], the result is returned.": ("given",)})


def test_the_tour_runs_and_writes_its_report(small, tmp_path, capsys):
    page = quickstart.quickstart(tmp_path / "tour", minutes=0.03).read_text()
    facts = json.loads((tmp_path / "tour" / "quickstart.json").read_text())
    assert {(found["labels"], found["way"]) for found in facts["labelled"]} == {
        (32, way) for way in (PRETRAINED, RANDOM, LEXICAL)
    }
    assert 0 < facts["test_sentences"] < 80
    for part in ("A BERT from nothing", "Word-level F1", "Masked tokens: loss", "What it guesses", "warm_start"):
        assert part in page
    printed = capsys.readouterr().out
    assert "unmask finetune --model" in printed
    assert "0.03 minutes are too few on this machine" in printed
    assert facts["plan"]["seeds"] == 1
    assert set(facts["plan"]["notes"]) <= set(printed.splitlines())
    assert all(note in page for note in facts["plan"]["notes"])
    (tmp_path / "tour" / "quickstart.json").write_text(json.dumps({**facts, "minutes": 1.0}))
    page = write_report(tmp_path / "tour").read_text()
    assert "1 minute asked for" in page
    assert "±" not in page  # of one seed
    before = (tmp_path / "tour" / "quickstart.json").read_bytes()
    with pytest.raises(SystemExit) as stop:
        main(["quickstart", "--out", str(tmp_path / "tour")])
    assert stop.value.code == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "tour" / "quickstart.json").read_bytes() == before


def test_no_sentence_is_both_labelled_and_tested_on(small):
    pool, test = quickstart.tagged_rows()
    assert len(pool) + len(test) == 80
    assert all(quickstart.held_out(row.place) for row in test)
    assert not any(quickstart.held_out(row.place) for row in pool)


def test_minutes_must_be_above_zero(tmp_path):
    with pytest.raises(UnmaskError, match="above 0"):
        quickstart.quickstart(tmp_path / "tour", minutes=0)
    assert not (tmp_path / "tour").exists()


def scores(**means: tuple[float, float]) -> dict[int, dict[str, tuple[float, float]]]:
    return {100: {PRETRAINED: means["pre"], RANDOM: means["random"], LEXICAL: means["plain"]}}


def test_the_verdict_says_what_came_out():
    won = quickstart.verdict(scores(pre=(0.7, 0.01), random=(0.5, 0.02), plain=(0.6, 0.01)))
    assert "+0.20" in won
    assert "1 of 1 label counts" in won
    assert "ahead of the regression on lexical features at 100" in won
    lost = quickstart.verdict(scores(pre=(0.5, 0.05), random=(0.49, 0.02), plain=(0.6, 0.01)))
    assert "has not paid yet: beside the random start it gives +0.01 to +0.01 F1" in lost
    assert "still ahead of both" in lost
    once = quickstart.verdict(scores(pre=(0.7, 0.0), random=(0.5, 0.0), plain=(0.6, 0.0)))
    assert "gives +0.20 to +0.20 F1; of one seed, nothing tells how much of that is chance." in once
    assert "standard deviations" not in once
    both = {**scores(pre=(0.7, 0.01), random=(0.5, 0.02), plain=(0.6, 0.01)), 300: {}}
    both[300] = scores(pre=(0.7, 0.01), random=(0.5, 0.02), plain=(0.8, 0.01))[100]
    assert "at 100 labelled sentences. The regression is ahead at 300. More minutes" in quickstart.verdict(both)
    behind = quickstart.verdict(scores(pre=(0.45, 0.01), random=(0.49, 0.01), plain=(0.4, 0.01)))
    assert "gives -0.04 to -0.04 F1. The model is ahead of the regression" in behind


def test_the_lexical_reference_learns_what_its_features_tell():
    tags = lexical.tag([row(n) for n in range(30)], [row(n) for n in range(100, 130)])
    true = [row(n).tags for n in range(100, 130)]
    right = sum(a == b for guessed, given in zip(tags, true, strict=True) for a, b in zip(guessed, given, strict=True))
    assert right == sum(map(len, true))
    found = lexical.features(("Use", "np.dot", "here"), 1)
    assert found["dot"]
    assert found["word -1"] == "use"
    assert found["word +2"] == lexical.EDGE


def test_a_summary_has_mean_and_spread_of_the_seeds():
    found = [{"labels": 32, "seed": s, "way": PRETRAINED, "f1": f} for s, f in enumerate((0.4, 0.6))]
    mean, spread = label_efficiency.summary(found)[32][PRETRAINED]
    assert mean == pytest.approx(0.5)
    assert spread == pytest.approx(0.1414, abs=1e-4)


def test_both_starts_have_one_head_and_a_signal_ends_the_comparison(tmp_path, monkeypatch):
    rows = [row(n) for n in range(40)]
    tokenizer = Tokenizer.train([" ".join(one.words) for one in rows], 80)
    model = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=64).build(seed=5)
    huggingface.save(tmp_path, model, tokenizer)
    begun, stopped = [], None

    def begin(model, *_, **__):
        begun.append({name: p.clone() for name, p in model.eval().named_parameters()})
        return Fitted("f1", {"f1": 0.0}, 1, 1, [], stopped)

    monkeypatch.setattr(label_efficiency, "fit", begin)
    label_efficiency.compare(tmp_path, rows, rows[:4], counts=[32], seeds=1)
    learned, fresh = begun
    assert learned.keys() == fresh.keys()
    same = {name.partition(".")[0] for name in fresh if fresh[name].dim() > 1 and fresh[name].equal(learned[name])}
    assert same == {"heads"}
    stopped = "SIGTERM"
    with pytest.raises(UnmaskError, match=f"Stopped by SIGTERM; the pre-trained model is in {tmp_path}"):
        label_efficiency.compare(tmp_path, rows, rows[:4], counts=[32], seeds=1)
    assert len(begun) == 3  # the first run that was cut short is the last one
