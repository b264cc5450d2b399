"""Scores of translations, beside sacrebleu and beside the paper; what is refused; the page that explains them."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest

from unmask import metrics
from unmask.errors import UnmaskError
from unmask.metrics.ngrams import brevity_penalty, clipped_matches, exponential, naive_matches, ngrams, unsmoothed
from unmask.metrics.translation import Bleu, ChrF

PAGE = Path(__file__).resolve().parents[2] / "docs" / "bleu.md"
CORPORA = 1_000
EXACT = {"rel": 0, "abs": 1e-9}
WORDS = re.split(" ", "the cat is on a mat there The dog, sat well-known 3.5 don't Übung .")


def sentence(rng, low=0, high=12):
    return rng.choice(WORDS, rng.integers(low, high)).tolist()


def changed(rng, words, rate=0.3):
    """The same words, some of them replaced, left out or said twice."""
    kept = [str(rng.choice(WORDS)) if rng.random() < rate else word for word in words]
    kept = [word for word in kept if rng.random() > rate / 3]
    return kept + kept[:1] if rng.random() < rate else kept


def corpus(rng, sentences, references=1, low=4, rate=0.3):
    """Texts and `references` lists of texts that are partly the same."""
    trues = [[sentence(rng, low) for _ in range(sentences)]]
    trues += [[changed(rng, words) for words in trues[0]] for _ in range(references - 1)]
    said = [changed(rng, words, rate) for words in trues[0]]
    return [" ".join(words) for words in said], [[" ".join(words) for words in texts] for texts in trues]


# ------------------------------------------------------------------------------------------------ the paper


@pytest.mark.parametrize(("smoothing", "precisions"), [("none", unsmoothed), ("exp", exponential)])
def test_the_textbook_gives_what_sacrebleu_gives(smoothing, precisions):
    rng = np.random.default_rng(0)
    scorer = sacrebleu.BLEU(tokenize="none", smooth_method=smoothing, force=True)
    zero = smoothed = short = 0
    for _ in range(CORPORA):
        said, trues = corpus(rng, rng.integers(1, 5), rng.integers(1, 4), low=0, rate=rng.random())
        wanted = scorer.corpus_score(said, trues)
        candidates = [text.split() for text in said]
        references = [[text.split() for text in texts] for texts in zip(*trues, strict=True)]
        found = metrics.textbook_bleu(candidates, references, precisions=precisions)
        assert 100 * found == pytest.approx(wanted.score, **EXACT)
        zero += wanted.score == 0
        smoothed += wanted.score > 0 and 0 in wanted.counts
        short += 0 < wanted.bp < 1
    assert min(zero, short, CORPORA - zero) > CORPORA / 20
    assert (smoothed > CORPORA / 20) == (smoothing == "exp")


def test_the_examples_of_the_paper():
    references = [text.split() for text in ("the cat is on the mat", "there is a cat on the mat")]
    the = ["the"] * 7
    assert (naive_matches(the, references, 1), clipped_matches(the, references, 1)) == (7, 2)
    sat = ["the", "cat", "sat", "on", "the", "mat"]
    assert (clipped_matches(sat, references, 2), ngrams(sat, 2).total()) == (3, 5)
    assert brevity_penalty(6, 6) == 1.0
    assert brevity_penalty(0, 6) == 0.0


def test_of_two_lengths_as_near_the_shorter_counts():
    found = metrics.textbook_bleu([["a"] * 6], [[["a"] * 7, ["a"] * 5]])
    assert found == 1.0  # against 7 words there were a penalty
    assert metrics.textbook_bleu([["a"] * 6], [[["a"] * 7]]) == pytest.approx(np.exp(1 - 7 / 6))


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), min_size=1, max_size=4), st.integers(1, 4))
def test_a_copy_is_perfect_and_nothing_is_better(texts, order):
    references = [[text] for text in texts]
    found = metrics.textbook_bleu(texts, references, order)
    assert found == pytest.approx(1.0 if any(len(text) >= order for text in texts) else 0.0)
    other = [text[::-1] for text in texts]
    assert 0 <= metrics.textbook_bleu(other, references, order) <= 1 + 1e-12


@pytest.mark.parametrize(("candidates", "references"), [([], []), ([["a"]], []), ([["a"]], [[]])])
def test_the_textbook_needs_candidates_and_references(candidates, references):
    with pytest.raises(UnmaskError, match=r"\d candidates and \d lists of references"):
        metrics.textbook_bleu(candidates, references)


def test_the_page_runs_in_order():
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "bleu"}
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert sum("assert " in block[1] for block in blocks) >= 10
    for block in blocks:
        lines = "\n" * (text[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + block[1], str(PAGE), "exec", dont_inherit=True), names)


# ------------------------------------------------------------------------------------------------ sacrebleu


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("references", [1, 3])
def test_scores_and_signatures_are_those_of_sacrebleu(references, lowercase):
    said, trues = corpus(np.random.default_rng(1), 40, references)
    for tokenize in ("13a", "intl", "char", "zh", "none"):
        scorer = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        wanted = scorer.corpus_score(said, trues)
        found = metrics.bleu(said, trues, tokenize=tokenize, lowercase=lowercase, force=True)
        assert (found.name, found.value) == ("BLEU", wanted.score)
        assert found.signature == str(scorer.get_signature())
        assert found.details["precisions"] == wanted.precisions
        assert found.details["brevity_penalty"] == wanted.bp
        assert (found.details["hypothesis_length"], found.details["reference_length"]) == (
            wanted.sys_len,
            wanted.ref_len,
        )
    for words, name in ((0, "chrF2"), (2, "chrF2++")):
        scorer = sacrebleu.CHRF(word_order=words, lowercase=lowercase)
        found = metrics.chrf(said, trues, words=words, lowercase=lowercase, force=True)
        assert (found.name, found.value) == (name, scorer.corpus_score(said, trues).score)
        assert found.signature == str(scorer.get_signature())


def test_one_list_of_references_is_as_good_as_a_list_of_one():
    said, (true,) = corpus(np.random.default_rng(2), 10)
    assert metrics.bleu(said, true, force=True) == metrics.bleu(said, [true], force=True)
    assert metrics.bleu(tuple(said), tuple(true), force=True) == metrics.bleu(said, [true], force=True)


def test_a_sentence_may_have_fewer_references():
    said, (first, second) = corpus(np.random.default_rng(3), 10, 2)
    fewer = [None, *second[1:]]
    scorer = sacrebleu.BLEU(force=True)
    found = metrics.bleu(said, [first, fewer], force=True)
    assert found.value == scorer.corpus_score(said, [first, fewer]).score
    assert "nrefs:var" in found.signature
    metrics.chrf(said, [fewer, first], force=True)


def test_a_score_can_be_written_and_read():
    found = metrics.bleu(["A cat sat there."], ["A cat sat here."])
    assert metrics.Score(**json.loads(json.dumps(dataclasses.asdict(found)))) == found
    assert str(found) == f"BLEU {found.value:.2f} ({found.signature})"
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.value = 100.0


def test_empty_lines_are_scored_and_counted():
    found = metrics.bleu(["", "  ", "A cat sat there."], ["Yes.", "No.", ""])
    assert found.details["sentences"] == 3
    assert (found.details["empty_hypotheses"], found.details["empty_references"]) == (2, 1)
    nothing = metrics.bleu(["", ""], ["Yes.", "No."])
    assert (nothing.value, nothing.details["brevity_penalty"]) == (0.0, 0.0)
    assert metrics.chrf(["", ""], ["Yes.", "No."]).value == 0.0


def test_multi30k_bleu_is_that_of_lower_cased_tokens_without_smoothing():
    said, trues = corpus(np.random.default_rng(4), 50, low=5)
    low = [[text.lower().split() for text in texts] for texts in (said, trues[0])]
    wanted = 100 * metrics.textbook_bleu(low[0], [[words] for words in low[1]])
    assert metrics.multi30k_bleu(said, trues, tokenize="none").value == pytest.approx(wanted, **EXACT)
    assert metrics.multi30k_bleu(["Der Hund, ja."], ["der Hund, ja."]).value == pytest.approx(100)
    found = metrics.multi30k_bleu(said, trues)
    assert found.name == "BLEU, lower case"  # beside BLEU in a table
    assert "case:lc" in found.signature
    assert metrics.multi30k_bleu(["A cat sat."], ["A cat ran."]).value == 0.0  # smoothed, it were more


# ------------------------------------------------------------------------------------------------ tokenisers


@pytest.mark.parametrize(
    ("texts", "tokenizer"),
    [
        (["Ein Hund läuft."], "13a"),
        (["Собака бежит."], "13a"),
        (["एक कुत्ता"], "13a"),
        (["狗在公园里跑。"], "zh"),
        (["Das ist 狗 auf Chinesisch."], "13a"),
        (["犬が公園を走る。"], "char"),
        (["東京都交通局の発表"], "char"),
        (["개가 공원을 달린다."], "char"),
        (["개가 公園"], "char"),
        (["สุนัขวิ่งในสวน"], "char"),
        (["1234 ..."], "13a"),
        ([], "13a"),
    ],
)
def test_the_script_of_the_references_chooses(texts, tokenizer):
    assert metrics.tokenizer_for(texts) == tokenizer
    if texts:
        found = metrics.bleu(["a b c d"], [texts, [None]])
        assert f"tok:{tokenizer}|" in found.signature


def test_a_tokenizer_that_does_not_exist():
    with pytest.raises(UnmaskError, match="no tokenizer '13b'; did you mean '13a'"):
        metrics.bleu(["a"], ["a"], tokenize="13b")
    with pytest.raises(UnmaskError, match="no tokenizer 'flores200'"):  # it would be downloaded
        metrics.bleu(["a"], ["a"], tokenize="flores200")
    with pytest.raises(UnmaskError, match="no smoothing 'floor'"):
        Bleu(smoothing="floor").scorer()


@pytest.mark.parametrize(
    ("tokenize", "module"), [("ja-mecab", "tokenizer_ja_mecab"), ("ko-mecab", "tokenizer_ko_mecab")]
)
def test_a_tokenizer_whose_package_is_missing(monkeypatch, tokenize, module):
    found = __import__(f"sacrebleu.tokenizers.{module}", fromlist=["MeCab"])
    monkeypatch.setattr(found, "MeCab", None)
    with pytest.raises(
        UnmaskError, match=rf"'{tokenize}' needs a package .* pip install 'sacrebleu\[{tokenize[:2]}\]'"
    ):
        metrics.bleu(["a"], ["a"], tokenize=tokenize)


def test_sacrebleu_itself_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UnmaskError, match=r"unmask\[translation\]"):
        metrics.bleu(["a"], ["a"])


# ------------------------------------------------------------------------------------------------ tokenised text


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("A man is walking .", " ."),
        ("A man , I think", " ,"),
        ("He doesn &apos;t", "&apos;"),
        ("a well @-@ known man", "@-@"),
        ("a walk@@ ing man", "@@"),
        ("▁A ▁man", "▁"),
        ("a walk ##ing man", "##i"),
    ],
)
def test_signs_of_tokens(line, sign):
    assert metrics.tokenised_lines(["A man.", line, None]) == {2: sign}
    for said, true in ((line, "A man."), ("A man.", line)):
        with pytest.raises(UnmaskError, match=rf"1 of 1 lines do, the first is line 1 with '{re.escape(sign)}'"):
            metrics.bleu([said], [true])
        with pytest.raises(UnmaskError, match="look tokenised"):
            metrics.chrf([said], [true])
        metrics.bleu([said], [true], force=True)


@pytest.mark.parametrize(
    "line",
    [
        "Was ? Oui : c'est « ça » !",
        "It cost .5, or 3.50.",
        "Well ... no",
        "me@example.org, @you",
        "a & b; R&D",
        "# 3 and ## two",
        ". . . .",
        "e.g. this, i.e. that",
        "",
    ],
)
def test_what_people_write_is_no_sign(line):
    assert metrics.tokenised_lines([line]) == {}


def test_a_line_in_ten_is_refused_and_fewer_are_counted():
    said = ["A cat sat there."] * 19 + ["A cat sat ."]
    found = metrics.bleu(said, ["A cat sat here."] * 20)
    assert (found.details["tokenised_hypotheses"], found.details["tokenised_references"]) == (1, 0)
    said[4] = "A cat , sat there."
    with pytest.raises(
        UnmaskError, match="The hypotheses look tokenised: 2 of 20 lines do, the first is line 5 with ' ,'"
    ):
        metrics.bleu(said, ["A cat sat here."] * 20)
    with pytest.raises(UnmaskError, match=r"The references \(set 2\) look tokenised: 2 of 20"):
        metrics.bleu(["A cat sat here."] * 20, [["A cat sat here."] * 20, said])


# ------------------------------------------------------------------------------------------------ bad input

SCORES = [
    metrics.bleu,
    metrics.chrf,
    metrics.multi30k_bleu,
    metrics.exact_match_accuracy,
    metrics.confidence_interval,
    lambda said, true: metrics.by_length(said, said, true),
    lambda said, true: metrics.paired_bootstrap(said, said, true),
]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("said", "true", "message"),
    [
        (["a", "b"], ["a"], "2 hypotheses and 1 references; line n of both"),
        (["a", "b"], [["a", "b"], ["a"]], r"2 hypotheses and 1 references \(set 2\)"),
        ([], [], "no hypotheses"),
        (["a"], [], "no references"),
        ("a", "a", "A single text"),
        (["a"], "a", "A single text"),
        (["a", None], ["a", "b"], "Line 2 of the hypotheses is None"),
        (["a", "b"], ["a", 3], "Line 2 of the references is 3"),
        (["a", "b"], [["a", None], ["b", None]], "Line 2 has no reference"),
        (["a"], [None], "Line 1 has no reference"),
    ],
)
def test_what_cannot_be_scored(score, said, true, message):
    with pytest.raises(UnmaskError, match=message):
        score(said, true)


# ------------------------------------------------------------------------------------------------ accuracy


def test_exact_matches_do_not_look_at_spaces():
    said = ["2024-05-01", " 2024-05-02 ", "2024-05-03", ""]
    assert metrics.exact_match_accuracy(said, ["2024-05-01", "2024-05-02", "2024-05-04", "x"]) == 0.5
    assert metrics.exact_match_accuracy(["b", "a"], [["a", "b"], ["b", None]]) == 0.5


def test_token_accuracy_looks_at_places():
    assert metrics.token_accuracy(["a b c"], ["a x c"]) == pytest.approx(2 / 3)
    assert metrics.token_accuracy(["a b c d"], ["a b"]) == metrics.token_accuracy(["a b"], ["a b c d"]) == 0.5
    assert metrics.token_accuracy(["2024-05-01"], ["2024-05-11"], split=list) == 0.9
    assert metrics.token_accuracy([""], [""]) == 1.0
    with pytest.raises(UnmaskError, match="2 hypotheses and 1 references"):
        metrics.token_accuracy(["a", "b"], ["a"])


# ------------------------------------------------------------------------------------------------ by length


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_every_sentence_is_in_the_bucket_of_its_length(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    bounds = sorted(data.draw(st.sets(st.integers(1, 14), min_size=1, max_size=4)))
    said, trues = corpus(rng, 20, 2, low=1)
    sources = [" ".join(sentence(rng, 0, 16)) for _ in said]
    buckets = metrics.by_length(sources, said, trues, bounds, force=True)
    assert [bucket.above for bucket in buckets] == [0, *bounds]
    assert [bucket.up_to for bucket in buckets] == [*bounds, None]
    assert sum(bucket.count for bucket in buckets) == 20
    for bucket in buckets:
        low, high = bucket.above if bucket.above else -1, np.inf if bucket.up_to is None else bucket.up_to
        rows = [i for i, source in enumerate(sources) if low < len(source.split()) <= high]
        assert bucket.count == len(rows)
        if not rows:
            assert bucket.score is None
            continue
        wanted = metrics.bleu([said[i] for i in rows], [[texts[i] for i in rows] for texts in trues], force=True)
        assert bucket.score == wanted


def test_buckets_share_their_tokenizer_and_name_their_length():
    sources, true = ["a", "a b c"], ["狗在叫。狗在公园里跑。", "Hallo"]
    short, long, rest = metrics.by_length(sources, true, true, (1, 3))
    assert (short.score.value, long.score.signature, rest.score) == (pytest.approx(100), short.score.signature, None)
    assert str(short).startswith("up to 1: 1 sentence, BLEU 100.00 (")
    assert str(long).startswith("over 1 up to 3: 1 sentence, BLEU")
    assert str(rest) == "over 3: 0 sentences, no score"
    by_character = metrics.by_length(["aaaa", "a"], true, true, (2,), ChrF(), length=len)
    assert [bucket.count for bucket in by_character] == [1, 1]
    assert by_character[0].score.name == "chrF2"


def test_the_whole_text_is_looked_through_not_each_bucket():
    sources = ["a b c"] + ["a"] * 19
    said = ["A cat sat ."] + ["A cat sat."] * 19
    assert metrics.by_length(sources, said, ["A cat sat."] * 20, (2,))[1].score.details["tokenised_hypotheses"] == 1


@pytest.mark.parametrize("bounds", [(), (0, 10), (10, 10), (20, 10), (-1,)])
def test_bounds_that_do_not_ascend(bounds):
    with pytest.raises(UnmaskError, match="bounds of lengths"):
        metrics.by_length(["a"], ["a"], ["a"], bounds)


def test_a_source_for_every_hypothesis():
    with pytest.raises(UnmaskError, match="2 sources and 1 hypotheses"):
        metrics.by_length(["a", "b"], ["a"], ["a"])


# ------------------------------------------------------------------------------------------------ how sure


@pytest.fixture(scope="module")
def systems():
    rng = np.random.default_rng(5)
    before, trues = corpus(rng, 60, 2, low=5, rate=0.5)
    after = [" ".join(changed(rng, text.split(), 0.4)) for text in trues[0]]
    return before, after, trues


@pytest.mark.parametrize(
    ("metric", "theirs"),
    [(Bleu(), sacrebleu.BLEU), (ChrF(words=2), lambda **_: sacrebleu.CHRF(word_order=2))],
)
def test_intervals_and_paired_tests_are_those_of_sacrebleu(monkeypatch, systems, metric, theirs):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    before, after, trues = systems
    scorer = theirs(force=True)
    wanted = scorer.corpus_score(before, trues, n_bootstrap=200)
    found = metrics.confidence_interval(before, trues, metric, trials=200, force=True)
    assert found.value == wanted.score
    assert found.details["mean"] == pytest.approx(wanted._mean, abs=1e-4)
    assert found.details["margin"] == pytest.approx(wanted._ci, abs=1e-4)
    assert found.signature == str(scorer.get_signature())
    assert found.details["low"] < found.value < found.details["high"]

    test = PairedTest([("before", before), ("after", after)], {"m": theirs(force=True)}, trues, "bs", n_samples=200)
    signatures, results = test()
    both = metrics.paired_bootstrap(before, after, trues, metric, trials=200, force=True)
    assert both.p_value == pytest.approx(results[found.name][1].p_value)
    assert both.baseline.value == results[found.name][0].score
    assert both.system.value == results[found.name][1].score
    assert both.system.signature == str(signatures[found.name])
    assert both.difference == both.system.value - both.baseline.value
    assert 0 < both.p_value < 1


def test_the_environment_does_not_choose_the_seed(monkeypatch, systems):
    before, _, trues = systems
    wanted = metrics.confidence_interval(before, trues, trials=20, force=True)
    monkeypatch.setenv("SACREBLEU_SEED", "1")
    assert metrics.confidence_interval(before, trues, trials=20, force=True) == wanted
    other = metrics.confidence_interval(before, trues, trials=20, seed=1, force=True)
    assert "seed:1|" in other.signature
    assert other.details["mean"] != wanted.details["mean"]


def test_the_test_tells_better_from_the_same(systems):
    before, _, trues = systems
    same = metrics.paired_bootstrap(before, before, trues, trials=50, force=True)
    assert (same.difference, same.p_value) == (0.0, 1.0)
    better = metrics.paired_bootstrap(before, trues[0], trues, trials=50, force=True)
    assert better.p_value < 0.05
    assert str(better).startswith(f"{better.difference:+.2f} BLEU (p = ")


def test_a_trial_at_least(systems):
    before, after, trues = systems
    with pytest.raises(UnmaskError, match="at least 1 trial, not 0"):
        metrics.confidence_interval(before, trues, trials=0, force=True)
    with pytest.raises(UnmaskError, match="at least 1 trial, not 0"):
        metrics.paired_bootstrap(before, after, trues, trials=0, force=True)
