"""SpanCorruption: spans of a text are replaced by sentinels, and the model writes them (T5, Raffel et al. 2020).

Shapes: N tokens of a text, K spans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search, generate_all
from unmask.kernels.formats import exactly
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.next_token import NextToken
from unmask.objectives.objective import Guesses, Objective, Probe, Term, perplexity
from unmask.objectives.paired_rows import pack_pairs
from unmask.objectives.sequences import runs
from unmask.types import Batch, Document, Example, Head

PROBES, SHOWN = 4, 48
"""Number of held-out texts whose spans an evaluation predicts; tokens of each text, and at most of each output."""


class SpanCorruption(NextToken):
    """T5's denoising (Raffel et al. 2020, section 3.1.4): 15 % of the tokens are removed, in spans of 3 on average, and
    each span is replaced by one sentinel. The target is every sentinel with its span, and one more sentinel at the end.

        Thank you <X> me to your party <Y> week  ->  <X> for inviting <Y> last <Z>

    All placements of spans that do not touch are equally likely; a text may begin or end with one. They are drawn anew
    each time a text is seen.

    sentinels   ids of <X>, <Y>, <Z> …: one more than the most spans of a text
    start, end  ids that a target begins with, and that ends a text; `padding` fills rows up
    rate        share of the tokens that are removed       mean  tokens of a span, on average
    short       share of the texts that end at a random shorter length, though not within a sentence
    """

    name = "spans"
    terms = (Term(name, "spans", "masked-span"),)

    def __init__(
        self,
        sentinels: Sequence[int],
        *,
        start: int,
        end: int,
        padding: int,
        rate: float = 0.15,
        mean: float = 3.0,
        short: float = 0.0,
    ) -> None:
        super().__init__()
        if len(sentinels) < 2:
            raise UnmaskError("Span corruption needs a tokenizer with at least two sentinels.")
        if not 0 < rate < 1 or mean < 1:
            raise UnmaskError(
                f"A share of {rate} of the tokens, in spans of {mean} on average, cannot be removed; "
                "choose a share between 0 and 1 and spans of at least 1."
            )
        self.heads = {self.head: Head("next_token")}
        self.sentinels = np.asarray(sentinels, np.int64)
        self.start, self.end, self.padding = start, end, padding
        self.rate, self.mean, self.short = rate, mean, short

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        """Runs of sentences of a document, each with `end` after it, of at most `length` tokens."""
        return [
            Example(np.append(run, self.end).astype(np.int64))
            for document in documents
            for run in runs(document.sentences, length - 1, self.short, rng)
        ]

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """The rows with each sequence as a pair: the source is the corrupted text, the target is the removed spans."""
        tokens_BT = batch.tokens.numpy()
        documents_BT = np.ones_like(tokens_BT) if batch.documents is None else batch.documents.numpy()
        rows = []
        for tokens, documents in zip(tokens_BT, documents_BT, strict=True):
            ends = np.flatnonzero(np.diff(documents, append=-1)) + 1
            sequences = [part for part in np.split(np.arange(len(tokens)), ends) if len(part) and documents[part[0]]]
            texts = [tokens[part][:-1] for part in sequences]  # without `end`, which is added to source and target
            rows.append([self.hide(text, self.noise(len(text), rng)) for text in texts])
        return pack_pairs(rows, self.padding, self.start, self.end, target=self.name)

    def noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """Which tokens of a text are removed, [N] bool: at least one.

        The numbers of tokens and of spans are rounded at random, so that their expectations are exact.
        """
        hidden = min(max(int(length * self.rate + rng.random()), 1), length)
        spans = max(int(hidden / self.mean + rng.random()), 1)
        spans = min(spans, hidden, length - hidden + 1, len(self.sentinels) - 1)
        sizes_K = _parts(hidden, spans, rng)
        gaps = _parts(length - hidden + 2, spans + 1, rng)  # the two at the ends may be empty
        gaps[[0, -1]] -= 1
        sizes = np.insert(gaps, np.arange(1, spans + 1), sizes_K)
        return np.repeat(np.arange(len(sizes)) % 2 == 1, sizes)

    def hide(self, text: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The source and the target of a text [N], some tokens of which are removed; without start and end.

        Raises UnmaskError where there are not enough sentinels for all spans and the end.
        """
        begins = hidden & ~np.append(False, hidden[:-1])
        spans = int(begins.sum())
        if spans >= len(self.sentinels):
            raise UnmaskError(f"{spans} spans cannot be told apart by {len(self.sentinels)} sentinels.")
        read = text.astype(np.int64)
        read[begins] = self.sentinels[:spans]
        before = np.flatnonzero(begins[hidden])
        written = np.insert(text[hidden].astype(np.int64), before, self.sentinels[:spans])
        return read[~hidden | begins], np.append(written, self.sentinels[spans])

    def restore(self, read: np.ndarray, written: np.ndarray) -> np.ndarray:
        """The inverse of `hide`: the text from the source and from the target that a model wrote.

        A sentinel that the model did not write becomes an empty span; output before the first known sentinel is lost.
        """
        order = {int(token): i for i, token in enumerate(self.sentinels)}
        answers: dict[int, list[int]] = {}
        current: list[int] = []
        for token in written.tolist():
            if token in order:
                current = answers.setdefault(order[token], [])
            else:
                current.append(token)
        parts = [answers.get(order[t], []) if t in order else [t] for t in read.tolist()]
        return np.array([token for part in parts for token in part], np.int64)

    def expected_counts(self, splits: Sequence[Split], vocabulary: int, length: int) -> np.ndarray:
        """[V] how often each token is a target: see `expected`."""
        counts = super().expected_counts(splits, vocabulary, length)
        counts[self.end] += sum(split.documents for split in splits)
        return self.expected(counts, length)

    def expected(self, counts_V: np.ndarray, length: int) -> np.ndarray:
        """How often each token is a target, [V], for text with these counts in sequences of `length` tokens."""
        texts = counts_V.sum() / length
        spans = min(round(length * self.rate / self.mean), len(self.sentinels) - 1)
        found = counts_V * self.rate
        found[self.sentinels[: spans + 1]] += texts
        found[self.end] += texts
        return found

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        return {}

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if "spans/correct" not in found or "loss/spans" not in baseline:
            return []
        start = f"at the start: {perplexity(before['spans/nll']):.1f}; " if "spans/nll" in before else ""
        return [
            f"Held-out spans: accuracy {found['spans/correct']:.1%}, perplexity "
            f"{perplexity(found['spans/nll']):.1f} ({start}word frequencies alone: "
            f"{math.exp(baseline['loss/spans']):.1f})."
        ]

    def probes(self, split: Split, tokenizer: Tokenizer, length: int) -> list[Probe]:
        """Beginnings of held-out documents whose spans are replaced by sentinels."""
        rng = np.random.default_rng(0)
        found: list[Probe] = []
        units = split.units(length)
        for row in rng.permutation(len(units))[:PROBES]:
            text = np.concatenate(split.read(units[row].item()).sentences)[: min(SHOWN, length - 1)]
            read, written = self.hide(text, self.noise(len(text), rng))
            shown, answer = (tokenizer.decode(ids, special=True) for ids in (read, written))
            found.append(Probe(shown, np.append(read, self.end), (answer,)))
        return found

    def guesses(self, model: Any, tokenizer: Tokenizer, probes: Sequence[Probe]) -> list[Guesses]:
        """The text that the model writes for each probe, and its probability."""
        search = Search(limits=Limits(max_length=SHOWN))
        sources = [probe.tokens.tolist() for probe in probes]
        with exactly(model.device):
            found = list(generate_all(model, sources, search, end=self.end, pad=self.padding, device=model.device))
        return [[(tokenizer.decode(best.tokens, special=True), math.exp(best.log_probability))] for best, *_ in found]


@dataclass(frozen=True, kw_only=True)
class SpanCorruptionConfig(ObjectiveConfig):
    """Write the spans that were cut out of a text, as T5 does (span corruption).

    rate       share of the tokens to cut out
    mean_span  tokens of a span, on average
    short      share of the texts that aim at a random shorter length
    """

    rate: float = 0.15
    mean_span: float = 3.0
    short: float = 0.1

    kind = "spans"
    learned = "spans cut out of a text"
    example = "t5-tiny"
    objective = SpanCorruption
    requires = frozenset({"encoder-decoder"})
    pipeline = ""
    command = ("translate", '"A text with <extra_id_0>."')
    choices = (("written", "spans"),)
    off = (("short", 0.0),)

    def processor(self, processor: Tokenizer) -> Tokenizer:
        """The tokenizer with sentinels after its vocabulary."""
        return processor.with_sentinels()

    def model_fields(self, tokenizer: Tokenizer) -> dict[str, int]:
        return {**super().model_fields(tokenizer), "start": tokenizer.pad, "end": tokenizer.sep}

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        ids = {"start": tokenizer.pad, "end": tokenizer.sep, "padding": tokenizer.pad}
        sentinels = tokenizer.sentinels
        return SpanCorruption(sentinels, **ids, rate=self.rate, mean=self.mean_span, short=self.short)


def cut_out(
    text: np.ndarray, sentinels: Sequence[int], rng: np.random.Generator, *, rate: float, mean: float
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target of a text [N] after span corruption, without start and end."""
    objective = SpanCorruption(sentinels, start=0, end=0, padding=0, rate=rate, mean=mean)
    return objective.hide(text, objective.noise(len(text), rng))


def _parts(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """`total` as a sum of positive whole numbers, [parts], all such sums being equally likely."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)
