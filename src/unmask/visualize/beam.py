"""Beam: the tree of a search with kept and dropped hypotheses; the most probable next tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from unmask.errors import UnmaskError
from unmask.generate import Search, Trace, generate
from unmask.generate.batching import Source, rectangle
from unmask.models.writer import Writer
from unmask.types import Batch
from unmask.visualize.numbers import Data

Names = Callable[[Sequence[int]], list[str]]
"""Token ids -> their names."""


def tree(model: Writer, source: Source, search: Search, *, end: int, names: Names) -> Data:
    """The nodes of a search for one source, in the order of steps, and the answers, best first.

    source  ids that the model reads, special ones included; or a vector [1, F]
    end     id of the token that ends a text
    names   names of tokens

    A node is {"id", "parent": an id or None, "step", "token", "said": log-probability of the token, "total": of the
    whole hypothesis, "score": the total through the length penalty, "fate": "kept", "finished" or "dropped", "group"}.
    "best" lists the ids of the best answer, from its first token on. Raises UnmaskError as `generate` does.
    """
    trace = Trace()
    answers = generate(model, _batch(model, source), search, end=end, trace=trace)[0]
    nodes = trace.nodes(0)
    labels = names([node.token for node in nodes])
    found = [
        {
            "id": place,
            "parent": node.parent,
            "step": node.step,
            "token": label,
            "said": node.log_probability,
            "total": node.total,
            "score": node.score,
            "fate": node.fate,
            "group": node.group,
        }
        for place, (node, label) in enumerate(zip(nodes, labels, strict=True))
    ]
    texts = [names(answer.tokens) for answer in answers]
    return {
        "view": "beam",
        "formula": search.formula,
        "width": search.beam_size,
        "nodes": found,
        "best": _path(found, answers[0].score),
        "answers": [
            {"tokens": tokens, "score": answer.score, "finished": answer.finished}
            for tokens, answer in zip(texts, answers, strict=True)
        ],
    }


@torch.no_grad()
def following(model: Writer, beginning: Sequence[int], *, top: int, never: Sequence[int], names: Names) -> Data:
    """The `top` most probable tokens after a beginning, with their probabilities, and the sum of all others.

    never  ids to leave out; their probability counts among the others

    Raises UnmaskError for `top` below 1 and an empty beginning.
    """
    if top < 1:
        raise UnmaskError(f"The number of tokens must be at least 1, not {top}.")
    state = model.prefill(_batch(model, beginning))
    share_V = model.decode_step(state.first, state)[0].float().softmax(-1)
    offered_V = share_V.clone()
    offered_V[list(never)] = 0.0
    best = offered_V.topk(min(top, len(offered_V)))
    tokens, shares = best.indices.tolist(), best.values.tolist()
    rows = [
        {"id": i, "token": name, "probability": p} for i, name, p in zip(tokens, names(tokens), shares, strict=True)
    ]
    return {"candidates": rows, "others": max(0.0, 1.0 - sum(shares))}


def _batch(model: Writer, source: Source) -> Batch:
    if not len(source):
        raise UnmaskError("There is nothing to read: give a text.")
    return rectangle([source], 0).to(getattr(model, "device", "cpu"))


def _path(nodes: Sequence[Data], score: float) -> list[int]:
    """Ids of the path from the first token to the finished node with this score."""
    ends = [node for node in nodes if node["fate"] == "finished"]
    place = min(ends, key=lambda node: abs(node["score"] - score))["id"] if ends else None
    path: list[int] = []
    while place is not None:
        path.append(place)
        place = nodes[place]["parent"]
    return path[::-1]
