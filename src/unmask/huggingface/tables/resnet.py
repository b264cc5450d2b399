"""Names of ResNet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.data.pictures.processor import ImageProcessor
from unmask.huggingface.processors import PICTURES
from unmask.huggingface.table import Names, Part, Table
from unmask.models.resnet import ResNet

FIELDS = {
    "image_size": "size",
    "num_channels": "channels",
    "embedding_size": "dim",
    "hidden_sizes": "widths",
    "depths": "depths",
    "layer_type": "block",
    "hidden_act": "activation",
    "downsample_in_first_stage": "halve_first",
    "downsample_in_bottleneck": "halve_early",
}
IGNORED = frozenset({"out_features", "out_indices", "stage_names"})
"""The outputs of a backbone for a detector."""


class Size(Part):
    """`transformers` has no field for the size of pictures, as the weights fit any: unmask writes image_size. A folder
    without it has the size of its image processor, by default 224."""

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        if "image_size" in values or not any((place.parent / name).is_file() for name in PICTURES.signs):
            return values
        return {**values, "image_size": ImageProcessor.load(place.parent).size}


def _layer(ours: str, theirs: str) -> Names:
    return (
        (f"{ours}.convolution", f"{theirs}.convolution"),
        (f"{ours}.norm", f"{theirs}.normalization"),
    )


def _trunk(stem: str, prefix: str) -> Names:
    block, theirs = "stack.stages.{}.blocks.{}.", prefix + "encoder.stages.{}.layers.{}."
    return (
        *_layer(stem, prefix + "embedder.embedder"),
        *_layer(block + "shortcut", theirs + "shortcut"),
        *_layer(block + "layers.{}", theirs + "layer.{}"),
    )


RESNET = Table(
    model_type="resnet",
    config=ResNet,
    prefix="resnet.",
    fields=FIELDS,
    fixed={},
    trunk=_trunk("embedding.first", "resnet."),
    pooler=(),
    heads={"image_classification": (("heads.image_classification.output", "classifier.1"),)},
    architectures={"ResNetForImageClassification": frozenset({"image_classification"}), "ResNetModel": frozenset()},
    ignored=IGNORED,
    required={"stem": "large"},
    parts=(Size(),),
    processor=PICTURES,
)

SMALL_STEM = replace(
    RESNET,
    model_type="unmask-resnet",
    trunk=_trunk("embedding", "resnet."),
    architectures={},
    required={"stem": "small"},
)
"""The stem for small pictures, which `transformers` lacks."""
