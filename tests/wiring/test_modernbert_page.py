"""docs/modernbert.md: its code runs, its commands are taken, and the sizes are what it says."""

from __future__ import annotations

import pytest
import torch
from pages import check_command, commands, run_blocks

from unmask.models import bert, modernbert
from unmask.models.bert import Bert
from unmask.models.modernbert import ModernBert


def test_the_code_runs() -> None:
    run_blocks("modernbert", 2)


@pytest.mark.parametrize("command", list(commands("modernbert")))
def test_a_command_is_taken(command: str) -> None:
    check_command(command, "modern-tiny")


@pytest.mark.parametrize("size", ["tiny", "mini", "small"])
def test_sizes_for_a_cpu_are_as_wide_as_those_of_bert_and_deeper(size: str) -> None:
    ours, theirs = ModernBert().replace(**modernbert.SIZES[size]), Bert().replace(**bert.SIZES[size])
    assert (ours.dim, ours.heads, ours.layers) == (theirs.dim, theirs.heads, 1.5 * theirs.layers)
    with torch.device("meta"):
        blocks = [sum(p.numel() for p in page.build({}, seed=None).stack.parameters()) for page in (ours, theirs)]
    assert 1.03 < blocks[0] / blocks[1] < 1.065


@pytest.mark.parametrize(("size", "published"), [("base", 149), ("large", 395)])
def test_models_have_as_many_parameters_as_published(size: str, published: int) -> None:
    with torch.device("meta"):
        own = ModernBert().replace(**modernbert.SIZES[size]).build(seed=None).parameters_total
    assert abs(own / 1e6 - published) < 1.0
