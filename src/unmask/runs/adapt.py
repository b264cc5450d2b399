"""A model goes on in another domain: the folder that pre-training continues from, a vocabulary that grows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmask import huggingface
from unmask.config import Config, read_json
from unmask.data import extension
from unmask.data.fertility import Fertility, count_words, is_wordpiece, of_words, render
from unmask.data.processor import Processor
from unmask.data.subword_files import T5_MODEL
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files import sha256, write_text
from unmask.models.model import Model, ModelConfig
from unmask.nn import ProjectedHead, VocabularyHead
from unmask.objectives import ObjectiveConfig, registry
from unmask.objectives.config import Data
from unmask.runs.report import run_facts
from unmask.train import checkpoint
from unmask.types import Head

TRAINED = ("dropout", "embedding_dropout", "attention_dropout", "head_dropout", "tbptt")
"""Fields of a model that are a matter of training; all others belong to its weights."""

STARTED = ("std", "positions", "vocabulary", "padding", "start", "end")
"""Fields of a model that only fresh weights ask for, or that the tokenizer decides."""


# ------------------------------------------------------------------------------------------------ continued training


@dataclass(frozen=True)
class Origin:
    """The folder whose weights a pre-training run goes on from (Gururangan et al. 2020, "Don't stop pretraining").

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
            except UnmaskError:  # damaged: the trainer says so, and goes on from the one before it
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

    def settle(self, wanted: Config) -> ModelConfig:
        """The folder's sizes with the dropout that is wanted. Raises UnmaskError where other sizes are wanted."""
        own, asked = self.model.to_dict(), wanted.to_dict()
        for name in own.keys() - {*TRAINED, *STARTED}:
            if own[name] != asked.get(name):
                raise UnmaskError(
                    f"A model that goes on keeps its sizes: {name} is {own[name]} in {self.folder}, not "
                    f"{asked.get(name)}; leave it out, or take over the sizes with Pretraining.starting_from."
                )
        return self.model.replace(**{name: asked[name] for name in TRAINED if name in own})

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
    """A folder that pre-training can go on from, as `huggingface.load` gives it: also a T5, whose head is as it is.

    Raises UnmaskError for other encoder–decoders, which learn from pairs of texts, and vocabularies of SentencePiece.
    """
    if not huggingface.holds_encoder_decoder(folder):
        return huggingface.load(folder, huggingface.SINGLE_STACK, heads=heads, seed=seed)
    loaded = huggingface.load(folder)
    if not loaded.model.config.offers:
        raise UnmaskError(f"{folder} holds a model that learns from pairs of texts: go on with unmask train --from.")
    if (Path(folder) / T5_MODEL).is_file():
        raise UnmaskError(
            f"{folder} has a vocabulary of SentencePiece ({T5_MODEL}), which no corpus is built with: go on with "
            "unmask train --from or unmask finetune."
        )
    return replace(loaded, processor=Tokenizer.load(folder))  # both kinds are trained alike


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
                f"The corpus {corpora[0].folder} has another vocabulary than the run in {run}, which goes on with the "
                "one that it began with: name its corpus, or begin a run in another folder."
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


# ------------------------------------------------------------------------------------------------ vocabulary


@dataclass(frozen=True)
class Extended:
    """A folder with a larger vocabulary.

    tokenizer      with the new entries
    pieces         the new entries, in the order of their ids
    before, after  fertility on the text that they were learned from
    limit          why there are not as many as were asked for; empty where there are
    """

    tokenizer: Tokenizer
    pieces: tuple[str, ...]
    before: Fertility
    after: Fertility
    limit: str = ""

    def summary(self) -> str:
        """What it brought, in a few lines."""
        shown = ", ".join(self.pieces[:20]) + (", …" if len(self.pieces) > 20 else "")
        number = f"{len(self.pieces):,} new pieces" + (f" ({self.limit})" if self.limit else "")
        return f"{number}: {shown}\n\n" + render({"after": self.after, "before": self.before})


def extend(
    folder: Path | str, texts: Iterable[str], pieces: int, out: Path | str, *, least: int = extension.LEAST
) -> Extended:
    """Add at most `pieces` WordPiece entries, learned from texts, to a model folder and write it to `out`.

    Each new entry begins as the mean of the vectors, and in the output layer of the mean of the biases, of the
    pieces that it was torn into before (Gee et al. 2022, "Fast vocabulary transfer"; exBERT, Tai et al.
    2020, adds entries too, but beside a frozen model). All other numbers stay: a text without new entries gives the
    same logits as before. The new entries want continued pre-training before they are worth more than what they
    replace. `extension.json` in `out` lists them and what each was made of. The generator beside an ELECTRA gets the
    same entries.

    least  times that an entry must be used in the texts

    Raises UnmaskError for a folder whose tokenizer is not WordPiece, an ELMo, which reads characters, texts that give
    no new entry, and an `out` that holds something; nothing is written then.
    """
    folder, out = Path(folder), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    tokenizer = loaded.require_tokenizer(folder)
    extension.check_wordpiece(tokenizer)
    if loaded.model.token_table is None:
        raise UnmaskError(f"{folder} holds a model that reads words character by character: it needs no new pieces.")
    parts, generator = {out: loaded}, folder / "generator"
    if "rtd" in loaded.model.heads and generator.is_dir():
        parts[out / generator.name] = huggingface.load(generator, huggingface.SINGLE_STACK)
    words = count_words(tokenizer, texts)
    new = extension.learn_from_words(tokenizer, words, pieces, least=least)
    if not new:
        raise UnmaskError(f"No new piece would be used {least} times in this text; give more of it, or leave it as is.")
    made_of = extension.torn_before(tokenizer, new)
    larger = extension.extended(tokenizer, new)
    for part in parts.values():
        grow(part.model, tokenizer.size, made_of)
    limit = f"no other would be used {least} times" if len(new) < pieces else ""
    result = Extended(larger, tuple(new), of_words(tokenizer, words), of_words(larger, words), limit)
    for place, part in parts.items():
        huggingface.save(place, part.model, larger, labels=part.labels, settings=part.settings)
    facts = {
        "folder": str(folder),
        "weights": {path.name: sha256(path) for path in sorted(folder.glob("*.safetensors"))},
        "pieces_per_word": {"before": result.before.per_word, "after": result.after.per_word},
        "pieces": {p: tokenizer.pieces(ids) for p, ids in zip(new, made_of, strict=True)},
    }
    write_text(out / "extension.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    return result


@torch.no_grad()
def grow(model: Model, begin: int, made_of: Sequence[Sequence[int]]) -> None:
    """Give a model rows for new tokens, in place.

    begin    id of the first new token; rows from there on that the model has already, unused, are written over
    made_of  for each new token, ids of the old ones whose mean it begins as
    """
    token = model.token_table
    assert token is not None

    def larger(old: Tensor) -> nn.Parameter:
        rows = [old[torch.tensor(ids, device=old.device)].mean(0) for ids in made_of]
        return nn.Parameter(torch.cat([old[:begin], torch.stack(rows), old[begin + len(rows) :]]))

    token.weight = larger(token.weight)
    token.num_embeddings = token.weight.shape[0]
    for head in model.heads.values():
        if isinstance(head, VocabularyHead):
            head.extend(larger)
    model.config = model.config.replace(vocabulary=token.num_embeddings)


def check(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    reference: Iterable[str] | None = None,
    *,
    pieces: Sequence[int] = (100, 1_000),
) -> dict[str, Fertility]:
    """Fertility on a text, on a reference, and on the text with so many new pieces as `pieces` says: by heading.

    Where the text does not give as many, as many as it gives; none for a tokenizer that cannot be extended.
    """
    words = count_words(tokenizer, texts)
    found = {"this text": of_words(tokenizer, words)}
    if reference is not None:
        found["reference"] = of_words(tokenizer, count_words(tokenizer, reference))
    numbers = sorted({n for n in pieces if n > 0})
    if numbers and is_wordpiece(tokenizer):
        new = extension.learn_from_words(tokenizer, words, numbers[-1])
        for n in sorted({min(n, len(new)) for n in numbers} - {0}):
            found[f"+{n:,} pieces"] = of_words(extension.extended(tokenizer, new[:n]), words)
    return found
