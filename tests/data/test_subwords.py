"""Vocabularies of written sequences against SentencePiece and MarianTokenizer; files, damage, odd text, properties."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unmask.data.text.splitters import JOINER, PLAIN, Words
from unmask.data.text.subwords import KINDS, LEARNED
from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
PROSE = [line for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n") if line.strip()]
KOREAN = ["이 영화는 정말 재미있었다.", "배우들의 연기가 최고였고 음악도 좋았다.", "다시 보고 싶은 영화 한국 영화"] * 4
FRENCH = ["Élève où l'été naïf garçon coûte déjà, ça va ?", "Où est l'hôpital ?"] * 4
CORPUS = PROSE + KOREAN + FRENCH
TEXTS = [
    "The encoder's output, e.g. hidden_states[0], isn't café-like.",
    "  spaces\tand\r\nline  ends \u00a0 here ",
    "이 영화는 정말 재미있었다! 한국어와 English mixed, 中文字 too.",
    "ELEVE élève Ａｂｃ ﬁne İstanbul ẞ",
    "e\u0301le\u0300ve 한글",
    "שלום עולם مرحبا بالعالم हिन्दी",
    "nul\x00bom\ufeffzero\u200bwidth \ufffd replacement",
    "emoji 👩‍👩‍👧 and 👍🏽 done",
    f"literal ▁ and {JOINER} and ▅",
    ">>fra<< not a tag here, a << b >> c",
    "a" * 300,
    "",
    " ",
]


def train(kind: str, size: int = 400, **options: object) -> Tokenizer:
    return train_subwords(CORPUS, size, kind, **options)


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train(kind) for kind in KINDS}


def ids_of(tokenizer: Tokenizer, text: str) -> np.ndarray:
    return tokenizer.ids([text])[0]


def unknowns(tokenizer: Tokenizer, texts: list[str]) -> Counter[str]:
    """What the vocabulary lacks: words where it has words, else characters."""
    found: Counter[str] = Counter()
    for text in texts:
        for i, (piece, _, _) in zip(ids_of(tokenizer, text), tokenizer.splitter.locate(text), strict=True):
            if i == tokenizer.unknown:
                found.update([piece.strip(JOINER)] if tokenizer.splitter.kind == "word" else piece.replace("▁", ""))
    return found


def marian(folder: Path) -> transformers.MarianTokenizer:
    with pytest.warns(UserWarning, match="sacremoses"):  # a punctuation normaliser that encoding does not use
        return transformers.MarianTokenizer.from_pretrained(folder)


def assert_equal(subwords: Tokenizer, other: transformers.MarianTokenizer, texts: list[str]) -> None:
    """Ids and text of sources and targets, as MarianTokenizer gives them."""
    for text in texts:
        source, target = ids_of(subwords, text), ids_of(subwords.target, text)
        assert [*source, subwords.end] == other(text).input_ids, text
        assert [*target, subwords.end] == other(text_target=text).input_ids, text
        assert subwords.target.decode(target) == other.decode(target.tolist(), skip_special_tokens=True), text


# ------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("kind", KINDS)
def test_the_convention_of_ids(trained, kind):
    subwords = trained[kind]
    assert subwords.pieces([0, 1, subwords.size - 1]) == ["</s>", "<unk>", "<pad>"]
    assert (subwords.end, subwords.unknown, subwords.pad, subwords.start) == (0, 1, subwords.size - 1, subwords.pad)
    assert len(set(subwords.pieces(range(subwords.size)))) == subwords.size == len(subwords) <= 400
    assert subwords.target is subwords


@pytest.mark.parametrize("kind", LEARNED)
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nmt_nfkc_cf", "identity"])
def test_pieces_are_those_of_sentencepiece(kind, normalization, tmp_path):
    (tmp_path / "text").write_text("\n".join(CORPUS), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"),
        model_prefix=str(tmp_path / "its"),
        vocab_size=399,
        model_type=kind,
        normalization_rule_name=normalization,
        character_coverage=1.0,
        minloglevel=2,
    )
    its = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "its.model"))
    ours = train(kind, normalization=normalization)
    named = {its.id_to_piece(i) for i in range(its.get_piece_size())} - {"<s>"}
    # it spends a piece on <s>, we on one more of the text, the least likely
    assert len({*ours.vocabulary} - {"<pad>"} - named) == 1
    assert named <= ours.vocabulary.keys()
    assert ours.size == 400


@pytest.mark.parametrize("kind", KINDS)
def test_training_gives_the_same_every_time(trained, kind):
    again = train(kind)
    assert again.fingerprint == trained[kind].fingerprint
    assert train(kind, 100 if kind in PLAIN else 300).fingerprint != again.fingerprint
    other = "identity" if kind in PLAIN else "nmt_nfkc_cf"
    assert train(kind, normalization=other).fingerprint != again.fingerprint


def test_training_in_another_process_gives_the_same(trained):
    code = "import sys, json; from unmask.data.text import subwords\n"
    code += "texts = json.load(sys.stdin); print(*(subwords.train(texts, 400, k).fingerprint for k in sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *KINDS], input=json.dumps(CORPUS), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == [trained[kind].fingerprint for kind in KINDS]
    assert done.stderr == ""  # the library's own log is silent


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_text_gives_what_it_can(kind):
    subwords = train_subwords(["a rose is a rose is a rose"], 5000, kind)
    assert subwords.size < 60
    assert subwords.decode(ids_of(subwords, "a rose is")) == "a rose is"


@pytest.mark.parametrize("kind", LEARNED)
def test_a_size_that_cannot_hold_the_characters_names_one_that_can(kind):
    with pytest.raises(UnmaskError, match=r"set at least (\d+) pieces") as refusal:
        train_subwords(CORPUS, 20, kind)
    least = int(next(word for word in str(refusal.value).split() if word.isdigit() and int(word) > 20))
    assert train_subwords(CORPUS, least, kind).size == least
    with pytest.raises(UnmaskError, match="at least"):
        train_subwords(CORPUS, least - 1, kind)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "bep"}, "did you mean 'bpe'"),
        ({"size": 3}, "too small"),
        ({"size": 10**12}, "vocabulary of 10{12} pieces"),
        ({"normalization": "nfkd"}, "normalization 'nfkd'"),
        ({"normalization": "nfkd", "kind": "word"}, "normalization 'nfkd'"),
        ({"coverage": 0.5}, "0.98 to 1"),
        ({"coverage": 0.99, "kind": "word"}, "leave them out for 'word'"),
        ({"byte_fallback": True, "kind": "character"}, "leave them out for 'character'"),
        *(({"texts": texts, "kind": kind}, "no words") for texts in ([], ["", " \n"]) for kind in KINDS),
    ],
)
def test_what_cannot_be_trained_is_refused(options, message):
    with pytest.raises(UnmaskError, match=message):
        train_subwords(**{"texts": CORPUS, "size": 400, **options})


def test_a_text_of_control_characters_is_refused_in_a_sentence():
    with pytest.raises(UnmaskError, match="could not learn a vocabulary of 100 pieces"):
        train_subwords(["\x01\x02"], 100)


def test_lines_that_sentencepiece_would_leave_out_are_learned_from():
    reserved = train_subwords(["tab\there ▅ Ω\x00"] * 3 + ["x" * 6000 + " Ж"], 100)
    assert not unknowns(reserved, ["Ω Ж tab here x"])
    assert unknowns(reserved, ["▅"]) == {"▅": 1}


def test_the_cap_on_training_text_is_kept():
    texts = (f"number {i} of many lines" for i in range(100_000))
    subwords = train_subwords(texts, 100, "bpe", byte_budget=20_000)
    assert subwords.decode(ids_of(subwords, "many lines")) == "many lines"


def test_byte_fallback_writes_everything():
    subwords = train("unigram", 700, byte_fallback=True)
    text = "中文字 👍🏽 Ω"
    assert not unknowns(subwords, [text])
    assert subwords.unknown not in ids_of(subwords, text)
    assert subwords.decode(ids_of(subwords, text)) == text
    assert unknowns(train("unigram", 700), [text]) == Counter("中文字👍🏽Ω")


def test_coverage_leaves_rare_characters_out():
    texts = [*(["common words and more of them"] * 500), "ξ"]
    assert unknowns(train_subwords(texts, 60, coverage=0.999), ["common ξ"]) == {"ξ": 1}
    assert not unknowns(train_subwords(texts, 60), ["common ξ"])


# ------------------------------------------------------------------------------------------------ encoding, decoding


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_any_text_becomes_ordinary_ids(trained, kind, text):
    subwords = trained[kind]
    ids = ids_of(subwords, text)
    assert ids.dtype == np.int32
    assert ids.ndim == 1
    assert all(0 <= i < subwords.size and i not in (subwords.end, subwords.pad) for i in ids)
    assert (subwords.unknown in ids) == bool(unknowns(subwords, [text]))
    if subwords.unknown not in ids:
        assert subwords.decode(ids) == subwords.splitter.normalize(text)


@pytest.mark.parametrize("kind", KINDS)
def test_all_at_once_is_one_by_one(trained, kind):
    rows = trained[kind].ids(TEXTS)
    assert len(rows) == len(TEXTS)
    assert all(np.array_equal(row, ids_of(trained[kind], text)) for row, text in zip(rows, TEXTS, strict=True))
    assert trained[kind].ids([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_special_pieces_in_a_text_are_spelled(trained, kind):
    subwords = trained[kind]
    ids = ids_of(subwords, "</s><pad> </s>")
    assert not {subwords.end, subwords.pad} & {*ids}


def test_special_pieces_of_characters_that_are_unknown_are_unknown():
    """SentencePiece gives a run of unknown characters as it stands, and that may be the name of a special piece."""
    subwords = train_subwords(KOREAN, 60)
    assert subwords.splitter.split(["</s>"]) == [["▁", "</s>"]]
    assert ids_of(subwords, "</s>").tolist()[1:] == [subwords.unknown]
    assert unknowns(subwords, ["</s>"]) == Counter("</s>")


def test_a_joiner_in_the_text_is_a_square():
    subwords = train_subwords([f"a{JOINER} b"], 20, "word", normalization="identity")
    assert subwords.splitter.normalize(f"a{JOINER} b") == subwords.decode(ids_of(subwords, f"a{JOINER} b")) == "a■ b"


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_surrogate_is_the_replacement_character(trained, kind):
    broken, replaced = "the \ud800 model", "the \ufffd model"
    assert np.array_equal(ids_of(trained[kind], broken), ids_of(trained[kind], replaced))
    assert trained[kind].splitter.normalize(broken) == trained[kind].splitter.normalize(replaced)
    assert train_subwords([broken] * 3, 40, kind).size > 3


@pytest.mark.parametrize("kind", KINDS)
def test_words_and_places_of_the_pieces_of_a_text(trained, kind):
    subwords = trained[kind]
    for text in TEXTS:
        found = subwords.encode(text)
        pieces = subwords.splitter.split([text])[0]
        assert found.ids.tolist() == ids_of(subwords, text).tolist()
        assert [piece for piece, _, _ in subwords.splitter.locate(text)] == pieces
        begins = [i == 0 or subwords.splitter.begins(piece) for i, piece in enumerate(pieces)]
        assert (np.diff(found.words, prepend=-1) > 0).tolist() == begins
        known = [i for i, begin in enumerate(begins) if not begin and found.ids[i] != subwords.unknown]
        assert all(subwords.continuation[found.ids[known]])
        assert np.all(found.offsets[:, 0] <= found.offsets[:, 1])
        assert np.all(np.diff(found.offsets, axis=0) >= 0)
    assert [i for i in range(subwords.size) if not subwords.continuation[i] and i not in subwords.specials]


PLACES = ["The encoder's  output,\te.g. [0]", "이 영화는 café", "e\u0301le\u0300ve 한글", "a"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", PLACES)
def test_a_piece_stands_where_its_characters_do(trained, kind, text):
    splitter = trained[kind].splitter
    for piece, begin, end in splitter.locate(text):
        bare = piece.strip("▁ " + JOINER)
        assert splitter.normalize(text[begin:end]).strip() == bare, piece


def test_decoding_leaves_special_pieces_out_unless_asked(trained):
    subwords = trained["word"]
    ids = [*ids_of(subwords, "the model"), subwords.unknown, *ids_of(subwords, "the"), subwords.end, subwords.pad]
    assert subwords.decode(ids) == "the model the"
    assert subwords.decode(ids, special=True) == "the model <unk> the </s> <pad>"
    assert subwords.decode(np.array(ids)) == "the model the"
    assert subwords.decode([]) == ""
    assert subwords.decode([*ids, 400]) == "the model the"  # the vocabulary of a model may be filled up
    assert subwords.pieces([400]) == [""]


def test_unknown_words_and_characters_are_counted(trained):
    assert unknowns(trained["word"], ["the zyzzyva, the (zyzzyva)", "quux"]) == {"zyzzyva": 2, "quux": 1}
    for kind in ("unigram", "bpe", "character"):
        assert unknowns(trained[kind], ["the 中文 文 model"]) == {"文": 2, "中": 1}, kind


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ('He said: "well-known".', 'He said ￭: "￭ well ￭-￭ known ￭" ￭.'),
        ("don't (really)?!", "don ￭'￭ t (￭ really ￭) ￭? ￭!"),
        ("a - b -- c ... 3.5 %", "a - b - ￭- c . ￭. ￭. 3 ￭.￭ 5 %"),
        ("이 영화는 정말, 재미있었다.", "이 영화는 정말 ￭, 재미있었다 ￭."),
        ("हिन्दी भाषा।", "हिन्दी भाषा ￭।"),
        ("¿Qué?", "¿￭ Qué ￭?"),
        ("…“x”…", ". ￭. ￭. ￭“￭ x ￭” ￭. ￭. ￭."),
    ],
)
def test_words_and_punctuation(text, pieces):
    assert Words().split([text]) == [pieces.split()]
    assert Words().join(pieces.split()) == Words().normalize(text)


@pytest.mark.parametrize("kind", KINDS)
def test_normalisation_folds_case_and_composes_hangul(kind):
    texts = ["the model 영화 élève"] * 3
    decomposed = "The MODEL 영화 E\u0301LE\u0300VE"
    folded = train_subwords(texts, 60, kind, normalization="nmt_nfkc_cf")
    assert folded.decode(ids_of(folded, decomposed)) == texts[0]
    composed = train_subwords(texts, 60, kind)
    assert composed.decode(ids_of(composed, decomposed.lower())) == texts[0]
    identity = train_subwords(texts, 60, kind, normalization="identity")
    assert identity.unknown in ids_of(identity, decomposed.lower())


LETTERS = sorted(set("".join(CORPUS)) - {JOINER, "\n"})


@pytest.mark.parametrize("kind", ["unigram", "bpe", "character"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from(LETTERS)))
def test_what_the_vocabulary_can_write_comes_back(trained, kind, text):
    subwords = trained[kind]
    ids = ids_of(subwords, text)
    assert subwords.unknown not in ids
    assert subwords.decode(ids) == subwords.splitter.normalize(text)
    assert np.array_equal(ids_of(subwords, text), ids)


@pytest.mark.parametrize("normalization", ["identity", "nmt_nfkc", "nmt_nfkc_cf"])
@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=30))
def test_words_and_characters_of_any_text_come_back(normalization, text):
    for kind, splitter in PLAIN.items():
        if splitter(normalization).normalize(text).strip():
            subwords = train_subwords([text, "x"], 100, kind, normalization=normalization)
            assert subwords.decode(ids_of(subwords, text)) == subwords.splitter.normalize(text)
    assert normalization != "identity" or PLAIN["character"]("identity").normalize(text) == text


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40))
def test_ids_of_any_text_are_in_range(trained, kind, text):
    subwords = trained[kind]
    ids = ids_of(subwords, text)
    assert all(0 < i < subwords.pad for i in ids)
    assert (subwords.unknown in ids) == bool(unknowns(subwords, [text]))
    assert isinstance(subwords.decode(ids), str)


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_folder_brings_back_the_same(trained, kind, tmp_path):
    names = trained[kind].save(tmp_path / "folder", length=64)
    assert sorted(names) == sorted(path.name for path in (tmp_path / "folder").iterdir())
    again = Tokenizer.load(tmp_path / "folder", written=True)
    assert again.fingerprint == trained[kind].fingerprint
    assert again.target is again
    for text in TEXTS:
        assert np.array_equal(ids_of(again, text), ids_of(trained[kind], text))
        assert again.decode(ids_of(again, text)) == trained[kind].decode(ids_of(again, text))


@pytest.mark.parametrize("kind", LEARNED)
@pytest.mark.parametrize("options", [{}, {"normalization": "nmt_nfkc_cf"}, {"byte_fallback": True, "size": 700}])
def test_a_saved_folder_opens_in_transformers(kind, options, tmp_path):
    subwords = train(kind, **options)
    subwords.save(tmp_path, length=64)
    other = marian(tmp_path)
    assert (other.eos_token_id, other.unk_token_id, other.pad_token_id) == (0, 1, subwords.pad)
    assert other.vocab_size == subwords.size
    assert other.model_max_length == 64
    assert_equal(subwords, other, [text for text in TEXTS if not text.startswith(">>")])  # see the test below


def test_a_folder_of_transformers_opens_here(tmp_path):
    """Two models, one vocab.json with languages, as opus-mt-en-mul has: what one model lacks, the other may know."""
    (tmp_path / "raw").mkdir()
    source = train_subwords(PROSE, 300, "unigram")
    target = train_subwords(KOREAN + FRENCH, 150, "bpe")
    (tmp_path / "raw" / "source.spm").write_bytes(source.splitter.model)
    (tmp_path / "raw" / "target.spm").write_bytes(target.splitter.model)
    pieces = ["</s>", "<unk>"]
    pieces += sorted({*source.vocabulary, *target.vocabulary} - {*pieces, "<pad>", "▁the"})
    vocabulary = {piece: i for i, piece in enumerate([*pieces, ">>fra<<", ">>kor<<", "<pad>"])}
    (tmp_path / "raw" / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    marian(tmp_path / "raw").save_pretrained(tmp_path / "saved")

    for folder in ("raw", "saved"):
        subwords, other = Tokenizer.load(tmp_path / folder, written=True), marian(tmp_path / folder)
        assert subwords.target is not subwords
        assert subwords.size == len(vocabulary)
        texts = [*CORPUS, *TEXTS, ">>fra<< Where is the hospital?", ">>kor<<the movie", ">>fra<<", " >>fra<< a"]
        assert_equal(subwords, other, texts)
        assert subwords.pieces(ids_of(subwords, ">>fra<< Où"))[0] == ">>fra<<"
        assert unknowns(subwords, ["the"]) == {"t": 1, "h": 1, "e": 1}  # the model has the piece, the vocabulary not
    subwords.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again", written=True).fingerprint == subwords.fingerprint
    assert_equal(subwords, marian(tmp_path / "again"), texts)


def test_each_side_may_have_ids_of_its_own(tmp_path):
    source, target = train_subwords(PROSE, 300), train_subwords(KOREAN, 150)
    both = Tokenizer(source.side, target.side)
    assert "target_vocab.json" in both.save(tmp_path)
    assert Tokenizer.load(tmp_path, written=True).fingerprint == both.fingerprint != source.fingerprint
    assert Tokenizer.load(tmp_path, written=True).target.size == target.size
    assert_equal(Tokenizer.load(tmp_path, written=True), marian(tmp_path), PROSE[:20] + KOREAN)


def test_where_transformers_is_not_followed(tmp_path, trained):
    """It reads special pieces in the text, and swallows what only looks like the name of a language."""
    trained["bpe"].save(tmp_path)
    other = marian(tmp_path)
    assert other("a</s>").input_ids.count(0) == 2
    assert 0 not in ids_of(trained["bpe"], "a</s>")
    swallowed = other.convert_ids_to_tokens(other(">>a model<< of").input_ids)
    assert swallowed == ["<unk>", "▁of", "</s>"]
    assert trained["bpe"].decode(ids_of(trained["bpe"], ">>a model<< of")) == ">>a model<< of"


def test_special_pieces_that_were_added(tmp_path, trained):
    trained["bpe"].save(tmp_path / "first")
    other = marian(tmp_path / "first")
    other.add_special_tokens({"extra_special_tokens": ["<sep>"]})
    other.save_pretrained(tmp_path / "second")
    subwords = Tokenizer.load(tmp_path / "second", written=True)
    assert subwords.size == trained["bpe"].size + 1
    assert subwords.pieces([400]) == ["<sep>"]
    assert subwords.decode([400, *ids_of(subwords, "the <sep>")]) == "the <sep>"
    subwords.save(tmp_path / "third")
    assert Tokenizer.load(tmp_path / "third", written=True).fingerprint == subwords.fingerprint
    other.add_tokens(["wordpiece"])
    other.save_pretrained(tmp_path / "fourth")
    with pytest.raises(UnmaskError, match="adds the piece 'wordpiece'"):
        Tokenizer.load(tmp_path / "fourth", written=True)


def test_a_model_file_alone(tmp_path, trained):
    (tmp_path / "m.model").write_bytes(trained["unigram"].splitter.model)
    its = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    again = Tokenizer.load(tmp_path / "m.model", written=True)
    assert again.fingerprint == trained["unigram"].fingerprint
    for text in TEXTS:
        assert ids_of(again, text).tolist() == its.encode(text)
        assert again.decode(ids_of(again, text)) == its.decode([i for i in its.encode(text) if i != 1]).strip()


def test_a_model_file_of_others_keeps_its_ids(tmp_path):
    """Special pieces where others put them: <s> in the middle, as T5 and Llama do, is never text."""
    for name, ids in {
        "llama": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
        "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
        "no end": {"pad_id": -1, "eos_id": -1, "unk_id": 0, "bos_id": -1},
    }.items():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS),
            model_prefix=str(tmp_path / name),
            vocab_size=300,
            character_coverage=1.0,
            minloglevel=2,
            **ids,
        )
        its = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / f"{name}.model"))
        subwords = Tokenizer.load(tmp_path / f"{name}.model", written=True)
        assert subwords.size == 300 + (ids["pad_id"] < 0) + (ids["eos_id"] < 0)
        expected = [ids["eos_id"], ids["unk_id"], ids["pad_id"]]
        actual = [subwords.end, subwords.unknown, subwords.pad]
        assert all(e in (-1, a) for e, a in zip(expected, actual, strict=True))
        assert len(set(actual)) == 3
        assert all(ids_of(subwords, text).tolist() == its.encode(text) for text in TEXTS)
        assert (ids["bos_id"] in subwords.specials) == (name == "llama")
        assert subwords.decode([*range(5), *ids_of(subwords, "the model")]).endswith("the model")
        subwords.save(tmp_path / name)
        assert Tokenizer.load(tmp_path / name, written=True).fingerprint == subwords.fingerprint
        other = marian(tmp_path / name)
        assert all([*ids_of(subwords, t), subwords.end] == other(t).input_ids for t in TEXTS if t[:2] != ">>")


# ------------------------------------------------------------------------------------------------ damage


def change(path: Path, **values: object) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **values}), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "source.spm").unlink(), "holds no vocabulary"),
        (lambda f: (f / "target.spm").unlink(), "target.spm cannot be read"),
        (lambda f: (f / "vocab.json").unlink(), "no file .*vocab.json"),
        (lambda f: (f / "vocab.json").write_text("["), "vocab.json is not valid JSON"),
        (lambda f: (f / "source.spm").write_bytes(b""), "source.spm cannot be used: it is not a SentencePiece model"),
        (lambda f: (f / "target.spm").write_bytes(b"\x00" * 99), "target.spm cannot be used"),
        (lambda f: (f / "source.spm").write_text("<html>"), "source.spm cannot be used"),
        (lambda f: change(f / "vocab.json", the="7"), "the id of 'the' is '7'"),
        (lambda f: change(f / "vocab.json", the=-7), "the id of 'the' is -7"),
        (lambda f: change(f / "vocab.json", the=True), "the id of 'the' is True"),
        (lambda f: change(f / "vocab.json", zzz=9), "both have the id 9"),
        (lambda f: change(f / "tokenizer_config.json", pad_token="[PAD]"), r"lacks the special piece '\[PAD\]'"),
        (lambda f: change(f / "tokenizer_config.json", separate_vocabs=True), "no file .*target_vocab.json"),
        (lambda f: change(f / "tokenizer_config.json", sp_model_kwargs={"nbest_size": 4}), "sp_model_kwargs"),
        (lambda f: change(f / "tokenizer_config.json", added_tokens_decoder=[1]), "added tokens are not a table"),
        (lambda f: change(f / "tokenizer_config.json", added_tokens_decoder={"x": {}}), "added tokens are not a table"),
    ],
)
def test_a_damaged_folder_is_named(trained, damage, message, tmp_path):
    trained["bpe"].save(tmp_path)
    damage(tmp_path)
    with pytest.raises(UnmaskError, match=message):
        Tokenizer.load(tmp_path, written=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "wrod"}, "did you mean 'word'"),
        ({"kind": 3}, "damaged"),
        ({"pieces": "abc"}, "damaged"),
        ({"pieces": ["</s>", "<unk>", 3, "<pad>"]}, "damaged"),
        ({"pieces": ["</s>", "<unk>", "a", "a", "<pad>"]}, "must differ"),
        ({"pieces": ["a", "<pad>"]}, "must differ and hold </s>, <unk>, <pad>"),
        ({"normalization": None}, "no normalization 'None'"),
    ],
)
def test_a_damaged_file_of_words_is_named(trained, values, message, tmp_path):
    trained["word"].save(tmp_path)
    change(tmp_path / "subwords.json", **values)
    with pytest.raises(UnmaskError, match=message):
        Tokenizer.load(tmp_path, written=True)


def test_what_is_not_there(tmp_path):
    with pytest.raises(UnmaskError, match=r"There is no vocabulary .*nowhere"):
        Tokenizer.load(tmp_path / "nowhere", written=True)
    with pytest.raises(UnmaskError, match="holds no vocabulary"):
        Tokenizer.load(tmp_path, written=True)
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(UnmaskError, match="holds no vocabulary"):
        Tokenizer.load(tmp_path, written=True)


def test_a_missing_library_says_what_to_install(trained, tmp_path, monkeypatch):
    trained["bpe"].save(tmp_path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    for use in (lambda: Tokenizer.load(tmp_path, written=True), lambda: train("unigram")):
        with pytest.raises(UnmaskError, match=r"pip install 'unmask\[translation\]'"):
            use()
    assert train("word").size == 400  # needs none


def test_nothing_half_written_where_a_folder_cannot_be(trained, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmaskError, match="could not be written"):
        trained["bpe"].save(tmp_path / "file")
