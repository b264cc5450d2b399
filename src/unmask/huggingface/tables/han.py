"""Names of hierarchical attention networks, which `transformers` lacks: those of the page."""

from __future__ import annotations

from unmask.huggingface.processors import SENTENCES
from unmask.huggingface.table import OF_SEQUENCES, Table
from unmask.huggingface.tables.bert import CRF
from unmask.models.han import Han

HAN = Table(
    model_type="unmask-han",
    config=Han,
    prefix="",
    fields={name: name for name in Han().to_dict()},
    fixed={},
    trunk=(
        ("embedding.token", "embedding"),
        ("stack.blocks.{}.network.kernel", "levels.{}.network"),
        ("stack.blocks.{}.attention", "levels.{}.attention"),
    ),
    pooler=(),
    heads={
        **{name: ((f"heads.{name}.output", f"{name}.output"),) for name in (*OF_SEQUENCES, "tagging")},
        "crf": CRF,
    },
    architectures={},
    processor=SENTENCES,
)
