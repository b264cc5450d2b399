"""Hostile files: folders, tables and texts made to crash a reader or to fill the memory.

Every case is read in a separate process. The process must read the file or end with an UnmaskError of one sentence,
never with another exception; and its memory must stay below the stated cap.

    python reliability/hostile.py

`fuzz.py` reads files with random mutations. Ends with status 1 if a case failed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import signal
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from reading import READERS, write_model

CAP = (
    5 << 29
)  # bytes that reading a hostile file may add: a window of Zstandard may have 2 GB, other caps are far below
ADDRESSES = 10 << 30  # bytes of addresses that a process may map: the net under the measurement
PATIENCE = 60  # seconds of a processor for one case
LONG = 1 << 30  # bytes of the longest line

Writer = Callable[[Path], object]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", help="file for the results, as JSON")
    options = arguments.parse_args()
    for reader in READERS.values():
        reader.warm()
    with tempfile.TemporaryDirectory(prefix="unmask-hostile-") as temporary:
        folder = Path(temporary)
        model = write_model(folder / "model")
        found = [case(name, reader, write, folder, model) for name, (reader, write) in CASES.items()]
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(any(one["failure"] for one in found))


# ------------------------------------------------------------------------------------------------ the cases


def rewritten(name: str, change: Callable[[dict[str, Any]], Any]) -> Writer:
    """A JSON file of the folder with other values; the folder has no manifest (`_copy`)."""

    def write(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        new = change(values)
        (folder / name).write_text(new if isinstance(new, str) else json.dumps(values))

    return write


def header(content: bytes, size: int | None = None, data: bytes = b"") -> Writer:
    """A safetensors file of a header, its stated length, and data."""

    def write(folder: Path) -> None:
        length = len(content) if size is None else size
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + content + data)

    return write


def tensor(begin: int, end: int, shape: list[int]) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def bytes_in(name: str, content: bytes | Callable[[], bytes]) -> Writer:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content())


def sparse(name: str, size: int) -> Writer:
    """A sparse file with one line of NUL bytes, which takes no space on the disk."""

    def write(folder: Path) -> None:
        with open(folder / name, "wb") as file:
            file.write(b"text,label\n")
            file.truncate(size)

    return write


def pickled(name: str) -> Writer:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / name).write_bytes(b"\x80\x02cos\nsystem\nX\x0e\x00\x00\x00touch OWNED.txtq\x00\x85q\x01Rq\x02.")

    return write


def recoded(name: str, encoding: str, end: int | None = None) -> Writer:
    """A valid file in another encoding, cut at `end`."""
    return lambda folder: (folder / name).write_bytes(_sound(name).decode().encode(encoding)[:end])


def spoilt(name: str, raw: bytes, escaped: bytes) -> Writer:
    """A valid file with invalid characters after its first letters "e": `escaped` in JSON, else `raw`."""
    written = escaped if name.endswith((".json", ".jsonl")) else raw
    return lambda folder: (folder / name).write_bytes(_sound(name).replace(b"e", b"e" + written, 3))


def _sound(name: str) -> bytes:
    return READERS[name].sample


def _index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    shards = {"weight_map": {"bert.embeddings.word_embeddings.weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(shards))


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../outside.txt", "text,label\n" * 1_000_000)


def _tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("../../outside.txt")
        member.size = 1 << 16
        archive.addfile(member, io.BytesIO(bytes(1 << 16)))


def _zstandard_bomb(path: Path, line: int) -> None:
    """3 GB in some kilobytes, behind a window of 2 GB, in lines of some length or none."""
    import zstandard

    settings = zstandard.ZstdCompressionParameters.from_level(1, window_log=31)
    part = (b"a" * (line - 1) + b"\n" if line else b"a") * (1 << 20 if not line else (1 << 20) // line)
    with open(path, "wb") as file, zstandard.ZstdCompressor(compression_params=settings).stream_writer(file) as out:
        for _ in range(3 << 10):
            out.write(part)


DEEP = b'{"text":' * 100_000 + b"\n"
LISTS = ["table.jsonl", "table.json", "squad.json", "choices.jsonl", "bitext.jsonl", "blimp.jsonl", "lists.jsonl"]
LISTS += ["metrics.jsonl"]
TEXTS = ["table.tsv", "words.conll", "pairs.tsv", "roles.txt", "bitext.tsv", "train_5500.label", "graph.txt"]
TEXTS += ["vectors.txt", "vocab.txt"]

CASES: dict[str, tuple[str, Writer]] = {
    "a pickle in the place of weights": ("model", pickled("pytorch_model.bin")),
    "a checkpoint of PyTorch": ("model", pickled("model.pt")),
    "weights: a header of 2^63 bytes": ("model", header(b"{}", 1 << 63)),
    "weights: a header of 100 MB that is not there": ("model", header(b"{}", 100_000_000)),
    "weights: overlapping tensors": (
        "model",
        header(json.dumps({"a": tensor(0, 16, [4]), "b": tensor(8, 24, [4])}).encode(), None, bytes(24)),
    ),
    "weights: a tensor beyond the file": ("model", header(json.dumps({"a": tensor(0, 1 << 40, [1 << 38])}).encode())),
    "weights: shapes whose product overflows": (
        "model",
        header(json.dumps({"a": tensor(0, 16, [1 << 62, 1 << 62])}).encode(), None, bytes(16)),
    ),
    "weights: a header nested 10^5 deep": ("model", header(b'{"a":' * 100_000 + b"}" * 100_000)),
    "weights: cut short": ("model", lambda f: os.truncate(f / "model.safetensors", 5_000)),
    "weights: empty": ("model", bytes_in("model.safetensors", b"")),
    "config: a vocabulary of 10^12": ("model", rewritten("config.json", lambda v: v.update(vocab_size=10**12))),
    "config: a width of 10^6": ("model", rewritten("config.json", lambda v: v.update(hidden_size=1_000_000))),
    "config: 10^9 positions": ("model", rewritten("config.json", lambda v: v.update(max_position_embeddings=10**9))),
    "config: 10^6 layers": ("model", rewritten("config.json", lambda v: v.update(num_hidden_layers=10**6))),
    "config: 10^9 layers": ("model", rewritten("config.json", lambda v: v.update(num_hidden_layers=10**9))),
    "config: a width of 10^9 inside": ("model", rewritten("config.json", lambda v: v.update(intermediate_size=10**9))),
    "config: no heads": ("model", rewritten("config.json", lambda v: v.update(num_attention_heads=0))),
    "config: a negative width": ("model", rewritten("config.json", lambda v: v.update(hidden_size=-8))),
    "config: a number of 5,000 digits": (
        "model",
        rewritten("config.json", lambda v: '{"vocab_size": ' + "9" * 5_000 + "}"),
    ),
    "config: a width in words": ("model", rewritten("config.json", lambda v: v.update(hidden_size="wide"))),
    "config: a list as its type": ("model", rewritten("config.json", lambda v: v.update(model_type=["bert"]))),
    "config: an unknown field": ("model", rewritten("config.json", lambda v: v.update(auto_map={"AutoModel": "x.Y"}))),
    "config: labels that are no names": ("model", rewritten("config.json", lambda v: v.update(id2label={"a": 1}))),
    "config: architectures of numbers": ("model", rewritten("config.json", lambda v: v.update(architectures=[3]))),
    "config: heads that are no list": ("model", rewritten("config.json", lambda v: v.update(unmask_heads=7))),
    "config: nested 10^5 deep": ("model", rewritten("config.json", lambda v: '{"a":' * 100_000 + "1" + "}" * 100_000)),
    "config: a list": ("model", rewritten("config.json", lambda v: "[1]")),
    "config: UTF-16": ("model", bytes_in("config.json", '{"model_type": "bert"}'.encode("utf-16"))),
    "config: a lone surrogate": ("model", rewritten("config.json", lambda v: '{"model_type": "\\ud800"}')),
    "config: a name with a line end": ("model", rewritten("config.json", lambda v: v.update({"a\nb\x1b[2J": 3}))),
    "tokenizer: cut short": ("model", lambda f: os.truncate(f / "tokenizer.json", 400)),
    "tokenizer: nested 10^5 deep": ("model", bytes_in("tokenizer.json", b"[" * 100_000)),
    "tokenizer: another model": (
        "model",
        rewritten("tokenizer.json", lambda v: v["model"].update(type="Unigram", vocab=[["a", 0.0]])),
    ),
    "tokenizer: ids of 2^31": (
        "model",
        rewritten("tokenizer.json", lambda v: v["model"]["vocab"].update(huge=2**31 + 5)),
    ),
    "tokenizer: negative ids": ("model", rewritten("tokenizer.json", lambda v: v["model"]["vocab"].update(less=-1))),
    "tokenizer: a million pieces": (
        "model",
        rewritten("tokenizer.json", lambda v: v["model"]["vocab"].update({f"w{i}": 999 + i for i in range(1_000_000)})),
    ),
    "tokenizer: settings that are no object": ("model", bytes_in("tokenizer_config.json", b"[]")),
    "manifest: it is no object": ("model", bytes_in("manifest.json", b"7")),
    "table: a line of 1 GB": ("table.csv", sparse("table.csv", LONG)),
    "table: a million columns": (
        "table.csv",
        bytes_in(
            "table.csv",
            lambda: b"\n".join([",".join(f"c{i}" for i in range(10**6)).encode()] + [b"1," * 999_999 + b"1"] * 3),
        ),
    ),
    "table: NUL bytes": ("table.csv", bytes_in("table.csv", b"text,label\n\0\0,1\nb\0c,0\n")),
    "table: a byte order mark": ("table.csv", bytes_in("table.csv", b"\xef\xbb\xbftext,label\nhello,1\n")),
    "table: UTF-16": ("table.csv", bytes_in("table.csv", "text,label\nhello,1\n".encode("utf-16"))),
    "table: half a character of UTF-16": (
        "table.csv",
        bytes_in("table.csv", "text,label\nhé,1\n".encode("utf-16")[:-1]),
    ),
    "table: quotes that never end": ("table.csv", bytes_in("table.csv", b'text,label\n"' + b"a,b\n" * 3_000_000)),
    "table: nothing": ("table.csv", bytes_in("table.csv", b"")),
    "lines: JSON nested 10^5 deep": ("table.jsonl", bytes_in("table.jsonl", b'{"text":' * 100_000 + b"\n")),
    "lines: lone surrogates": ("table.jsonl", bytes_in("table.jsonl", b'{"text": "\\ud800 a", "label": "\\udfff"}\n')),
    "lines: NaN and a number of 5,000 digits": (
        "table.jsonl",
        bytes_in("table.jsonl", b'{"text": NaN, "label": ' + b"9" * 5_000 + b"}\n"),
    ),
    "array: JSON nested 10^5 deep": ("table.json", bytes_in("table.json", b"[" * 100_000)),
    "text: a line of 1 GB": ("text.txt", sparse("text.txt", LONG)),
    "text: lone surrogates in UTF-8": ("text.txt", bytes_in("text.txt", b"a \xed\xa0\x80 b\n\n")),
    "text: a gzip bomb": ("text.txt.gz", lambda f: _bomb(f / "text.txt.gz")),
    "questions: JSON nested 10^5 deep": ("squad.json", bytes_in("squad.json", b'{"data":' * 100_000)),
    "questions: wrong types": ("squad.json", bytes_in("squad.json", b'{"data": [{"paragraphs": 7}]}')),
    **{f"{name}: JSON nested 10^5 deep": (name, bytes_in(name, DEEP)) for name in LISTS},
    **{f"{name}: an array nested 10^5 deep": (name, bytes_in(name, b"[" * 100_000 + b"\n")) for name in LISTS},
    **{f"{name}: a line of 1 GB": (name, sparse(name, LONG)) for name in TEXTS},
    **{f"{name}: UTF-16, cut short": (name, recoded(name, "utf-16", -1)) for name in TEXTS + LISTS},
    **{f"{name}: a byte order mark": (name, recoded(name, "utf-8-sig")) for name in TEXTS + LISTS},
    **{f"{name}: lone surrogates": (name, spoilt(name, b"\xed\xa0\x80", b"\\ud800")) for name in TEXTS + LISTS},
    **{f"{name}: NUL": (name, spoilt(name, b"\0", b"\\u0000")) for name in TEXTS + LISTS},
    "pairs: a million columns": ("pairs.tsv", bytes_in("pairs.tsv", lambda: b"\t".join([b"a"] * 10**6) + b"\n")),
    "bitext: a million columns": ("bitext.tsv", bytes_in("bitext.tsv", lambda: b"\t".join([b"a"] * 10**6) + b"\n")),
    "roles: a million columns": ("roles.txt", bytes_in("roles.txt", lambda: b" ".join([b"a"] * 10**6) + b"\n\n")),
    "text: a Zstandard bomb": ("text.txt.zst", lambda f: _zstandard_bomb(f / "text.txt.zst", 0)),
    "text: a Zstandard bomb of lines": ("text.txt.zst", lambda f: _zstandard_bomb(f / "text.txt.zst", 1 << 16)),
    "text: a window of 2 GB": ("text.txt.zst", bytes_in("text.txt.zst", b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00")),
    "text: a zip that leads out of its folder": ("text.txt", lambda f: _zip(f / "text.txt")),
    "text: a tar that leads out of its folder": ("text.txt", lambda f: _tar(f / "text.txt")),
    "table: a gzip bomb under the name of a table": ("table.csv", lambda f: _bomb(f / "table.csv")),
    "config: 3 GB": ("model", sparse("config.json", 3 << 30)),
    "tokenizer: 3 GB": ("model", sparse("tokenizer.json", 3 << 30)),
    "manifest: 3 GB": ("model", sparse("manifest.json", 3 << 30)),
    "vocabulary: 3 GB": ("vocab.txt", sparse("vocab.txt", 3 << 30)),
    "config: 20 million empty lists": ("model", bytes_in("config.json", lambda: b"[" + b"[]," * 20_000_000 + b"0]")),
    "weights: an index that leads out of its folder": ("model", _index),
    "vectors: a header of 10^12 words": (
        "vectors.bin",
        bytes_in("vectors.bin", b"1000000000000 300\nword " + bytes(50)),
    ),
    "vectors: a width of 10^12": ("vectors.bin", bytes_in("vectors.bin", b"1 1000000000000\nword " + bytes(50))),
    "vectors: text without end": ("vectors.txt", bytes_in("vectors.txt", b"3 2\na 1 x\nb")),
}


def _bomb(path: Path) -> None:
    """A line of 1 GB in a megabyte."""
    import gzip

    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(1 << 10):
            file.write(bytes(1 << 20))


def case(name: str, reader: str, write: Writer, folder: Path, model: Path) -> dict[str, Any]:
    """Read one hostile file in a separate process."""
    place = folder / "case"
    place.mkdir()
    if reader == "model":
        _copy(model, place)
    write(place)
    path = place if reader == "model" else place / reader
    result = isolated(lambda: attempt(reader, path))
    _remove(place)
    result["said"] = result["said"].encode("utf-8", "backslashreplace").decode()
    failure = result["failure"] or ("memory" if result["memory"] > CAP else "")
    print(
        f"{name:42} {result['memory'] / 1e6:8.0f} MB {result['seconds']:6.1f} s  {failure or result['said']}",
        flush=True,
    )
    return {"case": name, **result, "failure": failure}


def attempt(reader: str, path: Path) -> tuple[str, str]:
    """The message and the failure of reading a path."""
    from unmask.errors import UnmaskError

    try:
        READERS[reader](path)
    except UnmaskError as error:
        said = str(error)
        wrong = "several lines" if "\n" in said else "too long" if len(said) > 1_000 else ""
        return said[:160], f"{wrong}: {said[:200]!r}" if wrong else ""
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "", f"{type(error).__name__}: {str(error)[:160]} ({Path(where.filename).name}:{where.lineno})"
    return "read", ""


def isolated(work: Callable[[], tuple[str, str]]) -> dict[str, Any]:
    """Run `work` in a forked process: its message, its failure, its time, and the memory that it took beyond this
    process's."""
    read, write = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.alarm(10 * PATIENCE)
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        said, failure = work()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        os.write(write, json.dumps([said, failure, grown]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said, failure, memory = json.loads(told) if told else ("", f"the process ended with {status}", 0)
    return {"said": said, "failure": failure, "memory": memory, "seconds": round(time.monotonic() - began, 2)}


def _copy(model: Path, place: Path) -> None:
    for path in model.iterdir():
        if path.name != "manifest.json":
            (place / path.name).write_bytes(path.read_bytes())


def _remove(place: Path) -> None:
    import shutil

    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
