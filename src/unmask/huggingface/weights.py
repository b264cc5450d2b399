"""Weights of a Hugging Face folder: safetensors, in one file or in shards, with names that a table translates.

A *key* is the name of a tensor in the folder.
"""

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
    """The names of the files with the weights of a folder. Raises UnmaskError if it has no safetensors."""
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
            f"{folder} holds its weights as a pickle, which can execute code: unmask never opens one. "
            "If you trust it, convert it: transformers.AutoModel.from_pretrained(OLD).save_pretrained(NEW)."
        )
    raise UnmaskError(f"{folder} has no model.safetensors: there are no weights to load.")


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder, by key. Raises UnmaskError if a file is missing or damaged, and if two files hold
    different values for one key."""
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
                    f"{folder}: {owners[key]} and {name} hold different values for '{key}'. Restore the folder from a "
                    "copy."
                )
            tensors[key], owners[key] = tensor, name
    return tensors


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same dtype and equal values."""
    return one.dtype == other.dtype and torch.equal(one, other)


def normalise(table: Table, config: Any, tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Rename the tensors of a folder to the full keys of the table: add the prefix if it is missing, and rename gamma
    and beta of the oldest folders. Check tied copies, and drop tensors that the model computes.

    Raises UnmaskError if two keys or two copies of one parameter hold different values.
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
    """The error for two keys of one parameter with different values."""
    return UnmaskError(
        f"{folder}: the weights hold different values for '{one}' and '{other}', two names of one parameter. Keep the "
        "right one."
    )


def rules_of(table: Table, heads: Iterable[str], *, pooler: bool) -> Names:
    """The names of the trunk and of these heads; a head's own name of the pooler precedes the common one."""
    own = tuple(rule for head in heads for rule in table.heads[head])
    return own + table.trunk + (table.pooler if pooler else ())


def rename(key: str, rules: Names, side: int) -> str | None:
    """Translate a parameter name by the rules, from the names of `side`: 0 for unmask, 1 for the folder. None if no
    rule applies."""
    for rule in rules:
        source, goal = rule[side], rule[1 - side]
        rest, numbers = _read(key, source)
        if rest is not None and (not rest or rest.startswith(".")):
            for number in numbers:
                goal = goal.replace("{}", number, 1)
            return goal + rest
    return None


def _read(key: str, source: str) -> tuple[str | None, list[str]]:
    """Match a key with the pattern `source`: the rest of the key, and the numbers at the pattern's {}. The rest is None
    if the key does not match."""
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
    """The heads that have weights in the folder, and "pooler" if the pooler has."""
    candidates = {"pooler": table.pooler, **table.heads}
    return {part for part, names in candidates.items() if all(_holds(theirs, tensors) for _, theirs in names)}


def _holds(theirs: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a folder has weights of this name; a name with {} matches any layer."""
    if "{}" in theirs:
        return any(_read(key, theirs)[0] is not None for key in tensors)
    return theirs in tensors or theirs + ".weight" in tensors


def stored_heads(
    table: Table, tensors: Mapping[str, Tensor], values: Mapping[str, Any], config: ModelConfig, folder: Path
) -> dict[str, int]:
    """The heads in the folder, with their numbers of outputs.

    Several heads can have the same keys. Then config.json decides: by the field unmask_heads, by the name of the class
    in `transformers`, or else by the class that could open the folder in `transformers`.

    Raises UnmaskError if config.json does not determine the head.
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
        if not names and head not in meant:  # the head is tied to the embedding: no weights show whether it exists
            continue
        heads[head] = sizes[head]
    return heads


def _meant(table: Table, values: Mapping[str, Any]) -> Set[str]:
    """The heads that config.json names. The field unmask_heads is valid only if the class in `architectures` has these
    heads: when `transformers` saves the folder with another class, it keeps unmask_heads and changes the class."""
    said, classes = values.get("unmask_heads"), values.get("architectures")
    ours = frozenset(map(str, said)) if isinstance(said, list) else frozenset()
    architecture = str(classes[0]) if isinstance(classes, list) and classes else ""
    theirs = table.architectures.get(architecture, published(ours))
    return ours if published(ours) == theirs else theirs


def _kind(values: Mapping[str, Any], outputs: int) -> str:
    """The head of PROBLEMS that a classifier of texts implements, as `transformers` decides for integer labels."""
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
    """The head of a classifier if config.json names no head and several heads have the same keys; "" if only one has.

    Two facts decide: in `transformers`, a token classifier has no pooler, and a text classifier with one output has one
    label.
    """
    alike = {head for head in parts - {"pooler"} if _theirs(table, head) == _theirs(table, "tagging")}
    if "tagging" not in alike or len(alike) == 1:
        return ""
    if not config.pools:
        raise UnmaskError(
            f"{folder / 'config.json'} does not say which head the classifier is: name the class that wrote it, one of "
            f"{', '.join(table.architectures)}, in the field architectures."
        )
    texts = next((head for head in alike if head in PROBLEMS), None)
    if "pooler" not in parts:
        return "tagging"
    if texts is None:
        return "choice" if sizes["choice"] == 1 else "tagging"
    labels = len(values.get("id2label") or ()) or values.get("num_labels")
    return "choice" if sizes["choice"] == 1 and labels != 1 and values.get("problem_type") is None else texts


def _theirs(table: Table, head: str) -> set[str]:
    """The keys of a head's parameters."""
    return {theirs for _, theirs in table.heads[head]}


def _outputs_of(table: Table, head: str, tensors: Mapping[str, Tensor]) -> int:
    """The number of outputs of a stored head; 0 if it has one for each id of the vocabulary."""
    last = (theirs for ours, theirs in table.heads[head] if ours.endswith(".output") and "{}" not in ours)
    sized = [theirs + ".weight" for theirs in last]
    sized += [theirs for ours, theirs in table.heads[head] if ours.endswith(".transitions")]
    return len(tensors[sized[0]]) if sized and tensors[sized[0]].ndim else 0


def fill(
    table: Table,
    model: Model,
    tensors: Mapping[str, Tensor],
    *,
    keep: set[str],
    left: Set[str] = frozenset(),
    folder: Path,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the tensors into the model. Returns the parts without stored weights, and the stored parts that the model
    does not use.

    keep  heads whose stored weights are read
    left  heads whose stored weights are left out, as those of another shape are

    Raises UnmaskError for a key without a place in the model, a wrong shape or dtype, values that are not finite, two
    keys of one parameter with different values, and missing weights of the trunk.
    """
    rules = rules_of(table, [head for head in model.heads if head in keep], pooler=model.pooler is not None)
    parameters = model.own_tensors()
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
        if tensor.is_floating_point() != parameters[ours].is_floating_point():
            raise UnmaskError(f"{folder}: '{key}' holds {tensor.dtype} values; quantised weights are not supported.")
        if parameters[ours].shape != tensor.shape or (ours.startswith("heads.") and _part(ours) in left):
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
    """Raises UnmaskError for weights with NaN or infinity, such as those of a diverged run: outputs would be NaN."""
    with torch.no_grad():
        if not weights.sum().isfinite() and not weights.isfinite().all():  # the sum is one pass; it may overflow
            raise UnmaskError(
                f"{owner} holds numbers that are not finite: the run that wrote them diverged, or the file is damaged. "
                "Use an earlier checkpoint."
            )


def _part(name: str) -> str:
    """The part of the model with this parameter: a head, or the first word of the name."""
    first, second = name.split(".")[:2]
    return second if first == "heads" else first


def _may_lack(table: Table, name: str) -> bool:
    """Whether a folder may lack this parameter of the model: a parameter of a head or of the pooler."""
    return name.startswith(("heads.", "pooler.")) and _part(name) not in table.kind.heads


def _owner(table: Table, key: str) -> str | None:
    """The head (or "pooler") that a key belongs to; None for other keys."""
    for part, names in {"pooler": table.pooler, **table.heads}.items():
        if rename(key, names, 1) is not None:
            return part
    return None
