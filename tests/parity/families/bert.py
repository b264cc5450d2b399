"""BERT."""

from __future__ import annotations

import transformers
from generated import Family

from families import encoders

CLASSES = encoders.architectures(
    "Bert",
    ("PreTraining", frozenset({"mlm", "nsp"})),
    ("NextSentencePrediction", frozenset({"nsp"})),
)

FAMILY = Family(
    config=transformers.BertConfig,
    drawn={**encoders.DRAWN, **encoders.CLASSIFIER},
    sizes=encoders.sizes(),
    sized=encoders.SIZED,
    odd={**encoders.ODD, **encoders.DECODER},
    same=encoders.SAME,
    widest=frozenset({"hidden_size", "num_hidden_layers"}),
    classes=CLASSES,
    outputs=lambda case, ours, theirs: encoders.encoder_outputs(case, ours, theirs, CLASSES[case.architecture]),
    gradients=encoders.gradients,
    kept=encoders.kept,
    alike=encoders.alike,
)
