"""Hugging Face checkpoint folders: config.json, model.safetensors and the tokenizer, read and written by a table.

Nothing is passed over in silence: a key that no rule names, a parameter that nobody filled, and a field whose
value the page does not implement are errors. Nothing is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unmask.config import Config, read_json
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.files import MANIFEST, atomic, verify_manifest, write_manifest, write_text
from unmask.models import bert
from unmask.models.model import Model
from unmask.models.table import Names, Table

TABLES: dict[str, Table] = {table.model_type: table for table in (bert.HUGGINGFACE, bert.ROBERTA)}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")

# Fields of config.json that do not change what an encoder computes: bookkeeping, what to return, text generation.
IRRELEVANT = frozenset(
    """
    _attn_implementation_autoset _name_or_path architectures bos_token_id cls_token_id directionality dtype eos_token_id
    eos_token_ids finetuning_task gradient_checkpointing id2label label2id language model_max_length model_type name
    num_labels output_attentions output_hidden_states output_past pad_token_id pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix problem_type return_dict
    sentence_transformers sep_token_id task_specific_params tokenizer_class torch_dtype torchscript
    transformers_version unmask_heads use_bfloat16 use_cache use_return_dict xla_device
    decoder_start_token_id diversity_penalty length_penalty max_length num_beam_groups num_beams num_return_sequences
    repetition_penalty temperature top_k top_p typical_p
    """.split()  # noqa: SIM905 (a list of this length, one name a line, hides the page)
)


@dataclass(frozen=True)
class Loaded:
    """A folder in memory.

    model, tokenizer  ready to use, in evaluation mode; the tokenizer is None where the folder has none
    labels            class names, in the order of the outputs, of a classification or tagging head
    new, dropped      parts that were initialised afresh, and stored ones that were not asked for
    """

    model: Model
    tokenizer: Tokenizer | None
    labels: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]

    def require_tokenizer(self, owner: object) -> Tokenizer:
        """The tokenizer. Raises UnmaskError, in which `owner` lacks one, where there is none."""
        if self.tokenizer is None:
            raise UnmaskError(f"{owner} has no tokenizer: put its tokenizer.json or vocab.txt into the folder.")
        return self.tokenizer

    @property
    def notice(self) -> str:
        """One sentence on what was new and what was dropped; empty where the folder was taken as it is."""
        parts = [f"new: {', '.join(self.new)}"] if self.new else []
        parts += [f"dropped: {', '.join(self.dropped)}"] if self.dropped else []
        return f"Parts {'; '.join(parts)}." if parts else ""


def save(folder: Path | str, model: Model, tokenizer: Tokenizer | None = None, *, labels: Sequence[str] = ()) -> None:
    """Write a folder that `transformers` opens: config, weights, tokenizer, then a manifest of checksums.

    labels  class names of a classification or tagging head, in the order of its outputs

    Raises UnmaskError, before anything is written, for a model that no table describes or another number of labels,
    and where the folder cannot be written.
    """
    folder = Path(folder)
    tensors = {theirs: tensor.contiguous() for theirs, tensor in export(model).items()}
    config = json.dumps(_config_json(_table_of(model.config), model, labels), indent=2, ensure_ascii=False) + "\n"
    with atomic(folder / "model.safetensors") as temporary:
        try:
            save_file(tensors, temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # the library's name for a full disk
            raise OSError(str(error)) from error
        # A folder without a manifest is unsealed; under a stale one the new weights would pass for damage.
        (folder / MANIFEST).unlink(missing_ok=True)
    write_text(folder / "config.json", config)
    if tokenizer is not None:
        tokenizer.save(folder, length=model.positions)
    names = ["config.json", "model.safetensors", *(n for n in TOKENIZER_FILES if (folder / n).exists())]
    write_manifest(folder, names)


def load(folder: Path | str, *, heads: Mapping[str, int] | None = None, seed: int = 0) -> Loaded:
    """Read a folder that `save`, or `transformers`, wrote.

    heads  head -> number of outputs, to put other heads on the trunk; None keeps those that the folder has
    seed   of the initialisation of what the folder does not hold

    Raises UnmaskError for a missing, damaged or foreign folder, saying which file and what to do.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UnmaskError(f"There is no model folder {folder}.")
    if not (folder / "config.json").exists():
        raise UnmaskError(f"{folder} is not a model folder: it has no config.json.")
    verify_manifest(folder)
    values = read_json(folder / "config.json")
    table = _table_for(values, folder)
    config = _read_config(table, values, folder)
    tensors = _normalise(table, _read_tensors(folder))
    labels = _labels(values, folder)
    stored = _stored_heads(table, tensors, values, len(labels))
    wanted = dict(heads) if heads is not None else stored
    for head in wanted.keys() - table.heads.keys():
        raise unknown("head", head, table.heads)
    pooler = heads is None and "pooler" in _parts(table, tensors)
    try:
        model = config.build(heads=wanted, seed=None, pooler=pooler)  # type: ignore[attr-defined]
    except (UnmaskError, RuntimeError, MemoryError) as error:
        raise UnmaskError(f"{folder / 'config.json'} describes no model that can be built: {error}") from None
    new, dropped = _fill(table, model, tensors, keep=set(stored), folder=folder)
    if heads is None and (new or dropped):
        parts = ", ".join(sorted({*new, *dropped}))
        raise UnmaskError(f"{folder}: the weights of {parts} are not whole. Restore the folder from a copy.")
    for part in new:
        config.initialise(model.pooler if part == "pooler" else model.heads[part], seed)  # type: ignore[attr-defined]
    classes = [n for head, n in wanted.items() if head in ("classification", "tagging") and stored.get(head) == n]
    if classes and labels and classes[0] != len(labels):
        raise UnmaskError(f"{folder / 'config.json'} names {len(labels)} labels, but the weights have {classes[0]}.")
    tokenizer = Tokenizer.load(folder) if any((folder / n).exists() for n in ("tokenizer.json", "vocab.txt")) else None
    vocabulary = getattr(config, "vocabulary", None)
    if tokenizer is not None and vocabulary is not None and tokenizer.size > vocabulary:
        raise UnmaskError(
            f"The tokenizer in {folder} has {tokenizer.size} entries but the model only {vocabulary}: "
            "they do not belong together. Use the tokenizer that the model was trained with."
        )
    return Loaded(model.eval(), tokenizer, labels if classes else (), new, dropped)


def export(model: Model) -> dict[str, Tensor]:
    """The model's parameters under their Hugging Face names. Raises UnmaskError for one that no rule names."""
    table = _table_of(model.config)
    for head in model.heads.keys() - table.heads.keys():
        raise unknown(f"place in the table of '{table.model_type}' for the head", head, table.heads)
    rules = _rules(table, list(model.heads), pooler=model.pooler is not None)
    bare = not model.heads
    tensors: dict[str, Tensor] = {}
    for ours, parameter in _parameters(model).items():
        theirs = _rename(ours, rules, 0)
        if theirs is None:
            raise UnmaskError(f"The table of '{table.model_type}' names no place for the parameter '{ours}'.")
        tensors[theirs.removeprefix(table.prefix) if bare else theirs] = parameter.detach()
    return tensors


# ------------------------------------------------------------------------------------------------ config.json


def _table_of(config: Config) -> Table:
    for table in TABLES.values():
        if type(config) is table.config:
            return table
    raise UnmaskError(f"There is no Hugging Face table for {type(config).__name__}.")


def _table_for(values: Mapping[str, Any], folder: Path) -> Table:
    kind = values.get("model_type")
    if not isinstance(kind, str):
        raise UnmaskError(f"{folder / 'config.json'} has no model_type: it is not the configuration of a model.")
    if kind not in TABLES:
        raise unknown(f"reader for the model type of {folder}:", kind, TABLES)
    return TABLES[kind]


def _read_config(table: Table, values: Mapping[str, Any], folder: Path) -> Config:
    place = folder / "config.json"
    for name, required in table.fixed.items():
        if values.get(name, required) not in (required, None):
            raise UnmaskError(f"{place}: {name} = {values[name]!r} is not supported; only {required!r} is.")
    for name, value in values.items():
        known = name in table.fields or name in table.fixed or name in IRRELEVANT
        if not known and value not in (None, False, [], {}, "", 0):
            raise UnmaskError(f"{place}: the field {name} = {value!r} is not one that this model implements.")
    ours = {table.fields[name]: value for name, value in values.items() if name in table.fields and value is not None}
    try:
        ours |= {table.fields[name]: ours[table.fields[name]] - by for name, by in table.shift.items()}
        config = table.config.from_dict(ours)
    except (UnmaskError, KeyError, TypeError) as error:
        raise UnmaskError(f"{place}: {error}") from None
    return config


def _config_json(table: Table, model: Model, labels: Sequence[str]) -> dict[str, Any]:
    heads = frozenset(model.heads)
    config = model.config.to_dict()
    theirs_has = frozenset("classification" if head == "regression" else head for head in heads)  # one class, there
    values: dict[str, Any] = {
        "architectures": [name for name, has in table.architectures.items() if has == theirs_has][:1],
        "model_type": table.model_type,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
    }
    values |= {theirs: config[ours] for theirs, ours in table.fields.items()}
    values |= {theirs: values[theirs] + by for theirs, by in table.shift.items()}
    if "classification" in heads or "tagging" in heads:
        name = "classification" if "classification" in heads else "tagging"
        outputs = _outputs(model, name)
        names = list(labels) or [f"LABEL_{i}" for i in range(outputs)]
        if len(names) != outputs:
            raise UnmaskError(f"The {name} head has {outputs} outputs but {len(names)} label names were given.")
        values |= {
            "id2label": {str(i): n for i, n in enumerate(names)},
            "label2id": {n: i for i, n in enumerate(names)},
        }
    if "classification" in heads:
        values["problem_type"] = "single_label_classification"
    if "regression" in heads:
        values |= {"problem_type": "regression", "id2label": {"0": "score"}, "label2id": {"score": 0}}
    values["unmask_heads"] = sorted(heads)
    return values


def _labels(values: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    names = values.get("id2label") or {}
    try:
        return tuple(str(name) for _, name in sorted(names.items(), key=lambda item: int(item[0])))
    except (ValueError, AttributeError):
        raise UnmaskError(f"{folder / 'config.json'}: id2label must map numbers to label names.") from None


# ------------------------------------------------------------------------------------------------ weights


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        files = ["model.safetensors"]
    elif index.exists():
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(s, str) and Path(s).name == s for s in shards.values()):
            raise UnmaskError(f"{index} is damaged: weight_map must map names to files of the same folder.")
        files = sorted(set(shards.values()))
    elif list(folder.glob("*.bin")) + list(folder.glob("*.pt")) + list(folder.glob("*.ckpt*")):
        raise UnmaskError(
            f"{folder} holds its weights as a pickle, which could run a stranger's code and is never opened here. "
            "Where you trust it, convert it: transformers.AutoModel.from_pretrained(here).save_pretrained(there)."
        )
    else:
        raise UnmaskError(f"{folder} has no model.safetensors: there are no weights to load.")
    tensors: dict[str, Tensor] = {}
    for name in files:
        try:
            with safe_open(folder / name, "pt") as file:
                tensors.update({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118 (not a mapping)
        except (SafetensorError, OSError) as error:
            raise UnmaskError(f"{folder / name} is damaged or missing: {error}. Restore it from a copy.") from None
    return tensors


def _normalise(table: Table, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Today's full names: prefix in place, gamma and beta of the oldest folders renamed, tied copies checked."""
    bare = not any(key.startswith(table.prefix) for key in tensors)
    trunk = tuple(theirs.removeprefix(table.prefix).split(".")[0] for _, theirs in table.trunk + table.pooler)
    out: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        name = key.removesuffix(".gamma") + ".weight" if key.endswith(".gamma") else key
        name = name.removesuffix(".beta") + ".bias" if name.endswith(".beta") else name
        if bare and name.split(".")[0] in trunk:
            name = table.prefix + name
        if not name.endswith("embeddings.position_ids"):
            out[name] = tensor
    for copy, original in table.copies.items():
        if copy in out and original in out and not torch.equal(out[copy], out[original]):
            raise UnmaskError(f"'{copy}' differs from '{original}', but this model ties the two: it cannot be loaded.")
        out.pop(copy, None)
    return out


def _rules(table: Table, heads: Iterable[str], *, pooler: bool) -> Names:
    """Names of the trunk and some heads; a head's own name for the pooler goes before the common one."""
    own = tuple(rule for head in heads for rule in table.heads[head])
    return own + table.trunk + (table.pooler if pooler else ())


def _rename(key: str, rules: Names, side: int) -> str | None:
    """The name of a parameter on the other side of the rules; side 0 is ours, 1 theirs."""
    for rule in rules:
        source, goal = rule[side], rule[1 - side]
        before, hole, after = source.partition("{}")
        number = ""
        if hole:
            number = key.removeprefix(before).split(".")[0]
            if not (key.startswith(before) and number.isdigit()):
                continue
        name = before + number + after
        if key == name or key.startswith(name + "."):
            return goal.replace("{}", number) + key[len(name) :]
    return None


def _parameters(model: Model) -> dict[str, Tensor]:
    """Name -> parameter, a tied one under its first name only."""
    return dict(model.named_parameters())


def _parts(table: Table, tensors: Mapping[str, Tensor]) -> set[str]:
    """Which heads, and whether the pooler, have weights in the folder."""
    candidates = {"pooler": table.pooler, **table.heads}
    return {
        part
        for part, names in candidates.items()
        if all(theirs in tensors or theirs + ".weight" in tensors for _, theirs in names)
    }


def _stored_heads(
    table: Table, tensors: Mapping[str, Tensor], values: Mapping[str, Any], labels: int
) -> dict[str, int]:
    """Head -> outputs, of the heads that the folder holds. Where several share their names, config.json decides."""
    found = _parts(table, tensors) - {"pooler"}
    said, classes = values.get("unmask_heads"), values.get("architectures")
    architecture = str(classes[0]) if isinstance(classes, list) and classes else ""
    meant = frozenset(map(str, said)) if isinstance(said, list) else table.architectures.get(architecture, frozenset())
    if "classification" in meant and (values.get("problem_type") == "regression" or labels == 1):
        meant = meant - {"classification"} | {"regression"}
    heads: dict[str, int] = {}
    for head in sorted(found, key=lambda head: (head not in meant, head)):
        names = {theirs: ours for ours, theirs in table.heads[head]}
        if any(names.keys() & {theirs for _, theirs in table.heads[rival]} for rival in heads):
            continue
        outputs = [tensors[theirs + ".weight"].shape[0] for theirs, ours in names.items() if ours.endswith(".output")]
        heads[head] = outputs[0] if outputs else 0
    return heads


def _fill(
    table: Table, model: Model, tensors: Mapping[str, Tensor], *, keep: set[str], folder: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy the tensors into the model; returns the parts that are new and the stored parts that were dropped."""
    rules = _rules(table, [head for head in model.heads if head in keep], pooler=model.pooler is not None)
    parameters = _parameters(model)
    filled: set[str] = set()
    dropped: set[str] = set()
    for key, tensor in tensors.items():
        ours = _rename(key, rules, 1)
        if ours is None:
            part = _owner(table, key)
            if part is None:
                raise UnmaskError(
                    f"{folder}: the weights have a key '{key}' that no rule of '{table.model_type}' names."
                )
            dropped.add(part)
            continue
        if ours not in parameters:
            raise UnmaskError(f"{folder}: '{key}' has no place in this model; does config.json describe these weights?")
        if not tensor.is_floating_point():
            raise UnmaskError(f"{folder}: '{key}' holds {tensor.dtype} numbers; quantised weights cannot be read.")
        if parameters[ours].shape != tensor.shape:
            if ours.startswith("heads."):
                dropped.add(_part(ours))
                continue
            raise UnmaskError(
                f"{folder}: '{key}' has the shape {list(tensor.shape)}, but config.json asks for "
                f"{list(parameters[ours].shape)}."
            )
        with torch.no_grad():
            parameters[ours].copy_(tensor)
        filled.add(ours)
    missing = [name for name in parameters if name not in filled]
    begun = {_part(name) for name in filled} - dropped
    for name in missing:
        if not name.startswith(("heads.", "pooler.")) or _part(name) in begun:
            raise UnmaskError(f"{folder}: the weights lack '{_rename(name, rules, 0) or name}'.")
    new = {_part(name) for name in missing}
    return tuple(sorted(new)), tuple(sorted(dropped))


def _part(name: str) -> str:
    """The head that a parameter of ours belongs to, or what else of the model."""
    first, second = name.split(".")[:2]
    return second if first == "heads" else first


def _owner(table: Table, key: str) -> str | None:
    """The head (or pooler) that a key belongs to."""
    for part, names in {"pooler": table.pooler, **table.heads}.items():
        if _rename(key, names, 1) is not None:
            return part
    return None


def _outputs(model: Model, head: str) -> int:
    return int(list(model.heads[head].parameters())[-1].shape[0])
