"""Parts of models: they map tensors to tensors, and know no text, no task and no model."""

from unmask.kernels.linear import Logits
from unmask.nn.attention import Attention, AttentionMap, record_attention
from unmask.nn.bidirectional_lm import BidirectionalLMLayer, BidirectionalLMStack, TaskReader
from unmask.nn.block import (
    ACTIVATIONS,
    FEEDFORWARDS,
    ActivationName,
    Block,
    FeedForward,
    GatedFeedForward,
    Residual,
    Stack,
)
from unmask.nn.buffers import stored
from unmask.nn.cache import BlockCache, Cache, KeyValues
from unmask.nn.character_cnn import CharacterCNN, Highway
from unmask.nn.convolution import (
    CausalConvolution,
    CentredConvolution,
    Convolution,
    DilatedStack,
    GatedBlock,
    GatedConvolution,
    WeightNorm,
    Window,
    gated_tanh,
    scaled_sum,
    weight_norm,
)
from unmask.nn.convolutional_stacks import (
    AttentiveBlock,
    ConvolutionalDecoder,
    ConvolutionalEncoder,
    normalised_linear,
)
from unmask.nn.coreference import SpanRanking
from unmask.nn.crf import LinearChainCRF
from unmask.nn.dropout import Dropout, DropPath, LayerDrop
from unmask.nn.embedding import Embedding, Patch, Places, ScaledToken, Segment, Token
from unmask.nn.head import (
    Classifier,
    LanguageModelHead,
    Pooler,
    ProjectedHead,
    Projection,
    ScalarMix,
    ScaledTiedHead,
    Span,
    StartsWide,
    TiedHead,
    UntiedHead,
    VocabularyHead,
    WideHead,
    logits_of,
)
from unmask.nn.initialise import truncated_normal, xavier_gates, xavier_uniform
from unmask.nn.lora import LoRALinear
from unmask.nn.mask import Bias, CrossMask, Mask
from unmask.nn.multi_step_attention import Memory, MultiStepAttention
from unmask.nn.position import (
    ALiBi,
    Learned,
    LearnedGrid,
    Position,
    Rotary,
    Sinusoidal,
    SinusoidalHalves,
    T5Bias,
    TransformerXL,
)
from unmask.nn.recurrent import Recurrent
from unmask.nn.recurrent_encoder import Bridge, RecurrentEncoder, ReversedEncoder, backwards
from unmask.nn.recurrent_stack import RecurrentLayer, RecurrentStack
from unmask.nn.recurrent_state import RecurrentState
from unmask.nn.state_attention import AdditiveAttention, DotAttention, GeneralAttention, Keys, StateAttention

__all__ = [
    "ACTIVATIONS",
    "ActivationName",
    "FEEDFORWARDS",
    "CharacterCNN",
    "Highway",
    "ScaledTiedHead",
    "TaskReader",
    "BidirectionalLMLayer",
    "BidirectionalLMStack",
    "ALiBi",
    "Patch",
    "Places",
    "AdditiveAttention",
    "Attention",
    "AttentionMap",
    "AttentiveBlock",
    "Bias",
    "Block",
    "BlockCache",
    "Bridge",
    "Cache",
    "CausalConvolution",
    "CentredConvolution",
    "Classifier",
    "Convolution",
    "ConvolutionalDecoder",
    "ConvolutionalEncoder",
    "CrossMask",
    "DilatedStack",
    "DotAttention",
    "DropPath",
    "Dropout",
    "Embedding",
    "FeedForward",
    "GatedBlock",
    "GatedConvolution",
    "GatedFeedForward",
    "GeneralAttention",
    "KeyValues",
    "Keys",
    "LanguageModelHead",
    "LayerDrop",
    "Learned",
    "LearnedGrid",
    "LinearChainCRF",
    "LoRALinear",
    "Logits",
    "Mask",
    "Memory",
    "MultiStepAttention",
    "Pooler",
    "Position",
    "ProjectedHead",
    "Projection",
    "Recurrent",
    "RecurrentEncoder",
    "RecurrentLayer",
    "RecurrentStack",
    "RecurrentState",
    "Residual",
    "ReversedEncoder",
    "Rotary",
    "ScalarMix",
    "ScaledToken",
    "Segment",
    "Sinusoidal",
    "SinusoidalHalves",
    "Span",
    "SpanRanking",
    "Stack",
    "StartsWide",
    "StateAttention",
    "T5Bias",
    "TiedHead",
    "Token",
    "TransformerXL",
    "UntiedHead",
    "VocabularyHead",
    "WeightNorm",
    "WideHead",
    "Window",
    "backwards",
    "gated_tanh",
    "logits_of",
    "normalised_linear",
    "record_attention",
    "scaled_sum",
    "stored",
    "truncated_normal",
    "weight_norm",
    "xavier_gates",
    "xavier_uniform",
]
