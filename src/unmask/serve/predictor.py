"""Predictor: rows in, answers out, by whatever head a model folder has."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask import huggingface
from unmask.config import read_json
from unmask.data import collate
from unmask.data.rows import Row
from unmask.data.tokenizer import Encoding, Tokenizer
from unmask.errors import UnmaskError
from unmask.hub import model_folder
from unmask.huggingface import Loaded
from unmask.kernels.devices import placed
from unmask.kernels.processor import Precision, settle
from unmask.models.inference_encoder import inference_layout
from unmask.models.model import Model
from unmask.serve.answering import Answer, Answering
from unmask.tasks import TASKS, Task, answered, doubting, evaluating, task_found, task_of
from unmask.types import Example

PRETRAINED = ("mlm", "nsp", "sop", "rtd")  # heads of pre-training that answer
MOST_TOKENS = 512  # of a text, where nobody says how long it may be and the model could take more


class Predictor(Answering):
    """Answers for texts, pairs of texts, sentences of words, questions and choices (`form` lists what may be asked).

    model      a folder, or one that `huggingface.load` opened
    top        answers to give for each hidden word
    length     longest sequence, in tokens; None: that of a sentence encoder, else as long as the model can take, or
               `reach` where it knows no end
    no_answer  threshold of question answering: "" is answered where no answer scores higher than the best span by more
               than this; None: as the folder says, which for those of other makers is never
    device     where the model runs
    precision  "bf16": what is not its head multiplies in bfloat16, several times as fast where the processor has it;
               "auto": where the device is known to have it; "fp32": the same numbers on every device, up to rounding

    A model that was fine-tuned answers as its task does (`Task.answer`), any other by its head of pre-training:

    fill-mask       {"masks": [[{"token", "probability"}, …] for each mask], "text": filled in (a pair: and "pair")}
    next sentence   {"follows": probability}, for a pair without a mask
    replaced words  {"tokens": [{"token", "probability" that it was replaced, "begin", "end"}]} without special tokens,
                    offsets in characters of the text; of a pair also "pair", the same of the second text

    A text that was cut has "cut": True. Safe to call from several threads. Raises UnmaskError for a folder without
    one of these heads, an empty text, and a text without a mask where one is needed.
    """

    def __init__(
        self,
        model: Path | str | Loaded,
        *,
        top: int = 5,
        length: int | None = None,
        no_answer: float | None = None,
        device: torch.device | str = "cpu",
        precision: Precision = "auto",
    ) -> None:
        model = model if isinstance(model, Loaded) else model_folder(model)
        loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        if top < 1:
            raise UnmaskError(f"At least one answer must be asked for, not {top}.")
        self.model: Model = placed(loaded.model, device)
        self.settled = settle(precision, self.model.device)
        self.layout = inference_layout(self.model, self.settled.precision)
        self._owner = "The model" if loaded is model else model
        self._loaded = replace(loaded, model=self.model)
        heads = set(self.model.heads)
        kind = task_found(heads, loaded.settings)
        self.processor = (kind or Task).processor_of(loaded, self._owner)
        self.task: Task | None = None
        if kind is not None:
            self.task = task_of(self.model, loaded.labels, loaded.settings)
        elif not heads & set(PRETRAINED):
            raise UnmaskError(f"The model has no head that answers: {_instead(heads)}.")
        if no_answer is not None:
            self.task = doubting(self.task, no_answer)
        self.of_task = None if self.task is None else type(self.task)
        self.single = not isinstance(model, Loaded) and learned_single_texts(Path(model))
        self._order = next((name for name in ("nsp", "sop") if name in heads), None)
        if length is None and not isinstance(model, Loaded):
            length = reach(self.model, model)
        positions = self.model.positions or length or MOST_TOKENS
        usual = None if self.task is None else self.task.length
        self.length = min(length or usual or positions, positions)
        self.top = top if loaded.tokenizer is None else min(top, loaded.tokenizer.size)
        self._lock = threading.Lock()  # a change between training and evaluation mode must not fall into a forward

    @property
    def tokenizer(self) -> Tokenizer:
        """What a model of text reads by. Raises UnmaskError for a model that reads something else."""
        return self._loaded.require_tokenizer(self._owner)

    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        if not rows:
            return []
        rows = [replace(row, label="", labels=(), tags=()) for row in rows]
        with self._lock, torch.inference_mode(), evaluating(self.model), evaluating(self.layout):
            found = self._pretrained(rows) if self.task is None else self._labelled(self.task, rows)
        return [{"id": row.id, **answer} if row.id else answer for row, answer in zip(rows, found, strict=True)]

    def found(self, rows: Sequence[Row]) -> list[Any]:
        """What the task finds in each row, as arrays (`Task.answer_all`), before it is put into words."""
        if self.task is None:
            raise UnmaskError("The model has no head for labelled rows, nor is it a sentence encoder.")
        encoded = self.task.encode(rows, self.processor, self.length)
        with self._lock, torch.inference_mode(), evaluating(self.model), evaluating(self.layout):
            return self.task.answer_all(self.layout, encoded, self.processor.pad)

    # -- heads for labelled rows

    def _labelled(self, task: Task, rows: Sequence[Row]) -> list[Answer]:
        encoded = task.encode(rows, self.processor, self.length)
        found = task.answer_all(self.layout, encoded, self.processor.pad)
        cut = frozenset(encoded.cut)
        answers = [task.answer(row, answer) for row, answer in zip(rows, found, strict=True)]
        return [{**answer, "cut": True} if i in cut else answer for i, answer in enumerate(answers)]

    # -- masked words, next sentence, replaced words

    def _pretrained(self, rows: Sequence[Row]) -> list[Answer]:
        asked = [self._asked(row) for row in rows]
        lengths = [len(one.example.tokens) for one in asked]
        found = answered(lambda places: self._answers([asked[i] for i in places]), lengths, self.model.device)
        return [{**answer, "cut": True} if one.cut else answer for one, answer in zip(asked, found, strict=True)]

    def _asked(self, row: Row) -> _Asked:
        """A row with its masks, the place of its [CLS], or all tokens of its texts as the targets."""
        texts = tuple(text for text in (row.text, row.pair) if text is not None)
        encodings = tuple(self.tokenizer.encode(text) for text in texts)
        first, second = (*(one.ids for one in encodings), None)[:2]
        assert first is not None
        whole, _ = self.tokenizer.join(first, second)
        tokens, segments = self.tokenizer.join(first, second, self.length)
        masks = np.flatnonzero(tokens == self.tokenizer.mask)
        wanted = np.count_nonzero(whole == self.tokenizer.mask)
        mask = self.tokenizer.pieces([self.tokenizer.mask])[0]
        if len(masks) < wanted:
            raise UnmaskError(
                f"{row.place} has {len(whole)} tokens and a {mask} beyond the {self.length} that the model can take; "
                "shorten it."
            )
        if wanted and "mlm" in self.model.heads:
            targets = {"mlm": (masks, np.zeros(wanted, np.int64))}
        elif len(texts) == 2 and not wanted and self._order is not None:
            targets = {self._order: (np.zeros(1, np.int64), np.zeros(1, np.int64))}
        elif "rtd" in self.model.heads and wanted:
            raise UnmaskError(
                f"{row.place} has a {mask}, and this model tells replaced words: give a whole text, or ask for hidden "
                "words in the folder `generator` inside it."
            )
        elif "rtd" in self.model.heads:
            # Below all ids stand the numbers of the texts, so that their tokens are told from special ones.
            numbers = [np.full(len(one), number - len(texts)) for number, one in enumerate(encodings)]
            joined, _ = self.tokenizer.join(numbers[0], numbers[1] if second is not None else None, self.length)
            places = np.flatnonzero(joined < 0)
            targets = {"rtd": (places, joined[places] + len(texts))}
        elif "mlm" in self.model.heads:
            raise UnmaskError(f"{row.place} has no {mask}: put one where the model is to guess a word.")
        else:
            raise UnmaskError(
                f"{row.place} must be a pair without {mask}: the model says whether one follows the other."
            )
        return _Asked(texts, encodings, Example(tokens, segments, targets), len(tokens) < len(whole))

    def _answers(self, asked: list[_Asked]) -> list[Answer]:
        """The answers to some inputs of about one length."""
        batch = collate.pad([one.example for one in asked], self.tokenizer.pad, multiple=1).to(self.model.device)
        hidden_BTD = self.layout(batch)
        width = batch.tokens.shape[1]
        found: list[Answer] = [{} for _ in asked]
        for name, target in batch.targets.items():
            rows = (target.places // width).cpu().numpy()
            logits = self.layout.answer(name, hidden_BTD, target.places, batch).float()
            if name == "mlm":
                probabilities, ids = self._likeliest(logits)
                for i in np.unique(rows):
                    found[i] = self._filled(asked[i].texts, ids[rows == i], probabilities[rows == i])
            elif name == "rtd":
                judged = logits.squeeze(-1).sigmoid().cpu().numpy()
                for i, one in enumerate(asked):
                    if name in one.example.targets:
                        found[i] = self._judged(one, judged[rows == i])
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

    def _judged(self, asked: _Asked, probabilities_M: np.ndarray) -> Answer:
        """How likely each token that was read was put there by another model."""
        _, numbers = asked.example.targets["rtd"]
        found = [
            [
                {"token": piece, "probability": p, "begin": begin, "end": end}
                for piece, p, (begin, end) in zip(
                    self.tokenizer.pieces(one.ids),
                    probabilities_M[numbers == number].tolist(),
                    one.offsets.tolist(),
                    strict=False,  # the end of a text that was cut was not read
                )
            ]
            for number, one in enumerate(asked.encodings)
        ]
        return dict(zip(("tokens", "pair"), found, strict=False))

    def _name(self, token: int) -> str:
        return self.tokenizer.decode([token]).strip() or self.tokenizer.pieces([token])[0]


@dataclass(frozen=True)
class _Asked:
    """One input of a pre-trained model."""

    texts: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    example: Example
    cut: bool


def run_of(folder: Path) -> Mapping[str, Any]:
    """The configuration of the run that made a folder; empty where none is known."""
    config = read_json(folder / "run.json").get("config") if (folder / "run.json").is_file() else None
    return config if isinstance(config, Mapping) else {}


def length_of_run(folder: Path) -> int | None:
    """The longest sequence that the folder was fine-tuned with, where it is known."""
    rows = run_of(folder).get("rows")
    length = rows.get("length") if isinstance(rows, Mapping) else None
    return length if isinstance(length, int) else None


def learned_single_texts(folder: Path) -> bool:
    """Whether the folder is known to be fine-tuned on labelled texts that were no pairs; nothing is known of those of
    other makers, nor of older ones."""
    results = read_json(folder / "results.json") if (folder / "results.json").is_file() else {}
    task = TASKS.get(str(results.get("task")))
    return task is not None and task.single_or_pairs and results.get("pairs") is False


def reach(model: Model, folder: Path | str) -> int | None:
    """The longest sequence for the model of a folder that knows no end: as in the run that made it, and 512 tokens at
    least. None where the model knows its end."""
    return None if model.positions else max(length_of_run(Path(folder)) or 0, MOST_TOKENS)


def _instead(heads: Collection[str]) -> str:
    """What to do with a model of which no head answers."""
    if "next" in heads:
        return "it goes on with texts, so ask it by `unmask generate`, or fine-tune it first"
    return "fine-tune it first, or take one with its mlm head"
