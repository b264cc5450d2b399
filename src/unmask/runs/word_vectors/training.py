"""Training of word2vec: jobs shared by threads, the display, and the folder of a run."""

from __future__ import annotations

import itertools
import math
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

from unmask.data.cores import cores
from unmask.data.files.corpora import partial_of, remove_stale
from unmask.data.text.reading import TextStatistics
from unmask.errors import Stopped, UnmaskError, plural
from unmask.files import check_replaceable, writing
from unmask.runs.word_vectors import card, checkpoint, reading, sampling, visits
from unmask.runs.word_vectors.checkpoint import Asked, State
from unmask.runs.word_vectors.compiled import compiled
from unmask.runs.word_vectors.corpus import Corpus, join_phrases, number
from unmask.runs.word_vectors.jobs import Job
from unmask.runs.word_vectors.settings import Word2Vec, Words
from unmask.runs.word_vectors.vectors import WordVectors
from unmask.train.interrupt import Interrupt

SHOWN = 10  # most files named in the list of those that were not read exactly as they are
JOB = 10_000  # words of a job; a longer sentence is split


@dataclass(frozen=True)
class Trained:
    """The result of training.

    vectors  the input vectors, which are the usual word vectors
    outputs  [R, D] the output vectors: of words, or of the inner nodes of the tree
    facts    number of words read, trained on, and different; words a second; the share of the training that is done,
             and the signal that stopped it, or None
    """

    vectors: WordVectors
    outputs: np.ndarray
    facts: dict[str, Any]


def train(
    sentences: Iterable[Sequence[Any]] | None = None,
    config: Word2Vec | None = None,
    *,
    files: Sequence[str | Path] = (),
    out: str | Path | None = None,
    threads: int | None = None,
    display: Any = None,
    resume: bool = False,
) -> Trained:
    """Learn word vectors.

    sentences  lists of words or ids, with `visits` patients, which are lists of such lists; read once and stored as
               numbers in a temporary file (4 bytes a word), beside `out` if it is given
    files      files to read instead, by `reading.read`. Without sentences and files: the installed documentation
    out        folder for the vectors and `run.json`, which gets the settings before the text is read
    threads    number of threads; None: one for each core. With one thread, the same seed gives the same vectors;
               several write to the same vectors without locks (Recht et al. 2011), so that runs differ a little
    display    an object with start, show, note and close, such as `train.display.Terminal`
    resume     continue the run in `out` with its settings, and with its threads unless others are given, from its last
               checkpoint, which holds the text. Without a checkpoint, begin from the start, with the text of the run.
               With one thread, the vectors equal those of an uninterrupted run

    After SIGTERM or Ctrl-C the vectors learned so far are kept, and `facts["stopped"]` names the signal. Raises
    UnmaskError for invalid settings, text or folders, if there is nothing to resume, and if numba is not installed;
    Stopped if a signal comes before there is anything to keep but the settings.
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
        threads = cores() if begun is None else begun.threads or cores()
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
    """Write the text as numbers, with phrases joined and rare words left out."""
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
    """Train all epochs, in jobs that the threads take in turn; all threads wait while the state is saved."""
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
    # Each epoch has its own order: similar texts are often adjacent, and the last ones have the lowest learning rate.
    orders = [np.random.default_rng([config.seed, epoch, 1]).permutation(parts) for epoch in range(config.epochs)]
    progress = _Progress(state, config, corpus, display)

    def work(until: float) -> None:
        while interrupt.name is None and (job := next(jobs)) < total:  # in this order, so that every job taken is done
            part = orders[job // parts][job % parts]
            begin, end = cuts[part], cuts[part + 1]
            first, last = np.searchsorted(corpus.ends, [begin, end], side="right")
            ends = np.append(np.asarray(corpus.ends[first:last]) - begin, end - begin)
            alpha = max(config.min_alpha, config.alpha - (config.alpha - config.min_alpha) * job / total)
            drawn = int(np.random.default_rng([config.seed, job]).integers(1 << 48))
            ids = np.array(corpus.ids[begin:end])  # a copy: numba compiles again for a read-only array
            left = run(Job(ids, ends, keep_V, config.window, alpha, drawn, config.span), inputs_VD, outputs_RD, output)
            progress.done(alpha, left)
            if time.monotonic() > until:
                break

    nothing = Job(np.zeros(0, np.int32), np.zeros(0, np.int64), keep_V, config.window, config.alpha, 0, config.span)
    run(nothing, inputs_VD, outputs_RD, output)  # compiles before the time is measured
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
    """The boundaries of jobs: the last end of a sentence within JOB words, or JOB words if no sentence ends there."""
    cuts = [0]
    while cuts[-1] < count:
        reach = cuts[-1] + JOB
        last = int(np.searchsorted(ends, reach, side="right")) - 1
        end = int(ends[last]) if last >= 0 else 0
        cuts.append(end if end > cuts[-1] else min(reach, count))
    return np.array(cuts)


class _Progress:
    """Shows words a second and the learning rate, at most a few times a second; keeps the progress in the state."""

    def __init__(self, state: State, config: Word2Vec, corpus: Corpus, display: Any) -> None:
        self.state, self.words, self.display = state, config.epochs * corpus.read, display
        self.before, self.lock, self.shown = state.seconds, threading.Lock(), 0.0

    def start(self) -> None:
        self.began = time.perf_counter()
        if self.display is not None:
            self.display.start(self.state.jobs, self.state.total)

    def done(self, alpha: float, left: int) -> None:
        """A job is done, of which subsampling kept `left` words."""
        with self.lock:
            self.state.jobs += 1
            self.state.trained += left
            now = time.perf_counter()
            if self.display is not None and (now - self.shown > 0.2 or self.state.jobs == self.state.total):
                self.shown, self.state.seconds = now, self.before + now - self.began
                row = {"split": "train", "step": self.state.jobs, "lr": alpha, "words_per_second": self.speed()}
                self.display.show(row)

    def pause(self) -> None:
        """Called when no job is running."""
        self.state.seconds = self.before + time.perf_counter() - self.began

    def close(self) -> None:
        if self.display is not None:
            self.display.close()

    def share(self) -> float:
        return self.state.jobs / self.state.total

    def speed(self) -> float:
        """Words of the text a second, including words that are skipped or have no vector."""
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
    """The sentences; raises Stopped after a signal."""
    for sentence in sentences:
        if interrupt.name is not None:
            advice = "nothing was saved." if target is None else f"continue with: {_command(target)}"
            raise Stopped(f"Stopped by {interrupt.name} while the text was read; {advice}")
        yield sentence


def _command(target: Path) -> str:
    from unmask.train.checkpoint import command  # here, because it loads torch and is seldom needed

    return command("pretrain", target)


def _begun(out: Path, config: Word2Vec | None) -> Asked:
    """The settings of the run to resume. Raises UnmaskError if there is none, if it has ended, and if other settings
    are given."""
    from unmask.train.checkpoint import require_begun

    require_begun(out)
    if checkpoint.ended(out):
        checkpoint.remove(out)
        raise UnmaskError(f"The run in {out} has ended; there is nothing to continue.")
    begun = checkpoint.begun(out)
    if config is not None and config != begun.config:
        raise UnmaskError(f"The run in {out} continues with its own settings; leave out the others.")
    return begun


def _text(
    sentences: Iterable[Sequence[Any]] | None,
    files: Sequence[str | Path],
    config: Word2Vec,
    begun: Asked | None,
    target: Path | None,
    statistics: TextStatistics,
) -> tuple[Iterable[Sequence[str | int]], tuple[str, ...] | None]:
    """The sentences to read, if no checkpoint has them, and the names of their files; reading fills `statistics`.
    Raises UnmaskError for a resumed run that does not know the source of its text."""
    if sentences is not None:
        found = sentences if config.visits is None else visits.in_sequence(sentences)
        return found, None if begun is None else begun.files
    if begun is not None and not files:
        if begun.files is None and target is not None and not checkpoint.there(target):
            raise UnmaskError(f"The run in {target} had not read its text, which came from no file: give it again.")
        names = begun.files
    else:
        names = tuple(map(str, files))
    if config.visits is not None:
        found = visits.read(names or (), config.reading.encoding, alone=config.visits == 0)
        return visits.in_sequence(found), names
    return reading.read(names, config.reading, statistics) if names else reading.documentation(config.reading), names


@contextmanager
def _settings(asked: Asked, target: Path | None) -> Iterator[None]:
    """A context that writes the settings to the folder of the run, and removes them if an error ends the run before its
    first checkpoint."""
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
    """Raises UnmaskError if the folder exists, and holds more than the settings of a run that was killed before its
    first checkpoint."""
    if checkpoint.there(out):
        raise UnmaskError(f"{out} holds an interrupted run; continue it with --resume, or remove it.")
    if out.is_file() or (out.is_dir() and {path.name for path in out.iterdir()} - {checkpoint.RUN}):
        raise UnmaskError(f"{out} exists already; name another folder with --out, or remove it.")
    check_replaceable(out)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)


class _workplace:
    """A temporary folder for the text as numbers, beside the target if there is one. Leftovers of a killed process for
    the same target are removed."""

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
    """Write the vectors, then `run.json`, which marks the run as ended; then remove the checkpoint."""
    trained.vectors.save(target)
    asked.write(target, trained.facts)
    card.write(target, trained, asked)
    if trained.facts["stopped"] is None:
        checkpoint.remove(target)


def _conclude(trained: Trained, target: Path | None, display: Any) -> None:
    facts, vectors = trained.facts, trained.vectors
    if facts["stopped"]:
        done = f"{facts['share_done']:.0%} of the training"
        display.note(f"Stopped by {facts['stopped']} after {done}; the vectors so far are kept.")
    speed = f"{facts['words_per_second']:,.0f} words/s"
    place = "" if target is None else f" -> {target}"
    display.note(f"{len(vectors):,} vectors of {vectors.dim} numbers at {speed}{place}")
    if facts["stopped"] and target is not None:
        display.note(f"Continue with: {_command(target)}")
