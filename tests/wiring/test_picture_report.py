"""The report of a picture classifier: its confusion matrix, and thumbnails of dev pictures, of bounded size."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from unmask import huggingface, metrics
from unmask.cli import main
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture
from unmask.data.pictures.thumbnails import BYTES, SIDE, thumbnail
from unmask.errors import UnmaskError
from unmask.models.vit import Vit
from unmask.runs.finetuning.report import EXAMPLES, MOST_PAIRS
from unmask.runs.report import write_report
from unmask.tasks.image_classification import ImageClassification
from unmask.tasks.labels import SHOWN, right_and_wrong
from unmask.train.metrics import read as read_metrics

Image = pytest.importorskip("PIL.Image")
NAMES = ('<b>"x"', "plain", "<img src=x onerror=alert(1)>")


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


# ------------------------------------------------------------------------------------------------ parts


@pytest.mark.parametrize("shape", [(600, 400, 3), (96, 96, 3), (32, 32, 3), (1, 1, 1), (3, 5_000, 3), (500, 500, 1)])
def test_a_thumbnail_is_small(shape):
    content = thumbnail(noise(*shape))  # noise is the hardest to compress
    assert len(content) <= BYTES
    with Image.open(io.BytesIO(content)) as found:
        assert max(found.size) <= SIDE
        assert found.mode in ("P", "L" if shape[2] == 1 else "RGB")  # of few colours, or not
        if max(shape) == shape[0] == 600:
            assert found.size[0] / found.size[1] == pytest.approx(2 / 3, abs=0.05)


def test_a_small_picture_keeps_its_pixels():
    pixels = noise(24, 30)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(thumbnail(pixels)))), pixels)


def test_the_matrix_counts_as_scikit_learn_does():
    from sklearn.metrics import confusion_matrix

    rng = np.random.default_rng(0)
    true, predicted, labels = rng.integers(0, 4, 50), rng.integers(0, 3, 50), ["a", "b", "c", "d"]
    found = metrics.confusion(predicted, true, labels)
    dense = [[found[label].get(other, 0) for other in labels] for label in labels]
    np.testing.assert_array_equal(dense, confusion_matrix(true, predicted, labels=range(4)))
    assert 0 not in {count for counts in found.values() for count in counts.values()}
    assert metrics.confusion(true[:0], true[:0], labels) == {label: {} for label in labels}


def test_the_most_confident_mistakes_come_first_then_a_right_row_of_each_class():
    true = np.array([0, 0, 0, 1, 1, 1, 0])
    top = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8], [0.9, 0.1], [0.1, 0.9], [0.2, 0.8]])
    assert right_and_wrong(top, true, 9) == [4, 6, 2, 0, 3, 1, 5]
    assert right_and_wrong(top, true, 2) == [4, 6, 0, 3]
    assert right_and_wrong(top[:0], true[:0], 2) == []


# ------------------------------------------------------------------------------------------------ a run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of three classes with strange names, of which one cannot be told from another."""
    place = tmp_path_factory.mktemp("run")
    for part, count in (("train", 12), ("dev", 9)):
        for number, name in enumerate(("0", "1", "2")):
            (place / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = noise(120, 90, seed=1_000 * len(part) + 100 * number + i) // 2 + (100 if number == 0 else 0)
                Image.fromarray(pixels.astype(np.uint8)).save(place / part / name / f"{number} {part} {i}.png")
        lines = [
            json.dumps({"picture": str(path), "label": NAMES[int(path.parent.name)]})
            for path in sorted((place / part).rglob("*.png"))
        ]
        (place / f"{part}.jsonl").write_text("\n".join(lines))
    page = Vit(size=8, patch=4, dim=16, layers=1, heads=2, hidden=16)
    huggingface.save(place / "trunk", page.build(seed=0), ImageProcessor(size=8, patch=4))
    given = {"model": place / "trunk", "task": "image-classification", "seeds": 1, "epochs": 6, "lr": 3e-3}
    given |= {"train": place / "train.jsonl", "dev": place / "dev.jsonl", "out": place / "run", "device": "cpu"}
    main(["finetune", *(part for name, value in given.items() for part in (f"--{name}", str(value)))])
    return place / "run"


def test_the_results_have_the_matrix(run):
    results = json.loads((run / "results.json").read_text())
    found = results["confusion"]
    assert list(found) == results["labels"]
    assert [sum(counts.values()) for counts in found.values()] == [9, 9, 9]
    right = sum(found[name].get(name, 0) for name in found)
    assert right / 27 == results["seeds"][0]["dev"]["accuracy"]


def test_the_report_shows_matrix_and_examples(run):
    page = (run / "report.html").read_text()
    results, shown = json.loads((run / "results.json").read_text()), json.loads((run / EXAMPLES).read_text())["dev"]
    counts = {n for counts in results["confusion"].values() for n in counts.values()}
    cells = re.findall(r'class="cell"[^>]*>([^<]*)<', page)
    assert len(cells) == 9
    assert {int(cell) for cell in cells if cell} == counts
    wrong = [one for one in shown if one["label"] != one["predicted"]]
    right = [one for one in shown if one["label"] == one["predicted"]]
    assert len(wrong) == min(SHOWN, 27 - round(27 * results["seeds"][0]["dev"]["accuracy"]))
    assert shown == wrong + right
    assert len(right) <= SHOWN
    assert len(wrong) > 0 < len(right)
    assert [one["probability"] for one in wrong] == sorted((one["probability"] for one in wrong), reverse=True)
    pictures = re.findall(r'<img src="data:image/(?:png|jpeg);base64,([^"]+)"', page)
    assert [base64.b64decode(x) for x in pictures] == [base64.b64decode(one["picture"]) for one in shown]
    one = wrong[0]
    assert one["place"].count("dev.jsonl:") == 1


def test_strange_names_of_classes_are_text(run):
    page = (run / "report.html").read_text()
    assert "&lt;b&gt;&quot;x&quot;" in page
    assert '<b>"x"' not in page
    assert "<img src=x" not in page


def test_the_report_is_small(run):
    page = (run / "report.html").read_text()
    assert len(page) < 30_000 + 2 * SHOWN * BYTES * 4 / 3
    assert len((run / EXAMPLES).read_bytes()) < 2 * SHOWN * (BYTES * 4 / 3 + 1_000)


def test_a_report_is_written_again_without_the_pictures(run, tmp_path):
    for name in ("results.json", "run.json", EXAMPLES):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    seeds = tmp_path / "seeds" / "0"
    seeds.mkdir(parents=True)
    (seeds / "metrics.jsonl").write_bytes((run / "seeds" / "0" / "metrics.jsonl").read_bytes())
    assert read_metrics(seeds / "metrics.jsonl", "heldout")
    assert write_report(tmp_path).read_text() == (run / "report.html").read_text()
    for damaged in ({}, {"dev": [{}]}, {"dev": 7}, {"dev": [{"label": "a", "predicted": "a", "probability": "1"}]}):
        (tmp_path / EXAMPLES).write_text(json.dumps(damaged))
        with pytest.raises(UnmaskError, match=r"examples\.json is damaged"):
            write_report(tmp_path)
    (tmp_path / EXAMPLES).unlink()
    results = json.loads((tmp_path / "results.json").read_text())
    del results["confusion"]  # as in a run of version 0.1
    (tmp_path / "results.json").write_text(json.dumps(results))
    page = write_report(tmp_path).read_text()
    assert "<img" not in page
    assert "Confusion" not in page


def test_many_classes_are_a_table_of_pairs(run, tmp_path):
    (tmp_path / "run.json").write_bytes((run / "run.json").read_bytes())
    labels = [f"class {i}" for i in range(200)]
    confusion = {label: {label: 5, labels[(i + 1) % 200]: 1 + i} for i, label in enumerate(labels)}
    results = json.loads((run / "results.json").read_text()) | {"confusion": confusion}
    (tmp_path / "results.json").write_text(json.dumps(results))
    seeds = tmp_path / "seeds" / "0"
    seeds.mkdir(parents=True)
    (seeds / "metrics.jsonl").write_bytes((run / "seeds" / "0" / "metrics.jsonl").read_bytes())
    page = write_report(tmp_path).read_text()
    assert "Most confused classes" in page
    assert "Confusion matrix" not in page
    table = page[page.index("Most confused classes") :].partition("</table>")[0]
    rows = re.findall(r"<tr><td>(class \d+)</td><td>(class \d+)</td><td class=\"number\">(\d+)</td>", table)
    assert rows == [(f"class {i}", f"class {(i + 1) % 200}", str(1 + i)) for i in range(199, 199 - MOST_PAIRS, -1)]


def test_examples_are_chosen_from_the_answers(tmp_path):
    task = ImageClassification(["a", "b"])
    rows = []
    for i in range(40):
        Image.fromarray(noise(200, 200, seed=i)).save(tmp_path / f"{i}.png")
        rows.append(Picture(label="ab"[i % 2], place=f"{i}.png", source=tmp_path / f"{i}.png"))
    answers = [np.array([[0.5 + i / 100, 0.5 - i / 100]]) for i in range(40)]  # always "a"
    shown = task.examples(answers, rows)
    assert [one["place"] for one in shown[:3]] == ["39.png", "37.png", "35.png"]
    assert [one["label"] for one in shown] == ["b"] * SHOWN + ["a"] * SHOWN
    assert shown[0]["probability"] == pytest.approx(0.89)
