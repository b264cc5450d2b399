"""Corpus: a folder of token shards with a manifest of checksums; functions to build, open and read one."""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unmask.data.files.corpora import TEXTS, VERIFY_BELOW, Folder, checksum_of, folder_of, read_manifest, seal
from unmask.data.files.parts import TOKENS, Part, Share, all_parts, parts_of, write_part
from unmask.data.files.remote import absolute, local, workspace
from unmask.data.text import merging, parts
from unmask.data.text.building import Progress, refuse_share, refuse_single_pass, refuse_size
from unmask.data.text.parts import TextPart
from unmask.data.text.reading import TextDocument
from unmask.data.text.sampling import Sample
from unmask.data.text.shards import SUFFIXES, UNIT, Shard
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import check
from unmask.types import Document

VERSION = 1
CHUNK = 1 << 20  # tokens that are counted at once
Documents = Iterable[TextDocument] | Callable[[], Iterable[TextDocument]]


class Learn(Protocol):
    """A function that trains a tokenizer of at most `size` pieces on texts, which it reads once."""

    def __call__(self, texts: Iterable[str], size: int, *, cased: bool, strip_accents: bool) -> Tokenizer: ...


class Corpus:
    """An open corpus. `Corpus(folder).split("train").units(4096)` lists its pieces of documents.

    home       the local folder of its small files: the corpus itself, or one in the cache of an address
    manifest   the content of manifest.json: counts, checksums, options, sources, unknown_rate, unigram_entropy (nats)
    notes      sentences on what could not be read: none
    """

    notes: Sequence[str] = ()

    def __init__(self, folder: Path | str | Folder, *, verify: bool | None = None) -> None:
        """Open a folder that `build` wrote. Of a corpus at an address, only the small files are fetched here.

        verify  whether to compare checksums and check all ids; None: if the corpus is below 1 GiB. Sizes are always
                compared, and the checksums of an address whenever a file is fetched

        Raises UnmaskError, which names the file that is missing, damaged or inconsistent.
        """
        self.folder = Path(folder) if isinstance(folder, str) else folder
        place = folder_of(folder)
        self.home = home_of(place)
        try:
            self.manifest = read_manifest(self.home, TEXTS, VERSION)
            if verify is None:
                verify = place.near and self._bytes() < VERIFY_BELOW
            if place.near:
                check(self.home, self.manifest["files"], "Build the corpus again.", checksums=verify)
        except OSError as error:
            raise UnmaskError(f"{error.filename or folder} cannot be read: {error.strerror or error}.") from None
        self._splits = {name: Split(place, name, self.manifest) for name in self.manifest["splits"]}
        if verify:
            for split in self._splits.values():
                split.check_ids()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the ids. Raises UnmaskError if it is not the one that the corpus was built with."""
        tokenizer = Tokenizer.load(self.home)
        if tokenizer.fingerprint != self.manifest["fingerprint"] or tokenizer.size != self.manifest["vocabulary"]:
            raise UnmaskError(
                f"The tokenizer in {self.folder} is not the one that the corpus was built with; build it again."
            )
        return tokenizer

    @property
    def processor(self) -> Tokenizer:
        """The processor of texts: the tokenizer."""
        return self.tokenizer

    def split(self, name: str) -> Split:
        """The split "train" or "heldout". Raises UnmaskError for another name."""
        if name not in self._splits:
            raise unknown(f"split of {self.folder}", name, self._splits)
        return self._splits[name]

    @property
    def checksum(self) -> str:
        """SHA-256 of the content of the corpus, which does not depend on its path."""
        return checksum_of(self.manifest["files"])

    def summary(self) -> str:
        """The size and the statistics of the corpus, in a few lines."""
        return summary(self.folder, self.manifest)

    def _bytes(self) -> int:
        return _bytes(self.manifest)


def summary(folder: object, facts: dict[str, Any]) -> str:
    """The size and the statistics of a corpus by its manifest, in a few lines."""
    lines = [f"Corpus {folder}: vocabulary of {facts['vocabulary']:,} pieces, {_bytes(facts) / 1e6:,.1f} MB."]
    for name, split in facts["splits"].items():
        counts = [plural(split[f"{noun}s"], noun) for noun in ("document", "sentence", "token")]
        lines.append(f"  {name:8} {', '.join(counts)}")
    dropped = {"duplicate": facts["duplicates"], "empty document": facts["empty"]}
    lines += [f"  {plural(count, noun)} dropped" for noun, count in dropped.items() if count]
    if facts.get("divided"):
        lines.append(f"  held out of the only document: its end, {plural(facts['divided'], 'sentence')}")
    lines.append(
        f"  {facts['unknown_rate']:.2%} of the tokens unknown, unigram entropy {facts['unigram_entropy']:.2f} nats"
    )
    return "\n".join(lines)


def _bytes(facts: dict[str, Any]) -> int:
    return sum(fact["bytes"] for fact in facts["files"].values())


class Split:
    """One part of a corpus: "train" or "heldout", or every n-th shard of it. Its files are memory-mapped, or read
    through a cache, and it is cheap to pickle.

    documents, sentences, tokens   counts
    vocabulary, fingerprint        size and fingerprint of the tokenizer
    bytes                          size of each shard
    near                           whether all shards are on this machine
    """

    def __init__(
        self, folder: Folder, name: str, manifest: dict[str, Any], partition: tuple[int, int] = (0, 1)
    ) -> None:
        """partition: (number from 0, count) of the shards, as `partition` takes them."""
        shards = manifest["splits"][name]["shards"][partition[0] :: partition[1]]
        self.folder, self.name, self._manifest, self._partition = folder, name, manifest, partition
        self.near = folder.near
        self.documents, self.sentences, self.tokens = (
            sum(shard[kind] for shard in shards) for kind in ("documents", "sentences", "tokens")
        )
        self.vocabulary: int = manifest["vocabulary"]
        self.fingerprint: str = manifest["fingerprint"]
        self.pad: int = manifest["pad"]
        self._shards = [Shard(folder, shard["name"], self.vocabulary, manifest["files"]) for shard in shards]
        self.bytes = [shard.bytes for shard in self._shards]
        self._origins = list(accumulate((len(shard.documents) for shard in self._shards), initial=0))

    def partition(self, number: int, count: int) -> Split:
        """Every `count`-th shard, from shard `number` on. Raises UnmaskError if there are fewer shards."""
        if len(self._shards) < count:
            raise UnmaskError(
                f"{self.folder} has {plural(len(self._shards), 'shard')} of training text, too few for {count} "
                "partitions: use fewer, or build the corpus with a smaller --shard-tokens."
            )
        return Split(self.folder, self.name, self._manifest, (number, count))

    def shard_of(self, documents: np.ndarray) -> np.ndarray:
        """The number of the shard of each document."""
        return np.searchsorted(self._origins, documents, side="right") - 1

    def units(self, limit: int) -> np.ndarray:
        """[U] UNIT: the documents in order; those of more than `limit` tokens are cut between sentences.

        The pieces of a long document are about equally long; a sentence of more than `limit` tokens is cut too.
        """
        if limit < 1:
            raise UnmaskError(f"Pieces of documents need at least one token, not {limit}.")
        parts = [shard.units(limit, origin) for shard, origin in zip(self._shards, self._origins, strict=False)]
        return np.concatenate(parts) if parts else np.empty(0, UNIT)

    def pieces(self, limit: int, origin: int = 0) -> Pieces:
        """The pieces of `units` as a source; `origin` is the number of the first document."""
        return Pieces(self, limit, origin)

    def read(self, unit: Sequence[int]) -> Document:
        """Read the piece of one row of `units`; its sentences are read-only views [T] of uint16 or uint32."""
        document, first, end, begin, tokens = map(int, unit)
        shard = self._shards[bisect_right(self._origins, document) - 1]
        return shard.read(document, first, end, begin, tokens)

    def __iter__(self) -> Iterator[Document]:
        """The whole documents, in order."""
        for unit in self.units(np.iinfo(np.int64).max).tolist():
            yield self.read(unit)

    @property
    def single(self) -> int:
        """The number of documents of one sentence, estimated from `_sample`."""
        found = sum(int((np.diff(shard.documents[:], prepend=0) == 1).sum()) for shard in self._sample)
        return found * self.documents // max(1, sum(len(shard.documents) for shard in self._sample))

    @property
    def _sample(self) -> list[Shard]:
        """The shards that statistics read: all, or the first one at an address, so that no other is fetched."""
        return self._shards if self.near else self._shards[:1]

    def unigrams(self) -> np.ndarray:
        """[V] int64: the count of each id in `_sample`."""
        counts = np.zeros(self.vocabulary, np.int64)
        for shard in self._sample:
            for begin in range(0, len(shard.tokens), CHUNK):
                counts += np.bincount(shard.tokens[begin : begin + CHUNK], minlength=self.vocabulary)
        return counts

    def check_ids(self) -> None:
        """Raises UnmaskError, which names the first file with an id beyond the vocabulary."""
        for shard in self._shards:
            largest = int(shard.tokens[:].max())
            if largest >= self.vocabulary:
                raise UnmaskError(
                    f"{shard.path} has the id {largest}, but the vocabulary has {self.vocabulary} ids; build it again."
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.folder, self.name, self._partition)


class Pieces:
    """A split as a source: a unit is a document, or a piece of at most `limit` tokens of a longer one. Its cost is its
    number of tokens."""

    def __init__(self, split: Split, limit: int, origin: int) -> None:
        self.split, self.origin, self.table = split, origin, split.units(limit)
        self.cost = self.table["tokens"].astype(np.int64)

    @property
    def files(self) -> np.ndarray:
        """[U] the number of the shard of each piece."""
        return self.split.shard_of(self.table["document"])

    def read(self, unit: int) -> Document:
        """Read a piece; `index` is the number of its document."""
        document = self.split.read(self.table[unit].item())
        return Document(document.sentences, self.origin + document.index) if self.origin else document


def build(
    documents: Documents,
    out: Path | str,
    *,
    tokenizer: Tokenizer | None = None,
    learn: Learn = Tokenizer.train,
    vocabulary_size: int = 8192,
    cased: bool = False,
    strip_accents: bool = False,
    heldout: float = 0.02,
    workers: int = 1,
    shard_tokens: int = 50_000_000,
    progress: Progress | None = None,
) -> Corpus:
    """Write a corpus folder from documents: learn the vocabulary, then convert sentences to ids.

    documents      a list, or a function that returns a new iterator; read twice, or once with a given tokenizer
    out            the folder, which must be empty or not exist; it appears only when it is complete
    tokenizer      the tokenizer; None: one of `vocabulary_size` pieces is learned
    learn          the function that trains the tokenizer: WordPiece by default, or for instance `characters.train`
    heldout        share of documents, chosen by the hash of their text, in the split "heldout" (of a single document,
                   its last sentences); the vocabulary is not learned from them
    workers        number of processes that encode; 1 encodes in a background thread, with the tokenizer's threads
    shard_tokens   approximate number of tokens of a file
    progress       called with (name of the stage, number done, total number or None)

    Copies of documents are dropped. Memory is bounded, apart from 8 bytes a sentence of the open shard: it is the merge
    of one part. Raises UnmaskError if there is no text or `out` cannot be written.
    """
    out = local(out)
    refuse_share(heldout)
    refuse_size(shard_tokens)
    if tokenizer is None:
        refuse_single_pass(documents)
    report = progress or _silent
    options: dict[str, Any] = {"tokenizer": "learned" if tokenizer is None else "given"}
    options |= {"vocabulary_size": vocabulary_size, "cased": cased, "strip_accents": strip_accents}
    with workspace(out) as folder:
        total = None
        if tokenizer is None:
            sample = Sample()
            texts = sample.training((document.text for document in _fresh(documents)), heldout, report)
            tokenizer = learn(texts, vocabulary_size, cased=cased, strip_accents=strip_accents)
            total = sample.documents
        else:
            options |= _given(tokenizer)
        options |= {"heldout": heldout, "shard_tokens": shard_tokens}
        facts = {"inputs": None, "fingerprint": tokenizer.fingerprint, "options": options}
        place = folder / "part"
        write = partial(_tokens, documents, tokenizer, workers, lambda done: report("documents", done, total))
        _merge([write_part(place, Share(1, 1), TOKENS, facts, write)], folder, report)
        shutil.rmtree(place)
    return Corpus(out)


def build_part(
    documents: Documents,
    out: Path | str,
    share: Share,
    inputs: str,
    *,
    tokenizer: Tokenizer,
    heldout: float = 0.02,
    workers: int = 1,
    shard_tokens: int = 50_000_000,
    progress: Progress | None = None,
) -> Part:
    """Write one part of a corpus, unless it is complete already; `merge` joins all parts.

    documents  of this part, read once
    out        the folder of the corpus; its parts are in a folder beside it
    inputs     what all parts are made of, as `inputs_of` returns it

    The other arguments are those of `build`, and the same for all parts. Raises UnmaskError if a complete part is
    damaged, or was made from other inputs or with other options.
    """
    refuse_share(heldout)
    refuse_size(shard_tokens)
    report = progress or _silent
    options = {"tokenizer": "given", **_given(tokenizer), "heldout": heldout, "shard_tokens": shard_tokens}
    facts = {"inputs": inputs, "fingerprint": tokenizer.fingerprint, "options": options}
    write = partial(_tokens, documents, tokenizer, workers, lambda done: report("documents", done, None))
    return write_part(parts_of(absolute(out)) / share.suffix, share, TOKENS, facts, write)


def merge(out: Path | str, *, progress: Progress | None = None) -> dict[str, Any]:
    """Join the parts of a corpus that `build_part` wrote beside `out`, and return its manifest. The corpus is the same
    for any number of parts.

    Raises UnmaskError if a part is missing or damaged, if the parts do not belong together, and if there is no text.
    """
    place = absolute(out)
    found = all_parts(place, TOKENS)
    with workspace(place) as folder:
        _merge(found, folder, progress or _silent)
        return read_manifest(folder, TEXTS, VERSION)


def _tokens(
    documents: Documents, tokenizer: Tokenizer, workers: int, report: Callable[[int], None], folder: Path
) -> dict[str, Any]:
    return parts.write(_fresh(documents), folder, tokenizer, workers if workers > 1 else 0, report)


def _merge(found: Sequence[Part], folder: Path, report: Progress) -> None:
    options = found[0].manifest["options"]
    how = {name: options[name] for name in ("heldout", "shard_tokens")}
    facts = merging.merge([TextPart(part) for part in found], folder, **how, report=partial(report, "shards"))
    seal(folder, TEXTS, VERSION, {**facts, "options": options})


def _given(tokenizer: Tokenizer) -> dict[str, Any]:
    return {"vocabulary_size": tokenizer.size, "cased": tokenizer.cased, "strip_accents": None}


def home_of(folder: Folder) -> Path:
    """The local folder of the manifest and the tokenizer of a corpus."""
    return folder.home(lambda name: name.endswith(SUFFIXES))


def _reopen(folder: Folder, name: str, partition: tuple[int, int]) -> Split:
    return Split(folder, name, read_manifest(home_of(folder), TEXTS, VERSION), partition)


def _fresh(documents: Documents) -> Iterable[TextDocument]:
    return documents() if callable(documents) else documents


def _silent(stage: str, done: int, total: int | None) -> None:
    pass
