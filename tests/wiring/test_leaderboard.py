"""GLUE from folders: the files of answers, what is missing, and the table of dev scores."""

from __future__ import annotations

import json
import shutil
import zipfile

import pytest
from finetune_toy import fields, reviews, write_tsv

from unmask import huggingface
from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.leaderboard import submit, table
from unmask.serve import Predictor

NLI = ("entailment", "neutral", "contradiction")
PAIR = ("index", "sentence1", "sentence2")


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    """A folder of GLUE with a few rows of some tasks."""
    folder = tmp_path_factory.mktemp("glue")
    for part, n, seed in (("train", 32, 1), ("dev", 16, 2)):
        rows = reviews(n, seed)
        write_tsv(folder / "SST-2" / f"{part}.tsv", rows)
        write_tsv(folder / "STS-B" / f"{part}.tsv", _pairs([(t, f"{5 * int(y)}") for t, y in rows]), (*PAIR, "score"))
        names = ("train",) if part == "train" else ("dev_matched", "dev_mismatched")
        for name in names:
            labelled = [(text, NLI[i % 3]) for i, (text, _) in enumerate(rows)]
            write_tsv(folder / "MNLI" / f"{name}.tsv", _pairs(labelled), (*PAIR, "gold_label"))
    texts = [text for text, _ in reviews(9, 3)]
    write_tsv(folder / "SST-2" / "test.tsv", [(str(i), text) for i, text in enumerate(texts)], ("index", "sentence"))
    for name in ("STS-B/test", "MNLI/test_matched", "MNLI/test_mismatched"):
        write_tsv(folder / f"{name}.tsv", [(str(i), text, "a plot") for i, text in enumerate(texts)], PAIR)
    return folder


def _pairs(rows):
    return [(str(i), text, "a plot", label) for i, (text, label) in enumerate(rows)]


@pytest.fixture(scope="module")
def runs(place, glue, tmp_path_factory):
    """A fine-tuned folder of each task."""
    folder = tmp_path_factory.mktemp("runs")
    usual = {**fields(*place), "dev": None, "epochs": 1, "seeds": 1, "allow_overlap": True}
    for name in ("SST-2", "STS-B", "mnli"):
        task = "regression" if name == "STS-B" else "classification"
        finetune(FineTuning().override({**usual, "train": glue, "benchmark": name, "task": task}), folder / name)
    return folder


def answers_in(path):
    head, *lines = path.read_text().splitlines()
    assert head == "index\tprediction"
    return [line.split("\t") for line in lines]


def test_answers_are_those_of_the_models(runs, glue, tmp_path):
    said = []
    missing = submit([runs / "SST-2", runs / "STS-B", runs / "mnli"], glue, tmp_path / "out", say=said.append)
    answers = answers_in(tmp_path / "out" / "SST-2.tsv")
    texts = [text for text, _ in reviews(9, 3)]
    assert answers == [[str(i), answer["label"]] for i, answer in enumerate(Predictor(runs / "SST-2")(texts))]
    assert all(0 <= float(score) <= 5 for _, score in answers_in(tmp_path / "out" / "STS-B.tsv"))
    for name in ("MNLI-m", "MNLI-mm"):
        assert {label for _, label in answers_in(tmp_path / "out" / f"{name}.tsv")} <= set(NLI)
    assert set(missing) == {f"{name}.tsv" for name in ("CoLA", "MRPC", "QQP", "QNLI", "RTE", "WNLI", "AX")}
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert set(archive.namelist()) == {"SST-2.tsv", "STS-B.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"}
    text = "\n".join(said)
    assert "AX: " in text  # the model of MNLI could answer it, but there are no rows
    assert "has 9 predictions, but the official test set of SST-2 has 1,821 rows" in text
    assert "These files are missing, and GLUE requires all: CoLA.tsv" in text


def test_a_folder_without_names_answers_by_number(runs, glue, tmp_path):
    plain = tmp_path / "plain"
    shutil.copytree(runs / "mnli", plain)
    (plain / "run.json").unlink()
    config = json.loads((plain / "config.json").read_text())
    # What "LABEL_0" stands for is the order of the benchmark, which is not the alphabetical one of the run.
    config["id2label"] = {str(i): f"LABEL_{i}" for i in range(3)}
    config["label2id"] = {f"LABEL_{i}": i for i in range(3)}
    (plain / "config.json").write_text(json.dumps(config))
    (plain / "manifest.json").unlink(missing_ok=True)
    own = huggingface.load(runs / "mnli").labels
    submit([f"MNLI-m={plain}"], glue, tmp_path / "plainly")
    submit([f"MNLI-m={runs / 'mnli'}"], glue, tmp_path / "named")
    named = answers_in(tmp_path / "named" / "MNLI-m.tsv")
    expected = [[i, NLI[own.index(label)]] for i, label in named]
    assert answers_in(tmp_path / "plainly" / "MNLI-m.tsv") == expected
    assert not (tmp_path / "named" / "MNLI-mm.tsv").exists()


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        (["{place}"], "does not name its task"),
        (["{runs}/SST-2", "SST-2={runs}/SST-2"], "both for SST-2"),
        (["STS-B={runs}/SST-2"], "needs a model for regression"),
        (["SST-2={place}"], "needs a model for classification"),
        (["MNLI-m={runs}/SST-2"], "the labels of MNLI-m are entailment"),
        (["RTE={runs}/SST-2"], "no test rows of RTE"),
        (["SNLI={runs}/mnli"], "not a GLUE task"),
        (["SST-9={runs}/mnli"], "no benchmark"),
    ],
)
def test_models_that_do_not_fit(models, sentence, place, runs, glue, tmp_path, capsys):
    models = [model.format(place=place[0], runs=runs) for model in models]
    with pytest.raises(SystemExit) as end:
        main(["submit", "--models", *models, "--data", str(glue), "--out", str(tmp_path / "out")])
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out" / "submission.zip").exists()


def test_the_table_is_of_the_dev_rows(runs, tmp_path, capsys):
    results = {name: json.loads((runs / name / "results.json").read_text()) for name in ("SST-2", "mnli")}
    (tmp_path / "mm.json").write_text('{"metrics": {"accuracy": 0.25}}')
    found = table([runs / "SST-2", runs / "mnli" / "results.json", f"MNLI-mm={tmp_path / 'mm.json'}"])
    accuracy = {name: facts["summary"]["dev"]["accuracy"]["mean"] for name, facts in results.items()}
    assert found.tasks["SST-2"] == pytest.approx(100 * accuracy["SST-2"])
    assert found.tasks["MNLI"] == pytest.approx(50 * (accuracy["mnli"] + 0.25))
    main(["glue-table", str(runs / "SST-2")])
    out = capsys.readouterr().out
    assert "SST-2" in out
    assert "partial" in out


def test_results_that_are_none(runs, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UnmaskError, match="holds no scores"):
        table([f"RTE={tmp_path / 'x.json'}"])
    with pytest.raises(UnmaskError, match="two results"):
        table([runs / "SST-2", f"SST-2={runs / 'SST-2'}"])
    with pytest.raises(UnmaskError, match="does not name its task"):
        table([tmp_path])
