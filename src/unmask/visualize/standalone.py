"""A view as one HTML file: the script and style of the page with the data inside; it works without a network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from unmask.files import write_text

FOLDER = Path(__file__).parents[1] / "page"
"""The folder of index.html, style.css and the modules."""

ENTRY = "alone.js"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)


def standalone(title: str, data: Mapping[str, Any]) -> str:
    """The page of the view `data["view"]`.

    The parts of `data["details"]` are in separate elements after the script: the browser draws the view before it has
    read them, and the script parses each when it is needed. The Content-Security-Policy allows only this script and
    this style, by their SHA-256, so that the page can send no request and nothing in the data can run.
    """
    script = linked(ENTRY)
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'"
    first = {name: value for name, value in data.items() if name != "details"} | {"title": title}
    details = "\n".join(_DETAIL.format(i=i, data=safe_json(one)) for i, one in enumerate(data.get("details", ())))
    return _PAGE.format(
        title=escape(title), policy=policy, style=style, data=safe_json(first), script=script, details=details
    )


def write(path: Path | str, title: str, data: Mapping[str, Any]) -> None:
    """Write the page, whole or not at all. Raises UnmaskError if the file cannot be written."""
    write_text(Path(path), standalone(title, data).encode(errors="replace").decode())  # a lone surrogate has no UTF-8


def linked(entry: str) -> str:
    """A module and all modules that it imports, each once and before those that need it, as one script.

    Each module becomes a function that returns its exports. A module may only import names from `./name.js` and export
    declarations.
    """
    done: dict[str, str] = {}

    def visit(name: str) -> None:
        source = (FOLDER / name).read_text(encoding="utf-8")
        for other in _IMPORT.findall(source):
            if other[1] not in done:
                visit(other[1])
        body = _EXPORT.sub("", _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_scope(found[2])};\n", source))
        exported = ", ".join(_EXPORTED.findall(source))
        done[name] = f"const {_scope(name)} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"

    visit(entry)
    return "\n".join(['"use strict";', *done.values()])


def _scope(name: str) -> str:
    return f"${name.removesuffix('.js')}"


def safe_json(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_DETAIL = '<script type="application/json" id="detail-{i}">{data}</script>'
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1></header>
<main id="view"></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
{details}
</body>
</html>
"""
