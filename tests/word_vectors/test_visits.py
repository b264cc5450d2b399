"""Codes of visits: sets as contexts, how visits are read, vectors that know the groups of codes and what comes next."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.runs.word_vectors import Word2Vec, Words, WordVectors, jobs, train, visit_scores, visits

PATIENTS = st.lists(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), max_size=4), max_size=4)


def laid_out(patients):
    """The visits as numbers, as a corpus has them."""
    found = list(visits.in_sequence(patients))
    ends = np.cumsum([len(visit) for visit in found]).astype(np.int64)
    return np.array([code for visit in found for code in visit], np.int32), ends


@given(PATIENTS, st.integers(1, 3))
def test_a_context_is_the_set_of_codes_of_successive_visits(patients, span):
    sets, ends = jobs.unions(*laid_out(patients), span)
    found = [codes.tolist() for codes in np.split(sets, ends)][:-1]
    expected = [
        {code for visit in patient[max(0, first) : first + span] for code in visit}
        for patient in patients
        for first in range(1 - span, len(patient))
    ]
    assert [set(codes) for codes in found if codes] == [codes for codes in expected if codes]
    assert all(len(set(codes)) == len(codes) for codes in found)


def test_near_visits_count_more_and_patients_are_apart():
    sets, ends = jobs.unions(*laid_out([[[1], [2], [3], [4]], [[5], [6]]]), 3)
    pairs = Counter(pair for codes in np.split(sets, ends) for pair in combinations(sorted(codes.tolist()), 2))
    assert pairs == {(1, 2): 2, (2, 3): 2, (3, 4): 2, (1, 3): 1, (2, 4): 1, (5, 6): 2}


def test_vectors_know_the_groups_and_what_comes_next():
    pytest.importorskip("numba", reason="training needs numba")
    found = list(visits.made_up(300, np.random.default_rng(0)))
    config = Word2Vec(dim=16, visits=1, epochs=10, words=Words(subsample=0))
    vectors = train(found[:240], config, threads=1).vectors
    groups = {code: code[0] for patient in found for visit in patient for code in visit}
    near = visit_scores.neighbours(vectors, groups)
    assert near.precision > 0.4 > 8 * near.chance
    recalls = visit_scores.next_visits(vectors, found[240:])
    assert recalls[visit_scores.VECTORS]["new"] > recalls[visit_scores.FREQUENT]["new"] + 0.02
    assert recalls[visit_scores.REPEATED]["new"] == recalls[visit_scores.FREQUENT]["new"]


def test_recall_of_the_next_visit_by_hand():
    vectors = WordVectors(["a", "b", "c", "d"], np.array([[1, 0], [0, 1], [0.9, 0.1], [0.1, 0.9]], np.float32))
    patients = [[["a"], ["c", "b", "missing"]], [["b"], ["b", "d"]], [["d"]]]
    found = visit_scores.next_visits(vectors, patients, top=2)
    assert found[visit_scores.VECTORS] == {"all": (0.5 + 1) / 2, "new": (0.5 + 1) / 2}
    assert found[visit_scores.FREQUENT] == {"all": (0.5 + 0.5) / 2, "new": (1 + 0) / 2}
    assert found[visit_scores.REPEATED] == {"all": (0.5 + 0.5) / 2, "new": (1 + 0) / 2}
    with pytest.raises(UnmaskError, match="two successive visits"):
        visit_scores.next_visits(vectors, [[["a"]]])
    near = visit_scores.neighbours(vectors, {"a": "x", "c": "x", "b": "y", "d": "y", "e": "y"}, top=1)
    assert (near.precision, near.codes, near.unknown) == (1.0, 4, 1)
    assert near.chance == pytest.approx(1 / 3)


def test_lines_and_tables_are_the_same_visits(tmp_path):
    patients = [[["E11", "I10"], ["N18"]], [["4019"]]]
    (tmp_path / "visits.jsonl").write_text('[["E11", "I10"], ["N18"]]\n\n[[4019]]\n')
    rows = [("7", "1", "E11"), ("7", "1", "I10"), ("7", "2", "N18"), ("8", "9", "4019")]
    text = "".join(",".join(row) + "\n" for row in [("subject_id", "hadm_id", "icd_code"), *rows])
    (tmp_path / "visits.csv").write_text(text)
    assert list(visits.read([tmp_path / "visits.jsonl"])) == patients
    assert list(visits.read([tmp_path / "visits.csv"])) == patients


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '["E11", "I10"]\n', "a.jsonl:1 must be a list of visits"),
        ("a.jsonl", "[[1.5]]\n", "must be a list of visits"),
        ("a.csv", "patient,code\n1,E11\n", "must have the columns patient, visit and code, not patient, code"),
        ("a.csv", "patient,visit,code\n1,1,E11\n1,,E12\n", "a.csv:3 must have a patient"),
        ("a.csv", "patient,visit,code\n1,1,A\n2,1,B\n1,2,C\n", "'1' in .* do not follow each other"),
        ("a.txt", "E11 I10\n", "must be .jsonl, or a table"),
    ],
)
def test_files_of_another_form_are_refused(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(UnmaskError, match=message):
        list(visits.read([tmp_path / name]))
    with pytest.raises(UnmaskError, match="There is no file"):
        list(visits.read([tmp_path / "missing.jsonl"]))


@given(st.lists(st.lists(st.sampled_from("abcdefx"), max_size=5), min_size=1, max_size=5), st.integers(1, 7))
def test_an_item_left_out_is_ranked_as_scikit_learn_ranks_it(baskets, top):
    matrix = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    vectors = WordVectors(list("abcdef"), matrix)
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    gains = []
    for basket in baskets:
        places = sorted({"abcdef".index(item) for item in basket if item != "x"})
        for wanted in places if len(places) > 1 else []:
            rest = [i for i in places if i != wanted]
            ranked = [i for i in range(6) if i not in rest]
            scores = unit[ranked] @ unit[rest].mean(0)
            gains.append(ndcg_score([[i == wanted for i in ranked]], [scores], k=top))
    if not gains:
        with pytest.raises(UnmaskError, match="No basket has two items"):
            visit_scores.left_out(vectors, baskets, top)
        return
    found = visit_scores.left_out(vectors, baskets, top)[visit_scores.VECTORS]
    assert found["ndcg"] == pytest.approx(np.mean(gains), abs=1e-6)
    assert found["hit"] == pytest.approx(np.mean(np.array(gains) > 0))


def test_baskets_are_sets_of_items_in_any_file(tmp_path, monkeypatch, capsys):
    pytest.importorskip("numba", reason="training needs numba")
    monkeypatch.chdir(tmp_path)
    baskets = [[f"{'ab'[i % 2]}{n}" for n in np.random.default_rng(i).permutation(6)[:4]] for i in range(200)]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(basket) + "\n" for basket in baskets))
    (tmp_path / "lines.txt").write_text("".join(" ".join(basket) + "\n" for basket in baskets))
    (tmp_path / "nested.jsonl").write_text("".join(json.dumps([basket]) + "\n" for basket in baskets))
    found = [list(visits.read([name], alone=True)) for name in ("lists.jsonl", "lines.txt", "nested.jsonl")]
    assert found[0] == found[1] == found[2] == [[basket] for basket in baskets]
    settings = ["--visits", "0", "--subsample", "0", "--dim", "8", "--epochs", "20", "--threads", "1"]
    main(["pretrain", "word2vec", "--data", "lines.txt", *settings])
    capsys.readouterr()
    main(["words", "evaluate", "--model", "runs/word2vec", "--baskets", "lists.jsonl", "--top", "3", "--json"])
    scores = json.loads(capsys.readouterr().out)["baskets"]
    assert scores[visit_scores.VECTORS]["hit"] == 1.0  # 3 of a group of 6 are given: only 3 are left
    assert scores[visit_scores.FREQUENT]["hit"] < 0.9
    main(["words", "evaluate", "--model", "runs/word2vec", "--baskets", "lines.txt"])
    assert "left out of a basket" in capsys.readouterr().out


def test_from_made_up_visits_to_scores(tmp_path, monkeypatch, capsys):
    pytest.importorskip("numba", reason="training needs numba")
    monkeypatch.chdir(tmp_path)
    main(["words", "visits", "--out", "codes", "--patients", "60"])
    assert "--visits 1 --subsample 0" in capsys.readouterr().out
    main(["pretrain", "word2vec", "--data", "codes/train.jsonl", "--visits", "1", "--dim", "8", "--threads", "1"])
    capsys.readouterr()
    words = ["words", "evaluate", "--model", "runs/word2vec", "--groups", "codes/groups.tsv"]
    main([*words, "--visits", "codes/test.jsonl"])
    said = capsys.readouterr().out
    assert "share the group" in said
    assert "the most frequent ones" in said
    main([*words, "--top", "3", "--json"])
    assert json.loads(capsys.readouterr().out)["groups"]["codes"] > 50
    with pytest.raises(SystemExit):
        main(["pretrain", "word2vec", "--visits", "1", "--out", "none"])
    assert "words visits` writes made-up ones" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["words", "visits", "--out", "codes"])
    assert "holds something already" in capsys.readouterr().err


def test_settings_that_do_not_go_together_are_refused():
    for config in (Word2Vec(visits=-1), Word2Vec(visits=1, words=Words(phrases=2))):
        with pytest.raises(UnmaskError, match="visits must not be negative"):
            config.check()
