"""BERT and its family: pre-train, fine-tune, evaluate, predict and look inside, on your own text and hardware.

>>> import unmask
>>> run = unmask.finetune("runs/mine", "reviews.csv", out="runs/reviews")       # doctest: +SKIP
>>> unmask.Predictor(run.folder)(["great film"])                                # doctest: +SKIP

Training      pretrain, finetune, train
Scores        evaluate
Answers       Predictor, Translator, Generator, Embedder
scikit-learn  TextClassifier, TextRegressor
The model     load
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.models.model import Model
    from unmask.runs.front.scoring import evaluate
    from unmask.runs.front.training import finetune, pretrain, train
    from unmask.runs.text_estimators import TextClassifier, TextRegressor
    from unmask.serve.embedder import Embedder
    from unmask.serve.generator import Generator
    from unmask.serve.predictor import Predictor
    from unmask.serve.translator import Translator

__version__ = "0.2.0"
__all__ = [
    "Embedder",
    "Generator",
    "Predictor",
    "TextClassifier",
    "TextRegressor",
    "Translator",
    "UnmaskError",
    "__version__",
    "evaluate",
    "finetune",
    "load",
    "pretrain",
    "train",
]

_PLACES = {
    "pretrain": "unmask.runs.front.training",
    "finetune": "unmask.runs.front.training",
    "evaluate": "unmask.runs.front.scoring",
    "Predictor": "unmask.serve.predictor",
    "Translator": "unmask.serve.translator",
    "Generator": "unmask.serve.generator",
    "Embedder": "unmask.serve.embedder",
    "TextClassifier": "unmask.runs.text_estimators",
    "TextRegressor": "unmask.runs.text_estimators",
}
"""Name -> its module, which is imported when the name is used, so that `import unmask` costs nothing."""


def load(folder: Path | str) -> Model:
    """Load a model with its heads, in evaluation mode, from a folder that `unmask` or `transformers` wrote, or by its
    name on the Hugging Face hub.

    Raises UnmaskError for a folder that is missing, damaged or of an unknown format. `unmask.huggingface.load` returns
    the tokenizer and the names of labels as well; `unmask.Predictor` predicts from texts.
    """
    from unmask import huggingface

    return huggingface.load(folder, huggingface.SINGLE_STACK).model


class _Train(ModuleType):
    """The module `unmask.train`, which is also called: importing a module of that room binds its name here, so a
    function cannot have it."""

    def __call__(self, *arguments: Any, **fields: Any) -> Any:
        return self.__wrapped__(*arguments, **fields)

    @property
    def __wrapped__(self) -> Any:  # where `inspect.signature` and `help` look
        return import_module("unmask.runs.front.training").train


import_module("unmask.train").__class__ = _Train


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'unmask' has no attribute '{name}'")
