"""Entries on the Transformer: its attention by hand, heads, masks, norms, training and output.

Shapes: B rows, T queries, S keys, D width, H heads, K width of a head, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from unmask.generate import Sampling, Search
from unmask.models.transformer import SIZES, Transformer
from unmask.nn import Attention, Bias, Block, FeedForward, Mask, Residual, record_attention
from unmask.nn.attention import attention
from unmask.objectives.cross_entropy import equation
from unmask.runs.lectures.attention import seeded
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.optim import Schedule
from unmask.train.report import Bars, Chart, Heatmap, Series, Table


@entry("Attention of three tokens by hand", code="nn/attention.py", test="lectures/test_transformer_entries.py")
def three_tokens(quick: bool) -> Shown:
    """softmax(Q Kᵀ / √d_k) V (Vaswani et al. 2017, equation 1), with numbers that can be checked on paper: each token
    compares its query with all keys, and its output is the mean of the values by these weights.
    """
    q_TK = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    k_SK = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    v_SK = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]])
    kept: list[Tensor] = []
    q, k, v = (x[None, None] for x in (q_TK, k_SK, v_SK))
    output_TK = attention(q, k, v, Bias(), scale=2**-0.5, look=kept.append)[0, 0]
    scores_TS, weights_TS = q_TK @ k_SK.T, kept[0][0, 0]
    names = ["token 1", "token 2", "token 3"]
    rows = [
        (name, *(" ".join(f"{x:.2f}" for x in part[t].tolist()) for part in (q_TK, scores_TS, weights_TS, output_TK)))
        for t, name in enumerate(names)
    ]
    return Shown(
        f"Token 1 has the scores {rows[0][2]} with the three keys; divided by √2, they give the weights {rows[0][3]}.",
        [Table("d_k = 2", ["", "query", "q · k", "weights", "output"], rows)],
        [Heatmap("Weights of the tokens of a row", names, names, weights_TS.tolist())],
    )


@entry("Eight heads cost as much as one", code="nn/attention.py", test="lectures/test_transformer_entries.py")
def heads(quick: bool) -> Shown:
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) Wᴼ with heads of width D / h (Vaswani et al. 2017, section 3.2.2).
    The number of parameters does not depend on h; the number of attention maps does, so that heads can look at
    different tokens.
    """
    D, T, generator = 64, 12, torch.Generator().manual_seed(0)
    x_BTD = torch.randn(1, T, D, generator=generator)
    rows = []
    for H in (1, 2, 4, 8, 16):
        layer = seeded(Attention(D, H), generator)
        with torch.no_grad(), record_attention(layer) as maps:
            layer(x_BTD)
        largest = maps[0].weights.argmax(-1)[0]  # [H, T]
        different = sum(len(set(column.tolist())) for column in largest.T) / T
        rows.append((H, D // H, sum(p.numel() for p in layer.parameters()), different))
    return Shown(
        f"All have {rows[0][2]:,} parameters. With {rows[-2][0]} heads of random weights, a token looks most at "
        f"{rows[-2][3]:.1f} different tokens.",
        [Table(f"Width {D}", ["heads", "width of a head", "parameters", "tokens looked at most"], rows)],
    )


@entry("Four masks", code="nn/mask.py", test="lectures/test_transformer_entries.py")
def masks(quick: bool) -> Shown:
    """What a token (row) may attend to (columns). An encoder such as BERT reads everything but padding. A decoder reads
    no later token. Several texts in one row may not read each other. A window keeps the cost of long texts linear.

    `unmask show masks --model FOLDER "a text" --out x.html` draws those of a model.
    """
    names, T = [str(i) for i in range(1, 9)], 8
    padded = torch.tensor([6])
    packed = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0]])
    kinds = {
        "padding: 6 of 8 places are tokens": Mask(lengths=padded),
        "causal": Mask(causal=True),
        "two texts in one row, and one place of padding": Mask(documents=packed),
        "causal, window of 3": Mask(causal=True, window=3),
    }
    visible = {name: mask.tensor(T, T) for name, mask in kinds.items()}
    found = {name: x.expand(1, 1, T, T)[0, 0] for name, x in visible.items() if x is not None}
    rows = [(name, int(x_TT.sum()), T * T) for name, x_TT in found.items()]
    figures = [Heatmap(name, names, names, x_TT.float().tolist()) for name, x_TT in found.items()]
    return Shown(
        f"A causal mask of {T} tokens shows {rows[1][1]} of {T * T} pairs, which is T (T + 1) / 2.",
        [Table("Pairs that are visible", ["mask", "visible", "all"], rows)],
        figures,
    )


@entry("Where the norm stands: post-norm and pre-norm", code="nn/block.py", test="lectures/test_transformer_entries.py")
def pre_norm(quick: bool) -> Shown:
    """The Transformer as published normalises after each residual sum, LayerNorm(x + f(x)). With the norm before each
    sub-layer, x + f(LayerNorm(x)), the gradient at the start of training is well behaved, and the warm-up can be left
    out; with post-norm, the gradients of the last layers are large (Xiong et al. 2020).
    """
    layers, D, T = 12, 64, 16
    lines, ratios = [], []
    for name in ("post-norm", "pre-norm"):
        generator = torch.Generator().manual_seed(0)
        blocks = [seeded(_block(D, pre=name == "pre-norm"), generator) for _ in range(layers)]
        x = torch.randn(4, T, D, generator=generator)
        for block in blocks:
            x = block(x)
        x = nn.functional.layer_norm(x, (D,))  # a pre-norm stack ends with a norm; it changes nothing of the other
        loss = nn.functional.cross_entropy(
            (x @ torch.randn(D, 32, generator=generator) / D**0.5).flatten(0, 1),
            torch.randint(32, (4 * T,), generator=generator),
        )
        norms = [
            float(torch.stack([g.norm() for g in torch.autograd.grad(loss, _feed(block), retain_graph=True)]).norm())
            for block in blocks
        ]
        lines.append(Series(name, [(i + 1, norm) for i, norm in enumerate(norms)]))
        ratios.append((name, norms[0], norms[-1], norms[-1] / norms[0]))
    return Shown(
        f"From the first of {layers} layers to the last, the gradient of a feed-forward layer changes by a factor of "
        f"{ratios[0][3]:.2g} with post-norm and of {ratios[1][3]:.2g} with pre-norm; the last one has "
        f"{ratios[0][2]:.2g} and {ratios[1][2]:.2g}.",
        [Table("Norm of the gradient of a feed-forward layer", ["", "first layer", "last layer", "ratio"], ratios)],
        [Chart("Norm of the gradient of a feed-forward layer, before training", lines, x="layer", log_y=True)],
    )


def _block(dim: int, *, pre: bool) -> Block:
    parts = (Attention(dim, 4), FeedForward(dim, 4 * dim, nn.functional.relu))
    norms = ((nn.LayerNorm(dim), None) if pre else (None, nn.LayerNorm(dim)) for _ in parts)
    return Block(*(Residual(f, before=before, after=after) for f, (before, after) in zip(parts, norms, strict=True)))


def _feed(block: nn.Module) -> list[nn.Parameter]:
    """The two matrices of the feed-forward layer of a block."""
    return [parameter for parameter in block.parameters() if parameter.dim() > 1][-2:]


@entry("What LayerNorm averages over", code="runs/lectures/transformer.py", test="lectures/test_transformer_entries.py")
def layer_norm(quick: bool) -> Shown:
    """LayerNorm takes mean and variance over the features of one position of one text (Ba et al. 2016, equation 3:
    over the hidden units of a layer). BatchNorm takes them over the inputs of a batch, for one feature (Ioffe & Szegedy
    2015, algorithm 1). A slide that lets LayerNorm average over inputs describes BatchNorm. So LayerNorm gives a text
    the same result in any batch.
    """
    generator = torch.Generator().manual_seed(0)
    x_BD = 2 * torch.randn(6, 4, generator=generator) + torch.tensor([0.0, 3.0, -3.0, 1.0])
    rows = []
    for name, over, axis in (("LayerNorm", "features of a position", 1), ("BatchNorm", "inputs of a batch", 0)):
        whole, half = (normalised(x, axis) for x in (x_BD, x_BD[:3]))
        means = [whole.mean(other).abs().max().item() for other in (1, 0)]
        rows.append((name, over, *means, (whole[:3] - half).abs().max().item()))
    return Shown(
        f"If three of six inputs are left out, the others change by up to {rows[1][-1]:.2f} with BatchNorm, and by "
        f"{rows[0][-1]:.0f} with LayerNorm.",
        [
            Table(
                "Six inputs of four features",
                ["", "averages over", "largest mean of an input", "of a feature", "change in another batch"],
                rows,
            )
        ],
    )


def normalised(x_BD: Tensor, axis: int) -> Tensor:
    """Mean 0 and variance 1 along an axis, in evaluation of LayerNorm (1) or in training of BatchNorm (0)."""
    variance, mean = torch.var_mean(x_BD, axis, correction=0, keepdim=True)
    return (x_BD - mean) / (variance + 1e-5).sqrt()


@entry(
    "Warm-up: the learning rate of the Transformer", code="train/optim.py", test="lectures/test_transformer_entries.py"
)
def warm_up(quick: bool) -> Shown:
    """rate = D^-0.5 · min(step^-0.5, step · warmup^-1.5) (Vaswani et al. 2017, equation 3): linear for 4,000 steps,
    then as the inverse square root of the step. BERT warms up for 10,000 steps, and then falls linearly to zero (Devlin
    et al. 2019, appendix A.2). `--shape` and `--warmup` choose the schedule of a run.
    """
    total, D, warmup = 100_000, 512, 4_000
    peak = (D * warmup) ** -0.5
    steps = [1, *range(1_000, total + 1, 1_000)]
    shapes = {
        "inverse-sqrt, warm-up of 4,000": Schedule(shape="inverse-sqrt", warmup=warmup),
        "linear, warm-up of 10,000": Schedule(shape="linear", warmup=10_000),
        "cosine, warm-up of 10,000": Schedule(shape="cosine", warmup=10_000),
    }
    rates = {name: [peak * shape.at(step - 1, total) for step in steps] for name, shape in shapes.items()}
    lines = [Series(name, list(zip(steps, values, strict=True))) for name, values in rates.items()]
    chosen = [(step, *(x[steps.index(step)] for x in rates.values())) for step in (1, 4_000, 10_000, 50_000, total)]
    return Shown(
        f"With D = {D}, the highest rate is {peak:.2g}, at step {warmup:,}; at step {total:,} it is "
        f"{rates['inverse-sqrt, warm-up of 4,000'][-1]:.2g}.",
        [Table("Learning rate", ["step", *rates], chosen)],
        [Chart("Learning rate by step, all with the same peak", lines)],
    )


@entry("Label smoothing", code="objectives/cross_entropy.py", test="lectures/test_transformer_entries.py")
def label_smoothing(quick: bool) -> Shown:
    """The target is 1 - ε for the right token and ε / V for all (Szegedy et al. 2016, section 7; ε = 0.1 in Vaswani et
    al. 2017, section 5.4). The loss is then lowest not at p = 1 but at p = 1 - ε + ε / V: perplexity suffers, since the
    model learns to be unsure.
    """
    V, grid = 100, [0.01, *(i / 100 for i in range(5, 100, 5)), 0.99, 0.999, 0.9999, 0.99999]
    lines, rows = [], []
    for smoothing in (0.0, 0.1, 0.3):
        losses = []
        for p in grid:
            logits_1V = torch.full((1, V), math.log((1 - p) / (V - 1)))
            logits_1V[0, 0] = math.log(p)
            losses.append(equation(logits_1V, torch.zeros(1, dtype=torch.long), smoothing)[0].item())
        lines.append(Series(f"ε = {smoothing:g}", list(zip(grid, losses, strict=True))))
        rows.append((smoothing, grid[losses.index(min(losses))], 1 - smoothing + smoothing / V, min(losses)))
    return Shown(
        f"With ε = 0.1, the loss is lowest near p = {rows[1][2]:.3f}, where it is {rows[1][3]:.2f} and not 0.",
        [Table(f"{V} tokens, the others equally probable", ["ε", "best p of the grid", "1 - ε + ε / V", "loss"], rows)],
        [Chart("Loss by the probability of the right token", lines, x="p")],
    )


@entry("Length penalty of a beam search", code="generate/beam.py", test="lectures/test_transformer_entries.py")
def length_penalty(quick: bool) -> Shown:
    """Each token makes a hypothesis less probable, so a search without a penalty prefers short ones. The score is
    log P(y) / ((5 + |y|) / 6)^α (Wu et al. 2016, equation 14); the Transformer has α = 0.6 and a beam of 4 (Vaswani et
    al. 2017, section 6.1).
    """
    short, long = (-4.0, 5), (-6.5, 12)  # log P and tokens of two hypotheses
    rows, lines = [], []
    for alpha in (0.0, 0.3, 0.6, 1.0):
        search = Search(length_penalty=alpha, penalty="gnmt")
        scores = [log_p / search.penalise(length) for log_p, length in (short, long)]
        rows.append((alpha, *scores, "short" if scores[0] > scores[1] else "long"))
        lines.append(Series(f"α = {alpha:g}", [(length, search.penalise(length)) for length in range(1, 31)]))
    return Shown(
        f"Of {short[1]} tokens with log P = {short[0]} and {long[1]} tokens with {long[0]}, α = 0 prefers the short "
        f"hypothesis, and α = 1 the {rows[-1][3]} one.",
        [Table("Scores of two hypotheses", ["α", f"{short[1]} tokens", f"{long[1]} tokens", "best"], rows)],
        [Chart("What log P is divided by", lines, x="tokens")],
    )


@entry("Temperature, top-k, top-p", code="generate/sampling.py", test="lectures/test_transformer_entries.py")
def sampling(quick: bool) -> Shown:
    """Which tokens a text is drawn from: the softmax of logits / temperature; of it, the k most probable tokens (Fan et
    al. 2018, section 5.1), or the fewest that have the probability p together (Holtzman et al. 2020, section 3.1).
    """
    words = ["mat", "floor", "sofa", "bed", "table", "roof", "moon", "idea"]
    p_V = torch.tensor([0.35, 0.22, 0.15, 0.1, 0.08, 0.05, 0.03, 0.02])
    kinds = {
        "plain": Sampling(),
        "temperature 0.5": Sampling(temperature=0.5),
        "top-k of 3": Sampling(top_k=3),
        "top-p of 0.8": Sampling(top_p=0.8),
    }
    found = {}
    for name, one in kinds.items():
        logits_1K, tokens_1K = one.shortlist(p_V.log()[None])
        shares = torch.zeros(len(words))
        shares[range(len(words)) if tokens_1K is None else tokens_1K[0]] = logits_1K.softmax(1)[0]
        found[name] = shares.tolist()
    kept = {name: sum(p > 0 for p in shares) for name, shares in found.items()}
    rows = [(word, *(shares[i] for shares in found.values())) for i, word in enumerate(words)]
    return Shown(
        f"Top-k keeps {kept['top-k of 3']} words, top-p {kept['top-p of 0.8']}; a temperature of 0.5 gives "
        f"'{words[0]}' {found['temperature 0.5'][0]:.2f} instead of {found['plain'][0]:.2f}.",
        [Table("The cat sat on the …", ["word", *found], rows)],
        [Bars("The cat sat on the …", words, found)],
    )


@entry(
    "The parameters of the Transformer, part by part",
    code="models/transformer.py",
    test="lectures/test_transformer_entries.py",
)
def transformer_sizes(quick: bool) -> Shown:
    """Table 3 of Vaswani et al. 2017 gives 65 million parameters for the base model and 213 million for the big one,
    with a shared vocabulary of about 37,000 pieces. Here they are counted by formula and in the model itself.
    """
    rows = []
    for name in ("base", "big"):
        config = Transformer(vocabulary=37_000).replace(**SIZES[name])
        D, F, N, V = config.dim, config.encoder_hidden, config.encoder_layers, config.vocabulary
        attention_, feed, norm = 4 * (D * D + D), 2 * D * F + F + D, 2 * D
        parts = (V * D, N * (attention_ + feed + 2 * norm), N * (2 * attention_ + feed + 3 * norm))
        with torch.device("meta"):
            model = config.build(seed=None)
        rows.append((name, *parts, sum(parts), sum(p.numel() for p in model.parameters())))
    return Shown(
        f"The base model has {rows[0][-1] / 1e6:.0f} million parameters, the big one {rows[1][-1] / 1e6:.0f} million.",
        [Table("Parameters", ["model", "V · D", "encoder", "decoder", "sum", "in the model"], rows)],
    )


ENTRIES = (
    three_tokens,
    heads,
    masks,
    pre_norm,
    layer_norm,
    warm_up,
    label_smoothing,
    length_penalty,
    sampling,
    transformer_sizes,
)
