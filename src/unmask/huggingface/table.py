"""Table: the names of one model's parameters and fields in Hugging Face folders, for reading and for writing. Part:
the conversions for one system that a table of names cannot express."""

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
"""Pairs (name in unmask, name in the folder). Each names a module (all its parameters) or a parameter; `{}` stands for
the number of a layer, or of a part in it."""


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
    "contrastive": Head("quantised", pretraining=True),
    "ctc": Head("token"),
    "speech_classification": Head("sequence"),
    "verification": Head("embedding"),
    "speakers": Head("prototypes"),
}
"""The heads that the tables name, with their kinds: those of published classes, and those of folders of version 0.1.
Any other head is stored under its own name, and config.json describes it (`unmask_own_heads`)."""


def as_heads(outputs: Mapping[str, int]) -> dict[str, Head]:
    """The heads of `PUBLISHED` with these names and numbers of outputs: `as_heads({"classification": 3})`."""
    return {name: replace(PUBLISHED[name], outputs=number) for name, number in outputs.items()}


OF_SEQUENCES = tuple(sorted(name for name, head in PUBLISHED.items() if head.kind in ("sequence", "choice")))


class Part:
    """A conversion for one system that a table of names cannot express. A table has any number of parts and applies
    them in order. The methods of this base class change nothing.

    `place` is the path of config.json, for error messages. All methods that read raise UnmaskError for content that the
    page does not implement.
    """

    def obstacles(self, config: Any) -> Sequence[str]:
        """The settings of a config that such a folder cannot express, such as "eps = 1e-06"."""
        return ()

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        """Convert the values of config.json to the fields that the table names."""
        return values

    def deduce(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], place: Path) -> Mapping[str, Any]:
        """The fields of the page that the table does not name, from the stored config.json or from the weights."""
        return {}

    def write(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert the values that the table and the previous parts write to config.json."""
        return values

    def restore(self, config: Any, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        """Convert the tensors of a folder to the names of the table's rules, without those that the model computes."""
        return tensors

    def store(self, config: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert tensors with the names of the table's rules to the tensors of a folder."""
        return tensors

    def computed(self) -> Sequence[str]:
        """The keys of tensors of a folder that the model computes, and that are no parameters of it."""
        return ()

    def files(self, config: Any, settings: Mapping[str, Any], labels: Sequence[str]) -> Mapping[str, str]:
        """Further files of the folder: name -> content."""
        return {}

    def described(self, settings: Mapping[str, Any], labels: Sequence[str]) -> Mapping[str, Any]:
        """Further fields of config.json, which depend on the settings and the labels."""
        return {}

    def labels(self, values: Mapping[str, Any], folder: Path) -> Sequence[str]:
        """The names of the outputs, where a folder has them outside of config.json; empty: it has none."""
        return ()

    def settings(self, config: Any, values: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        """The settings for `Loaded.settings` in a folder that another program wrote."""
        return {}


@dataclass(frozen=True)
class Table(Generic[Page]):
    """How one page reads and writes Hugging Face folders of one model type. A *key* is the name of a parameter or
    module in the folder, a *field* a name in config.json.

    model_type     the value of the field model_type
    config         the page's config class
    prefix         the prefix of the trunk's keys in a folder that also holds a head
    fields         field -> name in the page's config
    fixed          field -> the only value that this page implements
    trunk, pooler  names, with the prefix
    heads          head -> names
    architectures  class name in config.json -> the heads of that class
    copies         key -> key of the original: tied parameters that older folders store twice
    written        copies that are written too, for readers that look up the parameter by this key only
    shift          field -> the number to subtract from its value to get the value of the page
    absent         field -> the value of an absent field: the default of the reference where the page's default differs
    nullable       fields that may be null although the page's config allows no None: the page's default then applies
    packed         key of a module -> names of the linear maps that it concatenates along the outputs; the rules name
                   each map as a submodule: `attn.c_attn.query`
    transposed     keys of modules that store their weight as [inputs, outputs]
    buffers        keys of buffers, which are ignored
    ignored        fields that do not change the outputs of this model, in addition to `config.IRRELEVANT`
    required       name in the page's config -> the only value that such a folder can express
    parts          conversions that names cannot express
    variants       other tables of the same model type. `marks` selects the one that reads a config.json; the first one
                   without an obstacle writes a model
    marks          field -> the value in config.json that selects this variant
    gguf           the architecture of llama.cpp that computes this model; "": none does
    kind           the kind of model that the folder holds
    processor      the class of the processor in these folders, and how its files are read and written
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
    gguf: str = ""
    kind: Kind[Any] = SINGLE_STACK
    processor: ProcessorFiles[Any] = TOKENS

    def obstacles(self, config: Config) -> list[str]:
        """The reasons why this table cannot write a model of this config; empty if it can."""
        if type(config) is not self.config:
            return [f"the wiring of {type(config).__name__}"]
        other = {name: getattr(config, name) for name, value in self.required.items() if getattr(config, name) != value}
        found = [f"{name} = {value!r}" for name, value in other.items()]
        return found + [one for part in self.parts for one in part.obstacles(config)]

    def with_heads(self, names: Iterable[str]) -> Table[Page]:
        """This table extended by the heads that it does not name, each stored under its own name."""
        own = {name: ((f"heads.{name}", f"heads.{name}"),) for name in names if name not in self.heads}
        return replace(self, heads={**self.heads, **own}) if own else self
