"""A translation run: pairs of texts in; a portable folder with a model that translates, its scores and a report out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import nn

from unmask import huggingface
from unmask.config import Config
from unmask.data import bitext
from unmask.data.bitext import Bitext
from unmask.data.numbers import NoVector
from unmask.data.pairing import PairRows, PairSource, collate_pairs, pairs
from unmask.data.subwords import Subwords
from unmask.errors import UnmaskError, plural
from unmask.files import write_text
from unmask.generate import Limits, Search, generate_all
from unmask.kernels.formats import exactly
from unmask.metrics import translation as scores
from unmask.models import Transformer
from unmask.models.encoder_decoder import EncoderDecoderConfig
from unmask.models.inference_transformer import writer_layout
from unmask.models.model import Model
from unmask.objectives import NextToken, ScheduledSampling
from unmask.runs import probes
from unmask.runs.report import run_facts
from unmask.runs.translation import ending, origin
from unmask.runs.translation.texts import Texts, by_length, cut_short, unchanged, unwritable
from unmask.serve.translator import LONGEST
from unmask.train import checkpoint, distributed
from unmask.train.display import Display, on_main
from unmask.train.events import Began, Evaluated, Evaluation, Event, Listener, Result
from unmask.train.interrupt import cuttable
from unmask.train.metrics import read as read_metrics
from unmask.train.trainer import Trainer, Training

SHOWN = 6  # dev sentences whose translations are noted at every evaluation
BEST = "best"
LIMITS = Limits(max_length=256)


@dataclass(frozen=True, kw_only=True)
class Vocabulary(Config):
    """One vocabulary for both sides: subwords by sentencepiece ("unigram", "bpe"), or "word", "character".

    normalization  "nmt_nfkc_cf" makes everything lower case
    """

    kind: Literal["unigram", "bpe", "word", "character"] = "unigram"
    size: int = 8_000
    normalization: Literal["nmt_nfkc", "nmt_nfkc_cf", "identity"] = "nmt_nfkc"


@dataclass(frozen=True, kw_only=True)
class Learning(Config):
    """What is minimised.

    label_smoothing     share of the probability that is asked for all tokens alike
    scheduled_sampling  share of the true tokens that the model's own replace, while training
    average             checkpoints, the last ones, whose mean weights are tried at the end; 0 or 1: none
    """

    label_smoothing: float = 0.1
    scheduled_sampling: float = 0.0
    average: int = 0

    def build(self) -> NextToken:
        """The objective."""
        if self.scheduled_sampling:
            return ScheduledSampling(self.scheduled_sampling, label_smoothing=self.label_smoothing)
        return NextToken(label_smoothing=self.label_smoothing)


@dataclass(frozen=True, kw_only=True)
class Translation(Config):
    """Everything that makes a translation run; `systems.py` holds those with a name.

    model   a Transformer, Seq2Seq, ConvS2S, VectorDecoder or T5; its vocabulary and special ids are the tokenizer's
    start   a folder whose weights and vocabulary to go on from (`translation.origin.starting_from`); None: fresh ones
    search  how `unmask translate` searches where nothing else is said; evaluations on the way are greedy
    """

    model: EncoderDecoderConfig = field(default_factory=Transformer)
    start: str | None = None
    texts: Texts = field(default_factory=Texts)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    learning: Learning = field(default_factory=Learning)
    training: Training = field(default_factory=Training)
    search: Search = field(default_factory=lambda: Search(beam_size=5, length_penalty=1.0, limits=LIMITS))


SCORES: dict[str, Callable[..., scores.Score]] = {"bleu": scores.bleu, "chrf": scores.chrf}  # of dev pairs


class TrainTranslation:
    """The wiring of one run; `run` trains, `plan` says what that would take.

    Raises UnmaskError at construction for anything that can be known to be wrong before the first step.
    """

    def __init__(
        self,
        config: Translation,
        out: Path | str,
        *,
        recipe: str = "",
        resume: bool = False,
        display: Display | None = None,
    ) -> None:
        self.out, self.recipe = Path(out), recipe
        distributed.init(config.training.device)  # first, for what follows asks how many processes there are
        self.notes: list[str] = []
        checkpoint.refuse_taken(self.out, resume=resume)
        if not resume:
            config.texts.check()
        self.fingerprints: dict[str, list[str]] = run_facts(self.out).get("fingerprints", {}) if resume else {}
        train, dev = self._read(config.texts, config.training.seed)
        self.tokenizer = self._tokenizer(config, train, resume)
        self.config = config = origin.settled(config, self.tokenizer)
        longest = _longest(config)
        train, kept = self._fitting(train, longest, config.texts.ratio)
        self.dev = dev
        self.dev_sources, self.dev_targets = self._encode(dev)
        self.notes += [one for one in (huggingface.only_here(config.model),) if one]
        self.objective = config.learning.build()
        self.model = origin.build(config, resume=resume and bool(self._checkpoints()))
        self.notes += self._unwritable(*kept)
        read = _tokens_read(self.model)
        self.notes += cut_short(self.dev_sources, self.dev_targets, read=read, most=longest - 1)
        pad, start, end = self.tokenizer.pad, self.tokenizer.start, self.tokenizer.end
        self.pairs = pairs(
            PairSource(*kept),
            config.texts.tokens,
            PairRows(pad, start, end),
            seed=config.training.seed,
            rank=distributed.rank(),
            ranks=distributed.ranks(),
        )
        self.baseline = {"next/nll": ending.unigram_loss(kept[1], self.dev_targets, end, self.tokenizer.size)}
        collate = partial(collate_pairs, pad=pad, start=start, end=end)
        self.heldout = [
            collate(
                [self.dev_sources[i][: longest - 1] for i in rows], [self.dev_targets[i][: longest - 1] for i in rows]
            )
            for rows in by_length(self.dev_sources, self.dev_targets, longest)
        ]
        self.best = -math.inf
        self.trainer = Trainer(
            self.model,
            self.objective,
            self.pairs,
            config.training,
            self.out,
            evaluate=self.evaluate,
            save=self.save,
            resume=resume,
        )
        if resume:
            last = max(checkpoint.steps(self.out / "checkpoints"), default=0)  # rows beyond it are measured again
            rows = [row for row in self._evaluations() if self.metric in row and row["step"] <= last]
            self.best = max((row[self.metric] for row in rows), default=-math.inf)
        self.display = on_main(display)
        for note in self.notes:
            self.display.note(note)

    @property
    def metric(self) -> str:
        """What decides which weights are kept: the share of exact answers where there is one answer, else BLEU."""
        return "exact" if self.config.texts.embedded else "bleu"

    def plan(self) -> dict[str, Any]:
        """What the run would take, measured on a few steps that leave no trace."""
        return self.trainer.plan()

    def run(self, *listeners: Listener) -> Result:
        """Train, heard by `listeners`; then write the finished folder, with the weights that are best on dev pairs."""
        result = self.trainer.train(self._hear, probes.writing(self.out), *listeners, display=self.display)
        self.trainer.engine.on_main(lambda: self._finish(chosen=result.stopped is None))
        return result

    def _hear(self, event: Event) -> None:
        """Write the settings of a run that begins, and the weights that translate the dev pairs best."""
        match event:
            case Began() if distributed.is_main():
                self._write_settings(self.out)
            case Evaluated(numbers=numbers) if self.metric in numbers:
                value = distributed.from_main(numbers[self.metric])
                if value >= self.best:  # the later of two equal ones
                    self.best = value
                    self.trainer.engine.on_main(lambda: self.save(self.out / BEST))

    def _finish(self, *, chosen: bool) -> None:
        if chosen:
            self._choose()
        self.save(self.out)

    def summary(self, result: Result) -> str:
        """How the run ended, in a few lines."""
        done = f"{result.step:,} of {plural(result.total, 'step')} in {result.seconds / 60:.1f} minutes"
        lines = [f"{done}; stopped by {result.stopped}." if result.stopped else f"{done}. The model is in {self.out}."]
        rows = self._evaluations()
        if best := ending.kept(rows, self.metric):
            scored = f"{min(len(self.dev), self.config.texts.scored):,} of {len(self.dev):,}, greedy"
            lines.append(f"Dev pairs ({scored}): {ending.score(rows, self.metric)}.")
            if result.stopped and best["step"] != result.step:
                held = f"{self.out} holds the weights of step {result.step:,}"
                lines.append(f"{held}, and {self.out / BEST} the best ones.")
        if self._averaged:
            lines.append(self.notes[-1])
        return "\n".join(lines if result.stopped else lines + self.warnings())

    def warnings(self) -> list[str]:
        """Sentences for a run that came to its end and has hardly learned."""
        floor = None if self.config.start else self.baseline["next/nll"]
        return ending.warnings(self._evaluations(), self.metric, self.config.training.minutes, floor)

    def save(self, folder: Path) -> None:
        """Write the model, the tokenizer and the resolved configuration into `folder`."""
        settings = {"search": self.config.search.to_dict()}
        huggingface.save(folder, self.model, self.tokenizer, settings=settings)
        self._write_settings(folder)

    def _write_settings(self, folder: Path) -> None:
        """Write what the run is: what `--resume` goes on with, and what its report shows."""
        scored = SCORES if self.metric == "bleu" else {}
        facts = {
            "kind": "translation",
            "recipe": self.recipe,
            "config": self.config.to_dict(),
            "parameters": self.model.parameters_total,
            "notes": self.notes,
            "fingerprints": self.fingerprints,
            "metric": self.metric,
            "baseline": self.baseline,
            "signatures": {name: score(["a"], ["a"], force=True).signature for name, score in scored.items()},
        }
        write_text(folder / checkpoint.RUN, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")

    # -- data

    def _read(self, texts: Texts, seed: int) -> tuple[Bitext, Bitext]:
        """Training and dev pairs, with what is to be said of them in the notes. Raises UnmaskError where those of a
        run that is resumed have changed."""
        if made := texts.embedded:
            train, dev = made(texts.most or 50_000, seed=seed), made(texts.heldout, seed=seed, split="dev")
            self.notes += [f"{train.description}."]
            return train, dev
        train = texts.pairs(texts.train)
        if texts.most is not None:
            train = train.take(range(min(texts.most, len(train))))
        self.fingerprints["train"] = unchanged(train, texts.train, self.fingerprints.get("train"))
        if texts.dev:
            dev = texts.pairs(texts.dev)
            self.fingerprints["dev"] = unchanged(dev, texts.dev, self.fingerprints.get("dev"))
            apart = () if texts.allow_overlap else bitext.check_apart(train, dev)
        else:
            train, dev = bitext.hold_out(train, min(texts.heldout, len(train) // 10), seed)
            apart = (f"No dev pairs are given: {len(dev):,} are held out of training.",)
        self.notes += [f"{train.description}.", *([f"{dev.description}."] if texts.dev else []), *apart]
        return train, dev

    def _checkpoints(self) -> list[Path]:
        """Folders of the checkpoints, the newest last."""
        place = self.out / "checkpoints"
        return [checkpoint.folder_of(place, step) for step in checkpoint.steps(place)]

    def _tokenizer(self, config: Translation, train: Bitext, resume: bool) -> Subwords:
        """That of the run or the folder that is gone on from, else one that is learned from the training pairs."""
        sound = checkpoint.latest(self.out / "checkpoints") if resume else None
        if sound:
            found = origin.kept(sound.folder, config)
        else:
            found = origin.vocabulary(config.start) if config.start else origin.learned(config, train)
        short = "" if config.start else found.short_of(config.vocabulary.size)
        self.notes += [short] if short else []
        return found

    def _fitting(
        self, train: Bitext, longest: int, ratio: float | None
    ) -> tuple[Bitext, tuple[list[np.ndarray], list[np.ndarray]]]:
        """The training pairs that the model takes, and their ids; what was left out is noted."""
        sources, targets = self._encode(train)
        before = len(train.report.notes)
        train, kept = bitext.fitting(
            train, [len(s) for s in sources], [len(t) for t in targets], longest=longest - 1, ratio=ratio
        )
        self.notes += train.report.notes[before:]
        return train, ([sources[i] for i in kept], [targets[i] for i in kept])

    def _unwritable(self, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> list[str]:
        """What is to be said of training and dev pairs that the vocabulary cannot write."""
        return unwritable(self.tokenizer, Training=(sources, targets), Dev=(self.dev_sources, self.dev_targets))

    def _encode(self, pairs: Bitext) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Ids of both sides, without special tokens."""
        try:
            return self.tokenizer.encode_all(pairs.sources), self.tokenizer.target.encode_all(pairs.targets)
        except NoVector as error:
            raise UnmaskError(f"{pairs.report.name}, line {pairs.lines[error.place]:,}: {error}") from None

    # -- evaluation

    def evaluate(self, model: nn.Module, step: int) -> Evaluation:
        """Loss, perplexity and accuracy of the dev tokens; from the first step on, scores of greedy translations, and
        some of these."""
        model = cast(Model, model)
        with cuttable():
            found = self._losses(model)
            if step == 0:  # it would write until it is stopped
                return Evaluation(found)
            translations = self.translations(model, self.config.texts.scored)
        found |= self._scores(translations)
        return Evaluation(found, self._samples(translations) if distributed.is_main() else ())

    def _losses(self, model: Model) -> dict[str, float]:
        sums = {"loss/next": 0.0, "next/nll": 0.0, "next/correct": 0.0}
        count = 0
        for batch in self.heldout:
            loss = self.objective.loss(model, batch.to(model.device))["next"]
            count += loss.count
            sums["loss/next"] += float(loss.sum)
            for name in ("nll", "correct"):
                sums[f"next/{name}"] += float(loss.metrics[name])
        means = {name: value / count for name, value in sums.items()}
        return {**means, "perplexity": math.exp(min(means["next/nll"], 50.0))}

    def translations(self, model: Model, count: int, search: Search | None = None) -> list[str]:
        """Translations of the first dev sources, greedy ones unless `search` says more, in full precision, as the
        folder will give them."""
        own, read = self.config.search, _tokens_read(model) + 1
        search = search or Search(limits=own.limits, blocking=own.blocking)
        sources = [self.tokenizer.closed(ids, read) for ids in self.dev_sources[:count]]
        end, pad = self.tokenizer.end, self.tokenizer.pad
        with exactly(model.device):
            found = list(generate_all(writer_layout(model), sources, search, end=end, pad=pad, device=model.device))
        return [self.tokenizer.target.decode(best[0].tokens) for best in found]

    def _scores(self, translations: Sequence[str]) -> dict[str, float]:
        references = self.dev.targets[: len(translations)]
        if self.metric == "exact":
            return {"exact": scores.exact_match_accuracy(translations, references)}
        return {name: score(translations, references, force=True).value for name, score in SCORES.items()}

    def _samples(self, translations: Sequence[str]) -> list[dict[str, Any]]:
        shown = range(min(SHOWN, len(translations)))
        texts = [self.tokenizer.shown(self.dev.sources[i]) for i in shown]
        asked = [probes.Probe(texts[i], self.dev_sources[i], (self.dev.targets[i],)) for i in shown]
        return probes.samples(asked, [[(translations[i], 1.0)] for i in shown])

    def _evaluations(self) -> list[dict[str, Any]]:
        path = self.out / "metrics.jsonl"
        return read_metrics(path, "heldout") if path.exists() else []

    _averaged = False

    def _choose(self) -> None:
        """Leave the model with the weights that scored best on the dev pairs, or with a mean that scores better."""
        if (self.out / BEST).is_dir():
            self._take(huggingface.load(self.out / BEST, huggingface.ENCODER_DECODER).model)
        folders = self._checkpoints()[-self.config.learning.average :]
        if self.config.learning.average < 2 or len(folders) < 2:
            return
        weights = huggingface.average(folders)
        mean = huggingface.load(folders[-1], huggingface.ENCODER_DECODER, weights=weights).model.to(self.model.device)
        value = self._scores(self.translations(mean, self.config.texts.scored))[self.metric]
        better = value >= self.best
        found, best = ending.shown(self.metric, value), ending.shown(self.metric, self.best)
        self.notes.append(
            f"The mean of the last {len(folders)} checkpoints has {found} on the dev pairs, the best one {best}: "
            f"the {'mean' if better else 'best one'} is kept."
        )
        self._averaged = True
        if better:
            self._take(mean)

    def _take(self, other: nn.Module) -> None:
        values = other.state_dict()
        with torch.no_grad():  # not `load_state_dict`, which splits a sharded model again
            for name, own in self.model.named_parameters():
                own.copy_(values[name])
        self.model.eval()


def _longest(config: Translation) -> int:
    positions = getattr(config.model, "length", None)
    return config.texts.longest if positions is None else min(config.texts.longest, positions)


def _tokens_read(model: Model) -> int:
    """Tokens of a source that are read at most, its end aside."""
    return min(model.positions or LONGEST, LONGEST) - 1
