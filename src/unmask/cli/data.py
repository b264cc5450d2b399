"""Verbs of data: corpora, of text, pictures or recordings, and vocabularies."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli import cleaning, media, parts
from unmask.cli.ending import suggest
from unmask.cli.options import (
    HELDOUT,
    PER,
    USUAL,
    corpus_options,
    print_losses,
    reading,
    text_options,
    vocabulary_settings,
    workers_for,
)
from unmask.cli.parser import add_group, add_verb
from unmask.errors import UnmaskError, plural, unknown
from unmask.files import MANIFEST

if TYPE_CHECKING:
    from unmask.data.text.corpus import Corpus
    from unmask.data.text.reading import TextStatistics
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.runs.pretraining.config import Pretraining

READING: dict[str, Any] = {"per": "blank-line", "column": "text", "encoding": None}
"""How texts are read by default."""

MUCH = 3  # times the share of held-out text that was asked for: a sentence says so
SHARD_TOKENS = 50_000_000
UNKNOWN = 0.05  # share of unknown tokens above which the vocabulary does not fit the text


def add_verbs(verbs: Any) -> None:
    corpus = add_group(verbs, "corpus", "check text, pictures, recordings or records, and build a corpus of them")
    sub = add_verb(
        corpus,
        "check",
        _corpus_check,
        "Report what is in some text (sizes, duplicates, encodings, leakage), in some pictures, recordings or records "
        "of sensors (sizes, classes, damage, copies), or verify a corpus.",
    )
    sub.add_argument("data", nargs="+", help="files or folders, or a corpus")
    sub.add_argument(
        "--against", nargs="+", default=[], metavar="FILE", help="files whose text must not occur in the data"
    )
    text_options(sub)
    media.shared_options(sub)
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub = add_verb(
        corpus,
        "build",
        _corpus_build,
        "Train a vocabulary and write the text as tokens, or write pictures, recordings or records of sensors decoded.",
    )
    corpus_options(
        sub,
        data="files, folders, hub:NAME or addresses such as s3://bucket/folder (default: the embedded corpus)",
        out="folder for the corpus",
        part="write only part I of N, for `corpus merge`; for texts, with the --tokenizer of `corpus vocabulary`",
    )
    sub.add_argument(
        "--tokenizer", metavar="FOLDER", help="use this tokenizer (a folder or file) instead of training one"
    )
    sub.add_argument(
        "--shard-tokens",
        type=int,
        default=SHARD_TOKENS,
        metavar="N",
        help="for texts: tokens of a file (default: %(default)s), which a process reads or leaves out as a whole "
        "(--rows.partitions of pretrain)",
    )
    media.add_options(sub)
    parts.add_verbs(corpus)
    cleaning.add_verb_to(corpus)

    vocabulary = add_group(verbs, "vocabulary", "see how a vocabulary splits text, or extend it")
    sub = add_verb(vocabulary, "check", _vocabulary_check, "Report how a tokenizer splits the words of some text.")
    sub.add_argument("--model", required=True, metavar="FOLDER", help="folder with a tokenizer")
    sub.add_argument("--data", nargs="+", required=True, metavar="FILE", help="files or folders")
    sub.add_argument("--reference", nargs="+", metavar="FILE", help="other text to compare with, such as general text")
    sub.add_argument(
        "--pieces",
        nargs="*",
        type=int,
        default=[100, 1000],
        metavar="N",
        help="report what so many new pieces would save",
    )
    text_options(sub)
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub = add_verb(
        vocabulary, "extend", _vocabulary_extend, "Add pieces, learned from some text, to a model's vocabulary."
    )
    sub.add_argument("--model", required=True, metavar="FOLDER", help="model folder with a WordPiece vocabulary")
    sub.add_argument("--data", nargs="+", required=True, metavar="FILE", help="files or folders of the domain")
    sub.add_argument("--pieces", type=int, required=True, metavar="N", help="new pieces, at most")
    sub.add_argument(
        "--least", type=int, default=5, metavar="N", help="least number of uses of a new piece in the text"
    )
    sub.add_argument("--out", required=True, metavar="FOLDER", help="folder for the model with the larger vocabulary")
    text_options(sub)


def _corpus_check(options: argparse.Namespace, _: dict[str, str]) -> None:
    if len(options.data) == 1 and (Path(options.data[0]) / MANIFEST).is_file():
        _verify(Path(options.data[0]))
        return
    if (kind := media.given(options)) is not None:
        kind.check(options)
        return
    from unmask.data.text import inspect
    from unmask.data.text import reading as text

    if options.workers is not None:
        raise UnmaskError("Texts are checked by one process: leave --workers out.")
    statistics, other = text.TextStatistics(), text.TextStatistics()
    how = reading(options)
    documents = text.documents(options.data, **how, statistics=statistics)
    against = text.documents(options.against, **how, statistics=other) if options.against else None
    report = inspect.check(documents, statistics, against=against)
    print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False) if options.json else inspect.render(report))
    print_losses(other, sys.stderr if options.json else None)


def _verify(folder: Path) -> None:
    """Compare all checksums of a corpus. Raises UnmaskError for one that is damaged, and for another folder."""
    from unmask.data.files.corpora import PICTURES, RECORDINGS, SIGNALS, format_of
    from unmask.data.pictures.corpus import PictureCorpus
    from unmask.data.recordings.corpus import RecordingCorpus
    from unmask.data.signals.corpus import SignalCorpus
    from unmask.data.text.corpus import Corpus

    kinds: dict[str | None, Any] = {PICTURES: PictureCorpus, RECORDINGS: RecordingCorpus, SIGNALS: SignalCorpus}
    print(kinds.get(format_of(folder), Corpus)(folder, verify=True).summary())
    print("All checksums are right.")


def _corpus_build(options: argparse.Namespace, _: dict[str, str]) -> None:
    options.data = [*options.data, *options.paths]
    if (kind := media.given(options)) is not None:
        kind.build(options)
        return
    options.heldout = HELDOUT if options.heldout is None else options.heldout
    if options.part is not None:
        parts.build(options)
        return
    built = _build(options)
    run = _next_run(options, built)
    train = built.split("train")
    if run == "bert-mini" and (train.documents < 2 or train.single == train.documents):
        run += " --sentences none"  # next-sentence prediction needs a second document, and documents of two sentences
    suggest(f"pretrain {run} --corpus {options.out} --out runs/mine --minutes 30")


def _build(options: argparse.Namespace) -> Corpus:
    from unmask.data.text import corpus, embedded
    from unmask.data.text import reading as text
    from unmask.data.text.kinds import KINDS
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.train.display import progress

    how = vocabulary_settings(options, options.tokenizer)
    statistics = text.TextStatistics()

    def documents() -> Any:
        if not options.data:
            return embedded.documents()
        return text.documents(options.data, **reading(options), statistics=statistics)

    tokenizer = Tokenizer.load(options.tokenizer) if options.tokenizer else None
    with progress() as show:
        built = corpus.build(
            documents,
            options.out,
            tokenizer=tokenizer,
            learn=KINDS[how.pop("kind")],
            **how,
            heldout=options.heldout,
            shard_tokens=options.shard_tokens,
            workers=options.workers or workers_for(text.files(options.data)),
            progress=show,
        )
    print(built.summary())
    if built.manifest["unknown_rate"] > UNKNOWN:
        instead = "another --tokenizer, or none" if options.tokenizer else "a larger --vocabulary-size"
        print(f"  A model learns nothing from unknown tokens, and there are many: build the corpus with {instead}.")
    if built.manifest["divided"]:
        print("  All text is one document: if each line is a document, add --per line.")
    elif options.heldout and not built.split("heldout").documents:
        print("  No text is held out, so a model cannot be evaluated on text that is new to it: add text.")
    elif options.heldout:
        _tell_much_held_out(built, options)
    print_losses(statistics)
    if advice := statistics.advice():
        print(f"  {advice}")
    return built


def _tell_much_held_out(built: Corpus, options: argparse.Namespace) -> None:
    """Print a sentence if the held-out part is much larger than asked, because there are few documents and they stay
    whole."""
    train, heldout = built.split("train"), built.split("heldout")
    share = heldout.tokens / (train.tokens + heldout.tokens)
    if share < MUCH * options.heldout:
        return
    shorter = {"file": "--per blank-line makes each paragraph a document, and --per line each line"}
    print(
        f"  {heldout.documents:,} of {plural(train.documents + heldout.documents, 'document')}, with {share:.0%} of "
        f"the text, held out in place of {options.heldout:.0%}, as documents stay whole: "
        f"{shorter.get(options.per, 'add text, or build the corpus with another --heldout')}."
    )


def without_any(config: Pretraining, *, build: bool) -> str:
    """The folder of data for a run without any; the data are made if they do not exist yet."""
    from unmask.files import alone

    if not (name := config.objective.stand_in()):
        return embedded_corpus(config.model.token_kind, build=build)
    folder = Path("corpora") / name
    if build:
        with alone(folder):
            if not folder.is_dir():
                print(f"Writing synthesised data to {folder}; yours go with --data.")
            config.objective.make(folder)
    return str(folder)


def embedded_corpus(kind: str, *, build: bool = True) -> str:
    """The folder of the embedded corpus in tokens of a kind; the corpus is built if it does not exist yet."""
    folder = Path("corpora") / f"embedded-{kind}"
    if build:
        text = "the documentation installed with Python"
        said = f"Building a corpus from {text}, in {folder}; yours goes with --corpus."
        _build_once(folder, said, **USUAL | {"kind": kind, "data": [], "tokenizer": None})
    return str(folder)


def texts_corpus(
    texts: list[str], out: str, kind: str, start: str | None, how: Mapping[str, str], *, build: bool = True
) -> str:
    """The folder beside a run of the corpus of its texts; it is built if it does not exist yet.

    kind   of the tokens of a new vocabulary          start  folder whose tokenizer the corpus has instead, or None
    how    values that differ from READING

    Raises UnmaskError for a value of `per` that does not exist, and if there are no such texts.
    """
    from unmask.runs.front.given import corpus_place

    if how.get("per", READING["per"]) not in PER:
        raise unknown("value of --per:", how["per"], PER)
    folder = corpus_place(out, texts, kind, start, *how.items())
    if build:
        vocabulary = dict.fromkeys(USUAL) if start else USUAL | {"kind": kind}
        said = f"Building a corpus of the texts, in {folder}; unmask corpus build has more settings."
        _build_once(folder, said, **vocabulary, **how, data=texts, tokenizer=start)
    return str(folder)


def _build_once(folder: Path, said: str, **options: Any) -> None:
    from unmask.files import alone

    with alone(folder):
        if not (folder / "manifest.json").is_file():
            print(said)
            rest = {"out": str(folder), "heldout": HELDOUT, "shard_tokens": SHARD_TOKENS, "workers": None}
            _build(argparse.Namespace(**READING | options, **rest))


def _next_run(options: argparse.Namespace, built: Corpus) -> str:
    """What to pre-train on the corpus: the model whose tokenizer the corpus uses, if there is one, else a recipe."""
    if options.tokenizer and (Path(options.tokenizer) / "config.json").is_file():
        return f"--from {options.tokenizer}"
    return recipe_for(kind_of_tokens(built.tokenizer) if options.tokenizer else options.kind or USUAL["kind"])


def recipe_for(kind: str) -> str:
    """A recipe for a corpus of tokens of a kind."""
    recipes = {"wordpiece": "bert-mini", "bpe": "gpt2-mini", "word": "lstm-lm", "character": "lstm-lm"}
    return (recipes | {"spelled": "elmo-tiny"})[kind]


def kind_of_tokens(tokenizer: Tokenizer) -> str:
    """The kind of tokenizer, inferred from its pieces, because no file records it."""
    from unmask.data.text import fertility

    pieces = tokenizer.pieces(i for i in range(tokenizer.size) if i not in tokenizer.specials)
    letters = all(len(piece.removeprefix("##")) <= 1 for piece in pieces)
    if tokenizer.separator:
        return "character" if letters else "bpe"
    if fertility.is_wordpiece(tokenizer) and not any(piece.startswith("##") for piece in pieces):
        return "word"
    return "spelled" if letters else "wordpiece"


def _vocabulary_check(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.data.text import fertility
    from unmask.data.text.reading import TextStatistics
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.runs import vocabulary_extension

    statistics = TextStatistics()
    reference = _documents(options, options.reference, statistics) if options.reference else None
    tokenizer = Tokenizer.load(options.model)
    found = vocabulary_extension.check(
        tokenizer, _documents(options, options.data, statistics), reference, pieces=options.pieces
    )
    if options.json:
        print(json.dumps({name: f.to_dict() for name, f in found.items()}, indent=2, ensure_ascii=False))
    else:
        print(fertility.render(found))
    print_losses(statistics, sys.stderr if options.json else None)


def _vocabulary_extend(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.data.text.reading import TextStatistics
    from unmask.runs import vocabulary_extension

    statistics = TextStatistics()
    texts = _documents(options, options.data, statistics)
    print(vocabulary_extension.extend(options.model, texts, options.pieces, options.out, least=options.least).summary())
    print_losses(statistics)
    suggest(f"corpus build --tokenizer {options.out} --data ... --out corpora/mine")


def _documents(options: argparse.Namespace, paths: Sequence[str], statistics: TextStatistics) -> Any:
    """The texts of the documents at some paths, read as the options specify."""
    from unmask.data.text import reading as text

    found = text.documents(paths, **reading(options), statistics=statistics)
    return (document.text for document in found)
