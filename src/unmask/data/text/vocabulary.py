"""WordPiece vocabularies, trained on text reproducibly: a sample of bounded size, an alphabet, merges."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from unmask.errors import UnmaskError

PREFIX = "##"
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONGEST_WORD = 100  # characters; WordPiece treats a longer word as unknown, and training ignores it
PASSAGE = 1 << 16  # characters; longer texts are sampled in passages of about this length
RUNS = 1 << 19  # different runs of characters that are held, in about 50 MB
JOINED = 1 << 12  # runs, or occurrences of a word, in a text
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

    Merges are chosen by the count of the pair, as in `tokenizers`; pieces that occur once are not kept, so a small text
    gives a smaller vocabulary. The alphabet has the most frequent characters, and at most half of the pieces. Words of
    more than LONGEST_WORD characters, such as encoded files, are ignored.

    Raises UnmaskError if the size is too small, and for texts without words.
    """
    if size < len(SPECIALS) + 4:
        raise UnmaskError(f"A vocabulary of {size} is too small: set at least {len(SPECIALS) + 4} pieces.")
    counts = words_of(sample(texts, byte_budget), normalizer, pre_tokenizer)
    letters = _alphabet(counts, _letters(size))
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
    return _trained(trainer, _repeated(counts))


def words_of(
    passages: Iterable[str], normalizer: normalizers.Normalizer, pre_tokenizer: pre_tokenizers.PreTokenizer
) -> Counter[str]:
    """The count of each word of texts.

    A run of characters between spaces is normalised and cut into words once for all its occurrences, so neither of the
    two may look beyond a space.
    """
    words: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for passage in passages:
        runs.update(passage.split(" "))
        if len(runs) >= RUNS:
            _cut(runs, normalizer, pre_tokenizer, words)
            runs.clear()
    _cut(runs, normalizer, pre_tokenizer, words)
    return words


def _cut(
    runs: Counter[str],
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    words: Counter[str],
) -> None:
    """Add the words of runs to `words`. Runs of the same count are cut together."""
    of_count = defaultdict[int, list[str]](list)
    for run, count in runs.items():
        of_count[count].append(run)
    for count, same in of_count.items():
        for begin in range(0, len(same), JOINED):
            text = normalizer.normalize_str(" ".join(same[begin : begin + JOINED]))
            for word, _ in pre_tokenizer.pre_tokenize_str(text):
                words[word] += count


def _repeated(counts: Mapping[str, int]) -> Iterator[str]:
    """Texts with each word as often as it was counted, without the long ones: the trainer takes no counts."""
    for word, count in counts.items():
        if len(word) <= LONGEST_WORD:
            for begin in range(0, count, JOINED):
                yield f"{word} " * min(JOINED, count - begin)


def without_long_words() -> pre_tokenizers.PreTokenizer:
    """A step after the one that cuts text into words, with or without the space before them: it removes long words."""
    pattern = rf"^(?: [\s\S]{{{LONGEST_WORD + 1},}}|[^ ][\s\S]{{{LONGEST_WORD},}})$"
    return pre_tokenizers.Split(Regex(pattern), "removed")


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


def _alphabet(counts: Mapping[str, int], limit: int) -> list[str]:
    """The `limit` most frequent characters: first those that begin words (`a`), then continuing ones (`##a`)."""
    short = [word for word in counts if len(word) <= LONGEST_WORD]
    letters = set(chain.from_iterable(short))
    if len(letters) > limit:
        found: Counter[str] = Counter()
        for word, count in counts.items():
            for letter in word:
                found[letter] += count
        letters = set(sorted(letters, key=lambda letter: (-found[letter], letter))[:limit])
    continuing = letters & set(chain.from_iterable(word[1:] for word in short))
    return sorted(letters) + sorted(PREFIX + letter for letter in continuing)


def _trained(trainer: trainers.WordPieceTrainer, texts: Iterable[str]) -> dict[str, int]:
    """The vocabulary that a trainer learns from words between spaces."""
    worker = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    worker.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    worker.train_from_iterator(texts, trainer)
    return worker.get_vocab(with_added_tokens=False)
