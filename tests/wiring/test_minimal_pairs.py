"""Minimal pairs: scores equal to a plain loop, files as BLiMP writes them, and what is said of others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.gpt import Gpt2
from unmask.runs.minimal_pairs import evaluate_minimal_pairs, read
from unmask.serve.likelihood import Scorer, TokenScoring
from unmask.types import Batch

TEXTS = [
    "the cat that chased the dogs is here",
    "the cat that chased the dogs are here",
    "who should anna hug after the walk ?",
    "who should anna hug the walk after ?",
    "cats sleep",
    "cats sleeps",
]
ROWS = [
    {"sentence_good": TEXTS[0], "sentence_bad": TEXTS[1], "UID": "agreement", "field": "morphology"},
    {"sentence_good": TEXTS[4], "sentence_bad": TEXTS[5], "UID": "agreement", "field": "morphology"},
    {"sentence_good": TEXTS[2], "sentence_bad": TEXTS[3], "UID": "island", "field": "syntax"},
    {"sentence_good": TEXTS[2], "sentence_bad": TEXTS[2], "UID": "island", "field": "syntax"},
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 3, 80)


def folder(path: Path, tokenizer: Tokenizer, config: Bert | Gpt2, head: str) -> Path:
    model = config.replace(vocabulary=tokenizer.size, std=0.4).build(as_heads({head: 0}), seed=3)
    huggingface.save(path, model, tokenizer)
    return path


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    config = Bert(dim=32, layers=2, heads=2, hidden=48, length=24)
    return folder(tmp_path_factory.mktemp("bert"), tokenizer, config, "mlm")


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    return folder(tmp_path_factory.mktemp("gpt"), tokenizer, Gpt2(dim=32, layers=2, heads=2, length=24), "next")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    (tmp_path / "blimp").mkdir()
    for uid in ("agreement", "island"):
        rows = [json.dumps(row) + "\n" for row in ROWS if row["UID"] == uid]
        (tmp_path / "blimp" / f"{uid}.jsonl").write_text("".join(rows))
    return tmp_path / "blimp"


@torch.no_grad()
def plain(path: Path, text: str) -> list[float]:
    """log p of each token with that token hidden, one forward each, without any batch."""
    loaded = huggingface.load(path)
    tokenizer = loaded.require_tokenizer(path)
    tokens = torch.from_numpy(tokenizer.join(tokenizer.encode(text).ids)[0])
    found = []
    for place in range(1, len(tokens) - 1):
        hidden = tokens.clone()
        hidden[place] = tokenizer.mask
        logits = loaded.model.answer("mlm", loaded.model(Batch(hidden[None])), torch.tensor([place]))
        found.append(float(logits.log_softmax(-1)[0, tokens[place]]))
    return found


def test_pseudo_likelihood_is_that_of_a_plain_loop(masked: Path) -> None:
    scoring = Scorer(masked).scoring
    assert isinstance(scoring, TokenScoring)
    found = scoring.log_probabilities(TEXTS)
    for text, own in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(own, plain(masked, text), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(Scorer(masked).scores(TEXTS), [sum(plain(masked, t)) for t in TEXTS], atol=1e-3)


def test_kinds_count_alike_and_ties_are_wrong(masked: Path, pairs: Path) -> None:
    found = evaluate_minimal_pairs(masked, [pairs])
    right = [sum(plain(masked, row["sentence_good"])) > sum(plain(masked, row["sentence_bad"])) for row in ROWS]
    assert right[3] is False
    shares = [np.mean(right[:2]), np.mean(right[2:])]
    assert found["score"] == "pseudo-log-likelihood"
    assert found["kinds"] == {
        "agreement": {"accuracy": shares[0], "pairs": 2},
        "island": {"accuracy": shares[1], "pairs": 2},
    }
    assert list(found["fields"]) == ["morphology", "syntax"]
    assert found["accuracy"] == pytest.approx(np.mean(shares))
    assert evaluate_minimal_pairs(masked, [pairs], most=1)["pairs"] == 2


@torch.no_grad()
def test_a_language_model_is_asked_for_log_probabilities(causal: Path, pairs: Path) -> None:
    loaded = huggingface.load(causal)
    tokenizer = loaded.require_tokenizer(causal)

    def likely(text: str) -> float:
        tokens = torch.from_numpy(tokenizer.join(tokenizer.encode(text).ids)[0])
        logits = loaded.model.answer("next", loaded.model(Batch(tokens[None])), torch.arange(len(tokens) - 1))
        return float(logits.log_softmax(-1).gather(-1, tokens[1:, None]).sum())

    found = evaluate_minimal_pairs(causal, [pairs])
    right = [likely(row["sentence_good"]) > likely(row["sentence_bad"]) for row in ROWS]
    assert found["score"] == "log-probability"
    assert [kind["accuracy"] for kind in found["kinds"].values()] == [np.mean(right[:2]), np.mean(right[2:])]


def test_a_file_without_kinds_is_one_kind(tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("good\tbad\na cat\tan cat\nan ant\ta ant\n")
    assert {(pair.right, pair.kind) for pair in read([tmp_path / "mine.tsv"])} == {
        ("a cat", "mine"),
        ("an ant", "mine"),
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"good": "a"}\n', "needs the columns sentence_good and sentence_bad"),
        ("a.jsonl", '{"good": "a", "bad": ""}\n', "row 1: good and bad must both hold a sentence"),
        ("a.tsv", "good\tbad\n", "has no rows"),
    ],
)
def test_bad_files_are_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UnmaskError, match=said):
        read([tmp_path / name])


def test_other_models_and_places_are_refused(tmp_path: Path, tokenizer: Tokenizer, masked: Path, pairs: Path) -> None:
    bare = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=16, length=24).build(
        as_heads({"tagging": 2})
    )
    huggingface.save(tmp_path / "tags", bare, tokenizer, labels=["a", "b"])
    with pytest.raises(UnmaskError, match="No head of this model scores the likelihood"):
        evaluate_minimal_pairs(tmp_path / "tags", [pairs])
    with pytest.raises(UnmaskError, match="There is no file or folder"):
        evaluate_minimal_pairs(masked, [tmp_path / "nowhere"])
    with pytest.raises(UnmaskError, match="the model reads at most 24"):
        Scorer(masked).scores(["cats " * 40])


def test_the_command_prints_kinds(masked: Path, pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", "--model", str(masked), "--minimal-pairs", str(pairs)])
    shown = capsys.readouterr().out
    assert "2 kinds with 4 pairs" in shown
    assert "agreement" in shown
    with pytest.raises(SystemExit):
        main(["evaluate", "--model", str(masked), "--minimal-pairs", str(pairs), "--most", "0"])
    assert "--most is a number of pairs" in capsys.readouterr().err
