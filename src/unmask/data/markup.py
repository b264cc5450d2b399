"""Docstring markup to prose: Google, NumPy, reST and Markdown layouts become paragraphs with the code marked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator

# Private-use characters stand for what the markup said, until a sentence is cut: code between OPEN and CLOSE,
# EMPHASIS before an emphasised word (some authors write code that way), LOST where a formula or a link was.
OPEN, CLOSE, EMPHASIS, LOST = "\ue000", "\ue001", "\ue002", "\ue003"
_MARKS = frozenset((OPEN, CLOSE, EMPHASIS, LOST))

_ADMONITIONS = {"note", "warning", "caution", "tip", "important", "hint", "attention", "danger", "admonition", "topic"}
_ENTRIES = {
    "args", "arguments", "parameters", "params", "other parameters", "keyword args", "keyword arguments", "kwargs",
    "keywords", "attributes", "returns", "return", "yields", "yield", "receives", "raises", "raise", "throws", "warns",
    "shape", "inputs", "outputs", "input", "output", "options", "variables", "public attributes", "keyword parameters",
}  # fmt: skip
_PROSE = {
    "note", "notes", "example", "examples", "warning", "warnings", "important", "tip", "caution", "description",
    "usage", "algorithm", "explanation", "extended summary", "details", "remarks", "overview",
}  # fmt: skip
_SKIPPED = {
    "see also", "references", "methods", "todo", "todos", "functions", "routine listings", "reference", "authors",
    "author", "bibliography", "public methods", "citation", "constants", "list of functions", "index", "links",
}  # fmt: skip

_DIRECTIVE = re.compile(r"(\s*)\.\.(?:\s+(.*))?$")
_DIRECTIVE_NAME = re.compile(r"([\w-]+)::\s*(.*)$")
_UNDERLINE = re.compile(r"\s*([=\-~^\"'*#+`.:])\1{2,}\s*$")
_TABLE = re.compile(r"\s*(?:[=-]{2,}(?:\s+[=-]{2,})+|\+[-=+]+\+|\|.*\|)\s*$")
_HEADER = re.compile(r"(\s*)(?:#+\s*|\*\*)?([A-Za-z][A-Za-z ]{2,24}?)(?:\*\*)?\s*(:{0,2})\s*(?:\*\*)?$")
_BULLET = re.compile(r"(\s*(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-zA-Z][.)]|#\.)\s+)(?=\S)")
_FIELD = re.compile(r"(\s*)[:@](\w+)(?:\s+[^:]*?)?:(?:\s+|$)")
_FIELDS_WITHOUT_PROSE = {"type", "rtype", "vartype", "author", "authors", "license", "copyright", "date", "version"}
_SIGNATURE = re.compile(r"\s*[\w.]+\(.*\)?\s*(?:->.*|:)?$")
_NAME = r"[`*]{0,3}[\w.\[\]]+[`*]{0,3}"
_NUMPY_ENTRY = re.compile(rf"\s*{_NAME}(?:\s*,\s*{_NAME})*\s*(?::(?:\s.*)?)?$")
_INLINE_ENTRY = re.compile(
    rf"\s*{_NAME}(?:\s*[,/]\s*{_NAME}){{0,4}}\s*(?:\((?:[^()]|\([^()]*\))*\)|\[[^]]*\]|<[^>]*>)?\s*(?::|--| - )(?:\s+|$)"
)
_RESULT_ENTRY = re.compile(r"\s*[\w.\[\], |`:~*()-]{1,60}?:(?:\s+|$)")
_DASH_ENTRY = re.compile(r"\s*[\w.*`]+(?:\([^)]*\))?\s+--\s+")


def paragraphs(docstring: str) -> list[str]:
    """The prose of a docstring, one string a paragraph, hard-wrapped lines joined and code marked.

    Code blocks, doctests, tables, signatures, section titles, types of parameters, references and directives
    without prose are dropped; list items and descriptions of parameters become paragraphs.
    """
    lines = inspect.cleandoc(docstring).splitlines()
    text = (inline(paragraph) for paragraph in _join(_entries(_without_blocks(lines))))
    return [paragraph for paragraph in text if paragraph]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _skip_deeper(lines: list[str], i: int, indent: int) -> int:
    """Index of the first line from `i` on that is neither blank nor indented more than `indent`."""
    while i < len(lines) and (not lines[i].strip() or _indent(lines[i]) > indent):
        i += 1
    return i


def _without_blocks(lines: list[str]) -> list[str]:
    """The lines without code, tables, directives and comments; a blank line stands for each of them."""
    out: list[str] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        stripped = line.strip()
        directive = _DIRECTIVE.match(line)
        if stripped.startswith(("```", "~~~")):
            fence = stripped[:3]
            i += 1
            while i < len(lines) and not lines[i].strip().startswith(fence):
                i += 1
            i += 1
            out.append("")
        elif stripped.startswith((">>>", "In [", "$ ")):
            while i < len(lines) and lines[i].strip():
                i += 1
            out.append("")
        elif directive:
            name = _DIRECTIVE_NAME.match(directive[2] or "")
            i += 1
            if name and name[1] in _ADMONITIONS:
                body = name[2] if name[1] not in ("admonition", "topic") else ""
                out.extend(["", directive[1] + "   " + body if body else ""])
            else:
                i = _skip_deeper(lines, i, len(directive[1]))
                out.append("")
        elif _TABLE.match(line):
            while i < len(lines) and lines[i].strip():
                i += 1
            out.append("")
        elif stripped.endswith("::") and not _is_header(
            stripped, _ENTRIES | (_PROSE - {"example", "examples", "usage"})
        ):
            out.append(line.rstrip()[:-1] if len(stripped) > 2 else "")
            out.append("")
            i = _skip_deeper(lines, i + 1, _indent(line))
        else:
            out.append(line)
            i += 1
    return out


def _is_header(line: str, names: Iterable[str]) -> bool:
    match = _HEADER.match(line)
    return match is not None and match[2].strip().lower() in names


def _entries(lines: list[str]) -> Iterator[str]:
    """The lines without titles, skipped sections, and the names and types of parameters."""
    section, base = "", -1  # the section that a line is in, and the indentation of its title
    underlined = False
    for i, line in enumerate(lines):
        if not line.strip():
            yield ""
            continue
        indent = _indent(line)
        below = lines[i + 1] if i + 1 < len(lines) else ""
        if _UNDERLINE.match(line):
            yield ""
            continue
        if _UNDERLINE.match(below) and indent == _indent(below) and len(line.strip()) < 80:
            section, base, underlined = line.strip().lower().rstrip(":"), indent, True
            yield ""
            continue
        header = _HEADER.match(line)
        if header and (header[3] or "*" in line or "#" in line):
            name = header[2].strip().lower()
            if name in _ENTRIES | _PROSE | _SKIPPED and (_indent(below) > indent or not below.strip()):
                section, base, underlined = name, indent, False
                yield ""
                continue
        if section and (indent < base or (indent == base and not underlined)):
            section = ""
        if section in _SKIPPED:
            continue
        deeper = bool(below.strip()) and _indent(below) > indent
        yield from _entry(line, section, deeper, underlined)


def _entry(line: str, section: str, deeper: bool, underlined: bool) -> Iterator[str]:
    """One line without the name and type that it starts with; a blank line before it where an entry begins."""
    field = _FIELD.match(line)
    if field:
        yield ""
        if field[2].lower() not in _FIELDS_WITHOUT_PROSE:
            yield field[1] + " " * (len(field[0]) - len(field[1])) + line[len(field[0]) :]
        return
    if (
        _SIGNATURE.match(line)
        and (deeper or "->" in line or line.rstrip().endswith(")"))
        and " " not in line.split("(")[0].strip()
    ):
        yield ""
        return
    if section in _ENTRIES:
        if underlined and (deeper or " : " in line) and (_NUMPY_ENTRY.match(line) or " : " in line):
            yield ""
            return
        pattern = _RESULT_ENTRY if section in ("returns", "return", "yields", "yield") else _INLINE_ENTRY
        bullet = _BULLET.match(line)
        start = bullet.end() if bullet else 0
        match = pattern.match(line, start)
        if match and not underlined:
            yield ""
            yield " " * match.end() + line[match.end() :]
            return
    elif " : " in line and deeper and _NUMPY_ENTRY.match(line):
        yield ""
        return
    dash = _DASH_ENTRY.match(line)
    if dash:
        yield ""
        yield " " * dash.end() + line[dash.end() :]
        return
    bullet = _BULLET.match(line)
    if bullet:
        yield ""
        yield " " * bullet.end() + line[bullet.end() :]
        return
    yield line


def _join(lines: Iterable[str]) -> Iterator[str]:
    """Paragraphs: lines are joined until a blank line, or until the indentation changes after the second line."""
    paragraph: list[str] = []
    indent = 0
    for line in lines:
        if not line.strip():
            if paragraph:
                yield " ".join(paragraph)
            paragraph = []
            continue
        here = _indent(line)
        if (len(paragraph) > 1 and here > indent + 1) or (len(paragraph) == 1 and here > indent and _ends(paragraph[0])):
            yield " ".join(paragraph)
            paragraph = []
        if len(paragraph) <= 1:
            indent = here
        paragraph.append(line.strip())
    if paragraph:
        yield " ".join(paragraph)


def _ends(line: str) -> bool:
    return line.endswith((".", ":", "?", "!"))


# The first alternative that matches at a place wins; groups: words (kept as text), code, formula.
_SPAN = re.compile(
    r"""
      :(?:math|eq|numref):`(?P<formula>[^`]*)`
    | :(?:cite|footcite)(?::\w+)?:`[^`]*`
    | :(?:ref|doc|term|std:\w+|pep|rfc|any|issue|pr|user|gh|ghissue|abbr|dfn|sub|sup):`(?P<title>[^`<]+?)\s*(?:<[^`>]*>)?`
    | :[\w:+.-]+:`[^`<]+?\s*<[~!]?(?P<target>[^`>]+)>`
    | :[\w:+.-]+:`(?:[~!](?:[\w.]+\.)?|\.)?(?P<role>[^`]+?)`
    | \[?``\s*(?P<literal>.+?)\s*``\]?
    | `(?P<link>[^`<]+?)\s*<[^`>]+>`_{0,2}
    | `(?P<reference>[^`]+)`__?(?!\w)
    | \[?`(?P<code>[^`\s](?:[^`']*[^`'\s])?)[`']\]?
    """,
    re.VERBOSE,
)
_OUTSIDE: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), ""),  # Markdown image
    (re.compile(r"\[([^\]]+)\]\((?:https?:|[./#\w])[^)\s]*\)"), r"\1"),  # Markdown link
    (re.compile(r"\s*\[(?:\d+|[A-Z][\w+]*\d{2,4}\w?|#\w*)\](?:_|(?=[\s.,;)]|$))"), ""),  # citation
    (re.compile(r"(?<![\w|])\|(\w[\w .-]*)\|_?(?![\w|])"), r"\1"),  # substitution
    (re.compile(r"(?<![\w*])(\*\*?)(?=[^\s*])([^*]+?)(?<=[^\s*])\1(?![\w*])"), EMPHASIS + r"\2"),
    (re.compile(r"<(?:https?|ftp|mailto):[^>]*>|(?:https?|ftp)://\S+|\bwww\.\S+"), LOST),
    (re.compile(r"</?(?:Tip|b|i|p|br|em|strong|code|ul|li|a|div|span|sub|sup|tt|pre)\b[^<>]*>"), ""),
    (re.compile(r"\\([*_`|<>:])"), r"\1"),
]


def inline(text: str) -> str:
    """A paragraph with its inline markup turned into plain words; code lies between `OPEN` and `CLOSE`."""
    marked = _SPAN.sub(_spoken, text)
    pieces = re.split(f"({OPEN}[^{CLOSE}]*{CLOSE})", marked)
    for pattern, replacement in _OUTSIDE:
        pieces[::2] = [pattern.sub(replacement, piece) for piece in pieces[::2]]
    return re.sub(r"\s+", " ", "".join(pieces)).strip()


def _spoken(span: re.Match[str]) -> str:
    """What is left of an inline span: its words, its code between marks, or a mark for a lost formula."""
    kind, content = span.lastgroup, span[span.lastgroup] if span.lastgroup else ""
    if kind == "formula":
        return LOST if re.search(r"[\\{}^=]", content) else content
    if kind in ("target", "role", "literal", "code"):
        return OPEN + content + CLOSE
    return content


def plain(text: str) -> tuple[str, list[tuple[int, int]]]:
    """A marked text without its marks, and where the code was: [(begin, end) in characters]."""
    out: list[str] = []
    spans: list[tuple[int, int]] = []
    length = begin = 0
    for piece in re.split(f"([{OPEN}{CLOSE}{EMPHASIS}{LOST}])", text):
        if piece == OPEN:
            begin = length
        elif piece == CLOSE:
            spans.append((begin, length))
        elif piece not in (EMPHASIS, LOST):
            out.append(piece)
            length += len(piece)
    return "".join(out), spans


def split(text: str, sentences: Callable[[str], Iterable[str]]) -> list[str]:
    """A marked paragraph cut into marked sentences where `sentences` cuts its plain text."""
    bare, _ = plain(text)
    ends = []
    end = 0
    for sentence in sentences(bare):
        end = bare.index(sentence, end) + len(sentence)
        ends.append(end)
    out: list[str] = []
    piece: list[str] = []
    length = 0
    for character in text:
        if ends and length == ends[0] and character not in (CLOSE, LOST):
            out.append("".join(piece).strip())
            piece = []
            ends.pop(0)
        piece.append(character)
        length += character not in _MARKS
    out.append("".join(piece).strip())
    return [sentence for sentence in out if sentence]


_FUNCTION_WORDS = frozenset(
    ["a", "an", "the", "of", "to", "in", "is", "are", "be", "by", "for", "if", "or", "and", "on", "at", "as", "with", "from", "that", "this", "it", "its", "not", "no", "when", "where", "which", "will", "can", "must", "should", "may", "was", "were", "has", "have", "does", "do", "than", "then", "each", "any", "all", "into", "only", "both", "you", "we", "use", "used", "using", "same", "but", "other", "between", "whether", "default", "returns", "return", "given", "these", "such", "their", "so", "there", "also", "how", "one", "two"]
)
_BOILERPLATE = re.compile(
    r"copyright|all rights reserved|licen[sc]e|warranty|\.\.\.$|\bet al\b|\bdoi\b|\bpp\b|\bvol\.|\bisbn\b|arxiv|"
    r"\bTODO\b|\bFIXME\b|\bXXX\b|#\s|^\W*see also\b|@\w+\.|press,",
    re.IGNORECASE,
)
_CODE_LIKE = re.compile(r"[{}\\|=^~$%]|>>|<<|->|::|\w\(\)|\b0x|[<>]=?\s|__|`|\[\d|\*\*|\*\w|\w\*|^[)\],.;]")


def is_prose(sentence: str) -> bool:
    """Whether a marked sentence reads as English: enough plain words, some function words, little else."""
    if LOST in sentence:
        return False
    text, spans = plain(sentence)
    outside = text
    for begin, end in reversed(spans):
        outside = outside[:begin] + "code" + outside[end:]
    words = re.findall(r"[A-Za-z]+(?:['’][a-z]+)?", outside)
    if len(words) < 4 or len(text) > 800 or len(text) > 14 * len(text.split()):
        return False
    common = sum(word.lower() in _FUNCTION_WORDS for word in words)
    letters = sum((character.isascii() and character.isalpha()) or character == " " for character in outside)
    code = sum(end - begin for begin, end in spans)
    return (
        common >= max(1, len(words) // 8)
        and letters >= 0.88 * len(outside)
        and code <= 0.5 * len(text)
        and not _CODE_LIKE.search(outside)
        and not _BOILERPLATE.search(text)
        and _balanced(outside)
    )


def _balanced(text: str) -> bool:
    return text.count("(") == text.count(")") and text.count("[") == text.count("]") and text.count('"') % 2 == 0
