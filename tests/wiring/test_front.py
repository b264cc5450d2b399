"""unmask.pretrain, finetune, train and evaluate: what they are given, what they return, what they refuse."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from command_line import run_cli
from finetune_toy import reviews

import unmask
from unmask.errors import UnmaskError
from unmask.runs import recipes, supervised_recipes
from unmask.runs.front.given import file_of, paths_in, records
from unmask.runs.front.settings import changes_of, of_tasks
from unmask.runs.translation import systems
from unmask.serve.continuation import Continuer
from unmask.train.checkpoint import Lock
from unmask.train.events import Began, Evaluated, Noted, Result, Step

TEXTS = [f"{text} . a film that people talk about in some kind of plot ." for text, _ in reviews(40, 3)]
SHORT = {"epochs": 1, "least_steps": 1, "batch_size": 32, "seeds": 1, "quiet": True, "precision": "fp32"}


@pytest.fixture(scope="module")
def encoder(place):
    return place[0]


@pytest.fixture(scope="module")
def tuned(encoder, tmp_path_factory):
    """A run on rows as dictionaries, and what its listener received."""
    rows = [{"sentence": text, "label": label} for text, label in reviews(64, 1)]
    events = []
    out = tmp_path_factory.mktemp("front") / "run"
    run = unmask.finetune(encoder, rows, dev=reviews(24, 2), out=out, learning_rate=3e-3, listeners=[events.append],
                          **SHORT)  # fmt: skip
    return run, events


def test_it_is_the_run_of_the_command_line(tuned, place, tmp_path, capsys):
    """The same rows from files, by the command line, give the same numbers."""
    trunk, files = place
    given = ["finetune", "--model", trunk, "--train", files / "train.tsv", "--dev", files / "dev.tsv", "--lr", "3e-3"]
    given += ["--epochs", 1, "--least-steps", 1, "--batch-size", 32, "--seeds", 1, "--precision", "fp32"]
    status, _, error = run_cli(capsys, *map(str, given), "--out", str(tmp_path / "run"))
    assert status == 0, error
    there = json.loads((tmp_path / "run" / "results.json").read_text())["seeds"][0]["dev"]
    assert {name.removeprefix("dev/"): value for name, value in tuned[0].scores.items()} == there


def test_a_run_returns_its_scores_and_shows_them(tuned):
    run, _ = tuned
    assert run.folder.is_dir()
    assert run.report.is_file()
    assert run.metric in repr(run)
    assert f"dev/{run.metric} {run.scores[f'dev/{run.metric}']:.4g}" in repr(run)
    assert "baseline" in str(run)
    assert {row["split"] for row in run.history} == {"train", "heldout"}
    html = run._repr_html_()
    assert html.count("data:image/svg+xml") > 0
    assert f"dev/{run.metric}" in html
    assert Path(run) == run.folder


def test_listeners_receive_every_event_once(tuned):
    _, events = tuned
    trainings = len([event for event in events if isinstance(event, Began)])  # two if the first one collapsed
    assert [event.step for event in events if isinstance(event, Step)] == [1, 2] * trainings
    assert [event.step for event in events if isinstance(event, Evaluated)] == [0, 2] * trainings
    assert len([event for event in events if isinstance(event, Result)]) == trainings > 0
    notes = [event.text for event in events if isinstance(event, Noted)]
    assert len([note for note in notes if note.startswith("Baseline")]) == 1


def test_a_model_is_scored_on_rows_as_on_a_file(tuned, place):
    run, _ = tuned
    rows = unmask.evaluate(run.folder, reviews(24, 3))
    file = unmask.evaluate(run.folder, place[1] / "test.tsv")
    assert dict(rows) == dict(file)
    assert rows.baseline["accuracy"] == 0.5
    assert repr(rows).startswith("<Scored: accuracy ")
    assert "accuracy" in rows._repr_html_()
    assert dict(unmask.evaluate(run.folder, place[1] / "test.tsv", text="sentence", quiet=True)) == dict(file)
    with pytest.raises(UnmaskError, match="Give one of data"):
        unmask.evaluate(run.folder)


def test_rows_from_memory_are_named_by_their_numbers(tuned):
    run, _ = tuned
    assert unmask.evaluate(run.folder, reviews(4, 3)).facts["description"].startswith("The table given: 4 rows")
    for rows, said in (
        ([*reviews(2, 3), ("a film", "2")], r"^Row 3 has the label '2'"),
        ([{"body": "a film", "label": "1"}], "^The table given has no column of texts"),
    ):
        with pytest.raises(UnmaskError, match=said):
            unmask.evaluate(run.folder, rows)


def test_values_in_the_wrong_place_are_named(encoder, tuned, tmp_path):
    predictor = unmask.Predictor(tuned[0].folder)
    for call, said in (
        (lambda: unmask.pretrain(TEXTS, "bert-tiny"), "first value of unmask.pretrain is the name of a recipe"),
        (lambda: unmask.train(TEXTS, "transformer-tiny"), "first value of unmask.train is the name of a system"),
        (lambda: unmask.finetune(reviews(8, 1), encoder, out=tmp_path / "run"), "not by a value of the type list"),
        (lambda: unmask.evaluate(predictor, reviews(8, 1)), "not by a value of the type Predictor"),
    ):
        with pytest.raises(UnmaskError, match=said):
            call()


def test_a_predictor_says_what_it_is(tuned):
    said = repr(unmask.Predictor(tuned[0].folder))
    assert "classification (0, 1); Bert, " in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epoch": 3}, "keyword of finetune: 'epoch'; did you mean 'epochs'"),
        ({"strateg": "lora"}, "field 'strateg'; did you mean 'strategy'"),
        ({"epochs": "many"}, "epochs must be a number or none, not 'many'"),
        ({"track": "wandbb"}, "must be one of tensorboard, wandb, mlflow, trackio, not 'wandbb'; did you mean 'wandb'"),
        ({"train": [("a", "b", "c")]}, "Row 1 must be a dictionary"),
        ({"train": []}, "no rows in train"),
        ({"train": ["a", "b"]}, "have only texts; add a column of labels; in Python, give (text, label) tuples or "),
        (
            {"train": [(f"{i}", f"a film {i}") for i in range(20)]},
            "a label of its own, such as 'a film 0': are text and",
        ),
        ({"train": 3}, "a path or rows, not a value of the type int"),
        ({"train": [{"text": object(), "label": 1}]}, "Row 1 of train has a value of the type object"),
    ],
)
def test_a_mistake_is_one_sentence(encoder, tmp_path, given, said):
    with pytest.raises(UnmaskError) as raised:
        unmask.finetune(encoder, **{"train": reviews(8, 1), "out": tmp_path / "run", **given})
    assert said in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_a_run_is_only_overwritten_if_that_is_said(tuned, encoder, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tuned[0].folder, tmp_path):
        hint = ", or set overwrite=True" if (folder / "run.json").is_file() else ""
        with pytest.raises(UnmaskError, match=rf"holds something already; .* or delete it{hint}\.$"):
            unmask.finetune(encoder, reviews(8, 1), out=folder)
    with pytest.raises(UnmaskError, match="holds no run, so it is not deleted"):
        unmask.finetune(encoder, reviews(8, 1), out=tmp_path, overwrite=True)
    with pytest.raises(UnmaskError, match="has ended"):
        unmask.finetune(encoder, out=tuned[0].folder, resume=True)


@pytest.fixture
def old(tuned, tmp_path):
    """A copy of a finished run, and its files by name."""
    folder = shutil.copytree(tuned[0].folder, tmp_path / "old")
    yield folder
    assert not list(tmp_path.glob(".old*"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "old"}, "old is in .*old, which overwrite=True would delete"),
        ({"test": "old/metrics.jsonl"}, "metrics.jsonl is in .*old, which overwrite=True would delete"),
        ({"model": "missing"}, "missing"),
        ({"train": [{"text": "a", "label": "x"}]}, "label"),
        ({"strateg": "lora"}, "field 'strateg'"),
        ({"teacher": "missing"}, "missing"),
        ({"resume": True}, "has ended"),
    ],
)
def test_a_mistake_leaves_the_run_that_would_be_overwritten(encoder, old, tmp_path, given, said):
    before = contents(old)
    given = {name: tmp_path / value if isinstance(value, str) and name != "strateg" else value
             for name, value in given.items()}  # fmt: skip
    how = {"model": encoder, "train": reviews(8, 1), "dev": reviews(8, 2), "out": old, "overwrite": True, **SHORT}
    with pytest.raises(UnmaskError, match=said):
        unmask.finetune(**how | given)
    assert contents(old) == before


def test_a_run_that_is_being_written_is_not_overwritten(encoder, old):
    with Lock(old), pytest.raises(UnmaskError, match=r"Another run .* is writing to"):
        unmask.finetune(encoder, reviews(8, 1), out=old, overwrite=True)
    assert (old / "config.json").is_file()


def test_a_run_is_overwritten_and_its_lock_file_is_not_left(old, encoder):
    (old / "mine.txt").write_text("of the old run")
    how = {**SHORT, "out": old, "overwrite": True}
    unmask.finetune(encoder, reviews(24, 1), dev=reviews(8, 2), **how)
    assert not (old / "mine.txt").exists()
    assert not (old / ".lock").exists()


def test_no_real_field_is_taken_for_a_misspelt_keyword():
    configs = {
        unmask.pretrain: map(recipes.find, recipes.names()),
        unmask.finetune: of_tasks(),
        unmask.train: [*map(systems.find, systems.names()), *map(supervised_recipes.find, supervised_recipes.names())],
    }
    for function, several in configs.items():
        for config in several:
            fields = {name.rpartition(".")[2]: 1 for name in config.places()} | dict.fromkeys(config.places(), 2)
            assert changes_of(function, {}, fields, [config]) == fields
    with pytest.raises(UnmaskError, match="keyword of train: 'overwrit'; did you mean 'overwrite'"):
        unmask.train("seq2seq", overwrit=True)


def test_a_length_replaces_that_of_the_recipe():
    config = systems.overridden(systems.find("seq2seq"), {"max_length": 64, "max_steps": 5})
    assert (config.texts.longest, config.training.steps, config.training.minutes) == (64, 5, None)
    assert config.search == systems.find("seq2seq").search
    recipe = supervised_recipes.find("vit-tiny")
    fit = supervised_recipes.overridden(recipe, {"num_train_epochs": 2}).fit
    assert (fit.epochs, fit.minutes) == (2, None)
    fit = supervised_recipes.overridden(recipe.replace(fit={"epochs": 3}), {"minutes": 2}).fit
    assert (fit.epochs, fit.minutes) == (None, 2)


def test_texts_become_a_corpus_and_a_run_goes_on(tmp_path):
    how = {"sentences": "none", "quiet": True, "precision": "fp32", "corpus": {"vocabulary_size": 120, "heldout": 0.2}}
    out = tmp_path / "run"
    run = unmask.pretrain("bert-tiny", TEXTS, out=out, steps=1, batch_size=4, layers=1, dim=16, heads=2, hidden=16,
                          **how)  # fmt: skip
    assert "mlm/correct" in run.scores
    guesses = unmask.Predictor(out)("the film was [MASK]")[0]["masks"][0]
    assert len(guesses) == 5
    longer = unmask.pretrain(out=out, resume=True, overwrite=True, steps=2, quiet=True)
    assert [row["step"] for row in longer.history if row["split"] == "heldout"] == [0, 1, 2]
    assert len(list((tmp_path / "run-data").glob("corpus-*"))) == 1
    with pytest.raises(UnmaskError, match="option of a corpus: 'vocab_size'; did you mean 'vocabulary_size'"):
        unmask.pretrain("bert-tiny", TEXTS, out=tmp_path / "other", corpus={"vocab_size": 9}, quiet=True)


def test_pairs_train_a_translator(tmp_path):
    pairs = [(f"{a} {b}", f"{b} {a}") for a in "abcdef" for b in "ghijkl"]
    how = {"vocabulary.kind": "word", "dim": 8, "hidden": 8, "layers": 1}
    run = unmask.train("seq2seq", pairs=pairs[:30], dev=pairs[30:], out=tmp_path / "run", steps=1, quiet=True, **how)
    translate = unmask.Translator(run.folder)
    assert "Seq2Seq, " in repr(translate)
    assert len(translate("a g")) == len(translate(["a g"])) == 1
    assert unmask.evaluate(run.folder, pairs=pairs[30:], metric="exact")["exact"] >= 0.0
    with pytest.raises(UnmaskError, match="data and test are for labelled rows"):
        unmask.train("seq2seq", [("a", "b")], out=tmp_path / "other")


def test_rows_train_a_classifier_from_scratch(tmp_path):
    run = unmask.train("bilstm-classifier", reviews(20, 1), dev=reviews(8, 2), out=tmp_path / "run", epochs=1,
                       dim=8, hidden=8, layers=1, quiet=True)  # fmt: skip
    assert set(unmask.Predictor(run.folder)("good film")[0]["scores"]) == {"0", "1"}


def test_the_call_has_the_name_of_a_room():
    assert "pairs" in inspect.signature(unmask.train).parameters
    from unmask.train.trainer import Trainer

    assert unmask.train.trainer.Trainer is Trainer


def test_import_is_quick_and_the_names_are_listed():
    code = "import sys, unmask; print(*dir(unmask)); print(*{'torch', 'numpy', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    names, loaded = done.stdout.splitlines()
    assert {"pretrain", "finetune", "train", "evaluate", "Generator", "Embedder"} <= set(names.split())
    assert not loaded
    assert dir(unmask) == sorted(unmask.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'pretrian'"):
        _ = unmask.pretrian


# ------------------------------------------------------------------------------------------------ rows


def test_tables_of_any_kind_are_the_same_file(tmp_path):
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": None}]
    columns = {"text": ["a", "b"], "label": [1, None]}
    given = [rows, iter(rows), [("a", 1), ("b", None)], columns, pa.table(columns)]
    files = {file_of(one, tmp_path, "train") for one in given}
    assert len(files) == 1
    assert [json.loads(line) for line in files.pop().read_text().splitlines()] == rows


def test_words_and_tags_and_texts_have_their_columns():
    assert list(records([(["a", "b"], ["O", "X"])])) == [{"words": ["a", "b"], "tags": ["O", "X"]}]
    assert list(records(["a"])) == [{"text": "a"}]


def test_strings_are_paths_only_if_they_exist(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("x")
    assert paths_in([str(file)]) == [file]
    assert paths_in(["a text", "another"]) is None
    for text in ("a" * 300, "", ".", "two\nlines", "a\0b"):
        assert paths_in([text, "another"]) is None
        assert paths_in([text]) is None
    with pytest.raises(UnmaskError, match=r"There is no file .*b\.txt"):
        paths_in([str(file), str(tmp_path / "b.txt")])


def test_a_run_is_a_path_to_its_folder(tuned):
    assert paths_in([tuned[0]]) == paths_in(tuned[0]) == [tuned[0].folder]


def test_equal_rows_leave_their_file_alone(tmp_path):
    file = file_of(["a"], tmp_path, "texts")
    os.utime(file, ns=(1, 1))
    assert file_of(["a"], tmp_path, "texts") == file
    assert file.stat().st_mtime_ns == 1
    with ThreadPoolExecutor(8) as several:  # two writers never see each other's half of a file
        files = set(several.map(lambda _: file_of(["b"] * 500, tmp_path, "texts"), range(32)))
    assert len(files) == 1
    assert sorted(tmp_path.iterdir()) == sorted([file, *files])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("good \udc80", 1)], r"Row 1 of train has the unpaired surrogate '\\udc80'"),
        ({"text": ["a", "b"], "label": [1]}, "different numbers of rows: text 2, label 1"),
    ],
)
def test_rows_that_no_file_holds_are_one_sentence(tmp_path, rows, said):
    with pytest.raises(UnmaskError, match=said):
        file_of(rows, tmp_path, "train")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ other models


def test_a_generator_writes_what_a_continuer_writes(tmp_path):
    run = unmask.pretrain("gpt-tiny", TEXTS, out=tmp_path / "run", steps=1, batch_size=4, layers=1, dim=16, heads=2,
                          quiet=True, corpus={"vocabulary_size": 300})  # fmt: skip
    write = unmask.Generator(run.folder, max_length=5, search=True)
    assert "search, at most 5 tokens" in repr(write)
    assert write("the film") == Continuer(run.folder, write.how)(["the film"])[0][0].text
    assert len(write(["a", "b"])) == 2
    with pytest.raises(UnmaskError, match="did you mean 'temperature'"):
        unmask.Generator(run.folder, temperatur=1)
    assert list(write.stream("the film")) == list(write.stream(["the film"]))
    assert unmask.evaluate(run.folder, text=TEXTS[:3])["perplexity"] > 1
    with pytest.raises(UnmaskError, match="There is no field 'strid'; did you mean 'stride'"):
        unmask.evaluate(run.folder, text=TEXTS[:3], strid=4)
    with pytest.raises(UnmaskError, match="are computed in fp32: leave precision='bf16' out"):
        unmask.evaluate(run.folder, text=TEXTS[:3], precision="bf16")


def test_an_embedder_gives_the_vectors_of_the_predictor(encoder, tmp_path):
    rows = [{"text1": one, "text2": other} for (one, _), (other, _) in zip(reviews(24, 1), reviews(24, 2), strict=True)]
    run = unmask.finetune(encoder, rows, task="embedding", out=tmp_path / "run", **SHORT)
    embed = unmask.Embedder(run.folder)
    vectors = embed(["a film", "a plot"])
    assert vectors.shape == (2, embed.width)
    expected = unmask.Predictor(run.folder, precision="fp32")(["a film"])[0]["embedding"]
    assert embed("a film") == pytest.approx(expected, abs=1e-6)
    assert embed.similarity(["a film"], ["a film", "a plot"])[0, 0] == pytest.approx(1, abs=1e-5)
    assert embed.similarity("a film", "a film").shape == (1, 1)
    assert embed.similarity(vectors.astype(np.float64), "a plot") == pytest.approx(
        embed.similarity(["a film", "a plot"], ["a plot"]), abs=1e-6
    )
    assert embed.similarity(vectors[0], np.array(["a film"])) == pytest.approx(np.ones((1, 1)), abs=1e-5)
    with pytest.raises(UnmaskError, match=rf"{embed.width} numbers each, but the array is \(2, 3\)"):
        embed.similarity(np.ones((2, 3)), "a film")
    embed.predictor.model.load_state_dict({k: v * 0 for k, v in embed.predictor.model.state_dict().items()})
    assert embed.similarity("a film", ["a film", "a plot"]).tolist() == [[0, 0]]
    assert embed.note == ""
    assert "the means of the vectors of all tokens" in unmask.Embedder(encoder).note
