"""Packed rows of text: their form, their blocks and mixtures; errors and the ends of workers."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from unmask.data.loader import EqualRows, Loader, Step
from unmask.data.order import Order, mixture, nested_mixture
from unmask.data.text.corpus import Corpus, Split, build
from unmask.data.text.reading import TextDocument
from unmask.data.text.stream import drawn, fixed, packed
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.types import Batch, Document, Example

LENGTH = 32

# A module of its own, so that a fresh process can import it.
CALLABLES = """
import numpy as np
import torch

from dataclasses import replace

from unmask.types import Example, Target


def sample(documents, length, rng):
    examples = []
    for document in documents:
        tokens = np.concatenate(document.sentences).astype(np.int64)
        begin = int(rng.integers(0, max(len(tokens) - length, 0) + 1))
        piece = tokens[begin : begin + length]
        label = (np.array([0]), np.array([document.index]))
        examples.append(Example(piece, np.zeros_like(piece), {"document": label}))
    return examples


def corrupt(batch, rng):
    places = torch.from_numpy(np.sort(rng.choice(batch.tokens.numel(), 5, replace=False)))
    values = batch.tokens.flatten()[places]
    tokens = batch.tokens.clone()
    tokens.view(-1)[places] = 4
    return replace(batch, tokens=tokens).with_targets(mlm=Target(places, values))


def fail(documents, length, rng):
    raise ValueError("broken sampler")


def die(documents, length, rng):
    import os

    os._exit(1)
"""


def load(*splits: Split, rows: int = 4, workers: int = 0, block: int = 400, **options: Any) -> Loader:
    """Blocks of a few hundred tokens, so that a small corpus has many."""
    return Loader(packed(splits, unit=60, block=block, **options), cut=EqualRows(rows), workers=workers)


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("callables")
    (folder / "stream_callables.py").write_text(CALLABLES)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("stream_callables")
    sys.path.remove(str(folder))


def make(folder: Path, count: int, seed: int, tokenizer: Tokenizer | None = None) -> Corpus:
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(50)]
    texts = []
    for _ in range(count):
        sentences = [rng.choice(words, rng.integers(2, 9)) for _ in range(rng.integers(1, 9))]
        texts.append(" ".join(f"{' '.join(sentence)}." for sentence in sentences))
    return build([TextDocument(t, "x") for t in texts], folder, tokenizer=tokenizer, vocabulary_size=130, heldout=0.05)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Split:
    return make(tmp_path_factory.mktemp("large") / "c", 120, 1).split("train")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, large: Split) -> Split:
    return make(tmp_path_factory.mktemp("tiny") / "c", 12, 2, Corpus(large.folder).tokenizer).split("train")


def stream(functions: ModuleType, *splits: Split, **options: Any) -> Loader:
    return load(*splits, sample=functions.sample, corrupt=functions.corrupt, length=LENGTH, **options)


def same(one: Batch, two: Batch) -> None:
    for name in ("tokens", "documents", "positions", "segments", "starts"):
        left, right = getattr(one, name), getattr(two, name)
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right), name
    assert set(one.targets) == set(two.targets)
    for name, target in one.targets.items():
        assert torch.equal(target.places, two.targets[name].places)
        assert torch.equal(target.values, two.targets[name].values)


def same_steps(one: Sequence[Step], two: Sequence[Step]) -> None:
    assert len(one) == len(two)
    for left, right in zip(one, two, strict=True):
        assert left.position == right.position
        same(left.batches[0], right.batches[0])


def whole(documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
    """Every token of every document, a document a sequence."""
    return [Example(np.concatenate(document.sentences)) for document in documents]


def documents(order: Order, epoch: int, block: int) -> list[Document]:
    return [order.source.read(unit) for unit in order.units(epoch, block).tolist()]


def untouched(batch: Batch, rng: np.random.Generator) -> Batch:
    return batch


def test_batches_have_the_promised_form(functions: ModuleType, large: Split) -> None:
    for [batch], position in islice(stream(functions, large).batches(), 30):
        assert batch.tokens.shape == (4, LENGTH)
        assert batch.tokens.dtype == torch.int64
        assert set(position) == {"epoch", "block", "row"}
        places = batch.targets["document"].places
        assert torch.equal(places.sort().values, batch.starts.sort().values)
        assert batch.tokens.flatten()[batch.targets["mlm"].places].tolist() == [4] * batch.counts["mlm"]


def test_targets_stay_with_their_sequences(functions: ModuleType, large: Split) -> None:
    """Each sequence, told by its start, is a piece of the document that its label names."""
    texts = [np.concatenate(document.sentences).tolist() for document in large]
    kept = load(large, sample=functions.sample, corrupt=untouched, length=LENGTH)
    for [batch], _ in islice(kept.batches(), 40):
        target = batch.targets["document"]
        for place, label in zip(target.places.tolist(), target.values.tolist(), strict=True):
            row, column = divmod(place, LENGTH)
            documents = torch.ones(LENGTH) if batch.documents is None else batch.documents[row]
            piece = batch.tokens[row][documents == documents[column]].tolist()
            assert any(texts[label][i : i + len(piece)] == piece for i in range(len(texts[label])))


def test_resume_builds_no_block_that_was_read(functions: ModuleType, large: Split) -> None:
    built = []

    def sample(documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        built.append(len(documents))
        return functions.sample(documents, length, rng)

    far = load(large, sample=sample, corrupt=untouched, length=LENGTH, rows=1)
    steps = far.batches({"epoch": 1_000, "block": 5, "row": 2})
    assert next(steps).position == {"epoch": 1_000, "block": 5, "row": 3}
    steps.close()
    assert len(built) <= 2  # this block, and the next one ahead of time


def test_seeds_and_blocks_have_their_own_chance(functions: ModuleType, large: Split) -> None:
    first, second = (next(stream(functions, large, seed=seed).batches()).batches[0].tokens for seed in (0, 1))
    assert not torch.equal(first, second)
    order = drawn([large], seed=5, alpha=1.0, limit=60, block=400)
    states = [order.generator(e, b).random() for e in range(3) for b in range(3)]
    states += [np.random.default_rng([5, e, 0]).random() for e in range(3)]
    assert len(set(states)) == len(states)


def test_rows_of_a_block_are_shuffled(large: Split) -> None:
    """Packing puts the longest sequences into the first rows; training must not see them in that order."""

    rows = load(large, sample=whole, corrupt=untouched, length=60, rows=40, block=10**6).batches()
    longest = [torch.bincount(row[row > 0]).max().item() for row in next(rows).batches[0].documents]
    assert longest != sorted(longest, reverse=True)


def test_blocks_are_of_about_equal_size(large: Split) -> None:
    order = drawn([large], seed=0, alpha=0.5, limit=60, block=400)
    sizes = [sum(len(s) for d in documents(order, 0, b) for s in d.sentences) for b in range(order.blocks)]
    assert order.blocks == round(large.tokens / 400)
    assert sum(sizes) == large.tokens
    assert max(sizes) - min(sizes) <= 2 * 60
    assert drawn([large], seed=0, alpha=0.5, limit=60, block=10**6).blocks == 1


def test_mixture_follows_the_formula() -> None:
    sizes = [4_000_000, 1_000_000, 10_000]
    root = np.sqrt(sizes)
    np.testing.assert_allclose(mixture(sizes, 0.5), root / root.sum())
    np.testing.assert_allclose(mixture(sizes, 1.0), np.array(sizes) / sum(sizes))
    np.testing.assert_allclose(mixture([5, 0, 9], 0.0), [0.5, 0, 0.5])
    assert mixture([10**9, 1], 1000.0).tolist() == [1.0, 0.0]  # no power overflows


def test_shares_on_two_levels_are_products_of_mixtures() -> None:
    shares = nested_mixture([[900, 100], [0, 0], [1000]], 0.5, 0.5)
    np.testing.assert_allclose(shares, [*(mixture([900, 100], 0.5) / 2), 0, 0, 0.5])
    np.testing.assert_allclose(nested_mixture([[4, 1], [3]], 1.0, 1.0), mixture([4, 1, 3], 1.0))


def test_small_corpora_are_raised_by_whole_passes_and_a_part(large: Split, tiny: Split) -> None:
    order = drawn([large, tiny], seed=0, alpha=0.5, limit=60, block=400)
    share = mixture([large.tokens, tiny.tokens], 0.5)[1]
    expected = share * (large.tokens + tiny.tokens)
    assert expected > 2 * tiny.tokens, "the case must be one with whole passes"
    totals = []
    for epoch in range(30):
        units = Counter()
        total = 0
        for block in range(order.blocks):
            for document in documents(order, epoch, block):
                if document.index >= large.documents:
                    tokens = tuple(np.concatenate(document.sentences).tolist())
                    units[document.index, tokens] += 1
                    total += len(tokens)
        assert max(units.values()) - min(units.values()) <= 1
        assert min(units.values()) == int(expected // tiny.tokens)
        assert abs(total - expected) <= 60
        totals.append(total)
    assert np.mean(totals) == pytest.approx(expected, rel=0.05)
    plain = drawn([large, tiny], seed=0, alpha=1.0, limit=60, block=400)
    read = sum(len(s) for b in range(plain.blocks) for d in documents(plain, 0, b) for s in d.sentences)
    assert read == large.tokens + tiny.tokens


def test_documents_of_a_mixture_have_different_numbers(large: Split, tiny: Split) -> None:
    order = drawn([large, tiny], seed=0, alpha=1.0, limit=60, block=10**6)
    assert {d.index for d in documents(order, 0, 0)} == set(range(large.documents + tiny.documents))


def test_other_tokenizers_cannot_be_mixed(functions: ModuleType, large: Split, tmp_path: Path) -> None:
    other = make(tmp_path / "c", 10, 3, Tokenizer.train(["some other words"], 100)).split("train")
    with pytest.raises(UnmaskError, match="built with different tokenizers"):
        stream(functions, large, other)


def test_too_small_a_corpus_is_told(large: Split) -> None:
    nothing = load(large, sample=lambda documents, length, rng: [], corrupt=untouched, length=LENGTH, rows=4)
    with pytest.raises(UnmaskError, match="has no row"):
        next(nothing.batches())


def test_blocks_without_rows_are_passed_over(large: Split) -> None:
    def sometimes(documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        return whole(documents, length, rng) if rng.random() < 0.3 else []

    options = {"sample": sometimes, "corrupt": untouched, "length": 60, "rows": 2}
    steps = list(islice(load(large, **options).batches(), 25))
    same_steps(steps[11:], list(islice(load(large, **options).batches(steps[10].position), 14)))


def test_an_empty_split_is_told(functions: ModuleType, tmp_path: Path, large: Split) -> None:
    tokenizer = Corpus(large.folder).tokenizer
    empty = build([TextDocument("w1 w2.", "x")], tmp_path / "c", tokenizer=tokenizer).split("heldout")
    with pytest.raises(UnmaskError, match="no text to train on"):
        stream(functions, empty)
    assert fixed([empty], sample=functions.sample, corrupt=functions.corrupt, length=LENGTH, rows=4) == []


@pytest.mark.parametrize(
    "position",
    [
        {},
        {"epoch": 0, "block": 0},
        {"epoch": 0, "block": 10_000, "row": 0},
        {"epoch": 0, "block": 0, "row": 10_000},
        {"epoch": 0, "block": -1, "row": 0},
        {"epoch": 0, "block": 0, "row": "1"},
    ],
)
def test_a_foreign_position_is_told(functions: ModuleType, large: Split, position: dict) -> None:
    with pytest.raises(UnmaskError, match="does not belong to these data"):
        next(stream(functions, large).batches(position))


@pytest.mark.parametrize("options", [{"rows": 0}, {"workers": -1}, {"seed": -1}])
def test_numbers_without_sense_are_refused(functions: ModuleType, large: Split, options: dict) -> None:
    with pytest.raises(UnmaskError):
        stream(functions, large, **options)


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_the_sampler_arrive(functions: ModuleType, large: Split, workers: int) -> None:
    options = {"corrupt": functions.corrupt, "length": LENGTH, "rows": 4, "workers": workers}
    broken = load(large, sample=functions.fail, **options)
    with pytest.raises(ValueError, match="broken sampler"):
        next(broken.batches())


def test_a_dead_worker_is_told(functions: ModuleType, large: Split) -> None:
    dying = load(large, sample=functions.die, corrupt=functions.corrupt, length=LENGTH, rows=4, workers=1)
    with pytest.raises(UnmaskError, match="worker process ended"):
        next(dying.batches())


KILLED = """
    import multiprocessing, os, signal, sys
    from pathlib import Path
    from unmask.data.text.corpus import Corpus
    from unmask.data.loader import EqualRows
    from unmask.data.text.stream import stream

    if __name__ == "__main__":
        sys.path.insert(0, sys.argv[1])
        import stream_callables as f

        split = Corpus(sys.argv[2]).split("train")
        parts = {"sample": f.sample, "corrupt": f.corrupt, "length": 32}
        steps = stream([split], **parts, cut=EqualRows(4), workers=2).batches()
        next(steps)
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_their_parent(functions: ModuleType, large: Split, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    arguments = [sys.executable, script, Path(functions.__file__).parent, large.folder]
    with (tmp_path / "workers").open("w") as written:  # a pipe would wait for the workers, too
        ended = subprocess.run(arguments, stdout=written, check=False)
    workers = [int(number) for number in (tmp_path / "workers").read_text().split()]
    assert ended.returncode == -signal.SIGKILL
    assert len(workers) == 2
    deadline = time.monotonic() + 20
    while any(map(running, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(running, workers))


def running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"  # ended, though nobody may have asked for its status


def test_ids_beyond_the_vocabulary_are_told(large: Split) -> None:
    def beyond(documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        return [Example(np.array([large.vocabulary]))]

    wrong = load(large, sample=beyond, corrupt=untouched, length=LENGTH, rows=1)
    with pytest.raises(UnmaskError, match=f"has the id {large.vocabulary}"):
        next(wrong.batches())


def test_a_closed_stream_leaves_no_thread(functions: ModuleType, large: Split) -> None:
    before = threading.active_count()
    steps = stream(functions, large).batches()
    next(steps)
    steps.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_fixed_batches_are_always_the_same(functions: ModuleType, large: Split) -> None:
    def batches(**options: int) -> list[Batch]:
        return fixed([large], sample=functions.sample, corrupt=functions.corrupt, length=LENGTH, rows=8, **options)

    every = batches()
    assert {batch.tokens.shape[0] for batch in every[:-1]} == {8}
    assert sorted({v for b in every for v in b.targets["document"].values.tolist()}) == list(range(large.documents))
    for one, two in zip(every, batches(), strict=True):
        same(one, two)
    some = batches(limit_rows=11)
    assert [batch.tokens.shape[0] for batch in some] == [8, 3]
    same(some[0], every[0])
    assert not torch.equal(batches(seed=1)[0].tokens, every[0].tokens)
