"""generate_all: hypotheses for any number of sources, computed in batches of similar lengths, yielded in order.

Shapes: B sources, S tokens of the longest source; F numbers of a source that is a vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch

from unmask.errors import UnmaskError
from unmask.generate.beam import Search
from unmask.generate.sampling import Sampling
from unmask.generate.trace import Hypothesis
from unmask.generate.writing import generate
from unmask.kernels.threads import a_thread_each, workers
from unmask.models.writer import Writer
from unmask.types import Batch, Unread

Source = Sequence[int] | np.ndarray | Unread
LEAST = 256
"""Tokens of the smallest batch that is worth a separate thread."""


def generate_all(
    model: Writer,
    sources: Iterable[Source],
    search: Search | Sampling,
    *,
    end: int,
    pad: int,
    tokens: int = 16_384,
    window: int = 2_048,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
) -> Iterator[list[Hypothesis]]:
    """The hypotheses of each source, in the order of the sources. Reads sources and yields hypotheses window by window.

    sources  token ids of each source, special tokens included, as in training; or a vector [1, F] for each source;
             or sources that are `Unread`
    end      id of the token that ends a text        pad  id that fills short sources
    tokens   the most places in memory at once, padding included, times the hypotheses of a source. On a CPU, the
             batches of all threads share this number (`threads.a_thread_each`). Sampling computes one batch at a time,
             because all draws come from one generator
    window   number of sources that are sorted by length together
    device   the device of the model
    generator  the generator of the draws; None makes one from the seed of the `Sampling`

    Raises UnmaskError for an empty source, for `tokens` or `window` below 1, and as `generate` does.
    """
    if tokens < 1 or window < 1:
        raise UnmaskError(f"A batch of {tokens} tokens or a window of {window} sources is empty; use at least 1.")
    width = search.samples if isinstance(search, Sampling) else search.beam_size
    if isinstance(search, Sampling) and generator is None:
        generator = search.generator(torch.device(device))  # one stream for all batches
    remaining, first, room = iter(sources), 0, max(1, tokens // width)
    threads = None if isinstance(search, Sampling) else workers(device)

    def write(batch: Batch) -> list[list[Hypothesis]]:
        return generate(model, batch.to(device), search, end=end, generator=generator)

    while some := list(islice(remaining, window)):
        answers: dict[int, list[Hypothesis]] = {}
        lengths = [len(source) for source in some]
        parts = list(batches(lengths, _places(sum(lengths), room, threads or 1), first))
        filled = [rectangle([some[row] for row in rows], pad) for rows in parts]
        fitting = max(1, round(room / max(len(rows) * max(lengths[row] for row in rows) for rows in parts)))
        found = map(write, filled) if threads is None else a_thread_each(write, filled, device, most=fitting)
        for rows, hypotheses in zip(parts, found, strict=True):
            answers.update(zip(rows, hypotheses, strict=True))
        yield from (answers[row] for row in range(len(some)))
        first += len(some)


def _places(total: int, room: int, threads: int) -> int:
    """The places of a batch that give every thread an equal share, at least LEAST if there is room; at most `room`.

    total  tokens of the window        room  places at once
    """
    if threads == 1:
        return room
    rounds = -(-total // room)
    return max(-(-total // max(1, rounds * threads)), min(room, LEAST))


def batches(lengths: Sequence[int], tokens: int, first: int = 0) -> Iterator[list[int]]:
    """Batches of rows of similar lengths, the longest first. A batch has at most `tokens` places, or a single row.

    first  number of the first source, for the error about an empty one

    Raises UnmaskError for a length of 0.
    """
    if 0 in lengths:
        raise UnmaskError(f"Source {first + lengths.index(0)} has no tokens; remove it, or give it the end token.")
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if rows and (len(rows) + 1) * lengths[rows[0]] > tokens:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def rectangle(sources: Sequence[Source], pad: int) -> Batch:
    """A Batch [B, S] with one source in each row, padded on the right; `documents` is None without padding. A vector
    becomes a row with one place, and an `Unread` source that of its example."""
    if isinstance(sources[0], Unread):
        return sources[0].together(sources)
    if isinstance(sources[0], np.ndarray) and sources[0].ndim == 2:
        return Batch.of_vectors(torch.from_numpy(np.concatenate([np.asarray(one) for one in sources])))
    lengths = [len(source) for source in sources]
    longest = max(lengths)
    filled = np.full((len(sources), longest), pad, np.int64)
    for row, source in zip(filled, sources, strict=True):
        row[: len(source)] = np.asarray(source)
    if min(lengths) == longest:
        return Batch(torch.from_numpy(filled))
    real = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return Batch(torch.from_numpy(filled), documents=real.long())
