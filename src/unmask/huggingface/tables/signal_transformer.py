"""Names of the Transformer over segments of signals, which `transformers` lacks: those of the page."""

from __future__ import annotations

from unmask.huggingface.processors import SIGNALS
from unmask.huggingface.table import Table
from unmask.huggingface.tables.vit import blocks
from unmask.models.signal_transformer import SignalTransformer

SIZES = ("rate", "leads", "segment", "dim", "layers", "heads", "hidden", "activation", "dropout", "eps", "std")
FIELDS = (*SIZES, "hides")

SIGNAL_TRANSFORMER = Table(
    model_type="unmask-signal-transformer",
    config=SignalTransformer,
    prefix="transformer.",
    fields={name: name for name in FIELDS},
    fixed={},
    trunk=(
        ("embedding.token.signal.project", "transformer.segments"),
        ("embedding.token.kinds.MASK", "transformer.mask"),
        *blocks("stack.blocks.{}.", "transformer.layers.{}."),
        ("stack.norm", "transformer.norm"),
    ),
    pooler=(),
    heads={},
    architectures={},
    ignored=frozenset({"vocab_size"}),
    processor=SIGNALS,
)
