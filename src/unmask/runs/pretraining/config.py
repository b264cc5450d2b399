"""What makes a pre-training run, as a config: what is learned, from which rows, by which model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_values
from pathlib import Path
from typing import Any, Literal, Self

from unmask import huggingface
from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.models.model import ModelConfig
from unmask.objectives import ObjectiveConfig, TeacherConfig, registry
from unmask.objectives.config import Data
from unmask.runs.pretraining.continued import Origin, opened
from unmask.train.optim import ADAFACTOR
from unmask.train.trainer import Training

OLD_NAMES = {"teaching": "distillation"}
"""Part of the config in version 0.1 -> its name."""

PREFIXES = ("objectives.", "objective.")
"""What the name of a field of the objective may begin with: the first is that of version 0.1."""


@dataclass(frozen=True, kw_only=True)
class Rows(Config):
    """How text becomes batches.

    tokens       of a row; None is as many as the model has positions
    first        tokens of a row at the start of a run, with as many more rows; None begins with `tokens`. Short rows
                 teach sooner which words go together (Devlin et al. 2018, A.2: 128 for 90 % of the steps, then 512)
    first_share  share of the steps that have the rows of `first`
    batch        rows of one optimiser step, over all processes
    micro_batch  rows of one forward pass of a process; None is all of them. Smaller needs less memory, same result.
    alpha        several corpora are mixed with weights n^alpha of their sizes (0.5 as in XLS-R; 1 as they are)
    heldout      rows of held-out text that evaluations use
    workers      processes that prepare data beside the training; 0 prepares it in a thread
    """

    tokens: int | None = None
    first: int | None = None
    first_share: float = 0.9
    batch: int = 32
    micro_batch: int | None = None
    alpha: float = 0.5
    heldout: int = 128
    workers: int = 0


@dataclass(frozen=True, kw_only=True)
class Pretraining(Config):
    """Everything that makes a pre-training run; `recipes.py` holds the ones with a name.

    objective     what is learned: the config of one objective, and of those that it goes with
    distillation  a larger model that helps to learn it
    start         a model folder whose weights to continue from, which has the sizes of `model` (`starting_from` sees to
                  that); None for fresh weights
    warm_start    what the token vectors of a fresh model start from: "ppmi", which tokens stand beside which in the
                  corpus (`data/text/cooccurrence.py`), or "none", random vectors
    """

    model: ModelConfig = field(default_factory=Bert)
    objective: ObjectiveConfig = field(default_factory=registry.default)
    distillation: TeacherConfig = field(default_factory=TeacherConfig)
    rows: Rows = field(default_factory=Rows)
    training: Training = field(default_factory=Training)
    start: str | None = None
    warm_start: Literal["none", "ppmi"] = "none"

    def override(self, changes: Mapping[str, Any], **others: str) -> Self:
        """As `Config.override`; options that choose an objective (`--written`, `--sentences`, ...) are taken, too."""
        given: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in changes.items():
            part, dot, last = name.replace("-", "_").partition(".")
            if dot and part in OLD_NAMES:
                name = f"{OLD_NAMES[part]}.{last}"
            key = part + dot + last
            prefixed = next((prefix for prefix in PREFIXES if key.startswith(prefix)), "")
            key = key.removeprefix(prefixed).rpartition(".")[2] if prefixed else key
            mine = prefixed or key in self.objective.leaves() or registry.takes(key)
            (given if mine else rest)[key if mine else name] = value
        config = with_values(self, objective=registry.chosen(self.objective, given))
        return super(Pretraining, config).override(rest, **others)

    def other_names(self) -> Iterable[str]:
        return registry.options()

    def starting_from(self, folder: Path | str) -> Self:
        """The same run from the weights, and with the sizes and the dropout, of a model folder."""
        model = opened(folder).model
        config = with_values(self, model=model.config, start=str(folder), warm_start="none")
        objective = registry.for_folder(config.objective, model.config, set(model.heads))
        config = with_values(config, objective=objective.of_model(model.config))
        if model.config.adafactor and config.training.optimizer.algorithm in ("auto", "muon"):
            config = config.replace(training={"optimizer": ADAFACTOR})
        return config

    def resumed(self, run: Mapping[str, Any]) -> Self:
        """The config in the run.json of a run, whose model may be of another class than the recipe's where it went on
        from a folder: `run` names it."""
        classes = {page.config.__name__: page.config for page in huggingface.TABLES.values()}
        wanted = classes.get(str(run.get("model")), type(self.model))
        config = self if type(self.model) is wanted else with_values(self, model=wanted.from_dict({}))
        config = config.replace(training={"optimizer": {"algorithm": "auto"}})  # of runs that do not say which
        values = {OLD_NAMES.get(name, name): value for name, value in run["config"].items()}
        if "objectives" in values:
            config = with_values(config, objective=registry.of_version_0_1(values.pop("objectives")))
        if "objective" in values:
            config = with_values(config, objective=registry.read(values.pop("objective"), self.objective))
        return config.replace(**values)


def settled(config: Pretraining, corpora: Sequence[Data], origin: Origin | None) -> Pretraining:
    """The config with everything that the corpora and the start decide. Raises UnmaskError where they do not fit."""
    model = config.model if origin is None else origin.model
    registry.check_supported(config.objective, model, folder=config.start is not None)
    if origin is not None:
        origin.check(corpora, config.objective)
        config = with_values(config, model=origin.settle(config.model, config.objective.model_settings()))
    if config.warm_start != "none" and (config.start is not None or config.distillation.inherit):
        raise UnmaskError(
            "A model that starts from a folder, or inherits from a teacher, has its token vectors already: leave out "
            "--warm-start."
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
            f"Rows of {tokens} tokens do not fit a model with {config.model.length} positions; "
            f"set --rows.tokens {config.model.length} or less, or --length {tokens}."
        )
    first = config.rows.first
    if first is not None and (first > tokens or first < 8 or tokens % first):
        raise UnmaskError(f"Rows begin with {first} tokens, which must be at least 8 and divide {tokens} evenly.")
    if tokens < 8:
        raise UnmaskError(f"Rows of {tokens} tokens are too short to learn from; use at least 8.")
    return config


def tokens_of(config: Pretraining) -> int:
    """Tokens of a row. Raises UnmaskError where nothing says how many."""
    tokens = config.rows.tokens or config.model.length
    if tokens is None:
        raise UnmaskError("This model has no longest sequence; say how long the rows are: --rows.tokens 128.")
    return tokens
