"""How written texts are scored: translations, summaries, dialogues, trees, code, answers, texts with one right form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from unmask.data.bitext.pairs import Bitext
from unmask.errors import unknown
from unmask.metrics import code, parsing, rouge
from unmask.metrics import translation as metrics
from unmask.metrics.closed_book import NAMES as ANSWER_SCORES
from unmask.metrics.closed_book import answer_score
from unmask.metrics.diversity import distinct
from unmask.metrics.hypotheses import References
from unmask.metrics.translation import Score
from unmask.runs.translation.plain import frequent, lead, nearest, right_branching

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
    pipeline   what its models are for, by the name of the Hugging Face hub; "" if it has none
    """

    metric: str
    of: Mapping[str, Scorer] = field(default_factory=dict)
    further: Callable[[Bitext], Mapping[str, Scorer]] = lambda pairs: {}
    tokenised: bool = False
    by_length: bool = False
    answers: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    pipeline: str = ""

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

    def plain(self, pairs: Bitext, known: Bitext | None = None, *, near: bool = True) -> dict[str, dict[str, float]]:
        """The scores of the plain references, also of the most frequent of `known` targets and those of the nearest
        `known` sources, and their share of exact texts, times 100."""
        written = {name: [answer(source) for source in pairs.sources] for name, answer in self.answers.items()}
        if known is not None:
            written["most frequent"] = [frequent(known)] * len(pairs)
        if known is not None and near:
            written["nearest"] = nearest(known, pairs.sources)
        exact = {name: metrics.exact_match_accuracy(texts, pairs.references) for name, texts in written.items()}
        return {name: {**self.values(texts, pairs), EXACT: 100 * exact[name]} for name, texts in written.items()}


EXACT = "exact"


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
        pipeline="translation",
    ),
    "rouge": Scoring(
        "rouge1",
        {name: partial(rouge.rouge, name) for name in rouge.KINDS},
        answers={"lead-1": partial(lead, count=1), "lead-3": partial(lead, count=3)},
        pipeline="summarization",
    ),
    "dialogue": Scoring(
        "bleu_turns",  # of a model that answers well, often below the BLEU of a useless translation
        {
            "bleu_turns": partial(metrics.bleu, force=True),
            "chrf": partial(metrics.chrf, force=True),
            "distinct1": partial(distinct, 1),
            "distinct2": partial(distinct, 2),
        },
        tokenised=True,
    ),
    "parsing": Scoring(
        "f1",
        {name: partial(parsing.parsing, name) for name in parsing.NAMES},
        answers={"right-branching": right_branching},
    ),
    "questions": Scoring("f1", {name: partial(answer_score, name) for name in ANSWER_SCORES}),
    "code": Scoring("bleu", {"bleu": code.code_bleu, "parses": code.parsable}),
    EXACT: Scoring(EXACT),
}
"""Name, as in `--metric` -> scores: of translations, summaries, dialogues, trees, code, answers, texts with one right
form."""


def scoring(name: str) -> Scoring:
    """The scores of a name. Raises UnmaskError, which lists the names, for an unknown one."""
    if name not in SCORINGS:
        raise unknown("metric", name, SCORINGS)
    return SCORINGS[name]
