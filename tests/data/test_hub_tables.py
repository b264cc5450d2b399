"""Labelled rows of the Hugging Face hub, by a stand-in for `datasets`: texts, pictures and recordings, undecoded."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unmask.data.files.tables import format_by_name, guess_format, rows
from unmask.data.pictures.items import holds_pictures, items_of
from unmask.errors import UnmaskError
from unmask.tasks.reading import read

pytest.importorskip("PIL")


class Image:
    """A column of pictures, as `datasets` has it."""

    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


class Classes:
    """A column of classes."""

    def int2str(self, number: int) -> str:
        return ("cat", "dog")[number]


class Streamed:
    def __init__(self, values: list[dict[str, Any]], features: dict[str, Any]) -> None:
        self.values, self.features = values, features

    def cast_column(self, name: str, feature: Any) -> Streamed:
        return Streamed(self.values, {**self.features, name: feature})

    def __iter__(self) -> Any:
        for row in self.values:
            undecoded = {k: v for k, v in row.items() if not getattr(self.features.get(k), "decode", False)}
            assert undecoded.keys() == row.keys(), "the product decodes, not the library"
            yield row


def png(grey: int) -> bytes:
    from PIL import Image as Pillow

    file = io.BytesIO()
    Pillow.fromarray(np.full((6, 5, 3), grey, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = {
        "me/pets": Streamed(
            [{"image": {"bytes": png(9 * i), "path": None}, "label": i % 2} for i in range(4)],
            {"image": Image(), "label": Classes()},
        ),
        "me/texts": Streamed(
            [{"text": f"text {i}", "label": i % 2} for i in range(4)], {"text": object(), "label": Classes()}
        ),
        "me/hidden": Streamed([{"text": "a", "label": -1}], {"text": object(), "label": Classes()}),
    }

    def load_dataset(path: str, name: str | None, *, split: str, streaming: bool) -> Streamed:
        assert (name, split, streaming) == (None, "train", True)
        return sets[path]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))


def test_pictures_are_read_as_bytes_with_the_names_of_their_classes() -> None:
    found = read(Path("hub:me/pets"), "image-classification")
    assert [row.label for row in found] == ["cat", "dog", "cat", "dog"]
    assert [int(row.pixels()[0, 0, 0]) for row in found.rows] == [0, 9, 18, 27]
    assert found.rows[1].place == "hub:me/pets:2"


def test_they_are_items_of_a_corpus() -> None:
    assert holds_pictures(Path("hub:me/pets"))
    assert not holds_pictures(Path("hub:me/texts"))
    assert [(one.label, type(one.source)) for one in items_of(Path("hub:me/pets"))][:2] == [
        ("cat", bytes),
        ("dog", bytes),
    ]


def test_texts_are_rows_of_a_task() -> None:
    found = read(Path("hub:me/texts"), "classification")
    assert [(row.texts, row.label) for row in found][:2] == [(("text 0",), "cat"), (("text 1",), "dog")]
    name = Path("hub:me/texts:train")
    assert format_by_name(name) == guess_format(name) == "hub:"


def test_a_row_without_a_class_has_none() -> None:
    assert next(rows(Path("hub:me/hidden"), "hub:")) == (1, {"text": "a", "label": None})
    with pytest.raises(UnmaskError):
        read(Path("hub:me/hidden"), "classification")
