"""Corpora of recordings: the same as their folder, in any form of data; long, damaged, silent and repeated ones."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.cli import main
from unmask.data.files.building import decoded
from unmask.data.files.damage import Failures
from unmask.data.files.timed import cut
from unmask.data.recordings.activity import PART
from unmask.data.recordings.building import Decode, build, stretches
from unmask.data.recordings.corpus import RecordingCorpus
from unmask.data.recordings.decoding import decode, digest_of
from unmask.data.recordings.folder import LONGEST, RecordingFolder, Recordings
from unmask.data.recordings.inspect import check, render
from unmask.data.recordings.items import RecordingItem, holds_recordings, items_of
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError

soundfile = pytest.importorskip("soundfile")


def sound(seconds: float, rate: int = 8_000, seed: int = 0) -> np.ndarray:
    """Noise that is louder and quieter by turns, [N] float32."""
    rng, time = np.random.default_rng(seed), np.arange(round(seconds * rate)) / rate
    return (0.1 * rng.standard_normal(len(time)) * np.sin(2 * time + seed) ** 2).astype(np.float32)


def write(path: Path, samples: np.ndarray, rate: int = 8_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 recordings of several lengths, rates and formats in two classes, one of which is not ASCII."""
    folder = tmp_path_factory.mktemp("data") / "recordings"
    for i in range(60):
        rate = (8_000, 8_000, 16_000)[i % 3]
        samples = sound(0.2 + 0.05 * (i % 7), rate, i)
        write(folder / ("deutsch", "fr ä")[i % 2] / f"{i}.{('wav', 'flac')[i % 2]}", samples, rate)
    RecordingProcessor(rate=8_000, hop=40, window=60).save(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Path:
    out = folder.parent / "corpus"
    build(items_of(folder), out, shard_bytes=40_000)
    assert len(RecordingCorpus(out).shards) > 3
    return out


# ------------------------------------------------------------------------------------------------ a corpus = its folder


def test_a_corpus_has_the_samples_splits_labels_and_processor_of_its_folder(folder, corpus):
    one, two = RecordingFolder(folder), RecordingCorpus(corpus)
    assert one.processor == two.processor == RecordingProcessor(rate=8_000, hop=40, window=60)
    for name in ("train", "heldout"):
        files, stored = one.split(name), two.split(name)
        assert files.rate == stored.rate == 8_000
        assert np.array_equal(files.cost, stored.cost)
        assert files.labels == stored.labels
        assert {"deutsch", "fr ä"} >= set(stored.labels)
        for unit, path in enumerate(files.sources):
            expected = decode(path, 8_000)
            assert len(expected) == stored.cost[unit]
            assert np.array_equal(files.read(unit), expected)
            assert np.abs(stored.read(unit) - expected).max() <= 2**-16
    assert len(one.split("train").cost) + len(one.split("heldout").cost) == 60
    assert two.manifest["classes"] == {"deutsch": 30, "fr ä": 30}


@pytest.mark.parametrize("rate", [6_000, 16_000])
def test_another_rate_is_resampled_and_the_costs_are_exact(folder, corpus, rate):
    for data in (RecordingFolder(folder), RecordingCorpus(corpus)):
        split = data.split("train").at_rate(rate)
        assert [len(split.read(unit)) for unit in range(20)] == split.cost[:20].tolist()
        assert split.read(0).dtype == np.float32


def test_sources_survive_pickling(corpus, folder):
    for data in (RecordingFolder(folder), RecordingCorpus(corpus)):
        split = data.split("train")
        again = pickle.loads(pickle.dumps(split))  # noqa: S301
        assert np.array_equal(again.read(5), split.read(5))
    stored = RecordingCorpus(corpus)[7]
    assert len(pickle.dumps(stored)) < 500
    assert np.array_equal(pickle.loads(pickle.dumps(stored)).samples(8_000), stored.samples(8_000))  # noqa: S301


def test_parts_by_label_are_all_units(corpus):
    split = RecordingCorpus(corpus).split("train")
    parts = split.by_label()
    assert [set(part.labels) for part in parts] == [{"deutsch"}, {"fr ä"}]
    assert sum(int(part.cost.sum()) for part in parts) == split.cost.sum()
    units = [unit for unit, label in enumerate(split.labels) if label == "fr ä"]
    assert np.array_equal(parts[1].read(3), split.read(units[3]))


def test_processes_tables_manifests_and_bytes_give_the_same_corpus(folder, corpus, tmp_path):
    opened = RecordingCorpus(corpus)
    again = build(items_of(folder), tmp_path / "processes", workers=2, shard_bytes=40_000)
    assert again.checksum == opened.checksum
    paths = sorted(path for path in folder.rglob("*.*") if path.suffix in (".wav", ".flac"))
    digests = [stored.digest for stored in opened]
    assert digests == [digest_of(path) for path in paths]
    names = [str(path.relative_to(folder)) for path in paths]
    (folder / "t.csv").write_text("".join(["audio,text,language\n", *(f"{n},hm,{Path(n).parent}\n" for n in names)]))
    (folder / "t.scp").write_text("".join(f"key{i} {name}\n" for i, name in enumerate(names)))
    (folder / "t.tsv").write_text(f"{folder}\n" + "".join(f"{name}\t99\n" for name in names))
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    cells = [{"bytes": path.read_bytes(), "path": None} for path in paths]
    parquet.write_table(arrow.table({"audio": cells, "sentence": names}), folder / "t.parquet")
    for form in ("t.csv", "t.scp", "t.tsv", "t.parquet"):
        assert holds_recordings(folder / form), form
        built = build(items_of(folder / form), tmp_path / form, rate=8_000)
        assert [stored.digest for stored in built] == digests
        assert built.labelled == (form == "t.csv")
        (folder / form).unlink()
    assert built.name(0) == "t.parquet:1"
    (folder / "text.csv").write_text("text,speech\nfour score,a speech\n")
    (folder / "pipe.scp").write_text("key sox a.wav |\n")
    assert not holds_recordings(folder / "text.csv")
    with pytest.raises(UnmaskError, match=r"pipe\.scp:1: give a name and the path of a file; commands in a manifest"):
        list(items_of(folder / "pipe.scp"))
    (folder / "text.csv").unlink()
    (folder / "pipe.scp").unlink()


@pytest.mark.parametrize("line", ["a text/with a slash", "/long" * 9_000, "/tmp\0/x", "", "path\t/tmp"])
def test_texts_are_no_manifests(line, tmp_path):
    for name in ("a.txt", "a.tsv"):
        (tmp_path / name).write_text(f"{line}\nmore\n")
        assert not holds_recordings(tmp_path / name)


def test_rows_with_begin_and_end_are_parts(tmp_path):
    samples = sound(3)
    write(tmp_path / "a.wav", samples)
    rows = "path\tstart\tend\tlabel\na.wav\t0.5\t1.25\tx\na.wav\t1\t2\ty\na.wav\t2\t\tx\n"
    (tmp_path / "t.tsv").write_text(rows)
    built = build(items_of(tmp_path / "t.tsv"), tmp_path / "out", rate=8_000)
    whole = decode(tmp_path / "a.wav", 8_000)
    for stored, (begin, end) in zip(built, [(0.5, 1.25), (1, 2), (2, 3)], strict=True):
        assert stored.begin == begin
        assert np.abs(stored.samples(8_000) - whole[round(begin * 8_000) : round(end * 8_000)]).max() <= 2**-16
        assert stored.digest == digest_of(tmp_path / "a.wav", begin, end if end < 3 else None)
    assert "1 pair of parts of a file overlap (a.wav: 0.5 to 1.25 s and 1 to 2 s)." in built.summary()
    for cells, message in (("2\t1", "begins at 2 s cannot end at 1 s"), ("x\t", "must be seconds, not 'x'")):
        (tmp_path / "t.tsv").write_text(f"path\tbegin\tend\na.wav\t{cells}\n")
        with pytest.raises(UnmaskError, match=rf"t\.tsv:2: .*{message}"):
            list(items_of(tmp_path / "t.tsv"))
    (tmp_path / "t.tsv").write_text("path\tbegin\tend\na.wav\t5\t6\n")
    with pytest.raises(UnmaskError, match=r"t\.tsv:2 has no samples from 5 s to 6 s: it has 3\.000 s"):
        build(items_of(tmp_path / "t.tsv"), tmp_path / "none", rate=8_000)


# ------------------------------------------------------------------------------------------------ long recordings


@settings(max_examples=15, deadline=None)
@given(seconds=st.floats(0.1, 60), longest=st.floats(1, 4), rate=st.sampled_from([1_000, 1_500]), data=st.data())
def test_units_of_a_long_recording_cover_it_whatever_the_stretches(seconds, longest, rate, data, tmp_path_factory):
    """In stretches of any length, units follow each other, none is too long, and they have the samples of the file."""
    from unmask.data.recordings import building

    path = write(tmp_path_factory.mktemp("long") / "a.wav", sound(seconds, 2_000), 2_000)
    expected, before = decode(path, rate), building.STRETCH
    building.STRETCH = data.draw(st.floats(3, 30))
    try:
        works = list(stretches([RecordingItem(path, "a.wav", "a")], longest))
    finally:
        building.STRETCH = before
    units = Decode(rate, longest)(works).units
    origin = 0
    for unit in units:
        begin, length = unit.shape
        assert begin == origin
        assert length <= longest * rate
        assert np.abs(unit.values / 2**15 - expected[begin : begin + length]).max() <= 2**-16
        origin += length
    assert origin == len(expected)
    assert len({unit.digest for unit in units}) == len(units)
    if len(units) > 1:
        assert min(unit.shape[1] for unit in units) >= int(int(longest * rate) * PART) - 2


def test_a_long_recording_is_read_a_stretch_at_a_time(tmp_path, monkeypatch):
    from unmask.data.recordings import decoding

    path = write(tmp_path / "in" / "a.wav", sound(900, 1_000), 1_000)
    asked, mono = [], decoding.OpenRecording.mono
    monkeypatch.setattr(decoding.OpenRecording, "mono", lambda self, a, b: asked.append(b - a) or mono(self, a, b))
    write(tmp_path / "in" / "b.wav", sound(1, 1_000), 1_000)
    built = build(items_of(tmp_path / "in"), tmp_path / "out", rate=1_000)
    assert max(asked) <= 1_000 * (130 + 2 * LONGEST * PART)
    assert path.stat().st_size > 10 * max(asked)
    assert "Corpus" in built.summary()
    assert f"2 recordings in {len(built)} units" in built.summary()
    assert {built.name(i) for i in range(len(built))} == {"a.wav", "b.wav"}


def test_units_of_one_file_are_in_one_split(tmp_path):
    for i in range(40):
        write(tmp_path / "in" / f"{i}.wav", sound(5, 1_000, i), 1_000)
    data = RecordingFolder(tmp_path / "in"), build(items_of(tmp_path / "in"), tmp_path / "out", rate=1_000, longest=2)
    names = []
    for name in ("train", "heldout"):
        numbers = data[1].units(name)
        names.append({data[1].name(number) for number in numbers.tolist()})
        assert names[-1] == {path.name for path in data[0].split(name).sources}
    assert not names[0] & names[1]


@given(seconds=st.floats(0.01, 1e5), longest=st.floats(1, 100))
def test_cuts_of_a_folder_are_equal_and_cover_a_recording(seconds, longest):
    spans = cut(seconds, longest)
    assert spans[0, 0] == 0
    assert np.isinf(spans[-1, 1])
    assert np.array_equal(spans[1:, 0], spans[:-1, 1])
    lengths = np.minimum(spans[:, 1], seconds) - spans[:, 0]
    assert lengths.max() <= longest * (1 + 1e-9)
    assert len(spans) == max(1, np.ceil(seconds / longest))


@pytest.mark.parametrize("rate", [1_000, 1_501, 7_350])
def test_a_folder_cuts_a_long_recording(rate, tmp_path):
    samples = sound(70.123, 1_000)
    for name in "ab":
        write(tmp_path / f"{name}.wav", samples, 1_000)
    split = RecordingFolder(tmp_path).split("train").at_rate(rate)
    parts = [split.read(unit) for unit in range(3)]
    assert [len(part) for part in parts] == split.cost.tolist()
    assert np.array_equal(np.concatenate(parts), decode(tmp_path / "a.wav", rate))


# ------------------------------------------------------------------------------------------------ what is said


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    """Good recordings, and one that is clipped, silent, stereo, empty, a text, NaN or a copy."""
    folder = tmp_path / "in"
    for i in range(30):
        write(folder / "good" / f"{i}.wav", sound(0.5, seed=i))
    write(folder / "odd" / "clipped.wav", np.clip(30 * sound(0.5), -1, 1))
    write(folder / "odd" / "silent.wav", np.zeros(4_000, np.float32))
    write(folder / "odd" / "stereo.wav", np.stack([sound(0.5), sound(0.5, seed=90)], 1), 16_000)
    soundfile.write(folder / "odd" / "nan.wav", np.full(99, np.nan), 8_000, subtype="FLOAT")
    (folder / "odd" / "text.wav").write_text("no recording")
    (folder / "odd" / "zero.wav").write_bytes(b"")
    shutil.copy(folder / "good" / "3.wav", folder / "odd" / "copy.wav")
    (folder / "notes.txt").write_text("notes")
    return folder


def test_a_build_counts_and_names_what_is_odd(odd_folder, tmp_path):
    built = build(items_of(odd_folder), tmp_path / "out", rate=8_000)
    assert len(built) == 34
    assert built.manifest["damaged"]["count"] == 3
    said = built.summary()
    for sentence in (
        "3 of 37 recordings cannot be read: ",
        "nan.wav has samples that are no numbers (NaN or infinite)",
        "text.wav cannot be decoded: it is not a recording in a known format.",
        "zero.wav cannot be decoded: it is empty. Damaged recordings are left out.",
        "Skipped 1 file that is no recordings: .txt (1).",
        "1 recording is resampled to 8,000 samples a second.",
        "1 recording has several channels, whose mean is read.",
        "1 recording is clipped (odd/clipped.wav: ",
        "1 unit is silent (odd/silent.wav).",
        "1 recording is a copy of another one, 1 of them with another label (odd/copy.wav = good/3.wav).",
    ):
        assert sentence in said, sentence
    with pytest.raises(UnmaskError, match=r"3 of 37 recordings cannot be read: .* At most 1% may be damaged; remove"):
        build(items_of(odd_folder), tmp_path / "strict", rate=8_000, most_damaged=0.01)
    assert not (tmp_path / "strict").exists()


def test_a_check_finds_what_a_build_finds(odd_folder, tmp_path):
    built, report = build(items_of(odd_folder), tmp_path / "out", rate=8_000), check(items_of(odd_folder), rate=8_000)
    facts = built.manifest
    assert report.recordings == facts["recordings"] == 34
    assert report.hours == facts["hours"] == pytest.approx((33 * 0.5 + 0.25) / 3600)
    assert (report.clipped, report.silent, report.damaged, report.copies, report.conflicting) == (1, 1, 3, 1, 1)
    assert report.rates == {"8,000": 33, "16,000": 1}
    assert report.channels == {"1": 33, "2": 1}
    assert set(report.notes) < {note.removesuffix(".") for note in facts["notes"]}
    assert "clipped     1" in render(report)


def test_silence_at_the_ends_is_trimmed_and_said(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        loud = (0.2 * rng.standard_normal(8_000)).astype(np.float32)
        write(tmp_path / "in" / f"{name}.wav", np.concatenate([np.zeros(8_000), loud, np.zeros(4_000)]))
    built = build(items_of(tmp_path / "in"), tmp_path / "out", rate=8_000, trim=True)
    for stored in built:
        begin, length = stored.shard.shapes[stored.number].tolist()
        assert 8_000 - 1_100 <= begin <= 8_000
        assert 16_000 <= begin + length <= 16_000 + 1_100
    seconds = sum((20_000 - length) / 8_000 for _, length in np.concatenate([s.shapes for s in built.shards]).tolist())
    assert f"{seconds:,.1f} s of silence at the ends were left out." in built.summary()


def test_pre_training_reads_the_next_recording_for_a_damaged_one(odd_folder):
    data = RecordingFolder(odd_folder)
    left_out, rates = data.notes[1], data.notes[0]
    assert left_out.startswith("2 of 37 recordings cannot be read: ")
    assert left_out.endswith("Damaged recordings are left out.")
    assert rates == (
        "Samples a second of the recordings: 8,000 (34), 16,000 (1). Others than the model reads are resampled."
    )
    splits = [data.split(name) for name in ("train", "heldout")]
    for split in splits:
        for unit in range(len(split.cost)):
            assert np.isfinite(split.read(unit)).all()
    [later] = data.notes[2:]
    assert later.startswith("1 of 37 recordings cannot be read: ")
    assert "nan.wav" in later
    strict = Recordings([odd_folder / "odd" / "nan.wav"], np.array([[99, 8_000]]), np.array([[0, np.inf]]), 8_000)
    with pytest.raises(UnmaskError, match="no numbers"):
        strict.read(0)
    with pytest.raises(UnmaskError, match="At most 10% may be damaged"):
        Recordings(strict.sources, strict.headers, strict.spans, 8_000, (), Failures(1, "recording")).read(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 10}, "The rate of a corpus must be 1,000 to 48,000, not 10"),
        ({"rate": 96_000}, "The rate of a corpus must be 1,000 to 48,000, not 96,000"),
        ({"longest": 0.5}, r"The longest unit must have at least 1 s, not 0\.5"),
        ({"longest": float("nan")}, "The longest unit must have at least 1 s, not nan"),
        ({"most_damaged": 2}, "The largest share of damaged recordings is between 0 and 1, not 2"),
    ],
)
def test_numbers_out_of_range(folder, tmp_path, change, message):
    with pytest.raises(UnmaskError, match=message):
        build(items_of(folder), tmp_path / "out", **change)


def test_data_without_recordings(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    assert not holds_recordings(tmp_path)
    with pytest.raises(UnmaskError, match=r"has no recordings: files such as \.wav or \.flac"):
        items_of(tmp_path)
    with pytest.raises(UnmaskError, match="There is no file or folder"):
        items_of(tmp_path / "none")
    with pytest.raises(UnmaskError, match="There is no folder of recordings"):
        RecordingFolder(tmp_path / "none")
    write(tmp_path / "a.wav", sound(0.1))
    with pytest.raises(UnmaskError, match="has 1 recordings, but at least 2 are needed"):
        RecordingFolder(tmp_path)
    built = build(items_of(tmp_path), tmp_path / "out", rate=8_000)
    with pytest.raises(UnmaskError, match="has 1 recording, but at least 2 are needed"):
        built.split("train")
    with pytest.raises(UnmaskError, match="There is no split"):
        built.split("test")


def test_damage_of_a_corpus_is_found(corpus, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(corpus, copy)
    samples = copy / "recordings-00000.samples"
    samples.write_bytes(samples.read_bytes()[:-2] + b"xx")
    with pytest.raises(UnmaskError, match=r"recordings-00000\.samples"):
        RecordingCorpus(copy)
    samples.write_bytes(samples.read_bytes()[:-2])
    with pytest.raises(UnmaskError):
        RecordingCorpus(copy, verify=False)


def test_the_command_line(odd_folder, tmp_path, capsys):
    out = tmp_path / "corpus"
    main(["corpus", "check", str(odd_folder), "--rate", "8000", "--json"])
    printed = capsys.readouterr().out
    assert json.loads(printed)["damaged"] == 3
    main(["corpus", "check", str(odd_folder), "--workers", "2"])
    assert "rates       8,000 (33), 16,000 (1)" in capsys.readouterr().out
    given = ["--rate", "8000", "--longest", "20", "--trim", "--most-damaged", "0.2", "--out", str(out)]
    main(["corpus", "build", str(odd_folder), *given])
    said = capsys.readouterr().out
    assert f"Corpus {out}: 34 recordings" in said
    assert "unmask pretrain wav2vec2-tiny --corpus" in said
    assert RecordingCorpus(out).manifest["trim"] is True
    main(["corpus", "check", str(out)])
    assert "All checksums are right." in capsys.readouterr().out
    for wrong, message in (
        (["--side", "8"], "--side is for pictures, but"),
        (["--vocabulary-size", "8"], "--vocabulary-size is for texts, but"),
        (["--workers", "0"], "The number of workers must be at least 1, not 0"),
        (["--data", str(odd_folder)], "Give one folder, table or manifest of recordings, not 2"),
    ):
        with pytest.raises(SystemExit):
            main(["corpus", "build", str(odd_folder), "--out", str(tmp_path / "other"), *wrong])
        assert message in capsys.readouterr().err
    (tmp_path / "text.txt").write_text("text")
    with pytest.raises(SystemExit):
        main(["corpus", "build", str(tmp_path / "text.txt"), "--out", str(tmp_path / "other"), "--rate", "8000"])
    assert "--rate is for recordings, but" in capsys.readouterr().err


def test_damaged_stretches_are_one_damaged_file(tmp_path):
    file = io.BytesIO()
    soundfile.write(file, sound(400, 8_000), 8_000, format="FLAC")
    content = bytearray(file.getvalue())
    content[len(content) // 2 : len(content) // 2 + 9_000] = bytes(9_000)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.flac").write_bytes(bytes(content))
    write(tmp_path / "in" / "b.wav", sound(1))
    found = list(decoded(items_of(tmp_path / "in"), Decode(8_000), 0, stretches(items_of(tmp_path / "in"), 30.0)))
    assert sum(batch.done for batch in found) == 2
    assert {one.place for batch in found for one in batch.damaged} == {str(tmp_path / "in" / "a.flac")}
    built = build(items_of(tmp_path / "in"), tmp_path / "out", rate=8_000, most_damaged=0.5)
    assert built.manifest["damaged"]["count"] == 1
    assert built.manifest["recordings"] == 1
    assert {built.name(i) for i in range(len(built))} == {"a.flac", "b.wav"}
