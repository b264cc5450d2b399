"""Pool: models by name, loaded at their first use; the least recently used one is unloaded."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask import huggingface
from unmask.config import read_json
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.signals.processor import SignalProcessor
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.huggingface import SETTINGS
from unmask.huggingface.config import TABLES, own_heads, require_model
from unmask.huggingface.table import PUBLISHED
from unmask.kernels.devices import placed
from unmask.kernels.processor import Precision
from unmask.serve import pretrained
from unmask.serve.backends import Backend
from unmask.serve.continuation import Continuer
from unmask.serve.http.refusals import clipped
from unmask.serve.predictor import Predictor, reach
from unmask.serve.translator import Translator
from unmask.serve.written import WrittenPredictor, features_of, task_of_writer
from unmask.tasks import task_found
from unmask.visualize.words import Vectors

SHOWN = {"words": "contextual-words"}
"""Models that have views but no answers, such as an ELMo. Kind of the head -> kind of the model."""
HEARD = "recordings"
"""The kind of a model of recordings that has views but no answers, such as a pre-trained wav2vec 2.0."""


class NoModel(UnmaskError):
    """A name that no model of the pool has."""


@dataclass(frozen=True, eq=False)
class Served:
    """A folder in memory. Exactly one of predictor, translator, continuer, inner and vectors is not None.

    kind       "translation", "generation", "fill-mask", "next-sentence", "replaced-tokens", or the task:
               "classification", "embedding", …; for models that only have views "contextual-words", "recordings",
               "word-vectors"
    written    for a translator that was fine-tuned on a task: the predictor that uses it
    inner      a model without a head that answers, with its processor
    vectors    word vectors
    generator  the generator of an ELECTRA, if its folder has one
    """

    name: str
    folder: Path
    kind: str
    predictor: Predictor | None = None
    translator: Translator | None = None
    written: WrittenPredictor | None = None
    continuer: Continuer | None = None
    inner: huggingface.Loaded | None = None
    vectors: Vectors | None = None
    generator: Predictor | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model. Raises UnmaskError for word vectors, which have none."""
        if self.inner is not None:
            return self.inner.require_tokenizer(self.folder)
        found = self.predictor or self.translator or self.continuer
        if found is None:
            raise UnmaskError(f"{self.name} holds word vectors, which have no tokenizer.")
        return found.tokenizer


class Pool:
    """Models by name; safe to use from several threads.

    folders    "FOLDER", named by its last part, or "NAME=FOLDER"; the first is the default for requests without a
               model
    loaded     most models in memory at a time
    device     where they run
    precision  of predictors and translators (`Predictor`, `Translator`); others compute in float32
    backend    of predictors
    vectors    reads a folder or a file of word vectors; None: word vectors are refused

    `kinds` has the kind of each model, `tasks` the task of each encoder–decoder that was fine-tuned on one, and
    `features` the width of the vectors of each encoder–decoder that reads vectors.

    Raises UnmaskError for a folder that holds no model, before any is loaded, and for two folders of the same name.
    """

    def __init__(
        self,
        folders: Sequence[Path | str],
        *,
        loaded: int = 4,
        device: str = "cpu",
        precision: Precision = "auto",
        backend: Backend | Path = "torch",
        top: int = 5,
        vectors: Callable[[Path], Vectors] | None = None,
    ) -> None:
        if not folders or loaded < 1:
            raise UnmaskError("The service needs at least one model, and must keep at least one in memory.")
        named = [_named(folder) for folder in folders]
        for name, count in Counter(name for name, _ in named).items():
            if count > 1:
                raise UnmaskError(f"{count} folders are called '{name}'; give them names: --model NAME=FOLDER.")
        self.folders: dict[str, Path] = dict(named)
        self.vectors = vectors
        self.kinds: dict[str, str] = {
            name: "word-vectors" if vectors is not None and holds_vectors(folder) else kind_of(folder)
            for name, folder in named
        }
        writers = [(name, folder) for name, folder in named if self.kinds[name] == "translation"]
        self.tasks = {name: task.task.name for name, folder in writers if (task := task_of_writer(folder)) is not None}
        self.features = {name: numbers for name, folder in writers if (numbers := features_of(folder))}
        self.most, self.device, self.top = loaded, device, top
        self.precision, self.backend = precision, backend
        self.ready = False  # whether any model has been loaded
        self._loaded: OrderedDict[str, Served] = OrderedDict()  # the most recently used one is last
        self._lock = threading.Lock()  # of _loaded
        self._reading = {name: threading.Lock() for name in self.folders}

    def names(self) -> list[str]:
        """All names, in the order of the folders."""
        return list(self.folders)

    def name(self, name: str | None = None, *kinds: str) -> str:
        """The name; None: the first model of these kinds, or the first of all if there is none.

        Raises NoModel for an unknown name.
        """
        if name is None:
            fitting = (one for one, kind in self.kinds.items() if {kind, self.tasks.get(one)} & {*kinds})
            return next(fitting, self.names()[0])
        if name not in self.folders:
            raise NoModel(str(unknown("model", clipped(name, 60), self.folders)))
        return name

    def loaded(self) -> list[str]:
        """Names of the models in memory."""
        with self._lock:
            return list(self._loaded)

    def peek(self, name: str) -> Served | None:
        """The model, if it is in memory; this counts as a use."""
        with self._lock:
            if name in self._loaded:
                self._loaded.move_to_end(name)
            return self._loaded.get(name)

    def get(self, name: str | None = None) -> Served:
        """The model, loaded now if it is not in memory. Raises NoModel for an unknown name, and UnmaskError for a
        damaged folder."""
        name = self.name(name)
        with self._reading[name]:  # other threads wait here, and then find it loaded
            served = self.peek(name)
            if served is None:
                self._make_room()
                served = self._read(name)
                with self._lock:
                    self._loaded[name] = served
                self._make_room(0)
        self.ready = True
        return served

    def _make_room(self, more: int = 1) -> None:
        """Unload the least recently used models, until `more` can be loaded. A request that uses one keeps it alive."""
        with self._lock:
            while len(self._loaded) > self.most - more:
                self._loaded.popitem(last=False)

    def _read(self, name: str) -> Served:
        folder, kind = self.folders[name], self.kinds[name]
        if kind == "word-vectors":
            assert self.vectors is not None
            return Served(name, folder, kind, vectors=self.vectors(folder))
        if huggingface.holds_encoder_decoder(folder):
            translator = Translator(folder, device=self.device, precision=self.precision)
            translator.tokenizer = translator.tokenizer.of_requests()
            written = WrittenPredictor(translator) if name in self.tasks else None
            return Served(name, folder, "translation", translator=translator, written=written)
        loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
        placed(loaded.model, self.device)
        if loaded.model.continues_prompt:
            return Served(name, folder, "generation", continuer=Continuer(loaded))
        if kind in (*SHOWN.values(), HEARD):
            loaded.require_processor(folder)
            return Served(name, folder, kind, inner=loaded)
        length = reach(loaded.model, folder)
        how: dict[str, Any] = {"precision": self.precision, "backend": self.backend}
        predictor = Predictor(loaded, top=self.top, length=length, **how)
        kind, guesses = predictor.kind or pretrained.kind_of([*loaded.model.heads]), None
        if kind == "replaced-tokens" and (beside := folder / "generator").is_dir():
            guesses = Predictor(beside, top=self.top, device=self.device, precision=self.precision)
        return Served(name, folder, kind, predictor=predictor, generator=guesses)


def kind_of(folder: Path) -> str:
    """The kind of the model of a folder, by its files alone. Raises UnmaskError for a folder that holds no model, or
    one without a head that answers."""
    require_model(folder)
    if huggingface.holds_encoder_decoder(folder):
        return "translation"
    values = read_json(folder / "config.json")
    heads = _heads(values)
    answered = {PUBLISHED[name].kind for name in heads if name in PUBLISHED}
    if "next_token" in answered:
        return "generation"
    task = task_found(sorted(heads.union(own_heads(values, folder))), _settings(folder, values))
    if task is not None:
        return task.name
    table = TABLES.get(str(values.get("model_type")))
    if table is not None and table.processor.processor is RecordingProcessor:
        return HEARD
    if table is not None and table.processor.processor is SignalProcessor:
        raise UnmaskError(f"{folder} has learned no task on signals, so the service cannot use it: fine-tune it first.")
    if heads and not pretrained.found_in(heads):
        for head, kind in SHOWN.items():
            if head in answered:
                return kind
        raise UnmaskError(f"{folder} has no head that answers: fine-tune it first.")
    return pretrained.kind_of(heads)


def holds_vectors(place: Path) -> bool:
    """Whether a path is a folder of word vectors, or a file: a model is always a folder."""
    return place.is_file() or ((place / "vectors.safetensors").is_file() and not (place / "config.json").is_file())


def _settings(folder: Path, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the task in a folder; for a folder of sentence-transformers, that it pools."""
    found = values.get(SETTINGS)
    if isinstance(found, Mapping) and found:
        return found
    return {"pooling": None} if (folder / "modules.json").is_file() else {}


def _heads(values: Mapping[str, Any]) -> frozenset[str]:
    """The names of the heads in a config.json."""
    said = values.get("unmask_heads")
    if isinstance(said, list):
        return frozenset(map(str, said))
    table = TABLES.get(str(values.get("model_type")))
    names = values.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else ""
    return table.architectures.get(first, frozenset()) if table else frozenset()


def _named(folder: Path | str) -> tuple[str, Path]:
    name, equals, path = str(folder).partition("=")
    if equals and name and path and not Path(folder).is_dir():
        return name, Path(path)
    return Path(folder).resolve().name, Path(folder)
