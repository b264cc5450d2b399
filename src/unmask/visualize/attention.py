"""Attention as plain values: the weights of chosen layers, thumbnails of all layers, rollout. Works with every kernel.

Shapes: L layers, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from unmask.errors import UnmaskError, unknown
from unmask.models.model import Model
from unmask.nn import Stack, record_attention
from unmask.types import Batch
from unmask.visualize.numbers import Data, packed, thumbnail
from unmask.visualize.reading import Read, twin

CAUTION = (
    "Attention shows what a layer mixed into a token, not why the model gave its answer: very different weights "
    "can give the same answer (Jain & Wallace 2019), and later layers mix again."
)
KINDS = {
    "encoder": "self-attention of the encoder: every token attends to all tokens",
    "decoder": "masked self-attention of the decoder: a token attends to itself and the tokens before it",
    "cross": "cross-attention: each target token attends to the source",
}


class Layer(NamedTuple):
    """The attention of one layer.

    part  the module that computes it
    call  number of its call in a forward pass: a block that several layers share, as in ALBERT, runs several times;
          None: all calls, one for each segment, which attends to the end of the segment before (Transformer-XL)
    """

    part: nn.Module
    call: int | None = 0


def layers_of(model: Model) -> dict[str, list[Layer]]:
    """The attention layers of a model by kind (see KINDS), in order, without kinds that the model lacks."""
    found: dict[str, list[Layer]] = {}
    for kind, stack in model.stacks.items():
        if isinstance(stack, Stack):
            for name, layer in _of_stack(stack):
                found.setdefault("cross" if name.startswith("cross") else kind, []).append(layer)
        elif not model.reads_source:
            parts = [part for part in stack.modules() if hasattr(part, "recorder")]
            found |= {kind: [Layer(part, None) for part in parts]} if parts else {}
    if not found and model.reads_source:  # recurrent or convolutional: only cross-attention
        parts = [part for part in model.modules() if hasattr(part, "recorder")]
        found = {"cross": [Layer(part) for part in parts]} if parts else {}
    return found


def weights(model: Model, batch: Batch, kind: str, layers: Sequence[int] | None = None) -> list[np.ndarray]:
    """Attention weights [H, T, S] of some layers (from 0; None: all) for a batch of one row; each row sums to 1.

    The weights are computed from queries and keys, in a twin of the model, without dropout. Raises UnmaskError for a
    kind or a layer that the model does not have.
    """
    other = twin(model)
    there = layers_of(other)
    if not there:
        raise UnmaskError("This model has no attention to look at.")
    if kind not in there:
        raise unknown("kind of attention in this model:", kind, there)
    count = len(there[kind])
    wrong = [number for number in layers or () if not 0 <= number < count]
    if wrong:
        raise UnmaskError(f"There is no layer {wrong[0]}: the model has {count}, counted from 0.")
    chosen = there[kind] if layers is None else [there[kind][number] for number in layers]
    with torch.no_grad(), ExitStack() as context:
        parts = {id(layer.part): layer.part for layer in chosen}
        maps = {key: context.enter_context(record_attention(part)) for key, part in parts.items()}
        other(batch)
    found = [[one.weights[0].float().cpu().numpy() for one in maps[id(layer.part)]] for layer in chosen]
    return [
        _joined(calls) if layer.call is None else calls[layer.call] for layer, calls in zip(chosen, found, strict=True)
    ]


def _joined(segments: Sequence[np.ndarray]) -> np.ndarray:
    """Segments [H, t, s] as one matrix [H, T, T]; the last columns of a segment are its own tokens."""
    H, T = len(segments[0]), sum(one.shape[1] for one in segments)
    whole, end = np.zeros((H, T, T), np.float32), 0
    for one in segments:
        begin, end = end, end + one.shape[1]
        whole[:, begin:end, end - one.shape[2] : end] = one
    return whole


def rollout(layers: Sequence[np.ndarray]) -> np.ndarray:
    """[T, T]: how much of each token (column) reaches each hidden state of the last layer (row) through attention.

    The product over layers of (A + I) / 2, A the mean over heads (Abnar & Zuidema 2020, section 3); rows sum to 1.
    """
    mixed = np.eye(layers[0].shape[-1], dtype=np.float64)
    for weights_HTT in layers:
        step = (weights_HTT.mean(0, dtype=np.float64) + np.eye(len(mixed))) / 2
        mixed = step / step.sum(-1, keepdims=True) @ mixed
    return mixed


def overview(model: Model, reading: Read, kind: str | None = None) -> Data:
    """Thumbnails of all layers and heads, the names of rows and columns, and whether there is a rollout. The page
    requests full weights later, so that a long text appears quickly.

    kind  of attention; None: cross-attention if the model has it, else self-attention

    Raises UnmaskError as `weights` does.
    """
    there = layers_of(model)
    if not there:
        raise UnmaskError("This model has no attention to look at.")
    kind = kind or ("cross" if "cross" in there else next(iter(there)))
    found = weights(model, reading.batch, kind)
    rows, columns = names(reading, kind)
    small = np.stack([thumbnail(weights_HTS) for weights_HTS in found])
    return {
        "view": "attention",
        "kind": kind,
        "kinds": {name: KINDS[name] for name in there},
        "rows": rows,
        "columns": columns,
        "words": reading.words if kind != "cross" else [],
        "layers": len(found),
        "heads": len(found[0]),
        "thumbnails": packed(small, "uint8"),
        "rolls": kind != "cross",
        "caution": CAUTION,
    }


def chosen(weights_HTS: np.ndarray, number: int, heads: Sequence[int] | None = None) -> Data:
    """Some heads (None: all) of layer `number`, [h, T, S] in float16, for a layer that a reader opens.

    Raises UnmaskError for a head that the layer does not have.
    """
    H = len(weights_HTS)
    heads = list(range(H)) if heads is None else list(heads)
    wrong = [head for head in heads if not 0 <= head < H]
    if wrong:
        raise UnmaskError(f"There is no head {wrong[0]}: the layer has {H}, counted from 0.")
    return {"layer": number, "heads": heads, "weights": packed(weights_HTS[heads])}


def rolled(model: Model, reading: Read, kind: str) -> Data:
    """The rollout of self-attention, [T, T] in float16. Raises UnmaskError for cross-attention, which has none."""
    if kind == "cross":
        raise UnmaskError("Cross-attention has no rollout: its rows and its columns are different texts.")
    return {"rollout": packed(rollout(weights(model, reading.batch, kind)))}


def whole(model: Model, reading: Read, kind: str | None = None) -> Data:
    """The overview with the weights of all heads and the rollout, for a standalone page."""
    found = overview(model, reading, kind)
    every = weights(model, reading.batch, found["kind"])
    last = packed(rollout(every)) if found["rolls"] else None
    details = [chosen(one, i, [head]) for i, one in enumerate(every) for head in range(len(one))]
    return found | {"details": details, "rollout": last}


def names(reading: Read, kind: str) -> tuple[list[str], list[str]]:
    """Names of the rows (queries) and of the columns (keys). Rows of cross-attention are the predicted tokens."""
    if kind == "cross":
        return reading.guessed, reading.source
    tokens = reading.source if kind == "encoder" and reading.source else reading.tokens
    return tokens, tokens


def _of_stack(stack: Stack) -> Iterator[tuple[str, Layer]]:
    """Yield (name within its block, layer) for each attention of a stack, in the order in which blocks run."""
    runs: dict[int, int] = {}
    for number in stack.order:
        for name, part in stack.blocks[number].named_modules():
            if hasattr(part, "recorder"):
                yield name, Layer(part, runs.get(number, 0))
        runs[number] = runs.get(number, 0) + 1
