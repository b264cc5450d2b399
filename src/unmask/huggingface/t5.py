"""Folders of T5, versions 1.0 and 1.1: fields and weights, read and written both ways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.config import Config, typed
from unmask.errors import UnmaskError, unknown
from unmask.huggingface.config import read_config
from unmask.huggingface.table import Table
from unmask.huggingface.tables.t5 import T5_GATED, T5_PLAIN
from unmask.huggingface.weights import rename, rules_of
from unmask.models.encoder_decoder import EncoderDecoder
from unmask.models.t5 import T5
from unmask.nn import ACTIVATIONS, FEEDFORWARDS

MODEL_TYPES = (T5_PLAIN.model_type,)
OUTPUT, SHARED = "lm_head.weight", "shared.weight"
OWN = ("length",)
"""Fields that T5's config.json has no place for; it holds them as `unmask_config`."""

# Fields of T5 folders, old and new, that change no number of the forward pass, or are said by others.
IRRELEVANT = frozenset(
    """
    classifier_dropout n_positions output_past position_embedding_type scale_decoder_outputs tie_word_embeddings
    """.split()  # noqa: SIM905 (as in config.py)
)


def obstacles(config: Config) -> list[str]:
    """What keeps a model from being written as a T5 folder; empty where nothing does."""
    return [] if type(config) is T5 else [f"the wiring of {type(config).__name__}"]


# ---------------------------------------------------------------------------------------------------------- fields


def write_fields(config: Config) -> dict[str, Any]:
    """config.json of a model, but for the type of its numbers.

    To `transformers` before version 5, `tie_word_embeddings` alone says whether the output is scaled; since then,
    `scale_decoder_outputs` does, and what the weights hold says whether it is tied.
    """
    assert isinstance(config, T5)
    ours = config.to_dict()
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": T5_PLAIN.model_type,
        **{theirs: ours[name] for theirs, name in T5_PLAIN.fields.items()},
        **T5_PLAIN.fixed,
        "tie_word_embeddings": config.output == "scaled",
        "scale_decoder_outputs": config.output == "scaled",
        "use_cache": True,
        "unmask_config": {name: ours[name] for name in OWN},
    }


def read_fields(values: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> T5:
    """The config of a T5 folder; whether its output has a table of its own, only the weights say.

    Raises UnmaskError for a field that is unknown, or asks for what this T5 does not do.
    """
    place = folder / "config.json"
    tied = values.get("tie_word_embeddings") is not False
    scaled = values.get("scale_decoder_outputs", tied)
    output = "untied" if _own_output(tensors, tied) else "scaled" if scaled else "tied"
    if output == "untied" and scaled:
        raise UnmaskError(f"{place}: an output that is scaled but not tied is not supported; is {OUTPUT} damaged?")
    values = {name: value for name, value in values.items() if name not in IRRELEVANT}
    own = values.pop("unmask_config", None) or {}
    values["feed_forward_proj"] = _feedforward(values, place)
    if values.get("num_decoder_layers") is None:
        values["num_decoder_layers"] = values.get("num_layers", T5().encoder_layers)
    config = read_config(T5_PLAIN, values, folder)
    assert isinstance(config, T5)
    if not isinstance(own, Mapping):
        raise UnmaskError(f"{place}: unmask_config must hold fields, not {own!r}.")
    for name in own.keys() - set(OWN):
        raise unknown(f"field of unmask_config in {place}:", name, OWN)
    try:
        return config.replace(**own, output=output)
    except UnmaskError as error:
        raise UnmaskError(f"{place}: {error}") from None


def _feedforward(values: dict[str, Any], place: Path) -> str:
    """Our name of the feed-forward layer; takes the fields `dense_act_fn` and `is_gated_act` out of the values.

    `feed_forward_proj` says both, with "gated-gelu" for GELU by a tanh; either of the two goes before what it says, as
    in `transformers`. Raises UnmaskError for a layer that there is not.
    """
    said = typed(values.get("feed_forward_proj", "relu"), str, f"{place}: feed_forward_proj")
    kind, _, activation = said.rpartition("-")
    if kind not in ("", "gated"):
        raise unknown(f"feed_forward_proj of {place}:", said, FEEDFORWARDS)
    activation = "gelu_new" if said == "gated-gelu" else activation
    activation = typed(values.pop("dense_act_fn", activation), str, f"{place}: dense_act_fn")
    gated = typed(values.pop("is_gated_act", bool(kind)), bool, f"{place}: is_gated_act")
    if activation not in ACTIVATIONS:
        raise unknown(f"activation of the feed-forward layer in {place}:", activation, ACTIVATIONS)
    if not gated:
        return activation
    return "gated-" + {"gelu": "gelu_python", "gelu_new": "gelu"}.get(activation, activation)


def _own_output(tensors: Mapping[str, Tensor], tied: bool) -> bool:
    """Whether the output is more than a copy of the token vectors."""
    if OUTPUT not in tensors:
        return False
    return not tied or SHARED not in tensors or not torch.equal(tensors[OUTPUT], tensors[SHARED])


# ---------------------------------------------------------------------------------------------------------- weights


def _table(config: Config) -> Table[T5]:
    assert isinstance(config, T5)
    return T5_GATED if config.feedforward.startswith("gated") else T5_PLAIN


def names(model: EncoderDecoder) -> dict[str, str]:
    """Our name of each parameter -> its name in the folder."""
    rules = rules_of(_table(model.config), ["next"], pooler=False)
    return {ours: rename(ours, rules, 0) or ours for ours, _ in model.named_parameters()}


def export(model: EncoderDecoder) -> dict[str, Tensor]:
    """The weights as a T5 folder has them, each once."""
    parameters = dict(model.named_parameters())
    return {theirs: parameters[ours].detach() for ours, theirs in names(model).items()}


def restore(config: Config, tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The weights that are to fill a model, under their names in the folder: what is stored twice or never read is
    gone. Raises UnmaskError where copies of the token vectors differ."""
    assert isinstance(config, T5)
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # of the first conversions
    out = {key: tensor for key, tensor in tensors.items() if key != unread}
    copies = dict(T5_PLAIN.copies) | ({} if config.output == "untied" else {OUTPUT: SHARED})
    for copy, original in copies.items():
        if copy in out:
            found = out.pop(copy)
            if not torch.equal(out.setdefault(original, found), found):
                raise UnmaskError(f"{folder}: '{copy}' differs from '{original}', but this model ties the two.")
    return out
