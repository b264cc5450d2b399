"""N-gram language models: read from files in the ARPA format, or counted from sentences.

Shapes: n words of the longest n-gram.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from unmask.errors import UnmaskError, plural
from unmask.files import write_text

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
Words = tuple[str, ...]
NEVER = -99.0  # log10 of the probability of <s>, which begins a text and is never predicted
UNSEEN = -7.0  # log10 of the probability of an unknown word for a model without <unk>


class NGrams:
    """A backoff model: p(word | context) of an n-gram that it holds, else backoff(context) * p(word | shorter context)
    (Katz 1987).

    grams  n-gram -> log10 of its probability, and log10 of the backoff weight of the n-gram as a context

    Raises UnmaskError for a model without words.
    """

    def __init__(self, grams: Mapping[Words, tuple[float, float]]) -> None:
        if not any(len(gram) == 1 for gram in grams):
            raise UnmaskError("A language model of n-grams must have words.")
        self.grams = grams
        self.order = max(map(len, grams))
        self._unknown = UNKNOWN if (UNKNOWN,) in grams else None
        self._known: dict[Words, float] = {(): 0.0}

    def __call__(self, words: Words, ends: bool = False) -> float:
        """log p of the words in nats, as the beginning of a text, or as all of it (`prefixes.LanguageModel`)."""
        if words not in self._known:
            self._known[words] = self(words[:-1]) + self.log_p(words[-1], (BEGIN, *words[:-1]))
        return self._known[words] + (self.log_p(END, (BEGIN, *words)) if ends else 0.0)

    def log_p(self, word: str, context: Words) -> float:
        """log p(word | context), in nats."""
        context = tuple(self._name(one) for one in context[len(context) - self.order + 1 :]) if self.order > 1 else ()
        word, backoff = self._name(word), 0.0
        while (*context, word) not in self.grams:
            if not context:
                return (backoff + UNSEEN) * math.log(10)
            backoff += self.grams.get(context, (0.0, 0.0))[1]
            context = context[1:]
        return (backoff + self.grams[(*context, word)][0]) * math.log(10)

    def _name(self, word: str) -> str:
        return word if (word,) in self.grams or self._unknown is None else self._unknown

    def save(self, path: Path) -> None:
        """Write the model as an ARPA file."""
        by_order = [[gram for gram in self.grams if len(gram) == n] for n in range(1, self.order + 1)]
        parts = ["\\data\\", *(f"ngram {n}={len(grams)}" for n, grams in enumerate(by_order, 1))]
        for n, grams in enumerate(by_order, 1):
            parts += ["", f"\\{n}-grams:"]
            for gram in grams:
                p, backoff = self.grams[gram]
                parts.append(f"{p:.7g}\t{' '.join(gram)}" + (f"\t{backoff:.7g}" if backoff else ""))
        write_text(path, "\n".join([*parts, "", "\\end\\", ""]))

    @classmethod
    def read(cls, lines: Iterable[tuple[int, str]], path: object) -> NGrams:
        """The model of the numbered lines of an ARPA file. Raises UnmaskError, which names the line, for a damaged
        file."""
        grams: dict[Words, tuple[float, float]] = {}
        counts: dict[int, int] = {}
        n = 0
        for number, line in lines:
            text = line.strip()
            if text.startswith("ngram ") and not n:
                order, _, count = text.removeprefix("ngram ").partition("=")
                if not (order.strip().isdigit() and count.strip().isdigit()):
                    raise UnmaskError(f"{path}:{number} has no number of n-grams: {text[:60]!r}.")
                counts[int(order)] = int(count)
            elif text.startswith("\\"):
                name = text[1:].removesuffix("-grams:")
                n = int(name) if name.isdigit() else 0
            elif text and n:
                cells = text.split()
                try:
                    p, backoff = float(cells[0]), float(cells[n + 1]) if len(cells) == n + 2 else 0.0
                except (ValueError, IndexError):
                    cells = []
                if len(cells) not in (n + 1, n + 2):
                    raise UnmaskError(f"{path}:{number} is not a {n}-gram of an ARPA file: {text[:60]!r}.")
                grams[tuple(cells[1 : n + 1])] = (p, backoff)
        found = Counter(map(len, grams))
        if not counts or dict(found) != counts:
            raise UnmaskError(f"{path} is not a whole ARPA file: it holds {dict(found)} n-grams, but names {counts}.")
        return cls(grams)


def counted(sentences: Iterable[Sequence[str]], order: int = 3) -> NGrams:
    """A model of the n-grams of some sentences: interpolated Kneser–Ney smoothing with one discount for each length
    (Kneser & Ney 1995; Chen & Goodman 1999, equations 20 and 21). Unknown words share the uniform part.

    Raises UnmaskError without words.
    """
    counts: list[Counter[Words]] = [Counter() for _ in range(order + 1)]
    texts = 0
    for sentence in sentences:
        words = (BEGIN, *sentence, END)
        texts += 1
        for n in range(1, order + 1):
            counts[n].update(words[i : i + n] for i in range(len(words) - n + 1))
    if not texts or len(counts[1]) < 3:
        raise UnmaskError(f"A language model needs sentences with words, and {plural(texts, 'sentence')} has none.")
    del counts[1][(BEGIN,)]
    for n in range(order - 1, 0, -1):  # shorter n-grams count the different words before them; none is before <s>
        before = Counter(gram[1:] for gram in counts[n + 1])
        counts[n] = Counter({gram: c if gram[0] == BEGIN else before[gram] for gram, c in counts[n].items()})
    grams: dict[Words, tuple[float, float]] = {}
    below: dict[Words, float] = {}
    for n in range(1, order + 1):
        discount = _discount(counts[n])
        totals, different = defaultdict[Words, int](int), Counter(gram[:-1] for gram in counts[n])
        for gram, c in counts[n].items():
            totals[gram[:-1]] += c
        shares = {context: discount * different[context] / total for context, total in totals.items()}
        if n == 1:
            uniform = 1 / (len(counts[1]) + 1)
            below = {(): uniform}
            counts[1][(UNKNOWN,)] = 0
        p = {
            gram: max(c - discount, 0) / totals[gram[:-1]] + shares[gram[:-1]] * below[gram[1:] if n > 1 else ()]
            for gram, c in counts[n].items()
        }
        for context, share in shares.items():
            if context:
                grams[context] = (grams[context][0] if context in grams else NEVER, math.log10(share))
        grams |= {gram: (math.log10(value), 0.0) for gram, value in p.items()}
        below = p
    return NGrams(grams)


def _discount(counts: Counter[Words]) -> float:
    """n1 / (n1 + 2 n2), where n1 and n2 are the numbers of n-grams that occur once and twice; 0.5 without either."""
    once, twice = (sum(c == k for c in counts.values()) for k in (1, 2))
    return once / (once + 2 * twice) if once and twice else 0.5
