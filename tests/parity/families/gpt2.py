"""GPT-2."""

from __future__ import annotations

import transformers
from generated import Family
from hypothesis import strategies as st

from families import encoders, gpts

CLASSES = {
    "GPT2LMHeadModel": frozenset({"next"}),
    "GPT2ForSequenceClassification": frozenset({"classification"}),
    "GPT2ForTokenClassification": frozenset({"tagging"}),
    "GPT2ForQuestionAnswering": frozenset({"span"}),
    "GPT2Model": frozenset[str](),
}

FAMILY = Family(
    config=transformers.GPT2Config,
    drawn={
        **gpts.DRAWN,
        "activation_function": st.sampled_from(encoders.ACTIVATIONS),
        "n_inner": st.sampled_from([None, None, 1, 5, 20]),
    },
    sizes=gpts.sizes(),
    sized=gpts.SIZED,
    odd={
        **gpts.ODD,
        "activation_function": st.sampled_from(encoders.OTHER_ACTIVATIONS),
        "n_inner": st.sampled_from([0, -1, "4"]),
        "scale_attn_weights": st.just(False),
        "scale_attn_by_inverse_layer_idx": st.just(True),
        "reorder_and_upcast_attn": st.just(True),
        "add_cross_attention": st.just(True),
    },
    same=gpts.SAME,
    extras=gpts.EXTRAS,
    widest=frozenset({"n_embd", "n_layer", "vocab_size", "n_positions"}),
    classes=CLASSES,
    outputs=lambda case, ours, theirs: gpts.outputs(case, ours, theirs, CLASSES[case.architecture]),
    gradients=encoders.gradients,
    kept=gpts.kept,
)
