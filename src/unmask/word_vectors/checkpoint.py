"""The checkpoint of a run of word2vec: the text as numbers and both layers, from which a run that was killed goes on.

Shapes: V words, R rows of the output layer, D numbers of a vector.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.config import LARGEST, read_json
from unmask.errors import UnmaskError
from unmask.files import atomic, write_text, writing
from unmask.word_vectors.corpus import Corpus
from unmask.word_vectors.settings import Word2Vec
from unmask.word_vectors.vectors import LONGEST

FOLDER, STATE, WORDS, RUN = "checkpoint", "state.safetensors", "words.json", "run.json"


@dataclass
class State:
    """How far a run has come.

    inputs_VD, outputs_RD  both layers
    jobs, total            jobs that are done, from the first on, and all of them
    trained, seconds       words that were trained on so far, and how long that took
    """

    inputs_VD: np.ndarray
    outputs_RD: np.ndarray
    total: int
    jobs: int = 0
    trained: int = 0
    seconds: float = 0.0

    @property
    def shape(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Of the layers, and of the work."""
        return self.inputs_VD.shape, self.outputs_RD.shape, self.total


def there(out: Path) -> bool:
    """Whether a folder holds a run that can go on; one that has ended may have been killed while it tidied up."""
    return (out / FOLDER).is_dir() and (out / RUN).is_file() and not ended(out)


def ended(out: Path) -> bool:
    """Whether the run in a folder came to its end, by its run.json."""
    facts = read_json(out / RUN).get("facts")
    return isinstance(facts, dict) and facts.get("share_done") == 1


def begun(out: Path) -> Word2Vec:
    """The settings of the run in a folder."""
    return Word2Vec.from_dict(read_json(out / RUN).get("config", {}))


def save(out: Path, room: Path, config: Word2Vec, corpus: Corpus, state: State) -> None:
    """Write the state; the first time with the text, whose files move there, and the settings: whole or not at all.

    room  a folder on the same disk, for what is not whole yet
    """
    if there(out):
        _write(out / FOLDER, state)
        return
    begin = room / "begun"
    with writing(begin):
        begin.mkdir()
        os.replace(corpus.folder, begin / FOLDER)
    facts = {"words": corpus.words, "read": corpus.read, "count": len(corpus.ids), "sentences": len(corpus.ends)}
    write_text(begin / FOLDER / WORDS, json.dumps(facts) + "\n")
    write_text(begin / RUN, json.dumps({"recipe": config.recipe, "config": config.to_dict()}, indent=2) + "\n")
    _write(begin / FOLDER, state)
    with writing(out):
        begin.chmod(0o755)
        os.replace(begin, out)


def load(out: Path) -> tuple[Corpus, State]:
    """What `save` wrote. Raises UnmaskError where it is damaged."""
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
    """Forget the checkpoint of a run that has ended."""
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
