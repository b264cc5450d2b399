"""Signal classification: a run that learns, resumes, is scored, asked and served; windows; how its data are found."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from finetune_toy import Spy
from starlette.testclient import TestClient

from unmask import huggingface
from unmask.cli import main
from unmask.data.labelled.dataset import Dataset
from unmask.data.signals import synthetic
from unmask.data.signals.examples import SignalExamples
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow, labelled
from unmask.data.signals.signal import Signal
from unmask.errors import UnmaskError
from unmask.models.mina import SIZES, Mina
from unmask.runs.finetuning import FineTuning, begun, evaluate, finetune
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.tasks import SignalClassification, task_on
from unmask.tasks.signal_classification import SignalOptions
from unmask.tasks.signal_references import Experts
from unmask.tasks.signal_windows import Windows
from unmask.tasks.signals import SignalRows
from unmask.train.metrics import read as read_metrics

RATE = 100
GOLDEN = Path(__file__).parents[1] / "golden" / "finetune-signal-classification.json"
PAGE = Mina(**SIZES["cnn"], rate=RATE, filters=8, kernel=16, outputs=8, dropout=0.0)
PROCESSOR = SignalProcessor().for_model(PAGE)
LABELS = ("A", "N", "O", "~")


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of six patients, and an untrained network."""
    folder = tmp_path_factory.mktemp("hearts") / "data"
    synthetic.write(folder, rate=RATE, patients=6)
    huggingface.save(folder / "trunk", PAGE.build(seed=0), PROCESSOR)
    return folder


def config(hearts: Path, **changes: object) -> FineTuning:
    given = {"task": "classification", "model": hearts / "trunk"}
    given |= {split: hearts / f"{split}.tsv" for split in ("train", "dev")}
    given |= {"epochs": 30, "lr": 1e-2, "seeds": 1, "device": "cpu", "precision": "fp32", "batch_size": 16}
    return FineTuning().override({**given, "window": 5, **changes})


@pytest.fixture(scope="module")
def run(hearts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "run"
    finetune(config(hearts), out)
    return out


def numbers(seconds, rate=RATE, leads=1, seed=0):
    values = np.random.default_rng(seed).normal(size=(round(seconds * rate), leads)).astype(np.float32)
    return Signal(values, rate, tuple(f"lead {i}" for i in range(leads)), ("",) * leads)


def row(seconds, **given):
    return SignalRow(source=numbers(seconds), **given)


# ------------------------------------------------------------------------------------------------ windows


def test_records_are_cut_into_windows_at_equal_steps_and_read_to_the_end():
    task = SignalClassification(LABELS, window=4.0, step=1.5)
    rows = [row(13.8, label="N", place="x"), row(3.0, label="~"), row(4.0, label="A")]
    encoded = task.encode(rows, PROCESSOR, 1_000)
    examples = encoded.examples
    assert isinstance(examples, SignalExamples)
    assert encoded.owners.tolist() == [0] * 8 + [1, 2]
    begins = [0.0, 1.5, 3.0, 4.5, 6.0, 7.5, 9.0, 9.5]
    assert examples.seconds.tolist() == [*([begin, begin + 4] for begin in begins), [0.0, 3.0], [0.0, 4.0]]
    whole = PROCESSOR.values(rows[0].source.samples)
    for number, (begin, end) in enumerate(examples.seconds[encoded.of_rows[0]].tolist()):
        values = examples[number].signal[1].ravel()
        np.testing.assert_array_equal(values, whole[round(begin * RATE) : round(end * RATE), 0])
        assert examples[number].targets["signal_classification"][1].tolist() == [1]
    assert encoded.notice == "1 of 3 rows (33.3%) are longer than 8 segments and were split into windows."
    taken = examples[2:5]
    assert len(taken) == 3
    np.testing.assert_array_equal(taken[0].signal[1], examples[2].signal[1])


def test_the_answer_to_a_record_is_the_mean_of_its_windows(run, hearts):
    rows = list(labelled(hearts / "dev.tsv"))
    predictor = Predictor(run, precision="fp32")
    found = predictor.found(rows)
    loaded = huggingface.load(run)
    values = loaded.processor.values(rows[0].signal(RATE).samples)
    for p, (begin, end) in zip(found[0].answers, found[0].seconds, strict=True):
        cut = values[round(begin * RATE) : round(end * RATE)]
        batch = loaded.processor.collate([loaded.processor.segmented(cut)])
        with torch.no_grad():
            hidden = loaded.model.eval()(batch)
            alone = loaded.model.answer("signal_classification", hidden, batch.starts, batch).softmax(-1)[0]
        np.testing.assert_allclose(p, alone.numpy(), atol=1e-5)
    answer = predictor.answer(rows[:1])[0]
    assert list(answer["scores"].values()) == pytest.approx(found[0].answers.mean(0).tolist(), abs=1e-6)
    assert answer["label"] == max(answer["scores"], key=answer["scores"].get)


def test_options_out_of_range_are_refused():
    for options in ({"window": 0.0}, {"step": 0.0}, {"window": 2.0, "step": 3.0}):
        with pytest.raises(UnmaskError, match="--window must be above 0, and --step above 0"):
            SignalOptions(**options).check()


# ------------------------------------------------------------------------------------------------ runs


def test_rhythms_are_learned_scored_predicted_and_served(run, hearts, capsys):
    result = json.loads((run / "results.json").read_text())
    dev = result["seeds"][0]["dev"]
    assert result["task"] == "signal-classification"
    assert dev["macro_f1"] > 2 * result["baseline"]["dev"]["macro_f1"]
    assert dev["roc_auc"] > 0.75 > result["baseline"]["dev"]["roc_auc"] == 0.5
    again = evaluate(run, hearts / "dev.tsv")
    assert again["metrics"] == pytest.approx(dev, abs=1e-5)

    path = sorted(hearts.glob("patient05/*.hea"))[0]
    capsys.readouterr()
    main(["predict", "--model", str(run), str(path)])
    assert capsys.readouterr().out.strip().endswith(str(path))
    main(["predict", "--model", str(run), "--file", str(path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert sum(answer["scores"].values()) == pytest.approx(1, abs=1e-5)
    assert sum(answer["windows"][0].pop("looked")["rhythm"]) == pytest.approx(1, abs=1e-5)
    assert answer["windows"][0] == {"begin": 0.0, "end": 5.0, "label": answer["windows"][0]["label"],
                                    "probability": pytest.approx(0.5, abs=0.5)}  # fmt: skip
    main(["evaluate", "--model", str(run), "--data", str(hearts / "dev.tsv")])
    assert "Scores with 95 % intervals" in capsys.readouterr().out

    samples = SignalRow(source=path).signal().samples
    with TestClient(build(Pool([run]))) as http:
        sent = [{"samples": samples[:, 0].tolist(), "rate": RATE}, {"samples": samples.tolist(), "rate": RATE}]
        answers = http.post("/predict", json={"texts": sent}).json()["answers"]
        for one in answers:
            assert one["scores"] == pytest.approx(answer["scores"], abs=1e-4)
        packed = "\n".join(f"{x:.6f}" for x in samples[:, 0]).encode()
        file = {"signal": base64.b64encode(packed).decode(), "rate": RATE}
        assert http.post("/predict", json={"texts": [file]}).json()["answers"][0]["label"] == answer["label"]
        for wrong, said in (
            ("a word", "this model reads signals"),
            ({"samples": [1.0, 2.0]}, "no 'rate'"),
            ({"samples": [0.5] * 30, "rate": RATE}, "at least 50"),
            ({"samples": ["x"], "rate": RATE}, "list of numbers"),
            ({"samples": [1.0] * 500, "rate": 0}, "'rate' must be samples a second"),
            ({"signal": "?"}, "the signal is not Base64"),
        ):
            refused = http.post("/predict", json={"texts": [wrong]})
            assert (refused.status_code, said in refused.json()["error"]) == (422, True), refused.json()
        assert http.get("/models").json()["models"][0]["panel"] == "classifySignal"


def test_signals_are_found_in_the_data(hearts, tmp_path):
    (tmp_path / "texts.tsv").write_text("text\tlabel\nup\trise\n")
    assert task_on("classification", hearts / "train.tsv") == "signal-classification"
    assert task_on("classification", tmp_path / "texts.tsv") == "classification"
    assert FineTuning().override({"train": hearts / "train.tsv"}).task == "signal-classification"


def test_the_loss_trace_is_the_golden_one(hearts, tmp_path):
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        finetune(config(hearts, epochs=2, lr=3e-3, balance="weights"), tmp_path / "run")
    finally:
        torch.set_num_threads(threads)
    trace = [
        round(line["loss/signal_classification"], 4) for line in read_metrics(tmp_path / "run/metrics.jsonl", "train")
    ]
    assert len(trace) > 10
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-4)


class Killed(BaseException):
    """The death of a process: nothing is saved."""


def test_a_run_that_dies_continues_bit_for_bit(hearts, tmp_path):
    made = config(hearts, epochs=1, evaluations=2)

    class Deadly(Spy):
        def show(self, row):
            if row["step"] >= 8:
                raise Killed

    finetune(made, tmp_path / "whole")
    with pytest.raises(Killed):
        finetune(made, tmp_path / "half", display=Deadly())
    finetune(begun(tmp_path / "half"), tmp_path / "half", resume=True)
    one, two = (huggingface.load(tmp_path / name).model.state_dict() for name in ("whole", "half"))
    assert all(torch.equal(one[name], two[name]) for name in one)


# ------------------------------------------------------------------------------------------------ splits


def test_whole_patients_are_held_out(hearts):
    train = SignalClassification.read_rows(hearts / "train.tsv", SignalRows())
    held, rest, how = SignalRows().hold_out(train, 3, np.random.default_rng(0))
    assert how == "whole groups"
    assert len(held) == 8
    assert not {one.group for one in held} & {one.group for one in rest}


@pytest.mark.parametrize("same", ["patient", "record"])
def test_a_patient_or_a_record_in_two_sets_is_refused(same):
    train = labelled_rows([row(5, label="N", group="one"), SignalRow(source=numbers(5, seed=1), label="A")])
    source = numbers(5, seed=2) if same == "patient" else numbers(5, seed=1)
    dev = labelled_rows([SignalRow(source=source, label="N", group="one" if same == "patient" else "")])
    with pytest.raises(UnmaskError, match="would not measure generalisation"):
        SignalClassification.learned({"train": train, "dev": dev}, SignalOptions(), lambda _: None)


def labelled_rows(rows):
    return Dataset(Path("x.tsv"), tuple(rows), {})


def test_one_class_against_the_rest(hearts):
    read = SignalClassification.read_rows
    found = read(hearts / "train.tsv", SignalRows(positive="A"))
    assert set(found.labels) == {"A", "rest"}
    plain = read(hearts / "train.tsv", SignalRows())
    assert [one.label == "A" for one in found] == [one.label == "A" for one in plain]
    task = SignalClassification.learned({"train": found, "dev": found}, SignalOptions(), lambda _: None, held_out=True)
    assert task.labels == ("rest", "A")  # F1 and the areas are those of the second
    with pytest.raises(UnmaskError, match="has no label 'B'"):
        read(hearts / "train.tsv", SignalRows(positive="B"))


# ------------------------------------------------------------------------------------------------ scores


def test_scores_by_window_record_and_patient():
    task = SignalClassification(("N", "A"))
    rows = [row(5, label=label, group=group) for label, group in (("N", "1"), ("A", "2"), ("A", "2"), ("N", "3"))]
    shares = ([0.9, 0.2], [0.4], [0.7], [0.6, 0.8, 0.7])  # of N, in each window
    answers = [
        Windows(np.stack([np.array(own), 1 - np.array(own)], 1), np.zeros((len(own), 2)))
        for own in shares
    ]  # fmt: skip
    assert task.metrics(answers, rows)["accuracy"] == 0.75  # the record with 0.7 is wrong
    found = task.tables(answers, rows)
    [title] = [title for title in found if "patients" in title]
    lines = {line[0]: dict(zip(found[title]["heads"], line, strict=True)) for line in found[title]["rows"]}
    assert {level: line["number"] for level, line in lines.items()} == {"windows": "7", "records": "4", "patients": "3"}
    assert lines["windows"]["accuracy"].startswith("0.714 (")  # 5 of 7
    assert lines["records"]["accuracy"].startswith("0.750 (")
    assert lines["patients"]["accuracy"].startswith("0.667 (")  # the mean of 0.4 and 0.7 is 0.55


def test_references_learn_rhythms_by_their_beats(hearts, capsys):
    given = ("--train", hearts / "train.tsv", "--dev", hearts / "dev.tsv", "--json")
    main(["baseline", "--task", "classification", *map(str, given)])
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert list(scores) == ["baseline", "expert-lr", "expert-rf"]
    for name in ("expert-lr", "expert-rf"):
        assert scores[name]["dev"]["macro_f1"] > scores["baseline"]["dev"]["macro_f1"] + 0.3
    with pytest.raises(UnmaskError, match="unequal numbers of leads"):
        Experts().features([row(5, place="x"), SignalRow(source=numbers(5, leads=2), place="y")])
