"""Packing, padding, joining and reordering of batches."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from unmask.data.collate import pack, pad
from unmask.data.examples import Groups, labelled
from unmask.errors import UnmaskError
from unmask.types import Batch, Example, concatenate


def example(*tokens: int, segments: list[int] | None = None, **targets: tuple[list, list]) -> Example:
    arrays = {name: (np.array(places), np.array(values)) for name, (places, values) in targets.items()}
    return Example(np.array(tokens), None if segments is None else np.array(segments), arrays)


def test_pack_lays_out_rows_as_documented() -> None:
    batch = pack(
        [
            example(11, 12, nsp=([0], [1])),
            example(21, 22, 23, 24, segments=[0, 0, 1, 1], mlm=([3, 1], [7, 8])),
            example(31, 32, 33, nsp=([0], [0])),
        ],
        6,
        pad=9,
    )
    assert batch.tokens.tolist() == [[21, 22, 23, 24, 11, 12], [31, 32, 33, 9, 9, 9]]
    assert batch.documents.tolist() == [[1, 1, 1, 1, 2, 2], [1, 1, 1, 0, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 0, 1], [0, 1, 2, 0, 0, 0]]
    assert batch.segments.tolist() == [[0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]]
    assert batch.starts.tolist() == [4, 0, 6]  # in the order of the examples
    assert (batch.targets["nsp"].places.tolist(), batch.targets["nsp"].values.tolist()) == ([4, 6], [1, 0])
    assert (batch.targets["mlm"].places.tolist(), batch.targets["mlm"].values.tolist()) == ([1, 3], [8, 7])


def test_targets_are_sorted_by_place_even_where_the_examples_are_not() -> None:
    batch = pack([example(1, nsp=([0], [5])), example(2, 2, 2, nsp=([0], [6]))], 4, 0)
    assert batch.starts.tolist() == [3, 0]
    assert batch.targets["nsp"].places.tolist() == [0, 3]
    assert batch.targets["nsp"].values.tolist() == [6, 5]


def test_full_rows_need_no_documents() -> None:
    batch = pack([example(1, 2, 3), example(4, 5, 6)], 3, 0)
    assert batch.documents is None
    assert batch.positions is None
    assert batch.starts.tolist() == [0, 3]
    assert pad([example(*range(8)), example(*range(8))], 0).documents is None


def test_pad_gives_one_example_a_row() -> None:
    batch = pad([example(1, 2, 3, label=([0], [0.5])), example(4, label=([0], [2.0]))], 0, multiple=4)
    assert batch.tokens.tolist() == [[1, 2, 3, 0], [4, 0, 0, 0]]
    assert batch.documents.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 0], [0, 0, 0, 0]]
    assert batch.starts.tolist() == [0, 4]
    assert batch.segments is None
    assert batch.targets["label"].values.dtype == torch.float32
    assert batch.targets["label"].values.tolist() == [0.5, 2.0]


@pytest.mark.parametrize("multiple", [1, 8, 64])
def test_pad_rounds_the_width_up(multiple: int) -> None:
    width = pad([example(*range(1, 10))], 0, multiple=multiple).tokens.shape[1]
    assert width >= 9
    assert width % multiple == 0
    assert width - 9 < multiple


def test_every_tensor_is_int64_whatever_the_examples_hold() -> None:
    target = (np.array([1], np.int32), np.array([65535], np.uint16))
    small = Example(np.array([1, 2], np.uint16), np.array([0, 1], np.int8), {"mlm": target})
    batch = pack([small], 4, 0)
    for tensor in (batch.tokens, batch.documents, batch.positions, batch.segments, batch.starts):
        assert tensor.dtype == torch.int64
    assert batch.targets["mlm"].places.dtype == batch.targets["mlm"].values.dtype == torch.int64
    assert batch.targets["mlm"].values.tolist() == [65535]


def test_an_empty_list_of_targets_does_not_turn_labels_into_floats() -> None:
    batch = pack([example(1, 2, mlm=([], [])), example(3, mlm=([0], [4]))], 4, 0)
    assert batch.targets["mlm"].values.dtype == torch.int64
    alone = pack([example(1, mlm=([], []))], 4, 0)
    assert alone.targets["mlm"].places.shape == (0,)


@pytest.mark.parametrize("make", [lambda e: pack(e, 8, 0), lambda e: pad(e, 0)])
def test_no_examples_give_no_rows(make) -> None:
    batch = make([])
    assert batch.tokens.shape[0] == 0
    assert batch.starts.tolist() == []
    assert batch.real_tokens == 0


def test_bad_examples_are_named() -> None:
    with pytest.raises(UnmaskError, match="Example 1 has 5 tokens and does not fit in a row of 4"):
        pack([example(1), example(*range(5))], 4, 0)
    with pytest.raises(UnmaskError, match="Example 0 has no tokens"):
        pad([example()], 0)
    for place in (-1, 2):
        with pytest.raises(UnmaskError, match="Example 1 has a place of 'mlm' outside"):
            pack([example(1, 2, 3), example(1, 2, mlm=([place], [1]))], 8, 0)
    with pytest.raises(UnmaskError, match="2 places but 1 values"):
        pack([example(1, 2, mlm=([0, 1], [1]))], 8, 0)
    with pytest.raises(UnmaskError, match="segment ids"):
        pack([example(1, 2, segments=[0])], 8, 0)


def test_concatenate_fills_in_what_one_batch_leaves_out() -> None:
    full = pack([example(1, 2, 3, segments=[0, 1, 1])], 3, 0)
    ragged = pack([example(4), example(5, nsp=([0], [1]))], 3, 0)
    joined = concatenate([full, ragged])
    assert joined.tokens.tolist() == [[1, 2, 3], [4, 5, 0]]
    assert joined.documents.tolist() == [[1, 1, 1], [1, 2, 0]]
    assert joined.positions.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert joined.segments.tolist() == [[0, 1, 1], [0, 0, 0]]
    assert joined.starts.tolist() == [0, 3, 4]
    assert joined.targets["nsp"].places.tolist() == [4]
    assert concatenate([full, full]).documents is None
    assert concatenate([Batch(torch.ones(2, 3, dtype=torch.long)), full]).starts.tolist() == [0, 3, 6]


def test_concatenate_refuses_different_widths() -> None:
    with pytest.raises(UnmaskError, match="one length"):
        concatenate([pad([example(1)], 0, multiple=1), pad([example(1, 2)], 0, multiple=1)])
    with pytest.raises(UnmaskError, match="one length"):
        concatenate([])


def test_rows_move_with_all_that_belongs_to_them() -> None:
    batch = pack([example(1, 2, 3, a=([1], [10])), example(4, 5, a=([0, 1], [20, 21])), example(6, 6, 6)], 3, 0)
    moved = batch.take(np.array([2, 0, 1]))
    assert moved.tokens.tolist() == [batch.tokens[i].tolist() for i in (2, 0, 1)]
    assert moved.documents.tolist() == [batch.documents[i].tolist() for i in (2, 0, 1)]
    tokens = moved.tokens.flatten()
    assert tokens[moved.starts].tolist() == [1, 4, 6]
    assert moved.targets["a"].places.tolist() == sorted(moved.targets["a"].places.tolist())
    found = dict(zip(tokens[moved.targets["a"].places].tolist(), moved.targets["a"].values.tolist(), strict=True))
    assert found == {2: 10, 4: 20, 5: 21}


@pytest.mark.parametrize(
    ("lengths", "width", "padded"), [((5, 5, 5), 5, False), ((5, 3, 6), 8, True), ((8,), 8, False)]
)
def test_examples_of_one_length_have_rows_of_that_length(lengths, width, padded) -> None:
    examples = [Example(np.arange(1, n + 1)) for n in lengths]
    [batch] = next(labelled(Groups(examples), len(examples), pad=0).batches(None)).batches
    assert batch.tokens.shape[1] == width
    assert (batch.documents is not None) == padded  # without documents, attention has no mask
    assert batch.real_tokens == sum(lengths)


def test_thousands_of_examples_take_milliseconds_and_waste_little() -> None:
    rng = np.random.default_rng(0)
    examples = [Example(rng.integers(1, 99, n)) for n in rng.integers(5, 129, 3000)]
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        batch = pack(examples, 128, 0)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.1  # about 0.01 on an idle core
    assert batch.real_tokens / batch.tokens.numel() > 0.97
