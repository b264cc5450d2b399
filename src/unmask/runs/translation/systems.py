"""Every named translation system, as a function that returns its config.

`unmask train transformer-small --pairs train.en train.de` looks names up here and overrides fields. The systems are in
historical order: a fixed vector between two networks, attention, convolution, the Transformer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unmask.generate import Limits, Search
from unmask.models import ConvS2S, Seq2Seq, Transformer, convs2s, transformer
from unmask.models.captioner import Captioner
from unmask.models.encoder_decoder import EncoderDecoderConfig
from unmask.models.vector_decoder import VectorDecoder
from unmask.runs import catalogue
from unmask.runs.translation import origin
from unmask.runs.translation.config import Learning, Translation, Vocabulary
from unmask.runs.translation.sources import sources_of
from unmask.runs.translation.texts import DATE_VECTORS, DIGITS, Texts
from unmask.train import checkpoint
from unmask.train.optim import Optimizer, Schedule, check_rate
from unmask.train.trainer import Training

TUNED = "tuned"  # recipe of a run that starts from a folder, without a system
# An output that repeats itself is cut at three times the length of its source, as in Marian.
BEAM = Search(beam_size=5, length_penalty=1.0, limits=Limits(max_length=256, max_factor=3.0))


def seq2seq() -> Translation:
    """LSTM encoder–decoder with a fixed vector between the two (Sutskever et al. 2014)."""
    return _recurrent(attention="none", bidirectional=False, reverse=True, layers=2)


def seq2seq_attention() -> Translation:
    """The same with attention to every state of the encoder (Luong et al. 2015)."""
    return _recurrent(attention="general", bidirectional=True)


def seq2seq_bahdanau() -> Translation:
    """GRU encoder–decoder with additive attention (Bahdanau et al. 2014)."""
    return _recurrent(attention="additive", bidirectional=True, cell="gru")


def convs2s_small() -> Translation:
    """Gated convolutions with attention in every layer of the decoder (Gehring et al. 2017)."""
    return _run(ConvS2S().replace(**convs2s.SIZES["small"]), lr=1e-3)


def transformer_tiny() -> Translation:
    """3 + 3 layers of 256 (12 M parameters): minutes to an hour on a CPU."""
    return _transformer("tiny")


def transformer_small() -> Translation:
    """4 + 4 layers of 256 (16 M parameters): an hour or more on a CPU."""
    return _transformer("small")


def transformer_base() -> Translation:
    """6 + 6 layers of 512 (61 M parameters), as published: a GPU."""
    return _published("base")


def transformer_big() -> Translation:
    """6 + 6 layers of 1,024 (210 M parameters), as published: several GPUs."""
    return _published("big")


def vector_decoder() -> Translation:
    """LSTM that generates a text from a vector: of an image, of a sentence, of a class (Vinyals et al. 2015)."""
    run = _run(VectorDecoder(dim=256, hidden=512), lr=2e-3)
    return run.replace(texts={"train": (DATE_VECTORS,)}, search={"limits": {"max_factor": None}})


def captioner() -> Translation:
    """A ViT reads a grey picture of 84 pixels, and the decoder of a Transformer writes its caption: minutes."""
    sizes = {"dim": 128, "encoder_layers": 4, "decoder_layers": 2, "encoder_heads": 4, "decoder_heads": 4}
    hidden = {"encoder_hidden": 512, "decoder_hidden": 256}
    model = Captioner(size=84, patch=28, channels=1, positions="halves", dropout=0.1).replace(**sizes, **hidden)
    return _run(model, lr=3e-3).replace(
        texts={"train": (DIGITS,), "most": 8_000, "longest": 1_024, "tokens": 512, "heldout": 500, "scored": 200},
        vocabulary={"kind": "word"},
        learning={"label_smoothing": 0.0},
        training={"minutes": 8.0, "optimizer": {"algorithm": "muon"}},
        search={"beam_size": 1, "limits": {"max_length": 64, "max_factor": None}},
    )


def _recurrent(**fields: Any) -> Translation:
    return _run(Seq2Seq(dim=256, hidden=512).replace(**fields), lr=2e-3)


def _transformer(size: str) -> Translation:
    """Short runs: with norms before the sub-layers, models learn from the first steps, at twice the learning rate
    (docs/log.md)."""
    model = _marian(size).replace(norm="pre")
    return _run(model, lr=2e-3).replace(learning={"average": 5}, training={"keep": 5})


def _published(size: str) -> Translation:
    """Vaswani et al. 2017, section 5: about 25,000 target tokens a step, 4,000 steps of warm-up, rate by the inverse
    square root; 100,000 steps for base, 300,000 for big."""
    steps = {"base": 100_000, "big": 300_000}[size]
    rate = 512**-0.5 * 4_000**-0.5 if size == "base" else 1_024**-0.5 * 4_000**-0.5
    run = _run(_marian(size).replace(dropout=0.1 if size == "base" else 0.3), lr=rate)
    return run.replace(
        texts={"tokens": 25_000},
        vocabulary={"size": 37_000, "kind": "bpe"},
        learning={"average": 5 if size == "base" else 20},
        training={
            "minutes": None,
            "steps": steps,
            "keep": 5 if size == "base" else 20,
            "schedule": {"warmup": 4_000, "shape": "inverse-sqrt"},
            "log_every": 100,
            "evaluate_every": 5_000,
            "save_every": 5_000,
        },
        search={"beam_size": 4, "length_penalty": 0.6, "penalty": "gnmt"},
    )


def _marian(size: str) -> Transformer:
    return Transformer(positions="halves", output_bias=True).replace(**transformer.SIZES[size])


def _run(model: EncoderDecoderConfig, lr: float) -> Translation:
    """Short runs on little text, in many small steps."""
    return Translation(
        model=model,
        texts=Texts(tokens=1_024),
        vocabulary=Vocabulary(size=8_000),
        learning=Learning(label_smoothing=0.1),
        search=BEAM,
        training=Training(
            minutes=20.0,
            optimizer=Optimizer(lr=lr, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0),
            schedule=Schedule(warmup=0.1),
            evaluate_every=0.1,
            save_every=0.05,
        ),
    )


def tuned(folder: str) -> Translation:
    """Continue from a folder, of T5 or any of these systems, on other pairs, at half the learning rate."""
    run = _run(Transformer(), lr=5e-4).replace(learning={"label_smoothing": 0.0})
    run = run.replace(search={"limits": {"max_factor": None}})  # targets may be other texts than translations
    return origin.starting_from(run, folder)


def choose(
    name: str, start: str | None = None, run: Mapping[str, Any] | None = None, out: Path | None = None
) -> Translation:
    """Config of a run: as it was saved where it is resumed, else the system, from `start` where given.

    name   of a system; TUNED: that of `tuned`
    start  model folder to continue from
    run    run.json of the run in the folder `out` that is resumed; empty or None for a new one
    """
    if run and out is not None and (start := run["config"].get("start")):
        newest = checkpoint.latest(out / "checkpoints")
        start = str(newest.folder) if newest else start  # the same kind of model, even if its start no longer exists
    if start:
        config = tuned(start) if name == TUNED else origin.starting_from(find(name), start)
    else:
        config = find(name)
    return config.replace(**run["config"]) if run else config


def overridden(config: Translation, changes: Mapping[str, Any], *, resumed: bool = False) -> Translation:
    """The config with given fields; steps or minutes replace those of the system. Raises UnmaskError for a field that
    does not exist and, unless the run is resumed, for a learning rate that does not fit."""
    others = {"max_length": "texts.longest"}
    if {"steps", "minutes", "training.steps", "training.minutes"} & config.renamed(changes, others).keys():
        config = config.override({"training.steps": None, "training.minutes": None})
    changed = config.override(changes, **others)
    if not resumed:
        check_rate(config.training.optimizer, changed.training.optimizer, changes)
    return changed


def dates(config: Translation) -> Translation:
    """The same system for its embedded pairs: dates or vectors to ISO dates, or pictures of digits to captions."""
    return sources_of(config.model).on_embedded(config)


def _systems() -> dict[str, Callable[[], Translation]]:
    return catalogue.functions([globals()], "Translation")


def names() -> dict[str, str]:
    """Name of a system -> the first paragraph of its documentation."""
    return catalogue.introductions(_systems())


def find(name: str) -> Translation:
    """The config of a system by its name. Raises UnmaskError, which names the nearest, if it does not exist."""
    found: Translation = catalogue.find(_systems(), name, "system")
    return found
