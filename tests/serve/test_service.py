"""The JSON API in one process: its answers are those of Python, its refusals one sentence each."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Limits, Sampling, Search
from unmask.serve import Predictor
from unmask.serve.continuation import Continuer
from unmask.serve.http import Pool, Settings, forms, openapi, verbs
from unmask.serve.http.app import build
from unmask.serve.http.settings import Access, is_loopback, read_keys
from unmask.serve.translator import Translator

TEXTS = ["the film was good", "a list of strings", "people who talk and talk " * 9]


def client(pool, settings=None, access=None, **more):
    return TestClient(build(pool, settings, access), **more)


@pytest.fixture(scope="module")
def pool(models):
    return Pool(list(vars(models).values()), loaded=20)


@pytest.fixture(scope="module")
def http(pool):
    with client(pool) as found:
        yield found


def said(answer, status):
    """The sentence of a refusal."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error.endswith(".")
    assert "\n" not in error
    return error


# ------------------------------------------------------------------------------------------------ answers


ASKED = {
    "classifier": TEXTS,
    "bert": ["the [MASK] was good", ["the film", "a list"], "a [MASK] of [MASK]"],
    "reader": [["who talk", "people who talk"], {"question": "what", "context": "the film was good " * 9, "id": "q"}],
    "chooser": [{"context": "the film", "choices": ["was good", "a list"]}],
    "tagger": ["people talk", ["people", "talk"]],
    "encoder": ["the film", ["the film", "a list"]],
}


@pytest.mark.parametrize("name", ASKED)
def test_answers_are_those_of_the_predictor_to_the_last_bit(http, models, name):
    answer = http.post("/predict", json={"model": name, "texts": ASKED[name]})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"model": name, "answers": Predictor(getattr(models, name))(ASKED[name])}
    operation = next(one for one in openapi.OPERATIONS if one.path == "/predict")
    forms.check(answer.json(), operation.answer)


def test_one_text_is_a_list_of_one(http, models):
    answer = http.post("/predict", json={"model": "classifier", "texts": "the film"}).json()
    assert answer["answers"] == Predictor(models.classifier)("the film")
    pair = http.post("/predict", json={"model": "reader", "texts": {"question": "who", "context": "people"}})
    assert pair.json()["answers"][0].keys() >= {"answer", "begin"}


def test_vectors_come_in_three_forms(http, models):
    vectors = [answer["embedding"] for answer in Predictor(models.encoder)(TEXTS)]
    own = http.post("/embed", json={"texts": TEXTS}).json()
    assert own["embeddings"] == vectors
    assert (own["model"], own["cut"]) == ("encoder", [2])
    assert own["tokens"] == sum(min(len(ids) + 2, 24) for ids in Tokenizer.load(models.encoder).ids(TEXTS))
    plain = http.post("/embed", json={"inputs": TEXTS, "normalize": False}).json()
    assert plain == vectors
    units = np.array(http.post("/embed", json={"inputs": TEXTS[0], "truncate": True}).json())
    assert units.shape == (1, 32)
    assert np.allclose(units, np.array(vectors[:1]) / np.linalg.norm(vectors[0]), atol=1e-6)
    listed = http.post("/v1/embeddings", json={"input": TEXTS, "model": "encoder"}).json()
    assert [one["embedding"] for one in listed["data"]] == vectors
    assert [one["index"] for one in listed["data"]] == [0, 1, 2]
    assert listed["usage"] == {"prompt_tokens": own["tokens"], "total_tokens": own["tokens"]}
    packed = http.post("/v1/embeddings", json={"input": TEXTS[0], "model": "encoder", "encoding_format": "base64"})
    raw = base64.b64decode(packed.json()["data"][0]["embedding"])
    assert np.frombuffer(raw, "<f4").tolist() == Predictor(models.encoder)(TEXTS[:1])[0]["embedding"]


def test_the_client_of_openai_works_as_it_is(pool, models):
    openai = pytest.importorskip("openai")
    own = client(pool)
    with openai.OpenAI(base_url="http://testserver/v1", api_key="any", http_client=own, max_retries=0) as asked:
        assert [model.id for model in asked.models.list()][:2] == ["bert", "classifier"]
        found = asked.embeddings.create(model="encoder", input=TEXTS)
        wanted = [answer["embedding"] for answer in Predictor(models.encoder)(TEXTS)]
        assert [one.embedding for one in found.data] == wanted
        as_numbers = asked.embeddings.create(model="encoder", input=TEXTS[0], encoding_format="float")
        assert as_numbers.data[0].embedding == Predictor(models.encoder)(TEXTS[:1])[0]["embedding"]
        with pytest.raises(openai.NotFoundError, match="There is no model 'gpt'"):
            asked.embeddings.create(model="gpt", input="x")
        with pytest.raises(openai.UnprocessableEntityError, match="is empty"):
            asked.embeddings.create(model="encoder", input=" ")


def test_translations_are_those_of_the_translator(http, models):
    translator = Translator(models.writer)
    texts = ["the film was good", "", "people talk"]
    found = http.post("/translate", json={"texts": texts}).json()
    assert found == {"model": "writer", "answers": [answer.to_dict() for answer in translator.stream(texts)]}
    translator.search = translator.search.replace(beam_size=3, n_best=2, limits={"max_length": 5})
    search = {"beam_size": 3, "n_best": 2, "max_length": 5}
    answers = http.post("/translate", json={"texts": texts, "search": search}).json()["answers"]
    assert answers == [answer.to_dict() for answer in translator.stream(texts)]
    assert len(answers[0]["translations"]) == 2


def test_a_language_model_goes_on(http, models):
    how = Sampling(samples=2, seed=3, temperature=0.5, limits=Limits(max_length=6))
    wanted = [[one.to_dict() for one in some] for some in Continuer(models.lm, how)(["the film", ""])]
    fields = {"samples": 2, "seed": 3, "temperature": 0.5, "max_length": 6}
    for _ in range(2):
        found = http.post("/generate", json={"texts": ["the film", ""], "sampling": fields}).json()
        assert found == {"model": "lm", "answers": wanted}
    greedy = http.post("/generate", json={"texts": "the", "search": {"max_length": 4}}).json()["answers"]
    search = Search(limits=Limits(max_length=4))
    assert greedy == [[one.to_dict() for one in Continuer(models.lm, search)(["the"])[0]]]


def test_a_beginning_that_is_too_long_is_refused_before_it_shares_a_batch(pool, monkeypatch):
    served = pool.get("lm")
    monkeypatch.setattr(type(served.continuer.model), "positions", 2)
    with pytest.raises(UnmaskError, match=r"Beginning 2 has \d+ tokens, and the model reads at most 1"):
        verbs.generate(served, {"texts": ["", "the film was"], "search": {}}, Settings())


def test_what_is_drawn_shares_no_batch_and_what_is_searched_does(pool):
    served = pool.get("lm")

    def key(**body):
        return verbs.generate(served, {"texts": "the", **body}, Settings()).key

    assert key(sampling={"seed": 1}) != key(sampling={"seed": 1})  # beside another its draws would be others
    assert key(search={"max_length": 4}) == key(search={"max_length": 4}) != key(search={"max_length": 5})


def test_tokens_have_their_places(http, models):
    text = "The film [MASK] was"
    tokenizer = Tokenizer.load(models.bert)
    for name, special in (("bert", True), ("classifier", False)):
        (found,) = http.post("/tokenize", json={"model": name, "texts": text}).json()["tokens"]
        wanted = tokenizer.encode(text, special=special)
        assert [one["id"] for one in found] == wanted.ids.tolist()
        assert [(one["begin"], one["end"]) for one in found] == [tuple(o) for o in wanted.offsets.tolist()]
        assert ("[MASK]" in [one["token"] for one in found]) == special
    (found,) = http.post("/tokenize", json={"model": "writer", "texts": "the film"}).json()["tokens"]
    assert [one["id"] for one in found] == Translator(models.writer).tokenizer.ids(["the film"])[0].tolist()


def test_models_are_listed_and_the_first_that_fits_is_meant(http, pool):
    listed = {one["name"]: one["kind"] for one in http.get("/models").json()["models"]}
    assert listed == {
        "bert": "fill-mask", "classifier": "classification", "encoder": "embedding", "reader": "span",
        "chooser": "choice", "tagger": "tagging", "writer": "translation", "lm": "generation",
    }  # fmt: skip
    for name, kind in listed.items():
        assert pool.get(name).kind == kind  # what the files say is what the model is
    assert http.post("/predict", json={"texts": "the [MASK]"}).json()["model"] == "bert"
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/ready").json() == {"status": "ready"}


def test_nothing_is_ready_before_a_model_is_read(models):
    http = client(Pool([models.bert]))
    assert http.get("/health").status_code == 200
    assert said(http.get("/ready"), 503) == "No model is loaded yet."
    http.post("/predict", json={"texts": "the [MASK]"})
    assert http.get("/ready").status_code == 200


# ------------------------------------------------------------------------------------------------ refusals


REFUSED = [
    ("/predict", {"texts": []}, 422, "'texts' is empty."),
    ("/predict", {"texts": 3}, 422, "'texts' must be a text or an object or a list, not 3."),
    ("/predict", {}, 422, "The body lacks the field 'texts'."),
    ("/predict", {"text": "a"}, 422, "lacks the field 'texts'"),
    ("/predict", {"texts": "a", "modle": "b"}, 422, "There is no field 'modle'; did you mean 'model'?"),
    ("/predict", [], 422, "The body must be an object, not a list."),
    ("/predict", {"texts": "no mask", "model": "bert"}, 422, "Text 1 has no [MASK]"),
    ("/predict", {"texts": ["a", " "], "model": "classifier"}, 422, "Text 2 is empty."),
    ("/predict", {"texts": [["a"] * 3], "model": "classifier"}, 422, "a pair has two"),
    ("/predict", {"texts": [[["a"]]], "model": "classifier"}, 422, "Text 1 must be a string"),
    ("/predict", {"texts": "a", "model": "nobody"}, 404, "There is no model 'nobody'"),
    ("/predict", {"texts": "a", "model": "writer"}, 422, "The model writer is one for translation"),
    ("/predict", {"texts": "a", "model": 7}, 422, "'model' must be a text or null, not 7."),
    ("/embed", {"texts": "a", "model": "classifier"}, 422, "is one for classification and gives no vectors"),
    ("/embed", {"texts": ["a", 1]}, 422, "Item 2 of 'texts' must be a text or an object, not 1."),
    ("/embed", {"inputs": TEXTS[2], "truncate": False}, 413, "Text 1 has"),
    ("/embed", {"inputs": "a", "prompt_name": "query"}, 422, "'prompt_name' must be null"),
    ("/embed", {"inputs": "a", "dimensions": 8}, 422, "have 32 numbers, not 8"),
    ("/translate", {"texts": "a", "search": {"beam_size": 17}}, 422, "'beam_size' must be from 1 to 16, not 17."),
    ("/translate", {"texts": "a", "search": {"n_best": 2}}, 422, "has no 2 best"),
    ("/translate", {"texts": "a", "search": {"max_length": 600}}, 422, "writes at most 512 tokens"),
    ("/translate", {"texts": "a", "search": {"beam_size": True}}, 422, "must be a whole number, not true."),
    ("/generate", {"texts": "a", "sampling": {"temperature": 0}}, 422, "'temperature' must be from 0.001"),
    ("/generate", {"texts": "a", "sampling": {}, "search": {}}, 422, "leave one out"),
    ("/generate", {"texts": "a", "sampling": {"seed": 10**400}}, 422, "a number of so many digits"),
    ("/tokenize", {"texts": {"a": "b"}}, 422, "'texts' must be a text or a list, not an object."),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "words"), REFUSED)
def test_what_cannot_be_asked_is_refused_in_one_sentence(http, path, body, status, words):
    assert words in said(http.post(path, json=body), status)


RAW = [
    (b"", 400, "not valid JSON"),
    (b"{", 400, "not valid JSON"),
    (b'{"texts": "\xff"}', 400, "not UTF-8: byte 11"),
    (b'{"texts": NaN}', 400, "NaN is not a number"),
    (b'{"texts": 1e999}', 422, "too large"),
    (b'{"texts": ' + b"9" * 5_000 + b"}", 422, "too many digits"),
    (b"[" * 100_000, 400, "nested deeper"),
    (b"[" * 65 + b"]" * 65, 400, "nested deeper"),
    (b'{"texts": "a\\u0000b"}', 422, "NUL"),
    (b'{"texts": "\\ud800"}', 422, "surrogate"),
    (b'{"\\udfff": 1}', 422, "surrogate"),
    (b'{"texts": "a\0b"}', 400, "not valid JSON"),
]


@pytest.mark.parametrize(("body", "status", "words"), RAW)
def test_bytes_that_are_no_sound_json_are_refused(http, body, status, words):
    answer = http.post("/predict", content=body, headers={"content-type": "application/json"})
    assert words in said(answer, status)


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": ""},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_other_types_are_refused(http, headers):
    said(http.post("/predict", content=b'{"texts": "a"}', headers=headers), 415)


def test_paths_and_methods_that_are_not_there(http):
    assert said(http.get("/nowhere"), 404) == "There is no path /nowhere; /openapi.json lists all paths."
    for answer in (http.get("/predct"), http.post("/predct", json={})):
        assert said(answer, 404) == "There is no path /predct; the nearest one is /predict."
    assert said(http.post("/app.js", json={}), 405) == "/app.js does not accept POST."
    answer = http.get("/predict")
    assert said(answer, 405) == "/predict does not accept GET."
    assert answer.headers["allow"] == "POST"
    error = http.get("/v1/nowhere").json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("There is no path /v1/nowhere")


def test_limits_on_bytes_texts_and_tokens(models):
    http = client(Pool([models.classifier]), Settings(payload=200, texts=2, tokens=20))

    def ask(texts):
        return http.post("/predict", json={"texts": texts})

    assert ask(["a", "b"]).status_code == 200
    assert "may have at most 200 bytes" in said(ask("a" * 300), 413)
    pieces = (part for part in [b'{"texts": "', b"a" * 300, b'"}'])  # without a length that could be read before
    assert "200 bytes" in said(http.post("/predict", content=pieces, headers={"content-type": "application/json"}), 413)
    many = {"content-length": "9" * 5_000, "content-type": "application/json"}
    assert "200 bytes" in said(http.post("/predict", content=b"{}", headers=many), 413)
    assert "may have at most 2 texts, not 3" in said(ask(["a", "b", "c"]), 413)
    assert "may have at most 20" in said(ask("a list of strings " * 8), 413)


def test_an_answer_that_takes_too_long_is_given_up(models, monkeypatch):
    import threading

    pool, free = Pool([models.classifier]), threading.Event()
    monkeypatch.setattr(type(pool.get().predictor), "answer", lambda self, rows: free.wait(10) and [])
    http = client(pool, Settings(seconds=1.0))
    answer = http.post("/predict", json={"texts": "a"})
    free.set()
    assert said(answer, 503) == "The answer took longer than 1 second."
    assert int(answer.headers["retry-after"]) > 0


def test_a_defect_is_logged_and_one_sentence(models, monkeypatch, caplog):
    pool = Pool([models.classifier])

    def broken(self, rows):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(type(pool.get().predictor), "answer", broken)
    answer = client(pool, raise_server_exceptions=True).post("/predict", json={"texts": "a"})
    assert "secret" not in said(answer, 500)
    assert "secret" in caplog.text


def test_a_damaged_folder_is_a_refusal_and_the_others_go_on(models, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text(json.dumps({"model_type": "bert", "unmask_heads": ["mlm"]}))
    http = client(Pool([models.classifier, tmp_path / "broken"]))
    answer = http.post("/predict", json={"texts": "a", "model": "broken"})
    assert "The model broken cannot be read" in said(answer, 503)
    assert http.post("/predict", json={"texts": "a"}).status_code == 200


def test_weights_that_are_not_numbers_are_named(models):
    pool = Pool([models.encoder])
    model = pool.get().predictor.model
    next(model.parameters()).data.fill_(float("nan"))
    answer = client(pool).post("/embed", json={"texts": "a"})
    assert "not finite" in said(answer, 500)


# ------------------------------------------------------------------------------------------------ who may ask


def test_keys_hosts_and_headers(pool, tmp_path):
    (tmp_path / "keys").write_text("one\n\ntwo\n")
    access = Access(read_keys(tmp_path / "keys"), hosts=("testserver", "::1"))
    http = client(pool, access=access)
    assert http.get("/health").status_code == 200
    for path in ("/models", "/metrics", "/openapi.json", "/nowhere"):
        assert said(http.get(path), 401)
    for header in ("Bearer three", "Bearer", "one", "Basic one", "Bearer one two", ""):
        answer = http.get("/models", headers={"authorization": header})
        assert said(answer, 401).startswith("The service needs a key")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert http.get("/models", headers={"authorization": b"Bearer \xff\xfe"}).status_code == 401
    for key in ("one", "two"):
        answer = http.get("/models", headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 200
    for host in ("evil.example", "evil.example:8000", "", "testserver.evil.example", "[", "a]b"):
        assert "Host" in said(http.get("/models", headers={"host": host}), 400)
        assert http.get("/health", headers={"host": host}).status_code == 200  # the check of a balancer
    for host in ("testserver:80", "TESTSERVER", "[::1]:8000"):
        assert "key" in said(http.get("/models", headers={"host": host}), 401)


def test_every_answer_has_the_headers_that_keep_a_page_in(http):
    for answer in (http.get("/models"), http.get("/nowhere"), http.post("/predict", content=b"x")):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"


def test_pages_elsewhere_read_nothing_unless_they_are_named(pool):
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
    closed = client(pool)
    assert "access-control-allow-origin" not in closed.get("/models", headers=asked).headers
    assert closed.options("/predict", headers=asked).status_code == 405
    opened = client(pool, access=Access(origins=("https://a.example",)))
    assert opened.get("/models", headers=asked).headers["access-control-allow-origin"] == "https://a.example"
    assert opened.options("/predict", headers=asked).status_code == 200
    other = {**asked, "origin": "https://b.example"}
    assert "access-control-allow-origin" not in opened.get("/models", headers=other).headers


@pytest.mark.parametrize("origin", ["*", "a.example", "https://*", "https://a.example/x", "file:///x"])
def test_origins_are_named_one_by_one(origin):
    with pytest.raises(UnmaskError, match="is not an origin"):
        Access(origins=(origin,))


@pytest.mark.parametrize("content", [b"", b"\n \n", b"a b\n", "é".encode(), b"a\tb"])
def test_bad_files_of_keys(tmp_path, content):
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(UnmaskError):
        read_keys(tmp_path / "keys")
    with pytest.raises(UnmaskError, match="There is no file"):
        read_keys(tmp_path / "none")


def test_what_is_loopback():
    assert all(is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"))


# ------------------------------------------------------------------------------------------------ what is told


def test_metrics_count_requests_batches_and_tokens(models):
    http = client(Pool([models.classifier]))
    for _ in range(3):
        http.post("/predict", json={"texts": ["the film", "good"]})
    http.post("/predict", content=b"x")
    http.get("/nowhere/at/all")
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.text
    assert 'unmask_requests_total{route="/predict",status="200"} 3' in text
    assert 'unmask_requests_total{route="/predict",status="415"} 1' in text
    assert 'unmask_requests_total{route="other",status="404"} 1' in text
    assert 'unmask_request_seconds_bucket{route="/predict",le="+Inf"} 4' in text
    assert 'unmask_batch_requests_sum{model="classifier"} 3' in text
    read = sum(map(len, Tokenizer.load(models.classifier).ids(["the film", "good"])))
    assert f'unmask_tokens_total{{model="classifier"}} {3 * read}' in text
    assert 'unmask_model_loaded{model="classifier"} 1' in text
    assert "unmask_open_requests 1" in text
    line = re.compile(r"^(# (HELP|TYPE) \w+ .+|\w+(\{(\w+=\"[^\"]*\",?)+\})? [0-9.e+-]+)$")
    assert [one for one in text.splitlines() if not line.match(one)] == []


def test_the_description_is_of_the_routes_that_there_are(pool, http):
    described = http.get("/openapi.json").json()
    told = {(path, method.upper()) for path, of in described["paths"].items() for method in of}
    routes = build(pool).routes
    there = {(route.path, method) for route in routes for method in route.methods - {"HEAD"}}
    assert told == there
    assert described["openapi"].startswith("3.1")
    references = set(re.findall(r'"\$ref": ?"#/components/schemas/(\w+)"', json.dumps(described)))
    assert references <= described["components"]["schemas"].keys()
    for path, of in described["paths"].items():
        for method, operation in of.items():
            assert operation["summary"], path
            assert method == "get" or operation["requestBody"]["content"]["application/json"]["schema"]


@pytest.mark.parametrize("operation", openapi.OPERATIONS, ids=lambda one: one.path)
def test_answers_have_the_form_that_is_described(http, pool, operation):
    pool.get("bert")  # until a model is read, nothing is ready
    bodies = {
        "/predict": {"texts": "the film", "model": "classifier"},
        "/embed": {"texts": TEXTS},
        "/v1/embeddings": {"input": TEXTS, "model": "encoder"},
        "/translate": {"texts": ["the film", "zebra"]},
        "/generate": {"texts": ["the film"], "sampling": {"max_length": 3}},
        "/tokenize": {"texts": TEXTS},
    }
    if operation.body is not None:
        answer = http.post(operation.path, json=bodies[operation.path])
    else:
        answer = http.get(operation.path)
    assert answer.status_code == 200
    value = answer.json() if operation.kind == "application/json" else answer.text
    forms.check(value, operation.answer)


def test_the_page_is_there_for_all_and_its_code_is_not(pool):
    http = client(pool, access=Access(("key",)))
    page = http.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert http.get("/app.js").headers["content-type"].startswith("text/javascript")
    for path in ("/standalone.py", "/__init__.py", "/__pycache__", "/..%2fpool.py", "/../pool.py", "//etc/passwd"):
        assert http.get(path, headers={"authorization": "Bearer key"}).status_code == 404
    assert http.post("/inside", json={}).status_code == 401


# ------------------------------------------------------------------------------------------------ the pool


def test_the_model_that_rested_longest_makes_room(models):
    pool = Pool([models.bert, models.encoder, f"words={models.classifier}"], loaded=2)
    assert pool.names() == ["bert", "encoder", "words"]
    first = pool.get()
    assert first is pool.get("bert")
    pool.get("encoder")
    pool.get("bert")
    pool.get("words")
    assert sorted(pool.loaded()) == ["bert", "words"]
    assert pool.get("bert") is first
    assert pool.get("words").predictor.kind == "classification"
    http = client(pool)
    for name in ("encoder", "words", "bert", "encoder"):
        assert http.post("/tokenize", json={"texts": "the", "model": name}).status_code == 200
    assert len(pool.loaded()) == 2


def test_the_precision_is_that_of_the_predictor(models):
    pool = Pool([models.classifier], precision="bf16")
    wanted, exact = (Predictor(models.classifier, precision=each)(TEXTS) for each in ("bf16", "fp32"))
    assert client(pool).post("/predict", json={"texts": TEXTS}).json()["answers"] == wanted
    assert wanted != exact


def test_threads_that_ask_for_a_model_get_the_same_one(models):
    from concurrent.futures import ThreadPoolExecutor

    pool = Pool([models.bert, models.encoder])
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(pool.get, ["encoder", "bert"] * 8))
    assert len(set(map(id, found))) == 2


def test_bad_pools(models, tmp_path):
    with pytest.raises(UnmaskError, match="at least one model"):
        Pool([])
    with pytest.raises(UnmaskError, match="2 folders are called 'bert'"):
        Pool([models.bert, models.bert])
    with pytest.raises(UnmaskError, match="There is no model folder"):
        Pool([tmp_path / "none"])
    with pytest.raises(UnmaskError, match="has no config"):
        Pool([tmp_path])
    with pytest.raises(UnmaskError, match="did you mean 'bert'"):
        Pool([models.bert]).get("bart")
