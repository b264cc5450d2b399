"""Long recordings: windows that overlap, and one transcript of all of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import huggingface
from unmask.cli import main
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.serve import Predictor
from unmask.tasks import SpeechRecognition

soundfile = pytest.importorskip("soundfile")
RATE = 8_000
SIZES = {"channels": (8, 8), "kernels": (10, 8), "strides": (8, 8), "conv_norm": "layer", "position_groups": 1}
PAGE = Wav2Vec2(dim=8, layers=0, heads=2, hidden=8, position_kernel=8, **SIZES)
"""Its states depend on four frames to either side, fewer than the context of a window."""
PROCESSOR = replace(RecordingProcessor(rate=RATE).for_model(PAGE), normalise=False)
TASK = SpeechRecognition(("<pad>", "<unk>", "|", "a", "b", "c"))
ROOM = 64  # frames of a window; 8 of them are context on either side


def recorded(seconds: float, rate: int = RATE) -> bytes:
    """Noise whose loudness changes, as the bytes of a file."""
    count = round(seconds * rate)
    samples = np.random.default_rng(0).standard_normal(count) * np.sin(np.arange(count) / 999)
    file = io.BytesIO()
    soundfile.write(file, 0.1 * samples, rate, format="WAV", subtype="FLOAT")
    return file.getvalue()


def row(seconds: float, **part: float) -> Recording:
    return Recording(place="long", text="ab c", source=recorded(seconds), **part)


@pytest.mark.parametrize("part", [{}, {"begin": 0.3137, "end": 3.27777}], ids=["whole", "part"])
def test_a_long_recording_is_answered_as_in_a_single_pass(part):
    model = PAGE.build(TASK.heads, seed=0).eval()
    [single] = TASK.answer_all(model, TASK.encode([row(3.51, **part)], PROCESSOR, 10_000), PROCESSOR.pad)
    encoded = TASK.encode([row(0.4), row(3.51, **part), row(0.3)], PROCESSOR, ROOM)
    assert encoded.owners.tolist() == [0, *[1] * (len(encoded.owners) - 2), 2]
    assert len(encoded.owners) > 8
    assert (encoded.split, encoded.cut) == (1, ())
    assert (encoded.lengths <= ROOM).all()
    _, stitched, _ = TASK.answer_all(model, encoded, PROCESSOR.pad)
    np.testing.assert_allclose(stitched.log_p_FC, single.log_p_FC, atol=1e-5)
    assert stitched.labels == single.labels
    for one, other in zip(stitched.words(TASK.characters), single.words(TASK.characters), strict=True):
        assert {**one, "probability": pytest.approx(one["probability"], abs=1e-5)} == other


@given(st.integers(200, 4_000), st.integers(9, 40), st.floats(0, 0.1), st.sampled_from([8_000, 16_000]))
@settings(max_examples=15, deadline=None)
def test_windows_hold_the_samples_of_their_frames_and_every_frame_is_kept_once(count, room, begin, rate):
    seconds = begin + count / RATE
    long = Recording(place="long", text="a", source=recorded(seconds, rate=rate), begin=begin)
    whole_N = long.samples(RATE)
    frames = PROCESSOR.frames(len(whole_N))
    encoded = TASK.encode([long], PROCESSOR, room)
    firsts = [round(one.begin * RATE) - round(begin * RATE) for one in encoded.examples.rows]
    for i, first in enumerate(firsts):
        own_N = encoded.examples.samples(i)
        np.testing.assert_allclose(own_N, whole_N[first : first + len(own_N)], atol=1e-6)
        assert PROCESSOR.frames(len(own_N)) == encoded.lengths[i] == min(frames, room)
    parts = [np.zeros((n, 6)) for n in encoded.lengths]
    edges = [np.arange(n) + first // PROCESSOR.hop for n, first in zip(encoded.lengths, firsts, strict=True)]
    for part, numbers in zip(parts, edges, strict=True):
        part[:, 1] = numbers
    kept = TASK.merge(parts, encoded, 0).log_p_FC[:, 1]
    assert kept.tolist() == list(range(frames))


def test_a_frame_is_taken_from_a_window_with_an_eighth_of_context():
    encoded = TASK.encode([row(3.51)], PROCESSOR, ROOM)
    lengths = encoded.lengths.tolist()
    parts = [np.arange(6 * n).reshape(n, 6) + 10_000 * i for i, n in enumerate(lengths)]
    kept = TASK.merge(parts, encoded, 0).log_p_FC[:, 0]
    owners, inside = kept // 10_000, kept % 10_000 // 6
    for i, n in enumerate(lengths):
        own = inside[owners == i]
        assert own[0] == 0 if i == 0 else own[0] >= ROOM // 8
        assert own[-1] == n - 1 if i == len(lengths) - 1 else own[-1] == n - 1 - ROOM // 8
    assert all(b - a in (0, 1) for a, b in pairwise(owners))


def test_training_leaves_long_recordings_out_and_names_them():
    encoded = TASK.encode([row(0.4), row(4), row(0.3)], PROCESSOR, ROOM)
    trained = TASK.for_training(encoded, PROCESSOR)
    assert [len(trained.examples), len(trained.rows), trained.split] == [2, 2, 0]
    assert "Left out: 1 recording longer than 64 frames (long)." in trained.notes
    assert trained.examples.lengths.tolist() == [encoded.lengths[0], encoded.lengths[-1]]


def test_windows_of_a_long_recording_do_not_stay_in_memory():
    encoded = TASK.encode([row(0.4), row(4)], PROCESSOR, ROOM)
    examples = list(encoded.examples)
    assert len(examples) == len(encoded.owners)
    assert list(encoded.examples._decoded) == [0]


def test_predict_and_evaluate_read_a_long_file_to_its_end(tmp_path, capsys):
    model = PAGE.build(TASK.heads, seed=0)
    with torch.no_grad():
        model.heads["ctc"].output.bias[0] -= 1  # fewer blanks: it writes something
    huggingface.save(tmp_path / "run", model, PROCESSOR, labels=TASK.labels, settings=TASK.settings())
    (tmp_path / "talk.wav").write_bytes(recorded(14))
    main(["predict", "--model", str(tmp_path / "run"), str(tmp_path / "talk.wav"), "--json", "--precision", "fp32"])
    answer = json.loads(capsys.readouterr().out)
    assert "cut" not in answer
    assert answer["words"][-1]["end"] > 13
    [short] = Predictor(tmp_path / "run", length=400, precision="fp32")([{"recording": recorded(14)}])
    assert short["text"] == answer["text"]
    (tmp_path / "rows.tsv").write_text(f"path\ttext\ntalk.wav\t{answer['text']}\n")
    main(["evaluate", "--model", str(tmp_path / "run"), "--data", str(tmp_path / "rows.tsv"), "--precision", "fp32"])
    assert "0.0000" in capsys.readouterr().out
