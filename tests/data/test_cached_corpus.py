"""A corpus at an address: the rows are those of the folder, and only the shards of a process are fetched."""

from __future__ import annotations

import copy
import hashlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from unmask.data.files.cached import Cache, Cached, fetch, through_cache
from unmask.data.files.remote import Address
from unmask.data.loader import EqualRows
from unmask.data.text import corpus, stream, whole_words
from unmask.data.text.corpus import Corpus, Split
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.objectives import registry
from unmask.runs.pretraining import rows as pretraining_rows
from unmask.runs.pretraining.config import Rows
from unmask.runs.pretraining.rows import PretrainingRows
from unmask.train import distributed

TEXT = "the quick brown fox jumps over a lazy dog while seven wizards mix odd potions near the bank"
WORDS = TEXT.split()
SHARDS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of about SHARDS shards for training."""
    rng, out = random.Random(0), tmp_path_factory.mktemp("remote") / "c"
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(5, 40))) + "." for _ in range(700)]
    documents = [TextDocument(text, str(i)) for i, text in enumerate(texts)]
    tokenizer = whole_words.train([" ".join(WORDS)], 100)
    tokens = sum(len(text.split()) for text in texts)
    corpus.build(documents, out, tokenizer=tokenizer, heldout=0.05, shard_tokens=tokens // SHARDS)
    return out


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    store = fsspec.filesystem("memory")
    store.put(f"{folder}/", "/remote/", recursive=True)
    yield "memory://remote"
    store.rm("/", recursive=True)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are fetched from now on."""
    found: list[str] = []
    read = Address.read_range

    def recorded(self: Address, begin: int, end: int) -> bytes:
        found.append(self.name)
        return read(self, begin, end)

    monkeypatch.setattr(Address, "read_range", recorded)
    return found


def opened(url: str, cache: Path, size: int = 1 << 20) -> Corpus:
    return Corpus(Cached(url, Cache(cache, size)))


def steps(split: Split, count: int, **options: Any) -> list[np.ndarray]:
    objective = registry.default().build(Corpus(split.folder).tokenizer)
    how = {"sample": objective.sample, "corrupt": objective.corrupt, "length": 16, **options}
    loader = stream.stream([split], cut=EqualRows(64), **how)
    batches = loader.batches()
    return [next(batches).batches[0].tokens.numpy() for _ in range(count)]


def test_the_rows_are_those_of_the_folder(folder: Path, url: str, tmp_path: Path) -> None:
    there, here = opened(url, tmp_path / "cache"), Corpus(folder)
    assert there.checksum == here.checksum
    assert there.tokenizer.fingerprint == here.tokenizer.fingerprint
    for name in ("train", "heldout"):
        a, b = there.split(name), here.split(name)
        assert (a.documents, a.sentences, a.tokens, a.bytes) == (b.documents, b.sentences, b.tokens, b.bytes)
        assert (a.units(9) == b.units(9)).all()
    found, expected = steps(there.split("train"), 5), steps(here.split("train"), 5)
    assert all((a == b).all() for a, b in zip(found, expected, strict=True))
    part = copy.copy(there.split("train").partition(1, 3))  # as for a worker process
    assert [d.index for d in part] == list(range(part.documents))
    assert part.tokens == sum(shard["tokens"] for shard in here.manifest["splits"]["train"]["shards"][1::3])


def test_the_cache_stays_within_its_bound(folder: Path, url: str, tmp_path: Path, fetched: list[str]) -> None:
    largest = max(path.stat().st_size for path in folder.glob("train-*"))
    split = opened(url, tmp_path, 4 * largest).split("train")
    want = [np.concatenate(document.sentences) for document in Corpus(folder).split("train")]
    for document, expected in zip(split, want, strict=True):
        assert (np.concatenate(document.sentences) == expected).all()
        kept = sum(path.stat().st_size for path in tmp_path.iterdir() if len(path.name) == 64)
        assert 0 < kept <= 4 * largest
    again = fetched.count("train-00000.tokens")
    next(iter(split))
    assert fetched.count("train-00000.tokens") == again + 1, "it was the first to go"
    next(iter(split))
    assert fetched.count("train-00000.tokens") == again + 1
    with pytest.raises(UnmaskError, match=r"train-0000\d.\w+ has [\d.e-]+ GB, and the cache 1e-08: give"):
        opened(url, tmp_path / "small", 10).split("train").units(9)


def test_a_file_is_fetched_once_for_all(url: str, folder: Path, tmp_path: Path, fetched: list[str]) -> None:
    name, cache = "train-00001.tokens", Cache(tmp_path, 1 << 20)
    fact = Corpus(folder).manifest["files"][name]

    def read() -> None:
        with cache.open(Address(url) / name, fact) as file:
            assert hashlib.sha256(file.read()).hexdigest() == fact["sha256"]

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetched == [name]


def test_a_damaged_shard_is_refused_and_not_kept(url: str, tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    content = bytearray(store.cat("/remote/train-00002.tokens"))
    content[0] ^= 1
    store.pipe("/remote/train-00002.tokens", bytes(content))
    split = opened(url, tmp_path).split("train")
    units = split.units(9)
    kept = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(UnmaskError, match=r"remote/train-00002.tokens does not match its checksum, and was not kept"):
        split.read(units[split.shard_of(units["document"]) == 2][0].item())
    assert {path.name for path in tmp_path.iterdir()} == kept
    store.rm("/remote/train-00003.tokens")
    with pytest.raises(UnmaskError, match=r"train-00003.tokens is missing although manifest.json lists it"):
        split.read(units[split.shard_of(units["document"]) == 3][0].item())


def test_a_store_that_fails_is_tried_again(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, waits, faults = fsspec.filesystem("memory"), list[float](), [3]
    cat = store.cat_file

    def unsteady(path: str, **options: int) -> bytes:
        """An error, or half of what was asked for, as often as `faults` says."""
        faults[0] -= 1
        if faults[0] >= 0 and faults[0] % 2:
            raise TimeoutError("no answer")
        content = cat(path, **options)
        return content[: len(content) // 2] if faults[0] >= 0 else content

    split = opened(url, tmp_path).split("train")
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr(store, "cat_file", unsteady)
    assert split.units(9)["tokens"].sum() == split.tokens
    assert waits == [1, 2, 4]
    faults[0] = 100
    with pytest.raises(UnmaskError, match=r"train-0000\d.tokens could not be read in 6 tries: "):
        split.unigrams()


@pytest.mark.parametrize("window", [1, 2, 4])
def test_about_a_window_of_shards_is_read_at_a_time(folder: Path, window: int) -> None:
    split = Corpus(folder).split("train")
    count = len(split.bytes)
    order = stream.drawn([split], limit=64, seed=1, alpha=1.0, block=300, window=window)
    pieces, places = order.sources[0], [order.epoch(epoch) for epoch in range(3)]
    for units, _ in places:
        assert sorted(units) == list(range(len(pieces.cost))), "every piece once"
        shards = pieces.files[units]
        for i in range(len(units)):
            begun = set(shards[: i + 1]) & set(shards[i:])
            assert len(begun) <= window + 1
        if window > 1:  # mixed: neighbours are often of different shards
            assert (np.diff(shards) != 0).sum() > 2 * count
    assert not np.array_equal(places[0][0], places[1][0])


def test_the_sources_of_a_mixture_stay_mixed() -> None:
    class Files:
        def __init__(self, count: int) -> None:
            self.files = np.repeat(np.arange(count), 50)
            self.cost = np.ones(50 * count, np.int64)

        def read(self, unit: int) -> int:
            return unit

    order = stream.SeededBlocks([Files(30), Files(10)], np.array([0.5, 0.5]), seed=0, block=100, window=4)
    units, _ = order.epoch(0)
    quarters = [np.mean(part >= 1500) for part in np.array_split(units, 4)]
    assert np.allclose(quarters, 0.5, atol=0.12)
    copies = np.unique(units[units >= 1500], return_counts=True)[1]
    assert set(copies) == {2}


# Partitions


def data_of(splits: list[Split], number: int, ranks: int, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Any:
    monkeypatch.setattr(distributed, "rank", lambda: number)
    monkeypatch.setattr(distributed, "ranks", lambda: ranks)
    monkeypatch.setattr(distributed, "ranks_here", lambda: ranks)
    objective = registry.default().build(Corpus(splits[0].folder).tokenizer)
    rows = Rows(**{"batch": 16, "partitions": 4, "heldout": 4, **fields})
    return PretrainingRows(objective, splits, [], rows, 16, 0)


def taken(data: Any, count: int, position: Any = None) -> tuple[list[list[bytes]], Any]:
    """The rows of `count` steps of a process, and the position after them."""
    found, batches = [], data.batches(position)
    for _ in range(count):
        micro, position = next(batches)
        found.append([row.tobytes() for batch in micro for row in batch.tokens.numpy()])
    return found, position


def test_steps_do_not_depend_on_the_processes_that_share_partitions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = [Corpus(folder).split("train")]
    whole, _ = taken(data_of(splits, 0, 1, monkeypatch), 30)
    assert len(whole[0]) == 16
    assert len(set(whole[0])) == 16
    position, done = None, 0
    for ranks in (2, 4, 1, 2):  # each continues from where the others were
        shares = [taken(data_of(splits, rank, ranks, monkeypatch), 5, position) for rank in range(ranks)]
        steps = [[row for rows, _ in shares for row in rows[i]] for i in range(5)]
        assert steps == whole[done : done + 5]
        gathered = [{str(part): place for part, place in own["partitions"].items()} for _, own in shares]
        monkeypatch.setattr(distributed, "gather_json", lambda own, all_of_them=gathered: all_of_them)
        position = data_of(splits, 0, ranks, monkeypatch).gathered(shares[0][1])
        done += 5
    with pytest.raises(UnmaskError, match="The run has 4 partitions, and continues only with as many"):
        taken(data_of(splits, 0, 1, monkeypatch, partitions=2), 1, position)
    micro = next(data_of(splits, 0, 2, monkeypatch, micro_batch=3).batches(None))[0]
    assert [len(batch.tokens) for batch in micro] == [3, 3, 2]


def test_a_process_fetches_its_own_shards_alone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[str]
) -> None:
    count = len(opened(url, tmp_path).split("train").bytes)
    for rank in range(2):
        split = opened(url, tmp_path / str(rank)).split("train")
        fetched.clear()
        taken(data_of([split], rank, 2, monkeypatch), 60)
        mine = {f"train-{i:05d}.tokens" for i in range(count) if i % 4 // 2 == rank}
        assert {name for name in fetched if name.endswith("tokens")} == mine
    fetched.clear()
    assert (split.unigrams() > 0).any()
    assert split.single == split.documents, "all documents have one sentence"
    assert {name.partition(".")[0] for name in fetched} <= {"train-00000"}


def test_what_cannot_be_shared_is_said(url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = [Corpus(folder).split("train")]
    with pytest.raises(UnmaskError, match="3 processes and a batch of 12 rows cannot have 4 partitions"):
        data_of(splits, 0, 3, monkeypatch, batch=12)
    with pytest.raises(UnmaskError, match="1 process and a batch of 16 rows cannot have 5 partitions"):
        data_of(splits, 0, 1, monkeypatch, partitions=5)
    with pytest.raises(UnmaskError, match=r"has \d+ shards of training text, too few for 16 partitions"):
        taken(data_of(splits, 0, 1, monkeypatch, partitions=16), 1)
    with pytest.raises(UnmaskError, match=r"--rows.shards must be at least 1 shard, not 0"):
        taken(data_of(splits, 0, 1, monkeypatch, shards=0), 1)
    remote = [opened(url, tmp_path).split("train")]
    with pytest.raises(UnmaskError, match=r"reads at a time have [\d.e-]+ GB, and the cache 1e-06: give it more"):
        data_of(remote, 0, 1, monkeypatch, cache_gb=1e-6)
    part = sum(sorted(remote[0].bytes[0::4])[-2:]) * 4.4
    data_of(remote, 0, 4, monkeypatch, cache_gb=part / 1e9, shards=1)
    with pytest.raises(UnmaskError, match="Only corpora of texts are read by shards"):
        pretraining_rows._check_shards([object()], Rows(shards=2), range(1))
    with pytest.raises(UnmaskError, match=r"--rows.cache-gb must be above 0, not 0"):
        through_cache(url, None, 0.0)
    with pytest.raises(UnmaskError, match=r"memory://nowhere is not a corpus: it has no manifest.json"):
        opened("memory://nowhere", tmp_path)
    with pytest.raises(UnmaskError, match="only corpora of texts are read: copy the folder to this machine"):
        Path(through_cache(url, str(tmp_path), 1.0))
    assert through_cache("corpora/mine", None, 0.0) == "corpora/mine"


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/bad/manifest.json", b'{"files": {"../../stolen": {"bytes": 1, "sha256": ""}}}')
    with pytest.raises(UnmaskError, match=r"memory://bad/manifest.json is damaged: it names files of other folders"):
        opened("memory://bad", tmp_path)
    store.pipe("/bad/manifest.json", b"{")
    with pytest.raises(UnmaskError, match=r"memory://bad/manifest.json does not describe a corpus, or is damaged"):
        opened("memory://bad", tmp_path)
    store.rm("/", recursive=True)
    with pytest.raises(UnmaskError, match="is missing although"):
        fetch(Address("memory://gone"), {"bytes": 1, "sha256": ""}, tmp_path / "file")
