"""Writer: a model that writes token by token; State, what it keeps from token to token.

Shapes: B rows (sources), V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from unmask.types import Batch


class State(Protocol):
    """What a model keeps of the sequences that it writes, so that a token costs the same however many came before.

    Hypotheses of one source lie together: number n belongs to source n // width, so what is kept of the source alone
    (its keys and values, say) is held once for all of them.

    width  hypotheses of each source
    first  [N] int64: the token to feed before anything is written
    """

    width: int
    first: Tensor

    def select(self, rows_N: Tensor) -> None:
        """Hypothesis i continues from hypothesis rows_N[i]: the best of a beam, or those that are not finished.

        The `width` hypotheses of a source come from hypotheses of one source; which sources are left may change.
        """


class Writer(Protocol):
    """What `generate` needs of a model. Every `Model` has these methods; other classes inherit the defaults."""

    @property
    def training(self) -> bool:
        """Whether it would write with dropout."""
        return False

    @property
    def positions(self) -> int | None:
        """The most tokens that a sequence may have; None where nothing limits them."""
        return None

    @property
    def continues_prompt(self) -> bool:
        """Whether what it writes continues from its source, as a language model's does; else the two are apart."""
        return False

    def room(self, lengths_B: Tensor) -> Tensor | None:
        """[B]: the most tokens that fit behind prompts of these lengths; None where nothing limits them."""
        return None

    def prefill(self, batch: Batch, width: int = 1) -> State:
        """Read the sources (the prompts, for a language model) of `batch`, one a row, and get ready to write `width`
        hypotheses for each."""

    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
