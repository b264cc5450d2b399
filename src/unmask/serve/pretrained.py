"""Answers of the heads of pre-training: masked tokens, replaced tokens, sentence pairs. One class for each kind.

Shapes: M target places, V vocabulary.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from unmask.data.text.tokenizer import Encoding, Tokenizer
from unmask.huggingface.table import PUBLISHED
from unmask.types import Example, Head

_MASK = re.compile(r"[\[<] ?mask ?[\]>]", re.IGNORECASE)  # the mask of any tokenizer, as a person may write it

Answer = dict[str, Any]
Targets = tuple[np.ndarray, np.ndarray]
"""Places in a sequence, and a value for each (`Example.targets`)."""


@dataclass(frozen=True)
class Query:
    """A text or a pair as a pre-trained model reads it.

    texts, encodings  one, or two for a pair
    tokens, segments  the sequence, cut to the longest that the model reads
    masks             places of masks in `tokens`
    cut               whether the sequence was cut
    """

    texts: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    tokens: np.ndarray
    segments: np.ndarray
    masks: np.ndarray
    cut: bool

    def example(self, name: str, targets: Targets) -> Example:
        """The sequence, with the targets of the head `name`."""
        return Example(self.tokens, self.segments, {name: targets})


Asked = tuple[Query, Targets]


class PretrainedHead(ABC):
    """A head of pre-training, and how it answers.

    name       the name of the head in the model
    tokenizer  the tokenizer of the model
    top        number of predictions for each masked token
    length     the longest sequence, in tokens

    kind  the name of what a model with this head does
    key   a field that only the answers of this kind have
    """

    kind: ClassVar[str]
    key: ClassVar[str]

    def __init__(self, name: str, tokenizer: Tokenizer, *, top: int, length: int) -> None:
        self.name, self.tokenizer, self.top, self.length = name, tokenizer, top, length

    @property
    def mask(self) -> str:
        """The mask token as text."""
        return self.tokenizer.pieces([self.tokenizer.mask])[0]

    @classmethod
    @abstractmethod
    def reads(cls, head: Head) -> bool:
        """Whether this is such a head."""

    @abstractmethod
    def targets(self, query: Query) -> Targets | None:
        """The places that the head answers; None if it cannot answer this query."""

    @abstractmethod
    def refusal(self, place: str, texts: Sequence[str]) -> str:
        """The message of the error for a row, at `place` and of these texts, that no head of the model answers."""

    @abstractmethod
    def answers(self, asked: Sequence[Asked], rows_M: np.ndarray, answers_MC: Tensor) -> Iterator[tuple[int, Answer]]:
        """Yield (number, answer) for each query of this head.

        asked       the queries, with their targets
        rows_M      number of the query that each place belongs to
        answers_MC  outputs of the head at the places
        """

    @classmethod
    @abstractmethod
    def render(cls, text: str, answer: Mapping[str, Any]) -> str:
        """An answer as text for a terminal; `text` is the text that it answers."""


class MaskedTokens(PretrainedHead):
    """{"masks": [[{"token", "probability"}, …] for each mask], "text": filled in (a pair: and "pair")}."""

    kind, key = "fill-mask", "masks"

    @classmethod
    def reads(cls, head: Head) -> bool:
        return head.kind == "masked_token"

    def targets(self, query: Query) -> Targets | None:
        return (query.masks, np.zeros(len(query.masks), np.int64)) if len(query.masks) else None

    def refusal(self, place: str, texts: Sequence[str]) -> str:
        if meant := _MASK.search("\n".join(texts)):
            return f"{place} has no {self.mask}: did you mean {self.mask} for {meant[0]}?"
        return f"{place} has no {self.mask}: put one where the model should predict a token."

    def answers(self, asked: Sequence[Asked], rows_M: np.ndarray, answers_MC: Tensor) -> Iterator[tuple[int, Answer]]:
        probabilities, ids = self._likeliest(answers_MC)
        for i in np.unique(rows_M).tolist():
            yield i, self.filled(asked[i][0].texts, ids[rows_M == i], probabilities[rows_M == i])

    def _likeliest(self, logits_MV: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and ids [M, top] of the most probable tokens, without special tokens. The vocabulary of a model
        may be larger than the tokenizer's, by padding."""
        probabilities_MV = logits_MV.softmax(-1)
        probabilities_MV[:, sorted(self.tokenizer.specials)] = 0.0
        best = probabilities_MV[:, : self.tokenizer.size].topk(self.top, dim=-1)
        return best.values.cpu().numpy(), best.indices.cpu().numpy()

    def filled(self, texts: tuple[str, ...], ids: np.ndarray, probabilities: np.ndarray) -> Answer:
        """The `top` predictions for each mask, and the texts with the first prediction in place of each mask."""
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
                # A piece that continues a word has no space before it.
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
            lines.append(head + "   ".join(f"{one['token']} {one['probability']:.3f}" for one in predictions))
        filled = "\t".join(answer[name] for name in ("text", "pair") if name in answer)
        return "\n".join([*lines, f"  {filled}"])


class ReplacedTokens(PretrainedHead):
    """{"tokens": [{"token", "probability" that it was replaced, "begin", "end"}]}; for a pair also "pair"."""

    kind, key = "replaced-tokens", "tokens"

    @classmethod
    def reads(cls, head: Head) -> bool:
        return head.kind == "token" and head.pretraining

    def targets(self, query: Query) -> Targets | None:
        if len(query.masks):
            return None
        # Joining negative numbers instead of ids shows which places belong to which text, and which are special tokens.
        texts = len(query.texts)
        numbers = [np.full(len(one), number - texts) for number, one in enumerate(query.encodings)]
        joined, _ = self.tokenizer.join(numbers[0], numbers[1] if texts == 2 else None, self.length)
        places = np.flatnonzero(joined < 0)
        return places, joined[places] + texts

    def refusal(self, place: str, texts: Sequence[str]) -> str:
        return (
            f"{place} has a {self.mask}, and this model finds replaced tokens: give a text without it, or use the "
            "folder `generator` inside this one, which predicts masked tokens."
        )

    def answers(self, asked: Sequence[Asked], rows_M: np.ndarray, answers_MC: Tensor) -> Iterator[tuple[int, Answer]]:
        probabilities_M = answers_MC.squeeze(-1).sigmoid().cpu().numpy()
        for i, (query, (_, numbers_M)) in enumerate(asked):
            yield i, self._judged(query, numbers_M, probabilities_M[rows_M == i])

    def _judged(self, query: Query, numbers_M: np.ndarray, probabilities_M: np.ndarray) -> Answer:
        """The probability that each token was replaced; `numbers_M` is the number of the text of each token."""
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

    def refusal(self, place: str, texts: Sequence[str]) -> str:
        return f"{place} must be a pair without {self.mask}: this model predicts whether one text follows the other."

    def answers(self, asked: Sequence[Asked], rows_M: np.ndarray, answers_MC: Tensor) -> Iterator[tuple[int, Answer]]:
        for i, (follows, _) in zip(rows_M.tolist(), answers_MC.softmax(-1).tolist(), strict=True):
            yield i, {"follows": follows}

    @classmethod
    def render(cls, text: str, answer: Mapping[str, Any]) -> str:
        return f"follows  {answer['follows']:.3f}  {text}"


PRETRAINED: tuple[type[PretrainedHead], ...] = (MaskedTokens, ReplacedTokens, SentencePairs)
"""The kinds of heads of pre-training that answer. If a model has several, the first gives the kind of the model and the
message for a text that no head answers; the last one with targets in a text answers it."""


def found_in(heads: Collection[str]) -> dict[str, type[PretrainedHead]]:
    """Name of a head -> how it answers, in the order of PRETRAINED; one head of each kind.

    heads  names of the heads of a model. Only published heads, which the tables of folders name, can answer: the kind
           of another head does not tell what it was trained for
    """
    known = {name: head for name, head in PUBLISHED.items() if name in heads}
    found = {}
    for kind in PRETRAINED:
        name = next((name for name, head in known.items() if kind.reads(head)), None)
        if name is not None:
            found[name] = kind
    return found


def kind_of(heads: Collection[str]) -> str:
    """What a model with these heads does before fine-tuning; "fill-mask" if none of them answers."""
    return next((kind.kind for kind in found_in(heads).values()), MaskedTokens.kind)


def render_pretrained(text: str, answer: Mapping[str, Any]) -> str:
    """An answer of any of these heads as text for a terminal; `text` is the text that it answers."""
    kind = next(kind for kind in PRETRAINED if kind.key in answer)
    return kind.render(text, answer)
