"""Corpora of pictures: the same as their folder, in any form of data; damaged, odd and repeated pictures; IDX files."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import struct
import sys
import zlib
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import huggingface
from unmask.cli import main
from unmask.data.files.building import decoded
from unmask.data.files.damage import Failures
from unmask.data.files.shards import ShardWriter, Unit
from unmask.data.labelled.dataset import overlap
from unmask.data.pictures import decoding
from unmask.data.pictures.building import Decode, build
from unmask.data.pictures.corpus import PictureCorpus, Shard, Stored
from unmask.data.pictures.decoding import decode, shrink
from unmask.data.pictures.folder import PictureFolder, Pictures
from unmask.data.pictures.idx import IdxPictures, read_idx
from unmask.data.pictures.items import holds_pictures, items_of
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import labelled
from unmask.data.text.corpus import Corpus
from unmask.errors import UnmaskError
from unmask.models.vit import Vit
from unmask.objectives.contrastive import ContrastiveConfig
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.runs.report import write_report
from unmask.train.events import Step

Image = pytest.importorskip("PIL.Image")
SMALL = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32}
MODES = ["L", "RGB", "RGBA", "P", "1", "LA", "CMYK", "I;16"]


def picture(seed: int, height: int = 9, width: int = 7, mode: str = "RGB") -> Image.Image:
    """Random pixels in a mode."""
    rng = np.random.default_rng(seed)
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 1 << 16, (height, width), dtype=np.uint16))
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).convert(mode)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 pictures of different sizes and modes in three classes, one of which has a name that is not ASCII."""
    folder = tmp_path_factory.mktemp("data") / "pictures"
    for i in range(120):
        mode = MODES[i % len(MODES)]
        place = folder / ("cat", "dög 1", "eel")[i % 3] / f"{i}.{'tiff' if mode == 'CMYK' else 'png'}"
        place.parent.mkdir(parents=True, exist_ok=True)
        picture(i, 6 + i % 5, 5 + i % 7, mode).save(place)
    ImageProcessor(size=8, patch=2, mean=(0.4, 0.4, 0.4), std=(0.2, 0.3, 0.4)).save(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Path:
    out = folder.parent / "corpus"
    build(items_of(folder), out, shard_bytes=4_000)
    assert len(PictureCorpus(out).shards) > 3
    return out


def config(**changes: object) -> object:
    sizes = {"size": 8, "patch": 2, "square": 1, "rate": 0.5, **SMALL}
    usual = {"steps": 6, "lr": 3e-3, "batch": 8, "device": "cpu", "precision": "fp32", "heldout": 4, "minutes": None}
    return recipes.find("simmim-tiny").override({**sizes, **usual, "save_every": 3, "evaluate_every": 3, **changes})


# ------------------------------------------------------------------------------------------------ a corpus = its folder


@pytest.mark.parametrize("channels", [1, 3])
def test_a_corpus_has_the_pixels_splits_and_processor_of_its_folder(folder, corpus, channels):
    one, two = PictureFolder(folder), PictureCorpus(corpus)
    assert one.processor == two.processor
    for name in ("train", "heldout"):
        files, stored = (data.split(name).of_channels(channels) for data in (one, two))
        assert len(files.cost) == len(stored.cost) > 0
        for unit, path in enumerate(files.sources):
            assert np.array_equal(stored.read(unit), files.read(unit)), path
        assert len(two.split("train").cost) + len(two.split("heldout").cost) == 120


def test_decoding_in_one_channel_is_the_luma_of_pillow(folder):
    for path in sorted(folder.rglob("*.png")):
        with Image.open(path) as file:
            if file.mode not in ("L", "RGB", "P", "1"):
                continue
            for channels, mode in ((1, "L"), (3, "RGB")):
                expected = np.asarray(file.convert(mode)).reshape(file.height, file.width, channels)
                assert np.array_equal(decode(path, channels), expected)


def test_pictures_are_views_of_the_map_and_survive_pickling(corpus):
    opened = PictureCorpus(corpus)
    stored = next(one for one in opened if one.shard.shapes[one.number, 2] == 3)
    pixels = stored.pixels(3)
    assert np.shares_memory(pixels, stored.shard.read(stored.number))
    assert not pixels.flags.writeable
    again = pickle.loads(pickle.dumps(opened.split("train")))  # noqa: S301
    assert np.array_equal(again.read(5), opened.split("train").read(5))
    assert len(pickle.dumps(stored)) < 500
    row = labelled(corpus)[3]
    assert np.array_equal(pickle.loads(pickle.dumps(row)).pixels(), row.pixels())  # noqa: S301


def test_steps_are_those_of_the_folder(folder, corpus):
    objective = ContrastiveConfig(size=8, patch=2)
    built = objective.build(ImageProcessor(size=8, patch=2))
    options = {"seed": 3, "cut": lambda blocks, place, row: blocks}

    def batches(data: object) -> list[torch.Tensor]:
        from unmask.data.loader import EqualRows

        loader = built.stream([data.split("train")], {**options, "cut": EqualRows(16), "workers": 0})
        return [batch.signal.values for step in islice(loader.batches(), 20) for batch in step.batches]

    expected = batches(PictureFolder(folder))
    found = batches(PictureCorpus(corpus))
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


def test_a_run_on_a_corpus_learns_the_weights_of_a_run_on_the_folder_and_resumes(folder, corpus, tmp_path):
    for data in (folder, corpus):
        Pretrain(config(), [data], tmp_path / data.name).run()
    half = Pretrain(config(), [corpus], tmp_path / "half")
    half.run(lambda event: event == Step(3) and half.trainer.stop("the test"))
    Pretrain(config(), [corpus], tmp_path / "half", resume=True).run()
    report = write_report(tmp_path / "corpus").read_text()
    assert f"Corpus {corpus}" in report
    assert "damaged pictures left out" in report
    write_report(tmp_path / "pictures")
    first, *others = (huggingface.load(tmp_path / name).model.state_dict() for name in ("pictures", "corpus", "half"))
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)


def test_rows_of_a_corpus_are_those_of_the_folder(folder, corpus):
    files, stored = labelled(folder), labelled(corpus)
    assert [row.label for row in stored] == [row.label for row in files]
    assert [row.key for row in stored] == [row.key for row in files]
    assert len(overlap(files, stored)) == 120
    for one, two in zip(files, stored, strict=True):
        assert np.array_equal(one.pixels(), two.pixels())
        assert two.place == f"{corpus}:{Path(one.place).relative_to(folder)}"


def test_tasks_read_a_corpus(folder, corpus, tmp_path, capsys):
    page = Vit(size=8, patch=2, **SMALL)
    huggingface.save(tmp_path / "trunk", page.build(seed=0), ImageProcessor(size=8, patch=2))
    found = {}
    for data in (folder, corpus):
        given = ["--model", tmp_path / "trunk", "--task", "image-classification", "--train", data, "--epochs", 1]
        given += ["--seeds", 1, "--device", "cpu", "--precision", "fp32", "--out", tmp_path / data.name]
        main(["finetune", *map(str, given)])
        result = json.loads((tmp_path / data.name / "results.json").read_text())
        main(["evaluate", "--model", str(tmp_path / data.name), "--data", str(data), "--json"])
        scores = capsys.readouterr().out
        found[data] = result["seeds"][0]["dev"], json.loads(scores[scores.index("{\n") :])["metrics"]
    assert found[folder] == found[corpus]
    for name, data in (("a.npy", folder), ("b.npy", corpus)):
        main(["embed", "--model", str(tmp_path / "trunk"), "--data", str(data), "--out", str(tmp_path / name)])
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
    assert (tmp_path / "a.names.txt").read_text() == (tmp_path / "b.names.txt").read_text()


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_shards_return_what_was_written(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("shards")
    sides, names = st.integers(1, 9), st.text(min_size=1, max_size=9)
    rows = st.lists(
        st.tuples(names, st.sampled_from(["", "a", "ü"]), sides, sides, st.sampled_from([1, 3])), min_size=1
    )
    writer, expected = ShardWriter(out, Shard, data.draw(st.integers(1, 400))), []
    for i, (name, label, height, width, channels) in enumerate(data.draw(rows)):
        pixels = np.random.default_rng(i).integers(0, 256, (height, width, channels), dtype=np.uint8)
        name = name.encode("utf-8", "replace").decode()
        writer.add(Unit(name, label, pixels, pixels.shape, bytes([i]) * 16))
        expected.append((name, label, pixels, (bytes([i]) * 16).hex()))
    writer.close()
    stored = [
        Stored(shard, i) for one in writer.shards for shard in [Shard(out, one["name"])] for i in range(len(shard))
    ]
    labels = ["", *writer.classes]
    assert len(stored) == len(expected)
    for found, (name, label, pixels, digest) in zip(stored, expected, strict=True):
        assert np.array_equal(found.pixels(), pixels)
        assert found.digest == digest
        assert found.shard.named(found.number).decode() == name
        assert labels[found.shard.labels[found.number] + 1] == label


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 30))
def test_shrinking_bounds_the_shorter_side(height, width, side):
    pixels = np.zeros((height, width, 3), np.uint8)
    found = shrink(pixels, side)
    assert min(found.shape[:2]) == min(height, width, side)
    assert found is pixels if min(height, width) <= side else abs(found.shape[0] * width / height - found.shape[1]) <= 1


def test_large_pictures_are_resized_once(tmp_path):
    (tmp_path / "in").mkdir()
    picture(0, 40, 60).save(tmp_path / "in" / "a.png")
    picture(1, 6, 90).save(tmp_path / "in" / "b.png")
    built = build(items_of(tmp_path / "in"), tmp_path / "out", side=20)
    with Image.open(tmp_path / "in" / "a.png") as file:
        assert np.array_equal(built[0].pixels(), np.asarray(file.resize((30, 20), Image.Resampling.BILINEAR)))
    assert np.array_equal(built[1].pixels(), decode(tmp_path / "in" / "b.png"))


# ------------------------------------------------------------------------------------------------ tables, IDX


def test_tables_and_processes_give_the_same_corpus(folder, corpus, tmp_path):
    paths = sorted(folder.rglob("*.*ff")) + sorted(folder.rglob("*.png"))
    lines = "".join(f"{path.relative_to(folder)},{path.parent.name}\n" for path in paths)
    (folder / "t.csv").write_text(f"image,label\n{lines}", encoding="utf-8")
    one = build(items_of(folder / "t.csv"), tmp_path / "csv")
    (folder / "t.csv").unlink()
    assert sorted(s.digest for s in one) == sorted(s.digest for s in PictureCorpus(corpus))
    assert one.manifest["classes"] == dict.fromkeys(("cat", "dög 1", "eel"), 40)
    two = build(items_of(folder), tmp_path / "processes", workers=2, shard_bytes=4_000)
    assert two.manifest["files"] == PictureCorpus(corpus).manifest["files"]

    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    cells = [{"bytes": path.read_bytes(), "path": None} for path in paths]
    rows = {"image": cells, "label": [path.parent.name for path in paths]}
    parquet.write_table(arrow.table(rows), tmp_path / "t.parquet")
    assert holds_pictures(tmp_path / "t.parquet")
    three = build(items_of(tmp_path / "t.parquet"), tmp_path / "bytes")
    assert [s.digest for s in three] == [s.digest for s in one]
    assert three.name(0) == "t.parquet:1"
    assert one.name(0) == str(paths[0].relative_to(folder))


def write_idx(path: Path, array: np.ndarray, *, magic: bytes = b"\0\0\x08", extra: int = 0) -> Path:
    content = (
        magic + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes() + b"x" * extra
    )
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files(tmp_path, suffix):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (30, 5, 4), dtype=np.uint8), np.arange(30, dtype=np.uint8) % 3
    path = write_idx(tmp_path / f"train-images-idx3-ubyte{suffix}", pixels)
    write_idx(tmp_path / f"train-labels-idx1-ubyte{suffix}", labels)
    assert np.array_equal(read_idx(path), pixels)
    rows, built = labelled(path), build(items_of(path), tmp_path / "corpus", workers=2)
    assert [row.label for row in rows] == [str(label) for label in labels]
    for row, stored, expected in zip(rows, built, pixels, strict=True):
        assert np.array_equal(row.pixels(1)[..., 0], expected)
        assert np.array_equal(stored.pixels()[..., 0], expected)
        assert row.key == (stored.digest,)
    assert len(overlap(rows, labelled(tmp_path / "corpus"))) == 30
    colours = write_idx(tmp_path / "a-idx4", rng.integers(0, 256, (2, 5, 4, 3), dtype=np.uint8))
    assert IdxPictures(colours)[1].pixels().shape == (5, 4, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"magic": b"\0\0\x0d"}, "is not an IDX file of bytes: it begins with 00 00 0d 03"),
        ({"magic": b"\x89PN"}, "is not an IDX file"),
        ({"extra": 3}, "should have 40 bytes after its header, but it has more: it is damaged"),
        ({"cut": 5}, "should have 40 bytes after its header, but it has 35"),
        ({"cut": 47}, "cut short: its 3 dimensions are not complete"),
        ({"cut": 56}, "it begins with nothing"),
        ({"shape": (40,)}, "must have pictures of the shape"),
        ({"shape": (0, 2, 2)}, "must have pictures of the shape"),
        ({"labels": 3}, "has 3 labels for the 2 pictures"),
        ({"labels": 2, "label_shape": (1, 2)}, "has 2 dimensions, but 1 are needed"),
    ],
)
def test_idx_files_that_are_damaged(tmp_path, change, message):
    shape = change.get("shape", (2, 5, 4))
    path = tmp_path / "t-images-idx3-ubyte"
    extra = {name: change[name] for name in ("magic", "extra") if name in change}
    write_idx(path, np.zeros(shape, np.uint8), **extra)
    if "labels" in change:
        write_idx(tmp_path / "t-labels-idx1-ubyte", np.zeros(change.get("label_shape", change["labels"]), np.uint8))
    if cut := change.get("cut"):
        path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(UnmaskError, match=message):
        items_of(path)
    if "labels" not in change:
        (tmp_path / "t-images-idx3-ubyte").write_bytes(bytes((0, 0, 8, 3)) + struct.pack(">3I", *[2**31] * 3))
        with pytest.raises(UnmaskError, match="it is damaged"):  # and no such memory is asked for
            read_idx(path)


# ------------------------------------------------------------------------------------------------ damaged pictures


def damage(folder: Path) -> dict[str, str]:
    """Write damaged pictures of every kind into a folder; name -> what is said of it."""
    folder.mkdir(parents=True, exist_ok=True)
    picture(0, 64, 64).save(folder / "cut.jpg")
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:1500])
    (folder / "text.jpg").write_text("no picture")
    (folder / "zero.png").write_bytes(b"")
    head = struct.pack(">4s2I5B", b"IHDR", 9_000, 9_000, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    (folder / "bomb.png").write_bytes(content + struct.pack(">I4s", 0, b"IDAT") + bytes(4))
    return {
        "cut.jpg": "truncated",
        "text.jpg": "not a picture in a known format",
        "zero.png": "it is empty",
        "bomb.png": "9,000 x 9,000 pixels, but the limit is",
    }


@pytest.fixture
def damaged_folder(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "in")
    damage(tmp_path / "in" / "dmg")
    return tmp_path / "in"


def test_a_build_leaves_damaged_pictures_out_and_counts_them(damaged_folder, folder, tmp_path):
    built = build(items_of(damaged_folder), tmp_path / "out")
    assert built.manifest["damaged"]["count"] == 4
    assert len(built) == 120
    for reason, sentence in zip(built.manifest["damaged"]["first"], ("bomb", "cut", "text", "zero"), strict=True):
        assert f"{sentence}." in reason
    summary = built.summary()
    assert "4 of 124 pictures cannot be read: " in summary
    assert "And 1 more. Damaged pictures are left out." in summary
    assert "Classes without a picture that can be read: dmg." in summary
    assert "cat (40)" in summary
    assert "dmg (" not in summary
    with pytest.raises(UnmaskError, match=r"4 of 124 pictures cannot be read: .* At most 1% may be damaged; remove"):
        build(items_of(damaged_folder), tmp_path / "strict", most_damaged=0.01)
    assert not (tmp_path / "strict").exists()
    reasons = damage(tmp_path / "only")
    found = decoded(items_of(tmp_path / "only"), Decode(), 0)
    said = {one.reason for batch in found for one in batch.damaged}
    assert all(any(name in one and text in one for one in said) for name, text in reasons.items())


@pytest.mark.usefixtures("one_import")
def test_pre_training_does_not_end_at_a_damaged_picture(damaged_folder, tmp_path):
    """Headers are checked first. A file that fails later is replaced by the next one, also where workers decode."""
    data = PictureFolder(damaged_folder)
    [note] = data.notes
    assert note.startswith("3 of 124 pictures cannot be read: ")
    assert note.endswith("Damaged pictures are left out.")
    assert damaged_folder / "dmg" / "cut.jpg" in data.split("train").sources  # its header is sound
    states = []
    for name, workers in (("one", 0), ("two", 1)):
        run = Pretrain(config(workers=workers), [damaged_folder], tmp_path / name)
        result = run.run()
        [_, later] = run.corpora[0].notes
        assert later.startswith("1 of 124 pictures cannot be read: ")
        assert "cut.jpg" in later
        assert later.endswith("In place of each, the next one is read.")
        assert later in run.sentences(result)
        states.append(huggingface.load(tmp_path / name).model.state_dict())
    half = Pretrain(config(), [damaged_folder], tmp_path / "half")
    half.run(lambda event: event == Step(3) and half.trainer.stop("the test"))
    Pretrain(config(), [damaged_folder], tmp_path / "half", resume=True).run()
    states.append(huggingface.load(tmp_path / "half").model.state_dict())
    assert all(torch.equal(states[0][name], state[name]) for state in states for name in state)


def test_the_next_picture_replaces_a_damaged_one(tmp_path):
    for i in range(4):
        picture(i).save(tmp_path / f"{i}.png")
    paths = sorted(tmp_path.iterdir())
    paths[3].write_bytes(paths[3].read_bytes()[:60])
    source = Pictures(paths, failures=Failures(40, "picture"))
    assert np.array_equal(source.read(3), decode(paths[0]))
    assert np.array_equal(pickle.loads(pickle.dumps(source)).read(3), decode(paths[0]))  # noqa: S301
    assert len(source.failures.reasons()) == 1
    assert source.failures.path.is_file()
    temporary = source.failures.path
    del source
    assert not temporary.exists()
    strict = Pictures(paths, failures=Failures(4, "picture"))
    with pytest.raises(UnmaskError, match=r"1 of 4 pictures cannot be read: .*3\.png .* At most 10% may be damaged"):
        strict.read(3)


def test_too_many_damaged_pictures_are_an_error_before_a_run(tmp_path):
    damage(tmp_path)
    for i in range(9):
        picture(i).save(tmp_path / f"{i}.png")
    with pytest.raises(UnmaskError, match=r"3 of 13 pictures cannot be read: .* At most 10% may be damaged"):
        PictureFolder(tmp_path)


def test_labelled_files_that_are_damaged_are_counted(damaged_folder, tmp_path, capsys):
    page = Vit(size=8, patch=2, **SMALL)
    huggingface.save(tmp_path / "trunk", page.build(seed=0), ImageProcessor(size=8, patch=2))
    with pytest.raises(SystemExit):
        main(["probe", "--model", str(tmp_path / "trunk"), "--task", "image-classification", "--dev",
              str(damaged_folder), "--train", str(damaged_folder), "--allow-overlap", "yes"])  # fmt: skip
    said = capsys.readouterr().err
    assert "4 of 124 pictures cannot be read: " in said
    assert "And 1 more" in said
    assert "unmask corpus build DATA --out FOLDER" in said


def test_a_file_that_may_not_be_read(folder, tmp_path, monkeypatch):
    path = next(folder.rglob("*.png"))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(UnmaskError, match="cannot be read: permission denied"):
        decoding.header(path)
    with pytest.raises(UnmaskError, match="At most 10% may be damaged"):
        build(items_of(folder), tmp_path / "out")


# ------------------------------------------------------------------------------------------------ odd data


def test_names_with_strange_characters(tmp_path, capsys):
    names = ["tab\tline\nend", "escape \x1b[31m", "ünïcödé 猫", "name " + "x" * 200]
    if sys.platform.startswith("linux"):
        names.append("not UTF-8 \udcff")
    for i, name in enumerate(names):
        (tmp_path / "in" / "a").mkdir(parents=True, exist_ok=True)
        picture(i).save(tmp_path / "in" / "a" / f"{name}.png")
    picture(0).save(tmp_path / "in" / "a" / "copy\n.png")
    main(["corpus", "build", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    main(["corpus", "check", str(tmp_path / "out")])
    main(["corpus", "check", str(tmp_path / "in")])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\udcff" not in said
    assert r"copy\n.png" in said
    opened = PictureCorpus(tmp_path / "out")
    assert sorted(opened.name(i) for i in range(len(opened))) == sorted(f"a/{name}.png" for name in [*names, "copy\n"])
    [_, two] = PictureFolder(tmp_path / "in").split("train"), opened.split("train")
    assert len(two.cost) == len(names)
    (tmp_path / "in" / "b\n").mkdir()
    picture(9).save(tmp_path / "in" / "b\n" / "x.png")
    with pytest.raises(UnmaskError, match="has a name that cannot be printed; rename it"):
        labelled(tmp_path / "in")


def test_copies_and_classes_that_a_set_lacks_are_named(tmp_path, capsys):
    for i in range(12):
        for part, classes in (("train", ("a", "b", "c")), ("dev", ("a", "b"))):
            place = tmp_path / part / classes[i % len(classes)] / f"{part} {i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            picture(i + 100 * (part == "dev")).save(place)
    shutil.copy(tmp_path / "train" / "a" / "train 0.png", tmp_path / "train" / "b" / "copy.png")
    shutil.copy(tmp_path / "train" / "a" / "train 0.png", tmp_path / "train" / "a" / "again.png")
    shutil.copy(tmp_path / "train" / "a" / "train 3.png", tmp_path / "dev" / "a" / "leak.png")
    page = Vit(size=8, patch=2, **SMALL)
    huggingface.save(tmp_path / "trunk", page.build(seed=0), ImageProcessor(size=8, patch=2))
    given = ["--model", tmp_path / "trunk", "--task", "image-classification", "--epochs", 1, "--seeds", 1]
    given += ["--train", tmp_path / "train", "--dev", tmp_path / "dev", "--out", tmp_path / "out", "--device", "cpu"]
    main(["finetune", *map(str, given)])
    said = capsys.readouterr().out
    assert "dev has no picture of 1 class: c." in said
    assert f"hold 1 of the 13 dev rows ({tmp_path / 'dev' / 'a' / 'leak.png'})" in said
    assert "train: 2 pictures are copies of other ones, 1 of them with another label (" in said
    assert f"{tmp_path / 'train' / 'b' / 'copy.png'} = " in said
    main(["corpus", "check", str(tmp_path / "train"), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["pictures"], report["copies"], report["conflicting"], report["damaged"]) == (14, 2, 1, 0)
    assert report["classes"] == {"a": 5, "b": 5, "c": 4}
    assert report["sizes"] == {"7 x 9": 14}


def test_a_check_of_a_folder_is_a_short_table(damaged_folder, capsys):
    (damaged_folder / "none").mkdir()
    main(["corpus", "check", str(damaged_folder)])
    said = capsys.readouterr().out
    for line in ("pictures    120", "classes     cat (40), dög 1 (40), eel (40)", "damaged     4", "copies      0"):
        assert line in said
    assert "I;16 (15)" in said
    assert "CMYK (15)" in said
    assert "smallest / 25% / 50% / 75% / largest: 5 / " in said
    assert "Folders without a picture: none." in said


def test_pictures_outside_of_the_classes_are_told(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "in")
    picture(0).save(tmp_path / "in" / "loose.png")
    built = build(items_of(tmp_path / "in"), tmp_path / "out")
    assert "There are no labels: 1 of 121 pictures are in no subfolder (loose.png)." in built.summary()
    with pytest.raises(UnmaskError, match="has pictures without labels: build it from"):
        labelled(tmp_path / "out")


# ------------------------------------------------------------------------------------------------ folders of corpora


def test_parts_that_are_taken_as_classes_are_told(folder, tmp_path, capsys):
    for part in ("train", "test"):
        (tmp_path / "data" / part / "a").mkdir(parents=True)
        for number, path in enumerate(sorted(folder.rglob("*.png"))[:4]):
            (tmp_path / "data" / part / "a" / f"{part}{number}.png").write_bytes(path.read_bytes())
    main(["corpus", "build", str(tmp_path / "data"), "--out", str(tmp_path / "out")])
    said = f"test and train are taken as classes: for a corpus of one part, give {tmp_path / 'data' / 'test'} or"
    assert said in capsys.readouterr().out
    assert "taken as classes" not in build(items_of(tmp_path / "data" / "train"), tmp_path / "one").summary()


def test_an_interrupted_build_leaves_nothing(folder, tmp_path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(items_of(folder), tmp_path / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["pixels", "shapes", "labels", "digests", "names", "ends"])
def test_a_damaged_corpus_is_noticed(corpus, tmp_path, kind, capsys):
    copy = Path(shutil.copytree(corpus, tmp_path / "copy"))
    path = copy / f"pictures-00001.{kind}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SystemExit):
        main(["corpus", "check", str(copy)])
    assert f"pictures-00001.{kind} does not match its checksum" in capsys.readouterr().err
    path.write_bytes(content[:-1])
    with pytest.raises(UnmaskError, match=f"pictures-00001.{kind} does not match its size"):
        PictureCorpus(copy, verify=False)
    path.unlink()
    with pytest.raises(UnmaskError, match="is missing"):
        labelled(copy)


def test_what_the_command_line_refuses(folder, corpus, tmp_path, capsys):
    def said(*arguments: object) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(part) for part in arguments])
        assert ended.value.code
        return capsys.readouterr().err

    out = ("--out", tmp_path / "out")
    assert "--kind is for texts" in said("corpus", "build", folder, *out, "--kind", "bpe")
    (tmp_path / "t.txt").write_text("Some text.\n")
    assert "--side is for pictures" in said("corpus", "build", tmp_path / "t.txt", *out, "--side", 8)
    assert "Give one folder" in said("corpus", "build", folder, folder, *out)
    assert "at least 1 pixel" in said("corpus", "build", folder, *out, "--side", 0)
    assert "between 0 and 1" in said("corpus", "build", folder, *out, "--most-damaged", 2)
    assert "at least 1, not 0" in said("corpus", "build", folder, *out, "--workers", 0)
    assert "already holds a corpus" in said("corpus", "build", folder, "--out", corpus)
    assert "is a corpus of pictures, not of texts" in said("pretrain", "bert-tiny", "--corpus", corpus, *out)
    main(["corpus", "build", "--data", str(tmp_path / "t.txt"), "--out", str(tmp_path / "text"), "--kind", "character"])
    assert "is a corpus of texts, not of pictures" in said(
        "pretrain", "simmim-tiny", "--corpus", tmp_path / "text", *out
    )
    capsys.readouterr()
    main(["corpus", "check", str(tmp_path / "text")])
    assert "All checksums are right." in capsys.readouterr().out
    assert isinstance(Corpus(tmp_path / "text"), Corpus)
    assert not (tmp_path / "out").exists()
