"""ModelConfig: the numbers that a page builds a model from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from unmask.config import Config
from unmask.nn import LinearChainCRF
from unmask.types import Head

if TYPE_CHECKING:
    from unmask.models.model import Model


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
    def features(self) -> int | None:
        """Numbers of a vector that it reads in place of a text; None: it reads tokens."""
        return None

    @property
    @abstractmethod
    def offers(self) -> frozenset[str]:
        """What it has of what objectives of pre-training may require (`ObjectiveConfig.requires`):

        bidirectional    the hidden state of a token depends on all tokens of its sequence
        causal           it depends on the tokens up to its own alone
        memory           causal, and rows continue from those of the batch before (`SegmentModel`)
        two directions   two hidden states of each word, of the words up to its own and of those from its own on
        encoder-decoder  it reads `batch.source` and writes `batch.tokens` (`EncoderDecoder`)
        generator        a smaller model of masked words beside it fills in what it reads
        pictures         it reads pictures
        hidden patches   it has a state for each patch of a picture, and may have a vector for hidden ones
        """

    @property
    def token_kind(self) -> str:
        """What a token is where no corpus is named, of the kinds of `unmask corpus build`."""
        return "wordpiece"

    @property
    def sentence_encoder(self) -> bool:
        """Whether a folder of it opens in `sentence-transformers`, so that it can be trained to embed sentences."""
        return False

    @property
    def adafactor(self) -> bool:
        """Whether training continues from its weights by Adafactor, as published, where no optimizer is asked for."""
        return False

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers of a hidden state, as heads see it."""

    @abstractmethod
    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together, and for a head of a kind
        that the page has no method for (`models.heads`).

        heads   name -> kind of head; default: those of pre-training
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  sum sequences up though no head needs it
        """

    def transitions_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Scores of neighbouring tags, which reads what a head for tokens says, not hidden states."""
        return LinearChainCRF(head.outputs)

    @abstractmethod
    def initialise(self, module: nn.Module, seed: int) -> None:
        """Give a model, or a part of one, the weights it starts from."""
