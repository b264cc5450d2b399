"""BERT and its kin: the tree of parameters, and what a folder calls them, are the golden ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unmask import huggingface
from unmask.huggingface.table import as_heads
from unmask.models import Albert, Bert, Electra, MobileBert, Roberta

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {"vocabulary": 11, "dim": 8, "layers": 2, "heads": 2, "hidden": 12, "length": 6}
PAGES = {
    "bert": (Bert(), as_heads({"mlm": 0, "nsp": 2})),
    "roberta": (Roberta(), as_heads({"mlm": 0})),
    "albert": (Albert(factor=4), as_heads({"mlm": 0, "sop": 2})),
    "electra": (Electra(factor=4, generator=0.5), as_heads({"rtd": 1, "mlm": 0})),
    "mobilebert": (MobileBert(factor=4, bottleneck=4, feedforwards=2), as_heads({"mlm": 0, "nsp": 2})),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_tree_of_parameters_is_the_golden_one(name: str) -> None:
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    config, heads = PAGES[name]
    model = config.replace(**SMALL).build(heads)
    found = {
        "ours": {key: list(p.shape) for key, p in model.named_parameters()},
        "theirs": {key: list(tensor.shape) for key, tensor in huggingface.export(model).items()},
    }
    for beside, other in model.auxiliary.items():
        found[beside] = {key: list(tensor.shape) for key, tensor in huggingface.export(other).items()}
    path = GOLDEN / f"tree-{name}.json"
    if not path.exists():
        path.write_text(json.dumps(found, indent=1) + "\n")
        pytest.fail(f"there was no {path.name}; it has been written now, look at it and run again")
    assert found == json.loads(path.read_text())
