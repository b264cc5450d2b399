"""LoRA: a linear map with frozen weights and a trained low-rank update (Hu et al. 2021).

Shapes: I features in, O features out, R rank.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.nn.dropout import Dropout


class LoRALinear(nn.Linear):
    """W x + b + alpha / rank * B A dropout(x) (Hu et al. 2021, equation 3), with W and b frozen.

    base       the linear map whose parameters this one shares, under the same names
    rank       R, rank of the update, which has R * (I + O) parameters instead of I * O
    alpha      scale of the update; alpha / rank makes one learning rate suit all ranks
    dropout    rate on the input of A, in training
    generator  draws the initial A, by default with seed 0; B starts at 0, so that the map equals `base`

    `A` [R, I] is initialised as in the authors' code and in `peft`: uniform in ± 1 / sqrt(I).

    Raises UnmaskError for a rank below 1. Side effect: the parameters of `base` are frozen.
    """

    def __init__(
        self,
        base: nn.Linear,
        rank: int,
        *,
        alpha: float = 8.0,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ):
        if rank < 1:
            raise UnmaskError(f"The rank of an adapter must be 1 or more, not {rank}.")
        super().__init__(base.in_features, base.out_features, base.bias is not None, device="meta")
        self.weight, self.bias = base.weight.requires_grad_(False), base.bias
        if self.bias is not None:
            self.bias.requires_grad_(False)
        self.rank, self.alpha = rank, alpha
        self.dropout = Dropout(dropout)
        a_RI = torch.empty(rank, base.in_features)
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        nn.init.kaiming_uniform_(a_RI, a=math.sqrt(5), generator=generator)
        self.A = nn.Parameter(a_RI.to(base.weight))
        self.B = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        self.train(base.training)

    @property
    def scaling(self) -> float:
        """alpha / rank."""
        return self.alpha / self.rank

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., O]."""
        return super().forward(x) + self.scaling * F.linear(F.linear(self.dropout(x), self.A), self.B)

    def merge(self) -> nn.Linear:
        """A plain linear map with the update added to its weights; this map stays unchanged."""
        merged = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        with torch.no_grad():
            merged.weight = nn.Parameter(self.weight + self.scaling * self.B @ self.A)
            if self.bias is not None:
                merged.bias = nn.Parameter(self.bias.clone())
        return merged.train(self.training)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}, alpha={self.alpha:g}"


def adapters(module: nn.Module) -> dict[str, LoRALinear]:
    """Name -> adapted linear map, for each one in a module."""
    return {name: part for name, part in module.named_modules() if isinstance(part, LoRALinear)}


def adapt(
    module: nn.Module,
    target: Collection[str],
    *,
    rank: int,
    alpha: float = 8.0,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> None:
    """Adapt, in place, every linear map of `module` with a name in `target`, such as query and value.

    Raises UnmaskError if there is no linear map, or none with one of the names, or if a map is adapted already.
    """
    linear = {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    known = {name.rpartition(".")[2] for name in linear}
    if not linear:
        raise UnmaskError("LoRA adapts linear layers, and this model has none: choose another --strategy.")
    for name in target:
        if name not in known:
            raise unknown("linear layer to adapt,", name, known)
    if adapters(module):
        raise UnmaskError("The model has adapters already; merge them before it gets new ones.")
    generator = torch.Generator().manual_seed(0) if generator is None else generator  # shared: no two A are equal
    for name, part in linear.items():
        if name.rpartition(".")[2] in target:
            adapted = LoRALinear(part, rank, alpha=alpha, dropout=dropout, generator=generator)
            module.set_submodule(name, adapted)


def merge(module: nn.Module) -> None:
    """Replace every adapted linear map of `module`, in place, by its merged plain linear map."""
    for name, part in adapters(module).items():
        module.set_submodule(name, part.merge())
