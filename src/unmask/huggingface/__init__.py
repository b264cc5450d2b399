"""Hugging Face checkpoint folders: config.json, model.safetensors and the tokenizer, read and written by a table.

Nothing is passed over in silence: a key that no rule names, a parameter that nobody filled, and a field whose
value the page does not implement are errors. Nothing is unpickled.
"""

from unmask.huggingface.average import average
from unmask.huggingface.config import TABLES
from unmask.huggingface.folder import Loaded, config_of, export, load, names, save, words_of
from unmask.huggingface.writer import LoadedWriter, holds_writer, load_writer, only_here, save_writer

__all__ = [
    "TABLES",
    "Loaded",
    "LoadedWriter",
    "average",
    "config_of",
    "export",
    "holds_writer",
    "load",
    "load_writer",
    "names",
    "only_here",
    "save",
    "save_writer",
    "words_of",
]
