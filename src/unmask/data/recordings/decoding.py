"""Decoding: files of recordings (WAV, FLAC, OGG, MP3, AIFF, NIST and others) into samples of one channel, at any rate.

Shapes: N samples of a recording, C channels.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unmask.errors import UnmaskError, needs

_COMMON = (".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".caf")
SUFFIXES = frozenset((*_COMMON, ".nist", ".sph", ".w64", ".rf64"))
"""Suffixes of files of recordings."""
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # samples a second
LONGEST = 24 * 3600  # seconds; a small file may last for years when decoded
MOST_SAMPLES = 1 << 28  # that are decoded into memory at once, 1 GiB
MOST_CHANNELS = 64
ALMOST_FULL = 0.98  # of full scale: equal samples that are as loud are clipped
LARGEST = 16.0  # absolute value of a sample; louder than 1 is clipped, but this is another scale
BLOCK = 1 << 18  # samples of a channel that are read at a time
FILTER = 10  # half length of the filter of `resample_poly`, in samples of the lower rate
LEAD = {"OGG": 1 << 14, "MP3": 1 << 12}
"""Container -> samples that are decoded and dropped after a jump: what a decoder gives first is not exact."""
UNKNOWN = 1 << 60  # number of samples that libsndfile gives for a stream without a length


def soundfile() -> Any:
    """The module `soundfile`. Raises UnmaskError if it is not installed."""
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: its library is missing
        raise needs("Recordings need soundfile", "audio") from None
    return soundfile


class Decoded(Protocol):
    """A recording that is decoded already, such as one of a corpus: a handle, without its samples."""

    @property
    def digest(self) -> str:
        """A hash of its content: of its file, where it came from one."""

    @property
    def header(self) -> Header:
        """What it holds."""

    def samples(self, rate: int, begin: float = 0.0, end: float | None = None) -> np.ndarray:
        """As `decode`."""


Source = str | Path | bytes | Decoded
"""A recording: the path of its file, the bytes of its file, or a handle."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the first bytes of a file say.

    rate      samples a second
    samples   number of samples of each channel
    channels  number of channels
    coding    container and coding, such as "WAV PCM_16"
    """

    rate: int
    samples: int
    channels: int = 1
    coding: str = ""

    @property
    def seconds(self) -> float:
        """Length of the recording."""
        return self.samples / self.rate

    def samples_at(self, rate: int) -> int:
        """Number of samples after resampling."""
        return -(-self.samples * rate // self.rate)

    def bounds(self, rate: int, begin: float = 0.0, end: float | None = None) -> tuple[int, int]:
        """The samples at `rate` from `begin` to `end` seconds, which stay within the recording."""
        count = self.samples_at(rate)
        return min(round(begin * rate), count), count if end is None else min(round(end * rate), count)


def header(source: Source, *, name: str = "") -> Header:
    """The header of a recording. Errors are those of `decode` that the first bytes show."""
    if not isinstance(source, str | Path | bytes):
        return source.header
    with opened(source, name) as file:
        return file.header


def decode(source: Source, rate: int, begin: float = 0.0, end: float | None = None, *, name: str = "") -> np.ndarray:
    """The samples of a recording, [N] float32 in [-1, 1], `rate` a second: the mean of the channels, resampled by a
    polyphase filter (`scipy.signal.resample_poly`). Louder samples are clipped.

    begin, end  seconds; only this part is decoded, and its samples are those that the whole recording has there
    name        the recording in messages; empty: its path

    Raises UnmaskError if the recording cannot be decoded, has no samples there, or samples that are no numbers; and,
    before decoding, if it has more than MOST_SAMPLES, or a number of channels, a rate or a length that is absurd.
    """
    if not isinstance(source, str | Path | bytes):
        return source.samples(rate, begin, end)
    with opened(source, name) as file:
        first, last = bounds(file.header, rate, begin, end, file.name)
        if last - first > MOST_SAMPLES:
            raise UnmaskError(
                f"{file.name} has {last - first:,} samples, but the limit is {MOST_SAMPLES:,}: give begin "
                "and end in seconds, or make a corpus of it, which cuts it: unmask corpus build DATA --out FOLDER."
            )
        return file.resampled(rate, first, last)


def blocks(source: str | Path | bytes, rate: int, seconds: float = 60.0, *, name: str = "") -> Iterator[np.ndarray]:
    """All samples of a recording, `seconds` at a time, in bounded memory: values and errors are those of `decode`."""
    with opened(source, name) as file:
        size, count = max(1, round(seconds * rate)), file.header.samples_at(rate)
        for first in range(0, count, size):
            yield file.resampled(rate, first, min(first + size, count))


def bounds(found: Header, rate: int, begin: float, end: float | None, name: str) -> tuple[int, int]:
    """The samples at `rate` from `begin` to `end` seconds. Raises UnmaskError, which names the recording, if there are
    none."""
    first, last = found.bounds(rate, max(begin, 0.0), end)
    if begin < 0 or last <= first:
        until = "its end" if end is None else f"{end:g} s"
        raise UnmaskError(f"{name} has no samples from {begin:g} s to {until}: it has {found.seconds:.3f} s.")
    return first, last


def resample(samples: np.ndarray, rate: int, new: int) -> np.ndarray:
    """Samples [N] of `rate` a second as float32 of `new` a second, clipped to [-1, 1]."""
    if samples.dtype.kind != "f":
        samples = samples.astype(np.float32) / 2**15
    if rate != new:
        from scipy.signal import resample_poly

        shared = gcd(rate, new)
        samples = resample_poly(samples, new // shared, rate // shared)
    return np.clip(samples, -1, 1)


def digest_of(source: Source, begin: float = 0.0, end: float | None = None) -> str:
    """A hash of the content of a recording, or of its part from `begin` to `end` seconds (BLAKE2b, 16 bytes). Raises
    UnmaskError for a file that cannot be read."""
    if isinstance(source, bytes):
        whole = hashlib.blake2b(source, digest_size=16).hexdigest()
    elif isinstance(source, str | Path):
        try:
            with open(source, "rb") as file:
                whole = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        except OSError as error:
            raise UnmaskError(f"{source} cannot be read: {error.strerror or error}.") from None
    else:
        whole = source.digest
    if not begin and end is None:
        return whole
    part = f"{whole} {begin:.4f} {'' if end is None else f'{end:.4f}'}"
    return hashlib.blake2b(part.encode(), digest_size=16).hexdigest()


# ------------------------------------------------------------------------------------------------ libsndfile


@dataclass
class OpenRecording:
    """An open file of soundfile.

    name     in messages
    clipped  number of samples read so far that are louder than full scale, or equal to a neighbour almost as loud
    """

    file: Any
    name: str
    header: Header
    clipped: int = 0

    def resampled(self, rate: int, first: int, last: int) -> np.ndarray:
        """The samples `first` to `last` at `rate`, [last - first] float32, as resampling all of them gives these."""
        found = self.header
        shared = gcd(rate, found.rate)
        up, down = rate // shared, found.rate // shared
        margin = 0 if up == down else FILTER * max(up, down) // up + 1
        begin = max(0, first * down // up - margin) // down * down  # where samples of both rates fall together
        end = min(found.samples, -(-last * down // up) + margin)
        origin = begin // down * up
        return resample(self.mono(begin, end), found.rate, rate)[first - origin : last - origin]

    def mono(self, first: int, last: int) -> np.ndarray:
        """The mean of the channels of the samples `first` to `last`, [last - first] float32. Raises UnmaskError for
        samples that are missing, no numbers, or of another scale."""
        lead = min(LEAD.get(self.file.format, 0), first)
        self.file.seek(first - lead)
        first -= lead
        samples, done = np.empty(last - first, np.float32), 0
        while done < len(samples):
            read = self.file.read(min(BLOCK, len(samples) - done), dtype="float32", always_2d=True)
            if not len(read):
                raise UnmaskError(
                    f"{self.name} is cut short: its header promises {self.header.samples:,} samples, but it has "
                    f"{first + done:,}."
                )
            samples[done : done + len(read)] = read[:, 0] if read.shape[1] == 1 else read.mean(1)
            done += len(read)
        samples = samples[lead:]
        largest = np.abs(samples).max()
        if not np.isfinite(largest):
            raise UnmaskError(f"{self.name} has samples that are no numbers (NaN or infinite): repair or remove it.")
        if largest > LARGEST:
            raise UnmaskError(
                f"{self.name} has samples up to {largest:,.0f}, but decimal numbers must lie between -1 and 1: divide "
                "them by their scale."
            )
        loud = np.abs(samples) >= ALMOST_FULL
        if loud.any():
            flat = loud[1:] & (samples[1:] == samples[:-1])
            self.clipped += int(flat.sum() + (np.abs(samples) > 1).sum())
        return samples


@contextlib.contextmanager
def opened(source: str | Path | bytes, name: str) -> Iterator[OpenRecording]:
    """An open file, whose header is checked. Errors of decoding inside the block become UnmaskError."""
    library = soundfile()
    name = name or ("The recording" if isinstance(source, bytes) else str(source))
    size = len(source) if isinstance(source, bytes) else _size(Path(source), name)
    try:
        with library.SoundFile(io.BytesIO(source) if isinstance(source, bytes) else str(source)) as file:
            yield OpenRecording(file, name, _header(file, name))
    except library.LibsndfileError as error:
        raise UnmaskError(f"{name} cannot be decoded: {_reason(error) if size else 'it is empty'}.") from None


def _size(path: Path, name: str) -> int:
    """Bytes of a file that can be read: libsndfile calls all errors of the system "System error"."""
    try:
        with path.open("rb") as file:
            return file.seek(0, io.SEEK_END)
    except FileNotFoundError:
        raise UnmaskError(f"There is no recording {name}.") from None
    except OSError as error:
        raise UnmaskError(f"{name} cannot be read: {error.strerror or error}.") from None


def _reason(error: Any) -> str:
    """The reason of an error of libsndfile, as the end of a sentence."""
    said = str(error.error_string).removeprefix("Error :").removeprefix("Error in").strip().rstrip(".")
    if said.startswith(("Format not recognised", "File does not exist or is not a regular file")):
        return "it is not a recording in a known format"
    return said[:1].lower() + said[1:] if said[1:2].islower() else said


def _header(file: Any, name: str) -> Header:
    """The header of an open file. Raises UnmaskError for one that is absurd."""
    rate, channels = int(file.samplerate), int(file.channels)
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise UnmaskError(
            f"{name} has {rate:,} samples a second, but the rate must be {LOWEST_RATE:,} to {HIGHEST_RATE:,}: its "
            "header is damaged, or it is not a recording."
        )
    if not 1 <= channels <= MOST_CHANNELS:
        raise UnmaskError(f"{name} has {channels:,} channels, but the limit is {MOST_CHANNELS}: its header is damaged.")
    samples = int(file.frames)
    if samples >= UNKNOWN:
        raise UnmaskError(f"{name} has no length in its header: convert it, such as with ffmpeg.")
    if samples <= 0:
        raise UnmaskError(f"{name} has no samples: it is cut short, or nothing was recorded.")
    if samples > LONGEST * rate:
        raise UnmaskError(
            f"{name} has {samples / rate / 3600:,.0f} hours, but the limit is {LONGEST // 3600}: cut it into pieces."
        )
    return Header(rate, samples, channels, f"{file.format} {file.subtype}")
