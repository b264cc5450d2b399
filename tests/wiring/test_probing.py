"""`unmask probe`: votes by their formula, scores of a trunk that tells all and of one that tells nothing, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import huggingface
from unmask.cli import main
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.text.tokenizer import Tokenizer
from unmask.models.bert import Bert
from unmask.models.swin import Swin
from unmask.models.vit import Vit
from unmask.runs.finetuning.probing import TEMPERATURE, nearest_votes
from unmask.tasks.summaries import summaries


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 12), st.integers(1, 15))
def test_votes_are_those_of_the_formula(seed, rows, K):
    rng = np.random.default_rng(seed)
    states, train = rng.normal(size=(rows, 5)), rng.normal(size=(9, 5))
    true = rng.integers(0, 3, 9)
    votes = nearest_votes(states, train, true, 3, K)
    for state, found in zip(states, votes, strict=True):
        cosines = [float(state @ other / np.linalg.norm(state) / np.linalg.norm(other)) for other in train]
        expected = np.zeros(3)
        for i in sorted(range(9), key=lambda i: -cosines[i])[:K]:
            expected[true[i]] += np.exp(cosines[i] / TEMPERATURE)
        np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), rtol=1e-6, atol=1e-12)


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright and dark noise, in a folder for each class, and a trunk."""
    Image = pytest.importorskip("PIL.Image")
    folder, rng = tmp_path_factory.mktemp("squares"), np.random.default_rng(0)
    for i in range(60):
        label = ("bright", "dark")[i % 2]
        place = folder / ("dev" if i < 20 else "train") / label
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 128, (8, 8, 3)) + 127 * (label == "bright")
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{i}.png")
    page = Vit(size=8, patch=4, dim=16, layers=1, heads=2, hidden=32, std=0.3)
    huggingface.save(folder / "trunk", page.build({}, seed=3), ImageProcessor(size=8, patch=4))
    return folder


def test_states_of_pictures_are_probed(squares: Path, capsys):
    given = ["--model", str(squares / "trunk"), "--task", "image-classification", "--train", str(squares / "train")]
    given += ["--dev", str(squares / "dev"), "--neighbours", "5"]
    main(["probe", *given, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["neighbours"]) == (40, 5)
    assert list(found["scores"]) == ["one label for all rows", "trunk", "random trunk", "pixels", "hog"]
    assert found["scores"]["one label for all rows"]["dev"] == {"accuracy": 0.5}
    for name in ("trunk", "random trunk"):  # light alone decides, which any weights pass on
        assert min(found["scores"][name]["dev"].values()) > 0.8
    assert found["scores"]["pixels"]["dev"]["linear"] == 1.0
    before = (squares / "trunk" / "model.safetensors").read_bytes()
    main(["probe", *given])
    shown = capsys.readouterr().out
    assert "dev                       neighbours      linear" in shown
    assert "pixels                             -      1.0000" in shown
    assert (squares / "trunk" / "model.safetensors").read_bytes() == before


def test_states_of_texts_are_probed(tmp_path: Path, capsys):
    rows = [(f"a good film number {i}", "yes") if i % 2 else (f"a bad film number {i}", "no") for i in range(40)]
    tokenizer = Tokenizer.train([text for text, _ in rows], 90)
    page = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=32, std=0.5)
    huggingface.save(tmp_path / "bert", page.build({}, seed=0), tokenizer)
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    main(["probe", "--model", str(tmp_path / "bert"), "--train", str(tmp_path / "rows.tsv"), "--json"])
    found = json.loads(capsys.readouterr().out)["scores"]
    assert set(found) == {"one label for all rows", "trunk", "random trunk", "one-hot", "tf-idf"}
    assert found["one-hot"]["dev"]["linear"] == 1.0


def test_summaries_are_of_the_class_token_or_of_all_places():
    processor = ImageProcessor(size=8, patch=4)
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in range(3)]
    examples = [processor.example(one) for one in pictures]
    model = Vit(size=8, patch=4, dim=16, layers=1, heads=2, hidden=32, std=0.3).build({}, seed=3).eval()
    with torch.no_grad():
        states_BTD = model(processor.collate(examples))
    np.testing.assert_allclose(summaries(model, examples, processor), states_BTD[:, 0], atol=1e-5)
    np.testing.assert_allclose(summaries(model, examples, processor, "mean"), states_BTD.mean(1), atol=1e-5)
    page = Swin(size=8, patch=2, dim=8, depths=(2, 2), heads=(2, 2), window=2)
    merged, processor = page.build({}, seed=0).eval(), ImageProcessor(size=8, patch=2).for_model(page)
    examples = [processor.example(one) for one in pictures]
    found = [summaries(merged, examples, processor, pooling) for pooling in ("summary", "mean")]
    np.testing.assert_allclose(*found, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pooling": "max"}, "--pooling must be"),
        ({"neighbours": "0"}, "--neighbours must be at least 1, not 0."),
        ({"task": "tagging"}, "A probe needs rows with one label each: --task classification"),
        ({"model": "nothing"}, "There is no model folder nothing"),
        ({"train": "nothing"}, "There is no file nothing"),
    ],
)
def test_what_makes_no_probe_is_refused(changes, sentence, squares: Path, capsys):
    given = {"model": squares / "trunk", "task": "image-classification", "train": squares / "train"} | changes
    with pytest.raises(SystemExit):
        main(["probe", *(part for name, value in given.items() for part in (f"--{name}", str(value)))])
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
