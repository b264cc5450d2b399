"""Advice: which row of the table "amount of data x similarity of data" some rows fall in, and what to do there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from unmask.data import collate
from unmask.data.text.fertility import fertility
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import sample
from unmask.errors import UnmaskError, plural
from unmask.models.model import Model
from unmask.objectives import registry
from unmask.runs.transfer.strategy import Transfer
from unmask.tasks import evaluating
from unmask.types import Example

LITTLE_ROWS = 1_000
"""Fewer rows are little data: the size of the sets on which fine-tuning was found unstable, and on which training
part of a model does no worse (Hu et al. 2021)."""

LITTLE_ROWS_OF_A_CLASS = 50
"""And fewer rows for each class: a thousand rows of a hundred intents are ten examples of each."""

UNSTABLE_ROWS = 10_000
"""Below it seeds differ by several points (Devlin et al. 2018, section 4.1; Zhang et al. 2021)."""

FITTING = 0.8
"""Similarity from which the vocabulary was made for text of this kind. Measured with that of BERT-base, uncased: twelve
sets of English prose 0.96 to 1, reference pages of signal processing 0.9, French 0.7, German 0.6, Korean 0.3; with a
Korean one: Korean 0.9 to 1, English 0.5 to 0.7. It sees languages; a new subject in familiar words shows in the loss
alone."""

STRANGE_LOSS = 3.0
"""Masked-language loss in nats from which text is strange to a model. RoBERTa's is between 1.1 and 2.1 on news, reviews
and papers of biology and computer science before it has been adapted to them (Gururangan et al. 2020)."""

FEW_WORDS = 5_000
"""With fewer words, half of them make too poor a vocabulary to compare with: similarity comes out too high."""

BYTES = 1_000_000  # of text that is looked at; a vocabulary is learned from half of it in about two seconds
MASKED_TEXTS, MASKED_LENGTH = 128, 128  # for the loss

Amount = Literal["little", "much"]
Domain = Literal["similar", "different"]

TABLE: dict[tuple[Amount, Domain], tuple[Transfer, str]] = {
    ("little", "similar"): (
        Transfer(strategy="full"),
        "Train all weights (strategy full) with several seeds, or the top layers (top), which vary less. The textbook "
        "keeps the trunk as it is here and trains the head alone (frozen): the cheapest run, but with 100 and with 300 "
        "English reviews it was ten points behind (docs/transfer.md).",
    ),
    ("much", "similar"): (
        Transfer(strategy="full"),
        "Train all weights (strategy full): there are rows enough to move them safely, and they start near the goal.",
    ),
    ("little", "different"): (
        Transfer(strategy="lora"),
        "Continue pre-training on unlabelled text of this kind first, if there is any: labels are too few to teach the "
        "model its language. Then train a small addition to every layer (strategy lora), or the top layers (top).",
    ),
    ("much", "different"): (
        Transfer(strategy="full"),
        "Train all weights (strategy full), for there are rows enough to learn new text from; continued pre-training "
        "on unlabelled text of this kind beforehand usually gains more than any setting.",
    ),
}
"""(amount, domain) -> what to start from, and why."""


@dataclass(frozen=True)
class Evidence:
    """What was measured on some texts with a model's tokenizer.

    texts, words, tokens  how many there are; words and tokens are estimated where only a part was read
    per_word              pieces of the tokenizer for each word (its fertility)
    own_per_word          the same of a vocabulary learned from every other text, both on the texts in between
    unknown, own_unknown  share of these pieces that are the unknown token, likewise
    loss                  masked-language loss in nats; None where the model has no such head
    parameters            of the model; None where no model was given
    """

    texts: int
    words: int
    tokens: int
    per_word: float
    own_per_word: float
    unknown: float
    own_unknown: float
    loss: float | None = None
    parameters: int | None = None

    @property
    def similarity(self) -> float:
        """Known pieces for each word with a vocabulary of the texts' own, over those with the model's; at most 1.

        1: no vocabulary learned from these texts would serve them better. The texts are the yardstick, not English,
        since a word of Korean or German takes more pieces in the best of vocabularies.
        """
        own = (1 - self.own_unknown) / self.own_per_word
        return min(1.0, (1 - self.unknown) / self.per_word / own)

    @property
    def sentences(self) -> list[str]:
        """The measured quantities, for a person."""
        model = "" if self.parameters is None else f" for a model of {self.parameters:,} weights"
        found = [
            f"{plural(self.texts, 'text')} of {plural(self.words, 'word')}, {plural(self.tokens, 'token')}{model}.",
            f"The tokenizer makes {self.per_word:.2f} pieces of a word, {self.unknown:.1%} of them unknown; one learned"
            f" from half of these texts makes {self.own_per_word:.2f}, {self.own_unknown:.1%} unknown. "
            f"Similarity: {self.similarity:.2f} of 1.",
        ]
        if self.words < FEW_WORDS:
            found.append(f"So few words (under {FEW_WORDS:,}) make text look more similar than it may be.")
        if self.loss is not None:
            found.append(f"The model guesses hidden words of these texts with a loss of {self.loss:.2f} nats.")
        return found


@dataclass(frozen=True)
class Advice:
    """A row of the table.

    amount, domain  where the rows stand
    transfer        the strategy to start from
    sentences       why, and what to do
    """

    amount: Amount
    domain: Domain
    transfer: Transfer
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def advise(rows: int, similarity: float, *, classes: int | None = None, loss: float | None = None) -> Advice:
    """The row of the table for so many labelled rows of text of this kind.

    similarity  `Evidence.similarity`, between 0 and 1
    classes     number of labels, where the task has some
    loss        `Evidence.loss`

    Raises UnmaskError for numbers that cannot be.
    """
    if rows < 1 or not 0 <= similarity <= 1 or (classes is not None and classes < 1):
        raise UnmaskError("Advice needs at least one row and class, and a similarity between 0 and 1.")
    amount, counted = _amount(rows, classes)
    domain, compared = _domain(similarity, loss)
    transfer, todo = TABLE[amount, domain]
    sentences = [counted, compared, todo]
    if rows < UNSTABLE_ROWS:
        sentences.append(
            f"Under {UNSTABLE_ROWS:,} rows a single run says little: compare means over three seeds or more."
        )
    return Advice(amount, domain, transfer, tuple(sentences))


def measure(texts: Sequence[str], tokenizer: Tokenizer, model: Model | None = None, *, seed: int = 0) -> Evidence:
    """Hold texts against a model's vocabulary and, where it can guess hidden words, against the model.

    Of many texts about a megabyte is read, spread over all of them. Raises UnmaskError where they hold no words.
    """
    texts = [text for text in texts if text.strip()]
    read = sample(texts, BYTES)
    learned, held = (read[::2], read[1::2]) if len(read) > 1 else (read, read)
    own = Tokenizer.train(learned, tokenizer.size, cased=tokenizer.cased, byte_budget=BYTES)
    theirs, ours = fertility(tokenizer, held, top=0), fertility(own, held, top=0)
    share = sum(map(len, texts)) / sum(map(len, held))
    return Evidence(
        texts=len(texts),
        words=round(theirs.words * share),
        tokens=round(sum(map(len, tokenizer.ids(held))) * share),
        per_word=theirs.per_word,
        own_per_word=ours.per_word,
        unknown=theirs.unknown_share,
        own_unknown=ours.unknown_share,
        loss=_loss(held, tokenizer, model, seed) if model is not None and "mlm" in model.heads else None,
        parameters=None if model is None else model.parameters_total,
    )


def _amount(rows: int, classes: int | None) -> tuple[Amount, str]:
    if rows < LITTLE_ROWS:
        return "little", f"{rows:,} rows are little data: fewer than {LITTLE_ROWS:,}."
    if classes is not None and rows < LITTLE_ROWS_OF_A_CLASS * classes:
        each = rows / classes
        return "little", (
            f"{rows:,} rows are little data for {classes:,} labels: {each:.0f} each, fewer than "
            f"{LITTLE_ROWS_OF_A_CLASS}."
        )
    return "much", f"{rows:,} rows are much data: {LITTLE_ROWS:,} or more."


def _domain(similarity: float, loss: float | None) -> tuple[Domain, str]:
    if similarity < FITTING:
        return "different", (
            f"The text is different from what the model was made for: its vocabulary fits to {similarity:.2f}, "
            f"below {FITTING}."
        )
    if loss is not None and loss > STRANGE_LOSS:
        return "different", (
            f"The text is different from what the model was trained on: the vocabulary fits ({similarity:.2f}), but "
            f"hidden words are guessed with a loss of {loss:.2f} nats, above {STRANGE_LOSS}."
        )
    unseen = " Words alone were compared; whether the subject is new was not seen." if loss is None else ""
    return "similar", (
        f"The text is similar to what the model was made for: its vocabulary fits to {similarity:.2f}, "
        f"{FITTING} or more.{unseen}"
    )


def _loss(texts: Sequence[str], tokenizer: Tokenizer, model: Model, seed: int) -> float:
    """Mean loss in nats of the words that the pre-training of the model would hide of some texts."""
    step = max(1, len(texts) // MASKED_TEXTS)
    length = min(MASKED_LENGTH, model.positions or MASKED_LENGTH)
    objective = registry.usual(model.config).build(tokenizer)
    rng = np.random.default_rng(seed)
    total, count = 0.0, 0
    with evaluating(model), torch.no_grad():
        chosen = [ids for ids in tokenizer.ids(texts[::step][:MASKED_TEXTS]) if len(ids)]
        for begin in range(0, len(chosen), 16):
            joined = [tokenizer.join(ids, None, length) for ids in chosen[begin : begin + 16]]
            rows = [Example(tokens, segments) for tokens, segments in joined]
            batch = objective.corrupt(collate.pad(rows, tokenizer.pad), rng).to(model.device)
            loss = objective.loss(model, batch)["mlm"]
            total, count = total + loss.sum.item(), count + loss.count
    return total / max(1, count)
