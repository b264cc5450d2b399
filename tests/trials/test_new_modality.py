"""Pictures in one file outside the source: registered by two lines, they are learned, scored, answered and saved."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from starlette.testclient import TestClient

from unmask import huggingface
from unmask.cli import main
from unmask.data import collate
from unmask.data.labelled.rows import Row
from unmask.data.processor import Region
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.objectives import registry
from unmask.runs.finetuning import FineTuning, evaluate, finetune
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.runs.report import run_facts, write_report
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.tasks import TASKS
from unmask.train.events import Step

SIZES = {"train": 1000, "dev": 200, "test": 200}


@pytest.fixture(autouse=True)
def digits(monkeypatch):
    import digits

    monkeypatch.setitem(huggingface.TABLES, digits.TABLE.model_type, digits.TABLE)  # the two lines
    monkeypatch.setitem(TASKS, digits.Digits.task_name, digits.Digits)
    return digits


@pytest.fixture
def files(digits, tmp_path):
    pixels, labels = load_digits(return_X_y=True)
    begin = 0
    for name, size in SIZES.items():
        part = slice(begin, begin + size)
        np.savez(tmp_path / f"{name}.npz", pixels=pixels[part].reshape(-1, 8, 8), labels=labels[part])
        begin += size
    page = digits.Vit(length=17, patch=2, channels=1, dim=32, hidden=64, layers=2, heads=2)
    huggingface.save(tmp_path / "trunk", page.build(), digits.Pictures(patch=2))
    return tmp_path


def fine_tune(files, *more):
    given = {"model": files / "trunk", "task": "digits", "out": files / "tuned", "epochs": 12, "lr": 3e-3, "seeds": 1}
    given |= {name: files / f"{name}.npz" for name in SIZES} | {"device": "cpu", "precision": "fp32"}
    main(["finetune", *(part for name, value in given.items() for part in (f"--{name}", str(value))), *more])


def test_pictures_are_learned_scored_answered_saved_and_loaded(files, digits, capsys):
    fine_tune(files)
    result = json.loads((files / "tuned" / "results.json").read_text())
    dev = result["seeds"][0]["dev"]
    assert dev["accuracy"] > 0.85
    assert result["baseline"]["dev"]["accuracy"] < 0.2
    scores = evaluate(files / "tuned", files / "dev.npz")
    assert scores["metrics"]["accuracy"] == dev["accuracy"]
    assert scores["metrics"]["loss"] == pytest.approx(dev["loss"], rel=1e-4)

    loaded = huggingface.load(files / "tuned")
    assert loaded.processor == digits.Pictures(patch=2)
    assert loaded.tokenizer is None
    rows = digits.Digits.read_rows(files / "test.npz").rows
    predictor = Predictor(files / "tuned")
    answers = predictor.answer(rows)
    right = np.mean([answer["label"] == row.label for row, answer in zip(rows, answers, strict=True)])
    assert right == pytest.approx(result["seeds"][0]["test"]["accuracy"])
    with pytest.raises(UnmaskError, match="reads no texts: it has no tokenizer"):
        _ = predictor.tokenizer

    capsys.readouterr()
    main(["predict", "--model", str(files / "tuned"), "--file", str(files / "test.npz"), "--json"])
    said = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
    assert said == [answer["label"] for answer in answers]


def test_pictures_are_pretrained_by_masked_patches_resumed_and_fine_tuned(files, digits, monkeypatch, capsys):
    from masked_patches import MaskedPatchesConfig

    monkeypatch.setattr(registry, "OBJECTIVES", (*registry.OBJECTIVES, MaskedPatchesConfig))  # one more line
    monkeypatch.setattr(registry, "CHOOSABLE", (*registry.CHOOSABLE, MaskedPatchesConfig))
    folder = files / "pictures"
    folder.mkdir()
    for name, own in (("train", "train"), ("heldout", "dev")):
        (folder / f"{name}.npz").write_bytes((files / f"{own}.npz").read_bytes())
    digits.Pictures(patch=2).save(folder)
    page = digits.Vit(length=17, patch=2, channels=1, dim=32, hidden=64, layers=2, heads=2)
    config = Pretraining(model=page, objective=MaskedPatchesConfig()).override(
        {"steps": 200, "lr": 3e-3, "batch": 32, "precision": "fp32", "device": "cpu", "save_every": 100, "hide": 0.4}
    )
    run = Pretrain(config, [folder], files / "run")
    found = run.run()
    variance = np.concatenate([batch.targets["patches"].values.numpy() for batch in run.heldout]).var(0).mean()
    assert found.heldout["loss/patches"] < 0.6 * variance  # of the mean picture
    assert "Masked patches: loss" in write_report(files / "run").read_text()
    assert config.resumed(run_facts(files / "run")) == run.config

    half = Pretrain(config, [folder], files / "half")
    half.run(lambda event: event == Step(100) and half.trainer.stop("the test"))
    Pretrain(config, [folder], files / "half", resume=True).run()
    one, two = (huggingface.load(files / name).model.state_dict() for name in ("run", "half"))
    assert all(torch.equal(one[name], two[name]) for name in one)

    further = Pretraining().starting_from(files / "run")
    assert further.objective.kind == "patches"
    more = Pretrain(further.override({"steps": 20, "lr": 1e-3, "device": "cpu"}), [folder], files / "more")
    with torch.no_grad():
        before = more.evaluate(more.model.eval(), 0).numbers["loss/patches"]
    assert before == pytest.approx(found.heldout["loss/patches"], rel=0.2)
    with np.load(folder / "train.npz") as file:
        np.savez(folder / "train.npz", pixels=file["pixels"][:500], labels=file["labels"][:500])
    with pytest.raises(UnmaskError, match="began with other texts than those in"):
        Pretrain(config, [folder], files / "half", resume=True)
    capsys.readouterr()
    run_folder = ("--model", str(files / "run"))
    fine_tune(files, *run_folder)
    assert json.loads((files / "tuned" / "results.json").read_text())["seeds"][0]["dev"]["accuracy"] > 0.85


def test_pictures_are_served(files, digits):
    fine_tune(files)
    http = TestClient(build(Pool([str(files / "tuned")])))
    rows = digits.Digits.read_rows(files / "test.npz").rows[:3]
    given = [{"pixels": row.pixels.tolist()} for row in rows]
    found = http.post("/predict", json={"texts": given})
    assert found.status_code == 200, found.text
    wanted = [answer["label"] for answer in Predictor(files / "tuned").answer(rows)]
    assert [answer["label"] for answer in found.json()["answers"]] == wanted
    refusals = {
        '"a text"': "this model reads no text; it must be an object such as",
        '["a", "pair"]': "this model reads no text",
        "{}": "has no 'pixels'",
        '{"pixels": [1, 2]}': "'pixels' cannot be read: cannot reshape array",
        '{"pixels": "a text"}': "'pixels' cannot be read",
    }
    for item, sentence in refusals.items():
        refused = http.post("/predict", json={"texts": [json.loads(item)]})
        assert (refused.status_code // 100, sentence in refused.json()["error"]) == (4, True), refused.text
    for path in ("/tokenize", "/embed"):
        assert http.post(path, json={"texts": ["a text"]}).status_code // 100 == 4
    assert http.get("/models").status_code == 200
    with pytest.raises(UnmaskError, match="this model reads rows of the type Picture, not texts"):
        Predictor(files / "tuned").answer([Row("row 1")])


def test_a_place_is_a_box_of_pixels(digits):
    processor, picture = digits.Pictures(patch=2), np.arange(48.0).reshape(6, 8)
    values = processor.example(picture).signal[1]
    assert processor.describe(picture, 0) is None
    for place in range(1, 13):
        region = processor.describe(picture, place)
        (left, top), (right, bottom) = region.begin, region.end
        assert region == Region("pixels", (left, top), (left + 2, top + 2))
        inside = picture[top:bottom, left:right].ravel() / 16 - 0.5
        np.testing.assert_array_equal(values[place - 1], inside.astype(np.float32))


def test_a_picture_that_does_not_fit_is_refused(digits):
    with pytest.raises(UnmaskError, match="A picture of 8 x 7 pixels cannot be cut into patches of 2"):
        digits.Pictures(patch=2).example(np.zeros((8, 7)))


def test_pictures_of_several_sizes_share_a_batch(digits):
    model = digits.Vit(length=17, patch=2, channels=1).build(seed=0).eval()
    processor, rng = digits.Pictures(patch=2), np.random.default_rng(0)
    examples = [processor.example(rng.uniform(0, 16, size)) for size in ((8, 8), (4, 8), (2, 2))]
    padded, packed = processor.collate(examples), collate.pack(examples, 24, processor.pad)
    hidden = [model(batch).flatten(0, 1)[batch.starts] for batch in (padded, packed)]
    np.testing.assert_allclose(*(x.detach().numpy() for x in hidden), atol=2e-6)


def test_what_does_not_belong_together_is_refused(files, digits):
    (files / "t.tsv").write_text("text\tlabel\n" + "".join(f"word{i}\t{'ab'[i % 2]}\n" for i in range(40)))
    texts = FineTuning().override({"model": files / "trunk", "train": files / "t.tsv"})
    with pytest.raises(UnmaskError, match=r"trunk reads no texts: it has no tokenizer"):
        finetune(texts, files / "x")
    tokenizer = Tokenizer.train(["the cat sees the dog"] * 5, 40)
    model = digits.Vit().build()
    with pytest.raises(UnmaskError, match="The processor of this model must be a Pictures, not a Tokenizer"):
        huggingface.save(files / "wrong", model, tokenizer)
    bert = Bert(vocabulary=tokenizer.size, length=16, layers=1, dim=16, heads=2, hidden=32).build()
    with pytest.raises(UnmaskError, match="The processor of this model must be a Tokenizer, not a Pictures"):
        huggingface.save(files / "wrong", bert, digits.Pictures())
    assert not (files / "wrong").exists()
    (files / "trunk" / digits.FILE).unlink()
    (files / "trunk" / "manifest.json").unlink()
    with pytest.raises(UnmaskError, match=f"has no processor: put its {digits.FILE} into the folder"):
        Predictor(huggingface.load(files / "trunk", heads=digits.Digits(("a", "b")).heads))


def test_files_of_another_processor_go(files, digits):
    tokenizer = Tokenizer.train(["the cat sees the dog"] * 5, 40)
    bert = Bert(vocabulary=tokenizer.size, length=16, layers=1, dim=16, heads=2, hidden=32).build()
    huggingface.save(files / "trunk", bert, tokenizer)
    assert not (files / "trunk" / digits.FILE).exists()
    huggingface.save(files / "trunk", digits.Vit().build(), digits.Pictures())
    assert not (files / "trunk" / "tokenizer.json").exists()
    assert huggingface.load(files / "trunk").processor == digits.Pictures()
