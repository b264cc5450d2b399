"""SentenceTokenizer: marks where the sentences of a text end, for models that read a text sentence by sentence.

Shapes: T pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unmask.data.text.sentences import spans
from unmask.data.text.splitter import Encoding, Side, Template
from unmask.data.text.tokenizer import Tokenizer


class SentenceTokenizer(Tokenizer):
    """A tokenizer with `sep` between the sentences of a text, which the rules of `sentences` find, and between the
    texts of a pair. There are no other special tokens."""

    def __init__(self, side: Side, target: Side | None = None) -> None:
        super().__init__(side)
        alone = Template(((), ()), ((), ()), (0,))
        pair = Template(((), (self.sep,), ()), ((), (0,), ()), (0, 0))
        super().__init__(replace(side, templates=(alone, pair)))

    @property
    def fingerprint(self) -> str:
        return f"sentences of {Tokenizer(self.side).fingerprint}"

    def ids(self, texts: Sequence[str], *, special: bool = False) -> list[np.ndarray]:
        cut = [[text[begin:end] for begin, end in spans(text)] for text in texts]
        found = iter(super().ids([sentence for own in cut for sentence in own], special=special))
        return [self._joined([next(found) for _ in own]) for own in cut]

    def encode(self, text: str, *, special: bool = True) -> Encoding:
        """As `Tokenizer.encode`; a separator belongs to no word, -1, and has no characters."""
        parts = list[Encoding]()
        words = 0
        for begin, end in spans(text):
            own = super().encode(text[begin:end], special=special)
            if not len(own):
                continue
            if parts:
                mark = np.array([self.sep], np.int32), np.full((1, 2), begin, np.int32), np.array([-1], np.int32)
                parts.append(Encoding(*mark))
            parts.append(Encoding(own.ids, own.offsets + np.int32(begin), own.words + np.int32(words)))
            words += int(own.words.max()) + 1
        if not parts:
            return super().encode("")
        return Encoding(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "offsets", "words"))
        )

    def _joined(self, sentences: Sequence[np.ndarray]) -> np.ndarray:
        """The ids of sentences, those without a piece left out, with `sep` between them."""
        parts = list[np.ndarray]()
        for sentence in sentences:
            if len(sentence):
                parts += [np.array([self.sep], np.int32)] * bool(parts) + [sentence]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)
