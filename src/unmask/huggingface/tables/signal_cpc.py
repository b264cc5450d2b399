"""Names of the CPC of records, which `transformers` lacks. The weights of a recurrent layer have the names of
torch.nn.GRU."""

from __future__ import annotations

from unmask.huggingface.processors import SIGNALS
from unmask.huggingface.table import Table
from unmask.models.signal_cpc import SignalCpc

FIELDS = ("rate", "leads", "channels", "strides", "dim", "layers", "cell", "dropout")

SIGNAL_CPC = Table(
    model_type="unmask-signal-cpc",
    config=SignalCpc,
    prefix="",
    fields={name: name for name in FIELDS},
    fixed={},
    trunk=(("embedding.layers.{}", "encoder.{}"), ("stack.blocks.{}.network.kernel", "context.{}")),
    pooler=(),
    heads={},
    architectures={},
    ignored=frozenset({"vocab_size"}),
    processor=SIGNALS,
)
