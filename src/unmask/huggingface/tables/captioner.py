"""Names of Captioner in folders of VisionEncoderDecoderModel, with a ViT and the decoder of a Marian; and in unmask's
own format, for what those cannot express."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.errors import UnmaskError
from unmask.huggingface.kinds import ENCODER_DECODER
from unmask.huggingface.parts import DtypeLast, Own, OwnForm
from unmask.huggingface.processors import CAPTIONS
from unmask.huggingface.searching import Searched
from unmask.huggingface.table import Names, Part, Table
from unmask.huggingface.tables import marian, vit
from unmask.models.captioner import Captioner
from unmask.models.vit import Vit

SIDES = {"encoder": "vit", "decoder": "marian"}
"""Side -> the model type of its config."""

READ = {
    "image_size": "size",
    "patch_size": "patch",
    "num_channels": "channels",
    "hidden_size": "dim",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_heads",
    "intermediate_size": "encoder_hidden",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
READ_FIXED = {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "qkv_bias": True}
WRITTEN = {theirs: ours for theirs, ours in marian.FIELDS.items() if not theirs.startswith("encoder_")}
WRITTEN_FIXED = {
    **{name: value for name, value in marian.FIXED.items() if name not in ("encoder_layerdrop",)},
    "is_encoder_decoder": False,
    "is_decoder": True,
    "add_cross_attention": True,
}


def _nested(side: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{side}.{name}": value for name, value in values.items()}


class Nested(Part):
    """The configs of both sides, as objects within config.json."""

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        found = {name: value for name, value in values.items() if name not in SIDES}
        for side, kind in SIDES.items():
            inner = values.get(side)
            if not isinstance(inner, Mapping) or inner.get("model_type") != kind:
                raise UnmaskError(f"{place}: the {side} must be the config of a {kind}; others are not supported.")
            found |= _nested(side, {name: value for name, value in inner.items() if f"{side}.{name}" in KNOWN})
        return found

    def write(self, config: Captioner, values: Mapping[str, Any]) -> Mapping[str, Any]:
        found = {name: value for name, value in values.items() if "." not in name}
        for side, kind in SIDES.items():
            inner = {name.removeprefix(f"{side}."): x for name, x in values.items() if name.startswith(f"{side}.")}
            found[side] = {"model_type": kind, **inner}
        found["encoder"] |= READ_FIXED
        written = marian.Sizes(0).write(config, found["decoder"])
        found["decoder"] = {**written, **WRITTEN_FIXED, "decoder_vocab_size": config.vocabulary}
        return {**found, "is_encoder_decoder": True, "tie_word_embeddings": False}


class Patches(Part):
    """The shapes of the weights of the ViT."""

    def restore(self, config: Captioner, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        return vit.Pictures().restore(config, tensors, folder)

    def store(self, config: Captioner, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return vit.Pictures().store(config, tensors)


FIELDS = {
    **_nested("encoder", READ),
    **_nested("decoder", WRITTEN),
    "pad_token_id": "padding",
    "decoder_start_token_id": "start",
    "eos_token_id": "end",
}
FIXED = {**_nested("encoder", READ_FIXED), **_nested("decoder", WRITTEN_FIXED)}
KNOWN = FIELDS.keys() | FIXED.keys()


def _trunk() -> Names:
    ours = {"embedding.": "source.", "stack.": "encoder."}
    read = [
        (next(n + a.removeprefix(o) for o, n in ours.items() if a.startswith(o)), b) for a, b in vit.trunk("encoder.")
    ]
    written = [(a, f"decoder.{b}") for a, b in marian.stacks("after") if a.startswith("decoder.")]
    return (*read, ("target.token", "decoder.model.decoder.embed_tokens"), *written)


PUBLISHED = Table(
    model_type="vision-encoder-decoder",
    config=Captioner,
    prefix="",
    fields=FIELDS,
    fixed=FIXED,
    trunk=_trunk(),
    pooler=(),
    heads={"next": ()},
    architectures={"VisionEncoderDecoderModel": frozenset({"next"})},
    copies={"decoder.lm_head.weight": "decoder.model.decoder.embed_tokens.weight"},
    written=("decoder.lm_head.weight",),
    absent={
        **_nested("encoder", {theirs: getattr(Vit(), ours) for theirs, ours in vit.FIELDS.items() if theirs in READ}),
        **_nested("decoder", {name: value for name, value in marian.ABSENT.items() if name in WRITTEN}),
    },
    buffers=(
        "encoder.pooler.dense.weight",
        "encoder.pooler.dense.bias",
        "decoder.model.decoder.embed_positions.weight",
    ),
    ignored=frozenset({"is_encoder_decoder", "tie_word_embeddings", *marian.IGNORED}),
    required={**marian.REQUIRED, "norm": "post", "output_bias": False},
    parts=(Nested(), Patches(), Own(("length", "std")), DtypeLast(), Searched()),
    kind=ENCODER_DECODER,
    processor=CAPTIONS,
)

OWN = Table(
    model_type="unmask-captioner",
    config=Captioner,
    prefix="",
    fields={name: name for name in Captioner().to_dict()},
    fixed={},
    trunk=tuple((name, name) for name in ("source", "target", "encoder", "decoder")),
    pooler=(),
    heads={"next": (("heads.next", "heads.next"),)},
    architectures={},
    parts=(OwnForm(Captioner),),
    kind=ENCODER_DECODER,
    processor=CAPTIONS,
)
