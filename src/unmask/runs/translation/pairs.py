"""The pairs of a translation run: read from files, tokenized, and filtered by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unmask.data.bitext.numbers import NoVector
from unmask.data.bitext.pairs import Bitext, check_apart, fitting, hold_out
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
    """The training pairs and the dev pairs of a run.

    tokenizer         tokenizer of the sources; `tokenizer.target` is that of the targets
    sources, targets  ids [T] of the training pairs that fit, without `end`
    dev               pairs for evaluation
    notes             sentences on the pairs, for the display
    fingerprints      "train" or "dev" -> digests of its texts, by which a resumed run detects changes
    """

    tokenizer: Tokenizer
    sources: Ids
    targets: Ids
    dev: Bitext
    notes: tuple[str, ...] = ()
    fingerprints: Mapping[str, list[str]] = field(default_factory=dict)


def read(config: Translation, out: Path, *, resume: bool) -> Pairs:
    """Read the pairs of the config, with the vocabulary of the resumed run in `out`, of the starting folder, or a new
    one. Raises UnmaskError for files that cannot be read, and for pairs that changed since the run began."""
    if not resume:
        config.texts.check()
    begun = run_facts(out).get("fingerprints", {}) if resume else {}
    train, dev, notes, fingerprints = _texts(config.texts, config.training.seed, begun)
    tokenizer = _tokenizer(config, train, out, resume=resume)
    wanted = config.vocabulary.size
    if not config.start and tokenizer.size < wanted:
        notes.append(f"The text gives only {tokenizer.size} pieces, not {wanted}.")
    sources, targets = encode(tokenizer, train)
    before = len(train.report.notes)
    train, kept = fitting(
        train, [*map(len, sources)], [*map(len, targets)], longest=config.longest - 1, ratio=config.texts.ratio
    )
    notes += train.report.notes[before:]
    sources, targets = [sources[i] for i in kept], [targets[i] for i in kept]
    notes += unwritable(tokenizer, Training=(sources, targets), Dev=encode(tokenizer, dev))
    return Pairs(tokenizer, sources, targets, dev, tuple(notes), fingerprints)


def encode(tokenizer: Tokenizer, pairs: Bitext) -> tuple[Ids, Ids]:
    """Ids of sources and targets, without special tokens. Raises UnmaskError that names the line of a bad vector."""
    try:
        return tokenizer.ids(pairs.sources), tokenizer.target.ids(pairs.targets)
    except NoVector as error:
        raise UnmaskError(f"{pairs.report.name}, line {pairs.lines[error.place]:,}: {error}") from None


def _texts(
    texts: Texts, seed: int, begun: Mapping[str, Sequence[str]]
) -> tuple[Bitext, Bitext, list[str], dict[str, list[str]]]:
    """Training and dev pairs, notes on them, and their fingerprints; `begun` has the fingerprints of a resumed run."""
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
        apart = () if texts.allow_overlap else check_apart(train, dev)
    else:
        train, dev = hold_out(train, min(texts.heldout, len(train) // 10), seed)
        apart = (f"No dev pairs are given: {len(dev):,} are held out of training.",)
    notes = [f"{train.description}.", *([f"{dev.description}."] if texts.dev else []), *apart]
    return train, dev, notes, fingerprints


def _tokenizer(config: Translation, train: Bitext, out: Path, *, resume: bool) -> Tokenizer:
    """The tokenizer of the last checkpoint or of the starting folder; else one learned from the training pairs."""
    sound = checkpoint.latest(out / "checkpoints") if resume else None
    if sound:
        return origin.kept(sound.folder, config)
    return origin.vocabulary(config.start) if config.start else origin.learned(config, train)
