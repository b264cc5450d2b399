"""Work in parts: folders NUMBER-of-COUNT beside the result, each written whole by its own command and then sealed."""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from unmask.data.files.corpora import checksum_of, seal
from unmask.data.files.remote import workspace
from unmask.errors import UnmaskError
from unmask.files import MANIFEST

VERSION = 1
CHUNK = 1 << 22  # bytes that are read at once
TOKENS, SAMPLE = "unmask-corpus-part", "unmask-vocabulary-part"
COMMANDS = {TOKENS: "unmask corpus build", SAMPLE: "unmask corpus vocabulary"}
"""Format of the manifest of a part -> the command that writes it."""

_NAME = re.compile(r"(\d{5,})-of-(\d{5,})")
_FACTS = ("format", "version", "number", "count", "inputs", "options", "documents", "duplicates", "empty", "files")


@dataclass(frozen=True)
class Share:
    """Part `number` of `count`, from 1."""

    number: int
    count: int

    @classmethod
    def read(cls, text: str) -> Self:
        """The part of `2/8`. Raises UnmaskError for another text."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UnmaskError(f"--part must be I/N with I from 1 to N, such as 2/8, not '{text}'.")
        return cls(int(number), int(count))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, sizes: Sequence[int]) -> range:
        """The numbers of the items of this part: neighbours, of about the same total size in every part."""
        ends = np.cumsum(np.array(sizes, np.int64) + 1)
        owners = (2 * ends - np.diff(ends, prepend=0)) * self.count // (2 * ends[-1:])
        begin, end = np.searchsorted(owners, [self.number - 1, self.number]).tolist()
        return range(begin, end)

    @property
    def suffix(self) -> str:
        return f"{self.number:05d}-of-{self.count:05d}"


@dataclass(frozen=True)
class Part:
    """A part that is complete. Its files are compared with the manifest when they are read."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def share(self) -> Share:
        return Share(self.manifest["number"], self.manifest["count"])

    def read(self, name: str) -> bytes:
        """The content of a file. Raises UnmaskError if it is missing, cut short or differs from its checksum."""
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """The content of a file in chunks; the errors of `read` are raised at the end."""
        fact = self.manifest["files"].get(name)
        if not isinstance(fact, Mapping):
            raise self.damaged(MANIFEST)
        digest, size = hashlib.sha256(), 0
        try:
            with (self.folder / name).open("rb") as file:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    yield chunk
        except FileNotFoundError:
            raise self.damaged(name, "is missing") from None
        except OSError as error:
            raise UnmaskError(f"{self.folder / name} cannot be read: {error.strerror or error}.") from None
        if size != fact.get("bytes"):
            raise self.damaged(name, f"has {size:,} bytes, but its manifest says {fact.get('bytes'):,}")
        if digest.hexdigest() != fact.get("sha256"):
            raise self.damaged(name)

    def damaged(self, name: str, how: str = "does not match its manifest") -> UnmaskError:
        """The error for a file of this part."""
        command = f"{COMMANDS[self.manifest['format']]} --part {self.share}"
        return UnmaskError(f"{self.folder / name} {how}: delete {self.folder} and run `{command}` again.")


def parts_of(out: Path) -> Path:
    """The folder of the parts of a result: a sibling."""
    return out.parent / f"{out.name}.parts"


def write_part(
    folder: Path, share: Share, format: str, facts: Mapping[str, Any], write: Callable[[Path], Mapping[str, Any]]
) -> Part:
    """Write a part, unless it is complete already, and return it.

    facts   entries of its manifest that all parts share: inputs, options, fingerprint
    write   writes the files into an empty folder, and returns the other entries

    Raises UnmaskError if a complete part is damaged, or differs in its facts.
    """
    found = _finished(folder, format, facts)
    if found is None:
        with workspace(folder) as place:
            head = {"number": share.number, "count": share.count, **facts}
            seal(place, format, VERSION, {**head, **write(place)})
        found = _open(folder)
    return found


def _finished(folder: Path, format: str, facts: Mapping[str, Any]) -> Part | None:
    if not (folder / MANIFEST).is_file():
        return None
    part = _open(folder)
    for name, value in {"format": format, **facts}.items():
        if part.manifest.get(name) != value:
            raise UnmaskError(f"{folder} exists already, with other {_SAID[name]}: delete it, or choose another --out.")
    for name in part.manifest["files"]:
        deque(part.chunks(name), maxlen=0)
    return part


def complete(out: Path, count: int) -> int:
    """How many of the parts of a result are complete."""
    shares = [Share(number, count) for number in range(1, count + 1)]
    return sum((parts_of(out) / share.suffix / MANIFEST).is_file() for share in shares)


def all_parts(out: Path, format: str | None = None) -> list[Part]:
    """The parts of a result, in order. Raises UnmaskError if one is missing, does not fit the others, or has another
    format than the given one."""
    place = parts_of(out)
    names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    found = [match for match in map(_NAME.fullmatch, names) if match]
    if not found:
        if out.name.endswith(".parts"):
            raise UnmaskError(f"{out} holds parts: give the folder of their corpus, {str(out).removesuffix('.parts')}.")
        raise UnmaskError(f"There are no parts in {place}: write them with unmask corpus build --part 1/4 --out {out}")
    counts = sorted({int(match[2]) for match in found})
    if len(counts) > 1:
        raise UnmaskError(f"{place} has parts of {counts[0]} and of {counts[1]}: delete those that are not wanted.")
    shares = [Share(number, counts[0]) for number in range(1, counts[0] + 1)]
    missing = [share for share in shares if not (place / share.suffix / MANIFEST).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        raise UnmaskError(f"Part {missing[0]} of {out}{more} missing: run its command, with --part {missing[0]}.")
    parts = [_open(place / share.suffix) for share in shares]
    for part, share in zip(parts, shares, strict=True):
        if part.share != share or part.manifest["format"] != (format or parts[0].manifest["format"]):
            raise part.damaged(MANIFEST)
        for name, said in _SAID.items():
            if part.manifest.get(name) != parts[0].manifest.get(name):
                raise UnmaskError(
                    f"{part.folder} and {parts[0].folder} have different {said}: delete one of them and run its "
                    "command again, with the same data and options as the other parts."
                )
    return parts


_SAID = {
    "format": "formats",
    "inputs": "input files, spellings of their paths or options of reading them",
    "fingerprint": "vocabularies",
    "options": "options",
}


def _open(folder: Path) -> Part:
    """Raises UnmaskError if the manifest is damaged."""
    again = f"delete {folder} and run the command of this part again"
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        checksum = manifest.pop("checksum")
    except OSError as error:
        raise UnmaskError(f"{folder / MANIFEST} cannot be read: {error.strerror or error}.") from None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise UnmaskError(f"{folder / MANIFEST} is damaged: {again}.") from None
    if checksum != checksum_of(manifest) or any(name not in manifest for name in _FACTS):
        raise UnmaskError(f"{folder / MANIFEST} does not match its own checksum: it is damaged; {again}.")
    if manifest["format"] not in COMMANDS or manifest["version"] != VERSION:
        raise UnmaskError(f"{folder} is not a part that this version of unmask reads; {again}.")
    return Part(folder, manifest)


def inputs_of(files: Sequence[tuple[str, int]], how: Mapping[str, Any]) -> str:
    """A checksum of the names and sizes of all input files and of the options of reading them, for all parts."""
    return checksum_of({"files": files, "how": how})
