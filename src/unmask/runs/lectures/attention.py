"""Entries on attention and positions.

Shapes: N draws, S keys, d width of a head, P positions, D width, T tokens.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from unmask.nn import Attention, CentredConvolution, DilatedStack, Position, Recurrent, Sinusoidal
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Chart, Heatmap, Series, Table
from unmask.visualize.complexity import formulas

M = TypeVar("M", bound=nn.Module)


def gradient_norm(p_NS: Tensor) -> Tensor:
    """[N]: the Frobenius norm of the derivative of a softmax by its scores, diag(p) - p pᵀ."""
    return (torch.diag_embed(p_NS) - p_NS[:, :, None] * p_NS[:, None, :]).norm(dim=(1, 2))


@entry("Why attention divides by √d", code="nn/attention.py", test="lectures/test_lectures.py")
def peaking(quick: bool) -> Shown:
    """The product of a query and a key of d numbers, each of variance 1, has variance d. Without a scale, the softmax
    of such scores goes to one key as d grows, and its gradient vanishes. Divided by √d, the scores keep the variance 1
    (Vaswani et al. 2017, section 3.2.1 and footnote 4). A slide that divides by d instead of √d makes the weights even.
    """
    draws, keys, generator = (64 if quick else 1_024), 16, torch.Generator().manual_seed(0)
    widths = [4, 16, 64, 256, 1_024]
    names, largest, norms = ("q · k", "q · k / √d", "q · k / d"), [], []
    for d in widths:
        q_ND, k_NSD = (torch.randn(*shape, d, generator=generator) for shape in ((draws,), (draws, keys)))
        scores_NS = (k_NSD @ q_ND[:, :, None])[:, :, 0]
        weights = [(scores_NS / scale).softmax(-1) for scale in (1.0, d**0.5, float(d))]
        largest.append((d, *(p_NS.amax(-1).mean().item() for p_NS in weights)))
        norms.append((d, *(gradient_norm(p_NS).mean().item() for p_NS in weights)))
    lines = [Series(name, [(row[0], row[1 + i]) for row in norms]) for i, name in enumerate(names)]
    return Shown(
        f"At d = {widths[-1]:,}, the largest of {keys} weights is {largest[-1][1]:.2f} without a scale and "
        f"{largest[-1][2]:.2f} with 1 / √d; the norm of the gradient is {norms[-1][1]:.3f} and {norms[-1][2]:.3f}.",
        [
            Table(f"Largest weight, the mean of {draws:,} queries with {keys} keys, seed 0", ["d", *names], largest),
            Table("Norm of the softmax's gradient", ["d", *names], norms),
        ],
        [Chart("Norm of the softmax's gradient", lines, x="d", log_x=True)],
    )


@entry("Sinusoids of 20 positions and 512 features", code="nn/position.py", test="nn/test_nn_position.py")
def sinusoids(quick: bool) -> Shown:
    """Position p has the features sin(p / 10000^(2i/D)) and cos(p / 10000^(2i/D)) (Vaswani et al. 2017, section 3.5):
    the first pairs turn fast, the last ones hardly at all, as the bits of a binary number do from right to left.

    `unmask show positions --length 20 --dim 512 --out x.html` draws all of them.
    """
    table_PD = Sinusoidal(512).embed(torch.zeros(1, 20, 512))[0]
    chosen = [0, 1, 64, 65, 128, 129, 256, 257, 510, 511]
    shown_PF = table_PD[:, chosen]
    names, places = [f"feature {i}" for i in chosen], [f"position {p}" for p in range(20)]
    lines = [Series(f"feature {i}", [(p, table_PD[p, i].item()) for p in range(20)]) for i in (0, 64, 128, 256)]
    first = [[p, *(round(value, 3) for value in row)] for p, row in enumerate(shown_PF[:6].tolist())]
    return Shown(
        f"Feature 0 turns by 1 radian a position, feature 256 by {1e4 ** (-256 / 512):.3g}, and feature 510 by "
        f"{1e4 ** (-510 / 512):.3g}.",
        [Table("The first six positions", ["position", *map(str, chosen)], first)],
        [
            Heatmap(
                "Ten of the 512 features: no colour is -1, full colour is 1",
                places,
                names,
                ((shown_PF + 1) / 2).tolist(),
            ),
            Chart("Features along the positions", lines, x="position"),
        ],
    )


@entry("PE(pos + k) is linear in PE(pos)", code="nn/position.py", test="lectures/test_lectures.py")
def shift(quick: bool) -> Shown:
    """Each pair of features turns at its own speed w, so a shift by k positions turns it by the angle k w, whatever the
    position: PE(p + k) = R_k PE(p), with one matrix of rotations for all p. This is why a model may learn to attend by
    relative positions (Vaswani et al. 2017, section 3.5).
    """
    dim, length = 64, 200
    table_PD = Sinusoidal(dim).embed(torch.zeros(1, length, dim, dtype=torch.float64))[0]
    rows = []
    for k in (1, 5, 20, 100):
        moved_PD = table_PD[: length - k] @ rotation(dim, k).T
        rows.append((k, (moved_PD - table_PD[k:]).abs().max().item()))
    worst = max(error for _, error in rows)
    return Shown(
        f"The largest difference of R_k PE(p) and PE(p + k) is {worst:.1g}, which is rounding.",
        [Table(f"Over all p, {dim} features", ["k", "largest difference"], rows)],
    )


def rotation(dim: int, k: float) -> Tensor:
    """[D, D] float64: turns each pair of features (sine, cosine) of a sinusoidal position by k positions."""
    angles = k * 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    blocks = [torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]], dtype=torch.float64) for a in angles]
    return torch.block_diag(*blocks)


@entry("Alice hit Bob: attention alone sees no order", code="nn/attention.py", test="lectures/test_lectures.py")
def permutation(quick: bool) -> Shown:
    """Self-attention reads a set: if the words are permuted, the states are permuted alike, so that "Alice hit Bob" and
    "Bob hit Alice" give each word the same state. Positions, added to the vectors of the words, tell them apart.
    """
    words, back = ("Alice", "hit", "Bob"), [2, 1, 0]
    generator = torch.Generator().manual_seed(0)
    x_TD, layer = torch.randn(3, 32, generator=generator), seeded(Attention(32, 4), generator)
    rows: list[tuple[str | float, ...]] = []
    for name, position in (("without positions", Position()), ("with sinusoids", Sinusoidal(32))):
        with torch.no_grad():
            states_TD, turned_TD = (layer(position.embed(one_TD[None]))[0] for one_TD in (x_TD, x_TD[back]))
        rows.append((name, *((states_TD - turned_TD[back]).norm(dim=-1) / states_TD.norm(dim=-1)).tolist()))
    return Shown(
        "Without positions, each word has the same state in both, up to rounding. With positions, Alice and Bob have "
        "others, and the word in the middle, whose place stays, does too.",
        [Table('Difference of a word\'s state in "Alice hit Bob" and "Bob hit Alice"', ["", *words], rows)],
    )


def seeded(module: M, generator: torch.Generator) -> M:
    """The module in evaluation mode, with normal weights of variance 1 / inputs and biases of zero."""
    for name, parameter in module.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            parameter.data.normal_(0, parameter[0].numel() ** -0.5, generator=generator)
    return module.eval()


@entry("What a layer costs", code="visualize/complexity.py", test="visualize/test_views_of_text.py")
def complexity(quick: bool) -> Shown:
    """Table 1 of Vaswani et al. 2017 with restricted self-attention, in which a token attends to r neighbours, and the
    memory that a layer keeps for its gradient. `unmask show complexity --out x.html` measures the seconds of a layer on
    this machine.
    """
    rows = [
        (name, *(row[key] for key in ("operations", "memory", "sequential", "path")))
        for name, row in formulas(64).items()
    ]
    map_bytes = 4 * 65_536**2
    return Shown(
        "Self-attention is cheaper than recurrence while n is smaller than d. A map of 65,536² weights of 4 bytes "
        f"takes {map_bytes / 2**30:.0f} GiB for each head of each layer.",
        [Table("n tokens, width d", ["layer", "operations", "memory", "sequential steps", "longest path"], rows)],
    )


@entry("How far a layer sees", code="nn/convolution.py", test="lectures/test_lectures.py")
def reach(quick: bool) -> Shown:
    """The inputs that the output at a place depends on, counted by the gradient: a convolution with a kernel of 3
    reaches one place further to both sides with each layer; dilations 1, 2, 4, 8 of a causal convolution double the
    reach with each (van den Oord et al. 2016, section 2.1); a recurrent layer reads everything before, and
    self-attention all places at once.
    """
    layers, length, generator = 4, 33, torch.Generator().manual_seed(0)
    dim = 4
    kinds: dict[str, list[nn.Module]] = {
        "convolution, kernel 3": [
            nn.Sequential(*(CentredConvolution(dim, dim, 3) for _ in range(n))) for n in range(1, layers + 1)
        ],
        "dilated causal, kernel 2": [DilatedStack(dim, dim, [2**i for i in range(n)]) for n in range(1, layers + 1)],
        "recurrent": [First(Recurrent("rnn", dim, dim, n)) for n in range(1, layers + 1)],
        "self-attention": [nn.Sequential(*(Attention(dim, 1) for _ in range(n))) for n in range(1, layers + 1)],
    }
    rows = [(name, *(seen(seeded(one, generator), length, dim) for one in models)) for name, models in kinds.items()]
    return Shown(
        f"After {layers} layers, the place in the middle of {length} reads {rows[0][-1]} inputs by convolutions, "
        f"{rows[1][-1]} by dilated ones, {rows[2][-1]} by recurrence and {rows[3][-1]} by self-attention.",
        [Table("Inputs read", ["", "1 layer", *(f"{n} layers" for n in range(2, layers + 1))], rows)],
        [dilations([1, 2, 4, 8])],
    )


class First(nn.Module):
    """The first output of a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.module(x)[0]
        return outputs


def seen(module: nn.Module, length: int, dim: int) -> int:
    """The number of places of a sequence that the output in its middle depends on."""
    x_1TD = torch.linspace(-1, 1, length * dim).view(1, length, dim).requires_grad_()
    [gradient_1TD] = torch.autograd.grad(module(x_1TD)[0, length // 2].sum(), x_1TD)
    return int((gradient_1TD.abs().sum(-1) > 0).sum())


def dilations(steps: list[int]) -> Heatmap:
    """The places of each layer that the last output of a causal stack with a kernel of 2 depends on."""
    length = 1 + sum(steps)
    used = [{length - 1}]
    for step in reversed(steps):
        used.append(used[-1] | {place - step for place in used[-1]})
    names = ["output", *(f"dilation {step}" for step in reversed(steps))]
    values = [[float(place in row) for place in range(length)] for row in used]
    title = "Places that the last output of dilations 1, 2, 4, 8 depends on, from the output down to the input"
    return Heatmap(title, names, [str(place) for place in range(length)], values)


ENTRIES = (peaking, sinusoids, shift, permutation, complexity, reach)
