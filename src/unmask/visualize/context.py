"""One word in several sentences: its hidden states in each layer, and their spread over contexts.

Shapes: T tokens, L layers, D width, N occurrences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.types import Batch
from unmask.visualize.numbers import Data
from unmask.visualize.reading import read, twin
from unmask.visualize.words import projected


def in_context(model: Model, tokenizer: Tokenizer, word: str, sentences: Sequence[str], layer: int = -1) -> Data:
    """The hidden states of one word in several sentences: a projection to the plane, and the cosines between them.

    layer  0 is the input of the first block, 1 … L are the outputs of the blocks; -1 is the last

    The vector of a word is the mean over its tokens. Only whole words match, without regard to case if the tokenizer is
    uncased. "spread" is 1 minus the mean cosine between occurrences (1 minus the self-similarity of Ethayarajh 2019): 0
    if the context does not change the vector. "spreads" has the spread of each layer from 0, "without" the sentences
    without the word. Raises UnmaskError for an empty word, fewer than two sentences with the word, a word without
    tokens, and a layer that does not exist.
    """
    found: list[np.ndarray] = []
    within: list[Data] = []
    without: list[str] = []
    for sentence in sentences:
        states_LD, span = vector_of(model, tokenizer, word, sentence)
        if span is None:
            without.append(sentence)
            continue
        if not -len(states_LD) <= layer < len(states_LD):
            L = len(states_LD) - 1
            raise UnmaskError(f"There is no layer {layer}: the model has the layers 1 to {L}, and 0 is their input.")
        found.append(states_LD)
        within.append({"sentence": sentence, "begin": span[0], "end": span[1]})
    if len(found) < 2:
        raise UnmaskError(f"'{word}' is in {len(found)} of the sentences; give two or more sentences with it.")
    states_LND = np.stack(found, 1)
    cosines_LNN = np.stack([_cosines(states_ND) for states_ND in states_LND])
    spreads = [_spread(cosines_NN) for cosines_NN in cosines_LNN]
    chosen_ND = states_LND[layer]
    points_N2 = projected(chosen_ND)[0] if len(chosen_ND) > 2 else np.array([[-1.0, 0.0], [1.0, 0.0]])
    for one, (x, y) in zip(within, points_N2.tolist(), strict=True):
        one |= {"x": x, "y": y}
    return {
        "word": word,
        "layer": layer % len(states_LND),
        "layers": len(states_LND) - 1,
        "occurrences": within,
        "without": without,
        "cosines": cosines_LNN[layer].tolist(),
        "spread": spreads[layer],
        "spreads": spreads,
    }


def vector_of(
    model: Model, tokenizer: Tokenizer, word: str, sentence: str
) -> tuple[np.ndarray, tuple[int, int] | None]:
    """([L + 1, D] the mean of the states of the tokens of a word in a sentence, its begin and end in characters); None
    for a sentence without the word. Raises UnmaskError for an empty word, and for one without tokens."""
    if not word.strip():
        raise UnmaskError("There is no word: give one that is in the sentences.")
    letters = re.compile(rf"(?<!\w){re.escape(word.strip())}(?!\w)", 0 if tokenizer.cased else re.IGNORECASE)
    match = letters.search(sentence)
    if match is None:
        return np.zeros((0, 0)), None
    places = _places(tokenizer, sentence, *match.span())
    if not places:
        raise UnmaskError(f"The model reads no token of {word!r}: choose another word.")
    states_LTD = states_of(model, read(model, tokenizer, sentence).batch)
    return states_LTD[:, places].mean(1), match.span()


def _places(tokenizer: Tokenizer, sentence: str, begin: int, end: int) -> list[int]:
    """The positions of the tokens of some characters of a sentence, special tokens counted."""
    encoding = tokenizer.encode(sentence)
    tokens, _ = tokenizer.join(encoding.ids)
    T = len(encoding)
    before = next(i for i in range(len(tokens) - T + 1) if np.array_equal(tokens[i : i + T], encoding.ids))
    covers = (encoding.offsets[:, 0] < end) & (encoding.offsets[:, 1] > begin)
    return (before + np.flatnonzero(covers)).tolist()


@torch.no_grad()
def states_of(model: Model, batch: Batch) -> np.ndarray:
    """[L + 1, T, D]: the input of the first layer and the output of each. If tokens are characters of words, the state
    of a word is at its first character and zeros are at the others, so that the mean over characters has the direction
    of the mean over words. Raises UnmaskError for a model without a stack of blocks."""
    return np.stack([state[0].float().cpu().numpy() for state in twin(model).hidden_states(batch)])


def _cosines(states_ND: np.ndarray) -> np.ndarray:
    lengths_N1 = np.linalg.norm(states_ND, axis=1, keepdims=True)
    unit_ND = states_ND / np.where(lengths_N1 > 0, lengths_N1, 1)
    cosines_NN: np.ndarray = unit_ND @ unit_ND.T
    return cosines_NN


def _spread(cosines_NN: np.ndarray) -> float:
    spread = float(1 - cosines_NN[~np.eye(len(cosines_NN), dtype=bool)].mean())
    return spread if spread > 1e-6 else 0.0  # vectors that are equal up to rounding
