"""word2vec from sentences to vectors: the jobs that threads share, what is shown, the folder of a run."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.building import partial_of, remove_stale
from unmask.errors import UnmaskError
from unmask.files import check_replaceable, write_text, writing
from unmask.train.interrupt import Interrupt
from unmask.word_vectors import checkpoint, reading, sampling
from unmask.word_vectors.checkpoint import State
from unmask.word_vectors.compiled import compiled
from unmask.word_vectors.corpus import Corpus, join_phrases, number
from unmask.word_vectors.kernel import Job
from unmask.word_vectors.settings import Word2Vec, Words
from unmask.word_vectors.vectors import WordVectors

JOB = 10_000  # words of a job; a longer sentence is read in parts


@dataclass(frozen=True)
class Trained:
    """What training gave.

    vectors  the input vectors, which are what people mean by word vectors
    outputs  [R, D] the output vectors: of words, or of the inner nodes of the tree
    facts    words read, of these trained on, different ones; words a second; the share of the training that was done,
             and the signal that stopped it, or None
    """

    vectors: WordVectors
    outputs: np.ndarray
    facts: dict[str, Any]


def train(
    sentences: Iterable[Sequence[str | int]] | None = None,
    config: Word2Vec | None = None,
    *,
    out: str | Path | None = None,
    threads: int | None = None,
    display: Any = None,
    resume: bool = False,
) -> Trained:
    """Learn word vectors.

    sentences  lists of words or ids, read once and kept as numbers in a temporary file (4 bytes a word), beside `out`
               where that is given; `reading.read(files)` gives those of files. None: the installed documentation
    out        folder for the vectors and `run.json`, written whole or not at all
    threads    None: one for each core. With one, the same seed gives the same vectors; more of them write to the same
               vectors without waiting for one another (Recht et al. 2011), so that runs differ a little
    display    anything with start, show, note and close, such as `train.display.Terminal`
    resume     go on with the run in `out`, which has kept its text, from its last checkpoint; where there is none,
               begin. With one thread the vectors are those of a run that was never cut short

    After SIGTERM or Ctrl-C the vectors learned so far are kept, and `facts["stopped"]` names the signal. Raises
    UnmaskError for settings, text or a folder that will not do, and where numba is not installed.
    """
    target = None if out is None else Path(out)
    begun = target if resume and target is not None and checkpoint.there(target) else None
    config = config or Word2Vec() if begun is None else _same(config, begun)
    config.check()
    threads = _cores() if threads is None else threads
    if threads < 1:
        raise UnmaskError(f"The number of threads must be at least 1, not {threads}.")
    run = compiled(config.network)
    if target is not None and begun is None:
        _refuse_taken(target, resume)
    source = reading.documentation(config.reading) if sentences is None else sentences
    with Interrupt() as interrupt, _workplace(target) as room:
        if begun is None:
            corpus, state = _prepared(_watched(source, interrupt), config.words, room, display), None
        else:
            corpus, state = checkpoint.load(begun)
        save = None if target is None else partial(checkpoint.save, target, room, config, corpus)
        trained = _learn(corpus, config, run, threads, interrupt, display, state, save)
        if target is not None:
            _save(trained, config, room, target)
    if display is not None:
        _conclude(trained, target, display)
    return trained


def _prepared(sentences: Iterable[Sequence[str | int]], words: Words, folder: Path, display: Any) -> Corpus:
    """The text as numbers, with phrases joined and rare words left out."""
    corpus = number(sentences, folder / "read", limit=words.limit)
    for step in range(words.phrases):
        corpus = join_phrases(corpus, folder / f"phrases-{step}", words.phrase_threshold / 2**step, words.min_count)
    corpus = corpus.frequent(folder / "words", words.min_count, words.most)
    if display is not None:
        display.note(
            f"{corpus.read:,} words read, {len(corpus.ids):,} of them ({len(corpus.ids) / corpus.read:.1%}) "
            f"of the {len(corpus.words):,} words that have a vector."
        )
    return corpus


def _learn(
    corpus: Corpus,
    config: Word2Vec,
    run: Callable[..., int],
    threads: int,
    interrupt: Interrupt,
    display: Any,
    state: State | None,
    save: Callable[[State], None] | None,
) -> Trained:
    """All epochs, in jobs that the threads take in turn; now and then all of them wait while the state is saved."""
    output = config.questions(corpus.counts)
    cuts = _cuts(corpus.ends, len(corpus.ids))
    parts = len(cuts) - 1
    begin = State(*_initial(len(corpus.words), sampling.output_rows(output), config), config.epochs * parts)
    state = begin if state is None else state
    if state.shape != begin.shape:
        raise UnmaskError("The checkpoint is of another version of unmask, or damaged; start again in another folder.")
    inputs_VD, outputs_RD, total = state.inputs_VD, state.outputs_RD, state.total
    keep_V = np.round(sampling.keep_probabilities(corpus.counts, config.words.subsample) * sampling.FULL).astype(
        np.int64
    )
    jobs = itertools.count(state.jobs)
    # Texts of a kind mostly stand together, and what is read last is learned at the lowest rate: each epoch has its own
    # order.
    orders = [np.random.default_rng([config.seed, epoch, 1]).permutation(parts) for epoch in range(config.epochs)]
    progress = _Progress(state, config, corpus, display)

    def work(until: float) -> None:
        while interrupt.name is None and (job := next(jobs)) < total:  # in this order: no job is taken and not done
            part = orders[job // parts][job % parts]
            begin, end = cuts[part], cuts[part + 1]
            first, last = np.searchsorted(corpus.ends, [begin, end], side="right")
            ends = np.unique(np.append(np.asarray(corpus.ends[first:last]) - begin, end - begin))
            alpha = max(config.min_alpha, config.alpha - (config.alpha - config.min_alpha) * job / total)
            drawn = int(np.random.default_rng([config.seed, job]).integers(1 << 48))
            ids = np.array(corpus.ids[begin:end])  # a copy: what may not be written is another type to the compiler
            left = run(Job(ids, ends, keep_V, config.window, alpha, drawn), inputs_VD, outputs_RD, output)
            progress.done(alpha, left)
            if time.monotonic() > until:
                break

    nothing = Job(np.zeros(0, np.int32), np.zeros(0, np.int64), keep_V, config.window, config.alpha, 0)
    run(nothing, inputs_VD, outputs_RD, output)  # compiled before the clock
    progress.start()
    with ThreadPoolExecutor(threads) as pool:
        while True:
            until = time.monotonic() + (math.inf if save is None else 60 * config.save_minutes)
            workers = [pool.submit(work, until) for _ in range(threads)]
            for worker in workers:
                worker.result()
            progress.pause()
            if not (np.isfinite(inputs_VD).all() and np.isfinite(outputs_RD).all()):
                raise UnmaskError(f"Training diverged: set --alpha lower than {config.alpha}.")
            if save is not None and state.jobs < total:
                save(state)
            if state.jobs == total or interrupt.name is not None:
                break
    progress.close()
    stopped = interrupt.name if state.jobs < total else None
    facts = {**progress.facts(), "different_words": len(corpus.words), "threads": threads, "stopped": stopped}
    return Trained(WordVectors(corpus.words, inputs_VD, corpus.counts), outputs_RD, facts)


def _initial(words: int, rows: int, config: Word2Vec) -> tuple[np.ndarray, np.ndarray]:
    """Inputs uniform from -1 / 2D to 1 / 2D and outputs of zero, as in the released code."""
    rng = np.random.default_rng(config.seed)
    inputs_VD = (rng.random((words, config.dim), dtype=np.float32) - np.float32(0.5)) / np.float32(config.dim)
    return inputs_VD, np.zeros((rows, config.dim), dtype=np.float32)


def _cuts(ends: np.ndarray, count: int) -> np.ndarray:
    """Where jobs begin and end: at the last end of a sentence within JOB words, or there where none ends."""
    cuts = [0]
    while cuts[-1] < count:
        reach = cuts[-1] + JOB
        last = int(np.searchsorted(ends, reach, side="right")) - 1
        end = int(ends[last]) if last >= 0 else 0
        cuts.append(end if end > cuts[-1] else min(reach, count))
    return np.array(cuts)


class _Progress:
    """Words a second, and the learning rate, a few times a second at most; how far the run has come, in its state."""

    def __init__(self, state: State, config: Word2Vec, corpus: Corpus, display: Any) -> None:
        self.state, self.words, self.display = state, config.epochs * corpus.read, display
        self.before, self.lock, self.shown = state.seconds, threading.Lock(), 0.0

    def start(self) -> None:
        self.began = time.perf_counter()
        if self.display is not None:
            self.display.start(self.state.jobs, self.state.total)

    def done(self, alpha: float, left: int) -> None:
        """A job is done, of which so many words were left by the subsampling."""
        with self.lock:
            self.state.jobs += 1
            self.state.trained += left
            now = time.perf_counter()
            if self.display is not None and (now - self.shown > 0.2 or self.state.jobs == self.state.total):
                self.shown, self.state.seconds = now, self.before + now - self.began
                row = {"split": "train", "step": self.state.jobs, "lr": alpha, "words_per_second": self.speed()}
                self.display.show(row)

    def pause(self) -> None:
        """No job is being done."""
        self.state.seconds = self.before + time.perf_counter() - self.began

    def close(self) -> None:
        if self.display is not None:
            self.display.close()

    def share(self) -> float:
        return self.state.jobs / self.state.total

    def speed(self) -> float:
        """Words of the text, those included that are skipped or have no vector, a second."""
        return self.words * self.share() / self.state.seconds

    def facts(self) -> dict[str, Any]:
        return {
            "words_read": self.words,
            "words_trained": self.state.trained,
            "share_done": self.share(),
            "seconds": self.state.seconds,
            "words_per_second": self.speed(),
        }


def _watched(sentences: Iterable[Sequence[str | int]], interrupt: Interrupt) -> Iterator[Sequence[str | int]]:
    """The sentences, until someone wants to stop."""
    for sentence in sentences:
        if interrupt.name is not None:
            raise UnmaskError(f"Stopped by {interrupt.name} while the text was read; nothing was saved.")
        yield sentence


def _same(config: Word2Vec | None, out: Path) -> Word2Vec:
    """The settings of the run that goes on, which those that are given must be."""
    own = checkpoint.begun(out)
    if config is not None and config != own:
        raise UnmaskError(f"The run in {out} goes on with its own settings; leave out the others.")
    return own


def _refuse_taken(out: Path, resume: bool) -> None:
    """Raises UnmaskError where the folder is there already, and not empty."""
    if checkpoint.there(out):
        raise UnmaskError(f"{out} holds a run that did not end; go on with it by --resume, or remove it.")
    if resume and (out / checkpoint.RUN).is_file():
        if checkpoint.ended(out):
            checkpoint.remove(out)
        raise UnmaskError(f"The run in {out} has ended; there is nothing to go on with.")
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UnmaskError(f"{out} exists already; name another folder with --out, or remove it.")
    check_replaceable(out)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)


class _workplace:
    """A temporary folder, beside the target where there is one: it must hold the text as numbers. What a process that
    was killed left of the same target is removed."""

    def __init__(self, target: Path | None) -> None:
        self.target = target

    def __enter__(self) -> Path:
        if self.target is None:
            with writing(Path(tempfile.gettempdir())):
                self.folder = Path(tempfile.mkdtemp(prefix="unmask-"))
            return self.folder
        remove_stale(self.target)
        self.folder = partial_of(self.target)
        with writing(self.target):
            self.folder.mkdir(parents=True)
        return self.folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _save(trained: Trained, config: Word2Vec, room: Path, target: Path) -> None:
    """The vectors and `run.json`: beside the checkpoint, which goes when the run has come to its end, or whole or not
    at all where there is none."""
    begun = checkpoint.there(target)
    place = target if begun else room / "result"
    trained.vectors.save(place)
    facts = {"recipe": config.recipe, "config": config.to_dict(), "facts": trained.facts}
    write_text(place / checkpoint.RUN, json.dumps(facts, indent=2) + "\n")
    if not begun:
        with writing(target):
            place.chmod(0o755)
            os.replace(place, target)
    elif trained.facts["stopped"] is None:
        checkpoint.remove(target)


def _conclude(trained: Trained, target: Path | None, display: Any) -> None:
    facts, vectors = trained.facts, trained.vectors
    if facts["stopped"]:
        done = f"{facts['share_done']:.0%} of the training"
        display.note(f"Stopped by {facts['stopped']} after {done}; what was learned is kept.")
    speed = f"{facts['words_per_second']:,.0f} words/s"
    place = "" if target is None else f" -> {target}"
    display.note(f"{len(vectors):,} vectors of {vectors.dim} numbers at {speed}{place}")
    if facts["stopped"] and target is not None:
        display.note(f"Go on with: unmask pretrain --out {target} --resume")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
