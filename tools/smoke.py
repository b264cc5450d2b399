"""Installs what `make release` built into a bare environment, and uses it there as a newcomer would.

    python tools/smoke.py dist                 # the wheel, then the source archive in its place; some minutes

The environment has this Python, the package and what it requires, and nothing else. The commands run in an empty
folder outside the checkout: help, a corpus of generated text, two steps of pre-training, a prediction, the files of
the page. A script of a client is checked by mypy: the package is typed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from unmask import __version__

ROOT = Path(__file__).resolve().parents[1]
SMALLEST = "--model.layers 1 --model.dim 8 --model.hidden 8 --model.heads 2 --batch-size 2 --precision fp32"
COMMANDS = (
    "--version",
    "--help",
    "corpus build --data text.txt --per line --out corpus --vocabulary-size 60",
    f"pretrain bert-tiny --corpus corpus --sentences none --steps 2 --out run {SMALLEST}",
    'predict --model run "this is line [MASK]" --json',
)
CLIENT = """\
from importlib.resources import files

import unmask

predictor = unmask.Predictor("run")
answers = predictor(["this is line [MASK]"])
assert len(answers[0]["masks"]) == 1
model = unmask.load("run")
assert not model.training
assert "<html" in files("unmask").joinpath("page", "index.html").read_text()
print(unmask.__version__)
"""
MISTYPED = "import unmask\n\nunmask.load(1)\n"


def main(folder: Path) -> None:
    torch = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert torch is not None
    with tempfile.TemporaryDirectory(prefix="unmask-smoke-") as place:
        bare = Path(place) / "bare"
        venv.create(bare, with_pip=True)
        pip: list[str | Path] = [bare / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
        wheel, archive = (next(folder.resolve().glob(f"unmask-{__version__}{end}")) for end in ("-*.whl", ".tar.gz"))
        run([*pip, torch[0], wheel], bare)
        use(bare, Path(place) / "wheel")
        run([*pip, "--force-reinstall", "--no-deps", archive], bare)
        use(bare, Path(place) / "archive")
    print(f"smoke: {wheel.name} and {archive.name} install, train, predict and are typed.")


def use(bare: Path, place: Path) -> None:
    """Use what is installed in an environment, in a new folder. Raises CalledProcessError."""
    place.mkdir()
    (place / "text.txt").write_text("".join(f"This is line {i} of a text.\n" for i in range(60)), encoding="utf-8")
    for words in COMMANDS:
        run(["sh", "-c", f"{bare}/bin/unmask {words}"], place)
    for name, text in (("client.py", CLIENT), ("mistyped.py", MISTYPED)):
        (place / name).write_text(text, encoding="utf-8")
    run([bare / "bin" / "python", "client.py"], place)
    typed = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", bare / "mypy"]
    typed += ["--python-executable", bare / "bin" / "python"]
    run([*typed, "client.py"], place)
    if run([*typed, "mistyped.py"], place, check=False).returncode != 1:
        sys.exit("smoke: mypy finds no fault in a script with one: the package is not typed.")


def run(words: list[str | Path], place: Path, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with nothing of the checkout on its path; print what it said if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, cwd=place, env=clean, capture_output=True, text=True)
    if check and done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        done.check_returncode()
    return done


if __name__ == "__main__":
    main(Path(sys.argv[1]))
