"""Names of the Transformer over segments of signals, which `transformers` lacks: those of the page."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unmask.huggingface.processors import SIGNALS
from unmask.huggingface.table import Part, Table
from unmask.huggingface.tables.vit import blocks
from unmask.models.signal_transformer import SignalTransformer

SIZES = ("rate", "leads", "segment", "dim", "layers", "heads", "hidden", "activation", "dropout", "eps", "std")
FIELDS = (*SIZES, "hides", "position")

MASK = "transformer.mask"


class Hidden(Part):
    """The vector for masked segments, which a folder for a task lacks (`ModelConfig.in_folder`)."""

    def store(self, config: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in tensors.items() if config.hides or name != MASK}


SIGNAL_TRANSFORMER = Table(
    model_type="unmask-signal-transformer",
    config=SignalTransformer,
    prefix="transformer.",
    fields={name: name for name in FIELDS},
    fixed={},
    trunk=(
        ("embedding.token.signal.project", "transformer.segments"),
        ("embedding.token.kinds.MASK", MASK),
        *blocks("stack.blocks.{}.", "transformer.layers.{}."),
        ("stack.norm", "transformer.norm"),
    ),
    pooler=(),
    heads={},
    architectures={},
    ignored=frozenset({"vocab_size"}),
    processor=SIGNALS,
    parts=(Hidden(),),
)
