"""Properties of reading: whatever the bytes, a file gives tidy documents or one sentence of complaint."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.text.reading import documents
from unmask.errors import UnmaskError

FRAGMENTS = [
    b"text",
    b"\n",
    b"\r\n",
    b"\n\n",
    b",",
    b"\t",
    b'"',
    b'{"text": "a"}',
    b"[",
    b"]",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
]
BYTES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=4)), max_size=15).map(b"".join),
)
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff"), max_size=12), max_size=12)


def read(path: Path) -> tuple[list[str], str]:
    """The texts up to the first complaint, and the complaint."""
    found: list[str] = []
    try:
        found.extend(document.text for document in documents([path]))
    except UnmaskError as error:
        return found, str(error)
    return found, ""


@settings(max_examples=200, deadline=None)
@given(BYTES, st.sampled_from(["txt", "csv", "tsv", "jsonl", "json", "txt.gz", "txt.zst"]), st.booleans())
def test_any_bytes_are_read_or_refused_in_a_sentence(content: bytes, ending: str, packed: bool):
    if "zst" in ending:
        pytest.importorskip("zstandard")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file.{ending}"
        path.write_bytes(gzip.compress(content) if packed and ending.endswith("gz") else content)
        found, complaint = read(path)
        for text in found:
            assert text == text.strip() != ""
            assert not {"\r", "\0"} & set(text)
            text.encode("utf-8")
        assert "\n" not in complaint
        assert found or complaint


@settings(max_examples=100, deadline=None)
@given(LINES, st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]), st.sampled_from(["\n", "\r\n"]))
def test_the_words_of_a_file_are_kept_whatever_divides_it(lines: list[str], encoding: str, end: str):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.txt"
        path.write_bytes(end.join(["start", *lines]).encode(encoding))
        words = " ".join(lines).split()
        for per in ("blank-line", "line", "file"):
            assert " ".join(document.text for document in documents([path], per=per)).split() == ["start", *words]
