"""The stages of a pipeline, as lists of datatrove's steps, and the folder that the pipeline writes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.config import read_json
from unmask.data.files.parts import inputs_of
from unmask.data.files.remote import absolute, fetched, is_address
from unmask.data.text.cleaning.config import Filters, MinHash, Pipeline
from unmask.data.text.reading import InputFile, files
from unmask.errors import UnmaskError, needs
from unmask.files import write_text

SETTINGS = "pipeline.json"
RECORD = 4  # bytes of the number of a document beside its hashes
HASH = 8  # bytes of a hash
BUFFERS = 1 << 28  # bytes that a task of the stage `buckets` reads at once, of all its files together

EMAIL, ADDRESS = "email@example.com", "22.214.171.124"
"""One of each: datatrove's default takes turns, so that texts would depend on the tasks."""
FILTERED = (
    "Most documents were dropped; the filters are for pages of the web. Leave one out, such as --gopher-repetition no, "
    "and if a file of text is one document, use --per file."
)


@dataclass(frozen=True)
class Stage:
    """Steps that every task carries out, with the documents of one part.

    last    whether its only task holds what belongs to all documents, and needs more memory
    advice  a sentence for the case that it drops most documents
    """

    name: str
    tasks: int
    steps: Sequence[Any]
    last: bool = False
    advice: str = ""


@dataclass(frozen=True)
class Work:
    """A pipeline with its input files and its folder.

    inputs  checksum of the names and sizes of all files and of everything that changes documents
    out     absolute path or address of the folder: documents/, corpus/, logs/ and files between stages
    """

    config: Pipeline
    files: Sequence[InputFile]
    inputs: str
    out: Any

    @classmethod
    def of(cls, config: Pipeline, out: str | Path) -> Work:
        """Raises UnmaskError if an input does not exist, or if the folder holds another pipeline."""
        if not config.data:
            raise UnmaskError("There is no text to read: give files or folders with --data.")
        found = [InputFile(str(file.path), file.size, file.named) for file in files(config.data)]
        how = {**_reading(config), "filters": config.filters.to_dict(), "minhash": config.minhash.to_dict()}
        work = cls(config, found, inputs_of([(str(file.path), file.size) for file in found], how), absolute(out))
        work._compare()
        return work

    def _compare(self) -> None:
        path = self.out / SETTINGS
        if not path.exists():
            return
        with fetched(self.out) as folder:
            kept = read_json(folder / SETTINGS)
        before = Pipeline.from_dict(kept.get("config", {}))
        mine, others = _decisive(self.config), _decisive(before)
        if before.tokenizer is None:  # the documents are the same: their corpus may be added
            others |= {name: mine[name] for name in ("tokenizer", "heldout")}
        again = "give the same settings to continue it, delete it, or choose another --out"
        for name, value in mine.items():
            if others[name] != value:
                said = f"--{name.rpartition('.')[2].replace('_', '-')} {_said(others[name])}, not {_said(value)}"
                raise UnmaskError(f"{self.out} holds a pipeline with {said}: {again}.")
        if kept.get("inputs") != self.inputs:
            raise UnmaskError(f"{self.out} holds a pipeline of other input files, by their names and sizes: {again}.")

    def keep(self) -> None:
        """Write the settings into the folder, in the form of --config."""
        text = json.dumps({"config": self.config.to_dict(), "inputs": self.inputs}, indent=2) + "\n"
        if isinstance(self.out, Path):
            write_text(self.out / SETTINGS, text)
            return
        with tempfile.TemporaryDirectory(prefix="unmask-") as folder:
            path = Path(folder) / SETTINGS
            write_text(path, text)
            (self.out / SETTINGS).put(path)

    def at(self, name: str) -> str:
        """A folder of this pipeline."""
        return str(self.out / name)

    def stages(self) -> list[Stage]:
        """All stages, in order. Raises UnmaskError if datatrove or a package of its steps is not installed, or a
        language is not known."""
        try:
            return self._stages()
        except ImportError as error:  # the steps of datatrove name what they lack in a sentence
            missing = f"{error.name} is missing" if error.name else str(error).partition("\n")[0].rstrip(".")
            raise needs(f"Cleaning needs datatrove with its packages ({missing})", "processing") from None

    def _stages(self) -> list[Stage]:
        from unmask.data.text.cleaning import steps

        tasks, near = self.config.running.tasks, self.config.minhash.near_duplicates
        read = steps.Read(self.files, _reading(self.config))
        written = "cleaned" if near else "documents"
        cleaning = [read, *_filters(self.config.filters), steps.Write(self.at(written))]
        found = [Stage("clean", tasks, cleaning, advice=FILTERED)]
        if near:
            found += self._near_duplicates()
        if self.config.tokenizer is not None:
            settings = (self.config.tokenizer, self.inputs, self.config.heldout)
            again = steps.ReadAgain(self.at("documents"))
            found.append(Stage("tokens", tasks, [again, steps.Tokens(self.at("corpus"), *settings)]))
            found.append(Stage("merge", 1, [steps.Merge(self.at("corpus"))], last=True))
        return found

    def _near_duplicates(self) -> list[Stage]:
        from datatrove.pipeline.dedup import minhash

        from unmask.data.text.cleaning import steps

        own, tasks = self.config.minhash, self.config.running.tasks
        settings = minhash.MinhashConfig(own.ngram, own.buckets, own.hashes, own.hash_seed)
        signatures, buckets, removed = map(self.at, ("signatures", "buckets", "removed"))
        block = max(1024, BUFFERS // (signature_bytes(own) * tasks))  # not datatrove's 340 bytes
        read = steps.ReadAgain(self.at("cleaned"))
        sign = minhash.MinhashDedupSignature(signatures, settings, steps.Words())
        match = minhash.MinhashDedupBuckets(signatures, buckets, config=settings, lines_to_buffer=block)
        group = minhash.MinhashDedupCluster(buckets, removed, settings, lines_to_buffer=1 << 16)
        drop = minhash.MinhashDedupFilter(removed)
        return [
            Stage("signatures", tasks, [read, sign]),
            Stage("buckets", own.buckets, [match]),
            Stage("groups", 1, [group], last=True),
            Stage("filter", tasks, [read, drop, steps.Write(self.at("documents"))]),
        ]


def signature_bytes(minhash: MinHash) -> int:
    """Bytes of one bucket of the signature of a document."""
    return minhash.hashes * HASH + RECORD


def _filters(filters: Filters) -> list[Any]:
    """The steps between reading and writing documents."""
    from datatrove.pipeline import filters as theirs
    from datatrove.pipeline.formatters import PIIFormatter

    from unmask.data.text.cleaning import steps

    words = steps.Words()
    found: list[Any] = [steps.Extract(filters.extract_seconds)] if filters.extract else []
    if filters.language_model is not None:
        found.append(steps.Languages(filters.language_model, filters.languages, filters.language_score))
    if filters.gopher_repetition:
        found.append(theirs.GopherRepetitionFilter(language=words))
    if filters.gopher_quality:
        wanted = {"min_stop_words": 2 if filters.stop_words else None, "stop_words": list(filters.stop_words)}
        found.append(theirs.GopherQualityFilter(language=words, **wanted))
    if filters.c4:
        found.append(theirs.C4QualityFilter(filter_no_terminal_punct=False, language=words))
    if filters.fineweb:
        found.append(theirs.FineWebQualityFilter(language=words))
    if filters.pii:
        found.append(PIIFormatter(email_replacement=EMAIL, ip_replacement=ADDRESS))
    return found


def _reading(config: Pipeline) -> dict[str, Any]:
    return {"per": config.per, "column": config.column, "encoding": config.encoding}


def _decisive(config: Pipeline) -> dict[str, Any]:
    """The settings that files in the folder depend on, by name."""
    found = config.places() | {"data": tuple(one if is_address(one) else os.path.normpath(one) for one in config.data)}
    return {name: value for name, value in found.items() if name == "running.tasks" or "running." not in name}


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
