"""Predictor: texts in, answers out, for every kind of head; the same numbers as `transformers`."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import unmask
from unmask import huggingface
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.serve import Predictor, render_answer
from unmask.serve.inputs import locate, split_words

TEXT = "the function returns a list of strings and the film was good with people who talk"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([TEXT] * 3, 150)


def save(folder, tokenizer, heads, labels=(), length=24):
    config = Bert(vocabulary=tokenizer.size + 2, length=length, layers=2, dim=32, heads=2, hidden=64, std=0.2)
    huggingface.save(folder, config.build(heads=heads, seed=1), tokenizer, labels=labels)
    return folder


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, tokenizer):
    return save(tmp_path_factory.mktemp("pretrained"), tokenizer, {"mlm": 0, "nsp": 2})


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, tokenizer):
    return save(tmp_path_factory.mktemp("classifier"), tokenizer, {"classification": 3}, ("bad", "fair", "good"))


@pytest.fixture(scope="module")
def tagger(tmp_path_factory, tokenizer):
    return save(tmp_path_factory.mktemp("tagger"), tokenizer, {"tagging": 2}, ("O", "CODE"))


def theirs(cls, folder, **inputs):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, cls).from_pretrained(folder).eval()
    with torch.no_grad():
        return tokenizer, model(**tokenizer(return_tensors="pt", **inputs))


def test_masks_are_filled_as_in_transformers(pretrained):
    text = "the [MASK] returns a [MASK] of strings"
    answer = Predictor(pretrained, top=4)([text])[0]
    tokenizer, output = theirs("BertForMaskedLM", pretrained, text=text)
    ids = tokenizer(text)["input_ids"]
    places = [i for i, token in enumerate(ids) if token == tokenizer.mask_token_id]
    probabilities = output.logits[0, places].softmax(-1)
    for guesses, row in zip(answer["masks"], probabilities, strict=True):
        assert len(guesses) == 4
        for guess in guesses:
            assert guess["probability"] == pytest.approx(
                float(row[tokenizer.convert_tokens_to_ids(guess["token"])]), rel=1e-4
            )
        assert [g["probability"] for g in guesses] == sorted((g["probability"] for g in guesses), reverse=True)
        assert not {g["token"] for g in guesses} & {"[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]"}
    assert "[MASK]" not in answer["text"]
    assert answer["text"].endswith("of strings")
    assert answer["masks"][0][0]["token"].removeprefix("##") in answer["text"]


def test_a_continuation_joins_its_word(pretrained):
    predictor = Predictor(pretrained)
    ids = np.array([[tokenizer_id(predictor, "##s")], [tokenizer_id(predictor, "the")]])
    answer = predictor._filled(("list [MASK] of [MASK].",), ids, np.ones((2, 1)))
    assert answer["text"] == "lists of the."


def tokenizer_id(predictor, piece):
    return predictor.tokenizer.raw.token_to_id(piece)


def test_pairs_without_a_mask_get_the_next_sentence(pretrained):
    predictor = Predictor(pretrained)
    answers = predictor([("the film was good", "people talk"), ("the [MASK] was", "good"), ["a list", "of strings"]])
    _, output = theirs("BertForNextSentencePrediction", pretrained, text="the film was good", text_pair="people talk")
    assert answers[0] == {"follows": pytest.approx(float(output.logits.softmax(-1)[0, 0]), rel=1e-4)}
    assert set(answers[1]) == {"masks", "text", "pair"}
    assert answers[1]["pair"] == "good"
    assert set(answers[2]) == {"follows"}


def test_classes_are_those_of_transformers(classifier):
    texts = ["the film was good", "talk", "a list of strings and people"]
    answers = Predictor(classifier)(texts)
    for text, answer in zip(texts, answers, strict=True):
        _, output = theirs("BertForSequenceClassification", classifier, text=text)
        wanted = output.logits[0].softmax(-1)
        assert list(answer["scores"].values()) == pytest.approx(wanted.tolist(), rel=1e-4)
        assert answer["label"] == ("bad", "fair", "good")[int(wanted.argmax())]
        assert answer["probability"] == max(answer["scores"].values())


def test_one_at_a_time_and_together_give_the_same(classifier, pretrained):
    texts = ["film", "the film was good with people", "talk talk talk", "a"] * 5
    predictor = Predictor(classifier)
    together = [a["probability"] for a in predictor(texts)]
    assert together == pytest.approx([predictor([text])[0]["probability"] for text in texts], abs=1e-5)
    masked = Predictor(pretrained)
    texts = ["the [MASK]", "a list of [MASK] and the film", "[MASK] [MASK]"]
    for text, answer in zip(texts, masked(texts), strict=True):
        alone = masked([text])[0]
        assert answer["text"] == alone["text"]
        assert answer["masks"][0][0]["probability"] == pytest.approx(alone["masks"][0][0]["probability"], abs=1e-5)


def test_regression(tmp_path, tokenizer):
    folder = save(tmp_path, tokenizer, {"regression": 1})
    answer = Predictor(folder)([("the film", "was good")])[0]
    _, output = theirs("BertForSequenceClassification", folder, text="the film", text_pair="was good")
    assert answer == {"score": pytest.approx(float(output.logits[0, 0]), rel=1e-4)}


def test_tags_have_offsets_in_the_text(tagger):
    text = "  The film_list returns, people's talk!"
    answer = Predictor(tagger)([text])[0]
    assert [text[w["begin"] : w["end"]] for w in answer["words"]] == [w["word"] for w in answer["words"]]
    words = ["The", "film_list", "returns", ",", "people's", "talk", "!"]
    assert [w["word"] for w in answer["words"]] == words
    given = Predictor(tagger)([words])[0]
    assert [(w["tag"], w["probability"]) for w in given["words"]] == [
        (w["tag"], pytest.approx(w["probability"], abs=1e-5)) for w in answer["words"]
    ]
    joined = " ".join(words)
    assert [joined[w["begin"] : w["end"]] for w in given["words"]] == words
    assert {w["tag"] for w in answer["words"]} <= {"O", "CODE"}


def test_long_sentences_are_tagged_to_the_end(tagger):
    answer = Predictor(tagger)([["people", "talk", "zzz"] * 40])[0]
    assert len(answer["words"]) == 120


def test_what_was_cut_is_said(classifier):
    short, long = Predictor(classifier)(["film", "film " * 60])
    assert "cut" not in short
    assert long["cut"] is True
    assert "cut" in render_answer("film", long)


def test_bad_input(pretrained, classifier, tmp_path, tokenizer):
    predictor = Predictor(pretrained)
    for texts, message in (
        (["the [MASK]", "  "], "Text 2 is empty"),
        (["the [MASK]", "the film"], r"Text 2 has no \[MASK\]"),
        (["film " * 60 + "[MASK]"], "beyond the 24"),
        ([("a", "b", "c")], "3 parts"),
        ([3], "must be a string"),
        ([[]], "must be a string"),
    ):
        with pytest.raises(UnmaskError, match=message):
            predictor(texts)
    with pytest.raises(UnmaskError, match="Text 1 is empty"):
        Predictor(classifier)([""])
    with pytest.raises(UnmaskError, match="no head that answers"):
        Predictor(save(tmp_path, tokenizer, {}))
    with pytest.raises(UnmaskError, match="At least one"):
        Predictor(pretrained, top=0)
    assert predictor([]) == Predictor(classifier)([]) == []


def test_a_model_under_training_keeps_its_mode(classifier):
    loaded = huggingface.load(classifier)
    predictor = Predictor(loaded)
    still = predictor(["the film"])
    loaded.model.train()
    assert predictor(["the film"]) == still  # without dropout
    assert loaded.model.training


def test_threads_get_their_own_answers(classifier):
    predictor = unmask.Predictor(classifier)
    texts = ["film " * n for n in range(1, 9)]
    wanted = [predictor([text])[0]["probability"] for text in texts]
    predictor.model.train()
    found = [0.0] * len(texts)

    def work(i):
        for _ in range(5):
            found[i] = predictor([texts[i]])[0]["probability"]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == pytest.approx(wanted, abs=1e-6)
    assert predictor.model.training


def test_stream(classifier, tagger, pretrained):
    lines = [f"film {i}" for i in range(150)]
    pairs = list(Predictor(classifier).stream(iter(lines)))
    assert [text for text, _ in pairs] == lines
    assert all("label" in answer for _, answer in pairs)
    text, answer = next(Predictor(pretrained).stream(["the film\twas good"]))
    assert set(answer) == {"follows"}
    assert render_answer(text, answer).startswith("follows")
    with pytest.raises(UnmaskError, match="Text 101 is empty"):
        list(Predictor(classifier).stream([*lines[:100], ""]))
    text, answer = next(Predictor(tagger).stream(["the film"]))
    assert render_answer(text, answer).splitlines()[0].startswith("the\t")


def test_rendering_a_mask(pretrained):
    for text in ("the [MASK]", "[MASK] [MASK]"):
        lines = render_answer(text, Predictor(pretrained)([text])[0]).splitlines()
        assert lines[0] == text
        assert len(lines) == 2 + text.count("[MASK]")


def test_words_and_their_places():
    assert split_words("a b,c") == [("a", (0, 1)), ("b", (2, 3)), (",", (3, 4)), ("c", (4, 5))]
    assert locate(["ab", "", "c"]) == [(0, 2), (3, 3), (4, 5)]
