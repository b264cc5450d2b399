"""Folders of small models that the tests of the service share."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from unmask import huggingface
from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.seq2seq import Seq2Seq

sys.path.append(str(Path(__file__).parent))  # for serve_toy

TEXT = "the function returns a list of strings and the film was good with people who talk"


def save(folder, tokenizer, heads, labels=(), settings=None):
    config = Bert(vocabulary=tokenizer.size, length=24, layers=2, dim=32, heads=2, hidden=64, std=0.2)
    huggingface.save(folder, config.build(heads=heads, seed=1), tokenizer, labels=labels, settings=settings)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders by the kind of their model."""
    pytest.importorskip("starlette")
    place = tmp_path_factory.mktemp("served")
    tokenizer = Tokenizer.train([TEXT] * 3, 150)
    words = train_subwords([TEXT] * 3, 40, kind="word")
    writer = Seq2Seq(vocabulary=words.size, dim=8, hidden=8, padding=words.pad, start=words.start, end=words.end).build(
        seed=2
    )
    language_model = RecurrentNetwork(vocabulary=tokenizer.size, dim=8, hidden=12, padding=tokenizer.pad)
    huggingface.save(place / "writer", writer, words, settings={"search": {"limits": {"max_length": 9}}})
    huggingface.save(place / "lm", language_model.build(None, seed=4), tokenizer)
    return SimpleNamespace(
        bert=save(place / "bert", tokenizer, as_heads({"mlm": 0, "nsp": 2})),
        classifier=save(place / "classifier", tokenizer, as_heads({"classification": 3}), ("bad", "fair", "good")),
        encoder=save(place / "encoder", tokenizer, {}, settings={"pooling": "mean", "normalise": False}),
        reader=save(place / "reader", tokenizer, as_heads({"span": 2}), settings={"stride": 4, "best": 6}),
        chooser=save(place / "chooser", tokenizer, as_heads({"choice": 1})),
        tagger=save(place / "tagger", tokenizer, as_heads({"tagging": 3}), ("O", "B-PER", "I-PER")),
        writer=place / "writer",
        lm=place / "lm",
    )
