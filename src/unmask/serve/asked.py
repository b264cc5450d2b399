"""Asked: the fields of a request for a view, and the model that it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from unmask.data.recordings.reading import Recording
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.serve.opened import Opened
from unmask.tasks.file_forms import FileForm
from unmask.visualize.reading import Read
from unmask.visualize.recording_attention import read_recording


class Models(Protocol):
    """A source of models by name, such as `serve.http.Pool`."""

    def get(self, name: str | None = None) -> Any: ...


class Asked:
    """The fields of a request, and the model that it names. Methods raise UnmaskError for a field of another type.

    runs  the folder of the runs
    data  whether the client may see data of the training
    """

    def __init__(self, models: Models, fields: Mapping[str, Any], runs: Path, *, data: bool = True) -> None:
        self.models, self.fields, self.runs, self.data = models, fields, runs, data

    def require_data(self) -> None:
        """Raises UnmaskError if the client may not see data of the training."""
        if not self.data:
            raise UnmaskError("This service shows no data of the training: start it with --training-data.")

    def text(self, name: str = "text", default: str | None = None) -> str:
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise UnmaskError(f"'{name}' must be a text.")
        return value

    def maybe(self, name: str) -> str | None:
        """A text, or None if it is absent or empty."""
        return self.text(name) or None if self.fields.get(name) is not None else None

    def texts(self, name: str, most: int = 100) -> list[str]:
        value = self.fields.get(name, [])
        if not isinstance(value, list) or len(value) > most or not all(isinstance(one, str) for one in value):
            raise UnmaskError(f"'{name}' must be a list of at most {most} texts.")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        value = self.fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise UnmaskError(f"'{name}' must be a whole number from {least} to {most}.")
        return value

    def numbers(self, name: str, most: int) -> list[int] | None:
        """1 to `most` whole numbers, or None if the field is absent."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not 0 < len(value) <= most or not all(type(one) is int for one in value):
            raise UnmaskError(f"'{name}' must be a list of 1 to {most} whole numbers.")
        return value

    def share(self, name: str, default: float) -> float:
        value = self.fields.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UnmaskError(f"'{name}' must be a number.")
        return float(value)

    @property
    def opened(self) -> Opened:
        served = self.models.get(self.maybe("model"))
        return Opened(
            served.folder, served.predictor, served.translator, served.continuer, served.inner, served.vectors
        )

    @property
    def reader(self) -> tuple[Model, Tokenizer]:
        """The model and its tokenizer. Raises UnmaskError for an encoder–decoder and for word vectors."""
        opened = self.opened
        tokenizer = opened.tokenizer
        return opened.model, tokenizer

    def reading(self) -> tuple[Any, Read]:
        """The model, and the text or the recording as it reads it."""
        opened = self.opened
        if opened.reads_recordings:
            samples_N = opened.samples(self.recording())
            return opened.model, read_recording(opened.model, opened.recording_processor, samples_N)
        return opened.model, opened.reading(self.text(), self.maybe("pair"))

    def recording(self) -> bytes:
        return self.file("recording", Recording)

    def file(self, name: str, made: Callable[..., Any]) -> bytes:
        """The bytes of a file in Base64; `made` is the class of its row."""
        row: Any = FileForm(name, made).row(self.fields, "The request")
        source = row.source
        assert isinstance(source, bytes)
        return source
