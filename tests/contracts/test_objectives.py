"""What holds for every objective: it is known by its config alone, and says itself what others ask of it."""

from __future__ import annotations

import ast
import wave
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from unmask.data.loader import EqualRows
from unmask.data.signals import wfdb
from unmask.data.signals.signal import Signal
from unmask.data.text import corpus, spelling
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.objectives import ObjectiveConfig, registry
from unmask.objectives.registry import CHOOSABLE, OBJECTIVES
from unmask.runs import recipes
from unmask.train.display import progress

SOURCE = Path(registry.__file__).parents[1]
NAMES = {name for kind in OBJECTIVES for name in (kind.__name__, kind.objective.__name__)}
ROOM, KINDS = "objectives", ("", "writing_", "recurrent_", "picture_", "recording_", "signal_")
RECIPES = tuple(f"{kind}recipes.py" for kind in KINDS)
LECTURES = ("runs", "lectures")
"""An entry shows the equation of one objective, and so names it."""
EVERY = pytest.mark.parametrize("kind", OBJECTIVES, ids=lambda kind: kind.kind)


def named(tree: ast.AST) -> Iterator[str]:
    """Every name that code imports, uses or asks an object for; texts and comments are none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


def test_nothing_names_an_objective_but_its_room_recipes_and_lectures() -> None:
    found = {}
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE)
        if inside.parts[0] != ROOM and inside.name not in RECIPES and inside.parts[:2] != LECTURES:
            found[str(inside)] = NAMES & set(named(ast.parse(path.read_text(encoding="utf-8"))))
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("text", ["from unmask.objectives import MaskedLM", "x.MaskedLMConfig()", "CausalLM(1, 2)"])
def test_the_search_for_names_finds_them(text: str) -> None:
    assert NAMES & set(named(ast.parse(text)))


def test_the_options_and_kinds_of_all_are_told_apart() -> None:
    assert len({kind.kind for kind in CHOOSABLE}) == len(CHOOSABLE)
    chosen = [choice for kind in CHOOSABLE for choice in kind.choices]
    assert len(set(chosen)) == len(chosen)


@pytest.mark.parametrize("recipe", ["bert-tiny", "electra-tiny", "gpt-tiny", "t5-tiny", "bilstm"])
def test_what_is_asked_for_is_learned_or_refused(recipe: str) -> None:
    """Of the combinations of the options that choose an objective, none is dropped in silence."""
    config, values = recipes.find(recipe), {}
    for option, value in sorted(choice for kind in CHOOSABLE for choice in kind.choices):
        values.setdefault(option, [None]).append(value)
    for combination in product(*values.values()):
        given = {name: value for name, value in zip(values, combination, strict=True) if value is not None}
        if len({"frames", "patches", "signal"} & given.keys()) > 1:  # modalities that no recipe here has: one is enough
            continue
        try:
            found = registry.selected(config.override(given).objective)
        except UnmaskError:
            continue
        for name, value in given.items():
            nothing = value in ("none", "false", "auto")
            assert found.get(name, value if nothing else None) == value, given


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    texts = [TextDocument(f"The film number {i} was good. The plot of {i} was bad. " * 8, str(i)) for i in range(30)]
    corpus.build(texts, folder / "pieces", vocabulary_size=80, heldout=0.1)
    corpus.build(texts, folder / "spelled", learn=spelling.train, heldout=0.1)
    Image = pytest.importorskip("PIL.Image")
    (folder / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(200):  # one in 50 is held out
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder / "pictures" / f"{i}.png")
    (folder / "recordings").mkdir()
    for i in range(60):
        with wave.open(str(folder / "recordings" / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, 8_000, 0, "NONE", ""))
            file.writeframes(rng.integers(-9_999, 9_999, rng.integers(2_000, 8_000), dtype=np.int16).tobytes())
    (folder / "signals").mkdir()
    for i in range(60):
        samples = rng.normal(size=(3_000, 1)).astype(np.float32)
        wfdb.write(folder / "signals" / f"{i}.hea", Signal(samples, 300, ("a",), ("mV",)))
    return folder


@EVERY
def test_an_objective_describes_its_rows_its_baseline_and_itself(
    kind: type[ObjectiveConfig], corpora: Path, tmp_path: Path
) -> None:
    """Every term has a description; rows of training and evaluation have targets; the baseline counts every answer."""
    model = recipes.find(kind.example).model
    texts = "spelled" if model.token_kind == "spelled" else "pieces"
    data = kind.opens(
        corpora / next((name for name in ("pictures", "recordings", "signals") if name in model.offers), texts)
    )
    config, splits = kind(), [data.split("train")]
    processor = config.processor(data.processor)
    objective = config.prepared([data], processor, tmp_path, lambda _: None, progress).build(processor, splits)
    assert objective.weights.keys() <= {term.name for term in objective.terms} <= registry.terms().keys()
    assert all(registry.head_label(head) for head in objective.heads)
    options = {"length": 32, "cut": EqualRows(2), "seed": 0, "workers": 0, "alpha": 1.0}
    [batch] = next(objective.stream(splits, options).batches()).batches
    rows = objective.evaluation_rows([data.split("heldout")], length=32, rows=2, limit_rows=4)
    for found in (batch, *rows):
        assert objective.weights.keys() & found.targets.keys()
    guessed = [term for term in objective.terms if term.guess]
    if guessed:
        counts = objective.expected_counts(splits, processor.size, 32)
        assert (counts >= 0).all()
    for term in guessed:
        assert max((int(b.targets[term.name].values.max()) for b in rows), default=0) < len(counts)
    probes = objective.probes(data.split("heldout"), processor, 32)
    assert all(isinstance(probe.text, str) and len(probe.tokens) <= 33 for probe in probes)
    assert objective.summary({}, {}, {}) == []
    assert np.isfinite(list(objective.derived({}, lambda: 1.0).values())).all()


@EVERY
def test_an_objective_is_chosen_by_its_options_and_taken_by_its_model(kind: type[ObjectiveConfig]) -> None:
    config = recipes.find(kind.example)
    given = dict(kind.choices[:1])
    assert config.override(given).objective.part(kind) is not None
    assert kind().fits(config.model)
    with pytest.raises(UnmaskError, match=f"not {kind.learned}"):
        registry.check_supported(kind(), Unable(), folder=False)


class Unable:
    """Sizes of a model that offers nothing."""

    offers = frozenset[str]()
