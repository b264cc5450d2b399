"""generate_all: any number of sources, in batches of similar lengths, answered in their own order as they come.

Shapes: B sources, S tokens of the longest; F numbers of a source that is a vector.
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
from unmask.types import Batch

Source = Sequence[int] | np.ndarray
LEAST = 256
"""Tokens of the smallest batch that gets a thread of its own."""


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
    """The hypotheses of each source, in the order of the sources. Sources are read, and answers given, by the window.

    sources  token ids of each, special tokens included, as the model was trained on; or of each one vector [1, F]
    end      id of the token that ends a text        pad  id that fills short sources
    tokens   places that are read at once, padding included, counted once for every hypothesis of a source: those of a
             batch, or on a CPU, where threads search a batch each (`threads.a_thread_each`), of as many batches. Draws
             come from one stream, so that batches are sampled one after another
    window   sources that are sorted by length at a time
    device   where the model is

    Raises UnmaskError for an empty source, and what `generate` raises.
    """
    if tokens < 1 or window < 1:
        raise UnmaskError(f"A batch of {tokens} tokens or a window of {window} sources holds nothing; give at least 1.")
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
        read = [rectangle([some[row] for row in rows], pad) for rows in parts]
        fitting = max(1, round(room / max(len(rows) * max(lengths[row] for row in rows) for rows in parts)))
        found = map(write, read) if threads is None else a_thread_each(write, read, device, most=fitting)
        for rows, hypotheses in zip(parts, found, strict=True):
            answers.update(zip(rows, hypotheses, strict=True))
        yield from (answers[row] for row in range(len(some)))
        first += len(some)


def _places(total: int, room: int, threads: int) -> int:
    """Places of a batch, so that every thread gets as many of them, and that are worth a thread; at most `room`."""
    if threads == 1:
        return room
    rounds = -(-total // room)
    return max(-(-total // max(1, rounds * threads)), min(room, LEAST))


def batches(lengths: Sequence[int], tokens: int, first: int = 0) -> Iterator[list[int]]:
    """Rows of similar lengths, the longest first, so many that a batch has at most `tokens` places, but at least one.

    first  number of the first row, by which an empty one is named in the UnmaskError
    """
    if 0 in lengths:
        raise UnmaskError(f"Source {first + lengths.index(0)} has no tokens; leave it out, or give it the end token.")
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if rows and (len(rows) + 1) * lengths[rows[0]] > tokens:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


def rectangle(sources: Sequence[Source], pad: int) -> Batch:
    """Sources as a Batch [B, S], one a row, filled on the right; `documents` is None where nothing is filled. Vectors
    become one place a row."""
    if isinstance(sources[0], np.ndarray) and sources[0].ndim == 2:
        return Batch.of_vectors(torch.from_numpy(np.concatenate(sources)))
    lengths = [len(source) for source in sources]
    longest = max(lengths)
    filled = np.full((len(sources), longest), pad, np.int64)
    for row, source in zip(filled, sources, strict=True):
        row[: len(source)] = source
    if min(lengths) == longest:
        return Batch(torch.from_numpy(filled))
    real = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return Batch(torch.from_numpy(filled), documents=real.long())
