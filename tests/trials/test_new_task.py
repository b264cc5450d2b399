"""A task in one file outside the source: registered by one line, it works wherever a task does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.serve import Predictor
from unmask.tasks import TASKS, task_of
from unmask.types import Head

WORDS = {1: ["poor", "dull"], 2: ["fair", "fine"], 3: ["great", "lovely"]}
FILLER = ["the", "film", "was", "a", "plot", "of", "people"]


@pytest.fixture(autouse=True)
def stars(monkeypatch):
    from stars import Stars

    monkeypatch.setitem(TASKS, Stars.task_name, Stars)  # the one line
    return Stars


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stars")
    tokenizer = Tokenizer.train([" ".join([*FILLER, *(word for some in WORDS.values() for word in some)])] * 5, 80)
    size = {"layers": 1, "dim": 32, "heads": 2, "hidden": 64, "dropout": 0.0, "attention_dropout": 0.0, "std": 0.1}
    huggingface.save(folder / "trunk", Bert(vocabulary=tokenizer.size, length=16, **size).build(), tokenizer)
    rng = np.random.default_rng(0)
    for name, rows in (("train", 48), ("dev", 18)):
        lines = []
        for i in range(rows):
            words = [*rng.choice(FILLER, 4), str(rng.choice(WORDS[i % 3 + 1])), f"n{name}{i}"]
            lines.append(f"{'+' * (i % 3 + 1)} {' '.join(words)}")
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def run(files, out, *more):
    given = {"model": files / "trunk", "train": files / "train.txt", "dev": files / "dev.txt", "task": "stars"}
    given |= {"mark": "+", "power": 1.5, "epochs": 40, "lr": 3e-3, "seeds": 1, "device": "cpu", "precision": "fp32"}
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    main(["finetune", *options, "--out", str(out), *more])


def test_it_is_learned_scored_and_answers(files, tmp_path, stars, capsys):
    out = tmp_path / "run"
    run(files, out)
    shown = capsys.readouterr().out
    assert "Labels: 1 33.3%, 2 33.3%, 3 33.3%." in shown
    results = json.loads((out / "results.json").read_text())
    assert results["task"] == "stars"
    assert results["seeds"][0]["dev"]["closeness"] > results["baseline"]["dev"]["closeness"] + 0.1
    written = json.loads((out / "run.json").read_text())["config"]
    assert (written["rows"]["mark"], written["options"]) == ("+", {"power": 1.5})
    main(["evaluate", "--model", str(out), "--data", str(files / "dev.txt"), "--json"])  # with the mark of the run
    scores = json.loads(capsys.readouterr().out)
    assert scores["metrics"]["closeness"] == pytest.approx(results["seeds"][0]["dev"]["closeness"])
    main(["predict", "--model", str(out), "the film was lovely"])
    assert capsys.readouterr().out == "3  the film was lovely\n"
    assert Predictor(out)(["a poor plot"]) == [{"stars": 1}]
    loaded = huggingface.load(out)
    found = task_of(loaded.model, loaded.labels, loaded.settings)
    assert (type(found), found.power, found.labels) == (stars, 1.5, ("1", "2", "3"))
    main(["report", str(out), "--no-open"])
    assert "Fine-tuned for stars" in (out / "report.html").read_text(encoding="utf-8")


def test_its_baseline_is_scored(files, capsys):
    rows = ["--train", str(files / "train.txt"), "--dev", str(files / "dev.txt"), "--mark", "+"]
    main(["baseline", "--task", "stars", *rows])
    assert "closeness" in capsys.readouterr().out


def test_its_fields_are_in_the_help_and_nowhere_else(files, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["finetune", "--task", "stars", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--mark NAME what stands for a star (default: *)" in shown
    assert "--power X of the distance between what is said and what is so" in shown
    with pytest.raises(SystemExit):
        main(["finetune", "--task", "regression", "--train", "x", "--mark", "+", "--out", str(tmp_path / "run")])
    assert "--mark is for --task stars; regression has no use for it" in capsys.readouterr().err


def test_what_does_not_fit_is_one_sentence(files, tmp_path):
    from unmask.runs.finetuning import FineTuning, finetune

    rows = {"train": files / "train.txt", "dev": files / "dev.txt"}
    with pytest.raises(UnmaskError, match=r"train\.txt:1 does not begin with \*"):
        finetune(FineTuning().override({"model": files / "trunk", "task": "stars", **rows}), tmp_path / "run")


def test_it_has_at_most_eighty_lines():
    assert len(Path(__file__).with_name("stars.py").read_text().splitlines()) <= 80


def test_a_folder_of_a_task_that_is_not_registered_is_refused_by_name(files, tmp_path, monkeypatch):
    loaded = huggingface.load(files / "trunk", heads={"classification": Head("sequence", 2)})
    settings = {"task": "stars", "power": 2.0}
    huggingface.save(tmp_path, loaded.model, loaded.tokenizer, labels=("1", "2"), settings=settings)
    assert Predictor(tmp_path).task.power == 2
    monkeypatch.delitem(TASKS, "stars")
    with pytest.raises(UnmaskError, match=r"no task, which config\.json \(unmask_task\) names, 'stars'"):
        Predictor(tmp_path)
