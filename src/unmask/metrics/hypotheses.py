"""Hypotheses beside their references: lines counted, empty ones too, and tokenised text refused before it is scored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unmask.errors import UnmaskError

References = Sequence[str] | Sequence[Sequence[str | None]]

# What tokenisers leave behind: a mark that stands alone after a word, the escapes and the split hyphen of Moses, the
# joints of BPE (subword-nmt), SentencePiece and WordPiece. French writes " ?" and " :" as they are: these say nothing.
SIGNS = re.compile(r"(?<=\w) [.,](?= |$)|&(?:apos|quot|amp|lt|gt|#\d+);|@-@|@@(?= |$)|▁|(?<= )##\w")
# Share of lines with a sign: 0.2 % or less of text as people write it, over 90 % of tokenised text.
TOKENISED = 0.1


def tokenised_lines(texts: Sequence[str | None]) -> dict[int, str]:
    """The lines that look tokenised: their numbers, from 1, and the first sign of it in each, such as " ." or "@-@"."""
    found = ((number, SIGNS.search(text or "")) for number, text in enumerate(texts, 1))
    return {number: sign[0] for number, sign in found if sign}


def refuse_tokenised(name: str, texts: Sequence[str | None]) -> None:
    """Raises UnmaskError where at least one line in ten looks tokenised (`tokenised_lines`); `name` is of all lines.

    Detokenised text is what people write. Scores of tokens depend on who cut them, and cannot be compared.
    """
    signs = tokenised_lines(texts)
    if len(signs) >= max(1, TOKENISED * len(texts)):
        number, sign = next(iter(signs.items()))
        raise UnmaskError(
            f"The {name} look tokenised: {len(signs)} of {len(texts)} lines do, the first is line {number} with "
            f"'{sign}'; detokenise the text, or score the tokens as they are (--force; force=True in Python)."
        )


def same_count(name: str, texts: Sequence[object], other: str, others: Sequence[object]) -> None:
    """Raises UnmaskError where there are not as many of the one as of the other."""
    if len(texts) != len(others):
        raise UnmaskError(
            f"There are {len(texts)} {name} and {len(others)} {other}; line n of both must be the same sentence."
        )


@dataclass(frozen=True)
class Texts:
    """One system's hypotheses [N] beside R sets of references [R][N]; None where a sentence has fewer references."""

    hypotheses: list[str]
    references: list[list[str | None]]

    @classmethod
    def of(cls, hypotheses: Sequence[str], references: References, *, force: bool = True) -> Texts:
        """From N texts and one list of N references, or several such lists.

        force  False: refuse text that looks tokenised, see `refuse_tokenised`

        Raises UnmaskError where there is nothing to score, a number differs, or a line is not a text.
        """
        if isinstance(hypotheses, str) or isinstance(references, str):
            raise UnmaskError("A single text was given where a list is needed; pass lists with one text a sentence.")
        if not hypotheses or not references:
            raise UnmaskError("There are no hypotheses, or no references, to score; pass a text of each a sentence.")
        sets: Any = [references] if isinstance(references[0], str | None) else references
        texts = cls(list(hypotheses), [list(one) for one in sets])
        texts._check()
        if not force:
            for name, lines in texts.named:
                refuse_tokenised(name, lines)
        return texts

    @property
    def named(self) -> list[tuple[str, Sequence[str | None]]]:
        """All lists of lines, each with its name in a sentence."""
        several = len(self.references) > 1
        names = [f"references (set {n})" if several else "references" for n in range(1, len(self.references) + 1)]
        return [("hypotheses", self.hypotheses), *zip(names, self.references, strict=True)]

    @property
    def by_sentence(self) -> list[list[str]]:
        """The references of every sentence, N lists."""
        return [[text for text in texts if text is not None] for texts in zip(*self.references, strict=True)]

    @property
    def streams(self) -> Any:
        """The references [R][N] as sacrebleu takes them; its types know nothing of the None that it allows."""
        return self.references

    @property
    def counts(self) -> dict[str, int]:
        """How many sentences there are, and how many lines are empty or look tokenised."""
        every = [text for texts in self.references for text in texts if text is not None]
        return {
            "sentences": len(self.hypotheses),
            "empty_hypotheses": sum(not text.strip() for text in self.hypotheses),
            "empty_references": sum(not text.strip() for text in every),
            "tokenised_hypotheses": len(tokenised_lines(self.hypotheses)),
            "tokenised_references": len(tokenised_lines(every)),
        }

    def some(self, rows: Sequence[int]) -> Texts:
        """The sentences of these rows alone."""
        return Texts([self.hypotheses[i] for i in rows], [[texts[i] for i in rows] for texts in self.references])

    def _check(self) -> None:
        for name, lines in self.named:
            same_count("hypotheses", self.hypotheses, name, lines)
            for number, text in enumerate(lines, 1):
                if not isinstance(text, str) and (text is not None or name == "hypotheses"):
                    raise UnmaskError(f"Line {number} of the {name} is {text!r}, not a text; pass one string a line.")
        for number, texts in enumerate(self.by_sentence, 1):
            if not texts:
                raise UnmaskError(f"Line {number} has no reference; give it one, or leave the line out.")
