"""Minimal pairs for an ELECTRA and a T5: scores equal to a plain loop, the same command, and what is refused."""

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
from unmask.models.electra import Electra
from unmask.models.t5 import T5
from unmask.runs.minimal_pairs import evaluate_minimal_pairs
from unmask.serve.likelihood import Scorer, TokenScoring
from unmask.types import Batch

TEXTS = ["the cat that chased the dogs is here", "cats sleep", "who should anna hug after the walk ?", "cats sleeps"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 3, 80)


@pytest.fixture(scope="module")
def electra(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    path = tmp_path_factory.mktemp("electra")
    config = Electra(vocabulary=tokenizer.size, dim=32, layers=2, heads=2, hidden=48, factor=16, generator=0.5)
    huggingface.save(path, config.replace(length=24, std=0.4).build(seed=3), tokenizer)
    return path


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    path = tmp_path_factory.mktemp("t5")
    own = tokenizer.with_sentinels()
    ids = {"vocabulary": own.size, "padding": own.pad, "start": own.pad, "end": own.sep}
    sizes = {"dim": 32, "heads": 2, "head_dim": 16, "hidden": 48, "encoder_layers": 2, "decoder_layers": 2}
    config = T5().replace(**ids, **sizes, factor=2.0)
    huggingface.save(path, config.build(seed=3), own.written())
    return path


@torch.no_grad()
def original(path: Path, text: str) -> list[float]:
    """log p(original) of each token, by the head's logit of "replaced"."""
    loaded = huggingface.load(path)
    tokenizer = loaded.require_tokenizer(path)
    tokens = torch.from_numpy(tokenizer.join(tokenizer.encode(text).ids)[0])
    logits = loaded.model.answer("rtd", loaded.model(Batch(tokens[None])), torch.arange(1, len(tokens) - 1))
    return (1 - logits[:, 0].sigmoid()).log().tolist()


@torch.no_grad()
def gaps(path: Path, text: str) -> list[float]:
    """log p of each token, and of <Y> after it, one forward pass each."""
    loaded = huggingface.load(path)
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    first, second = (tokenizer.vocabulary[name] for name in ("<extra_id_0>", "<extra_id_1>"))
    ids = tokenizer.ids([text])[0].tolist()
    found = []
    for place, token in enumerate(ids):
        source = torch.tensor([[*ids[:place], first, *ids[place + 1 :], tokenizer.end]])
        written = torch.tensor([[tokenizer.start, first, token]])
        logits = loaded.model.answer(
            "next", loaded.model(Batch(written, source=Batch(source))), torch.tensor([1, 2])
        ).log_softmax(-1)
        found.append(float(logits[0, token] + logits[1, second]))
    return found


def test_an_electra_judges_each_token(electra: Path) -> None:
    scoring = Scorer(electra).scoring
    assert isinstance(scoring, TokenScoring)
    found = scoring.log_probabilities(TEXTS)
    for text, own in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(own, original(electra, text), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(Scorer(electra).scores(TEXTS), [sum(original(electra, t)) for t in TEXTS], 1e-4)


def test_a_t5_fills_each_gap(t5: Path) -> None:
    scoring = Scorer(t5).scoring
    assert isinstance(scoring, TokenScoring)
    found = scoring.log_probabilities(TEXTS)
    for text, own in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(own, gaps(t5, text), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(Scorer(t5).scores(TEXTS), [sum(gaps(t5, t)) for t in TEXTS], 1e-4)


def test_texts_without_tokens_cost_nothing(electra: Path, t5: Path) -> None:
    assert Scorer(electra).scores(["", "cats sleep"])[0] == 0.0
    assert Scorer(t5).scores(["", "cats sleep"])[0] == 0.0


@pytest.mark.parametrize(
    ("name", "score"), [("electra", "that nothing was replaced"), ("t5", "log-probability of gaps")]
)
def test_the_command_scores_both(
    name: str, score: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    model = request.getfixturevalue(name)
    rows = [{"sentence_good": TEXTS[i], "sentence_bad": TEXTS[3 - i]} for i in range(4)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = evaluate_minimal_pairs(model, [tmp_path / "mine.jsonl"])
    plain = {"electra": original, "t5": gaps}[name]
    right = [sum(plain(model, TEXTS[i])) > sum(plain(model, TEXTS[3 - i])) for i in range(4)]
    assert found["accuracy"] == pytest.approx(np.mean(right))
    main(["evaluate", "--model", str(model), "--minimal-pairs", str(tmp_path / "mine.jsonl")])
    assert score in capsys.readouterr().out


def test_others_are_refused(electra: Path, t5: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UnmaskError, match="the model reads at most 24"):
        Scorer(electra).scores(["cats " * 40])
    tagger = huggingface.load(electra, heads=as_heads({"tagging": 2}))
    with pytest.raises(UnmaskError, match="No head of this model scores the likelihood"):
        Scorer(tagger)
    loaded = huggingface.load(t5)
    with pytest.raises(UnmaskError, match="does not predict masked spans"):
        Scorer(huggingface.Loaded(loaded.model, tokenizer.written(), (), (), ()))
