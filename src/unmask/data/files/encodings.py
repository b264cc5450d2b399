"""Encodings of text files: what the first bytes say, what a person names, what some bytes are probably in."""

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
"""Names to suggest where one is not known; every encoding of text that Python knows is taken."""

MOST_NUL = 0.25  # share of NUL bytes at the beginning of a file above which it is no text

_BYTE_ORDER_MARKS = (  # UTF-32 before UTF-16, whose mark it begins with
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
_EXPECTED = (  # encoding, what characters beyond ASCII are in text of it, and their share at least
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
    """The name of an encoding as Python spells it. Raises UnmaskError for one that is none of text files."""
    if name is None:
        return None
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):  # a NUL in the name is a ValueError
        raise unknown("encoding", name, COMMON) from None
    if not getattr(found, "_is_text_encoding", True) or found.name in _OF_PROGRAMS:
        raise UnmaskError(f"'{name}' is not a text encoding; name one such as utf-8, cp1252 or euc-kr.")
    return found.name


def marked(head: bytes) -> str | None:
    """The encoding that the byte order mark of a file tells, if it has one."""
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if head.startswith(mark)), None)


def two_bytes_each(head: bytes) -> str | None:
    """UTF-16 without a byte order mark, where the first bytes of a file are mostly Latin letters in two bytes each."""
    even, odd = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / max(len(head[1::2]), 1)
    if len(head) >= 16 and max(even, odd) > 0.4 and min(even, odd) < 0.05:
        return "utf-16-le" if odd > even else "utf-16-be"
    return None


def errors_of(encoding: str) -> str:
    """How wrong bytes are decoded: as surrogate escapes where the encoding can, so that their line is known."""
    return "strict" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"


def is_sound(text: str) -> bool:
    """Whether text that was decoded with surrogate escapes has none."""
    return text.isascii() or _UNDECODED.search(text) is None


def undecodable(place: str, text: str, named: str | None) -> UnmaskError:
    """The error for bytes that are no text of an encoding, which says how to go on.

    text   what was decoded with surrogate escapes, from the line with the first such byte on
    named  the encoding, where it was named; None: UTF-8
    """
    wrong = _UNDECODED.findall(text)
    byte = f"the byte 0x{ord(wrong[0]) & 0xFF:02X}"
    if named is not None:
        return UnmaskError(f"{place} is not {named} text ({byte}); save it as UTF-8.")
    right = sum(not character.isascii() for character in text) - len(wrong)
    if right > len(wrong):
        return UnmaskError(
            f"{place} is not UTF-8 text ({byte}), though what is around it is; mend the line: "
            "`iconv -c -f utf-8 -t utf-8` leaves such bytes out."
        )
    found = likely(text.encode("utf-8", "surrogateescape"))
    name = f"{found}, which is likely" if found else "NAME"
    return UnmaskError(
        f"{place} is not UTF-8 text ({byte}); save it as UTF-8, or say how it is encoded: --encoding {name}."
    )


def likely(sample: bytes) -> str | None:
    """The encoding that some bytes, which are not UTF-8, are probably in; None where there is no telling.

    It is judged by the characters that the bytes become: in the Latin script by letters with accents that stand alone,
    else by the letters of Korean, Japanese and Russian, and by the commonest characters of Chinese.
    """
    for encoding, expected, share in _EXPECTED:
        text = _decoded(sample, encoding)
        beyond = sum(not character.isascii() for character in text)
        if beyond and len(expected.findall(text)) >= share * beyond:
            return encoding
    return None


def _decoded(sample: bytes, encoding: str) -> str:
    """The text of a sample, whose last character may be cut; nothing where it is not of this encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return ""
