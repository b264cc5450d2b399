"""Masked patches, an objective on pictures in one file: hide patches, restore their pixels (He et al. 2022, MAE)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from digits import Pictures

from unmask.data import collate
from unmask.data.loader import Collated, Loader
from unmask.data.order import Shuffled
from unmask.data.source import Joined
from unmask.files import sha256
from unmask.objectives import Objective, ObjectiveConfig, Term
from unmask.types import Batch, Example, Head, Kind, Loss, Target


class Split:
    """A source of pictures: U arrays [H, W] in an .npz file."""

    def __init__(self, path: Path, processor: Pictures) -> None:
        self.pixels, self.processor = np.load(path)["pixels"], processor
        self.cost = np.ones(len(self.pixels), np.int64)

    def read(self, unit: int) -> Example:
        return self.processor.example(self.pixels[unit])


class Folder:
    """train.npz, heldout.npz and the file of a processor."""

    def __init__(self, folder: Path | str) -> None:
        self.folder, self.processor, self.notes = Path(folder), Pictures.load(Path(folder)), ()
        self.checksum = sha256(self.folder / "train.npz")

    def split(self, name: str) -> Split:
        return Split(self.folder / f"{name}.npz", self.processor)


class MaskedPatches(Objective):
    name, terms = "patches", (Term("patches", "masked patches"),)

    def __init__(self, pixels: int, rate: float) -> None:
        self.heads, self.rate = {self.name: Head("token", pixels, pretraining=True)}, rate

    def stream(self, splits: Sequence[Any], options: Any) -> Loader:
        order = Shuffled(Joined(splits), 64, seed=options["seed"])
        return Loader(Collated(order, self.rows), cut=options["cut"], workers=options["workers"])

    def evaluation_rows(self, splits: Sequence[Any], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        source, rng = Joined(splits), np.random.default_rng(0)
        examples = [source.read(unit) for unit in range(limit_rows)]
        return [self.rows(examples[i : i + rows], rng) for i in range(0, len(examples), rows)]

    def rows(self, examples: list[Example], rng: np.random.Generator) -> Batch:
        batch = collate.pad(examples, Kind.PADDING, multiple=1)
        hidden = torch.from_numpy(rng.random(len(batch.signal.places)) < self.rate)
        target = Target(batch.signal.places[hidden], batch.signal.values[hidden])
        tokens = batch.tokens.flatten().index_fill(0, target.places, int(Kind.MASK)).view_as(batch.tokens)
        return replace(batch, tokens=tokens).with_targets(**{self.name: target})

    def score(self, model: Any, hidden_BTD: torch.Tensor, batch: Batch) -> Loss:
        target = batch.targets[self.name]
        found = model.answer(self.name, hidden_BTD, target.places, batch).float()
        return Loss((found - target.values).square().mean(-1).sum(), len(found))


@dataclass(frozen=True, kw_only=True)
class MaskedPatchesConfig(ObjectiveConfig):
    hide: float = 0.5  # share of the patches whose pixels are restored
    kind, learned, objective, opens, choices = "patches", "pixels", MaskedPatches, Folder, (("patches", "masked"),)

    def model_fields(self, processor: Pictures) -> dict[str, int]:
        return {}

    def build(self, processor: Pictures, splits: Any = (), words: Any = ()) -> Objective:
        return MaskedPatches(processor.patch**2, self.hide)
