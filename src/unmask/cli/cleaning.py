"""`unmask corpus pipeline`: cleaned documents, and a corpus of them, by datatrove on one machine or many."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.ending import suggest
from unmask.cli.help import add_field, add_fields, needed
from unmask.cli.options import PER, data_options
from unmask.cli.parser import Parser, add_verb, field_options, print_fields
from unmask.cli.settings import print_config, settings_of
from unmask.errors import UnmaskError, plural

if TYPE_CHECKING:
    from unmask.data.text.cleaning.config import Pipeline
    from unmask.data.text.cleaning.stages import Stage, Work

ABOUT = (
    "Clean documents with datatrove, in stages of tasks: main text of HTML, language, quality, e-mail and IP "
    "addresses, near-duplicates. Then write them as JSON lines and, with --tokenizer, as a corpus. The same command "
    "continues what was stopped."
)


def add_verb_to(corpus: Any) -> None:
    """The verb `pipeline` below `corpus`."""
    sub = add_verb(
        corpus,
        "pipeline",
        _pipeline,
        "Clean very many documents with datatrove, drop near-duplicates, and build a corpus, on one machine or many.",
        about=ABOUT,
        fields=True,
    )
    sub.more_help = _more_help
    sub.set_defaults(resume=False)
    data_options(sub, "files, folders or addresses: text, JSON lines, CSV, TSV, Parquet, HTML, WARC, WET")
    add_field(sub, "--per", "NAME", "what ends a document of plain text", default="blank-line", choices=PER)
    add_field(sub, "--column", "NAME", "column or key of the text in tables", default="text")
    add_field(sub, "--tokenizer", "FOLDER", "write tokens with it (unmask corpus vocabulary), too")
    filters = sub.group("what is kept (each is true or false, and true by default)")
    add_field(filters, "--extract", "YES", "reduce HTML to its main text")
    add_field(filters, "--gopher-repetition", "YES", "drop documents that repeat themselves")
    add_field(filters, "--gopher-quality", "YES", "drop documents of unusual length, words or symbols")
    add_field(filters, "--c4", "YES", "drop lines of boilerplate, and documents with fewer than five sentences")
    add_field(filters, "--fineweb", "YES", "drop documents that look like lists")
    add_field(filters, "--pii", "YES", "replace e-mail addresses and IP addresses")
    add_field(filters, "--near-duplicates", "YES", "keep one of documents that are nearly the same (MinHash)")
    add_field(filters, "--languages", "NAMES", "languages to keep, such as en,fr, by --language-model (default: all)")
    add_field(filters, "--language-model", "FILE", "fastText model that recognises languages, such as lid.176.bin")
    running = sub.group("where it runs")
    add_field(running, "--executor", "NAME", "local, slurm or ray", default="local", choices=("local", "slurm", "ray"))
    add_field(running, "--tasks", "N", "parts of the documents, by whole files", default=1)
    add_field(running, "--workers", "N", "tasks at once (default: one for each core; on Slurm and Ray all)")
    add_field(running, "--partition", "NAME", "partition of Slurm")
    running.add_argument(
        "--write-only", action="store_true", help="with Slurm: write the scripts of the jobs, but submit none"
    )
    running.add_argument("--dry-run", action="store_true", help="print tasks, memory, disk space and time, and stop")
    needed(sub.group("output").add_argument("--out", metavar="FOLDER", help="folder of the pipeline"))
    field_options(sub, values="the pipeline", config=True)


def _more_help(sub: Parser, _: list[str], __: dict[str, str], every: bool) -> None:
    if every:
        from unmask.data.text.cleaning.config import Pipeline

        add_fields(sub, Pipeline(), "what is read", leave_out=["data"])


def _pipeline(options: argparse.Namespace, fields: dict[str, str]) -> None:
    from unmask.data.text.cleaning.stages import Work

    config = _config(options, fields)
    if options.fields:
        print_fields(config)
        return
    if options.print_config:
        print_config("corpus pipeline", config)
        return
    if not options.out:
        raise UnmaskError("Give a folder for the pipeline: --out FOLDER.")
    slurm = config.running.executor == "slurm"
    if options.write_only and not slurm:
        raise UnmaskError("--write-only writes the scripts of Slurm: add --executor slurm.")
    if slurm and not (options.write_only or options.dry_run or shutil.which("sbatch")):
        raise UnmaskError("There is no sbatch here: run the command on a machine of the cluster, or add --write-only.")
    work = Work.of(config, options.out)
    if options.write_only and not isinstance(work.out, Path):
        raise UnmaskError(f"--write-only writes scripts into a local folder, not to {work.out}.")
    stages = work.stages()
    if options.dry_run:
        print(_planned(work, stages))
        return
    work.keep()
    _carry_out(work, stages, write_only=options.write_only)


def _carry_out(work: Work, stages: list[Stage], *, write_only: bool) -> None:
    from unmask.data.text.cleaning import executors

    if write_only:
        script = executors.write_scripts(work, stages)
        print(f"The scripts of {plural(len(stages), 'job')} are in {work.at('logs')}. Submit them with: sh {script}")
        return
    if work.config.running.executor == "slurm":
        if (job := executors.submit(work, stages)) is not None:
            print(f"Jobs are submitted, the last as {job}. Their logs are in {work.at('logs')}.")
            print("When they have ended, the same command submits what failed again, or prints the result.")
            return
        for stage in stages:
            print(executors.summary(work, stage))
    else:
        executors.run(work, stages, print)
    _done(work)


def _config(options: argparse.Namespace, fields: dict[str, str]) -> Pipeline:
    from unmask.data.text.cleaning.config import Pipeline

    file = settings_of(options)
    config = Pipeline() if file is None else file.config(lambda facts: Pipeline.from_dict(facts["config"]), Pipeline)
    data = [*options.data, *options.paths]
    return config.override({**fields, **({"data": tuple(data)} if data else {})})


def _planned(work: Work, stages: list[Stage]) -> str:
    from unmask.data.text.cleaning.executors import workers
    from unmask.data.text.cleaning.plan import plan
    from unmask.train.display import duration, size

    found = plan(work, stages, workers(work.config.running))
    rows = [
        ("stage", "tasks", "at once", "memory of a task", "time"),
        *(
            (one.stage, str(one.tasks), str(one.workers), size(one.memory), duration(one.seconds))
            for one in found.stages
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(
        [
            f"About {size(found.size)} of text, {found.documents:,} documents, in {len(work.files):,} files.",
            *lines,
            f"Together about {duration(found.seconds)}, and {size(found.disk)} on the disk.",
            *found.notes,
        ]
    )


def _done(work: Work) -> None:
    documents = work.at("documents")
    print(f"Documents: {documents}")
    if work.config.tokenizer is None:
        suggest(f"corpus vocabulary --data {documents} --out vocabulary")
        return
    print(f"Corpus: {work.at('corpus')}")
    if isinstance(work.out, Path):  # runs read folders
        from unmask.cli.data import kind_of_tokens, recipe_for
        from unmask.data.text.corpus import Corpus

        recipe = recipe_for(kind_of_tokens(Corpus(work.out / "corpus", verify=False).tokenizer))
        suggest(f"pretrain {recipe} --corpus {work.at('corpus')} --out runs/mine --minutes 30")
