"""Worked examples on words: each merge and each pair beside a plain count."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.runs.lectures import words


def test_the_merges_of_the_paper():
    found = [pair for pair, _, _ in words.merges(words.COUNTS, 5)]
    assert found == [("e", "s"), ("es", "t"), ("est", words.END), ("l", "o"), ("lo", "w")]  # Sennrich et al. 2016


@settings(max_examples=50)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=6), st.integers(1, 9), min_size=1, max_size=5))
def test_each_merge_is_of_a_most_frequent_pair(counts):
    before = [(*word, words.END) for word in counts]
    for pair, count, after in words.merges(counts, 30):
        pairs = [two for word, times in zip(before, counts.values(), strict=True) for two in times * [*pairwise(word)]]
        assert count == pairs.count(pair) == max(map(pairs.count, pairs))
        assert ["".join(word) for word in after] == [word + words.END for word in counts]
        assert sum(map(len, after)) < sum(map(len, before))
        before = after
    assert all(len(word) == 1 for word in before)  # 30 merges are enough: five words have 35 pieces at most


def test_pairs_are_those_within_the_window():
    [table] = words.skip_gram_pairs.show(True).tables
    text = ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]
    wanted = {(a, b) for i, a in enumerate(text) for j, b in enumerate(text) if i != j and abs(i - j) <= 2}
    found = [pair for _, pairs in table.rows for pair in pairs.strip("()").split("), (")]
    assert len(found) == 30
    assert {tuple(pair.split(", ")) for pair in found} == wanted


def test_clipping_counts_a_word_as_often_as_the_reference():
    [table] = words.unigrams.show(True).tables
    assert [row[1:] for row in table.rows] == [("6 / 6", "5 / 6"), ("6 / 6", "2 / 6"), ("6 / 6", "6 / 6")]


def test_the_second_sentence_has_another_segment():
    [table] = words.pair_encoding.show(True).tables
    tokens, _, segments, positions = (row[1:] for row in table.rows)
    assert tokens[0] == "[CLS]"
    assert [token for token in tokens if token.startswith("##")] == ["##ing"]
    assert "".join(segment[-1] for segment in segments) == "A" * 6 + "B" * 5
    assert positions[-1] == "E 10"


def test_noise_and_kept_words_by_their_formulas():
    [table] = words.frequent_words.show(True).tables
    counts = [round(1e7 / rank) for rank in range(1, 10_001)]
    powers = sum(count**0.75 for count in counts)
    for rank, frequency, kept, noise, ratio in table.rows:
        share = counts[rank - 1] / sum(counts)
        assert frequency == pytest.approx(share)
        assert kept == pytest.approx(min(1, math.sqrt(1e-4 / share) + 1e-4 / share))
        assert noise == pytest.approx(counts[rank - 1] ** 0.75 / powers)
        assert ratio == pytest.approx(noise / share)
