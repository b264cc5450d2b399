"""Processors: what every one of them promises, for those of text."""

from __future__ import annotations

import numpy as np
import pytest

from unmask.data import collate
from unmask.data.processor import Processor, Region
from unmask.data.text.byte_pairs import train as byte_level
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

TEXTS = ["The cat sees the dog.", "Ein Vögel, zwei [MASK]!", "", "  dog  "]


@pytest.fixture(scope="module", params=["wordpiece", "bytes"])
def processor(request) -> Processor[str]:
    texts = ["the cat sees the dog", "ein Vogel hört zwei Vögel"] * 20
    return Tokenizer.train(texts, 90) if request.param == "wordpiece" else byte_level(texts, 300)


@pytest.mark.parametrize("text", TEXTS)
def test_a_place_is_described_by_the_characters_it_stands_for(processor, text) -> None:
    example = processor.example(text)
    found = [processor.describe(text, place) for place in range(len(example.tokens))]
    encoding = processor.encode(text, special=False)
    regions = [region for region in found if region is not None]
    assert [(*region.begin, *region.end) for region in regions] == list(map(tuple, encoding.offsets.tolist()))
    inside = [token for token, region in zip(example.tokens, found, strict=True) if region is not None]
    assert inside == encoding.ids.tolist()
    for place in (-1, len(found)):
        with pytest.raises(UnmaskError, match="tokens, so there is no place"):
            processor.describe(text, place)


def test_a_region_is_in_characters(processor) -> None:
    found = [processor.describe("cat dog", place) for place in range(len(processor.example("cat dog").tokens))]
    regions = [region for region in found if region is not None]
    assert {region.unit for region in regions} == {"characters"}
    assert isinstance(regions[0], Region)
    assert (regions[0].begin, regions[-1].end) == ((0,), (7,))


def test_a_batch_has_the_examples_a_row_each(processor) -> None:
    examples = [processor.example(text) for text in TEXTS]
    batch, expected = processor.collate(examples), collate.pad(examples, processor.pad, multiple=1)
    assert np.array_equal(batch.tokens, expected.tokens)
    for row, example in zip(batch.tokens.tolist(), examples, strict=True):
        assert row[: len(example.tokens)] == example.tokens.tolist()
        assert set(row[len(example.tokens) :]) <= {processor.pad}


def test_what_is_saved_is_loaded(processor, tmp_path) -> None:
    names = processor.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    again = type(processor).load(tmp_path)
    for text in TEXTS:
        assert np.array_equal(again.example(text).tokens, processor.example(text).tokens)


def test_unknown_words_are_counted() -> None:
    processor = Tokenizer.train(["the cat sees the dog"] * 20, 40)
    known, strange = processor.example("the cat"), processor.example("漢字 漢字")
    assert processor.unread([known]) == ""
    assert "of the tokens stand for words that the vocabulary lacks" in processor.unread([known, strange])
