"""Properties of tokenizers and of the sentence splitter over arbitrary Unicode, lone surrogates included."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import normalizers
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Metaspace

from unmask.data.text import byte_pairs
from unmask.data.text.library import Library
from unmask.data.text.runs import BETWEEN_SPACES, WITH_SPACES, runs_of, words_of
from unmask.data.text.sentences import LONGEST, sentences
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.tokenizer_files import bert_normalizer
from unmask.data.text.vocabulary import clean, sample

ANY = st.text(st.characters(codec=None), max_size=60)
PIECES = [
    "[MASK]",
    "[SEP]",
    "[CLS]",
    "<s>",
    "the",
    " ",
    "\n",
    ".",
    "한국어",
    "é",
    "e\u0301",
    "İ",
    "中",
    "##a",
    "\ud800",
    "'",
    "\u0301",
    "\u0302",
    "\xb4",
    "    ",
]
MIXED = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=20).map("".join)
TEXT = st.one_of(ANY, MIXED)


@cache
def tokenizers() -> list[Tokenizer]:
    text = [
        "the model is trained on the text of the trainer, don't ask why.",
        "한국어 문장을 읽는다 한국어",
        "élève déjà",
    ] * 3
    return [
        Tokenizer.train(text, 200, cased=c, strip_accents=s) for c, s in ((False, False), (True, False), (False, True))
    ]


@settings(max_examples=150, deadline=None)
@given(TEXT)
def test_offsets_index_the_raw_string_in_order(text: str):
    for tokenizer in tokenizers():
        encoding = tokenizer.encode(text)
        begins, ends = encoding.offsets[:, 0], encoding.offsets[:, 1]
        assert len(encoding.ids) == len(encoding.offsets) == len(encoding.words)
        assert np.all(begins >= 0)
        assert np.all(begins <= ends)
        assert np.all(ends <= len(text))
        assert np.all(np.diff(begins) >= 0)
        assert np.all(np.diff(ends) >= 0)
        assert np.all(np.diff(encoding.words) >= 0)
        assert np.all((encoding.ids >= 0) & (encoding.ids < tokenizer.size))


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, max_size=5))
def test_plain_text_never_holds_special_tokens(texts: list[str]):
    for tokenizer in tokenizers():
        forbidden = tokenizer.specials - {tokenizer.unknown}
        found = [*tokenizer.ids(texts), *(tokenizer.encode(t, special=False).ids for t in texts)]
        found.append(tokenizer.encode_words(texts).ids)
        assert not any(forbidden & set(ids.tolist()) for ids in found)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, max_size=5))
def test_every_word_has_a_piece_within_it(words: list[str]):
    for tokenizer in tokenizers():
        encoding = tokenizer.encode_words(words)
        assert sorted(set(encoding.words.tolist())) == list(range(len(words)))
        assert np.all(np.diff(encoding.words) >= 0)
        for word, (begin, end) in zip(encoding.words.tolist(), encoding.offsets.tolist(), strict=True):
            assert 0 <= begin <= end <= len(words[word])


@settings(max_examples=150, deadline=None)
@given(TEXT)
def test_decoding_is_stable_after_one_round(text: str):
    for tokenizer in tokenizers():
        once = tokenizer.decode(tokenizer.ids([text])[0])
        twice = tokenizer.decode(tokenizer.ids([once])[0])
        assert tokenizer.decode(tokenizer.ids([twice])[0]) == twice


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        TEXT,
        st.lists(st.sampled_from([*PIECES, ". ", "! ", "\n\n", "Mr. ", '" ', "。", "다.", "3.5", "A. "])).map("".join),
    )
)
def test_sentences_hold_every_character_but_whitespace(text: str):
    found = sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence and sentence == " ".join(sentence.split()) for sentence in found)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4 * LONGEST), st.integers(0, 50), st.integers(1, 3))
def test_sentences_are_bounded(length: int, words: int, gap: int):
    text = "x" * length + (" " * gap + "word " * 60) * words
    assert all(len(sentence) <= LONGEST for sentence in sentences(text))
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=40), st.integers(1, 400))
def test_sample_keeps_the_order_and_the_budget(texts: list[str], budget: int):
    kept = sample(texts, budget)
    rest = iter(texts)
    assert all(any(text == other for other in rest) for text in kept)
    assert sum(len(text.encode()) for text in kept) <= budget or len(kept) == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT, max_size=20), st.booleans(), st.booleans(), st.integers(1, 8))
def test_words_are_counted_as_in_whole_texts(texts: list[str], cased: bool, strip_accents: bool, held: int):
    texts = [clean(text) for text in texts]
    normalizer, cutter = bert_normalizer(cased=cased, strip_accents=strip_accents), BertPreTokenizer()

    def cut(text: str) -> list[str]:
        return [word for word, _ in cutter.pre_tokenize_str(normalizer.normalize_str(text))]

    with mock.patch("unmask.data.text.runs.HELD", held):
        found = words_of(texts, BETWEEN_SPACES, cut)
    assert found == Counter(word for text in texts for word in cut(text))


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXT, max_size=20), st.booleans(), st.booleans())
def test_words_with_their_spaces_are_counted_as_in_whole_texts(texts: list[str], cased: bool, strip_accents: bool):
    steps = normalizers.Sequence(byte_pairs.normalisers(cased, strip_accents))

    def cut(text: str) -> list[str]:
        return [word for word, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text)]

    texts = [steps.normalize_str(clean(text)) for text in texts]
    assert words_of(texts, WITH_SPACES, cut) == Counter(word for text in texts for word in cut(text))


@cache
def libraries() -> list[Library]:
    """Splitters whose texts are cut into runs."""
    text = [
        "the model isn't trained on  the    text of the trainer.  ",
        "a \u0301    \u0302 b",
        "한국어 문장을 읽는다",
        "élève déjà\n\n 2 024!",
    ] * 3
    trained = [byte_pairs.train(text, 400, cased=cased) for cased in (True, False)]
    assert "ĠĠ" in trained[0].vocabulary
    spaced = RawTokenizer.from_str(trained[0].raw.to_str())
    spaced.pre_tokenizer = ByteLevel(add_prefix_space=True)
    splitters = [one.splitter for one in [*tokenizers(), *trained, Tokenizer.of(spaced)]]
    found = [one for one in splitters if isinstance(one, Library) and runs_of(one.settings) is not None]
    assert found == splitters
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(TEXT, max_size=8), max_size=4), st.sampled_from([0, 300, 1 << 20]))
def test_ids_of_runs_are_those_of_whole_texts(batches: list[list[str]], memory: int):
    with mock.patch("unmask.data.text.runs.MEMORY", memory):
        for library in libraries():
            cache = Library(library.raw)._cache
            assert cache is not None
            for texts in batches:
                plain = RawTokenizer.from_str(library.raw.to_str())
                plain.encode_special_tokens = True
                whole = plain.encode_batch([clean(text) for text in texts], add_special_tokens=False)
                found = cache([clean(text) for text in texts])
                assert [one.tolist() for one in found] == [one.ids for one in whole]
                assert all(one.flags.writeable for one in found)


@pytest.mark.parametrize(("words", "pays"), [(20, True), (100_000, False)])
def test_texts_of_ever_new_runs_are_encoded_whole(words: int, pays: bool):
    cache = Library(libraries()[0].raw)._cache
    assert cache is not None
    numbers = iter(range(1_000_000))
    with mock.patch("unmask.data.text.runs.MEMORY", 4_000):
        for _ in range(100):
            cache([" ".join(f"run{next(numbers) % words}" for _ in range(40))])
    assert cache.pays == pays


def test_texts_without_spaces_are_encoded_whole():
    cache = Library(libraries()[0].raw)._cache
    assert cache is not None
    texts = ["한국어문장을읽는다" * 9, "the model", ""]
    assert [one.tolist() for one in cache(texts)] == list(cache.encode(texts))
    assert cache._known.keys() == {"the", "model", ""}


def test_a_copy_keeps_no_runs_and_has_the_same_ids():
    library = Library(libraries()[0].raw)
    library.ids(["the model"], {}, 0)
    assert library._cache is not None
    assert library._cache._known
    other = copy.deepcopy(library)
    assert other._cache is not None
    assert not other._cache._known
    assert other.ids(["the model"], {}, 0)[0].tolist() == library.ids(["the model"], {}, 0)[0].tolist()


def test_texts_whose_tokens_depend_on_more_than_a_run_are_not_cut():
    raw = tokenizers()[0].raw
    changes: list[Callable[[RawTokenizer], object]] = [
        lambda one: one.add_tokens(["two words"]),
        lambda one: setattr(one, "normalizer", normalizers.Replace("  ", "_")),
        lambda one: setattr(one, "normalizer", normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])),
        lambda one: setattr(one, "pre_tokenizer", Metaspace()),
        lambda one: setattr(one, "pre_tokenizer", ByteLevel(use_regex=False)),
        lambda one: setattr(one, "pre_tokenizer", None),
        # A run that becomes a space, or loses the letter after its space, changes the words beside it.
        lambda one: setattr(one, "pre_tokenizer", ByteLevel()) or setattr(one, "normalizer", normalizers.NFKC()),
        lambda one: setattr(one, "pre_tokenizer", ByteLevel()) or setattr(one, "normalizer", accents),
    ]
    accents = normalizers.Sequence(byte_pairs.normalisers(cased=False, strip_accents=True))
    for change in changes:
        changed = RawTokenizer.from_str(raw.to_str())
        change(changed)
        assert runs_of(json.loads(changed.to_str())) is None
    dropping = json.loads(byte_pairs.train(["some text"] * 2, 300).raw.to_str())
    assert runs_of(dropping) is WITH_SPACES
    dropping["model"]["dropout"] = 0.1
    assert runs_of(dropping) is None
