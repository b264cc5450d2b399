"""What a command settles for its own process: how threads wait, which memory is kept, where pages are large."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from unmask.cli import main, process


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_sleep_soon_unless_someone_says_otherwise(given, found, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert os.environ.get("GOMP_SPINCOUNT") == found
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)


@pytest.mark.parametrize(
    ("verb", "set_before", "enabled", "begins_again"),
    [
        ("translate", None, "always [madvise] never", True),
        ("translate", "glibc.malloc.check=1", "always [madvise] never", False),
        ("translate", None, "[always] madvise never", False),
        ("translate", None, None, False),
        ("recipes", None, "always [madvise] never", False),
    ],
)
def test_what_answers_begins_again_with_large_pages_where_they_are_on_request(
    verb, set_before, enabled, begins_again, monkeypatch, tmp_path, capsys
):
    begun = []
    monkeypatch.setattr(process, "ON_REQUEST", tmp_path / "enabled")
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.36")
    monkeypatch.setattr(os, "execv", lambda *call: begun.append(call))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "unmask", verb, "--help"])
    monkeypatch.setattr(sys, "argv", ["unmask", verb, "--help"])
    monkeypatch.setenv("GLIBC_TUNABLES", "")  # so that it is as it was when the test ends
    monkeypatch.delenv("GLIBC_TUNABLES")
    if set_before:
        monkeypatch.setenv("GLIBC_TUNABLES", set_before)
    if enabled:
        (tmp_path / "enabled").write_text(enabled)
    with pytest.raises(SystemExit):
        main()
    assert begun == ([(sys.executable, [sys.executable, "-m", "unmask", verb, "--help"])] if begins_again else [])
    assert os.environ.get("GLIBC_TUNABLES") == (process.PAGES if begins_again else set_before)


@pytest.mark.parametrize(
    ("arguments", "tunes", "answers"),
    [
        (["pretrain", "bert-tiny"], False, False),
        (["finetune"], True, False),
        (["translate", "--model", "pretrain"], False, True),
        (["recipes"], False, False),
        ([], False, False),
    ],
)
def test_commands_that_fine_tune_and_those_that_answer_are_told_apart(arguments, tunes, answers):
    assert process.tunes(arguments) == tunes
    assert process.answers(arguments) == answers


@pytest.mark.parametrize(("verb", "kept"), [("finetune", [True]), ("evaluate", []), ("pretrain", [])])
def test_what_fine_tunes_keeps_its_memory(verb, kept, monkeypatch, capsys):
    told = []
    monkeypatch.setattr(process, "keep_memory", lambda: told.append(True))
    monkeypatch.setattr(process, "take_large_pages", lambda: None)
    monkeypatch.setattr(sys, "argv", ["unmask", verb, "--help"])
    with pytest.raises(SystemExit):
        main()
    assert told == kept


TAKEN_ANEW = """
import ctypes, resource
from unmask.cli.process import keep_memory

print(int(keep_memory()))
libc, size = ctypes.CDLL(None), 40 << 20
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    place = libc.malloc(size)
    libc.memset(place, 1, size)
    libc.free(place)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not process._glibc(), reason="the C library is not glibc")
@pytest.mark.parametrize("set_before", [None, "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_memory_that_is_kept_is_not_taken_anew(set_before):
    environment = {name: value for name, value in os.environ.items() if name not in process.SET_BY}
    if set_before is not None:
        environment[set_before] = {"GLIBC_TUNABLES": "glibc.malloc.perturb=0"}.get(set_before, "131072")
    done = subprocess.run(
        [sys.executable, "-c", TAKEN_ANEW], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    told, *anew = map(int, done.stdout.split())
    pages = (40 << 20) // os.sysconf("SC_PAGE_SIZE")
    if set_before is None:
        assert (told, anew[0] > pages // 2) == (1, True)
        assert max(anew[1:]) < pages // 20
    else:
        assert (told, min(anew) > pages // 2) == (0, True)
