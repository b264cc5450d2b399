"""Captions of digits on a grid: exact captions of a captioner on pictures of digits that no training picture has.

    python benchmarks/captioning.py --mnist DATA/mnist --out runs/captions

DATA/mnist holds the four IDX files of MNIST. The training pictures are composed of its training digits, the test
pictures of its test digits. The length of the run is in steps, so that the result does not depend on the load of the
machine. Scores are the shares of exact captions: of the model, of one caption for all pictures, and of the captions
that the model writes for other pictures of the test (shuffled), which must not be right.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from unmask.data.pictures.captions import captioned
from unmask.data.pictures.compositions import Digits, compositions, write
from unmask.files import write_text
from unmask.metrics.translation import exact_match_accuracy
from unmask.runs.translation import TrainTranslation, systems
from unmask.runs.translation.plain import frequent
from unmask.serve.translator import Translator
from unmask.train.display import Terminal

FILES = {"train": "train-images-idx3-ubyte.gz", "test": "t10k-images-idx3-ubyte.gz"}


def main() -> None:
    options = parse()
    for number, (name, count) in enumerate((("train", options.pictures), ("test", options.test))):
        if not (options.out / name).is_dir():
            rng = np.random.default_rng([options.seed, number])
            write(options.out / name, list(compositions(Digits.of_idx(options.mnist / FILES[name]), count, rng)))
    config = systems.find("captioner").replace(
        texts={"train": (str(options.out / "train"),), "most": None, "metric": "exact"},
        training={"minutes": None, "steps": options.steps, "seed": options.seed},
    )
    began = time.process_time()
    folder = options.out / "run"
    resume = folder.is_dir()
    TrainTranslation(config, folder, recipe="captioner", resume=resume, display=Terminal()).run()
    found = scores(folder, options.out) | {"steps": options.steps, "seconds": round(time.process_time() - began)}
    write_text(options.out / "scores.json", json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def scores(folder: Path, data: Path) -> dict[str, float]:
    """The shares of exact captions, and the number of different ones."""
    train, test = captioned(data / "train"), captioned(data / "test")
    texts = Translator(folder)(test.sources)
    shuffled = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
    ways = {"model": texts, "one caption": [frequent(train)] * len(test), "captions of other pictures": shuffled}
    return {
        **{name: exact_match_accuracy(way, test.targets) for name, way in ways.items()},
        "test pictures": len(test),
        "different captions": len(set(texts)),
        "different references": len(set(test.targets)),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=Path, required=True, metavar="FOLDER", help="the IDX files of MNIST")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="pictures, run and scores.json")
    parser.add_argument("--pictures", type=int, default=10_000, metavar="N", help="training pictures")
    parser.add_argument("--test", type=int, default=1_000, metavar="N", help="test pictures")
    parser.add_argument("--steps", type=int, default=1_500, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    main()
