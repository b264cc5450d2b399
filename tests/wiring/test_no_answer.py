"""Questions without an answer: folders that never say so, the best threshold, files for the official script."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.metrics import exact_match, token_f1
from unmask.models.bert import Bert
from unmask.runs.evaluation import evaluate, render_evaluation
from unmask.serve import Predictor, write_predictions
from unmask.tasks import QuestionAnswering, doubting

WORDS = "the film was good and people who talk about strings were bad in a plot of some kind"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """As `transformers` leaves it: a span head, and no word on what has no answer."""
    out = tmp_path_factory.mktemp("span")
    tokenizer = Tokenizer.train([WORDS] * 5, 120)
    config = Bert(vocabulary=tokenizer.size, dim=32, layers=1, heads=2, hidden=64, length=32, std=0.3)
    huggingface.save(out, config.build(as_heads({"span": 2}), seed=3), tokenizer)
    return out


@pytest.fixture(scope="module")
def data(folder, tmp_path_factory):
    """Questions of which the model gets most right; of those that it doubts most, nearly all have no answer."""
    contexts = [" ".join(WORDS.split()[i : i + 5 + i % 4]) for i in range(12)]
    pairs = [(question, context) for question in ("who talk", "what was bad") for context in contexts]
    found = Predictor(folder, no_answer=0.0)(pairs)
    doubted = np.argsort([answer["doubt"] for answer in found])[-9:].tolist()
    paragraphs = []
    for i, ((question, context), answer) in enumerate(zip(pairs, found, strict=True)):
        span = answer["spans"][0 if i % 5 != 1 else -1]
        answers = [{"text": span["text"], "answer_start": span["begin"]}] if (i in doubted) == (i % 8 == 0) else []
        qas = [{"id": f"q{i}", "question": question, "answers": answers, "is_impossible": not answers}]
        paragraphs.append({"context": context, "qas": qas})
    path = tmp_path_factory.mktemp("squad") / "dev-v2.0.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def test_a_folder_that_always_answers_is_told_its_best_threshold(folder, data):
    scores = evaluate(folder, data)
    found = scores["metrics"]
    assert found["no_answer_exact_match"] == 0.0
    assert found["has_answer_exact_match"] > 0
    assert found["best_f1"] > found["f1"]
    assert evaluate(folder, data, no_answer=0.0)["metrics"]["f1"] != found["f1"]  # which is of answers alone
    always, advice = scores["notes"]
    assert "an answer to every question" in always
    said = advice.partition("--no-answer ")[2].split()[0]
    assert float(said) == pytest.approx(found["best_f1_threshold"], abs=2e-6)
    assert advice in render_evaluation(scores)
    again = evaluate(folder, data, no_answer=float(said))
    assert again["metrics"]["f1"] == found["best_f1"]
    assert again["notes"] == []


def test_questions_that_all_have_an_answer_are_scored_as_before(folder, data, tmp_path):
    values = json.loads(data.read_text())
    for paragraph in values["data"][0]["paragraphs"]:
        paragraph["qas"] = [row for row in paragraph["qas"] if row["answers"]]
    path = tmp_path / "dev-v1.1.json"
    path.write_text(json.dumps(values))
    scores = evaluate(folder, path)
    assert "best_f1" not in scores["metrics"]
    assert scores["notes"] == []


def test_the_command_takes_the_threshold(folder, data, capsys):
    main(["evaluate", "--model", str(folder), "--data", str(data), "--no-answer", "-1000000", "--json"])
    assert json.loads(capsys.readouterr().out)["metrics"]["no_answer_exact_match"] == 1.0
    question = json.dumps({"question": "who", "context": "people talk"})
    for threshold, answered in (("-1000000", False), ("1e6", True)):
        main(["predict", "--model", str(folder), "--json", "--no-answer", threshold, question])
        answer = json.loads(capsys.readouterr().out)
        assert bool(answer["answer"]) == answered
        best = answer["spans"][0]
        assert answer["doubt"] == pytest.approx(math.log(answer["no_answer"] / best["probability"]), abs=1e-4)


# ------------------------------------------------------------------------------------------------ the official script


def best_threshold(texts, scores, no_answer, has_answer):
    """The search of the script of SQuAD 2.0: from none answered on, by falling certainty."""
    current = best = sum(not has for has in has_answer.values())
    threshold = 0.0
    for id in sorted(no_answer, key=lambda id: no_answer[id]):
        current += scores[id] if has_answer[id] else (-1 if texts[id] else 0)
        if current > best:
            best, threshold = current, no_answer[id]
    return best / len(scores), threshold


def apply_threshold(scores, no_answer, has_answer, threshold):
    """What the script makes of --na-prob-thresh."""
    return sum(float(not has_answer[id]) if no_answer[id] > threshold else score for id, score in scores.items()) / len(
        scores
    )


def test_the_official_script_finds_our_threshold(folder, data, tmp_path, capsys):
    answers, doubts = tmp_path / "predictions.json", tmp_path / "na_prob.json"
    arguments = ["predict", "--model", str(folder), "--file", str(data), "--out", str(answers)]
    main([*arguments, "--no-answer", "1e6", "--na-prob-file", str(doubts)])
    assert f"24 answers -> {answers}" in capsys.readouterr().out
    texts, no_answer = (json.loads(path.read_text()) for path in (answers, doubts))
    rows = [row for paragraph in json.loads(data.read_text())["data"][0]["paragraphs"] for row in paragraph["qas"]]
    assert texts.keys() == no_answer.keys() == {row["id"] for row in rows}
    assert all(0 <= p <= 1 for p in no_answer.values())
    golds = {row["id"]: [answer["text"] for answer in row["answers"]] or [""] for row in rows}
    has_answer = {row["id"]: bool(row["answers"]) for row in rows}
    ours = evaluate(folder, data)["metrics"]
    for metric, name in ((exact_match, "best_exact_match"), (token_f1, "best_f1")):
        scores = {id: metric(text, golds[id]) if golds[id] != [""] else 0.0 for id, text in texts.items()}
        best, threshold = best_threshold(texts, scores, no_answer, has_answer)
        assert best == pytest.approx(ours[name], abs=1e-12)
        doubt = ours[f"{name}_threshold"]
        assert threshold == pytest.approx(1 / (1 + math.exp(-doubt)), rel=1e-9)
        assert apply_threshold(scores, no_answer, has_answer, threshold) == pytest.approx(best, abs=1e-12)


def test_doubts_of_any_size_are_probabilities(tmp_path):
    given = {"a": -800.0, "b": -1.0, "c": 0.0, "d": 1.0, "e": 800.0, "f": None}
    found = [("?", {"id": id, "answer": "", "spans": [], "doubt": doubt}) for id, doubt in given.items()]
    write_predictions(found, tmp_path / "p.json", no_answer=tmp_path / "n.json")
    values = json.loads((tmp_path / "n.json").read_text())
    low = 1 / (1 + math.e)
    assert list(values.values()) == pytest.approx([0, low, 0.5, 1 - low, 1, 1])


def test_a_context_without_words_has_no_doubt_in_numbers(folder):
    answer = Predictor(folder, no_answer=0.0)([("who", "\u200b")])[0]
    assert (answer["answer"], answer["spans"], answer["doubt"]) == ("", [], None)
    json.dumps(answer, allow_nan=False)


def test_what_cannot_be(folder, data, tmp_path, capsys):
    out, doubts = tmp_path / "p.json", tmp_path / "n.json"
    command = ["predict", "--model", str(folder), "--file", str(data)]
    for arguments, sentence in (
        ([*command, "--out", str(out), "--na-prob-file", str(doubts)], "always answers; give a threshold"),
        ([*command, "--na-prob-file", str(doubts)], "--out FILE"),
        ([*command, "--no-answer", "nan"], "--no-answer must be a number, not 'nan'"),
        (
            ["evaluate", "--model", "m", "--pairs", "a", "b", "--no-answer", "0"],
            "--no-answer goes with --data: it means nothing with --pairs",
        ),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert sentence in capsys.readouterr().err
    assert not out.exists()
    assert not doubts.exists()
    tokenizer = Tokenizer.load(folder)
    model = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=16).build(
        as_heads({"mlm": 0}), seed=0
    )
    huggingface.save(tmp_path / "mlm", model, tokenizer)
    with pytest.raises(UnmaskError, match="Only models that answer questions"):
        Predictor(tmp_path / "mlm", no_answer=0.0)


def test_a_doubting_task_is_otherwise_the_same():
    task = QuestionAnswering(stride=7, longest_answer=3, characters=True)
    other = doubting(task, 1.5)
    assert {**task.settings(), "unanswerable": True, "threshold": 1.5} == other.settings()
    assert not task.unanswerable
