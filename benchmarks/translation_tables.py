"""The tables and the plot of the translation benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.common import Result
from bench.table import markdown

FEW = 20  # sentences, below which the score of a bucket is not drawn
MULTI30K_DE = ("multi30k", ("en", "de"))
HEADER = (
    *("system", "parameters", "train tokens/s", "steps", "epochs", "minutes", "dev BLEU", "test BLEU"),
    *("lower-cased", "chrF", "sentences/s"),
)


def render(systems: Mapping[str, Result]) -> str:
    """All systems as Markdown tables: scores and times, and BLEU by the length of the source in words."""
    rows = [cells(system) for system in systems.values()]
    lines = [markdown([HEADER, *rows]), "", *signatures(systems), *warnings(systems)]
    return "\n".join([*lines, "", "Test BLEU by the words of the source (sentences):", "", by_length(systems)])


def cells(system: Result) -> list[str]:
    """A row of the first table; test BLEU with half of its 95 % interval."""
    dev, test = (system[split]["scores"] for split in ("dev", "test"))
    return [
        system["title"],
        f"{system['parameters'] / 1e6:.1f} M",
        f"{system['tokens_per_second']:,.0f}",
        f"{system['steps']:,}",
        f"{system['epochs']:.1f}",
        f"{system['seconds'] / 60:.1f}",
        f"{dev['bleu']['value']:.1f}",
        f"{test['bleu']['value']:.1f} ± {system['test']['interval']['margin']:.1f}",
        f"{test['bleu_lowercase_tokens']['value']:.1f}",
        f"{test['chrf']['value']:.1f}",
        f"{system['test']['sentences_per_second']:.1f}",
    ]


def line(system: Result) -> str:
    """The result of one system in a line."""
    return ", ".join(f"{name} {cell}" for name, cell in zip(HEADER[1:], cells(system)[1:], strict=True))


def signatures(systems: Mapping[str, Result]) -> list[str]:
    """The signature of each score, once if it is the same for all."""
    found = {
        (name, value["signature"]) for system in systems.values() for name, value in system["test"]["scores"].items()
    }
    searches = {system["test"]["search"]["formula"] for system in systems.values()}
    beams = {system["test"]["search"]["beam_size"] for system in systems.values()}
    how = f"Beam of {', '.join(map(str, sorted(beams)))}, score {', '.join(sorted(searches))}."
    return [*(f"{name}: {signature}" for name, signature in sorted(found)), how]


def warnings(systems: Mapping[str, Result]) -> list[str]:
    """A note on compared systems with different vocabularies, devices or precisions."""
    compared: dict[tuple[str, ...], list[Result]] = {}
    for system in systems.values():
        texts = system["config"]["texts"]["train"]
        compared.setdefault(tuple(Path(name).name for name in texts), []).append(system)
    differ = [
        f"The systems on {' and '.join(texts)} do not have the same {what}."
        for texts, some in compared.items()
        for what, values in (
            ("vocabulary", {system["vocabulary"]["sha256"] for system in some}),
            ("device", {system["device"] for system in some}),
            ("precision", {system["precision"] for system in some}),
        )
        if len(values) > 1
    ]
    return ["", *differ] if differ else []


def by_length(systems: Mapping[str, Result]) -> str:
    """BLEU in each bucket, a row for a system."""
    buckets = sorted({(b["above"], b["up_to"]) for s in systems.values() for b in s["test"]["by_length"]}, key=_order)
    rows: list[Sequence[str]] = [["system", *(words(*bucket) for bucket in buckets)]]
    for system in systems.values():
        found = {(b["above"], b["up_to"]): b for b in system["test"]["by_length"]}
        rows.append([system["title"], *(_score(found.get(bucket)) for bucket in buckets)])
    return markdown(rows)


def words(above: int, up_to: int | None) -> str:
    """The name of a bucket: the range of the words of its sources."""
    return f"over {above}" if up_to is None else f"{above + 1}-{up_to}"


def _order(bucket: tuple[int, int | None]) -> int:
    return bucket[0]


def _score(bucket: Mapping[str, Any] | None) -> str:
    return "" if bucket is None else f"{bucket['bleu']:.1f} ({bucket['sentences']})"


def plot(systems: Mapping[str, Result], path: Path) -> Path:
    """BLEU by the length of the source, a line for each system on Multi30k en-de; buckets of few sentences are left
    out. The figure of Bahdanau et al. 2014 (figure 2), with more systems."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "unmask", "svg.fonttype": "none"})  # the same bytes again, text as text
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    shown = [system for system in systems.values() if _german(system)]
    for system in shown:
        some = [bucket for bucket in system["test"]["by_length"] if bucket["sentences"] >= FEW]
        names = [words(bucket["above"], bucket["up_to"]) for bucket in some]
        axes.plot(names, [bucket["bleu"] for bucket in some], "o-", label=system["title"])
    axes.set(xlabel="words of the source", ylabel="BLEU, beam of 5", title="Multi30k en-de, test 2016")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if shown:
        axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
    return path


def _german(system: Result) -> bool:
    return system["corpus"] == "multi30k" and "de" in system["languages"]
