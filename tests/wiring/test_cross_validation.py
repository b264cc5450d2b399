"""Cross-validation: a model for each fold, scores of all rows, a run that goes on where it was stopped."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
from finetune_toy import Spy, fields, reviews, write_tsv
from sklearn.metrics import accuracy_score

from unmask.cli import main
from unmask.errors import Stopped, UnmaskError
from unmask.runs.finetuning import FineTuning, begun, cross_validate, evaluate
from unmask.runs.finetuning.baselines import Baselines, baselines
from unmask.runs.report import write_report


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_tsv(tmp_path_factory.mktemp("rows") / "rows.tsv", reviews(48, 1))


def config(place, rows, **more):
    given = {name: value for name, value in fields(*place).items() if name != "dev"}
    return FineTuning().override({**given, "train": rows, "folds": 2, "epochs": 1, **more})


class StoppedLater(Spy):
    """A display at which someone ends the process, once, in the second fold."""

    done = False

    def show(self, row):
        if "Fold 2 of 2:" in self.notes and not self.done:
            self.done = True
            signal.raise_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def run(place, rows, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "folds"
    return out, cross_validate(config(place, rows), out, display=Spy())


def test_the_scores_are_those_of_the_folds(run):
    out, found = run
    assert json.loads((out / "folds.json").read_text()) == json.loads(json.dumps(found))
    accuracies = []
    for number, fold in enumerate(found["folds"], 1):
        results = json.loads((out / f"fold-{number}" / "results.json").read_text())
        assert len(results["seeds"]) == 1
        assert fold == {"fold": number, **results["seeds"][0]}
        accuracies.append(fold["test"]["accuracy"])
    assert found["summary"]["accuracy"]["mean"] == pytest.approx(np.mean(accuracies))
    assert found["summary"]["accuracy"]["std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert found["whole"]["metrics"]["accuracy"] == pytest.approx(np.mean(accuracies))  # of equal folds
    low, high = found["whole"]["intervals"]["accuracy"]
    assert low <= found["whole"]["metrics"]["accuracy"] <= high
    assert sum(sum(counts.values()) for counts in found["whole"]["confusion"].values()) == 48


def test_a_fold_is_a_run_of_its_own(run, rows, tmp_path):
    out, found = run
    lines = rows.read_text().splitlines()
    (tmp_path / "some.tsv").write_text("\n".join(lines[:11]) + "\n")
    scores = evaluate(out / "fold-2", tmp_path / "some.tsv")
    assert scores["rows"] == 10
    confusion = found["whole"]["confusion"]
    true = [label for label, counts in confusion.items() for n in counts.values() for _ in range(n)]
    predicted = [other for counts in confusion.values() for other, n in counts.items() for _ in range(n)]
    assert found["whole"]["metrics"]["accuracy"] == pytest.approx(accuracy_score(true, predicted))


def test_the_report_shows_the_folds_and_all_rows(run):
    out, _ = run
    page = write_report(out).read_text()
    for part in ("Scores of the folds", "fold 2", "95 % from", "Confusion matrix, on all rows", "resampling 48 rows"):
        assert part in page, part


def test_a_stopped_run_goes_on_and_keeps_the_folds_that_ended(run, place, rows, tmp_path):
    out, given = tmp_path / "folds", config(place, rows)
    with pytest.raises(Stopped, match=f"continue with: .*finetune --out {out} --resume") as stopped:
        cross_validate(given, out, display=StoppedLater())
    assert "fold-" not in str(stopped.value)
    with pytest.raises(UnmaskError, match="has not ended"):
        write_report(out)
    with pytest.raises(UnmaskError, match="continue it with --resume"):
        cross_validate(given, out)
    assert begun(out).replace(seeds=None) == given
    again = cross_validate(begun(out), out, display=Spy(), resume=True)
    assert again["summary"] == run[1]["summary"]
    assert again["whole"] == run[1]["whole"]
    with pytest.raises(UnmaskError, match=r"has ended; its scores are in .*folds\.json"):
        begun(out)


def test_the_command_line_says_what_to_leave_out(place, rows, capsys):
    words = ["--model", place[0], "--train", rows, "--folds", 2, "--out", place[0].parent / "none"]
    for more, message in ((["--test", rows], "leave --test out"), (["--curve", "8"], "not with --search, --curve")):
        with pytest.raises(SystemExit):
            main(["finetune", *map(str, words), *map(str, more)])
        assert message in capsys.readouterr().err
    assert not (place[0].parent / "none").exists()


@pytest.mark.parametrize("folds", [0, 1])
def test_baselines_refuse_too_few_folds(rows, folds):
    with pytest.raises(UnmaskError, match=f"2 or more, not {folds}"):
        baselines(Baselines().override({"train": rows, "folds": folds}), lambda _: None)


def test_baselines_are_scored_on_the_same_folds(run, rows):
    found = baselines(Baselines().override({"train": rows, "folds": 2}), lambda _: None)
    assert found["folds"] == 2
    assert found["scores"]["baseline"]["test"]["accuracy"] == pytest.approx(run[1]["baseline"]["accuracy"]["mean"])
    assert found["scores"]["baseline"]["std"]["accuracy"] == pytest.approx(run[1]["baseline"]["accuracy"]["std"])
