"""The difference between answers of a graph and of its model: largest difference, cosines, agreement, probabilities.

Shapes: B rows, T tokens, N choices, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.serve.onnx.graph import EncoderGraph

TEXTS = (
    "Yes.",
    "The ferry leaves at seven in the morning, and again at noon.",
    "Who wrote the letter that was found in the attic?",
    "It rained for three days; on the fourth the river rose above the bridge and the road to the village was closed.",
    "A dull film, saved by its music and by one very good scene near the end.",
    "Doctors advise people who cannot sleep to go to bed at the same time every evening.",
    "The company sold its shops in Spain for 1.2 million euros and will close two more next year.",
    "No!",
    "In 1869, a chemist in Saint Petersburg put the known elements in order of their weights and left gaps for those "
    "that nobody had found yet; within twenty years three of the gaps were filled, and their weights were those that "
    "he had foretold.",
    "My sister plays the cello, and her husband repairs old radios.",
    "Best sandwich in town, friendly people, but you wait half an hour.",
    "If the temperature falls below zero, water in the pipes freezes and may break them.",
    "She asked whether the train to Vienna stopped at every station or only at the large ones.",
    "The committee met on Tuesday without reaching a decision on the new budget.",
    "Cats sleep for most of the day.",
    "Light takes a little more than eight minutes from the sun to the earth, and more than four years from the next "
    "star, so that we see it as it was then.",
)
"""Texts on which a graph is compared with its model, of many lengths and topics."""

FARTHEST = 1e-3  # largest allowed difference between a float32 output and the model's
CHOICES = 4
HIDDEN = 6  # one token in so many is masked, for a masked language model


@dataclass(frozen=True)
class Rows:
    """Texts as inputs of a graph.

    inputs  name -> [B, T], for choices [B, N, T]; padded at the right
    asked   [B, T]: whether the answer at a token is compared: masked tokens of a masked language model, else all but
            padding
    """

    inputs: dict[str, np.ndarray]
    asked: np.ndarray


def rows(graph: EncoderGraph, tokenizer: Tokenizer, texts: Sequence[str] = TEXTS) -> Rows:
    """The texts as rows, every other one as a pair with the next; for choices, each text with four others."""
    ids = tokenizer.ids(list(texts))
    longest = min(graph.model.positions or 512, 128)
    pairs: list[tuple[np.ndarray, np.ndarray | None]]
    if graph.kind == "choice":
        n = len(ids)
        pairs = [(own, ids[(i + step) % n]) for i, own in enumerate(ids) for step in range(1, CHOICES + 1)]
    else:
        pairs = [(own, ids[i + 1] if i % 2 and i + 1 < len(ids) else None) for i, own in enumerate(ids)]
    joined = [tokenizer.join(first, second, longest) for first, second in pairs]
    width = max(len(tokens) for tokens, _ in joined)
    tokens, segments, seen = (np.full((len(joined), width), fill, np.int64) for fill in (tokenizer.pad, 0, 0))
    for i, (own, marks) in enumerate(joined):
        tokens[i, : len(own)], segments[i, : len(own)], seen[i, : len(own)] = own, marks, 1
    asked = seen > 0
    if graph.head == "mlm":
        asked &= ~np.isin(tokens, list(tokenizer.specials)) & (np.arange(width) % HIDDEN == 1)
        tokens[asked] = tokenizer.mask
    inputs: dict[str, np.ndarray] = {"input_ids": tokens, "attention_mask": seen, "token_type_ids": segments}
    if graph.kind == "choice":
        inputs = {name: values.reshape(-1, CHOICES, width) for name, values in inputs.items()}
    return Rows({name: inputs[name] for name in graph.inputs}, asked)


def of_model(graph: EncoderGraph, texts: Rows) -> list[np.ndarray]:
    """The outputs of the model."""
    with torch.no_grad():
        found = graph(*(torch.from_numpy(values) for values in texts.inputs.values()))
    return [one.numpy() for one in found]


def difference(graph: EncoderGraph, texts: Rows, wanted: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> float:
    """The largest difference over all outputs, without padding; infinite if a number is not finite."""
    seen = texts.inputs["attention_mask"] > 0
    worst = 0.0
    for axes, a, b in zip(graph.outputs.values(), wanted, found, strict=True):
        apart = np.abs(a - b)[seen] if "sequence" in axes else np.abs(a - b)
        worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max()))
    return worst


def require_near(
    graph: EncoderGraph, texts: Rows, wanted: Sequence[np.ndarray], found: Sequence[np.ndarray], path: Path
) -> None:
    """Raises UnmaskError if outputs of a file differ from those of its model, because it has other weights."""
    same = all(a.shape == b.shape for a, b in zip(wanted, found, strict=True))
    if not (same and difference(graph, texts, wanted, found) <= FARTHEST):
        raise UnmaskError(f"{path} is not of the weights beside it: export the model again, with unmask export.")


def of_answers(
    graph: EncoderGraph, texts: Rows, wanted: Sequence[np.ndarray], found: Sequence[np.ndarray]
) -> dict[str, float]:
    """The effect of rounding. For vectors, the mean and least cosine to those of the model; for scores, the mean and
    largest change; else the share of unchanged answers, and the mean and largest change of a probability."""
    if graph.kind in ("vectors", "hidden"):
        pairs = [
            (a, b) if a.ndim == 2 else (a[texts.asked], b[texts.asked]) for a, b in zip(wanted, found, strict=True)
        ]
        near = _cosines(*pairs[-1])
        return {"cosine, mean": float(near.mean()), "cosine, least": float(near.min())}
    if graph.outcomes == "score":
        change = np.abs(wanted[0] - found[0])
        return {"change of the score, mean": float(change.mean()), "change of the score, largest": float(change.max())}
    before, after = (_probabilities(graph, texts, said) for said in (wanted, found))
    change = np.abs(before - after)
    same = (before > 0.5) == (after > 0.5) if graph.outcomes == "several" else _best(before) == _best(after)
    return {
        "answers that stay": float(same.mean()),
        "change of a probability, mean": float(change.mean()),
        "change of a probability, largest": float(change.max()),
    }


def _probabilities(graph: EncoderGraph, texts: Rows, said: Sequence[np.ndarray]) -> np.ndarray:
    """[*, C]: probabilities for texts, for the compared tokens, or for begins and ends over the tokens of a row."""
    if graph.kind == "span":
        logits = np.stack(said).astype(np.float64)  # [2, B, T]
        return _softmax(np.where(texts.inputs["attention_mask"] > 0, logits, -np.inf))
    logits = said[0].astype(np.float64)
    if graph.kind == "token":
        logits = logits[texts.asked]
    return 1 / (1 + np.exp(-logits)) if graph.outcomes == "several" else _softmax(logits)


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shares / shares.sum(-1, keepdims=True))


def _best(probabilities: np.ndarray) -> np.ndarray:
    return np.asarray(probabilities.argmax(-1))


def _cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.asarray((first * second).sum(-1) / np.maximum(lengths, 1e-12))
