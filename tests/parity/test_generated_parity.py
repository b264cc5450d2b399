"""Generated parity of every family: see generated.py.

The suite draws a few cases of each family, always the same. The long form draws new ones each time:

    python -m pytest -m slow tests/parity/test_generated_parity.py --draws 2000

draws 2000 of each family. A case that fails is printed as it can be pinned below.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import transformers
from families import albert, bert, electra, gpt, gpt2, marian, mobilebert, modernbert, pegasus, roberta, t5
from generated import Case, Family, cases, check
from hypothesis import HealthCheck, Phase, given, settings

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.huggingface.config import read_config
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert

ENCODERS = (bert, roberta, albert, electra, mobilebert, modernbert)
WRITERS = (gpt, gpt2, t5, marian, pegasus)
FAMILIES = {module.FAMILY.name: module.FAMILY for module in (*ENCODERS, *WRITERS)}
DRAWS = {**{module.FAMILY.name: 12 for module in ENCODERS}, **{module.FAMILY.name: 4 for module in WRITERS}}
"""Draws of each family in the suite."""


def drawn(family: Family, number: int, *, always_the_same: bool) -> Counter[str]:
    """Check so many cases of a family. Returns how many came out which way."""
    came = Counter[str]()

    @settings(
        max_examples=number,
        derandomize=always_the_same,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(cases(family))
    def one(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            came[check(case, family, Path(folder))] += 1

    one()
    return came


@pytest.mark.parametrize("name", FAMILIES)
def test_every_field_of_the_reference_is_drawn_or_excused(name: str) -> None:
    family = FAMILIES[name]
    assert family.fields <= family.covered


SMALL = {
    **{"vocab_size": 23, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 10},
    **{"max_position_embeddings": 12, "type_vocab_size": 2, "id2label": None, "problem_type": None, "dtype": "float32"},
}
RATES = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.21, "classifier_dropout": 0.48}


def pinned(architecture: str, absent: tuple[str, ...] = (), changes: dict[str, Any] | None = None, **more: Any) -> Case:
    """A case of fixed sizes; in training mode where it names rates."""
    name = next(name for name, family in FAMILIES.items() if architecture in family.classes)
    own = {"embedding_size": 6, "intra_bottleneck_size": 6} if name == "mobilebert" else {}
    own = {"embedding_size": 6} if name in ("albert", "electra") else own
    train = "hidden_dropout_prob" in more
    return Case(name, architecture, {**SMALL, **own, **more}, changes or {}, absent, train=train, seed=1)


TWO = ["no", "yes"]
ONE = {"id2label": ["one"]}
ALBERT_RATES = {**RATES, "classifier_dropout_prob": 0.48}
del ALBERT_RATES["classifier_dropout"]
PINNED = {
    "the head of RoBERTa has GELU": pinned("RobertaForMaskedLM", hidden_act="relu"),
    "the vector of the padding is read": pinned("MobileBertForTokenClassification", pad_token_id=1),
    "several labels, of which there is one": pinned(
        "BertForSequenceClassification", **ONE, problem_type="multi_label_classification"
    ),
    "one label without a problem is a score": pinned("BertForSequenceClassification", **ONE),
    "several scores": pinned("BertForSequenceClassification", id2label=["x", "y", "z"], problem_type="regression"),
    **{
        f"{name} without architectures": pinned(f"{name}ForSequenceClassification", ("architectures",), id2label=TWO)
        for name in ("Bert", "Roberta", "Albert", "Electra", "MobileBert")
    },
    "one score without architectures": pinned("BertForSequenceClassification", ("architectures",), **ONE),
    "unknown architectures": pinned("BertForSequenceClassification", changes={"architectures": ["Mystery"]}),
    "empty architectures": pinned("AlbertForSequenceClassification", changes={"architectures": []}),
    "tags without architectures": pinned("BertForTokenClassification", ("architectures",)),
    "choices without architectures": pinned("BertForMultipleChoice", ("architectures",)),
    "RoBERTa's choices without architectures": pinned("RobertaForMultipleChoice", ("architectures",)),
    "sentence order without architectures": pinned("AlbertForPreTraining", ("architectures",)),
    "sentence order with three answers": pinned("AlbertForPreTraining", id2label=["a", "b", "c"]),
    "heads that are no longer there": pinned("BertForSequenceClassification", changes={"unmask_heads": ["mlm"]}),
    "a class that the reference saved over ours": pinned(
        "BertForTokenClassification", changes={"unmask_heads": ["classification"]}
    ),
    "RoBERTa without layer_norm_eps": pinned("RobertaForMaskedLM", ("layer_norm_eps",)),
    "RoBERTa without max_position_embeddings": pinned(
        "RobertaForMaskedLM", ("max_position_embeddings",), max_position_embeddings=512
    ),
    "ALBERT without num_attention_heads": pinned(
        "AlbertForMaskedLM", ("num_attention_heads",), num_attention_heads=64, hidden_size=64
    ),
    "ALBERT drops nothing after its feed-forward": pinned("AlbertForMaskedLM", **ALBERT_RATES),
    "RoBERTa's choices drop as the trunk does": pinned("RobertaForMultipleChoice", **RATES),
    "ELECTRA's choices drop twice": pinned(
        "ElectraForMultipleChoice", changes={"summary_first_dropout": 0.6}, **RATES, summary_last_dropout=0.33
    ),
    "RoBERTa without layers": pinned("RobertaForMaskedLM", num_hidden_layers=0),
    "_num_labels": pinned("BertForSequenceClassification", changes={"_num_labels": 5}),
    **{name: pinned("BertForMaskedLM", hidden_act=name) for name in ("swish", "gelu_python", "gelu_pytorch_tanh")},
}
"""What once differed, or was refused though the reference opens it."""


@pytest.mark.parametrize("case", PINNED.values(), ids=list(PINNED))
def test_what_once_differed_is_equal(case: Case, tmp_path: Path) -> None:
    assert check(case, FAMILIES[case.family], tmp_path) == "equal"


@pytest.mark.parametrize(
    ("architecture", "changes", "sentence"),
    [
        ("BertForMaskedLM", {"num_attention_heads": None}, "num_attention_heads"),
        ("RobertaForMaskedLM", {"pad_token_id": None}, "pad_token_id"),
        ("MobileBertForMaskedLM", {"pad_token_id": None}, "pad_token_id"),
        ("MobileBertForMaskedLM", {"true_hidden_size": 8}, "contradicts another field, which has 8"),
        ("ElectraForMultipleChoice", {"summary_proj_to_labels": True}, "summary_proj_to_labels"),
        ("BertForSequenceClassification", {"problem_type": "nonsense"}, "problem_type"),
        ("MobileBertForTokenClassification", {"architectures": []}, "does not say which head the classifier is"),
    ],
)
def test_what_would_mean_something_else_is_refused(
    architecture: str, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    values = {"classifier_activation": False} if architecture == "MobileBertForTokenClassification" else {}
    case = dataclasses.replace(pinned(architecture, changes=changes, **values), odd=True)
    assert check(case, FAMILIES[case.family], tmp_path) == "refused"
    with pytest.raises(UnmaskError, match=sentence) as caught:
        huggingface.load(tmp_path / "theirs")
    assert str(tmp_path / "theirs" / "config.json") in str(caught.value)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name in huggingface.TABLES])
def test_an_absent_field_means_what_the_reference_defaults_to(name: str, tmp_path: Path) -> None:
    table, published = huggingface.TABLES[name], FAMILIES[name].config().to_dict()
    written = {field: value for field, value in published.items() if field in table.fields}
    assert read_config(table, {}, tmp_path) == read_config(table, written, tmp_path)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_folder_of_scores_opens_on_both_sides(outputs: int, tmp_path: Path) -> None:
    model = Bert(vocabulary=23, dim=8, layers=1, heads=2, hidden=8, length=8).build(as_heads({"regression": outputs}))
    huggingface.save(tmp_path, model)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert theirs.config.problem_type == "regression"
    assert theirs.config.num_labels == outputs
    loaded = huggingface.load(tmp_path)
    assert dict(loaded.model.heads["regression"].named_parameters())["output.bias"].shape == (outputs,)
    assert list(loaded.labels) == list(theirs.config.id2label.values())


def test_a_trunk_without_its_pooler_claims_no_class_that_has_one(tmp_path: Path) -> None:
    config = Bert(vocabulary=23, dim=8, layers=1, heads=2, hidden=8, length=8)
    for pooler, classes in ((True, ["BertModel"]), (False, [])):
        huggingface.save(tmp_path, config.build({}, pooler=pooler))
        assert transformers.AutoConfig.from_pretrained(tmp_path).architectures == (classes or [])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_few_configurations_are_equal_or_refused(name: str) -> None:
    came = drawn(FAMILIES[name], DRAWS[name], always_the_same=True)
    assert came["equal"] >= DRAWS[name] // 2, came


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_many_configurations_are_equal_or_refused(name: str, draws: int) -> None:
    came = drawn(FAMILIES[name], draws, always_the_same=False)
    print(name, dict(came))  # shown by -s
    assert came["equal"] >= draws // 3, came
