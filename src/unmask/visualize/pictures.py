"""Pictures: a view as PNG or SVG for a paper or a slide, drawn by matplotlib."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unmask.errors import UnmaskError, needs, unknown
from unmask.files import atomic
from unmask.visualize import gallery, recordings
from unmask.visualize.numbers import Data, unpacked

COLOURS = ("#0072b2", "#c85200", "#007d5c", "#a84a85", "#8a6000", "#28739f", "#6a5acd", "#5f6672")
"""The colours of the page (after Okabe & Ito 2008)."""

POINTS = 96  # pixels of a page in an inch of a drawing


def draw(path: Path, data: Data) -> None:
    """Write the view `data["view"]` as a picture, in the format of the file's suffix (.png, .svg).

    Raises UnmaskError if matplotlib is not installed, and for a view that only a page can draw.
    """
    if data["view"] not in PICTURES:
        raise unknown("picture of", data["view"], PICTURES)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise needs("Pictures need matplotlib", "pictures", "write FILE.html") from None
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    PICTURES[data["view"]](figure, data)
    with atomic(path) as temporary:
        figure.savefig(
            temporary, format=path.suffix[1:], dpi=160, metadata={"Date": None} if path.suffix == ".svg" else {}
        )


def _attention(figure: Any, data: Data) -> None:
    """The heads of the chosen layer with the names of tokens; without a choice, thumbnails of all layers and heads."""
    start = data.get("start")
    if start is None:
        small = unpacked(data["thumbnails"])
        figure.set_size_inches(0.8 * data["heads"] + 1, 0.8 * data["layers"] + 1)
        axes = figure.subplots(data["layers"], data["heads"], squeeze=False)
        for layer, row in enumerate(axes):
            for head, axis in enumerate(row):
                axis.imshow(small[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
                axis.set(xticks=[], yticks=[])
                if not layer:
                    axis.set_title(f"{head + 1}", fontsize=8)
                if not head:
                    axis.set_ylabel(f"{layer + 1}", fontsize=8)
        figure.supxlabel("head")
        figure.supylabel("layer")
        return
    parts = [part for part in data["details"] if part["layer"] == start["layer"]]
    weights = {head: x for part in parts for head, x in zip(part["heads"], unpacked(part["weights"]), strict=True)}
    across = min(4, len(start["heads"]))
    down = -(-len(start["heads"]) // across)
    figure.set_size_inches(4.2 * across, 4.2 * down)
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for axis, head in zip(axes, start["heads"], strict=False):
        _named(axis, weights[head], data["rows"], data["columns"], "Blues", (0.0, 1.0))
        axis.set_title(f"layer {start['layer'] + 1}, head {head + 1}", fontsize=9)
    for axis in axes[len(start["heads"]) :]:
        axis.set_visible(False)


def _picture_attention(figure: Any, data: Data) -> None:
    """The picture, and what its class token attends to: by rollout, and in each head of the chosen (or last) layer."""
    first, grid, side = len(data["summaries"]), data["grid"], data["picture"]["side"]
    pixels_HWC = np.frombuffer(base64.b64decode(data["picture"]["data"]), np.uint8).reshape(side, side, 3)
    layer = data.get("start", {}).get("layer", data["layers"] - 1)
    parts = [part for part in data["details"] if part["layer"] == layer]
    shown = {"picture": None, "rollout": unpacked(data["rollout"])}
    shown |= {f"layer {layer + 1}, head {part['heads'][0] + 1}": unpacked(part["weights"])[0] for part in parts}
    across = min(4, len(shown))
    down = -(-len(shown) // across)
    figure.set_size_inches(2.4 * across, 2.6 * down)
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for axis, (title, weights) in zip(axes, shown.items(), strict=False):
        shares = np.ones((grid, grid)) if weights is None else weights[0, first:].reshape(grid, grid)
        light = np.kron(shares / shares.max(), np.ones((side // grid, side // grid)))[..., None]
        axis.imshow((pixels_HWC * (0.15 + 0.85 * light)).astype(np.uint8))
        axis.set(xticks=[], yticks=[])
        axis.set_title(title, fontsize=8)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)


def _recording(figure: Any, data: Data) -> None:
    """Waveform, spectrogram and lanes below each other, with one time axis."""
    lanes, drawn = data["lanes"], data["spectrogram"]
    heights = [0.9, *([1.4] if drawn else []), *(LANES[lane["kind"]][0] for lane in lanes)]
    figure.set_size_inches(9, sum(heights) + 0.35 * len(heights) + 0.5)
    first, *others = figure.subplots(len(heights), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    samples_N = unpacked(data["samples"])
    low_P, high_P = recordings.envelope(samples_N, 1800)
    first.fill_between(np.linspace(0, data["seconds"], len(low_P)), low_P, high_P, color=COLOURS[0], linewidth=0.4)
    first.set(xlim=(0, data["seconds"]))
    first.set_title("Waveform", fontsize=8, loc="left")
    if drawn:
        axis, values_FM = others.pop(0), unpacked(drawn["values"])
        begin, M = drawn["begin"] - drawn["hop"] / 2, len(drawn["hertz"])
        extent = (begin, begin + drawn["hop"] * len(values_FM), -0.5, M - 0.5)
        axis.imshow(values_FM.T, cmap="Greys", vmin=0, vmax=1, aspect="auto", origin="lower", extent=extent)
        ticks = [250, 1000, 4000]
        axis.set_yticks(np.interp(ticks, drawn["hertz"], np.arange(M)), [f"{one:,} Hz" for one in ticks])
        axis.set_title(f"Spectrogram over {drawn['decibels']:g} dB", fontsize=8, loc="left")
    for axis, lane in zip(others, lanes, strict=True):
        LANES[lane["kind"]][1](axis, lane)
        axis.set_title(_plain(lane["title"]), fontsize=8, loc="left")
        for one in lane["spans"] if lane.get("over") else ():
            first.axvspan(one["begin"], one["end"], color="#808080", alpha=0.25, linewidth=0)
    for axis in figure.axes:
        axis.tick_params(labelsize=7)
    figure.axes[-1].set_xlabel(f"seconds from {data['begin']:g} s on" if data.get("begin") else "seconds", fontsize=8)


def _spans(axis: Any, lane: Data) -> None:
    for one in lane["spans"]:
        wide = one["end"] - one["begin"]
        axis.axvspan(one["begin"], one["end"], color=COLOURS[one["index"] % len(COLOURS)], alpha=0.35, linewidth=0)
        if wide > 0.012 * len(one["label"]) * axis.get_xlim()[1]:
            axis.text(one["begin"] + wide / 2, 0.5, _plain(one["label"]), ha="center", va="center", fontsize=6)
    axis.set(yticks=[], ylim=(0, 1))


def _stems(axis: Any, lane: Data) -> None:
    for one in lane["stems"]:
        axis.vlines(one["time"], 0, one["value"], color=COLOURS[2])
        axis.text(one["time"], one["value"], _plain(one["label"]), ha="center", va="bottom", fontsize=6)
    axis.set(ylim=(0, 1.4))


def _map(axis: Any, lane: Data) -> None:
    values_KF = unpacked(lane["values"])
    extent = (lane["begin"], lane["end"], len(values_KF) - 0.5, -0.5)
    axis.imshow(values_KF, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest", extent=extent)
    axis.set(yticks=[])


LANES: dict[str, tuple[float, Callable[[Any, Data], None]]] = {
    "spans": (0.3, _spans),
    "stems": (0.6, _stems),
    "map": (0.8, _map),
}
"""Kind of a lane of a recording -> its height in inches, and how it is drawn."""


def _recording_attention(figure: Any, data: Data) -> None:
    """The heads of the chosen (or last) layer, with the time along both axes."""
    start = data.get("start", {})
    layer, heads = start.get("layer", data["layers"] - 1), start.get("heads", range(data["heads"]))
    parts = [part for part in data["details"] if part["layer"] == layer and part["heads"][0] in heads]
    across = min(4, len(parts))
    down = -(-len(parts) // across)
    figure.set_size_inches(3 * across, 3.1 * down)
    begin, end = (data["recording"]["begin"] + data["frames"][name] for name in ("begin", "end"))
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flatten()
    for axis, part in zip(axes, parts, strict=False):
        weights_FF = unpacked(part["weights"])[0]
        axis.imshow(weights_FF, cmap="Blues", vmin=0, vmax=weights_FF.max(), extent=(begin, end, end, begin))
        axis.set_title(f"layer {layer + 1}, head {part['heads'][0] + 1}", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes[len(parts) :]:
        axis.set_visible(False)
    figure.supxlabel("attended frame, in seconds", fontsize=8)
    figure.supylabel("attending frame, in seconds", fontsize=8)


def _clusters(figure: Any, data: Data) -> None:
    figure.set_size_inches(10, 1 + 0.16 * len(data["rows"]))
    axis = figure.subplots()
    image = axis.imshow(unpacked(data["values"]), cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axis.set_yticks(range(len(data["rows"])), [_plain(name) for name in data["rows"]])
    axis.set(xticks=[], xlabel=f"{len(data['columns'])} clusters, by their most frequent label")
    axis.tick_params(labelsize=7)
    figure.colorbar(image, ax=axis, label="share of the cluster's frames")


def _gallery(figure: Any, data: Data) -> None:
    """The groups below each other. Cells without captions are drawn as one image, which is faster."""
    groups = data["groups"]
    down = [-(-len(group["cells"]) // group["across"]) for group in groups]
    inches = [group["size"] / POINTS for group in groups]
    heights = [rows * side * 1.25 + 0.4 for rows, side in zip(down, inches, strict=True)]
    wide = max(group["across"] * side * 1.05 for group, side in zip(groups, inches, strict=True))
    figure.set_size_inches(max(wide, 4), sum(heights))
    parts = figure.subfigures(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, group, rows in zip(parts, groups, down, strict=True):
        part.suptitle(_plain(group["title"]), fontsize=9, x=0.01, ha="left")
        if not any(cell["caption"] for cell in group["cells"]):
            _mosaic(part.subplots(), group, data["scale"])
            continue
        across = max(group["across"], round(wide * POINTS / group["size"]))
        axes = part.subplots(rows, across, squeeze=False)
        for place, axis in enumerate(axes.flatten()):
            row, column = divmod(place, across)
            at = row * group["across"] + column
            if column >= group["across"] or at >= len(group["cells"]):
                axis.set_visible(False)
                continue
            cell = group["cells"][at]
            axis.imshow(_shades(cell, data["scale"]))
            axis.set(xticks=[], yticks=[])
            axis.set_xlabel("\n".join(_plain(line[-22:]) for line in cell["caption"].split("\n")), fontsize=6)


def _mosaic(axis: Any, group: Data, scale: float) -> None:
    """Cells of one size as one image, with gaps between them."""
    cells = [_shades(cell, scale) for cell in group["cells"]]
    (height, width), gap = cells[0].shape[:2], max(1, cells[0].shape[1] // 8)
    across, rows = group["across"], -(-len(cells) // group["across"])
    image = np.full((rows * (height + gap) - gap, across * (width + gap) - gap, 3), 255, np.uint8)
    for place, cell in enumerate(cells):
        top, left = (height + gap) * (place // across), (width + gap) * (place % across)
        image[top : top + height, left : left + width] = cell
    axis.imshow(image, interpolation="nearest")
    axis.set_anchor("W")
    axis.set_axis_off()


def _shades(cell: Data, scale: float) -> np.ndarray:
    """[H, W, 3] uint8 of a cell of a gallery."""
    if "values" not in cell:
        return gallery.pixels(cell)
    from matplotlib import colormaps

    shares = np.clip(gallery.values(cell) / scale, -1, 1)
    return (255 * colormaps["RdBu"]((shares + 1) / 2)[..., :3]).round().astype(np.uint8)


def _maps(figure: Any, data: Data) -> None:
    """The maps of positions in a picture (Dosovitskiy et al. 2021, figure 7, centre)."""
    grid = data["maps"]["across"]
    figure.set_size_inches(7.5, 6.5)
    axis = figure.subplots()
    _mosaic(axis, data["maps"], 1.0)
    axis.set_axis_on()
    height, width = axis.images[0].get_array().shape[:2]
    names = [str(i + 1) for i in range(grid)]
    axis.set_xticks([(i + 0.5) * width / grid for i in range(grid)], names)
    axis.set_yticks([(i + 0.5) * height / grid for i in range(grid)], names)
    axis.set(title=f"{data['kind']} positions", xlabel="column of the patch", ylabel="row of the patch")
    axis.tick_params(labelsize=7, length=0)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure.colorbar(ScalarMappable(Normalize(-1, 1), "RdBu"), ax=axis, label="cosine")


def _positions(figure: Any, data: Data) -> None:
    if "maps" in data:
        _maps(figure, data)
        return
    figure.set_size_inches(10, 4.5)
    left, right = figure.subplots(1, 2)
    most = data["scale"]
    left.imshow(unpacked(data["table"]), cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    left.set(title=f"{data['kind']} positions", xlabel="feature", ylabel="place")
    right.imshow(unpacked(data["similarity"]), cmap="RdBu", vmin=-1, vmax=1)
    right.set(title="cosine of two places", xlabel="place", ylabel="place")


def _masks(figure: Any, data: Data) -> None:
    figure.set_size_inches(4 * len(data["masks"]), 4.4)
    for axis, one in zip(figure.subplots(1, len(data["masks"])), data["masks"], strict=True):
        _named(axis, unpacked(one["visible"]), one["tokens"], one["tokens"], "Blues", (0.0, 1.4))
        axis.set_title(one["name"], fontsize=10)


def _words(figure: Any, data: Data) -> None:
    figure.set_size_inches(9, 7)
    axis = figure.subplots()
    _scatter(axis, [(point["word"], point["x"], point["y"], point["asked"]) for point in data["points"]])
    axis.set(title=data["method"], xticks=[], yticks=[])


def _context(figure: Any, data: Data) -> None:
    figure.set_size_inches(9, 6)
    axis = figure.subplots()
    _scatter(axis, [(one["sentence"], one["x"], one["y"], True) for one in data["occurrences"]])
    axis.set(title=f"“{data['word']}” after layer {data['layer']}", xticks=[], yticks=[])


def _scatter(axis: Any, points: list[tuple[str, float, float, bool]]) -> None:
    for label, x, y, asked in points:
        axis.plot(x, y, "o", markersize=4, color=COLOURS[asked])
        axis.annotate(_plain(label), (x, y), xytext=(3, 3), textcoords="offset points", fontsize=7)


def _complexity(figure: Any, data: Data) -> None:
    figure.set_size_inches(6.5, 4.5)
    axis = figure.subplots()
    for colour, (name, seconds) in zip(COLOURS, data["seconds"].items(), strict=False):
        points = [(n, 1000 * s) for n, s in zip(data["lengths"], seconds, strict=True) if s is not None]
        axis.loglog(*zip(*points, strict=True), "o-", color=colour, label=name)
    axis.set(xlabel="tokens", ylabel="milliseconds", title=f"one layer of width {data['dim']}, forward")
    axis.legend()


def _runs(figure: Any, data: Data) -> None:
    names = sorted(
        {name for run in data["runs"] for name in run["curves"]}, key=lambda name: ("loss" not in name, name)
    )
    names = names[:6]
    if not names:
        raise UnmaskError("These runs have no curves yet.")
    across = min(2, len(names))
    down = -(-len(names) // across)
    figure.set_size_inches(6 * across, 3.4 * down)
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for axis, name in zip(axes, names, strict=False):
        for colour, run in zip(COLOURS * len(data["runs"]), data["runs"], strict=False):
            for split, points in run["curves"].get(name, {}).items():
                style = "-" if split == "train" else "--"
                axis.plot(*zip(*points, strict=True), style, color=colour, label=f"{run['name']}: {split}")
        axis.set(title=name, xlabel="step")
        axis.legend(fontsize=7)
    for axis in axes[len(names) :]:
        axis.set_visible(False)


def _forecasts(figure: Any, data: Data) -> None:
    charts = data["charts"]
    across = min(2, len(charts))
    down = -(-len(charts) // across)
    figure.set_size_inches(6 * across, 3.4 * down)
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for axis, chart in zip(axes, charts, strict=False):
        for line in chart["series"]:
            axis.plot(*zip(*line["points"], strict=True), color=COLOURS[line["index"]], label=line["name"])
        for band in chart["bands"]:
            edges = zip(*band["points"], strict=True)
            axis.fill_between(*edges, color=COLOURS[band["index"]], alpha=0.2, label=band["name"])
        axis.set(title=_plain(chart["title"]), xlabel=chart["x"])
        axis.legend(fontsize=7)
    for axis in axes[len(charts) :]:
        axis.set_visible(False)


def _named(
    axis: Any, values: np.ndarray, rows: list[str], columns: list[str], colours: str, limits: tuple[float, float]
) -> None:
    axis.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1])
    few = max(len(rows), len(columns)) <= 60
    axis.set_xticks(range(len(columns)) if few else [], [_plain(name) for name in columns] if few else [], rotation=90)
    axis.set_yticks(range(len(rows)) if few else [], [_plain(name) for name in rows] if few else [])
    axis.tick_params(labelsize=7)


def _plain(text: str) -> str:
    """The text with escaped dollar signs, which begin a formula in matplotlib."""
    return text.replace("$", r"\$")


PICTURES: dict[str, Callable[[Any, Data], None]] = {
    "attention": _attention,
    "picture-attention": _picture_attention,
    "recording": _recording,
    "recording-attention": _recording_attention,
    "clusters": _clusters,
    "gallery": _gallery,
    "positions": _positions,
    "masks": _masks,
    "words": _words,
    "context": _context,
    "complexity": _complexity,
    "runs": _runs,
    "forecasts": _forecasts,
}
