"""ALBERT."""

from __future__ import annotations

import transformers
from generated import Family
from hypothesis import strategies as st

from families import encoders

CLASSES = encoders.architectures("Albert", ("PreTraining", frozenset({"mlm", "sop"})))

FAMILY = Family(
    config=transformers.AlbertConfig,
    drawn={
        **encoders.DRAWN,
        "classifier_dropout_prob": st.sampled_from([0.0, 0.1, 0.27, 0.48]),
        "embedding_size": st.integers(1, 9),
    },
    sizes=encoders.sizes(),
    sized=encoders.SIZED,
    odd={
        **encoders.ODD,
        "num_hidden_groups": st.just(2),
        "inner_group_num": st.just(2),
        "down_scale_factor": st.just(2),
    },
    same={"bos_token_id": "an encoder generates nothing", "eos_token_id": "an encoder generates nothing"},
    widest=frozenset({"hidden_size", "intermediate_size"}),
    classes=CLASSES,
    outputs=lambda case, ours, theirs: encoders.encoder_outputs(case, ours, theirs, CLASSES[case.architecture]),
    gradients=encoders.gradients,
    kept=encoders.kept,
    alike=encoders.alike,
)
