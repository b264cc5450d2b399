"""N-gram models: files, and probabilities beside those of a formula written out."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.files.lines import lines
from unmask.errors import UnmaskError
from unmask.generate.ngrams import BEGIN, END, UNKNOWN, NGrams, counted

ARPA = """
\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1.0\t</s>
-99\t<s>\t-0.3
-0.5\tyes\t-0.2
-0.7\tno

\\2-grams:
-0.1\t<s> yes
-0.4\tyes no

\\end\\
"""


def test_an_arpa_file_gives_its_probabilities_with_backoff(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA)
    model = NGrams.read(lines(path), path)
    ten = math.log(10)
    assert model(("yes", "no")) == pytest.approx(ten * (-0.1 - 0.4))
    assert model(("no",)) == pytest.approx(ten * (-0.3 - 0.7))  # the backoff of <s>, then the word alone
    assert model(("yes",), True) == pytest.approx(ten * (-0.1 - 0.2 - 1.0))
    assert model(("maybe",)) == pytest.approx(ten * (-0.3 - 7.0))  # no <unk>


SENTENCES = st.lists(st.lists(st.sampled_from("abc"), max_size=4), min_size=1, max_size=6)


@given(SENTENCES.filter(lambda found: any(found)), st.integers(1, 4), st.lists(st.sampled_from("abcx"), max_size=4))
@settings(max_examples=60, deadline=None)
def test_the_probabilities_of_all_words_sum_to_one(sentences, order, context):
    model = counted(sentences, order)
    words = {*(word for sentence in sentences for word in sentence), END, UNKNOWN}
    total = sum(math.exp(model.log_p(word, (BEGIN, *context))) for word in words)
    assert total == pytest.approx(1)


def test_bigrams_by_hand():
    """Of "a b" and "a c": p(b | a) = (1 - D) / 2 + (2 D / 2) p(b), where p(b) counts the words before b."""
    model = counted([["a", "b"], ["a", "c"]], 2)
    # bigrams: <s> a (2), a b (1), a c (1), b </s> (1), c </s> (1): n1 = 4, n2 = 1, D = 4 / 6
    # words by what is before them: a 1, b 1, c 1, </s> 2: n1 = 3, n2 = 1, D = 3 / 5; the uniform part over 5 words
    uniform = (3 / 5) * 4 / 5 / 5
    b = (1 - 3 / 5) / 5 + uniform
    assert math.exp(model.log_p("b", (BEGIN, "a"))) == pytest.approx((1 - 4 / 6) / 2 + (4 / 6) * 2 / 2 * b)
    assert math.exp(model.log_p("x", ("c",))) == pytest.approx((4 / 6) * 1 / 1 * uniform)


def test_a_model_survives_its_file(tmp_path):
    model = counted([["a", "b"], ["b", "a", "b"]], 3)
    model.save(tmp_path / "lm.arpa")
    loaded = NGrams.read(lines(tmp_path / "lm.arpa"), tmp_path / "lm.arpa")
    for words in (("a",), ("b", "a", "b"), ("x", "a")):
        assert loaded(words, True) == pytest.approx(model(words, True), rel=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yes no", "not a whole ARPA file"),
        (ARPA.replace("ngram 2=2", "ngram 2=3"), "not a whole ARPA file"),
        (ARPA.replace("-0.5\tyes\t-0.2", "half\tyes\t-0.2"), "lm.arpa:9 is not a 1-gram"),
        (ARPA.replace("-0.4\tyes no", "-0.4\tyes"), "is not a 2-gram"),
        (ARPA.replace("ngram 2=2", "ngram two=2"), "lm.arpa:4 has no number"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, text, message):
    path = tmp_path / "lm.arpa"
    path.write_text(text)
    with pytest.raises(UnmaskError, match=message):
        NGrams.read(lines(path), path)


def test_sentences_without_words_teach_nothing():
    with pytest.raises(UnmaskError, match="needs sentences with words"):
        counted([[]])
