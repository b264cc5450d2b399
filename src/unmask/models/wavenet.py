"""WaveNet: dilated causal convolutions predict each sample of a recording from those before it (van den Oord et al.
2016).

Shapes: B rows, T samples of a row, S samples of the longest recording, L places of a buffer of recordings, D width, E
width of the skips, M places, N hypotheses, V levels of a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.models.cpc import FrameReader
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.speech_model import SpeechModel
from unmask.models.writer import State
from unmask.nn import Classifier, DilatedStack, Token, Window
from unmask.nn.initialise import xavier_uniform
from unmask.nn.mu_law import LEVELS, encode
from unmask.nn.recordings import Features, Tape
from unmask.nn.sequences import Sequences
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class WaveNet(ModelConfig):
    """The numbers that make a WaveNet; the paper names the dilations, and not the widths.

    vocabulary  V, levels of a sample
    dim         D, width of the layers           skip     E, width of the output of the stack
    dilations   of the layers, from the lowest; the paper repeats 1, 2, 4, …, 512
    kernel      samples that a layer reads, each `dilation` after the last
    length, padding  no limit and no padding

    Raises UnmaskError for fewer than 2 levels.
    """

    vocabulary: int = LEVELS
    dim: int = 64
    skip: int = 256
    dilations: tuple[int, ...] = tuple(2**i for i in range(10)) * 3
    kernel: int = 2
    length: int | None = None
    padding: int | None = None

    hop = window = 1  # each sample is a frame

    def __post_init__(self) -> None:
        if self.vocabulary < 2:
            raise UnmaskError(f"A sample has at least 2 levels, not {self.vocabulary}.")

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"recordings", "next samples"})

    @property
    def width(self) -> int:
        return self.skip

    def embedding(self) -> FrameReader:
        """The causal convolution below the stack (figure 4): one sample wide, a vector for each level."""
        return FrameReader(Levels(self.vocabulary, self.dim))

    def stack(self) -> DilatedStack:
        return DilatedStack(self.dim, self.skip, self.dilations, kernel=self.kernel)

    def next_sample_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return NextSample(self.skip, self.vocabulary)

    def token_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.skip, head.outputs)

    sequence_head = embedding_head = token_head

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; the default head is the next sample. Heads for recordings read the mean of all
        samples, so there is no pooler."""
        heads = {"samples": Head("next_sample")} if heads is None else heads
        made = {name: head_of(self, head) for name, head in heads.items()}
        model = WaveNetModel(self, self.embedding(), self.stack(), heads=made)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one: see `xavier_uniform`."""
        xavier_uniform(module, seed, padding=None)


class Levels(Features):
    """Samples as μ-law levels (section 2.2), and a vector for each level."""

    hop = window = 1

    def __init__(self, levels: int, dim: int) -> None:
        super().__init__()
        self.table, self.channels = Token(levels, dim), dim

    def forward(self, samples_L: Tensor, tape: Tape) -> tuple[Tensor, Tape]:
        return self.table(encode(samples_L, self.table.num_embeddings)), tape

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.table.weight, std=self.channels**-0.5, generator=generator)


class NextSample(nn.Module):
    """W_2 relu(W_1 relu(x)): the layers from the sum of the skips to the levels (figure 4)."""

    def __init__(self, skip: int, levels: int) -> None:
        super().__init__()
        self.dense, self.output = nn.Linear(skip, skip), nn.Linear(skip, levels)

    def forward(self, x_ME: Tensor) -> Tensor:
        """[M, E] -> logits [M, V]."""
        logits_MV: Tensor = self.output(F.relu(self.dense(F.relu(x_ME))))
        return logits_MV


@dataclass(eq=False)
class WaveNetState(State):
    """The past inputs of each layer, as many as its convolution reads: a queue (Le Paine et al. 2016)."""

    width: int
    first: Tensor
    windows: list[Window]

    def select(self, rows_N: Tensor) -> None:
        self.first = self.first[rows_N]
        for window in self.windows:
            window.select(rows_N)


class WaveNetModel(SpeechModel):
    """Reads recordings, packed or padded in any way; the state of a sample depends on it and on those before it."""

    config: WaveNet
    stack: DilatedStack

    def forward(self, batch: Batch) -> Tensor:
        """Sums of the skips [B, T, E], zero at padding. Raises UnmaskError as `SpeechModel.forward`."""
        x_BTD, _ = self.embedding(batch.tokens, batch.documents, batch.signal)
        if batch.documents is None:
            return self.stack(x_BTD)
        sequences = Sequences.of(batch.documents)
        return sequences.pack(self.stack(sequences.unpack(x_BTD)))

    @property
    def causal(self) -> bool:
        return True

    # -- writing: see `models.writer.Writer`

    @torch.no_grad()
    def prefill(self, batch: Batch, width: int = 1) -> State:
        """Read the beginnings of recordings, one a row and all of the same length, except for their last samples, which
        are fed first. Raises UnmaskError for beginnings of different lengths, and for a model without the head."""
        if "samples" not in self.heads:
            raise unknown("head of this model", "samples", self.heads)
        if batch.documents is not None and not bool((batch.documents == 1).all()):
            raise UnmaskError("Recordings that are continued together must have the same length.")
        x_BTD, windows = self.embedding(batch.tokens, batch.documents, batch.signal)[0], self.stack.windows()
        self.stack(x_BTD[:, :-1], windows)
        assert batch.signal is not None  # or the embedding had refused it
        levels_BT = encode(batch.signal.values, self.config.vocabulary).view(len(x_BTD), -1)
        state = WaveNetState(width, levels_BT[:, -1], windows)
        state.select(torch.arange(len(x_BTD), device=x_BTD.device).repeat_interleave(width))
        return state

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one level to each hypothesis; logits [N, V] of the one after it. Changes `state`."""
        assert isinstance(state, WaveNetState)
        levels = self.embedding.features
        assert isinstance(levels, Levels)
        logits_NV: Tensor = self.heads["samples"](self.stack(levels.table(tokens_N)[:, None], state.windows)[:, 0])
        return logits_NV
