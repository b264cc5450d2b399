"""Forms of requests as JSON Schemas, for the documentation and to check requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from unmask.errors import UnmaskError, unknown
from unmask.serve.http.refusals import Refusal, clipped

Schema = Mapping[str, Any]


def form(required: list[str], **properties: Schema) -> Schema:
    """The schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def number(kind: str, least: float, most: float, description: str) -> Schema:
    """A whole number ("integer") or a number ("number") from `least` to `most`."""
    return {"type": kind, "minimum": least, "maximum": most, "description": description}


TEXT: Schema = {"type": "string"}
TEXTS: Schema = {
    "description": "a text, or a list of them",
    "anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}],
}
ITEMS: Schema = {
    "description": 'a text, or for other models an object such as {"picture"} or {"recording"}, or a list of them',
    "anyOf": [
        TEXT,
        {"type": "object"},
        {"type": "array", "items": {"anyOf": [TEXT, {"type": "object"}]}, "minItems": 1},
    ],
}
INPUTS: Schema = {
    "description": "a text, or a list of inputs: texts; pairs, as lists of two texts; objects by name, such as "
    '{"question", "context"}, {"context", "choices"}, {"picture"} or {"recording"}; for taggers also lists of words',
    "anyOf": [
        TEXT,
        {"type": "object"},
        {"type": "array", "items": {"anyOf": [TEXT, {"type": "array"}, {"type": "object"}]}, "minItems": 1},
    ],
}
MODEL: Schema = {
    "type": ["string", "null"],
    "description": "a name from /models; by default, the first model that fits",
}
SEARCH: Schema = {
    **form(
        [],
        beam_size=number("integer", 1, 16, "hypotheses of the beam search; 1 is greedy"),
        n_best=number("integer", 1, 16, "texts that are returned, at most beam_size"),
        length_penalty=number("number", -10, 10, "0 ranks by log-probability alone; larger values favour longer texts"),
        max_length=number("integer", 1, 100_000, "tokens after which a text is cut"),
        no_repeat_ngram=number("integer", 0, 100, "no n-gram of this size is written twice; 0 allows all"),
        repetition_penalty=number("number", 1, 100, "1 is none"),
    ),
    "description": "fields of the search that differ from those of the model",
}
SAMPLING: Schema = {
    **form(
        [],
        samples=number("integer", 1, 16, "texts drawn for each beginning"),
        temperature=number("number", 1e-3, 100, "below 1 is closer to greedy search, above 1 closer to uniform"),
        top_k=number("integer", 0, 1_000_000, "only the k most probable tokens; 0 is all"),
        top_p=number("number", 0, 1, "of these, only the fewest whose probabilities sum to this share"),
        min_p=number("number", 0, 1, "of these, only those with at least this fraction of the highest probability"),
        seed=number("integer", 0, 2**63 - 1, "the same seed draws the same texts"),
        max_length=number("integer", 1, 100_000, "tokens after which a text is cut"),
        no_repeat_ngram=number("integer", 0, 100, "no n-gram of this size is written twice; 0 allows all"),
        repetition_penalty=number("number", 1, 100, "1 is none"),
    ),
    "description": "samples each token from the model's distribution",
}

PREDICT = form(["texts"], texts=INPUTS, model=MODEL)
EMBED = form(["texts"], texts=ITEMS, model=MODEL)
TRANSLATE = form(["texts"], texts=TEXTS, model=MODEL, search=SEARCH)
GENERATE = form(["texts"], texts=TEXTS, model=MODEL, search=SEARCH, sampling=SAMPLING)
TOKENIZE = form(["texts"], texts=TEXTS, model=MODEL)

EMBED_INFERENCE: Schema = {
    **form(
        ["inputs"],
        inputs=TEXTS,
        normalize={"type": "boolean", "description": "scale vectors to length 1 (true)"},
        truncate={
            "type": ["boolean", "null"],
            "description": "false refuses texts that are too long; else they are cut",
        },
        truncation_direction={"enum": ["right", "Right"], "description": "texts are cut at their end"},
        prompt_name={"type": "null", "description": "models here have no prompts"},
        dimensions={"type": ["integer", "null"], "description": "as many as the model has"},
    ),
    "description": "the form of text-embeddings-inference; the answer is a list of vectors",
}
EMBEDDINGS: Schema = {
    **form(
        ["input"],
        input=TEXTS,
        model=MODEL,
        encoding_format={"enum": ["float", "base64"], "description": "base64: little-endian float32"},
        dimensions={"type": ["integer", "null"], "description": "as many as the model has"},
        user={"type": ["string", "null"], "description": "not used"},
    ),
    "description": "the form of OpenAI's embeddings",
}

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def check(value: Any, schema: Schema, where: str = "The body") -> None:
    """Check a JSON value against a schema with the keywords that this file uses.

    Raises Refusal 422; its sentence begins with `where`.
    """
    if "anyOf" in schema:
        _check_any(value, schema, where)
        return
    if "enum" in schema:
        if value not in schema["enum"] or isinstance(value, bool):
            raise Refusal(422, f"{where} must be one of {', '.join(schema['enum'])}, not {_shown(value)}.")
        return
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    kind = next((kind for kind in kinds if _is(value, kind)), None)
    if kind is None:
        raise Refusal(422, f"{where} must be {' or '.join(_WORDS[k] for k in kinds)}, not {_shown(value)}.")
    if kind in ("integer", "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise Refusal(422, f"{where} must be from {schema['minimum']} to {schema['maximum']}, not {_shown(value)}.")
    if kind == "array":
        if len(value) < schema.get("minItems", 0):
            raise Refusal(422, f"{where} is empty.")
        for i, one in enumerate(value if "items" in schema else (), 1):
            check(one, schema["items"], f"Item {i} of {_inside(where)}")
    if kind == "object" and "properties" in schema:
        _check_fields(value, schema, where)


def _check_any(value: Any, schema: Schema, where: str) -> None:
    """Check a value against the option of its type. Raises Refusal 422, also if no option has this type."""
    for option in schema["anyOf"]:
        if _is(value, option["type"]):
            check(value, option, where)
            return
    words = [_WORDS[option["type"]] for option in schema["anyOf"]]
    raise Refusal(422, f"{where} must be {' or '.join(words)}, not {_shown(value)}.")


def _check_fields(value: Mapping[str, Any], schema: Schema, where: str) -> None:
    properties: Mapping[str, Schema] = schema["properties"]
    for name in schema["required"]:
        if name not in value:
            raise Refusal(422, f"{where} lacks the field '{name}'.")
    for name, one in value.items():
        if name not in properties:
            error: UnmaskError = unknown("field", clipped(name, 60), properties)
            raise Refusal(422, str(error))
        check(one, properties[name], f"'{name}'")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return False
    return isinstance(value, _KINDS[kind])


def _inside(where: str) -> str:
    return where[0].lower() + where[1:]


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return _WORDS["object" if isinstance(value, dict) else "array"]
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of so many digits"
    if isinstance(value, str):
        value = value[:100]  # more is clipped below
    return clipped(json.dumps(value, ensure_ascii=False), 60)
