"""How likely texts are to a model: `Scorer`, and how each kind of head scores a text, one file each."""

from unmask.serve.likelihood.next_token import Window, windows
from unmask.serve.likelihood.scorer import SCORINGS, Scorer
from unmask.serve.likelihood.scoring import Likelihood, Scoring, TokenScoring

__all__ = ["SCORINGS", "Likelihood", "Scorer", "Scoring", "TokenScoring", "Window", "windows"]
