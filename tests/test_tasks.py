"""Tasks: encoding, windows, answers in order, losses and metrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask.data import collate
from unmask.data.labelled.dataset import Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.tasks import Classification, Regression, Tagging, evaluating, task_of
from unmask.tasks.lengths import windows
from unmask.tasks.reading import read


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["the film was good and the plot bad with people who talk"] * 3, 120)


def build(tokenizer, task, length=64, **fields):
    return Bert(
        vocabulary=tokenizer.size, length=length, layers=2, dim=32, heads=2, hidden=64, std=0.2, **fields
    ).build(heads=task.heads)


def test_texts_and_pairs_become_ids_and_targets(tokenizer):
    task = Classification(["neg", "pos"])
    rows = [Row("the film", None, "pos"), Row("the film", "was good", "neg"), Row("the plot")]
    encoded = task.encode(rows, tokenizer, 32)
    first, second = tokenizer.ids(["the film", "was good"])
    tokens, segments = tokenizer.join(first, second)
    np.testing.assert_array_equal(encoded.examples[1].tokens, tokens)
    np.testing.assert_array_equal(encoded.examples[1].segments, segments)
    assert [int(e.targets["classification"][1][0]) for e in encoded.examples] == [1, 0, 0]
    assert (encoded.cut, encoded.notice) == ((), "")


def test_what_is_cut_is_counted_and_said(tokenizer):
    task = Classification(["a", "b"])
    whole = len(task.encode([Row("the film was good")], tokenizer, 64).examples[0].tokens)
    rows = [Row("the film was good"), Row("the"), Row("the film was good and bad")]
    encoded = task.encode(rows, tokenizer, whole)
    assert encoded.cut == (2,)
    assert encoded.notice == f"1 of 3 rows (33.3%) are longer than {whole} tokens and were cut."
    assert max(len(e.tokens) for e in encoded.examples) == whole


def test_words_that_the_vocabulary_lacks_are_counted_and_said(tokenizer):
    task = Classification(["a", "b"])
    encoded = task.encode([Row("the film"), Row("\u4e00 the \u4e01")], tokenizer, 32)
    tokens = [i for example in encoded.examples for i in example.tokens.tolist()]
    share = tokens.count(tokenizer.unknown) / len(tokens)
    assert share > 0.01
    assert encoded.said(tokenizer) == f"{share:.1%} of the tokens stand for words that the vocabulary lacks."
    assert task.encode([Row("the film")], tokenizer, 32).said(tokenizer) == ""


@given(st.integers(0, 200), st.integers(1, 40))
def test_windows_answer_for_every_piece_once(pieces, room):
    found = list(windows(pieces, room))
    answered = [i for _, low, high in found for i in range(low, high)]
    assert answered == list(range(pieces))
    for begin, low, high in found:
        assert begin <= low
        assert high <= begin + room
    for begin, _, _ in found[1:]:
        assert begin + room <= pieces  # later windows are full


@given(st.lists(st.sampled_from(["film", "talk", "zzzzqqqq", "", "ab cd", "good"]), max_size=40), st.integers(4, 20))
def test_every_word_has_a_target_at_its_first_piece(words, length):
    tokenizer = TOKENIZER
    task = Tagging(["O", "X", "Y"])
    rng = np.random.default_rng(len(words))
    tags = [task.labels[i] for i in rng.integers(0, 3, len(words))]
    encoded = task.encode([Row(words=tuple(words), tags=tuple(tags))], tokenizer, length)
    firsts = np.unique(tokenizer.encode_words(words).words, return_index=True)[1]
    wanted = tokenizer.encode_words(words).ids[firsts]
    ids = [e.tokens[e.targets["tagging"][0]] for e in encoded.examples]
    values = [e.targets["tagging"][1] for e in encoded.examples]
    np.testing.assert_array_equal(np.concatenate(ids), wanted)
    assert [task.labels[i] for i in np.concatenate(values)] == tags
    assert all(len(e.tokens) <= length for e in encoded.examples)


TOKENIZER = Tokenizer.train(["the film was good and the plot bad with people who talk"] * 3, 120)


def test_long_sentences_are_split_and_said(tokenizer):
    task = Tagging(["O", "X"])
    rows = [Row(words=("film",) * 50, tags=("X",) * 50), Row(words=("good",), tags=("O",))]
    encoded = task.encode(rows, tokenizer, 16)
    assert encoded.split == 1
    assert "were split" in encoded.notice
    assert (encoded.owners == 0).sum() > 3
    answers = task.answer_all(build(tokenizer, task).eval(), encoded, tokenizer.pad)
    assert [answer.shape for answer in answers] == [(50, 2), (1, 2)]
    with pytest.raises(UnmaskError, match="no room"):
        task.encode(rows, tokenizer, 2)


def test_a_split_sentence_sees_its_neighbours(tokenizer):
    """Answers of windows equal those of the same windows alone, word by word."""
    task = Tagging(["O", "X"])
    model = build(tokenizer, task).eval()
    words = ("film", "good", "talk", "bad", "people", "the", "was", "plot") * 4
    encoded = task.encode([Row(words=words)], tokenizer, 14)
    together = task.answer_all(model, encoded, tokenizer.pad)[0]
    alone = [task.answers(model, collate.pad([example], tokenizer.pad, 1))[0] for example in encoded.examples]
    with torch.no_grad():
        np.testing.assert_allclose(together, np.concatenate([np.asarray(a) for a in alone]), atol=1e-5)
    assert together.std() > 1e-3


@pytest.mark.parametrize("packed", [True, False])
def test_answers_come_in_the_order_of_the_examples(tokenizer, packed):
    task = Classification(["a", "b", "c"])
    model = build(tokenizer, task).eval()
    texts = ["film", "the film was good and bad", "talk talk", "people who talk with the plot", "good", "bad bad bad"]
    encoded = task.encode([Row(text) for text in texts], tokenizer, 32)
    with torch.no_grad():
        batch = (
            collate.pack(encoded.examples, 32, tokenizer.pad)
            if packed
            else collate.pad(encoded.examples, tokenizer.pad)
        )
        together = np.concatenate(task.answers(model, batch))
        alone = [task.answers(model, collate.pad([e], tokenizer.pad, 1))[0] for e in encoded.examples]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)
    np.testing.assert_allclose(np.concatenate(task.answer_all(model, encoded, tokenizer.pad)), together, atol=1e-5)
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-6)
    assert np.ptp(together[:, 0]) > 1e-3


def test_many_rows_are_answered_in_several_batches(tokenizer, monkeypatch):
    task = Classification(["a", "b"])
    model = build(tokenizer, task)
    rows = [Row(text) for text in ["film", "the film was good", "talk", "the plot was bad and people talk"] * 3]
    encoded = task.encode(rows, tokenizer, 32)
    whole = task.answer_all(model, encoded, tokenizer.pad)
    monkeypatch.setattr("unmask.tasks.batching.TOKENS_AT_ONCE", 12)
    np.testing.assert_allclose(
        np.concatenate(task.answer_all(model, encoded, tokenizer.pad)), np.concatenate(whole), atol=1e-5
    )
    assert model.training  # as it was


def test_losses_are_sums_and_counts(tokenizer):
    rows = [Row("the film", None, "1"), Row("was good", None, "0"), Row("talk", None, "1")]
    task = Classification(["0", "1"])
    model = build(tokenizer, task).eval()
    batch = collate.pack(task.encode(rows, tokenizer, 32).examples, 32, tokenizer.pad)
    loss = task.loss(model, batch)["classification"]
    target = batch.targets["classification"]
    logits = model.answer("classification", model(batch), target.places)
    torch.testing.assert_close(loss.sum, F.cross_entropy(logits, target.values, reduction="sum"))
    assert loss.count == 3
    assert int(loss.metrics["correct"]) == int((logits.argmax(1) == target.values).sum())
    assert task.weights == {"classification": 1.0}


def test_regression_is_squared_error(tokenizer):
    rows = [Row("the film", "was", "3.5"), Row("was good", "bad", "0"), Row("talk", "film", "-1")]
    task = Regression()
    model = build(tokenizer, task).eval()
    encoded = task.encode(rows, tokenizer, 32)
    batch = collate.pack(encoded.examples, 32, tokenizer.pad)
    loss = task.loss(model, batch)["regression"]
    answers = np.concatenate(task.answer_all(model, encoded, tokenizer.pad))[:, 0]
    wanted = answers - np.array([3.5, 0, -1])
    assert loss.sum.item() == pytest.approx((wanted**2).sum(), rel=1e-5)
    assert loss.metrics["error"].item() == pytest.approx(np.abs(wanted).sum(), rel=1e-5)
    assert task.evaluate(model, encoded, tokenizer.pad)["loss"] == pytest.approx(loss.sum.item() / 3, rel=1e-5)
    assert task.baseline(rows, rows)["pearson"] == 0.0
    assert task.baseline(rows, [Row(label="2"), Row(label="4")])["rmse"] == pytest.approx(
        np.sqrt(np.mean((3 - np.array([3.5, 0, -1])) ** 2))
    )


def test_the_mean_loss_of_an_evaluation_is_that_of_the_model(tokenizer):
    task = Tagging(["O", "X"])
    model = build(tokenizer, task).eval()
    rows = [Row(words=("the", "film"), tags=("O", "X")), Row(words=("good",), tags=("X",))]
    encoded = task.encode(rows, tokenizer, 32)
    loss = task.loss(model, collate.pad(encoded.examples, tokenizer.pad))["tagging"]
    assert loss.count == 3
    assert task.evaluate(model, encoded, tokenizer.pad)["loss"] == pytest.approx(loss.sum.item() / 3, rel=1e-5)


def test_metrics_and_baseline_of_classes():
    task = Classification(["n", "p"])
    rows = [Row(label=label) for label in "npppn"]
    answers = [np.array([[1 - p, p]]) for p in (0.2, 0.9, 0.4, 0.8, 0.7)]
    found = task.metrics(answers, rows)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert found["macro_f1"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found["mcc"] == pytest.approx((1 * 2 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2))
    assert found["loss"] == pytest.approx(-np.log([0.8, 0.9, 0.4, 0.8, 0.3]).mean())
    assert task.baseline(rows, [Row(label="p")])["accuracy"] == pytest.approx(0.6)
    assert task.baseline(rows, [Row(label="n")])["f1"] == 0.0
    assert task.report(answers, rows)["p"] == pytest.approx(
        {"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "support": 3}
    )
    with pytest.raises(UnmaskError, match="'q'"):
        task.metrics(answers, [*rows[:4], Row(label="q", place="x:5")])


def test_which_metric_decides():
    assert Tagging(["O", "B-X", "I-X"]).metric == "f1"
    assert Tagging(["0", "1"]).metric == "f1"
    assert Tagging(["DET", "NOUN", "VERB"]).metric == "accuracy"
    with pytest.raises(UnmaskError, match="two or more"):
        Classification(["a"])
    with pytest.raises(UnmaskError, match="two or more"):
        Tagging(["a", "a"])


def test_task_of_a_model(tokenizer):
    assert task_of(build(tokenizer, Classification("ab")), ("x", "y")).labels == ("x", "y")
    assert task_of(build(tokenizer, Tagging("abc"))).labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert isinstance(task_of(build(tokenizer, Regression())), Regression)
    with pytest.raises(UnmaskError, match="fine-tune it"):
        task_of(Bert(vocabulary=9, length=8, layers=1, dim=8, heads=1, hidden=8).build())


def test_evaluating_gives_the_mode_back():
    model = torch.nn.Dropout()
    with evaluating(model):
        assert not model.training
        assert not torch.is_grad_enabled()
    assert model.training
    with pytest.raises(RuntimeError), evaluating(model):
        raise RuntimeError
    assert model.training


def test_a_folder_with_tables_is_answered_by_one_of_them(tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\na\tb\n")
    with pytest.raises(UnmaskError, match=r"is a folder: name a file in it, such as .*train\.tsv, or give its --bench"):
        read(tmp_path, "classification")
