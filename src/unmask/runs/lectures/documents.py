"""Entries on documents and their length: hierarchical attention, the memory of an attention map.

Shapes: N documents, T tokens, n tokens of a sequence, K width of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from unmask import huggingface
from unmask.data import collate
from unmask.data.labelled.rows import Row
from unmask.data.text import whole_words
from unmask.kernels.attention import fused
from unmask.models.han import Han
from unmask.nn.attention import attention
from unmask.nn.mask import Bias
from unmask.runs import supervised_recipes
from unmask.runs.lectures.entry import Shown, entry
from unmask.runs.lectures.learning import learn
from unmask.tasks.texts import looked_at
from unmask.train.report import Bars, Heatmap, Table

OPINIONS = {"bad": ("dull", "poor", "awful"), "good": ("lovely", "fine", "great")}
OTHERS = (
    *("We saw it on monday.", "It is two hours long.", "A friend wrote the music.", "The hall was full of people."),
    *("My sister had the tickets.", "They show it again in may."),
)


def review(rng: np.random.Generator, label: str) -> Row:
    """A review of four sentences. One of them, at any place, states an opinion."""
    texts = [OTHERS[i] for i in rng.choice(len(OTHERS), 3, replace=False)]
    texts.insert(int(rng.integers(4)), f"The film was {rng.choice(OPINIONS[label])}.")
    return Row(text=" ".join(texts), label=label)


@entry("Where a hierarchical attention network looks", code="models/han.py", test="lectures/test_document_entries.py")
def documents(quick: bool) -> Shown:
    """A document is read twice (Yang et al. 2016): a bidirectional GRU reads the words of a sentence, attention sums
    them up as the vector of the sentence, and the same is done with the vectors of the sentences. Attention compares
    each state, after a layer with tanh, with a learned context vector (equations 5 to 10). So its weights say which
    words of a sentence, and which sentences of the document, the label comes from.

    Here a small network learns from reviews of four sentences, and one of them states an opinion. `unmask train han
    --data rows.tsv` trains one on your own documents, and `unmask predict --json` prints its weights.
    """
    rng, labels = np.random.default_rng(0), tuple(OPINIONS)
    rows = [review(rng, labels[i % 2]) for i in range(64)]
    sizes = Han(vocabulary=100, dim=16, hidden=8, context=8, dropout=0.0)
    tokenizer = huggingface.fitted(whole_words.train([row.text for row in rows], sizes.vocabulary), sizes)
    task = supervised_recipes.find("han").kind.of_labels(labels)
    model = sizes.replace(vocabulary=tokenizer.size).build(task.heads, seed=0)
    batch = collate.pad(task.encode(rows, tokenizer, 64).examples, tokenizer.pad)
    learn(model, lambda: task.loss(model, batch)[task.name], steps := 20 if quick else 40, 0.02)
    shown = review(rng, "good")
    example = task.encode([shown], tokenizer, 64).examples
    with torch.no_grad():
        sentences = looked_at(shown, example, model, tokenizer)
    longest = max(len(one["words"]) for one in sentences)
    words = [[word["word"] for word in one["words"]] for one in sentences]
    weights = [[word["weight"] for word in one["words"]] for one in sentences]
    texts = [[*own, *[""] * (longest - len(own))] for own in words]
    best = max(sentences, key=lambda one: one["weight"])
    word = max(best["words"], key=lambda one: one["weight"])
    places = [f"word {i + 1}" for i in range(longest)]
    return Shown(
        f"After {steps} steps, the sentence “{best['text']}” has {best['weight']:.0%} of the weight, and its word "
        f"“{word['word']}” {word['weight']:.0%} of that of the sentence.",
        [Table("Weights of the sentences", ["sentence", "weight"], [(x["text"], x["weight"]) for x in sentences])],
        [
            Heatmap(
                "Weights of the words of each sentence",
                [f"sentence {i + 1}" for i in range(len(sentences))],
                places,
                [[*own, *[0.0] * (longest - len(own))] for own in weights],
                texts=texts,
            ),
            Bars(
                "Weights of the sentences",
                [f"sentence {i + 1}" for i in range(len(sentences))],
                {"weight": [one["weight"] for one in sentences]},
            ),
        ],
    )


@entry("The memory of an attention map", code="nn/attention.py", test="lectures/test_document_entries.py")
def map_memory(quick: bool) -> Shown:
    """A head of self-attention over n tokens has a map of n² weights. By the equation, a layer keeps it for the
    gradient, and makes it once more for the scores. A fused kernel computes the map in tiles, which are never stored
    together, and again in the backward pass (Dao et al. 2022, "FlashAttention"): it keeps only queries, keys, values,
    outputs and one number for each query.

    The kept bytes are those of the tensors that autograd saves in a forward pass of one head of width 64 in float32.
    """
    lengths, generator = ((256, 512) if quick else (1_024, 4_096)), torch.Generator().manual_seed(0)
    kept = []
    for n in lengths:
        q, k, v = (torch.randn(1, 1, n, 64, generator=generator, requires_grad=True) for _ in range(3))
        exact = kept_bytes(partial(attention, q, k, v, Bias(), scale=0.125))
        tiled = kept_bytes(partial(fused, q, k, v, None, scale=0.125))
        kept.append((f"{n:,}", size(4 * n**2), size(exact), size(tiled)))
    sizes = [(f"{n:,}", size(4 * n**2), size(2 * n**2)) for n in (1_024, 4_096, 16_384, 65_536)]
    return Shown(
        f"A map of 65,536² takes {sizes[-1][1]} in float32 and {sizes[-1][2]} in a format of 16 bits, for each head "
        f"and layer. At {kept[-1][0]} tokens, {kept[-1][2]} are kept by the equation, and {kept[-1][3]} by the kernel.",
        [
            Table("One map", ["tokens", "float32", "16 bits"], sizes),
            Table("Kept for the gradient of one head", ["tokens", "the map", "equation", "kernel"], kept),
        ],
    )


def kept_bytes(forward: Callable[[], Tensor]) -> int:
    """The bytes of the tensors that autograd keeps in a forward pass, each storage once."""
    found: dict[int, Tensor] = {}

    def pack(x: Tensor) -> Tensor:
        found[x.untyped_storage().data_ptr()] = x  # kept, so that no other tensor gets its address
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        result = forward()
    total = sum(x.untyped_storage().nbytes() for x in found.values())
    del result
    return total


def size(count: int) -> str:
    """A number of bytes with its unit."""
    unit, name = next(
        (2**power, name) for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")) if count >= 2**power
    )
    return f"{count / unit:.3g} {name}"
