"""Model: what all models have in common, whatever their parts."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import asked_of
from unmask.models.model_config import ModelConfig
from unmask.models.writer import State
from unmask.nn import Logits, Stack, Token, logits_of
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.stack_model import StackModel


class Model(nn.Module, ABC):
    """Rows in, hidden states out; `answer` runs a head at the places that need one. What all models have in common.

    config  the page's config, which built this model and can build it again
    heads   name -> module from vectors [M, D] to answers [M, C]
    pooler  what sums a sequence up for the heads that answer for it; None where the model has none
    """

    config: ModelConfig
    heads: nn.ModuleDict
    pooler: nn.Module | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.pooler = config, None

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, D] of `batch.tokens`. Raises UnmaskError for rows longer than the positions."""

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """Answers [M, C] of the head `name` at places of the flattened rows.

        batch  the rows that the hidden states are of; heads that answer for a sequence may need its layout (`summary`)

        Only these places are computed: masked-language modelling needs the output layer at 15 % of them.
        """
        answers_MC: Tensor = self.heads[name](self.head_inputs(name, hidden_BTD, places_M, batch))
        return answers_MC

    def logits(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor | Logits:
        """The same, but what would be a product over the vocabulary is left to the loss."""
        return logits_of(self.heads[name], self.head_inputs(name, hidden_BTD, places_M, batch))

    def head_inputs(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """What the head `name` reads, [M, D]: the states at these places, or summaries of the sequences there."""
        if name in self.of_sequences:
            return self.summary(hidden_BTD, places_M, batch)
        return hidden_BTD.flatten(0, 1)[places_M]

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """What stands for the sequences that begin at these places, [M, D]: here the pooled state of their first token.

        batch  the rows; needed by models whose first token has not seen the sequence
        """
        x_MD = hidden_BTD.flatten(0, 1)[places_M]
        return x_MD if self.pooler is None else self.pooler(x_MD)

    @property
    def of_sequences(self) -> list[str]:
        """Names of the heads that answer for a whole sequence, in alphabetical order."""
        found = ((name, asked_of(layer)) for name, layer in self.heads.items())
        return sorted(name for name, head in found if head is not None and head.of_sequence)

    # -- what a model reads, and its parts

    @property
    def reads_source(self) -> bool:
        """Whether it reads `batch.source` while it writes `batch.tokens`, as encoder–decoders do."""
        return False

    @property
    def causal(self) -> bool:
        """Whether a token sees only itself and the tokens before it."""
        return False

    @property
    def sequences_apart(self) -> bool:
        """Whether the states of a sequence depend on the trunk and on its own tokens alone, so that those of a frozen
        trunk may be kept."""
        return False

    @property
    def stacks(self) -> Mapping[str, nn.Module]:
        """Its stacks of layers: "encoder", where every token sees every other, "decoder", where it sees those before
        it."""
        return {}

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The layers of all stacks, the lowest first; one that runs several times is there once."""
        stacks = (getattr(stack, "blocks", nn.ModuleList([stack])) for stack in self.stacks.values())
        return [block for blocks in stacks for block in blocks]

    @property
    def transformer(self) -> Stack | None:
        """The layers, where they are one stack of blocks that a whole row passes one after the other; None for what
        reads token by token, in segments, or with two stacks."""
        return None

    @property
    def input_embedding(self) -> nn.Module | None:
        """What turns the tokens that it reads into vectors; None where it reads vectors."""
        return None

    @property
    def token_table(self) -> Token | None:
        """The table of vectors of the tokens that it reads; None where there is none, as where words are spelled."""
        return None

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        """What goes into the first layer and what comes out of each, L + 1 tensors [B, T, D].

        Raises UnmaskError for a model whose layers are no blocks.
        """
        raise UnmaskError("Hidden states of layers are those of a Transformer or an ELMo; this model is neither.")

    def direction(self, hidden_BTE: Tensor, number: int) -> Tensor:
        """[B, T, D]: what it has read from the left (0) or from the right (1) alone. Raises UnmaskError for a model
        that does not keep the two apart."""
        raise UnmaskError("Words are guessed from both sides by an ELMo: take elmo-tiny.")

    def units(self, tokens_BT: Tensor) -> list[Tensor]:
        """The units of each layer after each token, [B, T, U], from -1 to 1: outputs, or of an LSTM the tanh of its
        cells. Raises UnmaskError for a model that carries no state from token to token."""
        raise UnmaskError("Units that go from token to token are those of a recurrent network; this model is none.")

    # -- writing: see `models.writer.Writer`

    @property
    def writes(self) -> bool:
        """Whether it writes token by token: it says what comes next, and a token has not seen what it is to say."""
        return self.causal and "next" in self.heads

    @property
    def continues_prompt(self) -> bool:
        """Whether what it writes continues from what it has read, as a language model's does."""
        return self.writes and not self.reads_source

    def room(self, lengths_B: Tensor) -> Tensor | None:
        """[B]: the most tokens that fit behind prompts of these lengths; None where nothing limits them."""
        return None

    def prefill(self, batch: Batch, width: int = 1) -> State:
        """Read the sources or prompts of `batch`, one a row, and get ready to write `width` hypotheses for each. Raises
        UnmaskError for a model that does not write."""
        raise UnmaskError(f"A {type(self.config).__name__} does not write token by token.")

    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        raise UnmaskError(f"A {type(self.config).__name__} does not write token by token.")

    # -- parameters

    @property
    def auxiliary(self) -> Mapping[str, StackModel]:
        """Models that are parts of this one in training; each has a folder of its name within that of this one."""
        return {}

    def without_heads(self) -> Self:
        """The same parts, their parameters shared, without the heads."""
        other = copy.copy(self)
        other._modules = dict(self._modules)
        other.heads = nn.ModuleDict()
        return other

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters by name, tied ones under their first name only, without those of auxiliary models."""
        return {name: p for name, p in self.named_parameters() if name.partition(".")[0] not in self.auxiliary}

    @property
    def positions(self) -> int | None:
        """The most tokens that a sequence may have; None where nothing limits them."""
        return self.config.length

    @property
    def parameters_total(self) -> int:
        """Number of parameters, tied ones once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device
