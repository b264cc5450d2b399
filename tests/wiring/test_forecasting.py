"""Forecasts of series: how they are split, plain references, a run that learns, is scored, asked, served and shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_pinball_loss
from starlette.testclient import TestClient

from unmask import huggingface
from unmask.cli import main
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.series import SeriesRow
from unmask.errors import UnmaskError
from unmask.models.signal_recurrent import SignalRecurrent
from unmask.models.signal_transformer import SignalTransformer
from unmask.runs.finetuning import evaluate
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.serve.opened import open_model
from unmask.tasks.forecasting import Forecasting, ForecastOptions, Forecasts
from unmask.tasks.reading import read_sets
from unmask.tasks.series import SeriesRows
from unmask.tasks.series_references import autocorrelation, drift, period_of, seasonal
from unmask.types import Batch
from unmask.visualize.forecasts import forecast, forecasts
from unmask.visualize.pictures import draw

STEPS, SEASON, H = 180, 6, 4
PAGE = SignalRecurrent(segment=3, dim=8, hidden=12, layers=1, dropout=0.0)
PROCESSOR = SignalProcessor(normalise="none").for_model(PAGE)


def waves(seed: int, steps: int = STEPS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    time = np.arange(steps)
    return 50 + 0.1 * time + 5 * np.sin(2 * np.pi * time / SEASON + seed) + rng.normal(0, 0.5, steps)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("series") / "waves.csv"
    lines = ["step,one,two", *(f"{i},{a:.3f},{b:.3f}" for i, (a, b) in enumerate(zip(waves(1), waves(2), strict=True)))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("forecasts") / "run"
    sizes = ["--segment", "3", "--dim", "8", "--hidden", "12", "--layers", "1", "--dropout", "0"]
    given = ["--data", str(table), "--out", str(out), "--horizon", str(H), "--origins", "3", "--device", "cpu"]
    main(
        [
            "train",
            "lstm-signal",
            "--task",
            "forecasting",
            *given,
            *sizes,
            "--epochs",
            "10",
            "--lr",
            "1e-2",
            "--evaluations",
            "0.2",
        ]
    )
    return out


def test_the_ends_of_series_are_the_test_and_before_them_the_dev_forecasts(table):
    rows = SeriesRows(train=table, horizon=H, origins=3)
    sets = read_sets("forecasting", rows, lambda _: None, np.random.default_rng(0))
    assert {name: [(row.begin, row.end) for row in found] for name, found in sets.items()} == {
        "train": [(0, STEPS - 24)] * 2,
        "dev": [(STEPS - 24, STEPS - 12)] * 2,
        "test": [(STEPS - 12, STEPS)] * 2,
    }
    task = Forecasting(H, 12)
    train = task.for_training(task.encode(sets["train"], PROCESSOR, 100), PROCESSOR)
    assert train.examples.starts[train.of_rows[0]].tolist() == [*range(12, STEPS - 24 - H + 1)]
    dev = task.encode(sets["dev"], PROCESSOR, 100)
    assert dev.examples.starts.tolist() == [STEPS - 24, STEPS - 20, STEPS - 16] * 2
    other = read_sets("forecasting", rows.replace(test=table), lambda _: None, np.random.default_rng(0))
    assert other["train"][0].end == STEPS - 12  # a file of its own for the test: none of the training values are kept
    with pytest.raises(UnmaskError, match="too few for 50 dev and test forecasts of 4: lower --horizon"):
        read_sets("forecasting", rows.replace(origins=50), lambda _: None, np.random.default_rng(0))
    with pytest.raises(UnmaskError, match="too few for 25 dev and test forecasts of 4: lower --horizon"):
        read_sets("forecasting", rows.replace(origins=25), lambda _: None, np.random.default_rng(0))


def test_plain_forecasts_follow_their_formulas():
    before = np.array([1.0, 4, 2, 8, 3, 9, 5])
    found = seasonal(before, 5, (0.25, 0.5, 0.75), 3)
    changes = [8 - 1, 3 - 4, 9 - 2, 5 - 8]
    for h in range(1, 6):
        ahead = 1 if h <= 3 else 2
        point = [3, 9, 5][(h - 1) % 3]
        spread = np.quantile(changes, (0.25, 0.5, 0.75)) - np.median(changes)
        np.testing.assert_allclose(found[h - 1], point + np.sqrt(ahead) * spread)
    slope = (5 - 1) / 6
    np.testing.assert_allclose(drift(before, 3, (0.5,), 1)[:, 0], 5 + slope * np.arange(1, 4))
    errors = np.diff(before) - slope
    wide = np.sqrt(2 * (1 + 2 / 6)) * (np.quantile(errors, 0.9) - np.median(errors))
    assert drift(before, 2, (0.9,), 1)[1, 0] == pytest.approx(5 + 2 * slope + wide)
    assert seasonal(before, 3, (0.5,), 7)[:, 0].tolist() == [5, 5, 5]  # less than a season


def test_the_period_is_the_highest_peak_of_the_autocorrelation():
    assert period_of([waves(1), waves(2)]) == SEASON
    assert period_of([np.random.default_rng(0).normal(size=200)]) == 1
    assert period_of([np.arange(50.0), np.ones(3)]) == 1
    values = waves(3)
    rest = values - np.polyval(np.polyfit(np.arange(STEPS), values, 1), np.arange(STEPS))
    wanted = [(rest[lag:] * rest[: STEPS - lag]).sum() / (rest**2).sum() for lag in range(STEPS)]
    np.testing.assert_allclose(autocorrelation(values), wanted, atol=1e-9)


def pinballs(true: np.ndarray, found: np.ndarray) -> list[float]:
    """The mean pinball loss of the known values of each forecast, by scikit-learn."""
    losses = []
    for values, quantiles in zip(true, found, strict=True):
        known = np.isfinite(values)
        own = [mean_pinball_loss(values[known], quantiles[known, i], alpha=q) for i, q in enumerate((0.1, 0.5, 0.9))]
        losses.append(float(np.mean(own)))
    return losses


def test_the_loss_is_the_mean_pinball_loss_of_the_known_values():
    task = Forecasting(H, 12, (0.1, 0.5, 0.9))
    values = waves(1, 40)
    values[[30, 33]] = np.nan
    rows = [SeriesRow(values=values, begin=28, end=40, horizon=H)]
    encoded = task.encode(rows, PROCESSOR, 100)
    model = PAGE.build(task.heads, seed=0).eval()
    batch = PROCESSOR.collate([*encoded.examples])
    loss = task.loss(model, batch)["forecasting"]
    with torch.no_grad():
        logits = model.answer("forecasting", model(batch), batch.targets["forecasting"].places, batch)
    found = logits.unflatten(1, (H, 3)).numpy().astype(np.float64)
    true = batch.targets["forecasting"].values.numpy()
    assert np.isnan(true).sum() == 2
    assert loss.sum.item() == pytest.approx(sum(pinballs(true, found)), rel=1e-5)
    assert loss.count == 3
    answers = task.answer_all(model, encoded, PROCESSOR.pad)
    scale, centre = encoded.examples.scaling[:, 1, None, None], encoded.examples.scaling[:, 0, None, None]
    np.testing.assert_allclose(answers[0].quantiles, np.sort(found, -1) * scale + centre, rtol=1e-4)
    ordered = pinballs(true, np.sort(found, -1))
    assert task.metrics(answers, rows)["loss"] == pytest.approx(np.mean(ordered), rel=1e-4)


def test_a_perfect_forecast_has_no_error():
    task = Forecasting(H, 12, (0.1, 0.5, 0.9), SEASON)
    row = SeriesRow(values=waves(1, 40), begin=32, end=40, horizon=H, id="one")
    exact = np.stack([row.values[32:36], row.values[36:]])[..., None].repeat(3, -1)
    answers = [Forecasts(exact, np.array([32, 36]), np.ones(2))]
    assert task.metrics(answers, [row]) == {"mase": 0, "smape": 0, "wql": 0, "coverage": 1, "loss": 0}
    [table] = task.tables(answers, [row]).values()
    assert table["rows"][0][:3] == ["one", 2, 0.0]
    error = np.abs(row.values[SEASON:32] - row.values[: 32 - SEASON]).mean()
    shifted = [Forecasts(exact + 1, np.array([32, 36]), np.ones(2))]
    assert task.metrics(shifted, [row])["mase"] == pytest.approx(1 / error)


def test_a_run_beats_the_last_season(run, table, capsys):
    results = json.loads((run / "results.json").read_text())
    seed, plain = results["seeds"][0], results["baseline"]
    assert seed["test"]["wql"] < plain["test"]["wql"]
    assert results["metric"] == "wql"
    again = evaluate(run, table)
    assert again["metrics"] == pytest.approx(seed["test"], rel=1e-4)
    assert again["baseline"] == pytest.approx(plain["test"], rel=1e-9)
    assert [line[0] for line in again["tables"]["Scores of each series"]["rows"]] == ["one", "two"]
    with pytest.raises(UnmaskError, match="forecasts 4 values at once, not 2: leave --horizon out"):
        evaluate(run, table, {"horizon": "2"})
    capsys.readouterr()
    main(["baseline", "--task", "forecasting", "--train", str(table), "--horizon", str(H), "--origins", "3", "--json"])
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert [*scores] == ["baseline", "naive", "drift"]
    assert scores["baseline"]["test"]["mase"] < scores["naive"]["test"]["mase"]


def test_what_follows_is_forecast(run, table, tmp_path, capsys):
    folder = huggingface.load(run)
    assert folder.processor == PROCESSOR
    assert folder.settings["horizon"] == H
    main(["predict", "--model", str(run), "--file", str(table)])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["series", "step", "0.1", "0.5", "0.9"]
    assert [line[:2] for line in lines[1 : H + 1]] == [["one", str(h)] for h in range(1, H + 1)]
    main(["predict", "--model", str(run), "--file", str(table), "--json"])
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["id"] for answer in answers] == ["one", "two"]
    for answer in answers:
        low, middle, high = (np.array(answer["forecast"][level]) for level in ("0.1", "0.5", "0.9"))
        assert (low <= middle).all()
        assert (middle <= high).all()
        assert np.abs(middle - middle.mean()).max() < 10
    values = [*map(float, waves(1).round(3))]
    [alone] = Predictor(run, precision="fp32")([{"values": values}])
    assert alone["forecast"]["0.5"] == pytest.approx(answers[0]["forecast"]["0.5"], rel=2e-2)
    with pytest.raises(SystemExit):
        main(["predict", "--model", str(run), str(table)])
    assert "has 2 series: give it as --file" in capsys.readouterr().err
    with TestClient(build(Pool([run]))) as http:
        [served] = http.post("/predict", json={"texts": [{"values": values}]}).json()["answers"]
        assert served["forecast"]["0.9"] == pytest.approx(alone["forecast"]["0.9"], rel=2e-2)
        refused = http.post("/predict", json={"texts": [{"values": [1, 2]}]})
        assert (refused.status_code, "a forecast needs 3" in refused.json()["error"]) == (422, True)
        assert http.get("/models").json()["models"][0]["panel"] == "forecastSeries"
    main(["show", "forecast", "--model", str(run), str(table), "--out", str(tmp_path / "x.html")])
    page = (tmp_path / "x.html").read_text()
    assert '"view":"forecasts"' in page
    [one, _] = open_model(run).forecasts(table)["charts"]
    assert [x for x, *_ in one["bands"][0]["points"]] == [*range(STEPS + 1, STEPS + H + 1)]
    assert one["series"][0]["points"][-1] == [STEPS, pytest.approx(values[-1])]


def test_options_and_models_out_of_range_are_refused():
    for quantiles in ((), (0.5, 0.1), (0.0, 0.5), (0.5, 1.0)):
        with pytest.raises(UnmaskError, match="--quantiles must be numbers between 0 and 1 in ascending order"):
            ForecastOptions(quantiles=quantiles).check()
    with pytest.raises(UnmaskError, match="--context and --period must be at least 1"):
        ForecastOptions(context=0).check()
    with pytest.raises(UnmaskError, match="forecasts are of one series: take --leads 1"):
        Forecasting.check_model(SignalTransformer(leads=2), "It")


def test_folds_are_refused(table):
    with pytest.raises(UnmaskError, match=r"Series are split by time.*leave --folds and --fold out"):
        Forecasting.read_rows(table, SeriesRows(train=table, folds=3))


def test_every_model_of_signals_can_forecast():
    task = Forecasting(2, 20, (0.5,))
    page = SignalTransformer(segment=10, dim=8, layers=1, heads=2, hidden=8)
    processor = SignalProcessor(normalise="none").for_model(page)
    encoded = task.encode([SeriesRow(values=waves(1, 40), begin=40, end=40)], processor, 100)
    batch: Batch = processor.collate([*encoded.examples])
    assert batch.targets["forecasting"].places.tolist() == [1]
    [answer] = task.answer_all(page.build(task.heads).eval(), encoded, processor.pad)
    assert answer.quantiles.shape == (1, 2, 1)


def test_a_view_becomes_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    quantiles = {"0.1": [1.0, 2.0], "0.5": [2.0, 3.0], "0.9": [3.0, 5.0]}
    charts = [forecast(name, waves(1, 30), quantiles) for name in ("one", "two $", "three")]
    draw(tmp_path / "x.png", forecasts(charts))
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
