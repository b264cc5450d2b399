"""What word vectors answer, and the files of others, with gensim as the oracle."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from unmask.cli import main
from unmask.config import LARGEST
from unmask.errors import UnmaskError
from unmask.runs.word_vectors import WordVectors, evaluation, read, write

WORDS = ["the", "king", "queen", "man", "woman", "Paris", "paris", "France", "Rome", "italy", "naïve", "new_york"]


@pytest.fixture
def vectors() -> WordVectors:
    matrix = np.random.default_rng(0).standard_normal((len(WORDS), 8)).astype(np.float32)
    return WordVectors(WORDS, matrix, np.arange(len(WORDS), 0, -1))


@pytest.fixture
def oracle(vectors):
    models = pytest.importorskip("gensim.models", reason="gensim is the reference")
    keyed = models.KeyedVectors(vectors.dim)
    keyed.add_vectors(vectors.words, vectors.matrix)
    return keyed


# ------------------------------------------------------------------------------------------------ questions


@pytest.mark.parametrize(
    ("positive", "negative"),
    [(["king"], []), (["king", "woman"], ["man"]), ([], ["the"]), (["king", "king"], ["Rome"])],
)
def test_the_nearest_are_those_of_the_reference(vectors, oracle, positive, negative):
    found, wanted = vectors.most_similar(positive, negative, 5), oracle.most_similar(positive, negative, topn=5)
    assert [word for word, _ in found] == [word for word, _ in wanted]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in wanted], atol=1e-5)
    everything = [word for word, _ in vectors.most_similar(positive, negative, 99)]
    assert sorted(everything) == sorted(set(WORDS) - {*positive, *negative})


def test_other_answers_are_those_of_the_reference(vectors, oracle):
    assert vectors.similarity("king", "queen") == pytest.approx(oracle.similarity("king", "queen"), abs=1e-6)
    for words in (["king", "queen", "Rome"], ["the", "man", "woman", "italy"], ["Paris", "paris"]):
        assert vectors.odd_one_out(words) == oracle.doesnt_match(words)
    assert vectors.analogy("man", "king", "woman") == [vectors.most_similar(["king", "woman"], ["man"])[0]]


def test_vectors_are_looked_up_by_word_or_number():
    vectors = WordVectors(["7", "12"], np.eye(2))
    assert vectors[7].tolist() == [1, 0]
    assert vectors["12"].tolist() == [0, 1]
    assert 12 in vectors
    assert 3 not in vectors
    assert vectors.most_similar(7) == [("12", 0.0)]
    assert len(vectors) == vectors.dim == 2


def test_words_that_were_subtracted_are_no_answer():
    vectors = WordVectors(["a", "b", "c"], np.array([[1, 0], [0.9, 0.1], [-1, 0]]))
    assert [word for word, _ in vectors.most_similar(["a", "a"], ["b"])] == ["c"]


def test_a_vector_of_zeros_is_like_nothing():
    vectors = WordVectors(["a", "b", "c"], np.array([[0, 0], [1, 1], [1, 0]]))
    assert vectors.similarity("a", "b") == 0
    assert vectors.most_similar("a", top=9) == [("b", 0.0), ("c", 0.0)]


@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 5))
def test_the_largest_are_the_largest(count, top, seed):
    scores = np.random.default_rng(seed).integers(0, 6, count).astype(float)
    from unmask.runs.word_vectors.vectors import largest

    assert largest(scores, top).tolist() == np.argsort(-scores, kind="stable")[:top].tolist()


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda v: v["King"], "no vector for 'King' among 12 words; did you mean 'king'"),
        (lambda v: v.similarity("king", "womn"), "did you mean 'woman'"),
        (lambda v: v.analogy("king", "zzzzzz", "man"), "no vector for 'zzzzzz' among 12 words"),
        (lambda v: v.most_similar(), "at least one word"),
        (lambda v: v.most_similar("king", top=0), "at least 1"),
        (lambda v: v.odd_one_out(["king"]), "at least two"),
        (lambda v: WordVectors(["a", "a"], np.eye(2)), "'a' has two vectors"),
        (lambda v: WordVectors(["a"], np.eye(2)), "1 words do not go with"),
        (lambda v: WordVectors(["a", "b"], np.eye(2), np.arange(3)), "3 counts"),
        (lambda v: WordVectors(["a", "b"], np.array([[1, 2], [3, np.nan]])), r"'b' \(row 2\)"),
    ],
)
def test_what_cannot_be_answered_is_said(vectors, ask, sentence):
    with pytest.raises(UnmaskError, match=sentence):
        ask(vectors)


# ------------------------------------------------------------------------------------------------ files

WORD = st.text(st.characters(codec="utf-8", exclude_categories=["Zs", "Zl", "Zp", "Cc", "Cs"]), min_size=1, max_size=9)


@given(
    st.lists(WORD, min_size=1, max_size=6, unique=True),
    st.integers(1, 5),
    st.sampled_from(["a.bin", "a.txt", "folder"]),
)
@settings(max_examples=60, deadline=None)
def test_files_bring_back_the_same(tmp_path_factory, words, dim, name):
    if any(word.split() != [word] for word in words):
        return
    path = tmp_path_factory.mktemp("vectors") / name
    matrix = np.random.default_rng(0).standard_normal((len(words), dim)).astype(np.float32) * 1e-3
    vectors = WordVectors(words, matrix)
    vectors.save(path) if name == "folder" else write(vectors, path)
    found = read(path)
    assert found.words == words
    assert (found.matrix == matrix).all()


@pytest.mark.parametrize("name", ["a.bin", "a.txt"])
def test_the_reference_reads_our_files_and_we_read_its(tmp_path, vectors, oracle, name):
    binary = name.endswith("bin")
    write(vectors, tmp_path / name)
    theirs = type(oracle).load_word2vec_format(str(tmp_path / name), binary=binary)
    assert theirs.index_to_key == WORDS
    assert (theirs.vectors == vectors.matrix).all()
    oracle.save_word2vec_format(str(tmp_path / f"their-{name}"), binary=binary)
    (tmp_path / f"their-{name}.gz").write_bytes(gzip.compress((tmp_path / f"their-{name}").read_bytes()))
    for path in (tmp_path / f"their-{name}", tmp_path / f"their-{name}.gz"):
        ours = read(path)
        assert ours.words == WORDS
        np.testing.assert_allclose(ours.matrix, vectors.matrix, atol=1e-7)


def test_counts_and_odd_words_stay_in_a_folder(tmp_path, vectors):
    vectors.save(tmp_path)
    assert (WordVectors.load(tmp_path).counts == vectors.counts).all()
    odd = WordVectors(["red wine", "\ud800", ""], np.eye(3))
    odd.save(tmp_path)
    assert read(tmp_path).words == odd.words
    for word in odd.words:
        with pytest.raises(UnmaskError, match="cannot be written"):
            write(WordVectors([word, "b"], np.eye(2)), tmp_path / "a.txt")
    with pytest.raises(UnmaskError, match="uncompressed"):
        write(vectors, tmp_path / "a.txt.gz")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".", "a"))]


def test_text_without_a_header_is_read(tmp_path):
    (tmp_path / "glove.txt").write_text("the 1 2 3\nof 4 5 6\n")
    assert read(tmp_path / "glove.txt").matrix.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_of_a_word_that_comes_again_the_first_vector_is_kept(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_text("5 2\nking 1 2\nking 2 1\nman 0 1\nking 3 3\nman 2 2\n")
    found = read(path)
    assert (found.words, found.matrix.tolist()) == (["king", "man"], [[1, 2], [0, 1]])
    note = f"Rows of {path} left out because their word is repeated: 3 ('king' of row 2 is in row 1 already)."
    assert found.notes == (note,)
    main(["words", "similarity", "--model", str(path), "king", "man"])
    assert capsys.readouterr().err == f"unmask: {note}\n"
    write(found, tmp_path / "b.txt")
    assert read(tmp_path / "b.txt").notes == ()


def test_the_reference_keeps_the_same_one_of_a_word_that_comes_again(tmp_path, oracle):
    (tmp_path / "a.txt").write_text("3 2\nking 1 2\nking 2 1\nman 0 1\n")
    theirs, ours = type(oracle).load_word2vec_format(str(tmp_path / "a.txt")), read(tmp_path / "a.txt")
    assert {word: theirs[word].tolist() for word in ours.words} == {"king": [1, 2], "man": [0, 1]}
    assert (ours["king"] == theirs["king"]).all()
    (tmp_path / "a.bin").write_bytes(GOOD.replace(b"\nb ", b"\na "))
    assert read(tmp_path / "a.bin").matrix.tolist() == [[1, 2]]


GOOD = b"2 2\na " + np.array([1, 2], "<f4").tobytes() + b"\nb " + np.array([3, 4], "<f4").tobytes() + b"\n"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"", "empty"),
        ("a.txt", b"2 2\na 1 2\n", "ends after 1 of the 2"),
        ("a.txt", b"1 2\na 1 2\nb 1 2\n", r":3 is one vector more"),
        ("a.txt", b"2 2\na 1 2\nb 1\n", r":3: 'b' has 1 number where there must be 2"),
        ("a.txt", b"2 2\na 1 2\nb 1 x\n", r":3: the vector of 'b' is not made of numbers"),
        ("a.txt", b"2 2\na 1 2\nb 1 nan\n", r"'b' \(row 2\) is not made of finite"),
        ("a.txt", b"99999999999 9999999\na 1 2\n", "is no valid header"),
        ("a.txt", b"0 5\n", "is no valid header"),
        ("a.txt", b"2 2\na\xff 1 2\nb 1 2\n", ":2 is not UTF-8"),
        ("a.txt", b"word\n", "0 numbers"),
        ("a.bin", b"", "does not begin with"),
        ("a.bin", b"\x80\x04 2\n", "does not begin with"),
        ("a.bin", b"99999999999 300\n" + GOOD, "cut short or damaged"),
        ("a.bin", GOOD[:-6] + b"", "promises|ends within"),
        ("a.bin", GOOD + b"more", "goes on after"),
        ("a.bin", GOOD.replace(b"\nb", b"\n\xff"), "row 2 is not UTF-8"),
        ("a.bin", GOOD.replace(b"2 2\na ", b"2 2\na") + b"....", "."),
        ("a.bin", b"1 1\n" + b"x" * 20_000, "has no word"),
        ("a.bin.gz", gzip.compress(GOOD, mtime=0)[:-12], "damaged or cut short"),
        ("a.bin.gz", gzip.compress(GOOD[:-9], mtime=0), "ends within the vector of 'b', row 2"),
        ("a.bin.gz", gzip.compress(b"3 2" + GOOD[3:], mtime=0), "row 3 has no word"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnmaskError, match=sentence) as error:
        read(tmp_path / name)
    assert name in str(error.value)


def test_damaged_folders_are_named(tmp_path, vectors):
    with pytest.raises(UnmaskError, match="no file or folder"):
        read(tmp_path / "none")
    with pytest.raises(UnmaskError, match="holds no word vectors"):
        read(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnmaskError, match=r"holds a model, and no word vectors: .*Embedder\(.*\)\.similarity"):
        read(tmp_path)
    vectors.save(tmp_path)
    (tmp_path / "words.json").write_text('{"words": ["a"], "counts": null}')
    with pytest.raises(UnmaskError, match="damaged: 1 words do not go"):
        read(tmp_path)
    (tmp_path / "words.json").write_text('{"words": "the king"}')
    with pytest.raises(UnmaskError, match="damaged"):
        read(tmp_path)
    (tmp_path / "vectors.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with pytest.raises(UnmaskError, match="damaged"):
        read(tmp_path)
    (tmp_path / "vectors.safetensors").write_bytes(b"no")
    with pytest.raises(UnmaskError, match="cannot be read"):
        read(tmp_path)


def test_as_many_words_as_there_are_vectors_are_read_and_no_more(tmp_path):
    words = [f"{i:0>480}" for i in range(150_000)]
    WordVectors(words, np.ones((len(words), 1), np.float32)).save(tmp_path)
    assert (tmp_path / "words.json").stat().st_size > LARGEST
    assert read(tmp_path).words == words
    for few in (np.ones((1, 1), np.float32), np.ones((1 << 40, 0), np.float32), np.float32(1)):
        save_file({"vectors": np.asarray(few)}, tmp_path / "vectors.safetensors")
        with pytest.raises(UnmaskError, match="more than 67,108,864 bytes"):
            read(tmp_path)


# ------------------------------------------------------------------------------------------------ scores


@pytest.fixture
def many() -> WordVectors:
    """60 words; every third is another one in capitals, so that folding matters."""
    base = [f"word{i}" for i in range(40)]
    words = [w for i, w in enumerate(base) for w in ([w, w.upper()] if i % 2 else [w])]
    rng = np.random.default_rng(4)
    matrix = rng.standard_normal((len(words), 5)).astype(np.float32)
    for i in range(1, len(words)):
        if words[i].isupper():
            matrix[i] = matrix[i - 1] + 0.1 * matrix[i]  # spellings of a word are alike
    return WordVectors(words, matrix)


@pytest.fixture
def questions(tmp_path, many):
    """Questions of which about half are answered rightly."""
    rng, lines = np.random.default_rng(1), []
    for section in ("first-kind", "second kind", "unknown"):
        lines.append(f": {section}")
        for _ in range(30):
            a, b, c = rng.choice(40, 3, replace=False)
            near = many.most_similar([f"word{b}", f"word{c}"], [f"word{a}"], 1)[0][0]
            d = near if rng.random() < 0.5 else f"Word{rng.integers(60)}"
            lines.append(f"word{a} Word{b} word{c} {d}" if section != "unknown" else f"x word{b} y {d}")
    path = tmp_path / "questions.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("most", [300_000, 50])
def test_analogies_are_scored_as_by_the_reference(many, questions, most):
    models = pytest.importorskip("gensim.models", reason="gensim is the reference")
    keyed = models.KeyedVectors(many.dim)
    keyed.add_vectors(many.words, many.matrix)
    accuracy, sections = keyed.evaluate_word_analogies(str(questions), restrict_vocab=most)
    found = evaluation.analogies(many, questions, most=most)
    assert [s.name for s in found] == ["first-kind", "second kind", "unknown", "total"]
    for ours, theirs in zip(found, sections, strict=True):
        assert (ours.correct, ours.asked) == (len(theirs["correct"]), len(theirs["correct"]) + len(theirs["incorrect"]))
    assert found[-1].total == 90
    assert found[-1].to_dict()["accuracy"] == pytest.approx(accuracy)
    assert 0.1 < accuracy < 0.9
    assert found[2].to_dict()["accuracy"] is None
    assert found[-1].to_dict()["asked_share"] == found[-1].asked / 90


@pytest.mark.parametrize("separator", ["\t", " ", ","])
def test_agreement_is_that_of_the_reference(tmp_path, many, separator):
    models = pytest.importorskip("gensim.models", reason="gensim is the reference")
    keyed = models.KeyedVectors(many.dim)
    keyed.add_vectors(many.words, many.matrix)
    rng = np.random.default_rng(2)
    rows = [(f"word{a}", f"WORD{b}", f"{rng.integers(10)}.5") for a, b in rng.integers(0, 50, (80, 2))]
    path = tmp_path / "pairs.txt"
    path.write_text("\n".join(separator.join(row) for row in rows) + "\n")
    pearson, spearman, unknown = keyed.evaluate_word_pairs(str(path), delimiter=separator)
    found = evaluation.agreement(many, path)
    assert found.spearman == pytest.approx(spearman.statistic, abs=1e-6)
    assert found.pearson == pytest.approx(pearson.statistic, abs=1e-6)
    assert 100 * found.to_dict()["unknown_share"] == pytest.approx(unknown)
    assert 0 < found.unknown < found.pairs == 80


def test_a_header_and_comments_of_pairs_are_left_out(tmp_path, vectors):
    path = tmp_path / "pairs.csv"
    path.write_text("Word 1,Word 2,Human (mean)\n# a comment\nking,queen,8\nman,woman,9\nzebra,man,1\n\n")
    assert (evaluation.agreement(vectors, path).pairs, evaluation.agreement(vectors, path).unknown) == (3, 1)


@pytest.mark.parametrize(
    ("score", "content", "sentence"),
    [
        (evaluation.analogies, ": a\nking queen man\n", ":2 has 3 words"),
        (evaluation.analogies, ": a\n", "no questions"),
        (evaluation.agreement, "king queen 3\nking queen x\n", ":2 is not two words and a number"),
        (evaluation.agreement, "king queen 3\nking queen\n", ":2 is not two words and a number"),
        (evaluation.agreement, "king queen nan\nking queen nan\n", ":2 is not"),
        (evaluation.agreement, "# nothing\n", "no pairs"),
    ],
)
def test_files_of_questions_that_are_none_are_named(tmp_path, vectors, score, content, sentence):
    (tmp_path / "file.txt").write_text(content)
    with pytest.raises(UnmaskError, match=sentence):
        score(vectors, tmp_path / "file.txt")


def test_where_no_pair_is_known_there_is_no_agreement(tmp_path, vectors):
    (tmp_path / "file.txt").write_text("a b 3\n")
    assert evaluation.agreement(vectors, tmp_path / "file.txt") == evaluation.Agreement(0.0, 0.0, 1, 1)
