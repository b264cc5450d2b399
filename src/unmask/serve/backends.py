"""Backends: the library that computes the answers of an encoder, PyTorch or ONNX Runtime, or the faster of them.

Shapes: B rows, T tokens, D width, C outputs, M places.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor

from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.files import write_text
from unmask.huggingface import Loaded
from unmask.kernels.processor import Settled, identity
from unmask.kernels.threads import workers
from unmask.models.model import Model
from unmask.serve.compiled import CompiledModel
from unmask.serve.onnx import MEASURED, EncoderGraph, GraphModel, OnnxModel, drift, graph_in, graph_of
from unmask.types import Batch

Backend = Literal["torch", "onnx", "auto"]
"""The requested backend; "auto" is the faster one for each size of batch."""

SIZES = {"alone": (1, 16), "together": (8, 64)}
"""The batches that are timed, as rows and tokens: a short text, and a batch of many texts."""
FEW = 128  # most tokens of a batch that is computed as "alone"
SECONDS, FEWEST = 0.4, 5  # for each size: repeat for so long, and at least so often

Times = Mapping[str, Mapping[str, float]]
"""Size -> backend -> milliseconds, the least of all trials."""


class Fastest(Model):
    """A model that computes each batch by one of two others, chosen by its number of tokens.

    alone     for at most FEW tokens
    together  for more
    """

    def __init__(self, alone: Model, together: Model) -> None:
        super().__init__(alone.config)
        self.alone, self.together = alone, together
        self.heads, self.pooler = together.heads, together.pooler
        self.eval()

    def forward(self, batch: Batch) -> Tensor:
        """[B, T, D], or what the chosen model returns in its place."""
        return self._for(batch.tokens.numel())(batch)

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """[M, C] by the model that computed `hidden`."""
        return self._for(hidden_BTD.shape[:2].numel()).answer(name, hidden_BTD, places_M, batch)

    def _for(self, tokens: int) -> Model:
        return self.alone if tokens <= FEW else self.together


def with_backend(
    backend: Backend | Path, loaded: Loaded[Model], layout: Model, settled: Settled
) -> tuple[Model, Settled]:
    """The model that computes the answers, and its number format, with a sentence for the user.

    backend          a path names a package of `unmask export --format aoti`, whose machine code is run
    layout, settled  the model that PyTorch computes with (`models.inference_layout`), and its number format

    Raises UnmaskError for a model without a graph of its own weights in its folder (`serve.onnx.graph_in`) or in the
    package, on another device than the CPU, and for a model that has no graph. "auto" answers by PyTorch then, and says
    why.
    """
    if backend == "torch":
        return layout, settled
    if isinstance(backend, Path):
        note = f"Computed in fp32 by the machine code in {backend}, which may do all that you may."
        return _checked(loaded, lambda graph: CompiledModel(graph, backend)), Settled("fp32", note)
    if backend == "onnx":
        return _graph(loaded), Settled("fp32", "Computed in fp32 by ONNX Runtime.")
    try:
        graph = _graph(loaded, whole=True)
    except UnmaskError as why:
        return layout, replace(settled, note=f"{settled.note} PyTorch computes all answers: {why}".strip())
    models = {"torch": layout, "onnx": graph}
    times = _times(models, graph.path.parent / MEASURED, settled)
    alone, together = (min(times[size], key=times[size].__getitem__) for size in SIZES)
    names = {"torch": f"PyTorch in {settled.precision}", "onnx": "ONNX Runtime in fp32"}
    chosen = models[alone] if alone == together else Fastest(models[alone], models[together])
    return chosen, replace(settled, note=f"One text is answered by {names[alone]}, many by {names[together]}.")


def require_torch(backend: Backend | Path, folder: Path | str) -> None:
    """Raises UnmaskError if a model that only PyTorch computes was asked for by another backend; "auto" is PyTorch."""
    if backend not in ("torch", "auto"):
        raise UnmaskError(f"Only encoders have other backends than torch, unlike {folder}: leave --backend out.")


def _graph(loaded: Loaded[Model], *, whole: bool = False) -> GraphModel:
    """The graph in the folder of a model, which has all its heads if it is to answer as the `whole` model does."""

    def opened(graph: EncoderGraph) -> GraphModel:
        if loaded.folder is None:
            raise UnmaskError("A model that was not read from a folder has no graph for ONNX Runtime.")
        return OnnxModel(graph, graph_in(loaded.folder))

    return _checked(loaded, opened, whole=whole)


def _checked(loaded: Loaded[Model], opened: Callable[[EncoderGraph], GraphModel], *, whole: bool = False) -> GraphModel:
    """An exported file of a model, after a comparison of some outputs. Raises UnmaskError as `with_backend` says."""
    if workers(loaded.model.device) is None:
        raise UnmaskError(f"Exported files answer on the CPU, not on {loaded.model.device}: leave --device out.")
    graph, left_out = graph_of(loaded.model, loaded.settings)
    if whole and left_out:
        raise UnmaskError(f"The graph has one head, and the model answers also by {', '.join(left_out)}.")
    found = opened(graph)
    texts = drift.rows(graph, loaded.require_tokenizer(loaded.folder or "The model"), drift.TEXTS[:4])
    drift.require_near(graph, texts, drift.of_model(graph, texts), found.run(texts.inputs), found.path)
    return found


def _times(models: Mapping[str, Model], kept: Path, settled: Settled) -> Times:
    """The times of the backends, from the file `kept` if it has them for this processor, else measured and kept there.
    If the file cannot be written, they are measured whenever the folder is opened."""
    import onnxruntime

    versions = f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    key = f"{identity()}, {torch.get_num_threads()} threads, {settled.precision}, {versions}"
    known: dict[str, Any] = {}
    with contextlib.suppress(UnmaskError):  # no file, or a damaged one
        known = read_json(kept)
    if _are_times(found := known.get(key), models):
        return found
    known[key] = {size: _measured(models, *shape) for size, shape in SIZES.items()}
    with contextlib.suppress(OSError):  # a folder that others own
        write_text(kept, json.dumps(known, indent=1) + "\n")
    return known[key]


def _are_times(found: Any, names: Collection[str]) -> TypeGuard[Times]:
    """Whether this holds a number for each size and each backend."""
    sizes = [found.get(size) for size in SIZES] if isinstance(found, Mapping) else [None]
    return all(
        isinstance(times, Mapping)
        and times.keys() == set(names)
        and all(isinstance(one, int | float) and math.isfinite(one) for one in times.values())
        for times in sizes
    )


def _measured(models: Mapping[str, Model], B: int, T: int) -> dict[str, float]:
    """Backend -> milliseconds of a batch. A batch of several rows is timed on one thread, as it is computed."""
    config = next(iter(models.values())).config
    T = min(T, config.length or T)
    tokens_BT = torch.randint(config.vocabulary, (B, T), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens_BT, segments=torch.zeros_like(tokens_BT) if config.segments > 1 else None)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads if B == 1 else 1)
    try:
        with torch.inference_mode():
            return _least({name: partial(model, batch) for name, model in models.items()})
    finally:
        torch.set_num_threads(threads)


def _least(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Milliseconds of each call, the least of several. They take turns, so that other work slows down all of them; the
    first turn does not count."""
    for call in calls.values():
        call()
    found, turns, end = dict.fromkeys(calls, math.inf), 0, time.perf_counter() + SECONDS
    while turns < FEWEST or time.perf_counter() < end:
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            found[name] = min(found[name], 1e3 * (time.perf_counter() - began))
        turns += 1
    return found
