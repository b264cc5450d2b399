"""Corpora in parts: the same corpus for any number of parts, and what is wrong with a part is one sentence."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import fsspec.implementations.memory
import numpy as np
import pyarrow as arrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.cli import main
from unmask.cli.options import workers_for
from unmask.data.files import remote
from unmask.data.files.corpora import checksum_of
from unmask.data.files.parts import Share, parts_of
from unmask.data.text import corpus, merging, parts, reading, sampling, whole_words
from unmask.data.text.corpus import Corpus
from unmask.data.text.reading import TextDocument, TextStatistics, files
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

TEXT = "the quick brown fox jumps over a lazy dog while seven wizards mix odd potions near the bank"
WORDS = TEXT.split()
MADE_BEFORE = "26fa7a601f98c57c3bdb697d9e0328d05152d34d426ce030e28d558c5631bbf5"
"""SHA-256 of shards that version 0.2 made, before corpora were made of parts."""


def documents(count: int, seed: int = 0) -> list[TextDocument]:
    """Documents of 1 to 3 sentences; a third are copies, in other letters and with other spaces, and some are empty."""
    rng = random.Random(seed)
    found: list[TextDocument] = []
    for i in range(count):
        text = " ".join(f"{' '.join(rng.choices(WORDS, k=rng.randint(2, 6)))}." for _ in range(rng.randint(1, 3)))
        if found and rng.random() < 0.3:
            text = rng.choice(found).text.upper().replace(" ", "  ")
        found.append(TextDocument(rng.choice(["", "\u200b", *[text] * 12]), f"f{i * 4 // count}.txt:{i}"))
    return found


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return whole_words.train([" ".join(WORDS[:-3])], 100)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def in_parts(some: list[TextDocument], out: Path, tokenizer: Tokenizer, cuts: list[int], heldout: float = 0.1) -> Path:
    """Write documents in parts that end at `cuts`, without the merge."""
    bounds = [0, *sorted(cuts), len(some)]
    for i in range(len(bounds) - 1):
        share, mine = Share(i + 1, len(bounds) - 1), some[bounds[i] : bounds[i + 1]]
        corpus.build_part(mine, out, share, "texts", tokenizer=tokenizer, heldout=heldout, shard_tokens=200)
    return out


def test_the_shards_are_those_of_earlier_versions(tmp_path: Path, tokenizer: Tokenizer) -> None:
    corpus.build(documents(200), tmp_path / "c", tokenizer=tokenizer, heldout=0.1, shard_tokens=400)
    shards = {name: data.hex() for name, data in content(tmp_path / "c").items() if "-0" in name}
    assert len(shards) >= 12
    assert hashlib.sha256(json.dumps(shards).encode()).hexdigest() == MADE_BEFORE


@given(
    st.integers(0, 40),
    st.integers(0, 1000),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from([0.0, 0.02, 0.3, 0.999999]),
)
@settings(max_examples=8, deadline=None)
def test_any_division_gives_the_same_corpus(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: Tokenizer,
    count: int,
    seed: int,
    cuts: list[int],
    heldout: float,
) -> None:
    folder, some = tmp_path_factory.mktemp("any"), documents(count, seed)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in ((parts, "BLOCK", 100), (parts, "RECENT", 3), (merging, "AT_ONCE", 4)):
            patch.setattr(module, name, value)
        in_parts(some, folder / "parts", tokenizer, cuts, heldout)
        joined = outcome(folder / "parts", corpus.merge)
    how = {"tokenizer": tokenizer, "heldout": heldout, "shard_tokens": 200}
    assert joined == outcome(folder / "whole", lambda out: corpus.build(some, out, **how))


def outcome(folder: Path, make: Callable[[Path], object]) -> dict[str, bytes] | str:
    """The files of a corpus, or why there is none."""
    try:
        make(folder)
    except UnmaskError as error:
        return str(error)
    return content(folder)


@given(st.lists(st.integers(0, 60), max_size=200), st.integers(1, 50))
@settings(max_examples=30, deadline=None)
def test_copies_are_found_by_ranges(tmp_path_factory: pytest.TempPathFactory, values: list[int], at_once: int) -> None:
    class Digests:
        def __init__(self, some: list[int]) -> None:
            self.documents, self.some = len(some), [hashlib.md5(b"%d" % value).digest() for value in some]

        def digests(self) -> list[np.ndarray]:
            return [np.frombuffer(b"".join(self.some), parts.DIGEST)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "AT_ONCE", at_once)
        half = len(values) // 2
        folder = tmp_path_factory.mktemp("ranges")
        found = merging.first_ones([Digests(values[:half]), Digests(values[half:])], folder)  # type: ignore[list-item]
    assert found.tolist() == [value not in values[:i] for i, value in enumerate(values)]
    assert list(folder.iterdir()) == []


@given(st.integers(0, 60), st.integers(0, 1000), st.integers(0, 60), st.integers(1, 3000))
@settings(max_examples=40, deadline=None)
def test_the_sample_is_that_of_all_documents_and_fits(count: int, seed: int, cut: int, budget: int) -> None:
    texts = [document.text for document in documents(count, seed)]
    distinct: dict[bytes, str] = {}
    for text in texts:
        if text.split():
            distinct.setdefault(" ".join(text.casefold().split()).encode(), text)
    digests = {words: hashlib.blake2b(words, digest_size=16).digest() for words in distinct}
    smallest = sorted(distinct, key=lambda words: digests[words][8:])
    sizes = np.cumsum([len(words) for words in smallest])
    chosen = smallest[: max(1, int(np.count_nonzero(sizes <= budget)))]
    whole = sampling.Sample(budget).read(texts)
    assert list(whole) == [text for words, text in distinct.items() if words in chosen]
    one, two = (sampling.Sample(budget).read(half) for half in (texts[:cut], texts[cut:]))
    assert list(sampling.Sample(budget, min(one.bound, two.bound)).read([*one, *two])) == list(whole)


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 8))
def test_every_file_is_in_one_part(sizes: list[int], count: int) -> None:
    shares = [Share(number, count).of(sizes) for number in range(1, count + 1)]
    assert [i for share in shares for i in share] == list(range(len(sizes)))
    most = max((sum(sizes[i] for i in share) for share in shares), default=0)
    assert most <= sum(sizes) / count + max(sizes, default=0) + len(sizes)


def test_parts_read_what_is_read_at_once(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{i}.txt").write_text(f"Text {i} of many.\n\n" * (i + 1))
    (tmp_path / "in" / "bad.txt").write_bytes(b"\x89PNG and so on")
    (tmp_path / "blank.txt").write_text("\n\n")
    paths = [tmp_path / "blank.txt", tmp_path / "in", tmp_path / "in" / "3.txt"]
    how = {"per": "line", "column": "text", "encoding": None}
    whole = list(reading.documents(paths, per="line", statistics=TextStatistics()))
    for count in (1, 3, 9):
        files, statistics = reading.files(paths), TextStatistics()
        assert [file.named for file in files] == [True, *[False] * 6, True]
        shares = [Share(i, count).of([file.size for file in files]) for i in range(1, count + 1)]
        read = [list(reading.documents_of([files[i] for i in share], statistics, **how)) for share in shares]
        assert [document for part in read for document in part] == whole
        assert {Path(name).name for name in statistics.skipped} == {"bad.txt", "blank.txt"}


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from unmask.data.files import parts as files
    from unmask.data.text import building, corpus, merging
    from unmask.data.text.reading import TextDocument
    from unmask.data.text.tokenizer import Tokenizer

    def end(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    building.BATCH_CHARACTERS = 20
    work, at, out, tokenizer = sys.argv[1:]
    def documents():
        for i in range(30):
            if i == 20 and at == "documents":
                end()
            yield TextDocument(f"The quick brown fox. It jumps over {i}.", "x")
    if at == "seal":
        files.seal = corpus.seal = end
    if at == "ranges":
        merging.deal = end
    if work == "part":
        share = files.Share(1, 2)
        corpus.build_part(documents, Path(out), share, "texts", tokenizer=Tokenizer.load(tokenizer))
    else:
        corpus.merge(out)
"""


@pytest.mark.slow
def test_whatever_is_killed_is_made_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "t")
    out, some = tmp_path / "c", [TextDocument(f"The quick brown fox. It jumps over {i}.", "x") for i in range(40)]
    whole = corpus.build(some, tmp_path / "whole", tokenizer=tokenizer)
    corpus.build_part(some[30:], out, Share(2, 2), "texts", tokenizer=tokenizer)
    pending = [("part", "documents"), ("part", "seal"), ("merge", "ranges"), ("merge", "seal")]
    for work, at in pending:
        if work == "merge" and at == "ranges":
            corpus.build_part(some[:30], out, Share(1, 2), "texts", tokenizer=tokenizer)
        code = textwrap.dedent(KILLED)
        ended = subprocess.run([sys.executable, "-c", code, work, at, out, tmp_path / "t"], check=False)
        assert ended.returncode == -signal.SIGKILL
        assert not out.exists()
        if work == "part":
            with pytest.raises(UnmaskError, match=r"Part 1/2 of .* is missing: run its command, with --part 1/2\.$"):
                corpus.merge(out)
    corpus.merge(out)
    assert Corpus(out).checksum == whole.checksum
    assert {path.name for path in tmp_path.iterdir()} == {"t", "c", "c.parts", "whole"}


def test_a_complete_part_is_not_written_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    out = in_parts(documents(20), tmp_path / "c", tokenizer, [10])

    def again(**changes: object) -> None:
        fixed: dict = {"tokenizer": tokenizer, "heldout": 0.1, "shard_tokens": 200, "inputs": "texts"} | changes
        corpus.build_part(iter([]), out, Share(1, 2), fixed.pop("inputs"), **fixed)

    before = content(parts_of(out) / "00001-of-00002")
    again()
    assert content(parts_of(out) / "00001-of-00002") == before
    with pytest.raises(UnmaskError, match=r"exists already, with other options: delete it"):
        again(heldout=0.2)
    with pytest.raises(UnmaskError, match=r"other input files, spellings of their paths or options of reading"):
        again(inputs="others")
    with pytest.raises(UnmaskError, match=r"other vocabularies"):
        again(tokenizer=whole_words.train([" ".join(WORDS)], 100))


VOCABULARY = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")


def test_a_damaged_part_is_noticed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    out = in_parts([*documents(20), *[TextDocument("one text", "x")] * 2], tmp_path / "c", tokenizer, [20])
    rng = np.random.default_rng(0)
    for path in sorted(parts_of(out).rglob("*.*")):
        original = path.read_bytes()
        flipped = bytearray(original)
        flipped[rng.integers(len(flipped))] ^= 1 << int(rng.integers(8))
        for damaged in (bytes(flipped), original[: len(original) // 2], None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            if path.name == "only.json" or (
                path.parent.name[4] == "2" and path.name in VOCABULARY
            ):  # no merge reads it
                with pytest.raises(UnmaskError, match=path.name):
                    corpus.build_part([], out, Share(2, 2), "texts", tokenizer=tokenizer, heldout=0.1, shard_tokens=200)
            else:
                missing = damaged is None and path.name == "manifest.json"
                with pytest.raises(UnmaskError, match="^Part ./2 of" if missing else path.name):
                    corpus.merge(out)
            assert not out.exists()
        path.write_bytes(original)
    assert corpus.merge(out)["splits"]["train"]["documents"]


def lie(folder: Path, change: Callable[[dict], None]) -> None:
    """Change the manifest of a part so that its own checksum is right again."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["checksum"]
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"checksum": checksum_of(manifest)}))


LIES: dict[str, tuple[Callable[[dict], None], str]] = {
    "fewer documents": (lambda m: m.update(documents=3), "manifest.json"),
    "a shard less": (lambda m: m["shards"].pop(), "manifest.json"),
    "a shard twice": (lambda m: m["shards"].append(m["shards"][0]), "manifest.json"),
    "another part": (lambda m: m.update(number=1), "manifest.json"),
    "another vocabulary": (lambda m: m.update(fingerprint="0"), "different vocabularies"),
    "other options": (lambda m: m["options"].update(heldout=0.5), "different options"),
    "other inputs": (lambda m: m.update(inputs="x"), "different input files"),
    "a file elsewhere": (lambda m: m["shards"][0].update(name="../00001-of-00002/part-00000"), "manifest.json"),
    "no files": (lambda m: m.update(files={}), "manifest.json"),
    "a future version": (lambda m: m.update(version=9), "is not a part that this version"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_manifest_that_lies_is_noticed(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(parts, "BLOCK", 30)
    out, (change, said) = in_parts(documents(20), tmp_path / "c", tokenizer, [10]), LIES[name]
    lie(parts_of(out) / "00002-of-00002", change)
    with pytest.raises(UnmaskError, match=said):
        corpus.merge(out)
    assert not out.exists()


def test_parts_of_two_divisions_are_not_mixed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    out = in_parts(documents(9), tmp_path / "c", tokenizer, [3, 6])
    shutil.copytree(parts_of(out) / "00001-of-00003", parts_of(out) / "00001-of-00002")
    with pytest.raises(UnmaskError, match=r"has parts of 2 and of 3: delete those that are not wanted"):
        corpus.merge(out)
    with pytest.raises(UnmaskError, match=r"There are no parts in .*none\.parts"):
        corpus.merge(tmp_path / "none")


@pytest.mark.parametrize("wrong", ["0/4", "5/4", "1", "a/b", "-1/2", "1/0"])
def test_a_part_is_one_of_a_number(wrong: str) -> None:
    with pytest.raises(UnmaskError, match="must be I/N with I from 1 to N, such as 2/8"):
        Share.read(wrong)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("texts")
    for i in range(5):
        Path(f"texts/{i}.txt").write_text("\n\n".join(d.text for d in documents(20, i)))
    size = ["--vocabulary-size", "60"]
    main(["corpus", "vocabulary", "texts", "--out", "v", *size])
    for share in ("1/2", "2/2"):
        main(["corpus", "vocabulary", "texts", "--out", "w", "--part", share, *size])
    main(["corpus", "merge", "w"])
    assert content(Path("v")) == content(Path("w"))
    capsys.readouterr()
    for share in ("2/2", "1/2"):
        main(["corpus", "build", "texts", "--tokenizer", "v", "--out", "c", "--part", share])
    said = capsys.readouterr().out
    assert "1 of 2 parts is complete." in said
    assert "2 of 2 parts are complete.\nNext: unmask corpus merge c" in said
    with pytest.raises(SystemExit):
        main(["corpus", "merge", "c.parts"])
    assert "c.parts holds parts: give the folder of their corpus, " in capsys.readouterr().err
    main(["corpus", "build", "texts", "--tokenizer", "v", "--out", "many", "--part", "1/9"])
    assert "It has no file: there are fewer files than parts" in capsys.readouterr().out
    main(["corpus", "merge", "c"])
    assert "Next: unmask pretrain bert-mini --corpus c" in capsys.readouterr().out
    main(["corpus", "build", "texts", "--tokenizer", "v", "--out", "whole"])
    assert content(Path("c")) == content(Path("whole"))
    main(["corpus", "build", "texts", "--tokenizer", "v", "--out", "two", "--workers", "2"])
    assert content(Path("c")) == content(Path("two"))
    main(["corpus", "build", "texts", "--out", "learned", *size])
    assert content(Path("v")).items() <= content(Path("learned")).items()


def test_much_text_is_cut_by_a_process_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("x" * 100)
    found = files([tmp_path])
    monkeypatch.setattr("unmask.cli.options.MUCH", 101)
    assert workers_for(found) == 1
    monkeypatch.setattr("unmask.cli.options.MUCH", 100)
    for cores, expected in ((1, 1), (3, 3), (64, 4)):
        monkeypatch.setattr("unmask.data.cores.cores", lambda cores=cores: cores)
        assert workers_for(found) == expected


# Addresses


def test_addresses_are_read_and_written_like_folders(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    store = fsspec.filesystem("memory")
    some = tmp_path / "texts"
    (some / "inner").mkdir(parents=True)
    for i in range(4):
        text = "\n\n".join(d.text for d in documents(20, i)).encode()
        (some / f"{i}.txt").write_bytes(text)
        (some / "inner" / f"{i}.txt.gz").write_bytes(gzip.compress(text + b"\n\nMore."))
    (some / "bad.txt").write_bytes(b"\x89PNG and so on")
    arrow.parquet.write_table(arrow.table({"text": [d.text for d in documents(20, 9)]}), some / "t.parquet")
    store.put(f"{some}/", "/in/", recursive=True)
    monkeypatch.setattr(remote, "BLOCK", 50)
    address = [*reading.documents("memory://in", statistics=TextStatistics())]
    local = [*reading.documents(some, statistics=TextStatistics())]
    assert [d.text for d in address] == [d.text for d in local]
    assert address[0].source.startswith("memory://in/0.txt:")
    tokenizer.save(tmp_path / "t")
    main(["corpus", "vocabulary", "memory://in", "--out", "memory://v", "--vocabulary-size", "60"])
    for share in ("1/2", "2/2"):
        main(["corpus", "build", "memory://in", "--tokenizer", "memory://v", "--out", "memory://c", "--part", share])
    main(["corpus", "merge", "memory://c"])
    assert "Corpus memory://c: vocabulary of" in capsys.readouterr().out
    main(["corpus", "build", "memory://in", "--tokenizer", "memory://v", "--out", "memory://d", "--part", "1/1"])
    main(["corpus", "merge", "memory://d"])
    files = [{file["name"].rpartition("/")[2]: store.cat(file["name"]) for file in store.ls(name)} for name in "cd"]
    assert files[0] == files[1]
    store.get("/c/", str(tmp_path / "back"), recursive=True)
    assert Corpus(tmp_path / "back").split("train").documents
    with pytest.raises(UnmaskError, match="memory://c already holds a corpus"):
        corpus.merge("memory://c")
    path = "/c.parts/00002-of-00002/part-00000.tokens"
    store.pipe(path, store.cat(path)[:-2])
    store.rm("/c", recursive=True)
    with pytest.raises(UnmaskError, match=r"memory://c.parts/00002-of-00002/part-00000.tokens has [\d,]+ bytes, but"):
        corpus.merge("memory://c")
    store.rm("/", recursive=True)


def test_what_a_store_fails_to_do_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.txt").write_text("One text.")
    store, waits, faults = fsspec.filesystem("memory"), list[float](), [4]
    cat = store.cat_file

    def unsteady(path: str, **options: int) -> bytes:
        """An error, or half of what was asked for, as often as `faults` says."""
        faults[0] -= 1
        if faults[0] >= 0 and faults[0] % 2:
            raise TimeoutError("no answer")
        return cat(path, **options)[: 5 if faults[0] >= 0 else None]

    def cut_short(local: str, path: str) -> None:
        faults[0] -= 1
        store.pipe(path, Path(local).read_bytes()[: -1 if faults[0] >= 0 else None])

    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr(store, "cat_file", unsteady)
    store.pipe("/some/a.txt", b"One text.\n\nAnother one.")
    found = [document.text for document in reading.documents("memory://some", statistics=TextStatistics())]
    assert found == ["One text.", "Another one."]
    assert waits == [1, 2, 4, 8]
    faults[0] = 100
    said = r"memory://some/a.txt could not be read in 6 tries: (no answer|\d+ bytes came where 23 were asked for)\.$"
    with pytest.raises(UnmaskError, match=said):  # it is not passed over
        list(reading.documents("memory://some", statistics=TextStatistics()))
    with pytest.raises(UnmaskError, match="There is no file or folder memory://nowhere"):
        reading.documents("memory://nowhere")
    with pytest.raises(UnmaskError, match="strange://x cannot be opened: Protocol not known: strange"):
        reading.documents("strange://x")
    monkeypatch.setattr(store, "put_file", cut_short)
    waits.clear()
    for faults[0], enough in ((2, True), (100, False)):
        told = pytest.raises(UnmaskError, match="written in 6 tries: 8 of 9 bytes arrived")
        with contextlib.nullcontext() if enough else told:
            remote.Address("memory://some/b.txt").put(tmp_path / "b.txt")
    assert waits == [1, 2, 1, 2, 4, 8, 16]
    store.rm("/", recursive=True)
