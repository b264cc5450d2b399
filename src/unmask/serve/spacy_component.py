"""A component of spaCy: `nlp.add_pipe("unmask", config={"model": FOLDER})` sets entities, or categories, of documents.

spaCy finds it by the entry point in pyproject.toml; nothing in the package imports this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, Token
from spacy.util import minibatch

from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.files import write_text
from unmask.serve.predictor import Predictor

FILE = "unmask.json"


@Language.factory(
    "unmask",
    assigns=["doc.ents", "token.tag", "doc.cats"],
    default_config={"model": "", "device": "cpu", "precision": "auto", "length": None},
)
def create(nlp: Language, name: str, model: str, device: str, precision: str, length: int | None) -> Component:
    """The component of a pipeline; spaCy calls it."""
    return Component(name, {"model": model, "device": device, "precision": precision, "length": length})


class Component:
    """Answers the documents of a pipeline in batches with a fine-tuned model.

    A tagger of spans sets `doc.ents`, another tagger `token.tag_`, both for the tokens of spaCy; a classifier, also one
    with several labels for a text, sets `doc.cats` to the probability of each label.

    settings  model (a folder, or a name on the Hub), device, precision, length

    The model is opened at the first document, or when the pipeline is initialised. `to_disk` and `to_bytes` keep the
    settings, not the model: its folder must exist where the pipeline is loaded. Raises UnmaskError for a model that is
    neither a tagger nor a classifier.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name, self.settings = name, settings
        self._predictor: Predictor | None = None

    @property
    def predictor(self) -> Predictor:
        """The model."""
        if self._predictor is None:
            if not self.settings["model"]:
                raise UnmaskError('Give a model: nlp.add_pipe("unmask", config={"model": FOLDER}).')
            found = Predictor(**self.settings)
            kind = found.of_task
            classifies = kind is not None and not kind.items and (kind.one_label or kind.outcomes == "several")
            if not (classifies or _reads_words(found)):
                raise UnmaskError(f"{self.settings['model']} holds neither a tagger nor a classifier of texts.")
            self._predictor = found
        return self._predictor

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Yield each document with its answers; `batch_size` documents are answered together."""
        for docs in minibatch(stream, size=batch_size):
            read = [doc for doc in docs if doc.text.strip()]
            for doc, answer in zip(read, self.predictor([self._asked(doc) for doc in read]), strict=True):
                self._set(doc, answer)
            yield from docs

    def _asked(self, doc: Doc) -> Any:
        return (
            {"text": doc.text, "words": [one.text for one in _words(doc)]} if _reads_words(self.predictor) else doc.text
        )

    def _set(self, doc: Doc, answer: Mapping[str, Any]) -> None:
        if "scores" in answer:
            doc.cats = {**doc.cats, **answer["scores"]}
        elif "entities" in answer:
            doc.ents = [doc.char_span(one["begin"], one["end"], label=one["kind"]) for one in answer["entities"]]
        else:
            for token, word in zip(_words(doc), answer["words"], strict=True):
                token.tag_ = word["tag"]

    # -- what spaCy calls to keep a pipeline

    def initialize(self, get_examples: Any = None, *, nlp: Language | None = None) -> None:
        """Open the model, so that an error comes before the first document."""
        _ = self.predictor

    def to_bytes(self, *, exclude: Any = ()) -> bytes:
        return json.dumps(self.settings).encode()

    def from_bytes(self, content: bytes, *, exclude: Any = ()) -> Component:
        self.settings, self._predictor = json.loads(content), None
        return self

    def to_disk(self, path: str | Path, *, exclude: Any = ()) -> None:
        write_text(Path(path) / FILE, self.to_bytes().decode() + "\n")

    def from_disk(self, path: str | Path, *, exclude: Any = ()) -> Component:
        self.settings, self._predictor = read_json(Path(path) / FILE), None
        return self

    def __repr__(self) -> str:
        return f"<unmask component '{self.name}' with {self.settings['model'] or 'no model'}>"


def _reads_words(predictor: Predictor) -> bool:
    """Whether the model tags the words of a text."""
    return "words" in predictor.form.known


def _words(doc: Doc) -> list[Token]:
    """The tokens that are not whitespace alone."""
    return [token for token in doc if not token.is_space]
