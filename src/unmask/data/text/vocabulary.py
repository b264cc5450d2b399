"""WordPiece vocabularies, trained on text reproducibly: a sample of bounded size, an alphabet, merges."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from unmask.data.text.runs import BETWEEN_SPACES, words_of
from unmask.errors import UnmaskError

PREFIX = "##"
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONGEST_WORD = 100  # characters; WordPiece treats a longer word as unknown, and training ignores it
PASSAGE = 1 << 16  # characters; longer texts are sampled in passages of about this length
REPEATED = 1 << 12  # occurrences of a word in a text
_LARGEST = 1 << 64


def learn(
    texts: Iterable[str],
    size: int,
    *,
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    byte_budget: int,
) -> dict[str, int]:
    """Piece -> id of a WordPiece vocabulary of at most `size` pieces, special tokens first.

    The normaliser and the cut into words must not look beyond a space.

    Merges are chosen by the count of the pair, as in `tokenizers`; pieces that occur once are not kept, so a small text
    gives a smaller vocabulary. The alphabet has the most frequent characters, and at most half of the pieces. Words of
    more than LONGEST_WORD characters, such as encoded files, are ignored.

    Raises UnmaskError if the size is too small, and for texts without words.
    """
    if size < len(SPECIALS) + 4:
        raise UnmaskError(f"A vocabulary of {size} is too small: set at least {len(SPECIALS) + 4} pieces.")

    def cut(run: str) -> list[str]:
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(run))]

    counts = words_of(sample(texts, byte_budget), BETWEEN_SPACES, cut)
    short = {word: count for word, count in counts.items() if len(word) <= LONGEST_WORD}
    letters = _alphabet(counts, short, _letters(size))
    if not letters:
        raise UnmaskError("The text holds no words to learn a vocabulary from; give it some text.")
    # The trainer numbers unseen '##' letters in the order of a randomly seeded hash map, and breaks ties between
    # pairs by these numbers. Naming all letters beforehand makes its result a function of the text alone.
    single = [letter for letter in letters if len(letter) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=[*SPECIALS, *letters],
        limit_alphabet=len(single),
        initial_alphabet=single,
        continuing_subword_prefix=PREFIX,
    )
    worker = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    worker.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    worker.train_from_iterator(repeated(short), trainer)
    return worker.get_vocab(with_added_tokens=False)


def repeated(counts: Mapping[str, int]) -> Iterator[str]:
    """Texts with each word as often as it was counted, between spaces: a trainer takes no counts."""
    for word, count in counts.items():
        for begin in range(0, count, REPEATED):
            yield f"{word} " * min(REPEATED, count - begin)


def sample(texts: Iterable[str], byte_budget: int) -> list[str]:
    """A sample of passages of the texts, in order, of at most about `byte_budget` bytes of UTF-8.

    A passage is kept if the 64-bit BLAKE2b hash of its number and content is below a rate, which starts at 1 and halves
    whenever the kept passages exceed the budget. So the sample is spread evenly over the whole input and is
    deterministic, and the memory is bounded by the budget.
    """
    rate = _LARGEST
    kept: list[tuple[int, int, str]] = []
    held = 0
    for index, passage in enumerate(passage for text in texts for passage in _passages(text)):
        content = passage.encode("utf-8", "replace")
        key = int.from_bytes(hashlib.blake2b(b"%d\0" % index + content, digest_size=8).digest(), "big")
        if key >= rate:
            continue
        kept.append((key, len(content), passage))
        held += len(content)
        while held > byte_budget and len(kept) > 1:
            rate //= 2
            kept = [entry for entry in kept if entry[0] < rate] or [min(kept)]
            held = sum(entry[1] for entry in kept)
    return [passage for _, _, passage in kept]


def _passages(text: str) -> Iterator[str]:
    """The text in parts of at most PASSAGE characters, cut at whitespace if there is any."""
    begin = 0
    while len(text) - begin > PASSAGE:
        end = max(text.rfind(" ", begin + 1, begin + PASSAGE), text.rfind("\n", begin + 1, begin + PASSAGE))
        end = end if end > begin else begin + PASSAGE
        yield clean(text[begin:end])
        begin = end
    yield clean(text[begin:])


def clean(text: str) -> str:
    """The text with each lone surrogate, which UTF-8 cannot encode, replaced by U+FFFD; the length stays the same."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _letters(size: int) -> int:
    """The largest number of characters of the alphabet; each takes up to two pieces (`a` and `##a`)."""
    return max(size // 4, min(100, (size - len(SPECIALS)) // 2))


def _alphabet(counts: Mapping[str, int], short: Collection[str], limit: int) -> list[str]:
    """The `limit` most frequent characters: first those that begin words (`a`), then continuing ones (`##a`).

    counts  of all words
    short   those without the long words, whose characters have no pieces
    """
    letters = set(chain.from_iterable(short))
    if len(letters) > limit:
        found: Counter[str] = Counter()
        for word, count in counts.items():
            for letter in word:
                found[letter] += count
        letters = set(sorted(letters, key=lambda letter: (-found[letter], letter))[:limit])
    continuing = letters & set(chain.from_iterable(word[1:] for word in short))
    return sorted(letters) + sorted(PREFIX + letter for letter in continuing)
