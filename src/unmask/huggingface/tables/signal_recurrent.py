"""Names of the recurrent network over segments of signals, which `transformers` lacks. The weights of a recurrent layer
have the names of torch.nn.LSTM."""

from __future__ import annotations

from unmask.huggingface.processors import SIGNALS
from unmask.huggingface.table import Table
from unmask.models.signal_recurrent import SignalRecurrent

FIELDS = ("rate", "leads", "segment", "dim", "hidden", "layers", "cell", "bidirectional", "dropout")

SIGNAL_RECURRENT = Table(
    model_type="unmask-signal-recurrent",
    config=SignalRecurrent,
    prefix="recurrent.",
    fields={name: name for name in FIELDS},
    fixed={},
    trunk=(
        ("embedding", "recurrent.segments"),
        ("stack.blocks.{}.network.kernel", "recurrent.layers.{}"),
    ),
    pooler=(),
    heads={},
    architectures={},
    ignored=frozenset({"vocab_size"}),
    processor=SIGNALS,
)
