"""Subjects of the fuzzer: folders of models, of every kind that can be read; see folders.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from reading import write_model
from subjects import Subject

from unmask.huggingface.table import as_heads
from unmask.types import Head

TEXTS = ["the river is long and the film was good", "a green field, and more of it: nothing else"] * 5
SIZES: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 16}


def _model(folder: Path) -> Any:
    from unmask import huggingface

    return huggingface.load(folder)


def _answers(folder: Path) -> Any:
    from unmask.serve.predictor import Predictor

    return Predictor(folder)("the river")


def _writer(folder: Path) -> Any:
    from unmask import huggingface

    return huggingface.load(folder)


def _translated(folder: Path) -> Any:
    from unmask.serve.translator import Translator

    return Translator(folder)(["the river is long"])


def _written(folder: Path) -> Any:
    from unmask.serve.written import WrittenPredictor

    return WrittenPredictor(folder)(["the river is long"])


def _write_page(page: str, outputs: dict[str, Head], /, **fields: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from unmask import huggingface

        huggingface.save(folder, _config(page, **fields).build(outputs))
        (folder / "manifest.json").unlink()

    return write


def _write_writer(page: str, /, **fields: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from unmask import huggingface

        huggingface.save(folder, _config(page, **fields).build())
        (folder / "manifest.json").unlink()

    return write


def _config(page: str, **fields: Any) -> Any:
    module, _, name = page.partition(":")
    return getattr(import_module(f"unmask.models.{module}"), name)(vocabulary=20, **fields)


def _write_predictor(folder: Path) -> None:
    write_model(folder)
    (folder / "manifest.json").unlink()


def _write_encoder(folder: Path) -> None:
    from unmask import huggingface
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.models.bert import Bert

    tokenizer = Tokenizer.train(TEXTS, 60)
    settings = {"pooling": "mean", "normalise": True, "length": 16}
    huggingface.save(folder, Bert(vocabulary=tokenizer.size, **SIZES).build({}), tokenizer, settings=settings)
    (folder / "manifest.json").unlink()


def _write_spelling(folder: Path) -> None:
    """An ELMo, which reads characters."""
    from unmask import huggingface
    from unmask.data.text import spelling

    tokenizer = spelling.train(TEXTS, 60)
    config = _config("elmo:Elmo", **SPELLED).replace(
        vocabulary=tokenizer.size, continues=spelling.continues(tokenizer), padding=tokenizer.pad
    )
    huggingface.save(folder, config.build(as_heads({"classification": 2})), tokenizer, labels=["bad", "good"])
    (folder / "manifest.json").unlink()


def _write_translator(page: str, kind: str, /, **fields: Any) -> Callable[[Path], None]:
    """An encoder–decoder with its vocabulary: of SentencePiece, or of words."""

    def write(folder: Path) -> None:
        from unmask import huggingface
        from unmask.data.text.subwords import train as train_subwords

        tokenizer = train_subwords(TEXTS, 40, kind)
        ids = {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.pad, "end": tokenizer.end}
        config = _config(page, **fields).replace(**ids)
        search = {"limits": {"max_length": 8}}
        huggingface.save(folder, config.build(), tokenizer, settings={"search": search})
        if kind == "unigram":
            (folder / "added_tokens.json").write_text(json.dumps({"<pad>": tokenizer.pad}))
        (folder / "manifest.json").unlink()

    return write


def _write_pegasus(folder: Path) -> None:
    """A Pegasus whose pieces are those of a tokenizer.json."""
    from unmask import huggingface
    from unmask.data.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.train(TEXTS, 60).written()
    ids = {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.pad, "end": tokenizer.end}
    model = _config("transformer:Transformer", **LAYERS, positions="halves", norm="pre").replace(**ids).build()
    search = {"beam_size": 2, "limits": {"max_length": 8}}
    huggingface.save(folder, model, tokenizer, settings={"search": search})
    (folder / "manifest.json").unlink()


def _write_tagger(folder: Path) -> None:
    """A T5 that was fine-tuned to write tags."""
    from unmask import huggingface
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.tasks.text_to_text import REMEMBERED
    from unmask.tasks.written_tags import WrittenTags

    tokenizer = Tokenizer.train(TEXTS, 60).with_sentinels().written()
    ids = {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.pad, "end": tokenizer.end}
    settings = {"search": {"limits": {"max_length": 8}}, REMEMBERED: WrittenTags("tagging", ("O", "B-X")).settings()}
    huggingface.save(folder, _config("t5:T5", **T5_SIZES).replace(**ids).build(), tokenizer, settings=settings)
    (folder / "manifest.json").unlink()


def _write_adapter(folder: Path) -> None:
    from unmask.runs.transfer import Transfer, prepare
    from unmask.runs.transfer.adapter import save_adapter

    model = _plain_bert()
    prepare(model, Transfer(strategy="lora", rank=2))
    save_adapter(folder, model)
    (folder / "manifest.json").unlink()


def _adapter(folder: Path) -> Any:
    from unmask.runs.transfer.adapter import load_adapter

    return load_adapter(folder, _plain_bert())


def _plain_bert() -> Any:
    from unmask.models.bert import Bert

    return Bert(vocabulary=20, **SIZES).build(as_heads({"classification": 2}))


LAYERS: dict[str, Any] = {"dim": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_heads": 2, "decoder_heads": 2}
LAYERS |= {"encoder_hidden": 32, "decoder_hidden": 32}
T5_SIZES: dict[str, Any] = {
    "dim": 16,
    "heads": 2,
    "head_dim": 8,
    "hidden": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
}
CONVOLUTIONS: dict[str, Any] = {"dim": 8, "encoder_widths": (8,), "decoder_widths": (8,), "length": 16}
SPELLED: dict[str, Any] = {"characters": 4, "widths": (1, 2), "filters": (4, 4), "highways": 1}
SPELLED |= {"dim": 8, "layers": 1, "hidden": 16, "task": 4, "length": 64}
NARROW: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2, "hidden": 16, "factor": 8, "bottleneck": 8}
RECURRENT: dict[str, Any] = {"dim": 8, "hidden": 8, "layers": 1}
SEGMENTS: dict[str, Any] = {"dim": 8, "layers": 1, "heads": 2, "hidden": 8, "memory": 4}
MODELS: dict[str, Subject] = {
    "model: answers": Subject(_write_predictor, _answers),
    "model: BERT": Subject(_write_page("bert:Bert", as_heads({"mlm": 0, "nsp": 2}), **SIZES), _model),
    "model: ALBERT": Subject(_write_page("albert:Albert", as_heads({"mlm": 0}), **SIZES), _model),
    "model: ELECTRA": Subject(_write_page("electra:Electra", as_heads({"classification": 3}), **SIZES), _model),
    "model: GPT-2": Subject(_write_page("gpt:Gpt2", as_heads({"next": 0}), **SIZES), _model),
    "model: ELMo": Subject(_write_spelling, _answers),
    "model: MobileBERT": Subject(
        _write_page("mobilebert:MobileBert", as_heads({"classification": 2}), **NARROW), _model
    ),
    "model: LSTM": Subject(_write_page("recurrent:RecurrentNetwork", as_heads({"next": 0}), **RECURRENT), _model),
    "model: Transformer-XL": Subject(
        _write_page("transformer_xl:TransformerXl", as_heads({"next": 0}), **SEGMENTS), _model
    ),
    "model: sentence encoder": Subject(_write_encoder, _answers),
    "writer: Transformer": Subject(_write_writer("transformer:Transformer", **LAYERS), _writer),
    "writer: Seq2Seq": Subject(_write_writer("seq2seq:Seq2Seq", dim=16, hidden=16), _writer),
    "writer: T5": Subject(_write_writer("t5:T5", **T5_SIZES), _writer),
    "writer: T5, tags": Subject(_write_tagger, _written),
    "writer: ConvS2S": Subject(_write_translator("convs2s:ConvS2S", "word", **CONVOLUTIONS), _translated),
    "writer: vectors": Subject(_write_writer("vector_decoder:VectorDecoder", features=4, **RECURRENT), _writer),
    "writer: LSTM, words": Subject(_write_translator("seq2seq:Seq2Seq", "word", dim=8, hidden=8), _translated),
    "writer: Marian": Subject(
        _write_translator("transformer:Transformer", "unigram", **LAYERS, positions="halves", length=16), _translated
    ),
    "writer: Pegasus": Subject(_write_pegasus, _translated),
    "adapter": Subject(_write_adapter, _adapter),
}
