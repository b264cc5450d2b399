"""Names of MobileBERT, and of its teacher."""

from __future__ import annotations

from dataclasses import replace

from unmask.huggingface.table import Table
from unmask.huggingface.tables.bert import CRF, FIELDS, FIXED, architectures
from unmask.models.ib_bert import IbBert
from unmask.models.mobilebert import MobileBert

_BLOCK, _THEIRS = "stack.blocks.{}.f.", "mobilebert.encoder.layer.{}."
_FEEDFORWARD = (("f.up", "intermediate.dense"), ("f.down", "output.dense"), ("after", "output.LayerNorm"))

MOBILEBERT = Table(
    model_type="mobilebert",
    config=MobileBert,
    prefix="mobilebert.",
    fields={
        **FIELDS,
        "embedding_size": "factor",
        "true_hidden_size": "bottleneck",
        "intra_bottleneck_size": "bottleneck",
        "num_feedforward_networks": "feedforwards",
        "classifier_activation": "pooled",
    },
    nullable=frozenset(),  # a trained padding vector would change its neighbours (trigram input)
    fixed={
        **FIXED,
        "normalization_type": "no_norm",
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": True,
    },
    trunk=(
        ("embedding.token", "mobilebert.embeddings.word_embeddings"),
        ("embedding.segment", "mobilebert.embeddings.token_type_embeddings"),
        ("embedding.position.table", "mobilebert.embeddings.position_embeddings"),
        ("embedding.transform", "mobilebert.embeddings.embedding_transformation"),
        ("embedding.norm", "mobilebert.embeddings.LayerNorm"),
        (_BLOCK + "enter.0", _THEIRS + "bottleneck.input.dense"),
        (_BLOCK + "enter.1", _THEIRS + "bottleneck.input.LayerNorm"),
        (_BLOCK + "look.0", _THEIRS + "bottleneck.attention.dense"),
        (_BLOCK + "look.1", _THEIRS + "bottleneck.attention.LayerNorm"),
        (_BLOCK + "attention.query", _THEIRS + "attention.self.query"),
        (_BLOCK + "attention.key", _THEIRS + "attention.self.key"),
        (_BLOCK + "attention.value", _THEIRS + "attention.self.value"),
        (_BLOCK + "attention.output", _THEIRS + "attention.output.dense"),
        (_BLOCK + "norm", _THEIRS + "attention.output.LayerNorm"),
        *((_BLOCK + "stacked.{}." + ours, _THEIRS + "ffn.{}." + theirs) for ours, theirs in _FEEDFORWARD),
        *((_BLOCK + "last." + ours, _THEIRS + theirs) for ours, theirs in _FEEDFORWARD),
        (_BLOCK + "leave", _THEIRS + "output.bottleneck.dense"),
        ("stack.blocks.{}.after", _THEIRS + "output.bottleneck.LayerNorm"),
    ),
    pooler=(("pooler.dense", "mobilebert.pooler.dense"),),
    heads={
        "mlm": (
            ("heads.mlm.dense", "cls.predictions.transform.dense"),
            ("heads.mlm.norm", "cls.predictions.transform.LayerNorm"),
            ("heads.mlm.rest", "cls.predictions.dense"),
            ("heads.mlm.bias", "cls.predictions.bias"),
        ),
        **{h: ((f"heads.{h}.output", "cls.seq_relationship"),) for h in ("nsp", "sop")},
        **{h: ((f"heads.{h}.output", "classifier"),) for h in ("classification", "multilabel", "regression", "choice")},
        "tagging": (("heads.tagging.output", "classifier"),),
        "crf": CRF,
        "span": (("heads.span.output", "qa_outputs"),),
        "pairs": (("heads.pairs.output", "pairs.output"),),
    },
    architectures=architectures(
        "MobileBert",
        ("ForPreTraining", frozenset({"mlm", "nsp"})),
        ("ForNextSentencePrediction", frozenset({"nsp"})),
    ),
    copies={
        "cls.predictions.decoder.weight": "mobilebert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    transposed=("cls.predictions.dense",),
)

IB_BERT = replace(
    MOBILEBERT,
    model_type="unmask-ib-bert",  # in transformers, queries are as wide as the inside of a block
    config=IbBert,
    fixed={**MOBILEBERT.fixed, "normalization_type": "layer_norm", "key_query_shared_bottleneck": False},
    trunk=tuple(pair for pair in MOBILEBERT.trunk if ".look." not in pair[0]),
    architectures={},
)
