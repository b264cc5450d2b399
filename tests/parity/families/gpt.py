"""GPT."""

from __future__ import annotations

import transformers
from generated import Family
from hypothesis import strategies as st

from families import encoders, gpts

CLASSES = {
    "OpenAIGPTLMHeadModel": frozenset({"next"}),
    "OpenAIGPTForSequenceClassification": frozenset({"classification"}),
    "OpenAIGPTModel": frozenset[str](),
}

FAMILY = Family(
    config=transformers.OpenAIGPTConfig,
    drawn={**gpts.DRAWN, "afn": st.sampled_from(["gelu", "relu", "silu", "swish"])},
    sizes=gpts.sizes(),
    sized=gpts.SIZED,
    odd={**gpts.ODD, "afn": st.sampled_from(["gelu_new", "tanh", "linear"])},
    same={name: why for name, why in gpts.SAME.items() if name != "use_cache"},
    extras=gpts.EXTRAS,
    widest=frozenset({"n_embd", "n_layer", "vocab_size", "n_positions"}),
    classes=CLASSES,
    outputs=lambda case, ours, theirs: gpts.outputs(case, ours, theirs, CLASSES[case.architecture]),
    gradients=encoders.gradients,
    kept=gpts.kept,
)
