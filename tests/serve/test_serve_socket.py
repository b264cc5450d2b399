"""The service at a real socket: many clients, one that leaves, overload, signals."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("httpx2")
pytest.importorskip("uvicorn")
import httpx2 as httpx
from serve_toy import HEAD, ask, serving, wait_for
from starlette.testclient import TestClient

from unmask.cli import main
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.serve import Predictor
from unmask.serve.http import Pool
from unmask.serve.http.app import build
from unmask.serve.http.server import address, bind


def near(answer):
    """The same answer, but for the last digits of its numbers: those depend on what else is in the batch."""
    return json.loads(json.dumps(answer), parse_float=lambda number: pytest.approx(float(number), abs=1e-5))


def test_clients_at_once_share_batches_and_get_what_they_asked(models):
    texts = [f"the film was {word}" for word in ("good", "bad", "talk", "a list", "strings", "people")] * 4
    wanted = Predictor(models.classifier)(texts)
    with serving(models.classifier, wait=50.0) as served, ThreadPoolExecutor(16) as clients:
        found = list(clients.map(lambda text: ask(served, text), texts))
        assert {answer.status_code for answer in found} == {200}
        assert [answer.json()["answers"][0] for answer in found] == [near(answer) for answer in wanted]
        assert len(served.given) < len(texts) / 2
        assert served.service.open == 0


def test_who_hangs_up_leaves_the_queue(models):
    with serving(models.classifier) as served, ThreadPoolExecutor(2) as clients:
        served.free.clear()
        first = clients.submit(ask, served, "one")
        wait_for(lambda: served.given == [["one"]])
        gone = socket.create_connection(served.place)
        body = b'{"texts": "gone"}'
        gone.sendall(HEAD % len(body) + body)
        queue = next(iter(served.service._batchers.values()))
        wait_for(lambda: queue.requests == 1)
        gone.close()
        wait_for(lambda: queue.requests == 0)
        last = clients.submit(ask, served, "last")
        wait_for(lambda: queue.requests == 1)
        served.free.set()
        assert (first.result().status_code, last.result().status_code) == (200, 200)
        assert served.given == [["one"], ["last"]]
        assert 'status="499"} 1' in served.http.get("/metrics").text


def test_too_many_are_told_when_to_ask_again(models):
    with serving(models.classifier, queue_tokens=6, batch_tokens=1) as served, ThreadPoolExecutor(12) as clients:
        served.free.clear()
        first = clients.submit(ask, served, "good")
        wait_for(lambda: served.given)
        rest = [clients.submit(ask, served, "good") for _ in range(11)]
        wait_for(lambda: sum(future.done() for future in rest) >= 5)
        refused = [future.result() for future in rest if future.done()]
        served.free.set()
        answers = [first.result(), *(future.result() for future in rest)]
        assert {answer.status_code for answer in refused} == {429}
        assert {answer.status_code for answer in answers} == {200, 429}
        for answer in refused:
            assert int(answer.headers["retry-after"]) >= 1
            assert "The queue of classifier is full" in answer.json()["error"]
        assert ask(served, "good").status_code == 200  # and then it goes on


def test_too_many_open_requests(models):
    with serving(models.classifier, requests=2, batch_tokens=1) as served, ThreadPoolExecutor(2) as clients:
        served.free.clear()
        open_ = [clients.submit(ask, served, "good") for _ in range(2)]
        wait_for(lambda: served.service.open == 2)
        assert ask(served, "good").status_code == 429
        assert served.http.get("/health").status_code == 200
        served.free.set()
        assert [future.result().status_code for future in open_] == [200, 200]


def test_a_body_that_does_not_come(models):
    with serving(models.classifier, body_seconds=1.0) as served, socket.create_connection(served.place) as slow:
        slow.sendall(HEAD % 9 + b"{")
        slow.settimeout(20)
        assert b" 408 " in slow.recv(10_000).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "raw",
    [b"\0\0\0\0", b"GET / HTTP/9\r\n\r\n", b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"],
)
def test_what_is_no_http_is_refused(models, served, raw):
    with socket.create_connection(served.place) as client:
        client.sendall(raw + b"\r\n\r\n")
        client.settimeout(20)
        assert b" 400 " in client.recv(10_000).split(b"\r\n")[0]
    assert served.http.get("/health").status_code == 200


@pytest.fixture(scope="module")
def served(models):
    with serving(models.classifier) as found:
        yield found


def test_addresses(models):
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert address(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(UnmaskError, match=rf"The service cannot use 127\.0\.0\.1, port {port}:"):
            bind("127.0.0.1", port)
    for host, port in (("127.0.0.1", 99_999), ("no such host", 0), ("a" * 300, 0)):
        with pytest.raises(UnmaskError, match="The service cannot use"):
            bind(host, port)


def test_the_code_of_the_page_on_serving_runs(models, capsys):
    pytest.importorskip("openai")
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    with serving(models.encoder) as served:
        exec(code.replace("http://127.0.0.1:8000", str(served.http.base_url).rstrip("/")))
    count = sum(len(ids) + 2 for ids in Tokenizer.load(models.encoder).ids(["a great film", "a bore"]))
    assert capsys.readouterr().out == f"32 {count}\n"


def test_the_requests_of_the_page_on_serving_are_ones_that_may_be_sent(models):
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    asked = re.findall(r"curl http://127\.0\.0\.1:8000(/\w+) .*?-d '(.*?)'", page, re.S)
    assert [path for path, _ in asked] == ["/predict", "/embed", "/translate", "/generate", "/tokenize"]
    pool = Pool([f"sentiment={models.classifier}", models.encoder, models.writer, models.lm])
    http = TestClient(build(pool))
    for path, body in asked:
        answer = http.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text


# ------------------------------------------------------------------------------------------------ the command

SLOW = """
import sys, time
from unmask.serve.predictor import Predictor
real = Predictor.answer
def answer(self, rows):
    time.sleep({seconds})
    return real(self, rows)
Predictor.answer = answer
from unmask.cli import main
main(["serve", *sys.argv[1:]])
"""


@contextlib.contextmanager
def command(*arguments, seconds):
    """`unmask serve` in a process, with a model that takes so long; (process, address)."""
    code = SLOW.format(seconds=seconds)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        yield process, re.search(r"http://[\d.]+:\d+", line)[0]
    finally:
        process.kill()
        process.wait(10)


def test_sigterm_finishes_what_is_open_refuses_what_is_new_and_ends(models):
    with (
        command("--model", models.classifier, "--batch-tokens", "1", seconds=1.0) as (process, url),
        httpx.Client(base_url=url, timeout=20) as http,
        ThreadPoolExecutor(2) as clients,
    ):
        assert http.get("/ready").status_code == 200
        before = [clients.submit(http.post, "/predict", json={"texts": "good"}) for _ in range(2)]
        wait_for(lambda: "unmask_open_requests 3" in http.get("/metrics").text)
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: http.get("/ready").status_code == 503)
        refused = http.post("/predict", json={"texts": "good"})
        assert (refused.status_code, refused.json()["error"]) == (
            503, "The service is ending and accepts no new requests.",
        )  # fmt: skip
        assert "retry-after" in refused.headers
        assert http.get("/health").status_code == 200
        assert [future.result().status_code for future in before] == [200, 200]
        assert process.wait(10) == 0


def test_the_second_signal_ends_at_once(models):
    with (
        command("--model", models.classifier, seconds=30) as (process, url),
        httpx.Client(base_url=url, timeout=20) as http,
        ThreadPoolExecutor(1) as clients,
    ):
        future = clients.submit(http.post, "/predict", json={"texts": "good"})
        wait_for(lambda: "unmask_open_requests 2" in http.get("/metrics").text)
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: http.get("/ready").status_code == 503)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == -signal.SIGINT
        assert isinstance(future.exception(10), httpx.TransportError)


def told(capsys, *arguments):
    """The sentence in which `unmask serve` fails."""
    with pytest.raises(SystemExit) as caught:
        main(["serve", *map(str, arguments)])
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_the_command_fails_in_one_sentence(models, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "There is no model in runs/" in told(capsys)
    assert "There is no model folder nowhere" in told(capsys, "--model", "nowhere")
    assert "There is no file keys" in told(capsys, "--model", models.bert, "--api-key-file", "keys")
    assert "There is no field 'secnds'" in told(capsys, "--model", models.bert, "--secnds", "3")
    assert "must be at least 1" in told(capsys, "--model", models.bert, "--texts", "0")
    assert "port 70000: a port is" in told(capsys, "--model", models.bert, "--port", "70000")
    assert "is not an origin" in told(capsys, "--model", models.bert, "--allow-origin", "*")
    main(["serve", "--fields"])
    assert "--batch_tokens" in capsys.readouterr().out


def test_the_newest_run_is_served_where_none_is_named(models, tmp_path, monkeypatch, capsys):
    import os
    import shutil

    from unmask.serve.http import server

    monkeypatch.chdir(tmp_path)
    for age, (name, folder) in enumerate([("new", models.encoder), ("old", models.bert)]):
        shutil.copytree(folder, tmp_path / "runs" / name)
        os.utime(tmp_path / "runs" / name / "model.safetensors", (1_000 - age, 1_000 - age))
    shutil.copytree(models.bert, tmp_path / "runs" / "new" / "checkpoints" / "step-1")
    shutil.copytree(models.bert, tmp_path / "runs" / "new" / "generator")
    told_ = []
    monkeypatch.setattr(server, "run", lambda app, host, port, begun: told_.append((app, host, port)))
    main(["serve"])
    (app, host, port) = told_[0]
    assert app.state.service.pool.names() == ["new"]
    assert (host, port) == ("127.0.0.1", 8000)
    assert "The newest run is runs/new." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "keys", "warned"), [("127.0.0.1", False, False), ("0.0.0.0", False, True), ("0.0.0.0", True, False)]
)
def test_an_open_door_is_told(models, tmp_path, monkeypatch, capsys, host, keys, warned):
    from unmask.serve.http import server

    (tmp_path / "keys").write_text("secret")
    monkeypatch.setattr(server, "run", lambda app, host, port, begun: begun("http://address"))
    more = ["--api-key-file", str(tmp_path / "keys")] if keys else []
    main(["serve", "--model", str(models.bert), "--host", host, *more])
    out, err = capsys.readouterr()
    assert out == "bert at http://address (Ctrl-C ends)\n"
    assert ("Whoever reaches 0.0.0.0 may use these models" in err) == warned


def test_start_up_does_not_load_the_service():
    judge = "sys.exit(str({'starlette', 'uvicorn', 'torch'} & set(sys.modules) or ''))"
    code = f"import sys, unmask.cli\nunmask.cli.parser()\n{judge}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""
