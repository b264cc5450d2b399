"""Advice on a strategy, by a table of the amount of labelled data and its similarity to the pre-training data."""

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
"""Fewer rows are little data: on sets of this size fine-tuning is unstable, and training a part of the model is no
worse (Hu et al. 2021)."""

LITTLE_ROWS_OF_A_CLASS = 50
"""Fewer rows for each class are also little data: a thousand rows with a hundred intents have ten examples of each."""

UNSTABLE_ROWS = 10_000
"""With fewer rows, seeds differ by several points (Devlin et al. 2018, section 4.1; Zhang et al. 2021)."""

FITTING = 0.8
"""Least similarity at which a vocabulary fits a text. Measured with the vocabulary of BERT-base, uncased: twelve sets
of English prose 0.96 to 1, reference pages of signal processing 0.9, French 0.7, German 0.6, Korean 0.3; with a Korean
one: Korean 0.9 to 1, English 0.5 to 0.7. The similarity detects languages; only the loss detects a new subject in
familiar words."""

STRANGE_LOSS = 3.0
"""Masked-language loss in nats above which a text is different from the pre-training data. RoBERTa's is between 1.1 and
2.1 on news, reviews and papers of biology and computer science before continued pre-training (Gururangan et al. 2020).
"""

FEW_WORDS = 5_000
"""With fewer words, the vocabulary learned from half of them is too poor for comparison: the similarity is too high."""

BYTES = 1_000_000  # most bytes of text to read; learning a vocabulary from half of them takes about two seconds
MASKED_TEXTS, MASKED_LENGTH = 128, 128  # texts, and tokens of each, for the loss

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
"""(amount, domain) -> the strategy to start with, and the reason."""


@dataclass(frozen=True)
class Evidence:
    """Measurements of texts with the tokenizer of a model.

    texts, words, tokens  their numbers; words and tokens are estimates if only a part was read
    per_word              pieces of a word with the tokenizer (its fertility)
    own_per_word          pieces of a word with a vocabulary learned from every other text; the texts in between are
                          used to measure this and `per_word`
    unknown, own_unknown  share of unknown tokens among these pieces, for the two vocabularies
    loss                  masked-language loss in nats; None if the model has no such head
    parameters            parameters of the model; None without a model
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
        """How well the vocabulary of the model fits the texts, compared to one learned from them; at most 1.

        The ratio of known pieces of the model's vocabulary to its pieces per word, divided by the same for the learned
        vocabulary. At 1, a vocabulary learned from the texts is no better. The comparison is with the texts and not
        with English, because words of Korean or German take more pieces in any vocabulary.
        """
        own = (1 - self.own_unknown) / self.own_per_word
        return min(1.0, (1 - self.unknown) / self.per_word / own)

    @property
    def sentences(self) -> list[str]:
        """The measurements in sentences."""
        model = "" if self.parameters is None else f" for a model of {self.parameters:,} weights"
        found = [
            f"{plural(self.texts, 'text')} of {plural(self.words, 'word')}, {plural(self.tokens, 'token')}{model}.",
            f"The tokenizer splits a word into {self.per_word:.2f} pieces, {self.unknown:.1%} of them unknown; one "
            f"learned from half of these texts into {self.own_per_word:.2f}, {self.own_unknown:.1%} unknown. "
            f"Similarity: {self.similarity:.2f} of 1.",
        ]
        if self.words < FEW_WORDS:
            found.append(f"With so few words (under {FEW_WORDS:,}), the similarity may be too high.")
        if self.loss is not None:
            found.append(f"The masked-language loss of the model on these texts is {self.loss:.2f} nats.")
        return found


@dataclass(frozen=True)
class Advice:
    """An entry of the table.

    amount, domain  the place of the rows in the table
    transfer        the strategy to start with
    sentences       the reasons, and what to do
    """

    amount: Amount
    domain: Domain
    transfer: Transfer
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def advise(rows: int, similarity: float, *, classes: int | None = None, loss: float | None = None) -> Advice:
    """The entry of the table for a number of labelled rows with such texts.

    rows        number of labelled rows
    similarity  `Evidence.similarity`, between 0 and 1
    classes     number of labels, if the task has labels
    loss        `Evidence.loss`

    Raises UnmaskError for numbers out of range.
    """
    if rows < 1 or not 0 <= similarity <= 1 or (classes is not None and classes < 1):
        raise UnmaskError("Advice needs at least one row and class, and a similarity between 0 and 1.")
    amount, counted = _amount(rows, classes)
    domain, compared = _domain(similarity, loss)
    transfer, todo = TABLE[amount, domain]
    return Advice(amount, domain, transfer, (counted, compared, todo, *_seeds(rows)))


def advise_without_texts(rows: int, *, classes: int | None = None) -> tuple[str, ...]:
    """The amount of labelled rows in sentences, for rows whose similarity to the pre-training data is not measured."""
    return (
        _amount(rows, classes)[1],
        "The similarity to the pre-training data is measured for texts only, so no strategy is advised. Compare "
        "frozen, top and full on the dev rows (--strategy). `unmask probe` scores the trunk as it is.",
        *_seeds(rows),
    )


def _seeds(rows: int) -> list[str]:
    """A sentence on the number of seeds, for few rows."""
    if rows >= UNSTABLE_ROWS:
        return []
    return [
        f"With fewer than {UNSTABLE_ROWS:,} rows, a single run says little: compare means over three or more seeds."
    ]


def measure(texts: Sequence[str], tokenizer: Tokenizer, model: Model | None = None, *, seed: int = 0) -> Evidence:
    """Measure how texts fit the vocabulary of a model and, if it has a masked-language head, the model itself.

    Of many texts, about a megabyte is read, spread over all of them. Raises UnmaskError if they have no words.
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
    """Whether rows are little or much data, and the sentence that says so."""
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
            f"The text is different from the pre-training text of the model: the similarity of the vocabulary is "
            f"{similarity:.2f}, below {FITTING}."
        )
    if loss is not None and loss > STRANGE_LOSS:
        return "different", (
            f"The text is different from the pre-training text of the model: the vocabulary fits ({similarity:.2f}), "
            f"but the masked-language loss is {loss:.2f} nats, above {STRANGE_LOSS}."
        )
    unseen = " Only words were compared; the subject may still be new to the model." if loss is None else ""
    return "similar", (
        f"The text is similar to the pre-training text of the model: the similarity of the vocabulary is "
        f"{similarity:.2f}, {FITTING} or more.{unseen}"
    )


def _loss(texts: Sequence[str], tokenizer: Tokenizer, model: Model, seed: int) -> float:
    """Mean masked-language loss in nats on some texts, masked as in the model's pre-training."""
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
