"""wav2vec 2.0: its loss beside that of transformers and beside its equations, negatives, annealing, and reports."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data import collate
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.nn.quantiser import ProductQuantiser, Quantised, QuantisedHead
from unmask.nn.sequences import Sequences
from unmask.objectives.masked_contrastive import Annealing, MaskedContrastiveConfig, negatives, similarities
from unmask.types import Batch, Kind

PROCESSOR = RecordingProcessor(rate=1_000, hop=4, window=7)
C, D, G, V, W, P, K, F = 8, 12, 2, 5, 6, 6, 9, 30
CONFIG = MaskedContrastiveConfig(rate=1_000, negatives=K, span=3, projection=P)


class Trunk:
    """A model whose hidden states, frames and features are given."""

    def __init__(self, head: QuantisedHead, hidden: torch.Tensor, frames: torch.Tensor, features: torch.Tensor) -> None:
        self.heads, self.given = {"contrastive": head}, (hidden, frames, features)

    def forward_with_frames(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.given

    def answer(self, name: str, hidden_BTD: torch.Tensor, places: torch.Tensor, batch: Batch) -> torch.Tensor:
        return self.heads[name](hidden_BTD.flatten(0, 1)[places])


def of_row(recordings: int, length: int = F, seed: int = 0) -> Batch:
    """Recordings of F frames, with targets, in rows of `length` frames."""
    rng = np.random.default_rng(seed)
    samples = [rng.normal(size=PROCESSOR.samples(F)).astype(np.float32) for _ in range(recordings)]
    batch = collate.pack([PROCESSOR.example(one) for one in samples], length, Kind.PADDING)
    return CONFIG.build(PROCESSOR).corrupt(batch, rng)


def head() -> QuantisedHead:
    """A head whose quantised vectors are exact in float32: `transformers` compares them to find negatives that equal
    the positive, and misses those that a product has rounded otherwise; here codes are compared."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = QuantisedHead(ProductQuantiser(C, G, V, W), D, P)
        made.quantizer.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for x in (made.quantizer.codevectors, *made.project_q.parameters()):
            x.copy_((64 * x).round() / 64)
    return made


def states(rows: int, length: int) -> list[torch.Tensor]:
    """Hidden states, frames and features of rows, as leaves."""
    made = torch.Generator().manual_seed(3)
    return [torch.randn(rows, length, width, generator=made).requires_grad_() for width in (D, C, C)]


def noisy(logits: torch.Tensor, tau: float, hard: bool) -> torch.Tensor:
    """In place of `gumbel_softmax`: noise that depends on the logits alone, so that it is the same for all who quantise
    the same frames; the forward value is exactly one of 0 and 1."""
    assert hard
    soft = ((logits + 3 * torch.sin(1e3 * logits.detach())) / tau).softmax(-1)
    chosen = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
    return chosen + (soft - soft.detach())


@pytest.mark.parametrize("training", [False, True])
def test_the_loss_and_its_gradients_are_those_of_transformers(training, monkeypatch):
    """Two recordings in one packed row here, in two rows there."""
    monkeypatch.setattr(torch.nn.functional, "gumbel_softmax", noisy)
    made, batch, objective = head().train(training), of_row(2, 2 * F), CONFIG.build(PROCESSOR)
    objective.on_step(200_000, 400_000)
    leaves = states(1, 2 * F)
    found = objective.loss(Trunk(made, *leaves), batch)
    total = found["contrastive"].sum + 0.1 * found["diversity"].sum
    mine = torch.autograd.grad(total, [*leaves[:2], *made.parameters()], allow_unused=True)

    config = transformers.Wav2Vec2Config(
        hidden_size=D, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, conv_dim=(C,), conv_kernel=(2,),
        conv_stride=(2,), num_feat_extract_layers=1, num_codevectors_per_group=V, num_codevector_groups=G,
        codevector_dim=W, proj_codevector_dim=P, num_negatives=K, feat_quantizer_dropout=0.0,
        num_conv_pos_embeddings=2, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    theirs = transformers.Wav2Vec2ForPreTraining(config).train(training)
    assert not theirs.load_state_dict(made.state_dict(), strict=False).unexpected_keys
    theirs.set_gumbel_temperature(objective.noise)
    others = [x.detach().view(2, F, -1).requires_grad_() for x in leaves[:2]]
    output = transformers.models.wav2vec2.modeling_wav2vec2.Wav2Vec2BaseModelOutput(*others)
    monkeypatch.setattr(theirs.wav2vec2, "forward", lambda *_, **__: output)
    target = batch.targets["contrastive"]
    mask = torch.zeros(2, F, dtype=torch.bool)
    mask.view(-1)[target.places] = True
    number = torch.cumsum(mask.view(-1), 0)[target.places] - 1
    chosen = torch.zeros(2 * F, K, dtype=torch.long)
    chosen[target.places] = target.places[number[:, None] + target.values]
    expected = theirs(torch.zeros(2, 8), mask_time_indices=mask, sampled_negative_indices=chosen.view(2, F, K))
    torch.testing.assert_close(total, expected.loss)
    torch.testing.assert_close(found["contrastive"].sum, expected.contrastive_loss)
    torch.testing.assert_close(found["diversity"].sum, expected.diversity_loss)
    parameters = dict(theirs.named_parameters())
    wanted = [*others, *(parameters[name] for name, _ in made.named_parameters())]
    gradients = torch.autograd.grad(expected.loss, wanted, allow_unused=True)
    for one, other in zip(mine, gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other.view_as(one), rtol=1e-4, atol=1e-5)
    perplexity = found["contrastive"].metrics["perplexity_1"] + found["contrastive"].metrics["perplexity_2"]
    torch.testing.assert_close(perplexity / len(target.places), expected.codevector_perplexity.detach())


def test_similarities_are_those_of_the_equation():
    generator, counts = torch.Generator().manual_seed(0), [4, 2, 7]
    M = sum(counts)
    predicted, vectors = (torch.randn(M, P, generator=generator) for _ in range(2))
    codes = torch.randint(2, (M, G), generator=generator)
    quantised = Quantised(vectors, codes, torch.ones(G), V)
    offsets = np.concatenate([negatives(n, K, np.random.default_rng(n)) for n in counts])
    numbers = torch.arange(3).repeat_interleave(torch.tensor(counts)) + 1
    found = similarities(predicted, quantised, torch.from_numpy(offsets), Sequences.of(numbers[None]))
    for m in range(M):
        for k in range(K + 1):
            other = m + (0 if k == 0 else int(offsets[m, k - 1]))
            expected = float(torch.cosine_similarity(predicted[m], vectors[other], dim=0))
            if k and torch.equal(codes[m], codes[other]):
                expected = -math.inf
            assert numbers[m] == numbers[other]
            assert found[m, k].item() == pytest.approx(expected, abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.integers(1, 30), st.integers(0, 2**32))
def test_negatives_are_other_masked_frames(count, number, seed):
    others = np.arange(count)[:, None] + negatives(count, number, np.random.default_rng(seed))
    assert others.shape == (count, number)
    assert others.min() >= 0
    assert others.max() < count
    assert (others != np.arange(count)[:, None]).all()


def test_each_other_frame_is_equally_likely():
    others = np.arange(5)[:, None] + negatives(5, 40_000, np.random.default_rng(0))
    for own, row in enumerate(others):
        counts = np.bincount(row, minlength=5) / 40_000
        np.testing.assert_allclose(np.delete(counts, own), 0.25, atol=0.01)


def test_targets_do_not_depend_on_the_rows():
    """The loss is that of the same recordings in other rows, in another order, and of each alone."""
    batch, leaves = of_row(4), [x.detach() for x in states(4, F)]
    objective, made = CONFIG.build(PROCESSOR), head().eval()
    order = np.array([2, 0, 3, 1])
    whole = objective.loss(Trunk(made, *leaves), batch)
    moved = objective.loss(Trunk(made, *(x[order] for x in leaves)), batch.take(order))
    alone = [objective.loss(Trunk(made, *(x[i : i + 1] for x in leaves)), batch.rows(i, i + 1)) for i in range(4)]
    assert whole["contrastive"].sum.item() == pytest.approx(moved["contrastive"].sum.item(), rel=1e-5)
    for name in ("contrastive", "features"):
        assert whole[name].sum.item() == pytest.approx(sum(x[name].sum.item() for x in alone), rel=1e-5)
        assert whole[name].count == sum(x[name].count for x in alone) == batch.counts[name]


def test_the_penalty_is_the_mean_square_of_the_features():
    batch, leaves = of_row(3, F + 5), states(3, F + 5)  # padding is left out
    loss = CONFIG.build(PROCESSOR).loss(Trunk(head(), *leaves), batch)["features"]
    assert loss.count == 3 * F
    assert (loss.sum / loss.count).item() == pytest.approx(leaves[2][:, :F].square().mean().item(), rel=1e-5)


def test_a_micro_batch_without_masked_frames_has_a_loss_of_zero():
    batch = replace(of_row(1), targets={})
    found = CONFIG.build(PROCESSOR).loss(Trunk(head(), *states(1, F)), batch)
    assert {name: (loss.sum.item(), loss.count) for name, loss in found.items()} == {
        "contrastive": (0.0, 0),
        "diversity": (0.0, 0),
        "features": (0.0, 0),
    }


def test_frames_that_all_negatives_equal_are_not_correct():
    made, batch, leaves = head().eval(), of_row(2), states(2, F)
    leaves[1] = torch.zeros_like(leaves[1])  # all frames get one entry
    metrics = CONFIG.build(PROCESSOR).loss(Trunk(made, *leaves), batch)["contrastive"].metrics
    masked = batch.counts["contrastive"]
    assert metrics["correct"] == 0
    assert metrics["used"].item() / masked == pytest.approx(1 / V)
    assert metrics["perplexity_1"].item() / masked == pytest.approx(1)


def test_chance_counts_the_frames_that_can_be_negatives():
    """A recording has one frame more than negatives, the other fewer."""
    long, short = np.zeros(PROCESSOR.samples(80), np.float32), np.zeros(PROCESSOR.samples(8), np.float32)
    batch = collate.pack([PROCESSOR.example(one) for one in (long, short)], 90, Kind.PADDING)
    batch = CONFIG.build(PROCESSOR).corrupt(batch, np.random.default_rng(0))
    loss = CONFIG.build(PROCESSOR).loss(Trunk(head(), *states(1, 90)), batch)["contrastive"]
    few = int((batch.targets["contrastive"].places >= 80).sum())
    assert 1 < few <= K < loss.count - few
    assert loss.metrics["chance"].item() == pytest.approx((loss.count - few) / (K + 1) + 1)


def test_the_noise_is_annealed_as_published():
    published = Annealing(2.0, 0.5, 0.999995)
    assert published.at(0) == 2
    assert published.at(100_000) == pytest.approx(2 * math.exp(-0.5), rel=1e-4)
    assert published.at(400_000) == 0.5
    objective = MaskedContrastiveConfig(noise=1.0, least_noise=0.25, noise_decay=0.5).build(PROCESSOR)
    assert objective.noise == 1
    objective.on_step(1, 10)
    assert objective.noise == 0.5
    objective.on_step(7, 10)
    assert objective.noise == 0.25


def test_a_collapsed_codebook_is_named():
    objective = CONFIG.build(PROCESSOR)
    found = {f"contrastive/{name}": 0.5 for name in ("correct", "chance", "used")}
    found |= {"contrastive/perplexity_1": 40.0, "contrastive/perplexity_2": 1.2}
    [sentence] = objective.concerns(found)
    assert "its perplexity is 1.2" in sentence
    assert objective.concerns({**found, "contrastive/perplexity_2": 30.0}) == []
    result, concern = objective.summary(found, {}, {})
    assert "50.0% of the masked frames were told from 9 others of the recording (guessing gives 50.0%)" in result
    assert "perplexity 40.0 and 1.2; 50% of the entries are used" in result
    assert concern == sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"share": 0.0}, {"span": 0}, {"negatives": 0}, {"projection": 0}, {"similarity_temperature": 0.0},
        {"diversity": -1.0}, {"penalty": -1.0}, {"noise": 0.1}, {"least_noise": 0.0}, {"noise_decay": 1.1},
        {"noise_decay": 0.0}, {"diversity": math.nan}, {"similarity_temperature": math.nan},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_out_of_range_are_refused(changes):
    with pytest.raises(UnmaskError):
        CONFIG.replace(**changes).build(PROCESSOR)
