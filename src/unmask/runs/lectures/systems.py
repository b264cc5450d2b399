"""Entries on published systems: their scores, their sizes, and what their training cost."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import torch

from unmask.data.order import mixture, nested_mixture
from unmask.models import (
    T5,
    Albert,
    Bert,
    Electra,
    Gpt,
    Gpt2,
    IbBert,
    MobileBert,
    Roberta,
    Transformer,
    albert,
    bert,
    electra,
    gpt,
    t5,
    transformer,
)
from unmask.models import wav2vec2 as speech
from unmask.models.model import ModelConfig
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.objectives.distillation import Phases
from unmask.runs import cost
from unmask.runs.lectures.entry import Shown, entry
from unmask.train.report import Chart, Heatmap, Series, Table

GLUE = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
TEST_SCORES = {
    "best before GPT": (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7),
    "BiLSTM + ELMo": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8),
    "GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0),
    "BERT-base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4),
    "BERT-large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1),
    "MobileBERT": (83.3, 82.6, 70.2, 90.6, 92.8, 50.5, 84.4, 88.8, 66.2),
}
"""Test scores of single models: Devlin et al. 2019, table 1; MobileBERT's by Sun et al. 2020, table 4."""


@entry("GLUE: systems by tasks", code="runs/leaderboard.py", test="lectures/test_system_entries.py")
def glue(quick: bool) -> Shown:
    """Test scores that the papers report: F1 for QQP and MRPC, Spearman's correlation for STS-B, Matthews' for CoLA,
    accuracy for the others (Devlin et al. 2019, table 1; Sun et al. 2020, table 4).

    `unmask glue table RTE=FOLDER ...` makes the row of your own models, on the dev rows.
    """
    means = {name: round(fmean(scores), 1) for name, scores in TEST_SCORES.items()}
    return Shown(
        f"The mean of the nine columns is {means['GPT']} for GPT, {means['BERT-base']} for BERT-base, "
        f"{means['BERT-large']} for BERT-large, and {means['MobileBERT']} for MobileBERT, which has a quarter of the "
        "weights of BERT-base.",
        [
            Table(
                "GLUE, test, one model for each task",
                ["system", *GLUE, "mean"],
                [(name, *scores, means[name]) for name, scores in TEST_SCORES.items()],
            )
        ],
    )


OPERATIONS = {
    "ELMo": {"ELMo": (3.3e18, 71.2)},
    "GPT": {"GPT": (4.0e19, 78.8)},
    "BERT": {"BERT-small": (1.4e18, 75.1), "BERT-base": (6.4e19, 82.2), "BERT-large": (1.9e20, 84.0)},
    "RoBERTa": {"RoBERTa-100K": (6.4e20, 87.9), "RoBERTa-500K": (3.2e21, 88.9)},
    "XLNet": {"XLNet": (3.9e21, 89.1)},
    "ELECTRA": {
        "ELECTRA-small": (1.4e18, 79.9),
        "ELECTRA-base": (6.4e19, 85.1),
        "ELECTRA-400K": (7.1e20, 89.0),
        "ELECTRA-1.75M": (3.1e21, 89.5),
    },
}
"""Operations of pre-training and mean GLUE dev score of each system: Clark et al. 2020, tables 1 and 2."""


@entry("GLUE against the operations of pre-training", code="runs/cost.py", test="lectures/test_system_entries.py")
def glue_operations(quick: bool) -> Shown:
    """ELECTRA learns from every token, so it needs fewer operations for the same score (Clark et al. 2020, tables 1 and
    2; figure 1 draws them). Beside the paper's operations stands what `runs/cost.py` counts for BERT: a million steps
    of 256 sequences of 512 tokens, 76 of them masked.
    """
    systems = {name: found for family in OPERATIONS.values() for name, found in family.items()}
    counted = [
        (name, systems[name][0], 256e6 * cost.training_flops(Bert().replace(**bert.SIZES[size]), 512, 76))
        for name, size in (("BERT-base", "base"), ("BERT-large", "large"))
    ]
    return Shown(
        f"BERT-base and ELECTRA-base have {systems['BERT-base'][1]} and {systems['ELECTRA-base'][1]} after as many "
        f"operations. The cost model counts {counted[0][2]:.1e} for BERT-base, where the paper has "
        f"{counted[0][1]:.1e}, "
        f"and {counted[1][2]:.1e} for BERT-large, where it has {counted[1][1]:.1e}.",
        [
            Table("GLUE dev and operations", ["system", "operations", "GLUE"], scientific(systems)),
            Table(
                "BERT: operations in the paper, and by the cost model",
                ["system", "paper", "cost model"],
                [(name, f"{paper:.1e}", f"{own:.1e}") for name, paper, own in counted],
            ),
        ],
        [
            Chart(
                "GLUE dev score",
                [Series(name, [(x / 1e18, y) for x, y in found.values()]) for name, found in OPERATIONS.items()],
                x="operations of pre-training, × 10^18",
                log_x=True,
            )
        ],
    )


def scientific(found: Mapping[str, tuple[float, float]]) -> list[tuple[str, str, float]]:
    """Rows of a name, operations and a score."""
    return [(name, f"{operations:.1e}", score) for name, (operations, score) in found.items()]


SYSTEMS: tuple[tuple[str, str, str, float, ModelConfig], ...] = (
    ("Transformer, big", "Transformer, T5", "2017-06", 213, Transformer().replace(**transformer.SIZES["big"])),
    ("GPT", "GPT", "2018-06", 117, Gpt()),
    ("BERT-base", "base and smaller", "2018-10", 110, Bert()),
    ("BERT-large", "large encoders", "2018-10", 340, Bert().replace(**bert.SIZES["large"])),
    ("GPT-2", "GPT", "2019-02", 1_542, Gpt2().replace(**gpt.SIZES["xl"])),
    ("RoBERTa-large", "large encoders", "2019-07", 356, Roberta().replace(**bert.SIZES["large"])),
    ("ALBERT-xxlarge", "ALBERT", "2019-09", 235, Albert().replace(**albert.SIZES["xxlarge"])),
    ("T5-11B", "Transformer, T5", "2019-10", 11_000, T5().replace(**t5.SIZES["11b"])),
    ("ELECTRA-large", "large encoders", "2020-03", 335, Electra().replace(**electra.SIZES["large"])),
    ("MobileBERT", "base and smaller", "2020-04", 25.3, MobileBert()),
)
"""System, line of the figure, month of the paper, millions of parameters as published, page."""


@entry("Parameters of systems by year", code="models/model.py", test="lectures/test_system_entries.py")
def parameters(quick: bool) -> Shown:
    """The published number of parameters, and that of the page here: weights without heads. Papers count with or
    without output layers, and round, so that the two differ by some per cent. ALBERT's 235 million are those of Clark
    et al. 2020; the page has 206 million.
    """
    systems = SYSTEMS[1:4] if quick else SYSTEMS
    counted = {name: round(count(page) / 1e6, 1) for name, *_, page in systems}
    smallest, largest = (choose(systems, key=lambda row: row[3]) for choose in (min, max))
    lines: dict[str, list[tuple[float, float]]] = {}
    for _, line, month, published, _ in systems:
        lines.setdefault(line, []).append((int(month[:4]) - 2017 + (int(month[5:]) - 1) / 12, published))
    return Shown(
        f"The largest, {largest[0]}, has {largest[3] / smallest[3]:,.0f} times as many parameters as the smallest, "
        f"{smallest[0]}.",
        [
            Table(
                "Millions of parameters",
                ["system", "paper of", "published", "here"],
                [(name, month, f"{published:,}", f"{counted[name]:,}") for name, _, month, published, _ in systems],
            )
        ],
        [
            Chart(
                "Millions of parameters",
                [Series(line, points) for line, points in lines.items()],
                x="years after the beginning of 2017",
                log_y=True,
            )
        ],
    )


def count(page: ModelConfig) -> int:
    """The number of parameters of a page's trunk; no memory is used for them."""
    with torch.device("meta"):
        return page.build({}, seed=None).parameters_total


TRANSLATION: tuple[tuple[str, float | str, float | str, str, str], ...] = (
    ("ByteNet", 23.75, "", "", ""),
    ("Deep-Att + PosUnk", "", 39.2, "", "1.0e+20"),
    ("GNMT + RL", 24.6, 39.92, "2.3e+19", "1.4e+20"),
    ("ConvS2S", 25.16, 40.46, "9.6e+18", "1.5e+20"),
    ("MoE", 26.03, 40.56, "2.0e+19", "1.2e+20"),
    ("Deep-Att + PosUnk, ensemble", "", 40.4, "", "8.0e+20"),
    ("GNMT + RL, ensemble", 26.30, 41.16, "1.8e+20", "1.1e+21"),
    ("ConvS2S, ensemble", 26.36, 41.29, "7.7e+19", "1.2e+21"),
    ("Transformer, base", 27.3, 38.1, "3.3e+18", ""),
    ("Transformer, big", 28.4, 41.8, "2.3e+19", ""),
)
"""System, BLEU and operations of training for English to German and to French: Vaswani et al. 2017, table 2."""


@entry("Ten systems of translation and their cost", code="runs/cost.py", test="lectures/test_system_entries.py")
def translation_costs(quick: bool) -> Shown:
    """Table 2 of Vaswani et al. 2017. The paper multiplies hours, GPUs and the rate that it assumes of a P100, 9.5
    TFLOP/s. The cost model counts products instead: 100,000 steps of the base model and 300,000 of the big one, each of
    25,000 tokens of source and of target, here in pairs of 25 tokens, with a vocabulary of 37,000 (sections 5.1 and
    5.2).

    The big model has 41.8 BLEU for English to French in table 2 and in the abstract of the paper's last version, and
    41.0 in its section 6.1 and in the abstract of the version of the conference (NIPS 2017).
    """
    rows = []
    for size, hours, steps in (("base", 12, 100_000), ("big", 84, 300_000)):
        page = Transformer(vocabulary=37_000).replace(**transformer.SIZES[size])
        counted = 3 * steps * 1_000 * cost.translation_flops(page, 25, 25)
        paper = hours * 3_600 * 8 * 9.5e12
        rows.append((size, f"{paper:.1e}", f"{counted:.1e}", round(counted / paper, 2)))
    return Shown(
        f"The model counts {rows[0][2]} operations for the base model and {rows[1][2]} for the big one, "
        f"{rows[0][3]:.0%} and {rows[1][3]:.0%} of the paper's: that share of the assumed rate was reached.",
        [
            Table("BLEU and operations", ["system", "EN-DE", "EN-FR", "cost EN-DE", "cost EN-FR"], TRANSLATION),
            Table(
                "The Transformer's operations",
                ["size", "hours × 8 GPUs × 9.5 TFLOP/s", "counted", "share"],
                rows,
            ),
        ],
    )


@entry("XLS-R: hours of speech a step", code="runs/cost.py", test="lectures/test_system_entries.py")
def speech_batches(quick: bool) -> Shown:
    """XLS-R's batches on 128 and 200 GPUs (Babu et al. 2021): crops of 20 seconds, six or three on each GPU, a million
    steps. The seconds are predictions for A100s at 117 TFLOP/s with 25 GB/s between them, from an exchange that is
    hidden behind the computation to one that is not; docs/scaling.md derives them.
    """
    gpu = cost.Cluster(flops=117e12, bandwidth=25e9, latency=1e-5)
    rows = []
    for name, gpus, crops in (("0.3b", 128, 768), ("1b", 200, 600), ("2b", 200, 600)):
        page = Wav2Vec2().replace(**speech.SIZES[f"xls-r-{name}"])
        operations = 4 * crops * cost.speech_flops(page, 320_000)  # one more forward pass, to save memory
        computing, exchange = operations / gpus / gpu.flops, gpu.shard_exchange(2 * count(page), gpus)
        days = [step * 1e6 / 86_400 for step in (max(computing, exchange), computing + exchange)]
        rows.append((name, gpus, crops, round(crops / 180, 1), f"{operations:.1e}", *(round(x, 1) for x in days)))
    return Shown(
        f"A step reads {rows[0][3]} hours of speech on 128 GPUs, and {rows[1][3]} on 200. A million steps of the "
        f"largest model take {rows[2][5]} to {rows[2][6]} days.",
        [Table("A step", ["size", "GPUs", "crops", "hours", "operations", "days, at least", "at most"], rows)],
    )


CORPORA = {
    "broadcasts": {"English": 24_000, "German": 23_000, "Maltese": 9_000},
    "readings": {"English": 44_000, "German": 2_000, "Polish": 100},
}


@entry("Mixing languages by n^α on two levels", code="data/order.py", test="lectures/test_system_entries.py")
def mixing(quick: bool) -> Shown:
    """A language with n examples has the share n^α / Σ n^α: α = 1 keeps the proportions of the data, and smaller α
    raise small languages; BERT for many languages has 0.7. XLS-R mixes twice, both times with 0.5: the languages of a
    corpus, then the corpora (Babu et al. 2021, section 3). The hours of these two corpora are made up.

    `unmask pretrain multilingual-tiny --corpus A B --alpha 0.7` mixes corpora of text; for recordings, `--label-alpha`
    mixes the languages within each.
    """
    alphas, groups = (1.0, 0.7, 0.5, 0.3), [list(found.values()) for found in CORPORA.values()]
    names = [f"{corpus}, {language}" for corpus, found in CORPORA.items() for language in found]
    hours = [size for group in groups for size in group]
    once = [mixture(hours, alpha).tolist() for alpha in alphas]
    twice = [nested_mixture(groups, alpha, alpha).tolist() for alpha in alphas]
    columns = ["", "hours", *(f"α = {alpha:g}" for alpha in alphas)]
    tables = []
    for title, found in (("All at once", once), ("Languages within a corpus, then corpora", twice)):
        shares = [[f"{share:.1%}" for share in row] for row in zip(*found, strict=True)]
        rows = [(name, size, *row) for name, size, row in zip(names, hours, shares, strict=True)]
        tables.append(Table(title, columns, rows))
    return Shown(
        f"{names[-1]}, has {once[0][-1]:.1%} of the hours. With α = 0.5 its share is {once[2][-1]:.1%} on one level "
        f"and {twice[2][-1]:.1%} on two.",
        tables,
    )


@entry("MobileBERT and its teacher", code="objectives/distillation.py", test="wiring/test_knowledge_transfer.py")
def layer_transfer(quick: bool) -> Shown:
    """Between its blocks, MobileBERT is as wide as its teacher, IB-BERT, so that the states there can be compared
    layer by layer. In a progressive transfer, the layers learn one after the other, those below being frozen; then the
    whole model learns the teacher's predictions (Sun et al. 2020). `unmask pretrain mobilebert-tiny --teacher FOLDER
    --states 1 --attention 1 --transfer progressive` does so.
    """
    pages = (("IB-BERT", IbBert()), ("MobileBERT", MobileBert()))
    rows = [
        (name, p.layers, p.dim, p.bottleneck, p.heads, p.feedforwards, p.hidden, round(count(p) / 1e6, 1))
        for name, p in pages
    ]
    depth, total, phases = 6, 60, Phases("progressive", 0.6)
    shown = list(range(0, total, 3))
    learned = [[float(phases.layer(step, total, depth) in (None, layer)) for step in shown] for layer in range(depth)]
    predictions = [float(not phases.only_layers(step, total)) for step in shown]
    return Shown(
        f"The teacher has {rows[0][-1]:g} million parameters and the student {rows[1][-1]:g} million. Both have "
        f"{rows[0][1]} layers, {rows[0][2]} wide between blocks, and {rows[0][3]:,} and {rows[1][3]} inside.",
        [
            Table(
                "Published sizes",
                ["", "layers", "width between", "width inside", "heads", "feed-forwards", "hidden", "million"],
                rows,
            )
        ],
        [
            Heatmap(
                "What learns at a step: six layers, then everything",
                ["predictions", *(f"layer {layer + 1}" for layer in reversed(range(depth)))],
                [str(step) for step in shown],
                [predictions, *reversed(learned)],
            )
        ],
    )


ENTRIES = (glue, glue_operations, parameters, translation_costs, speech_batches, mixing, layer_transfer)
