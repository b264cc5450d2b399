"""Transformer-XL end to end: rows that go on, a memory that is part of a checkpoint, the folder in other verbs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from finetune_toy import fields, reviews, write_sets

from unmask import huggingface
from unmask.data.loader import EqualRows, Loader
from unmask.data.text import corpus, segments
from unmask.data.text.corpus import Corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search
from unmask.models.segment_model import SegmentModel
from unmask.objectives import CausalLM, SegmentLM, SegmentLMConfig
from unmask.runs import recipes
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.serve.continuation import Continuer
from unmask.serve.likelihood import Scorer
from unmask.train import checkpoint
from unmask.train.events import Step
from unmask.train.metrics import TIMED
from unmask.train.metrics import read as read_metrics

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {"dim": 32, "layers": 2, "heads": 2, "hidden": 48, "memory": 16}


def story(number: int) -> TextDocument:
    """A name at the beginning, which every sentence says again: longer than a segment."""
    rng = np.random.default_rng(number)
    name = str(rng.choice(["anna", "bert", "carl", "dora"]))
    said = ["saw the film", "liked the plot", "read a book", "went home", "was good"]
    lines = [f"{name} {rng.choice(said)}." for _ in range(int(rng.integers(4, 14)))]
    return TextDocument(f"{number} of {name}. " + " ".join(lines), f"story-{number}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpora") / "stories"
    words = [TextDocument(". ".join(text for text, _ in reviews(8, seed)) + ".", f"r{seed}") for seed in range(20)]
    corpus.build([*[story(i) for i in range(150)], *words], out, vocabulary_size=220, heldout=0.15)
    return out


def config(**changes: object) -> Pretraining:
    training = {"minutes": None, "steps": 20, "log_every": 1, "precision": "fp32", "device": "cpu"}
    run = recipes.find("transformer-xl-tiny").replace(
        model=SMALL, training={**training, "evaluate_every": None}, rows={"batch": 8, "tokens": 16, "heldout": 32}
    )
    return run.override({"lr": 3e-3, **changes})


# ------------------------------------------------------------------------------------------------ rows that go on


def rows(folder: Path, count: int = 4) -> Loader:
    return segments.segments([Corpus(folder).split("train")], start=2, end=3, length=16, cut=EqualRows(count))


def test_each_row_goes_on_where_it_ended_and_an_epoch_reads_every_document(folder: Path) -> None:
    stream, found = rows(folder), []
    steps = stream.steps(0)
    for ([batch], _), _ in zip(stream.batches(), range(steps), strict=False):
        assert batch.streams is not None
        assert batch.streams.tolist() == [0, 1, 2, 3]
        found.append(batch)
    tokens = torch.cat([batch.tokens for batch in found], 1)
    values = torch.cat([batch.targets["next"].values.view(4, 16) for batch in found], 1)
    places = torch.cat([batch.positions for batch in found if batch.positions is not None], 1)
    for row in range(4):
        begins = tokens[row] == 2
        inner = ~begins[1:]
        assert torch.equal(values[row, :-1][inner], tokens[row, 1:][inner])  # what is guessed is read next
        assert (values[row, :-1][begins[1:]] == 3).all()  # or a document ends
        own = torch.arange(len(begins))
        last = torch.where(begins, own, 0).cummax(0).values
        assert torch.equal(places[row], own - last)
    line, split = tokens.flatten().tolist(), Corpus(folder).split("train")
    text = " ".join(map(str, line))
    seen = [" ".join(map(str, [2, *np.concatenate(d.sentences).tolist(), 2])) in text for d in split]
    assert np.mean(seen) > 0.9  # the others lie across two rows, or behind the last whole segment


@pytest.mark.parametrize("position", [{"epoch": 0, "block": 10_000, "row": 0}, {"epoch": 0, "block": 0, "row": 3}, {}])
def test_a_position_of_another_corpus_is_refused(folder: Path, position: dict[str, int]) -> None:
    with pytest.raises(UnmaskError, match="does not belong"):
        next(rows(folder).batches(position))


def test_too_little_text_is_said(folder: Path) -> None:
    with pytest.raises(UnmaskError, match="too short for 4000 rows"):
        rows(folder, 4_000)
    split = Corpus(folder).split("heldout")
    assert segments.fixed([split], start=2, end=3, length=10**6, rows=4, limit_rows=8) == []
    found = segments.fixed([split], start=2, end=3, length=16, rows=8, limit_rows=32)
    assert [len(batch.tokens) for batch in found] == [4] * 8


# ------------------------------------------------------------------------------------------------ training


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    run = Pretrain(config(steps=120), [folder], tmp_path_factory.mktemp("runs") / "xl", recipe="transformer-xl-tiny")
    run.run()
    return run


def test_it_learns_and_the_memory_is_of_use(trained: Pretrain) -> None:
    found = trained.trainer.heldout
    assert found["loss/next"] < 0.8 * trained.baseline["loss/next"]
    forgetful = CausalLM(2, 3)
    model = trained.model
    with torch.no_grad():
        sums = [forgetful.score(model, model.read(batch)[0], batch) for batch in trained.heldout]
    alone = sum(float(s.sum) for s in sums) / sum(s.count for s in sums)
    assert found["loss/next"] < alone - 0.02


def test_the_loss_trace_is_the_golden_one(folder: Path, tmp_path: Path) -> None:
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        Pretrain(config(), [folder], tmp_path / "run").run()
    finally:
        torch.set_num_threads(threads)
    trace = [round(row["loss/next"], 4) for row in read_metrics(tmp_path / "run" / "metrics.jsonl", "train")]
    path = GOLDEN / "pretrain-transformer-xl-tiny.json"
    if not path.exists():
        path.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {path.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(path.read_text()), abs=2e-4)


def test_micro_batches_have_their_own_memories(folder: Path, tmp_path: Path) -> None:
    runs = [Pretrain(config(steps=4, micro_batch=n), [folder], tmp_path / str(n)) for n in (8, 4)]
    for run in runs:
        run.run()
    for a, b in zip(*(run.model.parameters() for run in runs), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert all(len(run.objective.carried) == 8 for run in runs if isinstance(run.objective, SegmentLM))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_run_resumes_with_its_memory_to_the_same_weights(folder: Path, tmp_path: Path, dropout: float) -> None:
    settings = config(steps=8, save_every=4, evaluate_every=4, dropout=dropout)
    whole, part = (Pretrain(settings, [folder], tmp_path / name) for name in ("whole", "part"))
    whole.run()
    assert part.run(lambda event: event == Step(4) and part.trainer.stop("the test")).step == 4
    kept = checkpoint.latest(tmp_path / "part" / "checkpoints")
    assert kept is not None
    assert kept.tensors()["carried.0.7"].shape == (2, 16, 32)
    again = Pretrain(settings, [folder], tmp_path / "part", resume=True)
    again.run()
    for (name, a), b in zip(whole.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b), name
    both = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "part")]
    one, two = ([{k: v for k, v in r.items() if k not in TIMED} for r in b] for b in both)
    assert one == two


def test_measuring_the_pace_leaves_no_memory(folder: Path, tmp_path: Path) -> None:
    run = Pretrain(config(), [folder], tmp_path / "run")
    run.plan()
    assert isinstance(run.objective, SegmentLM)
    assert run.objective.carried == {}


def test_rows_that_go_on_need_a_memory(folder: Path, tmp_path: Path) -> None:
    gpt = recipes.find("gpt-tiny").override({"written": "segments"})
    with pytest.raises(UnmaskError, match="transformer-xl-tiny"):
        Pretrain(gpt, [folder], tmp_path / "run")
    model = recipes.find("gpt-tiny").model.replace(vocabulary=50, dim=8, heads=2, layers=1).build()
    with pytest.raises(UnmaskError, match="transformer-xl-tiny"):
        SegmentLM(2, 3).loss(model, next(rows(folder).batches()).batches[0])


# ------------------------------------------------------------------------------------------------ the folder


def test_the_folder_goes_on_with_texts_and_is_scored_on_them(trained: Pretrain) -> None:
    ((answer,),) = Continuer(trained.out, Search(limits=Limits(max_length=8)))(["7 of dora. dora saw the film. dora"])
    assert answer.text.startswith("7 of dora. dora saw the film. dora")
    texts = [story(i).text for i in range(1000, 1012)]
    near, far = (Scorer(trained.out, window=window, stride=window).perplexity(texts).perplexity for window in (16, 400))
    assert far < near  # one window of a whole text is read in segments, each with a memory


def test_a_run_goes_on_from_the_folder(trained: Pretrain, folder: Path, tmp_path: Path) -> None:
    _, more = recipes.choose(None, str(trained.out))
    assert isinstance(more.objective, SegmentLMConfig)
    small = {"minutes": None, "steps": 1, "device": "cpu", "optimizer": {"lr": 1e-7}}
    run = Pretrain(
        more.replace(training=small, rows={"batch": 8, "heldout": 32, "tokens": 16}), [folder], tmp_path / "m"
    )
    assert run.run().heldout["loss/next"] == pytest.approx(trained.trainer.heldout["loss/next"], abs=1e-3)


@pytest.mark.parametrize("strategy", ["full", "frozen"])
def test_the_folder_is_fine_tuned(trained: Pretrain, tmp_path: Path, strategy: str) -> None:
    values = {**fields(trained.out, write_sets(tmp_path)), "seeds": 1, "epochs": 2, "strategy": strategy}
    result = finetune(FineTuning().override(values), tmp_path / "out")
    assert isinstance(huggingface.load(tmp_path / "out").model, SegmentModel)
    assert 0 <= result.seeds[0]["dev"]["accuracy"] <= 1
