"""The benchmark of transfer on pictures: its files, its draws, its table, and one cell of each part."""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import tarfile
from pathlib import Path

import numpy as np
import pytest

import picture_transfer as script
from unmask.errors import UnmaskError

Image = pytest.importorskip("PIL.Image")


def picture(number: int, rng: np.random.Generator) -> bytes:
    """Noise, brighter for larger numbers."""
    file = io.BytesIO()
    Image.fromarray(rng.integers(20 * number, 20 * number + 40, (32, 32, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small sets in the formats of the two data sets."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("cifar10-jpeg", "mnist"):
        (folder / name).mkdir()
    for split, kind in (("train", "train"), ("test", "t10k")):
        with tarfile.open(folder / "cifar10-jpeg" / f"{split}.tar.gz", "w:gz") as file:
            for number, label in enumerate((*script.SOURCE, *script.TARGET)):
                for i in range(4):
                    content = picture(number, rng)
                    member = tarfile.TarInfo(f"{split}/{label}/{i}.png")
                    member.size = len(content)
                    file.addfile(member, io.BytesIO(content))
        labels = np.arange(40, dtype=np.uint8) % 10
        pixels = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
        for part, values, header in (("labels-idx1", labels, 8), ("images-idx3", pixels, 16)):
            place = folder / "mnist" / f"{kind}-{part}-ubyte.gz"
            place.write_bytes(gzip.compress(bytes(header) + values.tobytes()))
    return folder


def options(**changes: object) -> argparse.Namespace:
    usual = {"part": "strategies", "trunks": ["vgg"], "little": 1, "much": 3, "source_pictures": 3, "source_steps": 1}
    usual |= {"steps": 1, "seeds": 1, "precision": "fp32", "supervised": None, "simclr": None, "mae": None, "out": None}
    usual |= {"device": "cpu", "workers": 0, "shares": (0.01, 0.1, 1.0)}
    return argparse.Namespace(**{**usual, **changes})


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "TESTED", 2)


def test_the_pictures_of_each_class_are_unpacked_once(data: Path, tmp_path: Path) -> None:
    script.prepare(data, tmp_path, options())
    found = {
        name: len(list((tmp_path / name).glob("*/*"))) for name in ("similar/train", "different/test", "source/test")
    }
    assert found == {"similar/train": 9, "different/test": 20, "source/test": 14}
    assert {path.name for path in (tmp_path / "similar" / "train").iterdir()} == set(script.TARGET)
    with gzip.open(data / "mnist" / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read()[16:], np.uint8).reshape(-1, 28, 28)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "different" / "train" / "3" / "13.png")), pixels[13])
    (tmp_path / "similar" / "train" / "cat" / "0.png").unlink()
    script.prepare(data, tmp_path, options())
    assert not (tmp_path / "similar" / "train" / "cat" / "0.png").exists()


def test_missing_pictures_are_one_sentence(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="say with --data"):
        script.prepare(tmp_path, tmp_path / "work", options())
    with pytest.raises(UnmaskError, match="fewer pictures than asked for"):
        script.prepare(data, tmp_path / "work", options(source_pictures=5))
    assert not (tmp_path / "work" / "source" / "train").exists()


def test_a_smaller_draw_is_part_of_a_larger_one(data: Path, tmp_path: Path) -> None:
    script.prepare(data, tmp_path, options())

    def drawn(count: int, seed: int) -> list[tuple[str, str]]:
        table = tmp_path / "drawn.csv"
        number = script.draw(tmp_path / "similar" / "train", count, seed, table)
        with table.open(encoding="utf-8", newline="") as file:
            rows = [(row["picture"], row["label"]) for row in csv.DictReader(file)]
        assert number == len(rows) == 3 * count
        return rows

    assert set(drawn(1, 0)) < set(drawn(2, 0))
    assert any(drawn(1, 0) != drawn(1, seed) for seed in range(1, 6))


def test_the_best_of_each_row_is_bold() -> None:
    cells = [
        {"share": 0.01, "way": way, "pictures": 1_500, "mean": mean, "deviation": 0.004}
        for way, mean in (("a", 0.5), ("b", 0.625))
    ]
    *_, row = script.table_of(cells).splitlines()
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["1%", "1,500", "50.0 ± 0.4", "**62.5 ± 0.4**"]


def test_strategies_are_measured_and_resumed(data: Path, tmp_path: Path) -> None:
    asked, facts = options(), {"cells": []}
    script.prepare(data, tmp_path, asked)
    cells = list(itertools.islice(script.strategies(tmp_path, asked), len(script.STRATEGIES)))
    script.measure(cells, facts, asked)
    assert [cell["way"] for cell in facts["cells"]] == list(script.STRATEGIES)
    assert all(cell["pictures"] == 3 and 0 <= cell["mean"] <= 1 for cell in facts["cells"])
    before = [dict(cell) for cell in facts["cells"]]
    script.measure(cells, facts, asked)
    assert facts["cells"] == before


def test_the_references_read_the_drawn_labels(data: Path, tmp_path: Path) -> None:
    script.prepare(data, tmp_path, options())
    script.draw(tmp_path / "similar" / "train", 3, 0, tmp_path / "drawn.csv")
    asked = ("image-classification", "pixels", tmp_path / "drawn.csv", 0)
    assert script.reference(*asked, test=tmp_path / "similar" / "test") > 0.8  # classes differ in brightness
