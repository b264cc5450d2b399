"""Names of GPT and GPT-2."""

from __future__ import annotations

from unmask.huggingface.table import Table
from unmask.huggingface.tables.bert import CRF
from unmask.models.gpt import Gpt, Gpt2

_DROPOUTS = {"resid_pdrop": "dropout", "embd_pdrop": "embedding_dropout", "attn_pdrop": "attention_dropout"}
_FIELDS = {
    "vocab_size": "vocabulary",
    "n_embd": "dim",
    "n_layer": "layers",
    "n_head": "heads",
    "n_positions": "length",
    **_DROPOUTS,
    "classifier_dropout": "head_dropout",
    "layer_norm_epsilon": "eps",
    "initializer_range": "std",
    "pad_token_id": "padding",
    "bos_token_id": "start",
    "eos_token_id": "end",
}
_END_OF_TEXT = 50_256  # id in the published vocabulary of GPT-2


def _trunk(token: str, position: str) -> tuple[tuple[str, str], ...]:
    layer, ours = "transformer.h.{}.", "stack.blocks.{}."
    return (
        ("embedding.token", f"transformer.{token}"),
        ("embedding.position.table", f"transformer.{position}"),
        *((f"{ours}attention.f.{part}", f"{layer}attn.c_attn.{part}") for part in ("query", "key", "value")),
        (f"{ours}attention.f.output", f"{layer}attn.c_proj"),
        (f"{ours}feedforward.f.up", f"{layer}mlp.c_fc"),
        (f"{ours}feedforward.f.down", f"{layer}mlp.c_proj"),
    )


_LAYER = "transformer.h.{}."
_PACKED = {_LAYER + "attn.c_attn": ("query", "key", "value")}
_TRANSPOSED = tuple(_LAYER + name for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"))
_BUFFERS = (_LAYER + "attn.bias", _LAYER + "attn.masked_bias")  # the causal mask, which older folders store
_NORMS = {"attention": "ln_1", "feedforward": "ln_2"}
_HEADS = {
    "next": (),
    **{h: ((f"heads.{h}.output", "score"),) for h in ("classification", "multilabel", "regression")},
    "choice": (("heads.choice.output", "choice.output"),),
    "tagging": (("heads.tagging.output", "classifier"),),
    "crf": CRF,
    "span": (("heads.span.output", "qa_outputs"),),
}

GPT = Table(
    model_type="openai-gpt",
    config=Gpt,
    prefix="transformer.",
    fields={**_FIELDS, "afn": "activation"},
    fixed={"tie_word_embeddings": True, "position_embedding_type": "absolute"},
    absent={"pad_token_id": None},
    nullable=frozenset(),
    trunk=(
        *_trunk("tokens_embed", "positions_embed"),
        *(("stack.blocks.{}." + f"{ours}.after", _LAYER + theirs) for ours, theirs in _NORMS.items()),
    ),
    pooler=(),
    heads=_HEADS,
    architectures={
        "OpenAIGPTLMHeadModel": frozenset({"next"}),
        "OpenAIGPTForSequenceClassification": frozenset({"classification"}),
        "OpenAIGPTModel": frozenset(),
    },
    copies={"lm_head.weight": "transformer.tokens_embed.weight"},
    packed=_PACKED,
    transposed=_TRANSPOSED,
    buffers=_BUFFERS,
)

GPT2 = Table(
    model_type="gpt2",
    config=Gpt2,
    prefix="transformer.",
    fields={**_FIELDS, "n_inner": "hidden", "activation_function": "activation"},
    fixed={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "position_embedding_type": "absolute",
        "hidden_dropout": None,  # dropout before a tagging head in transformers if classifier_dropout is absent
    },
    absent={"pad_token_id": None, "bos_token_id": _END_OF_TEXT, "eos_token_id": _END_OF_TEXT},
    nullable=frozenset(),
    trunk=(
        *_trunk("wte", "wpe"),
        *(("stack.blocks.{}." + f"{ours}.before", _LAYER + theirs) for ours, theirs in _NORMS.items()),
        ("stack.norm", "transformer.ln_f"),
    ),
    pooler=(),
    heads=_HEADS,
    architectures={
        "GPT2LMHeadModel": frozenset({"next"}),
        "GPT2ForSequenceClassification": frozenset({"classification"}),
        "GPT2ForTokenClassification": frozenset({"tagging"}),
        "GPT2ForQuestionAnswering": frozenset({"span"}),
        "GPT2Model": frozenset(),
    },
    copies={"lm_head.weight": "transformer.wte.weight"},
    packed=_PACKED,
    transposed=_TRANSPOSED,
    buffers=_BUFFERS,
)
