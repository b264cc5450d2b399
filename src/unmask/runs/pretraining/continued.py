"""Continued pre-training: the folder whose weights a run starts from, and what a resumed run must find unchanged."""

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
from unmask.nn import ProjectedHead
from unmask.objectives import ObjectiveConfig, registry
from unmask.objectives.config import Data
from unmask.runs.report import run_facts
from unmask.train import checkpoint
from unmask.types import Head

TRAINED = ("dropout", "embedding_dropout", "attention_dropout", "head_dropout", "tbptt")
"""Fields of a model that are a matter of training; all others belong to its weights."""

STARTED = ("std", "positions", "vocabulary", "padding", "start", "end")
"""Fields of a model that only fresh weights ask for, or that the tokenizer decides."""


@dataclass(frozen=True)
class Origin:
    """The folder whose weights a pre-training run continues from (Gururangan et al. 2020, "Don't stop pretraining").

    folder  as it was named
    place   where the weights are read: that folder or, for a run that is resumed, its own newest checkpoint, so that
            it goes on though the folder is gone
    stored  the folder in memory, with the heads that it has
    facts   what run.json keeps of it: the folder and the SHA-256 of its files of weights
    """

    folder: str
    place: Path
    stored: huggingface.Loaded
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str, run: Path | None = None) -> Origin:
        """Read a folder; `run` is that of a run that is resumed. Raises UnmaskError where it is no model."""
        for place in _checkpoints(run):
            try:
                stored = opened(place)
            except UnmaskError:  # damaged: the trainer says so, and continues from the one before it
                continue
            return cls(folder, place, stored, read_json(place / "run.json").get("origin", {}))
        stored = opened(folder)
        weights = {path.name: sha256(path) for path in sorted(Path(folder).glob("*.safetensors"))}
        return cls(folder, Path(folder), stored, {"folder": str(folder), "weights": weights})

    @property
    def model(self) -> ModelConfig:
        """The sizes of the model."""
        return self.stored.model.config

    def check(self, corpora: Sequence[Data], objective: ObjectiveConfig) -> None:
        """Raises UnmaskError where a corpus was built with another tokenizer than that of the folder."""
        own = self.stored.require_processor(self.folder)
        for corpus in corpora:
            if objective.processor(corpus.processor).fingerprint != own.fingerprint:
                raise UnmaskError(
                    f"The corpus {corpus.folder} was not built with the tokenizer of {self.folder}; build it again "
                    f"with: unmask corpus build --tokenizer {self.folder} --data ... --out ..."
                )

    def settle(self, wanted: Config, settings: Mapping[str, Any]) -> ModelConfig:
        """The folder's sizes with the dropout that is wanted, and with the settings of the objective.

        Raises UnmaskError where other sizes are wanted.
        """
        own, asked = self.model.to_dict(), wanted.to_dict()
        for name in own.keys() - {*TRAINED, *STARTED, *settings}:
            if own[name] != asked.get(name):
                raise UnmaskError(
                    f"A model that goes on keeps its sizes: {name} is {own[name]} in {self.folder}, not "
                    f"{asked.get(name)}; leave it out, or take over the sizes with Pretraining.starting_from."
                )
        return self.model.replace(**{name: asked[name] for name in TRAINED if name in own}, **settings)

    def build(
        self,
        config: ModelConfig,
        heads: Mapping[str, Head],
        seed: int,
        frequencies: Callable[[], np.ndarray],
    ) -> tuple[Model, str]:
        """The model with these heads, and a sentence on those that are new or left out.

        frequencies  [V] log of the share of each token in the text, which the bias of a new masked-word head begins
                     at: its first gradients then say more to the trunk than that "the" is frequent
        """
        loaded = opened(self.place, heads, seed)
        model = config.build(heads, seed=None)
        model.load_state_dict(loaded.model.state_dict())
        for name in loaded.new:
            if name in heads and not heads[name].outputs:  # as many as the vocabulary has entries
                _fill(model.heads[name], frequencies())
        parts = [f"{self.folder} has no {_said(part)}: it is new, and learned from nothing." for part in loaded.new]
        if loaded.dropped:
            dropped = ", ".join(_said(part) for part in loaded.dropped)
            parts.append(f"Not trained here, and so not part of the result: the {dropped}.")
        return model, " ".join(parts)


def opened(folder: Path | str, heads: Mapping[str, Head] | None = None, seed: int = 0) -> huggingface.Loaded:
    """A folder that pre-training can continue from, as `huggingface.load` gives it: also a T5, whose head is as it is.

    Raises UnmaskError for other encoder–decoders, which learn from pairs of texts.
    """
    if not huggingface.holds_encoder_decoder(folder):
        return huggingface.load(folder, huggingface.SINGLE_STACK, heads=heads, seed=seed)
    loaded = huggingface.load(folder)
    if not loaded.model.config.offers:
        raise UnmaskError(f"{folder} holds a model that learns from pairs of texts: continue with unmask train --from.")
    return loaded


def resumed_words(run: Path, corpora: Sequence[Data], processor: Processor[Any]) -> tuple[str, ...]:
    """The words that a resumed run from fresh weights guesses, where its objective guesses words (`Loaded.words`).

    processor  that of its corpora, as the objective has it. Raises UnmaskError where the run began with another one
    """
    for place in _checkpoints(run):
        try:
            own, words = type(processor).load(place), huggingface.words_of(place)
        except UnmaskError:  # damaged, as for `Origin.open`
            continue
        if own.fingerprint != processor.fingerprint:
            raise UnmaskError(
                f"The corpus {corpora[0].folder} has another vocabulary than the run in {run}, which keeps the one "
                "that it began with: name its corpus, or begin a run in another folder."
            )
        return words
    return ()


def check_corpora(run: Path, corpora: Sequence[Data]) -> None:
    """Raises UnmaskError where a run that goes on would read other texts than those that it began with."""
    before = run_facts(run).get("checksums")
    if before is None or [corpus.checksum for corpus in corpora] == before:  # older runs did not write them down
        return
    names = ", ".join(str(corpus.folder) for corpus in corpora)
    raise UnmaskError(
        f"The run in {run} began with other texts than those in {names}: put them back, or begin a run that starts "
        f"where it stands (--from {run})."
    )


@torch.no_grad()
def _fill(head: nn.Module, log_p: np.ndarray) -> None:
    """Begin the bias of a masked-word head at log probabilities [V]; rows beyond, of no token, at the least of them."""
    bias = head.tied.bias if isinstance(head, ProjectedHead) else head.bias
    assert isinstance(bias, nn.Parameter)
    bias.fill_(float(log_p.min()))
    bias[: len(log_p)] = torch.from_numpy(log_p).to(bias)


def _said(part: str) -> str:
    """A part of a model, by the name that the field has for it."""
    return part if part in ("pooler", "generator") else f"{registry.head_label(part)} head"


def _checkpoints(run: Path | None) -> list[Path]:
    """Checkpoints of a run, the newest first."""
    if run is None:
        return []
    folder = run / "checkpoints"
    return [folder / f"step-{step:08d}" for step in reversed(checkpoint.steps(folder))]
