"""Translation from pairs of texts: runs, named systems, scores, and the report of a run."""

from unmask.runs.translation.config import Learning, Translation, Vocabulary
from unmask.runs.translation.evaluation import evaluate_pairs, render_scores
from unmask.runs.translation.run import Scores, TrainTranslation
from unmask.runs.translation.texts import Texts

__all__ = [
    "Learning",
    "Scores",
    "Texts",
    "TrainTranslation",
    "Translation",
    "Vocabulary",
    "evaluate_pairs",
    "render_scores",
]
