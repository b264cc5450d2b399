"""Recordings over HTTP: answers and views are those of the folder, and what cannot be read is said in one sentence."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.visualize import attention
from unmask.visualize.numbers import unpacked

soundfile = pytest.importorskip("soundfile")
RATE = 8_000
SAMPLES = np.random.default_rng(0).normal(0, 0.1, RATE // 2).astype(np.float32)


def wav(samples: np.ndarray, rate: int = RATE, **how: str) -> str:
    """The bytes of a WAV file in Base64."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", **how)
    return base64.b64encode(file.getvalue()).decode()


RECORDING = wav(SAMPLES, subtype="FLOAT")


@pytest.fixture(scope="module")
def ask(app):
    from starlette.testclient import TestClient

    client = TestClient(app, base_url="http://127.0.0.1")

    def post(path, /, **fields):
        answer = client.post(path, json=fields)
        return answer.status_code, answer.json()

    return post


def batch_of(folder):
    loaded = huggingface.load(folder)
    return loaded.model.eval(), loaded.processor.collate([loaded.processor.example(SAMPLES)])


def test_labels_are_those_of_the_folder(ask, folders):
    model, batch = batch_of(folders.place / "commands")
    with torch.no_grad():
        logits = model.answer("speech_classification", model(batch), torch.zeros(1, dtype=torch.int64), batch)
    status, found = ask("/predict", model="commands", texts=[{"recording": RECORDING}])
    assert status == 200
    assert list(found["answers"][0]["scores"].values()) == pytest.approx(logits.softmax(-1)[0].tolist(), abs=1e-5)


def test_a_transcript_has_the_times_of_its_words(ask, folders):
    model, batch = batch_of(folders.place / "spoken")
    with torch.no_grad():
        best_F = model.answer("ctc", model(batch), torch.arange(batch.tokens.shape[1]), batch).argmax(-1)
    pieces = huggingface.load(folders.place / "spoken").labels
    collapsed = [pieces[i] for f, i in enumerate(best_F.tolist()) if f == 0 or i != best_F[f - 1]]
    expected = "".join(" " if piece == "|" else piece for piece in collapsed if piece != "<pad>").strip()
    answer = ask("/predict", model="spoken", texts={"recording": RECORDING})[1]["answers"][0]
    assert answer["text"] == expected != ""
    assert " ".join(word["word"] for word in answer["words"]) == " ".join(expected.split())
    lanes = {
        lane["title"].partition(":")[0]: lane
        for lane in ask("/features", model="spoken", recording=RECORDING)[1]["lanes"]
    }
    assert "".join(one["label"] for one in lanes["Letters"]["stems"]) == expected.replace(" ", "")
    times = [one["time"] for one in lanes["Letters"]["stems"]]
    assert times == sorted(times)
    assert all(0 < one["value"] <= 1 for one in lanes["Letters"]["stems"])
    assert [one["label"] for one in lanes["Words"]["spans"]] == expected.split()
    inside = [any(one["begin"] <= time <= one["end"] for one in lanes["Words"]["spans"]) for time in times]
    assert all(inside)


def test_every_model_of_recordings_is_shown(app, ask):
    """Also those that answer nothing, whatever they learned."""
    kinds = app.state.service.pool.kinds
    lanes = {"waves": 5, "hubert": 4, "cpc": 2, "trunk": 2}  # masked frames, entries or clusters, and two outputs
    for name, count in lanes.items():
        assert kinds[name] == "recordings"
        status, found = ask("/features", model=name, recording=RECORDING)
        assert (status, len(found["lanes"])) == (200, count)
    assert ask("/tokenize", model="hubert", texts="the law")[0] == 422
    assert {name: kinds[name] for name in ("spoken", "commands", "voices")} == {
        "spoken": "ctc",
        "commands": "speech_classification",
        "voices": "verification",
    }


def test_two_recordings_are_compared(ask):
    other = wav(np.sin(np.arange(RATE // 2) / 3) / 2)
    vectors = ask("/embed", model="voices", texts=[{"recording": RECORDING}, {"recording": other}])[1]["embeddings"]
    answer = ask("/predict", model="voices", texts={"recording": RECORDING, "other": other})[1]["answers"][0]
    assert answer["similarity"] == pytest.approx(float(np.dot(*vectors)), abs=1e-4)
    assert (answer["same"], answer["threshold"]) == (answer["similarity"] >= 0.5, 0.5)
    same = ask("/predict", model="voices", texts={"recording": RECORDING, "other": RECORDING})[1]["answers"][0]
    assert same["similarity"] == pytest.approx(1, abs=1e-5)


def test_features_have_the_sound_and_the_masked_frames(ask):
    status, found = ask("/features", model="waves", recording=RECORDING, seed=3)
    assert (status, found["rate"], found["seconds"]) == (200, RATE, 0.5)
    np.testing.assert_allclose(unpacked(found["samples"]), SAMPLES, atol=2**-15)
    masked = next(lane for lane in found["lanes"] if lane["title"].startswith("Masked"))
    assert "seed 3" in masked["title"]
    assert masked["over"]
    assert found == ask("/features", model="waves", recording=RECORDING, seed=3)[1]
    assert [chart["title"].partition(":")[0] for chart in found["charts"]] == ["Codebook 1", "Codebook 2"]


def test_another_rate_is_resampled(ask):
    tone = np.sin(2 * np.pi * 440 * np.arange(22_050) / 44_100) / 2
    found = ask("/features", model="waves", recording=wav(tone, 44_100))[1]
    assert (found["rate"], found["seconds"]) == (RATE, 0.5)
    spectrum = np.abs(np.fft.rfft(unpacked(found["samples"])))
    assert np.fft.rfftfreq(RATE // 2, 1 / RATE)[spectrum.argmax()] == 440


def test_attention_is_that_of_the_folder(ask, folders):
    model, batch = batch_of(folders.place / "waves")
    expected = attention.weights(model, batch, "encoder")
    status, whole = ask("/attention", model="waves", recording=RECORDING)
    assert (status, len(whole["rows"]), whole["view"]) == (200, batch.tokens.shape[1], "recording-attention")
    for layer in range(2):
        fields = {"kind": "encoder", "layer": layer, "heads": [1]}
        _, one = ask("/attention", model="waves", recording=RECORDING, **fields)
        np.testing.assert_allclose(unpacked(one["weights"])[0], expected[layer][1], atol=5e-4)
    _, rolled = ask("/attention", model="waves", recording=RECORDING, kind="encoder", rollout=True)
    np.testing.assert_allclose(unpacked(rolled["rollout"]), attention.rollout(expected), atol=5e-4)


def test_a_model_says_what_it_reads(ask):
    waves, spoken, bert = (ask("/inside", model=name)[1] for name in ("waves", "spoken", "bert"))
    assert (waves["recordings"], spoken["recordings"], bert["recordings"]) == (True, True, False)
    assert (waves["frames"], spoken["frames"], bert["frames"]) == (True, False, False)
    assert waves["mask"] == ""


NOISE = base64.b64encode(b"no sound").decode()
WRONG = [
    ("/predict", {"model": "commands", "texts": {"recording": "?"}}, "the recording is not Base64"),
    ("/predict", {"model": "commands", "texts": {"recording": NOISE}}, "not a recording in a known format"),
    ("/predict", {"model": "commands", "texts": {"recording": ""}}, "has no recording"),
    ("/predict", {"model": "commands", "texts": "yes"}, "this model reads recordings"),
    ("/predict", {"model": "commands", "texts": {"recording": wav(SAMPLES[:50])}}, "at least 200"),
    ("/predict", {"model": "commands", "texts": {"recording": wav(SAMPLES[:0])}}, "has no samples"),
    ("/predict", {"model": "waves", "texts": {"recording": RECORDING}}, "is one for recordings and gives no answers"),
    ("/predict", {"model": "bert", "texts": {"recording": RECORDING}}, "it must be"),
    ("/features", {"model": "waves"}, "The request has no recording"),
    ("/features", {"model": "waves", "recording": NOISE}, "not a recording in a known format"),
    ("/features", {"model": "bert", "recording": RECORDING}, "needs a model that reads recordings"),
    ("/features", {"model": "waves", "recording": RECORDING, "seed": -1}, "'seed' must be a whole number"),
    ("/features", {"model": "waves", "recording": wav(np.full(9_000, np.nan), subtype="FLOAT")}, "no numbers"),
    ("/attention", {"model": "commands", "recording": RECORDING}, "no attention to look at"),
    ("/attention", {"model": "waves", "recording": RECORDING, "kind": "encoder", "layer": 9}, "no layer 9"),
]


@pytest.mark.parametrize(("path", "fields", "message"), WRONG)
def test_what_cannot_be_read_is_said(ask, path, fields, message):
    status, found = ask(path, **fields)
    assert status == 422
    assert message in found["error"]


def test_a_file_that_is_too_large_is_refused(app):
    """A request has at most 4 MiB, of which the sentence tells."""
    from starlette.testclient import TestClient

    client = TestClient(app, base_url="http://127.0.0.1")
    for path in ("/predict", "/features"):
        answer = client.post(path, json={"model": "waves", "texts": "", "recording": "A" * 4_300_000})
        assert answer.status_code == 413
        assert "4,194,304" in answer.json()["error"]


def test_a_long_recording_is_cut(ask):
    """40 s: the classifier reads the first 512 frames, and the view shows the first 30 s."""
    long = wav(np.random.default_rng(1).normal(0, 0.1, 40 * RATE), subtype="PCM_16")
    assert ask("/predict", model="commands", texts={"recording": long})[1]["answers"][0]["cut"]
    found = ask("/features", model="commands", recording=long)[1]
    assert (found["seconds"], found["note"]) == (30, "The view shows the first 30 seconds.")
    whole = ask("/attention", model="waves", recording=long)[1]
    assert len(whole["rows"]) == 512
    assert whole["recording"]["note"].startswith("The view reads the first 512 frames")
