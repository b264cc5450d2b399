"""The benchmark of language models on the Penn Treebank: what text it reads, and what it counts."""

from __future__ import annotations

import gzip
import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

from unmask import huggingface
from unmask.data.text.corpus import Corpus
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models import TransformerXl
from unmask.types import Batch

LINES = " no it was n't <unk> \n N points\n\n"


@pytest.fixture
def script() -> ModuleType:
    return importlib.import_module("perplexity")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "ptb").mkdir(parents=True)
    for part, times in {"train": 900, "valid": 3, "test": 1}.items():
        (tmp_path / "data" / "ptb" / f"ptb.{part}.txt.gz").write_bytes(
            gzip.compress((LINES + "".join(f" word {i} \n" for i in range(times))).encode())
        )
    return tmp_path / "data"


def test_a_sentence_has_one_token_for_its_end_and_one_for_each_unknown_word(
    script: ModuleType, data: Path, tmp_path: Path
) -> None:
    assert script.sentences(data, "test") == ["no it was n't § ¶", "N points ¶", "word 0 ¶"]
    tokenizer = Corpus(script.corpus("ptb", data, tmp_path, quick=True)["folder"]).tokenizer
    assert len(tokenizer.ids(["§ ¶"])[0]) == 2
    assert tokenizer.unknown not in tokenizer.ids(["§ ¶"])[0]


def test_a_part_that_is_missing_is_named(script: ModuleType, data: Path) -> None:
    (data / "ptb" / "ptb.valid.txt.gz").unlink()
    with pytest.raises(UnmaskError, match=r"There is no .*ptb\.valid\.txt\.gz"):
        script.sentences(data, "valid")


def test_words_of_wikitext_are_counted_as_published(script: ModuleType, data: Path) -> None:
    (data / "wikitext2").mkdir()
    lines = " \n = Lobsters = \n \n They weigh 0 @.@ 7 – 2 @.@ 2 kg , some 1 @,@ 000 g , in blue @-@ green <unk> . \n"
    (data / "wikitext2" / "wiki.valid.tokens.gz").write_bytes(gzip.compress(lines.encode()))
    found = script.parts("wikitext", data, quick=False)["valid"]
    assert found["words"] == len(lines.split()) == 26
    assert "weigh 0.7 – 2.2 kg , some 1,000 g , in blue-green unk ." in found["text"]
    (data / "wikitext2" / "wiki.valid.tokens.gz").unlink()
    with pytest.raises(UnmaskError, match=r"There is no .*wiki\.valid"):
        script.parts("wikitext", data, quick=False)


def test_perplexity_is_that_of_a_word_whatever_its_pieces_are(script: ModuleType, data: Path, tmp_path: Path) -> None:
    """With the whole text as its window a Transformer-XL reads it segment by segment, and guesses every token once."""
    tokenizer = Corpus(script.corpus("ptb", data, tmp_path, quick=True)["folder"]).tokenizer
    config = TransformerXl(vocabulary=tokenizer.size, dim=16, layers=2, heads=2, hidden=32, memory=8, std=0.5)
    model = config.build(as_heads({"next": 0})).eval()
    huggingface.save(tmp_path / "model", model, tokenizer)
    parts = script.parts("ptb", data, quick=False)
    text = parts["test"]["text"]
    settings = {"folder": str(tmp_path / "model"), "parts": parts, "window": None, "stride": None}
    found = script.score(settings)["test"]
    settings["parts"]["test"]["words"] *= 2
    assert script.score(settings)["test"]["word_perplexity"] == pytest.approx(found["word_perplexity"] ** 0.5)
    ids = torch.tensor([[tokenizer.cls, *tokenizer.ids([text])[0], tokenizer.sep]])
    with torch.no_grad():
        hidden = model(Batch(ids[:, :-1]))
        logits = model.answer("next", hidden, torch.arange(ids.shape[1] - 1))
    nll = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
    assert found["words"] == 6 + 3 + 3
    assert found["word_perplexity"] == pytest.approx(math.exp(nll / 12), rel=1e-4)
