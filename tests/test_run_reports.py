"""Reports of runs: run.json says which kind of run it is, and each kind says what is on its page."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from unmask.errors import UnmaskError
from unmask.objectives import Probe
from unmask.runs import probes, report
from unmask.train.report import Text

OLD = Path(__file__).parent / "fixtures" / "v0.1"


def facts_in(folder: Path, **facts: object) -> Path:
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


@pytest.mark.parametrize("kind", report.KINDS)
def test_each_kind_of_run_has_a_report(kind):
    assert callable(import_module(report.KINDS[kind]).report_of)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("pretrained", "Pre-training: pretrained"),
        ("classified", "Fine-tuned for classification"),
        ("translated", "Translation: translated"),
    ],
)
def test_a_run_that_does_not_name_its_kind_is_known_by_its_settings(name, title, tmp_path):
    shutil.copytree(OLD / name, tmp_path / name)
    page = report.write_report(tmp_path / name).read_text("utf-8")
    assert f"<h1>{title}</h1>" in page
    assert page.count("<summary>Configuration</summary>") == 1


def test_a_kind_of_run_from_outside_has_a_report(tmp_path, monkeypatch):
    module = ModuleType("a_module_from_outside")
    found = report.Report("Other", "in few words", [Text(["What was found."])], {"size": 3})
    vars(module)["report_of"] = lambda folder, facts: found
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(report.KINDS, "other", module.__name__)
    page = report.write_report(facts_in(tmp_path, kind="other")).read_text()
    assert "<h1>Other</h1>" in page
    assert "What was found." in page
    assert "<th>size</th>" in page


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"kind": "other", "config": {}}, "kind of run 'other'"),
        ({"kind": ["finetuning"], "config": {}}, "kind of run"),
        ({"kind": "pretraining", "config": 7}, "its config is no JSON object"),
        ({"config": 7}, "its config is no JSON object"),
        ({"kind": "finetuning", "config": {}}, "has not ended"),
        ({"recipe": "finetune", "config": {}}, "has not ended"),
        ({"kind": "pretraining", "config": {}}, "there is no metrics.jsonl"),
        ({"kind": "translation", "config": {}}, "there is no metrics.jsonl"),
    ],
)
def test_a_run_that_cannot_be_shown_is_refused(facts, sentence, tmp_path):
    with pytest.raises(UnmaskError, match=sentence):
        report.write_report(facts_in(tmp_path, **facts))
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("kind", ["pretraining", "translation"])
def test_a_run_that_has_just_begun_has_a_report(kind, tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    page = report.write_report(facts_in(tmp_path, kind=kind, config={"size": 3})).read_text()
    assert "Nothing has been measured yet." in page


@pytest.mark.parametrize(("evaluations", "steps"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (9, [0, 4, 8])])
def test_the_first_and_the_last_answers_are_shown(evaluations, steps, tmp_path):
    for step in range(evaluations):
        probe = Probe(text="a", tokens=np.array([1]), expected=("b",))
        probes.note(tmp_path, step, probes.samples([probe], [[(str(step), 0.5)]]))
    ((probe, given),) = report.answers(tmp_path, 3)
    assert probe["text"] == "a"
    assert given == [(f"step {step}", [[str(step), 0.5]]) for step in steps]


def test_a_run_without_probes_has_no_answers(tmp_path):
    assert report.answers(tmp_path, 3) == []
