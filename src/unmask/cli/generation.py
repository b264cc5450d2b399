"""Verbs of models that write: generate continues texts and recordings, units shows the activations of a recurrent
network."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from unmask.cli.help import add_field, add_fields, needed
from unmask.cli.options import encoding_option
from unmask.cli.parser import Parser, add_hidden, add_verb, counted, field_options, print_fields
from unmask.cli.terminal import coloured
from unmask.cli.translation import lines
from unmask.errors import UnmaskError


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "generate",
        _generate,
        "continue texts with a language model, or a recording with a WaveNet",
        about='Continue texts with a language model, or a recording with a WaveNet: unmask generate --model FOLDER "A '
        'text".',
        fields=True,
    )
    sub.more_help = _generating_help
    sub.add_argument("texts", nargs="*", help="prompts, or a recording; without any, the beginning is empty")
    data = sub.group("what goes in")
    data.add_argument("--file", metavar="FILE", help="a file with one prompt a line")
    encoding_option(data)
    model = "folder of a language model or a WaveNet, such as `unmask pretrain gpt-tiny` or `wavenet-tiny` makes"
    group = sub.group("the model")
    needed(group.add_argument("--model", metavar="FOLDER", help=model))
    group.add_argument("--device", default="cpu", metavar="NAME", help="where the model runs: cpu, cuda, cuda:1")
    drawn = sub.group("sampling")
    add_field(drawn, "--max-length", "N", "most tokens to generate", default=100)
    add_field(drawn, "--samples", "N", "texts for each prompt", default=1)
    add_field(drawn, "--temperature", "X", "below 1, likely tokens are drawn more often; above 1, less", default=1.0)
    add_field(drawn, "--top-k", "N", "sample from the N most probable tokens; 0: from all", default=0)
    add_field(drawn, "--top-p", "X", "sample from the most probable tokens that add up to X", default=1.0)
    add_field(drawn, "--seed", "N", "seed of the samples", default=0)
    search = sub.group("search")
    search.add_argument("--search", action="store_true", help="search for the most probable text instead of sampling")
    add_field(search, "--beam-size", "N", "with --search: hypotheses that the search keeps", default=1)
    add_field(search, "--n-best", "N", "with --search: texts for each prompt", default=1)
    output = sub.group("output")
    output.add_argument("--seconds", type=float, metavar="N", help="with a WaveNet: seconds of sound to write to --out")
    output.add_argument("--out", metavar="FILE", help="with a WaveNet: FILE.wav")
    output.add_argument("--json", action="store_true", help="print one JSON object a line")
    field_options(sub, values="the sampling, or with --search of the search,")


def add_units(group: Any) -> None:
    """Add the view of the units of a recurrent network to the verb `show`."""
    _units_options(add_verb(group, "units", _units, "The activation of a unit of a recurrent network along a text."))


def add_older(verbs: Any) -> None:
    """Add `units` as version 0.1 spelled it."""
    _units_options(add_hidden(verbs, "units", _units))


def _units_options(sub: Parser) -> None:
    sub.add_argument("--model", required=True, metavar="FOLDER", help="folder of a recurrent network")
    sub.add_argument("text", help="a text; @FILE reads one from a file")
    encoding_option(sub)
    sub.add_argument("--layer", type=int, default=1, help="number of the layer, from 1")
    sub.add_argument("--unit", type=int, help="number of the unit, from 0 (default: the unit that changes most)")
    sub.add_argument("--next", type=int, default=5, metavar="N", help="likeliest next tokens under each; 0 for none")
    sub.add_argument("--out", "--html", metavar="FILE", help="write an HTML page to this file")


def _generating_help(sub: Parser, _: list[str], __: dict[str, str], every: bool) -> None:
    if every:
        from unmask.serve.continuation import sampling, searching

        add_fields(sub, sampling(), "sampling")
        add_fields(sub, searching(), "with --search")


def _generate(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask import huggingface
    from unmask.generate import Sampling, Search
    from unmask.kernels.devices import placed
    from unmask.serve.continuation import Continuer, sampling, searching

    how: Sampling | Search = searching() if options.search else sampling()
    how = how.override(overrides)
    if options.fields:
        print_fields(how)
        return
    if not options.model:
        raise UnmaskError("Give a model: --model FOLDER.")
    loaded = huggingface.load(options.model, huggingface.SINGLE_STACK)
    placed(loaded.model, options.device)
    if "recordings" in loaded.model.config.offers or options.seconds or options.out:
        _sound(options, loaded, how)
        return
    beginnings = list(lines(options)) if options.texts or options.file else [""]

    def name(number: int) -> str:
        return f"Line {number} of {options.file}" if options.file else f"Prompt {number}"

    for answers in Continuer(loaded, how).stream(beginnings, name):
        for answer in answers:
            print(json.dumps(answer.to_dict(), ensure_ascii=False) if options.json else answer.text, flush=True)
        if answers and answers[0].unknown and not options.json:
            count, text = answers[0].unknown, answers[0].beginning
            print(f"unmask: The model does not know {count} of the tokens of '{text}'.", file=sys.stderr)


def _sound(options: argparse.Namespace, loaded: Any, how: Any) -> None:
    from unmask.data.recordings.encoding import write_wav
    from unmask.files import atomic
    from unmask.serve.sounds import sounds
    from unmask.train.display import progress

    if not options.seconds or not options.out or Path(options.out).suffix != ".wav":
        raise UnmaskError("A recording needs its length and a file: --seconds 2 --out x.wav.")
    if options.search or options.file or options.json or len(options.texts) > 1:
        raise UnmaskError(
            "A recording follows one file, or silence, and is sampled: leave --search, --file and --json out."
        )
    beginning = options.texts[0] if options.texts else None
    with progress() as show:
        written, rate = sounds(loaded, how, options.seconds, beginning, show)
    with atomic(Path(options.out)) as temporary:
        write_wav(temporary, written, rate)
    print(f"{len(written) / rate:g} s of sound -> {options.out}")


def _units(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask import huggingface
    from unmask.files import write_text
    from unmask.serve.activations import activations, page, render, table

    loaded = huggingface.load(options.model, huggingface.SINGLE_STACK)
    tokenizer, text = loaded.require_tokenizer(options.model), _text(options.text, options.encoding)
    found = activations(loaded.model, tokenizer, text, options.next)
    layer = counted(options.layer, found.values.shape[1], "layer")
    unit = found.liveliest(layer)[0] if options.unit is None else options.unit
    if options.out:
        write_text(Path(options.out), page(found, unit, layer))
        print(f"Unit {unit} of layer {options.layer} -> {options.out}")
        return
    width = shutil.get_terminal_size().columns
    shown = render(found, unit, layer, width) if sys.stdout.isatty() else table(found, unit, layer)
    print(f"Unit {unit} of layer {options.layer}:", file=sys.stderr)
    print(shown, file=coloured())


def _text(given: str, encoding: str | None) -> str:
    from unmask.data.files.lines import lines as lines_of

    if not given.startswith("@"):
        return given
    place = Path(given[1:])
    if not place.is_file():
        raise UnmaskError(f"There is no file {place}.")
    return "".join(line for _, line in lines_of(place, encoding=encoding))
