"""Tokenizers that spell every word, one token for each character, and the most frequent words of a spelled corpus.

Shapes: T tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from unmask.data.text import tokenizer_files, whole_words
from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import PREFIX, SPECIALS
from unmask.errors import UnmaskError


def train(
    texts: Iterable[str],
    size: int = 8_192,
    *,
    cased: bool = False,
    strip_accents: bool = False,
    byte_budget: int = 200_000_000,
) -> Tokenizer:
    """Train a tokenizer with two tokens for each character of the texts: c at the beginning of a word, ##c inside it.

    texts          read once; at most about `byte_budget` bytes of them are kept in memory
    size           largest number of tokens, which are the most frequent characters. A word with another character is
                   [UNK], and so is one of more than 100 characters
    cased          whether to keep capitals; else texts are lower-cased
    strip_accents  whether `é` becomes `e`; Hangul syllables stay whole in both cases

    [PAD] [UNK] [CLS] [SEP] [MASK] are the ids 0 … 4; tokens that begin a word follow, then those that continue one.
    Words are those of WordPiece: runs between whitespace and punctuation. Raises UnmaskError for texts without words,
    and for a size that is too small.
    """
    most = (size - len(SPECIALS)) // 2
    if most < 1:
        raise UnmaskError(f"A vocabulary of {size} has no room for characters: set at least {len(SPECIALS) + 2}.")
    normalizer, counts = tokenizer_files.bert_normalizer(cased=cased, strip_accents=strip_accents), Counter[str]()
    for word, times in whole_words.count(texts, normalizer, byte_budget).items():
        counts.update({letter: times * word.count(letter) for letter in set(word)})
    if not counts:
        raise UnmaskError("The text holds no words to spell; give it some text.")
    letters = sorted(sorted(counts, key=lambda c: (-counts[c], c))[:most])
    pieces = [*SPECIALS, *letters, *(PREFIX + letter for letter in letters)]
    return Tokenizer.of(tokenizer_files.wordpiece({piece: i for i, piece in enumerate(pieces)}, normalizer))


def continues(tokenizer: Tokenizer) -> int:
    """The first id of the tokens that continue a word, which are the last ids. Raises UnmaskError for a tokenizer that
    does not spell words."""
    flags = tokenizer.continuation
    first = int(flags.argmax())
    if not first or not flags[first:].all() or flags[:first].any():
        raise UnmaskError("An ELMo reads words character by character: build the corpus with --kind spelled.")
    return first


def words(tokens: np.ndarray, continues: int) -> list[bytes]:
    """The words of some tokens [T], each as the bytes of its ids; continuing tokens at the beginning are a word too."""
    begins = np.flatnonzero(tokens < continues)
    if len(tokens) and (not len(begins) or begins[0]):
        begins = np.concatenate([[0], begins])
    ends = np.append(begins[1:], len(tokens))[: len(begins)].tolist()
    ids = tokens.astype(np.int32)
    return [ids[begin:end].tobytes() for begin, end in zip(begins.tolist(), ends, strict=True)]


def spelled(words: Iterable[bytes], tokenizer: Tokenizer) -> list[str]:
    """Words as text: their tokens, separated by spaces, such as `t ##h ##e`."""
    return [" ".join(tokenizer.pieces(np.frombuffer(word, np.int32))) for word in words]


def unspelled(texts: Sequence[str], tokenizer: Tokenizer) -> list[bytes]:
    """The inverse of `spelled`. Raises UnmaskError for a token that the tokenizer does not have."""
    vocabulary, found = tokenizer.vocabulary, []
    for number, text in enumerate(texts, 1):
        pieces = text.split(" ")
        if any(piece not in vocabulary for piece in pieces):
            raise UnmaskError(
                f"Line {number} of words.txt, '{text}', has tokens that the tokenizer lacks: use the files of one run."
            )
        found.append(np.array([vocabulary[piece] for piece in pieces], np.int32).tobytes())
    return found


def commonest(
    splits: Sequence[Split], continues: int, most: int, known: Sequence[bytes] = ()
) -> tuple[dict[bytes, int], int]:
    """The counts of the `most` most frequent words of some splits, the most frequent first, or of the `known` words, in
    the form of `words`; and the count of all other words. Memory grows with the number of different words."""
    counts: Counter[bytes] = Counter()
    for split in splits:
        for document in split:
            counts.update(words(np.concatenate(document.sentences), continues))
    chosen = known or sorted(counts, key=lambda word: (-counts[word], word))[:most]
    found = {word: counts[word] for word in chosen}
    return found, counts.total() - sum(found.values())
