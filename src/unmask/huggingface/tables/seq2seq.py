"""Names of Seq2Seq in unmask's own format: those of the page and its model."""

from __future__ import annotations

from unmask.huggingface.kinds import ENCODER_DECODER
from unmask.huggingface.parts import OwnForm
from unmask.huggingface.processors import SIDES
from unmask.huggingface.table import Table
from unmask.models.seq2seq import Seq2Seq

SEQ2SEQ = Table(
    model_type="unmask-seq2seq",
    config=Seq2Seq,
    prefix="",
    fields={name: name for name in Seq2Seq().to_dict()},
    fixed={},
    trunk=tuple((name, name) for name in ("source", "target", "encoder", "bridge", "decoder")),
    pooler=(),
    heads={"next": (("heads.next", "heads.next"),)},
    architectures={},
    parts=(OwnForm(Seq2Seq),),
    kind=ENCODER_DECODER,
    processor=SIDES,
)
