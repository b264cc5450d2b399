"""Mutations of a valid file: of bytes, lines, JSON and the headers of weights, at places drawn at random."""

from __future__ import annotations

import copy
import gzip
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

TOKENS = [b"null", b"-1", b"1e999", b"NaN", b"[]", b"{}", b'""', b"99999999999999999999", b"true", b"\\ud800", b"\0"]
TOKENS += [
    b"\n",
    b"\r",
    b"\r\n",
    b"\xff",
    b"\xef\xbb\xbf",
    b'"',
    b",",
    b"\t",
    b"0",
    b"[[",
    b"}",
    b" ",
    b"|",
    b"(*)",
    b"_",
]
TOKENS += [
    "\u2028".encode(),
    "\x85".encode(),
    b"\xed\xa0\x80",
    "İ".encode(),
    "\U0001f642\u200d".encode(),
    b"\x1b[2J",
    b"9" * 400,
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    0.5,
    -1.5,
    1e308,
    float("nan"),
    float("inf"),
    2**31,
    2**63,
    10**400,
]
VALUES += [
    "",
    " ",
    "a",
    "0",
    "-1",
    "\ud800",
    "a\nb\x1b[2J",
    "\0",
    "x" * 3_000,
    "../../etc",
    [],
    {},
    [[]],
    [None],
    [0],
    ["a", "a"],
]
VALUES += [{"": 0}, {"a": {"b": [1]}}, [1, 2, "x"], [{}], {"0": "x", "1": "y"}]


def bend(name: str, content: bytes, donors: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """A file's content, changed at one to five places in one of the ways that suit its name.

    donors  contents of the files beside it, from which pieces may be taken
    """
    ways: list[Callable[[bytes, Sequence[bytes], np.random.Generator], bytes]] = [bytes_bent]
    if name.endswith((".json", ".jsonl", ".json.gz")):
        ways += [json_bent] * 3
    if name.endswith(".safetensors"):
        ways += [header_bent] * 2
    if name.endswith((".txt", ".csv", ".tsv", ".conll", ".conllu", ".jsonl", ".sentences")):
        ways += [lines_bent]
    way = ways[int(rng.integers(len(ways)))]
    if name.endswith(".gz") and rng.random() < 0.7:
        return gzip.compress(way(gzip.decompress(content), donors, rng), 1, mtime=0)
    return way(content, donors, rng)


def bytes_bent(content: bytes, donors: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """Bytes flipped, cut, doubled, or replaced by a token or a piece of another file."""
    bent = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        begin = int(rng.integers(len(bent) + 1))
        end = min(len(bent), begin + int(rng.geometric(0.05)))
        match rng.integers(6):
            case 0:
                bent[begin:end] = b""
            case 1:
                bent[begin:begin] = bent[begin:end]
            case 2:
                bent[begin:end] = TOKENS[int(rng.integers(len(TOKENS)))]
            case 3 if begin < len(bent):
                bent[begin] ^= 1 << int(rng.integers(8))
            case 4 if rng.random() < 0.1:
                del bent[begin:]
            case 5:
                donor = donors[int(rng.integers(len(donors)))]
                start = int(rng.integers(len(donor) + 1))
                bent[begin:end] = donor[start : start + int(rng.geometric(0.05))]
    return bytes(bent)


def lines_bent(content: bytes, donors: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """Lines dropped, doubled, moved, joined, or with fields swapped; other line ends."""
    lines = content.split(b"\n")
    for _ in range(int(rng.integers(1, 4))):
        i, j = rng.integers(len(lines), size=2).tolist()
        match rng.integers(7):
            case 0 if len(lines) > 1:
                del lines[i]
            case 1:
                lines.insert(j, lines[i])
            case 2:
                lines[i], lines[j] = lines[j], lines[i]
            case 3:
                lines.insert(i, TOKENS[int(rng.integers(len(TOKENS)))])
            case 4:
                separator = next((mark for mark in (b"\t", b",", b" ") if mark in lines[i]), b" ")
                fields = lines[i].split(separator)
                fields[int(rng.integers(len(fields)))] = TOKENS[int(rng.integers(len(TOKENS)))]
                lines[i] = separator.join(fields[:: 1 if rng.random() < 0.7 else -1])
            case 5:
                lines[i] = lines[i] * int(rng.integers(2, 50))
            case 6 if rng.random() < 0.3:
                return (b"\r\n", b"\r", b"\n\n", "\u2028".encode())[int(rng.integers(4))].join(lines)
    return b"\n".join(lines)


def json_bent(content: bytes, donors: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """Values, names and items of JSON, or of a line of it, replaced, removed, doubled; else bytes."""
    lines = content.split(b"\n")
    try:
        at, value = None, json.loads(content)
    except (ValueError, RecursionError):
        at = int(rng.integers(len(lines)))
        try:
            value = json.loads(lines[at])
        except (ValueError, RecursionError):
            return bytes_bent(content, donors, rng)
    whole = [value]
    for _ in range(int(rng.integers(1, 4))):
        _change(whole, rng)
    if not whole:
        return b""
    text = json.dumps(whole[0], ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.03:
        text = _nested(text, rng)
    if at is None:
        return text
    return b"\n".join([*lines[:at], text, *lines[at + 1 :]])


def header_bent(content: bytes, donors: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """A safetensors file with other JSON in its header, whose stated length is correct or not."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json_bent(content[8 : 8 + length], donors, rng)
    said = len(header) if rng.random() < 0.9 else int(2 ** rng.uniform(0, 64))
    return struct.pack("<Q", min(said, 2**64 - 1)) + header + content[8 + length :]


def _change(whole: list[Any], rng: np.random.Generator) -> None:
    """Change one place of a value, drawn by going down from the top; `whole` holds the value."""
    owner: Any = whole
    key: Any = 0
    if not whole:
        return
    while True:
        value = owner[key]
        if not isinstance(value, dict | list) or not value or rng.random() < 0.25:
            break
        owner = value
        names = [*value] if isinstance(value, dict) else range(len(value))
        key = names[int(rng.integers(len(names)))]
    match rng.integers(6):
        case 0:
            del owner[key]
        case 1 if isinstance(owner, dict):
            owner[str(VALUES[int(rng.integers(len(VALUES)))])[:50]] = copy.deepcopy(owner[key])
        case 1:
            owner.insert(0, copy.deepcopy(owner[key]))
        case 2 if type(owner[key]) in (int, float) and abs(owner[key]) < 1e300:
            owner[key] = _number(owner[key], rng)
        case 3:
            owner[key] = [owner[key]]
        case 4 if isinstance(owner[key], str) and owner[key]:
            cut = int(rng.integers(len(owner[key])))
            owner[key] = (
                owner[key][:cut] + ("", "\n", "\ud83d", "\u0130", "\t")[int(rng.integers(5))] + owner[key][cut + 1 :]
            )
        case _:
            owner[key] = copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])


def _nested(text: bytes, rng: np.random.Generator) -> bytes:
    """A value within lists or objects, as deep as a parser goes, or deeper."""
    depth = int(rng.integers(800, 1_000)) if rng.random() < 0.7 else int(10 ** rng.uniform(1, 5))
    begin, end = ((b"[", b"]"), (b'{"text":', b"}"))[int(rng.integers(2))]
    end_of_name = text.find(b":") + 1 if rng.random() < 0.5 else 0  # within the first field, or around all
    inner = text[end_of_name:-1] if end_of_name else text
    return text[:end_of_name] + begin * depth + inner + end * depth + text[len(text) - bool(end_of_name) :]


def _number(value: float, rng: np.random.Generator) -> Any:
    return (value + 1, value - 1, -value, value * 2, float(value), str(value), value * 10**6)[int(rng.integers(7))]
