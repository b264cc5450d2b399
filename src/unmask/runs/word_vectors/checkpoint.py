"""The checkpoint of a word2vec run, from which a killed run continues: the text as numbers and both layers; and the
settings of the run, which are written before.

Shapes: V words, R rows of the output layer, D numbers of a vector.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config import LARGEST, read_json
from unmask.errors import UnmaskError
from unmask.files import atomic, write_text, writing
from unmask.runs.word_vectors.corpus import Corpus
from unmask.runs.word_vectors.settings import Word2Vec
from unmask.runs.word_vectors.vectors import LONGEST

FOLDER, STATE, WORDS, RUN = "checkpoint", "state.safetensors", "words.json", "run.json"


@dataclass
class State:
    """The progress of a run.

    inputs_VD, outputs_RD  both layers
    jobs, total            number of finished jobs, and of all jobs
    trained, seconds       number of words trained on so far, and the time of the training
    """

    inputs_VD: np.ndarray
    outputs_RD: np.ndarray
    total: int
    jobs: int = 0
    trained: int = 0
    seconds: float = 0.0

    @property
    def shape(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """The shapes of the layers, and the number of jobs."""
        return self.inputs_VD.shape, self.outputs_RD.shape, self.total


def there(out: Path) -> bool:
    """Whether a folder holds a run that can be resumed. The checkpoint alone does not show it: a run that has ended may
    have been killed before it removed its checkpoint."""
    return (out / FOLDER).is_dir() and (out / RUN).is_file() and not ended(out)


def ended(out: Path) -> bool:
    """Whether the run in a folder is complete, by its run.json."""
    facts = read_json(out / RUN).get("facts")
    return isinstance(facts, dict) and facts.get("share_done") == 1


@dataclass(frozen=True)
class Asked:
    """The settings of a run, which are written to run.json before the text is read.

    threads  number of threads; None for a run of an older version
    files    files of the text; empty: the installed documentation; None: the text was passed as sentences
    """

    config: Word2Vec
    threads: int | None
    files: tuple[str, ...] | None

    def write(self, out: Path, facts: Mapping[str, Any] | None = None) -> None:
        """Write run.json, at the end with the `facts` of the result."""
        found: dict[str, Any] = {"recipe": self.config.recipe, "config": self.config.to_dict(), "threads": self.threads}
        found |= {} if self.files is None else {"files": list(self.files)}
        found |= {} if facts is None else {"facts": dict(facts)}
        write_text(out / RUN, json.dumps(found, indent=2) + "\n")


def begun(out: Path) -> Asked:
    """The settings of the run in a folder. Raises UnmaskError if its run.json is damaged or not one of word2vec."""
    found = read_json(out / RUN)
    threads, files = found.get("threads"), found.get("files")
    if not isinstance(threads, int | None) or not isinstance(files, list | None):
        raise UnmaskError(f"{out / RUN} is damaged; remove {out} and start again.")
    config = Word2Vec.from_dict(found.get("config", {}))
    return Asked(config, threads, None if files is None else tuple(map(str, files)))


def save(out: Path, room: Path, corpus: Corpus, state: State) -> None:
    """Write the state, and the first time also the text, by moving its files; whole or not at all.

    room  a temporary folder on the same disk
    """
    if there(out):
        _write(out / FOLDER, state)
        return
    begin = room / "begun"
    with writing(begin):
        os.replace(corpus.folder, begin)
    facts = {"words": corpus.words, "read": corpus.read, "count": len(corpus.ids), "sentences": len(corpus.ends)}
    write_text(begin / WORDS, json.dumps(facts) + "\n")
    _write(begin, state)
    with writing(out):
        os.replace(begin, out / FOLDER)


def load(out: Path) -> tuple[Corpus, State]:
    """Read the result of `save`. Raises UnmaskError if it is damaged."""
    state = _read(out / FOLDER / STATE)
    facts = read_json(out / FOLDER / WORDS, max(LARGEST, LONGEST * len(state.inputs_VD)))
    try:
        corpus = Corpus.open(out / FOLDER, facts["words"], facts["read"])
        sound = [facts["count"], facts["sentences"]] == [len(corpus.ids), len(corpus.ends)]
        sound = sound and len(corpus.words) == len(state.inputs_VD)
    except (OSError, KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise UnmaskError(f"The text in {out / FOLDER} is damaged; remove {out} and start again.")
    return corpus, state


def remove(out: Path) -> None:
    """Remove the checkpoint of a run that has ended."""
    shutil.rmtree(out / FOLDER, ignore_errors=True)


def _write(folder: Path, state: State) -> None:
    from safetensors.numpy import save_file

    facts = {name: str(getattr(state, name)) for name in ("total", "jobs", "trained", "seconds")}
    with atomic(folder / STATE) as temporary:
        save_file({"inputs": state.inputs_VD, "outputs": state.outputs_RD}, temporary, metadata=facts)


def _read(path: Path) -> State:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            facts = file.metadata() or {}
            inputs_VD, outputs_RD = (np.require(file.get_tensor(x), np.float32, "W") for x in ("inputs", "outputs"))
        total, jobs, trained = (int(facts[name]) for name in ("total", "jobs", "trained"))
        return State(inputs_VD, outputs_RD, total, jobs, trained, float(facts["seconds"]))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UnmaskError(f"{path} cannot be read ({error}); remove {path.parents[1]} and start again.") from None
