"""A model that is split over two processes ends as a whole folder, from the command line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from unmask import huggingface
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.train.metrics import read

WORDS = ("the cat sees a dog", "a bird hears the water", "my horse wants some bread", "the fish finds a tree")
SMALL = ["--model.dim", "16", "--steps", "4", "--device", "cpu", "--training.sharding", "full"]

# Two processes that part after all imports: what torchrun starts would import everything once more for each of them.
PARTED = """
import multiprocessing, os, sys, torch._dynamo, torch.distributed.fsdp, torch.distributed.tensor
import unmask.cli, unmask.runs.pretraining.run, unmask.runs.translation.run

def run(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    unmask.cli.main(sys.argv[1:])

processes = [multiprocessing.get_context("fork").Process(target=run, args=(rank,)) for rank in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join(150)
    if process.exitcode != 0:
        for other in processes:
            other.kill()
        sys.exit(f"A process ended with {process.exitcode}.")
"""


@pytest.mark.parametrize(("verb", "data"), [("pretrain", "texts"), ("pretrain", "recordings"), ("train", "texts")])
def test_a_sharded_run_ends_as_a_whole_folder(verb: str, data: str, tmp_path: Path) -> None:
    if data == "recordings":
        rng = np.random.default_rng(0)
        (tmp_path / "noise").mkdir()
        for i in range(60):
            with wave.open(str(tmp_path / "noise" / f"{i}.wav"), "wb") as file:
                file.setparams((1, 2, 8_000, 0, "NONE", ""))
                file.writeframes(rng.integers(-9_999, 9_999, rng.integers(4_000, 8_000), dtype=np.int16).tobytes())
        own = ["wav2vec2-tiny", "--data", "noise", "--rows.tokens", "50", "--batch-size", "4", "--recompute", "true"]
    elif verb == "pretrain":
        texts = [TextDocument(". ".join(WORDS[i % 4 :] + WORDS[: i % 4]) + ".", str(i)) for i in range(40)]
        corpus.build(texts, tmp_path / "corpus", vocabulary_size=60)
        own = ["bert-tiny", "--corpus", "corpus", "--batch-size", "4", "--algorithm", "adamw", "--lr", "1e-3"]
    else:
        lines = "".join(f"{WORDS[i % 4]} {WORDS[i // 4 % 4]} {i}\n" for i in range(80))
        for side in ("en", "de"):
            (tmp_path / f"text.{side}").write_text(lines)
        own = ["transformer-tiny", "--pairs", "text.en", "text.de", "--vocabulary.size", "60"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-W", "ignore", "-c", PARTED, verb, *own, *SMALL, "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert read(tmp_path / "run" / "metrics.jsonl", "train")[-1]["step"] == 4
    assert huggingface.load(tmp_path / "run").model.parameters_total > 0
