"""Answers for texts: the Predictor."""

from unmask.serve.datasets import answers_to, rows_in, write_predictions
from unmask.serve.predictor import Predictor
from unmask.serve.render import render_answer

__all__ = ["Predictor", "answers_to", "render_answer", "rows_in", "write_predictions"]
