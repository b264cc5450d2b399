"""Sampling: frequencies against probabilities worked out directly; what a seed, a limit and a rule mean."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from generate_toy import Recurrent, Table, numbered
from scipy.stats import chisquare

from unmask.errors import UnmaskError
from unmask.generate import Blocking, Limits, Sampling, generate, generate_all

END = 0


def expected(logits: torch.Tensor, sampling: Sampling) -> list[float]:
    """Token by token, in plain Python: temperature, then top-k, then top-p, then min-p."""
    p = {token: math.exp(x / sampling.temperature) for token, x in enumerate(logits.tolist())}
    ranked = sorted(p, key=lambda token: -p[token])
    ranked = ranked[: sampling.top_k] if sampling.top_k else ranked
    whole, kept, mass = sum(p[token] for token in ranked), [], 0.0
    for token in ranked:
        if mass >= sampling.top_p * whole:
            break
        kept.append(token)
        mass += p[token]
    kept = [token for token in kept if p[token] >= sampling.min_p * p[ranked[0]]]
    total = sum(p[token] for token in kept)
    return [p[token] / total if token in kept else 0.0 for token in p]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(), Sampling(temperature=0.5), Sampling(temperature=3.0), Sampling(top_k=3), Sampling(top_p=0.7),
        Sampling(min_p=0.2), Sampling(temperature=2.0, top_k=5, top_p=0.8, min_p=0.3),
    ],
)  # fmt: skip
def test_frequencies_are_the_probabilities(sampling):
    draws = 4_000
    model = Table(1, 9, 1, seed=4, scale=1.0)
    sampling = sampling.replace(samples=draws, limits=Limits(max_length=1))
    found = generate(model, numbered(1), sampling, end=END)[0]
    counts = [0] * 9
    for h in found:
        counts[END if h.finished else h.tokens[0]] += 1
    p = expected(model.table[0, 0], sampling)
    assert all(count == 0 for count, q in zip(counts, p, strict=True) if q == 0)
    if sum(q > 0 for q in p) > 1:
        observed, wanted = zip(*[(c, q * draws) for c, q in zip(counts, p, strict=True) if q > 0], strict=True)
        assert chisquare(observed, wanted).pvalue > 0.001
    log_p = model.table[0, 0].log_softmax(-1)
    for h in found[:50]:  # the probability is the model's, whatever was drawn from
        assert h.log_probability == pytest.approx(log_p[END if h.finished else h.tokens[0]].item(), abs=1e-5)


def test_samples_of_a_source_are_whole_texts_of_the_right_frequency():
    model, draws = Table(1, 3, 2, seed=1, scale=1.0), 5_000
    sampling = Sampling(samples=draws, limits=Limits(max_length=2))
    found = generate(model, numbered(1), sampling, end=END)[0]
    counts: dict[tuple[int, ...], int] = {}
    for h in found:
        text = tuple(h.tokens) + ((END,) if h.finished else ())
        counts[text] = counts.get(text, 0) + 1
    every = model.all(END)
    wanted = [total.exp().item() * draws for _, total in every]
    assert chisquare([counts.get(text, 0) for text, _ in every], wanted).pvalue > 0.001


def test_a_seed_repeats_itself_and_a_generator_goes_on():
    model, batch = Recurrent(12, scale=1.0), numbered(4)
    first = generate(model, batch, Sampling(samples=3), end=END)
    assert generate(model, batch, Sampling(samples=3), end=END) == first
    assert generate(model, batch, Sampling(samples=3, seed=1), end=END) != first
    stream = torch.Generator().manual_seed(0)
    assert generate(model, batch, Sampling(samples=3), end=END, generator=stream) == first
    assert generate(model, batch, Sampling(samples=3), end=END, generator=stream) != first
    alike = list(generate_all(model, [[5]] * 6, Sampling(), end=END, pad=0, tokens=1))
    assert len({tuple(hs[0].tokens) for hs in alike}) > 1  # batches do not start again at the seed


def test_what_is_finished_leaves_the_batch():
    model = Recurrent(6, scale=1.0)
    found = generate(model, numbered(6), Sampling(samples=2, limits=Limits(max_length=20)), end=END)
    lengths = [max(len(h.token_log_probabilities) for h in hs) for hs in found]
    assert model.rows == [2 * sum(length > step for length in lengths) for step in range(max(lengths))]
    assert len(set(lengths)) > 1


def test_rules_hold_for_samples():
    blocking = Blocking(forbidden=(1, 2), no_repeat_ngram=1)
    sampling = Sampling(samples=50, limits=Limits(min_length=2, max_length=10), blocking=blocking)
    for hs in generate(Recurrent(6, scale=0.5), numbered(5), sampling, end=END):
        for h in hs:
            assert not {1, 2} & set(h.tokens)
            assert len(set(h.tokens)) == len(h.tokens) >= 2
            assert h.finished  # with three tokens left, none of them twice, the end comes in time
            assert math.isfinite(h.log_probability)


def test_one_token_on_the_shortlist_is_greedy():
    from unmask.generate import Search

    model, limits = Recurrent(300), Limits(max_length=12)
    greedy = generate(model, numbered(8), Search(limits=limits), end=END)
    for sampling in (Sampling(top_k=1, limits=limits), Sampling(min_p=1.0, limits=limits), Sampling(top_p=1e-6)):
        drawn = generate(model, numbered(8), sampling.replace(limits=limits.to_dict()), end=END)
        assert [hs[0].tokens for hs in drawn] == [hs[0].tokens for hs in greedy]


@pytest.mark.parametrize(
    "fields",
    [{"samples": 0}, {"temperature": 0.0}, {"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1},
     {"min_p": -0.1}, {"min_p": 1.1}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(fields):
    (name,) = fields
    with pytest.raises(UnmaskError, match=name) as caught:
        Sampling(**fields)
    others = {other.name for other in dataclasses.fields(Sampling)} - {name}
    assert not any(other in str(caught.value) for other in others)
    assert name not in ("top_k", "top_p", "min_p") or f"--{name.replace('_', '-')}" in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_model_that_says_nothing_is_an_error(value):
    model = Recurrent(12)
    model.output[:] = value
    model.embedding.abs_()
    model.recur.abs_()
    with pytest.raises(UnmaskError, match="source 0"):
        generate(model, numbered(2), Sampling(limits=Limits(max_length=5)), end=END)
