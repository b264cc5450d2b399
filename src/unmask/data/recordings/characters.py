"""Characters: transcripts as labels of connectionist temporal classification and back, in the files of
`Wav2Vec2CTCTokenizer` of `transformers`.

Shapes: S labels of a transcript.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from unmask.config import read_json
from unmask.errors import UnmaskError

BLANK, SPACE, UNKNOWN = "<pad>", "|", "<unk>"
VOCABULARY, CONFIG, SPECIALS = "vocab.json", "tokenizer_config.json", "special_tokens_map.json"
ADDED = "added_tokens.json"
APOSTROPHES = str.maketrans("’ʼ´`", "''''")
SPOKEN = "'"  # punctuation that belongs to words


@dataclass(frozen=True)
class Characters:
    """The labels of transcripts.

    pieces   the text of each label: a character, or a marker such as the blank
    blank    the piece for no label
    space    the piece for the space between words
    unknown  the piece for characters that have none
    lower    whether transcripts are shown in lower case, although the pieces are capitals (`do_lower_case`)
    """

    pieces: tuple[str, ...]
    blank: str = BLANK
    space: str = SPACE
    unknown: str = UNKNOWN
    lower: bool = False

    def __post_init__(self) -> None:
        if len(set(self.pieces)) != len(self.pieces):
            twice = next(piece for piece, count in Counter(self.pieces).items() if count > 1)
            raise UnmaskError(f"The vocabulary of transcripts has the piece {twice!r} twice.")
        if self.blank not in self.pieces:
            raise UnmaskError(f"The vocabulary of transcripts has no piece {self.blank!r}, the blank.")

    @classmethod
    def learned(cls, texts: Iterable[str], *, cased: bool = False, punctuation: bool = False) -> Self:
        """The characters of some transcripts, as Unicode composes them (NFC).

        cased        whether capitals are labels of their own; else transcripts are read in lower case
        punctuation  whether punctuation is read, besides apostrophes

        Raises UnmaskError for transcripts without characters.
        """
        counts = Counter("".join(_plain(text) if cased else _plain(text).lower() for text in texts))
        known = sorted(c for c in counts if not c.isspace() and (punctuation or c == SPOKEN or not _silent(c)))
        if not known:
            raise UnmaskError("The transcripts have no characters to learn.")
        return cls((BLANK, UNKNOWN, SPACE, *(c for c in known if c != SPACE)))

    # -- texts

    def normalised(self, text: str) -> str:
        """A transcript as the labels can spell it: composed, with one space between words, in the case of the pieces,
        and without punctuation that has no label. Characters without a label remain."""
        text = self._cased(_plain(text))
        spelled = self._numbers.keys() - {self.space}
        kept = "".join(c if c in spelled or not _silent(c) else "" if c == SPOKEN else " " for c in text)
        return " ".join(kept.split())

    def labels(self, text: str) -> np.ndarray:
        """[S] int64 of the normalised text; a character without a label is unknown, or is left out if no piece stands
        for unknown ones."""
        found = (self._numbers.get(piece, self._unknown) for piece in self._split(text))
        return np.array([label for label in found if label is not None], np.int64)

    def strange(self, texts: Iterable[str]) -> Counter[str]:
        """The characters of some transcripts that have no label, and how often they occur."""
        return Counter(piece for text in texts for piece in self._split(text) if piece not in self._numbers)

    def text(self, labels: Iterable[int]) -> str:
        """The transcript of some labels, without repetitions and blanks."""
        pieces = (self.pieces[label] for label in labels)
        found = "".join(" " if piece == self.space else piece for piece in pieces if piece != self.blank).strip()
        return found.lower() if self.lower else found

    @property
    def blank_label(self) -> int:
        return self.pieces.index(self.blank)

    @property
    def space_label(self) -> int | None:
        """The label between words; None: transcripts have no spaces."""
        return self.pieces.index(self.space) if self.space in self.pieces else None

    def _split(self, text: str) -> list[str]:
        return [self.space if piece == " " else piece for piece in self._pattern.findall(self.normalised(text))]

    def _cased(self, text: str) -> str:
        lower, upper = (any(getattr(c, is_)() for c in self._single) for is_ in ("islower", "isupper"))
        return text if lower == upper else text.upper() if upper else text.lower()

    @cached_property
    def _single(self) -> tuple[str, ...]:
        return tuple(piece for piece in self.pieces if len(piece) == 1)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Piece -> label, for the pieces of texts."""
        return {piece: i for i, piece in enumerate(self.pieces) if piece not in (self.blank, self.unknown)}

    @cached_property
    def _unknown(self) -> int | None:
        return self.pieces.index(self.unknown) if self.unknown in self.pieces else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The pieces in a text, the longest first; any other character."""
        long = sorted((piece for piece in self._numbers if len(piece) > 1), key=len, reverse=True)
        return re.compile("|".join([*map(re.escape, long), "."]))

    # -- files

    def files(self) -> dict[str, str]:
        """Name -> content of the files that `transformers` reads as a Wav2Vec2CTCTokenizer."""
        markers = {"pad_token": self.blank, "unk_token": self.unknown, "bos_token": None, "eos_token": None}
        config = {
            **markers,
            "tokenizer_class": "Wav2Vec2CTCTokenizer",
            "processor_class": "Wav2Vec2Processor",
            "word_delimiter_token": self.space,
            "replace_word_delimiter_char": " ",
            "do_lower_case": self.lower,
            "clean_up_tokenization_spaces": False,
        }
        specials = {name: piece for name, piece in markers.items() if piece is not None}
        contents = {
            VOCABULARY: {piece: i for i, piece in enumerate(self.pieces)},
            CONFIG: config,
            SPECIALS: specials,
        }
        return {name: json.dumps(x, indent=2, ensure_ascii=False) + "\n" for name, x in contents.items()}

    @classmethod
    def load(cls, folder: Path, outputs: int | None = None) -> Self | None:
        """The vocabulary of a folder; None without a vocab.json. Raises UnmaskError for a damaged one.

        outputs  number of labels of the model: further pieces are left out
        """
        if not (folder / VOCABULARY).is_file():
            return None
        config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
        specials = read_json(folder / SPECIALS) if (folder / SPECIALS).is_file() else {}
        numbers, place = dict(read_json(folder / VOCABULARY)), folder / VOCABULARY
        if any(isinstance(value, Mapping) for value in numbers.values()):  # a vocabulary for each language
            language = str(config.get("target_lang"))
            if not isinstance(numbers.get(language), Mapping):
                raise UnmaskError(f"{place} has several languages: name one as target_lang in {CONFIG}.")
            numbers = dict(numbers[language])
        taken = set(numbers.values())
        numbers |= {piece: number for piece, number in _added(folder, config).items() if number not in taken}
        pieces = sorted((number, piece) for piece, number in numbers.items() if type(number) is int)
        pieces = pieces[:outputs]
        if [number for number, _ in pieces] != list(range(len(numbers) if outputs is None else outputs)):
            raise UnmaskError(f"{place} must number its pieces from 0, one for each output of the model.")
        given = {
            "blank": _piece(config, specials, "pad_token", BLANK),
            "unknown": _piece(config, specials, "unk_token", UNKNOWN),
            "space": _piece(config, specials, "word_delimiter_token", SPACE),
        }
        try:
            return cls(tuple(piece for _, piece in pieces), **given, lower=bool(config.get("do_lower_case")))
        except UnmaskError as error:
            raise UnmaskError(f"{place}: {error}") from None


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).translate(APOSTROPHES)


def _silent(character: str) -> bool:
    """Whether a character is punctuation or a symbol, which is not spoken."""
    return unicodedata.category(character)[0] in "PSC"


def _added(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The pieces that a folder keeps beside its vocabulary."""
    found = dict(read_json(folder / ADDED)) if (folder / ADDED).is_file() else {}
    decoder = config.get("added_tokens_decoder")
    for number, piece in (decoder if isinstance(decoder, Mapping) else {}).items():
        if isinstance(piece, Mapping) and str(number).isdigit():
            found.setdefault(str(piece.get("content")), int(number))
    return found


def _piece(config: Mapping[str, Any], specials: Mapping[str, Any], name: str, usual: str) -> str:
    """A marker, which files have as a text, or as an object with its content."""
    found = config.get(name) or specials.get(name) or usual
    return str(found.get("content", usual) if isinstance(found, Mapping) else found)
