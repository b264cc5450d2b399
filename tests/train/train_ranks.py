"""Runs the toy training on several processes at once; prints nothing, writes what each did into the given folder.

Arguments: folder, then any number of NAME:RANKS:SHARDING:STEPS:RESUME jobs, run one after the other. A job whose name
begins with "thaw" has parts frozen at first, at several learning rates.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
from pathlib import Path

import torch
import torch._dynamo  # what DDP and FSDP import is imported once, before the processes part
import torch.distributed.fsdp
import torch.distributed.tensor
from train_toy import TRAINING, Guess, Rows, Thaw, Tiny

from unmask.train import distributed
from unmask.train.events import Evaluation
from unmask.train.trainer import Trainer


def run(folder: Path, name: str, rank: int, ranks: int, sharding: str, stop: int, resume: bool, port: int) -> None:
    """One process of one job."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    config = TRAINING.replace(sharding=sharding, evaluate_every=3, save_every=3, log_every=2)
    distributed.init("cpu")
    model = Tiny(dropout=0.0)

    def evaluate(model: torch.nn.Module, step: int) -> Evaluation:
        with torch.no_grad():
            batch = Rows().whole(999)
            loss = Guess().loss(model, batch)["mlm"].sum.item()
        if step == stop and rank == ranks - 1:  # one of them is enough
            trainer.stop("as told")
        return Evaluation({"loss/mlm": loss})

    def save(path: Path) -> None:
        weights = {name: p.tolist() for name, p in model.named_parameters()}
        (path / "weights.json").write_text(json.dumps(weights))

    data = Rows(micro=1 if ranks == 4 else 2, rank=rank, ranks=ranks)
    tuning = Thaw(model) if name.startswith("thaw") else None
    more = {"evaluate": evaluate, "save": save, "tuning": tuning, "resume": resume}
    trainer = Trainer(model, Guess(), data, config, folder / name, **more)
    trainer.train()
    distributed.finish()


def main() -> None:
    """All jobs."""
    folder = Path(sys.argv[1])
    context = multiprocessing.get_context("fork")
    for job in sys.argv[2:]:
        name, ranks, sharding, stop, resume = job.split(":")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = (int(ranks), sharding, int(stop), resume == "resume", port)
        workers = [context.Process(target=run, args=(folder, name, rank, *shared)) for rank in range(int(ranks))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            if worker.exitcode != 0:
                for other in workers:
                    other.kill()
                sys.exit(f"{job}: a process ended with {worker.exitcode}")


if __name__ == "__main__":
    main()
