"""Pegasus."""

from __future__ import annotations

import transformers
from generated import Family

from families import writers

FAMILY = Family(
    config=transformers.PegasusConfig,
    drawn=writers.MARIAN_DRAWN,
    sizes=writers.marian_sizes(sides=False),
    sized=writers.MARIAN_SIZED,
    odd=writers.MARIAN_ODD,
    same=writers.MARIAN_SAME,
    extras=writers.MARIAN_EXTRAS,
    widest=writers.MARIAN_WIDEST,
    classes={"PegasusForConditionalGeneration": frozenset({"next"}), "PegasusModel": frozenset({"next"})},
    written={"PegasusModel": "PegasusForConditionalGeneration"},  # its output is the token vectors
    outputs=writers.outputs,
    gradients=writers.gradients,
    save=writers.save,
    kept=writers.kept,
)
