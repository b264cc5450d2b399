"""WFDB, the format of PhysioNet: headers (.hea), samples (.dat, .mat) and annotations (.atr).

Source: the manual pages header(5), signal(5) and annot(5) of the WFDB Applications Guide (Moody). Shapes: N samples of
a record, L leads, A annotations.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unmask.data.signals.signal import MOST_LEADS, MOST_SAMPLES, Annotations, Header, Signal, joined
from unmask.errors import UnmaskError

FORMATS = {16: 16, 24: 24, 32: 32, 61: 16, 80: 8, 160: 16, 212: 12}
"""Format of a file of samples -> bits of a sample."""
RATE, GAIN = 250.0, 200.0  # where a header does not say them
MOST_EACH = 100_000  # samples of a lead in a frame
BEATS = {
    **dict.fromkeys("NLRej", "N"),
    **dict.fromkeys("aAJS", "S"),
    **dict.fromkeys("VE", "V"),
    "F": "F",
    **dict.fromkeys("/fQ", "Q"),
}
"""Symbol of a beat -> its class of five (ANSI/AAMI EC57): normal, supraventricular, ventricular, fusion, unknown."""
_CODES = ' NLRaVFJASEj/Q~ | sT*D"=pB^t+u?![]en@xf()r'
SYMBOLS = {code: symbol for code, symbol in enumerate(_CODES) if symbol != " "}
"""Code of an annotation -> its symbol."""
SKIP, NUMBER, SUBTYPE, CHANNEL, TEXT = range(59, 64)  # codes that belong to the annotation before, or move the time

_FORMAT = re.compile(r"(\d+)(?:x(\d+))?(?::(\d+))?(?:\+(\d+))?")
_GAIN = re.compile(r"([-+\d.eE]+)(?:\((-?\d+)\))?(?:/(\S+))?")


class Lead(NamedTuple):
    """A line of a header: the samples of a lead.

    file    that holds them, interleaved with those of other leads
    format  of FORMATS
    each    samples of a frame: of 1 / `Layout.rate` seconds
    offset  bytes before the first sample of the file
    gain    numbers of a unit
    zero    number that means 0
    """

    file: str
    format: int
    each: int
    offset: int
    gain: float
    zero: int
    unit: str
    name: str


@dataclass(frozen=True)
class Layout:
    """A header.

    path     of the header
    rate     frames a second
    frames   their number; a frame has one sample of each lead, or more
    """

    path: Path
    rate: float
    frames: int
    leads: tuple[Lead, ...]

    @classmethod
    def read(cls, path: Path) -> Layout:
        """Raises UnmaskError, which names the line, for a header that is damaged, or of a record in segments."""
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                content = file.read(1 << 20)
        except OSError as error:
            raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None
        lines = [(i, line.split()) for i, line in enumerate(content.splitlines(), 1) if line.strip()]
        lines = [(i, words) for i, words in lines if not words[0].startswith("#")]
        if not lines or len(lines[0][1]) < 2:
            raise UnmaskError(
                f"{path} is not a WFDB header: its first line must give the name of the record and the number of leads."
            )
        first, words = lines[0]
        if "/" in words[0]:
            raise UnmaskError(f"{path}: the record is in several segments, which are not read: give each as a record.")
        with _line(path, first):
            count = int(words[1])
            rate = float(words[2].split("/")[0]) if len(words) > 2 else RATE
            frames = int(words[3]) if len(words) > 3 else 0
        if not 1 <= count <= MOST_LEADS or len(lines) <= count:
            raise UnmaskError(f"{path}: the header promises {count} leads, but describes {len(lines) - 1}.")
        leads = []
        for number, found in lines[1 : count + 1]:
            with _line(path, number):
                leads.append(_lead(found))
        layout = cls(path, rate, frames, tuple(leads))
        if rate <= 0 or frames < 0 or frames * sum(lead.each for lead in leads) > MOST_SAMPLES:
            raise UnmaskError(f"{path}:{first}: a record of {frames:,} samples, {rate:g} a second, is absurd.")
        return layout if frames else layout._measured()

    @property
    def header(self) -> Header:
        """What the record has, where all leads have the highest of their rates."""
        return Header(self.rate * self.most, self.frames * self.most, tuple(lead.name for lead in self.leads))

    @property
    def most(self) -> int:
        """The samples of a frame of the leads with the highest rate."""
        return max(lead.each for lead in self.leads)

    @property
    def files(self) -> list[Path]:
        """The files of samples, each once."""
        return [self.path.parent / name for name in dict.fromkeys(lead.file for lead in self.leads)]

    def signal(self) -> Signal:
        """The record; values that the format marks as invalid are NaN. Raises UnmaskError for missing or short
        files."""
        by_file = {file.name: self._numbers(file.name) for file in self.files}
        found = []
        for lead in self.leads:
            mates = [one for one in self.leads if one.file == lead.file]
            begin = sum(one.each for one in mates[: [one is lead for one in mates].index(True)])
            values = by_file[lead.file][:, begin : begin + lead.each].reshape(-1)
            invalid = values == -(1 << (FORMATS[lead.format] - 1))
            found.append(np.where(invalid, np.nan, (values - float(lead.zero)) / lead.gain).astype(np.float32))
        samples, rate, notes = joined(found, [self.rate * lead.each for lead in self.leads])
        names, units = tuple(lead.name for lead in self.leads), tuple(lead.unit for lead in self.leads)
        return Signal(samples, rate, names, units, notes)

    def _numbers(self, name: str) -> np.ndarray:
        """The numbers of a file [frames, samples of a frame] int32."""
        leads = [lead for lead in self.leads if lead.file == name]
        if len({(lead.format, lead.offset) for lead in leads}) > 1:
            raise UnmaskError(f"{self.path}: the leads in {name} must have one format.")
        wide = sum(lead.each for lead in leads)
        count = self.frames * wide
        bits, place = FORMATS[leads[0].format], self.path.parent / name
        needed = -(-count * bits // 8)
        try:
            with place.open("rb") as file:
                file.seek(leads[0].offset)
                content = file.read(needed)
        except OSError as error:
            raise UnmaskError(f"{place} cannot be read: {error.strerror or error}; {self.path} names it.") from None
        if len(content) < needed:
            frames = len(content) * 8 // bits // wide
            raise UnmaskError(f"{place} is cut short: its header promises {self.frames:,} samples, it has {frames:,}.")
        return unpack(content, leads[0].format, count).reshape(-1, wide)

    def _measured(self) -> Layout:
        """A copy whose number of frames is that of the first file."""
        first = self.leads[0]
        try:
            size = (self.path.parent / first.file).stat().st_size - first.offset
        except OSError as error:
            raise UnmaskError(f"{self.path.parent / first.file}: {error.strerror or error}.") from None
        wide = sum(lead.each for lead in self.leads if lead.file == first.file)
        return Layout(self.path, self.rate, max(0, size) * 8 // FORMATS[first.format] // wide, self.leads)


def header_of(path: Path) -> Path | None:
    """The header of a record, whose path may be that of its samples, or have no suffix; None if there is none."""
    suffix = path.suffix.lower()
    if suffix == ".hea":
        return path
    if suffix in (".dat", ".mat"):
        beside = path.with_suffix(".hea")
    else:
        beside = path.with_name(path.name + ".hea")
    return beside if beside.is_file() else None


def unpack(content: bytes, format: int, count: int) -> np.ndarray:
    """The first `count` numbers of the bytes of a file of samples, [count] int32."""
    raw = np.frombuffer(content, np.uint8)
    if format == 212:  # three bytes hold two numbers: low byte, both high halves, low byte
        raw = np.pad(raw, (0, -len(raw) % 3)).reshape(-1, 3).astype(np.int32)
        first, second = raw[:, 0] | (raw[:, 1] & 15) << 8, raw[:, 2] | (raw[:, 1] & 240) << 4
        numbers = np.stack([first, second], 1).reshape(-1)[:count]
        return numbers - (numbers >> 11 << 12)
    if format == 24:
        wide = raw.reshape(-1, 3).astype(np.int32)
        numbers = wide[:, 0] | wide[:, 1] << 8 | wide[:, 2] << 16
        return numbers - (numbers >> 23 << 24)
    if format == 80:
        return raw.astype(np.int32) - 128
    if format == 160:
        return raw.view("<u2").astype(np.int32) - 32_768
    return raw.view({16: "<i2", 32: "<i4", 61: ">i2"}[format]).astype(np.int32)


def annotations_in(content: bytes, name: str) -> Annotations:
    """The annotations in the bytes of a file. Raises UnmaskError, which begins with `name`, if it is damaged."""
    words = np.frombuffer(content[: len(content) // 2 * 2], "<u2").tolist()
    samples, symbols, texts, time, i = list[int](), list[str](), list[str](), 0, 0
    while i < len(words):
        code, value = words[i] >> 10, words[i] & 1023
        i += 1
        if code == value == 0:
            order = np.argsort(np.array(samples, np.int64), kind="stable").tolist()
            found = np.array(samples, np.int64)[order]
            return Annotations(found, tuple(symbols[k] for k in order), tuple(texts[k] for k in order))
        if code == SKIP:
            if i + 2 > len(words):
                break
            step = words[i] << 16 | words[i + 1]
            time += step - (step >> 31 << 32)
            i += 2
        elif code == TEXT:
            if texts:
                texts[-1] = content[2 * i : 2 * i + value].decode("latin-1").rstrip("\0")
            i += -(-value // 2)
        elif code not in (NUMBER, SUBTYPE, CHANNEL):
            time += value
            if time < 0:
                break
            samples.append(time)
            symbols.append(SYMBOLS.get(code, "?"))
            texts.append("")
    raise UnmaskError(f"{name} is not an annotation file in the MIT format, or it is cut short.")


def write(path: Path, signal: Signal, beats: Annotations | None = None, *, gain: float = 1000.0) -> None:
    """Write a record: the header `path` (.hea), samples in format 16 beside it (.dat), and maybe annotations (.atr).

    path  its name has no spaces: headers cannot hold them
    gain  numbers of a unit

    Raises UnmaskError for values that do not fit into 16 bits.
    """
    numbers = np.rint(np.nan_to_num(signal.samples, nan=0.0, posinf=np.inf, neginf=-np.inf) * gain)
    if np.abs(numbers).max(initial=0) >= 2**15:
        raise UnmaskError(f"{path} has values that do not fit into 16 bits with a gain of {gain:g}: make it smaller.")
    numbers[np.isnan(signal.samples)] = -(2**15)
    data = path.with_suffix(".dat").name
    lines = [f"{path.stem} {len(signal.leads)} {signal.rate:g} {len(signal.samples)}"]
    for i, (name, unit) in enumerate(zip(signal.leads, signal.units, strict=True)):
        checksum = int(numbers[:, i].sum()) & 65_535
        first = int(numbers[0, i]) if len(numbers) else 0
        lines.append(f"{data} 16 {gain:g}/{unit or 'NU'} 16 0 {first} {checksum - (checksum >> 15 << 16)} 0 {name}")
    path.with_suffix(".dat").write_bytes(numbers.astype("<i2").tobytes())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if beats is not None:
        path.with_suffix(".atr").write_bytes(_packed(beats))


def _packed(beats: Annotations) -> bytes:
    """Annotations in the MIT format."""
    codes, words, time = {symbol: code for code, symbol in SYMBOLS.items()}, list[int](), 0
    for sample, symbol, text in zip(beats.samples.tolist(), beats.symbols, beats.texts, strict=True):
        step, time = sample - time, sample
        if step > 1023:
            words += [SKIP << 10, step >> 16, step & 65_535]
            step = 0
        words.append(codes[symbol] << 10 | step)
        raw = text.encode("latin-1")
        if raw:
            words += [TEXT << 10 | len(raw), *np.frombuffer(raw + b"\0" * (len(raw) % 2), "<u2").tolist()]
    return np.array([*words, 0], "<u2").tobytes()


@contextlib.contextmanager
def _line(path: Path, number: int) -> Iterator[None]:
    """Errors of numbers in a line of a header become UnmaskError."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise UnmaskError(f"{path}:{number} cannot be understood as a line of a header: {error}.") from None


def _lead(words: list[str]) -> Lead:
    """A lead from the words of its line. Raises ValueError for one that is damaged."""
    file, form = words[0], _FORMAT.fullmatch(words[1] if len(words) > 1 else "")
    if file in ("", ".", "..", "~", "-") or "/" in file or "\\" in file:
        raise ValueError(f"{file} is not the name of a file in the same folder")
    if form is None or int(form[1]) not in FORMATS:
        known = ", ".join(map(str, FORMATS))
        raise ValueError(f"the format {words[1] if len(words) > 1 else ''} is not known; known: {known}")
    scale = _GAIN.fullmatch(words[2]) if len(words) > 2 else None
    gain, zero = float(scale[1]) if scale else GAIN, int(words[4]) if len(words) > 4 else 0
    if scale and scale[2]:
        zero = int(scale[2])
    name = " ".join(words[8:]) or file
    each, offset = int(form[2] or 1), int(form[4] or 0)
    if not 1 <= each <= MOST_EACH or not np.isfinite(gain):
        raise ValueError(f"{each} samples of a frame, or a gain of {gain:g}, is absurd")
    unit = (scale[3] if scale else None) or "mV"
    return Lead(file, int(form[1]), each, offset, gain or GAIN, zero, unit, name)
