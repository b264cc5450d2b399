"""config.json of a Hugging Face folder: converted to the config of a page and back. An unknown field is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from torch import Tensor

from unmask.config import Config, read_json, regular, typed
from unmask.errors import UnmaskError, nearest, unknown
from unmask.files import MANIFEST
from unmask.huggingface.table import Page, Table
from unmask.huggingface.tables import (
    albert,
    bert,
    captioner,
    cct,
    convs2s,
    cpc,
    ecg_cnn,
    electra,
    elmo,
    gpt,
    han,
    log_mel,
    mae,
    marian,
    mfcc_cnn,
    mina,
    mobilebert,
    modernbert,
    pegasus,
    recurrent,
    resnet,
    seq2seq,
    signal_cpc,
    signal_recurrent,
    signal_transformer,
    swin,
    t5,
    transformer,
    transformer_xl,
    vector_decoder,
    vgg,
    vit,
    wav2vec2,
    wavenet,
)
from unmask.models.heads import asked_of
from unmask.models.model import Model
from unmask.types import Head

PROBLEMS = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
"""Head -> its `problem_type` in config.json."""

TABLES: dict[str, Table[Any]] = {
    table.model_type: table
    for table in (
        bert.BERT,
        bert.ROBERTA,
        albert.ALBERT,
        electra.ELECTRA,
        mobilebert.MOBILEBERT,
        mobilebert.IB_BERT,
        modernbert.MODERNBERT,
        elmo.ELMO,
        gpt.GPT,
        gpt.GPT2,
        recurrent.RECURRENT,
        recurrent.SHARED,
        han.HAN,
        transformer_xl.TRANSFORMER_XL,
        vit.VIT,
        vit.DEIT,
        mae.MAE,
        swin.SWIN,
        resnet.RESNET,
        resnet.SMALL_STEM,
        vgg.VGG,
        cct.CCT,
        mfcc_cnn.MFCC_CNN,
        log_mel.LOG_MEL,
        wav2vec2.WAV2VEC2,
        wav2vec2.HUBERT,
        cpc.CPC,
        wavenet.WAVENET,
        mina.MINA,
        ecg_cnn.ECG_CNN,
        signal_recurrent.SIGNAL_RECURRENT,
        signal_cpc.SIGNAL_CPC,
        signal_transformer.SIGNAL_TRANSFORMER,
        pegasus.PEGASUS,
        marian.MARIAN,
        t5.T5_PLAIN,
        transformer.TRANSFORMER,
        seq2seq.SEQ2SEQ,
        convs2s.CONVS2S,
        vector_decoder.VECTOR_DECODER,
        captioner.PUBLISHED,
        captioner.OWN,
    )
}
"""Model type -> table. The first table without an obstacle writes a model."""

READ = frozenset({".json", ".model", ".safetensors", ".spm", ".txt"})
"""Endings of the files that are read when a folder is opened."""

WEIGHTS = "model*.safetensors"
"""The files of weights; an exported folder has none."""

# Fields of config.json that do not change the outputs of an encoder: bookkeeping, return values, text generation.
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
    """.split()  # noqa: SIM905 (one name per line would take a page)
)


def table_of(config: Config) -> Table[Any]:
    """The table that writes a model of this config. Raises UnmaskError if there is none."""
    for table in _tables():
        if not table.obstacles(config):
            return table
    raise UnmaskError(f"There is no Hugging Face table for {type(config).__name__}.")


def page_named(name: str) -> type[Any] | None:
    """The config class of a page by its name, as in run.json; None if no table has it."""
    return next((table.config for table in TABLES.values() if table.config.__name__ == name), None)


def _tables() -> list[Table[Any]]:
    return [one for table in TABLES.values() for one in (table, *table.variants)]


def only_here(config: Config) -> str:
    """One sentence on why `transformers` cannot open the folder of such a model; empty if it can."""
    if table_of(config).architectures:
        return ""
    published = [table.obstacles(config) for table in _tables() if table.architectures and table.config is type(config)]
    found = min(published, key=len, default=[f"the wiring of {type(config).__name__}"])
    return f"transformers has no model with {' and '.join(found)}: only unmask can open the folder."


def require_model(folder: Path) -> None:
    """Raises UnmaskError for a folder without a config.json, with what it holds instead, and for a folder in which a
    name with an ending of READ is not a regular file."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix in READ:
            regular(path)
    if (folder / "config.json").is_file():
        return
    if not folder.is_dir():
        raise UnmaskError(f"There is no model folder {folder}{_instead_of(folder)}")
    if (folder / "vectors.safetensors").is_file():
        raise UnmaskError(f"{folder} holds word vectors, not a model: query them with `unmask words`.")
    if (folder / MANIFEST).is_file() and str(read_json(folder / MANIFEST).get("format")).startswith("unmask-"):
        command = f"unmask pretrain RECIPE --corpus {folder}"
        raise UnmaskError(f"{folder} is a corpus, not a model: train a model on it with {command}.")
    if (folder / "checkpoints").is_dir() or (folder / "run.json").is_file():
        raise UnmaskError(f"{folder} holds an unfinished run, and no model yet: continue it with --resume.")
    inside = [path.parent for path in sorted(folder.glob("*/config.json"))]
    hint = f" {inside[0]} has one." if inside else ""
    raise UnmaskError(f"{folder} is not a model folder: it has no config.json.{hint}")


def _instead_of(folder: Path) -> str:
    """The end of the sentence on a missing model folder: a model folder with a similar name, or how one is made."""
    beside = {path.parent.name for path in folder.parent.glob("*/config.json") if any(path.parent.glob(WEIGHTS))}
    if meant := nearest(folder.name, sorted(beside)):
        return f"; did you mean {folder.parent / meant}?"
    return ": unmask pretrain, finetune and train write one into --out."


def table_for(values: Mapping[str, Any], folder: Path) -> Table[Any]:
    """The table that reads a config.json. Raises UnmaskError for a model type without a table."""
    kind = values.get("model_type")
    if not isinstance(kind, str):
        raise UnmaskError(f"{folder / 'config.json'} has no model_type: it does not describe a model.")
    if kind not in TABLES:
        raise unknown(f"reader for the model type of {folder}:", kind, TABLES)
    table = TABLES[kind]
    marked = (one for one in table.variants if one.marks)
    return next((one for one in marked if all(values.get(name) == x for name, x in one.marks.items())), table)


def read_config(table: Table[Page], values: Mapping[str, Any], folder: Path) -> Page:
    """The page's config. An absent field has the default of the reference.

    Raises UnmaskError, with the file and the field, for a value of the wrong type, a value that the page does not
    implement, and an unknown field.
    """
    place = folder / "config.json"
    for part in table.parts:
        values = part.read(values, place)
    for name, required in table.fixed.items():
        if values.get(name, required) != required:
            raise UnmaskError(f"{place}: {name} = {values[name]!r} is not supported; only {required!r} is.")
    if values.get("problem_type") not in (None, *PROBLEMS.values()):
        raise UnmaskError(
            f"{place}: problem_type = {values['problem_type']!r} is not one of {', '.join(PROBLEMS.values())}."
        )
    for name, value in values.items():
        known = name in table.fields or name in table.fixed or name in IRRELEVANT or name in table.ignored
        name = name if name.isprintable() else ascii(name)
        if not known and value not in (None, False, [], {}, "", 0):
            raise UnmaskError(f"{place}: this model does not implement the field {name} = {value!r}.")
    hints = get_type_hints(table.config)
    ours: dict[str, Any] = {}
    for name, its in table.fields.items():
        value = values.get(name, table.absent.get(name))
        if name not in {*values, *table.absent} or (value is None and name in table.nullable):
            continue
        value = typed(value, hints[its], f"{place}: {name}")
        value = value - table.shift[name] if name in table.shift else value
        if ours.setdefault(its, value) != value:
            raise UnmaskError(f"{place}: {name} = {value!r} contradicts another field, which has {ours[its]!r}.")
    if (ours.get("padding") or 0) < 0:
        name = next(name for name, its in table.fields.items() if its == "padding")
        raise UnmaskError(f"{place}: {name} = {values[name]!r} is negative, and not the id of a token.")
    try:
        return table.config.from_dict({**table.required, **ours})
    except UnmaskError as error:
        raise UnmaskError(f"{place}: {error}") from None


def completed(
    table: Table[Any], config: Any, values: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path
) -> tuple[Table[Any], Any]:
    """The variant of the table for the weights, and the config, completed by the parts of the table (`Part.deduce`).

    values   config.json, as it is stored
    tensors  the weights, under the names of the folder

    Raises UnmaskError as the parts do, and for a value that the page does not accept.
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


# Heads that share a class in transformers and differ by `problem_type`; heads that have no class in transformers.
_ONE_CLASS = {"regression": "classification", "multilabel": "classification"}
_UNKNOWN_THERE = frozenset({"crf", "pairs"})


def published(heads: Set[str]) -> frozenset[str]:
    """The names of these heads in `Table.architectures`, without heads that no class of `transformers` has."""
    return frozenset(_ONE_CLASS.get(head, head) for head in heads - _UNKNOWN_THERE)


def unpublished(heads: Iterable[str]) -> frozenset[str]:
    """Those of some heads that no class of `transformers` has, although it opens the folder."""
    return _UNKNOWN_THERE.intersection(heads)


def config_json(table: Table[Any], model: Model, labels: Sequence[str]) -> dict[str, Any]:
    """config.json of a model. Raises UnmaskError if the number of labels differs from the outputs of the head."""
    heads, page = frozenset(model.heads) & table.heads.keys(), model.config
    config = page.to_dict()
    classes = [name for name, has in table.architectures.items() if has == published(heads)][:1]
    if not model.heads and page.pools and model.pooler is None:
        classes = []  # the trunk's class in transformers has a pooler, and this folder has no weights for it
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
            raise UnmaskError(f"The {name} head has {outputs} outputs, but there are {len(names)} label names.")
        values |= {
            "id2label": {str(i): n for i, n in enumerate(names)},
            "label2id": {n: i for i, n in enumerate(names)},
        }
    if "sop" in heads and _outputs(model, "sop") != 2:  # transformers takes this size from id2label, by default 2
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
    """The heads that no table names, as `config_json` described them. Raises UnmaskError if that field is damaged."""
    found = values.get("unmask_own_heads") or {}
    if not isinstance(found, Mapping) or not all(isinstance(fields, Mapping) for fields in found.values()):
        raise UnmaskError(f"{folder / 'config.json'}: unmask_own_heads must map the name of each head to its fields.")
    hints, heads = get_type_hints(Head), {}
    for name, fields in found.items():
        place = f"{folder / 'config.json'}: unmask_own_heads of {name}"
        if fields.keys() != hints.keys():
            raise UnmaskError(f"{place} must have the fields {', '.join(hints)}.")
        heads[name] = Head(**{key: typed(value, hints[key], f"{place}: {key}") for key, value in fields.items()})
    return heads


def label_names(values: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """Names of the outputs, in their order; empty without the field id2label. Raises UnmaskError if its keys are not
    the numbers 0, 1, ..."""
    names = values.get("id2label") or {}
    try:
        numbered = {int(number): str(name) for number, name in names.items()}
    except (ValueError, AttributeError):
        raise UnmaskError(f"{folder / 'config.json'}: id2label must map numbers to label names.") from None
    if sorted(numbered) != list(range(len(names))):
        raise UnmaskError(f"{folder / 'config.json'}: id2label must number its {len(names)} labels from 0.")
    return tuple(numbered[i] for i in range(len(numbered)))


def labels_of(table: Table[Any], values: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """Names of the outputs, in their order: those of a file of the folder, else those of config.json."""
    named = (tuple(part.labels(values, folder)) for part in table.parts)
    return next(filter(None, named), None) or label_names(values, folder)


def renamed(heads: Mapping[str, Head], labels: Sequence[str], outputs: Sequence[str]) -> set[str]:
    """The heads whose outputs get other names than the labels of a folder. Default labels are no names."""
    if not labels or not outputs or list(labels) in (list(outputs), _usual_names("", len(labels))):
        return set()
    return {name for name, head in heads.items() if head.has_labels}


def _usual_names(head: str, outputs: int) -> list[str]:
    """Default names of the outputs of a head."""
    if head == "regression" and outputs == 1:
        return ["score"]
    return [f"LABEL_{i}" for i in range(outputs)]


def _outputs(model: Model, head: str) -> int:
    return int(model.heads[head].get_submodule("output").get_parameter("weight").shape[0])
