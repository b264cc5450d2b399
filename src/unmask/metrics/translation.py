"""Translations: BLEU and chrF by sacrebleu with their signatures, scores by source length, and exact matches.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) go from 0 to 100, as they are published; accuracies are fractions.
Texts are detokenised, one string for each sentence. References are a list of N strings or, for several references, a
list of such lists, as in sacrebleu; None fills up sentences with fewer. A signature (Post 2018) lists the settings of
a score: two scores with the same signature can be compared.
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

TOKENIZERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")  # those of sacrebleu that need no download
LETTER = re.compile(r"[^\W\d_]")
HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
KANA = re.compile(r"[\u3041-\u30ff]")
# Hangul, Thai and Lao, Burmese, Khmer.
BY_CHARACTER = re.compile(r"[\uac00-\ud7af\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff]")


@dataclass(frozen=True)
class Score:
    """A score, with all that is needed to reproduce it.

    name       name of the metric in sacrebleu: BLEU, chrF2, chrF2++; of `multi30k_bleu` "BLEU, lower case"
    value      from 0 to 100
    signature  number of references, case, tokeniser, smoothing and version of sacrebleu
    details    number of sentences, of empty lines, and of lines that look tokenised; for BLEU the precisions (0 to
               100), brevity penalty and lengths in tokens; from `confidence_interval` the mean, low end and high end
    """

    name: str
    value: float
    signature: str
    details: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


class Metric:
    """The settings of a metric, as a value: `Bleu` or `ChrF`."""

    def resolve(self, texts: Texts) -> Metric:
        """A copy in which settings that depend on the texts are chosen."""
        return self

    def scorer(self) -> Scorer:
        """The metric of sacrebleu that computes the score."""
        raise NotImplementedError

    def details(self, found: Any) -> dict[str, Any]:
        """The details of a score of this metric, besides its value."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Bleu(Metric):
    """BLEU.

    tokenize   one of TOKENIZERS; None: chosen by the script of the references, see `tokenizer_for`
    lowercase  whether "The" and "the" are the same word
    smoothing  smoothing of n-gram orders without a match: "exp", the default of sacrebleu, or "none"
    """

    tokenize: str | None = None
    lowercase: bool = False
    smoothing: str = "exp"

    def resolve(self, texts: Texts) -> Bleu:
        if self.tokenize is not None:
            return self
        return replace(self, tokenize=tokenizer_for([text for trues in texts.by_sentence for text in trues]))

    def scorer(self) -> Scorer:
        """Raises UnmaskError for an unknown tokeniser or smoothing, and if the package of a tokeniser is missing."""
        of_sacrebleu = _sacrebleu().BLEU
        known = [name for name in TOKENIZERS if name in of_sacrebleu.TOKENIZERS]
        tokenize = self.tokenize or "13a"
        if tokenize not in known:
            raise unknown("tokenizer", tokenize, known)
        if self.smoothing not in ("exp", "none"):
            raise unknown("smoothing", self.smoothing, ["exp", "none"])
        try:  # `force`, because `Texts.of` has checked the texts already
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
    """chrF2: n-grams of characters, where recall counts twice as much as precision (Popović 2015).

    words      length of the longest n-gram of words that counts as well; 2 is chrF++ (Popović 2017)
    lowercase  whether "The" and "the" are the same word
    """

    words: int = 0
    lowercase: bool = False

    def scorer(self) -> Scorer:
        return _sacrebleu().CHRF(word_order=self.words, lowercase=self.lowercase)


def tokenizer_for(texts: Sequence[str]) -> str:
    """The tokeniser of `Bleu` for the script of most letters of the texts; it does not depend on installed packages.

    "zh" for Chinese; "char" for Japanese, Korean, Thai, Lao, Burmese and Khmer, in which spaces do not separate words;
    "13a" for all others. Papers on Japanese and Korean often report "ja-mecab" and "ko-mecab".
    """
    letters = "".join(LETTER.findall("".join(texts)))
    han, kana, others = (len(script.findall(letters)) for script in (HAN, KANA, BY_CHARACTER))
    if 2 * (han + kana + others) <= len(letters):
        return "13a"
    return "zh" if han > others and han > 10 * kana else "char"


# ------------------------------------------------------------------------------------------------ scores of a corpus


def score(texts: Texts, metric: Metric, **resampling: int) -> Score:
    """The score of texts that `Texts.of` has checked; the settings of resampling are added to the signature."""
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
    """BLEU of detokenised texts, by sacrebleu; `tokenize` and `lowercase` as in `Bleu`.

    force  whether to score text that looks tokenised

    Raises UnmaskError if there is nothing to score, numbers of lines differ, or text looks tokenised.
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
    """chrF2 of detokenised texts, or chrF2++ if `words` is 2, by sacrebleu; errors as in `bleu`."""
    return score(Texts.of(hypotheses, references, force=force), ChrF(words=words, lowercase=lowercase))


def multi30k_bleu(hypotheses: Sequence[str], references: References, *, tokenize: str = "13a") -> Score:
    """BLEU of lower-cased tokens, as papers on Multi30k report it. It is higher than `bleu`, so report both.

    tokenize  "13a" for detokenised texts; "none" for texts that are tokenised already, for instance by Moses: the
              score is then that of multi-bleu.perl -lc. Tokenised text is not refused here.

    As in that script, there is no smoothing. Moses and 13a differ in details for German and French (apostrophes,
    abbreviations), so small differences from published scores are not significant.
    """
    metric = Bleu(tokenize=tokenize, lowercase=True, smoothing="none")
    return replace(score(Texts.of(hypotheses, references), metric), name="BLEU, lower case")


def exact_match_accuracy(hypotheses: Sequence[str], references: References) -> float:
    """The share of hypotheses that equal a reference, apart from whitespace; for dates and other texts with one correct
    form.

    Raises UnmaskError as `bleu` does, but accepts tokenised text.
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
    """The share of positions at which hypothesis and reference have the same token; the surplus of the longer one
    counts as wrong.

    split  splits a text into tokens: into words at spaces, or `list` for characters

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
    """The sentences whose source has more than `above` and at most `up_to` words (None: no limit).

    Sources without words are in the first bucket.
    """

    above: int
    up_to: int | None
    count: int
    score: Score | None  # None if there are no such sentences

    def __str__(self) -> str:
        low = f"over {self.above}" if self.above else ""
        high = f"up to {self.up_to}" if self.up_to is not None else ""
        words = " ".join(part for part in (low, high) if part)
        return f"{words}: {plural(self.count, 'sentence')}, {self.score or 'no score'}"


def count_words(text: str) -> int:
    """The number of words, separated by spaces."""
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
    """The scores of short and of long sentences, such as those that compare models with and without attention (Bahdanau
    et al. 2014, figure 2).

    bounds  upper bounds of the buckets, ascending; a last bucket has all longer sentences
    metric  `Bleu` or `ChrF`; its tokeniser is chosen once, for all buckets
    length  length of a source: in words, or `len` for characters in scripts without spaces

    Buckets have their number of sentences, because a score of few sentences is unreliable. Raises UnmaskError as `bleu`
    does, and if the bounds do not ascend from 1 or more.
    """
    texts = Texts.of(hypotheses, references, force=force)
    same_count("sources", sources, "hypotheses", texts.hypotheses)
    metric = metric.resolve(texts)
    edges = [0, *bounds]
    if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
        raise UnmaskError(f"The bounds of lengths are {list(bounds)}; give one or more, ascending, from 1 or more.")
    place = np.searchsorted(bounds, [length(source) for source in sources])  # [N]; the bounds are inclusive
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
