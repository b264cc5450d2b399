"""Linear-chain conditional random field: scores for pairs of neighbouring tags, and the best of all tag sequences.

Lafferty, McCallum & Pereira, "Conditional Random Fields", ICML 2001; Lample et al., "Neural Architectures for Named
Entity Recognition", NAACL 2016, section 2.2; the recursions are those of Rabiner 1989, section III.

Shapes: M words of all sentences of a batch, one after the other; N sentences; W words of one; C tags; A sentences that
are long enough to have a word at the step.
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

AT_ONCE = 4_096  # sentences that are decoded together: what is held grows with them times C * C

# What a step that is not allowed costs. Not infinity: where nothing is allowed, the sequence with the fewest such steps
# is still the best one, and gradients stay numbers. exp(-10,000) is 0 in every precision.
_FORBIDDEN = -1e4
_IMPOSSIBLE = -1e9  # in place of an infinite cost that is given, in double precision


class LinearChainCRF(nn.Module):
    """p(tags | words) in proportion to exp(sum of emissions + transitions + begin + end) (Lample et al. 2016, eq. 1).

    tags     number C of tags
    allowed  (between [C, C], begin [C], end [C]), true where a tag may follow another, begin and end a sentence
             (`schemes.allowed`); sequences that are not allowed have no probability and are never the answer. None:
             all are allowed

    Parameters, zero at first, so that every word is judged alone: transitions [C, C], from the row to the column; begin
    [C]; end [C]. They are stored, `allowed` is not.
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

        A sentence whose own tags are not allowed has about -10,000 for each such step: turn the tags into the scheme
        first (`schemes.convert`). Raises UnmaskError where the lengths do not sum to M.
        """
        emissions = self._precise(emissions_MC)
        layout = _Layout.of(lengths, emissions)
        return self._score(emissions, tags_M, layout) - self._log_partition(emissions, layout)

    def marginals(self, emissions_MC: Tensor, lengths: Sequence[int] | Tensor) -> Tensor:
        """p(tag of a word | all words) [M, C]; rows sum to 1. Works also where gradients are switched off.

        It is the gradient of the log-partition by the emissions (Eisner, "Inside-Outside and Forward-Backward
        Algorithms Are Just Backprop", 2016).
        """
        with torch.inference_mode(False), torch.enable_grad():
            emissions = self._precise(emissions_MC.detach().clone()).requires_grad_()
            layout = _Layout.of(lengths, emissions)
            if not len(emissions):
                return emissions.detach()
            total = self._log_partition(emissions, layout).sum()
            return torch.autograd.grad(total, emissions)[0]

    def decode(self, emissions_MC: Tensor, lengths: Sequence[int] | Tensor) -> list[list[int]]:
        """The most probable tags of each sentence. Raises UnmaskError where the lengths do not sum to M."""
        with torch.no_grad():
            return best_paths(self._precise(emissions_MC), lengths, *self._scores())

    def _allow(self, allowed: Sequence[Any] | None) -> None:
        """Keep the costs of what is not allowed as buffers, which move with the module but are not stored."""
        shapes = {"between": self.transitions.shape, "first": self.begin.shape, "last": self.end.shape}
        given = [None] * 3 if allowed is None else list(allowed)
        for (name, shape), part in zip(shapes.items(), given, strict=True):
            legal = torch.ones(shape, dtype=torch.bool) if part is None else torch.as_tensor(part, dtype=torch.bool)
            if legal.shape != shape:
                raise UnmaskError(f"What is allowed has the shape {tuple(legal.shape)}, but must have {tuple(shape)}.")
            self.register_buffer(f"_cost_{name}", torch.where(legal, 0.0, _FORBIDDEN), persistent=False)

    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transitions, begin and end with the costs of what is not allowed."""
        pairs = (
            (self.transitions, self._cost_between),
            (self.begin, self._cost_first),
            (self.end, self._cost_last),
        )
        between, begin, end = (self._precise(score) + self._precise(cost) for score, cost in pairs)
        return between, begin, end

    def _score(self, emissions: Tensor, tags: Tensor, layout: _Layout) -> Tensor:
        """The exponent of each sentence's own tags [N]."""
        between, begin, end = self._scores()
        inside = torch.where(layout.inner, between[tags[:-1], tags[1:]], 0.0)
        edges = begin[tags[layout.firsts]] + end[tags[layout.lasts]]
        total = emissions.new_zeros(len(layout.lengths))
        total = total.index_add(0, layout.owners, emissions.gather(1, tags[:, None])[:, 0])
        return total.index_add(0, layout.owners[1:], inside).index_add(0, layout.order[: len(edges)], edges)

    def _log_partition(self, emissions: Tensor, layout: _Layout) -> Tensor:
        """log of the sum over all tag sequences [N]: the forward algorithm, a step for all sentences at once."""
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
        """In single precision at least: sums over long sentences are beyond the half ones."""
        return scores.to(torch.promote_types(self.transitions.dtype, torch.float32))


def best_paths(
    scores_MC: Any, lengths: Sequence[int] | Tensor, transitions: Any, begin: Any, end: Any
) -> list[list[int]]:
    """The tags of each sentence with the largest sum of scores (Viterbi 1967), for sentences one after the other.

    scores_MC          emissions or log-probabilities of every word; NumPy arrays or tensors, as are the others
    lengths            of the sentences, which sum to M; 0 gives an empty path
    transitions [C, C] from row to column; begin [C]; end [C]. -inf forbids (`forbidden`); where every sequence is
                       forbidden, the one with the fewest forbidden steps is the answer

    Computed in double precision on the CPU. Raises UnmaskError where the lengths do not sum to M.
    """
    scores, *between = (_finite(part) for part in (scores_MC, transitions, begin, end))
    sizes = _sizes(lengths, len(scores))
    sentences = scores.split(sizes)
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])  # those of about one length are decoded together
    found: list[list[int]] = [[] for _ in sizes]
    for i in range(0, len(order), AT_ONCE):
        chosen = order[i : i + AT_ONCE]
        paths = _viterbi(torch.cat([sentences[j] for j in chosen]), [sizes[j] for j in chosen], *between)
        for j, path in zip(chosen, paths, strict=True):
            found[j] = path
    return found


def viterbi(scores_WC: Any, transitions: Any, begin: Any, end: Any) -> list[int]:
    """The best tags of one sentence; the arguments and errors are those of `best_paths`."""
    return best_paths(scores_WC, [len(scores_WC)], transitions, begin, end)[0]


def forbidden(allowed: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Transitions, begin and end that only forbid: 0 where (between [C, C], begin [C], end [C]) is true, else -inf.

    With them `best_paths` finds the most probable of the legal sequences where nothing was learned of neighbours.
    """
    between, begin, end = (torch.where(torch.as_tensor(part, dtype=torch.bool), 0.0, -torch.inf) for part in allowed)
    return between, begin, end


def _viterbi(scores: Tensor, sizes: list[int], between: Tensor, begin: Tensor, end: Tensor) -> list[list[int]]:
    """The best path of each sentence, a step for all of them at once."""
    steps = _Layout.of(sizes, scores).steps()
    path = torch.zeros(len(scores), dtype=torch.long)
    if not steps:
        return [[] for _ in sizes]
    best_AC = begin + scores[steps[0]]
    came: list[Tensor] = []  # [A, C] of each step but the first: the tag before, on the best path to each tag
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
    """Where the sentences of a batch are among its M words.

    lengths  of each sentence
    order    [N] the sentences, long ones first
    starts   [N] the first word of each, in that order
    """

    lengths: list[int]
    order: Tensor
    starts: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int] | Tensor, words: Tensor) -> _Layout:
        """For as many words as the tensor has rows, on its device."""
        sizes = _sizes(lengths, len(words))
        sizes_N = torch.tensor(sizes, dtype=torch.long)
        order = sizes_N.argsort(descending=True, stable=True)
        starts = (sizes_N.cumsum(0) - sizes_N)[order]
        return cls(sizes, order.to(words.device), starts.to(words.device))

    def steps(self) -> list[Tensor]:
        """For the first words, the second ones and so on: the places [A] of those that there are, long ones first."""
        ended = Counter(self.lengths)
        counts = accumulate((-ended[step] for step in range(max(self.lengths, default=0))), initial=len(self.lengths))
        return [self.starts[:count] + step for step, count in enumerate(islice(counts, 1, None))]

    @cached_property
    def owners(self) -> Tensor:
        """[M] the sentence of each word."""
        sizes = torch.tensor(self.lengths, dtype=torch.long)
        return torch.arange(len(sizes)).repeat_interleave(sizes).to(self.starts.device)

    @property
    def inner(self) -> Tensor:
        """[M - 1] whether a word is in the sentence of the one before it."""
        return self.owners[1:] == self.owners[:-1]

    @property
    def firsts(self) -> Tensor:
        """The first word of each sentence that has any, long ones first."""
        return self.starts[: sum(length > 0 for length in self.lengths)]

    @property
    def lasts(self) -> Tensor:
        """The last word of each sentence that has any, long ones first."""
        firsts = self.firsts
        sizes = sorted(self.lengths, reverse=True)[: len(firsts)]
        return firsts + torch.tensor(sizes, dtype=torch.long, device=firsts.device) - 1


def _sizes(lengths: Sequence[int] | Tensor, words: int) -> list[int]:
    """The lengths as numbers. Raises UnmaskError where they do not sum to the number of words."""
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else [int(length) for length in lengths]
    if sum(sizes) != words or min(sizes, default=0) < 0:
        raise UnmaskError(f"The lengths of the sentences sum to {sum(sizes)}, but there are {words} words.")
    return sizes


def _finite(scores: Any) -> Tensor:
    """In double precision on the CPU, with a large cost for -inf: two of them can still be told from one."""
    return torch.as_tensor(scores).detach().cpu().double().nan_to_num(nan=torch.nan, neginf=_IMPOSSIBLE)
