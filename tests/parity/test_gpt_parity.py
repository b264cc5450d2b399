"""GPT and GPT-2 folders against `transformers`: hidden states, logits, losses, gradients and texts, both ways."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from sides import assert_same_gradients, assert_same_states, read
from torch import Tensor

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.generate import Blocking, Limits, Search, generate
from unmask.huggingface.config import read_config
from unmask.huggingface.layout import fold, unfold
from unmask.huggingface.table import as_heads
from unmask.huggingface.tables.gpt import GPT2
from unmask.models.gpt import SIZES, Gpt, Gpt2
from unmask.types import Batch

GOLDEN = Path(__file__).parents[1] / "golden"
V, END = 61, 3
SMALL = {"vocab_size": V, "n_embd": 24, "n_layer": 3, "n_head": 3, "n_positions": 34, "pad_token_id": 0}
ARCHITECTURES = [
    "GPT2LMHeadModel",
    "GPT2ForSequenceClassification",
    "GPT2ForTokenClassification",
    "GPT2ForQuestionAnswering",
    "GPT2Model",
    "OpenAIGPTLMHeadModel",
    "OpenAIGPTForSequenceClassification",
    "OpenAIGPTModel",
]


def reference(name: str, **changes: object) -> torch.nn.Module:
    """A tiny random reference model whose weights are large enough for a mistake to show."""
    labels = 2 if name.endswith("QuestionAnswering") else 3
    values = {**SMALL, "bos_token_id": 2, "eos_token_id": END, "num_labels": labels, **changes}
    config = (transformers.GPT2Config if name.startswith("GPT2") else transformers.OpenAIGPTConfig)(**values)
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def ragged() -> tuple[Batch, dict[str, Tensor], Tensor]:
    """Three sequences of different lengths as our batch and as theirs, and the flat places that are not padding."""
    tokens = torch.randint(4, V, (3, 17), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(17) < torch.tensor([17, 11, 5])[:, None]).long()
    tokens = torch.where(mask.bool(), tokens, 0)
    starts = torch.arange(3) * 17
    places = mask.flatten().nonzero().flatten()
    return Batch(tokens, documents=mask, starts=starts), {"input_ids": tokens, "attention_mask": mask}, places


def place_of(head: str, batch: Batch, places: Tensor) -> Tensor:
    return batch.starts if head == "classification" else places


def their_logits(head: str, output: object, places: Tensor) -> Tensor:
    if head == "span":
        return torch.stack([output.start_logits, output.end_logits], -1).flatten(0, 1)[places]
    return output.logits if head == "classification" else output.logits.flatten(0, 1)[places]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_folder_of_theirs_gives_the_same_numbers_here(name, tmp_path):
    theirs = reference(name)
    theirs.save_pretrained(tmp_path)
    loaded = huggingface.load(tmp_path)
    batch, inputs, places = ragged()
    assert not loaded.new
    assert not loaded.dropped
    with torch.no_grad():
        states: list[Tensor] = []
        for block in loaded.model.stack.blocks:
            block.register_forward_hook(lambda _, __, out: states.append(out))
        hidden = loaded.model(batch)
        output = theirs(**inputs, output_hidden_states=True)
    states[-1] = hidden[..., :24]  # in GPT-2, that after the last norm
    assert hidden.std() > 0.1  # degenerate outputs would agree too
    for ours, other in zip(states, output.hidden_states[1:], strict=True):
        torch.testing.assert_close(ours.flatten(0, 1)[places], other.flatten(0, 1)[places], atol=1e-5, rtol=1e-5)
    expected = {"LMHeadModel": "next", "SequenceClassification": "classification", "TokenClassification": "tagging"}
    heads = [head for end, head in expected.items() if name.endswith(end)]
    assert list(loaded.model.heads) == (["span"] if name.endswith("Answering") else heads)
    for head in loaded.model.heads:
        answers = loaded.model.answer(head, hidden, place_of(head, batch, places), batch)
        assert answers.std() > 0.05
        torch.testing.assert_close(answers, their_logits(head, output, places), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in ARCHITECTURES if not n.endswith("GPT2Model") and n != "OpenAIGPTModel"])
@pytest.mark.parametrize(("train", "drops"), [(False, False), (True, False), (True, True)])
def test_states_losses_and_gradients_are_theirs(name, train, drops, tmp_path, fading):
    # Of all classifiers, theirs drops before that of tags alone.
    rates = {"resid_pdrop": 0.3, "embd_pdrop": 0.2, "attn_pdrop": 0.4, "classifier_dropout": 0.1}
    if not drops:
        rates = dict.fromkeys(rates, 0.0)
    theirs = reference(name, **rates, attn_implementation="eager" if drops else None)
    theirs.save_pretrained(tmp_path)
    ours, theirs = huggingface.load(tmp_path).model.double(), theirs.double()  # gradients of a millionth must show
    theirs.train(train)
    ours.train(train)
    batch, inputs, places = ragged()
    (head,) = ours.heads
    at = place_of(head, batch, places)
    output = theirs(**inputs, output_hidden_states=True)
    hidden, states = read(ours, batch)
    assert_same_states(states, output.hidden_states, places)
    answers, expected = ours.answer(head, hidden, at, batch), their_logits(head, output, at)
    labels = torch.arange(len(answers)) % answers.shape[-1]
    loss, their_loss = F.cross_entropy(answers, labels), F.cross_entropy(expected, labels)
    torch.testing.assert_close(loss, their_loss, atol=1e-9, rtol=1e-9)
    loss.backward()
    their_loss.backward()
    gradients = {k: p.grad for k, p in theirs.named_parameters() if p.grad is not None}
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(parameter.grad)
    assert_same_gradients(huggingface.export(ours), gradients)  # ours as they lie in a folder


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "GPT2ForTokenClassification"])
def test_dropout_stands_where_theirs_does(name, tmp_path):
    """With a rate of nearly one, what is left of the input tells the sites apart: all is zero behind each of them."""
    for site in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "classifier_dropout": 0.0, site: 1.0}
        theirs = reference(name, **rates).train()
        theirs.save_pretrained(tmp_path / site)
        ours = huggingface.load(tmp_path / site).model.train()
        batch, inputs, places = ragged()
        (head,) = ours.heads
        with torch.no_grad():
            answers, expected = (
                ours.answer(head, ours(batch), places, batch),
                their_logits(head, theirs(**inputs), places),
            )
        torch.testing.assert_close(answers, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_folder_of_ours_opens_there_and_is_theirs_key_for_key(name, tmp_path):
    theirs = reference(name)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = huggingface.load(tmp_path / "theirs")
    huggingface.save(tmp_path / "ours", loaded.model, labels=loaded.labels)
    a, b = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "ours"))
    assert set(a) == set(b)
    for key in a:
        assert torch.equal(a[key], b[key]), key
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, info = getattr(transformers, name).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    _, inputs, _ = ragged()
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(**inputs)[0], theirs(**inputs)[0])
    assert transformers.AutoConfig.from_pretrained(tmp_path / "ours").architectures == [name]


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OpenAIGPTLMHeadModel"])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(("penalty", "n"), [(1.0, 0), (1.6, 0), (1.0, 1), (1.0, 2), (1.3, 3)])
def test_texts_are_theirs(name, beams, penalty, n, tmp_path):
    """Beginnings of different lengths, side by side here and each alone there; what is blocked looks at them, too."""
    theirs = reference(name)
    theirs.save_pretrained(tmp_path)
    ours = huggingface.load(tmp_path).model
    batch, inputs, _ = ragged()
    blocking = Blocking(repetition_penalty=penalty, no_repeat_ngram=n)
    search = Search(beam_size=beams, limits=Limits(max_length=9), blocking=blocking)
    found = generate(ours, batch, search, end=END)
    for row, (best,) in enumerate(found):
        length = int(inputs["attention_mask"][row].sum())
        with torch.no_grad():
            (text,) = theirs.generate(
                inputs["input_ids"][row : row + 1, :length],
                attention_mask=torch.ones(1, length, dtype=torch.long),
                max_new_tokens=9,
                num_beams=beams,
                repetition_penalty=penalty,
                no_repeat_ngram_size=n,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=END,
            )
        written = [t for t in text[length:].tolist() if t not in (0, END)]
        assert list(best.tokens) == written


def test_the_oldest_folders_open_without_their_prefix_and_with_their_masks(tmp_path):
    """As `gpt2` itself is published: bare names, the causal mask as a buffer, fields of old and no padding."""
    theirs = reference("GPT2LMHeadModel", pad_token_id=None, activation_function="gelu_new")
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors = {key.removeprefix("transformer."): tensor for key, tensor in tensors.items()}
    for i in range(3):
        tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, 34, 34).tril()
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((tmp_path / "config.json").read_text())
    values |= {"n_ctx": 34, "summary_type": "cls_index", "summary_use_proj": True, "pad_token_id": None}
    (tmp_path / "config.json").write_text(json.dumps(values))
    model = huggingface.load(tmp_path).model
    tokens = torch.arange(5)[None]
    with torch.no_grad():
        answers = model.answer("next", model(Batch(tokens)), torch.arange(5))
        torch.testing.assert_close(answers, theirs(tokens).logits[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("ids", [{}, {"eos_token_id": [3, 5]}, {"bos_token_id": None, "pad_token_id": None}], ids=str)
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OpenAIGPTForSequenceClassification"])
def test_the_ids_that_begin_end_and_fill_outlast_a_folder_without_a_tokenizer(name, ids, tmp_path):
    reference(name, **ids).save_pretrained(tmp_path / "theirs")
    huggingface.save(tmp_path / "ours", huggingface.load(tmp_path / "theirs").model)
    before, after = (transformers.AutoConfig.from_pretrained(tmp_path / side) for side in ("theirs", "ours"))
    for kind in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert (
            getattr(after, kind)
            == getattr(before, kind)
            == {**SMALL, "bos_token_id": 2, "eos_token_id": 3, **ids}[kind]
        )


@pytest.mark.parametrize("kind", ["gpt2", "openai-gpt"])
def test_fields_that_are_absent_mean_the_defaults_of_transformers(kind, tmp_path):
    transformers.CONFIG_MAPPING[kind]().save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    table = huggingface.TABLES[kind]
    whole = read_config(table, values, tmp_path)
    assert (whole.end, whole.padding) == ((50_256, None) if kind == "gpt2" else (None, None))
    for name in [name for name in values if name in table.fields]:
        assert read_config(table, {k: v for k, v in values.items() if k != name}, tmp_path) == whole, name
        if isinstance(values[name], int | float) and not name.endswith("_token_id"):
            with pytest.raises(UnmaskError, match=f"config.json: {name} must be a .*number, not None"):
                read_config(table, {**values, name: None}, tmp_path)


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        *(("OpenAIGPTLMHeadModel", {"afn": one}) for one in ("gelu", "relu", "silu", "swish")),
        *(("GPT2LMHeadModel", {"activation_function": one}) for one in ("gelu", "gelu_python", "gelu_fast", "swish")),
    ],
    ids=str,
)
def test_activations_are_theirs(name, activation, tmp_path):
    """GPT's "gelu" is the form by a tanh, GPT-2's is not."""
    theirs = reference(name, **activation)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs").model
    batch, inputs, places = ragged()
    huggingface.save(tmp_path / "ours", ours)
    again = getattr(transformers, name).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        answers = ours.answer("next", ours(batch), places)
        for other in (theirs, again):
            torch.testing.assert_close(answers, their_logits("next", other(**inputs), places), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "GPT2Model"])
def test_the_head_that_has_no_weights_is_found_where_config_json_names_no_class(name, tmp_path):
    reference(name).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in values.items() if k != "architectures"}))
    assert list(huggingface.load(tmp_path).model.heads) == (["next"] if "LMHead" in name else [])


def test_what_gpt2_folders_may_ask_for_and_this_does_not_do_is_refused(tmp_path):
    reference("GPT2LMHeadModel").save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "scale_attn_by_inverse_layer_idx": True}))
    with pytest.raises(UnmaskError, match="scale_attn_by_inverse_layer_idx"):
        huggingface.load(tmp_path)


def test_a_packed_map_that_does_not_come_apart_is_refused(tmp_path):
    reference("GPT2LMHeadModel").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["transformer.h.1.attn.c_attn.weight"] = torch.zeros(24, 70)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnmaskError, match=r"c_attn\.weight.*\[70, 24\].*query, key, value"):
        huggingface.load(tmp_path)


def test_a_part_of_a_packed_map_beside_it_is_refused(tmp_path):
    reference("GPT2LMHeadModel").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["transformer.h.1.attn.c_attn.query.bias"] = torch.zeros(24)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnmaskError, match=r"query\.bias' and .*c_attn\.bias"):
        huggingface.load(tmp_path)


def test_folding_is_the_inverse_of_unfolding():
    tensors = {
        "transformer.wte.weight": torch.randn(7, 4),
        "transformer.h.0.attn.c_attn.weight": torch.randn(4, 12),
        "transformer.h.0.attn.c_attn.bias": torch.randn(12),
        "transformer.h.11.mlp.c_fc.weight": torch.randn(4, 16),
    }
    apart = unfold(GPT2, tensors)
    assert (
        apart["transformer.h.0.attn.c_attn.key.bias"].tolist()
        == tensors["transformer.h.0.attn.c_attn.bias"][4:8].tolist()
    )
    together = fold(GPT2, apart)
    assert together.keys() == tensors.keys()
    assert all(torch.equal(together[key], tensors[key]) for key in tensors)


def test_fields_sizes_and_initialisation_are_the_published_ones():
    for config, published in ((Gpt(), transformers.OpenAIGPTConfig()), (Gpt2(), transformers.GPT2Config())):
        values = {**published.to_dict(), "classifier_dropout": None}
        for theirs, ours in huggingface.TABLES[published.model_type].fields.items():
            assert theirs.endswith("_token_id") or values[theirs] == getattr(config, ours), theirs
    # The sizes that the weights have, published as 117M, 345M, 762M and 1542M.
    counts = {"base": 124_439_808, "medium": 354_823_168, "large": 774_030_080, "xl": 1_557_611_200}
    for size, expected in counts.items():
        with torch.device("meta"):
            assert Gpt2().replace(**SIZES[size]).build(seed=None).parameters_total == expected
    model = Gpt2(vocabulary=2_000, dim=128, layers=8, heads=2).build()
    block = model.stack.blocks[3]
    assert float(block.feedforward.f.up.weight.detach().std()) == pytest.approx(0.02, rel=0.02)
    for last in (block.attention.f.output, block.feedforward.f.down):
        assert float(last.weight.detach().std()) == pytest.approx(0.02 / 4, rel=0.02)
    assert float(block.feedforward.f.down.bias.detach().abs().max()) == 0
    plain = Gpt(vocabulary=2_000, dim=128, layers=8, heads=2).build()
    assert float(plain.stack.blocks[3].feedforward.f.down.weight.detach().std()) == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize(("config", "name"), [(Gpt(), "gpt"), (Gpt2(), "gpt2")])
def test_the_tree_of_parameters_is_the_golden_one(config, name):
    """Ours, with their shapes, and how a folder names and shapes them; delete the file after a change that is meant."""
    model = config.replace(vocabulary=11, dim=8, layers=2, heads=2, length=6).build(
        as_heads({"next": 0, "classification": 3})
    )
    tree = {
        "ours": {key: list(p.shape) for key, p in model.named_parameters()},
        "theirs": {key: list(tensor.shape) for key, tensor in huggingface.export(model).items()},
    }
    path = GOLDEN / f"tree-{name}.json"
    if not path.exists():
        path.write_text(json.dumps(tree, indent=1) + "\n")
        pytest.fail(f"there was no {path.name}; it has been written now, look at it and run again")
    assert tree == json.loads(path.read_text())
