"""Arguments: a parser with one-sentence errors, verbs, options that several verbs share, fields of a config."""

from __future__ import annotations

import argparse
import difflib
import io
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from unmask.cli import settings
from unmask.cli.help import REST, Field, More, add_field, formatter
from unmask.cli.terminal import uncovered
from unmask.config import refuse_foreign, same
from unmask.errors import NoField, UnmaskError, nearest, unknown

if TYPE_CHECKING:
    from unmask.config import Config
    from unmask.kernels.processor import Settled

ALL = "--help-all"
Run = Callable[[argparse.Namespace, dict[str, str]], None]
"""The function of a verb. It takes the options and the given fields."""


RESUME = "continue the run in --out, with its settings, from its last checkpoint, or from the start if it has none"
FURTHER = "; a larger --steps, or other --minutes, which count from now, train it further"


class Parser(argparse.ArgumentParser):
    """Raises errors of one sentence, which name the nearest verb or option that exists."""

    takes_fields: bool | None = None  # passes on unknown options, as `--name value`; None: its verbs decide
    more_help: More | None = None  # adds options to the help
    sections: Mapping[str, Sequence[str]] = {}  # title -> verbs, for a parser of many

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self._positionals.title, self._optionals.title = "arguments", "options"

    def group(self, title: str) -> Any:
        """The group of options with this title, which is made if there is none."""
        found = next((group for group in self._action_groups if group.title == title), None)
        return found or self.add_argument_group(title)

    def add_argument_group(self, *given: Any, **settings: Any) -> Any:
        added = super().add_argument_group(*given, **settings)
        if last := getattr(self, "_optionals", None):  # they are shown last
            self._action_groups.sort(key=lambda group: group is last)
            last.title = REST
        return added

    def hide(self, option: str) -> None:
        """Leave an option out of the help."""
        self._option_string_actions[option].help = argparse.SUPPRESS

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.given = list(sys.argv[1:] if args is None else args)
        end = self.given.index("--") if "--" in self.given else len(self.given)
        renamed = [word for item in self.given[:end] for word in self._renamed(item)]
        known, fields = self._set_aside([*renamed, *self.given[end:]])
        every = ALL in known
        if self.more_help is not None and (every or {"-h", "--help"} & set(known)):
            self.more_help(self, known, overrides(fields), every)
        if every and self.takes_fields is not None:
            self.print_help()
            self.exit()
        options, rest = super().parse_known_args(known, namespace)
        if rest and self.takes_fields is False:
            self.error(f"{rest[0]!r} is not understood here (put a text of several words in quotes)")
        return options, rest + fields

    def _renamed(self, item: str) -> list[str]:
        """An argument, with the name that an option has here."""
        name, equals, value = item.partition("=")
        known = self._option_string_actions
        if not name.startswith("--") or name == "--" or name in known or self.takes_fields is None:
            return [item]
        if (dashed := name.replace("_", "-")) in known:
            return [dashed + equals + value]
        here = same(name[2:], lambda own: f"--{own.replace('_', '-')}" in known)
        if here is None:
            if not self.takes_fields:
                refuse_foreign(name[2:])
            return [item]
        own, set_to = here
        option = f"--{own.replace('_', '-')}"
        return [option, *([] if known[option].nargs == 0 else [set_to])] if set_to else [option + equals + value]

    def _set_aside(self, given: list[str]) -> tuple[list[str], list[str]]:
        """Split arguments into those that the parser knows and fields with their values, which it would take for
        positional arguments."""
        known: list[str] = []
        fields: list[str] = []
        items = list(given) if self.takes_fields else []
        while items:
            item = items.pop(0)
            name, equals, _ = item.partition("=")
            listed = self._option_string_actions.get(name)
            if not item.startswith("--") or item in ("--", ALL) or not (listed is None or isinstance(listed, Field)):
                known.append(item)
                continue
            fields.append(item)
            if not equals and items and not items[0].startswith("--"):
                fields.append(items.pop(0))
            elif not equals and listed is not None:
                self.error(f"argument {name}: expected one argument")
        return (known, fields) if self.takes_fields else (given, [])

    def format_help(self) -> str:
        shown = self._get_formatter()
        shown.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        shown.add_text(self.description)
        for group in self._action_groups:
            verbs = next((one for one in group._group_actions if isinstance(one, argparse._SubParsersAction)), None)
            sections = self.sections if verbs is not None else {}
            for title, names in sections.items():
                shown.start_section(title)
                assert verbs is not None
                listed = {one.dest: one for one in verbs._choices_actions}
                shown.add_arguments([listed[name] for name in names])
                shown.end_section()
            if not sections:
                shown.start_section(group.title)
                shown.add_text(group.description)
                shown.add_arguments(group._group_actions)
                shown.end_section()
        shown.add_text(self.epilog)
        return shown.format_help()

    def _get_formatter(self) -> argparse.HelpFormatter:
        return formatter(self.prog)

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(message, uncovered(file or sys.stderr))

    def error(self, message: str) -> NoReturn:
        known = {option for option in self._option_string_actions if option.startswith("--")}
        for item in self.given:
            option = item.partition("=")[0].replace("_", "-")
            if not option.startswith("--") or option in known:
                continue
            # A misspelt option is a likelier cause than what argparse reports, unless it may be a field.
            if not self.takes_fields or difflib.get_close_matches(option, known, n=1, cutoff=0.8):
                raise unknown(f"option of {self.prog}:", option, known - {"--help"})
        raise UnmaskError(f"{message[0].upper()}{message[1:]}; see {self.prog} --help.")

    def instead(self, error: NoField) -> UnmaskError:
        """The error on an option that is no field: it may be one of the parser, misspelt."""
        listed = self._option_string_actions.items()
        own = {name[2:] for name, action in listed if name.startswith("--") and not isinstance(action, Field)}
        given = error.name.replace("_", "-")
        meant = nearest(given, {*own, *(name.replace("_", "-") for name in error.known)})
        if meant not in own:
            return error
        return UnmaskError(f"There is no option of {self.prog}: '--{given}'; did you mean '--{meant}'?")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.type not in (int, float):
            return super()._get_value(action, arg_string)
        try:
            value = action.type(arg_string)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            name, kind = (action.option_strings or [action.dest])[0], "whole number" if action.type is int else "number"
            raise UnmaskError(f"{name} must be a {kind}, not '{arg_string}'.")
        return value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            shown = [verb.dest for verb in action._choices_actions]  # verbs without help are not listed
            raise unknown(f"verb of {self.prog}:", str(value), shown)
        raise unknown(f"value of {(action.option_strings or [action.dest])[0]}:", str(value), action.choices)


def add_verb(
    verbs: Any, name: str, run: Run, help: str, *, about: str = "", fields: bool = False, more: str = "", **shown: Any
) -> Parser:
    """Add a verb.

    help    one line for the list of verbs
    about   the description in its own help (default: `help`)
    fields  whether it passes unknown options on as `--name value`
    more    the end of its help; with `fields`, where to find the fields that the help does not list (`add_field`)
    """
    verb: Parser = verbs.add_parser(name, help=help, description=about or _sentence(help), epilog=more or None)
    verb.set_defaults(run=run, parser=verb)
    verb.takes_fields = fields
    return verb


def _sentence(help: str) -> str:
    return f"{help[:1].upper()}{help[1:].removesuffix('.')}." if help else ""


def add_hidden(verbs: Any, name: str, run: Run, **settings: Any) -> Parser:
    """Add an older spelling of a verb, which no list shows."""
    verb = add_verb(verbs, name, run, "", **settings)
    verbs._choices_actions.pop()
    return verb


def field_options(sub: Parser, *, values: str = "the run", config: bool = False) -> None:
    """Add the options that show the fields of a verb, with the values of `values`; with `config`, also those that read
    and write them as a file."""
    sub.add_argument(ALL, action="store_true", help="show every option in groups, with its default, and stop")
    sub.add_argument("--fields", action="store_true", help=f"print every field of {values} with its value, and stop")
    if config:
        settings.add_options(sub)


def where_to_train(group: Any) -> None:
    """Add the fields of the device and the precision of a training."""
    add_field(group, "--device", "NAME", "where it runs: cpu, cuda, cuda:1; auto takes a GPU if any", default="auto")
    add_field(group, "--precision", "NAME", "of products", default="auto", choices=("auto", "fp32", "bf16", "fp16"))


DRY = {"action": "store_true", "help": "print the size, memory and time of the run, and stop"}
"""Settings of the option --dry-run."""


def run_output(sub: Parser, help: str, *, dry: bool = True, further: bool = True) -> Any:
    """Add the options of the folder of a run; returns the group and --out.

    further  whether a run that has ended can be trained further
    """
    group = sub.group("output")
    out = group.add_argument("--out", metavar="FOLDER", help=help)
    group.add_argument("--resume", action="store_true", help=RESUME + (FURTHER if further else ""))
    if dry:
        group.add_argument("--dry-run", **DRY)
    return group, out


def add_group(verbs: Any, name: str, help: str) -> Any:
    """Add a verb that has verbs below it, and return the list that they are added to."""
    return verbs.add_parser(name, help=help, description=_sentence(help)).add_subparsers(metavar="verb", required=True)


def say(settled: Settled) -> None:
    """Print the precision that a model computes in, if it differs from what the options specify."""
    if settled.note:
        print(settled.note, file=sys.stderr)


def check_run(folder: str, facts: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises UnmaskError if the verb does not know the recipe of the run in a folder: another verb began that run.

    facts  run.json of the run, with the name of its recipe under `recipe`
    """
    name = facts.get("recipe")
    if name and name not in known:
        raise UnmaskError(f"{folder} holds a run of '{name}'; continue it with the verb that began it.")


def given_lines(options: argparse.Namespace, verb: str) -> Iterator[str]:
    """The lines of --file, else of standard input, if the arguments have no texts; without line ends and byte order
    mark.

    Raises UnmaskError if there are both texts and a file, if the file does not exist or is empty, if standard input is
    a terminal, and for a line that cannot be decoded by --encoding (default UTF-8).
    """
    if options.texts and options.file:
        raise UnmaskError("Give texts or --file, not both.")
    if options.texts:
        return
    if options.file and not Path(options.file).is_file():
        raise UnmaskError(f"There is no file {options.file}.")
    if not options.file and sys.stdin.isatty():
        raise UnmaskError(f'Give a text in quotes, --file FILE, or text on standard input: unmask {verb} ... "a text"')
    yield from text_lines(options.file, options.encoding)


def text_lines(file: str | None, named: str | None) -> Iterator[str]:
    """The lines of a file, compressed or not, else of standard input as they arrive, for `given_lines`."""
    from unmask.data.files import encodings
    from unmask.data.files.lines import opened

    name, number = file or "standard input", 0
    encoding = encodings.checked(named) or "utf-8"
    with opened(Path(file)) if file else sys.stdin.buffer as source:
        text = io.TextIOWrapper(source, encoding, encodings.errors_of(encoding), newline="\n")
        for number, line in enumerate(iter(text.readline, ""), 1):
            if not encodings.is_sound(line):
                raise encodings.undecodable(f"Line {number} of {name}", line, named)
            yield (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")
    if not number:
        raise UnmaskError(f"There is no text in {name}: it is empty.")


def counted(number: int, count: int, what: str) -> int:
    """The index from 0 of a number that people count from 1. Raises UnmaskError if the model has no such number."""
    if not 1 <= number <= count:
        raise UnmaskError(f"There is no {what} {number}: the model has {count}, counted from 1.")
    return number - 1


def carried_out(run: Any, options: argparse.Namespace, verb: str) -> bool:
    """Carry out a run that has `plan`, `run` and `summary`, or with --dry-run print its plan.

    True if the run is complete, on the main process; False on all others.
    """
    from unmask.runs.report import write_report
    from unmask.train import checkpoint, distributed
    from unmask.train.display import render_plan

    if options.dry_run:
        plan = run.plan()  # on every process
        if distributed.is_main():
            print(render_plan(plan))
        return False
    result = run.run()
    if not distributed.is_main():
        return False
    write_report(Path(options.out))
    print(run.summary(result))
    if result.stopped is not None:
        print(f"Continue with: {checkpoint.command(verb, options.out)}")
    elif run.began == result.total:
        print("The run had ended, so that nothing was trained: the same command adds no steps.")
        print(f"Train further with: {checkpoint.command(verb, options.out)} --steps N")
    return result.stopped is None


def overrides(rest: Sequence[str]) -> dict[str, str]:
    """The fields of a config in arguments that the parser does not know: `--name value`, `--name=value`, `--flag`.

    Raises UnmaskError for an argument that does not begin with `--`.
    """
    fields: dict[str, str] = {}
    name = value = ""
    items = list(rest)
    while items:
        item = items.pop(0)
        if not item.startswith("--"):
            after = f" after --{name} {value}: one value belongs to it" if fields else "; give a field as --name value"
            raise UnmaskError(f"'{item}' is not understood here{after}.")
        name, equals, value = item[2:].partition("=")
        if not equals:
            value = items.pop(0) if items and not items[0].startswith("--") else "true"
        fields[name] = value
    return fields


def local_models(options: argparse.Namespace, fields: dict[str, str]) -> None:
    """Replace names of models on the Hugging Face hub by local folders; each model is downloaded once."""
    given = vars(options)
    for name in ("model", "models", "start", "tokenizer"):
        value = given.get(name)
        if isinstance(value, list):  # [NAME=]FOLDER
            given[name] = [_local(one, named=True) for one in value]
        elif value:
            given[name] = _local(value)
    for name, value in fields.items():
        if name.split(".")[-1] in ("model", "teacher"):
            fields[name] = _local(value)


def _local(given: str, *, named: bool = False) -> str:
    label, _, place = given.rpartition("=") if named else ("", "", given)
    if Path(place).exists():
        return given
    from unmask.huggingface import hub

    if not hub.is_name(place):
        return given
    name = place.removeprefix(hub.PREFIX).partition("@")[0].rpartition("/")[2]
    return f"{label or name}={hub.model_folder(place)}" if named else str(hub.model_folder(place))


def of_rows(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of reading rows, without the optional prefix `rows.`."""
    return {name.removeprefix("rows."): value for name, value in fields.items()}


def print_fields(config: Config, prefix: str = "") -> None:
    """Print the fields of a config and their values, as --NAME VALUE."""
    for name, value in config.places().items():
        print(f"--{prefix + name:32} {value}")
