"""EncoderDecoder: a model that writes one sequence while it reads another; EncoderDecoderConfig, its numbers.

Shapes: B rows (sources), T tokens written, S tokens read, D width, V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.model import Model, ModelConfig
from unmask.nn import Embedding, Token, record_attention
from unmask.types import Batch


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig, ABC):
    """What the numbers of encoder–decoders have in common.

    start, end  ids of the token that starts a target, and of the one that ends it
    """

    padding: int
    start: int
    end: int

    @property
    def offers(self) -> frozenset[str]:
        return frozenset()

    def refuse_pooler(self, pooler: bool) -> None:
        """Raise UnmaskError where a model is asked to sum sequences up."""
        if pooler:
            raise UnmaskError(f"{type(self).__name__} answers in words and has no pooler.")


class EncoderDecoder(Model):
    """Reads `batch.source`, writes `batch.tokens`: all places at once in training, one after another in `generate`.

    source, target    tokens and positions -> vectors; None where the sources are vectors
    encoder, decoder  the layers that read and those that write; None as above
    heads             name -> module from vectors [M, D] to answers [M, C]; "next" says which token follows
    """

    config: EncoderDecoderConfig
    source: Embedding | None
    target: Embedding
    encoder: nn.Module | None
    decoder: nn.Module
    crossing: ClassVar[str] = "attention"
    """What stands in the names of the parts that attend to the source, and of no others."""

    @property
    def reads_source(self) -> bool:
        return True

    @property
    def causal(self) -> bool:
        return True

    @property
    def stacks(self) -> Mapping[str, nn.Module]:
        return {"decoder": self.decoder} if self.encoder is None else {"encoder": self.encoder, "decoder": self.decoder}

    @property
    def input_embedding(self) -> nn.Module | None:
        return self.source

    @property
    def token_table(self) -> Token | None:
        return self.source.token if self.source is not None and isinstance(self.source.token, Token) else None

    def alignment(self, batch: Batch) -> Tensor:
        """How much each token that is guessed looks at each token of the source, [B, T, S], in the mean over layers and
        heads; a row sums to 1. Raises UnmaskError for a model without attention."""
        with record_attention(self) as maps:
            self(batch)
        found = [one.weights.mean(1) for one in maps if self.crossing in one.name]
        if not found:
            raise UnmaskError("This model has no attention, and so no alignment to show.")
        return torch.stack(found).mean(0)

    def first(self, rows: int, width: int, device: torch.device) -> Tensor:
        """[N]: the token that starts each of the `width` hypotheses of each row."""
        return torch.full((rows * width,), self.config.start, device=device)
