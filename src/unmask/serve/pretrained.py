"""Heads of pre-training that answer: masked tokens, replaced tokens, sentence pairs. A class for each kind.

Shapes: M places that are answered, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from unmask.data.text.tokenizer import Encoding, Tokenizer
from unmask.huggingface.table import PUBLISHED
from unmask.types import Example, Head

Answer = dict[str, Any]
Targets = tuple[np.ndarray, np.ndarray]
"""Places in a sequence, and a value for each (`Example.targets`)."""


@dataclass(frozen=True)
class Query:
    """A text or a pair as a pre-trained model reads it.

    texts, encodings  one, or two of a pair
    tokens, segments  what is read, at most as long as the model takes
    masks             places of masks in `tokens`
    cut               whether `tokens` is less than the whole
    """

    texts: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    tokens: np.ndarray
    segments: np.ndarray
    masks: np.ndarray
    cut: bool

    def example(self, name: str, targets: Targets) -> Example:
        """What is read, with the places that the head `name` answers."""
        return Example(self.tokens, self.segments, {name: targets})


Asked = tuple[Query, Targets]


class PretrainedHead(ABC):
    """A head of pre-training, and how it answers.

    name       of the head in the model
    tokenizer  of the model
    top        answers to give for each masked token
    length     the longest sequence, in tokens

    kind  what a model does that has this head
    key   field of its answers, which no other kind has
    """

    kind: ClassVar[str]
    key: ClassVar[str]

    def __init__(self, name: str, tokenizer: Tokenizer, *, top: int, length: int) -> None:
        self.name, self.tokenizer, self.top, self.length = name, tokenizer, top, length

    @property
    def mask(self) -> str:
        """The mask as it is written in a text."""
        return self.tokenizer.pieces([self.tokenizer.mask])[0]

    @classmethod
    @abstractmethod
    def reads(cls, head: Head) -> bool:
        """Whether this is such a head."""

    @abstractmethod
    def targets(self, query: Query) -> Targets | None:
        """The places that are answered; None where the text asks for something else."""

    @abstractmethod
    def refusal(self, place: str) -> str:
        """What is said of a row, which is at `place`, that no head of the model answers."""

    @abstractmethod
    def answers(self, asked: Sequence[Asked], rows_M: np.ndarray, answers_MC: Tensor) -> Iterator[tuple[int, Answer]]:
        """(number, answer) of each of the queries that this head answers.

        asked       the queries, with their targets
        rows_M      number of the query of each place
        answers_MC  outputs of the head there
        """

    @classmethod
    @abstractmethod
    def render(cls, text: str, answer: Mapping[str, Any]) -> str:
        """An answer as a person reads it on a terminal; `text` is what was asked."""


class MaskedTokens(PretrainedHead):
    """{"masks": [[{"token", "probability"}, …] for each mask], "text": filled in (a pair: and "pair")}."""

    kind, key = "fill-mask", "masks"

    @classmethod
    def reads(cls, head: Head) -> bool:
        return head.kind == "masked_token"

    def targets(self, query: Query) -> Targets | None:
        return (query.masks, np.zeros(len(query.masks), np.int64)) if len(query.masks) else None

    def refusal(self, place: str) -> str:
        return f"{place} has no {self.mask}: put one where the model is to guess a word."

    def answers(self, asked: Sequence[Asked], rows_M: np.ndarray, answers_MC: Tensor) -> Iterator[tuple[int, Answer]]:
        probabilities, ids = self._likeliest(answers_MC)
        for i in np.unique(rows_M).tolist():
            yield i, self.filled(asked[i][0].texts, ids[rows_M == i], probabilities[rows_M == i])

    def _likeliest(self, logits_MV: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and ids [M, top] of the best tokens, special ones left out; a model's vocabulary may be padded
        beyond the tokenizer's."""
        probabilities_MV = logits_MV.softmax(-1)
        probabilities_MV[:, sorted(self.tokenizer.specials)] = 0.0
        best = probabilities_MV[:, : self.tokenizer.size].topk(self.top, dim=-1)
        return best.values.cpu().numpy(), best.indices.cpu().numpy()

    def filled(self, texts: tuple[str, ...], ids: np.ndarray, probabilities: np.ndarray) -> Answer:
        """Predictions for each mask [top], and the texts with the first ones in the place of the masks."""
        masks = [
            [{"token": self._name(i), "probability": float(p)} for i, p in zip(row, ps, strict=True)]
            for row, ps in zip(ids, probabilities, strict=True)
        ]
        predictions = iter(masks)
        filled = []
        for text in texts:
            first, *rest = text.split(self.mask)
            for part in rest:
                token = str(next(predictions, [{"token": self.mask}])[0]["token"])
                # A piece that continues with a word leaves no space before it.
                first = first.rstrip() + token.removeprefix("##") if token.startswith("##") else first + token
                first += part
            filled.append(first)
        return {"masks": masks, "text": filled[0], **({"pair": filled[1]} if len(filled) == 2 else {})}

    def _name(self, token: int) -> str:
        return self.tokenizer.decode([token]).strip() or self.tokenizer.pieces([token])[0]

    @classmethod
    def render(cls, text: str, answer: Mapping[str, Any]) -> str:
        lines = [text]
        for number, predictions in enumerate(answer["masks"], 1):
            head = f"  {number}: " if len(answer["masks"]) > 1 else "  "
            lines.append(head + ", ".join(f"{one['token']} {one['probability']:.3f}" for one in predictions))
        filled = "\t".join(answer[name] for name in ("text", "pair") if name in answer)
        return "\n".join([*lines, f"  {filled}"])


class ReplacedTokens(PretrainedHead):
    """{"tokens": [{"token", "probability" that it was replaced, "begin", "end"}]}; of a pair also "pair"."""

    kind, key = "replaced-tokens", "tokens"

    @classmethod
    def reads(cls, head: Head) -> bool:
        return head.kind == "token" and head.pretraining

    def targets(self, query: Query) -> Targets | None:
        if len(query.masks):
            return None
        # Below all ids stand the numbers of the texts, so that their tokens are told from special ones.
        texts = len(query.texts)
        numbers = [np.full(len(one), number - texts) for number, one in enumerate(query.encodings)]
        joined, _ = self.tokenizer.join(numbers[0], numbers[1] if texts == 2 else None, self.length)
        places = np.flatnonzero(joined < 0)
        return places, joined[places] + texts

    def refusal(self, place: str) -> str:
        return (
            f"{place} has a {self.mask}, and this model tells replaced words: give a whole text, or ask for hidden "
            "words in the folder `generator` inside it."
        )

    def answers(self, asked: Sequence[Asked], rows_M: np.ndarray, answers_MC: Tensor) -> Iterator[tuple[int, Answer]]:
        probabilities_M = answers_MC.squeeze(-1).sigmoid().cpu().numpy()
        for i, (query, (_, numbers_M)) in enumerate(asked):
            yield i, self._judged(query, numbers_M, probabilities_M[rows_M == i])

    def _judged(self, query: Query, numbers_M: np.ndarray, probabilities_M: np.ndarray) -> Answer:
        """How likely each token that was read was put there by another model; `numbers_M` is the number of its text."""
        found = [
            [
                {"token": piece, "probability": p, "begin": begin, "end": end}
                for piece, p, (begin, end) in zip(
                    self.tokenizer.pieces(one.ids),
                    probabilities_M[numbers_M == number].tolist(),
                    one.offsets.tolist(),
                    strict=False,  # the end of a text that was cut was not read
                )
            ]
            for number, one in enumerate(query.encodings)
        ]
        return dict(zip(("tokens", "pair"), found, strict=False))

    @classmethod
    def render(cls, text: str, answer: Mapping[str, Any]) -> str:
        tokens = [*answer["tokens"], *answer.get("pair", ())]
        return "\n".join([text, *(f"  {one['token']}\t{one['probability']:.3f}" for one in tokens)])


class SentencePairs(PretrainedHead):
    """{"follows": probability}, for a pair without a mask."""

    kind, key = "next-sentence", "follows"

    @classmethod
    def reads(cls, head: Head) -> bool:
        return head.kind == "sequence" and head.pretraining

    def targets(self, query: Query) -> Targets | None:
        if len(query.texts) != 2 or len(query.masks):
            return None
        return np.zeros(1, np.int64), np.zeros(1, np.int64)  # [CLS]

    def refusal(self, place: str) -> str:
        return f"{place} must be a pair without {self.mask}: the model says whether one follows the other."

    def answers(self, asked: Sequence[Asked], rows_M: np.ndarray, answers_MC: Tensor) -> Iterator[tuple[int, Answer]]:
        for i, (follows, _) in zip(rows_M.tolist(), answers_MC.softmax(-1).tolist(), strict=True):
            yield i, {"follows": follows}

    @classmethod
    def render(cls, text: str, answer: Mapping[str, Any]) -> str:
        return f"follows  {answer['follows']:.3f}  {text}"


PRETRAINED: tuple[type[PretrainedHead], ...] = (MaskedTokens, ReplacedTokens, SentencePairs)
"""Kinds of heads of pre-training that answer. Of those that a model has, the first says what the model does and what is
refused; the last one that has targets in a text answers it."""


def found_in(heads: Collection[str]) -> dict[str, type[PretrainedHead]]:
    """Name of a head -> how it answers, in the order of PRETRAINED; one head of each kind.

    heads  names of the heads of a model. Only those that the tables of folders name answer: what another head of
           pre-training was trained to say, its kind does not tell
    """
    known = {name: head for name, head in PUBLISHED.items() if name in heads}
    found = {}
    for kind in PRETRAINED:
        name = next((name for name, head in known.items() if kind.reads(head)), None)
        if name is not None:
            found[name] = kind
    return found


def kind_of(heads: Collection[str]) -> str:
    """What a model with these heads does before it is fine-tuned; "fill-mask" where none of them answers."""
    return next((kind.kind for kind in found_in(heads).values()), MaskedTokens.kind)


def render_pretrained(text: str, answer: Mapping[str, Any]) -> str:
    """An answer of any of these heads as a person reads it on a terminal; `text` is what was asked."""
    kind = next(kind for kind in PRETRAINED if kind.key in answer)
    return kind.render(text, answer)
