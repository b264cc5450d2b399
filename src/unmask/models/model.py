"""Model: an embedding, a stack of blocks and named heads; ModelConfig, the numbers that a page builds one from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.nn import Embedding, Logits, Mask, Pooler, Stack, logits_of
from unmask.types import Batch

POOLED = frozenset({"nsp", "sop", "classification", "multilabel", "regression", "choice"})
"""Heads that answer for a whole sequence: from the pooled vector of its first token or, in a model that reads in one
direction, from a summary that it hands on behind the state of every token."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config, ABC):
    """What the numbers of every page have in common; a page adds its own, and its defaults.

    vocabulary  V, entries of the tokenizer
    length      longest sequence, in tokens; None where nothing limits it
    padding     id of the padding token; None where a folder names none

    What all models of a page share (`offers`, `token_kind`) stands on it without an annotation: it is no field.
    """

    vocabulary: int
    length: int | None
    padding: int | None = 0

    @property
    def segments(self) -> int:
        """How many texts of a sequence are told apart; 1: of a pair, nothing marks which is which."""
        return 1

    @property
    def pools(self) -> bool:
        """Whether heads that answer for a sequence read it through a layer that the model has beside them."""
        return False

    @property
    @abstractmethod
    def offers(self) -> frozenset[str]:
        """What it has of what objectives of pre-training may require (`ObjectiveConfig.requires`):

        bidirectional    the hidden state of a token depends on all tokens of its sequence
        causal           it depends on the tokens up to its own alone
        memory           causal, and rows go on from those of the batch before (`SegmentModel`)
        two directions   two hidden states of each word, of the words up to its own and of those from its own on
        encoder-decoder  it reads `batch.source` and writes `batch.tokens` (`EncoderDecoder`)
        generator        a smaller model of masked words beside it fills in what it reads
        """

    @property
    def token_kind(self) -> str:
        """What a token is where no corpus is named, of the kinds of `unmask corpus build`."""
        return "wordpiece"

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers of a hidden state, as heads see it."""

    @abstractmethod
    def build(self, heads: Mapping[str, int] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads   name -> outputs; default: those of pre-training
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  sum sequences up though no head needs it
        """

    @abstractmethod
    def initialise(self, module: nn.Module, seed: int) -> None:
        """Give a model, or a part of one, the weights it starts from."""


class Model(nn.Module):
    """Rows in, hidden states out; `answer` runs a head at the places that need one.

    config     the page's config, which built this model and can build it again
    embedding  tokens, segments, positions and raw values -> vectors
    stack      the blocks
    pooler     dense + tanh over the first token, or None where no head needs it
    heads      name -> module from vectors [M, D] to answers [M, C]
    mask       which tokens of a sequence see which; none sees those of another
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding: Embedding,
        stack: Stack,
        *,
        pooler: Pooler | None = None,
        heads: Mapping[str, nn.Module] | None = None,
        mask: Mask | None = None,
    ) -> None:
        super().__init__()
        self.config, self.embedding, self.stack, self.pooler = config, embedding, stack, pooler
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
        mask = self.mask & Mask(documents=batch.documents, runs=batch.runs)
        hidden_BTD: Tensor = self.stack(x_BTD, mask=mask, positions_BT=batch.positions)
        return hidden_BTD

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor) -> Tensor:
        """Answers [M, C] of the head `name` at places of the flattened rows.

        Only these places are computed: masked-language modelling needs the output layer at 15 % of them.
        """
        answers_MC: Tensor = self.heads[name](self.asked(name, hidden_BTD, places_M))
        return answers_MC

    def logits(self, name: str, hidden_BTD: Tensor, places_M: Tensor) -> Tensor | Logits:
        """The same, but what would be a product over the vocabulary is left to the loss."""
        return logits_of(self.heads[name], self.asked(name, hidden_BTD, places_M))

    def asked(self, name: str, hidden_BTD: Tensor, places_M: Tensor) -> Tensor:
        """What the head `name` reads at these places, [M, D]."""
        x_MD, D = hidden_BTD.flatten(0, 1)[places_M], self.config.width
        x_MD = x_MD[:, -D:] if name in POOLED else x_MD[:, :D]  # where there is a summary, it is the second half
        return self.pooler(x_MD) if name in POOLED and self.pooler is not None else x_MD

    @property
    def beside(self) -> Mapping[str, Model]:
        """Models that are parts of this one while it is trained, and have a folder of that name within its own."""
        return {}

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters by name, tied ones under their first name only, without those of the models beside."""
        return {name: p for name, p in self.named_parameters() if name.partition(".")[0] not in self.beside}

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


def truncated_normal(model: nn.Module, std: float, generator: torch.Generator) -> None:
    """BERT's initialisation: weights from a normal of `std` cut at two of them, biases 0, norms 1 and 0."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
