"""The speed run: a recipe's scores as a line of a record, what its rules fix, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unmask.cli import main
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.runs import speedrun
from unmask.runs.minimal_pairs import evaluate_minimal_pairs
from unmask.train.metrics import read

SMALL = {"model.layers": "1", "model.dim": "16", "model.heads": "2", "model.hidden": "16", "rows.heldout": "8"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a folder of GLUE with one task, and minimal pairs."""
    place = tmp_path_factory.mktemp("race")
    texts = [f"the cat number {i} sat on the mat . a dog of {i} years came by ." for i in range(60)]
    documents = [TextDocument(text, "x") for text in texts]
    corpus.build(documents, place / "corpus", vocabulary_size=120, heldout=0.3)
    (place / "glue" / "SST-2").mkdir(parents=True)
    for part, count in (("train", 24), ("dev", 12)):
        rows = [f"the {('cat', 'dog')[i % 2]} sat on {i}\t{i % 2}\n" for i in range(count)]
        (place / "glue" / "SST-2" / f"{part}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    pairs = [{"sentence_good": f"the cat sat on {i} .", "sentence_bad": f"cat the {i} on sat ."} for i in range(6)]
    (place / "order.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return place


def command(data: Path, *more: str) -> list[str]:
    """A speed run of a second."""
    fields = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    given = ["--corpus", str(data / "corpus"), "--minutes", "0.01", "--threads", "1", *fields]
    return ["speedrun", "bert-tiny", *given, *more]


def test_a_run_is_scored_and_recorded(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "record.jsonl"
    scored = ["--glue", str(data / "glue"), "--tasks", "sst-2", "--minimal-pairs", str(data / "order.jsonl")]
    once = ["--rows", "8", "--seeds", "2", "--tuning.epochs", "1", "--most", "4", "--note", "a | b"]
    main(command(data, *scored, *once, "--out", str(tmp_path / "run"), "--record", str(record)))
    printed = capsys.readouterr().out
    (line,) = map(json.loads, record.read_text().splitlines())
    table = speedrun.table([line])
    assert table in printed
    assert "a \\| b" in table

    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert line["config"] == facts["config"]
    assert line["race"]["tuning"]["epochs"] == 1
    opened = corpus.Corpus(data / "corpus")
    assert line["corpus"]["checksum"] == opened.checksum
    assert line["masked"] == speedrun.masked_tokens(tmp_path / "run", opened, 512)
    pairs = evaluate_minimal_pairs(tmp_path / "run", [data / "order.jsonl"], most=4)
    assert line["pairs"] == {"accuracy": pairs["accuracy"], "pairs": 4, "kinds": 1}
    task = line["tasks"]["sst-2"]
    scores = [row["dev"]["accuracy"] for row in task["seeds"]]
    assert [row["seed"] for row in task["seeds"]] == [0, 1]
    assert task["mean"] == pytest.approx(sum(scores) / 2)
    assert task["deviation"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    assert task["baseline"] == 0.5

    main(["speedrun", "--table", "--record", str(record)])
    assert capsys.readouterr().out.strip() == table
    speedrun.add(record, line | {"tasks": {}})
    assert len(record.read_text().splitlines()) == 2
    rows = speedrun.table([line, line | {"tasks": {}, "masked": None}]).splitlines()
    cells = [cell.strip() for cell in rows[-1].strip("|").split(" | ")]
    assert cells[:4] == ["2", "a \\| b", "", ""]  # no scores of masked tokens
    assert f"{task['mean'] * 100:.1f} ± " in rows[-2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--steps", "9"], "leave --steps out"),
        (["--start", "x"], "leave --start and --teacher out"),
        (["--lrr", "1"], "did you mean 'lr'"),
        (["--tuning.lrr", "1"], "did you mean 'lr'"),
        (["--glue", "nowhere"], "There is no folder nowhere"),
        (["--minimal-pairs", "nowhere.jsonl"], "There is no file or folder nowhere.jsonl"),
        (["--record", "."], ". could not be written"),
        (["--table", "--record", "nowhere.jsonl"], "There is no run in nowhere.jsonl"),
    ],
)
def test_what_the_rules_fix_is_refused(
    given: list[str], said: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(command(data, "--out", str(tmp_path / "run"), *given))
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_that_took_too_long_does_not_count() -> None:
    line = {"seconds": 2_000.0, "race": {"minutes": 30.0}, "machine": {"threads": 2, "processor": "a chip"}}
    assert speedrun.verdict(line) == "It took 200 seconds more than it had, so that it does not count."
    assert "2 threads of a chip" in speedrun.verdict(line | {"seconds": 1_950.0})


def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    assert speedrun.commit_of(tmp_path) is None
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("0123456789abcdef\n")
    assert speedrun.commit_of(tmp_path) == "0123456789ab"
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert speedrun.commit_of(tmp_path) is None
    (git / "packed-refs").write_text("# pack-refs\nfedcba9876543210 refs/heads/main\n")
    assert speedrun.commit_of(tmp_path) == "fedcba987654"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text("aaaabbbbccccdddd\n")
    assert speedrun.commit_of(tmp_path) == "aaaabbbbcccc"


def test_a_damaged_record_is_an_error_before_the_run(data: Path, tmp_path: Path) -> None:
    (tmp_path / "record.jsonl").write_text("{}\nnot JSON\n{}\n")
    with pytest.raises(UnmaskError, match="line 2 is not valid JSON"):
        speedrun.add(tmp_path / "record.jsonl", {})


def test_the_page_has_the_record() -> None:
    root = Path(__file__).resolve().parents[1]
    lines = read(root / "benchmarks" / "speedrun.jsonl")
    assert all(line["commit"] and len(task["seeds"]) == 3 for line in lines for task in line["tasks"].values())
    assert speedrun.table(lines) in (root / "docs" / "speedrun.md").read_text(encoding="utf-8")
