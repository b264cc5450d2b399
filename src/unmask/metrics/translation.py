"""Translations: BLEU and chrF by sacrebleu with the signature kept, by source length, with intervals; exact matches.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) go from 0 to 100, as they are published; accuracies are fractions.
Texts are detokenised, one string a sentence. References are a list of N strings or, where there are several, a list
of such lists, as sacrebleu has them; None stands where a sentence has fewer. A signature (Post 2018) says what a
number depends on: with the same signature, two numbers can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.errors import UnmaskError, needs, plural, unknown
from unmask.metrics.hypotheses import References, Texts, same_count

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as Scorer

TOKENIZERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")  # sacrebleu's that need no download
LETTER = re.compile(r"[^\W\d_]")
HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
KANA = re.compile(r"[\u3041-\u30ff]")
# Hangul, Thai and Lao, Burmese, Khmer.
BY_CHARACTER = re.compile(r"[\uac00-\ud7af\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff]")


@dataclass(frozen=True)
class Score:
    """A number and all that is needed to say it again.

    name       of the metric, as sacrebleu writes it: BLEU, chrF2, chrF2++
    value      from 0 to 100
    signature  the references, case, tokeniser, smoothing and version of sacrebleu that it was made with
    details    how many sentences, how many lines are empty or look tokenised; BLEU: its precisions (0 to 100), brevity
               penalty and lengths in tokens; from `confidence_interval`: the mean, low and high end
    """

    name: str
    value: float
    signature: str
    details: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


class Metric:
    """What is measured, as a value: `Bleu` or `ChrF`."""

    def resolve(self, texts: Texts) -> Metric:
        """The same, with every choice made that depends on what is scored."""
        return self

    def scorer(self) -> Scorer:
        """The metric of sacrebleu that counts."""
        raise NotImplementedError

    def details(self, found: Any) -> dict[str, Any]:
        """What a score of that metric tells besides its value."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Bleu(Metric):
    """BLEU.

    tokenize   one of TOKENIZERS; None: by the script of the references, see `tokenizer_for`
    lowercase  count "The" and "the" as the same
    smoothing  of n-gram orders without a match: "exp" as sacrebleu does, or "none"
    """

    tokenize: str | None = None
    lowercase: bool = False
    smoothing: str = "exp"

    def resolve(self, texts: Texts) -> Bleu:
        if self.tokenize is not None:
            return self
        return replace(self, tokenize=tokenizer_for([text for trues in texts.by_sentence for text in trues]))

    def scorer(self) -> Scorer:
        """Raises UnmaskError for a tokeniser that does not exist or whose package is missing."""
        of_sacrebleu = _sacrebleu().BLEU
        known = [name for name in TOKENIZERS if name in of_sacrebleu.TOKENIZERS]
        tokenize = self.tokenize or "13a"
        if tokenize not in known:
            raise unknown("tokenizer", tokenize, known)
        if self.smoothing not in ("exp", "none"):
            raise unknown("smoothing", self.smoothing, ["exp", "none"])
        try:  # `force`, for `Texts.of` has looked already
            return of_sacrebleu(tokenize=tokenize, lowercase=self.lowercase, smooth_method=self.smoothing, force=True)
        except RuntimeError:
            raise UnmaskError(
                f"The tokenizer '{tokenize}' needs a package that is not installed: run "
                f"pip install 'sacrebleu[{tokenize[:2]}]', or score by characters with tokenize='char'."
            ) from None

    def details(self, found: Any) -> dict[str, Any]:
        return {
            "precisions": list(found.precisions),
            "brevity_penalty": found.bp,
            "hypothesis_length": found.sys_len,
            "reference_length": found.ref_len,
        }


BLEU = Bleu()


@dataclass(frozen=True, kw_only=True)
class ChrF(Metric):
    """chrF2: n-grams of characters, recall counting twice as much as precision (Popović 2015).

    words      n-grams of words that count as well; 2 is chrF++ (Popović 2017)
    lowercase  count "The" and "the" as the same
    """

    words: int = 0
    lowercase: bool = False

    def scorer(self) -> Scorer:
        return _sacrebleu().CHRF(word_order=self.words, lowercase=self.lowercase)


def tokenizer_for(texts: Sequence[str]) -> str:
    """The tokeniser of `Bleu` that suits the script of most letters, whatever is installed.

    "zh" for Chinese; "char" for Japanese, Korean, Thai, Lao, Burmese and Khmer, where words are not what stands
    between spaces; "13a" for all others. Papers on Japanese and Korean often report "ja-mecab" and "ko-mecab".
    """
    letters = "".join(LETTER.findall("".join(texts)))
    han, kana, others = (len(script.findall(letters)) for script in (HAN, KANA, BY_CHARACTER))
    if 2 * (han + kana + others) <= len(letters):
        return "13a"
    return "zh" if han > others and han > 10 * kana else "char"


# ------------------------------------------------------------------------------------------------ scores of a corpus


def score(texts: Texts, metric: Metric, **resampling: int) -> Score:
    """The score of texts that were looked through; what they are resampled with is added to the signature."""
    metric = metric.resolve(texts)
    scorer = metric.scorer()
    found = scorer.corpus_score(texts.hypotheses, texts.streams)
    signature = scorer.get_signature()
    for name, value in resampling.items():
        signature.update(name, value)
    return Score(found.name, float(found.score), signature.format(), {**texts.counts, **metric.details(found)})


def bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
    force: bool = False,
) -> Score:
    """BLEU of detokenised texts, as sacrebleu counts it; `tokenize` and `lowercase` as in `Bleu`.

    force  score text that looks tokenised all the same

    Raises UnmaskError where there is nothing to score, numbers of lines differ, or text looks tokenised.
    """
    return score(Texts.of(hypotheses, references, force=force), Bleu(tokenize=tokenize, lowercase=lowercase))


def chrf(
    hypotheses: Sequence[str],
    references: References,
    *,
    words: int = 0,
    lowercase: bool = False,
    force: bool = False,
) -> Score:
    """chrF2 of detokenised texts, or chrF2++ where `words` is 2, as sacrebleu counts it; errors as of `bleu`."""
    return score(Texts.of(hypotheses, references, force=force), ChrF(words=words, lowercase=lowercase))


def multi30k_bleu(hypotheses: Sequence[str], references: References, *, tokenize: str = "13a") -> Score:
    """BLEU of lower-cased tokens, as papers on Multi30k report it; it is higher than `bleu`, so report that beside it.

    tokenize  "13a" for detokenised texts; "none" for texts that are tokenised already, by Moses for instance: the
              number is then that of multi-bleu.perl -lc. Nothing is refused here.

    As in that script, nothing is smoothed. Moses and 13a cut German and French differently in places (apostrophes,
    abbreviations), so small differences to a published number say nothing.
    """
    metric = Bleu(tokenize=tokenize, lowercase=True, smoothing="none")
    return score(Texts.of(hypotheses, references), metric)


def exact_match_accuracy(hypotheses: Sequence[str], references: References) -> float:
    """The share of texts that equal a reference but for spaces: for dates and the like, which have one answer.

    Raises UnmaskError as `bleu` does, but does not care what is tokenised.
    """
    texts = Texts.of(hypotheses, references)
    right = [
        any(said.split() == true.split() for true in trues)
        for said, trues in zip(texts.hypotheses, texts.by_sentence, strict=True)
    ]
    return sum(right) / len(right)


def token_accuracy(
    hypotheses: Sequence[str],
    references: Sequence[str],
    split: Callable[[str], Sequence[str]] = str.split,
) -> float:
    """The share of places at which text and reference have the same token; where one is longer, its rest is wrong.

    split  from a text to its tokens: words between spaces, or `list` for characters
    Raises UnmaskError as `exact_match_accuracy` does.
    """
    texts = Texts.of(hypotheses, [references])
    same = places = 0
    for hypothesis, (reference,) in zip(texts.hypotheses, texts.by_sentence, strict=True):
        said, true = split(hypothesis), split(reference)
        same += sum(a == b for a, b in zip(said, true, strict=False))
        places += max(len(said), len(true))
    return same / places if places else 1.0


# ------------------------------------------------------------------------------------------------ by length


@dataclass(frozen=True)
class Bucket:
    """The sentences whose source is longer than `above` and at most `up_to` words long (None: however long).

    Sources of no words are in the first bucket.
    """

    above: int
    up_to: int | None
    count: int
    score: Score | None  # None where there are no such sentences

    def __str__(self) -> str:
        low = f"over {self.above}" if self.above else ""
        high = f"up to {self.up_to}" if self.up_to is not None else ""
        words = " ".join(part for part in (low, high) if part)
        return f"{words}: {plural(self.count, 'sentence')}, {self.score or 'no score'}"


def count_words(text: str) -> int:
    """How many words, between spaces."""
    return len(text.split())


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
    bounds: Sequence[int] = (10, 20, 30, 40, 50),
    metric: Metric = BLEU,
    *,
    length: Callable[[str], int] = count_words,
    force: bool = False,
) -> list[Bucket]:
    """The score of short and of long sentences apart: attention against none (Bahdanau et al. 2014, figure 2).

    bounds  ascending: up to the first, up to the second, .., and all that is longer
    metric  `Bleu` or `ChrF`; its tokeniser is chosen once, for all buckets
    length  of a source: its words, or `len` for characters where a script has no spaces

    The score of few sentences says little: every bucket has its count. Raises UnmaskError as `bleu` does, and where
    bounds do not ascend from 1 or more.
    """
    texts = Texts.of(hypotheses, references, force=force)
    same_count("sources", sources, "hypotheses", texts.hypotheses)
    metric = metric.resolve(texts)
    edges = [0, *bounds]
    if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
        raise UnmaskError(f"The bounds of lengths are {list(bounds)}; give one or more that ascend, from 1 or more.")
    place = np.searchsorted(bounds, [length(source) for source in sources])  # [N]; a bound is in its own bucket
    buckets = []
    for number, (above, up_to) in enumerate(zip(edges, [*bounds, None], strict=True)):
        rows = np.flatnonzero(place == number).tolist()
        found = score(texts.some(rows), metric) if rows else None
        buckets.append(Bucket(above, up_to, len(rows), found))
    return buckets


def _sacrebleu() -> ModuleType:
    try:
        import sacrebleu
    except ImportError:
        raise needs("BLEU and chrF need sacrebleu", "translation") from None
    return sacrebleu
