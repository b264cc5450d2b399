"""Export to GGUF, the file format of llama.cpp, for encoders of the architecture `bert` with a WordPiece vocabulary.

Names of tensors and fields are those of llama.cpp's own converter (`conversion/bert.py` and the package `gguf`). It
reads texts one at a time, as segment 0, and computes states of the last layer, or a vector for each text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, needs
from unmask.files import atomic
from unmask.huggingface import Loaded
from unmask.huggingface.config import table_of
from unmask.huggingface.hub import model_folder
from unmask.models.model import Model
from unmask.serve.onnx import Exported, out_of

HALF, EIGHT_BITS = "model-F16.gguf", "model-Q8_0.gguf"
"""Matrices in float16, and in eight bits with a scale for every 32 numbers; all else is in float32."""

LAYER = {
    "attention.f.query": "attn_q",
    "attention.f.key": "attn_k",
    "attention.f.value": "attn_v",
    "attention.f.output": "attn_output",
    "attention.after": "attn_output_norm",
    "feedforward.f.up": "ffn_up",
    "feedforward.f.down": "ffn_down",
    "feedforward.after": "layer_output_norm",
}
INPUT = {
    "embedding.token": "token_embd",
    "embedding.segment": "token_types",
    "embedding.position.table": "position_embd",
    "embedding.norm": "token_embd_norm",
}
BLOCK = 32  # numbers of a row that share a scale in eight bits
EXACT = ("token_types.weight", "position_embd.weight")  # matrices that stay in float32, as in llama.cpp's converter
"""Parts of a model -> names in the file."""


def export_gguf(folder: Path | str, out: Path | str | None = None, *, int8: bool = False) -> Exported:
    """Write `model-F16.gguf` to `out`, by default the folder `gguf` in the model's own.

    int8  also write `model-Q8_0.gguf`, of half the size

    Raises UnmaskError, and writes nothing, without the package `gguf`, and for a model that llama.cpp has no form for:
    another architecture or vocabulary, or another activation than GELU.
    """
    if find_spec("gguf") is None:
        raise needs("GGUF needs gguf", "gguf")
    out, folder = out_of(folder, out, "gguf"), model_folder(folder)
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    tokenizer = _supported(loaded, folder)
    sizes = {}
    for name in (HALF, EIGHT_BITS) if int8 else (HALF,):
        with atomic(out / name) as temporary:
            _write(loaded, tokenizer, temporary, eight_bits=name == EIGHT_BITS)
        sizes[name] = (out / name).stat().st_size
    kept = "embedding" if "pooling" in loaded.settings else "encoder"
    return Exported(out, kept, tuple(loaded.model.heads), sizes, {})


def _supported(loaded: Loaded[Any], folder: Path) -> Tokenizer:
    """The tokenizer of a model that llama.cpp reads. Raises UnmaskError for another model."""
    table, tokenizer = table_of(loaded.model.config), loaded.require_tokenizer(folder)
    fields = loaded.model.config.to_dict()
    if not table.gguf or tokenizer.splitter.kind != "WordPiece":
        what = f"a {table.model_type} with a {tokenizer.splitter.kind} vocabulary"
        raise UnmaskError(f"GGUF is written for BERT with WordPiece, and {folder} holds {what}: use --format onnx.")
    if fields["activation"] != "gelu":
        raise UnmaskError(f"llama.cpp computes BERT with gelu, not {fields['activation']}: use --format onnx.")
    return tokenizer


def _write(loaded: Loaded[Model], tokenizer: Tokenizer, path: Path, *, eight_bits: bool) -> None:
    import gguf
    from gguf.quants import quantize

    fields = loaded.model.config.to_dict()
    writer = gguf.GGUFWriter(path, table_of(loaded.model.config).gguf)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if eight_bits else gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(fields["length"])
    writer.add_embedding_length(fields["dim"])
    writer.add_feed_forward_length(fields["hidden"])
    writer.add_block_count(fields["layers"])
    writer.add_head_count(fields["heads"])
    writer.add_layer_norm_eps(fields["eps"])
    writer.add_causal_attention(False)
    if pooling := loaded.settings.get("pooling"):
        writer.add_pooling_type(gguf.PoolingType[str(pooling).upper()])
    _add_vocabulary(writer, tokenizer, fields)
    forms = gguf.GGMLQuantizationType
    for name, values in _tensors(loaded.model):
        form = forms.F32
        if values.ndim == 2 and name not in EXACT:
            form = forms.Q8_0 if eight_bits and values.shape[1] % BLOCK == 0 else forms.F16
        writer.add_tensor(name, quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: Any, tokenizer: Tokenizer, fields: Mapping[str, Any]) -> None:
    """Pieces that begin a word have a ▁, and those that continue one no mark, in place of ##."""
    import gguf

    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    pieces, kinds = list[str](), list[Any]()
    for i, piece in enumerate(tokenizer.pieces(range(fields["vocabulary"]))):
        if i in tokenizer.specials or not piece:
            pieces.append(piece or f"[PAD{i}]")
            kinds.append(control if piece else gguf.TokenType.UNUSED)
        else:
            pieces.append(piece[2:] if piece.startswith("##") else f"▁{piece}")
            kinds.append(normal)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_types(kinds)
    writer.add_token_type_count(fields["segments"])
    writer.add_unk_token_id(tokenizer.unknown)
    writer.add_sep_token_id(tokenizer.sep)
    writer.add_pad_token_id(tokenizer.pad)
    writer.add_bos_token_id(tokenizer.cls)  # llama.cpp has no other name for [CLS]
    writer.add_mask_token_id(tokenizer.mask)
    writer.add_bool("tokenizer.ggml.normalizer.lowercase", not tokenizer.cased)
    strips = tokenizer.splitter.facts()["normalizer"].get("strip_accents")  # None: as lowercase
    writer.add_bool("tokenizer.ggml.normalizer.strip_accents", not tokenizer.cased if strips is None else strips)


def _tensors(model: Model) -> Iterator[tuple[str, np.ndarray]]:
    """Name in the file -> values in float32, without heads and pooler."""
    for parameter, tensor in model.named_parameters():
        part, _, kind = parameter.rpartition(".")
        number, _, own = part.removeprefix("stack.blocks.").partition(".")
        name = f"blk.{number}.{LAYER[own]}" if own in LAYER else INPUT.get(part)
        if name is not None:
            yield f"{name}.{kind}", tensor.detach().float().numpy()
