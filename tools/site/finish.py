"""Checks the built pages, and lays them beside those of other versions.

    python tools/site/finish.py build/site/html site     # -> site/0.2.0/, site/versions.json, site/index.html

Every link leads to a page and an anchor that exist, every address of another host is well formed, and no page loads
anything from another host. Status 1 and one line for each link that is wrong.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from unmask import __version__

HERE = Path(__file__).parent
SHIM = "https://unpkg.com/iframe-worker/shim"
TAG = re.compile(r"<(\w+)((?:\s+[\w:@.-]+(?:=(?:\"[^\"]*\"|'[^']*'|[^\s>\"']*))?)*)\s*/?>")
FIELD = re.compile(r"([\w:-]+)=(?:\"([^\"]*)\"|([^\s>\"']+))")
LOADED = {"script", "img", "iframe", "source", "video", "audio"}
REDIRECT = (
    '<!doctype html><meta charset="utf-8"><title>unmask</title><meta http-equiv="refresh" content="0; url={}/">\n'
)

Tags = list[tuple[str, dict[str, str]]]


def main(built: Path, site: Path) -> int:
    at_home(built)
    pages = {
        path.relative_to(built).as_posix(): tags(path.read_text(encoding="utf-8")) for path in built.rglob("*.html")
    }
    files = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    wrong = sorted(set(problems(pages, files)))
    print("\n".join(wrong) or f"{len(pages)} pages: all links lead somewhere, nothing is loaded from elsewhere.")
    if not wrong:
        lay(built, site)
    return bool(wrong)


def at_home(built: Path) -> None:
    """Let pages load the one script that the theme asks another host for from the site itself."""
    shutil.copy(HERE / "iframe-worker.js", built / "assets" / "javascripts")
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        own = posixpath.relpath("assets/javascripts/iframe-worker.js", page.parent.relative_to(built).as_posix())
        page.write_text(text.replace(SHIM, own), encoding="utf-8")


def tags(text: str) -> Tags:
    """The tags of a page, each with its attributes."""
    return [
        (tag[1], {field[1]: html.unescape(field[2] or field[3] or "") for field in FIELD.finditer(tag[2])})
        for tag in TAG.finditer(text)
    ]


def problems(pages: Mapping[str, Tags], files: set[str]) -> Iterator[str]:
    """A line for each link that leads nowhere, and for each file that is loaded from another host."""
    anchors = {
        page: {fields[name] for _, fields in found for name in ("id", "name") if name in fields}
        for page, found in pages.items()
    }
    for page, found in pages.items():
        if page == "404.html":  # its links begin at the root of a host
            continue
        for tag, fields in found:
            for link in filter(None, (fields.get("href"), fields.get("src"))):
                parts = urlsplit(link)
                if parts.scheme == "data":
                    continue
                if parts.scheme or parts.netloc:
                    if tag in LOADED or fields.get("rel") == "stylesheet":
                        yield f"{page}: loads {link}"
                    elif parts.scheme != "mailto" and not (parts.scheme in ("http", "https") and "." in parts.netloc):
                        yield f"{page}: {link} is no address"
                    continue
                target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
                target = page if not parts.path else target
                if target + "/index.html" in files or target == ".":
                    target = posixpath.normpath(f"{target}/index.html")
                if target not in files:
                    yield f"{page}: {link} leads nowhere"
                elif parts.fragment and unquote(parts.fragment) not in anchors.get(target, ()) and tag == "a":
                    yield f"{page}: {link} has no such anchor"


def lay(built: Path, site: Path) -> None:
    """Put the pages of this version beside those of others, with the list that the theme's selector reads."""
    site.mkdir(exist_ok=True)
    shutil.rmtree(site / __version__, ignore_errors=True)
    shutil.move(built, site / __version__)
    found = [path.name for path in site.iterdir() if (path / "index.html").is_file()]
    newest = sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == newest[0] else []} for name in newest]
    (site / "versions.json").write_text(json.dumps(listed, indent=1), encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(newest[0]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
