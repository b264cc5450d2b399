"""In-context learning: a language model answers a task as the continuation of a prompt with zero or more examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.data.labelled.dataset import ordered, overlap
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, plural
from unmask.huggingface import Loaded
from unmask.serve.likelihood import Scorer
from unmask.tasks import TASKS, task_named
from unmask.tasks.config import TaskConfig
from unmask.tasks.reading import check_scored, read

BETWEEN = "\n\n"  # separator between the examples of a prompt
FIELDS = ("text", "pair", "answer")


@dataclass(frozen=True, kw_only=True)
class InContext(TaskConfig):
    """A task as a prompt (Brown et al. 2020, "Language Models are Few-Shot Learners", section 2).

    shots      examples with answers before each row; every row has its own, drawn by the seed
    template   template of an example, with {text}, {pair} and, at its end, {answer}; None: see `Prompting.template`
    names      names of labels that are numbers in the file: 0=negative,1=positive
    seed       of the examples
    normalise  the answer with the highest log-probability is chosen: the "sum" over its tokens, or their "mean", which
               does not favour short answers (section 2.4)
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
            raise UnmaskError(f"--task must be one of {known} with --shots, not '{self.task}'.")
        if self.shots < 0:
            raise UnmaskError(f"--shots must be 0 or more, not {self.shots}.")
        if self.template is not None:
            _check(self.template)


def evaluate_in_context(
    model: Path | str | Loaded, data: Path | str, how: InContext | None = None, *, examples: Path | str | None = None
) -> dict[str, Any]:
    """Score a language model, without fine-tuning, on the labelled rows of a file.

    examples  file of the rows for the prompts; None: the other rows of `data`

    Returns what `evaluation.evaluate` returns; the loss is that of the softmax over the scores of the candidates.
    Raises UnmaskError for a model that does not predict the next token, and for rows and templates that do not fit.
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
    common = [] if shown is None or not how.shots else overlap(shown, found)
    if common:
        notes.append(f"The examples hold {len(common):,} of the {plural(len(found), 'row')} too, with their answers.")
    if cut:
        notes.append(f"{cut:,} of the {len(found):,} prompts are too long for the model: their first tokens were cut.")
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
    """The prompts of rows: examples with their answers, then the row without its answer.

    named     label -> its name in the prompt; empty if each row has its own answers
    rows      rows to answer
    examples  rows for the examples; None: the other rows
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
            raise UnmaskError(f"There are {plural(known, 'row')} for {plural(how.shots, 'example')}: lower --shots.")

    def of(self, number: int) -> tuple[str, list[str]]:
        """The prompt of a row, without spaces at its end, and the candidates, each with these spaces before it."""
        row = self.rows[number]
        parts = [_filled(self.template, one, self.put.answer(one)) for one in self.shown(number)]
        before = BETWEEN.join([*parts, _filled(self.template.partition("{answer}")[0], row, "")])
        prompt = before.rstrip()
        return prompt, [before[len(prompt) :] + candidate for candidate in self.put.candidates(row)]

    def shown(self, number: int) -> list[Row]:
        """The examples before a row: a function of the seed and the number of the row."""
        pool = self.rows if self.others is None else self.others
        places = [i for i in range(len(pool)) if self.others is not None or i != number]
        rng = np.random.default_rng([self.how.seed, number])
        return [pool[i] for i in rng.choice(places, self.how.shots, replace=False).tolist()] if self.how.shots else []


def answer_all(
    scorer: Scorer, prompts: Prompts, rows: Sequence[Row], normalise: Literal["sum", "mean"] = "sum"
) -> tuple[list[np.ndarray], int]:
    """For each row the softmax [1, C] over the scores of its C candidates, and the number of prompts that were cut.

    A prompt that is too long loses its first tokens. Raises UnmaskError for a candidate without a token or too long for
    the model, and for a model that does not predict the next token.
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
    """Raises UnmaskError for a template without {text} or {pair}, or without one {answer} at its end."""
    if template.count("{answer}") != 1 or template.partition("{answer}")[2].strip():
        raise UnmaskError(f"A template must have {{answer}} once, at its end; {template!r} does not.")
    if "{text}" not in template and "{pair}" not in template:
        raise UnmaskError(f"The template {template!r} has no text of the row: add {{text}} or {{pair}}.")


def _filled(template: str, row: Row, answer: str) -> str:
    """A template with the values of a row. Braces in the values have no meaning."""
    values = {"text": row.text, "pair": row.pair or "", "answer": answer}
    parts = template.split("{")
    out = parts[0]
    for part in parts[1:]:
        name, closed, rest = part.partition("}")
        out += values[name] + rest if closed and name in FIELDS else "{" + part
    return out
