"""Parts of tables that several encoder–decoders share: fields of config.json that unmask adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.config import Config
from unmask.errors import UnmaskError, unknown
from unmask.huggingface.kinds import SETTINGS
from unmask.huggingface.table import Part

OWN = "unmask_config"


@dataclass(frozen=True)
class Written(Part):
    """Writes constant fields to config.json, which other programs read."""

    values: Mapping[str, Any]

    def write(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**values, **self.values}


@dataclass(frozen=True)
class Own(Part):
    """Writes fields of the page that the fields of `transformers` cannot fully express to `unmask_config` as well."""

    names: tuple[str, ...]

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        return {name: value for name, value in values.items() if name != OWN}

    def deduce(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], place: Path) -> Mapping[str, Any]:
        own = values.get(OWN) or {}
        if not isinstance(own, Mapping):
            raise UnmaskError(f"{place}: {OWN} must hold fields, not {own!r}.")
        for name in own.keys() - set(self.names):
            raise unknown(f"field of {OWN} in {place}:", name, self.names)
        return own

    def write(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**values, OWN: {name: getattr(config, name) for name in self.names}}


class DtypeLast(Part):
    """The order of fields of version 0.1 for encoder–decoders: `dtype` comes last, and `architectures` is absent if
    `transformers` has no class."""

    def write(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        moved = {"dtype"} if values["architectures"] else {"dtype", "architectures"}
        return {**{name: x for name, x in values.items() if name not in moved}, "dtype": values["dtype"]}


@dataclass(frozen=True)
class OwnForm(DtypeLast):
    """A folder in unmask's own format, which `transformers` cannot write: its fields are those of the page."""

    page: type[Config]

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        beside = ("model_type", "dtype", SETTINGS)
        try:
            self.page.from_dict({name: value for name, value in values.items() if name not in beside})
        except UnmaskError as error:
            raise UnmaskError(f"{place}: {error}") from None
        return values
