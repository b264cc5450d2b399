"""Names of the convolutions over cepstra, which `transformers` lacks: those of the page."""

from __future__ import annotations

from unmask.huggingface.processors import RECORDINGS
from unmask.huggingface.table import Table
from unmask.huggingface.transcripts import Transcripts
from unmask.models.mfcc_cnn import MfccCnn

MFCC_CNN = Table(
    model_type="unmask-mfcc-cnn",
    config=MfccCnn,
    prefix="convolutions.",
    fields={name: name for name in ("rate", "bands", "cepstra", "widths", "strides", "kernel", "dropout", "vector")},
    fixed={},
    trunk=(("stack.blocks.{}", "convolutions.layers.{}"),),
    pooler=(),
    heads={},
    architectures={},
    ignored=frozenset({"vocab_size"}),
    parts=(Transcripts(),),
    processor=RECORDINGS,
)
