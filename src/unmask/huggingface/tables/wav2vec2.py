"""Names of wav2vec 2.0 and HuBERT.

Shapes: O outputs, C inputs, K width of a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.errors import UnmaskError
from unmask.huggingface.parts import Own
from unmask.huggingface.processors import RECORDINGS
from unmask.huggingface.table import Names, Part, Table
from unmask.huggingface.transcripts import Transcripts
from unmask.models.hubert import Hubert
from unmask.models.wav2vec2 import Wav2Vec2

FIELDS = {
    "vocab_size": "vocabulary",
    "pad_token_id": "padding",
    "hidden_size": "dim",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "hidden",
    "hidden_act": "activation",
    "hidden_dropout": "dropout",
    "activation_dropout": "activation_dropout",
    "attention_dropout": "attention_dropout",
    "feat_proj_dropout": "feature_dropout",
    "final_dropout": "head_dropout",
    "layerdrop": "layer_drop",
    "initializer_range": "std",
    "layer_norm_eps": "eps",
    "feat_extract_norm": "conv_norm",
    "feat_extract_activation": "conv_activation",
    "conv_dim": "channels",
    "conv_stride": "strides",
    "conv_kernel": "kernels",
    "conv_bias": "conv_bias",
    "num_conv_pos_embeddings": "position_kernel",
    "num_conv_pos_embedding_groups": "position_groups",
    "do_stable_layer_norm": "pre_norm",
    "classifier_proj_size": "projection",
    "tdnn_dim": "delay_dims",
    "tdnn_kernel": "delay_kernels",
    "tdnn_dilation": "delay_dilations",
    "xvector_output_dim": "vector",
}
QUANTISER = {
    "num_codevectors_per_group": "entries",
    "num_codevector_groups": "codebooks",
    "codevector_dim": "codes",
    "proj_codevector_dim": "compared",
    "feat_quantizer_dropout": "quantiser_dropout",
}
# SpecAugment and the loss: options of a run in unmask, and of no effect on answers.
IGNORED = frozenset(
    """
    apply_spec_augment contrastive_logits_temperature ctc_loss_reduction ctc_zero_infinity diversity_loss_weight
    gradient_checkpointing mask_channel_length mask_channel_min_space mask_channel_other mask_channel_prob
    mask_channel_selection mask_feature_length mask_feature_min_masks mask_feature_prob mask_time_length
    mask_time_min_masks mask_time_min_space mask_time_other mask_time_prob mask_time_selection
    num_adapter_layers adapter_kernel_size adapter_stride num_feat_extract_layers num_negatives output_hidden_size
    tokenizer_class use_weighted_layer_sum
    """.split()  # noqa: SIM905 (one name per line would take a page)
)
FIXED = {"add_adapter": False, "adapter_attn_dim": None, "feat_proj_layer_norm": True, "conv_pos_batch_norm": False}
POSITIONS = "pos_conv_embed.conv."
STORED = "parametrizations.weight.original"  # the weight norm of transformers 5; published folders have other names
MIX = "layer_weights"
PUBLISHED = {"weight_g": STORED + "0", "weight_v": STORED + "1"}


class Recordings(Part):
    """The names of weight norm, the layout of convolutions, and fields that follow from the weights."""

    def deduce(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], place: Path) -> Mapping[str, Any]:
        named = {name.rpartition(".")[2] for name in tensors if name.endswith("masked_spec_embed")}
        return {"hides": bool(named), "mixes": MIX in tensors}

    def write(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add what decides in `transformers` which parameters there are: a vector for masked frames needs a positive
        mask_time_prob. Its training then masks frames, as SpecAugment."""
        return {**values, "mask_time_prob": 0.05 if config.hides else 0.0, "use_weighted_layer_sum": config.mixes}

    def restore(self, config: Any, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
        found = {}
        for name, tensor in tensors.items():
            before, within, last = name.partition(POSITIONS)
            if within and last in PUBLISHED:
                name = before + within + PUBLISHED[last]
            if name.endswith(MIX):
                name = MIX  # a folder without heads has no prefix to tell it from the trunk by
            if name in found:
                raise UnmaskError(f"{folder} stores the weight norm of positions twice, as {name} and by an old name.")
            found[name] = tensor.transpose(1, 2).flatten(1) if _is_convolution(name, tensor, 3) else tensor
        return found

    def store(self, config: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        def stored(name: str, tensor: Tensor) -> Tensor:
            if not _is_convolution(name, tensor, 2):
                return tensor
            number = int(name.split("conv_layers.")[1].split(".")[0])
            return tensor.unflatten(1, (config.kernels[number], -1)).transpose(1, 2)

        return {name: stored(name, tensor) for name, tensor in tensors.items()}


def _is_convolution(name: str, tensor: Tensor, axes: int) -> bool:
    """Whether this is the weight of a convolution from samples to frames: [O, C, K] in a folder, [O, K * C] here."""
    return "feature_extractor.conv_layers." in name and name.endswith(".conv.weight") and tensor.dim() == axes


def trunk(prefix: str, side: str, norm: str) -> Names:
    """The names of an encoder with this prefix.

    side  "after" or "before": where blocks have their norms
    norm  the norm of the encoder
    """
    p, layer = prefix + "encoder.", prefix + "encoder.layers.{}."
    ours = "stack.blocks.{}."
    return (
        ("embedding.features.layers.{}.norm", prefix + "feature_extractor.conv_layers.{}.layer_norm"),
        ("embedding.features.layers.{}", prefix + "feature_extractor.conv_layers.{}.conv"),
        ("embedding.feature_norm", prefix + "feature_projection.layer_norm"),
        ("embedding.project", prefix + "feature_projection.projection"),
        ("embedding.mask", prefix + "masked_spec_embed"),
        ("embedding.position.scale", p + POSITIONS + STORED + "0"),
        ("embedding.position.direction", p + POSITIONS + STORED + "1"),
        ("embedding.position.bias", p + POSITIONS + "bias"),
        (norm, p + "layer_norm"),
        (f"{ours}attention.{side}", layer + "layer_norm"),
        (f"{ours}attention.f.query", layer + "attention.q_proj"),
        (f"{ours}attention.f.key", layer + "attention.k_proj"),
        (f"{ours}attention.f.value", layer + "attention.v_proj"),
        (f"{ours}attention.f.output", layer + "attention.out_proj"),
        (f"{ours}feedforward.{side}", layer + "final_layer_norm"),
        (f"{ours}feedforward.f.up", layer + "feed_forward.intermediate_dense"),
        (f"{ours}feedforward.f.down", layer + "feed_forward.output_dense"),
        ("mix.weight", MIX),
    )


HEADS: dict[str, Names] = {
    "ctc": (("heads.ctc.output", "lm_head"),),
    "speech_classification": (
        ("heads.speech_classification.project", "projector"),
        ("heads.speech_classification.output", "classifier"),
    ),
    "verification": (
        ("heads.verification.project", "projector"),
        ("heads.verification.layers.{}", "tdnn.{}.kernel"),
        ("heads.verification.output", "feature_extractor"),
    ),
    "speakers": (("heads.speakers.project", "classifier"), ("heads.speakers.output", "objective")),
}
CONTRASTIVE: Names = (
    ("heads.contrastive.quantizer.weight_proj", "quantizer.weight_proj"),
    ("heads.contrastive.quantizer.codevectors", "quantizer.codevectors"),
    ("heads.contrastive.project_hid", "project_hid"),
    ("heads.contrastive.project_q", "project_q"),
)


def table(own: tuple[str, ...], **given: Any) -> Table[Any]:
    """A table with the two layouts of norms: after the sub-layers, and before them ("stable").

    own  fields of the page that only unmask reads
    """
    prefix = given["prefix"]
    post = Table(
        fixed=FIXED,
        pooler=(),
        transposed=("objective",),
        ignored=IGNORED,
        nullable=frozenset({"pad_token_id"}),
        parts=(Recordings(), Transcripts(), Own(own)),
        processor=RECORDINGS,
        trunk=trunk(prefix, "after", "embedding.norm"),
        required={"pre_norm": False},
        **given,
    )
    stable = replace(
        post,
        trunk=trunk(prefix, "before", "stack.norm"),
        required={"pre_norm": True},
        marks={"do_stable_layer_norm": True},
    )
    return replace(post, variants=(stable,))


WAV2VEC2 = table(
    own=("feature_gradient",),
    model_type="wav2vec2",
    config=Wav2Vec2,
    prefix="wav2vec2.",
    fields=FIELDS | QUANTISER,
    heads=HEADS | {"contrastive": CONTRASTIVE},
    architectures={
        "Wav2Vec2ForPreTraining": frozenset({"contrastive"}),
        "Wav2Vec2ForCTC": frozenset({"ctc"}),
        "Wav2Vec2ForSequenceClassification": frozenset({"speech_classification"}),
        "Wav2Vec2ForXVector": frozenset({"verification", "speakers"}),
        "Wav2Vec2Model": frozenset(),
    },
)
HUBERT = table(
    own=("feature_gradient", "compared"),
    model_type="hubert",
    config=Hubert,
    prefix="hubert.",
    fields=FIELDS,
    heads=HEADS,
    architectures={
        "HubertForCTC": frozenset({"ctc"}),
        "HubertForSequenceClassification": frozenset({"speech_classification"}),
        "HubertModel": frozenset(),
    },
)
