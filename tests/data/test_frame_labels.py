"""Clusters of frames and the folder of their labels, compared with scikit-learn and with counts written out."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from unmask.data.recordings.clustering import Clustering, agreement, cluster, entropy, nearest
from unmask.data.recordings.features import Mfcc
from unmask.data.recordings.labels import FrameLabels, LabelledRecordings
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError

PROCESSOR = RecordingProcessor(rate=8_000, hop=80, window=200)


class Sounds:
    """Recordings in memory: two tones, one after the other, at a few pitches."""

    def __init__(self, seconds: list[float], rate: int = 8_000, labels: tuple[str, ...] = ()) -> None:
        self.seconds, self.rate, self.labels = seconds, rate, labels
        self.names = [f"a/{unit}.wav" for unit in range(len(seconds))]
        self.cost = np.array([int(s * rate) for s in seconds])

    def read(self, unit: int) -> np.ndarray:
        rng, time = np.random.default_rng(unit), np.arange(self.cost[unit]) / self.rate
        pitch = np.where(time < self.seconds[unit] / 2, 300.0, 1_700.0)
        return (0.5 * np.sin(2 * np.pi * pitch * time) + 0.001 * rng.normal(size=len(time))).astype(np.float32)

    def located(self, unit: int) -> tuple[int, np.ndarray]:
        return unit, self.read(unit)

    def at_rate(self, rate: int) -> Sounds:
        return Sounds(self.seconds, rate, self.labels)


def _clustered(tmp_path: Path, clusters: int = 2, **settings: int) -> tuple[Sounds, FrameLabels]:
    sounds = Sounds([0.4, 0.6, 1.1])
    features = Mfcc.of(PROCESSOR, deltas=0)
    made = cluster(
        [sounds], PROCESSOR, features, Clustering(clusters=clusters, **settings), tmp_path / "labels", facts={"f": 1}
    )
    return sounds, made


def test_two_tones_are_two_clusters(tmp_path: Path) -> None:
    sounds, labels = _clustered(tmp_path)
    for unit in range(3):
        frames = PROCESSOR.frames(int(sounds.cost[unit]))
        found = labels.of(sounds.names[unit], frames)
        half = frames // 2
        edge = 3  # frames whose window has both tones
        assert len(set(found[: half - edge])) == 1
        assert len(set(found[half + edge :])) == 1
        assert found[0] != found[-1]


def test_a_folder_holds_what_was_written_and_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    sounds, labels = _clustered(tmp_path / "a", clusters=5)
    _, again = _clustered(tmp_path / "b", clusters=5)
    assert labels.checksum == again.checksum
    np.testing.assert_array_equal(labels.centres, again.centres)
    opened = FrameLabels(labels.folder)
    features = Mfcc.of(PROCESSOR, deltas=0)
    for unit in range(3):
        expected = nearest(features(sounds.read(unit)), opened.centres)
        np.testing.assert_array_equal(opened.of(sounds.names[unit], len(expected)), expected)
    assert opened.manifest["frames"] == {"rate": 8_000, "hop": 80, "window": 200}
    assert opened.sizes.sum() == opened.manifest["labelled_frames"] == sum(map(PROCESSOR.frames, sounds.cost.tolist()))


def test_recordings_are_read_with_their_labels_also_by_another_process(tmp_path: Path) -> None:
    sounds, labels = _clustered(tmp_path)
    source = pickle.loads(pickle.dumps(LabelledRecordings(sounds, labels, PROCESSOR)))  # noqa: S301 (our own bytes)
    samples, found = source.read(1)
    np.testing.assert_array_equal(samples, sounds.read(1))
    np.testing.assert_array_equal(found, labels.of("a/1.wav", PROCESSOR.frames(len(samples))))


def test_labels_that_do_not_fit_are_refused_in_one_sentence(tmp_path: Path) -> None:
    _, labels = _clustered(tmp_path)
    with pytest.raises(UnmaskError, match=r"no labels of the recording b/0\.wav"):
        labels.of("b/0.wav", 40)
    with pytest.raises(UnmaskError, match=r"labels of 38 frames of the recording a/0\.wav, which has 37 here"):
        labels.of("a/0.wav", 37)
    with pytest.raises(UnmaskError, match="unmask cluster --rate 16000 --hop 160 --window 400"):
        labels.check(RecordingProcessor(rate=16_000, hop=160, window=400))
    labels.check(PROCESSOR)
    with pytest.raises(UnmaskError, match="make them with unmask cluster"):
        FrameLabels(tmp_path)
    with pytest.raises(UnmaskError, match="too few for 500 clusters"):
        _clustered(tmp_path / "more", clusters=500)
    with pytest.raises(UnmaskError, match="clusters must be 1 to"):
        Clustering(clusters=0)


@pytest.mark.parametrize("name", ["labels", "counts", "names", "centres"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    _, labels = _clustered(tmp_path)
    path = labels.folder / name
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(UnmaskError, match=name):
        FrameLabels(labels.folder)


def test_the_manifest_is_sealed(tmp_path: Path) -> None:
    _, labels = _clustered(tmp_path)
    path = labels.folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"clusters": 3}))
    with pytest.raises(UnmaskError, match="damaged"):
        FrameLabels(labels.folder)


def test_a_small_sample_is_of_all_recordings(tmp_path: Path) -> None:
    _, labels = _clustered(tmp_path, sample=12)
    assert (labels.sizes > 0).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=2, max_size=60))
def test_agreement_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    counts = np.zeros((4, 5), np.int64)
    for label, cluster_of in pairs:
        counts[label, cluster_of] += 1
    found = agreement(counts)
    labels, clusters = zip(*pairs, strict=True)
    of_labels = entropy(np.bincount(labels) / len(pairs))
    expected = metrics.mutual_info_score(labels, clusters) / of_labels if of_labels else 0.0
    assert found["information"] == pytest.approx(expected, abs=1e-9)
    best = Counter(pairs)
    right = sum(max(best[label, k] for label in range(4)) for k in range(5))
    assert found["purity"] == pytest.approx(right / len(pairs))


def test_the_report_counts_sizes_and_agreement(tmp_path: Path) -> None:
    sounds = Sounds([0.5, 0.5], labels=("yes", "no"))
    made = cluster(
        [sounds],
        PROCESSOR,
        Mfcc.of(PROCESSOR, deltas=0),
        Clustering(clusters=2),
        tmp_path / "labels",
        facts={},
    )
    report = made.manifest["report"]
    shares = made.sizes / made.sizes.sum()
    assert report["largest"] == pytest.approx(shares.max())
    assert report["perplexity"] == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))
    assert report["unused"] == 0
    assert report["purity"] == pytest.approx(0.5, abs=0.05)  # both recordings have both tones
    assert report["information"] == pytest.approx(0.0, abs=0.02)


def test_a_damaged_recording_has_no_labels_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    class Damaged(Sounds):
        def located(self, unit: int) -> tuple[int, np.ndarray]:
            return (unit + 1 if unit == 0 else unit), self.read(max(unit, 1))

        def at_rate(self, rate: int) -> Sounds:
            return self

    def clustered(splits: list[Sounds], out: str) -> FrameLabels:
        features = Mfcc.of(PROCESSOR, deltas=0)
        return cluster(splits, PROCESSOR, features, Clustering(clusters=2), tmp_path / out, facts={})

    labels = clustered([Damaged([0.4, 0.5])], "a")
    assert list(labels.numbers) == ["a/1.wav"]
    source = LabelledRecordings(Damaged([0.4, 0.5]), labels, PROCESSOR)
    for unit in range(2):  # the second one is read in place of the first
        np.testing.assert_array_equal(source.read(unit)[1], labels.of("a/1.wav", PROCESSOR.frames(4_000)))
    with pytest.raises(UnmaskError, match=r"Two recordings have the name a/0\.wav"):
        clustered([Sounds([0.4]), Sounds([0.5])], "b")


def test_a_recording_shorter_than_a_frame_has_no_frames(tmp_path: Path) -> None:
    made = cluster(
        [Sounds([0.01, 0.5])], PROCESSOR, Mfcc.of(PROCESSOR), Clustering(clusters=2), tmp_path / "labels", facts={}
    )
    assert len(made.of("a/0.wav", 0)) == 0
