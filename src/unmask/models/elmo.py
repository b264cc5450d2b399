"""ELMo: words from characters, a bidirectional language model, and a mix of its layers for tasks (Peters et al., 2018).

Shapes: B rows, T tokens (characters) of a row, W words of all rows, C characters of the longest, N sequences of words,
S words of the longest, D width in one direction, L layers, E = 2 D (L + 1) numbers of all layers side by side,
R width of a task's network in one direction, M places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.elmo_model import ElmoModel
from unmask.models.heads import head_of
from unmask.models.model import ModelConfig
from unmask.nn import (
    BidirectionalLMLayer,
    BidirectionalLMStack,
    CharacterCNN,
    Classifier,
    Highway,
    TaskReader,
    UntiedHead,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Elmo(ModelConfig):
    """The numbers that make an ELMo; the defaults are the published ones (Peters et al. 2018, section 3.4).

    vocabulary  number of tokens; each is a character that begins or continues a word
    continues   first id of the characters that continue a word
    characters  width of a character vector
    widths      characters that a filter sees        filters   number of filters of each width
    highways    highway layers after the filters     dim       D, width of a word and of each direction's outputs
    layers      L of the language model; 0: none, for a task's network alone
    hidden      cells of an LSTM, which are projected to `dim`
    task        R, width of the network of a task: a bidirectional LSTM between the vectors of words and the head
    length      longest text that a task reads at once, in characters; the model itself has no limit
    dropout     on inputs of layers and of heads
    padding     id of the padding token

    First characters of words have their own tokens, which mark word boundaries; the published model frames each word by
    two extra characters instead. Cells are not clipped.
    """

    vocabulary: int = 262
    continues: int = 133
    characters: int = 16
    widths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1_024)
    highways: int = 2
    dim: int = 512
    layers: int = 2
    hidden: int = 4_096
    task: int = 256
    length: int | None = 1_024
    dropout: float = 0.1
    padding: int = 0

    offers = frozenset({"two directions"})
    token_kind = "spelled"

    @property
    def spelling(self) -> int:
        """About how many characters a text has for each word piece: tasks allow rows that are longer by this factor."""
        return 8

    @property
    def width(self) -> int:
        """2 R, the width of the input of a task's head."""
        return 2 * self.task

    def embedding(self) -> CharacterCNN:
        """The context-independent word vectors x."""
        if len(self.widths) != len(self.filters):
            raise UnmaskError(f"{len(self.widths)} widths need as many numbers of filters, not {len(self.filters)}.")
        filters = dict(zip(self.widths, self.filters, strict=True))
        return CharacterCNN(self.vocabulary, self.characters, filters, highways=self.highways, outputs=self.dim)

    def reader(self) -> TaskReader:
        """The network of a task. It also learns word vectors from characters, with 128 filters of 3 characters."""
        own = CharacterCNN(self.vocabulary, self.characters, {3: 128})
        return TaskReader(own, 2 * self.dim, self.task, layers=self.layers, dropout=self.dropout)

    # There are heads for words and texts, but none for single characters, which a span would need.

    def words_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Logits over the words of pre-training."""
        return UntiedHead(self.dim, head.outputs)

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Outputs for a word, at its first character."""
        return Classifier(self.width, head.outputs, self.dropout)

    sequence_head = choice_head = token_head

    def build(
        self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> ElmoModel:
        """As `ModelConfig.build`; the default is the language model without its softmax. `pooler` adds the network of
        a task."""
        if self.layers and self.hidden <= self.dim:
            raise UnmaskError(f"An LSTM is projected to fewer numbers than its {self.hidden} cells, not to {self.dim}.")
        heads = heads or {}
        embedding = self.embedding()
        built = {name: head_of(self, head, embedding.token) for name, head in heads.items()}
        stack = BidirectionalLMStack(
            [BidirectionalLMLayer(self.dim, self.hidden) for _ in range(self.layers)], self.dropout
        )
        reader = self.reader() if pooler or any(head.kind != "words" for head in heads.values()) else None
        model = ElmoModel(self, embedding, stack, built, reader)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Xavier's uniform (Glorot & Bengio 2010). Biases are 1 for forget gates, and -2 for highway gates, which pass
        their input on at first (Srivastava et al. 2015). Character vectors have a length of about 1."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                nn.init.normal_(part.weight, std=part.embedding_dim**-0.5, generator=generator)
            elif isinstance(part, (nn.Linear, nn.Conv1d, nn.LSTM)):
                for name, p in part.named_parameters():
                    if p.dim() > 1:
                        nn.init.xavier_uniform_(p, generator=generator)
                    else:
                        nn.init.zeros_(p)
                    if name.startswith("bias_ih"):
                        nn.init.ones_(p.data.chunk(4)[1])
        for part in module.modules():
            if isinstance(part, Highway):
                nn.init.constant_(part.gate.bias, -2.0)


SIZES: dict[str, dict[str, object]] = {
    "tiny": {"widths": (1, 2, 3, 4), "filters": (16, 32, 64, 64), "highways": 1, "dim": 64, "hidden": 256, "task": 64},
    "small": {"highways": 1, "dim": 128, "hidden": 1_024},
    "medium": {"highways": 1, "dim": 256, "hidden": 2_048},
    "original": {"highways": 2, "dim": 512, "hidden": 4_096},
}
"""Sizes: small, medium and original as they were released."""
