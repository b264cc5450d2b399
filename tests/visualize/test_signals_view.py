"""The view of a record: its beats, the answers to its windows, and attention as the model has it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.signals import synthetic
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow
from unmask.errors import UnmaskError
from unmask.models.ecg_cnn import SIZES, EcgCnn
from unmask.models.mina import Mina
from unmask.serve.opened import open_model
from unmask.tasks import SignalClassification
from unmask.tasks.registry import settings_of
from unmask.visualize.numbers import unpacked
from unmask.visualize.signals import attention_along

RATE = 300
PAGE = Mina(rate=RATE, filters=8, hidden=4, dropout=0.0)
PROCESSOR = SignalProcessor().for_model(PAGE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of six patients, and an untrained MINA with a head."""
    made = tmp_path_factory.mktemp("view") / "data"
    synthetic.write(made, rate=RATE, patients=6)
    task = SignalClassification(("N", "A"), window=4.0)
    model = PAGE.build(task.heads, seed=0)
    huggingface.save(made / "mina", model, PROCESSOR, labels=task.labels, settings=settings_of(task))
    return made


def lanes_of(data):
    return {lane["title"].split(":")[0].split(" to windows")[0]: lane for lane in data["lanes"]}


def test_the_view_has_the_beats_the_answers_and_the_attention(folder):
    path = folder / "patient01" / "00.hea"
    data = open_model(folder / "mina").signal(path)
    lanes = lanes_of(data)
    true = SignalRow(source=path).annotations(RATE).only({"N": "N"}).samples / RATE
    times = np.array([stem["time"] for stem in lanes["Beats"]["stems"]])
    inside = true[(true > 0.2) & (true < data["seconds"] - 0.2)]
    assert all(np.abs(times - time).min() < 0.05 for time in inside)
    spans = lanes["Answers"]["spans"]
    assert [one["begin"] for one in spans][:3] == [0.0, 2.0, 4.0]
    assert spans[-1]["end"] <= data["seconds"]
    assert re.fullmatch(r"[NA]: \d+\.\d%", data["lead"])
    assert unpacked(lanes["Attention to rhythm in each band, the first on top"]["values"]).shape[0] == len(PAGE.low)
    assert "no medical device" in data["note"]


def test_the_attention_is_that_of_each_window(folder):
    model = huggingface.load(folder / "mina").model.eval()
    samples = SignalRow(source=folder / "patient01" / "03.hea").signal(RATE).samples
    found = attention_along(model, PROCESSOR, samples, 24)
    values = PROCESSOR.values(samples)[24 * 50 : 48 * 50]
    with torch.no_grad():
        looked = model.looked(PROCESSOR.collate([PROCESSOR.segmented(values)]))
    bands = (looked.rhythm[0] * looked.bands[0]).numpy()  # [K, F]
    np.testing.assert_allclose(found.rhythm[24:48], bands.sum(1) / bands.sum(1).max(), rtol=1e-4)
    np.testing.assert_allclose(found.bands[:, 24:48], bands.T / bands.max(), rtol=1e-4)
    places = np.einsum("kfp,kf->kp", looked.beats[0].numpy(), bands)
    P = places.shape[1]
    np.testing.assert_allclose(found.beats[24 * P : 48 * P], places.ravel() / places.max(), rtol=1e-4)
    assert len(found.rhythm) * 50 <= len(samples) < (len(found.rhythm) + 1) * 50
    assert found.seconds == pytest.approx(len(found.rhythm) * 50 / RATE)


def test_a_model_without_attention_shows_none(folder):
    page = EcgCnn(**SIZES["tiny"])
    processor = SignalProcessor().for_model(page)
    samples = SignalRow(source=folder / "patient01" / "00.hea").signal(page.rate).samples
    assert attention_along(page.build(seed=0), processor, samples, 10) is None


def test_the_verb_writes_a_page_and_refuses_what_is_no_record(folder, tmp_path, capsys):
    main(
        [
            "show",
            "signal",
            "--model",
            str(folder / "mina"),
            str(folder / "patient02/00.hea"),
            "--out",
            f"{tmp_path}/x.html",
        ]
    )
    page = (tmp_path / "x.html").read_text()
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert data["view"] == "recording"
    assert data["silent"]
    (tmp_path / "text.txt").write_text("no record\n")
    with pytest.raises(UnmaskError):
        open_model(folder / "mina").signal(tmp_path / "text.txt")
