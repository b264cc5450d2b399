"""FrameLabels: a cluster number for each frame of some recordings, in a folder that `unmask cluster` writes.

The folder has raw arrays of U recordings with F frames in all:

labels   little-endian uint16 [F]: the clusters of the frames, recording after recording
counts   little-endian uint32 [U]: frames of each recording
names    names of the recordings in UTF-8, one after another
ends     little-endian uint32 [U]: end of each name, in bytes
centres  little-endian float32 [K, C]: the features of the centre of each cluster

Shapes: K clusters, C features of a frame.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unmask.data.files.corpora import FRAMES, VERIFY_BELOW, Checked, format_of, mapped, read_manifest, seal, workspace
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.files import check

VERSION = 1
MOST = 1 << 16  # clusters that a label can number
LABEL, BOUND, BYTE, CENTRE = np.dtype("<u2"), np.dtype("<u4"), np.dtype("u1"), np.dtype("<f4")
ADVICE = "Make the labels again with unmask cluster."


class NamedRecordings(Protocol):
    """Recordings as a source whose units have names (`folder.Recordings`)."""

    @property
    def cost(self) -> np.ndarray: ...

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def labels(self) -> Sequence[str]: ...

    def located(self, unit: int) -> tuple[int, np.ndarray]: ...

    def at_rate(self, rate: int) -> NamedRecordings: ...


class FrameLabels:
    """The open folder.

    manifest  the content of manifest.json: the frames (rate, hop, window), the features that were clustered, clusters

    Raises UnmaskError, which names the file that is missing, damaged or inconsistent.
    """

    def __init__(self, folder: Path | str, *, verify: bool | None = None) -> None:
        """verify: whether to compare checksums; None: if the labels are below 1 GiB. Sizes are always compared."""
        self.folder = Path(folder)
        if format_of(self.folder) != FRAMES:
            raise UnmaskError(f"{folder} has no labels of frames: make them with unmask cluster --data ... --out ...")
        self.manifest = read_manifest(self.folder, FRAMES, VERSION)
        files = self.manifest["files"]
        if verify is None:
            verify = sum(fact["bytes"] for fact in files.values()) < VERIFY_BELOW
        check(self.folder, files, ADVICE, checksums=verify)
        self.labels = mapped(self.folder / "labels", LABEL)
        self.centres = mapped(self.folder / "centres", CENTRE).reshape(self.clusters, -1)
        counts = mapped(self.folder / "counts", BOUND).astype(np.int64)
        self._begins = np.concatenate([[0], np.cumsum(counts)])
        if self._begins[-1] != len(self.labels) or (len(self.labels) and self.labels.max() >= self.clusters):
            raise UnmaskError(f"{self.folder / 'labels'} does not match its counts and clusters. {ADVICE}")

    @property
    def clusters(self) -> int:
        """K, number of clusters."""
        return int(self.manifest["clusters"])

    @property
    def checksum(self) -> str:
        """SHA-256 of the labels."""
        return str(self.manifest["files"]["labels"]["sha256"])

    @cached_property
    def sizes(self) -> np.ndarray:
        """[K] int64: number of frames of each cluster."""
        return np.bincount(self.labels, minlength=self.clusters)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Name of a recording -> its number."""
        content = mapped(self.folder / "names", BYTE).tobytes()
        ends = [0, *mapped(self.folder / "ends", BOUND).tolist()]
        names = (content[a:b].decode("utf-8", "surrogateescape") for a, b in itertools.pairwise(ends))
        return {name: number for number, name in enumerate(names)}

    def of(self, name: str, frames: int) -> np.ndarray:
        """[F] uint16: the labels of a recording with this name and number of frames. Raises UnmaskError if the folder
        has no labels for it, or for another number of frames."""
        number = self.numbers.get(name)
        if number is None:
            raise UnmaskError(f"{self.folder} has no labels of the recording {name}: cluster these recordings first.")
        begin, end = self._begins[number : number + 2]
        if end - begin != frames:
            raise UnmaskError(
                f"{self.folder} has labels of {end - begin} frames of the recording {name}, which has {frames} here: "
                "cluster these recordings again."
            )
        return self.labels[begin:end]

    def check(self, processor: RecordingProcessor) -> None:
        """Raises UnmaskError for a model with other frames."""
        own, wanted = self.manifest["frames"], frames_of(processor)
        if own != wanted:
            raise UnmaskError(
                f"The labels in {self.folder} are of {described(own)}, but the model reads {described(wanted)}: make "
                "them again with "
                f"unmask cluster --rate {processor.rate} --hop {processor.hop} --window {processor.window}."
            )

    def __reduce__(self) -> tuple[Callable[[Path], FrameLabels], tuple[Path]]:
        return _reopened, (self.folder,)


def _reopened(folder: Path) -> FrameLabels:
    return FrameLabels(folder, verify=False)


@dataclass(frozen=True)
class LabelledRecordings:
    """Recordings as a source, with the labels of their frames. Unit i is (samples [N], labels [F])."""

    recordings: NamedRecordings
    labels: FrameLabels
    processor: RecordingProcessor

    @property
    def cost(self) -> np.ndarray:
        return self.recordings.cost

    def read(self, unit: int) -> tuple[np.ndarray, np.ndarray]:
        """The unit, or the one that is read in place of a damaged one."""
        number, samples_N = self.recordings.located(unit)
        return samples_N, self.labels.of(self.recordings.names[number], self.processor.frames(len(samples_N)))

    def at_rate(self, rate: int) -> LabelledRecordings:
        """A copy at another rate. The labels stay."""
        return LabelledRecordings(self.recordings.at_rate(rate), self.labels, self.processor)


def frames_of(processor: Any) -> dict[str, int]:
    """The numbers that decide which samples a frame depends on, for the manifest."""
    return {"rate": processor.rate, "hop": processor.hop, "window": processor.window}


def described(frames: Mapping[str, int]) -> str:
    """The same as words."""
    return f"frames of {frames['window']} samples every {frames['hop']}, at {frames['rate']:,} Hz"


def write(
    out: Path | str,
    rows: Iterable[tuple[str, np.ndarray]],
    centres_KC: np.ndarray,
    facts: Callable[[], Mapping[str, Any]],
) -> FrameLabels:
    """Write a folder, which appears only when it is complete.

    rows   name of each recording, and the clusters [F] of its frames
    facts  called when all rows are written: further entries of the manifest, among them `frames` (`frames_of`)

    Raises UnmaskError if `out` is not empty or cannot be written, and for more clusters than a label can number.
    """
    out = Path(out).absolute()
    if not 1 <= len(centres_KC) <= MOST:
        raise UnmaskError(f"The number of clusters must be 1 to {MOST:,}, not {len(centres_KC):,}.")
    with workspace(out) as folder:
        names, counts, file = list[bytes](), list[int](), Checked(folder / "labels")
        try:
            for name, labels_F in rows:
                file.write(labels_F.astype(LABEL))
                names.append(name.encode("utf-8", "surrogateescape"))
                counts.append(len(labels_F))
        finally:
            files = {"labels": file.close()}
        arrays: dict[str, np.ndarray] = {
            "counts": np.array(counts, BOUND),
            "names": np.frombuffer(b"".join(names), BYTE),
            "ends": np.cumsum([len(name) for name in names]).astype(BOUND),
            "centres": centres_KC.astype(CENTRE),
        }
        for kind, array in arrays.items():
            other = Checked(folder / kind)
            other.write(array)
            files[kind] = other.close()
        made = {"clusters": len(centres_KC), "recordings": len(counts), "labelled_frames": sum(counts)}
        seal(folder, FRAMES, VERSION, {**made, **facts(), "files": files})
    return FrameLabels(out)
