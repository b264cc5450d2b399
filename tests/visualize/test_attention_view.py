"""The attention that the page shows is the model's own: recomputed from queries and keys, for every kind of model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.albert import Albert
from unmask.models.bert import Bert
from unmask.models.convs2s import ConvS2S
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.seq2seq import Seq2Seq
from unmask.models.transformer import Transformer
from unmask.models.transformer_xl import TransformerXl
from unmask.nn import record_attention
from unmask.visualize import attention, reading
from unmask.visualize.numbers import packed, thumbnail, unpacked
from unmask.visualize.pictures import PICTURES

TEXT = "the animal did not cross the street because it was too tired"
SIZES = {"dim": 32, "layers": 3, "heads": 4, "hidden": 64, "length": 40, "std": 0.3}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([TEXT] * 3, 150)


@pytest.fixture(scope="module")
def bert(tokenizer):
    return Bert(vocabulary=tokenizer.size, **SIZES).build(as_heads({"mlm": 0})).eval()


@pytest.fixture(scope="module")
def subwords():
    return train_subwords([TEXT, "a street"], 60, kind="character")


@pytest.fixture(scope="module")
def transformer(subwords):
    sizes = {"dim": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_heads": 2, "decoder_heads": 4}
    config = Transformer(
        vocabulary=subwords.size, padding=subwords.pad, start=subwords.start, end=subwords.end, **sizes
    )
    return config.build().eval()


def plain_weights(model, batch):
    """softmax(q k^T / sqrt(K)) of every layer of a BERT, written out, from the states that go into the blocks."""
    x = model.embedding(batch.tokens, batch.segments, batch.positions)
    found = []
    for block in model.stack.blocks:
        part = block.attention.f
        q, k = (f(x)[0].unflatten(-1, (part.heads, -1)).transpose(0, 1) for f in (part.query, part.key))
        found.append(torch.exp(q @ k.mT / q.shape[-1] ** 0.5))
        found[-1] = found[-1] / found[-1].sum(-1, keepdim=True)
        x = block(x)
    return [one.detach().numpy() for one in found]


def test_weights_are_the_softmax_written_out(bert, tokenizer):
    read = reading.read(bert, tokenizer, TEXT)
    found = attention.weights(bert, read.batch, "encoder")
    for ours, plain in zip(found, plain_weights(bert, read.batch), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-6)
        np.testing.assert_allclose(ours.sum(-1), 1.0, atol=1e-5)
    only = attention.weights(bert, read.batch, "encoder", [2, 0])
    np.testing.assert_allclose(only[0], found[2], atol=1e-5)  # other layers run a fused kernel
    np.testing.assert_allclose(only[1], found[0], atol=1e-5)


def test_looking_leaves_the_model_as_it_was(bert, tokenizer):
    read = reading.read(bert, tokenizer, TEXT)
    before = bert(read.batch)
    twin = reading.twin(bert)
    assert all(a is b for a, b in zip(bert.parameters(), twin.parameters(), strict=True))
    assert not {id(m) for m in bert.modules()} & {id(m) for m in twin.modules()}
    with record_attention(bert) as maps:  # somebody else is looking meanwhile
        attention.weights(bert, read.batch, "encoder")
    assert maps == []
    torch.testing.assert_close(bert(read.batch), before, rtol=0, atol=0)


def test_shared_blocks_are_told_apart_by_their_turn(tokenizer):
    model = Albert(vocabulary=tokenizer.size, factor=16, **SIZES).build(as_heads({"mlm": 0})).eval()
    read = reading.read(model, tokenizer, TEXT)
    with torch.no_grad(), record_attention(model) as maps:
        model(read.batch)
    found = attention.weights(model, read.batch, "encoder")
    assert len(found) == 3
    for ours, one in zip(found, maps, strict=True):
        np.testing.assert_allclose(ours, one.weights[0].numpy(), atol=1e-5)


def test_segments_are_put_together(tokenizer):
    """A Transformer-XL reads segment after segment; a token of a later one sees the end of those before."""
    config = TransformerXl(vocabulary=tokenizer.size, dim=16, layers=2, heads=2, hidden=32, memory=5)
    model = config.build().eval()
    read = reading.read(model, tokenizer, TEXT)
    T = len(read.tokens)
    found = attention.weights(model, read.batch, "decoder")
    with torch.no_grad(), record_attention(model.stack.blocks[1]) as maps:
        model(read.batch)
    i, j = np.indices((T, T))
    for weights_HTT in found:
        np.testing.assert_allclose(weights_HTT.sum(-1), 1, atol=1e-5)
        assert weights_HTT[:, j > i].max() == 0
        assert weights_HTT[:, 6, 2].min() > 0  # from the second segment into the first
    np.testing.assert_allclose(found[1][:, 5:10, :10], maps[1].weights[0], atol=1e-5)
    np.testing.assert_allclose(found[1][:, 10:, 5:], maps[2].weights[0], atol=1e-5)


def test_an_encoder_decoder_has_three_kinds(transformer, subwords):
    read = reading.read_pair(transformer, subwords, "the street", "a street")
    with torch.no_grad(), record_attention(transformer) as maps:
        transformer(read.batch)
    assert set(attention.layers_of(transformer)) == {"encoder", "decoder", "cross"}
    for kind, rows, columns in (("encoder", 11, 11), ("decoder", 9, 9), ("cross", 9, 11)):
        names = attention.names(read, kind)
        assert (len(names[0]), len(names[1])) == (rows, columns)
        theirs = [m.weights[0].numpy() for m in maps if (f"{kind}." if kind == "encoder" else "decoder.") in m.name]
        if kind != "encoder":
            theirs = [one for one in theirs if one.shape[-1] == columns]
        for ours, one in zip(attention.weights(transformer, read.batch, kind), theirs, strict=True):
            np.testing.assert_allclose(ours, one, atol=1e-5)
    causal = attention.weights(transformer, read.batch, "decoder")[0]
    assert np.triu(causal[0], 1).sum() == 0
    assert attention.names(read, "cross")[0][-1] == "</s>"
    assert attention.names(read, "decoder")[0][0] == "<s>"


@pytest.mark.parametrize(
    "config",
    [
        Seq2Seq(vocabulary=60, dim=16, hidden=16),
        ConvS2S(vocabulary=60, dim=16, length=30, encoder_widths=(16,), decoder_widths=(16,)),
    ],
    ids=["recurrent", "convolutional"],
)
def test_other_translation_has_cross_attention_alone(config, subwords):
    model = config.build().eval()
    read = reading.read_pair(model, subwords, "the street", "a street")
    found = attention.overview(model, read)
    assert (found["kind"], found["layers"], found["heads"], found["rolls"]) == ("cross", 1, 1, False)
    np.testing.assert_allclose(attention.weights(model, read.batch, "cross")[0].sum(-1), 1, atol=1e-5)


def test_rollout_is_the_product_of_mixed_layers(bert, tokenizer):
    read = reading.read(bert, tokenizer, TEXT)
    layers = attention.weights(bert, read.batch, "encoder")
    eye = np.eye(layers[0].shape[-1])
    mixed = [(one.mean(0) + eye) / 2 for one in layers]
    found = attention.rollout(layers)
    np.testing.assert_allclose(found, mixed[2] @ mixed[1] @ mixed[0], atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def test_overview_and_layers_carry_the_same_numbers(bert, tokenizer):
    read = reading.read(bert, tokenizer, TEXT, "it was a street")
    whole = attention.whole(bert, read)
    plain = plain_weights(bert, read.batch)
    assert whole["rows"] == read.tokens == whole["columns"]
    assert (whole["layers"], whole["heads"]) == (3, 4)
    np.testing.assert_allclose(unpacked(whole["thumbnails"]), np.stack(plain), atol=0.003)
    for i, one in enumerate(whole["details"]):
        number, head = divmod(i, 4)
        assert (one["layer"], one["heads"]) == (number, [head])
        np.testing.assert_allclose(unpacked(one["weights"])[0], plain[number][head], atol=5e-4)
    every = attention.chosen(plain[1], 1)
    assert (every["layer"], every["heads"]) == (1, [0, 1, 2, 3])
    some = attention.chosen(plain[1], 1, [3, 1])
    assert some["heads"] == [3, 1]
    np.testing.assert_allclose(unpacked(some["weights"]), plain[1][[3, 1]], atol=5e-4)
    last = attention.rolled(bert, read, "encoder")["rollout"]
    np.testing.assert_allclose(unpacked(last), attention.rollout(plain), atol=5e-4)
    assert whole["rollout"] == last
    assert "rollout" not in attention.overview(bert, read)
    assert attention.whole(bert, read)["rolls"]


class Plot:
    """Stands for a figure of matplotlib, which need not be installed, and for its axes: keeps what is shown."""

    def __init__(self):
        self.shown, self.title = None, ""

    def subplots(self, down, across, **_):
        self.axes = np.array([[Plot() for _ in range(across)] for _ in range(down)])
        return self.axes

    def imshow(self, values, **_):
        self.shown = values

    def set_title(self, title, **_):
        self.title = title

    def nothing(self, *_, **__):
        pass

    set_size_inches = set_visible = set_xticks = set_yticks = tick_params = nothing


def test_a_picture_shows_the_layer_and_the_heads_that_its_titles_name(bert, tokenizer):
    read = reading.read(bert, tokenizer, TEXT)
    expected = attention.weights(bert, read.batch, "encoder")
    figure = Plot()
    PICTURES["attention"](figure, attention.whole(bert, read) | {"start": {"layer": 2, "heads": [3, 1]}})
    for axis, head in zip(figure.axes.flatten(), (3, 1), strict=True):
        assert axis.title == f"layer 3, head {head + 1}"
        np.testing.assert_allclose(axis.shown, expected[2][head], atol=1e-3)


def test_a_head_that_is_not_there_is_said():
    with pytest.raises(UnmaskError, match="no head 4: the layer has 4, counted from 0"):
        attention.chosen(np.zeros((4, 2, 2)), 0, [0, 4])


def test_words_of_both_texts_are_numbered_on(bert, tokenizer):
    read = reading.read(bert, tokenizer, "the street", "was tired")
    assert [w for w in read.words if w >= 0] == sorted(w for w in read.words if w >= 0)
    assert read.words[0] == read.words[-1] == -1
    assert set(read.words) == {-1, 0, 1, 2, 3}


def test_thumbnails_keep_the_strongest_cell():
    values = np.zeros((2, 100, 130))
    values[1, 77, 129] = 0.9
    small = thumbnail(values, 48)
    assert small.shape[0] == 2
    assert max(small.shape[1:]) <= 48
    assert small.max() == 0.9
    assert (small > 0).sum() == 1
    np.testing.assert_array_equal(thumbnail(values[:, :40, :40]), values[:, :40, :40])


@pytest.mark.parametrize(("kind", "error"), [("float16", 5e-4), ("uint8", 0.002)])
def test_packed_numbers_come_back(kind, error):
    values = np.random.default_rng(0).random((3, 5)).astype(np.float32)
    found = packed(values, kind)
    assert found["shape"] == [3, 5]
    np.testing.assert_allclose(unpacked(found), values, atol=error)


def test_what_is_not_there_is_said(bert, tokenizer):
    read = reading.read(bert, tokenizer, TEXT)
    with pytest.raises(UnmaskError, match="no layer 3: the model has 3"):
        attention.weights(bert, read.batch, "encoder", [3])
    with pytest.raises(UnmaskError, match="no kind of attention in this model: 'cross'"):
        attention.weights(bert, read.batch, "cross")
    with pytest.raises(UnmaskError, match="nothing to read"):
        reading.read(bert, tokenizer, "  ")
    with pytest.raises(UnmaskError, match="the model takes 40"):
        reading.read(bert, tokenizer, TEXT * 9)
    network = RecurrentNetwork(vocabulary=tokenizer.size, dim=8, hidden=8).build(as_heads({"next": 0})).eval()
    with pytest.raises(UnmaskError, match="no attention"):
        attention.overview(network, reading.read(network, tokenizer, TEXT))
