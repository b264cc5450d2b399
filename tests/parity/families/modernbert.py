"""ModernBERT."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from generated import Case, Family
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.models.modernbert import modeling_modernbert

from families import encoders

CLASSES = encoders.architectures("ModernBert")
DROPPED = ("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout")
BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias", "decoder_bias")
OTHERS = {"layer_types", "rope_parameters"}


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    """As those of the others; heads of an even width, and as many kinds of layers as layers."""
    values = draw(encoders.sizes())
    del values["type_vocab_size"]
    layers, every = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    kinds = ["sliding_attention" if i % every else "full_attention" for i in range(layers)]
    return {
        **values,
        "num_hidden_layers": layers,
        "layer_types": kinds,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": draw(st.sampled_from([100.0, 10_000.0, 160_000.0]))}
            for kind in ("full_attention", "sliding_attention")
        },
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id"), values["pad_token_id"] + 1),
        "sep_token_id": values["pad_token_id"] + 2,
    }


def _positions(self: Any, x: Tensor, position_ids: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
    width = self.config.hidden_size // self.config.num_attention_heads
    base = self.config.rope_parameters[layer_type]["rope_theta"]
    angle = position_ids[..., None].double() / base ** (torch.arange(0, width, 2).double() / width)
    return angle.repeat(1, 1, 2).cos(), angle.repeat(1, 1, 2).sin()


def _rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int) -> tuple[Tensor, ...]:
    return tuple(x * cos[:, None] + modeling_modernbert.rotate_half(x) * sin[:, None] for x in (q, k))


def outputs(case: Case, ours: Any, theirs: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Theirs rotates queries and weighs keys in float32, whatever the numbers are: here in float64, so that differences
    of 1e-8 show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.functional, "softmax", lambda x, dim, dtype: x.softmax(dim))
        patch.setattr(modeling_modernbert.ModernBertRotaryEmbedding, "forward", _positions)
        patch.setattr(modeling_modernbert, "apply_rotary_pos_emb", _rotated)
        return encoders.encoder_outputs(case, ours, theirs, CLASSES[case.architecture])


def kept(config: transformers.PreTrainedConfig, name: str) -> dict[str, Any]:
    """The meaning of the layers, however they are written."""
    return encoders.kept(config, name) | {field: getattr(config, field) for field in OTHERS}


FAMILY = Family(
    config=transformers.ModernBertConfig,
    drawn={
        "hidden_activation": encoders.DRAWN["hidden_act"],
        "classifier_activation": encoders.DRAWN["hidden_act"],
        "initializer_range": encoders.DRAWN["initializer_range"],
        "initializer_cutoff_factor": st.sampled_from([2.0, 3.0]),
        "norm_eps": encoders.DRAWN["layer_norm_eps"],
        "local_attention": st.integers(0, 16),
        "classifier_pooling": st.sampled_from(["cls", "mean"]),
        "tie_word_embeddings": st.booleans(),
        **{name: st.sampled_from([0.0, 0.1, 0.27]) for name in DROPPED},
        **{name: st.booleans() for name in BIASES},
    },
    sizes=sizes(),
    sized=(*(name for name in encoders.SIZED if name != "type_vocab_size"), *OTHERS, "cls_token_id", "sep_token_id"),
    odd={
        "hidden_activation": st.sampled_from(encoders.OTHER_ACTIVATIONS),
        "norm_eps": st.sampled_from([0.0, "small"]),
        "pad_token_id": st.sampled_from([None, -1, 10_000]),
        "num_attention_heads": st.sampled_from([0, 5]),
        "layer_types": st.sampled_from([["sliding_attention"], ["full_attention"] * 9, ["full_attention", "other"]]),
        "rope_parameters": st.sampled_from([{"full_attention": {"rope_type": "linear", "factor": 2.0}}, None, {}]),
        "classifier_pooling": st.just("max"),
    },
    same={
        **encoders.SAME,
        "deterministic_flash_attn": "another way to compute the same",
        "sparse_prediction": "it says where the loss is computed",
        "sparse_pred_ignore_index": "it says where the loss is computed",
    },
    extras={"layer_norm_eps": st.just(1e-5), "global_attn_every_n_layers": st.integers(1, 4)},
    widest=frozenset({"num_hidden_layers", "layer_types", "rope_parameters", "cls_token_id", "sep_token_id"}),
    classes=CLASSES,
    outputs=outputs,
    gradients=encoders.gradients,
    kept=kept,
    alike=encoders.alike,
)
