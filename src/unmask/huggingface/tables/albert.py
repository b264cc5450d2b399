"""Names of ALBERT."""

from __future__ import annotations

from unmask.huggingface.table import Table
from unmask.huggingface.tables.bert import CRF, FIELDS, FIXED, architectures
from unmask.models.albert import Albert

_BLOCK, _THEIRS = "stack.blocks.0.", "albert.encoder.albert_layer_groups.0.albert_layers.0."

ALBERT = Table(
    model_type="albert",
    config=Albert,
    prefix="albert.",
    fields={
        **{theirs: ours for theirs, ours in FIELDS.items() if theirs != "classifier_dropout"},
        "classifier_dropout_prob": "head_dropout",
        "embedding_size": "factor",
    },
    absent={"hidden_size": 4_096, "num_attention_heads": 64, "intermediate_size": 16_384},
    fixed={**FIXED, "num_hidden_groups": 1, "inner_group_num": 1, "down_scale_factor": 1},
    trunk=(
        ("embedding.token", "albert.embeddings.word_embeddings"),
        ("embedding.segment", "albert.embeddings.token_type_embeddings"),
        ("embedding.position.table", "albert.embeddings.position_embeddings"),
        ("embedding.norm", "albert.embeddings.LayerNorm"),
        ("embedding.project", "albert.encoder.embedding_hidden_mapping_in"),
        (_BLOCK + "attention.f.query", _THEIRS + "attention.query"),
        (_BLOCK + "attention.f.key", _THEIRS + "attention.key"),
        (_BLOCK + "attention.f.value", _THEIRS + "attention.value"),
        (_BLOCK + "attention.f.output", _THEIRS + "attention.dense"),
        (_BLOCK + "attention.after", _THEIRS + "attention.LayerNorm"),
        (_BLOCK + "feedforward.f.up", _THEIRS + "ffn"),
        (_BLOCK + "feedforward.f.down", _THEIRS + "ffn_output"),
        (_BLOCK + "feedforward.after", _THEIRS + "full_layer_layer_norm"),
    ),
    pooler=(("pooler.dense", "albert.pooler"),),
    heads={
        "mlm": (
            ("heads.mlm.dense", "predictions.dense"),
            ("heads.mlm.norm", "predictions.LayerNorm"),
            ("heads.mlm.bias", "predictions.bias"),
        ),
        **{h: ((f"heads.{h}.output", "sop_classifier.classifier"),) for h in ("sop", "nsp")},
        **{h: ((f"heads.{h}.output", "classifier"),) for h in ("classification", "multilabel", "regression", "choice")},
        "tagging": (("heads.tagging.output", "classifier"),),
        "crf": CRF,
        "span": (("heads.span.output", "qa_outputs"),),
        "pairs": (("heads.pairs.output", "pairs.output"),),
    },
    architectures=architectures("Albert", ("ForPreTraining", frozenset({"mlm", "sop"}))),
    copies={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    written=("predictions.decoder.bias",),
)
