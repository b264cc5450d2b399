"""Token vectors from what stands beside tokens: counts and information by their formulas, and what comes out."""

from __future__ import annotations

import numpy as np
import pytest

from unmask.data.text import cooccurrence, corpus
from unmask.data.text.reading import TextDocument

V = 12


def texts(seed=0, number=40):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, V - 2, rng.integers(1, 30)).astype(np.uint16) for _ in range(number)]


def counted(pieces):
    """The formula, token by token."""
    table = np.zeros((V, V))
    for piece in pieces:
        for i in range(len(piece)):
            for distance in range(1, min(cooccurrence.WINDOW, len(piece) - 1 - i) + 1):
                table[piece[i], piece[i + distance]] += 1 / distance
    return table


@pytest.mark.parametrize("at_once", [1, 50, 10_000])
def test_the_counts_are_those_of_the_formula_however_the_text_is_cut(monkeypatch, at_once):
    monkeypatch.setattr(cooccurrence, "PIECE", at_once)
    found = cooccurrence.following(texts(), V).toarray()
    assert found == pytest.approx(counted(texts()))
    assert found.sum() > 0


def test_the_information_is_the_positive_part_of_its_formula():
    table = counted(texts())
    tokens, contexts = table.sum(1), table.sum(0) ** cooccurrence.SMOOTHING
    with np.errstate(divide="ignore", invalid="ignore"):
        formula = np.log(table / tokens[:, None] / (contexts / contexts.sum()))
    expected = np.where(table > 0, np.maximum(0, np.nan_to_num(formula, neginf=0.0)), 0)
    found = cooccurrence.information(cooccurrence.following(texts(), V)).toarray()
    assert found == pytest.approx(expected)
    assert (found > 0).any()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sentences in which "cat" and "dog" stand in the same places, and "red" and "blue" in others."""
    rng = np.random.default_rng(0)

    def line():
        return f"the {rng.choice(['cat', 'dog'])} sleeps here . a {rng.choice(['red', 'blue'])} door opens ."

    out = tmp_path_factory.mktemp("corpora") / "pets"
    documents = [TextDocument(" ".join(line() for _ in range(12)), str(i)) for i in range(40)]
    corpus.build(documents, out, vocabulary_size=60, heldout=0)
    return out


def test_tokens_that_stand_in_the_same_places_have_near_vectors(folder):
    built = corpus.Corpus(folder)
    vectors, occurs = cooccurrence.token_vectors([built.split("train")], built.tokenizer.size, 6)
    assert vectors.shape == (built.tokenizer.size, 6)
    assert occurs.sum() < len(occurs)
    assert not vectors[~occurs].any()
    assert vectors[occurs].mean(axis=0) == pytest.approx(0, abs=1e-5)

    def cosine(a, b):
        x, y = (vectors[built.tokenizer.ids([word])[0][0]] for word in (a, b))
        return x @ y / np.linalg.norm(x) / np.linalg.norm(y)

    assert min(cosine("cat", "dog"), cosine("red", "blue")) > 0.9
    assert max(cosine("cat", "red"), cosine("dog", "door")) < 0.5
    again, _ = cooccurrence.token_vectors([built.split("train")], built.tokenizer.size, 6)
    assert np.array_equal(vectors, again)


def test_a_small_vocabulary_has_fewer_numbers_than_asked_for(folder):
    built = corpus.Corpus(folder)
    vectors, _ = cooccurrence.token_vectors([built.split("train")], built.tokenizer.size, 500)
    assert vectors.shape == (built.tokenizer.size, built.tokenizer.size - 1)
    assert np.isfinite(vectors).all()


def test_of_a_long_text_pieces_all_over_it_are_counted(folder, monkeypatch):
    split = corpus.Corpus(folder).split("train")
    every = list(cooccurrence.pieces([split]))
    assert sum(map(len, every)) == split.tokens
    monkeypatch.setattr(cooccurrence, "MOST_TOKENS", split.tokens // 3)
    some = list(cooccurrence.pieces([split]))
    assert len(every) // 4 <= len(some) <= len(every) // 3 + 1
    assert np.array_equal(some[1], every[3]) or np.array_equal(some[1], every[4])
