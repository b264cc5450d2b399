"""Names of ModernBERT, and the two forms of its fields for layers and rotary positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.huggingface.parts import Written
from unmask.huggingface.table import Names, Part, Table
from unmask.huggingface.tables.bert import CRF, architectures
from unmask.models.modernbert import ModernBert

EVERY, LAYERS, ROTARY = "global_attn_every_n_layers", "layer_types", "rope_parameters"
BASES = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
"""Kind of a layer -> the field with the base of its rotary positions."""


class Alternation(Part):
    """`transformers` 5 lists the kind of each layer, and describes the rotary positions of each kind; version 4 has one
    number for the layers, and a base for each kind. Both forms are read, and both versions read what is written: the
    form of version 4."""

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        found = dict(values)
        kinds, positions = found.pop(LAYERS, None), found.pop(ROTARY, None)
        if kinds is not None:
            found[EVERY] = _every(kinds, place)
        for kind, field in BASES.items() if positions is not None else ():
            found[field] = _base(positions, kind, found.get(field), place)
            if found[field] is None:
                del found[field]
        return found


def _every(kinds: Any, place: Path) -> int:
    """The distance from one global layer to the next. Raises UnmaskError if the first layer is local, or the distance
    changes."""
    if isinstance(kinds, Sequence) and kinds:
        full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
        every = full[1] if len(full) > 1 else len(kinds)
        if list(kinds) == ["sliding_attention" if i % every else "full_attention" for i in range(len(kinds))]:
            return every
    raise UnmaskError(
        f"{place}: {LAYERS} must begin with 'full_attention' and repeat it at equal distances, with "
        "'sliding_attention' between."
    )


def _base(positions: Any, kind: str, default: Any, place: Path) -> Any:
    """The base of the rotary positions of a kind of layers. Raises UnmaskError for rotary positions of another form."""
    if others := positions.keys() - BASES.keys() if isinstance(positions, Mapping) else {repr(positions)}:
        known = " and ".join(BASES)
        raise UnmaskError(f"{place}: {ROTARY} has {', '.join(sorted(others))}, and only {known} are supported.")
    fields = positions.get(kind) or {}
    if not isinstance(fields, Mapping) or fields.get("rope_type", "default") != "default":
        raise UnmaskError(f"{place}: {ROTARY} of {kind} = {fields!r} is not supported; only the type 'default' is.")
    if other := fields.keys() - {"rope_type", "rope_theta"}:
        raise UnmaskError(f"{place}: {ROTARY} of {kind} has {', '.join(sorted(other))}, which is not supported.")
    return fields.get("rope_theta", default)


_LAYER = "model.layers.{}."
_TRUNK = (
    ("embedding.token", "model.embeddings.tok_embeddings"),
    ("embedding.norm", "model.embeddings.norm"),
    ("stack.blocks.{}.attention.before", _LAYER + "attn_norm"),
    *((f"stack.blocks.{{}}.attention.f.{part}", f"{_LAYER}attn.Wqkv.{part}") for part in ("query", "key", "value")),
    ("stack.blocks.{}.attention.f.output", _LAYER + "attn.Wo"),
    ("stack.blocks.{}.feedforward.before", _LAYER + "mlp_norm"),
    *((f"stack.blocks.{{}}.feedforward.f.{part}", f"{_LAYER}mlp.Wi.{part}") for part in ("gate", "up")),
    ("stack.blocks.{}.feedforward.f.down", _LAYER + "mlp.Wo"),
    ("stack.norm", "model.final_norm"),
)


def _transformed(head: str, output: str) -> Names:
    """The layer before an output, and the output."""
    ours = f"heads.{head}.transform."
    return ((ours + "dense", "head.dense"), (ours + "norm", "head.norm"), (f"heads.{head}.output", output))


_CLASSIFIED = ("classification", "multilabel", "regression", "choice", "tagging", "span")
_HEADS = {
    **{head: _transformed(head, "classifier") for head in _CLASSIFIED},
    **{head: _transformed(head, f"{head}.output") for head in ("nsp", "sop")},  # only in unmask
    "crf": CRF,
    "pairs": (("heads.pairs.output", "pairs.output"),),
}


def _heads(*output: tuple[str, str]) -> dict[str, Names]:
    return {"mlm": (*_transformed("mlm", "")[:2], *output), **_HEADS}


_NO_IDS = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
"""Absent ids would be those of the published vocabulary; the tokenizer of a folder has the right ones."""

_TIED = Table(
    model_type="modernbert",
    config=ModernBert,
    prefix="model.",
    fields={
        "vocab_size": "vocabulary",
        "hidden_size": "dim",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "intermediate_size": "hidden",
        "max_position_embeddings": "length",
        EVERY: "every",
        "local_attention": "local",
        "global_rope_theta": "global_base",
        "local_rope_theta": "local_base",
        "hidden_activation": "activation",
        "norm_eps": "eps",
        "norm_bias": "norm_bias",
        "attention_bias": "attention_bias",
        "mlp_bias": "feedforward_bias",
        "classifier_bias": "head_bias",
        "classifier_activation": "head_activation",
        "decoder_bias": "decoder_bias",
        "tie_word_embeddings": "tied",
        "classifier_pooling": "pooling",
        "embedding_dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout",
        "mlp_dropout": "hidden_dropout",
        "classifier_dropout": "head_dropout",
        "initializer_range": "std",
        "initializer_cutoff_factor": "cutoff",
        "pad_token_id": "padding",
    },
    fixed={},
    nullable=frozenset(),
    trunk=_TRUNK,
    pooler=(),
    heads=_heads(("heads.mlm.output.bias", "decoder.bias")),
    architectures=architectures("ModernBert"),
    copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    packed={_LAYER + "attn.Wqkv": ("query", "key", "value"), _LAYER + "mlp.Wi": ("gate", "up")},
    # How `transformers` computes, and fields of the program that trained the published models.
    ignored=frozenset(
        """
        deterministic_flash_attn layer_norm_eps position_embedding_type reference_compile repad_logits_with_grad
        sparse_pred_ignore_index sparse_prediction
        """.split()  # noqa: SIM905 (as in config.py)
    ),
    required={"tied": True, "decoder_bias": True},
    parts=(Alternation(), Written(_NO_IDS)),
)
_UNTIED = replace(
    _TIED,
    heads=_heads(("heads.mlm.output.output", "decoder")),
    copies={},
    required={"tied": False},
    marks={"tie_word_embeddings": False},
)
_UNBIASED = replace(
    _TIED, heads=_heads(), required={"tied": True, "decoder_bias": False}, marks={"decoder_bias": False}
)

MODERNBERT = replace(_TIED, variants=(_UNTIED, _UNBIASED))
"""Variants have other names for the output over the vocabulary: with weights of its own, or without a bias."""
