"""Pipelines of datatrove before they run: settings, folders that are continued, plans, the command."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from unmask.cli import main
from unmask.data.text.cleaning.config import Filters, MinHash, Pipeline, Running
from unmask.data.text.cleaning.plan import plan
from unmask.data.text.cleaning.stages import Stage, Work
from unmask.errors import UnmaskError

OFF = Filters(extract=False, gopher_repetition=False, gopher_quality=False, c4=False, fineweb=False, pii=False)


def folder_of_lines(folder: Path, lines: list[str], files: int = 3) -> Path:
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines[number::files]))
    return folder


def lines_config(data: Path | str, **fields: object) -> Pipeline:
    return Pipeline(data=(str(data),), per="line", filters=OFF, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"filters": Filters(languages=("en",))},
            "download https://.*lid.176.bin, and give its path as --language-model",
        ),
        ({"filters": Filters(language_model="m.bin")}, "name those to keep, as in --languages en,fr"),
        ({"running": Running(executor="slurm")}, "Slurm needs the name of a partition: add --partition"),
        ({"running": Running(tasks=0)}, "--tasks must be at least 1, not 0"),
        ({"minhash": MinHash(buckets=0)}, "--buckets must be at least 1"),
        ({"filters": Filters(extract_seconds=0)}, "--extract-seconds must be positive"),
    ],
)
def test_settings_that_no_pipeline_can_have_are_refused(fields, message):
    with pytest.raises(UnmaskError, match=message):
        Pipeline(**fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"filters": OFF.replace(c4=True)}, "--c4 no, not yes"),
        ({"running": Running(tasks=3)}, "--tasks 2, not 3"),
        ({"tokenizer": "other"}, "--tokenizer voc, not other"),
        ({"minhash": MinHash(ngram=3)}, "--ngram 5, not 3"),
        ({"running": Running(tasks=2, workers=7, hours=1)}, ""),
    ],
)
def test_a_folder_is_continued_only_with_the_settings_that_its_files_depend_on(tmp_path, change, message):
    data = folder_of_lines(tmp_path / "in", ["one", "two"])
    config = lines_config(data, running=Running(tasks=2), tokenizer="voc")
    Work.of(config, tmp_path / "out").keep()
    changed = Pipeline(**{**vars(config), **change})
    if not message:
        assert Work.of(changed, tmp_path / "out").config == changed
        return
    with pytest.raises(UnmaskError, match=f"{message}: give the same settings to continue it, delete it, or choose"):
        Work.of(changed, tmp_path / "out")


def test_a_corpus_may_be_added_but_other_files_may_not(tmp_path):
    data = folder_of_lines(tmp_path / "in", ["one", "two"])
    Work.of(lines_config(data), tmp_path / "out").keep()
    Work.of(lines_config(data, tokenizer="voc", heldout=0.1), tmp_path / "out")
    Work.of(replace(lines_config(data), data=(f"{data}/",)), tmp_path / "out")  # the same folder
    (data / "0.txt").write_text("longer than before\n")
    with pytest.raises(UnmaskError, match="holds a pipeline of other input files, by their names and sizes"):
        Work.of(lines_config(data), tmp_path / "out")


def test_a_folder_at_an_address_keeps_its_settings(tmp_path):
    data = folder_of_lines(tmp_path / "in", ["one", "two"])
    out = f"file://{tmp_path}/out"
    Work.of(lines_config(data), out).keep()
    assert json.loads((tmp_path / "out" / "pipeline.json").read_text())["config"]["per"] == "line"
    with pytest.raises(UnmaskError, match="--column text, not body"):
        Work.of(lines_config(data, column="body"), out)


class Given:
    """A first step that returns documents of 100 bytes."""

    def run(self):
        return (type("Document", (), {"text": "x" * 100}) for _ in range(5000))


def test_a_plan_follows_from_the_sizes_of_the_files(tmp_path):
    data = folder_of_lines(tmp_path / "in", ["x" * 99] * 3000)
    work = Work.of(lines_config(data, running=Running(tasks=4)), tmp_path / "out")
    stages = [Stage("clean", 4, [Given()]), Stage("buckets", 14, []), Stage("groups", 1, [], last=True)]
    found = plan(work, stages, 2)
    assert (found.size, found.documents) == (300_000, 3000)
    clean, buckets, groups = found.stages
    assert (clean.workers, buckets.workers, groups.workers) == (2, 2, 1)
    one = plan(work, stages, 1)
    assert one.stages[0].seconds == pytest.approx(2 * clean.seconds)
    assert groups.memory - buckets.memory == pytest.approx(3000 * (210 - 68))
    assert found.notes[0].startswith("3 files for 4 tasks")
    (data / "0.txt").write_text("y" * 10_000_000)
    work = Work.of(lines_config(data, running=Running(tasks=3)), tmp_path / "out")
    assert "The largest file has 98% of the bytes" in plan(work, stages, 1).notes[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "in"], "Give a folder for the pipeline: --out FOLDER"),
        (["--out", "out"], "There is no text to read: give files or folders with --data"),
        (["--data", "nowhere", "--out", "out"], "There is no file or folder nowhere"),
        (["--data", "in", "--out", "out", "--write-only"], "add --executor slurm"),
        (["--data", "in", "--out", "out", "--executor", "slurm", "--partition", "p"], "There is no sbatch here"),
        (["--data", "in", "--out", "out", "--taks", "2"], "did you mean 'tasks'"),
    ],
)
def test_the_command_refuses_in_one_sentence_and_writes_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    folder_of_lines(tmp_path / "in", ["one"], files=1)
    with pytest.raises(SystemExit) as exit:
        main(["corpus", "pipeline", *arguments])
    assert exit.value.code == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
