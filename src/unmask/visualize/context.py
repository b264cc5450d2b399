"""One word in several sentences: where its hidden states lie, layer by layer, and how far context draws them apart.

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
    """One word as it stands in several sentences: where its hidden states lie, and the cosines between them.

    layer  0 is what goes into the first block, 1 … L what its blocks say; -1 is the last

    A word of several pieces is the mean of them; it is found as whole words find each other, in small letters where the
    model reads no others. "spread" is 1 less the mean cosine between occurrences: 0 where a word has one vector
    whatever stands around it (1 - the self-similarity of Ethayarajh 2019); "spreads" are those after each layer from 0.
    Raises UnmaskError for fewer than two sentences with the word, and for a word that leaves no token; sentences
    without it are listed under "without".
    """
    if not word.strip():
        raise UnmaskError("Which word? Name one that stands in the sentences.")
    letters = re.compile(rf"(?<!\w){re.escape(word.strip())}(?!\w)", 0 if tokenizer.cased else re.IGNORECASE)
    found: list[np.ndarray] = []
    within: list[Data] = []
    without: list[str] = []
    for sentence in sentences:
        match = letters.search(sentence)
        if match is None:
            without.append(sentence)
            continue
        places = _places(tokenizer, sentence, *match.span())
        if not places:
            raise UnmaskError(f"The model reads no token of {word!r}: take another word.")
        states_LTD = _states(model, read(model, tokenizer, sentence).batch)
        if not -len(states_LTD) <= layer < len(states_LTD):
            L = len(states_LTD) - 1
            raise UnmaskError(f"There is no layer {layer}: the model has {L}, and 0 stands before them.")
        found.append(states_LTD[:, places].mean(1))
        within.append({"sentence": sentence, "begin": match.start(), "end": match.end()})
    if len(found) < 2:
        raise UnmaskError(f"'{word}' stands in {len(found)} of the sentences; give two or more that have it.")
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


def _places(tokenizer: Tokenizer, sentence: str, begin: int, end: int) -> list[int]:
    """Places, in what the model reads, of the tokens of some characters of a sentence."""
    encoding = tokenizer.encode(sentence)
    tokens, _ = tokenizer.join(encoding.ids)
    T = len(encoding)
    before = next(i for i in range(len(tokens) - T + 1) if np.array_equal(tokens[i : i + T], encoding.ids))
    covers = (encoding.offsets[:, 0] < end) & (encoding.offsets[:, 1] > begin)
    return (before + np.flatnonzero(covers)).tolist()


@torch.no_grad()
def _states(model: Model, batch: Batch) -> np.ndarray:
    """What goes into the first layer and what comes out of each, [L + 1, T, D]; of words that are spelled, the state of
    a word at its first character and zeros at the others, so that the mean of some characters points where the mean of
    their words does. Raises UnmaskError for a model whose layers are no blocks."""
    return np.stack([state[0].float().cpu().numpy() for state in twin(model).hidden_states(batch)])


def _cosines(states_ND: np.ndarray) -> np.ndarray:
    lengths_N1 = np.linalg.norm(states_ND, axis=1, keepdims=True)
    unit_ND = states_ND / np.where(lengths_N1 > 0, lengths_N1, 1)
    cosines_NN: np.ndarray = unit_ND @ unit_ND.T
    return cosines_NN


def _spread(cosines_NN: np.ndarray) -> float:
    spread = float(1 - cosines_NN[~np.eye(len(cosines_NN), dtype=bool)].mean())
    return spread if spread > 1e-6 else 0.0  # vectors that are alike but for the last digits
