"""T5 folders end to end: pre-trained on spans, resumed, opened in transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from finetune_toy import BAD, FILLER, GOOD
from safetensors.torch import load_file

from unmask import huggingface, recipes, samples
from unmask.data import byte_pairs, corpus
from unmask.data.text import TextDocument
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search, generate_all
from unmask.models.t5 import T5Model
from unmask.pretrain import Pretrain
from unmask.pretraining import Pretraining
from unmask.train.metrics import read as read_metrics
from unmask.types import Batch

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {"dim": 24, "heads": 2, "head_dim": 12, "hidden": 48}


def review(number: int) -> TextDocument:
    """Sentences in which all that is judged is judged alike, so that what was cut out can be told from the rest."""
    rng = np.random.default_rng(number)
    words = GOOD if number % 2 else BAD
    lines = [f"the {rng.choice(['film', 'plot'])} was {rng.choice(words)}." for _ in range(4)]
    return TextDocument(" ".join(lines) + " " + " ".join(rng.choice(FILLER, 3)) + f" {number}.", f"review-{number}")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    texts = [review(i) for i in range(120)]
    corpus.build(texts, folder / "pieces", vocabulary_size=200, heldout=0.1)
    corpus.build(texts, folder / "bytes", learn=byte_pairs.train, vocabulary_size=320, heldout=0.1)
    return folder


def config(steps: int = 60, **changes: object) -> Pretraining:
    training = {"minutes": None, "steps": steps, "device": "cpu", "evaluate_every": 0.5, "log_every": 1}
    rows = {"batch": 8, "heldout": 16, "tokens": 48}
    run = recipes.find("t5-tiny").replace(model=SMALL, training=training, rows=rows)
    return run.override({"lr": 1e-2, "precision": "fp32", **changes})


@pytest.fixture(scope="module", params=["pieces", "bytes"])
def trained(request: pytest.FixtureRequest, corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    out = tmp_path_factory.mktemp("t5") / request.param
    run = Pretrain(config(), [corpora / request.param], out, recipe="t5-tiny")
    result = run.run()
    assert "Held-out spans" in run.summary(result)
    assert result.heldout["loss/spans"] < (0.85 if request.param == "pieces" else 0.93) * run.baseline["loss/spans"]
    return run


def test_the_folder_opens_in_transformers_and_writes_the_same(trained: Pretrain) -> None:
    theirs, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(trained.out, output_loading_info=True)
    assert not any(report.values())
    loaded = huggingface.load_writer(trained.out)
    assert isinstance(loaded.model, T5Model)
    assert loaded.tokenizer.sentinels == trained.objective.sentinels.tolist()
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained.out)
    text = "the film was <extra_id_0>. the plot was good."
    ids = tokenizer(text)["input_ids"]
    assert loaded.tokenizer.sentinels[0] in ids
    assert ids[-1] == loaded.tokenizer.end
    expected = theirs.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False)[0].tolist()
    search, pad, end = Search(limits=Limits(max_length=20)), loaded.tokenizer.pad, loaded.tokenizer.end
    ((ours,),) = generate_all(loaded.model, [ids], search, end=end, pad=pad)
    assert [*ours.tokens] == [i for i in expected if i not in (pad, end)]


def test_what_is_guessed_is_noted_at_every_evaluation(trained: Pretrain) -> None:
    steps = [row["step"] for row in samples.read(trained.out)]
    assert steps[-1] == 60
    assert len(steps) > 1
    first = samples.read(trained.out)[-1]["samples"][0]
    assert "<extra_id_0>" in first["text"].replace(" ", "")
    assert first["expected"][0].startswith("<extra_id_0>")
    assert isinstance(first["guesses"][0][0], str)


def test_the_loss_trace_is_the_golden_one(corpora: Path, tmp_path: Path) -> None:
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        Pretrain(config(20), [corpora / "pieces"], tmp_path).run()
    finally:
        torch.set_num_threads(threads)
    trace = [round(row["loss/spans"], 4) for row in read_metrics(tmp_path / "metrics.jsonl", "train")]
    assert len(trace) == 20
    path = GOLDEN / "pretrain-t5-tiny.json"
    if not path.exists():
        path.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {path.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(path.read_text()), abs=2e-4)


def test_a_resumed_run_ends_where_the_whole_one_does(corpora: Path, tmp_path: Path) -> None:
    changes = {"save_every": 6.0, "evaluate_every": None}
    Pretrain(config(12, **changes), [corpora / "pieces"], tmp_path / "whole").run()
    part = Pretrain(config(12, **changes), [corpora / "pieces"], tmp_path / "part")
    take = part.batches

    def until_seven(position: dict[str, int] | None) -> Iterator[tuple[list[Batch], dict[str, int]]]:
        yield from islice(take(position), 7)
        raise KeyError("stopped here")

    part.batches = until_seven
    with pytest.raises(KeyError):
        part.run()
    Pretrain(config(12, **changes), [corpora / "pieces"], tmp_path / "part", resume=True).run()
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    for name, tensor in whole.items():
        assert torch.equal(tensor, again[name]), name


def test_what_does_not_go_together_is_refused(corpora: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="written by a T5"):
        Pretrain(config(written="none"), [corpora / "pieces"], tmp_path)
    with pytest.raises(UnmaskError, match="written by a T5"):
        Pretrain(recipes.find("bert-tiny").replace(objectives={"written": "spans"}), [corpora / "pieces"], tmp_path)
