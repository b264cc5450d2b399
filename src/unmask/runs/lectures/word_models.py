"""Entries on models of words: a trigram network, vectors of homonyms in their sentences, walks on a graph.

Shapes: N sentences or trigrams, D width of a vector, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.data import collate
from unmask.models.bert import Bert
from unmask.models.model import Model
from unmask.objectives.language_modeling import MaskedLM
from unmask.runs.lectures.entry import Shown, entry
from unmask.runs.lectures.learning import learn
from unmask.runs.word_vectors import random_walks
from unmask.train.report import Chart, Heatmap, Series, Table
from unmask.types import Example, Head

SONNET = """When forty winters shall besiege thy brow,
And dig deep trenches in thy beauty's field,
Thy youth's proud livery so gazed on now,
Will be a totter'd weed of small worth held:
Then being asked, where all thy beauty lies,
Where all the treasure of thy lusty days;
To say, within thine own deep sunken eyes,
Were an all-eating shame, and thriftless praise.
How much more praise deserv'd thy beauty's use,
If thou couldst answer 'This fair child of mine
Shall sum my count, and make my old excuse,'
Proving his beauty by succession thine!
This were to be new made when thou art old,
And see thy blood warm when thou feel'st it cold."""
"""Sonnet 2 of Shakespeare (1609)."""


def trigram_network(vocabulary: int, generator: torch.Generator) -> nn.Sequential:
    """Two words -> scores of the next one: vectors of 10 numbers, 128 hidden units."""
    network = nn.Sequential(
        nn.Embedding(vocabulary, 10), nn.Flatten(0), nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, vocabulary)
    )
    for name, parameter in network.named_parameters():
        if name == "0.weight":
            nn.init.normal_(parameter, generator=generator)
        else:  # as PyTorch does
            bound = (20 if name.startswith("2") else 128) ** -0.5
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return network


@entry("A trigram network on a sonnet", code="runs/lectures/word_models.py", test="lectures/test_word_model_entries.py")
def sonnet(quick: bool) -> Shown:
    """A network predicts each word from the two before it (Bengio et al. 2003), on Sonnet 2 of Shakespeare: vectors of
    10 numbers, 128 hidden units, SGD with a rate of 0.001, one trigram after the other, ten epochs, as in PyTorch's
    tutorial on word embeddings. The loss is the sum over the trigrams.

    A slide gives 2106.03 in the first epoch and 2054.07 in the last. Even guesses among the words of this sonnet have
    about 517, so those numbers come from a longer text; the shape is the same.
    """
    words = SONNET.split()
    index = {word: i for i, word in enumerate(dict.fromkeys(words))}
    ids_N = torch.tensor([index[word] for word in words])
    network = trigram_network(len(index), torch.Generator().manual_seed(0))
    sgd, losses = torch.optim.SGD(network.parameters(), lr=1e-3), []
    for _ in range(2 if quick else 10):
        total = 0.0
        for i in range(2, len(ids_N)):
            loss = F.cross_entropy(network(ids_N[i - 2 : i]), ids_N[i])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            total += loss.item()
        losses.append(total)
    count, even = len(words) - 2, (len(words) - 2) * math.log(len(index))
    points = list(enumerate(losses, 1))
    return Shown(
        f"{count} trigrams of {len(index)} words; even guesses have a loss of {even:.2f}. It falls from "
        f"{losses[0]:.2f} to {losses[-1]:.2f} in {len(losses)} epochs.",
        [Table("Loss, seed 0", ["epoch", "loss"], points)],
        [Chart("Loss of an epoch, the sum over the trigrams", [Series("loss", points)], x="epoch")],
    )


SENSES: dict[str, dict[str, list[str]]] = {
    "bat": {
        "animal": [f"the bat {did} in the dark {place}" for did in ("flew", "slept") for place in ("cave", "barn")],
        "club": [f"the bat {did} the {new} ball" for did in ("hit", "missed") for new in ("first", "last")],
    },
    "배": {
        "ship": [f"배 를 타고 {place} 갔다" for place in ("섬에", "강으로", "멀리")],
        "pear": [f"배 를 {cut} 먹었다" for cut in ("깎아", "많이", "조금")],
        "belly": [f"배 가 {much} 아프다" for much in ("많이", "조금", "자주")],
    },
}
"""Word -> sense -> sentences, whose words are separated by spaces; each homonym is always at one position."""


class Sentences:
    """Sentences as ids, for a small BERT: 0 is padding, 1 [CLS], 2 [SEP], 3 [MASK]."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        words = dict.fromkeys(word for text in texts for word in text.split())
        self.index = {word: i for i, word in enumerate(words, 4)}
        ids = [[1, *(self.index[word] for word in text.split()), 2] for text in texts]
        self.batch = collate.pad([Example(np.array(one)) for one in ids], 0)

    def learned(self, steps: int) -> Model:
        """A BERT of two layers after so many steps of masked-token training on all sentences."""
        size = {"vocabulary": 4 + len(self.index), "dim": 32, "hidden": 64, "heads": 2, "layers": 2, "length": 16}
        config = Bert.from_dict({**size, "dropout": 0.0, "attention_dropout": 0.0})
        model = config.build({"mlm": Head("masked_token")}, seed=0)
        objective = MaskedLM(mask=3, specials=range(4), vocabulary=config.vocabulary)
        rng = np.random.default_rng(0)
        return learn(model, lambda: objective.loss(model, objective.corrupt(self.batch, rng))["mlm"], steps, 3e-3)

    def vectors(self, model: Model, word: str) -> list[Tensor]:
        """[N, D] for the embedding and each layer: its output at a word in each sentence that has it, less their mean,
        of length 1; zero if all are the same."""
        rows, places = (self.batch.tokens == self.index[word]).nonzero(as_tuple=True)
        with torch.no_grad():
            found = [states_BTD[rows, places] for states_BTD in model.hidden_states(self.batch)]
        return [F.normalize(of_ND - of_ND.mean(0), dim=-1, eps=1e-3) for of_ND in found]


def agreement(vectors_ND: Tensor, senses: Sequence[str]) -> tuple[float, float]:
    """Mean cosine of two sentences with the same sense, and with different ones."""
    cosines_NN = vectors_ND @ vectors_ND.T
    same_NN = torch.tensor([[a == b for b in senses] for a in senses])
    others_NN = ~torch.eye(len(senses), dtype=torch.bool)
    return cosines_NN[same_NN & others_NN].mean().item(), cosines_NN[~same_NN].mean().item()


@entry("Homonyms: bat and 배 in their sentences", code="models/bert.py", test="lectures/test_word_model_entries.py")
def homonyms(quick: bool) -> Shown:
    """A table of word vectors has one row for bat, the animal and the club, and for 배, ship, pear and belly. A
    contextual model (Peters et al. 2018; Devlin et al. 2019) computes a vector from the sentence. A BERT of two layers
    learns masked tokens of 17 sentences, without a word on senses; compared are the cosines of its states at the
    homonym, less their mean. At the embedding, a homonym is the same in all sentences; after a layer, its vectors fall
    into groups by sense. An untrained network parts them too: sentences with one sense share words.

    `unmask embed` writes vectors of sentences for a model of your own.
    """
    steps, rows, figures, last = (20 if quick else 100), [], [], {}
    sentences = Sentences([text for of in SENSES.values() for texts in of.values() for text in texts])
    models = {"untrained": sentences.learned(0), f"{steps} steps": sentences.learned(steps)}
    for word, of in SENSES.items():
        senses = [sense for sense, texts in of.items() for _ in texts]
        for name, model in models.items():
            for layer, vectors_ND in enumerate(sentences.vectors(model, word)):
                same, different = (round(value, 3) for value in agreement(vectors_ND, senses))
                rows.append((word, name, "embedding" if not layer else f"layer {layer}", same, different))
                last[word] = vectors_ND, same, different
        cosines = (last[word][0] @ last[word][0].T).clamp(0, 1).tolist()
        title = f"Cosines of {word} in its sentences after {steps} steps: white is 0 or less, full colour is 1"
        texts = [text for one in of.values() for text in one]
        figures.append(Heatmap(title, texts, [f"{sense} {i}" for i, sense in enumerate(senses, 1)], cosines))
    (_, same, different), (_, same_korean, different_korean) = last.values()
    return Shown(
        f"After {steps} steps, the mean cosine of bat in two sentences is {same:.2f} with the same sense and "
        f"{different:.2f} with different ones; of 배, {same_korean:.2f} and {different_korean:.2f}.",
        [Table("Mean cosines of two sentences", ["word", "model", "states", "same sense", "other sense"], rows)],
        figures,
    )


@entry("Walks of node2vec: p and q", code="runs/word_vectors/walks.py", test="word_vectors/test_walks.py")
def walks(quick: bool) -> Shown:
    """node2vec turns a graph into sentences for skip-gram by random walks. A step that came from t goes on to x with a
    weight of 1 / p if x is t, 1 if x is a neighbour of t, and 1 / q if it is not (Grover & Leskovec 2016); p = q = 1 is
    DeepWalk (Perozzi et al. 2014). The graph here has four groups of 20 nodes, with edges mostly within a group.

    `unmask words walk --edges FILE --p 1 --q 0.5 --out walks.txt` writes walks on a graph of your own, for
    `unmask pretrain word2vec`.
    """
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(4), 20)
    chances = np.where(groups[:, None] == groups, 0.3, 0.02)
    pairs = np.argwhere(np.triu(rng.random((80, 80)) < chances, 1))
    edges = [(str(a), str(b)) for a, b in pairs]
    joined = {*edges, *((b, a) for a, b in edges)}
    rows = []
    for p, q in ((1.0, 1.0), (4.0, 1.0), (0.25, 1.0), (1.0, 4.0), (1.0, 0.25)):
        found = list(random_walks(edges, rng, walks=2 if quick else 20, length=20, p=p, q=q))
        steps = [(t, x) for walk in found for t, x in zip(walk, walk[2:], strict=False)]
        back, near = np.mean([t == x for t, x in steps]), np.mean([step in joined for step in steps])
        visited = np.mean([len({groups[int(node)] for node in walk}) for walk in found])
        rows.append((p, q, *(round(float(x), 3) for x in (back, near, 1 - back - near)), round(float(visited), 2)))
    return Shown(
        f"With p = 4, {rows[1][2]:.0%} of the steps go back, with p = 0.25 {rows[2][2]:.0%}; with q = 4 "
        f"{rows[3][4]:.0%} lead away from the node before, with q = 0.25 {rows[4][4]:.0%}.",
        [
            Table(
                "Shares of steps, and groups of 20 nodes of a walk",
                ["p", "q", "back", "near", "away", "groups"],
                rows,
            )
        ],
    )


ENTRIES = (sonnet, walks)
CONTEXTUAL = (homonyms,)
