"""The initial weights and the vocabulary of a run: new ones, or those of a folder that it continues from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask import huggingface
from unmask.data.bitext import numbers
from unmask.data.bitext.numbers import Numbers
from unmask.data.bitext.pairs import Bitext
from unmask.data.pictures.captions import Captions
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.text import subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.runs.translation.config import Translation
from unmask.runs.translation.texts import DATE_VECTORS, DATES, DIGITS
from unmask.train.optim import ADAFACTOR


def starting_from(config: Translation, folder: Path | str) -> Translation:
    """The same run, starting from the weights of an encoder–decoder folder, with its sizes. The dropout of the run
    stays; its optimizer stays too, unless it is "auto" and the folder holds a T5, which gets Adafactor."""
    model = huggingface.load(folder, huggingface.ENCODER_DECODER).model.config
    dropout = getattr(config.model, "dropout", None)
    if dropout is not None and hasattr(model, "dropout"):
        model = model.replace(dropout=dropout)
    if model.adafactor and config.training.optimizer.algorithm == "auto":
        config = config.replace(training={"optimizer": ADAFACTOR})
    if model.features is not None and config.texts.train == (DATES,):
        config = config.replace(texts={"train": (DATE_VECTORS,)})
    if model.reads_pictures and config.texts.train == (DATES,):
        config = config.replace(texts={"train": (DIGITS,)})
    return replace(config, model=model, start=str(folder))


def learned(config: Translation, train: Bitext) -> Tokenizer:
    """A vocabulary learned from the sources and targets of the training pairs, or from the targets alone if the sources
    are vectors or pictures. Raises UnmaskError if they should be vectors but are not."""
    wanted, vectors = config.vocabulary, config.model.features is not None
    texts = train.targets if vectors or config.model.reads_pictures else [*train.sources, *train.targets]
    first = numbers.vector(train.sources[0]) if vectors else None
    if vectors and first is None:
        raise UnmaskError(
            f"This system reads vectors, but line {train.lines[0]:,} of the sources of {train.report.name} is no "
            "vector: give numbers separated by spaces, or an array in a .npy file."
        )
    found = subwords.train(texts, wanted.size, wanted.kind, normalization=wanted.normalization)
    if config.model.reads_pictures:
        return Captions(found.side, images(config.model))
    return found if first is None else Numbers(found.side, len(first))


def images(model: Any) -> ImageProcessor:
    """The processor of the pictures that a model of this config reads."""
    half = (0.5,) * model.channels
    return ImageProcessor(size=model.size, patch=model.patch, mean=half, std=half)


def vocabulary(folder: Path | str) -> Tokenizer:
    """The vocabulary of a folder. Raises UnmaskError if it has none."""
    tokenizer = huggingface.load(folder, huggingface.ENCODER_DECODER).tokenizer
    if tokenizer is None:
        raise UnmaskError(f"{folder} has no tokenizer: put the files of its vocabulary into the folder.")
    return tokenizer


def kept(checkpoint: Path, config: Translation) -> Tokenizer:
    """The vocabulary that a run has saved in one of its checkpoints."""
    texts = config.model.features is None and not config.model.reads_pictures
    return Tokenizer.load(checkpoint, written=True) if texts else vocabulary(checkpoint)


def settled(config: Translation, tokenizer: Tokenizer) -> Translation:
    """The config, with the fields filled in that depend on the tokenizer; a model of a folder has its ids already.
    Raises UnmaskError for a setting that has no meaning for sources that are vectors."""
    ids = {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.start, "end": tokenizer.end}
    forbidden = {"blocking": {"forbidden": (tokenizer.pad,)}}
    if isinstance(tokenizer, Numbers):
        if config.texts.ratio is not None:
            raise UnmaskError(
                "A ratio compares the lengths of two texts, but the sources are vectors: leave --ratio out."
            )
        ids["features"] = tokenizer.features
    return config.replace(model={} if config.start else ids, search=forbidden)


def build(config: Translation, *, resume: bool) -> Model:
    """The model to train. A resumed run loads its weights from its checkpoint, even if the folder no longer exists.

    Raises UnmaskError if the config has other sizes than the folder.
    """
    model = config.model.build(seed=config.training.seed)
    if config.start and not resume:
        try:
            model.load_state_dict(huggingface.load(config.start, huggingface.ENCODER_DECODER).model.state_dict())
        except RuntimeError:
            raise UnmaskError(
                f"A model that continues from {config.start} keeps its sizes: leave the fields of the model out."
            ) from None
    return model
