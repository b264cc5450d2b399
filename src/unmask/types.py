"""The values that all rooms exchange: Document and Example (one sequence), Batch (rows of sequences), Target, Loss, and
Head, which describes one output layer of a model.

Shapes: B rows, T places of a row, N sequences of a batch (N > B if rows are packed), M places of a target or a signal,
R sequences between boundaries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    "Unread",
    "boundaries_of",
    "concatenate",
]


@dataclass(frozen=True, slots=True)
class Head:
    """One output layer of a model. A page builds it by its kind (`models.heads`), and never by the name of the
    objective or task that requests it.

    kind         masked_token: the token at a masked place
                 next_token: the token after a place, from the tokens up to that place
                 words: the previous and the next word of a place, each from the states of its direction
                 token: classes, or a number, at any place
                 sequence: classes, or a number, for a whole sequence
                 embedding: a vector for a whole sequence, which is compared with others
                 choice: one score for a sequence, which is compared with the scores of other sequences
                 span: the scores of a place as the start and as the end of an answer
                 vectors: classes of two vectors u and v, from (u, v, |u - v|)
                 pixels: all patches of a picture, from the visible ones
                 projection: a vector that is compared with others, from the state at a place
                 span_ranking: scores of spans as mentions, and of the spans before each as its antecedent; the number
                     of outputs is that of the words of the longest span
                 transitions: scores of neighbouring classes (CRF), added to those of a `token` head
                 prototypes: cosines of a vector, which an `embedding` head returns, with a direction for each class
                 quantised: vectors of states and of quantised frames, which are compared (wav2vec 2.0)
                 clusters: the cluster of the frame at a place (HuBERT)
                 next_sample: the level of the sample after a place (WaveNet)
    outputs      number of outputs; 0 if the size of the vocabulary determines it
    pretraining  whether it is pre-trained together with the trunk: it then has no classifier dropout before it
    """

    kind: str
    outputs: int = 0
    pretraining: bool = False

    @property
    def has_labels(self) -> bool:
        """Whether its outputs have names, which a folder stores: classes and scores of texts and words."""
        return self.kind in ("sequence", "token", "prototypes") and not self.pretraining

    @property
    def of_sequence(self) -> bool:
        """Whether it reads the summary of a sequence instead of the state at a place."""
        return self.kind in ("sequence", "embedding", "choice")


@dataclass(frozen=True, slots=True)
class Document:
    """A document, or a piece of a long one, from which an objective samples sequences.

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
              array, lengths [M], the values are concatenated sequences
    signal    raw values that ids cannot describe, in the same form; None if there are none
    """

    tokens: np.ndarray
    segments: np.ndarray | None = None
    targets: Mapping[str, tuple[np.ndarray, ...]] = field(default_factory=dict)
    signal: tuple[np.ndarray, ...] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of places: one padded sequence a row, or several packed ones.

    tokens     [B, T] int64: the id of the vocabulary or the `Kind` at each place
    documents  [B, T] int64: the number, within its row, of the sequence that a token belongs to, from 1; 0 is padding.
               None means one sequence a row and no padding, which is the fastest case.
    positions  [B, T] int64: index within the sequence; None means 0 … T-1 in every row
    segments   [B, T] int64; None means all zero
    starts     [N] int64: the place in the flattened rows where each sequence begins, in the order of the examples
    targets    name -> Target; each loss term has the name of one of them
    signal     raw values at the places that ids cannot describe
    source     the input of an encoder–decoder: its row b is the source of row b of `tokens`. `tokens` then begin with
               the start token, and the target of each place is the token after it
    streams    [B] int64: stream of each row, which continues the row with the same number in the previous batch;
               `positions` then count the tokens of earlier batches too. None: rows do not continue
    boundaries [R + 1] int32: sequence boundaries, which `boundaries_of` computes from `documents`; `to` adds them when
               it moves the batch

    `LAYOUTS` has an entry for each field, with the layout of the field along the rows; nothing else lists the fields.
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
        """A batch of given vectors [B, F]: one row, of one place, for each vector."""
        B = len(values_BF)
        return cls(torch.full((B, 1), Kind.SIGNAL), signal=Signal(torch.arange(B), values_BF))

    def map(self, function: Callable[[Tensor], Any]) -> Batch:
        """A copy with `function` applied to each tensor, those of the source included."""

        def over(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: over(part) for name, part in value.items()}
            return None if value is None else value.map(function) if hasattr(value, "map") else function(value)

        return Batch(**{name: over(getattr(self, name)) for name in LAYOUTS})

    def to(self, device: torch.device | str, *, pin: bool = False) -> Batch:
        """The same batch on a device. Boundaries are computed before the batch moves to another device, because reading
        values there would wait for that device.

        pin  whether to copy it from pinned memory (`kernels.devices.pins`)
        """
        if torch.empty(0, device=device).device == self.tokens.device:
            return self
        return self.with_boundaries().map(lambda x: (x.pin_memory() if pin else x).to(device, non_blocking=True))

    def with_boundaries(self) -> Batch:
        """A copy with the sequence boundaries of the batch and of its source."""
        boundaries = self.boundaries
        if boundaries is None and self.documents is not None:
            boundaries = boundaries_of(self.documents)
        return replace(
            self, boundaries=boundaries, source=None if self.source is None else self.source.with_boundaries()
        )

    def take(self, rows: np.ndarray) -> Batch:
        """A batch of the given rows [B'], in this order, each at most once: starts keep the order of the examples,
        targets are sorted by their new places. `boundaries` are left out; `to` adds them. The batch must be on the
        CPU."""
        return self._changed(lambda layout, value: layout.take(value, rows, self.tokens.shape[1]))

    def rows(self, begin: int, end: int) -> Batch:
        """A batch of the rows `begin` … `end - 1`."""
        return self.take(np.arange(begin, min(end, self.tokens.shape[0])))

    def widen(self, more: int) -> Batch:
        """A copy with `more` places of padding at the end of each row."""
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
        """A copy with an empty target for each of these names that has none. The head of an empty target still runs:
        its loss is 0, and the gradients of its parameters are 0 instead of missing."""
        nowhere = self.tokens.new_empty(0, dtype=torch.int64)
        more = {name: Target(nowhere, nowhere) for name in names if name not in self.targets}
        return self.with_targets(**more) if more else self

    @property
    def counts(self) -> dict[str, int]:
        """Number of places of each loss term: the denominators, known before the forward pass."""
        return {name: target.places.numel() for name, target in self.targets.items()}

    @property
    def lengths(self) -> Tensor | None:
        """[B] int64: number of tokens of each row that are not padding, if rows hold one sequence each; None: no row is
        padded."""
        return None if self.documents is None else (self.documents > 0).sum(1)

    @property
    def sequence_starts(self) -> Tensor | None:
        """`starts`, computed if every row is one sequence without padding; None if they are unknown."""
        if self.starts is None and self.documents is None:
            return torch.arange(self.tokens.shape[0]) * self.tokens.shape[1]
        return self.starts

    @property
    def real_tokens(self) -> int:
        """Tokens that are not padding, those of the source included."""
        own = self.tokens.numel() if self.documents is None else int((self.documents > 0).sum())
        return own if self.source is None else own + self.source.real_tokens


class Layout(NamedTuple):
    """The layout of a field along the rows of a batch: three functions that update the field when the rows change.

    take   (value, rows [B'], T) -> the value of these rows, in this order
    widen  (value, T, more) -> the value of rows with `more` places of padding added at their end
    join   (values, batches) -> the value of the concatenated rows of all batches; some values may be None
    """

    take: Callable[[Any, np.ndarray, int], Any]
    widen: Callable[[Any, int, int], Any]
    join: Callable[[Sequence[Any], Sequence[Batch]], Any]


def _take(x: Tensor, rows: np.ndarray, T: int) -> Tensor:
    # NumPy, because this runs during the training step, where torch would start a second team of threads.
    return torch.from_numpy(x.numpy()[rows])


def _take_starts(starts: Tensor, rows: np.ndarray, T: int) -> Tensor:
    places = among(starts.numpy(), rows, T)
    return torch.from_numpy(places[places >= 0])


def _join_starts(values: Sequence[Tensor | None], batches: Sequence[Batch]) -> Tensor | None:
    """None if the starts of a batch are unknown."""
    known = [starts for starts in (batch.sequence_starts for batch in batches) if starts is not None]
    if len(known) < len(batches):
        return None
    return torch.cat([starts + origin for starts, origin in zip(known, _origins(batches), strict=True)])


def _origins(batches: Sequence[Batch]) -> list[int]:
    """The flat place where each batch begins in the concatenated rows."""
    return [0, *np.cumsum([batch.tokens.numel() for batch in batches[:-1]]).tolist()]


def _join_targets(values: Sequence[Mapping[str, Target]], batches: Sequence[Batch]) -> dict[str, Target | None]:
    names = dict.fromkeys(name for targets in values for name in targets)
    return {name: Target.join([targets.get(name) for targets in values], _origins(batches)) for name in names}


def _numbers(absent: Callable[[Batch], Tensor]) -> Layout:
    """The layout of a field of [B, T] numbers, one for each place; `absent` returns the tensor that None stands for."""

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
    # A stream continues from one batch to the next; rows of several batches cannot.
    "streams": Layout(_take, lambda x, T, more: x, lambda values, batches: None),
    # `Batch.to` computes them again.
    "boundaries": Layout(lambda *_: None, lambda *_: None, lambda *_: None),
}
"""Field of a batch -> its layout."""


def concatenate(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches of one width, in order; if a batch lacks an optional field, its default is filled in.

    `starts` is None if a batch does not know them. Batches with sources are padded to the width of the widest, the
    sources likewise. Raises UnmaskError for no batches, for different widths without sources, and if only some batches
    have sources.
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
    """The batches, padded to the width of the widest."""
    longest = max(batch.tokens.shape[1] for batch in batches)
    return [batch.widen(longest - batch.tokens.shape[1]) for batch in batches]


def boundaries_of(documents_BT: Tensor) -> Tensor:
    """Sequence boundaries [R + 1] int32: the places in the flattened rows where a run of one document number begins,
    padding included, then B * T. They ascend from 0.

    B * T is repeated until R is a power of two, or above 256 a multiple of 256, so that compiled graphs see few shapes;
    not more, because the backward pass needs memory for empty sequences too.
    """
    begins_BT = torch.ones_like(documents_BT, dtype=torch.bool)
    begins_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    begins = begins_BT.flatten().nonzero().squeeze(1).int()
    R = 1 << (len(begins) - 1).bit_length() if 0 < len(begins) <= 256 else -(-len(begins) // 256) * 256
    return F.pad(begins, (0, R + 1 - len(begins)), value=documents_BT.numel())


class Unread(ABC):
    """A source of an encoder–decoder that is read when its batch is made, such as the file of a picture. Its length is
    its number of places."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def together(self, sources: Sequence[Any]) -> Batch:
        """Sources of this kind as the rows of a batch. Raises UnmaskError for one that cannot be read."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss term as a sum and a count, never a mean: sums add up over micro-batches and ranks, means do not.

    sum      scalar tensor with the graph
    count    number of targets in the sum; equals `Batch.counts` of the same name
    metrics  name -> sum over the same targets (a scalar without the graph), e.g. the number of correct predictions
    """

    sum: Tensor
    count: int
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
