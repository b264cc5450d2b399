"""A frozen trunk reads every sequence once, and what is learned on it is what would be without."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data import collate
from unmask.data.labelled.rows import Row
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.vit import Vit
from unmask.runs.finetuning import Fit, fit
from unmask.runs.finetuning import supervised as fitting
from unmask.runs.transfer import Transfer, remembering
from unmask.runs.transfer.remembered import Remembered, spans
from unmask.tasks import Classification, Encoded
from unmask.types import Example

SIZE = {"vocabulary": 32, "length": 16, "layers": 1, "dim": 32, "heads": 2, "hidden": 64}
FROZEN = Transfer(strategy="frozen")


def examples(n, seed=0):
    """Class 1 where token 7 is there, class 0 where 8 is."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        body = rng.integers(10, 30, rng.integers(2, 9))
        body[rng.integers(len(body))] = 8 - i % 2
        tokens = np.concatenate([[2], body, [3]])
        found.append(Example(tokens, None, {"classification": (np.zeros(1, np.int64), np.array([i % 2]))}))
    return found


def encoded(n, seed=0):
    return Encoded(examples(n, seed), np.arange(n), [Row(label="ab"[i % 2]) for i in range(n)], 16)


def build(heads=None):
    return Bert(**SIZE, dropout=0.3, attention_dropout=0.3, std=0.2).build(
        heads=heads or as_heads({"classification": 2}), seed=0
    )


class Counter:
    """How many real tokens a trunk has read."""

    def __init__(self, model):
        self.tokens, self.forward = 0, model.forward

    def __call__(self, batch):
        self.tokens += batch.real_tokens
        return self.forward(batch)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.sampled_from(["packed", "padded", "alone"]))
def test_sequences_are_found_in_any_batch(lengths, how):
    given = [Example(np.arange(1, n + 1) + 10 * i) for i, n in enumerate(lengths)]
    batch = {
        "packed": lambda: collate.pack(given, 16, 0),
        "padded": lambda: collate.pad(given, 0, multiple=1),
        "alone": lambda: collate.pad(given[:1], 0, multiple=1),
    }[how]()
    flat = batch.tokens.flatten()
    wanted = given[:1] if how == "alone" else given
    assert [flat[place].tolist() for place in spans(batch)] == [example.tokens.tolist() for example in wanted]


def test_a_trunk_reads_every_sequence_once_in_any_packing():
    model, parts = build().eval(), examples(10)
    read = Counter(model)
    remembered = Remembered(read)
    whole = collate.pack(parts, 32, 0)
    first = remembered(whole)
    assert read.tokens == sum(len(part.tokens) for part in parts)
    before = read.tokens
    for batch in (
        collate.pack(parts[::-1], 24, 0),
        collate.pad(parts, 0),
        collate.pad(parts[:1], 0, multiple=1),
        whole,
    ):
        found, expected = remembered(batch), model(batch)
        for place in spans(batch):
            torch.testing.assert_close(found.flatten(0, 1)[place], expected.flatten(0, 1)[place], atol=1e-5, rtol=1e-5)
    assert read.tokens == before
    real = whole.documents > 0
    assert torch.equal(remembered(whole)[real], first[real])


def test_pictures_are_told_apart_by_their_pixels():
    """Their tokens are equal: all states of a class token were those of the first picture."""
    processor = ImageProcessor(size=8, patch=4)
    model = Vit(size=8, patch=4, layers=1, dim=16, heads=2, hidden=32).build(seed=0).eval()
    rng = np.random.default_rng(0)
    parts = [processor.example(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)) for _ in range(5)]
    read = Counter(model)
    remembered = Remembered(read)
    for batch in (collate.pad(parts, processor.pad), collate.pack(parts[::-1], 10, processor.pad)):
        found, expected = remembered(batch), model(batch)
        for place in spans(batch):
            torch.testing.assert_close(found.flatten(0, 1)[place], expected.flatten(0, 1)[place], atol=1e-5, rtol=1e-5)
    assert (len(remembered.states), read.tokens) == (5, 25)


def test_segments_and_precision_are_told_apart():
    model = build().eval()
    remembered = Remembered(model.forward)
    tokens = np.array([2, 9, 9, 3])
    plain = collate.pad([Example(tokens)], 0, multiple=1)
    marked = collate.pad([Example(tokens, np.array([0, 1, 1, 0]))], 0, multiple=1)
    zeros = collate.pad([Example(tokens, np.zeros(4, np.int64))], 0, multiple=1)
    states = [remembered(batch) for batch in (plain, marked, zeros)]
    assert len(remembered.states) == 2
    assert torch.equal(states[0], states[2])
    assert not torch.allclose(states[0], states[1])
    with torch.autocast("cpu", torch.bfloat16):
        remembered(plain)
    assert len(remembered.states) == 3


def test_what_is_kept_has_a_limit():
    model, parts = build().eval(), examples(6)
    read = Counter(model)
    bytes_of_three = sum(len(part.tokens) for part in parts[:3]) * 32 * 4
    remembered = Remembered(read, most=bytes_of_three)
    with torch.no_grad():
        for part in parts * 2:
            remembered(collate.pad([part], 0, multiple=1))
    lengths = [len(part.tokens) for part in parts]
    assert remembered.bytes <= bytes_of_three
    assert read.tokens == sum(lengths) + sum(lengths[3:])


def test_a_probe_learns_the_same_with_it(monkeypatch):
    fields = {"lr": 1e-2, "epochs": 6, "least_steps": 1, "batch_size": 8, "precision": "fp32", "device": "cpu"}
    train, dev = encoded(40), encoded(16, 1)
    results, calls = [], []
    monkeypatch.setattr("unmask.tasks.batching.FEWEST_TOKENS", 512)  # one batch for an evaluation
    for instead in (None, lambda model, transfer: nullcontext()):
        if instead is not None:
            monkeypatch.setattr(fitting, "remembering", instead)
        model, reads = build(), []
        model.stack.register_forward_hook(lambda *_, reads=reads: reads.append(1))
        config = Fit().override(fields)
        fitted = fit(model, Classification(["a", "b"]), train, dev, config, pad=0, transfer=FROZEN)
        results.append((model.heads["classification"].output.weight.detach(), fitted))
        calls.append(len(reads))
        assert "forward" not in vars(model)
    (weight, ours), (expected, plain) = results
    torch.testing.assert_close(weight, expected, atol=1e-4, rtol=1e-3)
    assert ours.best == pytest.approx(plain.best, abs=1e-4)
    epoch = 40 // 8
    assert calls[0] == epoch + 1  # the first one, and its evaluation
    assert calls[1] >= 6 * (epoch + 1)


def test_only_a_frozen_trunk_is_remembered_and_only_inside():
    model, batch = build(), collate.pad(examples(2), 0)
    for strategy in ("full", "top", "gradual", "lora"):
        with remembering(model, Transfer(strategy=strategy)):
            assert "forward" not in vars(model)
    with remembering(model, FROZEN):
        model.eval()(batch)
        assert len(model.forward.states) == 2
    with pytest.raises(UnmaskError, match="beyond the 16 positions"), remembering(model, FROZEN):
        model(collate.pad([Example(np.arange(2, 20))], 0))
    assert "forward" not in vars(model)
    other = RecurrentNetwork(vocabulary=32, dim=16, hidden=16).build(heads=as_heads({"tagging": 2}))
    with remembering(other, FROZEN):  # its forward may have more than the trunk
        assert "forward" not in vars(other)
