"""Heads by kind: the layer of a page that answers what an objective or a task asks."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from unmask.config import Config
from unmask.errors import unknown
from unmask.types import Head

METHOD = "_head"
"""A page answers a kind of head by its method of this name: `masked_token_head(head, token)`."""

ASKED = "asked"
"""Where a layer keeps what it answers."""


def head_of(page: Config, head: Head, token: nn.Embedding | None = None) -> nn.Module:
    """The layer of a page for a head; `asked_of` tells the head again.

    token  the table of token vectors, for outputs that are tied to it; None: the model reads no ids

    Raises UnmaskError for a kind that the page has no method for, naming those that it has.
    """
    make = getattr(page, head.kind + METHOD, None)
    if make is None:
        raise unknown(f"head of {_article(page)}", head.kind, kinds(page))
    layer: nn.Module = make(head, token)
    setattr(layer, ASKED, head)
    return layer


def asked_of(layer: nn.Module) -> Head | None:
    """What a layer of `head_of` answers; None for one that was made elsewhere."""
    found = getattr(layer, ASKED, None)
    return found if isinstance(found, Head) else None


def kinds(page: Config) -> list[str]:
    """The kinds of heads that a page has."""
    return [name.removesuffix(METHOD) for name in dir(page) if name.endswith(METHOD)]


def summarises(heads: Mapping[str, Head]) -> bool:
    """Whether any of these heads reads the summary of a sequence."""
    return any(head.of_sequence for head in heads.values())


def _article(page: Config) -> str:
    name = type(page).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
