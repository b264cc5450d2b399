"""Names of the Transformer over log-mel spectra, which `transformers` lacks: those of the page."""

from __future__ import annotations

from unmask.huggingface.processors import RECORDINGS
from unmask.huggingface.table import Table
from unmask.huggingface.transcripts import Transcripts
from unmask.models.log_mel import LogMelEncoder

SHARED = {"vocabulary": "vocab_size", "padding": "pad_token_id"}

LOG_MEL = Table(
    model_type="unmask-log-mel",
    config=LogMelEncoder,
    prefix="encoder.",
    fields={SHARED.get(name, name): name for name in LogMelEncoder().to_dict()},
    fixed={},
    trunk=(("embedding", "encoder.embedding"), ("stack", "encoder.stack"), ("mix", "encoder.mix")),
    pooler=(),
    heads={},
    architectures={},
    nullable=frozenset({"pad_token_id", "length"}),
    parts=(Transcripts(),),
    processor=RECORDINGS,
)
