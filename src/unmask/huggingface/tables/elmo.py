"""Names of ELMo in unmask's own format. The weights of a layer have the names of torch.nn.LSTM."""

from __future__ import annotations

from unmask.huggingface.table import OF_SEQUENCES, Table
from unmask.huggingface.tables.bert import CRF
from unmask.models.elmo import Elmo

ELMO = Table(
    model_type="unmask-elmo",
    config=Elmo,
    prefix="",
    fields={name: name for name in Elmo().to_dict()},
    fixed={},
    trunk=(
        ("embedding", "characters"),
        ("stack.blocks.{}.forwards", "layers.{}.forward"),
        ("stack.blocks.{}.backwards", "layers.{}.backward"),
    ),
    pooler=(("pooler", "task"),),
    heads={
        **{name: ((f"heads.{name}.output", f"{name}.output"),) for name in (*OF_SEQUENCES, "tagging", "words")},
        "crf": CRF,
    },
    architectures={},
)
"""`transformers` has no such model."""
