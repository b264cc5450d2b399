"""Data of the rows on inference and fine-tuning: an encoder of MiniLM's shape, and paragraphs of documentation."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bench import common
from bench.row import Plan

SHAPE = {"vocabulary": 30_522, "layers": 6, "dim": 384, "heads": 12, "hidden": 1_536, "length": 512}
"""Of all-MiniLM-L6-v2 (after Wang et al. 2020)."""
LONGEST = 256  # tokens of a text, the limit of all-MiniLM-L6-v2


@cache
def passages() -> tuple[tuple[str, str], ...]:
    """Pairs (paragraph, module that it documents) from the documentation installed with Python."""
    from unmask.data.text import embedded

    return tuple(
        (line, document.source.partition(":")[2].split("/")[0].split("#")[0].removesuffix(".py"))
        for document in embedded.documents(packages=("python",))
        for line in document.text.split("\n")
        if line.strip()
    )


def paragraphs() -> list[str]:
    """The paragraphs alone."""
    return [text for text, _ in passages()]


def minilm(plan: Plan) -> Path:
    """The folder of all-MiniLM-L6-v2 if its package is installed, else of random weights in its shape, which are as
    fast."""
    if not common.absent([common.PACKAGED]):
        return common.packaged_model()
    from unmask import huggingface
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.models.bert import Bert

    folder = plan.folder / "encoder"
    if not folder.exists():
        tokenizer = Tokenizer.train(paragraphs(), 8_192)
        model = Bert().replace(**SHAPE, padding=tokenizer.pad).build({}, seed=0, pooler=True)
        settings = {"pooling": "mean", "normalise": True, "length": LONGEST}
        huggingface.save(folder, model, tokenizer, settings=settings)
    return folder
