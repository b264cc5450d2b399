"""The config of a translation run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unmask.config import Config
from unmask.generate import Limits, Search
from unmask.models import Transformer
from unmask.models.encoder_decoder import EncoderDecoderConfig
from unmask.objectives import NextToken, ScheduledSampling
from unmask.runs.translation.texts import Texts
from unmask.train.trainer import Training

LIMITS = Limits(max_length=256)


@dataclass(frozen=True, kw_only=True)
class Vocabulary(Config):
    """One vocabulary for sources and targets: subwords by sentencepiece ("unigram", "bpe"), or "word", "character".

    size           pieces to learn
    kind           "spaced": tokens with spaces between them, such as trees and actions
    normalization  normalisation of sentencepiece; "nmt_nfkc_cf" also lower-cases the text
    """

    kind: Literal["unigram", "bpe", "word", "spaced", "character"] = "unigram"
    size: int = 8_000
    normalization: Literal["nmt_nfkc", "nmt_nfkc_cf", "identity"] = "nmt_nfkc"


@dataclass(frozen=True, kw_only=True)
class Learning(Config):
    """The loss that is minimised.

    label_smoothing     share of the target probability that is spread evenly over all tokens
    scheduled_sampling  share of the true tokens that are replaced by predictions of the model during training
    average             number of last checkpoints whose mean weights are evaluated at the end; 0 or 1: none
    """

    label_smoothing: float = 0.1
    scheduled_sampling: float = 0.0
    average: int = 0

    def build(self) -> NextToken:
        """The objective."""
        if self.scheduled_sampling:
            return ScheduledSampling(self.scheduled_sampling, label_smoothing=self.label_smoothing)
        return NextToken(label_smoothing=self.label_smoothing)


@dataclass(frozen=True, kw_only=True)
class Translation(Config):
    """All settings of a translation run; `systems.py` has named ones.

    model   a Transformer, Seq2Seq, ConvS2S, VectorDecoder, Captioner or T5; its vocabulary and special ids are the
            tokenizer's
    start   a folder whose weights and vocabulary to continue from (`translation.origin.starting_from`); None: new ones
    search  the default search of `unmask translate`; evaluations during the run are greedy
    """

    model: EncoderDecoderConfig = field(default_factory=Transformer)
    start: str | None = None
    texts: Texts = field(default_factory=Texts)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    learning: Learning = field(default_factory=Learning)
    training: Training = field(default_factory=Training)
    search: Search = field(default_factory=lambda: Search(beam_size=5, length_penalty=1.0, limits=LIMITS))

    @property
    def longest(self) -> int:
        """Most tokens of a source or a target, end token included: the limit of the texts, or the model's positions."""
        positions = getattr(self.model, "length", None)
        return self.texts.longest if positions is None else min(self.texts.longest, positions)
