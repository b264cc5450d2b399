"""Advice: what is measured on texts, and which row of the table it leads to."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.runs.transfer import Evidence, advise, measure
from unmask.runs.transfer.advice import FITTING, LITTLE_ROWS, LITTLE_ROWS_OF_A_CLASS, STRANGE_LOSS, TABLE

ONSETS, VOWELS = ("b d f g k l m n p r s t", "a e i o u")
OTHER_ONSETS, OTHER_VOWELS = ("ch sz cz rz w z h j v x", "y ą ę ó au")


def language(onsets: str, vowels: str, seed: int) -> list[str]:
    """Four hundred words of two or three syllables."""
    rng = np.random.default_rng(seed)
    syllables = [a + b for a in onsets.split() for b in vowels.split()]
    return ["".join(rng.choice(syllables, rng.integers(2, 4))) for _ in range(400)]


def texts(words: list[str], number: int, seed: int) -> list[str]:
    """Texts of ten words, some of them frequent."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, len(words) + 1)
    return [" ".join(rng.choice(words, 10, p=share / share.sum())) for _ in range(number)]


HOME = language(ONSETS, VOWELS, 0)
ABROAD = language(OTHER_ONSETS, OTHER_VOWELS, 1)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([*texts(HOME, 2000, 0), "chszczrzwzhjvx yąęóau"], 600)


def test_text_of_the_tokenizers_own_kind_is_similar(tokenizer: Tokenizer) -> None:
    found = measure(texts(HOME, 600, 5), tokenizer)
    assert found.texts == 600
    assert found.words == pytest.approx(6000, rel=0.01)
    assert found.tokens == pytest.approx(found.words * found.per_word, rel=0.01)
    assert found.per_word < 1.1
    assert found.unknown == 0
    assert found.similarity > 0.97
    assert found.loss is None


def test_text_of_another_kind_is_different(tokenizer: Tokenizer) -> None:
    found = measure(texts(ABROAD, 600, 5), tokenizer)
    assert found.per_word > 3 > 1.2 > found.own_per_word
    assert found.similarity < 0.5
    mixed = measure(texts(HOME, 300, 5) + texts(ABROAD, 300, 5), tokenizer)
    assert found.similarity < mixed.similarity < 0.97


def test_characters_that_the_tokenizer_lacks_count_as_lost(tokenizer: Tokenizer) -> None:
    strange = [text.translate(str.maketrans("abdegk", "абдегк")) for text in texts(HOME, 600, 5)]
    found = measure(strange, tokenizer)
    assert found.unknown > 0.8
    assert found.own_unknown == 0
    assert found.similarity < 0.2


def test_few_words_are_said_to_be_few(tokenizer: Tokenizer) -> None:
    few, many = measure(texts(HOME, 20, 5), tokenizer), measure(texts(HOME, 600, 5), tokenizer)
    assert any("With so few words" in line for line in few.sentences)
    assert not any("With so few words" in line for line in many.sentences)


def test_only_a_part_of_many_texts_is_read(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(texts(HOME, 3000, 5), tokenizer)
    monkeypatch.setattr("unmask.runs.transfer.advice.BYTES", 20_000)
    part = measure(texts(HOME, 3000, 5), tokenizer)
    assert part.texts == whole.texts == 3000
    assert part.words == pytest.approx(whole.words, rel=0.03)
    assert part.tokens == pytest.approx(whole.tokens, rel=0.03)
    assert part.similarity == pytest.approx(whole.similarity, abs=0.05)


def test_a_model_that_can_guess_hidden_words_is_asked(tokenizer: Tokenizer) -> None:
    config = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=16)
    model = config.build(as_heads({"mlm": 0})).train()
    state = torch.get_rng_state()
    found = measure(texts(HOME, 300, 5), tokenizer, model)
    assert found.loss == pytest.approx(math.log(tokenizer.size), abs=0.1), "it knows nothing yet"
    assert found.parameters == model.parameters_total
    assert found == measure(texts(HOME, 300, 5), tokenizer, model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():  # a model that says the commonest word everywhere
        model.heads["mlm"].bias[tokenizer.ids([HOME[0]])[0]] = 3.0
    better = measure(texts(HOME, 300, 5), tokenizer, model).loss
    assert better is not None
    assert better < found.loss - 0.1
    assert any("loss of" in line for line in found.sentences)
    assert measure(texts(HOME, 300, 5), tokenizer, config.build(as_heads({"tagging": 2}))).loss is None


def test_texts_without_words(tokenizer: Tokenizer) -> None:
    for nothing in ([], ["", "  "], ["...", "!!"]):
        with pytest.raises(UnmaskError, match="no words"):
            measure(nothing, tokenizer)
    assert measure(["one word more"], tokenizer).texts == 1


@pytest.mark.parametrize(
    ("rows", "similarity", "place", "strategy"),
    [
        (300, 0.95, ("little", "similar"), "full"),
        (67_000, 0.95, ("much", "similar"), "full"),
        (300, 0.5, ("little", "different"), "lora"),
        (67_000, 0.5, ("much", "different"), "full"),
    ],
)
def test_the_four_rows_of_the_table(rows: int, similarity: float, place: tuple[str, str], strategy: str) -> None:
    advice = advise(rows, similarity)
    assert (advice.amount, advice.domain) == place
    assert advice.transfer.strategy == strategy
    assert f"{rows:,} rows" in str(advice)
    assert f"{similarity:.2f}" in str(advice)
    assert ("three or more seeds" in str(advice)) == (rows < 10_000)


def test_the_borders() -> None:
    assert advise(LITTLE_ROWS - 1, 1.0).amount == "little"
    assert advise(LITTLE_ROWS, 1.0).amount == "much"
    assert advise(LITTLE_ROWS, FITTING).domain == "similar"
    assert advise(LITTLE_ROWS, FITTING - 1e-6).domain == "different"


def test_many_labels_make_rows_few() -> None:
    assert advise(5_000, 1.0, classes=5_000 // LITTLE_ROWS_OF_A_CLASS).amount == "much"
    few = advise(5_000, 1.0, classes=150)
    assert few.amount == "little"
    assert "33 each" in str(few)


def test_a_high_loss_outweighs_a_vocabulary_that_fits() -> None:
    assert advise(100, 0.95, loss=STRANGE_LOSS).domain == "similar"
    strange = advise(100, 0.95, loss=STRANGE_LOSS + 0.5)
    assert strange.domain == "different"
    assert "3.50 nats" in str(strange)
    assert advise(100, 0.5, loss=1.0).domain == "different", "words in pieces are a reason of their own"


@given(st.integers(1, 10**7), st.floats(0, 1), st.none() | st.integers(1, 1000), st.none() | st.floats(0, 20))
def test_every_case_is_a_row_of_the_table(
    rows: int, similarity: float, classes: int | None, loss: float | None
) -> None:
    advice = advise(rows, similarity, classes=classes, loss=loss)
    assert advice.transfer == TABLE[advice.amount, advice.domain][0]
    more = advise(rows * 2, similarity, classes=classes, loss=loss)
    assert (advice.amount, more.amount) != ("much", "little")
    assert all(line.endswith(".") for line in advice.sentences)


def test_numbers_that_cannot_be() -> None:
    for arguments in ((0, 0.5, 2), (10, 1.5, 2), (10, float("nan"), 2), (10, 0.5, 0)):
        with pytest.raises(UnmaskError, match="at least one row and class, and a similarity between 0 and 1"):
            advise(arguments[0], arguments[1], classes=arguments[2])


def test_similarity_is_known_pieces_beside_those_of_the_texts_own_vocabulary() -> None:
    evidence = Evidence(10, 100, 150, per_word=2.0, own_per_word=1.25, unknown=0.1, own_unknown=0.0)
    assert evidence.similarity == pytest.approx(1.25 / 2 * 0.9)
    better = Evidence(10, 100, 150, per_word=1.1, own_per_word=1.6, unknown=0.0, own_unknown=0.0)
    assert better.similarity == 1.0
