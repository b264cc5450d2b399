"""Parts: tensors in, tensors out; no text, no task, no name of a model."""

from unmask.nn.attention import Attention, AttentionMap, Bias, Mask, record_attention
from unmask.nn.block import Block, FeedForward, GatedFeedForward, Residual, Stack
from unmask.nn.crf import LinearChainCRF
from unmask.nn.embedding import Embedding, Segment, Token
from unmask.nn.head import Classifier, LanguageModelHead, Pooler, Projection, ScalarMix, Span
from unmask.nn.lora import LoRALinear
from unmask.nn.position import ALiBi, Learned, Position, Rotary, Sinusoidal, T5Bias, TransformerXL
from unmask.nn.recurrent import Recurrent, RecurrentState
from unmask.nn.state_attention import AdditiveAttention, DotAttention, GeneralAttention, Keys, StateAttention

__all__ = [
    "ALiBi",
    "AdditiveAttention",
    "Attention",
    "AttentionMap",
    "Bias",
    "Block",
    "Classifier",
    "DotAttention",
    "Embedding",
    "FeedForward",
    "GatedFeedForward",
    "GeneralAttention",
    "Keys",
    "LanguageModelHead",
    "Learned",
    "LinearChainCRF",
    "LoRALinear",
    "Mask",
    "Pooler",
    "Position",
    "Projection",
    "Recurrent",
    "RecurrentState",
    "Residual",
    "Rotary",
    "ScalarMix",
    "Segment",
    "Sinusoidal",
    "Span",
    "Stack",
    "StateAttention",
    "T5Bias",
    "Token",
    "TransformerXL",
    "record_attention",
]
