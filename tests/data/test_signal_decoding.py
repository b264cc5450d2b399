"""Records of every format: values, rates, parts, and one sentence for each damage."""

from __future__ import annotations

import contextlib
import io
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from scipy.io import savemat

from unmask.data.signals import matlab, wfdb
from unmask.data.signals.decoding import annotations_of, decode, digest_of, header, read
from unmask.data.signals.signal import Annotations, Signal, resample, resampled
from unmask.errors import UnmaskError

REAL = Path(__file__).parents[3] / "shared" / "data" / "mitbih-sample"
BITS = {16: 16, 24: 24, 32: 32, 61: 16, 80: 8, 160: 16, 212: 12}


def packed(numbers: list[int], format: int) -> bytes:
    """The bytes of a file of samples, number by number, as signal(5) describes the formats."""
    if format == 212:
        found = bytearray()
        for i in range(0, len(numbers), 2):
            first, second = numbers[i] % 4096, (numbers[i + 1] if i + 1 < len(numbers) else 0) % 4096
            found += bytes([first % 256, first // 256 + second // 256 * 16, second % 256])
        return bytes(found)
    one = {
        16: lambda n: struct.pack("<h", n),
        24: lambda n: struct.pack("<i", n)[:3],
        32: lambda n: struct.pack("<i", n),
        61: lambda n: struct.pack(">h", n),
        80: lambda n: bytes([n + 128]),
        160: lambda n: struct.pack("<H", n + 32_768),
    }[format]
    return b"".join(map(one, numbers))


@pytest.mark.parametrize("format", BITS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_format_of_wfdb_is_unpacked(format: int, data: st.DataObject) -> None:
    half = 1 << (BITS[format] - 1)
    numbers = data.draw(st.lists(st.integers(-half, half - 1), min_size=1, max_size=9))
    assert wfdb.unpack(packed(numbers, format), format, len(numbers)).tolist() == numbers


def record(folder: Path, line: str, leads: list[str], content: bytes, name: str = "r") -> Path:
    (folder / f"{name}.hea").write_text("\n".join(["# a comment", f"{name} {line}", *leads, "# more"]) + "\n")
    (folder / f"{name}.dat").write_bytes(content)
    return folder / f"{name}.hea"


def test_gains_baselines_units_and_invalid_values(tmp_path: Path) -> None:
    leads = ["r.dat 212 100(10)/uV 11 0 0 0 0 first lead", "r.dat 212 0 11 1024"]
    place = record(tmp_path, "2 360/10 3", leads, packed([10, 1024, 110, 1224, -2048, 824], 212))
    found = read(place)
    assert (found.leads, found.units, found.rate) == (("first lead", "r.dat"), ("uV", "mV"), 360.0)
    np.testing.assert_allclose(found.samples, [[0, 0], [1, 1], [np.nan, -1]])
    assert header(place) == found.header == header(tmp_path / "r") == header(tmp_path / "r.dat")
    assert decode(place).samples[:, 0].tolist() == [0, 1, 1]  # the gap at the end holds the last value


def test_frames_of_several_samples_offsets_and_a_missing_length(tmp_path: Path) -> None:
    fast, slow = np.sin(np.arange(80) / 5), np.cos(np.arange(40) / 5)
    frames = np.stack([fast[::2], fast[1::2], slow], 1) * 1000
    content = b"header!!" + packed(np.rint(frames).astype(int).reshape(-1).tolist(), 16)
    place = record(tmp_path, "2 100", ["r.dat 16x2+8 1000", "r.dat 16+8 1000"], content)
    found = read(place)
    assert found.rate == 200
    assert len(found.samples) == 80
    np.testing.assert_allclose(found.samples[:, 0], fast, atol=1e-3)
    np.testing.assert_allclose(found.samples[10:70:2, 1], slow[5:35], atol=0.02)
    assert found.notes == ("with leads of unequal rates: all have the highest of them",)
    (tmp_path / "r.atr").write_bytes(struct.pack("<HH", 1 << 10 | 7, 0))
    assert annotations_of(place).samples.tolist() == [14]  # times are in frames


@settings(max_examples=40, deadline=None)
@given(
    arrays_of.arrays(
        np.float32, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=st.integers(-32_000, 32_000)
    ),
    st.lists(st.tuples(st.integers(0, 200_000), st.sampled_from("NVA+~"), st.text("(AFIBxyz", max_size=7)), max_size=8),
)
def test_what_is_written_is_read(numbers: np.ndarray, marks: list[tuple[int, str, str]]) -> None:
    import tempfile

    marks = sorted(marks, key=lambda mark: mark[0])
    names = tuple(f"lead {i}" for i in range(numbers.shape[1]))
    given_signal = Signal(numbers / np.float32(1000), 360.0, names, ("mV",) * len(names))
    given_marks = Annotations(
        np.array([mark[0] for mark in marks], np.int64),
        tuple(mark[1] for mark in marks),
        tuple(mark[2] for mark in marks),
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "a.hea"
        wfdb.write(place, given_signal, given_marks)
        found = read(place)
        np.testing.assert_allclose(found.samples, given_signal.samples, atol=1e-6)
        assert (found.leads, found.rate) == (names, 360.0)
        again = wfdb.annotations_in(place.with_suffix(".atr").read_bytes(), "a.atr")
        assert again.samples.tolist() == given_marks.samples.tolist()
        assert (again.symbols, again.texts) == (given_marks.symbols, given_marks.texts)


def test_annotations_of_known_bytes() -> None:
    words = [28 << 10 | 18, 63 << 10 | 2, 0x4E28, 1 << 10 | 59, 61 << 10 | 1, 59 << 10, 1, 2, 5 << 10 | 1, 0]
    found = wfdb.annotations_in(struct.pack(f"<{len(words)}H", *words), "x.atr")
    assert found.samples.tolist() == [18, 77, 77 + 65_536 + 2 + 1]
    assert (found.symbols, found.texts) == (("+", "N", "V"), ("(N", "", ""))
    assert found.only(wfdb.BEATS).symbols == ("N", "V")
    within = found.within(100)
    assert len(within) == 2
    assert within.notes == ("with annotations beyond the end, which are left out",)
    for content in (b"", b"abc", struct.pack("<H", 1 << 10 | 5), struct.pack("<H", 59 << 10)):
        with pytest.raises(UnmaskError, match=r"x\.atr is not an annotation file"):
            wfdb.annotations_in(content, "x.atr")


@pytest.mark.skipif(not REAL.is_dir(), reason="the record of MIT-BIH is not staged")
def test_a_record_of_mit_bih() -> None:
    found = read(REAL / "100.hea")
    assert found.samples.shape == (650_000, 2)
    assert found.leads == ("MLII", "V5")
    np.testing.assert_allclose(found.samples[0], [(995 - 1024) / 200, (1011 - 1024) / 200], atol=1e-6)
    sums = np.rint(found.samples * 200 + 1024).astype(np.int64).sum(0)
    assert [((one + 2**15) % 2**16) - 2**15 for one in sums.tolist()] == [-22_131, 20_052]  # checksums of the header
    assert Counter(annotations_of(REAL / "100").symbols) == {"N": 2239, "A": 33, "V": 1, "+": 1}


def edf(
    rates: list[int], names: list[str], data: list[np.ndarray], seconds: int = 2, records: int | None = None
) -> bytes:
    """A file of EDF; the numbers of a lead [N] int16 are hundredths of mV, from -327.68."""
    blocks = len(data[0]) // (rates[0] * seconds)
    count = len(rates)
    head = f"{0:<8}{'patient':<80}{'record':<80}{'01.01.24':<8}{'00.00.00':<8}{256 * (count + 1):<8}{'':<44}"
    head += f"{blocks if records is None else records:<8}{seconds:<8}{count:<4}"
    columns = [(16, names), (80, [""] * count), (8, ["mV"] * count), (8, [-327.68] * count), (8, [327.67] * count)]
    columns += [(8, [-32_768] * count), (8, [32_767] * count), (80, [""] * count)]
    columns += [(8, [rate * seconds for rate in rates]), (32, [""] * count)]
    head += "".join(f"{value:<{width}}" for width, values in columns for value in values)
    parts = [one.reshape(blocks, -1) for one in data]
    return head.encode() + np.concatenate(parts, 1).astype("<i2").tobytes()


def test_edf_with_unequal_rates_and_annotations() -> None:
    fast = np.rint(1000 * np.sin(np.arange(400) / 9)).astype(np.int16)
    slow = np.rint(1000 * np.cos(np.arange(200) / 9)).astype(np.int16)
    found = read(edf([100, 50, 10], ["II", "resp", "EDF Annotations"], [fast, slow, np.zeros(40, np.int16)]))
    assert (found.leads, found.units, found.rate) == (("II", "resp"), ("mV", "mV"), 100.0)
    np.testing.assert_allclose(found.samples[:, 0], fast / 100, atol=1e-4)
    np.testing.assert_allclose(found.samples[20:380:2, 1], slow[10:190] / 100, atol=0.05)
    assert len(found.notes) == 1
    assert len(read(edf([100], ["II"], [fast], records=-1)).samples) == 400  # an unknown number of blocks


WAVE = np.rint(np.random.default_rng(0).normal(0, 100, (50, 2)))


def saved(**values: object) -> bytes:
    file = io.BytesIO()
    savemat(file, values)
    return file.getvalue()


def numpy_file(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def zipped(**values: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **values)  # type: ignore[arg-type]
    return file.getvalue()


def old_matlab() -> bytes:
    file = io.BytesIO()
    savemat(file, {"val": WAVE.T.astype(np.int16)}, format="4")
    return file.getvalue()


def parquet() -> bytes:
    arrow, written = pytest.importorskip("pyarrow"), io.BytesIO()
    import pyarrow.parquet

    columns = {"time": np.arange(50) / 125, "I": WAVE[:, 0], "II": WAVE[:, 1]}
    pyarrow.parquet.write_table(arrow.table(columns), written)
    return written.getvalue()


def text(mark: str, above: str = "", time: float = 0.0) -> bytes:
    lines = [above] if above else []
    for i, row in enumerate(WAVE.tolist()):
        times = [f"{i / time:.3f}"] if time else []
        lines.append(mark.join([*times, *(f"{one:g}" for one in row)]))
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize(
    ("content", "rate", "leads"),
    [
        (saved(val=WAVE.T, Fs=125), 125, ("lead 1", "lead 2")),
        (old_matlab(), None, ("lead 1", "lead 2")),
        (numpy_file(WAVE), None, ("lead 1", "lead 2")),
        (zipped(signal=WAVE, fs=np.array(125)), 125, ("lead 1", "lead 2")),
        (parquet, 125, ("I", "II")),
        (text(","), None, ("lead 1", "lead 2")),
        (text(" "), None, ("lead 1", "lead 2")),
        (text("\t", "I\tII"), None, ("I", "II")),
        (text(";", "t;I;II\ns;mV;mV", 125), 125, ("I", "II")),
        (text(",", "'Elapsed time','I','II'\n'seconds','mV','mV'", 125), 125, ("I", "II")),
    ],
)
def test_arrays_and_tables(content: object, rate: float | None, leads: tuple[str, ...]) -> None:
    raw = content() if callable(content) else content
    assert isinstance(raw, bytes)
    found = read(raw, own_rate=200)
    assert (found.rate, found.leads) == (rate or 200, leads)
    np.testing.assert_array_equal(found.samples, WAVE)
    if rate is None:
        with pytest.raises(UnmaskError, match="does not say its samples a second"):
            read(raw)


SHAPES = st.tuples(st.integers(1, 30), st.integers(1, 3))
TYPES = ["f8", "f4", "i4", "i2", "u2", "u1"]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["val", "fs", "ecg_data", "x1"]),
        arrays_of.arrays(st.sampled_from(TYPES), SHAPES, elements=st.integers(0, 200)),
        max_size=4,
    ),
    st.sampled_from([{"format": "4"}, {}, {"do_compression": True}]),
)
def test_matlab_files_of_scipy(values: dict[str, np.ndarray], options: dict[str, object]) -> None:
    file = io.BytesIO()
    others = {"text": "abc", "cells": np.array([1, "a"], object), "deep": {"val": np.ones(3)}}
    savemat(file, {**values, **({} if "format" in options else others)}, **options)  # type: ignore[arg-type]
    content = file.getvalue()
    found = matlab.arrays_in(content) if content else {}
    assert found.keys() == values.keys()
    for name, array in values.items():
        np.testing.assert_array_equal(found[name], array)


def test_matlab_files_of_big_endian_machines() -> None:
    numbers = np.arange(6.0).reshape(2, 3)
    old = struct.pack(">5i", 1000, 2, 3, 0, 4) + b"val\0" + numbers.T.astype(">f8").tobytes()
    np.testing.assert_array_equal(matlab.arrays_in(old)["val"], numbers)
    parts = [(6, struct.pack(">II", 6, 0)), (5, struct.pack(">ii", 2, 3)), (1, b"signal\0\0")]
    parts.append((9, numbers.T.astype(">f8").tobytes()))
    body = b"".join(struct.pack(">II", kind, len(data)) + data for kind, data in parts)
    new = b"MATLAB 5.0".ljust(124) + b"\1\0MI" + struct.pack(">II", 14, len(body)) + body
    np.testing.assert_array_equal(matlab.arrays_in(new)["signal"], numbers)


def compressed() -> bytes:
    file = io.BytesIO()
    savemat(file, {"val": WAVE}, do_compression=True)
    return file.getvalue()


SOUND = [
    *(saved(val=WAVE), old_matlab(), compressed(), numpy_file(WAVE), zipped(signal=WAVE), text(",", "t,I,II", 125)),
    edf([100], ["II"], [np.zeros(400, np.int16)]),
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SOUND), st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), min_size=1, max_size=5))
def test_any_damage_is_read_or_refused(content: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(content)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    with contextlib.suppress(UnmaskError):
        assert read(bytes(damaged), own_rate=100).samples.ndim == 2


def test_empty_cells_are_gaps() -> None:
    found = read(b"a,b\n1,2\n,3\n3,nan\n", own_rate=10)
    np.testing.assert_array_equal(found.samples, np.array([[1, 2], [np.nan, 3], [3, np.nan]], np.float32))
    np.testing.assert_array_equal(found.filled("x").samples, np.array([[1, 2], [2, 3], [3, 3]], np.float32))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The record is empty"),
        (b"\0\1\2\3" * 9, "not a record in a known format"),
        (b"1,2\n3\n", "row 2 has 1 values"),
        (b"a,b\nc,d\ne,f\n", "has values that are no numbers"),
        (b"a,a\n1,2\n", "two columns with one name"),
        (b"time,a\n0,1\n1,1\n5,1\n", "not evenly spaced"),
        (b"a,b\n", "no rows of numbers"),
        (numpy_file(np.array([{}], object)), "cannot be decoded"),
        (numpy_file(np.zeros((2, 3, 4))), "no array of numbers"),
        (saved(text="abc"), "no array of numbers"),
        (saved(val=WAVE)[:200], "cannot be decoded"),
        (b"PK\3\4 broken", "cannot be decoded"),
        (b"PAR1 broken", "cannot be decoded"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (edf([100], ["II"], [np.zeros(400, np.int16)])[:-9], "is cut short"),
        (edf([100], ["II"], [np.zeros(400, np.int16)])[:300], "damaged EDF header"),
        (edf([100], ["EDF Annotations"], [np.zeros(400, np.int16)]), "only annotations"),
    ],
)
def test_damaged_files_are_one_sentence(content: bytes, message: str) -> None:
    with pytest.raises(UnmaskError, match=message):
        read(content, own_rate=100)


@pytest.mark.parametrize(
    ("line", "lead", "message"),
    [
        ("2 360 4", "r.dat 16 200", "promises 2 leads, but describes 1"),
        ("1 360 4", "r.dat 999 200", "format 999 is not known"),
        ("1 360 4", "../r.dat 16 200", "not the name of a file in the same folder"),
        ("1 fast 4", "r.dat 16 200", "cannot be understood"),
        ("1 360 5", "r.dat 16 200", "promises 5 samples, it has 4"),
        ("1 -1 4", "r.dat 16 200", "is absurd"),
        ("1 360 99999999999", "r.dat 16 200", "is absurd"),
        ("1 360 4", "gone.dat 16 200", "gone.dat cannot be read"),
        ("1 360 0", "r.dat 16+8 200", "has no samples"),
    ],
)
def test_damaged_headers_are_one_sentence(tmp_path: Path, line: str, lead: str, message: str) -> None:
    place = record(tmp_path, line, [lead], packed([1, 2, 3, 4], 16))
    with pytest.raises(UnmaskError, match=message):
        read(place)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    place = record(tmp_path, "1 360 4", ["r.dat 16 200 0 0 0 0 0 II"], packed([1, 2, 3, 4], 16))
    with pytest.raises(UnmaskError, match=r"lacks the lead V6; it has II\."):
        decode(place, leads=["ii", "V6"])
    with pytest.raises(UnmaskError, match=r"has no annotations: .* \.atr"):
        annotations_of(place)
    with pytest.raises(UnmaskError, match="There is no file"):
        read(tmp_path / "gone.mat")
    (tmp_path / "lone.dat").write_bytes(b"1234")
    with pytest.raises(UnmaskError, match=r"no header beside it: give lone\.hea"):
        read(tmp_path / "lone.dat")
    with pytest.raises(UnmaskError, match="no samples from 1 s to its end"):
        decode(place, begin=1)
    with pytest.raises(UnmaskError, match="no numbers in 75% of the lead lead 1"):
        decode(np_signal([1, np.nan, np.inf, np.nan]))
    (tmp_path / "s.hea").write_text("s/2 1 360 4\n")
    with pytest.raises(UnmaskError, match="in several segments"):
        read(tmp_path / "s.hea")


def np_signal(values: object, rate: float = 100.0) -> Signal:
    samples = np.array(values, np.float32)
    return Signal(samples.reshape(len(samples), -1), rate, ("lead 1",), ("mV",))


@pytest.mark.parametrize(("rate", "new"), [(360, 300), (300, 360), (250, 300), (128, 300), (1000, 300), (257.5, 300)])
def test_resampling_keeps_a_slow_wave(rate: float, new: float) -> None:
    time = np.arange(round(6 * rate)) / rate
    wave = 2 + time[:, None] + np.sin(2 * np.pi * 3 * time[:, None])  # on a baseline that drifts
    found = resample(wave.astype(np.float32), rate, new)
    assert len(found) == resampled(len(wave), rate, new)
    at = np.arange(len(found)) / new
    inner = (at > 0.3) & (at < 5.7)
    np.testing.assert_allclose(found[inner, 0], (2 + at + np.sin(2 * np.pi * 3 * at))[inner], atol=0.01)
    assert np.abs(found[:, 0] - (2 + at + np.sin(2 * np.pi * 3 * at))).max() < 0.35  # no jump at the ends


@given(st.integers(0, 80), st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_a_part_has_the_samples_of_the_whole(begin: int, count: int) -> None:
    signal = np_signal(np.random.default_rng(1).normal(size=130))
    whole, part = decode(signal, 60), decode(signal, 60, begin / 100, (begin + count) / 100 + 0.1)
    first, last = round(begin * 0.6), round((begin + count + 10) * 0.6)
    np.testing.assert_array_equal(part.samples, whole.samples[first:last])


def test_the_digest_is_that_of_the_samples(tmp_path: Path) -> None:
    lead = "200 0 0 0 0 0 II"
    one = record(tmp_path, "1 360 4", [f"a.dat 16 {lead}"], packed([1, 2, 3, 4], 16), "a")
    two = record(tmp_path, "1 360 4", [f"b.dat 16 {lead}", "# renamed"], packed([1, 2, 3, 4], 16), "b")
    other = record(tmp_path, "1 360 4", [f"c.dat 16 {lead}"], packed([1, 2, 3, 5], 16), "c")
    assert digest_of(one) == digest_of(two) == digest_of(str(tmp_path / "a")) != digest_of(other)
    assert digest_of(np_signal([1, 2])) == digest_of(np_signal([1, 2])) != digest_of(np_signal([2, 1]))
