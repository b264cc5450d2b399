"""Objectives: the losses of pre-training, and the data that each needs."""

from unmask.objectives.autoencoder import AutoencoderConfig, SequenceAutoencoder
from unmask.objectives.bidirectional import BidirectionalLM, BidirectionalLMConfig
from unmask.objectives.causal import CausalLM, CausalLMConfig
from unmask.objectives.colourisation import Colourisation, ColourisationConfig
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.contrastive import Contrastive, ContrastiveConfig
from unmask.objectives.contrastive_multiview import ContrastiveMultiview, ContrastiveMultiviewConfig
from unmask.objectives.distillation import TeacherConfig, WithTeacher
from unmask.objectives.jigsaw import Jigsaw, JigsawConfig
from unmask.objectives.language_modeling import MaskedLM, MaskedLMConfig
from unmask.objectives.masked_autoencoder import MaskedAutoencoder, MaskedAutoencoderConfig
from unmask.objectives.masked_patches import MaskedPatches, MaskedPatchesConfig
from unmask.objectives.next_sentence import NextSentence, NextSentenceConfig
from unmask.objectives.next_token import NextToken, ScheduledSampling
from unmask.objectives.objective import Join, Joint, Objective, Probe, Term
from unmask.objectives.replaced_token import ReplacedToken, ReplacedTokenConfig
from unmask.objectives.rotation import Rotation, RotationConfig
from unmask.objectives.segments import SegmentLM, SegmentLMConfig
from unmask.objectives.sentence_order import SentenceOrder, SentenceOrderConfig
from unmask.objectives.sentence_pair import Sentences, SingleRuns
from unmask.objectives.span_corruption import SpanCorruption, SpanCorruptionConfig
from unmask.objectives.super_resolution import SuperResolution, SuperResolutionConfig

__all__ = [
    "AutoencoderConfig",
    "BidirectionalLM",
    "BidirectionalLMConfig",
    "CausalLM",
    "CausalLMConfig",
    "Colourisation",
    "ColourisationConfig",
    "Contrastive",
    "ContrastiveConfig",
    "ContrastiveMultiview",
    "ContrastiveMultiviewConfig",
    "Jigsaw",
    "JigsawConfig",
    "Join",
    "Joint",
    "MaskedAutoencoder",
    "MaskedAutoencoderConfig",
    "MaskedLM",
    "MaskedLMConfig",
    "MaskedPatches",
    "MaskedPatchesConfig",
    "NextSentence",
    "NextSentenceConfig",
    "NextToken",
    "Objective",
    "ObjectiveConfig",
    "Probe",
    "ReplacedToken",
    "ReplacedTokenConfig",
    "Rotation",
    "RotationConfig",
    "ScheduledSampling",
    "SegmentLM",
    "SegmentLMConfig",
    "SentenceOrder",
    "SentenceOrderConfig",
    "Sentences",
    "SequenceAutoencoder",
    "SingleRuns",
    "SpanCorruption",
    "SpanCorruptionConfig",
    "SuperResolution",
    "SuperResolutionConfig",
    "TeacherConfig",
    "Term",
    "WithTeacher",
]
