"""Scores of records: a run that learns the pulse, is scored, asked and shown, and how its data are found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.labelled.rows import Row
from unmask.data.signals import synthetic
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import labelled
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.mina import Mina
from unmask.models.signal_recurrent import SignalRecurrent
from unmask.runs.finetuning import FineTuning, cross_validate, evaluate
from unmask.serve import Predictor
from unmask.tasks import SignalRegression, task_on
from unmask.tasks.registry import task_of_page
from unmask.tasks.signal_windows import Windows

RATE = 100


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pulses") / "data"
    synthetic.write(folder, rate=RATE, patients=6)
    return folder


@pytest.fixture(scope="module")
def run(hearts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scored") / "run"
    sizes = ["--rate", str(RATE), "--segment", "10", "--dim", "8", "--hidden", "8", "--layers", "1"]
    given = ["--data", str(hearts / "pulse-train.tsv"), "--dev", str(hearts / "pulse-dev.tsv"), "--window", "5"]
    fit = ["--epochs", "4", "--batch-size", "8", "--device", "cpu", "--out", str(out)]
    main(["train", "lstm-signal", "--task", "regression", *given, *sizes, *fit])
    return out


def test_the_pulses_are_those_of_the_annotations(hearts):
    rows = labelled(hearts / "pulse-train.tsv").rows
    assert len(rows) == 28  # of four patients; records that are too noisy have none
    for row in rows[:5]:
        beats = row.annotations(RATE)
        places = [at for at, symbol in zip(beats.samples.tolist(), beats.symbols, strict=True) if symbol != "+"]
        assert float(row.label) == pytest.approx(60 * RATE / np.diff(places).mean(), abs=0.06)


def test_scores_are_found_in_the_data_and_for_the_model(hearts):
    assert task_on("regression", hearts / "pulse-train.tsv") == "signal-regression"
    assert FineTuning().override({"task": "regression", "train": hearts / "pulse-dev.tsv"}).task == "signal-regression"
    assert task_of_page("regression", Mina()) == "signal-regression"
    assert task_of_page("classification", Mina()) == "signal-classification"
    assert task_of_page("classification", MfccCnn()) == "speech-classification"
    assert task_of_page("forecasting", Mina()) == "forecasting"


def test_the_loss_is_the_squared_error_of_standard_scores():
    page = SignalRecurrent(rate=RATE, segment=10, dim=4, hidden=4, layers=1)
    task = SignalRegression(window=1.0, centre=70.0, scale=10.0)
    model = page.build(task.heads, seed=0).eval()
    processor, rng = SignalProcessor().for_model(page), np.random.default_rng(0)
    made = [processor.example(rng.normal(size=(n, 1))) for n in (100, 60)]
    targets = [np.array([85.0], np.float32), np.array([60.0], np.float32)]
    for example, target in zip(made, targets, strict=True):
        example.targets["signal_regression"] = (np.zeros(1, np.int64), target)
    batch = processor.collate(made)
    with torch.no_grad():
        outputs = model.answer("signal_regression", model(batch), batch.starts, batch)[:, 0]
    loss = task.loss(model, batch)["signal_regression"]
    assert loss.sum.item() == pytest.approx(((outputs - torch.tensor([1.5, -1.0])) ** 2).sum().item(), rel=1e-5)
    answers = task.answers(model, batch)
    np.testing.assert_allclose(np.concatenate(answers)[:, 0], 70 + 10 * outputs.numpy(), rtol=1e-5)


def test_scores_of_records_are_the_means_of_their_windows():
    task = SignalRegression(centre=5.0, scale=2.0)
    rows = [Row(label="3"), Row(label="7"), Row(label="4")]
    answers = [Windows(np.array(own)[:, None], np.zeros((len(own), 2))) for own in ([2.0, 3.0], [6.0], [5.0, 6.0])]
    found = task.metrics(answers, rows)
    assert found["mae"] == pytest.approx(np.mean([0.5, 1.0, 1.5]))
    assert found["loss"] == pytest.approx(np.mean([0.25, 1.0, 2.25]) / 4)
    assert task.answer(rows[0], answers[0])["score"] == 2.5


def test_a_run_learns_scores(run, hearts, capsys, tmp_path):
    results = json.loads((run / "results.json").read_text())
    assert results["task"] == "signal-regression"
    assert results["seeds"][0]["dev"]["rmse"] < results["baseline"]["dev"]["rmse"]
    assert evaluate(run, hearts / "pulse-dev.tsv")["metrics"] == pytest.approx(results["seeds"][0]["dev"], rel=1e-3)
    settings = huggingface.load(run).settings
    labels = [float(row.label) for row in labelled(hearts / "pulse-train.tsv")]
    assert settings["centre"] == pytest.approx(np.mean(labels))
    assert settings["scale"] == pytest.approx(np.std(labels))
    path = sorted(hearts.glob("patient05/*.hea"))[0]
    samples = labelled(hearts / "pulse-dev.tsv")[0].signal().samples.tolist()
    [answer] = Predictor(run, precision="fp32")([{"samples": samples, "rate": RATE}])
    assert answer["score"] == pytest.approx(np.mean([one["score"] for one in answer["windows"]]))
    assert 30 < answer["score"] < 200
    capsys.readouterr()
    main(["predict", "--model", str(run), str(path)])
    assert capsys.readouterr().out.strip().endswith(str(path))
    main(["show", "signal", "--model", str(run), str(path), "--out", str(tmp_path / "x.html")])
    assert "its windows have" in (tmp_path / "x.html").read_text()


def test_scores_of_all_folds_are_compared_although_their_scales_differ(hearts, tmp_path):
    """Records of six patients: a fold has the records of three of them."""
    given = {"task": "regression", "train": hearts / "pulse-train.tsv", "folds": 2, "epochs": 0.1, "device": "cpu"}
    page = SignalRecurrent(rate=RATE, segment=10, dim=8, hidden=8, layers=1)
    found = cross_validate(FineTuning(page=page).override({**given, "fit.minutes": None}), tmp_path / "folds")
    folds = [one["test"]["mae"] for one in found["folds"]]
    assert min(folds) <= found["whole"]["metrics"]["mae"] <= max(folds)


def test_references_count_beats(hearts, capsys):
    given = ("--train", hearts / "pulse-train.tsv", "--dev", hearts / "pulse-dev.tsv", "--json")
    main(["baseline", "--task", "regression", *map(str, given)])
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert list(scores) == ["baseline", "expert-ridge", "expert-rf"]
    assert scores["expert-ridge"]["dev"]["pearson"] > 0.9
    assert scores["baseline"]["dev"]["pearson"] == 0.0
