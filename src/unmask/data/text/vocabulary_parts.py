"""Vocabularies that are learned from a sample of texts: at once, or from the samples of all parts of the texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from unmask.data.files.parts import SAMPLE, Part, Share, all_parts, parts_of, write_part
from unmask.data.files.remote import workspace
from unmask.data.text.building import Progress, refuse_share
from unmask.data.text.kinds import KINDS
from unmask.data.text.sampling import Sample
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import unknown
from unmask.files import describe, writing

_TEXTS = "sample.jsonl"


def learn(
    texts: Iterable[str],
    out: Path,
    options: dict[str, Any],
    sample: Sample | None = None,
    report: Progress | None = None,
) -> Tokenizer:
    """Learn a tokenizer from a sample of texts, and write its folder.

    options  `kind` of KINDS, `vocabulary_size`, `cased`, `strip_accents`, and `heldout`, the share of documents that a
             corpus holds out, from which nothing is learned

    Raises UnmaskError if `out` is taken, for an unknown kind, and for texts without words.
    """
    how = dict(options)
    kind, size, heldout = how.pop("kind"), how.pop("vocabulary_size"), how.pop("heldout")
    refuse_share(heldout)
    if kind not in KINDS:
        raise unknown("kind of tokens", kind, KINDS)
    with workspace(out) as folder:
        tokenizer = KINDS[kind]((sample or Sample()).training(texts, heldout, report), size, **how)
        tokenizer.save(folder)
    return tokenizer


def sample_part(
    texts: Iterable[str], out: Path, share: Share, inputs: str, options: dict[str, Any], report: Progress | None = None
) -> Part:
    """Write the sample of one part of the texts beside `out`, unless it is complete already; `merge` joins them.

    inputs   what all parts are made of, as `inputs_of` returns it
    options  those of `learn`
    """
    refuse_share(options["heldout"])

    def write(folder: Path) -> dict[str, Any]:
        sample = Sample().read(texts, report)
        with writing(folder / _TEXTS), open(folder / _TEXTS, "w", encoding="ascii") as file:
            file.writelines(f"{json.dumps(text)}\n" for text in sample)
        counts = {"documents": sample.documents, "duplicates": sample.duplicates, "empty": sample.empty}
        return {**counts, "bound": sample.bound, "files": {_TEXTS: describe(folder / _TEXTS)}}

    return write_part(parts_of(out) / share.suffix, share, SAMPLE, {"inputs": inputs, "options": options}, write)


def merge(out: Path) -> Tokenizer:
    """Learn the tokenizer of all parts that `sample_part` wrote beside `out`, the same for any number of parts.

    Raises UnmaskError if a part is missing or damaged, and if the parts do not belong together.
    """
    parts = all_parts(out, SAMPLE)
    sample = Sample(bound=min(part.manifest["bound"] for part in parts))
    texts = chain.from_iterable(map(_texts, parts))
    return learn(texts, out, parts[0].manifest["options"], sample)


def _texts(part: Part) -> Iterator[str]:
    rest = b""
    for chunk in part.chunks(_TEXTS):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)
