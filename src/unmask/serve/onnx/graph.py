"""EncoderGraph: an encoder and a head as an ONNX graph, with the input and output names of `optimum`.

Shapes: B rows, T tokens, S keys, D width, H heads, K width of a head, N choices, C outputs.
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import asked_of
from unmask.models.model import Model
from unmask.nn.attention import Attention
from unmask.nn.lora import adapters
from unmask.nn.mask import Bias, Device, Mask
from unmask.nn.position import Position, distances
from unmask.tasks import task_found
from unmask.types import Batch

OPSET = 18  # the newest opset in which ONNX Runtime fuses attention and norms
LARGEST = 2**31  # bytes of a file; larger models need several files, which this module does not write
Axes = tuple[str, ...]

PER_TEXT: Axes = ("batch",)
PER_TOKEN: Axes = ("batch", "sequence")
PER_CHOICE: Axes = ("batch", "choices")

OUTPUTS: dict[str, dict[str, Axes]] = {
    "sequence": {"logits": PER_TEXT},
    "token": {"logits": PER_TOKEN},
    "masked_token": {"logits": PER_TOKEN},
    "span": {"start_logits": PER_TOKEN, "end_logits": PER_TOKEN},
    "choice": {"logits": PER_CHOICE},
    "vectors": {"last_hidden_state": PER_TOKEN, "sentence_embedding": PER_TEXT},
    "hidden": {"last_hidden_state": PER_TOKEN},
}
"""Kind of the head -> the outputs, each with its dynamic axes. "vectors" is a sentence encoder, "hidden" a folder
without a head."""


@dataclass(frozen=True)
class Answers:
    """The head of a graph, the kind of its output (OUTPUTS), and the meaning of its numbers (`Task.outcomes`)."""

    head: str
    kind: str
    outcomes: str = "one"


PRETRAINED = ("token", "masked_token", "sequence")
"""Kinds of heads of pre-training, by priority: a graph has one head."""


class PlainAttention(nn.Module):
    """softmax(q k^T / √K + bias) v (Vaswani et al. 2017, equation 1), as operators that ONNX Runtime fuses into one."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.query, self.key, self.value = attention.query, attention.key, attention.value
        self.output, self.heads, self.head_dim = attention.output, attention.heads, attention.head_dim

    def forward(
        self,
        x_BTD: Tensor,
        keys_BSD: Tensor | None = None,
        values_BSD: Tensor | None = None,
        *,
        bias: Bias,
        **_: Any,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; keys are computed from x by default, and values from the input of the keys."""
        keys_BSD = x_BTD if keys_BSD is None else keys_BSD
        values_BSD = keys_BSD if values_BSD is None else values_BSD
        made = ((self.query, x_BTD), (self.key, keys_BSD), (self.value, values_BSD))
        q_BTHK, k_BSHK, v_BSHK = (layer(of).unflatten(-1, (self.heads, self.head_dim)) for layer, of in made)
        scores_BHTS = q_BTHK.transpose(1, 2) @ k_BSHK.permute(0, 2, 3, 1) / self.head_dim**0.5 + bias.tensor
        return self.output((scores_BHTS.softmax(-1) @ v_BSHK.transpose(1, 2)).transpose(1, 2).flatten(2))


@dataclass(frozen=True, slots=True, eq=False)
class Seen(Mask):
    """`attention_mask` [B, S] as an additive mask, which ONNX Runtime recognises."""

    attention_mask: Tensor | None = None

    def bias(self, T: int, S: int, device: Device = None) -> Bias:
        """[B, 1, 1, S], or [B, 1, T, S] with a window: 0 where a token is seen, the lowest float32 elsewhere."""
        assert self.attention_mask is not None
        hidden = 1.0 - self.attention_mask[:, None, None].float()
        if self.window is not None:
            hidden = torch.maximum(hidden, (distances(T, S, device).abs() >= self.window).float())
        return Bias(hidden * torch.finfo(torch.float32).min)

    def within(self, window: int | None) -> Seen:
        return replace(self, window=window)


class EncoderGraph(nn.Module):
    """A model with one of its heads.

    answers   the head, and the kind and meaning of its output
    settings  of a sentence encoder: pooling, normalise

    Inputs are int64: input_ids and attention_mask [B, T], 1 for a token and 0 for padding, and token_type_ids [B, T]
    if the model has segments; for choices [B, N, T]. Rows are padded at the right.
    """

    def __init__(self, model: Model, answers: Answers, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.settings = _plain(model), dict(settings)
        self.head, self.kind, self.outcomes = answers.head, answers.kind, answers.outcomes
        self.outputs = OUTPUTS[self.kind]
        segments = model.config.segments > 1
        self.inputs = ("input_ids", "attention_mask", *(("token_type_ids",) if segments else ()))
        self.input_axes: Axes = ("batch", "choices", "sequence") if self.kind == "choice" else PER_TOKEN

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The outputs, in the order of `outputs`."""
        rows = input_ids.shape[:-1]
        input_ids, attention_mask = input_ids.flatten(0, -2), attention_mask.flatten(0, -2)
        token_type_ids = None if token_type_ids is None else token_type_ids.flatten(0, -2)
        positions = None
        embedding, stack = self.model.input_embedding, self.model.transformer
        assert embedding is not None
        assert stack is not None
        if embedding.reads_neighbours:  # padding is beyond the end of a text
            positions = torch.arange(input_ids.shape[1], device=input_ids.device) * attention_mask
        x_BTD = embedding(input_ids, token_type_ids, positions)
        hidden_BTD = stack(x_BTD, mask=Seen(attention_mask=attention_mask))
        if self.kind == "hidden":
            return (hidden_BTD,)
        if self.kind == "vectors":
            return hidden_BTD, self._pooled(hidden_BTD, attention_mask)
        if self.head in self.model.of_sequences:
            first_B = torch.arange(hidden_BTD.shape[0], device=hidden_BTD.device) * hidden_BTD.shape[1]
            logits_BC = self.model.answer(self.head, hidden_BTD, first_B, Batch(input_ids, documents=attention_mask))
            return (logits_BC.view(rows) if self.kind == "choice" else logits_BC,)
        logits_BTC = self.model.heads[self.head](hidden_BTD)
        if self.kind == "span":
            return logits_BTC[..., 0], logits_BTC[..., 1]
        return (logits_BTC.squeeze(-1) if self.outcomes == "several" else logits_BTC,)

    def _pooled(self, hidden_BTD: Tensor, attention_mask: Tensor) -> Tensor:
        """The vector of a text [B, D]."""
        if self.settings["pooling"] == "cls":
            vectors_BD = hidden_BTD[:, 0]
        else:
            seen_BT1 = attention_mask[..., None].float()
            vectors_BD = (hidden_BTD * seen_BT1).sum(1) / seen_BT1.sum(1).clamp(min=1.0)
        return F.normalize(vectors_BD, dim=-1) if self.settings.get("normalise") else vectors_BD


def graph_of(model: Model, settings: Mapping[str, Any] | None = None) -> tuple[EncoderGraph, tuple[str, ...]]:
    """The graph of a model, in evaluation mode, and the names of heads that are not in it.

    settings  the settings of its folder (`Loaded.settings`)

    Raises UnmaskError for models other than bidirectional encoders, for a CRF, for a head of another kind than those of
    OUTPUTS, and for adapters.
    """
    if model.transformer is None or model.causal:
        raise UnmaskError(
            f"{type(model.config).__name__} cannot be exported to ONNX: use an encoder of the BERT family."
        )
    if adapters(model):
        raise UnmaskError("The model has adapters: merge them into its weights with unmask.runs.transfer.merged.")
    if "crf" in model.heads:
        raise UnmaskError("This tagger has a CRF, whose decoding cannot be exported to ONNX: train one without --crf.")
    answers = _answers(model, settings)
    if answers.kind not in OUTPUTS:
        raise UnmaskError(
            f"The head '{answers.head}' cannot be exported to ONNX: it compares parts of a whole document."
        )
    left_out = tuple(name for name in model.heads if name != answers.head)
    return EncoderGraph(model, answers, settings or {}).eval(), left_out


def _answers(model: Model, settings: Mapping[str, Any] | None) -> Answers:
    """The head of the task, else a head of pre-training, else the hidden states."""
    heads = {name: head for name, layer in model.heads.items() if (head := asked_of(layer))}
    task = task_found(list(model.heads), settings)
    if task is not None:
        return Answers(task.name, "vectors" if task.gives_vectors else heads[task.name].kind, task.outcomes)
    for kind in PRETRAINED:
        name = next((name for name, head in heads.items() if head.kind == kind), None)
        if name is not None:
            return Answers(name, kind, "several" if kind == "token" else "one")
    return Answers("encoder", "hidden")


def inputs_of(graph: EncoderGraph) -> tuple[tuple[Tensor, ...], list[dict[int, Any]]]:
    """Inputs to trace a graph with, and the names of the axes of each."""
    sizes = {"batch": 2, "choices": 3, "sequence": min(7, graph.model.positions or 7)}
    shape = [sizes[axis] for axis in graph.input_axes]
    dims = {i: torch.export.Dim(axis) for i, axis in enumerate(graph.input_axes)}
    return tuple(torch.ones(shape, dtype=torch.int64) for _ in graph.inputs), [dims] * len(graph.inputs)


def write(graph: EncoderGraph, path: Path) -> None:
    """Write a graph and its weights to one ONNX file. Raises UnmaskError for a model that is too large for it."""
    size = sum(p.numel() * p.element_size() for p in graph.parameters())
    if size >= LARGEST:
        raise UnmaskError(f"The weights take {size / 1e9:.1f} GB, and an ONNX file at most 2.1: use a smaller model.")
    example, dims = inputs_of(graph)
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            example,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=dims,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        found = program.model_proto
    _unsqueeze_in_steps(found)
    for output, axes in zip(found.graph.output, graph.outputs.values(), strict=True):
        for dim, axis in zip(output.type.tensor_type.shape.dim, axes, strict=False):
            dim.dim_param = axis
    del found.graph.value_info[:]  # shapes of intermediate values; rewriting a graph leaves stale ones
    path.write_bytes(found.SerializeToString())


def _plain(model: Model) -> Model:
    """A copy of the model with `PlainAttention`, and a bias in each norm; it shares all parameters."""
    instead: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    for part in model.modules():
        if isinstance(part, Attention) and type(part.position) is Position and _usual(part):
            instead[id(part)] = PlainAttention(part)
        elif isinstance(part, nn.LayerNorm) and part.bias is None:
            instead[id(part)] = _biased(part)
    return copy.deepcopy(model, instead)


def _biased(norm: nn.LayerNorm) -> nn.LayerNorm:
    """The same norm with a bias of zero, without which ONNX Runtime does not fuse norms."""
    other = nn.LayerNorm(norm.normalized_shape, norm.eps)
    other.weight = norm.weight
    return other


def _usual(attention: Attention) -> bool:
    return attention.kv_heads == attention.heads and attention.scale == attention.head_dim**-0.5


def _unsqueeze_in_steps(found: Any) -> None:
    """Replace each Unsqueeze of two axes by two of one axis: ONNX Runtime does not recognise a mask with the former."""
    from onnx import helper, numpy_helper

    known = {one.name: one for one in found.graph.initializer}
    nodes = []
    for node in found.graph.node:
        axes = numpy_helper.to_array(known[node.input[1]]) if _with_known_axes(node, known) else None
        if axes is None or axes.tolist() != [1, 2]:
            nodes.append(node)
            continue
        value = node.input[0]
        for i, axis in enumerate(axes):
            name, said = f"{node.input[1]}_{i}", node.output[0] if i else f"{node.output[0]}_{i}"
            found.graph.initializer.append(numpy_helper.from_array(axes[i : i + 1], name))
            nodes.append(helper.make_node("Unsqueeze", [value, name], [said], name=f"{node.output[0]}_axis_{axis}"))
            value = said
    del found.graph.node[:]
    found.graph.node.extend(nodes)


def _with_known_axes(node: Any, known: Mapping[str, Any]) -> bool:
    return node.op_type == "Unsqueeze" and node.input[1] in known


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs, warnings and prints of the libraries that write graphs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
