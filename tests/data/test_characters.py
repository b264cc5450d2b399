"""Transcripts as labels, beside the tokenizer of transformers."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.recordings.characters import Characters
from unmask.errors import UnmaskError

transformers = pytest.importorskip("transformers")
TEXTS = ["Yes, it's a dog.", "No: it IS not!", "zero  one"]


def theirs(folder, characters):
    for name, content in characters.files().items():
        (folder / name).write_text(content, encoding="utf-8")
    return transformers.Wav2Vec2CTCTokenizer.from_pretrained(folder)


def test_a_vocabulary_is_learned_in_lower_case_and_without_punctuation():
    found = Characters.learned(TEXTS)
    assert found.pieces[:3] == ("<pad>", "<unk>", "|")
    assert found.pieces[3:] == tuple(sorted(set("yesitsadognotiszeroone'")))
    assert found.normalised("Yes -- it’s  a DOG.") == "yes it's a dog"
    assert found.text(found.labels("Yes, it's a dog.")) == "yes it's a dog"
    cased = Characters.learned(TEXTS, cased=True, punctuation=True)
    assert {"Y", ",", ".", "!", ":"} <= set(cased.pieces)
    assert cased.text(cased.labels(TEXTS[0])) == TEXTS[0]


@pytest.mark.parametrize("capitals", [False, True])
def test_transformers_reads_and_writes_the_same_labels(tmp_path, capitals):
    pieces = Characters.learned(TEXTS).pieces
    if capitals:
        pieces = tuple(piece.upper() if len(piece) == 1 else piece for piece in pieces)
    ours = Characters(pieces, lower=capitals)
    tokenizer = theirs(tmp_path, ours)
    assert len(tokenizer) == len(pieces)
    assert tokenizer.pad_token_id == ours.blank_label
    for text in ("yes it's a dog", "no it is x"):
        assert tokenizer(text).input_ids == ours.labels(text).tolist()
    frames = np.random.default_rng(0).integers(0, len(pieces), 40)
    runs = [label for label, before in zip(frames, [-1, *frames[:-1]], strict=True) if label != before]
    assert tokenizer.decode(frames.tolist()) == ours.text(runs)


def test_a_folder_of_transformers_is_read(tmp_path):
    """As the published guides make them: capitals, brackets, the blank last, and markers beside the vocabulary."""
    (tmp_path / "vocab.json").write_text(json.dumps({"|": 0, "A": 1, "B": 2, "[UNK]": 3, "[PAD]": 4}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(
        tmp_path / "vocab.json", unk_token="[UNK]", pad_token="[PAD]", word_delimiter_token="|", do_lower_case=True
    )
    tokenizer.save_pretrained(tmp_path)
    found = Characters.load(tmp_path)
    assert (found.blank, found.unknown, found.space, found.lower) == ("[PAD]", "[UNK]", "|", True)
    assert found.pieces[:5] == ("|", "A", "B", "[UNK]", "[PAD]")
    assert Characters.load(tmp_path, 5).pieces == found.pieces[:5]
    assert found.labels("ab a").tolist() == tokenizer("ab a").input_ids == [1, 2, 0, 1]
    assert found.text([1, 4, 2, 0, 1]) == tokenizer.decode([1, 4, 2, 0, 1]) == "ab a"


@given(st.text(max_size=20))
def test_labels_spell_what_can_be_spelled(text):
    characters = Characters.learned(["the quick brown fox jumps over a lazy dog's ß É"])
    once = characters.text(characters.labels(text))
    assert "<unk>" in once or once == characters.normalised(text)
    assert bool(characters.strange([text])) == ("<unk>" in once)


def test_characters_without_a_label_are_counted():
    found = Characters.learned(["abc"])
    assert found.strange(["abx, y", "x"]) == {"x": 2, "y": 1}
    assert found.labels("ax").tolist() == [3, 1]
    assert Characters(("<pad>", "a")).labels("ax").tolist() == [1]


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({"a": 0, "b": 2, "<pad>": 1}, None),
        ({"a": 0, "b": 3, "<pad>": 1}, "must number its pieces from 0"),
        ({"a": 0, "b": 1}, "no piece '<pad>'"),
        ({"en": {"<pad>": 0}}, "several languages"),
    ],
)
def test_a_damaged_vocabulary_is_one_sentence(tmp_path, vocabulary, message):
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    if message is None:
        assert Characters.load(tmp_path).pieces == ("a", "<pad>", "b")
        return
    with pytest.raises(UnmaskError, match=message):
        Characters.load(tmp_path)


def test_no_vocabulary_and_no_characters(tmp_path):
    assert Characters.load(tmp_path) is None
    with pytest.raises(UnmaskError, match="no characters"):
        Characters.learned(["...", ""])
