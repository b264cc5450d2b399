"""StandIn: data that the product has or makes itself, for a first run of a task without other data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StandIn:
    """Data for a first run.

    what     description, for messages
    name     of the folder
    write    writes the folder; an existing one stays as it is
    rows     split -> its file or folder, within the folder
    options  fields of the task's options that suit the data
    """

    what: str
    name: str
    write: Callable[[Path], None]
    rows: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
