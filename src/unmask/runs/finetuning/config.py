"""The config of a fine-tuning run: the model, the rows, and how the model is trained on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from unmask import huggingface
from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.kernels.processor import Precision
from unmask.models.model import ModelConfig
from unmask.runs.transfer import Transfer
from unmask.tasks import Task, task_named
from unmask.tasks.config import TaskConfig
from unmask.tasks.distillation import Distillation
from unmask.tasks.rows import TaskOptions
from unmask.tasks.second import Second
from unmask.train import trackers
from unmask.train.checkpoint import RUN
from unmask.train.optim import Optimizer, Schedule

EPOCHS, LEAST_STEPS = 3.0, 200  # by default
IN_MINUTES = 5.0  # evaluations of a run whose length is given in minutes
SMALL = 10_000  # with fewer training rows, seeds differ too much for one alone (Devlin et al. 2018, section 4.1)
PAGE = "kind"  # field of a page in run.json: the name of its class
SEEDS = 3  # for fewer than SMALL training rows


@dataclass(frozen=True, kw_only=True)
class Fit(Config):
    """How a model is trained on labelled rows. The defaults suit a fully pre-trained BERT-base (Devlin et al. 2018,
    appendix A.3: 2e-5 to 5e-5, 2 to 4 epochs). The learning rate, if none is given, follows from the width of the model
    and the strategy (`encoder.usual_rate`), and is in run.json of the finished run.

    epochs       passes over the training rows; None: 3, but at least 200 steps
    least_steps  least number of steps, with more passes if needed; None: 200 if `epochs` is None, because small sets
                 need them (Mosbach et al. 2021; Zhang et al. 2021, section 6), else 1
    minutes      length of the run in minutes, in place of `epochs`; the number of steps follows from the measured time
                 of a step
    batch_size   rows of one step, over all micro-batches and processes
    sampling     "balanced" draws every class equally often in each epoch, with repetition; "plain" takes every row once
    evaluations  evaluations on the dev rows per epoch; below 1, one in several epochs. None: 1, or 5 in the whole run
                 if its length is given in minutes
    patience     evaluations without improvement after which the run stops; None: it never stops early
    metric       metric that decides which weights are kept; None: the first metric of the task
    precision    format of the forward pass: "auto" is bf16 if the device computes it natively; weights stay in fp32
    device       where it runs: cpu, cuda, cuda:1; "auto" takes a GPU if there is one
    workers      processes that prepare rows during the training; 0: a thread prepares them
    track        trackers that receive the settings and numbers of each seed: tensorboard, wandb, mlflow, trackio
    """

    epochs: float | None = None
    least_steps: int | None = None
    minutes: float | None = None
    batch_size: int = 32
    sampling: Literal["plain", "balanced"] = "plain"
    evaluations: float | None = None
    patience: int | None = None
    metric: str | None = None
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(lr=None))
    schedule: Schedule = field(default_factory=Schedule)
    precision: Precision = "auto"
    device: str = "auto"
    workers: int = 0
    track: tuple[trackers.Name, ...] = ()

    @property
    def passes(self) -> float:
        """Passes over the training rows, before `least` is applied."""
        return EPOCHS if self.epochs is None else self.epochs

    @property
    def least(self) -> int:
        """Least number of steps."""
        usual = LEAST_STEPS if self.epochs is None else 1
        return usual if self.least_steps is None else self.least_steps

    def check(self) -> None:
        """Raises UnmaskError for invalid settings."""
        if self.passes <= 0 or self.batch_size < 1 or (self.evaluations or 1) <= 0 or (self.minutes or 1) <= 0:
            raise UnmaskError("The epochs, the minutes, the batch size and the evaluations must be above 0.")
        if self.minutes is not None and (self.epochs is not None or self.least_steps is not None):
            raise UnmaskError("--minutes sets the length of the run: leave --epochs and --least-steps out.")
        trackers.installed(self.track)


@dataclass(frozen=True, kw_only=True)
class FineTuning(TaskConfig):
    """A fine-tuning run.

    model         folder of the pre-trained model
    seed, seeds   the first seed, and the number of seeds. A seed determines the new head, the order of the rows and
                  dropout. None: 3 seeds for fewer than 10,000 training rows, else 1
    page          the sizes of a new model in place of `model`, for training from scratch; recipes set it
    from_scratch  keep the processor and the sizes of `model` but none of its weights, for comparison
    language_model  weight of the next-token loss that is added to the loss of the task, for models that read from left
                  to right (Radford et al. 2018, equation 5: 0.5); 0: the task alone
    """

    model: Path | None = None
    page: ModelConfig | None = None
    options: TaskOptions = field(default_factory=TaskOptions)
    fit: Fit = field(default_factory=Fit)
    transfer: Transfer = field(default_factory=Transfer)
    distillation: Distillation = field(default_factory=Distillation)
    second: Second = field(default_factory=Second)
    seed: int = 0
    seeds: int | None = None
    from_scratch: bool = False
    language_model: float = 0.0

    CLASSES: ClassVar[Mapping[str, str]] = {"rows": "rows_class", "options": "options_class"}

    @property
    def start(self) -> str:
        """The folder, or the kind of new model, that the run starts from. Raises UnmaskError if there is neither."""
        if self.model is None and self.page is None:
            raise UnmaskError("Give a model and rows: --model FOLDER --train FILE.")
        return str(self.model) if self.page is None else f"A new {type(self.page).__name__}"

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        if self.page is not None:
            values["page"] = {PAGE: type(self.page).__name__, **values["page"]}
        return values

    @classmethod
    def of_run(cls, values: Mapping[str, Any]) -> Self:
        page = values.get("page")
        if not isinstance(page, Mapping):
            return super().of_run(values)
        kind = huggingface.page_named(str(page.get(PAGE)))
        if kind is None:
            raise UnmaskError(f"This version knows no model '{page.get(PAGE)}', which {RUN} names.")
        sizes = {name: value for name, value in page.items() if name != PAGE}
        found = super().of_run({**values, "page": None})
        return dataclasses.replace(found, page=kind.from_dict(sizes))

    def override(self, changes: Mapping[str, Any], **others: str) -> Self:
        """As `TaskConfig.override`. For a new model, names of its sizes have precedence over all others, and those
        of its task and its rows over those of `transfer` and `distillation`."""
        if self.page is not None:
            sizes = vars(self.page).keys() - {field.name for field in dataclasses.fields(ModelConfig)}
            names = {"rows": vars(self.rows), "options": vars(self.options), "page": sizes}
            others = {**{name: f"{part}.{name}" for part, known in names.items() for name in known}, **others}
        if "steps" in changes:
            raise UnmaskError("Fine-tuning counts no steps: --epochs, such as 0.1 or 3, or --minutes sets its length.")
        return super().override(changes, **others)

    @property
    def kind(self) -> type[Task]:
        """The task."""
        return task_named(self.task)

    def number_of_seeds(self, rows: int) -> int:
        """The number of seeds for a number of training rows. Raises UnmaskError if it is below 1."""
        seeds = self.seeds if self.seeds is not None else SEEDS if rows < SMALL else 1
        if seeds < 1:
            raise UnmaskError("The number of seeds must be 1 or more.")
        return seeds
