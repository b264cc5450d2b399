"""GPT and GPT-2: Transformers that read from left to right and predict the next token (Radford et al. 2018, 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from unmask.models.causal import CausalModel
from unmask.models.heads import head_of
from unmask.models.model import ModelConfig
from unmask.nn import (
    ACTIVATIONS,
    ActivationName,
    Attention,
    Block,
    Classifier,
    Embedding,
    FeedForward,
    Learned,
    Residual,
    Span,
    Stack,
    TiedHead,
    Token,
)
from unmask.types import Head

ACTIVATED = {"gelu": ACTIVATIONS["gelu_new"], **{name: ACTIVATIONS[name] for name in ("relu", "silu", "swish")}}
"""Activations of GPT; its "gelu" is the approximation with tanh, as published."""


@dataclass(frozen=True, kw_only=True)
class Gpt(ModelConfig):
    """The numbers that make a GPT (Radford et al. 2018, section 4.1); the defaults are the published ones.

    vocabulary  V, entries of the tokenizer        dim     D, width of the hidden states; 4 D inside the feed-forward
    layers      number of blocks                   heads   H, attention heads of each
    length      longest sequence, in tokens        std     of the initialisation
    dropout     after sub-layers                   embedding_dropout  after the embeddings
    attention_dropout  on attention weights        activation  in the feed-forward, one of `ACTIVATED`
    head_dropout  before the classifier of tags alone, as in `transformers`; the paper has it before each. None is 0.1
    padding, start, end  ids of the tokens that pad, begin and end a text, as written to a folder; None: not written
    """

    vocabulary: int = 40_478
    dim: int = 768
    layers: int = 12
    heads: int = 12
    length: int = 512
    dropout: float = 0.1
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    head_dropout: float | None = None
    eps: float = 1e-5
    std: float = 0.02
    activation: ActivationName = "gelu"
    padding: int | None = 0
    start: int | None = None
    end: int | tuple[int, ...] | None = None

    offers = frozenset({"causal"})

    @property
    def width(self) -> int:
        return self.dim

    def embedding(self) -> Embedding:
        """h_0 = U W_e + W_p: token + position (equation 2)."""
        position = Learned(self.length, self.dim)
        return Embedding(Token(self.vocabulary, self.dim), position=position, dropout=self.embedding_dropout)

    def attention(self) -> Attention:
        """Self-attention; the mask of the model makes it causal."""
        return Attention(self.dim, self.heads, dropout=self.attention_dropout)

    def feedforward(self) -> FeedForward:
        """A feed-forward layer that is 4 D wide inside."""
        return FeedForward(self.dim, 4 * self.dim, ACTIVATED[self.activation])

    def block(self) -> Block:
        """Each sub-layer is followed by a residual sum and a norm (Vaswani et al. 2017, 3.1)."""
        norm = partial(nn.LayerNorm, self.dim, self.eps)
        return Block(
            Residual(self.attention(), after=norm(), dropout=self.dropout),
            Residual(self.feedforward(), after=norm(), dropout=self.dropout),
        )

    def stack(self) -> Stack:
        """The blocks, one after the other."""
        return Stack([self.block() for _ in range(self.layers)])

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """P(u) = softmax(h W_e^T) (equation 2)."""
        return TiedHead(token)

    def sequence_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """P(y) = softmax(h W_y), without a bias (equation 3)."""
        return Classifier(self.dim, head.outputs, bias=False)

    choice_head = sequence_head

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(self.dim, head.outputs, dropout=0.1 if self.head_dropout is None else self.head_dropout)

    def span_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Span(self.dim)

    def build(
        self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> CausalModel:
        """A freshly initialised model.

        heads   name -> kind of head; default: the next token
        seed    of the initialisation; None leaves it to the caller, who sets the parameters anyway
        pooler  has no effect: the summary of a sequence has no weights
        """
        heads = {"next": Head("next_token")} if heads is None else heads
        embedding = self.embedding()
        token = embedding.token
        assert isinstance(token, Token)
        built = {name: head_of(self, head, token) for name, head in heads.items()}
        model = CausalModel(self, embedding, self.stack(), built)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Weights and embeddings from a normal distribution of `std`; biases 0; weights of norms 1, their biases 0."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=self.std, generator=generator)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
            if isinstance(part, nn.LayerNorm):
                nn.init.ones_(part.weight)
                nn.init.zeros_(part.bias)


@dataclass(frozen=True, kw_only=True)
class Gpt2(Gpt):
    """GPT-2 (Radford et al. 2019, section 2.3): GPT with a norm before each sub-layer and one after the last block,
    residual weights that are scaled down by depth at the start, byte-level BPE and a longer context.

    hidden  width inside the feed-forward; None: 4 D, as published
    """

    vocabulary: int = 50_257
    length: int = 1_024
    hidden: int | None = None
    activation: ActivationName = "gelu_new"
    padding: int | None = 50_256

    token_kind = "bpe"

    def feedforward(self) -> FeedForward:
        return FeedForward(self.dim, self.hidden or 4 * self.dim, ACTIVATIONS[self.activation])

    def block(self) -> Block:
        """x + f(norm(x)) for each sub-layer f."""
        norm = partial(nn.LayerNorm, self.dim, self.eps)
        return Block(
            Residual(self.attention(), before=norm(), dropout=self.dropout),
            Residual(self.feedforward(), before=norm(), dropout=self.dropout),
        )

    def stack(self) -> Stack:
        """The blocks, one after the other, and a norm of their sum, as pre-norm blocks need."""
        return Stack([self.block() for _ in range(self.layers)], norm=nn.LayerNorm(self.dim, self.eps))

    def initialise(self, module: nn.Module, seed: int) -> None:
        """As GPT's, with the output weights of each of the 2 L sub-layers scaled by 1 / sqrt(2 L) (section 2.3)."""
        super().initialise(module, seed)
        with torch.no_grad():
            for block in (part for part in module.modules() if isinstance(part, Block)):
                for last in (block.attention.f.output, block.feedforward.f.down):
                    assert isinstance(last, nn.Linear)
                    last.weight.mul_((2 * self.layers) ** -0.5)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 2},
    "mini": {"layers": 4, "dim": 256, "heads": 4},
    "small": {"layers": 4, "dim": 512, "heads": 8},
    "base": {"layers": 12, "dim": 768, "heads": 12},
    "medium": {"layers": 24, "dim": 1_024, "heads": 16},
    "large": {"layers": 36, "dim": 1_280, "heads": 20},
    "xl": {"layers": 48, "dim": 1_600, "heads": 25},
}
"""Sizes: base is GPT and the smallest GPT-2; medium, large and xl are published; the smaller ones are BERT's."""
