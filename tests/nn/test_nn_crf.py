"""The CRF against the enumeration of every tag sequence; batches, gradients, marginals and constrained decoding."""

from __future__ import annotations

import math
from itertools import chain, pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.nn import crf as page
from unmask.nn.crf import LinearChainCRF, best_paths, forbidden, viterbi

C = 3
LENGTHS = [2, 4, 1, 0, 4, 3]
M = sum(LENGTHS)
# Tag 2 cannot follow tag 0 nor begin; tag 1 cannot end: as I, O and B in some scheme.
BETWEEN = torch.tensor([[True, True, False], [True, True, True], [True, True, True]])
ALLOWED = (BETWEEN, torch.tensor([True, True, False]), torch.tensor([True, False, True]))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def learned(allowed=None, tags=C, seed=1) -> LinearChainCRF:
    """A CRF with parameters that are not zero, in double precision."""
    crf = LinearChainCRF(tags, allowed).double()
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_(generator=seeded(seed))
    return crf


def emitted(words=M, tags=C, seed=2):
    return torch.randn(words, tags, generator=seeded(seed), dtype=torch.double)


def enumerated(crf, emissions, allowed=None):
    """Every legal sequence of a sentence -> its score, by the formula and one at a time."""
    between, begin, end = (part.tolist() for part in (crf.transitions, crf.begin, crf.end))
    legal = [part.tolist() for part in allowed] if allowed else None
    scores = {}
    for tags in product(range(emissions.shape[1]), repeat=len(emissions)):
        steps = list(pairwise(tags))
        if legal and not (legal[1][tags[0]] and legal[2][tags[-1]] and all(legal[0][a][b] for a, b in steps)):
            continue
        score = begin[tags[0]] + end[tags[-1]] + sum(between[a][b] for a, b in steps)
        scores[tags] = score + sum(emissions[i, tag].item() for i, tag in enumerate(tags))
    return scores


@pytest.mark.parametrize("allowed", [None, ALLOWED])
def test_likelihood_is_the_share_of_the_sequence_among_all(allowed):
    crf, emissions = learned(allowed), emitted()
    for sentence in emissions.split(LENGTHS):
        if not len(sentence):
            continue
        scores = enumerated(crf, sentence, allowed)
        total = math.log(sum(math.exp(score) for score in scores.values()))
        every = torch.tensor(list(scores))
        found = crf.log_likelihood(sentence.repeat(len(every), 1), every.flatten(), [len(sentence)] * len(every))
        torch.testing.assert_close(found, torch.tensor([score - total for score in scores.values()]).double())


@pytest.mark.parametrize("allowed", [None, ALLOWED])
def test_likelihoods_sum_to_one_and_what_is_not_allowed_has_none(allowed):
    crf, sentence = learned(allowed), emitted(4)
    every = torch.tensor(list(product(range(C), repeat=4)))
    found = crf.log_likelihood(sentence.repeat(len(every), 1), every.flatten(), [4] * len(every)).exp()
    assert found.sum().item() == pytest.approx(1, abs=1e-12)
    legal = enumerated(crf, sentence, allowed)
    assert [tuple(tags) for tags in every[found > 0].tolist()] == list(legal)


@pytest.mark.parametrize("allowed", [None, ALLOWED])
def test_decoded_is_the_best_of_all_sequences(allowed):
    for seed in range(20):
        crf, emissions = learned(allowed, seed=seed), emitted(seed=seed)
        best = []
        for sentence in emissions.split(LENGTHS):
            scores = enumerated(crf, sentence, allowed) if len(sentence) else {(): 0.0}
            best.append(list(max(scores, key=lambda tags: scores[tags])))
        assert crf.decode(emissions, LENGTHS) == best


@pytest.mark.parametrize("allowed", [None, ALLOWED])
def test_marginals_sum_the_sequences_with_the_tag(allowed):
    crf, emissions = learned(allowed), emitted()
    with torch.inference_mode():
        found = crf.marginals(emissions, torch.tensor(LENGTHS))
    assert not found.requires_grad
    torch.testing.assert_close(found.sum(1), torch.ones(len(found), dtype=torch.double))
    for sentence, shares in zip(emissions.split(LENGTHS), found.split(LENGTHS), strict=True):
        if not len(sentence):
            continue
        scores = {tags: math.exp(score) for tags, score in enumerated(crf, sentence, allowed).items()}
        for i, tag in product(range(len(sentence)), range(C)):
            share = sum(score for tags, score in scores.items() if tags[i] == tag) / sum(scores.values())
            assert shares[i, tag].item() == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("allowed", [None, ALLOWED])
def test_gradients(allowed):
    crf, emissions = learned(allowed), emitted().requires_grad_()
    tags = torch.zeros(len(emissions), dtype=torch.long)
    names = [name for name, _ in crf.named_parameters()]

    def likelihood(emissions, *parameters):
        values = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(
            _Likelihood(crf), {f"crf.{k}": v for k, v in values.items()}, (emissions, tags)
        )

    assert torch.autograd.gradcheck(likelihood, (emissions, *crf.parameters()))


class _Likelihood(torch.nn.Module):
    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def forward(self, emissions, tags):
        return self.crf.log_likelihood(emissions, tags, LENGTHS)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 6), max_size=8), st.integers(0, 1000), st.booleans())
def test_a_batch_is_one_at_a_time(lengths, seed, constrained):
    crf, emissions = learned(ALLOWED if constrained else None), emitted(sum(lengths), seed=seed)
    tags = torch.randint(C, (len(emissions),), generator=seeded(seed))
    parts = list(zip(emissions.split(lengths), tags.split(lengths), strict=True)) if lengths else []
    together = crf.log_likelihood(emissions, tags, lengths)
    assert together.shape == (len(lengths),)
    apart = [crf.log_likelihood(e, t, [len(e)])[0].item() for e, t in parts]
    np.testing.assert_allclose(together.tolist(), apart, rtol=1e-12, atol=1e-9)
    assert crf.decode(emissions, lengths) == [crf.decode(e, [len(e)])[0] for e, _ in parts]
    shares = crf.marginals(emissions, lengths)
    for own, (e, _) in zip(shares.split(lengths) if lengths else [], parts, strict=True):
        torch.testing.assert_close(own, crf.marginals(e, [len(e)]))


def test_the_order_of_sentences_does_not_matter_beyond_one_group(monkeypatch):
    crf, emissions = learned(), emitted()
    whole = crf.decode(emissions, LENGTHS)
    monkeypatch.setattr(page, "AT_ONCE", 2)
    assert crf.decode(emissions, LENGTHS) == whole


def test_at_first_every_word_is_judged_alone():
    crf, emissions = LinearChainCRF(C), emitted().float()
    tags = torch.randint(C, (len(emissions),), generator=seeded())
    assert all((parameter == 0).all() for parameter in crf.parameters())
    alone = -torch.nn.functional.cross_entropy(emissions, tags, reduction="none")
    sums = torch.stack([part.sum() for part in alone.split(LENGTHS)])
    torch.testing.assert_close(crf.log_likelihood(emissions, tags, LENGTHS), sums)
    torch.testing.assert_close(crf.marginals(emissions, LENGTHS), emissions.softmax(-1))
    assert list(chain(*crf.decode(emissions, LENGTHS))) == emissions.argmax(-1).tolist()


def test_only_parameters_are_stored():
    crf = LinearChainCRF(C, ALLOWED)
    assert {name: tuple(value.shape) for name, value in crf.state_dict().items()} == {
        "transitions": (C, C),
        "begin": (C,),
        "end": (C,),
    }


def test_transitions_are_learned():
    """Emissions say nothing; that tag 1 always follows tag 0 is only in the order."""
    crf = LinearChainCRF(2)
    optimiser = torch.optim.SGD(crf.parameters(), lr=2.0)
    tags = torch.tensor([0, 1] * 10)
    for _ in range(20):
        loss = -crf.log_likelihood(torch.zeros(20, 2), tags, [4] * 5).sum() / 20
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert crf.decode(torch.zeros(6, 2), [6]) == [[0, 1, 0, 1, 0, 1]]
    assert loss.item() < 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(dtype):
    emissions = emitted(300).to(dtype)
    tags = torch.zeros(300, dtype=torch.long)
    exact = learned().log_likelihood(emissions, tags, [300])
    for crf in (learned().float(), learned().to(dtype)):
        found = crf.log_likelihood(emissions, tags, [300])
        assert found.dtype is torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=0)


def test_long_sentences_stay_finite():
    crf = learned(ALLOWED).float()
    emissions = 50 * emitted(2000).float()
    found = crf.log_likelihood(emissions, torch.ones(2000, dtype=torch.long), [2000])
    found.sum().backward()
    assert found.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters())


# ------------------------------------------------------------------------------------------------ decoding alone


def test_constrained_decoding_finds_the_most_probable_legal_tags():
    chances = emitted(5, seed=4).softmax(-1).numpy()
    crf = LinearChainCRF(C)
    scores = enumerated(crf, torch.tensor(chances).log(), ALLOWED)
    best = list(max(scores, key=lambda tags: scores[tags]))
    assert best != chances.argmax(-1).tolist()
    assert viterbi(np.log(chances), *forbidden(ALLOWED)) == best
    as_arrays = forbidden([part.numpy() for part in ALLOWED])
    assert best_paths(np.log(chances), np.array([5]), *(part.numpy() for part in as_arrays)) == [best]


def test_impossible_words_and_sentences_still_have_an_answer():
    with np.errstate(divide="ignore"):
        sure = np.log(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
    # 0 2 2 has one step that is forbidden; any legal sequence has a word of probability zero or more.
    assert viterbi(sure, *forbidden(ALLOWED)) in ([0, 2, 2], [0, 1, 2])
    nothing = (np.zeros((C, C), bool), np.zeros(C, bool), np.zeros(C, bool))
    assert viterbi(np.array([[0.0, 1, 0], [0, 0, 1]]), *forbidden(nothing)) == [1, 2]


def test_decoding_thousands_of_sentences():
    """As many as a development set has; one at a time, this takes minutes."""
    count, tags = 600, 20
    crf, emissions = learned(tags=tags), emitted(count * 50, tags)
    found = crf.decode(emissions, [50] * count)
    assert [len(path) for path in found] == [50] * count
    assert found[count // 2] == crf.decode(emissions[50 * (count // 2) :][:50], [50])[0]


def test_errors():
    crf = LinearChainCRF(C)
    for lengths in ([2, 2], torch.tensor([6]), [-1, 6]):
        with pytest.raises(UnmaskError, match=r"sum to \d+, but there are 5 words"):
            crf.decode(torch.zeros(5, C), lengths)
        with pytest.raises(UnmaskError, match=r"sum to \d+, but there are 5 words"):
            crf.log_likelihood(torch.zeros(5, C), torch.zeros(5, dtype=torch.long), lengths)
    with pytest.raises(UnmaskError, match=r"shape \(2,\), not \(3,\)"):
        LinearChainCRF(C, (BETWEEN, torch.ones(2), torch.ones(3)))
    with pytest.raises(UnmaskError, match="one tag or more to choose from, not 0"):
        LinearChainCRF(0)


def test_the_same_numbers_as_another_implementation():
    other = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")
    crf, emissions = learned(), emitted()
    lengths = [length for length in LENGTHS if length]
    tags = torch.randint(C, (len(emissions),), generator=seeded())
    theirs = other.CRF(C, batch_first=True).double()
    with torch.no_grad():
        theirs.transitions.copy_(crf.transitions)
        theirs.start_transitions.copy_(crf.begin)
        theirs.end_transitions.copy_(crf.end)
    padded = torch.nn.utils.rnn.pad_sequence(emissions.split(lengths), batch_first=True)
    padded_tags = torch.nn.utils.rnn.pad_sequence(tags.split(lengths), batch_first=True)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    expected = theirs(padded, padded_tags, mask, reduction="none")
    torch.testing.assert_close(crf.log_likelihood(emissions, tags, lengths), expected)
    assert crf.decode(emissions, lengths) == theirs.decode(padded, mask)
