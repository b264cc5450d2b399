"""Names of recurrent networks in unmask's own format. The weights of a layer have the names of torch.nn.LSTM."""

from __future__ import annotations

from dataclasses import replace

from unmask.huggingface.table import OF_SEQUENCES, Table
from unmask.huggingface.tables.bert import CRF
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.shared_recurrent import SharedRecurrent

RECURRENT = Table(
    model_type="unmask-recurrent",
    config=RecurrentNetwork,
    prefix="",
    fields={name: name for name in RecurrentNetwork().to_dict()},
    fixed={},
    trunk=(("embedding.token", "embedding"), ("stack.blocks.{}.network.kernel", "layers.{}")),
    pooler=(),
    heads={
        **{
            name: ((f"heads.{name}.project", f"{name}.project"), (f"heads.{name}.tied.bias", f"{name}.bias"))
            for name in ("next", "mlm")
        },
        **{name: ((f"heads.{name}.output", f"{name}.output"),) for name in (*OF_SEQUENCES, "tagging", "span")},
        "crf": CRF,
    },
    architectures={},
)
"""`transformers` has no such model."""

SHARED = replace(RECURRENT, model_type="unmask-shared-recurrent", config=SharedRecurrent)
