"""Speech recognition: transcripts of tones, from the loss to a folder that is evaluated, searched and served."""

from __future__ import annotations

import base64
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from finetune_toy import Spy
from starlette.testclient import TestClient

from unmask import huggingface
from unmask.cli import main, parser
from unmask.cli.parser import overrides
from unmask.data import collate
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.errors import UnmaskError
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.runs.finetuning import FineTuning, begun, evaluate, finetune
from unmask.runs.finetuning.encoder import prepare
from unmask.runs.finetuning.prepared import Notes
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.tasks import SpeechRecognition
from unmask.train.metrics import TIMED
from unmask.train.metrics import read as read_metrics
from unmask.types import Kind

soundfile = pytest.importorskip("soundfile")
GOLDEN = Path(__file__).parents[1] / "golden" / "finetune-speech-recognition.json"
RATE = 8_000
PITCHES = {"a": 400.0, "b": 900.0, "c": 1_600.0}
PAGE = MfccCnn(rate=RATE, bands=20, cepstra=13, widths=(64, 64), strides=(1, 2), kernel=7, dropout=0.0)
PROCESSOR = RecordingProcessor(rate=RATE).for_model(PAGE)
TASK = SpeechRecognition(("<pad>", "<unk>", "|", "a", "b", "c"))


def tone(text: str, rng: np.random.Generator) -> np.ndarray:
    """A tone of 120 ms for each letter, with pauses: 40 ms between letters, 120 ms between words."""
    parts = [np.zeros(400)]
    for letter in text:
        n = round(0.12 * RATE)
        pitch = PITCHES.get(letter, 0.0) * rng.uniform(0.97, 1.03)
        parts += [0.3 * np.sin(2 * np.pi * pitch * np.arange(n) / RATE), np.zeros(round(0.04 * RATE))]
    whole = np.concatenate(parts)
    return (whole + 0.01 * rng.standard_normal(len(whole))).astype(np.float32)


def write(folder: Path, name: str, texts: list[str], seed: int = 0) -> Path:
    """A table of recordings of these texts."""
    rng, rows = np.random.default_rng(seed), ["path\ttext"]
    for i, text in enumerate(texts):
        soundfile.write(folder / f"{name}{i}.wav", tone(text.lower(), rng), RATE)
        rows.append(f"{name}{i}.wav\t{text}")
    (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    return folder / f"{name}.tsv"


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join("".join(rng.choice(list("abc"), 2)) for _ in range(rng.integers(1, 4))) for _ in range(count)]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    write(folder, "train", sentences(48, 1), 1)
    write(folder, "dev", sentences(12, 2), 2)
    huggingface.save(folder / "trunk", PAGE.build(seed=0), PROCESSOR)
    return folder


def config(room: Path, **changes: object) -> FineTuning:
    given = {"model": room / "trunk", "task": "speech-recognition", "train": room / "train.tsv"}
    given |= {"dev": room / "dev.tsv", "epochs": 14, "lr": 2e-2, "seeds": 1, "batch_size": 8, "evaluations": 0.2}
    return FineTuning().override({**given, "device": "cpu", "precision": "fp32", **changes})


@pytest.fixture(scope="module")
def run(room: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "run"
    finetune(config(room), out)
    return out


# ------------------------------------------------------------------------------------------------ the loss


def rows_of(texts: list[str], seed: int = 0) -> list[Recording]:
    rng = np.random.default_rng(seed)
    return [Recording(place=text, text=text, source=wav(tone(text, rng))) for text in texts]


def wav(samples: np.ndarray) -> bytes:
    import io

    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="WAV", subtype="FLOAT")
    return file.getvalue()


@pytest.mark.parametrize("page", [PAGE, None], ids=["cepstra", "wav2vec2"])
def test_the_loss_is_the_same_however_recordings_are_laid_out(page):
    page = page or Wav2Vec2(dim=16, layers=1, heads=2, hidden=32, channels=(8, 8), kernels=(10, 4), strides=(8, 4))
    model = page.build(TASK.heads, seed=0).eval()
    processor = RecordingProcessor(rate=RATE).for_model(page)
    encoded = TASK.encode(rows_of(["ab", "c", "abc abc", "cc a", "b"]), processor, 1_000)
    examples = list(encoded.examples)
    width = max(len(one.tokens) for one in examples)
    alone = [TASK.loss(model, collate.pad([one], Kind.PADDING, multiple=1))["ctc"] for one in examples]
    whole = sum(float(loss.sum.detach()) for loss in alone)
    for batch in (collate.pad(examples, Kind.PADDING), collate.pack(examples, width, Kind.PADDING)):
        loss = TASK.loss(model, batch)["ctc"]
        assert float(loss.sum.detach()) == pytest.approx(whole, rel=1e-5)
        assert loss.count == batch.counts["ctc"] == 5
    assert [loss.count for loss in alone] == [1] * 5


def test_the_loss_is_that_of_torch_on_the_outputs_at_the_frames():
    model = PAGE.build(TASK.heads, seed=0).eval()
    encoded = TASK.encode(rows_of(["abc ab", "c"]), PROCESSOR, 1_000)
    batch = collate.pad(list(encoded.examples), Kind.PADDING)
    hidden = model(batch)
    lengths = torch.tensor([len(one.tokens) for one in encoded.examples])
    places = torch.arange(hidden.shape[0] * hidden.shape[1])
    logits = model.answer("ctc", hidden, places, batch).view(*hidden.shape[:2], -1).transpose(0, 1)
    targets = torch.tensor([[3, 4, 5, 2, 3, 4], [5, 0, 0, 0, 0, 0]])
    wanted = F.ctc_loss(logits.log_softmax(-1), targets, lengths, torch.tensor([6, 1]), reduction="sum")
    assert float(TASK.loss(model, batch)["ctc"].sum.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)
    assert batch.documents is not None
    empty = TASK.loss(model, type(batch)(batch.tokens, documents=batch.documents, signal=batch.signal))["ctc"]
    assert (float(empty.sum.detach()), empty.count) == (0.0, 0)


@pytest.mark.parametrize(
    ("changes", "strategy", "lr"),
    [
        ({}, "upper", 4e-3),
        ({"strategy": "full", "lr": 1e-3}, "full", 1e-3),
        ({"from_scratch": "yes"}, "full", 4e-3),
        ({"dim": 264}, "upper", 2e-4),
    ],
)
def test_defaults_of_a_pre_trained_model(room, tmp_path, changes, strategy, lr):
    """Convolutions over samples stay as they are; small models learn faster than large ones."""
    sizes = {"dim": changes.get("dim", 16), "layers": 1, "heads": 2, "hidden": 8, "position_groups": 2}
    page = Wav2Vec2(**sizes, channels=(8, 8), kernels=(10, 8), strides=(8, 8))
    huggingface.save(tmp_path / "w", page.build(seed=0), RecordingProcessor(rate=RATE).for_model(page))
    (tmp_path / "w" / "run.json").write_text(json.dumps({"config": {"training": {"optimizer": {"lr": 2e-3}}}}))
    given = {name: value for name, value in changes.items() if name != "dim"}
    made = FineTuning().override({"model": tmp_path / "w", "task": "speech-recognition", "seeds": 1, **given})
    prepared = prepare(made.override({"train": room / "train.tsv", "dev": room / "dev.tsv"}), Notes(None))
    assert (prepared.config.transfer.strategy, prepared.config.fit.optimizer.lr) == (strategy, pytest.approx(lr))


# ------------------------------------------------------------------------------------------------ a run


def test_a_run_writes_transcripts_with_the_times_of_words(run, room, tmp_path, capsys):
    result = json.loads((run / "results.json").read_text())
    dev, baseline = result["seeds"][0]["dev"], result["baseline"]["dev"]
    assert dev["wer"] < 0.1 < baseline["wer"] <= 1
    assert evaluate(run, room / "dev.tsv")["metrics"] == pytest.approx(dev, abs=1e-6)
    assert "Scores on the dev rows" in (run / "report.html").read_text()
    for one in json.loads((run / "examples.json").read_text())["dev"]:
        assert base64.b64decode(one["picture"]).startswith(b"\x89PNG")
        assert one["label"]
        assert 0 < one["probability"] <= 1

    rng = np.random.default_rng(9)
    soundfile.write(tmp_path / "talk.wav", tone("abc ca", rng), RATE)
    main(["predict", "--model", str(run), str(tmp_path / "talk.wav"), "--precision", "fp32"])
    assert capsys.readouterr().out == f"abc ca\t{tmp_path / 'talk.wav'}\n"
    main(["predict", "--model", str(run), str(tmp_path / "talk.wav"), "--json", "--precision", "fp32"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "abc ca"
    assert [word["word"] for word in answer["words"]] == ["abc", "ca"]
    times = [word[edge] for word in answer["words"] for edge in ("begin", "end")]
    assert all(a < b for a, b in pairwise(times))
    # Letters begin at 0.05 s, each takes 0.16 s: "abc" ends at 0.53, "ca" begins at 0.69 and ends at 1.01.
    assert times == pytest.approx([0.05, 0.53, 0.69, 1.01], abs=0.16)
    assert all(0 < word["probability"] <= 1 for word in answer["words"])

    sent = base64.b64encode((tmp_path / "talk.wav").read_bytes()).decode()
    with TestClient(build(Pool([run]))) as http:
        [served] = http.post("/predict", json={"texts": [{"recording": sent}]}).json()["answers"]
        assert served["text"] == "abc ca"
        refused = http.post("/predict", json={"texts": ["a text"]})
        assert "this model reads recordings" in refused.json()["error"]
        assert http.get("/models").json()["models"][0]["panel"] == "transcribe"


def test_a_search_takes_a_language_model_of_n_grams_or_of_a_folder(run, room, tmp_path, capsys):
    (tmp_path / "words.txt").write_text("abc ca\nabc ca\nab\n")
    soundfile.write(tmp_path / "talk.wav", tone("abc ca", np.random.default_rng(9)), RATE)
    predict = ["predict", "--model", str(run), str(tmp_path / "talk.wav"), "--precision", "fp32"]
    for search in (["--beams", "4"], ["--lm", str(tmp_path / "words.txt"), "--lm-weight", "0.2"]):
        main([*predict, *search])
        assert capsys.readouterr().out.startswith("abc ca\t")
    main([*predict, "--lm", str(tmp_path / "words.txt"), "--lm-weight", "0", "--word-bonus", "-1000"])
    assert " " not in capsys.readouterr().out.partition("\t")[0]  # a second word costs too much
    main(["evaluate", "--model", str(run), "--data", str(room / "dev.tsv"), "--beams", "4"])
    assert "found by a search with 4 beams" in capsys.readouterr().out
    wrong = {
        "--word-bonus is for --lm": ["--word-bonus", "1"],
        "--beams must be 1 or more": ["--beams", "0"],
        "There is no language model": ["--lm", str(tmp_path / "none")],
    }
    for message, options in wrong.items():
        with pytest.raises(SystemExit):
            main([*predict, *options])
        assert message in capsys.readouterr().err


def test_transcripts_survive_the_folder(run, tmp_path):
    loaded = huggingface.load(run)
    assert loaded.labels == TASK.labels
    assert loaded.settings == {"blank": "<pad>", "space": "|", "unknown": "<unk>", "lower": False}
    assert json.loads((run / "vocab.json").read_text()) == {piece: i for i, piece in enumerate(TASK.labels)}
    huggingface.save(tmp_path / "copy", loaded.model, loaded.processor, labels=loaded.labels, settings=loaded.settings)
    for name in ("vocab.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / "copy" / name).read_bytes() == (run / name).read_bytes()
    rows = rows_of(["ab ca", "b"])
    one, two = (Predictor(folder, precision="fp32").answer(rows) for folder in (run, tmp_path / "copy"))
    assert one == two


def test_the_loss_trace_is_the_golden_one(room, tmp_path):
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        changed = {"speed": 0.1, "silenced_bands": 1, "noise": 0.5}
        finetune(config(room, epochs=0.1, least_steps=12, lr=1e-3, **changed), tmp_path / "run")
    finally:
        torch.set_num_threads(threads)
    trace = [round(row["loss/ctc"], 4) for row in read_metrics(tmp_path / "run" / "metrics.jsonl", "train")]
    assert len(trace) == 12
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), rel=1e-3)


class Killed(BaseException):
    """The death of a process: nothing is saved."""


def test_a_run_that_dies_continues_bit_for_bit(room, tmp_path):
    made = config(room, epochs=4, evaluations=2, speed=0.1, noise=0.5)

    class Deadly(Spy):
        def show(self, row):
            if row["step"] >= 16:
                raise Killed

    finetune(made, tmp_path / "whole")
    with pytest.raises(Killed):
        finetune(made, tmp_path / "half", display=Deadly())
    finetune(begun(tmp_path / "half"), tmp_path / "half", resume=True)
    states = [huggingface.load(tmp_path / name).model.state_dict() for name in ("whole", "half")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    kept = [
        [{key: value for key, value in row.items() if key not in TIMED} for row in read_metrics(path, "train")]
        for path in (tmp_path / name / "metrics.jsonl" for name in ("whole", "half"))
    ]
    assert kept[0] == kept[1]


def test_the_reference_answers_with_the_nearest_training_recording(room, capsys):
    rows = str(room / "train.tsv")
    options = {"task": "speech-recognition", "train": rows, "dev": rows, "allow-overlap": "yes"}
    main(["baseline", *(part for name, value in options.items() for part in (f"--{name}", value)), "--json"])
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores["nearest"]["dev"]["wer"] == 0  # each recording is nearest to itself
    assert scores["baseline"]["dev"]["wer"] > 0.5


# ------------------------------------------------------------------------------------------------ what goes wrong


def test_transcripts_that_do_not_fit_are_left_out_and_named(room, tmp_path):
    rows = ["path\ttext", *(room / "train.tsv").read_text().splitlines()[1:9]]
    rows = [row.replace("train", str(room / "train"), 1) for row in rows]
    rows += [f"{room / 'train0.wav'}\t{'ab' * 60}", f"{room / 'train1.wav'}\t{'b' * 40}"]
    (tmp_path / "odd.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "dev.tsv").write_text(f"path\ttext\n{room / 'dev0.wav'}\tabx, a!\n")
    found = finetune(config(room, train=tmp_path / "odd.tsv", dev=tmp_path / "dev.tsv", epochs=1), tmp_path / "run")
    notes = " ".join(found.notes)
    assert "Left out: 2 recordings with a transcript that needs more frames than there are (" in notes
    assert "odd.tsv:10" in notes
    assert "dev: Characters that are not in the vocabulary, so that the model cannot write them: x 1 times." in notes
    with pytest.raises(UnmaskError, match="No recording can be trained on"):
        finetune(config(room, length=3), tmp_path / "none")


def test_predict_says_what_a_pre_trained_folder_is(room, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["predict", "--model", str(room / "trunk"), str(room / "dev0.wav")])
    said = capsys.readouterr().err
    assert f"{room / 'trunk'} is a pre-trained model of recordings, which has learned no task yet: " in said
    [command] = re.findall(r"unmask (finetune .*?) \(or .*speech-recognition", said)
    _, rest = parser().parse_known_args(shlex.split(command))
    assert FineTuning().override(overrides(rest)).model == room / "trunk"


def test_wrong_rows_and_options(room, tmp_path):
    with pytest.raises(UnmaskError, match="has no transcripts"):
        finetune(config(room, train=room), tmp_path / "o")
    with pytest.raises(UnmaskError, match="leave --cased and --punctuation out"):
        finetune(config(room, vocabulary=room, cased="yes"), tmp_path / "o")
    with pytest.raises(UnmaskError, match=r"has no vocab\.json"):
        finetune(config(room, vocabulary=room / "trunk"), tmp_path / "o")
    with pytest.raises(UnmaskError, match="no vector for masked frames"):
        finetune(config(room, masks=0.3), tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_the_vocabulary_of_a_folder_keeps_its_head(run, room, tmp_path):
    (tmp_path / "few.tsv").write_text(
        "path\ttext\n" + "".join(f"{room / f'train{i}.wav'}\t{'ab' if i % 2 else 'a'}\n" for i in range(10))
    )
    given = {"model": run, "train": tmp_path / "few.tsv", "epochs": 1, "lr": 1e-9, "dev": room / "dev.tsv"}
    found = finetune(config(room, **given, vocabulary=run), tmp_path / "kept")
    assert not any("New parts" in note for note in found.notes)
    assert found.seeds[0]["dev"]["wer"] < 0.2
    assert huggingface.load(tmp_path / "kept").labels == TASK.labels
    new = finetune(config(room, **given), tmp_path / "new")
    assert any("New parts" in note and "ctc" in note for note in new.notes)


def test_the_code_and_the_commands_of_the_page_are_valid():
    text = (Path(__file__).parents[2] / "docs" / "speech_recognition.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code, "docs/speech_recognition.md", "exec", dont_inherit=True), {"__name__": "page"})
    found = re.findall(r"(?m)^unmask (.*)$", text)
    assert len(found) == 7
    for command in found:
        words = shlex.split(command, comments=True)
        _, rest = parser().parse_known_args(words)
        if fields := overrides(rest):
            assert words[0] in ("finetune", "baseline", "train")
            FineTuning(task="speech-recognition").override(fields)
