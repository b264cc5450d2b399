"""Gallery: small pictures with captions, as a section of a page. The pictures are a part of the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

KINDS = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""First bytes of a file -> its media type."""


@dataclass(frozen=True)
class Captioned:
    """A picture.

    content  bytes of a PNG or JPEG file; a file of another format is not shown
    lines    the caption
    about    what the picture is, such as the name of its file: shown where the pointer rests
    good     whether the caption is highlighted as good, or as bad; None: it is not highlighted
    wide     whether it takes two columns, as a spectrogram does
    """

    content: bytes
    lines: Sequence[str]
    about: str = ""
    good: bool | None = False
    wide: bool = False

    def html(self) -> str:
        kind = next((kind for begin, kind in KINDS.items() if self.content.startswith(begin)), None)
        said = escape(", ".join(self.lines))
        image = ""
        if kind is not None:
            data = base64.b64encode(self.content).decode()
            image = f'<img src="data:{kind};base64,{data}" alt="{said}" title="{escape(self.about)}">'
        first, *others = self.lines
        kinds = {True: "good", False: "", None: "plain"}
        caption = f'<b class="{kinds[self.good]}">{escape(first)}</b>'
        caption += "".join(f"<small>{escape(line)}</small>" for line in others)
        return f'<div class="picture{" wide" if self.wide else ""}">{image}{caption}</div>'


@dataclass(frozen=True)
class Gallery:
    """Pictures side by side, in as many rows as they need."""

    title: str
    pictures: Sequence[Captioned]
    note: str = ""

    def html(self) -> str:
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        pictures = "".join(picture.html() for picture in self.pictures)
        return f'<section><h2>{escape(self.title)}</h2><div class="gallery">{pictures}</div>{note}</section>'
