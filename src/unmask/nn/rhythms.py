"""The layers of MINA: frequency bands, and attention that is guided by knowledge (Hong et al. 2019).

Shapes: R records, F bands, L leads, N samples of a record, K segments of it, S samples of a segment, P places of the
convolution in a segment, C channels, E width of a segment's vector, O numbers of a band.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kernels.formats import exactly
from unmask.nn.dropout import Dropout
from unmask.nn.hierarchy import average
from unmask.nn.recurrent import Recurrent


class BandFilters(nn.Module):
    """Butterworth filters of the first order, one for each band, which start at rest, as the authors' code has them.

    low, high  the bounds of each band in hertz; 0: it has no such bound
    """

    def __init__(self, rate: int, low: Sequence[float], high: Sequence[float]) -> None:
        super().__init__()
        self.rate, self.bands = rate, tuple(zip(low, high, strict=True))

    def forward(self, samples_RLN: Tensor) -> Tensor:
        """[R, L, N] -> [R, F, L, N]. A sample depends on those before it alone, so zeros at the end change nothing."""
        N = samples_RLN.shape[-1]
        room = 1 << (N - 1).bit_length()
        responses = [torch.from_numpy(response(self.rate, *band, room)) for band in self.bands]
        responses_FN = torch.stack(responses).to(samples_RLN)[:, :N]
        with exactly(samples_RLN):
            spectra_RFLM = (
                torch.fft.rfft(samples_RLN, 2 * room)[:, None] * torch.fft.rfft(responses_FN, 2 * room)[:, None]
            )
            return torch.fft.irfft(spectra_RFLM, 2 * room)[..., :N]


@lru_cache(maxsize=64)
def response(rate: int, low: float, high: float, samples: int) -> np.ndarray:
    """[N] float32: the response of a filter to a single 1, as `scipy.signal.lfilter` gives it."""
    from scipy.signal import butter, lfilter

    impulse = np.zeros(samples)
    impulse[0] = 1
    if low or high:
        bounds = (low, high) if low and high else low or high
        kind = "bandpass" if low and high else "highpass" if low else "lowpass"
        impulse = lfilter(*butter(1, bounds, kind, fs=rate), impulse)
    return impulse.astype(np.float32)


def steps(samples_RLN: Tensor) -> Tensor:
    """[R, L, N] -> [R, L, N]: |x_n - x_(n-1)|, the knowledge of beats; 0 at the first sample."""
    return F.pad(samples_RLN.diff(dim=-1).abs(), (1, 0))


def deviations(segments_RKLS: Tensor) -> Tensor:
    """[R, K, L, S] -> [R, K, 1]: the standard deviation of each segment, the knowledge of rhythm."""
    from_mean_RKLS = segments_RKLS - segments_RKLS.mean(-1, keepdim=True)
    return from_mean_RKLS.square().mean(-1).sqrt().mean(-1, keepdim=True)


def powers(samples_RLN: Tensor, real_RN: Tensor, rate: int) -> Tensor:
    """[R, L, N] -> [R, 1]: the sum of the periodogram of each record, the knowledge of a band. By Parseval's theorem it
    is the variance times the seconds."""
    real_R1N = real_RN[:, None].to(samples_RLN.dtype)
    count_R1 = real_R1N.sum(-1)
    mean_RL = (samples_RLN * real_R1N).sum(-1) / count_R1
    squares_RL = ((samples_RLN - mean_RL[..., None]) * real_R1N).square().sum(-1)
    return squares_RL.mean(1, keepdim=True) / rate


class SegmentConvolution(nn.Conv1d):
    """A convolution within segments, as a matrix product: on segments of 50 samples it takes less than half as long as
    the kernels for convolutions, and no output is transposed."""

    def __init__(self, leads: int, channels: int, kernel: int, stride: int) -> None:
        super().__init__(leads, channels, kernel, stride)

    def forward(self, x_NLS: Tensor) -> Tensor:
        """[N, L, S] -> [N, P, C], P = floor((S - kernel) / stride) + 1."""
        windows_NLPW = x_NLS.unfold(-1, self.kernel_size[0], self.stride[0])
        return F.linear(windows_NLPW.transpose(1, 2).flatten(2), self.weight.flatten(1), self.bias)


class KnowledgeAttention(nn.Module):
    """sum_i a_i x_i with a = softmax over i of v . tanh(W [x_i; k_i]).

    dim       width of x        compared  width in which W compares
    numbers   of the knowledge k; 0: the weights depend on x alone
    """

    def __init__(self, dim: int, compared: int, numbers: int = 1) -> None:
        super().__init__()
        self.numbers = numbers
        self.project = nn.Linear(dim + numbers, compared, bias=False)
        self.score = nn.Linear(compared, 1, bias=False)

    def forward(self, x_RID: Tensor, known_RIk: Tensor, real_RI: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[R, I, D], [R, I, 1] -> [R, D] and the weights [R, I], 0 where `real_RI` is false."""
        read = torch.cat([x_RID, known_RIk.to(x_RID.dtype)], -1) if self.numbers else x_RID
        return average(x_RID, self.score(torch.tanh(self.project(read))).squeeze(-1), real_RI)


class EqualAttention(nn.Module):
    """The mean: an attention that prefers nothing."""

    def forward(self, x_RID: Tensor, known_RIk: Tensor, real_RI: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `KnowledgeAttention`."""
        real_RI = torch.ones_like(x_RID[..., 0], dtype=torch.bool) if real_RI is None else real_RI
        weights_RI = real_RI.to(x_RID.dtype) / real_RI.sum(-1, keepdim=True)
        return (weights_RI[:, None] @ x_RID).squeeze(1), weights_RI


class BandNetwork(nn.Module):
    """The network of one band: a convolution within segments, attention to its places, a recurrent network over the
    segments, attention to these, and a layer.

    beats, rhythm  the attentions
    recurrent      None: the vectors of segments stay as they are
    """

    def __init__(
        self,
        convolution: SegmentConvolution,
        known: SegmentConvolution,
        beats: nn.Module,
        rhythm: nn.Module,
        output: nn.Linear,
        *,
        recurrent: Recurrent | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.convolution, self.known, self.beats = convolution, known, beats
        self.recurrent, self.rhythm, self.output = recurrent, rhythm, output
        self.dropout = Dropout(dropout)

    def forward(self, segments_RKLS: Tensor, steps_RKLS: Tensor, lengths_R: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of the segments [R, K, E], and the weights of the places in each, [R, K, P]."""
        R, K = segments_RKLS.shape[:2]
        x_NPC = self.convolution(segments_RKLS.flatten(0, 1)).relu()
        known_NP1 = self.known(steps_RKLS.flatten(0, 1)).relu()
        x_NC, weights_NP = self.beats(x_NPC, known_NP1)
        x_RKE = x_NC.unflatten(0, (R, K))
        if self.recurrent is not None:
            x_RKE, _ = self.recurrent(x_RKE, None, lengths_R)
        return x_RKE, weights_NP.unflatten(0, (R, K))

    def pool(self, x_RKE: Tensor, deviations_RK1: Tensor, real_RK: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of the band [R, O], and the weights of the segments [R, K]."""
        x_RE, weights_RK = self.rhythm(x_RKE, deviations_RK1, real_RK)
        return self.dropout(self.output(x_RE).relu()).to(x_RE), weights_RK  # pre-packed weights answer in bfloat16


class Bands(nn.Module):
    """The networks of the bands, and attention to the bands."""

    def __init__(self, blocks: list[BandNetwork], attention: nn.Module) -> None:
        super().__init__()
        self.blocks, self.attention = nn.ModuleList(blocks), attention

    def forward(self, bands_RFLN: Tensor, segment: int, rate: int, lengths_R: Tensor) -> tuple[Tensor, Tensor]:
        """[R, F, L, N] -> states [R, K, F, E + 2] of the segments, which end with their deviation and the power of the
        band; and the weights of beats [R, K, F, P]."""
        real_RN = torch.arange(bands_RFLN.shape[-1], device=bands_RFLN.device) < lengths_R[:, None] * segment
        found, looked = [], []
        for block, samples_RLN in zip(self.blocks, bands_RFLN.unbind(1), strict=True):
            segments_RKLS = samples_RLN.unflatten(2, (-1, segment)).transpose(1, 2)
            steps_RKLS = steps(samples_RLN).unflatten(2, (-1, segment)).transpose(1, 2)
            x_RKE, weights_RKP = block(segments_RKLS, steps_RKLS, lengths_R)
            deviations_RK1 = deviations(segments_RKLS)
            powers_RK1 = powers(samples_RLN, real_RN, rate)[:, None].expand_as(deviations_RK1)
            found.append(torch.cat([x_RKE, deviations_RK1.to(x_RKE), powers_RK1.to(x_RKE)], -1))
            looked.append(weights_RKP)
        return torch.stack(found, 2), torch.stack(looked, 2)

    def pool(self, states_RKFE: Tensor, real_RK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States of segments -> numbers of the records [R, O]; weights of the segments [R, K, F], and of the bands
        [R, F]."""
        x_RKFE, deviations_RKF1, powers_RKF1 = states_RKFE.split([states_RKFE.shape[-1] - 2, 1, 1], -1)
        pooled = [
            block.pool(x_RKFE[:, :, f], deviations_RKF1[:, :, f], real_RK)  # type: ignore[operator]
            for f, block in enumerate(self.blocks)
        ]
        numbers_RFO = torch.stack([numbers_RO for numbers_RO, _ in pooled], 1)
        numbers_RO, weights_RF = self.attention(numbers_RFO, powers_RKF1[:, 0])
        return numbers_RO, torch.stack([weights_RK for _, weights_RK in pooled], 2), weights_RF
