"""`unmask probe --layers true`: what each layer of a frozen trunk knows, beside a random trunk and plain references.

Shapes: N rows, L layers with the input of the first, D width, C classes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F

from unmask.data.labelled.dataset import Dataset
from unmask.data.recordings.features import Mfcc
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError, plural
from unmask.files import write_text
from unmask.runs.finetuning.probing import Prepared, Probing, classes_of, prepared
from unmask.runs.report import Report, write_report
from unmask.tasks import Task
from unmask.tasks.one_label import OneLabel
from unmask.tasks.summaries import frame_states, layer_summaries
from unmask.tasks.task import Say
from unmask.train import report

MOST_FRAMES = 20_000
PENALTY = 1.0  # of half the squared weights, as the default of scikit-learn's logistic regression
STEPS = 100
NAME = "probe.json"
ONE_LABEL, TRUNK, RANDOM, SUM = "one label for all rows", "trunk", "random trunk", "weighted sum of layers"


class Scored(NamedTuple):
    """What a probe scores: rows, or frames in the times of rows.

    owners      [N] the row of each
    layers      of a model: the states [N, D] of each layer
    references  name -> the accuracy on a fold of a plain reference
    """

    owners: np.ndarray
    layers: Callable[[Any], list[np.ndarray]]
    references: Mapping[str, Callable[[Fold], float]]


class Fold(NamedTuple):
    """The rows that a probe learns from, and those that it is scored on, by their indices among all rows."""

    name: str
    train: np.ndarray
    test: np.ndarray


def probe_layers(config: Probing, say: Say) -> dict[str, Any]:
    """Score a logistic regression on the mean state of each row, or with the pooling "frames" on each frame in the
    times of the rows, for each layer of a trunk, which is not trained, and for a weighted sum of all layers whose
    weights are learned with it (Peters et al. 2018, equation 1; Yang et al. 2021, SUPERB, section 3.2).

    Returns `task`, `rows`, `scored` (number of rows or frames), `pooling`, `folds` (names), `seeds`, `weights` of the
    layers in the sum, and `scores`: name -> for each layer the accuracies of all folds and seeds. The names are the
    trunk, the same trunk with random weights, the sum, the plain references of the task, and one label for all rows;
    those that have no layers have one entry.

    Raises UnmaskError as `probe` does, for a model whose layers are not blocks, and for --leave-out without groups.
    """
    if config.seeds < 1:
        raise UnmaskError(f"--seeds must be at least 1, not {config.seeds}.")
    found = prepared(config, say)
    task, model, rows = found.task, found.loaded.model, _joined(list(found.sets.values()))
    folds = _groups(rows) if config.leave_out else _splits({name: len(one) for name, one in found.sets.items()})
    scored = (_frames if config.pooling == "frames" else _whole)(found, rows, say)
    true_N, folds = classes_of(task, rows)[scored.owners], [_of_items(fold, scored.owners) for fold in folds]

    def tried(layers: Sequence[np.ndarray], seed: int) -> list[tuple[float, list[float]]]:
        return [_score(layers, true_N, len(task.labels), fold, seed) for fold in folds]

    scores = {ONE_LABEL: [[_baseline(true_N, fold) for fold in folds]]}
    for name, reference in scored.references.items():
        say(f"Regression on {name} ...")
        scores[name] = [[reference(fold) for fold in folds]]
    seeds = range(config.seed, config.seed + config.seeds)
    layers = list[np.ndarray]()
    for name, models in (
        (RANDOM, (model.config.build({}, seed=seed) for seed in seeds)),
        (TRUNK, iter([model])),
    ):
        say(f"Reading {plural(len(rows), 'row')} by the layers of the {name} ...")
        runs = list[list[list[float]]]()
        for one in models:
            layers = scored.layers(one)
            runs.append([[accuracy for accuracy, _ in tried([layer], config.seed)] for layer in layers])
        scores[name] = [[x for run in of_layer for x in run] for of_layer in zip(*runs, strict=True)]
    same = [layer for layer in layers if layer.shape == layers[-1].shape]
    summed = [one for seed in seeds for one in tried(same, seed)]
    scores[SUM] = [[accuracy for accuracy, _ in summed]]
    weights = np.mean([shares for _, shares in summed], 0).tolist()
    facts = {
        "task": config.task,
        "rows": len(rows),
        "scored": len(true_N),
        "pooling": config.pooling,
        "folds": [fold.name for fold in folds],
        "seeds": config.seeds,
    }
    return {**facts, "scores": scores, "weights": weights, "config": config.to_dict()}


def _joined(sets: Sequence[Dataset]) -> Dataset:
    """The rows of all sets."""
    first, *others = sets
    for other in others:
        first = Dataset(first.path, (*first.rows, *other.rows), first.columns, first.notes)
    return first


def _splits(sizes: Mapping[str, int]) -> list[Fold]:
    """One fold for each set besides the training rows."""
    begins, begin = {}, 0
    for name, size in sizes.items():
        begins[name] = np.arange(begin, begin + size)
        begin += size
    return [Fold(name, begins["train"], places) for name, places in begins.items() if name != "train"]


def _groups(rows: Dataset) -> list[Fold]:
    """One fold for each group, such as a speaker, which is left out of training. Raises UnmaskError for fewer than two
    groups."""
    groups = np.array([getattr(row, "group", "") for row in rows])
    names = sorted(set(groups.tolist()) - {""})
    if len(names) < 2 or (groups == "").any():
        raise UnmaskError(
            "To leave one group out in turn, every row needs a group, and there must be at least two: name the column "
            "of the speaker, or an expression for the names of files, with --group."
        )
    return [Fold(name, np.flatnonzero(groups != name), np.flatnonzero(groups == name)) for name in names]


def _of_items(fold: Fold, owners: np.ndarray) -> Fold:
    """The items whose rows are in a fold of rows."""
    return Fold(fold.name, *(np.flatnonzero(np.isin(owners, part)) for part in (fold.train, fold.test)))


def _whole(found: Prepared, rows: Dataset, say: Say) -> Scored:
    """The rows of all sets."""

    def layers(model: Any) -> list[np.ndarray]:
        parts = [layer_summaries(model, encoded.examples, found.processor) for encoded in found.encoded.values()]
        return [np.concatenate(layer) for layer in zip(*parts, strict=True)]

    references = {name: partial(_reference, found.task, name, rows) for name in found.task.references(rows)}
    return Scored(np.arange(len(rows)), layers, references)


def _frames(found: Prepared, rows: Dataset, say: Say) -> Scored:
    """The frames in the times of the rows of all sets, evenly thinned to at most MOST_FRAMES. Raises UnmaskError for
    rows without times, and where no frame lies in any."""
    task, processor = cast(OneLabel, found.task), cast(RecordingProcessor, found.processor)
    parts = task.framed(rows.rows, processor)
    count = sum(len(part.rows) for part in parts)
    if not count:
        raise UnmaskError(f"{rows.path}: no frame of a recording has its middle in the times of a row.")
    step = -(-count // MOST_FRAMES)
    say(f"{count:,} frames lie in the times of rows" + (f"; one of {step} is read." if step > 1 else "."))
    parts = [replace(part, frames=part.frames[::step], rows=part.rows[::step]) for part in parts]
    owners, mfcc = np.concatenate([part.rows for part in parts]), Mfcc.of(processor)
    cepstra_NC = np.concatenate([mfcc(part.samples(processor))[part.frames] for part in parts])
    true_N = classes_of(task, rows)[owners]

    def of_cepstra(fold: Fold) -> float:
        return _score([cepstra_NC], true_N, len(task.labels), fold, 0)[0]

    return Scored(owners, lambda model: frame_states(model, parts, processor), {"cepstra": of_cepstra})


def _baseline(true_N: np.ndarray, fold: Fold) -> float:
    """The accuracy of the label that is most frequent among the training items."""
    return float((true_N[fold.test] == np.bincount(true_N[fold.train]).argmax()).mean())


def _reference(task: Task, name: str, rows: Dataset, fold: Fold) -> float:
    score = task.references(rows.take(fold.train.tolist()))[name]()
    return float(dict(score(rows.take(fold.test.tolist())))["accuracy"])


def _score(
    layers: Sequence[np.ndarray], true_N: np.ndarray, C: int, fold: Fold, seed: int
) -> tuple[float, list[float]]:
    """The accuracy of a probe of some layers on the rows of a fold, and the weights of the layers."""
    train_LND = np.stack([layer[fold.train] for layer in layers])
    mean_L1D, std_L1D = train_LND.mean(1, keepdims=True), train_LND.std(1, keepdims=True) + 1e-6
    test_LND = np.stack([layer[fold.test] for layer in layers])
    weight_CD, bias_C, shares_L = fitted((train_LND - mean_L1D) / std_L1D, true_N[fold.train], C, seed)
    mixed_ND = np.tensordot(shares_L, (test_LND - mean_L1D) / std_L1D, 1)
    return float(((mixed_ND @ weight_CD.T + bias_C).argmax(1) == true_N[fold.test]).mean()), shares_L.tolist()


def fitted(
    layers_LND: np.ndarray, true_N: np.ndarray, C: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W [C, D], b [C] and the shares s [L], a softmax, that minimise -sum log softmax(W x + b)[true] + |W|² / 2 with x
    the sum of s_l times layer l; by L-BFGS from small random weights. With one layer it is logistic regression."""
    generator = torch.Generator().manual_seed(seed)
    x_LND, true = torch.from_numpy(np.asarray(layers_LND, np.float32)), torch.from_numpy(true_N)
    weight = (0.01 * torch.randn(C, x_LND.shape[-1], generator=generator)).requires_grad_()
    bias, logits_L = torch.zeros(C, requires_grad=True), torch.zeros(len(x_LND), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias, logits_L], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        mixed_ND = torch.einsum("l,lnd->nd", logits_L.softmax(0), x_LND)
        total = F.cross_entropy(F.linear(mixed_ND, weight, bias), true, reduction="sum")
        total = (total + PENALTY / 2 * weight.square().sum()) / len(true)
        total.backward()
        return total

    optimizer.step(loss)
    shares_L = logits_L.softmax(0)
    return tuple(x.detach().double().numpy() for x in (weight, bias, shares_L))  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------ the results


def lines(found: Mapping[str, Any]) -> Iterator[tuple[str, float, float, int]]:
    """Name, mean accuracy, standard deviation over folds and seeds (0 for one), and their number."""
    for name, layers in found["scores"].items():
        for number, scores in enumerate(layers):
            label = f"{name}, layer {number}" if name in (TRUNK, RANDOM) else name
            yield label, float(np.mean(scores)), float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0, len(scores)


def render_layers(found: Mapping[str, Any]) -> str:
    """The result of `probe_layers` as a table of text."""
    shown = [f"{'':<32}{'accuracy':>10}{'std':>8}{'scores':>8}"]
    shown += [f"{name:<32}{mean:>10.4f}{std:>8.4f}{count:>8}" for name, mean, std, count in lines(found)]
    shares = ", ".join(f"{share:.2f}" for share in found["weights"])
    return "\n".join(
        [_about(found), *shown, f"Weights of the layers in the sum: {shares}.", "Layer 0 is the input of the first."]
    )


def _about(found: Mapping[str, Any]) -> str:
    over, what = plural(len(found["folds"]), "fold"), f"the mean state of each of {found['rows']:,} rows"
    if found["pooling"] == "frames":
        what = f"the state of each of {found['scored']:,} frames in the times of {found['rows']:,} rows"
    return (
        f"{found['task']}: accuracy of a regression on {what}, over {over} "
        f"({', '.join(found['folds'])}) and {plural(found['seeds'], 'seed')}."
    )


def keep(found: Mapping[str, Any], out: Path) -> None:
    """Write probe.json and report.html into a folder."""
    write_text(out / NAME, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    write_report(out)


def report_of(folder: Path, found: Mapping[str, Any]) -> Report:
    """The report: accuracy by layer, and the table."""
    series = [
        report.Series(
            name,
            [(number, float(np.mean(scores))) for number, scores in enumerate(found["scores"][name])],
            [float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0 for scores in found["scores"][name]],
        )
        for name in (TRUNK, RANDOM)
    ]
    floors = {name: float(np.mean(x)) for name, x in found["scores"].items() if name not in (TRUNK, RANDOM)}
    chart = report.Chart("Accuracy by layer", series, x="layer", y="accuracy", floors=floors, note=_about(found))
    table = report.Table("Scores", ["", "accuracy", "std", "scores"], [list(line) for line in lines(found)])
    names = [f"layer {number}" for number in range(len(found["weights"]))]
    shares = report.Bars("Weights of the layers in the sum", names, {"weight": found["weights"]})
    return Report(f"Layers: {found['task']}", _about(found), [chart, table, shares], found["config"])
