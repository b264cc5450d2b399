"""Sentences: a rule-based splitter for prose, in linear time, without a model.

The rules, in order:

1. A blank line ends a sentence. So does a Chinese or Japanese full stop (`。！？｡`) at any position.
2. Other stops (`. ! ? …` and those of Hindi, Arabic, Urdu, Amharic, Armenian, Khmer, Burmese), with the closing quotes,
   brackets and citation marks after them, end a sentence if whitespace follows and the next word does not begin with a
   lower-case letter. After a Hangul letter the next word may begin with any character, and a Korean sentence ending
   (다, 요, …) needs no whitespace before further Hangul.
3. A single full stop does not end a sentence after a title (Mr.), a pointer (e.g., cf.), a reference before its
   number (Fig. 3), a number or letter at the beginning of the sentence (1. First), or a month before its day. After an
   initial (J.), a dotted abbreviation (U.S.) or a word such as etc. or Inc., it ends a sentence only if the next word
   often begins sentences (The, It, However, …).
4. A run of more than LONGEST characters without a stop is cut at the last whitespace before that length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 2000  # characters

_WIDE_STOPS = "。！？｡"
_STOPS = ".!?…‽؟۔।॥።։។။" + _WIDE_STOPS
_CLOSERS = "\"'”’»›)]}」』】》〉）］"
_OPENERS = "\"'“‘„«‹([{「『【《〈（［¿¡*_`#"
_STOP = re.compile(rf"[{re.escape(_STOPS)}]+(?:[{re.escape(_CLOSERS)}]|\[\d{{1,4}}\])*")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_NEXT_WORD = re.compile(rf"\s*[{re.escape(_OPENERS)}]*(\w{{0,20}})(\.?)")
_DOTTED = re.compile(r"(?:\w\.)+\w")
_NUMBER = re.compile(r"\d\w*|[A-Z]|[IVXLC]{1,7}")
_NUMBERING = re.compile(r"\d{1,3}(?:\.\d{1,3})*|[A-Za-z]|[ivx]{1,5}")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TITLES = _set(
    "mr mrs ms mx dr prof sen rep gen col maj lt sgt capt cpt cmdr adm rev hon gov pres supt messrs mme mlle"
)
_POINTERS = _set("e.g i.e eg ie cf vs viz approx ca resp incl esp")
_NUMBERED = _set("fig figs eq eqs sec secs sect no nos vol vols ch chap pp p pt art ref refs tab thm para")
_MONTHS = _set("jan feb mar apr jun jul aug sep sept oct nov dec")
_MAY_END = _set("etc al inc ltd co corp bros jr sr st ave blvd rd mt dept univ ph.d ed eds est")
_STARTERS = _set(
    """A After All Also Although An And Another Are As At Because Before Both But By Can Did Do Does Each Finally For
    From He Her Here His How However I If In Is It Its Many Meanwhile Most My No Not Note On One Or Our See She Since
    So Some Such That The Their Then There Therefore These They This Those Thus To Today Use Was We Were What When
    Where Which While Who Why With You Your"""
)
_KOREAN_ENDINGS = "다요죠까네음함임"


def sentences(text: str) -> list[str]:
    """The sentences of a text, each on one line with single spaces; the docstring of this module has the rules.

    Together they have all characters of the text except whitespace, in order. The time is linear.
    """
    found: list[str] = []
    for begin, end in _spans(text):
        line = " ".join(text[begin:end].split())
        found.extend(line[begin:end] for begin, end in _bounded(line, 0, len(line)))
    return found


def spans(text: str) -> list[tuple[int, int]]:
    """Begin and end of each sentence in characters of the text, for sentences that keep their whitespace."""
    return [part for begin, end in _spans(text) for part in _bounded(text, begin, end)]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each sentence, whitespace included."""
    paragraph = 0
    for blank in _BLANK_LINE.finditer(text):
        yield from _paragraph(text, paragraph, blank.start())
        paragraph = blank.end()
    yield from _paragraph(text, paragraph, len(text))


def _paragraph(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    for stop in _STOP.finditer(text, begin, end):
        if stop.end() < end and _ends(text, begin, stop):
            yield begin, stop.end()
            begin = stop.end()
    if begin < end:
        yield begin, end


def _ends(text: str, begin: int, stop: re.Match[str]) -> bool:
    """Whether the stop ends the sentence that starts at `begin`; some text follows it."""
    if any(mark in _WIDE_STOPS for mark in stop[0]):
        return True
    before, after = text[stop.start() - 1 : stop.start()], text[stop.end()]
    if not after.isspace():
        return _hangul(after) and before != "" and before in _KOREAN_ENDINGS
    if _hangul(before):
        return True
    following = _NEXT_WORD.match(text, stop.end())
    word = following[1] if following else ""
    if word[:1].islower():
        return False
    if stop[0][0] != "." or stop[0].startswith(".."):
        return True
    last, first = _word_before(text, begin, stop.start())
    if first and _NUMBERING.fullmatch(last):
        return False
    starts = word in _STARTERS and not (following and following[2])
    return _full_stop_ends(last, word, starts)


def _full_stop_ends(word: str, following: str, starts: bool) -> bool:
    """Rule 3: `word` is before the stop, `following` after it; `starts`: whether the latter often begins sentences."""
    small = word.lower()
    if small in _TITLES or small in _POINTERS:
        return False
    if small in _NUMBERED:
        return starts or not _NUMBER.fullmatch(following)
    if small in _MONTHS:
        return not following[:1].isdigit()
    if small in _MAY_END or _DOTTED.fullmatch(word) or (len(word) == 1 and word.isupper()):
        return starts
    return True


def _word_before(text: str, begin: int, end: int) -> tuple[str, bool]:
    """The last word before `end`, without opening marks, and whether it is the first one of its sentence."""
    near = text[max(begin, end - 40) : end]
    words = near.rsplit(maxsplit=1)
    if not words or near[-1].isspace():
        return "", False
    return words[-1].lstrip(_OPENERS), len(words) == 1 and end - 40 <= begin


def _hangul(letter: str) -> bool:
    return "가" <= letter <= "힣"


def _bounded(text: str, begin: int, last: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the parts, of at most LONGEST characters, of a sentence; cut at spaces if there are any."""
    while last - begin > LONGEST:
        end = text.rfind(" ", begin + 1, begin + LONGEST + 1)
        end = end if end > begin else begin + LONGEST
        yield begin, end
        begin = end + (text[end] == " ")
    if begin < last:
        yield begin, last
