"""Language models for the search for transcripts: n-grams from an ARPA file or from sentences, or a model folder."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from unmask.data.files.lines import lines
from unmask.errors import UnmaskError
from unmask.generate.ngrams import NGrams, counted
from unmask.generate.prefixes import LanguageModel
from unmask.serve.likelihood import Scorer

ARPA = (".arpa", ".arpa.gz", ".arpa.zst", ".lm")
KEPT = 1 << 16  # beginnings of texts whose scores stay in memory


def language_model(place: Path | str) -> LanguageModel:
    """log p of words, by a language model of this file or folder.

    place  an ARPA file; a text file with a sentence in each line, whose words are counted (`generate.ngrams`); or a
           folder with a model that predicts the next token

    Raises UnmaskError for a place that is none of these.
    """
    place = Path(place)
    if place.is_dir():
        return _of_folder(place)
    if not place.is_file():
        raise UnmaskError(f"There is no language model {place}: give an ARPA file, a file of sentences, or a folder.")
    if place.name.endswith(ARPA):
        return NGrams.read(lines(place), place)
    return counted(line.split() for _, line in lines(place))


def _of_folder(folder: Path) -> LanguageModel:
    """By the tokens of the words, which one space separates: the sum of log p of each token, and of the end."""
    scoring = Scorer(folder).language_model()  # raises UnmaskError for another kind of model

    @lru_cache(KEPT)
    def log_p(text: str) -> tuple[float, float]:
        """Of a text as the beginning of one, and as all of it."""
        [found] = scoring.log_probabilities([text])
        whole = float(found.sum(dtype=np.float64))
        return whole - float(found[-1]), whole

    return lambda words, ends: log_p(" ".join(words))[ends] if words or ends else 0.0
