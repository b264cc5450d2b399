"""Names of VGG, which `transformers` lacks: those of the page."""

from __future__ import annotations

from unmask.huggingface.processors import PICTURES
from unmask.huggingface.table import Table
from unmask.models.vgg import Vgg

VGG = Table(
    model_type="unmask-vgg",
    config=Vgg,
    prefix="vgg.",
    fields={name: name for name in ("size", "channels", "widths", "depths", "norm", "pointwise")},
    fixed={},
    trunk=(("stack.stages.{}.blocks.{}", "vgg.stages.{}.layers.{}"),),
    pooler=(),
    heads={"image_classification": (("heads.image_classification.output", "classifier"),)},
    architectures={},
    processor=PICTURES,
)
