"""Corpora: built whole or not at all, read back as written, damage always noticed; and the check of raw text."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.files import corpora
from unmask.data.files.corpora import Local
from unmask.data.text import building, inspect
from unmask.data.text import reading as text
from unmask.data.text.corpus import Corpus, Split, build
from unmask.data.text.reading import TextDocument
from unmask.data.text.shards import Shard, Writer, token_type
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files import describe

TEXT = "the quick brown fox jumps over a lazy dog while seven wizards mix odd potions near the bank"
WORDS = TEXT.split()


def documents(count: int = 120, seed: int = 0) -> list[TextDocument]:
    """Different documents of 1 to 8 sentences of 3 to 12 words."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        sentences = [" ".join(rng.choice(WORDS, rng.integers(3, 13))) for _ in range(rng.integers(1, 9))]
        found.append(
            TextDocument(" ".join(f"{s.capitalize()}." for s in sentences) + f" Number {i}.", f"f{i % 3}.txt:{i}")
        )
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of several shards."""
    folder = tmp_path_factory.mktemp("corpora") / "built"
    build(documents(), folder, vocabulary_size=200, heldout=0.1, shard_tokens=1_000)
    return folder


@pytest.fixture(scope="module")
def tokenizer(built: Path) -> Tokenizer:
    return Corpus(built).tokenizer


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    """A corpus that a test may damage."""
    return Path(shutil.copytree(built, tmp_path / "copy"))


def rewrite_manifest(folder: Path, change: Callable[[dict], None]) -> None:
    """Change a manifest so that its own checksum is right again."""
    from unmask.data.files.corpora import checksum_of

    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["checksum"]
    change(manifest)
    manifest["checksum"] = checksum_of(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_what_is_read_is_what_was_written(built: Path) -> None:
    corpus = Corpus(built)
    expected = {}
    for document in documents():
        ids = [x.tolist() for x in corpus.tokenizer.ids(text.sentences(document.text))]
        expected[json.dumps(ids)] = document
    found = []
    for name in ("train", "heldout"):
        split = corpus.split(name)
        read = list(split)
        assert [document.index for document in read] == list(range(split.documents))
        assert sum(len(d.sentences) for d in read) == split.sentences
        assert sum(len(s) for d in read for s in d.sentences) == split.tokens
        found += [json.dumps([s.tolist() for s in d.sentences]) for d in read]
    assert sorted(found) == sorted(expected)
    assert len(corpus.manifest["splits"]["train"]["shards"]) > 2


def test_the_manifest_states_the_facts(built: Path) -> None:
    from scipy.stats import entropy

    corpus = Corpus(built)
    manifest = corpus.manifest
    tokens = np.concatenate([s for d in corpus.split("train") for s in d.sentences])
    assert manifest["unigram_entropy"] == pytest.approx(entropy(np.bincount(tokens)))
    assert corpus.split("train").unigrams().tolist() == np.bincount(tokens, minlength=corpus.tokenizer.size).tolist()
    assert f"train    {corpus.split('train').documents} documents" in corpus.summary()
    assert manifest["unknown_rate"] == pytest.approx((tokens == corpus.tokenizer.unknown).mean())
    assert manifest["fingerprint"] == corpus.tokenizer.fingerprint
    assert manifest["sources"] == {"f0.txt": 40, "f1.txt": 40, "f2.txt": 40}
    assert set(manifest["files"]) | {"manifest.json"} == {path.name for path in built.iterdir()}
    assert manifest["options"]["vocabulary_size"] == 200
    size = sum(path.stat().st_size for path in built.glob("*.tokens"))
    assert size == 2 * (corpus.split("train").tokens + corpus.split("heldout").tokens)


def test_ids_are_uint16_until_the_vocabulary_is_too_large(tmp_path: Path) -> None:
    assert token_type(65_536) == np.uint16
    assert token_type(65_537) == np.uint32
    writer = Writer(tmp_path, "train", 70_000, 10)
    writer.add(np.array([1, 69_999, 3]), np.array([1, 2]))
    writer.close()
    shard = Shard(Local(tmp_path), "train-00000", 70_000, {})
    assert [s.tolist() for s in shard.read(0, 0, 2, 0, 3).sentences] == [[1], [69_999, 3]]
    assert not shard.tokens.flags.writeable


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=12),
    st.integers(1, 50),
    st.integers(1, 200),
)
@settings(max_examples=40, deadline=None)
def test_units_cover_every_token_once_and_are_cut_at_sentences(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[int]], limit: int, shard_limit: int
) -> None:
    folder = tmp_path_factory.mktemp("units")
    writer = Writer(folder, "train", 65_536, shard_limit)
    token = 0
    for document in lengths:
        writer.add(np.arange(token, token + sum(document)), np.array(document))
        token += sum(document)
    writer.close()
    facts = {"vocabulary": 65_536, "fingerprint": "", "pad": 0, "files": writer.files}
    manifest = {"splits": {"train": writer.facts()}, **facts}
    split = Split(Local(folder), "train", manifest)
    units = split.units(limit)
    assert units["tokens"].max() <= limit
    pieces = [split.read(unit) for unit in units]
    tokens = [s.tolist() for piece in pieces for s in piece.sentences]
    assert [x for s in tokens for x in s] == list(range(token)), "every token once, in order"
    assert all(tokens)
    ends = np.cumsum([n for document in lengths for n in document])
    owner = np.repeat(np.arange(len(lengths)), [sum(document) for document in lengths])
    for unit, piece in zip(units, pieces, strict=True):
        flat = np.concatenate(piece.sentences)
        assert len(flat) == unit["tokens"]
        assert {piece.index} == set(owner[flat].tolist()), "a piece is of one document"
        inner = [s[-1] + 1 for s in piece.sentences[:-1]]
        assert set(inner) <= set(ends.tolist())
        last = int(flat[-1]) + 1
        if last not in ends:  # cut within a sentence: only where that one alone is too long
            sentence = int(np.searchsorted(ends, last))
            assert ends[sentence] - (ends[sentence - 1] if sentence else 0) > limit
    for i, document in enumerate(lengths):
        mine = units[units["document"] == i]["tokens"]
        assert len(mine) == 1 or sum(document) > limit


def test_long_documents_are_cut_into_even_pieces(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "train", 100, 10_000)
    writer.add(np.zeros(1010), np.full(101, 10))
    writer.close()
    units = Shard(Local(tmp_path), "train-00000", 100, {}).units(1_000, 0)
    assert units["tokens"].tolist() == [510, 500]


def test_copies_and_empty_documents_are_dropped(tmp_path: Path) -> None:
    twice = [*documents(20), TextDocument(" \n\t", "empty"), *documents(20)]
    twice.append(TextDocument(documents(20)[0].text.upper().replace(" ", "\n"), "shouted"))
    corpus = build(twice, tmp_path / "c", vocabulary_size=150)
    assert sum(corpus.split(name).documents for name in ("train", "heldout")) == 20
    assert (corpus.manifest["duplicates"], corpus.manifest["empty"]) == (21, 1)
    assert "  21 duplicates dropped\n  1 empty document dropped\n" in corpus.summary()


def test_the_same_document_is_held_out_in_every_corpus(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def held(some: list[TextDocument], name: str) -> set[str]:
        corpus = build(some, tmp_path / name, tokenizer=tokenizer, heldout=0.2)
        return {tokenizer.decode(np.concatenate(d.sentences)) for d in corpus.split("heldout")}

    some, all_ = held(documents(60), "some"), held(documents(120)[::-1], "all")
    assert 8 <= len(some) <= 20
    assert some < all_


@pytest.mark.parametrize(("count", "expected"), [(2, 1), (7, 1), (8, 2), (20, 2)])
def test_small_corpora_hold_something_out(tmp_path: Path, tokenizer: Tokenizer, count: int, expected: int) -> None:
    corpus = build(documents(count), tmp_path / "c", tokenizer=tokenizer, heldout=1e-9)
    train = count - expected
    assert f"  train    {train} document{'s' if train > 1 else ''}, " in corpus.summary()
    assert corpus.split("heldout").documents == expected
    assert corpus.split("train").documents == count - expected
    assert build(documents(count), tmp_path / "n", tokenizer=tokenizer, heldout=0).split("heldout").documents == 0


@pytest.mark.parametrize(("share", "held"), [(1e-9, 1), (0.02, 1), (0.2, 8), (0.75, 30), (0, 0)])
def test_of_one_document_the_last_sentences_are_held_out(tmp_path: Path, share: float, held: int) -> None:
    kinds = ["big", "small", "old", "new", "red"]
    some = [f"This is a {kinds[i % 5]} sentence of {['one', 'two', 'three'][i % 3]}." for i in range(40)]
    corpus = build([TextDocument(" ".join(some), "a:1")], tmp_path / "c", vocabulary_size=150, heldout=share)
    assert (corpus.split("train").sentences, corpus.split("heldout").sentences) == (40 - held, held)
    assert (corpus.split("train").documents, corpus.split("heldout").documents) == (1, int(held > 0))
    assert corpus.manifest["divided"] == held
    assert ("held out of the only document: its end" in corpus.summary()) is (held > 0)
    for split, wanted in (("train", some[: 40 - held]), ("heldout", some[40 - held :])):
        found = [corpus.tokenizer.decode(s) for document in corpus.split(split) for s in document.sentences]
        assert [text.replace(" ", "") for text in found] == [text.lower().replace(" ", "") for text in wanted]


def test_one_sentence_is_not_divided(tmp_path: Path) -> None:
    corpus = build([TextDocument("One sentence alone and alone.", "a:1")] * 2, tmp_path / "c", vocabulary_size=40)
    assert (corpus.split("train").documents, corpus.split("heldout").documents) == (1, 0)


@pytest.mark.parametrize("count", [2, 9])
def test_something_is_left_to_train_on(tmp_path: Path, tokenizer: Tokenizer, count: int) -> None:
    """Chance may hold out every document of a small corpus, and no later document changes that."""
    share = 1 - 1e-9
    corpus = build(documents(count), tmp_path / "c", vocabulary_size=150, heldout=share)
    assert (corpus.split("train").documents, corpus.split("heldout").documents) == (1, count - 1)
    text = corpus.tokenizer.decode(np.concatenate(next(iter(corpus.split("train"))).sentences))
    assert text.endswith(f"number {count - 1}.")


@given(
    st.integers(0, 14).filter(lambda count: count != 1), st.sampled_from([0.0, 0.02, 0.2, 0.5, 0.9]), st.integers(0, 9)
)
def test_documents_are_dealt_by_their_hashes_alone(count: int, share: float, seed: int) -> None:
    """Held-out ones are those of small hashes, in the order of reading, but for the last one of all where none is left
    to train on, and those of the smallest where they are too few."""
    some = documents(count, seed)
    digests = [hashlib.blake2b(d.text.casefold().encode(), digest_size=16).digest() for d in some]
    below = [d for d, digest in zip(some, digests, strict=True) if int.from_bytes(digest[:8], "big") < share * 2**64]
    dealt = list(building.deal(zip(digests, some, strict=True), share))
    held = [d for d, split in dealt if split == "heldout"]
    assert sorted(d.source for d, _ in dealt) == sorted(d.source for d in some)
    if len(below) == count:
        assert held == below[:-1]
    else:
        assert held[: len(below)] == below
        assert len(held) == max(len(below), 0 if not share or count < 2 else 2 if count >= 8 else 1)


def test_the_vocabulary_is_learned_from_the_training_part_alone(tmp_path: Path) -> None:
    some = [TextDocument(f"{'abcdefghij'[i % 10] * 4} {chr(0xAC00 + i)}{i}.", "x") for i in range(60)]
    corpus = build(some, tmp_path / "c", vocabulary_size=2_000, heldout=0.3)
    known = set(corpus.tokenizer.vocabulary)
    held = [i for i in range(60) if any(chr(0xAC00 + i) in piece for piece in known)]
    assert len(held) == corpus.split("train").documents < 60


def test_processes_write_the_same_files(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 1_000)
    one = build(documents(), tmp_path / "one", tokenizer=tokenizer)
    two = build(documents(), tmp_path / "two", tokenizer=tokenizer, workers=2)
    assert one.manifest == two.manifest


def test_documents_that_can_be_read_once_need_a_tokenizer(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UnmaskError, match="reads its documents twice"):
        build(iter(documents(5)), tmp_path / "c")
    assert build(iter(documents(5)), tmp_path / "c", tokenizer=tokenizer).split("train").documents == 4
    assert build(lambda: iter(documents(5)), tmp_path / "d", vocabulary_size=120).split("train").documents == 4


def test_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "BATCH_CHARACTERS", 1_000)
    calls: list[tuple[str, int, int | None]] = []
    build(documents(50), tmp_path / "c", vocabulary_size=150, progress=lambda *call: calls.append(call))
    assert calls[-2:] == [("documents", 50, 50), ("shards", 50, 50)]
    assert [c[1] for c in calls if c[0] == "documents"] == sorted({c[1] for c in calls if c[0] == "documents"})
    assert calls[0] == ("vocabulary", 50, 50)


@pytest.mark.parametrize("some", [[], [TextDocument("  ", "x")], [TextDocument("\u200b", "x")]])
def test_no_text_is_an_error_that_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer, some: list) -> None:
    with pytest.raises(UnmaskError, match="no text"):
        build(some, tmp_path / "c", tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_an_impossible_share_is_refused(tmp_path: Path, share: float) -> None:
    with pytest.raises(UnmaskError, match="share of held-out"):
        build(documents(3), tmp_path / "c", heldout=share)


def test_nothing_is_overwritten(tmp_path: Path, built: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UnmaskError, match="already holds a corpus"):
        build(documents(3), built)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UnmaskError, match="already exists and is not empty"):
        build(documents(3), tmp_path / "mine")
    with pytest.raises(UnmaskError, match="already exists"):
        build(documents(3), tmp_path / "mine" / "letter.txt")
    (tmp_path / "empty").mkdir()
    assert build(documents(3), tmp_path / "empty", tokenizer=tokenizer).split("train").documents == 2


def test_what_no_folder_can_replace_is_refused_before_the_work(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link, or a volume of a container: it failed after the last document, and took the corpus with it."""
    link, volume, texts = tmp_path / "link", tmp_path / "volume", iter(documents(5))
    volume.mkdir()
    link.symlink_to(volume)
    with pytest.raises(UnmaskError, match=r"link is a link or a mount.*a folder within it"):
        build(texts, link, tokenizer=tokenizer)
    monkeypatch.setattr("os.path.ismount", lambda path: path == volume)
    with pytest.raises(UnmaskError, match="volume is a link or a mount"):
        build(texts, volume, tokenizer=tokenizer)
    assert len(list(texts)) == 5
    assert build(documents(5), link / "within", tokenizer=tokenizer).split("train").documents


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def some() -> Iterator[TextDocument]:
        yield from documents(40)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(some, tmp_path / "c", tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from unmask.data.text import building
    from unmask.data.text.corpus import build
    from unmask.data.text.reading import TextDocument
    from unmask.data.text.tokenizer import Tokenizer

    building.BATCH_CHARACTERS = 100

    def documents():
        for i in range(200):
            yield TextDocument(f"The quick brown fox number {i}. It jumps.", "x")
        os.kill(os.getpid(), signal.SIGKILL)

    build(documents, Path(sys.argv[1]), tokenizer=Tokenizer.load(sys.argv[2]))
"""


def test_a_killed_build_is_no_corpus_and_is_cleaned_up(built: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    out = tmp_path / "c"
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), out, built], check=False)
    assert ended.returncode == -signal.SIGKILL
    left = list(tmp_path.iterdir())
    assert len(left) == 1
    assert any(left[0].rglob("*.tokens"))
    assert not out.exists()
    with pytest.raises(UnmaskError, match="is not a corpus"):
        Corpus(left[0])
    alive = left[0].with_name(left[0].name.rsplit("-", 1)[0] + f"-{os.getppid()}")
    alive.mkdir()
    build(documents(3), out, tokenizer=tokenizer)
    assert sorted(tmp_path.iterdir()) == sorted([alive, out])


def test_a_full_disk_is_one_sentence(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")

    def full(path: Path, mode: str, **options: int) -> object:
        return open("/dev/full" if path.suffix == ".sentences" else path, mode, **options)

    monkeypatch.setattr(corpora, "open", full, raising=False)
    with pytest.raises(UnmaskError, match=r"sentences could not be written: No space left on device\.$"):
        build(documents(10), tmp_path / "c", tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UnmaskError, match=r"could not be written: Not a directory\.$"):
        build(documents(3), tmp_path / "file" / "c", tokenizer=tokenizer)


def test_a_flipped_bit_anywhere_is_noticed(copy: Path) -> None:
    rng = np.random.default_rng(0)
    for path in sorted(copy.iterdir()):
        original = path.read_bytes()
        for _ in range(40 if path.name == "manifest.json" else 3):
            damaged = bytearray(original)
            damaged[rng.integers(len(damaged))] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            with pytest.raises(UnmaskError, match=path.name):
                Corpus(copy)
        path.write_bytes(original)
    Corpus(copy)


def test_every_file_must_be_there_and_whole(copy: Path) -> None:
    for path in sorted(copy.iterdir()):
        original = path.read_bytes()
        path.write_bytes(original[:-2])  # the last byte of the manifest is a mere line end
        with pytest.raises(UnmaskError, match=path.name):
            Corpus(copy, verify=path.name == "manifest.json")  # sizes are compared even where checksums are not
        path.unlink()
        with pytest.raises(UnmaskError, match=path.name):
            Corpus(copy, verify=False)
        path.write_bytes(original)
    Corpus(copy)


def test_ids_beyond_the_vocabulary_are_noticed(copy: Path) -> None:
    path = copy / "train-00001.tokens"
    ids = np.fromfile(path, "<u2")
    ids[7] = 60_000
    ids.tofile(path)
    rewrite_manifest(copy, lambda m: m["files"].update({path.name: describe(path)}))
    with pytest.raises(UnmaskError, match=r"train-00001.tokens has the id 60000"):
        Corpus(copy)


def test_bounds_that_do_not_fit_are_noticed(copy: Path) -> None:
    path = copy / "train-00000.sentences"
    path.write_bytes(path.read_bytes()[:-4])
    rewrite_manifest(copy, lambda m: m["files"].update({path.name: describe(path)}))
    with pytest.raises(UnmaskError, match=r"train-00000.tokens does not match its sentence and document bounds"):
        Corpus(copy)


def test_another_tokenizer_is_noticed(copy: Path) -> None:
    Tokenizer.train(["entirely different words"], 100).save(copy)
    names = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
    rewrite_manifest(copy, lambda m: m["files"].update({n: describe(copy / n) for n in names}))
    with pytest.raises(UnmaskError, match="not the one that the corpus was built with"):
        _ = Corpus(copy).tokenizer


def test_a_manifest_cannot_name_files_elsewhere(copy: Path) -> None:
    rewrite_manifest(copy, lambda m: m["files"].update({"../built": {"bytes": 1, "sha256": ""}}))
    with pytest.raises(UnmaskError, match="damaged at"):
        Corpus(copy)


def test_what_is_not_a_corpus_is_told(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="There is no corpus"):
        Corpus(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(UnmaskError, match="does not describe a corpus"):
        Corpus(tmp_path)
    rewrite_manifest(copy, lambda m: m.update(version=99))
    with pytest.raises(UnmaskError, match="version 99"):
        Corpus(copy)


def test_an_unknown_split_is_told(built: Path) -> None:
    with pytest.raises(UnmaskError, match="did you mean 'heldout'"):
        Corpus(built).split("held-out")


# The check of raw text


def test_check_counts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(
        "One two three. Four five.\n\nOne  TWO three.  FOUR five.\n\n한국어 문장.".encode()
    )
    (tmp_path / "b.txt").write_bytes("Caf\u00e9 \u202etrick and\x07 bell \ufffd and\x00 end here.\n".encode())
    statistics = text.TextStatistics()
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    report = inspect.check(text.documents(paths, statistics=statistics), statistics)
    assert report.documents == 4
    assert report.words == 5 + 5 + 2 + 8
    assert report.duplicate_documents == 1
    assert report.duplicate_sentences == 2
    assert report.document_lengths.quantiles[0] == 2
    assert report.document_lengths.quantiles[-1] == 8
    assert report.document_lengths.mean == pytest.approx(20 / 4)
    assert list(report.scripts) == ["Latin", "Hangul"]
    assert sum(report.scripts.values()) == pytest.approx(1)
    assert report.controls["U+202E right-to-left override"] == 1
    assert report.controls["U+0007"] == 1
    assert report.controls["U+FFFD replacement character"] == 1
    assert report.files[str(paths[1])].nul == 1
    assert report.leakage is None
    assert json.loads(json.dumps(report.to_dict()))["documents"] == 4
    page = inspect.render(report)
    assert "b.txt: NUL characters that were removed: 1" in page
    assert "1 of 4 documents (25.0%)" in page


def test_check_finds_leakage() -> None:
    here = [
        TextDocument("A line of four words\nsomething else that is said", "x"),
        TextDocument("whole other text", "y"),
    ]
    test = [
        TextDocument("Whole OTHER  text", "t"),
        TextDocument("a line of four words\nthis line is not there", "t"),
        TextDocument("short line", "t"),
    ]
    report = inspect.check(here, against=test)
    assert report.leakage == inspect.Leakage(documents=3, documents_found=1, lines=2, lines_found=1)
    assert "1 of 3 documents (33.3%) and 1 of 2 lines (50.0%)" in inspect.render(report)


def test_check_of_nothing_is_all_zero() -> None:
    report = inspect.check([], against=[])
    assert (report.documents, report.words, report.scripts) == (0, 0, {})
    assert "no letters" in inspect.render(report)


def test_shards_without_tokens_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    def read() -> list[TextDocument]:
        pytest.fail("the documents were read")

    with pytest.raises(UnmaskError, match="--shard-tokens must be at least 1, not 0"):
        build(read, tmp_path / "c", shard_tokens=0)
    assert not list(tmp_path.iterdir())
