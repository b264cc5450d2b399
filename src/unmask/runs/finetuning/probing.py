"""`unmask probe`: how well labels are predicted from the states of a frozen trunk, compared to a random trunk.

Shapes: N rows, D width, C classes, K neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from unmask import huggingface
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.processor import Processor
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.tasks import TASKS, Encoded, Task, task_named
from unmask.tasks.config import TaskConfig
from unmask.tasks.lexical import regression
from unmask.tasks.reading import read_sets
from unmask.tasks.rows import TaskOptions
from unmask.tasks.summaries import Summary, summaries
from unmask.tasks.task import Say

TEMPERATURE = 0.07  # temperature of the votes of neighbours (Wu et al. 2018, section 3.4)
AT_ONCE = 1_024  # rows whose similarities are computed at once


@dataclass(frozen=True, kw_only=True)
class Probing(TaskConfig):
    """The settings of a probe.

    model       folder of the trunk
    neighbours  training rows that vote for the label of a row
    pooling     "summary" reads the state of the class token, or whatever a head for whole rows reads; "mean" reads the
                mean of all states, which suits models that learned to predict patches or tokens; "frames", of
                `probe_layers`, scores the state of each frame between the begin and the end of a row, such as a phone
    seed        seed of the random trunk, and of the held-out rows if there are no dev rows
    leave_out   of `probe_layers`: leave out the rows of each group in turn (--group, such as the speaker)
    seeds       of `probe_layers`: number of random trunks, and of initial weights of the sum
    """

    model: Path | None = None
    options: TaskOptions = field(default_factory=TaskOptions)
    neighbours: int = 20
    pooling: Summary | Literal["frames"] = "summary"
    seed: int = 0
    leave_out: bool = False
    seeds: int = 1

    CLASSES: ClassVar[Mapping[str, str]] = {"rows": "rows_class", "options": "scoring_class"}


def probe(config: Probing, say: Say) -> dict[str, Any]:
    """Score the nearest neighbours and a logistic regression on the states of a trunk, which is not trained.

    Returns `task`, `rows` (number of training rows), `neighbours` and `scores`: name -> split -> metrics, for the
    trunk, the same trunk with random weights, the plain references of the task, and one label for all rows. The state
    of a row is the one that a head for whole sequences reads (`Model.summary`), in evaluation mode and float32.

    Raises UnmaskError as `finetune` does, and for a task whose rows have more than one label.
    """
    if config.pooling == "frames":
        raise UnmaskError("--pooling frames is for --layers: add it, or leave it out.")
    task, sets, loaded, processor, encoded = prepared(config, say)
    train, others = sets["train"], {name: rows for name, rows in sets.items() if name != "train"}
    true_N = classes_of(task, train)
    fresh = loaded.model.config.build({}, seed=config.seed)
    scores: dict[str, dict[str, dict[str, float]]] = {"one label for all rows": {}}
    for split, rows in others.items():
        scores["one label for all rows"][split] = {"accuracy": task.baseline(rows, train)["accuracy"]}
    for name, model in (("trunk", loaded.model), ("random trunk", fresh)):
        say(f"Reading {len(train):,} training rows and the others by the {name} ...")
        states = {split: _states(model, found, processor, config.pooling) for split, found in encoded.items()}
        scores[name] = _scores(task, states, true_N, others, config.neighbours)
    for name, learn in task.references(train).items():
        say(f"Regression on {name} ...")
        score = learn()
        scores[name] = {split: {"linear": dict(score(rows))["accuracy"]} for split, rows in others.items()}
    return {"task": config.task, "rows": len(train), "neighbours": config.neighbours, "scores": scores}


class Prepared(NamedTuple):
    """What a probe reads: the task, its rows, the loaded trunk and its processor, and the rows as examples; none
    where frames are scored."""

    task: Task
    sets: Mapping[str, Dataset]
    loaded: huggingface.Loaded[Any]
    processor: Processor[Any]
    encoded: Mapping[str, Encoded]


def prepared(config: Probing, say: Say) -> Prepared:
    """Read and check the rows and the trunk. Raises UnmaskError as `probe` does."""
    if config.model is None or config.rows.train is None:
        raise UnmaskError("Give a model and rows: --model FOLDER --train FILE.")
    if config.neighbours < 1:
        raise UnmaskError(f"--neighbours must be at least 1, not {config.neighbours}.")
    kind = task_named(config.task)
    if not kind.one_label:
        known = " or ".join(name for name, task in TASKS.items() if task.one_label)
        raise UnmaskError(f"A probe needs rows with one label each: --task {known}.")
    kind.check_model(huggingface.config_of(config.model), config.model)
    sets = read_sets(config.task, config.rows, say, np.random.default_rng(config.seed))
    held_out = config.rows.dev is None and config.rows.benchmark is None
    task = kind.for_references(sets, kind.options_class(**vars(config.options)), say, held_out=held_out)
    loaded = huggingface.load(config.model, huggingface.SINGLE_STACK, heads={})
    processor = task.processor_of(loaded, config.model)
    if config.pooling == "frames":
        return Prepared(task, sets, loaded, processor, {})
    length = config.rows.length or min(kind.usual_length, loaded.model.positions or kind.usual_length)
    encoded = {name: task.encode(rows, processor, length) for name, rows in sets.items()}
    for found in encoded.values():
        task.check_encoded(found)
    return Prepared(task, sets, loaded, processor, encoded)


def _states(model: Model, encoded: Encoded, processor: Processor[Any], pooling: Summary) -> np.ndarray:
    """[N, D] summaries of the rows. Raises UnmaskError for rows that are split into several windows."""
    if len(encoded.examples) != len(encoded.rows):
        raise UnmaskError("A probe reads each row as one sequence: leave --long windows out.")
    return summaries(model, encoded.examples, processor, pooling)


def _scores(
    task: Task, states: Mapping[str, np.ndarray], true_N: np.ndarray, others: Mapping[str, Sequence[Row]], K: int
) -> dict[str, dict[str, float]]:
    """Split -> accuracy of the nearest neighbours and of the logistic regression."""
    C, train_ND = len(task.labels), states["train"]
    mean_D, std_D = train_ND.mean(0), train_ND.std(0) + 1e-6

    def standardised(states_ND: np.ndarray) -> np.ndarray:
        return np.asarray((states_ND - mean_D) / std_D)

    linear: Callable[[Any], np.ndarray] = regression.classes(standardised(train_ND), true_N, C)
    found = {}
    for split, rows in others.items():
        true = classes_of(task, rows)
        votes_NC = nearest_votes(states[split], train_ND, true_N, C, K)
        found[split] = {
            "neighbours": float((votes_NC.argmax(1) == true).mean()),
            "linear": float((linear(standardised(states[split])).argmax(1) == true).mean()),
        }
    return found


def classes_of(task: Task, rows: Sequence[Row]) -> np.ndarray:
    """[N] index of the label of each row."""
    numbers = {label: i for i, label in enumerate(task.labels)}
    return np.array([numbers[row.label] for row in rows])


def nearest_votes(states_ND: np.ndarray, train_MD: np.ndarray, true_M: np.ndarray, C: int, K: int) -> np.ndarray:
    """[N, C]: the votes of the K nearest training rows by cosine, each exp(cosine / 0.07) (Wu et al. 2018, equation 7).

    K  number of neighbours, at most the number of training rows
    """
    K = min(K, len(train_MD))
    train_MD = _unit(train_MD)
    parts = []
    for begin in range(0, len(states_ND), AT_ONCE):
        cosines_NM = _unit(states_ND[begin : begin + AT_ONCE]) @ train_MD.T
        nearest_NK = np.argpartition(-cosines_NM, K - 1, axis=1)[:, :K]
        weights_NK = np.exp((np.take_along_axis(cosines_NM, nearest_NK, 1) - 1) / TEMPERATURE)
        votes_NC = np.zeros((len(cosines_NM), C))
        np.add.at(votes_NC, (np.arange(len(votes_NC))[:, None], true_M[nearest_NK]), weights_NK)
        parts.append(votes_NC)
    return np.concatenate(parts)


def _unit(rows_ND: np.ndarray) -> np.ndarray:
    return np.asarray(rows_ND / np.maximum(np.linalg.norm(rows_ND, axis=1, keepdims=True), 1e-12))


def render(found: Mapping[str, Any]) -> str:
    """The result of `probe` as a table of text for each split."""
    lines = [f"Accuracy of {found['neighbours']} nearest neighbours and of a regression on frozen states."]
    for split in (split for split in ("dev", "test") if split in found["scores"]["trunk"]):
        lines += ["", f"{split:<24}{'neighbours':>12}{'linear':>12}"]
        for name, row in found["scores"].items():
            cells = [row[split].get("accuracy", row[split].get(one)) for one in ("neighbours", "linear")]
            lines.append(f"{name:<24}" + "".join(f"{'-' if cell is None else f'{cell:.4f}':>12}" for cell in cells))
    return "\n".join(lines)
