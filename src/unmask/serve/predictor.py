"""Predictor: texts in, answers out, by whatever head a model folder has."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask import huggingface
from unmask.data import collate
from unmask.data.rows import Row
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.tasks import Classification, Regression, Task, by_length, evaluating, task_of
from unmask.types import Example

Input = str | tuple[str, str] | Sequence[str]
Answer = dict[str, Any]

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
AT_ONCE = 64  # texts of a stream that are answered together


class Predictor:
    """Answers for texts, pairs of texts, or sentences of words.

    model   a folder, or one that `huggingface.load` opened
    top     answers to give for each hidden word
    length  longest sequence, in tokens; None: as long as the model can take

    What it answers depends on the model's head:

    classification  {"label", "probability", "scores": {label: probability}}
    regression      {"score"}
    tagging         {"words": [{"word", "tag", "probability", "begin", "end"}]}, offsets in characters of the text
    fill-mask       {"masks": [[{"token", "probability"}, …] for each mask], "text": filled in (a pair: and "pair")}
    next sentence   {"follows": probability}, for a pair without a mask

    A text that was cut has "cut": True. Safe to call from several threads. Raises UnmaskError for a folder without
    one of these heads, an empty text, and a text without a mask where one is needed.
    """

    def __init__(self, model: Path | str | Loaded, *, top: int = 5, length: int | None = None) -> None:
        loaded = model if isinstance(model, Loaded) else huggingface.load(model)
        if top < 1:
            raise UnmaskError(f"At least one answer must be asked for, not {top}.")
        self.model: Model = loaded.model
        self.tokenizer: Tokenizer = loaded.require_tokenizer("The model" if loaded is model else model)
        heads = set(self.model.heads)
        self.task: Task | None = None
        if heads & {"classification", "regression", "tagging"}:
            self.task = task_of(self.model, loaded.labels)
        elif not heads & {"mlm", "nsp", "sop"}:
            raise UnmaskError("The model has no head that answers: fine-tune it first, or take one with its mlm head.")
        self._order = next((name for name in ("nsp", "sop") if name in heads), None)
        positions = self.model.positions or 512
        self.length = min(length or positions, positions)
        self.top = min(top, self.tokenizer.size)
        self._lock = threading.Lock()  # a change between training and evaluation mode must not fall into a forward

    def __call__(self, inputs: Iterable[Input], *, first: int = 1) -> list[Answer]:
        """One answer for each input, in order; messages count the inputs from `first`."""
        given: list[Input] = [inputs] if isinstance(inputs, str) else list(inputs)
        for number, item in enumerate(given, first):
            _check(item, number)
        with self._lock, torch.inference_mode(), evaluating(self.model):
            if self.task is not None:
                return self._labelled(self.task, given, first)
            return self._pretrained(given, first)

    def stream(self, texts: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        """(text, answer) for lines of text, as they come; a tab separates the two texts of a pair.

        Lines are gathered, so that short ones are answered together; at most 64 wait.
        """
        source, first = iter(texts), 1
        while waiting := list(islice(source, AT_ONCE)):
            yield from self._answered(waiting, first)
            first += len(waiting)

    def _answered(self, texts: list[str], first: int) -> Iterator[tuple[str, Answer]]:
        tagging = self.task is not None and self.task.name == "tagging"
        inputs: list[Input] = []
        for text in texts:
            begin, tab, rest = text.partition("\t")
            inputs.append((begin, rest) if tab and not tagging else text)
        yield from zip(texts, self(inputs, first=first), strict=True)

    # -- classification, regression, tagging

    def _labelled(self, task: Task, given: list[Input], first: int) -> list[Answer]:
        if not given:
            return []
        if task.name == "tagging":
            return self._tagged(task, given)
        rows = []
        for number, item in enumerate(given, first):
            text, pair = _pair(item, number)
            rows.append(Row(text, pair))
        encoded = task.encode(rows, self.tokenizer, self.length)
        answers = task.answer_all(self.model, encoded, self.tokenizer.pad)
        return [_named(task, answer[0], i in encoded.cut) for i, answer in enumerate(answers)]

    def _tagged(self, task: Task, given: list[Input]) -> list[Answer]:
        sentences = []
        for item in given:
            if isinstance(item, str):
                sentences.append(split_words(item))
            else:
                words = list(item)
                sentences.append(list(zip(words, locate(words), strict=True)))
        rows = [Row(words=tuple(word for word, _ in sentence)) for sentence in sentences]
        encoded = task.encode(rows, self.tokenizer, self.length)
        answers = task.answer_all(self.model, encoded, self.tokenizer.pad)
        return [
            {"words": [_tagged_word(task, *place, p) for place, p in zip(sentence, answer, strict=True)]}
            for sentence, answer in zip(sentences, answers, strict=True)
        ]

    # -- masked words, next sentence

    def _pretrained(self, given: list[Input], first: int) -> list[Answer]:
        asked = [self._asked(item, number) for number, item in enumerate(given, first)]
        found: list[Answer] = [{}] * len(given)
        for places in by_length(np.array([len(one.example.tokens) for one in asked])):
            for i, answer in zip(places, self._answers([asked[i] for i in places]), strict=True):
                found[i] = {**answer, "cut": True} if asked[i].cut else answer
        return found

    def _asked(self, item: Input, number: int) -> _Asked:
        """An input with its masks, or the place of its [CLS], as the targets."""
        texts = tuple(text for text in _pair(item, number) if text is not None)
        first, second = (*(self.tokenizer.encode(text).ids for text in texts), None)[:2]
        assert first is not None
        whole, _ = self.tokenizer.join(first, second)
        tokens, segments = self.tokenizer.join(first, second, self.length)
        masks = np.flatnonzero(tokens == self.tokenizer.mask)
        wanted = np.count_nonzero(whole == self.tokenizer.mask)
        mask = self.tokenizer.pieces([self.tokenizer.mask])[0]
        if len(masks) < wanted:
            raise UnmaskError(
                f"Text {number} has {len(whole)} tokens and a {mask} beyond the {self.length} that the model can take; "
                "shorten it."
            )
        if wanted and "mlm" in self.model.heads:
            targets = {"mlm": (masks, np.zeros(wanted, np.int64))}
        elif len(texts) == 2 and not wanted and self._order is not None:
            targets = {self._order: (np.zeros(1, np.int64), np.zeros(1, np.int64))}
        elif "mlm" in self.model.heads:
            raise UnmaskError(f"Text {number} has no {mask}: put one where the model is to guess a word.")
        else:
            raise UnmaskError(
                f"Text {number} must be a pair without {mask}: the model says whether one follows the other."
            )
        return _Asked(texts, Example(tokens, segments, targets), len(tokens) < len(whole))

    def _answers(self, asked: list[_Asked]) -> list[Answer]:
        """The answers to some inputs of about one length."""
        batch = collate.pad([one.example for one in asked], self.tokenizer.pad, multiple=1).to(self.model.device)
        hidden_BTD = self.model(batch)
        width = batch.tokens.shape[1]
        found: list[Answer] = [{} for _ in asked]
        for name, target in batch.targets.items():
            rows = (target.places // width).cpu().numpy()
            logits = self.model.answer(name, hidden_BTD, target.places).float()
            if name == "mlm":
                probabilities, ids = self._likeliest(logits)
                for i in np.unique(rows):
                    found[i] = self._filled(asked[i].texts, ids[rows == i], probabilities[rows == i])
            else:
                for i, (follows, _) in zip(rows, logits.softmax(-1).tolist(), strict=True):
                    found[i] = {"follows": follows}
        return found

    def _likeliest(self, logits_MV: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and ids [M, top] of the best tokens, special ones left out; a model's vocabulary may be padded
        beyond the tokenizer's."""
        probabilities_MV = logits_MV.softmax(-1)
        probabilities_MV[:, sorted(self.tokenizer.specials)] = 0.0
        best = probabilities_MV[:, : self.tokenizer.size].topk(self.top, dim=-1)
        return best.values.cpu().numpy(), best.indices.cpu().numpy()

    def _filled(self, texts: tuple[str, ...], ids: np.ndarray, probabilities: np.ndarray) -> Answer:
        """Guesses for each mask [top], and the texts with the first guesses in the place of the masks."""
        masks = [
            [{"token": self._name(i), "probability": float(p)} for i, p in zip(row, ps, strict=True)]
            for row, ps in zip(ids, probabilities, strict=True)
        ]
        mask = self.tokenizer.pieces([self.tokenizer.mask])[0]
        guesses = iter(masks)
        filled = []
        for text in texts:
            first, *rest = text.split(mask)
            for part in rest:
                guess = str(next(guesses, [{"token": mask}])[0]["token"])
                # A piece that goes on with a word leaves no space before it.
                first = first.rstrip() + guess.removeprefix("##") if guess.startswith("##") else first + guess
                first += part
            filled.append(first)
        return {"masks": masks, "text": filled[0], **({"pair": filled[1]} if len(filled) == 2 else {})}

    def _name(self, token: int) -> str:
        return self.tokenizer.decode([token]).strip() or self.tokenizer.pieces([token])[0]


@dataclass(frozen=True)
class _Asked:
    """One input of a pre-trained model."""

    texts: tuple[str, ...]
    example: Example
    cut: bool


def render_answer(text: str, answer: Mapping[str, Any]) -> str:
    """An answer as a person reads it on a terminal."""
    cut = "  (the text was cut)" if answer.get("cut") else ""
    if "label" in answer:
        return f"{answer['label']}  {answer['probability']:.3f}  {text}{cut}"
    if "score" in answer:
        return f"{answer['score']:.3f}  {text}{cut}"
    if "follows" in answer:
        return f"follows  {answer['follows']:.3f}  {text}{cut}"
    if "words" in answer:
        return "\n".join(f"{word['word']}\t{word['tag']}\t{word['probability']:.3f}" for word in answer["words"]) + "\n"
    lines = [text + cut]
    for number, guesses in enumerate(answer["masks"], 1):
        head = f"  {number}: " if len(answer["masks"]) > 1 else "  "
        lines.append(head + ", ".join(f"{guess['token']} {guess['probability']:.3f}" for guess in guesses))
    filled = "\t".join(answer[name] for name in ("text", "pair") if name in answer)
    return "\n".join([*lines, f"  {filled}"])


def _named(task: Task, answer: np.ndarray, cut: bool) -> Answer:
    """The answer [C] to one text by the names of the labels."""
    note = {"cut": True} if cut else {}
    if isinstance(task, Regression):
        return {"score": float(answer[0]), **note}
    assert isinstance(task, Classification)
    best = int(answer.argmax())
    scores = {label: float(p) for label, p in zip(task.labels, answer, strict=True)}
    return {"label": task.labels[best], "probability": float(answer[best]), "scores": scores, **note}


def _tagged_word(task: Task, word: str, place: tuple[int, int], probabilities: np.ndarray) -> Answer:
    best = int(probabilities.argmax())
    fact = {"word": word, "tag": task.labels[best], "probability": float(probabilities[best])}
    return {**fact, "begin": place[0], "end": place[1]}


def split_words(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Words and single punctuation marks of a text, each with its begin and end in characters."""
    return [(match.group(), match.span()) for match in _WORD.finditer(text)]


def locate(words: Sequence[str]) -> list[tuple[int, int]]:
    """Begin and end of each word in the text that has one space between them."""
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    return [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]


def _check(item: Input, number: int) -> None:
    parts: list[str] = list(item) if isinstance(item, (list, tuple)) else [item]  # type: ignore[list-item]
    if not parts or not all(isinstance(part, str) for part in parts):
        raise UnmaskError(f"Text {number} must be a string, a pair of strings, or for tagging a list of words.")
    if not any(part.strip() for part in parts):
        raise UnmaskError(f"Text {number} is empty.")


def _pair(item: Input, number: int) -> tuple[str, str | None]:
    if isinstance(item, str):
        return item, None
    if len(item) != 2:
        raise UnmaskError(f"Text {number} has {len(item)} parts; a pair has two.")
    return item[0], item[1]
