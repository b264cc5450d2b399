"""Labelled recordings: rows of folders and tables, examples that are decoded when they are read, groups held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.dataset import Dataset, hold_out_groups
from unmask.data.labelled.doubts import doubts
from unmask.data.recordings.examples import RecordingExamples
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording, Wanted, are_recordings, labelled
from unmask.errors import UnmaskError

soundfile = pytest.importorskip("soundfile")
RATE = 8_000
PROCESSOR = RecordingProcessor(rate=RATE, hop=80, window=200)


def write(path: Path, samples: int, seed: int = 0, rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.random.default_rng(seed).uniform(-0.5, 0.5, samples), rate, subtype="PCM_16")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(("go/ann_1.wav", "go/bob_1.wav", "go/bob_2.wav", "stop/ann_1.flac", "stop/eve_1.wav")):
        write(tmp_path / "data" / name, 1_000 + i, seed=i)
    return tmp_path / "data"


def test_the_classes_of_a_folder_are_its_subfolders(folder):
    (folder / "notes.txt").write_text("no sound")
    (folder / "quiet").mkdir()
    rows = labelled(folder, Wanted(group="/([a-z]+)_"))
    found = [(row.label, row.group, row.source.name) for row in rows]
    assert found == [
        ("go", "ann", "ann_1.wav"), ("stop", "ann", "ann_1.flac"), ("go", "bob", "bob_1.wav"),
        ("stop", "eve", "eve_1.wav"), ("go", "bob", "bob_2.wav"),
    ]  # fmt: skip
    assert rows.notes == ("Skipped 1 file that is no recordings: .txt (1)", "Folders without a recording: quiet")
    assert rows[0].texts == ()
    assert len({row.key for row in rows}) == 5


def test_names_of_files_may_hold_the_label(tmp_path):
    for name in ("3_theo_7.wav", "4_ann_7.wav"):
        write(tmp_path / name, 500)
    rows = labelled(tmp_path, Wanted(label="^([0-9])_", group="_([a-z]+)_"))
    assert [(row.label, row.group) for row in rows] == [("3", "theo"), ("4", "ann")]
    with pytest.raises(UnmaskError, match=r"must have a subfolder .* 3_theo_7.wav is in none .* with --label"):
        labelled(tmp_path)
    with pytest.raises(UnmaskError, match=r"3_theo_7.wav: --group _\(x\)_ finds nothing in the name 3_theo_7.wav"):
        labelled(tmp_path, Wanted(label="^([0-9])_", group="_(x)_"))
    for wrong, said in (("(", "is not a regular expression"), ("a", "must have one group in brackets")):
        with pytest.raises(UnmaskError, match=said):
            labelled(tmp_path, Wanted(label=wrong))


def test_rows_of_a_table_may_be_parts_of_recordings(folder, tmp_path):
    samples = soundfile.read(folder / "go/ann_1.wav")[0].astype(np.float32)
    table = tmp_path / "rows.tsv"
    lines = ["path\tword\tbegin\tend\tspeaker\tsentence", "data/go/ann_1.wav\tgo\t0.05\t0.1\tann\tGo now."]
    table.write_text("\n".join([*lines, "data/go/ann_1.wav\tcome\t\t\tann\tCome."]) + "\n")
    rows = labelled(table, Wanted(label="word", group="speaker"))
    assert rows.columns == {"recording": "path", "label": "word", "group": "speaker"}
    part, whole = rows
    assert (part.label, part.group, part.begin, part.end) == ("go", "ann", 0.05, 0.1)
    np.testing.assert_array_equal(part.samples(RATE), samples[400:800])
    np.testing.assert_array_equal(part.samples(RATE, 7), samples[400:407])
    np.testing.assert_array_equal(whole.samples(RATE), samples)
    assert (part.count(RATE), whole.count(RATE), whole.count(16_000)) == (400, 1_000, 2_000)
    assert part.key != whole.key
    assert [row.text for row in labelled(table, Wanted(needs="text"))] == ["Go now.", "Come."]
    assert [row.label for row in labelled(table, Wanted(label="([a-z]+)/ann"))] == ["go", "go"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("path\tlabel\n\tgo\n", "there is no recording"),
        ("path\tlabel\ndata/go/ann_1.wav\t\n", "the column 'label' is empty"),
        ("path\ttext\ndata/go/ann_1.wav\tgo\n", "no column of labels with a usual name"),
        ("sound?\tlabel\ndata/go/ann_1.wav\tgo\n", "no column of recordings with a usual name"),
        ("path\tlabel\tbegin\tend\ndata/go/ann_1.wav\tgo\t2\t1\n", "begins at 2 s cannot end at 1 s"),
        ("path\tlabel\tbegin\ndata/go/ann_1.wav\tgo\tlate\n", "must be seconds, not 'late'"),
    ],
)
def test_a_bad_table_is_refused_with_the_row(folder, tmp_path, text, said):
    (tmp_path / "rows.tsv").write_text(text)
    with pytest.raises(UnmaskError, match=said):
        labelled(tmp_path / "rows.tsv")


def test_transcripts_and_unknown_columns(folder, tmp_path):
    (tmp_path / "rows.tsv").write_text("path\tlabel\ndata/go/ann_1.wav\tgo\n")
    with pytest.raises(UnmaskError, match="no column of transcripts"):
        labelled(tmp_path / "rows.tsv", Wanted(needs="text"))
    with pytest.raises(UnmaskError, match="has no column 'who'; it has path, label"):
        labelled(tmp_path / "rows.tsv", Wanted(group="who"))
    with pytest.raises(UnmaskError, match="is a folder, which has no transcripts"):
        labelled(folder, Wanted(needs="text"))


def test_what_is_recordings_is_seen_in_the_data(folder, tmp_path):
    (tmp_path / "sounds.tsv").write_text("path\tlabel\ndata/go/ann_1.wav\tgo\n")
    (tmp_path / "pictures.tsv").write_text("path\tlabel\ncat.png\tcat\n")
    (tmp_path / "speeches.tsv").write_text("speech\tlabel\nMy friends, we came to ...\tgood\n")
    (tmp_path / "texts.tsv").write_text("text\tlabel\nfine\tgood\n")
    names = ["data", "sounds.tsv", "pictures.tsv", "speeches.tsv", "texts.tsv"]
    assert [are_recordings(tmp_path / name) for name in names] == [True, True, False, False, False]


def test_sentences_on_classes_groups_and_copies(folder):
    rows = labelled(folder, Wanted(group="/([a-z]+)_"))
    copy = Recording(label="stop", place="copy", source=rows[0].source, group="ann")
    sets = {"train": rows, "dev": Dataset(folder, (rows[0], copy), {}), "test": rows.take([0])}
    assert list(doubts(sets, "recording")) == [
        "The training rows also hold 1 of the 1 group of dev (ann).",
        f"dev: 1 recording is a copy of another one, 1 of them with another label (copy = {rows[0].place}).",
        "test has no recording of 1 class: stop.",
        "The training rows also hold 1 of the 1 group of test (ann).",
    ]


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=9), count=st.integers(1, 12), seed=st.integers(0, 9))
def test_no_group_is_on_both_sides(sizes, count, seed):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = tuple(Recording(place=str(i), group=str(group)) for i, group in enumerate(groups))
    held, rest = hold_out_groups(Dataset(Path("x"), rows, {}), count, np.random.default_rng(seed))
    assert not {row.group for row in held} & {row.group for row in rest}
    assert sorted(int(row.place) for row in (*held, *rest)) == list(range(len(rows)))
    assert len(rest)
    assert len(held) >= min(count, len(rows) - max(sizes))
    whole = {row.group for row in held}
    assert all(row.place in [one.place for one in held] for row in rows if row.group in whole)


def test_one_group_cannot_be_held_out():
    rows = (Recording(group="a"), Recording(group="a"))
    with pytest.raises(UnmaskError, match="has 1 group: too few"):
        hold_out_groups(Dataset(Path("x"), rows, {}), 1, np.random.default_rng(0))


# ------------------------------------------------------------------------------------------------ examples


def examples(rows, *, longest=1_000, kept=1 << 20) -> RecordingExamples:
    targets = [(np.zeros(1, np.int64), np.array([i])) for i in range(len(rows))]
    return RecordingExamples(rows, PROCESSOR, "word", targets, longest=longest, kept=kept)


def test_examples_are_those_of_the_processor(folder):
    rows = list(labelled(folder))
    found = examples(rows)
    assert found.lengths.tolist() == [len(one.tokens) for one in found]
    assert found.cut == ()
    for i in range(len(rows)):
        wanted = PROCESSOR.example(rows[i].samples(RATE))
        np.testing.assert_array_equal(found[i].signal[1], wanted.signal[1])
        assert found[i].targets["word"][1].tolist() == [i]
    view = found.take([3, 1])[1:]
    assert (len(view), view[0].targets["word"][1].tolist(), view.lengths.tolist()) == (1, [1], [found.lengths[1]])


@given(longest=st.integers(1, 14))
def test_long_recordings_are_cut_at_their_end(longest, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("sounds") / "a.wav", 1_010, rate=RATE)
    found = examples([Recording(source=path, begin=0.01)], longest=longest)
    whole = examples([Recording(source=path, begin=0.01)])
    assert len(found[0].tokens) == found.lengths[0] == min(longest, whole.lengths[0])
    assert found.cut == ((0,) if longest < whole.lengths[0] else ())
    if found.cut:
        n = PROCESSOR.samples(longest)
        np.testing.assert_array_equal(found.samples(0), whole.samples(0)[:n])


def test_decoded_samples_are_kept_up_to_a_limit(folder, monkeypatch):
    rows = list(labelled(folder))[:2]
    found, decoded = examples(rows, kept=4_100), []
    plain = Recording.samples
    monkeypatch.setattr(Recording, "samples", lambda row, *a: decoded.append(row.place) or plain(row, *a))
    for _ in range(3):
        [found[i] for i in range(2)]
    assert [decoded.count(row.place) for row in rows] == [1, 3]


def test_damaged_recordings_are_counted_before_a_run(folder):
    (folder / "go/ann_1.wav").write_bytes(b"RIFF, but no more")
    with pytest.raises(UnmaskError, match=r"ann_1\.wav cannot be decoded"):
        examples(list(labelled(folder)))
    short, cut = write(folder / "go/ann_1.wav", 50), (folder / "go/bob_1.wav").read_bytes()
    (folder / "go/bob_1.wav").write_bytes(cut[: len(cut) - 1_900] + b"")
    rows = [Recording(source=short, place="rows:1"), Recording(source=short.read_bytes(), place="rows:2")]
    with pytest.raises(UnmaskError, match=r"2 of 2 recordings cannot be read: rows:1: The recording has 50 samples.*"):
        examples(rows).check()
    with pytest.raises(UnmaskError, match=r"^rows:1: The recording has 50 samples, but the model needs at least 200"):
        examples(rows[:1]).check()
