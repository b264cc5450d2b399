"""BERT: a post-norm Transformer encoder over token, segment and position embeddings (Devlin et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.models.model import POOLED, Model, ModelConfig, truncated_normal
from unmask.models.table import Names, Table
from unmask.nn import (
    Attention,
    Block,
    Classifier,
    Embedding,
    FeedForward,
    LanguageModelHead,
    Learned,
    LinearChainCRF,
    Pooler,
    Residual,
    Segment,
    Sinusoidal,
    Span,
    Stack,
    Token,
)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


@dataclass(frozen=True, kw_only=True)
class Bert(ModelConfig):
    """The numbers that make a BERT; the defaults are BERT-base, uncased.

    vocabulary  V, entries of the tokenizer        dim     D, width of the hidden states
    layers      number of blocks                   heads   H, attention heads of each
    hidden      width inside the feed-forward      length  longest sequence, in tokens
    segments    number of segment embeddings       std     of the initialisation
    positions   what the position table starts from: random vectors, as published, or sinusoids (Vaswani et al. 2017,
                section 3.5), from which attention finds neighbours several times sooner (docs/log.md)
    dropout     after embeddings and sub-layers    attention_dropout  on attention weights
    head_dropout  before a classifier; None is `dropout`
    padding        id of the padding token
    """

    vocabulary: int = 30_522
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3_072
    length: int = 512
    segments: int = 2
    activation: Literal["gelu", "gelu_new", "relu", "silu"] = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    head_dropout: float | None = None
    eps: float = 1e-12
    std: float = 0.02
    positions: Literal["normal", "sinusoids"] = "normal"
    padding: int = 0

    @property
    def width(self) -> int:
        return self.dim

    def embedding(self) -> Embedding:
        """Token + segment + position, normalised (section 3, "Input/Output Representations")."""
        return Embedding(
            Token(self.vocabulary, self.dim),
            segment=Segment(self.segments, self.dim),
            position=self.position(self.dim),
            norm=nn.LayerNorm(self.dim, self.eps),
            dropout=self.dropout,
        )

    def position(self, dim: int) -> Learned:
        """A vector of this width for each place."""
        return Learned(self.length, dim)

    def block(self) -> Block:
        """Self-attention and feed-forward, each followed by a residual sum and a norm (Vaswani et al. 2017, 3.1)."""
        norm = partial(nn.LayerNorm, self.dim, self.eps)
        attention = Attention(self.dim, self.heads, dropout=self.attention_dropout)
        feedforward = FeedForward(self.dim, self.hidden, ACTIVATIONS[self.activation])
        return Block(
            Residual(attention, after=norm(), dropout=self.dropout),
            Residual(feedforward, after=norm(), dropout=self.dropout),
        )

    def stack(self) -> Stack:
        """The blocks, one after the other."""
        return Stack([self.block() for _ in range(self.layers)])

    def pooler(self) -> Pooler | None:
        """What stands between the first token of a sequence and a head that answers for it."""
        return Pooler(self.dim)

    def head(self, name: str, outputs: int, token: Token) -> nn.Module:
        """The layer that answers for `name`: over the vocabulary for "mlm", else over `outputs` classes."""
        if name == "mlm":
            return LanguageModelHead(token, self.dim, activation=ACTIVATIONS[self.activation], eps=self.eps)
        if name == "span":
            return Span(self.dim)
        if name == "crf":
            return LinearChainCRF(outputs)  # reads what "tagging" says, not hidden states
        if name == "pairs":
            return Classifier(3 * self.dim, outputs)  # of (u, v, |u - v|)
        pretraining = name in ("nsp", "sop")
        dropout = self.dropout if self.head_dropout is None else self.head_dropout
        return Classifier(self.dim, outputs, dropout=0.0 if pretraining else dropout)

    def build(self, heads: Mapping[str, int] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """A freshly initialised model.

        heads   name -> outputs; default: masked words and next sentence, as in pre-training
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  keep the pooler though no head needs it
        """
        heads = {"mlm": 0, "nsp": 2} if heads is None else heads
        embedding = self.embedding()
        token = embedding.token
        assert isinstance(token, Token)
        model = Model(
            self,
            embedding,
            self.stack(),
            pooler=self.pooler() if pooler or POOLED & set(heads) else None,
            heads={name: self.head(name, outputs, token) for name, outputs in heads.items()},
        )
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Give a model, or a part of one, the weights it starts from."""
        truncated_normal(module, self.std, torch.Generator().manual_seed(seed))
        if self.positions == "sinusoids":
            for part in module.modules():
                if isinstance(part, Learned):
                    shape = part.table.weight.shape
                    waves_TD = Sinusoidal(shape[1]).embed(torch.zeros(1, *shape))[0]
                    with torch.no_grad():
                        part.table.weight.copy_(waves_TD * self.std / waves_TD.std())


@dataclass(frozen=True, kw_only=True)
class Roberta(Bert):
    """RoBERTa (Liu et al. 2019): BERT with byte-level BPE, one segment, and positions that begin at padding + 1."""

    vocabulary: int = 50_265
    segments: int = 1
    eps: float = 1e-5
    padding: int = 1

    def position(self, dim: int) -> Learned:
        """The table has length + 2 rows whatever the padding is, as published ones have."""
        return Learned(self.length + 1 - self.padding, dim, offset=self.padding + 1)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512},
    "mini": {"layers": 4, "dim": 256, "heads": 4, "hidden": 1_024},
    "small": {"layers": 4, "dim": 512, "heads": 8, "hidden": 2_048},
    "medium": {"layers": 8, "dim": 512, "heads": 8, "hidden": 2_048},
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3_072},
    "large": {"layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096},
}
"""Published sizes: Devlin et al. 2018 (base, large) and Turc et al. 2019 (the others)."""

FIELDS = {
    "vocab_size": "vocabulary",
    "hidden_size": "dim",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "hidden",
    "max_position_embeddings": "length",
    "type_vocab_size": "segments",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "head_dropout",
    "layer_norm_eps": "eps",
    "initializer_range": "std",
    "position_initializer": "positions",  # ours alone; a run from fresh weights needs it
    "pad_token_id": "padding",
}
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def trunk(prefix: str) -> Names:
    """Names of the embedding and the blocks."""
    layer = prefix + "encoder.layer.{}."
    return (
        ("embedding.token", prefix + "embeddings.word_embeddings"),
        ("embedding.segment", prefix + "embeddings.token_type_embeddings"),
        ("embedding.position.table", prefix + "embeddings.position_embeddings"),
        ("embedding.norm", prefix + "embeddings.LayerNorm"),
        ("stack.blocks.{}.attention.f.query", layer + "attention.self.query"),
        ("stack.blocks.{}.attention.f.key", layer + "attention.self.key"),
        ("stack.blocks.{}.attention.f.value", layer + "attention.self.value"),
        ("stack.blocks.{}.attention.f.output", layer + "attention.output.dense"),
        ("stack.blocks.{}.attention.after", layer + "attention.output.LayerNorm"),
        ("stack.blocks.{}.feedforward.f.up", layer + "intermediate.dense"),
        ("stack.blocks.{}.feedforward.f.down", layer + "output.dense"),
        ("stack.blocks.{}.feedforward.after", layer + "output.LayerNorm"),
    )


def architectures(name: str, *pretraining: tuple[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Class names of a family; `pretraining` are those that come before the common ones."""
    return {
        **{name + suffix: heads for suffix, heads in pretraining},
        f"{name}ForMaskedLM": frozenset({"mlm"}),
        f"{name}ForSequenceClassification": frozenset({"classification"}),
        f"{name}ForTokenClassification": frozenset({"tagging"}),
        f"{name}ForQuestionAnswering": frozenset({"span"}),
        f"{name}ForMultipleChoice": frozenset({"choice"}),
        f"{name}Model": frozenset(),
    }


CRF = tuple((f"heads.crf.{part}", f"crf.{part}") for part in ("transitions", "begin", "end"))

HUGGINGFACE = Table(
    model_type="bert",
    config=Bert,
    prefix="bert.",
    fields=FIELDS,
    fixed=FIXED,
    trunk=trunk("bert."),
    pooler=(("pooler.dense", "bert.pooler.dense"),),
    heads={
        "mlm": (
            ("heads.mlm.dense", "cls.predictions.transform.dense"),
            ("heads.mlm.norm", "cls.predictions.transform.LayerNorm"),
            ("heads.mlm.bias", "cls.predictions.bias"),
        ),
        "nsp": (("heads.nsp.output", "cls.seq_relationship"),),
        "sop": (("heads.sop.output", "cls.seq_relationship"),),
        **{h: ((f"heads.{h}.output", "classifier"),) for h in ("classification", "multilabel", "regression", "choice")},
        "tagging": (("heads.tagging.output", "classifier"),),
        "crf": CRF,
        "span": (("heads.span.output", "qa_outputs"),),
        "pairs": (("heads.pairs.output", "pairs.output"),),
    },
    architectures=architectures(
        "Bert",
        ("ForPreTraining", frozenset({"mlm", "nsp"})),
        ("ForNextSentencePrediction", frozenset({"nsp"})),
    ),
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)

# RoBERTa's classifier brings its own dense layer in the pooler's place.
_ROBERTA_POOLER = ("pooler.dense", "classifier.dense")

ROBERTA = Table(
    model_type="roberta",
    config=Roberta,
    prefix="roberta.",
    fields=FIELDS,
    shift={"max_position_embeddings": 2},
    fixed=FIXED,
    trunk=trunk("roberta."),
    pooler=(("pooler.dense", "roberta.pooler.dense"),),
    heads={
        "mlm": (
            ("heads.mlm.dense", "lm_head.dense"),
            ("heads.mlm.norm", "lm_head.layer_norm"),
            ("heads.mlm.bias", "lm_head.bias"),
        ),
        **{
            h: (_ROBERTA_POOLER, (f"heads.{h}.output", "classifier.out_proj"))
            for h in ("classification", "multilabel", "regression")
        },
        "choice": (("heads.choice.output", "classifier"),),
        "tagging": (("heads.tagging.output", "classifier"),),
        "crf": CRF,
        "span": (("heads.span.output", "qa_outputs"),),
        "pairs": (("heads.pairs.output", "pairs.output"),),
    },
    architectures=architectures("Roberta"),
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    written=("lm_head.decoder.bias",),
)
