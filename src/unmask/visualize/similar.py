"""Similar contexts: the words of some texts whose states are nearest to that of a word in a sentence.

Shapes: N words of all texts, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.types import Batch
from unmask.visualize.context import states_of, vector_of
from unmask.visualize.numbers import Data
from unmask.visualize.reading import read

LONGEST = 64  # most tokens of a text that are read


@dataclass(frozen=True)
class Contexts:
    """The words of some texts with their states in one layer.

    texts  the texts that were read
    spans  [N, 3] the number of the text, and begin and end in its characters
    unit   [N, D] float32: the states, scaled to length 1
    """

    texts: list[str]
    spans: np.ndarray
    unit: np.ndarray

    def nearest(self, vector_D: np.ndarray, top: int, without: str = "") -> list[Data]:
        """The nearest words by cosine, exactly, largest first; none of the text `without`, and each text once."""
        cosines_N = self.unit @ (vector_D / (np.linalg.norm(vector_D) or 1))
        found, seen = list[Data](), {without}
        for i in np.argsort(-cosines_N, kind="stable").tolist():
            number, begin, end = self.spans[i].tolist()
            if (text := self.texts[number]) not in seen:
                seen.add(text)
                found.append({"text": text, "begin": begin, "end": end, "cosine": float(cosines_N[i])})
            if len(found) == top:
                break
        return found


def contexts(model: Model, tokenizer: Tokenizer, texts: Sequence[str], layer: int) -> Contexts:
    """Read texts, and keep the mean state of the tokens of each word; longer texts than LONGEST tokens are left out.

    Raises UnmaskError for a layer that does not exist, and if there is nothing to read.
    """
    kept, spans, states = list[str](), list[tuple[int, int, int]](), list[np.ndarray]()
    for text in dict.fromkeys(texts):
        encoding = tokenizer.encode(text)
        if not 0 < len(encoding) <= min(LONGEST, (model.positions or LONGEST) - 2):
            continue
        reading = read(model, tokenizer, text)
        states_TD = layer_of(model, reading.batch, layer)
        words_T = np.array(reading.words)
        own = encoding.words.astype(int)
        for word in sorted({*own[own >= 0].tolist()}):
            offsets = encoding.offsets[own == word]
            spans.append((len(kept), int(offsets[:, 0].min()), int(offsets[:, 1].max())))
            states.append(states_TD[words_T == word].mean(0))
        kept.append(text)
    if not states:
        raise UnmaskError("There are no texts to search: give a corpus, one text a line.")
    matrix_ND = np.stack(states)
    lengths_N1 = np.linalg.norm(matrix_ND, axis=1, keepdims=True)
    return Contexts(kept, np.array(spans), matrix_ND / np.where(lengths_N1 > 0, lengths_N1, 1))


def similar(
    model: Model, tokenizer: Tokenizer, word: str, sentence: str, there: Contexts, layer: int, top: int = 20
) -> Data:
    """The words of `there` that are nearest to a word in a sentence. Raises UnmaskError if the sentence lacks it."""
    states_LD, place = vector_of(model, tokenizer, word, sentence)
    if place is None:
        raise UnmaskError(f"'{word}' is not in the sentence: give a word that is.")
    begin, end = place
    return {
        "word": word, "sentence": sentence, "begin": begin, "end": end, "layer": layer % len(states_LD),
        "layers": len(states_LD) - 1, "searched": len(there.spans), "texts": len(there.texts),
        "nearest": there.nearest(states_LD[layer], top, without=sentence),
    }  # fmt: skip


def layer_of(model: Model, batch: Batch, layer: int) -> np.ndarray:
    """[T, D]: the states of one layer. Raises UnmaskError for a layer that does not exist."""
    states_LTD = states_of(model, batch)
    if not -len(states_LTD) <= layer < len(states_LTD):
        raise UnmaskError(f"There is no layer {layer}: the model has the layers 1 to {len(states_LTD) - 1}.")
    found: np.ndarray = states_LTD[layer]
    return found
