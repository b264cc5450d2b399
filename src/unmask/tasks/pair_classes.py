"""Classes of pairs from sentence vectors: the head of a run with the softmax loss, or a probe where there is none.

Shapes: R pairs, D width, C classes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from unmask import metrics
from unmask.config import read_json
from unmask.data.labelled.dataset import ordered
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.files import MANIFEST, atomic, write_manifest
from unmask.models.model import Model
from unmask.nn.head import Classifier
from unmask.tasks.embedding import Embedding
from unmask.tasks.labels import mean_cross_entropy
from unmask.tasks.similarity import SoftmaxPairs, kind_of

NAME = "pairs.safetensors"
"""The file with the weight [C, 3 D] and bias [C] of the head, and its labels; `sentence-transformers` ignores it."""

FOLDS = 5


def save_head(folder: Path, model: Model, labels: Sequence[str]) -> None:
    """Write the head "pairs" of a model into the folder that `huggingface.save` wrote, and add it to the manifest."""
    head = model.heads["pairs"]
    assert isinstance(head, Classifier)
    tensors = {name: p.detach().cpu().contiguous() for name, p in head.output.named_parameters()}
    with atomic(folder / NAME) as temporary:
        try:
            save_file(tensors, temporary, metadata={"labels": json.dumps(list(labels))})
        except SafetensorError as error:  # the library's name for a full disk
            raise OSError(str(error)) from error
    write_manifest(folder, [*read_json(folder / MANIFEST)["files"], NAME])


def load_head(folder: Path, model: Model) -> SoftmaxPairs | None:
    """Put the head of a folder on its encoder; None where it has none, or one that the manifest does not list.

    Raises UnmaskError for a damaged file.
    """
    path = folder / NAME
    if not path.is_file() or ((folder / MANIFEST).is_file() and NAME not in read_json(folder / MANIFEST)["files"]):
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            labels = tuple(json.loads((file.metadata() or {})["labels"]))
        head = Classifier(3 * model.config.width, len(labels))
        head.output.load_state_dict(tensors)
    except (OSError, SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:
        what = " ".join(str(error).split())
        raise UnmaskError(f"{path} is damaged ({what}). Restore it from a copy, or delete it.") from None
    model.heads["pairs"] = head.to(model.device).eval()
    return SoftmaxPairs(labels)


class ProbedPairs(Embedding):
    """Sentence vectors without a head for the classes of pairs: a probe measures what the vectors contain about them.

    A logistic regression on (u, v, |u - v|), the features of Reimers & Gurevych 2019 (section 3), is trained on four
    fifths of the rows and answers the others, for each fifth in turn, as Conneau & Kiela 2018 ("SentEval") evaluate
    vectors. Pairs with the same first text stay together.
    """

    def __init__(self, labels: Sequence[str], encoder: Embedding) -> None:
        super().__init__(pooling=encoder.pooling, normalise=encoder.normalise, length=encoder.length, metric="accuracy")
        self.labels = tuple(labels)

    @property
    def notice(self) -> str:
        """One sentence on how the scores are computed."""
        return (
            "The folder has no head for classes: the scores are those of a logistic regression on its vectors, trained "
            f"and scored on these rows in {FOLDS} parts."
        )

    def judge(self, model: Model, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of the probe on vectors [2, D]; the rows have classes.

        Raises UnmaskError for a class with fewer than FOLDS different first texts.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self._check(rows)
        first_RD, second_RD = np.stack(answers).astype(np.float64).transpose(1, 0, 2)
        features = np.concatenate([first_RD, second_RD, np.abs(first_RD - second_RD)], axis=1)
        true = np.array([self.labels.index(row.label) for row in rows])
        shares_RC = cross_val_predict(
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
            features,
            true,
            groups=np.unique([row.text for row in rows], return_inverse=True)[1],
            cv=StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0),
            method="predict_proba",
        )
        scores = metrics.of_classes(shares_RC.argmax(1), true, self.labels)
        return {**scores, "loss": mean_cross_entropy(shares_RC, true)}

    def _check(self, rows: Sequence[Row]) -> None:
        texts: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            texts[row.label].add(row.text)
        rarest = min(self.labels, key=lambda label: len(texts[label]))
        if len(self.labels) < 2 or len(texts[rarest]) < FOLDS:
            raise UnmaskError(
                f"The folder has no head for classes, and these rows are too few to train one: {len(texts[rarest])} "
                f"with '{rarest}'; 2 or more classes are needed, each in {FOLDS} rows with different first texts. "
                "Evaluate on more rows, on pairs with scores, or on triplets."
            )


def for_rows(task: Embedding, folder: Path, model: Model, rows: Sequence[Row]) -> Embedding:
    """The task that can score these rows: for rows with classes, with the head of the folder or a probe."""
    head = load_head(folder, model)
    if kind_of(rows, () if head is None else head.labels) != "classes":
        return task
    if head is None:
        return ProbedPairs(ordered({row.label for row in rows}), task)
    return Embedding(head, pooling=task.pooling, normalise=task.normalise, length=task.length, metric="accuracy")
