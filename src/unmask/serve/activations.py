"""Activations of the units of a recurrent network along a text, and the likeliest next tokens after each (Karpathy et
al. 2015): as numbers, in a terminal, as a page of HTML.

Shapes: T tokens, L layers, U units of a layer: H, or 2 H in two directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import torch

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, harmless
from unmask.models.model import Model
from unmask.types import Batch

RED, BLUE = (220, 60, 50), (50, 100, 220)  # below and above zero
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 16px/1.7 ui-monospace, monospace; max-width: 90ch; margin: 2em auto; background: #fff }}
p {{ color: #111; white-space: pre-wrap; overflow-wrap: anywhere }}
table {{ display: inline-table; border-spacing: 0; margin: 0 0 .6em; white-space: pre; font-size: 14px;
  line-height: 1.3 }}
td {{ padding: 1px 3px; text-align: center }}</style>
<h1>{title}</h1>
<p>{text}</p>{steps}
<p>Blue is above zero, red is below zero. Values lie between -1 and 1; a stronger colour is a larger value.</p>
</html>
"""


@dataclass(frozen=True)
class Activations:
    """A text, and the value of every unit after each of its tokens.

    text     the text, unchanged
    offsets  [T, 2] begin and end of each token, in characters of the text
    values   [T, L, U] from -1 to 1: tanh of the cell of an LSTM; the state of other networks
    next     for each token, the likeliest next ones with their probabilities, the most likely first; empty for a model
             that does not predict them
    """

    text: str
    offsets: np.ndarray
    values: np.ndarray
    next: Sequence[Sequence[tuple[str, float]]] = ()

    def of(self, unit: int, layer: int) -> np.ndarray:
        """The value of a unit for each character of the text, after it has read the character's token; nan for
        characters outside all tokens. Raises UnmaskError for a unit or a layer that does not exist."""
        _, layers, units = self.values.shape
        if not 0 <= layer < layers:
            raise UnmaskError(f"There is no layer {layer}: layers are 0 to {layers - 1}.")
        if not 0 <= unit < units:
            raise UnmaskError(f"There is no unit {unit}: a layer has the units 0 to {units - 1}.")
        found = np.full(len(self.text), np.nan)
        for (begin, end), value in zip(self.offsets.tolist(), self.values[:, layer, unit].tolist(), strict=True):
            found[begin:end] = value
        return found

    def liveliest(self, layer: int, count: int = 1) -> list[int]:
        """The units of a layer that vary most along the text, by standard deviation."""
        self.of(0, layer)  # the layer exists
        return np.argsort(-self.values[:, layer].std(0), kind="stable")[:count].tolist()


@torch.no_grad()
def activations(model: Model, tokenizer: Tokenizer, text: str, count: int = 0) -> Activations:
    """Read a text with a recurrent network, and record every unit after every token, and the `count` likeliest next
    tokens there.

    Raises UnmaskError for a model that is not recurrent, and for a text without tokens.
    """
    encoding = tokenizer.encode(text, special=False)
    if not len(encoding):
        raise UnmaskError("There is nothing to read: give a text.")
    tokens, _ = tokenizer.join(encoding.ids)
    lead = int(np.flatnonzero(tokenizer.join(np.array([-1]))[0] == -1)[0])
    batch = Batch(torch.from_numpy(tokens)[None].to(model.device))
    places_T = torch.arange(lead, lead + len(encoding), device=model.device)
    values = torch.stack(model.units(batch.tokens), 2)[0, places_T].float().cpu().numpy()
    if not model.continues_prompt or count < 1:
        return Activations(text, encoding.offsets, values)
    p_TV = model.answer("next", model(batch), places_T, batch).float().softmax(-1)[:, : tokenizer.size]
    best = p_TV.topk(min(count, tokenizer.size), dim=-1)
    names = [tokenizer.pieces(ids) for ids in best.indices.tolist()]
    found = [list(zip(*row, strict=True)) for row in zip(names, best.values.tolist(), strict=True)]
    return Activations(text, encoding.offsets, values, found)


def render(found: Activations, unit: int, layer: int = 0, width: int = 80) -> str:
    """The text for a terminal; the background of each character shows the value of the unit. Below each token stand the
    likeliest next ones, greyer the more likely, in lines of at most `width` characters."""
    if not found.next:
        return "".join(_shown(run, value) for run, value in _runs(found.text, found.of(unit, layer)))
    lines, row = list[str](), list[list[str]]()
    used = 0
    for token, value, next in _steps(found, unit, layer):
        cells = [_visible(token), *(_visible(name) for name, _ in next)]
        room = max(map(len, cells)) + 1
        if row and used + room > width:
            lines += map("".join, zip(*row, strict=True))
            lines, row, used = [*lines, ""], [], 0
        fills = [" " * (room - len(cell)) for cell in cells]
        guesses = (_painted(cell, (255 - round(150 * p),) * 3) for cell, (_, p) in zip(cells[1:], next, strict=True))
        row.append([cell + fill for cell, fill in zip([_shown(cells[0], value), *guesses], fills, strict=True)])
        used += room
    return "\n".join([*lines, *map("".join, zip(*row, strict=True))])


def table(found: Activations, unit: int, layer: int = 0) -> str:
    """The text, one token a line: the value of the unit, a tab, the token, and after another tab each of the likeliest
    next tokens with its probability."""
    lines = []
    for token, value, next in _steps(found, unit, layer):
        lines.append("\t".join([f"{value:+.3f}", repr(token), *(f"{name!r} {p:.3f}" for name, p in next)]))
    return "\n".join(lines)


def page(found: Activations, unit: int, layer: int = 0) -> str:
    """The text as a page of HTML; the background of each character shows the value of the unit. Then the same, token by
    token, above the likeliest next ones. The title counts layers from 1."""
    parts = []
    for piece, value in _runs(found.text, found.of(unit, layer)):
        if np.isnan(value):
            parts.append(escape(piece))
        else:
            parts.append(f'<span style="background: {_css(value)}" title="{value:+.3f}">{escape(piece)}</span>')
    columns = []
    for token, value, next in _steps(found, unit, layer) if found.next else ():
        cells = [f'<tr><td style="background: {_css(value)}" title="{value:+.3f}">{escape(_visible(token))}</td></tr>']
        for name, p in next:
            grey = f"rgba(0, 0, 0, {0.6 * p:.3f})"
            cells.append(f'<tr><td style="background: {grey}" title="{p:.3f}">{escape(_visible(name))}</td></tr>')
        columns.append(f"<table>{''.join(cells)}</table>")
    steps = f"\n<p>The likeliest next tokens after each, darker the more likely:</p>\n<div>{''.join(columns)}</div>"
    title = f"Unit {unit} of layer {layer + 1}"
    return PAGE.format(title=title, text="".join(parts), steps=steps if columns else "")


def _colour(value: float) -> tuple[int, int, int]:
    return BLUE if value > 0 else RED


def _css(value: float) -> str:
    red, green, blue = _colour(value)
    return f"rgba({red}, {green}, {blue}, {abs(value):.3f})"


def _shown(piece: str, value: float) -> str:
    """Text for a terminal, with the value of a unit as background; nan: without."""
    if np.isnan(value):
        return harmless(piece)
    red, green, blue = (round(255 + (c - 255) * abs(value)) for c in _colour(value))
    return _painted(harmless(piece), (red, green, blue))


def _painted(text: str, colour: tuple[int, ...]) -> str:
    red, green, blue = colour
    return f"\033[30;48;2;{red};{green};{blue}m{text}\033[0m"


def _visible(token: str) -> str:
    """A token in one line, with visible signs for its spaces and line ends."""
    return harmless(token.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥"))


def _steps(found: Activations, unit: int, layer: int) -> Iterator[tuple[str, float, Sequence[tuple[str, float]]]]:
    """Each token of the text, the value of the unit after it, and the likeliest next tokens."""
    found.of(unit, layer)  # both exist
    values = found.values[:, layer, unit].tolist()
    for t, (begin, end) in enumerate(found.offsets.tolist()):
        yield found.text[begin:end], values[t], found.next[t] if found.next else ()


def _runs(text: str, values: np.ndarray) -> Iterator[tuple[str, float]]:
    """Stretches of characters with the same value, and that value."""
    begin = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or not np.array_equal(values[end], values[begin], equal_nan=True):
            yield text[begin:end], float(values[begin])
            begin = end
