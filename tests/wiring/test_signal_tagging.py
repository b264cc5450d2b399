"""Signal tagging: the places of beats and intervals, windows, scores; a run that is scored, asked, shown and served."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from starlette.testclient import TestClient

from unmask import huggingface
from unmask.cli import main
from unmask.data.signals import synthetic
from unmask.data.signals.beat_features import EACH, of_each
from unmask.data.signals.beats import r_peaks
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow
from unmask.data.signals.signal import Signal
from unmask.errors import UnmaskError
from unmask.models.ecg_cnn import EcgCnn
from unmask.models.mina import SIZES, Mina
from unmask.runs.finetuning import FineTuning, evaluate, finetune
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.serve.opened import open_model
from unmask.tasks import SignalClassification, SignalTagging, task_on
from unmask.tasks.registry import settings_of
from unmask.tasks.signal_tagging import Marked, MarkOptions
from unmask.tasks.signals import SignalForm

RATE = 100
PAGE = EcgCnn(rate=RATE, blocks=6, filters=8, kernel=9, dropout=0.0)  # a state for each 8 samples
PROCESSOR = SignalProcessor().for_model(PAGE)


def record(seconds, marks=(), tags=(), rate=RATE, leads=1):
    values = np.random.default_rng(0).normal(size=(round(seconds * rate), leads)).astype(np.float32)
    signal = Signal(values, rate, tuple(f"lead {i}" for i in range(leads)), ("",) * leads)
    return SignalRow(source=signal, marks=tuple(marks), tags=tuple(tags), place="x")


# ------------------------------------------------------------------------------------------------ places


@given(
    edges=st.lists(st.integers(0, 400), min_size=2, max_size=24).map(sorted),
    window=st.integers(1, 30),
    instants=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_each_mark_is_answered_once_at_its_own_segments(edges, window, instants):
    """A segment is a second long; the marks are in tenths of seconds, of a record of 38 whole segments and a rest."""
    processor = SignalProcessor(rate=10, segment=10)
    pairs = [(a, a) for a in edges] if instants else list(zip(edges[::2], edges[1::2], strict=False))
    pairs = [(a, b) for a, b in pairs if a < 385]
    if not pairs:
        return
    task = SignalTagging(("a", "b"), window=float(window), beats=instants)
    tags = ["ab"[i % 2] for i in range(len(pairs))]
    row = record(38.5, [(a / 10, b / 10) for a, b in pairs], tags, rate=10)
    encoded = task.encode([row], processor, 1_000)
    wanted = []
    for i, (a, b) in enumerate(pairs):
        inside = [k for k in range(200) if a <= 10 * k + 5 < b] or [(a + b) // 20]
        wanted += [(min(k, 37), i % 2) for k in inside]
    found = []
    for example, (begin, end) in zip(encoded.examples, encoded.examples.spans.tolist(), strict=True):
        places, values = example.targets["signal_tagging"]
        assert end - begin == len(example.tokens) <= window
        found += zip((places + begin).tolist(), values.tolist(), strict=True)
    assert found == wanted

    # The answer to a mark is the mean over its segments.
    p = np.array([[k + 1, 40 - k] for k, _ in found]) / 41
    parts = np.split(p, np.cumsum([len(x.targets["signal_tagging"][0]) for x in encoded.examples])[:-1])
    merged = task.merge(parts, encoded, 0)
    for i, (a, b) in enumerate(pairs):
        own = [min(k, 37) for k in range(200) if a <= 10 * k + 5 < b] or [min((a + b) // 20, 37)]
        assert merged.probabilities[i, 0] == pytest.approx(np.mean([k + 1 for k in own]) / 41)
    np.testing.assert_allclose(merged.seconds, np.array(pairs) / 10)


def test_the_states_of_a_long_record_are_those_of_windows_with_margins():
    task = SignalTagging(("a", "b"), window=4.0)
    times = np.arange(0.3, 29, 0.7)
    encoded = task.encode([record(30, [(t, t) for t in times], "a" * len(times))], PROCESSOR, 1_000)
    spans = encoded.examples.spans
    assert (np.diff(spans) == 50).all()
    for example, (begin, end) in zip(encoded.examples, spans.tolist(), strict=True):
        places = example.targets["signal_tagging"][0]
        assert begin == 0 or places.min() >= 6  # an eighth of the window
        assert end == 375 or places.max() < 44
    assert encoded.notice == "1 of 1 rows (100.0%) are longer than 50 segments and were split into windows."


# ------------------------------------------------------------------------------------------------ scores


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    labels = ("F", "N", "S", "V")
    task = SignalTagging(labels)
    for _ in range(5):
        counts = rng.integers(1, 30, 6)
        tags = [rng.choice(labels, size=n, p=[0.05, 0.7, 0.1, 0.15]) for n in counts]
        rows = [record(1, [(0.0, 0.0)] * len(own), own.tolist()) for own in tags]
        answers = [Marked(rng.dirichlet(np.ones(4), size=n), np.zeros((n, 2))) for n in counts]
        true = np.concatenate(tags)
        predicted = np.array(labels)[np.concatenate([one.probabilities for one in answers]).argmax(1)]
        precision, recall, f1, support = precision_recall_fscore_support(
            true, predicted, labels=list(labels), zero_division=0
        )
        found = task.metrics(answers, rows)
        assert found["accuracy"] == pytest.approx((true == predicted).mean())
        assert found["macro_f1"] == pytest.approx(f1.mean())
        report = task.report(answers, rows)
        [(title, table)] = task.tables(answers, rows).items()
        assert title == "Each class, with 95 % intervals by resampling records"
        confusion = confusion_matrix(true, predicted, labels=list(labels))
        for i, label in enumerate(labels):
            assert report[label] == pytest.approx(
                {"precision": precision[i], "recall": recall[i], "f1": f1[i], "support": support[i]}
            )
            assert table["rows"][i][1] == str(support[i])
            assert table["rows"][i][2].startswith(f"{recall[i]:.3f} (")
            assert table["rows"][i][3].startswith(f"{precision[i]:.3f} (")
            for k, other in enumerate(labels):
                assert task.confusion(answers, rows)[label].get(other, 0) == confusion[i, k]
    commonest = task.baseline(rows, rows)["accuracy"]
    assert commonest == pytest.approx(max((true == label).mean() for label in labels))


def test_a_wrong_beat_is_no_row_to_draw():
    """One record with more beats than there are records, of which only the last answer is wrong."""
    task = SignalTagging(("a", "b"))
    answers = [Marked(np.array([[0.9, 0.1]] * 5 + [[0.1, 0.9]]), np.zeros((6, 2)))]
    assert task.examples(answers, [record(1, [(0.0, 0.0)] * 6, "a" * 6)]) == []


def test_the_lead_is_an_option_of_the_task_on_records(capsys):
    main(["train", "ecg-cnn", "--task", "tagging", "--lead", "MLII", "--fields"])
    assert "rows.lead" in capsys.readouterr().out


def test_features_of_a_beat_see_that_it_is_early_and_wide():
    time = np.arange(0, 12, 1 / RATE)
    peaks, widths = [1.0, 2.0, 3.0, 3.6, 5.0, 6.0, 7.0], [0.01] * 3 + [0.05] + [0.01] * 3
    trace = sum(np.exp(-0.5 * ((time - at) / wide) ** 2) for at, wide in zip(peaks, widths, strict=True))
    found = of_each(trace, np.round(np.array(peaks) * RATE).astype(np.int64), RATE)
    assert found.shape == (7, len(EACH))
    column = dict(zip(EACH, found.T, strict=True))
    assert column["interval before"].tolist() == pytest.approx([1, 1, 1, 0.6, 1.4, 1, 1])
    assert column["interval after"].tolist() == pytest.approx([1, 1, 0.6, 1.4, 1, 1, 1])
    assert column["before by those near"].argmin() == 3
    assert column["width"].argmax() == 3
    assert column["likeness"].argmin() == 3
    assert of_each(trace, np.zeros(0, np.int64), RATE).shape == (0, len(EACH))


# ------------------------------------------------------------------------------------------------ runs


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of six patients, and an untrained network."""
    folder = tmp_path_factory.mktemp("beats") / "data"
    synthetic.write(folder, rate=RATE, patients=6)
    huggingface.save(folder / "trunk", PAGE.build(seed=0), PROCESSOR)
    return folder


@pytest.fixture(scope="module")
def run(hearts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tagged") / "run"
    sets = {split: hearts / f"{split}.tsv" for split in ("train", "dev")}
    given = {"task": "tagging", "model": hearts / "trunk", **sets, "epochs": 4, "lr": 1e-2, "seeds": 1}
    finetune(FineTuning().override({**given, "device": "cpu", "precision": "fp32", "batch_size": 8, "window": 5}), out)
    return out


def test_beats_are_learned_scored_and_predicted(run, hearts, capsys):
    result = json.loads((run / "results.json").read_text())
    dev = result["seeds"][0]["dev"]
    assert result["task"] == "signal-tagging"
    assert dev["macro_f1"] > result["baseline"]["dev"]["macro_f1"] + 0.1
    assert evaluate(run, hearts / "dev.tsv")["metrics"] == pytest.approx(dev, abs=1e-5)

    path = sorted(hearts.glob("patient05/*.hea"))[0]
    capsys.readouterr()
    main(["predict", "--model", str(run), "--json", str(path)])
    beats = json.loads(capsys.readouterr().out)["beats"]
    peaks = r_peaks(SignalRow(source=path).signal(RATE).samples[:, 0], RATE)
    assert [one["time"] for one in beats] == (peaks / RATE).tolist()
    main(["predict", "--model", str(run), str(path)])
    first, *lines = capsys.readouterr().out.strip().splitlines()
    assert first.startswith(f"{path}: N ")
    one = beats[0]
    assert lines[0] == f"{one['time']:.3f}\t{one['label']}\t{one['probability']:.3f}"
    main(["evaluate", "--model", str(run), "--data", str(path)])
    assert "positive predictivity" in capsys.readouterr().out

    samples = SignalRow(source=path).signal().samples
    with TestClient(build(Pool([run]))) as http:
        answer = http.post("/predict", json={"texts": [{"samples": samples.tolist(), "rate": RATE}]}).json()
        assert [one["label"] for one in answer["answers"][0]["beats"]] == [one["label"] for one in beats]
        assert http.get("/models").json()["models"][0]["panel"] == "tagSignal"
        flat = http.post("/predict", json={"texts": [{"samples": [1.0] * 500, "rate": RATE}]}).json()
        assert flat["answers"] == [{"beats": []}]


def test_the_view_has_the_labels_of_the_beats(run, hearts, tmp_path):
    path = sorted(hearts.glob("patient05/*.hea"))[0]
    main(["show", "signal", "--model", str(run), str(path), "--out", str(tmp_path / "x.html")])
    page = (tmp_path / "x.html").read_text()
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    [lane] = data["lanes"]
    beats = Predictor(run)([{"signal": path}])[0]["beats"]
    assert [(one["time"], one["label"]) for one in lane["stems"]] == [(one["time"], one["label"]) for one in beats]
    assert data["lead"].startswith("N ")


def test_one_class_is_told_from_the_rest(hearts):
    rows = SignalTagging.read_rows(hearts / "train.tsv", SignalTagging.rows_class(positive="V"))
    assert set(rows.labels) == {"V", "rest"}
    task = SignalTagging.learned({"train": rows, "dev": rows}, MarkOptions(), lambda _: None, held_out=True)
    assert task.labels == ("rest", "V")
    with pytest.raises(UnmaskError, match="has no label 'Z'"):
        SignalTagging.read_rows(hearts / "train.tsv", SignalTagging.rows_class(positive="Z"))


def test_a_patient_in_two_sets_is_refused(hearts):
    rows = SignalTagging.read_rows(hearts / "train.tsv", SignalTagging.rows_class())
    with pytest.raises(UnmaskError, match="would not measure generalisation"):
        SignalTagging.learned({"train": rows, "dev": rows}, MarkOptions(), lambda _: None)


def test_beats_and_words_are_told_apart(hearts, tmp_path):
    (tmp_path / "words.conll").write_text("up B-X\n\ndown O\n")
    assert task_on("tagging", hearts / "train.tsv") == "signal-tagging"
    assert task_on("tagging", sorted(hearts.glob("patient05/*.hea"))[0]) == "signal-tagging"
    assert task_on("tagging", hearts / "patient05") == "signal-tagging"
    assert task_on("tagging", tmp_path / "words.conll") == "tagging"


def test_intervals_of_a_sensor_are_learned_and_found(tmp_path, capsys):
    """A sensor of two axes rests or shakes, and says neither its rate nor the names of its axes."""
    rng = np.random.default_rng(0)
    rows = {"train": [], "dev": []}
    for number in range(8):
        shakes = np.repeat(rng.permutation([0, 1, 0, 1, 1]), 3 * RATE)
        values = np.stack([np.sin(np.arange(len(shakes)) * (0.1 + 0.9 * shakes)), rng.normal(size=len(shakes))], 1)
        np.savetxt(tmp_path / f"{number}.csv", values, delimiter=",", fmt="%.4f")
        states = ["rest", "shake"]
        rows["train" if number < 6 else "dev"] += [
            f"{number}.csv\t{3 * i}\t{3 * i + 3}\t{states[shakes[3 * i * RATE]]}" for i in range(5)
        ]
    for name, lines in rows.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(["path\tbegin\tend\tlabel", *lines]) + "\n")
    page = EcgCnn(rate=RATE, leads=2, blocks=6, filters=4, kernel=8, dropout=0.0)
    huggingface.save(tmp_path / "trunk", page.build(seed=0), SignalProcessor().for_model(page))
    sets = {split: tmp_path / f"{split}.tsv" for split in rows}
    given = {"task": "tagging", "model": tmp_path / "trunk", **sets, "epochs": 6, "lr": 2e-2, "seeds": 1}
    given |= {"rows.rate": RATE, "window": 6, "batch_size": 4, "device": "cpu", "precision": "fp32"}
    finetune(FineTuning().override(given), tmp_path / "run")
    assert json.loads((tmp_path / "run/results.json").read_text())["seeds"][0]["dev"]["accuracy"] == 1
    capsys.readouterr()
    main(["predict", "--model", str(tmp_path / "run"), "--rate", str(RATE), "--json", str(tmp_path / "7.csv")])
    found = json.loads(capsys.readouterr().out)["intervals"]
    assert found[0]["begin"] == 0
    assert [one["end"] for one in found[:-1]] == [one["begin"] for one in found[1:]]
    for line in rows["dev"][5:]:
        _, begin, end, label = line.split("\t")
        middle = (float(begin) + float(end)) / 2
        assert next(one["label"] for one in found if one["end"] > middle) == label
    lanes = open_model(tmp_path / "run").signal(tmp_path / "7.csv", rate=RATE)["lanes"]
    assert [one["begin"] for one in lanes[1]["spans"]] == pytest.approx([one["begin"] for one in found])
    with pytest.raises(UnmaskError, match="does not say its samples a second: give --rate"):
        Predictor(tmp_path / "run")([{"signal": tmp_path / "7.csv"}])


# ------------------------------------------------------------------------------------- rates, leads, attention


def test_a_request_chooses_leads_and_a_default_is_for_what_lacks_it():
    form = SignalForm().with_defaults({"rate": 250.0, "lead": "II, V1"})
    row = form.as_row({"signal": "AAAA"}, 1)
    assert (row.own_rate, row.leads) == (250.0, ("II", "V1"))
    row = form.as_row({"signal": "AAAA", "rate": 100, "lead": "V5"}, 1)
    assert (row.own_rate, row.leads) == (100.0, ("V5",))
    assert form.completed(SignalRow()).leads == ("II", "V1")
    with pytest.raises(UnmaskError, match="'lead' must be the name of a lead"):
        form.as_row({"signal": "AAAA", "lead": 2}, 1)
    with pytest.raises(UnmaskError, match="has 2 leads, but the model reads 1: choose by --lead"):
        PROCESSOR.values(np.zeros((100, 2)))


def test_json_says_where_mina_looked(hearts, tmp_path, capsys):
    page = Mina(**{**SIZES["mina"], "high": (0.0, 5.0, 40.0, 0.5)}, rate=RATE, filters=4, hidden=3)
    task = SignalClassification(("A", "N"), window=5.0)
    model = page.build(task.heads, seed=0)
    processor = SignalProcessor().for_model(page)
    huggingface.save(tmp_path / "m", model, processor, labels=task.labels, settings=settings_of(task))
    path = sorted(hearts.glob("patient05/*.hea"))[0]
    main(["predict", "--model", str(tmp_path / "m"), "--json", str(path)])
    windows = json.loads(capsys.readouterr().out)["windows"]
    values = processor.values(SignalRow(source=path).signal(RATE).samples)
    second = model.eval().looked(processor.collate([processor.segmented(values[250:750])]))
    looked = windows[1]["looked"]
    assert (windows[1]["begin"], windows[1]["end"]) == (2.5, 7.5)
    assert {name: sum(x) for name, x in looked.items()} == pytest.approx({"beats": 1, "rhythm": 1, "bands": 1})
    np.testing.assert_allclose(looked["bands"], second.bands[0].detach(), atol=1e-5)
    places = np.einsum("kfp,kf,f->kp", *(x[0].detach().numpy() for x in (second.beats, second.rhythm, second.bands)))
    np.testing.assert_allclose(looked["beats"], places.ravel(), atol=1e-5)
    np.testing.assert_allclose(looked["rhythm"], places.sum(1), atol=1e-5)
    assert "looked" not in Predictor(tmp_path / "m")([{"signal": path}])[0]["windows"][0]
