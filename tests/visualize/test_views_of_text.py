"""Saliency, masking, cutting, masks, positions and complexity, each beside a plain recomputation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.t5 import T5
from unmask.models.transformer import Transformer
from unmask.objectives import SpanCorruption
from unmask.types import Batch
from unmask.visualize import complexity, masking, masks, positions, reading, saliency
from unmask.visualize.numbers import unpacked

TEXT = "the animal did not cross the street because it was too tired"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([TEXT] * 3, 150)


@pytest.fixture(scope="module")
def model(tokenizer):
    config = Bert(vocabulary=tokenizer.size, dim=32, layers=2, heads=4, hidden=64, length=40, std=0.3)
    return config.build(as_heads({"classification": 3, "mlm": 0})).eval()


@pytest.fixture(scope="module")
def subwords(tokenizer):
    return tokenizer.with_sentinels().written()


@pytest.fixture(scope="module")
def t5(subwords):
    ids = {"vocabulary": subwords.size + 3, "padding": subwords.pad, "start": subwords.start, "end": subwords.end}
    sizes = {"dim": 16, "heads": 2, "head_dim": 8, "hidden": 32, "encoder_layers": 1, "decoder_layers": 2}
    return T5(**sizes, **ids, length=20).build(seed=1).eval()


def test_gradient_times_input_is_the_slope_along_the_vector(model, tokenizer):
    """d/de of the logit with the vector of one token scaled by 1 + e, by central differences in float64."""
    double = reading.twin(model).double()
    read = reading.read(double, tokenizer, TEXT)
    found = saliency.gradient_times_input(double, read, "classification", 1)
    assert found.shape == (len(read.tokens),)

    def logit(place, scale):
        def scaled(module, given, said):
            said = said.clone()
            said[0, place] *= scale
            return said

        handle = double.embedding.token.register_forward_hook(scaled)
        answer = double.answer("classification", double(read.batch), torch.zeros(1, dtype=torch.long))[0, 1].item()
        handle.remove()
        return answer

    for place in (0, 3, len(found) - 1):
        slope = (logit(place, 1 + 1e-5) - logit(place, 1 - 1e-5)) / 2e-5
        assert found[place] == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_saliency_leaves_no_gradient_behind(model, tokenizer):
    read = reading.read(model, tokenizer, TEXT)
    found = saliency.beside_attention(model, read, "classification", 0)
    assert all(p.grad is None for p in model.parameters())
    assert sum(found["attention"]) == pytest.approx(1, abs=1e-4)
    assert sum(found["rollout"]) == pytest.approx(1, abs=1e-4)
    assert "not why" in found["caution"]
    with pytest.raises(UnmaskError, match="whole text: 'mlm'"):
        saliency.beside_attention(model, read, "mlm", 0)
    with pytest.raises(UnmaskError, match="no output 3"):
        saliency.beside_attention(model, read, "classification", 3)


def test_masking_is_that_of_training(tokenizer, model):
    found = masking.masking(tokenizer, TEXT, seed=3, draws=100, rate=0.5, model=model)
    fates = [one["fate"] for draw in found["draws"] for one in draw]
    share = {fate: fates.count(fate) / len(fates) for fate in ("mask", "random", "same")}
    assert share["mask"] == pytest.approx(0.8, abs=0.06)
    assert share["random"] == pytest.approx(0.1, abs=0.05)
    for one in found["draws"][0]:
        assert one["was"] == found["tokens"][one["place"]]
        assert (one["became"] == "[MASK]") == (one["fate"] == "mask")
        assert (one["became"] == one["was"]) == (one["fate"] == "same")
        assert not found["special"][one["place"]]
        assert 0 < one["probability"] <= 1
    assert found == masking.masking(tokenizer, TEXT, seed=3, draws=100, rate=0.5, model=model)
    assert masking.masking(tokenizer, TEXT, seed=4, draws=1)["draws"][0] != found["draws"][0]


@pytest.mark.parametrize("bad", [{"rate": 0}, {"rate": 1}, {"draws": 0}, {"seed": -1}])
def test_masking_refuses_numbers_out_of_range(tokenizer, bad):
    with pytest.raises(UnmaskError):
        masking.masking(tokenizer, TEXT, **bad)


def test_masking_needs_a_word(tokenizer):
    with pytest.raises(UnmaskError, match="nothing to mask"):
        masking.masking(tokenizer, "  ")


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_spans_are_those_of_training(t5, subwords, rate):
    """The rows of `corrupt`, and for each token of the target what a forward over the row says is likeliest."""
    found = masking.spans(t5, subwords, TEXT, seed=3, draws=4, rate=rate)
    ids = subwords.ids([TEXT])[0]
    ends = {"start": subwords.start, "end": subwords.end, "padding": subwords.pad}
    objective = SpanCorruption(subwords.sentinels, **ends, rate=rate)
    row = Batch(torch.from_numpy(np.append(ids, subwords.end).astype(np.int64))[None])
    for i, draw in enumerate(found["draws"]):
        pair = objective.corrupt(row, np.random.default_rng(3 + i))
        real = [token for token in pair.source.tokens[0].tolist() if token != subwords.pad]
        assert [one["token"] for one in draw["read"]] == subwords.pieces(real)[:-1]
        target = pair.targets["spans"]
        assert [one["token"] for one in draw["written"]] == subwords.pieces(target.values)[:-1]
        with torch.no_grad():
            likely = t5.answer("next", t5(pair), target.places)[:, : subwords.size].softmax(-1).max(-1)
        assert [one["guess"] for one in draw["written"]] == subwords.pieces(likely.indices)[:-1]
        assert [one["probability"] for one in draw["written"]] == pytest.approx(likely.values.tolist()[:-1], abs=1e-5)
        sentinels = [one["token"] for one in draw["written"] if one["sentinel"]]
        assert sentinels == [f"<extra_id_{k}>" for k in range(len(sentinels))]
        assert sentinels[:-1] == [one["token"] for one in draw["read"] if one["sentinel"]]
    assert found["draws"][0] != found["draws"][1]
    assert found["tokens"] == subwords.pieces(ids)


def test_spans_that_cannot_be_shown(t5, subwords):
    for text, more, message in (
        ("  ", {}, "nothing to read"),
        (TEXT, {"rate": 1}, "rate between 0 and 1"),
        (TEXT, {"draws": 0}, "Choose 1 to 100 draws"),
        ("the <extra_id_1> street", {}, "already has sentinels"),
        (f"{TEXT} {TEXT}", {}, r"has \d\d tokens, and the view shows at most 19"),
    ):
        with pytest.raises(UnmaskError, match=message):
            masking.spans(t5, subwords, text, **more)
    assert len(masking.spans(t5, subwords, "street")["draws"][0]["written"]) == 3  # of one token all is cut out
    plain = train_subwords([TEXT] * 3, 60, "word")
    with pytest.raises(UnmaskError, match="use the view attention"):
        masking.spans(t5, plain, TEXT)


@settings(max_examples=40)
@given(st.text(min_size=1, max_size=30))
def test_pieces_cover_their_words(text):
    tokenizer = Tokenizer.train([TEXT] * 3, 150)
    try:
        found = masking.wordpiece(tokenizer, text)
    except UnmaskError:
        assert not len(tokenizer.encode(text))
        return
    for word in found["words"]:
        assert word["text"] == text[word["begin"] : word["end"]]
        assert word["pieces"][0]["begin"] == word["begin"]
        assert word["pieces"][-1]["end"] == word["end"]
    ids = [piece["id"] for word in found["words"] for piece in word["pieces"]]
    assert ids == tokenizer.encode(text).ids.tolist()


def test_words_hold_their_pieces(tokenizer):
    found = masking.wordpiece(tokenizer, "the streets\u00e9 §")
    assert [word["text"] for word in found["words"]] == ["the", "streets\u00e9", "§"]
    assert "".join(p["piece"].removeprefix("##") for p in found["words"][0]["pieces"]) == "the"
    assert found["pieces"] == sum(len(word["pieces"]) for word in found["words"])
    assert found["words"][2]["pieces"][0]["unknown"]


def test_pieces_of_a_model_that_writes(subwords):
    text = "the streets \u00a7 <extra_id_0> animal"
    found = masking.wordpiece(subwords, text)
    names = [[piece["piece"] for piece in word["pieces"]] for word in found["words"]]
    assert [names[0], *names[2:]] == [["the"], ["[UNK]"], ["<extra_id_0>"], ["animal"]]
    assert "".join(piece.removeprefix("##") for piece in names[1]) == "streets"
    pieces = [piece for word in found["words"] for piece in word["pieces"]]
    assert [piece["id"] for piece in pieces] == subwords.ids([text])[0].tolist()
    assert [piece["piece"] for piece in pieces if piece["unknown"]] == ["[UNK]"]
    assert (found["pieces"], found["unknown"], found["vocabulary"]) == (len(pieces), 1, subwords.size)
    with pytest.raises(UnmaskError, match="nothing to tokenize"):
        masking.wordpiece(subwords, " ")


def test_masks_are_what_their_names_say():
    tokens, other = list("abcde"), list("xy")
    found = {one["name"]: unpacked(one["visible"]) for one in masks.masks(tokens, other, window=2, padding=3)["masks"]}
    i, j = np.indices((5, 5))
    np.testing.assert_array_equal(found["causal"], j <= i)
    np.testing.assert_array_equal(found["window"], abs(i - j) < 2)
    np.testing.assert_array_equal(found["causal and window"], (j <= i) & (i - j < 2))
    i, j = np.indices((8, 8))
    np.testing.assert_array_equal(found["padding"], j < 5)
    belongs = np.array([1] * 5 + [2] * 2 + [0] * 3)
    np.testing.assert_array_equal(found["documents"], belongs[:, None] == belongs)
    for bad in ([], ["a"] * 200):
        with pytest.raises(UnmaskError, match="Give one to"):
            masks.masks(bad)


def test_sinusoids_are_the_formula():
    found = positions.sinusoidal(20, 16)
    table = unpacked(found["table"])
    for place, feature in ((0, 0), (7, 4), (19, 15)):
        angle = place / 10_000 ** ((feature - feature % 2) / 16)
        assert table[place, feature] == pytest.approx(np.cos(angle) if feature % 2 else np.sin(angle), abs=1e-3)
    np.testing.assert_allclose(np.diag(unpacked(found["similarity"])), 1, atol=1e-3)


def test_positions_of_models(model, tokenizer):
    found = positions.of_model(model)
    assert found["kind"] == "learned"
    np.testing.assert_allclose(unpacked(found["table"]), model.embedding.position.table.weight.detach(), atol=1e-3)
    writer = Transformer(vocabulary=30, dim=16, encoder_layers=1, decoder_layers=1, encoder_heads=2, decoder_heads=2)
    assert positions.of_model(writer.build())["kind"] == "sinusoidal"
    with pytest.raises(UnmaskError, match="another way"):
        positions.of_model(torch.nn.Linear(2, 2))
    with pytest.raises(UnmaskError, match="Show 2 to"):
        positions.sinusoidal(1, 8)


def test_complexity_measures_what_it_names():
    found = complexity.complexity((4, 8), 16, repeats=1)
    assert set(found["seconds"]) == {"self-attention", "recurrent", "convolution"}
    assert set(found["formulas"]) == {*found["seconds"], "restricted self-attention"}
    assert all(len(times) == 2 and min(times) > 0 for times in found["seconds"].values())
    formulas = complexity.formulas(100)
    assert [formulas[name]["steps"] for name in ("self-attention", "recurrent", "convolution")] == [1, 100, 1]
    assert complexity.formulas(128)["restricted self-attention"]["distance"] == 2  # two neighbourhoods of 64
    assert formulas["convolution"]["distance"] == 99  # a kernel of 3 reaches one place further with each layer
    for bad in ((), (8, 4), (0,), (10_000,)):
        with pytest.raises(UnmaskError, match="increasing"):
            complexity.complexity(bad)
