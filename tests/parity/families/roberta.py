"""RoBERTa."""

from __future__ import annotations

import transformers
from generated import Family

from families import encoders

CLASSES = encoders.architectures("Roberta")

FAMILY = Family(
    config=transformers.RobertaConfig,
    drawn={**encoders.DRAWN, **encoders.CLASSIFIER},
    sizes=encoders.sizes(positions=1),
    sized=encoders.SIZED,
    odd={**encoders.ODD, **encoders.DECODER},
    same=encoders.SAME,
    widest=frozenset({"hidden_size", "num_hidden_layers"}),
    classes=CLASSES,
    outputs=lambda case, ours, theirs: encoders.encoder_outputs(
        case, ours, theirs, CLASSES[case.architecture], counts_text=True
    ),
    gradients=encoders.gradients,
    kept=encoders.kept,
    alike=encoders.alike,
)
