"""CCT beside the same layers written out with PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.cct import SIZES, Cct
from unmask.types import Head

HEADS = {"image_classification": Head("sequence", 3)}


def literal(model, pixels):
    """The logits [M, 3] of pictures [M, C, S, S] (Hassani et al. 2021, sections 3.2 and 3.3)."""
    page, state = model.config, model.state_dict()
    x = pixels
    for i in range(page.convolutions):
        x = F.conv2d(x, state[f"embedding.token.signal.layers.{i}.0.weight"], padding=page.kernel // 2)
        x = F.max_pool2d(F.relu(x), 3, 2, 1)
    x = x.flatten(2).transpose(1, 2) + state["embedding.position.table.weight"]
    for i in range(page.layers):
        own = {key.removeprefix(f"stack.blocks.{i}."): value for key, value in state.items()}

        def linear(name, x, own=own):
            return F.linear(x, own[f"{name}.weight"], own[f"{name}.bias"])

        def norm(name, x, own=own):
            return F.layer_norm(x, (page.dim,), own[f"{name}.weight"], own[f"{name}.bias"], page.eps)

        y = norm("attention.before", x)
        q, k, v = (
            linear(f"attention.f.{part}", y).unflatten(-1, (page.heads, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + linear("attention.f.output", mixed)
        x = x + linear("feedforward.f.down", F.gelu(linear("feedforward.f.up", norm("feedforward.before", x))))
    x = F.layer_norm(x, (page.dim,), state["stack.norm.weight"], state["stack.norm.bias"], page.eps)
    weights = F.linear(x, state["pooler.weight"], state["pooler.bias"]).softmax(1)
    pooled = (weights * x).sum(1)
    return F.linear(pooled, *(state[f"heads.image_classification.output.{part}"] for part in ("weight", "bias")))


@pytest.mark.parametrize(("convolutions", "kernel", "size"), [(1, 3, 8), (2, 3, 12), (2, 5, 16)])
def test_logits_are_those_of_the_layers_written_out(convolutions, kernel, size):
    page = Cct(size=size, dim=16, layers=2, heads=2, hidden=24, convolutions=convolutions, kernel=kernel, std=0.2)
    model = page.build(HEADS, seed=1).eval()
    processor = ImageProcessor(size=size).for_model(page)
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (size, size, 3), dtype=np.uint8) for _ in range(4)]
    batch = processor.collate([processor.example(one) for one in pictures])
    assert batch.tokens.shape == (4, page.grid**2)
    pixels = torch.from_numpy(np.stack([processor.pixels(one) for one in pictures]))
    wanted = literal(model, pixels)
    with torch.no_grad():
        found = model.answer("image_classification", model(batch), batch.starts, batch)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert (wanted.std(0) > 1e-4).all()


def test_the_published_size():
    """Hassani et al. 2021, table 1: CCT-2/3x2 has 0.28 M parameters and CCT-7/3x1 has 3.76 M, with 10 classes."""
    heads = {"image_classification": Head("sequence", 10)}
    for name, millions in (("2/3x2", 0.28), ("7/3x1", 3.76)):
        assert Cct(**SIZES[name]).build(heads, seed=None).parameters_total / 1e6 == pytest.approx(millions, abs=0.02)


def test_sizes_that_do_not_go_together():
    with pytest.raises(UnmaskError, match="at least one convolution, with an odd kernel"):
        Cct(kernel=4)
    with pytest.raises(UnmaskError, match="cannot be cut into patches of 4"):
        Cct(size=30, convolutions=2)
