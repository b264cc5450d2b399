"""The translation benchmark: its systems are small enough, its splits apart, its tables and plot say what is so."""

from __future__ import annotations

import gzip
import importlib
import sys
from pathlib import Path

import pytest

from unmask.runs.translation import systems


@pytest.fixture
def benchmark():
    return importlib.import_module("translation")


def options(benchmark, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["translation.py", "--data", "there", *arguments])
    return benchmark.parse()


def test_every_system_has_at_most_fifteen_million_parameters_and_takes_what_all_are_given(benchmark, monkeypatch):
    given = benchmark._fields(options(benchmark, monkeypatch, "--full"))
    for run in benchmark.RUNS.values():
        config = systems.find(run.system).override({**dict(run.fields), **given})
        assert (config.training.steps, config.training.minutes, config.texts.tokens) == (16_000, None, 4_096)
        assert config.model.dropout == 0.3
        assert config.model.replace(vocabulary=8_000).build(seed=0).parameters_total < 15e6


def test_the_budget_is_twenty_minutes_unless_said_otherwise(benchmark, monkeypatch):
    assert options(benchmark, monkeypatch).minutes == 20
    by_steps = options(benchmark, monkeypatch, "--steps", "7")
    assert (by_steps.steps, by_steps.minutes) == (7, None)
    assert options(benchmark, monkeypatch, "--full", "--tokens", "9").tokens == 9


def test_no_english_sentence_of_tatoeba_is_in_two_splits(benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "HELDOUT", 20)
    (tmp_path / "tatoeba-en-fr").mkdir()
    rows = [f"Sentence {i // 3}.\tPhrase {i}." for i in range(300)]  # three translations of each
    with gzip.open(tmp_path / "tatoeba-en-fr" / "fra.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(rows) + "\n")
    files = benchmark.splits(benchmark.RUNS["tatoeba-fr"], tmp_path, tmp_path, None)
    sources = {split: Path(names[0]).read_text(encoding="utf-8").splitlines() for split, names in files.items()}
    assert sum(map(len, sources.values())) == 300
    assert len(sources["dev"]) >= 20 <= len(sources["test"])
    assert len(set().union(*sources.values())) == sum(len(set(lines)) for lines in sources.values())
    again = benchmark.splits(benchmark.RUNS["tatoeba-fr"], tmp_path, tmp_path, None)
    assert Path(again["test"][0]).read_text(encoding="utf-8").splitlines() == sources["test"]


def result(title, vocabulary="a", bleu=30.0):
    score = {"name": "BLEU", "value": bleu, "signature": "nrefs:1"}
    test = {
        "scores": {"bleu": score, "chrf": score, "bleu_lowercase_tokens": {**score, "value": bleu + 1}},
        "interval": {"margin": 1.25},
        "sentences_per_second": 50.0,
        "search": {"beam_size": 5, "formula": "log P(y) / |y|^1"},
        "by_length": [
            {"above": 0, "up_to": 5, "sentences": 4, "bleu": 50.0},
            {"above": 5, "up_to": 10, "sentences": 400, "bleu": bleu},
            {"above": 10, "up_to": None, "sentences": 40, "bleu": bleu - 5},
        ],
    }
    return {
        **{"title": title, "corpus": "multi30k", "languages": ["en", "de"], "parameters": 6e6, "epochs": 12.34},
        **{"tokens_per_second": 20_000.0, "steps": 5_000, "seconds": 1_200.0, "device": "cpu", "precision": "bf16"},
        **{"vocabulary": {"sha256": vocabulary}, "config": {"texts": {"train": ["x/train.en.gz", "x/train.de.gz"]}}},
        **{"dev": test, "test": test},
    }


def test_the_tables_say_what_was_measured(benchmark):
    text = benchmark.translation_tables.render({"a": result("One"), "b": result("Two", bleu=40.0)})
    assert "| One    | 6.0 M      | 20,000         | 5,000 | 12.3   | 20.0    | 30.0     | 30.0 ± 1.2 | 31.0 " in text
    assert "| Two    | 50.0 (4) | 40.0 (400) | 35.0 (40) |" in text
    assert "Beam of 5, score log P(y) / |y|^1." in text
    assert "vocabulary" not in text
    differ = benchmark.translation_tables.render({"a": result("One"), "b": result("Two", vocabulary="b")})
    assert "The systems on train.en.gz and train.de.gz do not have the same vocabulary." in differ


def test_the_plot_has_a_line_for_each_system_and_leaves_out_few_sentences(benchmark, tmp_path):
    pytest.importorskip("matplotlib")
    french = {**result("Three"), "languages": ["en", "fr"]}
    path = benchmark.translation_tables.plot({"a": result("One"), "b": result("Two"), "c": french}, tmp_path / "p.svg")
    text = path.read_text(encoding="utf-8")
    assert all(shown in text for shown in ("One", "Two", "6-10", "over 10"))
    assert not any(hidden in text for hidden in ("Three", "1-5"))
