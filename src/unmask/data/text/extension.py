"""Vocabulary extension: adds to a tokenizer the WordPiece entries that save the most pieces on the text of a domain."""

from __future__ import annotations

import heapq
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from tokenizers import Tokenizer as RawTokenizer

from unmask.data.text.fertility import Fertility, count_words, fertility, is_wordpiece
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

__all__ = ["Fertility", "extended", "fertility", "learn_from_words", "learn_pieces", "torn_before"]

LEAST = 5  # smallest number of uses of an entry in the text: the vector of a rarer one would hardly be trained


def learn_pieces(tokenizer: Tokenizer, texts: Iterable[str], count: int, *, least: int = LEAST) -> list[str]:
    """The new entries, at most `count`, that save the most pieces of the texts, the best first; the same texts always
    give the same entries.

    A candidate is a run of pieces inside a word that occurs at least twice: a whole word, the stem of several words, or
    an ending (with the continuation prefix). Entries are chosen one at a time: the next one saves the most pieces over
    the whole text, given those already chosen; for a tie, it is the first in alphabetical order. The saving is
    measured: every word that contains the candidate is split again by longest match, like WordPiece does. So an entry
    that another one made useless is not chosen. An unknown word counts one piece more than it has characters, and such
    words and their missing characters are candidates too.

    least  smallest number of uses of an entry in the text, and of pieces that it saves

    An entry is rejected if it would make a word of the text unknown, or if it has no letter. The choice is greedy, like
    AVocaDo (Hong et al. 2021, section 3.1), which adds entries until the text is split rarely enough; but it compares
    whole runs, because merges of pairs would leave entries that are never used.

    Raises UnmaskError for a tokenizer that is not WordPiece, texts without words, and numbers below 1.
    """
    check_wordpiece(tokenizer)
    return learn_from_words(tokenizer, count_words(tokenizer, texts), count, least=least)


def learn_from_words(tokenizer: Tokenizer, counts: Mapping[str, int], count: int, *, least: int = LEAST) -> list[str]:
    """`learn_pieces` for words that `count_words` counted."""
    check_wordpiece(tokenizer)
    if count < 1 or least < 1:
        raise UnmaskError(f"The number of new pieces, and of their uses, must be at least 1, not {min(count, least)}.")
    if not counts:
        raise UnmaskError("The text holds no words to learn pieces from; give it some text.")
    return _Search(LongestMatch.of(tokenizer), counts, least).choose(count)


def extended(tokenizer: Tokenizer, pieces: Sequence[str]) -> Tokenizer:
    """A copy of a tokenizer with more WordPiece entries, whose ids continue from its size.

    Other ids do not change. Longest match prefers a new entry wherever it is the longest, so that other words that
    contain one may be split differently than before.

    Raises UnmaskError for a tokenizer that is not WordPiece, and for an entry that is empty, has spaces, exists already
    or is given twice.
    """
    check_wordpiece(tokenizer)
    known = tokenizer.vocabulary
    for i, piece in enumerate(pieces):
        if piece in known or piece in pieces[:i] or not piece or any(map(str.isspace, piece)):
            raise UnmaskError(f"'{piece}' cannot be a new piece: it exists already, or it is empty or has spaces.")
    facts = json.loads(tokenizer.raw.to_str())
    facts["model"]["vocab"] |= {piece: tokenizer.size + i for i, piece in enumerate(pieces)}
    specials = (tokenizer.pad, tokenizer.unknown, tokenizer.cls, tokenizer.sep, tokenizer.mask)
    roles = dict(zip(("pad", "unk", "cls", "sep", "mask"), tokenizer.pieces(specials), strict=True))
    return Tokenizer.of(RawTokenizer.from_str(json.dumps(facts)), roles)


def torn_before(tokenizer: Tokenizer, pieces: Sequence[str]) -> list[list[int]]:
    """Ids of the pieces into which the original tokenizer splits each new entry; an entry with a prefix continues a
    word. An entry that it cannot split gives the unknown token.
    """
    check_wordpiece(tokenizer)
    match = LongestMatch.of(tokenizer)
    found = []
    for piece in pieces:
        torn = match.pieces(piece.removeprefix(match.prefix), continues=piece.startswith(match.prefix))
        found.append([tokenizer.unknown] if torn is None else [_id(tokenizer, p) for p in torn])
    return found


def check_wordpiece(tokenizer: Tokenizer) -> None:
    """Raises UnmaskError for a tokenizer that is not WordPiece."""
    if not is_wordpiece(tokenizer):
        raise UnmaskError(
            "Only WordPiece vocabularies can be extended: a byte-level BPE vocabulary has an ordered list of merges, "
            "and a new piece would need merges before the existing ones, which would change the pieces of known "
            "words; it has no unknown words, so continue pre-training with the vocabulary as it is."
        )


def _id(tokenizer: Tokenizer, piece: str) -> int:
    found = tokenizer.raw.model.token_to_id(piece)
    assert found is not None
    return int(found)


class LongestMatch:
    """Splits words like WordPiece: the longest matching piece, then the longest that continues the word, and so on."""

    def __init__(self, vocabulary: Container[str], prefix: str, most: int, longest: int) -> None:
        """Build from a vocabulary.

        prefix   prefix of pieces that continue a word
        most     largest number of characters of a known word
        longest  number of characters of the longest piece
        """
        self.vocabulary, self.prefix, self.most, self.longest = vocabulary, prefix, most, longest
        self.extra: set[str] = set()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> LongestMatch:
        """The longest match of a WordPiece tokenizer."""
        model = tokenizer.raw.model
        vocabulary = frozenset(tokenizer.raw.get_vocab(with_added_tokens=False))
        longest = max(map(len, vocabulary))
        return cls(vocabulary, model.continuing_subword_prefix, model.max_input_chars_per_word, longest)

    def add(self, piece: str) -> None:
        self.extra.add(piece)
        self.longest = max(self.longest, len(piece))

    def remove(self, piece: str) -> None:
        self.extra.discard(piece)

    def pieces(self, word: str, *, continues: bool = False) -> list[str] | None:
        """Pieces of a word, or of the rest of one if it `continues`; None if the word is unknown."""
        if len(word) > self.most:
            return None
        found: list[str] = []
        begin = 0
        while begin < len(word):
            lead = self.prefix if begin or continues else ""
            for end in range(min(len(word), begin + self.longest), begin, -1):
                piece = lead + word[begin:end]
                if piece in self.vocabulary or piece in self.extra:
                    found.append(piece)
                    begin = end
                    break
            else:
                return None
        return found


INSIDE, FIRST, UNKNOWN = 0, 1, 2  # values of `_Search.marks` for each character of a word


class _Search:
    """The greedy choice of `learn_pieces`."""

    def __init__(self, match: LongestMatch, counts: Mapping[str, int], least: int) -> None:
        self.match, self.least = match, least
        # A word that is a piece stays one when entries are added: only the others can change.
        self.words = sorted(w for w in counts if w not in match.vocabulary and "\n" not in w and len(w) <= match.most)
        self.counts = [counts[word] for word in self.words]
        # A text of all words, one a line, to find the words that contain a candidate; and a mark for each character:
        # the first of a piece, inside a piece, or in an unknown word.
        self.text = "\n" + "\n".join(self.words) + "\n"
        self.starts = list(accumulate((len(word) + 1 for word in self.words), initial=1))
        self.marks = bytearray(len(self.text))
        self.torn: list[list[str] | None] = []
        for i, word in enumerate(self.words):
            self.torn.append(None)
            self._set(i, match.pieces(word))

    def choose(self, count: int) -> list[str]:
        """Entries in the order of the pieces that they save.

        The saving of a candidate shrinks when others are chosen, and hardly ever grows. So only the candidate with the
        largest known saving is measured again, and chosen if it is still the largest (Minoux 1978, "accelerated
        greedy").
        """
        heap = [(-saved, piece) for piece, saved in self._candidates().items() if saved >= self.least]
        heapq.heapify(heap)
        chosen: list[str] = []
        while heap and len(chosen) < count:
            _, piece = heapq.heappop(heap)
            saved, changes = self._measure(piece)
            if saved < self.least:
                continue
            if heap and (-saved, piece) > heap[0]:
                heapq.heappush(heap, (-saved, piece))
                continue
            self.match.add(piece)
            for i, pieces in changes.items():
                self._set(i, pieces)
            chosen.append(piece)
        return chosen

    def _set(self, i: int, pieces: list[str] | None) -> None:
        """Note how a word is torn."""
        self.torn[i] = pieces
        begin, length = self.starts[i], len(self.words[i])
        self.marks[begin : begin + length] = bytes([UNKNOWN if pieces is None else INSIDE]) * length
        for bound in self._bounds(pieces or [])[:-1]:
            self.marks[begin + bound] = FIRST

    def _bounds(self, pieces: Sequence[str]) -> list[int]:
        """Where each piece of a word begins, and the last one ends, in characters of the word."""
        prefix = len(self.match.prefix)
        return list(accumulate((len(p) - (prefix if i else 0) for i, p in enumerate(pieces)), initial=0))

    def _cost(self, i: int) -> int:
        """Pieces of a word; an unknown one costs more than if it were spelled letter by letter."""
        pieces = self.torn[i]
        return len(self.words[i]) + 1 if pieces is None else len(pieces)

    def _candidates(self) -> Counter[str]:
        """Candidate -> pieces that it promises to save."""
        found: Counter[str] = Counter()
        for i, (word, count) in enumerate(zip(self.words, self.counts, strict=True)):
            if count < 2:
                continue
            for begin, end, saved in self._runs(i):
                if any(map(str.isalpha, word[begin:end])):
                    found[(self.match.prefix if begin else "") + word[begin:end]] += count * saved
        return found

    def _runs(self, i: int) -> Iterator[tuple[int, int, int]]:
        """(begin, end, pieces saved at most) of each candidate in a word."""
        word, pieces = self.words[i], self.torn[i]
        if pieces is None:
            yield 0, len(word), self._cost(i) - 1
            for j, letter in enumerate(word):
                if len(word) > 1 and (self.match.prefix if j else "") + letter not in self.match.vocabulary:
                    yield j, j + 1, self._cost(i) - 2
            return
        bounds = self._bounds(pieces)
        for j in range(len(pieces)):
            for k in range(j + 2, len(bounds)):
                yield bounds[j], bounds[k], k - j - 1

    def _measure(self, piece: str) -> tuple[int, dict[int, list[str]]]:
        """The number of pieces that the entry saves, 0 if it is rejected, and the new pieces of each changed word."""
        self.match.add(piece)
        saved = uses = 0
        changes: dict[int, list[str]] = {}
        for i in self._changed_by(piece):
            pieces = self.match.pieces(self.words[i])
            if pieces is not None:
                changes[i] = pieces
                saved += self.counts[i] * (self._cost(i) - len(pieces))
                uses += self.counts[i] * pieces.count(piece)
            elif self.torn[i] is not None:  # no piece matches the rest of the word after the longer match
                uses = 0
                break
        self.match.remove(piece)
        return (saved if uses >= self.least else 0), changes

    def _changed_by(self, piece: str) -> list[int]:
        """Indices of the words that a new entry changes, and of the unknown words that it may change.

        Longest match changes where it now finds the entry: at the first character of a piece that is shorter.
        """
        follows = piece.startswith(self.match.prefix)
        needle = piece.removeprefix(self.match.prefix) if follows else "\n" + piece
        length = len(needle) if follows else len(piece)
        found: dict[int, None] = {}
        hit = self.text.find(needle)
        while hit >= 0:
            at = hit if follows else hit + 1
            within = not follows or self.text[at - 1] != "\n"  # a continuing piece does not begin a word
            if within and (self.marks[at] == UNKNOWN or self._longer(at, length)):
                found[bisect_right(self.starts, at) - 1] = None
            hit = self.text.find(needle, hit + 1)
        return list(found)

    def _longer(self, at: int, length: int) -> bool:
        """Whether a piece begins at a character of the text and is shorter than `length`."""
        return self.marks[at] == FIRST and self.marks.find(FIRST, at + 1, at + length) >= 0
