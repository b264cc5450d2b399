"""Names of T5, versions 1.0 and 1.1, and the conversions of the feed-forward layer and the output layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.config import typed
from unmask.errors import UnmaskError, unknown
from unmask.huggingface.kinds import ENCODER_DECODER
from unmask.huggingface.layout import without_copies
from unmask.huggingface.parts import DtypeLast, Own, Written
from unmask.huggingface.processors import SIDES
from unmask.huggingface.searching import Searched
from unmask.huggingface.table import Names, Part, Table
from unmask.models.t5 import T5
from unmask.nn import ACTIVATIONS, FEEDFORWARDS

OUTPUT, SHARED = "lm_head.weight", "shared.weight"
UNREAD = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # in folders of the first conversions

# Fields of old and new T5 folders that do not change the forward pass, or that other fields determine.
IGNORED = frozenset(
    """
    classifier_dropout n_positions output_past position_embedding_type scale_decoder_outputs tie_word_embeddings
    """.split()  # noqa: SIM905 (as in config.py)
)


@dataclass(frozen=True)
class FeedForward(Part):
    """The feed-forward layer, from three fields; `gated` determines the names of its parameters."""

    gated: bool

    def obstacles(self, config: T5) -> Sequence[str]:
        same = config.feedforward.startswith("gated") == self.gated
        return () if same else (f"feedforward = {config.feedforward!r}",)

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        values = dict(values)
        values["feed_forward_proj"] = _feedforward(values, place)
        if values.get("num_decoder_layers") is None:
            values["num_decoder_layers"] = values.get("num_layers", T5().encoder_layers)
        return values


class Output(Part):
    """Whether the output layer is tied to the token vectors, and whether its inputs are scaled.

    In `transformers` before version 5, `tie_word_embeddings` alone sets the scale. Since then, `scale_decoder_outputs`
    sets it, and the weights show whether the layer is tied.
    """

    def deduce(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], place: Path) -> Mapping[str, Any]:
        tied = values.get("tie_word_embeddings") is not False
        scaled = values.get("scale_decoder_outputs", tied)
        output = "untied" if _own_output(tensors, tied) else "scaled" if scaled else "tied"
        if output == "untied" and scaled:
            raise UnmaskError(f"{place}: an output that is scaled but not tied is not supported; check {OUTPUT}.")
        return {"output": output}

    def write(self, config: T5, values: Mapping[str, Any]) -> Mapping[str, Any]:
        scaled = config.output == "scaled"
        return {**values, "tie_word_embeddings": scaled, "scale_decoder_outputs": scaled}

    def restore(self, config: T5, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        out = {name: tensor for name, tensor in tensors.items() if name != UNREAD}
        return out if config.output == "untied" else without_copies(out, {OUTPUT: SHARED}, folder)


def _feedforward(values: dict[str, Any], place: Path) -> str:
    """The name of the feed-forward layer in unmask. Removes the fields `dense_act_fn` and `is_gated_act` of `values`.

    `feed_forward_proj` gives the activation and the gate, with "gated-gelu" for the tanh form of GELU. As in
    `transformers`, `dense_act_fn` and `is_gated_act` take precedence. Raises UnmaskError for an unknown layer.
    """
    said = typed(values.get("feed_forward_proj", "relu"), str, f"{place}: feed_forward_proj")
    kind, _, activation = said.rpartition("-")
    if kind not in ("", "gated"):
        raise unknown(f"feed_forward_proj of {place}:", said, FEEDFORWARDS)
    activation = "gelu_new" if said == "gated-gelu" else activation
    activation = typed(values.pop("dense_act_fn", activation), str, f"{place}: dense_act_fn")
    gated = typed(values.pop("is_gated_act", bool(kind)), bool, f"{place}: is_gated_act")
    if activation not in ACTIVATIONS:
        raise unknown(f"activation of the feed-forward layer in {place}:", activation, ACTIVATIONS)
    if not gated:
        return activation
    return "gated-" + {"gelu": "gelu_python", "gelu_new": "gelu"}.get(activation, activation)


def _own_output(tensors: Mapping[str, Tensor], tied: bool) -> bool:
    """Whether the output layer has weights of its own, not those of the token vectors."""
    if OUTPUT not in tensors:
        return False
    return not tied or SHARED not in tensors or not torch.equal(tensors[OUTPUT], tensors[SHARED])


_ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}
_PLAIN = {"up": "wi", "down": "wo"}
_GATED = {"gate": "wi_0", "up": "wi_1", "down": "wo"}


def _blocks(side: str, feedforward: Mapping[str, str]) -> Names:
    """Names of one side. `transformers` numbers the sub-layers of a block: layer.0, layer.1, ..."""
    cross = (("cross", "EncDecAttention", _ATTENTION),) * (side == "decoder")
    parts = (
        ("attention", "SelfAttention", _ATTENTION),
        *cross,
        ("feedforward", "DenseReluDense", feedforward),
    )
    names: list[tuple[str, str]] = []
    for number, (ours, theirs, inner) in enumerate(parts):
        part, layer = side + ".blocks.{}." + ours, side + ".block.{}.layer." + str(number)
        names += [(f"{part}.f.{a}", f"{layer}.{theirs}.{b}") for a, b in inner.items()]
        names.append((f"{part}.before", f"{layer}.layer_norm"))
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    return (*names, (f"{side}.position.table", bias), (f"{side}.norm.0", f"{side}.final_layer_norm"))


def _trunk(feedforward: Mapping[str, str]) -> Names:
    return (("source.token", "shared"), *_blocks("encoder", feedforward), *_blocks("decoder", feedforward))


_FIXED: dict[str, object] = {"is_encoder_decoder": True, "is_decoder": False}


def _parts(*, gated: bool) -> tuple[Part, ...]:
    written = (Written(_FIXED), FeedForward(gated), Output(), Written({"use_cache": True}))
    return (*written, Own(("length",)), DtypeLast(), Searched())


_PLAIN_ALONE = Table(
    model_type="t5",
    config=T5,
    prefix="",
    fields={
        "vocab_size": "vocabulary",
        "d_model": "dim",
        "d_kv": "head_dim",
        "d_ff": "hidden",
        "num_layers": "encoder_layers",
        "num_decoder_layers": "decoder_layers",
        "num_heads": "heads",
        "relative_attention_num_buckets": "buckets",
        "relative_attention_max_distance": "furthest",
        "feed_forward_proj": "feedforward",
        "dropout_rate": "dropout",
        "layer_norm_epsilon": "eps",
        "initializer_factor": "factor",
        "pad_token_id": "padding",
        "decoder_start_token_id": "start",
        "eos_token_id": "end",
    },
    fixed=_FIXED,
    trunk=_trunk(_PLAIN),
    pooler=(),
    heads={"next": (("heads.next.output", "lm_head"),)},
    architectures={"T5ForConditionalGeneration": frozenset({"next"})},
    nullable=frozenset(),
    copies=dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), "shared.weight"),
    ignored=IGNORED,
    parts=_parts(gated=False),
    kind=ENCODER_DECODER,
    processor=SIDES,
)

T5_GATED = replace(_PLAIN_ALONE, trunk=_trunk(_GATED), parts=_parts(gated=True))
"""Version 1.1."""

T5_PLAIN = replace(_PLAIN_ALONE, variants=(T5_GATED,))
"""Version 1.0, and other models without a gate in the feed-forward layer."""
