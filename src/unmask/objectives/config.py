"""ObjectiveConfig: the config of one objective, with its fields and what it requires of models and data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from unmask.config import Config
from unmask.data.files.corpora import Folder
from unmask.data.processor import Processor
from unmask.data.text.corpus import Corpus
from unmask.errors import UnmaskError
from unmask.models.model import Model, ModelConfig
from unmask.objectives.objective import Objective

Kind = TypeVar("Kind", bound="ObjectiveConfig")
Shown = Callable[[], AbstractContextManager[Callable[[str, int, int | None], None]]]


class Data(Protocol):
    """A folder to pre-train on, of any modality."""

    @property
    def folder(self) -> Path | Folder:
        """Where it is."""

    @property
    def processor(self) -> Processor[Any]:
        """The processor that reads its items."""

    @property
    def checksum(self) -> str:
        """The checksum of all that is read from it, wherever the folder is."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences on what could not be read from it so far, for the person who trains."""

    def split(self, name: str, /) -> Any:
        """The part "train" or "heldout", as `Objective.stream` and `Objective.evaluation_rows` take it."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig(Config):
    """Base of the configs of objectives. A subclass has the fields of its objective, and these class attributes:

    kind      its name in run.json
    learned   what is learned, as the end of "this run learns ..."
    example   a recipe with this objective, where there is one
    objective the class that `build` makes; it describes its loss terms and heads
    requires  what a model must offer (`ModelConfig.offers`)
    own_heads heads that no other objective trains: a folder with one of them was trained by this objective
    choices   (option of the command line, value) pairs that choose this objective
    off       (field, value) pairs without effect, which runs of other objectives accept too
    optional  whether a folder whose model does not support it is trained by the default objective of the model instead
    plain     whether its data may be a plain folder of files (`opens`), not only a corpus that was built from one
    pipeline  what its models are for, by the name of the Hugging Face hub and `transformers.pipeline`; "" without one
    command   the verb of the command line that uses its models, and arguments: "[MASK]" stands for the mask of a
              tokenizer. None: a model must be fine-tuned first
    """

    kind: ClassVar[str]
    learned: ClassVar[str]
    example: ClassVar[str] = ""
    objective: ClassVar[type[Objective]]
    requires: ClassVar[frozenset[str]] = frozenset()
    own_heads: ClassVar[frozenset[str]] = frozenset()
    choices: ClassVar[tuple[tuple[str, str], ...]] = ()
    off: ClassVar[tuple[tuple[str, object], ...]] = ()
    optional: ClassVar[bool] = False
    plain: ClassVar[bool] = False
    pipeline: ClassVar[str] = "feature-extraction"
    command: ClassVar[tuple[str, str] | None] = ("embed", "--file texts.txt --out vectors.npy")

    # ---------------------------------------------------------------------------------------- used by a run

    def build(self, processor: Any, splits: Sequence[Any] = (), words: Sequence[str] = ()) -> Objective:
        """The objective.

        processor  as `processor` returns it: for an objective on texts, a tokenizer
        splits     the training part of each corpus
        words      the words that the head of a folder predicts (`huggingface.Loaded.words`); empty for a new head

        Raises UnmaskError for fields out of range.
        """
        raise NotImplementedError(f"{type(self).__name__} builds no objective.")

    @classmethod
    def opens(cls, folder: Path | str) -> Data:
        """The data of a folder for this objective: a corpus of texts, unless a subclass overrides this.

        Raises UnmaskError for a folder that holds something else, or is damaged.
        """
        return Corpus(folder)

    def stand_in(self) -> str:
        """The name of the data of a run without any, which `make` writes; "" for the embedded texts."""
        return ""

    def make(self, folder: Path) -> None:
        """Write the data of `stand_in`; an existing folder stays as it is."""

    def processor(self, processor: Any) -> Any:
        """The processor of a corpus with additions that this objective needs, such as entries of a vocabulary."""
        return processor

    def model_fields(self, processor: Any) -> dict[str, int]:
        """The fields of a new model that its processor decides: for texts, the vocabulary's size and padding."""
        own = self.processor(processor)
        return {"vocabulary": own.size, "padding": own.pad}

    def prepared(
        self, corpora: Sequence[Data], processor: Any, out: Path, say: Callable[[str], None], progress: Shown
    ) -> Self:
        """This config with what its objective computes from the corpora before a run, which is kept in the folder `out`
        of the run and computed once.

        say       shows a sentence          progress  a context with a function (what, number done, total or None)
        """
        return self

    def model_settings(self) -> dict[str, Any]:
        """Fields of the model that record how it was trained by this objective. They follow the run, also where it
        starts from a folder with others."""
        return {}

    def check_data(self, splits: Sequence[Any]) -> list[str]:
        """Sentences, with advice, on the training part of the corpora where this objective learns little from it.
        Raises UnmaskError where it learns nothing."""
        return [said for part in self._parts().values() for said in part.check_data(splits)]

    def check_folder(self, model: Model, words: Sequence[str], folder: object) -> None:
        """Raises UnmaskError where a folder lacks what this objective needs to train its model further."""

    def mismatch(self, corpus: object, folder: object) -> str:
        """A sentence: the processor of a corpus differs from that of the folder that a run starts from."""
        return (
            f"The corpus {corpus} was not built with the tokenizer of {folder}; build it again with: unmask corpus "
            f"build --tokenizer {folder} --data ... --out ..."
        )

    def check_changes(self, usual: ObjectiveConfig, folder: object) -> None:
        """Raises UnmaskError where this differs from `usual` in a field that the weights of a folder fix."""

    # ---------------------------------------------------------------------------------------- objectives with parts

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """The objective of a run with objective `current` after `--option value`, which chooses this one.

        By default this replaces `current`. None where the two do not go together.
        """
        return current if current.part(cls) is not None else cls().like(current)

    @classmethod
    def continued(cls, current: ObjectiveConfig, heads: Collection[str]) -> ObjectiveConfig:
        """The objective of a run with objective `current` that continues from a folder with these heads."""
        return current

    def of_model(self, model: ModelConfig) -> Self:
        """This config with the fields that it shares with the model of the folder that a run starts from."""
        return self

    def settled(self, heads: Collection[str]) -> Self:
        """This config with all choices made that depend on the heads of the folder that a run starts from."""
        return replace(self, **{name: part.settled(heads) for name, part in self._parts().items()})

    def needs(self) -> frozenset[str]:
        """What a model must offer for this objective and its parts."""
        return self.requires.union(*(part.needs() for part in self._parts().values()))

    def fits(self, model: ModelConfig) -> bool:
        """Whether the model offers all that this objective needs."""
        return self.needs() <= model.offers

    def all(self) -> Iterator[ObjectiveConfig]:
        """This config, and all that it contains."""
        yield self
        for part in self._parts().values():
            yield from part.all()

    def part(self, kind: type[Kind]) -> Kind | None:
        """The config of this class that this is or contains; None where there is none."""
        return next((one for one in self.all() if isinstance(one, kind)), None)

    def with_part(self, name: str, part: ObjectiveConfig) -> Self | None:
        """This config with `part` in the field of this name, here or within a part; None where there is none."""
        for own, held in self._parts().items():
            changed = part if own == name else held.with_part(name, part)
            if changed is not None:
                return replace(self, **{own: changed})
        return None

    def like(self, other: ObjectiveConfig) -> Self:
        """This config with the values of `other` in the fields that both have."""
        values = other.leaves()
        return self.override({place: values[leaf(place)] for place in self.places() if leaf(place) in values})

    def leaves(self) -> dict[str, Any]:
        """Name -> value of each plain field, those of parts included."""
        return {leaf(place): value for place, value in self.places().items()}

    def names(self) -> set[str]:
        """The names of all fields, those of parts included."""
        return {field.name for one in self.all() for field in fields(one)}

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **super().to_dict()}

    def replace(self, **changes: Any) -> Self:
        """As `Config.replace`; if `changes` come from `to_dict`, their kind must be that of this config."""
        if changes.pop("kind", self.kind) != self.kind:
            raise UnmaskError(f"The fields of another objective do not fit {type(self).__name__}.")
        return super().replace(**changes)

    def _parts(self) -> dict[str, ObjectiveConfig]:
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in held.items() if isinstance(value, ObjectiveConfig)}


def leaf(place: str) -> str:
    """The last part of a dotted name."""
    return place.rpartition(".")[2]
