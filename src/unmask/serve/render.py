"""Render: an answer of a head of pre-training as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def render_pretrained(text: str, answer: Mapping[str, Any]) -> str:
    """Hidden words, what follows, replaced words; `text` is what was asked."""
    if "follows" in answer:
        return f"follows  {answer['follows']:.3f}  {text}"
    if "tokens" in answer:
        tokens = [*answer["tokens"], *answer.get("pair", ())]
        return "\n".join([text, *(f"  {one['token']}\t{one['probability']:.3f}" for one in tokens)])
    lines = [text]
    for number, guesses in enumerate(answer["masks"], 1):
        head = f"  {number}: " if len(answer["masks"]) > 1 else "  "
        lines.append(head + ", ".join(f"{guess['token']} {guess['probability']:.3f}" for guess in guesses))
    filled = "\t".join(answer[name] for name in ("text", "pair") if name in answer)
    return "\n".join([*lines, f"  {filled}"])
