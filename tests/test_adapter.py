"""Adapters as files against `peft`: logits, gradients and names, both ways; and folders that are no adapters."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.model import Model
from unmask.nn.lora import adapters
from unmask.runs.transfer import Transfer, load_adapter, merged, prepare, save_adapter
from unmask.runs.transfer.adapter import CONFIG, WEIGHTS
from unmask.types import Batch

SMALL = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 34,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
KINDS = {  # class of theirs -> (our head, task of peft, what peft is to store whole beside its own choice)
    "BertForSequenceClassification": ("classification", "SEQ_CLS", ["bert.pooler"]),
    "BertForTokenClassification": ("tagging", "TOKEN_CLS", None),
    "BertForQuestionAnswering": ("span", "QUESTION_ANS", None),
    "BertModel": (None, "FEATURE_EXTRACTION", ["pooler"]),
    "RobertaForSequenceClassification": ("classification", "SEQ_CLS", None),
}
TARGETS = {
    ("query", "value"): ["query", "value"],
    ("key", "output", "down"): r".*\.(key|output\.dense)",  # both dense layers that are called output
}


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def base(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a tiny random base model whose weights are large enough for a mistake to show."""
    roberta = kind.startswith("Roberta")
    values: dict[str, Any] = {**SMALL, "num_labels": 2 if "Question" in kind else 3}
    if roberta:
        values |= {"pad_token_id": 1, "layer_norm_eps": 1e-5, "type_vocab_size": 1}
    config = (transformers.RobertaConfig if roberta else transformers.BertConfig)(**values)
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config)
    for p in model.parameters():
        nn.init.normal_(p, std=0.2)
    folder = tmp_path_factory.mktemp("base")
    model.save_pretrained(folder)
    return folder


def theirs_of(kind: str, base: Path) -> nn.Module:
    return getattr(transformers, kind).from_pretrained(base).eval()


def ours_of(base: Path) -> Model:
    return huggingface.load(base).model


def learned(model: Model, seed: int = 0) -> Model:
    """The model with something in its adapters, its head and its pooler."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return model.eval()


def tokens() -> Tensor:
    return torch.randint(5, 61, (4, 9), generator=torch.Generator().manual_seed(1))


def our_answer(model: Model, kind: str) -> Tensor:
    head, batch = KINDS[kind][0], Batch(tokens())
    hidden = model(batch)
    if head is None:
        return hidden
    every = torch.arange(36) if head in ("tagging", "span") else torch.arange(4) * 9
    return model.answer(head, hidden, every)


def their_answer(model: nn.Module, kind: str) -> Tensor:
    out = model(input_ids=tokens())
    if "Question" in kind:
        return torch.stack([out.start_logits, out.end_logits], -1).flatten(0, 1)
    found = out.last_hidden_state if kind == "BertModel" else out.logits
    return found.flatten(0, 1) if kind == "BertForTokenClassification" else found


@pytest.mark.parametrize("target", list(TARGETS), ids=",".join)
def test_peft_opens_what_we_save(kind: str, base: Path, target: tuple[str, ...], tmp_path: Path) -> None:
    ours = ours_of(base)
    before = our_answer(ours, kind)
    prepare(ours, Transfer(strategy="lora", rank=3, alpha=6.0, target=target))
    expected = our_answer(learned(ours), kind)
    assert not torch.allclose(expected, before, atol=1e-2)
    save_adapter(tmp_path / "adapter", ours, base=base)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # missing or unexpected keys are warnings there
        warnings.simplefilter("ignore", FutureWarning)
        theirs = peft.PeftModel.from_pretrained(theirs_of(kind, base), tmp_path / "adapter").eval()
    torch.testing.assert_close(their_answer(theirs, kind), expected, atol=1e-4, rtol=1e-4)
    assert theirs.peft_config["default"].base_model_name_or_path == str(base)
    stored = load_file(tmp_path / "adapter" / WEIGHTS)
    names = peft.get_peft_model_state_dict(theirs)
    assert set(stored) == set(names)
    again = theirs.merge_and_unload()
    torch.testing.assert_close(their_answer(again, kind), our_answer(merged(ours), kind), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("target", list(TARGETS), ids=",".join)
def test_we_open_what_peft_saves(kind: str, base: Path, target: tuple[str, ...], tmp_path: Path) -> None:
    _, task, whole = KINDS[kind]
    config = peft.LoraConfig(
        r=3, lora_alpha=6, lora_dropout=0.1, target_modules=TARGETS[target], modules_to_save=whole, task_type=task
    )
    theirs = peft.get_peft_model(theirs_of(kind, base), config)
    torch.manual_seed(2)
    with torch.no_grad():
        for p in theirs.parameters():
            if p.requires_grad:
                p.normal_(std=0.3)
    theirs.eval().save_pretrained(tmp_path / "adapter")
    ours = ours_of(base)
    found = load_adapter(tmp_path / "adapter", ours)
    assert found == Transfer(strategy="lora", rank=3, alpha=6.0, lora_dropout=0.1, target=tuple(sorted(target)))
    expected = their_answer(theirs, kind)
    torch.testing.assert_close(our_answer(ours, kind), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(our_answer(merged(ours), kind), expected, atol=1e-4, rtol=1e-4)

    ours_of_them = {theirs: name for name, theirs in huggingface.names(ours).items()}
    our_answer(ours, kind).square().sum().backward()
    their_answer(theirs, kind).square().sum().backward()
    compared = 0
    for name, p in theirs.named_parameters():
        if ".lora_" in name:
            module, _, part = name.removeprefix("base_model.model.").partition(".lora_")
            mine = ours.get_parameter(ours_of_them[f"{module}.{part[0]}"])
            torch.testing.assert_close(mine.grad, p.grad, atol=1e-3, rtol=1e-3)
            compared += 1
    assert compared == 2 * len(adapters(ours)) == 2 * 2 * len(target)
    assert all(part.weight.grad is None for part in adapters(ours).values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved adapter of a classifier."""
    save_adapter(tmp_path / "adapter", tuned())
    return tmp_path / "adapter"


def plain(**changes: Any) -> Model:
    from unmask.models.bert import Bert

    config = Bert(vocabulary=50, dim=16, layers=2, heads=2, hidden=32, length=16).replace(**changes)
    return config.build(as_heads({"classification": 3}), seed=0).eval()


def tuned() -> Model:
    model = plain()
    prepare(model, Transfer(strategy="lora", rank=2))
    return learned(model)


def test_an_adapter_comes_back_as_it_was(folder: Path) -> None:
    expected, found = tuned(), plain()
    load_adapter(folder, found)
    assert not found.training
    for (name, p), (again, q) in zip(expected.named_parameters(), found.named_parameters(), strict=True):
        assert name == again
        assert torch.equal(p, q)
        assert p.requires_grad == q.requires_grad, "training can go on"
    assert sorted(p.name for p in folder.iterdir()) == [CONFIG, WEIGHTS, "manifest.json"]
    values = json.loads((folder / CONFIG).read_text())
    assert values["modules_to_save"] == ["bert.pooler", "classifier"]
    assert values["task_type"] == "SEQ_CLS"
    assert "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight" in load_file(folder / WEIGHTS)


def test_only_a_model_with_adapters_and_heads_of_its_own_is_saved(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="has no adapters"):
        save_adapter(tmp_path / "new", plain())
    masked = plain().config.build(as_heads({"mlm": 0}))
    prepare(masked, Transfer(strategy="lora"))
    with pytest.raises(UnmaskError, match="shares weights with the trunk; merge"):
        save_adapter(tmp_path / "new", masked)
    with pytest.raises(UnmaskError, match="merge them into its weights"):
        huggingface.save(tmp_path / "model", tuned())
    assert not (tmp_path / "model").exists()
    huggingface.save(tmp_path / "model", plain())
    with pytest.raises(UnmaskError, match="holds a model"):
        save_adapter(tmp_path / "model", tuned())
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_no_adapter(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match=r"is not an adapter: it has no adapter_config\.json"):
        load_adapter(tmp_path, plain())
    with pytest.raises(UnmaskError, match="has adapters already"):
        load_adapter(folder, tuned())
    (folder / "manifest.json").unlink()
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(UnmaskError, match=r"no adapter_model\.safetensors.*pickle .* never opened"):
        load_adapter(folder, plain())


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_damage_is_found(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-7])
    with pytest.raises(UnmaskError, match=f"{name} does not match its checksum"):
        load_adapter(folder, plain())
    (folder / "manifest.json").unlink()
    with pytest.raises(UnmaskError, match=f"{name} is (damaged|not valid JSON)"):
        load_adapter(folder, plain())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "has the type 'IA3'; only LORA"),
        ({"use_dora": True}, "use_dora = True is not part of plain LoRA"),
        ({"use_rslora": True}, "use_rslora = True"),
        ({"rank_pattern": {"query": 4}}, "rank_pattern = "),
        ({"init_lora_weights": "pissa"}, "init_lora_weights = 'pissa'"),
        ({"bias": "all"}, "has biases"),
        ({"r": 0}, "r must be a whole number above 0"),
        ({"lora_alpha": None}, "lora_alpha a number above 0"),
        ({"r": 5}, r"do not fit its weights \[16, 16\] and the rank 5"),
        ({"something_new": 1}, "something_new = 1 is not part"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_kinds_of_adapter_are_not_taken_for_lora(folder: Path, changes: dict[str, Any], message: str) -> None:
    (folder / "manifest.json").unlink()
    values = json.loads((folder / CONFIG).read_text()) | changes
    (folder / CONFIG).write_text(json.dumps(values))
    with pytest.raises(UnmaskError, match=message):
        load_adapter(folder, plain())


FIRST = "base_model.model.bert.encoder.layer.0.attention.self.query."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({FIRST + "lora_A.weight": None}, "only one of lora_A and lora_B"),
        ({FIRST + "lora_A.weight": torch.zeros(2, 9)}, "is this the base model of the adapter"),
        ({FIRST + "lora_B.weight": torch.zeros(16, 3)}, "is this the base model of the adapter"),
        ({"base_model.model.score.weight": torch.zeros(1)}, r"'base_model\.model\.score\.weight' has no place"),
        ({FIRST.replace("layer.0", "layer.7") + "lora_A.weight": torch.zeros(2, 16)}, "has no place in this model"),
        ({"base_model.model.classifier.weight": torch.zeros(5, 16)}, r"\[5, 16\], not \[3, 16\] as in this model"),
        ({"base_model.model.bert.embeddings.LayerNorm.lora_A.weight": torch.zeros(2, 16)}, "is no linear layer"),
    ],
    ids=range(7),
)
def test_what_does_not_fit_leaves_the_model_as_it_was(
    folder: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    (folder / "manifest.json").unlink()
    tensors: dict[str, Tensor | None] = {**load_file(folder / WEIGHTS), **changes}
    save_file({name: x for name, x in tensors.items() if x is not None}, folder / WEIGHTS)
    model = plain()
    before = {name: p.clone() for name, p in model.named_parameters()}
    with pytest.raises(UnmaskError, match=message):
        load_adapter(folder, model)
    assert not adapters(model)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_an_adapter_without_lora_weights_is_refused(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    whole = {name: x for name, x in load_file(folder / WEIGHTS).items() if "lora_" not in name}
    save_file(whole, folder / WEIGHTS)
    with pytest.raises(UnmaskError, match="holds no LoRA weights"):
        load_adapter(folder, plain())
    shutil.rmtree(folder)
