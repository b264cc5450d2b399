"""ELMo: its equations written out, words found in rows, layers that see one side alone, and its folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unmask import huggingface
from unmask.data import collate
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.elmo import SIZES, Elmo, ElmoModel
from unmask.nn import BidirectionalLMLayer, CharacterCNN, Highway
from unmask.nn.bidirectional_lm import flip
from unmask.nn.sequences import Words
from unmask.types import Batch, Example

GOLDEN = Path(__file__).parents[1] / "golden"
V, FIRST = 30, 15  # ids 5 … 14 begin a word, 15 … 29 continue with one
NUMBERS = {
    "vocabulary": V,
    "continues": FIRST,
    "characters": 6,
    "widths": (1, 3),
    "filters": (5, 4),
    "highways": 2,
    "dim": 8,
    "hidden": 12,
    "task": 7,
    "dropout": 0.0,
}


def model(heads: dict[str, int] | None = None, **changes: object) -> ElmoModel:
    net = Elmo().replace(**{**NUMBERS, **changes}).build(heads, seed=1).double().eval()
    with torch.no_grad():  # all biases start from the same number, which would hide where they are added
        for name, p in net.named_parameters():
            if "bias" in name:
                p += torch.linspace(-0.5, 0.5, p.numel()).double()
    return net


def text(words: int, seed: int = 0) -> np.ndarray:
    """[CLS], so many words of one to six characters, [SEP]."""
    rng = np.random.default_rng(seed)
    spelled = [[rng.integers(5, FIRST), *rng.integers(FIRST, V, rng.integers(0, 6))] for _ in range(words)]
    return np.concatenate([[2], *spelled, [3]]).astype(np.int64)


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


# ------------------------------------------------------------------------------------------------ words


def by_filters(cnn: CharacterCNN, word: list[int]) -> Tensor:
    """One word: every filter at every character, zeros behind the end, the largest, the highways, the projection."""
    x = [cnn.token.weight[c] for c in word]
    found = []
    for filters in cnn.filters:
        k = filters.kernel_size[0]
        padded = torch.stack(x + [torch.zeros_like(x[0])] * (k - 1))
        for f in range(filters.out_channels):
            at = [(filters.weight[f] * padded[i : i + k].T).sum() + filters.bias[f] for i in range(len(word))]
            found.append(torch.stack(at).max().clamp(min=0))
    y = torch.stack(found)
    for highway in cnn.highways:
        assert isinstance(highway, Highway)
        t = sigmoid(highway.gate.weight @ y + highway.gate.bias)
        y = t * (highway.transform.weight @ y + highway.transform.bias).clamp(min=0) + (1 - t) * y
    return y if isinstance(cnn.project, torch.nn.Identity) else cnn.project.weight @ y + cnn.project.bias


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.integers(0, V - 1), min_size=1, max_size=7), min_size=1, max_size=6))
def test_a_word_is_what_its_filters_find(words: list[list[int]]) -> None:
    cnn = model().embedding
    longest = max(map(len, words))
    characters = torch.tensor([word + [9] * (longest - len(word)) for word in words])  # what lies behind is not read
    found = cnn(characters, torch.tensor([len(word) for word in words]))
    for row, word in zip(found, words, strict=True):
        torch.testing.assert_close(row, by_filters(cnn, word), atol=1e-12, rtol=1e-10)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(0, 1000))
def test_words_are_found_in_packed_rows(counts: list[int], seed: int) -> None:
    examples = [Example(text(n, seed + i)) for i, n in enumerate(counts)]
    batch = collate.pack(examples, max(len(e.tokens) for e in examples) + 3, 0)
    words = Words.of(batch.tokens, batch.documents, FIRST)
    found = {}
    for place, row, n in zip(words.places.tolist(), words.characters.tolist(), words.lengths.tolist(), strict=True):
        found[place] = row[:n]
    assert batch.starts is not None
    for start, example in zip(batch.starts.tolist(), examples, strict=True):
        begins = np.flatnonzero(example.tokens < FIRST)
        spelled = [part.tolist() for part in np.split(example.tokens, begins[1:])]
        assert [found.pop(start + int(begin)) for begin in begins] == spelled
    assert not found
    assert sorted(words.sequences.lengths.tolist()) == sorted(n + 2 for n in counts)


# ------------------------------------------------------------------------------------------------ layers


def by_cells(lstm: torch.nn.LSTM, x_SD: Tensor) -> Tensor:
    """h = W_p (o tanh(c)): an LSTM whose state is projected, word by word."""
    w = {name.removesuffix("_l0"): p for name, p in lstm.named_parameters()}
    h, c, said = torch.zeros(lstm.proj_size).double(), torch.zeros(lstm.hidden_size).double(), []
    for x in x_SD:
        i, f, g, o = (w["weight_ih"] @ x + w["bias_ih"] + w["weight_hh"] @ h + w["bias_hh"]).chunk(4)
        c = sigmoid(f) * c + sigmoid(i) * g.tanh()
        h = w["weight_hr"] @ (sigmoid(o) * c.tanh())
        said.append(h)
    return torch.stack(said)


def by_the_paper(net: ElmoModel, tokens: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """All layers of the words of a row, [W, (L + 1) D], and the states of the last one in both directions."""
    begins = np.flatnonzero(tokens < FIRST)
    x = torch.stack([by_filters(net.embedding, part.tolist()) for part in np.split(tokens, begins[1:])])
    left = right = x
    layers = [torch.cat([x, x], -1)]
    for j, block in enumerate(net.stack.blocks):
        assert isinstance(block, BidirectionalLMLayer)
        more_left, more_right = by_cells(block.forwards, left), by_cells(block.backwards, right.flip(0)).flip(0)
        left, right = (left + more_left, right + more_right) if j else (more_left, more_right)
        layers.append(torch.cat([left, right], -1))
    return torch.cat(layers, -1), left, right


def test_all_layers_are_those_of_the_equations() -> None:
    net = model(layers=3)
    tokens = text(5)
    begins = np.flatnonzero(tokens < FIRST)
    with torch.no_grad():
        hidden = net(Batch(torch.from_numpy(tokens)[None]))[0]
        layers, left, right = by_the_paper(net, tokens)
    torch.testing.assert_close(hidden[begins], layers, atol=1e-10, rtol=1e-10)
    rest = np.setdiff1d(np.arange(len(tokens)), begins)
    assert not hidden[rest].any()
    for number, own in enumerate((left, right)):
        torch.testing.assert_close(net.direction(hidden, number)[begins], own, atol=1e-10, rtol=1e-10)


def test_gradients_are_those_of_the_equations() -> None:
    net, tokens = model(layers=3).train(), text(5)
    weights = dict(net.named_parameters())
    begins = np.flatnonzero(tokens < FIRST)
    stated = by_the_paper(net, tokens)[0]
    noise = torch.randn(stated.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours, theirs = (
        torch.autograd.grad((hidden * noise).sum(), list(weights.values()))
        for hidden in (net(Batch(torch.from_numpy(tokens)[None]))[0][begins], stated)
    )
    for name, found, expected in zip(weights, ours, theirs, strict=True):
        assert expected.any(), name
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


def test_each_direction_sees_its_own_side_alone() -> None:
    net, tokens = model(), text(6)
    begins = np.flatnonzero(tokens < FIRST)
    other = tokens.copy()
    other[begins[3]] = 5 + (tokens[begins[3]] - 4) % (FIRST - 5)
    one, two = (net(Batch(torch.from_numpy(t)[None]))[0] for t in (tokens, other))
    for number, sees in ((0, lambda k: k >= 3), (1, lambda k: k <= 3)):
        changed = (net.direction(one - two, number)[begins].abs().amax(-1) > 1e-12).tolist()
        assert changed == [sees(k) for k in range(len(begins))]


def test_a_tasks_network_reads_the_mix_beside_its_own_words() -> None:
    """Equation 1, [w ; ELMo] and torch's LSTM of both directions."""
    net, bare = model(as_heads({"tagging": 3, "classification": 2})), model()
    bare.load_state_dict({k: v for k, v in net.state_dict().items() if not k.startswith(("pooler", "heads"))})
    reader = net.pooler
    assert reader is not None
    assert reader.mix is not None
    with torch.no_grad():
        reader.mix.weight.copy_(torch.tensor([0.3, -1.0, 0.7]))
        reader.mix.scale.fill_(1.7)
    tokens = text(5)
    begins = np.flatnonzero(tokens < FIRST)
    batch = Batch(torch.from_numpy(tokens)[None])
    with torch.no_grad():
        layers = bare(batch)[0, begins].unflatten(-1, (3, 16))
        share = torch.tensor([0.3, -1.0, 0.7]).double().exp()
        mix = 1.7 * (layers * (share / share.sum())[:, None]).sum(1)
        own = torch.stack([by_filters(reader.own, part.tolist()) for part in np.split(tokens, begins[1:])])
        said, (last, _) = reader.lstm(torch.cat([own, mix], -1)[None])
        hidden = net(batch)
        head = net.heads["tagging"].output
        places = torch.from_numpy(begins)
        torch.testing.assert_close(net.answer("tagging", hidden, places), head(said[0]), atol=1e-10, rtol=1e-10)
        summary = net.heads["classification"].output(torch.cat([last[0, 0], last[1, 0]]))
        answer = net.answer("classification", hidden, places[:1], batch)[0]
        torch.testing.assert_close(answer, summary, atol=1e-10, rtol=1e-10)


def test_flipping_twice_is_the_identity_and_leaves_padding() -> None:
    x, lengths = torch.arange(10.0).view(2, 5, 1), torch.tensor([5, 3])
    assert flip(x, lengths)[..., 0].tolist() == [[4, 3, 2, 1, 0], [7, 6, 5, 8, 9]]
    assert torch.equal(flip(flip(x, lengths), lengths), x)


# ------------------------------------------------------------------------------------------------ parameters, folders


def test_the_parameters_are_the_golden_ones() -> None:
    """A refactoring must not change them; after a change that is meant to, delete the file and run this twice."""
    net = model(as_heads({"tagging": 3}))
    found = {
        "ours": {name: list(p.shape) for name, p in net.named_parameters()},
        "theirs": {name: list(x.shape) for name, x in huggingface.export(net).items()},
    }
    path = GOLDEN / "tree-elmo.json"
    if not path.exists():
        path.write_text(json.dumps(found, indent=1) + "\n")
        pytest.fail(f"there was no {path.name}; it has been written now, look at it and run again")
    assert found == json.loads(path.read_text())


@pytest.mark.parametrize(("size", "millions"), [("small", 13.6), ("medium", 28.0), ("original", 93.6)])
def test_released_sizes_have_as_many_parameters(size: str, millions: float) -> None:
    with torch.device("meta"):
        net = Elmo().replace(**SIZES[size]).build(seed=None)
    assert net.parameters_total / 1e6 == pytest.approx(millions, abs=0.1)


def test_a_new_task_gets_a_fresh_network_by_its_seed(tmp_path: Path) -> None:
    huggingface.save(tmp_path, Elmo().replace(**NUMBERS).build(as_heads({"words": 20})))
    one, two, other = (huggingface.load(tmp_path, heads=as_heads({"tagging": 3}), seed=seed) for seed in (1, 1, 2))
    assert set(one.new) == {"pooler", "tagging"}
    assert one.dropped == ("words",)
    named = zip(one.model.named_parameters(), two.model.parameters(), other.model.parameters(), strict=True)
    for (name, a), b, c in named:
        assert torch.equal(a, b), name
        fresh = name.startswith(("pooler", "heads")) and "weight" in name and "mix" not in name
        assert torch.equal(a, c) != fresh, name


@pytest.mark.parametrize(
    ("changes", "heads", "message"),
    [
        ({"widths": (1,)}, {}, "1 widths"),
        ({}, as_heads({"span": 2}), "head of an Elmo"),
        ({}, as_heads({"next": 0}), "head of an Elmo"),
        ({"hidden": 8}, {}, "8 cells"),
    ],
)
def test_what_cannot_be_is_said(changes: dict[str, object], heads: dict[str, int], message: str) -> None:
    with pytest.raises(UnmaskError, match=message):
        model(heads, **changes)


def test_without_a_language_model_a_task_has_its_own_words_alone() -> None:
    net = model(as_heads({"tagging": 3}), layers=0)
    assert net.pooler is not None
    assert net.pooler.mix is None
    net.answer("tagging", net(Batch(torch.from_numpy(text(4))[None])), torch.tensor([0])).sum().backward()
    assert all(p.grad is None for p in net.embedding.parameters())
