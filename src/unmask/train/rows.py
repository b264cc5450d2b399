"""AdamW for tables with few rows in use, such as a multilingual token table with texts of one language.

A row that no batch has read has no gradient and zero moments, so only weight decay changes it. Therefore the step of
AdamW (Loshchilov & Hutter 2019, algorithm 2) is computed only for the rows that were read in this or an earlier step.

Shapes: V rows of a table, R rows that were read so far, N rows that this step reads, D width.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from unmask.kernels.formats import is_full

LARGE = 1 << 25  # numbers of a table; smaller tables gain nothing (the token table of BERT-base has 23 million)
MOST = 0.3  # share of rows read; above it, updating all rows is faster


def read_alone(model: nn.Module) -> Iterator[nn.Embedding]:
    """The large trained tables that are only looked up: no head is tied to them."""
    named = ((part, getattr(part, "token", None)) for part in model.modules())
    borrowed = {id(token) for part, token in named if all(token is not own for own in part.modules())}
    for table in (part for part in model.modules() if isinstance(part, nn.Embedding)):
        w = table.weight
        if w.numel() >= LARGE and w.requires_grad and is_full(w) and id(table) not in borrowed:
            yield table


def gradient_of(p: Tensor) -> Tensor:
    """The values of a gradient. Coalesces a sparse gradient (`torch.sparse`) in place, and returns its rows [N, D]."""
    assert p.grad is not None
    if not p.grad.is_sparse:
        return p.grad
    p.grad = p.grad.coalesce()
    return p.grad.values()


class RowwiseAdamW(torch.optim.AdamW):
    """The fused AdamW on a CPU, which also accepts sparse gradients of rows. The moments have the shape of the table,
    and are zero for rows that were never read."""

    def __init__(self, groups: Any, **settings: Any) -> None:
        super().__init__(groups, fused=True, **settings)
        self._read: dict[int, tuple[Tensor, Tensor]] = {}  # id of a table -> (second moments, [V] bool: rows read)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # without a closure, which `update` never gives
        """Update the parameters that have a gradient."""
        moved = [(p, p.grad, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        tables = [one for one in moved if one[1].is_sparse]
        for p, gradient, _ in moved:
            if gradient.is_sparse:
                p.grad = None
            else:
                self._read.pop(id(p), None)  # all rows change; `_rows` finds the read ones by their moments
        super().step()
        wrong = getattr(self, "found_inf", None)
        for p, gradient, group in tables:
            p.grad = gradient
            if wrong is None or not wrong.item():
                self._move(p, gradient.coalesce(), group)

    def _move(self, p_VD: Tensor, gradient_VD: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p_VD]
        if not state:
            state.update(step=torch.zeros(()), exp_avg=_untouched(p_VD), exp_avg_sq=_untouched(p_VD))
            self._read[id(p_VD)] = (state["exp_avg_sq"], torch.zeros(len(p_VD), dtype=torch.bool))
        first_VD, second_VD = state["exp_avg"], state["exp_avg_sq"]
        found_N, values_ND = gradient_VD.indices()[0], gradient_VD.values()
        rows_R = self._rows(p_VD, second_VD, found_N)
        if len(rows_R) > MOST * len(p_VD):
            self._adamw(p_VD, gradient_VD.to_dense(), first_VD, second_VD, state["step"], group)
            return
        p_VD.mul_(1 - group["lr"] * group["weight_decay"])
        gradient_RD = values_ND.new_zeros(len(rows_R), p_VD.shape[1])
        gradient_RD[torch.searchsorted(rows_R, found_N)] = values_ND
        p_RD, first_RD, second_RD = (x[rows_R] for x in (p_VD, first_VD, second_VD))
        self._adamw(p_RD, gradient_RD, first_RD, second_RD, state["step"], {**group, "weight_decay": 0.0})
        for whole, part in ((p_VD, p_RD), (first_VD, first_RD), (second_VD, second_RD)):
            whole.index_copy_(0, rows_R, part)

    def _rows(self, p_VD: Tensor, second_VD: Tensor, found_N: Tensor) -> Tensor:
        """[R] the rows that were read so far, `found_N` included, ascending. After a checkpoint: those with moments."""
        known, read_V = self._read.get(id(p_VD), (None, None))
        if read_V is None or known is not second_VD:
            read_V = second_VD.any(1)
            self._read[id(p_VD)] = (second_VD, read_V)
        read_V[found_N] = True
        return read_V.nonzero().squeeze(1)

    def _adamw(
        self, p: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: Tensor, group: dict[str, Any]
    ) -> None:
        """PyTorch's fused step, with the scale that `optim.update` sets."""
        adamw(
            *([p], [gradient], [first], [second], [], [step]),
            fused=True,
            grad_scale=getattr(self, "grad_scale", None),
            amsgrad=False,
            maximize=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
        )


def _untouched(like: Tensor) -> Tensor:
    """Zeros in memory that the system provides lazily: pages take memory only when they are written, unlike with
    torch.zeros."""
    own = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # none on Windows
    return torch.frombuffer(mmap.mmap(-1, 4 * like.numel(), **own), dtype=torch.float32).view_as(like)
