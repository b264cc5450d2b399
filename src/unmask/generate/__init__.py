"""Decoding: greedy and beam search, sampling, limits and blocking, for any model that generates token by token."""

from unmask.generate.batching import generate_all
from unmask.generate.beam import Search
from unmask.generate.rules import Blocking, Limits
from unmask.generate.sampling import Sampling, draws
from unmask.generate.trace import Hypothesis, Node, Trace
from unmask.generate.writing import generate

__all__ = [
    "Blocking",
    "Hypothesis",
    "Limits",
    "Node",
    "Sampling",
    "Search",
    "Trace",
    "draws",
    "generate",
    "generate_all",
]
