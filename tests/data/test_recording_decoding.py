"""Decoding of recordings: every format, rate and width, parts of a file, and files that are damaged or absurd."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io.wavfile
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.recordings import decoding
from unmask.data.recordings.decoding import blocks, bounds, decode, digest_of, header, opened, resample
from unmask.errors import Missing, UnmaskError

soundfile = pytest.importorskip("soundfile")

CODINGS = [
    ("WAV", "PCM_U8", 2**-7),
    ("WAV", "PCM_16", 2**-15),
    ("WAV", "PCM_24", 2**-23),
    ("WAV", "PCM_32", 2**-23),
    ("WAV", "FLOAT", 0.0),
    ("WAV", "DOUBLE", 0.0),
    ("WAV", "ULAW", 0.02),
    ("WAV", "ALAW", 0.02),
    ("FLAC", "PCM_16", 2**-15),
    ("FLAC", "PCM_24", 2**-23),
    ("AIFF", "PCM_16", 2**-15),
    ("AU", "PCM_16", 2**-15),
    ("CAF", "PCM_16", 2**-15),
    ("NIST", "PCM_16", 2**-15),
    ("W64", "PCM_16", 2**-15),
]
LOSSY = [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]


def tone(count: int, rate: int, seed: int = 0) -> np.ndarray:
    """A few tones with noise, [N] float32 within -0.8 and 0.8."""
    rng, time = np.random.default_rng(seed), np.arange(count) / rate
    found = sum(np.sin(2 * np.pi * f * time + p) for f, p in rng.uniform((50, 0), (rate / 5, 6), (4, 2)))
    return (0.15 * found + 0.02 * rng.standard_normal(count)).clip(-0.8, 0.8).astype(np.float32)


def written(samples: np.ndarray, rate: int, format: str = "WAV", subtype: str = "PCM_16") -> bytes:
    """A file of samples [N] or [N, C]."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=format, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize(("format", "subtype", "tolerance"), CODINGS)
def test_every_coding_gives_the_samples_that_were_written(format, subtype, tolerance):
    samples = tone(4_000, 16_000)
    content = written(samples, 16_000, format, subtype)
    found = decode(content, 16_000)
    assert found.dtype == np.float32
    assert len(found) == 4_000
    assert np.abs(found - samples).max() <= tolerance
    seen = header(content)
    assert (seen.rate, seen.samples, seen.channels, seen.seconds) == (16_000, 4_000, 1, 0.25)
    assert subtype in seen.coding


def test_samples_of_16_bits_are_those_of_scipy(tmp_path):
    samples = np.random.default_rng(0).integers(-(2**15), 2**15, 999).astype(np.int16)
    scipy.io.wavfile.write(tmp_path / "a.wav", 8_000, samples)
    assert np.array_equal(decode(tmp_path / "a.wav", 8_000) * 2**15, samples)


@pytest.mark.parametrize(("format", "subtype"), LOSSY)
def test_lossy_codings_keep_length_and_sound(format, subtype):
    samples = scipy.signal.lfilter(*scipy.signal.butter(4, 0.3), tone(48_000, 48_000)).astype(np.float32)
    found = decode(written(samples, 48_000, format, subtype), 48_000)
    assert len(found) == len(samples)
    assert np.corrcoef(found, samples)[0, 1] > 0.98


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 96_000])
def test_resampling_is_that_of_scipy(rate):
    samples = tone(30_000, 44_100)
    found = decode(written(samples, 44_100, "WAV", "FLOAT"), rate)
    assert np.array_equal(found, scipy.signal.resample_poly(samples, rate, 44_100))
    assert len(found) == header(written(samples, 44_100)).samples_at(rate)


def test_channels_are_averaged():
    samples = np.stack([tone(500, 8_000, seed) for seed in range(3)], 1)
    found = decode(written(samples, 8_000, "WAV", "FLOAT"), 8_000)
    assert np.allclose(found, samples.mean(1), atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(
    native=st.sampled_from([8_000, 11_025, 16_000, 44_100, 48_000, 96_000]),
    rate=st.sampled_from([8_000, 16_000, 22_050]),
    count=st.integers(1, 20_000),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_part_has_the_samples_of_the_whole(native, rate, count, ends):
    content = written(tone(count, native), native, "FLAC")
    whole, (begin, end) = decode(content, rate), (share * count / native for share in sorted(ends))
    first, last = round(begin * rate), min(round(end * rate), len(whole))
    if first >= last:
        with pytest.raises(UnmaskError, match="The recording has no samples from"):
            decode(content, rate, begin, end)
    else:
        assert np.array_equal(decode(content, rate, begin, end), whole[first:last])
    assert np.array_equal(np.concatenate(list(blocks(content, rate, 0.1))), whole)


@pytest.mark.parametrize(("format", "subtype"), LOSSY)
def test_a_part_of_a_lossy_file_has_the_samples_of_the_whole(format, subtype):
    """Decoders of such files need a lead after a jump; without it, the first samples are wrong."""
    content = written(tone(200_000, 16_000), 16_000, format, subtype)
    for rate in (16_000, 8_000):
        whole = decode(content, rate)
        assert np.abs(np.concatenate(list(blocks(content, rate, 0.7))) - whole).max() < 1e-6
        for begin in (0.5, 1.25, 7.0, 12.0):
            part = decode(content, rate, begin, begin + 0.3)
            assert np.abs(part - whole[round(begin * rate) : round((begin + 0.3) * rate)]).max() < 1e-6


def test_what_is_louder_than_full_scale_is_clipped_and_counted():
    loud = (1.5 * np.sin(2 * np.pi * 100 * np.arange(8_000) / 8_000)).astype(np.float32)
    content = written(loud, 8_000, "WAV", "FLOAT")
    assert np.abs(decode(content, 8_000)).max() == 1
    with opened(content, "") as file:
        file.mono(0, 8_000)
        assert file.clipped == (np.abs(loud) > 1).sum()
    flat = np.full(50, 0.9999, np.float32)
    with opened(written(flat, 8_000), "") as file:
        file.mono(0, 50)
        assert file.clipped == 49
    with opened(written(loud / 2, 8_000, "WAV", "FLOAT"), "") as file:
        file.mono(0, 8_000)
        assert file.clipped == 0


def test_hashes_tell_contents_and_parts_apart(tmp_path):
    one, two = written(tone(50, 8_000), 8_000), written(tone(50, 8_000, 1), 8_000)
    (tmp_path / "a.wav").write_bytes(one)
    assert digest_of(one) == digest_of(tmp_path / "a.wav") != digest_of(two)
    found = {digest_of(one), digest_of(one, 0.001), digest_of(one, 0.001, 0.002), digest_of(one, 0, 0.002)}
    assert len(found) == 4


# ------------------------------------------------------------------------------------------------ damage


def altered(content: bytes, place: int, format: str, value: int) -> bytes:
    """A file with a number in its header replaced."""
    size = struct.calcsize(format)
    return content[:place] + struct.pack(format, value) + content[place + size :]


WAV = written(tone(400, 8_000), 8_000)
FLAC = written(tone(40_000, 8_000), 8_000, "FLAC")
# The 36 bits of the number of samples, in the block STREAMINFO, are 0: unknown.
STREAM = FLAC[:21] + bytes([FLAC[21] & 0xF0]) + bytes(4) + FLAC[26:]
BROKEN = {
    "stream": (STREAM, "has no length in its header: convert it"),
    "empty": (b"", "cannot be decoded: it is empty"),
    "text": (b"no recording at all", "cannot be decoded: it is not a recording in a known format"),
    "header alone": (WAV[:44], "has no samples: it is cut short, or nothing was recorded"),
    "no samples": (written(np.zeros(0, np.float32), 8_000), "has no samples"),
    "half a header": (WAV[:30], "cannot be decoded"),
    "half a FLAC": (FLAC[: len(FLAC) // 2], r"(cannot be decoded: flac decoder lost sync|is cut short)"),
    "no rate": (altered(WAV, 24, "<I", 0), r"(has 0 samples a second|cannot be decoded)"),
    "absurd rate": (altered(WAV, 24, "<I", 4_000_000), "has 4,000,000 samples a second, but the rate must be 1,000 to"),
    "slow": (altered(WAV, 24, "<I", 7), "has 7 samples a second"),
    "no channels": (altered(WAV, 22, "<H", 0), r"(has 0 channels|cannot be decoded)"),
    "channels": (written(np.zeros((4, 65), np.float32), 8_000), "has 65 channels, but the limit is 64"),
    "NaN": (written(np.array([0, np.nan, 0.1]), 8_000, "WAV", "FLOAT"), "samples that are no numbers"),
    "infinite": (written(np.array([0, np.inf, 0.1]), 8_000, "WAV", "DOUBLE"), "samples that are no numbers"),
    "scale": (written(np.array([0, 32_000.0]), 8_000, "WAV", "FLOAT"), "samples up to 32,000, but decimal numbers"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_damage_is_said_in_one_sentence_with_the_name(name, tmp_path):
    content, message = BROKEN[name]
    path = tmp_path / "a b.wav"
    path.write_bytes(content)
    for source, called in ((path, str(path)), (content, "table.parquet:7")):
        with pytest.raises(UnmaskError, match=message) as found:
            decode(source, 16_000, name="" if source is path else called)
        said = str(found.value)
        assert said.startswith(called)
        assert said.endswith(".")
        assert "BytesIO" not in said


def test_files_that_are_not_there_or_not_readable(tmp_path, monkeypatch):
    with pytest.raises(UnmaskError, match=r"There is no recording .*none\.wav\."):
        decode(tmp_path / "none.wav", 8_000)
    with pytest.raises(UnmaskError, match=r"cannot be read: Is a directory\."):
        header(tmp_path)
    with pytest.raises(UnmaskError, match=r"cannot be read: No such file"):
        digest_of(tmp_path / "none.wav")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(Missing, match=r"Recordings need soundfile: run pip install 'unmask\[audio\]'\."):
        decode(b"RIFF", 8_000)


def test_small_files_with_many_samples_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    content = written(np.zeros(2_000_000, np.int16), 8_000, "FLAC")
    assert len(content) < 10_000
    monkeypatch.setattr(decoding, "MOST_SAMPLES", 1_000_000)
    with pytest.raises(UnmaskError, match="has 4,000,000 samples, but the limit is 1,000,000: give begin and end"):
        decode(content, 16_000)
    assert len(decode(content, 16_000, 10, 20)) == 160_000
    monkeypatch.setattr(decoding, "LONGEST", 100)
    with pytest.raises(UnmaskError, match="but the limit is 0: cut it into pieces"):
        header(content)


def test_integers_and_seconds():
    seen = header(WAV)
    assert np.array_equal(resample(np.array([2**14, -(2**15)], np.int16), 8_000, 8_000), [0.5, -1])
    assert bounds(seen, 16_000, 0.01, None, "a") == (160, 800)
    for begin, end in ((-1, None), (0.05, None), (0.02, 0.02), (0.03, 0.01)):
        with pytest.raises(UnmaskError, match=r"a has no samples from .* it has 0\.050 s\."):
            bounds(seen, 16_000, begin, end, "a")


DIGITS = Path(__file__).resolve().parents[3] / "shared" / "data" / "fsdd" / "recordings.tar.gz"


@pytest.mark.skipif(not DIGITS.is_file(), reason="the spoken digits are not in ../shared/data/fsdd")
def test_spoken_digits_are_those_of_scipy(tmp_path):
    import tarfile

    with tarfile.open(DIGITS) as file:
        for member in [one for one in file if one.name.endswith(".wav")][::300]:
            content = file.extractfile(member).read()
            rate, samples = scipy.io.wavfile.read(io.BytesIO(content))
            assert np.array_equal(decode(content, rate) * 2**15, samples)


def test_a_missing_package_is_not_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unmask.data.recordings import building, items
    from unmask.data.recordings.folder import RecordingFolder

    for name in "ab":
        (tmp_path / f"{name}.wav").write_bytes(b"RIFF")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UnmaskError, match=r"^Recordings need soundfile: run pip install 'unmask\[audio\]'\.$"):
        RecordingFolder(tmp_path)
    with pytest.raises(UnmaskError, match=r"^Recordings need soundfile: run pip install 'unmask\[audio\]'\.$"):
        building.build(items.items_of(tmp_path), tmp_path / "out")
