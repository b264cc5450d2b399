"""The values that cross every boundary: Document and Example (one sequence), Batch (rows of them), Target and Loss,
and Head, a question to a model.

Shapes: B rows, T places of a row, N sequences of a batch (N > B where rows are packed), M places that a target or a
signal names, R sequences that are parted by boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.places import Kind, Placed, Signal, Target, among

__all__ = [
    "Batch",
    "Document",
    "Example",
    "Head",
    "Kind",
    "Loss",
    "Placed",
    "Signal",
    "Target",
    "boundaries_of",
    "concatenate",
]


@dataclass(frozen=True, slots=True)
class Head:
    """What a model is asked for. A page builds the layer that answers it by the kind (`models.heads`), and never by the
    name of the objective or task that asks.

    kind         masked_token: the token that stands at a place, which the input hides
                 next_token: the token after a place, from those up to it
                 words: the words before and behind a place, each from its own side
                 token: classes, or a number, at any place
                 sequence: classes, or a number, for a whole sequence
                 choice: one score for a sequence, which is compared with those of others
                 span: how well a place begins, and ends, an answer
                 vectors: classes of two vectors u and v, from (u, v, |u - v|)
                 pixels: all patches of a picture, from those that a model reads
                 projection: a vector that is compared with others, from the state at a place
                 transitions: scores of neighbouring classes (CRF), on top of those of a `token` head
    outputs      numbers of an answer; 0 where the vocabulary decides
    pretraining  asked together with the trunk's pre-training: no dropout of a classifier stands before it
    """

    kind: str
    outputs: int = 0
    pretraining: bool = False

    @property
    def has_labels(self) -> bool:
        """Whether its outputs have names, which a folder keeps: classes and scores of texts and words."""
        return self.kind in ("sequence", "token") and not self.pretraining

    @property
    def of_sequence(self) -> bool:
        """Whether it reads the summary of a sequence, not the state of a place."""
        return self.kind in ("sequence", "choice")


@dataclass(frozen=True, slots=True)
class Document:
    """A document, or a piece of a long one, as an objective samples it.

    sentences  integer ids of each sentence, without special tokens
    index      number of the document in its corpus; pieces of one document share it
    """

    sentences: list[np.ndarray]
    index: int


@dataclass(slots=True)
class Example:
    """One sequence, special tokens included, before it is packed or padded into rows.

    tokens    [T] integer ids, or kinds of places
    segments  [T] integer ids, or None for all zero
    targets   name -> (places [M] within this sequence, values [M] class ids or floats, or vectors [M, C]); with a third
              array, lengths [M], the values are sequences laid end to end
    signal    the same form, of raw values that ids cannot carry; None where there are none
    """

    tokens: np.ndarray
    segments: np.ndarray | None = None
    targets: Mapping[str, tuple[np.ndarray, ...]] = field(default_factory=dict)
    signal: tuple[np.ndarray, ...] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of places: one sequence a row, padded, or several a row, packed.

    tokens     [B, T] int64: what stands at each place, an id of the vocabulary or one of `Kind`
    documents  [B, T] int64: which sequence of its row a token belongs to, from 1; 0 is padding.
               None means one sequence a row and no padding, which is the fastest case.
    positions  [B, T] int64: place within its own sequence; None means 0 … T-1 in every row
    segments   [B, T] int64; None means all zero
    starts     [N] int64: where each sequence begins in the flattened rows, in the order of the examples
    targets    name -> Target; every loss term is named after one of them
    signal     raw values of the places that ids cannot describe
    source     what an encoder–decoder reads while it writes `tokens`: row b belongs to row b. `tokens` then begin with
               the token that starts a sequence, and the target of each place is the token after it
    streams    [B] int64: rows that go on where the row of the same number ended, in the batch before; `positions` say
               how many tokens of its sequence stand before each, those of earlier batches included. None: they do not
    boundaries [R + 1] int32: what `boundaries_of` reads off the documents; `to` adds it when it moves the batch

    `LAYOUTS` says how each field lies along the rows; nothing else lists the fields.
    """

    tokens: Tensor
    _: KW_ONLY
    documents: Tensor | None = None
    positions: Tensor | None = None
    segments: Tensor | None = None
    starts: Tensor | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    signal: Signal | None = None
    source: Batch | None = None
    streams: Tensor | None = None
    boundaries: Tensor | None = None

    @classmethod
    def of_vectors(cls, values_BF: Tensor) -> Batch:
        """A given vector a row, each of them one place."""
        B = len(values_BF)
        return cls(torch.full((B, 1), Kind.SIGNAL), signal=Signal(torch.arange(B), values_BF))

    def map(self, function: Callable[[Tensor], Any]) -> Batch:
        """The same with each tensor, those of the source included, replaced by what `function` makes of it."""

        def over(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: over(part) for name, part in value.items()}
            return None if value is None else value.map(function) if hasattr(value, "map") else function(value)

        return Batch(**{name: over(getattr(self, name)) for name in LAYOUTS})

    def to(self, device: torch.device | str, *, pin: bool = False) -> Batch:
        """The same batch on a device. Boundaries are read off before it moves to another one, as reading values there
        would wait for it.

        pin  whether to copy it from pinned memory (`kernels.devices.pins`)
        """
        stays = torch.empty(0, device=device).device == self.tokens.device
        batch, pin = (self, False) if stays else (self.with_boundaries(), pin)
        return batch.map(lambda x: (x.pin_memory() if pin else x).to(device, non_blocking=True))

    def with_boundaries(self) -> Batch:
        """The same with the boundaries of its documents, and of those of its source."""
        boundaries = self.boundaries
        if boundaries is None and self.documents is not None:
            boundaries = boundaries_of(self.documents)
        return replace(
            self, boundaries=boundaries, source=None if self.source is None else self.source.with_boundaries()
        )

    def take(self, rows: np.ndarray) -> Batch:
        """The given rows [B'], in this order, each at most once, with all that belongs to them: starts keep the order
        of the examples, targets are sorted by their new places. `boundaries` are left out; `to` adds them. The batch
        must be on the CPU."""
        return self._changed(lambda layout, value: layout.take(value, rows, self.tokens.shape[1]))

    def rows(self, begin: int, end: int) -> Batch:
        """Rows `begin` … `end - 1` with all that belongs to them."""
        return self.take(np.arange(begin, min(end, self.tokens.shape[0])))

    def widen(self, more: int) -> Batch:
        """The same with `more` places of padding at the end of each row."""
        if not more:
            return self
        documents = torch.ones_like(self.tokens) if self.documents is None else self.documents
        T = self.tokens.shape[1]
        return replace(self, documents=documents)._changed(lambda layout, value: layout.widen(value, T, more))

    def _changed(self, change: Callable[[Layout, Any], Any]) -> Batch:
        given: dict[str, Any] = {name: getattr(self, name) for name in LAYOUTS}
        changed: dict[str, Any] = {k: None if x is None else change(LAYOUTS[k], x) for k, x in given.items()}
        return Batch(**changed)

    def with_targets(self, **targets: Target) -> Batch:
        """The same rows with these targets added or replaced."""
        return replace(self, targets={**self.targets, **targets})

    def asking(self, names: Iterable[str]) -> Batch:
        """The same rows with a target at no place for each of these names that has none: a sum over nothing is 0, and
        its gradient is 0 for all parameters of the head, not missing."""
        nowhere = self.tokens.new_empty(0, dtype=torch.int64)
        more = {name: Target(nowhere, nowhere) for name in names if name not in self.targets}
        return self.with_targets(**more) if more else self

    @property
    def counts(self) -> dict[str, int]:
        """Number of places of each loss term: the denominators, known before the forward pass."""
        return {name: target.places.numel() for name, target in self.targets.items()}

    @property
    def lengths(self) -> Tensor | None:
        """[B] int64 tokens of each row that are not padding, where rows hold one sequence each; None: all of them."""
        return None if self.documents is None else (self.documents > 0).sum(1)

    @property
    def sequence_starts(self) -> Tensor | None:
        """`starts`, which need not be given where every row is one sequence; None where nothing tells."""
        if self.starts is None and self.documents is None:
            return torch.arange(self.tokens.shape[0]) * self.tokens.shape[1]
        return self.starts

    @property
    def real_tokens(self) -> int:
        """Tokens that are not padding, those of the source included."""
        own = self.tokens.numel() if self.documents is None else int((self.documents > 0).sum())
        return own if self.source is None else own + self.source.real_tokens


class Layout(NamedTuple):
    """How a field of a batch lies along its rows, as what becomes of it when the rows change.

    take   (value, rows [B'], T) -> the value of these rows, in this order
    widen  (value, T, more) -> the value of rows with `more` places of padding added at their end
    join   (values, batches) -> the value of the rows of all batches, one after the other; some values may be None
    """

    take: Callable[[Any, np.ndarray, int], Any]
    widen: Callable[[Any, int, int], Any]
    join: Callable[[Sequence[Any], Sequence[Batch]], Any]


def _take(x: Tensor, rows: np.ndarray, T: int) -> Tensor:
    # NumPy, for this runs beside the training step, where torch would start a second team of threads.
    return torch.from_numpy(x.numpy()[rows])


def _take_starts(starts: Tensor, rows: np.ndarray, T: int) -> Tensor:
    places = among(starts.numpy(), rows, T)
    return torch.from_numpy(places[places >= 0])


def _join_starts(values: Sequence[Tensor | None], batches: Sequence[Batch]) -> Tensor | None:
    """None where rows of several sequences do not say where these start."""
    known = [starts for starts in (batch.sequence_starts for batch in batches) if starts is not None]
    if len(known) < len(batches):
        return None
    return torch.cat([starts + origin for starts, origin in zip(known, _origins(batches), strict=True)])


def _origins(batches: Sequence[Batch]) -> list[int]:
    """The flat place where each batch begins when their rows follow one another."""
    return [0, *np.cumsum([batch.tokens.numel() for batch in batches[:-1]]).tolist()]


def _join_targets(values: Sequence[Mapping[str, Target]], batches: Sequence[Batch]) -> dict[str, Target | None]:
    names = dict.fromkeys(name for targets in values for name in targets)
    return {name: Target.join([targets.get(name) for targets in values], _origins(batches)) for name in names}


def _numbers(absent: Callable[[Batch], Tensor]) -> Layout:
    """[B, T], a number for each place; `absent` gives what None stands for."""

    def join(values: Sequence[Tensor | None], batches: Sequence[Batch]) -> Tensor | None:
        if all(x is None for x in values):
            return None
        return torch.cat([absent(b) if x is None else x for x, b in zip(values, batches, strict=True)])

    return Layout(_take, lambda x, T, more: F.pad(x, (0, more)), join)


LAYOUTS: Mapping[str, Layout] = {
    "tokens": _numbers(lambda batch: batch.tokens),
    "documents": _numbers(lambda batch: torch.ones_like(batch.tokens)),
    "positions": _numbers(lambda batch: torch.arange(batch.tokens.shape[1]).expand(batch.tokens.shape)),
    "segments": _numbers(lambda batch: torch.zeros_like(batch.tokens)),
    "starts": Layout(_take_starts, lambda starts, T, more: starts + starts // T * more, _join_starts),
    "targets": Layout(
        lambda targets, rows, T: {name: target.take(rows, T) for name, target in targets.items()},
        lambda targets, T, more: {name: target.widen(T, more) for name, target in targets.items()},
        _join_targets,
    ),
    "signal": Layout(Signal.take, Signal.widen, lambda values, batches: Signal.join(values, _origins(batches))),
    "source": Layout(
        lambda source, rows, T: source.take(rows),
        lambda source, T, more: source,
        lambda values, batches: None if values[0] is None else concatenate(values),
    ),
    # A stream continues from one batch to the next, which rows of several batches cannot.
    "streams": Layout(_take, lambda x, T, more: x, lambda values, batches: None),
    # Read off the documents again when the batch is moved.
    "boundaries": Layout(lambda *_: None, lambda *_: None, lambda *_: None),
}
"""Field of a batch -> what becomes of it when the rows change."""


def concatenate(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches of one width, in order; optional fields that some lack are filled in.

    `starts` is None where a batch that has several sequences a row lacks it. Rows with sources are filled up to the
    longest on both sides. Raises UnmaskError for no batches, different widths where there are no sources, and where
    only some have them.
    """
    if len(batches) == 1:
        return batches[0]
    sources = [batch.source for batch in batches if batch.source is not None]
    if len(sources) not in (0, len(batches)):
        raise UnmaskError("Batches with sources can be joined only with others that have them.")
    if sources:
        written, read = _widened(batches), _widened(sources)
        batches = [replace(batch, source=source) for batch, source in zip(written, read, strict=True)]
    widths = {batch.tokens.shape[1] for batch in batches}
    if len(widths) != 1:
        raise UnmaskError(f"Batches can be joined only where their rows have one length, not {sorted(widths)}.")
    values = {name: [getattr(batch, name) for batch in batches] for name in LAYOUTS}
    return Batch(**{name: layout.join(values[name], batches) for name, layout in LAYOUTS.items()})


def _widened(batches: Sequence[Batch]) -> list[Batch]:
    """The batches with padding at the end of their rows, all as long as the longest."""
    longest = max(batch.tokens.shape[1] for batch in batches)
    return [batch.widen(longest - batch.tokens.shape[1]) for batch in batches]


def boundaries_of(documents_BT: Tensor) -> Tensor:
    """Where each sequence of tokens of one document begins in the flattened rows, padding included, and where the last
    one ends: [R + 1] int32, ascending from 0 to B * T. The end is repeated until R is a power of two, beyond 256 a
    multiple of it: compiled graphs want few shapes, and backward has some memory for empty sequences, too."""
    begins_BT = torch.ones_like(documents_BT, dtype=torch.bool)
    begins_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    begins = begins_BT.flatten().nonzero().squeeze(1).int()
    R = 1 << (len(begins) - 1).bit_length() if 0 < len(begins) <= 256 else -(-len(begins) // 256) * 256
    return F.pad(begins, (0, R + 1 - len(begins)), value=documents_BT.numel())


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss term as a sum and a count, never a mean: sums add up over micro-batches and ranks, means do not.

    sum      scalar tensor with the graph
    count    number of targets summed over; equals `Batch.counts` of the same name
    metrics  name -> sum over the same targets (a scalar without the graph), e.g. the number answered correctly
    """

    sum: Tensor
    count: int
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
