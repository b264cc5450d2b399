"""`transformers.pipeline` on our folders: every task that has one answers as our own predictor does, by the code that a
model card shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import transformers
from PIL import Image
from transformers.pipelines import SUPPORTED_TASKS

from unmask import huggingface
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.text import byte_pairs
from unmask.data.text.tokenizer import Tokenizer
from unmask.generate import Limits, Search
from unmask.huggingface.opening import PIPELINES, opened_by
from unmask.huggingface.table import as_heads
from unmask.models.albert import Albert
from unmask.models.bert import Bert, Roberta
from unmask.models.electra import Electra
from unmask.models.gpt import Gpt, Gpt2
from unmask.models.model import ModelConfig
from unmask.models.resnet import ResNet
from unmask.models.swin import Swin
from unmask.models.vit import Vit
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.objectives import registry
from unmask.serve.continuation import Continuer
from unmask.serve.predictor import Predictor
from unmask.tasks import TASKS

TEXTS = ["the cat sat on the mat", "a cat and a dog sat", "the dog ran away quickly"] * 5
PIECES, BYTES = Tokenizer.train(TEXTS, 70), byte_pairs.train(TEXTS, 300)
STACK: dict[str, Any] = {"length": 20, "layers": 1, "dim": 8, "heads": 2, "hidden": 12}
BERT = Bert(vocabulary=PIECES.size, **STACK)
ROBERTA = Roberta(vocabulary=BYTES.size, **STACK, padding=BYTES.pad)
ALBERT = Albert(vocabulary=PIECES.size, **STACK, factor=4)
ELECTRA = Electra(vocabulary=PIECES.size, **STACK)
ENCODERS = [(BERT, PIECES), (ROBERTA, BYTES), (ALBERT, PIECES), (ELECTRA, PIECES)]
named = pytest.mark.parametrize(("config", "tokenizer"), ENCODERS, ids=[type(one).__name__ for one, _ in ENCODERS])
THREE = ("red", "green", "blue")


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()


def write(folder: Path, config: ModelConfig, processor: Any, heads: dict[str, int], **more: Any) -> Path:
    """A folder whose outputs are not all alike."""
    model = config.build(heads=as_heads(heads), seed=3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4.0 if weight.ndim > 1 else 1.0)
    huggingface.save(folder, model, processor, **more)
    return folder


def opened(folder: Path, pipeline: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    """The pipeline that the code of the model card of a folder opens."""
    code = opened_by(folder, pipeline).sections["transformers"]
    found = re.search(r'pipeline\("(.*)", model="(.*)"\)', code)
    assert found is not None, code
    monkeypatch.chdir(folder.parent)
    return transformers.pipeline(found[1], model=found[2], **more)


def ours(folder: Path) -> Predictor:
    return Predictor(folder, precision="fp32")


def numbers(found: list[dict[str, Any]], name: str = "label") -> dict[str, float]:
    return {one[name]: float(one["score"]) for one in found}


def test_each_pipeline_of_a_task_is_known_or_absent_in_transformers():
    given = {task.pipeline for task in TASKS.values()} | {one.pipeline for one in registry.OBJECTIVES}
    assert PIPELINES.keys() <= SUPPORTED_TASKS.keys()
    assert given & SUPPORTED_TASKS.keys() <= PIPELINES.keys() <= given


@pytest.mark.parametrize(("config", "tokenizer"), ENCODERS[:3], ids=["Bert", "Roberta", "Albert"])
def test_fill_mask(config, tokenizer, tmp_path, monkeypatch):
    folder = write(tmp_path / "mine", config, tokenizer, {"mlm": 0})
    pipe = opened(folder, "fill-mask", monkeypatch)
    text = f"the {pipe.tokenizer.mask_token} sat"
    theirs, [mine] = pipe(text), ours(folder)([text])
    expected = {one["token"]: one["probability"] for one in mine["masks"][0]}
    assert {one["token_str"].strip(): one["score"] for one in theirs} == pytest.approx(expected, abs=1e-6)


@named
def test_text_classification_of_texts_and_pairs(config, tokenizer, tmp_path, monkeypatch):
    folder = write(tmp_path / "mine", config, tokenizer, {"classification": 3}, labels=THREE)
    pipe = opened(folder, "text-classification", monkeypatch, top_k=None)
    long = " ".join(TEXTS)
    found = [pipe("the cat sat")[0], pipe({"text": "the cat", "text_pair": "a dog"}), pipe(long, truncation=True)[0]]
    for theirs, mine in zip(found, ours(folder)(["the cat sat", ("the cat", "a dog"), long]), strict=True):
        assert numbers(theirs) == pytest.approx(mine["scores"], abs=1e-6)


@named
def test_several_labels_and_scores_of_texts(config, tokenizer, tmp_path, monkeypatch):
    folder = write(tmp_path / "labels", config, tokenizer, {"multilabel": 3}, labels=THREE)
    theirs = opened(folder, "text-classification", monkeypatch, top_k=None)("the cat sat")[0]
    assert numbers(theirs) == pytest.approx(ours(folder)(["the cat sat"])[0]["scores"], abs=1e-6)
    folder = write(tmp_path / "score", config, tokenizer, {"regression": 1})
    [theirs] = opened(folder, "text-classification", monkeypatch)("the cat sat")
    assert theirs["score"] == pytest.approx(ours(folder)(["the cat sat"])[0]["score"], abs=1e-6)


def test_zero_shot_classification_by_a_model_of_inference(tmp_path, monkeypatch):
    labels = ("contradiction", "entailment", "neutral")
    folder = write(tmp_path / "nli", BERT, PIECES, {"classification": 3}, labels=labels)
    pipe = transformers.pipeline("zero-shot-classification", model=str(folder))
    theirs = pipe("the cat sat", candidate_labels=["cat", "dog"], hypothesis_template="a {}", multi_label=True)
    mine = [one["scores"] for one in ours(folder)([("the cat sat", "a cat"), ("the cat sat", "a dog")])]
    expected = [one["entailment"] / (one["entailment"] + one["contradiction"]) for one in mine]
    found = dict(zip(theirs["labels"], theirs["scores"], strict=True))
    assert [found["cat"], found["dog"]] == pytest.approx(expected, abs=1e-6)


@named
def test_token_classification(config, tokenizer, tmp_path, monkeypatch):
    labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    folder = write(tmp_path / "mine", config, tokenizer, {"tagging": 5}, labels=labels)
    text = "the cat sat on the mat away quickly"
    pipe = opened(folder, "token-classification", monkeypatch, aggregation_strategy="first")
    [mine] = ours(folder)([text])
    theirs = [(one["entity_group"], one["start"], one["end"]) for one in pipe(text)]
    assert theirs == [(one["kind"], one["begin"], one["end"]) for one in mine["entities"]]
    assert theirs


@named
def test_feature_extraction(config, tokenizer, tmp_path, monkeypatch):
    folder = write(tmp_path / "mine", config, tokenizer, {"mlm": 0})
    theirs = np.array(opened(folder, "feature-extraction", monkeypatch)("the cat sat")[0])
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    example = tokenizer.example("the cat sat")
    with torch.no_grad():
        mine = loaded.model(tokenizer.collate([example]))[0].numpy()
    np.testing.assert_allclose(theirs, mine, atol=1e-5)


@pytest.mark.parametrize("tokenizer", [PIECES, BYTES], ids=["pieces", "bytes"])
@pytest.mark.parametrize("page", [Gpt, Gpt2])
def test_text_generation(page, tokenizer, tmp_path, monkeypatch):
    config = page(vocabulary=tokenizer.size, length=32, layers=1, dim=8, heads=2)
    folder = write(tmp_path / "mine", config, tokenizer, {"next": 0})
    pipe = opened(folder, "text-generation", monkeypatch)
    [theirs] = pipe("the cat", max_new_tokens=8, do_sample=False)
    [[mine]] = Continuer(folder, Search(limits=Limits(max_length=8)))(["the cat"])
    # transformers decodes what is new alone, so that a piece that continues the last word of a prompt keeps its sign
    assert theirs["generated_text"].replace("##", "") == mine.text
    assert mine.tokens > 1
    again = huggingface.load(folder).tokenizer  # here, a text of training still has an end
    assert (
        again.join(again.ids(["the cat"])[0])[0].tolist() == tokenizer.join(tokenizer.ids(["the cat"])[0])[0].tolist()
    )


@pytest.mark.parametrize(
    "config",
    [
        Vit(size=8, patch=4, dim=8, layers=1, heads=2, hidden=12),
        Swin(size=16, patch=2, dim=8, depths=(1, 1), heads=(2, 2), window=4),
        ResNet(size=20, dim=4, widths=(4, 8), depths=(1, 1)),
    ],
    ids=lambda config: type(config).__name__,
)
def test_image_classification(config, tmp_path, monkeypatch):
    processor = ImageProcessor().resized(config.size)
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    folder = write(tmp_path / "mine", config, processor, {"image_classification": 3}, labels=THREE)
    theirs = opened(folder, "image-classification", monkeypatch)(str(tmp_path / "picture.png"))
    [(_, mine)] = ours(folder).stream([str(tmp_path / "picture.png")])
    assert numbers(theirs) == pytest.approx(mine["scores"], abs=1e-5)


def test_recordings(tmp_path, monkeypatch):
    config = Wav2Vec2(
        channels=(6, 8), kernels=(7, 3), strides=(4, 2), dim=8, layers=1, heads=2, hidden=12, position_kernel=4,
        position_groups=2,
    )  # fmt: skip
    samples = np.random.default_rng(0).normal(0, 0.1, 400).astype(np.float32)
    soundfile.write(tmp_path / "recording.wav", samples, 16_000, subtype="FLOAT")
    given = {"raw": samples, "sampling_rate": 16_000}
    folder = write(tmp_path / "classes", config, RecordingProcessor(), {"speech_classification": 3}, labels=THREE)
    theirs = opened(folder, "audio-classification", monkeypatch)(dict(given))
    [(_, mine)] = ours(folder).stream([str(tmp_path / "recording.wav")])
    assert numbers(theirs) == pytest.approx(mine["scores"], abs=1e-6)
    pieces = ("<pad>", "<unk>", "|", "A", "B", "C")
    settings = {"blank": "<pad>", "space": "|", "unknown": "<unk>", "lower": False}
    folder = write(tmp_path / "ctc", config, RecordingProcessor(), {"ctc": 6}, labels=pieces, settings=settings)
    theirs = opened(folder, "automatic-speech-recognition", monkeypatch)(dict(given))
    [(_, mine)] = ours(folder).stream([str(tmp_path / "recording.wav")])
    assert " ".join(theirs["text"].split()) == mine["text"]
    assert len(mine["text"]) > 3
