"""Answers for texts: the Predictor."""

from unmask.serve.predictions import write_predictions
from unmask.serve.predictor import Predictor
from unmask.serve.written import WrittenPredictor, predictor_of

__all__ = ["Predictor", "WrittenPredictor", "predictor_of", "write_predictions"]
