"""A translation run: trains a model on pairs of texts, and writes a portable folder with model, scores and report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from unmask import huggingface
from unmask.data.bitext.batching import PairRows, PairSource, collate_pairs
from unmask.data.bitext.batching import pairs as pair_loader
from unmask.data.bitext.pairs import Bitext
from unmask.data.text.tokenizer import Tokenizer
from unmask.generate import Search, generate_all
from unmask.huggingface.card import Card
from unmask.kernels.formats import exactly
from unmask.models.inference_transformer import writer_layout
from unmask.models.model import Model
from unmask.nn import stored
from unmask.runs import probes
from unmask.runs.run import BEST, Best, Run, claim
from unmask.runs.translation import card, ending, origin
from unmask.runs.translation.config import Learning, Translation, Vocabulary
from unmask.runs.translation.pairs import Pairs, encode, read
from unmask.runs.translation.scoring import Scoring, scoring
from unmask.runs.translation.texts import by_length, cut_short
from unmask.serve.translator import LONGEST
from unmask.train import checkpoint, distributed
from unmask.train.display import Display
from unmask.train.events import Evaluation, Result
from unmask.train.interrupt import cuttable

__all__ = ["Learning", "Scores", "TrainTranslation", "Translation", "Vocabulary"]

SHOWN = 6  # dev sentences whose translations are written to samples.jsonl at every evaluation


@dataclass(frozen=True)
class Scores:
    """The scores of a run.

    metric      metric that decides which weights are kept
    of          function from outputs for the first dev sources to metrics
    signatures  metric -> its settings, for the record
    """

    metric: str
    of: Callable[[Sequence[str]], dict[str, float]]
    signatures: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def by(cls, scoring: Scoring, dev: Bitext) -> Scores:
        """Those of written texts, with the references of the dev pairs."""
        return cls(scoring.metric, partial(scoring.values, pairs=dev), scoring.signatures)


class TrainTranslation(Run):
    """A run that learns to generate one text from another: a translation, a date, a label in words.

    pairs   training pairs and dev pairs; None: those of `config.texts`
    scores  scores of the outputs; None: those of `config.texts`
    """

    kind = "translation"
    processor: Tokenizer

    def __init__(
        self,
        config: Translation,
        out: Path | str,
        *,
        recipe: str = "",
        resume: bool = False,
        display: Display | None = None,
        pairs: Pairs | None = None,
        scores: Scores | None = None,
    ) -> None:
        out, self.recipe = Path(out), recipe
        claim(out, config.training.device, resume=resume)
        pairs = pairs or read(config, out, resume=resume)
        tokenizer, self.dev, self.fingerprints = pairs.tokenizer, pairs.dev, pairs.fingerprints
        self.config = config = origin.settled(config, tokenizer)
        self.scores = scores or Scores.by(scoring(config.texts.scores), self.dev)
        self.dev_sources, self.dev_targets = encode(tokenizer, self.dev)
        model = origin.build(config, resume=resume and bool(checkpoint.steps(out / "checkpoints")))
        most, only_here = config.longest - 1, huggingface.only_here(config.model)
        self.notes: list[str] = [*pairs.notes, *([only_here] if only_here else [])]
        self.notes += cut_short(self.dev_sources, self.dev_targets, read=_tokens_read(model), most=most)
        pad, start, end = tokenizer.pad, tokenizer.start, tokenizer.end
        data = pair_loader(
            PairSource(pairs.sources, pairs.targets),
            config.texts.tokens,
            PairRows(pad, start, end),
            seed=config.training.seed,
            rank=distributed.rank(),
            ranks=distributed.ranks(),
        )
        self.baseline = {"next/nll": ending.unigram_loss(pairs.targets, self.dev_targets, end, tokenizer.size)}
        collate = partial(collate_pairs, pad=pad, start=start, end=end)
        self.heldout = [
            collate(
                [tokenizer.shortened(self.dev_sources[i], most) for i in rows],
                [self.dev_targets[i][:most] for i in rows],
            )
            for rows in by_length(self.dev_sources, self.dev_targets, config.longest)
        ]
        super().__init__(
            model,
            config.learning.build(),
            data,
            config.training,
            out,
            processor=tokenizer,
            best=Best(self.scores.metric, later=True),
            resume=resume,
            display=display,
        )

    def evaluate(self, model: nn.Module, step: int) -> Evaluation:
        """Loss, perplexity and accuracy of the dev tokens; after step 0 also the scores of greedy outputs, and some of
        the outputs as samples."""
        model = cast(Model, model)
        found = super().evaluate(model, step).numbers
        found["perplexity"] = math.exp(min(found["next/nll"], 50.0))
        if step == 0:  # an untrained model generates up to the limit
            return Evaluation(found)
        with cuttable():
            outputs = self.translations(model, self.config.texts.scored)
        return Evaluation(found | self.scores.of(outputs), self._samples(outputs) if distributed.is_main() else ())

    def translations(self, model: Model, count: int, search: Search | None = None) -> list[str]:
        """Outputs for the first dev sources, by greedy search unless `search` is given, in full precision, equal to
        those of the finished folder."""
        configured, longest = self.config.search, _tokens_read(model) + 1
        search = search or Search(limits=configured.limits, blocking=configured.blocking)
        sources = [self.processor.closed(ids, longest) for ids in self.dev_sources[:count]]
        end, pad = self.processor.end, self.processor.pad
        with exactly(model.device):
            found = list(generate_all(writer_layout(model), sources, search, end=end, pad=pad, device=model.device))
        return [self.processor.target.decode(best[0].tokens) for best in found]

    def _samples(self, outputs: Sequence[str]) -> list[dict[str, Any]]:
        shown = range(min(SHOWN, len(outputs)))
        texts = [self.processor.shown(self.dev.sources[i]) for i in shown]
        given = [probes.Probe(texts[i], self.dev_sources[i], (self.dev.targets[i],)) for i in shown]
        return probes.samples(given, [[(outputs[i], 1.0)] for i in shown])

    def write_model(self, folder: Path) -> None:
        huggingface.save(folder, self.model, self.processor, settings={"search": self.config.search.to_dict()})

    def facts(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "notes": self.notes,
            "fingerprints": dict(self.fingerprints),
            "metric": self.scores.metric,
            "baseline": self.baseline,
            "signatures": dict(self.scores.signatures),
        }

    def sentences(self, result: Result) -> list[str]:
        rows, metric, lines = self.evaluations(), self.scores.metric, []
        if best := ending.kept(rows, metric):
            scored = f"{min(len(self.dev), self.config.texts.scored):,} of {len(self.dev):,}, greedy"
            lines.append(f"Dev pairs ({scored}): {ending.score(rows, metric)}.")
            if result.stopped and best["step"] != result.step:
                held = f"{self.out} holds the weights of step {result.step:,}"
                lines.append(f"{held}, and {self.out / BEST} the best ones.")
        if self._averaged:
            lines.append(self.notes[-1])
        return lines if result.stopped else lines + self.warnings()

    def warnings(self) -> list[str]:
        """Sentences for a complete run whose model has hardly learned."""
        floor = None if self.config.start else self.baseline["next/nll"]
        minutes, before = self.config.training.minutes, self.trainer.timed_from
        return ending.warnings(self.evaluations(), self.scores.metric, minutes, floor, before)

    def doubts(self, result: Result) -> list[str]:
        return [] if result.stopped else self.warnings()

    def card(self, result: Result) -> Card:
        best = ending.kept(self.evaluations(), self.scores.metric) or {}
        found, own = (
            super().card(result),
            card.facts(self.config, len(self.dev), best, self.baseline, self.scores.metric),
        )
        return replace(found, **{**own, "settings": {**found.settings, **own["settings"]}})

    # -- the weights of the finished folder

    _averaged = False

    def finish(self, result: Result) -> None:
        if result.stopped is None:
            self._choose()
        super().finish(result)

    def _choose(self) -> None:
        """Give the model the weights that score best on the dev pairs, or mean weights if they score better."""
        if (self.out / BEST).is_dir():
            self._take(huggingface.load(self.out / BEST, huggingface.ENCODER_DECODER).model)
        place, most = self.out / "checkpoints", self.config.learning.average
        folders = [checkpoint.folder_of(place, step) for step in checkpoint.steps(place)][-most:]
        if most < 2 or len(folders) < 2:
            return
        weights = huggingface.average(folders)
        mean = huggingface.load(folders[-1], huggingface.ENCODER_DECODER, weights=weights).model.to(self.model.device)
        metric, best = self.scores.metric, self.best.value if self.best else -math.inf
        value = self.scores.of(self.translations(mean, self.config.texts.scored))[metric]
        better = value >= best
        self.notes.append(
            f"The mean of the last {len(folders)} checkpoints has {ending.shown(metric, value)} on the dev pairs, the "
            f"best one {ending.shown(metric, best)}: the {'mean' if better else 'best one'} is kept."
        )
        self._averaged = True
        if better:
            self._take(mean)

    def _take(self, other: nn.Module) -> None:
        values = other.state_dict()
        with torch.no_grad():  # not `load_state_dict`, which would shard a sharded model again
            for name, tensor in stored(self.model).items():
                tensor.copy_(values[name])
        self.model.eval()


def _tokens_read(model: Model) -> int:
    """Most tokens of a source that are read, without its end token."""
    return min(model.positions or LONGEST, LONGEST) - 1
