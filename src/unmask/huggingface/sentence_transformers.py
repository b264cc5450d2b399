"""Sentence encoders: read and write the files of `sentence-transformers`.

modules.json lists the steps: the encoder, the pooling, and optionally a scaling to length 1. A folder with another
module is an error, because that module would change the vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.config import read_json
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model

MODULES = "modules.json"
POOLING, NORMALIZE = "1_Pooling", "2_Normalize"
PACKAGE = "sentence_transformers"

FLAGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
"""Pooling -> its flag in 1_Pooling/config.json. The newest folders have its name in `pooling_mode` instead."""

UNSAID = 1_000_000  # tokens; a larger model_max_length means no limit


def files_of(model: Model, settings: Mapping[str, Any]) -> dict[str, str]:
    """The files for a sentence encoder's settings (pooling, normalise, length): path in the folder -> content.

    Empty for other models. Raises UnmaskError for a pooling that `sentence-transformers` does not have.
    """
    if "pooling" not in settings:
        return {}
    flags = {flag: pooling == settings["pooling"] for pooling, flag in FLAGS.items()}
    if True not in flags.values():
        raise UnmaskError(f"The pooling '{settings['pooling']}' has no equivalent in {PACKAGE}; use mean or cls.")
    # Old and new versions accept the short names of the classes; old ones accept only these.
    chain = {"": "Transformer", POOLING: "Pooling"} | ({NORMALIZE: "Normalize"} if settings.get("normalise") else {})
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"{PACKAGE}.models.{kind}"}
        for i, (path, kind) in enumerate(chain.items())
    ]
    width = getattr(model.config, "dim", None)
    files: dict[str, Any] = {
        f"{POOLING}/config.json": {"word_embedding_dimension": width, **flags},
        "sentence_bert_config.json": {
            "max_seq_length": settings.get("length", model.positions),
            "do_lower_case": False,
        },
        "config_sentence_transformers.json": {
            "model_type": "SentenceTransformer",
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        MODULES: modules,
    }
    if NORMALIZE in chain:
        files[f"{NORMALIZE}/config.json"] = {}
    return {name: json.dumps(value, indent=2) + "\n" for name, value in files.items()}


def read(folder: Path, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """The settings of a sentence encoder: pooling, normalise and length. Empty if the folder does not hold one.

    Raises UnmaskError for unsupported settings, with which `sentence-transformers` gives other vectors or scores:
    unknown modules, several poolings, a prompt before every text, a similarity other than the cosine.
    """
    if not (folder / MODULES).is_file():
        return {}
    facts = _optional(folder / "config_sentence_transformers.json")
    if facts.get("model_type", "SentenceTransformer") == "CrossEncoder":  # a model with a head; `load` reads it as such
        return {}
    paths = _chain(folder)
    normalise = "Normalize" in paths
    _check_use(folder, facts, normalise)
    settings: dict[str, Any] = {"pooling": _pooling(folder / paths["Pooling"]), "normalise": normalise}
    length = _length(folder, tokenizer)
    return settings if length is None else {**settings, "length": length}


def _chain(folder: Path) -> dict[str, str]:
    """Class -> subfolder, for Transformer, Pooling and optionally Normalize, in this order."""
    place = folder / MODULES
    try:
        modules = json.loads(place.read_text(encoding="utf-8"))
        names = [str(module["type"]) for module in modules]
        paths = [str(module["path"]) for module in modules]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise UnmaskError(f"{place} is damaged: it must list modules ({error}).") from None
    kinds = [name.split(".")[-1] if name.split(".")[0] == PACKAGE else name for name in names]
    for kind in kinds:
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise UnmaskError(
                f"{place}: the module {kind} is not supported; only Transformer, Pooling and Normalize are. Remove "
                f"{MODULES} to load the encoder alone."
            )
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnmaskError(f"{place} lists {', '.join(kinds) or 'nothing'}; it must list Transformer, then Pooling.")
    if paths[0]:
        raise UnmaskError(f"{place}: the encoder is in the subfolder {paths[0]}; move its files beside {MODULES}.")
    if any(Path(path).is_absolute() or ".." in Path(path).parts for path in paths):
        raise UnmaskError(f"{place} is damaged: the path of a module is outside the folder.")
    return dict(zip(kinds, paths, strict=True))


def _pooling(folder: Path) -> str:
    place = folder / "config.json"
    facts = read_json(place)
    said = facts.get("pooling_mode")
    if said is None:
        names = {flag: pooling for pooling, flag in FLAGS.items()}
        said = [names.get(flag, flag) for flag, on in facts.items() if flag.startswith("pooling_mode_") and on]
    modes = [said] if isinstance(said, str) else said
    if not isinstance(modes, list) or len(modes) != 1 or str(modes[0]) not in FLAGS:
        shown = ", ".join(map(str, modes)) if isinstance(modes, list) and modes else said
        raise UnmaskError(f"{place}: the pooling {shown} is not supported; only {' or '.join(FLAGS)} is.")
    return str(modes[0])


def _check_use(folder: Path, facts: Mapping[str, Any], normalise: bool) -> None:
    """Raises UnmaskError for a default prompt, and for a similarity other than the cosine, or the dot product of
    normalised vectors, which equals it."""
    place = folder / "config_sentence_transformers.json"
    name, prompts = facts.get("default_prompt_name"), facts.get("prompts") or {}
    if isinstance(name, str) and isinstance(prompts, Mapping) and prompts.get(name):
        raise UnmaskError(f"{place} adds the prompt '{prompts[name]}' to every text, which is not supported.")
    similarity = facts.get("similarity_fn_name") or "cosine"
    if similarity != "cosine" and not (similarity == "dot" and normalise):
        raise UnmaskError(f"{place} compares vectors by '{similarity}', which is not supported; only the cosine is.")


def _length(folder: Path, tokenizer: Tokenizer | None) -> int | None:
    """The longest sequence in tokens, as the folder sets it; None without a limit."""
    place = next(iter(sorted(folder.glob("sentence_*_config.json"))), folder / "sentence_bert_config.json")
    facts = _optional(place)
    if facts.get("do_lower_case") and tokenizer is not None and tokenizer.cased:
        raise UnmaskError(f"{place} lowercases texts for a cased tokenizer, which is not supported.")
    length = facts.get("max_seq_length")
    if length is None:
        length = _optional(folder / "tokenizer_config.json").get("model_max_length")
    if length is None or (isinstance(length, (int, float)) and length > UNSAID):
        return None
    if not isinstance(length, int) or length < 1:
        raise UnmaskError(f"{place}: max_seq_length must be a number of tokens, not {length!r}.")
    return length


def _optional(place: Path) -> dict[str, Any]:
    return read_json(place) if place.is_file() else {}
