"""What is chosen by what the processor can do, on processors that are not this one."""

from __future__ import annotations

import pytest
import torch

from unmask import processor
from unmask.nn.packed import can_pack
from unmask.train.engine import use_bf16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("abilities", "fast"),
    [
        ({"architecture": "x86_64", "amx_bf16": True, "avx512_bf16": True}, True),
        ({"architecture": "x86_64", "amx_bf16": False, "avx512_bf16": True}, True),
        ({"architecture": "x86_64", "amx_bf16": False, "avx512_bf16": False}, False),
        ({"architecture": "x86_64"}, False),
        ({"architecture": "aarch64"}, False),
        ({}, False),
    ],
)
def test_runs_learn_in_bfloat16_where_the_processor_multiplies_in_it(
    abilities: dict[str, object], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "abilities", lambda: abilities)
    assert use_bf16("auto", CPU) is fast
    assert use_bf16("bf16", CPU)
    assert not use_bf16("fp32", CPU)


@pytest.mark.parametrize("supported", [True, False])
def test_answers_are_in_bfloat16_where_nothing_imitates_it(supported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported, raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    for abilities, wanted in (
        ({"architecture": "x86_64", "avx512_bf16": True}, supported),
        ({"architecture": "x86_64", "avx512_bf16": False}, False),
        ({"architecture": "aarch64"}, supported),
        ({}, supported),  # an older PyTorch, which does not say
    ):
        monkeypatch.setattr(processor, "abilities", lambda abilities=abilities: abilities)
        assert can_pack() is wanted
        assert processor.has_matrix_unit() is False
