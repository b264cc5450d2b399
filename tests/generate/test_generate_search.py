"""Greedy and beam search: against enumeration, a plain loop, and one another."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from generate_toy import Kept, Recomputed, Recurrent, Table, numbered
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.generate import Blocking, Limits, Search, Trace, generate, generate_all
from unmask.generate.rules import largest, remaining
from unmask.models.writer import Writer
from unmask.types import Batch

END = 0


def texts(found: list[list]) -> list[list[tuple[int, ...]]]:
    return [[tuple(h.tokens) + ((END,) if h.finished else ()) for h in hypotheses] for hypotheses in found]


def sources(count: int = 12, vocabulary: int = 12, seed: int = 3) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(vocabulary, (n % 7 + 1,), generator=draw).tolist() for n in range(count)]


@pytest.mark.parametrize(
    ("alpha", "penalty", "stop"),
    [
        (0.0, "power", "certain"),
        (0.0, "power", "estimate"),
        (1.0, "power", "certain"),
        (3.0, "power", "certain"),
        (-0.5, "power", "certain"),
        (0.6, "gnmt", "certain"),
    ],
)
def test_a_beam_that_holds_everything_equals_exhaustive_search_on_a_thousand_models(alpha, penalty, stop):
    V, L, n = 3, 3, 5
    model = Table(1000, V, L)
    search = Search(
        beam_size=V**L, n_best=n, length_penalty=alpha, penalty=penalty, stop=stop, limits=Limits(max_length=L)
    )
    every = model.all(END)
    length = torch.tensor([float(len(text)) for text, _ in every], dtype=torch.double)
    divided = length**alpha if penalty == "power" else ((5 + length) / 6) ** alpha
    totals = torch.stack([total for _, total in every], 1)
    scores, best = (totals / divided).topk(n, dim=1)
    found = generate(model, numbered(1000), search, end=END)
    assert texts(found) == [[every[i][0] for i in row] for row in best.tolist()]
    torch.testing.assert_close(torch.tensor([[h.score for h in hs] for hs in found]), scores.float())
    said = torch.tensor([[h.log_probability for h in hs] for hs in found], dtype=torch.double)
    torch.testing.assert_close(said, totals.gather(1, best), rtol=1e-5, atol=1e-5)


def test_a_narrow_beam_finds_less_than_everything():
    model, limits = Table(300, 3, 3), Limits(max_length=3)
    narrow, wide = (
        generate(model, numbered(300), Search(beam_size=w, stop="certain", length_penalty=0, limits=limits), end=END)
        for w in (2, 27)
    )
    gaps = [w[0].score - n[0].score for n, w in zip(narrow, wide, strict=True)]
    assert min(gaps) >= -1e-6
    assert max(gaps) > 0.1


@pytest.mark.parametrize("stop", ["estimate", "certain", "full"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_a_beam_of_one_is_greedy(stop, alpha):
    model, batch = Recurrent(12), numbered(12)
    search = Search(stop=stop, length_penalty=alpha, limits=Limits(max_length=20))
    for source, (found,) in enumerate(generate(model, batch, search, end=END)):
        state, text, said = model.prefill(Batch(batch.tokens[source : source + 1])), [], []
        token = state.first
        while len(text) < 20 and END not in text:
            logits_NV = model.decode_step(token, state)
            token = logits_NV.argmax(-1)
            said.append(logits_NV.log_softmax(-1)[0, token].item())
            text.append(token.item())
        assert texts([[found]])[0][0] == tuple(text)
        assert found.token_log_probabilities == pytest.approx(said, abs=1e-5)
        assert found.score == pytest.approx(sum(said) / len(text) ** alpha, abs=1e-5)


SEARCHES = [
    Search(limits=Limits(max_length=15)),
    Search(beam_size=5, n_best=3, limits=Limits(max_length=15)),
    Search(beam_size=5, n_best=3, stop="certain", limits=Limits(max_length=15, max_factor=3.0)),
    Search(beam_size=6, n_best=6, groups=3, limits=Limits(max_length=15)),
    Search(
        beam_size=4,
        n_best=2,
        limits=Limits(max_length=15),
        blocking=Blocking(repetition_penalty=1.3, no_repeat_ngram=2),
    ),
]


def close(a: list[list], b: list[list]) -> None:
    assert texts(a) == texts(b)
    for x, y in zip([h for hs in a for h in hs], [h for hs in b for h in hs], strict=True):
        assert x.score == pytest.approx(y.score, abs=1e-4)
        assert x.token_log_probabilities == pytest.approx(y.token_log_probabilities, abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES)
def test_cached_equals_recomputed(search):
    batch = Batch(torch.tensor([[n, n + 1] for n in range(10)]))
    close(generate(Recurrent(12), batch, search, end=END), generate(Recomputed(12), batch, search, end=END))


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("window", [3, 100])
def test_batches_equal_one_at_a_time_and_keep_the_order(search, window):
    model, some = Recurrent(12), sources()
    together = list(generate_all(model, iter(some), search, end=END, pad=11, tokens=60, window=window))
    alone = [generate(model, Batch(torch.tensor([source])), search, end=END)[0] for source in some]
    close(together, alone)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("search", SEARCHES)
def test_batches_side_by_side_equal_one_at_a_time(search, monkeypatch):
    calls = []

    def noted(model, batch, *given, **named):
        calls.append((threading.get_ident(), batch.tokens.numel()))
        return generate(model, batch, *given, **named)

    monkeypatch.setattr("unmask.generate.batching.LEAST", 4)
    monkeypatch.setattr("unmask.generate.batching.generate", noted)
    model, some = Recurrent(12), sources(60)
    room = 60 * search.beam_size
    together = list(generate_all(model, iter(some), search, end=END, pad=11, tokens=room))
    close(together, [generate(model, Batch(torch.tensor([source])), search, end=END)[0] for source in some])
    assert threading.get_ident() not in {thread for thread, _ in calls}
    assert max(places for _, places in calls) <= 60 // 3


@pytest.mark.usefixtures("three_threads")
def test_batches_that_would_not_fit_together_come_one_after_another(monkeypatch):
    calls = set()

    def noted(*given, **named):
        calls.add(threading.get_ident())
        return generate(*given, **named)

    monkeypatch.setattr("unmask.generate.batching.generate", noted)
    some = [[1] * 20] * 6
    found = list(generate_all(Recurrent(12), some, Search(limits=Limits(max_length=3)), end=END, pad=11, tokens=20))
    assert len(found) == 6
    assert calls == {threading.get_ident()}


@pytest.mark.usefixtures("three_threads")
def test_few_sources_are_one_batch_with_all_threads():
    model = Recurrent(12)
    list(generate_all(model, [[1, 2], [3, 4], [5]], Search(limits=Limits(max_length=2)), end=END, pad=11))
    assert model.rows[0] == 3


def test_what_is_finished_leaves_the_batch():
    model = Recurrent(12)
    greedy = generate(model, numbered(12), Search(limits=Limits(max_length=30)), end=END)
    lengths = [len(h.token_log_probabilities) for (h,) in greedy]
    assert len(set(lengths)) > 3
    assert model.rows == [sum(length > step for length in lengths) for step in range(max(lengths))]

    beam = Search(beam_size=3, limits=Limits(max_length=30))
    alone = []
    for n in range(12):
        model.rows = []
        generate(model, Batch(torch.tensor([[n]])), beam, end=END)
        alone.append(len(model.rows))
    model.rows = []
    generate(model, numbered(12), beam, end=END)
    assert model.rows == [3 * sum(length > step for length in alone) for step in range(max(alone))]


def test_certain_is_never_worse_and_feeds_no_more_than_it_must():
    """ "certain" finds at least what "estimate" finds, which finds at least what "full" finds."""
    model, best = Recurrent(12, seed=5), {}
    for stop in ("certain", "estimate", "full"):
        search = Search(beam_size=4, stop=stop, length_penalty=1.5, limits=Limits(max_length=25))
        best[stop] = torch.tensor([hs[0].score for hs in generate(model, numbered(12), search, end=END)])
    assert (best["certain"] >= best["estimate"] - 1e-6).all()
    assert (best["estimate"] >= best["full"] - 1e-6).all()
    assert (best["certain"] > best["full"] + 1e-3).any()


@given(
    least=st.integers(0, 5),
    more=st.integers(1, 6),
    factors=st.sampled_from([(0.0, None), (0.5, 2.0), (1.0, 1.5)]),
    beam=st.integers(1, 4),
)
@settings(max_examples=30)
def test_lengths_stay_within_their_limits(least, more, factors, beam):
    limits = Limits(min_length=least, max_length=least + more, min_factor=factors[0], max_factor=factors[1])
    some = sources(8)
    search = Search(beam_size=beam, n_best=beam, limits=limits)
    for source, found in zip(some, generate_all(Recurrent(12), some, search, end=END, pad=11), strict=True):
        most = limits.max_length if factors[1] is None else min(limits.max_length, math.ceil(factors[1] * len(source)))
        fewest = min(max(least, math.floor(factors[0] * len(source))), most - 1)
        for h in found:
            assert fewest <= len(h.tokens) <= most
            assert len(h.token_log_probabilities) <= most
            assert h.finished or len(h.tokens) == most


@given(n=st.integers(1, 3), beam=st.integers(1, 4), groups=st.booleans(), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_no_ngram_is_written_twice(n, beam, groups, seed):
    blocking = Blocking(no_repeat_ngram=n)
    search = Search(
        beam_size=2 * beam, n_best=2 * beam, groups=2 if groups else 1, limits=Limits(max_length=14), blocking=blocking
    )
    for found in generate(Recurrent(5, seed=seed), numbered(4), search, end=END):
        for h in found:
            ngrams = [tuple(h.tokens[i : i + n]) for i in range(len(h.tokens) - n + 1)]
            assert len(ngrams) == len(set(ngrams))
            assert math.isfinite(h.log_probability)


@given(forbidden=st.sets(st.integers(1, 5)), beam=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_what_is_forbidden_is_not_written(forbidden, beam, seed):
    search = Search(
        beam_size=beam, n_best=beam, limits=Limits(max_length=8, min_length=3),
        blocking=Blocking(forbidden=tuple(forbidden)),
    )  # fmt: skip
    found = generate(Recurrent(6, seed=seed), numbered(3), search, end=END)
    assert not forbidden & {token for hs in found for h in hs for token in h.tokens}
    if len(forbidden) == 5:  # all is blocked: the end is the way out
        assert texts(found) == [[(END,)]] * 3


def test_a_repetition_penalty_is_that_of_its_formula():
    class Fixed(Writer):
        def prefill(self, batch: Batch, width: int = 1) -> Kept:
            return Kept(width, len(batch.tokens) * width)

        def decode_step(self, tokens_N: Tensor, state: Kept) -> Tensor:
            return torch.tensor([[-9.0, 2.0, 1.5, 1.1]]).repeat(len(tokens_N), 1)

    def write(penalty: float) -> list[int]:
        search = Search(limits=Limits(max_length=4), blocking=Blocking(repetition_penalty=penalty))
        return generate(Fixed(), numbered(1), search, end=END)[0][0].tokens

    assert write(1.0) == [1, 1, 1, 1]
    assert write(1.3) == [1, 1, 1, 1]  # 2 / 1.3 = 1.54 > 1.5
    assert write(1.4) == [1, 2, 1, 1]  # 2 / 1.4 = 1.43 < 1.5, and 1.5 / 1.4 = 1.07
    assert write(2.0) == [1, 2, 3, 1]


def test_groups_differ_and_their_scores_have_no_part_of_the_penalty():
    model, V = Recurrent(12, seed=1), 12
    limits = Limits(max_length=6)
    alike, apart = (
        generate(model, numbered(8), Search(beam_size=4, n_best=4, groups=4, diversity=d, limits=limits), end=END)
        for d in (0.0, 100.0)
    )
    greedy = generate(model, numbered(8), Search(limits=limits), end=END)
    for source in range(8):
        assert texts(alike)[source] == texts(greedy)[source] * 4
        assert len({h.tokens[0] if h.tokens else END for h in apart[source]} | {V}) == 5  # all first tokens differ
        assert texts(greedy)[source][0] in texts(apart)[source]  # the first group is not kept away from anything
        for h in apart[source]:
            assert h.score == pytest.approx(h.log_probability / len(h.token_log_probabilities), abs=1e-5)


@pytest.mark.parametrize("diversity", [0.3, 1.0])
def test_diverse_groups_choose_what_the_formula_says(diversity):
    """Vijayakumar et al. 2018: log p minus the diversity for each earlier group that has just chosen the token."""
    model = Recurrent(12, seed=2)
    limits = Limits(max_length=5, min_length=4)
    search = Search(beam_size=3, n_best=3, groups=3, diversity=diversity, limits=limits)
    for source, found in enumerate(generate(model, numbered(6), search, end=END)):
        state = model.prefill(Batch(torch.tensor([[source]])), 3)
        tokens, written = state.first, [[], [], []]
        for step in range(4):
            log_p = model.decode_step(tokens, state).log_softmax(-1)
            log_p[:, END] = -math.inf
            for g in range(3):
                for earlier in range(g):
                    log_p[g, written[earlier][step]] -= diversity
                written[g].append(int(log_p[g].argmax()))
            tokens = torch.tensor([w[-1] for w in written])
        assert sorted(h.tokens[:4] for h in found) == sorted(written)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_record_is_complete_and_consistent(search):
    model, trace = Recurrent(12), Trace()
    found = generate(model, numbered(6), search, end=END, trace=trace)
    plain = generate(model, numbered(6), search, end=END)
    assert texts(found) == texts(plain)
    for source in range(6):
        nodes, w = trace.nodes(source), search.width
        paths = []
        for node in nodes:
            parent = None if node.parent is None else nodes[node.parent]
            paths.append((() if parent is None else paths[node.parent]) + (node.token,))
            assert len(paths[-1]) == node.step
            if parent is not None:
                assert (parent.step, parent.fate, parent.group) == (node.step - 1, "kept", node.group)
                assert node.total <= parent.total
            if search.blocking.repetition_penalty == 1:
                assert node.total == pytest.approx((parent.total if parent else 0) + node.log_probability, abs=1e-5)
            assert node.score == pytest.approx(node.total / search.penalise(node.step), abs=1e-6)
        for group in range(search.groups):
            steps = max(node.step for node in nodes if node.group == group)
            for step in range(1, steps + 1):
                here = [node for node in nodes if (node.group, node.step) == (group, step)]
                assert len(here) <= max(1, 2 * w)
                assert sum(node.fate == "kept" for node in here) <= w
                assert sum(node.fate == "finished" for node in here) <= w
        finished = {paths[i] for i, node in enumerate(nodes) if node.fate == "finished"}
        assert set(texts(found)[source]) <= finished


def test_equal_scores_are_settled_alike_every_time():
    class Flat(Recurrent):
        def decode_step(self, tokens_N: Tensor, state: Kept) -> Tensor:
            return torch.zeros(len(tokens_N), 700)

    greedy = generate(Flat(700), numbered(2), Search(limits=Limits(max_length=3, min_length=1)), end=END)
    assert texts(greedy) == [[(1, END)]] * 2  # the first of equal tokens
    beams = [generate(Flat(700), numbered(3), Search(beam_size=3, n_best=3), end=END) for _ in range(2)]
    assert beams[0] == beams[1]
    assert texts(beams[0])[0] == texts(beams[0])[2]


@given(st.integers(1, 900), st.integers(1, 6), st.integers(0, 9999), st.booleans())
@settings(max_examples=60)
def test_the_largest_are_those_of_a_sort(width, k, seed, ties):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(3, width, generator=draw)
    x = (x * 2).round() if ties else x
    x[torch.rand(3, width, generator=draw) < 0.1] = -math.inf
    k = min(k, width)
    values, indices = largest(x, k, block=16)
    assert torch.equal(values, x.sort(1, descending=True).values[:, :k])
    assert torch.equal(values, x.gather(1, indices))
    assert all(len(set(row)) == k for row in indices.tolist())
    if k == 1:
        assert torch.equal(indices[:, 0], x.argmax(1))


@given(st.lists(st.booleans(), max_size=12))
def test_who_goes_on_stays_in_place_and_gaps_are_filled_from_the_back(done):
    order = remaining(torch.tensor(done, dtype=torch.bool)).tolist()
    going = [place for place, over in enumerate(done) if not over]
    assert sorted(order) == going
    assert all(source == place or (done[place] and source >= len(order)) for place, source in enumerate(order))


def test_the_formula_is_told():
    assert Search(length_penalty=0.6).formula == "log P(y) / |y|^0.6"
    assert Search(length_penalty=0.6, penalty="gnmt").formula == "log P(y) / ((5 + |y|) / 6)^0.6"
    assert Search(length_penalty=0).formula == "log P(y)"


def test_a_config_comes_back_from_json():
    search = Search(beam_size=4, limits=Limits(max_factor=2.0), blocking=Blocking(forbidden=(1, 2)))
    assert Search.from_dict(search.to_dict()) == search


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Search(beam_size=0), "beam_size"),
        (lambda: Search(beam_size=4, groups=3), "divide"),
        (lambda: Search(beam_size=2, n_best=3), "n_best"),
        (lambda: Search(length_penalty=math.nan), "length_penalty"),
        (lambda: Limits(min_length=5, max_length=5), "min_length"),
        (lambda: Limits(min_factor=2, max_factor=1), "min_factor"),
        (lambda: Blocking(repetition_penalty=0.5), "repetition"),
        (lambda: Blocking(no_repeat_ngram=-1), "n-gram"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, says):
    with pytest.raises(UnmaskError, match=says):
        make()


def test_bad_input_is_named():
    model, one = Recurrent(12), numbered(1)
    for search, end, says in [
        (Search(), 12, "end token 12"),
        (Search(blocking=Blocking(forbidden=(99,))), END, "forbidden token 99"),
        (Search(blocking=Blocking(forbidden=(END,))), END, "cannot be forbidden"),
    ]:
        with pytest.raises(UnmaskError, match=says):
            generate(model, one, search, end=end)
    with pytest.raises(UnmaskError, match="no sources"):
        generate(model, Batch(torch.empty(0, 3, dtype=torch.long)), Search(), end=END)
    with pytest.raises(UnmaskError, match="Source 3 has no tokens"):
        list(generate_all(model, [[1], [2], [3], []], Search(), end=END, pad=0, window=2))
    with pytest.raises(UnmaskError, match="window"):
        list(generate_all(model, [[1]], Search(), end=END, pad=0, window=0))
    assert list(generate_all(model, [], Search(), end=END, pad=0)) == []
    trace = Trace()
    generate(model, one, Search(), end=END, trace=trace)
    with pytest.raises(UnmaskError, match="new Trace"):
        generate(model, one, Search(), end=END, trace=trace)


@pytest.mark.parametrize("search", [Search(), Search(beam_size=3), Search(beam_size=4, groups=2)])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_model_that_says_nothing_is_an_error_not_an_endless_search(search, value):
    model = Recurrent(12)
    model.output[:] = value
    model.embedding.abs_()
    model.recur.abs_()
    with pytest.raises(UnmaskError, match="source 0"):
        generate(model, numbered(2), search, end=END)


def test_a_model_in_training_mode_is_refused():
    class Trained(torch.nn.Linear):
        pass

    with pytest.raises(UnmaskError, match="training mode"):
        generate(Trained(1, 1), numbered(1), Search(), end=END)  # type: ignore[arg-type]
