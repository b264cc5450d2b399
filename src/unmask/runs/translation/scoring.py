"""How written texts are scored: translations, summaries, texts with one right form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from unmask.data.bitext.pairs import Bitext
from unmask.data.text.sentences import sentences
from unmask.errors import unknown
from unmask.metrics import rouge
from unmask.metrics import translation as metrics
from unmask.metrics.hypotheses import References
from unmask.metrics.translation import Score

Scorer = Callable[[Sequence[str], References], Score]


@dataclass(frozen=True)
class Scoring:
    """The scores of one kind of written texts.

    metric     the score that decides which weights are kept
    of         name -> a score of texts and their references
               (empty: the share that equals a reference)
    further    scores of a final evaluation besides, which depend on the pairs
    by_length  whether BLEU is also shown by the length of a source
    tokenised  whether these scores depend on how a text is tokenised, so that tokenised references are refused
    answers    name of a plain reference -> the text that it writes for a source
    """

    metric: str
    of: Mapping[str, Scorer] = field(default_factory=dict)
    further: Callable[[Bitext], Mapping[str, Scorer]] = lambda pairs: {}
    tokenised: bool = False
    by_length: bool = False
    answers: Mapping[str, Callable[[str], str]] = field(default_factory=dict)

    def values(self, texts: Sequence[str], pairs: Bitext) -> dict[str, float]:
        """The scores of texts for the first sources."""
        references = pairs.take(range(len(texts))).references
        found = {name: score(texts, references).value for name, score in self.of.items()}
        return found or {EXACT: metrics.exact_match_accuracy(texts, references)}

    def reported(self, pairs: Bitext) -> dict[str, Scorer]:
        """The scores of a final evaluation."""
        return {**self.of, **self.further(pairs)}

    @property
    def signatures(self) -> dict[str, str]:
        """Name -> the settings of a score."""
        return {name: score(["a"], ["a"]).signature for name, score in self.of.items()}

    def plain(self, pairs: Bitext) -> dict[str, dict[str, float]]:
        """The scores of the plain references."""
        written = {name: [answer(source) for source in pairs.sources] for name, answer in self.answers.items()}
        return {name: self.values(texts, pairs) for name, texts in written.items()}


EXACT = "exact"


def lead(source: str, count: int) -> str:
    """The first sentences of a text, a line each: the usual reference of summaries, which are often near the beginning
    (Nallapati et al. 2017, SummaRuNNer)."""
    return "\n".join(sentences(source)[:count])


def of_tokens(pairs: Bitext) -> dict[str, Scorer]:
    """The BLEU of lower-cased tokens, as for Multi30k, of texts with spaces between words, in any script."""
    return {"bleu_lowercase_tokens": metrics.multi30k_bleu} if metrics.tokenizer_for(pairs.targets) == "13a" else {}


SCORINGS: dict[str, Scoring] = {
    "bleu": Scoring(
        "bleu",
        {"bleu": partial(metrics.bleu, force=True), "chrf": partial(metrics.chrf, force=True)},
        of_tokens,
        tokenised=True,
        by_length=True,
    ),
    "rouge": Scoring(
        "rouge1",
        {name: partial(rouge.rouge, name) for name in rouge.KINDS},
        answers={"lead-1": partial(lead, count=1), "lead-3": partial(lead, count=3)},
    ),
    EXACT: Scoring(EXACT),
}
"""Name, as in `--metric` -> scores: of translations, of summaries, of texts with one right form."""


def scoring(name: str) -> Scoring:
    """The scores of a name. Raises UnmaskError, which lists the names, for an unknown one."""
    if name not in SCORINGS:
        raise unknown("metric", name, SCORINGS)
    return SCORINGS[name]
