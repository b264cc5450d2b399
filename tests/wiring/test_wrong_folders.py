"""A folder of one kind, given to a verb that is for another: one sentence, which says what to do."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import unmask
from unmask import huggingface
from unmask.cli import main
from unmask.data.files.corpora import TEXTS, seal
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.electra import Electra
from unmask.models.gpt import Gpt2
from unmask.models.t5 import T5
from unmask.runs.word_vectors import WordVectors
from unmask.tasks.written import Written

SYSTEMS = ("transformer-tiny", "seq2seq")
SIZES = {"vocabulary": 40, "dim": 8, "heads": 2, "layers": 1, "length": 16}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    WordVectors(["king", "queen", "man"], np.eye(3, 4)).save(root / "words")
    tokenizer = Tokenizer.train(["a text of a few words"] * 3, 40)
    huggingface.save(root / "electra", Electra(**SIZES, hidden=16).build(as_heads({"rtd": 1})), tokenizer)
    huggingface.save(root / "pairs", Bert(**SIZES, hidden=16).build(as_heads({"pairs": 3})), tokenizer)
    huggingface.save(root / "gpt", Gpt2(**SIZES).build(as_heads({"next": 0})), tokenizer)
    t5 = T5(vocabulary=40, dim=8, heads=2, head_dim=4, hidden=16, encoder_layers=1, decoder_layers=1)
    huggingface.save(root / "t5", t5.build())
    huggingface.save(root / "task", t5.build(), settings={"written": Written("sst2", ["good"]).settings()})
    (root / "empty").mkdir()
    (root / "corpus").mkdir()
    seal(root / "corpus", TEXTS, 1, {})
    (root / "above" / "run").mkdir(parents=True)
    (root / "above" / "run" / "metrics.jsonl").touch()
    config = json.loads((root / "pairs" / "config.json").read_text())
    for name, text in {"torn": "{", "light": json.dumps(config), "odd": json.dumps({**config, "rotary": 2})}.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(text)
    (root / "begun" / "checkpoints").mkdir(parents=True)
    return root


@pytest.mark.parametrize("verb", ["predict", "translate", "generate", "evaluate", "export", "serve", "finetune"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("words", "holds word vectors, not a model: query them with `unmask words`"),
        ("empty", "is not a model folder: it has no config.json"),
        ("corpus", "is a corpus, not a model: train a model on it with unmask pretrain RECIPE --corpus "),
        ("begun", "holds an unfinished run, and no model yet: continue it with --resume"),
        ("nowhere", "There is no model folder"),
    ],
)
def test_what_is_no_model_is_refused_by_all_verbs(verb, name, sentence, folders, tmp_path, capsys):
    if (verb, name) == ("serve", "words"):
        pytest.skip("word vectors are served")
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"film {i}\t{i % 2}\n" for i in range(20)))
    rest = {
        "evaluate": ["--data", str(rows)],
        "export": ["--out", str(tmp_path / "out")],
        "serve": ["--port", "0"],
        "finetune": ["--train", str(rows), "--out", str(tmp_path / "out")],
    }
    if verb in ("serve", "export"):
        pytest.importorskip("starlette" if verb == "serve" else "onnxruntime")
    refused(capsys, [verb, "--model", str(folders / name), *rest.get(verb, ["a text"])], sentence)
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere", "There is no model folder"),
        ("words", "holds word vectors, not a model"),
        ("torn", "config.json is not valid JSON"),
        ("light", "has no model.safetensors: there are no weights to load"),
        ("odd", "config.json: this model does not implement the field rotary = 2"),
    ],
)
@pytest.mark.parametrize("how", [[], ["--search", "2"], ["--curve", "20"], ["--advise"]])
def test_the_model_is_looked_at_before_the_rows(how, name, sentence, folders, tmp_path, capsys):
    asked = ["finetune", "--model", str(folders / name), "--train", str(tmp_path / "missing.tsv"), *how]
    refused(capsys, [*asked, "--out", str(tmp_path / "out")], sentence)
    refused(capsys, [*asked[:2], str(folders / "pairs"), *asked[3:], "--out", str(tmp_path / "out")], "missing.tsv")


@pytest.mark.parametrize("command", [["report", "--no-open"], ["show", "run", "--out", "page.html"]])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere", "There is no folder"),
        ("words", "holds word vectors, which have no curves: view them with `unmask show embeddings"),
        ("pairs", "holds a model but not the run that trained it: view it with `unmask show embeddings"),
        ("above", "is not a run, but holds runs: name one of them, such as "),
        ("empty", "holds no run: there is no metrics.jsonl in it"),
    ],
)
def test_what_is_no_run_is_named(command, name, sentence, folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused(capsys, [*command, str(folders / name)], sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["words", "pairs"])
def test_what_is_no_run_is_shown_by_the_command_that_is_named(name, folders, tmp_path):
    main(["show", "embeddings", "--model", str(folders / name), "--out", str(tmp_path / "page.html")])
    assert "king" in (tmp_path / "page.html").read_text() or name == "pairs"


@pytest.mark.parametrize(
    ("verb", "name", "sentence"),
    [
        ("predict", "gpt", "unmask generate"),
        ("translate", "gpt", "of type gpt2, but an encoder–decoder is required."),
        ("predict", "t5", "unmask translate"),
        ("generate", "t5", "unmask translate"),
        ("generate", "task", "`unmask predict` returns labels"),
        ("generate", "electra", "unmask pretrain gpt-tiny"),
    ],
)
def test_a_model_of_another_kind_is_refused(verb, name, sentence, folders, capsys):
    refused(capsys, [verb, "--model", str(folders / name), "a text"], sentence)


def test_a_model_that_writes_nothing_is_scored_on_labelled_rows(folders, capsys):
    sentence = "an encoder–decoder is required; to score it on labelled rows, use --data (data= in Python)."
    refused(capsys, ["evaluate", "--model", str(folders / "gpt"), "--pairs", "pairs.tsv"], sentence)
    with pytest.raises(UnmaskError, match=re.escape(sentence)):
        unmask.evaluate(folders / "gpt", pairs=[("a", "b")])


@pytest.mark.parametrize("how", ["--search", "--curve=20", "--advise"])
def test_what_is_tried_with_encoders_alone_says_so(how, folders, tmp_path, capsys):
    asked = ["finetune", "--model", str(folders / "t5"), "--train", "rows.tsv", how, "--out", str(tmp_path / "out")]
    refused(capsys, asked, f"fine-tune {folders / 't5'} without them")
    assert not (tmp_path / "out").exists()


def test_a_model_that_answers_nothing_is_not_served(folders, capsys):
    pytest.importorskip("starlette")
    refused(capsys, ["serve", "--port", "0", "--model", str(folders / "pairs")], "has no head that answers")


@pytest.mark.parametrize(
    ("verb", "recipe"), [("pretrain", "finetune"), ("pretrain", "transformer-small"), ("train", "bert-tiny")]
)
def test_a_run_of_another_verb_does_not_go_on(verb, recipe, tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"recipe": recipe, "config": {}}))
    sentence = f"holds a run of '{recipe}'; continue it with the verb that began it"
    refused(capsys, [verb, "--out", str(tmp_path), "--resume"], sentence)


@pytest.mark.parametrize(
    "command",
    ["pretrain bert-tiny --corpus missing --steps 1", "train transformer-tiny --pairs a b --steps 1"],
    ids=lambda command: command.split()[0],
)
@pytest.mark.parametrize("resume", [[], ["--resume"]], ids=["anew", "resumed"])
def test_a_run_does_not_write_over_a_model(command, resume, folders, capsys):
    before = (folders / "t5" / "model.safetensors").read_bytes()
    asked = [*command.split(), "--out", str(folders / "t5"), *(resume if command.startswith("pretrain") else [])]
    refused(capsys, asked, f"{folders / 't5'} holds something already; choose another folder, or delete it")
    assert (folders / "t5" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(("verb", "begun", "other"), [("pretrain", "bert-tiny", "albert-tiny"), ("train", *SYSTEMS)])
def test_a_run_does_not_go_on_under_another_name(verb, begun, other, tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"recipe": begun, "config": {}}))
    sentence = f"This run is one of '{begun}', not '{other}': leave the"
    refused(capsys, [verb, other, "--out", str(tmp_path), "--resume"], sentence)


def test_fine_tuning_does_not_go_on_from_another_run(tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"recipe": "bert-tiny", "config": {}}))
    (tmp_path / ".lock").touch()
    asked = ["finetune", "--model", "m", "--train", "t.tsv", "--out", str(tmp_path)]
    refused(capsys, asked, "holds something already; choose another folder")


@pytest.mark.parametrize(
    ("kind", "run"),
    [("gpt2", "--from {folder}"), ("t5", "--from {folder}"), ("unmask-elmo", "--from {folder}"), (None, "bert-mini")],
)
def test_a_corpus_says_what_may_follow(kind, run, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("A text.\n\nA few words.\n" * 20)
    folder = tmp_path / "model"
    Tokenizer.train(["a text of a few words"] * 3, 40).save(folder)
    if kind:  # else a tokenizer alone
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    main(["corpus", "build", "--data", str(text), "--tokenizer", str(folder), "--out", str(tmp_path / "corpus")])
    assert f"Next: unmask pretrain {run.format(folder=folder)} --corpus" in capsys.readouterr().out


def refused(capsys, arguments, sentence):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    error = capsys.readouterr().err
    assert exit.value.code == 2
    assert sentence in error
    assert error.startswith("unmask: ")
    assert error.count("\n") == 1
