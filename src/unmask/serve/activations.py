"""Activations of the units of a recurrent network along a text (Karpathy et al. 2015): as numbers, in a terminal, as a
page of HTML.

Shapes: T tokens, L layers, U units of a layer: H, or 2 H in two directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import numpy as np
import torch

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, harmless
from unmask.models.model import Model

RED, BLUE = (220, 60, 50), (50, 100, 220)  # below and above zero
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 16px/1.7 ui-monospace, monospace; max-width: 90ch; margin: 2em auto; background: #fff }}
p {{ color: #111; white-space: pre-wrap; overflow-wrap: anywhere }}</style>
<h1>{title}</h1>
<p>{text}</p>
<p>Blue is above zero, red is below zero. Values lie between -1 and 1; a stronger colour is a larger value.</p>
</html>
"""


@dataclass(frozen=True)
class Activations:
    """A text, and the value of every unit after each of its tokens.

    text     the text, unchanged
    offsets  [T, 2] begin and end of each token, in characters of the text
    values   [T, L, U] from -1 to 1: tanh of the cell of an LSTM; the state of other networks
    """

    text: str
    offsets: np.ndarray
    values: np.ndarray

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
def activations(model: Model, tokenizer: Tokenizer, text: str) -> Activations:
    """Read a text with a recurrent network, and record every unit after every token.

    Raises UnmaskError for a model that is not recurrent, and for a text without tokens.
    """
    encoding = tokenizer.encode(text, special=False)
    if not len(encoding):
        raise UnmaskError("There is nothing to read: give a text.")
    tokens, _ = tokenizer.join(encoding.ids)
    lead = int(np.flatnonzero(tokenizer.join(np.array([-1]))[0] == -1)[0])
    layers = model.units(torch.from_numpy(tokens)[None].to(model.device))
    values = torch.stack(layers, 2)[0, lead : lead + len(encoding)]
    return Activations(text, encoding.offsets, values.float().cpu().numpy())


def render(found: Activations, unit: int, layer: int = 0) -> str:
    """The text for a terminal; the background of each character shows the value of the unit."""
    parts = []
    for run, value in _runs(found.text, found.of(unit, layer)):
        piece = harmless(run)
        if np.isnan(value):
            parts.append(piece)
        else:
            red, green, blue = (round(255 + (c - 255) * abs(value)) for c in (BLUE if value > 0 else RED))
            parts.append(f"\033[30;48;2;{red};{green};{blue}m{piece}\033[0m")
    return "".join(parts)


def table(found: Activations, unit: int, layer: int = 0) -> str:
    """The text, one token a line: the value of the unit, a tab, the token."""
    lines = [f"{value:+.3f}\t{piece!r}" for piece, value in _runs(found.text, found.of(unit, layer))]
    return "\n".join(line for line in lines if not line.startswith("+nan"))


def page(found: Activations, unit: int, layer: int = 0) -> str:
    """The text as a page of HTML; the background of each character shows the value of the unit. The title counts layers
    from 1."""
    parts = []
    for piece, value in _runs(found.text, found.of(unit, layer)):
        if np.isnan(value):
            parts.append(escape(piece))
        else:
            red, green, blue = BLUE if value > 0 else RED
            colour = f"rgba({red}, {green}, {blue}, {abs(value):.3f})"
            parts.append(f'<span style="background: {colour}" title="{value:+.3f}">{escape(piece)}</span>')
    return PAGE.format(title=f"Unit {unit} of layer {layer + 1}", text="".join(parts))


def _runs(text: str, values: np.ndarray) -> Iterator[tuple[str, float]]:
    """Stretches of characters with the same value, and that value."""
    begin = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or not np.array_equal(values[end], values[begin], equal_nan=True):
            yield text[begin:end], float(values[begin])
            begin = end
