"""Splitters: SentencePiece models, words, tokens between spaces, characters."""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from unmask.data.text.splitter import Splitter
from unmask.data.text.vocabulary import clean, sample
from unmask.errors import UnmaskError, needs, unknown

SPACE = "▁"  # U+2581, which SentencePiece writes for a space
JOINER = "￭"  # U+FFED; there is no space between a punctuation mark and its neighbour on this side


# ------------------------------------------------------------------------------------------------ words, characters


def _spaces(text: str) -> str:
    return " ".join(text.split())


# The names are those of SentencePiece, whose `nmt_nfkc` also converts some rarer spaces and control characters.
NORMALIZATIONS: Mapping[str, Callable[[str], str]] = {
    "identity": str,
    "nmt_nfkc": lambda text: _spaces(unicodedata.normalize("NFKC", text)),
    "nmt_nfkc_cf": lambda text: _spaces(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())),
}


class Words(Splitter):
    """Splits at spaces, and around each punctuation mark or symbol; for all scripts with spaces.

    A mark without a space to its neighbour gets a joiner on that side, as in OpenNMT's tokenizer, so that a word is
    always the same piece, and joining needs no rules for a language:

    >>> Words().split(['He said: "well-known".'])[0]
    ['He', 'said', '￭:', '"￭', 'well', '￭-￭', 'known', '￭"', '￭.']

    Runs of whitespace become one space; a joiner in the text becomes a square, as in NFKC.
    """

    kind = "word"

    def __init__(self, normalization: str = "nmt_nfkc") -> None:
        self.normalization = normalization
        self._normalize = _normalization(normalization)
        self.cased = self._normalize("A") == "A"

    def normalize(self, text: str) -> str:
        return _spaces(self._normalize(clean(text)).replace(JOINER, "■"))

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        return [list(_words(self.normalize(text))) for text in texts]

    def locate(self, text: str) -> list[tuple[str, int, int]]:
        normalized, places = _located(text, self.normalize)
        found, at = [], 0
        for piece in _words(normalized):
            bare = piece.strip(JOINER)
            at = normalized.index(bare, at)
            found.append((piece, places[at][0], places[at + len(bare) - 1][1]))
            at += len(bare)
        return found

    def join(self, pieces: Sequence[str]) -> str:
        parts: list[str] = []
        touching = True
        for piece in pieces:
            parts += [piece.strip(JOINER)] if touching or piece.startswith(JOINER) else [" ", piece.strip(JOINER)]
            touching = piece.endswith(JOINER)
        return "".join(parts)

    def begins(self, piece: str) -> bool:
        return True

    def facts(self) -> Any:
        return {"kind": self.kind, "normalization": self.normalization}


class Spaced(Words):
    """Splits at spaces alone: for texts whose tokens have spaces between them already, such as trees and actions. Runs
    of whitespace become one space."""

    kind = "spaced"

    def normalize(self, text: str) -> str:
        return _spaces(self._normalize(clean(text)))

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        return [self.normalize(text).split() for text in texts]

    def locate(self, text: str) -> list[tuple[str, int, int]]:
        normalized, places = _located(text, self.normalize)
        ends = [match.span() for match in re.finditer(r"\S+", normalized)]
        return [(normalized[begin:end], places[begin][0], places[end - 1][1]) for begin, end in ends]

    def join(self, pieces: Sequence[str]) -> str:
        return " ".join(pieces)


class Characters(Splitter):
    """Each character (code point) is a piece, spaces included, so that joining restores the normalised text.

    Each Hangul syllable is one character, because normalisation composes it.
    """

    kind = "character"

    def __init__(self, normalization: str = "nmt_nfkc") -> None:
        self.normalization = normalization
        self._normalize = _normalization(normalization)
        self.cased = self._normalize("A") == "A"

    def normalize(self, text: str) -> str:
        return self._normalize(clean(text))

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        return [list(self.normalize(text)) for text in texts]

    def locate(self, text: str) -> list[tuple[str, int, int]]:
        return [(piece, *place) for piece, place in zip(*_located(text, self.normalize), strict=True)]

    def join(self, pieces: Sequence[str]) -> str:
        return "".join(pieces)

    def begins(self, piece: str) -> bool:
        return piece == " "

    def facts(self) -> Any:
        return {"kind": self.kind, "normalization": self.normalization}


PLAIN: Mapping[str, type[Words] | type[Characters]] = {"word": Words, "spaced": Spaced, "character": Characters}


def _normalization(name: str) -> Callable[[str], str]:
    if name not in NORMALIZATIONS:
        raise unknown("normalization", name, NORMALIZATIONS)
    return NORMALIZATIONS[name]


def _located(text: str, normalize: Callable[[str], str]) -> tuple[str, list[tuple[int, int]]]:
    """The normalised text, and for each of its characters the begin and end of its origin in `text`. If the characters
    cannot be matched, each origin is the whole text."""
    normalized = normalize(text)
    made = [(c, *place) for place in _clusters(text) for c in normalize(f"x{text[slice(*place)]}x")[1:-1]]
    places, at = [], 0
    for character in normalized:
        while at < len(made) and made[at][0] == " " != character:
            at += 1
        if at == len(made) or made[at][0] != character:
            return normalized, [(0, len(text))] * len(normalized)
        places.append(made[at][1:])
        at += 1
    return normalized, places


def _clusters(text: str) -> Iterable[tuple[int, int]]:
    """Begin and end of each character with its combining characters: marks, and the vowels and finals of Hangul."""
    begins = [i for i, c in enumerate(text) if not i or not (unicodedata.combining(c) or "\u1160" <= c <= "\u11ff")]
    return itertools.pairwise([*begins, len(text)])


@functools.lru_cache(maxsize=1 << 16)
def _is_mark(character: str) -> bool:
    """Whether a character is punctuation or a symbol, in any script; combining marks belong to their word."""
    return unicodedata.category(character)[0] in "PS"


def _words(text: str) -> Iterable[str]:
    """The pieces of a text whose only whitespace is single spaces."""
    for chunk in text.split():
        runs = [(mark, "".join(run)) for mark, run in itertools.groupby(chunk, _is_mark)]
        for number, (mark, run) in enumerate(runs):
            if not mark:
                yield run
                continue
            for place, character in enumerate(run):  # between two marks, the second one has the joiner
                left = JOINER if number or place else ""
                right = JOINER if place == len(run) - 1 and number < len(runs) - 1 else ""
                yield left + character + right


# ------------------------------------------------------------------------------------------------ SentencePiece


class SentencePiece(Splitter):
    """A SentencePiece model (Kudo and Richardson 2018), unigram or BPE, from a .model or .spm file.

    model  the bytes of the file

    Raises UnmaskError if the bytes are not such a model, or the library is missing.
    """

    kind = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = _library().SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise UnmaskError(f"it is not a SentencePiece model: {_reason(error)}.") from None
        size = self._processor.get_piece_size()
        self.pieces: list[str] = self._processor.id_to_piece(list(range(size)))
        self.controls = frozenset(piece for i, piece in enumerate(self.pieces) if self._processor.is_control(i))
        self.cased = self.normalize("A") == "A"

    def role(self, name: str) -> str | None:
        """The piece with the role "eos", "unk" or "pad" in the model; None if there is none."""
        number = getattr(self._processor, f"{name}_id")()
        return None if number < 0 else self.pieces[number]

    def normalize(self, text: str) -> str:
        return self._processor.normalize(clean(text)).replace(SPACE, " ").strip()

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The pieces of each text; a run of unknown characters is one piece."""
        return self._processor.encode([clean(text) for text in texts], out_type=str)

    def locate(self, text: str) -> list[tuple[str, int, int]]:
        text = clean(text)
        found = self._processor.encode(text, return_type="offset_mapping")
        spaces = [end - begin - len(text[begin:end].lstrip()) for begin, end in found["offsets"]]
        places = zip(found["pieces"], found["offsets"], spaces, strict=True)
        return [(piece, begin + space, end) for piece, (begin, end), space in places]

    def join(self, pieces: Sequence[str]) -> str:
        return self._processor.decode_pieces(list(pieces)).replace(SPACE, " ").strip()

    def begins(self, piece: str) -> bool:
        return piece.startswith(SPACE)

    def facts(self) -> Any:
        return {"kind": self.kind, "model": self.model.hex()}


THREADS = 16  # fixed on all machines, because sums are split among threads, and another number would round differently
RESERVED = str.maketrans(dict.fromkeys("\t\0▅", " "))  # SentencePiece ignores lines with one of these characters


def learn(
    texts: Iterable[str],
    size: int,
    *,
    kind: str,
    normalization: str,
    coverage: float,
    byte_fallback: bool,
    byte_budget: int,
) -> SentencePiece:
    """Train a SentencePiece model of at most `size` pieces; 0 is </s> and 1 is <unk>; see `subwords.train`."""
    if normalization not in NORMALIZATIONS:
        raise unknown("normalization", normalization, NORMALIZATIONS)
    if not 0.98 <= coverage <= 1:
        raise UnmaskError(f"The coverage is the share of characters with an id, 0.98 to 1, not {coverage}.")
    import io

    model = io.BytesIO()
    try:
        _library().SentencePieceTrainer.train(
            sentence_iterator=iter(_lines(texts, byte_budget)),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            hard_vocab_limit=False,  # a small text gives a smaller vocabulary
            normalization_rule_name=normalization,
            character_coverage=coverage,
            byte_fallback=byte_fallback,
            max_sentence_length=1 << 20,  # bytes; longer lines would be ignored, but `sample` gives none
            num_threads=THREADS,
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:  # a size beyond 32 bits raises ValueError
        raise _untrained(error, size) from None
    return SentencePiece(model.getvalue())


def _lines(texts: Iterable[str], byte_budget: int) -> list[str]:
    """The lines to learn from. Raises UnmaskError if all are empty."""
    passages = sample(texts, byte_budget)
    lines = [line for passage in passages for line in passage.translate(RESERVED).splitlines() if line.strip()]
    if not lines:
        raise UnmaskError("The text holds no words to learn a vocabulary from; give it some text.")
    return lines


def _untrained(error: Exception, size: int) -> UnmaskError:
    """The error for a failed training, with SentencePiece's reason."""
    required = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
    if required:
        return UnmaskError(
            f"A vocabulary of {size + 1} is too small for the characters of this text: set at least "
            f"{int(required[1]) + 1} pieces, or less coverage, such as 0.9995."
        )
    return UnmaskError(f"SentencePiece could not learn a vocabulary of {size + 1} pieces: {_reason(error)}.")


def _reason(error: Exception) -> str:
    """The message of the library without the location in its source."""
    return re.sub(r"^[A-Z_]+: (src/\S+ )?", "", str(error)).strip().rstrip(".")


def _library() -> Any:
    """The sentencepiece package."""
    try:
        import sentencepiece
    except ImportError:
        raise needs("Subword vocabularies of this kind need sentencepiece", "translation") from None
    return sentencepiece
