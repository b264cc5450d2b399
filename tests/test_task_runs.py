"""Every family of tasks from files in their own formats to a folder that evaluates, answers and opens elsewhere."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.runs.evaluation import evaluate, render_evaluation
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.finetuning.report import render_result
from unmask.runs.in_context import InContext, evaluate_in_context
from unmask.runs.report import write_report
from unmask.serve import Predictor
from unmask.tasks import TASKS, QuestionAnswering
from unmask.tasks.reading import read, read_sets
from unmask.tasks.rows import Rows

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "poor", "dull"]
FILLER = ["the", "film", "was", "and", "it", "had", "a", "plot", "of", "some", "kind", "in", "which", "people", "talk"]
PLACES = ["paris", "rome", "seoul", "oslo", "lima", "cairo"]
SIZE = {"layers": 2, "dim": 32, "heads": 2, "hidden": 64, "dropout": 0.0, "attention_dropout": 0.0, "std": 0.1}


@pytest.fixture(scope="module")
def trunk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    letters = " ".join([*"abcdefghijklmnopqrstuvwxyz", *"0123456789", "?"])
    tokenizer = Tokenizer.train([" ".join([*GOOD, *BAD, *FILLER, *PLACES, "where", "is", letters])] * 5, 300)
    model = Bert(vocabulary=tokenizer.size, length=48, **SIZE).build()
    huggingface.save(folder, model, tokenizer)
    return folder


# ------------------------------------------------------------------------------------------------ files


def phrase(rng, *words):
    """Some filler with the words in it."""
    found = list(rng.choice(FILLER, rng.integers(3, 7)))
    for word in words:
        found.insert(int(rng.integers(len(found) + 1)), str(word))
    return " ".join(found)


def table(path, head, rows):
    path.write_text("\n".join("\t".join(map(str, row)) for row in (head, *rows)) + "\n", encoding="utf-8")
    return path


def mrpc(folder, sizes=(64, 24)):
    """As GLUE distributes it: two texts alike, or not."""
    for name, n, seed in zip(("train.tsv", "dev.tsv"), sizes, (0, 1), strict=True):
        rng = np.random.default_rng(seed)
        rows = []
        for i in range(n):
            word = rng.choice(GOOD if i % 2 else BAD)
            rows.append((i % 2, 2 * i, 2 * i + 1, phrase(rng, word, f"n{seed}x{i}"), phrase(rng, word)))
        table(folder / name, ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), rows)
    return folder


def several(path, n, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        labels = {"praise": GOOD, "blame": BAD}
        chosen = [name for j, name in enumerate(labels) if i >> j & 1]
        rows.append((phrase(rng, *(rng.choice(labels[name]) for name in chosen), f"n{seed}x{i}"), "|".join(chosen)))
    return table(path, ("text", "labels"), rows)


def scored(path, n, seed):
    """Alike in as many words as the score says."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        alike = i % 5
        words = list(rng.permutation([*GOOD, *BAD]))
        rows.append((" ".join(words[:4]), " ".join([*words[:alike], *words[4 : 8 - alike]]), alike))
    return table(path, ("sentence1", "sentence2", "score"), rows)


def rated(path, n, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        good = int(rng.integers(4))
        rows.append((" ".join([*rng.choice(GOOD, good), *rng.choice(BAD, 3 - good), f"n{seed}x{i}"]), good + 0.5))
    return table(path, ("sentence", "score"), rows)


def conll(path, n, seed, tags=("B-POS", "I-POS", "B-NEG"), other="O"):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        words = [*rng.choice(FILLER, 5), *rng.choice(GOOD, 2), rng.choice(BAD)]
        lines += [f"{word} {tag}" for word, tag in zip(words, [other] * 5 + list(tags), strict=True)] + [""]
    path.write_text("\n".join(lines))
    return path


def predicates(path, n, seed):
    """CoNLL-2005: word, predicate, a column of brackets for each predicate."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        lines += [f"{rng.choice(GOOD)} - (A0*", f"{rng.choice(GOOD)} - *)", "talk talk (V*)"]
        lines += [f"{rng.choice(FILLER[:8])} - *" for _ in range(2)] + [f"{rng.choice(PLACES)} - (A1*)", ""]
    path.write_text("\n".join(lines))
    return path


def squad(path, n, seed, impossible=0):
    """Which word of the context is a place; of every `impossible` questions one has no answer."""
    rng = np.random.default_rng(seed)
    articles = []
    for i in range(n):
        without = impossible and i % impossible == 0
        place = str(rng.choice(PLACES))
        context = phrase(rng) if without else phrase(rng, place)
        answers = [] if without else [{"text": place, "answer_start": context.index(place)}]
        qa = {"id": f"{seed}-{i}", "question": f"where is n{seed}x{i}?", "answers": answers}
        articles.append({"paragraphs": [{"context": context, "qas": [qa | ({"is_impossible": bool(without)})]}]})
    path.write_text(json.dumps({"version": "2.0" if impossible else "1.1", "data": articles}))
    return path


def choices(path, n, seed):
    """JSON lines of one's own: the good one of three is right."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        place = i % 3
        options = [phrase(rng, rng.choice(GOOD if j == place else BAD)) for j in range(3)]
        rows.append(json.dumps({"context": f"the film n{seed}x{i}", "choices": options, "label": place}))
    path.write_text("\n".join(rows) + "\n")
    return path


def triplets(path, n, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        own, other = (GOOD, BAD) if i % 2 else (BAD, GOOD)
        a, b, c = (" ".join(rng.choice(words, 2)) for words in (own, own, other))
        rows.append((f"{a} n{seed}x{i}", f"{b} {rng.choice(FILLER)}", f"{c} {rng.choice(FILLER)}"))
    return table(path, ("anchor", "positive", "negative"), rows)


def config(trunk, folder, **fields):
    changes = {"model": trunk, "lr": 3e-3, "batch_size": 16, "least_steps": 1, "seeds": 1, "evaluations": 0.2}
    changes |= {"precision": "fp32", "device": "cpu", **fields}
    return FineTuning().override({name.replace("__", "."): value for name, value in changes.items()})


class Spy:
    """A display that remembers."""

    def __init__(self):
        self.notes = []

    def start(self, step, total): ...
    def show(self, row): ...
    def close(self): ...

    def note(self, text):
        self.notes.append(text)


# ------------------------------------------------------------------------------------------------ end to end


class Case(NamedTuple):
    """A family: its files, settings beyond the usual, what is learned, a question and a key of its answer."""

    task: str
    make: object
    name: str
    fields: dict
    metric: str
    asked: object
    key: str
    opens: str
    least: float = 0.05  # what the run must be better than the baseline by


QUESTION = {"question": "where is it?", "context": "the plot was in rome and had people"}
CASES = {
    "multilabel": Case(
        *("multilabel", several, "{}.tsv", {"several": "|", "epochs": 20}, "micro_f1", "a great film", "labels"),
        opens="AutoModelForSequenceClassification",
    ),
    "regression": Case(
        *("regression", rated, "{}.tsv", {"epochs": 15}, "pearson", "a great film", "score"),
        opens="AutoModelForSequenceClassification",
    ),
    "tags of spans": Case(
        *("tagging", conll, "{}.conll", {"epochs": 8}, "f1", "the film was great", "words"),
        opens="AutoModelForTokenClassification",
    ),
    "plain tags": Case(
        "tagging",
        lambda path, n, seed: conll(path, n, seed, tags=("JJ", "JJ", "RB"), other="NN"),
        *("{}.txt", {"format": "conll", "epochs": 8}, "accuracy", "the film was great", "words"),
        opens="AutoModelForTokenClassification",
    ),
    "roles": Case(
        *("roles", predicates, "{}.txt", {"epochs": 8}, "f1"),
        {"words": ["good", "people", "talk", "in", "rome"], "predicate": 2},
        "words",
        opens="AutoModelForTokenClassification",
    ),
    "questions": Case(
        *("question-answering", squad, "{}.json", {"epochs": 25}, "f1", QUESTION, "answer"),
        opens="AutoModelForQuestionAnswering",
    ),
    "questions without answers": Case(
        "question-answering",
        lambda path, n, seed: squad(path, n, seed, impossible=3),
        *("{}.json", {"epochs": 25, "metric": "best_f1"}, "best_f1", QUESTION, "no_answer"),
        opens="AutoModelForQuestionAnswering",
    ),
    "choices": Case(
        *("multiple-choice", choices, "{}.jsonl", {"epochs": 10}, "accuracy"),
        {"context": "the film", "choices": ["it was bad", "it was great"]},
        "choice",
        opens="AutoModelForMultipleChoice",
    ),
    "scored pairs": Case(
        *("embedding", scored, "{}.tsv", {"epochs": 8}, "spearman", ("a good film", "a film"), "similarity"),
        opens="",
        least=-1.0,  # words in common, which the baseline counts, are all there is
    ),
    "triplets": Case(
        *("embedding", triplets, "{}.tsv", {"loss": "triplet", "epochs": 8}, "accuracy", "a good film", "embedding"),
        opens="",
    ),
}


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "-"))
def run(request, trunk, tmp_path_factory):
    case = CASES[request.param]
    folder = tmp_path_factory.mktemp("family")
    files = {part: folder / case.name.format(part) for part in ("train", "dev")}
    case.make(files["train"], 64, 0)
    case.make(files["dev"], 20, 1)
    display = Spy()
    settings = config(trunk, folder, task=case.task, allow_overlap="yes", **files, **case.fields)
    result = finetune(settings, folder / "run", display=display)
    return case, folder / "run", files["dev"], result, display


def test_every_family_is_learned_scored_and_answers(run):
    case, out, dev, result, display = run
    assert result.task == case.task
    assert result.metric == case.metric
    reached = result.seeds[0]["dev"][case.metric]
    floor = result.baseline["dev"].get(case.metric, result.baseline["dev"].get("f1"))
    assert reached > floor + case.least, (reached, floor)
    assert any("Baseline" in note for note in display.notes)

    scores = evaluate(out, dev)
    for name, value in result.seeds[0]["dev"].items():
        assert scores["metrics"][name] == pytest.approx(value, abs=1e-5), name
    for name, value in result.baseline["dev"].items():
        if case.task not in ("embedding", "regression"):  # the training rows give them words and a mean
            assert scores["baseline"][name] == pytest.approx(value), name
    shown = render_evaluation(scores)
    assert all(name in shown for name in scores["metrics"])
    assert scores["reference"] in shown

    (answer,) = Predictor(out)([case.asked])
    assert case.key in answer


@pytest.mark.parametrize(
    ("given", "wanted"), [({}, ("cls", True)), ({"pooling": "mean", "normalise": "no"}, ("mean", False))]
)
def test_vectors_are_pooled_and_scaled_as_those_of_the_start(trunk, tmp_path, given, wanted):
    opened, start, rows = huggingface.load(trunk), tmp_path / "start", tmp_path / "rows.tsv"
    huggingface.save(start, opened.model, opened.tokenizer, settings={"pooling": "cls", "normalise": True})
    scored(rows, 8, 0)
    files = {"train": rows, "dev": rows}
    finetune(
        config(start, tmp_path, task="embedding", allow_overlap="yes", epochs=1, **files, **given), tmp_path / "run"
    )
    settings = huggingface.load(tmp_path / "run").settings
    assert (settings["pooling"], settings["normalise"]) == wanted
    assert (tmp_path / "run" / "2_Normalize").exists() == wanted[1]


def test_every_family_has_a_report_that_names_it(run):
    case, out, _, result, _ = run
    page = (out / "report.html").read_text()
    assert f"Fine-tuned for {case.task}" in page
    assert "1 seed<" in page
    assert page.count("<svg") >= 2  # the metric and the loss
    text = render_result(result.to_dict())
    assert case.metric in text.splitlines()[0]
    rows = [line for line in text.splitlines() if not line.startswith("The ")]  # sentences
    assert len({len(row) for row in rows}) == 1
    assert "Started again" not in page
    stored = json.loads((out / "results.json").read_text())
    stored["seeds"][0]["restarted"] = True
    (out / "results.json").write_text(json.dumps(stored))
    assert "Started again, as the first try collapsed: seed 0." in write_report(out).read_text()


def test_every_family_opens_elsewhere(run):
    case, out, *_ = run
    if case.task == "embedding":
        encoder = pytest.importorskip("sentence_transformers").SentenceTransformer(str(out), device="cpu")
        ours = [answer["embedding"] for answer in Predictor(out)(["a good film", "the plot was awful"])]
        np.testing.assert_allclose(encoder.encode(["a good film", "the plot was awful"]), ours, atol=1e-5)
        return
    transformers = pytest.importorskip("transformers")
    theirs, info = getattr(transformers, case.opens).from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"]
    assert not [name for name in info["unexpected_keys"] if "pooler" not in name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    given = tokenizer("where is it?", "the plot was in rome", return_tensors="pt")
    if case.task == "multiple-choice":
        given = {name: value[None] for name, value in given.items()}
    with torch.no_grad():
        assert torch.isfinite(theirs.eval()(**given)[0]).all()


def test_a_benchmark_is_read_from_its_folder(trunk, tmp_path):
    folder = mrpc(tmp_path)
    display = Spy()
    settings = config(trunk, folder, train=folder, benchmark="MRPC", epochs=12)
    result = finetune(settings, tmp_path / "run", display=display)
    assert result.labels == ("0", "1")
    assert result.summary["dev"]["accuracy"]["mean"] > 0.9
    assert list(result.summary) == ["dev"]
    scores = evaluate(tmp_path / "run", folder)
    assert scores["metrics"]["accuracy"] == pytest.approx(result.seeds[0]["dev"]["accuracy"])
    assert evaluate(tmp_path / "run", folder / "dev.tsv")["metrics"] == scores["metrics"]
    with pytest.raises(UnmaskError, match="for --task classification, not regression"):
        finetune(config(trunk, folder, train=folder, benchmark="MRPC", task="regression"), tmp_path / "other")


def test_a_benchmark_decides_by_its_own_metric(trunk, tmp_path):
    for part, n in (("train", 24), ("dev", 12)):
        lines = [f"x\t{i % 2}\t\t{part} film {i} {'good' if i % 2 else 'bad'}" for i in range(n)]
        (tmp_path / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    settings = config(trunk, tmp_path, train=tmp_path, benchmark="cola", epochs=1)
    assert finetune(settings, tmp_path / "run").metric == "mcc"
    assert finetune(settings.override({"metric": "f1"}), tmp_path / "f1").metric == "f1"


def test_a_benchmark_without_dev_rows_holds_some_out_and_is_scored_on_its_test_rows(tmp_path):
    for name, n in (("train_5500.label", 40), ("TREC_10.label", 8)):
        lines = [f"{'LOC:city' if i % 2 else 'NUM:date'} What is {name} {i} ?" for i in range(n)]
        (tmp_path / name).write_text("\n".join(lines))
    notes = []
    sets = read_sets("classification", Rows(train=tmp_path, benchmark="TREC-6"), notes.append, np.random.default_rng(0))
    assert {name: len(rows) for name, rows in sets.items()} == {"train": 36, "dev": 4, "test": 8}
    (tmp_path / "TREC_10.label").unlink()
    sets = read_sets("classification", Rows(train=tmp_path, benchmark="TREC-6"), notes.append, np.random.default_rng(0))
    assert "test" not in sets
    assert any(note.startswith("No test rows: ") for note in notes)


def test_the_threshold_for_no_answer_is_that_of_the_folder(trunk, tmp_path):
    """Each seed has its own, and its dev scores are those that the folder gives again."""
    for part, n, seed in (("train", 48, 0), ("dev", 20, 1)):
        squad(tmp_path / f"{part}.json", n, seed, impossible=2)
    files = {part: tmp_path / f"{part}.json" for part in ("train", "dev")}
    settings = config(trunk, tmp_path, task="question-answering", epochs=3, **files).replace(seeds=2)
    result = finetune(settings, tmp_path / "run")
    kept = next(seed for seed in result.seeds if seed["seed"] == result.kept)
    assert kept["dev"]["f1"] == pytest.approx(kept["dev"]["best_f1"])
    assert evaluate(tmp_path / "run", files["dev"])["metrics"] == pytest.approx(kept["dev"], abs=1e-5)


# ------------------------------------------------------------------------------------------------ options


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """One row in five is good."""
    folder = tmp_path_factory.mktemp("reviews")
    for part, n, seed in (("train", 60, 0), ("dev", 20, 1)):
        rng = np.random.default_rng(seed)
        rows = [
            (phrase(rng, rng.choice(BAD if i % 5 else GOOD), f"n{seed}x{i}"), "neg" if i % 5 else "pos")
            for i in range(n)
        ]
        table(folder / f"{part}.tsv", ("sentence", "label"), rows)
    return {"train": folder / "train.tsv", "dev": folder / "dev.tsv"}


@pytest.mark.parametrize(
    "fields",
    [
        {"transfer.strategy": "lora"},
        {"transfer.strategy": "frozen"},
        {"transfer.strategy": "top", "layers": 1},
        {"transfer.strategy": "gradual"},
        {"balance": "weights"},
        {"balance": "focal"},
        {"sampling": "balanced"},
        {"long": "head+tail", "length": 6},
        {"long": "window-mean", "length": 6},
        {"long": "window-max", "length": 6},
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_strategies_balances_and_long_texts_give_plain_folders(trunk, reviews, tmp_path, fields):
    result = finetune(config(trunk, tmp_path, epochs=2, **reviews, **fields), tmp_path / "run")
    scores = evaluate(tmp_path / "run", reviews["dev"])
    for name in ("accuracy", "loss"):
        assert scores["metrics"][name] == pytest.approx(result.seeds[0]["dev"][name], abs=1e-5)
    plain = {name for name in huggingface.load(tmp_path / "run").model.state_dict() if "lora" not in name}
    assert plain == set(huggingface.load(tmp_path / "run").model.state_dict())
    transformers = pytest.importorskip("transformers")
    _, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "run", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_texts_that_may_not_be_cut_are_refused(trunk, reviews, tmp_path):
    with pytest.raises(UnmaskError, match=r"train\.tsv:2"):
        finetune(config(trunk, tmp_path, long="error", length=6, **reviews), tmp_path / "run")


def test_tags_with_a_crf_and_weights_of_labels(trunk, tmp_path):
    files = {part: conll(tmp_path / f"{part}.conll", n, n) for part, n in (("train", 32), ("dev", 12))}
    settings = config(trunk, tmp_path, task="tagging", crf="yes", epochs=8, **files)
    result = finetune(settings, tmp_path / "crf")
    assert "crf" in huggingface.load(tmp_path / "crf").model.heads
    scores = evaluate(tmp_path / "crf", files["dev"])["metrics"]
    assert scores == pytest.approx(result.seeds[0]["dev"], abs=1e-5)
    with pytest.raises(UnmaskError, match="use one of the two"):
        finetune(settings.override({"balance": "weights"}), tmp_path / "both")
    finetune(config(trunk, tmp_path, task="tagging", balance="weights", epochs=1, **files), tmp_path / "weights")
    display = Spy()
    finetune(
        config(trunk, tmp_path, task="tagging", scheme="any", epochs=1, **files), tmp_path / "any", display=display
    )
    assert not any("legal" in note for note in display.notes)
    assert huggingface.load(tmp_path / "any").settings in (None, {})
    assert huggingface.load(tmp_path / "crf").settings == {"scheme": "IOB2", "crf": True}


def test_labels_weighed_in_multilabel(trunk, tmp_path):
    files = {part: several(tmp_path / f"{part}.tsv", n, n) for part, n in (("train", 32), ("dev", 12))}
    settings = config(trunk, tmp_path, task="multilabel", several="|", balance="weights", epochs=1, **files)
    display = Spy()
    finetune(settings, tmp_path / "run", display=display)
    assert any("Labels: praise 50.0%, blame 50.0%" in note for note in display.notes)  # of the texts, not of 32 labels
    with pytest.raises(UnmaskError, match="focal loss is for one label"):
        finetune(settings.override({"balance": "focal"}), tmp_path / "focal")


def test_the_columns_of_the_run_are_those_of_evaluate(trunk, tmp_path):
    rng = np.random.default_rng(0)
    for part, n in (("train", 32), ("dev", 12)):
        rows = [
            (phrase(rng, (GOOD if i % 2 else BAD)[i % 4], f"{part}{i}"), "xy"[i % 2], "no", "z"[: i % 3])
            for i in range(n)
        ]
        table(tmp_path / part, ("words", "opinion", "text", "label"), rows)
    files = {part: tmp_path / part for part in ("train", "dev")}
    settings = config(trunk, tmp_path, format="tsv", text="words", label="opinion", epochs=1, **files)
    result = finetune(settings, tmp_path / "run")
    scores = evaluate(tmp_path / "run", tmp_path / "dev")
    assert scores["metrics"]["loss"] == pytest.approx(result.seeds[0]["dev"]["loss"], abs=1e-5)
    table(tmp_path / "other.tsv", ("text", "label"), [("a film", "x"), ("a plot", "y")])
    assert evaluate(tmp_path / "run", tmp_path / "other.tsv", {"text": "text", "label": "label"})["rows"] == 2


# ------------------------------------------------------------------------------------------------ bad input


def _texts(folder, part):
    rows = [(f"{part} film {i}", "pos" if i % 2 else "neg") for i in range(12)]
    return table(folder / f"{part}.tsv", ("sentence", "label"), rows)


def _misplaced(path, n, seed):
    squad(path, n, seed)
    path.write_text(path.read_text().replace('"text": "', '"text": "not in '))
    return path


def _same(path, n, seed):
    return table(path, ("sentence", "label"), [(f"a film {seed} {i}", "pos") for i in range(n)])


def _empty(path, n, seed):
    path.write_text("")
    return path


def _flat(path, n, seed):
    answer = {"text": ["A"], "answer_start": [0]}
    rows = [{"id": str(i), "context": f"A context {i}", "question": "Which?", "answers": answer} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _indented(path, n, seed):
    path.write_text(json.dumps(json.loads(squad(path, n, seed).read_text()), indent=2))


def _unanswered(path, n, seed):
    asked = [{"id": str(i), "question": "Which?", "answers": [], "is_impossible": True} for i in range(n)]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "A context.", "qas": asked}]}]}))


def _prose(path, n, seed):
    path.write_text("A text, of some words.\n\n" + "".join(f"Line {i}{' and more' * i}.\n\n" for i in range(n)))


def _words(path, n, seed):
    path.write_text("one\nword\n\na\nline\n" * n)


def _headed(path, n, seed):
    return table(path, ("sentence", "label"), [])


def test_questions_with_their_contexts_are_pairs_that_belong_together(tmp_path):
    _flat(tmp_path / "rows.jsonl", 3, 0)
    found = read(tmp_path / "rows.jsonl", "embedding")
    assert [(row.text, row.pair) for row in found] == [("Which?", f"A context {i}") for i in range(3)]


WRONG = {
    "texts for tagging": ("tagging", None, "tsv", {}, r"train\.tsv.*it is a table"),
    "texts for questions": ("question-answering", None, "tsv", {}, r"train\.tsv"),
    "texts for choices": ("multiple-choice", None, "tsv", {}, r"train\.tsv"),
    "texts for embedding": ("embedding", None, "tsv", {}, r"train\.tsv"),
    "texts for roles": ("roles", None, "tsv", {}, r"train\.tsv"),
    "texts for regression": ("regression", None, "tsv", {}, r"train\.tsv:2.*not a number"),
    "one label for several": ("multilabel", None, "tsv", {}, "--several"),
    "questions for classification": ("classification", squad, "json", {}, r"train\.json .* --task question-answering"),
    "questions for tagging": ("tagging", squad, "json", {}, r"train\.json .* --task question-answering"),
    "questions, an object a line": (
        "classification",
        _flat,
        "jsonl",
        {},
        r"--text .*: id, context, question, answer",
    ),
    "questions on many lines": ("classification", _indented, "json", {}, "as SQuAD has.* --task question-answering"),
    "questions without answers": ("regression", _unanswered, "json", {}, "as SQuAD has.* --task question-answering"),
    "prose": ("classification", _prose, "txt", {}, "no recognisable columns: .* columns such as text and label"),
    "words without tags": ("classification", _words, "txt", {}, "no recognisable columns: .* columns such as text"),
    "prose for tagging": ("tagging", _prose, "txt", {}, r"train\.txt.*columns, but the lines before it have"),
    "tags for classification": ("classification", conll, "conll", {}, "--task tagging"),
    "tags for roles": ("roles", conll, "conll", {}, r"train\.conll"),
    "choices for questions": ("question-answering", choices, "jsonl", {}, r"train\.jsonl"),
    "triplets for classification": ("classification", triplets, "tsv", {}, r"train\.tsv"),
    "a missing column": ("classification", None, "tsv", {"label": "labl"}, "did you mean 'label'"),
    "answers not in context": ("question-answering", _misplaced, "json", {}, "No answer is in its context"),
    "a single class": ("classification", _same, "tsv", {}, "single label, 'pos'"),
    "an empty file": ("classification", _empty, "tsv", {}, r"train\.tsv"),
    "no rows": ("classification", _headed, "tsv", {}, r"train\.tsv"),
    "no questions": ("question-answering", _empty, "json", {}, r"train\.json"),
    "no tags": ("tagging", _empty, "conll", {}, r"train\.conll"),
    "none at most": ("classification", None, "tsv", {"most": 0}, "1 or more"),
    "a CRF for texts": ("classification", None, "tsv", {"crf": "yes"}, "--crf is for --task tagging or roles"),
    "windows of questions for texts": ("regression", rated, "tsv", {"stride": 3}, "--stride is for --task question"),
    "weights of scores": ("regression", rated, "tsv", {"balance": "weights"}, "--balance is for"),
    "columns of questions": ("question-answering", squad, "json", {"text": "question"}, "--text is for"),
    "a format of questions": ("question-answering", squad, "json", {"format": "json"}, "--format is for --task class"),
    "damaged questions": ("question-answering", squad, "json", {"skip": "yes"}, "question-answering has no use for it"),
    "damaged roles": ("roles", conll, "conll", {"skip": "yes"}, "--skip is for .* roles has no use for it"),
    "balanced scores": ("regression", rated, "tsv", {"sampling": "balanced"}, "--sampling balanced is for"),
    "a loss that there is not": ("embedding", triplets, "tsv", {"loss": "tripled"}, "did you mean 'triplet'"),
    "a loss of other rows": ("embedding", triplets, "tsv", {"loss": "cosine"}, "cannot use"),
    "gamma": ("classification", None, "tsv", {"balance": "focal", "gamma": 0}, "above 0"),
    "a file that is not there": ("tagging", None, "conll", {"train": "nowhere.conll"}, "no file nowhere.conll"),
    "a folder": ("multiple-choice", None, "tsv", {"train": "."}, "is a folder"),
    "a benchmark that there is not": ("classification", None, "tsv", {"benchmark": "MRCP"}, "did you mean 'MRPC'"),
}


@pytest.mark.parametrize(("task", "make", "ending", "fields", "message"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_one_sentence(trunk, tmp_path, task, make, ending, fields, message):
    files = {part: tmp_path / f"{part}.{ending}" for part in ("train", "dev")}
    for number, (part, path) in enumerate(files.items()):
        if make is None:
            _texts(tmp_path, part)
        else:
            make(path, 12, number)
    with pytest.raises(UnmaskError, match=message) as error:
        finetune(config(trunk, tmp_path, task=task, **{**files, **fields}), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_an_unknown_tag_in_dev_is_named(trunk, tmp_path):
    conll(tmp_path / "train.conll", 12, 0)
    conll(tmp_path / "dev.conll", 4, 1, tags=("B-POS", "I-POS", "B-LOC"))
    files = {part: tmp_path / f"{part}.conll" for part in ("train", "dev")}
    with pytest.raises(UnmaskError, match=r"dev\.conll:\d+ has the tag 'B-LOC'"):
        finetune(config(trunk, tmp_path, task="tagging", **files), tmp_path / "run")


def test_questions_that_only_dev_leaves_open_are_said(trunk, tmp_path):
    files = {"train": squad(tmp_path / "train.json", 20, 0), "dev": squad(tmp_path / "dev.json", 9, 1, impossible=3)}
    display = Spy()
    settings = config(trunk, tmp_path, task="question-answering", epochs=1, **files)
    finetune(settings, tmp_path / "run", display=display)
    assert any(note.startswith("3 of the 9 questions") for note in display.notes)


def test_a_folder_of_data_needs_the_name_of_its_benchmark(trunk, reviews, tmp_path):
    finetune(config(trunk, tmp_path, epochs=1, **reviews), tmp_path / "run")
    with pytest.raises(UnmaskError, match="--benchmark"):
        evaluate(tmp_path / "run", tmp_path)


def test_what_means_nothing_to_rows_that_are_scored_is_refused(trunk, reviews, tmp_path):
    loaded = huggingface.load(trunk, heads=as_heads({"classification": 2}))
    huggingface.save(tmp_path / "run", loaded.model, loaded.tokenizer, labels=("neg", "pos"))
    for fields in ({"train": "a.tsv"}, {"dev": "a.tsv"}, {"test": "a.tsv"}, {"most": 3}, {"allow_overlap": True}):
        name = next(iter(fields)).replace("_", "-")
        with pytest.raises(UnmaskError, match=f"--rows.{name} has no effect here: every row of --data is scored"):
            evaluate(tmp_path / "run", reviews["dev"], Rows().replace(**fields))
        with pytest.raises(UnmaskError, match=f"--rows.{name} has no effect here"):
            evaluate_in_context(trunk, reviews["dev"], InContext(rows=Rows().replace(**fields)))


def test_a_run_of_questions_that_was_told_to_skip_is_evaluated(trunk, tmp_path):
    """Which nothing came of, and which is refused now."""
    loaded = huggingface.load(trunk, heads=as_heads({"span": 2}))
    huggingface.save(tmp_path / "run", loaded.model, loaded.tokenizer, settings=QuestionAnswering().settings())
    run = {"config": {"task": "question-answering", "rows": {"skip": True, "format": "json", "length": 40}}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    dev = squad(tmp_path / "dev", 9, 0)
    assert evaluate(tmp_path / "run", dev)["rows"] == 9
    with pytest.raises(UnmaskError, match="--skip is for"):
        evaluate(tmp_path / "run", dev, {"skip": True})


@pytest.mark.parametrize("family", TASKS)
def test_a_folder_is_no_file_of_rows(family, tmp_path):
    place = tmp_path / "rows"
    place.mkdir()
    wanted = (
        r"has no (pictures|recordings|records|annotated beats|series|file \*.conll)|is a folder"
        if TASKS[family].folders
        else "is a folder"
    )
    with pytest.raises(UnmaskError, match=wanted):
        read(place, family)


def test_from_the_command_line(trunk, tmp_path, capsys):
    files = {part: triplets(tmp_path / f"{part}.tsv", n, n) for part, n in (("train", 32), ("dev", 12))}
    given = {"model": trunk, "task": "embedding", **files, "epochs": 1, "least-steps": 1, "seeds": 1, "device": "cpu"}
    out = str(tmp_path / "run")
    main(["finetune", "--out", out, *(str(x) for name, value in given.items() for x in (f"--{name}", value))])
    assert "Loss: " in capsys.readouterr().out
    main(["evaluate", "--model", out, "--data", str(files["dev"])])
    shown = capsys.readouterr().out
    assert "recall@1" in shown
    assert "Baseline from these rows alone: words that two texts share" in shown
    main(["predict", "--model", out, "a good film\ta great film"])
    assert capsys.readouterr().out


QUESTION = {
    "id": "1",
    "context": "Das Café schließt.",
    "question": "Was?",
    "answers": [{"text": "Café", "answer_start": 4}],
}
KINDS = {
    "classification": ("rows.tsv", "text\tlabel\nDas Café schließt.\ta\nx\tb\n"),
    "multilabel": ("rows.csv", "text,label\nDas Café schließt.,a|b\nx,b\n"),
    "regression": ("rows", "text\tscore\nDas Café schließt.\t1\nx\t2\n"),
    "tagging": ("rows.conll", "Café B\nschließt O\n\nx O\n"),
    "roles": ("rows.conll", "Café - (A0*)\nschließt V (V*)\n\n"),
    "question-answering": ("rows.jsonl", json.dumps(QUESTION, ensure_ascii=False)),
    "multiple-choice": ("rows.csv", "question,A,B,label\nCafé,ja,schließt,A\n"),
    "embedding": ("rows.jsonl", json.dumps({"anchor": "Café", "positive": "schließt"}, ensure_ascii=False)),
}


@pytest.mark.parametrize("family", KINDS)
def test_rows_of_another_encoding_are_refused_and_read_where_it_is_named(family, tmp_path):
    name, content = KINDS[family]
    path = tmp_path / name
    path.write_bytes(content.encode("cp1252"))
    rows = TASKS[family].rows_class().replace(**({"several": "|"} if family == "multilabel" else {}))
    with pytest.raises(UnmaskError, match=r"rows.*:\d is not UTF-8 text \(the byte 0xE9\); .*--encoding"):
        read(path, family, rows)
    found = read(path, family, rows.replace(encoding="cp1252"))
    assert "Café" in found[0].text + (found[0].pair or "")
    path.write_text(content, encoding="utf-8")
    assert [row.text for row in read(path, family, rows)] == [row.text for row in found]


def test_what_stands_between_labels_is_told(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\na ball,red|round\na rose,red\na wheel,round\n")
    with pytest.raises(UnmaskError, match=r"such as 'red\|round' seem to have several labels: set --several '\|'\."):
        read(path, "multilabel")
    assert read(path, "multilabel", TASKS["multilabel"].rows_class().replace(several="|"))[0].labels == ("red", "round")
    path.write_text("text,label\na ball,red\na rose,blue\n")
    with pytest.raises(UnmaskError, match="set --several to the separator of labels"):
        read(path, "multilabel")
