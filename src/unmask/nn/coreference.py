"""Coreference as a ranking of spans: vectors of spans, scores of mentions and of antecedents, pruning, and the loss.

Lee et al. 2017, "End-to-end Neural Coreference Resolution"; Lee et al. 2018, "Higher-order Coreference Resolution with
Coarse-to-fine Inference".

Shapes: W words of a document, D width, C candidate spans, N kept spans, K antecedents of a span, L words of the longest
span, F width of a feature, G = 3 D + F of a span vector. A span [begin, end) is a pair of word numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.nn.dropout import Dropout

BUCKETS = 10  # of distances between spans


@dataclass(frozen=True)
class Ranked:
    """The scores of a document.

    spans        [C, 2] int64, the candidates, by length and then by place
    mentions     [C] m(i), the log odds that a span is a mention
    kept         [N] int64, the candidates that are kept, in the order of the text
    antecedents  [N, K] int64, numbers of kept spans
    scores       [N, K + 1] s(i, ε) = 0, then s(i, j) for each antecedent; -inf where there is none
    """

    spans: Tensor
    mentions: Tensor
    kept: Tensor
    antecedents: Tensor
    scores: Tensor


class SpanRanking(nn.Module):
    """s(i, j) = m(i) + m(j) + c(i, j) + a(i, j) and s(i, ε) = 0 for spans i, and spans j before them.

    g(i)     [x_begin, x_last, Σ α x, φ(length)], where α is a softmax over the words of the span
    m(i)     w · relu(U g(i))
    c(i, j)  g(i)ᵀ V g(j), which chooses the K antecedents of each span (2018)
    a(i, j)  w · relu(U [g(i), g(j), g(i) ∘ g(j), φ(distance)])
    """

    def __init__(self, dim: int, longest: int, *, hidden: int = 150, features: int = 20, dropout: float = 0.2) -> None:
        super().__init__()
        size = 3 * dim + features
        self.dropout = Dropout(dropout)
        self.attention = nn.Linear(dim, 1)
        self.length = nn.Embedding(longest, features)
        self.mention = nn.Linear(size, hidden)
        self.mention_score = nn.Linear(hidden, 1)
        self.coarse = nn.Linear(size, size, bias=False)
        self.distance = nn.Embedding(BUCKETS, features)
        self.anaphor = nn.Linear(size, hidden)  # with the next three, U of the concatenation
        self.antecedent = nn.Linear(size, hidden, bias=False)
        self.product = nn.Linear(size, hidden, bias=False)
        self.apart = nn.Linear(features, hidden, bias=False)
        self.pair_score = nn.Linear(hidden, 1)

    @property
    def longest(self) -> int:
        """Words of the longest span."""
        return self.length.num_embeddings

    @torch.no_grad()
    def on_a_trunk(self) -> None:
        """Scale new weights, as `Classifier.on_a_trunk` does."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(layer.in_features**-0.5 / layer.weight.square().mean().sqrt())

    def forward(self, x_WD: Tensor, sentence_W: np.ndarray, share: float, most: int) -> Ranked:
        """The scores of a document.

        sentence_W  number of the sentence of each word, ascending; a span does not leave its sentence
        share       λ: spans that are kept, as a share of the words
        most        K: antecedents of a span that are scored
        """
        spans = candidates(sentence_W, self.longest)
        spans_C2 = torch.from_numpy(spans).to(x_WD.device)
        g_CG = self.vectors(x_WD, spans_C2)
        mentions_C = self.mention_score(self.dropout(self.mention(g_CG).relu()))[:, 0].float()
        kept = pruned(spans, mentions_C.detach().cpu().numpy(), max(1, int(share * len(x_WD))))
        kept_N = torch.from_numpy(kept).to(x_WD.device)
        antecedents_NK, scores_NK = self.rank(g_CG[kept_N], mentions_C[kept_N], most)
        return Ranked(spans_C2, mentions_C, kept_N, antecedents_NK, F.pad(scores_NK, (1, 0)))

    def vectors(self, x_WD: Tensor, spans_C2: Tensor) -> Tensor:
        """g [C, G]."""
        begin_C, last_C = spans_C2[:, 0], spans_C2[:, 1] - 1
        score_W1 = self.attention(x_WD)
        weight_W1 = (score_W1 - score_W1.amax()).clamp(min=-80).exp()  # above 0, or a span could have no weight
        # Row l of a sum is that of the l + 1 words from each place on.
        sums_LWD, weights_LW1 = (self._sums(x) for x in (weight_W1 * x_WD, weight_W1))
        length_C = last_C - begin_C
        head_CD = sums_LWD[length_C, begin_C] / weights_LW1[length_C, begin_C]
        return self.dropout(torch.cat([x_WD[begin_C], x_WD[last_C], head_CD, self.length(length_C)], -1))

    def _sums(self, x_WE: Tensor) -> Tensor:
        """[L, W, E]: x[w] + … + x[w + l], with zeros after the end."""
        return torch.stack([F.pad(x_WE, (0, 0, 0, i))[i : i + len(x_WE)] for i in range(self.longest)]).cumsum(0)

    def rank(self, g_NG: Tensor, mentions_N: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """The antecedents [N, K] of each span with the best m(i) + m(j) + c(i, j), and s(i, j) [N, K]."""
        N = len(g_NG)
        number_N = torch.arange(N, device=g_NG.device)
        coarse_NN = mentions_N[:, None] + mentions_N + self.coarse(g_NG) @ g_NG.T
        coarse_NN = coarse_NN.masked_fill(number_N[:, None] <= number_N, -torch.inf)
        coarse_NK, antecedents_NK = coarse_NN.topk(min(most, N), -1)
        hidden_NKH = (
            self.anaphor(g_NG)[:, None]
            + self.antecedent(g_NG)[antecedents_NK]
            + self.product(g_NG[:, None] * g_NG[antecedents_NK])
            + self.apart(self.distance(bucket(number_N[:, None] - antecedents_NK)))
        )
        return antecedents_NK, coarse_NK + self.pair_score(self.dropout(hidden_NKH.relu()))[..., 0].float()


def candidates(sentence_W: np.ndarray, longest: int) -> np.ndarray:
    """All spans [C, 2] of at most `longest` words of one sentence, by length and then by place."""
    begin = np.arange(len(sentence_W))
    found = []
    for length in range(1, min(longest, len(begin)) + 1):
        inside = begin[: len(begin) - length + 1]
        inside = inside[sentence_W[inside] == sentence_W[inside + length - 1]]
        found.append(np.stack([inside, inside + length], 1))
    return np.concatenate(found) if found else np.empty((0, 2), np.int64)


def pruned(spans_C2: np.ndarray, scores_C: np.ndarray, most: int) -> np.ndarray:
    """The numbers of at most `most` spans, in the order of the text: the best first, without those that cross a better
    one: begin inside it and end outside, or the reverse (Lee et al. 2017)."""
    furthest: dict[int, int] = {}  # begin -> the last end of kept spans
    first: dict[int, int] = {}  # end -> the first begin
    kept: list[int] = []
    for i in np.argsort(-scores_C, kind="stable").tolist():
        if len(kept) == most:
            break
        begin, end = spans_C2[i].tolist()
        inner = range(begin + 1, end)
        if any(furthest.get(w, 0) > end or first.get(w, begin) < begin for w in inner):
            continue
        kept.append(i)
        furthest[begin] = max(furthest.get(begin, 0), end)
        first[end] = min(first.get(end, begin), begin)
    order = sorted(kept, key=lambda i: (spans_C2[i, 0], spans_C2[i, 1]))
    return np.array(order, np.int64)


def bucket(distance: Tensor) -> Tensor:
    """Distances from 0 to 4 have a bucket each; then 5-7, 8-15, 16-31, 32-63, 64 and more."""
    powers = distance.clamp(min=1).log2().floor().long() + 3
    return torch.where(distance <= 4, distance, powers).clamp(0, BUCKETS - 1)


def marginal_loss(scores_NK: Tensor, gold_NK: Tensor) -> Tensor:
    """-Σ log Σ p(j | i) over the antecedents that are correct, where p is the softmax of s(i, ·) (Lee et al.
    2017): [N, K + 1], bool [N, K + 1] -> a sum in nats. Each row must have a correct antecedent; the first, ε, is
    that of spans without any."""
    return (scores_NK.logsumexp(-1) - scores_NK.masked_fill(~gold_NK, -torch.inf).logsumexp(-1)).sum()


def gold_antecedents(ranked: Ranked, cluster_N: Sequence[int]) -> Tensor:
    """[N, K + 1] bool: the antecedents of the same cluster, or ε where there is none.

    cluster_N  number of the cluster of each kept span; -1 for none
    """
    cluster = torch.tensor(cluster_N, device=ranked.scores.device)
    same_NK = (cluster[ranked.antecedents] == cluster[:, None]) & (cluster[:, None] >= 0)
    same_NK &= ranked.scores[:, 1:].isfinite()
    return torch.cat([~same_NK.any(-1, keepdim=True), same_NK], -1)
