"""Answers to questions, beside the rules of the SQuAD 1.1, SQuAD 2.0 and KorQuAD scripts written out."""

from __future__ import annotations

import re
import string
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask import metrics
from unmask.data.labelled.rows import Question
from unmask.errors import UnmaskError

FILES = 1_000
EXACT = {"rel": 0, "abs": 1e-9}
ENGLISH = "the The THE a an A-an theory cat Cat cats 1,000 U.S. U.S it's can't “cat” “the” Straße İ naïve the-cat …"
KOREAN = "서울 서울은 '서울' 〈서울〉 (서울) 《한국》 <한국> ‘서울’ 한국의,"
WORDS = [*f"{ENGLISH} {KOREAN} - ' \"".split(), "", "\t", "\u00a0", "\u3000", "the\u2009cat"]


def question(id, answers, possible=True):
    return Question(text="?", pair="…", id=id, answers=tuple((0, text) for text in answers), possible=possible)


# ------------------------------------------------------------------------------------------------ the published rules


def squad_normal(text):
    """Lower case; drop ASCII punctuation; drop articles; join by single spaces."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def korquad_normal(text):
    """Marks become spaces one by one; then as SQuAD, but with articles."""
    for mark in ["'", '"', "《", "》", "<", ">", "〈", "〉", "(", ")", "‘", "’"]:
        text = text.replace(mark, " ")
    return " ".join("".join(c for c in text.lower() if c not in string.punctuation).split())


def shared_f1(guess, gold):
    """F1 of two lists; 0 where they share nothing."""
    same = sum((Counter(guess) & Counter(gold)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(guess), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def squad_1_1(predicted, golds, normal=squad_normal, units=str.split):
    """The best of exact match, and of F1, over all golds; a question without a prediction scores nothing."""
    exact = f1 = 0.0
    for id, texts in golds.items():
        if id in predicted:
            exact += max(normal(predicted[id]) == normal(text) for text in texts)
            f1 += max(shared_f1(units(normal(predicted[id])), units(normal(text))) for text in texts)
    return {"exact_match": exact / len(golds), "f1": f1 / len(golds)}


def raw_2_0(predicted, golds):
    """id -> exact match and F1: golds of no words do not count, and an empty text is right where none is left."""
    exacts, f1s = {}, {}
    for id, texts in golds.items():
        texts = [text for text in texts if squad_normal(text)] or [""]
        guess = squad_normal(predicted[id]).split()
        exacts[id] = max(int(guess == squad_normal(text).split()) for text in texts)
        wanted = [squad_normal(text).split() for text in texts]
        f1s[id] = max(shared_f1(guess, gold) if guess and gold else float(guess == gold) for gold in wanted)
    return exacts, f1s


def squad_2_0(predicted, golds):
    exacts, f1s = raw_2_0(predicted, golds)
    found = {}
    parts = {
        "": list(golds),
        "has_answer_": [i for i in golds if golds[i]],
        "no_answer_": [i for i in golds if not golds[i]],
    }
    for part, ids in parts.items():
        if ids:
            found[part + "exact_match"] = sum(exacts[i] for i in ids) / len(ids)
            found[part + "f1"] = sum(f1s[i] for i in ids) / len(ids)
    return found


def best_2_0(predicted, golds, doubts):
    """Begin with no question answered; answer one after the other, the least doubtful first; keep the first best."""
    found = {}
    for name, scores in zip(("best_exact_match", "best_f1"), raw_2_0(predicted, golds), strict=True):
        score = best = sum(1 for texts in golds.values() if not texts)
        threshold = 0.0
        for id in sorted(doubts, key=doubts.get):
            score += scores[id] if golds[id] else (-1 if predicted[id] else 0)
            if score > best:
                best, threshold = score, doubts[id]
        found[name], found[f"{name}_threshold"] = best / len(golds), threshold
    return found


# ------------------------------------------------------------------------------------------------ random files


def random_text(rng, most=5):
    return str(rng.choice(["", " "])) + " ".join(rng.choice(WORDS, rng.integers(0, most)))


def random_guess(rng, texts):
    """Nothing, anything, or an answer as it is, cut, or with a word more."""
    if not texts or rng.random() < 0.3:
        return str(rng.choice(["", "the", random_text(rng)]))
    words = str(rng.choice(texts)).split(" ")
    guess = str(rng.choice([" ".join(words), " ".join(words[1:]), " ".join([*words, *words[:1]]), words[0].upper()]))
    return f"the {guess}." if rng.random() < 0.2 else guess


def random_file(rng, unanswerable):
    """golds and predictions by id."""
    golds = {
        f"q{i}": [] if unanswerable and rng.random() < 0.4 else [random_text(rng) for _ in range(rng.integers(1, 4))]
        for i in range(rng.integers(1, 10))
    }
    return golds, {id: random_guess(rng, texts) for id, texts in golds.items()}


def questions_of(golds):
    return [question(id, texts, possible=bool(texts)) for id, texts in golds.items()]


def test_answers_are_scored_as_squad_1_1_scores_them():
    rng = np.random.default_rng(0)
    telling = 0
    for _ in range(FILES):
        golds, predicted = random_file(rng, unanswerable=False)
        wanted = squad_1_1(predicted, golds)
        assert metrics.of_answers(predicted, questions_of(golds)) == pytest.approx(wanted, **EXACT)
        telling += 0 < wanted["exact_match"] != wanted["f1"] < 1
    assert telling > FILES / 4


def test_answers_are_scored_as_squad_2_0_scores_them():
    rng = np.random.default_rng(1)
    for _ in range(FILES):
        golds, predicted = random_file(rng, unanswerable=True)
        wanted = squad_2_0(predicted, golds)
        assert metrics.of_answers(predicted, questions_of(golds), unanswerable=True) == pytest.approx(wanted, **EXACT)
        if not all(golds.values()):
            assert metrics.of_answers(predicted, questions_of(golds)) == pytest.approx(wanted, **EXACT)


@pytest.mark.parametrize("tied", [False, True])
def test_thresholds_are_those_of_the_squad_2_0_script(tied):
    rng = np.random.default_rng(2)
    inner = 0
    for _ in range(FILES // 2):
        golds, predicted = random_file(rng, unanswerable=True)
        scores = rng.choice([0.0, 0.25, 0.5, 1.0], len(golds)) if tied else rng.random(len(golds))
        ids = rng.permutation(list(golds)).tolist()
        doubts = dict(zip(ids, scores.tolist(), strict=True))
        wanted = best_2_0(predicted, golds, doubts)
        inner += wanted["best_f1_threshold"] > 0
        found = metrics.best_threshold(predicted, doubts, questions_of(golds))
        assert found == pytest.approx(wanted, **EXACT)
    assert inner > FILES / 8


def test_answers_are_scored_as_korquad_scores_them():
    rng = np.random.default_rng(3)
    for _ in range(FILES // 2):
        golds, predicted = random_file(rng, unanswerable=False)
        wanted = squad_1_1(predicted, golds, korquad_normal, lambda text: [c for c in text if c != " "])
        found = metrics.of_answers(predicted, questions_of(golds), characters=True)
        assert found == pytest.approx(wanted, **EXACT)


# ------------------------------------------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    ("text", "squad", "korquad"),
    [
        ("The  Cat's-paw, a\tthing!", "catspaw thing", "the cat spaw a thing"),
        ("an theory of A", "theory of", "an theory of a"),
        ("“quoted” — dash", "“quoted” — dash", "“quoted” — dash"),
        ("“the”", "“ ”", "“the”"),
        ("1,000.5", "10005", "10005"),
        ("a.n", "", "an"),
        ("《서울》은", "《서울》은", "서울 은"),
        ("the", "", "the"),
        ("", "", ""),
    ],
)
def test_normalised(text, squad, korquad):
    wanted = squad
    if text == "a.n":
        wanted = squad_normal(text)  # punctuation goes first, so that an article is left
    assert metrics.normalise_answer(text) == wanted
    assert metrics.normalise_answer(text, characters=True) == korquad


def test_words_count_as_often_as_they_stand_and_the_nearest_answer_counts():
    assert metrics.token_f1("cat cat dog", ["cat dog dog"]) == pytest.approx(2 / 3)
    assert metrics.token_f1("cat", ["dog", "The cat sat", "cat sat on"]) == pytest.approx(2 / 3)
    assert metrics.exact_match("a cat!", ["dog", "Cat"]) == 1.0
    assert metrics.token_f1("서울은", ["서울"], characters=True) == pytest.approx(4 / 5)
    assert metrics.token_f1("서울은", ["서울"]) == 0.0
    assert metrics.exact_match("cat", []) == metrics.token_f1("cat", []) == 0.0


def test_nothing_is_an_answer_by_the_rules_of_2_0_alone():
    golds = [question("q", ["the"])]
    assert metrics.of_answers({"q": ""}, golds) == {"exact_match": 1.0, "f1": 0.0}
    found = metrics.of_answers({"q": ""}, golds, unanswerable=True)
    assert found == {"exact_match": 1, "f1": 1, "has_answer_exact_match": 1, "has_answer_f1": 1}


def test_an_answer_that_its_context_does_not_hold_counts_too():
    row = Question(text="?", pair="…", id="q", answers=((0, "dog"),), unplaced=("cat",))
    assert metrics.of_answers({"q": "cat"}, [row])["exact_match"] == 1.0
    row = Question(text="?", pair="…", id="q", unplaced=("cat",))
    assert metrics.of_answers({"q": "cat"}, [row]) == {"exact_match": 1.0, "f1": 1.0}


def test_a_question_without_a_prediction_is_counted_as_wrong():
    golds = [question("q", ["cat"]), question("r", ["dog"]), question("s", [], possible=False)]
    found = metrics.of_answers({"q": "cat", "elsewhere": "dog"}, golds)
    assert found["missing"] == 2.0
    assert found["exact_match"] == found["f1"] == pytest.approx(1 / 3)
    assert found["no_answer_f1"] == 0.0
    everything = metrics.of_answers(dict.fromkeys("qrs", ""), golds)
    assert "missing" not in everything


@given(st.data())
def test_the_threshold_gives_what_it_promises(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    golds, predicted = random_file(rng, unanswerable=True)
    golds = {id: [f"{text} cat" for text in texts] for id, texts in golds.items()}  # none of no words
    doubts = dict(zip(golds, rng.normal(size=len(golds)).tolist(), strict=True))  # differences of scores, also < 0
    found = metrics.best_threshold(predicted, doubts, questions_of(golds))

    def scored(metric, threshold):
        said = {id: "" if doubts[id] > threshold else text for id, text in predicted.items()}
        return metrics.of_answers(said, questions_of(golds), unanswerable=True)[metric]

    for metric in ("exact_match", "f1"):
        best = found[f"best_{metric}"]
        # A text of no words is a right answer where there is none, but the script does not credit it.
        assert scored(metric, found[f"best_{metric}_threshold"]) >= best - 1e-9
        if all(squad_normal(text) or not text for text in predicted.values()):
            assert scored(metric, found[f"best_{metric}_threshold"]) == pytest.approx(best, **EXACT)
            assert max(scored(metric, t) for t in (-np.inf, *doubts.values())) == pytest.approx(best, **EXACT)


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([], "no questions"),
        ([question("", ["cat"])], "no id"),
        ([question("q", ["cat"]), question("q", ["dog"])], "'q' as another question"),
        ([question("q", [])], "not marked as impossible"),
    ],
)
def test_questions_that_cannot_be_scored(questions, message):
    with pytest.raises(UnmaskError, match=message):
        metrics.of_answers({"q": "cat"}, questions)
    with pytest.raises(UnmaskError, match=message):
        metrics.best_threshold({"q": "cat"}, {"q": 0.5}, questions)


@pytest.mark.parametrize(("texts", "doubts"), [({}, {"q": 0.5}), ({"q": "cat"}, {}), ({"q": "cat"}, {"q": np.nan})])
def test_a_threshold_needs_a_text_and_a_score_of_every_question(texts, doubts):
    with pytest.raises(UnmaskError, match="'q' has no prediction or no no-answer score"):
        metrics.best_threshold(texts, doubts, [question("q", ["cat"])])
