"""RecurrentNetwork: an RNN, LSTM or GRU as language model, tagger or classifier.

Shapes: B rows, T tokens of a row, N sequences of all rows (or hypotheses, in `next`), S tokens of the longest, D width
of token vectors, H width of a state, E width of the outputs (H, or 2 H in two directions), M places, V vocabulary,
L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.models.causal import left_aligned
from unmask.models.model import POOLED, Model, ModelConfig
from unmask.models.recurrent_decoder import Seq2SeqState
from unmask.models.seq2seq import xavier
from unmask.models.sequence import State
from unmask.nn import (
    Classifier,
    Embedding,
    LinearChainCRF,
    Logits,
    Recurrent,
    RecurrentState,
    Span,
    TiedHead,
    Token,
    VocabularyHead,
)
from unmask.nn.sequences import Sequences
from unmask.types import Batch

WRITING = ("next", "mlm")
"""Heads that answer with a token of the vocabulary."""


@dataclass(frozen=True, kw_only=True)
class RecurrentNetwork(ModelConfig):
    """The numbers and the parts that make a recurrent network over a text.

    vocabulary     V, entries of the tokenizer        dim    D, width of the token vectors
    hidden         H, width of the state of a layer   layers, cell
    bidirectional  every layer is read from both ends (Schuster & Paliwal 1997): for tags and classes, or to guess
                   hidden words, but not the next one, which it would have seen
    length         longest sequence, in tokens; None: no end is known
    tbptt          tokens that a gradient goes back at most (truncated back-propagation through time, Williams & Peng
                   1990): the state goes on through all of a sequence, its gradient stops at every so many tokens.
                   None: it goes back to the beginning of the sequence
    dropout        on token vectors and on the outputs of each layer, not from step to step (Zaremba et al. 2014)
    padding        id of the padding token
    """

    vocabulary: int = 8_192
    dim: int = 256
    hidden: int = 512
    layers: int = 2
    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    bidirectional: bool = False
    length: int | None = None
    tbptt: int | None = None
    dropout: float = 0.1
    padding: int = 0

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"bidirectional" if self.bidirectional else "causal"})

    @property
    def width(self) -> int:
        """E, of what the last layer says of each token."""
        return 2 * self.hidden if self.bidirectional else self.hidden

    def stack(self) -> RecurrentStack:
        """The layers, one after the other. Raises UnmaskError for truncation that cannot be."""
        if self.tbptt is not None and self.bidirectional:
            raise UnmaskError("A network that reads from the end, too, cannot be cut in windows; leave out tbptt.")
        if self.tbptt is not None and self.tbptt < 1:
            raise UnmaskError(f"A gradient must go back at least one token, not {self.tbptt}.")
        widths = [self.dim] + [self.width] * (self.layers - 1)
        layers = [Recurrent(self.cell, dim, self.hidden, bidirectional=self.bidirectional) for dim in widths]
        return RecurrentStack([RecurrentLayer(layer, self.dropout, self.tbptt) for layer in layers])

    def head(self, name: str, outputs: int, token: Token) -> nn.Module:
        """The layer that answers for `name`: over the vocabulary for "next" and "mlm", else over `outputs` classes."""
        if name == "next" and self.bidirectional:
            raise UnmaskError(
                "A bidirectional network has seen the next token and cannot learn to guess it: set --bidirectional "
                "false, or learn hidden words."
            )
        if name in WRITING:
            return ProjectedHead(token, self.width)
        if name == "span":
            return Span(self.width)
        if name == "crf":
            return LinearChainCRF(outputs)  # reads what "tagging" says, not hidden states
        return Classifier(self.width, outputs)  # the outputs of the stack are dropped out already

    def build(
        self, heads: Mapping[str, int] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> RecurrentModel:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads   name -> outputs; default: the next token, or in two directions hidden words
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  sum sequences up though no head needs it; there are no weights to it
        """
        if heads is None:
            heads = {"mlm" if self.bidirectional else "next": 0}
        token = Token(self.vocabulary, self.dim, padding=self.padding)
        built = {name: self.head(name, outputs, token) for name, outputs in heads.items()}
        model = RecurrentModel(
            self, Embedding(token, dropout=self.dropout), self.stack(), built, pools=pooler or bool(POOLED & set(heads))
        )
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Give a model, or a part of one, the weights it starts from."""
        initialise(module, seed, padding=self.padding)


def initialise(module: nn.Module, seed: int, *, padding: int) -> None:
    """Xavier's uniform (Glorot & Bengio 2010), and 1 for the bias of an LSTM's forget gate; token vectors of about
    length 1, that of the padding zero."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, Recurrent):
            xavier(part, generator)
        elif isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight, generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, Token):
            nn.init.normal_(part.weight, std=part.embedding_dim**-0.5, generator=generator)
            with torch.no_grad():
                part.weight[padding].zero_()


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "hidden": 256, "layers": 1},
    "small": {"dim": 256, "hidden": 512, "layers": 2},
    "medium": {"dim": 650, "hidden": 650, "layers": 2},
    "large": {"dim": 1_500, "hidden": 1_500, "layers": 2},
}
"""Sizes: medium and large as published (Zaremba et al. 2014, section 4.1)."""


MOST_PADDED = 4
"""Places, padding included, for each token, up to which padding is read as if it were text."""


class ProjectedHead(VocabularyHead):
    """E (W h) + b: the state, brought to the width of a token vector, against all of them (Press & Wolf 2017)."""

    def __init__(self, token: nn.Embedding, width: int):
        super().__init__()
        self.project = nn.Linear(width, token.embedding_dim, bias=False)
        self.tied = TiedHead(token, bias=True)

    def logits(self, x_ME: Tensor) -> Logits:
        return self.tied.logits(self.project(x_ME))


class RecurrentLayer(nn.Module):
    """dropout(network(x)), with gradients that go back at most `tbptt` tokens where that is a number."""

    def __init__(self, network: Recurrent, dropout: float = 0.0, tbptt: int | None = None):
        super().__init__()
        self.network, self.tbptt = network, tbptt
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x_NSD: Tensor, state: RecurrentState | None = None, lengths_N: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Outputs [N, S, E] and the state [1 or 2, N, H] after the last token of each sequence.

        lengths_N  descending, as in `Sequences`
        """
        if self.tbptt is None or x_NSD.shape[1] <= self.tbptt:
            outputs_NSE, last = self.network(x_NSD, state, lengths_N)
        else:
            outputs_NSE, last = self._truncated(x_NSD, state, lengths_N, self.tbptt)
        return self.dropout(outputs_NSE), last

    def step(self, x_ND: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token of each row: output [N, H] and the state after it."""
        output_NH, after = self.network.step(x_ND, state)
        return self.dropout(output_NH), after

    def _truncated(
        self, x_NSD: Tensor, state: RecurrentState | None, lengths_N: Tensor | None, window: int
    ) -> tuple[Tensor, RecurrentState]:
        """One window after the other: each begins with the numbers that the one before ended with, not their history.

        Sequences that have ended are the last ones: they leave, and their state stays as it is.
        """
        N, S = x_NSD.shape[:2]
        lengths_N = torch.full((N,), S) if lengths_N is None else lengths_N.cpu()
        last = self.network.start(x_NSD) if state is None else state
        outputs = []
        for begin in range(0, S, window):
            on = int((lengths_N > begin).sum())
            x_nwD = x_NSD[:on, begin : begin + window]
            left_n = (lengths_N[:on] - begin).clamp(max=window)
            outputs_nwE, after = self.network(x_nwD, _first(last, on).detach(), left_n)
            outputs.append(F.pad(outputs_nwE, (0, 0, 0, 0, 0, N - on)))
            last = after if on == N else _joined(after, last, on)
        return torch.cat(outputs, 1), last


def _first(state: RecurrentState, on: int) -> RecurrentState:
    """The first rows."""
    return state.map(lambda x: x[:, :on])


def _joined(first: RecurrentState, second: RecurrentState, on: int) -> RecurrentState:
    """The rows of `first`, and behind them those of `second` from number `on` on."""
    cell = None
    if first.cell is not None and second.cell is not None:
        cell = torch.cat([first.cell, second.cell[:, on:]], 1)
    return RecurrentState(torch.cat([first.hidden, second.hidden[:, on:]], 1), cell)


class RecurrentStack(nn.Module):
    """Layers, each of which reads the outputs of the one below."""

    def __init__(self, blocks: list[RecurrentLayer]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self, x_NSD: Tensor, state: RecurrentState | None = None, lengths_N: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Outputs [N, S, E] of the last layer, and the states of all layers, [L, N, H] ([2 L, N, H])."""
        after = []
        for i, block in enumerate(self.blocks):
            x_NSD, last = block(x_NSD, None if state is None else self._of(state, i), lengths_N)
            after.append(last)
        return x_NSD, _layers(after)

    def step(self, x_ND: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token of each row: output [N, H] of the last layer and the states after it."""
        after = []
        for i, block in enumerate(self.blocks):
            assert isinstance(block, RecurrentLayer)
            x_ND, last = block.step(x_ND, self._of(state, i))
            after.append(last)
        return x_ND, _layers(after)

    def _of(self, state: RecurrentState, i: int) -> RecurrentState:
        each = state.hidden.shape[0] // len(self.blocks)
        return state.map(lambda x: x[i * each : (i + 1) * each])


def _layers(states: list[RecurrentState]) -> RecurrentState:
    """Of all layers together."""
    cells = [state.cell for state in states if state.cell is not None]
    return RecurrentState(torch.cat([state.hidden for state in states]), torch.cat(cells) if cells else None)


class RecurrentModel(Model):
    """Tokens in, outputs of a recurrent network out. Every sequence is read from a state of zero: packed, padded and
    single sequences give the same.

    pools  whether sequences are summed up, by the state after the last token and, in two directions, that of the
           first token read from the end. It stands beside the output of each token, where only heads that answer for
           a whole sequence look: what says the next token never sees it
    """

    config: RecurrentNetwork
    stack: RecurrentStack  # type: ignore[assignment]  # of blocks that hand on states

    def __init__(
        self,
        config: RecurrentNetwork,
        embedding: Embedding,
        stack: RecurrentStack,
        heads: Mapping[str, nn.Module],
        *,
        pools: bool,
    ) -> None:
        super().__init__(config, embedding, stack, heads=heads)  # type: ignore[arg-type]  # as above
        self.pools = pools

    def forward(self, batch: Batch) -> Tensor:
        """Outputs [B, T, E], or [B, T, 2 E] with the summary of its sequence behind each, zero at padding.

        Raises UnmaskError for a sequence that is longer than `length`.
        """
        x_BTD = self.embedding(batch.tokens)
        if batch.documents is None:
            self._fits(batch.tokens.shape[1])
            return self.read(x_BTD)
        sequences = Sequences.of(batch.documents)
        x_NSD = sequences.unpack(x_BTD)
        self._fits(x_NSD.shape[1])
        return sequences.pack(self.read(x_NSD, sequences.lengths.cpu()))

    def read(self, x_NSD: Tensor, lengths_N: Tensor | None = None) -> Tensor:
        """Token vectors of sequences, one a row -> their outputs, and where the model pools their summaries behind."""
        outputs_NSE, _ = self.stack(x_NSD, lengths_N=None if self._through(x_NSD, lengths_N) else lengths_N)
        if not self.pools:
            return outputs_NSE
        return torch.cat([outputs_NSE, self.summary(outputs_NSE, lengths_N)[:, None].expand_as(outputs_NSE)], -1)

    def _through(self, x_NSD: Tensor, lengths_N: Tensor | None) -> bool:
        """Whether to read on through the padding behind the sequences, which in one direction changes nothing before
        it: on a CPU the kernels that know of no lengths go back several times faster. Not where most is padding."""
        if lengths_N is None or self.config.bidirectional:
            return False
        N, S = x_NSD.shape[:2]
        return MOST_PADDED * int(lengths_N.sum()) >= N * S

    def summary(self, outputs_NSE: Tensor, lengths_N: Tensor | None) -> Tensor:
        """[N, E]: what the network says when it has read the sequence, from the beginning and from the end."""
        H = self.config.hidden
        rows_N = torch.arange(len(outputs_NSE), device=outputs_NSE.device)
        last_N = rows_N.new_full(rows_N.shape, outputs_NSE.shape[1]) - 1
        if lengths_N is not None:
            last_N = lengths_N.to(rows_N.device) - 1
        return torch.cat([outputs_NSE[rows_N, last_N, :H], outputs_NSE[:, 0, H:]], -1)

    # -- writing: see `models.sequence.Writer`

    @torch.no_grad()
    def begin(self, batch: Batch, width: int = 1) -> Seq2SeqState:
        """Read the beginnings `batch` [B, T], one a row, but for their last tokens, which are fed first.

        Short ones are filled up on either side. Raises UnmaskError for one without a token.
        """
        if "next" not in self.heads:
            raise unknown("head of this model", "next", self.heads)
        tokens_BT, lengths_B = left_aligned(batch)
        first_B = tokens_BT.gather(1, lengths_B[:, None] - 1).squeeze(1)
        last = self._after(tokens_BT, lengths_B - 1)
        return Seq2SeqState(width, first_B.repeat_interleave(width), last.repeat(width))

    @torch.no_grad()
    def next(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, Seq2SeqState)
        output_NH, state.recurrent = self.stack.step(self.embedding(tokens_N), state.recurrent)
        logits_NV: Tensor = self.heads["next"](output_NH)
        return logits_NV

    def _after(self, tokens_BT: Tensor, lengths_B: Tensor) -> RecurrentState:
        """The state after the first `lengths_B` tokens of each row, of which there may be none."""
        order_B = lengths_B.argsort(descending=True, stable=True)
        _, last = self.stack(self.embedding(tokens_BT[order_B]), lengths_N=lengths_B[order_B].clamp(min=1))
        last = last.select(order_B.argsort())
        nothing = (lengths_B == 0)[:, None]
        return last.map(lambda x: x.masked_fill(nothing, 0.0))

    def _fits(self, tokens: int) -> None:
        if self.positions is not None and tokens > self.positions:
            raise UnmaskError(
                f"A sequence of {tokens} tokens is longer than the {self.positions} that this model was made for. "
                f"Shorten it, or set --length {tokens} or more."
            )
