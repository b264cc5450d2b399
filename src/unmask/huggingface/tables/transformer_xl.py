"""Names of Transformer-XL in unmask's own format."""

from __future__ import annotations

from unmask.huggingface.table import OF_SEQUENCES, Table
from unmask.huggingface.tables.bert import CRF
from unmask.models.transformer_xl import TransformerXl

TRANSFORMER_XL = Table(
    model_type="unmask-transformer-xl",
    config=TransformerXl,
    prefix="",
    fields={name: name for name in TransformerXl().to_dict()},
    fixed={},
    trunk=(
        ("embedding.token", "embedding"),
        ("stack.blocks.{}.attention.f.position.project", "layers.{}.relative"),
        ("stack.blocks.0.attention.f.position", "content"),  # u and v, which all layers share
        *((f"stack.blocks.{{}}.attention.f.{part}", f"layers.{{}}.{part}") for part in ("query", "key", "value")),
        ("stack.blocks.{}.attention.f.output", "layers.{}.output"),
        *((f"stack.blocks.{{}}.feedforward.f.{part}", f"layers.{{}}.{part}") for part in ("up", "down")),
        *((f"stack.blocks.{{}}.{part}.after", f"layers.{{}}.{part}_norm") for part in ("attention", "feedforward")),
    ),
    pooler=(),
    heads={
        "next": (("heads.next.bias", "next.bias"),),
        **{name: ((f"heads.{name}.output", f"{name}.output"),) for name in (*OF_SEQUENCES, "tagging", "span")},
        "crf": CRF,
    },
    architectures={},
)
"""`transformers` has removed its model of this name."""
