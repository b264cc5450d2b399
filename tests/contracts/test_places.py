"""A place is a token, and a signal carries what ids cannot: pictures travel, pack and mask as sentences do."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch
from contracts_vit import Vit, encode
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.collate import pack, pad
from unmask.errors import UnmaskError
from unmask.types import LAYOUTS, Batch, Example, Head, Kind, Signal, Target, concatenate

RNG = np.random.default_rng(0)
PICTURES = [RNG.standard_normal((3, *size)) for size in ((16, 16), (8, 16), (4, 8), (16, 4), (12, 12))]


def test_every_field_of_a_batch_has_a_layout() -> None:
    assert list(LAYOUTS) == [one.name for one in dataclasses.fields(Batch)]


# ------------------------------------------------------------------------------------------------ rows that change


def recording(length: int) -> Example:
    """A class token and frames, whose samples stand at the place where they begin; a sequence to predict."""
    frames, labels = length // 3, np.arange(length % 4)
    tokens = np.r_[Kind.CLS, np.full(frames, Kind.SIGNAL)]
    target = (np.array([0]), labels, np.array([len(labels)]))
    return Example(tokens, None, {"ctc": target}, (np.array([1]), np.arange(length) / length, np.array([length])))


def picture(patches: int) -> Example:
    """Patches whose first number says which one it is, every second of them a target with its own values."""
    values = np.stack([np.arange(patches), RNG.standard_normal(patches)], 1)
    places = np.arange(1, patches + 1)
    tokens = np.r_[Kind.CLS, np.full(patches, Kind.SIGNAL)]
    return Example(tokens, None, {"pixels": (places[::2], values[::2])}, (places, values))


def told(batch: Batch) -> list[tuple]:
    """What a batch says of each of its sequences, wherever it lies."""
    found = []
    documents = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
    width = batch.tokens.shape[1]
    for start in batch.starts.tolist():
        row, column = divmod(start, width)
        size = int((documents[row, column:] == documents[row, column]).sum())
        ends = start + size
        said = [batch.tokens.flatten()[start:ends].tolist()]
        for part in (batch.signal, *(batch.targets[name] for name in sorted(batch.targets))):
            lengths = torch.ones_like(part.places) if part.lengths is None else part.lengths
            pieces = part.values.split(lengths.tolist())
            inside = [i for i, place in enumerate(part.places.tolist()) if start <= place < ends]
            said.append([(int(part.places[i]) - start, pieces[i].tolist()) for i in inside])
        found.append(tuple(map(str, said)))
    return found


@given(st.sampled_from([picture, recording]), st.lists(st.integers(3, 20), min_size=1, max_size=8), st.data())
def test_a_signal_follows_its_sequences(make, sizes, data) -> None:
    examples = [make(size) for size in sizes]
    batch = data.draw(st.sampled_from([pack(examples, 24, Kind.PADDING), pad(examples, Kind.PADDING)]))
    whole = told(batch)
    assert len(whole) == len(examples)
    assert (batch.tokens.flatten()[batch.signal.places] == Kind.SIGNAL).all()
    B = len(batch.tokens)
    order = np.array(data.draw(st.permutations(range(B))))
    assert told(batch.take(order)) == whole  # starts keep the order of the examples
    cut = data.draw(st.integers(1, B))
    parts = [part for part in (batch.rows(0, cut), batch.rows(cut, B)) if len(part.tokens)]
    assert sorted(one for part in parts for one in told(part)) == sorted(whole)
    assert told(concatenate(parts)) == [one for part in parts for one in told(part)]
    assert told(batch.widen(data.draw(st.integers(0, 9)))) == whole
    assert told(batch.map(torch.Tensor.numpy).map(torch.from_numpy)) == whole
    assert sum(part.counts[name] for part in parts for name in part.targets) == sum(batch.counts.values())


def test_values_of_two_shapes_do_not_share_a_batch() -> None:
    one, two = (Batch.of_vectors(torch.ones(2, F)) for F in (3, 4))
    with pytest.raises(UnmaskError, match="one shape"):
        concatenate([one, two])
    with pytest.raises(UnmaskError, match="one shape"):
        pad([encode(PICTURES[0], 4), encode(PICTURES[0], 2)], Kind.PADDING)


@pytest.mark.parametrize("signal", [([0, 1], [[1.0]]), ([3], [[1.0]]), ([0], [1.0, 2.0], [1])])
def test_a_signal_that_does_not_fit_is_named(signal) -> None:
    bad = Example(np.full(2, Kind.SIGNAL), signal=tuple(map(np.array, signal)))
    with pytest.raises(UnmaskError, match=r"Example 0 has .* the signal"):
        pad([bad], Kind.PADDING)


# ------------------------------------------------------------------------------------------------ a page that reads it


@pytest.fixture(scope="module")
def model():
    return Vit().build({"class": Head("token", 5)}, seed=1).eval()


def test_packed_padded_and_single_pictures_are_the_same(model) -> None:
    examples = [encode(picture, 4) for picture in PICTURES]
    alone = [model(pad([example], Kind.PADDING, multiple=1))[0] for example in examples]
    for batch in (pack(examples, 24, Kind.PADDING), pad(examples, Kind.PADDING)):
        hidden = model(batch).flatten(0, 1)
        for start, expected in zip(batch.starts.tolist(), alone, strict=True):
            torch.testing.assert_close(hidden[start : start + len(expected)], expected, atol=2e-6, rtol=1e-5)


def test_a_hidden_patch_is_a_token_that_says_mask(model) -> None:
    batch = pad([encode(PICTURES[0], 4)], Kind.PADDING, multiple=1)
    tokens = batch.tokens.clone()
    tokens[0, 5] = Kind.MASK
    other = Signal(batch.signal.places, batch.signal.values.clone())
    other.values[4] = 100.0  # of place 5
    hidden = replace(batch, tokens=tokens)
    assert torch.equal(model(hidden), model(replace(hidden, signal=other)))
    assert not torch.equal(model(batch), model(replace(batch, signal=other)))
    target = Target(torch.tensor([5]), batch.signal.values[4:5])
    assert hidden.with_targets(pixels=target).counts == {"pixels": 1}


def test_a_batch_without_raw_values_is_refused(model) -> None:
    with pytest.raises(UnmaskError, match="the batch has only tokens"):
        model(Batch(torch.full((1, 3), Kind.SIGNAL)))


def test_no_rows_have_no_places() -> None:
    batch = pad([], Kind.PADDING)
    assert batch.rows(0, 1).tokens.shape == batch.tokens.shape == (0, 0)


def test_a_vit_is_that_of_transformers(model) -> None:
    from transformers import ViTConfig, ViTForImageClassification

    config = model.config
    theirs = ViTForImageClassification(
        ViTConfig(
            hidden_size=config.dim,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.hidden,
            image_size=16,
            patch_size=config.patch,
            layer_norm_eps=config.eps,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=5,
        )
    ).eval()
    stored = {key.removeprefix("vit."): value for key, value in theirs.state_dict().items()}
    ours = Vit().build({"class": Head("token", 5)}, seed=None).eval()
    ours.load_state_dict({name: as_theirs(name, stored) for name in ours.state_dict()})
    pictures = np.stack([PICTURES[0], RNG.standard_normal((3, 16, 16))])
    batch = pack([encode(picture, config.patch) for picture in pictures], 40, Kind.PADDING)
    hidden = ours(batch)
    with torch.no_grad():
        expected = theirs.vit(torch.from_numpy(pictures).float()).last_hidden_state
        logits = theirs(torch.from_numpy(pictures).float()).logits
    torch.testing.assert_close(hidden[0, :34].unflatten(0, (2, 17)), expected, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(ours.answer("class", hidden, batch.starts), logits, atol=2e-6, rtol=1e-5)


NAMES = {
    "embedding.token.kinds.CLS": "embeddings.cls_token",
    "embedding.token.signal.project": "embeddings.patch_embeddings.projection",
    "embedding.position.table.weight": "embeddings.position_embeddings",
    "heads.class.output": "classifier",
    "stack.norm": "layernorm",
    "stack.blocks": "layers",
    "attention.f.query": "attention.q_proj",
    "attention.f.key": "attention.k_proj",
    "attention.f.value": "attention.v_proj",
    "attention.f.output": "attention.o_proj",
    "attention.before": "layernorm_before",
    "feedforward.before": "layernorm_after",
    "feedforward.f.up": "mlp.fc1",
    "feedforward.f.down": "mlp.fc2",
}


def as_theirs(name: str, stored: dict[str, torch.Tensor]) -> torch.Tensor:
    """The parameter of this name, as a folder of transformers stores it."""
    if name.endswith("kinds.MASK"):
        return torch.zeros(Vit().dim)
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    shape = (Vit().dim, -1) if name.endswith("projection.weight") else stored[name].squeeze().shape
    return stored[name].reshape(shape)
