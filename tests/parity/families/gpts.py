"""What GPT and GPT-2 have in common: fields, rows with padding on either side, and how answers are compared."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from generated import Case
from hypothesis import strategies as st
from torch import Tensor, nn

from families import encoders
from unmask import huggingface
from unmask.huggingface.table import OF_SEQUENCES
from unmask.types import Batch

DRAWN = {
    "resid_pdrop": st.sampled_from([0.0, 0.1, 0.15, 0.33]),
    "embd_pdrop": st.sampled_from([0.0, 0.1, 0.24]),
    "attn_pdrop": st.sampled_from([0.0, 0.1, 0.21, 0.42]),
    "layer_norm_epsilon": st.sampled_from([1e-12, 1e-5, 0.1]),
    "initializer_range": st.sampled_from([0.02, 0.05]),
    "bos_token_id": st.sampled_from([None, 0, 5, 50_256]),
    "eos_token_id": st.sampled_from([None, 0, 7, [7, 9], 50_256]),
}
ODD = {
    "resid_pdrop": st.sampled_from([1.0, -0.1, 1.5, "0.1"]),
    "attn_pdrop": st.sampled_from([1.0, -0.1, "x"]),
    "layer_norm_epsilon": st.sampled_from([0.0, "small"]),
    "n_layer": st.sampled_from([0, 4]),
    "n_head": st.sampled_from([0, 5]),
    "n_positions": st.just(3),
    "hidden_size": st.just(6),
    "pad_token_id": st.sampled_from([-1, 10_000, "0"]),
    "eos_token_id": st.sampled_from(["7", [], [7.5]]),
    "hidden_dropout": st.sampled_from([0.0, 0.4]),
    "per_layer_config": st.just({"0": {"n_head": 1}}),
}
SAME = {
    "summary_type": "only models with two heads have a summary, and there is no such model here",
    "summary_use_proj": "as summary_type",
    "summary_activation": "as summary_type",
    "summary_proj_to_labels": "as summary_type",
    "summary_first_dropout": "as summary_type",
    "use_cache": "it says whether keys and values are returned",
}
EXTRAS = {
    "classifier_dropout": st.sampled_from([None, 0.0, 0.27]),
    "n_ctx": st.just(16),
    "summary_type": st.sampled_from(["cls_index", "last"]),
    "summary_first_dropout": st.just(0.3),
    "predict_special_tokens": st.just(True),
    "task_specific_params": st.just({"text-generation": {"do_sample": True, "max_length": 50}}),
}
SIZED = ("vocab_size", "n_embd", "n_layer", "n_head", "n_positions", "pad_token_id")


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes that go together; twelve heads of one number, as is the default, now and then."""
    heads = draw(st.sampled_from([1, 2, 3, 12]))
    return {
        "vocab_size": draw(st.integers(20, 40)),
        "n_embd": heads * (2 if heads == 12 else draw(st.sampled_from([2, 4, 6]))),
        "n_layer": draw(st.integers(1, 3)),
        "n_head": heads,
        "n_positions": draw(st.integers(8, 16)),
        "pad_token_id": draw(st.sampled_from([None, 0, 1, 2, 3])),
    }


def outputs(
    case: Case, loaded: Any, theirs: nn.Module, heads: frozenset[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Hidden states and the answers of every head, wherever there is no padding."""
    ours, config = loaded.model, theirs.config
    wanted = encoders.heads_of(case.architecture, heads, config)
    assert set(ours.heads) == wanted
    batch, inputs, places = rows(config, case)
    hidden = ours(batch)
    output = theirs(**inputs, output_hidden_states=True)
    mine, other = {}, {}
    if config.n_layer:  # GPT-2 without layers tells no states
        mine["hidden"] = hidden.flatten(0, 1)[places]
        other["hidden"] = output.hidden_states[-1].flatten(0, 1)[places]
    for head in wanted:
        mine[head] = ours.answer(head, hidden, batch.starts if head in OF_SEQUENCES else places, batch)
        other[head] = encoders.their_answer(head, output, places)
    return mine, other


def rows(config: transformers.PreTrainedConfig, case: Case) -> tuple[Batch, dict[str, Tensor], Tensor]:
    """Three texts of different lengths, one a row; one text alone where no padding is named, as theirs asks."""
    generator = torch.Generator().manual_seed(case.seed)
    padding, length = config.pad_token_id, min(config.n_positions, 14)
    lengths = [length] if padding is None else [length, max(1, length // 2), min(3, length)]
    mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    mask = (mask.flip(1) if case.left else mask).long()
    tokens = torch.randint(0, config.vocab_size - 1, mask.shape, generator=generator)
    if padding is not None:
        filler = padding if padding < config.vocab_size else 0
        tokens = torch.where(mask.bool(), tokens + (tokens >= filler), filler)
    starts = torch.arange(len(mask)) * length + mask.argmax(1)
    inputs = {"input_ids": tokens, "attention_mask": mask}
    return Batch(tokens, documents=mask, starts=starts), inputs, mask.flatten().nonzero().flatten()


def kept(config: transformers.PreTrainedConfig, name: str) -> dict[str, Any]:
    """What a configuration says that has a meaning for this class."""
    values = {field: getattr(config, field, None) for field in huggingface.TABLES[config.model_type].fields}
    if name.endswith(("SequenceClassification", "TokenClassification")):
        values["labels"] = config.id2label
    if name.endswith("SequenceClassification"):
        values["problem"] = config.problem_type or encoders.usual_problem(config.num_labels)
    return values
