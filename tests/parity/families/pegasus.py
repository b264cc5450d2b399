"""Pegasus."""

from __future__ import annotations

import transformers
from families import writers
from generated import Family
from hypothesis import strategies as st

from unmask import huggingface

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
    outputs=writers.outputs,
    gradients=writers.gradients,
    load=huggingface.load_writer,
    save=writers.save,
    kept=writers.kept,
)
