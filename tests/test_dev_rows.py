"""The dev rows that a fine-tuned folder keeps: what a request sends for a row, and how wrong an answer is."""

from __future__ import annotations

import json

import numpy as np
import pytest

from unmask import metrics
from unmask.data.labelled.rows import Choices, Question, Row
from unmask.data.pictures.reading import Picture
from unmask.data.recordings.reading import Recording
from unmask.tasks import (
    Classification,
    Coreference,
    Embedding,
    ImageClassification,
    MultiLabel,
    MultipleChoice,
    QuestionAnswering,
    Regression,
    SpeechClassification,
    Tagging,
    dev_rows,
)
from unmask.tasks.found_spans import Found, Span

ROWS = [
    (Classification, Row("a film")),
    (Classification, Row("a film", "and a pair")),
    (Tagging, Row(words=("Ada", "slept"), predicate=1)),
    (QuestionAnswering, Question("who slept", "Ada slept")),
    (MultipleChoice, Choices("she", "then", choices=("slept", "ran"))),
    (MultipleChoice, Choices("she", None, choices=("slept", "ran"))),
    (ImageClassification, Picture(source=b"bytes")),
    (SpeechClassification, Recording(source=b"bytes")),
]


@pytest.mark.parametrize(("task", "row"), ROWS)
def test_a_request_for_a_row_is_that_row(task, row):
    item = json.loads(json.dumps(task.form.item(row)))
    read = task.form.as_row(item, 1)
    for name in ("texts", "pair", "words", "predicate", "choices", "source"):
        assert getattr(read, name, None) == getattr(row, name, None)


def test_what_no_request_can_send_is_left_out(tmp_path):
    (tmp_path / "large.wav").write_bytes(bytes(70_000))
    assert SpeechClassification.form.item(Recording(source=b"bytes", begin=1.0)) is None
    assert SpeechClassification.form.item(Recording(source=tmp_path / "large.wav")) is None
    assert SpeechClassification.form.item(Recording(source=tmp_path / "gone.wav")) is None
    assert Coreference.form.item(Row(words=("Ada", "slept"))) == {"words": ["Ada", "slept"]}


def test_errors_are_those_of_the_metrics():
    """The mean error is 1 - the metric that scikit-learn's definition gives, for answers of one label."""
    rng, labels = np.random.default_rng(0), ("a", "b", "c")
    rows = [Row("x", label=str(label)) for label in rng.choice(labels, 40)]
    answers = [rng.dirichlet(np.ones(3))[None] for _ in rows]
    task = Classification(labels)
    found = [task.compared(row, answer) for row, answer in zip(rows, answers, strict=True)]
    assert np.mean([error == 0 for *_, error in found]) == pytest.approx(task.metrics(answers, rows)["accuracy"])
    assert all(error == 0 or error == pytest.approx(a.max()) for (*_, error), a in zip(found, answers, strict=True))


def test_errors_of_other_tasks():
    tagger = Tagging(("O", "B-PER", "I-PER"))
    tags = np.array([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.9, 0.05, 0.05]])
    assert tagger.compared(Row(words=("Ada", "B", "ran"), tags=("B-PER", "I-PER", "O")), tags) == (
        "B-PER I-PER O", "B-PER O O", pytest.approx(1 / 3),
    )  # fmt: skip
    score = Regression.compared(Regression(), Row("x", label="2"), np.array([[2.5]]))
    assert score == ("2", "2.500", pytest.approx(0.5))
    several = MultiLabel(("a", "b", "c")).compared(Row("x", labels=("a", "b")), np.array([[0.9, 0.1, 0.7]]))
    assert several == ("a, b", "a, c", 2.0)
    choice = MultipleChoice().compared(Choices("x", label="1", choices=("no", "yes")), np.array([[0.8, 0.2]]))
    assert choice == ("yes", "no", pytest.approx(0.8))


def test_an_answer_to_a_question_is_wrong_by_its_f1():
    row = Question("who", "Ada Lovelace slept", answers=((0, "Ada Lovelace"),), id="1")
    found = Found([Span("Ada", 0, 3, 1.0, 0.9)], 0.0, 0.1, [])
    expected, predicted, error = QuestionAnswering().compared(row, found)
    assert (expected, predicted) == ("Ada Lovelace", "Ada")
    assert error == pytest.approx(1 - metrics.token_f1("Ada", ["Ada Lovelace"]))


@pytest.mark.parametrize(
    ("task", "row", "texts", "expected"),
    [
        (Classification.written("sst2", ["negative", "positive"]), Row("x", label="1"), ["Positive"], ("positive", 0)),
        (Classification.written("sst2", ["negative", "positive"]), Row("x", label="1"), ["odd"], ("positive", 1)),
        (Regression.written("stsb", (), 3.0), Row("x", label="2.5"), ["4.0"], ("2.5", 1.5)),
        (Regression.written("stsb", (), 3.0), Row("x", label="2.5"), ["many"], ("2.5", 0.5)),  # counts as the mean
        (MultiLabel.written("m", ["a", "b"]), Row("x", labels=("a", "b")), ["a, b"], ("a, b", 0)),
        (MultiLabel.written("m", ["a", "b"]), Row("x", labels=("a", "b")), ["b"], ("a, b", 1)),
        (
            MultipleChoice.written("c", ["choice1", "choice2"]),
            Choices("x", label="1", choices=("n", "y")),
            ["choice2"],
            ("choice2", 0),
        ),
        (
            QuestionAnswering.written("squad"),
            Question("who", "Ada Byron ran", answers=((0, "Ada Byron"),)),
            ["Ada"],
            ("Ada Byron", 1 / 3),
        ),
        (
            Tagging.written("t", ["O", "B-PER"]),
            Row(words=("Ada", "ran"), tags=("B-PER", "O")),
            ["<extra_id_0> O <extra_id_1> O"],
            ("B-PER O", 1 / 2),
        ),
    ],
)
def test_errors_of_texts_that_a_model_wrote(task, row, texts, expected):
    true, _, error = task.compared(row, texts)
    assert (true, error) == (expected[0], pytest.approx(expected[1]))
    assert task.by_row([*texts, *texts], [row, row]) == [texts, texts]
    assert task.form.item(row) is not None


def test_all_rows_of_an_evaluation_have_an_answer(tmp_path):
    rows, vectors = [Row("a film", "a plot", label="3")], [np.eye(2)]
    dev_rows.write_all(tmp_path / "rows.jsonl", Embedding(), vectors, rows)
    assert json.loads((tmp_path / "rows.jsonl").read_text())["answer"] == {"similarity": 0.0}
    dev_rows.write(tmp_path, Embedding(), vectors, rows)
    assert "answer" not in dev_rows.read(tmp_path)[0]


def test_the_file_is_limited_and_read_despite_damage(tmp_path, monkeypatch):
    rows = [Row("word " * n, label="a", place=f"dev:{n}") for n in (1, 2, 30_000, 3)]
    answers = [np.array([[0.9, 0.1]])] * 4
    dev_rows.write(tmp_path, Classification(("a", "b")), answers, rows)
    found = dev_rows.read(tmp_path)
    assert [("input" in row, row["error"]) for row in found] == [(True, 0), (True, 0), (False, 0), (True, 0)]
    monkeypatch.setattr(dev_rows, "MOST", 2)
    dev_rows.write(tmp_path, Classification(("a", "b")), answers, rows)
    assert [row["place"] for row in dev_rows.read(tmp_path)] == ["dev:1", "dev:2"]
    path = tmp_path / dev_rows.FILE
    path.write_text(path.read_text() + "[1]\n{\n")
    assert len(dev_rows.read(tmp_path)) == 2
    assert dev_rows.read(tmp_path / "nothing") == []
