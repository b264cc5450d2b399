"""Verbs of finished models: evaluate, predict, and what GLUE takes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli import translation
from unmask.cli.data import print_losses
from unmask.cli.parser import (
    add_field,
    add_verb,
    answering_options,
    encoding_option,
    given_lines,
    of_rows,
    reading,
    say,
    text_options,
)
from unmask.errors import UnmaskError, plural

if TYPE_CHECKING:
    from unmask.runs.evaluation import Ready, Scores

_NO_ANSWER = (
    "of questions: answer nothing where 'no answer' scores higher than the best span by more than T (evaluate tells "
    "the best T for its rows)"
)


_WAYS = {
    "data": ("shots", "examples", "no_answer"),
    "pairs": ("columns", "out", "force"),
    "text": ("window", "stride", "as_corpus"),
    "minimal_pairs": ("most",),
}
"""What can be evaluated -> the options of `evaluate` that it alone has."""


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "evaluate",
        _evaluate,
        "Score a model on labelled rows, on translations, or on text.",
        fields=True,
        more="With --data, rows take the other fields that `unmask finetune --fields` lists as rows.NAME; with "
        "--shots, also --template, --names and --normalise; with --pairs, the search takes those of "
        "`unmask translate --fields`.",
    )
    sub.add_argument("--model", required=True, metavar="FOLDER", help="a model folder")
    what = sub.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", metavar="FILE", help="labelled rows")
    what.add_argument("--pairs", nargs="+", metavar="FILE", help="translations: two aligned files, one table, or dates")
    what.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="how likely text is to a language model: its perplexity (for the column of text in labelled rows say "
        "--rows.text)",
    )
    what.add_argument(
        "--minimal-pairs", nargs="+", metavar="FILE", help="pairs of a right and a wrong sentence, as BLiMP has them"
    )
    sub.add_argument(
        "--columns",
        metavar="SOURCE,TARGET",
        help="with --pairs: columns of a table (default: the usual names); 1,2 counts them where there is no header",
    )
    sub.add_argument("--most", type=int, metavar="N", help="with --minimal-pairs: the first N pairs of each kind")
    text_options(sub)
    sub.add_argument(
        "--window", type=int, metavar="N", help="with --text: tokens read at once (default: what the model takes)"
    )
    sub.add_argument(
        "--stride", type=int, metavar="N", help="with --text: tokens by which a window goes on (default: half of it)"
    )
    sub.add_argument(
        "--as-corpus",
        action="store_true",
        help="with --text: sentences behind one another with one space, as `unmask corpus build` writes them",
    )
    sub.add_argument("--shots", type=int, metavar="K", help="with --data: ask a language model, after K examples")
    sub.add_argument(
        "--examples", metavar="FILE", help="with --shots: labelled rows to show (default: those of --data)"
    )
    add_field(sub, "--rows.text", "NAME", "with --data: column of the text, where it has not the usual name")
    add_field(sub, "--pair", "NAME", "with --data: column of the second text of a pair")
    add_field(sub, "--label", "NAME", "with --data: column of the label")
    add_field(sub, "--benchmark", "NAME", "with --data: the public data set whose folder it is")
    add_field(sub, "--task", "NAME", "with --shots: classification or multiple-choice")
    add_field(sub, "--beam-size", "N", "with --pairs: hypotheses that go on at once")
    sub.add_argument("--no-answer", type=float, metavar="T", help=_NO_ANSWER)
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.add_argument("--out", metavar="FILE", help="with --pairs: write the translations to this file, one a line")
    answering_options(sub)
    sub.add_argument("--force", action="store_true", help="with --pairs: score text that looks tokenised all the same")
    sub = add_verb(
        verbs, "predict", _predict, "Answer for texts, as the model was trained: hidden words, labels, tags, answers."
    )
    sub.add_argument("--model", required=True, metavar="FOLDER", help="a model folder")
    sub.add_argument("texts", nargs="*", help="texts; without any, lines of --file or of standard input")
    sub.add_argument(
        "--file",
        metavar="FILE",
        help="a file with one text a line (a tab separates the two texts of a pair, for a model that learned from "
        "such) or one JSON object; a blank line gets an empty line, with --json null; for questions also a "
        "SQuAD file, for choices also SWAG, ARC or DREAM",
    )
    encoding_option(sub)
    sub.add_argument("--out", metavar="FILE", help="write {id: answer} to this file, as the scripts of SQuAD read it")
    sub.add_argument("--no-answer", type=float, metavar="T", help=_NO_ANSWER)
    sub.add_argument(
        "--na-prob-file", metavar="FILE", help="with --out: write {id: probability of no answer}, as SQuAD 2.0 has it"
    )
    sub.add_argument("--top", type=int, default=5, metavar="N", help="answers to show for each hidden word")
    sub.add_argument("--json", action="store_true", help="print one JSON object a line")
    answering_options(sub)
    sub = add_verb(verbs, "submit", _submit, "Answer the test rows of GLUE, and write the files that it takes.")
    sub.add_argument("--models", nargs="+", required=True, metavar="[TASK=]FOLDER", help="fine-tuned folders")
    sub.add_argument("--data", required=True, metavar="FOLDER", help="folder of GLUE, with a folder for each task")
    sub.add_argument("--out", required=True, metavar="FOLDER", help="folder for the files and submission.zip")
    answering_options(sub)
    sub = add_verb(verbs, "glue-table", _glue_table, "Print the GLUE score of fine-tuned folders, on their dev rows.")
    sub.add_argument("results", nargs="+", metavar="[TASK=]RESULTS", help="folders, results.json, or evaluate --json")
    sub.add_argument("--wnli", action="store_true", help="count WNLI, which published averages leave out")


def _evaluate(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    _check_ways(options)
    if options.pairs:
        translation.evaluate(options, overrides)
        return
    if options.text:
        _evaluate_text(options, overrides)
        return
    if options.minimal_pairs:
        _evaluate_minimal_pairs(options, overrides)
        return
    from unmask.runs.finetuning import render_evaluation

    if options.shots is not None:
        from unmask.runs.in_context import InContext, evaluate_in_context

        how = InContext().override({"encoding": options.encoding, **overrides, "shots": options.shots})
        scores = evaluate_in_context(_language_model(options), options.data, how, examples=options.examples)
    else:
        given = {"encoding": options.encoding} if options.encoding else {}
        scores = _labelled_scores(options, given | of_rows(overrides))
    print(json.dumps(scores, indent=2, ensure_ascii=False) if options.json else render_evaluation(scores))


def _labelled_scores(options: argparse.Namespace, rows: dict[str, str]) -> Scores:
    from unmask.huggingface import holds_encoder_decoder
    from unmask.kernels.processor import settle
    from unmask.runs.evaluation import evaluate_written
    from unmask.runs.finetuning import evaluate
    from unmask.serve.written import NO_THRESHOLD

    if not holds_encoder_decoder(options.model):
        scores = evaluate(options.model, options.data, rows, no_answer=options.no_answer, ready=_ready(options))
    elif options.no_answer is not None:
        raise UnmaskError(NO_THRESHOLD)
    else:
        where = {"device": options.device, "precision": options.precision}
        scores = evaluate_written(options.model, options.data, rows, **where)
    say(settle(options.precision, options.device))
    return scores


def _check_ways(options: argparse.Namespace) -> None:
    """Raises UnmaskError for an option of another way to evaluate, which would do nothing."""
    given = next(way for way in _WAYS if getattr(options, way) is not None)
    for way, names in _WAYS.items():
        for name in names:
            value = getattr(options, name)
            if way != given and value is not None and value is not False:  # 0 is a value
                said, goes, has = (word.replace("_", "-") for word in (name, way, given))
                raise UnmaskError(f"--{said} goes with --{goes}: it means nothing with --{has}.")
    if options.examples and options.shots is None:
        raise UnmaskError("--examples are shown to a language model that is asked: say how many with --shots K.")


def _evaluate_text(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.data.text import reading as text
    from unmask.serve.likelihood import Scorer

    for name in overrides:
        raise UnmaskError(f"--{name} means nothing with --text, but --per, --column, --window and --stride do.")
    scorer = Scorer(_language_model(options), window=options.window, stride=options.stride)
    statistics = text.TextStatistics()
    documents = text.documents(options.text, **reading(options), statistics=statistics)
    texts = (" ".join(text.sentences(one.text)) if options.as_corpus else one.text for one in documents)
    found = scorer.perplexity(texts)
    print_losses(statistics, sys.stderr)
    print(json.dumps(found.to_dict(), indent=2) if options.json else found.render())


def _evaluate_minimal_pairs(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.runs.minimal_pairs import evaluate_minimal_pairs, render

    for name in overrides:
        raise UnmaskError(f"--{name} means nothing with --minimal-pairs, but --most does.")
    if options.most is not None and options.most < 1:
        raise UnmaskError(f"--most is a number of pairs, 1 or more, not {options.most}.")
    how = {"most": options.most, "encoding": options.encoding}
    found = evaluate_minimal_pairs(_language_model(options, any_kind=True), options.minimal_pairs, **how)
    print(json.dumps(found, indent=2, ensure_ascii=False) if options.json else render(found))


def _language_model(options: argparse.Namespace, *, any_kind: bool = False) -> Any:
    from unmask import huggingface

    if options.precision == "bf16":
        raise UnmaskError("--precision bf16 means nothing here: log-probabilities are computed in full.")
    loaded = huggingface.load(options.model, None if any_kind else huggingface.SINGLE_STACK)
    loaded.model.to(options.device)
    return loaded


def _ready(options: argparse.Namespace) -> Ready:
    """The model as --device and --precision ask for it."""
    from unmask.kernels.devices import placed
    from unmask.models.inference_encoder import inference_layout

    return lambda model: inference_layout(placed(model, options.device), options.precision)


def _predict(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.serve import WrittenPredictor, predictor_of, write_predictions

    if options.na_prob_file and not options.out:
        raise UnmaskError("--na-prob-file goes with a file of answers: say where to with --out FILE.")
    where = {"device": options.device, "precision": options.precision}
    predictor = predictor_of(options.model, top=options.top, no_answer=options.no_answer, **where)
    say(predictor.settled)
    if options.na_prob_file and isinstance(predictor, WrittenPredictor):
        raise UnmaskError("A T5 writes one answer, or that there is none, with no doubt: leave --na-prob-file out.")
    rows = None
    if options.file and not options.texts:
        rows = predictor.rows_in(options.file, options.encoding)
    found = predictor.stream(_texts(options)) if rows is None else predictor.answers_to(rows)
    if options.out:
        count = write_predictions(found, options.out, no_answer=options.na_prob_file)
        print(f"{plural(count, 'answer')} -> {options.out}")
        return
    for text, answer in found:
        if options.json:
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        else:
            print("" if answer is None else predictor.render(text, answer), flush=True)


def _texts(options: argparse.Namespace) -> Iterator[str]:
    """Texts as given, else the lines of a file, else of standard input; blank ones stay, but for those at the end.

    Raises UnmaskError as `given_lines` does, where all lines are blank, and for an empty text that was given.
    """
    name, blank, found = options.file or "standard input", [], False
    for text in given_lines(options, "predict"):
        blank.append(text)
        if text.strip():
            found = True
            yield from blank
            blank = []
    if blank and not found:
        raise UnmaskError(f"There is no text in {name}: its lines are blank.")
    for number, text in enumerate(options.texts, 1):
        if not text.strip():
            raise UnmaskError(f"Text {number} is empty.")
        yield text


def _submit(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.leaderboard import submit

    where = {"device": options.device, "precision": options.precision}
    submit(options.models, Path(options.data), Path(options.out), say=print, **where)


def _glue_table(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.leaderboard import table

    print(table(options.results, wnli=options.wnli).table)
