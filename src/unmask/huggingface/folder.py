"""Model folders: config, weights and tokenizer together, read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from unmask.config import read_json
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import MANIFEST, atomic, verify_manifest, write_manifest, write_text
from unmask.hub import model_folder
from unmask.huggingface import sentence_transformers, sizes
from unmask.huggingface.config import (
    LABELLED,
    config_json,
    label_names,
    read_config,
    require_model,
    table_for,
    table_of,
)
from unmask.huggingface.layout import fold
from unmask.huggingface.table import Table
from unmask.huggingface.weights import files_of, fill, normalise, parts_of, read_tensors, rename, rules_of, stored_heads
from unmask.models.model import Model, ModelConfig
from unmask.models.stack_model import StackModel
from unmask.nn import Classifier
from unmask.nn.lora import adapters

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
WORDS_FILE = "words.txt"
VOCABULARIES = ("tokenizer.json", "vocab.txt", "merges.txt")
"""Files of which one tells that a folder has a tokenizer."""


@dataclass(frozen=True)
class Loaded:
    """A folder in memory.

    model, tokenizer  ready to use, in evaluation mode; the tokenizer is None where the folder has none
    labels            class names, in the order of the outputs, of a classification or tagging head
    new, dropped      parts that were initialised afresh, and stored ones that were not asked for
    settings          what the task that made the folder wants remembered (`Task.settings`)
    words             what a head over words guesses (`objectives.two_way`); nothing in folders without one
    """

    model: Model
    tokenizer: Tokenizer | None
    labels: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def require_tokenizer(self, owner: object) -> Tokenizer:
        """The tokenizer. Raises UnmaskError, in which `owner` lacks one, where there is none."""
        if self.tokenizer is None:
            raise UnmaskError(f"{owner} has no tokenizer: put its tokenizer.json or vocab.txt into the folder.")
        return self.tokenizer

    @property
    def notice(self) -> str:
        """One sentence on what was new and what was dropped; empty where the folder was taken as it is."""
        parts = [f"new: {', '.join(self.new)}"] if self.new else []
        parts += [f"dropped: {', '.join(self.dropped)}"] if self.dropped else []
        return f"Parts {'; '.join(parts)}." if parts else ""


def save(
    folder: Path | str,
    model: Model,
    tokenizer: Tokenizer | None = None,
    *,
    labels: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    words: Sequence[str] = (),
) -> None:
    """Write a folder that `transformers` opens: config, weights, tokenizer, then a manifest of checksums.

    labels    class names of a classification or tagging head, in the order of its outputs
    settings  plain JSON values that the task needs to answer alike later; they come back as `Loaded.settings`. Those
              of a sentence encoder become the files that `sentence-transformers` opens, and no head is kept
    words     what a head over words guesses, a line each in words.txt

    Raises UnmaskError, before anything is written, for a model that no table describes or another number of labels,
    and where the folder cannot be written.
    """
    folder = Path(folder)
    sentences = sentence_transformers.files_of(model, settings or {})
    if sentences:
        model, settings = model.without_heads(), {}
    tensors = {theirs: tensor.contiguous() for theirs, tensor in export(model).items()}
    tensors |= _copies(table_of(model.config), tensors)
    values = config_json(table_of(model.config), model, labels)
    if sentences:  # the files beside it say that no pooler is read
        values["architectures"] = [name for name, has in table_of(model.config).architectures.items() if not has][:1]
    if "next" in model.heads and tokenizer is not None:  # which others let begin and end what they write
        values |= {"bos_token_id": tokenizer.cls, "eos_token_id": tokenizer.sep}
    if settings:
        values["unmask_task"] = dict(settings)
    config = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    with atomic(folder / "model.safetensors") as temporary:
        try:
            save_file(tensors, temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # the library's name for a full disk
            raise OSError(str(error)) from error
        # A folder without a manifest is unsealed; under a stale one the new weights would pass for damage.
        (folder / MANIFEST).unlink(missing_ok=True)
        (folder / sentence_transformers.MODULES).unlink(missing_ok=True)
    write_text(folder / "config.json", config)
    beside = {**sentences, **({WORDS_FILE: "".join(f"{word}\n" for word in words)} if words else {})}
    for name, content in beside.items():
        write_text(folder / name, content)
    if tokenizer is not None:
        tokenizer.save(folder, length=model.positions, segments=model.config.segments > 1)
    names = ["config.json", "model.safetensors", *(n for n in TOKENIZER_FILES if (folder / n).exists())]
    write_manifest(folder, names + list(beside))
    for name, other in model.auxiliary.items():
        save(folder / name, other, tokenizer)


def config_of(folder: Path | str) -> ModelConfig:
    """The sizes of the model in a folder: soon known, as its weights must be there but are not read.

    Raises UnmaskError as `load` does, for what can be known without the weights.
    """
    folder = model_folder(folder)
    require_model(folder)
    values = read_json(folder / "config.json")
    config = read_config(table_for(values, folder), values, folder)
    files_of(folder)
    return config


def load(folder: Path | str, *, heads: Mapping[str, int] | None = None, seed: int = 0) -> Loaded:
    """Read a folder that `save`, or `transformers`, wrote, or a model of the Hugging Face hub by its name.

    heads  head -> number of outputs, to put other heads on the trunk; None keeps those that the folder has
    seed   of the initialisation of what the folder does not hold

    Raises UnmaskError for a missing, damaged or foreign folder, saying which file and what to do.
    """
    folder = model_folder(folder)
    require_model(folder)
    verify_manifest(folder)
    values = read_json(folder / "config.json")
    table = table_for(values, folder)
    config = read_config(table, values, folder)
    found = read_tensors(folder)
    tensors = normalise(table, found, folder)
    labels = label_names(values, folder)
    stored = stored_heads(table, tensors, values, config, folder)
    if not stored and table.heads.get("next") == () and any(key.startswith(table.prefix) for key in found):
        stored = {"next": 0}  # a head without weights; the names of a trunk alone have no prefix
    wanted = dict(heads) if heads is not None else stored
    for head in wanted.keys() - table.heads.keys():
        raise unknown("head", head, table.heads)
    pooler = heads is None and bool(table.pooler) and "pooler" in parts_of(table, tensors)
    make = partial(config.build, heads=wanted, seed=None, pooler=pooler)
    model = sizes.build(make, config.to_dict(), tensors.values(), folder)
    new, dropped = fill(table, model, tensors, keep=set(stored), folder=folder)
    if heads is None and (new or dropped):
        broken = ", ".join(sorted({*new, *dropped}))
        raise UnmaskError(f"{folder}: the weights of {broken} are not whole. Restore the folder from a copy.")
    fresh = nn.ModuleList([model.get_submodule(part if part == "pooler" else f"heads.{part}") for part in new])
    config.initialise(fresh, seed)  # together: each for itself would draw the same numbers
    for module in fresh:
        if isinstance(module, Classifier):
            module.on_a_trunk()
    for name, other in model.auxiliary.items():
        new += () if _filled(other, folder / name, model, seed) else (name,)
    classes = [n for head, n in wanted.items() if head in LABELLED and stored.get(head) == n]
    if "regression" in wanted and classes and classes[0] != len(labels):
        labels = ()  # of several scores, version 0.1 named one
    if classes and labels and classes[0] != len(labels):
        named = f"{folder / 'config.json'} names {plural(len(labels), 'label')}"
        raise UnmaskError(f"{named}, but the weights have {classes[0]}.")
    tokenizer = Tokenizer.load(folder) if any((folder / n).exists() for n in VOCABULARIES) else None
    vocabulary = getattr(config, "vocabulary", None)
    if tokenizer is not None and vocabulary is not None and tokenizer.size > vocabulary:
        raise UnmaskError(
            f"The tokenizer in {folder} has {tokenizer.size} entries but the model only {vocabulary}: "
            "they do not belong together. Use the tokenizer that the model was trained with."
        )
    settings: Mapping[str, Any] = {}
    if heads is None:
        settings = sentence_transformers.read(folder, tokenizer) or values.get("unmask_task") or {}
    words = words_of(folder) if "words" in model.heads else ()
    return Loaded(model.eval(), tokenizer, labels if classes else (), new, dropped, settings, words)


def words_of(folder: Path) -> tuple[str, ...]:
    """What a head over words guesses (`Loaded.words`), by the file of a folder; nothing where there is none."""
    path = folder / WORDS_FILE
    if not path.is_file():
        return ()
    try:
        return tuple(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    except UnicodeDecodeError:
        raise UnmaskError(f"{path} is not text in UTF-8. Restore the folder from a copy.") from None


def _filled(other: StackModel, folder: Path, model: Model, seed: int) -> bool:
    """Give a model beside `model` the weights of its own folder, but for those that the two share, or new ones where
    there is none, and say whether there was. Raises UnmaskError where the folder has another model."""
    if not folder.is_dir():
        project = other.embedding.get_submodule("project")
        other.config.initialise(nn.ModuleList([project, other.stack, other.heads]), seed)
        return False
    stored = load(folder, heads=dict.fromkeys(other.heads, 0)).model.own_parameters()
    shared = {id(p) for p in model.own_parameters().values()}
    with torch.no_grad():
        for name, p in other.named_parameters():
            if id(p) in shared:
                continue
            if name not in stored or stored[name].shape != p.shape:
                raise UnmaskError(f"{folder} does not belong to the model that it lies in: {name} does not fit.")
            p.copy_(stored[name])
    return True


def export(model: Model) -> dict[str, Tensor]:
    """The model's parameters under their Hugging Face names, as they lie in a folder. Raises UnmaskError for one that
    no rule names, and for a model with adapters, whose answers its plain weights alone would not give."""
    if adapters(model):
        raise UnmaskError("The model has adapters: fold them into its weights first, with unmask.transfer.merged.")
    table, parameters = table_of(model.config), model.own_parameters()
    tensors = fold(table, {theirs: parameters[ours].detach() for ours, theirs in _full_names(model, table).items()})
    return {_shown(theirs, model, table): tensor for theirs, tensor in tensors.items()}


def _copies(table: Table[ModelConfig], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is written under a second name too: `transformers` 4 takes the output's bias of some models from there."""
    return {name: tensors[first].clone() for name in table.written if (first := table.copies[name]) in tensors}


def names(model: Model) -> dict[str, str]:
    """Our name of each parameter -> its Hugging Face name; one that a folder packs with others, as if it lay there for
    itself (`c_attn.query`). Raises UnmaskError for one that no rule names."""
    table = table_of(model.config)
    return {ours: _shown(theirs, model, table) for ours, theirs in _full_names(model, table).items()}


def _shown(theirs: str, model: Model, table: Table[ModelConfig]) -> str:
    """A name as a folder has it: without the prefix where the model has no head."""
    return theirs if model.heads else theirs.removeprefix(table.prefix)


def _full_names(model: Model, table: Table[ModelConfig]) -> dict[str, str]:
    for head in model.heads.keys() - table.heads.keys():
        raise unknown(f"place in the table of '{table.model_type}' for the head", head, table.heads)
    rules = rules_of(table, list(model.heads), pooler=model.pooler is not None)
    found: dict[str, str] = {}
    for ours in model.own_parameters():
        theirs = rename(ours, rules, 0)
        if theirs is None:
            raise UnmaskError(f"The table of '{table.model_type}' names no place for the parameter '{ours}'.")
        found[ours] = theirs
    return found
