"""Speech recognition: the transcript of a recording, by connectionist temporal classification.

Shapes: B rows, T places of a row, N recordings, M frames of all, F frames of one, S labels of a transcript, C labels
and the blank.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask import metrics
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row, listed
from unmask.data.recordings import characters as vocabularies
from unmask.data.recordings import synthetic
from unmask.data.recordings.characters import Characters
from unmask.data.recordings.examples import RecordingExamples
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording, Wanted
from unmask.data.recordings.spectrogram import picture_of
from unmask.errors import UnmaskError, plural
from unmask.models.model import Model
from unmask.objectives.ctc import ctc, frames_needed
from unmask.tasks.batching import sequence_of
from unmask.tasks.encoded import Encoded
from unmask.tasks.labels import SHOWN as EXAMPLES
from unmask.tasks.labels import example
from unmask.tasks.lengths import windows
from unmask.tasks.recording_references import nearest_by_cepstra
from unmask.tasks.recording_training import Augmenting
from unmask.tasks.recordings import RecordingRows, RecordingTask
from unmask.tasks.rows import Rows, column
from unmask.tasks.stand_in import StandIn
from unmask.tasks.task import Say, Score, Task
from unmask.tasks.transcripts import Decoding, Searching, Spoken, tables_of
from unmask.types import Batch, Head, Loss

SHOWN = 40  # characters in a sentence
CELLS = 1 << 24  # most frames times characters of a recording whose loss is computed
SILENT = 0.9  # share of missing words from which a model writes almost nothing


@dataclass(frozen=True, kw_only=True)
class TranscriptRows(RecordingRows):
    """Recordings with a transcript: a table of files or bytes.

    text  column of a table that holds the transcript
    """

    text: str | None = column()

    WANTED: ClassVar[Wanted] = Wanted(needs="text")


@dataclass(frozen=True, kw_only=True)
class RecognitionOptions(Augmenting):
    """Options for the training of speech recognition.

    cased        write capitals; else transcripts are read in lower case
    punctuation  write punctuation, besides apostrophes
    vocabulary   folder whose vocab.json is used, such as that of the model, to keep its head; None: the characters of
                 the training transcripts
    """

    cased: bool = False
    punctuation: bool = False
    vocabulary: Path | None = None

    def check(self) -> None:
        super().check()
        if self.vocabulary is not None and (self.cased or self.punctuation):
            raise UnmaskError("--vocabulary has its own characters: leave --cased and --punctuation out.")

    def characters(self, texts: Sequence[str]) -> Characters:
        """The labels of the training transcripts. Raises UnmaskError for a folder without a vocabulary."""
        self.check()
        if self.vocabulary is None:
            return Characters.learned(texts, cased=self.cased, punctuation=self.punctuation)
        found = Characters.load(self.vocabulary)
        if found is None:
            raise UnmaskError(f"{self.vocabulary} has no {vocabularies.VOCABULARY}: leave --vocabulary out.")
        return found


class SpeechRecognition(RecordingTask):
    """Write the transcript of a recording: connectionist temporal classification over characters (Graves et al. 2006),
    summed over the frames of each recording.

    labels      the pieces of the vocabulary, in the order of the outputs; blank, space, unknown, lower as in
                `Characters`
    augmenting  changes of the training recordings
    decoding    how the answers are chosen; at first, the most probable label of each frame
    """

    task_name, name = "speech-recognition", "ctc"
    also_called = ("asr",)
    rows_class: ClassVar[type[Rows]] = TranscriptRows
    options_class = RecognitionOptions
    metric = "wer"
    rate_shares = (2.0, 0.1)  # small models learned for minutes, and must change much (docs/speech_recognition.md)
    panel, gives = "transcribe", "transcripts with the times of words"
    pipeline = "automatic-speech-recognition"
    rows_are = "recordings with a transcript"
    reference = "the most frequent transcript, or no words"
    references_are = "the transcript of the training recording with the nearest cepstra"

    def __init__(
        self,
        labels: Sequence[str],
        *,
        blank: str = vocabularies.BLANK,
        space: str = vocabularies.SPACE,
        unknown: str = vocabularies.UNKNOWN,
        lower: bool = False,
        augmenting: Augmenting | None = None,
    ) -> None:
        self.labels = tuple(labels)
        self.characters = Characters(self.labels, blank, space, unknown, lower)
        self.heads: Mapping[str, Head] = {self.name: Head("token", len(self.labels))}
        self.augmenting = augmenting or Augmenting()
        self.decoding = Decoding()

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        characters = options.characters([row.text for row in sets["train"]])
        task = cls(characters.pieces, **_settings(characters), augmenting=options)
        single = [piece for piece in characters.pieces if len(piece) == 1 and piece != characters.space]
        shown = " ".join(single[:SHOWN]) + (" ..." if len(single) > SHOWN else "")
        say(f"The vocabulary has {plural(len(single), 'character')}: {shown}")
        for name, rows in sets.items():
            say((sentence := task._strange(rows.rows)) and f"{name}: {sentence}")
        return task

    @classmethod
    def stand_in(cls, config: Any) -> StandIn:
        rate = cls.new_processor(config).rate
        rows = {split: f"sentences-{split}.tsv" for split in ("train", "dev", "test")}
        return StandIn("sentences that are synthesised", f"spoken-{rate}", partial(synthetic.write, rate=rate), rows)

    def _strange(self, rows: Sequence[Row]) -> str:
        """A sentence on characters that have no label; empty if there are none."""
        found = self.characters.strange(row.text for row in rows)
        if not found:
            return ""
        shown = ", ".join(f"{c} {count:,} times" for c, count in found.most_common(SHOWN))
        return f"Characters that are not in the vocabulary, so that the model cannot write them: {shown}."

    def settings(self) -> dict[str, Any]:
        return _settings(self.characters)

    # -- rows

    def target(self, row: Recording) -> tuple[np.ndarray, ...]:
        """The labels [S] of the transcript, a sequence at the first place."""
        labels = self.characters.labels(row.text)
        return np.zeros(1, np.int64), labels, np.array([len(labels)])

    def windows(self, recording: Recording, processor: RecordingProcessor, length: int) -> Sequence[Recording]:
        """Windows of `length` frames, which overlap."""
        frames, rate, hop = processor.frames(recording.count(processor.rate)), processor.rate, processor.hop
        if frames <= length:
            return (recording,)
        count = processor.samples(length)
        return [recording.part(begin * hop, count, rate) for begin, _, _ in windows(frames, length)]

    def encode(self, rows: Sequence[Row], processor: RecordingProcessor, length: int) -> Encoded:
        encoded = super().encode(rows, processor, length)
        return replace(encoded, split=int((np.bincount(encoded.owners) > 1).sum()))

    def for_training(self, encoded: Encoded, processor: RecordingProcessor) -> Encoded:
        """Changed recordings, without those that are too long for one window, or too short for their transcript.

        Raises UnmaskError if no row remains.
        """
        examples, own = encoded.examples, encoded.of_rows
        assert isinstance(examples, RecordingExamples)
        firsts = [windows.start for windows in own]
        needed = np.array([frames_needed(examples.target(first)[1]) for first in firsts])
        fastest = np.floor(examples.lengths[firsts] / (1 + self.augmenting.speed)) - (self.augmenting.speed > 0)
        long = {i for i, windows in enumerate(own) if windows.stop - windows.start > 1}
        short = set(np.flatnonzero(needed > fastest).tolist())
        kept = [i for i in range(len(own)) if i not in long | short]
        places = [row.place for row in encoded.rows]
        reasons = {
            f"longer than {encoded.length:,} frames": sorted(long),
            "with a transcript that needs more frames than there are": sorted(short - long),
        }
        notes = [
            f"Left out: {plural(len(own), 'recording')} {why} ({listed([places[i] for i in own], 3)})."
            for why, own in reasons.items()
            if own
        ]
        if not kept:
            raise UnmaskError(f"No recording can be trained on. {' '.join(notes)}")
        of_kept = examples.take([firsts[i] for i in kept])
        changed = replace(encoded, examples=of_kept, owners=np.arange(len(kept)), split=0, notes=tuple(notes))
        collate = self.augmenting.training(processor, round(encoded.length * (1 + self.augmenting.speed)) + 1)
        return replace(changed, rows=[encoded.rows[i] for i in kept], collate=collate)

    # -- the model

    def places(self, batch: Batch) -> Tensor:
        """All frames [M]."""
        if batch.documents is None:
            return torch.arange(batch.tokens.numel(), device=batch.tokens.device)
        return (batch.documents.flatten() > 0).nonzero().squeeze(1)

    def squash(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """-log p of the transcripts in nats, summed; the count is that of the recordings."""
        target, places_M = batch.targets[self.name], self.places(batch)
        logits_MC = model.answer(self.name, hidden_BTD, places_M, batch).float()
        if target.lengths is None:  # of a batch without targets
            return Loss(logits_MC.sum() * 0, 0)
        # Packed recordings are not in the order of the examples, but the frames of each are contiguous.
        _, frames_N = sequence_of(batch, places_M).unique_consecutive(return_counts=True)
        losses_N = ctc(logits_MC.log_softmax(-1), frames_N, target.values, target.lengths, self.characters.blank_label)
        return Loss(losses_N.sum(), len(frames_N))

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Spoken:
        """The answer to a recording. Of windows, each frame is taken from the one where it is further inside."""
        examples, recording = encoded.examples, encoded.rows[row]
        assert isinstance(examples, RecordingExamples)
        assert isinstance(recording, Recording)
        processor = examples.processor
        if len(parts) > 1:
            ranges = windows(processor.frames(recording.count(processor.rate)), encoded.length)
            parts = [part[low - begin : high - begin] for part, (begin, low, high) in zip(parts, ranges, strict=True)]
        log_p_FC = np.concatenate(parts)
        found = self.decoding(log_p_FC, self.characters.blank_label)
        return Spoken(log_p_FC, found, processor.hop / processor.rate)

    def searching(self, search: Searching) -> SpeechRecognition:
        """The task with another search for its answers."""
        other = copy.copy(self)
        other.decoding = search.decoding(self.characters)
        return other

    # -- answers

    def text(self, answer: Spoken) -> str:
        """The transcript of an answer, with one space between words."""
        return " ".join(self.characters.text(answer.labels).split())

    def _texts(self, answers: Sequence[Spoken], rows: Sequence[Row]) -> tuple[list[str], list[str]]:
        """The answers, and the transcripts of the rows, both normalised."""
        normalised = self.characters.normalised
        return [normalised(self.text(answer)) for answer in answers], [normalised(row.text) for row in rows]

    def metrics(self, answers: Sequence[Spoken], rows: Sequence[Row]) -> dict[str, float]:
        """Error rates (`metrics.of_transcripts`); `loss` is the mean over the transcripts that fit into the frames, and
        that are not too long for its memory."""
        found = metrics.of_transcripts(*self._texts(answers, rows))
        pairs = [pair for pair in zip(answers, rows, strict=True) if len(pair[0].log_p_FC) * len(pair[1].text) <= CELLS]
        losses = np.array([self._loss(answer, row) for answer, row in pairs])
        fitting = losses[np.isfinite(losses)]
        return {**found, "loss": float(fitting.mean()) if len(fitting) else 0.0}

    def _loss(self, answer: Spoken, row: Row) -> float:
        labels, log_p_FC = torch.from_numpy(self.characters.labels(row.text)), torch.from_numpy(answer.log_p_FC)
        sizes = torch.tensor([len(log_p_FC)]), labels, torch.tensor([len(labels)])
        return float(ctc(log_p_FC, *sizes, self.characters.blank_label))

    def tables(self, answers: Sequence[Spoken], rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        hypotheses, references = self._texts(answers, rows)
        return tables_of(references, hypotheses, [row.place for row in rows])

    def examples(self, answers: Sequence[Spoken], rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Spectrograms with the most confident mistakes, then with correct transcripts, EXAMPLES of each at most. The
        probability is the geometric mean of those of the most probable labels of the frames."""
        sure_N = np.array([np.exp(answer.log_p_FC.max(1).mean()) for answer in answers])
        texts = list(zip(*self._texts(answers, rows), strict=True))
        order = np.argsort(-sure_N, kind="stable").tolist()
        wrong, right = ([i for i in order if (texts[i][0] == texts[i][1]) is same][:EXAMPLES] for same in (False, True))
        shown = []
        for i in (*wrong, *right):
            row, (hypothesis, reference) = rows[i], texts[i]
            assert isinstance(row, Recording)
            shown.append(example(row, reference, hypothesis, float(sure_N[i]), picture_of(row)))
        return shown

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        normalised = self.characters.normalised
        text, count = Counter(normalised(row.text) for row in train).most_common(1)[0]
        constant = text if count > 1 else ""
        return metrics.of_transcripts([constant] * len(rows), [normalised(row.text) for row in rows])

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        def learn() -> Score:
            nearest, normalised = nearest_by_cepstra(train), self.characters.normalised
            return lambda rows: metrics.of_transcripts(
                [normalised(row.text) for row in nearest(rows)], [normalised(row.text) for row in rows]
            )

        return {"nearest": learn}

    def advice(self, scores: Mapping[str, float]) -> str:
        if scores["deletions"] < SILENT:
            return ""
        return (
            "The model writes almost nothing, as at the beginning of training, when every frame is most likely blank: "
            "train it longer, or at another learning rate."
        )

    @property
    def notice(self) -> str:
        return self.decoding.shown

    def check_teachable(self) -> None:
        raise UnmaskError(f"{self.task_name} cannot be learned from a teacher: frames have no labels of their own.")

    def answer(self, row: Row, found: Spoken) -> dict[str, Any]:
        """{"text", "words": [{"word", "begin", "end", "probability"}, ...]}, with seconds."""
        return {"text": self.text(found), "words": found.words(self.characters)}

    def along(self, found: Spoken) -> dict[str, list[dict[str, Any]]]:
        return {"words": found.words(self.characters), "letters": found.letters(self.characters)}

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return f"{answer['text']}\t{text}"


def _settings(characters: Characters) -> dict[str, Any]:
    names = ("blank", "space", "unknown", "lower")
    return {name: getattr(characters, name) for name in names}
