"""InferenceStack answers as the model it was made from, in float32 and in bfloat16; special models stay as they are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from unmask.data import collate
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.kernels import processor
from unmask.models.albert import Albert
from unmask.models.bert import Bert
from unmask.models.cct import SIZES as CCT_SIZES
from unmask.models.cct import Cct
from unmask.models.deit import Deit
from unmask.models.elmo import Elmo
from unmask.models.gpt import Gpt2
from unmask.models.inference_encoder import InferenceStack, inference_layout
from unmask.models.mobilebert import MobileBert
from unmask.models.modernbert import ModernBert
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.resnet import SIZES as RESNET_SIZES
from unmask.models.resnet import ResNet
from unmask.models.swin import SIZES as SWIN_SIZES
from unmask.models.swin import Swin
from unmask.models.transformer_xl import TransformerXl
from unmask.models.vit import Vit
from unmask.nn.lora import LoRALinear
from unmask.types import Example, Head, Kind

SIZE = {"vocabulary": 60, "dim": 32, "layers": 3, "heads": 4, "hidden": 64, "length": 40}

LOCAL = partial(ModernBert, local=6, pooling="mean")  # rows are longer than its windows


def build(page=Bert, heads=None, **fields):
    model = (
        page(**{**SIZE, **fields}).build(as_heads({"mlm": 0, "classification": 3}) if heads is None else heads).eval()
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


def batches():
    generator = torch.Generator().manual_seed(0)
    examples = [Example(torch.randint(5, 60, (n,), generator=generator).numpy()) for n in (3, 9, 17, 9, 1)]
    yield collate.pad(examples, 0, multiple=1)
    yield collate.pack(examples, 20, 0)
    yield collate.pad(examples[:1], 0, multiple=1)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu"])
@pytest.mark.parametrize("page", [Bert, Albert, LOCAL])
def test_the_same_numbers_in_float32(page, activation):
    model = build(page, activation=activation)
    quick = inference_layout(model)
    assert isinstance(quick.stack, InferenceStack)
    for batch in batches():
        with torch.inference_mode():
            seen = slice(None) if batch.documents is None else batch.documents > 0
            torch.testing.assert_close(quick(batch)[seen], model(batch)[seen], atol=2e-5, rtol=1e-5)
            wanted = model.answer("classification", model(batch), batch.starts, batch)
            torch.testing.assert_close(
                quick.answer("classification", quick(batch), batch.starts, batch), wanted, atol=2e-5, rtol=1e-5
            )


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("page", [Bert, Albert, LOCAL])
def test_nearly_the_same_in_bfloat16(page):
    model = build(page)
    quick = inference_layout(model, "bf16")
    for batch in batches():
        with torch.inference_mode():
            found, wanted = quick(batch), model(batch)
        assert found.dtype == torch.float32
        assert not torch.equal(found, wanted)
        seen = slice(None) if batch.documents is None else batch.documents > 0
        assert torch.cosine_similarity(found, wanted, dim=-1)[seen].min() > 0.999


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize(("precision", "least"), [("fp32", 0.999999), ("bf16", 0.999)])
def test_pictures_are_answered_by_the_layout(precision, least):
    """Patches have pre-packed weights too; 6 pictures are enough for rows to be padded."""
    page = Vit(size=56, patch=8, dim=32, layers=2, heads=4, hidden=64, std=0.2)
    model = page.build({"image_classification": Head("sequence", 3)}, seed=0).eval()
    quick = inference_layout(model, precision)
    assert isinstance(quick.stack, InferenceStack)
    assert not list(quick.embedding.token.signal.parameters())
    assert [id(p) for p in quick.embedding.position.parameters()] == [
        id(p) for p in model.embedding.position.parameters()
    ]
    pixels = np.random.default_rng(0).normal(size=(6, 3, 56, 56)).astype(np.float32)
    processor = ImageProcessor(size=56, patch=8)
    batch = collate.pad([processor.patches(one) for one in pixels], Kind.PADDING, multiple=1)
    with torch.inference_mode():
        found, wanted = quick(batch), model(batch)
    assert found.dtype == torch.float32
    assert torch.cosine_similarity(found, wanted, dim=-1).min() > least


PICTURED = {
    "deit": Deit(size=32, patch=8, dim=32, layers=2, heads=4, hidden=64),
    "cct": Cct(**CCT_SIZES["2/3x2"]),
    "swin": Swin(**SWIN_SIZES["cpu"]),
    "resnet": ResNet(**RESNET_SIZES["cpu"]),
}


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("name", PICTURED)
def test_other_models_of_pictures_answer_nearly_the_same_in_bfloat16(name):
    """Only products are in bfloat16: hidden states, and what heads read, stay in float32."""
    model = PICTURED[name].build({"image_classification": Head("sequence", 3)}, seed=0).eval()
    processor = ImageProcessor(size=32).for_model(model.config)
    pixels = np.random.default_rng(0).normal(size=(6, 3, 32, 32)).astype(np.float32)
    batch = collate.pad([processor.patches(one) for one in pixels], Kind.PADDING, multiple=1)
    quick = inference_layout(model, "bf16")
    with torch.inference_mode():
        hidden, wanted = quick(batch), model(batch)
        answers = [
            one.answer("image_classification", x, batch.starts, batch) for one, x in ((quick, hidden), (model, wanted))
        ]
    assert hidden.dtype == torch.float32
    assert torch.cosine_similarity(hidden, wanted, dim=-1).min() > 0.99
    torch.testing.assert_close(*answers, atol=0.02, rtol=0.02)


def test_the_layout_leaves_its_input_as_it_is():
    model = build()
    x_BTD = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    before = x_BTD.clone()
    inference_layout(model).stack(x_BTD)
    assert torch.equal(x_BTD, before)


OTHERS = {
    "elmo": Elmo(
        vocabulary=60, continues=30, characters=8, widths=(1, 2), filters=(8, 8), dim=16, layers=2, hidden=24, task=16
    ),
    "gpt2": Gpt2().replace(**SIZE),
    "mobilebert": MobileBert(**SIZE, factor=16, bottleneck=16, feedforwards=2),
    "recurrent": RecurrentNetwork(vocabulary=60, dim=16, hidden=16),
    "transformer-xl": TransformerXl(vocabulary=60, dim=32, heads=4, hidden=64, layers=2, memory=6),
}


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("name", OTHERS)
def test_other_models_answer_nearly_the_same_in_bfloat16(name):
    model = OTHERS[name].build(as_heads({"classification": 3}), seed=1).eval()
    quick = inference_layout(model, "bf16")
    assert quick is not model
    for batch in batches():
        with torch.inference_mode():
            hidden, wanted = quick(batch), model(batch)
            answers = [
                one.answer("classification", x, batch.starts, batch) for one, x in ((quick, hidden), (model, wanted))
            ]
        seen = slice(None) if batch.documents is None else batch.documents > 0
        off, all_of_it = (hidden - wanted)[seen].norm(dim=-1), wanted[seen].norm(dim=-1)
        assert (off <= 0.05 * all_of_it).all(), "where an ELMo begins no word, both are zero"
        torch.testing.assert_close(*answers, atol=0.02, rtol=0)


def test_nothing_flows_back():
    x = torch.ones(1, 2, SIZE["dim"], requires_grad=True)
    inference_layout(build()).stack(x).sum().backward()
    assert x.grad is None


def test_the_model_keeps_its_own_stack():
    model = build()
    inference_layout(model)
    assert len(model.stack.blocks) == SIZE["layers"]


def test_the_model_keeps_its_mode():
    model = build().train()
    quick = inference_layout(model)
    assert all(part.training for part in model.modules())
    quick.eval()
    assert not model.embedding.training  # for it is shared


def test_the_numbers_are_those_of_the_model():
    model = build().double()
    for batch in batches():
        seen = slice(None) if batch.documents is None else batch.documents > 0
        torch.testing.assert_close(
            inference_layout(model)(batch)[seen], model(batch)[seen].detach(), atol=1e-12, rtol=1e-10
        )


@pytest.mark.usefixtures("by_processor")
@pytest.mark.parametrize(("has", "numbers"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_what_the_processor_multiplies_in(has, numbers, monkeypatch):
    monkeypatch.setattr(processor, "abilities", lambda: {"architecture": "x86_64", "avx512_bf16": has})
    assert inference_layout(build(), "auto").stack.dtype is numbers
    gpt = build(Gpt2, as_heads({"next": 0}))
    assert (inference_layout(gpt, "auto") is gpt) is not has


def test_models_with_other_parts_answer_themselves():
    recurrent = RecurrentNetwork(vocabulary=60, dim=16, hidden=16).build(seed=0).eval()
    assert inference_layout(recurrent) is recurrent
    adapted = build()
    attention = adapted.stack.blocks[0].attention.f
    attention.query = LoRALinear(attention.query, rank=2)
    assert inference_layout(adapted) is adapted


def test_too_long_a_sequence_is_refused_as_by_the_model():
    from unmask.types import Batch

    with pytest.raises(UnmaskError, match="40 positions"):
        inference_layout(build())(Batch(torch.ones(1, 41, dtype=torch.int64)))
