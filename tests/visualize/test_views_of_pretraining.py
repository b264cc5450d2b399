"""A word of an ELMo in several sentences, and the words that an ELECTRA takes for replaced."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unmask.data.text import spelling
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.electra import Electra
from unmask.models.elmo import Elmo
from unmask.types import Batch
from unmask.visualize.context import in_context
from unmask.visualize.replaced import replaced

TEXT = "the bank of the river and the Bank with the money"
SENTENCES = ["the bank of the river", "money, the BANK and the bank", "no banks here"]


@pytest.fixture(scope="module")
def electra():
    tokenizer = Tokenizer.train([TEXT] * 3, 60)
    config = Electra(vocabulary=tokenizer.size, dim=16, layers=2, heads=2, hidden=32, factor=8, length=30, std=0.5)
    return config.build(as_heads({"rtd": 1}), seed=1).eval(), tokenizer


def test_the_layers_of_an_elmo_are_those_of_its_words():
    tokenizer = spelling.train([TEXT])
    config = Elmo(
        vocabulary=tokenizer.size, continues=spelling.continues(tokenizer), dim=8, hidden=16, filters=(8,), widths=(2,)
    )
    model = config.build(seed=2).eval()
    states = []
    for sentence in ("the bank of the river", "the bank and the river"):
        tokens, _ = tokenizer.join(tokenizer.encode(sentence).ids)
        begins = np.flatnonzero(tokens < config.continues)
        with torch.no_grad():
            hidden = model(Batch(torch.from_numpy(tokens)[None]))
        states.append(hidden[0, begins[2]].unflatten(0, (3, 16)))  # after [CLS] and "the"
    expected = [1 - torch.cosine_similarity(*pair, dim=0).item() for pair in zip(*states, strict=True)]
    sentences = ["the bank of the river", "the bank and the river", "the river"]
    found = in_context(model, tokenizer, "bank", sentences, layer=1)
    np.testing.assert_allclose(found["spreads"], expected, atol=1e-6)
    assert found["spreads"][0] == 0  # before context, letters alone
    assert found["spreads"][2] > 1e-4
    assert (found["spread"], found["layer"], found["layers"]) == (found["spreads"][1], 1, 2)
    assert found["without"] == ["the river"]


def test_a_word_is_found_as_people_read_it(electra):
    model, tokenizer = electra
    found = in_context(model, tokenizer, " bank ", SENTENCES)
    assert [one["sentence"][one["begin"] : one["end"]] for one in found["occurrences"]] == ["bank", "BANK"]
    assert found["without"] == ["no banks here"]
    with pytest.raises(UnmaskError, match="There is no word"):
        in_context(model, tokenizer, " ", SENTENCES)
    with pytest.raises(UnmaskError, match=r"no token of '\\xad'"):  # a soft hyphen, which the model never sees
        in_context(model, tokenizer, "\xad", ["the \xad river", "the \xad bank"])


def test_the_states_are_those_of_the_letters_asked_for(electra):
    """A word of several pieces is the mean of them."""
    model, tokenizer = electra
    sentences = ["the theriver bank", "and theriver"]
    states = []
    for sentence in sentences:
        encoding = tokenizer.encode(sentence)
        at = np.flatnonzero(encoding.words == 1) + 1  # after [CLS]
        assert len(at) > 1
        tokens, _ = tokenizer.join(encoding.ids)
        with torch.no_grad():
            states.append(model(Batch(torch.from_numpy(tokens)[None]))[0, at].mean(0))
    found = in_context(model, tokenizer, "theriver", sentences)
    assert found["cosines"][0][1] == pytest.approx(torch.cosine_similarity(*states, dim=0).item(), abs=1e-5)


def test_replaced_words_have_the_probability_of_their_head(electra):
    model, tokenizer = electra
    text = "The bank, theriver"
    found = replaced(model, tokenizer, text)
    assert [one["word"] for one in found["words"]] == ["The", "bank", ",", "theriver"]
    assert all(text[one["begin"] : one["end"]] == one["word"] for one in found["words"])
    encoding = tokenizer.encode(text)
    tokens, _ = tokenizer.join(encoding.ids)
    batch = Batch(torch.from_numpy(tokens)[None])
    with torch.no_grad():
        said = model.answer("rtd", model(batch), torch.arange(len(tokens))).squeeze(-1).sigmoid()[1:-1]
    for number, one in enumerate(found["words"]):
        assert one["probability"] == pytest.approx(said[encoding.words == number].max().item(), abs=1e-6)


def test_what_finds_no_replaced_words_says_so(electra):
    _, tokenizer = electra
    bert = Bert(vocabulary=tokenizer.size, dim=8, layers=1, heads=2, hidden=8, length=30).build(as_heads({"mlm": 0}))
    with pytest.raises(UnmaskError, match="use a pre-trained ELECTRA"):
        replaced(bert, tokenizer, TEXT)
    with pytest.raises(UnmaskError, match="nothing to read"):
        replaced(electra[0], tokenizer, " ")
    with pytest.raises(UnmaskError, match="the model takes 30"):
        replaced(electra[0], tokenizer, TEXT * 9)


@pytest.mark.slow  # its first run is compiled for many seconds
def test_umap_keeps_groups_apart():
    pytest.importorskip("umap", reason="UMAP is an extra: pip install 'unmask[umap]'")
    from unmask.visualize.words import projected

    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal([9, 0, 0], 0.5, (20, 3)), rng.normal([0, 9, 0], 0.5, (20, 3))]).astype(np.float32)
    places, shares = projected(two, "umap")
    assert (places.shape, shares) == ((40, 2), [])
    within = np.linalg.norm(places[:20] - places[:20].mean(0), axis=1).max()
    assert np.linalg.norm(places[:20].mean(0) - places[20:].mean(0)) > within
    np.testing.assert_array_equal(places, projected(two, "umap")[0])
