"""EncoderDecoder: a model that writes one sequence while it reads another; State, what it keeps from token to token.

Shapes: B rows (sources), T tokens written, S tokens read, D width, V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.nn import Logits, logits_of, record_attention
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
        """Hypothesis i goes on from hypothesis rows_N[i]: the best of a beam, or those that are not finished.

        The `width` hypotheses of a source come from hypotheses of one source; which sources are left may change.
        """


@runtime_checkable
class Writer(Protocol):
    """What `generate` needs of a model: every encoder–decoder has it, and every causal language model."""

    def begin(self, batch: Batch, width: int = 1) -> State:
        """Read the sources of `batch` (the beginnings, for a language model), one a row, and get ready to write."""

    def next(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""


class EncoderDecoder(nn.Module, ABC):
    """Reads `batch.source`, writes `batch.tokens`: all places at once in training, one after another in `generate`.

    config  the page's config, which built this model and can build it again
    heads   name -> module from vectors [M, D] to answers [M, C]; "next" says which token follows
    """

    config: Config
    heads: nn.ModuleDict
    crossing: ClassVar[str] = "attention"
    """What stands in the names of the parts that attend to the source, and of no others."""

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, D] of `batch.tokens`, each of which sees the source and the tokens up to its own."""

    @abstractmethod
    def begin(self, batch: Batch, width: int = 1) -> State:
        """Read the sources `batch`, one a row, and get ready to write `width` hypotheses for each."""

    @abstractmethod
    def next(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor) -> Tensor:
        """Answers [M, C] of the head `name` at places of the flattened rows."""
        answers_MC: Tensor = self.heads[name](hidden_BTD.flatten(0, 1)[places_M])
        return answers_MC

    def logits(self, name: str, hidden_BTD: Tensor, places_M: Tensor) -> Tensor | Logits:
        """The same, but what would be a product over the vocabulary is left to the loss."""
        return logits_of(self.heads[name], hidden_BTD.flatten(0, 1)[places_M])

    def alignment(self, batch: Batch) -> Tensor:
        """How much each token that is guessed looks at each token of the source, [B, T, S], in the mean over layers and
        heads; a row sums to 1. Raises UnmaskError for a model without attention."""
        with record_attention(self) as maps:
            self(batch)
        found = [one.weights.mean(1) for one in maps if self.crossing in one.name]
        if not found:
            raise UnmaskError("This model has no attention, and so no alignment to show.")
        return torch.stack(found).mean(0)

    @property
    def beside(self) -> Mapping[str, EncoderDecoder]:
        """Models that are parts of this one while it is trained: none."""
        return {}

    @property
    def pooler(self) -> None:
        """No layer sums sequences up."""

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters by name, tied ones under their first name only."""
        return dict(self.named_parameters())

    @property
    def positions(self) -> int | None:
        """The most tokens that a sequence may have; None where nothing limits them."""
        return getattr(self.config, "length", None)

    @property
    def parameters_total(self) -> int:
        """Number of parameters, tied ones once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device
