"""Answers for texts: the Predictor."""

from unmask.serve.datasets import answers_to, rows_in, write_predictions
from unmask.serve.predictor import Predictor
from unmask.serve.render import render_answer
from unmask.serve.written import WrittenPredictor, predictor_of

__all__ = [
    "Predictor",
    "WrittenPredictor",
    "answers_to",
    "predictor_of",
    "render_answer",
    "rows_in",
    "write_predictions",
]
