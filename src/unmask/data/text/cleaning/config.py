"""The settings of a pipeline: what is read, how it is cleaned, and where its tasks run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unmask.config import Config
from unmask.errors import UnmaskError

MODEL = "https://dl.fbaipublicfiles.com/fasttext/supervised-models/lid.176.bin"
"""The model of 176 languages of fastText, which FineWeb uses."""

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


@dataclass(frozen=True, kw_only=True)
class Filters(Config):
    """Which documents are kept, and what is replaced in them; the order is that of FineWeb (Penedo et al. 2024).

    extract             whether HTML (WARC files, .html, .htm) is reduced to its main text, by trafilatura
    extract_seconds     longest time for one page; a page that takes longer is dropped
    languages           languages to keep, by the labels of the model, such as en,fr; none keeps all
    language_model      fastText model that recognises languages (a file), for --languages
    language_score      smallest probability of a language to keep
    gopher_repetition   whether documents that repeat lines, paragraphs or n-grams are dropped (Rae et al. 2021)
    gopher_quality      whether documents of unusual length, words or symbols are dropped (Rae et al. 2021)
    stop_words          --gopher-quality keeps documents with two of these words; none for a language without a list
    c4                  whether lines of boilerplate and documents with fewer than five sentences are dropped (Raffel et
                        al. 2020); lines without a full stop are kept, as in FineWeb
    fineweb             whether documents that look like lists or repeat characters are dropped (Penedo et al. 2024)
    pii                 whether e-mail addresses and public IP addresses are replaced by one of each
    """

    extract: bool = True
    extract_seconds: float = 10.0
    languages: tuple[str, ...] = ()
    language_model: str | None = None
    language_score: float = 0.65
    gopher_repetition: bool = True
    gopher_quality: bool = True
    stop_words: tuple[str, ...] = STOP_WORDS
    c4: bool = True
    fineweb: bool = True
    pii: bool = True


@dataclass(frozen=True, kw_only=True)
class MinHash(Config):
    """Near-duplicates, by MinHash (Broder 1997): one document of each group is kept. Two documents that share a part s
    of their n-grams are found with the probability 1 - (1 - s^hashes)^buckets.

    near_duplicates  whether they are dropped
    ngram            words of an n-gram
    buckets          groups of hashes; documents that agree in one group are near-duplicates
    hashes           hashes of a group
    hash_seed        seed of the hashes
    """

    near_duplicates: bool = True
    ngram: int = 5
    buckets: int = 14
    hashes: int = 8
    hash_seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Running(Config):
    """Where tasks run, and how many at once. The result does not depend on it.

    executor      local, slurm (datatrove submits jobs with sbatch) or ray
    tasks         parts that the documents are divided into, by whole files
    workers       tasks at once; none: as many as the machine has cores, or all on Slurm and Ray
    memory        GB of a task (Slurm, Ray)
    last_memory   GB of the stages that are one task: near-duplicates are put into groups, and parts merged (Slurm, Ray)
    hours         longest time of a task (Slurm)
    partition     partition of Slurm
    setup         command that each job of Slurm runs first, such as: source .venv/bin/activate
    ray           address of the cluster of Ray; local starts one on this machine
    """

    executor: Literal["local", "slurm", "ray"] = "local"
    tasks: int = 1
    workers: int | None = None
    memory: int = 4
    last_memory: int = 32
    hours: int = 24
    partition: str | None = None
    setup: str = ""
    ray: str = "auto"


@dataclass(frozen=True, kw_only=True)
class Pipeline(Config):
    """What is read, and what is written.

    data        files, folders or addresses: text, JSON lines, CSV, TSV, Parquet, HTML, WARC and WET
    per         what ends a document of a text file: blank-line, line or file
    column      column or key of the text in tables
    encoding    encoding of files that are not UTF-8 and have no byte order mark
    tokenizer   folder of a tokenizer (unmask corpus vocabulary); none: documents are written, but no corpus
    heldout     share of documents kept for evaluation, as in unmask corpus build
    """

    data: tuple[str, ...] = ()
    per: Literal["blank-line", "line", "file"] = "blank-line"
    column: str = "text"
    encoding: str | None = None
    tokenizer: str | None = None
    heldout: float = 0.02
    filters: Filters = field(default_factory=Filters)
    minhash: MinHash = field(default_factory=MinHash)
    running: Running = field(default_factory=Running)

    def __post_init__(self) -> None:
        """Raises UnmaskError for settings that no pipeline can have."""
        filters, minhash, running = self.filters, self.minhash, self.running
        numbers = {name: getattr(running, name) for name in ("tasks", "memory", "last_memory", "hours")}
        numbers |= {name: getattr(minhash, name) for name in ("ngram", "buckets", "hashes")}
        numbers["workers"] = 1 if running.workers is None else running.workers
        for name, value in numbers.items():
            if value < 1:
                raise UnmaskError(f"--{name.replace('_', '-')} must be at least 1, not {value}.")
        if filters.extract_seconds <= 0:
            raise UnmaskError(f"--extract-seconds must be positive, not {filters.extract_seconds:g}.")
        if filters.languages and not filters.language_model:
            raise UnmaskError(
                f"--languages needs a fastText model that recognises them: download {MODEL}, and give its path as "
                "--language-model lid.176.bin."
            )
        if filters.language_model and not filters.languages:
            raise UnmaskError("--language-model recognises languages: name those to keep, as in --languages en,fr.")
        if running.executor == "slurm" and not running.partition:
            raise UnmaskError("Slurm needs the name of a partition: add --partition NAME (sinfo lists them).")
