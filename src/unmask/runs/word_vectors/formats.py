"""Files of word vectors of other programs: the text and the binary format of word2vec, and text without a header."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from unmask.data.files.lines import COMPRESSED, bare, lines, opened
from unmask.errors import UnmaskError, plural
from unmask.files import atomic
from unmask.runs.word_vectors.vectors import WordVectors

LONGEST_WORD = 10_000  # most bytes of a word; a longer one comes from a damaged file
WIDEST = 100_000  # most numbers of a vector
BLOCK = 10_000  # vectors that are stacked into one array

Named = Iterator[tuple[str, np.ndarray]]


def read(path: str | Path) -> WordVectors:
    """Read word vectors from a folder of unmask or from a file: binary if its name ends in `.bin`, else text.

    Files may be compressed (`.gz`, `.zst`). Text may lack the header, as in GloVe. If a file has a word twice, as some
    published ones do, the first vector is kept; `WordVectors.notes` counts the others. Raises UnmaskError that names
    the file and the row of an error: a header that does not match the file, a word that is not UTF-8, a vector of
    another length or with a number that is not finite.
    """
    path = Path(path)
    if path.is_dir():
        return WordVectors.load(path)
    if not path.is_file():
        raise UnmaskError(f"There is no file or folder {path}.")
    return _gather(path, _binary(path) if _is_binary(path) else _text(path))


def write(vectors: WordVectors, path: str | Path) -> None:
    """Write the binary format if the name ends in `.bin`, else text; whole or not at all.

    Text has the shortest decimals that give the same float32 again. Raises UnmaskError for a word that is empty or
    has white space, which neither format supports, and for a compressed file.
    """
    path = Path(path)
    if path.suffix.lower() in COMPRESSED:
        raise UnmaskError(f"Vectors are written uncompressed: name {bare(path)}, and compress it afterwards.")
    for row, word in enumerate(vectors.words, 1):
        if word.split() != [word] or not _encodes(word):
            raise UnmaskError(f"The word {word!r} (row {row:,}) cannot be written: a word is text without white space.")
    with atomic(path) as temporary, open(temporary, "wb") as file:
        file.write(f"{len(vectors)} {vectors.dim}\n".encode())
        for word, vector_D in zip(vectors.words, vectors.matrix, strict=True):
            file.write(word.encode() + b" ")
            numbers = vector_D.astype("<f4").tobytes() if _is_binary(path) else " ".join(map(str, vector_D)).encode()
            file.write(numbers + b"\n")


def _encodes(word: str) -> bool:
    """Whether UTF-8 can encode a word: it has no lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _is_binary(path: Path) -> bool:
    return bare(path).suffix.lower() == ".bin"


def _gather(path: Path, named: Named) -> WordVectors:
    """Collect the vectors. Memory grows with the actual number of vectors, not with the number in the header."""
    index: dict[str, int] = {}
    blocks: list[np.ndarray] = []
    block: list[np.ndarray] = []
    repeated, first = 0, ""
    for row, (word, vector_D) in enumerate(named, 1):
        if word in index:
            repeated += 1
            first = first or f"'{_short(word)}' of row {row:,} is in row {index[word]:,} already"
            continue
        if not np.isfinite(vector_D).all():
            raise UnmaskError(f"{path}: the vector of '{word}' (row {row:,}) is not made of finite numbers.")
        index[word] = row
        block.append(vector_D)
        if len(block) == BLOCK:
            blocks.append(np.stack(block))
            block = []
    blocks += [np.stack(block)] if block else []
    if not blocks:
        raise UnmaskError(f"{path} holds no vectors.")
    notes = [f"Rows of {path} left out because their word is repeated: {repeated:,} ({first})."] if repeated else []
    return WordVectors(list(index), np.concatenate(blocks), notes=notes)


def _header(path: Path, line: str) -> tuple[int, int] | None:
    """Number of vectors and numbers of each, if the line is a header."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isascii() and field.isdigit() and len(field) < 12 for field in fields):
        return None
    count, dim = int(fields[0]), int(fields[1])
    if not count or not 0 < dim <= WIDEST:
        raise UnmaskError(f"{path}:1 is no valid header: it has {count:,} vectors of {dim:,} numbers.")
    return count, dim


def _text(path: Path) -> Named:
    header: tuple[int, int] | None = None
    dim, seen = 0, 0
    for number, line in lines(path, encoding="UTF-8", newline="\n"):
        if number == 1 and (header := _header(path, line)):
            dim = header[1]
            continue
        word, *numbers = line.rstrip().split(" ")
        if not word and not numbers:
            continue
        dim = dim or len(numbers)
        seen += 1
        if header and seen > header[0]:
            raise UnmaskError(f"{path}:{number} is one vector more than the {header[0]:,} that line 1 promises.")
        if len(numbers) != dim or not dim or dim > WIDEST:
            raise UnmaskError(
                f"{path}:{number}: '{_short(word)}' has {plural(len(numbers), 'number')} where there must be {dim:,}."
            )
        try:
            yield word, np.array(numbers, dtype=np.float32)
        except ValueError:
            raise UnmaskError(f"{path}:{number}: the vector of '{_short(word)}' is not made of numbers.") from None
    if header and seen < header[0]:
        raise UnmaskError(f"{path} ends after {seen:,} of the {header[0]:,} vectors that line 1 promises.")


def _binary(path: Path) -> Named:
    with opened(path) as file:
        header = _header(path, file.readline(64).decode("ascii", "replace"))
        if header is None:
            raise UnmaskError(f"{path} does not begin with the number of vectors and their length.")
        count, dim = header
        least = count * (4 * dim + 2)  # with a word of one letter and a space before each vector
        if path.suffix.lower() not in COMPRESSED and path.stat().st_size < least:
            raise UnmaskError(
                f"{path} promises {count:,} vectors of {dim:,} numbers, at least {least:,} bytes, "
                f"and has {path.stat().st_size:,}: it is cut short or damaged."
            )
        for row in range(1, count + 1):
            word = _word(path, row, file.peek, file.read)
            numbers = file.read(4 * dim)
            if len(numbers) < 4 * dim:
                raise UnmaskError(f"{path} ends within the vector of '{_short(word)}', row {row:,} of {count:,}.")
            yield word, np.frombuffer(numbers, "<f4").astype(np.float32)
        if file.read(1 << 10).strip():
            raise UnmaskError(f"{path} goes on after the {count:,} vectors that it promises.")


def _word(path: Path, row: int, peek: Callable[[int], bytes], read: Callable[[int], bytes]) -> str:
    """The text before the next space, without the line end that some programs write after each vector."""
    found = b""
    while b" " not in (ahead := peek(1)):
        found += read(len(ahead))
        if not ahead or len(found) > LONGEST_WORD:
            raise UnmaskError(f"{path}: row {row:,} has no word: the file is cut short or damaged.")
    found += read(ahead.index(b" ") + 1)
    try:
        return found[:-1].lstrip(b"\n").decode("utf-8")
    except UnicodeDecodeError:
        raise UnmaskError(f"{path}: the word of row {row:,} is not UTF-8; the file may be damaged.") from None


def _short(word: str) -> str:
    """A word for a message: shortened, and escaped if it is not printable."""
    word = word if word.isprintable() else ascii(word)[1:-1]
    return word if len(word) <= 40 else word[:40] + "…"
