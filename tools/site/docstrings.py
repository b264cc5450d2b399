"""Extension of griffe (site.yml): docstrings of the package as Markdown.

rate  share of the tokens that move     becomes an item of a list
    an example (prompt and answer)          becomes a block of code
Config <-> JSON, [UNK] [SEP]            keep their signs
"""

from __future__ import annotations

import re
from typing import Any

import griffe

FIELD = re.compile(r"(\w[\w.*]*(?:, [\w.*]+)*) {2,}(\S.*)")
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
CODE = re.compile(r"(^~~~~ pycon\n.*?\n~~~~$|`[^`]*`|^    .*?$)", re.MULTILINE | re.DOTALL)


def markdown(text: str) -> str:
    r"""A docstring with its aligned fields as a list, and its examples as code.

    >>> markdown("Two.\n\nrate   share\n       of all\nother  one [UNK]")
    'Two.\n\n- `rate`: share of all\n- `other`: one &#91;UNK]'
    """
    lines: list[str] = []
    inside = False
    for line in EXAMPLE.sub(r"~~~~ pycon\n\g<0>\n~~~~", text).split("\n"):
        found = FIELD.fullmatch(line)
        if found and (inside or not lines or not lines[-1]):
            inside = True
            lines.append(f"- `{found[1]}`: {found[2]}")
        elif inside and line.startswith("  "):
            lines[-1] += f" {line.strip()}"
        else:
            inside = False
            lines.append(line)
    parts = CODE.split("\n".join(lines))  # text, code, text, code, ...
    parts[::2] = [part.replace("<", "&lt;").replace("[", "&#91;") for part in parts[::2]]
    return "".join(parts)


class Docstrings(griffe.Extension):
    """Rewrites every docstring once, when its object is collected."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
