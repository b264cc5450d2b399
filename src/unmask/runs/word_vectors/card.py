"""The model card of word vectors."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.errors import plural

if TYPE_CHECKING:
    from unmask.runs.word_vectors.checkpoint import Asked
    from unmask.runs.word_vectors.training import Trained

FEW = 1_000_000
"""Words of training, repetitions included, below which vectors hold little more than chance."""


def write(folder: Path, trained: Trained, asked: Asked) -> None:
    """Write README.md beside the vectors, unless it was edited."""
    from unmask.huggingface.card import Card, Opened, quoted, write_card
    from unmask.runs import cards

    vectors, facts, config = trained.vectors, trained.facts, asked.config
    name, first = folder.resolve().name, vectors.words[0] if vectors.words else "word"
    files = [cards.file_name(file) for file in asked.files or ()]
    source = ", ".join(f"`{file}`" for file in files) or "the documentation installed with Python and its packages"
    what = f"{plural(len(vectors), 'word vector')} of {vectors.dim} numbers, by word2vec (Mikolov et al. 2013)."
    gensim = [
        "```python",
        "import json",
        "",
        "from gensim.models import KeyedVectors",
        "from safetensors.numpy import load_file",
        "",
        f'with open({quoted(f"{name}/words.json")}, encoding="utf-8") as file:',
        '    words = json.load(file)["words"]',
        f"vectors = KeyedVectors({vectors.dim})",
        f'vectors.add_vectors(words, load_file({quoted(f"{name}/vectors.safetensors")})["vectors"])',
        "print(vectors.most_similar(words[0]))",
        "```",
    ]
    warnings = []
    if facts["stopped"]:
        warnings.append(f"The run was stopped by {facts['stopped']} after {facts['share_done']:.0%} of the training.")
    if facts["words_trained"] < FEW:
        read = f"{facts['words_trained']:,} words of training, repetitions included"
        warnings.append(f"The vectors have hardly learned: they come from {read}. Give more text, or more --epochs.")
    card = Card(
        learned="Words are near each other if they occur beside the same words.",
        task="word-vectors",
        command=("words nearest", shlex.quote(str(first))),
        datasets=cards.datasets(asked.files or ()),
        data=[f"Text: {source if asked.files is not None else 'sentences that were passed in Python'}."],
        settings=cards.settings({**config.to_dict(), "threads": asked.threads}),
        warnings=warnings,
        limits=["A word has one vector for all its meanings, and a word that was rare in the text has none."],
        tags=("word-vectors", "word2vec"),
    )
    write_card(folder, card, Opened([what], "unmask", {"gensim": "\n".join(gensim)}))
