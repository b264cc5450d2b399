"""The service in a thread of this process, at a real socket, for the tests that share it."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace

import httpx2 as httpx

from unmask.serve.http import Pool, Settings
from unmask.serve.http.app import build
from unmask.serve.http.server import Server, address, bind

HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


@contextlib.contextmanager
def serving(folder, **settings):
    """A service in a thread; a predictor answers only while `free` is set, and `given` has what it was asked."""
    pool = Pool([folder])
    predictor, free, given = pool.get().predictor, threading.Event(), []
    free.set()
    if predictor is not None:
        real = predictor.answer

        def answer(rows):
            given.append([row.text for row in rows])
            assert free.wait(20)
            return real(rows)

        predictor.answer = answer
    app = build(pool, Settings(**settings))
    bound = bind("127.0.0.1", 0)
    server = Server(app)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        with httpx.Client(base_url=address(bound), timeout=20) as client:
            yield SimpleNamespace(
                http=client, free=free, given=given, service=app.state.service, place=bound.getsockname()
            )
    finally:
        free.set()
        app.state.service.end()
        thread.join(10)
        assert not thread.is_alive()


def ask(served, texts):
    return served.http.post("/predict", json={"texts": texts})
