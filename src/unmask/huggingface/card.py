"""Model cards: README.md of a folder, with the metadata that the Hugging Face hub reads at its top.

The format is that of the hub (https://huggingface.co/docs/hub/model-cards): YAML between two lines of three dashes,
with the scores as a `model-index`, then Markdown.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.config import flatten
from unmask.errors import UnmaskError
from unmask.files import write_text

CARD = "README.md"
LIBRARY = "unmask"
_SIGNED = re.compile(r"\n<!-- card of unmask (?P<digest>[0-9a-f]{16}) -->\n\Z")
_PLAIN = re.compile(r"[A-Za-z_][\w ./()+-]*")  # a string that YAML reads as itself, without quotes
_READ_OTHERWISE = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


@dataclass(frozen=True)
class Score:
    """One score of a model.

    data      name of the data        split  "dev", "test", "heldout"
    metric    its name                value  its value
    baseline  the value without a model, if there is one
    """

    data: str
    split: str
    metric: str
    value: float
    baseline: float | None = None


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a run says about its model.

    learned   a sentence: what the model was trained for
    task      what it does, for the metadata: the name of the hub, if it has one, else that of unmask
    pipeline  the hub's name of the task, which chooses its example and its widget; "" if the hub has none
    command   the verb and the arguments that use the model, after `--model FOLDER`: ("predict", '"A text."')
    start     the model that it was trained from: a name on the hub, or the name of a folder; "" for new weights
    made      the recipe that made that model; "" if it is not known
    datasets  names of data sets on the hub
    data      sentences on the data
    settings  settings of the training: name -> value
    scores    scores on data that the model was not trained on
    reference what the baseline of the scores is
    notes     sentences on the scores
    warnings  sentences, shown first, for a model that has hardly learned or whose run was stopped
    limits    sentences on what the model cannot do
    tags      further tags
    """

    learned: str = ""
    task: str = ""
    pipeline: str = ""
    command: tuple[str, str] | None = None
    start: str = ""
    made: str = ""
    datasets: Sequence[str] = ()
    data: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    scores: Sequence[Score] = ()
    reference: str = "one answer to all rows"
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    limits: Sequence[str] = ()
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class Opened:
    """What a folder itself says about its model (`opening.opened_by`).

    what      sentences: the system and its sizes
    library   the library that the hub names for the folder
    sections  title -> code in Python, or a sentence, for every library that opens the folder
    limits    sentences
    tags      for the metadata
    """

    what: Sequence[str]
    library: str
    sections: Mapping[str, str]
    limits: Sequence[str] = ()
    tags: Sequence[str] = ()


def write_card(folder: Path, card: Card, opened: Opened) -> bool:
    """Write README.md, unless the folder has one that was not written here or was edited since. Whether it was written.

    Raises UnmaskError if it cannot be written.
    """
    if not is_unedited(folder):
        return False
    text = render(folder.resolve().name, card, opened)
    write_text(folder / CARD, f"{text}\n<!-- card of unmask {_digest(text)} -->\n")
    return True


def is_unedited(folder: Path) -> bool:
    """Whether the card of a folder is as it was written here, or missing."""
    place = folder / CARD
    if not place.exists():
        return True
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    signed = _SIGNED.search(text)
    return signed is not None and signed["digest"] == _digest(text[: signed.start()])


def renamed(text: str, old: str, new: str) -> str:
    """A card whose examples open the model by another name."""
    command = re.compile(rf"--model {re.escape(shlex.quote(old))}(?=\s)")
    return command.sub(lambda _: f"--model {shlex.quote(new)}", text.replace(quoted(old), quoted(new)))


def quoted(name: str) -> str:
    """A name as a string of Python."""
    return json.dumps(name, ensure_ascii=False)


def with_metadata(text: str, fields: Mapping[str, Any]) -> str:
    """A card with further fields in its metadata, in place of those of the same names, and its body unchanged. Raises
    UnmaskError for a card whose first lines are no metadata."""
    parts = re.split(r"^---[ \t]*\n", text, maxsplit=2, flags=re.MULTILINE)
    if len(parts) != 3 or parts[0].strip():
        raise UnmaskError(f"{CARD} has no metadata between two lines of three dashes: put them at its top.")
    kept = re.sub(rf"^(?:{'|'.join(map(re.escape, fields))}):.*\n(?:[ \t-].*\n)*", "", parts[1], flags=re.MULTILINE)
    return f"---\n{_yaml(fields)}{kept}---\n{parts[2]}"


def render(name: str, card: Card, opened: Opened) -> str:
    """The text of a card, without its signature."""
    parts = [f"---\n{_yaml(_metadata(name, card, opened))}---", f"# {name}"]
    parts += [f"> **Note.** {sentence}" for sentence in card.warnings]
    parts.append(" ".join(filter(None, (*opened.what, card.learned, _origin(card)))))
    parts += ["## Use", f"In these examples, {quoted(name)} is the path of this folder, or its name on the hub."]
    for title, code in opened.sections.items():
        parts += [f"### {title}", code]
    if card.command is not None:
        verb, arguments = card.command
        parts += [
            f"### {LIBRARY}",
            f"```bash\nunmask {verb} --model {shlex.quote(name)} {arguments}\n```".replace(" \n", "\n"),
        ]
    if card.scores:
        parts += ["## Scores", _table(card), *(_listed(card.notes) if card.notes else ())]
    if card.data:
        parts += ["## Data", *_listed(card.data)]
    if card.settings:
        rows = [f"| {name} | {_cell(value)} |" for name, value in flatten(dict(card.settings)).items()]
        parts += ["## Training", "\n".join(["| Setting | Value |", "|---|---|", *rows])]
    tested = "The scores hold for data like theirs alone." if card.scores else "The model has no scores on new data."
    parts += ["## Limits", *_listed((*opened.limits, *card.limits, f"{tested} {BIASES}"))]
    return "\n\n".join(parts) + "\n"


BIASES = "It has learned the biases of its training data too, for which it was not tested."


def _metadata(name: str, card: Card, opened: Opened) -> dict[str, Any]:
    found: dict[str, Any] = {"library_name": opened.library}
    if card.pipeline:
        found["pipeline_tag"] = card.pipeline
    found["tags"] = list(dict.fromkeys((LIBRARY, *opened.tags, *card.tags)))
    if card.datasets:
        found["datasets"] = list(card.datasets)
    if "/" in card.start:  # the hub links it, so that a folder of this machine is no base model
        found["base_model"] = card.start
    scored = [score for score in card.scores if math.isfinite(score.value)]
    if scored:
        found["metrics"] = list(dict.fromkeys(score.metric for score in scored))
        task = card.pipeline or card.task
        splits = dict.fromkeys((score.data, score.split) for score in scored)
        own = {one: [score for score in scored if (score.data, score.split) == one] for one in splits}
        found["model-index"] = [{"name": name, "results": [_result(task, *one, own[one]) for one in splits]}]
    return found


def _result(task: str, data: str, split: str, scores: Sequence[Score]) -> dict[str, Any]:
    """The scores on a split, as `huggingface_hub.EvalResult` is written."""
    return {
        "task": {"type": task or "other"},
        "dataset": {"type": re.sub(r"[^\w.-]+", "-", data).strip("-") or "data", "name": data, "split": split},
        "metrics": [
            {"type": one.metric, "value": round(one.value, 6), "name": one.metric.replace("_", " ")} for one in scores
        ],
    }


def _table(card: Card) -> str:
    with_baseline = any(score.baseline is not None for score in card.scores)
    heads = ["Data", "Split", "Metric", "Value", *(["Baseline"] if with_baseline else [])]
    rows = []
    for score in card.scores:
        cells = [_cell(score.data), score.split, score.metric.replace("_", " "), f"{score.value:.4f}"]
        if with_baseline:
            cells.append("" if score.baseline is None else f"{score.baseline:.4f}")
        rows.append(cells)
    note = [f"\nThe baseline is {card.reference}."] if with_baseline else []
    return "\n".join([*(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)), *note])


def _origin(card: Card) -> str:
    made = f", a model of the recipe {card.made}" if card.made else ""
    return f"It was trained from `{card.start}`{made}." if card.start else ""


def _listed(sentences: Sequence[str]) -> list[str]:
    return ["\n".join(f"- {sentence}" for sentence in sentences)] if sentences else []


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _yaml(value: Mapping[str, Any] | Sequence[Any], indent: str = "") -> str:
    """Mappings and lists of plain values as YAML in block style. Strings are quoted as in JSON, which is YAML, unless
    they are plain words."""
    lines = []
    pairs = value.items() if isinstance(value, Mapping) else ((None, one) for one in value)
    for key, one in pairs:
        begin = f"{indent}- " if key is None else f"{indent}{key}:"
        if isinstance(one, Mapping | list):
            nested = _yaml(one, indent + ("  " if key is None or isinstance(one, Mapping) else ""))
            lines.append(begin + nested.lstrip(" ") if key is None else f"{begin}\n{nested}")
        else:
            lines.append(f"{begin}{'' if key is None else ' '}{_scalar(one)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _READ_OTHERWISE
    if plain and not value.endswith(" "):
        return str(value)
    shown = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in shown)  # as YAML escapes them
