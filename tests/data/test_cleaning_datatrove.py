"""Pipelines that datatrove carries out: the same documents for any number of tasks, the corpus of `corpus build`."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import stat
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from unmask.data.text import corpus
from unmask.data.text.cleaning.config import Filters, MinHash, Pipeline, Running
from unmask.data.text.cleaning.stages import Work
from unmask.data.text.reading import documents
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

pytestmark = pytest.mark.extras
pytest.importorskip("datatrove", reason="datatrove is not installed (unmask[processing])")

OFF = Filters(extract=False, gopher_repetition=False, gopher_quality=False, c4=False, fineweb=False, pii=False)
EXACT = MinHash(near_duplicates=False)
WORDS = [first + last for first in ("ba", "co", "di", "fu", "ga", "he", "lo", "mi") for last in ("ten", "ral", "vis")]
WORDS += [word[::-1] for word in WORDS]


def text(rng: random.Random, words: int = 80) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


def files_of(folder: Path, lines: list[str], files: int = 4) -> Path:
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines[number::files]))
    return folder


def clean(out: Path, data: Path | str, tasks: int = 1, **fields: object) -> tuple[list[str], list[str]]:
    """The documents of a pipeline in one process, and what was said."""
    from unmask.data.text.cleaning import executors

    settings = {"per": "line", "filters": OFF, "minhash": EXACT, **fields}
    work = Work.of(Pipeline(data=(str(data),), running=Running(tasks=tasks, workers=1), **settings), out)
    said: list[str] = []
    stages = work.stages()
    work.keep()
    executors.run(work, stages, said.append)
    rows = [gzip.decompress(path.read_bytes()) for path in sorted((out / "documents").iterdir())]
    return [json.loads(row)["text"] for part in rows for row in part.splitlines()], said


def test_the_corpus_is_that_of_corpus_build_for_any_number_of_tasks(tmp_path):
    rng = random.Random(0)
    lines = [text(rng, 12) for _ in range(60)]
    data = files_of(tmp_path / "in", [*lines, *lines[:7]])
    Tokenizer.train(lines, 300).save(tmp_path / "vocabulary")
    tokenizer = Tokenizer.load(tmp_path / "vocabulary")
    corpus.build(lambda: documents(data, per="line"), tmp_path / "whole", tokenizer=tokenizer, heldout=0.1)
    for tasks in (1, 3, 6):
        out = tmp_path / str(tasks)
        found, _ = clean(out, data, tasks, tokenizer=str(tmp_path / "vocabulary"), heldout=0.1)
        assert found == [document.text for document in documents(data, per="line")]
        for path in (tmp_path / "whole").iterdir():
            assert (out / "corpus" / path.name).read_bytes() == path.read_bytes(), (tasks, path.name)


def shingles(line: str) -> set[tuple[str, ...]]:
    words = line.split()
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def test_one_of_near_duplicates_is_kept_the_same_for_any_number_of_tasks(tmp_path):
    rng = random.Random(1)
    distinct = [text(rng) for _ in range(40)]
    near = []
    for line in distinct[:15]:
        words = line.split()
        words[rng.randrange(5, 70)] = "other"
        near.append(" ".join(words))
    lines = [*distinct, *near]
    rng.shuffle(lines)
    data = files_of(tmp_path / "in", lines)
    found = {tasks: clean(tmp_path / str(tasks), data, tasks, minhash=MinHash())[0] for tasks in (1, 3)}
    assert found[1] == found[3]
    kept = [shingles(line) for line in found[1]]
    assert len(kept) == len(distinct)
    for line in map(shingles, lines):  # each is kept, or like one that is
        assert max(len(line & other) / len(line | other) for other in kept) > 0.8
    likest = max(len(a & b) / len(a | b) for i, a in enumerate(kept) for b in kept[:i])
    assert likest < 0.5


def page(rng: random.Random, number: int) -> str:
    sentences = " ".join(f"The {text(rng, 9)} and the {rng.choice(WORDS)} of that were seen." for _ in range(7))
    article = (
        f"<article><p>{sentences} {number}</p><p>Write to a.b{number}@mail{number}.org or 8.8.8.{number}.</p></article>"
    )
    return f"<html><body><nav><a href='/'>Menu of pages</a></nav>{article}</body></html>"


def archive(pages: int) -> bytes:
    """A compressed WARC file."""
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    rng, file = random.Random(6), io.BytesIO()
    writer = WARCWriter(file, gzip=True)
    for number in range(pages):
        content = io.BytesIO(page(rng, number).encode())
        headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.0")
        writer.write_record(writer.create_warc_record(f"http://x/{number}", "response", content, http_headers=headers))
    return file.getvalue()


def test_the_main_text_of_pages_is_kept_without_addresses_of_persons(tmp_path):
    rng = random.Random(2)
    data = tmp_path / "in"
    data.mkdir()
    (data / "a.warc.gz").write_bytes(archive(3))
    (data / "b.html").write_text(page(rng, 3))
    (data / "c.txt").write_text(f"{text(rng)} <nav>\n")
    found, said = clean(tmp_path / "out", data, filters=OFF.replace(extract=True, pii=True))
    assert len(found) == 5
    assert all("Menu" not in one and "<p>" not in one for one in found)
    assert all(one.endswith("Write to email@example.com or 22.214.171.124.") for one in found[:4])
    assert found[4].endswith("<nav>")  # a text file stays as it is
    assert said == ["clean: 1 task done, 5 documents"]


def test_quality_filters_drop_what_they_are_for_and_say_so(tmp_path):
    rng = random.Random(3)
    good, code = (
        " ".join(f"The {text(rng, 12)} and that of the {rng.choice(WORDS)} have been here." for _ in range(8))
        for _ in range(2)
    )
    data = files_of(tmp_path / "in", [good, text(rng, 30), "the same words again. " * 60, f"{code} {{}}."], files=1)
    found, said = clean(tmp_path / "out", data, filters=Filters())
    assert found == [good]
    by = "Gopher Repetition 1, Gopher Quality 1, C4 Quality 1"
    assert said == [f"clean: 1 task done, 4 documents, 1 kept (dropped by {by})", *said[1:]]


def language_model(path: Path, words: dict[str, list[str]]) -> None:
    """A model in the format of fastText, in which every word has the vector of its language."""
    labels = list(words)
    listed = [(word, labels.index(name)) for name in labels for word in words[name]]
    entries = [*((word, 0) for word, _ in listed), *((f"__label__{name}", 1) for name in labels)]
    size = len(labels)
    settings = (size, 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100)  # dim … loss softmax, supervised, no buckets …
    parts = [struct.pack("<2i12id", 793712314, 12, *settings, 1e-4)]
    parts.append(struct.pack("<3i2q", len(entries), len(listed), size, len(entries), -1))
    parts += [word.encode() + b"\0" + struct.pack("<qb", 1, kind) for word, kind in entries]
    for rows in ([owner for _, owner in listed], range(size)):
        values = [9.0 * (column == row) for row in rows for column in range(size)]
        parts.append(struct.pack(f"<?2q{len(values)}f", False, len(rows), size, *values))
    path.write_bytes(b"".join(parts))


def test_a_language_is_kept_by_a_local_model(tmp_path):
    rng = random.Random(4)
    words = {"la": WORDS, "el": ["και", "λόγος", "νερό", "φως"]}
    language_model(tmp_path / "model.bin", words)
    lines = [" ".join(rng.choices(words[name], k=20)) for name in ("la", "el", "la")]
    data = files_of(tmp_path / "in", lines, files=1)
    chosen = OFF.replace(languages=("la",), language_model=str(tmp_path / "model.bin"))
    assert clean(tmp_path / "out", data, filters=chosen)[0] == [lines[0], lines[2]]
    for change, message in (
        ({"languages": ("fr",)}, "does not know the language 'fr'; it knows: el, la"),
        ({"language_model": str(data / "0.txt")}, "cannot be read as a fastText model"),
        ({"language_model": "nowhere.bin"}, "There is no file nowhere.bin"),
    ):
        with pytest.raises(UnmaskError, match=message):
            clean(tmp_path / "out2", data, filters=chosen.replace(**change))
    assert not (tmp_path / "out2").exists()


def test_damage_is_one_sentence_with_file_and_row(tmp_path):
    rows = [json.dumps({"text": "one"}), '{"text": "tw', json.dumps({"text": "three"})]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    with pytest.raises(UnmaskError, match=r"^\S+a\.jsonl:2\b[^\n]*$"):
        clean(tmp_path / "named", tmp_path / "a.jsonl")
    data = tmp_path / "in"
    data.mkdir()
    (data / "a.jsonl").write_text("\n".join(rows))
    (data / "b.txt").write_text("four\n")
    found, said = clean(tmp_path / "folder", data)  # as in `corpus build`
    assert found == ["four"]
    assert "passed over" in said[0]
    assert "a.jsonl: line 2" in said[0]
    (data / "c.warc.gz").write_bytes(archive(3)[:-200])
    with pytest.raises(UnmaskError, match=r"c\.warc\.gz is damaged after page [012]: fetch it again, or leave it out"):
        clean(tmp_path / "archive", data)


def test_complete_tasks_are_kept_and_others_are_done_again(tmp_path):
    rng = random.Random(5)
    lines = [text(rng, 20) for _ in range(30)]
    data, out = files_of(tmp_path / "in", lines), tmp_path / "out"
    wanted, _ = clean(out, data, 2, minhash=MinHash())
    first, second = sorted((out / "documents").iterdir())
    before = first.stat().st_mtime_ns
    second.write_bytes(b"cut off")  # as a process leaves it that is killed
    (out / "logs" / "filter" / "completions" / "00001").unlink()
    found, said = clean(out, data, 2, minhash=MinHash())
    assert found == wanted
    assert first.stat().st_mtime_ns == before
    assert said[-1] == "filter: 2 tasks done, 30 documents"
    (out / "cleaned" / "00000.jsonl.gz").unlink()
    (out / "logs" / "signatures" / "completions" / "00000").unlink()
    with pytest.raises(UnmaskError, match=r"cleaned/00000.jsonl.gz is missing: delete the folder of the pipeline"):
        clean(out, data, 2, minhash=MinHash())


def test_words_and_sentences_cover_the_text():
    from unmask.data.text.cleaning.steps import Words

    words = Words()
    assert words.word_tokenize("The cat's hat. 日本語 text") == ["The", "cat's", "hat", ".", "日", "本", "語", "text"]
    given = "  One is here.  Two\nis there! Three? "
    spans = words.span_tokenize(given)
    assert ["".join(given[a:b].split()) for a, b in spans] == ["Oneishere.", "Twoisthere!", "Three?"]
    assert all(a[1] == b[0] for a, b in pairwise(spans))


SLURM = Running(executor="slurm", tasks=3, workers=2, partition="cpu", memory=5, last_memory=60, hours=7)


def test_slurm_gets_a_job_for_each_stage_after_the_one_before(tmp_path):
    from unmask.data.text.cleaning import executors

    data = files_of(tmp_path / "in", ["one two three"] * 8)
    running = SLURM.replace(setup="source env/bin/activate")
    work = Work.of(Pipeline(data=(str(data),), per="line", filters=OFF, running=running), tmp_path / "out")
    script = executors.write_scripts(work, work.stages())
    stages = ["clean", "signatures", "buckets", "groups", "filter"]
    lines = script.read_text().splitlines()[2:]
    assert [line.partition("=")[0] for line in lines] == [f"job{number}" for number in range(1, 6)]
    for number, (line, stage) in enumerate(zip(lines, stages, strict=True), 1):
        path = tmp_path / "out" / "logs" / stage / "launch_script.slurm"
        assert line.endswith(f"{path})")
        assert (f"--dependency=afterok:$job{number - 1} " in line) == (number > 1)
        job = path.read_text()
        tasks = {"buckets": 14, "groups": 1}.get(stage, 3)
        for setting in (f"array=0-{tasks - 1}%2", "partition=cpu", "time=7:00:00", f"job-name=unmask-{stage}"):
            assert f"#SBATCH --{setting}\n" in job
        assert f"#SBATCH --mem-per-cpu={60 if stage == 'groups' else 5}G\n" in job
        assert "source env/bin/activate\n" in job


def test_jobs_of_slurm_are_submitted_by_sbatch(tmp_path, monkeypatch):
    from unmask.data.text.cleaning import executors

    given = tmp_path / "given"
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f'#!/bin/sh\necho "$@" >> {given}\necho Submitted batch job $(wc -l < {given})\n')
    sbatch.chmod(sbatch.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
    data = files_of(tmp_path / "in", ["one two three"] * 8)
    config = Pipeline(data=(str(data),), per="line", filters=OFF, minhash=EXACT, running=SLURM, tokenizer="v")
    work = Work.of(config, tmp_path / "out")
    assert executors.submit(work, work.stages()) == "5"  # each stage, and a job that adds its counts up
    calls = given.read_text().splitlines()
    assert [call.split()[0] for call in calls[::2]] == ["--export=ALL,RUN_OFFSET=0"] * 3
    assert ["dependency" in call for call in calls[::2]] == [False, True, True]
    assert calls[2].split()[1] == "--dependency=afterok:1"


def test_ray_gets_the_tasks_with_their_memory(tmp_path, monkeypatch):
    from unmask.data.text.cleaning import executors

    started: list[str] = []
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: bool(started), init=started.append))
    data = files_of(tmp_path / "in", ["one two three"])
    running = Running(executor="ray", tasks=3, workers=2, memory=5, last_memory=60, ray="there:6379")
    work = Work.of(Pipeline(data=(str(data),), filters=OFF, running=running), tmp_path / "out")
    made = {stage.name: executors._ray(work, stage) for stage in work.stages()}
    assert started == ["there:6379"]
    assert {name: (one.tasks, one.mem_per_cpu_gb) for name, one in made.items()} == {
        "clean": (3, 5), "signatures": (3, 5), "buckets": (14, 5), "groups": (1, 60), "filter": (3, 5),
    }  # fmt: skip
    assert all(one.workers == 2 for one in made.values())


def test_processes_pass_on_the_sentence_of_a_task_that_fails(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text"\n')
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n')
    command = [sys.executable, "-m", "unmask", "corpus", "pipeline", "a.jsonl", "b.jsonl", "--out", "out"]
    done = subprocess.run(
        [*command, "--tasks", "2", "--workers", "2"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("unmask: a.jsonl:2")
    assert done.stderr.count("\n") == 1
