"""Folders of Marian and Pegasus, the Transformers of `transformers` with norms after and before the sub-layers: fields
and weights, read and written both ways.

Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.config import Config
from unmask.errors import UnmaskError, unknown
from unmask.huggingface.config import read_config
from unmask.huggingface.searching import POSITIONS
from unmask.huggingface.table import Table
from unmask.huggingface.weights import rename, rules_of
from unmask.models.sequence import EncoderDecoder
from unmask.models.transformer import Transformer
from unmask.nn import Sinusoidal, SinusoidalHalves

# ---------------------------------------------------------------------------------------------------------- names

_FIELDS = {
    "vocab_size": "vocabulary",
    "d_model": "dim",
    **{
        f"{side}_{theirs}": f"{side}_{ours}"
        for side in ("encoder", "decoder")
        for theirs, ours in (("layers", "layers"), ("attention_heads", "heads"), ("ffn_dim", "hidden"))
    },
    "max_position_embeddings": "length",
    "activation_function": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "hidden_dropout",
    "scale_embedding": "scale_embedding",
    "init_std": "std",
    "pad_token_id": "padding",
    "decoder_start_token_id": "start",
    "eos_token_id": "end",
}
_FIXED = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
_ABSENT = {
    **{f"{side}_layers": 12 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 16 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 4_096 for side in ("encoder", "decoder")},
    "d_model": 1_024,
    "max_position_embeddings": 1_024,
    "activation_function": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "scale_embedding": False,
    "init_std": 0.02,
}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def _blocks(side: str, norm: str, *attentions: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    ours, theirs = side + ".blocks.{}.", f"model.{side}.layers." + "{}."
    parts = [
        *((f"{a}.f.{part}", f"{b}.{name}") for a, b in attentions for part, name in _PROJECTIONS.items()),
        *((f"{a}.{norm}", f"{b}_layer_norm") for a, b in attentions),
        ("feedforward.f.up", "fc1"),
        ("feedforward.f.down", "fc2"),
        (f"feedforward.{norm}", "final_layer_norm"),
    ]
    return tuple((ours + a, theirs + b) for a, b in parts)


def _stacks(norm: str) -> tuple[tuple[str, str], ...]:
    """Names of both stacks, whose norms stand `before` or `after` the sub-layers."""
    attention = ("attention", "self_attn")
    return (*_blocks("encoder", norm, attention), *_blocks("decoder", norm, attention, ("cross", "encoder_attn")))


_FINAL_NORMS = tuple((f"{side}.norm", f"model.{side}.layer_norm") for side in ("encoder", "decoder"))

MARIAN = Table(
    model_type="marian",
    config=Transformer,
    prefix="model.",
    fields=_FIELDS,
    fixed={**_FIXED, "share_encoder_decoder_embeddings": True},
    trunk=(("source.token", "model.shared"), *_stacks("after")),
    pooler=(),
    heads={"next": (("heads.next.bias", "final_logits_bias"),)},
    architectures={"MarianMTModel": frozenset({"next"}), "MarianModel": frozenset({"next"})},
    copies=dict.fromkeys(
        ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
        "model.shared.weight",
    ),
    absent={
        **_ABSENT,
        **{"vocab_size": 58_101, "pad_token_id": 58_100, "decoder_start_token_id": 58_100, "eos_token_id": 0},
    },
    nullable=frozenset(),
)
"""One vocabulary and one table of token vectors."""

APART = replace(
    MARIAN,
    fields={**_FIELDS, "vocab_size": "source_vocabulary", "decoder_vocab_size": "vocabulary"},
    fixed={**_FIXED, "share_encoder_decoder_embeddings": False},
    trunk=(
        ("source.token", "model.encoder.embed_tokens"),
        ("target.token", "model.decoder.embed_tokens"),
        *_stacks("after"),
    ),
    copies={"lm_head.weight": "model.decoder.embed_tokens.weight"},
)
"""A vocabulary and a table for each side."""

PEGASUS = replace(
    MARIAN,
    model_type="pegasus",
    fixed={**_FIXED, "normalize_before": True, "add_final_layer_norm": True},
    trunk=(("source.token", "model.shared"), *_stacks("before"), *_FINAL_NORMS),
    architectures={"PegasusForConditionalGeneration": frozenset({"next"}), "PegasusModel": frozenset({"next"})},
    absent={**_ABSENT, "vocab_size": 50_265, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1},
)
"""The same with norms before the sub-layers (Zhang et al. 2020, in the form of `transformers`)."""

NORMS = {MARIAN.model_type: "post", PEGASUS.model_type: "pre"}
MODEL_TYPES = tuple(NORMS)

REQUIRED = {"positions": "halves", "eps": 1e-5}
"""Fields of a Transformer that both have no choice about."""

OWN = ("length", "std", "output_bias")
"""Fields that their config.json cannot say in full; it holds them once more, as `unmask_config`."""

STD = 0.02  # what is written where we have None
BIAS = "final_logits_bias"

# Fields of such folders, old and new, that change no number of the forward pass: bookkeeping, and how to search.
IRRELEVANT = frozenset(
    """
    _num_labels bad_words_ids classif_dropout do_sample early_stopping encoder_no_repeat_ngram_size extra_pos_embeddings
    force_bos_token_to_be_generated forced_bos_token_id forced_eos_token_id min_length no_repeat_ngram_size
    classifier_dropout position_embedding_type renormalize_logits unk_token_id
    """.split()  # noqa: SIM905 (as in config.py)
)


def obstacles(config: Config) -> list[str]:
    """What keeps a model from being written as such a folder; empty where nothing does."""
    if type(config) is not Transformer:
        return [f"the wiring of {type(config).__name__}"]
    required = REQUIRED | ({"source_vocabulary": None} if config.norm == "pre" else {})
    return [f"{name} = {getattr(config, name)!r}" for name, value in required.items() if getattr(config, name) != value]


# ---------------------------------------------------------------------------------------------------------- fields


def write_fields(config: Config) -> dict[str, Any]:
    """config.json of a model without obstacles, but for the type of its numbers."""
    assert isinstance(config, Transformer)
    table = _table(config)
    ours = config.to_dict()
    ours |= {"length": config.length or POSITIONS, "std": STD if config.std is None else config.std}
    marians = {"decoder_vocab_size": config.vocabulary, "num_hidden_layers": config.encoder_layers}
    return {
        "architectures": [next(iter(table.architectures))],
        "model_type": table.model_type,
        **{theirs: ours[name] for theirs, name in table.fields.items()},
        **table.fixed,
        **({} if table is PEGASUS else marians),
        "bos_token_id": None,
        "forced_eos_token_id": None,
        "use_cache": True,
        "unmask_config": {name: getattr(config, name) for name in OWN},
    }


def read_fields(values: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> Transformer:
    """The config of a folder; whether its output has a bias, only the weights of a foreign folder say.

    Raises UnmaskError for a field that is unknown, or asks for what the Transformer does not do.
    """
    place = folder / "config.json"
    norm = NORMS[str(values["model_type"])]
    values = {name: value for name, value in values.items() if name not in IRRELEVANT}
    own = values.pop("unmask_config", None) or {}
    shared = bool(values.get("share_encoder_decoder_embeddings", True))
    table = PEGASUS if norm == "pre" else MARIAN if shared else APART
    size = values.get("vocab_size", table.absent["vocab_size"])
    written = values.pop("decoder_vocab_size", None) or size
    if table is APART:
        values["decoder_vocab_size"] = written
    elif written != size:
        raise UnmaskError(
            f"{place}: one table of vectors cannot have vocab_size {size!r} for the source and decoder_vocab_size "
            f"{written!r} for the target."
        )
    layers, other = values.get("encoder_layers", table.absent["encoder_layers"]), values.pop("num_hidden_layers", None)
    if other not in (None, layers):  # to `transformers`, another name of the same
        raise UnmaskError(
            f"{place}: num_hidden_layers is {other!r}, but encoder_layers {layers!r}; make the two agree."
        )
    config = read_config(table, values, folder)
    assert isinstance(config, Transformer)
    bias = tensors.get(BIAS)
    config = config.replace(**REQUIRED, norm=norm, output_bias=bias is not None and bool(bias.any()))
    if not isinstance(own, Mapping):
        raise UnmaskError(f"{place}: unmask_config must hold fields, not {own!r}.")
    for name in own.keys() - set(OWN):
        raise unknown(f"field of unmask_config in {place}:", name, OWN)
    try:
        return config.replace(**own)
    except UnmaskError as error:
        raise UnmaskError(f"{place}: {error}") from None


def _table(config: Transformer) -> Table:
    if config.norm == "pre":
        return PEGASUS
    return MARIAN if config.source_vocabulary is None else APART


# ---------------------------------------------------------------------------------------------------------- weights


def names(model: EncoderDecoder) -> dict[str, str]:
    """Our name of each parameter -> its name in the folder."""
    assert isinstance(model.config, Transformer)
    rules = rules_of(_table(model.config), ["next"], pooler=False)
    return {ours: rename(ours, rules, 0) or ours for ours, _ in model.named_parameters()}


def export(model: EncoderDecoder) -> dict[str, Tensor]:
    """The weights as a folder has them: each once, and a bias [1, V] of the output, zeros if none; of Pegasus the
    sinusoids [length, D], too."""
    assert isinstance(model.config, Transformer)
    parameters = dict(model.named_parameters())
    tensors = {theirs: parameters[ours].detach() for ours, theirs in names(model).items()}
    zeros_V = next(iter(tensors.values())).new_zeros(model.config.vocabulary)
    tensors = {**tensors, BIAS: tensors.get(BIAS, zeros_V)[None]}
    if _table(model.config) is PEGASUS:
        table = torch.zeros(1, model.config.length or POSITIONS, model.config.dim)
        sinusoids = SinusoidalHalves(model.config.dim).embed(table)[0].to(zeros_V.dtype)
        tensors |= {f"model.{side}.embed_positions.weight": sinusoids.clone() for side in ("encoder", "decoder")}
    return tensors


def restore(config: Config, tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The weights that are to fill a model, under their names in the folder: what is stored twice or computed is gone.

    Raises UnmaskError where copies of the token vectors differ, and where positions are not the sinusoids.
    """
    assert isinstance(config, Transformer)
    table = _table(config)
    bare = not any(key.startswith(table.prefix) for key in tensors)  # a MarianModel or PegasusModel, without its output
    prefix = table.prefix if bare else ""
    out = {key if key == BIAS or key.startswith("lm_head.") else prefix + key: x for key, x in tensors.items()}
    for side in ("encoder", "decoder"):
        _check_sinusoids(out.pop(f"model.{side}.embed_positions.weight", None), folder)
    for copy, original in table.copies.items():
        if copy in out:
            found = out.pop(copy)
            if not torch.equal(out.setdefault(original, found), found):
                raise UnmaskError(f"{folder}: '{copy}' differs from '{original}', but this model ties the two.")
    if BIAS in out:
        out[BIAS] = out[BIAS].flatten()
        if not config.output_bias:
            del out[BIAS]
    return out


def _check_sinusoids(stored: Tensor | None, folder: Path) -> None:
    """Raises UnmaskError for a table that is not the sinusoids that the model computes, but for the rounding of the
    numbers it is stored in. In float32, version 0.1 rounded the angles too."""
    if stored is None:
        return
    sinusoids, empty = SinusoidalHalves(stored.shape[-1]), torch.zeros(1, *stored.shape)
    kind = stored.dtype if stored.is_floating_point() and stored.dtype.itemsize == 2 else torch.float32
    for table in (sinusoids.embed(empty)[0], Sinusoidal.embed(sinusoids, empty)[0]):
        if torch.allclose(stored.double(), table.double(), rtol=0.0, atol=torch.finfo(kind).eps):
            return
    raise UnmaskError(f"{folder}: the weights hold positions that are not sinusoids in halves, which is not supported.")
