"""A pre-training run: trains a model on corpora, and writes a portable folder with the model, metrics and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from unmask import huggingface
from unmask.data.files.cached import through_cache
from unmask.data.text import cooccurrence
from unmask.data.text.corpus import Split
from unmask.errors import UnmaskError
from unmask.huggingface.card import Card
from unmask.models.model import Model
from unmask.objectives import Objective
from unmask.objectives.objective import Probe
from unmask.runs import cards, probes
from unmask.runs.pretraining import card, evaluation
from unmask.runs.pretraining.config import Pretraining, settled, tokens_of
from unmask.runs.pretraining.continued import Origin, check_corpora, resumed_words
from unmask.runs.pretraining.rows import PretrainingRows
from unmask.runs.pretraining.teacher import prepare, stages, with_teacher
from unmask.runs.run import Run, claim
from unmask.train import distributed
from unmask.train.calibrate import FEW, too_few
from unmask.train.display import Display, on_main, progress
from unmask.train.events import Evaluation, Result

NOTHING_HELD_OUT = (
    "The corpus holds out no text, or too little to mask a token, so the model cannot be evaluated on new text: build "
    "the corpus with --heldout 0.1, or with --per line if all text is one document."
)


class Pretrain(Run):
    """A run that trains a model by an objective on corpora.

    corpora   the corpora, opened by the objective (`ObjectiveConfig.opens`)
    learned   the objective of the config; `objective` is `learned`, or `learned` with a teacher
    """

    kind = "pretraining"
    objective: Objective
    data: PretrainingRows
    processor: Any

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
        """prompts: texts with [MASK] -> expected answers, to predict at every evaluation; None: words of held-out
        sentences are masked."""
        out, self.recipe = Path(out), recipe
        claim(out, config.training.device, resume=resume)
        if not corpora:
            raise UnmaskError("Give a corpus to pre-train on.")
        cache = config.rows.cache, config.rows.cache_gb
        self.corpora = [config.objective.opens(through_cache(folder, *cache)) for folder in corpora]
        self._shown: set[str] = set()  # notes of the corpora
        self._measured: dict[str, Any] = {}  # at the last evaluation
        self.origin = None if config.start is None else Origin.open(config.start, out if resume else None)
        self.config = config = settled(config, self.corpora, self.origin)
        processor = huggingface.fitted(config.objective.processor(self.corpora[0].processor), config.model)
        self.tokens = tokens_of(config)
        self.train = train = [corpus.split("train") for corpus in self.corpora]
        heldout = [corpus.split("heldout") for corpus in self.corpora]
        poor = [] if resume else config.objective.check_data(train)
        self.config = config = self._prepared(processor, out, display)
        if self.origin is not None:
            words = self.origin.stored.words
        else:
            words = resumed_words(out, self.corpora, processor) if resume else ()
        if resume:
            check_corpora(out, self.corpora)
        self.learned = config.objective.build(processor, train, words)
        self.processor = processor
        objective = with_teacher(config, self.learned, processor)
        model, notice = self._build(objective)
        rows = PretrainingRows(objective, train, heldout, config.rows, self.tokens, config.training.seed)
        self.heldout = rows.heldout
        self.probes = self._probes(prompts, heldout[0])
        own = (notice, *poor, "" if self.heldout else NOTHING_HELD_OUT)
        self.notes = [*(note for note in own if note), *self._unread()]
        super().__init__(
            model,
            objective,
            rows,
            config.training,
            out,
            processor=processor,
            tuning=stages(model, objective),
            resume=resume,
            display=display,
        )

    def _prepared(self, processor: Any, out: Path, display: Display | None) -> Pretraining:
        """The config with what its objective computes before a run; the main process computes it."""
        say = on_main(display).note
        for turn in (distributed.is_main(), not distributed.is_main()):
            if turn:
                objective = self.config.objective.prepared(self.corpora, processor, out, say, progress)
            distributed.barrier()
        return replace(self.config, objective=objective)

    def _build(self, objective: Objective) -> tuple[Model, str]:
        """The model to train, and a sentence on its heads."""
        config, seed = self.config, self.config.training.seed
        if self.origin is not None:
            model, notice = self.origin.build(config.model, objective.heads, seed, lambda: self.log_frequencies)
            prepare(model, objective, config.distillation, continued=True)  # inherits nothing, so it has no sentence
            return model, notice
        model = config.model.build(objective.heads, seed=seed)
        if config.warm_start != "none":
            warm_start(model, self.train)
        return model, prepare(model, objective, config.distillation)

    def _probes(self, given: Mapping[str, Sequence[str]] | None, heldout: Any) -> list[Probe]:
        if given is not None:
            return self.learned.probes_of(given, self.processor, self.tokens)
        return self.learned.probes(heldout, self.processor, self.tokens)

    def plan(self) -> dict[str, Any]:
        found = super().plan()
        return {**found, "amount": self.learned.amount(found["tokens_per_step"])}

    def planned(self, total: int) -> None:
        self.data.total = total

    def evaluate(self, model: nn.Module, step: int) -> Evaluation:
        """Mean loss and accuracy of each term over the held-out rows, and the predictions for the probes."""
        model = cast(Model, model)
        found = super().evaluate(model, step).numbers
        for note in (*self._unread(), *(self.learned.concerns(found) if step else ())):
            self.display.note(note)
        self._measured = self.learned.measured(model, self.heldout)
        samples = []
        if self.probes and distributed.is_main():
            guesses = self.learned.guesses(model, self.processor, self.probes)
            pictures = self.learned.pictures(model, self.processor, self.probes)
            samples = probes.samples(self.probes, guesses, pictures)
        return Evaluation(found | self.learned.derived(found, lambda: self._characters), samples)

    def write_model(self, folder: Path) -> None:
        words = self.learned.folder_words(self.processor)
        huggingface.save(folder, self.model, self.processor, words=words, settings=self._measured)

    def facts(self) -> dict[str, Any]:
        facts = {
            "corpora": [str(corpus.folder) for corpus in self.corpora],
            "checksums": [corpus.checksum for corpus in self.corpora],
            "model": type(self.config.model).__name__,
            "config": self.config.to_dict(),
            "tokens_per_step": self.tokens * self.config.rows.batch,
            "baseline": self.baseline,
            "terms": [term._asdict() for term in self.objective.terms],
        }
        return facts if self.origin is None else facts | {"origin": dict(self.origin.facts)}

    def sentences(self, result: Result) -> list[str]:
        lines = self.learned.summary(result.heldout, self.baseline, self._at_start())
        unread = (note for corpus in self.corpora for note in corpus.notes)
        return [*lines, *self.doubts(result), *unread]

    def doubts(self, result: Result) -> list[str]:
        new = self.origin is None and result.stopped is None
        steps = result.total - self.trainer.timed_from  # in the minutes
        few = too_few(steps, self.config.training.minutes, further=True) if new and result.total < FEW else None
        said = few or evaluation.plateau(result.heldout, self.baseline, self.learned.terms)
        return [said] if said else []

    def card(self, result: Result) -> Card:
        config, found = self.config, super().card(result)
        folders = [Path(getattr(corpus, "home", str(corpus.folder))) for corpus in self.corpora]
        own = card.facts(config.objective, folders, result.heldout, self.baseline, self.processor)
        rest = cards.settings({"objective": config.objective.to_dict(), "rows": config.rows.to_dict()})
        settings = {**found.settings, **rest}
        return replace(
            found, start=cards.name_of(config.start), made=cards.made(config.start), settings=settings, **own
        )

    def _unread(self) -> list[str]:
        """Sentences on what could not be read so far, without those that were shown before."""
        found = [note for corpus in self.corpora for note in corpus.notes if note not in self._shown]
        self._shown.update(found)
        return found

    def _at_start(self) -> dict[str, Any]:
        """The evaluation at step 0 of the folder that the run started from; empty for new weights, or without one."""
        rows = [] if self.origin is None else self.evaluations()
        guesses = rows and any(f"loss/{term}" in rows[0] for term in evaluation.guessing(self.learned.terms))
        return rows[0] if guesses and rows[0]["step"] == 0 else {}

    @cached_property
    def _characters(self) -> float:
        """Mean characters of a held-out token."""
        return evaluation.characters(self.heldout, self.processor, self.learned.terms)

    @cached_property
    def baseline(self) -> dict[str, float]:
        """The scores of word frequencies alone (add-one unigrams of the training text) on the held-out targets, and of
        the most frequent class; empty if the objective predicts neither text nor classes."""
        terms = self.learned.terms
        found = evaluation.of_classes(self.heldout, terms)
        if evaluation.guessing(terms):
            found |= evaluation.baseline(self.heldout, self.log_frequencies, terms)
        return found

    @cached_property
    def log_frequencies(self) -> np.ndarray:
        """[V] log frequency of each target in the training text, with one added to each count
        (`Objective.expected_counts`)."""
        counts = self.learned.expected_counts(self.train, self.processor.size, self.tokens)
        return np.log(counts / counts.sum())


def warm_start(model: Model, splits: Sequence[Split]) -> None:
    """Initialise the vectors of the tokens that occur in `splits` by their co-occurrence there, scaled to the standard
    deviation of the vectors that they replace. Raises UnmaskError for a model without a single token table."""
    token = None if model.reads_source else model.token_table
    if token is None:
        raise UnmaskError(f"A {type(model.config).__name__} has no single token table: leave --warm-start out.")
    vectors, occurs = cooccurrence.token_vectors(splits, *token.weight.shape)
    deviation = vectors[occurs].std() if occurs.any() else 0.0
    if deviation > 0:
        with torch.no_grad():
            scaled = torch.from_numpy(vectors[occurs]) * (token.weight.std() / float(deviation))
            token.weight[torch.from_numpy(np.flatnonzero(occurs)), : vectors.shape[1]] = scaled
