"""A new objective, written against the public contracts alone: which class of length has a sentence?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unmask import huggingface
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.objectives import Objective, ObjectiveConfig, Term
from unmask.objectives.sequences import runs
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.runs.report import run_facts, write_report
from unmask.types import Document, Example, Head


class SentenceLength(Objective):
    """Which of some classes of length has a sentence, by its first token?"""

    name = "length"
    terms = (Term("length", "length of a sentence"),)

    def __init__(self, tokenizer: Any, classes: int) -> None:
        self.tokenizer, self.classes, self.heads = (
            tokenizer,
            classes,
            {self.name: Head("sequence", classes, pretraining=True)},
        )

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        sentences = [run for document in documents for s in document.sentences for run in runs([s], length - 2)]
        return [self._example(sentence, length) for sentence in sentences]

    def _example(self, sentence: np.ndarray, length: int) -> Example:
        tokens, segments = self.tokenizer.join(sentence, None, length)
        longer = np.array([min(len(sentence) // 6, self.classes - 1)])
        return Example(tokens, segments, {self.name: (np.zeros(1, np.int64), longer)})

    def summary(self, found: Any, baseline: Any, before: Any) -> list[str]:
        return [f"Lengths: {found['length/correct']:.0%} right."]


@dataclass(frozen=True, kw_only=True)
class SentenceLengthConfig(ObjectiveConfig):
    """Tell the length class of a sentence, one of `classes`."""

    classes: int = 3
    kind, learned, objective, requires = "length", "lengths", SentenceLength, frozenset({"bidirectional"})

    def build(self, tokenizer: Any, splits: Any = (), words: Any = ()) -> Objective:
        return SentenceLength(tokenizer, self.classes)


def test_a_new_objective_is_trained_evaluated_saved_and_resumed(tmp_path: Path) -> None:
    texts = [TextDocument("It is. " + "The cat sees the dog near the house. " * (1 + i % 3), str(i)) for i in range(40)]
    corpus.build(texts, tmp_path / "corpus", vocabulary_size=80, heldout=0.2)
    small = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 32, "device": "cpu", "heldout": 8, "batch": 4}
    config = recipes.bert_tiny().replace(objective=SentenceLengthConfig(), rows={"first": None})
    config = config.override({**small, "steps": 60, "lr": 1e-2, "minutes": None, "objective.classes": 2})
    run = Pretrain(config, [tmp_path / "corpus"], tmp_path / "run")
    found = run.run()
    assert found.heldout["length/correct"] > 0.9
    assert "Lengths: 100% right." in run.summary(found)
    assert "Length of a sentence: loss" in write_report(tmp_path / "run").read_text()
    assert huggingface.load(tmp_path / "run").model.heads["length"].output.out_features == 2
    facts = run_facts(tmp_path / "run")
    assert json.loads(json.dumps(facts["config"]["objective"])) == {"kind": "length", "classes": 2}
    longer = config.resumed(facts).override({"steps": 64})
    assert longer.objective == SentenceLengthConfig(classes=2)
    assert Pretrain(longer, facts["corpora"], tmp_path / "run", resume=True).run().step == 64
    with pytest.raises(UnmaskError, match=r"--rate is for learning .*; this run learns lengths: leave it out"):
        config.override({"rate": 0.3})
    with pytest.raises(UnmaskError, match=r"This Gpt learns .*, not lengths"):
        Pretrain(recipes.find("gpt-tiny").replace(objective=SentenceLengthConfig()), facts["corpora"], tmp_path / "gpt")
