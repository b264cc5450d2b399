"""Alignment: where a model looked in the source while it wrote, and how that is shown on a terminal."""

from __future__ import annotations

from dataclasses import dataclass

SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Alignment:
    """Attention weights between the tokens of a text and of its translation, spaces shown as dots.

    weights  [target][source]: each row sums to 1
    """

    source: list[str]
    target: list[str]
    weights: list[list[float]]


def render_alignment(found: Alignment) -> str:
    """A row of shades for each token that was written; the tokens that were read stand below, from top to bottom."""
    from rich.cells import cell_len

    left = max(map(cell_len, found.target))
    lines = []
    for name, row in zip(found.target, found.weights, strict=True):
        shades = "".join(SHADES[min(len(SHADES) - 1, int(weight * len(SHADES)))] * 2 for weight in row)
        lines.append(f"{' ' * (left - cell_len(name))}{name} │{shades}".rstrip())
    lines.append(f"{' ' * left} └{'──' * len(found.source)}")
    for depth in range(max(map(len, found.source))):
        letters = [name[depth] if depth < len(name) else " " for name in found.source]
        lines.append(f"{' ' * left}  {''.join(letter + ' ' * (2 - cell_len(letter)) for letter in letters)}".rstrip())
    return "\n".join(lines)
