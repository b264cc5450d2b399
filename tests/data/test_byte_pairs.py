"""Byte-level BPE: ids of `transformers`, decoding as the inverse, offsets into the raw string, files both ways."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer, models
from tokenizers import Tokenizer as RawTokenizer

from unmask.cli import main
from unmask.data.text import byte_pairs, tokenizer_files
from unmask.data.text.corpus import Corpus
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import clean
from unmask.errors import UnmaskError
from unmask.objectives import MaskedLMConfig

TEXT = [
    "The film was good, and the plot wasn't bad. ",
    "한국어 문장을 읽는다 한국어",
    "Élève déjà  2 024!\n\nThe end.",
] * 4
PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "tokenizers"  # beside the repository, where it is at all
PUBLISHED_TEXT = {
    "english": "The film wasn't bad, I'd say: we'll see it twice, he's SURE they've seen 'em all. Élève naïve, café!",
    "korean": "아버지가 방에 들어가신다. 영화가 정말 재미있었어요!  ㅋㅋㅋ 2024년 3,000원\n훈민정음 漢字 ｆｕｌｌ",
    "code": "def f(x_BTD: Tensor) -> int:\n    if x[0] != 'a\\n':\n\t\treturn x**2 // 3  # 1e-5\n\n\n    return {}\r\n",
    "whitespace": " a  b   c\t\td \n e\n\n\n\n  f \u00a0g\u3000 \u200bh\x1f\x7f   ",
    "emoji": "🙂 👩‍👩‍👧 👍🏽👍 🇰🇷🇰 ❤️ ☺︎ a🙂b 🙂  🙂",
    "end of text": "one<|endoftext|> two <|endoftext|>",
}
ANY = st.text(st.characters(codec=None), max_size=60)
PIECES = [
    "<|endoftext|>",
    "</s>",
    "the",
    " ",
    "  ",
    "\n",
    ".",
    "한국어",
    "é",
    "e\u0301",
    "İ",
    "'s",
    "中",
    "\ud800",
    "🙂",
]
STRINGS = st.one_of(ANY, st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=20).map("".join))


@cache
def cased() -> Tokenizer:
    return byte_pairs.train(TEXT, 330, cased=True)


def files_of_gpt2(folder, tokenizer: Tokenizer) -> None:
    """vocab.json and merges.txt with the merges of a tokenizer and the one special token of GPT-2."""
    facts = json.loads(tokenizer.raw.to_str())["model"]
    pieces = [piece for piece in facts["vocab"] if piece not in byte_pairs.SPECIALS]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    merges = "".join(f"{a} {b}\n" for a, b in facts["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    files_of_gpt2(folder, cased())
    return folder


@pytest.fixture(scope="module")
def both(gpt2):
    merges = [tuple(line.split(" ")) for line in (gpt2 / "merges.txt").read_text("utf-8").splitlines()[1:]]
    vocabulary = json.loads((gpt2 / "vocab.json").read_text("utf-8"))
    return Tokenizer.load(gpt2), transformers.GPT2Tokenizer(vocab=vocabulary, merges=merges)


@settings(max_examples=200, deadline=None)
@given(STRINGS)
def test_ids_are_those_of_transformers(both, text):
    ours, theirs = both
    text = clean(text)
    assert ours.encode(text).ids.tolist() == theirs(text)["input_ids"]
    plain = text.replace("<|endoftext|>", "")
    assert ours.ids([plain])[0].tolist() == theirs(plain)["input_ids"]


@settings(max_examples=200, deadline=None)
@given(STRINGS)
def test_decoding_is_the_inverse_and_no_text_is_a_special_token(both, text):
    for tokenizer in (both[0], cased()):
        ids = tokenizer.ids([text])[0]
        assert tokenizer.decode(ids) == clean(text)
        assert not set(ids.tolist()) & tokenizer.specials


@settings(max_examples=200, deadline=None)
@given(STRINGS)
def test_offsets_cut_the_raw_string_without_the_space_before_a_word(both, text):
    for tokenizer in (both[0], cased()):
        encoding = tokenizer.encode(text, special=False)
        seen = np.zeros(len(text), dtype=bool)
        for (begin, end), piece in zip(encoding.offsets.tolist(), tokenizer.pieces(encoding.ids), strict=True):
            assert 0 <= begin <= end <= len(text)
            seen[begin:end] = True
            if len(piece) > 1 and piece.startswith("Ġ") and piece[1:].isalpha() and piece[1:].isascii():
                assert text[begin:end] == piece[1:]
        assert all(c.isspace() for c, found in zip(text, seen, strict=True) if not found)


def files_of_roberta(folder, gpt2) -> None:
    """The same merges with the special tokens of RoBERTa."""
    pieces = [*byte_pairs.SPECIALS, *list(json.loads((gpt2 / "vocab.json").read_text("utf-8")))[:-1]]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_bytes((gpt2 / "merges.txt").read_bytes())


@pytest.fixture(scope="module", params=["GPT2Tokenizer", "RobertaTokenizer"])
def opened(request, gpt2, tmp_path_factory):
    """(add_prefix_space, form of the files) -> a tokenizer here and there, of one class of theirs."""
    found = {}
    for spaced in (False, True):
        folder = tmp_path_factory.mktemp("spaced")
        files_of_gpt2(folder, cased()) if request.param == "GPT2Tokenizer" else files_of_roberta(folder, gpt2)
        config = {"tokenizer_class": request.param, "add_prefix_space": spaced}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        theirs = getattr(transformers, request.param).from_pretrained(folder)
        theirs.save_pretrained(folder / "json")
        found[spaced, "pairs"] = (Tokenizer.load(folder), theirs)
        found[spaced, "json"] = (Tokenizer.load(folder / "json"), theirs)
    return request.param, found


@settings(max_examples=100, deadline=None)
@given(STRINGS)
def test_offsets_are_those_of_transformers(opened, text):
    """RoBERTa's as they are; GPT-2's without the space that stands before a word, which is no part of it here."""
    kind, tokenizers = opened
    text = clean(text).replace("<|endoftext|>", "").replace("</s>", "")
    for (spaced, form), (ours, theirs) in tokenizers.items():
        there = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        encoding = ours.encode(text)
        assert encoding.ids.tolist() == there["input_ids"], (spaced, form)
        pieces = ours.pieces(encoding.ids)
        assert len(pieces) == len(there["offset_mapping"])
        for (begin, end), piece, (first, last) in zip(
            encoding.offsets.tolist(), pieces, there["offset_mapping"], strict=True
        ):
            if kind == "RobertaTokenizer":
                assert (begin, end) == (first, last), (spaced, form)
                continue
            assert end == last or (piece == "Ġ" and begin == end), (spaced, form)
            assert begin >= first
            assert not text[first:begin].strip()
            if piece.startswith("Ġ") and not (spaced and first == 0) and end > begin:
                assert not text[begin].isspace(), (spaced, form)


def test_a_space_before_a_text_takes_no_letter_from_its_first_word(opened):
    """Once the offsets began one character late, and an answer lost its first letter."""
    _, tokenizers = opened
    for (spaced, form), (ours, _) in tokenizers.items():
        encoding = ours.encode("film was")
        assert (ours.pieces(encoding.ids)[0] == "Ġfilm") is spaced
        cut = ["film was"[begin:end] for begin, end in encoding.offsets.tolist()]
        assert "".join(cut) == "filmwas", (spaced, form)
        words = ours.encode_words(["film", "was"])
        assert words.offsets[words.words == 0][0, 0] == 0
        assert words.offsets[words.words == 1].tolist() == [[0, 3]]


@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "RobertaTokenizerFast", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("spaced", [False, True])
def test_whether_a_space_stands_before_a_text_is_said_where_transformers_looks(opened, kind, spaced, tmp_path):
    _, tokenizers = opened
    _, theirs = tokenizers[not spaced, "json"]
    theirs.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    values |= {"tokenizer_class": kind, "add_prefix_space": spaced}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    there = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = there("film was", add_special_tokens=False)["input_ids"]
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("film was").ids.tolist() == expected
    assert ours.encode("film was").offsets[0].tolist()[0] == 0


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The vocabulary of GPT-2 as it was published, on both sides."""
    files = {"gpt2-encoder.json.gz": "vocab.json", "gpt2-vocab.bpe.gz": "merges.txt"}
    if not all((PUBLISHED / name).is_file() for name in files):
        pytest.skip("the published files of GPT-2 are not in ../shared/data/tokenizers")
    folder = tmp_path_factory.mktemp("published")
    for theirs, ours in files.items():
        (folder / ours).write_bytes(gzip.decompress((PUBLISHED / theirs).read_bytes()))
    return Tokenizer.load(folder), transformers.GPT2Tokenizer.from_pretrained(folder)


def test_the_published_vocabulary_of_gpt2_is_whole(published):
    ours, theirs = published
    assert ours.size == len(theirs) == 50_257
    assert ours.specials == {theirs.eos_token_id} == {50_256}
    assert ours.ids(["Hello world"])[0].tolist() == [15496, 995]  # as their documentation says


@pytest.mark.parametrize("kind", PUBLISHED_TEXT)
def test_ids_of_the_published_vocabulary_are_those_of_transformers(published, kind):
    ours, theirs = published
    text = PUBLISHED_TEXT[kind]
    assert ours.encode(text).ids.tolist() == theirs(text)["input_ids"]
    for line in (text, *text.splitlines(), *text.split()):
        line = line.replace("<|endoftext|>", "")
        (ids,) = ours.ids([line])
        assert ids.tolist() == theirs(line)["input_ids"]
        assert ours.decode(ids) == line


def test_a_word_has_its_own_pieces_wherever_it_stands():
    encoding = cased().encode_words(["The", "plot", "plot"])
    pieces = cased().pieces(encoding.ids)
    assert "".join(pieces) == "TheĠplotĠplot"
    assert encoding.words.tolist() == sorted(encoding.words.tolist())
    assert encoding.offsets[0].tolist()[0] == 0


def test_what_is_trained_is_framed_like_roberta_and_opens_in_transformers(tmp_path):
    tokenizer = cased()
    assert tokenizer.pieces(range(5)) == list(byte_pairs.SPECIALS)
    assert (tokenizer.cls, tokenizer.pad, tokenizer.sep, tokenizer.unknown, tokenizer.mask) == (0, 1, 2, 3, 4)
    a, b = tokenizer.ids(["The film", "was good"])
    assert tokenizer.join(a)[0].tolist() == [0, *a, 2]
    tokens, segments = tokenizer.join(a, b)
    assert tokens.tolist() == [0, *a, 2, 2, *b, 2]
    assert not segments.any()
    tokenizer.save(tmp_path, length=64)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("The film", "was good")["input_ids"] == tokens.tolist()
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (0, 2, 1)
    assert theirs.decode(theirs("Élève déjà  2")["input_ids"], skip_special_tokens=True) == "Élève déjà  2"


@pytest.mark.parametrize("cased", [True, False])
def test_a_vocabulary_is_that_of_the_trainer_on_whole_texts(cased):
    texts = [*TEXT, *PUBLISHED_TEXT.values()] * 2
    theirs = ByteLevelBPETokenizer(lowercase=not cased)
    names = list(byte_pairs.SPECIALS)
    theirs.train_from_iterator(texts, vocab_size=500, min_frequency=2, special_tokens=names, show_progress=False)
    assert byte_pairs.train(texts, 500, cased=cased).vocabulary == theirs.get_vocab()


def test_the_same_text_gives_the_same_vocabulary_in_every_process():
    code = (
        "from unmask.data.text import byte_pairs; import sys, json;"
        f"print(byte_pairs.train({TEXT!r}, 330, cased=True).fingerprint)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert said == cased().fingerprint


def test_capitals_and_accents_go_where_they_are_not_kept():
    plain = byte_pairs.train(TEXT, 330, strip_accents=True)
    assert plain.decode(plain.ids(["ÉLÈVE 한국어"])[0]) == "eleve 한국어"
    assert not plain.cased
    assert cased().cased


def test_the_one_special_token_of_gpt2_does_everything(both, tmp_path):
    tokenizer, _ = both
    end = tokenizer.size - 1
    assert {tokenizer.pad, tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.unknown} == {end}
    assert tokenizer.specials == {end}
    (ids,) = tokenizer.ids(["The film"])
    assert tokenizer.join(ids)[0].tolist() == ids.tolist()
    with pytest.raises(UnmaskError, match="--written next"):
        MaskedLMConfig().build(tokenizer)
    assert tokenizer.join(ids[:0])[0].tolist() == [end]
    assert tokenizer.join(ids[:0], ids[:0])[0].tolist() == [end]
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode(" film").offsets.tolist() == tokenizer.encode(" film").offsets.tolist()
    assert again.encode(" film").offsets[0, 0] == 1


def test_a_folder_of_transformers_opens_with_the_same_ids(both, tmp_path):
    ours, theirs = both
    theirs.save_pretrained(tmp_path)
    assert Tokenizer.load(tmp_path).ids(TEXT)[0].tolist() == ours.ids(TEXT)[0].tolist()
    assert Tokenizer.load(tmp_path).join(ours.ids(["a"])[0])[0].tolist() == ours.ids(["a"])[0].tolist()


def test_the_vocabulary_of_the_first_gpt_has_an_unknown_piece_for_everything(tmp_path):
    raw = RawTokenizer(models.BPE({"<unk>": 0, "a</w>": 1, "b": 2}, [], unk_token="<unk>", end_of_word_suffix="</w>"))
    raw.add_special_tokens(["<unk>"])
    raw.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.cls == tokenizer.sep == tokenizer.pad == 0
    assert tokenizer.join(np.array([1]))[0].tolist() == [1]


def test_pairs_of_roberta_are_framed_by_its_tokens(gpt2, tmp_path):
    files_of_roberta(tmp_path, gpt2)
    tokenizer = Tokenizer.load(tmp_path)
    (ids,) = tokenizer.ids(["The film"])
    assert ids.tolist() == cased().ids(["The film"])[0].tolist()
    assert tokenizer.join(ids, ids)[0].tolist() == [0, *ids, 2, 2, *ids, 2]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("vocab.json", b"{", "vocab.json is not valid JSON"),
        ("vocab.json", b'{"a": "b"}', "must map pieces to ids"),
        ("vocab.json", b"{}", "must map pieces to ids"),
        ("vocab.json", None, "no file"),
        ("merges.txt", b"#version\nzz yy\n", "line 2, 'zz yy'"),
        ("merges.txt", "Ġ\n".encode(), "line 1"),
        ("merges.txt", b"\xff", "cannot be read"),
    ],
)
def test_damaged_files_are_named(gpt2, tmp_path, name, content, sentence):
    for file in ("vocab.json", "merges.txt"):
        (tmp_path / file).write_bytes((gpt2 / file).read_bytes())
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UnmaskError) as error:
        Tokenizer.load(tmp_path)
    assert sentence in str(error.value)


def test_what_cannot_be_learned_is_said():
    with pytest.raises(UnmaskError, match="261"):
        byte_pairs.train(TEXT, 260)
    with pytest.raises(UnmaskError, match="no words"):
        byte_pairs.train(["", " \n"], 300)


def test_a_vocabulary_without_a_mask_is_still_an_error(tmp_path):
    raw = RawTokenizer(models.BPE({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}, []))
    with pytest.raises(UnmaskError, match="mask"):
        tokenizer_files.complete_roles(raw, {})


def test_the_command_line_builds_a_corpus_of_it(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"{line} {i}" for i, line in enumerate(TEXT)), encoding="utf-8")
    options = {"data": text, "kind": "bpe", "vocabulary-size": 300, "out": tmp_path / "corpus", "heldout": 0.1}
    main(["corpus", "build", "--cased", *[f"--{name}={value}" for name, value in options.items()]])
    assert "unmask pretrain gpt2-mini" in capsys.readouterr().out
    stored = Corpus(tmp_path / "corpus")
    assert stored.manifest["unknown_rate"] == 0
    document = next(iter(stored.split("train")))
    assert stored.tokenizer.decode(np.concatenate(document.sentences)).startswith(("The film", "한국어", "Élève"))
