"""Names of T5, versions 1.0 and 1.1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from unmask.huggingface.table import Names, Table
from unmask.models.t5 import T5

_ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}
_PLAIN = {"up": "wi", "down": "wo"}
_GATED = {"gate": "wi_0", "up": "wi_1", "down": "wo"}


def _blocks(side: str, feedforward: Mapping[str, str]) -> Names:
    """Names of one side, of whose blocks the sub-layers are there layer 0, 1 … of each."""
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


T5_PLAIN = Table(
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
    fixed={"is_encoder_decoder": True, "is_decoder": False},
    trunk=_trunk(_PLAIN),
    pooler=(),
    heads={"next": (("heads.next.output", "lm_head"),)},
    architectures={"T5ForConditionalGeneration": frozenset({"next"})},
    nullable=frozenset(),
    copies=dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), "shared.weight"),
)
"""Version 1.0 and others whose feed-forward has no gate."""

T5_GATED = replace(T5_PLAIN, trunk=_trunk(_GATED))
"""Version 1.1."""
