"""Export to ONNX: a graph for ONNX Runtime, checked against the model; optionally fused or quantized to eight bits."""

from unmask.serve.onnx.folder import MEASURED, Exported, Score, export, graph_in, out_of, render
from unmask.serve.onnx.graph import EncoderGraph, graph_of
from unmask.serve.onnx.session import GraphModel, OnnxModel

__all__ = [
    "MEASURED",
    "EncoderGraph",
    "Exported",
    "GraphModel",
    "OnnxModel",
    "Score",
    "export",
    "graph_in",
    "graph_of",
    "out_of",
    "render",
]
