"""Transcripts: what a model of speech recognition answers, with the times of its words, and tables of its errors.

Shapes: F frames of a recording, C labels and the blank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from unmask import metrics
from unmask.data.recordings.characters import Characters
from unmask.errors import UnmaskError, plural
from unmask.generate.prefixes import Fusion, LanguageModel, alignment, most_likely, search, stretches

WORST = 20  # rows of a table
AT_ONCE = 2_000  # frames that one search reads: its time and memory grow with the length of a transcript


@dataclass(frozen=True)
class Searching:
    """A search for transcripts.

    beams     prefixes that are kept after each frame
    language  a language model over words; None: the outputs of the model alone
    weight    of the language model
    bonus     for each word, in nats
    """

    beams: int = 16
    language: LanguageModel | None = None
    weight: float = 0.5
    bonus: float = 1.0

    def decoding(self, characters: Characters) -> Decoding:
        """The search over the labels of a vocabulary. Raises UnmaskError for less than one beam, and for a language
        model with a vocabulary without a space."""
        if self.beams < 1:
            raise UnmaskError(f"--beams must be 1 or more, not {self.beams}.")
        if self.language is None:
            return Decoding(self.beams)
        if characters.space_label is None:
            raise UnmaskError("The vocabulary of the model has no space between words: leave --lm out.")
        pieces = [piece.lower() if characters.lower else piece for piece in characters.pieces]
        fusion = Fusion(self.language, pieces, characters.space_label, self.weight, self.bonus)
        return Decoding(self.beams, fusion)


class Stretch(NamedTuple):
    """Frames of a recording, and the labels of the best transcript there."""

    frames: range
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Decoding:
    """How transcripts are chosen.

    beams   as in `Searching`; 1 without a language model: the most probable label of each frame, without a search
    fusion  the language model
    """

    beams: int = 1
    fusion: Fusion | None = None

    @property
    def shown(self) -> str:
        """A sentence for scores; empty without a search."""
        if self == Decoding():
            return ""
        language = f" and a language model of weight {self.fusion.weight:g}" if self.fusion else ""
        return f"Transcripts are found by a search with {plural(self.beams, 'beam')}{language}."

    def __call__(self, log_p_FC: np.ndarray, blank: int) -> tuple[Stretch, ...]:
        """The best transcript of each stretch of at most `AT_ONCE` frames."""
        found = []
        for frames in stretches(log_p_FC, blank, AT_ONCE):
            own_FC = log_p_FC[frames.start : frames.stop]
            if self.beams == 1 and self.fusion is None:
                labels = most_likely(own_FC, blank)
            else:
                labels = search(own_FC, blank, self.beams, self.fusion)[0].labels
            found.append(Stretch(frames, labels))
        return tuple(found)


@runtime_checkable
class Searched(Protocol):
    """A task whose answers are searched for."""

    def searching(self, search: Searching) -> Any:
        """The task with this search."""


def searched(task: Any, search: Searching) -> Any:
    """A task with a search. Raises UnmaskError for one whose answers are not searched for, and for None."""
    if not isinstance(task, Searched):
        raise UnmaskError(
            "Only models that write the transcripts of recordings search for them: leave --beams and --lm out."
        )
    return task.searching(search)


@dataclass(frozen=True)
class Spoken:
    """The answer to a recording.

    log_p_FC   log probabilities of the labels at each frame
    stretches  the best transcript, of frames that follow each other
    hop        seconds from one frame to the next
    """

    log_p_FC: np.ndarray
    stretches: tuple[Stretch, ...]
    hop: float

    @property
    def labels(self) -> tuple[int, ...]:
        """The best transcript."""
        return tuple(label for stretch in self.stretches for label in stretch.labels)

    def aligned(self, blank: int) -> Iterator[tuple[int, range]]:
        """Each label of the transcript, and its frames in the most probable alignment of its stretch."""
        for frames, labels in self.stretches:
            own_FC = self.log_p_FC[frames.start : frames.stop]
            for label, places in zip(labels, alignment(own_FC, labels, blank) if labels else (), strict=True):
                yield label, range(frames.start + places.start, frames.start + places.stop)

    def words(self, characters: Characters) -> list[dict[str, Any]]:
        """The words: {"word", "begin", "end", "probability"}: the seconds of the frames of its characters, and the
        geometric mean of their probabilities there."""
        found: list[dict[str, Any]] = []
        spelled = self.aligned(characters.blank_label)
        for is_space, group in groupby(spelled, key=lambda pair: pair[0] == characters.space_label):
            if is_space:
                continue
            word = list(group)
            begin, end = word[0][1].start * self.hop, word[-1][1].stop * self.hop
            log_p = np.concatenate([self.log_p_FC[places, label] for label, places in word])
            text = characters.text(label for label, _ in word)
            times = {"begin": round(begin, 3), "end": round(end, 3)}
            found.append({"word": text, **times, "probability": float(np.exp(log_p.mean()))})
        return found

    def letters(self, characters: Characters) -> list[dict[str, Any]]:
        """{"letter", "time", "probability"} of each label but spaces: the seconds of the frame of its alignment where
        it is most probable. Between these spikes, most frames are blank (Graves et al. 2006, figure 1)."""
        found = []
        for label, own in self.aligned(characters.blank_label):
            if label != characters.space_label:
                best = max(own, key=lambda frame: self.log_p_FC[frame, label])
                p = float(np.exp(self.log_p_FC[best, label]))
                time = round((best + 0.5) * self.hop, 4)
                found.append({"letter": characters.text([label]), "time": time, "probability": p})
        return found


def marked(reference: str, hypothesis: str) -> str:
    """A transcript with its errors in brackets: [right → wrong], [missing →], [→ inserted]."""
    words = []
    for one, other in metrics.align(reference.split(), hypothesis.split()):
        words.append(other if one == other and other else f"[{one or ''} → {other or ''}]".replace("  ", " "))
    return " ".join(words)


def tables_of(references: Sequence[str], hypotheses: Sequence[str], places: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Tables for a report: the rows with the most errors, and the most frequent errors."""
    found = [metrics.word_errors(one, other) for one, other in zip(references, hypotheses, strict=True)]
    order = sorted((i for i, errors in enumerate(found) if errors.count), key=lambda i: -found[i].rate)[:WORST]
    rows = [[places[i], found[i].rate, marked(references[i], hypotheses[i])] for i in order]
    pairs = Counter(
        pair
        for one, other in zip(references, hypotheses, strict=True)
        for pair in metrics.align(one.split(), other.split())
        if pair[0] != pair[1]
    )
    often = [[one or "", other or "", count] for (one, other), count in pairs.most_common(WORST)]
    tables = {
        "Recordings with the most errors": {"heads": ["recording", "wer", "transcript"], "rows": rows},
        "Most frequent errors": {"heads": ["reference", "answer", "number"], "rows": often},
    }
    return {title: table for title, table in tables.items() if table["rows"]}
