"""What the encoder–decoders have in common: sources with padding, what is written of them, how answers are compared."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from generated import Case
from hypothesis import strategies as st
from torch import Tensor, nn

from families import encoders
from unmask import huggingface
from unmask.types import Batch

SAME = {
    "use_cache": "it says whether keys and values are returned",
}
MARIAN_SAME = {
    **SAME,
    "bos_token_id": "no text begins with it",
    "forced_eos_token_id": "it bounds what is generated, and a text that is too long is cut here",
}
SAID_TWICE = frozenset({"eos_token_id", "decoder_start_token_id"})
"""Fields that generation_config.json has too; a folder in which the two disagree is refused."""
MARIAN_WIDEST = SAID_TWICE | frozenset(
    {"vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"}
)
MARIAN_DRAWN = {
    "activation_function": st.sampled_from(encoders.ACTIVATIONS),
    "dropout": st.sampled_from([0.0, 0.1, 0.15, 0.33]),
    "attention_dropout": st.sampled_from([0.0, 0.1, 0.21, 0.42]),
    "activation_dropout": st.sampled_from([0.0, 0.1, 0.27, 0.48]),
    "init_std": st.sampled_from([0.02, 0.05]),
    "scale_embedding": st.booleans(),
}
MARIAN_ODD = {
    "activation_function": st.sampled_from(encoders.OTHER_ACTIVATIONS),
    "dropout": st.sampled_from([1.0, -0.1, 1.5, "0.1"]),
    "encoder_layers": st.sampled_from([0, 4]),
    "decoder_attention_heads": st.sampled_from([0, 5]),
    "encoder_layerdrop": st.just(0.1),
    "decoder_layerdrop": st.just(0.1),
    "is_decoder": st.just(True),
    "pad_token_id": st.sampled_from([None, -1, 10_000]),
    "eos_token_id": st.sampled_from([None, [1, 2], "1"]),
    "decoder_start_token_id": st.sampled_from([None, -1, 10_000]),
    "num_hidden_layers": st.just(1),
    "hidden_size": st.just(6),
    "per_layer_config": st.just({"0": {"dropout": 0.5}}),
    "normalize_embedding": st.just(True),
}
MARIAN_EXTRAS = {
    "num_hidden_layers": st.just(None),
    "normalize_embedding": st.just(False),
    "static_position_embeddings": st.just(True),
    "add_bias_logits": st.just(False),
    "classif_dropout": st.just(0.3),
    "classifier_dropout": st.just(0.3),
    "extra_pos_embeddings": st.just(2),
    "num_beams": st.just(3),
    "max_length": st.just(12),
    "unk_token_id": st.just(3),
}
MARIAN_SIZED = (
    *("vocab_size", "d_model", "max_position_embeddings", "pad_token_id", "eos_token_id", "decoder_start_token_id"),
    *(f"{side}_{field}" for side in ("encoder", "decoder") for field in ("layers", "attention_heads", "ffn_dim")),
)


@st.composite
def marian_sizes(draw: st.DrawFn, *, sides: bool) -> dict[str, Any]:
    """Sizes that go together.

    sides  whether each side may have a vocabulary of its own
    """
    width = draw(st.sampled_from([4, 8, 12, 48]))
    size = draw(st.integers(20, 40))
    values: dict[str, Any] = {
        "vocab_size": size,
        "d_model": width,
        "max_position_embeddings": draw(st.integers(12, 16)),
        "pad_token_id": draw(st.integers(0, 19)),
        "eos_token_id": draw(st.integers(0, 19)),
        "decoder_start_token_id": draw(st.integers(0, 19)),
    }
    for side in ("encoder", "decoder"):
        values[f"{side}_layers"] = draw(st.integers(1, 3))
        values[f"{side}_attention_heads"] = draw(st.sampled_from([1, 2, 4, *([16] if width == 48 else [])]))
        values[f"{side}_ffn_dim"] = draw(st.integers(1, 20))
    if sides:
        values["share_encoder_decoder_embeddings"] = shared = draw(st.booleans())
        values["decoder_vocab_size"] = draw(st.sampled_from([None, size] if shared else [None, 20, 33]))
    return values


def pairs(config: transformers.PreTrainedConfig, seed: int, written: int) -> Batch:
    """Three sources of 11, 4 and 1 tokens, and the first 7 tokens that are written of each.

    written  size of the vocabulary of the targets
    """
    generator = torch.Generator().manual_seed(seed)
    documents = (torch.arange(11) < torch.tensor([11, 4, 1])[:, None]).long()
    sources = torch.randint(0, config.vocab_size, (3, 11), generator=generator)
    sources = torch.where(documents.bool(), sources, max(config.pad_token_id or 0, 0))
    tokens = torch.randint(0, written, (3, 7), generator=generator)
    tokens[:, 0] = getattr(config, "decoder_start_token_id", None) or 0
    return Batch(tokens, source=Batch(sources, documents=documents))


def exact(theirs: nn.Module) -> None:
    """Undo what theirs rounds whatever the type of its numbers is: sinusoids that were stored in half precision, which
    are computed here, and the mean of squares in the norms of T5, which is that of float32."""
    for part in theirs.modules():
        if hasattr(part, "create_weight"):
            part.weight.data = part.create_weight().float().double()
        if type(part).__name__ == "T5LayerNorm":
            part.forward = partial(
                F.rms_norm, normalized_shape=part.weight.shape, weight=part.weight, eps=part.variance_epsilon
            )


def outputs(case: Case, loaded: Any, theirs: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What the encoder says, what the decoder says, and the logits."""
    ours = loaded.model
    exact(theirs)
    written = getattr(theirs.config, "decoder_vocab_size", None)
    shared = getattr(theirs.config, "share_encoder_decoder_embeddings", True)
    batch = pairs(theirs.config, case.seed, theirs.config.vocab_size if shared or not written else written)
    assert batch.source is not None
    real = batch.source.documents.bool()
    said = theirs(
        input_ids=batch.source.tokens, attention_mask=batch.source.documents, decoder_input_ids=batch.tokens,
        output_hidden_states=True,
    )  # fmt: skip
    hidden = ours(batch)
    mine, other = {"decoder": hidden}, {"decoder": said.decoder_hidden_states[-1]}
    if "logits" in said:
        mine["logits"], other["logits"] = ours.heads["next"](hidden), said.logits
    if not case.train:  # in training it would be another draw
        mine["encoder"], other["encoder"] = ours.encode(batch.source)[real], said.encoder_last_hidden_state[real]
    return mine, other


def gradients(loaded: Any, theirs: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Gradients of both sides under the names of theirs."""
    ours = loaded.model
    bare = type(theirs).__name__ in ("MarianModel", "PegasusModel")
    names = {k: v.removeprefix("model.") if bare else v for k, v in huggingface.names(ours).items()}
    found = {k: p.grad for k, p in theirs.named_parameters() if p.grad is not None}
    assert not any("embed_positions" in name for name in found)
    mine = {names[k]: p.grad if p.grad is not None else torch.zeros_like(p) for k, p in ours.named_parameters()}
    return mine, found


def save(folder: Path, loaded: Any) -> None:
    huggingface.save(folder, loaded.model, settings=loaded.settings)


def kept(config: transformers.PreTrainedConfig, name: str) -> dict[str, Any]:
    """What a configuration says that has a meaning here."""
    fields = {*huggingface.TABLES[config.model_type].fields, "decoder_vocab_size", "scale_decoder_outputs"} - {
        "feed_forward_proj"
    }
    values = {field: getattr(config, field, None) for field in fields}
    values["scale_decoder_outputs"] = bool(values["scale_decoder_outputs"])
    values["decoder_start_token_id"] = values["decoder_start_token_id"] or 0  # of T5, where none is named
    return values
