"""LogMelEncoder: a Transformer over log-mel spectra, the plain alternative to convolutions that learn from samples."""

from __future__ import annotations

from dataclasses import dataclass

from unmask.errors import UnmaskError
from unmask.models.speech import OFFERS, SpeechEncoder
from unmask.nn.spectra import StackedLogMel


@dataclass(frozen=True, kw_only=True)
class LogMelEncoder(SpeechEncoder):
    """The numbers that make a Transformer over log-mel spectra of windows of 25 ms, one for every 10 ms.

    rate     samples a second
    bands    mel bands of a window
    stacked  windows of a frame: 2 give as many frames a second as wav2vec 2.0 has

    Raises UnmaskError for a rate without whole windows, or without a window or a band.
    """

    rate: int = 16_000
    bands: int = 80
    stacked: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate < 1 or self.rate % 200 or self.bands < 1 or self.stacked < 1:
            raise UnmaskError(
                f"rate = {self.rate} must be a multiple of 200, so that windows of 25 ms have whole samples, and bands "
                "and stacked at least 1."
            )

    @property
    def hop(self) -> int:
        return self.rate // 100 * self.stacked

    @property
    def window(self) -> int:
        return self.rate // 40 + self.rate // 100 * (self.stacked - 1)

    @property
    def offers(self) -> frozenset[str]:
        return OFFERS

    def front(self) -> StackedLogMel:
        step, width = self.rate // 100, self.rate // 40
        return StackedLogMel(self.rate, bands=self.bands, step=step, width=width, stack=self.stacked)
