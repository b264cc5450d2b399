"""The config of a pre-training run: the objective, the rows and the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_values
from pathlib import Path
from typing import Any, Literal, Self

from unmask import huggingface
from unmask.config import Config
from unmask.errors import UnmaskError, in_part
from unmask.models.bert import Bert
from unmask.models.model import ModelConfig
from unmask.objectives import ObjectiveConfig, TeacherConfig, registry
from unmask.objectives.config import Data
from unmask.runs.pretraining.continued import Origin, opened
from unmask.runs.report import run_facts
from unmask.train.optim import ADAFACTOR
from unmask.train.trainer import Training

OLD_NAMES = {"teaching": "distillation"}
"""Part of the config in version 0.1 -> its name."""

PREFIXES = ("objectives.", "objective.")
"""Possible prefixes of the fields of the objective; the first is that of version 0.1."""


@dataclass(frozen=True, kw_only=True)
class Rows(Config):
    """How text becomes batches.

    tokens       tokens of a row; None: as many as the model has positions
    first        tokens of a row at the start of a run, with accordingly more rows; None: `tokens` throughout. With
                 short rows the model learns sooner which words occur together (Devlin et al. 2018, A.2: 128 for 90 %
                 of the steps, then 512)
    first_share  share of the steps with rows of `first` tokens
    batch        rows of one optimiser step, over all processes
    micro_batch  rows of one forward pass of a process; None: all of them. Fewer rows need less memory for the same
                 result
    alpha        several corpora of n tokens are mixed with weights n^alpha (0.5 as in XLS-R; 1 keeps their proportions)
    heldout      rows of held-out text for evaluations
    workers      processes that prepare data during the training; 0: a thread prepares it
    partitions   parts of the shards of a text corpus, each with its own share of the rows of a step. Every process
                 reads those of its own partitions alone, so their number must be a multiple of the number of processes.
                 With 1, every process reads all shards
    shards       shards of a partition that are mixed at a time; None: all. The cache must hold them
    cache        folder for the shards of corpora at addresses, such as s3://bucket/corpus, which the processes of a
                 machine share; None: unmask-cache in the temporary folder
    cache_gb     largest size of these shards, in GB
    """

    tokens: int | None = None
    first: int | None = None
    first_share: float = 0.9
    batch: int = 32
    micro_batch: int | None = None
    alpha: float = 0.5
    heldout: int = 128
    workers: int = 0
    partitions: int = 1
    shards: int | None = None
    cache: str | None = None
    cache_gb: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Pretraining(Config):
    """All settings of a pre-training run; `recipes.py` has named ones.

    objective     the config of the objective, and of the objectives that are parts of it
    distillation  a larger model as teacher
    start         folder of a model to continue from, with the sizes of `model` (`starting_from` sets them); None: new
                  weights
    warm_start    initial token vectors of a new model: "ppmi", from the co-occurrence of tokens in the corpus
                  (`data/text/cooccurrence.py`), or "none", random vectors
    """

    model: ModelConfig = field(default_factory=Bert)
    objective: ObjectiveConfig = field(default_factory=registry.default)
    distillation: TeacherConfig = field(default_factory=TeacherConfig)
    rows: Rows = field(default_factory=Rows)
    training: Training = field(default_factory=Training)
    start: str | None = None
    warm_start: Literal["none", "ppmi"] = "none"

    def override(self, changes: Mapping[str, Any], **others: str) -> Self:
        """As `Config.override`, also for options that choose an objective (`--written`, `--sentences`, ...)."""
        given: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in self.renamed(changes, others).items():
            part, dot, last = name.replace("-", "_").partition(".")
            if dot and part in OLD_NAMES:
                name = f"{OLD_NAMES[part]}.{last}"
            key = part + dot + last
            prefixed = next((prefix for prefix in PREFIXES if key.startswith(prefix)), "")
            key = key.removeprefix(prefixed).rpartition(".")[2] if prefixed else key
            foreign = registry.takes(key) and key not in self.model.places()
            is_objective = prefixed or key in self.objective.leaves() or foreign
            (given if is_objective else rest)[key if is_objective else name] = value
        config = with_values(self, objective=registry.chosen(self.objective, given))
        return super(Pretraining, config).override(rest, **others)

    def other_names(self) -> Iterable[str]:
        return registry.options()

    def starting_from(self, folder: Path | str) -> Self:
        """The same run, starting from the weights of a model folder, with its sizes and its dropout. Where neither the
        rows nor the model have a length, it is that of the folder's own run."""
        model, facts = opened(folder).model, run_facts(Path(folder))
        config = with_values(self, model=model.config, start=str(folder), warm_start="none")
        objective = registry.for_folder(config.objective, model.config, set(model.heads), facts)
        config = with_values(config, objective=objective.of_model(model.config))
        if config.rows.tokens is None and model.config.length is None:
            config = config.replace(rows={"tokens": facts.get("config", {}).get("rows", {}).get("tokens")})
        if model.config.adafactor and config.training.optimizer.algorithm in ("auto", "muon"):
            config = config.replace(training={"optimizer": ADAFACTOR})
        return config

    def resumed(self, run: Mapping[str, Any]) -> Self:
        """The config in run.json of a run. Its model may have another class than that of the recipe if the run started
        from a folder; `run` names the class."""
        name = str(run.get("model"))
        other = None if name == type(self.model).__name__ else huggingface.page_named(name)
        config = self if other is None else with_values(self, model=other.from_dict({}))
        config = config.replace(training={"optimizer": {"algorithm": "auto"}})  # for older runs, which do not name it
        values = {OLD_NAMES.get(name, name): value for name, value in run["config"].items()}
        if "objectives" in values:
            config = with_values(config, objective=registry.of_version_0_1(values.pop("objectives")))
        if "objective" in values:
            with in_part("objective"):
                config = with_values(config, objective=registry.read(values.pop("objective"), self.objective))
        return config.replace(**values)


def settled(config: Pretraining, corpora: Sequence[Data], origin: Origin | None) -> Pretraining:
    """The config, with the fields filled in that depend on the corpora and the start. Raises UnmaskError if they do not
    fit."""
    model = config.model if origin is None else origin.model
    registry.check_supported(config.objective, model, folder=config.start is not None)
    if origin is not None:
        config = with_values(config, model=origin.settle(config.model, config.objective.model_settings()))
        origin.check(corpora, config.objective, config.model)
    if config.warm_start != "none" and (config.start is not None or config.distillation.inherit):
        raise UnmaskError(
            "A model that starts from a folder, or inherits from a teacher, already has token vectors: leave "
            "--warm-start out."
        )
    heads = () if origin is None else tuple(origin.stored.model.heads)
    config = with_values(config, objective=config.objective.settled(heads))
    if origin is None:
        config = config.replace(model=config.objective.model_fields(corpora[0].processor))
    else:
        config.objective.check_folder(origin.stored.model, origin.stored.words, origin.folder)
    tokens = tokens_of(config)
    if config.model.length is not None and tokens > config.model.length:
        raise UnmaskError(
            f"Rows of {tokens} tokens do not fit a model with {config.model.length} positions: "
            f"set --rows.tokens {config.model.length} or less, or --length {tokens}."
        )
    first = config.rows.first
    if first is not None and (first > tokens or first < 8 or tokens % first):
        raise UnmaskError(f"Rows begin with {first} tokens, which must be at least 8 and divide {tokens} evenly.")
    if tokens < 8:
        raise UnmaskError(f"Rows of {tokens} tokens are too short to learn from: use at least 8.")
    return config


def tokens_of(config: Pretraining) -> int:
    """Tokens of a row. Raises UnmaskError if neither the rows nor the model determine them."""
    tokens = config.rows.tokens or config.model.length
    if tokens is None:
        raise UnmaskError("This model has no maximum length: set the length of rows, such as --rows.tokens 128.")
    return tokens
