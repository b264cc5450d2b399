"""Model: the interface that all models share."""

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
from unmask.nn import Logits, Stack, Token, logits_of, stored
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.stack_model import StackModel


class Model(nn.Module, ABC):
    """The base of all models: rows in, hidden states out; `answer` runs a head at the places that need it.

    config  the page's config, which built this model and can build it again
    heads   name -> module from vectors [M, D] to outputs [M, C]
    pooler  the layer that computes what heads for sequences read; None where the model has none
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
        """Outputs [M, C] of the head `name`, which runs at these places of the flattened rows only.

        batch  the rows that the hidden states belong to; heads for sequences may need their layout (`summary`)
        """
        return self.heads[name](self.head_inputs(name, hidden_BTD, places_M, batch))

    def answers_apart(
        self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """The outputs [M, C] for the labels and for a teacher, where a head has both; None: it has one for both."""
        return None

    def logits(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor | Logits:
        """As `answer`, but a final product over the vocabulary is left to the loss (`nn.Logits`)."""
        return logits_of(self.heads[name], self.head_inputs(name, hidden_BTD, places_M, batch))

    def head_inputs(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """The inputs [M, D] of the head `name`: the states at these places, or summaries of the sequences there."""
        if name in self.of_sequences:
            return self.summary(hidden_BTD, places_M, batch)
        return hidden_BTD.flatten(0, 1)[places_M]

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """Summaries [M, D] of the sequences that begin at these places: by default the pooled state of the first token.

        batch  the rows; needed by models whose first token does not see the whole sequence
        """
        x_MD = hidden_BTD.flatten(0, 1)[places_M]
        return x_MD if self.pooler is None else self.pooler(x_MD)

    @property
    def of_sequences(self) -> list[str]:
        """Names of the heads for whole sequences, in alphabetical order."""
        found = ((name, asked_of(layer)) for name, layer in self.heads.items())
        return sorted(name for name, head in found if head is not None and head.of_sequence)

    # -- what a model reads, and its parts

    @property
    def reads_source(self) -> bool:
        """Whether the model reads `batch.source` and writes `batch.tokens`, as encoder–decoders do."""
        return False

    @property
    def causal(self) -> bool:
        """Whether a token sees only itself and the tokens before it."""
        return False

    @property
    def sequences_apart(self) -> bool:
        """Whether the states of a sequence depend only on the trunk and its own tokens: if frozen, they are cached."""
        return False

    @property
    def stacks(self) -> Mapping[str, nn.Module]:
        """The stacks of layers by name: a token sees all others in an "encoder", and those before it in a "decoder"."""
        return {}

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The layers of all stacks, the lowest first; a layer that runs several times is listed once."""
        stacks = (getattr(stack, "blocks", nn.ModuleList([stack])) for stack in self.stacks.values())
        return [block for blocks in stacks for block in blocks]

    @property
    def transformer(self) -> Stack | None:
        """The stack of blocks of a model that has exactly one and reads whole rows with it; None for other models."""
        return None

    @property
    def input_embedding(self) -> nn.Module | None:
        """The module that turns input tokens into vectors; None for a model that reads vectors."""
        return None

    @property
    def front(self) -> nn.Module | None:
        """The lowest layers of a model of recordings, which read samples; None for other models."""
        return None

    @property
    def token_table(self) -> Token | None:
        """The table of input token vectors; None for a model without one, such as one that reads characters."""
        return None

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        """The input of the first layer and the outputs of all, [B, T, D] each. Raises UnmaskError without blocks."""
        raise UnmaskError("Only a Transformer or an ELMo has hidden states of layers to show; this model is neither.")

    def direction(self, hidden_BTE: Tensor, number: int) -> Tensor:
        """[B, T, D]: the states of the forward (0) or the backward (1) direction. Raises UnmaskError if not apart."""
        raise UnmaskError("Only an ELMo predicts words in both directions: take elmo-tiny.")

    def units(self, tokens_BT: Tensor) -> list[Tensor]:
        """The units of each layer after each token, [B, T, U], from -1 to 1: outputs, or tanh of the cells of an LSTM.
        Raises UnmaskError for a model that is not recurrent."""
        raise UnmaskError("Only a recurrent network has units to show; this model is not recurrent.")

    # -- writing: see `models.writer.Writer`

    @property
    def writes(self) -> bool:
        """Whether the model writes token by token: it is causal, and has a head for the next token."""
        return self.causal and "next" in self.heads

    @property
    def continues_prompt(self) -> bool:
        """Whether the text that it writes continues its input, as with a language model."""
        return self.writes and not self.reads_source

    def room(self, lengths_B: Tensor) -> Tensor | None:
        """[B]: the most tokens that fit after prompts of these lengths; None where nothing limits them."""
        return None

    def prefill(self, batch: Batch, width: int = 1) -> State:
        """Read sources or prompts, one a row, to write `width` hypotheses for each. Raises UnmaskError if it cannot."""
        raise UnmaskError(f"A {type(self.config).__name__} does not write token by token.")

    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        raise UnmaskError(f"A {type(self.config).__name__} does not write token by token.")

    # -- parameters

    @property
    def auxiliary(self) -> Mapping[str, StackModel]:
        """Models that are trained as parts of this one, by name; each is saved in a subfolder of that name."""
        return {}

    def without_heads(self) -> Self:
        """A model that shares all parts and parameters with this one, but has no heads."""
        other = copy.copy(self)
        other._modules = dict(self._modules)
        other.heads = nn.ModuleDict()
        return other

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters by name, tied ones under their first name only, without those of auxiliary models."""
        return {name: p for name, p in self.named_parameters() if name.partition(".")[0] not in self.auxiliary}

    def own_tensors(self) -> dict[str, Tensor]:
        """What a folder stores: the own parameters, and buffers such as running statistics."""
        return {name: x for name, x in stored(self).items() if name.partition(".")[0] not in self.auxiliary}

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
