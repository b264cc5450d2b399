"""Names of Swin.

Shapes: C channels, P side of a patch in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.errors import UnmaskError
from unmask.huggingface.processors import PICTURES
from unmask.huggingface.table import Names, Part, Table
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
PATCHES = "patch_embeddings.projection.weight"


class Windows(Part):
    """Patch projections are convolutions in `transformers`; sizes of squares may be lists of two equal numbers."""

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        found = dict(values)
        for name in ("image_size", "patch_size"):
            sides = found.get(name)
            if isinstance(sides, list):
                if len(set(map(str, sides))) != 1:
                    raise UnmaskError(f"{place}: {name} = {sides} is not supported; only squares are.")
                found[name] = sides[0]
        return found

    def restore(self, config: Any, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        return {name: tensor.flatten(1) if name.endswith(PATCHES) else tensor for name, tensor in tensors.items()}

    def store(self, config: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        C, P = config.channels, config.patch
        return {
            name: tensor.unflatten(1, (C, P, P)) if name.endswith(PATCHES) else tensor
            for name, tensor in tensors.items()
        }


def _trunk(prefix: str) -> Names:
    block, their_block = "stack.stages.{}.blocks.{}.", prefix + "encoder.layers.{}.blocks.{}."
    attention, theirs = block + "attention.f.f.attention.", their_block + "attention.self."
    return (
        ("embedding.token.signal.project", prefix + "embeddings.patch_embeddings.projection"),
        ("embedding.norm", prefix + "embeddings.norm"),
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
    fixed={"use_absolute_embeddings": False},
    trunk=_trunk("swin."),
    pooler=(),
    heads={"image_classification": (("heads.image_classification.output", "classifier"),)},
    architectures={"SwinForImageClassification": frozenset({"image_classification"}), "SwinModel": frozenset()},
    buffers=("relative_position_index",),
    ignored=IGNORED,
    parts=(Windows(),),
    processor=PICTURES,
)
