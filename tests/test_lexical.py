"""Words counted and weighed, beside scikit-learn; the baselines of every task, on rows whose answers are known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from unmask import metrics
from unmask.cli import main
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.baselines import Baselines, baselines
from unmask.tasks import lexical
from unmask.tasks.lexical import Vocabulary, one_hot, regression, tagging, tf_idf, words

TEXTS = st.lists(st.text("abAB1é ㄱ한,.\n", max_size=30), min_size=1, max_size=8)


def quiet(text):
    pass


def scores(**fields):
    """Baseline -> its scores on the dev rows."""
    return {name: row["dev"] for name, row in baselines(Baselines().override(fields), quiet)["scores"].items()}


def write(path, lines, header="text\tlabel"):
    path.write_text("\n".join([header, *("\t".join(line) for line in lines)]) + "\n", encoding="utf-8")
    return str(path)


# ------------------------------------------------------------------------------------------------ vectors


def test_scripts_without_spaces_are_read_character_by_character() -> None:
    assert words("猫が the Film, กา 좋은") == ["猫", "が", "the", "film", "ก", "า", "좋은"]


@given(TEXTS, TEXTS)
def test_vectors_are_those_of_scikit_learn(train, texts):
    pattern = {"token_pattern": r"\w+"}
    if not any(words(text) for text in train):
        with pytest.raises(UnmaskError, match="No training text has a word"):
            Vocabulary.of(train)
        return
    vocabulary = Vocabulary.of(train)
    counted, weighed = CountVectorizer(binary=True, **pattern).fit(train), TfidfVectorizer(**pattern).fit(train)
    assert vocabulary.columns == counted.vocabulary_
    for given_texts in (train, texts):
        for ours, theirs in ((one_hot, counted), (tf_idf, weighed)):
            found = ours(given_texts, vocabulary).toarray()
            assert np.abs(found - theirs.transform(given_texts).toarray()).max(initial=0) < 1e-12


def test_the_words_of_a_text():
    assert words("It isn't “Übung” No. 3 — नमस्ते, 東京!") == ["it", "isn't", "übung", "no", "3", "नमस्ते", "東", "京"]


# ------------------------------------------------------------------------------------------------ regressions


def drawn(seed, rows=60, columns=8):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, columns))
    return (
        features,
        features @ rng.normal(size=(columns, 3)) + rng.normal(size=(rows, 3)),
        rng.normal(size=(9, columns)),
    )


def dealt(values):
    """Which of three parts each row is in: the rows in the order of their values, dealt like cards."""
    part = np.empty(len(values), int)
    for place, row in enumerate(sorted(range(len(values)), key=lambda i: (values[i], i))):
        part[row] = place % 3
    return PredefinedSplit(part)


@pytest.mark.parametrize("seed", range(3))
def test_the_strength_is_chosen_on_the_training_rows(seed):
    features, true, others = drawn(seed)
    ids, strengths = true.argmax(1), [0.01, 0.1, 1, 10]
    theirs = GridSearchCV(LogisticRegression(max_iter=300), {"C": strengths}, cv=dealt(ids), scoring="accuracy")
    assert regression.classes(features, ids, 3)(others) == pytest.approx(
        theirs.fit(features, ids).predict_proba(others)
    )
    sets = (true > 0).astype(int)
    found = regression.label_sets(features, sets)(others)
    cv = PredefinedSplit(np.arange(len(sets)) % 3)
    means = []
    for strength in strengths:
        said = np.zeros_like(sets)
        for rest, part in cv.split():
            for label in range(3):
                fitted = LogisticRegression(C=strength, max_iter=300).fit(features[rest], sets[rest, label])
                said[part, label] = fitted.predict(features[part])
        means.append(np.mean([f1_score(sets[part], said[part], average="micro") for _, part in cv.split()]))
    best = strengths[int(np.argmax(means))]
    for label in range(3):
        fitted = LogisticRegression(C=best, max_iter=300).fit(features, sets[:, label])
        assert found[:, label] == pytest.approx(fitted.predict_proba(others)[:, 1])
    ridge = GridSearchCV(Ridge(), {"alpha": [100, 10, 1, 0.1]}, cv=dealt(true[:, 0]), scoring="neg_mean_squared_error")
    expected = ridge.fit(features, true[:, 0]).predict(others)
    assert regression.scores(features, true[:, 0])(others)[:, 0] == pytest.approx(expected)


def test_few_rows_and_absent_classes_are_learned_from(recwarn):
    features = 10 * np.eye(3)
    answer = regression.classes(features, np.array([0, 2, 2]), 4)
    assert answer(features).argmax(1).tolist() == [0, 2, 2]
    assert not answer(features)[:, [1, 3]].any()
    sets = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 1]])
    assert (regression.label_sets(features, sets)(features)[:, 1:] == [0, 1]).all()
    assert np.isfinite(regression.label_sets(features[:1], sets[:1])(features)).all()
    assert regression.scores(features[:2], np.array([1.0, 3.0]))(features[:2])[:, 0].argmax() == 1
    assert not recwarn


def test_tags_of_few_sentences():
    rows = [Row(words=("a", "B"), tags=("O", "X")), Row(words=("a", "c"), tags=("O", "O"))]
    assert tagging.tag(rows, rows) == [["O", "X"], ["O", "O"]]


def test_the_predicate_is_a_feature_of_roles():
    row = ("cats", "chase", "dogs")
    found = [lexical.features(row, place, 1) for place in range(3)]
    assert [one["from predicate"] for one in found] == ["-1", "+0", "+1"]
    assert {one["predicate"] for one in found} == {"chase"}
    assert lexical.features(("v", *"abcdefgh"), 8, 0)["from predicate"] == "+5"
    assert "predicate" not in lexical.features(row, 0)


# ------------------------------------------------------------------------------------------------ tasks

SAID = {"good": "yes", "fine": "yes", "great": "yes", "bad": "no", "dull": "no", "poor": "no"}
FILMS = [(f"a {word} film {i}", label) for i in range(9) for word, label in SAID.items()]


def test_texts(tmp_path):
    train = write(tmp_path / "train.tsv", FILMS)
    dev = write(tmp_path / "dev.tsv", [("the good plot", "yes"), ("so poor", "no"), ("dull", "no")])
    found = scores(train=train, dev=dev)
    assert found["baseline"]["accuracy"] == pytest.approx(2 / 3)
    assert found["one-hot"]["accuracy"] == found["tf-idf"]["accuracy"] == 1


def test_the_held_out_rows_and_the_baseline_are_those_of_finetune(tmp_path):
    from unmask.tasks.reading import read_sets

    train = write(tmp_path / "train.tsv", [*FILMS, *((f"film {i}", "yes") for i in range(20))])
    config = FineTuning().override({"train": train, "seed": 3})
    sets = read_sets(config.task, config.rows, quiet, np.random.default_rng(config.seed))
    task = config.kind.learned(sets, config.options, quiet, held_out=True)
    found = scores(train=train, seed=3)
    assert found["baseline"] == task.baseline(sets["dev"].rows, sets["train"].rows)
    vectorizer = TfidfVectorizer(token_pattern=r"\w+")
    ids = np.array([task.labels.index(row.label) for row in sets["train"]])
    features = vectorizer.fit_transform([row.text for row in sets["train"]])
    search = GridSearchCV(LogisticRegression(max_iter=300), {"C": [0.01, 0.1, 1, 10]}, cv=dealt(ids))
    said = search.fit(features, ids).predict(vectorizer.transform([row.text for row in sets["dev"]]))
    true = [task.labels.index(row.label) for row in sets["dev"]]
    assert found["tf-idf"]["accuracy"] == pytest.approx(accuracy_score(true, said))
    assert found["tf-idf"]["macro_f1"] == pytest.approx(f1_score(true, said, average="macro"))


def pairs(number, seed):
    """Pairs of texts of which half share a word, as no single word tells."""
    rng = np.random.default_rng(seed)
    for i in range(number):
        first, second, other = rng.choice([f"w{n}" for n in range(60)], 3, replace=False)
        yield (f"{first} {second}", f"{second if i % 2 else other} too", "01"[i % 2])


@pytest.mark.parametrize(("task", "metric"), [("classification", "accuracy"), ("regression", "pearson")])
def test_pairs_are_told_by_what_they_share(task, metric, tmp_path):
    header = "sentence1\tsentence2\tlabel"
    train = write(tmp_path / "train.tsv", list(pairs(200, 0)), header)
    dev = write(tmp_path / "dev.tsv", list(pairs(60, 1)), header)
    found = scores(train=train, dev=dev, task=task, allow_overlap=True)
    assert found["one-hot"][metric] > 0.9
    assert found["tf-idf"][metric] > 0.9
    assert found["baseline"][metric] < 0.6


def test_pairs_and_single_texts_may_meet(tmp_path):
    single = write(tmp_path / "single.tsv", FILMS)
    header = "sentence1\tsentence2\tlabel"
    both = write(tmp_path / "both.tsv", [("good", "plot", "yes"), ("bad", "plot", "no")], header)
    for train, dev in ((single, both), (both, single)):
        assert scores(train=train, dev=dev)["one-hot"]["accuracy"] >= 0.5


def test_several_labels(tmp_path):
    own = [("red",), ("round",), ("red", "round"), ()]
    rows = [(f"{' '.join(labels)} {i}", ";".join(labels)) for i in range(8) for labels in own]
    train = write(tmp_path / "train.tsv", rows, "text\tlabels")
    dev = write(tmp_path / "dev.tsv", [("red", "red"), ("round red", "red;round"), ("blue", "")], "text\tlabels")
    found = scores(train=train, dev=dev, task="multilabel", several=";")
    assert found["one-hot"]["accuracy"] == found["tf-idf"]["accuracy"] == 1


TAGGED = "".join(
    f"{name} B-PER\nsaw O\n{place} B-LOC\n\n" for name in ("Ann", "Bo", "Cy") for place in ("Rome", "Oslo")
)


def test_tags_of_a_word_and_its_neighbours(tmp_path):
    (tmp_path / "train.conll").write_text(TAGGED)
    (tmp_path / "dev.conll").write_text("Di B-PER\nsaw O\nOslo B-LOC\n")
    found = scores(train=str(tmp_path / "train.conll"), dev=str(tmp_path / "dev.conll"), task="tagging")
    assert found["baseline"]["f1"] == 0
    assert found["lexical"]["f1"] == 1
    assert list(found) == ["baseline", "lexical"]


def test_roles_depend_on_the_predicate(tmp_path):
    def sentence(subject, verb, thing):
        return f"{subject} - (A0*) (A1*)\n{verb}s {verb} (V*) *\nand - * *\nfinds find * (V*)\n{thing} - * (A0*)\n\n"

    things = ("cats", "dogs", "cows", "pigs")
    rows = [sentence(a, verb, b) for a in things for b in things for verb in ("chase", "see")]
    (tmp_path / "train.conll").write_text("".join(rows[:-4]))
    (tmp_path / "dev.conll").write_text("".join(rows[-4:]))
    files = {"train": str(tmp_path / "train.conll"), "dev": str(tmp_path / "dev.conll")}
    assert scores(**files, task="roles", allow_overlap=True)["lexical"]["f1"] == 1


def test_the_nearest_choice(tmp_path):
    header = "context\tquestion\tchoice0\tchoice1\tchoice2\tlabel"
    rows = [("a red ball rolls", "what rolls", "the sky", "the ball", "a cow", "1")]
    rows += [("cows eat grass", "what eats", "a red sky", "one ball", "the cows", "2")]
    path = write(tmp_path / "rows.tsv", rows, header)
    found = scores(train=path, dev=path, task="multiple-choice", allow_overlap=True)
    assert found["baseline"]["accuracy"] == 0.5
    assert found["one-hot"]["accuracy"] == found["tf-idf"]["accuracy"] == 1


SIMILAR = [("a red ball", "the red ball", "5"), ("a cow", "the red sky", "0"), ("the sky", "a blue sky", "3")]
SIMILAR += [("one cow eats", "a cow eats grass", "4"), ("a ball", "a cow", "1")]


def test_similarity_is_the_cosine_of_scikit_learn(tmp_path):
    path = write(tmp_path / "rows.tsv", SIMILAR, "sentence1\tsentence2\tscore")
    found = scores(train=path, dev=path, task="embedding", allow_overlap=True)
    true = np.array([float(score) for *_, score in SIMILAR])
    for name, vectorizer in (("one-hot", CountVectorizer), ("tf-idf", TfidfVectorizer)):
        settings = {"binary": True} if name == "one-hot" else {}
        known = vectorizer(token_pattern=r"\w+", **settings).fit([text for row in SIMILAR for text in row[:2]])
        near = [cosine_similarity(*known.transform(row[:2]).toarray()[:, None])[0, 0] for row in SIMILAR]
        assert found[name]["pearson"] == pytest.approx(metrics.of_scores(np.array(near), true)["pearson"])


def test_classes_of_pairs_for_vectors_are_learned(tmp_path):
    header = "sentence1\tsentence2\tgold_label"
    rows = [(a, b, ("unlike", "like")[int(c)]) for a, b, c in pairs(200, 0)]
    path = write(tmp_path / "rows.tsv", rows, header)
    classes = scores(train=path, dev=path, task="embedding", allow_overlap=True)
    assert classes == scores(train=path, dev=path, allow_overlap=True)


def test_retrieval_of_the_second_text(tmp_path):
    path = write(tmp_path / "rows.tsv", [row[:2] for row in SIMILAR], "sentence1\tsentence2")
    found = scores(train=path, dev=path, task="embedding", allow_overlap=True)["one-hot"]
    assert set(found) == {"recall@1", "recall@10", "mrr"}
    assert found["recall@1"] == 0.6  # "a cow" is nearest to "a cow", "a ball" to "the red ball"


def test_the_nearest_sentence(tmp_path):
    context = "The cat sleeps. The dog barks at night. Cows eat grass."
    asked = [("Who barks at night?", "The dog barks at night."), ("What do cows eat?", "grass")]
    questions = [
        {"id": str(i), "question": text, "answers": [{"text": gold, "answer_start": context.index(gold)}]}
        for i, (text, gold) in enumerate(asked)
    ]
    rows = {"data": [{"title": "", "paragraphs": [{"context": context, "qas": questions}]}]}
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    found = scores(train=str(path), dev=str(path), task="question-answering", allow_overlap=True)
    assert found["tf-idf"] == {"exact_match": 0.5, "f1": pytest.approx(0.75)}  # 1 word of 3 is right in the second


# ------------------------------------------------------------------------------------------------ the command


def test_the_table_and_its_json(tmp_path, capsys):
    train = write(tmp_path / "train.tsv", FILMS)
    dev, test = (write(tmp_path / name, [("the good plot", "yes"), ("so poor", "no")]) for name in ("dev.tsv", "t.tsv"))
    arguments = ["baseline", "--train", train, "--dev", dev, "--test", test]
    main(arguments)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines.count(["dev", "accuracy", "f1", "macro_f1", "mcc", "seconds"]) == 1
    assert lines[-5] == []
    assert [line[0] for line in lines[-4:]] == ["test", "baseline", "one-hot", "tf-idf"]
    assert lines[-1][:5] == ["tf-idf", "1.0000", "1.0000", "1.0000", "1.0000"]
    main([*arguments, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["scores"]["one-hot"]["test"]["accuracy"] == 1
    assert found["scores"]["one-hot"]["seconds"] > 0
    assert any(note.startswith("Labels: ") for note in found["notes"])


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        ([("good", "yes"), ("fine", "yes")], [], "a single label, 'yes'"),
        ([("!", "yes"), ("...", "no")], [], "No training text has a word"),
        ([("good", "1"), ("bad", "1")], ["--task", "regression"], "a single score"),
        ([("good", "yes"), ("bad", "no")], ["--task", "regression"], "is not a number"),
        ([("good", "yes"), ("bad", "no")], ["--length", "64"], "--length cuts the input of a model"),
        ([("good", "yes"), ("bad", "no")], ["--characters"], "--characters is for --task question-answering"),
        ([("good", "yes"), ("bad", "no")], ["--balance", "weights"], "There is no field 'balance'"),
        ([("good", "yes"), ("bad", "no")], ["--text", "review"], "review"),
        ([("good", "yes"), ("bad", "no")], ["--task", "embedding"], "no columns of pairs"),
    ],
)
def test_bad_rows_are_one_sentence(rows, options, sentence, tmp_path, capsys):
    train, dev = write(tmp_path / "train.tsv", rows), write(tmp_path / "dev.tsv", [("so so", rows[0][1])])
    with pytest.raises(SystemExit):
        main(["baseline", "--train", train, "--dev", dev, *options])
    error = capsys.readouterr().err
    assert error.startswith("unmask: ")
    assert error.count("\n") == 1
    assert sentence in error


def test_a_strange_class_of_a_pair_is_named(tmp_path):
    header = "sentence1\tsentence2\tgold_label"
    train = write(tmp_path / "train.tsv", [("a b", "a", "yes"), ("c d", "e", "no")], header)
    dev = write(tmp_path / "dev.tsv", [("f g", "h", "maybe")], header)
    with pytest.raises(UnmaskError, match=r"dev.tsv:2 has the label 'maybe'"):
        scores(train=train, dev=dev, task="embedding")
