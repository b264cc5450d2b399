"""Names of Transformer in unmask's own format: those of the page and its model."""

from __future__ import annotations

from unmask.huggingface.kinds import ENCODER_DECODER
from unmask.huggingface.parts import OwnForm
from unmask.huggingface.processors import SIDES
from unmask.huggingface.table import Table
from unmask.models.transformer import Transformer

TRANSFORMER = Table(
    model_type="unmask-transformer",
    config=Transformer,
    prefix="",
    fields={name: name for name in Transformer().to_dict()},
    fixed={},
    trunk=tuple((name, name) for name in ("source", "target", "encoder", "decoder")),
    pooler=(),
    heads={"next": (("heads.next", "heads.next"),)},
    architectures={},
    parts=(OwnForm(Transformer),),
    kind=ENCODER_DECODER,
    processor=SIDES,
)
