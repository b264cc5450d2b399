"""The lowest versions that pyproject.toml states, a line each, for an environment that `make test-minimal` tries."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_BOUND = re.compile(r"(?P<name>[\w.-]+(?:\[[\w,-]+\])?)(?:>=(?P<lowest>[\w.]+))?")
TRIED_APART = {"torch", "datasets"}  # torch comes from another index for each device; datasets needs a network


def main() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(one for name in extras if name != "dev" for one in extras[name])]
    stated = [one for one in named if not one.startswith(f"{project['name']}[")]  # an extra that is another one
    sys.stdout.write("".join(f"{line}\n" for line in lowest(stated)))


def lowest(stated: Iterable[str]) -> list[str]:
    """`name==version` for each `name>=version`, a name without a version as it is, sorted.

    Raises ValueError for a dependency that is stated in another form, or with two bounds.
    """
    found: dict[str, str | None] = {}
    for requirement in stated:
        match = _BOUND.fullmatch(requirement)
        if match is None:
            raise ValueError(f"'{requirement}' is not of the form name>=version.")
        if found.setdefault(match["name"], match["lowest"]) != match["lowest"]:
            raise ValueError(f"{match['name']} has two bounds: {found[match['name']]} and {match['lowest']}.")
    return [f"{name}=={low}" if low else name for name, low in sorted(found.items()) if name not in TRIED_APART]


if __name__ == "__main__":
    main()
