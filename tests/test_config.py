"""Configurations: JSON and back, typed overrides, and a plain sentence for every wrong one."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.config import INSTEAD, SAME, Config, flatten, read_json
from unmask.errors import UnmaskError, plural, unknown
from unmask.runs import recipes


@dataclass(frozen=True, kw_only=True)
class Inner(Config):
    rate: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    kind: Literal["linear", "cosine"] = "linear"


@dataclass(frozen=True, kw_only=True)
class Other(Config):
    rate: float = 0.2
    batch_size: int = 1


@dataclass(frozen=True, kw_only=True)
class Outer(Config):
    steps: int | None = None
    name: str = "run"
    fast: bool = False
    limit: float | None = None
    files: tuple[str, ...] = ()
    inner: Inner = field(default_factory=Inner)
    other: Other = field(default_factory=Other)


finite = st.floats(allow_nan=False, allow_infinity=False)
inners = st.builds(Inner, rate=finite, betas=st.tuples(finite, finite), kind=st.sampled_from(["linear", "cosine"]))
outers = st.builds(
    Outer,
    steps=st.none() | st.integers(),
    name=st.text(),
    fast=st.booleans(),
    limit=st.none() | finite,
    files=st.lists(st.text()).map(tuple),
    inner=inners,
)


@given(outers)
def test_json_gives_back_the_same_config(config):
    assert Outer.from_dict(json.loads(config.to_json())) == config


@given(st.integers())
def test_a_whole_number_is_read_exactly(number):
    assert Outer().replace(steps=str(number)).steps == number
    assert Outer().replace(steps=number).steps == number


@given(finite)
def test_a_number_on_the_command_line_is_read_exactly(number):
    assert Inner().replace(rate=repr(number)).rate == number


@pytest.mark.parametrize(
    ("changes", "place", "value"),
    [
        ({"steps": "1e6"}, "steps", 1_000_000),
        ({"steps": 3.0}, "steps", 3),
        ({"steps": "none"}, "steps", None),
        ({"fast": "yes"}, "fast", True),
        ({"fast": "False"}, "fast", False),
        ({"limit": 1}, "limit", 1.0),
        ({"files": "a,b"}, "files", ("a", "b")),
        ({"files": ["a"]}, "files", ("a",)),
        ({"betas": "0.8,0.9"}, "inner.betas", (0.8, 0.9)),
        ({"inner.rate": "2e-3"}, "inner.rate", 0.002),
        ({"inner.kind": "cosine"}, "inner.kind", "cosine"),
        ({"other-rate": "1"}, None, "field 'other_rate'"),
        ({"rate": "1"}, None, "write one of: inner.rate, other.rate"),
        ({"stepz": 3}, None, "did you mean 'steps'?"),
        ({"steps": "three"}, None, "--steps must be a whole number or none, not 'three'"),
        ({"steps": 2.5}, None, "--steps"),
        ({"steps": True}, None, "--steps"),
        ({"steps": "inf"}, None, "--steps"),
        ({"limit": "nan"}, None, "--limit"),
        ({"fast": "perhaps"}, None, "--fast must be true or false"),
        ({"fast": 1}, None, "--fast must be true or false"),
        ({"name": 3}, None, "--name must be text"),
        ({"kind": "square"}, None, "one of linear, cosine"),
        ({"betas": "0.9"}, None, "--betas must be 2 values"),
        ({"inner.betas": "0.9,x"}, None, "--inner.betas must be"),
        ({"inner": 5}, None, "field 'inner'"),
    ],
)
def test_overrides(changes, place, value):
    if place is not None:
        changed = Outer().override(changes)
        assert changed.places()[place] == value
        assert type(changed.places()[place]) is type(value)
        assert {k: v for k, v in changed.places().items() if k != place} == {
            k: v for k, v in Outer().places().items() if k != place
        }
    else:
        with pytest.raises(UnmaskError) as caught:
            Outer().override(changes)
        assert value in str(caught.value)


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Outer().steps = 3


def test_dotted_names_and_dashes_are_the_same_field():
    assert Outer().override({"inner.rate": "1", "other.rate": "2"}).inner.rate == 1.0
    assert Other().override({"batch-size": "4"}).batch_size == 4


def test_a_field_may_have_other_names_and_is_called_by_the_one_that_was_typed():
    assert Outer().override({"a-b": "4"}, a_b="other.batch-size").other.batch_size == 4
    for typed in ("a-b", "a_b"):
        with pytest.raises(UnmaskError, match=rf"^--{typed} must be a whole number, not 'many'\.$"):
            Outer().override({typed: "many"}, a_b="other.batch_size")
    with pytest.raises(UnmaskError, match=r"^other\.batch_size must be a whole number, not 'many'\.$"):
        Outer().replace(other={"batch_size": "many"})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "is not valid JSON"),
        (b"[1]", "must hold a JSON object, not a list"),
        (b"\xff\xfe{}", "cannot be read"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"a": ' + b"1" * 5_000 + b"}", "is not valid JSON"),
        (b'{"stepz": 1}', "did you mean 'steps'?"),
        (b'{"inner": {"rat": 1}}', "did you mean 'rate'?"),
        (b'{"inner": 3}', "Outer.inner must be Inner, not 3"),
        (b'{"inner": null}', "Outer.inner must be Inner, not None"),
    ],
)
def test_a_damaged_file_is_named(content, sentence, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UnmaskError) as caught:
        Outer.read(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(UnmaskError, match="There is no file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(UnmaskError, match="cannot be read"):
        read_json(tmp_path)


def test_defaults_of_a_run_survive_the_round_trip():

    for name in recipes.names():
        config = recipes.find(name)
        assert recipes.find(name).replace(**json.loads(config.to_json())) == config  # as a run is resumed
        assert all(not isinstance(v, float) or math.isfinite(v) for v in config.places().values())


@pytest.mark.parametrize(
    ("name", "value", "here"),
    [
        ("learning-rate", "1e-3", "training.optimizer.lr"),
        ("max_steps", "7", "training.steps"),
        ("warmup-ratio", "0.2", "training.schedule.warmup"),
        ("max_seq_length", "64", "rows.tokens"),
        ("mlm-probability", "0.3", "objective.rate"),
        ("num_hidden_layers", "3", "model.layers"),
    ],
)
def test_fields_are_found_by_the_names_of_other_tools(name, value, here):
    changed = recipes.find("bert-tiny").override({name: value})
    assert changed.places()[here] == float(value)
    assert changed == recipes.find("bert-tiny").override({here: value})


def test_a_switch_of_another_tool_sets_a_value():
    assert recipes.find("bert-tiny").override({"bf16": "true"}).training.precision == "bf16"


def test_a_name_without_an_equal_here_says_what_to_do_instead():
    with pytest.raises(UnmaskError, match=r"There is no --adam-beta1 here: --betas 0\.9,0\.999 sets both"):
        recipes.find("bert-tiny").override({"adam_beta1": "0.8"})


def test_every_name_of_other_tools_means_a_field_or_an_option():
    import argparse

    from unmask.cli import parser
    from unmask.generate import Sampling, Search
    from unmask.runs import supervised_recipes
    from unmask.runs.finetuning import FineTuning
    from unmask.runs.translation import systems
    from unmask.runs.word_vectors import Word2Vec

    vit = supervised_recipes.find("vit-tiny")
    fields = [
        recipes.find("bert-tiny"),
        FineTuning(),
        vit,
        Search(),
        Sampling(),
        systems.find("transformer-tiny"),
        Word2Vec(),
    ]
    places = {place for config in fields for place in config.places()}
    known = places | {place.split(".")[-1] for place in places}

    def options(of: argparse.ArgumentParser) -> set[str]:
        verbs = [verb for one in of._actions if isinstance(one.choices, dict) for verb in one.choices.values()]
        own = {option[2:].replace("-", "_") for option in of._option_string_actions}
        return own.union(*map(options, verbs))

    assert {name.partition("=")[0] for here in SAME.values() for name in here} <= known | options(parser())
    assert not {name for name in SAME if name in places}, "a name of a field is not a foreign one"
    own = known | options(parser())
    assert not own & set(INSTEAD)


def test_a_misspelt_name_of_another_tool_is_answered_by_it():
    with pytest.raises(UnmaskError, match="There is no field 'learning_rte'; did you mean 'learning_rate'"):
        recipes.find("bert-tiny").override({"learning_rte": "1"})
    with pytest.raises(UnmaskError, match="There is no field 'stesp'; did you mean 'steps'"):
        recipes.find("bert-tiny").override({"stesp": "1"})


def test_unknown_names_the_nearest_and_all():
    assert str(unknown("verb", "tran", ["train", "eat"])) == (
        "There is no verb 'tran'; did you mean 'train'? Known: eat, train."
    )
    assert str(unknown("verb", "xyz", [])) == "There is no verb 'xyz'. Known: none."
    many = str(unknown("field", "stepz", ["steps", *(f"name{i}" for i in range(99))]))
    assert many.startswith("There is no field 'stepz'; did you mean 'steps'? The most similar of 100: steps, ")
    assert many.count("name") == 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((1, "document"), "1 document"),
        ((0, "document"), "0 documents"),
        ((1_234_567, "row"), "1,234,567 rows"),
        ((np.int64(2_000_000), "row"), "2,000,000 rows"),
        ((1.0, "minute"), "1 minute"),
        ((0.5, "minute"), "0.5 minutes"),
        ((math.inf, "second"), "inf seconds"),
        ((1, "process", "processes"), "1 process"),
        ((2, "process", "processes"), "2 processes"),
    ],
)
def test_one_is_not_plural(given, said):
    assert plural(*given) == said


def test_flatten_gives_dotted_names():
    assert flatten({"a": {"b": 1, "c": {"d": [{"e": 2}]}}, "f": None, "g": {}}) == {
        "a.b": 1,
        "a.c.d": [{"e": 2}],
        "f": None,
    }
