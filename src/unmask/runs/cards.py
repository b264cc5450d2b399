"""The model cards of runs: parts that all kinds of runs share. Each kind says the rest (`Run.card`)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unmask.config import flatten, read_json
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface import hub
from unmask.huggingface.card import CARD, Card, is_unedited, write_card
from unmask.huggingface.opening import opened_by
from unmask.train.checkpoint import RUN
from unmask.train.events import Result

OF_HUB = "hub:"  # before the name of a data set
OF_DATA = re.compile(r"[\w.-]+/[\w.-]+")
TITLE = re.compile(r"^# (.*)$", re.MULTILINE)
OF_MODEL = re.compile(r"[\w.-]+(/[\w.-]+)?")
MOST_FILES = 3  # that are named one by one


def write(folder: Path, card: Card) -> bool:
    """Write the card of a model folder, unless its card was edited. Whether it was written."""
    return is_unedited(folder) and write_card(folder, card, opened_by(folder, card.pipeline))


OF_MACHINE = frozenset({"device", "workers", "log_every", "evaluate_every", "save_every", "keep", "tensorboard"})
"""Names of settings that do not change what is learned."""


def settings(values: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """The settings of a config for a card: dotted name -> value, without those that are not set, and `OF_MACHINE`."""
    without = OF_MACHINE.union(without)
    found = {name: value for name, value in flatten(dict(values)).items() if name.split(".")[-1] not in without}
    return {name: value for name, value in found.items() if not (value is None or value is False or value in ("", []))}


def unfinished(result: Result) -> list[str]:
    """A sentence for a run that ended before its last step."""
    if result.stopped is None:
        return []
    return [f"The run was stopped by {result.stopped} after {result.step:,} of {result.total:,} steps."]


def name_of(start: Path | str | None) -> str:
    """The name of the model that a run started from: on the hub, or in the title of its card, or of its folder; "" for
    new weights."""
    if start is None:
        return ""
    return hub.name_of(start) or _title(Path(start)) or Path(start).resolve().name


def _title(folder: Path) -> str:
    """The first heading of the card of a folder; "" without one, or if it is no name."""
    with suppress(OSError, UnicodeDecodeError):
        found = TITLE.search((folder / CARD).read_text(encoding="utf-8"))
        return found[1].strip() if found and OF_MODEL.fullmatch(found[1].strip()) else ""
    return ""


def made(start: Path | str | None) -> str:
    """The recipe that made the model that a run started from; "" for new weights, and if its run.json does not tell."""
    with suppress(UnmaskError, OSError):
        return str(read_json(Path(start or "") / RUN).get("recipe") or "")
    return ""


def file_name(place: Path | str) -> str:
    """A file or data set without the folders of this machine."""
    return str(place) if str(place).startswith(OF_HUB) else Path(place).resolve().name


def files_name(places: Sequence[str], otherwise: str) -> str:
    """Some files or data sets as a person names them: by their names, or many by that of their folder, if they have
    one."""
    names = dict.fromkeys(map(file_name, places))
    if 0 < len(names) <= MOST_FILES:
        return ", ".join(names)
    with suppress(ValueError):  # there are none, or only some are absolute
        return Path(os.path.commonpath([Path(place).parent for place in places])).name or otherwise
    return otherwise


def datasets(places: Iterable[object]) -> list[str]:
    """Those of some files that are data sets of the hub, by their names there."""
    named = (str(place).removeprefix(OF_HUB) for place in places if str(place).startswith(OF_HUB))
    return list(dict.fromkeys(found[0] for name in named if (found := OF_DATA.match(name))))


def masked(command: tuple[str, str] | None, processor: Any) -> tuple[str, str] | None:
    """A command with the mask of a tokenizer in place of [MASK]."""
    if command is None or not isinstance(processor, Tokenizer) or "[MASK]" not in command[1]:
        return command
    return command[0], command[1].replace("[MASK]", processor.pieces([processor.mask])[0])
