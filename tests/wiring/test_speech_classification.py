"""Speech classification: a run that learns, resumes, is scored, asked and served; how its data are found."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from finetune_toy import Spy
from sounds import RATE, WORDS, write
from starlette.testclient import TestClient

from unmask import huggingface
from unmask.cli import main
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording, Wanted, labelled
from unmask.errors import UnmaskError
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.vit import Vit
from unmask.runs.finetuning import FineTuning, begun, evaluate, finetune
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.tasks import SpeechClassification, task_on
from unmask.tasks.recording_references import statistics
from unmask.tasks.recording_training import Augmenting, Cropping
from unmask.train.metrics import read as read_metrics
from unmask.types import Head, Kind

pytest.importorskip("soundfile")
GOLDEN = Path(__file__).parents[1] / "golden" / "finetune-speech-classification.json"
PAGE = MfccCnn(rate=RATE, bands=16, cepstra=10, widths=(16, 16), strides=(1, 2), kernel=3, dropout=0.0)
PROCESSOR = RecordingProcessor(rate=RATE).for_model(PAGE)


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words in folders, and an untrained network."""
    folder = write(tmp_path_factory.mktemp("sounds"))
    huggingface.save(folder / "trunk", PAGE.build(seed=0), PROCESSOR)
    return folder


def config(sounds: Path, **changes: object) -> FineTuning:
    given = {"task": "classification", "model": sounds / "trunk", "train": sounds / "train", "dev": sounds / "dev"}
    given |= {"epochs": 12, "lr": 1e-2, "seeds": 1, "device": "cpu", "precision": "fp32", "batch_size": 18}
    return FineTuning().override({**given, **changes})


@pytest.fixture(scope="module")
def run(sounds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "run"
    finetune(config(sounds), out)
    return out


def test_words_are_learned_scored_predicted_and_served(run, sounds, capsys):
    result = json.loads((run / "results.json").read_text())
    dev = result["seeds"][0]["dev"]
    assert result["task"] == "speech-classification"
    assert dev["accuracy"] > 0.9 > 0.4 > result["baseline"]["dev"]["accuracy"]
    assert sum(result["confusion"]["rise"].values()) == 6
    assert evaluate(run, sounds / "dev")["metrics"] == pytest.approx(dev, abs=1e-6)
    report = (run / "report.html").read_text()
    assert "Confusion" in report
    assert report.count('class="picture wide"') == len(json.loads((run / "examples.json").read_text())["dev"]) > 0

    files = sorted((sounds / "dev" / "rise").iterdir())
    capsys.readouterr()
    main(["predict", "--model", str(run), *map(str, files[:2])])
    lines = capsys.readouterr().out.splitlines()
    assert [re.fullmatch(rf"rise  0\.\d{{3}}  {re.escape(str(path))}", line) is not None
            for path, line in zip(files, lines, strict=False)] == [True, True]  # fmt: skip
    main(["predict", "--model", str(run), "--file", str(files[0]), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["label"] == "rise"
    assert sum(answer["scores"].values()) == pytest.approx(1, abs=1e-5)
    [found] = Predictor(run, precision="fp32").answer([Recording(source=files[0])])
    assert found["scores"] == pytest.approx(answer["scores"], abs=1e-5)

    sent = base64.b64encode(files[0].read_bytes()).decode()
    with TestClient(build(Pool([run]))) as http:
        texts = [{"recording": sent}, {"recording": f"data:audio/wav;base64,{sent}"}]
        answers = http.post("/predict", json={"texts": texts}).json()["answers"]
        assert answers[0] == answers[1] == {**answer, "scores": pytest.approx(answer["scores"], abs=1e-5),
                                            "probability": pytest.approx(answer["probability"], abs=1e-5)}  # fmt: skip
        for wrong, said in (
            ("a word", "this model reads recordings"),
            ({"recording": "?"}, "the recording is not Base64"),
            ({"recording": ""}, "has no recording"),
            ({"recording": base64.b64encode(b"no sound").decode()}, "cannot be decoded"),
        ):
            refused = http.post("/predict", json={"texts": [wrong]})
            assert (refused.status_code, said in refused.json()["error"]) == (422, True), refused.json()
        assert http.get("/models").json()["models"][0]["panel"] == "classifyRecording"


def test_the_answer_is_that_of_the_head_at_the_mean_of_the_frames(run, sounds):
    loaded = huggingface.load(run)
    path = sorted((sounds / "dev" / "fall").iterdir())[0]
    samples = Recording(source=path).samples(RATE)
    batch = loaded.processor.collate([loaded.processor.example(samples)])
    with torch.no_grad():
        mean = loaded.model(batch)[0].mean(0)
        head = loaded.model.heads["speech_classification"].output
        wanted = (head.weight @ mean + head.bias).softmax(0)
    [found] = Predictor(run, precision="fp32").found([Recording(source=path)])
    np.testing.assert_allclose(found[0], wanted.numpy(), atol=1e-5)


def test_half_a_minute_is_read_whole(run, sounds, tmp_path):
    long = np.tile(Recording(source=next((sounds / "dev").rglob("*.wav"))).samples(RATE), 200)[: 29 * RATE]
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "long.wav", long, RATE)
    loaded = huggingface.load(run)
    for predictor in (Predictor(run), Predictor(loaded)):
        [answer] = predictor.answer([Recording(source=tmp_path / "long.wav")])
        assert "cut" not in answer
        [answer] = Predictor(loaded, length=100).answer([Recording(source=tmp_path / "long.wav")])
        assert answer["cut"]


def test_recordings_are_found_in_the_data(sounds, tmp_path):
    (tmp_path / "rows.tsv").write_text("path\tlabel\nrise.wav\trise\n")
    (tmp_path / "texts.tsv").write_text("text\tlabel\nup\trise\n")
    names = [task_on("classification", path) for path in (sounds / "train", tmp_path / "rows.tsv")]
    assert names == ["speech-classification"] * 2
    for other in (tmp_path / "texts.tsv", tmp_path / "nothing", None):
        assert task_on("classification", other) == "classification"
    assert task_on("tagging", sounds / "train") == "tagging"
    assert FineTuning().override({"train": sounds / "train"}).task == "speech-classification"
    assert config(sounds).override({"task": "classification"}) == config(sounds)  # as with --resume


def test_plain_references_are_scored_with_the_same_metrics(sounds, capsys):
    given = ("--train", sounds / "train", "--dev", sounds / "dev", "--json")
    main(["baseline", "--task", "classification", *map(str, given)])
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert list(scores) == ["baseline", "cepstra"]
    assert scores["cepstra"]["dev"]["accuracy"] > 0.5
    assert list(scores["cepstra"]["dev"]) == ["accuracy", "macro_f1", "mcc"]
    found = statistics(list(labelled(sounds / "dev")), RATE)
    assert found.shape == (18, 78)


def test_the_loss_trace_is_the_golden_one(sounds, tmp_path):
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    changes = {"speed": 0.1, "gain": 3.0, "noise": 0.5, "silenced_bands": 1, "shift": 0.02, "crop": 0.9}
    try:
        finetune(config(sounds, epochs=4, lr=3e-3, **changes), tmp_path / "run")
    finally:
        torch.set_num_threads(threads)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl", "train")
    trace = [round(row["loss/speech_classification"], 4) for row in rows]
    assert len(trace) == 12
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-4)


class Killed(BaseException):
    """The death of a process: nothing is saved."""


def test_a_run_that_dies_continues_bit_for_bit(sounds, tmp_path):
    made = config(sounds, epochs=3, evaluations=2, speed=0.1, noise=0.5, shift=0.01)

    class Deadly(Spy):
        def show(self, row):
            if row["step"] >= 5:
                raise Killed

    finetune(made, tmp_path / "whole")
    with pytest.raises(Killed):
        finetune(made, tmp_path / "half", display=Deadly())
    assert begun(tmp_path / "half") == made
    finetune(begun(tmp_path / "half"), tmp_path / "half", resume=True)
    one, two = (huggingface.load(tmp_path / name).model.state_dict() for name in ("whole", "half"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_whole_groups_are_held_out(sounds, tmp_path):
    made = config(sounds, dev=None, epochs=1).override({"group": "/([a-z]+)_"})
    finetune(made, tmp_path / "run")
    notes = json.loads((tmp_path / "run" / "results.json").read_text())["notes"]
    assert any("held out instead, whole groups: 9 rows" in note for note in notes)
    train = labelled(sounds / "train", Wanted(group="/([a-z]+)_"))
    held, rest, how = made.rows.hold_out(train, 5, np.random.default_rng(0))
    assert (how, len(held), len(rest)) == ("whole groups", 9, 45)


def test_long_recordings_are_cut_and_counted(sounds):
    task, rows = SpeechClassification(list(WORDS)), list(labelled(sounds / "dev"))
    encoded = task.encode(rows, PROCESSOR, 8)
    assert set(encoded.lengths.tolist()) == {8}
    assert encoded.notice == "18 of 18 rows (100.0%) are longer than 8 frames and were cut."
    assert len(encoded.examples[0].signal[1]) == PROCESSOR.samples(8)


# ------------------------------------------------------------------------------------------------ augmentation


def encoded(sounds, **options):
    task = SpeechClassification(list(WORDS), augmenting=Cropping(**options))
    plain = task.encode(list(labelled(sounds / "dev")), PROCESSOR, 20)
    return plain, task.for_training(plain, PROCESSOR)


def test_training_without_changes_is_plain(sounds):
    assert encoded(sounds)[1].collate is None


def test_batches_of_training_depend_on_the_generator_and_fit_the_rows(sounds):
    plain, changed = encoded(sounds, speed=0.3, crop=0.6, noise=1.0, silenced_bands=2)
    groups = [plain.examples[i : i + 1] for i in range(18)]
    one, two, other = (changed.collate(groups, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.signal.values, two.signal.values)
    assert one.signal.values.shape != other.signal.values.shape
    assert one.tokens.shape[1] <= 24
    labels = one.targets["speech_classification"].values
    assert sorted(labels.tolist()) == [0] * 6 + [1] * 6 + [2] * 6


def test_a_recording_that_would_be_too_short_stays(sounds):
    plain, changed = encoded(sounds, crop=0.01)
    groups = [plain.examples[i : i + 1] for i in range(18)]
    batch = changed.collate(groups, np.random.default_rng(0))
    assert batch.signal.lengths.min() >= PROCESSOR.window


def test_masked_frames_are_spans_and_need_a_vector(sounds):
    plain, changed = encoded(sounds, masks=0.4, span=3)
    batch = changed.collate([plain.examples[:18]], np.random.default_rng(0))
    real = batch.documents > 0
    share = (batch.tokens[real] == Kind.MASK).float().mean()
    assert 0.2 < share < 0.45
    with pytest.raises(UnmaskError, match="A MfccCnn has no vector for masked frames: leave --masks out"):
        Augmenting(masks=0.1).check_model(PAGE)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speed": 1.0}, "--speed and --masks must be at least 0 and below 1, and --noise at least 0 and at most 1"),
        ({"noise": 1.5}, "--speed and --masks must be at least 0 and below 1, and --noise at least 0 and at most 1"),
        ({"gain": -1.0}, "--gain and --silenced-bands must be at least 0"),
        ({"span": 5}, "--span is for --masks"),
        ({"crop": 0.0}, "--crop is a share of a recording"),
    ],
)
def test_options_out_of_range_are_refused(options, said):
    with pytest.raises(UnmaskError, match=said):
        Cropping(**options).check()


# ------------------------------------------------------------------------------------------------ what does not fit


def test_models_and_data_that_do_not_fit(sounds, run, tmp_path, capsys):
    huggingface.save(tmp_path / "vit", Vit(size=8, patch=4, dim=8, layers=1, heads=2, hidden=8).build())
    with pytest.raises(UnmaskError, match=r"is a model that reads no recordings; take a wav2vec 2\.0"):
        finetune(config(sounds, model=tmp_path / "vit"), tmp_path / "run")
    (tmp_path / "one" / "rise").mkdir(parents=True)
    (tmp_path / "one" / "rise" / "a.wav").write_bytes(b"RIFF????")
    (tmp_path / "one" / "rise" / "b.wav").write_bytes((sounds / "dev/rise/ann_3.wav").read_bytes())
    with pytest.raises(UnmaskError, match=r"a.wav cannot be decoded"):
        evaluate(run, tmp_path / "one")
    with pytest.raises(SystemExit):
        main(["predict", "--model", str(run), "rise"])
    assert "There is no recording rise; give the name of a file." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["predict", "--model", str(run), "--file", str(tmp_path / "one/rise/a.wav")])
    assert "cannot be decoded" in capsys.readouterr().err
    (tmp_path / "rows.tsv").write_text(f"path\tlabel\n{sounds}/dev/rise/ann_3.wav\tsing\n")
    with pytest.raises(UnmaskError, match="has the label 'sing', which the outputs"):
        evaluate(run, tmp_path / "rows.tsv")


def test_a_new_model_is_trained_by_its_recipe(sounds, tmp_path):
    out = tmp_path / "run"
    sizes = ["--rate", "8000", "--widths", "16,16", "--strides", "1,2"]
    main(["train", "mfcc-cnn-tiny", "--data", str(sounds), "--out", str(out), "--epochs", "8", "--device", "cpu",
          "--precision", "fp32", "--batch-size", "18", *sizes])  # fmt: skip
    loaded = huggingface.load(out)
    assert loaded.processor == RecordingProcessor(rate=8_000, hop=160, window=200)
    assert loaded.model.config.widths == (16, 16)
    assert loaded.labels == ("fall", "rise", "stay")
    assert json.loads((out / "results.json").read_text())["seeds"][0]["dev"]["accuracy"] > 0.6
    assert set(loaded.model.heads) == {"speech_classification"}
    assert Head("sequence", 3) == loaded.model.heads["speech_classification"].asked
