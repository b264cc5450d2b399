"""How a folder opens, for its model card: in `transformers`, in `sentence-transformers`, and what its model is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open

from unmask.config import Config, read_json
from unmask.huggingface.card import LIBRARY, Opened, quoted
from unmask.huggingface.config import only_here, read_config, require_model, table_for, unpublished
from unmask.huggingface.sentence_transformers import MODULES
from unmask.huggingface.table import Table
from unmask.huggingface.weights import files_of

PIPELINES = {
    "fill-mask": 'f"A text with {pipe.tokenizer.mask_token}."',
    "text-classification": '"A text."',
    "token-classification": '"A text."',
    "feature-extraction": '"A text."',
    "text-generation": '"A text"',
    "image-classification": '"picture.png"',
    "image-feature-extraction": '"picture.png"',
    "automatic-speech-recognition": '"recording.wav"',
    "audio-classification": '"recording.wav"',
}
"""The pipelines of `transformers` that the folders of some task open in -> an input, as code. Version 5 has no pipeline
for the other names of the hub, such as question-answering and translation."""


PLAIN = "subwords.json"
"""File of a vocabulary that `transformers` does not read (`Tokenizer.save`)."""

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Ends of the keys of what batch normalisation measures."""

IDS = frozenset({"padding", "start", "end"})
"""Fields of a page that are ids of tokens, and not sizes."""


def opened_by(folder: Path, pipeline: str = "") -> Opened:
    """What a folder says about its model.

    pipeline  the hub's name of the task that it was trained for

    Raises UnmaskError for a folder without a model, and for one whose config.json or weights are damaged.
    """
    require_model(folder)
    values = read_json(folder / "config.json")
    table = table_for(values, folder)
    config = read_config(table, values, folder)
    name = folder.resolve().name
    sections, limits = _in_transformers(name, table, config, values, folder, pipeline)
    library, tags = ("transformers" if sections else LIBRARY), [str(values["model_type"])]
    if (folder / MODULES).is_file():
        library, tags = "sentence-transformers", ["sentence-transformers", "feature-extraction", *tags]
        sections = {"sentence-transformers": _sentences(name), **sections}
    if not sections:
        sections = {"transformers": only_here(config)}
    heads = values.get("unmask_heads") or ()
    if left := sorted(unpublished(heads) if sections else ()):
        limits += [f"The classes of transformers leave out {', '.join(left)}, so that their answers may differ."]
    return Opened(_what(table, config, folder), library, sections, limits, tags)


def _in_transformers(
    name: str, table: Table[Any], config: Any, values: Mapping[str, Any], folder: Path, pipeline: str
) -> tuple[dict[str, str], list[str]]:
    """Title -> code for `transformers`, and limits; empty where it has no class for such a model."""
    if not table.architectures:
        return {}, []
    classes = [str(one) for one in values.get("architectures") or ()]
    limits = []
    if not classes:
        limits.append("transformers has no class for the head of this model; AutoModel opens the model without it.")
    if _lacks_pooler(table, folder):
        limits.append(
            "The folder has no pooler, so AutoModel of transformers warns that it makes a new one: this is expected, "
            "harmless, and avoided by add_pooling_layer=False."
        )
    readable = any((folder / sign).is_file() for sign in table.processor.signs)
    if (folder / PLAIN).is_file():
        readable = False
        limits.append(f"transformers has no tokenizer for {PLAIN}, a vocabulary of words or characters.")
    if classes and pipeline in PIPELINES and readable:
        lines = ["from transformers import pipeline", ""]
        lines += [f'pipe = pipeline("{pipeline}", model={quoted(name)})', f"print(pipe({PIPELINES[pipeline]}))"]
    else:
        lines = _by_class(name, table, (classes or ["AutoModel"])[0], readable)
    return {"transformers": _python(*lines)}, limits


def _lacks_pooler(table: Table[Any], folder: Path) -> bool:
    """Whether the weights of a folder are without the pooler that a model of this kind may have."""
    own = tuple(name for _, key in table.pooler for name in (key, key.removeprefix(table.prefix)))
    return bool(own) and not any(key.startswith(own) for key in _keys(folder))


def _keys(folder: Path) -> set[str]:
    """The names of the tensors in a folder."""
    found = set[str]()
    for name in files_of(folder):
        with safe_open(folder / name, "pt") as file:
            found.update(file.keys())
    return found


def _by_class(name: str, table: Table[Any], model: str, readable: bool) -> list[str]:
    """Code that opens the class and, where it is `readable`, the processor of a folder."""
    loader, call = (table.processor.loader, table.processor.call) if readable else ("", "")
    used = {"AutoTokenizer"} if loader and "AutoTokenizer" in table.kind.call else set()
    lines = ["from PIL import Image"] if call.startswith("Image") else []
    lines += [
        f"from transformers import {', '.join(sorted({loader, model, *used} - {''}))}",
        "",
        f"name = {quoted(name)}",
    ]
    lines += [f"model = {model}.from_pretrained(name)"]
    if loader:
        lines += [f"processor = {loader}.from_pretrained(name)", f'inputs = processor({call}, return_tensors="pt")']
        lines.append(table.kind.call)
    return lines


def _sentences(name: str) -> str:
    return _python(
        "from sentence_transformers import SentenceTransformer",
        "",
        f"model = SentenceTransformer({quoted(name)})",
        'vectors = model.encode(["A text.", "Another text."])',
        "print(model.similarity(vectors, vectors))",
    )


def _python(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])


def _what(table: Table[Any], config: Config, folder: Path) -> list[str]:
    """Sentences: the system, its size, and what it reads at once."""
    about = getattr(config, "about", "") or (sys.modules[type(config).__module__].__doc__ or "").split("\n\n")[0]
    sizes = [(one.name, getattr(config, one.name)) for one in fields(config)]
    shown = [f"{name} {value:,}" for name, value in sizes if type(value) is int and value > 0 and name not in IDS]
    sentences = [
        " ".join(about.split()),
        f"It has {parameters(table, folder):,} parameters ({', '.join(shown)}).",
    ]
    length = getattr(config, "length", None)
    return sentences + ([f"It reads at most {length:,} tokens at once."] if isinstance(length, int) else [])


def parameters(table: Table[Any], folder: Path) -> int:
    """The number of parameters in the weights of a folder, as of its model: a tensor that is stored twice counts once,
    and tensors that are computed, such as tables of sinusoids or statistics of batches, do not count."""
    of_parts = (key for part in table.parts for key in part.computed())
    total, computed = 0, (*table.buffers, *of_parts, *STATISTICS)
    for name in files_of(folder):
        with safe_open(folder / name, "pt") as file:
            names = set(file.keys())
            copies = {copy for copy in table.written if copy in names and table.copies[copy] in names}
            keys = (key for key in names - copies if not key.endswith(computed))
            total += sum(prod(file.get_slice(key).get_shape()) for key in keys)
    return total
