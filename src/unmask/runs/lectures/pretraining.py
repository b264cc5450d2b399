"""Entries on pre-training: what ELMo, Transformer-XL, BERT, ALBERT, ELECTRA and T5 learn from text without labels.

Shapes: B rows, T tokens, D width, H heads, K width of a head, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.data.text import whole_words
from unmask.models import albert, bert
from unmask.models.albert import Albert
from unmask.models.bert import Bert
from unmask.models.model_config import ModelConfig
from unmask.models.segment_model import SegmentModel
from unmask.models.transformer_xl import TransformerXl
from unmask.nn import ScalarMix, T5Bias, TransformerXL
from unmask.objectives import MaskedLM, NextSentence, SentenceOrder, SpanCorruption
from unmask.objectives.replaced_token import draw
from unmask.runs.lectures.attention import seeded
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Bars, Chart, Heatmap, Series, Table
from unmask.types import Batch, Document

STORIES = (
    ("the river rose at night", "by morning the bridge was gone", "we took the boat", "it was a slow way home"),
    ("she planted three trees", "two of them grew", "the third one never did", "she asked the gardener why"),
)


@entry("ELMo: a mix of all layers", code="nn/head.py", test="lectures/test_pretraining_entries.py")
def layer_mix(quick: bool) -> Shown:
    """ELMo_task = γ Σ_j s_j h_j with s = softmax(w) (Peters et al. 2018, equation 1): a task learns one weight for each
    layer of the language model, and a scale. Here the wanted vectors are 0.7 of layer 1 and 0.3 of layer 2, doubled;
    gradient descent finds the mix.
    """
    generator = torch.Generator().manual_seed(0)
    layers = list(torch.randn(3, 200, 16, generator=generator))
    wanted, mix = 2 * (0.7 * layers[1] + 0.3 * layers[2]), ScalarMix(3)
    lines: list[tuple[float, ...]] = []
    for step in range(150):
        slopes = torch.autograd.grad((mix(layers) - wanted).square().mean(), (mix.weight, mix.scale))
        lines.append((step, *mix.weight.softmax(0).tolist(), mix.scale.item()))
        with torch.no_grad():
            mix.weight.sub_(slopes[0])
            mix.scale.sub_(0.3 * slopes[1])
    names = ["s_0 (words)", "s_1", "s_2", "γ"]
    rows = [lines[step] for step in (0, 20, 50, 149)]
    return Shown(
        f"From equal weights it learns s = ({', '.join(f'{x:.2f}' for x in rows[-1][1:4])}) and γ = {rows[-1][4]:.2f}.",
        [Table("The mix by step", ["step", *names], rows)],
        [Chart("Weights of the layers", [Series(n, [(r[0], r[i + 1]) for r in lines]) for i, n in enumerate(names)])],
    )


@entry(
    "Transformer-XL: how far a memory reaches",
    code="models/segment_model.py",
    test="lectures/test_pretraining_entries.py",
)
def memory_reach(quick: bool) -> Shown:
    """A segment of L tokens is read with the states of the segment before as additional keys. Each layer reaches one
    segment further back, so that the reach grows as N · L with N layers (Dai et al. 2019, section 3.2). A Transformer
    without a memory sees only its own segment. Here one earlier token is changed at a time; it counts if it changes the
    state of the last token.
    """
    L, segments = 4, 6
    T = L * segments
    tokens_1T = torch.randint(5, 30, (1, T), generator=torch.Generator().manual_seed(0))
    tokens_BT = torch.where(torch.eye(T, dtype=torch.bool), 4, tokens_1T)  # row b has another token b
    rows, maps = [], []
    for layers in (1, 2, 3, 4):
        config = TransformerXl(vocabulary=30, dim=16, layers=layers, heads=2, hidden=32, memory=L, std=0.2)
        model = config.build({}, seed=0).eval().double()
        states_BD = last_states(model, torch.cat([tokens_1T, tokens_BT]), L)
        changed_T = (states_BD[1:] - states_BD[0]).abs().amax(1) > 1e-12
        maps.append(changed_T.float().tolist())
        rows.append((layers, L, int(changed_T.sum())))
    return Shown(
        f"With segments and a memory of {L} tokens, the last token of a segment depends on "
        f"{', '.join(str(row[2]) for row in rows)} tokens with 1, 2, 3 and 4 layers, which is L (N + 1).",
        [Table("Tokens that the last one depends on", ["layers", "memory", "tokens"], rows)],
        [
            Heatmap(
                f"Tokens that change the state of token {T}",
                [f"{r[0]} layers" if r[0] > 1 else "1 layer" for r in rows],
                [str(i) for i in range(1, T + 1)],
                maps,
            )
        ],
    )


@torch.no_grad()
def last_states(model: SegmentModel, tokens_BT: Tensor, segment: int) -> Tensor:
    """[B, D]: the states of the last tokens, read segment by segment with the memory of the previous ones."""
    memory, positions_BT = None, torch.arange(tokens_BT.shape[1]).expand_as(tokens_BT)
    for part, places in zip(tokens_BT.split(segment, 1), positions_BT.split(segment, 1), strict=True):
        hidden_BTD, memory = model.read(Batch(part, positions=places), memory)
    return hidden_BTD[:, -1]


@entry("Four terms of relative attention", code="nn/position.py", test="lectures/test_pretraining_entries.py")
def relative_scores(quick: bool) -> Shown:
    """Transformer-XL replaces absolute positions in the score by distances (Dai et al. 2019, section 3.3): content
    q · k, content and distance q · W r, a bias of the key u · k, and a bias of the distance v · W r.
    """
    D, T, generator = 16, 6, torch.Generator().manual_seed(0)
    scheme = seeded(TransformerXL(D, 1), generator)
    u, v = (torch.randn(1, D, generator=generator) for _ in range(2))
    q, k = (torch.randn(1, 1, T, D, generator=generator) for _ in range(2))
    rows = []
    with torch.no_grad():
        for name, bias_u, bias_v, query, key in (
            ("(a) content, q · k", 0 * u, 0 * v, q, k),
            ("(b) content and distance, q · W r", 0 * u, 0 * v, q, 0 * k),
            ("(c) bias of the key, u · k", u, 0 * v, 0 * q, k),
            ("(d) bias of the distance, v · W r", 0 * u, v, 0 * q, 0 * k),
        ):
            scheme.u.copy_(bias_u)
            scheme.v.copy_(bias_v)
            score = query @ key.mT if name[1] == "a" else scheme.score(query, key, 1.0)
            rows.append((name, *score[0, 0, -1].tolist()))
        scheme.u.copy_(u)
        scheme.v.copy_(v)
        whole = (q @ k.mT + scheme.score(q, k, 1.0))[0, 0, -1].tolist()
    rows.append(("all four at once", *whole))
    error = max(abs(sum(row[j] for row in rows[:4]) - whole[j - 1]) for j in range(1, T + 1))
    return Shown(
        f"The four terms add up to the score, with a difference of {error:.1g}.",
        [Table(f"Scores of the last of {T} tokens", ["", *(f"key {j}" for j in range(1, T + 1))], rows)],
    )


@entry(
    "Next sentence, and sentence order", code="objectives/next_sentence.py", test="lectures/test_pretraining_entries.py"
)
def sentence_pairs(quick: bool) -> Shown:
    """BERT asks whether segment B follows segment A or comes from another document (Devlin et al. 2019, section 3.1);
    ALBERT asks whether two consecutive segments are in their order or swapped (Lan et al. 2020, section 3.1), which the
    topic alone does not answer.
    """
    texts = [sentence for story in STORIES for sentence in story]
    tokenizer = whole_words.train(texts, 100)
    documents = [Document(list(tokenizer.ids(story)), i) for i, story in enumerate(STORIES)]
    rows, shares = [], []
    for objective, answers in (
        (NextSentence(tokenizer.join, short=0.0), ("next", "random")),
        (SentenceOrder(tokenizer.join, short=0.0), ("in order", "swapped")),
    ):
        rng, counts = np.random.default_rng(0), Counter[str]()
        for draw_number in range(50 if quick else 500):
            for one in objective.sample(documents, 19, rng):
                if objective.name in one.targets:
                    counts[answer := answers[int(one.targets[objective.name][1][0])]] += 1
                    if draw_number == 0:
                        rows.append((objective.name, " ".join(tokenizer.pieces(one.tokens)), answer))
        shares.append((objective.name, *(counts[answer] / counts.total() for answer in answers)))
    return Shown(
        f"Of the pairs, {shares[0][1]:.0%} are true continuations (a last sentence on its own always gets a random "
        f"partner), and {shares[1][1]:.0%} are in order.",
        [
            Table("The pairs of one draw", ["objective", "pair", "answer"], rows),
            Table("Shares", ["objective", "next, or in order", "random, or swapped"], shares),
        ],
    )


@entry(
    "Static and dynamic masking", code="objectives/language_modeling.py", test="lectures/test_pretraining_entries.py"
)
def dynamic_masking(quick: bool) -> Shown:
    """BERT drew its masks once, ten times for each sequence; RoBERTa draws them anew each time a sequence is seen (Liu
    et al. 2019, section 4.1), as this library does. After n epochs, 1 - 0.85^n of the tokens were a target once or
    more.
    """
    T, epochs, rng = (400 if quick else 4_000), 40, np.random.default_rng(0)
    batch = Batch(torch.arange(5, 5 + T)[None])
    objective = MaskedLM(mask=4, specials=range(5), vocabulary=5 + T)
    seen = {"static, one mask": np.zeros(T, bool), "static, ten masks": np.zeros(T, bool), "dynamic": np.zeros(T, bool)}
    kept = [objective.corrupt(batch, rng).targets["mlm"].places.numpy() for _ in range(10)]
    lines: dict[str, list[tuple[int, float]]] = {name: [] for name in seen}
    for epoch in range(epochs):
        drawn = objective.corrupt(batch, rng).targets["mlm"].places.numpy()
        for (name, once), places in zip(seen.items(), (kept[0], kept[epoch % 10], drawn), strict=True):
            once[places] = True
            lines[name].append((epoch + 1, float(once.mean())))
    rows = [(n, *(lines[name][n - 1][1] for name in seen), 1 - 0.85**n) for n in (1, 5, 10, 20, 40)]
    return Shown(
        f"After 40 epochs, {rows[-1][1]:.0%} of the tokens were a target with one mask, {rows[-1][2]:.0%} with ten, "
        f"and {rows[-1][3]:.1%} with new masks.",
        [Table("Tokens that were a target", ["epochs", *seen, "1 - 0.85^n"], rows)],
        [
            Chart(
                "Share of the tokens that were a target", [Series(n, points) for n, points in lines.items()], x="epoch"
            )
        ],
    )


@entry("ALBERT: narrow tables and shared layers", code="models/albert.py", test="lectures/test_pretraining_entries.py")
def albert_sizes(quick: bool) -> Shown:
    """A table of V · E + E · D numbers in place of V · D, and one set of weights for all layers (Lan et al. 2020,
    section 3.1). The paper has 12, 18 and 60 million parameters for ALBERT base, large and xlarge.
    """
    rows: list[tuple[Any, ...]] = []
    configs: list[tuple[str, Bert]] = [
        *((f"BERT {size}", Bert(vocabulary=30_000).replace(**bert.SIZES[size])) for size in ("base", "large")),
        *(
            (f"ALBERT {size}", Albert().replace(**albert.SIZES[size]))
            for size in ("base", "large", "xlarge", "xxlarge")
        ),
    ]
    for name, config in configs:
        rows.append((name, config.layers, config.dim, *(n / 1e6 for n in counted(config))))
    sizes, nan = [row[-1] for row in rows], float("nan")
    return Shown(
        f"ALBERT large has {rows[1][-1] / rows[3][-1]:.0f} times fewer parameters than BERT large.",
        [Table("Parameters in millions", ["model", "layers", "D", "embeddings", "layers' weights", "all"], rows)],
        [Bars("Parameters in millions", list(albert.SIZES)[2:], {"BERT": [*sizes[:2], nan, nan], "ALBERT": sizes[2:]})],
    )


def counted(config: ModelConfig) -> tuple[int, int, int]:
    """The parameters of the embeddings, of the layers, and of both with a pooler."""
    with torch.device("meta"):
        model = config.build({}, seed=None, pooler=True)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    embeddings = sum(size for name, size in sizes.items() if name.startswith("embedding."))
    return embeddings, sum(size for name, size in sizes.items() if name.startswith("stack.")), sum(sizes.values())


@entry(
    "ELECTRA: the chef cooked the meal",
    code="objectives/replaced_token.py",
    test="lectures/test_pretraining_entries.py",
)
def replaced_tokens(quick: bool) -> Shown:
    """A generator fills in masked tokens; the discriminator says for every token whether it is the original (Clark et
    al. 2020, figure 2). A drawn token that equals the original counts as original. All tokens give a loss, not 15 %.

    The probabilities of the generator are given here; `unmask pretrain electra-tiny` trains one.
    """
    words = ["the", "chef", "cooked", "the", "meal"]
    guesses = {0: {"the": 0.9, "a": 0.1}, 2: {"ate": 0.6, "cooked": 0.3, "burnt": 0.1}}
    generator, counts = torch.Generator().manual_seed(1), {place: Counter[str]() for place in guesses}
    for _ in range(200 if quick else 4_000):
        for place, p in guesses.items():
            chosen = draw(torch.tensor([[*p.values()]]).log(), torch.rand(1, generator=generator))
            counts[place][[*p][int(chosen)]] += 1
    example = {0: "the", 2: "ate"}  # the draw of the figure
    rows = [
        ("original", *words),
        ("masked", *("[MASK]" if i in guesses else word for i, word in enumerate(words))),
        ("filled in", *(example.get(i, word) for i, word in enumerate(words))),
        ("answer", *("replaced" if example.get(i, word) != word else "original" for i, word in enumerate(words))),
    ]
    drawn = [
        (words[i], word, p, counts[i][word] / counts[i].total()) for i in guesses for word, p in guesses[i].items()
    ]
    replaced = [1 - counts[i][words[i]] / counts[i].total() for i in guesses]
    return Shown(
        f"Of the draws, {replaced[0]:.0%} replace 'the' and {replaced[1]:.0%} replace 'cooked'.",
        [
            Table("The figure of the paper", ["", *(str(i) for i in range(1, 6))], rows),
            Table("Draws of the generator", ["original", "drawn", "probability", "share of the draws"], drawn),
        ],
    )


@entry(
    "T5: spans of a text, replaced by sentinels",
    code="objectives/span_corruption.py",
    test="lectures/test_pretraining_entries.py",
)
def span_corruption(quick: bool) -> Shown:
    """The example of Raffel et al. 2020, figure 2: a removed span becomes one sentinel in the source, and the target
    lists each sentinel with its span. Below, random draws at the published rate of 15 % and mean length of 3.

    `unmask show masking --model FOLDER "a text" --out x.html` draws the spans of a T5.
    """
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
    sentinels = ["<X>", "<Y>", "<Z>", "<W>"]
    names = [*words, *sentinels]
    objective = SpanCorruption(range(len(words), len(names)), start=0, end=0, padding=0)
    text, rng = np.arange(len(words)), np.random.default_rng(2)
    hidden = np.isin(words, ["for", "inviting", "last"])
    rows = []
    for label, one in (("the paper's", hidden), *((f"draw {i}", objective.noise(len(words), rng)) for i in (1, 2, 3))):
        rows.append((label, *(" ".join(names[i] for i in side) for side in objective.hide(text, one))))
    long = SpanCorruption(range(100, 200), start=0, end=0, padding=0)
    draws = [long.noise(500, rng) for _ in range(20 if quick else 200)]
    removed = float(np.mean([one.mean() for one in draws]))
    spans = [int((one & ~np.append(False, one[:-1])).sum()) for one in draws]
    mean = sum(int(one.sum()) for one in draws) / sum(spans)
    return Shown(
        f"In texts of 500 tokens, {removed:.1%} are removed, in spans of {mean:.2f} tokens on average.",
        [Table(" ".join(words), ["spans", "source", "target"], rows)],
    )


@entry("T5: buckets of distances", code="nn/position.py", test="lectures/test_pretraining_entries.py")
def buckets(quick: bool) -> Shown:
    """A head of T5 adds a learned number to the score for each bucket of distances (Raffel et al. 2020, section 2.1):
    32 buckets, one for each small distance, then wider and wider, and one for the largest. Half of them are for keys
    after the query.
    """
    encoder, decoder = T5Bias(1), T5Bias(1, causal=True)
    distances = torch.arange(-160, 161)
    lines = []
    for name, scheme, seen in (("encoder", encoder, distances), ("decoder", decoder, distances[:161])):
        points = zip(seen.tolist(), scheme.bucket(seen).tolist(), strict=True)
        lines.append(Series(name, list(points)))
    chosen = torch.tensor([0, 1, 7, 8, 12, 16, 32, 64, 128, 1_000])
    columns = [encoder.bucket(-chosen), encoder.bucket(chosen), decoder.bucket(-chosen)]
    rows = list(zip(chosen.tolist(), *(column.tolist() for column in columns), strict=True))
    last = int((encoder.bucket(-torch.arange(200)) == 15).nonzero()[0])
    return Shown(
        f"Distances 0 to 7 have a bucket each in the encoder; from {last} on, all share the last one.",
        [Table("Bucket of a key", ["distance", "before, encoder", "after, encoder", "before, decoder"], rows)],
        [Chart("Bucket by distance (key minus query)", lines, x="distance")],
    )


ENTRIES = (
    layer_mix,
    memory_reach,
    relative_scores,
    sentence_pairs,
    dynamic_masking,
    albert_sizes,
    replaced_tokens,
    span_corruption,
    buckets,
)
