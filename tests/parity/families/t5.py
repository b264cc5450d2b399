"""T5."""

from __future__ import annotations

from typing import Any

import transformers
from generated import Family
from hypothesis import strategies as st

from families import encoders, writers

LAYERS = (*encoders.ACTIVATIONS, *(f"gated-{name}" for name in encoders.ACTIVATIONS), *["relu", "gated-gelu"] * 4)


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes that go together, and the feed-forward layer, of which three fields tell."""
    values: dict[str, Any] = {
        "vocab_size": draw(st.integers(20, 40)),
        "d_model": draw(st.sampled_from([4, 6, 8])),
        "d_kv": draw(st.sampled_from([2, 3, 5])),
        "d_ff": draw(st.integers(1, 20)),
        "num_layers": draw(st.integers(1, 3)),
        "num_decoder_layers": draw(st.sampled_from([None, 1, 2, 3])),
        "num_heads": draw(st.sampled_from([1, 2, 3, 8])),
        "relative_attention_num_buckets": draw(st.sampled_from([4, 5, 8, 32])),
        "relative_attention_max_distance": draw(st.sampled_from([17, 20, 128])),
        "feed_forward_proj": draw(st.sampled_from(LAYERS)),
    }
    for name, choices in (
        ("dense_act_fn", encoders.ACTIVATIONS),
        ("is_gated_act", (False, True)),
        ("scale_decoder_outputs", (False, True)),
    ):
        if draw(st.integers(0, 3)) == 0:
            values[name] = draw(st.sampled_from(choices))
    return values


FAMILY = Family(
    config=transformers.T5Config,
    drawn={
        "dropout_rate": st.sampled_from([0.0, 0.1, 0.15, 0.33]),
        "layer_norm_epsilon": st.sampled_from([1e-12, 1e-6, 0.1]),
        "initializer_factor": st.sampled_from([1.0, 0.5]),
        "pad_token_id": st.integers(0, 19),
        "eos_token_id": st.integers(0, 19),
        "decoder_start_token_id": st.integers(0, 19),
    },
    sizes=sizes(),
    sized=(
        *("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads"),
        *("relative_attention_num_buckets", "relative_attention_max_distance", "feed_forward_proj"),
        *("dense_act_fn", "is_gated_act", "scale_decoder_outputs"),
    ),
    odd={
        "feed_forward_proj": st.sampled_from(["gated", "gate-relu", "gated-gelu-new", "prelu", "", "gated-"]),
        "dense_act_fn": st.sampled_from([*encoders.OTHER_ACTIVATIONS, None, 3]),
        "is_gated_act": st.sampled_from([None, "yes"]),
        "scale_decoder_outputs": st.sampled_from([None, False, True]),
        "dropout_rate": st.sampled_from([1.0, -0.1, "x"]),
        "num_layers": st.sampled_from([0, 4]),
        "num_heads": st.sampled_from([0, 4]),
        "relative_attention_num_buckets": st.sampled_from([0, 2, 3, 7]),
        "relative_attention_max_distance": st.sampled_from([0, 2, 16]),
        "pad_token_id": st.sampled_from([None, -1, 10_000]),
        "eos_token_id": st.sampled_from([None, [1, 2], "1"]),
        "decoder_start_token_id": st.sampled_from([None, -1, 10_000]),
        "is_decoder": st.just(True),
        "is_encoder_decoder": st.just(False),
        "hidden_size": st.just(6),
        "head_dim": st.just(7),
        "per_layer_config": st.just({"0": {"d_kv": 1}}),
    },
    same={**writers.SAME, "classifier_dropout": "only a classifier has it, which there is none of here"},
    extras={
        "n_positions": st.just(512),
        "output_past": st.just(True),
        "classifier_dropout": st.just(0.4),
        "task_specific_params": st.just({"summarization": {"num_beams": 4, "prefix": "summarize: "}}),
        "num_beams": st.just(3),
    },
    widest=writers.SAID_TWICE | frozenset({"d_model", "d_ff", "num_layers", "num_decoder_layers", "vocab_size"}),
    classes={"T5ForConditionalGeneration": frozenset({"next"})},
    outputs=writers.outputs,
    gradients=writers.gradients,
    save=writers.save,
    kept=writers.kept,
)
