"""New models of texts from labelled rows: their tokenizer, where they look, and two tasks that share a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data import collate
from unmask.errors import UnmaskError
from unmask.models.shared_recurrent import SharedRecurrent
from unmask.tasks import Classification, Tagging
from unmask.tasks.encoded import Encoded
from unmask.tasks.second import Second, TwoTasks, alone
from unmask.types import Example, Head

FAST = ["--epochs", "1", "--batch-size", "8", "--dim", "8", "--hidden", "6", "--device", "cpu"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    texts = [
        f"We saw film {i} on monday. It was {('poor', 'great')[i % 2]}!\t{('bad', 'good')[i % 2]}" for i in range(24)
    ]
    (folder / "reviews.tsv").write_text("\n".join(["text\tlabel", *texts]), encoding="utf-8")
    words = [f"Film\tNOUN\n{i}\tNUM\nwas\tAUX\ngreat\tADJ\n" for i in range(24)]
    (folder / "words.conll").write_text("\n".join(words), encoding="utf-8")
    return folder


def test_a_document_network_says_where_it_looked(rows, tmp_path, capsys):
    out = str(tmp_path / "run")
    main(["train", "han", "--data", str(rows / "reviews.tsv"), *FAST, "--out", out])
    page = huggingface.load(out).model.config
    assert page.vocabulary == huggingface.load(out).processor.size < 100  # the words of the rows
    capsys.readouterr()
    main(["predict", "--model", out, "--json", "It was great! We saw it."])
    [answer] = map(json.loads, capsys.readouterr().out.splitlines())
    looked = answer["looked"]
    assert [one["text"] for one in looked] == ["It was great!", "We saw it."]
    assert [word["word"] for word in looked[0]["words"]] == ["It", "was", "great", "!"]
    for weights in ([one["weight"] for one in looked], *([w["weight"] for w in one["words"]] for one in looked)):
        assert sum(weights) == pytest.approx(1, abs=1e-5)


def test_two_tasks_share_a_model_and_each_has_a_folder(rows, tmp_path, capsys):
    out = tmp_path / "run"
    given = ["--data", str(rows / "reviews.tsv"), "--second-train", str(rows / "words.conll")]
    main(["train", "bilstm-two-tasks", *given, *FAST, "--out", str(out)])
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["summary"].keys() == {"dev", "tagging dev"}
    assert 0 <= results["summary"]["tagging dev"]["accuracy"]["mean"] <= 1
    first, second = huggingface.load(out).model, huggingface.load(out / "tagging").model
    assert set(first.heads) == {"classification"}
    assert set(second.heads) == {"tagging"}
    torch.testing.assert_close(first.embedding.token.weight, second.embedding.token.weight)
    capsys.readouterr()
    main(["predict", "--model", str(out / "tagging"), "--json", "Film 3 was great"])
    assert len(json.loads(capsys.readouterr().out)["words"]) == 4


SIZES = SharedRecurrent(vocabulary=20, dim=6, hidden=4, dropout=0.0)
FIRST, SECOND = Classification(("a", "b")), Tagging(("X", "Y", "Z"))
BOTH = TwoTasks(FIRST, SECOND, 0.5)
TEXT = Example(np.array([5, 6, 7]), targets={FIRST.name: (np.array([0]), np.array([1]))})
WORDS = Example(np.array([8, 9, 10, 11]), targets={SECOND.name: (np.array([1, 2]), np.array([2, 0]))})


def test_the_losses_of_a_mixed_batch_are_those_of_each_task_alone():
    model = SIZES.build(BOTH.heads, seed=0).eval()
    found = BOTH.loss(model, collate.pack([TEXT, WORDS], 8, 0))
    for task, example in ((FIRST, TEXT), (SECOND, WORDS)):
        wanted = task.loss(alone(model, task), collate.pad([example], 0, multiple=1))[task.name]
        torch.testing.assert_close(found[task.name].sum, wanted.sum)
        assert found[task.name].count == wanted.count
        assert BOTH.loss(model, collate.pad([example], 0)).keys() == {task.name}
    assert BOTH.weights == {FIRST.name: 1.0, SECOND.name: 0.5}


def test_tags_depend_on_the_first_layer_alone_and_classes_on_both():
    model = SIZES.build(BOTH.heads, seed=0).eval()
    batch = collate.pack([TEXT, WORDS], 8, 0)
    for task, layers in ((SECOND, {0}), (FIRST, {0, 1})):
        model.zero_grad()
        BOTH.loss(model, batch)[task.name].sum.backward()
        moved = {
            i
            for i, block in enumerate(model.stack.blocks)
            for p in block.parameters()
            if p.grad is not None and p.grad.any()
        }
        assert moved == layers


def test_each_head_reads_one_layer():
    """Also one whose input is the states of words, such as that of coreference."""
    head = Head("span_ranking", 3)
    model = SIZES.build({"links": head}, seed=0).eval()
    batch = collate.pad([TEXT], 0, multiple=1)
    x_MD = model.head_inputs("links", model(batch), torch.arange(3), batch)
    assert model.heads["links"](x_MD, np.ones(3), 1.0, 2).scores.shape == (3, 3)


def test_rows_of_both_tasks_are_shuffled_together():
    first = Encoded([TEXT], np.array([0]), ["row"], 8)
    second = Encoded([WORDS, WORDS], np.array([0, 0]), ["sentence"], 8)
    both = BOTH.together(first, second)
    assert (len(both.examples), both.owners.tolist(), both.rows) == (3, [0, 1, 1], ["row", "sentence"])


def test_a_second_task_without_rows_is_said():
    said = []
    assert Second(second_task="tagging").sets(said.append, np.random.default_rng(0)) == {}
    assert "--second-train FILE" in said[0]


def test_equal_rows_of_a_second_task_can_be_allowed(rows):
    path = rows / "words.conll"
    second = Second(second_task="tagging", second_train=path, second_dev=path)
    with pytest.raises(UnmaskError, match="--allow-overlap yes"):
        second.sets(print, np.random.default_rng(0))
    assert second.sets(print, np.random.default_rng(0), allow_overlap=True).keys() == {"train", "dev"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TwoTasks(FIRST, Classification(("c", "d"))), "set --second-task"),
        (lambda: TwoTasks(FIRST, SECOND, 0.0), "--second-weight must be above 0"),
        (lambda: Second(second_weight=2.0).sets(print, np.random.default_rng(0)), "give --second-train FILE"),
        (
            lambda: Second(second_train=Path("a.tsv")).sets(print, np.random.default_rng(0)),
            "--second-task NAME",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(make, message):
    with pytest.raises(UnmaskError, match=message):
        make()
