"""Linear-chain conditional random field: scores of pairs of neighbouring tags, and the best tag sequence.

Lafferty, McCallum & Pereira, "Conditional Random Fields", ICML 2001; Lample et al., "Neural Architectures for Named
Entity Recognition", NAACL 2016, section 2.2; the recursions are those of Rabiner 1989, section III.

Shapes: M words of all sentences of a batch, concatenated; N sentences; W words of one; C tags; A sentences that have a
word at the current step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import Any

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError

AT_ONCE = 4_096  # sentences that are decoded together; the memory is proportional to this number times C * C

# The score of a forbidden step. It is finite, so that the best sequence has the fewest forbidden steps if none is
# allowed, and gradients stay finite. exp(-10,000) is 0 in every precision.
_FORBIDDEN = -1e4
_IMPOSSIBLE = -1e9  # replaces a given -inf, in double precision


class LinearChainCRF(nn.Module):
    """p(tags | words) in proportion to exp(sum of emissions + transitions + begin + end) (Lample et al. 2016, eq. 1).

    tags     number C of tags
    allowed  (between [C, C], begin [C], end [C]), true if a tag may follow another one, begin or end a sentence
             (`schemes.allowed`); other sequences have probability 0 and are never predicted. None: all are allowed

    Parameters: transitions [C, C], from the row to the column; begin [C]; end [C]. They start at zero, so that the tags
    of a sentence are independent. Folders store them, but not `allowed`.
    """

    _cost_between: Tensor
    _cost_first: Tensor
    _cost_last: Tensor

    def __init__(self, tags: int, allowed: Sequence[Any] | None = None) -> None:
        super().__init__()
        if tags < 1:
            raise UnmaskError(f"A sequence of tags needs one tag or more to choose from, not {tags}.")
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        self.begin = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self._allow(allowed)

    def log_likelihood(self, emissions_MC: Tensor, tags_M: Tensor, lengths: Sequence[int] | Tensor) -> Tensor:
        """log p of the tags of each sentence [N], in nats; the lengths of the sentences sum to M.

        Each forbidden step in the given tags adds about -10,000: convert the tags to the scheme first
        (`schemes.convert`). Raises UnmaskError if the lengths do not sum to M.
        """
        emissions = self._precise(emissions_MC)
        layout = _Layout.of(lengths, emissions)
        return self._score(emissions, tags_M, layout) - self._log_partition(emissions, layout)

    def marginals(self, emissions_MC: Tensor, lengths: Sequence[int] | Tensor) -> Tensor:
        """p(tag of a word | all words) [M, C]; rows sum to 1. It also works under `torch.no_grad()`.

        The marginals are the gradient of the log-partition by the emissions (Eisner, "Inside-Outside and
        Forward-Backward Algorithms Are Just Backprop", 2016). Raises UnmaskError if the lengths do not sum to M.
        """
        with torch.inference_mode(False), torch.enable_grad():
            emissions = self._precise(emissions_MC.detach().clone()).requires_grad_()
            layout = _Layout.of(lengths, emissions)
            if not len(emissions):
                return emissions.detach()
            total = self._log_partition(emissions, layout).sum()
            return torch.autograd.grad(total, emissions)[0]

    def decode(self, emissions_MC: Tensor, lengths: Sequence[int] | Tensor) -> list[list[int]]:
        """The most probable tags of each sentence. Raises UnmaskError if the lengths do not sum to M."""
        with torch.no_grad():
            return best_paths(self._precise(emissions_MC), lengths, *self._scores())

    def _allow(self, allowed: Sequence[Any] | None) -> None:
        """Keep the scores of forbidden steps as buffers, which move with the module but are not stored."""
        shapes = {"between": self.transitions.shape, "first": self.begin.shape, "last": self.end.shape}
        given = [None] * 3 if allowed is None else list(allowed)
        for (name, shape), part in zip(shapes.items(), given, strict=True):
            legal = torch.ones(shape, dtype=torch.bool) if part is None else torch.as_tensor(part, dtype=torch.bool)
            if legal.shape != shape:
                raise UnmaskError(f"The allowed transitions have the shape {tuple(legal.shape)}, not {tuple(shape)}.")
            self.register_buffer(f"_cost_{name}", torch.where(legal, 0.0, _FORBIDDEN), persistent=False)

    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transitions, begin and end, plus the scores of forbidden steps."""
        pairs = (
            (self.transitions, self._cost_between),
            (self.begin, self._cost_first),
            (self.end, self._cost_last),
        )
        between, begin, end = (self._precise(score) + self._precise(cost) for score, cost in pairs)
        return between, begin, end

    def _score(self, emissions: Tensor, tags: Tensor, layout: _Layout) -> Tensor:
        """The score of the given tags of each sentence [N], before normalisation."""
        between, begin, end = self._scores()
        inside = torch.where(layout.inner, between[tags[:-1], tags[1:]], 0.0)
        edges = begin[tags[layout.firsts]] + end[tags[layout.lasts]]
        total = emissions.new_zeros(len(layout.lengths))
        total = total.index_add(0, layout.owners, emissions.gather(1, tags[:, None])[:, 0])
        return total.index_add(0, layout.owners[1:], inside).index_add(0, layout.order[: len(edges)], edges)

    def _log_partition(self, emissions: Tensor, layout: _Layout) -> Tensor:
        """log of the sum over all tag sequences [N], by the forward algorithm, in steps for all sentences at once."""
        between, begin, end = self._scores()
        total = emissions.new_zeros(len(layout.lengths))
        steps = layout.steps()
        if not steps:
            return total
        forward_AC = begin + emissions[steps[0]]
        for places in steps[1:]:
            longer = forward_AC[: len(places)]
            stepped = (longer[:, :, None] + between).logsumexp(1) + emissions[places]
            forward_AC = torch.cat([stepped, forward_AC[len(places) :]])
        return total.index_copy(0, layout.order[: len(forward_AC)], (forward_AC + end).logsumexp(1))

    def _precise(self, scores: Tensor) -> Tensor:
        """The scores in at least float32: 16 bits are too few for sums over long sentences."""
        return scores.to(torch.promote_types(self.transitions.dtype, torch.float32))


def best_paths(
    scores_MC: Any, lengths: Sequence[int] | Tensor, transitions: Any, begin: Any, end: Any
) -> list[list[int]]:
    """The tags with the largest sum of scores, for each of some concatenated sentences (Viterbi 1967).

    scores_MC          emissions or log-probabilities of every word; a NumPy array or tensor, like the next three
    lengths            lengths of the sentences, which sum to M; 0 gives an empty path
    transitions [C, C] from row to column; begin [C]; end [C]. -inf forbids (`forbidden`); if every sequence is
                       forbidden, the result has the fewest forbidden steps

    Computed in double precision on the CPU. Raises UnmaskError if the lengths do not sum to M.
    """
    scores, *between = (_finite(part) for part in (scores_MC, transitions, begin, end))
    sizes = _sizes(lengths, len(scores))
    sentences = scores.split(sizes)
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])  # sentences of similar length are decoded together
    found: list[list[int]] = [[] for _ in sizes]
    for i in range(0, len(order), AT_ONCE):
        chosen = order[i : i + AT_ONCE]
        paths = _viterbi(torch.cat([sentences[j] for j in chosen]), [sizes[j] for j in chosen], *between)
        for j, path in zip(chosen, paths, strict=True):
            found[j] = path
    return found


def viterbi(scores_WC: Any, transitions: Any, begin: Any, end: Any) -> list[int]:
    """The best tags of one sentence; arguments and errors as in `best_paths`."""
    return best_paths(scores_WC, [len(scores_WC)], transitions, begin, end)[0]


def forbidden(allowed: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Transitions, begin and end: 0 where (between [C, C], begin [C], end [C]) is true, else -inf.

    With them, `best_paths` finds the most probable legal sequence of a model without learned transitions.
    """
    between, begin, end = (torch.where(torch.as_tensor(part, dtype=torch.bool), 0.0, -torch.inf) for part in allowed)
    return between, begin, end


def _viterbi(scores: Tensor, sizes: list[int], between: Tensor, begin: Tensor, end: Tensor) -> list[list[int]]:
    """The best path of each sentence, in steps for all sentences at once."""
    steps = _Layout.of(sizes, scores).steps()
    path = torch.zeros(len(scores), dtype=torch.long)
    if not steps:
        return [[] for _ in sizes]
    best_AC = begin + scores[steps[0]]
    came: list[Tensor] = []  # [A, C] for each step after the first: the previous tag on the best path to each tag
    for places in steps[1:]:
        stepped, before = (best_AC[: len(places), :, None] + between).max(1)
        best_AC = torch.cat([stepped + scores[places], best_AC[len(places) :]])
        came.append(before)
    tags = (best_AC + end).argmax(1)
    for places in reversed(steps):
        path[places] = tags[: len(places)]
        if came:
            before = came.pop()
            tags = torch.cat([before.gather(1, tags[: len(before), None])[:, 0], tags[len(before) :]])
    return [part.tolist() for part in path.split(sizes)]


@dataclass(frozen=True)
class _Layout:
    """The positions of the sentences among the M words of a batch.

    lengths  length of each sentence
    order    [N] indices of the sentences, the longest first
    starts   [N] index of the first word of each, in that order
    """

    lengths: list[int]
    order: Tensor
    starts: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int] | Tensor, words: Tensor) -> _Layout:
        """The layout for a tensor with a row for each word, on its device. Raises UnmaskError as `_sizes` does."""
        sizes = _sizes(lengths, len(words))
        sizes_N = torch.tensor(sizes, dtype=torch.long)
        order = sizes_N.argsort(descending=True, stable=True)
        starts = (sizes_N.cumsum(0) - sizes_N)[order]
        return cls(sizes, order.to(words.device), starts.to(words.device))

    def steps(self) -> list[Tensor]:
        """For each step: the indices [A] of that word of each sentence that has one, the longest sentence first."""
        ended = Counter(self.lengths)
        counts = accumulate((-ended[step] for step in range(max(self.lengths, default=0))), initial=len(self.lengths))
        return [self.starts[:count] + step for step, count in enumerate(islice(counts, 1, None))]

    @cached_property
    def owners(self) -> Tensor:
        """[M] index of the sentence of each word."""
        sizes = torch.tensor(self.lengths, dtype=torch.long)
        return torch.arange(len(sizes)).repeat_interleave(sizes).to(self.starts.device)

    @property
    def inner(self) -> Tensor:
        """[M - 1] whether a word is in the same sentence as the previous one."""
        return self.owners[1:] == self.owners[:-1]

    @property
    def firsts(self) -> Tensor:
        """The first word of each sentence that is not empty, the longest sentence first."""
        return self.starts[: sum(length > 0 for length in self.lengths)]

    @property
    def lasts(self) -> Tensor:
        """The last word of each sentence that is not empty, the longest sentence first."""
        firsts = self.firsts
        sizes = sorted(self.lengths, reverse=True)[: len(firsts)]
        return firsts + torch.tensor(sizes, dtype=torch.long, device=firsts.device) - 1


def _sizes(lengths: Sequence[int] | Tensor, words: int) -> list[int]:
    """The lengths as integers. Raises UnmaskError if one is negative or they do not sum to the number of words."""
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else [int(length) for length in lengths]
    if sum(sizes) != words or min(sizes, default=0) < 0:
        raise UnmaskError(f"The lengths of the sentences sum to {sum(sizes)}, but there are {words} words.")
    return sizes


def _finite(scores: Any) -> Tensor:
    """The scores in double precision on the CPU, with -inf replaced by a finite score, so that sums of them differ."""
    return torch.as_tensor(scores).detach().cpu().double().nan_to_num(nan=torch.nan, neginf=_IMPOSSIBLE)
