"""Names of ConvS2S in unmask's own format: those of the page and its model."""

from __future__ import annotations

from unmask.huggingface.kinds import ENCODER_DECODER
from unmask.huggingface.parts import OwnForm
from unmask.huggingface.processors import SIDES
from unmask.huggingface.table import Table
from unmask.models.convs2s import ConvS2S

CONVS2S = Table(
    model_type="unmask-convs2s",
    config=ConvS2S,
    prefix="",
    fields={name: name for name in ConvS2S().to_dict()},
    fixed={},
    trunk=tuple((name, name) for name in ("source", "target", "encoder", "decoder")),
    pooler=(),
    heads={"next": (("heads.next", "heads.next"),)},
    architectures={},
    parts=(OwnForm(ConvS2S),),
    kind=ENCODER_DECODER,
    processor=SIDES,
)
