"""Names of Swin.

Shapes: C channels, P side of a patch in pixels, S patches of a side of what a place of the last stage covers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.errors import UnmaskError
from unmask.huggingface.processors import PICTURES
from unmask.huggingface.table import Names, Table
from unmask.huggingface.tables.vit import MASKED, Pictures
from unmask.models.swin import Swin

FIELDS = {
    "image_size": "size",
    "patch_size": "patch",
    "num_channels": "channels",
    "embed_dim": "dim",
    "depths": "depths",
    "num_heads": "heads",
    "window_size": "window",
    "mlp_ratio": "ratio",
    "qkv_bias": "bias",
    "use_absolute_embeddings": "absolute",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "drop_path_rate": "drop_path",
    "layer_norm_eps": "eps",
    "initializer_range": "std",
}
IGNORED = frozenset(
    {
        *("encoder_stride", "hidden_size", "num_layers", "num_hidden_layers", "path_norm"),
        *("out_features", "out_indices", "stage_names"),
    }
)
"""Fields that follow from other fields, and the outputs of a backbone for a detector."""
DECODER = ("decoder.0.weight", "decoder.0.bias")


class Windows(Pictures):
    """The conversions of `Pictures`, and the order of the decoder's outputs: those of a pixel of all patches are
    neighbours in `transformers`, which shuffles pixels; those of a patch are in unmask."""

    def write(self, config: Swin, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add encoder_stride: pixels of a side of what a place of the last stage covers."""
        return {**values, "encoder_stride": config.patch * config.merged}

    def restore(self, config: Swin, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        C, P, S, found = config.channels, config.patch, config.merged, super().restore(config, tensors, folder)
        for name in DECODER:
            if name not in found:
                continue
            if len(found[name]) != C * (P * S) ** 2:
                raise UnmaskError(
                    f"{folder}: the decoder must restore the {P * S} x {P * S} pixels that a place of the last stage "
                    f"covers (encoder_stride), but it has {len(found[name])} outputs for {C} channels."
                )
            found[name] = found[name].unflatten(0, (C, S, P, S, P)).movedim((1, 3), (3, 4)).flatten(0, 2).flatten(1, 2)
        if DECODER[1] in found:
            found[DECODER[1]] = found[DECODER[1]].flatten()
        return found

    def store(self, config: Swin, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        C, P, S, found = config.channels, config.patch, config.merged, dict(tensors)
        for name in DECODER:
            if name in found:
                rows = found[name].reshape(C, P, P, S, S, *found[name].shape[2:])
                found[name] = rows.movedim((3, 4), (1, 3)).flatten(0, 4).contiguous()
        return super().store(config, found)


def _trunk(prefix: str) -> Names:
    block, their_block = "stack.stages.{}.blocks.{}.", prefix + "encoder.layers.{}.blocks.{}."
    attention, theirs = block + "attention.f.f.attention.", their_block + "attention.self."
    return (
        ("embedding.token.signal.project", prefix + "embeddings.patch_embeddings.projection"),
        ("embedding.token.signal.norm", prefix + "embeddings.norm"),
        ("embedding.token.kinds.MASK", prefix + "embeddings.mask_token"),
        ("embedding.position.table", prefix + "embeddings.position_embeddings"),
        (block + "attention.before", their_block + "layernorm_before"),
        (attention + "query", theirs + "query"),
        (attention + "key", theirs + "key"),
        (attention + "value", theirs + "value"),
        (attention + "position.table", theirs + "relative_position_bias_table"),
        (attention + "output", their_block + "attention.output.dense"),
        (block + "feedforward.before", their_block + "layernorm_after"),
        (block + "feedforward.f.f.up", their_block + "intermediate.dense"),
        (block + "feedforward.f.f.down", their_block + "output.dense"),
        ("stack.stages.{}.merge", prefix + "encoder.layers.{}.downsample"),
        ("stack.norm", prefix + "layernorm"),
    )


SWIN = Table(
    model_type="swin",
    config=Swin,
    prefix="swin.",
    fields=FIELDS,
    fixed={},
    trunk=_trunk("swin."),
    pooler=(),
    heads={
        "patches": MASKED,
        "image_classification": (("heads.image_classification.output", "classifier"),),
    },
    architectures={
        "SwinForMaskedImageModeling": frozenset({"patches"}),
        "SwinForImageClassification": frozenset({"image_classification"}),
        "SwinModel": frozenset(),
    },
    buffers=("relative_position_index",),
    ignored=IGNORED,
    parts=(Windows(),),
    processor=PICTURES,
)
