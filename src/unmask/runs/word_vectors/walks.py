"""Graphs as sentences: edges of a file, and random walks whose words are nodes (DeepWalk, node2vec).

Shapes: V nodes, E edges in both directions (or in the given one), W walks at the same time, L nodes of a walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.data.files.lines import lines
from unmask.errors import UnmaskError, plural

LEAST, MOST = 0.01, 100.0  # of p and q: a step is drawn again until it is accepted, MOST / LEAST times at the worst
TOGETHER = 10_000  # walks at the same time


def edges(path: str | Path, encoding: str | None = None) -> list[tuple[str, str]]:
    """The edges of a graph: two names a line, separated by white space; lines that begin with # are ignored.

    Raises UnmaskError that names a line without two names, and for a file without edges.
    """
    found = []
    for number, line in lines(Path(path), encoding=encoding):
        names = line.split()
        if not names or line.startswith("#"):
            continue
        if len(names) != 2:
            raise UnmaskError(
                f"{path}:{number} has {plural(len(names), 'field')}; an edge is two names separated by a space."
            )
        found.append((names[0], names[1]))
    if not found:
        raise UnmaskError(f"{path} holds no edges.")
    return found


@dataclass(frozen=True)
class Graph:
    """A graph as arrays.

    names   V nodes, in the order in which they first occur
    keys    [E] int64, ascending: a * V + b for an edge from a to b; an edge that is given twice is there twice
    begin   [V]: the neighbours of node a are `keys[begin[a] : begin[a] + degree[a]] % V`
    degree  [V]
    """

    names: list[str]
    keys: np.ndarray
    begin: np.ndarray
    degree: np.ndarray

    @classmethod
    def of(cls, edges: Sequence[tuple[str, str]], *, directed: bool = False) -> Graph:
        """The graph of edges, which go both ways unless it is directed."""
        names = list(dict.fromkeys(name for edge in edges for name in edge))
        index = {name: i for i, name in enumerate(names)}
        pairs_E2 = np.array([(index[a], index[b]) for a, b in edges])
        if not directed:
            pairs_E2 = np.concatenate([pairs_E2, pairs_E2[:, ::-1]])
        degree = np.bincount(pairs_E2[:, 0], minlength=len(names))
        return cls(names, np.sort(pairs_E2 @ [len(names), 1]), np.cumsum(degree) - degree, degree)

    def drawn(self, here_W: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """[W] a neighbour of each node, which has at least one."""
        place_W = (rng.random(len(here_W)) * self.degree[here_W]).astype(np.int64)
        neighbours_W: np.ndarray = self.keys[self.begin[here_W] + place_W] % len(self.names)
        return neighbours_W

    def joined(self, a_W: np.ndarray, b_W: np.ndarray) -> np.ndarray:
        """[W] whether there is an edge from a to b."""
        key_W = a_W * len(self.names) + b_W
        found_W: np.ndarray = self.keys[np.minimum(np.searchsorted(self.keys, key_W), len(self.keys) - 1)] == key_W
        return found_W

    def biased(
        self, before_W: np.ndarray, here_W: np.ndarray, bias: tuple[float, float], rng: np.random.Generator
    ) -> np.ndarray:
        """[W] a neighbour of each node by p and q (see `random_walks`), given the node before.

        By rejection: a neighbour is drawn, and accepted with a probability in proportion to its bias.
        """
        back, away = 1 / bias[0], 1 / bias[1]
        found_W, open_W = self.drawn(here_W, rng), np.arange(len(here_W))
        while len(open_W):
            t, x = before_W[open_W], found_W[open_W]
            weight = np.where(x == t, back, np.where(self.joined(t, x), 1.0, away))
            open_W = open_W[rng.random(len(open_W)) * max(back, 1.0, away) >= weight]
            found_W[open_W] = self.drawn(here_W[open_W], rng)
        return found_W


def random_walks(
    edges: Sequence[tuple[str, str]],
    rng: np.random.Generator,
    *,
    walks: int = 10,
    length: int = 40,
    directed: bool = False,
    p: float = 1.0,
    q: float = 1.0,
) -> Iterator[list[str]]:
    """Random walks on a graph, as sentences whose words are nodes (DeepWalk; Perozzi et al. 2014, section 4).

    walks     number of walks from every node; the order of the nodes is new for each
    length    most nodes of a walk; it ends early at a node without edges
    directed  follow edges from the first node to the second only
    p, q      bias of a step from v, after one from t to v, to a neighbour x of v: the probability is in proportion to
              1 / p if x is t, to 1 if there is an edge from t to x, and otherwise to 1 / q (node2vec; Grover & Leskovec
              2016, section 3.2.2). A large p avoids going back, a large q stays near t; 1 and 1 are DeepWalk

    An edge that is given n times has the weight n. Raises UnmaskError without edges, for numbers below 1, and for p or
    q out of their bounds.
    """
    if walks < 1 or length < 1 or not edges:
        raise UnmaskError("Walks need at least one edge, and at least one walk of one node.")
    if not (LEAST <= p <= MOST and LEAST <= q <= MOST):
        raise UnmaskError(f"p and q must lie between {LEAST} and {MOST:.0f}, not {p} and {q}.")
    graph = Graph.of(edges, directed=directed)
    for _ in range(walks):
        starts = rng.permutation(len(graph.names))
        for block in np.array_split(starts, -(-len(starts) // TOGETHER)):
            for path in _walked(graph, block, length, (p, q), rng):
                yield [graph.names[i] for i in path if i >= 0]


def _walked(
    graph: Graph, starts: np.ndarray, length: int, bias: tuple[float, float], rng: np.random.Generator
) -> np.ndarray:
    """[W, L] one walk from each start, all at the same time; -1 after its end."""
    path_WL = np.full((len(starts), length), -1)
    path_WL[:, 0] = starts
    on = np.arange(len(starts))
    for step in range(1, length):
        on = on[graph.degree[path_WL[on, step - 1]] > 0]
        here_W = path_WL[on, step - 1]
        if step == 1 or bias == (1, 1):
            path_WL[on, step] = graph.drawn(here_W, rng)
        else:
            path_WL[on, step] = graph.biased(path_WL[on, step - 2], here_W, bias, rng)
    return path_WL
