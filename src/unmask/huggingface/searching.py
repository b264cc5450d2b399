"""Search settings in the format of `transformers`: reads and writes generation_config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.huggingface.processors import GENERATION
from unmask.huggingface.table import Part

POSITIONS = 1_024  # tokens: the longest sequence in a written folder if the model has no limit
STOPS = {"estimate": False, "certain": "never", "full": True}
"""`Search.stop` -> `early_stopping` in `transformers`."""


class Writing(Protocol):
    """The fields of an encoder–decoder's config that a search needs."""

    @property
    def length(self) -> int | None: ...
    @property
    def padding(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


def write_search(config: Writing, search: Mapping[str, Any]) -> dict[str, Any]:
    """The generation_config.json with which `generate` of `transformers` searches like a `generate.Search`.

    Lengths in `transformers` include the start token. Padding is forbidden as an output. `transformers` has no
    equivalent of diverse groups, of lengths relative to the source, and of the "gnmt" penalty.
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
    """The fields of a `generate.Search`, from generation_config.json or, in older folders, from config.json.

    Bad words of several tokens, sampling and a forced last token are ignored. Raises UnmaskError for a value of the
    wrong type, a forced first token, and a start or end token that differs from the config.
    """
    for name, own in (("decoder_start_token_id", config.start), ("eos_token_id", config.end)):
        if values.get(name) not in (None, own, [own]):
            raise UnmaskError(f"its {name} is {values[name]!r}, but config.json has {own}; make the two agree.")
    if values.get("forced_bos_token_id") is not None:
        raise UnmaskError("forced_bos_token_id is not supported; remove that field.")
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
        raise UnmaskError(f"its search settings are not understood ({error}); correct or remove that field.") from None


class Searched(Part):
    """Writes the search settings to generation_config.json for `transformers`, and reads those of its folders."""

    def files(self, config: Writing, settings: Mapping[str, Any], labels: Sequence[str]) -> Mapping[str, str]:
        values = write_search(config, settings.get("search") or {})
        return {GENERATION: json.dumps(values, indent=2, ensure_ascii=False) + "\n"}

    def settings(self, config: Writing, values: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        place = folder / GENERATION
        place, values = (place, read_json(place)) if place.is_file() else (folder / "config.json", values)
        try:
            return {"search": read_search(config, values)}
        except UnmaskError as error:
            raise UnmaskError(f"{place}: {error}") from None
