"""Picture embedding: triplets, batches of several pictures of a class, and a run that resumes, is scored and served."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from finetune_toy import Spy
from hypothesis import given
from hypothesis import strategies as st
from picture_toy import write_digits
from sklearn.metrics import roc_auc_score
from starlette.testclient import TestClient

from unmask import huggingface
from unmask.cli import main
from unmask.data.examples import Groups, labelled
from unmask.data.order import Classes
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture, PicturePair, by_class
from unmask.errors import UnmaskError
from unmask.models.cct import Cct
from unmask.models.deit import Deit
from unmask.models.mae import Mae
from unmask.models.resnet import ResNet
from unmask.models.swin import SIZES, Swin
from unmask.models.vit import Vit
from unmask.runs.finetuning import FineTuning, begun, evaluate, finetune
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.tasks import PictureEmbedding
from unmask.tasks.picture_embedding import PictureEmbeddingOptions
from unmask.tasks.triplets import MINERS, BatchTriplets
from unmask.train.metrics import TIMED
from unmask.train.metrics import read as read_metrics
from unmask.types import Example, Kind

Image = pytest.importorskip("PIL.Image")
GOLDEN = Path(__file__).parents[1] / "golden" / "finetune-picture-embedding.json"
SMALL = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64}
GREY = ImageProcessor(size=8, patch=2, mean=(0.5,), std=(0.5,))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as PNG files, in a folder for each class, and an untrained ViT."""
    folder = write_digits(tmp_path_factory.mktemp("pictures"))
    # As initialised for training, class tokens of all pictures are almost equal, and many steps pull them apart.
    page = Vit(size=8, patch=2, channels=1, std=0.2, **SMALL)
    huggingface.save(folder / "trunk", page.build(seed=0), GREY)
    return folder


def config(pictures: Path, **changes: object) -> FineTuning:
    given = {"model": pictures / "trunk", "task": "picture-embedding", "train": pictures / "train"}
    given |= {"dev": pictures / "test", "epochs": 8, "lr": 3e-3, "seeds": 1, "device": "cpu", "precision": "fp32"}
    return FineTuning().override({**given, "vector_size": 16, **changes})


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "run"
    finetune(config(pictures), out)
    return out


# ------------------------------------------------------------------------------------------------ triplets


def literal(units: torch.Tensor, classes: list[int], margin: float, miner: str) -> tuple[torch.Tensor, float]:
    """Loss and active share by loops over anchors, positives and negatives."""
    total, active = units.sum() * 0, 0.0

    def far(i: int, j: int) -> torch.Tensor:
        return ((units[i] - units[j]) ** 2).sum()

    def near(i: int, j: int) -> float:
        return float(far(i, j).detach())

    for a, own in enumerate(classes):
        positives = [p for p, other in enumerate(classes) if other == own and p != a]
        negatives = [n for n, other in enumerate(classes) if other != own]
        if not positives or not negatives:
            continue
        if miner == "hard":
            positive = max(positives, key=lambda p: near(a, p))
            triplets = [(positive, min(negatives, key=lambda n: near(a, n)))]
        elif miner == "all":
            triplets = [(p, n) for p in positives for n in negatives]
        else:
            triplets = []
            for p in positives:
                farther = [n for n in negatives if near(a, n) > near(a, p)]
                nearest = min(farther, key=lambda n: near(a, n), default=None)
                triplets.append((p, max(negatives, key=lambda n: near(a, n)) if nearest is None else nearest))
        losses = [torch.relu(far(a, p) - far(a, n) + margin) for p, n in triplets]
        total = total + sum(losses) / len(losses)
        active += sum(float(loss.detach()) > 0 for loss in losses) / len(losses)
    return total, active


@pytest.mark.parametrize("miner", MINERS)
@given(
    classes=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    seed=st.integers(0, 99),
    margin=st.sampled_from([0.05, 0.2, 1.5]),
)
def test_the_loss_is_that_of_literal_loops(miner, classes, seed, margin):
    """Also its gradient; also where anchors have no positive or no negative."""
    generator = torch.Generator().manual_seed(seed)
    given = torch.randn(len(classes), 4, generator=generator, dtype=torch.float64)
    gradients = []
    for loops in (False, True):
        leaf = given.clone().requires_grad_()
        units = leaf / leaf.norm(dim=1, keepdim=True)
        if loops:
            total, active = literal(units, classes, margin, miner)
        else:
            loss = BatchTriplets(margin, miner)(units, torch.tensor(classes))
            total, active = loss.sum, float(loss.metrics["active"])
            assert loss.count == len(classes)
        total.backward()
        gradients.append((float(total.detach()), active, leaf.grad))
    (one, active, found), (other, share, expected) = gradients
    assert one == pytest.approx(other, abs=1e-9)
    assert active == pytest.approx(share, abs=1e-6)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-7)


def test_without_a_semi_hard_negative_the_farthest_one_is_compared():
    angles = torch.tensor([0.0, 2.0, 0.5, 0.7])  # the positive is farther than both negatives
    units = torch.stack([angles.cos(), angles.sin()], 1)
    classes = torch.tensor([0, 0, 1, 2])
    far = ((units[:, None] - units) ** 2).sum(-1)
    expected = torch.relu(far[0, 1] - far[0, 3] + 0.2) + torch.relu(far[1, 0] - far[1, 2] + 0.2)
    found = BatchTriplets(0.2)(units, classes)
    assert float(found.sum) == pytest.approx(float(expected), abs=1e-6)
    assert float(BatchTriplets(0.2, "hard")(units, classes).sum) > float(expected)


# ------------------------------------------------------------------------------------------------ batches


@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    each=st.integers(2, 5),
    ranks=st.integers(1, 2),
    seed=st.integers(0, 9),
)
def test_a_batch_has_several_pictures_of_each_class(sizes, each, ranks, seed):
    numbers = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    examples = [
        Example(np.array([i]), targets={"c": (np.zeros(1, np.int64), numbers[i : i + 1])}) for i in range(len(numbers))
    ]
    classes = Classes(numbers, each)
    try:
        loaders = [
            labelled(Groups(examples), 3 * ranks * each, pad=-1, seed=seed, rank=rank, ranks=ranks, classes=classes)
            for rank in range(ranks)
        ]
    except UnmaskError as error:
        assert "two classes" in str(error)  # noqa: PT017 (there may be too few pictures)
        return
    steps, read = loaders[0].steps(), Counter[int]()
    for whole in zip(*(loader.batches() for loader in loaders), strict=True):
        for batch in (batch for step in whole for batch in step.batches):
            read.update(batch.tokens[batch.tokens >= 0].tolist())
            found = Counter(batch.targets["c"].values.tolist())
            assert all(found[number] >= min(2, sizes[number]) for number in found)
        steps -= 1
        if not steps:
            break
    assert read == Counter(range(len(numbers)))


def test_a_batch_that_has_no_two_classes_for_each_process():
    classes = Classes(np.repeat([0, 1], 8), 4)
    examples = [Example(np.array([1])) for _ in range(16)]
    with pytest.raises(UnmaskError, match=r"A batch of 7 rows, 4 of a class, .* 1 process two classes: use at least 8"):
        labelled(Groups(examples), 7, pad=0, classes=classes)
    with pytest.raises(UnmaskError, match=r"A batch of 8 rows, 4 of a class, .* 2 processes two classes: .* 16"):
        labelled(Groups(examples), 8, pad=0, classes=classes, ranks=2)
    with pytest.raises(UnmaskError, match="by shares or by classes"):
        labelled(Groups(examples), 8, pad=0, classes=classes, shares=np.ones(16))


# ------------------------------------------------------------------------------------------------ a run


def test_vectors_are_scored_compared_embedded_and_served(run, pictures, tmp_path, capsys):
    result = json.loads((run / "results.json").read_text())
    dev, baseline = result["seeds"][0]["dev"], result["baseline"]["dev"]
    assert dev["map@r"] > 0.4 > 0.1  # of a random order
    assert list(dev) == list(baseline)
    again = evaluate(run, pictures / "test")
    assert again["metrics"] == pytest.approx(dev, abs=1e-6)
    assert "ROC, on the dev rows" in (run / "report.html").read_text()
    curve = result["curves"]["ROC"]["points"]
    assert curve == again["curves"]["ROC"]["points"]
    assert curve[-1] == [1.0, 1.0]
    assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(curve))

    capsys.readouterr()
    main(["evaluate", "--model", str(run), "--data", str(pictures / "test")])
    shown = capsys.readouterr().out
    assert re.search(rf"(?m)^map@r +{dev['map@r']:.4f} +{baseline['map@r']:.4f}$", shown)
    assert "eer" in shown

    threes = sorted((pictures / "test" / "digit 3").iterdir())
    nought = sorted((pictures / "test" / "digit 0").iterdir())[0]
    main(["predict", "--model", str(run), *map(str, threes[:2])])
    assert [line.split("numbers, ")[1] for line in capsys.readouterr().out.splitlines()] == [
        f"norm 1.000  {path}" for path in threes[:2]
    ]
    main(["predict", "--model", str(run), f"{threes[0]}\t{threes[0]}", f"{threes[0]}\t{nought}", "--json"])
    same, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert same["same"]
    assert same["similarity"] == pytest.approx(1, abs=1e-5)
    assert other["same"] == (other["similarity"] >= other["threshold"])
    predictor = Predictor(run, precision="fp32")
    rows = [PicturePair(source=threes[0], other=nought), Picture(source=threes[0])]
    pair, one = predictor.found(rows)
    assert (pair.shape, one.shape) == ((2, 16), (1, 16))
    assert predictor.answer(rows)[0]["similarity"] == pytest.approx(float(pair[0] @ pair[1]), abs=1e-6)

    main(["embed", "--model", str(run), "--data", str(pictures / "test"), "--out", str(tmp_path / "v.npy")])
    vectors = np.load(tmp_path / "v.npy")
    names = (tmp_path / "v.names.txt").read_text().splitlines()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    place = names.index(str(nought.relative_to(pictures / "test")))
    np.testing.assert_allclose(vectors[place], pair[1], atol=1e-5)

    def sent(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    with TestClient(build(Pool([run]))) as http:
        found = http.post("/embed", json={"texts": [{"picture": sent(threes[0])}, {"picture": sent(nought)}]}).json()
        np.testing.assert_allclose(found["embeddings"], pair, atol=1e-5)
        both = {"picture": sent(threes[0]), "other": sent(nought)}
        [answer] = http.post("/predict", json={"texts": [both]}).json()["answers"]
        assert answer == {key: pytest.approx(value, abs=1e-5) for key, value in other.items()}
        refused = http.post("/embed", json={"texts": [both]})
        assert (refused.status_code, "Text 1 is a pair" in refused.json()["error"]) == (422, True)
        refused = http.post("/embed", json={"texts": "a cat"})
        assert "this model reads pictures" in refused.json()["error"]
        assert http.get("/models").json()["models"][0]["panel"] == "comparePictures"

    transformers = pytest.importorskip("transformers")
    _, report = transformers.ViTModel.from_pretrained(run, add_pooling_layer=False, output_loading_info=True)
    assert not report["missing_keys"]


def test_pictures_are_augmented_and_keep_their_classes(pictures):
    rows = list(by_class(pictures / "test"))[::40]
    plain = PictureEmbedding().encode(rows, GREY, 0)
    flipped = PictureEmbedding(augmenting=PictureEmbeddingOptions(flip=1.0)).for_training(plain, GREY)
    groups = [plain.examples[i : i + 1] for i in range(len(rows))]
    batch = flipped.collating(int(Kind.PADDING))(groups, np.random.default_rng(0))
    mirrored = [GREY.example(row.pixels(1)[:, ::-1]).signal[1] for row in rows]
    np.testing.assert_array_equal(batch.signal.values.numpy(), np.concatenate(mirrored))
    labels = sorted({row.label for row in rows})
    assert batch.targets["picture_embedding"].values.tolist() == [labels.index(row.label) for row in rows]
    assert PictureEmbedding().for_training(plain, GREY).collate is None
    with pytest.raises(UnmaskError, match="--crop and --padding are two ways"):
        PictureEmbeddingOptions(crop=0.5, padding=2).check()


def test_plain_references_are_scored_with_the_same_metrics(run, pictures, capsys):
    given = ("--train", pictures / "train", "--dev", pictures / "test", "--json")
    main(["baseline", "--task", "picture-embedding", *map(str, given)])
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert list(scores) == ["baseline", "pixels", "hog"]
    baseline = json.loads((run / "results.json").read_text())["baseline"]["dev"]
    assert scores["baseline"]["dev"] == pytest.approx(baseline)
    files = [Picture(source=path, label=path.parent.name) for path in sorted((pictures / "test").rglob("*.png"))]
    pixels = np.stack([np.asarray(Image.open(row.source).convert("RGB").resize((32, 32), 2)).ravel() for row in files])
    similar = np.corrcoef(pixels.astype(np.float64))
    first, second = np.triu_indices(len(files), 1)
    same = np.array([files[i].label == files[j].label for i, j in zip(first, second, strict=True)])
    assert baseline["auc"] == pytest.approx(roc_auc_score(same, similar[first, second]), abs=1e-4)


def test_the_threshold_is_that_of_equal_errors_on_the_dev_rows(run, pictures):
    loaded = huggingface.load(run)
    threshold = loaded.settings["threshold"]
    files = sorted((pictures / "test").rglob("*.png"))
    vectors = np.concatenate(Predictor(run, precision="fp32").found([Picture(source=path) for path in files]))
    first, second = np.triu_indices(len(files), 1)
    similar = (vectors[first] * vectors[second]).sum(1)
    same = np.array([files[i].parent == files[j].parent for i, j in zip(first, second, strict=True)])
    accepted = similar >= threshold
    eer = json.loads((run / "results.json").read_text())["seeds"][0]["dev"]["eer"]
    assert accepted[~same].mean() == pytest.approx(eer, abs=0.01)
    assert (~accepted[same]).mean() == pytest.approx(eer, abs=0.01)


def test_the_loss_trace_is_the_golden_one(pictures, tmp_path):
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        finetune(config(pictures, epochs=0.1, least_steps=12, lr=3e-4), tmp_path / "run")
    finally:
        torch.set_num_threads(threads)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl", "train")
    trace = [round(row["loss/picture_embedding"], 4) for row in rows]
    assert len(trace) == 12
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-4)


class Killed(BaseException):
    """The death of a process: nothing is saved."""


@pytest.mark.slow
def test_a_run_that_dies_continues_bit_for_bit(pictures, tmp_path):
    made = config(pictures, epochs=3, evaluations=2)

    class Deadly(Spy):
        def show(self, row):
            if row["step"] >= 30:
                raise Killed

    finetune(made, tmp_path / "whole")
    with pytest.raises(Killed):
        finetune(made, tmp_path / "half", display=Deadly())
    assert begun(tmp_path / "half") == made
    finetune(begun(tmp_path / "half"), tmp_path / "half", resume=True)
    one, two = (huggingface.load(tmp_path / name) for name in ("whole", "half"))
    assert one.settings == two.settings
    states = one.model.state_dict(), two.model.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    kept = [
        [{key: value for key, value in row.items() if key not in TIMED} for row in read_metrics(path, "train")]
        for path in (tmp_path / name / "metrics.jsonl" for name in ("whole", "half"))
    ]
    assert kept[0] == kept[1]


def test_without_dev_rows_whole_classes_are_held_out(pictures, tmp_path):
    found = finetune(config(pictures, dev=None, epochs=1, strategy="frozen"), tmp_path / "run")
    notes = " ".join(found.notes)
    assert "held out instead, whole classes" in notes
    assert "of 2 classes, 2 of them not in training" in notes
    assert "train: " in notes
    trunk, tuned = (huggingface.load(place).model for place in (pictures / "trunk", tmp_path / "run"))
    before, after = trunk.state_dict(), tuned.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {name for name in after if name not in before} == {
        "heads.picture_embedding.output.weight",
        "heads.picture_embedding.output.bias",
    }


@pytest.mark.parametrize(
    "page",
    [
        Cct(size=8, channels=1, convolutions=2, **SMALL),
        Deit(size=8, patch=2, channels=1, **SMALL),
        Mae(size=8, patch=2, channels=1, decoder_dim=16, decoder_layers=1, decoder_heads=2, decoder_hidden=32, **SMALL),
        ResNet(size=8, channels=1, stem="small", dim=8, widths=(8, 16), depths=(1, 1), block="basic"),
        Swin(**{**SIZES["cpu"], "size": 8, "depths": (1, 1), "heads": (1, 2), "channels": 1}),
    ],
    ids=lambda page: type(page).__name__,
)
def test_every_model_of_pictures_gives_vectors(page, pictures, tmp_path):
    task = PictureEmbedding(vector_size=8)
    model, processor = page.build(task.heads, seed=0), GREY.for_model(page)
    files = sorted((pictures / "test").rglob("*.png"))[::5]
    encoded = task.encode([Picture(source=path, label=path.parent.name) for path in files], processor, 128)
    batch = processor.collate(encoded.examples)
    loss = task.loss(model, batch)["picture_embedding"]
    loss.sum.backward()
    assert loss.count == len(files)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.heads.parameters())
    task.threshold = 0.5
    huggingface.save(tmp_path / "folder", model, processor, settings=task.settings())
    expected = task.answer_all(model, encoded, processor.pad)
    found = Predictor(tmp_path / "folder", precision="fp32").found(encoded.rows)
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), atol=1e-5)


# ------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(("spread", "collapsed"), [(0.0, True), (0.01, True), (0.1, False), (1.0, False)])
def test_vectors_that_are_almost_one_have_collapsed(spread, collapsed):
    found = np.random.default_rng(0).normal(size=(40, 3)) * spread + [1, 0, 0]
    answers = list((found / np.linalg.norm(found, axis=1, keepdims=True))[:, None])
    assert PictureEmbedding().is_collapsed(answers, []) == collapsed
    far = np.mean([((a - b) ** 2).sum() for a in answers for b in answers])
    assert (far < 0.002) == collapsed


def few(folder: Path, **counts: int) -> Path:
    """A folder with this many pictures of each class."""
    rng = np.random.default_rng(len(counts))
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / name / f"{i}.png")
    return folder


def test_classes_that_cannot_be_compared(run, pictures, tmp_path):
    one, alone, mixed = few(tmp_path / "a", x=5), few(tmp_path / "b", x=1, y=1), few(tmp_path / "c", x=3, y=2, z=1)
    with pytest.raises(UnmaskError, match="has a single label, 'x': at least two are needed"):
        finetune(config(pictures, train=one), tmp_path / "o")
    for rows in ({"train": alone}, {"dev": alone}, {"test": alone}):
        with pytest.raises(UnmaskError, match="has 2 classes, and 0 classes with two pictures or more"):
            finetune(config(pictures, **rows), tmp_path / "o")
    with pytest.raises(UnmaskError, match="has 1 class, and 1 class with two pictures or more"):
        finetune(config(pictures, dev=one), tmp_path / "o")
    with pytest.raises(UnmaskError, match="has 1 class, and 1 class with two"):
        evaluate(run, one)
    said = "1 of 3 classes have one picture, which is compared with the others, but has none of its class to find."
    assert said in evaluate(run, mixed)["notes"]
    with pytest.raises(UnmaskError, match="has 2 classes of two rows or more: too few to hold some out; give --dev"):
        finetune(config(pictures, train=few(tmp_path / "d", x=9, y=9), dev=None), tmp_path / "o")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"margin": 0.0}, "margin between distances must be above 0, not 0"),
        ({"miner": "easy"}, "easy"),
        ({"per_class": 1}, "--per-class at least 2, not 16 and 1"),
        ({"vector_size": 0}, "--vector-size must be at least 1"),
        ({"batch_size": 4}, "A batch of 4 rows, 4 of a class"),
        ({"sampling": "balanced"}, "leave it out for picture-embedding"),
    ],
)
def test_fields_that_make_no_run(changes, message, pictures, tmp_path):
    with pytest.raises(UnmaskError, match=message):
        finetune(config(pictures, **changes), tmp_path / "run")


def test_what_cannot_be_compared(run, pictures, tmp_path):
    with pytest.raises(UnmaskError, match="picture-embedding cannot be learned from a teacher"):
        finetune(config(pictures, teacher=run), tmp_path / "out")
    with pytest.raises(UnmaskError, match=r"There is no picture .*none\.png"):
        list(Predictor(run).stream([f"{next((pictures / 'test').rglob('*.png'))}\t{tmp_path / 'none.png'}"]))
    for wrong in ({"other": "AAAA"}, {"picture": "AAAA", "other": ""}):
        with pytest.raises(UnmaskError, match="Text 1 has no picture"):
            Predictor(run).rows([wrong])
