"""AnomalyPredictor: where a record of sensors differs from those that a model was pre-trained on.

Shapes: F segments of a record.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from unmask import huggingface
from unmask.config import read_json, typed
from unmask.data.labelled.rows import Row
from unmask.data.signals.reading import SignalRow
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.huggingface.hub import model_folder
from unmask.kernels.devices import placed
from unmask.kernels.processor import Precision, settle
from unmask.models.inference_encoder import inference_layout
from unmask.objectives import registry
from unmask.objectives.signals import SignalObjective
from unmask.serve.answering import Answer, Answering
from unmask.tasks import evaluating
from unmask.tasks.forms import Form
from unmask.tasks.signals import SignalTask

SETTING = "anomalies"  # in the settings of a folder: what a pre-training run measured on held-out records
BARS, WIDTH = " .:-=+*#%@", 60  # of the score over time in a terminal; `WIDTH` characters at most
DOUBLING = 2  # characters of BARS for each doubling of the score


class AnomalyPredictor(Answering):
    """Scores the segments of records: each is masked, and the error of its restored samples is divided by the error
    that 99 of 100 masked segments of held-out records do not exceed. So a score above 1 is unusual.

    model      a folder that was pre-trained on masked segments, or what `huggingface.load` returned for it
    top        largest number of stretches
    device     where the model runs      precision  as of `Predictor`

    An answer is {"score": the highest, "above": the share of segments above 1, "stretches": [{"begin", "end",
    "score"}], "step": seconds of a segment, "scores": [...]}. The stretches, in seconds, are runs of segments above 1,
    those with the highest score first; if there are none, the segment with the highest score.
    """

    of_task = None

    def __init__(
        self,
        model: Path | str | Loaded,
        *,
        top: int = 5,
        device: torch.device | str = "cpu",
        precision: Precision = "auto",
    ) -> None:
        folder = None if isinstance(model, Loaded) else model_folder(model)
        loaded = huggingface.opened(model if folder is None else folder, huggingface.SINGLE_STACK)
        run = read_json(Path(folder) / "run.json") if folder and (Path(folder) / "run.json").is_file() else None
        config = registry.trained_by(loaded.model.config, tuple(loaded.model.heads), run)
        measured = loaded.settings.get(SETTING)
        if config is None or not isinstance(measured, Mapping):
            raise UnmaskError(f"{folder or 'The model'} was not pre-trained on masked segments of held-out records.")
        self.length = typed(measured.get("length"), int, f"{SETTING}: length")
        self.large = typed(measured.get("large"), float, f"{SETTING}: large")
        objective = config.build(loaded.require_processor(folder or "The model"))
        assert isinstance(objective, SignalObjective)
        self.objective, self.top = objective, top
        self.settled = settle(precision, placed(loaded.model, device).device)
        self.layout = inference_layout(loaded.model, self.settled.precision)
        self._lock = threading.Lock()

    @property
    def form(self) -> Form:
        return SignalTask.form.with_defaults(self.defaults)

    @property
    def step(self) -> float:
        """Seconds of a segment."""
        return self.objective.processor.segment / self.objective.processor.rate

    def rows_in(self, path: Path | str, encoding: str | None = None) -> Sequence[Row] | None:
        found = SignalTask.rows_in(Path(path), encoding)
        return None if found is None else [self.form.completed(row) for row in found]

    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        return [self._answer(row) for row in rows]

    def scores(self, row: SignalRow) -> np.ndarray:
        """[F] float64: of each segment. Raises UnmaskError, which names the row, for a record that cannot be read."""
        samples_NL = row.signal(self.objective.processor.rate).samples
        with self._lock, torch.inference_mode(), evaluating(self.layout):
            try:
                errors_F = self.objective.errors_along(self.layout, samples_NL, self.length)
            except UnmaskError as error:
                raise UnmaskError(f"{row.name}: {error}") from None
        return errors_F / max(self.large, 1e-12)

    def _answer(self, row: Row) -> Answer:
        if not isinstance(row, SignalRow):
            raise UnmaskError(f"{row.place or 'An input'} cannot be read: this model reads records of sensors.")
        scores_F = self.scores(row)
        answer = {
            "score": float(scores_F.max()),
            "above": float((scores_F > 1).mean()),
            "stretches": stretches(scores_F, self.step)[: self.top],
            "step": self.step,
            "scores": np.round(scores_F, 4).tolist(),
        }
        return {"id": row.id, **answer} if row.id else answer

    def render(self, text: str, answer: Answer) -> str:
        """The score over time, each character the highest of some segments, and the stretches."""
        scores_F, step = np.array(answer["scores"]), answer["step"]
        parts = np.array_split(scores_F, min(WIDTH, len(scores_F)))
        marks = [int(np.clip(5 + DOUBLING * np.log2(max(part.max(), 1e-9)), 0, len(BARS) - 1)) for part in parts]
        unusual = f"{answer['above']:.1%} of the segments above 1 (held-out records: 1.0%)"
        lines = [
            f"{text}  highest score {answer['score']:.2f}; {unusual}",
            f"  0 s |{''.join(BARS[mark] for mark in marks)}| {len(scores_F) * step:.1f} s  ('+': 1, '@': 4 or more)",
        ]
        lines += [f"  {one['begin']:.2f} to {one['end']:.2f} s: {one['score']:.2f}" for one in answer["stretches"]]
        return "\n".join(lines)


def stretches(scores_F: np.ndarray, step: float) -> list[dict[str, float]]:
    """Runs of segments with scores above 1, each {"begin", "end", "score"}, in seconds, with its highest score, the
    highest first; if there are none, the segment with the highest score."""
    above = scores_F > 1 if (scores_F > 1).any() else np.arange(len(scores_F)) == scores_F.argmax()
    edges = np.flatnonzero(np.diff(above, prepend=False, append=False)).reshape(-1, 2)
    found = [
        {"begin": begin * step, "end": end * step, "score": float(scores_F[begin:end].max())}
        for begin, end in edges.tolist()
    ]
    return sorted(found, key=lambda one: -one["score"])
