"""Marian."""

from __future__ import annotations

import transformers
from generated import Family

from families import writers

FAMILY = Family(
    config=transformers.MarianConfig,
    drawn=writers.MARIAN_DRAWN,
    sizes=writers.marian_sizes(sides=True),
    sized=(*writers.MARIAN_SIZED, "share_encoder_decoder_embeddings", "decoder_vocab_size"),
    odd=writers.MARIAN_ODD,
    same=writers.MARIAN_SAME,
    extras=writers.MARIAN_EXTRAS,
    widest=writers.MARIAN_WIDEST | {"pad_token_id", "share_encoder_decoder_embeddings"},
    classes={"MarianMTModel": frozenset({"next"}), "MarianModel": frozenset({"next"})},
    written={"MarianModel": "MarianMTModel"},  # its output is the token vectors
    outputs=writers.outputs,
    gradients=writers.gradients,
    save=writers.save,
    kept=writers.kept,
)
