"""Vocabulary extension: new WordPiece entries that save a domain's text most pieces, added to a tokenizer."""

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

LEAST = 5  # uses in the text that an entry must have: a rarer one would hardly leave the vector that it starts from


def learn_pieces(tokenizer: Tokenizer, texts: Iterable[str], count: int, *, least: int = LEAST) -> list[str]:
    """At most `count` new entries that save the texts most pieces, the best first; the same texts give the same.

    A candidate is a run of pieces inside a word that occurs at least twice: a whole word, the stem that several
    words share, an ending (with the continuation prefix). One is chosen at a time: the candidate that saves most
    pieces over the whole text, among ties the first by its characters, given those chosen before it. What one saves
    is measured, not estimated: every word that contains it is torn again by longest match, the way that WordPiece
    itself will tear it. So an entry that another one made useless is not taken. An unknown word counts as one piece
    more than it has characters: a candidate is also such a word as a whole, and a character that is missing.

    least  times that an entry must be used in the text; it must also save as many pieces

    No entry is taken that would make a word of the text unknown, or that holds no letter. The choice is greedy, as
    AVocaDo's (Hong et al. 2021, section 3.1) adds entries until the text is torn little enough, but it weighs
    whole runs, where the merges of pairs would leave entries behind that are never used.

    Raises UnmaskError for a tokenizer that is not WordPiece, texts without words, and numbers below 1.
    """
    check_wordpiece(tokenizer)
    return learn_from_words(tokenizer, count_words(tokenizer, texts), count, least=least)


def learn_from_words(tokenizer: Tokenizer, counts: Mapping[str, int], count: int, *, least: int = LEAST) -> list[str]:
    """`learn_pieces` on words that `count_words` counted."""
    check_wordpiece(tokenizer)
    if count < 1 or least < 1:
        raise UnmaskError(f"The number of new pieces, and of their uses, must be at least 1, not {min(count, least)}.")
    if not counts:
        raise UnmaskError("The text holds no words to learn pieces from; give it some text.")
    return _Search(LongestMatch.of(tokenizer), counts, least).choose(count)


def extended(tokenizer: Tokenizer, pieces: Sequence[str]) -> Tokenizer:
    """The same tokenizer with more WordPiece entries, whose ids continue from its size.

    The ids of all others stay. Longest match now prefers a new entry wherever it is the longest, so that other words
    that contain one may be torn elsewhere than before.

    Raises UnmaskError for a tokenizer that is not WordPiece, and for an entry that it has already or that is given
    twice.
    """
    check_wordpiece(tokenizer)
    known = tokenizer.vocabulary
    for i, piece in enumerate(pieces):
        if piece in known or piece in pieces[:i] or not piece or any(map(str.isspace, piece)):
            raise UnmaskError(f"'{piece}' cannot be a new piece: it is in the vocabulary already, or is no piece.")
    facts = json.loads(tokenizer.raw.to_str())
    facts["model"]["vocab"] |= {piece: tokenizer.size + i for i, piece in enumerate(pieces)}
    specials = (tokenizer.pad, tokenizer.unknown, tokenizer.cls, tokenizer.sep, tokenizer.mask)
    roles = dict(zip(("pad", "unk", "cls", "sep", "mask"), tokenizer.pieces(specials), strict=True))
    return Tokenizer.of(RawTokenizer.from_str(json.dumps(facts)), roles)


def torn_before(tokenizer: Tokenizer, pieces: Sequence[str]) -> list[list[int]]:
    """Ids of the pieces that each new entry would be torn into without it; an entry with a prefix continues a word.

    The unknown token stands for one that cannot be torn.
    """
    check_wordpiece(tokenizer)
    match = LongestMatch.of(tokenizer)
    found = []
    for piece in pieces:
        torn = match.pieces(piece.removeprefix(match.prefix), continues=piece.startswith(match.prefix))
        found.append([tokenizer.unknown] if torn is None else [_id(tokenizer, p) for p in torn])
    return found


def check_wordpiece(tokenizer: Tokenizer) -> None:
    """Raises UnmaskError for a tokenizer whose vocabulary cannot simply be added to."""
    if not is_wordpiece(tokenizer):
        raise UnmaskError(
            "Only WordPiece vocabularies can be extended: a byte-level BPE vocabulary is built by an ordered list of "
            "merges, in which a new piece is never reached unless merges are added before others, which would change "
            "the pieces of known words; its texts have no unknown words, so continue pre-training with it as it is."
        )


def _id(tokenizer: Tokenizer, piece: str) -> int:
    found = tokenizer.raw.model.token_to_id(piece)
    assert found is not None
    return int(found)


class LongestMatch:
    """How WordPiece tears a word: the longest piece that fits, then the longest that continues it, and so on."""

    def __init__(self, vocabulary: Container[str], prefix: str, most: int, longest: int) -> None:
        """most: characters of a word beyond which it is unknown; longest: characters of the longest piece."""
        self.vocabulary, self.prefix, self.most, self.longest = vocabulary, prefix, most, longest
        self.extra: set[str] = set()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> LongestMatch:
        """The one that a WordPiece tokenizer does."""
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
        """Pieces of a word, or of the rest of one; None where it is unknown."""
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


INSIDE, FIRST, UNKNOWN = 0, 1, 2  # what a character of a word is, in `_Search.marks`


class _Search:
    """The greedy choice of `learn_pieces`."""

    def __init__(self, match: LongestMatch, counts: Mapping[str, int], least: int) -> None:
        self.match, self.least = match, least
        # A word that is a piece stays one, whatever is added: only the others can change.
        self.words = sorted(w for w in counts if w not in match.vocabulary and "\n" not in w and len(w) <= match.most)
        self.counts = [counts[word] for word in self.words]
        # One text of all words, one a line, in which the words that contain a candidate are found, and beside it
        # what is at each character: the first of a piece, the inside of one, or an unknown word.
        self.text = "\n" + "\n".join(self.words) + "\n"
        self.starts = list(accumulate((len(word) + 1 for word in self.words), initial=1))
        self.marks = bytearray(len(self.text))
        self.torn: list[list[str] | None] = []
        for i, word in enumerate(self.words):
            self.torn.append(None)
            self._set(i, match.pieces(word))

    def choose(self, count: int) -> list[str]:
        """Entries in the order of what they save.

        What a candidate saves shrinks as others are chosen, hardly ever grows: so only the one that promises most
        is measured again, and taken where it still leads (Minoux 1978, "accelerated greedy").
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
        """Pieces that the entry saves, and how each word that it changes is torn; 0 where it may not be taken."""
        self.match.add(piece)
        saved = uses = 0
        changes: dict[int, list[str]] = {}
        for i in self._changed_by(piece):
            pieces = self.match.pieces(self.words[i])
            if pieces is not None:
                changes[i] = pieces
                saved += self.counts[i] * (self._cost(i) - len(pieces))
                uses += self.counts[i] * pieces.count(piece)
            elif self.torn[i] is not None:  # what is left behind the longer match fits no piece
                uses = 0
                break
        self.match.remove(piece)
        return (saved if uses >= self.least else 0), changes

    def _changed_by(self, piece: str) -> list[int]:
        """Words that a new entry changes, and unknown ones that it may change.

        Longest match goes on as before up to where it would now find the entry: at the first character of a piece
        that is shorter than it.
        """
        follows = piece.startswith(self.match.prefix)
        needle = piece.removeprefix(self.match.prefix) if follows else "\n" + piece
        length = len(needle) if follows else len(piece)
        found: dict[int, None] = {}
        hit = self.text.find(needle)
        while hit >= 0:
            at = hit if follows else hit + 1
            within = not follows or self.text[at - 1] != "\n"  # what continues a word does not begin one
            if within and (self.marks[at] == UNKNOWN or self._longer(at, length)):
                found[bisect_right(self.starts, at) - 1] = None
            hit = self.text.find(needle, hit + 1)
        return list(found)

    def _longer(self, at: int, length: int) -> bool:
        """Whether a piece begins at a character of the text and ends before one of this length would."""
        return self.marks[at] == FIRST and self.marks.find(FIRST, at + 1, at + length) >= 0
