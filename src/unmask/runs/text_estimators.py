"""TextClassifier and TextRegressor: fine-tuning as estimators of scikit-learn, for pipelines and grid search."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from unmask.errors import UnmaskError
from unmask.runs.front.training import finetune
from unmask.serve.predictor import Predictor
from unmask.tasks.registry import task_learned_by

COLUMNS = {1: ("text",), 2: ("text1", "text2")}
"""Texts of an input -> their columns in the file of the rows."""


class TextEstimator(BaseEstimator):
    """Fine-tunes a model on texts, or pairs of texts; the base of the two below.

    model          folder of a pre-trained model, or its name on the Hub
    out            folder for the fine-tuned model, which only a later fit of this estimator replaces; None: a temporary
                   one, removed with the estimator (a pickled estimator holds its files)
    epochs, minutes  length of the training (default: 3 epochs, at least 200 steps)
    learning_rate, batch_size, seed, device  as for `unmask.finetune`
    fields         other fields of `unmask.finetune`, such as {"strategy": "lora"}
    verbose        show the progress
    """

    _kind = "classifier"

    def __init__(
        self,
        model: str | Path = "",
        *,
        out: str | Path | None = None,
        epochs: float | None = None,
        minutes: float | None = None,
        learning_rate: float | None = None,
        batch_size: int = 32,
        seed: int = 0,
        device: str = "auto",
        fields: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.model, self.out, self.epochs, self.minutes = model, out, epochs, minutes
        self.learning_rate, self.batch_size, self.seed, self.device = learning_rate, batch_size, seed, device
        self.fields, self.verbose = fields, verbose

    def fit(self, X: Iterable[Any], y: Iterable[Any]) -> Self:
        """Fine-tune on texts X (strings, or pairs of strings) with labels y. A tenth of them chooses the weights.

        Raises UnmaskError for other inputs, different numbers of them, and for rows that do not fit the model.
        """
        texts, labels = _texts(X), list(y)
        if len(texts) != len(labels):
            raise UnmaskError(f"There are {len(texts):,} texts but {len(labels):,} labels.")
        given = zip(texts, self._encoded(labels), strict=True)
        rows = [{**dict(zip(COLUMNS[len(text)], text, strict=True)), "label": label} for text, label in given]
        folder = self._temporary() if self.out is None else Path(self.out)
        again = self.out is not None and getattr(self, "folder_", None) == folder
        settings = {name: getattr(self, name) for name in ("epochs", "minutes", "learning_rate", "batch_size", "seed")}
        settings |= {"device": self.device, "overwrite": again, **(self.fields or {})}
        if any(folder.glob("*")) and not settings["overwrite"]:
            raise UnmaskError(
                f"{folder} is not empty, and this estimator did not write it: choose another folder for out. In a "
                "search or a cross-validation leave out= away, because every fit has a model of its own."
            )
        self.run_ = finetune(
            str(self.model),
            rows,
            out=folder,
            task=task_learned_by(self._kind),
            seeds=1,
            quiet=not self.verbose,
            **settings,
        )
        self.folder_ = folder
        self._open()
        return self

    def _temporary(self) -> Path:
        """A path in a new temporary folder, which is removed with the estimator."""
        folder = Path(tempfile.mkdtemp(prefix="unmask-"))
        self._removal = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder / "model"

    def _open(self) -> None:
        self._predictor = Predictor(self.folder_)

    def _encoded(self, labels: list[Any]) -> list[Any]:
        """Labels as a file holds them."""
        return [float(label) for label in labels]

    def _answers(self, X: Iterable[Any]) -> list[dict[str, Any]]:
        check_is_fitted(self, "folder_")
        return self._predictor(_texts(X))

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the model, which is read from its folder again; of a temporary folder also its files."""
        state = dict(cast(Mapping[str, Any], super().__getstate__()))
        kept = {name: value for name, value in state.items() if name not in ("_predictor", "_removal")}
        if self.out is None and "folder_" in state:
            files = (path for path in self.folder_.rglob("*") if path.is_file())
            kept["_files"] = {path.relative_to(self.folder_).as_posix(): path.read_bytes() for path in files}
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            self.folder_ = self._temporary()
            self.run_ = replace(self.run_, folder=self.folder_)
            for name, content in files.items():
                path = self.folder_ / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        if "folder_" in state:
            self._open()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required, tags.no_validation = True, True
        return tags


class TextClassifier(ClassifierMixin, TextEstimator):
    """Classifies texts.

    >>> from sklearn.model_selection import GridSearchCV
    >>> search = GridSearchCV(TextClassifier("runs/mine"), {"learning_rate": [3e-4, 1e-3]}, cv=3)
    >>> search.fit(texts, labels).best_score_                                    # doctest: +SKIP

    After `fit`: `classes_` [C], the labels in sorted order; `folder_`, of the model; `run_`, the `Trained` of
    `unmask.finetune`.
    """

    def _encoded(self, labels: list[Any]) -> list[str]:
        self.classes_, places = np.unique(np.asarray(labels), return_inverse=True)
        if len(self.classes_) < 2:
            raise UnmaskError(f"All texts have one label, {labels[0]!r}: give texts of two classes or more.")
        names = [str(label).strip() for label in self.classes_]  # as a file of rows holds them
        if len(set(names)) < len(names):
            raise UnmaskError(f"Labels must differ in more than the spaces around them: {self.classes_.tolist()}.")
        self._names = names
        return [names[place] for place in places]

    def predict(self, X: Iterable[Any]) -> np.ndarray:
        """[N] the most probable class of each text."""
        likely = self.predict_proba(X)
        return self.classes_[likely.argmax(axis=1)]

    def predict_proba(self, X: Iterable[Any]) -> np.ndarray:
        """[N, C] the probability of each of `classes_`."""
        found = [answer["scores"] for answer in self._answers(X)]
        return np.array([[one[name] for name in self._names] for one in found]).reshape(-1, len(self._names))


class TextRegressor(RegressorMixin, TextEstimator):
    """Predicts a number for each text, or pair of texts."""

    _kind = "regressor"

    def predict(self, X: Iterable[Any]) -> np.ndarray:
        """[N] the number of each text."""
        return np.array([answer["score"] for answer in self._answers(X)])


def _texts(X: Any) -> list[list[str]]:
    """Texts, or pairs, as lists of one or two strings. Raises UnmaskError for anything else."""
    if isinstance(X, str):
        raise UnmaskError("X must be a list of texts, not one text: write [text].")
    if hasattr(X, "to_numpy") and not hasattr(X, "tolist"):  # a table, of a column of texts or two of pairs
        X = X.to_numpy()
    values: Sequence[Any] = X.tolist() if hasattr(X, "tolist") else list(X)
    found = [[one] if isinstance(one, str) else list(one) if isinstance(one, list | tuple) else [] for one in values]
    for number, parts in enumerate(found, 1):
        if len(parts) not in COLUMNS or not all(isinstance(part, str) for part in parts):
            raise UnmaskError(f"Input {number} must be a text, or a pair of texts, not {values[number - 1]!r}.")
    return found
