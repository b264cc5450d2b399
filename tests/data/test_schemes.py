"""Tag schemes: `metrics.spans` says what tags mean; whatever is converted, detected or allowed must agree with it."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask import metrics
from unmask.data.labelled import schemes
from unmask.data.labelled.schemes import SCHEMES, allowed, convert, detect, tag_set, to_tags
from unmask.errors import UnmaskError

NAMES = sorted(SCHEMES)


@st.composite
def sentences(draw, kinds=("PER", "LOC")):
    """(spans, length) of a sentence; spans may touch."""
    length = draw(st.integers(0, 9))
    cuts = sorted(draw(st.sets(st.integers(0, length))))
    found = [(a, b, draw(st.sampled_from(kinds))) for a, b in pairwise(cuts)]
    return [span for span in found if draw(st.booleans())], length


any_tags = st.lists(
    st.builds(
        lambda prefix, kind: prefix if prefix == "O" else f"{prefix}-{kind}", *map(st.sampled_from, ("OBIESLU", "XY"))
    )
)

WRITTEN = {
    "IOB1": "I-PER I-PER O I-LOC B-LOC I-LOC I-PER O I-A-B",
    "IOB2": "B-PER I-PER O B-LOC B-LOC I-LOC B-PER O B-A-B",
    "IOBES": "B-PER E-PER O S-LOC B-LOC E-LOC S-PER O S-A-B",
    "BILOU": "B-PER L-PER O U-LOC B-LOC L-LOC U-PER O U-A-B",
}


@pytest.mark.parametrize(("source", "target"), list(product(NAMES, NAMES)))
def test_a_sentence_in_every_scheme(source, target):
    assert convert(WRITTEN[source].split(), target) == tuple(WRITTEN[target].split())


@given(any_tags)
def test_spans_are_read_as_the_metric_reads_them(tags):
    assert schemes.spans(tags) == metrics.spans(tags)


@pytest.mark.parametrize("bare", [False, True])
@given(sentences(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=5))
def test_spans_survive_every_way_through_the_schemes(bare, sentence, way):
    spans, length = sentence
    spans = [(a, b, "" if bare else kind) for a, b, kind in spans]
    tags = to_tags(spans, length, way[0])
    for name in way:
        tags = convert(tags, name)
        assert metrics.spans(tags) == spans
        assert tags == to_tags(spans, length, name)
        assert set(tags) <= set(tag_set(["" if bare else "PER", "LOC"], name))


@given(any_tags, st.sampled_from(NAMES))
def test_faulty_tags_become_sound_ones_with_the_same_spans(tags, name):
    assert metrics.spans(convert(tags, name)) == metrics.spans(tags)


@given(st.lists(sentences(), min_size=1), st.sampled_from(NAMES))
def test_detected_is_the_scheme_that_says_the_same(written, name):
    """Where tags are alike in two schemes either may be said, as long as converting to it changes nothing."""
    tags = [to_tags(*sentence, name) for sentence in written]
    found = detect(tags)
    if not any(spans for spans, _ in written):
        assert found is None
        return
    assert [convert(sentence, found) for sentence in tags] == tags
    only = {"IOBES": "ES", "BILOU": "LU"}.get(name, "")
    assert found == name or not any(tag[0] in only for sentence in tags for tag in sentence)


@pytest.mark.parametrize("name", NAMES)
def test_detected_in_sentences_that_speak_for_one(name):
    assert detect([WRITTEN[name].split(), ["O", "O"]]) == name


def test_a_few_faults_do_not_outvote_the_rest():
    assert detect([["B-A", "I-A"], ["O", "B-A"], ["O", "I-A"]]) == "IOB2"
    assert detect([["I-A", "I-A"], ["O", "I-A"], ["O", "B-A"]]) == "IOB1"
    assert detect([["O", "B-A"], ["O", "I-A"]]) == "IOB2"


@pytest.mark.parametrize(
    "tags", ["NOUN VERB", "O O", "", "O B-PER NOUN", "B C", "S E", "B-", "O-PER B-PER", "B I-PER O", "b-per", "B_PER"]
)
def test_tags_of_no_scheme(tags):
    assert detect([tags.split()]) is None


@given(st.sets(st.sampled_from(["O", "B", "I", "E", "S", "B-X", "I-X", "S-Y", "B-", "NOUN", "B_X", "X-Y"])))
def test_tags_with_a_scheme_are_those_that_the_metric_counts_by_span(tags):
    odd = "B-" in tags or ("O" not in tags and tags <= {"B", "I", "E", "S"})  # no data set has these
    assert odd or (detect([sorted(tags)]) is not None) == metrics.are_iob(sorted(tags))


def test_two_schemes_at_once():
    with pytest.raises(UnmaskError, match=r"E-PER, U-LOC are of two schemes, IOBES and BILOU; use only one"):
        detect([["B-PER", "E-PER"], ["U-LOC"]])


def test_errors_name_what_is_wrong():
    with pytest.raises(UnmaskError, match="no tag scheme 'BIOES'; did you mean 'IOBES'"):
        convert(["O"], "BIOES")
    for function in (tag_set, allowed):
        with pytest.raises(UnmaskError, match="no tag scheme 'BIO2'"):
            function(["A"], "BIO2")
    with pytest.raises(UnmaskError, match="The tag 'NOUN' is not a tag of spans"):
        convert(["O", "NOUN"])
    for spans in ([(0, 2, "A"), (1, 3, "A")], [(0, 4, "A")], [(1, 1, "A")], [(-1, 1, "A")]):
        with pytest.raises(UnmaskError, match="of 3 words"):
            to_tags(spans, 3)


def test_tag_set():
    assert tag_set(["PER", "LOC", "PER"], "IOBES") == (
        *("O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"),
        *("B-PER", "I-PER", "E-PER", "S-PER"),
    )
    assert tag_set([""]) == ("O", "B", "I")


# ------------------------------------------------------------------------------------------------ what is allowed


def is_allowed(tags, labels, rules):
    places = [labels.index(tag) for tag in tags]
    steps = all(rules.between[a, b] for a, b in pairwise(places))
    return bool(steps and rules.begin[places[0]] and rules.end[places[-1]])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kinds", [["X", "Y"], [""]])
def test_allowed_are_exactly_the_sequences_that_the_scheme_writes(name, kinds):
    """All sequences of up to four tags: one is legal where writing its spans in the scheme gives it back."""
    labels = tag_set(kinds, name)
    rules = allowed(labels, name)
    for length in range(1, 5 if len(labels) < 8 else 4):
        for tags in product(labels, repeat=length):
            assert is_allowed(tags, labels, rules) == (to_tags(metrics.spans(tags), length, name) == tags), tags


@pytest.mark.parametrize(
    ("labels", "legal", "illegal"),
    [
        ("O B-X I-X E-X S-X", "B-X E-X", "B-X O"),
        ("O B-X I-X L-X U-X", "B-X L-X", "B-X U-X"),
        ("I-X O B-Y I-Y", "I-X I-Y B-Y", "O B-Y"),  # an I that no B begins: IOB1
    ],
)
def test_tags_alone_tell_some_schemes(labels, legal, illegal):
    rules = allowed(labels.split())
    assert is_allowed(legal.split(), labels.split(), rules)
    assert not is_allowed(illegal.split(), labels.split(), rules)


@pytest.mark.parametrize("labels", ["O B-X I-X", "NOUN VERB ADJ", "O B I", "O B-X I-X NOUN"])
def test_everything_is_allowed_where_tags_do_not_tell(labels):
    rules = allowed(labels.split())
    count = len(labels.split())
    assert [part.shape for part in rules] == [(count, count), (count,), (count,)]
    assert all(part.all() and part.dtype == np.bool_ for part in rules)


def test_a_scheme_that_is_given_decides():
    labels = ["O", "B-X", "I-X"]
    assert allowed(labels, "IOB2").begin.tolist() == [True, True, False]
    assert allowed(labels, "IOB1").begin.tolist() == [True, False, True]
    assert allowed(["NOUN", "VERB"], "IOB2").between.all()
