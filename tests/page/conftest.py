"""A service over small models on a port of this machine, and a browser that looks at its page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer as RawTokenizer

from unmask import huggingface
from unmask.cli.serve import read_vectors
from unmask.data.labelled.rows import Row
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.recordings.characters import Characters
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.text import spelling
from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.cpc import Cpc
from unmask.models.electra import Electra
from unmask.models.elmo import Elmo
from unmask.models.hubert import Hubert
from unmask.models.mfcc_cnn import MfccCnn
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.swin import Swin
from unmask.models.t5 import T5
from unmask.models.transformer import Transformer
from unmask.models.vit import Vit
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.runs.word_vectors import WordVectors
from unmask.tasks import Classification, dev_rows
from unmask.tasks.speech_recognition import SpeechRecognition
from unmask.types import Head

TEXT = "the animal did not cross the street because it was too tired and its law was just"
EVIL = "<img/src=x/onerror=document.title='run'>"

MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
"""Chromium hears a beep each half second, and asks nobody whether it may."""


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders of models by name, and of two runs."""
    place = tmp_path_factory.mktemp("page")
    plain = Tokenizer.train([TEXT] * 3, 150)
    raw = RawTokenizer.from_str(plain.raw.to_str().replace("[SEP]", EVIL))  # a token that would like to be an element
    tokenizer = Tokenizer.of(raw, {"sep": EVIL})

    def bert(name, heads, labels=(), settings=None):
        config = Bert(vocabulary=tokenizer.size, dim=32, layers=3, heads=4, hidden=64, length=64, std=0.3)
        huggingface.save(place / name, config.build(heads, seed=1), tokenizer, labels=labels, settings=settings)

    bert("bert", as_heads({"mlm": 0, "nsp": 2}))
    electra = Electra(vocabulary=tokenizer.size, dim=16, layers=2, heads=2, hidden=32, factor=8, length=64, std=0.5)
    huggingface.save(place / "electra", electra.replace(generator=0.5).build(seed=5), tokenizer)
    spelled = spelling.train([TEXT])
    sizes = {"dim": 8, "hidden": 16, "filters": (8,), "widths": (2,)}
    elmo = Elmo(vocabulary=spelled.size, continues=spelling.continues(spelled), **sizes)
    huggingface.save(place / "elmo", elmo.build(as_heads({"words": 9}), seed=6), spelled)
    words = [*dict.fromkeys(TEXT.split()), EVIL]
    WordVectors(words, np.random.default_rng(0).normal(size=(len(words), 6))).save(place / "vectors")
    size = {"dim": 24, "layers": 12, "heads": 12, "hidden": 24, "length": 512}
    long = Bert(vocabulary=tokenizer.size, std=0.5, **size).build(as_heads({"mlm": 0}), seed=2)
    huggingface.save(place / "long", long, tokenizer)
    bert("classifier", as_heads({"classification": 2}), ("bad", EVIL))
    bert("judged", as_heads({"classification": 2}), ("bad", "good"))
    answered(place / "judged")
    vit = Vit(size=32, patch=8, dim=24, layers=2, heads=3, hidden=48, std=0.3)
    seeing = vit.build({"image_classification": Head("sequence", 3)}, seed=8)
    huggingface.save(place / "pictures", seeing, ImageProcessor(size=32, patch=8), labels=("cat", "dog", EVIL))
    comparing = vit.build({"picture_embedding": Head("embedding", 8)}, seed=9)
    huggingface.save(place / "faces", comparing, ImageProcessor(size=32, patch=8))
    swin = Swin(size=16, patch=2, dim=8, depths=(2, 2), heads=(1, 2), window=4)
    windows = swin.build({"image_classification": Head("sequence", 2)}, seed=9)
    huggingface.save(place / "swin", windows, ImageProcessor(size=16).for_model(swin), labels=("cat", "dog"))
    speaking(place)
    bert("tagger", as_heads({"tagging": 3}), ("O", "B-PER", "I-PER"))
    bert("mentions", {"coreference": Head("span_ranking", 3)})
    bert("reader", as_heads({"span": 2}), settings={"stride": 4, "best": 6})
    bert("encoder", {}, settings={"pooling": "mean", "normalise": False})
    subwords = train_subwords([f"{TEXT} {EVIL}"] * 3, 40, kind="word")
    ids = {"padding": subwords.pad, "start": subwords.start, "end": subwords.end}
    sizes = {"dim": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_heads": 2, "decoder_heads": 2}
    writer = Transformer(vocabulary=subwords.size, encoder_hidden=32, decoder_hidden=32, **sizes, **ids).build(seed=3)
    huggingface.save(place / "writer", writer, subwords, settings={"search": {"limits": {"max_length": 9}}})
    pieces = tokenizer.with_sentinels().written()
    ids = {"vocabulary": pieces.size, "padding": pieces.pad, "start": pieces.start, "end": pieces.end}
    sizes = {"dim": 16, "heads": 2, "head_dim": 8, "hidden": 32, "encoder_layers": 2, "decoder_layers": 2}
    endless = {"limits": {"min_length": 599, "max_length": 600}}  # a T5 that learned for seconds ends nothing
    huggingface.save(place / "t5", T5(**sizes, **ids).build(seed=7), pieces, settings={"search": endless})
    network = RecurrentNetwork(vocabulary=tokenizer.size, dim=8, hidden=12, padding=tokenizer.pad)
    huggingface.save(place / "lm", network.build(None, seed=4), tokenizer)
    for name, rate in (("first", 1), ("second", 2)):
        run = place / "runs" / name
        run.mkdir(parents=True)
        rows = [{"step": s, "seconds": s, "split": "train", "loss/mlm": 3 / (s + rate)} for s in range(9)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (run / "run.json").write_text(json.dumps({"recipe": "tiny", "config": {"rate": rate}}))
    return SimpleNamespace(
        place=place, runs=place / "runs", names=[p.name for p in place.iterdir() if p.name != "runs"]
    )


def answered(folder):
    """Eight dev rows of a classifier with its answers, three of which are wrong."""
    texts = ("the law was just and too tired", "the animal did not cross the street", "it was too tired because", "law")
    rows = [Row(text, label=label, place=f"dev:{i}") for i, (text, label) in enumerate(product(texts, ("bad", "good")))]
    right = [0.9, 0.8, 0.7, 0.4, 0.9, 0.3, 0.6, 0.2]
    found = [np.array([[p, 1 - p] if row.label == "bad" else [1 - p, p]]) for row, p in zip(rows, right, strict=True)]
    dev_rows.write(folder, Classification(("bad", "good")), found, rows)


def speaking(place):
    """Models of recordings at 8 kHz: a pre-trained one, a recogniser, a classifier, and one that compares."""
    sizes = {
        "channels": (8, 8), "kernels": (10, 8), "strides": (8, 8), "dim": 16, "layers": 2, "heads": 2, "hidden": 32,
        "position_kernel": 8, "position_groups": 2, "std": 0.4,
    }  # fmt: skip
    config = Wav2Vec2(**sizes, entries=6, codes=8, compared=8, vector=8, delay_dims=(8,) * 5)
    processor = RecordingProcessor(rate=8_000).for_model(config)
    pretrained = config.build({"contrastive": Head("quantised", 8, pretraining=True)}, seed=1)
    huggingface.save(place / "waves", pretrained, processor)
    clusters = Hubert(**sizes).build({"clusters": Head("clusters", 3, pretraining=True)}, seed=5)
    huggingface.save(place / "hubert", clusters, processor)
    convolutions = {name: sizes[name] for name in ("channels", "kernels", "strides")}
    following = Cpc(**convolutions, dim=8).build({"prediction": Head("predictions", 3, pretraining=True)}, seed=6)
    huggingface.save(place / "cpc", following, processor)
    huggingface.save(place / "trunk", config.build({}, seed=7), processor)
    task = SpeechRecognition(Characters.learned(["yes no"]).pieces)
    recogniser = config.build(task.heads, seed=3)
    huggingface.save(place / "spoken", recogniser, processor, labels=task.labels, settings=task.settings())
    cepstra = MfccCnn(rate=8_000, widths=(8, 8), strides=(1, 2))
    heads, of_cepstra = {"speech_classification": Head("sequence", 3)}, processor.for_model(cepstra)
    huggingface.save(place / "commands", cepstra.build(heads, seed=2), of_cepstra, labels=("yes", "no", EVIL))
    comparing = config.build({"verification": Head("embedding", 8)}, seed=4)
    huggingface.save(place / "voices", comparing, processor, settings={"threshold": 0.5})


@pytest.fixture(scope="session")
def app(folders):
    pytest.importorskip("starlette")
    from starlette.routing import Route

    from unmask.serve import views
    from unmask.serve.http.app import build
    from unmask.serve.http.pool import Pool

    pool = Pool([folders.place / name for name in sorted(folders.names)], loaded=99, vectors=read_vectors)
    found = build(pool)
    found.router.routes = [r for r in found.router.routes if not isinstance(r, Route) or r.path not in views.VIEWS]
    found.router.routes += views.routes(pool, folders.runs)
    return found


@pytest.fixture(scope="session")
def address(app):
    """Where the service answers."""
    with answering(app) as found:
        yield found


@contextlib.contextmanager
def answering(app):
    """A service in a thread of this process, and its address; it ends with the context."""
    from unmask.serve.http import server

    bound = server.bind("127.0.0.1", 0)
    begun = threading.Event()
    running = server.Server(app, begun=begun.set)
    running.install_signal_handlers = lambda: None
    thread = threading.Thread(target=lambda: asyncio.run(running._serve([bound])), daemon=True)
    thread.start()
    assert begun.wait(30)
    try:
        yield server.address(bound)
    finally:
        running.should_exit = True
        thread.join(10)


@pytest.fixture
def locked(folders):
    """A service that wants the key "open", as a context that gives its address."""
    from unmask.serve.http.app import build
    from unmask.serve.http.pool import Pool
    from unmask.serve.http.settings import Access

    return answering(build(Pool([folders.place / "bert"]), access=Access(keys=("open",))))


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="the page is looked at with playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium to look at the page with")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", *MICROPHONE]
        )
        yield found
        found.close()


@pytest.fixture
def page(browser):
    """A page of the browser that must not fail, nor ask anybody but this machine."""
    found = browser.new_page(viewport={"width": 1100, "height": 900})
    found.set_default_timeout(10_000)
    wrong = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    known = ("422", "401", "ERR_CONNECTION_REFUSED")  # what a test provokes, and the page says in a sentence
    found.on(
        "console",
        lambda said: (
            wrong.append(said.text) if said.type == "error" and not any(k in said.text for k in known) else None
        ),
    )
    found.on("request", lambda asked: None if _is_local(asked.url) else wrong.append(asked.url))
    yield found
    found.close()
    assert wrong == []


def _is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "file://", "data:", "blob:"))
