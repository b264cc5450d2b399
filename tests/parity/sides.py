"""Two sides, ours and theirs: what every layer says, and gradients tensor by tensor, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from unmask.models.model import Model
from unmask.types import Batch


def read(model: Model, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    """Hidden states for the heads, and what every layer says: the embedding, all blocks but the last, the stack."""
    states: list[Tensor] = []
    parts = [model.embedding, *model.stack.blocks, model.stack]
    hooks = [part.register_forward_hook(lambda _, __, said: states.append(said)) for part in parts]
    hidden = model(batch)
    for hook in hooks:
        hook.remove()
    del states[-2]  # what the norm behind the last block makes of it is told instead
    return hidden, states


def assert_same_states(ours: Sequence[Tensor], theirs: Sequence[Tensor], places: Tensor) -> None:
    """The same numbers in every layer, wherever there is no padding."""
    for state, expected in zip(ours, theirs, strict=True):
        found = state.flatten(0, 1)[places]
        torch.testing.assert_close(found, expected.flatten(0, 1)[places], atol=1e-9, rtol=1e-9)
        assert found.std() > 0.05  # degenerate states would agree too


def assert_same_gradients(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], *, padding: int | None = None, choice: bool = False
) -> None:
    """The same gradient of every tensor, as a share of its own largest number: a small one hides behind no other.

    padding  row of the word vectors that is left out: the sides differ in whether it learns
    choice   a softmax over the answers follows, which a bias of all changes as little as one of all keys changes that
             of attention: the gradient of either is zero, but for rounding
    """
    assert ours.keys() == theirs.keys()
    largest = max(gradient.abs().max() for gradient in theirs.values())
    for name, gradient in theirs.items():
        error = (ours[name] - gradient).abs()
        if name.endswith("word_embeddings.weight") and padding is not None:
            error[padding] = 0
        zero = name.endswith(("key.bias", "classifier.bias") if choice else "key.bias")
        share = error.max() / (1e-4 * largest if zero else gradient.abs().max())
        assert share < 1e-8, f"{name}: {share:.1e}"
