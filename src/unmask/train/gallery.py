"""Gallery: small pictures with captions, as a section of a page. The pictures are a part of the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from unmask.train.chart import Drawing

ACROSS = 6  # pictures of a row of a drawing
CELL, SIDE, LINE = 112, 96, 16  # pixels: from picture to picture, of a picture, of a line of its caption
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

    @property
    def address(self) -> str:
        """The picture as an address; empty if its format is not shown."""
        kind = next((kind for begin, kind in KINDS.items() if self.content.startswith(begin)), None)
        return f"data:{kind};base64,{base64.b64encode(self.content).decode()}" if kind else ""

    def html(self) -> str:
        said = escape(", ".join(self.lines))
        image = ""
        if address := self.address:
            image = f'<img src="{address}" alt="{said}" title="{escape(self.about)}">'
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

    def drawing(self) -> Drawing:
        marks, place = [], 0
        tall = SIDE + LINE * (1 + max((len(picture.lines) for picture in self.pictures), default=0))
        for picture in self.pictures:
            wide = 1 + picture.wide
            if place % ACROSS + wide > ACROSS:
                place += 1  # a wide picture begins a row
            x, y, width = CELL * (place % ACROSS), tall * (place // ACROSS), CELL * wide - CELL + SIDE
            stretched = ' preserveAspectRatio="none"' if picture.wide else ""
            size = f'width="{width}" height="{SIDE}"{stretched}'
            marks.append(f'<image x="{x}" y="{y}" {size} href="{picture.address}"/>')
            for i, line in enumerate(picture.lines, 1):
                marks.append(f'<text x="{x}" y="{y + SIDE + LINE * i}">{escape(line)}</text>')
            place += wide
        return Drawing(CELL * min(ACROSS, place), tall * -(-place // ACROSS), "".join(marks))

    def html(self) -> str:
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        pictures = "".join(picture.html() for picture in self.pictures)
        return f'<section><h2>{escape(self.title)}</h2><div class="gallery">{pictures}</div>{note}</section>'
