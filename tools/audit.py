"""Known holes in what constraints.txt pins, by pip-audit; says so in a sentence where nobody could be asked.

    python tools/audit.py                      # status 1 where there are any

A mirror of the package index often has no word on holes, and pip-audit takes silence for safety: packages that the
service does not know are counted here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PINNED = Path(__file__).resolve().parents[1] / "constraints.txt"


def main() -> int:
    found = ask(PINNED)
    if found is None:
        print("audit: the service that knows of holes cannot be reached from here; nothing was checked.")
        return 0
    lines, status = told(found)
    print("\n".join(lines))
    return status


def ask(pinned: Path) -> list[dict[str, Any]] | None:
    """What pip-audit says of each package; None where it could not ask."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "-r", str(pinned)]
        command += ["--progress-spinner", "off", "--timeout", "20", "-f", "json", "-o", str(out)]
        subprocess.run(command, capture_output=True)  # its status is 1 for holes and for errors alike
        return json.loads(out.read_text(encoding="utf-8"))["dependencies"] if out.exists() else None


def told(found: list[dict[str, Any]]) -> tuple[list[str], int]:
    """(lines to print, exit status) of what pip-audit says: the holes, and how many packages it could look up."""
    known = [one for one in found if "skip_reason" not in one]
    holes = [
        f"audit: {one['name']} {one['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'none'}"
        for one in known
        for hole in one["vulns"]
    ]
    if not known:
        return [f"audit: the service that answers here knows none of {len(found)} packages; nothing was checked."], 0
    return [*holes, f"audit: {len(known)} of {len(found)} packages looked up, {len(holes)} known holes."], int(
        bool(holes)
    )


if __name__ == "__main__":
    sys.exit(main())
