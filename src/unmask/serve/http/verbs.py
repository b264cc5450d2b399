"""Requests to a model: predict, embed, translate and generate become work for its batcher; tokenize answers at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, plural
from unmask.generate import Sampling, Search
from unmask.serve.continuation import Continuer, sampling, searching
from unmask.serve.http.batcher import Ask
from unmask.serve.http.pool import Served
from unmask.serve.http.refusals import Refusal
from unmask.serve.http.settings import Settings
from unmask.serve.translator import Translator

Body = Mapping[str, Any]
Verb = Callable[[Served, Body, Settings], Ask]


def predict(served: Served, body: Body, settings: Settings) -> Ask:
    """The answers of `Predictor` to `texts`, one for each. Raises UnmaskError for a model that is no predictor, and for
    inputs of another form."""
    predictor = served.predictor or served.written
    if predictor is None:
        raise _unfit(served, "answers of this kind")
    texts = body["texts"]
    rows = predictor.rows(texts if isinstance(texts, list) else [texts])
    _short([text for row in rows for text in row.reads], settings)
    if served.written is not None:
        read, written = served.written.lengths(rows)
        return Ask(rows, predictor.answer, "predict", read, _within(read + written, settings))
    assert served.predictor is not None
    read = sum(served.predictor.read_lengths(rows))
    return Ask(rows, predictor.answer, "predict", read, _within(read, settings))


def embed(served: Served, body: Body, settings: Settings) -> Ask:
    """{"embedding", "tokens", maybe "cut"} for each text or picture.

    Raises UnmaskError for a model that gives no vectors, and for an item that it does not read; Refusal 413 for a text
    that is too long if `truncate` is false.
    """
    predictor = served.predictor
    if predictor is None or predictor.of_task is None or not predictor.of_task.gives_vectors:
        raise _unfit(served, "vectors of texts")
    name = next(name for name in ("texts", "inputs", "input") if name in body)
    items = body[name] if isinstance(body[name], list) else [body[name]]
    rows = predictor.rows(items)
    if not isinstance(predictor.processor, Tokenizer):
        read = sum(predictor.read_lengths(rows))
        return Ask(rows, predictor.answer, "predict", read, _within(read, settings))
    texts = _short([text for row in rows for text in row.reads], settings)
    tokenizer = predictor.tokenizer
    frame = len(tokenizer.join(np.empty(0, np.int64))[0])
    lengths = [len(ids) + frame for ids in tokenizer.ids(texts)]
    if body.get("truncate") is False and max(lengths) > predictor.length:
        number = next(i for i, length in enumerate(lengths, 1) if length > predictor.length)
        raise Refusal(
            413,
            f"Text {number} has {lengths[number - 1]:,} tokens, and {served.name} reads at most {predictor.length:,}.",
        )
    _check_width(body.get("dimensions"), served)
    read = sum(min(length, predictor.length) for length in lengths)
    return Ask(rows, predictor.answer, "predict", read, _within(sum(lengths), settings))


def translate(served: Served, body: Body, settings: Settings) -> Ask:
    """The answers of `Translator.stream`, as dictionaries."""
    if served.translator is None:
        raise _unfit(served, "translations")
    translator = copy.copy(served.translator)  # the same model with another search
    translator.search = _how(translator.search, body.get("search", {}), settings)
    texts = _listed(body["texts"], settings)
    read = sum(map(len, translator.tokenizer.ids(texts)))
    # A translation is about as long as its source; a beam computes every hypothesis.
    written = read if translator.tokenizer.reads_texts else len(texts) * translator.search.limits.max_length
    cost = _within(read + written * _width(translator.search), settings)
    return Ask(texts, partial(_translated, translator), _key("translate", translator.search), read, cost)


def generate(served: Served, body: Body, settings: Settings) -> Ask:
    """The continuations of each beginning by `Continuer`, as dictionaries.

    Requests that sample are answered alone, so that a seed gives the same texts whatever other requests there are.
    """
    if served.continuer is None:
        raise _unfit(served, "continuations of texts")
    if "search" in body and "sampling" in body:
        raise UnmaskError("The request has both 'search' and 'sampling': leave one out.")
    usual = searching() if "search" in body else sampling()
    how = _how(usual, body.get("search", body.get("sampling", {})), settings)
    continuer = copy.copy(served.continuer)  # the same model with another search
    continuer.how = how.replace(blocking={"forbidden": continuer.how.blocking.forbidden})
    texts = _listed(body["texts"], settings)
    read = sum(map(len, continuer.read(texts)))  # raises for a text that is too long, before it joins a batch
    cost = _within(read + how.limits.max_length * _width(how) * len(texts), settings)
    return Ask(texts, partial(_continued, continuer), _key("generate", continuer.how), read, cost)


def tokenize(served: Served, body: Body, settings: Settings) -> list[list[dict[str, Any]]]:
    """[{"id", "token", and its "begin" and "end" in characters of the text}] for each text, without the special tokens
    that a model adds around it."""
    texts = _listed(body["texts"], settings)
    tokenizer = served.tokenizer
    special = served.kind in ("fill-mask", "next-sentence", "replaced-tokens")  # [MASK] in a text is the mask token
    _within(sum(map(len, tokenizer.ids(texts, special=special))), settings)  # before the offsets are computed
    found = [tokenizer.encode(text, special=special) for text in texts]
    return [
        [
            {"id": int(i), "token": piece, "begin": int(begin), "end": int(end)}
            for i, piece, (begin, end) in zip(one.ids, tokenizer.pieces(one.ids), one.offsets, strict=True)
        ]
        for one in found
    ]


# ------------------------------------------------------------------------------------------------ parts


def check_count(body: Any, settings: Settings) -> None:
    """Raises Refusal 413 for a body with too many texts; call it before other checks."""
    if isinstance(body, dict):
        for name in ("texts", "inputs", "input"):
            if isinstance(texts := body.get(name), list) and len(texts) > settings.texts:
                most = plural(settings.texts, "text")
                raise Refusal(413, f"A request may have at most {most}, not {len(texts):,}; send several requests.")


def _listed(texts: str | list[str], settings: Settings) -> list[str]:
    return _short([texts] if isinstance(texts, str) else texts, settings)


def _short(texts: list[str], settings: Settings) -> list[str]:
    """The texts. Raises Refusal 413 if they have too many characters; call it before tokenization."""
    characters = sum(map(len, texts))
    if characters > settings.characters:
        raise Refusal(
            413,
            f"The request has {characters:,} characters, and may have at most {settings.characters:,}; "
            "send several requests.",
        )
    return texts


def _within(tokens: int, settings: Settings) -> int:
    """The number of tokens, at least 1. Raises Refusal 413 for more than a request may have."""
    if tokens > settings.tokens:
        raise Refusal(
            413,
            f"The request has {tokens:,} tokens to read and write, and may have at most {settings.tokens:,}; "
            "send several requests.",
        )
    return max(tokens, 1)


def _how(usual: Search | Sampling, fields: Mapping[str, Any], settings: Settings) -> Any:
    """A search or sampling with the fields of a request, which writes at most `settings.written` tokens.

    Raises UnmaskError for a larger max_length, and for fields that contradict one another.
    """
    asked = fields.get("max_length", 1)
    if asked > settings.written:
        raise UnmaskError(f"The service writes at most {settings.written} tokens a text; choose a lower max_length.")
    most = min(usual.limits.max_length, settings.written)
    least = min(usual.limits.min_length, int(fields.get("max_length", most)) - 1)
    return usual.override({"min_length": least, "max_length": most, **fields})


def _width(how: Search | Sampling) -> int:
    """Number of hypotheses or samples for each text."""
    return how.samples if isinstance(how, Sampling) else how.beam_size


def _key(verb: str, how: Search | Sampling) -> Any:
    """The key of a batch. Requests with equal searches share a batch; a request that samples is answered alone, so
    that its texts depend only on its seed."""
    return (verb, how) if isinstance(how, Search) else object()


def _translated(translator: Translator, texts: list[str]) -> list[dict[str, Any]]:
    return [answer.to_dict() for answer in translator.stream(texts)]


def _continued(continuer: Continuer, texts: list[str]) -> list[list[dict[str, Any]]]:
    return [[one.to_dict() for one in some] for some in continuer.stream(texts)]


def _check_width(asked: int | None, served: Served) -> None:
    """Raises UnmaskError for a number of dimensions that is not the model's."""
    assert served.predictor is not None
    width = served.predictor.model.config.width
    if asked is not None and asked != width:
        raise UnmaskError(f"The vectors of {served.name} have {width} numbers, not {asked}; leave 'dimensions' out.")


def _unfit(served: Served, wanted: str) -> UnmaskError:
    return UnmaskError(
        f"The model {served.name} is one for {served.kind} and gives no {wanted}; /models lists all kinds."
    )


def vectors_of(answers: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """The vectors of answers. Raises UnmaskError for that to a pair, which is a similarity."""
    number = next((i for i, answer in enumerate(answers, 1) if "embedding" not in answer), None)
    if number is not None:
        raise UnmaskError(f"Text {number} is a pair, which has no vector; send each part alone, or use /predict.")
    return [answer["embedding"] for answer in answers]


def units(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    """Vectors scaled to length 1; zero vectors stay zero."""
    found = np.array(vectors, np.float32)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    units_ND: list[list[float]] = (found / np.maximum(lengths, 1e-12)).tolist()
    return units_ND
