"""docs/index.md, docs/howto and README.md: their code runs, their commands are understood, their files are read."""

from __future__ import annotations

import doctest
import re
import subprocess
from pathlib import Path

import finetune_toy
import pages
import pytest

from unmask.generate import Sampling
from unmask.runs import recipes
from unmask.runs.finetuning import FineTuning
from unmask.tasks.registry import task_named

HOWTO = ["index", *(f"howto/{path.stem}" for path in sorted((pages.ROOT / "docs" / "howto").glob("*.md")))]
README = "../README"
FILES = {  # a file of a page -> the task that reads it, and the number of its rows
    ("howto/classification", "train.csv"): ("classification", 4),
    ("howto/tagging", "train.jsonl"): ("tagging", 2),
    ("howto/questions", "train.jsonl"): ("question-answering", 2),
    ("howto/questions", "choices.csv"): ("multiple-choice", 2),
    ("howto/vectors", "pairs.csv"): ("embedding", 3),
}
PICTURES = ["vision", "vit", "swin", "convolutions", "masked_pictures", "contrastive", "pretext", "metric_learning"]
SPEECH = ["speech", "recordings", "wav2vec2", "hubert", "cpc", "wavenet", "speech_recognition", "speech_tasks"]
RUN_BY = {  # tests -> the pages whose blocks of Python they run; a folder stands for its pages
    "onnx/test_export_page.py": ["docs/export"],
    "rules/test_contributing.py": ["CONTRIBUTING"],
    "metrics/test_translation.py": ["docs/bleu"],
    "serve/test_many_clusters.py": ["docs/scaling"],
    "serve/test_serve_socket.py": ["docs/serving"],
    "wiring/test_atlas.py": ["docs/atlas"],
    "wiring/test_coreference_page.py": ["docs/coreference"],
    "wiring/test_gpt_page.py": ["docs/gpt"],
    "wiring/test_howto_pages.py": ["README", "docs/index", "docs/howto/parts", "docs/howto/vectors", "docs/scaling"],
    "wiring/test_lineage_page.py": ["docs/lineage"],
    "wiring/test_modernbert_page.py": ["docs/modernbert"],
    "wiring/test_python_page.py": ["docs/python"],
    "wiring/test_recurrent_page.py": ["docs/recurrent"],
    "wiring/test_signals_guide.py": ["docs/signals", "docs/forecasting"],
    "wiring/test_speech_page.py": [f"docs/{name}" for name in SPEECH],
    "wiring/test_state_pages.py": ["docs/elmo", "docs/transformer_xl"],
    "wiring/test_t5_page.py": ["docs/t5"],
    "wiring/test_text_to_text_page.py": ["docs/text_to_text"],
    "wiring/test_translation_page.py": ["docs/translation"],
    "wiring/test_vision_page.py": [f"docs/{name}" for name in PICTURES],
    "word_vectors/test_word2vec_page.py": ["docs/word2vec"],
}
NOT_RUN = {"docs/architecture": 9}
"""Page -> the number of its blocks that are no programs: the signatures of the contracts."""


@pytest.mark.parametrize(("page", "count"), [("index", 1), ("howto/parts", 1), ("howto/vectors", 1), (README, 1)])
def test_the_code_of_the_page_runs(page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart/model", "sentences"):
        finetune_toy.write_trunk(tmp_path / "runs" / name)
    pages.run_blocks(page, count)


def test_the_examples_of_the_page_on_scaling_run() -> None:
    results = doctest.testfile(str(pages.ROOT / "docs" / "scaling.md"), module_relative=False)
    assert results.attempted > 10
    assert not results.failed


def test_the_scripts_of_the_page_on_scaling_are_understood(tmp_path: Path) -> None:
    """Their shell has no error of syntax, and the commands that torchrun starts have known options."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", pages.text_of("scaling"), re.DOTALL | re.MULTILINE)
    started = [block for block in blocks if "torchrun" in block]
    assert len(started) == 4
    assert sum(block.startswith("#!/bin/bash\n") for block in started) == 2
    for block in started:
        (tmp_path / "script").write_text(block)
        subprocess.run(["bash", "-n", tmp_path / "script"], check=True)
        arguments = re.search(r"-m (unmask [^\"\n]*)", block.replace("\\\n", " "))
        assert arguments is not None
        pages.check_command(arguments[1], "bert-tiny")


@pytest.mark.parametrize("page", [*HOWTO, README])
def test_the_commands_of_the_page_are_understood(page: str) -> None:
    found = list(pages.commands(page))
    assert found or page == "howto/parts"
    for command in found:
        pages.check_command(command, "bert-tiny")


def test_every_option_that_the_pages_name_exists() -> None:
    tasks = [FineTuning().override({"task": task}) for task, _ in FILES.values()]
    runs = [*map(recipes.find, recipes.names()), *tasks, FineTuning().override({"task": "multilabel"}), Sampling()]
    for page, unknown in pages.options_of([*HOWTO, README], runs):
        assert not unknown - {"--nproc-per-node", "--grid.lr"}, f"{page}.md names {sorted(unknown)}"


def test_the_files_of_the_pages_are_rows_of_their_tasks(tmp_path: Path) -> None:
    shown = {
        (page, name): text
        for page in HOWTO
        for name, text in re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```", pages.text_of(page), re.DOTALL | re.MULTILINE)
    }
    assert shown.keys() == FILES.keys()
    for (page, name), (task, count) in FILES.items():
        (tmp_path / name).write_text(shown[page, name], encoding="utf-8")
        kind = task_named(task)
        assert len(kind.read_rows(tmp_path / name, kind.rows_class()).rows) == count


def test_every_block_of_python_is_run_or_listed() -> None:
    documents = [*pages.ROOT.glob("*.md"), *(pages.ROOT / "docs").rglob("*.md")]
    blocks = {
        document.relative_to(pages.ROOT).with_suffix("").as_posix(): count
        for document in documents
        if (count := document.read_text(encoding="utf-8").count("```python\n"))
    }
    run = [page for pages_of_test in RUN_BY.values() for page in pages_of_test]
    assert {
        page: count for page, count in blocks.items() if page not in run and page.rpartition("/")[0] not in run
    } == NOT_RUN
    for test, pages_of_test in RUN_BY.items():
        text = (pages.ROOT / "tests" / test).read_text(encoding="utf-8")
        assert re.search(r"\b(run_blocks|exec|doctest\.testfile)\(", text), test
        for page in pages_of_test:
            assert any(page in (name, name.rpartition("/")[0]) for name in blocks), f"{page}.md has no block of Python"
            assert page.rpartition("/")[2] in text, f"{test} does not run {page}.md"
