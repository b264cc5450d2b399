"""EncoderDecoder: a model that reads one sequence and writes another; EncoderDecoderConfig, its config.

Shapes: B rows (sources), T tokens written, S tokens read, D width, V vocabulary; N = B * width hypotheses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.nn import Embedding, Token, record_attention
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig, ABC):
    """The base of the configs of encoder–decoders.

    start, end  ids of the token that starts a target, and of the one that ends it
    """

    padding: int
    start: int
    end: int

    reads_pictures = False  # whether the sources are pictures

    @property
    def offers(self) -> frozenset[str]:
        return frozenset()

    def refuse_pooler(self, pooler: bool) -> None:
        """Raise UnmaskError for a model that is to have a pooler."""
        if pooler:
            raise UnmaskError(f"A {type(self).__name__} writes its answers and has no pooler.")


class TextToTextConfig(EncoderDecoderConfig, ABC):
    """The base of the configs of encoder–decoders that read a text or a picture and write a text, and how they are
    built of parts."""

    @abstractmethod
    def tables(self) -> tuple[Token, Token]:
        """The tables of the token vectors of the source and of the target; one table twice where they share it."""

    @abstractmethod
    def embedding(self, token: Token) -> Embedding:
        """The embedding of tokens and their positions."""

    def source_embedding(self, token: Token) -> Embedding:
        """The embedding of the source: as that of the target."""
        return self.embedding(token)

    @abstractmethod
    def encoder(self) -> nn.Module:
        """The layers that read the source."""

    @abstractmethod
    def decoder(self) -> nn.Module:
        """The layers that write the target from the outputs of the encoder."""

    @abstractmethod
    def assemble(self, **parts: Any) -> EncoderDecoder:
        """A model of these parts: source, target, encoder, decoder and heads."""

    def build(
        self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> EncoderDecoder:
        """As `ModelConfig.build`; the default head is the next token, and there is no pooler. Raises UnmaskError for
        parts that do not go together."""
        self.refuse_pooler(pooler)
        heads = {"next": Head("next_token")} if heads is None else heads
        read, written = self.tables()
        model = self.assemble(
            source=self.source_embedding(read),
            target=self.embedding(written),
            encoder=self.encoder(),
            decoder=self.decoder(),
            heads={name: head_of(self, head, written) for name, head in heads.items()},
        )
        if seed is not None:
            self.initialise(model, seed)
        return model


class EncoderDecoder(Model):
    """Reads `batch.source`, writes `batch.tokens`: all places at once in training, one after another in `generate`.

    source, target    tokens and positions -> vectors; source is None where the sources are vectors
    encoder, decoder  the layers that read and those that write; encoder is None where the sources are vectors
    heads             name -> module from vectors [M, D] to outputs [M, C]; "next" predicts the next token
    """

    config: EncoderDecoderConfig
    source: Embedding | None
    target: Embedding
    encoder: nn.Module | None
    decoder: nn.Module
    crossing: ClassVar[str] = "attention"
    """A word in the names of the parts that attend to the source, and of no other parts."""

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
        """The attention of each predicted token to each token of the source, [B, T, S], averaged over layers and
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


class TextToText(EncoderDecoder):
    """An encoder, a decoder, and an embedding before each; the two embeddings may share their table."""

    source: Embedding
    encoder: nn.Module

    def __init__(
        self,
        config: TextToTextConfig,
        *,
        source: Embedding,
        target: Embedding,
        encoder: nn.Module,
        decoder: nn.Module,
        heads: Mapping[str, nn.Module],
    ) -> None:
        super().__init__(config)
        self.source, self.target = source, target
        self.encoder, self.decoder = encoder, decoder
        self.heads = nn.ModuleDict(dict(heads))
