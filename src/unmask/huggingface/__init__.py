"""Hugging Face checkpoint folders: config.json, model.safetensors and the processor, read and written by tables.

Unknown content is an error: a key that no rule names, a parameter without a value, and a field whose value the page
does not implement. No pickle is opened.
"""

from unmask.huggingface.average import average
from unmask.huggingface.config import TABLES, only_here, page_named
from unmask.huggingface.folder import (
    Loaded,
    config_of,
    export,
    holds_encoder_decoder,
    load,
    names,
    opened,
    save,
    words_of,
)
from unmask.huggingface.kinds import ENCODER_DECODER, SETTINGS, SINGLE_STACK, Kind, OtherKind, holds_setting
from unmask.huggingface.resizing import fitted, resized

__all__ = [
    "ENCODER_DECODER",
    "SETTINGS",
    "SINGLE_STACK",
    "TABLES",
    "Kind",
    "Loaded",
    "OtherKind",
    "average",
    "config_of",
    "export",
    "fitted",
    "holds_encoder_decoder",
    "holds_setting",
    "load",
    "names",
    "only_here",
    "opened",
    "page_named",
    "resized",
    "save",
    "words_of",
]
