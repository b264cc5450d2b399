"""ConvolutionalSpeech: a Transformer over frames that strided convolutions compute from samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unmask.models.speech import SpeechEncoder, same_number
from unmask.nn import ACTIVATIONS
from unmask.nn.recordings import Convolutions, Features, PlaceNorm, RecordingNorm, StridedConvolution, reach


@dataclass(frozen=True, kw_only=True)
class ConvolutionalSpeech(SpeechEncoder):
    """The numbers of the convolutions of wav2vec 2.0 and HuBERT (Baevski et al. 2020, sections 2 and 4.2).

    channels, kernels, strides  of each convolution
    conv_bias         whether they have a bias
    conv_norm         "group": the first normalises each channel over a recording; "layer": all normalise each place
    feature_gradient  factor on their gradients

    Raises UnmaskError for different numbers of channels, kernels and strides.
    """

    channels: tuple[int, ...] = (512,) * 7
    kernels: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)
    strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)
    conv_bias: bool = False
    conv_norm: Literal["group", "layer"] = "group"
    feature_gradient: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        same_number(self, "channels", "kernels", "strides")

    @property
    def hop(self) -> int:
        return reach(self.kernels, self.strides)[0]

    @property
    def window(self) -> int:
        return reach(self.kernels, self.strides)[1]

    @property
    def adapted(self) -> str:
        """The convolutions stay as they are (Baevski et al. 2020, section 4.3)."""
        return "upper"

    def front(self) -> Features:
        sizes = zip((1, *self.channels), self.channels, self.kernels, self.strides, strict=False)
        return Convolutions([self._layer(i, *size) for i, size in enumerate(sizes)], gradient=self.feature_gradient)

    def _layer(self, number: int, inputs: int, outputs: int, kernel: int, stride: int) -> StridedConvolution:
        norm = PlaceNorm(outputs) if self.conv_norm == "layer" else None if number else RecordingNorm(outputs)
        activation = ACTIVATIONS[self.conv_activation]
        return StridedConvolution(
            inputs, outputs, kernel, stride, bias=self.conv_bias, norm=norm, activation=activation
        )
