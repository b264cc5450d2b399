"""The pairs of a translation run, as ids: read from files, cut into pieces, and fitted to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unmask.data.bitext import reading as bitext
from unmask.data.bitext.numbers import NoVector
from unmask.data.bitext.reading import Bitext
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.runs.report import run_facts
from unmask.runs.translation import origin
from unmask.runs.translation.config import Translation
from unmask.runs.translation.texts import Texts, unchanged, unwritable
from unmask.train import checkpoint

Ids = list[np.ndarray]


@dataclass(frozen=True)
class Pairs:
    """What a run learns from, and what it is scored on.

    tokenizer        of both sides; it writes the targets with `tokenizer.target`
    sources, targets  ids [T] of the training pairs that fit, without `end`
    dev              the pairs that are scored
    notes            sentences on the pairs, for a person
    fingerprints     "train" or "dev" -> digests of its texts, by which a resumed run knows them again
    """

    tokenizer: Tokenizer
    sources: Ids
    targets: Ids
    dev: Bitext
    notes: tuple[str, ...] = ()
    fingerprints: Mapping[str, list[str]] = field(default_factory=dict)


def read(config: Translation, out: Path, *, resume: bool) -> Pairs:
    """The pairs that the config names, with the vocabulary that the run in `out`, or its starting folder, has, or with
    a new one. Raises UnmaskError for files that cannot be read, and for pairs that changed since the run began."""
    if not resume:
        config.texts.check()
    begun = run_facts(out).get("fingerprints", {}) if resume else {}
    train, dev, notes, fingerprints = _texts(config.texts, config.training.seed, begun)
    tokenizer = _tokenizer(config, train, out, resume=resume)
    wanted = config.vocabulary.size
    if not config.start and tokenizer.size < wanted:
        notes.append(f"The text gives no more than {tokenizer.size} of the {wanted} pieces that were asked for.")
    sources, targets = encode(tokenizer, train)
    told = len(train.report.notes)
    train, kept = bitext.fitting(
        train, [*map(len, sources)], [*map(len, targets)], longest=config.longest - 1, ratio=config.texts.ratio
    )
    notes += train.report.notes[told:]
    sources, targets = [sources[i] for i in kept], [targets[i] for i in kept]
    notes += unwritable(tokenizer, Training=(sources, targets), Dev=encode(tokenizer, dev))
    return Pairs(tokenizer, sources, targets, dev, tuple(notes), fingerprints)


def encode(tokenizer: Tokenizer, pairs: Bitext) -> tuple[Ids, Ids]:
    """Ids of both sides, without special tokens. Raises UnmaskError that names the line of a bad vector."""
    try:
        return tokenizer.ids(pairs.sources), tokenizer.target.ids(pairs.targets)
    except NoVector as error:
        raise UnmaskError(f"{pairs.report.name}, line {pairs.lines[error.place]:,}: {error}") from None


def _texts(
    texts: Texts, seed: int, begun: Mapping[str, Sequence[str]]
) -> tuple[Bitext, Bitext, list[str], dict[str, list[str]]]:
    """Training and dev pairs, notes on them, and their fingerprints; `begun` has those of a run that is resumed."""
    if made := texts.embedded:
        train, dev = made(texts.most or 50_000, seed=seed), made(texts.heldout, seed=seed, split="dev")
        return train, dev, [f"{train.description}."], {}
    train = texts.pairs(texts.train)
    if texts.most is not None:
        train = train.take(range(min(texts.most, len(train))))
    fingerprints = {"train": unchanged(train, texts.train, begun.get("train"))}
    if texts.dev:
        dev = texts.pairs(texts.dev)
        fingerprints["dev"] = unchanged(dev, texts.dev, begun.get("dev"))
        apart = () if texts.allow_overlap else bitext.check_apart(train, dev)
    else:
        train, dev = bitext.hold_out(train, min(texts.heldout, len(train) // 10), seed)
        apart = (f"No dev pairs are given: {len(dev):,} are held out of training.",)
    notes = [f"{train.description}.", *([f"{dev.description}."] if texts.dev else []), *apart]
    return train, dev, notes, fingerprints


def _tokenizer(config: Translation, train: Bitext, out: Path, *, resume: bool) -> Tokenizer:
    """That of the last checkpoint or of the starting folder; else one that is learned from the training pairs."""
    sound = checkpoint.latest(out / "checkpoints") if resume else None
    if sound:
        return origin.kept(sound.folder, config)
    return origin.vocabulary(config.start) if config.start else origin.learned(config, train)
