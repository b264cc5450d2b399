"""Task: an objective that can also answer. It encodes labelled rows, answers them, and scores the answers.

Shapes: N examples, M targets, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_type_hints

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data import collate
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.glue import Benchmark
from unmask.data.labelled.rows import Row
from unmask.data.processor import Processor
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.model import Model, ModelConfig
from unmask.objectives.objective import Objective
from unmask.tasks.batching import answered
from unmask.tasks.encoded import Encoded
from unmask.tasks.forms import Form
from unmask.tasks.prompting import Prompting
from unmask.tasks.rows import Rows, TaskOptions
from unmask.tasks.written import Written
from unmask.types import Batch

Say = Callable[[str], None]
Score = Callable[[Sequence[Row]], Mapping[str, float]]
"""Rows -> metrics."""
Outcomes = Literal["one", "several", "score"]


class Task(Objective):
    """An objective with labelled rows: it reads and encodes them, answers them, scores and shows the answers.

    task_name  on the command line, in run.json and results.json
    name       of the head, the loss term and the target
    outcomes   what the numbers of an answer are: probabilities that exclude each other, independent ones, or scores
    row_class      what `encode` takes
    rows_class     fields of its rows (a config); `read_rows` takes them
    options_class  fields of what it is learned with; `learned` takes them
    scoring_class  those of the options that also mean something where no model is trained
    labels     class names in the order of the outputs; none where there are no classes
    metric     decides which model is best, by default; higher is better
    length     longest sequence that it is meant for, in tokens, where a folder remembers one
    usual_length  longest sequence, in tokens, by default
    reference  what `baseline` measures, in words
    references_are  what `references` learn, in words
    rows_are   what a file of its rows has, in words
    one_label  whether each row has one label, so that classes can be drawn alike
    single_or_pairs  whether rows are texts or pairs, so that a model may have learned from single texts alone
    gives_vectors  whether the answer to a text is a vector, {"embedding": [numbers]}
    folders    whether its rows may be a folder, too
    form       what may be asked of it
    written    the same as texts that a T5 writes; None: it does not
    prompting  the same as texts that a language model continues with; None: it cannot be put so
    panel      of the page, that asks and shows it (page/answers.js)
    gives      what it answers, in words, for a list of models

    The answer to a row is an array [1, C] for a text or a pair, [W, C] for the W words of a sentence, and what
    `merge` makes of the examples of a row elsewhere.
    """

    task_name: ClassVar[str]
    outcomes: ClassVar[Outcomes] = "one"
    row_class: ClassVar[type[Row]] = Row
    rows_class: ClassVar[type[Rows]] = Rows
    options_class: ClassVar[type[TaskOptions]] = TaskOptions
    scoring_class: ClassVar[type[TaskOptions]] = TaskOptions
    labels: tuple[str, ...] = ()
    metric: str
    length: int | None = None
    usual_length: ClassVar[int] = 128
    reference = "one answer to all rows"
    references_are: ClassVar[str] = ""
    rows_are: ClassVar[str]
    one_label: ClassVar[bool] = False
    single_or_pairs: ClassVar[bool] = False
    gives_vectors: ClassVar[bool] = False
    folders: ClassVar[bool] = False
    form: ClassVar[Form] = Form()
    written: ClassVar[type[Written] | None] = None
    prompting: ClassVar[type[Prompting] | None] = None
    panel: ClassVar[str] = ""
    gives: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.written is not None and "written" in vars(cls):
            cls.written.task = cls

    # -- rows and what is learned from them

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        """The rows of a file, which exists (`reading.read`)."""
        raise NotImplementedError

    @classmethod
    def owns(cls, path: Path) -> bool:
        """Whether a file holds rows of this task and of no other one, whatever it is read as."""
        return False

    @classmethod
    def fits(cls, rows: Dataset) -> bool:
        """Whether rows of a table are rows of this task."""
        return False

    @classmethod
    def learns(cls, benchmark: Benchmark) -> bool:
        """Whether a public data set has rows of this task."""
        return False

    @classmethod
    def metric_of(cls, benchmark: Benchmark) -> str | None:
        """The metric that decides where the rows are those of a public data set."""
        return benchmark.metrics[0]

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """The task that the training rows ask for; the other sets must fit it.

        held_out  the dev rows were taken from the training rows, and may have labels that only they have

        Raises UnmaskError for rows that cannot be learned from, such as those of a single class.
        """
        raise NotImplementedError

    @classmethod
    def for_references(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """The same where plain references alone are scored (`references`)."""
        return cls.learned(sets, options, say, held_out=held_out)

    @classmethod
    def check_model(cls, config: ModelConfig, folder: Path) -> None:
        """Raises UnmaskError for a model that cannot learn the task."""

    def check_rows(self, model: Model, rows: Sequence[Row]) -> None:
        """Raises UnmaskError for rows that the model cannot read."""

    # -- folders

    @classmethod
    def processor_of(cls, loaded: Loaded[Any], owner: object) -> Processor[Any]:
        """What the rows are encoded by: the tokenizer of a folder. A task whose rows are no texts takes its processor.

        Raises UnmaskError, in which `owner` lacks it, where there is none.
        """
        tokenizer: Processor[Any] = loaded.require_tokenizer(owner)
        return tokenizer

    @classmethod
    def is_of(cls, heads: Collection[str], settings: Any) -> bool:
        """Whether a folder with these heads and settings answers as this task does."""
        return cls.name in heads

    @classmethod
    def of_folder(cls, model: Model, labels: tuple[str, ...], settings: dict[str, Any]) -> Self:
        """The task of a folder, from what it remembers. Raises UnmaskError where that does not fit its model."""
        return cls(*([labels] if labels else []), **settings)

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> Self:
        """The task with usual settings."""
        return cls(*([tuple(labels)] if "labels" in get_type_hints(cls.__init__) else []))

    def save_beside(self, folder: Path, model: Model) -> None:
        """Write what belongs to a folder besides the model itself."""

    # -- the model

    def encode(self, rows: Sequence[Row], processor: Any, length: int) -> Encoded:
        """Sequences of at most `length` tokens. A row without a label has a target too: a place to answer at.

        processor  what `processor_of` gives
        """
        raise NotImplementedError

    def squash(self, logits: Tensor) -> Tensor:
        """What a head says [M, C] -> what is answered [M, C]: probabilities, or scores as they are."""
        return logits.softmax(-1)

    def places(self, batch: Batch) -> Tensor:
        """The flat places [M] that the head answers at."""
        return batch.targets[self.name].places

    def answers(self, model: Model, batch: Batch) -> list[np.ndarray]:
        """Answers [M, C] of each example, in the order of the examples, wherever packing put them."""
        places = self.places(batch)
        answers = self.squash(model.answer(self.name, model(batch), places, batch).float()).detach().cpu().numpy()
        owners = sequence_of(batch, places).cpu().numpy()
        assert batch.starts is not None
        return [answers[owners == i] for i in range(len(batch.starts))]

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Any:
        """The answer to a row from the answers to its examples."""
        return np.concatenate(parts)

    def answer_all(self, model: Model, encoded: Encoded, pad: int) -> list[Any]:
        """The answer to each row; computed without gradients, in evaluation mode."""

        def read(places: list[int]) -> list[np.ndarray]:
            batch = collate.pad([encoded.examples[i] for i in places], pad, multiple=1)
            return self.answers(model, batch.to(model.device))

        with evaluating(model):
            found = answered(read, [len(example.tokens) for example in encoded.examples], model.device)
        return [self.merge(found[own], encoded, row) for row, own in enumerate(encoded.of_rows)]

    def evaluate(self, model: Model, encoded: Encoded, pad: int) -> dict[str, float]:
        """The metrics of what the model answers to rows that have labels."""
        return self.judge(model, self.answer_all(model, encoded, pad), encoded.rows)

    def judge(self, model: Model, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of answers that the model gave, also where those of its vectors need one of its heads."""
        return self.metrics(answers, rows)

    def metrics(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, float]:
        """Name -> value over all rows; `loss` is the mean one, in nats for classes."""
        raise NotImplementedError

    def report(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        """Class -> precision, recall, f1, support; empty where there are no classes."""
        return {}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The metrics of one answer to everything: the most frequent label of `train`, or its mean score."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """What a folder must remember, besides its head and labels, for the task to answer alike: JSON values."""
        return {}

    def is_collapsed(self, answers: Sequence[Any], rows: Sequence[Row]) -> bool:
        """Whether all rows, or words, got one answer, though they ask for several, as from a model that learned only
        how often labels are."""
        return False

    def fitted(self, answers: Sequence[Any], rows: Sequence[Row]) -> None:
        """Choose, on the answers to dev rows, what is not a weight of the model: a threshold. Most tasks have none."""

    # -- scores of other rows

    def for_rows(self, rows: Dataset, folder: Path, model: Model | None = None) -> Task:
        """The task that scores the rows of a file for a folder: itself, unless they ask for another one."""
        return self

    def named(self, rows: Dataset, owner: str) -> Dataset:
        """The rows with labels as the task has them. Raises UnmaskError for labels that `owner`, its model, does not
        know."""
        return rows

    def doubting(self, threshold: float) -> Task:
        """The task, answering nothing above a threshold. Raises UnmaskError for one that always answers."""
        raise UnmaskError("Only models that answer questions about a context can say that there is no answer.")

    @property
    def notice(self) -> str:
        """One sentence on what its scores are of; mostly none."""
        return ""

    def advice(self, scores: Mapping[str, float]) -> str:
        """One sentence on how to do better than these scores; mostly none."""
        return ""

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        """Name of a plain reference -> what learns it from the training rows."""
        return {}

    # -- a teacher

    def check_teachable(self) -> None:
        """Raises UnmaskError where the answers of a teacher cannot be softened."""

    def divergence(self, said_MC: Tensor, taught_MC: Tensor, batch: Batch, temperature: float) -> Tensor:
        """How far what a student's head says is from what a teacher's says, summed: T^2 KL(teacher || student) of
        both, softened by the temperature T (Hinton et al. 2015, section 2)."""
        said, taught = (self.log_probabilities(x / temperature, batch) for x in (said_MC, taught_MC))
        # The gradient of what is softened shrinks with T^2.
        return temperature**2 * F.kl_div(said, taught, reduction="sum", log_target=True)

    def log_probabilities(self, logits_MC: Tensor, batch: Batch) -> Tensor:
        """Of each outcome among those that exclude each other."""
        return logits_MC.log_softmax(-1)

    # -- answers

    def answer(self, row: Row, found: Any) -> dict[str, Any]:
        """The answer to a row (`answer_all`) by the names of labels, as plain JSON values."""
        raise NotImplementedError

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        """An answer as a person reads it on a terminal; `text` is what was asked, with a note where it was cut."""
        return "  ".join([*(str(value) for name, value in answer.items() if name not in ("id", "cut")), text])

    @classmethod
    def query(cls, row: Row) -> str:
        """What a person sees of a row that was read from a file."""
        return row.pair or row.text

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        """The rows of a file in a format of the task, labels left out; None for a file that is read line by line."""
        return None


def sequence_of(batch: Batch, places: Tensor) -> Tensor:
    """Which sequence of the batch, in the order of its examples, each flat place [M] belongs to: [M] int64."""
    if batch.starts is None:
        raise UnmaskError("The batch does not say where its sequences start; make it with collate.pack or pad.")
    order = batch.starts.argsort()
    return order[torch.searchsorted(batch.starts[order], places, right=True) - 1]


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode that the model was in comes back afterwards."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def log_softmax_within(logits_MC: Tensor, group_M: Tensor) -> Tensor:
    """[M, C]: for each output, the log of the softmax over the places of the same group. There are at most M groups,
    numbered from 0."""
    index_MC = group_M[:, None].expand_as(logits_MC)
    lowest = torch.full_like(logits_MC, -torch.inf)
    top_MC = lowest.scatter_reduce(0, index_MC, logits_MC.detach(), "amax").gather(0, index_MC)
    shifted_MC = logits_MC - top_MC
    sums_MC = torch.zeros_like(logits_MC).scatter_add(0, index_MC, shifted_MC.exp())
    return shifted_MC - sums_MC.gather(0, index_MC).log()


def doubting(task: Task | None, threshold: float) -> Task:
    """The task, answering nothing above a threshold. Raises UnmaskError for one that always answers, or none."""
    return (task or Task()).doubting(threshold)
