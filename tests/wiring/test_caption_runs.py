"""Captions from the command line: train on digits, caption files, score, show where the model looked, and resume."""

from __future__ import annotations

import json

import numpy as np
import pytest

from unmask.cli import main
from unmask.data.pictures import compositions
from unmask.data.pictures.captions import captioned
from unmask.data.pictures.compositions import Digits
from unmask.errors import UnmaskError
from unmask.runs.report import write_report
from unmask.runs.translation import TrainTranslation, evaluate_pairs, systems
from unmask.serve.opened import open_model
from unmask.serve.translator import Translator
from unmask.visualize.captions import lit

SMALL = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 1), ("heads", 2))}


def config_of(**texts):
    small = {"dim": 16, "encoder_hidden": 16, "decoder_hidden": 16, **SMALL}
    few = {"most": 16, "heldout": 6, "scored": 2, "tokens": 64, **texts}
    training = {"minutes": None, "steps": 2, "evaluate_every": 1}
    return systems.find("captioner").replace(model=small, texts=few, training=training)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("captioner") / "run"
    TrainTranslation(config_of(), out, recipe="captioner").run()
    return out


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grids") / "x"
    rng = np.random.default_rng(0)
    compositions.write(folder, list(compositions.compositions(Digits.drawn(rng, 2), 20, rng)))
    return folder


def test_files_are_captioned_and_scored(run, pictures, capsys):
    picture = str(pictures / "00000.png")
    main(["translate", "--model", str(run), picture, "--align"])
    written = capsys.readouterr().out
    assert written.splitlines()[0] == Translator(run)([picture])[0]
    assert "</s>" in written
    known = [str(pictures)]
    found = evaluate_pairs(run, [str(pictures)], metric="exact", known=captioned(pictures))
    assert found["sentences"] == 20
    assert list(found["plain"]) == ["most frequent"]
    main(["evaluate", "--model", str(run), "--pairs", str(pictures), "--metric", "exact", "--known", *known, "--json"])
    assert json.loads(capsys.readouterr().out)["plain"] == found["plain"]


def test_the_page_of_a_run_shows_pictures(run):
    write_report(run)
    page = (run / "report.html").read_text()
    assert page.count("Patches that each word attends to") == 3


def test_attention_lies_on_patches(run, pictures, tmp_path, capsys):
    opened, source = open_model(run), str(pictures / "00001.png")
    found = opened.attention(source, "3 left of 7")
    (group,) = found["groups"]
    alignment = Translator(run).alignment(source, "3 left of 7")
    assert [cell["caption"] for cell in group["cells"]] == ["the picture", *alignment.target]
    weights = np.array(alignment.weights)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    main(["show", "attention", "--model", str(run), source, "--out", str(tmp_path / "a.html")])
    assert (tmp_path / "a.html").stat().st_size > 10_000


def test_colour_lies_on_the_patch_with_the_largest_weight():
    weights = np.array([0.4, 0.1, 0.05, 0.2, 0.25])  # a summary, then 2 x 2 patches
    found = lit(np.zeros((6, 6, 1), np.uint8), weights)
    red = found[..., 0].reshape(2, 3, 2, 3).mean((1, 3)).ravel()
    np.testing.assert_allclose(red / red.max(), weights[1:] / 0.25, atol=0.01)
    assert (found[:3, :3] == found[0, 0]).all()


def test_a_folder_is_trained_on_and_resumed(pictures, tmp_path):
    whole, cut = config_of(train=(str(pictures),)), tmp_path / "cut"
    TrainTranslation(whole, tmp_path / "whole", recipe="captioner").run()
    TrainTranslation(whole.replace(training={"steps": 2, "save_every": 1}), cut, recipe="captioner").run()
    files = [(folder / "model.safetensors").read_bytes() for folder in (tmp_path / "whole", cut)]
    assert files[0] == files[1]
    again = TrainTranslation(whole, cut, recipe="captioner", resume=True)
    assert again.processor.images == Translator(cut).tokenizer.images


def test_a_text_is_no_picture(run):
    with pytest.raises(UnmaskError, match="There is no picture"):
        Translator(run)(["a cat"])
