"""Folders of encoder–decoders: as those of Marian, Pegasus or T5 where `transformers` has such a model, else in a form
of our own.

Both have config.json, model.safetensors, the tokenizer's files and a manifest of checksums. In our own form the fields
and the weights bear the names that they have in the page's config and model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from unmask.config import Config, read_json
from unmask.data.numbers import Numbers
from unmask.data.subwords import Subwords
from unmask.errors import UnmaskError, unknown
from unmask.files import MANIFEST, atomic, verify_manifest, write_manifest, write_text
from unmask.hub import model_folder
from unmask.huggingface import marian, sizes, t5
from unmask.huggingface.config import TABLES, WRITERS, require_model
from unmask.huggingface.searching import GENERATION, read_search, write_search
from unmask.huggingface.weights import check_finite, read_tensors
from unmask.models.convs2s import ConvS2S
from unmask.models.encoder_decoder import EncoderDecoder
from unmask.models.seq2seq import Seq2Seq
from unmask.models.transformer import Transformer
from unmask.models.vector_decoder import VectorDecoder
from unmask.nn.lora import adapters

NATIVE: dict[str, type[Config]] = {
    "unmask-transformer": Transformer,
    "unmask-seq2seq": Seq2Seq,
    "unmask-convs2s": ConvS2S,
    "unmask-vector-decoder": VectorDecoder,
}
"""model_type -> config, of the folders in our own form."""

FOREIGN = {name: form for form in (marian, t5) for name in form.MODEL_TYPES}
"""model_type -> what reads and writes the folders of that model of `transformers`."""

MODEL_TYPES = (*FOREIGN, *NATIVE)
assert MODEL_TYPES == WRITERS
SETTINGS = "unmask_task"
VOCABULARIES = ("subwords.json", "source.spm", "spiece.model", "tokenizer.json")
"""Files of which one tells that a folder has a tokenizer."""

TOKENIZER_FILES = (
    *("spiece.model", "tokenizer.json", "vocab.txt"),
    *("subwords.json", "source.spm", "target.spm", "vocab.json", "target_vocab.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json"),
)


@dataclass(frozen=True)
class LoadedWriter:
    """The folder of an encoder–decoder in memory.

    model, tokenizer  ready to use, in evaluation mode; the tokenizer is None where the folder has none
    settings          what the run that made the folder wants remembered; of a foreign folder, its search
    """

    model: EncoderDecoder
    tokenizer: Subwords | None
    settings: Mapping[str, Any] = field(default_factory=dict)


def holds_writer(folder: Path | str) -> bool:
    """Whether a folder holds an encoder–decoder, by its config.json. Raises UnmaskError where that is damaged."""
    place = Path(folder) / "config.json"
    return place.is_file() and read_json(place).get("model_type") in MODEL_TYPES


def only_here(config: Config) -> str:
    """One sentence on why `transformers` will not open the folder of such a model; empty where it will."""
    found = [] if _form(config) else marian.obstacles(config)
    return f"transformers has no model with {' and '.join(found)}: the folder opens in unmask alone." if found else ""


# ---------------------------------------------------------------------------------------------------------- writing


def save_writer(
    folder: Path | str,
    model: EncoderDecoder,
    tokenizer: Subwords | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write config, weights, tokenizer, then a manifest of checksums; `only_here` says whether transformers opens it.

    settings  plain JSON values that come back as `LoadedWriter.settings`; "search", the fields of a `generate.Search`,
              is also what transformers goes by when it generates

    Raises UnmaskError, before anything is written, for a model that no folder describes and a tokenizer that is not the
    model's, and where the folder cannot be written.
    """
    folder, config = Path(folder), model.config
    if adapters(model):
        raise UnmaskError("The model has adapters: fold them into its weights first, with unmask.transfer.merged.")
    if tokenizer is not None:
        _check_tokenizer(tokenizer, config, str(folder))
    search = (settings or {}).get("search") or {}
    form = _form(config)
    if form is None:
        values, tensors, files = _own_fields(config), _state(model), {}
    else:
        values, tensors = form.write_fields(config), form.export(model)
        files = {GENERATION: _json(write_search(config, search))}
    values["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    files["config.json"] = _json({**values, SETTINGS: dict(settings or {})})
    with atomic(folder / "model.safetensors") as temporary:
        try:
            save_file({k: x.detach().contiguous() for k, x in tensors.items()}, temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # the library's name for a full disk
            raise OSError(str(error)) from error
        # A folder without a manifest is unsealed; under a stale one the new weights would pass for damage.
        for stale in (MANIFEST, GENERATION):
            (folder / stale).unlink(missing_ok=True)
    for name, content in files.items():
        write_text(folder / name, content)
    if tokenizer is not None:
        written = tokenizer.save(folder, length=model.positions)
        for name in set(TOKENIZER_FILES) - set(written):  # of the tokenizer that was there before
            (folder / name).unlink(missing_ok=True)
    there = [name for name in TOKENIZER_FILES if (folder / name).is_file()]
    write_manifest(folder, ["model.safetensors", *files, *there])


def _form(config: Config) -> ModuleType | None:
    """What writes such a model as one of `transformers`; None where that has no such model."""
    return next((form for form in FOREIGN.values() if not form.obstacles(config)), None)


def _own_fields(config: Config) -> dict[str, Any]:
    for model_type, kind in NATIVE.items():
        if type(config) is kind:
            return {"model_type": model_type, **config.to_dict()}
    raise UnmaskError(f"No folder holds a {type(config).__name__}; give it a name in huggingface/writer.py.")


def _state(model: EncoderDecoder) -> dict[str, Tensor]:
    """All that a model stores, under its own names; what is tied, once, under the first of its names."""
    once: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        once.setdefault(id(tensor), name)
    return {name: state[name] for name in once.values()}


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


# ---------------------------------------------------------------------------------------------------------- reading


def load_writer(folder: Path | str, *, weights: Mapping[str, Tensor] | None = None) -> LoadedWriter:
    """Read a folder that `save_writer` wrote, or a Marian, Pegasus or T5 folder of `transformers` or of the hub.

    weights  in place of those of the folder, under the same names: the mean of several checkpoints, say

    Raises UnmaskError for a missing, damaged or foreign folder, saying which file and what to do.
    """
    folder = model_folder(folder)
    require_model(folder)
    verify_manifest(folder)
    values = read_json(folder / "config.json")
    kind = str(values.get("model_type"))
    if kind in TABLES:
        raise UnmaskError(f"{folder} holds a model of type {kind}, but an encoder–decoder is wanted.")
    if kind not in MODEL_TYPES:
        raise unknown(f"reader for the model type of {folder}:", kind, MODEL_TYPES)
    settings = values.pop(SETTINGS, None)
    if not isinstance(settings, Mapping | None):
        raise UnmaskError(f"{folder / 'config.json'}: {SETTINGS} must hold settings, not {settings!r}.")
    tensors = dict(read_tensors(folder) if weights is None else weights)
    if kind in FOREIGN:
        form = FOREIGN[kind]
        config: Config = form.read_fields(values, tensors, folder)
        model = _built(config, tensors, folder)
        _fill(model, form.names(model), form.restore(config, tensors, folder), folder)
        settings = {"search": _search(config, values, folder)} if settings is None else settings
    else:
        config = _read_own(kind, values, folder)
        model = _built(config, tensors, folder)
        _fill(model, {name: name for name in _state(model)}, tensors, folder)
    tokenizer = None
    if any((folder / name).is_file() for name in VOCABULARIES):
        tokenizer = Subwords.load(folder)
        _check_tokenizer(tokenizer, config, str(folder))
        if isinstance(config, VectorDecoder):
            tokenizer = Numbers(tokenizer.side, config.features)
    return LoadedWriter(model.eval(), tokenizer, settings or {})


def _read_own(kind: str, values: Mapping[str, Any], folder: Path) -> Config:
    fields = {name: value for name, value in values.items() if name not in ("model_type", "dtype")}
    try:
        return NATIVE[kind].from_dict(fields)
    except UnmaskError as error:
        raise UnmaskError(f"{folder / 'config.json'}: {error}") from None


def _search(config: Config, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """How the folder of others wants texts to be searched."""
    place = folder / GENERATION
    place, values = (place, read_json(place)) if place.is_file() else (folder / "config.json", values)
    try:
        return read_search(config, values)  # type: ignore[arg-type]  # every config here is a Writing
    except UnmaskError as error:
        raise UnmaskError(f"{place}: {error}") from None


def _built(config: Config, tensors: Mapping[str, Tensor], folder: Path) -> EncoderDecoder:
    """The model that a config describes, its weights still to be filled. Raises UnmaskError where no text that it
    writes could begin or end."""
    vocabulary = config.vocabulary  # type: ignore[attr-defined]  # as below
    for name in ("start", "end"):
        if not 0 <= getattr(config, name) < vocabulary:
            raise UnmaskError(
                f"{folder / 'config.json'}: the id of its {name} is none of the {vocabulary} of its pieces."
            )
    make = partial(config.build, seed=None)  # type: ignore[attr-defined]  # every config here has it
    model: EncoderDecoder = sizes.build(make, config.to_dict(), tensors.values(), folder)
    return model


def _fill(model: EncoderDecoder, names: Mapping[str, str], tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Copy the tensors into the model, each into its place and every place from one.

    names  our name of each -> its name among the tensors

    Raises UnmaskError for a tensor without a place, a place without one, and other shapes or kinds of numbers.
    """
    for key in sorted(tensors.keys() - set(names.values())):
        raise UnmaskError(f"{folder}: '{key}' has no place in this model; does config.json describe these weights?")
    state = model.state_dict(keep_vars=True)
    for ours, theirs in names.items():
        if theirs not in tensors:
            raise UnmaskError(f"{folder}: the weights lack '{theirs}'.")
        place, tensor = state[ours], tensors[theirs]
        if not tensor.is_floating_point():
            raise UnmaskError(f"{folder}: '{theirs}' holds {tensor.dtype} numbers; quantised weights cannot be read.")
        if place.shape != tensor.shape:
            raise UnmaskError(
                f"{folder}: '{theirs}' has the shape {list(tensor.shape)}, but config.json asks for "
                f"{list(place.shape)}."
            )
        with torch.no_grad():
            place.copy_(tensor)
        check_finite(place, f"{folder}: '{theirs}'")


def _check_tokenizer(tokenizer: Subwords, config: Any, owner: str) -> None:
    """Raises UnmaskError for a tokenizer that is larger than its model, or has other ids for padding and the end."""
    read = getattr(config, "source_vocabulary", None) or config.vocabulary
    for side, own, most in (("source", tokenizer, read), ("target", tokenizer.target, config.vocabulary)):
        if own.size > most:
            raise UnmaskError(
                f"The tokenizer of {owner} has {own.size} entries for the {side} but the model only {most}: "
                "they do not belong together. Use the tokenizer that the model was trained with."
            )
    for name, found, wanted in (("padding", tokenizer.pad, config.padding), ("end", tokenizer.target.end, config.end)):
        if found != wanted:
            raise UnmaskError(
                f"The tokenizer of {owner} has the id {found} for the {name} but the model {wanted}: "
                "they do not belong together. Use the tokenizer that the model was trained with."
            )
