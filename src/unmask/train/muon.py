"""Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"), beside AdamW for the rest.

A step of AdamW is as long for every weight; one of Muon for every direction of a matrix: the momentum of its gradient
U S V^T is replaced by what is near U V^T, so that directions in which gradients are small are learned as fast as those
in which they are large. Shapes: N matrices of A rows and C columns, A <= C.
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
SIZE = 0.2  # root mean square of an update at rate 1, about that of AdamW (Liu et al. 2025, section 2.2)
STACKED = 1 << 22  # numbers of the matrices that are turned at once


def hidden(model: nn.Module) -> list[Tensor]:
    """The weights of the linear layers of its repeated blocks that are trained, each once: what Muon moves. Embeddings,
    heads, biases and norms are for AdamW."""
    embedding = getattr(model, "embedding", None)
    outside = {id(p) for p in embedding.parameters()} if isinstance(embedding, nn.Module) else set()
    inside = (part for block in distributed.blocks(model) for part in block.modules())
    weights = (part._parameters.get("weight") for part in inside if isinstance(part, nn.Linear))
    found = {id(p): p for p in weights if p is not None and p.requires_grad and id(p) not in outside}
    return list(found.values())


class Muon(torch.optim.Optimizer):
    """Muon for `matrices`, AdamW for all other parameters, with one rate for both.

    groups    parameters with their "weight_decay", as `torch.optim.AdamW` takes them

    Raises UnmaskError where there are no matrices.
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
                "Muon moves the matrices of repeated blocks, and here none of them is trained: use --algorithm adamw."
            )
        super().__init__(self.matrices + rest, {"lr": lr})
        # None, not False: PyTorch then takes all parameters at once on a GPU.
        self.rest = torch.optim.AdamW(rest, lr=lr, betas=betas, eps=eps, fused=fused or None) if rest else None
        self._share()

    def _share(self) -> None:
        """One state and one list of groups, whoever of the two moves them."""
        count = len(self.matrices)
        self.matrices = self.param_groups[:count]
        if self.rest is not None:
            self.rest.state, self.rest.param_groups = self.state, self.param_groups[count:]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def keeps(self, p: Tensor) -> tuple[str, ...]:
        """What is kept of a parameter, beside the number of its steps."""
        return ("momentum",) if any(p is q for g in self.matrices for q in g["params"]) else ("exp_avg", "exp_avg_sq")

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # without a closure, which `update` never gives
        """One update with the gradients that are there."""
        if self.rest is not None:
            self.rest.step()
        for group in self.matrices:
            for some in _alike([p for p in group["params"] if p.grad is not None]):
                self._move(some, group["lr"], group["weight_decay"])

    def _move(self, some: list[Tensor], lr: float, weight_decay: float) -> None:
        """Matrices of one shape, or turned around: momentum as Nesterov has it, then the step that it says."""
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
    """Near U V^T of each U S V^T, by Newton and Schulz's iteration, [N, A, C] with A <= C, in the format in which
    the device multiplies fastest: the directions stay, and singular values come near 1."""
    a, b, c = COEFFICIENTS
    x_NAC = fastest(x_NAC)
    x_NAC = x_NAC / torch.linalg.matrix_norm(x_NAC, keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram_NAA = x_NAC @ x_NAC.mT
        factor_NAA = torch.baddbmm(gram_NAA, gram_NAA, gram_NAA, beta=b, alpha=c)
        x_NAC = torch.baddbmm(x_NAC, factor_NAA, x_NAC, beta=a)  # a X + (b G + c G G) X, G = X X^T
    return x_NAC


def _those(groups: Iterable[dict[str, Any]], wanted: Callable[[Tensor], bool]) -> list[dict[str, Any]]:
    """The same groups with these parameters alone; none that is empty."""
    parts = [{**group, "params": [p for p in group["params"] if wanted(p)]} for group in groups]
    return [part for part in parts if part["params"]]


def _wide(x: Tensor) -> Tensor:
    """A view that has no more rows than columns."""
    return x if x.shape[0] <= x.shape[1] else x.t()


def _alike(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Those of one shape, turned around or not, together, so many as are worth a product."""
    found: dict[tuple[int, ...], list[Tensor]] = {}
    for p in parameters:
        found.setdefault(tuple(sorted(p.shape)), []).append(p)
    for (rows, columns), some in found.items():
        count = max(1, STACKED // (rows * columns))
        yield from (some[begin : begin + count] for begin in range(0, len(some), count))
