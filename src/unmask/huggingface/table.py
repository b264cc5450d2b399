"""Table: the names that one model's parameters and fields bear in Hugging Face folders, read in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from unmask.config import Config

Page = TypeVar("Page", bound=Config, covariant=True)

Names = tuple[tuple[str, str], ...]
"""(ours, theirs) pairs. Each names a module (all its parameters) or a parameter; `{}` stands for the
number of a layer, or of a part in it."""


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
