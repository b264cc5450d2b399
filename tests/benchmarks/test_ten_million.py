"""The benchmarks on ten million words: what text they take, what they count, and their tables."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import sys
import tarfile
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from unmask import huggingface
from unmask.data.text.corpus import Corpus
from unmask.data.text.stream import fixed
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.electra import Electra
from unmask.models.gpt import Gpt
from unmask.objectives import registry
from unmask.runs import recipes
from unmask.runs.speedrun import masked_tokens
from unmask.types import Batch

BOOK = "# Title: A Book\n\n-------\n\n##  Chapter 1 \n\nThe cat sat.\n\nIt slept.\n\n## Chapter 2\n\nA dog came.\n"
REVIEWS = ["I liked<br />it.", "Seen  before", "Not again"]


@pytest.fixture
def scripts() -> ModuleType:
    """ten_million, beside which the other scripts can be imported."""
    return importlib.import_module("ten_million")


def text(scripts: ModuleType) -> ModuleType:
    return importlib.import_module("ten_million_text")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as the scripts read it: two chapters, three reviews, of which the second is a test review, too."""
    for name, content in {
        "books/b.txt.gz": BOOK,
        "imdb/train.tsv.gz": "id\tlabel\ttext\n" + "".join(f"{i}\t0\t{review}\n" for i, review in enumerate(REVIEWS)),
        "imdb/test_part.tsv.gz": "id\tlabel\ttext\n9\t1\tseen Before\n",
    }.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(gzip.compress(content.encode()))
    return tmp_path / "data"


def found(score: float = 0.5, **fields: Any) -> dict[str, Any]:
    """What is measured of a system."""
    task = {"mean": score, "deviation": 0.01, "baseline": 0.25}
    masked = {"loss": 3.0, "correct": 0.4, "frequencies": {"loss/mlm": 6.5, "mlm/correct": 0.05}}
    return {
        **{"title": "BERT", "learned": "hidden words", "recipe": "bert-mini", "given": {}},
        **{"parameters": 5_400_000, "beside": 0, "steps": 1_234, "tokens_per_second": 9_876.0, "seconds": 1_800.0},
        **{"masked": masked, "blimp": {"accuracy": 0.6}, "cores": 4, "threads": 4},
        "tasks": dict.fromkeys(("sst2", "cola", "mrpc", "rte"), task),
        **fields,
    }


# ------------------------------------------------------------------------------------------------ text


def test_chapters_and_reviews_without_those_of_the_test_set(scripts: ModuleType, data: Path) -> None:
    assert list(text(scripts).documents(data, 1_000)) == [
        ("The cat sat.\n\nIt slept.", "b.txt.gz"),
        ("A dog came.", "b.txt.gz"),
        ("I liked\nit.", "imdb"),
        ("Not again", "imdb"),
    ]


def test_each_half_ends_when_it_has_its_words(scripts: ModuleType, data: Path) -> None:
    assert [source for _, source in text(scripts).documents(data, 10)] == ["b.txt.gz", "imdb", "imdb"]
    assert [source for _, source in text(scripts).documents(data, 4)] == ["b.txt.gz", "imdb"]


def test_the_corpus_is_built_once_and_must_be_of_the_same_text(
    scripts: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = text(scripts).corpus(data, tmp_path / "kept", 1_000, 60)
    assert first["train"]["words"] + first["heldout"]["words"] == 13
    before = (Path(first["folder"]) / "manifest.json").stat().st_mtime_ns
    assert text(scripts).corpus(data, tmp_path / "kept", 1_000, 60) == first
    assert (Path(first["folder"]) / "manifest.json").stat().st_mtime_ns == before
    (data / "books" / "c.txt.gz").write_bytes(gzip.compress(b"# C\nmore text\n"))
    with pytest.raises(UnmaskError, match="holds a corpus of other text"):
        text(scripts).corpus(data, tmp_path / "kept", 1_000, 60)


def test_what_is_missing_is_named(scripts: ModuleType, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match=r"no books \(\*\.txt\.gz\)"):
        list(text(scripts).documents(tmp_path, 10))
    (data / "imdb" / "test_part.tsv.gz").unlink()
    with pytest.raises(UnmaskError, match=r"There is no .*test_part\.tsv\.gz"):
        list(text(scripts).documents(data, 10))
    with pytest.raises(UnmaskError, match=r"There is no .*blimp\.tar\.gz"):
        text(scripts).pairs(data, tmp_path, None)


def test_pairs_are_unpacked_by_name_alone(scripts: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "blimp").mkdir()
    with tarfile.open(tmp_path / "blimp" / "blimp.tar.gz", "w:gz") as archive:
        for name in ("../a.jsonl", "b.jsonl", "c.txt", "d.jsonl"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"{}\n"))
    place = Path(text(scripts).pairs(tmp_path, tmp_path / "kept", 2))
    assert sorted(path.name for path in place.iterdir()) == ["a.jsonl", "b.jsonl"]


# ------------------------------------------------------------------------------------------------ numbers


def test_masked_words_are_counted_alike_for_all_models(scripts: ModuleType, tmp_path: Path) -> None:
    from unmask.data.text import corpus
    from unmask.data.text.reading import TextDocument

    texts = [f"the cat number {i} sat on the mat . a dog of {i} years came by ." for i in range(60)]
    built = corpus.build([TextDocument(t, "x") for t in texts], tmp_path / "corpus", vocabulary_size=120, heldout=0.3)
    sizes = {"vocabulary": built.tokenizer.size, "dim": 16, "layers": 1, "heads": 2, "length": 128}
    bert, gpt = tmp_path / "bert", tmp_path / "gpt"
    huggingface.save(
        bert, Bert(hidden=32, std=0.3).replace(**sizes).build(as_heads({"mlm": 0, "nsp": 2})), built.tokenizer
    )
    huggingface.save(gpt, Gpt().replace(**sizes).build(as_heads({"next": 0})), built.tokenizer)
    assert masked_tokens(gpt, built, 4) is None
    got = masked_tokens(bert, built, 4)
    learned = recipes.roberta_tiny().objective.build(built.tokenizer)
    split = Corpus(tmp_path / "corpus").split("heldout")
    model, loss, right, count = huggingface.load(bert).model, 0.0, 0, 0
    for batch in fixed([split], sample=learned.sample, corrupt=learned.corrupt, length=128, rows=1, limit_rows=4):
        target = batch.targets["mlm"]
        with torch.no_grad():
            logits = model.answer("mlm", model(batch), target.places)
        loss += float(F.cross_entropy(logits, target.values, reduction="sum"))
        right, count = right + int((logits.argmax(-1) == target.values).sum()), count + len(target.values)
    assert got["targets"] == count > 0
    assert got["loss"] == pytest.approx(loss / count, rel=1e-4)
    assert got["correct"] == pytest.approx(right / count)

    masking = importlib.import_module("masking")  # the causal model predicts the same tokens from the true ones before
    left = masking.from_the_left({"folder": str(gpt), "corpus": str(tmp_path / "corpus"), "heldout": 4})
    reader, loss = huggingface.load(gpt).model.eval(), 0.0
    for batch in fixed([split], sample=learned.sample, corrupt=learned.corrupt, length=128, rows=1, limit_rows=4):
        whole, target = masking.uncovered(batch), batch.targets["mlm"]
        assert set(target.places.tolist()) >= set((whole.tokens != batch.tokens).flatten().nonzero()[:, 0].tolist())
        with torch.no_grad():
            for place, value in zip(target.places.tolist(), target.values, strict=True):
                own = whole.documents[0, :place] == whole.documents[0, place]
                before = Batch(whole.tokens[:, :place][:, own])
                logits = reader.answer("next", reader(before), torch.tensor([int(own.sum()) - 1]))
                loss += float(F.cross_entropy(logits, value[None], reduction="sum"))
    assert left["targets"] == count
    assert left["loss"] == pytest.approx(loss / count, rel=1e-4)


def test_the_generator_counts_beside_but_for_what_it_shares(scripts: ModuleType) -> None:
    config = Electra(vocabulary=50, dim=16, layers=1, heads=2, hidden=32, factor=8, generator=0.5, length=16)
    model = config.build()
    alone = sum(x.numel() for x in config.build(as_heads({"rtd": 1})).parameters())
    assert scripts._beside(model) == model.parameters_total - alone > 0
    assert scripts._beside(Bert(vocabulary=50, dim=16, layers=1, heads=2, hidden=32).build(as_heads({"mlm": 0}))) == 0


def test_the_systems_weigh_about_the_same(scripts: ModuleType) -> None:
    lineage = importlib.import_module("lineage")
    weights = {}
    for name, system in lineage.SYSTEMS.items():
        config = recipes.find(system.recipe).override({**system.fields}).replace(model={"vocabulary": 8_192})
        first = next(iter(registry.selected(config.objective).items()))
        usual = as_heads({"next": 0} if first == ("written", "next") else {"mlm": 0})
        heads = None if first in (("written", "spans"), ("replaced", "true")) else usual
        with torch.device("meta"):
            model = config.model.build(heads, seed=None)
        weights[name] = model.parameters_total - scripts._beside(model)
    narrow = weights.pop("albert-narrow")
    assert narrow < 0.4 * weights["bert"]
    assert all(0.9 < weight / weights["bert"] < 1.12 for weight in weights.values()), weights


# ------------------------------------------------------------------------------------------------ tables


def test_the_table_of_the_lineage(scripts: ModuleType) -> None:
    lineage = importlib.import_module("lineage")
    words = {way: dict.fromkeys(lineage.TASKS, share) for way, share in {"one-hot": 0.3, "tf-idf": 0.35}.items()}
    lines = lineage.table({"bert": found(), "gpt": found(0.75, title="GPT", masked=None)}, words).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2] == [
        *("BERT", "hidden words", "5.4 M", "", "1,234", "9,876", "30.0", "3.00", "60.0"),
        *["50.0 ± 1.0"] * 3,
    ]
    assert cells[3][7] == ""
    assert cells[3][9] == "75.0 ± 1.0"
    assert cells[4] == ["TF-IDF, a regression", *[""] * 8, *["35.0"] * 3]
    assert cells[5] == ["one-hot words, a regression", *[""] * 8, *["30.0"] * 3]
    assert cells[6][7:] == ["6.50", "50.0", "25.0", "25.0", "25.0"]


def test_words_alone_are_scored_as_the_other_rows_are(scripts: ModuleType, tmp_path: Path) -> None:
    rows = [{"text": word, "label": label} for word, label in [("good", "1"), ("bad", "0"), ("fine", "1")] * 4]
    for split in ("train", "dev"):
        (tmp_path / split).with_suffix(".jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = {"train": str(tmp_path / "train.jsonl"), "dev": str(tmp_path / "dev.jsonl"), "paired": False}
    found = scripts.Bench.words(Namespace(tasks={"sst2": task, "cola": task}))
    assert found == {way: {"sst2": 1.0, "cola": 1.0} for way in ("one-hot", "tf-idf")}


def test_a_system_that_fails_does_not_end_the_others(
    scripts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lineage = importlib.import_module("lineage")
    parts = {part: {"words": 1, "tokens": 1, "documents": 1} for part in ("train", "heldout")}

    class Fake:
        def __init__(self, *_: Any) -> None:
            self.facts = {"vocabulary": 9, **parts}

        def words(self) -> dict[str, Any]:
            return {way: dict.fromkeys(lineage.TASKS, 0.3) for way in lineage.WORDS}

        def measure(self, name: str, *_: Any) -> dict[str, Any]:
            if name == "bert":
                raise UnmaskError("The turn 'pretrain' failed: so it is")
            return found()

    monkeypatch.setattr(scripts, "Bench", Fake)
    out = tmp_path / "out.json"
    arguments = ["lineage.py", "--data", str(tmp_path), "--folder", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--systems", "bert", "gpt"])
    with pytest.raises(SystemExit, match="Without a result: bert"):
        lineage.main()
    assert list(json.loads(out.read_text())["systems"]) == ["gpt"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--systems", "gpt", "lstm", "--resume"])
    lineage.main()
    assert "gpt is in" in capsys.readouterr().out
    assert list(json.loads(out.read_text())["systems"]) == ["gpt", "lstm"]
