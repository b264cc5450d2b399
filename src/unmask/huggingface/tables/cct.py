"""Names of CCT, which `transformers` lacks: those of the page."""

from __future__ import annotations

from unmask.huggingface.processors import PICTURES
from unmask.huggingface.table import Table
from unmask.huggingface.tables.vit import blocks
from unmask.models.cct import Cct

FIELDS = (
    *("size", "patch", "channels", "dim", "layers", "heads", "hidden", "activation"),
    *("dropout", "attention_dropout", "drop_path", "eps", "std", "kernel", "convolutions"),
)

CCT = Table(
    model_type="unmask-cct",
    config=Cct,
    prefix="cct.",
    fields={name: name for name in FIELDS},
    fixed={},
    trunk=(
        ("embedding.token.signal.layers.{}.0", "cct.tokenizer.{}"),
        ("embedding.position.table", "cct.positions"),
        *blocks("stack.blocks.{}.", "cct.layers.{}."),
        ("stack.norm", "cct.norm"),
    ),
    pooler=(("pooler", "cct.pooling"),),
    heads={"image_classification": (("heads.image_classification.output", "classifier"),)},
    architectures={},
    processor=PICTURES,
)
