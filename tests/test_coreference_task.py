"""Coreference: windows, clusters from antecedents, string match, a run that is scored, asked and shown."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data import collate
from unmask.data.labelled import stories
from unmask.data.labelled.coreference import read_documents
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Ambiguous, Discourse, Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.runs.evaluation import evaluate
from unmask.serve import Predictor
from unmask.tasks import TASKS, Coreference, settings_of
from unmask.tasks.lexical.coreference import mentions_in, string_match
from unmask.tasks.linked_mentions import linked, parts_of, word_windows
from unmask.types import Example

ROWS = stories.stories(40)
TOKENIZER = Tokenizer.train([" ".join(row.words) for row in ROWS], 300)
NADER = "I voted for Nader because he was most aligned with my values , she said ."


def build(task, seed=0):
    config = Bert(vocabulary=TOKENIZER.size, length=64, layers=1, dim=32, heads=2, hidden=64, std=0.2, dropout=0.0)
    return config.build(heads=task.heads, seed=seed).eval()


def document(text, kind=Discourse, **more):
    return kind(text, words=tuple(text.split()), **more)


def spans_of(clusters):
    return {frozenset(cluster) for cluster in clusters}


def test_stories_are_read_as_they_were_made(tmp_path):
    stories.write(tmp_path, 20)
    found = [*read_documents(tmp_path / "dev.conll"), *read_documents(tmp_path / "train.conll")]
    made = stories.stories(20)
    for a, b in zip(found, made, strict=True):
        assert (a.words, a.starts, spans_of(a.clusters)) == (b.words, b.starts, spans_of(b.clusters))
    assert all("." in row.words[start - 1] for row in made for start in row.starts[1:])


def test_windows_cover_all_words_and_end_between_sentences():
    bounds, starts = np.array([0, 1, 3, 4, 6, 7, 20, 21]), (0, 2, 5)
    assert list(word_windows(bounds, starts, 7)) == [(0, 5), (5, 6), (6, 7)]  # the word of 13 pieces is alone
    assert list(word_windows(bounds, starts, 30)) == [(0, 7)]
    assert list(word_windows(bounds, (0,), 3)) == [(0, 2), (2, 4), (4, 5), (5, 6), (6, 7)]


def test_parts_have_the_mentions_that_they_hold():
    row = Discourse("a b c d", words=tuple("abcd"), starts=(0, 2), clusters=(((0, 1), (2, 3)), ((1, 3),)))
    first, second = parts_of(row, [(0, 2), (2, 4)], 1)
    assert (first.words, first.starts, first.clusters) == (("a", "b"), (0,), (((0, 1),),))
    assert (second.words, second.starts, second.clusters) == (("c", "d"), (0,), (((0, 1),),))


@pytest.mark.parametrize("row", ROWS[:8], ids=lambda row: row.place)
def test_correct_antecedents_give_the_clusters(row):
    cluster = {span: i for i, one in enumerate(row.clusters) for span in one}
    spans = sorted([*cluster, *((w, w + 1) for w in range(len(row.words)) if (w, w + 1) not in cluster)])
    antecedents = np.tile(np.arange(len(spans)), (len(spans), 1))
    scores = np.full((len(spans), len(spans) + 1), -np.inf)
    scores[:, 0] = 0
    for i, span in enumerate(spans):
        for j in range(i):
            scores[i, j + 1] = 2.0 if span in cluster and cluster[span] == cluster.get(spans[j]) else -1.0
    alone = np.array([span in cluster for span in spans])
    found = linked(spans, scores, antecedents, alone)
    assert spans_of(found.clusters) == spans_of(row.clusters)
    shares = np.exp(scores).max(1) / np.exp(scores).sum(1)
    assert found.probabilities == pytest.approx(
        {span: shares[i] for i, span in enumerate(spans) if scores[i].max() > 0}
    )
    several = {own for own in spans_of(row.clusters) if len(own) > 1}
    assert spans_of(linked(spans, scores, antecedents, alone & False).clusters) == several


def test_the_loss_of_packed_windows_is_that_of_each_document():
    task = Coreference(longest_mention=3, window=16, singletons=True)
    model = build(task)
    encoded = task.encode(ROWS[:4], TOKENIZER, 64)
    assert encoded.split
    assert max(encoded.lengths) <= 16

    def losses(examples):
        batch = collate.pack(list(examples), 32, TOKENIZER.pad)
        loss = task.score(model, model(batch), batch)
        assert loss.count == batch.counts["coreference"]
        return loss.sum

    apart = sum(losses(encoded.examples[own]) for own in encoded.of_rows)
    torch.testing.assert_close(losses(encoded.examples), apart, rtol=1e-4, atol=1e-3)
    answers = task.answer_all(model, encoded, TOKENIZER.pad)
    assert sum(one.loss for one in answers) == pytest.approx(apart.item(), rel=1e-4)


def test_a_batch_without_targets_has_no_loss_and_no_missing_gradient():
    task = Coreference()
    model = build(task)
    example = Example(*TOKENIZER.join(TOKENIZER.ids(["Anna met Paul"])[0]))
    batch = collate.pad([example], TOKENIZER.pad).asking(["coreference"])
    loss = task.score(model, model(batch), batch)
    loss.sum.backward()
    assert (loss.sum.item(), loss.count) == (0, 0)
    assert all(p.grad is not None for p in model.heads["coreference"].parameters())


def test_training_parts_and_the_words_about_mentions():
    said = []
    task = Coreference.learned({"train": dataset(ROWS)}, TASKS["coreference"].options_class(window=16), said.append)
    assert task.singletons
    assert "0.0% of the mentions are longer than 10 words" in said[0]
    parts = task.for_training(task.encode(ROWS, TOKENIZER, 64), TOKENIZER)
    assert sum(len(row.words) for row in parts.rows) == sum(len(row.words) for row in ROWS)
    assert np.bincount(parts.owners).max() <= 3
    with pytest.raises(UnmaskError, match="--kept-spans above 0"):
        Coreference.learned({}, TASKS["coreference"].options_class(kept_spans=0.0), said.append)
    asked = Ambiguous("He", words=("He",))
    with pytest.raises(UnmaskError, match="x has pronouns with two names, without clusters, so it cannot be --dev"):
        Coreference.learned(
            {"train": dataset(ROWS), "dev": dataset([asked])}, TASKS["coreference"].options_class(), said.append
        )


def dataset(rows):
    return Dataset("x", tuple(rows), {})


def test_string_match_links_equal_names_and_the_nearest_mention():
    row = document(NADER)
    found = string_match(row, [(0, 1), (3, 4), (5, 6), (10, 11), (13, 14)])
    assert spans_of(found) == {frozenset({(0, 1), (10, 11)}), frozenset({(3, 4), (5, 6), (13, 14)})}
    references = Coreference().references(dataset([row]))
    assert references["annotated"]()([replace(row, clusters=found)])["conll_f1"] == 1
    row = document("The town . Mary Ann sang . The MARY ANN of Town saw herself .", starts=(0, 3, 7))
    assert mentions_in(row) == [(4, 5), (8, 10), (11, 12), (13, 14)]
    assert spans_of(string_match(row, [(3, 5), (8, 10), (13, 14)])) == {frozenset({(3, 5), (8, 10), (13, 14)})}


def test_pronouns_with_names_are_scored_by_shared_clusters():
    asked = {"pronoun": (5, 6), "names": ((0, 2), (3, 4)), "meant": (True, False)}
    row = document("Mary Ann met Eve . She sang .", Ambiguous, starts=(0, 5), **asked)
    task = Coreference()
    right = linked([(1, 2), (5, 6)], np.array([[0, -np.inf], [0, 3.0]]), np.array([[0], [0]]), np.zeros(2, bool))
    assert task.metrics([right], [row])["f1"] == 1
    assert task.tables([right], [row]) == {}
    assert task.baseline([row], [])["f1"] == 0  # the nearest is Eve
    with pytest.raises(UnmaskError, match="score them apart"):
        task.metrics([right, right], [row, ROWS[0]])
    with pytest.raises(UnmaskError, match="is not a document"):
        task.encode([Row("a", place="x:1")], TOKENIZER, 64)


def test_a_run_is_scored_asked_and_saved(tmp_path, capsys):
    stories.write(tmp_path / "data", 30)
    huggingface.save(tmp_path / "trunk", build(Coreference()).without_heads(), TOKENIZER)
    files = [f"--{name}={tmp_path / 'data' / name}.conll" for name in ("train", "dev")]
    fields = ["--epochs=1", "--batch=8", "--seeds=1", "--lr=3e-3", "--precision=fp32", "--device=cpu"]
    main(
        [
            "finetune",
            f"--model={tmp_path / 'trunk'}",
            "--task=coreference",
            f"--out={tmp_path / 'run'}",
            *files,
            *fields,
        ]
    )
    assert "string match: equal names" in capsys.readouterr().out
    result = json.loads((tmp_path / "run" / "results.json").read_text())
    again = evaluate(tmp_path / "run", tmp_path / "data" / "dev.conll")["metrics"]
    assert again == pytest.approx(result["seeds"][0]["dev"], rel=1e-3)
    assert result["tables"]["Clusters of mentions"]["rows"][0][0] == "MUC"
    predictor = Predictor(tmp_path / "run", precision="fp32")
    assert settings_of(predictor.task) == settings_of(Coreference(singletons=True))
    text = "Anna met Paul. She liked him."
    (answer,) = predictor([text])
    assert all(text[one["begin"] : one["end"]] == one["text"] for cluster in answer["clusters"] for one in cluster)
    main(["predict", "--model", str(tmp_path / "run"), text, "--precision", "fp32"])
    shown = capsys.readouterr().out
    assert shown.startswith(text)
    assert shown.count("\n  ") == max(1, len(answer["clusters"]))
    main(["predict", "--model", str(tmp_path / "run"), "--file", str(tmp_path / "data" / "dev.conll"), "--json"])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_tiny_model_learns_the_stories():
    torch.manual_seed(0)
    task, rows = Coreference(longest_mention=3, antecedents=10, singletons=True), ROWS[:3]
    model = build(task).train()
    model.heads["coreference"].on_a_trunk()
    encoded = task.encode(rows, TOKENIZER, 64)
    batch = collate.pack(list(encoded.examples), 64, TOKENIZER.pad)
    assert task.evaluate(model, encoded, TOKENIZER.pad)["conll_f1"] < 0.4
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        loss = task.score(model, model(batch), batch)
        (loss.sum / loss.count).backward()
        optimizer.step()
    assert task.evaluate(model, encoded, TOKENIZER.pad)["conll_f1"] > max(0.6, task.baseline(rows, [])["conll_f1"])
