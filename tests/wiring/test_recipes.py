"""The runs that have a name: each builds its model, the published ones are as published, several corpora are mixed."""

from __future__ import annotations

import wave
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data.signals import wfdb
from unmask.data.signals.signal import Signal
from unmask.data.text import corpus, spelling
from unmask.data.text.corpus import Corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.objectives import ObjectiveConfig
from unmask.objectives.registry import OBJECTIVES, selected, supported
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.runs.pretraining.config import Pretraining, settled
from unmask.train.display import progress
from unmask.train.engine import Losses

PAGES = ("recipes", "writing_recipes", "recurrent_recipes", "picture_recipes", "recording_recipes", "signal_recipes")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A large and a small corpus of one vocabulary, and one that is spelled."""
    folder = tmp_path_factory.mktemp("corpora")
    texts = [TextDocument(f"The film number {i} was good. The plot of {i} was bad. " * 8, str(i)) for i in range(60)]
    large = corpus.build(texts[:50], folder / "large", vocabulary_size=80, heldout=0.1)
    corpus.build(texts[50:], folder / "small", tokenizer=large.tokenizer, heldout=0.1)
    corpus.build(texts, folder / "spelled", learn=spelling.train, heldout=0.1)
    Image = pytest.importorskip("PIL.Image")
    (folder / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(200):  # one in 50 is held out
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder / "pictures" / f"{i}.png")
    (folder / "recordings").mkdir()
    for i in range(60):
        with wave.open(str(folder / "recordings" / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, 8_000, 0, "NONE", ""))
            file.writeframes(rng.integers(-9_999, 9_999, rng.integers(2_000, 8_000), dtype=np.int16).tobytes())
    (folder / "signals").mkdir()
    for i in range(60):
        samples = rng.normal(size=(3_000, 1)).astype(np.float32)
        wfdb.write(folder / "signals" / f"{i}.hea", Signal(samples, 300, ("a",), ("mV",)))
    return folder


def modality(config: Pretraining) -> str:
    """What the model of a run reads."""
    return next((name for name in ("pictures", "recordings", "signals") if name in config.model.offers), "texts")


def data_of(config: Pretraining, corpora: Path) -> Path:
    """Data for the model of a run."""
    read = modality(config)
    texts = "spelled" if config.model.token_kind == "spelled" else "large"
    return corpora / (texts if read == "texts" else read)


@pytest.mark.parametrize("name", sorted(recipes.names().keys() - {"continued"}))
def test_a_recipe_builds_its_model_for_what_it_learns(name: str, corpora: Path, tmp_path: Path) -> None:
    recipe = recipes.find(name)
    data = recipe.objective.opens(data_of(recipe, corpora))
    config = settled(recipe, [data], None)
    processor = config.objective.processor(data.processor)
    prepared = config.objective.prepared([data], processor, tmp_path, lambda _: None, progress)
    objective = prepared.build(processor, [data.split("train")])
    with torch.device("meta"):  # shapes without numbers
        model = config.model.build(objective.heads, seed=None)
    assert sum(p.numel() for p in model.parameters()) > 1e5
    if modality(config) == "texts":
        assert model.config.vocabulary == processor.size


def short(name: str, objective: ObjectiveConfig | None = None) -> Pretraining:
    """A recipe of a small size, asked to learn something."""
    config = recipes.find(name)
    sizes = {"dim": 16, "layers": 1, "encoder_layers": 1, "decoder_layers": 1, "heads": 2, "hidden": 32, "factor": 16}
    return config.replace(
        model={field: value for field, value in sizes.items() if hasattr(config.model, field)},
        objective=objective or config.objective,
        rows={"tokens": 32, "first": None, "batch": 4, "heldout": 4},
        training={"device": "cpu"},
    )


@pytest.mark.parametrize("kind", OBJECTIVES, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("name", sorted({*(kind.example for kind in OBJECTIVES), "lstm-lm", "bilstm"}))
def test_a_page_is_trained_by_what_it_supports_and_nothing_else(
    name: str, kind: type[ObjectiveConfig], corpora: Path, tmp_path: Path
) -> None:
    config = short(name, kind())
    folder = data_of(config, corpora)
    if kind in supported(config.model):
        run = Pretrain(config, [folder], tmp_path / "run")
        with torch.no_grad():
            found = run.evaluate(run.model.eval(), 0).numbers
        assert any(term.startswith("loss/") for term in found)
        assert np.isfinite(list(found.values())).all()
    else:
        example = recipes.find(kind.example)
        if modality(example) != modality(config):
            folder = data_of(example, corpora)
        way = f"not {kind.learned}: leave --.* as the recipe has it, or take {kind.example}\\.$"
        with pytest.raises(UnmaskError, match=way):
            Pretrain(config, [folder], tmp_path / "run")


ON_DEVICE = (
    "bert-tiny",
    "roberta-tiny",
    "albert-tiny",
    "electra-tiny",
    "mobilebert-tiny",
    "modern-tiny",
    "gpt-tiny",
    "t5-tiny",
)


@pytest.mark.parametrize("name", ON_DEVICE)
def test_a_step_stays_on_its_device_and_does_not_wait_for_it(
    name: str, corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where a tensor that was left behind is an error, and a number that is read holds the step up: on the
    device that has shapes alone, both are errors."""
    config = short(name)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # which that device has not
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    run = Pretrain(config, [corpora / "large"], tmp_path / "run")
    run.data.total = 1
    (batch, *_), _ = next(run.data.batches(None))
    losses = Losses(run.model.to("meta").train(), run.objective)
    loss, sums = losses(batch.to("meta"), run.objective.weights)
    loss.backward()
    tensors = [loss, *sums.values(), *(p.grad for p in run.model.parameters() if p.grad is not None)]
    assert len(tensors) > 5
    assert {x.device.type for x in tensors} == {"meta"}


def test_the_recipe_that_is_named_learns_what_is_asked() -> None:
    for kind in OBJECTIVES:
        assert kind().fits(recipes.find(kind.example).model)


@pytest.mark.parametrize("name", ["gpt2-tiny", "transformer-xl-tiny", "lstm-lm"])
def test_a_folder_says_what_it_goes_on_with(name: str, corpora: Path, tmp_path: Path) -> None:
    """By its page, though it answered for classes; a recipe that learns something else is to be left out."""
    tokenizer = Corpus(corpora / "large").tokenizer
    learned = recipes.find(name).objective
    model = short(name).model.replace(vocabulary=tokenizer.size, padding=tokenizer.pad)
    huggingface.save(tmp_path / "classes", model.build(as_heads({"classification": 2})), tokenizer)
    _, config = recipes.choose(None, str(tmp_path / "classes"))
    assert selected(config.objective) == selected(learned)
    run = Pretrain(config.replace(rows={"tokens": 32, "heldout": 4}), [corpora / "large"], tmp_path / "run")
    assert list(run.model.heads) == ["next"]
    _, config = recipes.choose("t5-tiny", str(tmp_path / "classes"))
    with pytest.raises(UnmaskError, match=r"not spans cut out of a text: leave out the recipe and --written\.$"):
        Pretrain(config, [corpora / "large"], tmp_path / "other")


def test_every_page_of_recipes_is_found() -> None:
    source = Path(recipes.__file__).parent
    lines = [line for page in PAGES for line in (source / f"{page}.py").read_text(encoding="utf-8").splitlines()]
    written = [line[4:].partition("(")[0] for line in lines if line.endswith("() -> Pretraining:")]
    assert list(recipes.names()) == [name.replace("_", "-") for name in written]
    assert all(recipes.names().values())


@pytest.mark.parametrize(
    ("name", "batch", "tokens", "lr", "steps", "warmup", "rate"),
    [
        ("electra-small", 128, 128, 5e-4, 1_000_000, 10_000, 0.15),
        ("electra-base", 256, 512, 2e-4, 766_000, 10_000, 0.15),
        ("electra-large", 2_048, 512, 2e-4, 400_000, 10_000, 0.25),
    ],
)
def test_electra_is_trained_as_published(
    name: str, batch: int, tokens: int, lr: float, steps: int, warmup: int, rate: float
) -> None:
    """Clark et al. 2020, appendix A, table 6."""
    config = recipes.find(name)
    training = config.training
    assert (config.rows.batch, config.model.length, config.rows.first) == (batch, tokens, None)
    assert (training.optimizer.lr, training.steps, config.objective.leaves()["rate"]) == (lr, steps, rate)
    share = training.schedule.warmup
    assert (share if share > 1 else share * steps) == warmup
    assert training.optimizer.weight_decay == 0.01
    assert (config.model.dropout, config.model.attention_dropout) == (0.1, 0.1)  # type: ignore[attr-defined]


def test_small_corpora_are_raised_as_multilingual_bert_raises_them(corpora: Path, tmp_path: Path) -> None:
    """Shares to the power of 0.7, which are then made to sum to one (multilingual.md of google-research/bert)."""
    small = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 32}
    training = {"minutes": None, "steps": 2, "device": "cpu"}
    config = recipes.find("multilingual-tiny").replace(model=small, training=training, rows={"batch": 4, "heldout": 4})
    run = Pretrain(config, [corpora / "large", corpora / "small"], tmp_path / "run")
    order = run.data.loader(run.tokens).blocks.order
    sizes = np.array([found.split("train").tokens for found in run.corpora])
    shares = (sizes / sizes.sum()) ** 0.7
    assert order.targets == pytest.approx(sizes.sum() * shares / shares.sum(), abs=1)
    assert order.targets[1] > 1.3 * sizes[1]
    assert "loss/nsp" in run.run().heldout
