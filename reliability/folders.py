"""Subjects of the fuzzer: folders of tokenizers, vectors, corpora and runs; and all subjects by name."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from model_folders import MODELS
from reading import READERS
from subjects import ROWS, Subject, every, of_files

TEXTS = ["the river is long and the film was good", "a green field, and more of it: nothing else"] * 5
WORDS = ["the", "river", "is", "long", "film", "was", "good"]

# ------------------------------------------------------------------------------------------------ tokenizers


def _tokenizer(folder: Path) -> Any:
    from unmask.data.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder)
    ids = tokenizer.encode("The river is Long and 12 x").ids
    return tokenizer.decode(ids), tokenizer.encode_words(["the", "", "river"]), tokenizer.fingerprint


def _subwords(folder: Path) -> Any:
    from unmask.data.text.tokenizer import Tokenizer

    subwords = Tokenizer.load(folder, written=True)
    return [side.decode(side.ids(["The river is long"])[0]) for side in (subwords, subwords.target)], subwords.sentinels


def _write_wordpiece(folder: Path) -> None:
    from unmask.data.text.tokenizer import Tokenizer

    Tokenizer.train(TEXTS, 60).save(folder)


def _write_vocabulary(folder: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ing"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "cls_token": "[CLS]"}))
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"unk_token": "[UNK]", "pad_token": {"content": "[PAD]"}})
    )


def _write_byte_pairs(folder: Path) -> None:
    from unmask.data.text import byte_pairs

    byte_pairs.train(TEXTS, 300).save(folder)


def _write_merges(folder: Path) -> None:
    _write_byte_pairs(folder)
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    for path in folder.iterdir():
        path.unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"] | {"<|endoftext|>": len(model["vocab"])}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": False}))


def _write_subwords(kind: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from unmask.data.text.subwords import train as train_subwords

        train_subwords(TEXTS, 40, kind).save(folder)

    return write


def _write_t5_tokenizer(folder: Path) -> None:
    from unmask.data.text.subwords import train as train_subwords

    train_subwords(TEXTS, 40).save(folder / "marian")
    (folder / "spiece.model").write_bytes((folder / "marian" / "source.spm").read_bytes())
    shutil.rmtree(folder / "marian")
    (folder / "tokenizer_config.json").write_text(json.dumps({"extra_ids": 5, "eos_token": "</s>"}))


def _write_named_roles(folder: Path) -> None:
    _write_wordpiece(folder)
    names = {"eos_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


TOKENIZERS: dict[str, Subject] = {
    "tokenizer.json": Subject(_write_wordpiece, _tokenizer),
    "tokenizer.json, byte pairs": Subject(_write_byte_pairs, _tokenizer),
    "vocab.txt": Subject(_write_vocabulary, _tokenizer),
    "merges.txt": Subject(_write_merges, _tokenizer),
    "subwords: words": Subject(_write_subwords("word"), _subwords),
    "subwords: Marian": Subject(_write_subwords("unigram"), _subwords),
    "subwords: T5": Subject(_write_t5_tokenizer, _subwords),
    "subwords: tokenizer.json": Subject(_write_named_roles, _subwords),
}


# ------------------------------------------------------------------------------------------------ vectors, corpora


def _vectors(path: Path) -> Any:
    from unmask.runs.word_vectors import formats

    return formats.read(path).odd_one_out(["river", "film", "river"])


def _write_vectors(folder: Path) -> None:
    import numpy as np

    from unmask.runs.word_vectors.vectors import WordVectors

    matrix = np.random.default_rng(0).normal(size=(len(WORDS), 3)).astype(np.float32)
    WordVectors(WORDS, matrix, np.arange(len(WORDS)) + 1).save(folder)


def _scored(folder: Path) -> None:
    from unmask.runs.word_vectors import evaluation, reading, walks
    from unmask.runs.word_vectors.vectors import WordVectors

    vectors = WordVectors.load(folder / "vectors")
    every(
        lambda: evaluation.analogies(vectors, folder / "questions.txt"),
        lambda: evaluation.agreement(vectors, folder / "pairs.csv"),
        lambda: walks.edges(folder / "graph.txt"),
        lambda: list(reading.read([folder / "lists.jsonl"])),
        lambda: list(reading.read([folder / "words.txt"], reading.Reading(tokens="spaces"))),
    )


def _write_scored(folder: Path) -> None:
    (folder / "vectors").mkdir()
    _write_vectors(folder / "vectors")
    (folder / "questions.txt").write_text(
        ": capitals\nthe river is long\nfilm was good the\n: others\nis was the film\n"
    )
    (folder / "pairs.csv").write_text("word1,word2,score\nriver,film,1.5\nlong,good,7\nwas,is,9.1\n")
    (folder / "graph.txt").write_text("# a graph\na b\nb c\nc a\n")
    (folder / "lists.jsonl").write_text('["a", "b"]\n[3, 17, 4]\n')
    (folder / "words.txt").write_text("a b c\nb c\n")


def _write_corpus(folder: Path) -> None:
    from unmask.data.text.corpus import build
    from unmask.data.text.reading import TextDocument

    texts = [f"{text} number {i}.\nAnother sentence." for i, text in enumerate(TEXTS)]
    build([TextDocument(text, "made.txt") for text in texts], folder / "corpus", vocabulary_size=80, heldout=0.3)


def _corpus(folder: Path) -> Any:
    from unmask.data.text.corpus import Corpus

    corpus = Corpus(folder / "corpus")
    for name in ("train", "heldout"):
        split = corpus.split(name)
        for unit in split.units(8):
            split.read(unit)
        split.unigrams()
    return corpus.tokenizer, corpus.summary()


def _seal_corpus(folder: Path) -> None:
    """Write correct sizes and checksums into the manifest, if it can still be read."""
    from unmask.files import describe

    place = folder / "corpus" / "manifest.json"
    try:
        manifest = json.loads(place.read_bytes())
        manifest["files"] = {name: describe(place.with_name(name)) for name in manifest["files"]}
    except (ValueError, TypeError, KeyError, OSError, RecursionError, AttributeError):
        return
    place.write_text(json.dumps(manifest))


BINARY = b"2 2\nriver " + struct.pack("<2f", 0.5, 1.0) + b"\nfilm " + struct.pack("<2f", 1, 2)
CORPORA: dict[str, Subject] = {
    "vectors, text": of_files(_vectors, vectors__txt=READERS["vectors.txt"].sample),
    "vectors, binary": of_files(_vectors, vectors__bin=BINARY),
    "vectors, a folder": Subject(_write_vectors, _vectors),
    "vectors: files of scores": Subject(_write_scored, _scored),
    "corpus": Subject(_write_corpus, _corpus, _seal_corpus),
}


# ------------------------------------------------------------------------------------------------ runs


METRICS = (
    '{"step": 1, "seconds": 0.1, "split": "train", "loss/mlm": 5.5}\n{"step": 1, "split": "heldout", "loss/mlm": 5.1}\n'
)


def _write_run(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text(METRICS)
    (folder / "run.json").write_text(json.dumps({"recipe": "bert-tiny", "config": {"model": {"dim": 16}, "steps": 3}}))
    sample = {"step": 1, "samples": [{"text": "a [MASK]", "guesses": [[["river", 0.5]]]}]}
    (folder / "samples.jsonl").write_text(json.dumps(sample) + "\n")


def _run(folder: Path) -> Any:
    from unmask.train import metrics
    from unmask.visualize import runs

    return runs.compare([folder]), metrics.read(folder / "metrics.jsonl")


def _write_checkpoint(folder: Path) -> None:
    import torch

    from unmask.train import checkpoint

    checkpoint.write(folder, 3, state={"position": {"epoch": 0}, "total": 9}, tensors={"model.a": torch.ones(3)})


def _checkpoint(folder: Path) -> Any:
    from unmask.train import checkpoint

    found = checkpoint.latest(folder)
    return found and found.tensors()


def _write_manifest(folder: Path) -> None:
    from unmask.files import write_manifest

    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(f"the content of {name}\n")
    write_manifest(folder, ["a.txt", "b.txt"])


def _manifest(folder: Path) -> Any:
    from unmask.files import verify_manifest

    return verify_manifest(folder)


RUNS: dict[str, Subject] = {
    "run": Subject(_write_run, _run),
    "checkpoint": Subject(_write_checkpoint, _checkpoint),
    "manifest": Subject(_write_manifest, _manifest),
}

SUBJECTS: dict[str, Subject] = {**ROWS, **TOKENIZERS, **CORPORA, **MODELS, **RUNS}
