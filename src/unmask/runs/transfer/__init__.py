"""Transfer: which weights of a pre-trained model a task trains; adapters as files; advice on a strategy."""

from unmask.runs.transfer.adapter import load_adapter, save_adapter
from unmask.runs.transfer.advice import Advice, Evidence, advise, advise_without_texts, measure
from unmask.runs.transfer.remembered import remembering
from unmask.runs.transfer.strategy import Transfer, Tuning, merged, prepare, scale, trainable

__all__ = [
    "Advice",
    "Evidence",
    "Transfer",
    "Tuning",
    "advise",
    "advise_without_texts",
    "load_adapter",
    "measure",
    "merged",
    "prepare",
    "remembering",
    "save_adapter",
    "scale",
    "trainable",
]
