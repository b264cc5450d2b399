"""BidirectionalLM: predict every word from those before it, and from those after it (ELMo, Peters et al. 2018, 3.1).

Shapes: T tokens (characters), W words of a sequence, M targets, V words of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.data.text import spelling
from unmask.data.text.corpus import Split
from unmask.data.text.stream import UNIT_TOKENS
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.elmo_model import WORDS
from unmask.models.model import Model
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.cross_entropy import of_logits
from unmask.objectives.objective import Objective, Term, perplexity
from unmask.types import Batch, Document, Example, Head, Loss

DIRECTIONS = ("forward", "backward")
LOGITS = 1 << 24  # that are made at a time
LIKELIEST = "words that were predicted correctly"
UNKNOWN, EDGE = 0, 1  # words that are not in the vocabulary; where a text begins or ends


class BidirectionalLM(Objective):
    """sum over k of log p(w_k | w_1 .. w_k-1) + log p(w_k | w_k+1 .. w_n); both directions share the softmax.

    vocabulary  words that can be predicted, as `split` gives them, with their counts in the text; all other words are
                one entry, which is predicted too and has the count `others`
    split       tokens [T] -> the words that they spell, as bytes
    continues   first id of the tokens that continue with a word
    start, end  ids that frame a text: [CLS] and [SEP]
    """

    name = "forward+backward"
    terms = (
        Term("forward", "next word", "next-word", "Held-out documents, each word from those before", LIKELIEST),
        Term("backward", "previous word", "previous-word", "Held-out documents, each word from those after", LIKELIEST),
    )

    def __init__(
        self,
        vocabulary: Mapping[bytes, int],
        split: Callable[[np.ndarray, int], list[bytes]],
        continues: int,
        *,
        start: int,
        end: int,
        others: int = 0,
    ) -> None:
        if not vocabulary:
            raise UnmaskError("There are no words to predict; give the corpus some text.")
        self.ids = {word: i for i, word in enumerate(vocabulary, EDGE + 1)}
        self.split, self.continues, self.start, self.end = split, continues, start, end
        self.heads = {WORDS: Head("words", len(vocabulary) + EDGE + 1)}
        self.counts = np.array([others, 0, *vocabulary.values()], np.int64)

    @property
    def words(self) -> list[bytes]:
        """The words that can be predicted, in the order of their numbers."""
        return list(self.ids)

    @property
    def weights(self) -> dict[str, float]:
        return dict.fromkeys(DIRECTIONS, 1.0)

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        """Runs of whole words, as many as fit between the ends of a text."""
        examples = []
        for document in documents:
            tokens = np.concatenate(document.sentences).astype(np.int64)
            examples += [self.example(run) for run in self._runs(tokens, length - 2)]
        return examples

    def _runs(self, tokens: np.ndarray, room: int) -> list[np.ndarray]:
        """Pieces of at most `room` tokens, cut where words begin; a longer word is cut too."""
        begins, runs, begin = np.append(np.flatnonzero(tokens < self.continues), len(tokens)), [], 0
        while begin < len(tokens):
            end = int(begins[np.searchsorted(begins, begin + room, side="right") - 1])
            end = end if end > begin else min(begin + room, len(tokens))
            runs.append(tokens[begin:end])
            begin = end
        return runs

    def example(self, run: np.ndarray) -> Example:
        """A run of words between the ends of a text, with the next and previous words as targets."""
        ids = np.array([self.ids.get(word, UNKNOWN) for word in self.split(run, self.continues)], np.int64)
        framed = np.concatenate([[self.start], run, [self.end]])
        begins = np.append(np.flatnonzero(run < self.continues), len(run)) + 1
        if len(run) and run[0] >= self.continues:
            begins = np.insert(begins, 0, 1)
        places, values = np.insert(begins, 0, 0), np.concatenate([[EDGE], ids, [EDGE]])
        targets = {"forward": (places[:-1], values[1:]), "backward": (places[1:], values[:-1])}
        return Example(framed, targets=targets)

    def expected(self, sizes: np.ndarray, length: int) -> np.ndarray:
        """How often each word is a target in one direction, [V], for documents of `sizes` tokens in rows of `length`;
        the end of a text is a target once for each piece that the documents are cut into."""
        counts = self.counts.astype(np.float64)
        counts[EDGE] = np.ceil(sizes / (length - 2)).sum()
        return counts

    def expected_counts(self, splits: Sequence[Split], vocabulary: int, length: int) -> np.ndarray:
        """[V] how often each word is a target, with one added: see `expected`."""
        sizes = np.concatenate([split.units(max(UNIT_TOKENS, length))["tokens"] for split in splits])
        return 1 + self.expected(sizes, length)

    def loss(self, model: Any, batch: Batch) -> dict[str, Loss]:
        """The losses of both directions. Raises UnmaskError for another model than an ELMo."""
        if WORDS not in model.heads:
            raise UnmaskError("Only an ELMo predicts words in both directions: take elmo-tiny.")
        hidden_BTE, losses = model(batch), {}
        for number, name in enumerate(DIRECTIONS):
            target, states = batch.targets[name], model.direction(hidden_BTE, number)
            losses[name] = of_logits(model.logits(WORDS, states, target.places), target.values)
        return losses

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if "loss/forward" not in found:
            return []
        sides = [f"{perplexity(found[f'loss/{side}']):.1f}" for side in DIRECTIONS]
        first = [f"{perplexity(before[f'loss/{side}']):.1f}" for side in DIRECTIONS if f"loss/{side}" in before]
        compared = [f"at the start: {' and '.join(first)}"] if first else []
        if "loss/forward" in baseline:
            compared.append(f"word frequencies alone: {math.exp(baseline['loss/forward']):.1f}")
        more = f" ({'; '.join(compared)})" if compared else ""
        return [f"Held-out words: perplexity {sides[0]} from those before, {sides[1]} from those after{more}."]

    def folder_words(self, tokenizer: Tokenizer) -> Sequence[str]:
        return spelling.spelled(self.words, tokenizer)


@dataclass(frozen=True, kw_only=True)
class BidirectionalLMConfig(ObjectiveConfig):
    """Predict every word from those before it, and from those after it, as ELMo does.

    words  number of words that can be predicted, the most frequent; a folder that a run continues from has its own
    """

    words: int = 8_192

    kind = "bidirectional"
    learned = "words in both directions"
    example = "elmo-tiny"
    objective = BidirectionalLM
    requires = frozenset({"two directions"})
    choices = (("written", "both"),)

    def model_fields(self, tokenizer: Tokenizer) -> dict[str, int]:
        return {**super().model_fields(tokenizer), "continues": spelling.continues(tokenizer)}

    def check_folder(self, model: Model, words: Sequence[str], folder: object) -> None:
        check_words(model, words, folder)

    def check_changes(self, usual: ObjectiveConfig, folder: object) -> None:
        if isinstance(usual, BidirectionalLMConfig) and self.words != usual.words:
            raise UnmaskError(f"--words is for new weights: {folder} has its own list of words; leave it out.")

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        if self.words < 1:
            raise UnmaskError(f"--words is the number of words that can be predicted, at least 1, not {self.words}.")
        first = spelling.continues(tokenizer)
        known = spelling.unspelled(words, tokenizer)
        counts, others = spelling.commonest(splits, first, self.words, known)
        ends = {"start": tokenizer.cls, "end": tokenizer.sep}
        return BidirectionalLM(counts, spelling.words, first, **ends, others=others)


def scorer(words: Sequence[str], tokenizer: Tokenizer) -> BidirectionalLM:
    """The objective with which a folder that predicts these words (`huggingface.Loaded.words`) scores texts."""
    first, ends = spelling.continues(tokenizer), {"start": tokenizer.cls, "end": tokenizer.sep}
    return BidirectionalLM(dict.fromkeys(spelling.unspelled(words, tokenizer), 0), spelling.words, first, **ends)


def likelihoods(model: Model, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
    """For each direction, log p [M] of every word, and whether it is the most likely one, [M]."""
    hidden_BTE, found = model(batch), {}
    for number, name in enumerate(DIRECTIONS):
        target, states = batch.targets[name], model.direction(hidden_BTE, number)
        some = max(1, LOGITS // _outputs(model))
        cut = zip(target.places.split(some), target.values.split(some), strict=True)
        log_p, correct = zip(*(_likelihood(model, states, *part) for part in cut), strict=True)
        found[name] = torch.cat(log_p), torch.cat(correct)
    return found


def _likelihood(model: Model, hidden_BTD: Tensor, places_M: Tensor, values_M: Tensor) -> tuple[Tensor, Tensor]:
    log_p_MV = model.answer(WORDS, hidden_BTD, places_M).float().log_softmax(-1)
    log_p_M = log_p_MV.gather(-1, values_M[:, None]).squeeze(-1)
    return log_p_M, log_p_M.detach() >= log_p_MV.detach().amax(-1)


def check_words(model: Model, words: Sequence[str], owner: object) -> None:
    """Raises UnmaskError about `owner` where the number of words is not that of the model's outputs."""
    if WORDS in model.heads and len(words) + EDGE + 1 != _outputs(model):
        raise UnmaskError(
            f"{owner} has no words.txt of its own, the list of the words that it predicts: take the files of one run, "
            "or start from new weights."
        )


def _outputs(model: Model) -> int:
    return int(next(reversed(list(model.heads[WORDS].parameters()))).shape[0])
