"""What makes a pre-training run, as a config: what is learned, from which rows, by which model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_values
from pathlib import Path
from typing import Any, Literal, Self

from unmask import huggingface
from unmask.adapt import Origin, opened
from unmask.config import Config
from unmask.data import spelling
from unmask.data.corpus import Corpus, Split
from unmask.data.tokenizer import Tokenizer
from unmask.data.tokenizer_splitter import sentinel_ids, with_sentinels
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.models.elmo import ElmoModel
from unmask.models.model import ModelConfig
from unmask.models.t5 import T5
from unmask.objectives import (
    CausalLM,
    Joint,
    MaskedLM,
    NextSentence,
    Objective,
    ReplacedToken,
    SegmentLM,
    SentenceOrder,
    SequenceAutoencoder,
    SpanCorruption,
    Teaching,
    TwoWayLM,
)
from unmask.objectives.replaced_token import CHOSEN
from unmask.objectives.two_way import check_words
from unmask.train.optim import ADAFACTOR
from unmask.train.trainer import Training

LEARNED: Mapping[str, str] = {
    "hidden": "hidden words",
    "pairs": "pairs of sentences",
    "replaced": "replaced words",
    "next": "next tokens",
    "segments": "next tokens in rows that go on",
    "both": "words from both sides",
    "again": "sequences again",
    "spans": "spans cut out of a text",
}
"""What a run may learn: `written`, or, where that is "none", hidden words, or pairs of sentences alone; and which words
were replaced, beside them. A page says which of it (`ModelConfig.learns`)."""

EXAMPLES: Mapping[str, str] = {
    **dict.fromkeys(("hidden", "pairs"), "bert-tiny"),
    "replaced": "electra-tiny",
    "next": "gpt-tiny",
    "segments": "transformer-xl-tiny",
    "both": "elmo-tiny",
    "again": "lstm-autoencoder",
    "spans": "t5-tiny",
}
"""What is learned -> a recipe that learns it."""

TAKERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("masked", "sentences"), ("hidden", "pairs")),
    "rate": ("hidden", "spans"),
    **dict.fromkeys(("whole_words", "span"), ("hidden",)),
    "short": ("hidden", "pairs", "again", "spans"),
    "mean_span": ("spans",),
    "words": ("both",),
}
"""Field of `Objectives` -> what is learned where it means something."""

OFF: Mapping[str, tuple[object, ...]] = {
    "sentences": ("none", "auto"),
    "whole_words": (False,),
    "span": (1,),
    "short": (0.0,),
}
"""Values that ask for nothing, wherever they stand."""


@dataclass(frozen=True, kw_only=True)
class Objectives(Config):
    """What is learned.

    masked       guess hidden words (MLM)
    sentences    "next": does B follow A (NSP); "order": are they swapped (SOP); "none": single runs of sentences;
                 "auto": that of the three which the folder it starts from has a head for, "none" for a fresh model
    written      in place of all that: "next": guess every token from those before it (a causal language model);
                 "again": read a sequence, then write it again (a sequence autoencoder, Dai & Le 2015)
                 "spans": write what was cut out of a text, as T5 does (span corruption);
                 "segments": "next", in rows that go on from step to step, by a model that remembers them (Dai et al.
                 2019); "both": every word from those before it, and from those behind it, as ELMo does
    replaced     find the words that a small generator has put in the place of hidden ones (RTD), as ELECTRA does
    rate         share of the tokens to guess
    whole_words  hide all pieces of a word together
    span         hide runs of up to so many tokens, or whole words, together (SpanBERT, Joshi et al. 2020, has 10)
    short        share of the sequences, or pairs, that aim at a random shorter length
    mean_span    of "spans": tokens of what is cut out, on average
    words        of "both": how many words can be guessed, the commonest; a folder that it goes on from has its own
    """

    masked: bool = True
    sentences: Literal["next", "order", "none", "auto"] = "next"
    written: Literal["next", "again", "spans", "segments", "both", "none"] = "none"
    replaced: bool = False
    rate: float = 0.15
    whole_words: bool = False
    span: int = 1
    short: float = 0.1
    mean_span: float = 3.0
    words: int = 8_192

    @property
    def learned(self) -> str:
        """What is learned, of `LEARNED`; that words are replaced comes on top of it."""
        return self.written if self.written != "none" else "hidden" if self.masked else "pairs"

    def check(self, usual: Objectives | None = None) -> None:
        """Raises UnmaskError for a field that is set but means nothing to what is learned, rather than ignore it.

        usual  what was not asked for: the objectives of a recipe, or of the run that is resumed; None: the defaults
        """
        before = (usual or type(self)()).places()
        for name, value in self.places().items():
            takers = TAKERS.get(name, LEARNED)
            if self.learned not in takers and value != before[name] and value not in OFF.get(name, ()):
                raise UnmaskError(
                    f"--{name.replace('_', '-')} is for learning {' or '.join(LEARNED[taker] for taker in takers)}; "
                    f"this run learns {LEARNED[self.learned]}: leave it out."
                )

    def tokenizer(self, own: Tokenizer) -> Tokenizer:
        """That of a corpus with what this objective needs besides: sentinels, behind its vocabulary."""
        return with_sentinels(own) if self.written == "spans" else own

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        """The objective, of these ids and the words of `splits`, or those of a folder (`Loaded.words`). Raises
        UnmaskError where nothing would be learned."""
        if self.written == "next":
            return CausalLM(tokenizer.cls, tokenizer.sep)
        if self.written == "segments":
            return SegmentLM(tokenizer.cls, tokenizer.sep)
        if self.written == "both":
            first = spelling.continues(tokenizer)
            ends = {"start": tokenizer.cls, "end": tokenizer.sep}
            if self.words < 1:
                raise UnmaskError(f"--words is how many words can be guessed, at least 1, not {self.words}.")
            known = spelling.unspelled(words, tokenizer)
            counts, others = spelling.commonest(splits, first, self.words, known)
            return TwoWayLM(counts, spelling.words, first, **ends, others=others)
        if self.written == "again":
            return SequenceAutoencoder(tokenizer.cls, tokenizer.sep, short=self.short)
        if self.written == "spans":
            ids = {"start": tokenizer.pad, "end": tokenizer.sep, "padding": tokenizer.pad}
            sentinels = sentinel_ids(tokenizer.raw.get_vocab())
            return SpanCorruption(sentinels, **ids, rate=self.rate, mean=self.mean_span, short=self.short)
        parts: list[Objective] = []
        if self.sentences == "next":
            parts.append(NextSentence(tokenizer.join, short=self.short))
        elif self.sentences == "order":
            parts.append(SentenceOrder(tokenizer.join, short=self.short))
        if self.masked:
            masked = MaskedLM(
                mask=tokenizer.require_mask(),
                specials=tokenizer.specials,
                vocabulary=tokenizer.size,
                rate=self.rate,
                join=tokenizer.join,
                continuation=tokenizer.continuation if self.whole_words else None,
                span=self.span,
                short=self.short,
                becomes=CHOSEN if self.replaced else (0.8, 0.1),
            )
            parts.append(ReplacedToken(masked) if self.replaced else masked)
        if not parts:
            raise UnmaskError(
                "There is nothing to learn: set --masked true, --sentences next or order, or --written next."
            )
        if self.replaced and not self.masked:
            raise UnmaskError("Replaced tokens are learned from hidden words: set --masked true.")
        return parts[0] if len(parts) == 1 else Joint(*parts)


@dataclass(frozen=True, kw_only=True)
class Rows(Config):
    """How text becomes batches.

    tokens       of a row; None is as many as the model has positions
    first        tokens of a row at the start of a run, with as many more rows; None begins with `tokens`. Short rows
                 teach sooner which words go together (Devlin et al. 2018, A.2: 128 for 90 % of the steps, then 512)
    first_share  share of the steps that have the rows of `first`
    batch        rows of one optimiser step, over all processes
    micro_batch  rows of one forward pass of a process; None is all of them. Smaller needs less memory, same result.
    alpha        several corpora are mixed with weights n^alpha of their sizes (0.5 as in XLS-R; 1 as they are)
    heldout      rows of held-out text that evaluations use
    workers      processes that prepare data beside the training; 0 prepares it in a thread
    """

    tokens: int | None = None
    first: int | None = None
    first_share: float = 0.9
    batch: int = 32
    micro_batch: int | None = None
    alpha: float = 0.5
    heldout: int = 128
    workers: int = 0


@dataclass(frozen=True, kw_only=True)
class Pretraining(Config):
    """Everything that makes a pre-training run; `recipes.py` holds the ones with a name.

    start       a model folder whose weights to go on from, which has the sizes of `model` (`starting_from` sees to
                that); None for fresh weights
    warm_start  what the token vectors of a fresh model start from: "ppmi", which tokens stand beside which in the
                corpus (`data/cooccurrence.py`), or "none", random vectors
    """

    model: ModelConfig = field(default_factory=Bert)
    objectives: Objectives = field(default_factory=Objectives)
    teaching: Teaching = field(default_factory=Teaching)
    rows: Rows = field(default_factory=Rows)
    training: Training = field(default_factory=Training)
    start: str | None = None
    warm_start: Literal["none", "ppmi"] = "none"

    def starting_from(self, folder: Path | str) -> Self:
        """The same run from the weights, and with the sizes and the dropout, of a model folder."""
        model = opened(folder).model
        config = with_values(self, model=model.config, start=str(folder), warm_start="none")
        usual, *others = model.config.learns
        if "hidden" not in model.config.learns and (config.objectives.written == "none" or not others):
            config = config.replace(objectives={"written": usual, "sentences": "none"})
        if "rtd" in model.heads:
            config = config.replace(objectives={"replaced": True})
        if isinstance(model.config, T5) and config.training.optimizer.algorithm in ("auto", "muon"):
            config = config.replace(training={"optimizer": ADAFACTOR})
        return config

    def resumed(self, run: Mapping[str, Any]) -> Self:
        """The config in the run.json of a run, whose model may be of another class than the recipe's where it went on
        from a folder: `run` names it."""
        classes = {page.config.__name__: page.config for page in huggingface.TABLES.values()}
        wanted = classes.get(str(run.get("model")), type(self.model))
        config = self if type(self.model) is wanted else with_values(self, model=wanted.from_dict({}))
        config = config.replace(training={"optimizer": {"algorithm": "auto"}})  # of runs that do not say which
        return config.replace(**run["config"])


def settled(config: Pretraining, corpora: Sequence[Corpus], origin: Origin | None) -> Pretraining:
    """The config with everything that the corpora and the start decide. Raises UnmaskError where they do not fit."""
    if origin is not None:
        origin.check(corpora)
        config = with_values(config, model=origin.settle(config.model))
    _check_learned(config)
    if config.warm_start != "none" and (config.start is not None or config.teaching.inherit):
        raise UnmaskError(
            "A model that goes on from a folder, or inherits from a teacher, has its token vectors already: leave out "
            "--warm-start."
        )
    if config.objectives.sentences == "auto":
        config = config.replace(objectives={"sentences": "none" if origin is None else origin.sentences})
    if origin is None:
        config = config.replace(model=_ids(config.objectives, corpora[0].tokenizer))
    elif isinstance(origin.stored.model, ElmoModel):
        check_words(origin.stored.model, origin.stored.words, origin.folder)
    tokens = tokens_of(config)
    if config.model.length is not None and tokens > config.model.length:
        raise UnmaskError(
            f"Rows of {tokens} tokens do not fit a model with {config.model.length} positions; "
            f"set --rows.tokens {config.model.length} or less, or --length {tokens}."
        )
    first = config.rows.first
    if first is not None and (first > tokens or first < 8 or tokens % first):
        raise UnmaskError(f"Rows begin with {first} tokens, which must be at least 8 and divide {tokens} evenly.")
    if tokens < 8:
        raise UnmaskError(f"Rows of {tokens} tokens are too short to learn from; use at least 8.")
    return config


def _check_learned(config: Pretraining) -> None:
    """Raises UnmaskError for an objective that the model cannot learn."""
    model, asked = config.model, config.objectives
    for name in (asked.learned, "replaced") if asked.replaced else (asked.learned,):
        if name not in model.learns:
            option = "--replaced" if name == "replaced" else "--written"
            usual = f"leave {option} as the recipe has it, or take {EXAMPLES[name]}"
            way = f"leave out the recipe and {option}" if config.start else usual
            raise UnmaskError(
                f"This {type(model).__name__} learns {' or '.join(LEARNED[known] for known in model.learns)}, not "
                f"{LEARNED[name]}: {way}."
            )


def _ids(objectives: Objectives, tokenizer: Tokenizer) -> dict[str, int]:
    """The fields of the model that its tokenizer decides."""
    tokenizer = objectives.tokenizer(tokenizer)
    ids = {"vocabulary": tokenizer.size, "padding": tokenizer.pad}
    if objectives.written == "spans":
        ids |= {"start": tokenizer.pad, "end": tokenizer.sep}
    if objectives.written == "both":
        ids["continues"] = spelling.continues(tokenizer)
    return ids


def tokens_of(config: Pretraining) -> int:
    """Tokens of a row. Raises UnmaskError where nothing says how many."""
    tokens = config.rows.tokens or config.model.length
    if tokens is None:
        raise UnmaskError("This model has no longest sequence; say how long the rows are: --rows.tokens 128.")
    return tokens
