"""Recurrent networks against torch.nn and against their own equations: outputs, states, gradients, ragged rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unmask.errors import UnmaskError
from unmask.nn import Recurrent, RecurrentState
from unmask.nn.recurrent import CELLS

B, T, D, H = 4, 6, 5, 3
LENGTHS = torch.tensor([4, 6, 1, 3])
TORCH = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
SHAPES = [(1, False), (2, False), (1, True), (3, True)]
of_torch = pytest.mark.parametrize("cell", list(TORCH))
cells = pytest.mark.parametrize("cell", list(CELLS))
shapes = pytest.mark.parametrize(("layers", "bidirectional"), SHAPES)
lengths = pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "ragged"])


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def network(cell, layers=1, bidirectional=False, dropout=0.0):
    return Recurrent(cell, D, H, layers, bidirectional=bidirectional, dropout=dropout).double()


def begun(cell, layers, rows=B, seed=3):
    """A state that is not zero."""
    hidden = noise(layers, rows, H, seed=seed)
    return RecurrentState(hidden, noise(layers, rows, H, seed=seed + 1) if cell == "lstm" else None)


def reference(ours, cell, layers, bidirectional):
    theirs = TORCH[cell](D, H, layers, batch_first=True, bidirectional=bidirectional).double()
    theirs.load_state_dict(ours.kernel.state_dict())
    return theirs


def run_reference(theirs, x, state, lengths):
    given = state.hidden if state.cell is None else (state.hidden, state.cell)
    if lengths is None:
        outputs, last = theirs(x, given)
    else:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        packed, last = theirs(packed, given)
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
    return outputs, RecurrentState(*last) if isinstance(last, tuple) else RecurrentState(last)


def total(outputs, state):
    """One number that depends on everything, unevenly."""
    parts = [outputs, state.hidden] + ([] if state.cell is None else [state.cell])
    return sum((part * noise(*part.shape, seed=9)).sum() for part in parts)


def same(a: RecurrentState, b: RecurrentState) -> None:
    torch.testing.assert_close(a.hidden, b.hidden)
    assert (a.cell is None) == (b.cell is None)
    if a.cell is not None:
        torch.testing.assert_close(a.cell, b.cell)


@of_torch
@shapes
@lengths
@pytest.mark.parametrize("path", ["forward", "unrolled"])
def test_equals_torch_with_gradients(cell, layers, bidirectional, lengths, path):
    ours = network(cell, layers, bidirectional)
    theirs = reference(ours, cell, layers, bidirectional)
    state = begun(cell, layers * (1 + bidirectional))
    x = noise(B, T, D).requires_grad_()
    expected = run_reference(theirs, x, state, lengths)
    wanted = torch.autograd.grad(total(*expected), [x, *theirs.parameters()])
    found = getattr(ours, path)(x, state, lengths)
    torch.testing.assert_close(found[0], expected[0])
    same(found[1], expected[1])
    gradients = torch.autograd.grad(total(*found), [x, *ours.kernel.parameters()])
    for ours_grad, their_grad in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(ours_grad, their_grad)


@of_torch
def test_a_cell_equals_torch_cell(cell):
    theirs = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}[cell](D, H).double()
    ours = CELLS[cell](theirs.weight_ih, theirs.weight_hh, theirs.bias_ih, theirs.bias_hh)
    x, state = noise(B, D), begun(cell, 1).layer(0)
    given = state.hidden if state.cell is None else (state.hidden, state.cell)
    expected = theirs(x, given)
    output, after = ours.step(x, state)
    same(after, RecurrentState(*expected) if cell == "lstm" else RecurrentState(expected))
    torch.testing.assert_close(output, after.hidden)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("cell", ["gru", "gru-cho", "gru-chung"])
def test_the_three_forms_of_a_gru_by_their_formulas(cell):
    sizes = [(3, H, D), (3, H, H), (3, H), (3, H)]
    W, U, b, c = (noise(*size, seed=i).numpy() for i, size in enumerate(sizes))
    x, h = noise(D, seed=8).numpy(), noise(H, seed=9).numpy()
    r, z = (sigmoid(W[i] @ x + b[i] + U[i] @ h + c[i]) for i in (0, 1))
    after_product = W[2] @ x + b[2] + r * (U[2] @ h + c[2])
    before_product = W[2] @ x + b[2] + U[2] @ (r * h) + c[2]
    candidate = np.tanh(after_product if cell == "gru" else before_product)
    wanted = (1 - z) * h + z * candidate if cell == "gru-chung" else z * h + (1 - z) * candidate
    weights = (torch.from_numpy(part.reshape(3 * H, *part.shape[2:])) for part in (W, U, b, c))
    output, state = CELLS[cell](*weights).step(torch.from_numpy(x)[None], RecurrentState(torch.from_numpy(h)[None]))
    np.testing.assert_allclose(output[0].numpy(), wanted)
    assert state.hidden is output


@cells
@pytest.mark.parametrize("layers", [1, 3])
def test_token_by_token_is_the_whole(cell, layers):
    net, x = network(cell, layers), noise(B, T, D)
    state = begun(cell, layers)
    outputs, last = net(x, state)
    for t in range(T):
        output, state = net.step(x[:, t], state)
        torch.testing.assert_close(output, outputs[:, t])
    same(state, last)


@cells
@settings(max_examples=6)
@given(cut=st.integers(1, T - 1))
def test_a_text_in_two_pieces_is_the_whole(cell, cut):
    net, x = network(cell, 2), noise(B, T, D)
    outputs, last = net(x)
    first, state = net(x[:, :cut])
    second, state = net(x[:, cut:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), outputs)
    same(state, last)


def test_gradients_stop_where_the_state_is_detached():
    net = network("lstm", 2)
    first, second = noise(B, T, D).requires_grad_(), noise(B, T, D, seed=1).requires_grad_()
    outputs, _ = net(second, net(first)[1].detach())
    assert torch.autograd.grad(outputs.sum(), first, allow_unused=True, retain_graph=True)[0] is None
    assert torch.autograd.grad(outputs.sum(), second)[0].abs().sum() > 0
    outputs, _ = net(second, net(first)[1])
    assert torch.autograd.grad(outputs.sum(), first)[0].abs().sum() > 0


@cells
@shapes
@settings(max_examples=15)
@given(data=st.data())
def test_padding_is_neutral(cell, layers, bidirectional, data):
    """Each row has the numbers that it has alone, whatever stands at its padding, where outputs are zero."""
    net = network(cell, layers, bidirectional)
    sizes = data.draw(st.lists(st.integers(1, T), min_size=1, max_size=4))
    x = noise(len(sizes), T, D)
    for row, size in enumerate(sizes):
        x[row, size:] = 1e6
    outputs, state = net(x, None, torch.tensor(sizes))
    for row, size in enumerate(sizes):
        alone, last = net(x[row : row + 1, :size])
        torch.testing.assert_close(outputs[row, :size], alone[0])
        assert outputs[row, size:].abs().sum() == 0
        same(state.select(torch.tensor([row])), last)


@cells
@shapes
def test_the_trace_ends_in_the_last_state(cell, layers, bidirectional):
    net, x = network(cell, layers, bidirectional), noise(B, T, D)
    trace, (outputs, last) = net.trace(x, None, LENGTHS), net(x, None, LENGTHS)
    assert trace.hidden.shape == (layers * (1 + bidirectional), B, T, H)
    same(trace.map(lambda s: s[: None if not bidirectional else -1, :, -1]).layer(0), last.layer(0))
    torch.testing.assert_close(trace.hidden[-1 - bidirectional, 1], outputs[1, :, :H])
    if cell == "lstm":
        torch.testing.assert_close(
            trace.cell[0, 2, 0], net(x[2:3, :1])[1].cell[0, 0] if not bidirectional else trace.cell[0, 2, -1]
        )


def test_states_are_selected_by_row_and_repeated():
    state = begun("lstm", 2)
    chosen = state.select(torch.tensor([2, 2, 0]))
    assert torch.equal(chosen.hidden, state.hidden[:, [2, 2, 0]])
    assert torch.equal(chosen.cell, state.cell[:, [2, 2, 0]])
    assert torch.equal(state.repeat(2).hidden[:, 3], state.hidden[:, 1])
    assert state.repeat(1) is state
    assert state.layer(1).hidden.shape == (B, H)
    assert begun("gru", 2).repeat(3).cell is None


@cells
def test_dropout_is_between_layers_only(cell):
    x = noise(B, T, D)
    one, two = network(cell, 1, dropout=0.9).train(), network(cell, 2, dropout=0.9).train()
    torch.testing.assert_close(one(x)[0], one.eval()(x)[0])
    before = two.step(x[:, 0], two.start(x))[1]
    assert not torch.allclose(before.hidden[1], two.eval().step(x[:, 0], two.start(x))[1].hidden[1])
    torch.testing.assert_close(before.hidden[0], two.step(x[:, 0], two.start(x))[1].hidden[0])


@cells
def test_widths(cell):
    net = network(cell, 3, True)
    assert (net.hidden, net.layers, net.directions, net.width) == (H, 3, 2, 2 * H)
    assert net(noise(B, T, D))[0].shape == (B, T, net.width)


def test_bad_input_is_named():
    with pytest.raises(UnmaskError, match="did you mean 'lstm'"):
        Recurrent("lstn", D, H)
    with pytest.raises(UnmaskError, match="Row 1 of the batch has 0 tokens"):
        network("gru")(noise(2, T, D), None, torch.tensor([3, 0]))
    with pytest.raises(UnmaskError, match="Row 0 of the batch has 7 tokens"):
        network("gru").unrolled(noise(2, T, D), None, torch.tensor([7, 2]))
    net = network("gru", 1, True)
    with pytest.raises(UnmaskError, match="bidirectional"):
        net.step(noise(B, D), net.start(noise(B, T, D)))
