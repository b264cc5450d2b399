"""Masked segments from a folder of records: learned, resumed, fine-tuned; anomaly scores; records that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.signals import wfdb
from unmask.data.signals.signal import Signal
from unmask.errors import UnmaskError
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.runs.pretraining.config import Pretraining
from unmask.runs.report import run_facts, write_report
from unmask.serve import predictor_of
from unmask.serve.anomalies import AnomalyPredictor, stretches
from unmask.serve.http.pool import Pool
from unmask.serve.opened import open_model
from unmask.train.events import Step
from unmask.train.metrics import read as read_metrics

GOLDEN = Path(__file__).parents[1] / "golden" / "pretrain-masked-signal.json"
RATE = 50
SIZES = {"segment": 10, "dim": 32, "layers": 2, "model.heads": 2, "hidden": 64}


def write(path: Path, samples: np.ndarray, rate: float = RATE) -> Path:
    """A record in the format of WFDB."""
    path.parent.mkdir(parents=True, exist_ok=True)
    leads = tuple("ab"[: samples.shape[1]])
    wfdb.write(path, Signal(samples.astype(np.float32), rate, leads, ("",) * len(leads)))
    return path


def wave(seconds: float, rng: np.random.Generator) -> np.ndarray:
    """A periodic signal [N, 1] with a little noise."""
    time = 2 * np.pi * (np.arange(round(seconds * RATE)) / RATE + rng.uniform())
    return (np.sin(time) + 0.5 * np.sin(2 * time) + 0.02 * rng.standard_normal(len(time)))[:, None]


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of 6 to 20 s."""
    folder, rng = tmp_path_factory.mktemp("waves"), np.random.default_rng(0)
    for i in range(80):
        write(folder / f"{i:02}.hea", wave(rng.uniform(6, 20), rng))
    return folder


def config(**changes: object) -> Pretraining:
    usual = {"steps": 90, "lr": 8e-3, "batch": 8, "tokens": 50, "heldout": 8, "device": "cpu", "precision": "fp32"}
    given = {**SIZES, **usual, "rate": RATE, "span": 3, "minutes": None, "save_every": 90, "evaluate_every": 90}
    return recipes.find("masked-signal").override({**given, **changes})


@pytest.fixture(scope="module")
def run(waves: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    """A run that has ended."""
    made = Pretrain(config(), [waves], tmp_path_factory.mktemp("runs") / "run", recipe="masked-signal")
    made.run()
    return made


def test_masked_segments_are_learned_and_reported(run: Pretrain):
    first, *_, last = read_metrics(run.out / "metrics.jsonl", "heldout")
    assert first["loss/segments"] > 0.9
    assert last["loss/segments"] < 0.5 * min(last["segments/line"], last["segments/mean"])
    assert last["segments/mean"] == pytest.approx(1.0, abs=0.1)  # the variance of a normalised record
    assert "loss of straight lines between the visible neighbours" in write_report(run.out).read_text()


def test_a_run_that_is_resumed_ends_with_the_same_weights(waves: Path, tmp_path: Path):
    few = config(steps=12, save_every=6, evaluate_every=6)
    whole = Pretrain(few, [waves], tmp_path / "whole", recipe="masked-signal")
    whole.run()
    half = Pretrain(few, [waves], tmp_path / "half", recipe="masked-signal")
    half.run(lambda event: event == Step(8) and half.trainer.stop("the test"))
    again = Pretrain(few, [waves], tmp_path / "half", resume=True)
    again.run()
    one, two = (huggingface.load(tmp_path / name) for name in ("whole", "half"))
    assert all(torch.equal(x, two.model.state_dict()[name]) for name, x in one.model.state_dict().items())
    assert one.settings == two.settings
    assert few.resumed(run_facts(tmp_path / "half")) == whole.config


def test_the_loss_trace_is_the_golden_one(waves: Path, tmp_path: Path):
    threads, few = torch.get_num_threads(), config(steps=20, log_every=1)
    torch.set_num_threads(1)
    try:
        Pretrain(few, [waves], tmp_path / "run", recipe="masked-signal").run()
    finally:
        torch.set_num_threads(threads)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl", "train")
    trace = [round(row["loss/segments"], 4) for row in rows]
    assert len(trace) == 20
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-4)


def test_an_inserted_artefact_has_the_highest_score(run: Pretrain, tmp_path: Path):
    rng = np.random.default_rng(5)
    sound = wave(16, rng)
    broken = sound.copy()
    broken[400:430] *= -1  # 8.0 to 8.6 s: upside down, within the usual range
    predictor = predictor_of(run.out, precision="fp32")
    assert isinstance(predictor, AnomalyPredictor)
    paths = [write(tmp_path / f"{name}.hea", one) for name, one in (("sound", sound), ("broken", broken))]
    (_, good), (text, bad) = predictor.stream([str(path) for path in paths])
    assert bad["score"] > 2 * good["score"]
    worst = bad["stretches"][0]
    assert worst["score"] == bad["score"]
    assert worst["begin"] < 8.6
    assert worst["end"] > 8.0
    assert len(bad["scores"]) == 80
    assert bad["step"] == 0.2
    assert max(bad["scores"][39:44]) == pytest.approx(bad["score"], abs=1e-3)
    assert f"highest score {bad['score']:.2f}" in predictor.render(text, bad)
    view = open_model(run.out).signal(paths[1])
    assert [lane["kind"] for lane in view["lanes"]] == ["stems", "map"]
    [request] = predictor([{"samples": broken[:, 0].tolist(), "rate": RATE}])
    assert request["score"] == pytest.approx(bad["score"], rel=0.05)
    table = tmp_path / "broken.csv"
    np.savetxt(table, broken)
    predictor.defaults = {"rate": RATE}  # of --rate, for files that do not say theirs
    [(_, by_name)] = predictor.stream([str(table)])
    [(_, by_file)] = predictor.answers_to(predictor.rows_in(table) or [])
    assert by_name["score"] == by_file["score"] == pytest.approx(request["score"], rel=1e-3)


def test_scores_of_held_out_records_are_calibrated(run: Pretrain, waves: Path):
    held = [run.corpora[0].folder / name for name in run.corpora[0].split("heldout").names]
    predictor = AnomalyPredictor(run.out, precision="fp32")
    scores = np.concatenate([answer["scores"] for _, answer in predictor.stream(map(str, held)) if answer])
    assert np.quantile(scores, 0.97) < 1.0
    assert scores.max() > 0.3


def test_stretches_are_runs_above_one_or_the_highest_segment():
    found = stretches(np.array([0.1, 1.5, 2.0, 0.9, 3.0]), 0.5)
    assert found == [{"begin": 2.0, "end": 2.5, "score": 3.0}, {"begin": 0.5, "end": 1.5, "score": 2.0}]
    assert stretches(np.array([0.1, 0.7, 0.2]), 1.0) == [{"begin": 1.0, "end": 2.0, "score": 0.7}]


def test_a_classifier_is_fine_tuned_from_it(run: Pretrain, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rng, rows = np.random.default_rng(1), ["path\tlabel"]
    for i in range(24):
        kind = i % 2
        write(tmp_path / f"{i}.hea", wave(6, rng) ** (1 + kind))
        rows.append(f"{i}.hea\t{'ab'[kind]}")
    for name, part in (("train", rows[:17]), ("dev", [rows[0], *rows[17:]])):
        (tmp_path / f"{name}.tsv").write_text("\n".join(part) + "\n")
    out = tmp_path / "tuned"
    data = ["--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "dev.tsv")]
    sizes = ["--epochs", "1", "--batch-size", "8", "--seeds", "1", "--device", "cpu"]
    main(["finetune", "--model", str(run.out), "--task", "classification", *data, "--out", str(out), *sizes])
    loaded = huggingface.load(out)
    assert not loaded.model.config.hides
    assert "anomalies" not in loaded.settings
    capsys.readouterr()
    main(["predict", "--json", "--model", str(out), str(tmp_path / "0.hea")])
    assert set(json.loads(capsys.readouterr().out)["scores"]) == {"a", "b"}


def test_records_that_do_not_fit(run: Pretrain, waves: Path, tmp_path: Path):
    for i in range(3):
        write(tmp_path / "two" / f"{i}.hea", np.tile(wave(6, np.random.default_rng(i)), 2))
        write(tmp_path / "short" / f"{i}.hea", wave(0.5, np.random.default_rng(i)))
    with pytest.raises(UnmaskError, match=r"another number of leads than the 1 that the model reads.*--leads 2"):
        Pretrain(config(), [tmp_path / "two"], tmp_path / "a")
    with pytest.raises(UnmaskError, match=r"No record has 0\.800 s, which are 4 segments"):
        Pretrain(config(), [tmp_path / "short"], tmp_path / "b")
    made = Pretrain(config(steps=1, leads=2), [tmp_path / "two"], tmp_path / "c")
    assert made.model.config.leads == 2
    with pytest.raises(UnmaskError, match="There is no folder of records"):
        Pretrain(config(), [tmp_path / "none"], tmp_path / "d")
    fresh = run.config.model.replace(hides=False).build({}, seed=0)
    huggingface.save(tmp_path / "plain", fresh, run.processor)
    with pytest.raises(UnmaskError, match="without a vector for masked segments"):
        Pretrain(config().starting_from(tmp_path / "plain"), [waves], tmp_path / "e")
    with pytest.raises(UnmaskError, match="was not pre-trained on masked segments"):
        AnomalyPredictor(tmp_path / "plain")


def test_a_lead_is_chosen_for_the_scores(run, tmp_path, capsys):
    quiet = wave(8, np.random.default_rng(3))
    one = write(tmp_path / "one.hea", quiet)
    two = write(tmp_path / "two.hea", np.hstack([quiet, np.zeros_like(quiet)]))
    capsys.readouterr()
    main(["predict", "--model", str(run.out), "--json", str(one)])
    main(["predict", "--model", str(run.out), "--json", "--lead", "a", str(two)])
    main(["predict", "--model", str(run.out), "--json", "--lead", "a", "--file", str(two)])
    alone, *chosen = [json.loads(line)["scores"] for line in capsys.readouterr().out.splitlines()]
    for scores in chosen:
        assert scores == pytest.approx(alone, abs=0.01)


def test_the_service_refuses_a_model_without_a_task(run):
    with pytest.raises(UnmaskError, match="has learned no task on signals"):
        Pool([run.out])
