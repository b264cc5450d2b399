"""MobileBERT."""

from __future__ import annotations

from typing import Any

import transformers
from generated import Family
from hypothesis import strategies as st

from families import encoders

CLASSES = encoders.architectures(
    "MobileBert",
    ("PreTraining", frozenset({"mlm", "nsp"})),
    ("NextSentencePrediction", frozenset({"nsp"})),
)


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    """As those of the others; heads divide what is inside a block, and token vectors are no wider than states."""
    values = draw(encoders.sizes())
    inside = values["num_attention_heads"] * draw(st.sampled_from([2, 3]))
    return {
        **values,
        "intra_bottleneck_size": inside,
        "hidden_size": draw(st.integers(6, 14)),
        "embedding_size": draw(st.integers(1, 6)),
    }


FAMILY = Family(
    config=transformers.MobileBertConfig,
    drawn={
        **encoders.DRAWN,
        **encoders.CLASSIFIER,
        "num_feedforward_networks": st.integers(1, 3),
        "classifier_activation": st.booleans(),
    },
    sizes=sizes(),
    sized=(*encoders.SIZED, "intra_bottleneck_size", "embedding_size"),
    odd={
        **encoders.ODD,
        "trigram_input": st.just(False),
        "use_bottleneck": st.just(False),
        "use_bottleneck_attention": st.just(True),
        "key_query_shared_bottleneck": st.just(False),
        "normalization_type": st.just("layer_norm"),
        "true_hidden_size": st.sampled_from([5, 24]),
    },
    widest=frozenset({"num_hidden_layers"}),
    classes=CLASSES,
    outputs=lambda case, ours, theirs: encoders.encoder_outputs(case, ours, theirs, CLASSES[case.architecture]),
    gradients=encoders.gradients,
    kept=encoders.kept,
    alike=encoders.alike,
)
