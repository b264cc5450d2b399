"""Files of dialogues, trees and commands as pairs; tokens between spaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.bitext import trees
from unmask.data.bitext.reading import read
from unmask.data.text.splitters import Spaced
from unmask.errors import UnmaskError

STAGED = Path(__file__).resolve().parents[3] / "shared" / "data"
TALK = {"turns": ["Hi.", {"speaker": "SYSTEM", "utterance": "Hello, what now?"}, "A  table.", "For two?", "Yes."]}
TREES = [
    "( (S (NP-SBJ (DT The) (NN dog)) (VP (VBD saw) (NP (-NONE- *-1)) (NP=2 (NN town))) (. .)) )",
    "(TOP (NP (NP (CD 3)) (, ,) (SBAR (-NONE- 0) (S (-LRB- -LRB-) (VP (VB go))))))",
]


def written(path: Path, rows: list) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def test_each_turn_follows_those_before_it(tmp_path):
    path = written(tmp_path / "talk.jsonl", [TALK, {"turns": ["alone"]}, {"turns": ["a", "b"]}])
    found = read(path, turns=2)
    assert list(found) == [
        ("Hi.", "Hello, what now?"),
        ("Hi. | Hello, what now?", "A table."),
        ("Hello, what now? | A table.", "For two?"),
        ("A table. | For two?", "Yes."),
        ("a", "b"),
    ]
    assert found.lines == [1, 2, 3, 4, 5]
    assert read(path).sources[3] == "Hello, what now? | A table. | For two?"


def test_commands_and_actions(tmp_path):
    path = written(tmp_path / "scan.txt", ["IN: jump twice OUT: I_JUMP I_JUMP", "", "IN: walk OUT: I_WALK"])
    found = read(path)
    assert list(found) == [("jump twice", "I_JUMP I_JUMP"), ("walk", "I_WALK")]
    assert found.lines == [1, 3]
    assert list(read(path, format="scan")) == list(found)


def test_trees_lose_traces_functions_and_the_root(tmp_path):
    found = read(written(tmp_path / "trees.mrg", TREES))
    assert list(found) == [
        ("The dog saw town .", "(S (NP XX XX )NP (VP XX (NP XX )NP )VP . )S"),
        ("3 , -LRB- go", "(NP (NP XX )NP , (SBAR (S -LRB- (VP XX )VP )S )SBAR )NP"),
    ]


@pytest.mark.parametrize(
    ("name", "rows", "arguments", "message"),
    [
        ("a.txt", ["IN: a OUT: B", "a B"], {}, r"a\.txt:2: the line must have the form IN: … OUT: …"),
        ("a.mrg", ["(S (NN a))", "(S (NN a)"], {}, r"a\.mrg:2: it is not one tree"),
        ("a.mrg", ["(S (NN a)))"], {}, r"a\.mrg:1: a bracket closes nothing"),
        ("a.mrg", ["(S (NN a) b)"], {}, r"a\.mrg:1: 'S' has a word beside other parts"),
        ("a.mrg", ["(S" * 500 + " a" + ")" * 500], {}, r"a\.mrg:1: it has more than 200 brackets"),
        ("a.mrg", ["(S (NN a))"], {"columns": ("a", "b")}, r"a\.mrg is not a table; leave the columns out"),
        ("a.jsonl", [{"turns": ["a", 3]}], {}, r"a\.jsonl:1: each turn must be a text"),
        ("a.jsonl", [TALK, {"said": []}], {}, r"a\.jsonl:2: a dialogue must have a list of turns"),
        ("a.jsonl", [{"turns": ["alone"]}], {}, r"a\.jsonl has no pair of sentences"),
        ("a.jsonl", [TALK], {"turns": 0}, "At least one previous turn must be read, not 0"),
        ("a.txt", ["a"], {"format": "tree"}, "did you mean 'trees'"),
    ],
)
def test_faults_are_named(tmp_path, name, rows, arguments, message):
    with pytest.raises(UnmaskError, match=message):
        read(written(tmp_path / name, rows), **arguments)


@given(st.recursive(st.tuples(st.sampled_from(["NN", ",", "-LRB-"]), st.sampled_from("abc")), lambda part: st.tuples(
    st.sampled_from(["S", "NP"]), st.lists(part, min_size=1, max_size=3)), max_leaves=8))  # fmt: skip
def test_a_tree_is_read_as_it_was_written(tree):
    def bracketed(one: tuple) -> str:
        label, inside = one
        return f"({label} {inside if isinstance(inside, str) else ' '.join(map(bracketed, inside))})"

    def leaves(one: tuple) -> list[str]:
        return [one[1]] if isinstance(one[1], str) else [word for part in one[1] for word in leaves(part)]

    found = trees.parse(bracketed(tree))
    assert trees.words(found) == leaves(tree)
    assert sum(not token.startswith(("(", ")")) for token in trees.linear(found).split()) == len(leaves(tree))


@given(st.lists(st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1), max_size=5))
def test_tokens_between_spaces_come_back(tokens):
    splitter = Spaced("identity")
    text = "  ".join(tokens)
    pieces = splitter.split([text])[0]
    assert splitter.join(pieces) == " ".join(text.split())
    assert [text[begin:end] for _, begin, end in splitter.locate(text)] == pieces


@pytest.mark.skipif(not STAGED.is_dir(), reason="the staged data are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("scan/tasks_dev_simple.txt.gz", 1000),
        ("treebank-sample/dev.mrg.gz", 273),
        ("korean-chatbot/ChatbotData.csv.gz", 11823),
    ],
)
def test_real_files_are_read_whole(name, count):
    assert len(read(STAGED / name)) == count
