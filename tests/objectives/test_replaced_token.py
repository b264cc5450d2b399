"""Replaced tokens: what is hidden, drawn and asked, the losses by their formula, and where gradients go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data.collate import pack, pad
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.electra import Discriminator, Electra
from unmask.objectives import MaskedLM, MaskedLMConfig, ReplacedToken, ReplacedTokenConfig
from unmask.objectives.replaced_token import DRAWS, draw
from unmask.types import Batch, Example

PAD, MASK, SPECIALS, VOCABULARY = 0, 4, (0, 1, 2, 3, 4), 40


@pytest.fixture
def objective() -> ReplacedToken:
    masked = MaskedLM(mask=MASK, specials=SPECIALS, vocabulary=VOCABULARY, rate=0.3, becomes=(1.0, 0.0))
    return ReplacedToken(masked, weight=50.0)


@pytest.fixture
def model() -> Discriminator:
    page = Electra(vocabulary=VOCABULARY, dim=16, layers=2, heads=2, hidden=32, length=24, factor=8, generator=0.5)
    built = page.replace(std=0.3).build()
    assert isinstance(built, Discriminator)
    return built.eval()


def examples(count: int = 9) -> list[Example]:
    rng = np.random.default_rng(0)
    return [Example(np.concatenate([[2], rng.integers(5, VOCABULARY, rng.integers(3, 20)), [3]])) for _ in range(count)]


def test_all_that_is_chosen_is_hidden_and_all_that_is_real_is_asked(objective: ReplacedToken) -> None:
    whole = pad(examples(), PAD)
    batch = objective.corrupt(whole, np.random.default_rng(1))
    hidden, asked, draws = (batch.targets[name] for name in ("mlm", "rtd", DRAWS))
    assert (batch.tokens.flatten()[hidden.places] == MASK).all()
    assert torch.equal(whole.tokens.flatten()[hidden.places], hidden.values)
    real = (whole.documents > 0).flatten().nonzero().squeeze(1)
    assert torch.equal(asked.places, real)  # special tokens included
    assert torch.equal(asked.values, whole.tokens.flatten()[real])
    assert torch.equal(draws.places, hidden.places)
    assert draws.values.dtype == torch.float32
    assert batch.counts["rtd"] == whole.real_tokens
    single = objective.corrupt(Batch(whole.tokens[:2]), np.random.default_rng(1))
    assert single.counts["rtd"] == single.tokens.numel()


def test_a_run_leaves_fifteen_in_a_hundred_of_the_chosen_tokens_as_they_are() -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat . a dog of many years came by ."] * 5, 60)
    learned = ReplacedTokenConfig(masked=MaskedLMConfig(rate=0.5)).build(tokenizer)
    ids = tokenizer.ids(["the cat sat on the mat . a dog of many years came by ."])[0]
    whole = pad([Example(np.concatenate([[tokenizer.cls], ids, [tokenizer.sep]])) for _ in range(600)], tokenizer.pad)
    batch = learned.corrupt(whole, np.random.default_rng(0))
    seen, chosen = batch.tokens.flatten()[batch.targets["mlm"].places], batch.targets["mlm"].values
    masked = seen == tokenizer.mask
    assert torch.equal(seen[~masked], chosen[~masked])
    assert masked.float().mean().item() == pytest.approx(0.85, abs=0.02)


def test_the_same_generator_gives_the_same_batch_and_loss(objective: ReplacedToken, model: Discriminator) -> None:
    whole = pad(examples(), PAD)
    one, two = (objective.corrupt(whole, np.random.default_rng(5)) for _ in range(2))
    torch.manual_seed(0)
    first = objective.loss(model, one)
    torch.manual_seed(1)  # nothing is drawn from torch's own stream
    second = objective.loss(model, two)
    assert all(torch.equal(first[name].sum, second[name].sum) for name in ("mlm", "rtd"))


def test_tokens_are_drawn_by_their_probabilities() -> None:
    logits_V = torch.tensor([0.0, 1.0, -1.0, 2.0, -torch.inf, 0.5])
    uniform = torch.from_numpy(np.random.default_rng(0).random(40_000, dtype=np.float32))
    drawn = draw(logits_V.expand(len(uniform), -1), uniform)
    shares = torch.bincount(drawn, minlength=6) / len(uniform)
    torch.testing.assert_close(shares, logits_V.softmax(0), atol=0.01, rtol=0)
    assert shares[4] == 0
    edges = draw(logits_V.expand(2, -1), torch.tensor([0.0, 1.0]))
    assert edges.tolist() == [0, 5]


def by_formula(model: Discriminator, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The two losses, token by token, and how many tokens were replaced."""
    hidden, asked, draws = (batch.targets[name] for name in ("mlm", "rtd", DRAWS))
    logits = model.generator.answer("mlm", model.generator(batch), hidden.places)
    guessed = -logits.log_softmax(-1)[torch.arange(len(logits)), hidden.values].sum()
    tokens = batch.tokens.flatten().clone()
    for place, row, u in zip(hidden.places.tolist(), logits.softmax(-1), draws.values.tolist(), strict=True):
        tokens[place] = int((row.cumsum(0) <= u * row.sum()).sum())
    filled = replace(batch, tokens=tokens.view_as(batch.tokens), targets={})
    d_M = torch.sigmoid(model.answer("rtd", model(filled), asked.places)[:, 0])
    replaced = tokens[asked.places] != asked.values
    return guessed, -torch.where(replaced, d_M.log(), (1 - d_M).log()).sum(), replaced.sum()


def test_the_losses_are_those_of_the_paper(objective: ReplacedToken, model: Discriminator) -> None:
    batch = objective.corrupt(pad(examples(), PAD), np.random.default_rng(1))
    found = objective.loss(model, batch)
    guessed, told, replaced = by_formula(model, batch)
    torch.testing.assert_close(found["mlm"].sum, guessed)
    torch.testing.assert_close(found["rtd"].sum, told)
    assert found["rtd"].metrics["replaced"] == replaced
    assert 0 < replaced <= batch.counts["mlm"]
    assert {name: loss.count for name, loss in found.items()} == {name: batch.counts[name] for name in found}
    assert objective.weights == {"mlm": 1.0, "rtd": 50.0}


def test_a_word_that_is_drawn_right_counts_as_original(objective: ReplacedToken, model: Discriminator) -> None:
    batch = objective.corrupt(pad(examples(), PAD), np.random.default_rng(1))
    head = model.generator.heads["mlm"]
    with torch.no_grad():
        head.bias.fill_(-1e4)
        head.bias[int(batch.targets["mlm"].values[0])] = 0.0  # every draw is this token
    same = (batch.targets["mlm"].values == batch.targets["mlm"].values[0]).sum()
    found = objective.loss(model, batch)["rtd"]
    assert found.metrics["replaced"] == batch.counts["mlm"] - same


def test_no_gradient_goes_through_the_draw(objective: ReplacedToken, model: Discriminator) -> None:
    batch = objective.corrupt(pad(examples(), PAD), np.random.default_rng(1))
    objective.loss(model, batch)["rtd"].sum.backward()
    assert all(p.grad is None for p in [*model.generator.stack.parameters(), *model.generator.heads.parameters()])
    assert model.embedding.token.weight.grad.abs().sum() > 0
    model.zero_grad()
    objective.loss(model, batch)["mlm"].sum.backward()
    assert all(p.grad is None for p in [*model.stack.parameters(), *model.heads.parameters()])
    assert model.embedding.token.weight.grad.abs().sum() > 0  # the vectors are shared
    assert model.generator.embedding.token is model.embedding.token
    assert model.generator.embedding.project is not model.embedding.project


def test_packed_and_padded_rows_give_the_same_loss(objective: ReplacedToken, model: Discriminator) -> None:
    """The numbers drawn follow the order of places, so both are corrupted alike only one sequence after the other."""
    sequences = examples(4)
    sums: list[dict[str, Tensor]] = []
    for make in (lambda e: pad(e, PAD), lambda e: pack(e, 24, PAD)):
        total: dict[str, Tensor] = {}
        for i, example in enumerate(sequences):
            batch = objective.corrupt(make([example]), np.random.default_rng(i))
            for name, loss in objective.loss(model, batch).items():
                total[name] = total.get(name, torch.zeros(())) + loss.sum.detach()
        sums.append(total)
    for name in ("mlm", "rtd"):
        torch.testing.assert_close(sums[0][name], sums[1][name])


def test_micro_batches_keep_their_draws(objective: ReplacedToken, model: Discriminator) -> None:
    batch = objective.corrupt(pack(examples(), 24, PAD), np.random.default_rng(2))
    whole = objective.loss(model, batch)
    parts = [objective.loss(model, batch.rows(i, i + 1)) for i in range(len(batch.tokens))]
    for name in ("mlm", "rtd"):
        torch.testing.assert_close(sum(part[name].sum for part in parts), whole[name].sum)


def test_what_cannot_be_is_refused(objective: ReplacedToken) -> None:
    bert = Bert(vocabulary=VOCABULARY, dim=16, layers=1, heads=2, hidden=32, length=24).build(
        as_heads({"mlm": 0, "rtd": 1})
    )
    with pytest.raises(UnmaskError, match="ELECTRA"):
        objective.loss(bert, objective.corrupt(pad(examples(), PAD), np.random.default_rng(1)))
    with pytest.raises(UnmaskError, match="above 0"):
        ReplacedToken(objective.masked, weight=0.0)


def test_sampled_loss_falls_when_the_discriminator_learns(objective: ReplacedToken, model: Discriminator) -> None:
    batch = objective.corrupt(pad(examples(), PAD), np.random.default_rng(1))
    optimizer = torch.optim.Adam([*model.stack.parameters(), *model.heads.parameters()], lr=1e-2)
    losses = []
    for _ in range(30):
        loss = objective.loss(model, batch)["rtd"]
        losses.append(float(loss.sum.detach()) / loss.count)
        optimizer.zero_grad()
        loss.sum.backward()
        optimizer.step()
    share = float(loss.metrics["replaced"]) / loss.count
    naive = float(F.binary_cross_entropy(torch.tensor([share]), torch.tensor([share])))
    assert losses[-1] < 0.5 * naive
