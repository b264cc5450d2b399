"""Names of Marian, and the conversions of folders for all encoder–decoders of `transformers` with this architecture.

Shapes: V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.huggingface.kinds import ENCODER_DECODER
from unmask.huggingface.parts import DtypeLast, Own, Written
from unmask.huggingface.processors import SIDES
from unmask.huggingface.searching import POSITIONS, Searched
from unmask.huggingface.table import Part, Table
from unmask.models.transformer import Transformer
from unmask.nn import Sinusoidal, SinusoidalHalves

FIELDS = {
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
FIXED = {
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
ABSENT = {
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


def stacks(norm: str) -> tuple[tuple[str, str], ...]:
    """Names of both stacks, with norms `before` or `after` the sub-layers."""
    attention = ("attention", "self_attn")
    return (*_blocks("encoder", norm, attention), *_blocks("decoder", norm, attention, ("cross", "encoder_attn")))


STD = 0.02  # written if the page's config has None
BIAS = "final_logits_bias"

# Fields of old and new folders that do not change the forward pass: bookkeeping and search settings.
IGNORED = frozenset(
    """
    _num_labels bad_words_ids classif_dropout do_sample early_stopping encoder_no_repeat_ngram_size extra_pos_embeddings
    force_bos_token_to_be_generated forced_bos_token_id forced_eos_token_id min_length no_repeat_ngram_size
    classifier_dropout position_embedding_type renormalize_logits unk_token_id
    """.split()  # noqa: SIM905 (as in config.py)
)


@dataclass(frozen=True)
class Sizes(Part):
    """Checks sizes that a folder gives in two fields, and writes sizes that a folder needs even if the page has None.

    vocabulary  V of a folder without the field
    shared      whether both sides share one vocabulary
    """

    vocabulary: int
    shared: bool = True

    def read(self, values: Mapping[str, Any], place: Path) -> Mapping[str, Any]:
        values = dict(values)
        size = values.get("vocab_size", self.vocabulary)
        written = values.pop("decoder_vocab_size", None) or size
        if not self.shared:
            values["decoder_vocab_size"] = written
        elif written != size:
            raise UnmaskError(
                f"{place}: one table of vectors cannot have vocab_size {size!r} for the source and decoder_vocab_size "
                f"{written!r} for the target."
            )
        layers, other = values.get("encoder_layers", ABSENT["encoder_layers"]), values.pop("num_hidden_layers", None)
        if other not in (None, layers):  # in `transformers`, another name of encoder_layers
            raise UnmaskError(
                f"{place}: num_hidden_layers is {other!r}, but encoder_layers is {layers!r}; make the two agree."
            )
        return values

    def write(self, config: Transformer, values: Mapping[str, Any]) -> Mapping[str, Any]:
        std = STD if config.std is None else config.std
        return {**values, "max_position_embeddings": config.length or POSITIONS, "init_std": std}


class SizesTwice(Sizes):
    """`Sizes` that writes both fields."""

    def write(self, config: Transformer, values: Mapping[str, Any]) -> Mapping[str, Any]:
        other = {"decoder_vocab_size": config.vocabulary, "num_hidden_layers": config.encoder_layers}
        return {**super().write(config, values), **other}


class OutputBias(Part):
    """The bias [1, V] of the output, which every folder has; zeros if the model has no bias."""

    def deduce(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], place: Path) -> Mapping[str, Any]:
        bias = tensors.get(BIAS)
        return {"output_bias": bias is not None and bool(bias.any())}

    def restore(self, config: Transformer, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        out = dict(tensors)
        bias = out.pop(BIAS, None)
        return out if bias is None or not config.output_bias else {**out, BIAS: bias.flatten()}

    def store(self, config: Transformer, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        zeros_V = next(iter(tensors.values())).new_zeros(config.vocabulary)
        return {**tensors, BIAS: tensors.get(BIAS, zeros_V)[None]}


@dataclass(frozen=True)
class Sinusoids(Part):
    """Tables of sinusoidal positions [length, D]: checked in a folder, but the model computes them.

    written  whether `store` adds them to the folder
    """

    written: bool = False
    names = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))

    def restore(self, config: Transformer, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        for name in self.names:
            _check_sinusoids(tensors.get(name), folder)
        return {name: tensor for name, tensor in tensors.items() if name not in self.names}

    def computed(self) -> Sequence[str]:
        return self.names

    def store(self, config: Transformer, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if not self.written:
            return tensors
        empty = torch.zeros(1, config.length or POSITIONS, config.dim)
        sinusoids = SinusoidalHalves(config.dim).embed(empty)[0].to(next(iter(tensors.values())).dtype)
        return {**tensors, **{name: sinusoids.clone() for name in self.names}}


def _check_sinusoids(stored: Tensor | None, folder: Path) -> None:
    """Raises UnmaskError for a table that differs from the model's sinusoids by more than the rounding of its dtype.
    Version 0.1 computed the angles in float32; such tables are accepted too."""
    if stored is None:
        return
    sinusoids, empty = SinusoidalHalves(stored.shape[-1]), torch.zeros(1, *stored.shape)
    kind = stored.dtype if stored.is_floating_point() and stored.dtype.itemsize == 2 else torch.float32
    for table in (sinusoids.embed(empty)[0], Sinusoidal.embed(sinusoids, empty)[0]):
        if torch.allclose(stored.double(), table.double(), rtol=0.0, atol=torch.finfo(kind).eps):
            return
    raise UnmaskError(
        f"{folder}: the position table is not sinusoids in halves (sines, then cosines), which is required."
    )


def parts(sizes: Sizes, fixed: Mapping[str, object], *, positions: bool = False) -> tuple[Part, ...]:
    """The parts of such a table. `positions` is whether its folders store the position tables."""
    nothing = {"bos_token_id": None, "forced_eos_token_id": None, "use_cache": True}
    own = Own(("length", "std", "output_bias"))
    return (
        *(Written(fixed), sizes, OutputBias(), Sinusoids(positions), Written(nothing), own, DtypeLast(), Searched()),
    )


REQUIRED: dict[str, object] = {"positions": "halves", "eps": 1e-5, "source_vocabulary": None}
"""Fields of a Transformer with only one value in such folders."""

_SHARED = {**FIXED, "share_encoder_decoder_embeddings": True}
_APART = {**FIXED, "share_encoder_decoder_embeddings": False}
_V = 58_101

_ONE = Table(
    model_type="marian",
    config=Transformer,
    prefix="model.",
    fields=FIELDS,
    fixed=_SHARED,
    trunk=(("source.token", "model.shared"), *stacks("after")),
    pooler=(),
    heads={"next": (("heads.next.bias", BIAS),)},
    architectures={"MarianMTModel": frozenset({"next"}), "MarianModel": frozenset({"next"})},
    copies=dict.fromkeys(
        ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
        "model.shared.weight",
    ),
    absent={
        **ABSENT,
        **{"vocab_size": _V, "pad_token_id": 58_100, "decoder_start_token_id": 58_100, "eos_token_id": 0},
    },
    nullable=frozenset(),
    ignored=IGNORED,
    required={**REQUIRED, "norm": "post"},
    parts=parts(SizesTwice(_V), _SHARED),
    kind=ENCODER_DECODER,
    processor=SIDES,
)

APART = replace(
    _ONE,
    fields={**FIELDS, "vocab_size": "source_vocabulary", "decoder_vocab_size": "vocabulary"},
    fixed=_APART,
    trunk=(
        ("source.token", "model.encoder.embed_tokens"),
        ("target.token", "model.decoder.embed_tokens"),
        *stacks("after"),
    ),
    copies={"lm_head.weight": "model.decoder.embed_tokens.weight"},
    required={name: value for name, value in _ONE.required.items() if name != "source_vocabulary"},
    parts=parts(SizesTwice(_V, shared=False), _APART),
    marks={"share_encoder_decoder_embeddings": False},
)
"""Two vocabularies: each side has its own table of token vectors."""

MARIAN = replace(_ONE, variants=(APART,))
"""One vocabulary: both sides share the table of token vectors."""
