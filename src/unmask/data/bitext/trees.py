"""Bracketed trees as pairs of texts: the words of a sentence, and its tree as a sequence.

The sequence has an opening and a closing bracket with the label of each constituent, and a tag in place of each word
(Vinyals et al. 2015, "Grammar as a Foreign Language").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from unmask.errors import UnmaskError

EMPTY = "-NONE-"  # tag of a trace, which is no word
ROOTS = ("", "TOP", "ROOT")
WORD = "XX"
DEEPEST = 200  # brackets within brackets


@dataclass(frozen=True)
class Tree:
    """A constituent with its label and parts, or a word: its tag, and the word as the only part."""

    label: str
    parts: tuple[Tree | str, ...]

    @property
    def word(self) -> str | None:
        """The word; None for a constituent."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], str) else None


def parse(text: str) -> Tree:
    """The tree of a text such as `(S (NP (NNP Ada)) (VP (VBZ sings)))`; the outermost label may be empty. Raises
    UnmaskError for a text that is not one tree."""
    stack: list[list[Tree | str]] = [[]]
    labels: list[str] = []
    tokens = re.findall(r"\(\s*[^\s()]*|\)|[^\s()]+", text)
    for token in tokens:
        if token.startswith("("):
            labels.append(token[1:].strip())
            stack.append([])
            if len(labels) > DEEPEST:
                raise UnmaskError(f"it has more than {DEEPEST} brackets within one another; leave it out.")
        elif token != ")":
            stack[-1].append(token)
        elif labels and stack[-1]:
            made = Tree(labels.pop(), tuple(stack.pop()))
            if made.word is None and any(isinstance(part, str) for part in made.parts):
                raise UnmaskError(f"'{made.label}' has a word beside other parts; give each word a tag in brackets.")
            stack[-1].append(made)
        else:
            raise UnmaskError("a bracket closes nothing; balance the brackets.")
    if labels or len(stack[0]) != 1 or not isinstance(stack[0][0], Tree):
        raise UnmaskError("it is not one tree with balanced brackets; put each tree on a line of its own.")
    return stack[0][0]


def plain(tree: Tree) -> Tree | None:
    """The tree without traces and the constituents that they leave empty, without the functions of labels (`NP-SBJ`
    becomes `NP`), and without a root that has no label and one part. None if no word is left."""
    if tree.word is not None:
        return None if tree.label == EMPTY else tree
    parts = tuple(part for part in (plain(one) for one in tree.parts if isinstance(one, Tree)) if part is not None)
    if not parts:
        return None
    if tree.label in ROOTS and len(parts) == 1:
        return parts[0]
    return Tree(re.split("(?<=.)[-=]", tree.label, maxsplit=1)[0] or "TOP", parts)


def words(tree: Tree) -> list[str]:
    """The words, in order."""
    if tree.word is not None:
        return [tree.word]
    return [word for part in tree.parts if isinstance(part, Tree) for word in words(part)]


def linear(tree: Tree) -> str:
    """The tree as a sequence, `(NP XX )NP`: each word is XX, and a sign, whose tag does not begin with a letter, its
    tag (`,` `.` `$`)."""
    return " ".join(_linear(tree))


def _linear(tree: Tree) -> Iterator[str]:
    if tree.word is not None:
        yield WORD if tree.label[:1].isalpha() else tree.label
        return
    yield f"({tree.label}"
    for part in tree.parts:
        if isinstance(part, Tree):
            yield from _linear(part)
    yield f"){tree.label}"
