"""Entries on recordings: the dilated convolutions of WaveNet, and the levels of its samples.

Shapes: T samples, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from unmask.nn import CausalConvolution, DilatedStack
from unmask.nn.mu_law import LEVELS, compress, decode, encode
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Chart, Series, Table


def edges(steps: Sequence[int], length: int) -> list[list[tuple[int, int]]]:
    """For each layer from the lowest, the (place below, place) pairs by which the last of `length` places, with a
    kernel of 2, depends on places below."""
    found, used = list[list[tuple[int, int]]](), {length - 1}
    for step in reversed(steps):
        found.append([(below, place) for place in sorted(used) for below in (place - step, place) if below >= 0])
        used = {below for below, _ in found[-1]}
    return found[::-1]


def inputs_read(network: nn.Module, length: int, dim: int) -> list[int]:
    """The places that the last output depends on, by the gradient."""
    x_1TD = torch.linspace(-1, 1, length * dim).view(1, length, dim).requires_grad_()
    [gradient_1TD] = torch.autograd.grad(network(x_1TD)[0, -1].sum(), x_1TD)
    return gradient_1TD[0].abs().sum(-1).nonzero().squeeze(1).tolist()


@entry("Dilations 1, 2, 4, 8", code="nn/convolution.py", test="lectures/test_sound_entries.py")
def dilations(quick: bool) -> Shown:
    """Figures 2 and 3 of WaveNet (van den Oord et al. 2016): each layer of a stack of causal convolutions reads two
    places below. Without dilation, a layer adds one place to what the output depends on; with dilations 1, 2, 4, 8 it
    doubles that number. The receptive field of kernels of k is 1 + Σ (k - 1) d.

    `unmask pretrain wavenet-tiny` learns the samples of recordings by two such stacks, up to a dilation of 128.
    """
    length, dim, steps = 16, 2, [1, 2, 4, 8]
    generator = torch.Generator().manual_seed(0)
    plain = nn.Sequential(*(CausalConvolution(dim, dim, 2) for _ in steps))
    dilated = DilatedStack(dim, dim, steps)
    with torch.no_grad():
        for weight in (*plain.parameters(), *dilated.parameters()):
            weight.copy_(torch.randn(weight.shape, generator=generator))
    read = {"1, 1, 1, 1": inputs_read(plain, length, dim), "1, 2, 4, 8": inputs_read(dilated, length, dim)}
    paper = 1 + sum(2**i for i in range(10))
    return Shown(
        f"After four layers the output depends on {len(read['1, 1, 1, 1'])} samples without dilation, and on "
        f"{len(read['1, 2, 4, 8'])} with it; the ten layers 1, 2, 4, …, 512 of the paper read {paper:,}.",
        [
            Table(
                "Samples that the last output depends on",
                ["dilations", "samples"],
                [(a, len(b)) for a, b in read.items()],
            )
        ],
        [_drawn("Without dilation", [1, 1, 1, 1], length), _drawn("Dilations 1, 2, 4, 8", steps, length)],
    )


def _drawn(title: str, steps: Sequence[int], length: int) -> Chart:
    """Lines from the output, at the top, down to the inputs that it depends on, layer by layer."""
    layers = []
    for number, (step, pairs) in enumerate(zip(steps, edges(steps, length), strict=True), 1):
        points: list[tuple[float, float | None]] = []
        for below, place in pairs:
            points += [(below, number - 1), (place, number), (place, None)]
        layers.append(Series(f"layer {number}, dilation {step}", points))
    return Chart(title, layers, x="sample", y="layer")


@entry("256 levels of a sample", code="nn/mu_law.py", test="lectures/test_sound_entries.py")
def mu_law(quick: bool) -> Shown:
    """WaveNet predicts a sample as one of 256 levels, which are spread evenly over f(x) = sign(x) ln(1 + 255 |x|) /
    ln 256 (van den Oord et al. 2016, section 2.2; ITU-T G.711), so that quiet samples have finer levels. The same
    noise, at several volumes, is rounded to 256 even levels and to those of the μ-law.
    """
    noise_T = np.random.default_rng(0).laplace(size=1_000 if quick else 100_000)
    noise_T /= np.abs(noise_T).max()
    rows = []
    for decibels in (0, -10, -20, -30, -40, -50):
        x_T = torch.from_numpy(noise_T * 10 ** (decibels / 20)).float()
        even_T = (x_T * LEVELS / 2).round().clamp(max=LEVELS / 2 - 1) / (LEVELS / 2)  # as a file of 8 bits
        rows.append((decibels, clearness(x_T, even_T), clearness(x_T, decode(encode(x_T)))))
    curve_T = torch.linspace(-1, 1, 201)
    curve = Series("f(x)", list(zip(curve_T.tolist(), compress(curve_T).tolist(), strict=True)))
    lines = [Series(name, [(row[0], row[i]) for row in rows]) for i, name in ((1, "even levels"), (2, "μ-law"))]
    loud, quiet = rows[0], rows[4]
    return Shown(
        f"At full volume the signal is {loud[1]:.0f} dB above the error with even levels and {loud[2]:.0f} dB with the "
        f"μ-law; 40 dB quieter, {quiet[1]:.0f} and {quiet[2]:.0f} dB.",
        [Table("Signal to error, dB", ["volume, dB", "even levels", "μ-law"], rows)],
        [
            Chart("Samples and their companded values", [curve], x="x"),
            Chart("Signal to error, dB", lines, x="volume, dB"),
        ],
    )


def clearness(x_T: Tensor, found_T: Tensor) -> float:
    """10 log10 of the energy of a signal over that of the error, in dB."""
    return float(10 * torch.log10(x_T.square().sum() / (found_T - x_T).square().sum()))


ENTRIES = (dilations, mu_law)
