"""What `unmask pretrain` does where nothing but a recipe is named, and what does not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from unmask import recipes
from unmask.cli import main
from unmask.data.corpus import Corpus
from unmask.data.text import TextDocument
from unmask.pretraining import reads_both_ways

SMALL = ["--steps", "1", "--batch-size", "2", "--heldout", "4", "--dim", "16", "--layers", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and Python with little documentation."""
    texts = [TextDocument(f"Return the {name} of a list. It is a number. " * 20, name) for name in _names()]
    monkeypatch.setattr("unmask.data.embedded.documents", lambda **_: iter(texts))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _names() -> list[str]:
    return [f"{first}{second}" for first in ("sum", "mean", "size", "rank") for second in "abcdefghijklmnopqrst"]


@pytest.mark.parametrize(
    ("recipe", "kind", "more"),
    [
        ("bert-tiny", "wordpiece", ["--heads", "2", "--hidden", "32"]),
        ("gpt2-tiny", "bpe", ["--heads", "2", "--hidden", "32"]),
        ("elmo-tiny", "spelled", ["--hidden", "32"]),
        ("t5-tiny", "wordpiece", ["--heads", "2", "--hidden", "32"]),
    ],
)
def test_a_recipe_alone_learns_from_the_embedded_corpus(
    recipe: str, kind: str, more: list[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [*SMALL, *more, "--rows.tokens", "32"]
    if recipe == "t5-tiny":
        sizes[sizes.index("--layers")] = "--encoder-layers"
    main(["pretrain", recipe, *sizes])
    said = capsys.readouterr().out
    assert f"in corpora/embedded-{kind}; yours goes with --corpus" in said
    assert "Next: unmask pretrain" not in said
    assert (place / "runs" / recipe / "model.safetensors").exists()
    assert Corpus(place / "corpora" / f"embedded-{kind}").split("train").documents > 50
    main(["pretrain", recipe, *sizes, "--out", "again"])
    assert "Building" not in capsys.readouterr().out


def test_a_model_is_not_given_an_objective_that_it_cannot_learn(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for recipe, written in (("bert-tiny", "next"), ("electra-tiny", "again"), ("transformer-xl-tiny", "none")):
        with pytest.raises(SystemExit):
            main(["pretrain", recipe, "--written", written, "--steps", "1", "--out", "run"])
        assert "leave --written as the recipe has it" in capsys.readouterr().err
        assert not (place / "run").exists()


def test_every_recipe_has_an_objective_of_its_model() -> None:
    for name in recipes.names():
        config = recipes.find(name)
        assert (config.objectives.written == "none") == reads_both_ways(config.model), name
