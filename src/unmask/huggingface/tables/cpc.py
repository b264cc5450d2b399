"""Names of CPC in unmask's own format. The weights of a recurrent layer have the names of torch.nn.GRU."""

from __future__ import annotations

from unmask.huggingface.processors import RECORDINGS
from unmask.huggingface.table import Table
from unmask.models.cpc import Cpc

CPC = Table(
    model_type="unmask-cpc",
    config=Cpc,
    prefix="",
    fields={name: name for name in Cpc().to_dict()},
    fixed={},
    trunk=(("embedding.features.layers.{}", "encoder.{}"), ("stack.blocks.{}.network.kernel", "context.{}")),
    pooler=(),
    heads={},
    architectures={},
    processor=RECORDINGS,
)
"""`transformers` has no such model."""
