"""Names of ELECTRA. The generator of a run has a separate folder with the same names."""

from __future__ import annotations

from unmask.huggingface.table import Table
from unmask.huggingface.tables.bert import CRF, FIELDS, FIXED, architectures, trunk
from unmask.models.electra import Electra


def _dense(head: str, dense: str, output: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (f"heads.{head}.dense", dense), (f"heads.{head}.output", output)


ELECTRA = Table(
    model_type="electra",
    config=Electra,
    prefix="electra.",
    fields={
        **FIELDS,
        "embedding_size": "factor",
        "summary_first_dropout": "choice_input_dropout",
        "summary_last_dropout": "choice_dropout",
        "generator_size": "generator",  # only in unmask; a continued run needs it
    },
    fixed={
        **FIXED,
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
        "summary_proj_to_labels": False,
    },
    trunk=(*trunk("electra."), ("embedding.project", "electra.embeddings_project")),
    pooler=(),
    heads={
        "rtd": _dense("rtd", "discriminator_predictions.dense", "discriminator_predictions.dense_prediction"),
        "mlm": (
            ("heads.mlm.dense", "generator_predictions.dense"),
            ("heads.mlm.norm", "generator_predictions.LayerNorm"),
            ("heads.mlm.bias", "generator_lm_head.bias"),
        ),
        **{
            h: _dense(h, "classifier.dense", "classifier.out_proj")
            for h in ("classification", "multilabel", "regression")
        },
        **{h: _dense(h, f"{h}.dense", f"{h}.output") for h in ("nsp", "sop")},  # only in unmask
        "choice": _dense("choice", "sequence_summary.summary", "classifier"),
        "tagging": (("heads.tagging.output", "classifier"),),
        "crf": CRF,
        "span": (("heads.span.output", "qa_outputs"),),
        "pairs": (("heads.pairs.output", "pairs.output"),),
    },
    architectures=architectures("Electra", ("ForPreTraining", frozenset({"rtd"}))),
    copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
)
