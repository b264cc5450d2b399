"""Hypotheses and their references: counts of lines and of empty lines, and detection of tokenised text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unmask.errors import UnmaskError

References = Sequence[str] | Sequence[Sequence[str | None]]

# Signs of tokenisers: a full stop or comma after a space, the escapes and the split hyphen of Moses, the marks of BPE
# (subword-nmt), SentencePiece and WordPiece. " ?" and " :" are not among them, because they are usual in French.
SIGNS = re.compile(r"(?<=\w) [.,](?= |$)|&(?:apos|quot|amp|lt|gt|#\d+);|@-@|@@(?= |$)|▁|(?<= )##\w")
# Smallest share of lines with a sign: plain text has 0.2 % or less, tokenised text over 90 %.
TOKENISED = 0.1


def tokenised_lines(texts: Sequence[str | None]) -> dict[int, str]:
    """The numbers, from 1, of the lines that look tokenised, and the first sign in each, such as " ." or "@-@"."""
    found = ((number, SIGNS.search(text or "")) for number, text in enumerate(texts, 1))
    return {number: sign[0] for number, sign in found if sign}


def refuse_tokenised(name: str, texts: Sequence[str | None]) -> None:
    """Raises UnmaskError if at least one line in ten looks tokenised (`tokenised_lines`); `name` describes the lines.

    Scores of tokenised text depend on the tokeniser, and cannot be compared; those of plain text can.
    """
    signs = tokenised_lines(texts)
    if len(signs) >= max(1, TOKENISED * len(texts)):
        number, sign = next(iter(signs.items()))
        raise UnmaskError(
            f"The {name} look tokenised: {len(signs)} of {len(texts)} lines do, the first is line {number} with "
            f"'{sign}'; detokenise the text, or score the tokens anyway (--force; force=True in Python)."
        )


def same_count(name: str, texts: Sequence[object], other: str, others: Sequence[object]) -> None:
    """Raises UnmaskError if the two lists have different lengths."""
    if len(texts) != len(others):
        raise UnmaskError(
            f"There are {len(texts)} {name} and {len(others)} {other}; line n of both must be the same sentence."
        )


@dataclass(frozen=True)
class Texts:
    """The hypotheses [N] of one system, and R sets of references [R][N]; None fills up sentences with fewer."""

    hypotheses: list[str]
    references: list[list[str | None]]

    @classmethod
    def of(cls, hypotheses: Sequence[str], references: References, *, force: bool = True) -> Texts:
        """Build from N hypotheses and one list of N references, or several such lists.

        force  False: refuse text that looks tokenised, see `refuse_tokenised`

        Raises UnmaskError if there is nothing to score, numbers of lines differ, or a line is not a text.
        """
        if isinstance(hypotheses, str) or isinstance(references, str):
            raise UnmaskError("A single text was given instead of a list; pass lists with one text for each sentence.")
        if not hypotheses or not references:
            raise UnmaskError("There are no hypotheses or no references to score; pass one of each for every sentence.")
        sets: Any = [references] if isinstance(references[0], str | None) else references
        texts = cls(list(hypotheses), [list(one) for one in sets])
        texts._check()
        if not force:
            for name, lines in texts.named:
                refuse_tokenised(name, lines)
        return texts

    @property
    def named(self) -> list[tuple[str, Sequence[str | None]]]:
        """All lists of lines, each with its name in error messages."""
        several = len(self.references) > 1
        names = [f"references (set {n})" if several else "references" for n in range(1, len(self.references) + 1)]
        return [("hypotheses", self.hypotheses), *zip(names, self.references, strict=True)]

    @property
    def by_sentence(self) -> list[list[str]]:
        """The references of each sentence, N lists."""
        return [[text for text in texts if text is not None] for texts in zip(*self.references, strict=True)]

    @property
    def streams(self) -> Any:
        """The references [R][N] in the form of sacrebleu, which accepts None although its types do not say so."""
        return self.references

    @property
    def counts(self) -> dict[str, int]:
        """The number of sentences, of empty lines, and of lines that look tokenised."""
        every = [text for texts in self.references for text in texts if text is not None]
        return {
            "sentences": len(self.hypotheses),
            "empty_hypotheses": sum(not text.strip() for text in self.hypotheses),
            "empty_references": sum(not text.strip() for text in every),
            "tokenised_hypotheses": len(tokenised_lines(self.hypotheses)),
            "tokenised_references": len(tokenised_lines(every)),
        }

    def some(self, rows: Sequence[int]) -> Texts:
        """A copy with only the sentences of these rows."""
        return Texts([self.hypotheses[i] for i in rows], [[texts[i] for i in rows] for texts in self.references])

    def _check(self) -> None:
        for name, lines in self.named:
            same_count("hypotheses", self.hypotheses, name, lines)
            for number, text in enumerate(lines, 1):
                if not isinstance(text, str) and (text is not None or name == "hypotheses"):
                    raise UnmaskError(f"Line {number} of the {name} is {text!r}, not a text; pass strings only.")
        for number, texts in enumerate(self.by_sentence, 1):
            if not texts:
                raise UnmaskError(f"Line {number} has no reference; give it one, or leave the line out.")
