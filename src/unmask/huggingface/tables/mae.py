"""Names of MAE.

Shapes: C channels, P side of a patch in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.huggingface.processors import PICTURES
from unmask.huggingface.table import Table
from unmask.huggingface.tables.vit import FIELDS, Pictures, blocks, trunk
from unmask.models.mae import Mae

POSITIONS = "decoder.decoder_pos_embed"
OUTPUT = ("decoder.decoder_pred.weight", "decoder.decoder_pred.bias")


class MaePictures(Pictures):
    """The conversions of `Pictures`, and the order of the decoder's outputs: pixel by pixel in `transformers`, channel
    by channel in unmask."""

    def deduce(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], place: Path) -> Mapping[str, Any]:
        return {}

    def write(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values

    def restore(self, config: Any, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        C, P, found = config.channels, config.patch, super().restore(config, tensors, folder)
        for name in OUTPUT:
            if name in found and len(found[name]) == C * P * P:
                found[name] = found[name].unflatten(0, (P, P, C)).movedim(2, 0).flatten(0, 2)
        if POSITIONS in found:
            found[f"{POSITIONS}.weight"] = found.pop(POSITIONS).flatten(0, 1)
        return found

    def store(self, config: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        C, P, found = config.channels, config.patch, super().store(config, tensors)
        for name in OUTPUT:
            if name in found:
                found[name] = found[name].unflatten(0, (C, P, P)).movedim(0, 2).flatten(0, 2).contiguous()
        if f"{POSITIONS}.weight" in found:
            found[POSITIONS] = found.pop(f"{POSITIONS}.weight")[None]
        return found


MAE = Table(
    model_type="vit_mae",
    config=Mae,
    prefix="vit.",
    fields={
        **FIELDS,
        "decoder_hidden_size": "decoder_dim",
        "decoder_num_hidden_layers": "decoder_layers",
        "decoder_num_attention_heads": "decoder_heads",
        "decoder_intermediate_size": "decoder_hidden",
        "mask_ratio": "rate",
        "norm_pix_loss": "normalised",
    },
    fixed={"qkv_bias": True},
    trunk=trunk("vit."),
    pooler=(),
    heads={
        "pixels": (
            ("heads.pixels.project", "decoder.decoder_embed"),
            ("heads.pixels.hidden", "decoder.mask_token"),
            ("heads.pixels.position.table", POSITIONS),
            *blocks("heads.pixels.stack.blocks.{}.", "decoder.decoder_encoder.layer.{}."),
            ("heads.pixels.stack.norm", "decoder.decoder_norm"),
            ("heads.pixels.output", "decoder.decoder_pred"),
        ),
        "image_classification": (("heads.image_classification.output", "classifier"),),  # before `Mae.in_folder`
    },
    architectures={"ViTMAEForPreTraining": frozenset({"pixels"}), "ViTMAEModel": frozenset()},
    parts=(MaePictures(),),
    processor=PICTURES,
)
