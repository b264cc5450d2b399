"""Generated parity: configurations drawn field by field, taken through folders both ways, against `transformers`.

A family (families/*.py) says how each field of the reference's config class is drawn, or why it is not. A case is one
configuration, with fields removed from its config.json, fields that older versions wrote, a type of the stored numbers
and random weights. What it must show: the answers, the losses and the gradients of both sides are equal, or the folder
is refused with an `UnmaskError`; they never differ. A folder that is saved here opens there and means the same.

Values are `drawn` where this house must open them, and `odd` where it may refuse them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import strategies as st
from torch import Tensor, nn

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.nn import attention, dropout

Strategies = Mapping[str, st.SearchStrategy[Any]]

BASE: Strategies = {
    "id2label": st.sampled_from([None, ["one"], ["no", "yes"], ["a", "b", "c"]]),
    "problem_type": st.sampled_from(
        [None, None, "regression", "single_label_classification", "multi_label_classification"]
    ),
    "dtype": st.sampled_from(["float32", "float32", "bfloat16", "float16"]),
}
BASE_ODD: Strategies = {
    "architectures": st.sampled_from([None, [], ["Mystery"]]),
    "chunk_size_feed_forward": st.just(2),
    "is_encoder_decoder": st.just(True),
    "problem_type": st.just("nonsense"),
    "id2label": st.sampled_from([{"0": "a", "2": "c"}, {"1": "b", "0": "a"}, ["a", "a"], {"x": "a"}, 3, {}]),
    "num_labels": st.integers(1, 3),
    "tie_word_embeddings": st.just(False),
}
BASE_SAME: Mapping[str, str] = {
    "transformers_version": "it is written by the reference and read by nobody",
    "output_hidden_states": "it says what is returned, not what it is",
    "return_dict": "it says how the answers are returned",
    "label2id": "it is drawn with id2label, of which it is the inverse",
}
"""Fields that all config classes of the reference have in common."""

EXTRAS: Strategies = {
    "_num_labels": st.sampled_from([2, 5]),
    "output_attentions": st.booleans(),
    "output_past": st.just(True),
    "pruned_heads": st.just({}),
    "torchscript": st.just(False),
    "gradient_checkpointing": st.just(False),
    "torch_dtype": st.just("float32"),
    "finetuning_task": st.just("mnli"),
    "position_embedding_type": st.just("absolute"),
}
"""Fields that older versions wrote, and that this house must open."""


@dataclass(frozen=True)
class Family:
    """How one family of models is drawn and compared.

    config   the reference's config class, whose fields are all in one of the following
    drawn    field -> values that must open
    sizes    several fields whose values depend on one another; `sized` names them
    odd      field -> values that may be refused but never mean something else
    same     field -> why it is not drawn
    extras   fields that the class has not, but folders have
    classes  architecture -> the heads that it has here
    outputs  (case, ours, theirs) -> the answers of both sides by name, in float64 and with gradients
    load     a folder -> what this house makes of it, whose `.model` is compared
    save     (folder, what `load` gave)
    widest   fields that are never removed: the default of the reference is too large for a test
    written  architecture -> that of a folder which is saved here, where it is another
    kept     (configuration of theirs, architecture) -> what must be the same after a folder was saved here
    alike    case -> whether other classes of the reference open its folder as well, and nothing in it tells which is
             meant: it may be refused, or be taken for one of the others
    """

    config: type[transformers.PreTrainedConfig]
    drawn: Strategies
    sizes: st.SearchStrategy[dict[str, Any]]
    sized: tuple[str, ...]
    classes: Mapping[str, frozenset[str]]
    outputs: Callable[[Case, Any, nn.Module], tuple[dict[str, Tensor], dict[str, Tensor]]]
    odd: Strategies = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    extras: Strategies = field(default_factory=dict)
    load: Callable[[Path], Any] = huggingface.load
    save: Callable[[Path, Any], None] = lambda folder, loaded: huggingface.save(
        folder, loaded.model, labels=loaded.labels
    )
    widest: frozenset[str] = frozenset()
    gradients: Callable[[Any, nn.Module], tuple[dict[str, Tensor], dict[str, Tensor]]] | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    kept: Callable[[transformers.PreTrainedConfig, str], dict[str, Any]] = lambda config, name: {}
    alike: Callable[[Case], bool] = lambda case: False

    @property
    def name(self) -> str:
        return self.config.model_type

    @property
    def covered(self) -> set[str]:
        """Every field that is drawn or excused."""
        return {*self.drawn, *self.sized, *self.odd, *self.same, *BASE, *BASE_ODD, *BASE_SAME}

    @property
    def fields(self) -> set[str]:
        """Every field of the reference's config class."""
        return {one.name for one in dataclasses.fields(self.config)}


@dataclass(frozen=True)
class Case:
    """One draw.

    values   fields with which the weights are made
    changes  fields that are set in config.json afterwards, whatever the weights are
    absent   fields that are removed from it
    odd      whether it may be refused
    """

    family: str
    architecture: str
    values: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    odd: bool = False
    train: bool = False
    left: bool = False
    seed: int = 0


def cases(family: Family) -> st.SearchStrategy[Case]:
    """Draws of a family: one in four with an odd value, one in three with fields removed."""
    return _cases(family)


@st.composite
def _cases(draw: st.DrawFn, family: Family) -> Case:
    architecture = draw(st.sampled_from(sorted(family.classes)))
    values = draw(family.sizes) | {name: draw(strategy) for name, strategy in {**BASE, **family.drawn}.items()}
    defaults = family.config().to_dict()
    removable = sorted({*family.drawn, *family.sized, *BASE, "architectures"} - family.widest)
    absent = draw(st.lists(st.sampled_from(removable), unique=True, max_size=4)) if draw(_one_in(3)) else []
    for name in absent:  # mostly, the weights are those of the default, so that the folder opens
        if name in {*family.sized, *family.drawn} and not draw(_one_in(8)):
            values[name] = defaults[name]
    changes: dict[str, Any] = {}
    odd = draw(_one_in(4))
    if odd:
        strategies = {**BASE_ODD, **family.odd, **_nulls({*family.drawn, *family.sized})}
        name = draw(st.sampled_from(sorted(strategies)))
        value = draw(strategies[name])
        if name in family.odd and draw(st.booleans()):
            values[name] = value  # the weights are made by it
        else:
            changes[name] = value
    elif draw(_one_in(3)):
        extras = {**EXTRAS, **family.extras}
        name = draw(st.sampled_from(sorted(extras)))
        changes[name] = draw(extras[name])
    return Case(
        family=family.name,
        architecture=architecture,
        values=_consistent(architecture, values),
        changes=changes,
        absent=tuple(name for name in absent if name not in changes),
        odd=odd,
        train=draw(st.booleans()),
        left=draw(_one_in(3)),
        seed=draw(st.integers(0, 3)),
    )


def _one_in(number: int) -> st.SearchStrategy[bool]:
    return st.integers(1, number).map(lambda one: one == number)


def _nulls(names: set[str]) -> Strategies:
    return {f"{name}=null": st.none() for name in names}


def _consistent(architecture: str, values: dict[str, Any]) -> dict[str, Any]:
    """What the reference asks of the labels: two for the ends of an answer, more than one for a single label."""
    if architecture.endswith(("QuestionAnswering", "NextSentencePrediction", "Model")):
        values = {**values, "id2label": None, "problem_type": None}
    if values["id2label"] == ["one"] and values["problem_type"] == "single_label_classification":
        values = {**values, "problem_type": None}
    return values


# ------------------------------------------------------------------------------------------------ the reference


def reference(case: Case, family: Family, folder: Path) -> nn.Module | None:
    """The model that `transformers` reads from the folder of a case, which is written first; None where it refuses.

    Raises `pytest.skip.Exception` never: a case of which no model can be made at all gives no folder and None.
    """
    names = case.values["id2label"]
    values = {k: v for k, v in case.values.items() if k not in ("id2label", "dtype")}
    values["dtype"] = "float32"
    if names is not None:
        values["id2label"] = dict(enumerate(names))
        values["label2id"] = {name: i for i, name in enumerate(names)}
    kind = getattr(transformers, case.architecture)
    try:
        config = family.config(**values)
        model = kind._from_config(config, attn_implementation="eager")
    except REFUSALS:
        return None
    generator = torch.Generator().manual_seed(case.seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # tables of sinusoids do not
                parameter.normal_(std=0.3, generator=generator)
        if (bias := getattr(model, "final_logits_bias", None)) is not None and case.seed:
            bias.normal_(std=0.3, generator=generator)
    model.to(getattr(torch, case.values["dtype"])).save_pretrained(folder)
    edit(folder, case)
    return read(case, folder)


REFUSALS = (Exception,)
"""The reference has no error of its own: a folder that it cannot open fails in any way."""


def edit(folder: Path, case: Case) -> None:
    """Remove and change fields of config.json."""
    path = folder / "config.json"
    values = json.loads(path.read_text())
    values = {name: value for name, value in values.items() if name not in case.absent}
    if "id2label" in case.absent:
        values.pop("label2id", None)
    for name, value in case.changes.items():
        name = name.removesuffix("=null")
        values[name] = dict(enumerate(value)) if name == "id2label" and isinstance(value, list) else value
    path.write_text(json.dumps(values))


def read(case: Case, folder: Path) -> nn.Module | None:
    """What the reference reads from a folder; None where it refuses, or makes up weights that are not there."""
    kind = getattr(transformers, case.architecture)
    with quiet():
        try:
            model, info = kind.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
        except REFUSALS:
            return None
    missing = [name for name in info["missing_keys"] if "embed_positions" not in name]  # sinusoids are computed
    if missing or info["mismatched_keys"]:
        return None
    return model.eval()


def runs(theirs: nn.Module) -> bool:
    """Whether a model of theirs gets through one token: some that open have heads that do not fill their width."""
    token = torch.zeros(1, 1, dtype=torch.int64)
    inputs = {"decoder_input_ids": token} if theirs.config.is_encoder_decoder else {}
    try:
        with torch.no_grad():
            theirs.base_model(input_ids=token, **inputs)
    except RuntimeError:
        return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(level)


# ------------------------------------------------------------------------------------------------ the comparison


def check(case: Case, family: Family, folder: Path) -> str:
    """Take a case both ways. Returns what came of it: "equal", "refused" or "nothing", where the reference has no such
    model either. Fails where the sides differ, or where a case that must open is refused."""
    with quiet():
        theirs = reference(case, family, folder / "theirs")
    if not (folder / "theirs" / "config.json").is_file():
        return "nothing"
    alike = family.alike(case)
    try:
        ours = family.load(folder / "theirs")
    except UnmaskError as error:
        if "\n" in str(error) or not (case.odd or alike or theirs is None or not runs(theirs)):
            raise AssertionError(f"the reference opens it, but: {error}") from error
        return "refused"
    if theirs is None or alike:
        return "nothing"
    compare(case, family, ours, theirs, "their folder, read here")
    family.save(folder / "ours", ours)
    again = read(case, folder / "ours")
    assert again is not None, "the reference does not open the folder that was saved here"
    compare(case, family, ours, again, "our folder, read there")
    before, after = (family.kept(one.config, case.architecture) for one in (theirs, again))
    assert after == before
    assert again.config.architectures == [family.written.get(case.architecture, case.architecture)]
    loaded = family.load(folder / "ours")
    assert loaded.model.config == ours.model.config
    assert set(loaded.model.heads) == set(ours.model.heads)
    return "equal"


def compare(case: Case, family: Family, ours: Any, theirs: nn.Module, what: str) -> None:
    """Answers, loss and gradients of two models."""
    model = ours.model.double()
    model.zero_grad(set_to_none=True)
    model.train(case.train)
    theirs = theirs.double().train(case.train)
    with patched():
        mine, other = family.outputs(case, ours, theirs)
    assert mine.keys() == other.keys(), what
    for name, value in other.items():
        assert mine[name].shape == value.shape, f"{what}: {name}"
        torch.testing.assert_close(
            mine[name], value, atol=1e-8, rtol=1e-7, msg=lambda m, name=name: f"{what}: {name}: {m}"
        )
    loss(mine).backward()
    loss(other).backward()
    if family.gradients is not None:
        same_gradients(*family.gradients(ours, theirs), what)
    model.float().eval()


def loss(answers: Mapping[str, Tensor]) -> Tensor:
    """A number that depends on every answer in its own way."""
    total = torch.zeros((), dtype=torch.float64)
    for value in answers.values():
        weights = torch.arange(value.numel(), dtype=torch.float64).mul(0.7).cos().view(value.shape)
        total = total + (value * weights).mean() + 0.1 * value.tanh().square().mean()
    return total


def same_gradients(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], what: str) -> None:
    """Each tensor's gradient, as a share of its own largest number; those that are zero but for rounding, of all."""
    assert ours.keys() >= theirs.keys(), what
    theirs = {name: gradient for name, gradient in theirs.items() if gradient.numel()}
    largest = max((float(one.abs().max()) for one in theirs.values()), default=0.0)
    for name, gradient in theirs.items():
        size = max(float(gradient.abs().max()), 1e-5 * largest, 1e-12)
        share = float((ours[name] - gradient).abs().max()) / size
        assert share < 1e-5, f"{what}: the gradient of {name} differs by {share:.1e} of its largest number"


@contextmanager
def patched() -> Iterator[None]:
    """Dropout that is the same function on both sides: of the rate and the width, so that it shows where it is, at
    what rate, and where it is not."""

    def drop(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        kept = torch.tensor([math.modf(0.37 + 0.618034 * i)[0] >= p for i in range(x.shape[-1])], dtype=x.dtype)
        return x * (kept * (1 / (1 - p)) if p < 1 else kept * 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "dropout", drop)
        patch.setattr(dropout, "dropout", drop)
        patch.setattr(attention, "dropout", drop)
        yield
