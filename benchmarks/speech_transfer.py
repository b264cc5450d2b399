"""Speech without labels: what a trunk knows, by the minutes of recordings that it was pre-trained on.

    python benchmarks/speech_transfer.py --data DATA --out speech_transfer.json

DATA holds fsdd/recordings.tar.gz, speech-commands/train.tar.gz, ljspeech-mini/wavs.tar.gz and yesno/waves_yesno.tar.gz.
Two targets have speakers that no training reads, with or without labels: the digits of FSDD (speakers HELD_OUT) and
the words of Speech Commands (one speaker in three, by a hash of the name).

A trunk is pre-trained by each recipe on the first 3, 10, ... minutes of all other recordings, in one random order, for
the same number of steps. Its states, which are not trained further, are scored by a logistic regression on the mean
state of a recording: the best of all layers is shown, as it is for the untrained trunk. Then the whole model is
fine-tuned. The references are the regression on mel-frequency cepstra and `unmask train mfcc-cnn-tiny`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import common
from bench.table import markdown
from unmask.errors import UnmaskError
from unmask.kernels import devices
from unmask.kernels.processor import settle

ARCHIVES = {
    "fsdd": "recordings.tar.gz", "speech-commands": "train.tar.gz", "ljspeech-mini": "wavs.tar.gz",
    "yesno": "waves_yesno.tar.gz",
}  # fmt: skip
HELD_OUT = ("theo", "yweweler")
TARGETS = ("digits", "words")
FAST = {"minutes": [1.0], "steps": 5, "tuned": 5, "seeds": 1, "most": 40, "recipes": ["wav2vec2-tiny"]}
EXACTLY: dict[str, Any] = {"minutes": None, "epochs": 1e-6, "evaluations": 1e-6}  # only `least_steps` counts


def unpack(data: Path, out: Path) -> None:
    """Unpack the archives. Raises UnmaskError if one is missing."""
    for name, archive in ARCHIVES.items():
        path = data / name / archive
        if not path.is_file():
            raise UnmaskError(f"There is no {path}; say with --data where the recordings are.")
        with tarfile.open(path, "r:gz") as file:
            file.extractall(out / name, filter="data")


def targets(work: Path, most: int) -> tuple[dict[str, dict[str, Path]], list[Path]]:
    """For each target the tables of training and test rows, and the recordings that pre-training may read.

    most  rows of a table at most; 0: all
    """
    rows: dict[str, dict[str, list[tuple[Path, str]]]] = {name: {"train": [], "test": []} for name in TARGETS}
    for path in sorted((work / "fsdd").rglob("*.wav")):
        digit, speaker, _ = path.stem.split("_")
        rows["digits"]["test" if speaker in HELD_OUT else "train"].append((path, digit))
    for path in sorted((work / "speech-commands").rglob("*.wav")):
        number = hashlib.sha256(path.stem.partition("_")[0].encode()).digest()[0]
        rows["words"]["test" if number % 3 == 0 else "train"].append((path, path.parent.name))
    tables: dict[str, dict[str, Path]] = {}
    for name, parts in rows.items():
        for part, found in parts.items():
            order = np.random.default_rng(0).permutation(len(found))[: most or None]
            table = work / f"{name}-{part}.csv"
            with table.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("path", "label"), *((str(found[i][0]), found[i][1]) for i in order)])
            tables.setdefault(name, {})[part] = table
    free = [path for parts in rows.values() for path, _ in parts["train"]]
    return tables, free + [path for name in ("ljspeech-mini", "yesno") for path in sorted((work / name).rglob("*.wav"))]


def draw(recordings: Sequence[Path], minutes: float, out: Path) -> float:
    """Copy the first recordings of a random order, `minutes` of them, into a folder. Returns their minutes."""
    from unmask.data.recordings.decoding import header

    out.mkdir(parents=True)
    seconds = 0.0
    for i in np.random.default_rng(0).permutation(len(recordings)):
        if seconds >= 60 * minutes:
            break
        seconds += header(recordings[i]).seconds
        shutil.copy(recordings[i], out / f"{i}-{recordings[i].name}")
    return seconds / 60


# ------------------------------------------------------------------------------------------------ runs


def pretrained(recipe: str, recordings: Path, out: Path, options: argparse.Namespace) -> Path:
    """A trunk after exactly `--steps` steps."""
    from unmask.runs import recipes
    from unmask.runs.pretraining import Pretrain

    config = recipes.find(recipe).override({"steps": options.steps, "minutes": None, **computing(options)})
    Pretrain(config, [recordings], out).run()
    return out


def computing(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of every run that do not change what is learned."""
    return {name: vars(options)[name] for name in ("device", "precision")}


def probed(trunk: Path, tables: Mapping[str, Path]) -> dict[str, list[float]]:
    """Accuracy of a regression on each layer of the trunk, of the untrained one, and on cepstra."""
    from unmask.runs.finetuning.layer_probing import probe_layers
    from unmask.runs.finetuning.probing import Probing

    given = {"model": trunk, "train": tables["train"], "dev": tables["test"], "task": "speech-classification"}
    found = probe_layers(Probing().override(given), lambda _: None)
    return {name: [float(np.mean(scores)) for scores in layers] for name, layers in found["scores"].items()}


def tuned(start: Path | str, tables: Mapping[str, Path], seed: int, options: argparse.Namespace) -> float:
    """The test accuracy after exactly `--tuned` steps. `start` is a folder, or the name of a recipe."""
    from unmask.runs import supervised_recipes
    from unmask.runs.finetuning import FineTuning, finetune

    if isinstance(start, str):
        config = supervised_recipes.find(start).override(EXACTLY)
    else:
        given = {**EXACTLY, "lr": options.lr}
        config = FineTuning(model=start, task="speech-classification").override(given)
    rows = {"train": tables["train"], "dev": tables["test"], "least_steps": options.tuned, "seed": seed, "seeds": 1}
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as out:
        result = finetune(config.override({**rows, **computing(options)}), Path(out) / "run")
    return float(result.seeds[0]["dev"]["accuracy"])


def over_seeds(options: argparse.Namespace, score: Callable[[int], float]) -> dict[str, Any]:
    scores = [score(seed) for seed in range(options.seeds)]
    mean, deviation = common.mean_and_deviation(scores)
    return {"scores": scores, "mean": mean, "deviation": deviation}


def untrained(recipe: str, out: Path, options: argparse.Namespace) -> Path:
    """The trunk of a recipe with new weights, in a folder."""
    from unmask import huggingface
    from unmask.data.recordings.processor import RecordingProcessor
    from unmask.runs import recipes

    config = recipes.find(recipe)
    processor = config.objective.processor(RecordingProcessor().for_model(config.model))
    huggingface.save(out, config.model.build({}, seed=0), processor)
    return out


def measure(work: Path, facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Measure every cell, and write the results after each."""
    unpack(options.data, work)
    tables, free = targets(work, options.most)

    def keep(target: str, name: str, cell: Mapping[str, Any]) -> None:
        facts["cells"].append({"target": target, "name": name, **cell})
        print(target, name, {k: v for k, v in cell.items() if k != "layers"}, flush=True)
        if options.out is not None:
            common.write_json(Path(options.out), facts)

    def known(target: str, name: str, minutes: float | None) -> bool:
        cell = {"target": target, "name": name, "minutes": minutes}
        return any(cell.items() <= one.items() for one in facts["cells"])

    folders = {minutes: work / f"{minutes:g}" for minutes in options.minutes}
    found = {minutes: draw(free, minutes, folder) for minutes, folder in folders.items()}
    for recipe in options.recipes:
        starts = {0.0: untrained(recipe, work / f"{recipe}-0", options)}
        starts |= {
            found[minutes]: pretrained(recipe, folder, work / f"{recipe}-{minutes:g}", options)
            for minutes, folder in folders.items()
        }
        for target in TARGETS:
            for minutes, start in starts.items():
                if known(target, recipe, minutes):
                    continue
                layers = probed(start, tables[target])
                best = max(layers["trunk"])
                fine = over_seeds(options, lambda seed, s=start, t=tables[target]: tuned(s, t, seed, options))  # type: ignore[misc]
                keep(target, recipe, {"minutes": minutes, "probe": best, "layers": layers, **fine})
    for target in (target for target in TARGETS if not known(target, "mfcc-cnn-tiny", None)):
        plain = over_seeds(options, lambda seed, t=tables[target]: tuned("mfcc-cnn-tiny", t, seed, options))  # type: ignore[misc]
        keep(target, "mfcc-cnn-tiny", {"minutes": None, "probe": None, **plain})


def table_of(cells: Sequence[Mapping[str, Any]]) -> str:
    """Percent: the regression on the best layer, and the fine-tuned model."""
    shown = [["target", "model", "minutes without labels", "regression on states", "fine-tuned"]]
    for cell in cells:
        minutes = "" if cell["minutes"] is None else f"{cell['minutes']:.0f}"
        probe = "" if cell["probe"] is None else f"{100 * cell['probe']:.1f}"
        shown.append(
            [cell["target"], cell["name"], minutes, probe, f"{100 * cell['mean']:.1f} ± {100 * cell['deviation']:.1f}"]
        )
    for cell in (one for one in cells if one.get("layers")):
        [cepstra] = cell["layers"]["cepstra"]
        row = [cell["target"], "mel-frequency cepstra", "", f"{100 * cepstra:.1f}", ""]
        if row not in shown:
            shown.append(row)
    return markdown(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--recipes", nargs="+", default=["wav2vec2-tiny", "hubert-tiny", "cpc-tiny"])
    parser.add_argument(
        "--minutes", nargs="+", type=float, default=[3.0, 10.0, 60.0], help="of recordings without labels"
    )
    parser.add_argument("--steps", type=int, default=2_000, help="steps of each pre-training")
    parser.add_argument("--tuned", type=int, default=400, help="steps of each fine-tuning")
    parser.add_argument("--lr", type=float, default=1e-3, help="rate of fine-tuning a trunk")
    parser.add_argument("--most", type=int, default=0, help="rows of a table at most (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help=f"check that everything runs: {FAST}")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", help="write everything as JSON, after every cell")
    parser.add_argument("--resume", action="store_true", help="skip the cells that the file of --out holds")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(FAST)
    options.device = str(devices.choose(options.device))
    options.precision = settle(options.precision, options.device).precision
    import torch

    torch.set_num_threads(options.threads)
    fixed = ("recipes", "minutes", "steps", "tuned", "lr", "most", "seeds", "precision", "device")
    facts = common.begin(options, {name: vars(options)[name] for name in fixed}, cells=[])
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        measure(Path(folder), facts, options)
    print(f"\n{table_of(facts['cells'])}")
    common.write(options.out, facts)


if __name__ == "__main__":
    common.command(main)
