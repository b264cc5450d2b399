"""How to search, as foreign folders say it: generation_config.json, read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.huggingface.table import Part

GENERATION = "generation_config.json"
POSITIONS = 1_024  # tokens of the longest sequence that is written into a folder, where the model knows no end
STOPS = {"estimate": False, "certain": "never", "full": True}
"""When a beam is done -> `early_stopping`."""


class Writing(Protocol):
    """What a search has to know of the config of an encoder–decoder."""

    @property
    def length(self) -> int | None: ...
    @property
    def padding(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


def write_search(config: Writing, search: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json that makes `generate` of transformers search as the fields of a `generate.Search` say.

    Their lengths count the token that starts a text, and padding is never written. Diverse groups, lengths by factors
    and the "gnmt" penalty have no counterpart there.
    """
    limits, blocking = search.get("limits", {}), search.get("blocking", {})
    longest = min(limits.get("max_length", 256), config.length or POSITIONS)
    forbidden = sorted({config.padding, *blocking.get("forbidden", ())} - {config.end})
    values: dict[str, Any] = {
        "decoder_start_token_id": config.start,
        "eos_token_id": config.end,
        "pad_token_id": config.padding,
        "bad_words_ids": [[token] for token in forbidden],
        "num_beams": search.get("beam_size", 1),
        "max_length": longest + 1,
    }
    if values["num_beams"] > 1:
        values["early_stopping"] = STOPS[search.get("stop", "estimate")]
        if search.get("penalty", "power") == "power":
            values["length_penalty"] = search.get("length_penalty", 1.0)
    if limits.get("min_length"):
        values["min_length"] = limits["min_length"] + 1
    if blocking.get("no_repeat_ngram"):
        values["no_repeat_ngram_size"] = blocking["no_repeat_ngram"]
    if blocking.get("repetition_penalty", 1.0) != 1:
        values["repetition_penalty"] = blocking["repetition_penalty"]
    return values


def read_search(config: Writing, values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `generate.Search`, from generation_config.json, or from config.json, where older folders say it.

    Bad words of several tokens, draws and a forced last token are defaults of theirs that stay behind. Raises
    UnmaskError for a value of another type than it must have, and for tokens that begin or end a text other than those
    of the config.
    """
    for name, own in (("decoder_start_token_id", config.start), ("eos_token_id", config.end)):
        if values.get(name) not in (None, own, [own]):
            raise UnmaskError(f"its {name} is {values[name]!r}, but that of config.json {own}; make the two agree.")
    if values.get("forced_bos_token_id") is not None:
        raise UnmaskError("a first token that is forced, forced_bos_token_id, is not supported; remove that field.")
    stops = {theirs: ours for ours, theirs in STOPS.items()}
    words = values.get("bad_words_ids") or []
    try:
        return {
            "beam_size": int(values.get("num_beams") or 1),
            "length_penalty": float(1.0 if values.get("length_penalty") is None else values["length_penalty"]),
            "stop": stops[values.get("early_stopping") or False],
            "limits": {
                "min_length": max(int(values.get("min_length") or 0) - 1, 0),
                "max_length": max(int(values.get("max_length") or config.length or POSITIONS) - 1, 1),
            },
            "blocking": {
                "forbidden": sorted(
                    {config.padding, *(int(word[0]) for word in words if len(word) == 1)} - {config.end}
                ),
                "repetition_penalty": float(values.get("repetition_penalty") or 1.0),
                "no_repeat_ngram": int(values.get("no_repeat_ngram_size") or 0),
            },
        }
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise UnmaskError(
            f"it says how to search in a way that is not understood ({error}); remove that field."
        ) from None


class Searched(Part):
    """The file by which `generate` of transformers searches as our settings say, and by which we search as a folder of
    others says."""

    def files(self, config: Writing, settings: Mapping[str, Any]) -> Mapping[str, str]:
        values = write_search(config, settings.get("search") or {})
        return {GENERATION: json.dumps(values, indent=2, ensure_ascii=False) + "\n"}

    def settings(self, config: Writing, values: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        place = folder / GENERATION
        place, values = (place, read_json(place)) if place.is_file() else (folder / "config.json", values)
        try:
            return {"search": read_search(config, values)}
        except UnmaskError as error:
            raise UnmaskError(f"{place}: {error}") from None
