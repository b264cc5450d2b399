"""Carries out the stages of a pipeline by an executor of datatrove: on this machine, on Slurm or on Ray."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from datatrove.executor import slurm
from datatrove.executor.base import PipelineExecutor
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.executor.ray import RayPipelineExecutor
from datatrove.executor.slurm import SlurmPipelineExecutor
from loguru import logger

from unmask.data.cores import cores
from unmask.data.text.cleaning.config import Running
from unmask.data.text.cleaning.stages import Stage, Work
from unmask.data.text.cleaning.steps import PASSED_OVER
from unmask.errors import UnmaskError, plural
from unmask.files import write_text

logger.remove()  # datatrove keeps its messages in files, too

ALL = -1  # datatrove's number of workers for all tasks at once
COMPLETE = -1  # its number of a job that is not needed
MOSTLY = 0.8  # share of dropped documents that is pointed out
SHOWN = 10  # files that are named
JOB = "unmask-"  # begins the name of a job of Slurm
LOST = ("dropped", "timeout", "broken_process", "clean_error")  # what datatrove counts of documents that do not pass
_NAME = re.compile(r"[^\w. -]")


def run(work: Work, stages: Sequence[Stage], say: Callable[[str], None]) -> None:
    """Carry out the stages one after another, on this machine or on Ray, and say what each has done. Tasks that were
    complete before are not carried out again.

    Raises UnmaskError for a task that failed, with its reason.
    """
    running = work.config.running
    make = {"local": _local, "ray": _ray}[running.executor]
    for stage in stages:
        executor = make(work, stage)
        with redirect_stderr(io.StringIO()):
            executor.run()
        if missing := executor.get_incomplete_ranks():
            raise UnmaskError(
                f"{plural(len(missing), 'task')} of the stage '{stage.name}' did not finish. Why is in "
                f"{work.at(f'logs/{stage.name}/logs/task_{missing[0]:05d}.log')}; the same command runs them again."
            )
        say(summary(work, stage))


def submit(work: Work, stages: Sequence[Stage]) -> str | None:
    """Submit a job of Slurm for each stage that is not complete, after the one before; returns the number of the last
    job, None if all are complete."""
    chain = _chain(work, stages)
    with redirect_stderr(io.StringIO()):
        chain.run()
    return None if chain.job_id == COMPLETE else str(chain.job_id)


def write_scripts(work: Work, stages: Sequence[Stage]) -> Path:
    """Write what `submit` writes, and a script that submits the jobs, and return the script. The folder is a local
    one."""
    script = Path(work.out) / "submit.sh"
    with _unsubmitted(work) as lines, redirect_stderr(io.StringIO()):
        _chain(work, stages).run()
    write_text(script, "\n".join(["#!/bin/sh", "set -e", *lines]) + "\n")
    return script


def summary(work: Work, stage: Stage) -> str:
    """How many documents a stage has read and kept, what dropped the others, and files that were passed over; from the
    counts of all its tasks."""
    logs = work.out / "logs" / stage.name / "stats"
    counts: dict[str, Counter[str]] = {}
    for rank in range(stage.tasks):
        path = logs / f"{rank:05d}.json"
        for step in json.loads(path.read_bytes()) if path.exists() else []:
            found = counts.setdefault(_NAME.sub("", step["name"].rpartition(": ")[2]).strip(), Counter())
            found.update({k: int(v if isinstance(v, (int, float)) else v["total"]) for k, v in step["stats"].items()})
    lost = {name: sum(found[kind] for kind in LOST) for name, found in counts.items()}
    read = next((found["total"] for found in counts.values()), 0)
    line = f"{stage.name}: {plural(stage.tasks, 'task')} done"
    if read:
        line += f", {plural(read, 'document')}"
    if any(lost.values()):
        by = ", ".join(f"{name} {number:,}" for name, number in lost.items() if number)
        line += f", {read - sum(lost.values()):,} kept (dropped by {by})"
        if stage.advice and sum(lost.values()) > MOSTLY * read:
            line += f"\n  {stage.advice}"
    passed = [name for found in counts.values() for name in found if name.startswith(PASSED_OVER)]
    return "\n".join([line, *(f"  {name}" for name in passed[:SHOWN]), *_rest(len(passed) - SHOWN)])


def _rest(number: int) -> list[str]:
    return [f"  {number:,} more such files"] if number > 0 else []


class Local(LocalPipelineExecutor):
    """Prints nothing, and fails with one sentence, which a process can pass on."""

    def _run_for_rank(self, rank: int, local_rank: int = 0, node_rank: int = -1) -> Any:
        with redirect_stderr(io.StringIO()):
            try:
                return super()._run_for_rank(rank, local_rank, node_rank)
            except UnmaskError as error:
                raise UnmaskError(str(error)) from None
            except Exception as error:
                log = self.logging_dir.resolve_paths(f"logs/task_{rank:05d}.log")
                raise UnmaskError(f"Task {rank} failed: {type(error).__name__}: {error}; its log is {log}.") from None


def _local(work: Work, stage: Stage) -> PipelineExecutor:
    most = min(stage.tasks, workers(work.config.running) or stage.tasks)
    return Local(list(stage.steps), stage.tasks, most, work.at(f"logs/{stage.name}"))


def _ray(work: Work, stage: Stage) -> PipelineExecutor:
    try:
        import ray
    except ImportError:
        raise UnmaskError("The executor ray needs Ray: run pip install ray.") from None
    running = work.config.running
    if not ray.is_initialized():
        ray.init(running.ray)
    return RayPipelineExecutor(
        list(stage.steps),
        stage.tasks,
        running.workers or ALL,
        logging_dir=work.at(f"logs/{stage.name}"),
        mem_per_cpu_gb=_memory(stage, running),
    )


def _chain(work: Work, stages: Sequence[Stage]) -> SlurmPipelineExecutor:
    """The executor of the last stage, which launches those before it."""
    running, before = work.config.running, None
    for stage in stages:
        before = SlurmPipelineExecutor(
            list(stage.steps),
            stage.tasks,
            f"{running.hours}:00:00",
            running.partition,
            mem_per_cpu_gb=_memory(stage, running),
            workers=running.workers or ALL,
            job_name=f"{JOB}{stage.name}",
            qos=None,
            env_command=running.setup,
            depends=before,
            logging_dir=work.at(f"logs/{stage.name}"),
        )
    return before


def workers(running: Running) -> int | None:
    """How many tasks run at once, None for all."""
    return running.workers or (cores() if running.executor == "local" else None)


def _memory(stage: Stage, running: Running) -> int:
    return running.last_memory if stage.last else running.memory


@contextmanager
def _unsubmitted(work: Work) -> Iterator[list[str]]:
    """A context in which datatrove's Slurm executor writes its files but submits no job. Yields the commands that
    submit them, in which a job is a variable of the shell."""
    lines: list[str] = []

    def place(script: str) -> str:
        stage = next(line for line in script.splitlines() if "--job-name=" in line).partition(JOB)[2]
        return work.at(f"logs/{stage}/launch_script.slurm")

    def note(script: str, _: Any, *options: str) -> str:
        if not options:  # the job that adds up the counts of a stage
            return ""
        job = f"job{len(lines) + 1}"
        lines.append(f"{job}=$(sbatch --parsable {' '.join(options)} {shlex.quote(place(script))})")
        return f"${job}"

    submitted = slurm.launch_slurm_job
    slurm.launch_slurm_job = note
    try:
        yield lines
    finally:
        slurm.launch_slurm_job = submitted
