"""Names of VectorDecoder in unmask's own format: those of the page and its model."""

from __future__ import annotations

from unmask.huggingface.kinds import ENCODER_DECODER
from unmask.huggingface.parts import OwnForm
from unmask.huggingface.processors import VECTORS
from unmask.huggingface.table import Table
from unmask.models.vector_decoder import VectorDecoder

VECTOR_DECODER = Table(
    model_type="unmask-vector-decoder",
    config=VectorDecoder,
    prefix="",
    fields={name: name for name in VectorDecoder().to_dict()},
    fixed={},
    trunk=tuple((name, name) for name in ("target", "decoder", "hidden", "cell")),
    pooler=(),
    heads={"next": (("heads.next", "heads.next"),)},
    architectures={},
    parts=(OwnForm(VectorDecoder),),
    kind=ENCODER_DECODER,
    processor=VECTORS,
)
