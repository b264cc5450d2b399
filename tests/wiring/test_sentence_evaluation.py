"""Sentence encoders scored on every kind of rows: by the head that a run keeps, by a probe, by cosines."""

from __future__ import annotations

import numpy as np
import pytest
from finetune_toy import BAD, FILLER, GOOD, fields, write_trunk, write_tsv
from safetensors.torch import load_file, save_file

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.files import MANIFEST
from unmask.runs.evaluation import evaluate, render_evaluation
from unmask.runs.finetuning import FineTuning, finetune
from unmask.tasks import pair_classes

HEADS = {
    "classes": ("premise", "hypothesis", "label"),
    "scores": ("sentence1", "sentence2", "score"),
    "positives": ("question", "passage"),
    "triplets": ("anchor", "positive", "negative"),
}


def rows(kind, n, seed):
    rng = np.random.default_rng(seed)

    def text(word, more=""):
        return f"{' '.join(rng.choice(FILLER, 3))} {word} {more}".strip()

    found = []
    for i in range(n):
        first, near, far = text(rng.choice(GOOD), f"n{seed}x{i}"), text(rng.choice(GOOD)), text(rng.choice(BAD))
        second, same = (near, True) if i % 2 else (far, False)
        found.append(
            {
                "classes": (first, second, "entailment" if same else "contradiction"),
                "scores": (first, second, str(4 + i / n if same else i / n)),
                "positives": (first, near),
                "triplets": (first, near, far),
            }[kind]
        )
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for kind, head in HEADS.items():
        for part, n, seed in (("train", 40, 1), ("dev", 20, 2)):
            write_tsv(folder / kind / f"{part}.tsv", rows(kind, n, seed), head)
    return folder


@pytest.fixture(scope="module")
def runs(place, files, tmp_path_factory):
    """kind of the training rows -> (folder, what its run reports)"""
    out = tmp_path_factory.mktemp("encoders")
    found = {}
    for kind in ("classes", "scores", "triplets"):
        config = FineTuning().override({**fields(place[0], files / kind), "task": "embedding", "seeds": 1})
        found[kind] = (out / kind, finetune(config, out / kind))
    return found


def test_evaluating_pairs_with_classes_gives_the_score_of_the_run(runs, files):
    folder, result = runs["classes"]
    scores = evaluate(folder, files / "classes" / "dev.tsv")
    assert scores["metrics"] == pytest.approx(result.seeds[0]["dev"], abs=1e-6)
    assert scores["metrics"]["accuracy"] > 0.5
    assert scores["baseline"]["accuracy"] == 0.5
    assert scores["notes"] == []


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("scores", {"spearman", "pearson"}),
        ("positives", {"recall@1", "recall@10", "mrr"}),
        ("triplets", {"recall@1", "recall@10", "mrr", "accuracy"}),
    ],
)
@pytest.mark.parametrize("trained", ["classes", "scores", "triplets"])
def test_other_rows_are_scored_by_cosines_whatever_taught_the_vectors(runs, files, trained, kind, names):
    scores = evaluate(runs[trained][0], files / kind / "dev.tsv")
    assert scores["metrics"].keys() == names == scores["baseline"].keys()
    if trained == kind:
        assert scores["metrics"] == pytest.approx(runs[kind][1].seeds[0]["dev"], abs=1e-6)


def test_without_a_head_a_probe_is_trained_on_the_rows(runs, files):
    scores = evaluate(runs["triplets"][0], files / "classes" / "train.tsv")
    assert {"accuracy", "f1", "macro_f1", "mcc", "loss"} == scores["metrics"].keys()
    assert "no head for classes" in scores["notes"][0]
    assert "logistic regression" in render_evaluation(scores)
    assert scores["baseline"]["accuracy"] == 0.5


def test_a_probe_finds_what_vectors_tell_and_never_sees_the_rows_it_answers():
    from unmask.data.labelled.rows import Row
    from unmask.tasks import Embedding

    rng = np.random.default_rng(0)
    firsts = [f"text {i // 2}" for i in range(200)]  # each stands in two rows
    labels = rng.integers(2, size=100).repeat(2)  # by the first text alone, so that memory would answer
    pairs = [Row(first, "other", str(label)) for first, label in zip(firsts, labels, strict=True)]
    told = rng.normal(size=(200, 2, 8))
    told[:, 1, 0] = told[:, 0, 0] + 4 * labels
    task = pair_classes.ProbedPairs(["0", "1"], Embedding())
    assert task.judge(None, list(told), pairs)["accuracy"] > 0.85
    remembered = np.repeat(rng.normal(size=(100, 2, 200)), 2, axis=0)
    assert task.judge(None, list(remembered), pairs)["accuracy"] < 0.65


def test_rows_too_few_for_a_probe(runs, tmp_path):
    few = write_tsv(tmp_path / "few.tsv", rows("classes", 8, 3), HEADS["classes"])
    with pytest.raises(UnmaskError, match=r"too few to train one: 4 with 'contradiction'"):
        evaluate(runs["scores"][0], few)


def test_labels_that_the_head_does_not_know(runs, tmp_path):
    strange = [(a, b, {"entailment": "Entailment"}.get(c, "neutral")) for a, b, c in rows("classes", 12, 3)]
    with pytest.raises(UnmaskError, match=r":2 has the label 'neutral'.*contradiction, entailment"):
        evaluate(runs["classes"][0], write_tsv(tmp_path / "strange.tsv", strange, HEADS["classes"]))
    capitals = [(a, b, c.upper()) for a, b, c in rows("classes", 12, 3)]
    found = evaluate(runs["classes"][0], write_tsv(tmp_path / "capitals.tsv", capitals, HEADS["classes"]))
    assert found["notes"] == []


def copy_of(folder, there):
    import shutil

    return shutil.copytree(folder, there)


def test_the_manifest_seals_the_head(runs, files, tmp_path):
    folder = copy_of(runs["classes"][0], tmp_path / "run")
    head = load_file(folder / pair_classes.NAME)
    save_file({"weight": head["weight"]}, folder / pair_classes.NAME, metadata={"labels": '["a", "b"]'})
    with pytest.raises(UnmaskError, match="checksum"):
        evaluate(folder, files / "classes" / "dev.tsv")
    (folder / MANIFEST).unlink()
    with pytest.raises(UnmaskError, match=r"pairs.safetensors is damaged .*bias.*Restore"):
        evaluate(folder, files / "classes" / "dev.tsv")
    (folder / pair_classes.NAME).write_bytes(b"nothing")
    with pytest.raises(UnmaskError, match=r"pairs.safetensors is damaged"):
        evaluate(folder, files / "classes" / "dev.tsv")


def test_a_head_of_other_weights_does_not_count(runs, files, tmp_path):
    folder = copy_of(runs["classes"][0], tmp_path / "run")
    loaded = huggingface.load(folder)
    huggingface.save(folder, loaded.model, loaded.tokenizer, settings=loaded.settings)  # a new encoder, say
    assert (folder / pair_classes.NAME).exists()
    assert evaluate(folder, files / "classes" / "train.tsv")["notes"]


def test_a_trunk_is_still_refused(tmp_path, files):
    with pytest.raises(UnmaskError, match="fine-tune it first"):
        evaluate(write_trunk(tmp_path / "trunk"), files / "classes" / "dev.tsv")
