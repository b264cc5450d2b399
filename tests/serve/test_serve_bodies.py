"""Whatever a body holds, the answer is no defect: 200, or a refusal in one sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette")
pytest.importorskip("httpx2")
from starlette.testclient import TestClient

from unmask.serve.http import Pool, Settings, forms
from unmask.serve.http.app import build
from unmask.serve.http.wire import Refusal, parse

PATHS = ("/predict", "/embed", "/v1/embeddings", "/translate", "/generate", "/tokenize")
MODELS = ("bert", "classifier", "encoder", "reader", "chooser", "tagger", "writer", "lm")
TEXTS = st.text() | st.sampled_from(["the film", "[MASK]", "[MASK] [CLS]", "\0", "\ud800", " ", "a" * 200, "é한👩‍👩‍👧"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from([10**30, -1, 1e308]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(TEXTS, inside, max_size=4),
    max_leaves=12,
)
INPUTS = TEXTS | st.lists(TEXTS, max_size=3) | st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS, "pair": TEXTS, "question": TEXTS, "context": TEXTS, "choices": st.lists(TEXTS, max_size=3),
        "words": st.lists(TEXTS, max_size=3), "predicate": VALUES, "id": VALUES,
    },
)  # fmt: skip
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "max_length": st.integers(-1, 6) | VALUES, "beam_size": st.integers(0, 4) | VALUES, "n_best": VALUES,
        "length_penalty": VALUES, "no_repeat_ngram": st.integers(0, 3) | VALUES, "temperature": VALUES,
        "top_k": VALUES, "top_p": st.floats(0, 1) | VALUES, "min_p": VALUES, "seed": st.integers(0) | VALUES,
        "samples": VALUES, "repetition_penalty": VALUES,
    },
)  # fmt: skip
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "texts": INPUTS | st.lists(INPUTS, max_size=3), "input": TEXTS | st.lists(TEXTS),
        "inputs": TEXTS | st.lists(TEXTS),
        "model": st.sampled_from(MODELS), "search": FIELDS, "sampling": FIELDS, "normalize": st.booleans(),
        "truncate": VALUES, "dimensions": VALUES, "encoding_format": st.sampled_from(["float", "base64"]) | VALUES,
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def http(models):
    # Errors of the service are not answers here: they fail the test with what went wrong.
    limits = Settings(written=8, tokens=2_000, wait=0.0)
    with TestClient(build(Pool(list(vars(models).values()), loaded=20), limits)) as found:
        yield found


def judge(answer):
    assert answer.status_code in (200, 400, 404, 413, 422), (answer.status_code, answer.text)
    value = answer.json()
    if answer.status_code != 200:
        error = value["error"]["message"] if isinstance(value["error"], dict) else value["error"]
        assert error
        assert error[-1] in ".…"
        assert "\n" not in error
        assert len(error) <= 600


def send(http, path, body):
    judge(http.post(path, content=body, headers={"content-type": "application/json"}))


@settings(max_examples=120)
@given(st.sampled_from(PATHS), LIKELY | VALUES)
def test_no_value_is_a_defect(http, path, value):
    send(http, path, json.dumps(value).encode())


@settings(max_examples=60)
@given(st.sampled_from(PATHS), st.binary(max_size=60))
def test_no_bytes_are_a_defect(http, path, body):
    send(http, path, body)
    send(http, path, b'{"texts": "' + body + b'"}')


@settings(max_examples=60)
@given(VALUES)
def test_what_is_read_is_what_was_written(value):
    text = json.dumps(value)
    try:
        found = parse(text.encode(), 1_000)
    except Refusal:
        assert any(word in text for word in ("NaN", "Infinity", "\\u0000", "\\ud800"))
    else:
        assert found == value


def test_a_form_is_held_against_every_part():
    schema = forms.form(["a"], a={"type": "array", "items": forms.number("number", 0, 1, "")}, b={"enum": ["x"]})
    forms.check({"a": [0, 0.5, 1], "b": "x"}, schema)
    wrong = {
        "Item 2 of 'a' must be from 0 to 1, not 1.5.": {"a": [1, 1.5]},
        "Item 1 of 'a' must be a number, not true.": {"a": [True]},
        "'b' must be one of x, not \"y\".": {"a": [], "b": "y"},
        "The body lacks the field 'a'.": {},
        "There is no field 'c'. Known: a, b.": {"a": [], "c": 1},
    }
    for sentence, value in wrong.items():
        with pytest.raises(Refusal) as caught:
            forms.check(value, schema)
        assert caught.value.sentence == sentence
