"""--config and --print-config: the settings of a run in a file, in the form of run.json."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unmask.errors import UnmaskError, kind_of

if TYPE_CHECKING:
    from unmask.config import Config

    Made = TypeVar("Made", bound=Config)

FACTS = ("recipe", "corpora")
"""Names outside the config that a short file may have too."""
RENAMED = {"from": "start"}  # option -> its name in the options, where they differ


@dataclass(frozen=True)
class Settings:
    """The settings in a file.

    facts  as in run.json: `recipe`, `corpora`, `config` and others
    whole  whether every field is given, as in run.json; else only some, by any name that the command line takes
    """

    path: Path
    facts: dict[str, Any]
    whole: bool

    def config(self, whole: Callable[[dict[str, Any]], Made], usual: Callable[[], Made], **others: str) -> Made:
        """The config of the file.

        whole   facts, as in run.json -> config
        usual   the config that the fields of a short file change; `others` as in `Config.override`

        Raises UnmaskError, which names the file, for an unknown field and a value of a wrong type.
        """
        from unmask.config import flatten

        with self.named():
            return whole(self.facts) if self.whole else usual().override(flatten(self.facts["config"]), **others)

    @contextmanager
    def named(self) -> Iterator[None]:
        """A context in which errors name the file."""
        try:
            yield
        except UnmaskError as error:
            raise UnmaskError(f"{self.path}: {re.sub(r'^--', '', str(error))}") from None


def add_options(group: Any) -> None:
    """Add the two options."""
    group.add_argument(
        "--config",
        metavar="FILE",
        help="settings from a .toml, .yaml or .json file, such as run.json of another run; options change them",
    )
    group.add_argument("--print-config", action="store_true", help="print the settings as TOML for --config, and stop")


def settings_of(options: argparse.Namespace) -> Settings | None:
    """The settings of --config, None without it. Options that the file has and the command line lacks are set.

    Raises UnmaskError if there is no such file, if it cannot be read, and with --resume.
    """
    if options.config is None:
        return None
    if options.resume:
        raise UnmaskError("A run continues with its own settings: leave --config or --resume out.")
    path = Path(options.config)
    path = path / "run.json" if path.is_dir() else path
    values = _read(path)
    if "architectures" in values:
        raise UnmaskError(f"{path} is the config of a model; the settings of its run are in run.json beside it.")
    whole = isinstance(values.get("config"), Mapping)
    if whole:
        return Settings(path, values, True)
    rest = {}
    for name, value in values.items():
        own = RENAMED.get(name, name).replace("-", "_")
        if own in vars(options).keys() - {"run", "parser"} and not isinstance(value, Mapping):
            given = getattr(options, own)
            vars(options)[own] = given or _like(given, value, f"{path}: {name}")
        else:
            rest[name] = value
    facts = {name: rest.pop(name) for name in FACTS if name in rest}
    if "recipe" in facts:
        facts["recipe"] = _like(None, facts["recipe"], f"{path}: recipe")
    if "corpora" in facts:
        facts["corpora"] = _like([], facts["corpora"], f"{path}: corpora")
    return Settings(path, facts | {"config": rest}, False)


def _like(usual: Any, value: Any, place: str) -> Any:
    """A value for an option with this default: a switch, several texts, or one text."""
    if isinstance(usual, list):
        found = [value] if isinstance(value, str) else value
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return found
        raise UnmaskError(f"{place} must be a list of texts, not {kind_of(value)}.")
    if isinstance(usual, bool):
        if isinstance(value, bool):
            return value
        raise UnmaskError(f"{place} must be true or false, not {kind_of(value)}.")
    if isinstance(value, str):
        return value
    raise UnmaskError(f"{place} must be text, not {kind_of(value)}.")


def _read(path: Path) -> dict[str, Any]:
    from unmask.config import bounded, read_json

    if path.suffix not in (".toml", ".yaml", ".yml"):
        return read_json(path)
    if not path.is_file():
        raise UnmaskError(f"There is no file {path}.")
    try:
        text = bounded(path).decode("utf-8")
        value = _toml(text) if path.suffix == ".toml" else _yaml(text)
    except UnicodeDecodeError as error:
        raise UnmaskError(f"{path} is not UTF-8 text: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise UnmaskError(f"{path} is not valid {path.suffix[1:].upper()}: {' '.join(str(error).split())}.") from None
    if not isinstance(value, dict):
        raise UnmaskError(f"{path} must hold names with values, not {kind_of(value)}.")
    if odd := [name for name in value if not isinstance(name, str)]:
        raise UnmaskError(f"{path}: a name must be text, not {odd[0]!r}.")
    return value


def _toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def print_config(verb: str, config: Config, **facts: Any) -> None:
    """Print the settings of a run; `facts` are the other entries of run.json."""
    print(f"# unmask {verb} --config FILE; every field is described by: unmask {verb} --help-all")
    print(toml({**facts, "config": config.to_dict()}), end="")


def toml(values: Mapping[str, Any], table: str = "") -> str:
    """Values as TOML, which has no null: it is written as "none", which every field understands.

    >>> print(toml({"recipe": "bert-tiny", "config": {"steps": None, "rows": {"batch": 32}}}), end="")
    recipe = "bert-tiny"
    <BLANKLINE>
    [config]
    steps = "none"
    <BLANKLINE>
    [config.rows]
    batch = 32
    """
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    lines = [f"{name} = {json.dumps('none' if v is None else v, ensure_ascii=False)}\n" for name, v in plain.items()]
    parts = {f"{table}.{name}" if table else name: v for name, v in values.items() if isinstance(v, Mapping)}
    inner = [("" if not _has_plain(v) else f"\n[{name}]\n") + toml(v, name) for name, v in parts.items()]
    return "".join([*lines, *inner])


def _has_plain(values: Mapping[str, Any]) -> bool:
    return not values or any(not isinstance(value, Mapping) for value in values.values())
