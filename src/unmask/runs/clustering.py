"""`unmask cluster`: labels of frames for HuBERT, from MFCC or from the states of a layer; all iterations of HuBERT.

Shapes: N samples of a recording, F frames, D width of a hidden state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_values
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask import huggingface
from unmask.config import Config
from unmask.data.recordings.clustering import Clustering, Features, Progress, cluster, nearest
from unmask.data.recordings.decoding import decode
from unmask.data.recordings.features import Mfcc
from unmask.data.recordings.labels import FrameLabels
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError, plural
from unmask.files import MANIFEST
from unmask.objectives.recordings import RecordingConfig
from unmask.runs.pretraining import Pretrain
from unmask.runs.pretraining.config import Pretraining
from unmask.train import checkpoint
from unmask.train.display import Display
from unmask.train.events import Result
from unmask.visualize.recording_features import Entries
from unmask.visualize.recordings import LONGEST, Part, seconds_of


@dataclass(frozen=True, kw_only=True)
class Frames(Config):
    """The frames of a model that does not exist yet.

    rate    samples a second
    hop     samples from the beginning of a frame to that of the next one
    window  samples that a frame depends on
    """

    rate: int = 16_000
    hop: int = 320
    window: int = 400

    @property
    def processor(self) -> RecordingProcessor:
        return RecordingProcessor(rate=self.rate, hop=self.hop, window=self.window)


@dataclass(frozen=True, kw_only=True)
class LabelMaking(Config):
    """The settings of `unmask cluster`.

    model   folder of a model whose states are clustered; None: MFCC are
    layer   number of the layer whose states are clustered, from 1, or 0 for the input of the first; None: the middle
            one
    frames  the frames of MFCC; a model has its own
    """

    model: str | None = None
    layer: int | None = None
    frames: Frames = field(default_factory=Frames)
    clustering: Clustering = field(default_factory=Clustering)


def make_labels(
    config: LabelMaking, data: Sequence[Path | str], out: Path | str, progress: Progress | None = None
) -> FrameLabels:
    """Cluster the frames of all recordings in some folders, and write their labels into `out`.

    Raises UnmaskError for a folder without recordings, a model that reads none, and as `cluster` does.
    """
    if config.model is None:
        processor = config.frames.processor
        mfcc = Mfcc.of(processor)
        features: Features = mfcc
        facts: dict[str, Any] = {"kind": "mfcc", **mfcc.to_dict()}
    else:
        processor, features, layer = layer_features(config.model, config.layer)
        facts = {"kind": "states", "model": config.model, "layer": layer}
    corpora = [RecordingConfig.opens(folder) for folder in data]
    splits = [corpus.split(name) for corpus in corpora for name in ("train", "heldout")]
    known = {"features": facts, "data": [str(folder) for folder in data]}
    return cluster(splits, processor, features, config.clustering, out, facts=known, progress=progress)


def layer_features(folder: Path | str, layer: int | None) -> tuple[RecordingProcessor, Features, int]:
    """The processor of a model, a function from samples to the states of a layer [F, D], and the number of the layer.

    Raises UnmaskError for a model that reads no recordings, and for a layer that it does not have.
    """
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK, heads={})
    model, processor = loaded.model.eval(), loaded.processor
    if "recordings" not in model.config.offers or not isinstance(processor, RecordingProcessor):
        raise UnmaskError(f"{folder} is a model that reads no recordings; take a wav2vec 2.0, a HuBERT or a CPC.")
    layers = len(model.blocks)
    number = (layers + 1) // 2 if layer is None else layer
    if not 0 <= number <= layers:
        raise UnmaskError(f"{folder} has the layers 0 (the input of the first) to {layers}, not {number}.")

    def features(samples_N: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            batch = processor.collate([processor.example(samples_N)])
            states: np.ndarray = model.hidden_states(batch)[number][0].float().numpy()
        return states

    return processor, features, number


def features_of(labels: FrameLabels) -> Features:
    """The features whose clusters some labels are. Raises UnmaskError as `layer_features` does."""
    facts = dict(labels.manifest["features"])
    if facts.pop("kind") == "mfcc":
        return Mfcc.from_dict(facts)
    return layer_features(facts["model"], facts["layer"])[1]


def entries_of(labels: FrameLabels, source: Path, part: Part) -> Entries:
    """The cluster of each frame of a part of a recording, which may be another one than those that have labels.

    Raises UnmaskError for a recording that cannot be decoded or is too short, and as `features_of` does.
    """
    processor, features = RecordingProcessor(**labels.manifest["frames"]), features_of(labels)
    samples_N = decode(source, processor.rate, part.begin, min(part.last, part.begin + LONGEST))
    codes_F = nearest(features(samples_N), labels.centres)
    return Entries(f"Clusters of {labels.folder}", codes_F, labels.clusters, seconds_of(processor, len(codes_F)))


def describe(labels: FrameLabels) -> str:
    """The result of `make_labels` in a few lines."""
    facts, report = labels.manifest, labels.manifest["report"]
    lines = [
        f"{labels.folder}: {facts['labelled_frames']:,} frames of {plural(facts['recordings'], 'recording')} in "
        f"{plural(labels.clusters, 'cluster')}.",
        f"  use        {report['perplexity']:.1f} clusters (perplexity), {report['unused']} unused, the largest has "
        f"{report['largest']:.1%} of the frames",
    ]
    if "purity" in report:
        lines.append(
            f"  agreement  with the {report['labels']} labels of the recordings: purity {report['purity']:.3f}, "
            f"information {report['information']:.3f} of that of the labels"
        )
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Iterations(Config):
    """All iterations of HuBERT: labels from MFCC, a model, labels from a layer of it, a new model, and so on (Hsu et
    al. 2021, section II.D).

    iterations  number of models that are trained
    layer       whose states are clustered from the second iteration on; None: the middle one
    clusters    number of clusters of each iteration; the last number holds for all that follow
    sample      most frames that centres are computed from
    """

    iterations: int = 2
    layer: int | None = None
    clusters: tuple[int, ...] = (100, 500)
    sample: int = 200_000

    def __post_init__(self) -> None:
        if self.iterations < 1 or not self.clusters:
            raise UnmaskError("There must be at least 1 iteration, and a number of clusters.")

    def clustering(self, number: int) -> Clustering:
        """The settings of iteration `number`, from 1."""
        return Clustering(clusters=self.clusters[min(number, len(self.clusters)) - 1], sample=self.sample)


def iterate(
    settings: Iterations,
    config: Pretraining,
    data: Sequence[Path | str],
    out: Path | str,
    *,
    recipe: str = "",
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
    display: Display | None = None,
) -> Result | None:
    """Train the models of all iterations; `out` gets iteration-N/labels and iteration-N/run.

    config  of each run; its labels are filled in

    What `out` has already is kept, and a run that was stopped continues: call it again to resume. Returns the result of
    the last run; one that was stopped ends the iterations; None if nothing was left to do. Raises UnmaskError for an
    objective without labels.
    """
    if "labels" not in config.objective.names():
        raise UnmaskError(f"A run that learns {config.objective.learned} has no labels to cluster: take hubert-tiny.")
    result: Result | None = None
    model: Path | None = None
    for number in range(1, settings.iterations + 1):
        folder = Path(out) / f"iteration-{number}"
        labels, run = folder / "labels", folder / "run"
        if not (labels / MANIFEST).is_file():
            making = LabelMaking(frames=_frames(config), clustering=settings.clustering(number))
            if model is not None:
                making = with_values(making, model=str(model), layer=settings.layer)
            say(f"Iteration {number}: clusters of {'MFCC' if model is None else f'the states of {model}'}.")
            say(describe(make_labels(making, data, labels, progress)))
        if not is_finished(run):
            say(f"Iteration {number}: a model learns these clusters, in {run}.")
            begun = checkpoint.is_begun(run)
            own = config.replace(objective={"labels": str(labels)})
            result = Pretrain(own, data, run, recipe=recipe, resume=begun, display=display).run()
            if result.stopped is not None:
                return result
        model = run
    return result


def is_finished(run: Path) -> bool:
    """Whether the folder of a run holds its finished model."""
    return (run / "config.json").is_file()


def _frames(config: Pretraining) -> Frames:
    """The frames of the model of a run."""
    model: Any = config.model
    return Frames(rate=config.objective.leaves()["rate"], hop=model.hop, window=model.window)
