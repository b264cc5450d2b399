"""Transfer of pictures: what a trunk that was trained on some classes gives to other classes, and to other pictures.

    python benchmarks/picture_transfer.py --data DATA --out transfer.json
    python benchmarks/picture_transfer.py --data DATA --part labels --out labels.json

DATA holds cifar10-jpeg/ (train.tar.gz and test.tar.gz, with members train/CLASS/FILE.jpg) and mnist/ (the four IDX
files). Every trunk is pre-trained on seven classes of CIFAR-10. The similar target is the other three classes, the
different one the ten digits of MNIST.

strategies  the accuracy of each strategy, for two trunks, two targets, and two numbers of labelled pictures
labels      the accuracy by the share of the labels of the similar target: from scratch, from trunks that were
            pre-trained with and without labels, and of logistic regressions

The lengths of all runs are steps, so that results do not depend on the load of the machine. Each seed draws its own
labelled pictures, the same ones for every strategy. The model after the last step is scored on test pictures, which
select nothing. The rates are those of `WAYS`, not tuned on these pictures. Fine-tuning does not augment pictures.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import common
from bench.table import markdown
from unmask.errors import UnmaskError, needs
from unmask.files import write_text
from unmask.kernels import devices
from unmask.kernels.processor import settle

SOURCE = ("automobile", "bird", "deer", "dog", "frog", "horse", "ship")
TARGET = ("airplane", "cat", "truck")
DIGITS = tuple(map(str, range(10)))
TRUNKS: dict[str, dict[str, int]] = {"vgg": {}, "vit": {"dim": 96, "layers": 4, "heads": 3, "hidden": 384}}
"""Trunk -> changes of its recipe NAME-tiny."""

WAYS = {
    "frozen": ("frozen", 5e-3),
    "top": ("top", 5e-4),
    "full": ("full", 5e-4),
    "full, high rate": ("full", 5e-3),
}
"""Column of the table -> strategy, and learning rate of AdamW. A trained trunk has a tenth of the rate of the recipes;
a new head alone, and the last column, have that rate itself. From scratch, the optimiser is that of the recipe."""

SCRATCH = "from scratch"
STRATEGIES = (SCRATCH, *WAYS)
STARTS = (SCRATCH, "supervised", "simclr", "mae")
REFERENCES = ("pixels", "hog")
SHARES = (0.01, 0.1, 1.0)
TESTED = 100  # test pictures of a class
FAST = {"source_pictures": 60, "source_steps": 10, "much": 30, "steps": 10, "seeds": 1}
EXACTLY: dict[str, Any] = {"minutes": None, "epochs": 1e-6, "evaluations": 1e-6}  # only `least_steps` counts


# ------------------------------------------------------------------------------------------------ pictures


def unpack(archive: Path, wanted: Mapping[str, int], out: Path) -> None:
    """Write the first pictures of some classes into `out`, in a folder for each class.

    wanted  class -> number of pictures

    Raises UnmaskError if the archive is missing or has fewer.
    """
    if not archive.is_file():
        raise UnmaskError(f"There is no {archive}; say with --data where the pictures are.")
    have = Counter[str]()
    with tarfile.open(archive, "r:gz") as file:
        for member in file:
            _, label, name = [*member.name.split("/"), "", ""][:3]
            if not member.isfile() or have[label] >= wanted.get(label, 0):
                continue
            content = file.extractfile(member)
            assert content is not None
            (out / label).mkdir(parents=True, exist_ok=True)
            (out / label / Path(name).name).write_bytes(content.read())
            have[label] += 1
            if have == Counter(wanted):
                return
    raise UnmaskError(f"{archive} has fewer pictures than asked for: {dict(have)} of {dict(wanted)}.")


def unpack_digits(pictures: Path, labels: Path, count: int, out: Path) -> None:
    """Write the first `count` pictures of each digit of two IDX files as PNG. Raises UnmaskError as `unpack`."""
    for path in (pictures, labels):
        if not path.is_file():
            raise UnmaskError(f"There is no {path}; say with --data where the pictures are.")
    try:
        from PIL import Image
    except ImportError:
        raise needs("Pictures need Pillow", "images") from None

    label_N = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
    pixels_NHW = np.frombuffer(gzip.decompress(pictures.read_bytes()), np.uint8, offset=16).reshape(-1, 28, 28)
    for digit in DIGITS:
        found = np.flatnonzero(label_N == int(digit))[:count]
        if len(found) < count:
            raise UnmaskError(f"{pictures} has only {len(found)} pictures of a {digit}, not {count}.")
        (out / digit).mkdir(parents=True)
        for i in found:
            Image.fromarray(pixels_NHW[i]).save(out / digit / f"{i}.png")


def prepare(data: Path, work: Path, options: argparse.Namespace) -> None:
    """The folders source/, similar/, different/, each with train and test; what is there already is kept."""
    for split, counts in (("train", (options.source_pictures, options.much)), ("test", (TESTED, TESTED))):
        archive = data / "cifar10-jpeg" / f"{split}.tar.gz"
        for name, classes, count in zip(("source", "similar"), (SOURCE, TARGET), counts, strict=True):
            _once(work / name / split, partial(unpack, archive, dict.fromkeys(classes, count)))
        if options.part == "strategies":
            kind = "train" if split == "train" else "t10k"
            pictures, labels = (data / "mnist" / f"{kind}-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1"))
            _once(work / "different" / split, partial(unpack_digits, pictures, labels, counts[1]))


def _once(out: Path, make: Callable[[Path], object]) -> None:
    """Make a folder, unless it is there."""
    if out.exists():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".") as folder:
        make(Path(folder) / "whole")
        (Path(folder) / "whole").rename(out)


def draw(pictures: Path, count: int, seed: int, table: Path) -> int:
    """Write a table of `count` pictures of each class, drawn by the seed; a smaller draw is part of a larger one.
    Returns the number of its rows."""
    rows = []
    for folder in sorted(path for path in pictures.iterdir() if path.is_dir()):
        files = sorted(folder.iterdir())
        order = np.random.default_rng(seed).permutation(len(files))[:count]
        rows += [(str(files[i].resolve()), folder.name) for i in order]
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("picture", "label"), *rows])
    return len(rows)


# ------------------------------------------------------------------------------------------------ runs


def recipe(trunk: str, options: argparse.Namespace) -> Any:
    """The recipe of a trunk from new weights, at its sizes here, for an exact number of steps."""
    from unmask.runs import supervised_recipes

    found = supervised_recipes.find(f"{trunk}-tiny")
    return found.override({**TRUNKS[trunk], **EXACTLY, **computing(options)})


def computing(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of every run that do not change what is learned."""
    return {name: vars(options)[name] for name in ("device", "precision", "workers")}


def trained(trunk: str, work: Path, options: argparse.Namespace) -> Path:
    """A folder with the trunk and the classifier of the source classes; with augmentation, as the recipe has it."""
    from unmask.runs.finetuning import finetune

    source = {"train": work / "source" / "train", "dev": work / "source" / "test"}
    config = recipe(trunk, options).override({**source, "least_steps": options.source_steps})
    _once(work / "trunks" / trunk, lambda out: finetune(config, out))
    return work / "trunks" / trunk


def pretrained(method: str, work: Path, options: argparse.Namespace) -> Path:
    """A folder of a ViT that was pre-trained on the source pictures without their labels."""
    from unmask.runs import recipes
    from unmask.runs.pretraining import Pretrain

    settings = {"steps": options.source_steps, "minutes": None, "heldout": 64}
    config = recipes.find(f"{method}-tiny").override({**TRUNKS["vit"], **settings, **computing(options)})
    _once(work / "trunks" / method, lambda out: Pretrain(config, [work / "source" / "train"], out).run())
    return work / "trunks" / method


def accuracy(
    trunk: str, folder: Path | None, way: str, table: Path, seed: int, *, test: Path, options: argparse.Namespace
) -> float:
    """The accuracy on the test pictures after the last step.

    folder  of the trained trunk; None: new weights
    way     a column of `WAYS`, for a trained trunk
    table   the labelled pictures
    """
    from unmask.runs.finetuning import FineTuning, finetune

    if folder is None:  # plain pictures, as the other starts have them
        config = recipe(trunk, options).override({"padding": 0, "flip": 0.0, "smoothing": 0.0})
    else:
        strategy, rate = WAYS[way]
        config = FineTuning(model=folder, task=recipe(trunk, options).task).override({**EXACTLY, "lr": rate})
        config = config.override({"strategy": strategy, **computing(options)})
    rows = {"train": table, "dev": test, "least_steps": options.steps, "batch_size": 32, "seed": seed, "seeds": 1}
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as out:
        result = finetune(config.override(rows), Path(out) / "run")
    return float(result.seeds[0]["dev"]["accuracy"])


def reference(task: str, name: str, table: Path, seed: int, *, test: Path) -> float:
    """The accuracy of a plain reference of the task, which has no seed of its own."""
    from unmask.runs.finetuning.baselines import Baselines, baselines

    config = Baselines().override({"task": task, "train": table, "dev": test})
    return float(baselines(config, say=lambda _: None)["scores"][name]["dev"]["accuracy"])


def scored(seeds: int, pictures: Path, count: int, score: Callable[[Path, int], float]) -> dict[str, Any]:
    """Mean and deviation over the seeds of `score(table, seed)`, on tables of `count` pictures of each class."""
    scores, rows = [], 0
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        for seed in range(seeds):
            table = Path(folder) / f"{seed}.csv"
            rows = draw(pictures, count, seed, table)
            scores.append(score(table, seed))
    mean, deviation = common.mean_and_deviation(scores)
    return {"pictures": rows, "scores": scores, "mean": mean, "deviation": deviation}


# ------------------------------------------------------------------------------------------------ the two parts

Cell = tuple[dict[str, Any], Path, int, Callable[[Path, int], float]]
"""The names of a cell, the pictures of its target, the number of each class, and the score of a seed."""


def strategies(work: Path, options: argparse.Namespace) -> Iterator[Cell]:
    """Every strategy in every cell of the table."""
    for trunk in options.trunks:
        folder = trained(trunk, work, options)
        for domain in ("similar", "different"):
            for amount in ("little", "much"):
                for way in STRATEGIES:
                    names = {"trunk": trunk, "domain": domain, "amount": amount, "way": way}
                    start = None if way == SCRATCH else folder
                    score = partial(accuracy, trunk, start, way, options=options, test=work / domain / "test")
                    yield names, work / domain / "train", vars(options)[amount], score


def labels(work: Path, options: argparse.Namespace) -> Iterator[Cell]:
    """Every start, and the references, at every share of the labels."""
    test = work / "similar" / "test"
    folders = {SCRATCH: None, "supervised": options.supervised or trained("vit", work, options)}
    folders |= {name: vars(options)[name] or pretrained(name, work, options) for name in STARTS[2:]}
    ways = {
        name: partial(accuracy, "vit", folder, "full", options=options, test=test) for name, folder in folders.items()
    }
    task = recipe("vit", options).task
    ways |= {name: partial(reference, task, name, test=test) for name in REFERENCES}
    for share in options.shares:
        for way, score in ways.items():
            names = {"share": share, "way": way}
            yield names, work / "similar" / "train", max(1, round(share * options.much)), score


def measure(cells: Iterable[Cell], facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Measure the cells that the results lack, and write the results after each."""
    for names, pictures, count, score in cells:
        if any(names.items() <= cell.items() for cell in facts["cells"]):
            continue
        found = scored(options.seeds, pictures, count, score)
        facts["cells"].append({**names, **found})
        print(*names.values(), f"{found['mean']:.3f} ± {found['deviation']:.3f}", flush=True)
        if options.out is not None:
            common.write_json(Path(options.out), facts)


def table_of(cells: Sequence[Mapping[str, Any]]) -> str:
    """The cells as a table in percent, with the best mean of each row in bold and a column for each way."""
    ways = list(dict.fromkeys(cell["way"] for cell in cells))
    names = [name for name in ("trunk", "domain", "amount", "share") if name in cells[0]]
    rows: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        key = tuple(f"{cell[name]:.0%}" if name == "share" else cell[name] for name in names)
        rows.setdefault((*key, f"{cell['pictures']:,}"), {})[cell["way"]] = cell
    shown = [[*names, "pictures", *ways]]
    for key, found in rows.items():
        best = max(cell["mean"] for cell in found.values())
        texts = {way: f"{100 * cell['mean']:.1f} ± {100 * cell['deviation']:.1f}" for way, cell in found.items()}
        marked = {way: f"**{text}**" if found[way]["mean"] == best else text for way, text in texts.items()}
        shown.append([*key, *(marked.get(way, "") for way in ways)])
    return markdown(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--part", choices=["strategies", "labels"], default="strategies")
    parser.add_argument("--trunks", nargs="+", choices=list(TRUNKS), default=list(TRUNKS), help="of the strategies")
    parser.add_argument("--little", type=int, default=10, help="labelled pictures of a class, where they are few")
    parser.add_argument("--much", type=int, default=1_000, help="all labelled pictures of a class of a target")
    parser.add_argument("--source-pictures", type=int, default=3_000, help="pictures of a class of the source")
    parser.add_argument("--source-steps", type=int, default=2_000, help="steps of each training on the source")
    parser.add_argument("--steps", type=int, default=300, help="steps of 32 pictures of each run on a target")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help=f"check that everything runs: {FAST}")
    for name in STARTS[1:]:
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER", help="trunk of the part labels, if there is one")
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES, help="of the labels, in the part labels")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare the pictures of a run")
    parser.add_argument(
        "--work", type=Path, help="folder that keeps the pictures and the trunks (default: none is kept)"
    )
    parser.add_argument("--out", help="write everything as JSON, after every cell")
    parser.add_argument("--resume", action="store_true", help="skip the cells that the file of --out holds")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(FAST)
    options.device = str(devices.choose(options.device))
    options.precision = settle(options.precision, options.device).precision
    import torch

    torch.set_num_threads(options.threads)
    fixed = ("part", "little", "much", "source_pictures", "source_steps", "steps", "seeds", "precision", "device")
    facts = common.begin(options, {name: vars(options)[name] for name in fixed}, cells=[])
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        work = options.work or Path(folder)
        prepare(options.data, work, options)
        parts = {"strategies": strategies, "labels": labels}
        measure(parts[options.part](work, options), facts, options)
    text = table_of(facts["cells"])
    print(f"\n{text}")
    if options.out is not None:
        write_text(Path(options.out).with_suffix(".md"), text + "\n")


if __name__ == "__main__":
    common.command(main)
