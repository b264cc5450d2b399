"""Entries on words, pieces of words, and scores of texts."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.tokenizer_files import bert_normalizer, wordpiece
from unmask.data.text.vocabulary import SPECIALS
from unmask.metrics.ngrams import clipped_matches, naive_matches
from unmask.runs.lectures.entry import Shown, entry
from unmask.runs.word_vectors.sampling import keep_probabilities, noise_probabilities
from unmask.train.report import Chart, Series, Table

END = "·"  # of a word
COUNTS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}


def merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """The pieces of a word after one merge of a pair, from left to right."""
    made: list[str] = []
    for piece in word:
        if made and (made[-1], piece) == pair:
            made[-1] += piece
        else:
            made.append(piece)
    return tuple(made)


def merges(counts: dict[str, int], number: int) -> list[tuple[tuple[str, str], int, list[tuple[str, ...]]]]:
    """Byte-pair encoding: each merge joins the most frequent pair of neighbouring pieces, of equal ones the first in
    the text. Returns each pair with its count, and the words after it."""
    words = {word: (*word, END) for word in counts}
    found = []
    for _ in range(number):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        if not pairs:
            break
        pair, count = pairs.most_common(1)[0]
        words = {word: merged(pieces, pair) for word, pieces in words.items()}
        found.append((pair, count, list(words.values())))
    return found


@entry(
    "Byte-pair encoding of low, lower, newest, widest",
    code="runs/lectures/words.py",
    test="lectures/test_word_entries.py",
)
def byte_pairs(quick: bool) -> Shown:
    """The words low, lower, newest and widest occur 5, 2, 6 and 3 times. Each step merges the most frequent pair of
    neighbouring pieces into a new piece (Sennrich et al. 2016, section 3.2). `unmask corpus build --kind bpe` does the
    same on your texts, by a library.
    """
    found = merges(COUNTS, 10)
    rows = [
        (i, " ".join(pair), count, "  ".join(map(" ".join, words))) for i, (pair, count, words) in enumerate(found, 1)
    ]
    whole = next(i for i, (_, _, words) in enumerate(found, 1) if any(len(word) == 1 for word in words))
    return Shown(
        f"The first merges are {', '.join(''.join(pair) for pair, _, _ in found[:5])}; after {whole} merges, the first "
        "word is one piece.",
        [Table(f"Merges ({END} ends a word)", ["step", "pair", "count", "words"], rows)],
    )


@entry("Skip-gram pairs of The quick brown fox", code="runs/lectures/words.py", test="lectures/test_word_entries.py")
def skip_gram_pairs(quick: bool) -> Shown:
    """With a window of two words, each word predicts the two before it and the two after it (Mikolov et al. 2013). The
    training of `unmask pretrain word2vec` shrinks the window at random, which gives near words more weight.
    """
    words = ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]
    rows = [
        (word, ", ".join(f"({word}, {other})" for other in neighbours(words, i, 2))) for i, word in enumerate(words)
    ]
    count = sum(len(neighbours(words, i, 2)) for i in range(len(words)))
    return Shown(f"{len(words)} words give {count} pairs.", [Table("Pairs (word, neighbour)", ["word", "pairs"], rows)])


def neighbours(words: list[str], place: int, window: int) -> list[str]:
    """The words at most `window` places away."""
    return words[max(0, place - window) : place] + words[place + 1 : place + 1 + window]


@entry("Unigram precision of the cat cat on the mat", code="metrics/ngrams.py", test="metrics/test_translation.py")
def unigrams(quick: bool) -> Shown:
    """A candidate word counts only as often as the reference has it (Papineni et al. 2002, section 2.1). Without this
    clipping, a repeated word is right each time. `docs/bleu.md` goes on to n-grams and the brevity penalty.
    """
    reference = ["the", "cat", "is", "on", "the", "mat"]
    rows = []
    for candidate in ("the cat cat on the mat", "the the the the the the", "the cat is on the mat"):
        words = candidate.split()
        counts = (naive_matches(words, [reference], 1), clipped_matches(words, [reference], 1))
        rows.append((candidate, *(f"{count} / {len(words)}" for count in counts)))
    return Shown(
        f"'{rows[0][0]}' has a precision of {rows[0][1]} without clipping and of {rows[0][2]} with it.",
        [Table("Reference: the cat is on the mat", ["candidate", "without clipping", "clipped"], rows)],
    )


@entry("The input of BERT: tokens, segments, positions", code="nn/embedding.py", test="nn/test_nn_embedding.py")
def pair_encoding(quick: bool) -> Shown:
    """The vector of a place is the sum of three: that of its token, that of its segment, A or B, and that of its
    position (Devlin et al. 2019, figure 2).
    """
    pieces = ["my", "dog", "is", "cute", "he", "likes", "play", "##ing"]
    vocabulary = {piece: i for i, piece in enumerate([*SPECIALS, *pieces])}
    tokenizer = Tokenizer.of(wordpiece(vocabulary, bert_normalizer(cased=False, strip_accents=False)))
    first, second = tokenizer.ids(["my dog is cute", "he likes playing"])
    tokens, segments = tokenizer.join(first, second)
    names = tokenizer.pieces(tokens)
    rows = [
        ("input", *names),
        ("token", *(f"E {name}" for name in names)),
        ("segment", *(f"E {'AB'[segment]}" for segment in segments)),
        ("position", *(f"E {place}" for place in range(len(names)))),
    ]
    columns = ["", *map(str, range(len(names)))]
    return Shown(
        f"{len(names)} places: the pieces of two sentences and three special tokens. The three vectors of a place are "
        "added.",
        [Table("my dog is cute / he likes playing", columns, rows)],
    )


@entry(
    "Frequent words: fewer examples, more noise",
    code="runs/word_vectors/sampling.py",
    test="lectures/test_word_entries.py",
)
def frequent_words(quick: bool) -> Shown:
    """word2vec leaves out occurrences of frequent words at random, and draws negative words from the counts to the
    power of 3/4, which raises rare words (Mikolov et al. 2013b, sections 2.2 and 2.3). The counts are those of Zipf's
    law, 1 / rank.
    """
    counts = np.rint(1e7 / np.arange(1, 10_001)).astype(np.int64)
    frequency, keep = counts / counts.sum(), keep_probabilities(counts, 1e-4)
    noise = {power: noise_probabilities(counts, power) for power in (1.0, 0.75, 0.0)}
    ranks = [1, 10, 100, 1_000, 10_000]
    chosen = [(frequency[r - 1], keep[r - 1], noise[0.75][r - 1]) for r in ranks]
    rows = [
        (rank, *map(float, (f, kept, drawn, drawn / f))) for rank, (f, kept, drawn) in zip(ranks, chosen, strict=True)
    ]
    shown = sorted({round(10 ** (i / 8)) for i in range(33)})
    lines = [Series(f"power {p:g}", [(r, float(x[r - 1])) for r in shown]) for p, x in noise.items()]
    return Shown(
        f"The most frequent word is {frequency[0]:.1%} of the text; {keep[0]:.1%} of its occurrences are kept, and as "
        f"noise it is drawn {rows[0][4]:.2f} times as often as it occurs, the rarest word {rows[-1][4]:.1f} times.",
        [Table("10,000 words by rank", ["rank", "frequency", "kept", "noise", "noise / frequency"], rows)],
        [Chart("Noise distribution by rank", lines, x="rank", log_x=True, log_y=True)],
    )


ENTRIES = (skip_gram_pairs, byte_pairs, pair_encoding, unigrams, frequent_words)
