"""Real processes: any number of them, sharded or not, gives the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from train_toy import assert_close_rows

from unmask.errors import UnmaskError
from unmask.train import checkpoint, distributed, metrics

JOBS = [
    "one:1:none:-1:no",
    "two:2:none:-1:no",
    "four:4:none:-1:no",
    "sharded:2:full:6:no",  # stops at step 6 …
    "sharded:2:full:-1:resume",  # … and goes on
    "fewer:2:none:6:no",
    "fewer:1:none:-1:resume",
    "resharded:2:full:3:no",  # the checkpoint of 2 shards is read by 4, and theirs by 1
    "resharded:4:full:6:resume",
    "resharded:1:full:-1:resume",
    "thaw-one:1:none:-1:no",
    "thaw-two:2:none:6:no",
    "thaw-two:2:none:-1:resume",
    "thaw-sharded:2:full:6:no",
    "thaw-sharded:2:full:-1:resume",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("train_ranks.py")
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    command = [sys.executable, "-W", "ignore", str(script), str(folder), *JOBS]
    done = subprocess.run(command, env={**clean, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    found = metrics.read(folder / name / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k not in metrics.TIMED} for row in found]


MANY = ["two", "four", "sharded", "fewer", "resharded", "thaw-two", "thaw-sharded"]


def alone(name: str) -> str:
    """The job that does the same in one process."""
    return "thaw-one" if name.startswith("thaw") else "one"


@pytest.mark.parametrize("name", MANY)
def test_the_trace_does_not_depend_on_the_processes(folder: Path, name: str) -> None:
    reference, found = rows(folder, alone(name)), rows(folder, name)
    assert [row["step"] for row in reference] == [0, 2, 3, 4, 6, 6, 8, 9, 10, 12, 12]
    assert_close_rows(reference, found)


@pytest.mark.parametrize("name", MANY)
def test_the_checkpoints_hold_the_same_whole_weights(folder: Path, name: str) -> None:
    reference, found = (checkpoint.latest(folder / n / "checkpoints") for n in (alone(name), name))
    assert reference is not None
    assert found is not None
    own = found.tensors()
    for key, expected in reference.tensors().items():
        if not key.startswith("random."):
            assert own[key].numpy() == pytest.approx(expected.numpy(), abs=1e-5), key
    a, b = (json.loads((c.folder / "weights.json").read_text()) for c in (reference, found))
    assert a.keys() == b.keys()
    assert all(b[k] == own[f"model.{k}"].tolist() for k in b), "what `save` sees is what is trained"


def test_each_process_has_its_own_random_state(folder: Path) -> None:
    found = checkpoint.latest(folder / "four" / "checkpoints")
    assert found is not None
    states = [x for name, x in found.tensors().items() if name.startswith("random.")]
    assert len(states) == 4
    assert len({bytes(x.tolist()) for x in states}) == 4


def test_all_parameters_of_several_processes_are_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """DDP takes no others; what it would do on a GPU cannot be seen here, so that it is left out."""
    monkeypatch.setattr(distributed, "ranks", lambda: 2)
    monkeypatch.setattr(nn.parallel, "DistributedDataParallel", lambda module, **_: module)
    wrapped = distributed.wrap(nn.Linear(2, 2, device="meta"))
    assert {p.device.type for p in wrapped.parameters()} == {"meta"}
    assert len(list(wrapped.parameters())) == 3


def test_several_nodes_that_restart_need_a_store_for_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UnmaskError, match="set the environment variable TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on every"):
        distributed.init("cpu")


@pytest.mark.parametrize(
    ("error", "one_sentence"),
    [
        (RuntimeError("[/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer"), True),
        (torch.distributed.DistNetworkError("Broken pipe"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_a_lost_process_is_one_sentence(
    error: RuntimeError, one_sentence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "ranks", lambda: 2)
    with pytest.raises(UnmaskError if one_sentence else RuntimeError) as caught, distributed.connected():
        raise error
    if one_sentence:
        assert str(caught.value).startswith("Process 0 lost its connection to the others")
        assert "\n" not in str(caught.value)


def test_alone_there_is_one_rank() -> None:
    assert (distributed.rank(), distributed.ranks(), distributed.is_main()) == (0, 1, True)
    assert distributed.gather_json({"a": 1}) == [{"a": 1}]
