"""The forward pass of MINA (`models/mina.py`).

Shapes: B rows, T places of a row, R records, F bands, L leads, K segments of the longest record, N samples of it, P
places of the convolution in a segment, E width of the state of a segment in one band, O numbers of a band, M places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from unmask.models.signal_model import Looked, SignalModel, is_real
from unmask.models.speech_model import recordings
from unmask.nn.rhythms import BandFilters, Bands
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.mina import Mina


class MinaModel(SignalModel):
    """Reads records in bands; the state of a segment has those of all bands side by side."""

    config: Mina
    embedding: BandFilters
    stack: Bands

    def states(self, samples_RLN: Tensor, lengths_R: Tensor) -> Tensor:
        return self._read(samples_RLN, lengths_R)[0].flatten(2)

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """[M, O]: what attention to rhythm and bands makes of each record that holds one of these places."""
        x_MKD, length_M = recordings(hidden_BTD, places_M, batch)
        return self._pool(x_MKD.unflatten(2, (len(self.config.low), -1)), length_M)[0]

    def looked(self, batch: Batch) -> Looked:
        """The weights of attention. Raises UnmaskError as `forward`."""
        sequences, samples_RLN = self.records(batch)
        states_RKFE, beats_RKFP = self._read(samples_RLN, sequences.lengths)
        _, rhythm_RKF, bands_RF = self._pool(states_RKFE, sequences.lengths)
        owners_N = sequences.owners.new_zeros(batch.tokens.numel()).index_copy(0, sequences.places, sequences.owners)
        starts_R = sequences.places[sequences.steps == 0] if batch.starts is None else batch.starts
        order_R = owners_N[starts_R]  # `Sequences` sorts them by length
        return Looked(beats_RKFP[order_R], rhythm_RKF[order_R], bands_RF[order_R])

    def _read(self, samples_RLN: Tensor, lengths_R: Tensor) -> tuple[Tensor, Tensor]:
        states_RKFE, beats_RKFP = self.stack(
            self.embedding(samples_RLN), self.config.segment, self.config.rate, lengths_R
        )
        return states_RKFE, beats_RKFP

    def _pool(self, states_RKFE: Tensor, lengths_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.stack.pool(states_RKFE, is_real(lengths_R, states_RKFE.shape[1]))
