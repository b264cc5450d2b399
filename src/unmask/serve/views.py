"""Views over HTTP: the data of the page's pictures, as JSON. Each route calls a function of `visualize`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from torch import nn

from unmask.data.pictures.reading import Picture
from unmask.errors import UnmaskError
from unmask.serve.asked import Asked, Models
from unmask.serve.examples import examples, texts_of
from unmask.serve.http.aside import in_time, while_there
from unmask.serve.http.refusals import Refusal
from unmask.serve.http.wire import answered, read_json
from unmask.serve.opened import tree_of
from unmask.tasks import dev_rows
from unmask.visualize import attention, beam, positions, runs, saliency, words
from unmask.visualize.complexity import complexity
from unmask.visualize.context import in_context
from unmask.visualize.masking import wordpiece
from unmask.visualize.masks import masks
from unmask.visualize.neurons import neurons
from unmask.visualize.numbers import Data
from unmask.visualize.reading import read, shown
from unmask.visualize.recording_attention import over_recording
from unmask.visualize.replaced import replaced
from unmask.visualize.similar import Contexts, contexts, similar
from unmask.visualize.words import Vectors

FILES = ("recording", "picture")  # fields that hold bytes in Base64
AT_ONCE = 2  # views that are computed at the same time
RUNS = Path("runs")
View = Callable[[Asked], Data]
Value = TypeVar("Value")


def _inside(asked: Asked) -> Data:
    """The views that a model, or word vectors, support."""
    opened = asked.opened
    if opened.vectors is not None:
        return {
            "attention": {},
            "writes": False,
            "reads": False,
            "labels": [],
            "spans": False,
            "mask": "",
            "words": len(opened.vectors),
        }
    model = opened.model
    kinds = {} if opened.reads_signals else attention.layers_of(model)
    masks = opened.translator is None and opened.reads_texts
    return {
        "attention": {kind: len(layers) for kind, layers in kinds.items()},
        "writes": opened.translator is not None or opened.continuer is not None,
        "reads": opened.translator is None,
        "labels": list(getattr(opened.predictor.task, "labels", ())) if opened.predictor else [],
        "spans": opened.translator is not None and bool(opened.translator.tokenizer.sentinels),
        "mask": opened.tokenizer.pieces([opened.tokenizer.mask])[0] if masks else "",
        "pictures": opened.reads_pictures,
        "recordings": opened.reads_recordings,
        "signals": opened.reads_signals,
        "frames": opened.reads_recordings and opened.masks_frames is not None,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def _examples(asked: Asked) -> Data:
    """Items that fit the model, and how many rows `/rows` has."""
    opened = asked.opened
    rows = dev_rows.read(opened.folder) if asked.data else []

    def compute() -> Data:
        return examples(opened, data=asked.data)

    found = EXAMPLES.get(opened.model, asked.data, compute) if opened.vectors is None else compute()
    return found | {"rows": sum("error" in row for row in rows)}


def _rows(asked: Asked) -> Data:
    """The dev rows of the run of the model, with its answers."""
    asked.require_data()
    rows = dev_rows.read(asked.opened.folder)
    if not rows:
        raise UnmaskError(f"The folder of this model has no {dev_rows.FILE}, which `unmask finetune` writes.")
    return {"rows": rows}


def _neurons(asked: Asked) -> Data:
    """The vectors of one head, and what flows through its block; "layer" and "head" count from 0."""
    model, tokenizer = asked.reader
    reading = read(model, tokenizer, asked.text())
    return neurons(model, reading, asked.number("layer", 0, 0, 1_000), asked.number("head", 0, 0, 1_000))


def _similar(asked: Asked) -> Data:
    """The words nearest to a "word" of a "sentence" in "texts"; without any, in the texts of the run of the model."""
    model, tokenizer = asked.reader
    given, layer = asked.texts("texts", 2_000), asked.number("layer", -1, -1, 1_000)

    def compute() -> Contexts:
        return contexts(model, tokenizer, given or texts_of(asked.opened, data=asked.data), layer)

    there = CONTEXTS.get(model, (layer, asked.data, *given), compute)
    return similar(model, tokenizer, asked.text("word"), asked.text("sentence"), there, layer)


class Lately(Generic[Value]):
    """The last values that were computed for a model, such as the attention of a layer: another head of it needs no
    forward pass."""

    MOST = 2  # values of a model: with 512 tokens and 12 heads, the attention of a layer takes 6 MB

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[nn.Module, dict[Any, Value]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self, model: nn.Module, key: Any, compute: Callable[[], Value]) -> Value:
        """The value of a key, computed by `compute` if it is not in the cache."""
        with self._lock:
            found = self._kept.get(model, {}).get(key)
        if found is not None:
            return found
        found = compute()
        with self._lock:
            kept = self._kept.setdefault(model, {})
            kept[key] = found
            for old in list(kept)[: -self.MOST]:
                del kept[old]
        return found


LATELY = Lately[np.ndarray]()
CONTEXTS = Lately[Contexts]()
EXAMPLES = Lately[Data]()


def _attention(asked: Asked) -> Data:
    """An overview of all layers; with "layer" (from 0) the heads of that layer, all or those in "heads"; with "rollout"
    the attention rollout."""
    kind = asked.maybe("kind")
    if asked.fields.get("rollout"):
        return attention.rolled(*asked.reading(), kind or "encoder")
    if "layer" not in asked.fields:
        if "picture" in asked.fields:
            return asked.opened.over_picture(asked.file("picture", Picture))
        if asked.opened.captions:
            return asked.opened.captioned(asked.text(), asked.maybe("pair"))
        if (opened := asked.opened).reads_recordings:
            samples_N = opened.samples(asked.recording())
            return over_recording(opened.model, opened.recording_processor, samples_N, attention.overview)
        model, reading = asked.reading()
        found = attention.overview(model, reading, kind)
        return found | {"target": "" if not reading.guessed else "".join(reading.guessed[:-1])}
    kind, number, heads = asked.text("kind"), asked.number("layer", 0, 0, 1_000), asked.numbers("heads", 64)

    def compute() -> np.ndarray:
        model, reading = asked.reading()
        return attention.weights(model, reading.batch, kind, [number])[0].astype(np.float16)

    key = (asked.maybe("recording") or asked.text(), asked.maybe("pair"), kind, number)
    return attention.chosen(LATELY.get(asked.opened.model, key, compute), number, heads)


def _features(asked: Asked) -> Data:
    """A recording as the model reads it, with masked frames by "seed"."""
    return asked.opened.features(asked.recording(), seed=asked.number("seed", 0, 0, 2**31))


def _saliency(asked: Asked) -> Data:
    model, tokenizer = asked.reader
    heads = model.of_sequences
    if not heads:
        raise UnmaskError("Gradient × input needs a model with one output for a whole text, such as a classifier.")
    reading = read(model, tokenizer, asked.text(), asked.maybe("pair"))
    return saliency.beside_attention(model, reading, heads[0], asked.number("output", 0, 0, 10_000))


def _beam(asked: Asked) -> Data:
    beam_size, length = asked.number("beam_size", 4, 1, 16), asked.number("length", 30, 1, 200)
    return tree_of(asked.opened, asked.text(), beam_size, length)


def _next(asked: Asked) -> Data:
    """The most probable next tokens of a text, and the text with each of them."""
    continuer = asked.opened.continuer
    if continuer is None:
        raise UnmaskError("Step by step needs a model that continues a text.")
    tokenizer, text = continuer.tokenizer, asked.text()
    ids = tokenizer.ids([text])[0].tolist()
    never = sorted(tokenizer.specials - {tokenizer.sep})
    top = asked.number("top", 10, 1, 100)
    source = [tokenizer.cls, *ids]
    found = beam.following(continuer.model, source, top=top, never=never, names=tokenizer.pieces)
    for row in found["candidates"]:
        row["text"] = tokenizer.decode([*ids, row["id"]])
        row["end"] = row["id"] == tokenizer.sep
    return found


def _alignment(asked: Asked) -> Data:
    translator = asked.opened.translator
    if translator is None:
        raise UnmaskError("An alignment needs a model that translates.")
    found = translator.alignment(asked.text(), asked.text("pair"))
    return {"rows": found.target, "columns": shown(found.source), "values": found.weights}


def _vectors(asked: Asked) -> Vectors:
    found = asked.opened.vectors
    return words.of_model(asked.opened.model, asked.opened.vocabulary) if found is None else found


def _replaced(asked: Asked) -> Data:
    """The probability that each token was replaced; with "begin" and "end" (characters) the generator's predictions for
    that part of the text."""
    if "begin" not in asked.fields:
        return replaced(*asked.reader, asked.text())
    generator = asked.models.get(asked.maybe("model")).generator
    if generator is None:
        raise UnmaskError("This model has no generator: its folder has no folder 'generator'.")
    text = asked.text()
    begin = asked.number("begin", 0, 0, len(text))
    end = asked.number("end", 0, begin, len(text))
    mask = generator.tokenizer.pieces([generator.tokenizer.mask])[0]
    [answer] = generator([f"{text[:begin]}{mask}{text[end:]}"])
    return {"guesses": answer["masks"][text[:begin].count(mask)]}


def _embeddings(asked: Asked) -> Data:
    """A projection of the embeddings; with "plus" or "minus" the words nearest to their sum; with "sentences" the
    vectors of a word in context."""
    if asked.fields.get("sentences"):
        layer = asked.number("layer", -1, -1, 1_000)
        return in_context(*asked.reader, asked.text("word"), asked.texts("sentences", 50), layer)
    vectors = _vectors(asked)
    plus, minus = asked.texts("plus"), asked.texts("minus")
    if plus or minus:
        return {"nearest": vectors.nearest(plus, minus, asked.number("top", 10, 1, 100))}
    count = asked.number("count", 300, 3, words.MOST)
    method = asked.text("method", "pca")
    if method != "pca":
        count = min(count, 600)  # seconds, on one core
    return words.cloud(vectors, asked.texts("words", 20), method=method, count=count)


def _positions(asked: Asked) -> Data:
    if asked.fields.get("sinusoidal"):
        return positions.sinusoidal(asked.number("length", 64, 2, 512), asked.number("dim", 128, 2, 1_024))
    return positions.of_model(asked.opened.model)


def _masking(asked: Asked) -> Data:
    return asked.opened.masking(
        asked.text(),
        seed=asked.number("seed", 0, 0, 2**31),
        draws=asked.number("draws", 5, 1, 20),
        rate=asked.share("rate", 0.15),
        whole_words=bool(asked.fields.get("whole_words", False)),
    )


def _wordpiece(asked: Asked) -> Data:
    return wordpiece(asked.opened.vocabulary, asked.text())


def _masks(asked: Asked) -> Data:
    own, other = (asked.opened.pieces(asked.text(name, "")) for name in ("text", "pair"))
    return masks(own, other, window=asked.number("window", 3, 1, 100), padding=asked.number("padding", 3, 0, 20))


def _complexity(asked: Asked) -> Data:
    return complexity(dim=asked.number("dim", 128, 8, 512))


def _runs(asked: Asked) -> Data:
    """The runs of the folder, newest first; with "names" a comparison of those runs."""
    asked.require_data()
    there = (
        {str(place.relative_to(asked.runs)): place for place in runs.find(asked.runs)} if asked.runs.is_dir() else {}
    )
    names = asked.texts("names", 8)
    if not names:
        found = [runs.run(place) for place in list(there.values())[:50]]
        kept = ("recipe", "state", "step", "seconds")
        listed = zip(list(there)[:50], found, strict=True)
        return {"runs": [{"name": name, **{key: one[key] for key in kept}} for name, one in listed]}
    missing = [name for name in names if name not in there]
    if missing:
        raise UnmaskError(f"There is no run {missing[0]} in {asked.runs}.")
    return runs.compare([there[name] for name in names])


VIEWS: dict[str, View] = {
    "/inside": _inside,
    "/examples": _examples,
    "/rows": _rows,
    "/attention": _attention,
    "/features": _features,
    "/saliency": _saliency,
    "/beam": _beam,
    "/next": _next,
    "/replaced": _replaced,
    "/alignment": _alignment,
    "/embeddings": _embeddings,
    "/positions": _positions,
    "/masking": _masking,
    "/neurons": _neurons,
    "/similar": _similar,
    "/wordpiece": _wordpiece,
    "/masks": _masks,
    "/complexity": _complexity,
    "/runs": _runs,
}
"""Path -> view. The method is POST and the body is a JSON object, in which "model" names a model."""


def routes(pool: Models, runs: Path = RUNS, *, data: bool = True) -> list[Route]:
    """The routes of all views, for models of `pool` and the runs below the folder `runs`.

    data  whether they show data of the training

    Views are computed in threads, AT_ONCE at a time. A view that cannot be computed raises UnmaskError, which the
    application turns into a response.
    """
    room = ThreadPoolExecutor(AT_ONCE, "unmask-view")
    made = partial(Asked, pool, runs=runs, data=data)
    return [Route(path, _endpoint(view, made, room), methods=["POST"]) for path, view in VIEWS.items()]


def _endpoint(view: View, made: Callable[[Any], Asked], room: Executor) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        settings = request.app.state.service.settings
        async with in_time(settings.seconds):
            fields = await read_json(request)
            if not isinstance(fields, dict):
                raise UnmaskError("The body must be a JSON object.")

            def look() -> Data:
                characters = _characters({name: one for name, one in fields.items() if name not in FILES})
                if characters > settings.view:
                    most = f"{settings.view:,} characters, not {characters:,}"
                    raise Refusal(413, f"A view accepts {most}; shorten the text.")
                return view(made(fields))

            return await while_there(request, answered(request, look, room))

    return answer


def _characters(value: Any) -> int:
    """The number of characters of all texts in a JSON value."""
    if isinstance(value, str):
        return len(value)
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_characters, inside))
