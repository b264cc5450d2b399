"""Verification of speakers: the loss, and a run whose vectors are scored, compared, embedded and served."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from sounds import RATE, write
from starlette.testclient import TestClient

from unmask import huggingface
from unmask.cli import main
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording, RecordingPair
from unmask.errors import UnmaskError
from unmask.models.mfcc_cnn import MfccCnn
from unmask.runs.finetuning import FineTuning, begun, evaluate, finetune
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.tasks import Verification
from unmask.tasks.recording_references import statistics
from unmask.tasks.verification import AdditiveMargin, VerificationOptions
from unmask.train.metrics import read as read_metrics

pytest.importorskip("soundfile")
GOLDEN = Path(__file__).parents[1] / "golden" / "finetune-verification.json"
PAGE = MfccCnn(rate=RATE, bands=20, cepstra=0, widths=(24, 24), strides=(1, 2), kernel=3, dropout=0.0)
VOICE = "([a-z]+)_[0-9]"


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Voices in the names of files, and an untrained network."""
    folder = write(tmp_path_factory.mktemp("sounds"))
    huggingface.save(folder / "trunk", PAGE.build(seed=0), RecordingProcessor(rate=RATE).for_model(PAGE))
    return folder


def config(sounds: Path, **changes: object) -> FineTuning:
    given = {"task": "verification", "model": sounds / "trunk", "train": sounds / "train", "dev": sounds / "dev"}
    given |= {"epochs": 30, "lr": 1e-2, "seeds": 1, "device": "cpu", "precision": "fp32", "batch_size": 18}
    return FineTuning().override({**given, "label": VOICE, "vector_size": 16, "margin": 0.2, **changes})


@pytest.fixture(scope="module")
def run(sounds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "run"
    finetune(config(sounds), out)
    return out


@given(
    rows=st.integers(1, 6),
    classes=st.integers(1, 5),
    scale=st.floats(1, 40),
    margin=st.floats(0, 0.6),
    seed=st.integers(0, 9),
)
def test_the_loss_is_that_of_transformers(rows, classes, scale, margin, seed):
    modeling = pytest.importorskip("transformers.models.wav2vec2.modeling_wav2vec2")
    generator = torch.Generator().manual_seed(seed)
    theirs = modeling.AMSoftmaxLoss(7, classes, scale, margin).double()
    with torch.no_grad():
        theirs.weight.copy_(torch.randn(7, classes, generator=generator, dtype=torch.float64))
    labels = torch.randint(classes, (rows,), generator=generator)
    vectors = torch.randn(rows, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    loss = theirs(vectors, labels)
    [wanted] = torch.autograd.grad(loss, vectors)
    cosines = torch.nn.functional.normalize(vectors, dim=1) @ torch.nn.functional.normalize(theirs.weight, dim=0)
    found = AdditiveMargin(scale, margin)(cosines, labels)
    assert found.count == rows
    near = {"rtol": 1e-6, "atol": 1e-6}  # theirs keeps the margin in float32
    torch.testing.assert_close(found.sum / rows, loss, **near)
    torch.testing.assert_close(torch.autograd.grad(found.sum / rows, vectors)[0], wanted, **near)
    assert int(found.metrics["correct"]) == int((cosines.argmax(1) == labels).sum())


def test_vectors_are_scored_compared_embedded_and_served(run, sounds, tmp_path, capsys):
    result = json.loads((run / "results.json").read_text())
    dev, baseline = result["seeds"][0]["dev"], result["baseline"]["dev"]
    assert dev["eer"] < 0.35 < 0.5 < baseline["eer"]  # cepstra tell the words apart, not the voices
    assert list(dev) == list(baseline) == ["eer", "mindcf", "auc", "accuracy"]
    again = evaluate(run, sounds / "dev")
    assert again["metrics"] == pytest.approx(dev, abs=1e-5)
    assert "ROC, on the dev rows" in (run / "report.html").read_text()

    one, two = (sounds / "dev" / word / "ann_3.wav" for word in ("fall", "rise"))
    other = sounds / "dev" / "fall" / "bob_3.wav"
    capsys.readouterr()
    main(["predict", "--model", str(run), str(one), f"{one}\t{one}", f"{one}\t{other}", "--json"])
    single, same, different = map(json.loads, capsys.readouterr().out.splitlines())
    assert len(single["embedding"]) == 16
    assert same["same"]
    assert same["similarity"] == pytest.approx(1, abs=1e-5)
    assert different["same"] == (different["similarity"] >= different["threshold"])
    predictor = Predictor(run, precision="fp32")
    rows = [RecordingPair(source=one, other=two), Recording(source=one)]
    pair, alone = predictor.found(rows)
    assert (pair.shape, alone.shape) == ((2, 16), (1, 16))
    np.testing.assert_allclose(pair[0], alone[0], atol=1e-5)
    assert predictor.answer(rows)[0]["similarity"] == pytest.approx(float(pair[0] @ pair[1]), abs=1e-6)

    main(["embed", "--model", str(run), "--data", str(sounds / "dev"), "--out", str(tmp_path / "v.npy")])
    vectors, names = np.load(tmp_path / "v.npy"), (tmp_path / "v.names.txt").read_text().splitlines()
    np.testing.assert_allclose(vectors[names.index("fall/ann_3.wav")], pair[0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)

    def sent(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    with TestClient(build(Pool([run]))) as http:
        found = http.post("/embed", json={"texts": [{"recording": sent(one)}, {"recording": sent(two)}]}).json()
        np.testing.assert_allclose(found["embeddings"], pair, atol=1e-5)
        both = {"recording": sent(one), "other": sent(other)}
        [answer] = http.post("/predict", json={"texts": [both]}).json()["answers"]
        assert answer == {key: pytest.approx(value, abs=1e-5) for key, value in different.items()}
        assert http.get("/models").json()["models"][0]["panel"] == "compareRecordings"


def test_a_trunk_gives_summaries(sounds, tmp_path):
    main(["embed", "--model", str(sounds / "trunk"), "--data", str(sounds / "dev"), "--out", str(tmp_path / "v.npy")])
    loaded = huggingface.load(sounds / "trunk")
    names = (tmp_path / "v.names.txt").read_text().splitlines()
    samples = Recording(source=sounds / "dev" / names[3]).samples(RATE)
    with torch.no_grad():
        wanted = loaded.model(loaded.processor.collate([loaded.processor.example(samples)]))[0].mean(0)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy")[3], wanted.numpy(), atol=1e-5)


def test_the_threshold_is_that_of_equal_errors_on_the_dev_rows(run, sounds):
    threshold = huggingface.load(run).settings["threshold"]
    files = sorted((sounds / "dev").rglob("*.wav"))
    vectors = np.concatenate(Predictor(run, precision="fp32").found([Recording(source=path) for path in files]))
    first, second = np.triu_indices(len(files), 1)
    accepted = (vectors[first] * vectors[second]).sum(1) >= threshold
    voices = np.array([path.name[:3] for path in files])
    same = voices[first] == voices[second]
    eer = json.loads((run / "results.json").read_text())["seeds"][0]["dev"]["eer"]
    assert accepted[~same].mean() == pytest.approx(eer, abs=0.06)
    assert (~accepted[same]).mean() == pytest.approx(eer, abs=0.06)


def test_other_speakers_replace_those_of_a_folder(run, sounds, tmp_path):
    files = sorted(path for path in (sounds / "train").rglob("*.wav") if path.name[:3] in ("ann", "bob", "cid"))
    (tmp_path / "rows.tsv").write_text("path\tspeaker\n" + "".join(f"{path}\t{path.name[:3]}\n" for path in files))
    changes = {"model": run, "train": tmp_path / "rows.tsv", "label": None, "epochs": 1}
    finetune(
        config(sounds, **changes).override({"dev": tmp_path / "rows.tsv", "allow_overlap": "yes"}), tmp_path / "run"
    )
    loaded = huggingface.load(tmp_path / "run")
    model = loaded.model
    assert loaded.labels == ("ann", "bob", "cid")
    assert [model.heads[name].asked.outputs for name in ("verification", "speakers")] == [16, 3]


def test_plain_references_are_scored_with_the_same_metrics(run, sounds, capsys):
    given = ("--train", sounds / "train", "--dev", sounds / "dev", "--label", VOICE, "--json")
    main(["baseline", "--task", "verification", *map(str, given)])
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert list(scores) == ["baseline", "cepstra"]
    baseline = json.loads((run / "results.json").read_text())["baseline"]["dev"]
    assert scores["baseline"]["dev"] == pytest.approx(baseline)
    files = sorted((sounds / "dev").rglob("*.wav"))
    found = statistics([Recording(source=path) for path in files], RATE)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    first, second = np.triu_indices(len(files), 1)
    same = np.array([files[i].name == files[j].name for i, j in zip(first, second, strict=True)])
    assert baseline["auc"] == pytest.approx(roc_auc_score(same, (found[first] * found[second]).sum(1)), abs=1e-6)


def test_the_loss_trace_is_the_golden_one(sounds, tmp_path):
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        finetune(config(sounds, epochs=4, lr=3e-3, noise=0.5), tmp_path / "run")
    finally:
        torch.set_num_threads(threads)
    trace = [round(row["loss/verification"], 3) for row in read_metrics(tmp_path / "run" / "metrics.jsonl", "train")]
    assert len(trace) == 12
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-3)


def test_whole_speakers_are_held_out(sounds, tmp_path):
    finetune(config(sounds, dev=None, epochs=1), tmp_path / "run")
    notes = json.loads((tmp_path / "run" / "results.json").read_text())["notes"]
    assert any("held out instead, whole classes: 18 rows" in note for note in notes)
    assert any("dev: 18 recordings of 2 classes, 2 of them not in training." in note for note in notes)


@pytest.mark.parametrize(("similar", "collapsed"), [(1.0, True), (0.5, False)])
def test_equal_vectors_are_a_collapse(similar, collapsed):
    sine = (1 - similar**2) ** 0.5
    answers = [np.array([[1.0, 0.0]]), np.array([[similar, sine]])]
    assert Verification().is_collapsed(answers, []) == collapsed


def test_what_does_not_fit(sounds, tmp_path, run):
    (tmp_path / "rows.tsv").write_text(f"path\tspeaker\n{sounds}/dev/rise/ann_3.wav\tann\n")
    with pytest.raises(UnmaskError, match="has 1 class, and 0 classes with two recordings or more"):
        evaluate(run, tmp_path / "rows.tsv", {"label": "speaker"})
    for wrong in ({"vector_size": 0}, {"margin": -0.1}, {"scale": 0.0}):
        with pytest.raises(UnmaskError, match="--vector-size must be at least 1"):
            VerificationOptions(**wrong).check()
    with pytest.raises(UnmaskError, match="verification cannot be learned from a teacher"):
        Verification().check_teachable()
    with pytest.raises(UnmaskError):
        begun(run)
