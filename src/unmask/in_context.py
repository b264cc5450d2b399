"""Answers in context: a task as a text that a language model goes on with, after no, one or a few examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.config import Config
from unmask.data.dataset import Dataset, ordered
from unmask.data.rows import Choices, Row
from unmask.errors import UnmaskError, plural, unknown
from unmask.families import Rows, check_scored, read
from unmask.huggingface import Loaded
from unmask.serve.likelihood import Scorer
from unmask.tasks import Classification, MultipleChoice, Task

BETWEEN = "\n\n"  # what stands between the examples of a prompt
FIELDS = ("text", "pair", "answer")


@dataclass(frozen=True, kw_only=True)
class InContext(Config):
    """A task put as a text (Brown et al. 2020, "Language Models are Few-Shot Learners", section 2).

    shots      examples with their answers that stand before each row; drawn anew for each, by the seed
    task       what the rows are: classification of texts or pairs, or multiple-choice
    template   of an example: {text}, {pair} and {answer}, which comes last; None: see `template_of`
    names      what labels are called, where the file has numbers: 0=negative,1=positive
    normalise  the answer is that with the highest log-probability: the "sum" over its tokens, or their "mean", which
               does not favour short ones (section 2.4)
    """

    shots: int = 0
    task: Literal["classification", "multiple-choice"] = "classification"
    template: str | None = None
    names: tuple[str, ...] = ()
    normalise: Literal["sum", "mean"] = "sum"
    seed: int = 0
    rows: Rows = field(default_factory=Rows)

    def __post_init__(self) -> None:
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
    found = read(Path(data), how.task, how.rows, scoring=True)
    shown = None if examples is None else read(Path(examples), how.task, how.rows, scoring=True)
    task, named = _task(how, found, shown)
    prompts = Prompts(how, named, found.rows, None if shown is None else shown.rows)
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

    named     label -> what it is called; nothing for multiple choice, where each row brings its answers
    rows      that are answered        examples  that stand before them; None: the other rows
    """

    def __init__(
        self, how: InContext, named: Mapping[str, str], rows: Sequence[Row], examples: Sequence[Row] | None = None
    ) -> None:
        self.how, self.named, self.rows = how, named, rows
        self.others = examples
        self.template = how.template or template_of(rows)
        known = len(rows) - 1 if examples is None else len(examples)
        if how.shots > known:
            raise UnmaskError(f"{plural(known, 'row')} cannot show {plural(how.shots, 'example')}: lower --shots.")

    def of(self, number: int) -> tuple[str, list[str]]:
        """The prompt of a row and the candidates, each with what stands between the two in front of it."""
        row = self.rows[number]
        parts = [_filled(self.template, one, self.answer(one)) for one in self.shown(number)]
        before = BETWEEN.join([*parts, _filled(self.template.partition("{answer}")[0], row, "")])
        prompt = before.rstrip()
        return prompt, [before[len(prompt) :] + candidate for candidate in self.candidates(row)]

    def shown(self, number: int) -> list[Row]:
        """The examples before a row: a function of the seed and its number."""
        pool = self.rows if self.others is None else self.others
        places = [i for i in range(len(pool)) if self.others is not None or i != number]
        rng = np.random.default_rng([self.how.seed, number])
        return [pool[i] for i in rng.choice(places, self.how.shots, replace=False).tolist()] if self.how.shots else []

    def candidates(self, row: Row) -> list[str]:
        """What may be the answer to a row."""
        return list(row.choices) if isinstance(row, Choices) else list(self.named.values())

    def answer(self, row: Row) -> str:
        """The right one. Raises UnmaskError where a row to be shown has none."""
        if isinstance(row, Choices):
            if not row.label.isdigit() or int(row.label) >= len(row.choices):
                raise UnmaskError(f"{row.place} has no right choice to show: {row.label!r}.")
            return row.choices[int(row.label)]
        if row.label not in self.named:
            raise unknown(
                f"label of the rows to answer, which {row.place} is to be shown beside:", row.label, self.named
            )
        return self.named[row.label]


def answer_all(
    scorer: Scorer, prompts: Prompts, rows: Sequence[Row], normalise: Literal["sum", "mean"] = "sum"
) -> tuple[list[np.ndarray], int]:
    """For each row the softmax [1, C] over the log-probabilities of its candidates, and how many prompts were cut.

    A prompt that does not fit loses tokens at its beginning. Raises UnmaskError for a candidate without a token.
    """
    tokenizer, longest = scorer.tokenizer, scorer.window + 1
    answers, cut = [], 0
    for number, row in enumerate(rows):
        prompt, candidates = prompts.of(number)
        before = tokenizer.ids([prompt])[0]
        sequences, lengths = [], []
        for candidate, ids in zip(candidates, tokenizer.ids(candidates), strict=True):
            room = longest - 1 - len(ids)
            if not len(ids) or room < 0:
                what = f"has {len(ids)} tokens, and the model reads {scorer.window}" if len(ids) else "has no token"
                raise UnmaskError(f"{row.place or 'A row'}: the answer {candidate.strip()!r} {what}.")
            sequences.append(np.concatenate([[tokenizer.cls], before[max(0, len(before) - room) :], ids]))
            lengths.append(len(ids))
        cut += len(before) + max(lengths) + 1 > longest
        log_ps = scorer.log_probabilities(sequences)
        sums = np.array([x[-n:].sum(dtype=np.float64) for x, n in zip(log_ps, lengths, strict=True)])
        scores = sums / np.array(lengths) if normalise == "mean" else sums
        shares = np.exp(scores - scores.max())
        answers.append((shares / shares.sum())[None])
    return answers, cut


def template_of(rows: Sequence[Row]) -> str:
    """How rows of a kind are put where nobody says: a text and its label on a line each; a context, what is asked of
    it, and the choice behind it."""
    paired = any(row.pair for row in rows)
    if isinstance(rows[0], Choices):
        return "{text} {pair} {answer}" if paired else "{text} {answer}"
    return "First: {text}\nSecond: {pair}\nLabel: {answer}" if paired else "Text: {text}\nLabel: {answer}"


def _task(how: InContext, found: Dataset, shown: Dataset | None) -> tuple[Task, dict[str, str]]:
    """The task that scores the answers, and what each of its labels is called."""
    if how.task == "multiple-choice":
        if how.names:
            raise UnmaskError("--names is for classification: a row of multiple choice brings its answers with it.")
        return MultipleChoice(), {}
    labels = tuple(ordered({*found.labels, *(() if shown is None else shown.labels)}))
    given = dict(name.partition("=")[::2] for name in how.names)
    for label in given.keys() - set(labels):
        raise unknown("label in the rows, which --names calls", label, labels)
    return Classification(labels), {label: given.get(label) or label for label in labels}


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
