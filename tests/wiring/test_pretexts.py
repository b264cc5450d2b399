"""Pretext tasks on pictures: their losses, and runs that learn, resume, are fine-tuned and open in transformers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from picture_toy import write_digits

from unmask import huggingface
from unmask.cli import main
from unmask.data.pictures.colour import CLASSES, lightness, to_lab
from unmask.data.pictures.folder import Pictures
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.deit import Deit
from unmask.models.vit import Vit
from unmask.objectives.colourisation import Colourisation, soft_targets
from unmask.objectives.contrastive_multiview import ContrastiveMultiviewConfig, across
from unmask.objectives.super_resolution import SuperResolution
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.train.events import Step
from unmask.train.metrics import read as read_metrics
from unmask.types import Kind

Image = pytest.importorskip("PIL.Image")
GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64}
USUAL = {"size": 8, "patch": 2, "device": "cpu", "precision": "fp32", "minutes": None, "lr": 3e-3, **SMALL}
COLOURED = ImageProcessor(size=8, patch=2)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits on black as PNG files, each class in its own hue."""
    return write_digits(tmp_path_factory.mktemp("pictures"), coloured=True)


RUNS = {
    "cmc-tiny": {"crop": 0.5, "projection": 16, "batch": 32, "heldout": 16},
    "colour-tiny": {"colour_cell": 2, "batch": 16, "heldout": 16},
    "super-resolution-tiny": {"upscaling": 2, "batch": 16, "heldout": 16},
}


def config(recipe: str, **changes: object) -> object:
    return recipes.find(recipe).override({**USUAL, **RUNS[recipe], **changes})


def term(recipe: str) -> str:
    return recipes.find(recipe).objective.objective.name


@pytest.mark.parametrize("recipe", RUNS)
def test_a_run_resumes_is_fine_tuned_and_opens_in_transformers(recipe, pictures, tmp_path):
    folder, usual = pictures / "train", {"steps": 20, "save_every": 10, "evaluate_every": 10}
    found = Pretrain(config(recipe, **usual), [folder], tmp_path / "run", recipe=recipe).run()
    assert math.isfinite(found.heldout[f"loss/{term(recipe)}"])
    half = Pretrain(config(recipe, **usual), [folder], tmp_path / "half", recipe=recipe)
    half.run(lambda event: event == Step(10) and half.trainer.stop("the test"))
    Pretrain(config(recipe, **usual), [folder], tmp_path / "half", resume=True).run()
    one, two = (huggingface.load(tmp_path / name).model for name in ("run", "half"))
    assert all(torch.equal(x, two.state_dict()[name]) for name, x in one.state_dict().items())
    assert set(one.heads) == recipes.find(recipe).objective.own_heads

    given = {"model": tmp_path / "run", "task": "image-classification", "train": folder, "dev": pictures / "test"}
    given |= {"epochs": 2, "lr": 1e-2, "seeds": 1, "device": "cpu", "precision": "fp32", "out": tmp_path / "tuned"}
    main(["finetune", *(part for name, value in given.items() for part in (f"--{name}", str(value)))])
    assert json.loads((tmp_path / "tuned" / "results.json").read_text())["seeds"][0]["dev"]["accuracy"] > 0.3
    transformers = pytest.importorskip("transformers")
    _, report = transformers.ViTModel.from_pretrained(
        tmp_path / "run", add_pooling_layer=False, output_loading_info=True
    )
    assert not report["missing_keys"]


@pytest.mark.parametrize("recipe", RUNS)
def test_a_second_summary_token_moves_no_patch(recipe):
    """A DeiT has a distillation token before its patches; all else about rows and targets is that of a ViT."""
    given = [np.random.default_rng(i).integers(0, 256, (9, 8, 3), dtype=np.uint8) for i in range(2)]
    batches = []
    for page in (Vit(size=8, patch=2, **SMALL), Deit(size=8, patch=2, **SMALL)):
        objective = config(recipe).objective.build(COLOURED.for_model(page))
        batches.append(objective.rows(given, np.random.default_rng(0)))
        loss = objective.loss(page.build(objective.heads), batches[-1])[term(recipe)]
        assert loss.count == batches[-1].counts[term(recipe)]
        assert torch.isfinite(loss.sum)
    one, two = batches
    assert torch.equal(one.signal.values, two.signal.values)
    assert torch.equal(one.targets[term(recipe)].values, two.targets[term(recipe)].values)
    assert (one.tokens.shape[1] + 1, len(one.signal.places)) == (two.tokens.shape[1], len(two.signal.places))


@pytest.mark.parametrize("recipe", RUNS)
def test_the_loss_trace_is_the_golden_one(recipe, pictures, tmp_path):
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads, golden = torch.get_num_threads(), GOLDEN / f"pretrain-{recipe}.json"
    torch.set_num_threads(1)
    try:
        Pretrain(config(recipe, steps=12, lr=2e-4, log_every=1), [pictures / "train"], tmp_path).run()
    finally:
        torch.set_num_threads(threads)
    trace = [round(row[f"loss/{term(recipe)}"], 4) for row in read_metrics(tmp_path / "metrics.jsonl", "train")]
    assert len(trace) == 12
    if not golden.exists():
        golden.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {golden.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(golden.read_text()), abs=2e-4)


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("cmc-tiny", {"channels": 1}, "its model reads grey pictures: set --channels 3"),
        ("cmc-tiny", {"similarity_temperature": 0.0}, "must be above 0, not 0.0"),
        ("cmc-tiny", {"crop": 1.5}, "above 0 and at most 1, not 1.5"),
        ("cmc-tiny", {"projection": 0}, "at least 1, not 0"),
        ("cmc-tiny", {"batch": 15}, "use an even number"),
        ("colour-tiny", {"channels": 1}, "its model reads grey pictures: set --channels 3"),
        ("colour-tiny", {"colour_cell": 4}, "Cells of 4 pixels do not divide patches of 2 pixels"),
        ("colour-tiny", {"colour_cell": 0}, "Cells of 0 pixels do not divide"),
        ("colour-tiny", {"uniform": 0.0}, "above 0 and at most 1, not 0.0"),
        ("super-resolution-tiny", {"upscaling": 1}, "cannot be shrunk 1 times"),
        ("super-resolution-tiny", {"upscaling": 3}, "Pictures of 8 pixels cannot be shrunk 3 times"),
    ],
)
def test_fields_that_make_no_run(recipe, changes, message, pictures, tmp_path):
    with pytest.raises(UnmaskError, match=message):
        Pretrain(config(recipe, **changes), [pictures / "train"], tmp_path)


@pytest.mark.parametrize("recipe", ["cmc-tiny", "colour-tiny"])
def test_grey_pictures_have_no_colours(recipe, tmp_path):
    for i in range(40):
        Image.new("RGB", (8, 8), (i, i, i)).save(tmp_path / f"{i}.png")
    with pytest.raises(UnmaskError, match="are grey, and this run learns from colours"):
        Pretrain(config(recipe, steps=1), [tmp_path], tmp_path / "run")
    for i in range(20):
        Image.new("RGB", (8, 8), (i, i, i + 1)).save(tmp_path / f"{i}.png")
    Pretrain(config(recipe, steps=1), [tmp_path], tmp_path / "run")


# ------------------------------------------------------------------------------------------------ CMC


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_the_loss_of_cmc_is_that_of_both_directions(temperature):
    draws = torch.Generator().manual_seed(0)
    u, v = (torch.randn(7, 6, generator=draws).requires_grad_() for _ in range(2))
    loss = across(u, v, temperature)

    def h(i: int, j: int) -> float:
        return math.exp(float((u[i] @ v[j] / (u[i].norm() * v[j].norm())).detach()) / temperature)

    total, right = 0.0, 0
    for i in range(7):
        total -= math.log(h(i, i) / sum(h(i, j) for j in range(7)))
        total -= math.log(h(i, i) / sum(h(j, i) for j in range(7)))
        right += (max(range(7), key=lambda j, i=i: h(i, j)) == i) + (max(range(7), key=lambda j, i=i: h(j, i)) == i)
    assert float(loss.sum.detach()) == pytest.approx(total, rel=1e-5)
    assert (loss.count, int(loss.metrics["correct"])) == (14, right)
    loss.sum.backward()
    assert all((x.grad.norm(dim=1) > 0).all() for x in (u, v))


def test_the_views_of_cmc_are_the_lightness_and_the_colours_of_one_crop():
    objective = ContrastiveMultiviewConfig(size=8, patch=2).build(COLOURED)
    pale = np.random.default_rng(0).integers(110, 140, (12, 9, 3), dtype=np.uint8)  # no colour is clipped
    grey, colours = objective.views(pale, np.random.default_rng(5))
    crop = to_lab(objective.augment(pale, np.random.default_rng(5)))
    np.testing.assert_allclose(to_lab(grey), crop * (1, 0, 0), atol=0.5)
    np.testing.assert_allclose(to_lab(colours), crop * (0, 1, 1) + (50, 0, 0), atol=1.5)

    one, two, other = (objective.rows([pale, pale[::-1]], np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert torch.equal(one.signal.values, two.signal.values)
    assert not torch.equal(one.signal.values, other.signal.values)
    assert one.targets["lab"].values.tolist() == [0, 1, 0, 1]
    assert (one.tokens.flatten()[one.targets["lab"].places] == int(Kind.CLS)).all()
    model = Vit(size=8, patch=2, **SMALL).build(objective.heads)
    assert objective.loss(model, one)["lab"].count == 4
    with pytest.raises(UnmaskError, match="use an even number"):
        objective.loss(model, one.rows(1, 4))


@pytest.mark.slow
def test_cmc_matches_lightness_and_colours(pictures, tmp_path):
    found = Pretrain(config("cmc-tiny", steps=120), [pictures / "train"], tmp_path).run()
    trace = [row["loss/lab"] for row in read_metrics(tmp_path / "metrics.jsonl", "train")]
    assert np.mean(trace[-3:]) < math.log(16) - 0.5  # log 16 is a guess among the 16 pictures of a batch
    assert found.heldout["lab/correct"] > 0


# ------------------------------------------------------------------------------------------------ colourisation


def softly(a: float, b: float) -> dict[int, float]:
    """Class -> share, by the definition of section 2.2."""
    squared = {q: float((a - CLASSES[q][0]) ** 2 + (b - CLASSES[q][1]) ** 2) for q in range(313)}
    near = sorted(squared, key=lambda q: squared[q])[:5]
    raw = {q: math.exp(-squared[q] / (2 * 5.0**2)) for q in near}
    return {q: share / sum(raw.values()) for q, share in raw.items()}


def test_a_colour_is_spread_over_the_nearest_classes():
    colours = torch.from_numpy(np.random.default_rng(0).uniform(-80, 80, (20, 3, 2)).astype(np.float32))
    classes, shares = soft_targets(colours)
    for colour, found, parts in zip(colours.view(-1, 2), classes.view(-1, 5), shares.view(-1, 5), strict=True):
        expected = softly(*colour.tolist())
        assert found.tolist() == list(expected)
        assert parts.tolist() == pytest.approx(list(expected.values()), abs=1e-5)


def test_the_loss_of_colourisation_is_that_of_the_equations(pictures):
    """Equations 2 to 4, cell by cell, and the best prediction that is the same for all."""
    paths = sorted((pictures / "train").rglob("*.png"))[::60]
    processor = ImageProcessor(size=8, patch=4)
    objective = Colourisation(processor, cell=2, uniform=0.3, splits=[Pictures(paths)])
    cells = []
    for path in paths:
        lab = to_lab(np.asarray(Image.open(path)))
        cells += [lab[y : y + 2, x : x + 2, 1:].mean((0, 1)).tolist() for y in (0, 2, 4, 6) for x in (0, 2, 4, 6)]
    p = np.zeros(313)
    for a, b in cells:
        for q, share in softly(a, b).items():
            p[q] += share / len(cells)
    w = 1 / (0.7 * p + 0.3 / 313)
    w /= (p * w).sum()
    np.testing.assert_allclose(objective.rarity_Q, w, rtol=1e-3)

    given = [np.asarray(Image.open(path)) for path in paths[:2]]
    batch = objective.rows(given, np.random.default_rng(0))
    model = Vit(size=8, patch=4, **SMALL).build(objective.heads)
    with torch.no_grad():
        hidden = model(batch)
        loss = objective.score(model, hidden, batch)
        logits = model.answer("colours", hidden, batch.signal.places).view(2, 2, 2, 2, 2, 313)
    log_p = logits.permute(0, 1, 3, 2, 4, 5).reshape(32, 313).log_softmax(-1).double().numpy()  # row by row of cells
    total, right = 0.0, 0
    for (a, b), row in zip(cells[:32], log_p, strict=True):
        shares = softly(a, b)
        nearest = next(iter(shares))
        total -= w[nearest] * sum(share * row[q] for q, share in shares.items())
        right += int(row.argmax()) == nearest
    assert float(loss.sum) == pytest.approx(total / 4, rel=1e-3)  # a mean over the four cells of each patch
    assert (loss.count, float(loss.metrics["correct"])) == (8, right / 4)

    weighted = np.zeros(313)
    for a, b in cells:
        shares = softly(a, b)
        for q, share in shares.items():
            weighted[q] += w[next(iter(shares))] * share
    best = np.log((weighted + 1) / (weighted + 1).sum())
    alone = 0.0
    for a, b in cells[:32]:
        shares = softly(a, b)
        alone -= w[next(iter(shares))] * sum(share * best[q] for q, share in shares.items())
    assert float(loss.metrics["frequencies"]) == pytest.approx(alone / 4, rel=1e-3)
    alike = Colourisation(processor, cell=2, uniform=1.0, splits=[Pictures(paths)])
    np.testing.assert_allclose(alike.rarity_Q, 1, rtol=1e-5)
    np.testing.assert_allclose(Colourisation(processor).constant_Q, -math.log(313), rtol=1e-5)


def test_colourisation_reads_the_lightness_alone():
    picture = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    objective = Colourisation(COLOURED, cell=1)
    one, two = (objective.rows([x], np.random.default_rng(0)) for x in (picture, lightness(picture)))
    assert torch.equal(one.signal.values, two.signal.values)
    assert not torch.equal(one.targets["colours"].values, two.targets["colours"].values)
    assert float(two.targets["colours"].values.abs().max()) < 1e-3


@pytest.mark.slow
def test_colours_are_predicted_from_the_shapes_of_digits(pictures, tmp_path):
    run = Pretrain(config("colour-tiny", steps=120, lr=1e-2), [pictures / "train"], tmp_path)
    found = run.run().heldout
    assert found["loss/colours"] < found["colours/frequencies"] - 0.5
    assert found["colours/correct"] > 0.4
    [line] = run.learned.summary(found, {}, {})
    assert line.endswith(f"(frequencies of colours alone: {found['colours/frequencies']:.2f}).")


# ------------------------------------------------------------------------------------------------ super-resolution


def test_the_loss_of_super_resolution_is_that_of_the_pixels():
    """The enlarged picture is that of Pillow, and the errors are those of all pixels, channel by channel."""
    processor = ImageProcessor(size=8, patch=4, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    objective = SuperResolution(processor, upscaling=2)
    draws = np.random.default_rng(0)
    pictures = [draws.integers(0, 256, shape, dtype=np.uint8) for shape in ((8, 8, 3), (13, 10, 3))]
    batch = objective.rows(pictures, draws)
    model = Vit(size=8, patch=4, **SMALL).build(objective.heads)
    with torch.no_grad():
        hidden = model(batch)
        loss = objective.score(model, hidden, batch)
        answers = model.answer("resolution", hidden, batch.signal.places).view(2, 2, 2, 3, 4, 4)
    difference = answers.permute(0, 1, 4, 2, 5, 3).reshape(2, 8, 8, 3).double().numpy()
    total = {"loss": 0.0, "error": 0.0, "bicubic": 0.0}
    for picture, plus in zip(pictures, difference, strict=True):
        sharp = Image.fromarray(picture).resize((8, 8), Image.Resampling.BILINEAR)
        again = sharp.resize((4, 4), Image.Resampling.BICUBIC).resize((8, 8), Image.Resampling.BICUBIC)
        wanted, read = (np.asarray(x) / 255 for x in (sharp, again))
        missing = wanted - read
        total["bicubic"] += (missing**2).mean()
        total["error"] += ((missing - plus * processor.std) ** 2).mean()
        total["loss"] += ((missing / processor.std - plus) ** 2).mean()
    assert float(loss.sum) == pytest.approx(total["loss"], rel=1e-4)
    assert loss.count == 2
    assert {name: float(x) for name, x in loss.metrics.items()} == pytest.approx(
        {name: total[name] for name in ("error", "bicubic")}, rel=1e-4
    )
    found = objective.derived({"resolution/error": 0.01, "resolution/bicubic": 0.0}, lambda: 1.0)
    assert found == pytest.approx({"resolution/psnr": 20, "resolution/bicubic_psnr": 100})


@pytest.mark.parametrize("channels", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_pictures_are_restored_better_than_by_bicubic_enlargement(channels, pictures, tmp_path):
    given = config("super-resolution-tiny", steps=100, lr=1e-2, channels=channels)
    run = Pretrain(given, [pictures / "train"], tmp_path)
    with torch.no_grad():
        fresh = run.evaluate(run.model.eval(), 0).numbers
    assert fresh["resolution/error"] == pytest.approx(fresh["resolution/bicubic"], rel=0.2)
    found = run.run().heldout
    assert found["resolution/psnr"] > found["resolution/bicubic_psnr"] + 0.8
    [line] = run.learned.summary(found, {}, {})
    assert f"{found['resolution/bicubic_psnr']:.2f} dB" in line
