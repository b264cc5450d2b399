"""Runs of models that write from vectors: arrays and texts in, a folder that writes; from the command line, too."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import run_cli, words
from safetensors.torch import load_file

from unmask.errors import UnmaskError
from unmask.generate import Limits, Search, batching, generate_all
from unmask.huggingface import load
from unmask.models.vector_decoder import VectorDecoder
from unmask.runs.translation import TrainTranslation, evaluate_pairs, systems
from unmask.serve.opened import open_model
from unmask.serve.translator import Translator
from unmask.serve.written import features_of
from unmask.train.events import Step

CLASSES = ("a red rose", "the sea", "one two three four", "snow on the hills")


def write(folder: Path, name: str, count: int, seed: int = 0) -> tuple[str, str]:
    """Vectors near one of four corners, and the text of the corner."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(CLASSES), size=count)
    np.save(folder / f"{name}.npy", np.eye(4)[chosen] + rng.normal(0, 0.05, (count, 4)))
    (folder / f"{name}.txt").write_text("".join(CLASSES[i] + "\n" for i in chosen))
    return str(folder / f"{name}.npy"), str(folder / f"{name}.txt")


def config(folder: Path, steps: int):
    return systems.find("vector-decoder").replace(
        model={"dim": 16, "hidden": 32, "dropout": 0.0},
        texts={"train": write(folder, "train", 200), "dev": write(folder, "dev", 20, 1), "tokens": 128},
        vocabulary={"kind": "word", "size": 50},
        training={"minutes": None, "steps": steps, "precision": "fp32", "device": "cpu", "optimizer": {"lr": 1e-2}},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("vectors")
    TrainTranslation(config(base, 60).replace(texts={"allow_overlap": True}), base / "run").run()
    return base


def test_it_writes_the_text_of_each_vector(folder: Path) -> None:
    found = evaluate_pairs(folder / "run", write(folder, "test", 40, 2))
    assert found["exact"] == 1
    assert found["by_length"] == []
    assert load(folder / "run").model.config.features == 4
    notes = json.loads((folder / "run" / "run.json").read_text())["notes"]
    assert not any("lacks" in note or "not read" in note for note in notes)


def test_many_at_once_are_each_alone(folder: Path) -> None:
    translator = Translator(folder / "run")
    lines = [" ".join(map(str, row)) for row in np.random.default_rng(5).normal(size=(30, 4)).round(3)]
    lines[7] = ""
    together = list(translator.stream(lines))
    assert [one.text for one in together] == [next(translator.stream([line])).text for line in lines]
    assert together[7].translations == []
    assert translator.notes == []


def test_lines_of_numbers_arrays_and_lists(folder: Path, capsys, monkeypatch) -> None:
    run = str(folder / "run")
    assert run_cli(capsys, "translate", "--model", run, "0 1 0 0", "[0, 0, 1, 0]")[1] == "the sea\none two three four\n"
    np.save(folder / "two.npy", np.eye(4)[[3, 0]])
    status, out, error = run_cli(capsys, "translate", "--model", run, "--file", str(folder / "two.npy"))
    assert (status, out, error) == (0, "snow on the hills\na red rose\n", "")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1,0,0,0\n\n0,0,1,0\n")))
    assert run_cli(capsys, "translate", "--model", run)[1] == "a red rose\n\none two three four\n"


def test_factors_of_the_length_say_nothing_of_a_vector(folder: Path) -> None:
    translator = Translator(folder / "run")
    before = translator(["0 0 1 0"])
    translator.search = translator.search.replace(limits={"max_factor": 1.0})
    assert translator(["0 0 1 0"]) == before == [CLASSES[2]]


def test_vectors_are_written_from_by_all_threads(folder: Path, monkeypatch) -> None:
    most = []

    def noted(function, batches, device, *, most: int, seen=most):
        seen.append(most)
        return map(function, batches)

    monkeypatch.setattr(batching, "a_thread_each", noted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    wide = VectorDecoder(vocabulary=9, features=384, dim=4, hidden=4).build().eval()
    vectors = list(np.zeros((400, 1, 384), np.float32))
    list(generate_all(wide, vectors, Search(limits=Limits(max_length=2)), end=2, pad=0))
    assert most == [64]  # batches of 256 vectors in 16,384 places, a vector one place however wide


def test_the_tree_of_a_search_grows_from_a_vector(folder: Path) -> None:
    opened = open_model(folder / "run")
    found = opened.beam("0 1 0 0", beam_size=2)
    assert found["answers"][0]["tokens"][:2] == ["the", "sea"]
    with pytest.raises(UnmaskError, match="no tokens"):
        opened.pieces("0 1 0 0")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1 0 0", "has 3 numbers, but the model reads vectors of 4"),
        ("a rose", "'a rose' is not a line of finite numbers"),
    ],
)
def test_what_is_no_vector_ends_in_one_sentence(folder: Path, capsys, line, says) -> None:
    status, out, error = run_cli(capsys, "translate", "--model", str(folder / "run"), "0 0 0 1", line)
    assert (status, out) == (2, "")
    assert "Source 2: " in error
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_run_is_begun_and_gone_on_from_at_the_command_line(tmp_path: Path, capsys) -> None:
    train, dev = write(tmp_path, "train", 200), write(tmp_path, "dev", 20, 1)
    small = words("--steps 4 --dim 16 --hidden 16 --tokens 128 --vocabulary.kind word --precision fp32 --device cpu")
    small += ["--allow-overlap", "yes", "--pairs", *train, "--dev", *dev]
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    status, _, error = run_cli(capsys, "train", "vector-decoder", "--out", first, *small)
    assert (status, error) == (0, "")
    page = (tmp_path / "first" / "report.html").read_text(encoding="utf-8")
    assert "…" in page
    more = [one for one in small if one not in ("--dim", "--hidden", "16", "--vocabulary.kind", "word")]
    status, _, error = run_cli(capsys, "train", "--from", first, "--out", second, *more)
    assert (status, error) == (0, "")
    assert load(second).model.config == load(first).model.config
    np.save(tmp_path / "wide.npy", np.zeros((200, 5)))
    wide = ["--pairs", str(tmp_path / "wide.npy"), train[1], "--dev", *dev, "--steps", "1"]
    status, _, error = run_cli(capsys, "train", "--from", first, "--out", str(tmp_path / "third"), *wide)
    assert status == 2
    assert "wide.npy" in error
    assert "line 1: '0 0 0 0 0' has 5 numbers, but the model reads vectors of 4" in error
    assert not (tmp_path / "third").exists()


BAD = {
    "a ratio": (["--ratio", "9"], "leave --ratio out"),
    "no pairs at all": (["--most", "0"], "raise --most"),
    "dev vectors of another width": (["--dev", "wide.npy", "dev.txt"], "wide.npy, dev.txt, line 1: '0 0 0 0 0' has 5"),
}


@pytest.mark.parametrize("case", BAD)
def test_settings_that_mean_nothing_to_vectors_are_refused(case: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(), "train", 200)
    write(Path(), "dev", 20, 1)
    np.save("wide.npy", np.zeros((20, 5)))
    more, says = BAD[case]
    files = ["--pairs", "train.npy", "train.txt", *([] if "--dev" in more else ["--dev", "dev.npy", "dev.txt"])]
    status, _, error = run_cli(capsys, "train", "vector-decoder", "--out", "run", "--steps", "1", *files, *more)
    assert status == 2
    assert says in error
    assert error.count("\n") == 1
    assert not Path("run").exists()


def test_a_folder_alone_goes_on_with_its_own_kind_of_dates(folder: Path, capsys) -> None:
    chosen = systems.tuned(str(folder / "run"))
    assert chosen.texts.train == ("date-vectors",)
    assert chosen.search.limits.max_factor is None


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    chosen = config(tmp_path, 8).replace(
        model={"dropout": 0.1}, texts={"allow_overlap": True}, training={"save_every": 4, "evaluate_every": 4}
    )
    TrainTranslation(chosen, tmp_path / "whole").run()
    part = TrainTranslation(chosen, tmp_path / "part")
    assert part.run(lambda event: event == Step(4) and part.trainer.stop("as told")).step == 4
    assert TrainTranslation(chosen, tmp_path / "part", resume=True).run().step == 8
    place = Path("checkpoints") / "step-00000008" / "model.safetensors"
    ours, theirs = load_file(tmp_path / "part" / place), load_file(tmp_path / "whole" / place)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.equal(theirs[name]), name


def test_texts_are_not_taken_for_vectors(tmp_path: Path, capsys) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("".join(f"one {i}\n" for i in range(200)))
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    status, _, error = run_cli(
        capsys, "train", "vector-decoder", "--out", str(tmp_path / "run"), "--steps", "1", "--pairs", *files
    )
    assert status == 2
    assert "reads vectors, but line 1 of the sources" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_system_alone_learns_to_write_dates(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = words("--steps 2 --dim 16 --hidden 16 --most 300 --heldout 20 --scored 5 --precision fp32 --device cpu")
    status, out, error = run_cli(capsys, "train", "vector-decoder", *small)
    assert (status, error) == (0, "")
    assert "exact" in out
    run = "runs/vector-decoder"
    status, out, _ = run_cli(capsys, "evaluate", "--model", run, "--pairs", "date-vectors", "--max-length", "2")
    assert status == 0
    assert "date-vectors (test): 1,000 pairs" in out
    assert "source words" not in out


def test_the_service_says_how_many_numbers_it_reads_and_writes_from_them(folder: Path) -> None:
    testing, app = pytest.importorskip("starlette.testclient"), pytest.importorskip("unmask.serve.http.app")
    pool = pytest.importorskip("unmask.serve.http").Pool([folder / "run"])
    with testing.TestClient(app.build(pool)) as http:
        (listed,) = http.get("/models").json()["models"]
        assert listed == {"name": "run", "kind": "translation", "loaded": False, "features": 4}
        (answer,) = http.post("/translate", json={"texts": ["0 1 0 0"]}).json()["answers"]
        assert answer["translations"][0]["text"] == CLASSES[1]
        refused = http.post("/translate", json={"texts": ["March 3, 2001"]})
        assert refused.status_code == 422
        assert "vector" in refused.json()["error"]


@pytest.mark.parametrize(("said", "numbers"), [({"features": 4}, 4), ({}, 0), ({"features": "four"}, 0)])
def test_a_folder_says_how_many_numbers_it_reads(said, numbers, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(said), encoding="utf-8")
    assert features_of(tmp_path) == numbers
