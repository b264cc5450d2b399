"""Entries on recurrent networks, with back-propagation through time by its equations.

Shapes: T tokens, D width of the input, H width of the state, V outputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from unmask.nn.recurrent import CELLS
from unmask.nn.recurrent_state import RecurrentState
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Chart, Series, Table


class Weights(NamedTuple):
    """h_t = tanh(b + W h_(t-1) + U x_t), o_t = c + V h_t, loss = - Σ_t log softmax(o_t)[y_t].

    U [H, D], W [H, H], V [V, H], b [H], c [V]; gradients have the same shapes
    """

    U: np.ndarray
    W: np.ndarray
    V: np.ndarray
    b: np.ndarray
    c: np.ndarray


def states(weights: Weights, x_TD: np.ndarray) -> np.ndarray:
    """[T + 1, H]: the states, the first one zero."""
    h_TH = [np.zeros(len(weights.b))]
    for x in x_TD:
        h_TH.append(np.tanh(weights.b + weights.W @ h_TH[-1] + weights.U @ x))
    return np.stack(h_TH)


def gradients(weights: Weights, x_TD: np.ndarray, y_T: np.ndarray, counted_T: np.ndarray) -> tuple[Weights, np.ndarray]:
    """Back-propagation through time (Goodfellow et al. 2016, section 10.2.2): the five gradients of the loss, and the
    gradient of each state, [T, H]. The gradient of U has x_t, the input of the same step: a slide that has x_(t-1) is
    mistaken.

    y_T        the right output of each step
    counted_T  bool: the steps whose loss is counted
    """
    h_TH = states(weights, x_TD)
    o_TV = h_TH[1:] @ weights.V.T + weights.c
    p_TV = np.exp(o_TV - o_TV.max(1, keepdims=True))
    p_TV /= p_TV.sum(1, keepdims=True)
    of_o_TV = (p_TV - np.eye(p_TV.shape[1])[y_T]) * counted_T[:, None]  # ∇o_t = softmax(o_t) - 1[y_t]
    of_h_TH = np.zeros_like(h_TH[1:])
    later_H = np.zeros(len(weights.b))
    for t in reversed(range(len(x_TD))):
        of_h_TH[t] = weights.V.T @ of_o_TV[t] + later_H  # ∇h_t = Vᵀ ∇o_t + Wᵀ diag(1 - h_(t+1)²) ∇h_(t+1)
        later_H = weights.W.T @ ((1 - h_TH[t + 1] ** 2) * of_h_TH[t])
    before_tanh_TH = (1 - h_TH[1:] ** 2) * of_h_TH
    return (
        Weights(
            U=before_tanh_TH.T @ x_TD,  # Σ_t diag(1 - h_t²) ∇h_t x_tᵀ
            W=before_tanh_TH.T @ h_TH[:-1],  # Σ_t diag(1 - h_t²) ∇h_t h_(t-1)ᵀ
            V=of_o_TV.T @ h_TH[1:],  # Σ_t ∇o_t h_tᵀ
            b=before_tanh_TH.sum(0),  # Σ_t diag(1 - h_t²) ∇h_t
            c=of_o_TV.sum(0),  # Σ_t ∇o_t
        ),
        of_h_TH,
    )


def by_autograd(weights: Weights, x_TD: np.ndarray, y_T: np.ndarray, counted_T: np.ndarray) -> list[np.ndarray]:
    """The gradients of the five weights by PyTorch."""
    U, W, V, b, c = parameters = [torch.from_numpy(weight).requires_grad_() for weight in weights]
    h_H, loss = torch.zeros(len(b), dtype=b.dtype), torch.zeros((), dtype=b.dtype)
    for x_D, y, counted in zip(torch.from_numpy(x_TD), y_T.tolist(), counted_T, strict=True):
        h_H = torch.tanh(b + W @ h_H + U @ x_D)
        if counted:
            loss = loss - (c + V @ h_H).log_softmax(-1)[y]
    return [gradient.numpy() for gradient in torch.autograd.grad(loss, parameters)]


def drawn(rng: np.random.Generator, *, D: int, H: int, V: int) -> Weights:
    """Normal weights of variance 1 / inputs."""
    shapes = Weights((H, D), (H, H), (V, H), (H,), (V,))  # type: ignore[arg-type]
    return Weights(*(rng.normal(size=shape) / np.sqrt(shape[-1]) for shape in shapes))


@entry(
    "Five gradients of back-propagation through time",
    code="runs/lectures/recurrence.py",
    test="lectures/test_recurrence_entries.py",
)
def through_time(quick: bool) -> Shown:
    """The gradients of all weights of a recurrent network, written out (Goodfellow et al. 2016, section 10.2.2), beside
    those of autograd. The loss is only at the last of 40 steps here, so the norm of the gradient of a state shows how
    much of it is left at earlier steps: it shrinks or grows by about the same factor with each step, by the size of the
    recurrent weights (Pascanu et al. 2013).
    """
    T, rng = 40, np.random.default_rng(0)
    lines, left, differences = [], [], []
    for size in (0.5, 1.0, 2.0):
        weights = drawn(rng, D=8, H=32, V=4)
        weights = weights._replace(W=size / np.abs(np.linalg.eigvals(weights.W)).max() * weights.W)
        x_TD, y_T = 0.1 * rng.normal(size=(T, 8)), rng.integers(4, size=T)
        last_T = np.arange(T) == T - 1
        ours, of_h_TH = gradients(weights, x_TD, y_T, last_T)
        theirs = by_autograd(weights, x_TD, y_T, last_T)
        differences.append((size, *(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))))
        norms = np.linalg.norm(of_h_TH, axis=1)
        lines.append(Series(f"|λ| = {size:g}", [(t + 1, float(norm)) for t, norm in enumerate(norms)]))
        left.append((size, *(float(norms[-1 - back] / norms[-1]) for back in (10, 30))))
    return Shown(
        f"30 steps back, {left[0][2]:.1g} of the gradient is left with a largest eigenvalue |λ| of 0.5, "
        f"{left[1][2]:.1g} with 1 and {left[2][2]:.0f} with 2.",
        [
            Table("Norm of the gradient, divided by that of the last state", ["|λ|", "10 back", "30 back"], left),
            Table("Largest difference from autograd", ["|λ|", *(f"∇{name}" for name in Weights._fields)], differences),
        ],
        [Chart("Norm of the gradient of a state", lines, x="step", log_y=True)],
    )


@entry("Three forms of the GRU", code="nn/recurrent.py", test="nn/test_recurrent.py")
def gru(quick: bool) -> Shown:
    """Cho et al. 2014 apply the reset gate before the matrix product, n = tanh(W x + U (r h)), and keep the share z of
    the old state. Chung et al. 2014 keep 1 - z of it. The fused kernels of PyTorch and cuDNN apply the reset gate after
    the product, n = tanh(W x + r (U h)).

    `unmask pretrain gru-lm --cell gru-cho` trains a language model with the first form.
    """
    D, H, T = 4, 8, 12
    generator = torch.Generator().manual_seed(0)
    sizes = [(3 * H, D), (3 * H, H), (3 * H,), (3 * H,)]
    weights = [torch.randn(*size, generator=generator) * (len(size) > 1) for size in sizes]  # biases of zero
    x_TD = torch.randn(T, D, generator=generator)
    found: dict[str, torch.Tensor] = {}
    for name in ("gru", "gru-cho", "gru-chung"):
        cell, state, outputs = CELLS[name](*weights), RecurrentState(torch.zeros(1, H)), []
        for x_D in x_TD:
            output_BH, state = cell.step(x_D[None], state)
            outputs.append(output_BH[0])
        found[name] = torch.stack(outputs)
    lines = [Series(name, [(t + 1, y) for t, y in enumerate(h_TH[:, 0].tolist())]) for name, h_TH in found.items()]
    rows = [(name, *(round(h_TH[t, 0].item(), 3) for t in (0, 1, 2, 5, 11))) for name, h_TH in found.items()]
    return Shown(
        "With the same weights, the first two forms agree after the first token, where the old state is zero, and "
        "differ from then on.",
        [Table("Unit 1 of the state", ["form", *(f"after {t}" for t in (1, 2, 3, 6, 12))], rows)],
        [Chart("Unit 1 of the state", lines, x="token")],
    )


ENTRIES = (through_time, gru)
