"""Super-resolution: a picture is shrunk and enlarged again, and the model restores its pixels (SRCNN, Dong et al. 2014;
the mean squared error of SRGAN, Ledig et al. 2017).

Shapes: B pictures, N patches of a picture, F numbers of a patch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask.data import collate
from unmask.data.pictures.decoding import resize
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.objective import Objective, Term
from unmask.objectives.pictures import PictureConfig, RestoredPictures
from unmask.objectives.reconstruction import Reconstruction
from unmask.types import Batch, Head, Kind, Loss, Target

BICUBIC = 3  # Pillow's number


class SuperResolution(RestoredPictures):
    """The model reads pictures that were shrunk and enlarged again, and a linear head restores each patch.

    upscaling  how many times smaller the side of a shrunk picture is; raises UnmaskError where it does not divide the
               size of a picture

    Both changes of size are bicubic. The head predicts the difference from the enlarged picture (Kim, Lee & Lee 2016,
    section 3.2), so new weights begin near bicubic enlargement.
    """

    name = "resolution"
    terms = (Term("resolution", "restored pictures"),)
    head_labels = (("resolution", "resolution"),)
    given: ClassVar[str] = "enlarged"
    about: ClassVar[str] = (
        "The model sees the picture shrunk and enlarged again, and restores its pixels. The error is the mean absolute "
        "difference of the pixels, from 0 to 1."
    )

    def __init__(self, processor: ImageProcessor, *, upscaling: int) -> None:
        if upscaling < 2 or processor.size % upscaling:
            raise UnmaskError(
                f"Pictures of {processor.size} pixels cannot be shrunk {upscaling} times: choose a whole number from 2 "
                "that divides the size."
            )
        self.processor, self.upscaling = processor, upscaling
        self.heads = {self.name: Head("token", processor.channels * processor.patch**2, pretraining=True)}

    def rows(self, pictures: Sequence[np.ndarray], rng: np.random.Generator) -> Batch:
        """The enlarged pictures; the target at the first place of each holds the pixels of its patches, [N, F]."""
        size = self.processor.size
        sharp = [resize(one, size, size, self.processor.resample) for one in pictures]
        batch = collate.pad([self.processor.example(self.enlarged(one)) for one in sharp], Kind.PADDING, multiple=1)
        pixels_BNF = np.stack([self.processor.example(one).signal[1] for one in sharp])  # type: ignore[index]
        starts = torch.arange(len(sharp)) * batch.tokens.shape[1]
        return batch.with_targets(**{self.name: Target(starts, torch.from_numpy(pixels_BNF))})

    def enlarged(self, square: np.ndarray) -> np.ndarray:
        """A square picture [S, S, C] uint8, shrunk and enlarged to its size again."""
        side = len(square)
        small = resize(square, side // self.upscaling, side // self.upscaling, BICUBIC)
        return resize(small, side, side, BICUBIC)

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """The mean squared error of the normalised pixels of each picture, summed over pictures (Dong et al., equation
        2). `error` and `bicubic` are those of the restored and of the enlarged picture, for pixels from 0 to 1."""
        wanted_BNF = batch.targets[self.name].values.float()
        assert batch.signal is not None
        enlarged_BNF = batch.signal.values.float().view_as(wanted_BNF)
        difference_MF = model.answer(self.name, hidden_BTD, batch.signal.places, batch).float()
        missing_BNF = wanted_BNF - enlarged_BNF
        wrong_BNF = missing_BNF - difference_MF.view_as(wanted_BNF)
        with torch.no_grad():
            unit_F = self.unit_F.to(wrong_BNF.device)
            found = {"error": wrong_BNF, "bicubic": missing_BNF}
            errors = {name: (x * unit_F).square().mean((1, 2)).sum() for name, x in found.items()}
        return Loss(wrong_BNF.square().mean((1, 2)).sum(), len(wanted_BNF), errors)

    def reconstruct(
        self, model: Model, pictures: Sequence[np.ndarray], rng: np.random.Generator
    ) -> list[Reconstruction]:
        batch = self.rows(pictures, rng).to(model.device)
        assert batch.signal is not None
        wanted_BNF = batch.targets[self.name].values.float()
        difference_MF = model.answer(self.name, model(batch), batch.signal.places, batch).float()
        enlarged_BNF = batch.signal.values.float().view_as(wanted_BNF)
        parts = (wanted_BNF, enlarged_BNF, enlarged_BNF + difference_MF.view_as(wanted_BNF))
        rows = zip(*(part.cpu().numpy() for part in parts), strict=True)
        return [Reconstruction.whole(*map(self.processor.picture, row)) for row in rows]

    @property
    def unit_F(self) -> Tensor:
        """[F] the factors from the numbers of a patch to pixels from 0 to 1."""
        std = torch.tensor(self.processor.std) / (255 * self.processor.scale)
        return std.repeat_interleave(self.processor.patch**2)

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        """The peak signal-to-noise ratios in dB of the mean squared errors over all pictures and channels."""
        names = {"psnr": "error", "bicubic_psnr": "bicubic"}
        known = {name: found.get(f"{self.name}/{error}") for name, error in names.items()}
        return {f"{self.name}/{name}": psnr(error) for name, error in known.items() if error is not None}

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if f"{self.name}/psnr" not in found:
            return []
        error, bicubic, ratio, bicubic_ratio = (
            found[f"{self.name}/{name}"] for name in ("error", "bicubic", "psnr", "bicubic_psnr")
        )
        return [
            f"Held-out pictures, pixels from 0 to 1: mean squared error {error:.5f}, PSNR {ratio:.2f} dB (bicubic "
            f"enlargement: {bicubic:.5f}, {bicubic_ratio:.2f} dB)."
        ]


def psnr(error: float) -> float:
    """The peak signal-to-noise ratio in dB of a mean squared error of pixels from 0 to 1; at most 100."""
    return -10 * math.log10(max(error, 1e-10))


@dataclass(frozen=True, kw_only=True)
class SuperResolutionConfig(PictureConfig):
    """Restore pictures that were shrunk and enlarged again.

    upscaling  how many times smaller the side of a shrunk picture is
    """

    upscaling: int = 4

    kind: ClassVar[str] = "super-resolution"
    learned: ClassVar[str] = "pictures from shrunk ones"
    example: ClassVar[str] = "super-resolution-tiny"
    objective = SuperResolution
    requires: ClassVar[frozenset[str]] = frozenset({"pictures", "patch states"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"resolution"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("patches", "super-resolution"),)

    def build(self, processor: ImageProcessor, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        return SuperResolution(processor, upscaling=self.upscaling)
