"""The product quantiser beside that of transformers, and by its equations."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import Wav2Vec2Config
from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2GumbelVectorQuantizer

from unmask.errors import UnmaskError
from unmask.nn.quantiser import ProductQuantiser, QuantisedHead, perplexity

C, G, V, W = 12, 2, 7, 6


@pytest.fixture
def pair() -> tuple[ProductQuantiser, Wav2Vec2GumbelVectorQuantizer]:
    """Ours and theirs, with the same weights."""
    ours = ProductQuantiser(C, G, V, W)
    ours.initialise(torch.Generator().manual_seed(0))
    config = Wav2Vec2Config(
        conv_dim=(C,), conv_kernel=(2,), conv_stride=(2,), num_feat_extract_layers=1, codevector_dim=W,
        num_codevector_groups=G, num_codevectors_per_group=V,
    )  # fmt: skip
    theirs = Wav2Vec2GumbelVectorQuantizer(config)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.fixture
def frames_MC() -> torch.Tensor:
    return torch.randn(40, C, generator=torch.Generator().manual_seed(1)) / C**0.5


def test_evaluation_is_that_of_transformers(pair, frames_MC):
    ours, theirs = (one.eval() for one in pair)
    found = ours(frames_MC)
    vectors, total = theirs(frames_MC[None])
    torch.testing.assert_close(found.vectors, vectors[0])
    torch.testing.assert_close(found.perplexity.sum(), total)


def test_training_is_that_of_transformers_with_the_same_noise(pair, frames_MC):
    (ours, theirs), temperature = pair, 1.7
    theirs.temperature = temperature
    gradients = []
    for quantise in (lambda x: ours(x, temperature)[::2], lambda x: theirs(x[None])):
        x = frames_MC.clone().requires_grad_()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            vectors, total = quantise(x)
        loss = vectors.reshape(-1, W).square().sum() + 3 * total.sum()
        module = ours if not gradients else theirs
        gradients.append((vectors.reshape(-1, W), *torch.autograd.grad(loss, [x, *module.parameters()])))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_an_entry_is_drawn_as_often_as_its_softmax_says():
    quantiser = ProductQuantiser(1, 1, 3, 1)
    with torch.no_grad():
        quantiser.weight_proj.weight.zero_()
        quantiser.weight_proj.bias.copy_(torch.tensor([0.5, 0.3, 0.2]).log())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        codes = quantiser(torch.zeros(20_000, 1), 0.5).codes
    shares = torch.bincount(codes[:, 0], minlength=3) / len(codes)
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.015, rtol=0)


def test_perplexity_is_exp_of_the_entropy_of_the_mean():
    shares_MGV = torch.tensor([[[1.0, 0, 0]], [[0, 1.0, 0]], [[0, 1.0, 0]], [[0, 1.0, 0]]])
    assert perplexity(shares_MGV).item() == pytest.approx(math.exp(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75))))
    assert perplexity(shares_MGV[:0]).item() == 1


def test_codes_select_the_vectors(pair, frames_MC):
    ours = pair[0]
    found = ours(frames_MC, 0.5)
    entries = ours.codevectors.view(G, V, W // G)
    torch.testing.assert_close(found.vectors, torch.cat([entries[g, found.codes[:, g]] for g in range(G)], 1))


def test_the_head_projects_both_sides(pair, frames_MC):
    head = QuantisedHead(pair[0], 5, 4).eval()
    torch.testing.assert_close(head.quantise(frames_MC).vectors, head.project_q(pair[0](frames_MC).vectors))
    assert head(torch.zeros(3, 5)).shape == (3, 4)


def test_codebooks_that_do_not_divide_the_width_are_refused():
    with pytest.raises(UnmaskError, match="2 codebooks cannot divide"):
        ProductQuantiser(4, 2, 3, 5)
