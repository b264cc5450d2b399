"""Names of Pegasus (Zhang et al. 2020) in `transformers`: Marian with norms before the sub-layers."""

from __future__ import annotations

from dataclasses import replace

from unmask.huggingface.tables.marian import ABSENT, FIXED, MARIAN, REQUIRED, Sizes, parts, stacks

_FIXED = {**FIXED, "normalize_before": True, "add_final_layer_norm": True}
_V = 50_265

PEGASUS = replace(
    MARIAN,
    model_type="pegasus",
    fixed=_FIXED,
    trunk=(
        ("source.token", "model.shared"),
        *stacks("before"),
        *((f"{side}.norm", f"model.{side}.layer_norm") for side in ("encoder", "decoder")),
    ),
    architectures={"PegasusForConditionalGeneration": frozenset({"next"}), "PegasusModel": frozenset({"next"})},
    absent={**ABSENT, "vocab_size": _V, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1},
    required={**REQUIRED, "norm": "pre"},
    parts=parts(Sizes(_V), _FIXED, positions=True),
    variants=(),
)
