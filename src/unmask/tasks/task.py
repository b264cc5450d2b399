"""Task: an objective that also predicts. It encodes labelled rows, answers them, and scores the answers.

Shapes: N examples, M targets, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_type_hints

import numpy as np
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
from unmask.tasks.batching import answered, evaluating, sequence_of
from unmask.tasks.encoded import Encoded
from unmask.tasks.forms import Form
from unmask.tasks.prompting import Prompting
from unmask.tasks.rows import Rows, TaskOptions
from unmask.tasks.stand_in import StandIn
from unmask.tasks.written import Written
from unmask.types import Batch

Say = Callable[[str], None]
Score = Callable[[Sequence[Row]], Mapping[str, float]]
"""Rows -> metrics."""
Curve = dict[str, Any]
"""A curve as JSON values: names of its axes `x` and `y`, `points` [[x, y], ...], and whether `x` is logarithmic."""
Outcomes = Literal["one", "several", "score"]


class Task(Objective):
    """An objective with labelled rows: it reads, encodes and answers them, and scores and shows the answers.

    task_name  its name on the command line, in run.json and results.json
    also_called  other names that the field has for it, which a message recognises (`registry.task_named`)
    name       name of the head, the loss term and the target
    general    name of the same task on texts, by which it is also found where the data are not texts (`holds`)
    outcomes   the meaning of the numbers of an answer: probabilities of exclusive classes, of independent ones, scores
    row_class      class of the rows that `encode` takes
    rows_class     config for reading rows, which `read_rows` takes
    options_class  config of the training options, which `learned` takes
    scoring_class  config of the options that also have an effect without training
    labels     class names in the order of the outputs; empty without classes
    metric     the metric that chooses the best model by default; higher is better
    length     longest sequence that the task is meant for, in tokens, if the folder keeps one
    usual_length  longest sequence, in tokens, by default
    tokens_at_once  most tokens of a batch that one thread answers; None: as for texts (`tasks.batching`)
    reference  description of `baseline`
    references_are  description of `references`
    rows_are   description of the rows in a file
    one_label  whether each row has one label, so that rows can be sampled evenly by class
    items      what a model must read to learn the task, in `ModelConfig.offers`: "recordings"; empty for texts
    rate_shares  default learning rates of small and of other folders, as shares of those of their runs; None: of `Fit`
    single_or_pairs  whether rows are texts or pairs, so that a model may have learned from single texts alone
    gives_vectors  whether the answer to a text is a vector, {"embedding": [numbers]}
    folders    whether its rows may also be a folder
    form       the inputs that it answers
    written    the task as texts that a T5 writes; None: not supported
    prompting  the task as prompts for a language model; None: not supported
    panel      the panel of the page for its inputs and answers (page/answers.js)
    gives      description of its answers, for a list of models
    pipeline   the name of the task on the Hugging Face hub and in `transformers.pipeline`; "" if it has none
    estimator  the kind of estimator of scikit-learn that learns it from texts: "classifier", "regressor"; "" for none

    The answer to a row is an array, [1, C] for a text or a pair, [W, C] for words of a sentence, or that of `merge`.
    """

    task_name: ClassVar[str]
    also_called: ClassVar[tuple[str, ...]] = ()
    general: ClassVar[str] = ""
    outcomes: ClassVar[Outcomes] = "one"
    row_class: ClassVar[type[Row]] = Row
    rows_class: ClassVar[type[Rows]] = Rows
    options_class: ClassVar[type[TaskOptions]] = TaskOptions
    scoring_class: ClassVar[type[TaskOptions]] = TaskOptions
    labels: tuple[str, ...] = ()
    metric: str
    length: int | None = None
    usual_length: ClassVar[int] = 128
    tokens_at_once: ClassVar[int | None] = None
    reference = "one answer to all rows"
    references_are: ClassVar[str] = ""
    rows_are: ClassVar[str]
    one_label: ClassVar[bool] = False
    items: ClassVar[str] = ""
    rate_shares: ClassVar[tuple[float, float] | None] = None
    single_or_pairs: ClassVar[bool] = False
    gives_vectors: ClassVar[bool] = False
    folders: ClassVar[bool] = False
    form: ClassVar[Form] = Form()
    written: ClassVar[type[Written] | None] = None
    prompting: ClassVar[type[Prompting] | None] = None
    panel: ClassVar[str] = ""
    gives: ClassVar[str] = ""
    pipeline: ClassVar[str] = ""
    estimator: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.written is not None and "written" in vars(cls):
            cls.written.task = cls

    # -- rows and training

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        """The rows of a file, which exists (`reading.read`)."""
        raise NotImplementedError

    @classmethod
    def owns(cls, path: Path) -> bool:
        """Whether a file holds rows of this task and of no other, whatever its format."""
        return False

    @classmethod
    def holds(cls, path: Path) -> bool:
        """Whether the data in a file or folder are items of this task, and no texts. Only asked where it has a general
        name."""
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
        """The metric that chooses the best model on the rows of a public data set."""
        return benchmark.metrics[0]

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """The task for the training rows; the other sets must fit it.

        held_out  whether the dev rows were taken from the training rows, so that they may have labels of their own

        Raises UnmaskError for rows that cannot be learned from, such as those of a single class.
        """
        raise NotImplementedError

    @classmethod
    def for_references(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        """As `learned`, where only plain references are scored (`references`)."""
        return cls.learned(sets, options, say, held_out=held_out)

    @classmethod
    def check_model(cls, config: ModelConfig, owner: object) -> None:
        """Raises UnmaskError for a model that cannot learn the task."""

    def check_rows(self, model: Model, rows: Sequence[Row]) -> None:
        """Raises UnmaskError for rows that the model cannot read."""

    # -- folders

    @classmethod
    def processor_of(cls, loaded: Loaded[Any], owner: object) -> Processor[Any]:
        """The processor that encodes the rows: the tokenizer of a folder, or another processor for rows without texts.
        Raises UnmaskError about `owner` where the folder has none."""
        tokenizer: Processor[Any] = loaded.require_tokenizer(owner)
        return tokenizer

    @classmethod
    def new_processor(cls, config: ModelConfig) -> Processor[Any]:
        """The processor of a new model. Raises UnmaskError for a task whose models start from a folder."""
        raise UnmaskError(f"A model for {cls.task_name} starts from a folder with a tokenizer: give --model FOLDER.")

    @classmethod
    def new(cls, config: ModelConfig, rows: Sequence[Row]) -> tuple[ModelConfig, Processor[Any]]:
        """The sizes of a new model and its processor, which that of texts learns from the training rows."""
        return config, cls.new_processor(config)

    @classmethod
    def stand_in(cls, config: Any) -> StandIn:
        """The data for a first run of a new model. Raises UnmaskError for a task that has none."""
        raise UnmaskError(f"There are no data for {cls.task_name}: give --data.")

    @classmethod
    def prepared(cls, loaded: Loaded[Model], options: Any) -> Loaded[Model]:
        """The folder that training starts from, changed by the options. Raises UnmaskError if they do not fit it."""
        return loaded

    @classmethod
    def is_of(cls, heads: Collection[str], settings: Any) -> bool:
        """Whether a folder with these heads and settings was fine-tuned for this task."""
        return cls.name in heads

    @classmethod
    def of_folder(cls, model: Model, labels: tuple[str, ...], settings: dict[str, Any]) -> Self:
        """The task of a folder, from its settings. Raises UnmaskError for settings that do not fit the model."""
        return cls(*([labels] if labels else []), **settings)

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> Self:
        """The task with default settings."""
        return cls(*([tuple(labels)] if "labels" in get_type_hints(cls.__init__) else []))

    def save_beside(self, folder: Path, model: Model) -> None:
        """Write files of the task into a folder, beside those of the model."""

    # -- the model

    def encode(self, rows: Sequence[Row], processor: Any, length: int) -> Encoded:
        """Sequences of at most `length` tokens. A row without a label has a target too, whose place is answered.

        processor  as `processor_of` returns it
        """
        raise NotImplementedError

    def check_encoded(self, encoded: Encoded) -> None:
        """Raises UnmaskError for rows that cannot be read, where `encode` leaves reading to the run."""

    def for_training(self, encoded: Encoded, processor: Any) -> Encoded:
        """The encoded training rows, as they are learned from: augmented, for example."""
        return encoded

    def squash(self, logits: Tensor) -> Tensor:
        """Outputs of the head [M, C] -> answers [M, C]: probabilities, or unchanged scores."""
        return logits.softmax(-1)

    def places(self, batch: Batch) -> Tensor:
        """The flat places [M] at which the head answers."""
        return batch.targets[self.name].places

    def answers(self, model: Model, batch: Batch) -> list[np.ndarray]:
        """Answers [M, C] of each example, in the order of the examples, however they are packed."""
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
            found = answered(read, encoded.lengths.tolist(), model.device, self.tokens_at_once)
        return [self.merge(found[own], encoded, row) for row, own in enumerate(encoded.of_rows)]

    def evaluate(self, model: Model, encoded: Encoded, pad: int) -> dict[str, float]:
        """The metrics of the model's answers to labelled rows."""
        return self.judge(model, self.answer_all(model, encoded, pad), encoded.rows)

    def judge(self, model: Model, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of the model's answers. A task whose metrics need a head of the model overrides this."""
        return self.metrics(answers, rows)

    def metrics(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, float]:
        """Name -> value over all rows; `loss` is the mean loss, in nats for classes."""
        raise NotImplementedError

    def report(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, dict[str, float]]:
        """Class -> precision, recall, f1, support; empty without classes."""
        return {}

    def curves(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, Curve]:
        """Title -> a curve for the report; empty for most tasks."""
        return {}

    def confusion(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, dict[str, int]]:
        """Label -> prediction -> number of rows; empty unless each row has one label."""
        return {}

    def tables(self, answers: Sequence[Any], rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """Title -> a table for the report, {"heads": [names], "rows": [[cells]]}; empty for most tasks."""
        return {}

    def examples(self, answers: Sequence[Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Rows that a report shows with their answers: `label`, `predicted`, `probability`, `place`, and `picture`,
        a small PNG or JPEG in Base64. Empty for rows that cannot be shown as pictures."""
        return []

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The metrics of one answer to everything: the most frequent label of `train`, or its mean score."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """The settings that a folder must keep, besides its head and labels, for the same answers: JSON values."""
        return {}

    def is_collapsed(self, answers: Sequence[Any], rows: Sequence[Row]) -> bool:
        """Whether all rows, or words, got the same answer although their labels differ."""
        return False

    def fitted(self, answers: Sequence[Any], rows: Sequence[Row]) -> None:
        """Set a threshold by the answers to dev rows. Most tasks have none."""

    # -- scores of other rows

    def for_rows(self, rows: Dataset, folder: Path, model: Model | None = None) -> Task:
        """The task that scores the rows of a file for a folder: this one, unless the rows need another."""
        return self

    def named(self, rows: Dataset, owner: str) -> Dataset:
        """The rows with labels as the task has them. Raises UnmaskError for labels that `owner` does not know."""
        return rows

    def doubting(self, threshold: float) -> Task:
        """The task with no answer above a threshold of doubt. Raises UnmaskError for a task that always answers."""
        raise UnmaskError("Only models that answer questions about a context can say that there is no answer.")

    @property
    def notice(self) -> str:
        """One sentence on how the scores are computed; empty for most tasks."""
        return ""

    def advice(self, scores: Mapping[str, float]) -> str:
        """One sentence on how to improve these scores; empty for most tasks."""
        return ""

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        """Name of a plain reference -> a function that trains it on the training rows and returns its scores."""
        return {}

    # -- a teacher

    def check_teachable(self) -> None:
        """Raises UnmaskError for a task without probabilities of a teacher to soften."""

    def for_teacher(
        self, student: Processor[Any], teacher: Processor[Any], owner: object
    ) -> Callable[[Batch], Batch] | None:
        """How a batch of the student becomes the batch that the teacher reads; None, as by default: it is the same.

        Raises UnmaskError about `owner`, the teacher, if it cannot read the same items.
        """
        if teacher.fingerprint != student.fingerprint:
            raise UnmaskError(
                f"{owner} has another tokenizer than the student, so it cannot read the same tokens: start the student "
                "from a model with the teacher's tokenizer, or fine-tune a teacher that has the student's."
            )
        return None

    def divergence(self, student_MC: Tensor, teacher_MC: Tensor, batch: Batch, temperature: float) -> Tensor:
        """T^2 KL(teacher || student) of the outputs of both heads, softened by the temperature T and summed (Hinton et
        al. 2015, section 2)."""
        student, teacher = (self.log_probabilities(x / temperature, batch) for x in (student_MC, teacher_MC))
        # T^2 makes up for the gradients, which shrink by it.
        return temperature**2 * F.kl_div(student, teacher, reduction="sum", log_target=True)

    def log_probabilities(self, logits_MC: Tensor, batch: Batch) -> Tensor:
        """The log probabilities [M, C] of outputs that exclude each other."""
        return logits_MC.log_softmax(-1)

    # -- answers

    def answer(self, row: Row, found: Any) -> dict[str, Any]:
        """The answer to a row (`answer_all`) with the names of labels, as plain JSON values."""
        raise NotImplementedError

    def compared(self, row: Row, found: Any) -> tuple[str, str, float] | None:
        """What a row has and what the model answers to it, as texts, and how wrong the answer is: 0 if it is right.
        None for a task that does not compare single rows."""
        return None

    def explained(self, answers: list[Any], model: Any, encoded: Encoded, processor: Any) -> list[dict[str, Any]]:
        """The answers to encoded rows, with where the model looked, if the task can say it."""
        return answers

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        """An answer for a terminal; `text` is the input, with a note if it was cut."""
        return "  ".join([*(str(value) for name, value in answer.items() if name not in ("id", "cut")), text])

    @classmethod
    def query(cls, row: Row) -> str:
        """The text that is shown for a row of a file."""
        return row.pair or row.text

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        """The rows of a file in a format of the task, without labels; None for a file that is read line by line."""
        return None


def doubting(task: Task | None, threshold: float) -> Task:
    """The task with no answer above a threshold. Raises UnmaskError for None, and for a task that always answers."""
    return (task or Task()).doubting(threshold)
