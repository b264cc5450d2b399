"""Multiple choice: rows with any number of choices; the same numbers as `transformers` and as a loop over rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import huggingface
from unmask.data import collate
from unmask.data.labelled.rows import Choices, Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert, Roberta
from unmask.tasks import MultipleChoice, task_of
from unmask.types import Example

TEXT = "the film was good and the plot bad with people who talk about a list of strings"
WORDS = TEXT.split()
TOKENIZER = Tokenizer.train([TEXT] * 3, 150)
TASK = MultipleChoice()


def build(page=Bert, length=64):
    config = page(vocabulary=TOKENIZER.size, length=length, layers=2, dim=32, heads=2, hidden=64, std=0.2)
    return config.build(heads=MultipleChoice.heads, seed=3).eval()


MODEL = build()

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)


@st.composite
def choice_rows(draw):
    choices = draw(st.lists(texts, min_size=2, max_size=5))
    pair = draw(st.none() | texts)
    return Choices(draw(texts), pair, str(draw(st.integers(0, len(choices) - 1))), choices=tuple(choices))


def fixed_rows(count=6, seed=0, choices=(2, 3, 4, 5)):
    rng = np.random.default_rng(seed)

    def text(least, most):
        return " ".join(rng.choice(WORDS, rng.integers(least, most)))

    numbers = [choices[i % len(choices)] for i in range(count)]
    labels = [str(rng.integers(n)) for n in numbers]
    return [
        Choices(text(1, 12), text(1, 4) if i % 2 else None, label, choices=tuple(text(1, 6) for _ in range(n)))
        for i, (n, label) in enumerate(zip(numbers, labels, strict=True))
    ]


def logits_of(row, model=MODEL):
    """The scores [C] of a row's choices, one sequence after the other."""
    found = []
    for choice in row.choices:
        second = choice if row.pair is None else f"{row.pair} {choice}"
        tokens, segments = TOKENIZER.join(*TOKENIZER.ids([row.text, second]))
        batch = collate.pad([Example(tokens, segments)], TOKENIZER.pad, 1)
        found.append(model.answer("choice", model(batch), torch.tensor([0]))[0, 0])
    return torch.stack(found)


# ------------------------------------------------------------------------------------------------ encoding


@given(st.lists(choice_rows(), min_size=1, max_size=4))
def test_a_row_has_a_sequence_for_each_choice_and_one_target(rows):
    encoded = TASK.encode(rows, TOKENIZER, 64)
    assert encoded.together
    assert encoded.owners.tolist() == [i for i, row in enumerate(rows) for _ in row.choices]
    for row, own in zip(rows, encoded.of_rows, strict=True):
        for i, (choice, example) in enumerate(zip(row.choices, encoded.examples[own], strict=True)):
            second = choice if row.pair is None else f"{row.pair} {choice}"
            tokens, segments = TOKENIZER.join(*TOKENIZER.ids([row.text, second]))
            np.testing.assert_array_equal(example.tokens, tokens)
            np.testing.assert_array_equal(example.segments, segments)
            if i:
                assert example.targets == {}
            else:
                places, values = example.targets["choice"]
                assert (places.tolist(), values.tolist()) == ([0], [int(row.label)])


def test_long_contexts_are_cut_and_said():
    rows = [
        Choices("film", None, "0", choices=("good", "bad")),
        Choices("film " * 50, "the plot", "1", choices=("was good", "was bad")),
    ]
    encoded = TASK.encode(rows, TOKENIZER, 24)
    assert encoded.cut == (1,)
    assert "1 of 2 rows (50.0%) are longer than 24 tokens and were cut" in encoded.notice
    ends = [TOKENIZER.ids([f"the plot {choice}"])[0].tolist() for choice in rows[1].choices]
    for example, end in zip(encoded.examples[2:], ends, strict=True):
        assert len(example.tokens) == 24
        assert example.tokens.tolist()[-len(end) - 1 : -1] == end  # the choice stays whole


# ------------------------------------------------------------------------------------------------ loss


@pytest.mark.parametrize("page", [Bert, Roberta])
def test_loss_and_gradients_are_those_of_transformers(tmp_path, page):
    transformers = pytest.importorskip("transformers")
    model = build(page)
    huggingface.save(tmp_path, model, TOKENIZER, settings=TASK.settings())
    theirs = getattr(transformers, f"{page.__name__}ForMultipleChoice").from_pretrained(tmp_path).eval()
    rows = fixed_rows(5, choices=(4,))
    encoded = TASK.encode(rows, TOKENIZER, 64)
    examples = encoded.examples if page is Bert else [replace(e, segments=None) for e in encoded.examples]
    batch = collate.pad(examples, TOKENIZER.pad, 1)
    loss = TASK.loss(model, batch)["choice"]
    loss.sum.backward()
    shape = (len(rows), 4, batch.tokens.shape[1])
    segments = {"token_type_ids": batch.segments.view(shape)} if page is Bert else {}
    right = torch.tensor([int(row.label) for row in rows])
    output = theirs(
        input_ids=batch.tokens.view(shape),
        attention_mask=(batch.documents > 0).long().view(shape),
        labels=right,
        **segments,
    )
    output.loss.backward()
    assert loss.count == batch.counts["choice"] == len(rows)
    assert loss.sum.item() / len(rows) == pytest.approx(output.loss.item(), rel=1e-5)
    assert int(loss.metrics["correct"]) == int((output.logits.argmax(1) == right).sum())
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    compared = 0
    for ours, other in huggingface.names(model).items():
        mine = dict(model.named_parameters())[ours].grad
        torch.testing.assert_close(mine / len(rows), gradients[other], rtol=1e-3, atol=1e-6)
        compared += mine.abs().max() > 1e-4
    assert compared > 20


@given(st.lists(choice_rows(), min_size=1, max_size=4), st.booleans())
@settings(max_examples=25)
def test_rows_of_different_numbers_of_choices_are_right(rows, packed):
    encoded = TASK.encode(rows, TOKENIZER, 64)
    batch = (
        collate.pack(encoded.examples, 64, TOKENIZER.pad) if packed else collate.pad(encoded.examples, TOKENIZER.pad)
    )
    with torch.no_grad():
        loss = TASK.loss(MODEL, batch)["choice"]
        logits = [logits_of(row) for row in rows]
    wanted = [F.cross_entropy(one[None], torch.tensor([int(row.label)])) for one, row in zip(logits, rows, strict=True)]
    assert loss.sum.item() == pytest.approx(sum(w.item() for w in wanted), rel=1e-4, abs=1e-5)
    assert loss.count == len(rows)
    found = TASK.answer_all(MODEL, encoded, TOKENIZER.pad)
    for answer, one in zip(found, logits, strict=True):
        assert answer.shape == (1, len(one))
        np.testing.assert_allclose(answer[0], one.softmax(0).numpy(), atol=1e-5)


def test_packed_padded_and_alone_have_the_same_gradients():
    rows = fixed_rows(8)
    encoded = TASK.encode(rows, TOKENIZER, 64)
    batches = {
        "packed": [collate.pack(encoded.examples, 64, TOKENIZER.pad)],
        "padded": [collate.pad(encoded.examples, TOKENIZER.pad)],
        "alone": [collate.pad(encoded.examples[own], TOKENIZER.pad) for own in encoded.of_rows],
    }
    assert (np.diff(batches["packed"][0].starts.numpy()) < 0).any()  # not in the order of the examples
    sums, gradients = {}, {}
    for name, parts in batches.items():
        model = build()
        total = sum(TASK.loss(model, batch)["choice"].sum for batch in parts)
        total.backward()
        sums[name] = total.item()
        gradients[name] = [p.grad for p in model.parameters()]
    for name in ("packed", "padded"):
        assert sums[name] == pytest.approx(sums["alone"], rel=1e-5)
        for mine, wanted in zip(gradients[name], gradients["alone"], strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-5)


def test_a_batch_that_tears_a_row_apart_is_refused():
    encoded = TASK.encode(fixed_rows(2), TOKENIZER, 64)
    with pytest.raises(UnmaskError, match="within the choices of a row"):
        TASK.loss(MODEL, collate.pad(encoded.examples[1:], TOKENIZER.pad))


def test_it_learns():
    rows = [
        Choices(word, None, str(i % 3), choices=tuple(word if k == i % 3 else other for k in range(3)))
        for i, (word, other) in enumerate(
            [("film", "plot"), ("plot", "people"), ("people", "film"), ("film", "people")]
        )
    ]
    model = build()
    encoded = TASK.encode(rows, TOKENIZER, 32)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(40):
        optimizer.zero_grad()
        loss = TASK.loss(model, collate.pack(encoded.examples, 32, TOKENIZER.pad))["choice"]
        (loss.sum / loss.count).backward()
        optimizer.step()
    scores = TASK.evaluate(model, encoded, TOKENIZER.pad)
    assert scores["accuracy"] == 1.0
    assert scores["loss"] < 0.3


# ------------------------------------------------------------------------------------------------ scores


def test_the_loss_of_an_evaluation_is_that_of_the_model():
    rows = fixed_rows(6)
    encoded = TASK.encode(rows, TOKENIZER, 64)
    with torch.no_grad():
        loss = TASK.loss(MODEL, collate.pad(encoded.examples, TOKENIZER.pad))["choice"]
    scores = TASK.evaluate(MODEL, encoded, TOKENIZER.pad)
    assert scores["loss"] == pytest.approx(loss.sum.item() / 6, rel=1e-5)
    assert scores["accuracy"] == pytest.approx(int(loss.metrics["correct"]) / 6)


def test_metrics_and_baseline():
    rows = [Choices("a", label=label, choices=("x", "y", "z")) for label in "0121"]
    answers = [np.array([[0.5, 0.3, 0.2]]), np.array([[0.5, 0.3, 0.2]]), *[np.array([[0.1, 0.2, 0.7]])] * 2]
    scores = TASK.metrics(answers, rows)
    assert scores["accuracy"] == 0.5
    assert scores["loss"] == pytest.approx(-np.log([0.5, 0.3, 0.7, 0.2]).mean())
    assert TASK.baseline(rows, rows) == {"accuracy": 0.5}  # the second choice
    assert TASK.baseline(rows, rows[:1]) == {"accuracy": 0.25}
    assert TASK.metric == "accuracy"


def test_bad_rows():
    row = Choices("film", None, "0", choices=("good", "bad"), place="swag.csv:7")
    for bad, message in (
        (Row("film", place="x:1"), "x:1 has no choices: two or more"),
        (Choices("film", choices=("good",)), "Row 2 has no choices"),
        (Choices("film", None, "2", choices=("a", "b"), place="x:3"), "x:3 has the label '2', .* from 0 to 1"),
        (Choices("film", None, "B", choices=("a", "b")), "A row has the label 'B'"),
        (Choices("film", None, "-1", choices=("a", "b")), "label '-1'"),
    ):
        with pytest.raises(UnmaskError, match=message):
            TASK.encode([row, bad], TOKENIZER, 32)
    unlabelled = Choices("film", choices=("good", "bad"), place="x:9")
    encoded = TASK.encode([unlabelled], TOKENIZER, 32)  # to be answered
    answers = TASK.answer_all(MODEL, encoded, TOKENIZER.pad)
    with pytest.raises(UnmaskError, match="x:9 has the label ''"):
        TASK.metrics(answers, [unlabelled])
    with pytest.raises(UnmaskError, match="cannot hold the 3 special tokens"):
        TASK.encode([row], TOKENIZER, 2)


def test_a_folder_remembers_the_task(tmp_path):
    huggingface.save(tmp_path, MODEL, TOKENIZER, settings=TASK.settings())
    loaded = huggingface.load(tmp_path)
    assert isinstance(task_of(loaded.model, loaded.labels, loaded.settings), MultipleChoice)
    with pytest.raises(UnmaskError, match=r"no setting of MultipleChoice .*'stride'"):
        task_of(loaded.model, settings={"stride": 3})
