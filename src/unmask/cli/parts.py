"""Corpora of texts in parts, on several processes or machines: `corpus vocabulary`, `corpus build --part`, `corpus
merge`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.ending import suggest
from unmask.cli.options import HELDOUT, corpus_options, print_losses, reading, vocabulary_settings, workers_for
from unmask.cli.parser import add_verb
from unmask.errors import UnmaskError, plural

if TYPE_CHECKING:
    from unmask.data.files.parts import Part, Share
    from unmask.data.text.reading import TextDocument, TextStatistics

NEXT = "corpus build --tokenizer {} --part 1/4 --data ... --out corpora/mine"


def add_verbs(corpus: Any) -> None:
    """The verbs below `corpus` that only parts need."""
    sub = add_verb(
        corpus,
        "vocabulary",
        _vocabulary,
        "Learn a vocabulary from a sample of texts, for all parts of a corpus: at once, or from parts that `corpus "
        "merge` joins.",
    )
    corpus_options(
        sub,
        data="files, folders, hub:NAME or addresses such as s3://bucket/folder",
        out="folder for the tokenizer",
        part="write only the sample of part I of N, for `corpus merge`",
    )
    sub = add_verb(
        corpus, "merge", _merge, "Join the parts that `corpus build --part` or `corpus vocabulary --part` wrote."
    )
    sub.add_argument("out", metavar="FOLDER", help="the folder that was the --out of the parts")


def build(options: argparse.Namespace) -> None:
    """`corpus build --part`."""
    from unmask.data.files.remote import fetched, place
    from unmask.data.text import corpus
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.train.display import progress

    vocabulary_settings(options, options.tokenizer)
    if not options.tokenizer:
        raise UnmaskError(
            "All parts need the same vocabulary: learn one with `unmask corpus vocabulary --data ... --out FOLDER`, "
            "and give it here as --tokenizer FOLDER."
        )
    with fetched(place(options.tokenizer)) as folder:
        tokenizer = Tokenizer.load(folder)
    given = _Given(options)
    with progress() as show:
        part = corpus.build_part(
            given.documents,
            options.out,
            given.share,
            given.inputs,
            tokenizer=tokenizer,
            heldout=options.heldout,
            shard_tokens=options.shard_tokens,
            workers=options.workers or workers_for(given.files),
            progress=show,
        )
    tokens = sum(shard["tokens"] for shard in part.manifest["shards"])
    _said(options, part, given, f"{plural(part.manifest['documents'], 'document')}, {tokens:,} tokens")


def _vocabulary(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.data.files.remote import absolute
    from unmask.data.text import vocabulary_parts as vocabularies
    from unmask.train.display import progress

    options.data = [*options.data, *options.paths]
    settings = vocabulary_settings(options)
    settings["heldout"] = HELDOUT if options.heldout is None else options.heldout
    given, out = _Given(options), absolute(options.out)
    texts = (document.text for document in given.documents())
    with progress() as show:
        if options.part is not None:
            part = vocabularies.sample_part(texts, out, given.share, given.inputs, settings, show)
        else:
            tokenizer = vocabularies.learn(texts, out, settings, report=show)
    if options.part is not None:
        _said(options, part, given, f"a sample of {plural(part.manifest['documents'], 'document')}")
    else:
        print(f"Tokenizer {options.out}: {tokenizer.size:,} pieces.")
        print_losses(given.statistics)
        suggest(NEXT.format(options.out))


def _merge(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.cli.data import kind_of_tokens, recipe_for
    from unmask.data.files.parts import SAMPLE, all_parts, parts_of
    from unmask.data.files.remote import absolute
    from unmask.data.text import corpus
    from unmask.data.text import vocabulary_parts as vocabularies
    from unmask.data.text.corpus import Corpus
    from unmask.train.display import progress

    out = absolute(options.out)
    if all_parts(out)[0].manifest["format"] == SAMPLE:
        print(f"Tokenizer {options.out}: {vocabularies.merge(out).size:,} pieces.")
        suggest(NEXT.format(options.out))
    else:
        with progress() as show:
            built = corpus.merge(out, progress=show)
        print(corpus.summary(options.out, built))
        if isinstance(out, Path):  # runs read folders
            recipe = recipe_for(kind_of_tokens(Corpus(out, verify=False).tokenizer))  # it was just written
            suggest(f"pretrain {recipe} --corpus {options.out} --out runs/mine --minutes 30")
    print(f"The parts in {parts_of(out)} are not needed any more.")


class _Given:
    """The files of the options, and those of the part. Raises UnmaskError if none are given, or one does not exist."""

    share: Share
    statistics: TextStatistics

    def __init__(self, options: argparse.Namespace) -> None:
        from unmask.data.files.parts import Share, inputs_of
        from unmask.data.text import reading as text

        if not options.data:
            raise UnmaskError("There is no text to read: give files or folders with --data.")
        self.how, self.statistics = reading(options), text.TextStatistics()
        self.share = Share(1, 1) if options.part is None else Share.read(options.part)
        files = text.files(options.data)
        self.inputs = inputs_of([(str(file.path), file.size) for file in files], self.how)
        self.files = [files[i] for i in self.share.of([file.size for file in files])]

    def documents(self) -> Iterator[TextDocument]:
        from unmask.data.text import reading as text

        return text.documents_of(self.files, self.statistics, **self.how)


def _said(options: argparse.Namespace, part: Part, given: _Given, what: str) -> None:
    from unmask.data.files.parts import complete
    from unmask.data.files.remote import absolute

    out = absolute(options.out)
    print(f"Part {part.share} of {options.out}: {what}.")
    if not given.files:
        print("  It has no file: there are fewer files than parts, or one is very large; cut that one (split -C 1G).")
    print_losses(given.statistics)
    if advice := given.statistics.advice():
        print(f"  {advice}")
    count = complete(out, part.share.count)
    print(f"{count} of {plural(part.share.count, 'part')} {'is' if count == 1 else 'are'} complete.")
    if count == part.share.count:
        suggest(f"corpus merge {options.out}")
