"""`unmask show` for recordings: features, attention and clusters of files, and what it says if it cannot show them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.data.recordings.characters import Characters
from unmask.data.recordings.features import Mfcc
from unmask.data.recordings.labels import frames_of, write
from unmask.data.recordings.processor import RecordingProcessor
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.runs.clustering import layer_features
from unmask.serve.opened import open_model
from unmask.tasks.speech_recognition import SpeechRecognition
from unmask.types import Head
from unmask.visualize.numbers import unpacked
from unmask.visualize.recordings import runs, seconds_of

soundfile = pytest.importorskip("soundfile")
RATE = 8_000
SIZES = {
    "channels": (8, 8), "kernels": (10, 8), "strides": (8, 8), "dim": 16, "layers": 2, "heads": 2, "hidden": 32,
    "position_kernel": 8, "position_groups": 2, "std": 0.4,
}  # fmt: skip
PAGE = Wav2Vec2(**SIZES, entries=6, codes=8, compared=8)
FRAMES = RecordingProcessor(rate=RATE).for_model(PAGE)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A pre-trained model, a recogniser, a model without attention, and recordings of two classes."""
    found = tmp_path_factory.mktemp("recordings")
    waves = PAGE.build({"contrastive": Head("quantised", 8, pretraining=True)}, seed=1)
    huggingface.save(found / "waves", waves, FRAMES)
    kept = {"config": {"objective": {"kind": "masked frames", "share": 0.3, "span": 5}}}
    (found / "waves" / "run.json").write_text(json.dumps(kept))
    task = SpeechRecognition(Characters.learned(["yes no"]).pieces)
    huggingface.save(
        found / "spoken", PAGE.build(task.heads, seed=3), FRAMES, labels=task.labels, settings=task.settings()
    )
    cepstra = MfccCnn(rate=RATE, widths=(8,), strides=(1,))
    huggingface.save(found / "cepstra", cepstra.build({}), FRAMES.for_model(cepstra))
    rng = np.random.default_rng(0)
    for name in ("data/yes/a.wav", "data/yes/b.wav", "data/no/c.wav"):
        path = found / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, rng.normal(0, 0.1, RATE // 2), RATE)
    return found


def shown(*arguments, out):
    main(["show", *map(str, arguments), "--out", str(out)])
    return json.loads(re.search(r'id="data">(.*?)</script>', out.read_text(encoding="utf-8"), re.S)[1])


def test_features_are_written(place, tmp_path):
    sound = place / "data/yes/a.wav"
    found = shown("features", "--model", place / "waves", sound, "--seed", "4", out=tmp_path / "f.html")
    assert (found["view"], found["rate"], found["seconds"]) == ("recording", RATE, 0.5)
    expected = soundfile.read(sound, dtype="float32")[0]
    np.testing.assert_allclose(unpacked(found["samples"]), expected, atol=2**-15)
    assert "seed 4" in found["lanes"][0]["title"]
    shares = [float(re.search(r"(\d+) %", lane["title"])[1]) for lane in found["lanes"][:1]]
    assert 10 < shares[0] < 35  # about 0.3, less what overlaps: the share of the run that made the folder
    spoken = shown("features", "--model", place / "spoken", sound, out=tmp_path / "s.html")
    assert [lane["title"].partition(":")[0] for lane in spoken["lanes"][:2]] == ["Words", "Letters"]


def test_a_part_of_a_long_recording_is_shown(place, tmp_path):
    rng = np.random.default_rng(5)
    samples = rng.normal(0, 0.1, 40 * RATE).astype(np.float32)
    soundfile.write(tmp_path / "long.wav", samples, RATE, subtype="FLOAT")
    asked = ["--model", place / "spoken", tmp_path / "long.wav", "--begin", "35.5"]
    found = shown("features", *asked, "--end", "36", out=tmp_path / "f.html")
    assert (found["begin"], found["seconds"], found["note"]) == (35.5, 0.5, "")
    np.testing.assert_allclose(
        unpacked(found["samples"]), samples[int(35.5 * RATE) : 36 * RATE].clip(-1, 1), atol=2**-15
    )
    alone = tmp_path / "part.wav"
    soundfile.write(alone, samples[int(35.5 * RATE) : 36 * RATE], RATE, subtype="FLOAT")
    expected = shown("features", "--model", place / "spoken", alone, out=tmp_path / "p.html")
    assert found["lanes"] == expected["lanes"]
    seen = shown("attention", *asked, out=tmp_path / "a.html")
    first = (FRAMES.window / 2) / RATE
    assert seen["rows"][0] == f"{35.5 + first:.2f} s"
    assert seen["recording"]["begin"] == 35.5
    whole = shown("features", "--model", place / "waves", *asked[2:3], "--begin", "2", out=tmp_path / "w.html")
    assert whole["note"].startswith("The view shows 30 seconds from 2 s on.")


@pytest.mark.parametrize("of", ["mfcc", "states"])
def test_clusters_are_a_lane_beside_letters(place, tmp_path, of):
    """Brute force: the nearest centre of each frame."""
    if of == "mfcc":
        features, facts = Mfcc.of(FRAMES, bands=8, cepstra=5), {"kind": "mfcc"}
        facts |= features.to_dict()
    else:
        _, features, layer = layer_features(place / "waves", 1)
        facts = {"kind": "states", "model": str(place / "waves"), "layer": layer}
    sound = place / "data/yes/a.wav"
    states_FD = features(soundfile.read(sound, dtype="float32")[0])
    centres_KD = states_FD[[3, 20, 40]]
    write(
        tmp_path / "labels", [("x", np.zeros(1))], centres_KD, lambda: {"frames": frames_of(FRAMES), "features": facts}
    )
    found = shown(
        "features", "--model", place / "spoken", sound, "--labels", tmp_path / "labels", out=tmp_path / "f.html"
    )
    lane = found["lanes"][2]
    nearest_F = ((states_FD[:, None] - centres_KD) ** 2).sum(-1).argmin(1)
    edges = seconds_of(FRAMES, len(nearest_F))
    assert lane["title"].startswith(f"Clusters of {tmp_path / 'labels'}")
    assert lane["spans"] == runs([str(one + 1) for one in nearest_F], edges, nearest_F.tolist())
    assert "of 3 entries are used" in found["charts"][0]["title"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--begin", "-1"], "--begin must be 0 seconds or more"),
        (["--begin", "3", "--end", "2"], "--end greater than it"),
        (["--begin", "9"], "a.wav has no samples from 9 s"),
        (["--labels", "{place}/waves"], "has no labels of frames: make them with unmask cluster"),
    ],
)
def test_a_part_that_is_not_there_is_refused(place, tmp_path, capsys, arguments, sentence):
    given = [one.format(place=place) for one in arguments]
    with pytest.raises(SystemExit):
        main(
            [
                "show",
                "features",
                "--model",
                str(place / "waves"),
                str(place / "data/yes/a.wav"),
                *given,
                "--out",
                str(tmp_path / "x.html"),
            ]
        )
    assert sentence in capsys.readouterr().err


def test_attention_is_written(place, tmp_path):
    found = shown(
        "attention", "--model", place / "waves", place / "data/no/c.wav", "--layer", "2", out=tmp_path / "a.html"
    )
    assert (found["view"], found["start"]["layer"]) == ("recording-attention", 1)
    assert len(found["rows"]) == FRAMES.frames(RATE // 2)


@pytest.fixture(scope="module")
def labels(place):
    """Two clusters: the first half of the frames of each recording, and the second; a third one that none has."""
    F = FRAMES.frames(RATE // 2)
    halves = (np.arange(F) >= F // 2).astype(int)
    rows = [(name, halves) for name in ("yes/a.wav", "yes/b.wav", "no/c.wav")]
    facts = {"frames": frames_of(FRAMES), "features": {"kind": "test"}, "report": {}}
    write(place / "labels", rows, np.zeros((3, 1), np.float32), lambda: facts)
    return place / "labels"


def test_clusters_stand_beside_classes(place, labels, tmp_path):
    found = shown("clusters", "--labels", labels, "--data", place / "data", out=tmp_path / "c.html")
    assert dict(zip(found["rows"], unpacked(found["values"]).round(2).tolist(), strict=True)) == {
        "no": pytest.approx([0.33, 0.33], abs=0.01),
        "yes": pytest.approx([0.67, 0.67], abs=0.01),
    }
    assert sum(found["frames"]) == 3 * FRAMES.frames(RATE // 2)
    one = shown("clusters", "--labels", labels, "--data", place / "data", "--count", "3", out=tmp_path / "o.html")
    assert one == found


def test_clusters_stand_beside_letters(place, labels, tmp_path):
    """The share of each letter in the first half is that of the frames nearest to the letters of the answers."""
    found = shown(
        "clusters", "--labels", labels, "--data", place / "data", "--model", place / "spoken", out=tmp_path / "l.html"
    )
    opened = open_model(place / "spoken")
    F, counts = FRAMES.frames(RATE // 2), {}
    for name in ("yes/a.wav", "yes/b.wav", "no/c.wav"):
        answer = opened.features(place / "data" / name)
        lanes = {lane["title"].partition(":")[0]: lane for lane in answer["lanes"]}
        for f in range(F):
            time = (f * FRAMES.hop + FRAMES.window / 2) / RATE
            word = next((one for one in lanes["Words"]["spans"] if one["begin"] <= time < one["end"]), None)
            label = "(silence)"
            if word:
                own = [one for one in lanes["Letters"]["stems"] if word["begin"] <= one["time"] < word["end"]]
                label = min(own, key=lambda one: abs(one["time"] - time))["label"]
            counts.setdefault(label, [0, 0])[int(f >= F // 2)] += 1
    assert set(found["rows"]) == set(counts)
    values = dict(zip(found["rows"], unpacked(found["values"]).tolist(), strict=True))
    for label, both in counts.items():
        shares = [n / (3 * size) for n, size in zip(both, (F // 2, F - F // 2), strict=True)]
        ordered = [values[label][found["columns"].index(str(k + 1))] for k in range(2)]
        assert ordered == pytest.approx(shares, abs=1e-3)


BAD = [
    (["attention", "--model", "waves"], "This model reads recordings: name the file of one"),
    (["attention", "--model", "waves", "none.wav"], "There is no recording none.wav"),
    (["attention", "--model", "waves", "data/no/c.wav", "--pair", "x"], "one recording: leave --pair out"),
    (["attention", "--model", "cepstra", "data/no/c.wav"], "no attention to look at"),
    (["features", "--model", "waves", "waves/config.json"], "not a recording in a known format"),
    (["clusters", "--labels", "data", "--data", "data"], "has no labels of frames"),
    (["clusters", "--labels", "labels", "--data", "data/yes"], "give the folders that were clustered"),
    (["clusters", "--labels", "labels", "--data", "data", "--model", "waves"], "recognises no speech"),
    (["clusters", "--labels", "labels", "--data", "data", "--count", "0"], "--count must be at least 1"),
    (["positions", "--model", "waves"], "This model has no position embeddings"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_show_says_what_is_wrong(arguments, message, place, labels, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(place)
    with pytest.raises(SystemExit):
        main(["show", *arguments, "--out", str(tmp_path / "x.html")])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_drawings_for_a_paper(place, labels, tmp_path):
    pytest.importorskip("matplotlib")
    Image = pytest.importorskip("PIL.Image")
    sound = str(place / "data/yes/a.wav")
    for arguments in (
        ["features", "--model", str(place / "waves"), sound],
        ["features", "--model", str(place / "spoken"), sound],
        ["attention", "--model", str(place / "waves"), sound],
        ["clusters", "--labels", str(labels), "--data", str(place / "data")],
    ):
        main(["show", *arguments, "--out", str(tmp_path / "drawn.png")])
        assert np.asarray(Image.open(tmp_path / "drawn.png")).std() > 1
