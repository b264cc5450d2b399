"""Sentence vectors: pooling, rows of one to three texts, losses, metrics, folders and answers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask import files, huggingface
from unmask.data import collate
from unmask.data.labelled.rows import Row, Triplet
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.runs.finetuning import Fit, fit
from unmask.serve import Predictor
from unmask.tasks import Embedding, loss_for, metric_for, task_of
from unmask.tasks.similarity import (
    CosineRegression,
    InBatchNegatives,
    SoftmaxPairs,
    TripletLoss,
    Vectors,
    kind_of,
)
from unmask.train.optim import Optimizer

TOKENIZER = Tokenizer.train(["the film was good and the plot bad with people who talk about a cat on a mat"] * 3, 120)
WORDS = ["film", "cat", "the film was good", "people who talk", "a cat on a mat", "", "bad plot", "talk talk talk"]


def build(heads=None, **fields):
    config = Bert(vocabulary=TOKENIZER.size, dim=32, layers=2, heads=2, hidden=64, length=40, std=0.2, **fields)
    return config.build(heads=heads or {}, seed=1).eval()


MODEL = build()


# ------------------------------------------------------------------------------------------------ vectors


def by_hand(texts, pooling, normalise):
    """The formula, one text at a time."""
    found = []
    for text in texts:
        tokens, _ = TOKENIZER.join(TOKENIZER.ids([text])[0])
        with torch.no_grad():
            hidden = MODEL(collate.pad([collate.Example(tokens)], 0, multiple=1))[0]
        vector = hidden.mean(0) if pooling == "mean" else hidden[0]
        found.append((vector / vector.norm() if normalise else vector).numpy())
    return np.stack(found)


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12),
    st.sampled_from(["mean", "cls"]),
    st.booleans(),
    st.sampled_from(["packed", "padded", "wide"]),
)
def test_packed_and_padded_texts_have_the_vectors_that_each_has_alone(texts, pooling, normalise, how):
    task = Embedding(pooling=pooling, normalise=normalise)
    examples = task.encode([Row(text) for text in texts], TOKENIZER, 40).examples
    batch = collate.pack(examples, 40, 0) if how == "packed" else collate.pad(examples, 0, 1 if how == "padded" else 32)
    with torch.no_grad():
        found = np.concatenate(task.answers(MODEL, batch))
    np.testing.assert_allclose(found, by_hand(texts, pooling, normalise), atol=2e-6, rtol=0)


def test_the_mean_is_not_taken_in_bfloat16():
    task = Embedding()
    batch = collate.pad(task.encode([Row("people who talk"), Row("a cat on a mat")], TOKENIZER, 40).examples, 0)
    hidden = torch.full((*batch.tokens.shape, 32), 1.0 + 2**-10)  # bfloat16 would round this to 1
    with torch.autocast("cpu", torch.bfloat16):
        found = task.vectors(hidden, batch)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, hidden[0, :1].expand(2, 32), atol=1e-6, rtol=0)


def test_rows_of_one_two_and_three_texts():
    task = Embedding(InBatchNegatives())
    rows = [Row("film"), Row("cat", "a cat on a mat"), Triplet("film", "good film", negative="bad film")]
    encoded = task.encode(rows, TOKENIZER, 40)
    assert encoded.owners.tolist() == [0, 1, 1, 2, 2, 2]
    assert encoded.together
    assert [bool(example.targets) for example in encoded.examples] == [True, True, False, True, False, False]
    answers = task.answer_all(MODEL, encoded, 0)
    assert [answer.shape for answer in answers] == [(1, 32), (2, 32), (3, 32)]
    texts = ["film", "cat", "a cat on a mat", "film", "good film", "bad film"]
    np.testing.assert_allclose(np.concatenate(answers), by_hand(texts, "mean", False), atol=2e-6)


def test_a_row_is_cut_where_one_of_its_texts_is():
    rows = [Row("film", "cat"), Row("cat", "people who talk about a cat on a mat " * 3), Row("talk " * 30, "cat " * 30)]
    encoded = Embedding().encode(rows, TOKENIZER, 12)
    assert encoded.cut == (1, 2)
    assert encoded.notice == "2 of 3 rows (66.7%) are longer than 12 tokens and were cut."
    assert max(len(example.tokens) for example in encoded.examples) == 12
    fits = len(TOKENIZER.join(TOKENIZER.ids(["people who talk"])[0])[0])
    assert Embedding().encode([Row("people who talk")], TOKENIZER, fits).cut == ()


# ------------------------------------------------------------------------------------------------ losses


def grouped(vectors, firsts, values):
    return Vectors(torch.tensor(vectors), torch.tensor(firsts), torch.tensor(values))


def test_cosine_regression_by_hand():
    batch = grouped([[1.0, 0], [1, 1], [0, 2], [0, -1]], [0, 2], [1.0, 0.5])
    found = CosineRegression()(MODEL, batch)
    errors = np.array([np.sqrt(0.5) - 1, -1 - 0.5])
    assert float(found.sum) == pytest.approx((errors**2).sum())
    assert float(found.metrics["error"]) == pytest.approx(np.abs(errors).sum())
    assert found.count == 2


def test_in_batch_negatives_by_hand_with_rows_of_two_and_three():
    vectors = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    found = InBatchNegatives(scale=3)(MODEL, grouped(vectors, [0, 2], [0, 0]))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    logits = 3 * units[[0, 2]] @ units[[1, 3, 4]].T
    expected = [-np.log(np.exp(row[i]) / np.exp(row).sum()) for i, row in enumerate(logits)]
    assert float(found.sum) == pytest.approx(np.sum(expected), rel=1e-5)
    assert int(found.metrics["correct"]) == sum(row.argmax() == i for i, row in enumerate(logits))


def test_triplet_loss_by_hand():
    vectors = [[0.0, 0], [3, 4], [0, 1], [0, 0], [1, 0], [0, 9]]
    found = TripletLoss(margin=2)(MODEL, grouped(vectors, [0, 3], [0, 0]))
    assert float(found.sum) == pytest.approx(5 - 1 + 2, rel=1e-5)  # the second row is far enough: 1 - 9 + 2 < 0
    assert int(found.metrics["correct"]) == 1


@pytest.mark.parametrize("loss", [CosineRegression(), SoftmaxPairs(("a", "b")), TripletLoss(), InBatchNegatives()])
def test_a_loss_refuses_rows_of_another_size(loss):
    with pytest.raises(UnmaskError, match=r"compares \d (or more )?texts of a row"):
        loss(MODEL, grouped(np.ones((3, 4), np.float32), [0, 1, 2], [0, 0, 0]))


def pairs(*labels):
    return [Row(f"text {i}", f"other {i}", label, place=f"a.tsv:{i + 1}") for i, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("rows", "name", "expected"),
    [
        (pairs("0.0", "2.5", "5.0"), None, CosineRegression(0, 5)),
        (pairs("0.2", "0.9"), None, CosineRegression(0, 1)),
        (pairs("1", "4"), None, CosineRegression(1, 4)),
        (pairs("0", "1"), None, CosineRegression(0, 1)),
        (pairs("neutral", "entailment"), None, SoftmaxPairs(("entailment", "neutral"))),
        (pairs("2", "0", "1"), "softmax", SoftmaxPairs(("0", "1", "2"))),
        (pairs("", ""), None, InBatchNegatives()),
        ([Triplet("a", "b", negative="c")], None, InBatchNegatives()),
        ([Triplet("a", "b", negative="c"), Row("a", "b")], None, InBatchNegatives()),
        ([Triplet("a", "b", negative="c")], "triplet", TripletLoss()),
    ],
)
def test_the_loss_for_rows(rows, name, expected):
    assert loss_for(rows, name) == expected


@pytest.mark.parametrize(
    ("rows", "name", "message"),
    [
        ([], None, "no rows"),
        ([Row("a", place="a.tsv:1")], None, "a.tsv:1 has one text"),
        (pairs("1", "2", ""), None, "a.tsv:3 is of another kind than most rows: it has a pair without a label"),
        ([*pairs("", ""), Row("a", place="a.tsv:9")], None, "a.tsv:9 is of another kind"),
        (pairs("3", "3"), None, "Scores from 3 to 3 are no range"),
        (pairs("", ""), "cosine", "a.tsv:1 and the rows after it are positives, which the loss 'cosine' cannot use"),
        (pairs("yes", "no"), "triplet", "cannot use"),
        (
            pairs("1", "2.5"),
            "softmax",
            "a.tsv:1 and the rows after it have scores, but the loss 'softmax' learns classes",
        ),
        (pairs("1", "2"), "cosin", "cosine"),
        (pairs("yes", "yes"), None, "two or more different labels"),
    ],
)
def test_rows_that_no_loss_can_use(rows, name, message):
    with pytest.raises(UnmaskError, match=message):
        loss_for(rows, name)


def test_labels_that_a_loss_does_not_know():
    with pytest.raises(UnmaskError, match=r"a.tsv:2 has the label 'maybe', which is not a score"):
        Embedding(CosineRegression()).encode(pairs("1", "maybe"), TOKENIZER, 40)
    with pytest.raises(UnmaskError, match=r"a.tsv:1 has the label 'maybe', which is not one of no, yes"):
        Embedding(SoftmaxPairs(("no", "yes"))).encode(pairs("maybe"), TOKENIZER, 40)
    with pytest.raises(UnmaskError, match="'nan', which is not a score"):
        Embedding(CosineRegression()).encode(pairs("nan"), TOKENIZER, 40)


def test_scores_beside_classes_are_judged_but_not_learned():
    """Reimers & Gurevych train on NLI and choose by STS-B."""
    task = Embedding(SoftmaxPairs(("no", "yes")), metric=metric_for(pairs("1", "4")))
    model = build(task.heads)
    scored = task.encode(pairs("1.5", "4", "2"), TOKENIZER, 40)
    assert set(task.evaluate(model, scored, 0)) == {"pearson", "spearman"}
    assert task.loss(model, collate.pad(scored.examples, 0))["embedding"].sum.item() == 0
    assert task.metric == "spearman"


def test_embedding_without_a_loss_does_not_learn():
    encoded = Embedding().encode(pairs(""), TOKENIZER, 40)
    with pytest.raises(UnmaskError, match="has no loss"):
        Embedding().loss(MODEL, collate.pad(encoded.examples, 0))
    with pytest.raises(UnmaskError, match=r"pooling 'maen'.*'mean'"):
        Embedding(pooling="maen")


def test_cls_before_normalising_gets_gradients_where_texts_are_equal():
    """Equal vectors are where distances and cosines have no slope; none of it may become nan."""
    for loss, rows in [
        (TripletLoss(), [Triplet("cat", "cat", negative="cat")]),
        (InBatchNegatives(), [Row("cat", "cat"), Row("cat", "cat")]),
        (CosineRegression(), [Row("cat", "cat", "1")]),
    ]:
        model, task = build(), Embedding(loss, pooling="cls", normalise=True)
        task.loss(model, collate.pad(task.encode(rows, TOKENIZER, 40).examples, 0))["embedding"].sum.backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


# ------------------------------------------------------------------------------------------------ metrics


def answers_at(*rows):
    return [np.array(vectors, np.float32) for vectors in rows]


def angle(degrees):
    return [3 * np.cos(np.radians(degrees)), 3 * np.sin(np.radians(degrees))]


def test_scores_are_compared_with_cosines():
    from scipy.stats import pearsonr, spearmanr

    angles, scores = [10, 80, 40, 120], [4.0, 1.5, 5.0, 0.5]
    answers = answers_at(*([angle(0), angle(a)] for a in angles))
    found = Embedding().metrics(answers, pairs(*map(str, scores)))
    cosines = np.cos(np.radians(angles))
    assert found == pytest.approx(
        {"pearson": pearsonr(cosines, scores).statistic, "spearman": spearmanr(cosines, scores).statistic}, rel=1e-5
    )


def test_positives_are_ranked_among_all_second_texts():
    rows = [Row("q1", "a"), Row("q2", "b"), Row("q3", "c")]
    answers = answers_at([angle(0), angle(5)], [angle(90), angle(60)], [angle(45), angle(120)])
    # q1 finds a first; q2 has b and c equally far: behind; q3 is nearest to b, then a, then c
    found = Embedding().metrics(answers, rows)
    assert found == pytest.approx({"recall@1": 1 / 3, "recall@10": 1, "mrr": (1 + 1 / 2 + 1 / 3) / 3})


def test_a_text_that_is_right_twice_is_wrong_for_nobody():
    same = [Row("q1", "a"), Row("q2", "a"), Row("q1", "b")]
    answers = answers_at([angle(0), angle(10)], [angle(20), angle(10)], [angle(0), angle(15)])
    assert Embedding().metrics(answers, same) == {"recall@1": pytest.approx(2 / 3), "recall@10": 1, "mrr": 5 / 6}
    # q1 has two right answers and finds each first; q2 stands between a and b: at 10 and 5 degrees


def test_triplets_have_an_accuracy_and_their_negatives_are_candidates():
    rows = [Triplet("q1", "a", negative="x"), Triplet("q2", "b", negative="y")]
    answers = answers_at([angle(0), angle(5), angle(40)], [angle(90), angle(50), angle(80)])
    found = Embedding().metrics(answers, rows)
    assert found == pytest.approx({"accuracy": 0.5, "recall@1": 0.5, "recall@10": 1, "mrr": (1 + 1 / 2) / 2})


def test_many_queries_are_ranked_as_few_are(monkeypatch):
    from unmask.tasks import vector_scores

    rng = np.random.default_rng(0)
    rows = [Row(f"q{i % 30}", f"a{i % 35}") for i in range(40)]
    vectors = {text: rng.normal(size=4) for row in rows for text in (row.text, row.pair)}
    answers = answers_at(*([vectors[row.text], vectors[row.pair]] for row in rows))
    whole = Embedding().metrics(answers, rows)
    monkeypatch.setattr(vector_scores, "QUERIES", 7)
    assert Embedding().metrics(answers, rows) == whole

    def unit(text):
        return vectors[text] / np.linalg.norm(vectors[text])

    right = {(row.text, row.pair) for row in rows}
    ranks = []
    for row in rows:
        wrong = {other for other in vectors if other.startswith("a") and (row.text, other) not in right}
        ranks.append(1 + sum(unit(row.text) @ unit(other) >= unit(row.text) @ unit(row.pair) for other in wrong))
    assert whole["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))


def test_a_vector_of_nothing_is_like_nothing():
    found = Embedding().metrics(answers_at([[0, 0], [1, 0]], [[1, 0], [1, 0]]), [Row("a", "b"), Row("c", "d")])
    assert found["recall@1"] == 0  # ties count against us
    assert np.isfinite(list(found.values())).all()


def test_rows_that_say_nothing_have_no_metrics():
    with pytest.raises(UnmaskError, match="Rows of one text"):
        Embedding().metrics(answers_at([[1, 0]]), [Row("a")])
    with pytest.raises(UnmaskError, match=r"a.tsv:1 has the class 'yes', and vectors have no head"):
        Embedding().metrics(answers_at([[1, 0], [1, 0]]), pairs("yes"))


def test_classes_are_judged_by_the_head():
    from sklearn.metrics import accuracy_score

    task = Embedding(SoftmaxPairs(("no", "yes", "well")), metric="accuracy")
    model = build(task.heads)
    rows = [Row(a, b, label) for a, b, label in zip(WORDS, WORDS[::-1], ["no", "yes", "well", "no"] * 2, strict=True)]
    found = task.evaluate(model, task.encode(rows, TOKENIZER, 40), 0)
    first, second = (torch.from_numpy(by_hand(texts, "mean", False)) for texts in (WORDS, WORDS[::-1]))
    head = model.heads["pairs"].output
    logits = torch.cat([first, second, (first - second).abs()], 1) @ head.weight.T + head.bias
    said = [task.labels[i] for i in logits.argmax(1).tolist()]
    assert found["accuracy"] == accuracy_score([row.label for row in rows], said)
    assert metric_for(rows, task.labels) == "accuracy"
    loss = task.loss(model, collate.pack(task.encode(rows, TOKENIZER, 40).examples, 40, 0))["embedding"]
    assert found["loss"] == pytest.approx(loss.sum.item() / len(rows), rel=1e-4)


def test_the_baseline_is_a_bag_of_words():
    train = [Row("red ball", "ball that is red"), Row("blue box", "a box"), Row("red box", "the box is red")]
    rows = [Row("red ball", "a ball", "4"), Row("blue box", "a box is blue", "5"), Row("red", "zebra", "0")]
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]").fit([t for row in train for t in (row.text, row.pair)])
    similar = [cosine_similarity(*words.transform([row.text, row.pair]).toarray()[:, None])[0, 0] for row in rows]
    assert Embedding().baseline(rows, train)["pearson"] == pytest.approx(np.corrcoef(similar, [4, 5, 0])[0, 1])
    ranked = [Row(row.text, row.pair) for row in rows]
    assert Embedding().baseline(ranked, train) == {"recall@1": pytest.approx(2 / 3), "recall@10": 1, "mrr": 7 / 9}
    classes = Embedding(SoftmaxPairs(("no", "yes"))).baseline(pairs("yes", "no", "yes"), pairs("no", "yes", "yes"))
    assert classes["accuracy"] == pytest.approx(2 / 3)


def test_kinds_and_what_decides():
    assert kind_of(pairs("0", "1")) == "scores"
    assert kind_of(pairs("0", "1"), ["0", "1", "2"]) == "classes"
    assert [metric_for(rows) for rows in (pairs("1"), pairs(""), pairs("yes"), [Triplet("a", "b", negative="c")])] == [
        "spearman",
        "mrr",
        "accuracy",
        "accuracy",
    ]


# ------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize("name", ["in-batch", "softmax"])
def test_a_fit_brings_texts_together(name):
    """Groups of words that appear together in no text are told apart by what training says of them."""
    rng = np.random.default_rng(0)
    groups = [["film", "plot", "good"], ["cat", "mat", "a"], ["people", "talk", "who"]]

    def text(group):
        return " ".join(rng.choice(groups[group], 3))

    def row(i):
        group, other = i % 3, (i + 1 + i % 2) % 3
        if name == "in-batch":
            return Row(text(group), text(group))
        same = i % 4 < 2
        return Row(text(group), text(group if same else other), "alike" if same else "apart")

    train = [row(i) for i in range(96)]
    dev = [Triplet(text(i % 3), text(i % 3), negative=text((i + 1) % 3)) for i in range(48)]
    task = Embedding(loss_for(train, name), metric=metric_for(dev))
    model = build(task.heads, dropout=0.0, attention_dropout=0.0)
    encoded = [task.encode(rows, TOKENIZER, 40) for rows in (train, dev)]
    before = task.evaluate(model, encoded[1], 0)["accuracy"]
    config = Fit(
        epochs=8,
        least_steps=1,
        evaluations=0.25,
        batch_size=12,
        optimizer=Optimizer(lr=1e-3),
        precision="fp32",
        device="cpu",
    )
    fitted = fit(model, task, *encoded, config, pad=0)
    assert fitted.metric == "accuracy"
    assert fitted.value > max(before, 0.9)


# ------------------------------------------------------------------------------------------------ folders, answers


@pytest.fixture
def folder(tmp_path):
    huggingface.save(tmp_path, MODEL, TOKENIZER, settings=Embedding(normalise=True, length=16).settings())
    return tmp_path


def test_the_manifest_seals_the_files_of_the_encoder(folder):
    facts = json.loads((folder / files.MANIFEST).read_text())["files"]
    assert {"modules.json", "1_Pooling/config.json", "2_Normalize/config.json", "sentence_bert_config.json"} <= set(
        facts
    )
    (folder / "1_Pooling" / "config.json").write_text("{}")
    with pytest.raises(UnmaskError, match=r"1_Pooling/config\.json does not match"):
        huggingface.load(folder)


def test_a_folder_that_becomes_something_else_is_no_encoder_any_more(folder):
    assert Embedding.is_of((), huggingface.load(folder).settings)
    task = Embedding()
    huggingface.save(folder, MODEL, TOKENIZER, settings=task.settings())
    loaded = huggingface.load(folder)
    assert task_of(loaded.model, (), loaded.settings).settings() == {**task.settings(), "length": 40}
    huggingface.save(folder, build(as_heads({"classification": 2})), TOKENIZER, labels=("a", "b"))
    assert huggingface.load(folder).settings == {}
    assert "label" in Predictor(folder)(["film"])[0]


def edit(folder, name, change):
    (folder / files.MANIFEST).unlink(missing_ok=True)
    (folder / name).parent.mkdir(exist_ok=True)
    values = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    (folder / name).write_text(change if isinstance(change, str) else json.dumps(change(values)))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("modules.json", "{", "modules.json is damaged"),
        ("modules.json", "[1]", "modules.json is damaged"),
        ("modules.json", "[]", "lists nothing"),
        ("modules.json", lambda m: m[:1], "must list Transformer, then Pooling"),
        ("modules.json", lambda m: [m[0], m[2], m[1]], "must list Transformer, then Pooling"),
        (
            "modules.json",
            lambda m: [*m, {**m[1], "type": "sentence_transformers.models.Dense"}],
            "Dense is not supported",
        ),
        ("modules.json", lambda m: [{**m[0], "type": "my.code.Transformer"}, *m[1:]], "my.code.Transformer is not"),
        ("modules.json", lambda m: [{**m[0], "path": "0_BERT"}, *m[1:]], "in the subfolder 0_BERT"),
        ("modules.json", lambda m: [m[0], {**m[1], "path": "../x"}], "outside the folder"),
        (
            "1_Pooling/config.json",
            lambda m: {"pooling_mode_max_tokens": True},
            "pooling_mode_max_tokens is not supported",
        ),
        ("1_Pooling/config.json", lambda m: {"pooling_mode": ["mean", "cls"]}, "pooling mean, cls is not"),
        ("1_Pooling/config.json", lambda m: {"pooling_mode": 3}, "pooling 3 is not"),
        ("1_Pooling/config.json", lambda m: {}, "pooling .* is not"),
        (
            "config_sentence_transformers.json",
            lambda m: {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
            "prompt 'query: '",
        ),
        ("config_sentence_transformers.json", lambda m: {"similarity_fn_name": "euclidean"}, "'euclidean'"),
        ("sentence_bert_config.json", lambda m: {"max_seq_length": "long"}, "number of tokens, not 'long'"),
        ("sentence_bert_config.json", lambda m: {"max_seq_length": 0}, "number of tokens, not 0"),
    ],
)
def test_what_would_give_other_vectors_is_refused(folder, name, change, message):
    edit(folder, name, change)
    with pytest.raises(UnmaskError, match=message):
        huggingface.load(folder)


def test_the_length_of_a_folder(folder):
    assert Predictor(folder).length == 16
    assert Predictor(folder, length=20).length == 20
    edit(folder, "sentence_bert_config.json", lambda m: {"max_seq_length": None})
    assert Predictor(folder).length == 40  # what the tokenizer notes
    edit(folder, "tokenizer_config.json", lambda m: {**m, "model_max_length": 10**30})
    assert "length" not in huggingface.load(folder).settings
    edit(folder, "sentence_bert_config.json", lambda m: {"max_seq_length": 4000})
    assert Predictor(folder).length == 40  # no more than the positions


def test_answers_to_texts_and_pairs(folder):
    predictor = Predictor(folder)
    texts = ["film", "people who talk about a cat on a mat " * 3, "a cat"]
    found = predictor([texts[0], (texts[0], texts[2]), texts[1], {"text": texts[2]}])
    expected = by_hand([texts[0], texts[2]], "mean", True)
    np.testing.assert_allclose([found[0]["embedding"], found[3]["embedding"]], expected, atol=2e-6)
    assert found[1] == {"similarity": pytest.approx(float(expected[0] @ expected[1]), abs=1e-5)}
    assert found[2]["cut"] is True
    json.dumps(found)
    triplet = predictor.answer([Triplet("film", "cat", negative="film")])[0]
    assert triplet["similarities"] == pytest.approx([predictor([("film", "cat")])[0]["similarity"], 1], abs=1e-5)


def test_answers_on_a_terminal(folder):
    predictor = Predictor(folder)
    lines = [predictor.render(text, answer) for text, answer in predictor.stream(["film", "film\tcat", "film\tfilm"])]
    vector = predictor(["film"])[0]["embedding"]
    shown = " ".join(f"{x:+.4f}" for x in vector[:4])
    assert lines[0] == f"[{shown} …] 32 numbers, norm 1.000  film"
    assert lines[1] == f"similarity {predictor([('film', 'cat')])[0]['similarity']:.3f}  film\tcat"
    assert lines[2] == "similarity 1.000  film\tfilm"
