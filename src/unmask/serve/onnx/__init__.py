"""Export to ONNX: a graph for ONNX Runtime, checked against the model; optionally fused or quantized to eight bits."""

from unmask.serve.onnx.folder import Exported, Score, export, render
from unmask.serve.onnx.graph import EncoderGraph, graph_of
from unmask.serve.onnx.session import OnnxModel

__all__ = ["EncoderGraph", "Exported", "OnnxModel", "Score", "export", "graph_of", "render"]
