"""What is chosen by what the processor can do, on processors that are not this one."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unmask.errors import UnmaskError
from unmask.kernels import processor
from unmask.kernels.processor import Settled, settle

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


def test_float16_is_for_gpus() -> None:
    with pytest.raises(UnmaskError, match=r"fp16 is for GPUs, .*: leave --precision out") as caught:
        settle("fp16", CPU)
    assert "\n" not in str(caught.value)
    chosen = settle("fp16", torch.device("cuda"))
    assert (chosen.dtype, chosen.note) == (torch.float16, "")


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


CAPPED = """
import torch
from unmask.models.bert import Bert
from unmask.models.inference_encoder import inference_layout
from unmask.kernels.processor import abilities, imitates_bf16, settle
from unmask.types import Batch

assert abilities()["architecture"] == "x86_64"
assert imitates_bf16()
assert settle("auto").precision == "fp32"
model = Bert(vocabulary=60, dim=64, layers=2, heads=4, hidden=96, length=32).build(seed=0).eval()
batch = Batch(torch.arange(40).view(2, 20))
with torch.inference_mode():
    near, exact = inference_layout(model, "bf16")(batch), model(batch)
assert not torch.equal(near, exact)
assert torch.cosine_similarity(near, exact, dim=-1).min() > 0.9999
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the caps are names of x86")
def test_a_processor_with_avx2_alone_answers_in_either_precision() -> None:
    """The libraries of PyTorch are capped by their own variables, which they read when they are loaded."""
    caps = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CAPPED], env={**os.environ, **caps}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


KNOWING = re.compile(r"by_processor|(computes|imitates|library_has)_bf16|has_matrix_unit|usefixtures\(\"bf16\"")
"""What tests name that depend on the numbers that a processor multiplies in."""


def test_every_test_that_knows_processors_runs_with_capped_instructions() -> None:
    root = Path(__file__).parents[2]
    capped = re.search(r"^CAPPED = (.*?)\n\n", (root / "Makefile").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert capped is not None
    named = {word.split("::")[0] for word in capped[1].replace("\\", "").split()}
    knowing = {
        str(path.relative_to(root))
        for path in (root / "tests").rglob("test_*.py")
        if path.parent.name != "rules" and KNOWING.search(path.read_text("utf-8"))  # rules name them to forbid them
    }
    assert knowing
    assert not [path for path in knowing if not any(path == one or path.startswith(f"{one}/") for one in named)]
