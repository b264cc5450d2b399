"""Weights of a Hugging Face folder: safetensors, whole or in shards, under names that a table translates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unmask.config import read_json, regular
from unmask.errors import UnmaskError
from unmask.huggingface.config import PROBLEMS, published
from unmask.huggingface.layout import unfold, without_copies
from unmask.huggingface.table import Names, Table
from unmask.models.model import Model, ModelConfig


def files_of(folder: Path) -> list[str]:
    """The files that hold the weights of a folder. Raises UnmaskError where it has none that is read."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        return ["model.safetensors"]
    if index.exists():
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not all(map(_is_file_name, shards.values())):
            raise UnmaskError(f"{index} is damaged: weight_map must map names to files of the same folder.")
        return sorted(set(shards.values()))
    if list(folder.glob("*.bin")) + list(folder.glob("*.pt")) + list(folder.glob("*.ckpt*")):
        raise UnmaskError(
            f"{folder} holds its weights as a pickle, which could run a stranger's code and is never opened here. "
            "Where you trust it, convert it: transformers.AutoModel.from_pretrained(here).save_pretrained(there)."
        )
    raise UnmaskError(f"{folder} has no model.safetensors: there are no weights to load.")


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder, by name. Raises UnmaskError where a file is missing or damaged, and where two files hold
    different numbers under one name."""
    tensors: dict[str, Tensor] = {}
    owners: dict[str, str] = {}
    for name in files_of(folder):
        try:
            with safe_open(regular(folder / name), "pt") as file:
                found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
        except (SafetensorError, OSError) as error:
            raise UnmaskError(f"{folder / name} is damaged or missing: {error}. Restore it from a copy.") from None
        for key, tensor in found.items():
            if key in tensors and not same(tensors[key], tensor):
                raise UnmaskError(
                    f"{folder}: {owners[key]} and {name} hold different numbers for '{key}'. Restore the folder from a "
                    "copy."
                )
            tensors[key], owners[key] = tensor, name
    return tensors


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers of the same type."""
    return one.dtype == other.dtype and torch.equal(one, other)


def normalise(table: Table, config: Any, tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Today's full names: prefix in place, gamma and beta of the oldest folders renamed, tied copies checked, what is
    computed left out.

    Raises UnmaskError where two names of one parameter, or two copies of it, hold different numbers.
    """
    bare = not any(key.startswith(table.prefix) for key in tensors)
    trunk = tuple(theirs.removeprefix(table.prefix).split(".")[0] for _, theirs in table.trunk + table.pooler)
    out: dict[str, Tensor] = {}
    keys: dict[str, str] = {}
    for key, tensor in tensors.items():
        name = key.removesuffix(".gamma") + ".weight" if key.endswith(".gamma") else key
        name = name.removesuffix(".beta") + ".bias" if name.endswith(".beta") else name
        if bare and name.split(".")[0] in trunk:
            name = table.prefix + name
        if name.endswith("embeddings.position_ids"):
            continue
        if name in out and not same(out[name], tensor):
            raise _twice(folder, keys[name], key)
        out[name], keys[name] = tensor, key
    for part in table.parts:
        out = part.restore(config, out, folder)
    return unfold(table, without_copies(out, table.copies, folder))


def _twice(folder: Path, one: str, other: str) -> UnmaskError:
    """What to raise where two keys name one parameter and differ."""
    return UnmaskError(
        f"{folder}: the weights hold different numbers for '{one}' and '{other}', two names of one parameter. Keep the "
        "right one."
    )


def rules_of(table: Table, heads: Iterable[str], *, pooler: bool) -> Names:
    """Names of the trunk and some heads; a head's own name for the pooler goes before the common one."""
    own = tuple(rule for head in heads for rule in table.heads[head])
    return own + table.trunk + (table.pooler if pooler else ())


def rename(key: str, rules: Names, side: int) -> str | None:
    """The name of a parameter on the other side of the rules; side 0 is ours, 1 theirs."""
    for rule in rules:
        source, goal = rule[side], rule[1 - side]
        rest, numbers = _read(key, source)
        if rest is not None and (not rest or rest.startswith(".")):
            for number in numbers:
                goal = goal.replace("{}", number, 1)
            return goal + rest
    return None


def _read(key: str, source: str) -> tuple[str | None, list[str]]:
    """What a key has behind the name `source`, and the numbers that stand for its holes; None where it has another."""
    first, *others = source.split("{}")
    if not key.startswith(first):
        return None, []
    rest, numbers = key[len(first) :], []
    for part in others:
        number = rest.split(".")[0]
        rest = rest[len(number) :]
        if not (number.isdigit() and rest.startswith(part)):
            return None, []
        numbers.append(number)
        rest = rest[len(part) :]
    return rest, numbers


def parts_of(table: Table, tensors: Mapping[str, Tensor]) -> set[str]:
    """Which heads, and whether the pooler, have weights in the folder."""
    candidates = {"pooler": table.pooler, **table.heads}
    return {part for part, names in candidates.items() if all(_holds(theirs, tensors) for _, theirs in names)}


def _holds(theirs: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a folder has weights of this name; of a layer's name, for any number."""
    if "{}" in theirs:
        return any(_read(key, theirs)[0] is not None for key in tensors)
    return theirs in tensors or theirs + ".weight" in tensors


def stored_heads(
    table: Table, tensors: Mapping[str, Tensor], values: Mapping[str, Any], config: ModelConfig, folder: Path
) -> dict[str, int]:
    """Head -> outputs, of the heads that the folder holds. Where several share their names, config.json decides: what
    we wrote into it, the class that it names, or else what `transformers` would have to open the folder as.

    Raises UnmaskError where nothing tells which of several heads the weights are of.
    """
    parts = parts_of(table, tensors)
    sizes = {head: _outputs_of(table, head, tensors) for head in parts - {"pooler"}}
    kind = _kind(values, sizes.get("classification", 0))
    found = {head for head in sizes if head not in PROBLEMS or head == kind}
    meant = {kind if head in PROBLEMS else head for head in _meant(table, values)} & found
    meant = meant or {_guessed(table, values, config, parts & {*found, "pooler"}, sizes, folder)}
    known = {kind}.union(*table.architectures.values())

    def rank(head: str) -> tuple[bool, bool, int, str]:
        return head not in meant, head not in known, -len(table.heads[head]), head

    heads: dict[str, int] = {}
    for head in sorted(found, key=rank):
        names = _theirs(table, head)
        if any(names & _theirs(table, rival) for rival in heads):
            continue
        if not names and head not in meant:  # tied to the embedding, it has no weights that would tell
            continue
        heads[head] = sizes[head]
    return heads


def _meant(table: Table, values: Mapping[str, Any]) -> Set[str]:
    """The heads that config.json speaks of. What we wrote there counts as long as the class beside it has these heads:
    `transformers` keeps the field when it saves another class, and changes the class."""
    said, classes = values.get("unmask_heads"), values.get("architectures")
    ours = frozenset(map(str, said)) if isinstance(said, list) else frozenset()
    architecture = str(classes[0]) if isinstance(classes, list) and classes else ""
    theirs = table.architectures.get(architecture, published(ours))
    return ours if published(ours) == theirs else theirs


def _kind(values: Mapping[str, Any], outputs: int) -> str:
    """Which of the heads of PROBLEMS a classifier of texts is, as `transformers` decides it for labels that are whole
    numbers."""
    usual = "regression" if outputs == 1 else "classification"
    return next((head for head, problem in PROBLEMS.items() if problem == values.get("problem_type")), usual)


def _guessed(
    table: Table,
    values: Mapping[str, Any],
    config: ModelConfig,
    parts: Set[str],
    sizes: Mapping[str, int],
    folder: Path,
) -> str:
    """The head that a classifier is of where config.json names none and several have its names; "" where one has.

    For tokens, `transformers` makes no pooler; and its classifier of texts with one output has one label.
    """
    alike = {head for head in parts - {"pooler"} if _theirs(table, head) == _theirs(table, "tagging")}
    if "tagging" not in alike or len(alike) == 1:
        return ""
    if not config.pools:
        raise UnmaskError(
            f"{folder / 'config.json'} does not say what the classifier answers for: name the class that wrote it, "
            f"one of {', '.join(table.architectures)}, in the field architectures."
        )
    texts = next((head for head in alike if head in PROBLEMS), None)
    if "pooler" not in parts:
        return "tagging"
    if texts is None:
        return "choice" if sizes["choice"] == 1 else "tagging"
    labels = len(values.get("id2label") or ()) or values.get("num_labels")
    return "choice" if sizes["choice"] == 1 and labels != 1 and values.get("problem_type") is None else texts


def _theirs(table: Table, head: str) -> set[str]:
    """What the parameters of a head are called there."""
    return {theirs for _, theirs in table.heads[head]}


def _outputs_of(table: Table, head: str, tensors: Mapping[str, Tensor]) -> int:
    """How many outputs a stored head has; 0 where its size is that of the vocabulary."""
    last = (theirs for ours, theirs in table.heads[head] if ours.endswith(".output") and "{}" not in ours)
    sized = [theirs + ".weight" for theirs in last]
    sized += [theirs for ours, theirs in table.heads[head] if ours.endswith(".transitions")]
    return len(tensors[sized[0]]) if sized and tensors[sized[0]].ndim else 0


def fill(
    table: Table, model: Model, tensors: Mapping[str, Tensor], *, keep: set[str], folder: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the tensors into the model; returns the parts that are new and the stored parts that were dropped."""
    rules = rules_of(table, [head for head in model.heads if head in keep], pooler=model.pooler is not None)
    parameters = model.own_parameters()
    filled: dict[str, str] = {}
    dropped: set[str] = set()
    for key, tensor in tensors.items():
        ours = rename(key, rules, 1)
        part = _owner(table, key) if ours is None else None
        if part is not None:
            dropped.add(part)
            continue
        if ours is None or ours not in parameters:
            raise UnmaskError(f"{folder}: '{key}' has no place in this model; does config.json describe these weights?")
        if not tensor.is_floating_point():
            raise UnmaskError(f"{folder}: '{key}' holds {tensor.dtype} numbers; quantised weights cannot be read.")
        if parameters[ours].shape != tensor.shape:
            if ours.startswith("heads.") and _may_lack(table, ours):
                dropped.add(_part(ours))
                continue
            raise UnmaskError(
                f"{folder}: '{key}' has the shape {list(tensor.shape)}, but config.json asks for "
                f"{list(parameters[ours].shape)}."
            )
        if ours in filled and not same(tensors[filled[ours]], tensor):
            raise _twice(folder, filled[ours], key)
        with torch.no_grad():
            parameters[ours].copy_(tensor)
        check_finite(parameters[ours], f"{folder}: '{key}'")
        filled[ours] = key
    missing = [name for name in parameters if name not in filled]
    begun = {_part(name) for name in filled} - dropped
    for name in missing:
        if not _may_lack(table, name) or _part(name) in begun:
            raise UnmaskError(f"{folder}: the weights lack '{rename(name, rules, 0) or name}'.")
    new = {_part(name) for name in missing}
    return tuple(sorted(new)), tuple(sorted(dropped))


def check_finite(weights: Tensor, owner: str) -> None:
    """Raises UnmaskError for weights with NaN or infinity among them, as a run that went wrong leaves them; all that
    such a model answered would be NaN."""
    with torch.no_grad():
        if not weights.sum().isfinite() and not weights.isfinite().all():  # the sum is one pass; it may overflow
            raise UnmaskError(
                f"{owner} holds numbers that are not finite: the run that wrote them went wrong, or the file is "
                "damaged. Take an earlier checkpoint."
            )


def _part(name: str) -> str:
    """The head that a parameter of ours belongs to, or what else of the model."""
    first, second = name.split(".")[:2]
    return second if first == "heads" else first


def _may_lack(table: Table, name: str) -> bool:
    """Whether a folder may be without a parameter of ours: one of a head or the pooler."""
    return name.startswith(("heads.", "pooler.")) and _part(name) not in table.kind.heads


def _owner(table: Table, key: str) -> str | None:
    """The head (or pooler) that a key belongs to."""
    for part, names in {"pooler": table.pooler, **table.heads}.items():
        if rename(key, names, 1) is not None:
            return part
    return None
