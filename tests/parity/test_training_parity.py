"""The path that trains, packed rows and all, beside a plain one: `transformers`, a sequence a row, padded, and the
optimizer and the schedule written out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.train.metrics import read
from unmask.types import Batch

STEPS = 50
RATE, WARMUP = 1e-3, 5
SMALL = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "length": 64}
WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "bird",
    "sees",
    "hears",
    "likes",
    "finds",
    "water",
    "bread",
    "house",
    "road",
    "and",
    "then",
    "again",
    "slowly",
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpora") / "words"
    rng = np.random.default_rng(0)

    def sentence() -> str:
        return " ".join(WORDS[i] for i in rng.integers(len(WORDS), size=rng.integers(2, 9))).capitalize() + "."

    documents = [TextDocument(" ".join(sentence() for _ in range(4)), str(i)) for i in range(300)]
    corpus.build(documents, out, vocabulary_size=100, heldout=0.1)
    return out


class Recorded(Pretrain):
    """Keeps the rows of every step."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.seen: list[list[Batch]] = []
        take = self.data.batches

        def recorded(position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
            self.seen.clear()
            for batches, after in take(position):
                self.seen.append(batches)
                yield batches, after

        self.data.batches = recorded


def train(texts: Path, out: Path, seed: int, dropout: float) -> tuple[Recorded, list[dict[str, float]]]:
    """Our run, and its losses step by step; its first weights are in `out`/first."""
    config = recipes.bert_tiny().replace(
        model={**SMALL, "dropout": dropout, "attention_dropout": dropout},
        training={"minutes": None, "steps": STEPS, "log_every": 1, "precision": "fp32", "device": "cpu", "seed": seed},
        rows={"batch": 8, "heldout": 8},
    )
    wanted = {"algorithm": "adamw", "lr": RATE, "warmup": WARMUP, "evaluate_every": None, "save_every": None}
    config = config.override(wanted)
    run = Recorded(config, [texts], out / "run")
    run.save(out / "first")
    run.run()
    return run, [
        {k: v for k, v in row.items() if k.startswith("loss/")} for row in read(out / "run" / "metrics.jsonl", "train")
    ]


def unpacked(batch: Batch) -> dict[str, Tensor]:
    """Every sequence of the rows as a row of its own, filled up to the longest."""
    assert batch.documents is not None
    assert batch.segments is not None
    rows: dict[str, list[Tensor]] = {"input_ids": [], "token_type_ids": [], "labels": [], "next_sentence_label": []}
    labels = {}
    for name, target in batch.targets.items():
        labels[name] = torch.full_like(batch.tokens, -100)
        labels[name].view(-1)[target.places] = target.values
    for row, documents in enumerate(batch.documents):
        for number in documents[documents > 0].unique():
            here = documents == number
            rows["input_ids"].append(batch.tokens[row, here])
            rows["token_type_ids"].append(batch.segments[row, here])
            rows["labels"].append(labels["mlm"][row, here])
            rows["next_sentence_label"].append(labels["nsp"][row, here][:1])
    filled = {
        name: torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-100 if name == "labels" else 0)
        for name, parts in rows.items()
    }
    lengths = torch.tensor([len(part) for part in rows["input_ids"]])
    return {**filled, "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long()}


def plain(folder: Path, steps: list[list[Batch]], seed: int, dropout: float) -> list[dict[str, float]]:
    """The losses of the plain path on the same sequences, from the same weights."""
    model = transformers.BertForPreTraining.from_pretrained(
        folder, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, attn_implementation="eager"
    ).train()
    torch.manual_seed(seed)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        betas=(0.9, 0.999), eps=1e-6, foreach=False,
    )  # fmt: skip
    losses = []
    for step, (batch,) in enumerate(steps[:STEPS]):
        given = unpacked(batch)
        labels, follows = given.pop("labels"), given.pop("next_sentence_label").squeeze(1)
        answers = model(**given)
        mlm = F.cross_entropy(answers.prediction_logits.flatten(0, 1), labels.flatten())
        nsp = F.cross_entropy(answers.seq_relationship_logits, follows)
        optimizer.zero_grad()
        (mlm + nsp).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        share = (step + 1) / WARMUP if step < WARMUP else 1 - (step - WARMUP) / (STEPS - WARMUP)
        for group in optimizer.param_groups:
            group["lr"] = RATE * share
        optimizer.step()
        losses.append({"loss/mlm": mlm.item(), "loss/nsp": nsp.item()})
    return losses


def test_fifty_steps_have_the_losses_of_the_plain_path(texts: Path, tmp_path: Path) -> None:
    run, ours = train(texts, tmp_path, seed=0, dropout=0.0)
    theirs = plain(tmp_path / "first", run.seen, seed=0, dropout=0.0)
    assert len(ours) == len(theirs) == STEPS
    assert theirs[-1]["loss/mlm"] < 0.9 * theirs[0]["loss/mlm"]
    assert any(len(batch.documents.unique()) > 3 for (batch,) in run.seen)  # rows are packed
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert mine == pytest.approx(other, abs=1e-5), f"step {step + 1}"


@pytest.mark.slow
def test_with_dropout_the_losses_are_of_one_distribution(texts: Path, tmp_path: Path) -> None:
    """Mean over the last ten steps, three seeds, the same rows in the same order: the two sides differ by far less than
    dropout makes."""
    ours, theirs, without = [], [], []
    for seed in range(3):
        run, losses = train(texts, tmp_path / str(seed), seed, dropout=0.5)
        ours.append(last_of(losses))
        for rate, found in ((0.5, theirs), (0.0, without)):
            found.append(last_of(plain(tmp_path / str(seed) / "first", run.seen, seed, rate)))
    made = np.subtract(theirs, without)
    between = np.subtract(ours, theirs)
    assert made.min() > 0
    assert abs(between.mean()) < 0.25 * made.mean(), (between, made)


def last_of(losses: list[dict[str, float]]) -> float:
    return float(np.mean([row["loss/mlm"] for row in losses[-10:]]))
