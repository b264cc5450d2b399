"""Recordings that a model of samples writes, such as a WaveNet.

Shapes: P samples of a beginning, N samples that are written.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from unmask.data.recordings.decoding import decode as recording
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.generate import Sampling, draws
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.nn.mu_law import decode

SHOWN = 500  # samples from one call of `show` to the next


def sounds(
    loaded: Loaded[Model],
    how: Sampling,
    seconds: float,
    beginning: Path | str | None = None,
    show: Callable[[str, int, int | None], None] = lambda *_: None,
) -> tuple[np.ndarray, int]:
    """What a model writes after a recording, or after silence: samples [N] float32 from -1 to 1, and their rate.

    beginning  file of the recording
    show       is called with a description, the samples written so far, and N

    Raises UnmaskError for a model that does not predict samples, for other than one sample, and for a length of less
    than a sample.
    """
    model = loaded.model.eval()
    if "samples" not in model.heads:
        raise UnmaskError(
            "This model does not predict the samples of a recording: use one that `unmask pretrain wavenet-tiny` makes."
        )
    processor = loaded.require_processor("The model")
    assert isinstance(processor, RecordingProcessor)  # whoever predicts samples reads recordings
    count = round(seconds * processor.rate)
    if count < 1:
        raise UnmaskError(f"A recording has at least one sample: --seconds must be above 0, not {seconds:g}.")
    if how.samples != 1:
        raise UnmaskError("One recording is written at a time: leave --samples out.")
    before_P = np.zeros(1, np.float32) if beginning is None else recording(beginning, processor.rate)
    batch = processor.collate([processor.example(before_P)]).to(model.device)
    levels = []
    for number, level_1 in enumerate(islice(draws(model, batch, how), count), 1):
        levels.append(level_1)
        if number % SHOWN == 0 or number == count:
            show("samples", number, count)
    written: np.ndarray = decode(torch.cat(levels), model.config.vocabulary).cpu().numpy()
    return written, processor.rate
