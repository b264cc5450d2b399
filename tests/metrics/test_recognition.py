"""Error rates of transcripts, beside those of jiwer and alignments found by brute force."""

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.metrics import recognition

WORDS = st.lists(st.sampled_from(["a", "b", "cd", "ef"]), max_size=7)
TEXTS = st.lists(WORDS.map(" ".join), min_size=1, max_size=4)


@given(TEXTS, st.data())
def test_the_error_rates_are_those_of_jiwer(references, data):
    hypotheses = [data.draw(WORDS.map(" ".join)) for _ in references]
    if not any(references):
        return
    found = recognition.of_transcripts(hypotheses, references)
    assert found["wer"] == pytest.approx(jiwer.wer(references, hypotheses))
    assert found["cer"] == pytest.approx(jiwer.cer(references, hypotheses))
    parts = ("substitutions", "deletions", "insertions")
    assert sum(found[name] for name in parts) == pytest.approx(found["wer"])


def test_errors_of_a_sentence_have_the_kinds_of_jiwer():
    reference, hypothesis = "the cat sat on the mat", "the bat sat the mat too"
    theirs = jiwer.process_words(reference, hypothesis)
    found = recognition.word_errors(reference, hypothesis)
    assert (found.hits, found.substitutions, found.deletions, found.insertions) == (
        theirs.hits,
        theirs.substitutions,
        theirs.deletions,
        theirs.insertions,
    )


@given(WORDS, WORDS)
def test_an_alignment_holds_both_texts_and_has_the_fewest_errors(reference, hypothesis):
    pairs = recognition.align(reference, hypothesis)
    assert [one for one, _ in pairs if one is not None] == reference
    assert [other for _, other in pairs if other is not None] == hypothesis
    assert (None, None) not in pairs
    assert recognition.errors_of(pairs).count == _distance(tuple(reference), tuple(hypothesis))


def _distance(one, other):
    """The edit distance by its recursive definition."""
    if not one or not other:
        return len(one) + len(other)
    rest = _distance(one[1:], other[1:]) + (one[0] != other[0])
    return rest if one[0] == other[0] else min(rest, _distance(one[1:], other) + 1, _distance(one, other[1:]) + 1)


def test_texts_without_words():
    assert recognition.of_transcripts(["a b"], [""])["wer"] == 2
    assert recognition.of_transcripts([""], [""]) == dict.fromkeys(
        ("wer", "cer", "substitutions", "deletions", "insertions"), 0.0
    ) | {"correct": 1.0}
    assert recognition.word_errors("  a   b ", "a b").count == 0
    assert recognition.character_errors("  a   b ", "a b").count == 0
