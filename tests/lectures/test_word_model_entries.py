"""Models of words: the trigram network beside numpy, cosines of homonyms beside a plain loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from unmask.runs.lectures import word_models


def test_the_first_step_of_the_trigram_network_by_its_equations():
    """p = softmax(B relu(A [e1; e2] + a) + b), written out, and one step of SGD down its loss."""
    network = word_models.trigram_network(7, torch.Generator().manual_seed(1))
    E, A, a, B, b = (parameter.detach().double().numpy().copy() for parameter in network.parameters())
    hidden = np.maximum(A @ np.concatenate([E[4], E[2]]) + a, 0)
    scores = B @ hidden + b
    p = np.exp(scores) / np.exp(scores).sum()
    loss = torch.nn.functional.cross_entropy(network(torch.tensor([4, 2])), torch.tensor(5))
    assert loss.item() == pytest.approx(-np.log(p[5]), rel=1e-5)
    loss.backward()
    error = p - np.eye(7)[5]
    of_both = A.T @ ((B.T @ error) * (hidden > 0))
    np.testing.assert_allclose(network[0].weight.grad[[4, 2]].numpy().ravel(), of_both, atol=1e-5)


def test_the_sonnet_begins_at_even_guesses_and_improves():
    [table] = word_models.sonnet.show(True).tables
    (_, first), (_, second) = table.rows
    assert len(word_models.SONNET.splitlines()) == 14
    assert 0.95 < first / 517 < 1.1
    assert second < first


def test_senses_are_compared_pair_by_pair():
    vectors = torch.nn.functional.normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    senses = ["a", "b", "a", "b", "a"]
    cosines = {(i, j): float(vectors[i] @ vectors[j]) for i, j in itertools.permutations(range(5), 2)}
    same = np.mean([c for (i, j), c in cosines.items() if senses[i] == senses[j]])
    different = np.mean([c for (i, j), c in cosines.items() if senses[i] != senses[j]])
    assert word_models.agreement(vectors, senses) == pytest.approx((same, different))


def test_a_homonym_is_read_at_its_place():
    sentences = word_models.Sentences(["a bat flew", "the old bat", "no animal"])
    model = sentences.learned(0)
    embedded, *_, last = sentences.vectors(model, "bat")
    hidden = model(sentences.batch)
    wanted = torch.stack([hidden[0, 2], hidden[1, 3]])  # after [CLS]
    torch.testing.assert_close(last, torch.nn.functional.normalize(wanted - wanted.mean(0), dim=-1))
    assert (embedded[0] @ embedded[1]).item() == pytest.approx(-1)  # two positions, so two vectors around their mean


def test_layers_part_the_senses_that_the_embedding_cannot():
    [table] = word_models.homonyms.show(True).tables
    assert len(table.rows) == 2 * 2 * 3
    for _, _, states, same, different in table.rows:
        if states == "embedding":
            assert same == different == 0
        else:
            assert same > 0 > different


def test_p_and_q_do_what_they_say():
    [table] = word_models.walks.show(True).tables
    plain, little_back, much_back, near, far = (row[2:] for row in table.rows)
    assert little_back[0] < plain[0] < much_back[0]
    assert near[2] < plain[2] < far[2]
