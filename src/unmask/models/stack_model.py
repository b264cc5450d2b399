"""StackModel: an embedding, a stack of layers and named heads, the wiring of all models but encoder–decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.model import Model, ModelConfig
from unmask.nn import Mask, Stack, Token
from unmask.nn.sequences import means
from unmask.types import Batch


class StackModel(Model):
    """Rows in, hidden states out.

    embedding  tokens, segments, positions and raw values -> vectors
    stack      the layers, in its `blocks`
    pooler     dense + tanh over the first token, or None where no head needs it
    heads      name -> module from vectors [M, D] to outputs [M, C]
    mask       which tokens of a sequence see which; no token sees another sequence
    """

    embedding: nn.Module
    stack: nn.Module

    def __init__(
        self,
        config: ModelConfig,
        embedding: nn.Module,
        stack: nn.Module,
        *,
        pooler: nn.Module | None = None,
        heads: Mapping[str, nn.Module] | None = None,
        mask: Mask | None = None,
    ) -> None:
        super().__init__(config)
        self.embedding, self.stack, self.pooler = embedding, stack, pooler
        self.mask = mask or Mask()
        self.heads = nn.ModuleDict(dict(heads or {}))

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, D] of the last block. Raises UnmaskError for rows longer than the positions."""
        longest = self.positions
        if longest is not None and batch.positions is None and batch.tokens.shape[1] > longest:
            raise UnmaskError(
                f"A sequence of {batch.tokens.shape[1]} tokens does not fit this model, which has {longest} positions. "
                f"Shorten it, or set --length {longest} or less."
            )
        x_BTD = self.embedding(batch.tokens, batch.segments, batch.positions, batch.signal)
        mask = self.mask & Mask(documents=batch.documents, boundaries=batch.boundaries)
        hidden_BTD: Tensor = self.stack(x_BTD, mask=mask, positions_BT=batch.positions)
        return hidden_BTD

    @property
    def sequences_apart(self) -> bool:
        return self.transformer is not None and not self.causal

    @property
    def reads_stack_whole(self) -> bool:
        """Whether the forward pass calls the stack and no layers of it, so that one with the same outputs can replace
        it."""
        return type(self) is StackModel

    @property
    def stacks(self) -> Mapping[str, nn.Module]:
        return {"decoder" if self.causal else "encoder": self.stack}

    @property
    def transformer(self) -> Stack | None:
        return self.stack if isinstance(self.stack, Stack) else None

    @property
    def input_embedding(self) -> nn.Module:
        return self.embedding

    @property
    def token_table(self) -> Token | None:
        table = getattr(self.embedding, "token", None)
        return table if isinstance(table, Token) else None

    def looked(self, batch: Batch) -> Any:
        """Where the model looked in each sequence; None for one without attention that adds up to its answer."""
        return None

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        if self.transformer is None:
            return super().hidden_states(batch)
        stack, states = self.transformer, list[Tensor]()

        def before(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            if not states:
                states.append(given[0])

        def after(_: nn.Module, __: object, found_BTD: Tensor) -> None:
            states.append(found_BTD)

        handles = [stack.blocks[stack.order[0]].register_forward_pre_hook(before)]
        handles += [block.register_forward_hook(after) for block in stack.blocks]
        try:
            self(batch)
        finally:
            for handle in handles:
                handle.remove()
        return states


class MeanModel(StackModel):
    """A model whose classifiers of sequences read the mean of all tokens."""

    reads_stack_whole = True

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """The mean state [M, D] of the sequences that hold these places; without a batch, each row is one."""
        return means(hidden_BTD, places_M, None if batch is None else batch.documents)
