"""`unmask.evaluate`: the scores of a model on labelled rows, on pairs, or on text."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask import huggingface
from unmask.data.text import reading
from unmask.errors import UnmaskError, unknown
from unmask.kernels.devices import placed
from unmask.kernels.processor import Precision, settle
from unmask.models.inference_encoder import inference_layout
from unmask.models.model import Model
from unmask.runs import evaluation
from unmask.runs.front.given import PAIR, Paths, Rows, as_given, file_of, folder_of, is_path, paths_in
from unmask.runs.front.results import Scored
from unmask.runs.translation import evaluate_pairs, render_scores
from unmask.runs.translation.evaluation import writer
from unmask.serve.likelihood import Scorer

WINDOWS = ("window", "stride")  # fields of the perplexity of text


def evaluate(
    model: Paths,
    data: Rows | None = None,
    *,
    pairs: Rows | Sequence[Paths] | None = None,
    text: Iterable[str] | Sequence[Paths] | None = None,
    device: str = "cpu",
    precision: Precision = "auto",
    quiet: bool = False,
    **fields: Any,
) -> Scored:
    """Score a model, as `unmask evaluate` does; give one of `data`, `pairs` and `text`.

    >>> unmask.evaluate("runs/reviews", [("a great film", "good"), ("dull", "bad")])     # doctest: +SKIP
    <Scored: accuracy 1, ...>

    model   folder, or name on the Hub
    data    labelled rows for a fine-tuned model, as for `unmask.finetune`
    pairs   pairs for a translation system, as for `unmask.train`
    text    texts, or files of text, for the perplexity of a language model; beside `data` the column of the text
    quiet   as for `unmask.pretrain`: scoring shows no progress in either case
    fields  of rows (`length`, `label`, ...); of the search for pairs (`beam_size`, ...), and their `metric`; `window`
            and `stride` for text

    Returns the scores by name; `.facts` has all that was found, `.baseline` the scores of a plain reference. Raises
    UnmaskError for an unknown field, and for data that do not fit the model.
    """
    if data is not None and isinstance(text, str):
        fields, text = {"text": text, **fields}, None
    if sum(given is not None for given in (data, pairs, text)) != 1:
        raise UnmaskError("Give one of data (labelled rows), pairs and text.")
    folder = folder_of(model)
    if text is not None:
        return _of_text(folder, text, device, precision, fields)
    if pairs is not None:
        with _files(pairs, "pairs", PAIR) as files:
            return _of_pairs(folder, files, device, precision, fields)
    with _files(data, "rows") as files:
        path, *others = files
        if others:
            raise UnmaskError(f"Give one file of labelled rows, not {len(files)}.")
        if huggingface.holds_encoder_decoder(folder):
            found = evaluation.evaluate_written(folder, path, fields, device=device, precision=precision)
        else:

            def ready(one: Model) -> Model:
                return inference_layout(placed(one, device), precision)

            found = evaluation.evaluate(folder, path, fields, ready=ready)
        if not is_path(data):
            found["description"] = as_given(found["description"], path)
    found["precision"] = settle(precision, device).precision
    return Scored(found["metrics"], found, evaluation.render_evaluation(found), found["baseline"])


@contextmanager
def _files(data: Any, name: str, columns: tuple[str, ...] | None = None) -> Iterator[list[Path]]:
    """The files of data; rows are written to a temporary one, and errors name the rows and not this file."""
    if (found := paths_in(data)) is not None:
        yield found
        return
    with tempfile.TemporaryDirectory(prefix="unmask-") as place:
        path = file_of(data, Path(place), name, columns)
        try:
            yield [path]
        except UnmaskError as error:
            raise UnmaskError(as_given(str(error), path)) from None


def _of_pairs(folder: Path, files: Sequence[Path], device: str, precision: Precision, fields: dict[str, Any]) -> Scored:
    translator = writer(folder, device=device, precision=precision)
    how = {name: fields.pop(name) for name in ("metric", "turns", "columns", "encoding") if name in fields}
    translator.search = translator.search.override(fields)
    found = evaluate_pairs(translator, list(map(str, files)), **how)
    scores = {name: one["value"] for name, one in found["scores"].items()} | {"exact": found["exact"]}
    return Scored(scores, found, render_scores(found), {})


def _of_text(folder: Path, text: Any, device: str, precision: Precision, fields: dict[str, Any]) -> Scored:
    if precision in ("bf16", "fp16"):
        raise UnmaskError(f"Log-probabilities are computed in fp32: leave precision={precision!r} out.")
    for name in fields.keys() - set(WINDOWS):
        raise unknown("field", name, WINDOWS)
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    placed(loaded.model, device)
    paths = paths_in(text)
    texts = text if paths is None else (one.text for one in reading.documents(paths))
    found = Scorer(loaded, **fields).perplexity(texts)
    scores = {"perplexity": found.perplexity, "word_perplexity": found.word_perplexity}
    return Scored(scores, found.to_dict(), found.render(), {})
