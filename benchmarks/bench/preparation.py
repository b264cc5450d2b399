"""Preparation of the pre-training rows, which is not timed: text, model, and the check that both sides are equal."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import common
from bench.common import Result, Settings
from unmask.huggingface.table import as_heads

if TYPE_CHECKING:
    from unmask.data.text.reading import TextDocument

LENGTH = 128  # tokens of a row, and positions of the model
LARGEST = 8_192  # entries of a vocabulary that the embedded corpus fills


def prepare_corpus(settings: Settings) -> Result:
    """Open the given corpus, or build the embedded one, which rows of the same settings share.

    Raises UnmaskError for a folder that is not a corpus.
    """
    from unmask.data.text import corpus

    if settings["corpus"] is None:
        size, packages = min(settings["vocabulary"], LARGEST), settings["packages"]
        folder = Path(settings["folder"]) / f"corpus-{packages}-{size}"
        if not folder.exists():
            corpus.build(documentation(packages), folder, vocabulary_size=size)
        settings["corpus"] = str(folder)
    opened = corpus.Corpus(settings["corpus"])
    train = opened.split("train")
    facts = {"vocabulary": opened.tokenizer.size, "tokens": train.tokens, "sentences": train.sentences}
    return {"corpus": settings["corpus"], **facts}


def documentation(packages: str) -> Callable[[], Iterator[TextDocument]]:
    """The installed documentation: of "all" packages, or of "python" alone."""
    from unmask.data.text import embedded

    return embedded.documents if packages == "all" else partial(embedded.documents, packages=(packages,))


def prepare_model(settings: Settings) -> Result:
    """Write the model that both sides start from, and compute its loss on both sides."""
    from unmask import huggingface
    from unmask.data.text.corpus import Corpus
    from unmask.models.bert import SIZES, Bert

    tokenizer = Corpus(settings["corpus"]).tokenizer
    dropout = {"dropout": settings["dropout"], "attention_dropout": settings["dropout"]}
    ids = {"vocabulary": max(settings["vocabulary"], tokenizer.size), "padding": tokenizer.pad}
    config = Bert().replace(**SIZES[settings["size"]], **ids, **dropout, length=LENGTH)
    model = config.build(as_heads({"mlm": 0}), seed=settings["seed"])
    huggingface.save(settings["model"], model, tokenizer)
    compared = {} if common.absent(["transformers"]) else compare_losses(settings)
    return {"parameters": model.parameters_total, **compared}


def compare_losses(settings: Settings) -> Result:
    """Loss and gradient norm of both sides for the same weights and the same masked batch, in fp32 without dropout.

    unmask         one sequence a row, as in transformers      packed  the same sequences packed into rows
    unmask_reread  after transformers saved the weights
    """
    import torch
    import transformers

    from unmask import huggingface
    from unmask.data.collate import pack, pad
    from unmask.runs import recipes
    from unmask.types import Example

    transformers.logging.set_verbosity_error()
    reader = transformers.AutoTokenizer.from_pretrained(settings["model"])
    theirs = transformers.BertForMaskedLM.from_pretrained(settings["model"]).eval()
    rows, _ = huggingface_rows(settings)
    batch = transformers.DataCollatorForLanguageModeling(reader, mlm_probability=0.15, seed=settings["seed"])(rows[:16])
    batch.pop("special_tokens_mask", None)

    examples = []
    for tokens, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
        places = (labels != -100).nonzero()[:, 0]
        targets = {"mlm": (places.numpy(), labels[places].numpy())}
        examples.append(Example(tokens[: int(mask.sum())].numpy(), targets=targets))

    loaded = huggingface.load(settings["model"])
    assert loaded.tokenizer is not None
    own = loaded.tokenizer
    objective = recipes.roberta_tiny().objective.build(own)

    def ours(model: Any, rows: Any) -> Any:
        loss = objective.loss(model, rows)["mlm"]
        return loss.sum / loss.count

    expected = theirs(**batch).loss
    expected.backward()
    padded, packed = pad(examples, loaded.tokenizer.pad), pack(examples, LENGTH, loaded.tokenizer.pad)
    loss = ours(loaded.model, padded)
    loss.backward()
    with tempfile.TemporaryDirectory(prefix="unmask-model-") as folder, torch.no_grad():
        theirs.save_pretrained(folder)
        reread = ours(huggingface.load(folder).model, padded).item()
        losses = {"transformers": expected.item(), "unmask": loss.item(), "packed": ours(loaded.model, packed).item()}
    norms = {"transformers": gradient_norm(theirs), "unmask": gradient_norm(loaded.model)}
    return {"losses": {**losses, "unmask_reread": reread}, "gradient_norms": norms}


def gradient_norm(model: Any) -> float:
    import torch

    return float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def huggingface_rows(settings: Settings) -> tuple[list[dict[str, list[int]]], int]:
    """Encoded rows as `run_mlm.py` prepares them, as lists, and the number of forward passes in a step.

    grouped  [CLS] document [SEP] of all documents in one sequence of ids, cut into full rows (`group_texts`)
    lines    [CLS] sentence [SEP], padded to the longest of the pass (`--line_by_line`). Lines are shorter than rows,
             so a step accumulates as many passes as have, on average, the tokens of a step of full rows.
    sorted   the same, with lines of similar length in a pass
    """
    import numpy as np

    from unmask.data.text.corpus import Corpus
    from unmask.objectives.sequences import runs

    corpus = Corpus(settings["corpus"])
    tokenizer, split = corpus.tokenizer, corpus.split("train")
    if settings["text"] == "grouped":
        joined = np.concatenate([tokenizer.join(np.concatenate(document.sentences))[0] for document in split])
        sequences = list(joined[: len(joined) // LENGTH * LENGTH].reshape(-1, LENGTH))
        passes = 1
    else:
        pieces = (run for document in split for s in document.sentences for run in runs([s], LENGTH - 2))
        sequences = [tokenizer.join(piece)[0] for piece in pieces]
        passes = max(1, round(LENGTH / np.mean([len(sequence) for sequence in sequences])))
    special = np.zeros(tokenizer.size, np.int64)
    special[list(tokenizer.specials)] = 1
    rows = [
        {
            "input_ids": sequence.tolist(),
            "attention_mask": [1] * len(sequence),
            "special_tokens_mask": special[sequence].tolist(),
        }
        for sequence in sequences
    ]
    return rows, passes
