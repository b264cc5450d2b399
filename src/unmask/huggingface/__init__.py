"""Hugging Face checkpoint folders: config.json, model.safetensors and the tokenizer, read and written by a table.

Nothing is passed over in silence: a key that no rule names, a parameter that nobody filled, and a field whose
value the page does not implement are errors. Nothing is unpickled.
"""

from unmask.huggingface.config import TABLES
from unmask.huggingface.folder import Loaded, export, load, names, save

__all__ = ["TABLES", "Loaded", "export", "load", "names", "save"]
