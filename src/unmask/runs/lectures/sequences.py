"""Entries on language models and translation by recurrent networks: gates, perplexity, alignment, BLEU.

Shapes: T tokens, S states of the encoder, Q width of a query, E width of a state.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import torch

from unmask.generate.ngrams import counted
from unmask.metrics.ngrams import brevity_penalty, clipped_matches, textbook_bleu
from unmask.nn import AdditiveAttention, DotAttention, GeneralAttention, StateAttention, record_attention
from unmask.nn.recurrent import LSTMCell
from unmask.nn.recurrent_state import RecurrentState
from unmask.runs.lectures.attention import seeded
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Chart, Heatmap, Series, Table

OPEN = 20.0  # of a gate: sigmoid(20) is 1 in three decimals, sigmoid(-20) is 0


@entry("The cell of an LSTM counts brackets", code="nn/recurrent.py", test="lectures/test_sequence_entries.py")
def counting(quick: bool) -> Shown:
    """c' = f c + i g and h' = o tanh(c') with gates i, f, o in (0, 1) (Hochreiter & Schmidhuber 1997; the forget gate
    of Gers et al. 2000). With the forget gate open, the cell adds up, and its gradient passes unchanged through time.
    The weights are set by hand here: the candidate g is 1 for an opening bracket, -1 for a closing one.
    """
    text, letters = "((a)(b(c)))", "()"
    # columns: opening bracket, closing bracket, anything else; rows: input gate, forget gate, candidate, output gate
    W = torch.tensor([[OPEN, OPEN, -OPEN], [OPEN, OPEN, OPEN], [OPEN, -OPEN, 0.0], [OPEN, OPEN, OPEN]])
    cell = LSTMCell(W, torch.zeros(4, 1), torch.zeros(4), torch.zeros(4))
    state = RecurrentState(torch.zeros(1, 1), torch.zeros(1, 1))
    rows: list[tuple[Any, ...]] = []
    for letter in text:
        kind = letters.index(letter) if letter in letters else 2
        _, state = cell.step(torch.eye(3)[[kind]], state)
        assert state.cell is not None
        i, f, _, o = W[:, kind].sigmoid()
        rows.append((letter, *(round(x.item(), 3) for x in (i, f, W[2, kind].tanh(), o, state.cell))))
    return Shown(
        f"After '{text[:6]}' the cell is {rows[5][-1]:.0f}, the number of open brackets; at the end it is "
        f"{abs(rows[-1][-1]):.0f}.",
        [Table(text, ["token", "input gate", "forget gate", "candidate", "output gate", "cell"], rows)],
        [Chart("The cell", [Series("cell", [(t + 1, row[-1]) for t, row in enumerate(rows)])], x="token")],
    )


@entry("Perplexity of n-grams", code="generate/ngrams.py", test="lectures/test_sequence_entries.py")
def perplexity(quick: bool) -> Shown:
    """Perplexity is the exponential of the mean negative log-likelihood of a word: that many equally probable words
    would be as hard to guess. `unmask evaluate` reports it for every language model, and bits per character, which does
    not depend on the tokens.
    """
    said = product(("cat", "dog", "bird"), ("sees", "likes"), ("cat", "dog"))
    sentences = [["the", one, verb, "the", other] for one, verb, other in said]
    held_out = ["the", "bird", "likes", "the", "dog"]
    words = {word for sentence in sentences for word in sentence}
    rows: list[tuple[str, float, float]] = [("uniform", math.log(len(words) + 1), float(len(words) + 1))]
    for order in (1, 2, 3):
        nll = -counted(sentences, order)(tuple(held_out), ends=True) / (len(held_out) + 1)
        rows.append((f"{order}-grams", nll, math.exp(nll)))
    return Shown(
        f"Guessing among {len(words)} words and the end has a perplexity of {rows[0][2]:.0f}, word frequencies "
        f"{rows[1][2]:.1f}, pairs of words {rows[2][2]:.1f}.",
        [Table(" ".join(held_out), ["model", "nats a word", "perplexity"], rows)],
    )


@entry(
    "Three scores of attention to an encoder", code="nn/state_attention.py", test="lectures/test_sequence_entries.py"
)
def alignment_scores(quick: bool) -> Shown:
    """A decoder's state q is compared with each state s of the encoder: by q · s or q · W s (Luong et al. 2015, section
    3.1), or by v · tanh(W q + U s) (Bahdanau et al. 2014, appendix A.1.2); the context is the mean of the states by the
    softmax of the scores. Here query t is state t with noise, and W and U are not trained: only the dot product sees
    the likeness at once.
    """
    S, E, generator = 8, 16, torch.Generator().manual_seed(0)
    states = torch.randn(1, S, E, generator=generator)
    queries = states + 0.3 * torch.randn(1, S, E, generator=generator)
    kinds: dict[str, StateAttention] = {
        "dot": DotAttention(E, E),
        "general": GeneralAttention(E, E),
        "additive": AdditiveAttention(E, E),
    }
    rows, figures, names = [], [], [str(i) for i in range(1, S + 1)]
    for name, attention in kinds.items():
        seeded(attention, generator)
        with torch.no_grad(), record_attention(attention) as maps:
            attention(queries, attention.keys(states))
        weights_TS = maps[0].weights[0, 0]
        count = sum(parameter.numel() for parameter in attention.parameters())
        rows.append((name, count, weights_TS.diagonal().mean().item()))
        title = f"{name}: weights of the states (columns) for each query"
        figures.append(Heatmap(title, names, names, weights_TS.tolist()))
    return Shown(
        f"Before training, the right state has a weight of {rows[0][2]:.2f} with the dot product, {rows[1][2]:.2f} "
        f"with the general and {rows[2][2]:.2f} with the additive score.",
        [Table(f"Width {E}", ["score", "parameters", "weight of the right state"], rows)],
        figures,
    )


@entry(
    "Reversed sources: how far a word is from its translation",
    code="nn/recurrent_encoder.py",
    test="lectures/test_sequence_entries.py",
)
def reversed_sources(quick: bool) -> Shown:
    """If word i of the target translates word i of the source, a state carries it over n steps, whatever i is. With the
    source reversed, the mean distance is the same, but the first words are next to each other, so that training finds
    them easily (Sutskever et al. 2014, section 3.3: perplexity 5.8 to 4.7, BLEU 25.9 to 30.6).
    """
    n, rows = 8, []
    columns = ["source", *(f"word {i}" for i in range(1, n + 1)), "mean", "smallest"]
    for name, places in (("in order", range(n)), ("reversed", range(n - 1, -1, -1))):
        apart = [n + i - place for i, place in enumerate(places)]
        rows.append((name, *apart, sum(apart) / n, min(apart)))
    return Shown(
        f"The mean distance is {rows[0][-2]:.0f} steps in both; the smallest is {rows[0][-1]} in order and "
        f"{rows[1][-1]} with the source reversed.",
        [Table("Steps from a source word to its translation", columns, rows)],
    )


@entry("BLEU, and what short translations lose", code="metrics/ngrams.py", test="lectures/test_sequence_entries.py")
def bleu(quick: bool) -> Shown:
    """BLEU is the brevity penalty times the geometric mean of the clipped precisions of 1- to 4-grams (Papineni et al.
    2002, section 2.3). A candidate shorter than its reference is multiplied by exp(1 - r / c), as otherwise one safe
    word would be a perfect translation.
    """
    reference = ["the", "cat", "is", "sitting", "on", "the", "mat", "in", "the", "hall"]
    rows: list[tuple[Any, ...]] = []
    for candidate in (
        "the cat is sitting on the mat in the hall",
        "the cat is sitting on the mat",
        "a cat is sitting on the mat in the hall",
        "the mat is sitting on the cat in the hall",
        "the cat",
    ):
        words = candidate.split()
        shares = [f"{clipped_matches(words, [reference], n)}/{max(len(words) - n + 1, 0)}" for n in (1, 2, 3, 4)]
        penalty = brevity_penalty(len(words), len(reference))
        rows.append((candidate, *shares, penalty, 100 * textbook_bleu([words], [[reference]])))
    ratios = [i / 20 for i in range(4, 31)]
    line = [(ratio, brevity_penalty(round(1_000 * ratio), 1_000)) for ratio in ratios]
    return Shown(
        f"Leaving out three of ten words, all others right, costs {100 - rows[1][-1]:.0f} points; swapping two nouns "
        f"costs {100 - rows[3][-1]:.0f}.",
        [Table(" ".join(reference), ["candidate", "1", "2", "3", "4", "penalty", "BLEU"], rows)],
        [Chart("Brevity penalty", [Series("penalty", line)], x="candidate / reference")],
    )


ENTRIES = (counting, perplexity, alignment_scores, reversed_sources, bleu)
