"""Continued pre-training: the folder that a run starts from, and the checks of a resumed run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unmask import huggingface
from unmask.config import Config, read_json
from unmask.data.processor import Processor
from unmask.errors import UnmaskError
from unmask.files import sha256
from unmask.models.model import Model, ModelConfig
from unmask.models.rebuilding import rebuilt
from unmask.nn import VocabularyHead
from unmask.objectives import ObjectiveConfig, registry
from unmask.objectives.config import Data
from unmask.runs.report import run_facts
from unmask.train import checkpoint
from unmask.types import Head

TRAINED = ("dropout", "embedding_dropout", "attention_dropout", "hidden_dropout", "head_dropout", "drop_path", "tbptt")
"""Fields of a model that are training settings; all others, except `ModelConfig.unweighted`, belong to its weights."""

STARTED = ("std", "cutoff", "positions", "vocabulary", "padding", "start", "end")
"""Fields of a model that only new weights need, or that the tokenizer determines."""


@dataclass(frozen=True)
class Origin:
    """The folder whose weights a pre-training run continues from (Gururangan et al. 2020, "Don't stop pretraining").

    folder  name of the folder
    place   where the weights are read: the folder or, for a resumed run, the newest checkpoint of the run, so that it
            continues even if the folder no longer exists
    stored  the loaded folder, with its heads
    facts   its facts for run.json: the folder and the SHA-256 of its weight files
    """

    folder: str
    place: Path
    stored: huggingface.Loaded
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str, run: Path | None = None) -> Origin:
        """Read a folder; `run` is the folder of a run that is resumed. Raises UnmaskError if there is no model."""
        for place in _checkpoints(run):
            try:
                stored = opened(place)
            except UnmaskError:  # damaged: the trainer reports it, and continues from the checkpoint before
                continue
            return cls(folder, place, stored, read_json(place / "run.json").get("origin", {}))
        stored = opened(folder)
        weights = {path.name: sha256(path) for path in sorted(Path(folder).glob("*.safetensors"))}
        return cls(folder, Path(folder), stored, {"folder": str(folder), "weights": weights})

    @property
    def model(self) -> ModelConfig:
        """The sizes of the model."""
        return self.stored.model.config

    def check(self, corpora: Sequence[Data], objective: ObjectiveConfig, model: ModelConfig) -> None:
        """Raises UnmaskError if the processor of a corpus, such as its tokenizer, differs from that of the folder.

        model  the settled sizes of the model
        """
        processor = huggingface.fitted(self.stored.require_processor(self.folder), model)
        for corpus in corpora:
            own = huggingface.fitted(objective.processor(corpus.processor), model)
            if own.fingerprint != processor.fingerprint:
                raise UnmaskError(objective.mismatch(corpus.folder, self.folder))

    def settle(self, wanted: Config, settings: Mapping[str, Any]) -> ModelConfig:
        """The sizes of the folder with the dropout and the unweighted fields of `wanted`, and with the settings of the
        objective.

        Raises UnmaskError if `wanted` has other sizes.
        """
        own = {name: value for name, value in settings.items() if hasattr(wanted, name)}
        stored, given = self.model.replace(**settings).to_dict(), wanted.replace(**own).to_dict()
        free = {*TRAINED, *self.model.unweighted}
        for name in stored.keys() - {*free, *STARTED}:
            if stored[name] != given.get(name):
                raise UnmaskError(
                    f"Continued pre-training keeps the sizes of the model: {name} is {stored[name]} in {self.folder}, "
                    f"not {given.get(name)}; leave it out, or use Pretraining.starting_from."
                )
        return self.model.replace(**{name: given[name] for name in free & stored.keys()}, **settings)

    def build(
        self,
        config: ModelConfig,
        heads: Mapping[str, Head],
        seed: int,
        frequencies: Callable[[], np.ndarray],
    ) -> tuple[Model, str]:
        """The model with these heads, and sentences on the heads that are new or left out.

        frequencies  function that returns [V], the log of the share of each token in the text: the initial bias of a
                     new masked-token head, so that its first gradients do not only teach the trunk that "the" is
                     frequent
        """
        loaded = opened(self.place, heads, seed)
        model = rebuilt(loaded.model, config, heads)
        for name in loaded.new:
            if name in heads and not heads[name].outputs:  # one output for each entry of the vocabulary
                _fill(model.heads[name], frequencies())
        parts = [f"{self.folder} has no {_label(part)}: it is new, and trained from scratch." for part in loaded.new]
        if loaded.dropped:
            dropped = ", ".join(_label(part) for part in loaded.dropped)
            parts.append(f"Not trained here, and so not part of the result: the {dropped}.")
        return model, " ".join(parts)


def opened(folder: Path | str, heads: Mapping[str, Head] | None = None, seed: int = 0) -> huggingface.Loaded:
    """Load a folder that pre-training can continue from, by `huggingface.load`; a T5 keeps its head.

    Raises UnmaskError for other encoder–decoders, which learn from pairs of texts.
    """
    if not huggingface.holds_encoder_decoder(folder):
        return huggingface.load(folder, huggingface.SINGLE_STACK, heads=heads, seed=seed)
    loaded = huggingface.load(folder)
    if not loaded.model.config.offers:
        raise UnmaskError(f"{folder} holds a model that learns from pairs of texts: continue with unmask train --from.")
    return loaded


def resumed_words(run: Path, corpora: Sequence[Data], processor: Processor[Any]) -> tuple[str, ...]:
    """The words that a resumed run from new weights predicts, if its objective predicts words (`Loaded.words`).

    processor  the processor of the objective on these corpora

    Raises UnmaskError if the run began with another processor.
    """
    for place in _checkpoints(run):
        try:
            kept, words = type(processor).load(place), huggingface.words_of(place)
        except UnmaskError:  # damaged, as for `Origin.open`
            continue
        if kept.fingerprint != processor.fingerprint:
            raise UnmaskError(
                f"The corpus {corpora[0].folder} has another vocabulary than the run in {run}: give the corpus that "
                "the run began with, or start a run in another folder."
            )
        return words
    return ()


def check_corpora(run: Path, corpora: Sequence[Data]) -> None:
    """Raises UnmaskError if a resumed run would read other texts than those that it began with."""
    before = run_facts(run).get("checksums")
    if before is None or [corpus.checksum for corpus in corpora] == before:  # runs of old versions have none
        return
    names = ", ".join(str(corpus.folder) for corpus in corpora)
    raise UnmaskError(
        f"The run in {run} began with other texts than those in {names}: restore them, or start a new run from its "
        f"model (--from {run})."
    )


@torch.no_grad()
def _fill(head: nn.Module, log_p: np.ndarray) -> None:
    """Set the bias of a masked-token head, if it has one, to log probabilities [V]; further rows, of no token, get the
    smallest one."""
    assert isinstance(head, VocabularyHead)
    bias = head.output_bias
    if bias is not None:
        bias.fill_(float(log_p.min()))
        bias[: len(log_p)] = torch.from_numpy(log_p).to(bias)


def _label(part: str) -> str:
    """The usual name of a part of a model."""
    return part if part in ("pooler", "generator") else f"{registry.head_label(part)} head"


def _checkpoints(run: Path | None) -> list[Path]:
    """Checkpoints of a run, the newest first."""
    if run is None:
        return []
    folder = run / "checkpoints"
    return [folder / f"step-{step:08d}" for step in reversed(checkpoint.steps(folder))]
