"""Jobs of the fault tests: tiny runs of every kind as commands, and the results of a finished run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from unmask.huggingface.table import as_heads

TIMED = {"seconds", "tokens_per_second", "waiting"}
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "s", "ra", "to")]
TOLERANCE = 1e-6  # of numbers that another number of processes computed
GOOD, BAD = "kanto", "tisra"  # what decides a label


@dataclass(frozen=True)
class Job:
    """A run that can be killed.

    begin   folder of the run -> arguments of `unmask` that start it
    again   folder of the run -> arguments that continue it; None: the same as `begin`
    waits   glob, in the folder beside the run, of files that exist while something is being written
    leaves  names that a finished run leaves besides the files that `trace` compares
    whole   whether every file that the run leaves, even if it fails, must equal that of a finished run
    """

    name: str
    begin: Callable[[Path], list[str]]
    again: Callable[[Path], list[str]] | None
    waits: str
    leaves: frozenset[str] = frozenset({".lock"})
    whole: bool = False


def warm() -> None:
    """Import slow modules once, before processes are forked."""
    for name in (
        *(
            "unmask.cli.training",
            "unmask.cli.export",
            "unmask.runs.finetuning",
            "unmask.runs.pretraining.run",
            "unmask.runs.translation",
        ),
        *("sklearn.metrics", "scipy.stats", "torch._dynamo", "torch.distributed.fsdp"),
        *("torch.onnx._internal.exporter._core", "onnxruntime.quantization"),
    ):
        import_module(name)


def prepare(folder: Path, seed: int = 0, *, brief: bool = False) -> dict[str, Job]:
    """Texts, a corpus and a model in `folder`, and every job by name.

    brief  whether runs have a few steps only, which write all files of a long run, but only two or three times
    """
    rng = np.random.default_rng(seed)
    text, rows, pairs = folder / "text.txt", folder / "rows", folder / "pairs.tsv"
    text.write_text("\n\n".join(_document(rng) for _ in range(240)), encoding="utf-8")
    rows.mkdir()
    for name, count in (("train", 96), ("dev", 32)):
        lines = ["sentence\tlabel", *(_review(rng, i) for i in range(count))]
        (rows / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs.write_text("\n".join(_pair(rng) for _ in range(240)) + "\n", encoding="utf-8")
    corpus, model = folder / "corpus", folder / "model"
    build = ["corpus", "build", "--data", str(text), "--vocabulary-size", "160", "--heldout", "0.05"]
    sizes = ["--layers", "1", "--dim", "32", "--heads", "2", "--hidden", "64", "--device", "cpu", "--precision", "fp32"]
    pretrain = ["pretrain", "bert-tiny", *sizes, "--corpus", str(corpus), "--rows.batch", "8", "--tokens", "64"]
    pretrain += ["--rows.heldout", "8", "--log_every", "1"]
    paced = ["--save_every", "4", "--evaluate_every", "6", "--steps", "30"]
    epochs, steps, saves = "3", "16", "3"
    if brief:
        paced = ["--save_every", "2", "--evaluate_every", "3", "--steps", "6"]
        epochs, steps, saves = "1", "6", "2"
    for command in ([*build, "--out", str(corpus)], [*pretrain, "--steps", "3", "--out", str(model)]):
        assert Process(command).wait() == 0, command
    tune = ["finetune", "--model", str(model), "--train", str(rows / "train.tsv"), "--dev", str(rows / "dev.tsv")]
    tune += ["--epochs", epochs, "--least_steps", "1", "--batch_size", "16", "--evaluations", "2", "--lr", "3e-3"]
    tune += ["--precision", "fp32", "--fit.device", "cpu", "--seeds", "2", "--length", "32"]
    train = ["train", "seq2seq-attention", "--pairs", str(pairs), "--dim", "16", "--model.hidden", "16"]
    train += ["--vocabulary.kind", "word", "--steps", steps, "--log_every", "1", "--evaluate_every", "5"]
    train += ["--save_every", saves, "--device", "cpu", "--texts.tokens", "256", "--scored", "8"]
    jobs = (
        Job(
            "pretrain",
            lambda out: [*pretrain, *paced, "--out", str(out)],
            lambda out: ["pretrain", "--resume", "--out", str(out)],
            "checkpoints/.tmp-*",
        ),
        Job(
            "finetune",
            lambda out: [*tune, "--out", str(out)],
            lambda out: ["finetune", "--resume", "--out", str(out)],
            "seeds/*/checkpoints/.tmp-*",
            frozenset(),
        ),
        Job(
            "translation",
            lambda out: [*train, "--out", str(out)],
            lambda out: ["train", "--resume", "--out", str(out)],
            "checkpoints/.tmp-*",
        ),
        Job("corpus", lambda out: [*build, "--out", str(out)], None, "../.{name}.partial-*/*", frozenset(), True),
        Job(
            "tokenizer",
            lambda out: [*build, "--kind", "bpe", "--cased", "--vocabulary-size", "400", "--out", str(out)],
            None,
            "../.{name}.partial-*",
            frozenset(),
            True,
        ),
        Job(
            "predict",
            lambda out: [*_asking(folder), "--out", f"{out}/answers.json", "--na-prob-file", f"{out}/doubts.json"],
            None,
            ".*.tmp",
            frozenset(),
            True,
        ),
        Job(
            "export",
            lambda out: ["export", "--model", str(model), "--out", str(out), "--int8"],
            None,
            ".*.tmp",
            frozenset(),
            True,
        ),
    )
    return {job.name: job for job in jobs}


def _asking(folder: Path) -> list[str]:
    """The arguments of a command that answers questions; the untrained model and the questions are made once."""
    model, questions = folder / "asked", folder / "questions.json"
    if not model.exists():
        from unmask import huggingface
        from unmask.data.text.tokenizer import Tokenizer
        from unmask.models.bert import Bert

        tokenizer = Tokenizer.load(folder / "model")
        config = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=64)
        huggingface.save(model, config.build(as_heads({"span": 2}), seed=0), tokenizer)
        asked = [{"id": str(i), "question": "bako?", "context": "Bako tara nira."} for i in range(3)]
        questions.write_text(json.dumps(asked), encoding="utf-8")
    return ["predict", "--model", str(model), "--file", str(questions), "--no-answer", "0"]


def _document(rng: np.random.Generator) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.integers(3, 8)))


def _sentence(rng: np.random.Generator) -> str:
    words = rng.choice(WORDS, rng.integers(4, 12), p=_SHARES)
    return f"{' '.join(words).capitalize()}."


_SHARES = np.arange(1, len(WORDS) + 1, dtype=float) ** -1.0
_SHARES /= _SHARES.sum()


def _review(rng: np.random.Generator, number: int) -> str:
    label = number % 2
    return f"{' '.join(rng.choice(WORDS, 5))} {(BAD, GOOD)[label]} {' '.join(rng.choice(WORDS, 3))}\t{label}"


def _pair(rng: np.random.Generator) -> str:
    words = rng.choice(WORDS[:40], rng.integers(2, 6))
    return f"{' '.join(words)}\t{' '.join(words[::-1])}"


class Process:
    """One `unmask` command in a process that is forked from this one, so that slow modules are already imported."""

    def __init__(self, command: Sequence[str], log: Path | None = None, **environment: str) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._be(command, log, environment)

    def kill(self) -> None:
        """Send SIGKILL to this process alone; its workers must notice that it is gone."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> bool:
        """Whether the process has ended; it stays a zombie until `wait`."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def wait(self) -> int:
        """The exit status, as `subprocess` gives it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def orphans(self, patience: float = 30.0) -> bool:
        """Whether processes that it started still exist after `patience` seconds."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.02)
        return True

    def prepare(self) -> None:
        """The first thing that the new process does."""

    def run(self, command: Sequence[str]) -> None:
        """The command."""
        from unmask.cli import main

        main([*command])

    def conclude(self) -> None:
        """The last thing that it does, if it is not killed."""

    def _be(self, command: Sequence[str], log: Path | None, environment: dict[str, str]) -> None:
        status = 70
        try:
            os.setsid()
            os.environ.update(environment)
            sink = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            self.prepare()
            self.run(command)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            self.conclude()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


class Torchrun(Process):
    """The same command in two processes under the agent of torchrun, which restarts both when one dies."""

    def run(self, command: Sequence[str]) -> None:
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        alone: dict[str, Any] = {
            "rdzv_backend": "c10d",
            "rdzv_endpoint": "localhost:0",
            "run_id": self.__class__.__name__,
        }
        watched: dict[str, Any] = {
            "nproc_per_node": 2,
            "max_restarts": 50,
            "monitor_interval": 0.05,
            "start_method": "fork",
        }
        elastic_launch(LaunchConfig(min_nodes=1, max_nodes=1, **alone, **watched), _member)([*command])

    def members(self) -> list[int]:
        """The processes that it watches, by their id."""
        found: list[int] = []
        for thread in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, thread.read_text().split())
        return sorted(found)


def _member(command: list[str]) -> None:
    """One of the processes of `Torchrun`; the agent's own answer to SIGTERM came with the fork."""
    from unmask.cli import main

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main(command)


def trace(folder: Path) -> dict[str, Any]:
    """The results of a run, by file: the numbers of rows of metrics without times; checksums of other files."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.name == "metrics.jsonl":
            found[name] = [untimed(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        elif path.name == "state.json":
            found[name] = untimed(json.loads(path.read_text(encoding="utf-8")))
        elif path.name not in ("report.html", "README.md", ".lock") and not (
            "checkpoints" in name and path.name == "manifest.json"
        ):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of numbers without times."""
    return {name: value for name, value in row.items() if name not in TIMED}


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Names of files that are missing, unexpected, or different."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def far(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Numbers of two traces whose difference is larger than another order of summation explains."""
    if [row["step"] for row in expected] != [row["step"] for row in found]:
        return ["the steps"]
    return [
        f"{name} at step {row['step']} by {abs(value - other[name]):.1e}"
        for row, other in zip(expected, found, strict=True)
        for name, value in row.items()
        if isinstance(value, float) and not math.isclose(value, other[name], rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    ]


def leftovers(folder: Path, job: Job) -> list[str]:
    """Hidden files in the folder of a finished run, and beside it, that should have been removed."""
    inside = [p.relative_to(folder).as_posix() for p in folder.rglob(".*") if p.name not in job.leaves]
    return sorted(inside + [p.name for p in folder.parent.glob(f".{folder.name}.*")])
