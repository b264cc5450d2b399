"""Writer: a model that writes token by token; State, its state from token to token.

Shapes: B rows (sources), V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from unmask.types import Batch


class State(Protocol):
    """The state of a model while it writes, with which each step computes the new token alone.

    The hypotheses of a source are adjacent: hypothesis n belongs to source n // width. So values that depend on the
    source alone, such as its keys and values, are stored once for all its hypotheses.

    width  hypotheses of each source
    first  [N] int64: the token to feed first
    """

    width: int
    first: Tensor

    def select(self, rows_N: Tensor) -> None:
        """Put hypothesis rows_N[i] in place of hypothesis i, to keep the best of a beam or the unfinished ones.

        The `width` new hypotheses of a source must come from hypotheses of one source; sources may be left out.
        """


class Writer(Protocol):
    """The methods that `generate` calls. Every `Model` has them; other classes inherit the defaults."""

    @property
    def training(self) -> bool:
        """Whether the model is in training mode, where it would write with dropout."""
        return False

    @property
    def positions(self) -> int | None:
        """The most tokens that a sequence may have; None where nothing limits them."""
        return None

    @property
    def continues_prompt(self) -> bool:
        """Whether the text that it writes continues its source, as with a language model; else they are two texts."""
        return False

    def room(self, lengths_B: Tensor) -> Tensor | None:
        """[B]: the most tokens that fit after prompts of these lengths; None where nothing limits them."""
        return None

    def prefill(self, batch: Batch, width: int = 1) -> State:
        """Read the sources of `batch` (the prompts, for a language model), one per row, and prepare to write `width`
        hypotheses for each."""

    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
