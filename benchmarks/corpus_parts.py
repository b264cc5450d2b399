"""Time, memory and equality of a corpus that is built in parts, from texts that a seeded process varies.

    python benchmarks/corpus_parts.py --texts shared/data/books --megabytes 200 --parts 1 2 4

Each stage is a process of its own. Prints a table in Markdown: processor seconds, so that other work on the machine
does not count; MB of text per second; largest resident memory. `--peer` adds `corpus_peer.py` (needs `datasets`).
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from unmask.data.text.reading import documents

FILE = 10_000_000  # bytes of a file
CHANGED, COPIES = 0.2, 0.1  # share of words that are replaced, of documents that are copies of one of the last 1,000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", nargs="+", required=True, help="files or folders whose paragraphs are varied")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("parts-benchmark"), help="is removed at the end")
    parser.add_argument("--peer", action="store_true", help="also measure `tokenizers` and `datasets` alone")
    options = parser.parse_args()
    texts = options.folder / "texts"
    texts.mkdir(parents=True)
    try:
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # its memory would be counted as that of the stages
            size = pool.apply(write, (texts, options.texts, options.seed, options.megabytes * 1_000_000))
        print(f"{size / 1e6:,.0f} MB of text, seed {options.seed}\n")
        print("| stage | processor s | MB/s | largest memory, MB |\n|---|---|---|---|")
        for name, seconds, peak in stages(options.folder, texts, options.parts, options.peer):
            print(f"| {name} | {seconds:,.1f} | {size / 1e6 / seconds:,.1f} | {peak:,.0f} |", flush=True)
    finally:
        shutil.rmtree(options.folder)


def stages(folder: Path, texts: Path, counts: list[int], peer: bool) -> Iterator[tuple[str, float, float]]:
    """(stage, processor seconds of all its processes, MB of the largest one); raises SystemExit if corpora differ."""
    vocabulary, found = folder / "vocabulary", set()
    yield "vocabulary", *unmask("vocabulary", texts, "--out", vocabulary)
    if peer:
        file, script = folder / "peer.json", Path(__file__).with_name("corpus_peer.py")
        yield "vocabulary by tokenizers", *run(script, "vocabulary", texts, file)
        yield "ids by datasets and tokenizers", *run(script, "build", texts, file, folder / "peer")
    for count in counts:
        out = folder / f"corpus-{count}"
        build = ["build", texts, "--tokenizer", vocabulary, "--out", out, "--part"]
        taken = [unmask(*build, f"{number}/{count}") for number in range(1, count + 1)]
        yield f"parts of {count}", sum(one[0] for one in taken), max(one[1] for one in taken)
        yield f"merge of {count}", *unmask("merge", out)
        found.add(tuple(hashlib.sha256(path.read_bytes()).digest() for path in sorted(out.iterdir())))
        shutil.rmtree(out.with_name(f"{out.name}.parts"))
    if len(found) > 1:
        raise SystemExit("The corpora differ.")


def unmask(*arguments: object) -> tuple[float, float]:
    """`run` of a command of `unmask corpus`."""
    return run("-m", "unmask", "corpus", *arguments)


def run(*arguments: object) -> tuple[float, float]:
    """The processor seconds of a Python process, and its largest resident memory in MB."""
    command = [sys.executable, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed.")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def varied(paths: list[str], seed: int) -> Iterator[str]:
    """Paragraphs without end, in random order, some words of which are replaced by others; some are copies."""
    rng = random.Random(seed)
    paragraphs = [document.text.split() for document in documents(paths) if len(document.text) > 200]
    words = [word for paragraph in paragraphs for word in paragraph]
    recent: list[str] = []
    while True:
        if recent and rng.random() < COPIES:
            yield rng.choice(recent)
            continue
        text = " ".join(rng.choice(words) if rng.random() < CHANGED else word for word in rng.choice(paragraphs))
        recent = [*recent[-999:], text]
        yield text


def write(folder: Path, paths: list[str], seed: int, size: int) -> int:
    """Write at least `size` bytes of varied texts, in files of FILE bytes, and return the number of bytes."""
    texts, total = varied(paths, seed), 0
    for number in range(-(-size // FILE)):
        held = 0
        with open(folder / f"{number:05d}.txt", "wb") as file:
            while held < min(FILE, size):
                held += file.write(f"{next(texts)}\n\n".encode())
        total += held
    return total


if __name__ == "__main__":
    main()
