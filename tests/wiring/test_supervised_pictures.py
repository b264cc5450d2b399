"""Pictures learned from new weights: augmentation, mixing, resume, a teacher, and what each batch holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from unmask import huggingface
from unmask.cli import main
from unmask.data.pictures import digits
from unmask.data.pictures.examples import PictureExamples
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture, by_class
from unmask.data.pictures.recutting import Recut
from unmask.errors import UnmaskError
from unmask.models.deit import Deit
from unmask.models.vit import Vit
from unmask.runs import supervised_recipes
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.transfer.remembered import Remembered
from unmask.tasks.distillation import Distilled
from unmask.tasks.image_classification import ImageClassification, PictureOptions
from unmask.tasks.picture_training import Augmenting
from unmask.train import muon
from unmask.train.events import Step
from unmask.types import Kind

Image = pytest.importorskip("PIL.Image")
GREY = ImageProcessor(size=8, patch=2, mean=(0.5,), std=(0.5,))
SMALL = {"size": 8, "patch": 2, "channels": 1, "dim": 32, "layers": 2, "heads": 2, "hidden": 64}
QUICK = {"device": "cpu", "precision": "fp32", "batch_size": 32, "lr": 1e-2}
LABELS = [str(n) for n in range(10)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as PNG files: train and test, with a folder for each class."""
    folder = tmp_path_factory.mktemp("pictures") / "digits"
    digits.write(folder)
    return folder


def config(pictures: Path, name: str = "vit-tiny", **changes: object) -> FineTuning:
    usual = {**SMALL, **QUICK, "train": pictures / "train", "dev": pictures / "test", "minutes": None, "padding": 0}
    return supervised_recipes.find(name).override({**usual, "flip": 0.0, **changes})


def rows(pictures: Path, count: int = 12) -> list[Picture]:
    return list(by_class(pictures / "test"))[:count]


@pytest.mark.parametrize("name", supervised_recipes.names())
def test_the_algorithm_of_a_recipe_suits_its_model(name):
    recipe = supervised_recipes.find(name)
    with torch.device("meta"):  # shapes without numbers
        model = recipe.page.build({}, seed=None)
    if recipe.fit.optimizer.algorithm == "muon":
        assert muon.hidden(model), f"{name} has no matrices that Muon updates"


def test_the_digits_are_written_once_and_whole(pictures):
    files = sorted(pictures.rglob("*.png"))
    assert len(files) == 1_797
    assert len(list((pictures / "test").rglob("*.png"))) == 300
    found = load_digits()
    number = int(files[5].stem)
    assert files[5].parent.name == str(found.target[number])
    np.testing.assert_array_equal(np.asarray(Image.open(files[5])), (found.images[number] * 255 / 16).astype(np.uint8))
    before = files[0].stat().st_mtime_ns
    digits.write(pictures)
    assert files[0].stat().st_mtime_ns == before


def test_examples_are_prepared_when_they_are_read(pictures):
    given_rows = rows(pictures)
    examples = PictureExamples(given_rows, GREY, "name", np.arange(12)[:, None], kept=200)
    assert examples.lengths.tolist() == [17] * 12
    view = examples[2:9:3]
    assert [int(view.value(i)[0]) for i in range(len(view))] == [2, 5, 8]
    np.testing.assert_array_equal(view[1].signal[1], GREY.example(given_rows[5].pixels(1)).signal[1])
    assert view[1].targets["name"][1].tolist() == [5]
    assert sum(pixels.nbytes for pixels in examples._decoded.values()) <= 200
    assert [int(examples.take([7, 1]).value(i)[0]) for i in (0, 1)] == [7, 1]


@pytest.mark.parametrize("damaged", ["train", "dev", "test"])
def test_damaged_pictures_are_counted_before_a_run(damaged, pictures, tmp_path):
    splits = ("train", "dev", "test")
    for split in splits:
        for label in "ab":
            (tmp_path / split / label).mkdir(parents=True)
            for n in range(4):
                pixels = np.full((4, 4), 40 * n + 100 * (label == "b") + splits.index(split), np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / label / f"{n}.png")
    for label in "ab":
        (tmp_path / damaged / label / "9.png").write_bytes(b"no picture")
    others = {split: tmp_path / split for split in ("dev", "test")}
    with pytest.raises(UnmaskError, match=r"2 of 10 pictures cannot be read: .*a/9\.png cannot be decoded"):
        finetune(config(tmp_path, epochs=1, **others), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@given(st.floats(0, 0.9), st.integers(2, 9))
def test_probabilities_of_smoothed_labels_sum_to_one(smoothing, classes):
    found = Augmenting(smoothing=smoothing or 0.1).training(GREY, classes).probabilities(np.arange(classes))
    np.testing.assert_allclose(found.sum(1), 1)
    assert (found.argmax(1) == np.arange(classes)).all()


def batch_of(pictures: Path, seed: int = 0, **options: float) -> object:
    task = ImageClassification(LABELS, augmenting=Augmenting(**options))
    encoded = task.for_training(task.encode(rows(pictures), GREY, 0), GREY)
    groups = [encoded.examples[i : i + 1] for i in range(12)]
    return task, encoded.collating(int(Kind.PADDING))(groups, np.random.default_rng(seed))


def test_batches_follow_from_the_generator_and_without_augmentation_are_the_pictures(pictures):
    strong = {"crop": 0.3, "flip": 0.5, "operations": 2, "erasing": 0.5, "mixup": 0.8, "cutmix": 1.0}
    (_, one), (_, two), (_, other) = (batch_of(pictures, seed, **strong) for seed in (1, 1, 2))
    assert torch.equal(one.signal.values, two.signal.values)
    assert torch.equal(one.targets["image_classification"].values, two.targets["image_classification"].values)
    assert not torch.equal(one.signal.values, other.signal.values)
    task, plain = batch_of(pictures)
    assert plain.documents is None  # a picture fills its row
    _, smooth = batch_of(pictures, smoothing=0.1)
    assert torch.equal(plain.signal.values, smooth.signal.values)
    wanted = F.one_hot(plain.targets["image_classification"].values, 10) * 0.9 + 0.01
    torch.testing.assert_close(smooth.targets["image_classification"].values, wanted)
    model = Vit(size=8, patch=2, channels=1, dim=32, layers=1, heads=2, hidden=64).build(task.heads)
    found = task.loss(model, smooth)["image_classification"]
    logits = model.answer("image_classification", model(plain), plain.targets["image_classification"].places, plain)
    labels = plain.targets["image_classification"].values
    expected = F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(found.sum, expected)
    assert found.count == 12
    assert int(found.metrics["correct"]) == int((logits.argmax(-1) == labels).sum())


@pytest.mark.parametrize("strategy", ["full", "frozen"])
def test_a_run_learns_and_resumes_bit_for_bit(pictures, tmp_path, capsys, strategy):
    more = {"mixup": 0.2, "cutmix": 0.2, "erasing": 0.1, "drop_path": 0.1, "epochs": 1 if strategy == "frozen" else 3}
    if strategy == "frozen":
        more |= {
            "strategy": "frozen",
            "algorithm": "adamw",
            "mixup": 0.0,
            "cutmix": 0.0,
            "erasing": 0.0,
            "smoothing": 0.0,
        }
    asked = config(pictures, evaluations=1, **more)
    found = finetune(asked, tmp_path / "run", recipe="vit-tiny")
    if strategy == "full":
        assert found.summary["dev"]["accuracy"]["mean"] > 0.3
    (tmp_path / "half").mkdir()
    from unmask.runs.finetuning import supervised  # a stop in the middle

    begin = supervised.Supervised.hear

    def stopping(self, event):
        begin(self, event)
        if event == Step(30):
            self.trainer.stop("SIGTERM")

    supervised.Supervised.hear = stopping
    try:
        with pytest.raises(UnmaskError, match=r"continue with: unmask train --out \S+ --resume"):
            finetune(asked, tmp_path / "half", recipe="vit-tiny")
    finally:
        supervised.Supervised.hear = begin
    with pytest.raises(SystemExit):
        main(["train", "resnet-tiny", "--resume", "--out", str(tmp_path / "half")])
    assert "This run is one of 'vit-tiny', not 'resnet-tiny': leave the system out." in capsys.readouterr().err
    verb = "train" if strategy == "full" else "finetune"  # both go on with the run, which keeps its recipe
    main([verb, "--resume", "--out", str(tmp_path / "half")])
    one, two = (huggingface.load(tmp_path / name).model.state_dict() for name in ("run", "half"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    facts = json.loads((tmp_path / "half" / "run.json").read_text())
    assert (facts["recipe"], facts["config"]["page"]["kind"]) == ("vit-tiny", "Vit")


@pytest.mark.usefixtures("one_import")
def test_worker_processes_prepare_the_same_batches(pictures, tmp_path):
    for workers in (0, 2):
        changes = {"epochs": 0.1, "least_steps": 1, "crop": 0.5, "flip": 0.5, "cutmix": 1.0, "workers": workers}
        finetune(config(pictures, **changes), tmp_path / str(workers))
    assert (tmp_path / "0/model.safetensors").read_bytes() == (tmp_path / "2/model.safetensors").read_bytes()
    with pytest.raises(UnmaskError, match="--teacher and --workers cannot be combined"):
        finetune(config(pictures, workers=1, teacher=tmp_path / "0"), tmp_path / "run")


def test_the_command_line_trains_evaluates_predicts_and_transformers_opens_the_folder(pictures, tmp_path, capsys):
    values = {**SMALL, **QUICK, "flip": 0, "padding": 0, "epochs": 6, "out": tmp_path / "run", "data": pictures}
    arguments = ["train", "vit-tiny", *(part for name, value in values.items() for part in (f"--{name}", str(value)))]
    main([*arguments, "--dry-run"])
    planned = re.search(r"\nsteps +(\d+)\n", capsys.readouterr().out)
    assert not (tmp_path / "run").exists()
    main(arguments)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["seeds"][0]["total"] == int(planned[1])
    printed = capsys.readouterr().out
    assert "Every weight is new" in printed
    assert "test " in printed  # the folder test beside train was scored
    assert "Trained for image-classification" in (tmp_path / "run" / "report.html").read_text()
    main(["evaluate", "--model", str(tmp_path / "run"), "--data", str(pictures / "test"), "--json"])
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] > 0.4
    main(["predict", "--model", str(tmp_path / "run"), str(next((pictures / "test" / "3").iterdir()))])
    assert capsys.readouterr().out.split()[0] in LABELS
    transformers = pytest.importorskip("transformers")
    _, report = transformers.ViTForImageClassification.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not report["missing_keys"]


def test_by_default_it_learns_the_digits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    values = {**SMALL, **QUICK, "epochs": 1}
    main(["train", "vit-tiny", *(part for name, value in values.items() for part in (f"--{name}", str(value)))])
    assert "Writing the digits of scikit-learn to corpora/digits" in capsys.readouterr().out
    facts = json.loads(Path("runs/vit-tiny/run.json").read_text())["config"]
    assert (facts["rows"]["test"], facts["options"]["flip"]) == ("corpora/digits/test", 0.0)


@pytest.mark.parametrize("page", [Vit, Deit])
@pytest.mark.parametrize(("size", "patch", "mean"), [(8, 2, 0.5), (8, 4, 0.4), (12, 3, 0.5)])
def test_a_teacher_reads_the_same_pictures(pictures, page, size, patch, mean):
    after = ImageProcessor(size=size, patch=patch, mean=(mean,), std=(0.25,)).for_model(
        page(size=size, patch=patch, channels=1, dim=16, layers=1, heads=1, hidden=16)
    )
    task, batch = batch_of(pictures, smoothing=0.1)
    found = Recut(GREY, after, task.name)(batch)
    pixels = np.stack([row.pixels(1) for row in rows(pictures)])
    if size == 8:  # the same size: only patches and normalisation differ
        wanted = np.concatenate([after.example(one).signal[1] for one in pixels])
        np.testing.assert_allclose(found.signal.values.numpy(), wanted, atol=2e-6)
    assert found.tokens[0].tolist() == after.example(pixels[0]).tokens.tolist()
    rows_N = found.tokens.flatten()[found.targets[task.name].places]
    assert (rows_N == int(Kind.CLS)).all()


@pytest.mark.parametrize("hard", [False, True])
def test_a_deit_learns_labels_and_teacher_from_two_tokens(pictures, hard):
    """Touvron et al. 2021, section 4: the class token learns the labels, the other one the teacher's answer."""
    sizes = {"size": 8, "patch": 2, "channels": 1, "dim": 16, "layers": 1, "heads": 2, "hidden": 16}
    processor = GREY.for_model(Deit(**sizes))
    task = ImageClassification(LABELS, augmenting=Augmenting(smoothing=0.1))
    encoded = task.for_training(task.encode(rows(pictures), processor, 0), processor)
    other = ImageProcessor(size=8, patch=4, mean=(0.5,), std=(0.5,))
    teacher = Vit(**{**sizes, "patch": 4}).build(task.heads, seed=3)
    student = Deit(**sizes).build(task.heads, seed=1)
    temperature = {} if hard else {"temperature": 3.0}
    aim = Distilled(task, teacher, view=task.for_teacher(processor, other, "T"), weight=0.4, hard=hard, **temperature)
    batch = aim.prepare(encoded).collating(0)([encoded.examples[0:12]], np.random.default_rng(0))
    losses = aim.loss(student, batch)
    assert {name: loss.count for name, loss in losses.items()} == batch.counts
    assert dict(aim.weights) == pytest.approx({task.name: 0.6, "soft": 0.4})

    hidden = student(batch)
    head = student.heads[task.name]
    said, taught = head.label(hidden[:, 0]), head.teacher(hidden[:, 1])
    torch.testing.assert_close(losses[task.name].sum, F.cross_entropy(said, batch.targets[task.name].values) * 12)
    examples = [other.example(row.pixels(1)) for row in rows(pictures)]
    seen = other.collate(examples)
    truth = teacher.answer(task.name, teacher(seen), seen.starts, seen).detach()
    if hard:
        expected = F.cross_entropy(taught, truth.argmax(-1), reduction="sum")
    else:
        log_p = (taught / 3).log_softmax(-1)
        expected = 9 * F.kl_div(log_p, (truth / 3).softmax(-1), reduction="sum")
    torch.testing.assert_close(losses["soft"].sum, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_student_with_other_patches_learns_from_a_teacher_folder(pictures, tmp_path):
    finetune(config(pictures, epochs=5), tmp_path / "teacher", recipe="vit-tiny")
    more = {"teacher": tmp_path / "teacher", "hard": "yes", "patch": 4, "epochs": 5}
    student = finetune(config(pictures, "deit-tiny", **more), tmp_path / "student", recipe="deit-tiny")
    assert student.summary["dev"]["accuracy"]["mean"] > 0.3
    with pytest.raises(UnmaskError, match=r"--temperature softens probabilities, which --hard does not use"):
        finetune(config(pictures, "deit-tiny", **more, temperature=3.0), tmp_path / "other")


def test_the_states_of_two_pictures_are_not_taken_for_one_another(pictures):
    """A frozen trunk remembers states; pictures have the same kinds of places, and differ in their values alone."""
    task, batch = batch_of(pictures)
    model = Vit(size=8, patch=2, channels=1, dim=16, layers=1, heads=2, hidden=16).build(task.heads).eval()
    remembered = Remembered(model.forward)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(remembered(batch), model(batch))
        torch.testing.assert_close(remembered(batch.rows(3, 7)), model(batch.rows(3, 7)))
    assert len(remembered.states) == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"crop": 0.0}, "--crop is a share of the picture, above 0 and at most 1, not 0.0"),
        ({"crop": 0.5, "padding": 1}, "--crop and --padding are two ways to crop at random"),
        ({"smoothing": 1.0}, "--smoothing must be at least 0 and below 1"),
        ({"mixup": -1.0}, "must be at least 0"),
        ({"balance": "weights"}, "--balance is for pictures of one class"),
        ({"minutes": 1, "epochs": 2}, "--minutes sets the length of the run"),
        ({"drop_path": 1.0}, "drop_path must be at least 0 and less than 1"),
        ({"task": "classification"}, "is for --task image-classification"),
    ],
)
def test_settings_that_do_not_go_together(changes, message, pictures, tmp_path):
    def begin() -> None:
        asked = config(pictures, **changes)
        asked.options.check()
        finetune(asked, tmp_path)

    with pytest.raises(UnmaskError, match=message):
        begin()
    assert PictureOptions().training(GREY, 2) is None


def test_what_a_user_gets_wrong_at_the_command_line(pictures, tmp_path, capsys):
    for arguments, message in (
        (["vit-tiny", "--pairs", "x"], "--from and --pairs are for translation systems"),
        (["transformer-tiny", "--data", str(pictures)], "--data and --test are for labelled rows"),
        (["vit-tiny", "--data", str(tmp_path / "none")], "There is no file"),
        (["vit-tiny", "--out", str(tmp_path), "--resume", "--lr", "1"], "There is nothing to resume"),
    ):
        with pytest.raises(SystemExit):
            main(["train", *arguments])
        assert message in capsys.readouterr().err, arguments
