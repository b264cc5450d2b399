"""Masked language modelling: mask some tokens, predict them from the others (Devlin et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from unmask.data import collate
from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Guesses, Join, Joint, Objective, Probe, Term
from unmask.objectives.sentence_pair import Sentences, SingleRuns
from unmask.objectives.sequences import runs
from unmask.types import Batch, Document, Example, Head, Target

PROBES, SHOWN = 6, 3
"""Number of held-out sentences with a masked word at each evaluation, and of predictions that are kept for each."""


class MaskedLM(Objective):
    """Choose 15 % of the tokens of each sequence; of those, by default, 80 % become [MASK], 10 % a random token, 10 %
    stay.

    Masks are drawn anew each time a sequence is seen (dynamic masking, Liu et al. 2019). Special tokens and
    padding are never chosen and never drawn as the random token.

    mask, specials, vocabulary  ids of the mask and of special tokens, and the size of the vocabulary
    join          frames a run of ids with special tokens; needed only where this objective samples the text itself
    rate          share of the tokens that are chosen, above 0 and below 1
    continuation  [V] bool, True for pieces that continue a word: then whole words are chosen (whole-word masking)
    span          above 1, runs of up to this many tokens, or words, are chosen together: see `spans`
    short         share of the sequences that aim at a random shorter length; it has an effect only with `join`
    becomes       shares of the chosen tokens that become [MASK], and that become a random token; the others stay
    """

    name = "mlm"
    terms = (
        Term(
            name,
            "masked tokens",
            "masked-token",
            "Masked tokens of held-out documents",
            "masked tokens that were predicted correctly",
        ),
    )
    head_labels = ((name, "masked-token (mlm)"),)
    teachable = name

    def __init__(
        self,
        *,
        mask: int,
        specials: Collection[int],
        vocabulary: int,
        rate: float = 0.15,
        join: Join | None = None,
        continuation: np.ndarray | None = None,
        span: int = 1,
        short: float = 0.0,
        becomes: tuple[float, float] = (0.8, 0.1),
    ) -> None:
        if span < 1:
            raise UnmaskError(f"The longest span to mask must be at least 1, not {span}.")
        if not 0 < rate < 1:
            raise UnmaskError(
                f"A share of {rate} of the tokens cannot be masked: --rate must be above 0 and below 1, such as 0.15."
            )
        self.heads = {self.name: Head("masked_token")}
        self.becomes, self.span = becomes, span
        self.mask, self.rate, self.join, self.continuation, self.short = mask, rate, join, continuation, short
        self.special = np.zeros(vocabulary, dtype=bool)
        self.special[list(specials)] = True
        self.ordinary = np.flatnonzero(~self.special)
        if continuation is not None and continuation[self.ordinary].all():  # each text would be a single word
            raise UnmaskError(
                "This vocabulary does not say where a word begins, as one of characters does not: leave --whole-words "
                "out."
            )

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        """Runs of consecutive sentences that fill up to `length` tokens and never cross a document's end."""
        assert self.join is not None, "MaskedLM samples text only where it was given `join`"
        examples = []
        for document in documents:
            for run in runs(document.sentences, length - 2, self.short, rng):
                tokens, segments = self.join(run, None, length)
                examples.append(Example(tokens, segments))
        return examples

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        tokens = batch.tokens.numpy().reshape(-1)
        places = self.choose(tokens, _sequence_of_token(batch), rng)
        values = tokens[places]
        kind = rng.random(len(places))
        corrupted = tokens.copy()
        masked, swapped = self.becomes[0], sum(self.becomes)
        corrupted[places[kind < masked]] = self.mask
        random = places[(kind >= masked) & (kind < swapped)]
        corrupted[random] = self.ordinary[rng.integers(len(self.ordinary), size=len(random))]
        target = Target(torch.from_numpy(places), torch.from_numpy(values.astype(np.int64)))
        hidden = replace(batch, tokens=torch.from_numpy(corrupted.reshape(batch.tokens.shape)))
        return hidden.with_targets(mlm=target)

    def choose(self, tokens: np.ndarray, sequence: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Ascending places [M] of the targets in flattened rows.

        tokens    [B * T] ids
        sequence  [B * T] number of the sequence that each token belongs to, ascending; -1 is padding

        Each sequence gets `rate` of its ordinary tokens, rounded at random so that the expected share is exactly
        `rate` for any length, and at least one.
        """
        candidates = np.flatnonzero((sequence >= 0) & ~self.special[tokens])
        if not len(candidates):
            return candidates
        owner = sequence[candidates]
        # A unit is masked as a whole: a token, a word, or several of them in a row.
        opens = np.ones(len(candidates), dtype=bool)
        if self.continuation is not None:
            follows = (np.diff(candidates, prepend=-2) == 1) & (np.diff(owner, prepend=-1) == 0)
            opens = ~(self.continuation[tokens[candidates]] & follows)
        first = np.flatnonzero(opens)
        if self.span > 1:
            breaks = (np.diff(owner, prepend=-1) != 0) | (np.diff(candidates, prepend=-2) != 1)
            first = first[spans(np.cumsum(breaks)[first], self.span, rng)]
        size = np.diff(first, append=len(candidates))
        owner_of_unit = owner[first]
        # Shuffle the units within each sequence, then take them until the budget of the sequence is spent.
        order = np.lexsort((rng.random(len(first)), owner_of_unit))
        ordered_owner, ordered_size = owner_of_unit[order], size[order]
        begins = np.flatnonzero(np.diff(ordered_owner, prepend=-1))
        group = np.cumsum(np.diff(ordered_owner, prepend=-1) != 0) - 1
        spent = np.cumsum(ordered_size) - ordered_size
        spent -= spent[begins][group]
        budget = np.maximum(np.add.reduceat(ordered_size, begins) * self.rate, 1.0)[group]
        # The unit that straddles the budget is taken with the probability that makes the expectation exact.
        chosen = np.zeros(len(first), dtype=bool)
        chosen[order] = spent + rng.random(len(first)) * ordered_size < budget
        return candidates[np.repeat(chosen, size)]

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if "loss/mlm" not in found or "loss/mlm" not in baseline:
            return []
        start = f"at the start: {before['mlm/correct']:.1%}, {before['loss/mlm']:.2f}; " if "loss/mlm" in before else ""
        return [
            f"Held-out masked tokens: accuracy {found['mlm/correct']:.1%}, loss {found['loss/mlm']:.2f} ({start}word "
            f"frequencies alone: {baseline['mlm/correct']:.1%}, {baseline['loss/mlm']:.2f})."
        ]

    def probes(self, split: Split, tokenizer: Tokenizer, length: int) -> list[Probe]:
        """Sentences of held-out documents in which one whole word is masked."""
        rng = np.random.default_rng(0)
        found: list[Probe] = []
        units = split.units(length)
        for row in rng.permutation(len(units)):
            sentences = [s for s in split.read(units[row].item()).sentences if 6 <= len(s) <= min(30, length - 2)]
            for sentence in sentences[:1]:
                follows = np.append(tokenizer.continuation[sentence[1:]], False)
                letters = np.array([tokenizer.pieces([i])[0].isalpha() for i in sentence.tolist()])
                whole = np.flatnonzero(letters & ~follows & ~tokenizer.continuation[sentence])
                if not len(whole):
                    continue
                place = int(rng.choice(whole))
                ids = sentence.astype(np.int64)
                answer = tokenizer.pieces([ids[place]])[0]
                ids[place] = tokenizer.mask
                before, after = tokenizer.decode(ids[:place]), tokenizer.decode(ids[place + 1 :])
                found.append(Probe(f"{before} [MASK] {after}", tokenizer.join(ids, None, length)[0], (answer,)))
            if len(found) == PROBES:
                break
        return found

    def probes_of(self, texts: Mapping[str, Sequence[str]], tokenizer: Tokenizer, length: int) -> list[Probe]:
        """Probes from texts that contain `[MASK]`."""
        return [
            Probe(text, tokenizer.join(tokenizer.encode(text).ids, None, length)[0], tuple(expected))
            for text, expected in texts.items()
        ]

    def guesses(self, model: Any, tokenizer: Tokenizer, probes: Sequence[Probe]) -> list[Guesses]:
        """The most likely pieces for the first mask of each probe."""
        if not probes:
            return []
        batch = collate.pad([Example(probe.tokens) for probe in probes], tokenizer.pad).to(model.device)
        width = batch.tokens.shape[1]
        places = [i * width + int(np.flatnonzero(p.tokens == tokenizer.mask)[0]) for i, p in enumerate(probes)]
        logits_MV = model.answer("mlm", model(batch), torch.tensor(places, device=model.device)).float()
        best = logits_MV.softmax(-1).topk(SHOWN, dim=-1)
        return [
            list(zip(tokenizer.pieces(ids), ps, strict=True))
            for ids, ps in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(ObjectiveConfig):
    """Predict masked tokens (MLM).

    rate         share of the tokens to predict
    whole_words  mask all pieces of a word together
    span         mask runs of up to this many tokens, or whole words, together (SpanBERT, Joshi et al. 2020, has 10)
    sentences    content of the sequences: single runs of sentences, or sentence pairs with an objective of their own
    """

    rate: float = 0.15
    whole_words: bool = False
    span: int = 1
    sentences: Sentences = field(default_factory=SingleRuns)

    kind = "masked"
    learned = "masked tokens"
    example = "bert-tiny"
    objective = MaskedLM
    requires = frozenset({"bidirectional"})
    pipeline = "fill-mask"
    command = ("predict", '"A text with [MASK]."')
    choices = (("written", "none"), ("masked", "true"), ("masked", "false"))
    off = (("whole_words", False), ("span", 1))
    optional = True

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """As `ObjectiveConfig.chosen`. Masked tokens are added to sentence pairs that were the whole objective, and
        leave them when turned off."""
        own = current.part(cls)
        if value == "false":
            if own is None:
                return current if isinstance(current, Sentences) else None
            if own is not current:
                raise UnmaskError(f"{current.learned.capitalize()} are learned from masked tokens: set --masked true.")
            return own.sentences
        if isinstance(current, Sentences):
            return current if option == "written" else cls(sentences=current)
        if own is not None:
            return current
        return cls().like(current) if option == "written" else None

    def hidden(self, tokenizer: Tokenizer, becomes: tuple[float, float] = (0.8, 0.1)) -> MaskedLM:
        """The objective without the one for sentence pairs; `becomes` as `MaskedLM` takes it."""
        return MaskedLM(
            mask=tokenizer.require_mask(),
            specials=tokenizer.specials,
            vocabulary=tokenizer.size,
            rate=self.rate,
            join=tokenizer.join,
            continuation=tokenizer.continuation if self.whole_words else None,
            span=self.span,
            short=self.sentences.short,
            becomes=becomes,
        )

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        question, hidden = self.sentences.question(tokenizer), self.hidden(tokenizer)
        return hidden if question is None else Joint(question, hidden)


def spans(stretch: np.ndarray, longest: int, rng: np.random.Generator) -> np.ndarray:
    """Cut every stretch of text into spans of random lengths; returns the indices [spans] of the words that begin one.

    Lengths are geometric with p = 0.2 and at most `longest` (SpanBERT, Joshi et al. 2020, section 3.1, with 10: 3.8
    words on average). The paper draws spans until enough tokens are masked; here a stretch is cut into spans and some
    are chosen, so that none overlap; the last span ends with its stretch.

    stretch  [words] number of the stretch that each word belongs to, ascending; special tokens separate stretches
    """
    lengths = np.minimum(rng.geometric(0.2, len(stretch)), longest)
    ends = np.cumsum(lengths)
    begins = np.diff(stretch, prepend=-1) != 0
    begins[ends[ends < len(stretch)]] = True
    return np.flatnonzero(begins)


def _sequence_of_token(batch: Batch) -> np.ndarray:
    """[B * T] a number for the sequence that each token belongs to, ascending along the rows; -1 for padding."""
    rows, width = batch.tokens.shape
    row = np.repeat(np.arange(rows), width)
    if batch.documents is None:
        return row
    documents = batch.documents.numpy().reshape(-1)
    return np.where(documents > 0, row * (width + 1) + documents, -1)
