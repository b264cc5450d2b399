"""Models small enough to be searched whole: a table of logits by prefix, and a recurrent network, cached and not."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from unmask.models.writer import Writer
from unmask.types import Batch

START = -1


class Kept:
    """A state of tensors [N, ...] that go on by rows."""

    def __init__(self, width: int, count: int, **tensors: Tensor):
        self.width, self.first = width, torch.full((count,), START)
        self.tensors = tensors

    def select(self, rows_N: Tensor) -> None:
        groups = rows_N.view(-1, self.width)
        assert (groups // self.width == groups[:, :1] // self.width).all(), (
            "hypotheses of a source come from one source"
        )
        self.tensors = {name: tensor[rows_N] for name, tensor in self.tensors.items()}


class Table(Writer):
    """Logits that depend on the source's first token and on every token written: `table` [sources, nodes, V]."""

    def __init__(self, sources: int, vocabulary: int, length: int, seed: int = 0, scale: float = 2.0):
        nodes = sum(vocabulary**t for t in range(length))
        draw = torch.Generator().manual_seed(seed)
        self.table = torch.randn(sources, nodes, vocabulary, generator=draw) * scale
        self.vocabulary, self.length, self.rows = vocabulary, length, []

    def prefill(self, batch: Batch, width: int = 1) -> Kept:
        sources = batch.tokens[:, 0].repeat_interleave(width)
        return Kept(width, len(sources), source=sources, node=torch.zeros_like(sources))

    def decode_step(self, tokens_N: Tensor, state: Kept) -> Tensor:
        self.rows.append(len(tokens_N))
        assert len(tokens_N) == len(state.tensors["node"])
        node = state.tensors["node"]
        node = torch.where(tokens_N == START, node, node * self.vocabulary + tokens_N + 1)
        state.tensors["node"] = node
        return self.table[state.tensors["source"], node]

    def all(self, end: int) -> list[tuple[tuple[int, ...], Tensor]]:
        """Every text (with its end, or cut at the length) and its log-probability for each source, [sources]."""
        log_p = self.table.double().log_softmax(-1)
        texts = []
        for t in range(1, self.length + 1):
            for text in itertools.product(range(self.vocabulary), repeat=t):
                if end in text[:-1] or (text[-1] != end and t < self.length):
                    continue
                node, total = 0, 0.0
                for token in text:
                    total = total + log_p[:, node, token]
                    node = node * self.vocabulary + token + 1
                texts.append((text, total))
        return texts


class Recurrent(Writer):
    """h = tanh(E[token] + W h), logits = O h; the first h is the sum of the source's embeddings."""

    def __init__(self, vocabulary: int, dim: int = 8, seed: int = 0, scale: float = 2.0):
        draw = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(vocabulary + 1, dim, generator=draw)  # the last is that of START
        self.recur = torch.randn(dim, dim, generator=draw)
        self.output = torch.randn(dim, vocabulary, generator=draw) * scale
        self.rows: list[int] = []

    def read(self, batch: Batch, width: int) -> Tensor:
        real = torch.ones_like(batch.tokens) if batch.documents is None else (batch.documents > 0).long()
        return (self.embedding[batch.tokens] * real[..., None]).sum(1).repeat_interleave(width, 0)

    def step(self, hidden_ND: Tensor, tokens_N: Tensor) -> Tensor:
        return torch.tanh(self.embedding[tokens_N] + hidden_ND @ self.recur)

    def prefill(self, batch: Batch, width: int = 1) -> Kept:
        hidden_ND = self.read(batch, width)
        return Kept(width, len(hidden_ND), hidden=hidden_ND)

    def decode_step(self, tokens_N: Tensor, state: Kept) -> Tensor:
        self.rows.append(len(tokens_N))
        state.tensors["hidden"] = self.step(state.tensors["hidden"], tokens_N)
        return state.tensors["hidden"] @ self.output


class Recomputed(Recurrent):
    """The same network, which keeps nothing but what it has written and reads it all again for every token."""

    def prefill(self, batch: Batch, width: int = 1) -> Kept:
        hidden_ND = self.read(batch, width)
        return Kept(width, len(hidden_ND), source=hidden_ND, prefix=torch.empty(len(hidden_ND), 0, dtype=torch.long))

    def decode_step(self, tokens_N: Tensor, state: Kept) -> Tensor:
        state.tensors["prefix"] = torch.cat([state.tensors["prefix"], tokens_N[:, None]], 1)
        hidden_ND = state.tensors["source"]
        for column_N in state.tensors["prefix"].T:
            hidden_ND = self.step(hidden_ND, column_N)
        return hidden_ND @ self.output


def numbered(count: int) -> Batch:
    """Sources 0 ... count - 1 of one token each."""
    return Batch(torch.arange(count)[:, None])
