"""wav2vec 2.0 from a folder of recordings: learned, resumed, continued, reported; bad recordings."""

from __future__ import annotations

import json
import re
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.runs.pretraining.config import Pretraining
from unmask.runs.report import run_facts, write_report
from unmask.train.events import Step
from unmask.train.metrics import read as read_metrics
from unmask.types import Target

GOLDEN = Path(__file__).parents[1] / "golden" / "pretrain-wav2vec2-tiny.json"
RATE = 2_000
SIZES = {
    "model.channels": (16, 16), "kernels": (10, 4), "strides": (5, 4), "dim": 32, "layers": 2, "heads": 2, "hidden": 64,
    "position_kernel": 8, "position_groups": 2, "entries": 8, "codes": 16,
}  # fmt: skip


def write(path: Path, samples: np.ndarray) -> None:
    """A WAV file of 16 bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((20_000 * samples).astype(np.int16).tobytes())


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of half a second to a second: steps of a scale, each of a tenth of a second."""
    folder, rng = tmp_path_factory.mktemp("tones"), np.random.default_rng(0)
    for i in range(120):
        pitches = 100 * 2 ** (rng.integers(0, 5, rng.integers(5, 11)) / 2)
        phase = np.cumsum(np.repeat(2 * np.pi * pitches / RATE, RATE // 10))
        write(folder / f"{i % 3}" / f"{i}.wav", np.sin(phase) + 0.05 * rng.normal(size=len(phase)))
    return folder


def config(**changes: object) -> Pretraining:
    usual = {"steps": 40, "lr": 4e-3, "batch": 8, "tokens": 100, "heldout": 8, "device": "cpu", "precision": "fp32"}
    learned = {"rate": RATE, "span": 4, "negatives": 20, "projection": 16, "noise_decay": 0.98, "penalty": 1.0}
    given = {**SIZES, **usual, **learned, "minutes": None, "save_every": 20, "evaluate_every": 20, **changes}
    return recipes.find("wav2vec2-tiny").override(given)


@pytest.fixture(scope="module")
def run(tones: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    """A run that has ended."""
    made = Pretrain(config(), [tones], tmp_path_factory.mktemp("runs") / "run", recipe="wav2vec2-tiny")
    made.run()
    return made


def test_masked_frames_are_learned_and_reported(run: Pretrain):
    first, *_, last = read_metrics(run.out / "metrics.jsonl", "heldout")
    assert last["loss/contrastive"] < first["loss/contrastive"] - 0.3
    assert last["contrastive/correct"] > 2 * last["contrastive/chance"]
    assert last["contrastive/perplexity_1"] > 2
    report = write_report(run.out).read_text()
    assert "Perplexity of the second codebook" in report
    assert "Share of the entries that are used" in report
    assert "Found frames during training: held-out recording 1" in report
    shown = len(run.probes) * (2 + 3)  # given, and found at steps 0, 20 and 40
    assert report.count('class="picture wide"') == shown > 0
    assert all(re.search(rf">{step}</b><small>\d+ % found<", report) for step in ("step 0", "step 20", "step 40"))


def test_a_run_that_is_resumed_ends_with_the_same_weights(run: Pretrain, tones: Path, tmp_path: Path):
    half = Pretrain(config(), [tones], tmp_path / "half", recipe="wav2vec2-tiny")
    half.run(lambda event: event == Step(17) and half.trainer.stop("the test"))
    again = Pretrain(config(), [tones], tmp_path / "half", resume=True)
    again.run()
    one, two = (huggingface.load(folder).model.state_dict() for folder in (run.out, tmp_path / "half"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert again.objective.noise == run.objective.noise == 2.0 * 0.98**39
    assert config().resumed(run_facts(run.out)) == run.config


def test_a_folder_goes_on(run: Pretrain, tones: Path, tmp_path: Path):
    last = read_metrics(run.out / "metrics.jsonl", "heldout")[-1]
    more = Pretrain(config(projection=99).starting_from(run.out), [tones], tmp_path / "more")
    with torch.no_grad():
        before = more.evaluate(more.model.eval(), 0).numbers
    assert before["loss/contrastive"] == pytest.approx(last["loss/contrastive"], rel=1e-5)


def test_the_loss_of_a_folder_is_that_of_transformers(run: Pretrain, tones: Path):
    """Of one recording, with the same masked frames and negatives. Negatives have other codes than the frame, because
    `transformers` finds those with the same codes by equality of rounded numbers."""
    transformers, K = pytest.importorskip("transformers"), 5
    theirs, loading = transformers.Wav2Vec2ForPreTraining.from_pretrained(run.out, output_loading_info=True)
    assert not any(loading.values())
    model = huggingface.load(run.out).model.eval()
    objective = run.config.override({"negatives": K}).objective.build(run.processor)
    recording = run.train[0].at_rate(RATE).read(0)
    batch = objective.packed([objective.example(recording, 100)], 100, np.random.default_rng(0))
    F, places = run.processor.frames(len(recording)), batch.targets["contrastive"].places
    with torch.no_grad():
        codes = model.heads["contrastive"].quantise(model.frames(batch)[0, places]).codes
    apart = (codes[:, None] != codes).any(-1)
    others = torch.stack([row.nonzero()[:, 0][torch.arange(K) % row.sum()] for row in apart])
    offsets = Target(places, others - torch.arange(len(places))[:, None])
    with torch.no_grad():
        found = objective.loss(model, batch.with_targets(contrastive=offsets))
        mask, chosen = torch.zeros(1, F, dtype=torch.bool), torch.zeros(1, F, K, dtype=torch.long)
        mask[0, places], chosen[0, places] = True, places[others]
        values = batch.signal.values[None]
        expected = theirs.eval()(values, mask_time_indices=mask, sampled_negative_indices=chosen)
    assert found["contrastive"].sum.item() == pytest.approx(expected.contrastive_loss.item(), rel=1e-4)
    assert found["diversity"].sum.item() == pytest.approx(expected.diversity_loss.item(), rel=1e-4)


def test_the_loss_trace_is_the_golden_one(tones: Path, tmp_path: Path):
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        Pretrain(config(steps=12, log_every=1), [tones], tmp_path).run()
    finally:
        torch.set_num_threads(threads)
    trace = [round(row["loss/contrastive"], 4) for row in read_metrics(tmp_path / "metrics.jsonl", "train")]
    assert len(trace) == 12
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-4)


def test_a_collapse_is_said_as_soon_as_it_is_found(tones: Path, tmp_path: Path):
    class Notes:
        def __init__(self) -> None:
            self.notes: list[str] = []

        def start(self, step: int, total: int) -> None: ...
        def show(self, row: dict) -> None: ...
        def close(self) -> None: ...
        def note(self, text: str) -> None:
            self.notes.append(text)

    shown = Notes()
    made = Pretrain(config(steps=4, evaluate_every=2, lr=1e-9), [tones], tmp_path, display=shown)
    with torch.no_grad():  # one entry wins everywhere
        made.model.heads["contrastive"].quantizer.weight_proj.bias[0] = 1e4
    result = made.run()
    assert sum("codebook has collapsed" in note for note in shown.notes) == 2
    assert "codebook has collapsed" in made.summary(result)


def refusal(arguments: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence of a command that is refused."""
    with pytest.raises(SystemExit) as error:
        main(list(map(str, arguments)))
    assert error.value.code == 2
    return capsys.readouterr().err


OPTIONS = [
    part
    for name, value in {**SIZES, "rate": RATE, "tokens": 60, "steps": 2, "projection": 16}.items()
    for part in (f"--{name.replace('_', '-')}", ",".join(map(str, value)) if isinstance(value, tuple) else value)
]


def test_the_command_line_takes_a_folder_and_says_what_is_wrong(tones: Path, tmp_path: Path, capsys):
    run = ["pretrain", "wav2vec2-tiny", *OPTIONS, "--device", "cpu", "--out", tmp_path / "run", "--data"]
    main([*map(str, run), str(tones)])
    assert "of the masked frames were told from 100 others" in capsys.readouterr().out
    run[run.index(tmp_path / "run")] = tmp_path / "other"
    (tmp_path / "empty").mkdir()
    write(tmp_path / "short" / "a.wav", np.zeros(30))
    write(tmp_path / "short" / "b.wav", np.zeros(40))
    assert "none" in refusal([*run, tmp_path / "none"], capsys)
    assert "empty" in refusal([*run, tmp_path / "empty"], capsys)
    assert "No recording has" in refusal([*run, tmp_path / "short"], capsys)
    texts = ["pretrain", "bert-tiny", "--data", tones, "--out", tmp_path / "texts"]
    assert "There is no text" in refusal(texts, capsys)
    assert not (tmp_path / "other").exists()


def test_damaged_and_short_recordings_are_left_out_and_named(tones: Path, tmp_path: Path):
    folder = tmp_path / "some"
    for path in sorted(tones.rglob("*.wav"))[:40]:
        write(folder / path.name, np.frombuffer(path.read_bytes()[44:], np.int16) / 32_768)
    write(folder / "short.wav", np.zeros(20))
    (folder / "broken.wav").write_bytes(b"RIFF and no more")
    run = Pretrain(config(steps=2), [folder], tmp_path / "run")
    run.run()
    assert any("broken.wav" in note for note in run.corpora[0].notes)
