"""A pre-training run: corpora of tokens in, a portable folder with a model, its metrics and a report out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from unmask import huggingface
from unmask.data import cooccurrence
from unmask.data.corpus import Corpus, Split
from unmask.data.loader import EqualRows, Loader
from unmask.errors import UnmaskError, plural
from unmask.files import write_text
from unmask.models.model import Model
from unmask.objectives.objective import Probe, StreamOptions
from unmask.runs import pretraining_evaluation as evaluation
from unmask.runs import probes
from unmask.runs.adapt import Origin, check_corpora, resumed_words
from unmask.runs.pretraining import Pretraining, Rows, settled, tokens_of
from unmask.runs.teacher import prepare, with_teacher
from unmask.train import checkpoint, distributed
from unmask.train.display import Display, on_main
from unmask.train.events import Began, Evaluation, Event, Listener, Result
from unmask.train.interrupt import cuttable
from unmask.train.metrics import read as read_metrics
from unmask.train.trainer import Trainer
from unmask.types import Batch

__all__ = ["Pretrain", "Pretraining", "Rows"]

NOTHING_HELD_OUT = (
    "The corpus holds out no text, or too little to hide a word in, so that nothing says how the model does on text "
    "that it has not seen: build the corpus with --heldout 0.1, or where all text is one document, with --per line."
)


class Pretrain:
    """The wiring of one run; `run` trains, `plan` says what that would take.

    Raises UnmaskError at construction for anything that can be known to be wrong before the first step.
    """

    def __init__(
        self,
        config: Pretraining,
        corpora: Sequence[Path | str],
        out: Path | str,
        *,
        recipe: str = "",
        resume: bool = False,
        display: Display | None = None,
        prompts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """prompts: texts with [MASK] -> answers that a reader would give, to be guessed at every evaluation; without
        any, words of held-out sentences are hidden."""
        self.out, self.recipe = Path(out), recipe
        distributed.init(config.training.device)  # first, for what follows asks how many processes there are
        if not corpora:
            raise UnmaskError("Say on which corpus to pre-train.")
        checkpoint.refuse_taken(self.out, resume=resume)
        self.corpora = [Corpus(folder) for folder in corpora]
        self.tokenizer = config.objective.tokenizer(self.corpora[0].tokenizer)
        self.origin = None if config.start is None else Origin.open(config.start, self.out if resume else None)
        config = settled(config, self.corpora, self.origin)
        config.objective.check_documents(sum(corpus.split("train").documents for corpus in self.corpora))
        if self.origin is not None:
            words = self.origin.stored.words
        else:
            words = resumed_words(self.out, self.corpora, self.tokenizer) if resume else ()
        if resume:
            check_corpora(self.out, self.corpora)
        self.learned = config.objective.build(self.tokenizer, self._splits("train"), words)
        self.objective = with_teacher(config, self.learned, self.tokenizer)
        self.config, self.tokens = config, tokens_of(config)
        self.model, notice = self._build()
        self.micro_batch = _micro_batch(self.config.rows)
        self.heldout = self._heldout()
        self.probes = self._probes(prompts)
        self.trainer = Trainer(
            self.model,
            self.objective,
            self,
            self.config.training,
            self.out,
            evaluate=self.evaluate if self.heldout else None,
            save=self.save,
            resume=resume,
        )
        self.display = on_main(display)
        if notice:
            self.display.note(notice)
        if not self.heldout:
            self.display.note(NOTHING_HELD_OUT)

    def _build(self) -> tuple[Model, str]:
        """The model to train, and what is to be said of its heads."""
        config, heads, seed = self.config.model, self.objective.heads, self.config.training.seed
        if self.origin is None:
            model = config.build(heads, seed=seed)
            if self.config.warm_start != "none":
                warm_start(model, self._splits("train"))
            return model, prepare(model, self.objective, self.config.distillation)
        model, notice = self.origin.build(config, heads, seed, lambda: self.log_frequencies)
        prepare(model, self.objective, self.config.distillation)  # inherits nothing, and so has nothing to say
        return model, notice

    def plan(self) -> dict[str, Any]:
        """What the run would take, measured on a few steps that leave no trace."""
        return self.trainer.plan()

    def run(self, *listeners: Listener) -> Result:
        """Train, and let `listeners` hear what happens; then write the finished folder. It can be resumed until then,
        and is sound at any time."""
        result = self.trainer.train(self._hear, probes.writing(self.out), *listeners, display=self.display)
        self.trainer.engine.on_main(lambda: self.save(self.out))
        return result

    def _hear(self, event: Event) -> None:
        if isinstance(event, Began) and distributed.is_main():
            self._write_settings(self.out)

    def summary(self, result: Result) -> str:
        """How the run ended, in a few lines."""
        done = f"{result.step:,} of {plural(result.total, 'step')} in {result.seconds / 60:.1f} minutes"
        lines = [f"{done}; stopped by {result.stopped}." if result.stopped else f"{done}. The model is in {self.out}."]
        lines += self.learned.summary(result.heldout, self.baseline, self._at_start())
        stuck = evaluation.plateau(result.heldout, self.baseline, self.learned.terms)
        lines += [stuck] if stuck else []
        new = self.origin is None and result.stopped is None
        few = evaluation.too_few(result.total, self.config.training.minutes) if new else None
        return "\n".join([*lines, few] if few else lines)

    def _at_start(self) -> dict[str, Any]:
        """The evaluation of the folder that the run started from; nothing for fresh weights, or where it was not."""
        rows = [] if self.origin is None else read_metrics(self.out / "metrics.jsonl", "heldout")
        guesses = rows and any(f"loss/{term}" in rows[0] for term in evaluation.guessing(self.learned.terms))
        return rows[0] if guesses and rows[0]["step"] == 0 else {}

    def save(self, folder: Path) -> None:
        """Write the model, the tokenizer and the resolved configuration into `folder`."""
        huggingface.save(folder, self.model, self.tokenizer, words=self.learned.folder_words(self.tokenizer))
        self._write_settings(folder)

    def _write_settings(self, folder: Path) -> None:
        """Write what the run is: what `--resume` goes on with, and what its report shows."""
        facts = {
            "kind": "pretraining",
            "recipe": self.recipe,
            "corpora": [str(corpus.folder) for corpus in self.corpora],
            "checksums": [corpus.checksum for corpus in self.corpora],
            "model": type(self.config.model).__name__,
            "config": self.config.to_dict(),
            "parameters": self.model.parameters_total,
            "tokens_per_step": self.tokens * self.config.rows.batch,
            "baseline": self.baseline,
            "terms": [term._asdict() for term in self.objective.terms],
        }
        if self.origin is not None:
            facts["origin"] = dict(self.origin.facts)
        write_text(folder / checkpoint.RUN, json.dumps(facts, indent=2) + "\n")

    # -- data

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
        """The micro-batches of this process for each step, from any position on.

        A position is that of the stream, with the number of the step and the length of the rows. Where the rows grow
        longer, the stream goes on with the next block: its blocks hold other rows for each length.
        """
        step, length = (0, 0) if position is None else (position["step"], position["length"])
        place = None if position is None else {key: position[key] for key in ("epoch", "block", "row")}
        while True:
            if place is not None and length != self._length_at(step):
                place = {"epoch": place["epoch"] + 1, "block": 0, "row": 0}
            length = self._length_at(step)
            for micro, after in self.loader(length).batches(place):
                step, place = step + 1, after
                yield micro, {**after, "step": step, "length": length}
                if self._length_at(step) != length:
                    break

    def phases(self) -> list[tuple[float, Iterator[tuple[list[Batch], dict[str, Any]]]]]:
        """The share of the steps that rows of each length have, and such steps."""
        rows = self.config.rows
        first = min(rows.first_share, 1.0) if rows.first else 0.0
        shares = ((first, rows.first or self.tokens), (1 - first, self.tokens))
        return [(share, self.loader(length).batches()) for share, length in shares if share > 0]

    def _length_at(self, step: int) -> int:
        """Tokens of a row in the step after `step` steps."""
        rows = self.config.rows
        return rows.first if rows.first and step < rows.first_share * self.trainer.total else self.tokens

    def _splits(self, name: str) -> list[Split]:
        return [corpus.split(name) for corpus in self.corpora]

    def loader(self, length: int) -> Loader:
        """The steps of this process, of rows of this length: as many tokens as those of the full length have."""
        rows, times, ranks = self.config.rows, self.tokens // length, distributed.ranks()
        options: StreamOptions = {
            "length": length,
            "cut": EqualRows(rows.batch * times // ranks, distributed.rank(), ranks, self.micro_batch * times),
            "seed": self.config.training.seed,
            "workers": rows.workers,
            "alpha": rows.alpha,
        }
        return self.objective.stream(self._splits("train"), options)

    def _heldout(self) -> list[Batch]:
        """The same held-out rows, with the same masks, at every evaluation; none where they ask for nothing."""
        limit = self.config.rows.heldout
        if limit < 1:
            raise UnmaskError(
                f"Evaluations read {limit} rows of held-out text, and can score nothing: --heldout must be at least 1."
            )
        splits, sizes = self._splits("heldout"), {"length": self.tokens, "rows": self.micro_batch, "limit_rows": limit}
        found = self.objective.evaluation_rows(splits, **sizes)
        return found if any(any(batch.counts.values()) for batch in found) else []

    # -- evaluation

    def evaluate(self, model: nn.Module, step: int) -> Evaluation:
        """Mean loss and accuracy of each term over the held-out rows, under the names that training uses; answers to
        the probes."""
        model = cast(Model, model)
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        with cuttable():
            for batch in self.heldout:
                for name, loss in self.objective.loss(model, batch.to(model.device)).items():
                    counts[name] = counts.get(name, 0) + loss.count
                    for key, value in {
                        f"loss/{name}": loss.sum,
                        **{f"{name}/{m}": v for m, v in loss.metrics.items()},
                    }.items():
                        sums[key] = sums.get(key, 0.0) + float(value)
        samples = []
        if self.probes and distributed.is_main():
            samples = probes.samples(self.probes, self.learned.guesses(model, self.tokenizer, self.probes))
        found = {key: value / max(1, counts[_term(key)]) for key, value in sums.items()}
        return Evaluation(found | self.learned.derived(found, lambda: self._characters), samples)

    @cached_property
    def _characters(self) -> float:
        """Characters of a held-out token."""
        return evaluation.characters(self.heldout, self.tokenizer, self.learned.terms)

    def _probes(self, given: Mapping[str, Sequence[str]] | None) -> list[Probe]:
        if given is not None:
            return self.learned.probes_of(given, self.tokenizer, self.tokens)
        return self.learned.probes(self.corpora[0].split("heldout"), self.tokenizer, self.tokens)

    @cached_property
    def baseline(self) -> dict[str, float]:
        """What word frequencies alone, add-one unigrams of the training text, reach on the same held-out targets."""
        return evaluation.baseline(self.heldout, self.log_frequencies, self.learned.terms)

    @cached_property
    def log_frequencies(self) -> np.ndarray:
        """The log of the share that each answer has in the training text, with one added to each count: see
        `Objective.expected_counts`."""
        counts = self.learned.expected_counts(self._splits("train"), self.tokenizer.size, self.tokens)
        return np.log(counts / counts.sum())


def warm_start(model: Model, splits: Sequence[Split]) -> None:
    """Let the vectors of the tokens that occur in `splits` start from what stands beside them there, scaled to the
    deviation of the table that they replace. Raises UnmaskError for a model that has no such table."""
    token = None if model.reads_source else model.token_table
    if token is None:
        raise UnmaskError(f"A {type(model.config).__name__} has no one table of token vectors: leave out --warm-start.")
    vectors, occurs = cooccurrence.token_vectors(splits, *token.weight.shape)
    deviation = vectors[occurs].std() if occurs.any() else 0.0
    if deviation > 0:
        with torch.no_grad():
            scaled = torch.from_numpy(vectors[occurs]) * (token.weight.std() / float(deviation))
            token.weight[torch.from_numpy(np.flatnonzero(occurs)), : vectors.shape[1]] = scaled


def _micro_batch(rows: Rows) -> int:
    ranks = distributed.ranks()
    if rows.batch < 1:
        raise UnmaskError(f"A batch of {rows.batch} rows is none: --batch-size must be at least 1.")
    if rows.batch % ranks:
        raise UnmaskError(
            f"A batch of {plural(rows.batch, 'row')} cannot be shared by {ranks} processes; use a multiple of {ranks}."
        )
    share = rows.batch // ranks
    if rows.micro_batch is not None and rows.micro_batch < 1:
        raise UnmaskError("--micro-batch must be at least 1.")
    return min(rows.micro_batch or share, share)


def _term(key: str) -> str:
    kind, _, rest = key.partition("/")
    return rest if kind == "loss" else kind
