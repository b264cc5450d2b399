"""What makes a translation run, as a config."""

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
    """One vocabulary for both sides: subwords by sentencepiece ("unigram", "bpe"), or "word", "character".

    normalization  "nmt_nfkc_cf" makes everything lower case
    """

    kind: Literal["unigram", "bpe", "word", "character"] = "unigram"
    size: int = 8_000
    normalization: Literal["nmt_nfkc", "nmt_nfkc_cf", "identity"] = "nmt_nfkc"


@dataclass(frozen=True, kw_only=True)
class Learning(Config):
    """What is minimised.

    label_smoothing     share of the probability that is asked for all tokens alike
    scheduled_sampling  share of the true tokens that the model's own replace, while training
    average             checkpoints, the last ones, whose mean weights are tried at the end; 0 or 1: none
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
    """Everything that makes a translation run; `systems.py` holds those with a name.

    model   a Transformer, Seq2Seq, ConvS2S, VectorDecoder or T5; its vocabulary and special ids are the tokenizer's
    start   a folder whose weights and vocabulary to continue from (`translation.origin.starting_from`); None: new ones
    search  how `unmask translate` searches by default; evaluations during the run are greedy
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
        """Tokens of a side at most, the end included: of the texts, and of the positions of the model."""
        positions = getattr(self.model, "length", None)
        return self.texts.longest if positions is None else min(self.texts.longest, positions)
