"""Predictor: texts in, answers out, for every kind of head; the same numbers as `transformers`."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch

import unmask
from unmask import huggingface
from unmask.cli import main
from unmask.data.labelled.rows import Row
from unmask.data.labelled.words import split_words
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.electra import Electra
from unmask.models.recurrent import RecurrentNetwork
from unmask.runs.evaluation import evaluate
from unmask.serve import Predictor, write_predictions
from unmask.serve.http.pool import Pool
from unmask.serve.opened import open_model
from unmask.serve.pretrained import MaskedTokens
from unmask.tasks import Classification, MultiLabel, MultipleChoice, QuestionAnswering
from unmask.tasks.tagged_words import locate

TEXT = "the function returns a list of strings and the film was good with people who talk"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([TEXT] * 3, 150)


def save(folder, tokenizer, heads, labels=(), length=24, settings=None):
    config = Bert(vocabulary=tokenizer.size + 2, length=length, layers=2, dim=32, heads=2, hidden=64, std=0.2)
    huggingface.save(folder, config.build(heads=heads, seed=1), tokenizer, labels=labels, settings=settings)
    return folder


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, tokenizer):
    return save(tmp_path_factory.mktemp("pretrained"), tokenizer, as_heads({"mlm": 0, "nsp": 2}))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, tokenizer):
    return save(
        tmp_path_factory.mktemp("classifier"), tokenizer, as_heads({"classification": 3}), ("bad", "fair", "good")
    )


@pytest.fixture(scope="module")
def tagger(tmp_path_factory, tokenizer):
    return save(tmp_path_factory.mktemp("tagger"), tokenizer, as_heads({"tagging": 2}), ("O", "CODE"))


@pytest.fixture(scope="module")
def entities(tmp_path_factory, tokenizer):
    labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    return save(tmp_path_factory.mktemp("entities"), tokenizer, as_heads({"tagging": 5}), labels)


@pytest.fixture(scope="module")
def labeller(tmp_path_factory, tokenizer):
    return save(tmp_path_factory.mktemp("labeller"), tokenizer, as_heads({"multilabel": 3}), ("rude", "funny", "long"))


@pytest.fixture(scope="module")
def reader(tmp_path_factory, tokenizer):
    return save(tmp_path_factory.mktemp("reader"), tokenizer, as_heads({"span": 2}), settings={"stride": 4, "best": 6})


@pytest.fixture(scope="module")
def chooser(tmp_path_factory, tokenizer):
    return save(tmp_path_factory.mktemp("chooser"), tokenizer, as_heads({"choice": 1}))


@pytest.fixture(scope="module")
def electra(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("electra")
    config = Electra(vocabulary=tokenizer.size, length=24, layers=2, dim=32, heads=2, hidden=64, factor=16, std=0.5)
    huggingface.save(folder, config.build(as_heads({"rtd": 1}), seed=1), tokenizer)
    return folder


def near(answer):
    """The same answer, but for the last digits of its numbers: those depend on what else is in the batch."""
    if isinstance(answer, dict):
        return {name: near(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [near(value) for value in answer]
    return pytest.approx(answer, abs=1e-5) if isinstance(answer, float) else answer


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
    head = MaskedTokens("mlm", predictor.tokenizer, top=1, length=64)
    answer = head.filled(("list [MASK] of [MASK].",), ids, np.ones((2, 1)))
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


def test_replaced_words_are_those_of_transformers(electra):
    """Each token of the texts has the sigmoid of its logit there, however many are asked about at once."""
    texts = ["The film  filmgood", ("a list of strings", "people who talk"), "talk", "film " * 60, "\xad"]
    answers = Predictor(electra)(texts)
    judged = []
    for text, answer in zip(texts[:3], answers, strict=False):
        first, second = (text, None) if isinstance(text, str) else text
        tokenizer, output = theirs("ElectraForPreTraining", electra, text=first, text_pair=second)
        read = tokenizer(first, second)
        special = {tokenizer.cls_token_id, tokenizer.sep_token_id}
        real = [i for i, token in enumerate(read["input_ids"]) if token not in special]
        tokens = [*answer["tokens"], *answer.get("pair", ())]
        assert [one["token"] for one in tokens] == [tokenizer.convert_ids_to_tokens(read["input_ids"][i]) for i in real]
        expected = output.logits[0, real].sigmoid().tolist()
        assert [one["probability"] for one in tokens] == pytest.approx(expected, abs=1e-5)
        judged += expected
        for part, name in ((first, "tokens"), (second, "pair")):
            for one in answer.get(name, ()):
                assert part[one["begin"] : one["end"]].lower() == one["token"].removeprefix("##")
    assert max(judged) - min(judged) > 0.1  # else any place would do
    assert set(answers[1]) == {"tokens", "pair"}
    assert set(answers[0]) == {"tokens"}
    assert (len(answers[3]["tokens"]), answers[3]["cut"]) == (22, True)
    assert answers[4] == {"tokens": []}
    assert near(Predictor(electra)(texts[2:3])[0]) == answers[2]


def test_of_a_pair_that_is_cut_both_texts_are_judged(electra):
    first, second = "film " * 30, "talk talk"
    [answer] = Predictor(electra)([(first, second)])
    kept = " ".join(["film"] * 19)
    [whole] = Predictor(electra)([(kept, second)])
    assert answer == {**near(whole), "cut": True}
    assert (len(answer["tokens"]), len(answer["pair"])) == (19, 2)


def test_replaced_words_are_shown_and_hidden_ones_refused(electra, capsys):
    [answer] = Predictor(electra)(["the film"])
    shown = "".join(f"\n  {one['token']}\t{one['probability']:.3f}" for one in answer["tokens"])
    assert Predictor(electra).render("the film", answer) == f"the film{shown}"
    main(["predict", "--model", str(electra), "the film"])
    assert capsys.readouterr().out == f"the film{shown}\n"
    main(["predict", "--model", str(electra), "--json", "the film"])
    assert json.loads(capsys.readouterr().out) == near(answer)
    with pytest.raises(UnmaskError, match=r"Text 1 has a \[MASK\], and this model .* folder `generator` inside"):
        Predictor(electra)(["the [MASK]"])


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
    folder = save(tmp_path, tokenizer, as_heads({"regression": 1}))
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


def test_a_model_that_knows_no_end_reads_as_far_as_its_run(tmp_path, tokenizer):
    """So that its answers are those that `evaluate` scores, from the command line and in the service."""
    config = RecurrentNetwork(vocabulary=tokenizer.size, dim=8, hidden=8, layers=1, cell="rnn")
    huggingface.save(tmp_path / "m", config.build(as_heads({"classification": 2})), tokenizer, labels=("bad", "good"))
    rows = [("film " * 600 + "good", "good"), ("film " * 600 + "people talk", "bad"), ("good", "good")]
    (tmp_path / "dev.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]))
    assert [Predictor(tmp_path / "m", length=n).length for n in (None, 100, 700)] == [512, 100, 700]
    (tmp_path / "m" / "run.json").write_text(json.dumps({"config": {"rows": {"length": 700}}}))
    read_so = (
        Predictor(tmp_path / "m"),
        Pool([tmp_path / "m"]).get("m").predictor,
        open_model(tmp_path / "m").predictor,
    )
    for predictor in read_so:
        answers = predictor([text for text, _ in rows])
        assert not any("cut" in answer for answer in answers)
        losses = [-np.log(answer["scores"][label]) for answer, (_, label) in zip(answers, rows, strict=True)]
        expected = evaluate(tmp_path / "m", tmp_path / "dev.tsv")["metrics"]["loss"]
        assert np.mean(losses) == pytest.approx(expected, abs=1e-6)
    (tmp_path / "m" / "run.json").write_text(json.dumps({"config": {"rows": {"length": 100}}}))
    assert Predictor(tmp_path / "m").length == 512


def test_what_was_cut_is_said(classifier):
    short, long = Predictor(classifier)(["film", "film " * 60])
    assert "cut" not in short
    assert long["cut"] is True
    assert "cut" in Predictor(classifier).render("film", long)


def test_bad_input(pretrained, classifier, tmp_path, tokenizer):
    predictor = Predictor(pretrained)
    for texts, message in (
        (["the [MASK]", "  "], "Text 2 is empty"),
        (["the [MASK]", "the film"], r"Text 2 has no \[MASK\]: put one where"),
        (["the [mask]"], r"Text 1 has no \[MASK\]: did you mean \[MASK\] for \[mask\]\?"),
        (["film " * 60 + "[MASK]"], "after the 24 that"),
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
    with pytest.raises(UnmaskError, match="at least 1"):
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


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("which", ["classifier", "tagger", "pretrained"])
def test_batches_side_by_side_give_the_same_answers(which, request, monkeypatch):
    folder = request.getfixturevalue(which)
    texts = ["film [MASK] " + "good " * (n % 9) if which == "pretrained" else "film " * (n % 9 + 1) for n in range(60)]
    together = Predictor(folder)(texts)
    monkeypatch.setattr("unmask.tasks.batching.TOKENS_AT_ONCE", 40)
    threads = set()

    class Watched(Predictor):
        """Notes who computes."""

        def __init__(self, *given):
            super().__init__(*given)
            self.layout.register_forward_pre_hook(lambda *_: threads.add(threading.get_ident()))

    apart = Watched(folder)(texts)
    assert threading.get_ident() not in threads
    assert len(threads) > 1
    assert apart == near(together)


def test_stream(classifier, tagger, pretrained):
    lines = [f"film {i}" for i in range(150)]
    pairs = list(Predictor(classifier).stream(iter(lines)))
    assert [text for text, _ in pairs] == lines
    assert all("label" in answer for _, answer in pairs)
    text, answer = next(Predictor(pretrained).stream(["the film\twas good"]))
    assert set(answer) == {"follows"}
    assert Predictor(pretrained).render(text, answer).startswith("follows")
    gaps = list(Predictor(classifier).stream(["", *lines[:70], " ", lines[70], *[""] * 64]))
    assert [text for text, answer in gaps if answer is not None] == lines[:71]
    assert [number for number, (_, answer) in enumerate(gaps) if answer is None] == [0, 71, *range(73, 137)]
    with pytest.raises(UnmaskError, match=r"Text 3 has no \[MASK\]"):
        list(Predictor(pretrained).stream(["the [MASK]", "", "the film"]))
    text, answer = next(Predictor(tagger).stream(["the film"]))
    assert Predictor(tagger).render(text, answer).splitlines()[0].startswith("the\t")


def test_the_command_answers_line_by_line(classifier, tmp_path, capsys):
    file = tmp_path / "lines.txt"
    file.write_text("good\n\nbad\n\n")
    main(["predict", "--model", str(classifier), "--json", "--file", str(file)])
    first, blank, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert blank is None
    assert [near(first), near(last)] == Predictor(classifier)(["good", "bad"])
    main(["predict", "--model", str(classifier), "--file", str(file)])
    shown = capsys.readouterr().out.splitlines()
    assert (shown[0].split()[-1], *shown[1:2], shown[2].split()[-1]) == ("good", "", "bad")


def test_rendering_a_mask(pretrained):
    for text in ("the [MASK]", "[MASK] [MASK]"):
        lines = Predictor(pretrained).render(text, Predictor(pretrained)([text])[0]).splitlines()
        assert lines[0] == text
        assert len(lines) == 2 + text.count("[MASK]")


def test_words_and_their_places():
    assert [word for word, _ in split_words("cafe\u0301s हिन्दी \U0001f44d\u200d, e\u0301.")] == [
        *("cafe\u0301s", "हिन्दी", "\U0001f44d\u200d", ",", "e\u0301", "."),
    ]
    assert split_words("a b,c") == [("a", (0, 1)), ("b", (2, 3)), (",", (3, 4)), ("c", (4, 5))]
    assert locate(["ab", "", "c"]) == [(0, 2), (3, 3), (4, 5)]


# ------------------------------------------------------------------------------------------------ several labels


def test_several_labels(labeller):
    texts = ["the film was good", "talk", "a list of strings and people"]
    said = set()
    for text, answer in zip(texts, Predictor(labeller)(texts), strict=True):
        _, output = theirs("BertForSequenceClassification", labeller, text=text)
        wanted = output.logits[0].sigmoid()
        assert list(answer["scores"].values()) == pytest.approx(wanted.tolist(), rel=1e-4)
        assert answer["labels"] == [n for n, p in zip(("rude", "funny", "long"), wanted, strict=True) if p > 0.5]
        shown = MultiLabel.render(text, answer)
        assert shown.endswith(text)
        assert all(f"{label} {answer['scores'][label]:.3f}" in shown for label in answer["labels"])
        said |= set(answer["labels"])
    assert said
    assert MultiLabel.render("x", {"labels": [], "scores": {}}) == "no label  x"


# ------------------------------------------------------------------------------------------------ entities


class Sure:
    """A tagging task whose answers are given."""

    def __init__(self, task, tags):
        self.ids = [task.labels.index(tag) for tag in tags]
        self.rows = len(task.labels)

    def __call__(self, model, encoded, pad):
        probabilities = np.full((len(self.ids), self.rows), 0.1)
        probabilities[range(len(self.ids)), self.ids] = 0.6
        return [probabilities]


def test_entities_stand_in_the_raw_text(entities):
    predictor = Predictor(entities)
    text = "Zoë  Smith, of\tCafe\u0301 Paris: film."
    tags = ["B-PER", "I-PER", "O", "O", "B-LOC", "B-LOC", "O", "I-PER", "O"]
    predictor.task.answer_all = Sure(predictor.task, tags)
    answer = predictor([text])[0]
    assert [word["tag"] for word in answer["words"]] == tags
    places = [text.index(part) for part in ("Zoë", "Cafe", "Paris", "film")]
    assert [(e["kind"], e["text"], e["begin"]) for e in answer["entities"]] == [
        ("PER", "Zoë  Smith", places[0]),
        ("LOC", "Cafe\u0301", places[1]),
        ("LOC", "Paris", places[2]),
        ("PER", "film", places[3]),
    ]
    assert all(text[e["begin"] : e["end"]] == e["text"] for e in answer["entities"])
    assert [e["probability"] for e in answer["entities"]] == pytest.approx([0.36, 0.6, 0.6, 0.6])
    predictor.task.answer_all = Sure(predictor.task, ["B-PER", "I-PER", "O"])
    given = predictor([["Zoë", "Smith", "talks"]])[0]
    assert given["entities"][0]["text"] == "Zoë Smith"
    row = predictor.answer([Row(words=("Zoë", "Smith", "talks"))])[0]  # as a file of tagged words gives it
    assert row == near(given)
    raw = predictor([{"text": "Zoë\u00a0Smith  talks", "words": ["Zoë", "Smith", "talks"], "id": 3}])[0]
    assert raw["entities"][0]["text"] == "Zoë\u00a0Smith"
    assert raw["id"] == "3"


def test_a_marked_predicate_has_roles(entities):
    predictor = Predictor(entities)
    words = ["people", "talk", "and", "the", "film", "returns"]
    item = {"words": words, "predicate": 1}
    answer = predictor([item])[0]
    assert set(answer) == {"words", "predicate", "roles"}
    assert answer["predicate"] == 1
    row = predictor.answer([Row(" ".join(words), words=tuple(words), predicate=1)])[0]  # as a file of roles gives it
    assert row == near(answer)
    shares = [[word["probability"] for word in given["words"]] for given in (answer, predictor([words])[0])]
    assert shares[0] != pytest.approx(shares[1], rel=1e-3)  # the model sees which word is marked
    by_text = predictor([{"text": " ".join(words), "predicate": 1, "id": "a"}])[0]
    assert by_text == near({**answer, "id": "a"})
    asked, streamed = next(predictor.stream([json.dumps(item)]))
    assert streamed == near(answer)
    assert "returns" in predictor.render(asked, streamed)
    predictor.task.answer_all = Sure(predictor.task, ["B-PER", "O", "O", "B-LOC", "I-LOC", "O"])
    roles = predictor([item])[0]["roles"]
    assert [(role["kind"], role["text"], role["begin"]) for role in roles] == [
        ("PER", "people", 0),
        ("LOC", "the film", 16),
    ]


@pytest.mark.parametrize("predicate", [-1, 3, "1", True, 1.0])
def test_a_predicate_that_is_no_word(entities, predicate):
    with pytest.raises(UnmaskError, match=r"Text 1: 'predicate' must be the number of a word, from 0 to 2, not"):
        Predictor(entities)([{"words": ["people", "talk", "and"], "predicate": predicate}])


def test_only_tags_of_entities_make_entities(tagger, entities):
    assert set(Predictor(tagger)(["the film"])[0]) == {"words"}
    assert set(Predictor(entities)(["the film"])[0]) == {"words", "entities"}


# ------------------------------------------------------------------------------------------------ questions


CONTEXT = "the film was good and people who talk about strings were bad "


def best_spans(folder, question, context, most=30):
    """Every span that `transformers` could give, with its score, best first."""
    tokenizer, output = theirs("BertForQuestionAnswering", folder, text=question, text_pair=context)
    given = tokenizer(question, context, return_offsets_mapping=True)
    inside = [i for i, owner in enumerate(given.sequence_ids()) if owner == 1]
    begins, ends = output.start_logits[0], output.end_logits[0]
    found = []
    for i in inside:
        for j in inside:
            if i <= j < i + most:
                place = given["offset_mapping"][i][0], given["offset_mapping"][j][1]
                found.append((float(begins[i] + ends[j]), *place, context[slice(*place)]))
    return sorted(found, reverse=True), float(begins[0] + ends[0])


def test_questions_are_answered_as_in_transformers(reader):
    context, question = "The film was good; people talk.", "who talk?"
    answer = Predictor(reader)([(question, context)])[0]
    wanted, _ = best_spans(reader, question, context)
    assert len(answer["spans"]) == 6
    for span, (score, begin, end, text) in zip(answer["spans"], wanted, strict=False):
        assert span["score"] == pytest.approx(score, rel=1e-4)
        assert (span["begin"], span["end"], span["text"]) == (begin, end, text)
    assert answer["answer"] == wanted[0][3] == context[answer["begin"] : answer["end"]]
    shares = np.exp([score for score, *_ in wanted[:6]])
    assert answer["probability"] == pytest.approx(shares[0] / shares.sum(), rel=1e-3)
    assert sum(span["probability"] for span in answer["spans"]) == pytest.approx(1)
    assert "no_answer" not in answer
    assert answer == near(Predictor(reader)([{"question": question, "context": context}])[0])


def test_the_threshold_of_the_folder_counts(tmp_path, tokenizer):
    question, context = "who talk", "people talk about the film"
    folder = tmp_path / "sure"
    save(folder, tokenizer, as_heads({"span": 2}), settings={"unanswerable": True, "threshold": 1e6})
    sure = Predictor(folder)([(question, context)])[0]
    assert sure["answer"] == sure["spans"][0]["text"] != ""
    wanted, nothing = best_spans(folder, question, context)
    shares = np.exp([*[score for score, *_ in wanted[:20]], nothing])
    assert sure["no_answer"] == pytest.approx(shares[-1] / shares.sum(), rel=1e-3)
    assert sum(span["probability"] for span in sure["spans"]) + sure["no_answer"] == pytest.approx(1)
    doubt = nothing - wanted[0][0]
    for threshold, answered in ((doubt + 0.01, True), (doubt - 0.01, False)):
        save(tmp_path / "m", tokenizer, as_heads({"span": 2}), settings={"unanswerable": True, "threshold": threshold})
        answer = Predictor(tmp_path / "m")([(question, context)])[0]
        assert bool(answer["answer"]) == answered
        shown = QuestionAnswering.render(question, answer)
        assert shown.startswith(question + "\n")
        assert f"no answer {answer['no_answer']:.3f}" in shown
        assert shown.splitlines()[1].strip().startswith("no answer") != answered
    assert (answer["begin"], answer["end"]) == (None, None)
    assert answer["probability"] == answer["no_answer"]


def test_long_contexts_are_read_to_the_end(reader):
    """In a model of 24 positions, the last words of a context of hundreds of pieces can be the answer."""
    predictor = Predictor(reader)
    context = CONTEXT * 8 + "returns"
    answer = predictor([("who", context)])[0]
    assert "cut" not in answer

    def pointing(model, batch):
        wanted = predictor.tokenizer.ids(["returns"])[0]
        found = []
        for row, start in zip(batch.tokens, batch.starts, strict=True):
            real = row >= 0 if batch.documents is None else batch.documents[start // len(row)] > 0
            logits = np.zeros((int(real.sum()), 2))
            tokens = row[: len(logits)].numpy()
            for i in range(len(tokens) - len(wanted) + 1):
                if (tokens[i : i + len(wanted)] == wanted).all():
                    logits[i, 0] = logits[i + len(wanted) - 1, 1] = 9
            found.append(logits)
        return found

    predictor.task.answers = pointing
    answer = predictor([("who", context)])[0]
    assert (answer["answer"], answer["begin"]) == ("returns", len(CONTEXT) * 8)


def test_a_long_question_is_cut_and_said(tmp_path, tokenizer):
    folder = save(tmp_path, tokenizer, as_heads({"span": 2}), settings={"longest_question": 8})
    answer = Predictor(folder)([("film " * 20, "people talk")])[0]
    assert answer["cut"] is True
    assert "(the text was cut)" in Predictor(folder).render("film", answer)


def test_questions_of_mixed_length_are_answered_as_alone(reader, monkeypatch):
    predictor = Predictor(reader)
    asked = [("who", CONTEXT * n) for n in (1, 5, 2)] + [("what is good and bad", "people talk"), ("a", "b")]
    together = predictor(asked)
    monkeypatch.setattr("unmask.tasks.batching.TOKENS_AT_ONCE", 60)
    for item, answer in zip(asked, together, strict=True):
        assert predictor([item])[0] == near(answer)


# ------------------------------------------------------------------------------------------------ choices


def test_choices_are_those_of_transformers(chooser):
    transformers = pytest.importorskip("transformers")
    item = {"context": "the film was good", "question": "people", "choices": ["talk", "returns a list", "who"]}
    answer = Predictor(chooser)([item])[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(chooser)
    model = transformers.BertForMultipleChoice.from_pretrained(chooser).eval()
    seconds = [f"people {choice}" for choice in item["choices"]]
    given = tokenizer([item["context"]] * 3, seconds, padding=True, return_tensors="pt")
    with torch.no_grad():
        wanted = model(**{name: value[None] for name, value in given.items()}).logits[0].softmax(-1)
    assert answer["scores"] == pytest.approx(wanted.tolist(), rel=1e-4)
    best = int(wanted.argmax())
    assert (answer["choice"], answer["text"]) == (best, item["choices"][best])
    assert answer["probability"] == answer["scores"][best]
    assert MultipleChoice.render("people", answer) == f"{answer['text']}  {answer['probability']:.3f}  people"


def test_rows_may_have_any_number_of_choices(chooser):
    predictor = Predictor(chooser)
    items = [
        {"text": "film", "choices": ["good", "bad"]},
        {"context": "the film was good", "choices": ["people", "talk", "who", "list", "strings"], "question": None},
        {"question": "who", "choices": ["people", "a list of strings"]},
        {"text": "film " * 40, "choices": ["good", "bad"], "id": "long"},
    ]
    together = predictor(items)
    for item, answer in zip(items, together, strict=True):
        assert len(answer["scores"]) == len(item["choices"])
        assert predictor([item])[0]["scores"] == pytest.approx(answer["scores"], abs=1e-5)
    assert together[3] == {"id": "long", **together[3], "cut": True}
    assert "cut" not in together[1]


# ------------------------------------------------------------------------------------------------ foreign folders


def foreign(folder, tokenizer, cls, **fields):
    """A folder that `transformers` wrote, with random weights."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(5)
    config = transformers.BertConfig(
        vocab_size=tokenizer.size, max_position_embeddings=24, initializer_range=0.2, **sizes, **fields
    )
    getattr(transformers, cls)(config).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def test_folders_of_transformers_answer_here(tmp_path, tokenizer):
    labels = {"id2label": {0: "x", 1: "y", 2: "z"}, "label2id": {"x": 0, "y": 1, "z": 2}}
    folder = foreign(tmp_path / "span", tokenizer, "BertForQuestionAnswering")
    question, context = "who talk?", "The film was good; people talk."
    score, begin, end, text = best_spans(folder, question, context)[0][0]
    best = Predictor(folder)([(question, context)])[0]["spans"][0]
    assert (best["begin"], best["end"], best["text"]) == (begin, end, text)
    assert best["score"] == pytest.approx(score, rel=1e-4)

    folder = foreign(tmp_path / "choice", tokenizer, "BertForMultipleChoice")
    test_choices_are_those_of_transformers(folder)

    folder = foreign(
        tmp_path / "several",
        tokenizer,
        "BertForSequenceClassification",
        problem_type="multi_label_classification",
        **labels,
    )
    _, output = theirs("BertForSequenceClassification", folder, text="people talk")
    answer = Predictor(folder)(["people talk"])[0]
    assert answer["scores"] == pytest.approx(
        dict(zip("xyz", output.logits[0].sigmoid().tolist(), strict=True)), rel=1e-4
    )
    assert answer["labels"] == [label for label, p in answer["scores"].items() if p > 0.5]

    folder = foreign(tmp_path / "tags", tokenizer, "BertForTokenClassification", **labels)
    text = "people's list, talk"
    theirs_tokenizer, output = theirs("BertForTokenClassification", folder, text=text)
    given = theirs_tokenizer(text, return_offsets_mapping=True)
    firsts = {begin: i for i, (begin, end) in reversed([*enumerate(given["offset_mapping"])]) if end > begin}
    words = Predictor(folder)([text])[0]["words"]
    assert [word["word"] for word in words] == ["people's", "list", ",", "talk"]
    for word in words:
        wanted = output.logits[0, firsts[word["begin"]]].softmax(-1)
        assert word["probability"] == pytest.approx(float(wanted.max()), rel=1e-4)
        assert word["tag"] == "xyz"[int(wanted.argmax())]


@pytest.mark.parametrize(
    ("fixture", "cls"),
    [
        ("reader", "BertForQuestionAnswering"),
        ("chooser", "BertForMultipleChoice"),
        ("labeller", "BertForSequenceClassification"),
        ("entities", "BertForTokenClassification"),
    ],
)
def test_our_folders_open_there_whole(fixture, cls, request):
    transformers = pytest.importorskip("transformers")
    folder = request.getfixturevalue(fixture)
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.architectures == [cls]
    if fixture == "labeller":
        assert config.problem_type == "multi_label_classification"
    _, report = getattr(transformers, cls).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]


# ------------------------------------------------------------------------------------------------ lines and files


def test_lines_are_texts_pairs_or_objects(reader, chooser, classifier, tagger, pretrained):
    context = "people talk"
    lines = [
        f"who\t{context}",
        json.dumps({"id": "q7", "question": "who", "context": context, "answers": {"text": []}}),
    ]
    (asked, answer), (again, named) = Predictor(reader).stream(lines)
    assert (asked, again) == (lines[0], "who")
    assert named == {"id": "q7", **near(answer)}
    item = {"text": "the film", "choices": ["good", "bad"], "label": 1}
    [(asked, answer)] = Predictor(chooser).stream([json.dumps(item)])
    assert (asked, answer) == ("the film", near(Predictor(chooser)([item])[0]))
    alike = ['{"premise": "the film", "hypothesis": "was good"}', '{"text": "the film", "pair": "was good"}']
    answers = [answer for _, answer in Predictor(classifier).stream([*alike, "the film\twas good"])]
    assert answers[0] == near(answers[2])
    assert answers[1] == near(answers[2])
    texts = ['{"text": "the film", "pair": null}', '{"sentence": "the film"}', "the film"]
    assert len({answer["probability"] for _, answer in Predictor(classifier).stream(texts)}) == 1
    odd = ["{broken", "[1]", '{"text": "good"} said the film']
    assert [asked for asked, _ in Predictor(classifier).stream(odd)] == odd  # texts like any other
    [(_, answer)] = Predictor(tagger).stream(['{"words": ["the", "film"]}'])
    assert [word["word"] for word in answer["words"]] == ["the", "film"]
    [(_, answer)] = Predictor(pretrained).stream(['{"text": "the [MASK]"}'])
    assert len(answer["masks"]) == 1


def test_bad_questions_and_choices(reader, chooser, tagger, classifier):
    for folder, inputs, message in (
        (reader, [("a", "b"), "who"], "Text 2 must be a question and a context: a pair, or an object with both"),
        (reader, [("who", " ")], "Text 1 has an empty context"),
        (reader, [{"question": "who"}], "Text 1 has no 'context', but question; it must be a question and a context"),
        (reader, [{"question": 3, "context": "x"}], "Text 1: 'question' must be a string, not a number"),
        (reader, [("a", "b", "c")], "3 parts"),
        (chooser, ["the film"], "Text 1 must be an object with context"),
        (chooser, [("the film", "good")], "Text 1 must be an object with context"),
        (chooser, [{"choices": ["a", "b"]}], "neither 'context' nor 'question'"),
        (chooser, [{"text": "film"}], "two or more texts"),
        (chooser, [{"text": "film", "choices": ["a"]}], "two or more texts"),
        (chooser, [{"text": "film", "choices": ["a", " "]}], "that are not empty"),
        (chooser, [{"text": "film", "choices": "ab"}], "two or more texts"),
        (tagger, [{"words": [1]}], "'words' must be a list of strings"),
        (tagger, [{"words": []}], "'words' must be a list of strings"),
        (tagger, [{"text": "film", "words": ["plot"]}], "the word 'plot' is not in the text"),
        (tagger, [{"label": "x"}], "Text 1 has no 'text', but label; it must be an object with words"),
        (classifier, [{"label": "x"}], "Text 1 has no 'text'"),
        (classifier, [{"text": ""}], "Text 1 is empty"),
    ):
        with pytest.raises(UnmaskError, match=message):
            Predictor(folder)(inputs)
    for folder, line, message in (
        (reader, "who is it", "Text 2 is not a question, a tab and a context, or a JSON object with both"),
        (reader, '{"question": "who", ', "Text 2 is not a question, a tab"),
        (chooser, "who\tis it", "Text 2 is not JSON: an object with context"),
        (reader, '{"quetsion": "who"}', "Text 2 is a JSON object without a known key; it must be a question"),
        (chooser, '{"choice": ["a"]}', "without a known key; it must be an object with context"),
    ):
        sound = '{"question": "who", "context": "people", "choices": ["a", "b"]}'
        with pytest.raises(UnmaskError, match=message):
            list(Predictor(folder).stream([sound, line]))
    for folder, line, message in (
        (classifier, '{"txet": "the film"}', "without a known key; it must be an object with text, maybe pair, or"),
        (classifier, "{}", "Text 2 is a JSON object without a known key"),
        (tagger, '{"word": ["the"]}', "without a known key; it must be an object with words"),
    ):
        with pytest.raises(UnmaskError, match=message):
            list(Predictor(folder).stream(['{"text": "the film"}', line]))


def squad(path):
    qas = [{"id": f"q{i}", "question": q, "answers": []} for i, q in enumerate(["who", "what is good"])]
    paragraphs = [{"context": "the film was good", "qas": qas[:1]}, {"context": "people talk", "qas": qas[1:]}]
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def test_a_squad_file_becomes_predictions(reader, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("unmask.serve.answering.ROWS_AT_ONCE", 1)
    path, out = squad(tmp_path / "dev.json"), tmp_path / "predictions.json"
    main(["predict", "--model", str(reader), "--file", str(path), "--out", str(out)])
    assert capsys.readouterr().out == f"2 answers -> {out}\n"
    answers = Predictor(reader)([("who", "the film was good"), ("what is good", "people talk")])
    assert json.loads(out.read_text()) == {"q0": answers[0]["answer"], "q1": answers[1]["answer"]}
    main(["predict", "--model", str(reader), "--file", str(path), "--json"])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(answer["id"], answer["answer"]) for answer in printed] == [
        (f"q{i}", answer["answer"]) for i, answer in enumerate(answers)
    ]


def test_what_cannot_be_written_is_refused(reader, classifier, tmp_path, capsys):
    lines, out = tmp_path / "lines.jsonl", tmp_path / "predictions.json"
    item = {"question": "who", "context": "people talk"}
    for folder, items, message in (
        (reader, [item], "has no id"),
        (reader, [{**item, "id": "a"}, {**item, "id": "a"}], "an earlier one have the id 'a'"),
        (
            classifier,
            [{"text": "film"}],
            "predictions.json can hold only answers to questions about a context: --out FILE.jsonl",
        ),
    ):
        lines.write_text("".join(json.dumps(one) + "\n" for one in items))
        with pytest.raises(UnmaskError, match=message):
            write_predictions(Predictor(folder).stream(lines.read_text().splitlines()), out)
        assert not out.exists()
    assert write_predictions(Predictor(reader).stream(["", json.dumps({**item, "id": "a"})]), out) == 1
    answers = iter([("who", {"spans": [], "answer": "", "id": "a"})])
    for places in ({"out": tmp_path}, {"out": out, "no_answer": tmp_path}):
        with pytest.raises(UnmaskError, match="could not be written"):
            write_predictions(answers, **places)
    assert next(answers)  # none was asked for
    for file in ("a.xlsx", "answers.json"):
        with pytest.raises(SystemExit):
            main(["predict", "--model", str(classifier), "--file", "missing.txt", "--out", str(tmp_path / file)])
        assert f"{file} can hold only" in capsys.readouterr().err


def test_files_of_choices(chooser, tmp_path, capsys):
    path = tmp_path / "swag.csv"
    path.write_text("sent1,sent2,ending0,ending1,label\nthe film,was,good,bad,0\npeople,who,talk,returns,1\n")
    predictor = Predictor(chooser)
    (asked, answer), _ = predictor.answers_to(predictor.rows_in(path))
    assert asked == "was"
    with pytest.raises(SystemExit):
        main(["predict", "--model", str(chooser), "--file", str(path), "--out", str(tmp_path / "a.jsonl")])
    assert "are not lines: leave --out out" in capsys.readouterr().err
    alone = Predictor(chooser)([{"context": "the film", "question": "was", "choices": ["good", "bad"]}])[0]
    assert answer == near(alone)
    assert QuestionAnswering.rows_in(path) is Classification.rows_in(path) is None
    assert predictor.rows_in(tmp_path / "a.txt") is None


def test_rows_of_files_are_answered_whatever_their_label(classifier):
    rows = [Row("the film", label="unheard of"), Row("the film")]
    first, second = Predictor(classifier).answer(rows)
    assert first == near(second)
    assert Predictor(classifier).answer([]) == []
