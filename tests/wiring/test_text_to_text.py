"""Dialogues, trees, commands and code: trained, evaluated beside plain references, answered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import run_cli

from unmask.config import read_json
from unmask.data.bitext.pairs import Bitext, Report
from unmask.generate import Limits, Search
from unmask.metrics import parsing
from unmask.runs.translation import TrainTranslation, evaluate_pairs, systems
from unmask.runs.translation.plain import nearest, right_branching
from unmask.runs.translation.scoring import SCORINGS, scoring
from unmask.runs.translation.texts import read_pairs
from unmask.serve.translator import Translator

SIDES = {"layers": 1, "heads": 2, "hidden": 16}
SMALL = {
    "dim": 16,
    "dropout": 0.0,
    **{f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIDES.items()},
}
SHORT = Search(limits=Limits(max_length=8))  # a model that has learned nothing does not end
FOODS = ["soup", "rice", "bread", "tea"]
DIALOGUES = [
    json.dumps({"turns": [f"I am {i}.", f"What may I bring, {i}?", f"Some {food}, please.", f"One {food} for {i}."]})
    for i, food in enumerate(FOODS)
]
TREES = [
    f"((S (NP (DT the) (NN {food})) (VP (VBZ is) (ADJP (JJ {how}))) (. .)))" for food in FOODS for how in ("hot", "old")
]
COMMANDS = [f"IN: eat {food} twice OUT: I_EAT_{food.upper()} I_EAT_{food.upper()}" for food in FOODS * 3]


def lines(path: Path, rows: list[str]) -> str:
    path.write_text("\n".join(rows) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("metric", "rows", "kept", "plain"),
    [
        ("dialogue", DIALOGUES, "bleu_turns", {"most frequent", "nearest"}),
        ("parsing", TREES, "f1", {"right-branching", "most frequent", "nearest"}),
        ("exact", COMMANDS, "exact", {"most frequent", "nearest"}),
    ],
)
def test_a_file_is_learned_and_evaluated_beside_plain_references(tmp_path, metric, rows, kept, plain):
    path = lines(tmp_path / "rows.txt", rows)
    texts = {"train": (path,), "dev": (path,), "allow_overlap": True, "tokens": 128, "metric": metric, "turns": 2}
    config = systems.find("transformer-tiny").replace(
        model=SMALL,
        texts=texts,
        vocabulary={"kind": "spaced", "size": 80},
        training={"minutes": None, "steps": 2, "precision": "fp32", "device": "cpu"},
        search=SHORT.to_dict(),
    )
    result = TrainTranslation(config, tmp_path / "run").run()
    assert kept in result.heldout
    assert read_json(tmp_path / "run" / "run.json")["metric"] == kept

    found = evaluate_pairs(tmp_path / "run", [path], SHORT, known=read_pairs([path], turns=2), metric=metric)
    assert set(found["plain"]) == plain
    assert found["plain"]["nearest"]["exact"] == 100  # each source is known, so that its own target is the nearest one
    assert set(found["scores"]) == set(SCORINGS[metric].of)
    assert not found["by_length"]
    if metric == "dialogue":
        assert found["sentences"] == 3 * len(rows)
        assert evaluate_pairs(tmp_path / "run", [path], SHORT, turns=1)["sentences"] == 3 * len(rows)
        (answer,) = Translator(tmp_path / "run")(["I am 2. | What may I bring, 2?"])
        assert isinstance(answer, str)


def test_code_is_evaluated_on_the_command_line(tmp_path, capsys):
    english, code = ([f"add {n} to x" for n in range(12)], [f"x += {n}" for n in range(12)])
    pair = (lines(tmp_path / "a.anno", english), lines(tmp_path / "a.code", code))
    model = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    vocabulary, out = ("--vocabulary.kind", "word", "--vocabulary.size", "30"), str(tmp_path / "run")
    learn = ("--steps", "1", "--metric", "code", "--max-length", "8", *vocabulary)
    run_cli(capsys, "train", "transformer-tiny", "--pairs", *pair, *learn, *model, "--out", out)
    how = ("--known", *pair, "--metric", "code")
    _, shown, _ = run_cli(capsys, "evaluate", "--model", out, "--pairs", *pair, *how)
    assert "tok:code" in shown
    assert "nearest: BLEU 100.00, parses 100.00, exact 100.00" in shown


def test_a_tree_that_branches_to_the_right():
    assert right_branching("the dog sees cats .") == "(S XX (VP XX (VP XX XX )VP )VP . )S"
    assert right_branching("go !") == "(S XX ! )S"
    assert right_branching("go") == "(S XX )S"
    for source in ("a b c d e .", "a b", "a", "?"):
        tree = parsing.read(right_branching(source))
        assert tree.sound
        assert len(tree.tags) == len(source.split())
        ends = {end for _, _, end in tree.constituents}
        assert ends <= {len(tree.tags), len(tree.tags) - 1}


def test_the_nearest_source_is_that_of_the_largest_cosine():
    rng = np.random.default_rng(0)
    sources = [" ".join(rng.choice(FOODS, 4)) + f" {i}" for i in range(30)]
    known = Bitext(sources, [f"target {i}" for i in range(30)], Report("rows", 30), [*range(1, 31)])
    assert nearest(known, sources[::-1]) == known.targets[::-1]
    assert nearest(known, ["tea tea tea 3"])[0] in known.targets
    korean = Bitext(["배고파 죽겠다", "잠이 안 와"], ["뭐 좀 드세요", "따뜻한 차를 드세요"], Report("rows", 2), [1, 2])
    assert nearest(korean, ["너무 배고프다", "잠 안 온다"]) == korean.targets


@pytest.mark.parametrize("name", SCORINGS)
def test_a_scoring_keeps_one_of_its_scores(name):
    one = scoring(name)
    assert one.metric in (one.of or {"exact"})
    assert set(one.signatures) == set(one.of)
