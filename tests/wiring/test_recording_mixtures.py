"""Several corpora of recordings in one run: sampling on two levels, and a run that continues exactly."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import scipy.io.wavfile
import torch

from unmask import huggingface
from unmask.data.loader import EqualRows
from unmask.data.recordings.building import build
from unmask.data.recordings.corpus import RecordingCorpus
from unmask.data.recordings.folder import RecordingFolder
from unmask.data.recordings.items import items_of
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.objectives.masked_contrastive import MaskedContrastiveConfig
from unmask.objectives.recordings import RecordingObjective
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.runs.report import write_report
from unmask.train.events import Step

pytest.importorskip("soundfile")

RATE, HOP, WINDOW = 1_000, 20, 30
HOURS = {"one": {"de": 80, "fr": 20}, "two": {"ko": 16}}  # corpus -> language -> recordings of a second
VALUES = {"de": 1_000, "fr": 2_000, "ko": 4_000}  # of the samples of a language


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two corpora whose recordings are a constant, which says the language, and some noise."""
    folder, found, rng = tmp_path_factory.mktemp("corpora"), [], np.random.default_rng(0)
    for name, languages in HOURS.items():
        for language, count in languages.items():
            for i in range(count):
                path = folder / name / language / f"{i}.wav"
                path.parent.mkdir(parents=True, exist_ok=True)
                scipy.io.wavfile.write(path, RATE, (VALUES[language] + rng.integers(-200, 200, RATE)).astype(np.int16))
        build(items_of(folder / name), folder / f"{name}-corpus", rate=RATE)
        found.append(folder / f"{name}-corpus")
    return found


class Listening(RecordingObjective):
    """Reads recordings, and predicts nothing."""

    name = "listening"
    processor = RecordingProcessor(rate=RATE, hop=HOP, window=WINDOW, normalise=False)


@pytest.mark.parametrize(("within", "between"), [(1.0, 1.0), (0.5, 0.5), (0.0, 1.0), (1.0, 0.5)])
def test_languages_of_a_corpus_are_mixed_first_and_then_the_corpora(corpora, within, between):
    """The shares are those of the formula of XLS-R (Babu et al. 2021, section 3), written out."""
    objective = Listening()
    objective.label_alpha = within
    splits = [RecordingCorpus(corpus).split("train") for corpus in corpora]
    sizes = {label: split.labels.count(label) for split in splits for label in set(split.labels)}
    one = sizes["de"] + sizes["fr"]
    corpus = one**between / (one**between + sizes["ko"] ** between)
    german = sizes["de"] ** within / (sizes["de"] ** within + sizes["fr"] ** within)
    expected = {"de": corpus * german, "fr": corpus * (1 - german), "ko": 1 - corpus}

    options = {"length": 49, "cut": EqualRows(4), "seed": 0, "workers": 0, "alpha": between}
    heard = Counter()
    for step in islice(objective.stream(splits, options).batches(), 1_000):
        for batch in step.batches:
            values = batch.signal.values.numpy()[:: int(batch.signal.lengths[0])] * 2**15
            heard.update((np.rint(values / 1_000) * 1_000).astype(int).tolist())
    total = sum(heard.values())
    for language, share in expected.items():
        assert heard[VALUES[language]] / total == pytest.approx(share, abs=0.02), (language, heard)


def test_a_folder_of_languages_is_mixed_like_its_corpus(corpora):
    folder, corpus = RecordingFolder(str(corpora[0]).removesuffix("-corpus")), RecordingCorpus(corpora[0])
    parts = [data.split("train").by_label() for data in (folder, corpus)]
    assert [int(part.cost.sum()) for part in parts[1]] == [int(part.at_rate(RATE).cost.sum()) for part in parts[0]]
    assert [list(part.names) for part in parts[0]] == [list(part.names) for part in parts[1]]


@pytest.mark.parametrize("alpha", [-1, math.nan, math.inf])
def test_alphas_out_of_range_are_refused(alpha):
    with pytest.raises(UnmaskError, match="The alpha of the labels is a number of at least 0, not"):
        MaskedContrastiveConfig(label_alpha=alpha).build(RecordingProcessor())


def test_a_run_on_two_corpora_continues_exactly(corpora, tmp_path):
    tiny = {"channels": (4, 4), "kernels": (10, 4), "strides": (5, 4), "dim": 16, "layers": 1, "heads": 2}
    tiny |= {"hidden": 16, "position_kernel": 4, "position_groups": 2, "entries": 4, "codes": 8}
    usual = {
        "steps": 4,
        "minutes": None,
        "rate": RATE,
        "label_alpha": 0.5,
        "projection": 8,
        "batch": 2,
        "tokens": 60,
        "heldout": 4,
    }
    usual |= {"device": "cpu", "precision": "fp32", "save_every": 2, "evaluate_every": 2}
    recipe = recipes.find("wav2vec2-tiny")
    config = replace(recipe, model=replace(recipe.model, **tiny)).override(usual)
    Pretrain(config, corpora, tmp_path / "whole").run()
    half = Pretrain(config, corpora, tmp_path / "half")
    half.run(lambda event: event == Step(2) and half.trainer.stop("the test"))
    Pretrain(config, corpora, tmp_path / "half", resume=True).run()
    assert "recordings" in write_report(tmp_path / "whole").read_text()
    plain = replace(config, objective=replace(config.objective, label_alpha=1.0))
    Pretrain(plain, corpora, tmp_path / "plain").run()
    whole, resumed, other = (huggingface.load(tmp_path / n).model.state_dict() for n in ("whole", "half", "plain"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not all(torch.equal(whole[name], other[name]) for name in whole)
