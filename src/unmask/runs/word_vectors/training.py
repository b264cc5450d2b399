"""word2vec from sentences to vectors: the jobs that threads share, what is shown, the folder of a run."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.text.building import partial_of, remove_stale
from unmask.data.text.reading import TextStatistics
from unmask.errors import Stopped, UnmaskError, plural
from unmask.files import check_replaceable, writing
from unmask.runs.word_vectors import checkpoint, reading, sampling
from unmask.runs.word_vectors.checkpoint import Asked, State
from unmask.runs.word_vectors.compiled import compiled
from unmask.runs.word_vectors.corpus import Corpus, join_phrases, number
from unmask.runs.word_vectors.kernel import Job
from unmask.runs.word_vectors.settings import Word2Vec, Words
from unmask.runs.word_vectors.vectors import WordVectors
from unmask.train.interrupt import Interrupt

SHOWN = 10  # files that were not read as they stand, and are named
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
    files: Sequence[str | Path] = (),
    out: str | Path | None = None,
    threads: int | None = None,
    display: Any = None,
    resume: bool = False,
) -> Trained:
    """Learn word vectors.

    sentences  lists of words or ids, read once and kept as numbers in a temporary file (4 bytes a word), beside `out`
               where that is given
    files      what to read in their place, as `reading.read` does. Neither: the installed documentation
    out        folder for the vectors and `run.json`, which has the settings from before the text is read
    threads    None: one for each core. With one, the same seed gives the same vectors; more of them write to the same
               vectors without waiting for one another (Recht et al. 2011), so that runs differ a little
    display    anything with start, show, note and close, such as `train.display.Terminal`
    resume     continue with the run in `out`, with its settings and its threads unless others are given, from its last
               checkpoint, which has kept the text; where there is none yet, begin again from the start, with the text
               that it was to read. With one thread the vectors are those of a run that was never cut short

    After SIGTERM or Ctrl-C the vectors learned so far are kept, and `facts["stopped"]` names the signal. Raises
    UnmaskError for settings, text or a folder that will not do, where there is nothing to resume, and where numba is
    not installed; Stopped where a signal comes before there is anything to keep but the settings.
    """
    target = None if out is None else Path(out)
    begun = None
    if target is not None and resume:
        begun = _begun(target, config)
    elif target is not None:
        _refuse_taken(target)
    config = config or Word2Vec() if begun is None else begun.config
    config.check()
    if threads is None:
        threads = _cores() if begun is None else begun.threads or _cores()
        if begun is not None and display is not None:
            display.note(f"The run continues with {plural(threads, 'thread')}; --threads sets another number.")
    if threads < 1:
        raise UnmaskError(f"The number of threads must be at least 1, not {threads}.")
    run = compiled(config.network)
    statistics = TextStatistics()
    sentences, names = _text(sentences, files, config, begun, target, statistics)
    asked = Asked(config, threads, names)
    with Interrupt() as interrupt, _workplace(target) as room, _settings(asked, target):
        if target is not None and checkpoint.there(target):
            corpus, state = checkpoint.load(target)
        else:
            if begun is not None and display is not None:
                display.note(f"{target} has no checkpoint yet: the run begins from the start, with its settings.")
            corpus, state = _prepared(_watched(sentences, interrupt, target), config.words, room, display), None
            for note in [] if display is None else statistics.losses(SHOWN):
                display.note(note)
        save = None if target is None else partial(checkpoint.save, target, room, corpus)
        trained = _learn(corpus, config, run, threads, interrupt, display, state, save)
        if target is not None:
            _save(trained, asked, target)
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
        """A job is done; `left` words of it remained after subsampling."""
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


def _watched(
    sentences: Iterable[Sequence[str | int]], interrupt: Interrupt, target: Path | None
) -> Iterator[Sequence[str | int]]:
    """The sentences, until someone wants to stop."""
    for sentence in sentences:
        if interrupt.name is not None:
            way = "nothing was saved." if target is None else f"continue with: {_command(target)}"
            raise Stopped(f"Stopped by {interrupt.name} while the text was read; {way}")
        yield sentence


def _command(target: Path) -> str:
    from unmask.train.checkpoint import command  # which loads torch, and is seldom asked

    return command("pretrain", target)


def _begun(out: Path, config: Word2Vec | None) -> Asked:
    """What the run that goes on was asked for, which the settings that are given must be. Raises UnmaskError where
    there is none, or it has ended."""
    from unmask.train.checkpoint import require_begun

    require_begun(out)
    if checkpoint.ended(out):
        checkpoint.remove(out)
        raise UnmaskError(f"The run in {out} has ended; there is nothing to continue with.")
    begun = checkpoint.begun(out)
    if config is not None and config != begun.config:
        raise UnmaskError(f"The run in {out} continues with its own settings; leave out the others.")
    return begun


def _text(
    sentences: Iterable[Sequence[str | int]] | None,
    files: Sequence[str | Path],
    config: Word2Vec,
    begun: Asked | None,
    target: Path | None,
    statistics: TextStatistics,
) -> tuple[Iterable[Sequence[str | int]], tuple[str, ...] | None]:
    """What to read, where nothing was read yet, and the names of its files; `statistics` are filled on the way. Raises
    UnmaskError for a run that goes on, and does not know where its text came from."""
    if sentences is not None:
        return sentences, None if begun is None else begun.files
    if begun is not None and not files:
        if begun.files is None and target is not None and not checkpoint.there(target):
            raise UnmaskError(f"The run in {target} had not read its text yet, which came from no file: give it again.")
        names = begun.files
    else:
        names = tuple(map(str, files))
    return reading.read(names, config.reading, statistics) if names else reading.documentation(config.reading), names


@contextmanager
def _settings(asked: Asked, target: Path | None) -> Iterator[None]:
    """What is asked for, in the folder of the run; it goes again where an error ends the run before its first
    checkpoint."""
    if target is None:
        yield
        return
    new = not target.exists()
    if not checkpoint.there(target):
        asked.write(target)
    try:
        yield
    except Stopped:
        raise
    except Exception:
        if not checkpoint.there(target):
            (target / checkpoint.RUN).unlink(missing_ok=True)
            if new:
                with suppress(OSError):
                    target.rmdir()
        raise


def _refuse_taken(out: Path) -> None:
    """Raises UnmaskError where the folder is there already, and holds more than the settings of a run that was killed
    before its first checkpoint."""
    if checkpoint.there(out):
        raise UnmaskError(f"{out} holds a run that did not end; continue with it by --resume, or remove it.")
    if out.is_file() or (out.is_dir() and {path.name for path in out.iterdir()} - {checkpoint.RUN}):
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


def _save(trained: Trained, asked: Asked, target: Path) -> None:
    """The vectors, then `run.json`, which says that the run has ended; then the checkpoint goes."""
    trained.vectors.save(target)
    asked.write(target, trained.facts)
    if trained.facts["stopped"] is None:
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
        display.note(f"Continue with: {_command(target)}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
