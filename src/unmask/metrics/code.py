"""Code: BLEU over the tokens of code, and the share of lines that Python can parse."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace

from unmask.metrics.hypotheses import References, Texts
from unmask.metrics.ngrams import tokens
from unmask.metrics.translation import Bleu, Score, score

# The rest of a statement whose first line ends with a colon, by its first word: before the line, and after it.
REST = {
    **dict.fromkeys(("elif", "else"), ("if 1: pass\n", " pass")),
    **dict.fromkeys(("except", "finally"), ("try: pass\n", " pass")),
    "try": ("", " pass\nfinally: pass"),
}


def code_bleu(texts: Sequence[str], references: References) -> Score:
    """BLEU of code, in which every name, number and sign is a word, however the code is spaced. Raises UnmaskError if
    there is nothing to score, and if numbers of lines differ."""
    both = Texts.of(texts, references)
    cut = [[line and _cut(line) for line in lines] for lines in both.references]
    found = score(Texts([*map(_cut, both.hypotheses)], cut), Bleu(tokenize="none"))
    return replace(found, signature=found.signature.replace("tok:none", "tok:code"))


def parsable(texts: Sequence[str], references: References) -> Score:
    """The share of texts that `parses` accepts, times 100. References have no effect; their own score shows how far the
    lines are Python of this version."""
    lines = Texts.of(texts, references).hypotheses
    return Score("parses", 100 * sum(map(parses, lines)) / len(lines), "python|lines:completed", {})


def parses(line: str) -> bool:
    """Whether a line of code is part of a program: as it is, or with the rest of its statement. A line that ends with a
    colon gets the body `pass`, and `else`, `elif`, `except` and `finally` also the statement that they continue; a
    decorator gets a function. An empty line is no code. Nothing is executed."""
    line = line.strip()
    first = re.match(r"\w*", line)
    before, after = "", ""
    if line.endswith(":") and first:
        before, after = REST.get(first[0], ("", " pass"))
    elif line.startswith("@"):
        after = "\ndef f(): pass"
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that are not valid
            return bool(ast.parse(before + line + after).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _cut(text: str) -> str:
    return " ".join(tokens(text))
