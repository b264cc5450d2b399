"""An untrained Transformer that ends its targets at realistic lengths, in folders that all sides of decoding.py read.

Shapes: V vocabulary, D width; F features that hold the position of a token.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from unmask import huggingface
from unmask.models.transformer import SIZES, Transformer
from unmask.types import Batch

END = 0
SHARPNESS = 3.0  # standard deviation of the logits, about that of a trained model
LOUDNESS = 3.0  # scale of random sub-layers, large enough that targets do not repeat one token
FEATURES = 8  # F
REACH = 40.0  # tokens: the sine of position / REACH grows over the length of the targets
HALF, STEEP = 14.0, 2.0  # tokens after which the end is as likely as the best other token; logits per token


def sources(count: int, vocabulary: int, seed: int) -> list[list[int]]:
    """Token ids of random sources: 8 to 25 each, 14 on average, as in image captions."""
    draw = random.Random(seed)
    lengths = [min(25, max(8, round(draw.gauss(14, 4)))) for _ in range(count)]
    return [[draw.randrange(1, vocabulary - 1) for _ in range(length)] for length in lengths]


def write_marian(size: str, vocabulary: int, folder: Path, seed: int) -> int:
    """Write the folder `marian`, which unmask and transformers read, and return the number of parameters."""
    config = Transformer().replace(
        **SIZES[size],
        vocabulary=vocabulary,
        length=256,
        positions="halves",
        padding=vocabulary - 1,
        start=vocabulary - 1,
        end=END,
        output_bias=True,
    )
    model = config.build(seed=seed).eval()
    write_end(model)
    huggingface.save(folder / "marian", model)
    return model.parameters_total


@torch.no_grad()
def write_end(model: Any) -> None:
    """Change a `TransformerModel` in place, so that the next token depends on source and prefix, and the end token
    becomes more likely with every position.

    F features of the sinusoids, which grow over the first positions, stay untouched in the decoder: no token and no
    sub-layer writes into them. The output vector of the end token reads them; its bias sets where it becomes likely.
    """
    D, generator = model.config.dim, torch.Generator().manual_seed(0)
    speeds = 10_000.0 ** (-2 * torch.arange(D // 2) / D)
    kept = int((speeds - 1 / REACH).abs().argmin()) - FEATURES // 2 + torch.arange(FEATURES)
    table, output = model.target.token.weight, model.heads["next"]
    table[:, kept] = 0
    for block in model.decoder.blocks:
        block.feedforward.f.down.weight.mul_(LOUDNESS)
        for part in (block.attention.f.output, block.cross.f.output, block.feedforward.f.down):
            part.weight[kept] = 0

    last = model.decoder.blocks[-1].feedforward.after
    hooks = [norm.register_forward_pre_hook(_spread(kept)) for norm in _norms(model.decoder)]
    hooks += [norm.register_forward_pre_hook(_spread(kept[:0])) for norm in _norms(model.encoder)]
    read, written = torch.randint(1, model.config.vocabulary - 1, (2, 64, 40), generator=generator)
    grown_T = model(Batch(written, source=Batch(read[:, :14])))[..., kept].mean((0, 2))
    for hook in hooks:
        hook.remove()
    signs = torch.randint(0, 2, (D,), generator=generator) * 2 - 1  # equal signs would make tokens repeat
    signs[kept] = 1
    scale = torch.where(torch.isin(torch.arange(D), kept), 1.0, SHARPNESS * signs)
    last.weight.mul_(scale)
    last.bias.mul_(scale)

    half = int(HALF)
    slope = float(grown_T[half + 4] - grown_T[half - 4]) / 8
    table[END] = 0
    table[END, kept] = STEEP / slope / FEATURES
    best = SHARPNESS * 0.93 * (2 * math.log(model.config.vocabulary)) ** 0.5  # about the largest of V normal numbers
    output.bias[END] = best - STEEP / slope * float(grown_T[half])


def _norms(stack: nn.Module) -> list[nn.Module]:
    return [part for part in stack.modules() if isinstance(part, nn.LayerNorm)]


def _spread(kept: torch.Tensor) -> Callable[[nn.Module, tuple[torch.Tensor]], None]:
    """A hook that sets a norm by its first input, so that each feature has mean 0 and variance 1 over the tokens. The
    features in `kept` pass unchanged."""

    def hook(norm: Any, inputs: tuple[torch.Tensor]) -> None:
        x = inputs[0].flatten(0, 1)
        y = F.layer_norm(x, x.shape[1:])
        weight, bias = 1 / y.std(0), -y.mean(0) / y.std(0)
        weight[kept], bias[kept] = x.std(1).mean(), 0.0
        norm.weight.copy_(weight)
        norm.bias.copy_(bias)

    return hook


def convert(marian: Path, folder: Path) -> None:
    """Convert the Marian folder to the two formats of CTranslate2, `float32` and `int8`."""
    from ctranslate2.converters import Converter
    from ctranslate2.converters.transformers import MarianMTLoader
    from transformers import MarianMTModel

    class Tokenless(Converter):
        """The converter for models of transformers, without the tokenizer that it expects."""

        def _load(self) -> Any:
            with torch.no_grad():
                model = MarianMTModel.from_pretrained(marian)
                names = {name(token): token for token in range(model.config.vocab_size - 1)}
                names["<pad>"] = model.config.vocab_size - 1
                tokenizer = SimpleNamespace(eos_token=name(END), unk_token=name(1), get_vocab=lambda: names)
                return MarianMTLoader()(model, tokenizer)

    for form in ("float32", "int8"):
        Tokenless().convert(str(folder / form), quantization=form)


def name(token: int) -> str:
    """The name of a token id: CTranslate2 reads and writes names."""
    return f"t{token}"
