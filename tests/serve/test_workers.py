"""Workers: processes that answer at one address. One that dies is replaced; all of them end with their requests."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("httpx2")
pytest.importorskip("uvicorn")
import httpx2 as httpx
from serve_toy import wait_for
from starlette.testclient import TestClient

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.serve import Predictor
from unmask.serve.http import Pool, Settings
from unmask.serve.http.app import build
from unmask.serve.http.prometheus import Metrics, together

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied under Linux only")
if sys.platform == "linux":
    from unmask.serve.http import workers


# ------------------------------------------------------------------------------------------------ metrics of all


def test_the_metrics_of_all_workers_are_one_text():
    texts = {}
    for number in (1, 2):
        metrics = Metrics()
        metrics.requests.add(number, "/predict", "200")
        metrics.seconds.observe(0.2, "/predict")
        metrics.of('a"b\n# HELP').batch(1, 20, 0.3)
        texts[number] = metrics.text({"unmask_open_requests": ("Requests.", {"": number})})
    found = together(texts)
    families = re.findall(r"^# TYPE (\S+)", found, re.M)
    assert len(families) == len(set(families)) == texts[1].count("# TYPE")
    samples = [line for line in found.splitlines() if not line.startswith("#")]
    owners = [re.sub(r"_(bucket|sum|count)$", "", re.match(r"\w+", line)[0]) for line in samples]
    assert sorted(set(owners)) == sorted(set(families))
    assert [one for one, before in zip(owners, ["", *owners], strict=False) if one != before] == families  # in groups
    for number, text in texts.items():
        own = [line.replace(f'worker="{number}",', "").replace(f'{{worker="{number}"}}', "") for line in samples
               if f'worker="{number}"' in line]  # fmt: skip
        assert own == [line for line in text.splitlines() if not line.startswith("#")]
    assert 'unmask_requests_total{worker="2",route="/predict",status="200"} 2' in samples
    assert 'unmask_open_requests{worker="1"} 1' in samples


def test_a_board_gives_whole_texts_only():
    board = workers.Board(2)
    assert board.read(1) == board.read(2) == ""
    child = os.fork()
    if not child:  # another process writes
        board.write(2, "größer\n")
        os._exit(0)
    os.waitpid(child, 0)
    assert (board.read(1), board.read(2)) == ("", "größer\n")
    board.write(1, "x" * (workers.ROOM - workers.HEAD.size))
    board.write(2, "y" * workers.ROOM)  # has no room
    assert (set(board.read(1)), board.read(2)) == ({"x"}, "größer\n")
    board.memory[workers.ROOM + workers.HEAD.size] ^= 1  # half of another text
    assert board.read(2) == ""


# ------------------------------------------------------------------------------------------------ the crew


def crew(count, act, seconds=5.0):
    """Processes that write their number to the board and then call act(number, how often it has begun)."""
    board, begun = workers.Board(count), workers.Board(count)

    def work(number):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        begun.write(number, begun.read(number) + "x")
        act(number, len(begun.read(number)))
        board.write(number, str(os.getpid()))
        signal.pause()

    return workers.Crew(count, work, board, seconds)


def test_a_worker_that_dies_is_replaced_and_said(monkeypatch, caplog):
    monkeypatch.setattr(workers, "PAUSE", 0.0)
    parent = os.getpid()

    def act(number, times):
        if times == 2:
            os.kill(parent, signal.SIGTERM)

    made, before = crew(2, act), signal.getsignal(signal.SIGTERM)
    old = []

    def begun():
        old.extend(process.pid for process in made.processes.values())
        os.kill(old[1], signal.SIGKILL)

    with caplog.at_level(logging.WARNING):
        made.run(begun)
    assert made.processes[1].pid == old[0]
    new = made.processes[2].pid
    assert new != old[1]
    assert caplog.messages == [f"Worker 2 (process {old[1]}) was ended by SIGKILL; process {new} replaces it."]
    assert [process.exitcode for process in made.processes.values()] == [-signal.SIGTERM] * 2
    assert signal.getsignal(signal.SIGTERM) == before


def test_workers_that_die_at_their_start_stop_the_service():
    def act(number, times):
        if number == 2:
            os._exit(3)

    made = crew(2, act)
    with pytest.raises(UnmaskError, match="Worker 2 ended with status 3 before it answered"):
        made.run(lambda: pytest.fail("it has not begun"))
    assert not any(process.is_alive() for process in made.processes.values())


def test_a_worker_that_does_not_end_is_killed():
    def act(number, times):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    made = crew(1, act, seconds=0.3)
    with pytest.raises(UnmaskError, match=r"did not end within 0\.3 seconds"):
        made.run(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert made.processes[1].exitcode == -signal.SIGKILL


# ------------------------------------------------------------------------------------------------ notice


def test_between_the_signal_and_the_close_requests_are_answered(models, monkeypatch):
    app = build(Pool([models.classifier]), Settings(notice_seconds=60, drain_seconds=5))
    service, http = app.state.service, TestClient(app)
    service.pool.get()
    assert http.get("/ready").status_code == 200
    service.end()
    ends_at = service.ends_at
    assert http.get("/ready").status_code == 503
    assert http.get("/health").status_code == 200
    answer = http.post("/predict", json={"texts": "good"})
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert not service.ended
    service.end()  # again: the time stays
    assert service.ends_at == ends_at
    service.ends_at -= 60
    assert http.post("/predict", json={"texts": "good"}).status_code == 503
    assert service.ended


# ------------------------------------------------------------------------------------------------ the command


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workers", "0"], "--workers must be at least 1, not 0"),
        (["--threads", "-1"], "--threads must be at least 1, not -1"),
        (["--workers", "2", "--device", "cuda"], "share models that PyTorch computes on the CPU"),
        (["--workers", "2", "--backend", "onnx"], "share models that PyTorch computes on the CPU"),
        (["--notice-seconds", "-1"], "notice_seconds of the service must be at least 0"),
    ],
)
def test_what_cannot_be_is_one_sentence(models, capsys, arguments, sentence):
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--model", str(models.classifier), *arguments])
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


SLOW = """
import sys, time
from unmask.serve.predictor import Predictor
real = Predictor.answer
def answer(self, rows):
    time.sleep(4.0 if rows[0].text == "slow" else 0.0)
    return real(self, rows)
Predictor.answer = answer
from unmask.cli import main
main(["serve", *sys.argv[1:]])
"""


@contextlib.contextmanager
def serving(*arguments):
    """`unmask serve` with two workers, in which the text "slow" takes four seconds; (process, client)."""
    command = [sys.executable, "-c", SLOW, *map(str, arguments), "--workers", "2", "--precision", "fp32", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        with httpx.Client(base_url=re.search(r"http://[\d.]+:\d+", line)[0], timeout=30) as http:
            yield process, http
    finally:
        process.kill()
        process.wait(10)


def ask(http, text, model=None):
    """A request on a connection of its own, so that any worker may get it."""
    body = {"texts": text} | ({"model": model} if model else {})
    return http.post("/predict", json=body, headers={"connection": "close"})


def workers_of(process):
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    return list(map(int, children.stdout.split()))


def open_requests(http):
    """Worker -> requests that it is answering, but for one that asks for the metrics."""
    found = re.findall(r'unmask_open_requests\{worker="(\d)"\} (\d+)', http.get("/metrics").text)
    return {int(worker): int(count) for worker, count in found}


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_although_its_folder_is_gone(models, tmp_path):
    shutil.copytree(models.classifier, tmp_path / "here")
    shutil.copytree(models.tagger, tmp_path / "there")
    wanted = Predictor(models.classifier)(["good", "the film was bad"])
    with serving("--model", tmp_path / "here", tmp_path / "there", "--loaded", "1") as (process, http):
        shutil.rmtree(tmp_path / "here")
        shutil.rmtree(tmp_path / "there")
        for pid in workers_of(process):
            os.kill(pid, signal.SIGKILL)
            time.sleep(1.5)
            for _ in range(4):
                answer = ask(http, ["good", "the film was bad"])
                assert answer.status_code == 200
                for found, one in zip(answer.json()["answers"], wanted, strict=True):
                    assert found["scores"] == pytest.approx(one["scores"], abs=1e-5)
        gone = ask(http, "good", "there")
        assert gone.status_code == 503
        assert "The model there cannot be read: " in gone.json()["error"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        said = process.stderr.read()
        assert len(re.findall(r"Worker \d \(process \d+\) was ended by SIGKILL; process \d+ replaces it\.", said)) == 2
        assert "Traceback" not in said


@pytest.mark.slow
def test_under_load_every_request_is_answered_until_the_end(models):
    """Not ready first; what is open and what comes during the notice is answered, later requests get a 503."""
    with serving("--model", models.classifier, "--notice-seconds", "1") as (process, http), ThreadPoolExecutor(8) as at:
        slow = [at.submit(ask, http, "slow") for _ in range(4)]
        wait_for(lambda: sum(open_requests(http).values()) >= 5)
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: http.get("/ready").status_code == 503)
        assert http.get("/models").status_code == 200
        time.sleep(1.2)
        late = [at.submit(ask, http, "good") for _ in range(4)]
        for future in late:
            assert future.result().status_code == 503
            assert future.result().json() == {"error": "The service is ending and accepts no new requests."}
        assert [future.result().status_code for future in slow] == [200] * 4
        assert process.wait(10) == 0


@pytest.mark.slow
def test_a_second_signal_ends_all_workers_at_once(models):
    with serving("--model", models.classifier) as (process, http), ThreadPoolExecutor(1) as at:
        open_ = at.submit(ask, http, "slow")
        wait_for(lambda: sum(open_requests(http).values()) >= 2)
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: http.get("/ready").status_code == 503)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == -signal.SIGINT
        assert isinstance(open_.exception(10), httpx.TransportError)


@pytest.mark.slow
def test_workers_end_when_the_process_that_started_them_is_killed(models):
    with serving("--model", models.classifier) as (process, _):
        pids = workers_of(process)
        assert len(pids) == 2
        process.kill()
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
