"""Table: the names that one model's parameters and fields bear in Hugging Face folders, read in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from unmask.config import Config
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
    "multilabel": Head("sequence"),
    "regression": Head("sequence", 1),
    "choice": Head("choice", 1),
    "tagging": Head("token"),
    "crf": Head("transitions"),
    "span": Head("span", 2),
    "pairs": Head("vectors"),
}
"""Heads that have a name in the tables, of published classes and of folders of version 0.1 -> what they answer. Any
other head lies in a folder under its own name, and config.json says what it answers (`unmask_own_heads`)."""


def as_heads(outputs: Mapping[str, int]) -> dict[str, Head]:
    """Heads by their names in `PUBLISHED`, each with this number of outputs: `as_heads({"classification": 3})`."""
    return {name: replace(PUBLISHED[name], outputs=number) for name, number in outputs.items()}


OF_SEQUENCES = tuple(sorted(name for name, head in PUBLISHED.items() if head.of_sequence))


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

    def with_heads(self, names: Iterable[str]) -> Table[Page]:
        """The same with a place for heads that it does not name: each lies under its own name."""
        own = {name: ((f"heads.{name}", f"heads.{name}"),) for name in names if name not in self.heads}
        return replace(self, heads={**self.heads, **own}) if own else self
