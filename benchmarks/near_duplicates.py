"""What the MinHash of `unmask corpus pipeline` finds of planted near-duplicates, and the time and memory of each stage.

    python benchmarks/near_duplicates.py --documents 20000

Documents are sentences of made-up words by Zipf's law, among the stop words of English, so that they pass the filters,
which run too. A fifth of them are copies of another document in which a share of the words is replaced at random; the
similarity of the two is the exact one of their sets of 5-grams. Each stage is a process of its own. Prints tables in
Markdown: processor seconds, so that other work on the machine does not count; largest resident memory.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import multiprocessing
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.data.text.cleaning.config import STOP_WORDS, Pipeline, Running
from unmask.data.text.cleaning.stages import Work

VOCABULARY, SENTENCE, SENTENCES, LINES = 20_000, 12, 20, 4  # words; words, sentences, and sentences of a line
PLANTED = 0.2  # share of documents that are changed copies
CHANGED = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)  # shares of words that are replaced
BOUNDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.01)  # of similarities in the table
ALIKE = 0.7  # documents at least as similar are near-duplicates


@dataclass
class Made:
    """Documents in the order of the files: texts, the number of the original (-1: none), and the similarity to it."""

    texts: list[str]
    originals: list[int]
    similarities: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("near-duplicates-benchmark"), help="is removed at the end")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    try:
        made = make(options.documents, np.random.default_rng(options.seed))
        size = write(made.texts, options.folder / "texts", options.tasks)
        print(f"{len(made.texts):,} documents, {size / 1e6:,.1f} MB, {options.tasks} tasks, seed {options.seed}\n")
        print("| stage | processor s | MB/s | documents/s | largest memory, MB |\n|---|---|---|---|---|")
        config = Pipeline(data=(str(options.folder / "texts"),), running=Running(tasks=options.tasks, workers=1))
        for name, seconds, peak in stages(config, options.folder / "out"):
            rates = f"{size / 1e6 / seconds:,.1f} | {len(made.texts) / seconds:,.0f}"
            print(f"| {name} | {seconds:,.1f} | {rates} | {peak:,.0f} |", flush=True)
        score(made, config, options.folder / "out")
    finally:
        shutil.rmtree(options.folder)


def make(count: int, rng: np.random.Generator) -> Made:
    """Documents in random order, each changed copy of an original of its own."""
    letters = np.array(list("abcdefghiklmnoprstuvw"))
    words = np.array([*STOP_WORDS, *("".join(rng.choice(letters, rng.integers(4, 10))) for _ in range(VOCABULARY))])
    weights = np.cumsum(1 / (np.arange(len(words)) + 2.7))

    def drawn(number: int) -> list[str]:
        return words[np.searchsorted(weights, rng.random(number) * weights[-1])].tolist()

    copies = int(count * PLANTED)
    texts = [drawn(SENTENCE * SENTENCES) for _ in range(count - copies)]
    originals, similarities = [-1] * len(texts), [0.0] * len(texts)
    for original, share in zip(rng.permutation(len(texts))[:copies].tolist(), itertools.cycle(CHANGED), strict=False):
        text = list(texts[original])
        places = rng.choice(len(text), round(share * len(text)), replace=False).tolist()
        for i, word in zip(places, drawn(len(places)), strict=True):
            text[i] = word
        texts.append(text)
        originals.append(original)
        similarities.append(similarity(texts[original], text))
    order = rng.permutation(count)
    place = np.argsort(order)
    return Made(
        [laid_out(texts[i]) for i in order],
        [-1 if originals[i] < 0 else int(place[originals[i]]) for i in order],
        [similarities[i] for i in order],
    )


def similarity(first: list[str], second: list[str]) -> float:
    """The share of 5-grams that two documents have in common, of those of either (Jaccard)."""
    one, two = ({tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in (first, second))
    return len(one & two) / len(one | two)


def laid_out(words: list[str]) -> str:
    """Words as sentences, some on a line."""
    sentences = [" ".join(words[i : i + SENTENCE]).capitalize() + "." for i in range(0, len(words), SENTENCE)]
    return "\n".join(" ".join(sentences[i : i + SENTENCES // LINES]) for i in range(0, SENTENCES, SENTENCES // LINES))


def write(texts: list[str], folder: Path, files: int) -> int:
    """Write JSON lines into some files of neighbours, and return the bytes of the texts."""
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(texts)), files)):
        rows = (json.dumps({"text": texts[i]}) + "\n" for i in part)
        (folder / f"{number:05d}.jsonl").write_text("".join(rows), encoding="utf-8")
    return sum(len(text.encode()) for text in texts)


def stages(config: Pipeline, out: Path) -> Iterator[tuple[str, float, float]]:
    """(stage, processor seconds, MB of its process) of each stage, in order."""
    context = multiprocessing.get_context("spawn")
    for name in [stage.name for stage in Work.of(config, out).stages()]:
        with context.Pool(1) as pool:
            yield name, *pool.apply(carry_out, (config, out, name))


def carry_out(config: Pipeline, out: Path, name: str) -> tuple[float, float]:
    """Carry out one stage in this process; returns its processor seconds and its largest memory in MB."""
    from unmask.data.text.cleaning import executors

    work = Work.of(config, out)
    begin = time.process_time()
    executors.run(work, [stage for stage in work.stages() if stage.name == name], lambda _: None)
    # `getrusage` would count the memory of the parent, too.
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return time.process_time() - begin, int(peak[1]) * 1024 / 1e6 if peak else float("nan")


def score(made: Made, config: Pipeline, out: Path) -> None:
    """Print which pairs were found, by similarity, beside the formula, and the precision and recall of all."""
    cleaned, kept = ids(out / "cleaned"), ids(out / "documents")
    ends = np.cumsum([len(part) for part in np.array_split(np.arange(len(made.texts)), config.running.tasks)])
    numbers = {int(ends[part - 1] if part else 0) + row for part, row in kept}
    hits, rates = [], []
    for number, (original, alike) in enumerate(zip(made.originals, made.similarities, strict=True)):
        if original >= 0:
            hits.append((alike, (number in numbers) + (original in numbers) == 1))
            rates.append(1 - (1 - alike**config.minhash.hashes) ** config.minhash.buckets)
    print(f"\n{len(cleaned):,} documents passed the filters, {len(kept):,} of them are kept.\n")
    print("| similarity of 5-grams | pairs | found | by the formula |\n|---|---|---|---|")
    for low, high in itertools.pairwise(BOUNDS):
        inside = [i for i, (alike, _) in enumerate(hits) if low <= alike < high]
        if inside:
            found, wanted = np.mean([hits[i][1] for i in inside]), np.mean([rates[i] for i in inside])
            name = f"{low:.1f} to {high:.1f}" if high <= 1 else "the same"
            print(f"| {name} | {len(inside):,} | {found:.1%} | {wanted:.1%} |")
    true = sum(found for alike, found in hits if alike >= ALIKE)
    dropped = len(cleaned) - len(kept)
    recall = true / sum(alike >= ALIKE for alike, _ in hits)
    print(f"\nRecall {recall:.1%}, precision {true / dropped:.1%}, for pairs with a similarity of at least {ALIKE}.")


def ids(folder: Path) -> set[tuple[int, int]]:
    """The number of the file and of the row, both from 0, of the source of each document in a folder."""
    found = set()
    for path in folder.iterdir():
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for source in (json.loads(row)["id"] for row in file):
                part, row = Path(source).name.split(".jsonl:")
                found.add((int(part), int(row) - 1))
    return found


if __name__ == "__main__":
    main()
