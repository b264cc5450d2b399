"""Transformer-XL: reads a text in segments, with a memory of the hidden states of those before (Dai et al., 2019).

Shapes: L layers, B rows, T tokens of a segment, M tokens of the memory, S = M + T keys, D width, V vocabulary;
W hypotheses of each row, N = B * W of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.models.causal import CausalModel, left_aligned
from unmask.models.model import POOLED, ModelConfig
from unmask.models.sequence import State
from unmask.models.table import Table
from unmask.models.transformer import ScaledToken
from unmask.nn import (
    Attention,
    Classifier,
    Embedding,
    FeedForward,
    LinearChainCRF,
    Mask,
    Residual,
    Span,
    TiedHead,
    Token,
    TransformerXL,
)
from unmask.nn.attention import Bias
from unmask.nn.dropout import Dropout
from unmask.nn.position import distances
from unmask.types import Batch


@dataclass(frozen=True, kw_only=True)
class TransformerXl(ModelConfig):
    """The numbers that make a Transformer-XL; the defaults are those of the base model for WikiText-103.

    vocabulary  V, entries of the tokenizer        dim     D, width of the hidden states
    layers      number of blocks                   heads   H, attention heads of each
    hidden      width inside the feed-forward      memory  M, tokens that every layer remembers; longer rows are read
                                                           so many at a time
    length      longest sequence, in tokens; None: no end is known
    dropout     after embeddings and sub-layers, and on what the last block says
    attention_dropout  on attention weights
    std         of the initialisation
    padding     id of the padding token

    The output shares the table of token vectors; the adaptive softmax of the published models is not used.
    """

    vocabulary: int = 32_768
    dim: int = 410
    layers: int = 16
    heads: int = 10
    hidden: int = 2_100
    memory: int = 150
    length: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    eps: float = 1e-5
    std: float = 0.02
    padding: int = 0

    @property
    def segments(self) -> int:
        """Of a pair, both texts are read as they come: nothing marks which one a token belongs to."""
        return 1

    @property
    def width(self) -> int:
        return self.dim

    def block(self, position: TransformerXL) -> SegmentBlock:
        """Attention to the memory and the segment, then feed-forward, each followed by a residual sum and a norm."""
        norm = partial(nn.LayerNorm, self.dim, self.eps)
        attention = Attention(self.dim, self.heads, position=position, bias=False, dropout=self.attention_dropout)
        feedforward = FeedForward(self.dim, self.hidden, F.relu, dropout=self.dropout)
        return SegmentBlock(
            Residual(attention, after=norm(), dropout=self.dropout),
            Residual(feedforward, after=norm(), dropout=self.dropout),
        )

    def stack(self) -> SegmentStack:
        """The blocks; u and v, in the equations without a number of a layer, are the same in all of them."""
        if self.memory < 1:
            raise UnmaskError(f"A Transformer-XL remembers at least one token, not {self.memory}; set --memory.")
        positions = [TransformerXL(self.dim, self.heads) for _ in range(self.layers)]
        for position in positions[1:]:
            position.u, position.v = positions[0].u, positions[0].v
        return SegmentStack([self.block(position) for position in positions], self.memory, self.dropout)

    def head(self, name: str, outputs: int, token: Token) -> nn.Module:
        """The layer that answers for `name`: over the vocabulary for "next", else over `outputs` classes."""
        if name == "next":
            return TiedHead(token, bias=True)
        if name == "span":
            return Span(self.dim)
        if name == "crf":
            return LinearChainCRF(outputs)  # reads what "tagging" says, not hidden states
        return Classifier(self.dim, outputs)  # the output of the stack is dropped out already

    def build(
        self, heads: Mapping[str, int] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> TransformerXlModel:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads   name -> outputs; default: the next token
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  sum sequences up though no head needs it; there are no weights to it
        """
        heads = {"next": 0} if heads is None else heads
        token = ScaledToken(self.vocabulary, self.dim)
        built = {name: self.head(name, outputs, token) for name, outputs in heads.items()}
        embedding = Embedding(token, dropout=self.dropout)
        model = TransformerXlModel(self, embedding, self.stack(), built, pools=pooler or bool(POOLED & set(heads)))
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Weights, embeddings, u and v from a normal of `std`, biases 0, norms 1 and 0."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=self.std, generator=generator)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
            if isinstance(part, TransformerXL):
                nn.init.normal_(part.u, std=self.std, generator=generator)
                nn.init.normal_(part.v, std=self.std, generator=generator)
            if isinstance(part, nn.LayerNorm):
                nn.init.ones_(part.weight)
                nn.init.zeros_(part.bias)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512, "memory": 64},
    "small": {"layers": 4, "dim": 512, "heads": 8, "hidden": 2_048, "memory": 128},
    "base": {"layers": 16, "dim": 410, "heads": 10, "hidden": 2_100, "memory": 150},
    "large": {"layers": 18, "dim": 1_024, "heads": 16, "hidden": 4_096, "memory": 384},
}
"""Sizes: base and large as published for WikiText-103; below them, those of small GPTs."""


class SegmentBlock(nn.Module):
    """One layer, which reads a segment and a memory of what it read before (section 3.2, with SG for no gradient):

        h~ = [SG(m) ; h]                q = h W_q      k = h~ W_k      v = h~ W_v
        a_ij = q_i·k_j + q_i·W_R R_i-j + u·k_j + v·W_R R_i-j           a token i sees the tokens j <= i
        o = norm(h + softmax(a / sqrt K) v W_o)        next h = norm(o + feedforward(o))

    The last three terms of a_ij (section 3.3) are `nn.position.TransformerXL`.
    """

    def __init__(self, attention: Residual, feedforward: Residual):
        super().__init__()
        self.attention, self.feedforward = attention, feedforward

    def forward(self, h_BTD: Tensor, memory_BMD: Tensor, bias: Bias) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        keys_BSD = torch.cat([memory_BMD.detach(), h_BTD], 1)
        out_BTD: Tensor = self.feedforward(self.attention(h_BTD, keys_BSD, bias=bias))
        return out_BTD


class SegmentStack(nn.Module):
    """Blocks run one after the other, each with a memory of its own.

    memory   M, tokens that a block remembers, and that are read at once
    dropout  on what the last block says
    """

    def __init__(self, blocks: Sequence[SegmentBlock], memory: int, dropout: float = 0.0):
        super().__init__()
        self.blocks, self.memory = nn.ModuleList(blocks), memory
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor, *, mask: Mask | None = None, positions_BT: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D], M tokens after M tokens, from an empty memory.

        mask  of no effect: what a token sees follows from its place
        """
        hidden, memory = [], None
        for x_BtD, positions_Bt in zip(
            x_BTD.split(self.memory, 1), _places(x_BTD, positions_BT).split(self.memory, 1), strict=True
        ):
            h_BtD, memory = self.read(x_BtD, positions_Bt, memory)
            hidden.append(h_BtD)
        return torch.cat(hidden, 1)

    def read(self, h_BTD: Tensor, positions_BT: Tensor, memory_LBMD: Tensor | None) -> tuple[Tensor, Tensor]:
        """A segment: what the last block says of it [B, T, D], and the memory after it.

        memory_LBMD  what each block has read, the last tokens of it; None or empty before the first segment

        A token at place p of its sequence sees the p tokens before it, and no further back than the memory goes. So a
        memory is never wrong: where a sequence begins, or a row is filled up before it, nothing of it is seen.
        """
        B, T, D = h_BTD.shape
        if memory_LBMD is None:
            memory_LBMD = h_BTD.new_empty(len(self.blocks), B, 0, D)
        S = memory_LBMD.shape[2] + T
        back_TS = -distances(T, S, h_BTD.device)
        visible_BTS = (back_TS >= 0) & (back_TS <= positions_BT[..., None])
        bias, read = Bias(visible_BTS[:, None]), []
        for block, memory_BMD in zip(self.blocks, memory_LBMD, strict=True):
            read.append(h_BTD.detach())
            h_BTD = block(h_BTD, memory_BMD, bias)
        after_LBMD = torch.cat([memory_LBMD, torch.stack(read).to(memory_LBMD.dtype)], 2)[:, :, -self.memory :]
        return self.dropout(h_BTD), after_LBMD


def _places(x_BTD: Tensor, positions_BT: Tensor | None) -> Tensor:
    """[B, T] place of each token in its sequence: those given, or 0 … T-1."""
    if positions_BT is not None:
        return positions_BT
    return torch.arange(x_BTD.shape[1], device=x_BTD.device).expand(x_BTD.shape[:2])


@dataclass(eq=False)
class TransformerXlState(State):
    """What a Transformer-XL keeps while it writes, the same number of tokens for all hypotheses.

    memory_LNMD  of each hypothesis; a short beginning is filled up on the left
    places_N     where the next token of each hypothesis stands
    """

    width: int
    first: Tensor
    memory_LNMD: Tensor | None
    places_N: Tensor

    def select(self, rows_N: Tensor) -> None:
        self.first, self.places_N = self.first[rows_N], self.places_N[rows_N]
        if self.memory_LNMD is not None:
            self.memory_LNMD = self.memory_LNMD[:, rows_N]


class TransformerXlModel(CausalModel):
    """Tokens in, hidden states out; `read` goes on where a call before it ended.

    `forward` begins with an empty memory and reads a row M tokens at a time: what it costs grows with the length of a
    row, not with its square, and a token sees at least the M before it in every layer.
    """

    config: TransformerXl
    stack: SegmentStack  # type: ignore[assignment]  # of blocks with a memory

    def __init__(
        self,
        config: TransformerXl,
        embedding: Embedding,
        stack: SegmentStack,
        heads: Mapping[str, nn.Module],
        *,
        pools: bool,
    ) -> None:
        super().__init__(config, embedding, stack, heads, pools=pools)  # type: ignore[arg-type]  # as above

    def read(self, batch: Batch, memory_LBMD: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Hidden states [B, T, D] of a segment, and the memory [L, B, M, D] after it, which has no gradient.

        memory_LBMD  what the call before gave; None at the beginning. `batch.positions` then say how many tokens of its
                     sequence, this segment's and the memory's, stand before each token
        """
        x_BTD = self.embedding(batch.tokens)
        return self.stack.read(x_BTD, _places(x_BTD, batch.positions), memory_LBMD)

    # -- writing: see `models.sequence.Writer`

    @torch.no_grad()
    def begin(self, batch: Batch, width: int = 1) -> TransformerXlState:  # type: ignore[override]  # no cache
        """Read the beginnings `batch` [B, T], one a row, but for their last tokens, which are fed first.

        Short ones are filled up on either side. Raises UnmaskError for one without a token.
        """
        if "next" not in self.heads:
            raise unknown("head of this model", "next", self.heads)
        tokens_BT, lengths_B = left_aligned(batch)
        T = tokens_BT.shape[1]
        places_BT = torch.arange(T, device=tokens_BT.device) - (T - lengths_B)[:, None]  # of rows that end together
        tokens_BT, places_BT = tokens_BT.gather(1, places_BT % T), places_BT.clamp(min=0)
        memory: Tensor | None = None
        for begin in range(0, T - 1, self.stack.memory):
            here = slice(begin, min(begin + self.stack.memory, T - 1))
            _, memory = self.read(Batch(tokens_BT[:, here], positions=places_BT[:, here]), memory)
        repeated = None if memory is None else memory.repeat_interleave(width, 1)
        first_N, places_N = (x[:, -1].repeat_interleave(width) for x in (tokens_BT, places_BT))
        return TransformerXlState(width, first_N, repeated, places_N)

    @torch.no_grad()
    def next(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, TransformerXlState)
        batch = Batch(tokens_N[:, None], positions=state.places_N[:, None])
        hidden_N1D, state.memory_LNMD = self.read(batch, state.memory_LNMD)
        state.places_N = state.places_N + 1
        logits_NV: Tensor = self.heads["next"](hidden_N1D.squeeze(1))
        return logits_NV


HUGGINGFACE = Table(
    model_type="unmask-transformer-xl",
    config=TransformerXl,
    prefix="",
    fields={name: name for name in TransformerXl().to_dict()},
    fixed={},
    trunk=(
        ("embedding.token", "embedding"),
        ("stack.blocks.{}.attention.f.position.project", "layers.{}.relative"),
        ("stack.blocks.0.attention.f.position", "content"),  # u and v, which all layers share
        *((f"stack.blocks.{{}}.attention.f.{part}", f"layers.{{}}.{part}") for part in ("query", "key", "value")),
        ("stack.blocks.{}.attention.f.output", "layers.{}.output"),
        *((f"stack.blocks.{{}}.feedforward.f.{part}", f"layers.{{}}.{part}") for part in ("up", "down")),
        *((f"stack.blocks.{{}}.{part}.after", f"layers.{{}}.{part}_norm") for part in ("attention", "feedforward")),
    ),
    pooler=(),
    heads={
        "next": (("heads.next.bias", "next.bias"),),
        **{name: ((f"heads.{name}.output", f"{name}.output"),) for name in (*sorted(POOLED), "tagging", "span")},
        "crf": tuple((f"heads.crf.{part}", f"crf.{part}") for part in ("transitions", "begin", "end")),
    },
    architectures={},
)
"""A folder of our own form: `transformers` has let its model of this name go."""
