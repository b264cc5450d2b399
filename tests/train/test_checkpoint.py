"""Checkpoints are whole or absent, every byte is checked, and one process writes to a folder."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.files import verify_manifest, write_manifest
from unmask.kernels import devices
from unmask.train import checkpoint


def write(folder: Path, step: int, **more: object) -> Path:
    tensors = {"model.weight": torch.full((2, 2), float(step))}
    return checkpoint.write(folder, step, state={"position": {"row": step}}, tensors=tensors, **more)  # type: ignore[arg-type]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path, 1000, save=lambda f: (f / "config.json").write_text("{}"))
    assert folder.name == "step-00001000"
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert (found.step, found.state["position"]) == (1000, {"row": 1000})
    assert torch.equal(found.tensors()["model.weight"], torch.full((2, 2), 1000.0))


def test_a_folder_with_anything_of_worth_is_taken(tmp_path: Path) -> None:
    out = tmp_path / "run"
    checkpoint.refuse_taken(out)
    with checkpoint.Lock(out):  # what a run leaves that was killed before its first checkpoint
        (out / "metrics.jsonl").touch()
        (out / ".config.json.abcdefgh.tmp").touch()
        (out / "checkpoints").mkdir()
        checkpoint.refuse_taken(out)
    write(out / "checkpoints", 1)
    checkpoint.refuse_taken(out, resume=True)
    with pytest.raises(UnmaskError, match="holds a run already: continue it"):
        checkpoint.refuse_taken(out)
    shutil.rmtree(out / "checkpoints")
    (out / "model.safetensors").touch()
    for resume in (False, True):
        with pytest.raises(UnmaskError, match="holds something already"):
            checkpoint.refuse_taken(out, resume=resume)
    with pytest.raises(UnmaskError, match="holds something already"):
        checkpoint.refuse_taken(out / "model.safetensors")


def test_a_manifest_of_the_model_alone_gives_way_to_one_of_everything(tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        write_manifest(folder, ["config.json"])

    folder = write(tmp_path, 1, save=save)
    checkpoint.verify(folder)
    verify_manifest(folder)
    assert set(read_json(folder / "manifest.json")["files"]) == {"config.json", "optimizer.safetensors", "state.json"}


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    for step in range(5):
        write(tmp_path, step, keep=2)
    assert checkpoint.steps(tmp_path) == [3, 4]
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_there_is_none(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "absent") is None


def test_every_flipped_byte_is_detected(tmp_path: Path) -> None:
    folder = write(tmp_path, 1, save=lambda f: (f / "config.json").write_text("{}"))
    checkpoint.verify(folder)
    for path in folder.iterdir():
        sound = path.read_bytes()
        for i in range(len(sound)):
            for flip in (1, 32):
                path.write_bytes(sound[:i] + bytes([sound[i] ^ flip]) + sound[i + 1 :])
                with pytest.raises(UnmaskError):
                    checkpoint.verify(folder)
        for torn in (sound[:-1], sound + b"\n", b""):
            path.write_bytes(torn)
            with pytest.raises(UnmaskError):
                checkpoint.verify(folder)
        path.write_bytes(sound)
    checkpoint.verify(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, 1)
    (folder / "state.json").unlink()
    with pytest.raises(UnmaskError, match=r"state\.json is missing"):
        checkpoint.verify(folder)


def test_it_falls_back_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, 1)
    for step in (2, 3):
        path = write(tmp_path, step, keep=3) / "optimizer.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    said: list[str] = []
    found = checkpoint.latest(tmp_path, said.append)
    assert found is not None
    assert found.step == 1
    assert ["step 3" in said[0], "step 2" in said[1]] == [True, True]
    shutil.rmtree(tmp_path / "step-00000001")
    with pytest.raises(UnmaskError, match=r"All checkpoints in .* are damaged"):
        checkpoint.latest(tmp_path)


@pytest.mark.parametrize("where", ["save", "save_file", "seal", "_put_in_place", "fsync"])
def test_a_failure_at_any_point_leaves_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    write(tmp_path, 1)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if where != "save":
            patch.setattr(os if where == "fsync" else checkpoint, where, fail)
        with pytest.raises(UnmaskError, match=r"step 2 could not .* No space left on device; .*step 1, is intact"):
            write(tmp_path, 2, save=fail if where == "save" else None)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoint.latest(tmp_path).step == 1  # type: ignore[union-attr]
    write(tmp_path, 2)
    assert checkpoint.latest(tmp_path).step == 2  # type: ignore[union-attr]


def test_a_process_that_dies_while_saving_leaves_the_previous_one(tmp_path: Path) -> None:
    write(tmp_path, 1)
    script = (
        "import os, sys, torch\nfrom pathlib import Path\nfrom unmask.train import checkpoint\n"
        "checkpoint._put_in_place = lambda *_: os._exit(9)\n"
        "checkpoint.write(Path(sys.argv[1]), 2, state={}, tensors={'x': torch.zeros(3)})\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoint.latest(tmp_path).step == 1  # type: ignore[union-attr]
    checkpoint.tidy(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_the_same_step_can_be_written_again(tmp_path: Path) -> None:
    write(tmp_path, 1)
    checkpoint.write(tmp_path, 1, state={"second": True}, tensors={})
    assert checkpoint.latest(tmp_path).state["second"]  # type: ignore[union-attr]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_process_that_dies_while_it_writes_a_step_again_leaves_it_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, 1)
    script = (
        "import os, sys, torch\nfrom pathlib import Path\nfrom unmask.train import checkpoint\n"
        "rename = Path.rename\n"
        "Path.rename = lambda a, b: rename(a, b) if a.name.startswith('step') else os._exit(9)  # the second of two\n"
        "checkpoint.write(Path(sys.argv[1]), 1, state={'second': True}, tensors={'x': torch.zeros(3)})\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 9
    for _ in range(2):  # before it is put back, for those who may not write, and afterwards
        found = checkpoint.latest(tmp_path)
        assert found is not None
        assert (found.step, "second" in found.state) == (1, False)
        checkpoint.tidy(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmaskError, match="there is no earlier one"):
        write(tmp_path / "file", 1)
    with pytest.raises(UnmaskError, match="cannot be written"):
        checkpoint.Lock(tmp_path / "file").acquire()


HOLDER = (
    "import sys, time\nfrom pathlib import Path\nfrom unmask.train import checkpoint\n"
    "with checkpoint.Lock(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
)


def test_the_lock_keeps_a_second_process_out_until_its_holder_dies(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UnmaskError, match=f"process {process.pid}"):
        checkpoint.Lock(tmp_path).acquire()
    process.kill()
    process.wait()
    with checkpoint.Lock(tmp_path):
        pass


def test_the_lock_can_be_taken_again_after_its_release(tmp_path: Path) -> None:
    for _ in range(2):
        with checkpoint.Lock(tmp_path):
            pass


def test_random_state_comes_back() -> None:
    cpu = torch.device("cpu")
    state = devices.random_state(cpu)
    first = torch.rand(4)
    devices.restore_random_state(state, cpu)
    assert torch.equal(first, torch.rand(4))


def test_random_state_comes_back_on_every_kind_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.tensor([1]))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda x, device: kept.update(cuda=x))
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: torch.tensor([2]))
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda x: kept.update(mps=x))
    for kind in ("cuda", "mps"):
        device = torch.device(kind)
        state = devices.random_state(device)
        devices.restore_random_state(state, device)
        assert kept[kind] is state[kind]
