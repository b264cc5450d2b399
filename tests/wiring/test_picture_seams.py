"""Parts of the toolkit for pictures that meet in one run: folders and objectives, models and tasks."""

from __future__ import annotations

import json

import pytest

from unmask import huggingface
from unmask.data.pictures.processor import ImageProcessor
from unmask.models.model import ModelConfig
from unmask.runs import recipes

SMALL = {"size": 16, "patch": 4, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}
DECODER = {"decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2}
CHANGED = {
    "simmim-tiny": {"rate": 0.5, "square": 4},
    "mae-tiny": {"rate": 0.5, **DECODER},
    "simclr-tiny": {"colour": 0.25, "projection": 16},
    "cmc-tiny": {"crop": 0.5, "projection": 16},
    "colour-tiny": {"uniform": 0.25, "colour_cell": 2},
    "super-resolution-tiny": {"upscaling": 2},
    "rotation-tiny": {"crop": 0.75},
    "jigsaw-tiny": {"orders": 7, "jitter": 1},
}
"""Recipe -> fields that differ from its defaults."""


def saved(page: ModelConfig, place, heads) -> ImageProcessor:
    processor = ImageProcessor(size=page.size).for_model(page)
    huggingface.save(place, page.build(heads), processor)
    return processor


@pytest.mark.parametrize("recipe", CHANGED)
def test_a_run_without_a_recipe_goes_on_with_what_the_folder_learned(recipe, tmp_path):
    """The objective has the fields of the run of the folder; without a run.json they are the defaults."""
    config = recipes.find(recipe).override({**SMALL, **CHANGED[recipe]})
    processor = config.objective.processor(ImageProcessor())
    page = config.model.replace(**config.objective.model_fields(processor))
    saved(page, tmp_path, config.objective.build(processor).heads)
    assert recipes.choose(None, str(tmp_path))[1].objective == type(config.objective)().of_model(page)
    facts = {"config": {"objective": json.loads(json.dumps(config.objective.to_dict()))}}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    assert recipes.choose(None, str(tmp_path))[1].objective == config.objective
