"""What the encoders have in common: sizes, fields, batches with padding on either side, how answers are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from generated import Case
from hypothesis import strategies as st
from torch import Tensor, nn

from unmask import huggingface
from unmask.huggingface.layout import fold
from unmask.huggingface.table import OF_SEQUENCES
from unmask.types import Batch

ACTIVATIONS = (
    *("gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"),
    *("relu", "relu6", "leaky_relu", "silu", "swish", "hardswish", "mish", "sigmoid", "tanh", "linear"),
)
OTHER_ACTIVATIONS = ("gelu_10", "quick_gelu", "relu2", "laplace", "sqrtsoftplus", "prelu", "nonsense")

DRAWN: Mapping[str, st.SearchStrategy[Any]] = {
    "hidden_act": st.sampled_from(ACTIVATIONS),
    "hidden_dropout_prob": st.sampled_from([0.0, 0.1, 0.15, 0.33]),
    "attention_probs_dropout_prob": st.sampled_from([0.0, 0.1, 0.21, 0.42]),
    "initializer_range": st.sampled_from([0.02, 0.05]),
    "layer_norm_eps": st.sampled_from([1e-12, 1e-5, 0.1]),
}
CLASSIFIER = {"classifier_dropout": st.sampled_from([None, 0.0, 0.27, 0.48])}
ODD: Mapping[str, st.SearchStrategy[Any]] = {
    "hidden_act": st.sampled_from(OTHER_ACTIVATIONS),
    "hidden_dropout_prob": st.sampled_from([1.0, -0.1, 1.5, "0.1"]),
    "attention_probs_dropout_prob": st.sampled_from([1.0, -0.1, "x"]),
    "layer_norm_eps": st.sampled_from([0.0, "small"]),
    "pad_token_id": st.sampled_from([None, -1, 10_000]),
    "num_hidden_layers": st.sampled_from([0, 4]),
    "num_attention_heads": st.sampled_from([0, 5]),
    "position_embedding_type": st.sampled_from(["relative_key", None]),
    "per_layer_config": st.just({"0": {"hidden_act": "relu"}}),
    "pruned_heads": st.just({"0": [0]}),
}
DECODER = {
    "is_decoder": st.just(True),
    "add_cross_attention": st.just(True),
}
SAME: Mapping[str, str] = {
    "bos_token_id": "an encoder generates nothing",
    "eos_token_id": "an encoder generates nothing",
    "use_cache": "only a decoder keeps keys and values",
}
SIZED = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size", "pad_token_id"),
)


@st.composite
def sizes(draw: st.DrawFn, positions: int = 0, segments: int = 4) -> dict[str, Any]:
    """Sizes that go together; twelve heads of one number, as is the default, now and then.

    positions  how many positions stand before the first one of a text, beside its padding
    """
    heads = draw(st.sampled_from([1, 2, 3, 12]))
    padding = draw(st.integers(0, 3))
    return {
        "vocab_size": draw(st.integers(20, 40)),
        "hidden_size": heads * (2 if heads == 12 else draw(st.sampled_from([2, 4, 6]))),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads,
        "intermediate_size": draw(st.integers(1, 20)),
        "max_position_embeddings": draw(st.integers(8, 16)) + (positions + padding if positions else 0),
        "type_vocab_size": draw(st.integers(1, segments)),
        "pad_token_id": padding,
    }


def architectures(name: str, *pretraining: tuple[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Class -> the heads it has here; of a text's classes it depends on the kind of problem."""
    return {
        **{f"{name}For{suffix}": heads for suffix, heads in pretraining},
        f"{name}ForMaskedLM": frozenset({"mlm"}),
        f"{name}ForSequenceClassification": frozenset({"classification"}),
        f"{name}ForTokenClassification": frozenset({"tagging"}),
        f"{name}ForQuestionAnswering": frozenset({"span"}),
        f"{name}ForMultipleChoice": frozenset({"choice"}),
        f"{name}Model": frozenset(),
    }


def kept(config: transformers.PreTrainedConfig, name: str) -> dict[str, Any]:
    """What a configuration says that has a meaning for this class."""
    published = {one.name for one in dataclasses.fields(config)}
    ours = published & huggingface.TABLES[config.model_type].fields.keys()
    values = {field: getattr(config, field) for field in ours}
    values["summary_first_dropout"] = getattr(config, "summary_first_dropout", 0.0)
    if name.endswith(("SequenceClassification", "TokenClassification")):
        values["labels"] = config.id2label
    if name.endswith("SequenceClassification"):
        values["problem"] = config.problem_type or usual_problem(config.num_labels)
    if values.get("pad_token_id", 0) is None:  # here, something fills rows: id 0, where the folder leaves it open
        values["pad_token_id"] = 0
    return values


def usual_problem(labels: int) -> str:
    """What the reference takes a folder for that does not say, as long as labels are whole numbers."""
    return "regression" if labels == 1 else "single_label_classification"


PROBLEMS = {
    "regression": "regression",
    "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
}


def alike(case: Case) -> bool:
    """Without the name of a class, one choice is one score; and words, texts and choices are all alike where no pooler
    stands before those of texts."""
    if "architectures" not in case.absent:
        return False
    choice = case.architecture.endswith("MultipleChoice")
    bare = case.values.get("classifier_activation") is False
    classifies = case.architecture.endswith(("SequenceClassification", "TokenClassification"))
    return (choice and len(case.values["id2label"] or "12") == 1) or (bare and (choice or classifies))


def heads_of(name: str, heads: frozenset[str], config: transformers.PreTrainedConfig) -> set[str]:
    if heads == {"classification"}:
        return {PROBLEMS[config.problem_type or usual_problem(config.num_labels)]}
    return set(heads)


def encoder_outputs(
    case: Case, loaded: Any, theirs: nn.Module, heads: frozenset[str], *, counts_text: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Hidden states and the answers of every head, wherever there is no padding.

    counts_text  the positions of theirs are those of the tokens that are no padding, as RoBERTa's
    """
    ours, config = loaded.model, theirs.config
    wanted = heads_of(case.architecture, heads, config)
    assert set(ours.heads) == wanted
    choice = case.architecture.endswith("MultipleChoice")
    left = case.left and not wanted & set(OF_SEQUENCES) and case.architecture.removesuffix("Model") == case.architecture
    batch, inputs, places = rows(config, case.seed, left, counts_text)
    hidden = ours(batch)
    output = theirs(**{k: v[None] if choice else v for k, v in inputs.items()}, output_hidden_states=True)
    mine, other = {}, {}
    if output.hidden_states:  # a RoBERTa without layers has none there
        mine["hidden"] = hidden.flatten(0, 1)[places]
        other["hidden"] = output.hidden_states[-1].flatten(0, 1)[places]
    for head in sorted(wanted):
        mine[head] = ours.answer(head, hidden, batch.starts if head in OF_SEQUENCES else places, batch)
        other[head] = their_answer(head, output, places)
    if case.architecture.endswith("Model"):
        pooled = getattr(output, "pooler_output", None)
        first = hidden.flatten(0, 1)[batch.starts]
        if pooled is not None:
            mine["pooled"] = first if ours.pooler is None else ours.pooler(first)
            other["pooled"] = pooled
    return mine, other


def rows(
    config: transformers.PreTrainedConfig, seed: int, left: bool, counts_text: bool
) -> tuple[Batch, dict[str, Tensor], Tensor]:
    """Three texts of different lengths, one a row, as ours and theirs; and the flat places that are no padding."""
    generator = torch.Generator().manual_seed(seed)
    padding = config.pad_token_id or 0
    length = min(config.max_position_embeddings - (max(2, padding + 1) if counts_text else 0), 14)
    mask = torch.arange(length) < torch.tensor([length, max(1, length // 2), min(3, length)])[:, None]
    mask = (mask.flip(1) if left else mask).long()
    tokens = torch.randint(0, config.vocab_size - 1, mask.shape, generator=generator)
    tokens = torch.where(mask.bool(), tokens + (tokens >= padding), padding)
    kinds = getattr(config, "type_vocab_size", None)  # a ModernBERT has no segments
    segments = None if kinds is None else torch.randint(0, kinds, mask.shape, generator=generator) * mask
    positions = ((mask.cumsum(1) - 1) * mask) if counts_text and left else None
    batch = Batch(tokens, documents=mask, segments=segments, starts=torch.arange(3) * length, positions=positions)
    inputs = {"input_ids": tokens, "attention_mask": mask}
    inputs |= {} if segments is None else {"token_type_ids": segments}
    return batch, inputs, mask.flatten().nonzero().flatten()


def their_answer(head: str, output: Any, places: Tensor) -> Tensor:
    if head == "span":
        return torch.stack([output.start_logits, output.end_logits], -1).flatten(0, 1)[places]
    if head == "choice":
        return output.logits.reshape(-1, 1)
    names = {"mlm": ("prediction_logits", "logits"), "nsp": ("seq_relationship_logits", "logits")}
    found = {"sop": ("sop_logits",), **names}.get(head, ("logits",))
    logits = next(getattr(output, name) for name in found if getattr(output, name, None) is not None)
    if head in OF_SEQUENCES:
        return logits
    return logits.unsqueeze(-1).flatten(0, 1)[places] if head == "rtd" else logits.flatten(0, 1)[places]


def gradients(loaded: Any, theirs: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Gradients of both sides under the names of theirs; a model without a head has names without their prefix."""
    ours, table = loaded.model, huggingface.TABLES[theirs.config.model_type]
    prefix = "" if ours.heads else table.prefix
    found = {k: p.grad for k, p in theirs.named_parameters() if p.grad is not None}
    names = huggingface.names(ours)
    mine = {prefix + names[k]: torch.zeros_like(p) if p.grad is None else p.grad for k, p in ours.named_parameters()}
    return {k.removeprefix(prefix): x for k, x in fold(table, mine).items()}, found
