"""What `unmask pretrain` does where nothing but a recipe is named, and what does not go together."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import sounds

from unmask.cli import main
from unmask.data.text import corpus
from unmask.data.text.corpus import Corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.objectives import MaskedLMConfig, NextSentenceConfig
from unmask.objectives.registry import CHOOSABLE, of_version_0_1, options, read
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.train import checkpoint

SHORT = ["--steps", "1", "--batch-size", "2", "--heldout", "4", "--device", "cpu"]
SMALL = [*SHORT, "--dim", "16", "--layers", "1"]
SIZES = {"dim": 16, "layers": 1, "encoder_layers": 1, "decoder_layers": 1, "heads": 2, "hidden": 32}
SIZES |= {"factor": 8, "bottleneck": 8}
PICTURES = {name for name in recipes.names() if "pictures" in recipes.find(name).model.offers}
RECORDINGS = {name for name in recipes.names() if "recordings" in recipes.find(name).model.offers}
SIGNALS = {name for name in recipes.names() if "signals" in recipes.find(name).model.offers}
TINY = [name for name in recipes.names() if name.endswith("-tiny") and name not in PICTURES]
KINDS = {"gpt2-tiny": "bpe", "roberta-tiny": "bpe", "elmo-tiny": "spelled"}
"""Recipe -> what its tokens are, where they are not pieces of words."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and Python with little documentation."""
    texts = [TextDocument(f"Return the {name} of a list. It is a number. " * 20, name) for name in _names()]
    monkeypatch.setattr("unmask.data.text.embedded.documents", lambda **_: iter(texts))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _names() -> list[str]:
    return [f"{first}{second}" for first in ("sum", "mean", "size", "rank") for second in "abcdefghijklmnopqrst"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for many recipes, so that each kind of corpus is built once."""
    return tmp_path_factory.mktemp("shared")


@pytest.mark.parametrize("recipe", [*TINY, "lstm-lm", "lstm-autoencoder", "bilstm"])
def test_a_recipe_alone_learns_from_the_embedded_corpus(
    recipe: str, shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shared)
    sounds.few(monkeypatch)
    corpus = Path("corpora") / f"embedded-{KINDS.get(recipe, 'wordpiece')}"
    known, model = corpus.exists(), recipes.find(recipe).model
    small = [*SHORT, "--rows.tokens", "32"]
    for name, value in SIZES.items():
        if type(getattr(model, name, None)) is int:  # T5 has a factor that is no size
            small += [f"--{name}", str(value)]
    main(["pretrain", recipe, *small])
    said = capsys.readouterr().out
    assert (f"in {corpus}; yours goes with --corpus" in said) is not known
    assert "Next: unmask pretrain" not in said
    assert (Path("runs") / recipe / "model.safetensors").exists()
    assert Corpus(corpus).split("train").documents > 50
    if not known:
        main(["pretrain", recipe, *small, "--out", f"again/{recipe}"])
        assert "Building" not in capsys.readouterr().out


def test_texts_become_a_corpus_beside_the_run_and_change_with_their_files(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n\n".join(f"The {one} of {other} . It is {one} ." for one in _names()[:9] for other in _names()[:3])
    (place / "notes").mkdir()
    (place / "notes" / "a.txt").write_text(text)

    def corpora(out: str) -> set[Path]:
        main(["pretrain", "bert-tiny", "--data", "notes", "--out", out, *SHORT, "--layers", "1", "--dim", "16"])
        return set(Path(f"{out}-data").glob("corpus-*"))

    (first,) = corpora("runs/one")
    assert f"Building a corpus of the texts, in {first}" in capsys.readouterr().out
    assert json.loads(Path("runs/one/run.json").read_text())["corpora"] == [str(first)]
    tokens = Corpus(first).split("train").tokens
    (place / "notes" / "b.txt").write_text("A longer text . " * 40)
    Path("runs/one-data").rename("runs/two-data")  # as if the run were repeated
    two = corpora("runs/two")
    assert len(two) == 2
    assert max(Corpus(one).split("train").tokens for one in two) > tokens
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["pretrain", "bert-tiny", "--data", "notes", "--out", "runs/three", "--per", "fil", *SHORT])
    assert "There is no value of --per: 'fil'; did you mean 'file'?" in capsys.readouterr().err
    main(["pretrain", "bert-tiny", "--data", "notes", "--out", "runs/three", "--per", "file", "--sentences", "none",
          *SHORT, "--layers", "1", "--dim", "16"])  # fmt: skip
    (files,) = Path("runs/three-data").glob("corpus-*")
    assert sum(Corpus(files).split(name).documents for name in ("train", "heldout")) == 2


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
        assert config.objective.fits(config.model), name


# ------------------------------------------------------------------------------------------------ settings of others

VALUES = {"sentences": "order", "rate": "0.3", "whole-words": "true", "span": "3", "short": "0.2", "mean-span": "2"}
VALUES |= {"words": "9"}
TAKEN: dict[str, set[str]] = {
    "bert-tiny": {"sentences", "rate", "whole-words", "span", "short"},
    "gpt-tiny": set(),
    "transformer-xl-tiny": set(),
    "lstm-autoencoder": {"short"},
    "t5-tiny": {"rate", "short", "mean-span"},
    "elmo-tiny": {"words"},
}


@pytest.mark.parametrize(
    ("recipe", "name", "value"),
    [(recipe, *field) for recipe, taken in TAKEN.items() for field in VALUES.items() if field[0] not in taken],
)
def test_a_setting_that_means_nothing_to_what_is_learned_is_refused(
    recipe: str, name: str, value: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line and in Python, where the field does not exist."""
    with pytest.raises(SystemExit):
        main(["pretrain", recipe, f"--{name}", value, "--steps", "1"])
    said = capsys.readouterr().err
    assert f"--{name} is for learning " in said
    assert said.count(".") == 1  # one sentence
    assert list(place.iterdir()) == []
    for prefix in ("", "objective.", "objectives."):
        with pytest.raises(UnmaskError, match=f"^--{name} is for learning .*: leave it out.$"):
            recipes.find(recipe).override({f"{prefix}{name}": value})
    with pytest.raises(UnmaskError, match="no field"):
        recipes.find(recipe).objective.replace(**{name.replace("-", "_"): value})


def test_hidden_words_are_not_turned_off_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pretrain", "gpt-tiny", "--masked", "false", "--fields"])
    assert "--masked is for learning masked tokens" in capsys.readouterr().err


def test_what_a_recipe_has_not_is_refused_though_it_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pretrain", "gpt-tiny", "--sentences", "next", "--fields"])
    said = capsys.readouterr().err
    assert "--sentences is for learning masked tokens, replaced tokens or pairs of sentences; this run learns" in said


def test_pairs_of_sentences_alone_hide_no_words() -> None:
    alone = recipes.find("bert-tiny").override({"masked": False, "short": 0.3})
    assert alone.objective == NextSentenceConfig(short=0.3)
    for fields in ({"rate": 0.3}, {"whole_words": True}, {"span": 3}):
        with pytest.raises(UnmaskError, match="this run learns pairs of sentences"):
            alone.override(fields)


@pytest.mark.parametrize("recipe", TAKEN)
def test_a_setting_that_means_something_is_taken(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [part for name in TAKEN[recipe] for part in (f"--{name}", VALUES[name])]
    main(["pretrain", recipe, *given, "--fields"])
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    for name in TAKEN[recipe]:
        (line,) = (line for line in shown if line[0].rpartition(".")[2].lstrip("-").replace("_", "-") == name)
        assert line[1].lower() in (VALUES[name], f"{VALUES[name]}.0")


@pytest.mark.parametrize("recipe", recipes.names())
def test_what_turns_off_something_that_is_not_there_is_no_mistake(recipe: str) -> None:
    for kind in CHOOSABLE:
        for name, value in (*kind.off, ("sentences", "none"), ("replaced", False)):
            recipes.find(recipe).override({name: value})


@pytest.mark.parametrize("recipe", recipes.names())
def test_an_objective_is_read_as_it_was_written(recipe: str) -> None:
    """From run.json, whatever objective the recipe of the run has."""
    asked = recipes.find(recipe).objective
    assert read(json.loads(json.dumps(asked.to_dict())), MaskedLMConfig()) == asked


@pytest.mark.parametrize("recipe", sorted(recipes.names().keys() - PICTURES - RECORDINGS - SIGNALS - {"continued"}))
def test_an_objective_of_version_0_1_is_read(recipe: str) -> None:
    """As it stood in run.json, with the fields of all other objectives."""
    asked = recipes.find(recipe).objective
    chosen = {"written": "none", "masked": True, "sentences": "none", "replaced": False}
    others = {"rate": 0.15, "whole_words": False, "span": 1, "short": 0.1, "mean_span": 3.0, "words": 8_192}
    before = {**chosen, **others, **asked.leaves()}
    for part in asked.all():
        for name, value in part.choices[:1]:
            before[name] = {"true": True}.get(value, value)
    assert of_version_0_1(before) == asked


@pytest.mark.parametrize(
    ("given", "meant"), [("writen", "written"), ("sentence", "sentences"), ("mean-spans", "mean_span")]
)
def test_a_misspelt_option_is_answered_with_the_one_that_is_meant(given: str, meant: str) -> None:
    with pytest.raises(UnmaskError, match=f"did you mean '{meant}'"):
        recipes.find("bert-tiny").override({given: "next"})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sentences": "nxt"}, "--sentences must be one of .*; did you mean 'next'?"),
        ({"masked": "perhaps"}, "--masked must be true or false, not 'perhaps'"),
        ({"written": "next", "rate": 0.3}, "this run learns next tokens: leave it out"),
        ({"objective.rate": "many"}, "--rate must be a number, not 'many'"),
        ({"objectives.learning": 1}, "There is no field of what is learned: 'learning'"),
        ({"replaced": True, "masked": False}, "Replaced tokens are learned from masked tokens: set --masked true"),
        ({"masked": False, "replaced": True}, "Replaced tokens are learned from masked tokens: set --masked true"),
    ],
)
def test_options_of_objectives_that_make_no_sense_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(UnmaskError, match=said):
        recipes.find("bert-tiny").override(fields)


def test_nothing_to_learn_is_refused(place: Path) -> None:
    corpus.build([TextDocument(f"A {name} here. It is there. " * 20, name) for name in _names()], place / "mine")
    config = recipes.find("bert-tiny").override({"masked": False, "sentences": "none", "device": "cpu"})
    with pytest.raises(UnmaskError, match="There is nothing to learn: set --masked true"):
        Pretrain(config, ["mine"], "run")


def test_help_lists_the_fields_of_every_objective(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pretrain", "--help-all"])
    said = " ".join(capsys.readouterr().out.split())
    for name in options():
        assert f" --{name.replace('_', '-')} " in said
    for kind in CHOOSABLE:
        for _, value in kind.choices:
            assert value == "false" or f" {value}: " in said
    with pytest.raises(SystemExit):
        main(["pretrain", "simclr-tiny", "--help"])
    own = " ".join(capsys.readouterr().out.split())
    assert "what is learned: views of pictures" in own
    assert " --similarity-temperature X " in own
    assert " --mean-span " not in own


def test_a_run_of_before_goes_on_with_what_it_has(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [*SMALL, "--heads", "2", "--length", "32"]
    main(["pretrain", "gpt-tiny", *sizes, "--out", "run"])
    newest = checkpoint.folder_of(place / "run" / "checkpoints", 1)
    facts = json.loads((newest / "run.json").read_text())
    del facts["config"]["objective"]
    facts["config"]["teaching"] = facts["config"].pop("distillation")
    facts["config"]["objectives"] = {"written": "next", "span": 3, "sentences": "order", "words": 100}
    (newest / "run.json").write_text(json.dumps(facts))
    checkpoint.seal(newest)
    main(["pretrain", "--out", "run", "--resume"])
    assert "1 of 1 step" in capsys.readouterr().out
    config = recipes.find("gpt-tiny").resumed(facts)
    Pretrain(config, facts["corpora"], "run", resume=True)
    assert config.objective == recipes.find("gpt-tiny").objective
    with pytest.raises(SystemExit):
        main(["pretrain", "--out", "run", "--resume", "--span", "4"])
    assert "--span is for learning masked tokens" in capsys.readouterr().err


def test_a_run_in_the_default_folder_goes_on_with_its_own_settings(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And on its own corpus: the embedded one is of another vocabulary."""
    corpus.build([TextDocument(f"A {name} here. It is there. " * 20, name) for name in _names()], place / "mine")
    main(["pretrain", "gpt-tiny", *SMALL, "--heads", "2", "--length", "32", "--corpus", "mine"])
    main(["pretrain", "gpt-tiny", "--resume", "--steps", "2"])
    said = capsys.readouterr().out
    assert "2 of 2 steps" in said
    assert "Train further with" not in said
    main(["pretrain", "gpt-tiny", "--resume"])
    assert "Train further with: unmask pretrain --out runs/gpt-tiny --resume --steps N\n" in capsys.readouterr().out
    run = json.loads((place / "runs" / "gpt-tiny" / "run.json").read_text())
    assert run["corpora"] == ["mine"]
    assert (run["config"]["rows"]["batch"], run["config"]["model"]["dim"]) == (2, 16)


def test_a_run_that_was_made_longer_and_killed_goes_on_with_its_last_settings(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the folder says of itself was written before, when the run had ended."""
    main(["pretrain", "gpt-tiny", *SMALL, "--heads", "2", "--length", "32", "--out", "run"])
    ended = (place / "run" / "run.json").read_text()
    main(["pretrain", "--out", "run", "--resume", "--steps", "4", "--alpha", "0.25", "--save-every", "2"])
    shutil.rmtree(checkpoint.folder_of(place / "run" / "checkpoints", 4))
    (place / "run" / "run.json").write_text(ended)  # as where it was killed before step 4
    capsys.readouterr()
    main(["pretrain", "--out", "run", "--resume"])
    assert "4 of 4 steps" in capsys.readouterr().out
    assert json.loads((place / "run" / "run.json").read_text())["config"]["rows"]["alpha"] == 0.25


def test_a_run_from_a_folder_has_the_objectives_of_the_folder(place: Path) -> None:
    """Whatever the recipe has for sentences: a GPT has no use for it."""
    main(["pretrain", "gpt-tiny", *SMALL, "--heads", "2", "--length", "32", "--out", "run"])
    for recipe in ("bert-tiny", "albert-tiny", "roberta-tiny"):
        _, config = recipes.choose(recipe, str(place / "run"))
        assert config.objective == recipes.find("gpt-tiny").objective
