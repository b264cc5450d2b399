"""ELECTRA."""

from __future__ import annotations

import transformers
from generated import Family
from hypothesis import strategies as st

from families import encoders

CLASSES = encoders.architectures("Electra", ("PreTraining", frozenset({"rtd"})))

FAMILY = Family(
    config=transformers.ElectraConfig,
    drawn={
        **encoders.DRAWN,
        **encoders.CLASSIFIER,
        "embedding_size": st.sampled_from([4, 5, 8, 12]),
        "summary_last_dropout": st.sampled_from([0.0, 0.1, 0.55]),
    },
    sizes=encoders.sizes(),
    sized=encoders.SIZED,
    odd={
        **encoders.ODD,
        **encoders.DECODER,
        "summary_type": st.sampled_from(["last", "mean", "cls_index", "attn"]),
        "summary_use_proj": st.just(False),
        "summary_activation": st.sampled_from(["tanh", "relu", ""]),
        "summary_proj_to_labels": st.just(True),
    },
    same=encoders.SAME,
    extras={"summary_first_dropout": st.sampled_from([0.0, 0.6])},
    widest=frozenset({"num_hidden_layers"}),
    classes=CLASSES,
    outputs=lambda case, ours, theirs: encoders.encoder_outputs(case, ours, theirs, CLASSES[case.architecture]),
    gradients=encoders.gradients,
    kept=encoders.kept,
    alike=encoders.alike,
)
