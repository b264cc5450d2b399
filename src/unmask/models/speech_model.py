"""The forward pass of wav2vec 2.0, HuBERT and other models of recordings (`models/speech.py`).

Shapes: B rows, T frames of a row, C channels of the convolutions, D width, M places, S frames of the longest recording.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from unmask.kernels.formats import exact
from unmask.models.model import ModelConfig
from unmask.models.stack_model import StackModel
from unmask.nn import DilatedStack, Logits, Mask, RecurrentStack, Stack
from unmask.nn.recording_heads import LayerMix, XVector
from unmask.nn.recordings import Frames
from unmask.types import Batch, boundaries_of


class SpeechModel(StackModel):
    """Reads recordings, packed or padded in any way; each frame has a hidden state.

    mix  the mean of all layers that heads read instead of the last one; None without
    """

    embedding: Frames
    stack: Stack | RecurrentStack | DilatedStack

    def __init__(
        self,
        config: ModelConfig,
        embedding: Frames,
        stack: Stack | RecurrentStack | DilatedStack,
        *,
        heads: Mapping[str, nn.Module] | None = None,
        mix: LayerMix | None = None,
    ) -> None:
        super().__init__(config, embedding, stack, heads=heads)
        self.mix = mix

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, D]. Raises UnmaskError for a batch without recordings, or with those of a processor for
        other frames."""
        x_BTD, _ = self.embedding(batch.tokens, batch.documents, batch.signal)
        mask = Mask(documents=batch.documents, boundaries=batch.boundaries)
        if self.mix is None:
            hidden_BTD: Tensor = self.stack(x_BTD, mask=mask)
            return hidden_BTD
        states, bias = [x_BTD], mask.bias(x_BTD.shape[1], x_BTD.shape[1], x_BTD.device)
        assert isinstance(self.stack, Stack)  # only a Transformer has a mean of layers
        for block in self.stack.blocks:
            states.append(self.stack.skip(states[-1], block(states[-1], bias=bias)))
        mixed_BTD: Tensor = self.mix(states)
        return mixed_BTD

    @property
    def reads_stack_whole(self) -> bool:
        return self.mix is None

    @property
    def sequences_apart(self) -> bool:
        """Not with a mean of layers, whose weights a task learns even on a frozen trunk."""
        return self.mix is None

    @property
    def front(self) -> nn.Module:
        return self.embedding.features

    def frames(self, batch: Batch) -> Tensor:
        """[B, T, C]: the normalised features of all frames, masked or not; zero at padding."""
        return self.embedding.frames(batch.tokens, batch.signal)[0]

    def forward_with_frames(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """(hidden states, frames, features) of one pass: `frames`, and the same before they are normalised."""
        found: list[tuple[Tensor, Tensor]] = []

        def keep(_: nn.Module, __: object, outputs: tuple[Tensor, tuple[Tensor, Tensor]]) -> None:
            found.append(outputs[1])

        handle = self.embedding.register_forward_hook(keep)
        try:
            hidden_BTD = self(batch)  # a call of the model itself, which gathers sharded parameters
        finally:
            handle.remove()
        return hidden_BTD, *found[0]

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """As `Model.answer`; an x-vector is computed from all frames of the recording that holds a place."""
        head = self.heads[name]
        if not isinstance(head, XVector):
            return super().answer(name, hidden_BTD, places_M, batch)
        vectors_ME: Tensor = head(*recordings(hidden_BTD, places_M, batch))
        return vectors_ME

    def logits(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor | Logits:
        if isinstance(self.heads[name], XVector):
            return self.answer(name, hidden_BTD, places_M, batch)
        return super().logits(name, hidden_BTD, places_M, batch)

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """The mean state of each recording that holds one of these places, [M, D]."""
        first_M, length_M = extents(hidden_BTD.shape[1], places_M, batch)
        total = int(length_M.sum())
        owner_N = torch.arange(len(first_M), device=first_M.device).repeat_interleave(length_M, output_size=total)
        before_M = length_M.cumsum(0) - length_M
        inside_N = (first_M - before_M)[owner_N] + torch.arange(total, device=first_M.device)
        x_ND = exact(hidden_BTD.flatten(0, 1)[inside_N])
        sums_MD = x_ND.new_zeros(len(first_M), x_ND.shape[-1]).index_add(0, owner_N, x_ND)
        return (sums_MD / length_M[:, None]).to(hidden_BTD.dtype)


def extents(T: int, places_M: Tensor, batch: Batch | None) -> tuple[Tensor, Tensor]:
    """The first place and the number of frames [M] of the recordings that hold these places of rows of T frames.
    Without a batch, each row is one recording."""
    documents_BT = None if batch is None else batch.documents
    if documents_BT is None:
        return places_M // T * T, torch.full_like(places_M, T)
    given = None if batch is None else batch.boundaries
    begins = (boundaries_of(documents_BT) if given is None else given).long()
    last_M = torch.searchsorted(begins, places_M, right=True)
    return begins[last_M - 1], begins[last_M] - begins[last_M - 1]


def recordings(hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> tuple[Tensor, Tensor]:
    """All frames of the recordings that hold these places, [M, S, D], zero behind their ends; their numbers [M]."""
    first_M, length_M = extents(hidden_BTD.shape[1], places_M, batch)
    steps_S = torch.arange(int(length_M.max()) if len(length_M) else 0, device=places_M.device)
    inside_MS = steps_S < length_M[:, None]
    x_MSD = hidden_BTD.flatten(0, 1)[(first_M[:, None] + steps_S).where(inside_MS, 0)]
    return x_MSD.where(inside_MS[..., None], 0), length_M
