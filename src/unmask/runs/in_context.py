"""Answers in context: a task as a text that a language model continues with, after no, one or a few examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.data.labelled.dataset import ordered
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, plural
from unmask.huggingface import Loaded
from unmask.serve.likelihood import Scorer
from unmask.tasks import TASKS, task_named
from unmask.tasks.config import TaskConfig
from unmask.tasks.reading import check_scored, read

BETWEEN = "\n\n"  # what stands between the examples of a prompt
FIELDS = ("text", "pair", "answer")


@dataclass(frozen=True, kw_only=True)
class InContext(TaskConfig):
    """A task put as a text (Brown et al. 2020, "Language Models are Few-Shot Learners", section 2).

    shots      examples with their answers that stand before each row; drawn anew for each, by the seed
    template   of an example: {text}, {pair} and {answer}, which comes last; None: see `Prompting.template`
    names      what labels are called, where the file has numbers: 0=negative,1=positive
    normalise  the answer is that with the highest log-probability: the "sum" over its tokens, or their "mean", which
               does not favour short ones (section 2.4)
    """

    shots: int = 0
    template: str | None = None
    names: tuple[str, ...] = ()
    normalise: Literal["sum", "mean"] = "sum"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if task_named(self.task).prompting is None:
            known = ", ".join(name for name, kind in TASKS.items() if kind.prompting is not None)
            raise UnmaskError(f"--task must be one of {known} where a language model is asked, not '{self.task}'.")
        if self.shots < 0:
            raise UnmaskError(f"There are no {self.shots} examples; set --shots to 0 or more.")
        if self.template is not None:
            _check(self.template)


def evaluate_in_context(
    model: Path | str | Loaded, data: Path | str, how: InContext | None = None, *, examples: Path | str | None = None
) -> dict[str, Any]:
    """Score a language model, as it is, on the labelled rows of a file.

    examples  file of the rows that stand before each; None: the other rows of `data`

    Returns what `evaluation.evaluate` returns; the loss is that of the softmax over the scores of the candidates.
    Raises UnmaskError for a model that says no next token, and for rows and templates that do not fit.
    """
    how = how or InContext()
    check_scored(how.rows)
    scorer = Scorer(model)
    scorer.language_model()  # other models are refused before any row is read
    found = read(Path(data), how.task, how.rows, scoring=True)
    shown = None if examples is None else read(Path(examples), how.task, how.rows, scoring=True)
    labels = tuple(ordered({*found.labels, *(() if shown is None else shown.labels)}))
    kind = task_named(how.task)
    assert kind.prompting is not None
    put = kind.prompting.of(labels, dict(name.partition("=")[::2] for name in how.names))
    task = kind.of_labels(labels)
    prompts = Prompts(how, put.named, found.rows, None if shown is None else shown.rows)
    answers, cut = answer_all(scorer, prompts, found.rows, how.normalise)
    notes = [*found.notes, f"Template: {prompts.template!r}, {plural(how.shots, 'example')} before each row."]
    if cut:
        notes.append(
            f"{cut:,} of the {len(found):,} rows do not fit the model with their examples: the first were cut."
        )
    return {
        "task": task.name,
        "rows": len(found),
        "description": found.description,
        "metrics": task.metrics(answers, found.rows),
        "reference": task.reference,
        "baseline": task.baseline(found.rows, found.rows if shown is None else shown.rows),
        "classes": task.report(answers, found.rows),
        "notes": notes,
    }


class Prompts:
    """Rows as texts: examples with their answers, then a row without.

    named     label -> what it is called; nothing where each row brings its answers
    rows      that are answered        examples  that stand before them; None: the other rows
    """

    def __init__(
        self, how: InContext, named: Mapping[str, str], rows: Sequence[Row], examples: Sequence[Row] | None = None
    ) -> None:
        prompting = task_named(how.task).prompting
        assert prompting is not None
        self.how, self.put, self.rows = how, prompting(named), rows
        self.others = examples
        self.template = how.template or self.put.template(rows)
        known = len(rows) - 1 if examples is None else len(examples)
        if how.shots > known:
            raise UnmaskError(f"{plural(known, 'row')} cannot show {plural(how.shots, 'example')}: lower --shots.")

    def of(self, number: int) -> tuple[str, list[str]]:
        """The prompt of a row and the candidates, each with what stands between the two in front of it."""
        row = self.rows[number]
        parts = [_filled(self.template, one, self.put.answer(one)) for one in self.shown(number)]
        before = BETWEEN.join([*parts, _filled(self.template.partition("{answer}")[0], row, "")])
        prompt = before.rstrip()
        return prompt, [before[len(prompt) :] + candidate for candidate in self.put.candidates(row)]

    def shown(self, number: int) -> list[Row]:
        """The examples before a row: a function of the seed and its number."""
        pool = self.rows if self.others is None else self.others
        places = [i for i in range(len(pool)) if self.others is not None or i != number]
        rng = np.random.default_rng([self.how.seed, number])
        return [pool[i] for i in rng.choice(places, self.how.shots, replace=False).tolist()] if self.how.shots else []


def answer_all(
    scorer: Scorer, prompts: Prompts, rows: Sequence[Row], normalise: Literal["sum", "mean"] = "sum"
) -> tuple[list[np.ndarray], int]:
    """For each row the softmax [1, C] over the log-probabilities of its candidates, and how many prompts were cut.

    A prompt that does not fit loses tokens at its beginning. Raises UnmaskError for a candidate without a token and
    for a model that does not predict the next token.
    """
    model = scorer.language_model()
    tokenizer, longest = model.tokenizer, model.window + 1
    answers, cut = [], 0
    for number, row in enumerate(rows):
        prompt, candidates = prompts.of(number)
        before = tokenizer.ids([prompt])[0]
        sequences, lengths = [], []
        for candidate, ids in zip(candidates, tokenizer.ids(candidates), strict=True):
            room = longest - 1 - len(ids)
            if not len(ids) or room < 0:
                what = f"has {len(ids)} tokens, and the model reads {model.window}" if len(ids) else "has no token"
                raise UnmaskError(f"{row.place or 'A row'}: the answer {candidate.strip()!r} {what}.")
            sequences.append(np.concatenate([[tokenizer.cls], before[max(0, len(before) - room) :], ids]))
            lengths.append(len(ids))
        cut += len(before) + max(lengths) + 1 > longest
        log_ps = model.of_sequences(sequences)
        sums = np.array([x[-n:].sum(dtype=np.float64) for x, n in zip(log_ps, lengths, strict=True)])
        scores = sums / np.array(lengths) if normalise == "mean" else sums
        shares = np.exp(scores - scores.max())
        answers.append((shares / shares.sum())[None])
    return answers, cut


def _check(template: str) -> None:
    """Raises UnmaskError for a template that shows nothing, or asks for nothing, at its end."""
    if template.count("{answer}") != 1 or template.partition("{answer}")[2].strip():
        raise UnmaskError(f"A template ends in {{answer}}, which it has once; {template!r} does not.")
    if "{text}" not in template and "{pair}" not in template:
        raise UnmaskError(f"The template {template!r} shows nothing of a row: put in {{text}} or {{pair}}.")


def _filled(template: str, row: Row, answer: str) -> str:
    """A template with the values of a row, in which braces mean nothing."""
    values = {"text": row.text, "pair": row.pair or "", "answer": answer}
    parts = template.split("{")
    out = parts[0]
    for part in parts[1:]:
        name, closed, rest = part.partition("}")
        out += values[name] + rest if closed and name in FIELDS else "{" + part
    return out
