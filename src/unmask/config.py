"""Config: a frozen dataclass that is written to and read from JSON, with typed overrides; unknown fields raise."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from unmask.errors import UnmaskError, kind_of, nearest, unknown

ELSEWHERE = {
    "learning_rate": ("lr",),
    "num_train_epochs": ("epochs",),
    "num_epochs": ("epochs",),
    "steps": ("epochs",),
    "max_steps": ("steps", "epochs"),
    "batch_size": ("batch", "tokens"),
    "per_device_train_batch_size": ("batch_size", "batch", "tokens"),
    "train_batch_size": ("batch_size", "batch", "tokens"),
    "max_seq_length": ("length",),
    "max_length": ("length",),
    "warmup_ratio": ("warmup",),
    "warmup_steps": ("warmup",),
    "max_grad_norm": ("clip",),
    "num_beams": ("beam_size",),
    "eval_steps": ("evaluate_every",),
    "save_steps": ("save_every",),
}
"""The name of a field in other tools -> its possible names here, which the error for an unknown field suggests."""

_DESCRIBED = re.compile(r"(?m)^(\w+(?:, \w+)*)  +(\S.*(?:\n +\S.*)*)")

LARGEST = 1 << 26  # bytes of a file that is read whole; the Python values may take thirty times as much memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Base of every configuration. Subclasses are frozen, keyword-only dataclasses whose fields are plain
    values (bool, int, float, str, tuples of them, None) or other configs."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, nested configs as dictionaries."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def replace(self, **changes: Any) -> Self:
        """A copy with typed changes: strings are parsed to the field's type, dictionaries go into nested configs.

        Raises UnmaskError for a field that does not exist (naming the nearest) or a value of the wrong type.
        """
        hints = typing.get_type_hints(type(self))
        for name, value in changes.items():
            if name not in hints:
                raise unknown(f"field of {type(self).__name__}", name, hints)
            current = getattr(self, name)
            if isinstance(current, Config) and isinstance(value, Mapping):
                changes[name] = current.replace(**value)
            else:
                changes[name] = typed(value, hints[name], f"{type(self).__name__}.{name}")
        return dataclasses.replace(self, **changes)

    def override(self, changes: Mapping[str, Any], **others: str) -> Self:
        """A copy with changes named as on the command line: `steps` if only one field has that name, else a dotted
        name (`train.steps`); `-` and `_` are the same.

        others  other names for some fields: batch_size="rows.batch"

        Raises UnmaskError as `replace` does; the message names the option (--steps) instead of the field.
        """
        places = self.places()
        nested: dict[str, Any] = {}
        for name, value in changes.items():
            key = others.get(name.replace("-", "_"), name).replace("-", "_")
            found = [p for p in places if p == key] or [p for p in places if p.split(".")[-1] == key]
            if not found:
                known = {p.split(".")[-1] for p in places} | {p for p in places if "." in key} | set(self.other_names())
                raise unknown("field", key, known, ELSEWHERE.get(key, ()))
            if len(found) > 1:
                raise UnmaskError(f"Several fields are named '{name}'; write one of: {', '.join(found)}.")
            *path, last = found[0].split(".")
            owner, level = self, nested
            for part in path:
                owner, level = getattr(owner, part), level.setdefault(part, {})
            level[last] = typed(value, typing.get_type_hints(type(owner))[last], f"--{name}")
        return self.replace(**nested)

    def other_names(self) -> Iterable[str]:
        """Names that the caller accepts besides those of fields; `override` suggests them for an unknown name."""
        return ()

    def places(self) -> dict[str, Any]:
        """Dotted name -> value of every leaf field."""
        flat: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Config):
                flat.update({f"{f.name}.{k}": v for k, v in value.places().items()})
            else:
                flat[f.name] = value
        return flat

    @classmethod
    def field_help(cls) -> dict[str, str]:
        """Field -> its description in the docstring of the class or of a base: a line with the name, two spaces and
        the text."""
        found: dict[str, str] = {}
        for owner in reversed(cls.__mro__):
            for match in _DESCRIBED.finditer(inspect.cleandoc(owner.__doc__ or "")):
                found |= dict.fromkeys(match[1].split(", "), " ".join(match[2].split()))
        return {f.name: found.get(f.name, "") for f in dataclasses.fields(cls)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`. Absent fields keep their defaults; unknown ones raise UnmaskError.

        A nested config always gets the class of its default. For a field whose class may differ, start from a config
        that has the correct class, and call `replace`.
        """
        if not isinstance(values, Mapping):
            raise UnmaskError(f"{cls.__name__} has fields with names; {values!r} has none.")
        return cls().replace(**values)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a JSON file. Raises UnmaskError if it is missing, damaged or has unknown fields."""
        return cls.from_dict(read_json(path))


def read_json(path: Path, largest: int = LARGEST) -> dict[str, Any]:
    """Read a JSON object from a file of at most `largest` bytes. Raises UnmaskError, which names the file and the
    position of the fault."""
    try:
        value = json.loads(bounded(path, largest).decode("utf-8"))
    except FileNotFoundError:
        raise UnmaskError(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"{path} cannot be read: {error}.") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits raises a plain ValueError
        raise UnmaskError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise UnmaskError(f"{path} must hold a JSON object, not {kind_of(value)}.")
    return value


def regular(path: Path) -> Path:
    """Return the path. Raises UnmaskError for a pipe, a device, a socket or a folder: a read of one may never end."""
    if path.exists() and not path.is_file():
        raise UnmaskError(f"{path} cannot be read: it is not a regular file. Put the file itself there.")
    return path


def bounded(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a file that is read whole: JSON, vocabularies. Raises UnmaskError if it has more than `largest`
    bytes or is not a regular file, and OSError as `open` does."""
    with regular(path).open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise UnmaskError(f"{path} has more than {largest:,} bytes, which is too many for a file of its kind.")
    return content


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings of any depth to dotted names: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    open_ones = [(prefix, iter(values.items()))]
    while open_ones:
        before, items = open_ones[-1]
        for name, value in items:
            if isinstance(value, Mapping):
                open_ones.append((f"{before}{name}.", iter(value.items())))
                break
            flat[f"{before}{name}"] = value
        else:
            open_ones.pop()
    return flat


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def typed(value: Any, hint: Any, where: str) -> Any:
    """Convert `value` to the annotated type: strings of the command line are parsed, JSON lists become tuples.

    Raises UnmaskError for a value of another type; the message begins with `where`.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in args and (value is None or value == "none"):
            return None
        for option in args:
            if option is not type(None):
                try:
                    return typed(value, option, where)
                except UnmaskError:
                    continue
        raise UnmaskError(f"{where} must be {_name(hint)}, not {value!r}.")
    if origin is typing.Literal:
        if value in args:
            return value
        meant = nearest(str(value), map(str, args))
        hint = f"; did you mean '{meant}'?" if meant else "."
        raise UnmaskError(f"{where} must be one of {', '.join(map(str, args))}, not {value!r}{hint}")
    if origin is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if isinstance(items, (list, tuple)):
            if len(args) == 2 and args[1] is Ellipsis:
                return tuple(typed(v, args[0], where) for v in items)
            if len(items) == len(args):
                return tuple(typed(v, a, where) for v, a in zip(items, args, strict=True))
    elif hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "yes", "1", "false", "no", "0"):
            return value.lower() in ("true", "yes", "1")
    elif hint in (int, float):
        number = _number(value, hint)
        if number is not None:
            return number
    elif isinstance(hint, type) and isinstance(value, hint):
        return value
    elif hint is Path and isinstance(value, str):
        return Path(value)
    raise UnmaskError(f"{where} must be {_name(hint)}, not {value!r}.")


def _number(value: Any, kind: type) -> float | None:
    """`value` as an int or float if that loses nothing, else None; "1e6" is a whole number, true and nan are not
    numbers."""
    try:
        if isinstance(value, bool) or value != value:
            return None
        if isinstance(value, str):
            value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
            return _number(value, kind)
        return float(value) if kind is float else int(value) if value == int(value) else None
    except (TypeError, ValueError, OverflowError):
        return None


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
_NAMES[type(None)] = "none"


def _name(hint: Any) -> str:
    """The name of a type in an error message."""
    args = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_name, args))
    if typing.get_origin(hint) is tuple:
        many = len(args) == 2 and args[1] is Ellipsis
        return f"a list of {_name(args[0])}" if many else f"{len(args)} values ({', '.join(map(_name, args))})"
    return _NAMES.get(hint, str(getattr(hint, "__name__", hint)))
