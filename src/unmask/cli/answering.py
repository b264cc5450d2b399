"""Verbs of finished models: evaluate, predict, and those for GLUE (`cli.glue`)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli import glue, many, translation
from unmask.cli.data import print_losses
from unmask.cli.ending import suggest
from unmask.cli.help import add_field, add_fields, offer
from unmask.cli.labelled import benchmarks, prompted
from unmask.cli.options import answering_options, backend_option, encoding_option, reading, text_options
from unmask.cli.parser import ALL, Parser, add_verb, given_lines, of_rows, say
from unmask.cli.searching import search_options, searching
from unmask.cli.signals import of_record, record_options
from unmask.errors import UnmaskError, plural

if TYPE_CHECKING:
    from unmask.runs.evaluation import Ready, Scores

_NO_ANSWER = (
    "for questions: give no answer if 'no answer' scores higher than the best span by more than T (evaluate prints "
    "the best T for its rows)"
)


_MODES = {
    "data": ("shots", "examples", "no_answer", "beams", "lm", "out"),
    "pairs": ("columns", "out", "force", "metric", "turns", "known", "shots"),
    "text": ("window", "stride", "as_corpus"),
    "minimal_pairs": ("most",),
}
"""Mode of `evaluate` -> the options that do not belong to every mode."""


def add_verbs(verbs: Any) -> None:
    _add_evaluate(verbs)
    _add_predict(verbs)
    glue.add_verbs(verbs)


def _add_evaluate(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "evaluate",
        _evaluate,
        "score a model on labelled rows, translations or text",
        about="Score a model on labelled rows (--data), on pairs of texts (--pairs), on text (--text), or on pairs of "
        "sentences (--minimal-pairs).",
        fields=True,
        more="With --data, rows take the other fields that `unmask finetune --fields` lists as rows.NAME; with "
        "--shots, also --template, --names and --normalise; with --pairs, the search takes those of "
        "`unmask translate --fields`.",
    )
    sub.more_help = _evaluating_help
    data = sub.group("what goes in")
    what = data.add_mutually_exclusive_group()
    what.add_argument("--data", metavar="FILE", help="labelled rows")
    what.add_argument(
        "--pairs",
        nargs="+",
        metavar="FILE",
        help="pairs of texts: two aligned files, one table, a file of dialogues, trees or commands, or dates",
    )
    what.add_argument(
        "--minimal-pairs",
        nargs="+",
        metavar="FILE",
        help="pairs of a grammatical and an ungrammatical sentence, in the format of BLiMP",
    )
    data.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="text whose perplexity under a language model is computed; with --data: the name of the column of the "
        "text, if it does not have a usual one",
    )
    text_options(data)
    model = sub.group("the model")
    model.add_argument("--model", required=True, metavar="FOLDER", help="a model folder")
    answering_options(model)
    rows = sub.group("with --data")
    add_field(rows, "--pair", "NAME", "column of the second text of a pair")
    add_field(rows, "--label", "NAME", "column of the label")
    offer(add_field(rows, "--benchmark", "NAME", "the public data set that the folder holds"), benchmarks)
    rows.add_argument("--no-answer", type=float, metavar="T", help=_NO_ANSWER)
    rows.add_argument(
        "--shots", type=int, metavar="K", help="prompt a language model with K examples; also with --pairs and --known"
    )
    shots = add_field(rows, "--task", "NAME", "with --shots: classification or multiple-choice")
    offer(shots, prompted)
    rows.add_argument(
        "--examples", metavar="FILE", help="with --shots: labelled rows for the prompt (default: those of --data)"
    )
    search_options(rows)
    pairs = sub.group("with --pairs")
    pairs.add_argument(
        "--columns",
        metavar="SOURCE,TARGET",
        help="columns of a table (default: the usual names); numbers, such as 1,2, for a table without a header",
    )
    metric = pairs.add_argument(
        "--metric",
        metavar="NAME",
        help="bleu (default), rouge for summaries, dialogue, parsing, code, questions, exact for one right form",
    )
    offer(metric, translation.metrics)
    add_field(pairs, "--beam-size", "N", "hypotheses that the search keeps", default="of the folder")
    pairs.add_argument(
        "--known",
        nargs="+",
        metavar="FILE",
        help="training pairs, to compare with their most frequent target, and that of the nearest source",
    )
    pairs.add_argument("--turns", type=int, metavar="N", help="previous turns of a dialogue to read")
    pairs.add_argument("--force", action="store_true", help="score text even if it looks tokenised")
    text = sub.group("with --text and --minimal-pairs")
    text.add_argument("--window", type=int, metavar="N", help="tokens read at once (default: the most the model takes)")
    text.add_argument("--stride", type=int, metavar="N", help="tokens between window starts (default: half a window)")
    text.add_argument(
        "--as-corpus",
        action="store_true",
        help="join the sentences with single spaces, as `unmask corpus build` does",
    )
    text.add_argument("--most", type=int, metavar="N", help="with --minimal-pairs: the first N pairs of each kind")
    output = sub.group("output")
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument(
        "--out",
        metavar="FILE",
        help="with --data: write each row with its answer and error to this file, a JSON object a line; with --pairs: "
        "the translations, one a line",
    )
    sub.add_argument(ALL, action="store_true", help="show every option in groups, with its default, and stop")


def _evaluating_help(sub: Parser, _: list[str], given: dict[str, str], every: bool) -> None:
    if every:
        from unmask.generate import Search
        from unmask.runs.in_context import InContext
        from unmask.tasks.registry import task_named, usual_task

        rows = task_named(given.get("task", usual_task())).rows_class()
        add_fields(sub, rows, "with --data", leave_out=(*rows.LEARNING, "text"))
        add_fields(sub, InContext(), "with --shots", leave_out=rows.places())
        add_fields(sub, Search(), "with --pairs")


def _add_predict(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "predict",
        _predict,
        "predict masked tokens, labels, tags, answers to questions",
        about="Predict what the model was trained for: masked tokens, labels, tags, answers to questions.",
    )
    sub.add_argument("texts", nargs="*", help="texts; without any, lines of --file or of standard input")
    data = sub.group("what goes in")
    data.add_argument(
        "--file",
        metavar="FILE",
        help="a file with one text a line (for a model trained on pairs, a tab separates the two texts) or one JSON "
        "object a line; a blank line gives an empty line, or null with --json; for tags also CoNLL, for questions a "
        "SQuAD file, for choices SWAG, ARC or DREAM; with --out FILE.parquet or FILE.jsonl also Parquet",
    )
    encoding_option(data)
    record_options(data)
    model = sub.group("the model")
    model.add_argument("--model", required=True, metavar="FOLDER", help="a model folder")
    answering_options(model)
    backend_option(model)
    answers = sub.group("answers")
    answers.add_argument("--top", type=int, default=5, metavar="N", help="predictions to show for each masked token")
    answers.add_argument("--no-answer", type=float, metavar="T", help=_NO_ANSWER)
    search_options(answers)
    output = sub.group("output")
    output.add_argument(
        "--out",
        metavar="FILE",
        help="FILE.parquet or FILE.jsonl: write each row of --file with its prediction, in blocks after which a "
        "stopped command continues; another name, for questions about a context: write {id: answer}, the format of "
        "SQuAD's scripts",
    )
    many.part_options(output)
    output.add_argument(
        "--column",
        metavar="NAME",
        help="with --out FILE.parquet or FILE.jsonl: the column or key of the text (default: text)",
    )
    output.add_argument(
        "--na-prob-file", metavar="FILE", help="with --out: write {id: probability of no answer}, as for SQuAD 2.0"
    )
    output.add_argument(
        "--json", action="store_true", help="print one JSON object a line, for a MINA or HAN with where it looked"
    )


def _evaluate(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    _check_modes(options)
    if options.data and options.text:
        overrides, options.text = {"text": options.text[0], **overrides}, None
    if options.pairs:
        translation.evaluate(options, overrides)
        if options.shots is None:
            suggest(f"translate --model {options.model} < FILE", beside=True)
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

        if options.out:
            raise UnmaskError("--out has no effect with --shots: leave it out.")
        how = InContext().override({"encoding": options.encoding, **overrides, "shots": options.shots})
        scores = evaluate_in_context(_language_model(options), options.data, how, examples=options.examples)
    else:
        given = {"encoding": options.encoding} if options.encoding else {}
        scores = _labelled_scores(options, given | of_rows(overrides))
    print(json.dumps(scores, indent=2, ensure_ascii=False) if options.json else render_evaluation(scores))
    if options.shots is None:
        suggest(f"predict --model {options.model} INPUT", beside=True)


def _labelled_scores(options: argparse.Namespace, rows: dict[str, str]) -> Scores:
    from unmask.files import check_place
    from unmask.huggingface import holds_encoder_decoder
    from unmask.kernels.processor import settle
    from unmask.runs.evaluation import evaluate_written
    from unmask.runs.finetuning import evaluate
    from unmask.serve.written import NO_THRESHOLD

    if options.out:
        check_place(Path(options.out))
    if not holds_encoder_decoder(options.model):
        how = {"no_answer": options.no_answer, "search": searching(options)}
        scores = evaluate(options.model, options.data, rows, **how, ready=_ready(options), out=options.out)
    elif options.no_answer is not None:
        raise UnmaskError(NO_THRESHOLD)
    else:
        where = {"device": options.device, "precision": options.precision}
        scores = evaluate_written(options.model, options.data, rows, **where, out=options.out)
    settled = settle(options.precision, options.device)
    say(settled)
    if options.out:
        print(f"{plural(scores['rows'], 'row')} with their answers -> {options.out}", file=sys.stderr)
    return {**scores, "precision": settled.precision}


def _check_modes(options: argparse.Namespace) -> None:
    """Raises UnmaskError for an option of another mode of evaluation, which would have no effect."""
    given = next((mode for mode in _MODES if getattr(options, mode) is not None), None)
    if given is None:
        raise UnmaskError("Give what to score: --data, --pairs, --text or --minimal-pairs.")
    if options.text and (options.pairs or options.minimal_pairs or (options.data and len(options.text) > 1)):
        raise UnmaskError("--text is text to score, without --pairs and --minimal-pairs, or one column of --data.")
    for mode, names in _MODES.items():
        for name in set(names) - set(_MODES[given]):
            value = getattr(options, name)
            if value is not None and value is not False:  # 0 is a value
                option, needs, has = (word.replace("_", "-") for word in (name, mode, given))
                raise UnmaskError(f"--{option} needs --{needs}: it has no effect with --{has}.")
    if options.examples and options.shots is None:
        raise UnmaskError("--examples are for the prompt of a language model: give their number with --shots K.")


def _evaluate_text(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.data.text import reading as text
    from unmask.serve.likelihood import Scorer

    for name in overrides:
        raise UnmaskError(
            f"--{name} has no effect with --text, which takes --per, --column, --window and --stride: leave it out."
        )
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
        raise UnmaskError(f"--{name} has no effect with --minimal-pairs, which takes --most: leave it out.")
    if options.most is not None and options.most < 1:
        raise UnmaskError(f"--most must be 1 or more pairs, not {options.most}.")
    how = {"most": options.most, "encoding": options.encoding}
    found = evaluate_minimal_pairs(_language_model(options, any_kind=True), options.minimal_pairs, **how)
    print(json.dumps(found, indent=2, ensure_ascii=False) if options.json else render(found))


def _language_model(options: argparse.Namespace, *, any_kind: bool = False) -> Any:
    from unmask import huggingface

    if options.precision in ("bf16", "fp16"):
        raise UnmaskError(f"Log-probabilities are computed in fp32: leave --precision {options.precision} out.")
    loaded = huggingface.load(options.model, None if any_kind else huggingface.SINGLE_STACK)
    loaded.model.to(options.device)
    return loaded


def _ready(options: argparse.Namespace) -> Ready:
    """A function that moves a model to --device and builds its inference layout in --precision."""
    from unmask.kernels.devices import placed
    from unmask.models.inference_encoder import inference_layout

    return lambda model: inference_layout(placed(model, options.device), options.precision)


def _predict(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.serve import WrittenPredictor, check_out, predictor_of, write_predictions

    if options.na_prob_file and not options.out:
        raise UnmaskError("--na-prob-file needs a file of answers: add --out FILE.")
    by_row = many.writes_rows(options, "predict", "column")
    where = {"device": options.device, "precision": options.precision, "backend": options.backend}
    how = {"no_answer": options.no_answer, "search": searching(options), "explain": options.json}
    predictor = predictor_of(options.model, top=options.top, **how, **where)
    predictor.defaults = of_record(options)
    say(predictor.settled)
    if by_row:
        many.predict(options, predictor)
        return
    if options.na_prob_file and isinstance(predictor, WrittenPredictor):
        raise UnmaskError("A T5 gives no probability of 'no answer': leave --na-prob-file out.")
    if options.out:
        check_out(predictor.form, options.out)
    rows = None
    if options.file and not options.texts:
        rows = predictor.rows_in(options.file, options.encoding)
    if rows is None:
        many.refuse_table(options.file)
    found = predictor.stream(_texts(options)) if rows is None else predictor.answers_to(rows)
    if options.out:
        count = write_predictions(found, options.out, no_answer=options.na_prob_file)
        print(f"{plural(count, 'answer')} -> {options.out}")
        suggest(f"evaluate --model {options.model} --data LABELLED_ROWS", beside=True)
        return
    for text, answer in found:
        if options.json:
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        else:
            print("" if answer is None else predictor.render(text, answer), flush=True)


def _texts(options: argparse.Namespace) -> Iterator[str]:
    """The texts of the arguments, else the lines of a file or of standard input, without blank lines at the end.

    Raises UnmaskError as `given_lines` does, if all lines are blank, and for an empty text among the arguments.
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
