"""GraphModel: an exported file that replaces its model; OnnxModel, an ONNX file.

Shapes: B rows, T tokens, D width, M places, C outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.errors import UnmaskError, needs
from unmask.models.model import Model
from unmask.serve.onnx.graph import EncoderGraph
from unmask.types import Batch

Arrays = Mapping[str, np.ndarray]
"""Inputs of a graph, by name."""


def needed(*packages: str) -> None:
    """Raises UnmaskError if one of the packages is not installed."""
    if any(find_spec(package) is None for package in packages):
        raise needs(f"ONNX needs {', '.join(packages)}", "onnx")


def open_session(path: Path | str) -> Any:
    """An ONNX Runtime session on the CPU, with as many threads as PyTorch. Raises UnmaskError for an invalid file."""
    needed("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's exceptions have no common class
        raise UnmaskError(f"ONNX Runtime cannot open {path}: {str(error).splitlines()[0]}") from None


class GraphModel(Model):
    """A `Model` that answers by an exported graph, so that tasks and predictors can use it unchanged.

    graph  the graph that the file was written from
    path   the file
    """

    def __init__(self, graph: EncoderGraph, path: Path | str) -> None:
        own = graph.model
        super().__init__(own.config)
        self.model, self.heads, self.pooler = own, own.heads, own.pooler
        self.graph, self.path = (graph,), Path(path)  # in a tuple, so that it is not a submodule
        self.place = own.device
        self.eval()

    @property
    def device(self) -> torch.device:
        return self.place  # to search the parameters takes a tenth of the time of a small graph

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """The outputs of the graph, in the order of `graph.outputs`."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Tensor:
        """[B, T, C] in place of hidden states: logits of every token, or of a text, repeated for its tokens, or
        hidden states. Raises UnmaskError for several sequences a row."""
        graph = self.graph[0]
        B, T = batch.tokens.shape
        if batch.documents is not None and int(batch.documents.max()) > 1:
            raise UnmaskError("A graph reads one sequence a row; pad the sequences with collate.pad.")
        seen = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
        segments = torch.zeros_like(batch.tokens) if batch.segments is None else batch.segments
        tensors = {"input_ids": batch.tokens, "attention_mask": seen, "token_type_ids": segments}
        given = {name: tensors[name].cpu() for name in graph.inputs}
        if graph.kind == "choice":
            given = {name: tensor[:, None] for name, tensor in given.items()}
        first, *others = (torch.from_numpy(found) for found in self.run({k: v.numpy() for k, v in given.items()}))
        if graph.kind == "span":
            return torch.stack([first, *others], -1)
        if graph.kind in ("sequence", "choice"):
            return first[:, None].expand(B, T, first.shape[1])
        return first.view(B, T, -1)

    def answer(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """Outputs [M, C] at places of the flattened rows. Raises UnmaskError for a head that is not in the graph."""
        if name != self.graph[0].head:
            raise UnmaskError(f"The graph has only the head '{self.graph[0].head}', not '{name}'.")
        return hidden_BTD.flatten(0, 1)[places_M]


class OnnxModel(GraphModel):
    """A graph in an ONNX file. It has a session for each number of threads of PyTorch at which it is called: a thread
    that computes a batch of its own (`kernels.threads`) has one."""

    def __init__(self, graph: EncoderGraph, path: Path | str) -> None:
        super().__init__(graph, path)
        session = open_session(path)
        if [output.name for output in session.get_outputs()] != list(graph.outputs):
            raise UnmaskError(f"{path} was exported with another head than '{graph.head}': export the model again.")
        self.sessions = {torch.get_num_threads(): session}
        self.lock = Lock()  # of sessions

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        threads = torch.get_num_threads()
        with self.lock:
            if threads not in self.sessions:
                self.sessions[threads] = open_session(self.path)
        found: list[np.ndarray] = self.sessions[threads].run(list(self.graph[0].outputs), dict(inputs))
        return found
