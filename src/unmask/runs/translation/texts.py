"""The pairs of a run, and how they are read from files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.config import Config
from unmask.data.bitext import dates
from unmask.data.bitext import reading as bitext
from unmask.data.bitext.forms import TURNS
from unmask.data.bitext.pairs import Bitext
from unmask.data.pictures import captions, compositions
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.runs.translation.scoring import EXACT, scoring

DATES, DATE_VECTORS, DIGITS = "dates", "date-vectors", "digits"
EMBEDDED: dict[str, Callable[..., Bitext]] = {
    DATES: dates.pairs,
    DATE_VECTORS: dates.vectors,
    DIGITS: compositions.pairs,
}
"""Name of pairs that need no files -> function that makes them: dates to their ISO form, vectors to dates, and pictures
of digits on a grid to captions."""

AT_ONCE = 8_192  # tokens of a batch in evaluations
NO_TABLE = "Columns and formats belong to a table: leave them out for two aligned files, and for dates."


@dataclass(frozen=True, kw_only=True)
class Texts(Config):
    """The pairs of a run, and the number of tokens of a step.

    train, dev  two aligned files, sources and targets; or one table, or file of dialogues, trees or commands; or a
                folder of pictures with captions.tsv; or a name in EMBEDDED, the default
    columns     columns of the sources and the targets in a table
    format      format of one file, if it is not recognised: of a table, or dialogues, trees, scan or squad
    turns       previous turns of a dialogue that are read
    encoding    encoding of files without a byte order mark that are not UTF-8, such as cp1252 or euc-kr
    most        most training pairs, the first ones; for embedded ones, how many are made (50,000)
    heldout     pairs held out of training if there are no dev files
    longest     most tokens of a source or a target; longer training pairs are left out, and counted
    ratio       leave out pairs in which one text is this many times as long as the other
    tokens      target tokens of a step, over all processes
    scored      dev pairs that are translated and scored at every evaluation
    metric      bleu for translations, rouge for summaries, dialogue, parsing, code, questions, exact for texts with one
                right form; one of its scores decides which weights are kept. None: exact for embedded pairs, else bleu
    allow_overlap  continue even if more than a tenth of the dev pairs are also training pairs
    """

    train: tuple[str, ...] = (DATES,)
    dev: tuple[str, ...] = ()
    columns: tuple[str, str] | None = None
    format: str | None = None
    turns: int = TURNS
    encoding: str | None = None
    most: int | None = None
    heldout: int = 1_000
    longest: int = 256
    ratio: float | None = None
    tokens: int = 4_096
    scored: int = 500
    metric: str | None = None
    allow_overlap: bool = False

    def check(self) -> None:
        """Raises UnmaskError for settings that would be ignored (dev pairs with dates, columns without a table), and
        for a `most` below 1 and an unknown metric."""
        if self.most is not None and self.most < 1:
            raise UnmaskError(f"There must be at least one training pair, not {self.most}: raise --most.")
        scoring(self.scores)
        if self.embedded and self.dev:
            raise UnmaskError("Dev pairs need training pairs: give --pairs, or leave --dev out to learn dates.")
        if (self.columns or self.format) and not (_is_table(self.train) or _is_table(self.dev)):
            raise UnmaskError(NO_TABLE)

    @property
    def scores(self) -> str:
        """The name of the scores of dev pairs."""
        return self.metric or (EXACT if self.embedded else "bleu")

    @property
    def embedded(self) -> Callable[..., Bitext] | None:
        """The function that makes the training pairs; None if they are read from files."""
        return EMBEDDED.get(self.train[0]) if len(self.train) == 1 else None

    @property
    def pipeline(self) -> str:
        """What a model of these pairs is for, by the name of the Hugging Face hub; "" if it has none."""
        return scoring(self.scores).pipeline

    def pairs(self, names: Sequence[str]) -> Bitext:
        """Read the pairs of `train` or `dev`; one of the two may be a table and the other not."""
        if _is_table(names):
            return read_pairs(names, self.columns, self.format, self.encoding, self.turns)
        return read_pairs(names, encoding=self.encoding)


def read_pairs(
    names: Sequence[str],
    columns: tuple[str, str] | None = None,
    format: str | None = None,
    encoding: str | None = None,
    turns: int = TURNS,
) -> Bitext:
    """Read the pairs of one table, of two aligned files, or of a folder of pictures with captions; for a name in
    EMBEDDED, 1,000 pairs that no run trains on.
    Raises UnmaskError for another number of names, and for columns or a format without a table."""
    if len(names) not in (1, 2):
        raise UnmaskError(f"Give pairs as one table or two aligned files, not as {len(names)} files.")
    if _is_table(names) and (captions.holds_captions(Path(names[0])) or Path(names[0]).is_dir()):
        return captions.captioned(Path(names[0]), columns=columns, encoding=encoding)
    if _is_table(names):
        return bitext.read(names[0], columns=columns, format=format, encoding=encoding, turns=turns)
    if columns or format:
        raise UnmaskError(NO_TABLE)
    return bitext.read(*names, encoding=encoding) if len(names) == 2 else EMBEDDED[names[0]](1_000, split="test")


def unchanged(pairs: Bitext, names: Sequence[str], begun: Sequence[str] | None) -> list[str]:
    """A fingerprint of the sources and one of the targets, over all texts in order.

    names  the files of the pairs, as in `Texts`
    begun  the fingerprints that the run began with; None: the run is new, or of a version without fingerprints

    Raises UnmaskError that names the file if the pairs are not those that the run began with.
    """
    found = [_fingerprint(side) for side in (pairs.sources, pairs.targets)]
    other = [place for place in range(2) if begun is not None and list(begun)[place : place + 1] != [found[place]]]
    if other:
        file = names[other[0]] if len(names) == 2 and len(other) == 1 else pairs.report.name
        raise UnmaskError(
            f"The pairs of {file} are not those that this run began with: restore them, or start a new run in another "
            "folder."
        )
    return found


def _fingerprint(texts: Sequence[str]) -> str:
    digest, many = hashlib.blake2b(digest_size=16), 10_000
    for begin in range(0, len(texts), many):  # no text has a line end
        digest.update("".join(f"{text}\n" for text in texts[begin : begin + many]).encode())
    return digest.hexdigest()


def _is_table(names: Sequence[str]) -> bool:
    return len(names) == 1 and names[0] not in EMBEDDED


Sides = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]
"""Ids of sources, and of targets."""


def unwritable(tokenizer: Tokenizer, **pairs: Sides) -> list[str]:
    """A sentence for each set of pairs, by name, that has characters or words which the vocabulary lacks."""
    what = "pairs with characters or words that the vocabulary lacks, read as <unk>"
    notes = []
    for name, (sources, targets) in pairs.items():
        sides = zip(sources, targets, strict=True)
        lacking = sum(bool(tokenizer.lacking(s) or tokenizer.target.lacking(t)) for s, t in sides)
        notes += [f"{name} {what}: {lacking:,} of {len(sources):,}."] if lacking else []
    return notes


def cut_short(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], *, read: int, most: int) -> list[str]:
    """Sentences on dev pairs that are cut: to `read` tokens of a source for translation, and to `most` tokens of source
    and target for the loss."""
    beyond = sum(len(ids) > read for ids in sources)
    long = sum(max(len(source), len(target)) > most for source, target in zip(sources, targets, strict=True))
    of_sources = f"Dev sources with more than {read:,} tokens, whose ends are not read: {beyond:,}."
    of_pairs = f"Dev pairs with more than {most:,} tokens on a side, cut there for the loss: {long:,}."
    return [note for count, note in ((beyond, of_sources), (long, of_pairs)) if count]


def by_length(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], longest: int) -> Iterator[list[int]]:
    """Indices of the dev pairs in batches of about equal lengths; a length counts as at most `longest` tokens."""
    sizes = [min(longest, 1 + max(len(source), len(target))) for source, target in zip(sources, targets, strict=True)]
    rows: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: (sizes[i], len(targets[i]))):
        if rows and (len(rows) + 1) * sizes[i] > AT_ONCE:
            yield rows
            rows = []
        rows.append(i)
    if rows:
        yield rows
