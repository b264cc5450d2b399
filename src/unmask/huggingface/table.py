"""Table: the names that one model's parameters and fields bear in Hugging Face folders, read in both directions; Part,
what a folder of one system holds that names cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor

from unmask.config import Config
from unmask.huggingface.kinds import SINGLE_STACK, Kind
from unmask.huggingface.processors import TOKENS, ProcessorFiles
from unmask.types import Head

Page = TypeVar("Page", bound=Config, covariant=True)

Names = tuple[tuple[str, str], ...]
"""(ours, theirs) pairs. Each names a module (all its parameters) or a parameter; `{}` stands for the
number of a layer, or of a part in it."""


PUBLISHED: Mapping[str, Head] = {
    "mlm": Head("masked_token"),
    "next": Head("next_token"),
    "words": Head("words"),
    "nsp": Head("sequence", 2, pretraining=True),
    "sop": Head("sequence", 2, pretraining=True),
    "rtd": Head("token", 1, pretraining=True),
    "classification": Head("sequence"),
    "image_classification": Head("sequence"),
    "multilabel": Head("sequence"),
    "regression": Head("sequence", 1),
    "choice": Head("choice", 1),
    "tagging": Head("token"),
    "crf": Head("transitions"),
    "span": Head("span", 2),
    "pairs": Head("vectors"),
    "patches": Head("token", pretraining=True),
    "pixels": Head("pixels", pretraining=True),
}
"""Heads that have a name in the tables, of published classes and of folders of version 0.1 -> what they answer. Any
other head lies in a folder under its own name, and config.json says what it answers (`unmask_own_heads`)."""


def as_heads(outputs: Mapping[str, int]) -> dict[str, Head]:
    """Heads by their names in `PUBLISHED`, each with this number of outputs: `as_heads({"classification": 3})`."""
    return {name: replace(PUBLISHED[name], outputs=number) for name, number in outputs.items()}


OF_SEQUENCES = tuple(sorted(name for name, head in PUBLISHED.items() if head.of_sequence))


class Part:
    """What a folder of one system holds that names cannot say. A table has as many parts as it needs, and asks them in
    order; here, every method leaves things as they are.

    `place` is the path of config.json, for error messages. All methods that read raise UnmaskError for what the page
    does not implement.
    """

    def obstacles(self, config: Any) -> Sequence[str]:
        """What of a config such a folder cannot say, such as "eps = 1e-06"."""
        return ()

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        """The values of config.json, as the fields of the table name them."""
        return values

    def deduce(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], place: Path) -> Mapping[str, Any]:
        """Fields of the page that the fields of the table do not give: from config.json as it is stored, or from the
        weights."""
        return {}

    def write(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """config.json, from what the table and the parts before this one write."""
        return values

    def restore(self, config: Any, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        """The tensors of a folder under the names of the table's rules, without those that are computed."""
        return tensors

    def store(self, config: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors as a folder has them, from those under the names of the table's rules."""
        return tensors

    def files(self, config: Any, settings: Mapping[str, Any]) -> Mapping[str, str]:
        """Name -> content of further files of the folder."""
        return {}

    def settings(self, config: Any, values: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        """What a folder that another program wrote says in place of `Loaded.settings`."""
        return {}


@dataclass(frozen=True)
class Table(Generic[Page]):
    """How one page reads and writes a family of Hugging Face folders.

    model_type     as in config.json
    config         the page's config class
    prefix         what stands before the trunk's names where a head is saved beside it
    fields         theirs -> ours, for config.json
    fixed          theirs -> the only value of config.json that this page implements
    trunk, pooler  names with the prefix
    heads          head -> names
    architectures  class name in config.json -> the heads it has
    copies         theirs -> theirs: tied parameters that older folders store twice
    written        names of copies that a folder has too, for readers that know the parameter by them alone
    shift          theirs -> by how much their number is larger than ours
    absent         theirs -> the default of the reference, where the page has another: what an absent field means
    nullable       theirs that may be null though ours may not: the page's default then stands
    packed         their module -> names of the maps that lie side by side in it, along what they give; the rules name
                   each of them as if it were a module of that one: `attn.c_attn.query`
    transposed     their modules whose weight is stored as [inputs, outputs]
    buffers        their names of what is no parameter, and is passed over
    ignored        theirs that change no number of this model, beside `config.IRRELEVANT`
    required       ours -> the only value that such a folder can mean
    parts          what names cannot say
    variants       other tables of the same model type. `marks` says which one a config.json is read by; a model is
                   written by the first one that has no obstacle
    marks          theirs -> the value by which config.json chooses this variant
    kind           what those who open the folder may ask for
    processor      which processor its folders have, and how its files are read and written
    """

    model_type: str
    config: type[Page]
    prefix: str
    fields: Mapping[str, str]
    fixed: Mapping[str, object]
    trunk: Names
    pooler: Names
    heads: Mapping[str, Names]
    architectures: Mapping[str, frozenset[str]]
    copies: Mapping[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    shift: Mapping[str, int] = field(default_factory=dict)
    absent: Mapping[str, object] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset({"pad_token_id"})
    packed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    required: Mapping[str, object] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    variants: tuple[Table[Any], ...] = ()
    marks: Mapping[str, object] = field(default_factory=dict)
    kind: Kind[Any] = SINGLE_STACK
    processor: ProcessorFiles[Any] = TOKENS

    def obstacles(self, config: Config) -> list[str]:
        """What keeps a model of this config from being written as such a folder; empty where nothing does."""
        if type(config) is not self.config:
            return [f"the wiring of {type(config).__name__}"]
        other = {name: getattr(config, name) for name, value in self.required.items() if getattr(config, name) != value}
        found = [f"{name} = {value!r}" for name, value in other.items()]
        return found + [one for part in self.parts for one in part.obstacles(config)]

    def with_heads(self, names: Iterable[str]) -> Table[Page]:
        """The same with a place for heads that it does not name: each lies under its own name."""
        own = {name: ((f"heads.{name}", f"heads.{name}"),) for name in names if name not in self.heads}
        return replace(self, heads={**self.heads, **own}) if own else self
