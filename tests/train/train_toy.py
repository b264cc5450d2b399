"""A tiny model, objective and data set that share no code with the product's own."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import nn

from unmask.train.optim import Optimizer
from unmask.train.trainer import Training
from unmask.types import Batch, Loss, Target


class Tiny(nn.Module):
    """Embedding, one hidden layer with dropout, and a tied output."""

    def __init__(self, vocabulary: int = 11, dim: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList([nn.Linear(dim, dim) for _ in range(2)])
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(dim, vocabulary)
        self.pair = nn.Linear(dim, 2)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
        self.output.weight = self.embedding.weight

    def forward(self, batch: Batch) -> torch.Tensor:
        x = self.embedding(batch.tokens)
        for block in self.blocks:
            x = x + self.dropout(torch.tanh(block(x)))
        return self.norm(x)


class Guess:
    """Two loss terms: the token at some places, and a label for each row."""

    def __init__(self) -> None:
        self.weights = {"mlm": 1.0, "nsp": 0.5}

    def loss(self, model: Any, batch: Batch) -> dict[str, Loss]:
        hidden = model(batch).flatten(0, 1)
        found = {}
        for name, head in (("mlm", model.output), ("nsp", model.pair)):
            target = batch.targets[name]
            scores = head(hidden[target.places])
            loss = nn.functional.cross_entropy(scores, target.values, reduction="sum")
            if batch.segments is not None:  # the sign of a poisoned batch
                loss = loss * float("nan")
            correct = (scores.argmax(-1) == target.values).sum()
            found[name] = Loss(loss, target.values.numel(), {"correct": correct})
        return found


class Thaw:
    """Half the rate below the heads; the blocks stand still for the first third of a run, the embedding for two."""

    def __init__(self, model: Tiny) -> None:
        self.model = model

    def scale(self, name: str) -> float:
        return 0.5 if name.startswith(("blocks", "embedding")) else 1.0

    def on_step(self, step: int, total: int) -> None:
        self.model.blocks.requires_grad_(3 * step >= total)
        self.model.embedding.requires_grad_(3 * step >= 2 * total)


class Rows:
    """Endless ragged batches, each a pure function of its step; the ranks share its rows. `poison`: steps gone bad."""

    def __init__(self, micro: int = 1, rank: int = 0, ranks: int = 1, poison: Container[int] = ()) -> None:
        self.micro, self.rank, self.ranks, self.poison = micro, rank, ranks, poison
        self.rows = 8

    def whole(self, step: int) -> Batch:
        generator = torch.Generator().manual_seed(1000 + step)
        tokens = torch.randint(0, 11, (self.rows, 6), generator=generator)
        hidden = torch.rand(self.rows, 6, generator=generator) < torch.linspace(0.05, 0.9, self.rows)[:, None]
        hidden[0, 0] = True
        places = hidden.flatten().nonzero().flatten()
        starts = torch.arange(0, self.rows * 6, 12)  # every other row has a label
        targets = {
            "mlm": Target(places, (tokens.flatten()[places] * 3 + 1) % 11),
            "nsp": Target(starts, tokens.flatten()[starts] % 2),
        }
        segments = torch.zeros_like(tokens) if step in self.poison else None
        return Batch(tokens, segments=segments, targets=targets)

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
        step = 0 if position is None else position["step"]
        while True:
            whole = self.whole(step)
            parts = self.micro * self.ranks
            size = self.rows // parts
            micro = [whole.rows(i * size, (i + 1) * size) for i in range(parts)]
            step += 1
            yield micro[self.rank :: self.ranks], {"step": step}


TRAINING = Training(
    steps=12,
    optimizer=Optimizer(lr=3e-2),
    precision="fp32",
    device="cpu",
    log_every=1,
    evaluate_every=None,
    save_every=None,
)


def assert_close_rows(expected: list[dict[str, Any]], found: list[dict[str, Any]], tolerance: float = 1e-6) -> None:
    """Rows of metrics with the same names, the same words and numbers that agree."""
    assert len(found) == len(expected)
    for a, b in zip(expected, found, strict=True):
        assert a.keys() == b.keys()
        for name, value in a.items():
            same = b[name] == value if isinstance(value, str) else abs(b[name] - value) <= tolerance * (1 + abs(value))
            assert same, (a["step"], name, value, b[name])
