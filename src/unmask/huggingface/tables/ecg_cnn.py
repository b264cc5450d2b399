"""Names of the deep convolutional network over electrocardiograms, which `transformers` lacks: those of the page."""

from __future__ import annotations

from unmask.huggingface.processors import SIGNALS
from unmask.huggingface.table import Table
from unmask.models.ecg_cnn import EcgCnn

ECG_CNN = Table(
    model_type="unmask-ecg-cnn",
    config=EcgCnn,
    prefix="convolutions.",
    fields={name: name for name in ("rate", "leads", "blocks", "filters", "doubled", "kernel", "dropout")},
    fixed={},
    trunk=(
        ("embedding", "convolutions.first"),
        ("stack.blocks.{}", "convolutions.blocks.{}"),
        ("stack.layer", "convolutions.last"),
    ),
    pooler=(),
    heads={},
    architectures={},
    ignored=frozenset({"vocab_size"}),
    processor=SIGNALS,
)
