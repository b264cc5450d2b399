"""What `finetune --advise` and `--dry-run` say of rows, and that they train and write nothing."""

from __future__ import annotations

import re

import pytest
from finetune_toy import arguments, fields, write_tsv

from unmask.cli import main
from unmask.data.labelled.rows import Choices, Row, Triplet
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.data_report import data_report, texts_of


def test_rows_are_described_and_advised(place, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(f"{'good film ' * (40 if i < 3 else 2)}{i}", "yes" if i < 15 else "no") for i in range(20)]
    write_tsv(tmp_path / "rows" / "train.tsv", rows)
    write_tsv(tmp_path / "rows" / "dev.tsv", [("a dull plot", "no"), ("a fine plot", "yes")])
    before = sorted(tmp_path.rglob("*"))
    main(["finetune", *arguments(place[0], tmp_path / "rows"), "--advise"])
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert any(line.startswith("yes 15 75.0%") for line in lines)
    assert any(line.startswith("no 5 25.0%") for line in lines)
    assert any(line.startswith("train: 3 of 20 rows (15.0%) are longer than 32 tokens and are cut") for line in lines)
    assert any(line.startswith("dev: 0 of 2 rows (0.0%)") for line in lines)
    for part in ("Baseline", "Similarity", "masked-language loss", "20 rows are little data", "--strategy"):
        assert part in out
    main(["finetune", *arguments(place[0], tmp_path / "rows"), "--dry-run", "--seeds", "2"])
    planned = capsys.readouterr().out
    assert re.search(r"\nsteps +\d+\n", planned)
    assert "in all, for each of 2 seeds\n" in planned
    assert sorted(tmp_path.rglob("*")) == before


def test_scores_have_no_classes(place, tmp_path):
    write_tsv(tmp_path / "train.tsv", [(f"good film {i}", f"{i / 10}") for i in range(20)])
    write_tsv(tmp_path / "dev.tsv", [("a dull plot", "0.5"), ("a fine plot", "0.7")])
    said = data_report(FineTuning().override({**fields(place[0], tmp_path), "task": "regression"}))
    assert "Classes" not in said
    assert "Scores from 0 to 1.9" in said


def test_all_texts_of_a_row_are_looked_at():
    rows = [Row("a", pair="b"), Row("a"), Row(words=("c", "d"), tags=("O", "O"))]
    rows += [Choices("e", pair="f", choices=("g", "h")), Triplet("i", pair="j", negative="k")]
    assert texts_of(rows) == ["a", "b", "c d", "e", "f", "g", "h", "i", "j", "k"]


def test_bad_rows_are_one_sentence(place, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["finetune", "--advise", "--model", str(place[0]), "--train", str(tmp_path / "none.tsv")])
    assert "none.tsv" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["finetune", "--advise"])
    assert "--model FOLDER --train FILE" in capsys.readouterr().err
