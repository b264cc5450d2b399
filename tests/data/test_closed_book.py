"""Closed-book questions: SQuAD files without their paragraphs, and the scores of written answers."""

from __future__ import annotations

import json
import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.bitext import reading
from unmask.data.bitext.pairs import Bitext, Report
from unmask.errors import UnmaskError
from unmask.metrics.closed_book import NAMES, answer_score
from unmask.runs.translation.plain import frequent
from unmask.runs.translation.scoring import scoring


def squad(path, questions):
    """A file of one paragraph; (question, answers) each, where no answers make a question impossible."""
    context = "Seoul is in Korea. It lies on the river Han."
    qas = [
        {
            "id": str(i),
            "question": question,
            "answers": [{"text": one, "answer_start": context.index(one)} for one in answers],
            "is_impossible": not answers,
        }
        for i, (question, answers) in enumerate(questions)
    ]
    path.write_text(json.dumps({"data": [{"title": "x", "paragraphs": [{"context": context, "qas": qas}]}]}))
    return path


def test_questions_are_read_without_their_paragraph(tmp_path):
    rows = [("Where is Seoul?", ["Korea", "in Korea"]), ("Who?", []), ("Which river?", ["Han"])]
    found = reading.read(squad(tmp_path / "q.json", rows))
    assert list(found) == [("Where is Seoul?", "Korea"), ("Which river?", "Han")]
    assert found.references == [["Korea", "Han"], ["in Korea", None]]
    assert "Seoul is in Korea" not in "".join(found.sources)


def test_a_file_of_this_form_has_no_columns(tmp_path):
    with pytest.raises(UnmaskError, match="not a table"):
        reading.read(squad(tmp_path / "q.json", [("Which river?", ["Han"])]), columns=("a", "b"))


def normalised(text):
    """As evaluate-v1.1.py of SQuAD: lower case, no punctuation, no articles, single spaces."""
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def f1(text, answer):
    """As evaluate-v1.1.py of SQuAD."""
    said, right = normalised(text).split(), normalised(answer).split()
    same = sum((Counter(said) & Counter(right)).values())
    return 2 * same / (len(said) + len(right)) if same else 0.0


words = st.lists(st.sampled_from(["the", "Han", "river", "Korea.", "in"]), min_size=1, max_size=4).map(" ".join)


@given(st.lists(st.tuples(words, words, words), min_size=1, max_size=5))
def test_scores_are_those_of_squad(rows):
    texts, first, second = (list(column) for column in zip(*rows, strict=True))
    found = {name: answer_score(name, texts, [first, second]).value for name in NAMES}
    best = [max(f1(text, one) for one in others) for text, *others in rows]
    exact = [any(normalised(text) == normalised(one) for one in others) for text, *others in rows]
    assert found["f1"] == pytest.approx(100 * sum(best) / len(rows))
    assert found["em"] == pytest.approx(100 * sum(exact) / len(rows))


def test_a_missing_reference_is_no_answer():
    assert answer_score("em", ["Han", "Han"], [["Han", "Korea"], [None, "Han"]]).value == 100


def test_plain_references_are_the_most_frequent_and_the_nearest_answer():
    asked = ["where is Rome ?", "where is Bonn ?", "who wrote it ?"]
    known = Bitext(asked, ["Italy", "Germany", "Italy"], Report("x", 3), [1, 2, 3])
    new = Bitext(["where is Bonn now ?"], ["Germany"], Report("y", 1), [1])
    assert frequent(known) == "Italy"
    found = scoring("questions").plain(new, known)
    assert found["most frequent"]["em"] == 0
    assert found["nearest"]["em"] == 100
