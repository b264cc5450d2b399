"""Entries on documents: the network finds the opinion; kept bytes by the formula."""

from __future__ import annotations

import pytest
import torch

from unmask.runs.lectures import documents


def test_the_network_looks_at_the_sentence_with_the_opinion():
    shown = documents.documents.show(True)
    text, weight = max(shown.tables[0].rows, key=lambda row: row[1])
    assert text.startswith("The film was")
    assert weight > 0.5
    assert sum(row[1] for row in shown.tables[0].rows) == pytest.approx(1)


def test_the_equation_keeps_the_map_and_the_kernel_does_not():
    """Queries, keys and values have 4 · n · 64 bytes each; the equation also keeps the map, the kernel its output."""
    shown = documents.map_memory.show(True)
    for tokens, _, equation, kernel in shown.tables[1].rows:
        n = int(tokens.replace(",", ""))
        assert equation == documents.size(4 * n * n + 3 * 4 * n * 64)
        assert kernel == documents.size(4 * 4 * n * 64 + 4 * n)
    assert shown.tables[0].rows[-1][1:] == ("16 GiB", "8 GiB")


def test_kept_bytes_are_those_of_the_saved_tensors():
    x = torch.ones(10, requires_grad=True)
    assert documents.kept_bytes(lambda: x.exp()) == 40  # the gradient of exp needs its output
