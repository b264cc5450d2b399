"""The views over HTTP: the numbers of the views themselves, and one sentence for what cannot be shown."""

from __future__ import annotations

import base64
import json
import shutil
from unittest.mock import Mock

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main, parser
from unmask.cli.serve import _access
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.runs.word_vectors import WordVectors
from unmask.serve import Predictor, views
from unmask.serve.examples import GENERAL, examples
from unmask.serve.opened import Opened
from unmask.serve.translator import Translator
from unmask.visualize import attention, masking, reading
from unmask.visualize.numbers import unpacked

TEXT = "it was the animal"
SOUND = base64.b64encode(
    b"RIFF\x24\x10\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00"
    b"data\x00\x10\x00\x00" + bytes(range(256)) * 16
).decode()  # a WAV file of 2,048 samples at 8 kHz


@pytest.fixture(scope="module")
def ask(app):
    from starlette.testclient import TestClient

    client = TestClient(app, base_url="http://127.0.0.1")

    def post(path, /, **fields):
        answer = client.post(path, json=fields) if path != "/models" else client.get(path)
        return answer.status_code, answer.json()

    return post


def test_attention_is_that_of_the_folder(ask, folders):
    loaded = huggingface.load(folders.place / "bert")
    read = reading.read(loaded.model, loaded.tokenizer, TEXT)
    expected = attention.weights(loaded.model, read.batch, "encoder")
    status, whole = ask("/attention", model="bert", text=TEXT)
    assert (status, whole["rows"]) == (200, read.tokens)
    for layer in range(3):
        _, one = ask("/attention", model="bert", text=TEXT, kind="encoder", layer=layer)
        np.testing.assert_allclose(unpacked(one["weights"]), expected[layer], atol=5e-4)
        _, one = ask("/attention", model="bert", text=TEXT, kind="encoder", layer=layer, heads=[2, 0])
        assert one["heads"] == [2, 0]
        np.testing.assert_allclose(unpacked(one["weights"]), expected[layer][[2, 0]], atol=5e-4)
    _, one = ask("/attention", model="bert", text=TEXT, kind="encoder", rollout=True)
    np.testing.assert_allclose(unpacked(one["rollout"]), attention.rollout(expected), atol=5e-4)


def test_another_head_costs_no_forward_pass(ask, folders, monkeypatch):
    fields = {"model": "bert", "text": "the law was tired", "kind": "encoder", "layer": 1}
    first = ask("/attention", **fields, heads=[0])[1]
    monkeypatch.setattr(attention, "weights", lambda *_: pytest.fail("it was computed again"))
    again, other = ask("/attention", **fields, heads=[0])[1], ask("/attention", **fields, heads=[1])[1]
    assert first == again != other


def test_a_translator_has_three_kinds_of_attention(ask):
    status, whole = ask("/attention", model="writer", text="the animal", pair="the street")
    assert status == 200
    assert set(whole["kinds"]) == {"encoder", "decoder", "cross"}
    assert whole["columns"][-1] == "</s>"
    _, one = ask("/attention", model="writer", text="the animal", pair="the street", kind="decoder", layer=1)
    np.testing.assert_allclose(unpacked(one["weights"]).sum(-1), 1, atol=2e-3)


ASKED = {
    "/inside": {"model": "classifier"},
    "/examples": {"model": "bert"},
    "/rows": {"model": "judged"},
    "/neurons": {"model": "bert", "text": TEXT, "layer": 1, "head": 2},
    "/similar": {"model": "bert", "word": "law", "sentence": "the law was just", "texts": ["its law", "it was"]},
    "/features": {"model": "waves", "recording": SOUND},
    "/saliency": {"model": "classifier", "text": TEXT, "output": 1},
    "/beam": {"model": "writer", "text": "the animal", "beam_size": 2, "length": 5},
    "/next": {"model": "lm", "text": "the"},
    "/replaced": {"model": "electra", "text": "the law"},
    "/alignment": {"model": "writer", "text": "the animal", "pair": "the street"},
    "/embeddings": {"model": "encoder", "words": ["street"], "count": 8},
    "/positions": {"model": "bert"},
    "/masking": {"model": "bert", "text": TEXT},
    "/wordpiece": {"model": "bert", "text": TEXT},
    "/masks": {"model": "bert", "text": TEXT, "pair": "it was"},
    "/complexity": {"dim": 8},
    "/runs": {"names": ["first", "second"]},
    "/attention": {"model": "bert", "text": TEXT, "pair": "the law"},
}


def test_every_view_answers(ask, monkeypatch):
    from unmask.serve import views
    from unmask.visualize.complexity import complexity

    monkeypatch.setitem(views.VIEWS, "/complexity", lambda asked: complexity((4, 8), 8))
    assert ASKED.keys() == views.VIEWS.keys()
    for path, fields in ASKED.items():
        if path == "/complexity":
            continue  # seconds; the function has its own test
        status, found = ask(path, **fields)
        assert status == 200, (path, found)
        assert found


def test_queries_and_keys_give_the_weights(ask, folders):
    """The softmax of scale × query · key is the attention that transformers computes."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs = transformers.AutoModel.from_pretrained(folders.place / "bert", attn_implementation="eager").eval()
    loaded = huggingface.load(folders.place / "bert")
    read = reading.read(loaded.model, loaded.tokenizer, TEXT)
    with torch.no_grad():
        found = theirs(input_ids=read.batch.tokens.long(), output_attentions=True, output_hidden_states=True)
    _, one = ask("/neurons", model="bert", text=TEXT, layer=1, head=2)
    scores = one["scale"] * unpacked(one["query"]).astype(float) @ unpacked(one["key"]).astype(float).T
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = found.attentions[1][0, 2].numpy()
    np.testing.assert_allclose(weights, expected, atol=5e-3)  # of queries and keys in float16
    np.testing.assert_allclose(unpacked(one["weights"]), expected, atol=5e-4)
    for name, layer in (("block input", 1), ("after feed-forward", 2)):
        lengths = found.hidden_states[layer][0].norm(dim=-1)
        np.testing.assert_allclose(one["flow"][name], lengths.numpy(), rtol=1e-4)
    assert not one["adds"]


def test_similar_contexts_are_those_of_a_full_search(ask, folders):
    loaded = huggingface.load(folders.place / "bert")
    sentence, texts = "the law was just", ["its law was tired", "the street was just", "the animal did not"]
    states = {
        text: loaded.model.hidden_states(reading.read(loaded.model, loaded.tokenizer, text).batch)[2][0]
        for text in (sentence, *texts)
    }
    asked = states[sentence][2].detach().numpy()  # [CLS] the law
    best = {}
    for text in texts:
        words = states[text][1:-1].detach().numpy()  # each word of these texts is one token
        assert len(words) == len(text.split())
        cosines = words @ asked / np.linalg.norm(words, axis=1) / np.linalg.norm(asked)
        best[text] = (text.split()[cosines.argmax()], cosines.max())
    _, found = ask("/similar", model="bert", word="law", sentence=sentence, texts=texts, layer=2)
    assert found["searched"] == sum(len(text.split()) for text in texts)
    assert [one["text"] for one in found["nearest"]] == sorted(texts, key=lambda text: -best[text][1])
    for one in found["nearest"]:
        word, cosine = best[one["text"]]
        assert one["text"][one["begin"] : one["end"]] == word
        assert one["cosine"] == pytest.approx(cosine, abs=1e-5)


def test_examples_are_of_the_model(ask):
    first = ask("/examples", model="judged")[1]
    assert first["source"] == "dev rows of its run"
    assert first["rows"] == 8
    assert first["items"][0] == {"text": "the law was just and too tired", "expected": "bad"}
    assert len({item["text"] for item in first["items"]}) == len(first["items"]) == 4
    assert ask("/examples", model="bert")[1]["source"] == "general sentences"  # whose words it knows
    assert ask("/examples", model="waves")[1] == {"items": [], "source": "", "english": False, "rows": 0}
    words = ask("/examples", model="vectors")[1]["items"]
    assert words[0] == {"text": "the"}


def test_data_of_the_training_stays_where_it_may_not_be_seen(folders):
    from starlette.testclient import TestClient

    from unmask.serve.http.app import build
    from unmask.serve.http.pool import Pool
    from unmask.serve.http.settings import Access

    pool = Pool([folders.place / "judged"])
    asked = {"word": "law", "sentence": "the law"}
    for data in (False, True):
        client = TestClient(build(pool, access=Access(data=data)))
        found = client.post("/examples", json={}).json()
        assert found["rows"] == 8 * data
        assert found["source"] == ("dev rows of its run" if data else "general sentences")
        texts = {one["text"] for one in client.post("/similar", json=asked).json()["nearest"]}
        assert bool(texts - {*GENERAL}) == data
        for path in ("/rows", "/runs"):
            answer = client.post(path, json={})
            assert answer.status_code == (200 if data else 422)
            assert data or "shows no data of the training: start it with" in answer.json()["error"]


def opened_with(folders, tmp_path, **files):
    """A masked language model with further files in its folder."""
    folder = shutil.copytree(folders.place / "bert", tmp_path / "m")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return Opened(folder, Predictor(folder))


@pytest.mark.parametrize(
    "files",
    [
        {"samples__jsonl": '{"samples": null}\n'},
        {"samples__jsonl": "[1]\n"},
        {"dev_predictions__jsonl": '{"input": 5, "error": "x"}\n{"input": {"words": 3}}\n'},
        {"run__json": '{"corpora": [1]}'},
        {"run__json": "{"},
    ],
)
def test_damaged_files_of_a_run_give_general_sentences(folders, tmp_path, files):
    assert examples(opened_with(folders, tmp_path, **files))["items"]


def test_a_line_ends_at_a_newline_alone(folders, tmp_path):
    line = json.dumps({"samples": [{"text": "the law\u2028was just"}]}, ensure_ascii=False)
    found = examples(opened_with(folders, tmp_path, samples__jsonl=line + "\n"))
    assert found["items"] == [{"text": "the law\u2028was just"}]


def test_a_corpus_is_read_once_for_a_model_without_its_checksums(folders, tmp_path, monkeypatch):
    texts = [TextDocument("The law was just and too tired. It was the animal.", str(i)) for i in range(9)]
    tokenizer = huggingface.load(folders.place / "bert").require_tokenizer("bert")
    corpus.build(texts, tmp_path / "corpus", tokenizer=tokenizer, heldout=0.5)
    opened = opened_with(folders, tmp_path, run__json=json.dumps({"corpora": [str(tmp_path / "corpus")]}))
    monkeypatch.setattr(corpus, "check", checked := Mock())
    views.VIEWS["/examples"](asked := Mock(opened=opened, data=True))
    found = views.VIEWS["/examples"](asked)
    assert found["source"] == "held-out text of its corpus"
    assert [call.kwargs["checksums"] for call in checked.call_args_list] == [False]


@pytest.mark.parametrize(
    ("arguments", "data"),
    [
        ([], True),
        (["--no-training-data"], False),
        (["--host", "0.0.0.0"], False),
        (["--host", "0.0.0.0", "--training-data"], True),
        (["--host", "0.0.0.0", "--api-key-file", "keys"], True),
    ],
)
def test_clients_see_data_here_or_with_a_key(arguments, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("secret")
    assert _access(parser().parse_args(["serve", *arguments])).data == data


def test_a_package_is_served_with_one_model(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--model", "a", "b", "--backend", "a/model.pt2"])
    assert capsys.readouterr().err.endswith("a/model.pt2 holds one model: give one --model, or leave --backend out.\n")


def test_more_of_the_views(ask):
    assert ask("/embeddings", model="bert", plus=["street"], minus=["law"], top=3)[1]["nearest"][2]["cosine"]
    context = ask("/embeddings", model="bert", word="law", sentences=["the law", "its law was"])[1]
    assert len(context["occurrences"]) == 2
    assert ask("/positions", sinusoidal=True, length=8, dim=6)[1]["table"]["shape"] == [8, 6]
    listed = ask("/runs")[1]["runs"]
    assert sorted(run["name"] for run in listed) == ["first", "second"]
    following = ask("/next", model="lm", text="the")[1]
    assert all(one["text"].startswith("the") or one["end"] for one in following["candidates"])


@pytest.mark.parametrize("model", ["t5", "writer"])
def test_a_model_that_writes_shows_how_it_reads(ask, folders, model):
    loaded = huggingface.load(folders.place / model)
    ids = loaded.tokenizer.ids([TEXT])[0]
    _, pieces = ask("/wordpiece", model=model, text=TEXT)
    assert [piece["id"] for word in pieces["words"] for piece in word["pieces"]] == ids.tolist()
    status, cloud = ask("/embeddings", model=model, words=["law"], count=8)
    assert (status, len(cloud["points"])) == (200, 8)
    _, seen = ask("/masks", model=model, text=TEXT, pair="the law")
    assert seen["masks"][0]["tokens"] == loaded.tokenizer.pieces(ids)
    assert ask("/inside", model=model)[1]["spans"] == (model == "t5")


def test_spans_of_a_t5_are_shown(ask, folders):
    loaded = huggingface.load(folders.place / "t5")
    status, found = ask("/masking", model="t5", text=TEXT, seed=2, draws=3)
    assert (status, found) == (200, masking.spans(loaded.model, loaded.tokenizer, TEXT, seed=2, draws=3))


def test_without_a_translation_attention_is_that_of_what_the_model_writes(ask, folders):
    """However long that is: this T5 does not end, and its first 511 tokens are looked at."""
    loaded = huggingface.load(folders.place / "t5")
    written = next(Translator(folders.place / "t5").stream([TEXT])).translations[0].pieces
    assert len(written) > 512
    status, found = ask("/attention", model="t5", text=TEXT, kind="decoder")
    assert (status, found["rows"]) == (200, ["<s>", *written[:511]])
    ids = [loaded.tokenizer.vocabulary[piece] for piece in written]
    read = reading.read_pair(loaded.model, loaded.tokenizer, TEXT, ids)
    assert read.batch.tokens[0, 1:].tolist() == ids[:511]
    _, short = ask("/attention", model="writer", text=TEXT)
    assert short["rows"] == [*next(Translator(folders.place / "writer").stream([TEXT])).translations[0].pieces, "</s>"]


def test_what_answers_nothing_is_shown(ask, folders):
    listed = {one["name"]: one["kind"] for one in ask("/models")[1]["models"]}
    kinds = {"electra": "replaced-tokens", "elmo": "contextual-words", "vectors": "word-vectors"}
    assert listed.items() >= kinds.items()
    text = "the law was just"
    status, found = ask("/replaced", model="electra", text=text)
    assert (status, [one["word"] for one in found["words"]]) == (200, text.split())
    _, said = ask("/predict", model="electra", texts=[text])
    judged = {one["begin"]: one["probability"] for one in said["answers"][0]["tokens"]}
    for one in found["words"]:
        inside = [p for begin, p in judged.items() if one["begin"] <= begin < one["end"]]
        assert one["probability"] == pytest.approx(max(inside), abs=1e-5)
    _, offers = ask("/replaced", model="electra", text=text, begin=4, end=7)
    [expected] = Predictor(folders.place / "electra" / "generator")("the [MASK] was just".splitlines())
    assert offers["guesses"] == expected["masks"][0]
    _, context = ask("/embeddings", model="elmo", word="law", sentences=["the law", "its law was"])
    assert len(context["spreads"]) == 3
    _, cloud = ask("/embeddings", model="vectors", count=8)
    assert len(cloud["points"]) == 8
    own = WordVectors.load(folders.place / "vectors")
    _, near = ask("/embeddings", model="vectors", plus=["law", "street"], minus=["animal"], top=3)
    assert [one["word"] for one in near["nearest"]] == [
        w for w, _ in own.most_similar(["law", "street"], ["animal"], 3)
    ]
    assert ask("/inside", model="vectors")[1]["attention"] == {}


WRONG = [
    ("/replaced", {"model": "bert", "text": TEXT}, "use a pre-trained ELECTRA"),
    ("/replaced", {"model": "electra", "text": TEXT, "begin": 4, "end": 99}, "'end' must be a whole number"),
    ("/attention", {"model": "vectors", "text": TEXT}, "word vectors"),
    ("/wordpiece", {"model": "vectors", "text": TEXT}, "this folder holds word vectors"),
    ("/attention", {"model": "elmo", "text": TEXT}, "no attention"),
    ("/embeddings", {"model": "elmo", "plus": ["law"]}, "reads words by their characters"),
    ("/embeddings", {"model": "vectors", "word": "law", "sentences": ["law", "law"]}, "word vectors"),
    ("/predict", {"model": "electra", "texts": "the [MASK]"}, "folder `generator` inside this one"),
    ("/predict", {"model": "elmo", "texts": "the law"}, "is one for contextual-words"),
    ("/tokenize", {"model": "vectors", "texts": "the law"}, "which have no tokenizer"),
    ("/attention", {"model": "bert", "text": ""}, "nothing to read"),
    ("/attention", {"model": "bert"}, "'text' must be a text"),
    ("/attention", {"model": "bert", "text": TEXT, "kind": "encoder", "layer": "1"}, "'layer' must be a whole number"),
    ("/attention", {"model": "bert", "text": TEXT, "kind": "cross", "layer": 1}, "no kind of attention"),
    ("/attention", {"model": "bert", "text": TEXT, "kind": "encoder", "layer": 1, "heads": [4]}, "no head 4"),
    (
        "/attention",
        {"model": "writer", "text": TEXT, "kind": "cross", "rollout": True},
        "Cross-attention has no rollout",
    ),
    ("/attention", {"model": "bert", "text": TEXT, "kind": "encoder", "layer": 1, "heads": [True]}, "whole numbers"),
    ("/attention", {"model": "brt", "text": TEXT}, "did you mean 'bert'"),
    ("/attention", {"model": "bert", "text": "the " * 99}, "the model takes 64"),
    ("/beam", {"model": "bert", "text": TEXT}, "a model that writes"),
    ("/next", {"model": "bert", "text": TEXT}, "a model that continues a text"),
    ("/saliency", {"model": "bert", "text": TEXT, "output": 9}, "no output 9"),
    ("/saliency", {"model": "tagger", "text": TEXT}, "one output for a whole text"),
    ("/alignment", {"model": "bert", "text": TEXT, "pair": TEXT}, "a model that translates"),
    ("/replaced", {"model": "writer", "text": TEXT}, "use attention, beam"),
    (
        "/embeddings",
        {"model": "t5", "word": "law", "sentences": ["the law", "its law"]},
        "or embeddings without sentences",
    ),
    ("/masking", {"model": "writer", "text": TEXT}, "use the view attention"),
    ("/masking", {"model": "t5", "text": TEXT, "whole_words": True}, "leave whole words out"),
    (
        "/attention",
        {"model": "t5", "text": TEXT, "pair": "law " * 600},
        "The second text has 600 tokens, and the view shows at most 511",
    ),
    ("/wordpiece", {"model": "t5", "text": " "}, "nothing to tokenize"),
    ("/embeddings", {"model": "bert", "plus": "a"}, "'plus' must be a list"),
    ("/masking", {"model": "bert", "text": TEXT, "rate": True}, "'rate' must be a number"),
    ("/runs", {"names": ["../first"]}, "no run ../first"),
    ("/rows", {"model": "bert"}, "has no dev_predictions.jsonl"),
    ("/neurons", {"model": "bert", "text": TEXT, "head": 4}, "no head 4"),
    ("/neurons", {"model": "bert", "text": TEXT, "layer": 3}, "no layer 3"),
    ("/neurons", {"model": "lm", "text": TEXT}, "no stack of blocks"),
    ("/similar", {"model": "bert", "word": "cat", "sentence": TEXT}, "'cat' is not in the sentence"),
]


@pytest.mark.parametrize(("path", "fields", "message"), WRONG)
def test_what_cannot_be_shown_is_said(ask, path, fields, message):
    status, found = ask(path, **fields)
    assert status == (404 if "did you mean" in message else 422)
    assert message in found["error"]
