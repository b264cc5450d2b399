"""Converts inline markup to plain words with marks around code, and selects the sentences that are prose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# Private-use characters replace the markup: OPEN and CLOSE around code, EMPHASIS before an emphasised word (some
# authors mark code that way), LOST in place of content that is not text, such as formulas.
OPEN, CLOSE, EMPHASIS, LOST = "\ue000", "\ue001", "\ue002", "\ue003"

# The first alternative that matches takes precedence.
_SPAN = re.compile(
    r"""
      :(?:math|eq|numref):`(?P<formula>[^`]*)`
    | :(?:cite|footcite)(?::\w+)?:`[^`]*`
    | :(?:ref|doc|term|std:\w+|pep|rfc|any|issue|pr|user|gh|ghissue|abbr|dfn|sub|sup)
      :`(?P<title>[^`<]+?)\s*(?:<[^`>]*>)?`
    | :[\w:+.-]+:`[^`<]+?\s*<[~!]?(?P<target>[^`>]+)>`
    | :[\w:+.-]+:`(?:[~!](?:[\w.]*\.)?|\.)?(?P<role>[^`]+?)`
    | \[?``\s*(?P<literal>.+?)\s*``\]?
    | `(?P<link>[^`<]+?)\s*<[^`>]+>`_{0,2}
    | `(?P<reference>[^`]+)`__?(?!\w)
    | \[?`[~!]?(?P<code>[^`\s](?:[^`']*[^`'\s])?)[`']\]?
    """,
    re.VERBOSE,
)
_CITATION = re.compile(r"\[(?:\d+|[A-Z][\w+]*\d{2,4}\w?|#\w*)\](?:_|(?=[\s.,;)]|$))")
_BEFORE_A_NOUN = re.compile(r"\b(?:in|of|by|to|at|see|and|from|with|also)\s+$", re.IGNORECASE)
_OUTSIDE_CODE: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), ""),  # Markdown image
    (re.compile(r"\[([^\]]+)\]\((?:https?:|[./#\w])[^)\s]*\)"), r"\1"),  # Markdown link
    (re.compile(r"(?<![\w|])\|(\w[\w .-]*)\|_?(?![\w|])"), r"\1"),  # substitution
    (re.compile(r"(?<![\w*])(\*\*?)(?=[^\s*])([^*]+?)(?<=[^\s*])\1(?![\w*])"), EMPHASIS + r"\2"),
    (re.compile(r"<(?:https?|ftp|mailto):[^>]*>|(?:https?|ftp)://\S+|\bwww\.\S+"), LOST),
    (re.compile(r"</?(?:Tip|b|i|p|br|em|strong|code|ul|li|a|div|span|sub|sup|tt|pre)\b[^<>]*>"), ""),
    (re.compile(r"\\([*_`|<>:])"), r"\1"),
]
_CODE = re.compile(f"({OPEN}[^{CLOSE}]*{CLOSE})")
_MARKS = re.compile(f"[{OPEN}{CLOSE}{EMPHASIS}{LOST}]")


def inline(text: str, *, backticks_are_formulas: bool = False) -> str:
    """Convert the inline markup of a paragraph to plain words, with code between `OPEN` and `CLOSE`.

    backticks_are_formulas  whether `x` is a formula and only ``x`` is code, as in some projects
    """

    def spoken(span: re.Match[str]) -> str:
        kind = span.lastgroup or ""
        words = span[kind] if kind else ""
        if kind == "formula" or (kind == "code" and backticks_are_formulas):
            return LOST if re.search(r"[\\{}^=]", words) else EMPHASIS + words
        if kind in ("target", "role", "literal", "code"):
            return LOST if "\\" in words else OPEN + words + CLOSE
        return words

    pieces = _CODE.split(_CITATION.sub(_cited, _SPAN.sub(spoken, plain(text))))
    for pattern, replacement in _OUTSIDE_CODE:
        pieces[::2] = [pattern.sub(replacement, piece) for piece in pieces[::2]]
    return re.sub(r" ([.,;:!?])(?=\s|$)", r"\1", " ".join("".join(pieces).split()))


def _cited(citation: re.Match[str]) -> str:
    """The replacement of a citation: empty, or LOST if it is a part of its sentence, as in "see [1]"."""
    begin = citation.start()
    return LOST if _BEFORE_A_NOUN.search(citation.string, max(0, begin - 8), begin) else ""


def plain(text: str) -> str:
    """A marked text without its marks."""
    return _MARKS.sub("", text)


def prose(paragraph: str, sentences: Callable[[str], Iterable[str]]) -> list[str]:
    """The sentences of a marked paragraph that read as English prose, with their marks and a final stop.

    Sentences that introduce removed content (a formula, an example) are dropped: they end in a colon, or are the last
    ones of a paragraph and have no stop.
    """
    whole: list[str] = []
    for sentence in sentences(paragraph):
        if whole and whole[-1].count(OPEN) > whole[-1].count(CLOSE):  # cut inside code
            whole[-1] += " " + sentence
        else:
            whole.append(sentence)
    if len(whole) > 1 and not _ENDED.search(plain(whole[-1])):
        whole.pop()
    whole = [_SPARE.sub("", sentence) if LOST in sentence else sentence for sentence in whole]
    return [_finished(sentence) for sentence in whole if _is_prose(sentence)]


_SPARE = re.compile(rf"\s*\((?:see )?{LOST}\)|\s*:\s*{LOST}(?=\.?$)")  # parts that a sentence does not need
_ENDED = re.compile(r"[.!?][\"')\]]*$")
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a an the of to in is are be by for if or and on at as with from that this it its not no when where which will
        can must should may was were has have does do than then each any all into only both you we use used using same
        but other between whether default returns return given these such their so there also how one two
        """,
    )
)
_FRAGMENT = re.compile(r"(?:where|and|or|which|but|so|that|than|is|are|was|has)\b")
_DANGLING = re.compile(r"\b(?:a|an|the|of|to|in|is|are|be|by|for|if|or|and|at|as|with|from|that|than|e\.g\.|i\.e\.)$")
_BOILERPLATE = (
    "copyright", "all rights reserved", "license", "licence", "warranty", "et al", " doi", "isbn", "arxiv", "press,",
    "todo", "fixme", "xxx", "# ", " pp.", " vol.", "...", "see also",
)  # fmt: skip
_CODE_LIKE = re.compile(
    r"[{}\\|=^~$%]|>>|<<|->|::|\w\(\)|\b0x|[<>]=?\s|__|`|\[\d|\*\*|\*\w|\w\*|^\W*[,;:]|[a-z]\.[a-z]"
)
_WORD = re.compile(r"[A-Za-z]+(?:['’][a-z]+)?")
_LETTERS = re.compile(r"[^A-Za-z ]+")
_LONGEST = 800  # characters


def _is_prose(sentence: str) -> bool:
    """Whether a marked sentence reads as English prose: enough plain words, some function words, little else."""
    text = plain(sentence)
    lowered = text.lower()
    outside = plain(_CODE.sub("code", sentence))
    words = _WORD.findall(outside)
    if LOST in sentence or len(words) < 4 or len(text) > min(_LONGEST, 14 * len(text.split())):
        return False
    common = sum(word.lower() in _FUNCTION_WORDS for word in words)
    letters = len(_LETTERS.sub("", outside))
    code = sum(map(len, _CODE.findall(sentence)))
    return (
        common >= max(1, len(words) // 8)
        and letters >= 0.88 * len(outside)
        and code <= 0.5 * len(text)
        and not _CODE_LIKE.search(outside)
        and not text.endswith(":")
        and not any(phrase in lowered for phrase in _BOILERPLATE)
        and not _FRAGMENT.match(outside)
        and not _DANGLING.search(outside)
        and all(outside.count(left) == outside.count(right) for left, right in ("()", "[]"))
        and outside.count('"') % 2 == 0
    )


def _finished(sentence: str) -> str:
    """The sentence with a capital at its beginning, unless it begins with code, and a stop at its end."""
    sentence = re.sub(r"[\s,;–-]+$", "", sentence)
    if re.match(r"[a-z]+[ ,]", sentence):
        sentence = sentence[0].upper() + sentence[1:]
    return sentence if _ENDED.search(plain(sentence)) else sentence + "."
