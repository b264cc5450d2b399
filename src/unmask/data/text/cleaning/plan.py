"""What a pipeline needs, before it runs: tasks, memory, disk space and time, from the sizes of its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from unmask.data.text.cleaning.stages import BUFFERS, Stage, Work, signature_bytes
from unmask.errors import plural

SAMPLE = 1000  # documents from which the mean size is estimated
COMPRESSED = 3.0  # bytes of text for a byte of a compressed file: an assumption
SUFFIXES = (".gz", ".zst", ".parquet", ".pq")

# Measured: benchmarks/near_duplicates.py, and corpus_parts.py for tokens and merge (docs/scaling.md).
RATES = {"clean": 0.6e6, "signatures": 1.7e6, "filter": 10e6, "tokens": 2.4e6, "merge": 40e6}  # bytes a second and core
BUCKET_RATE, GROUP_RATE = 1.7e5, 1e5  # signatures, near-duplicates a second
BASE = 0.5e9  # bytes of a process with its libraries, and with a file that is read as a whole (`reading.HELD`)
GROUP_BYTES = 210  # of a document that has near-duplicates, in the stage `groups`


@dataclass(frozen=True)
class Needs:
    """What a stage needs: the memory of a task in bytes, and the seconds of all its tasks, `workers` at once."""

    stage: str
    tasks: int
    workers: int
    memory: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What all stages need, with sentences on what makes them slow. Bytes and documents are those of the input; `disk`
    is everything that the folder holds at the end."""

    size: float
    documents: int
    disk: float
    stages: Sequence[Needs]
    notes: Sequence[str]

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.stages)


def plan(work: Work, stages: Sequence[Stage], workers: int | None) -> Plan:
    """Estimates for files as large as those of `work`, if no document were dropped. Reads the first documents.

    workers  tasks that run at once; None: all
    """
    size = sum(file.size * (COMPRESSED if str(file.path).endswith(SUFFIXES) else 1) for file in work.files)
    documents = max(1, round(size / _mean_size(stages)))
    own, tasks = work.config.minhash, work.config.running.tasks
    signatures = documents * signature_bytes(own)  # of one bucket
    memory = {
        "groups": documents * GROUP_BYTES,
        "buckets": min(BUFFERS, signatures),
        "signatures": 2 * signatures / tasks,
    }
    seconds = {name: size / rate for name, rate in RATES.items()}
    seconds |= {"buckets": documents * own.buckets / BUCKET_RATE, "groups": documents / GROUP_RATE}
    needs = []
    for stage in stages:
        most = min(stage.tasks, workers or stage.tasks)
        busy = most if stage.name == "buckets" else min(most, max(1, len(work.files)))
        needs.append(Needs(stage.name, stage.tasks, most, BASE + memory.get(stage.name, 0), seconds[stage.name] / busy))
    names = {stage.name for stage in stages}
    disk = size / COMPRESSED * (1 + ("filter" in names)) + signatures * own.buckets * ("buckets" in names)
    disk += size * ("tokens" in names)  # parts and corpus, of two bytes for about four characters each
    return Plan(size, documents, disk, needs, list(_notes(work)))


def _mean_size(stages: Sequence[Stage]) -> float:
    sizes = [len(document.text.encode("utf-8", "replace")) for document in islice(stages[0].steps[0].run(), SAMPLE)]
    return sum(sizes) / max(1, len(sizes)) or 1.0


def _notes(work: Work) -> list[str]:
    sizes, tasks = [file.size for file in work.files], work.config.running.tasks
    found = []
    if len(sizes) < tasks:
        found.append(
            f"{plural(len(sizes), 'file')} for {tasks} tasks: files are not divided, so that some tasks have none. Cut "
            "large files (split -C 1G)."
        )
    elif sum(sizes) and max(sizes) * tasks > 2 * sum(sizes):
        found.append(
            f"The largest file has {max(sizes) / sum(sizes):.0%} of the bytes, and one task reads all of it: cut it "
            "(split -C 1G)."
        )
    if work.config.minhash.near_duplicates:
        found.append(
            "The stage groups is one task, with all near-duplicates in memory; its memory is that of the case that "
            "every document has one."
        )
    return found
