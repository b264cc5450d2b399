"""config.json of a Hugging Face folder: to the config of a page and back. No field is passed over in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from torch import Tensor

from unmask.config import Config, regular, typed
from unmask.errors import UnmaskError, unknown
from unmask.huggingface.table import Page, Table
from unmask.huggingface.tables import (
    albert,
    bert,
    convs2s,
    electra,
    elmo,
    gpt,
    mae,
    marian,
    mobilebert,
    pegasus,
    recurrent,
    seq2seq,
    swin,
    t5,
    transformer,
    transformer_xl,
    vector_decoder,
    vit,
)
from unmask.models.heads import asked_of
from unmask.models.model import Model
from unmask.types import Head

PROBLEMS = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
"""Head -> what config.json calls its kind of problem."""

TABLES: dict[str, Table[Any]] = {
    table.model_type: table
    for table in (
        bert.BERT,
        bert.ROBERTA,
        albert.ALBERT,
        electra.ELECTRA,
        mobilebert.MOBILEBERT,
        elmo.ELMO,
        gpt.GPT,
        gpt.GPT2,
        recurrent.RECURRENT,
        transformer_xl.TRANSFORMER_XL,
        vit.VIT,
        vit.DEIT,
        mae.MAE,
        swin.SWIN,
        pegasus.PEGASUS,
        marian.MARIAN,
        t5.T5_PLAIN,
        transformer.TRANSFORMER,
        seq2seq.SEQ2SEQ,
        convs2s.CONVS2S,
        vector_decoder.VECTOR_DECODER,
    )
}
"""Model type -> table. A model is written by the first one that can say all of it."""

READ = frozenset({".json", ".model", ".safetensors", ".spm", ".txt"})
"""Endings of the files that are read when a folder is opened."""

# Fields of config.json that do not change what an encoder computes: bookkeeping, what to return, text generation.
IRRELEVANT = frozenset(
    """
    _attn_implementation_autoset _name_or_path _num_labels architectures bos_token_id cls_token_id directionality dtype
    eos_token_id eos_token_ids finetuning_task gradient_checkpointing id2label label2id language model_max_length
    model_type name num_labels output_attentions output_hidden_states output_past pad_token_id pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix problem_type return_dict
    sentence_transformers sep_token_id task_specific_params tokenizer_class torch_dtype torchscript
    transformers_version unmask_heads unmask_own_heads unmask_task use_bfloat16 use_cache use_return_dict xla_device
    decoder_start_token_id diversity_penalty length_penalty max_length num_beam_groups num_beams num_return_sequences
    repetition_penalty temperature top_k top_p typical_p n_ctx n_special predict_special_tokens
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    """.split()  # noqa: SIM905 (a list of this length, one name a line, hides the page)
)


def table_of(config: Config) -> Table[Any]:
    """The table that a model of this config is written by. Raises UnmaskError where there is none."""
    for table in _tables():
        if not table.obstacles(config):
            return table
    raise UnmaskError(f"There is no Hugging Face table for {type(config).__name__}.")


def _tables() -> list[Table[Any]]:
    return [one for table in TABLES.values() for one in (table, *table.variants)]


def only_here(config: Config) -> str:
    """One sentence on why `transformers` will not open the folder of such a model; empty where it will."""
    if table_of(config).architectures:
        return ""
    published = [table.obstacles(config) for table in _tables() if table.architectures and table.config is type(config)]
    found = min(published, key=len, default=[f"the wiring of {type(config).__name__}"])
    return f"transformers has no model with {' and '.join(found)}: the folder opens in unmask alone."


def require_model(folder: Path) -> None:
    """Raises UnmaskError for a folder without a config.json, saying what it holds instead, and for one in which a file
    of a kind that is read is no regular file."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix in READ:
            regular(path)
    if (folder / "config.json").is_file():
        return
    if not folder.is_dir():
        raise UnmaskError(f"There is no model folder {folder}.")
    if (folder / "vectors.safetensors").is_file():
        raise UnmaskError(f"{folder} holds word vectors, not a model: ask them with `unmask words`.")
    if (folder / "checkpoints").is_dir() or (folder / "run.json").is_file():
        raise UnmaskError(f"{folder} holds a run that has not ended, and no model yet: continue with it by --resume.")
    raise UnmaskError(f"{folder} is not a model folder: it has no config.json.")


def table_for(values: Mapping[str, Any], folder: Path) -> Table[Any]:
    """The table that a config.json is read by. Raises UnmaskError for a model type that no table has."""
    kind = values.get("model_type")
    if not isinstance(kind, str):
        raise UnmaskError(f"{folder / 'config.json'} has no model_type: it is not the configuration of a model.")
    if kind not in TABLES:
        raise unknown(f"reader for the model type of {folder}:", kind, TABLES)
    table = TABLES[kind]
    marked = (one for one in table.variants if one.marks)
    return next((one for one in marked if all(values.get(name) == x for name, x in one.marks.items())), table)


def read_config(table: Table[Page], values: Mapping[str, Any], folder: Path) -> Page:
    """The page's config. A field that is absent means what it means to the reference.

    Raises UnmaskError, naming the file and the field, for a value of another kind, one that the page does not implement
    and a field that it does not know.
    """
    place = folder / "config.json"
    for part in table.parts:
        values = part.read(values, place)
    for name, required in table.fixed.items():
        if values.get(name, required) != required:
            raise UnmaskError(f"{place}: {name} = {values[name]!r} is not supported; only {required!r} is.")
    if values.get("problem_type") not in (None, *PROBLEMS.values()):
        raise UnmaskError(
            f"{place}: problem_type = {values['problem_type']!r} is none of {', '.join(PROBLEMS.values())}."
        )
    for name, value in values.items():
        known = name in table.fields or name in table.fixed or name in IRRELEVANT or name in table.ignored
        name = name if name.isprintable() else ascii(name)
        if not known and value not in (None, False, [], {}, "", 0):
            raise UnmaskError(f"{place}: the field {name} = {value!r} is not one that this model implements.")
    hints = get_type_hints(table.config)
    ours: dict[str, Any] = {}
    for name, its in table.fields.items():
        value = values.get(name, table.absent.get(name))
        if name not in {*values, *table.absent} or (value is None and name in table.nullable):
            continue
        value = typed(value, hints[its], f"{place}: {name}")
        value = value - table.shift[name] if name in table.shift else value
        if ours.setdefault(its, value) != value:
            raise UnmaskError(f"{place}: {name} = {value!r} contradicts another field, which says {ours[its]!r}.")
    if (ours.get("padding") or 0) < 0:
        name = next(name for name, its in table.fields.items() if its == "padding")
        raise UnmaskError(f"{place}: {name} = {values[name]!r} is the id of no token.")
    try:
        return table.config.from_dict({**table.required, **ours})
    except UnmaskError as error:
        raise UnmaskError(f"{place}: {error}") from None


def completed(
    table: Table[Any], config: Any, values: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path
) -> tuple[Table[Any], Any]:
    """The config with what its fields alone do not say, and the table that has the names of such a model's weights.

    values   config.json, as it is stored
    tensors  the weights, under the names of the folder

    Raises UnmaskError where the parts of the table do, and for a value that the page does not take.
    """
    place = folder / "config.json"
    fields: dict[str, Any] = {}
    for part in table.parts:
        fields |= part.deduce(values, tensors, place)
    try:
        config = config.replace(**fields)
    except UnmaskError as error:
        raise UnmaskError(f"{place}: {error}") from None
    return next((one for one in (table, *table.variants) if not one.obstacles(config)), table), config


# Heads that are one class in transformers, apart by `problem_type`; and those that it has no class for.
_ONE_CLASS = {"regression": "classification", "multilabel": "classification"}
_UNKNOWN_THERE = frozenset({"crf", "pairs"})


def published(heads: Set[str]) -> frozenset[str]:
    """Heads of ours as the tables name those of a class of `transformers`."""
    return frozenset(_ONE_CLASS.get(head, head) for head in heads - _UNKNOWN_THERE)


def config_json(table: Table[Any], model: Model, labels: Sequence[str]) -> dict[str, Any]:
    """config.json of a model. Raises UnmaskError for another number of labels than its head has outputs."""
    heads, page = frozenset(model.heads) & table.heads.keys(), model.config
    config = page.to_dict()
    classes = [name for name, has in table.architectures.items() if has == published(heads)][:1]
    if not model.heads and page.pools and model.pooler is None:
        classes = []  # their class for a trunk has a pooler, for which this folder has no weights
    values: dict[str, Any] = {
        "architectures": classes,
        "model_type": table.model_type,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
    }
    values |= {theirs: config[ours] for theirs, ours in table.fields.items()}
    values |= {theirs: values[theirs] + by for theirs, by in table.shift.items()}
    asked = {name: head for name, layer in model.heads.items() if (head := asked_of(layer))}
    for name, outputs in ((name, head.outputs) for name, head in asked.items() if head.has_labels):
        names = list(labels) or _usual_names(name, outputs)
        if len(names) != outputs:
            raise UnmaskError(f"The {name} head has {outputs} outputs but {len(names)} label names were given.")
        values |= {
            "id2label": {str(i): n for i, n in enumerate(names)},
            "label2id": {n: i for i, n in enumerate(names)},
        }
    if "sop" in heads and _outputs(model, "sop") != 2:  # which transformers sizes by the labels, two unless they differ
        values["id2label"] = {str(i): name for i, name in enumerate(_usual_names("sop", _outputs(model, "sop")))}
    for name in asked.keys() & PROBLEMS.keys():
        values["problem_type"] = PROBLEMS[name]
    if not table.kind.heads:
        values["unmask_heads"] = sorted(heads)
    if own := {name: asdict(head) for name, head in asked.items() if name not in heads}:
        values["unmask_own_heads"] = own
    for part in table.parts:
        values = dict(part.write(page, values))
    return values


def own_heads(values: Mapping[str, Any], folder: Path) -> dict[str, Head]:
    """Heads that no table names, by what `config_json` wrote of them. Raises UnmaskError where that is damaged."""
    found = values.get("unmask_own_heads") or {}
    if not isinstance(found, Mapping) or not all(isinstance(fields, Mapping) for fields in found.values()):
        raise UnmaskError(f"{folder / 'config.json'}: unmask_own_heads must map names to what each head answers.")
    hints, heads = get_type_hints(Head), {}
    for name, fields in found.items():
        place = f"{folder / 'config.json'}: unmask_own_heads of {name}"
        if fields.keys() != hints.keys():
            raise UnmaskError(f"{place} must have the fields {', '.join(hints)}.")
        heads[name] = Head(**{key: typed(value, hints[key], f"{place}: {key}") for key, value in fields.items()})
    return heads


def label_names(values: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """Names of the outputs, in their order; none where there is no id2label. Raises UnmaskError where its numbers are
    not those from 0 on."""
    names = values.get("id2label") or {}
    try:
        numbered = {int(number): str(name) for number, name in names.items()}
    except (ValueError, AttributeError):
        raise UnmaskError(f"{folder / 'config.json'}: id2label must map numbers to label names.") from None
    if sorted(numbered) != list(range(len(names))):
        raise UnmaskError(f"{folder / 'config.json'}: id2label must number its {len(names)} labels from 0 on.")
    return tuple(numbered[i] for i in range(len(numbered)))


def _usual_names(head: str, outputs: int) -> list[str]:
    """Names for the outputs of a head without names."""
    if head == "regression" and outputs == 1:
        return ["score"]
    return [f"LABEL_{i}" for i in range(outputs)]


def _outputs(model: Model, head: str) -> int:
    return int(model.heads[head].get_submodule("output").get_parameter("weight").shape[0])
