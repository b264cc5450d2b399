"""A data report: statistics of labelled rows, and advice on a strategy. Nothing is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from unmask import huggingface
from unmask.data.labelled.dataset import values_of
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.runs.finetuning.config import FineTuning
from unmask.runs.finetuning.encoder import PreparedEncoder, prepare
from unmask.runs.finetuning.prepared import Notes
from unmask.runs.transfer import advise, advise_without_texts, measure
from unmask.tasks import Encoded

SHOWN, BAR = 30, 30  # most classes in the list; characters of the longest bar


def data_report(config: FineTuning) -> str:
    """The facts to know before a run: files, classes, lengths, baseline, similarity; and advice that follows from them.
    Lengths and similarity are those of texts, and left out for other rows.

    Reads the rows and the model as `finetune` does, and raises UnmaskError as it does.
    """
    if config.model is None:
        raise UnmaskError("Give a model and rows: --model FOLDER --train FILE.")
    say = Notes(None)
    prepared = prepare(config, say)
    rows = prepared.encoded["train"].rows
    loaded = huggingface.load(config.model, huggingface.SINGLE_STACK)
    labels = len(prepared.task.labels) or None
    parts = {"Rows": say.notes, "Classes of the training rows": _classes(prepared)}
    if loaded.tokenizer is None:
        parts["Advice"] = list(advise_without_texts(len(rows), classes=labels))
    else:
        evidence = measure(texts_of(rows), loaded.tokenizer, loaded.model, seed=config.seed)
        advice = advise(len(rows), evidence.similarity, classes=labels, loss=evidence.loss)
        title = f"Advice ({advice.amount} data, {advice.domain} text): --strategy {advice.transfer.strategy}"
        parts |= {
            "Lengths": [_length(name, encoded) for name, encoded in prepared.encoded.items()],
            "Text and model": evidence.sentences,
            title: list(advice.sentences),
        }
    return "\n\n".join("\n".join([name, *(f"  {line}" for line in lines)]) for name, lines in parts.items() if lines)


def texts_of(rows: Sequence[Row]) -> list[str]:
    """All texts of some rows; a text that several rows share, such as a context, comes once."""
    return list(dict.fromkeys(text for row in rows for text in row.texts if text.strip()))


def _classes(prepared: PreparedEncoder) -> list[str]:
    """A line for each label or tag of the training rows; empty for scores and free answers."""
    if not prepared.task.labels:
        return []
    counts = Counter(value for row in prepared.encoded["train"].rows for value in values_of(row))
    whole, most = sum(counts.values()), counts.most_common(1)[0][1]
    width = max(map(len, counts))
    lines = [
        f"{label:<{width}} {n:>9,} {n / whole:>7.1%}  {'#' * max(1, round(BAR * n / most))}"
        for label, n in counts.most_common(SHOWN)
    ]
    return lines if len(counts) <= SHOWN else [*lines, f"and {len(counts) - SHOWN:,} more"]


def _length(name: str, encoded: Encoded) -> str:
    longer = len(encoded.cut) or encoded.split
    done = "are cut" if encoded.cut else "become several windows" if encoded.split else "would be cut"
    tokens = float(np.median(encoded.lengths))
    return (
        f"{name}: {longer:,} of {len(encoded.rows):,} rows ({longer / len(encoded.rows):.1%}) are longer than "
        f"{encoded.length} tokens and {done}; the median of what the model reads is {tokens:g}."
    )
