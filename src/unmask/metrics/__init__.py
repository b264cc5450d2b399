"""Standard metrics of numbers and texts: classes, scores, forecasts, entities, clusters of mentions, answers, ranks,
verification, transcripts, translations.

Metrics are fractions from 0 to 1, never percentages, except BLEU and chrF, which are published from 0 to 100.
Correlations go from -1 to 1, and errors are in the unit of the scores.
"""

from unmask.metrics.answers import best_threshold, exact_match, normalise_answer, of_answers, token_f1
from unmask.metrics.classes import confusion, of_classes, of_label_sets, per_class, per_label
from unmask.metrics.coreference import of_clusters, of_coreference, of_pronouns
from unmask.metrics.entities import PREFIXES, are_iob, of_spans, of_tags, outside, per_tag, spans, words_as_spans
from unmask.metrics.forecasts import median_of, of_forecasts, pinball, seasonal_error
from unmask.metrics.hypotheses import tokenised_lines
from unmask.metrics.ngrams import textbook_bleu
from unmask.metrics.probabilities import areas, intervals, of_probabilities
from unmask.metrics.ranking import mean_reciprocal_rank, of_neighbours, of_ranks, ranks, recall_at
from unmask.metrics.recognition import align, character_errors, of_transcripts, word_errors
from unmask.metrics.scores import of_scores
from unmask.metrics.significance import Comparison, confidence_interval, paired_bootstrap
from unmask.metrics.translation import (
    Bleu,
    Bucket,
    ChrF,
    Score,
    bleu,
    by_length,
    chrf,
    exact_match_accuracy,
    multi30k_bleu,
    token_accuracy,
    tokenizer_for,
)
from unmask.metrics.verification import Roc, of_verification, pairs_of, roc

__all__ = [
    "Bleu",
    "Bucket",
    "ChrF",
    "Comparison",
    "PREFIXES",
    "Roc",
    "Score",
    "align",
    "are_iob",
    "areas",
    "best_threshold",
    "bleu",
    "by_length",
    "character_errors",
    "chrf",
    "confidence_interval",
    "confusion",
    "exact_match",
    "exact_match_accuracy",
    "intervals",
    "mean_reciprocal_rank",
    "median_of",
    "multi30k_bleu",
    "normalise_answer",
    "of_answers",
    "of_classes",
    "of_clusters",
    "of_coreference",
    "of_forecasts",
    "of_label_sets",
    "of_neighbours",
    "of_probabilities",
    "of_pronouns",
    "of_ranks",
    "of_scores",
    "of_spans",
    "of_tags",
    "of_transcripts",
    "of_verification",
    "outside",
    "paired_bootstrap",
    "pairs_of",
    "pinball",
    "per_class",
    "per_label",
    "per_tag",
    "ranks",
    "recall_at",
    "roc",
    "seasonal_error",
    "spans",
    "textbook_bleu",
    "token_accuracy",
    "token_f1",
    "tokenised_lines",
    "tokenizer_for",
    "word_errors",
    "words_as_spans",
]
