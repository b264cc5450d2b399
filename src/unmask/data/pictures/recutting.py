"""Recut: a batch of pictures as another model reads it, such as the teacher of a student.

Shapes: N pictures, G patches along a side, P pixels of the side of a patch, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.types import Batch, Kind, Signal, Target


@dataclass(frozen=True)
class Recut:
    """Batches of the processor `before`, with the size, the normalisation, the patches and the summaries of `after`.

    name  the target at the first place of each picture, which the new batch keeps

    The pictures of a batch may be augmented or mixed: both models see the same ones. They are resized with bilinear
    interpolation if the sizes differ. Raises UnmaskError for processors with different channels.
    """

    before: ImageProcessor
    after: ImageProcessor
    name: str

    def __post_init__(self) -> None:
        if self.before.channels != self.after.channels:
            raise UnmaskError(
                f"The teacher reads {self.after.channels} channels and the student {self.before.channels}: train both "
                "with the same --channels."
            )

    def __call__(self, batch: Batch) -> Batch:
        """The batch of `after`; the rows of `batch` have no padding."""
        assert batch.signal is not None
        N = len(batch.tokens)
        patches_NLE = batch.signal.values.unflatten(0, (N, -1))
        pixels_NCHW = self._normalised(self._square(patches_NLE))
        cut_NLE = self._cut(pixels_NCHW)
        first, L = len(self.after.summaries), cut_NLE.shape[1]
        device = batch.tokens.device
        row_T = torch.tensor([*self.after.summaries, *[int(Kind.SIGNAL)] * L], device=device)
        begins_N = torch.arange(N, device=device) * (first + L)
        places = (begins_N[:, None] + torch.arange(first, first + L, device=device)).flatten()
        return Batch(
            row_T.expand(N, -1).contiguous(),
            starts=begins_N,
            targets={self.name: Target(begins_N, batch.targets[self.name].values)},
            signal=Signal(places, cut_NLE.flatten(0, 1)),
        )

    def _square(self, patches_NLE: Tensor) -> Tensor:
        """Patches [N, G * G, C * P * P] -> pixels [N, C, H, W]."""
        C, P = self.before.channels, self.before.patch
        G, size = -(-self.before.size // P), self.before.size
        tiles = patches_NLE.unflatten(1, (G, G)).unflatten(-1, (C, P, P))
        return tiles.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)[:, :, :size, :size]

    def _normalised(self, pixels_NCHW: Tensor) -> Tensor:
        """The same pictures with the size and the normalisation of `after`."""
        same = ("mean", "std", "scale")
        if any(getattr(self.before, name) != getattr(self.after, name) for name in same):
            mean, std, new_mean, new_std = (
                pixels_NCHW.new_tensor(values)[:, None, None]
                for values in (self.before.mean, self.before.std, self.after.mean, self.after.std)
            )
            scaled = (pixels_NCHW * std + mean) * (self.after.scale / self.before.scale)
            pixels_NCHW = (scaled - new_mean) / new_std
        if self.before.size != self.after.size:
            side = (self.after.size, self.after.size)
            pixels_NCHW = F.interpolate(pixels_NCHW, side, mode="bilinear", antialias=True)
        return pixels_NCHW

    def _cut(self, pixels_NCHW: Tensor) -> Tensor:
        """Pixels [N, C, H, W] -> patches [N, G * G, C * P * P]."""
        P = self.after.patch
        beyond = -self.after.size % P
        pixels_NCHW = F.pad(pixels_NCHW, (0, beyond, 0, beyond))
        tiles = pixels_NCHW.unflatten(3, (-1, P)).unflatten(2, (-1, P))
        return tiles.permute(0, 2, 4, 1, 3, 5).flatten(3, 5).flatten(1, 2)
