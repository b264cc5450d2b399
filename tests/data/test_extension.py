"""Fertility by hand and by `tokenizers`; new pieces by exhaustive search, and their ids in `transformers`."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from unmask.data.text import extension, fertility
from unmask.data.text.extension import LongestMatch, extended, learn_pieces, torn_before
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.tokenizer_files import wordpiece
from unmask.errors import UnmaskError

transformers = pytest.importorskip("transformers")

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GENERAL = ["the cat and the dog sat on the mat in the house", "a small house near the old road", "did it rain"] * 3
DOMAIN = [
    "the myocardial infarction was preceded by myocarditis and tachycardia",
    "tachycardia and bradycardia respond to cardioversion; myocardial ischaemia does not",
    "cardioversion of the myocardium, then cardiomyopathy and pericarditis",
] * 3


def of(*pieces: str, **options: bool) -> Tokenizer:
    """A WordPiece tokenizer with exactly these pieces behind the special ones."""
    normalizer = normalizers.BertNormalizer(**{"strip_accents": False, "lowercase": True} | options)
    return Tokenizer.of(wordpiece({piece: i for i, piece in enumerate([*SPECIALS, *pieces])}, normalizer))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(
        GENERAL + ["abcdefghijklmnopqrstuvwxyz a b c d e f g h i j k l m n o p q r s t u v w x y z"] * 2, 120
    )


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    raw.train_from_iterator(GENERAL, trainer)
    return Tokenizer.of(raw)


def pieces_in_all(tokenizer: Tokenizer, texts: list[str]) -> int:
    return extension.fertility(tokenizer, texts).pieces


# ------------------------------------------------------------------------------------------------ fertility


def test_fertility_counts_what_a_reader_would():
    tokenizer = of("the", "cat", "##s", "sat", "mat", ".", ",")
    found = extension.fertility(tokenizer, ["The cats, the cat sat. The cats sat!", "the ☃x mats mats mats."])
    assert (found.words, found.pieces, found.whole, found.unknown) == (13, 18, 7, 1)
    assert found.per_word == 18 / 13
    assert found.whole_share == 7 / 13
    assert found.unknown_share == 1 / 18
    assert [(t.word, t.count, t.pieces) for t in found.torn] == [
        ("mats", 3, ("mat", "##s")),
        ("cats", 2, ("cat", "##s")),
    ]
    assert [(t.word, t.count, t.pieces) for t in found.lost] == [("☃x", 1, ("[UNK]",))]
    assert found.to_dict()["torn"][0]["pieces"] == ("mat", "##s")


def test_fertility_is_the_number_of_pieces_of_the_text(tokenizer: Tokenizer):
    ids = [i for text in DOMAIN for i in tokenizer.ids([text.replace(",", " ").replace(";", " ")])[0].tolist()]
    assert pieces_in_all(tokenizer, DOMAIN) == len(ids)


def test_words_of_a_byte_level_vocabulary_are_counted_as_they_stand_in_a_text(byte_level: Tokenizer):
    found = extension.fertility(byte_level, ["The house, the house the snow☃man", " house"])
    assert found.words == 7
    assert found.unknown == 0
    assert {t.word: t.count for t in found.torn}["snow☃man"] == 1
    whole = byte_level.ids([" house"])[0]
    assert len(whole) == 1, "the text of the tokenizer must be such that this is one piece"
    assert "house" not in {t.word for t in found.torn}


def test_a_text_without_words_is_refused(tokenizer: Tokenizer):
    for texts in ([], ["", " -- !? "]):
        with pytest.raises(UnmaskError, match="has no words"):
            extension.fertility(tokenizer, texts)
        with pytest.raises(UnmaskError, match="holds no words"):
            learn_pieces(tokenizer, texts, 5)


def test_the_table_names_what_it_shows(tokenizer: Tokenizer):
    columns = {name: extension.fertility(tokenizer, texts) for name, texts in (("mine", DOMAIN), ("general", GENERAL))}
    lines = fertility.render(columns).splitlines()
    assert lines[0].split() == ["mine", "general"]
    assert lines[2].split()[-2:] == [f"{columns['mine'].per_word:.3f}", f"{columns['general'].per_word:.3f}"]
    assert any("myocardial" in line and "##" in line for line in lines)


# ------------------------------------------------------------------------------------------------ longest match

PIECE = st.text("abc", min_size=1, max_size=4)


@given(st.sets(PIECE, min_size=1), st.sets(PIECE), st.lists(st.text("abcd", min_size=1, max_size=12), max_size=20))
def test_longest_match_is_that_of_tokenizers(begins, follows, words):
    tokenizer = of(*sorted(begins), *sorted("##" + piece for piece in follows))
    match = LongestMatch.of(tokenizer)
    for word in words:
        theirs = [token.value for token in tokenizer.raw.model.tokenize(word)]
        assert (match.pieces(word) or ["[UNK]"]) == theirs


def test_a_word_that_is_too_long_is_unknown():
    match = LongestMatch.of(of("a", "##a"))
    assert match.pieces("a" * 100) is not None
    assert match.pieces("a" * 101) is None


# ------------------------------------------------------------------------------------------------ learning


def every_run(tokenizer: Tokenizer, texts: list[str]) -> set[str]:
    """All runs of at least two pieces inside words."""
    found = set()
    for word in fertility.count_words(tokenizer, texts):
        pieces = tokenizer.pieces(tokenizer.ids([word])[0])
        for i in range(len(pieces)):
            for j in range(i + 2, len(pieces) + 1):
                joined = "".join(piece.removeprefix("##") for piece in pieces[i:j])
                found.add(("##" if i else "") + joined)
    return found


def test_each_new_piece_is_the_one_that_saves_most(tokenizer: Tokenizer):
    """Against the exhaustive search with the real tokenizer, one piece after the other."""
    texts = ["tachycardia, bradycardia, cardioversion and myocardia"] * 2
    words = fertility.count_words(tokenizer, texts)
    candidates, known = every_run(tokenizer, texts), tokenizer
    for piece in learn_pieces(tokenizer, texts, 4, least=2):
        costs = {other: fertility.of_words(extended(known, [other]), words, top=0).pieces for other in candidates}
        assert piece == min(costs, key=lambda other: (costs[other], other))
        known = extended(known, [piece])
        candidates.discard(piece)


def test_shared_stems_go_before_words_that_are_rarer(tokenizer: Tokenizer):
    texts = [f"cardio{end}" for end in ("alpha", "beta", "gamma", "delta")] * 2
    assert learn_pieces(tokenizer, texts, 1, least=2) == ["cardio"]


def test_every_new_piece_is_used_and_each_saves_less_than_the_one_before(tokenizer: Tokenizer):
    new = learn_pieces(tokenizer, DOMAIN, 100, least=3)
    assert len(new) == len(set(new)) > 5
    costs = [pieces_in_all(extended(tokenizer, new[:n]), DOMAIN) for n in range(len(new) + 1)]
    savings = [a - b for a, b in pairwise(costs)]
    assert min(savings) >= 3
    assert savings == sorted(savings, reverse=True)
    larger = extended(tokenizer, new)
    used = {i for ids in larger.ids(DOMAIN) for i in ids.tolist()}
    last = set(range(tokenizer.size, larger.size))
    assert len(last - used) <= len(last) // 4  # one that a later, longer one took over


def test_what_is_learned_does_not_depend_on_the_order_of_the_texts(tokenizer: Tokenizer):
    shuffled = DOMAIN + GENERAL
    random.Random(0).shuffle(shuffled)
    assert learn_pieces(tokenizer, shuffled, 30, least=2) == learn_pieces(tokenizer, DOMAIN + GENERAL, 30, least=2)


def test_rare_words_and_numbers_are_left_as_they_are(tokenizer: Tokenizer):
    texts = ["zyxzyx"] + ["12345 67890"] * 10
    assert learn_pieces(tokenizer, texts, 10) == []


def test_no_piece_makes_a_known_word_unknown():
    tokenizer = of("ab", "##x", "##xq")
    texts = ["abx"] * 10 + ["abxq"] * 2
    assert tokenizer.pieces(tokenizer.ids(["abxq"])[0]) == ["ab", "##xq"]
    assert tokenizer.unknown in extended(tokenizer, ["abx"]).ids(["abxq"])[0].tolist()
    assert "abx" not in learn_pieces(tokenizer, texts, 5, least=3)
    assert learn_pieces(tokenizer, ["abx"] * 10, 5, least=3) == ["abx"]


def test_unknown_words_become_known_by_their_missing_letter_or_whole():
    tokenizer = of(*"abcdefgh", *(f"##{letter}" for letter in "abcdefgh"))
    texts = [f"é{end}" for end in ("ab", "cd", "ef", "gh")] * 3
    assert extension.fertility(tokenizer, texts).unknown == 12
    new = learn_pieces(tokenizer, texts, 1)
    assert new == ["é"]
    assert extension.fertility(extended(tokenizer, new), texts).unknown == 0
    assert learn_pieces(tokenizer, ["éß"] * 6, 1) == ["éß"]


# ------------------------------------------------------------------------------------------------ extending


@pytest.fixture(scope="module")
def larger(tokenizer: Tokenizer) -> Tokenizer:
    return extended(tokenizer, learn_pieces(tokenizer, DOMAIN, 40, least=3))


TEXTS = [
    *DOMAIN,
    "Myocardial, pericardial [MASK] TACHYCARDIA!",
    "xcardiox myocardi ##tachycardia tachy-cardia 심근경색",
    "",
]


def random_texts(count: int) -> list[str]:
    rng = random.Random(1)
    stems = " ".join(DOMAIN).split()
    return [
        " ".join(
            "".join(word[rng.randrange(len(word)) :] for word in rng.sample(stems, rng.randint(1, 3)))
            for _ in range(rng.randint(1, 8))
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("read", ["tokenizer.json", "vocab.txt"])
def test_ids_are_those_of_transformers_after_the_extension(tokenizer, larger, read, tmp_path: Path):
    larger.save(tmp_path)
    if read == "vocab.txt":
        (tmp_path / "tokenizer.json").unlink()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert (
        len(theirs)
        == ours.size
        == larger.size
        == tokenizer.size + len(larger.pieces(range(tokenizer.size, larger.size)))
    )
    for text in [*TEXTS, *random_texts(200)]:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert larger.encode(text).ids.tolist() == ours.encode(text).ids.tolist() == expected, text


def test_vocab_txt_and_tokenizer_json_agree(larger: Tokenizer, tmp_path: Path):
    larger.save(tmp_path)
    lines = (tmp_path / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert {piece: i for i, piece in enumerate(lines)} == vocabulary


def test_what_was_known_keeps_its_id_and_only_words_with_new_pieces_change(tokenizer: Tokenizer, larger: Tokenizer):
    assert larger.pieces(range(tokenizer.size)) == tokenizer.pieces(range(tokenizer.size))
    assert (larger.cls, larger.sep, larger.mask, larger.specials) == (
        tokenizer.cls,
        tokenizer.sep,
        tokenizer.mask,
        tokenizer.specials,
    )
    assert larger.fingerprint != tokenizer.fingerprint
    changed = 0
    for text in [*TEXTS, *random_texts(100), *GENERAL]:
        before, after = tokenizer.ids([text])[0].tolist(), larger.ids([text])[0].tolist()
        assert (before == after) == (max(after, default=0) < tokenizer.size), text
        changed += before != after
    assert changed > 50


def test_a_new_piece_can_change_where_other_words_are_torn():
    tokenizer = of("un", "##able", "##ably", "##bl", "##a", "##y", "##e", "##b", "##l")
    after = extended(tokenizer, ["una"])
    assert tokenizer.pieces(tokenizer.ids(["unably"])[0]) == ["un", "##ably"]
    assert after.pieces(after.ids(["unably"])[0]) == ["una", "##bl", "##y"]


def test_unusual_special_tokens_keep_their_roles(tmp_path: Path):
    vocabulary = {name: i for i, name in enumerate(["<none>", "<?>", "<begin>", "<end>", "<hidden>", "cat", "##s"])}
    raw = wordpiece(vocabulary, normalizers.BertNormalizer(), "<?>")
    roles = {"pad": "<none>", "unk": "<?>", "cls": "<begin>", "sep": "<end>", "mask": "<hidden>"}
    larger = extended(Tokenizer.of(raw, roles), ["cats"])
    assert (larger.pad, larger.unknown, larger.cls, larger.sep, larger.mask) == (0, 1, 2, 3, 4)
    assert larger.ids(["cats"])[0].tolist() == [7]


def test_entries_are_made_of_what_they_were_torn_into(tokenizer: Tokenizer):
    tokenizer = of("card", "##io", "##my", "##o", "##card", "##i")
    assert [tokenizer.pieces(ids) for ids in torn_before(tokenizer, ["cardio", "##cardiomyo", "##é", "myo"])] == [
        ["card", "##io"],
        ["##card", "##io", "##my", "##o"],
        ["[UNK]"],
        ["[UNK]"],
    ]


@pytest.mark.parametrize("piece", ["the", "twice", "", "two words", "[MASK]"])
def test_what_is_no_new_piece_is_refused(tokenizer: Tokenizer, piece: str):
    with pytest.raises(UnmaskError, match=r"cannot be a new piece"):
        extended(tokenizer, ["twice", piece])


def test_byte_level_vocabularies_are_refused_in_one_sentence(byte_level: Tokenizer):
    for attempt in (
        lambda: learn_pieces(byte_level, DOMAIN, 5),
        lambda: extended(byte_level, ["new"]),
        lambda: torn_before(byte_level, ["new"]),
    ):
        with pytest.raises(UnmaskError, match="merges") as caught:
            attempt()
        assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize(("count", "least"), [(0, 1), (-3, 1), (3, 0)])
def test_numbers_below_one_are_refused(tokenizer: Tokenizer, count: int, least: int):
    with pytest.raises(UnmaskError, match="at least 1"):
        learn_pieces(tokenizer, DOMAIN, count, least=least)


def test_a_corpus_is_encoded_with_the_larger_vocabulary(larger: Tokenizer, tmp_path: Path):
    from unmask.data.text import corpus
    from unmask.data.text.reading import TextDocument

    larger.save(tmp_path / "tokenizer")
    documents = [TextDocument(f"{text} {i}.", str(i)) for i, text in enumerate(DOMAIN)]
    built = corpus.build(documents, tmp_path / "corpus", tokenizer=Tokenizer.load(tmp_path / "tokenizer"))
    assert built.tokenizer.fingerprint == larger.fingerprint
