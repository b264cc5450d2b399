"""VectorDecoder: writes a sequence from a vector, learns to, and goes on step by step as all at once."""

from __future__ import annotations

import pytest
import torch

from unmask.errors import UnmaskError
from unmask.generate import Limits, Search, generate
from unmask.huggingface.table import as_heads
from unmask.models.vector_decoder import VectorDecoder
from unmask.objectives import NextToken
from unmask.types import Batch, Target

START, END = 1, 2
CELLS = ("rnn", "lstm", "gru")


def config(**changes):
    small = {"vocabulary": 14, "features": 4, "dim": 8, "hidden": 24, "layers": 2, "dropout": 0.0}
    return VectorDecoder().replace(**small).replace(**changes)


def counting(n, digits=6):
    """From the vector of a class, the numbers that follow it: class c writes c, c + 1, … (each modulo 10)."""
    classes = torch.arange(n) % 4
    written = 3 + (classes[:, None] + torch.arange(digits)) % 10
    tokens = torch.cat([torch.full((n, 1), START), written], 1)
    values = torch.cat([written, torch.full((n, 1), END)], 1)
    target = Target(torch.arange(tokens.numel()), values.flatten())
    return Batch(tokens, targets={"next": target}, source=Batch.of_vectors(torch.eye(4)[classes]))


@pytest.mark.parametrize("cell", CELLS)
def test_each_layer_starts_from_its_own_map_of_the_vector(cell):
    model = config(cell=cell).build(seed=2)
    v = torch.tensor([[0.5, -1.0, 2.0, 0.0]])
    first = model.prefill(Batch.of_vectors(v)).recurrent
    for layer in range(2):
        rows = slice(24 * layer, 24 * (layer + 1))
        h = torch.tanh(v @ model.hidden.weight[rows].T + model.hidden.bias[rows])
        torch.testing.assert_close(first.hidden[layer], h)
        if cell == "lstm":
            torch.testing.assert_close(first.cell[layer], v @ model.cell.weight[rows].T + model.cell.bias[rows])
    assert (first.cell is None) == (cell != "lstm")


def test_it_learns_to_write_what_a_vector_says():
    model = config().build(seed=0)
    optimizer, batch = torch.optim.Adam(model.parameters(), 2e-2), counting(4)
    for _ in range(120):
        loss = NextToken().loss(model, batch)["next"]
        optimizer.zero_grad()
        (loss.sum / loss.count).backward()
        optimizer.step()
    model.eval()
    answers = generate(model, batch.source, Search(limits=Limits(max_length=10)), end=END)
    assert [found[0].tokens for found in answers] == batch.tokens[:, 1:].tolist()
    assert all(found[0].finished for found in answers)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "no source"),
        (Batch.of_vectors(torch.ones(3, 5)), "4 numbers"),
        (Batch(torch.ones(3, 4, dtype=torch.long)), "tokens alone"),
    ],
)
def test_what_is_no_vector_is_named(source, sentence):
    with pytest.raises(UnmaskError, match=sentence):
        config().build()(Batch(torch.ones(3, 2, dtype=torch.long), source=source))


def test_another_head_is_named():
    with pytest.raises(UnmaskError, match="'token'"):
        config().build(as_heads({"tagging": 3}))
