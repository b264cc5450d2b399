"""The initial weights and the vocabulary of a run: new ones, or those of a folder that it continues from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from unmask import huggingface
from unmask.data.bitext.numbers import Numbers
from unmask.data.bitext.pairs import Bitext
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.runs.translation.config import Translation
from unmask.runs.translation.sources import sources_of, vocabulary
from unmask.runs.translation.texts import DATES
from unmask.train.optim import ADAFACTOR

__all__ = ["build", "kept", "learned", "settled", "starting_from", "vocabulary"]


def starting_from(config: Translation, folder: Path | str) -> Translation:
    """The same run, starting from the weights of an encoder–decoder folder, with its sizes. The dropout of the run
    stays; its optimizer stays too, unless it is "auto" and the folder holds a T5, which gets Adafactor."""
    model = huggingface.load(folder, huggingface.ENCODER_DECODER).model.config
    dropout = getattr(config.model, "dropout", None)
    if dropout is not None and hasattr(model, "dropout"):
        model = model.replace(dropout=dropout)
    if model.adafactor and config.training.optimizer.algorithm == "auto":
        config = config.replace(training={"optimizer": ADAFACTOR})
    if config.texts.train == (DATES,):
        config = config.replace(texts={"train": (sources_of(model).embedded,)})
    return replace(config, model=model, start=str(folder))


def learned(config: Translation, train: Bitext) -> Tokenizer:
    """A vocabulary learned from the training pairs. Raises UnmaskError for sources that the model cannot read."""
    return sources_of(config.model).learned(train, config.vocabulary, config.model)


def kept(checkpoint: Path, config: Translation) -> Tokenizer:
    """The vocabulary that a run has saved in one of its checkpoints."""
    return sources_of(config.model).kept(checkpoint)


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
