"""Gradient × input: the effect of each token on an output, to compare with attention.

Shapes: T tokens, D width of their vectors.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.models.model import Model
from unmask.visualize.attention import CAUTION, layers_of, rollout, weights
from unmask.visualize.numbers import Data
from unmask.visualize.reading import Read, twin


def gradient_times_input(model: Model, reading: Read, head: str, output: int) -> np.ndarray:
    """[T]: the sum over D of d(logit of `output`) / d(vector) · vector, for the token vectors that the model looks up
    (Shrikumar et al. 2017; Denil et al. 2014). Positive values support the output, negative ones oppose it.

    Raises UnmaskError for a head that does not answer for a whole sequence, and for an output that it does not have.
    """
    answering = model.of_sequences
    if head not in answering:
        raise unknown("head that answers for a whole text:", head, answering)
    other = twin(model)
    vectors: list[Tensor] = []

    def leaf(_: nn.Module, __: object, found_1TD: Tensor) -> Tensor:
        vectors.append(found_1TD.detach().requires_grad_())
        return vectors[0]

    assert other.input_embedding is not None
    handle = other.input_embedding.get_submodule("token").register_forward_hook(leaf)
    with torch.enable_grad():
        first_1 = torch.zeros(1, dtype=torch.long, device=other.device)
        logits_1C = other.answer(head, other(reading.batch), first_1, reading.batch)
        if not 0 <= output < logits_1C.shape[1]:
            raise UnmaskError(f"There is no output {output}: the head has {logits_1C.shape[1]}, counted from 0.")
        (slope_1TD,) = torch.autograd.grad(logits_1C[0, output], vectors)
    handle.remove()
    product_T: np.ndarray = (slope_1TD * vectors[0].detach()).sum(-1)[0].float().cpu().numpy()
    return product_T


def beside_attention(model: Model, reading: Read, head: str, output: int) -> Data:
    """Gradient × input of each token, and the attention of the token that the head reads: the mean over the heads of
    the last layer, and rollout. Both are None for a model without attention; one with attention to words and sentences
    has "looked", the weights of both at each token, 0 between sentences."""
    found: Data = {
        "tokens": reading.tokens,
        "words": reading.words,
        "gradient": gradient_times_input(model, reading, head, output).tolist(),
        "attention": None,
        "rollout": None,
        "caution": CAUTION,
    }
    kinds = layers_of(model)
    if not kinds:
        looked = model.looked(reading.batch)  # type: ignore[operator]  # of a StackModel
        return found | {
            "looked": None
            if looked is None
            else {name: x[0].tolist() for name, x in (("words", looked.words), ("sentences", looked.sentences))}
        }
    layers = weights(model, reading.batch, next(iter(kinds)))
    place = -1 if "decoder" in kinds else 0  # a decoder answers at its last token
    mean_T = layers[-1].mean(0)[place]
    return found | {"attention": mean_T.tolist(), "rollout": rollout(layers)[place].tolist()}
