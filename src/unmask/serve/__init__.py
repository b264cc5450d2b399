"""Answers for texts: the Predictor."""

from unmask.serve.predictor import Predictor
from unmask.serve.render import render_answer

__all__ = ["Predictor", "render_answer"]
