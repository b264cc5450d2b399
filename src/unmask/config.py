"""Config: a frozen dataclass that is written to and read from JSON, with typed overrides; unknown fields raise."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from unmask.errors import FieldError, NoField, UnmaskError, in_part, kind_of, nearest, unknown

_LENGTH = ("rows.length", "rows.tokens", "texts.longest", "length")
_BATCH = "--batch-size counts the rows of a step over all devices; --micro-batch of pretrain sets those of one pass"

SAME: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "alpha"),
    **dict.fromkeys(("num_train_epochs", "num_epochs", "max_epoch", "max_epochs"), ("epochs",)),
    **dict.fromkeys(("max_steps", "max_update", "num_train_steps"), ("steps",)),
    "train_batch_size": ("batch_size", "batch"),
    **dict.fromkeys(("max_length", "max_seq_length", "max_sequence_length", "block_size"), _LENGTH),
    "max_source_length": ("texts.longest", "rows.length"),
    "max_new_tokens": ("search.limits.max_length", "limits.max_length"),
    **dict.fromkeys(("warmup_ratio", "warmup_proportion", "warmup_steps", "warmup_updates"), ("warmup",)),
    **dict.fromkeys(("max_grad_norm", "clip_norm"), ("clip",)),
    "adam_epsilon": ("training.optimizer.eps", "fit.optimizer.eps"),
    "optim": ("algorithm",),
    "lr_scheduler_type": ("shape",),
    "label_smoothing_factor": ("label_smoothing", "smoothing"),
    **dict.fromkeys(("num_beams", "beam", "beam_width"), ("beam_size", "beams")),
    "num_return_sequences": ("samples", "n_best"),
    "nbest": ("n_best",),
    "lenpen": ("length_penalty",),
    "no_repeat_ngram_size": ("no_repeat_ngram",),
    "do_sample": ("sample",),
    "eval_steps": ("evaluate_every",),
    "save_steps": ("save_every",),
    **dict.fromkeys(("logging_steps", "log_interval"), ("log_every",)),
    "save_total_limit": ("keep",),
    **dict.fromkeys(("dataloader_num_workers", "num_workers"), ("workers",)),
    "gradient_checkpointing": ("recompute",),
    "torch_compile": ("compile",),
    "early_stopping_patience": ("patience",),
    "metric_for_best_model": ("metric",),
    "mlm_probability": ("rate",),
    "lora_r": ("rank",),
    "lora_alpha": ("transfer.alpha",),
    **dict.fromkeys(("output_dir", "save_dir", "output_file"), ("out",)),
    **dict.fromkeys(("model_name_or_path", "model_name", "model_path"), ("model", "from")),
    "tokenizer_name": ("tokenizer",),
    **dict.fromkeys(("train_file", "train_data"), ("train", "data")),
    **dict.fromkeys(("validation_file", "valid_file", "dev_file", "eval_file"), ("dev",)),
    "test_file": ("test",),
    **dict.fromkeys(("input_file", "input"), ("file",)),
    **dict.fromkeys(("text_column", "text_column_name"), ("rows.text", "column")),
    **dict.fromkeys(("label_column", "label_column_name"), ("rows.label", "label")),
    "max_train_samples": ("rows.most", "texts.most", "most"),
    "random_seed": ("seed",),
    "vocab_size": ("vocabulary_size", "vocabulary.size"),
    "hidden_size": ("dim",),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer"), ("layers",)),
    **dict.fromkeys(("num_attention_heads", "n_head"), ("heads",)),
    "intermediate_size": ("hidden",),
    "bf16": ("precision=bf16",),
    **dict.fromkeys(("fp16", "half"), ("precision=fp16",)),
    **dict.fromkeys(("use_cpu", "no_cuda"), ("device=cpu",)),
}
"""A name in `transformers`, fairseq or sentence-transformers -> the names here that mean the same. The first one
that the verb or the config has is used; `name=value` stands for a switch that sets a value."""

INSTEAD: dict[str, str] = {
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), _BATCH),
    **dict.fromkeys(("gradient_accumulation_steps", "update_freq"), _BATCH),
    "max_steps": "--epochs or --minutes sets the length of this run",
    "max_tokens": "--tokens counts the target tokens of a training step, and --max-length the tokens to generate",
    **dict.fromkeys(("adam_beta1", "adam_beta2", "adam_betas"), "--betas 0.9,0.999 sets both"),
    "arch": "the recipe is named without an option; unmask recipes lists them",
    **dict.fromkeys(("dataset_name", "dataset"), "--data hub:NAME names a data set of the Hugging Face hub"),
    "overwrite_output_dir": "no run is overwritten; choose another --out, or delete the folder",
    **dict.fromkeys(("evaluation_strategy", "eval_strategy", "save_strategy"), "see --evaluate-every, --save-every"),
    **dict.fromkeys(("resume_from_checkpoint", "restore_file"), "--resume continues the run in --out"),
    **dict.fromkeys(("do_train", "do_eval", "do_predict"), "train, evaluate and predict are verbs"),
    "task_name": "--task names the kind of labels, and --benchmark a public data set",
    "line_by_line": "--per line of unmask corpus build makes each line a document",
    **dict.fromkeys(("n_gpu", "gpus", "devices"), "torchrun -m unmask starts one process for each device"),
}
"""A name elsewhere -> what to do here, where nothing means the same."""

_CELL = re.compile(r"(?:^|(?<=[ ;]) )(\w+(?:, \w+)*)(?: {2,}(?=\S)|$)")

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
        hints, names, owner = typing.get_type_hints(type(self)), vars(self), type(self).__name__
        for name, value in changes.items():
            if name not in names:
                before, of, after = str(unknown("field of ", name, names)).partition("of ")
                raise FieldError(before + of, owner, after)
            if isinstance(names[name], Config) and isinstance(value, Mapping):
                with in_part(name):
                    changes[name] = names[name].replace(**value)
            else:
                try:
                    changes[name] = typed(value, hints[name], f".{name}")
                except UnmaskError as error:
                    raise FieldError("", owner, str(error)) from None
        return dataclasses.replace(self, **changes)

    def override(self, changes: Mapping[str, Any], **others: str) -> Self:
        """A copy with changes named as on the command line: `steps` if only one field has that name, else a dotted
        name (`train.steps`); `-` and `_` are the same.

        others  other names for some fields: batch_size="rows.batch"

        Raises UnmaskError as `replace` does; the message names the option (--steps) instead of the field.
        """
        places = self.places()
        nested: dict[str, Any] = {}
        for name, value in self.renamed(changes, others).items():
            key = others.get(name.replace("-", "_"), name).replace("-", "_")
            found = [p for p in places if p == key] or [p for p in places if p.split(".")[-1] == key]
            if not found:
                known = {p.split(".")[-1] for p in places} | {p for p in places if "." in key} | set(self.other_names())
                refuse_foreign(key)
                foreign = nearest(key, [other for other in SAME if same(other, known.__contains__)])
                raise NoField(key, known if foreign is None or nearest(key, known) else {*known, foreign})
            if len(found) > 1:
                raise UnmaskError(f"Several fields are named '{name}'; write one of: {', '.join(found)}.")
            *path, last = found[0].split(".")
            owner, level = self, nested
            for part in path:
                owner, level = getattr(owner, part), level.setdefault(part, {})
            level[last] = typed(value, typing.get_type_hints(type(owner))[last], f"--{name}")
        return self.replace(**nested)

    def renamed(self, changes: Mapping[str, Any], others: Collection[str] = ()) -> dict[str, Any]:
        """The changes, with names of other tools replaced by those of fields (`SAME`)."""
        places = set(self.places())
        known = places | {p.rpartition(".")[2] for p in places} | set(self.other_names()) | set(others)
        found: dict[str, Any] = {}
        for name, value in changes.items():
            key = name.replace("-", "_")
            here = None if key in known else same(key, known.__contains__)
            own, set_to = here or (name, None)
            found[own] = value if set_to is None else set_to
        return found

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

    def owners(self) -> dict[str, tuple[Config, str]]:
        """Dotted name -> the config that holds the leaf field, and the name of the field in it."""
        found: dict[str, tuple[Config, str]] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Config):
                found.update({f"{f.name}.{k}": owner for k, owner in value.owners().items()})
            else:
                found[f.name] = (self, f.name)
        return found

    @classmethod
    def field_help(cls) -> dict[str, str]:
        """Field -> its description in the docstring of the class or of a base: a name, two spaces and the text.
        Indented lines continue a text; a line may hold several fields."""
        names = [f.name for f in dataclasses.fields(cls)]
        found: dict[str, str] = {}
        for owner in reversed(cls.__mro__):
            texts = _described(inspect.cleandoc(owner.__doc__ or ""), set(names))
            found |= {name: " ".join(text.split()) for name, text in texts.items() if text.strip()}
        return {name: found.get(name, "") for name in names}

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


def same(name: str, has: Callable[[str], bool]) -> tuple[str, str | None] | None:
    """The first name here that means the same as a name of another tool and that `has` accepts, and the value that it
    is set to (None: the value that is given); None if there is none.

    >>> same("num-beams", {"beam_size"}.__contains__), same("bf16", {"precision"}.__contains__)
    (('beam_size', None), ('precision', 'bf16'))
    """
    for here in SAME.get(name.replace("-", "_"), ()):
        own, _, value = here.partition("=")
        if has(own):
            return own, value or None
    return None


def refuse_foreign(name: str) -> None:
    """Raises UnmaskError if the name is one of another tool that has no equal here, with what to do instead."""
    if (instead := INSTEAD.get(name.replace("-", "_"))) is not None:
        raise UnmaskError(f"There is no --{name.replace('_', '-')} here: {instead}.")


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


def _described(doc: str, names: Collection[str]) -> dict[str, str]:
    """Name -> its text in a docstring."""
    found: dict[str, str] = {}
    described: list[str] = []
    for line in doc.splitlines():
        if not line.startswith(" "):
            described = []
        cells = [cell for cell in _CELL.finditer(line) if set(cell[1].split(", ")) <= set(names)]
        ends = [*(cell.start() for cell in cells), len(line)]
        found.update((name, f"{found[name]} {line[: ends[0]]}") for name in described)
        for cell, end in zip(cells, ends[1:], strict=True):
            described = cell[1].split(", ")
            found |= dict.fromkeys(described, line[cell.end() : end].rstrip(" ;"))
    return found


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
