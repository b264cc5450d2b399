"""A model that is split over two processes ends as a whole folder, from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
from command_line import words

from unmask import huggingface
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.train.metrics import read

WORDS = ("the cat sees a dog", "a bird hears the water", "my horse wants some bread", "the fish finds a tree")
COMMANDS = (
    "pretrain bert-tiny --corpus corpus --batch-size 4 --algorithm adamw --lr 1e-3 --model.layers 1",
    "pretrain wav2vec2-tiny --data noise --rows.tokens 50 --batch-size 4 --recompute true --heldout 4 "
    "--model.channels 8,8,8,8,8,8 --model.layers 1 --model.hidden 16",
    "train transformer-tiny --pairs text.en text.de --vocabulary.size 60 --scored 2 --evaluate-every 4 "
    "--model.encoder-layers 1 --model.decoder-layers 1",
)
SMALL = ["--model.dim", "16", "--steps", "4", "--device", "cpu", "--training.sharding", "full"]

# Two processes for each command, which part after all imports: what torchrun starts would import everything once more.
PARTED = """
import json, multiprocessing, os, socket, sys, torch._dynamo, torch.distributed.fsdp, torch.distributed.tensor
import unmask.cli, unmask.runs.pretraining.run, unmask.runs.translation.run

def run(rank, port, command):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    unmask.cli.main(command)

for command in json.loads(sys.argv[1]):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    fork = multiprocessing.get_context("fork").Process
    processes = [fork(target=run, args=(rank, port, command)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(150)
        if process.exitcode != 0:
            for other in processes:
                other.kill()
            sys.exit(f"A process of {command} ended with {process.exitcode}.")
"""


def test_a_sharded_run_ends_as_a_whole_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "noise").mkdir()
    for i in range(60):
        with wave.open(str(tmp_path / "noise" / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, 8_000, 0, "NONE", ""))
            file.writeframes(rng.integers(-9_999, 9_999, rng.integers(4_000, 8_000), dtype=np.int16).tobytes())
    texts = [TextDocument(". ".join(WORDS[i % 4 :] + WORDS[: i % 4]) + ".", str(i)) for i in range(40)]
    corpus.build(texts, tmp_path / "corpus", vocabulary_size=60)
    lines = "".join(f"{WORDS[i % 4]} {WORDS[i // 4 % 4]} {i}\n" for i in range(80))
    for side in ("en", "de"):
        (tmp_path / f"text.{side}").write_text(lines)
    commands = [[*words(command), *SMALL, "--out", str(i)] for i, command in enumerate(COMMANDS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", PARTED, json.dumps(commands)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    for i in range(len(COMMANDS)):
        assert read(tmp_path / str(i) / "metrics.jsonl", "train")[-1]["step"] == 4
        assert huggingface.load(tmp_path / str(i)).model.parameters_total > 0
