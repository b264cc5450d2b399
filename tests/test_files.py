"""Files are whole or absent, and a manifest tells any damage."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.files import (
    MANIFEST,
    atomic,
    atomic_folder,
    check,
    check_place,
    describe,
    sha256,
    verify_manifest,
    write_manifest,
    write_text,
)


def names(folder) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_file_appears_whole_with_its_folders(tmp_path):
    path = tmp_path / "a" / "b" / "text.txt"
    write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert names(path.parent) == ["text.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_what_fails_midway_leaves_the_old_file(error, tmp_path):
    path = tmp_path / "text.txt"
    write_text(path, "old")

    def write() -> None:
        with atomic(path) as temporary:
            temporary.write_text("new, but")
            assert path.read_text() == "old"
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["text.txt"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_folder_appears_whole_or_not_at_all(fails, tmp_path):
    folder = tmp_path / "a" / "folder"
    with contextlib.suppress(ZeroDivisionError), atomic_folder(folder) as whole:
        (whole / "text.txt").write_text("new")
        assert not folder.exists()
        assert 1 / (not fails)
    assert folder.exists() is not fails
    assert names(folder.parent) == ([] if fails else ["folder"])


def test_one_process_at_a_time_builds_a_folder(tmp_path):
    """Two recipes without data that start together need the same corpus."""
    pytest.importorskip("fcntl")
    build = """
import sys, time
from pathlib import Path
from unmask.files import alone
folder = Path(sys.argv[1])
with alone(folder):
    if not folder.is_dir():
        time.sleep(0.1)  # long enough for the other to look
        folder.mkdir()
        print("built")
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", build, str(tmp_path / "a" / "folder")], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted(said) == [b"", b"built\n"]


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "text.txt"
    write_text(path, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))  # a file that cannot grow, as on a full disk
    try:
        with pytest.raises(UnmaskError, match="could not be written"):
            write_text(path, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "old"
    assert names(tmp_path) == ["text.txt"]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    for path in (tmp_path / "file" / "below", tmp_path / "folder", tmp_path / ("x" * 300)):
        with pytest.raises(UnmaskError, match="could not be written") as caught:
            write_text(path, "new")
        assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["file", "folder"]


def test_a_place_is_looked_at_before_anything_is_computed_and_left_as_it_is(tmp_path):
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file" / "below", tmp_path):
        with pytest.raises(UnmaskError, match=r"could not be written: (Not|Is) a directory\.$"):
            check_place(path)
    for path in (tmp_path / "file", tmp_path / "new" / "newer" / "file"):
        check_place(path)
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.fixture
def sealed(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(range(256)))
    (tmp_path / "b.txt").write_text("text\n")
    (tmp_path / "notes.md").write_text("not listed")
    write_manifest(tmp_path, ["b.txt", "a.bin"])
    return tmp_path


def test_a_sealed_folder_is_accepted_and_unlisted_files_are_free(sealed):
    verify_manifest(sealed)
    (sealed / "notes.md").write_text("changed")
    verify_manifest(sealed)
    (sealed / MANIFEST).unlink()
    (sealed / "a.bin").unlink()
    verify_manifest(sealed)  # without a manifest there is no promise


def test_a_manifest_holds_what_it_says(sealed):
    facts = json.loads((sealed / MANIFEST).read_text())["files"]
    assert list(facts) == ["a.bin", "b.txt"]
    assert facts["a.bin"] == {"bytes": 256, "sha256": sha256(sealed / "a.bin")}
    assert sha256(sealed / "b.txt") == "b9e68e1bea3e5b19ca6b2f98b73a54b73daafaa250484902e09982e07a12e733"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_detected(sealed, data):
    name = data.draw(st.sampled_from(["a.bin", "b.txt", MANIFEST]))
    whole = (sealed / name).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    (sealed / name).write_bytes(changed)
    try:
        if not (name == MANIFEST and means_the_same(bytes(changed), whole)):
            with pytest.raises(UnmaskError):
                verify_manifest(sealed)
    finally:
        (sealed / name).write_bytes(whole)
    verify_manifest(sealed)


def means_the_same(a: bytes, b: bytes) -> bool:
    """White space may change between two JSON values."""
    try:
        return json.loads(a) == json.loads(b)
    except ValueError:
        return False


@given(cut=st.integers(0, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_a_truncated_file_is_detected(sealed, cut):
    whole = (sealed / "a.bin").read_bytes()
    (sealed / "a.bin").write_bytes(whole[:cut])
    with pytest.raises(UnmaskError, match=r"a\.bin does not match its checksum"):
        verify_manifest(sealed)
    (sealed / "a.bin").write_bytes(whole)


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        ("", "not valid JSON"),
        ("[]", "JSON object"),
        ("{}", "lists no files"),
        ('{"files": []}', "lists no files"),
        ('{"files": {"../a.bin": {}}}', "damaged at '../a.bin'"),
        ('{"files": {"/etc/passwd": {}}}', "damaged at '/etc/passwd'"),
        ('{"files": {"..": {}}}', "damaged at '..'"),
        ('{"files": {"a.bin": 3}}', "damaged at 'a.bin'"),
        ('{"files": {"a.bin": {}}}', "does not match"),
        ('{"files": {"c.bin": {"bytes": 1, "sha256": "0"}}}', "c.bin is missing"),
    ],
)
def test_a_wrong_manifest_is_refused(sealed, manifest, sentence):
    (sealed / MANIFEST).write_text(manifest)
    with pytest.raises(UnmaskError) as caught:
        verify_manifest(sealed)
    assert sentence in str(caught.value)


def test_sizes_alone_can_be_checked(tmp_path):
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "a.bin"
    path.write_bytes(b"abc")
    facts = {"sub/a.bin": describe(path)}
    path.write_bytes(b"abd")
    check(tmp_path, facts, "Build it again.", checksums=False)
    with pytest.raises(UnmaskError, match=r"a\.bin does not match its checksum: .* Build it again\.$"):
        check(tmp_path, facts, "Build it again.")
    path.write_bytes(b"ab")
    with pytest.raises(UnmaskError, match=r"a\.bin does not match its size"):
        check(tmp_path, facts, "Build it again.", checksums=False)
