"""Alignment: the attention of a model to the source while it writes, and its display in a terminal."""

from __future__ import annotations

from dataclasses import dataclass

SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Alignment:
    """Attention weights between the tokens of a text and those of its translation. Tokens show spaces as dots.

    weights  [target][source]: each row sums to 1
    """

    source: list[str]
    target: list[str]
    weights: list[list[float]]


def render_alignment(found: Alignment) -> str:
    """One row of shades for each target token; the source tokens stand below, written from top to bottom."""
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
