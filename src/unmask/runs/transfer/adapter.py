"""Adapters as files: adapter_config.json and adapter_model.safetensors, in the format of `peft`.

The file has the trained weights: A and B of every adapted linear map, and the whole heads and pooler.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unmask import huggingface
from unmask.config import read_json, regular
from unmask.errors import UnmaskError
from unmask.files import MANIFEST, atomic, verify_manifest, write_manifest, write_text
from unmask.huggingface.config import table_of
from unmask.huggingface.weights import check_finite
from unmask.models.heads import asked_of
from unmask.models.model import Model
from unmask.nn.lora import LoRALinear, adapters
from unmask.runs.transfer.strategy import Transfer, freeze
from unmask.tasks import task_found

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
LARGEST = sys.float_info.max  # largest float; whole numbers in JSON may be larger
PARTS = {"A": "lora_A.weight", "B": "lora_B.weight"}
"""Name of a parameter of an adapted map -> its name in `peft`."""

PEFT_TASKS = {"sequence": "SEQ_CLS", "token": "TOKEN_CLS", "span": "QUESTION_ANS"}
"""Kind of a task's head -> the task type of `peft`. A model without heads extracts features; other kinds have no task
type."""

# Fields that do not change the output of a trained adapter, besides those that are read and checked below.
IRRELEVANT = frozenset(
    """
    auto_mapping base_model_name_or_path bias exclude_modules inference_mode layers_pattern layers_to_transform
    lora_dropout megatron_config megatron_core modules_to_save peft_version revision target_modules task_type
    qalora_group_size eva_config loftq_config ensure_weight_tying
    """.split()  # noqa: SIM905 (as in unmask.huggingface.config)
)
PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the weights of the base model unchanged."""


def save_adapter(folder: Path | str, model: Model, *, base: Path | str = "") -> None:
    """Write the adapters, the heads and the pooler of a model that was trained with "lora".

    base  folder of the model that the adapter belongs to; its name is written into the config

    Raises UnmaskError, before anything is written, for a model without adapters or with a head that `peft` cannot
    store, and for a folder that holds a model or cannot be written.
    """
    folder = Path(folder)
    found = adapters(model)
    if not found:
        raise UnmaskError("The model has no adapters: train it with --strategy lora, or save it as a model folder.")
    if (folder / "config.json").exists():
        raise UnmaskError(f"{folder} holds a model: save the adapter to another folder.")
    if "mlm" in model.heads:
        raise UnmaskError("A masked-language head shares weights with the trunk; merge the adapter and save a folder.")
    if table_of(model.config).packed:
        raise UnmaskError(
            "Folders of this model store query, key and value as one map, which would get one adapter in peft: merge "
            "the adapter and save a folder."
        )
    names = huggingface.names(model)
    tensors: dict[str, Tensor] = {}
    for ours, parameter in model.named_parameters():
        owner, _, last = ours.rpartition(".")
        if owner in found and last in PARTS:
            tensors[names[ours].removesuffix(last) + PARTS[last]] = parameter
        elif _is_whole(ours):
            tensors[names[ours]] = parameter
    adapted = sorted(names[f"{name}.weight"].removesuffix(".weight") for name in found)
    whole = sorted({_module(model, names[ours]) for ours in names if _is_whole(ours)})
    config = _config(model, next(iter(found.values())), adapted, whole, str(base))
    contents = {PREFIX + key: x.detach().cpu().contiguous() for key, x in tensors.items()}
    with atomic(folder / WEIGHTS) as temporary:
        try:
            save_file(contents, temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # raised when the disk is full
            raise OSError(str(error)) from error
        (folder / MANIFEST).unlink(missing_ok=True)
    write_text(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
    write_manifest(folder, [CONFIG, WEIGHTS])


def load_adapter(folder: Path | str, model: Model) -> Transfer:
    """Add an adapter that `save_adapter` or `peft` wrote to its base model, in place.

    The heads and the pooler of the adapter replace those of the model. The returned strategy has the settings of the
    adapter; all other weights are frozen, so that training can continue with `Tuning(model, strategy)`. Raises
    UnmaskError for a missing or damaged folder, an adapter of another kind than plain LoRA, and one that does not fit
    the model; the model is unchanged then.
    """
    folder = Path(folder)
    if not (folder / CONFIG).exists():
        raise UnmaskError(f"{folder} is not an adapter: it has no {CONFIG}.")
    if adapters(model):
        raise UnmaskError("The model has adapters already: merge them before you load new ones.")
    verify_manifest(folder)
    values = _read_config(folder)
    tensors = _read_tensors(folder)
    low_rank, whole = _placed(model, tensors, values["r"], folder)
    for name, (a_RI, b_OR) in low_rank.items():
        base = model.get_submodule(name)
        assert isinstance(base, nn.Linear)
        adapted = LoRALinear(base, len(a_RI), alpha=values["lora_alpha"], dropout=values.get("lora_dropout") or 0.0)
        with torch.no_grad():
            adapted.A.copy_(a_RI)
            adapted.B.copy_(b_OR)
        model.set_submodule(name, adapted)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in whole.items():
            parameters[name].copy_(tensor)
    transfer = Transfer(
        strategy="lora",
        rank=values["r"],
        alpha=float(values["lora_alpha"]),
        lora_dropout=float(values.get("lora_dropout") or 0.0),
        target=tuple(sorted({name.rpartition(".")[2] for name in low_rank})),
    )
    freeze(model, transfer)
    return transfer


# ------------------------------------------------------------------------------------------------ writing


def _is_whole(ours: str) -> bool:
    """Whether a parameter is trained and stored whole: those of the heads and the pooler."""
    return ours.startswith(("heads.", "pooler."))


def _module(model: Model, theirs: str) -> str:
    """The outermost module of a parameter below the trunk, in the names of the folder: `classifier`, `bert.pooler`."""
    prefix = table_of(model.config).prefix
    inside = theirs.removeprefix(prefix)
    return (prefix if inside != theirs else "") + inside.split(".")[0]


def _config(model: Model, example: LoRALinear, adapted: list[str], whole: list[str], base: str) -> dict[str, Any]:
    task = task_found(list(model.heads), {})
    head = asked_of(model.heads[task.name]) if task is not None and task.name in model.heads else None
    kind = None if head is None else head.kind
    return {
        "peft_type": "LORA",
        "task_type": PEFT_TASKS.get(kind or "") if model.heads else "FEATURE_EXTRACTION",
        "base_model_name_or_path": base or None,
        "r": example.rank,
        "lora_alpha": example.alpha,
        "lora_dropout": example.dropout.p,
        "target_modules": adapted,
        "modules_to_save": whole or None,
        "bias": "none",
        "inference_mode": True,
    }


# ------------------------------------------------------------------------------------------------ reading


def _read_config(folder: Path) -> dict[str, Any]:
    """The settings of a plain LoRA. Raises UnmaskError for a field that plain LoRA does not have."""
    place = folder / CONFIG
    values = read_json(place)
    if values.get("peft_type") != "LORA":
        raise UnmaskError(f"{place}: the adapter has the type {values.get('peft_type')!r}; only LORA can be read.")
    for name, value in values.items():
        if name in IRRELEVANT or name in ("peft_type", "r", "lora_alpha") or value in (None, False, [], {}, "", 0):
            continue
        if name == "init_lora_weights" and value in PLAIN_STARTS:
            continue
        raise UnmaskError(f"{place}: the field {name} = {value!r} is not part of plain LoRA and cannot be read.")
    if values.get("bias", "none") != "none":
        raise UnmaskError(f"{place}: the adapter has biases of the base model, which plain LoRA does not change.")
    rank, alpha = values.get("r"), values.get("lora_alpha")
    if type(rank) is not int or rank < 1 or not isinstance(alpha, int | float) or not 0 < alpha <= LARGEST:
        raise UnmaskError(f"{place}: r must be a whole number above 0 and lora_alpha a number above 0.")
    dropout = values.get("lora_dropout") or 0.0
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise UnmaskError(f"{place}: lora_dropout must be a number from 0 to below 1, not {dropout!r}.")
    return values


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    if not (folder / WEIGHTS).exists():
        pickled = " A pickle (adapter_model.bin) is never opened here." if list(folder.glob("*.bin")) else ""
        raise UnmaskError(f"{folder} has no {WEIGHTS}: there are no weights to load.{pickled}")
    try:
        return load_file(regular(folder / WEIGHTS))
    except (SafetensorError, OSError) as error:
        raise UnmaskError(f"{folder / WEIGHTS} is damaged: {error}. Restore it from a copy.") from None


def _placed(
    model: Model, tensors: Mapping[str, Tensor], rank: int, folder: Path
) -> tuple[dict[str, tuple[Tensor, Tensor]], dict[str, Tensor]]:
    """Name of each adapted map -> its A [R, I] and B [O, R]; name of each whole parameter -> its values.

    Raises UnmaskError for a tensor that the model does not have or has in another shape, and if one is missing.
    """
    for key, tensor in tensors.items():
        check_finite(tensor.float(), f"{folder / WEIGHTS}: '{key}'")
    ours = {theirs: name for name, theirs in huggingface.names(model).items()}
    parameters = dict(model.named_parameters())
    halves: dict[str, dict[str, Tensor]] = {}
    whole: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        theirs = key.removeprefix(PREFIX)
        part = next((part for part, end in PARTS.items() if theirs.endswith("." + end)), None)
        stored = theirs if part is None else theirs.removesuffix(PARTS[part]) + "weight"
        name = ours.get(stored)
        if name is None or not key.startswith(PREFIX):
            raise UnmaskError(
                f"{folder / WEIGHTS}: '{key}' has no place in this model; is it the base model of the adapter?"
            )
        if part is not None:
            halves.setdefault(name.removesuffix(".weight"), {})[part] = tensor
        elif parameters[name].shape == tensor.shape:
            whole[name] = tensor
        else:
            shapes = f"{list(tensor.shape)}, not {list(parameters[name].shape)} as in this model"
            raise UnmaskError(f"{folder / WEIGHTS}: '{key}' has the shape {shapes}.")
    if not halves:
        raise UnmaskError(f"{folder / WEIGHTS} holds no LoRA weights.")
    return {name: _pair(model, name, half, rank, folder) for name, half in halves.items()}, whole


def _pair(model: Model, name: str, half: Mapping[str, Tensor], rank: int, folder: Path) -> tuple[Tensor, Tensor]:
    base = model.get_submodule(name)
    if not isinstance(base, nn.Linear):
        raise UnmaskError(f"{folder / WEIGHTS}: '{name}' is no linear layer; only those can be adapted here.")
    if half.keys() != PARTS.keys():
        raise UnmaskError(f"{folder / WEIGHTS} has only one of lora_A and lora_B for '{name}'.")
    a, b = half["A"], half["B"]
    if a.shape != (rank, base.in_features) or b.shape != (base.out_features, rank):
        raise UnmaskError(
            f"{folder / WEIGHTS}: A {list(a.shape)} and B {list(b.shape)} of '{name}' do not fit its weights "
            f"{list(base.weight.shape)} and the rank {rank}; is this the base model of the adapter?"
        )
    return a, b
