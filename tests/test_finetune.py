"""Fine-tuning from rows on disk to a folder that `transformers` opens with equal logits."""

from __future__ import annotations

import gc
import json
import signal
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.runs.evaluation import evaluate, render_evaluation
from unmask.runs.finetuning import FineTuning, Fit, finetune, fit
from unmask.runs.finetuning.encoder import prepare, usual_rate
from unmask.runs.finetuning.prepared import Notes
from unmask.runs.finetuning.report import render_result
from unmask.serve import predictor_of
from unmask.tasks import Classification, Encoded, MultiLabel, Regression, Tagging
from unmask.tasks.reading import with_labels
from unmask.train.optim import Optimizer
from unmask.train.trainer import Trainer
from unmask.types import Example

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "poor", "dull"]
FILLER = ["the", "film", "was", "and", "it", "had", "a", "plot", "of", "some", "kind", "in", "which", "people", "talk"]
SIZE = {"layers": 2, "dim": 32, "heads": 2, "hidden": 64, "dropout": 0.0, "attention_dropout": 0.0, "std": 0.1}


def sentence(rng, word):
    words = list(rng.choice(FILLER, rng.integers(3, 9)))
    words.insert(int(rng.integers(len(words))), str(word))
    return " ".join(words)


def reviews(n, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        word = rng.choice(GOOD if i % 2 else BAD)
        rows.append((f"{sentence(rng, word)} n{seed}x{i}", "pos" if i % 2 else "neg"))
    return rows


def write_tsv(path, rows, head=("sentence", "label")):
    path.write_text("\n".join("\t".join(row) for row in [head, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trunk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    texts = [" ".join([*GOOD, *BAD, *FILLER])] * 5
    tokenizer = Tokenizer.train(texts, 200)
    model = Bert(vocabulary=tokenizer.size, length=48, **SIZE).build()
    huggingface.save(folder, model, tokenizer)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name, n, seed in (("train", 96, 1), ("dev", 32, 2), ("test", 32, 3)):
        write_tsv(folder / f"{name}.tsv", reviews(n, seed))
    return folder


def config(trunk, files, **fields):
    changes = {"model": trunk, "train": files / "train.tsv", "dev": files / "dev.tsv"}
    changes |= {"lr": 3e-3, "epochs": 12, "batch_size": 16, "least_steps": 1, "seeds": 1}
    changes |= {"precision": "fp32", "device": "cpu"}
    return FineTuning().override({**changes, **fields})


class Spy:
    """A display that remembers."""

    def __init__(self):
        self.notes = []

    def start(self, step, total): ...
    def show(self, row): ...
    def close(self): ...

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(scope="module")
def run(trunk, files, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "sentiment"
    display = Spy()
    result = finetune(config(trunk, files, test=files / "test.tsv", seeds=2), out, display=display)
    return out, result, display


def test_a_trivial_task_is_learned(run):
    _out, result, _ = run
    assert result.summary["test"]["accuracy"]["mean"] > 0.9
    assert result.baseline["test"]["accuracy"] == 0.5
    assert [seed["seed"] for seed in result.seeds] == [0, 1]
    accuracies = [seed["test"]["accuracy"] for seed in result.seeds]
    assert result.summary["test"]["accuracy"]["std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert result.summary["test"]["accuracy"]["worst"] == min(accuracies)
    best = max(result.seeds, key=lambda seed: seed["dev"]["accuracy"])
    assert result.kept == best["seed"]


def test_a_tab_is_refused_where_single_texts_were_learned(run, trunk, tmp_path):
    lines = ["a fine film", "sentence\tlabel"]
    with pytest.raises(UnmaskError, match="Text 2 has a tab, as pairs have, and this model was fine-tuned on single"):
        list(predictor_of(run[0]).stream(lines))
    lines[1] = json.dumps({"text": "one\ttwo"})  # said by name, it is one text
    assert len(list(predictor_of(run[0]).stream(lines))) == 2
    rows = [(text, text, label) for text, label in reviews(20, 4)]
    write_tsv(tmp_path / "pairs.tsv", rows, head=("sentence1", "sentence2", "label"))
    pairs = {"train": tmp_path / "pairs.tsv", "dev": None, "epochs": 1}
    finetune(config(trunk, tmp_path, **pairs), tmp_path / "run")
    assert len(list(predictor_of(tmp_path / "run").stream(["a film\ta good film"]))) == 1


def test_what_is_said(run):
    _, result, display = run
    said = "\n".join(display.notes)
    for part in (
        "text = sentence",
        "random weights: classification",
        "left out: mlm, nsp",
        "neg 50.0%",
        "Baseline",
        "worst",
    ):
        assert part in said
    table = render_result(result.to_dict())
    assert table.splitlines()[0].split() == ["dev", "accuracy", "f1", "macro_f1", "mcc"]
    assert "std" in table


def test_the_folder_holds_everything_and_nothing_else(run):
    out, result, _ = run
    names = {path.name for path in out.iterdir()}
    assert names == {
        *("config.json", "model.safetensors", "manifest.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
        *("README.md", "run.json", "results.json", "metrics.jsonl", "dev_predictions.jsonl", "report.html", "seeds"),
    }
    assert {p.name for p in (out / "seeds").rglob("*") if p.is_file()} == {"metrics.jsonl"}
    stored = json.loads((out / "results.json").read_text())
    assert stored["kept"] == result.kept
    assert stored["seeds"] == result.seeds
    again = FineTuning.from_dict(json.loads((out / "run.json").read_text())["config"])
    assert again.rows.length == 48
    assert "Scores on the test rows" in (out / "report.html").read_text()


def test_the_folder_opens_in_transformers_with_equal_logits(run):
    transformers = pytest.importorskip("transformers")
    out, _, _ = run
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    assert type(theirs).__name__ == "BertForSequenceClassification"
    assert theirs.config.id2label == {0: "neg", 1: "pos"}
    assert theirs.config.problem_type == "single_label_classification"
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    texts = ["the film was great", "a plot of awful kind in which people talk"]
    with torch.no_grad():
        logits = theirs(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    loaded = huggingface.load(out)
    from unmask.data.labelled.dataset import Row

    task = Classification(loaded.labels)
    encoded = task.encode([Row(text) for text in texts], loaded.tokenizer, 48)
    ours = np.concatenate(task.answer_all(loaded.model, encoded, loaded.tokenizer.pad))
    np.testing.assert_allclose(ours, logits.softmax(-1).numpy(), atol=1e-6)
    assert logits.std() > 0.1


def test_evaluating_the_folder_gives_the_score_of_the_run(run, files):
    out, result, _ = run
    scores = evaluate(out, files / "dev.tsv")
    kept = next(seed for seed in result.seeds if seed["seed"] == result.kept)
    for name, value in kept["dev"].items():
        assert scores["metrics"][name] == pytest.approx(value, abs=1e-6)
    assert scores["classes"]["pos"]["support"] == 16
    assert "baseline" in render_evaluation(scores)


def test_labels_by_number_or_other_capitals_are_understood(run, files, tmp_path):
    out, _, _ = run
    wanted = evaluate(out, files / "dev.tsv")["metrics"]
    for names in ({"neg": "0", "pos": "1"}, {"neg": "NEG", "pos": "Pos"}):
        rows = [(text, names[label]) for text, label in reviews(32, 2)]
        assert evaluate(out, write_tsv(tmp_path / "dev.tsv", rows))["metrics"] == wanted
    strange = write_tsv(tmp_path / "strange.tsv", [("a film", "meh"), ("a plot", "pos")])
    with pytest.raises(UnmaskError, match="'meh'"):
        evaluate(out, strange)


def test_labels_that_are_numbers_are_not_taken_for_places(tmp_path):
    stars = dataset.read(write_tsv(tmp_path / "stars.tsv", [("a film", "1"), ("a plot", "2"), ("it", "0")]))
    with pytest.raises(UnmaskError, match=r"stars\.tsv:4 has the label '0', which the outputs of m do not have"):
        with_labels(stars, ("1", "2", "3"), "m")
    letters = dataset.read(write_tsv(tmp_path / "letters.tsv", [("a film", "A"), ("a plot", "b")]))
    assert [row.label for row in with_labels(letters, ("A", "B", "a"), "m")] == ["A", "B"]


def test_rows_that_are_cut_are_cut_alike_when_evaluated(trunk, files, tmp_path):
    display = Spy()
    result = finetune(config(trunk, files, length=8, epochs=2), tmp_path / "run", display=display)
    assert any("longer than 8 tokens" in note for note in display.notes)
    scores = evaluate(tmp_path / "run", files / "dev.tsv")
    assert scores["metrics"]["loss"] == pytest.approx(result.seeds[0]["dev"]["loss"], abs=1e-6)
    assert "cut" in scores["notes"][0]
    assert evaluate(tmp_path / "run", files / "dev.tsv", length=48)["notes"] == ["f1 is that of the label pos."]


def test_rows_are_read_as_far_as_the_run_read_them(trunk, tmp_path):
    tokenizer = huggingface.load(trunk).tokenizer
    model = Bert(vocabulary=tokenizer.size, length=640, **SIZE).build(as_heads({"classification": 2}))
    huggingface.save(tmp_path / "run", model, tokenizer, labels=("neg", "pos"))
    rows = [(f"{'film ' * 600}{word}", label) for word, label in (("great", "pos"), ("awful", "neg"))]
    dev = write_tsv(tmp_path / "dev.tsv", rows)
    assert "longer than 512 tokens" in evaluate(tmp_path / "run", dev)["notes"][0]  # nobody says how long they may be
    (tmp_path / "run" / "run.json").write_text('{"config": {"rows": {"length": 640}}}')
    task = Classification(("neg", "pos"))
    encoded = task.encode(dataset.read(dev), tokenizer, 640)
    whole = task.evaluate(model.eval(), encoded, tokenizer.pad)
    for given in ({}, {"length": 640}, {"length": 10_000}):
        found = evaluate(tmp_path / "run", dev, **given)
        assert found["notes"] == ["f1 is that of the label pos."]
        assert found["metrics"]["loss"] == pytest.approx(whole["loss"], abs=1e-6)


def test_a_run_repeats_itself_from_its_seed(trunk, files, tmp_path):
    first, second = (finetune(config(trunk, files, epochs=1), tmp_path / name) for name in "ab")
    assert first.seeds == second.seeds
    other = finetune(config(trunk, files, epochs=1, seed=5), tmp_path / "c")
    assert other.seeds[0]["dev"]["loss"] != first.seeds[0]["dev"]["loss"]


def test_from_scratch_takes_no_weight_of_the_model(trunk, files, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "unmask.runs.finetuning.encoder.ANEW", 0
    )  # so small a rate learns nothing, and the run is started again
    display = Spy()
    settings = config(trunk, files, epochs=0.2, lr=1e-12, from_scratch="yes", seed=3)
    finetune(settings, tmp_path / "run", display=display)
    assert any("from scratch" in note for note in display.notes)
    fresh = Bert.build(huggingface.load(trunk).model.config, heads=as_heads({"classification": 2}), seed=3)
    saved = huggingface.load(tmp_path / "run").model
    for (name, a), b in zip(fresh.named_parameters(), saved.parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name, atol=1e-6, rtol=0)


def test_a_seed_that_collapses_is_started_again_once(trunk, files, tmp_path):
    display = Spy()
    result = finetune(config(trunk, files, epochs=1, lr=1e-12), tmp_path / "run", display=display)
    assert result.seeds[0]["restarted"]
    said = [note for note in display.notes if "collapsed" in note]
    assert "started again" in said[0]
    assert "collapsed again" in said[1]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("task", "one", "several", "answers"),
    [
        (Classification(("a", "b")), ["a", "a"], ["a", "b"], [[0.9, 0.1], [0.8, 0.2]]),
        (MultiLabel(("a", "b")), ["a", "a"], ["a", "a|b"], [[0.9, 0.1], [0.8, 0.2]]),
        (Regression(), ["3.0", "3.0"], ["3.0", "1.0"], [[3.001], [3.0]]),
    ],
)
def test_one_answer_to_rows_that_ask_for_one_is_no_collapse(task, one, several, answers):
    found = [np.array([answer]) for answer in answers]
    rows, other = ([Row(label=x, labels=tuple(x.split("|"))) for x in labels] for labels in (several, one))
    assert task.is_collapsed(found, rows)
    assert not task.is_collapsed(found, other)


def test_columns_of_long_numbers_stand_apart():
    scores = {"pearson": 0.1908, "mse": 123159428.0442}
    results = {"metric": "loss", "baseline": {"dev": scores}, "summary": {"dev": {}}}
    table = render_result({**results, "seeds": [{"seed": 0, "dev": scores}]})
    head, *rows = table.splitlines()
    assert [row.split()[-2:] for row in rows] == [["0.1908", "123159428.0442"]] * 2
    assert {len(row) for row in rows} == {len(head)}


def test_small_sets_are_run_with_three_seeds(trunk, files, tmp_path):
    result = finetune(config(trunk, files, seeds="none", epochs=1), tmp_path / "run")
    assert [run["seed"] for run in result.seeds] == [0, 1, 2]


def test_without_a_dev_file_some_rows_are_held_out(trunk, files, tmp_path):
    display = Spy()
    settings = FineTuning().override({"model": trunk, "train": files / "train.tsv", "epochs": 1, "device": "cpu"})
    finetune(settings, tmp_path / "run", display=display)
    assert any("10 rows" in note and "the same share of each class" in note for note in display.notes)


@pytest.mark.parametrize(
    ("fields", "rate", "said"),
    [
        ({}, 1e-3, "The default learning rate is 0.001, as the model is only 32 wide; --lr sets another."),
        ({"lr": 5e-5}, 5e-5, ""),
        ({"strategy": "frozen"}, 1e-3, "With the strategy frozen, the default learning rate is 0.001."),
        ({"strategy": "frozen", "lr": 5e-5}, 5e-5, ""),
    ],
)
def test_the_default_rate_depends_on_the_width_and_a_given_one_is_kept(trunk, files, fields, rate, said):
    notes = Notes(None)
    found = prepare(config(trunk, files, **{"lr": "none", **fields}), notes).config
    assert found.fit.optimizer.lr == rate
    assert [note for note in notes.notes if "learning rate" in note] == ([said] if said else [])


def test_a_narrower_model_has_a_rate_as_many_times_that_of_bert_base():
    rates = {64: 6e-4, 128: 3e-4, 256: 1.5e-4, 384: 1e-4, 768: 5e-5, 1_024: 5e-5}
    assert {width: usual_rate(width) for width in rates} == rates


def test_dev_rows_of_a_single_class_are_said(trunk, files, tmp_path):
    rows = [(text, "good") for text, _ in reviews(30, 1)] + [("a bad film", "bad")]
    write_tsv(tmp_path / "train.tsv", rows)
    display = Spy()
    settings = FineTuning().override({"model": trunk, "train": tmp_path / "train.tsv", "epochs": 1, "seeds": 1})
    finetune(settings, tmp_path / "run", display=display)
    assert not any("all of them numbers" in note for note in display.notes)
    assert "Every dev row has the label good, so the dev scores say nothing about other labels." in display.notes


def test_scores_for_a_classifier_are_said_with_the_tasks_for_them():
    def said(labels, pair=None):
        notes = []
        rows = Dataset(Path("rows"), tuple(Row(f"text {label}", pair, label) for label in labels), {})
        Classification.learned({"train": rows, "dev": rows}, Classification.options_class(), notes.append)
        return " ".join(notes)

    scores = [f"{n / 10}" for n in range(30)]
    assert "The rows have 30 labels, all of them numbers: for scores use --task regression." in said(scores)
    assert "for scores use --task regression, for vectors of pairs --task embedding." in said(scores, "b")
    for labels in (scores[:20], [*scores, "good", "good"], [str(n) for n in range(30)]):
        assert "all of them numbers" not in said(labels)


def test_a_run_whose_minutes_are_too_short_says_so(trunk, files, tmp_path):
    display = Spy()
    finetune(config(trunk, files, minutes=0.001, epochs="none", least_steps="none"), tmp_path / "run", display=display)
    assert any("fitted into 0.001 minutes, too few" in note for note in display.notes)


def test_regression_opens_in_transformers(trunk, tmp_path):
    transformers = pytest.importorskip("transformers")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(120):
        good = int(rng.integers(0, 4))
        rows.append(
            (" ".join([*rng.choice(GOOD, good), *rng.choice(BAD, 3 - good), f"n{i}"]), "the film", str(good + 0.5))
        )
    head = ("sentence1", "sentence2", "score")
    write_tsv(tmp_path / "train.tsv", rows[:96], head)
    write_tsv(tmp_path / "dev.tsv", rows[96:], head)
    settings = config(trunk, tmp_path, task="regression", epochs=15, lr=3e-3)
    result = finetune(settings, tmp_path / "run")
    assert result.summary["dev"]["pearson"]["mean"] > 0.8
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert theirs.config.problem_type == "regression"
    assert theirs.num_labels == 1
    assert evaluate(tmp_path / "run", tmp_path / "dev.tsv")["metrics"]["pearson"] == pytest.approx(
        result.seeds[0]["dev"]["pearson"], abs=1e-6
    )


def conll(n, seed):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        words = [*list(rng.choice(FILLER, 6)), str(rng.choice(GOOD)), str(rng.choice(GOOD)), str(rng.choice(BAD))]
        tags = ["O"] * 6 + ["B-POS", "I-POS", "B-NEG"]
        lines += [f"{word} {tag}" for word, tag in zip(words, tags, strict=True)] + [""]
    return "\n".join(lines) + "\n"


def test_tagging_from_conll_columns(trunk, tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "train.tsv").write_text(conll(64, 0))
    (tmp_path / "dev.tsv").write_text(conll(16, 1))
    result = finetune(config(trunk, tmp_path, task="tagging", epochs=8), tmp_path / "run")
    assert result.metric == "f1"
    assert result.labels == ("O", "B-NEG", "B-POS", "I-POS")
    assert result.summary["dev"]["f1"]["mean"] > 0.9
    assert set(result.classes) == {"POS", "NEG"}
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "run")
    assert theirs.config.id2label[3] == "I-POS"
    assert evaluate(tmp_path / "run", tmp_path / "dev.tsv")["metrics"]["f1"] == result.seeds[0]["dev"]["f1"]


BAD_INPUT = {
    "a single label": ({"train": [("a film", "pos"), ("a plot", "pos")]}, {}, "single label"),
    "a strange label in dev": ({"dev": [("a film", "meh")]}, {}, "dev.tsv:2 has the label 'meh'"),
    "dev is train": ({"train": reviews(96, 1), "dev": reviews(96, 1)[:20]}, {}, "shares 20 of its 20 rows"),
    "not a number": ({}, {"task": "regression"}, "is not a number"),
    "a single score": (
        {"train": [("a", "1"), ("b", "1")], "dev": [("c", "1")]},
        {"task": "regression"},
        "single score",
    ),
    "words for texts": ({}, {"task": "tagging"}, "it is a table"),
    "too long": ({}, {"length": 100}, "between 3 and 48"),
    "an unknown column": ({}, {"text": "sentense"}, "did you mean 'sentence'"),
    "no such metric": ({}, {"metric": "f2", "epochs": 0.2}, "no metric 'f2'"),
    "no epochs": ({}, {"epochs": 0}, "above 0"),
    "no seeds": ({}, {"seeds": 0}, "seeds"),
    "no such model": ({}, {"model": "nowhere"}, "nowhere"),
    "no training rows": ({}, {"train": "none"}, "--train"),
}


@pytest.mark.parametrize(("rows", "fields", "message"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_sentence_and_leaves_no_model(trunk, files, tmp_path, rows, fields, message):
    for name in ("train", "dev"):
        write_tsv(tmp_path / f"{name}.tsv", rows.get(name, reviews(32, 7 + (name == "dev"))))
    with pytest.raises(UnmaskError, match=message) as error:
        finetune(config(trunk, tmp_path, **fields), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_an_overlap_can_be_allowed(trunk, files, tmp_path):
    display = Spy()
    settings = config(trunk, files, dev=files / "train.tsv", allow_overlap="yes", epochs=0.2)
    finetune(settings, tmp_path / "run", display=display)
    assert any("96 of the 96 dev rows" in note for note in display.notes)


def test_a_folder_in_use_is_left_alone(trunk, files, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UnmaskError, match="holds something"):
        finetune(config(trunk, files), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


# ------------------------------------------------------------------------------------------------ fit


def examples(n, seed=0):
    """Class 1 where token 7 is there, class 0 where 8 is."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        body = rng.integers(10, 30, rng.integers(2, 9))
        body[rng.integers(len(body))] = 8 - i % 2
        tokens = np.concatenate([[2], body, [3]])
        found.append(Example(tokens, None, {"classification": (np.zeros(1, np.int64), np.array([i % 2]))}))
    return found


def encoded(n, seed=0):
    from unmask.data.labelled.dataset import Row

    rows = [Row(label="ab"[i % 2]) for i in range(n)]
    return Encoded(examples(n, seed), np.arange(n), rows, 16)


def tiny(task):
    return Bert(vocabulary=32, length=16, **SIZE).build(heads=task.heads)


def settings(**fields):
    base = {"lr": 3e-3, "epochs": 10, "least_steps": 1, "batch_size": 8, "precision": "fp32", "device": "cpu"}
    return Fit().override({**base, **fields})


def test_too_few_rows_for_the_processes_are_refused(monkeypatch):
    monkeypatch.setattr("unmask.train.distributed.ranks", lambda: 4)
    task = Classification(["a", "b"])
    with pytest.raises(UnmaskError, match="A batch of 2 rows is too small for 4 processes: set --batch-size 4"):
        fit(tiny(task), task, encoded(16), encoded(4), settings(batch_size=2), pad=0)
    with pytest.raises(UnmaskError, match="3 training rows are too few for 4 processes"):
        fit(tiny(task), task, encoded(3), encoded(4), settings(), pad=0)


def test_fit_keeps_the_best_weights_and_leaves_nothing_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    task = Classification(["a", "b"])
    model = tiny(task)
    dev = encoded(24, 1)
    fitted = fit(model, task, encoded(64), dev, settings(), pad=0)
    assert fitted.value > 0.9
    assert fitted.value == max(found["accuracy"] for _, found in fitted.history)
    assert task.evaluate(model, dev, 0) == pytest.approx(fitted.best)
    assert not model.training
    others = [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")]  # PyTorch's own, once
    assert others == []


def test_the_moments_of_a_run_are_gone_before_the_next_one(monkeypatch):
    """At once, not when garbage is next collected: those of two seeds of a large model may not fit a GPU."""
    found = []

    class Watched(Trainer):
        def train(self, *listeners, **given):
            found.append(weakref.ref(self.engine.optimizer))
            return super().train(*listeners, **given)

    monkeypatch.setattr("unmask.runs.run.Trainer", Watched)
    task = Classification(["a", "b"])
    model = tiny(task)
    Optimizer().build(model)  # the first one of a process, around which PyTorch leaves a circle
    gc.collect()
    gc.disable()
    try:
        fit(model, task, encoded(16), encoded(8, 1), settings(epochs=1), pad=0)
        assert [reference() for reference in found] == [None]
    finally:
        gc.enable()


def test_a_run_in_a_circle_is_gone_before_the_next_seed(trunk, files, tmp_path, monkeypatch):
    found = []

    class Watched(Trainer):
        def train(self, *listeners, **given):
            found.append((weakref.ref(self), [before() is None for before, _ in found]))
            self.circle = self
            return super().train(*listeners, **given)

    monkeypatch.setattr("unmask.runs.run.Trainer", Watched)
    gc.disable()
    try:
        finetune(config(trunk, files, seeds=2, epochs=1), tmp_path / "run")
    finally:
        gc.enable()
    assert [gone for _, gone in found] == [[], [True]]


def test_an_untrained_head_is_never_kept():
    task = Classification(["a", "b"])
    fitted = fit(tiny(task), task, encoded(16), encoded(8, 1), settings(epochs=1, lr=1e-12), pad=0)
    assert [step for step, _ in fitted.history] == [0, 2]
    assert fitted.step == 2


def test_after_a_signal_nothing_is_evaluated():
    class Signal(Spy):
        def show(self, row):
            if row["step"] == 10:
                signal.raise_signal(signal.SIGTERM)

    task = Classification(["a", "b"])
    fitted = fit(
        tiny(task), task, encoded(64), encoded(8, 1), settings(epochs=40, evaluations=0.1), pad=0, display=Signal()
    )
    assert fitted.stopped == "SIGTERM"
    assert (fitted.best, [step for step, _ in fitted.history]) == ({}, [0])  # the one before the first step


def test_epochs_that_are_asked_for_are_obeyed():
    """A least number of steps is for those who say nothing."""
    said, asked = Fit(), Fit(epochs=1.0)
    assert (said.passes, said.least) == (3.0, 200)
    assert (asked.passes, asked.least) == (1.0, 1)
    assert (asked.replace(least_steps=50).least, said.replace(least_steps=7).least) == (50, 7)
    task = Classification(["a", "b"])
    config = Fit(epochs=1.0, batch_size=8, optimizer=Optimizer(lr=1e-3), device="cpu")
    assert fit(tiny(task), task, encoded(16), encoded(8, 1), config, pad=0).total == 2


def test_early_stopping(tmp_path):
    task = Classification(["a", "b"])
    fitted = fit(tiny(task), task, encoded(64), encoded(24, 1), settings(epochs=60, patience=2), pad=0)
    assert fitted.stopped == "no gain in 2 evaluations"
    assert fitted.history[-1][0] < fitted.total
    values = [found["accuracy"] for _, found in fitted.history]
    assert max(values[-2:]) <= max(values[:-2])


def test_a_loss_is_better_when_it_is_lower():
    task = Classification(["a", "b"])
    fitted = fit(tiny(task), task, encoded(64), encoded(24, 1), settings(metric="loss", epochs=4), pad=0)
    assert fitted.value == min(found["loss"] for _, found in fitted.history)


def test_evaluations_per_epoch():
    task = Classification(["a", "b"])
    often = fit(tiny(task), task, encoded(64), encoded(8, 1), settings(epochs=2, evaluations=2), pad=0)
    assert [step for step, _ in often.history] == [0, 4, 8, 12, 16]
    seldom = fit(tiny(task), task, encoded(64), encoded(8, 1), settings(epochs=4, evaluations=0.5), pad=0)
    assert [step for step, _ in seldom.history] == [0, 16, 32]


def test_packed_training_gives_the_gradients_of_padded(monkeypatch):
    """The same step with one sequence a row: equal sums, equal gradients."""
    from unmask.data import collate

    task = Tagging(["O", "X"])
    model = tiny(task)
    given = examples(6)
    for example in given:
        example.targets = {"tagging": (np.arange(1, 3), np.array([0, 1]))}
    gradients = []
    for batch in (collate.pack(given, 16, 0), collate.pad(given, 0)):
        model.zero_grad()
        loss = task.loss(model, batch)["tagging"]
        assert loss.count == 12
        loss.sum.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)
    assert gradients[0].abs().sum() > 0.1
