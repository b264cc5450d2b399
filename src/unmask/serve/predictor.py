"""Predictor: answers rows with the head that a model folder has."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask import huggingface
from unmask.config import read_json
from unmask.data import collate
from unmask.data.labelled.rows import Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.huggingface.hub import model_folder
from unmask.kernels.devices import placed
from unmask.kernels.processor import Precision, settle
from unmask.models.inference_encoder import inference_layout
from unmask.models.model import Model
from unmask.serve.answering import Answer, Answering
from unmask.serve.backends import Backend, with_backend
from unmask.serve.pretrained import Query, Targets, found_in
from unmask.tasks import TASKS, Task, answered, doubting, evaluating, task_found, task_of
from unmask.tasks.transcripts import Searching, searched

MOST_TOKENS = 512  # default length, for models without a limit, as long as the task has no longer one


class Predictor(Answering):
    """Answers texts, pairs of texts, sentences of words, questions and choices (`form` lists the accepted inputs).

    model      a folder, or what `huggingface.load` returned for it
    top        number of predictions for each masked token
    length     longest sequence, in tokens; None: the length of the task if it has one (a sentence encoder), else the
               most that the model reads, or `reach` for a model without a limit
    no_answer  threshold of question answering: the answer is "" if no answer scores higher than the best span by more
               than this; None: the threshold in the folder, and without one the model always answers
    search     the search for transcripts; None: the most probable label of each frame
    explain    whether answers say where the model looked, if it can (`Task.explained`)
    device     where the model runs
    precision  "bf16": all but the head multiplies in bfloat16, several times as fast on processors that support it;
               "fp16": the same in float16, on GPUs; "auto": bf16 on devices that are known to support it; "fp32": equal
               numbers on every device, up to rounding
    backend    "torch"; "onnx": the graph that `unmask export` wrote into the folder, by ONNX Runtime in float32;
               "auto": the faster of them for one text and for many, measured once and kept beside the graph; a path:
               a package of `unmask export --format aoti`, whose machine code is run

    A fine-tuned model answers as its task does (`Task.answer`), any other with its head of pre-training:

    fill-mask       {"masks": [[{"token", "probability"}, …] for each mask], "text": filled in (a pair: and "pair")}
    next sentence   {"follows": probability}, for a pair without a mask
    replaced words  {"tokens": [{"token", "probability" that it was replaced, "begin", "end"}]} without special tokens,
                    offsets in characters of the text; for a pair also "pair", the same for the second text

    The answer to a text that was cut has "cut": True. Safe to call from several threads. Raises UnmaskError for a
    folder without one of these heads, an empty text, and a text without a mask for a model that needs one.
    """

    def __init__(
        self,
        model: Path | str | Loaded,
        *,
        top: int = 5,
        length: int | None = None,
        no_answer: float | None = None,
        search: Searching | None = None,
        explain: bool = False,
        device: torch.device | str = "cpu",
        precision: Precision = "auto",
        backend: Backend | Path = "torch",
    ) -> None:
        model = model if isinstance(model, Loaded) else model_folder(model)
        loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        if top < 1:
            raise UnmaskError(f"The number of predictions must be at least 1, not {top}.")
        self.model: Model = placed(loaded.model, device)
        settled = settle(precision, self.model.device)
        layout = inference_layout(self.model, settled.precision)
        self.layout, self.settled = with_backend(backend, loaded, layout, settled)
        self._explain = explain
        self._owner = "The model" if loaded is model else model
        self._loaded = replace(loaded, model=self.model)
        heads = set(self.model.heads)
        kind = task_found(heads, loaded.settings)
        if kind is None and not found_in(heads):
            raise UnmaskError(_unanswered(loaded, self._owner))
        self.processor = (kind or Task).processor_of(loaded, self._owner)
        self.task: Task | None = None
        if kind is not None:
            self.task = task_of(self.model, loaded.labels, loaded.settings)
        if no_answer is not None:
            self.task = doubting(self.task, no_answer)
        if search is not None:
            self.task = searched(self.task, search)
        self.of_task = None if self.task is None else type(self.task)
        self.single = not isinstance(model, Loaded) and learned_single_texts(Path(model))
        if length is None and not isinstance(model, Loaded):
            length = reach(self.model, model)
        positions = self.model.positions or length or most_of(self.of_task)
        usual = None if self.task is None else self.task.length
        self.length = min(length or usual or positions, positions)
        self.pretrained = {
            name: kind(name, self.tokenizer, top=min(top, self.tokenizer.size), length=self.length)
            for name, kind in found_in(heads).items()
        }
        self._lock = threading.Lock()  # no thread may change training or evaluation mode during a forward pass

    def __repr__(self) -> str:
        what = self.kind or " and ".join(self.pretrained)
        labels = ", ".join((self.task.labels if self.task else ())[:6])
        size = f"{type(self.model.config).__name__}, {self.model.parameters_total:,} parameters"
        return f"<Predictor of {self._owner}: {what}{f' ({labels})' if labels else ''}; {size}>"

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of a model of text. Raises UnmaskError for a model that reads something else."""
        return self._loaded.require_tokenizer(self._owner)

    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        if not rows:
            return []
        self._check(rows)
        rows = [replace(row, label="", labels=(), tags=()) for row in rows]
        with self._lock, torch.inference_mode(), evaluating(self.model), evaluating(self.layout):
            found = self._pretrained(rows) if self.task is None else self._labelled(self.task, rows)
        return [{"id": row.id, **answer} if row.id else answer for row, answer in zip(rows, found, strict=True)]

    def read_lengths(self, rows: Sequence[Row]) -> list[int]:
        """Number of tokens that the model reads for each row. For texts: without special tokens; for other items: the
        places of all windows of the row."""
        if isinstance(self.processor, Tokenizer):
            return [sum(map(len, self.processor.ids(row.reads))) for row in rows]
        self._check(rows)
        assert self.task is not None
        encoded = self.task.encode(rows, self.processor, self.length)
        return [int(encoded.lengths[own].sum()) for own in encoded.of_rows]

    def _check(self, rows: Sequence[Row]) -> None:
        """Raises UnmaskError for rows that the task does not read."""
        wanted = Row if self.task is None else self.task.row_class
        other = next((row for row in rows if not isinstance(row, wanted)), None)
        if other is not None:
            place = other.place or "An input"
            raise UnmaskError(
                f"{place} cannot be read: this model reads rows of the type {wanted.__name__}, not texts."
            )

    def found(self, rows: Sequence[Row]) -> list[Any]:
        """The outputs of the task for each row, as arrays (`Task.answer_all`). Raises UnmaskError for a model without a
        task."""
        if self.task is None:
            raise UnmaskError("The model has no head for labelled rows, and it is not a sentence encoder.")
        encoded = self.task.encode(rows, self.processor, self.length)
        with self._lock, torch.inference_mode(), evaluating(self.model), evaluating(self.layout):
            return self.task.answer_all(self.layout, encoded, self.processor.pad)

    # -- heads for labelled rows

    def _labelled(self, task: Task, rows: Sequence[Row]) -> list[Answer]:
        encoded = task.encode(rows, self.processor, self.length)
        found = task.answer_all(self.layout, encoded, self.processor.pad)
        cut = frozenset(encoded.cut)
        answers = [task.answer(row, answer) for row, answer in zip(rows, found, strict=True)]
        if self._explain:
            answers = task.explained(answers, self.model, encoded, self.processor)
        return [{**answer, "cut": True} if i in cut else answer for i, answer in enumerate(answers)]

    # -- masked tokens, replaced tokens, sentence pairs

    def _pretrained(self, rows: Sequence[Row]) -> list[Answer]:
        queries = [self._query(row) for row in rows]
        chosen = [self._chosen(query, row.place) for query, row in zip(queries, rows, strict=True)]
        lengths = [len(query.tokens) for query in queries]

        def read(places: list[int]) -> list[Answer]:
            return self._answers([queries[i] for i in places], [chosen[i] for i in places])

        found = answered(read, lengths, self.model.device)
        return [{**answer, "cut": True} if one.cut else answer for one, answer in zip(queries, found, strict=True)]

    def _query(self, row: Row) -> Query:
        """A row as the model reads it. Raises UnmaskError if a mask is cut off."""
        texts = tuple(text for text in (row.text, row.pair) if text is not None)
        encodings = tuple(self.tokenizer.encode(text) for text in texts)
        first, second = (*(one.ids for one in encodings), None)[:2]
        assert first is not None
        whole, _ = self.tokenizer.join(first, second)
        tokens, segments = self.tokenizer.join(first, second, self.length)
        masks = np.flatnonzero(tokens == self.tokenizer.mask)
        if len(masks) < np.count_nonzero(whole == self.tokenizer.mask):
            mask = self.tokenizer.pieces([self.tokenizer.mask])[0]
            raise UnmaskError(
                f"{row.place} has {len(whole)} tokens, and a {mask} after the {self.length} that the model can read; "
                "shorten it."
            )
        return Query(texts, encodings, tokens, segments, masks, len(tokens) < len(whole))

    def _chosen(self, query: Query, place: str) -> tuple[str, Targets]:
        """The name of the head that answers, and its targets. Raises UnmaskError if no head answers."""
        for name, head in reversed(self.pretrained.items()):
            targets = head.targets(query)
            if targets is not None:
                return name, targets
        raise UnmaskError(next(iter(self.pretrained.values())).refusal(place, query.texts))

    def _answers(self, queries: list[Query], chosen: list[tuple[str, Targets]]) -> list[Answer]:
        """The answers to one batch of queries, which have similar lengths."""
        examples = [query.example(*head) for query, head in zip(queries, chosen, strict=True)]
        batch = collate.pad(examples, self.tokenizer.pad, multiple=1).to(self.model.device)
        hidden_BTD = self.layout(batch)
        width = batch.tokens.shape[1]
        found: list[Answer] = [{} for _ in queries]
        for name, target in batch.targets.items():
            rows_M = (target.places // width).cpu().numpy()
            answers_MC = self.layout.answer(name, hidden_BTD, target.places, batch).float()
            own = [i for i, (head, _) in enumerate(chosen) if head == name]  # the queries that this head answers
            asked = [(queries[i], chosen[i][1]) for i in own]
            for i, answer in self.pretrained[name].answers(asked, np.searchsorted(own, rows_M), answers_MC):
                found[own[i]] = answer
        return found


def run_of(folder: Path) -> Mapping[str, Any]:
    """The configuration of the run that made a folder; empty if it is not known."""
    config = read_json(folder / "run.json").get("config") if (folder / "run.json").is_file() else None
    return config if isinstance(config, Mapping) else {}


def length_of_run(folder: Path) -> int | None:
    """The longest sequence of the fine-tuning run that made a folder; None if it is not known."""
    rows = run_of(folder).get("rows")
    length = rows.get("length") if isinstance(rows, Mapping) else None
    return length if isinstance(length, int) else None


def learned_single_texts(folder: Path) -> bool:
    """Whether `results.json` says that the model was fine-tuned on single labelled texts, not pairs. False for folders
    from elsewhere and for older ones, which do not say it."""
    results = read_json(folder / "results.json") if (folder / "results.json").is_file() else {}
    task = TASKS.get(str(results.get("task")))
    return task is not None and task.single_or_pairs and results.get("pairs") is False


def reach(model: Model, folder: Path | str) -> int | None:
    """The longest sequence for a model without a limit: that of the run that made its folder, and at least `most_of`
    its task. None for a model with a limit."""
    if model.positions:
        return None
    return max(length_of_run(Path(folder)) or 0, most_of(task_found(list(model.heads), None)))


def most_of(task: type[Task] | None) -> int:
    """Default length for a model without a limit: MOST_TOKENS, or the usual length of a task with longer sequences."""
    return max(MOST_TOKENS, 0 if task is None else task.usual_length)


def _unanswered(loaded: Loaded[Model], owner: object) -> str:
    """What a model without a head that answers is, and what to do with it. Raises UnmaskError for one without a
    tokenizer that no task reads."""
    tasks = [name for name, task in TASKS.items() if task.items in loaded.model.config.offers]
    if tasks:
        items, folder = TASKS[tasks[0]].items, owner if isinstance(owner, Path | str) else "FOLDER"
        others = f" (or {', '.join(tasks[1:])})" if tasks[1:] else ""
        return (
            f"{owner} is a pre-trained model of {items}, which has learned no task yet: fine-tune it with unmask "
            f"finetune --model {folder} --train ROWS --out runs/mine --task {tasks[0]}{others}."
        )
    loaded.require_tokenizer(owner)
    if loaded.model.continues_prompt:
        return (
            "The model has no head that answers: it continues texts, so use `unmask generate`, or fine-tune it first."
        )
    return "The model has no head that answers: fine-tune it first, or use one with its mlm head."
