"""Vectors of many texts: read as they come, written as .npy, .safetensors or .jsonl.

Shapes: N texts, D width.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.files import atomic
from unmask.serve.predictor import Predictor
from unmask.tasks import TASKS

AT_ONCE = 4_096  # texts that are gathered, so that those of one length are read together
FORMS = (".npy", ".safetensors", ".jsonl")


def vectors(predictor: Predictor, texts: Iterable[str]) -> Iterator[np.ndarray]:
    """The vectors [n, D] float32 of some thousand texts at a time, in order. Raises UnmaskError for a model that is no
    sentence encoder, and for an empty text."""
    if predictor.of_task is None or not predictor.of_task.gives_vectors:
        known = " or ".join(name for name, task in TASKS.items() if task.gives_vectors)
        raise UnmaskError(
            f"This model gives no vectors: only a sentence encoder does (unmask finetune --task {known})."
        )
    source, first = iter(texts), 1
    while some := list(islice(source, AT_ONCE)):
        empty = next((i for i, text in enumerate(some) if not text.strip()), None)
        if empty is not None:
            raise UnmaskError(f"Text {first + empty} is empty.")
        yield np.concatenate(predictor.found([Row(text=text) for text in some]))
        first += len(some)


def write_vectors(parts: Iterable[np.ndarray], out: Path | str) -> tuple[int, int]:
    """Write parts [n, D] one after the other, whole or not at all; returns (N, D).

    .npy          an array [N, D], written as it comes
    .jsonl        a list of numbers a line, written as it comes
    .safetensors  the tensor "vectors" [N, D], for which all are gathered first

    Raises UnmaskError for another name, and where there are no texts.
    """
    out = Path(out)
    if out.suffix not in FORMS:
        raise UnmaskError(f"Vectors are written as {', '.join(FORMS)}, not to {out.name}.")
    remaining = iter(parts)
    first = next(remaining, None)
    if first is None:
        raise UnmaskError("There are no texts.")
    count, width = 0, first.shape[1]
    with atomic(out) as temporary, temporary.open("wb") as file:
        kept = []
        if out.suffix == ".npy":
            file.write(_header(0, width))
        for part in _chain(first, remaining):
            count += len(part)
            if out.suffix == ".npy":
                file.write(np.ascontiguousarray(part, np.float32).tobytes())
            elif out.suffix == ".jsonl":
                file.write("".join(json.dumps(row.tolist()) + "\n" for row in part).encode())
            else:
                kept.append(part)
        if out.suffix == ".npy":
            file.seek(0)
            file.write(_header(count, width))
        elif kept:
            from safetensors.numpy import save

            file.write(save({"vectors": np.concatenate(kept)}))
    return count, width


def _header(count: int, width: int) -> bytes:
    """What a .npy begins with (NEP 1, version 1.0): always 128 bytes, so that the count can be filled in at the end."""
    words = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count}, {width}), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + words.ljust(117).encode("ascii") + b"\n"


def _chain(first: np.ndarray, others: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    yield first
    yield from others
