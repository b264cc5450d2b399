"""Queries, keys and values of one head for a text, and what flows through its block.

Shapes: T tokens, D width, H heads, K width of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.nn import Attention, Block, Stack, record_attention
from unmask.visualize.numbers import Data, packed
from unmask.visualize.reading import Read, twin


@torch.no_grad()
def neurons(model: Model, reading: Read, layer: int = 0, head: int = 0) -> Data:
    """One head of self-attention, from its vectors to its weights (as the neuron view of Vig 2019), and its block.

    layer, head  counted from 0

    "query", "key", "value" are [T, K], after rotation where positions rotate; "scale" times the dot product of a query
    and a key is the score, to which a position scheme and the mask may add ("adds"); "weights" are [T, T], the softmax.
    "flow" has the length of the vector of each token at each station of the block. Raises UnmaskError for a layer or a
    head that does not exist, and for blocks of another form.
    """
    other = twin(model)
    stack = next((one for one in other.stacks.values() if isinstance(one, Stack)), None)
    if stack is None:
        raise UnmaskError("This view needs a Transformer: this model has no stack of blocks.")
    if not 0 <= layer < len(stack.order):
        raise UnmaskError(f"There is no layer {layer}: the model has {len(stack.order)}, counted from 0.")
    block = stack.blocks[stack.order[layer]]
    part = block.attention.f if isinstance(block, Block) else None
    if not isinstance(block, Block) or not isinstance(part, Attention):
        raise UnmaskError("This view needs blocks of dot-product attention and a feed-forward; this model has others.")
    if not 0 <= head < part.heads:
        raise UnmaskError(f"There is no head {head}: the layer has {part.heads}, counted from 0.")
    call = [*stack.order[:layer]].count(stack.order[layer])  # of a block that several layers share
    kept: dict[str, list[Any]] = {}
    stations: dict[str, nn.Module] = {
        "attention": part, "after attention": block.attention, "feed-forward": block.feedforward.f,
        "after feed-forward": block.feedforward,
    }  # fmt: skip
    with ExitStack() as context:
        maps = context.enter_context(record_attention(part))
        context.callback(part.register_forward_pre_hook(_inputs(kept), with_kwargs=True).remove)
        context.callback(block.attention.register_forward_pre_hook(_first(kept)).remove)
        for name, module in stations.items():
            context.callback(module.register_forward_hook(_output(kept, name)).remove)
        other(reading.batch)
    x_1TD, positions = kept["inputs"][call]
    q_THK, k_TNK, v_TNK = (_heads(f(x_1TD)[0], part.head_dim) for f in (part.query, part.key, part.value))
    q_1HTK, k_1NTK = part.position.rotate(q_THK.transpose(0, 1)[None], k_TNK.transpose(0, 1)[None], positions)
    shared = head // (part.heads // part.kv_heads)  # the head of keys and values
    lengths = {name: kept[name][call][0].norm(dim=-1).tolist() for name in ("block input", *stations)}
    return {
        "layer": layer,
        "layers": len(stack.order),
        "head": head,
        "heads": part.heads,
        "tokens": reading.tokens,
        "query": packed(q_1HTK[0, head].float().cpu().numpy()),
        "key": packed(k_1NTK[0, shared].float().cpu().numpy()),
        "value": packed(v_TNK[:, shared].float().cpu().numpy()),
        "scale": float(part.scale),
        "weights": packed(maps[call].weights[0, head].float().cpu().numpy()),
        "adds": part.position.opens("bias") or part.position.opens("score") or stack.position.opens("bias"),
        "flow": lengths,
        "norm": "before" if not isinstance(block.attention.before, nn.Identity) else "after",
    }


def _heads(x_TF: Tensor, head_dim: int) -> Tensor:
    return x_TF.unflatten(-1, (-1, head_dim))


def _inputs(kept: dict[str, list[Any]]) -> Callable[..., None]:
    def hook(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        kept.setdefault("inputs", []).append((given[0], named.get("positions_BT")))

    return hook


def _first(kept: dict[str, list[Any]]) -> Callable[..., None]:
    def hook(module: nn.Module, given: tuple[Any, ...]) -> None:
        kept.setdefault("block input", []).append(given[0])

    return hook


def _output(kept: dict[str, list[Any]], name: str) -> Callable[..., None]:
    def hook(module: nn.Module, given: tuple[Any, ...], found: Tensor) -> None:
        kept.setdefault(name, []).append(found)

    return hook
