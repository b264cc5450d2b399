"""The registry of objectives: how options, run.json and folders choose one of them.

Nothing outside this room names an objective; an objective that is not listed here is passed as its config.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from unmask.config import typed
from unmask.errors import UnmaskError, in_part, kind_of, unknown
from unmask.models.model import ModelConfig
from unmask.objectives.autoencoder import AutoencoderConfig
from unmask.objectives.bidirectional import BidirectionalLMConfig
from unmask.objectives.causal import CausalLMConfig
from unmask.objectives.colourisation import ColourisationConfig
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.contrastive import ContrastiveConfig
from unmask.objectives.contrastive_multiview import ContrastiveMultiviewConfig
from unmask.objectives.contrastive_prediction import ContrastivePredictionConfig
from unmask.objectives.distillation import WithTeacher
from unmask.objectives.jigsaw import JigsawConfig
from unmask.objectives.language_modeling import MaskedLMConfig
from unmask.objectives.masked_autoencoder import MaskedAutoencoderConfig
from unmask.objectives.masked_clusters import MaskedClustersConfig
from unmask.objectives.masked_contrastive import MaskedContrastiveConfig
from unmask.objectives.masked_patches import MaskedPatchesConfig
from unmask.objectives.masked_segments import MaskedSegmentsConfig
from unmask.objectives.next_samples import NextSamplesConfig
from unmask.objectives.next_segments import NextSegmentsConfig
from unmask.objectives.next_sentence import NextSentenceConfig
from unmask.objectives.objective import Term
from unmask.objectives.replaced_token import ReplacedTokenConfig
from unmask.objectives.rotation import RotationConfig
from unmask.objectives.segments import SegmentLMConfig
from unmask.objectives.sentence_order import SentenceOrderConfig
from unmask.objectives.sentence_pair import Sentences, SingleRuns
from unmask.objectives.span_corruption import SpanCorruptionConfig
from unmask.objectives.super_resolution import SuperResolutionConfig

Kind = type[ObjectiveConfig]

OBJECTIVES: tuple[Kind, ...] = (
    SegmentLMConfig,
    CausalLMConfig,
    BidirectionalLMConfig,
    AutoencoderConfig,
    SpanCorruptionConfig,
    MaskedLMConfig,
    ReplacedTokenConfig,
    NextSentenceConfig,
    SentenceOrderConfig,
    MaskedPatchesConfig,
    MaskedAutoencoderConfig,
    ContrastiveConfig,
    ContrastiveMultiviewConfig,
    ColourisationConfig,
    SuperResolutionConfig,
    RotationConfig,
    JigsawConfig,
    MaskedContrastiveConfig,
    MaskedClustersConfig,
    ContrastivePredictionConfig,
    NextSamplesConfig,
    MaskedSegmentsConfig,
    NextSegmentsConfig,
)
"""All objectives. The default of a model is the first that it supports."""


def default() -> ObjectiveConfig:
    """The default objective of a run: that of BERT."""
    return MaskedLMConfig(sentences=NextSentenceConfig())


@dataclass(frozen=True, kw_only=True)
class FolderSentences(Sentences):
    """Sequences for the sentence-pair head of the folder that a run starts from; single runs for a new model."""

    kind = "folder"
    learned = "nothing"
    example = "continued"
    choices = (("sentences", "auto"),)
    ignored = True

    def settled(self, heads: Collection[str]) -> Any:
        found = (kind for kind in OBJECTIVES if issubclass(kind, Sentences) and kind.own_heads <= set(heads))
        return next(found, SingleRuns)().like(self)


CHOOSABLE: tuple[Kind, ...] = (*OBJECTIVES, SingleRuns, FolderSentences)


# ------------------------------------------------------------------------------------------------ models and folders


def supported(model: ModelConfig) -> tuple[Kind, ...]:
    """The objectives that a model can be trained by, the default one first."""
    return tuple(kind for kind in OBJECTIVES if kind().fits(model))


def usual(model: ModelConfig) -> ObjectiveConfig:
    """The default objective of a model. Raises UnmaskError for one that supports none of those listed here."""
    able = supported(model)
    if not able:
        raise UnmaskError(f"No listed objective trains a {type(model).__name__}: pass the config of one.")
    return able[0]()


def for_folder(
    asked: ObjectiveConfig, model: ModelConfig, heads: Collection[str], run: Mapping[str, Any] | None = None
) -> ObjectiveConfig:
    """The objective of a run that continues from a folder.

    asked  the objective of the recipe. If the model does not support it, the objective that its heads were trained by
           replaces it, or the model's default, where it is optional or the model has only one; otherwise it stays, and
           `check_supported` refuses it.
    run    run.json of the folder, which has the fields of its objective; None or empty without one
    """
    able = supported(model)
    if able and not asked.fits(model) and (asked.optional or len(able) == 1):
        asked = trained_by(model, heads, run) or able[0]()
    for kind in OBJECTIVES:
        asked = kind.continued(asked, heads)
    return asked


def trained_by(
    model: ModelConfig, heads: Collection[str], run: Mapping[str, Any] | None = None
) -> ObjectiveConfig | None:
    """The objective that a folder with these heads was trained by, with the fields of its run and those that its model
    decides; None if its heads are of no listed objective alone.

    run  run.json of the folder; None or empty without one
    """
    kind = next((kind for kind in supported(model) if kind.own_heads and kind.own_heads <= set(heads)), None)
    if kind is None:
        return None
    config = (run or {}).get("config")
    kept = config.get("objective") if isinstance(config, Mapping) else None
    same = isinstance(kept, Mapping) and kept.get("kind") == kind.kind
    return (read(kept, kind()) if same else kind()).of_model(model)


def check_supported(asked: ObjectiveConfig, model: ModelConfig, *, folder: bool) -> None:
    """Raises UnmaskError for a model that does not support the objective.

    folder  whether the model comes from a folder instead of the recipe
    """
    if asked.fits(model):
        return
    option = asked.choices[0][0] if asked.choices else "objective"
    other = f", or take {asked.example}" if asked.example else ""
    way = f"leave out the recipe and --{option}" if folder else f"leave --{option} as the recipe has it{other}"
    able = _either(kind.learned for kind in supported(model))
    raise UnmaskError(
        f"This {type(model).__name__} learns {able or 'by no listed objective'}, not {asked.learned}: {way}."
    )


# ------------------------------------------------------------------------------------------------ options


def options() -> set[str]:
    """The options of the command line that choose an objective or set a field of one."""
    plain = {name for kind in CHOOSABLE for name in kind().leaves()}
    return plain | _choices().keys()


def values() -> dict[str, dict[str, str]]:
    """Option that chooses an objective -> each of its values, and what it does."""
    return {
        option: {value: " ".join((kind.__doc__ or "").split("\n\n")[0].split()) for value, kind in kinds.items()}
        for option, kinds in _choices().items()
    }


def chosen(current: ObjectiveConfig, given: Mapping[str, Any]) -> ObjectiveConfig:
    """The objective of a run with these options.

    given  option -> value, of those in `options`, or fields of `current`

    Raises UnmaskError for an option that the objective does not have, and for a value of the wrong type.
    """
    table = _choices()
    asked = {name: _value(name, value, tuple(table[name])) for name, value in given.items() if name in table}

    def order(choice: tuple[str, str]) -> tuple[bool, int]:
        """Choices of whole objectives come first, then those of parts from the outside in; removals come last."""
        name, value = choice
        place = CHOOSABLE.index(table[name][value])
        return (True, -place) if value == "false" else (False, place)

    for name, value in sorted(asked.items(), key=order):
        found = table[name][value].chosen(current, name, value)
        if found is None:
            raise _refusal(name, current)
        current = found
    for name, value in given.items():
        if name in table:
            continue
        if name in current.leaves():
            current = current.override({name.replace("_", "-"): value})
        elif not takes(name):
            raise unknown("field of what is learned:", name, {*options(), *current.leaves()})
        elif not _asks_for_nothing(name, value):
            raise _refusal(name, current)
    return current


def selected(current: ObjectiveConfig) -> dict[str, str]:
    """Option -> the value that chooses the config or a part of it."""
    found: dict[str, str] = {}
    for part in current.all():
        for option, value in part.choices:
            found.setdefault(option, value)
    return found


def takes(name: str) -> bool:
    """Whether a listed objective has a field of this name, or is chosen by an option of this name."""
    return name in _choices() or bool(_takers(name))


def _choices() -> dict[str, dict[str, Kind]]:
    """Option -> value -> the config that it chooses."""
    found: dict[str, dict[str, Kind]] = {}
    for kind in CHOOSABLE:
        for option, value in kind.choices:
            found.setdefault(option, {})[value] = kind
    return found


def _value(name: str, value: Any, values: tuple[str, ...]) -> str:
    if "true" in values:
        return str(typed(value, bool, f"--{name}")).lower()
    one_of: Any = Literal
    return str(typed(value, one_of[values], f"--{name}"))


def _takers(name: str) -> list[Kind]:
    """The objectives that have a field of this name."""
    return [kind for kind in OBJECTIVES if name in kind().names() or name in dict(kind.choices)]


def _asks_for_nothing(name: str, value: Any) -> bool:
    """Whether this value of a field has no effect (`ObjectiveConfig.off`), so that any run accepts it."""
    idle = {kind: off for kind in CHOOSABLE for field, off in kind.off if field == name}
    return any(kind().override({name: value}).leaves()[name] == off for kind, off in idle.items())


def _refusal(name: str, current: ObjectiveConfig) -> UnmaskError:
    takers = _either(kind.learned for kind in _takers(name))
    option = name.replace("_", "-")
    return UnmaskError(f"--{option} is for learning {takers}; this run learns {current.learned}: leave it out.")


def _either(words: Iterable[str]) -> str:
    *first, last = dict.fromkeys(words) or [""]
    return f"{', '.join(first)} or {last}" if first else last


# ------------------------------------------------------------------------------------------------ run.json


def read(values: Any, known: ObjectiveConfig) -> ObjectiveConfig:
    """The config of what `ObjectiveConfig.to_dict` returned, for a listed objective or one of the kinds in `known`.

    Raises UnmaskError for other values.
    """
    if not isinstance(values, Mapping):
        raise UnmaskError(f"An objective is described by its fields, not by {kind_of(values)}.")
    kinds: dict[str, Kind] = {kind.kind: kind for kind in (*CHOOSABLE, *(type(part) for part in known.all()))}
    kind = str(values.get("kind"))
    if kind not in kinds:
        raise unknown("objective", kind, kinds)
    made = kinds[kind]()
    plain = {name: value for name, value in values.items() if name != "kind"}
    for name, value in plain.items():
        if isinstance(value, Mapping):
            with in_part(name):
                plain[name] = read(value, known)
    return made.replace(**plain)


def of_version_0_1(values: Mapping[str, Any]) -> ObjectiveConfig:
    """The objective of a run of version 0.1, whose run.json had the fields of all objectives. Fields of other
    objectives are left out."""
    table, current = _choices(), default()
    reads = values.get("written", "none") == "none"
    for name in ("sentences", "replaced", "masked") if reads else ("written",):
        value = _value(name, values.get(name, "next" if name == "sentences" else name == "masked"), tuple(table[name]))
        current = table[name][value].chosen(current, name, value) or current
    taken = current.leaves()
    return current.override({name: value for name, value in values.items() if name in taken})


# ------------------------------------------------------------------------------------------------ reports


def terms() -> dict[str, Term]:
    """Name of a loss term -> its description in reports, for all listed objectives."""
    every = (*WithTeacher.added, *(term for kind in OBJECTIVES for term in kind.objective.terms))
    return {term.name: term for term in every}


def head_label(head: str) -> str:
    """The name of a head in messages."""
    labels = dict(pair for kind in OBJECTIVES for pair in kind.objective.head_labels)
    return labels.get(head, head)
