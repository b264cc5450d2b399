"""Names of ViT and DeiT.

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
from unmask.models.deit import Deit
from unmask.models.vit import Vit

FIELDS = {
    "image_size": "size",
    "patch_size": "patch",
    "num_channels": "channels",
    "hidden_size": "dim",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "hidden",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "drop_path_rate": "drop_path",
    "layer_norm_eps": "eps",
    "initializer_range": "std",
}
KINDS = {"CLS": "cls_token", "DISTILL": "distillation_token", "MASK": "mask_token"}


class Pictures(Part):
    """Shapes of weights: `transformers` stores convolutions and tensors with leading axes of size 1, unmask linear maps
    and vectors."""

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        found = dict(values)
        for name in ("image_size", "patch_size"):
            sides = found.get(name)
            if isinstance(sides, list):
                if len(set(map(str, sides))) != 1:
                    raise UnmaskError(f"{place}: {name} = {sides} is not supported; only squares are.")
                found[name] = sides[0]
        if found.get("pooler_output_size") in (None, found.get("hidden_size", 768)):
            found.pop("pooler_output_size", None)
        return found

    def deduce(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], place: Path) -> Mapping[str, Any]:
        return {"hides": any(name.endswith("embeddings.mask_token") for name in tensors)}

    def write(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add encoder_stride: the decoder of masked patches predicts the pixels of one patch for each state."""
        return {**values, "encoder_stride": config.patch}

    def restore(self, config: Any, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        def flat(name: str, tensor: Tensor) -> Tensor:
            if name.endswith(("_token", "position_embeddings.weight", "position_embeddings")):
                return tensor.reshape(-1, config.dim) if "position" in name else tensor.reshape(-1)
            return tensor.flatten(1) if tensor.dim() == 4 else tensor

        found = {name: flat(name, tensor) for name, tensor in tensors.items()}
        return {_row_name(name): tensor for name, tensor in found.items()}

    def store(self, config: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        C, P, found = config.channels, config.patch, dict[str, Tensor]()
        for name, tensor in tensors.items():
            if name.endswith(f"embeddings.{KINDS['MASK']}") and not config.hides:
                continue  # `Vit.in_folder`
            if name.endswith("patch_embeddings.projection.weight"):
                tensor = tensor.unflatten(1, (C, P, P))
            elif name == "decoder.0.weight":
                tensor = tensor[..., None, None]
            elif name.endswith("_token"):
                tensor = tensor[None, None]
            elif name.endswith(POSITIONS):
                name, tensor = name.removesuffix(".weight"), tensor[None]
            found[name] = tensor
        return found


POSITIONS = "embeddings.position_embeddings.weight"


def _row_name(name: str) -> str:
    """The key of the position table, which is a bare parameter in `transformers`, as the weight of a module."""
    return f"{name}.weight" if name.endswith("embeddings.position_embeddings") else name


def trunk(prefix: str) -> Names:
    """The names of an encoder with this prefix."""
    return (
        *((f"embedding.token.kinds.{kind}", f"{prefix}embeddings.{name}") for kind, name in KINDS.items()),
        ("embedding.token.signal.project", prefix + "embeddings.patch_embeddings.projection"),
        ("embedding.position.table", prefix + "embeddings.position_embeddings"),
        *blocks("stack.blocks.{}.", prefix + "encoder.layer.{}."),
        ("stack.norm", prefix + "layernorm"),
    )


def blocks(ours: str, theirs: str) -> Names:
    """The names of blocks with these prefixes in unmask and in the folder."""
    return (
        (ours + "attention.before", theirs + "layernorm_before"),
        (ours + "attention.f.query", theirs + "attention.attention.query"),
        (ours + "attention.f.key", theirs + "attention.attention.key"),
        (ours + "attention.f.value", theirs + "attention.attention.value"),
        (ours + "attention.f.output", theirs + "attention.output.dense"),
        (ours + "feedforward.before", theirs + "layernorm_after"),
        (ours + "feedforward.f.up", theirs + "intermediate.dense"),
        (ours + "feedforward.f.down", theirs + "output.dense"),
    )


FIXED = {"qkv_bias": True, "pooler_act": "tanh"}
IGNORED = frozenset({"encoder_stride"})
MASKED = (("heads.patches.output", "decoder.0"),)

VIT = Table(
    model_type="vit",
    config=Vit,
    prefix="vit.",
    fields=FIELDS,
    fixed=FIXED,
    trunk=trunk("vit."),
    pooler=(("pooler.dense", "vit.pooler.dense"),),
    heads={"patches": MASKED, "image_classification": (("heads.image_classification.output", "classifier"),)},
    architectures={
        "ViTForMaskedImageModeling": frozenset({"patches"}),
        "ViTForImageClassification": frozenset({"image_classification"}),
        "ViTModel": frozenset(),
    },
    ignored=IGNORED,
    parts=(Pictures(),),
    processor=PICTURES,
)

DEIT = Table(
    model_type="deit",
    config=Deit,
    prefix="deit.",
    fields=FIELDS,
    fixed=FIXED,
    trunk=trunk("deit."),
    pooler=(("pooler.dense", "deit.pooler.dense"),),
    heads={
        "patches": MASKED,
        "image_classification": (
            ("heads.image_classification.label.output", "cls_classifier"),
            ("heads.image_classification.teacher.output", "distillation_classifier"),
        ),
    },
    architectures={
        "DeiTForMaskedImageModeling": frozenset({"patches"}),
        "DeiTForImageClassificationWithTeacher": frozenset({"image_classification"}),
        "DeiTModel": frozenset(),
    },
    ignored=IGNORED,
    parts=(Pictures(),),
    processor=PICTURES,
)
