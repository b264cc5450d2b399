"""Answers for texts: the Predictor."""

from unmask.serve.predictor import Predictor

__all__ = ["Predictor"]
