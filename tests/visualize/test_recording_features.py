"""Views of models of recordings: masked frames, entries and attention are those of the model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.models.hubert import Hubert
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.nn.quantiser import ProductQuantiser
from unmask.types import Head
from unmask.visualize import attention
from unmask.visualize.numbers import unpacked
from unmask.visualize.recording_attention import over_recording
from unmask.visualize.recording_features import Entries, Masking, components, features, use

RATE = 8_000
SIZES = {
    "channels": (8, 8), "kernels": (10, 8), "strides": (8, 8),
    "dim": 16, "layers": 2, "heads": 2, "hidden": 32, "position_kernel": 8, "position_groups": 2, "std": 0.3,
}  # fmt: skip
WAVE2VEC = Wav2Vec2(**SIZES, entries=6, codes=8, compared=8)
SAMPLES = np.random.default_rng(0).normal(0, 0.1, 4_000).astype(np.float32)


def made(config, heads):
    return config.build(heads, seed=0).eval(), RecordingProcessor(rate=RATE).for_model(config)


def _quantiser(model):
    return next(part for part in model.modules() if isinstance(part, ProductQuantiser))


def lanes_of(found):
    return {lane["title"].partition(":")[0]: lane for lane in found["lanes"]}


def entry_of(lane, edges, frame):
    middle = (edges[frame] + edges[frame + 1]) / 2
    return next((one["label"] for one in lane["spans"] if one["begin"] <= middle < one["end"]), None)


def test_entries_are_those_of_the_quantiser():
    model, processor = made(WAVE2VEC, {"contrastive": Head("quantised", 8, pretraining=True)})
    found = features(model, processor, SAMPLES)
    lanes, F = lanes_of(found), processor.frames(len(SAMPLES))
    with torch.no_grad():
        frames_FC = model.frames(processor.collate([processor.example(SAMPLES)]))[0]
        logits_FGV = _quantiser(model).weight_proj(frames_FC).view(F, 2, 6)
    edges = [(processor.window - processor.hop) / 2 / RATE + f * processor.hop / RATE for f in range(F + 1)]
    for group in range(2):
        lane = lanes[f"Codebook {group + 1}"]
        expected = (logits_FGV[:, group].argmax(-1) + 1).tolist()
        assert [entry_of(lane, edges, f) for f in range(F)] == [str(code) for code in expected]
        counts = np.bincount(expected)
        shares = [p for _, p in found["charts"][group]["series"][0]["points"]]
        assert shares[: len(counts[counts > 0])] == pytest.approx(sorted(counts[counts > 0] / F, reverse=True))
    assert found["step"] == pytest.approx(64 / RATE)
    assert f"reads {F} frames" in found["lead"]


def test_clusters_are_those_that_the_model_predicts():
    model, processor = made(Hubert(**SIZES), {"clusters": Head("clusters", 5, pretraining=True)})
    lane = lanes_of(features(model, processor, SAMPLES))["Predicted cluster"]
    batch = processor.collate([processor.example(SAMPLES)])
    with torch.no_grad():
        F = batch.tokens.shape[1]
        best_F = model.answer("clusters", model(batch), torch.arange(F), batch).argmax(-1)
    assert "".join(one["label"] for one in lane["spans"]) == "".join(
        str(code + 1) for f, code in enumerate(best_F.tolist()) if f == 0 or code != best_F[f - 1]
    )


def test_masked_frames_are_drawn_by_their_seed():
    model, processor = made(WAVE2VEC, {})
    views = [lanes_of(features(model, processor, SAMPLES, masking=Masking(0.5, 4), seed=seed)) for seed in (1, 1, 2)]
    first, again, other = (next(lane for title, lane in one.items() if "Masked" in title) for one in views)
    assert first == again != other
    assert first["over"]
    hop = processor.hop / RATE
    assert min(one["end"] - one["begin"] for one in first["spans"]) >= 4 * hop - 1e-5
    share = sum(one["end"] - one["begin"] for one in first["spans"]) / (processor.frames(len(SAMPLES)) * hop)
    assert f"{100 * share:.0f} %" in first["title"]
    assert "Codebook 1" not in views[0]  # the model has no head that quantises


def test_a_model_of_cepstra_shows_its_states():
    model, processor = made(MfccCnn(rate=RATE, widths=(8, 8), strides=(1, 2)), {})
    titles = list(lanes_of(features(model, processor, SAMPLES)))
    assert titles == ["Output of the last layer"]


@pytest.mark.parametrize(("count", "perplexity"), [(1, 1.0), (4, 4.0), (8, 8.0)])
def test_perplexity_of_even_use_is_the_number_of_entries(count: int, perplexity: float):
    found = use(Entries("Codebook 1", np.repeat(np.arange(count), 5), 10))
    assert found["title"] == f"Codebook 1: {count} of 10 entries are used, perplexity {perplexity:.1f}"


def test_perplexity_is_the_exponential_of_the_entropy():
    codes = np.array([0, 0, 0, 1])
    expected = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert f"perplexity {expected:.1f}" in use(Entries("x", codes, 2))["title"]


def test_components_are_those_of_scikit_learn():
    states = np.random.default_rng(0).normal(size=(40, 6)) * [5, 3, 2, 1, 0.5, 0.1]
    decomposition = pytest.importorskip("sklearn.decomposition")
    expected = decomposition.PCA(3).fit_transform(states).T
    found = components(states, 3)
    assert np.abs(found).max() == 1
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.abs(found) * scale, np.abs(expected), atol=1e-9)
    assert all(row[np.abs(row).argmax()] > 0 for row in found)
    assert components(np.ones((5, 3))).tolist() == np.zeros((3, 5)).tolist()


def test_attention_is_that_of_the_model():
    model, processor = made(WAVE2VEC, {})
    found = over_recording(model, processor, SAMPLES)
    batch = processor.collate([processor.example(SAMPLES)])
    expected = attention.weights(model, batch, "encoder")
    F = batch.tokens.shape[1]
    assert (found["layers"], found["heads"], len(found["rows"])) == (2, 2, F)
    for part in found["details"]:
        weights_FF = unpacked(part["weights"])
        np.testing.assert_allclose(weights_FF, expected[part["layer"]][part["heads"]], atol=1e-3)
        np.testing.assert_allclose(weights_FF.sum(-1), 1, atol=1e-2)
    region = processor.describe(SAMPLES, 3)
    assert region is not None
    assert found["rows"][3] == f"{(region.begin[0] + region.end[0]) / 2:.2f} s"
    assert (found["unit"], found["recording"]["note"]) == ("frame", "")


def test_a_long_recording_is_cut_to_512_frames():
    model, processor = made(WAVE2VEC.replace(layers=1, heads=1), {})
    samples = np.random.default_rng(0).normal(0, 0.1, processor.samples(600)).astype(np.float32)
    found = over_recording(model, processor, samples, attention.overview)
    assert len(found["rows"]) == 512
    assert found["recording"]["seconds"] == processor.samples(512) / RATE
    assert found["recording"]["note"] == "The view reads the first 512 frames of the recording: 4.1 s."
    assert "details" not in found


def test_a_model_without_attention_says_so():
    model, processor = made(MfccCnn(rate=RATE, widths=(8,), strides=(1,)), {})
    with pytest.raises(UnmaskError, match="no attention to look at"):
        over_recording(model, processor, SAMPLES)


def test_a_recording_that_is_too_short_is_refused():
    model, processor = made(WAVE2VEC, {})
    for look in (features, over_recording):
        with pytest.raises(UnmaskError, match="the model needs at least"):
            look(model, processor, SAMPLES[:20])
