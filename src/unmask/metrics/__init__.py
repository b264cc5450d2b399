"""Metrics of the field, over numbers and texts alone: classes, scores, entities, answers to questions, ranks.

Every metric is a fraction from 0 to 1, never a percentage; correlations go from -1 to 1, and errors are in the unit
of the scores.
"""

from unmask.metrics.answers import best_threshold, exact_match, normalise_answer, of_answers, token_f1
from unmask.metrics.classes import of_classes, of_label_sets, per_class, per_label
from unmask.metrics.entities import PREFIXES, are_iob, of_spans, of_tags, outside, per_tag, spans, words_as_spans
from unmask.metrics.ranking import mean_reciprocal_rank, of_ranks, ranks, recall_at
from unmask.metrics.scores import of_scores

__all__ = [
    "PREFIXES",
    "are_iob",
    "best_threshold",
    "exact_match",
    "mean_reciprocal_rank",
    "normalise_answer",
    "of_answers",
    "of_classes",
    "of_label_sets",
    "of_ranks",
    "of_scores",
    "of_spans",
    "of_tags",
    "outside",
    "per_class",
    "per_label",
    "per_tag",
    "ranks",
    "recall_at",
    "spans",
    "token_f1",
    "words_as_spans",
]
