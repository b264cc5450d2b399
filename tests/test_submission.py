"""Submissions: the files that GLUE takes, the zip, and averages held against published ones."""

from __future__ import annotations

import os
import zipfile

import numpy as np
import pytest

from unmask.data.labelled import glue
from unmask.errors import UnmaskError
from unmask.runs import submission

# ------------------------------------------------------------------------------------------------ files


def test_a_file_of_labels(tmp_path):
    (note,) = submission.write(tmp_path, "rte", ["entailment", "not_entailment"])
    assert (tmp_path / "RTE.tsv").read_bytes() == b"index\tprediction\n0\tentailment\n1\tnot_entailment\n"
    assert note.startswith("RTE.tsv has 2 predictions, but the official test set of RTE has 3,000 rows")


def test_0_and_1_may_be_numbers(tmp_path):
    submission.write(tmp_path, "cola", list(np.array([1, 0])), ids=["7", "8"])
    assert (tmp_path / "CoLA.tsv").read_text() == "index\tprediction\n7\t1\n8\t0\n"


def test_the_official_number_of_rows_is_no_matter(tmp_path):
    assert submission.write(tmp_path, "wnli", ["0"] * 146, ids=[""] * 146) == ()
    assert (tmp_path / "WNLI.tsv").read_text().splitlines()[-1] == "145\t0"


def test_scores_stay_on_their_scale(tmp_path):
    notes = submission.write(tmp_path, "stsb", [np.float64(2.5), "1e-05", -0.25, 5.5])
    lines = (tmp_path / "STS-B.tsv").read_text().splitlines()
    assert [float(line.split("\t")[1]) for line in lines[1:]] == [2.5, 1e-05, 0.0, 5.0]
    assert notes[0] == "Scores outside 0 to 5 that were clipped: 2."


def test_answers_to_a_test_file_bear_its_ids(tmp_path):
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n4\ta\tb\n2\tc\td\n")
    rows = glue.split("ax", tmp_path, "test")
    submission.write(tmp_path, "ax", ["neutral", "contradiction"], [row.id for row in rows])
    assert (tmp_path / "AX.tsv").read_text() == "index\tprediction\n4\tneutral\n2\tcontradiction\n"


@pytest.mark.parametrize(
    ("name", "answers", "ids", "message"),
    [
        ("rte", ["entailment", "1"], None, "row 1 of RTE is '1'; it must be one of entailment, not_entailment"),
        ("rte", ["entailment"], ["a", "b"], "RTE has 1 prediction but 2 ids"),
        ("rte", ["entailment"] * 2, ["a", "a"], "Two rows of RTE have the id 'a'"),
        ("rte", ["entailment"] * 2, ["a", ""], "Row 2 of RTE has the id ''"),
        ("rte", ["entailment"] * 2, ["a", "b\tc"], r"Row 2 of RTE has the id 'b\\tc'"),
        ("stsb", ["good"], None, "row 0 of STS-B is 'good'; it must be a number"),
        ("stsb", [float("nan")], None, "row 0 of STS-B is 'nan'"),
        ("snli", ["neutral"], None, "SNLI is not a GLUE task"),
        ("mnil", ["neutral"], None, "did you mean 'MNLI-m'"),
    ],
)
def test_bad_answers_leave_no_file(tmp_path, name, answers, ids, message):
    with pytest.raises(UnmaskError, match=message):
        submission.write(tmp_path, name, answers, ids)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ zip


def test_the_zip_holds_what_there_is_and_tells_the_rest(tmp_path):
    submission.write(tmp_path, "rte", ["entailment"])
    submission.write(tmp_path, "cola", [1])
    (tmp_path / "other.tsv").write_text("x")
    missing = submission.pack(tmp_path)
    assert set(missing) == {f"{name}.tsv" for name in glue.GLUE} - {"RTE.tsv", "CoLA.tsv"}
    with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
        assert archive.namelist() == ["CoLA.tsv", "RTE.tsv"]
        assert archive.read("RTE.tsv") == (tmp_path / "RTE.tsv").read_bytes()
        assert archive.testzip() is None


def test_the_same_files_give_the_same_bytes(tmp_path):
    for name in glue.GLUE:
        submission.write(tmp_path, name, [*glue.find(name).labels] or [1.5])
    assert submission.pack(tmp_path) == ()
    first = (tmp_path / "submission.zip").read_bytes()
    for name in reversed(glue.GLUE):
        path = tmp_path / f"{name}.tsv"
        path.chmod(0o600)
        os.utime(path, (0, 10**9))
    submission.pack(tmp_path)
    assert (tmp_path / "submission.zip").read_bytes() == first


def test_what_cannot_be_packed(tmp_path):
    with pytest.raises(UnmaskError, match="no file of predictions"):
        submission.pack(tmp_path)
    (tmp_path / "RTE.tsv").write_text("id\tanswer\n0\tentailment\n")
    with pytest.raises(UnmaskError, match=r"RTE.tsv does not begin with the columns index and prediction"):
        submission.pack(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["RTE.tsv"]


# ------------------------------------------------------------------------------------------------ average


def scores(**rest):
    """Scores of BERT-large as the leaderboard shows them, in per cent; QQP, MRPC and STS-B have two."""
    table = {
        "CoLA": {"mcc": 60.5},
        "SST-2": {"accuracy": 94.9},
        "MRPC": {"f1": 89.3, "accuracy": 85.4},
        "STS-B": {"pearson": 87.6, "spearman": 86.5},
        "QQP": {"f1": 72.1, "accuracy": 89.3},
        "MNLI-m": {"accuracy": 86.7},
        "MNLI-mm": {"accuracy": 85.9},
        "QNLI": {"accuracy": 92.7},
        "RTE": {"accuracy": 70.1},
        "WNLI": {"accuracy": 65.1},
        "AX": {"mcc": 39.6},
        **rest,
    }
    return {name: {metric: v / 100 for metric, v in found.items()} for name, found in table.items() if found}


def test_the_leaderboard_score_of_bert_large():
    """80.5, entry "BERT: 24-layers, 16-heads, 1024-hidden" of gluebenchmark.com."""
    found = submission.average(scores(), wnli=True)
    assert round(found.value, 1) == 80.5
    assert found.missing == ()
    assert found.tasks["MNLI"] == pytest.approx(86.3)
    assert found.tasks["QQP"] == pytest.approx(80.7)


def test_the_averages_of_the_bert_paper():
    """82.1 and 79.6, Table 1 of Devlin et al. (2018)."""
    assert round(submission.average(scores()).paper, 1) == 82.1
    base = scores(
        **{"MNLI-m": {"accuracy": 84.6}, "MNLI-mm": {"accuracy": 83.4}, "QNLI": {"accuracy": 90.5}},
        **{"QQP": {"f1": 71.2, "accuracy": 0}, "SST-2": {"accuracy": 93.5}, "CoLA": {"mcc": 52.1}},
        **{"STS-B": {"pearson": 0, "spearman": 85.8}, "MRPC": {"f1": 88.9, "accuracy": 0}, "RTE": {"accuracy": 66.4}},
    )
    assert round(submission.average(base).paper, 1) == 79.6


def test_wnli_and_the_diagnostic_rows_do_not_count_unless_asked():
    found = submission.average(scores())
    assert not {"WNLI", "AX"} & {*found.tasks, *found.missing}
    assert found.value == pytest.approx((60.5 + 94.9 + 87.35 + 87.05 + 80.7 + 86.3 + 92.7 + 70.1) / 8)
    assert submission.average(scores(WNLI={"accuracy": 0}, AX={"mcc": 0})).value == found.value
    assert submission.average(scores(AX=None), wnli=True).value != found.value


def test_the_table():
    given = scores(MRPC={"f1": 89.3, "accuracy": 85.5}, **{"STS-B": {"pearson": 87.7, "spearman": 86.5}})
    assert submission.average(given).table.splitlines() == [
        "task       score  metrics",
        "CoLA        60.5  mcc 60.5",
        "SST-2       94.9  accuracy 94.9",
        "MRPC        87.4  accuracy 85.5, f1 89.3",
        "STS-B       87.1  pearson 87.7, spearman 86.5",
        "QQP         80.7  accuracy 89.3, f1 72.1",
        "MNLI        86.3  MNLI-m accuracy 86.7; MNLI-mm accuracy 85.9",
        "QNLI        92.7  accuracy 92.7",
        "RTE         70.1  accuracy 70.1",
        "WNLI           -  accuracy 65.1 (not counted)",
        "AX             -  mcc 39.6 (not counted)",
        "average     82.5  of 8 tasks",
        "",
        "The score of a task is the mean of its metrics; MNLI is one task; AX (diagnostic rows) does not count.",
        "WNLI is left out, as in published averages of BERT-like models; the GLUE leaderboard counts it.",
        "Average as in Table 1 of the BERT paper (MNLI-m and -mm apart, one metric each): 82.1.",
    ]


def test_a_partial_average_says_so():
    found = submission.average({"mnli": {"accuracy": 0.8, "loss": 7.0}, "rte": {"accuracy": 0.6}}, wnli=True)
    assert (found.value, found.paper, found.tasks) == (pytest.approx(70), None, {"MNLI": 80.0, "RTE": 60.0})
    assert found.missing == ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-mm", "QNLI", "WNLI")
    lines = found.table.splitlines()
    assert "MNLI        80.0  MNLI-m accuracy 80.0; MNLI-mm missing" in lines
    assert "CoLA           -  missing" in lines
    assert "average     70.0  of 2 tasks, partial" in lines
    assert lines[-1] == f"The average is partial: there are no scores of {', '.join(found.missing)}."
    assert "WNLI counts" in found.table


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no scores for the average"),
        ({"ax": {"mcc": 0.3}, "wnli": {"accuracy": 0.6}}, "no scores for the average"),
        ({"mrpc": {"accuracy": 0.8}}, "no metric of MRPC 'f1'"),
        ({"rte": {"accuracy": 66.4}}, "accuracy of RTE is 66.4, but a fraction"),
        ({"rte": {"accuracy": float("nan")}}, "accuracy of RTE is nan"),
        ({"snli": {"accuracy": 0.9}}, "SNLI is not a GLUE task"),
        ({"mnli": {"accuracy": 0.9}, "MNLI-m": {"accuracy": 0.9}}, "MNLI-m under two names"),
    ],
)
def test_scores_that_cannot_be_averaged(given, message):
    with pytest.raises(UnmaskError, match=message):
        submission.average(given)
