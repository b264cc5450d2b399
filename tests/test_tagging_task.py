"""Tagging: legal sequences, a CRF over the words, predicates, windows, and folders that answer as before."""

from __future__ import annotations

import json
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import huggingface
from unmask.data import collate
from unmask.data.labelled.rows import Row
from unmask.data.labelled.schemes import SCHEMES, allowed, tag_set
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert, Roberta
from unmask.runs.finetuning import Fit, fit
from unmask.serve import Predictor
from unmask.tasks import ClassLoss, Tagging, needs_segments, scheme_of, task_of
from unmask.tasks.tagged_words import check_segments
from unmask.tasks.tagging import Chosen, probabilities
from unmask.train.optim import Optimizer

IOB2 = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WORDS = ("the", "film", "was", "good", "and", "plot", "bad", "with", "people", "who", "talk")
TOKENIZER = Tokenizer.train([" ".join(WORDS)] * 3, 120)


def test_a_file_of_tagged_words_has_a_row_for_each_sentence(tmp_path):
    (tmp_path / "test.txt").write_text("Rome B-LOC\nis O\n\nit O\n")
    rows = Tagging.rows_in(tmp_path / "test.txt")
    assert [(row.words, row.tags) for row in rows] == [(("Rome", "is"), ()), (("it",), ())]
    (tmp_path / "texts.txt").write_text("Rome is big .\n\nit is .\n")
    assert Tagging.rows_in(tmp_path / "texts.txt") is None


def test_a_vocabulary_without_capitals_is_noted_for_names():
    rows = [Row("Ann of Rome", words=("Ann", "of", "Rome"), tags=("B-PER", "O", "B-LOC"))]
    cased, lower = Tokenizer.train(["Ann of Rome"], 60, cased=True), Tokenizer.train(["Ann of Rome"], 60)

    def notes(labels, rows, tokenizer):
        task = Tagging(labels)
        return task.for_training(task.encode(rows, tokenizer, 32), tokenizer).notes

    [note] = notes(IOB2, rows, lower)
    assert note.startswith("Of the words with a tag other than O, 100% begin with a capital")
    assert notes(IOB2, rows, cased) == ()
    small = [Row("a film", words=("a", "film"), tags=("O", "B-LOC"))]
    assert notes(IOB2, small, lower) == ()
    parts = [Row("Ann of", words=("Ann", "of"), tags=("NOUN", "ADP"))]
    assert notes(("NOUN", "ADP"), parts, lower) == ()


def build(task, *, config=Bert, length=64, seed=3, crf=1.0, **fields):
    """A tiny model whose CRF, if it has one, has numbers that matter."""
    model = config(
        vocabulary=TOKENIZER.size, length=length, layers=1, dim=32, heads=2, hidden=64, std=0.3, dropout=0.0, **fields
    ).build(heads=task.heads, seed=seed)
    if "crf" in task.heads:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.heads["crf"].parameters():
                parameter.normal_(0, crf, generator=generator)
    return model.eval()


def sentences(number=7, labels=IOB2, scheme="IOB2", seed=0, longest=9):
    """Rows of random words with legal tags."""
    rng = np.random.default_rng(seed)
    rules = allowed(labels, scheme)
    rows = []
    while len(rows) < number:
        ids = rng.integers(0, len(labels), rng.integers(1, longest + 1))
        if is_legal(ids, rules):
            words = tuple(WORDS[i] for i in rng.integers(0, len(WORDS), len(ids)))
            rows.append(Row(words=words, tags=tuple(labels[i] for i in ids), place=f"x:{len(rows)}"))
    return rows


def is_legal(path, rules):
    ends = not len(path) or (rules.begin[path[0]] and rules.end[path[-1]])
    return bool(ends and all(rules.between[a, b] for a, b in pairwise(path)))


# ------------------------------------------------------------------------------------------- legal sequences


@st.composite
def sentence_answers(draw):
    """A scheme, its tags, and random probabilities of a few short sentences."""
    scheme = draw(st.sampled_from(sorted(SCHEMES)))
    labels = tag_set(draw(st.sampled_from([["X"], ["X", "Y"]])) if scheme in ("IOB1", "IOB2") else ["X"], scheme)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sharp = draw(st.sampled_from([1.0, 30.0, 300.0]))  # in single precision many probabilities are 0
    lengths = draw(st.lists(st.integers(0, 4), max_size=3))
    logits = [sharp * rng.normal(size=(n, len(labels))).astype(np.float32) for n in lengths]
    return scheme, labels, [torch.from_numpy(x).softmax(-1).numpy() for x in logits]


@given(sentence_answers())
@settings(max_examples=60, deadline=None)
def test_decoded_tags_are_the_best_of_all_that_are_legal(case):
    scheme, labels, answers = case
    rules = allowed(labels, scheme)
    decoded = Tagging(labels, scheme=scheme).decode(answers)
    assert [len(tags) for tags in decoded] == [len(answer) for answer in answers]
    for tags, answer in zip(decoded, answers, strict=True):
        path = [labels.index(tag) for tag in tags]
        assert is_legal(path, rules)
        scores = np.log(np.maximum(answer.astype(np.float64), np.finfo(np.float32).tiny))
        legal = [p for p in product(range(len(labels)), repeat=len(answer)) if is_legal(p, rules)]
        best = max(sum(scores[i, t] for i, t in enumerate(p)) for p in legal)
        assert sum(scores[i, t] for i, t in enumerate(path)) == pytest.approx(best, abs=1e-6)


def test_a_stray_inside_is_answered_only_without_a_scheme():
    labels = ("O", "B-PER", "I-PER")
    answer = np.array([[0.5, 0.1, 0.4], [0.3, 0.3, 0.4], [0.4, 0.1, 0.5]], np.float32)
    assert Tagging(labels).decode([answer]) == [["O", "I-PER", "I-PER"]]
    assert Tagging(labels, scheme="IOB2").decode([answer]) == [["O", "B-PER", "I-PER"]]
    assert Tagging(labels, scheme="IOB1").decode([answer]) == [["O", "I-PER", "I-PER"]]
    rows = [Row(words=("a", "b", "c"), tags=("O", "B-PER", "I-PER"))]
    assert Tagging(labels).metrics([answer], rows)["accuracy"] == pytest.approx(2 / 3)
    found = Tagging(labels, scheme="IOB2").metrics([answer], rows)
    assert (found["accuracy"], found["f1"]) == (1.0, 1.0)
    assert found["loss"] == pytest.approx(-np.log([0.5, 0.3, 0.5]).mean())
    assert Tagging(labels, scheme="IOB2").report([answer], rows)["PER"]["f1"] == 1.0


def test_settings_are_what_differs_from_the_defaults():
    assert Tagging(IOB2).settings() == {}
    assert Tagging(IOB2, scheme="IOB2").settings() == {"scheme": "IOB2"}
    assert Tagging(IOB2, scheme="IOB2", crf=True).settings() == {"scheme": "IOB2", "crf": True}
    assert Tagging(IOB2, crf=True).heads == as_heads({"tagging": 5, "crf": 5})
    with pytest.raises(UnmaskError, match="'IOB3'"):
        Tagging(IOB2, scheme="IOB3")
    with pytest.raises(UnmaskError, match="one of the two"):
        Tagging(IOB2, crf=True, weighing=ClassLoss(gamma=2.0))


def test_the_scheme_is_that_of_the_training_rows():
    assert scheme_of(sentences()) == "IOB2"
    assert scheme_of([Row(words=("a", "b"), tags=("O", "S-X")), Row(words=("a",), tags=("S-Y",))]) == "IOBES"
    assert scheme_of([Row(words=("a",), tags=("NOUN",))]) is None


def test_the_same_tag_everywhere_is_a_collapse_unless_it_is_right():
    same, other = np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([[0.2, 0.8]])
    rows = [Row(words=("a", "b"), tags=("O", "X")), Row(words=("a",), tags=("O",))]
    task = Tagging(["O", "X"])
    assert task.is_collapsed([same, same[:1]], rows)
    assert not task.is_collapsed([same, other], rows)
    assert not task.is_collapsed([same, same[:1]], [Row(words=("a", "b"), tags=("O", "O")), rows[1]])


# ------------------------------------------------------------------------------------------- losses


def test_weighed_classes_count_as_they_are_said_to():
    rows = sentences()
    weighing = ClassLoss((0.5, 2.0, 1.0, 3.0, 0.0), gamma=2.0)
    task = Tagging(IOB2, weighing=weighing)
    model = build(task)
    batch = collate.pack(task.encode(rows, TOKENIZER, 32).examples, 32, TOKENIZER.pad)
    loss, target = task.loss(model, batch)["tagging"], batch.targets["tagging"]
    logits = model.answer("tagging", model(batch), target.places)
    p = logits.softmax(-1)[torch.arange(len(logits)), target.values]
    wanted = -(torch.tensor(weighing.weights)[target.values] * (1 - p) ** 2 * p.log()).sum()
    torch.testing.assert_close(loss.sum, wanted)
    assert loss.sum.item() != pytest.approx(Tagging(IOB2).loss(model, batch)["tagging"].sum.item(), rel=1e-2)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_the_focal_loss_has_a_gradient_where_the_model_is_certain(gamma):
    logits = torch.tensor([[60.0, 0.0], [0.0, 60.0], [0.0, 0.0]], requires_grad=True)
    ClassLoss(gamma=gamma)(logits, torch.tensor([0, 0, 0])).sum.backward()
    assert logits.grad.isfinite().all()
    torch.testing.assert_close(logits.grad[:2], torch.tensor([[0.0, 0.0], [-1.0, 1.0]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("scheme", [None, "IOB2"])
def test_the_loss_is_that_of_each_sentence_packed_or_padded(scheme):
    """The value and every gradient, against the log-softmax over all sequences, a sentence at a time."""
    labels = IOB2[:3]
    rows = sentences(6, labels, longest=5)
    task = Tagging(labels, scheme=scheme, crf=True)
    model = build(task)
    examples = task.encode(rows, TOKENIZER, 24).examples

    def gradients(total):
        model.zero_grad()
        total.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    def one_by_one():
        crf, rules, total = model.heads["crf"], allowed(labels, "IOB2"), torch.zeros(())
        for example in examples:
            batch = collate.pad([example], TOKENIZER.pad, 1)
            target = batch.targets["tagging"]
            emissions = model.answer("tagging", model(batch), target.places)
            scores, own = [], None
            for path in product(range(3), repeat=len(emissions)):
                if scheme and not all(rules.between[a, b] for a, b in pairwise(path)):
                    continue
                score = crf.begin[path[0]] + crf.end[path[-1]] + sum(emissions[i, t] for i, t in enumerate(path))
                scores.append(score + sum(crf.transitions[a, b] for a, b in pairwise(path)))
                own = scores[-1] if list(path) == target.values.tolist() else own
            total = total + torch.stack(scores).logsumexp(0) - own
        return total

    wanted = one_by_one()
    wanted_gradients = gradients(wanted)
    assert {"heads.crf.transitions", "heads.crf.begin", "heads.crf.end"} <= wanted_gradients.keys()
    for batch in (collate.pack(examples, 24, TOKENIZER.pad), collate.pad(examples, TOKENIZER.pad)):
        loss = task.loss(model, batch)["tagging"]
        assert loss.count == batch.counts["tagging"] == sum(len(row.words) for row in rows)
        torch.testing.assert_close(loss.sum, wanted, rtol=1e-4, atol=1e-4)
        found = gradients(loss.sum)
        assert found.keys() == wanted_gradients.keys()
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, wanted_gradients[name], rtol=1e-3, atol=2e-4, msg=name)


def test_packed_sequences_are_not_in_the_order_of_the_examples():
    """Else the test above would not see lengths that are given to the wrong sentences."""
    rows = sentences(6, IOB2[:3], longest=5)
    batch = collate.pack(Tagging(IOB2[:3]).encode(rows, TOKENIZER, 24).examples, 24, TOKENIZER.pad)
    assert batch.starts.tolist() != sorted(batch.starts.tolist())
    assert batch.tokens.shape[0] < len(rows)


def test_stray_tags_are_learned_as_the_scheme_writes_them():
    row = Row(words=("the", "film", "was"), tags=("O", "I-PER", "I-PER"), place="x.txt:4")

    def values(**options):
        return Tagging(IOB2, **options).encode([row], TOKENIZER, 16).examples[0].targets["tagging"][1].tolist()

    assert values(scheme="IOB2", crf=True) == [0, 1, 2]
    assert values(crf=True) == values(scheme="IOB2") == values(scheme="IOB1", crf=True) == [0, 2, 2]
    with pytest.raises(UnmaskError, match=r"x\.txt:4 has tags that are not legal in IOB2.*'B-PER'"):
        Tagging(("O", "I-PER", "B-LOC"), scheme="IOB2", crf=True).encode([row], TOKENIZER, 16)


def test_a_window_may_begin_inside_a_span():
    task = Tagging(IOB2, scheme="IOB2", crf=True)
    row = Row(words=("film",) * 40, tags=("B-PER", *("I-PER",) * 39))
    encoded = task.encode([row], TOKENIZER, 12)
    assert len(encoded.examples) > 3
    loss = task.loss(build(task), collate.pack(encoded.examples, 16, TOKENIZER.pad))["tagging"]
    assert loss.count == 40
    assert loss.sum.item() / loss.count < 20  # what is forbidden costs 10,000


# ------------------------------------------------------------------------------------------- answers of a CRF


@pytest.mark.parametrize("scheme", [None, "IOB2"])
def test_answers_are_marginals_and_the_best_sequence_of_the_whole_sentence(scheme):
    """Also where the sentence was split, against the enumeration of all sequences over its emissions."""
    labels = IOB2[:3]
    task = Tagging(labels, scheme=scheme, crf=True)
    model = build(task, crf=2.0)
    rows = [Row(words=WORDS[:7]), Row(words=("film",)), Row(words=()), Row(words=("talk", "bad", "the"))]
    encoded = task.encode(rows, TOKENIZER, 6)
    assert encoded.split >= 1
    emissions = super(Tagging, task).answer_all(model, encoded, TOKENIZER.pad)
    crf, rules = model.heads["crf"], allowed(labels, "IOB2")
    for row, answer, e in zip(rows, task.answer_all(model, encoded, TOKENIZER.pad), emissions, strict=True):
        assert isinstance(answer, Chosen)
        assert answer.probabilities.shape == (len(row.words), 3)
        if not row.words:
            assert answer.best.tolist() == []
            continue
        paths = [p for p in product(range(3), repeat=len(e)) if scheme is None or is_legal(p, rules)]
        scores = torch.stack(
            [
                crf.begin[p[0]]
                + crf.end[p[-1]]
                + sum(e[i, t] for i, t in enumerate(p))
                + sum(crf.transitions[a, b] for a, b in pairwise(p))
                for p in paths
            ]
        )
        p = scores.detach().softmax(0)
        assert tuple(answer.best.tolist()) == paths[int(p.argmax())]
        assert task.decode([answer]) == [[labels[t] for t in paths[int(p.argmax())]]]
        for i in range(len(e)):
            for t in range(3):
                wanted = sum(float(x) for x, path in zip(p, paths, strict=True) if path[i] == t)
                assert answer.probabilities[i, t] == pytest.approx(wanted, abs=1e-5)


def test_every_word_of_a_long_sentence_has_one_legal_answer():
    task = Tagging(IOB2, scheme="IOB2", crf=True)
    model = build(task, crf=2.0)
    rows = [Row(words=(WORDS * 9)[:n]) for n in (90, 3, 41, 1, 0)]
    encoded = task.encode(rows, TOKENIZER, 14)
    assert encoded.split == 2
    answers = task.answer_all(model, encoded, TOKENIZER.pad)
    rules = allowed(IOB2, "IOB2")
    for row, answer, tags in zip(rows, answers, task.decode(answers), strict=True):
        assert len(tags) == len(row.words) == len(answer.best) == len(answer.probabilities)
        np.testing.assert_allclose(answer.probabilities.sum(-1), 1, atol=1e-6)
        assert is_legal(answer.best.tolist(), rules)
    assert len({tag for tags in task.decode(answers) for tag in tags}) > 2


def test_answers_do_not_depend_on_what_is_answered_with_them(monkeypatch):
    task = Tagging(IOB2, scheme="IOB2", crf=True)
    model = build(task, crf=2.0)
    encoded = task.encode(sentences(9), TOKENIZER, 24)
    together = task.answer_all(model, encoded, TOKENIZER.pad)
    monkeypatch.setattr("unmask.tasks.tagging.AT_ONCE", 2)
    for one, other in zip(task.answer_all(model, encoded, TOKENIZER.pad), together, strict=True):
        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-5)
        assert one.best.tolist() == other.best.tolist()


def test_a_crf_learns_what_follows_what():
    """Every word is the same, so that only what a tag follows can say which it is: O A B O A B …"""
    labels = ("O", "A", "B")
    rng = np.random.default_rng(0)
    rows = [
        Row(words=("film",) * n, tags=tuple(labels[(i + begin) % 3] for i in range(n)))
        for n, begin in zip(rng.integers(4, 9, 60).tolist(), rng.integers(0, 3, 60).tolist(), strict=True)
    ]
    found = {}
    for crf in (False, True):
        task = Tagging(labels, crf=crf)
        model = build(task, crf=0.0)
        with torch.no_grad():
            model.embedding.position.table.weight.zero_()  # the trunk cannot count
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("heads."))
        encoded = task.encode(rows, TOKENIZER, 16)
        config = Fit(epochs=8, least_steps=1, batch_size=8, optimizer=Optimizer(lr=0.1, weight_decay=0.0))
        fit(model, task, encoded, encoded, config, pad=TOKENIZER.pad)
        decoded = task.decode(task.answer_all(model, encoded, TOKENIZER.pad))
        steps = [(labels.index(a), labels.index(b)) for tags in decoded for a, b in pairwise(tags)]
        found[crf] = np.mean([b == (a + 1) % 3 for a, b in steps])
    assert found[True] == 1.0
    assert found[False] == 0.0


# ------------------------------------------------------------------------------------------- folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("crf")
    task = Tagging(IOB2, scheme="IOB2", crf=True)
    huggingface.save(path, build(task, crf=2.0), TOKENIZER, labels=task.labels, settings=task.settings())
    return path


@pytest.mark.parametrize("config", [Bert, Roberta])
def test_a_folder_gives_the_same_model_and_task_again(tmp_path, config):
    task = Tagging(IOB2, scheme="IOB2", crf=True)
    model = build(task, config=config, crf=2.0)
    huggingface.save(tmp_path, model, TOKENIZER, labels=task.labels, settings=task.settings())
    loaded = huggingface.load(tmp_path)
    assert (loaded.new, loaded.dropped) == ((), ())
    stored = loaded.model.state_dict()
    assert stored.keys() == model.state_dict().keys()
    for name, before in model.state_dict().items():
        assert torch.equal(before, stored[name]), name
    again = task_of(loaded.model, loaded.labels, loaded.settings)
    assert isinstance(again, Tagging)
    assert (again.labels, again.scheme, again.crf) == (IOB2, "IOB2", True)
    encoded = task.encode(sentences(), TOKENIZER, 24)
    before, after = (
        t.decode(t.answer_all(m, encoded, TOKENIZER.pad)) for t, m in ((task, model), (again, loaded.model))
    )
    assert before == after


def test_the_predictor_answers_with_the_crf(folder):
    task = Tagging(IOB2, scheme="IOB2", crf=True)
    rows = [Row(words=row.words) for row in sentences(12, seed=5)]
    model = build(task, crf=2.0)
    answers = task.answer_all(model, task.encode(rows, TOKENIZER, 64), TOKENIZER.pad)
    predicted = Predictor(folder)([{"words": row.words} for row in rows])
    assert [[word["tag"] for word in answer["words"]] for answer in predicted] == task.decode(answers)
    for answer, wanted in zip(predicted, answers, strict=True):
        likely = probabilities(wanted)[np.arange(len(wanted.best)), wanted.best]
        assert [word["probability"] for word in answer["words"]] == pytest.approx(likely.tolist(), abs=1e-5)
    assert any(answer["entities"] for answer in predicted)


def test_the_crf_is_dropped_or_new_where_other_heads_are_asked_for(folder, tmp_path):
    assert huggingface.load(folder, heads=as_heads({"tagging": 5})).dropped == ("crf",)
    assert "crf" in huggingface.load(folder, heads=as_heads({"span": 2})).dropped
    fresh = huggingface.load(folder, heads=as_heads({"tagging": 3, "crf": 3}))
    assert fresh.new == ("crf", "tagging")
    assert not fresh.model.heads["crf"].transitions.any()
    plain = Tagging(IOB2)
    huggingface.save(tmp_path, build(plain), TOKENIZER, labels=IOB2)
    loaded = huggingface.load(tmp_path)
    assert set(loaded.model.heads) == {"tagging"}
    assert not task_of(loaded.model, loaded.labels, loaded.settings).crf
    assert huggingface.load(tmp_path, heads=Tagging(IOB2, crf=True).heads).new == ("crf",)


def test_a_folder_and_what_it_remembers_must_agree(folder):
    loaded = huggingface.load(folder)
    assert task_of(loaded.model, IOB2).crf  # the weights say so
    with pytest.raises(UnmaskError, match="has a CRF"):
        task_of(loaded.model, IOB2, {"crf": False})
    with pytest.raises(UnmaskError, match="has no CRF"):
        task_of(build(Tagging(IOB2)), IOB2, {"crf": True})
    with pytest.raises(UnmaskError, match="scheme must be"):
        task_of(loaded.model, IOB2, {"scheme": 3})
    with pytest.raises(UnmaskError, match="'IOB7'"):
        task_of(loaded.model, IOB2, {"scheme": "IOB7", "crf": True})


def test_transformers_opens_the_folder_but_for_the_crf(folder):
    transformers = pytest.importorskip("transformers")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertForTokenClassification"]
    theirs, info = transformers.AutoModelForTokenClassification.from_pretrained(folder, output_loading_info=True)
    assert type(theirs).__name__ == "BertForTokenClassification"
    assert set(info["unexpected_keys"]) == {"crf.transitions", "crf.begin", "crf.end"}
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    task = Tagging(IOB2, scheme="IOB2", crf=True)
    row = Row(words=WORDS[:4])
    encoded = task.encode([row], TOKENIZER, 64)
    ours = super(Tagging, task).answer_all(huggingface.load(folder).model, encoded, TOKENIZER.pad)[0]
    example = encoded.examples[0]
    with torch.no_grad():
        logits = theirs.eval()(torch.from_numpy(example.tokens)[None]).logits[0]
    np.testing.assert_allclose(logits[example.targets["tagging"][0]].numpy(), ours, atol=1e-5)


# ------------------------------------------------------------------------------------------- semantic roles


def test_the_pieces_of_the_predicate_are_the_second_segment():
    task = Tagging(["O", "B-V", "B-A0"])
    words = ("the", "people", "talks", "talk", "bad")
    pieces = TOKENIZER.encode_words(words)
    assert (pieces.words == 2).sum() > 1
    for predicate in range(5):
        example = task.encode([Row(words=words, predicate=predicate)], TOKENIZER, 64).examples[0]
        tokens, plain = TOKENIZER.join(pieces.ids)
        np.testing.assert_array_equal(example.tokens, tokens)
        assert not plain.any()
        np.testing.assert_array_equal(example.segments[1:-1], pieces.words == predicate)
        assert example.segments[[0, -1]].tolist() == [0, 0]
    assert not task.encode([Row(words=words)], TOKENIZER, 64).examples[0].segments.any()


def test_the_predicate_is_marked_in_every_window_that_has_it():
    task = Tagging(["O", "B-V"])
    words = (*WORDS * 3,)
    encoded = task.encode([Row(words=words, predicate=20)], TOKENIZER, 16)
    own = TOKENIZER.encode_words([words[20]]).ids.tolist()
    marked = [example.tokens[example.segments == 1].tolist() for example in encoded.examples]
    assert len(encoded.examples) > 2
    assert own in marked
    assert all(tokens == own[: len(tokens)] or tokens == own[-len(tokens) :] for tokens in marked)


def test_the_answer_depends_on_the_predicate():
    task = Tagging(["O", "B-V"])
    model = build(task)
    rows = [Row(words=WORDS[:5], predicate=predicate) for predicate in (None, 1, 3)]
    answers = task.answer_all(model, task.encode(rows, TOKENIZER, 32), TOKENIZER.pad)
    assert np.abs(answers[1] - answers[2]).max() > 1e-3
    assert np.abs(answers[0] - answers[1]).max() > 1e-3


def test_a_predicate_needs_two_segments_and_a_word():
    rows = [Row(words=WORDS[:3]), Row(words=WORDS[:3], predicate=1)]
    assert needs_segments(rows)
    assert not needs_segments(rows[:1])
    task = Tagging(["O", "B-V"])
    roberta = build(task, config=Roberta)
    check_segments(roberta, rows[:1])
    check_segments(build(task), rows)
    with pytest.raises(UnmaskError, match="two segments"):
        task.answer_all(roberta, task.encode(rows, TOKENIZER, 32), TOKENIZER.pad)
    for number in (-1, 3):
        with pytest.raises(UnmaskError, match=rf"a\.txt:2 has word {number} as its predicate, but only 3 words"):
            task.encode([Row(words=WORDS[:3], predicate=number, place="a.txt:2")], TOKENIZER, 32)
