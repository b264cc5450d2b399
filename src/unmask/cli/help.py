"""Help of verbs: groups of options, fields of configs, and the layout, in colour on a terminal."""

from __future__ import annotations

import argparse
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.config import Config

REST = "other options"
"""Title of the options that are in no group, which the help shows last."""


class Field(argparse.Action):
    """A field of a config that the help lists. The parser passes it on unchecked; the config checks it."""

    def __call__(self, *_: Any) -> None:
        raise AssertionError(f"{self.dest} is set aside before options are parsed")


def needed(action: argparse.Action) -> None:
    """Let help show an option as required. Every run needs it, but --fields and --resume do not."""
    vars(action)["needed"] = True


def offer(action: argparse.Action, values: Callable[[], Iterable[str]]) -> None:
    """Let completion offer values of an option that accepts others too. They are computed for the script only."""
    vars(action)["offered"] = values


def _is_needed(action: argparse.Action) -> bool:
    return action.required or getattr(action, "needed", False)


class Layout(argparse.HelpFormatter):
    """Shows required options first, the default of every option that has one, and a usage of one or two lines."""

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        either = [action for group in groups if group.required for action in group._group_actions]
        if prefix == "" or any(isinstance(one, argparse._SubParsersAction) for one in actions):
            super().add_usage(usage, [one for one in actions if not one.option_strings], groups, prefix)
            return
        shown: list[argparse.Action] = []
        for action in _required_first(actions):
            if _is_needed(action) and action not in either:
                shown.append(_as_required(action))
            elif action in either or not action.option_strings:
                shown.append(action)
        shown.append(argparse._StoreAction([], "options", nargs="?", metavar="options"))
        super().add_usage(usage, shown, groups, prefix)

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        super().add_arguments(_required_first(actions))

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if not action.option_strings or "default" in text or default in (None, argparse.SUPPRESS, [], ()):
            return text
        if default is False:  # an option without a value
            return text
        shown = " ".join(map(str, default)) if isinstance(default, list) else str(default)
        return f"{text} (default: {shown.replace('%', '%%')})"


class Plain(Layout, argparse.HelpFormatter):
    """The layout without colours."""


@cache
def coloured() -> type[argparse.HelpFormatter]:
    """The layout in colours."""
    from rich_argparse import RichHelpFormatter

    class Coloured(Layout, RichHelpFormatter):
        group_name_formatter = str
        help_markup = text_markup = False
        highlights: typing.ClassVar = [r"`(?P<syntax>[^`]*)`", r"(?P<metavar>\(default: [^)]*\))"]

    return Coloured


def formatter(prog: str) -> argparse.HelpFormatter:
    """The formatter for standard output."""
    return (coloured() if sys.stdout is not None and sys.stdout.isatty() else Plain)(prog=prog)


def _required_first(actions: Iterable[argparse.Action]) -> list[argparse.Action]:
    return sorted(actions, key=lambda action: not _is_needed(action))


def _as_required(action: argparse.Action) -> argparse.Action:
    import copy

    shown = copy.copy(action)
    shown.required, shown.option_strings = True, list(action.option_strings)[:1]
    return shown


# ------------------------------------------------------------------------------------------------ fields


def add_field(
    parser: Any, names: str, value: str, help: str, *, default: Any = None, choices: Sequence[str] = ()
) -> argparse.Action:
    """List a field among the options of a verb that passes fields on.

    names    the option, and others with the same meaning, with spaces between them
    value    the placeholder for its value
    default  as text, or a number
    choices  values that the field may have; the help lists those that its text does not name
    """
    more = ", ".join(one for one in choices if one not in help)
    text = help + (f": {more}" if more else "") + ("" if default is None else f" (default: {default})")
    action: argparse.Action = parser.add_argument(
        *names.split(), action=Field, metavar=value, default=argparse.SUPPRESS, help=text.replace("%", "%%")
    )
    action.choices = tuple(choices) or None
    vars(action)["default_shown"] = default
    return action


def add_fields(
    parser: argparse.ArgumentParser, config: Config, title: str = "", leave_out: Collection[str] = ()
) -> None:
    """List the fields of a config as groups of options, one for each part of it, unless they are listed already.

    title      of the group of the fields that are in no part
    leave_out  names of fields that are not listed
    """
    owners = config.owners()
    leaves = [place.rpartition(".")[2] for place in owners]
    groups: dict[str, Any] = {}
    for place, (owner, name) in owners.items():
        part = place.rpartition(".")[0]
        shown = name if leaves.count(name) == 1 else place
        option = "--" + shown.replace("_", "-")
        if {name, place} & set(leave_out) or option in parser._option_string_actions:
            continue
        if part not in groups:
            about = (type(owner).__doc__ or "").strip().split("\n\n")[0]
            heading = ", ".join(filter(None, (title, part))) or "run"
            groups[part] = parser.add_argument_group(heading, " ".join(about.split()))
        choices, default = choices_of(owner, name), getattr(owner, name)
        text, kind = type(owner).field_help()[name], VALUES.get(_kind_of(owner, name), "NAME")
        usual = None if default is None or "default" in text else said(default)
        add_field(groups[part], option, kind, text, default=usual, choices=choices)


VALUES: dict[Any, str] = {bool: "YES", int: "N", float: "X"}
"""Type of a field -> the placeholder for its value."""


def said(value: Any) -> str:
    """The value of a field as the command line takes it.

    >>> said(True), said((0.9, 0.999)), said(None), said(())
    ('yes', '0.9,0.999', 'none', 'none')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(said, value)) or "none"
    return "none" if value is None else str(value)


def choices_of(owner: Config, name: str) -> tuple[str, ...]:
    """The values that a field may have, where they are listed in its type."""
    hint = typing.get_type_hints(type(owner))[name]
    options = [hint, *typing.get_args(hint)]
    return next((typing.get_args(one) for one in options if typing.get_origin(one) is typing.Literal), ())


def _kind_of(owner: Config, name: str) -> Any:
    hint = typing.get_type_hints(type(owner))[name]
    return next((one for one in (hint, *typing.get_args(hint)) if one in VALUES), str)


# ------------------------------------------------------------------------------------------------ more on demand

More = Callable[[Any, list[str], dict[str, str], bool], None]
"""Adds options to the help of a verb: (parser, arguments of the parser, fields, whether every field is asked for)."""
