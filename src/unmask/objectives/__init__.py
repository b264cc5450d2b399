"""What is minimised in pre-training, and the data it needs."""

from unmask.objectives.causal import CausalLM, SequenceAutoencoder
from unmask.objectives.language_modeling import MaskedLM
from unmask.objectives.next_token import NextToken, ScheduledSampling
from unmask.objectives.objective import Join, Joint, Objective
from unmask.objectives.replaced_token import ReplacedToken
from unmask.objectives.segments import SegmentLM
from unmask.objectives.sentence_order import NextSentence, SentenceOrder
from unmask.objectives.span_corruption import SpanCorruption
from unmask.objectives.taught import Taught, Teaching
from unmask.objectives.two_way import TwoWayLM

__all__ = [
    "CausalLM",
    "Join",
    "Joint",
    "MaskedLM",
    "NextSentence",
    "NextToken",
    "Objective",
    "ReplacedToken",
    "ScheduledSampling",
    "SegmentLM",
    "SequenceAutoencoder",
    "SentenceOrder",
    "SpanCorruption",
    "Taught",
    "Teaching",
    "TwoWayLM",
]
