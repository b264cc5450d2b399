"""Heads by kind: a page builds the output layer for each kind of head that objectives and tasks use."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from unmask.config import Config
from unmask.errors import unknown
from unmask.types import Head

METHOD = "_head"
"""A page builds a kind of head with its method of this suffix: `masked_token_head(head, token)`."""

ASKED = "asked"
"""The attribute of a layer that holds its `Head`."""


def head_of(page: Config, head: Head, token: nn.Embedding | None = None) -> nn.Module:
    """Build the layer of a page for a head; `asked_of` returns the head of the layer.

    token  the table of token vectors, for outputs that are tied to it; None for a model that reads no ids

    Raises UnmaskError, with the kinds that the page has, for a kind that it has no method for.
    """
    make = getattr(page, head.kind + METHOD, None)
    if make is None:
        raise unknown(f"head of {_article(page)}", head.kind, kinds(page))
    layer: nn.Module = make(head, token)
    setattr(layer, ASKED, head)
    return layer


def asked_of(layer: nn.Module) -> Head | None:
    """The head that `head_of` built a layer for; None for a layer that was made elsewhere."""
    found = getattr(layer, ASKED, None)
    return found if isinstance(found, Head) else None


def kinds(page: Config) -> list[str]:
    """The kinds of heads that a page has."""
    return [name.removesuffix(METHOD) for name in dir(page) if name.endswith(METHOD)]


def summarises(heads: Mapping[str, Head]) -> bool:
    """Whether any of these heads reads the summary of a sequence."""
    return any(head.of_sequence for head in heads.values())


def for_tasks(heads: Mapping[str, Head]) -> bool:
    """Whether there are heads, and none of them is of pre-training."""
    return bool(heads) and not any(head.pretraining for head in heads.values())


def _article(page: Config) -> str:
    name = type(page).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
