"""Answers for texts: the Predictor."""

from unmask.serve.predictions import check_out, write_predictions
from unmask.serve.predictor import Predictor
from unmask.serve.written import WrittenPredictor, predictor_of

__all__ = ["Predictor", "WrittenPredictor", "check_out", "predictor_of", "write_predictions"]
