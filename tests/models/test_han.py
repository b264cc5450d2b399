"""Hierarchical attention by the equations of Yang et al. 2016, written out with loops; documents in any layout. Weights
of attention are computed in float32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import huggingface
from unmask.data import collate
from unmask.data.text import whole_words
from unmask.errors import UnmaskError
from unmask.models.han import Han
from unmask.nn.hierarchy import AttentiveLevel
from unmask.types import Batch, Example, Head
from unmask.visualize import saliency
from unmask.visualize.reading import read

SEP = 3
PAGE = Han(vocabulary=20, dim=5, hidden=3, context=4, dropout=0.0)
MODEL = PAGE.build({"topics": Head("sequence", 2)}, seed=1).double().eval()


def gru(network, x, suffix):
    """The outputs of one direction, from the first element that it reads to the last; torch's form of the GRU."""
    W, U, b, c = (
        getattr(network, f"{name}_l0{suffix}").detach().numpy()
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h, found = np.zeros(U.shape[1]), []
    for one in x:
        (r, z, n), (hr, hz, hn) = np.split(W @ one + b, 3), np.split(U @ h + c, 3)
        r, z = 1 / (1 + np.exp(-r - hr)), 1 / (1 + np.exp(-z - hz))
        n = np.tanh(n + r * hn)
        h = (1 - z) * n + z * h
        found.append(h)
    return found


def summed_up(level: AttentiveLevel, x):
    """Equations 1 to 7, or 8 to 10 of the next level: states in both directions, their weights and their sum."""
    forward, backward = gru(level.network.kernel, x, ""), gru(level.network.kernel, x[::-1], "_reverse")[::-1]
    h = [np.concatenate(both) for both in zip(forward, backward, strict=True)]
    W, b = (p.detach().numpy() for p in (level.attention.project.weight, level.attention.project.bias))
    u = level.attention.context.weight.detach().numpy()[0]
    scores = np.array([np.tanh(W @ one + b) @ u for one in h])
    weights = np.exp(scores) / np.exp(scores).sum()
    return sum(a * one for a, one in zip(weights, h, strict=True)), weights


def by_equations(document):
    """The vector of a document of sentences of ids, the weights of the words and those of the sentences."""
    table = MODEL.embedding.token.weight.detach().numpy()
    lower, upper = MODEL.stack.blocks
    found = [summed_up(lower, [table[i] for i in sentence]) for sentence in document]
    vector, weights = summed_up(upper, [vector for vector, _ in found])
    return vector, [own for _, own in found], weights


def example(document) -> Example:
    tokens = [i for sentence in document for i in (*sentence, SEP)][:-1]
    return Example(np.array(tokens), targets={"topics": (np.array([0]), np.array([0]))})


def test_a_document_is_read_by_the_equations_of_the_paper():
    document = [[5, 6, 7], [8], [9, 10, 11, 12]]
    batch = collate.pad([example(document)], 0, multiple=1)
    vector, of_words, of_sentences = by_equations(document)
    with torch.no_grad():
        found = MODEL.summary(MODEL(batch), torch.tensor([0]), batch)[0]
        looked = MODEL.looked(batch)
    np.testing.assert_allclose(found.numpy(), vector, atol=1e-7)
    real = batch.tokens[0] != SEP
    np.testing.assert_allclose(looked.words[0][real].numpy(), np.concatenate(of_words), atol=1e-7)
    wanted = np.repeat(of_sentences, [len(sentence) for sentence in document])
    np.testing.assert_allclose(looked.sentences[0][real].numpy(), wanted, atol=1e-7)
    assert not torch.stack([looked.words[0], looked.sentences[0]])[:, ~real].any()


DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(5, 19), min_size=1, max_size=5), min_size=1, max_size=4), min_size=1, max_size=5
)


@settings(max_examples=12, deadline=None)
@given(DOCUMENTS, st.integers(0, 9))
def test_padding_packing_and_neighbours_change_nothing(documents, more):
    examples = [example(document) for document in documents]
    longest = max(len(one.tokens) for one in examples)
    with torch.no_grad():
        for batch in (collate.pad(examples, 0, multiple=8), collate.pack(examples, longest + more, 0)):
            found = MODEL.answer("topics", MODEL(batch), batch.starts, batch)
            looked = MODEL.looked(batch)
            for i, one in enumerate(examples):
                alone = collate.pad([one], 0, multiple=1)
                answer = MODEL.answer("topics", MODEL(alone), torch.tensor([0]), alone)[0]
                torch.testing.assert_close(found[i], answer, atol=1e-6, rtol=0)
                own = slice(int(batch.starts[i]), int(batch.starts[i]) + len(one.tokens))
                torch.testing.assert_close(looked.words.flatten()[own], MODEL.looked(alone).words[0])


def test_separators_at_the_ends_and_in_a_row_are_no_sentences():
    document = torch.tensor([[5, 6, SEP, 7]])
    marked = torch.tensor([[SEP, 5, 6, SEP, SEP, 7, SEP]])
    with torch.no_grad():
        found = [MODEL.summary(MODEL(batch), torch.tensor([0]), batch) for batch in map(Batch, (document, marked))]
    torch.testing.assert_close(*found)


def test_a_document_without_a_word_has_a_vector_of_zeros_and_the_others_keep_theirs():
    batch = Batch(torch.tensor([[SEP, SEP], [5, 6]]))
    with torch.no_grad():
        found = MODEL.summary(MODEL(batch), torch.tensor([0, 2]), batch)
        one = Batch(batch.tokens[1:])
        alone = MODEL.summary(MODEL(one), torch.tensor([0]), one)
    assert not found[0].any()
    torch.testing.assert_close(found[1], alone[0])


TEXT = "Dr. Smith came. She said: it rains!  Nobody\nheard."


def tokenizer():
    return huggingface.fitted(whole_words.train([TEXT], 40), PAGE)


def test_sentences_end_by_the_rules_and_offsets_are_those_of_the_text():
    cut = tokenizer()
    tokens, _ = cut.join(cut.ids([TEXT])[0])
    encoding = cut.encode(TEXT)
    assert tokens.tolist() == encoding.ids.tolist()
    assert (tokens == SEP).sum() == 2  # "Dr." ends no sentence
    words = [TEXT[begin:end] for (begin, end), word in zip(encoding.offsets, encoding.words, strict=True) if word >= 0]
    assert words == ["Dr", ".", "Smith", "came", ".", "She", "said", ":", "it", "rains", "!", "Nobody", "heard", "."]
    assert np.unique(encoding.words).tolist() == [-1, *range(len(words))]


def test_texts_of_a_pair_are_sentences_of_one_document():
    cut = tokenizer()
    first, second = cut.ids(["Smith came.", "It rains!"])
    tokens, segments = cut.join(first, second)
    assert tokens.tolist() == [*first, SEP, *second]
    assert not segments.any()
    assert cut.join(*cut.ids([""]))[0].tolist() == [cut.cls]  # a head has a token to read


def test_a_folder_brings_the_sentences_back(tmp_path):
    cut = tokenizer()
    model = replace(PAGE, vocabulary=cut.size).build({"classification": Head("sequence", 2)})
    huggingface.save(tmp_path, model, cut, labels=("a", "b"))
    again = huggingface.load(tmp_path)
    assert again.processor.fingerprint == cut.fingerprint
    assert again.processor.ids([TEXT])[0].tolist() == cut.ids([TEXT])[0].tolist()


def test_the_view_of_gradients_has_the_weights_of_attention():
    cut = tokenizer()
    model = replace(PAGE, vocabulary=cut.size).build({"classification": Head("sequence", 2)}).eval()
    shown = read(model, cut, TEXT)
    found = saliency.beside_attention(model, shown, "classification", 0)["looked"]
    wanted = model.looked(shown.batch)
    assert found == {"words": wanted.words[0].tolist(), "sentences": wanted.sentences[0].tolist()}
    assert [value == 0 for value in found["sentences"]] == [word < 0 for word in shown.words]


def test_a_context_vector_has_numbers():
    with pytest.raises(UnmaskError, match="--context"):
        replace(PAGE, context=0).build()
