"""BERT and RoBERTa folders against `transformers`: hidden states, logits, losses and gradients, both ways."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from sides import assert_same_gradients, assert_same_states, read
from torch import Tensor

from unmask import huggingface
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert, Roberta
from unmask.types import Batch

SMALL = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 34,
}
ARCHITECTURES = [
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
    "BertModel",
    "RobertaForMaskedLM",
    "RobertaForSequenceClassification",
    "RobertaForTokenClassification",
    "RobertaForQuestionAnswering",
    "RobertaForMultipleChoice",
    "RobertaModel",
]
HEAD_OUTPUT = {
    "mlm": ("prediction_logits", "logits"),
    "nsp": ("seq_relationship_logits", "logits"),
    "classification": ("logits",),
    "tagging": ("logits",),
}


def reference(name: str, **changes: object) -> torch.nn.Module:
    """A tiny random reference model whose weights are large enough for a mistake to show."""
    roberta = name.startswith("Roberta")
    labels = 2 if name.endswith("QuestionAnswering") else 3
    values = {**SMALL, "num_labels": labels, **changes} | ({"type_vocab_size": 1} if roberta else {})
    if roberta:
        values |= {"pad_token_id": 1, "layer_norm_eps": 1e-5}
    config = (transformers.RobertaConfig if roberta else transformers.BertConfig)(**values)
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def ragged(roberta: bool) -> tuple[Batch, dict[str, Tensor], Tensor]:
    """Three sequences of different lengths as our batch and as theirs, and the flat places that are not padding."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, 61, (3, 17), generator=generator)
    mask = (torch.arange(17) < torch.tensor([17, 11, 5])[:, None]).long()
    tokens = torch.where(mask.bool(), tokens, 1 if roberta else 0)
    segments = torch.zeros_like(tokens) if roberta else torch.randint(0, 2, tokens.shape, generator=generator) * mask
    theirs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": segments}
    places = mask.flatten().nonzero().flatten()
    starts = torch.arange(3) * 17
    return Batch(tokens, documents=mask, segments=None if roberta else segments, starts=starts), theirs, places


def called(theirs: torch.nn.Module, inputs: dict[str, Tensor], **more: bool) -> object:
    """Their output; multiple choice takes the three sequences as the three choices of one row."""
    choice = type(theirs).__name__.endswith("MultipleChoice")
    return theirs(**{k: v[None] if choice else v for k, v in inputs.items()}, **more)


def place_of(head: str, batch: Batch, places: Tensor) -> Tensor:
    return batch.starts if head in ("nsp", "classification", "choice") else places


def their_logits(head: str, output: object, places: Tensor) -> Tensor:
    if head == "span":
        return torch.stack([output.start_logits, output.end_logits], -1).flatten(0, 1)[places]
    if head == "choice":
        return output.logits.reshape(-1, 1)
    logits = next(getattr(output, n) for n in HEAD_OUTPUT[head] if getattr(output, n, None) is not None)
    return logits if head in ("nsp", "classification") else logits.flatten(0, 1)[places]


def some_loss(answers: Tensor) -> Tensor:
    """Cross-entropy against labels that differ from row to row; over the rows where each has one score."""
    answers = answers if answers.shape[-1] > 1 else answers.T
    return F.cross_entropy(answers, torch.arange(len(answers)) % answers.shape[-1])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_folder_of_theirs_gives_the_same_numbers_here(name, tmp_path):
    theirs = reference(name)
    theirs.save_pretrained(tmp_path)
    loaded = huggingface.load(tmp_path)
    batch, inputs, places = ragged(name.startswith("Roberta"))
    assert not loaded.new
    assert not loaded.dropped
    with torch.no_grad():
        states: list[Tensor] = []
        for block in loaded.model.stack.blocks:
            block.register_forward_hook(lambda _, __, out: states.append(out))
        hidden = loaded.model(batch)
        output = called(theirs, inputs, output_hidden_states=True)
    assert hidden.std() > 0.1  # degenerate outputs would agree too
    for ours, other in zip(states, output.hidden_states[1:], strict=True):
        torch.testing.assert_close(ours.flatten(0, 1)[places], other.flatten(0, 1)[places], atol=1e-5, rtol=1e-5)
    for head in loaded.model.heads:
        answers = loaded.model.answer(head, hidden, place_of(head, batch, places))
        torch.testing.assert_close(answers, their_logits(head, output, places), atol=1e-5, rtol=1e-5)
    if name == "BertModel":
        pooled = loaded.model.pooler(hidden.flatten(0, 1)[batch.starts])
        torch.testing.assert_close(pooled, output.pooler_output, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in ARCHITECTURES if not n.endswith("Model")])
@pytest.mark.parametrize(("train", "drops"), [(False, False), (True, False), (True, True)])
def test_states_losses_and_gradients_are_theirs(name, train, drops, tmp_path, fading):
    rates = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.1}
    if not drops:
        rates = dict.fromkeys(rates, 0.0)
    theirs = reference(name, **rates, attn_implementation="eager" if drops else None)
    theirs.save_pretrained(tmp_path)
    ours, theirs = huggingface.load(tmp_path).model.double(), theirs.double()  # gradients of a millionth must show
    theirs.train(train)
    ours.train(train)
    batch, inputs, places = ragged(name.startswith("Roberta"))
    output = called(theirs, inputs, output_hidden_states=True)
    hidden, states = read(ours, batch)
    assert_same_states(states, output.hidden_states, places)
    loss, their_loss = torch.zeros(2, dtype=torch.float64)
    for head in ours.heads:
        answers = ours.answer(head, hidden, place_of(head, batch, places))
        loss = loss + some_loss(answers)
        their_loss = their_loss + some_loss(their_logits(head, output, places))
    torch.testing.assert_close(loss, their_loss, atol=1e-9, rtol=1e-9)
    loss.backward()
    their_loss.backward()
    gradients = {k: p.grad for k, p in theirs.named_parameters() if p.grad is not None}
    names = huggingface.names(ours)
    mine = {names[key]: parameter.grad for key, parameter in ours.named_parameters()}
    assert_same_gradients(mine, gradients, padding=theirs.config.pad_token_id, choice="choice" in ours.heads)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_folder_of_ours_opens_there_and_is_theirs_key_for_key(name, tmp_path):
    theirs = reference(name)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = huggingface.load(tmp_path / "theirs")
    huggingface.save(tmp_path / "ours", loaded.model, labels=loaded.labels)
    with (
        safe_open(tmp_path / "theirs" / "model.safetensors", "pt") as a,
        safe_open(tmp_path / "ours" / "model.safetensors", "pt") as b,
    ):
        assert set(a.keys()) ^ set(b.keys()) <= {"lm_head.decoder.bias"}  # which version 4 writes and looks for
        for key in a.keys():  # noqa: SIM118 (not a mapping)
            assert torch.equal(a.get_tensor(key), b.get_tensor(key)), key
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, info = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    _, inputs, _ = ragged(name.startswith("Roberta"))
    with torch.no_grad():
        for x, y in zip(called(again, inputs).to_tuple(), called(theirs, inputs).to_tuple(), strict=True):
            torch.testing.assert_close(x, y)  # not to the bit: where weights lie in memory changes how sums round
    automatic = transformers.AutoConfig.from_pretrained(tmp_path / "ours")
    assert automatic.architectures == [name]


def test_a_regression_folder_keeps_its_kind(tmp_path):
    model = Bert(vocabulary=30, dim=8, layers=1, heads=2, hidden=16, length=16).build(as_heads({"regression": 1}))
    huggingface.save(tmp_path, model)
    assert list(huggingface.load(tmp_path).model.heads) == ["regression"]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert theirs.config.problem_type == "regression"
    assert theirs.config.num_labels == 1


def test_fields_and_initialisation_are_the_published_ones(tmp_path):
    published = transformers.BertConfig().to_dict()
    for theirs, ours in huggingface.TABLES["bert"].fields.items():
        if theirs != "position_initializer":  # a field of ours alone
            assert published[theirs] == getattr(Bert(), ours), theirs
    model = Bert(vocabulary=2_000, dim=64, layers=2, heads=2, hidden=128, length=64).build()
    weight = model.stack.blocks[0].feedforward.f.up.weight
    assert weight.abs().max() <= 0.04
    # The standard deviation of a normal cut at two standard deviations is 0.8796 of the uncut one.
    assert abs(float(model.embedding.token.weight.detach().std()) / 0.02 - 0.8796) < 0.01
    assert float(model.heads["nsp"].output.bias.detach().abs().max()) == 0
    same = Bert(vocabulary=2_000, dim=64, layers=2, heads=2, hidden=128, length=64).build()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))


def test_positions_can_start_as_sinusoids_and_a_saved_folder_remembers(tmp_path):
    config = Bert(vocabulary=30, dim=64, layers=1, heads=2, hidden=64, length=40, positions="sinusoids", std=0.05)
    model = config.build(as_heads({"mlm": 0}))
    table = model.embedding.position.table.weight.detach()
    assert float(table.std()) == pytest.approx(0.05, rel=1e-4)
    # A sum of cosines of the distance: the product of two places depends on how far apart they are, not on where.
    products = table @ table.T
    for distance in (1, 5):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=1e-4)
    huggingface.save(tmp_path, model)
    assert huggingface.load(tmp_path).model.config == config


def test_parameter_counts_are_the_published_ones():
    base = Bert().build({}, seed=None, pooler=True)
    assert base.parameters_total == 109_482_240  # bert-base-uncased without heads
    assert Roberta().build({}, seed=None, pooler=True).parameters_total == 124_645_632  # roberta-base


def test_a_row_longer_than_the_positions_is_refused():
    from unmask.errors import UnmaskError

    model = Bert(vocabulary=30, dim=8, layers=1, heads=2, hidden=16, length=4).build({})
    with pytest.raises(UnmaskError, match="5 tokens"):
        model(Batch(torch.zeros(1, 5, dtype=torch.long)))
