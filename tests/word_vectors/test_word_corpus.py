"""Words counted, numbered and joined, against plain Python; sequences of files."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.runs.word_vectors import Reading, corpus, reading

WORDS = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=12), min_size=1, max_size=30)


def text(found: corpus.Corpus) -> list[list[str]]:
    begins = [0, *found.ends[:-1]]
    return [[found.words[i] for i in found.ids[a:b]] for a, b in zip(begins, found.ends, strict=True)]


@pytest.fixture
def room(tmp_path_factory):
    return lambda: tmp_path_factory.mktemp("corpus") / "x"


@given(WORDS, st.integers(1, 4), st.integers(1, 9), st.one_of(st.none(), st.integers(2, 5)))
@settings(max_examples=60, deadline=None)
def test_numbered_text_is_the_text(tmp_path_factory, sentences, min_count, chunk, most):
    counts = Counter(word for sentence in sentences for word in sentence)
    folder = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "CHUNK", chunk)
        patch.setattr(corpus, "GATHERED", chunk)
        if not counts:
            with pytest.raises(UnmaskError, match="no words"):
                corpus.number(sentences, folder / "a")
            return
        whole = corpus.number(sentences, folder / "a")
        assert text(whole) == sentences
        assert dict(zip(whole.words, whole.counts.tolist(), strict=True)) == counts
        assert list(whole.words) == list(counts)  # in the order in which they come
        kept = [word for word, count in counts.most_common() if count >= min_count][:most]
        if len(kept) < 2:
            with pytest.raises(UnmaskError, match="min-count"):
                whole.frequent(folder / "b", min_count, most)
            return
        frequent = whole.frequent(folder / "b", min_count, most)
        assert frequent.words == kept
        assert frequent.counts.tolist() == [counts[word] for word in kept]
        assert text(frequent) == [[word for word in sentence if word in kept] for sentence in sentences]
        assert frequent.read == sum(counts.values())


def joined(sentences, threshold, delta):
    """Phrases as the paper words them."""
    single = Counter(word for s in sentences for word in s)
    pairs = Counter(pair for s in sentences for pair in pairwise(s))
    total = sum(single.values())

    def score(a, b):
        return (pairs[a, b] - delta) * total / (single[a] * single[b])

    found = []
    for sentence in sentences:
        out, i = [], 0
        while i < len(sentence):
            if i + 1 < len(sentence) and score(*sentence[i : i + 2]) > max(threshold, 0):
                out.append("_".join(sentence[i : i + 2]))
                i += 2
            else:
                out.append(sentence[i])
                i += 1
        found.append(out)
    return found


@given(WORDS, st.sampled_from([0.5, 1.0, 2.0, 3.5]), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_phrases_are_those_of_the_formula(tmp_path_factory, sentences, threshold, delta):
    if not any(sentences):
        return
    folder = tmp_path_factory.mktemp("corpus")
    found = corpus.join_phrases(corpus.number(sentences, folder / "a"), folder / "b", threshold, delta)
    assert text(found) == joined(sentences, threshold, delta)
    again = corpus.join_phrases(found, folder / "c", threshold, delta)
    assert text(again) == joined(joined(sentences, threshold, delta), threshold, delta)
    assert len(set(again.words)) == len(again.words)


def test_phrases_grow_with_the_passes(room):
    rng = np.random.default_rng(0)
    noise = [rng.choice(list("pqrstuvwxyz"), 6).tolist() for _ in range(200)]
    whole = corpus.number([[*n[:3], "new", "york", "times", *n[3:]] for n in noise], room())
    once = corpus.join_phrases(whole, room(), 5, 5)
    twice = corpus.join_phrases(once, room(), 5, 5)
    assert "new_york" in once.words
    assert once.counts[once.words.index("new_york")] == 200
    assert twice.counts[twice.words.index("new_york_times")] == 200


def test_a_phrase_that_the_text_knows_already_is_that_word(room):
    found = corpus.join_phrases(corpus.number([["a", "b"], ["a", "b"], ["a_b"], ["c"]], room()), room(), 0.1, 1)
    assert found.words.count("a_b") == 1
    assert text(found) == [["a_b"], ["a_b"], ["a_b"], ["c"]]


def test_many_different_words_stay_within_the_limit(room, monkeypatch):
    monkeypatch.setattr(corpus, "GATHERED", 100)
    rare = [[f"rare{i}", "often", "also"] for i in range(500)]
    found = corpus.number(rare, room(), limit=50)
    assert sum(bool(word) for word in found.words) <= 50 + 100
    kept = found.frequent(room(), 2)
    assert kept.words == ["often", "also"]
    assert kept.counts.tolist() == [500, 500]
    assert corpus.join_phrases(found, room(), 1e9, 1).frequent(room(), 2).words == ["often", "also"]


def test_words_that_were_forgotten_join_no_phrase(room, monkeypatch):
    monkeypatch.setattr(corpus, "GATHERED", 100)
    rare = [[f"rare{i}", "often"] for i in range(510) for _ in range(2)]
    joined = corpus.join_phrases(corpus.number(rare, room(), limit=50), room(), 0.1, 1)
    assert any(word.startswith("rare") and word.endswith("_often") for word in joined.words)
    assert "_often" not in joined.words
    assert all(count == 0 for word, count in zip(joined.words, joined.counts, strict=True) if not word)


def test_forgotten_pairs_bound_the_memory(room, monkeypatch):
    monkeypatch.setattr(corpus, "PAIRS", 20)
    monkeypatch.setattr(corpus, "CHUNK", 64)
    rng = np.random.default_rng(0)
    sentences = [["hot", "dog", f"w{rng.integers(100)}"] for _ in range(300)]
    found = corpus.join_phrases(corpus.number(sentences, room()), room(), 2.0, 5)
    assert found.counts[found.words.index("hot_dog")] > 290  # but for those that a chunk cuts apart


@pytest.mark.parametrize("bad", [["a text"], [[1.5]], [[None]], [3], [["a", True]]])
def test_what_is_not_a_sequence_of_words_is_named(room, bad):
    with pytest.raises(UnmaskError, match="Sentence 2 must be a list of words"):
        corpus.number([["fine"], *bad], room())


def test_numbers_are_words_too(room):
    assert corpus.number([[3, 1], np.array([1, 2])], room()).words == ["3", "1", "2"]


# ------------------------------------------------------------------------------------------------ files


def test_prose_is_cut_into_words(tmp_path):
    (tmp_path / "a.txt").write_text("Mr. Smith _didn’t_ go. “He stayed,” she said — naïve café!\n\nThe end.\n")
    assert list(reading.read([tmp_path / "a.txt"])) == [
        ["mr", "smith", "didn't", "go"],
        ["he", "stayed", "she", "said", "naïve", "café"],
        ["the", "end"],
    ]
    kept = list(reading.read([tmp_path / "a.txt"], Reading(lower=False)))
    assert kept[0][:2] == ["Mr", "Smith"]


def test_lines_of_tokens_stay_as_they_are(tmp_path):
    with gzip.open(tmp_path / "walks.txt.gz", "wt") as file:
        file.write("A b,c  d\n\nx\n")
    options = Reading(tokens="spaces", lower=False)
    assert list(reading.read([tmp_path / "walks.txt.gz"], options)) == [["A", "b,c", "d"], ["x"]]
    assert list(reading.read([str(tmp_path)], Reading(tokens="spaces"))) == [["a", "b,c", "d"], ["x"]]


def test_json_lists_are_sequences(tmp_path):
    path = tmp_path / "baskets.jsonl"
    path.write_text('\n["red wine", "bread"]\n[3, 17]\n[]\n')
    assert list(reading.read([path])) == [["red wine", "bread"], ["3", "17"], []]
    path.write_text('{"text": "One two. Three four."}\n')
    assert list(reading.read([path])) == [["one", "two"], ["three", "four"]]


@pytest.mark.parametrize("row", ['["a", 1.5]', '["a", null]', '{"a": 1}', '["a", true]', '[["a"]]', '[""]'])
def test_a_list_of_other_things_is_named(tmp_path, row):
    path = tmp_path / "baskets.jsonl"
    path.write_text(f'["a"]\n{row}\n')
    with pytest.raises(UnmaskError, match=r"baskets\.jsonl:2 must be a list"):
        list(reading.read([path]))


def test_the_documentation_is_the_default(monkeypatch):
    from unmask.data.text.reading import TextDocument

    monkeypatch.setattr(reading.embedded, "documents", lambda: iter([TextDocument("A list. It grows.", "x")]))
    assert list(reading.documentation()) == [["a", "list"], ["it", "grows"]]
