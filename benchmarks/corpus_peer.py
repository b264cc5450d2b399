"""The peer of `corpus_parts.py`: a vocabulary and token ids of texts by `tokenizers` and `datasets` alone, as their
guides do it. A document is a paragraph; copies are kept.

    python benchmarks/corpus_peer.py vocabulary TEXTS FILE
    python benchmarks/corpus_peer.py build TEXTS FILE FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import BertWordPieceTokenizer, Tokenizer

PIECES = 8_192
BATCH = 1_000  # documents that are encoded at once


def vocabulary(texts: str, file: str) -> None:
    """Learn a WordPiece vocabulary from all texts."""
    learned = BertWordPieceTokenizer(lowercase=True)
    learned.train(sorted(str(path) for path in Path(texts).iterdir()), vocab_size=PIECES, show_progress=False)
    learned.save(file)


def build(texts: str, file: str, out: str) -> None:
    """Write the ids of each paragraph into a folder of Arrow files."""
    from datasets import load_dataset

    tokenizer = Tokenizer.from_file(file)

    def ids(rows: dict[str, list[str]]) -> dict[str, Any]:
        return {"ids": [found.ids for found in tokenizer.encode_batch(rows["text"])]}

    cache = f"{out}.cache"
    found = load_dataset("text", data_dir=texts, sample_by="paragraph", split="train", cache_dir=cache)
    found.map(ids, batched=True, batch_size=BATCH, remove_columns=["text"]).save_to_disk(out)


STAGES: dict[str, Callable[..., None]] = {"vocabulary": vocabulary, "build": build}

if __name__ == "__main__":
    STAGES[sys.argv[1]](*sys.argv[2:])
