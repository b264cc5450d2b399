"""The likelihood of texts: `Scorer`, and one file for each kind of head that scores a text."""

from unmask.serve.likelihood.next_token import Window, windows
from unmask.serve.likelihood.scorer import SCORINGS, Scorer
from unmask.serve.likelihood.scoring import Likelihood, Scoring, TokenScoring

__all__ = ["SCORINGS", "Likelihood", "Scorer", "Scoring", "TokenScoring", "Window", "windows"]
