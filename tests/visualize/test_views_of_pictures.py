"""Views inside models of pictures, each beside a plain recomputation, or beside transformers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

from unmask import huggingface
from unmask.cli import main
from unmask.data import collate
from unmask.data.pictures.colour import CLASSES, lightness, to_lab, to_rgb
from unmask.data.pictures.decoding import decode
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.models.deit import Deit
from unmask.models.mae import Mae
from unmask.models.resnet import SIZES as RESNET_SIZES
from unmask.models.resnet import ResNet
from unmask.models.swin import Swin
from unmask.models.vit import Vit
from unmask.nn import Attention
from unmask.nn.windows import WindowAttention
from unmask.objectives import registry
from unmask.objectives.colourisation import Colourisation
from unmask.objectives.contrastive import ContrastiveConfig
from unmask.objectives.masked_autoencoder import MaskedAutoencoder, MaskedAutoencoderConfig
from unmask.objectives.masked_patches import MaskedPatches, MaskedPatchesConfig
from unmask.objectives.super_resolution import SuperResolution
from unmask.runs import probes, recipes
from unmask.runs.pretraining import Pretrain
from unmask.runs.report import write_report
from unmask.train.events import Step
from unmask.types import Kind
from unmask.visualize import gallery, positions
from unmask.visualize.augmentation import augmentation
from unmask.visualize.filters import components, filters
from unmask.visualize.neighbours import nearest
from unmask.visualize.windows import regions, windows

Image = pytest.importorskip("PIL.Image")
SIZES = {"size": 8, "patch": 2, "dim": 16, "layers": 2, "heads": 2, "hidden": 32, "std": 0.3}
DECODER = {"decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 32}
IMAGENET = ImageProcessor(size=8, patch=2, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
PICTURES = [np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8) for seed in range(6)]


@pytest.mark.parametrize("processor", [IMAGENET, ImageProcessor(size=8, patch=4), replace(IMAGENET, scale=1 / 128)])
def test_patches_become_the_picture_again(processor):
    for picture in PICTURES:
        _, patches = processor.example(picture).signal
        np.testing.assert_array_equal(processor.picture(patches), picture)
    grey = ImageProcessor(size=8, patch=2, mean=(0.4,), std=(0.3,))
    np.testing.assert_array_equal(grey.picture(grey.example(PICTURES[0][..., :1]).signal[1]), PICTURES[0][..., :1])


# ------------------------------------------------------------------------------------------------ positions


@pytest.mark.parametrize("page", [Vit, Deit, Mae])
def test_each_patch_has_a_map_of_cosines(page):
    model = page(**SIZES).build(seed=0)
    found = positions.of_model(model)
    table = model.embedding.position.table.weight.detach().numpy()[len(page.summaries) :]
    maps = [gallery.values(cell) for cell in found["maps"]["cells"]]
    assert (len(maps), found["maps"]["across"], maps[0].shape) == (16, 4, (4, 4))
    for i in range(16):
        for j in range(16):
            cosine = table[i] @ table[j] / np.linalg.norm(table[i]) / np.linalg.norm(table[j])
            assert maps[i][j // 4, j % 4] == pytest.approx(cosine, abs=1e-3)
    assert found["kind"] == ("fixed" if page is Mae else "learned")
    assert "maps" not in positions.of_model(Bert(vocabulary=9, dim=8, layers=1, heads=2, hidden=8, length=4).build())


def test_biases_of_windows_are_those_of_the_scores():
    """A cell is the bias of the key that lies there relative to the query at the centre; the second stage has windows
    that use a part of their table alone."""
    model = Swin(size=8, patch=2, dim=8, depths=(2, 1), heads=(2, 4), window=3).build(seed=0)
    parts = [part for part in model.modules() if isinstance(part, WindowAttention)]
    for number, part in enumerate(parts):
        nn.init.normal_(part.attention.position.table, generator=torch.Generator().manual_seed(number))
    found = positions.of_model(model)
    assert [len(group["cells"]) for group in found["groups"]] == [2, 2, 4]
    assert [group["title"].endswith("shifted by 1") for group in found["groups"]] == [False, True, False]
    for part, group in zip(parts, found["groups"], strict=True):
        W = part.attention.position.used
        bias = part.attention.position.bias(W * W, W * W).detach().numpy()
        for head, cell in enumerate(group["cells"]):
            values = gallery.values(cell)
            assert values.shape == (2 * W - 1, 2 * W - 1)
            for query in np.ndindex(W, W):
                for key in np.ndindex(W, W):
                    shown = values[key[0] - query[0] + W - 1, key[1] - query[1] + W - 1]
                    assert shown == pytest.approx(bias[head, query[0] * W + query[1], key[0] * W + key[1]], abs=3e-3)
    largest = max(np.abs(gallery.values(cell)).max() for group in found["groups"] for cell in group["cells"])
    assert found["scale"] == pytest.approx(largest, rel=1e-3)


# ------------------------------------------------------------------------------------------------ filters


def test_components_are_those_of_a_pca():
    weights = np.random.default_rng(0).normal(size=(30, 12)) @ np.diag(np.arange(1, 13))
    found, shares = components(weights, 5)
    reference = PCA(5, svd_solver="full").fit(weights)
    np.testing.assert_allclose(shares, reference.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found), np.abs(reference.components_), atol=1e-9)
    assert (found.max(1) >= -found.min(1)).all()


def test_a_filter_is_shown_as_the_patch_that_it_responds_to():
    """All filters are multiples of one patch of a picture; the component is that patch, up to its mean and scale."""
    model = Vit(**SIZES).build(seed=0)
    values = IMAGENET.example(PICTURES[0]).signal[1][0]
    factors = torch.linspace(-1, 1, 16)
    with torch.no_grad():
        model.embedding.token.signal.project.weight.copy_(factors[:, None] * torch.from_numpy(values))
    [cell, *_] = filters(model)["groups"][0]["cells"]
    shown = gallery.pixels(cell).astype(float) - 128
    patch = values.reshape(3, 2, 2).transpose(1, 2, 0)
    largest = patch.flat[np.abs(patch).argmax()]
    np.testing.assert_allclose(shown / 127, patch / largest, atol=0.01)
    assert cell["caption"] == "100.0 %"


def test_kernels_of_a_convolution_are_shown():
    model = nn.Sequential(nn.Conv2d(3, 5, 7), nn.Conv2d(5, 5, 3))
    model.config = SimpleNamespace(offers=frozenset({"pictures"}), channels=3)
    [group] = filters(model)["groups"]
    kernels = model[0].weight.detach().numpy()
    assert [gallery.pixels(cell).shape for cell in group["cells"]] == [(7, 7, 3)] * 5
    for cell, kernel in zip(group["cells"], kernels, strict=True):
        expected = 128 + 127 * kernel.transpose(1, 2, 0) / np.abs(kernel).max()
        assert np.abs(gallery.pixels(cell) - expected).max() <= 0.5 + 1e-4
    with pytest.raises(UnmaskError, match="needs a model of pictures"):
        filters(Bert(vocabulary=9, dim=8, layers=1, heads=2, hidden=8).build())


# ------------------------------------------------------------------------------------------------ reconstruction


@pytest.mark.parametrize("normalised", [False, True])
def test_a_masked_autoencoder_restores_as_in_transformers(normalised, tmp_path):
    transformers = pytest.importorskip("transformers")
    page = Mae(**SIZES, **DECODER, normalised=normalised, rate=0.5)
    objective = MaskedAutoencoder(IMAGENET, rate=0.5, normalised=normalised)
    model = page.build(objective.heads, seed=0).eval()
    huggingface.save(tmp_path, model, IMAGENET)
    theirs = transformers.ViTMAEForPreTraining.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        [found] = objective.reconstruct(model, PICTURES[:1], np.random.default_rng(3))
        visible = objective.visible(np.random.default_rng(3))
        noise = torch.ones(1, 16).index_fill(1, torch.from_numpy(visible), 0)
        pixels = torch.from_numpy(IMAGENET.pixels(PICTURES[0]))[None]
        patches = theirs.patchify(pixels)
        restored = theirs(pixels, noise=noise).logits
        if normalised:
            restored = restored * (patches.var(-1, keepdim=True) + 1e-6).sqrt() + patches.mean(-1, keepdim=True)
        restored[:, visible] = patches[:, visible]
        pixels_CHW = theirs.unpatchify(restored)[0].numpy()
    expected = (pixels_CHW.transpose(1, 2, 0) * IMAGENET.std + IMAGENET.mean) * 255
    assert np.abs(found.restored - np.clip(expected, 0, 255)).max() <= 1
    _check(found, PICTURES[0], 8)


def test_masked_patches_are_restored_as_in_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    objective = MaskedPatches(IMAGENET, rate=0.4, square=2)
    model = Vit(**SIZES, hides=True).build(objective.heads, seed=0).eval()
    huggingface.save(tmp_path, model, IMAGENET)
    theirs = transformers.ViTForMaskedImageModeling.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        [found] = objective.reconstruct(model, PICTURES[:1], np.random.default_rng(3))
        hidden = objective.hidden(np.random.default_rng(3))
        pixels = torch.from_numpy(IMAGENET.pixels(PICTURES[0]))[None]
        restored = theirs(pixels, bool_masked_pos=torch.from_numpy(hidden)[None]).reconstruction[0].numpy()
    expected = np.clip((restored.transpose(1, 2, 0) * IMAGENET.std + IMAGENET.mean) * 255, 0, 255)
    assert np.abs(found.restored - expected)[found.hidden].max() <= 1
    _check(found, PICTURES[0], 8)


def test_super_resolution_adds_its_differences_to_the_enlarged_picture():
    objective = SuperResolution(IMAGENET, upscaling=2)
    model = Vit(**SIZES).build(objective.heads, seed=0).eval()
    small = Image.fromarray(PICTURES[0]).resize((4, 4), Image.Resampling.BICUBIC)
    enlarged = np.asarray(small.resize((8, 8), Image.Resampling.BICUBIC))
    with torch.inference_mode():
        [found] = objective.reconstruct(model, PICTURES[:1], np.random.default_rng(0))
        batch = collate.pad([IMAGENET.example(enlarged)], Kind.PADDING, multiple=1)
        differences = model.answer("resolution", model(batch), batch.signal.places, batch).view(4, 4, 3, 2, 2)
    shown = differences.permute(0, 3, 1, 4, 2).reshape(8, 8, 3).numpy() * IMAGENET.std * 255
    assert np.abs(found.restored - np.clip(enlarged + shown, 0, 255)).max() <= 1
    assert np.abs(shown).max() > 5
    np.testing.assert_array_equal(found.seen, enlarged)
    np.testing.assert_array_equal(found.picture, PICTURES[0])
    assert found.error == pytest.approx(np.abs(found.restored / 255 - PICTURES[0] / 255).mean())


def test_colours_are_the_annealed_means_of_the_classes():
    """Two classes at every cell, with shares of 0.6 and 0.4, in the first column of cells the other way round."""
    objective = Colourisation(ImageProcessor(size=8, patch=4), cell=2)
    red, blue = (int(np.flatnonzero((ab == CLASSES).all(1))[0]) for ab in ((50, 20), (10, -50)))
    logits = torch.full((4, 4, len(CLASSES)), -1e9)  # patches, cells
    logits[..., red], logits[..., blue] = np.log(0.4), np.log(0.6)
    logits[::2, ::2] = logits[::2, ::2].index_select(-1, _swapped(red, blue))

    class Known:
        device = torch.device("cpu")

        def __call__(self, batch):
            return None

        def answer(self, name, hidden, places, batch):
            return logits.flatten(1)

    [found] = objective.reconstruct(Known(), PICTURES[:1], np.random.default_rng(0))
    share = 0.4 ** (1 / 0.38) / (0.4 ** (1 / 0.38) + 0.6 ** (1 / 0.38))
    few, many = (x * CLASSES[red] + (1 - x) * CLASSES[blue] for x in (share, 1 - share))
    lab = to_lab(PICTURES[0])
    lab[:, 0, 1:], lab[:, 4:, 1:] = many, few  # outside of the middles of the outer cells, colours are constant
    expected = to_rgb(lab)
    assert np.abs(found.restored[:, 0].astype(int) - expected[:, 0]).max() <= 1
    assert np.abs(found.restored[:, 4:].astype(int) - expected[:, 4:]).max() <= 1
    np.testing.assert_array_equal(found.seen, lightness(PICTURES[0]))


def _swapped(one: int, other: int) -> torch.Tensor:
    numbers = torch.arange(len(CLASSES))
    numbers[one], numbers[other] = other, one
    return numbers


def _check(found, picture: np.ndarray, masked: int) -> None:
    """Visible pixels are those of the picture; the error is a mean over the masked ones; masked patches are grey."""
    assert found.hidden.sum() == masked * 4
    np.testing.assert_array_equal(found.picture, picture)
    np.testing.assert_array_equal(found.restored[~found.hidden], picture[~found.hidden])
    np.testing.assert_array_equal(found.seen[~found.hidden], picture[~found.hidden])
    assert (found.seen[found.hidden] == 128).all()
    differences = [
        abs(int(found.restored[i, j, c]) - int(picture[i, j, c])) / 255
        for i, j in zip(*np.nonzero(found.hidden), strict=True)
        for c in range(3)
    ]
    assert found.error == pytest.approx(sum(differences) / len(differences))


def test_the_objective_of_a_folder_is_found_by_its_heads():
    masked, restored = Vit(**SIZES, hides=True), Mae(**SIZES, **DECODER, rate=0.6, normalised=True)
    assert registry.trained_by(masked, ["patches"]) == MaskedPatchesConfig(size=8, patch=2)
    assert registry.trained_by(restored, ["pixels"]) == MaskedAutoencoderConfig(
        size=8, patch=2, rate=0.6, normalised=True
    )
    assert registry.trained_by(masked, ["image_classification"]) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with one even colour each, in two folders, and a copy of the first."""
    place = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(24):
        path = place / ("a" if i % 2 else "b") / f"{i:02}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = np.broadcast_to(rng.integers(0, 256, 3, dtype=np.uint8), (8, 8, 3)).copy()
        pixels[:4] //= 2
        Image.fromarray(pixels).save(path)
    (place / "b" / "copy.png").write_bytes((place / "b" / "00.png").read_bytes())
    return place


def _run(folder: Path, out: Path, **how: object) -> Pretrain:
    usual = {"steps": 20, "lr": 3e-3, "batch": 8, "device": "cpu", "precision": "fp32", "heldout": 8, "minutes": None}
    sizes = {**SIZES, **DECODER, "save_every": 10, "evaluate_every": 10, "rate": 0.5}
    return Pretrain(recipes.find("mae-tiny").override({**sizes, **usual}), [folder], out, recipe="mae-tiny", **how)


def test_a_run_keeps_what_it_restores_and_its_report_shows_it(folder, tmp_path):
    _run(folder, tmp_path / "run").run()
    lines = probes.read(tmp_path / "run")
    assert [line["step"] for line in lines] == [0, 10, 20]
    shown = [probes.pictures(sample) for sample in lines[-1]["samples"]]
    assert [list(one) for one in shown] == [["picture", "masked", "restored"]] * len(shown)
    assert 1 <= len(shown) <= 4

    loaded = huggingface.load(tmp_path / "run")
    objective = MaskedAutoencoder(loaded.processor, rate=0.5)
    given = [decode(one["picture"]) for one in shown]
    with torch.inference_mode():
        found = objective.reconstruct(loaded.model, given, np.random.default_rng(0))
    for one, files in zip(found, shown, strict=True):
        assert np.abs(decode(files["restored"]) - one.restored.astype(int)).max() <= 1
        np.testing.assert_array_equal(decode(files["masked"]), one.seen)
    first = probes.pictures(lines[0]["samples"][0])
    assert (first["masked"], first["picture"]) == (shown[0]["masked"], shown[0]["picture"])
    assert first["restored"] != shown[0]["restored"]

    report = write_report(tmp_path / "run").read_text()
    assert report.count("<img src") == 5 * len(shown)  # picture, masked, three evaluations
    assert "Restored during training: held-out picture 1" in report
    assert "Predictions during training" not in report

    half = _run(folder, tmp_path / "half")
    half.run(lambda event: event == Step(10) and half.trainer.stop("the test"))
    _run(folder, tmp_path / "half", resume=True).run()
    assert (tmp_path / "half" / probes.FILE).read_bytes() == (tmp_path / "run" / probes.FILE).read_bytes()


@pytest.mark.parametrize(("name", "seen"), [("colour-tiny", "lightness"), ("super-resolution-tiny", "enlarged")])
def test_runs_that_restore_colours_and_details_are_shown(name, seen, folder, tmp_path, capsys):
    usual = {"steps": 2, "batch": 8, "device": "cpu", "precision": "bf16", "heldout": 8, "minutes": None}
    usual |= {"colour_cell": 2} if name == "colour-tiny" else {"upscaling": 2}
    run = tmp_path / "run"
    Pretrain(recipes.find(name).override({**SIZES, **usual}), [folder], run, recipe=name).run()
    [shown, *_] = [probes.pictures(sample) for sample in probes.read(run)[-1]["samples"]]
    assert list(shown) == ["picture", seen, "restored"]
    given = [
        "show",
        "reconstruction",
        "--model",
        str(run),
        str(folder / "b" / "00.png"),
        "--out",
        str(tmp_path / "x.html"),
    ]
    main(given)
    text = (tmp_path / "x.html").read_text()
    assert f'"caption":"{seen}"' in text
    assert text.count('"caption":"restored, error') == 1
    with pytest.raises(SystemExit):
        main([*given, "--rates", "0.5"])
    assert "--rates and --draws are for masked patches" in capsys.readouterr().err


def test_damaged_pictures_of_samples_are_left_out(folder, tmp_path):
    _run(folder, tmp_path).run()
    lines = probes.read(tmp_path)
    for line, bent in zip(lines, (7, {"restored": 7}, {"picture": "???", "restored": "AAAA"}), strict=True):
        line["samples"][0]["pictures"] = bent
    (tmp_path / probes.FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [len(probes.pictures(line["samples"][0])) for line in lines] == [0, 0, 1]
    assert "<script" not in write_report(tmp_path).read_text()


# ------------------------------------------------------------------------------------------------ views of a picture


def test_augmented_views_are_those_of_training():
    objective = ContrastiveConfig(size=8, patch=2).build(IMAGENET)
    found = augmentation(objective, PICTURES[0], count=3, seed=5)
    views = [gallery.pixels(cell) for cell in found["groups"][1]["cells"]]
    rng = np.random.default_rng(5)
    np.testing.assert_array_equal(views, [objective.augment(PICTURES[0], rng) for _ in range(6)])
    assert augmentation(objective, PICTURES[0], count=3, seed=6) != found
    with pytest.raises(UnmaskError, match="predicts no pixels"):
        objective.reconstruct(None, PICTURES, np.random.default_rng(0))


@pytest.mark.parametrize("kind", [MaskedPatches, MaskedAutoencoder])
def test_masked_patches_are_grey_and_the_others_stay_in_their_places(kind):
    objective = kind(IMAGENET, rate=0.5, **({"square": 1} if kind is MaskedPatches else {}))
    found = augmentation(objective, PICTURES[0], count=2, seed=5)
    rng = np.random.default_rng(5)
    for cell in found["groups"][1]["cells"]:
        if kind is MaskedPatches:
            seen = ~objective.hidden(rng)
        else:
            seen = np.isin(np.arange(16), objective.visible(rng))
        expected = PICTURES[0].copy()
        for patch in np.flatnonzero(~seen):
            down, right = divmod(patch, 4)
            expected[2 * down : 2 * down + 2, 2 * right : 2 * right + 2] = 128
        np.testing.assert_array_equal(gallery.pixels(cell), expected)


def test_the_nearest_vectors_are_those_of_a_plain_search():
    vectors = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    asked = vectors[3] + 0.1
    cosines = [float(v @ asked / np.sqrt((v**2).sum()) / np.sqrt((asked**2).sum())) for v in vectors]
    expected = sorted(range(20), key=lambda i: -cosines[i])[:6]
    found = nearest(asked, vectors, 6)
    assert [row for row, _ in found] == expected
    assert [cosine for _, cosine in found] == pytest.approx([cosines[i] for i in expected], abs=1e-6)


# ------------------------------------------------------------------------------------------------ windows


@pytest.mark.parametrize(
    ("grid", "window", "shift"),
    [(4, 2, 0), (4, 2, 1), (8, 4, 2), (6, 3, 1), (5, 3, 1), (7, 4, 2), (3, 3, 0), (2, 4, 0)],
)
def test_regions_are_where_attention_reaches(grid, window, shift):
    """A patch changes the output at another one if and only if both have the same number."""
    N = grid * grid
    attention = Attention(4, 1)
    part = WindowAttention(attention, grid, window, shift)
    for i, weight in enumerate(part.parameters()):
        nn.init.normal_(weight, std=0.5, generator=torch.Generator().manual_seed(i))
    x = torch.randn(1, N, 4, generator=torch.Generator().manual_seed(9), requires_grad=True)
    y = part(x)
    numbers = regions(grid, window, shift).ravel()
    for i in range(N):
        [slope] = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
        reached = slope[0].abs().sum(-1).numpy() > 1e-12
        np.testing.assert_array_equal(reached, numbers == numbers[i])


def test_windows_are_drawn_stage_by_stage():
    page = Swin(size=16, patch=2, dim=8, depths=(2, 2), heads=(2, 2), window=4)
    processor = ImageProcessor(size=16, patch=2).for_model(page)
    black = np.zeros((16, 16, 3), np.uint8)
    found = windows(page.build(), processor, black)
    assert [[cell["caption"] for cell in group["cells"]] for group in found["groups"]] == [
        ["not shifted", "shifted by 2"],
        ["one window, which is not shifted"],
    ]
    first, second = (gallery.pixels(cell) for cell in found["groups"][0]["cells"])
    step, orange = 384 // 8, (200, 82, 0)
    for drawn, borders in ((first, {4}), (second, {2, 6})):
        found_at = {at for at in range(1, 8) if (drawn[at * step, 5] == orange).all()}
        assert found_at == {at for at in range(1, 8) if (drawn[5, at * step] == orange).all()} == borders
    for page in (Vit(**SIZES), ResNet(**RESNET_SIZES["cpu"])):  # the latter has stages without windows
        with pytest.raises(UnmaskError, match="attends in windows"):
            windows(page.build(), IMAGENET, PICTURES[0])


# ------------------------------------------------------------------------------------------------ the command line


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    objective = MaskedAutoencoder(IMAGENET, rate=0.75)
    huggingface.save(place / "mae", Mae(**SIZES, **DECODER).build(objective.heads, seed=0), IMAGENET)
    huggingface.save(place / "vit", Vit(**SIZES).build({}, seed=0), IMAGENET)
    views = ContrastiveConfig(size=8, patch=2).build(IMAGENET)
    huggingface.save(place / "simclr", Vit(**SIZES).build(views.heads, seed=0), IMAGENET)
    page = Swin(size=8, patch=2, dim=8, depths=(2, 1), heads=(2, 2), window=2)
    huggingface.save(place / "swin", page.build({}), IMAGENET.for_model(page))
    return place


VERBS = {
    "filters": ("vit", []),
    "positions": ("swin", []),
    "reconstruction": ("mae", ["A", "B", "--rates", "0.5", "0.75", "--draws", "2"]),
    "neighbours": ("vit", ["A", "--data", "FOLDER", "--count", "3"]),
    "windows": ("swin", ["A"]),
    "augmentation": (None, ["A", "--count", "2", "--colour", "0.1", "--size", "8", "--patch", "2"]),
}


def _arguments(verb: str, models: Path, folder: Path, out: Path) -> list[str]:
    model, more = VERBS[verb]
    names = {"A": folder / "b" / "00.png", "B": folder / "a" / "01.png", "FOLDER": folder}
    given = [] if model is None else ["--model", str(models / model)]
    return ["show", verb, *given, *(str(names.get(part, part)) for part in more), "--out", str(out)]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_writes_a_page(verb, models, folder, tmp_path):
    main(_arguments(verb, models, folder, tmp_path / "x.html"))
    assert '"view":"gallery"' in (tmp_path / "x.html").read_text()


def test_folders_of_transformers_are_restored(folder, tmp_path):
    """A folder that no run of unmask wrote: the objective follows from its heads and its config."""
    transformers = pytest.importorskip("transformers")
    sizes = {"image_size": 8, "patch_size": 2, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    decoder = {"decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
    config = transformers.ViTMAEConfig(**sizes, **decoder, mask_ratio=0.25, norm_pix_loss=True)
    transformers.ViTMAEForPreTraining(config).save_pretrained(tmp_path / "mae")
    config = transformers.ViTConfig(**sizes, encoder_stride=2)
    transformers.ViTForMaskedImageModeling(config).save_pretrained(tmp_path / "simmim")
    for name, share in (("mae", "25 % masked"), ("simmim", "60 % masked")):
        transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path / name)
        given = ["--model", str(tmp_path / name), str(folder / "b" / "00.png")]
        main(["show", "reconstruction", *given, "--out", str(tmp_path / "x.html")])
        assert share in (tmp_path / "x.html").read_text()


def test_rates_and_draws_are_shown_and_neighbours_named(models, folder, tmp_path, capsys):
    main(_arguments("reconstruction", models, folder, tmp_path / "x.html"))
    text = (tmp_path / "x.html").read_text()
    for caption in ("50 % masked, seed 0", "75 % masked, seed 1"):
        assert text.count(caption) == 2  # of two pictures
    main(_arguments("neighbours", models, folder, tmp_path / "x.html"))
    text = (tmp_path / "x.html").read_text()
    assert "1.000\\nb/copy.png" in text
    assert 'b/00.png"' not in text.replace(f'"title":"{folder / "b" / "00.png"}"', "")  # its own file is left out


def test_sentences_for_what_cannot_be_shown(models, folder, tmp_path, capsys):
    picture, out = str(folder / "a" / "01.png"), str(tmp_path / "x.html")
    vit, mae = (str(models / name) for name in ("vit", "mae"))
    for given, sentence in (
        (["reconstruction", "--model", vit, picture], "has no head that predicts pixels"),
        (["reconstruction", "--model", str(models / "simclr"), picture], "has no head that predicts pixels"),
        (["reconstruction", "--model", mae, picture, "--rates", "0"], "between 0 and 1, not 0"),
        (["reconstruction", "--model", mae, picture, "--draws", "0"], "--draws must be from 1 to 16"),
        (["reconstruction", "--model", mae, "none.png"], "There is no picture none.png"),
        (["augmentation", picture, "--recipe", "bert-tiny"], "'bert-tiny' does not learn from pictures"),
        (["augmentation", picture, "--recipe", "vit-tiny"], "'vit-tiny' learns labels"),
        (["augmentation", picture, "--count", "0"], "--count must be from 1 to 32"),
        (["neighbours", "--model", vit, picture, "--data", "none"], "There is no folder of pictures none"),
        (["neighbours", "--model", vit, picture, "--data", str(models)], "has no pictures"),
        (["neighbours", "--model", vit, picture, "--data", str(folder), "--count", "0"], "from 1 to 100"),
        (["windows", "--model", vit, picture], "attends in windows"),
    ):
        with pytest.raises(SystemExit):
            main(["show", *given, "--out", out])
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_draws(verb, models, folder, tmp_path):
    pytest.importorskip("matplotlib")
    main(_arguments(verb, models, folder, tmp_path / "x.png"))
    assert np.asarray(Image.open(tmp_path / "x.png")).std() > 1
