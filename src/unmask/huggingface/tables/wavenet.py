"""Names of WaveNet in unmask's own format."""

from __future__ import annotations

from unmask.huggingface.processors import RECORDINGS
from unmask.huggingface.table import Table
from unmask.models.wavenet import WaveNet

WAVENET = Table(
    model_type="unmask-wavenet",
    config=WaveNet,
    prefix="",
    fields={name: name for name in WaveNet().to_dict()},
    fixed={},
    trunk=(
        ("embedding.features.table", "levels"),
        ("stack.convolutions.{}", "gated.{}"),
        ("stack.residuals.{}", "residual.{}"),
        ("stack.skips.{}", "skip.{}"),
    ),
    pooler=(),
    heads={},
    architectures={},
    processor=RECORDINGS,
)
"""`transformers` has no such model."""
