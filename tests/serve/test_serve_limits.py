"""What one client can take: values, characters, answers, time to ask and to read, connections; with small limits."""

from __future__ import annotations

import json
import logging
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("httpx2")
pytest.importorskip("uvicorn")
from serve_toy import HEAD, ask, serving, wait_for
from starlette.testclient import TestClient

from unmask.data.text.library import LONG
from unmask.data.text.tokenizer import Tokenizer
from unmask.serve import views
from unmask.serve.http import Pool, Settings, connection, server, wire
from unmask.serve.http.app import build
from unmask.serve.http.refusals import Refusal, clipped
from unmask.serve.http.settings import Access

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def client(pool, access=None, **limits):
    return TestClient(build(pool, Settings(**limits), access))


@pytest.fixture(scope="module")
def pool(models):
    return Pool(list(vars(models).values()), loaded=20)


def said(answer, status):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    return error if isinstance(error, str) else error["message"]


def raw(place, sent, *, seconds=20):
    """What comes back until the service closes, or a whole answer is there."""
    with socket.create_connection(place, timeout=seconds) as one:
        one.sendall(sent)
        return received(one)


def received(one):
    found = b""
    while b"\r\n\r\n" not in found or b"}" not in found:
        try:
            part = one.recv(65_536)
        except ConnectionResetError:
            break
        if not part:
            break
        found += part
    return found


def closed(one):
    """Whether the service closed a connection without a word."""
    try:
        return one.recv(10) == b""
    except ConnectionResetError:
        return True


# ------------------------------------------------------------------------------------------------ requests


def test_every_view_has_a_limit_of_characters(pool):
    http = client(pool, view=14)
    assert http.post("/wordpiece", json={"model": "bert", "text": "the film"}).status_code == 200
    for path in views.VIEWS:
        assert "accepts 14 characters, not 17" in said(
            http.post(path, json={"text": "the film was", "more": ["good"], "x": {"y": "a"}}), 413
        )


def test_views_end_in_time_and_unknown_models_are_404_everywhere(pool, monkeypatch):
    monkeypatch.setitem(views.VIEWS, "/masks", lambda asked: time.sleep(1.2) or {})
    http = client(pool, seconds=1.0)
    assert said(http.post("/masks", json={}), 503) == "The answer took longer than 1 second."
    for path in ("/wordpiece", "/attention", "/inside", "/saliency", "/next", "/alignment", "/masking"):
        assert "There is no model 'nobody'" in said(
            http.post(path, json={"model": "nobody", "text": "a", "pair": "b"}), 404
        )
    for path, texts in (
        ("/predict", "texts"),
        ("/embed", "texts"),
        ("/v1/embeddings", "input"),
        ("/tokenize", "texts"),
    ):
        assert "There is no model 'nobody'" in said(http.post(path, json={"model": "nobody", texts: "a"}), 404)


def test_characters_are_counted_before_any_is_cut_into_tokens(pool, monkeypatch):
    http = client(pool, characters=20)
    for name in ("ids", "encode"):
        monkeypatch.setattr(Tokenizer, name, lambda *_, **__: pytest.fail("a text was cut"))
    asked = {
        "/predict": "classifier",
        "/embed": "encoder",
        "/generate": "lm",
        "/translate": "writer",
        "/tokenize": "bert",
    }
    for path, model in asked.items():
        assert "has 21 characters, and may have at most 20" in said(
            http.post(path, json={"texts": ["a" * 21], "model": model}), 413
        )
    choices = {"context": "a" * 6, "choices": ["b"] * 4}  # the context is read with each of them
    assert "28 characters" in said(http.post("/predict", json={"texts": choices, "model": "chooser"}), 413)


def test_texts_are_counted_before_they_are_looked_at(pool):
    http = client(pool, texts=3)
    for path, field in (
        ("/predict", "texts"),
        ("/embed", "inputs"),
        ("/v1/embeddings", "input"),
        ("/tokenize", "texts"),
    ):
        assert "may have at most 3 texts, not 4" in said(http.post(path, json={field: [0, [], {}, None]}), 413)


def test_values_are_counted_before_json_is_read(pool, monkeypatch):
    http = client(pool, values=10)
    monkeypatch.setattr(wire, "json", SimpleNamespace(loads=lambda *_, **__: pytest.fail("it was read")))
    for body in (b"[" * 11, b"[],[],[],[],[],[]", b'{"a":1,' * 6, b",,,,,,,,,,,"):
        answer = http.post("/predict", content=body, headers={"content-type": "application/json"})
        assert "commas and brackets, at most 10" in said(answer, 413)


def test_long_names_are_clipped_before_they_are_looked_up(pool, monkeypatch):
    seen = []
    monkeypatch.setattr("difflib.get_close_matches", lambda name, *_, **__: seen.append(len(name)) or [])
    http = client(pool)
    assert len(said(http.post("/predict", json={"texts": "a", "model": "m" * 100_000}), 404)) < 300
    assert "'" + "m" * 59 + "…'" in said(http.post("/inside", json={"model": "m" * 10_000}), 404)
    assert len(said(http.post("/predict", json={"texts": "a", "n" * 100_000: 1}), 422)) < 300
    assert len(said(http.post("/predict", json={"texts": "a", "search": "s" * 100_000}), 422)) < 300
    assert max(seen) <= 60
    assert clipped("a  b" + " " * 1_000_000, 10) == "a b…"


def test_long_requests_are_read_beside_the_event_loop(pool, monkeypatch):
    threads = []
    real = wire.parse
    monkeypatch.setattr(wire, "parse", lambda *given: threads.append(threading.current_thread().name) or real(*given))
    http = client(pool)
    for count in (1, 3_000):
        assert http.post("/tokenize", json={"texts": "the film " * count, "model": "bert"}).status_code == 200
    assert [name.startswith("unmask-long") for name in threads] == [False, True]


def test_a_long_text_is_encoded_as_a_short_one_and_others_go_on(models):
    tokenizer, text = Tokenizer.load(models.bert), "the film was [MASK], é한 " * 200
    assert len(text) > LONG
    found, wanted = tokenizer.encode(text), tokenizer.raw.encode(text, add_special_tokens=False)
    assert found.ids.tolist() == wanted.ids
    assert found.offsets.tolist() == [list(offset) for offset in wanted.offsets]
    assert found.words.tolist() == wanted.word_ids


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    "value",
    [
        [], {}, 1, "é\n", None, [[], {}, [[]]], {"a": {}, "b": [1, "x", {"c": [True, 1.5]}]}, (1, 2), [(1,), 2],
        [0.1] * 3_000, [[0.25] * 1_025] * 3, {"é": ["x" * 50] * 2_050}, {"a": None, "b": {"c": 1}},
    ],
)  # fmt: skip
def test_answers_are_written_as_json_writes_them(value):
    assert wire.encoded(value, 10**6).decode() == json.dumps(value, separators=(",", ":"))


def test_an_answer_has_a_limit_and_is_given_up_on_the_way():
    with pytest.raises(Refusal) as caught:
        wire.encoded([[0.5] * 100] * 50, 1_000)
    assert (caught.value.status, caught.value.sentence) == (
        413, "The answer has more than 1,000 bytes; request less at a time.",
    )  # fmt: skip


def test_answers_that_are_too_long_are_refused(pool):
    http = client(pool, answer=2_000)
    for path, body in (("/embed", {"texts": ["a"] * 20}), ("/wordpiece", {"model": "bert", "text": "the film " * 40})):
        assert "more than 2,000 bytes" in said(http.post(path, json=body), 413)
    assert http.post("/embed", json={"texts": "a"}).status_code == 200


def test_long_bodies_share_so_many_bytes(pool):
    app = build(pool, Settings(held=100_000))
    http, service = TestClient(app), app.state.service
    body = {"texts": "the film " * 4_000, "model": "classifier"}
    assert http.post("/predict", json=body).status_code == 200
    assert service.held == 0
    service.held = 80_000  # of others
    assert "long requests" in said(http.post("/predict", json=body), 429)
    assert "long answers" in said(http.post("/embed", json={"texts": ["a"] * 80}), 429)
    assert http.post("/predict", json={"texts": "the film", "model": "classifier"}).status_code == 200
    assert service.held == 80_000


def test_who_does_not_read_is_cut_off_and_keeps_nobody_waiting(models, monkeypatch):
    real = connection.Connection.connection_made

    def small(self, transport):  # what the system holds for the client
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        real(self, transport)

    monkeypatch.setattr(connection.Connection, "connection_made", small)
    with serving(models.encoder, read_seconds=1.0) as served:
        body = json.dumps({"texts": ["a"] * 2_000}).encode()
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect(served.place)
        slow.sendall((HEAD % len(body)).replace(b"/predict", b"/embed") + body)
        wait_for(lambda: served.service.held > 0)
        begin = time.monotonic()
        assert served.http.get("/health").status_code == 200
        wait_for(lambda: served.service.open == 0 and not served.service.held)
        assert 0.5 < time.monotonic() - begin < 15
        slow.close()


# ------------------------------------------------------------------------------------------------ connections


def test_a_head_that_does_not_come(models):
    with serving(models.classifier, head_seconds=1.0) as served:
        with socket.create_connection(served.place, timeout=20) as one:
            for part in (b"POST /predict HT", b"TP/1.1\r\nHost", b": x\r\n"):
                one.sendall(part)  # to send a little now and then does not help
                time.sleep(0.2)
            answer = received(one)
        assert b" 408 " in answer.split(b"\r\n")[0]
        assert b"did not arrive in time" in answer
        with socket.create_connection(served.place, timeout=20) as silent:
            assert silent.recv(100) == b""


def test_a_new_connection_takes_the_place_of_the_one_that_is_idle_for_longest(models):
    with serving(models.classifier, connections=4, batch_tokens=1) as served, ThreadPoolExecutor(2) as clients:
        served.free.clear()
        busy = clients.submit(ask, served, "good")  # one place, of the client's own connection
        wait_for(lambda: served.given)
        idle = [socket.create_connection(served.place, timeout=20) for _ in range(3)]
        wait_for(lambda: len(served.service.idle) == 3)
        for one in idle:
            one.sendall(b"POST /predict HTTP/1.1\r\n")
        assert b" 200 " in raw(served.place, HEALTH)
        assert closed(idle[0])
        served.free.set()
        assert busy.result().status_code == 200
        for one in idle:
            one.close()


def test_where_all_are_busy_a_new_connection_is_refused_in_one_sentence(models, caplog):
    connection._LOGGED.clear()
    with serving(models.classifier, connections=2, batch_tokens=1) as served:
        served.free.clear()
        busy = [socket.create_connection(served.place, timeout=20) for _ in range(2)]
        for one in busy:
            one.sendall(HEAD % 17 + b'{"texts": "good"}')
        wait_for(lambda: served.service.open == 2)
        answer = raw(served.place, HEALTH)
        assert b" 503 " in answer.split(b"\r\n")[0]
        assert b"Too many connections are open" in answer
        assert [record.message for record in caplog.records] == [
            "All connections are busy; the service refuses new ones."
        ]
        served.free.set()
        assert all(b" 200 " in received(one) for one in busy)
        for one in busy:
            one.close()


def test_the_limit_of_descriptors_is_one_of_connections(models, monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert connection.descriptors() == 32
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 4_096))
    assert connection.descriptors() == 960
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert connection.descriptors() > 10**9
    with serving(models.classifier) as served:
        held = [socket.create_connection(served.place, timeout=20) for _ in range(3)]
        wait_for(lambda: len(served.service.idle) >= 3)
        monkeypatch.setattr(connection, "descriptors", lambda: len(served.service.idle))
        assert b" 200 " in raw(served.place, HEALTH)
        assert closed(held[0])
        for one in held:
            one.close()


def test_descriptors_that_ran_out_are_one_sentence(caplog):
    connection._LOGGED.clear()
    context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
    for _ in range(3):
        server._failed(None, context)
    assert [(record.message, record.exc_info) for record in caplog.records] == [
        ("The service cannot accept more connections at the moment: Too many open files.", None)
    ]


def test_connections_are_taken_a_few_at_a_time():
    with server.bind("127.0.0.1", 0) as bound:
        bound.setblocking(False)
        place, taken, turns = bound.getsockname(), [], 0
        waiting = [socket.create_connection(place) for _ in range(10)]
        while len(taken) < 10:
            before = len(taken)
            try:
                while True:
                    taken.append(bound.accept()[0])
            except BlockingIOError:
                turns += 1
            assert len(taken) - before <= server.BURST
        assert turns > server.TURNS
        for one in (*taken, *waiting):
            one.close()


def test_what_clients_send_wrongly_is_not_logged(models, caplog):
    with serving(models.classifier) as served, caplog.at_level(logging.WARNING):
        assert b"The request is not valid HTTP" in raw(served.place, b"\0\0\r\n\r\n")
        assert b" 400 " in raw(served.place, b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n").split(b"\r\n")[0]
    assert caplog.records == []


def test_who_sends_no_more_gets_the_answer_and_who_is_gone_is_noticed(models):
    with serving(models.classifier) as served:
        served.free.clear()
        half = socket.create_connection(served.place, timeout=20)
        half.sendall(HEAD % 17 + b'{"texts": "good"}')
        half.shutdown(socket.SHUT_WR)
        wait_for(lambda: served.given == [["good"]])
        gone = socket.create_connection(served.place)
        gone.sendall(HEAD % 17 + b'{"texts": "gone"}')
        gone.close()
        wait_for(lambda: 'status="499"} 1' in served.http.get("/metrics").text)
        served.free.set()
        answer = b""
        while part := half.recv(65_536):  # and then it is closed
            answer += part
        heads, _, body = answer.rpartition(b"\r\n\r\n")
        assert set(heads.split(b"HTTP/1.1 100 Continue\r\n\r\n")[:-1]) == {b""}
        assert b"HTTP/1.1 200 OK" in heads
        assert json.loads(body)["model"] == "classifier"
        half.close()
        nothing = socket.create_connection(served.place, timeout=20)  # no whole request: it is just closed
        nothing.sendall(b"GET /health HT")
        nothing.shutdown(socket.SHUT_WR)
        assert nothing.recv(100) == b""
        nothing.close()


def test_requests_that_came_before_the_end_are_all_answered(models):
    with serving(models.classifier) as served, socket.create_connection(served.place, timeout=20) as half:
        half.sendall(3 * HEALTH)
        half.shutdown(socket.SHUT_WR)
        answer = b""
        while part := half.recv(65_536):
            answer += part
        assert answer.count(b'{"status":"ok"}') == 3


STRICT = {
    b"Content-Type: text/plain\r\nContent-Type: application/json\r\nContent-Length: 2\r\n": 400,
    b"Content-Type: application/json\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n": 400,
    b"Content-Length: 2\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n": 400,
    b"".join(b"X-%d: 1\r\n" % i for i in range(101)): 431,
    b"".join(b"X-%d: 1\r\n" % i for i in range(5_000)): 400,  # more than 16 KiB: it is not even parsed
}


@pytest.mark.parametrize(("headers", "status"), STRICT.items(), ids=range(len(STRICT)))
def test_heads_are_read_strictly(models, served, headers, status):
    answer = raw(served.place, b"POST /predict HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n{}")
    assert b" %d " % status in answer.split(b"\r\n")[0] or (status == 400 and len(headers) > 16_384 and not answer)
    assert served.http.get("/health").status_code == 200


@pytest.fixture(scope="module")
def served(models):
    with serving(models.classifier) as found:
        yield found


def test_a_host_is_a_name_and_a_port_and_nothing_else(pool):
    http = client(pool, access=Access(hosts=("localhost", "127.0.0.1", "::1")))
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]", "[::1]:8000"):
        assert http.get("/models", headers={"host": host}).status_code == 200
    for host in (
        "evil.com@localhost", "localhost:80@evil.com", "evil.com#@localhost", "localhost/evil", "localhost?", "::1",
        "localhost:", "localhost:80:80", "localhost,evil.com", "localhost evil", "[::1", "localhost:123456",
    ):  # fmt: skip
        assert "Host" in said(http.get("/models", headers={"host": host}), 400)


# ------------------------------------------------------------------------------------------------ work for nobody


def test_writing_stops_when_its_client_has_gone(models, monkeypatch):
    from unmask.generate import sampling

    steps, real = [], sampling._draw

    def slow(*given):
        steps.append(time.monotonic())
        time.sleep(0.02)
        return real(*given)

    monkeypatch.setattr(sampling, "_draw", slow)
    with serving(models.lm) as served:
        body = json.dumps({"texts": "the", "sampling": {"max_length": 512, "samples": 16}}).encode()
        gone = socket.create_connection(served.place)
        gone.sendall((HEAD % len(body)).replace(b"/predict", b"/generate") + body)
        wait_for(lambda: len(steps) > 2)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        queue = next(iter(served.service._batchers.values()))
        wait_for(lambda: not queue._running)
        assert len(steps) < 200
        assert queue.speed == 0  # what was given up says nothing of it
