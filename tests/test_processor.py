"""What is chosen by what the processor can do, on processors that are not this one."""

from __future__ import annotations

import pytest
import torch

from unmask import processor
from unmask.processor import Settled, settle

CPU = torch.device("cpu")


@pytest.mark.usefixtures("by_processor")
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
def test_auto_is_bfloat16_where_the_processor_multiplies_in_it(
    abilities: dict[str, object], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "abilities", lambda: abilities)
    chosen = settle("auto", CPU)
    assert chosen.precision == ("bf16" if fast else "fp32")
    assert f" in {chosen.precision}" in chosen.note
    assert settle("fp32", CPU) == Settled("fp32")


@pytest.mark.parametrize("supported", [True, False])
def test_bfloat16_is_imitated_where_processor_or_library_lack_it(
    supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "library_has_bf16", lambda: supported)
    for abilities, own in (
        ({"architecture": "x86_64", "avx512_bf16": True}, supported),
        ({"architecture": "x86_64", "avx512_bf16": False}, False),
        ({"architecture": "aarch64"}, supported),
        ({}, supported),  # an older PyTorch, which does not say
    ):
        monkeypatch.setattr(processor, "abilities", lambda abilities=abilities: abilities)
        assert processor.imitates_bf16() is not own
        assert settle("bf16", CPU).precision == "bf16"
        assert bool(settle("bf16", CPU).note) is not own
        assert processor.has_matrix_unit() is False


@pytest.mark.parametrize("supported", [True, False])
def test_what_the_library_was_told_to_leave_is_no_ability(supported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch asks the processor itself, which does not know of ONEDNN_MAX_CPU_ISA."""
    has = {"architecture": "x86_64", "avx2": True, "avx512_bf16": True, "amx_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported, raising=False)
    found = processor.abilities.__wrapped__()
    assert found["avx2"]
    assert ("avx512_bf16" in found, "amx_bf16" in found) == (supported, supported)
