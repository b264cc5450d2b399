"""Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"), with AdamW for the rest.

AdamW equalises the size of the update over the weights, Muon over the directions of a matrix: it replaces the momentum
U S V^T of the gradient by an approximation of U V^T. So it learns directions with small gradients as fast as those with
large ones. Shapes: N matrices of A rows and C columns, A <= C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.kernels.formats import fastest
from unmask.train import distributed

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # as published; singular values end between 0.7 and 1.2
ITERATIONS = 5
SIZE = 0.2  # root mean square of an update at rate 1, about the same as AdamW's (Liu et al. 2025, section 2.2)
STACKED = 1 << 22  # numbers in the matrices that are orthogonalised at once


def hidden(model: nn.Module) -> list[Tensor]:
    """The parameters that Muon updates: the trained weights of the linear layers in the repeated blocks, each once.
    AdamW updates embeddings, heads, biases and norms."""
    embedding = getattr(model, "embedding", None)
    outside = {id(p) for p in embedding.parameters()} if isinstance(embedding, nn.Module) else set()
    inside = (part for block in distributed.blocks(model) for part in block.modules())
    weights = (part._parameters.get("weight") for part in inside if isinstance(part, nn.Linear))
    found = {id(p): p for p in weights if p is not None and p.requires_grad and id(p) not in outside}
    return list(found.values())


class Muon(torch.optim.Optimizer):
    """Muon for `matrices`, AdamW for all other parameters, with one learning rate for both.

    groups  groups of parameters with their "weight_decay", in the form of `torch.optim.AdamW`

    Raises UnmaskError if there are no matrices.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        matrices: Iterable[Tensor],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        fused: bool = False,
    ) -> None:
        turned = {id(p) for p in matrices}
        self.matrices = _those(groups, lambda p: id(p) in turned)
        rest = _those(groups, lambda p: id(p) not in turned)
        if not self.matrices:
            raise UnmaskError(
                "Muon updates the matrices of repeated blocks, and this run trains none of them: use --algorithm adamw."
            )
        super().__init__(self.matrices + rest, {"lr": lr})
        # None, not False: on a GPU, PyTorch then updates all parameters at once.
        self.rest = torch.optim.AdamW(rest, lr=lr, betas=betas, eps=eps, fused=fused or None) if rest else None
        self._share()

    def _share(self) -> None:
        """Let both optimizers share one state and one list of groups."""
        count = len(self.matrices)
        self.matrices = self.param_groups[:count]
        if self.rest is not None:
            self.rest.state, self.rest.param_groups = self.state, self.param_groups[count:]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def keeps(self, p: Tensor) -> tuple[str, ...]:
        """The names of the state of a parameter, besides the step count."""
        return ("momentum",) if any(p is q for g in self.matrices for q in g["params"]) else ("exp_avg", "exp_avg_sq")

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # without a closure, which `update` never gives
        """Update the parameters that have a gradient."""
        if self.rest is not None:
            self.rest.step()
        for group in self.matrices:
            for some in _alike([p for p in group["params"] if p.grad is not None]):
                self._move(some, group["lr"], group["weight_decay"])

    def _move(self, some: list[Tensor], lr: float, weight_decay: float) -> None:
        """Update matrices of one shape, or its transpose: Nesterov momentum, orthogonalised."""
        for p in some:
            if not self.state[p]:
                self.state[p] = {"step": torch.zeros(()), "momentum": torch.zeros_like(p)}
            self.state[p]["step"] += 1
        gradients = [p.grad for p in some if p.grad is not None]
        momenta = [self.state[p]["momentum"] for p in some]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        turned = orthogonal(torch.stack([_wide(x) for x in ahead]))
        torch._foreach_mul_(some, 1 - lr * weight_decay)
        for p, update_AC in zip(some, turned, strict=True):
            _wide(p).add_(update_AC, alpha=-lr * SIZE * max(p.shape) ** 0.5)


def orthogonal(x_NAC: Tensor) -> Tensor:
    """An approximation of U V^T for each matrix U S V^T, by Newton–Schulz iteration: it keeps the directions, and moves
    the singular values near 1. [N, A, C] with A <= C, in the number format that the device multiplies fastest."""
    a, b, c = COEFFICIENTS
    x_NAC = fastest(x_NAC)
    x_NAC = x_NAC / torch.linalg.matrix_norm(x_NAC, keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram_NAA = x_NAC @ x_NAC.mT
        factor_NAA = torch.baddbmm(gram_NAA, gram_NAA, gram_NAA, beta=b, alpha=c)
        x_NAC = torch.baddbmm(x_NAC, factor_NAA, x_NAC, beta=a)  # a X + (b G + c G G) X, G = X X^T
    return x_NAC


def _those(groups: Iterable[dict[str, Any]], wanted: Callable[[Tensor], bool]) -> list[dict[str, Any]]:
    """The groups with only the wanted parameters, without empty groups."""
    parts = [{**group, "params": [p for p in group["params"] if wanted(p)]} for group in groups]
    return [part for part in parts if part["params"]]


def _wide(x: Tensor) -> Tensor:
    """The matrix, or its transpose, with at most as many rows as columns."""
    return x if x.shape[0] <= x.shape[1] else x.t()


def _alike(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Batches of parameters of one shape or its transpose, with at most STACKED numbers each, or a single parameter."""
    found: dict[tuple[int, ...], list[Tensor]] = {}
    for p in parameters:
        found.setdefault(tuple(sorted(p.shape)), []).append(p)
    for (rows, columns), some in found.items():
        count = max(1, STACKED // (rows * columns))
        yield from (some[begin : begin + count] for begin in range(0, len(some), count))
