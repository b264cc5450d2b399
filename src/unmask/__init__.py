"""BERT and its family: pre-train, fine-tune, evaluate, predict and look inside, on your own text and hardware.

>>> import unmask
>>> model = unmask.load("runs/mine")                                # doctest: +SKIP
>>> unmask.Predictor("runs/sentiment")(["great film"])              # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.models.model import Model
    from unmask.serve.predictor import Predictor

__version__ = "0.2.0"
__all__ = ["Predictor", "UnmaskError", "__version__", "load"]


def load(folder: Path | str) -> Model:
    """Load a model with its heads, in evaluation mode, from a folder that `unmask` or `transformers` wrote, or by its
    name on the Hugging Face hub.

    Raises UnmaskError for a folder that is missing, damaged or of an unknown format. `unmask.huggingface.load` returns
    the tokenizer and the names of labels as well; `unmask.Predictor` predicts from texts.
    """
    from unmask import huggingface

    return huggingface.load(folder, huggingface.SINGLE_STACK).model


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name == "Predictor":  # on demand, so that `import unmask` costs nothing
        from unmask.serve.predictor import Predictor

        return Predictor
    raise AttributeError(f"module 'unmask' has no attribute '{name}'")
