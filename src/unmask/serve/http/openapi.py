"""The OpenAPI document of the service, from its table of operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unmask.serve.http import forms
from unmask.serve.http.forms import Schema

NUMBERS: Schema = {"type": "array", "items": {"type": "number"}}
COUNT: Schema = {"type": "integer", "minimum": 0}
NAME: Schema = {"type": "string", "description": "the model that answered"}
LISTS: Schema = {"type": "array", "items": {"type": "array", "items": {"type": "object"}}}

MEANINGS = {
    400: "not valid HTTP, JSON or UTF-8, nested too deeply, a repeated header, or the Host header of another service",
    401: "no key, or an unknown one",
    404: "no such model or path",
    405: "the path does not accept this method",
    408: "the request did not arrive in time",
    413: "more bytes, values, texts, characters or tokens than a request may have, or bytes than an answer may have",
    415: "not application/json in UTF-8",
    422: "valid JSON, but not a valid request to this model; the sentence gives the reason",
    429: "the queue is full; Retry-After says when to try again",
    431: "too many headers",
    500: "an internal error, which the service has logged",
    503: "the service is ending, the model cannot be read, the answer took too long, or all connections are busy",
}
WATCHING = (400, 405, 408, 431, 503)
READING = tuple(sorted({*WATCHING, 401, 429}))
ASKING = tuple(sorted({*READING, 404, 413, 415, 422, 500}))


@dataclass(frozen=True)
class Operation:
    """One path with its method, the schemas of body and answer, and the statuses of refusals.

    kind  media type of the answer
    """

    path: str
    method: str
    summary: str
    answer: Schema
    body: Schema | None = None
    refusals: tuple[int, ...] = READING
    kind: str = "application/json"


def answers(items: Schema, **more: Schema) -> Schema:
    """The schema of the answers of a model, one for each text, with the name of the model."""
    return forms.form(["model", "answers"], model=NAME, answers={"type": "array", "items": items}, **more)


def listing(item: Schema, **more: Schema) -> Schema:
    """The schema of a list in OpenAI's format."""
    data: Schema = {"type": "array", "items": item}
    return forms.form(["object", "data", *more], object={"enum": ["list"]}, data=data, **more)


_EMBEDDING: Schema = {
    "type": "object",
    "properties": {
        "object": {"enum": ["embedding"]},
        "index": COUNT,
        "embedding": {"anyOf": [NUMBERS, {"type": "string"}]},
    },
    "required": ["object", "index", "embedding"],
}
_TRANSLATED: Schema = {
    "type": "object",
    "properties": {
        "source": forms.TEXT,
        "translations": {"type": "array", "items": {"type": "object"}},
        "cut": {"type": "boolean", "description": "the end of the source was not read"},
        "unknown": {"type": "integer", "description": "number of tokens that the vocabulary lacks"},
    },
    "required": ["source", "translations"],
}
_MODEL: Schema = forms.form(
    ["name", "kind", "loaded"],
    name={"type": "string"},
    kind={"type": "string", "description": "what it does: classification, embedding, translation, fill-mask, …"},
    loaded={"type": "boolean", "description": "whether it is in memory; else the first request loads it"},
    panel={
        "type": "string",
        "description": "for a task: its panel on the page",
    },
    gives={"type": "string", "description": "for a task: a description of its answers"},
    task={"type": "string", "description": "for a translation model: the task that it answers at /predict, if any"},
    features={"type": "integer", "description": "for a decoder of vectors: the length of a vector"},
)
_STATE: Schema = forms.form(["status"], status={"type": "string"})

OPERATIONS = (
    Operation(
        "/predict",
        "post",
        "Answers to texts: masked and replaced tokens, labels, scores, tags, spans, choices or vectors, by model",
        answers({"type": "object"}),
        forms.PREDICT,
        ASKING,
    ),
    Operation(
        "/embed",
        "post",
        "Vectors of texts; also in the form of text-embeddings-inference",
        {
            "anyOf": [
                forms.form(
                    ["model", "embeddings", "tokens", "cut"],
                    model=NAME,
                    embeddings={"type": "array", "items": NUMBERS},
                    tokens={"type": "integer", "description": "number of tokens that were read"},
                    cut={"type": "array", "items": COUNT, "description": "indices, from 0, of texts that were cut"},
                ),
                {"type": "array", "items": NUMBERS},
            ]
        },
        {"anyOf": [forms.EMBED, forms.EMBED_INFERENCE]},
        ASKING,
    ),
    Operation(
        "/v1/embeddings",
        "post",
        "Vectors of texts, in OpenAI's format",
        listing(
            _EMBEDDING,
            model=NAME,
            usage=forms.form(["prompt_tokens", "total_tokens"], prompt_tokens=COUNT, total_tokens=COUNT),
        ),
        forms.EMBEDDINGS,
        ASKING,
    ),
    Operation("/translate", "post", "Translations of texts", answers(_TRANSLATED), forms.TRANSLATE, ASKING),
    Operation(
        "/generate",
        "post",
        "Continuations of texts by a language model; sampled unless 'search' is given",
        answers({"type": "array", "items": {"type": "object"}}),
        forms.GENERATE,
        ASKING,
    ),
    Operation(
        "/tokenize",
        "post",
        "The tokens of texts, with their characters in the text",
        forms.form(["model", "tokens"], model=NAME, tokens=LISTS),
        forms.TOKENIZE,
        ASKING,
    ),
    Operation(
        "/models",
        "get",
        "The models and what they do",
        forms.form(["models"], models={"type": "array", "items": _MODEL}),
    ),
    Operation("/v1/models", "get", "The models, in OpenAI's format", listing({"type": "object"})),
    Operation("/health", "get", "Whether the process is alive", _STATE, refusals=WATCHING),
    Operation("/ready", "get", "Whether the service accepts requests", _STATE, refusals=WATCHING),
    Operation(
        "/metrics", "get", "Metrics for Prometheus", {"type": "string"}, refusals=(*WATCHING, 401), kind="text/plain"
    ),
    Operation("/openapi.json", "get", "This document", {"type": "object"}),
)


def view(path: str) -> Operation:
    """The operation of a view of the page; its fields are those that the page sends."""
    summary = f"The data of the view {path[1:]} of the page; 'model' names a model"
    return Operation(path, "post", summary, {"type": "object"}, {"type": "object"}, ASKING)


def document(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of some operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "unmask", "version": version, "description": "Answers of models, as JSON."},
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Refusal": forms.form(["error"], error={"anyOf": [{"type": "string"}, {"type": "object"}]}),
            },
        },
        "security": [{}, {"key": []}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    refusals = {
        str(status): {"description": MEANINGS[status], "content": _content({"$ref": "#/components/schemas/Refusal"})}
        for status in operation.refusals
    }
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": operation.method + operation.path.removesuffix(".json").replace("/", "_"),
        "responses": {
            "200": {"description": "the answer", "content": _content(operation.answer, operation.kind)},
            **refusals,
        },
    }
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    return found


def _content(schema: Mapping[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {kind: {"schema": schema}}
