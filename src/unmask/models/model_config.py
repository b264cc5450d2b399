"""ModelConfig: the numbers that a page builds a model from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from torch import nn

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.models.heads import for_tasks
from unmask.nn import LinearChainCRF, SpanRanking
from unmask.types import Head

if TYPE_CHECKING:
    from unmask.models.model import Model


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config, ABC):
    """The base of the configs of all pages; a page adds its fields and defaults.

    vocabulary  V, entries of the tokenizer
    length      longest sequence, in tokens; None where nothing limits it
    padding     id of the padding token; None where a folder names none
    activation  function inside the feed-forward, by its name in a folder
    eps         constant that keeps the division of a normalisation finite
    layers      number of layers
    cell        of the recurrent layers

    Values that all models of a page share (`offers`, `token_kind`) are class attributes without an annotation, so that
    they are not fields.
    """

    vocabulary: int
    length: int | None
    padding: int | None = 0

    hides = False  # whether it has a vector for masked patches, in addition to its tokens
    unweighted = frozenset[str]()  # fields that no weight depends on, which continued pre-training may change
    about = ""  # the system in a sentence, where the first sentence of the page is about another one

    @property
    def segments(self) -> int:
        """How many segments of a sequence have different embeddings; with 1, the texts of a pair are not marked."""
        return 1

    @property
    def pools(self) -> bool:
        """Whether heads for sequences read through a pooler, a layer of the model before the head."""
        return False

    @property
    def features(self) -> int | None:
        """The size of the vectors that the model reads in place of a text; None for a model that reads tokens."""
        return None

    @property
    def adapted(self) -> str:
        """The usual strategy by which a task trains a pre-trained model (`runs.transfer.Transfer.strategy`)."""
        return "full"

    @property
    @abstractmethod
    def offers(self) -> frozenset[str]:
        """The properties of the model that objectives of pre-training may require (`ObjectiveConfig.requires`):

        bidirectional    the hidden state of a token depends on all tokens of its sequence
        causal           the hidden state of a token depends only on that token and those before it
        memory           causal, and rows continue those of the previous batch (`SegmentModel`)
        two directions   each word has two hidden states: one of the words up to it, and one of the words from it on
        encoder-decoder  the model reads `batch.source` and writes `batch.tokens` (`EncoderDecoder`)
        generator        an auxiliary masked language model fills in the masked tokens of its input
        pictures         the model reads patches of pictures
        masked patches   the model has a vector for masked patches, and a state for each patch
        patch states     each patch of a picture has a hidden state, at the place of the patch
        projections      the model has a projection head on its class token
        recordings       the model reads frames of recordings, and its config has `hop` and `window`
        masked frames    the model has a vector for masked frames
        frame states     each frame of a recording has a hidden state
        quantised frames it quantises its frames (`Wav2Vec2`)
        clusters         it predicts clusters of frames (`Hubert`)
        next samples     it predicts each sample from those before it (`WaveNet`)
        pixel decoder    an auxiliary decoder restores pictures from visible patches (`Mae`)
        """

    @property
    def token_kind(self) -> str:
        """The kind of tokens, one of those of `unmask corpus build`, for a run that names no corpus."""
        return "wordpiece"

    @property
    def sentence_encoder(self) -> bool:
        """Whether its folders open in `sentence-transformers`, so that it can be trained to embed sentences."""
        return False

    @property
    def adafactor(self) -> bool:
        """Whether training that continues from its weights uses Adafactor by default, as published."""
        return False

    @property
    @abstractmethod
    def width(self) -> int:
        """The width of the hidden states that heads read."""

    @abstractmethod
    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together, and for a kind of head
        that the page has no method for (`models.heads`).

        heads   name -> kind of head; default: those of pre-training
        seed    of the initialisation; None leaves it to the caller, who sets the parameters anyway
        pooler  add the pooler even where no head needs it
        """

    def at_size(self, size: int) -> Self:
        """This config for pictures of `size` pixels of a side (`models.resized`). Raises UnmaskError for a size that
        the model cannot read, and for a model that reads no pictures."""
        if "pictures" not in self.offers:
            raise UnmaskError(f"A {type(self).__name__} reads no pictures: it has no size to change.")
        return self.replace(size=size)

    def in_folder(self, heads: Mapping[str, Head]) -> ModelConfig:
        """The config that a folder stores for a model with these heads: this one, or that of another page that has the
        same parameters and outputs, and is published with such heads. With a head for a task there is no vector for
        masked patches, which no task reads."""
        return self.replace(hides=False) if self.hides and for_tasks(heads) else self

    def transitions_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """The scores of adjacent tags (a linear-chain CRF), which read the outputs of a token head, not hidden
        states."""
        return LinearChainCRF(head.outputs)

    def span_ranking_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """The scores of spans as mentions, and of their antecedents, from the states of words (`nn.coreference`)."""
        return SpanRanking(self.width, head.outputs)

    @abstractmethod
    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one."""
