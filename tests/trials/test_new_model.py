"""A model page in one file outside the source: registered by one line, it is pre-trained, fine-tuned and asked."""

from __future__ import annotations

import json

import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.serve import Predictor
from unmask.types import Batch


@pytest.fixture
def page(monkeypatch):
    from local_encoder import TABLE, LocalEncoder

    monkeypatch.setitem(huggingface.TABLES, TABLE.model_type, TABLE)  # the one line
    return LocalEncoder


def test_it_is_pre_trained_fine_tuned_and_answers(page, tmp_path):
    texts = [
        TextDocument("The cat sees the dog. " * 3 + "A bird hears the road. " * (1 + i % 3), str(i)) for i in range(40)
    ]
    corpus.build(texts, tmp_path / "corpus", vocabulary_size=80, heldout=0.2)
    config = recipes.bert_tiny().replace(rows={"first": None, "tokens": 32, "batch": 8, "heldout": 8})
    small = {"sentences": "none", "steps": 40, "minutes": None, "lr": 1e-2, "device": "cpu", "precision": "fp32"}
    config = type(config)(**{**vars(config), "model": page()}).override(small)
    run = Pretrain(config, [tmp_path / "corpus"], tmp_path / "run")
    found = run.run()
    assert found.heldout["loss/mlm"] < run.baseline["loss/mlm"]
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    longer = config.resumed(facts).override({"steps": 44})
    assert Pretrain(longer, facts["corpora"], tmp_path / "run", resume=True).run().step == 44

    rows = [f"{text}\t{label}" for text, label in (("the cat sees", "cat"), ("a bird hears", "bird")) * 12]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    options = ["--epochs", "6", "--lr", "1e-2", "--seeds", "1", "--device", "cpu", "--allow-overlap", "true"]
    train = ["--model", str(tmp_path / "run"), "--train", str(tmp_path / "train.tsv"), "--out", str(tmp_path / "tuned")]
    main(["finetune", *train, *options])
    assert [answer["label"] for answer in Predictor(tmp_path / "tuned")(["the cat sees", "a bird hears"])] == [
        "cat",
        "bird",
    ]


def test_a_token_sees_its_window_alone(page):
    model = page(layers=1).build(seed=0).eval()
    tokens = torch.randint(5, 100, (1, 20), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[0, 10] = 5 if tokens[0, 10] != 5 else 6
    changed = (model(Batch(tokens)) != model(Batch(other))).any(-1)[0]
    assert changed.nonzero().flatten().tolist() == list(range(7, 14))


def test_what_it_has_no_head_for_is_refused(page):
    from unmask.types import Head

    with pytest.raises(UnmaskError, match="There is no head of a LocalEncoder 'span'"):
        page().build({"answer": Head("span")})
