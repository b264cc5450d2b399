"""Tokenizers of T5: spiece.model with sentinels, tokenizer.json of any kind; the same ids in transformers."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from unmask.data.text import byte_pairs
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

spm = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

TEXTS = [
    "Thank you for inviting me to your party last week.",
    "the film was good, and the plot was not",
    "Hello, World! naïve café 1234",
]
ODD = ["", "  two  spaces ", "Zürich Ω", "ends in </s> and [SEP]"]
CUT = [
    "Thank you <extra_id_0> me to your party <extra_id_99> week.",
    "<extra_id_3><extra_id_1> last.",
    "a<extra_id_1>b",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary with the ids of a published T5: padding 0, end 1, unknown 2."""
    out, model = tmp_path_factory.mktemp("t5"), io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 30),
        model_writer=model,
        vocab_size=120,
        hard_vocab_limit=False,
        **{"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "minloglevel": 2},
    )
    (out / "spiece.model").write_bytes(model.getvalue())
    (out / "config.json").write_text(json.dumps({"model_type": "t5"}))
    return out


def test_a_published_folder_has_its_sentinels_behind_the_pieces(folder: Path) -> None:
    subwords = Tokenizer.load(folder, written=True)
    assert (subwords.pad, subwords.end, subwords.unknown, subwords.start) == (0, 1, 2, 0)
    assert subwords.sentinels == list(range(subwords.size - 1, subwords.size - 101, -1))
    for text in TEXTS:
        assert subwords.decode(subwords.ids([text])[0]) == text
    assert subwords.ids(["<extra_id_0> <extra_id_99>"])[0].tolist() == subwords.sentinels[::99]
    assert not set(subwords.sentinels) & set(subwords.ids(["<extra_id_100> <extra_id_> extra_id_1 < extra_id_1>"])[0])
    assert subwords.end not in subwords.ids(["you</s>"])[0]
    assert subwords.decode([subwords.end, *subwords.ids(["you <extra_id_0> me "])[0]]) == "you <extra_id_0> me"
    assert subwords.decode(subwords.ids(["the film <extra_id_3>  was"])[0]) == "the film <extra_id_3> was"
    found = subwords.encode("the film <extra_id_3>  was")
    assert found.ids.tolist() == subwords.ids(["the film <extra_id_3> was"])[0].tolist()
    assert [9, 21] in found.offsets.tolist()


def test_transformers_reads_what_is_written_and_the_other_way_round(folder: Path, tmp_path: Path) -> None:
    subwords = Tokenizer.load(folder, written=True)
    subwords.save(tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__.startswith("T5Tokenizer")
    for text in [*TEXTS, *ODD[:3], *CUT]:
        assert [*subwords.ids([text])[0].tolist(), subwords.end] == theirs(text)["input_ids"]
    assert theirs.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"]) == subwords.sentinels[::99]
    assert Tokenizer.load(tmp_path, written=True).fingerprint == subwords.fingerprint
    theirs.save_pretrained(tmp_path / "again")  # tokenizer.json alone, of the unigram kind
    again = Tokenizer.load(tmp_path / "again", written=True)
    assert (again.size, again.pad, again.end, again.unknown) == (subwords.size, 0, 1, 2)
    assert again.sentinels == subwords.sentinels
    for text in TEXTS:
        assert again.ids([text])[0].tolist() == subwords.ids([text])[0].tolist()
        assert again.decode(again.ids([text])[0]) == text


@pytest.mark.parametrize("train", [Tokenizer.train, byte_pairs.train])
def test_the_tokenizer_of_a_corpus_gets_sentinels(train: object, tmp_path: Path) -> None:
    own = train(TEXTS * 3, 320)
    tokenizer = own.with_sentinels()
    assert tokenizer.with_sentinels() is tokenizer
    assert tokenizer.size == own.size + 100
    assert tokenizer.sentinels == list(range(tokenizer.size - 1, own.size - 1, -1))
    assert not own.sentinels
    subwords = tokenizer.written()
    for text in [*TEXTS, *ODD]:  # the ids of the corpus stay, and no text brings a special token in
        assert subwords.ids([text])[0].tolist() == own.ids([text])[0].tolist()
    assert subwords.decode(subwords.ids([TEXTS[1]])[0]) == own.decode(own.ids([TEXTS[1]])[0])
    subwords.save(tmp_path, length=77)
    again = Tokenizer.load(tmp_path, written=True)
    assert again.fingerprint == subwords.fingerprint
    assert (again.end, again.pad, again.start, again.unknown) == (own.sep, own.pad, own.pad, own.unknown)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.eos_token_id, theirs.pad_token_id, theirs.model_max_length) == (own.sep, own.pad, 77)
    for text in [TEXTS[0], *CUT]:
        assert theirs(text)["input_ids"] == [*subwords.ids([text])[0].tolist(), subwords.end]


def test_a_vocabulary_of_one_special_token_is_refused() -> None:
    own = byte_pairs.train(TEXTS, 300)
    own.sep = own.pad
    with pytest.raises(UnmaskError, match="two different ones"):
        own.with_sentinels()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", "{", "damaged or not a tokenizer"),
        ("tokenizer_config.json", '{"eos_token": "<end>"}', "lacks the special piece '<end>'"),
    ],
)
def test_a_damaged_tokenizer_is_refused(name: str, content: str, said: str, tmp_path: Path) -> None:
    Tokenizer.train(TEXTS, 100).with_sentinels().written().save(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(UnmaskError, match=said):
        Tokenizer.load(tmp_path, written=True)


@pytest.mark.parametrize("count", [-1, "many", True])
def test_a_number_of_sentinels_that_is_none_is_refused(count: object, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes((folder / "spiece.model").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": count}))
    with pytest.raises(UnmaskError, match="extra_ids"):
        Tokenizer.load(tmp_path, written=True)
