"""Encodings of text files: by their first bytes, by a given name, or guessed from some bytes."""

from __future__ import annotations

import codecs
import re

from unmask.errors import UnmaskError, unknown

COMMON = tuple(
    """
    utf-8 utf-16 utf-16-le utf-16-be utf-32 ascii latin-1 iso8859-2 iso8859-15 cp1250 cp1251 cp1252 cp1253 cp1254
    cp1255 cp1256 cp437 koi8-r mac-roman euc-kr cp949 shift-jis cp932 euc-jp gb18030 gbk big5
    """.split()  # noqa: SIM905 (a list of this length, one name a line, hides the page)
)
"""Names that are suggested for an unknown one; every encoding of text that Python knows is accepted."""

MOST_NUL = 0.25  # a file with a larger share of NUL bytes at its beginning is not text

_BYTE_ORDER_MARKS = (  # UTF-32 before UTF-16, because its mark begins with that of UTF-16
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_OF_PROGRAMS = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
_UNDECODED = re.compile("[\udc80-\udcff]")  # surrogate escapes

_LATIN = re.compile(r"(?<![^\x00-\x7f‘-”])[À-ÖØ-öø-ÿŒœŠšŸŽž‘’“”–—…€«»¡¿ß°§©®·](?![^\x00-\x7f‘-”])")
_HANGUL, _KANA, _CYRILLIC = re.compile(r"[가-힣]"), re.compile(r"[ぁ-んァ-ヶー、。]"), re.compile(r"[а-яё]")
_CHINESE = re.compile(r"[的一是不了在人有我他这這中大来來上国國个個到说說们們为為子和你地出道也时時年，。]")
_EXPECTED = (  # encoding, expected characters beyond ASCII, and the smallest share of these
    ("cp1252", _LATIN, 0.7),
    ("euc-jp", _KANA, 0.3),  # before Hangul: cp949 reads most pairs of bytes as some Hangul syllable
    ("cp932", _KANA, 0.3),
    ("euc-kr", _HANGUL, 0.7),
    ("cp949", _HANGUL, 0.7),
    ("gb18030", _CHINESE, 0.15),
    ("big5", _CHINESE, 0.15),
    ("cp1251", _CYRILLIC, 0.7),
    ("koi8-r", _CYRILLIC, 0.7),
)


def checked(name: str | None) -> str | None:
    """The name of an encoding in Python's spelling. Raises UnmaskError if it is not an encoding of text files."""
    if name is None:
        return None
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):  # a NUL in the name raises ValueError
        raise unknown("encoding", name, COMMON) from None
    if not getattr(found, "_is_text_encoding", True) or found.name in _OF_PROGRAMS:
        raise UnmaskError(f"'{name}' is not a text encoding; name one such as utf-8, cp1252 or euc-kr.")
    return found.name


def marked(head: bytes) -> str | None:
    """The encoding of the byte order mark of a file; None if it has none."""
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if head.startswith(mark)), None)


def two_bytes_each(head: bytes) -> str | None:
    """UTF-16 without a byte order mark, if the first bytes of a file are mostly Latin letters of two bytes each; else
    None."""
    even, odd = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / max(len(head[1::2]), 1)
    if len(head) >= 16 and max(even, odd) > 0.4 and min(even, odd) < 0.05:
        return "utf-16-le" if odd > even else "utf-16-be"
    return None


def errors_of(encoding: str) -> str:
    """The error handler for invalid bytes: surrogate escapes if the encoding supports them, to find their line."""
    return "strict" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"


def is_sound(text: str) -> bool:
    """Whether text that was decoded with surrogate escapes contains none."""
    return text.isascii() or _UNDECODED.search(text) is None


def undecodable(place: str, text: str, named: str | None) -> UnmaskError:
    """The error for bytes that are not valid in an encoding, with advice.

    text   text that was decoded with surrogate escapes, starting with the line of the first invalid byte
    named  the encoding that the user gave; None: UTF-8
    """
    wrong = _UNDECODED.findall(text)
    byte = f"the byte 0x{ord(wrong[0]) & 0xFF:02X}"
    if named is not None:
        return UnmaskError(f"{place} is not {named} text ({byte}); save it as UTF-8.")
    right = sum(not character.isascii() for character in text) - len(wrong)
    if right > len(wrong):
        return UnmaskError(
            f"{place} is not UTF-8 text ({byte}), although the text around it is; correct the line: "
            "`iconv -c -f utf-8 -t utf-8` removes such bytes."
        )
    found = likely(text.encode("utf-8", "surrogateescape"))
    name = f"{found}, which is likely" if found else "NAME"
    return UnmaskError(
        f"{place} is not UTF-8 text ({byte}); save it as UTF-8, or give its encoding: --encoding {name}."
    )


def likely(sample: bytes) -> str | None:
    """The probable encoding of some bytes that are not UTF-8; None if it cannot be guessed.

    The guess depends on the decoded characters: isolated letters with accents for the Latin script, letters for Korean,
    Japanese and Russian, and the most frequent characters for Chinese.
    """
    for encoding, expected, share in _EXPECTED:
        text = _decoded(sample, encoding)
        beyond = sum(not character.isascii() for character in text)
        if beyond and len(expected.findall(text)) >= share * beyond:
            return encoding
    return None


def _decoded(sample: bytes, encoding: str) -> str:
    """The text of a sample, whose last character may be incomplete; empty if it is not valid in this encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return ""
