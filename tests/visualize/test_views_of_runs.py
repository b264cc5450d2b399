"""Words in space, the tree of a search, and runs, each beside a plain recomputation."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
import torch

from unmask.data.text import byte_pairs, characters
from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Search
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.seq2seq import Seq2Seq
from unmask.models.t5 import T5
from unmask.models.transformer import Transformer
from unmask.runs.finetuning.encoder import INTERRUPTIONS
from unmask.runs.word_vectors import WordVectors
from unmask.types import Batch
from unmask.visualize import beam, runs, words
from unmask.visualize.context import in_context
from unmask.visualize.words import Vectors

TEXT = "the bank of the river and the bank with the money and the street"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([TEXT] * 3, 150)


@pytest.fixture(scope="module")
def bert(tokenizer):
    config = Bert(vocabulary=tokenizer.size, dim=32, layers=2, heads=4, hidden=64, length=40, std=0.3)
    return config.build(as_heads({"mlm": 0})).eval()


@pytest.fixture(scope="module")
def writer(tokenizer):
    return RecurrentNetwork(vocabulary=tokenizer.size, dim=16, hidden=16).build(as_heads({"next": 0}), seed=1).eval()


@pytest.fixture
def vectors():
    rng = np.random.default_rng(0)
    return Vectors([f"w{i}" for i in range(50)], rng.normal(size=(50, 8)).astype(np.float32))


# ------------------------------------------------------------------------------------------------ words


def test_neighbours_are_those_of_word_vectors(vectors):
    theirs = WordVectors(vectors.words, vectors.matrix)
    for plus, minus in ((["w3"], []), (["w1", "w2"], ["w7"])):
        ours = vectors.nearest(plus, minus, top=5)
        expected = theirs.most_similar(plus, minus, top=5)
        assert [one["word"] for one in ours] == [word for word, _ in expected]
        np.testing.assert_allclose([one["cosine"] for one in ours], [score for _, score in expected], rtol=1e-5)
    with pytest.raises(UnmaskError, match="did you mean 'w4"):
        vectors.nearest(["w4x"])
    with pytest.raises(UnmaskError, match="name at least one"):
        vectors.nearest([])


def test_pca_is_that_of_sklearn(vectors):
    from sklearn.decomposition import PCA

    places, shares = words.projected(vectors.matrix)
    reference = PCA(2).fit(vectors.matrix)
    np.testing.assert_allclose(shares, reference.explained_variance_ratio_, rtol=1e-4)
    np.testing.assert_allclose(np.abs(places), np.abs(reference.transform(vectors.matrix)), atol=1e-4)
    np.testing.assert_array_equal(places, words.projected(vectors.matrix)[0])


def test_tsne_keeps_groups_apart():
    rng = np.random.default_rng(0)
    two = np.concatenate([rng.normal(0, 0.1, (10, 5)), rng.normal(9, 0.1, (10, 5))]).astype(np.float32)
    places, shares = words.projected(two, "tsne")
    assert shares == []
    within = np.linalg.norm(places[:10] - places[:10].mean(0), axis=1).max()
    assert np.linalg.norm(places[:10].mean(0) - places[10:].mean(0)) > within


def test_bad_projections_are_refused(vectors):
    with pytest.raises(UnmaskError, match="no projection 'pac'; did you mean 'pca'"):
        words.projected(vectors.matrix, "pac")
    with pytest.raises(UnmaskError, match="3 to 2,000 points, not 2"):
        words.projected(vectors.matrix[:2])


def test_clusters_are_groups_of_directions_the_largest_first():
    """Two directions, of 6 and 10 words whose lengths differ, are the two clusters that 16 words may have."""
    rng = np.random.default_rng(0)
    groups = np.array([0] * 6 + [1] * 10)
    matrix = np.eye(2)[groups] * rng.uniform(1, 50, (16, 1)) + rng.normal(0, 0.01, (16, 2))
    assert words.clusters(words.Vectors([f"w{i}" for i in range(16)], matrix)) == (1 - groups).tolist()


def test_a_cloud_has_the_words_asked_for_and_their_neighbours(vectors):
    found = words.cloud(vectors, ["w5"], count=10)
    assert found["points"][0] == {"word": "w5", "asked": True, "cluster": 0, **{k: found["points"][0][k] for k in "xy"}}
    near = [one["word"] for one in vectors.nearest(["w5"], top=9)]
    assert [point["word"] for point in found["points"]] == ["w5", *near]
    assert len(words.cloud(vectors, count=20)["points"]) == 20


def test_vectors_of_a_model_are_its_table(bert, tokenizer):
    found = words.of_model(bert, tokenizer)
    assert "bank" in found.words
    assert not any(word.startswith(("##", "[")) for word in found.words)
    i = tokenizer.raw.token_to_id("bank")
    np.testing.assert_array_equal(found.matrix[found.place("Bank")], bert.embedding.token.weight[i].detach())


def subwords_of(kind):
    if kind in ("pieces", "bytes"):
        tokenizer = Tokenizer.train([TEXT] * 3, 150) if kind == "pieces" else byte_pairs.train([TEXT] * 3, 400)
        return tokenizer.with_sentinels().written()
    return train_subwords([TEXT] * 3, 60, kind)


@pytest.mark.parametrize("config", [T5, Transformer, Seq2Seq])
@pytest.mark.parametrize("kind", ["pieces", "bytes", "bpe", "word"])
def test_vectors_of_a_model_that_writes_are_those_that_it_reads_by(config, kind):
    if kind == "bpe":
        pytest.importorskip("sentencepiece")
    subwords = subwords_of(kind)
    ids = {"padding": subwords.pad, "start": subwords.start, "end": subwords.end}
    model = config().replace(vocabulary=subwords.size + 5, dim=16, **ids).build()
    found = words.of_model(model, subwords)
    assert {"the", "bank"} <= set(found.words)
    [i] = subwords.encode("bank" if kind != "bytes" else " bank").ids.tolist()
    np.testing.assert_array_equal(found.matrix[found.place("bank")], model.source.token(torch.tensor(i)).detach())
    assert not any(word.startswith(("##", "<", "[", "▁", "Ġ")) for word in found.words)
    assert found.nearest(["bank"], top=2)


def test_a_model_of_characters_has_no_vectors_of_words(writer):
    with pytest.raises(UnmaskError, match="single characters"):
        words.of_model(writer, characters.train(["a text"]))
    for subwords in (characters.train([TEXT]).with_sentinels().written(), subwords_of("character")):
        with pytest.raises(UnmaskError, match="single characters"):
            words.of_model(T5(vocabulary=subwords.size, dim=16).build(), subwords)


def test_a_word_in_context_is_its_hidden_state(bert, tokenizer):
    sentences = ["the bank of the river", "the money and the bank", "the street"]
    found = in_context(bert, tokenizer, "bank", sentences)
    assert found["without"] == ["the street"]
    states = []
    for sentence in sentences[:2]:
        tokens, _ = tokenizer.join(tokenizer.encode(sentence).ids)
        place = tokens.tolist().index(tokenizer.raw.token_to_id("bank"))
        states.append(bert(Batch(torch.from_numpy(tokens)[None]))[0, place])
    cosine = torch.cosine_similarity(*states, dim=0).item()
    assert found["cosines"][0][1] == pytest.approx(cosine, abs=1e-5)
    assert found["spread"] == pytest.approx(1 - cosine, abs=1e-5)
    assert (found["layer"], found["layers"]) == (2, 2)
    with pytest.raises(UnmaskError, match="is in 1 of the sentences"):
        in_context(bert, tokenizer, "money", sentences)
    with pytest.raises(UnmaskError, match="no layer 5"):
        in_context(bert, tokenizer, "bank", sentences, layer=5)


# ------------------------------------------------------------------------------------------------ beam


def test_a_tree_adds_up(writer, tokenizer):
    search = Search(beam_size=3, n_best=2, length_penalty=0.6).override({"max_length": 6})
    source = [tokenizer.cls, *tokenizer.encode("the bank").ids.tolist()]
    found = beam.tree(writer, source, search, end=tokenizer.sep, names=tokenizer.pieces)
    nodes = found["nodes"]
    for node in nodes:
        before = nodes[node["parent"]]["total"] if node["parent"] is not None else 0.0
        assert node["total"] == pytest.approx(before + node["said"], abs=1e-4)
        assert node["score"] == pytest.approx(node["total"] / node["step"] ** 0.6, abs=1e-4)
        assert node["parent"] is None or nodes[node["parent"]]["fate"] == "kept"
    for step in range(1, 6):
        assert sum(node["step"] == step and node["fate"] == "kept" for node in nodes) <= 3
    assert {"kept", "dropped"} <= {node["fate"] for node in nodes}
    best = found["answers"][0]
    path = [nodes[i]["token"] for i in found["best"]]
    assert path == best["tokens"] + (["[SEP]"] if best["finished"] else [])
    assert nodes[found["best"][-1]]["score"] == pytest.approx(best["score"], abs=1e-5)


def test_what_may_follow_is_the_softmax(writer, tokenizer):
    source = [tokenizer.cls, *tokenizer.encode("the").ids.tolist()]
    found = beam.following(writer, source, top=4, never=[tokenizer.pad], names=tokenizer.pieces)
    hidden = writer(Batch(torch.tensor([source])))
    share = writer.answer("next", hidden, torch.tensor([len(source) - 1]))[0].softmax(-1)
    for row in found["candidates"]:
        assert row["probability"] == pytest.approx(share[row["id"]].item(), abs=1e-6)
        assert row["token"] == tokenizer.pieces([row["id"]])[0]
    total = sum(row["probability"] for row in found["candidates"])
    assert total + found["others"] == pytest.approx(1, abs=1e-5)
    with pytest.raises(UnmaskError, match="nothing to read"):
        beam.following(writer, [], top=4, never=[], names=tokenizer.pieces)


# ------------------------------------------------------------------------------------------------ runs


def a_run(folder, *, ended=True, **config):
    folder.mkdir(parents=True)
    rows = [{"step": s, "seconds": s / 2, "split": "train", "loss/mlm": 3.0 - s / 1000, "lr": 0.1} for s in range(1000)]
    rows.append({"step": 999, "seconds": 500, "split": "heldout", "loss/mlm": None, "mlm/correct": 0.25})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    place = folder if ended else folder / "checkpoints" / "step-00000010"
    place.mkdir(parents=True, exist_ok=True)
    (place / "run.json").write_text(json.dumps({"recipe": "tiny", "config": {"model": {"dim": 8}, **config}}))
    (place / "config.json").write_text("{}")
    (folder / "samples.jsonl").write_text("".join(json.dumps({"step": s, "samples": []}) + "\n" for s in range(20)))
    return folder


def test_a_run_with_settings_and_no_model_has_not_ended(tmp_path):
    run = a_run(tmp_path / "a")
    assert runs.run(run, now=run.joinpath("metrics.jsonl").stat().st_mtime)["state"] == "finished"
    (run / "config.json").unlink()
    assert runs.run(run, now=run.joinpath("metrics.jsonl").stat().st_mtime)["state"] == "running"
    assert runs.run(run, now=math.inf)["state"] == "stopped"


def test_runs_are_found_and_read(tmp_path):
    a, b = a_run(tmp_path / "a", rate=1), a_run(tmp_path / "deep" / "b", ended=False, rate=2, more=True)
    (a / "seeds" / "0").mkdir(parents=True)
    (a / "seeds" / "0" / "metrics.jsonl").write_text("")
    os.utime(a / "metrics.jsonl", (10, 10))
    assert runs.find(tmp_path) == [b, a]
    found = runs.run(a)
    assert (found["state"], found["step"], found["recipe"]) == ("finished", 999, "tiny")
    points = found["curves"]["loss/mlm"]["train"]
    assert len(points) == 400
    assert (points[0], points[-1]) == ([0, 3.0], [999, pytest.approx(2.001)])
    assert "heldout" not in found["curves"]["loss/mlm"]
    assert found["curves"]["mlm/correct"]["heldout"] == [[999, 0.25]]
    assert "step" not in found["curves"]
    assert [line["step"] for line in found["samples"]][::7] == [0, 19]
    assert runs.run(b)["state"] == "running"
    assert runs.run(b, now=math.inf)["state"] == "stopped"
    both = runs.compare([a, b])
    assert both["differences"] == [{"field": "rate", "values": [1, 2]}, {"field": "more", "values": [None, True]}]


def checkpoint_of(folder, step, total):
    place = folder / "checkpoints" / f"step-{step:08d}"
    place.mkdir(parents=True)
    (place / "state.json").write_text(json.dumps({"step": step, "total": total}))


def test_a_run_is_finished_only_with_its_last_step(tmp_path):
    run = a_run(tmp_path / "a")
    os.utime(run / "metrics.jsonl", (1000, 1000))
    os.utime(run / "run.json", (1001, 1001))
    checkpoint_of(run, 900, 1000)
    checkpoint_of(run, 999, 1000)
    assert runs.run(run, now=1002)["state"] == "stopped"  # by a signal, after which the folder was written
    os.utime(run / "metrics.jsonl", (1002, 1002))
    assert runs.run(run, now=1003)["state"] == "running"  # it goes on
    assert runs.run(run, now=5000)["state"] == "stopped"
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 1000, "split": "train"}) + "\n")
    checkpoint_of(run, 1000, 1000)
    assert runs.run(run)["state"] == "finished"
    with (run / "metrics.jsonl").open("a") as file:  # with more steps than at first
        file.write(json.dumps({"step": 1010, "split": "train"}) + "\n")
    assert runs.run(run)["state"] == "running"


@pytest.mark.parametrize("stopped", [None, "no gain in 3 evaluations", *INTERRUPTIONS])
def test_fine_tuning_is_finished_unless_a_signal_ended_its_last_seed(stopped, tmp_path):
    run = a_run(tmp_path / "a")
    a_run(run / "seeds" / "0", ended=False)
    (run / "results.json").write_text(json.dumps({"seeds": [{"stopped": None}, {"stopped": stopped}]}))
    os.utime(run / "seeds" / "0" / "metrics.jsonl", (1000, 1000))
    os.utime(run / "results.json", (1001, 1001))
    cut = stopped in INTERRUPTIONS
    assert runs.run(run, now=1002)["state"] == ("stopped" if cut else "finished")
    os.utime(run / "seeds" / "0" / "metrics.jsonl", (1002, 1002))
    assert runs.run(run, now=1003)["state"] == ("running" if cut else "finished")


def test_no_run_is_said(tmp_path):
    with pytest.raises(UnmaskError, match="holds no run"):
        runs.run(tmp_path)
    with pytest.raises(UnmaskError, match="no folder"):
        runs.find(tmp_path / "x")
    with pytest.raises(UnmaskError, match="no run to show"):
        runs.compare([])
