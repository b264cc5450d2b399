"""Names of MINA, which `transformers` lacks: those of the page."""

from __future__ import annotations

from unmask.huggingface.processors import SIGNALS
from unmask.huggingface.table import Table
from unmask.models.mina import Mina

FIELDS = (
    *("rate", "leads", "segment", "low", "high", "filters", "kernel", "stride", "recurrent", "hidden", "attention"),
    *("compared", "band_compared", "outputs", "dropout"),
)

MINA = Table(
    model_type="unmask-mina",
    config=Mina,
    prefix="mina.",
    fields={name: name for name in FIELDS},
    fixed={},
    trunk=(
        *(
            (f"stack.blocks.{{}}.{name}", f"mina.bands.{{}}.{name}")
            for name in ("convolution", "known", "beats", "recurrent", "rhythm", "output")
        ),
        ("stack.attention", "mina.attention"),
    ),
    pooler=(),
    heads={},
    architectures={},
    ignored=frozenset({"vocab_size"}),
    processor=SIGNALS,
)
