"""The clients of Weights & Biases, MLflow and trackio, offline, for every kind of run."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run_cli
from finetune_toy import arguments, reviews

import unmask
from unmask.train.trackers import FILE

pytestmark = pytest.mark.extras
BLOCK = 32_768
NAMES = "wandb,mlflow,trackio,tensorboard"


@pytest.fixture
def offline(tmp_path, monkeypatch):
    for name in ("wandb", "mlflow", "trackio"):
        pytest.importorskip(name)
    import mlflow
    import trackio
    import wandb

    wandb.teardown()  # what an earlier test has set
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr(trackio.sqlite_storage, "TRACKIO_DIR", tmp_path / "trackio")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_mlflow() -> list:
    import mlflow

    return mlflow.MlflowClient().search_runs(["0"])


def records_in(path: Path) -> Iterator[bytes]:
    """The records of a log as LevelDB writes it: blocks of 32 kB, each part with its checksum, size and kind."""
    content, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if (room := -place % BLOCK) < 7 and room:  # the rest of a block is filled up
            place += room
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, last
            yield parts
            parts = b""


def of_wandb(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Name -> config and summary of each run with final scores, from the files that wandb would send."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = {}
    for path in folder.glob("wandb/offline-run-*/*.wandb"):
        name, one = "", {"config": {}, "summary": {}}
        for content in records_in(path):
            record = Record.FromString(content)
            name = record.run.display_name or name
            one["config"] |= {item.key: item.value_json for item in record.run.config.update}
            one["summary"] |= {item.key: item.value_json for item in record.summary.update}
        if any(key.startswith("final/") for key in one["summary"]):  # not of a training that began again
            found[name] = one
    return found


def of_trackio(run: str) -> list[dict]:
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage.get_logs("unmask", run)


def test_fine_tuning_is_a_run_for_each_seed(offline, place, capsys):
    trunk, files = place
    given = arguments(trunk, files, epochs=1, seeds=2, out=offline / "runs" / "mine", track=NAMES)
    status, said, error = run_cli(capsys, "finetune", *given)
    assert status == 0, error
    assert "receives no more" not in said
    results = json.loads((offline / "runs" / "mine" / "results.json").read_text())
    names = [f"runs/mine seed {row['seed']}" for row in results["seeds"]]
    expected = [row["dev"]["accuracy"] for row in results["seeds"]]

    runs = {run.info.run_name: run for run in of_mlflow() if run.data.metrics.get("final/dev/accuracy") is not None}
    assert [runs[name].data.metrics["final/dev/accuracy"] for name in names] == expected
    assert {runs[name].info.status for name in names} == {"FINISHED"}
    assert runs[names[0]].data.params["fit.epochs"] == "1.0"
    assert "heldout/f1" in runs[names[0]].data.metrics

    kept = of_wandb(offline)
    assert [float(kept[name]["summary"]["final/dev/accuracy"]) for name in names] == expected
    assert json.loads(kept[names[0]]["config"]["fit.epochs"]) == 1.0

    for name, value in zip(names, expected, strict=True):
        assert of_trackio(name)[-1]["final/dev/accuracy"] == pytest.approx(value)
    assert {path.name for path in (offline / "runs" / "mine" / "tensorboard").iterdir()} == {"seed-0", "seed-1"}


def test_pretraining_and_translation_are_runs(offline):
    texts = [f"{text} . a film that people talk about ." for text, _ in reviews(40, 3)]
    small = {"layers": 1, "dim": 16, "heads": 2, "hidden": 16, "quiet": True, "track": NAMES}
    unmask.pretrain("bert-tiny", texts, out="runs/a", steps=2, sentences="none", **small)
    pairs = [(f"{a} {b}", f"{b} {a}") for a in "abcdef" for b in "ghijkl"]
    run = unmask.train("seq2seq", pairs=pairs, out="runs/b", steps=2, heldout=6, quiet=True, track=NAMES, dim=8,
                       hidden=8, layers=1, **{"vocabulary.kind": "word"})  # fmt: skip
    runs = {run.info.run_name: run.data for run in of_mlflow()}
    assert runs["runs/a"].params["recipe"] == "bert-tiny"
    assert "final/loss/mlm" in runs["runs/a"].metrics
    assert runs["runs/b"].metrics["final/bleu"] == run.scores["bleu"]
    assert json.loads(Path("runs/a", FILE).read_text())[""].keys() == set(NAMES.split(","))
    assert of_wandb(offline).keys() == {"runs/a", "runs/b"}

    unmask.pretrain(out="runs/a", resume=True, steps=4, quiet=True)
    again = {run.info.run_name: run.data for run in of_mlflow()}
    assert len(again) == len(runs)
    assert {metric.step for metric in _history("runs/a", "heldout/loss/mlm")} >= {2, 4}


def _history(name: str, metric: str) -> list:
    import mlflow

    client = mlflow.MlflowClient()
    found = next(run.info.run_id for run in of_mlflow() if run.info.run_name == name)
    return client.get_metric_history(found, metric)


def test_a_server_that_does_not_answer_is_a_sentence(offline, place, monkeypatch, capsys):
    import mlflow

    mlflow.set_tracking_uri("http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    trunk, files = place
    given = arguments(trunk, files, epochs=1, seeds=1, out=offline / "run", track="mlflow")
    status, said, error = run_cli(capsys, "finetune", *given)
    assert status == 0, error
    assert said.count("mlflow receives no more of this run, which goes on:") == 1
