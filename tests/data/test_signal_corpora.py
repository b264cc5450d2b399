"""Records without labels: a corpus is the same as its folder; long, damaged, repeated and unusual records."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from unmask.cli import main
from unmask.data.signals import wfdb
from unmask.data.signals.building import Decode, build
from unmask.data.signals.corpus import SignalCorpus
from unmask.data.signals.decoding import decode
from unmask.data.signals.folder import LONGEST, SignalFolder
from unmask.data.signals.inspect import check, render
from unmask.data.signals.items import items_of
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.signal import Signal
from unmask.errors import UnmaskError


def noise(seconds: float, rate: float, seed: int, leads: int = 1) -> Signal:
    samples = np.random.default_rng(seed).normal(size=(round(seconds * rate), leads)).astype(np.float32)
    return Signal(samples, rate, tuple("abc"[:leads]), ("mV",) * leads)


def write(path: Path, signal: Signal) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    wfdb.write(path, signal)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 records of several lengths and rates of two patients; one has 2.5 minutes."""
    folder = tmp_path_factory.mktemp("data") / "records"
    for i in range(60):
        seconds = 150.0 if i == 7 else 1.0 + 0.1 * (i % 7)
        write(folder / ("p1", "p2")[i % 2] / f"{i}.hea", noise(seconds, (50, 50, 125)[i % 3], i))
    SignalProcessor(rate=50, segment=10).save(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Path:
    out = folder.parent / "corpus"
    build(items_of(folder), out, shard_bytes=40_000)
    return out


def test_a_corpus_has_the_samples_splits_labels_and_processor_of_its_folder(folder, corpus):
    one, two = SignalFolder(folder), SignalCorpus(corpus)
    assert len(two.shards) > 1
    assert one.processor == two.processor == SignalProcessor(rate=50, segment=10)
    for name in ("train", "heldout"):
        files, stored = one.split(name), two.split(name)
        assert files.rate == stored.rate == 50
        assert np.array_equal(files.cost, stored.cost)
        assert files.labels == stored.labels
        assert [one.removesuffix(".hea") for one in files.names] == [one.removesuffix(".hea") for one in stored.names]
        for unit in range(len(files.sources)):
            found = files.read(unit)
            assert found.shape == (files.cost[unit], 1)
            assert np.array_equal(found, stored.read(unit))
    assert two.manifest["classes"] == {"p1": 30, "p2": 32}
    long = [unit for unit, name in enumerate(one.split("train").names) if "/7.hea" in name]
    whole = decode(folder / "p2" / "7.hea", 50).samples
    assert np.array_equal(np.concatenate([one.split("train").read(unit) for unit in long]), whole)
    assert len(long) == np.ceil(150 / LONGEST)


def test_another_rate_is_resampled_and_the_costs_are_exact(folder, corpus):
    for data in (SignalFolder(folder), SignalCorpus(corpus)):
        split = data.split("train").at_rate(40)
        assert [len(split.read(unit)) for unit in range(12)] == split.cost[:12].tolist()
        again = pickle.loads(pickle.dumps(split))  # noqa: S301
        assert np.array_equal(again.read(3), split.read(3))


def test_processes_and_tables_give_the_same_units(folder, corpus, tmp_path):
    decode_some, some = Decode(50), list(items_of(folder))[:4]
    sent = pickle.loads(pickle.dumps((decode_some, some)))  # noqa: S301
    assert [unit.digest for unit in sent[0](sent[1]).units] == [one.digest for one in decode_some(some).units]
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.hea"))
    table = folder / "t.csv"
    table.write_text("".join(["record,label\n", *(f"{name.with_suffix('')},{name.parent}\n" for name in names)]))
    found = build(items_of(table), tmp_path / "table", rate=50, shard_bytes=40_000)
    table.unlink()
    assert [shard.digests.tolist() for shard in found.shards] == [
        shard.digests.tolist() for shard in SignalCorpus(corpus).shards
    ]


def test_damaged_repeated_and_unusual_records_are_counted(folder, tmp_path):
    data = tmp_path / "in"
    for i in range(20):
        write(data / f"{i}.hea", noise(2.0, 50, i))
    (data / "3.dat").write_bytes((data / "3.dat").read_bytes()[:20])
    for name in ("5.hea", "5.dat"):
        shutil.copy(data / name, data / name.replace("5", "55"))
    (data / "55.hea").write_text((data / "55.hea").read_text().replace("5.dat", "55.dat"))
    write(data / "6.hea", noise(2.0, 100, 6, leads=2))
    flat = noise(4.0, 50, 8)
    flat.samples[50:150] = 0.25
    write(data / "8.hea", flat)
    report = check(items_of(data), rate=50)
    said = render(report)
    assert (report.records, report.damaged, report.copies) == (20, 1, 1)
    assert "3.dat is cut short" in said
    assert "1 record with a flat line of 1 s or more (8.hea)" in said
    assert "1 record with another number of samples a second than the corpus: they are resampled (6.hea)" in said
    assert report.leads == {"1 lead": 19, "2 leads": 1}
    built = build(items_of(data), tmp_path / "out", rate=50)
    assert built.manifest["damaged"]["count"] == 1
    assert len(built) == 20
    with pytest.raises(UnmaskError, match="At most 1% may be damaged"):
        build(items_of(data), tmp_path / "strict", rate=50, most_damaged=0.01)
    (data / "4.dat").write_bytes(b"")
    (data / "9.dat").unlink()
    split = SignalFolder(data).split("train")
    with pytest.raises(UnmaskError, match="At most 10% may be damaged"):
        [split.read(unit) for unit in range(len(split.cost))]


def test_files_without_a_rate_take_that_of_the_corpus(tmp_path):
    for i in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        np.savetxt(tmp_path / "in" / f"{i}.csv", noise(3.0, 50, i).samples, header="mV", comments="", delimiter=",")
    with pytest.raises(UnmaskError, match="does not say its samples a second: give --rate"):
        build(items_of(tmp_path / "in"), tmp_path / "none")
    assert (
        SignalCorpus(build(items_of(tmp_path / "in"), tmp_path / "out", rate=50).folder).split("train").cost[0] == 150
    )
    with pytest.raises(UnmaskError, match="rate of a corpus of records must be 1 to"):
        build(items_of(tmp_path / "in"), tmp_path / "more", rate=0.5)


def test_the_commands_build_check_and_verify(folder, tmp_path, capsys):
    out = tmp_path / "corpus"
    main(["corpus", "build", str(folder), "--out", str(out), "--longest", "30"])
    said = capsys.readouterr().out
    assert "60 records in 64 units" in said
    assert f"unmask pretrain masked-signal --corpus {out}" in said
    main(["corpus", "check", str(out)])
    assert "All checksums are right." in capsys.readouterr().out
    main(["corpus", "check", "--json", str(folder)])
    assert json.loads(capsys.readouterr().out)["records"] == 60
    with pytest.raises(SystemExit):
        main(["corpus", "build", str(folder), "--out", str(tmp_path / "x"), "--trim"])
    assert "--trim is for recordings, but" in capsys.readouterr().err
    samples = next(out.glob("*.samples"))
    samples.write_bytes(samples.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(SystemExit):
        main(["corpus", "check", str(out)])
