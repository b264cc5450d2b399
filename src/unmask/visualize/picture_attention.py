"""Attention over a picture: which patches each patch, and the class token, attends to.

Shapes: L layers, H heads, T places of a picture (summaries, then G * G patches), C channels.
"""

from __future__ import annotations

import base64
import math

import numpy as np

from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.types import Kind
from unmask.visualize.attention import CAUTION, chosen, rollout, weights
from unmask.visualize.numbers import Data, packed


def over_picture(model: Model, processor: ImageProcessor, picture: np.ndarray) -> Data:
    """The weights of every head, the rollout, and the picture as the model reads it.

    picture  [H, W, C] uint8

    Raises UnmaskError for a model without self-attention between all patches, and for a picture with other channels.
    """
    example = processor.example(picture)
    assert example.signal is not None
    batch = processor.collate([example]).to(model.device)
    layers = weights(model, batch, "encoder")
    T, summaries = len(example.tokens), len(processor.summaries)
    grid = math.isqrt(T - summaries)
    if any(layer_HTT.shape[1:] != (T, T) for layer_HTT in layers):
        raise UnmaskError("This view needs a model whose patches all attend to each other, such as a ViT or a DeiT.")
    heads = range(len(layers[0]))
    return {
        "view": "picture-attention",
        "picture": _as_read(processor, example.signal[1]),
        "grid": grid,
        "summaries": [Kind(kind).name for kind in processor.summaries],
        "layers": len(layers),
        "heads": len(layers[0]),
        "details": [chosen(layer_HTT, i, [head]) for i, layer_HTT in enumerate(layers) for head in heads],
        "rollout": packed(rollout(layers)),
        "caution": CAUTION,
    }


def _as_read(processor: ImageProcessor, patches_NF: np.ndarray) -> Data:
    """The resized and cropped pixels, {"side", "data": base64 of side * side RGB bytes}."""
    values = np.broadcast_to(processor.picture(patches_NF), (processor.size, processor.size, 3))
    return {"side": processor.size, "data": base64.b64encode(values.tobytes()).decode()}
