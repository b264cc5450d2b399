"""Probes of layers: one is logistic regression, a sum finds the layer that knows, folds keep groups apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from unmask import huggingface
from unmask.data.labelled.dataset import Dataset
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording, Wanted, labelled
from unmask.data.recordings.segments import framed
from unmask.errors import UnmaskError
from unmask.models.cpc import Cpc
from unmask.runs.finetuning.layer_probing import _groups, _splits, fitted, probe_layers, render_layers
from unmask.runs.finetuning.probing import Probing, probe
from unmask.tasks.summaries import frame_states, layer_summaries, summaries


def _rows(N: int = 90, D: int = 5, C: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true_N = rng.integers(0, C, N)
    return rng.normal(size=(N, D)) + rng.normal(size=(C, D))[true_N], true_N


def test_one_layer_is_logistic_regression() -> None:
    x_ND, true_N = _rows()
    weight_CD, bias_C, shares = fitted(x_ND[None], true_N, 3)
    expected = LogisticRegression(C=1.0, max_iter=1_000, tol=1e-8).fit(x_ND, true_N)
    logits, others = x_ND @ weight_CD.T + bias_C, expected.decision_function(x_ND)
    np.testing.assert_allclose(_softmax(logits), _softmax(others), atol=5e-3)
    assert shares.tolist() == [1.0]


def _softmax(x_NC: np.ndarray) -> np.ndarray:
    e_NC = np.exp(x_NC - x_NC.max(1, keepdims=True))
    return e_NC / e_NC.sum(1, keepdims=True)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_sum_gives_its_weight_to_the_layer_that_knows(seed: int) -> None:
    x_ND, true_N = _rows()
    noise = np.random.default_rng(1).normal(size=(2, *x_ND.shape))
    _, _, shares = fitted(np.stack([noise[0], x_ND, noise[1]]), true_N, 3, seed)
    assert shares.argmax() == 1
    assert shares[1] > 0.6
    assert shares.sum() == pytest.approx(1.0)


def test_groups_are_left_out_in_turn() -> None:
    rows = Dataset(Path("x"), tuple(Recording(label="a", place=str(i), group="ab"[i % 2]) for i in range(7)), {})
    first, second = _groups(rows)
    assert (first.name, first.test.tolist(), first.train.tolist()) == ("a", [0, 2, 4, 6], [1, 3, 5])
    assert (second.name, second.test.tolist(), second.train.tolist()) == ("b", [1, 3, 5], [0, 2, 4, 6])
    with pytest.raises(UnmaskError, match="at least two"):
        _groups(rows.take([0, 2]))
    (fold,) = _splits({"train": 3, "dev": 2})
    assert (fold.name, fold.train.tolist(), fold.test.tolist()) == ("dev", [0, 1, 2], [3, 4])


def test_the_mean_of_the_last_layer_is_that_of_the_states() -> None:
    page = Cpc(channels=(6, 7), kernels=(10, 8), strides=(5, 4), dim=6, layers=2)
    processor, rng = RecordingProcessor(rate=8_000).for_model(page), np.random.default_rng(0)
    examples = [processor.example(rng.normal(size=n).astype(np.float32)) for n in (300, 90, 170)]
    model = page.build()
    layers = layer_summaries(model, examples, processor)
    assert [layer.shape for layer in layers] == [(3, 7), (3, 6), (3, 6)]
    np.testing.assert_allclose(layers[-1], summaries(model, examples, processor, "mean"), atol=1e-6)


PAGE = Cpc(channels=(6, 7), kernels=(10, 8), strides=(20, 4), dim=6, layers=2)
FRAMES = RecordingProcessor(rate=8_000).for_model(PAGE)
TIMES = ((0.05, 0.2, "low"), (0.2, 0.31, "high"), (0.4, 0.55, "low"), (0.6, 0.605, "high"))


@pytest.fixture(scope="module")
def phones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of the tones of four recordings with their times, of two voices."""
    soundfile = pytest.importorskip("soundfile")
    folder, lines = tmp_path_factory.mktemp("phones"), ["path\tbegin\tend\tlabel\tspeaker"]
    time = np.arange(8_000) / 8_000
    for number in range(4):
        samples = np.random.default_rng(number).normal(0, 0.01, len(time))
        for begin, end, label in TIMES:
            inside = (time >= begin) & (time < end)
            samples[inside] += np.sin(2 * np.pi * {"low": 300, "high": 2_000}[label] * time[inside])
            lines.append(f"{number}.wav\t{begin}\t{end}\t{label}\tvoice{number % 2}")
        soundfile.write(folder / f"{number}.wav", samples / 2, 8_000)
    (folder / "phones.tsv").write_text("\n".join(lines) + "\n")
    return folder / "phones.tsv"


def test_a_frame_has_the_row_whose_time_holds_its_middle(phones: Path) -> None:
    rows = labelled(phones, Wanted()).rows
    parts = list(framed(rows, FRAMES))
    assert [part.recording.source for part in parts] == [phones.parent / f"{i}.wav" for i in range(4)]
    for number, part in enumerate(parts):
        found = dict(zip(part.frames.tolist(), part.rows.tolist(), strict=True))
        for frame in range(FRAMES.frames(8_000)):
            region = FRAMES.describe(np.zeros(8_000), frame)
            assert region is not None
            middle = (region.begin[0] + region.end[0]) / 2
            own = [i for i, (begin, end, _) in enumerate(TIMES) if begin <= middle < end]
            assert found.get(frame) == (number * len(TIMES) + own[0] if own else None)
    with pytest.raises(UnmaskError, match="a row needs a begin and an end in seconds"):
        list(framed([Recording(label="a", place="x.wav", source=phones.parent / "0.wav")], FRAMES))


def test_states_of_frames_are_those_of_the_whole_recording(phones: Path) -> None:
    parts, model = list(framed(labelled(phones, Wanted()).rows, FRAMES)), PAGE.build()
    layers = frame_states(model, parts, FRAMES)
    batch = FRAMES.collate([FRAMES.example(parts[1].samples(FRAMES))])
    with torch.no_grad():
        expected_TD = model.eval()(batch)[0].numpy()
    first, count = len(parts[0].frames), len(parts[1].frames)
    np.testing.assert_allclose(layers[-1][first : first + count], expected_TD[parts[1].frames], atol=1e-5)


def test_frames_are_probed_beside_cepstra(phones: Path, tmp_path: Path) -> None:
    huggingface.save(tmp_path / "model", PAGE.build(), FRAMES)
    rows = {"train": phones, "group": "speaker"}
    asked = Probing(model=tmp_path / "model").override({"task": "classification", "pooling": "frames"})
    asked = asked.override({**rows, "leave_out": True})
    notes: list[str] = []
    found = probe_layers(asked, notes.append)
    count = sum(len(part.frames) for part in framed(labelled(phones, Wanted()).rows, FRAMES))
    assert (found["scored"], found["rows"], found["folds"]) == (count, 16, ["voice0", "voice1"])
    assert f"{count:,} frames lie in the times of rows." in notes
    assert np.mean(found["scores"]["cepstra"]) > 0.95  # two tones
    low = (0.15 + 0.15) / (0.15 + 0.11 + 0.15)  # share of the time; the last tone is shorter than a frame
    assert found["scores"]["one label for all rows"] == [[pytest.approx(low, abs=0.03)] * 2]
    assert f"the state of each of {count:,} frames in the times of 16 rows" in render_layers(found)
    with pytest.raises(UnmaskError, match="--pooling frames is for --layers"):
        probe(asked, notes.append)
