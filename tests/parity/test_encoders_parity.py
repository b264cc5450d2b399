"""Folders of ALBERT, and of RoBERTa with another padding, against `transformers`: numbers, gradients, dropout, keys."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file
from sides import assert_same_gradients, assert_same_states, read
from torch import Tensor, nn

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.huggingface.layout import fold
from unmask.huggingface.table import OF_SEQUENCES
from unmask.models import albert
from unmask.models.albert import Albert
from unmask.models.bert import Bert, Roberta
from unmask.models.electra import Electra
from unmask.models.ib_bert import IbBert
from unmask.models.mobilebert import MobileBert
from unmask.types import Batch

SMALL = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 34,
}
OF_FAMILY = {
    "Albert": {"embedding_size": 16},
    "Electra": {"embedding_size": 16},
    "MobileBert": {"embedding_size": 16, "intra_bottleneck_size": 12, "num_feedforward_networks": 3},
}
HEADS = ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
OTHER = {
    "Albert": ("AlbertForPreTraining", "AlbertModel"),
    "Electra": ("ElectraForPreTraining", "ElectraModel"),
    "MobileBert": ("MobileBertForPreTraining", "MobileBertForNextSentencePrediction", "MobileBertModel"),
}
CLASSES = [f"{family}For{head}" for family in OTHER for head in HEADS] + [c for names in OTHER.values() for c in names]
OURS_ALONE = ("position_initializer", "generator_size", "summary_first_dropout")  # the last: their class reads it
LOGITS = {
    "mlm": ("prediction_logits", "logits"),
    "nsp": ("seq_relationship_logits", "logits"),
    "sop": ("sop_logits",),
}


def reference(name: str, **changes: object) -> nn.Module:
    """A tiny random reference model whose weights are large enough for a mistake to show; padding is a zero vector."""
    family = name.partition("For")[0].removesuffix("Model")
    labels = 2 if name.endswith(("QuestionAnswering", "PreTraining", "SentencePrediction")) else 3
    fields = {**SMALL, **OF_FAMILY[family], **changes}
    config = getattr(transformers, f"{family}Config")(**fields, num_labels=labels)
    torch.manual_seed(0)
    model = getattr(transformers, name)._from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    with torch.no_grad():
        model.get_input_embeddings().weight[config.pad_token_id] = 0
    return model


def ragged(padding: int = 0) -> tuple[Batch, dict[str, Tensor], Tensor]:
    """Three sequences of different lengths as our batch and as theirs, and the flat places that are not padding."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, 61, (3, 17), generator=generator)
    mask = (torch.arange(17) < torch.tensor([17, 11, 5])[:, None]).long()
    tokens = torch.where(mask.bool(), tokens, padding)
    segments = torch.randint(0, 2, tokens.shape, generator=generator) * mask
    theirs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": segments}
    ours = Batch(tokens, documents=mask, segments=segments, starts=torch.arange(3) * 17)
    return ours, theirs, mask.flatten().nonzero().flatten()


def called(theirs: nn.Module, inputs: dict[str, Tensor], **more: bool) -> object:
    """Their output; multiple choice takes the three sequences as the three choices of one row."""
    choice = type(theirs).__name__.endswith("MultipleChoice")
    return theirs(**{k: v[None] if choice else v for k, v in inputs.items()}, **more)


def their_logits(head: str, output: object, places: Tensor) -> Tensor:
    if head == "span":
        return torch.stack([output.start_logits, output.end_logits], -1).flatten(0, 1)[places]
    if head == "choice":
        return output.logits.reshape(-1, 1)
    names = LOGITS.get(head, ("logits",))
    logits = next(getattr(output, n) for n in names if getattr(output, n, None) is not None)
    if head in OF_SEQUENCES:
        return logits
    return logits.reshape(places.numel() if logits.dim() == 1 else 3 * 17, -1)[places]


def answers_of(model: nn.Module, hidden: Tensor, batch: Batch, places: Tensor) -> dict[str, Tensor]:
    """What every head of ours says, where theirs says something."""
    return {head: model.answer(head, hidden, batch.starts if head in OF_SEQUENCES else places) for head in model.heads}


def some_loss(head: str, answers: Tensor) -> Tensor:
    """Cross-entropy against labels that differ from row to row; over the rows where each has one score of a choice."""
    if head == "rtd":  # yes or no of each token
        return F.binary_cross_entropy_with_logits(answers[:, 0], torch.arange(len(answers)).to(answers) % 2)
    answers = answers if answers.shape[-1] > 1 else answers.T
    return F.cross_entropy(answers, torch.arange(len(answers)) % answers.shape[-1])


@pytest.mark.parametrize("name", CLASSES)
def test_a_folder_of_theirs_gives_the_same_numbers_here(name: str, tmp_path: Path) -> None:
    theirs = reference(name)
    theirs.save_pretrained(tmp_path)
    loaded = huggingface.load(tmp_path)
    batch, inputs, places = ragged()
    assert not loaded.new
    assert not loaded.dropped
    assert bool(loaded.model.heads) != name.endswith("Model")
    states: list[Tensor] = []
    for block in loaded.model.stack.blocks:
        block.register_forward_hook(lambda _, __, out: states.append(out))
    with torch.no_grad():
        hidden = loaded.model(batch)
        found = answers_of(loaded.model, hidden, batch, places)
        output = called(theirs, inputs, output_hidden_states=True)
    assert hidden.std() > 0.1  # degenerate outputs would agree too
    for ours, other in zip(states, output.hidden_states[1:], strict=True):
        torch.testing.assert_close(ours.flatten(0, 1)[places], other.flatten(0, 1)[places], atol=1e-5, rtol=1e-5)
    for head, answers in found.items():
        torch.testing.assert_close(answers, their_logits(head, output, places), atol=1e-5, rtol=1e-5)
    if "pooler_output" in output:
        pooled = loaded.model.pooler(hidden.flatten(0, 1)[batch.starts])
        torch.testing.assert_close(pooled, output.pooler_output, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in CLASSES if not name.endswith("Model")])
@pytest.mark.parametrize("train", [False, True])
def test_states_losses_and_gradients_are_theirs_wherever_something_is_dropped(
    name: str, train: bool, tmp_path: Path, fading: None
) -> None:
    classifier = "classifier_dropout_prob" if name.startswith("Albert") else "classifier_dropout"
    rates = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, classifier: 0.1}
    rates |= {"summary_last_dropout": 0.4} if name.startswith("Electra") else {}
    theirs = reference(name, **rates)
    theirs.save_pretrained(tmp_path)
    ours, theirs = huggingface.load(tmp_path).model.double(), theirs.double()  # gradients of a millionth must show
    theirs.train(train)
    ours.train(train)
    batch, inputs, places = ragged()
    output = called(theirs, inputs, output_hidden_states=True)
    hidden, states = read(ours, batch)
    assert_same_states(states, output.hidden_states, places)
    loss, their_loss = torch.zeros(2, dtype=torch.float64)
    for head, answers in answers_of(ours, hidden, batch, places).items():
        loss = loss + some_loss(head, answers)
        their_loss = their_loss + some_loss(head, their_logits(head, output, places))
    torch.testing.assert_close(loss, their_loss, atol=1e-9, rtol=1e-9)
    loss.backward()
    their_loss.backward()
    gradients = {k: p.grad for k, p in theirs.named_parameters() if p.grad is not None}
    names = huggingface.names(ours)
    mine = {names[key]: parameter.grad for key, parameter in ours.named_parameters()}
    mine = fold(huggingface.TABLES[theirs.config.model_type], mine)  # some lie transposed there
    assert_same_gradients(mine, gradients, padding=0, choice="choice" in ours.heads)


@pytest.mark.parametrize("name", CLASSES)
def test_a_folder_of_ours_opens_there_and_is_theirs_key_for_key(name: str, tmp_path: Path) -> None:
    theirs = reference(name)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = huggingface.load(tmp_path / "theirs")
    huggingface.save(tmp_path / "ours", loaded.model, labels=loaded.labels)
    a, b = (load_file(tmp_path / folder / "model.safetensors") for folder in ("theirs", "ours"))
    assert set(a) ^ set(b) <= {"predictions.decoder.bias"}  # which version 4 writes and looks for
    assert all(torch.equal(a[key], b[key]) for key in a)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, info = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    _, inputs, _ = ragged()
    with torch.no_grad():
        for x, y in zip(called(again, inputs).to_tuple(), called(theirs, inputs).to_tuple(), strict=True):
            torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-5)
    assert transformers.AutoConfig.from_pretrained(tmp_path / "ours").architectures == [name]


@pytest.mark.parametrize(
    ("page", "theirs"),
    [
        (Albert(), transformers.AlbertConfig()),
        (Electra(), transformers.ElectraConfig()),
        (MobileBert(), transformers.MobileBertConfig()),
    ],
)
def test_fields_are_the_published_ones(page: Bert, theirs: transformers.PreTrainedConfig) -> None:
    table = huggingface.TABLES[theirs.model_type]
    published = theirs.to_dict()
    sizes = {"dim", "layers", "heads", "hidden"}  # theirs are those of another size
    for their_name, ours in table.fields.items():
        if their_name not in OURS_ALONE and (ours not in sizes or not isinstance(page, Albert)):
            assert published[their_name] == getattr(page, ours), their_name
    for name, value in table.fixed.items():
        assert published.get(name, value) == value, name


def their_count(config: transformers.PreTrainedConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in transformers.AutoModel.from_config(config).parameters())


@pytest.mark.parametrize(("size", "published"), [("base", 12), ("large", 18), ("xlarge", 60), ("xxlarge", 235)])
def test_albert_has_as_many_parameters_as_published(size: str, published: int) -> None:
    """Of the smaller two the paper counts the word pieces in other ways: it says 12 and 18 million."""
    config = Albert().replace(**albert.SIZES[size])
    with torch.device("meta"):
        own = config.build({}, seed=None, pooler=True).parameters_total
    theirs = {"hidden_size": config.dim, "num_hidden_layers": config.layers, "intermediate_size": config.hidden}
    assert own == their_count(transformers.AlbertConfig(**theirs, num_attention_heads=config.heads))
    assert abs(own / 1e6 - published) < 0.06 * published


def test_published_mobilebert_has_no_pooler_and_keeps_to_that(tmp_path: Path) -> None:
    """Its config.json says classifier_activation = false: heads read the first token as it is."""
    theirs = reference("MobileBertForSequenceClassification", classifier_activation=False)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = huggingface.load(tmp_path / "theirs")
    assert loaded.model.pooler is None
    batch, inputs, places = ragged()
    huggingface.save(tmp_path / "ours", loaded.model, labels=loaded.labels)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        found = answers_of(loaded.model, loaded.model(batch), batch, places)["classification"]
        torch.testing.assert_close(found, theirs(**inputs).logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found, again(**inputs).logits, atol=1e-5, rtol=1e-5)


def test_mobilebert_has_as_many_parameters_as_published() -> None:
    with torch.device("meta"):
        own = MobileBert().build({}, seed=None, pooler=True).parameters_total
    assert own == their_count(transformers.MobileBertConfig())
    assert abs(own / 1e6 - 25.3) < 1.0  # the paper says 25.3 million


def test_the_teacher_of_mobilebert_is_theirs_with_wider_queries(tmp_path: Path) -> None:
    """Theirs makes queries of states as wide as the inside of a block; the published code, of its input."""
    published = {"normalization_type": "layer_norm", "key_query_shared_bottleneck": False, "hidden_act": "gelu"}
    published["layer_norm_eps"] = 1e-5  # of their embedding, whatever the field says
    inside, depth = 36, SMALL["num_hidden_layers"]
    theirs = reference(
        "MobileBertForPreTraining", **published, intra_bottleneck_size=inside, num_feedforward_networks=1
    )
    for layer in theirs.mobilebert.encoder.layer:
        own = layer.attention.self
        own.query, own.key = (nn.Linear(SMALL["hidden_size"], inside) for _ in range(2))
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "unmask-ib-bert"}))
    loaded = huggingface.load(tmp_path)
    assert isinstance(loaded.model.config, IbBert)
    model, theirs = loaded.model.double(), theirs.double()
    batch, inputs, places = ragged()
    with torch.no_grad():
        hidden = model(batch)
        output = theirs(**inputs, output_hidden_states=True)
        states = model.hidden_states(batch)
    assert len(states) == len(output.hidden_states) == depth + 1
    for ours, other in zip(states, output.hidden_states, strict=True):
        torch.testing.assert_close(ours.flatten(0, 1)[places], other.flatten(0, 1)[places], atol=1e-9, rtol=1e-9)
    for head, answers in answers_of(model, hidden, batch, places).items():
        torch.testing.assert_close(answers, their_logits(head, output, places), atol=1e-9, rtol=1e-9)


def test_the_teacher_of_mobilebert_has_as_many_parameters_as_published() -> None:
    with torch.device("meta"):
        own = IbBert().build({}, seed=None).parameters_total
    assert abs(own / 1e6 - 293) < 1.5  # the paper says 293 million


@pytest.mark.parametrize(("field", "value"), [("trigram_input", False), ("normalization_type", "layer_norm")])
def test_other_mobileberts_are_refused(field: str, value: object, tmp_path: Path) -> None:
    reference("MobileBertModel", **{field: value}).save_pretrained(tmp_path)
    with pytest.raises(UnmaskError, match=field):
        huggingface.load(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"), [("num_hidden_groups", 2), ("inner_group_num", 2), ("down_scale_factor", 2)]
)
def test_layers_that_are_shared_in_part_are_refused(field: str, value: int, tmp_path: Path) -> None:
    config = transformers.AlbertConfig(**SMALL, embedding_size=16, **{field: value})
    transformers.AlbertModel(config).save_pretrained(tmp_path)
    with pytest.raises(UnmaskError, match=field):
        huggingface.load(tmp_path)


@pytest.mark.parametrize("padding", [0, 1])
def test_roberta_counts_its_positions_from_the_padding(padding: int, tmp_path: Path) -> None:
    model = Roberta(vocabulary=61, dim=24, layers=1, heads=3, hidden=40, length=17, padding=padding, std=0.2).build({})
    huggingface.save(tmp_path, model.eval())
    theirs = transformers.AutoModel.from_pretrained(tmp_path, add_pooling_layer=False)
    batch, inputs, places = ragged(padding)
    whole = Batch(batch.tokens, documents=batch.documents)
    with torch.no_grad():
        found = theirs(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state.flatten(0, 1)[places]
        torch.testing.assert_close(model(whole).flatten(0, 1)[places], found, atol=1e-5, rtol=1e-5)
