"""Entities of tagged sentences, beside the rules of conlleval and beside seqeval."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask import metrics

FILES = 250  # of each sort
KINDS = ["PER", "LOC", "B-LOC"]  # hyphens may stand in a kind
LABELS = ["O", "B-PER", "I-PER"]


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("O B-A I-A O", [(1, 3, "A")]),
        ("B-A B-A I-A", [(0, 1, "A"), (1, 3, "A")]),
        ("I-A I-A B-A I-A", [(0, 2, "A"), (2, 4, "A")]),  # IOB1: B only between neighbours of one kind
        ("I-A I-B", [(0, 1, "A"), (1, 2, "B")]),
        ("B-A I-B I-B", [(0, 1, "A"), (1, 3, "B")]),
        ("O I-A", [(1, 2, "A")]),
        ("B-A E-A S-A", [(0, 2, "A"), (2, 3, "A")]),
        ("B-A E-A I-A", [(0, 2, "A"), (2, 3, "A")]),
        ("B-A E-A B-A E-A", [(0, 2, "A"), (2, 4, "A")]),
        ("S-A S-A", [(0, 1, "A"), (1, 2, "A")]),
        ("B-A L-A U-B O", [(0, 2, "A"), (2, 3, "B")]),
        ("B-A-B I-A-B I-A", [(0, 2, "A-B"), (2, 3, "A")]),
        ("B I O I B", [(0, 2, ""), (3, 4, ""), (4, 5, "")]),
        ("X-A B-A E-A X-A", [(0, 4, "A")]),  # an unknown prefix says the kind alone
        ("B-A X I-A [PAD]", [(0, 1, "A"), (2, 3, "A")]),
        ("O O", []),
        ("", []),
    ],
)
def test_spans(tags, wanted):
    assert metrics.spans(tags.split()) == wanted


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ("O B-PER I-PER", True),
        ("I-PER O", True),
        ("B-A I-A E-A S-A O", True),
        ("B-A I-A L-A U-A O", True),
        ("O B I", True),
        ("B I O E S", True),
        ("O", False),
        ("0 1", False),
        ("B I", False),
        ("NOUN VERB ADJ-2", False),
        ("O B-PER PER", False),
        ("N-sg V-past", False),
    ],
)
def test_which_labels_mark_entities(labels, wanted):
    assert metrics.are_iob(labels.split()) is wanted


# ------------------------------------------------------------------------------------------------ conlleval

ENDS = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("E", "E"), ("E", "I"), ("E", "O")}
STARTS = {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I"), ("E", "E"), ("E", "I"), ("O", "E")}


def conlleval(predicted, true):
    """Kind -> [right, found, in the corpus], as the script of the shared tasks (version of 2004) counts chunks.

    Between two words a chunk ends, and one starts, as the two tables say, and wherever the types differ: it ends
    unless the word before is outside, and starts unless the word behind is. A chunk is right if it starts with a
    chunk of the same type in the corpus and they end together.
    """

    def split(tag):
        prefix, _, kind = tag.partition("-")
        return prefix, kind

    def ends(a, b):
        return (a[0], b[0]) in ENDS or (a[0] != "O" and a[1] != b[1])

    def starts(a, b):
        return (a[0], b[0]) in STARTS or (b[0] != "O" and a[1] != b[1])

    counts = {}
    for ps, ts in zip(predicted, true, strict=True):
        last, going = (split("O"), split("O")), False
        for pair in zip([*ps, "O"], [*ts, "O"], strict=True):
            this = tuple(map(split, pair))
            end = [ends(a, b) for a, b in zip(last, this, strict=True)]
            start = [starts(a, b) for a, b in zip(last, this, strict=True)]
            if going:
                if all(end):
                    counts.setdefault(last[0][1], [0, 0, 0])[0] += 1
                going = not any(end) and this[0][1] == this[1][1]
            going |= all(start) and this[0][1] == this[1][1]
            for i in range(2):
                if start[i]:
                    counts.setdefault(this[i][1], [0, 0, 0])[1 + i] += 1
            last = this
    return counts


def fractions(right, found, corpus):
    """Precision, recall and F1 as the script computes them."""
    precision = right / found if found else 0.0
    recall = right / corpus if corpus else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {"f1": f1, "precision": precision, "recall": recall}


def check(predicted, true, reference, labels=LABELS):
    """That whole and parts equal what the reference counts."""
    flat = [(p, t) for ps, ts in zip(predicted, true, strict=True) for p, t in zip(ps, ts, strict=True)]
    accuracy = sum(p == t for p, t in flat) / len(flat)
    wanted = fractions(*(sum(column) for column in zip(*reference.values(), strict=True))) if reference else {}
    found = metrics.of_tags(predicted, true, labels)
    assert found == pytest.approx({**fractions(0, 0, 0), **wanted, "accuracy": accuracy}, rel=0, abs=1e-9)
    report = metrics.per_tag(predicted, true, labels)
    assert report.keys() == reference.keys()
    for kind, (right, guessed, corpus) in reference.items():
        wanted = {**fractions(right, guessed, corpus), "support": corpus}
        assert report[kind] == pytest.approx(wanted, rel=0, abs=1e-9)


def random_spans(rng, words):
    """Neighbouring, distant, long and short entities."""
    found, i = [], int(rng.integers(0, 3))
    while i < words:
        end = min(words, i + int(rng.integers(1, 4)))
        found.append((i, end, str(rng.choice(KINDS))))
        i = end + max(0, int(rng.integers(-2, 4)))
    return found


def written(spans, words, scheme):
    """The tags of a sentence in a scheme."""
    tags = ["O"] * words
    for begin, end, kind in spans:
        for i in range(begin, end):
            if scheme == "IOB1":
                touches = i == begin and any(e == begin and k == kind for _, e, k in spans)
                prefix = "B" if touches else "I"
            elif scheme == "IOE2":
                prefix = "E" if i == end - 1 else "I"
            else:
                single, last = {"IOB2": "BI", "IOBES": "SE", "BILOU": "UL"}[scheme]
                prefix = single if end - begin == 1 else "B" if i == begin else last if i == end - 1 else "I"
            tags[i] = f"{prefix}-{kind}"
    return tags


def random_files(rng, scheme, noise=""):
    """A file of true and predicted spans, both written as tags, and some of them overwritten at random."""
    sizes = rng.integers(1, 12, rng.integers(1, 6)).tolist()
    true = [random_spans(rng, words) for words in sizes]
    predicted = [s if rng.random() < 0.5 else random_spans(rng, n) for s, n in zip(true, sizes, strict=True)]
    files = [[written(s, n, scheme) for s, n in zip(f, sizes, strict=True)] for f in (predicted, true)]
    alphabet = ["O", *(f"{prefix}-{kind}" for prefix in noise for kind in KINDS)]
    rate = rng.choice([0.1, 0.5]) if noise else 0.0
    for sentence in [sentence for file in files for sentence in file]:
        for i in np.flatnonzero(rng.random(len(sentence)) < rate):
            sentence[i] = str(rng.choice(alphabet))
    return files


@pytest.mark.parametrize(
    ("scheme", "noise"),
    [("IOB1", ""), ("IOB2", ""), ("IOE2", ""), ("IOB1", "BI"), ("IOB2", "BI"), ("IOB2", "BIXQ"), ("IOE2", "IEX")],
)
def test_entities_are_counted_as_conlleval_counts_them(scheme, noise):
    rng = np.random.default_rng(len(scheme + noise))
    right = 0
    for _ in range(FILES):
        predicted, true = random_files(rng, scheme, noise)
        reference = conlleval(predicted, true)
        right += sum(counts[0] for counts in reference.values())
        check(predicted, true, reference)
    assert right > FILES


@pytest.mark.parametrize("scheme", ["IOBES", "BILOU"])
def test_every_scheme_counts_what_conlleval_counts_in_iob2(scheme):
    rng = np.random.default_rng(5)
    rewritten = str.maketrans("SEUL", "BIBI")
    for _ in range(FILES):
        predicted, true = random_files(rng, scheme)
        plain = [
            [[tag[0].translate(rewritten) + tag[1:] for tag in tags] for tags in file] for file in (predicted, true)
        ]
        check(predicted, true, conlleval(*plain))


@pytest.mark.parametrize(("scheme", "noise"), [("IOB2", ""), ("IOBES", ""), ("IOB1", "BI"), ("IOBES", "BIES")])
def test_entities_are_those_of_seqeval(scheme, noise):
    sequence_labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    rng = np.random.default_rng(7)
    for _ in range(FILES):
        predicted, true = random_files(rng, scheme, noise)
        counts: dict[str, list[int]] = {}
        found = [
            {(s, *entity) for s, tags in enumerate(file) for entity in sequence_labeling.get_entities(tags)}
            for file in (predicted, true)
        ]
        for place, entities in enumerate((found[0] & found[1], *found)):
            for kind, count in Counter(kind for _, kind, _, _ in entities).items():
                counts.setdefault(kind, [0, 0, 0])[place] = count
        check(predicted, true, counts)


@given(st.lists(st.sampled_from(["O", *(f"{p}-{k}" for p in "BIESLUX" for k in "AB"), "B", "I", "X", ""]), max_size=12))
def test_spans_are_in_order_and_cover_what_has_a_kind(tags):
    found = metrics.spans(tags)
    assert all(begin < end for begin, end, _ in found)
    assert all(a[1] <= b[0] for a, b in pairwise(found))
    covered = {i for begin, end, _ in found for i in range(begin, end)}
    assert covered == {i for i, tag in enumerate(tags) if tag not in ("O", "X", "")}
    assert all(tags[i].partition("-")[2] == kind for begin, end, kind in found for i in range(begin, end))


@given(st.data())
def test_spans_come_back_from_every_scheme(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    words = data.draw(st.integers(1, 15))
    spans = random_spans(rng, words)
    for scheme in ("IOB1", "IOB2", "IOE2", "IOBES", "BILOU"):
        assert metrics.spans(written(spans, words, scheme)) == spans, scheme


def test_nothing_predicted_and_nothing_there():
    assert metrics.of_tags([["O"]], [["O"]], LABELS) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 1}
    assert metrics.of_tags([], [], LABELS)["accuracy"] == 0.0
    assert metrics.of_spans([[]], [[(0, 1, "A")]]) == {"f1": 0, "precision": 0, "recall": 0}


def test_sentences_of_unlike_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        metrics.of_tags([["O"]], [["O", "O"]], LABELS)


def test_words_are_counted_where_there_are_no_entities():
    found = metrics.of_tags([["1", "1", "0", "0"]], [["1", "0", "1", "0"]], ["0", "1"])
    assert found == pytest.approx({"f1": 0.5, "precision": 0.5, "recall": 0.5, "accuracy": 0.5})
    assert metrics.of_tags([["N", "V"]], [["N", "N"]], ["D", "N", "V"]) == {"accuracy": 0.5}
    assert metrics.per_tag([["N", "V"]], [["N", "N"]], ["D", "N", "V"])["N"] == pytest.approx(
        {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 2}
    )
