"""The search with the folder of a language model, beside all transcripts and plain loops over tokens."""

import math
from collections import defaultdict
from itertools import groupby, product

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data.text import byte_pairs, characters
from unmask.generate.prefixes import Fusion, search
from unmask.models.gpt import Gpt2
from unmask.serve.language import language_model
from unmask.types import Batch

TEXTS = ["ab b a", "b ab", "a a ab"]
PIECES = ("", "a", "b", " ")
LEARN = {
    "pieces": lambda: byte_pairs.train(TEXTS * 3, 300, cased=True),
    "characters": lambda: characters.train(TEXTS * 3, 40),
}


@pytest.fixture(scope="module", params=list(LEARN))
def folder(request, tmp_path_factory):
    """A random language model, sharp enough for a mistake to show."""
    tokenizer = LEARN[request.param]()
    sizes = {"vocabulary": tokenizer.size, "dim": 16, "layers": 1, "heads": 2, "length": 16, "padding": tokenizer.pad}
    model = Gpt2(**sizes).build(seed=None)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0.0, 0.4, generator=generator)
    path = tmp_path_factory.mktemp("language")
    huggingface.save(path, model, tokenizer)
    return path


def by_token(folder):
    """(words, ends) -> log p, one token at a time."""
    loaded = huggingface.load(folder)
    model, tokenizer = loaded.model, loaded.tokenizer

    def log_p(words, ends):
        tokens = [tokenizer.cls, *tokenizer.ids([" ".join(words)])[0].tolist(), *[tokenizer.sep] * ends]
        total = 0.0
        for place in range(1, len(tokens)):
            with torch.no_grad():
                hidden = model(Batch(torch.tensor([tokens[:place]])))
                logits = model.answer("next", hidden, torch.tensor([place - 1]))
            total += float(logits.log_softmax(-1)[0, tokens[place]])
        return total

    return log_p


def test_words_are_scored_as_the_beginning_of_a_text_or_as_all_of_it(folder):
    found, wanted = language_model(folder), by_token(folder)
    for words in ((), ("ab",), ("ab", "b"), ("b", "a", "ab", "b")):
        for ends in (False, True):
            assert found(words, ends) == pytest.approx(wanted(words, ends), abs=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_search_finds_what_all_transcripts_find(folder, seed):
    logits = np.random.default_rng(seed).standard_normal((4, 4))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    sums, language = defaultdict(float), by_token(folder)
    for path in product(range(4), repeat=len(log_p)):
        labels = tuple(label for label, _ in groupby(path) if label)
        sums[labels] += math.exp(sum(log_p[f, label] for f, label in enumerate(path)))
    kept = {}
    wanted = {}
    for labels, p in sums.items():
        words = tuple("".join(PIECES[label] for label in labels).split())
        if words not in kept:
            kept[words] = language(words, True)
        wanted[labels] = math.log(p) + 0.7 * kept[words] + 0.4 * len(words)
    fusion = Fusion(language_model(folder), PIECES, 3, weight=0.7, bonus=0.4)
    found = search(log_p, 0, 10_000, fusion, floor=-math.inf)
    assert {one.labels: one.score for one in found} == pytest.approx(wanted, abs=1e-3)
    assert found[0].labels == max(wanted, key=wanted.get)
