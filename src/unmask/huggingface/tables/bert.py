"""Names of BERT and RoBERTa, and the names that related models share with them."""

from __future__ import annotations

from unmask.huggingface.table import Names, Table
from unmask.models.bert import Bert, Roberta

FIELDS = {
    "vocab_size": "vocabulary",
    "hidden_size": "dim",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "hidden",
    "max_position_embeddings": "length",
    "type_vocab_size": "segments",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "head_dropout",
    "layer_norm_eps": "eps",
    "initializer_range": "std",
    "position_initializer": "positions",  # only in unmask; a run from random weights needs it
    "pad_token_id": "padding",
}
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def trunk(prefix: str) -> Names:
    """Names of the embedding and the blocks."""
    layer = prefix + "encoder.layer.{}."
    return (
        ("embedding.token", prefix + "embeddings.word_embeddings"),
        ("embedding.segment", prefix + "embeddings.token_type_embeddings"),
        ("embedding.position.table", prefix + "embeddings.position_embeddings"),
        ("embedding.norm", prefix + "embeddings.LayerNorm"),
        ("stack.blocks.{}.attention.f.query", layer + "attention.self.query"),
        ("stack.blocks.{}.attention.f.key", layer + "attention.self.key"),
        ("stack.blocks.{}.attention.f.value", layer + "attention.self.value"),
        ("stack.blocks.{}.attention.f.output", layer + "attention.output.dense"),
        ("stack.blocks.{}.attention.after", layer + "attention.output.LayerNorm"),
        ("stack.blocks.{}.feedforward.f.up", layer + "intermediate.dense"),
        ("stack.blocks.{}.feedforward.f.down", layer + "output.dense"),
        ("stack.blocks.{}.feedforward.after", layer + "output.LayerNorm"),
    )


def architectures(name: str, *pretraining: tuple[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The classes of a family in `transformers`, those of `pretraining` first."""
    return {
        **{name + suffix: heads for suffix, heads in pretraining},
        f"{name}ForMaskedLM": frozenset({"mlm"}),
        f"{name}ForSequenceClassification": frozenset({"classification"}),
        f"{name}ForTokenClassification": frozenset({"tagging"}),
        f"{name}ForQuestionAnswering": frozenset({"span"}),
        f"{name}ForMultipleChoice": frozenset({"choice"}),
        f"{name}Model": frozenset(),
    }


CRF = tuple((f"heads.crf.{part}", f"crf.{part}") for part in ("transitions", "begin", "end"))

BERT = Table(
    model_type="bert",
    config=Bert,
    prefix="bert.",
    fields=FIELDS,
    fixed=FIXED,
    trunk=trunk("bert."),
    pooler=(("pooler.dense", "bert.pooler.dense"),),
    heads={
        "mlm": (
            ("heads.mlm.dense", "cls.predictions.transform.dense"),
            ("heads.mlm.norm", "cls.predictions.transform.LayerNorm"),
            ("heads.mlm.bias", "cls.predictions.bias"),
        ),
        "nsp": (("heads.nsp.output", "cls.seq_relationship"),),
        "sop": (("heads.sop.output", "cls.seq_relationship"),),
        **{h: ((f"heads.{h}.output", "classifier"),) for h in ("classification", "multilabel", "regression", "choice")},
        "tagging": (("heads.tagging.output", "classifier"),),
        "crf": CRF,
        "span": (("heads.span.output", "qa_outputs"),),
        "pairs": (("heads.pairs.output", "pairs.output"),),
    },
    architectures=architectures(
        "Bert",
        ("ForPreTraining", frozenset({"mlm", "nsp"})),
        ("ForNextSentencePrediction", frozenset({"nsp"})),
    ),
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    gguf="bert",
)

# RoBERTa's classifier has its own dense layer instead of the pooler.
_ROBERTA_POOLER = ("pooler.dense", "classifier.dense")

ROBERTA = Table(
    model_type="roberta",
    config=Roberta,
    prefix="roberta.",
    fields=FIELDS,
    shift={"max_position_embeddings": 2},
    absent={"max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12},
    nullable=frozenset(),
    fixed=FIXED,
    trunk=trunk("roberta."),
    pooler=(("pooler.dense", "roberta.pooler.dense"),),
    heads={
        "mlm": (
            ("heads.mlm.dense", "lm_head.dense"),
            ("heads.mlm.norm", "lm_head.layer_norm"),
            ("heads.mlm.bias", "lm_head.bias"),
        ),
        **{
            h: (_ROBERTA_POOLER, (f"heads.{h}.output", "classifier.out_proj"))
            for h in ("classification", "multilabel", "regression")
        },
        "choice": (("heads.choice.output", "classifier"),),
        "tagging": (("heads.tagging.output", "classifier"),),
        "crf": CRF,
        "span": (("heads.span.output", "qa_outputs"),),
        "pairs": (("heads.pairs.output", "pairs.output"),),
    },
    architectures=architectures("Roberta"),
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    written=("lm_head.decoder.bias",),
)
