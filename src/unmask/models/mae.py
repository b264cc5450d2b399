"""MAE: a ViT that reads the visible patches alone, and a small decoder that restores the others (He et al. 2022).

Shapes: B pictures, T visible places, S all places of a picture (the class token, then the patches), D width, E width of
the decoder, F numbers of a patch, M pictures that are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import for_tasks
from unmask.models.model import Model, ModelConfig
from unmask.models.stack_model import StackModel
from unmask.models.vit import Vit
from unmask.nn import Embedding, LearnedGrid, Patch, Places, Stack
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class Mae(Vit):
    """The numbers that make an MAE; the defaults are ViT-base with the decoder of the paper (section 4).

    decoder_dim, decoder_layers, decoder_heads, decoder_hidden  E, blocks, heads and feed-forward of the decoder
    rate        share of the patches that are hidden in pre-training
    normalised  whether the decoder restores patches normalised by their own mean and variance (section 3)

    Raises UnmaskError for a width that position vectors of two axes do not divide.
    """

    decoder_dim: int = 512
    decoder_layers: int = 8
    decoder_heads: int = 16
    decoder_hidden: int = 2_048
    rate: float = 0.75
    normalised: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dim", "decoder_dim"):
            if getattr(self, name) % 4:
                raise UnmaskError(
                    f"{name} is {getattr(self, name)}, but sines and cosines of two axes need a multiple of 4."
                )

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"pictures", "pixel decoder"})

    def in_folder(self, heads: Mapping[str, Head]) -> ModelConfig:
        """With a head for a task, a ViT: it has the same encoder, and classes for tasks in `transformers`. The fixed
        position vectors become learned ones."""
        if not for_tasks(heads):
            return self
        return Vit(**{field.name: getattr(self, field.name) for field in fields(Vit)})

    def embedding(self) -> Embedding:
        """As a ViT, with fixed position vectors and without dropout."""
        patches = Patch(self.channels * self.patch**2, self.dim)
        return Embedding(Places(patches, self.dim, self.summaries), position=Grid(self.grid, self.dim))

    def pixels_head(self, head: Head, token: nn.Embedding | None) -> PixelDecoder:
        """The decoder; its blocks are those of the encoder, in its own sizes."""
        heads, hidden = self.decoder_heads, self.decoder_hidden
        inner = replace(self, dim=self.decoder_dim, layers=self.decoder_layers, heads=heads, hidden=hidden)
        return PixelDecoder(self.dim, inner.stack(), Grid(self.grid, self.decoder_dim), head.outputs)

    def assemble(self, pooler: nn.Module | None, heads: Mapping[str, nn.Module]) -> Model:
        return MaeModel(self, self.embedding(), self.stack(), pooler=pooler, heads=heads)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Matrices from Xavier's uniform (appendix A.1), the rest as in a ViT; positions keep their sines. Queries,
        keys and values are three matrices, as in the code of ViT that the paper follows; the authors' code for PyTorch
        draws them as one."""
        super().initialise(module, seed)
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, Grid):
                part.reset()
            elif isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight, generator=generator)
            elif isinstance(part, PixelDecoder):
                nn.init.trunc_normal_(part.hidden, std=self.std, generator=generator)


class Grid(LearnedGrid):
    """Fixed vectors of the places of a square grid: sines and cosines of the column in the first half, of the row in
    the second (He et al. 2022, appendix A.1). The class token, at place 0, has the zero vector. Folders store it."""

    def __init__(self, side: int, dim: int) -> None:
        super().__init__(side, dim, before=1)
        self.table.weight.requires_grad_(False)
        self.reset()

    def fitted(self, weight: Tensor) -> Tensor:
        """The table of a grid of another size becomes the one of this size: the vectors are computed, not
        interpolated."""
        return weight if len(weight) == self.length else self.table.weight.detach()

    @torch.no_grad()
    def reset(self) -> None:
        """Fill the table."""
        dim = self.table.embedding_dim
        steps = torch.arange(dim // 4, dtype=torch.float64) / (dim // 4)
        angles = torch.arange(self.side, dtype=torch.float64)[:, None] / 10_000.0**steps
        waves = torch.cat([angles.sin(), angles.cos()], -1)
        row, column = torch.arange(self.side**2) // self.side, torch.arange(self.side**2) % self.side
        self.table.weight[0] = 0
        self.table.weight[1:] = torch.cat([waves[column], waves[row]], -1).to(self.table.weight)


class PixelDecoder(nn.Module):
    """The pixels of all patches from the states of those that are visible (section 3, "MAE decoder").

    stack     blocks of width E      position  vectors of all places
    outputs   F
    """

    def __init__(self, dim: int, stack: Stack, position: Grid, outputs: int) -> None:
        super().__init__()
        width = position.table.embedding_dim
        self.project, self.hidden = nn.Linear(dim, width), nn.Parameter(torch.zeros(width))
        self.position, self.stack, self.output = position, stack, nn.Linear(width, outputs)

    def forward(self, states_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        """States [B, T, D] at these positions -> [B, S, F]; the class token has an answer too, which nothing reads."""
        seen_BTE = self.project(states_BTD)
        all_BSE = self.hidden.to(seen_BTE.dtype).expand(len(seen_BTE), self.position.length, -1)
        all_BSE = all_BSE.scatter(1, positions_BT[..., None].expand_as(seen_BTE), seen_BTE)
        restored_BSF: Tensor = self.output(self.stack(self.position.embed(all_BSE)))
        return restored_BSF


class MaeModel(StackModel):
    """A ViT whose rows may hold some patches of a picture alone; `batch.positions` say which these are."""

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """As `Model.answer`; the decoder answers with all places of the pictures that these places lie in, [M, S, F].
        Each row must hold one picture."""
        head = self.heads[name]
        if not isinstance(head, PixelDecoder):
            return super().answer(name, hidden_BTD, places_M, batch)
        B, T = hidden_BTD.shape[:2]
        positions = None if batch is None else batch.positions
        if positions is None:
            positions = torch.arange(T, device=hidden_BTD.device).expand(B, T)
        restored_BSF: Tensor = head(hidden_BTD, positions)
        return restored_BSF[places_M // T]
