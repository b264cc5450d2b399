"""The head of HuBERT, compared with its equation written out."""

from __future__ import annotations

import torch

from unmask.nn.clusters import ClusterHead


def test_logits_are_cosines_over_the_temperature() -> None:
    generator = torch.Generator().manual_seed(0)
    head = ClusterHead(6, 5, width=4, temperature=0.1)
    head.initialise(generator)
    x_MD = torch.randn(7, 6, generator=generator)
    found_MK = head(x_MD)
    for m in range(7):
        projected = head.project.weight @ x_MD[m] + head.project.bias
        for k in range(5):
            cosine = projected @ head.vectors[k] / (projected.norm() * head.vectors[k].norm())
            torch.testing.assert_close(found_MK[m, k], cosine / 0.1)
