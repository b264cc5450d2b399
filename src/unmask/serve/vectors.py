"""Vectors of many texts, computed in parts and written to .npy, .safetensors or .jsonl.

Shapes: N texts, D width.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask import huggingface
from unmask.data.labelled.rows import Row
from unmask.data.pictures.corpus import named_pictures
from unmask.data.pictures.decoding import decode
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture
from unmask.data.recordings.decoding import decode as samples_of
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording, named_recordings
from unmask.errors import UnmaskError
from unmask.files import atomic
from unmask.huggingface import SINGLE_STACK, Loaded
from unmask.huggingface.hub import model_folder
from unmask.kernels.devices import placed
from unmask.serve.predictor import Predictor
from unmask.tasks import TASKS, task_found
from unmask.tasks.embedding import Pooling
from unmask.tasks.summaries import summaries

AT_ONCE = 4_096  # texts that are read ahead, so that texts of similar length share a batch
ITEMS_AT_ONCE = 256
FORMS = (".npy", ".safetensors", ".jsonl")


def encoder_of(model: Path | str | Loaded[Any], pooling: Pooling | None = None) -> tuple[Path | str | Loaded[Any], str]:
    """A model for a `Predictor` of vectors, and a sentence about it. A sentence encoder is returned unchanged, with an
    empty sentence; the vectors of any other encoder are pooled from its last layer, as `sentence-transformers` does by
    default.

    pooling  "mean" of all tokens, "cls": the vector of the first one; None: that of the sentence encoder, else the mean

    Raises UnmaskError for a model that reads no texts, and for a sentence encoder with another pooling.
    """
    loaded = huggingface.opened(model_folder(model) if not isinstance(model, Loaded) else model, SINGLE_STACK)
    name = "The model" if loaded is model else str(model)
    task = task_found(list(loaded.model.heads), loaded.settings)
    if task is not None and task.gives_vectors:
        own = loaded.settings.get("pooling")
        if pooling not in (None, own):
            raise UnmaskError(f"{name} is a sentence encoder, trained with the pooling {own}: leave --pooling out.")
        return model, ""
    loaded.require_tokenizer(name)
    pooling = pooling or "mean"
    bare = replace(loaded, model=loaded.model.without_heads(), labels=(), settings={"pooling": pooling})
    return bare, SAID[pooling].format(name)


SAID = {
    "mean": "{} was not trained for sentence vectors: its vectors are the means of the vectors of all tokens.",
    "cls": "{} was not trained for sentence vectors: its vectors are those of the first token.",
}


def vectors(predictor: Predictor, texts: Iterable[str]) -> Iterator[np.ndarray]:
    """Yield the vectors [n, D] float32 of up to 4,096 texts at a time, in order. Raises UnmaskError for a model that is
    not a sentence encoder, and for an empty text."""
    if predictor.of_task is None or not predictor.of_task.gives_vectors:
        known = " or ".join(name for name, task in TASKS.items() if task.gives_vectors)
        raise UnmaskError(f"This model computes no vectors: use a sentence encoder (unmask finetune --task {known}).")
    source, first = iter(texts), 1
    while some := list(islice(source, AT_ONCE)):
        empty = next((i for i, text in enumerate(some) if not text.strip()), None)
        if empty is not None:
            raise UnmaskError(f"Text {first + empty} is empty.")
        yield np.concatenate(predictor.found([Row(text=text) for text in some]))
        first += len(some)


def item_vectors(
    folder: Path | str, items: Sequence[Any], *, device: torch.device | str = "cpu"
) -> Iterator[np.ndarray]:
    """The vectors [n, D] float32 of some hundred pictures or recordings at a time, in order: those of the task if the
    folder was fine-tuned for vectors, else the summaries by its trunk.

    items  their files, or handles of a corpus

    Raises UnmaskError for a model that reads texts, and for a file that cannot be decoded.
    """
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    row, read = _reading(loaded.processor, folder)
    task = task_found(list(loaded.model.heads), loaded.settings)
    parts = (items[i : i + ITEMS_AT_ONCE] for i in range(0, len(items), ITEMS_AT_ONCE))
    if task is not None and task.gives_vectors:
        predictor = Predictor(loaded, device=device, precision="fp32")
        for some in parts:
            yield np.concatenate(predictor.found([row(place=str(one), source=one) for one in some]))
        return
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK, heads={})  # a head may have another summary
    model, processor = placed(loaded.model, device), loaded.require_processor(folder)
    for some in parts:
        yield summaries(model, [processor.example(read(one)) for one in some], processor)


def named_items(folder: Path | str, data: Path) -> tuple[Sequence[Any], list[str]]:
    """The pictures of a folder or a corpus for a model that reads pictures, else the recordings, and their names.
    Raises UnmaskError for a model that reads texts, and if there are none."""
    processor = huggingface.load(folder, huggingface.SINGLE_STACK).processor
    _reading(processor, folder)
    return named_pictures(data) if isinstance(processor, ImageProcessor) else named_recordings(data)


def _reading(processor: Any, folder: object) -> tuple[Callable[..., Row], Callable[[Any], np.ndarray]]:
    """The class of rows that a processor's tasks read, and a function that decodes an item for the processor."""
    if isinstance(processor, ImageProcessor):
        return Picture, lambda one: decode(one, processor.channels)
    if isinstance(processor, RecordingProcessor):
        return Recording, lambda one: samples_of(one, processor.rate)
    raise UnmaskError(f"{folder} holds a model that reads texts, not pictures or recordings: give texts by --file.")


def write_vectors(parts: Iterable[np.ndarray], out: Path | str) -> tuple[int, int]:
    """Write parts [n, D] to a file, whole or not at all, and return (N, D). The suffix of the file is its format:

    .npy          an array [N, D], written part by part
    .jsonl        a list of numbers a line, written part by part
    .safetensors  the tensor "vectors" [N, D]; all parts are kept in memory first

    Raises UnmaskError for another suffix, and if there are no texts.
    """
    out = Path(out)
    if out.suffix not in FORMS:
        raise UnmaskError(f"Vectors cannot be written to {out.name}: use a name that ends in {', '.join(FORMS)}.")
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
    """The header of a .npy file (NEP 1, version 1.0): always 128 bytes, so that the count can be filled in later."""
    words = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count}, {width}), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + words.ljust(117).encode("ascii") + b"\n"


def _chain(first: np.ndarray, others: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    yield first
    yield from others
