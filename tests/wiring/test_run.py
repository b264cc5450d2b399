"""Run and Best: what every training shares, driven directly, without a kind of run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from unmask import huggingface
from unmask.data.examples import Groups, labelled
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.objectives.language_modeling import MaskedLMConfig
from unmask.runs.run import BEST, Best, Run, mean_losses
from unmask.train.events import Evaluated, Saved, Step
from unmask.train.trainer import Training
from unmask.types import Example

TOKENIZER = Tokenizer.train(["the cat sees the dog near the house"] * 5, 60)


def rows(count: int, seed: int) -> list[Example]:
    """Sentences of five tokens, one of them hidden."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        tokens = rng.integers(5, TOKENIZER.size, 5)
        place = rng.integers(0, 5, 1)
        value, tokens[place] = tokens[place].copy(), TOKENIZER.mask
        found.append(Example(tokens, targets={"mlm": (place, value)}))
    return found


class Plain(Run):
    """A run as it is, evaluated on four rows."""

    heldout = (TOKENIZER.collate(rows(4, 1)),)


def plain(out: Path, steps: int = 6, **more: Any) -> Plain:
    objective = MaskedLMConfig().build(TOKENIZER)
    size = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 8}
    model = Bert(vocabulary=TOKENIZER.size, **size).build(objective.heads)
    training = Training(steps=steps, device="cpu", precision="fp32", evaluate_every=2, save_every=2)
    data = labelled(Groups(rows(16, 0)), 4, pad=TOKENIZER.pad)
    return Plain(model, objective, data, training, out, processor=TOKENIZER, **more)


def test_parts_are_all_that_a_run_needs(tmp_path: Path) -> None:
    run = plain(tmp_path / "run")
    assert run.plan()["steps"] == 6
    assert not (tmp_path / "run").exists()
    heard: list[Any] = []
    result = run.run(heard.append)
    assert [event.step for event in heard if isinstance(event, Evaluated)] == [0, 2, 4, 6]
    assert [event.step for event in heard if isinstance(event, Saved)] == [2, 4, 6]
    loaded = huggingface.load(tmp_path / "run")
    assert loaded.require_tokenizer("run").fingerprint == TOKENIZER.fingerprint
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), run.model.parameters(), strict=True))
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (facts["kind"], facts["parameters"]) == ("run", run.model.parameters_total)
    assert run.evaluations()[-1]["loss/mlm"] == result.heldout["loss/mlm"]
    assert run.summary(result).startswith("6 of 6 steps in ")


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    plain(tmp_path / "whole").run()
    part = plain(tmp_path / "part")
    result = part.run(lambda event: event == Step(3) and part.trainer.stop("the test"))
    assert part.summary(result).endswith("stopped by the test.")
    plain(tmp_path / "part", resume=True).run()
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_the_best_evaluation_is_kept_and_known_again(tmp_path: Path) -> None:
    class Told(Plain):
        """The second evaluation after the start is the best."""

        def evaluate(self, model: Any, step: int) -> Any:
            found = super().evaluate(model, step)
            return found._replace(numbers=found.numbers | {"score": {0: 9.0, 2: 1.0, 4: 3.0}.get(step, 2.0)})

    def told(**more: Any) -> Run:
        run = plain(tmp_path / "run")
        parts = (run.model, run.objective, run.data, run.trainer.config, tmp_path / "run")
        return Told(*parts, processor=TOKENIZER, best=Best("score"), **more)

    run = told()
    run.run(lambda event: event == Step(5) and run.trainer.stop("the test"))
    assert run.best is not None
    assert (run.best.step, run.best.value) == (4, 3.0)
    best = load_file(tmp_path / "run" / BEST / "model.safetensors")
    fourth = load_file(tmp_path / "run" / "checkpoints" / "step-00000004" / "model.safetensors")
    assert all(torch.equal(best[name], fourth[name]) for name in fourth)
    resumed = Told(
        run.model, run.objective, run.data, run.trainer.config, tmp_path / "run", best=Best("score"), resume=True
    )
    assert resumed.best is not None
    assert (resumed.best.step, resumed.best.value) == (4, 3.0)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.sampled_from(["accuracy", "loss"]), st.booleans())
def test_the_best_is_the_first_or_the_last_of_the_best_values(values: list[float], metric: str, later: bool) -> None:
    best = Best(metric, later=later)
    best.note(0, {})
    kept = [step for step, value in enumerate(values, 1) if best.note(step, {metric: value})]
    top = min(values) if metric == "loss" else max(values)
    places = [step for step, value in enumerate(values, 1) if value == top]
    assert best.step == places[-1 if later else 0] == kept[-1]
    assert best.found == {metric: top}
    again = Best(metric, later=later)
    again.replay({"step": step, **found} for step, found in best.history)
    assert (again.step, again.value, again.waited) == (best.step, best.value, best.waited)


def test_patience_counts_evaluations_without_a_gain() -> None:
    best = Best("accuracy", patience=2)
    spent = []
    for step, value in enumerate([0.5, 0.4, 0.6, 0.6, 0.1], 1):
        best.note(step, {"accuracy": value})
        spent.append(best.is_spent)
    assert spent == [False, False, False, False, True]
    with pytest.raises(UnmaskError, match="accurcy"):
        Best("accurcy").note(1, {"accuracy": 0.5})


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    plain(tmp_path / "run").run()
    with pytest.raises(UnmaskError, match="holds a run already"):
        plain(tmp_path / "run").run()


def test_the_mean_loss_is_over_all_targets_whatever_the_batches(tmp_path: Path) -> None:
    run, examples = plain(tmp_path / "run"), rows(7, 2)
    with torch.no_grad():
        whole = mean_losses(run.objective, run.model.eval(), [TOKENIZER.collate(examples)])
        parts = mean_losses(
            run.objective, run.model, [TOKENIZER.collate(examples[:2]), TOKENIZER.collate(examples[2:])]
        )
    assert parts == pytest.approx(whole, rel=1e-5)
    assert whole.keys() == {"loss/mlm", "mlm/correct"}
