"""Recipes of models of signals: each trains on a folder of records, and its folder answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.signals import synthetic
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import labelled
from unmask.runs import supervised_recipes
from unmask.serve import Predictor
from unmask.types import Head

RATE = 100
BANDS = ["--filters", "4", "--hidden", "3"]
SMALL = {
    "mina": [*BANDS, "--low", "0,0.67,10,0.001", "--high", "0,5,40,0.5"],
    "crnn": BANDS,
    "ecg-cnn": ["--blocks", "6", "--filters", "2", "--kernel", "4"],
    "lstm-signal": ["--dim", "6", "--hidden", "4", "--layers", "1", "--segment", "50"],
    "transformer-signal": ["--dim", "8", "--layers", "1", "--heads", "2", "--hidden", "8", "--segment", "50"],
}


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes") / "data"
    synthetic.write(folder, rate=RATE, patients=6)
    return folder


@pytest.mark.parametrize("name", SMALL)
def test_a_recipe_trains_a_model_whose_folder_answers(name, hearts, tmp_path):
    out, data = tmp_path / "run", hearts / "train.tsv"
    given = ["--data", str(data), "--dev", str(hearts / "dev.tsv"), "--out", str(out), "--rate", str(RATE)]
    main(
        [
            "train",
            name,
            *given,
            "--epochs",
            "1",
            "--batch-size",
            "16",
            "--window",
            "30",
            "--device",
            "cpu",
            *SMALL[name],
        ]
    )
    loaded = huggingface.load(out)
    page = loaded.model.config
    assert type(page) is type(supervised_recipes.find(name).page)
    assert loaded.processor == SignalProcessor(rate=RATE, segment=page.segment)
    fresh = page.build({"signal_classification": Head("sequence", 4)})
    trained = loaded.model.state_dict()
    assert all(not torch.equal(x, trained[key]) for key, x in fresh.named_parameters() if "weight" in key)
    samples_NL = labelled(hearts / "dev.tsv").rows[0].signal().samples
    (answer,) = Predictor(out)([{"samples": samples_NL.tolist(), "rate": RATE}])
    assert set(answer["scores"]) == {"A", "N", "O", "~"}
    assert sum(answer["scores"].values()) == pytest.approx(1, abs=1e-3)
