"""Where the weights and the vocabulary of a run are from: fresh ones, or those of a folder that it goes on from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unmask import huggingface
from unmask.data.subwords import Subwords
from unmask.errors import UnmaskError
from unmask.models.sequence import EncoderDecoder
from unmask.models.t5 import T5
from unmask.train.optim import ADAFACTOR

if TYPE_CHECKING:
    from unmask.translation.run import Translation


def starting_from(config: Translation, folder: Path | str) -> Translation:
    """The same run from the weights, with the sizes, of the folder of an encoder–decoder; its dropout stays, and its
    optimizer, unless it is any and the folder's a T5."""
    model = huggingface.load_writer(folder).model.config
    dropout = getattr(config.model, "dropout", None)
    if dropout is not None and hasattr(model, "dropout"):
        model = model.replace(dropout=dropout)
    if isinstance(model, T5) and config.training.optimizer.algorithm == "auto":
        config = config.replace(training={"optimizer": ADAFACTOR})
    return replace(config, model=model, start=str(folder))


def vocabulary(folder: str) -> Subwords:
    """That of a folder. Raises UnmaskError where there is none."""
    tokenizer = huggingface.load_writer(folder).tokenizer
    if tokenizer is None:
        raise UnmaskError(f"{folder} has no tokenizer: put the files of its vocabulary into the folder.")
    return tokenizer


def settled(config: Translation, tokenizer: Subwords) -> Translation:
    """The config with everything that the tokenizer decides; a folder's model has its ids already."""
    ids = {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.start, "end": tokenizer.end}
    forbidden = {"blocking": {"forbidden": (tokenizer.pad,)}}
    return config.replace(model={} if config.start else ids, search=forbidden)


def build(config: Translation, *, resume: bool) -> EncoderDecoder:
    """The model to train; a run that is resumed fills it from its own checkpoint, though the folder be gone.

    Raises UnmaskError where other sizes are wanted than those of the folder.
    """
    model: EncoderDecoder = config.model.build(seed=config.training.seed)  # type: ignore[attr-defined]  # all have it
    if config.start and not resume:
        try:
            model.load_state_dict(huggingface.load_writer(config.start).model.state_dict())
        except RuntimeError:
            raise UnmaskError(
                f"A model that goes on from {config.start} keeps its sizes; leave the fields of the model out."
            ) from None
    return model
