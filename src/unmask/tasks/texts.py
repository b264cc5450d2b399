"""TextTask: the base of tasks with one answer for a text or a pair of texts, at its [CLS]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask import huggingface
from unmask.data import collate
from unmask.data.labelled.rows import Row
from unmask.data.processor import Processor
from unmask.data.text.kinds import KINDS
from unmask.data.text.tokenizer import Tokenizer
from unmask.models.model import ModelConfig
from unmask.tasks.lengths import Long, frames
from unmask.tasks.rows import TaskOptions
from unmask.tasks.task import Encoded, Task
from unmask.types import Example


@dataclass(frozen=True, kw_only=True)
class TextOptions(TaskOptions):
    """Options of tasks on texts.

    long  texts that do not fit: truncate, head+tail, window-mean, window-max or error
    """

    long: Long = "truncate"


class TextTask(Task):
    """A task with one answer for a text or a pair, at its [CLS] (Devlin et al. 2018, section 4.1).

    long  treatment of texts that do not fit; windows are trained on separately, and the answer is the mean or the
          maximum of each output over the windows
    """

    single_or_pairs = True

    def __init__(self, long: Long = "truncate") -> None:
        self.long = long

    @classmethod
    def new(cls, config: ModelConfig, rows: Sequence[Row]) -> tuple[ModelConfig, Processor[Any]]:
        return new_of_texts(config, rows)

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        firsts = tokenizer.ids([row.text for row in rows])
        paired = [i for i, row in enumerate(rows) if row.pair is not None]
        seconds = dict(zip(paired, tokenizer.ids([rows[i].pair or "" for i in paired]), strict=True))
        examples: list[Example] = []
        owners: list[int] = []
        cut: list[int] = []
        split = 0
        for i, (row, first) in enumerate(zip(rows, firsts, strict=True)):
            framed = frames(tokenizer, first, seconds.get(i), length, self.long, row.place or f"Text {i + 1}")
            if len(framed) > 1:
                split += 1
            elif len(framed[0][0]) == length < len(tokenizer.join(first, seconds.get(i))[0]):
                cut.append(i)
            value = self.value(row)
            target = (np.zeros(len(value), np.int64), value)
            examples += [Example(tokens, segments, {self.name: target}) for tokens, segments in framed]
            owners += [i] * len(framed)
        return Encoded(examples, np.array(owners, np.int64), rows, length, cut=tuple(cut), split=split)

    def value(self, row: Row) -> np.ndarray:
        """The label of a row as the values of its target; 0 for a row without a label."""
        raise NotImplementedError

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Any:
        """[1, C]: the mean, or the maximum, of each output over the windows of a row."""
        found = np.concatenate(parts)
        if len(found) == 1:
            return found
        merged = found.max(0, keepdims=True) if self.long == "window-max" else found.mean(0, keepdims=True)
        return self.normalise(merged)

    def normalise(self, answer: np.ndarray) -> np.ndarray:
        """Make an answer [1, C] of the merged outputs of windows, such as probabilities that sum to 1."""
        return answer

    def explained(self, answers: list[Any], model: Any, encoded: Encoded, processor: Any) -> list[dict[str, Any]]:
        """An answer to a text that was read as one sequence has "looked": the sentences of the text with their weights,
        and their words with theirs. For models with attention to words and sentences alone."""
        return [
            {**answer, "looked": found} if (found := looked_at(row, own, model, processor)) else answer
            for answer, row, own in zip(
                answers, encoded.rows, (encoded.examples[part] for part in encoded.of_rows), strict=True
            )
        ]

    def settings(self) -> dict[str, Any]:
        return {} if self.long == "truncate" else {"long": self.long}


def new_of_texts(config: ModelConfig, rows: Sequence[Row]) -> tuple[ModelConfig, Processor[Any]]:
    """The sizes of a new model that reads texts, and its tokenizer, trained on the texts of the rows; the vocabulary of
    the sizes is the largest one. Raises UnmaskError for rows without words."""
    tokenizer = KINDS[config.token_kind]((text for row in rows for text in row.reads), config.vocabulary)
    return config.replace(vocabulary=tokenizer.size), huggingface.fitted(tokenizer, config)


def looked_at(row: Row, examples: Sequence[Example], model: Any, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """[{"text", "weight", "words": [{"word", "weight"}]}] for the sentences of a row; weights of sentences add up to 1,
    and those of the words of a sentence do. Empty for a model without such weights, a pair, and a text in windows."""
    if row.pair is not None or len(examples) > 1:
        return []
    looked = model.looked(collate.pad(examples, tokenizer.pad, multiple=1).to(model.device))
    if looked is None:
        return []
    encoding = tokenizer.encode(row.text, special=False)
    words_T, sentences_T = (x[0].float().tolist() for x in (looked.words, looked.sentences))
    found = list[dict[str, Any]]()
    last = -1  # index of the word that the piece before belongs to; -1: of none
    for (begin, end), word, own, whole in zip(
        encoding.offsets.tolist(), encoding.words, words_T, sentences_T, strict=False
    ):
        if word >= 0 and last < 0:
            found.append({"begin": begin, "weight": whole, "words": []})
        if word >= 0 and word != last:
            found[-1]["words"].append({"begin": begin, "weight": 0.0})
        if word >= 0:
            found[-1]["words"][-1]["weight"] += own
            found[-1]["end"] = found[-1]["words"][-1]["end"] = end
        last = word
    return [_named(row.text, one, "text", words=[_named(row.text, x, "word") for x in one["words"]]) for one in found]


def _named(text: str, part: dict[str, Any], name: str, **more: Any) -> dict[str, Any]:
    """A part of a text, which begins and ends at characters, with these characters in place of their numbers."""
    return {name: text[part["begin"] : part["end"]], "weight": part["weight"], **more}
