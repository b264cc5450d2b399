"""Distillation: losses and gradients as a plain loop computes them, for every task; what no teacher may be."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask import huggingface
from unmask.data import collate, examples
from unmask.data.labelled.rows import Choices, Question, Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.objectives.cross_entropy import log_softmax_within
from unmask.runs.finetuning import Fit, fit
from unmask.tasks import (
    Classification,
    Embedding,
    MultiLabel,
    MultipleChoice,
    QuestionAnswering,
    Regression,
    Tagging,
)
from unmask.tasks.distillation import (
    Distillation,
    Distilled,
    check_teacher,
    load_teacher,
)
from unmask.train.engine import Engine
from unmask.train.metrics import Meter
from unmask.train.optim import Optimizer

TEXT = "the film was good and the plot bad with people who talk about a list of strings"
WORDS = TEXT.split()
TOKENIZER = Tokenizer.train([TEXT] * 3, 150)
LENGTH = 48


def text(rng, least, most):
    return " ".join(rng.choice(WORDS, rng.integers(least, most)))


def labelled(rng, label):
    return Row(text(rng, 1, 20), text(rng, 1, 8) if rng.random() < 0.5 else None, label)


def question(rng):
    context = text(rng, 10, 30)
    words = context.split()
    answer = str(rng.choice(words))
    return Question(text(rng, 1, 4), context, answers=((context.index(answer), answer),))


def sentence(rng, labels):
    count = rng.integers(1, 30)
    return Row(words=tuple(rng.choice(WORDS, count)), tags=tuple(rng.choice(labels, count)))


def choices(rng):
    texts = tuple(text(rng, 1, 6) for _ in range(rng.integers(2, 6)))
    return Choices(text(rng, 1, 10), None, str(rng.integers(len(texts))), choices=texts)


COLOURS = ["blue", "green", "red"]
TASKS = {
    "classification": (Classification(COLOURS), lambda rng: labelled(rng, str(rng.choice(COLOURS)))),
    "multilabel": (
        MultiLabel(COLOURS),
        lambda rng: Row(text(rng, 1, 20), labels=tuple(c for c in COLOURS if rng.random() < 0.5)),
    ),
    "regression": (Regression(), lambda rng: labelled(rng, f"{rng.normal():.3f}")),
    "tagging": (Tagging(["O", "X", "Y"]), lambda rng: sentence(rng, ["O", "X", "Y"])),
    "span": (QuestionAnswering(stride=4), question),
    "choice": (MultipleChoice(), choices),
}
every_task = pytest.mark.parametrize("name", TASKS)


def build(task, seed=0, dim=32, layers=1, length=64, std=0.3, **fields):
    config = Bert(
        vocabulary=TOKENIZER.size, length=length, layers=layers, dim=dim, heads=2, hidden=32, std=std, **fields
    )
    return config.build(heads=task.heads, seed=seed).eval()


def rows_of(name, count=7, seed=0):
    task, make = TASKS[name]
    rng = np.random.default_rng(seed)
    return task, [make(rng) for _ in range(count)]


def encode(name, distilled=None, length=LENGTH, **options):
    task, rows = rows_of(name, **options)
    encoded = task.encode(rows, TOKENIZER, length)
    return encoded if distilled is None else distilled.prepare(encoded)


def packed(encoded, length=LENGTH):
    return encoded.completed(collate.pack(encoded.examples, length, TOKENIZER.pad))


def padded(encoded):
    return encoded.completed(collate.pad(encoded.examples, TOKENIZER.pad))


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return {k: torch.zeros_like(p) if p.grad is None else p.grad.clone() for k, p in model.named_parameters()}


def kl(student, teacher):
    """KL(teacher || student) of two distributions [C], written out."""
    return sum(p * (p.log() - q.log()) for p, q in zip(teacher, student, strict=True))


def plain_soft(name, task, encoded, student, teacher, t):
    """The soft term, one row after the other: (sum, count)."""

    def logits(model, example, places):
        batch = collate.pad([example], TOKENIZER.pad, 1)
        return model.answer(name, model(batch), torch.as_tensor(places), batch)

    def both(example, places):
        with torch.no_grad():
            taught = logits(teacher, example, places)
        return logits(student, example, places), taught

    total, count = torch.zeros(()), 0
    for own in encoded.of_rows:
        examples = encoded.examples[own]
        if name == "choice":
            parts = [both(example, [0]) for example in examples]
            said, taught = (torch.cat([part[i][:, 0] for part in parts]) for i in (0, 1))
            total, count = total + t * t * kl((said / t).softmax(0), (taught / t).softmax(0)), count + 1
            continue
        for example in examples:
            if name == "span":
                said, taught = both(example, np.arange(len(example.tokens)))
                for side in (0, 1):
                    total = total + t * t * kl((said[:, side] / t).softmax(0), (taught[:, side] / t).softmax(0))
                count += 2
                continue
            said, taught = both(example, example.targets[name][0])
            if name == "multilabel":
                for z, w in zip(said[0], taught[0], strict=True):
                    q, p = (z / t).sigmoid(), (w / t).sigmoid()
                    total = total + t * t * kl((q, 1 - q), (p, 1 - p))
                count += len(COLOURS)
                continue
            for z, w in zip(said, taught, strict=True):
                term = (
                    (z[0] - w[0]) ** 2 if name == "regression" else t * t * kl((z / t).softmax(0), (w / t).softmax(0))
                )
                total, count = total + term, count + 1
    return total, count


# ------------------------------------------------------------------------------------------------ the soft term


@every_task
@pytest.mark.parametrize("arrange", ["pack", "pad"])
def test_losses_and_gradients_are_those_of_a_plain_loop(name, arrange):
    task = TASKS[name][0]
    student, teacher = build(task, seed=1), build(task, seed=2, layers=2)
    distilled = Distilled(task, teacher, temperature=3.0, weight=0.7)
    encoded = encode(name, distilled)
    if arrange == "pack":
        batch = packed(encoded, LENGTH * 2)
        assert len(batch.tokens) < len(encoded.examples)
    else:
        batch = padded(encoded)
    losses = distilled.loss(student, batch)
    assert set(losses) == set(distilled.weights) == {name, "soft"}
    assert {term: loss.count for term, loss in losses.items()} == batch.counts
    total, count = plain_soft(name, task, encoded, student, teacher, 3.0)
    assert losses["soft"].count == count
    assert total > 0.01 * count  # else it would show nothing
    torch.testing.assert_close(losses["soft"].sum, total, rtol=1e-4, atol=1e-5)
    found, wanted = gradients(student, losses["soft"].sum), gradients(student, total)
    for parameter, gradient in wanted.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=2e-3, atol=2e-4, msg=parameter)
    own = task.loss(student, batch)[name]
    torch.testing.assert_close(distilled.loss(student, batch)[name].sum, own.sum)


@every_task
def test_packing_changes_nothing(name):
    task = TASKS[name][0]
    distilled = Distilled(task, build(task, seed=2, dim=16), hidden=1.0)
    student = build(task, seed=1)
    encoded = encode(name, distilled)
    with distilled.projecting(student):
        one = distilled.loss(student, packed(encoded, 96))
        two = distilled.loss(student, padded(encoded))
        for term in (name, "soft", "hidden"):
            assert one[term].count == two[term].count
            torch.testing.assert_close(one[term].sum, two[term].sum, rtol=1e-4, atol=1e-5)


@every_task
def test_a_student_that_is_its_teacher_has_nothing_to_learn_from_it(name):
    task = TASKS[name][0]
    student = build(task, seed=1)
    distilled = Distilled(task, copy.deepcopy(student), weight=1.0, hidden=1.0)
    batch = packed(encode(name, distilled))
    assert distilled.weights[name] == 0
    for term in ("soft", "hidden"):
        loss = distilled.loss(student, batch)[term]
        assert abs(loss.sum) < 1e-4
        assert all(gradient.abs().max() < 1e-4 for gradient in gradients(student, loss.sum).values())


@every_task
def test_without_weight_the_task_is_alone(name):
    task = TASKS[name][0]
    distilled = Distilled(task, build(task, seed=2), weight=0.0)
    encoded = encode(name)
    assert packed(distilled.prepare(encoded)).targets.keys() == packed(encoded).targets.keys()
    batch = packed(encoded)
    student = build(task, seed=1)
    found, wanted = distilled.loss(student, batch), task.loss(student, batch)
    assert distilled.weights == task.weights
    assert found.keys() == wanted.keys()
    assert found[name].sum == wanted[name].sum
    a, b = gradients(student, found[name].sum), gradients(student, wanted[name].sum)
    assert all(torch.equal(a[k], b[k]) for k in b)


@pytest.mark.parametrize("name", ["classification", "multilabel", "tagging", "span", "choice"])
def test_at_high_temperatures_the_gradient_no_longer_depends_on_it(name):
    """T^2 makes up for softening: in the limit, logits are matched (Hinton et al. 2015, equation 4)."""
    task = TASKS[name][0]
    student, teacher = build(task, seed=1), build(task, seed=2)
    found = []
    for temperature in (100.0, 200.0):
        distilled = Distilled(task, teacher, temperature=temperature)
        batch = packed(encode(name, distilled))
        gradient = gradients(student, distilled.loss(student, batch)["soft"].sum)
        found.append(torch.cat([g.flatten() for g in gradient.values()]))
    assert found[0].norm() > 0.01
    assert (found[0] - found[1]).norm() < 0.05 * found[0].norm()


def test_the_temperature_of_a_score_is_of_no_account():
    task = TASKS["regression"][0]
    student, teacher = build(task, seed=1), build(task, seed=2)
    sums = []
    for temperature in (1.0, 4.0):
        distilled = Distilled(task, teacher, temperature=temperature)
        batch = packed(encode("regression", distilled))
        sums.append(distilled.loss(student, batch)["soft"].sum)
    assert sums[0] == sums[1]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(0, 99))
def test_softmax_within_groups_is_a_softmax_of_each(groups, seed):
    rng = np.random.default_rng(seed)
    groups = [g % len(groups) for g in groups]
    logits = torch.from_numpy(rng.normal(0, 1_000, (len(groups), 2)))
    found = log_softmax_within(logits, torch.tensor(groups))
    for group in set(groups):
        own = torch.tensor(groups) == group
        torch.testing.assert_close(found[own], logits[own].log_softmax(0))


# ------------------------------------------------------------------------------------------------ hidden states


@every_task
@pytest.mark.parametrize("dim", [32, 48])
def test_hidden_states_are_compared_at_every_token(name, dim):
    task = TASKS[name][0]
    student, teacher = build(task, seed=1), build(task, seed=2, dim=dim)
    distilled = Distilled(task, teacher, hidden=5.0)
    encoded = encode(name, distilled)
    assert distilled.weights == {name: 0.5, "soft": 0.5, "hidden": 5.0}
    with distilled.projecting(student, seed=4):
        loss = distilled.loss(student, packed(encoded))["hidden"]
        total, count = torch.zeros(()), 0
        for example in encoded.examples:
            batch = collate.pad([example], TOKENIZER.pad, 1)
            own, other = student(batch)[0], teacher(batch)[0].detach()
            if dim != 32:
                own = F.linear(own, student.heads["distill"].output.weight, student.heads["distill"].output.bias)
            for mine, theirs in zip(own, other, strict=True):
                total, count = total + F.mse_loss(mine, theirs), count + 1
        assert loss.count == count
        torch.testing.assert_close(loss.sum, total, rtol=1e-4, atol=1e-5)
        found, wanted = gradients(student, loss.sum), gradients(student, total)
        for parameter, gradient in wanted.items():
            torch.testing.assert_close(found[parameter], gradient, rtol=2e-3, atol=5e-4, msg=parameter)
        assert any(k.startswith("heads.distill") for k in wanted) == (dim != 32)


def test_a_projection_is_there_while_it_is_trained_and_never_saved(tmp_path):
    task = TASKS["classification"][0]
    student, teacher = build(task), build(task, dim=48)
    distilled = Distilled(task, teacher, hidden=1.0)
    batch = packed(encode("classification", distilled))
    before = list(student.state_dict())
    with pytest.raises(UnmaskError, match=r"train the student inside Distilled\.projecting"):
        distilled.loss(student, batch)
    with distilled.projecting(student, seed=4):
        first = student.heads["distill"].output.weight.clone()
        assert first.shape == (48, 32)
        with pytest.raises(UnmaskError, match="distill"):
            huggingface.save(tmp_path, student, TOKENIZER, labels=task.labels)
    assert list(student.state_dict()) == before
    with distilled.projecting(student, seed=4):
        assert torch.equal(student.heads["distill"].output.weight, first)  # the seed decides
    with pytest.raises(ZeroDivisionError), distilled.projecting(student):
        1 / 0  # noqa: B018 (whatever goes wrong in training)
    assert list(student.state_dict()) == before
    for unneeded in (Distilled(task, teacher), Distilled(task, build(task, seed=5), hidden=1.0)):
        with unneeded.projecting(student):
            assert list(student.state_dict()) == before


# ------------------------------------------------------------------------------------------------ in training


@every_task
def test_the_engine_takes_every_term(name):
    task = TASKS[name][0]
    student, teacher = build(task, seed=1), build(task, seed=2, dim=48)
    frozen = {k: p.clone() for k, p in teacher.state_dict().items()}
    distilled = Distilled(task, teacher.train(), hidden=1.0)
    encoded = encode(name, distilled)
    groups, collating = examples.Groups(encoded.examples, encoded.of_rows), encoded.collating(TOKENIZER.pad)
    data = examples.labelled(groups, 4, pad=TOKENIZER.pad, collate=collating)
    with distilled.projecting(student):
        engine = Engine(student, distilled, Optimizer(lr=1e-3), device=torch.device("cpu"), precision="fp32")
        batches, _ = next(data.batches(None))
        totals = {term: sum(batch.counts[term] for batch in batches) for term in distilled.weights}
        meter = Meter()
        engine.step(batches, totals, 1e-3, meter)
        assert not any(key.startswith(("model.teacher", "teacher")) for key in engine.tensors())
    assert teacher.training  # as it was
    assert all(p.grad is None for p in teacher.parameters())
    assert all(torch.equal(p, frozen[k]) for k, p in teacher.state_dict().items())


def test_the_teacher_answers_without_dropout():
    task = TASKS["classification"][0]
    student, teacher = build(task, seed=1), build(task, seed=2, dropout=0.5)
    distilled = Distilled(task, teacher.train())
    batch = packed(encode("classification", distilled))
    first, second = (distilled.loss(student, batch)["soft"].sum for _ in range(2))
    assert first == second


def test_a_student_comes_to_answer_as_its_teacher():
    """From rows without labels, and from hidden states: `weight` 1 leaves the labels out."""
    task = TASKS["classification"][0]
    teacher, student = build(task, seed=2, dim=48, std=0.4), build(task, seed=1, std=0.1, dropout=0.0)
    rng = np.random.default_rng(0)
    rows = [Row(text(rng, 1, 10)) for _ in range(120)]
    distilled = Distilled(task, teacher, weight=1.0, hidden=0.1)
    train = distilled.prepare(task.encode(rows, TOKENIZER, LENGTH))
    taught = np.concatenate(task.answer_all(teacher, train, TOKENIZER.pad))
    assert np.bincount(taught.argmax(1), minlength=3).max() < 110  # its answers differ from row to row

    def distance():
        said = np.concatenate(task.answer_all(student, train, TOKENIZER.pad))
        return float((taught * (np.log(taught) - np.log(said))).sum(1).mean())

    before = distance()
    dev = task.encode([replace(row, label="red") for row in rows[:3]], TOKENIZER, LENGTH)
    config = Fit(
        epochs=30,
        least_steps=200,
        evaluations=0.04,
        batch_size=16,
        optimizer=Optimizer(lr=3e-3),
        device="cpu",
        precision="fp32",
    )
    with distilled.projecting(student):
        fit(student, task, train, dev, config, pad=TOKENIZER.pad, objective=distilled)
    assert distance() < 0.1 * before
    assert "distill" not in student.heads


# ------------------------------------------------------------------------------------------------ what is refused


def save(folder, task, tokenizer=TOKENIZER, labels=None, model=None):
    huggingface.save(folder, model or build(task), tokenizer, labels=task.labels if labels is None else labels)
    return folder


@every_task
def test_a_folder_becomes_a_teacher(name, tmp_path):
    task = TASKS[name][0]
    model = build(task, seed=3)
    teacher, _ = load_teacher(save(tmp_path, task, model=model), task, TOKENIZER)
    batch = packed(encode(name))
    assert torch.equal(teacher(batch), model(batch))
    assert not teacher.training


def test_another_tokenizer_is_refused(tmp_path):
    task = TASKS["classification"][0]
    other = Tokenizer.train([TEXT + " more words of another kind"] * 3, 150)
    with pytest.raises(UnmaskError, match=r"has another tokenizer than the student.*start the student"):
        load_teacher(save(tmp_path, task), task, other)


@pytest.mark.parametrize(
    "labels", [("blue", "red", "green"), ("blue", "green", "yellow"), ("a", "b"), ("a", "b", "c", "d")]
)
def test_other_labels_or_another_order_are_refused(labels, tmp_path):
    task = TASKS["classification"][0]
    with pytest.raises(UnmaskError, match=r"has the labels .*, but the task has blue, green, red: fine-tune"):
        load_teacher(save(tmp_path, Classification(labels)), task, TOKENIZER)


def test_a_teacher_of_another_task_or_none_is_refused(tmp_path):
    task = TASKS["classification"][0]
    with pytest.raises(UnmaskError, match=r"cannot teach span \(its heads: classification\)"):
        load_teacher(save(tmp_path / "a", task), TASKS["span"][0], TOKENIZER)
    huggingface.save(tmp_path / "b", build(task).config.build({}, seed=0), TOKENIZER)
    with pytest.raises(UnmaskError, match=r"cannot teach classification \(its heads: none\): fine-tune it"):
        load_teacher(tmp_path / "b", task, TOKENIZER)


def test_a_teacher_with_a_crf_is_refused(tmp_path):
    crf = Tagging(["O", "X", "Y"], crf=True)
    with pytest.raises(UnmaskError, match="without a CRF"):
        load_teacher(save(tmp_path, crf), Tagging(["O", "X", "Y"]), TOKENIZER)
    with pytest.raises(UnmaskError, match="without a distribution for each tag: distil without it"):
        Distilled(crf, build(crf))


def test_loaded_folders_are_checked_as_they_are(tmp_path):
    task = TASKS["classification"][0]
    teacher = huggingface.load(save(tmp_path / "teacher", task))
    huggingface.save(tmp_path / "student", build(task).config.build({}, seed=0), TOKENIZER)
    student = huggingface.load(tmp_path / "student", heads=task.heads)
    check_teacher(teacher, student, task)
    with pytest.raises(UnmaskError, match=r"^The teacher has no tokenizer"):
        check_teacher(replace(teacher, processor=None), student, task)
    with pytest.raises(UnmaskError, match=r"^The student has no tokenizer"):
        check_teacher(teacher, replace(student, processor=None), task)
    with pytest.raises(UnmaskError, match=r"has the labels none, but the task has"):
        check_teacher(replace(teacher, labels=()), student, task)


def test_many_labels_are_not_all_listed(tmp_path):
    task = Classification([f"a{i}" for i in range(50)])
    with pytest.raises(UnmaskError, match=r"a9, … \(50\): fine-tune"):
        load_teacher(save(tmp_path, task, labels=[f"b{i}" for i in range(50)]), task, TOKENIZER)


def test_numbers_out_of_range_and_tasks_without_soft_answers_are_refused():
    task = TASKS["classification"][0]
    teacher = build(task)
    for values, message in [
        ({"temperature": 0.0}, "temperature of distillation must be above 0, not 0.0"),
        ({"temperature": float("nan")}, "must be above 0"),
        ({"weight": 1.5}, "must be between 0 and 1, not 1.5"),
        ({"hidden": -1.0}, "must be 0 or more, not -1.0"),
    ]:
        with pytest.raises(UnmaskError, match=message):
            Distilled(task, teacher, **values)
    with pytest.raises(UnmaskError, match="embedding cannot be learned from a teacher"):
        Distilled(Embedding(), teacher)


def test_rows_that_the_teacher_cannot_read_or_that_were_not_prepared_are_refused():
    task = TASKS["classification"][0]
    distilled = Distilled(task, build(task, length=8), hidden=1.0)
    with pytest.raises(UnmaskError, match=r"but the teacher has 8 positions: set --length 8 or less"):
        encode("classification", distilled)
    batch = packed(encode("classification"))
    with pytest.raises(UnmaskError, match=r"no targets for soft, hidden: encode them with Distilled\.prepare"):
        distilled.loss(build(task), batch)


def test_preparing_leaves_the_rows_as_they_were():
    for name, (task, _) in TASKS.items():
        encoded = encode(name)
        prepared = Distilled(task, build(task), hidden=1.0).prepare(encoded)
        assert type(prepared) is type(encoded)
        assert prepared.rows == encoded.rows
        assert all("soft" not in example.targets for example in encoded.examples)
        places = packed(prepared).targets["hidden"].places
        assert len(places) == sum(len(example.tokens) for example in prepared.examples)


def test_the_config_comes_back_from_json(tmp_path):
    config = Distillation().replace(teacher=str(tmp_path), temperature="4", hidden=1)
    assert Distillation.from_dict(config.to_dict()) == config
    assert Distillation().teacher is None
