"""item2vec: the rank of an item that was left out of a basket, by vectors of `unmask`, of gensim, and by plain counts.

    python benchmarks/baskets.py --seeds 3 --out baskets.json

The baskets are generated: each has items of one of 40 groups, whose first ones are the most frequent, and some of any
group. All sides train on the same baskets and rank the items of the same others (`visit_scores.left_out`).
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from bench import common
from unmask.runs.word_vectors import Word2Vec, Words, WordVectors, train, visit_scores

GROUPS, MEMBERS = 40, 25
Baskets = list[list[str]]


def generated(count: int, rng: np.random.Generator) -> Baskets:
    """Baskets of 3 to 8 items of one group, and up to three of any group, in any order."""
    weights = 1 / np.arange(1, MEMBERS + 1)
    weights /= weights.sum()
    baskets = []
    for group in rng.integers(0, GROUPS, count):
        own = rng.choice(MEMBERS, rng.integers(3, 9), replace=False, p=weights)
        others = rng.integers(0, GROUPS, rng.integers(0, 4))
        items = {f"{group}-{i}" for i in own} | {f"{g}-{rng.choice(MEMBERS, p=weights)}" for g in others}
        baskets.append(rng.permutation(sorted(items)).tolist())
    return baskets


def of_unmask(baskets: Baskets, dim: int, epochs: int, seed: int) -> WordVectors:
    config = Word2Vec(dim=dim, epochs=epochs, visits=0, seed=seed, words=Words(min_count=1, subsample=0))
    return train(([basket] for basket in baskets), config, threads=1).vectors


def of_gensim(baskets: Baskets, dim: int, epochs: int, seed: int) -> WordVectors:
    """With a window as large as any basket, which does not shrink: all pairs of a basket, as item2vec has them."""
    from gensim.models import Word2Vec as Theirs

    longest = max(map(len, baskets))
    settings = {"vector_size": dim, "window": longest, "shrink_windows": False, "sg": 1, "sample": 0, "min_count": 1}
    model = Theirs(baskets, **settings, epochs=epochs, seed=seed + 1, workers=1)
    return WordVectors(model.wv.index_to_key, model.wv.vectors)


def of_counts(baskets: Baskets, dim: int, epochs: int, seed: int) -> WordVectors:
    """Vectors whose cosines are those of two items' baskets, n_ij / sqrt(n_i n_j): item-based filtering by counts."""
    names, counts = np.unique([item for basket in baskets for item in basket], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    index = {str(names[i]): n for n, i in enumerate(order)}
    common_VV = np.zeros((len(index), len(index)))
    for basket in baskets:
        places = [index[item] for item in basket]
        common_VV[np.ix_(places, places)] += 1
    root_V = np.sqrt(np.diag(common_VV))
    values_V, vectors_VV = np.linalg.eigh(common_VV / np.outer(root_V, root_V))
    return WordVectors(list(index), vectors_VV * np.sqrt(np.maximum(values_V, 0)))


SIDES = {"unmask": of_unmask, "gensim": of_gensim, "cosines of counts": of_counts}


def compare(options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Side -> its scores and seconds for each seed."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in (*SIDES, visit_scores.FREQUENT)}
    train([["warm", "up"]] * 10, Word2Vec(epochs=1, words=Words(min_count=1)), threads=1)  # compiles
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        baskets, others = generated(options.baskets, rng), generated(options.test, rng)
        for side, learned in SIDES.items():
            began = time.perf_counter()
            vectors = learned(baskets, options.dim, options.epochs, seed)
            seconds = time.perf_counter() - began
            scores = visit_scores.left_out(vectors, others, options.top)
            found[side].append({**scores[visit_scores.VECTORS], "seconds": seconds})
        found[visit_scores.FREQUENT].append(scores[visit_scores.FREQUENT])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baskets", type=int, default=20_000, help="to train on")
    parser.add_argument("--test", type=int, default=500, help="baskets whose items are left out, one after the other")
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", help="JSON file for every seed")
    options = parser.parse_args()
    common.need("gensim", "numba")
    facts = common.machine(1)
    common.introduce(facts)
    found = compare(options)
    print(f"{'':26}{'hits of ' + str(options.top):>16}{'NDCG':>18}{'seconds':>10}")
    for side, results in found.items():
        hit, ndcg = ([result[name] for result in results] for name in ("hit", "ndcg"))
        seconds = f"{np.mean([r['seconds'] for r in results]):10.1f}" if "seconds" in results[0] else ""
        print(
            f"{side:26}{np.mean(hit):10.1%} ± {np.std(hit):.1%}{np.mean(ndcg):11.3f} ± {np.std(ndcg):.3f}{seconds}",
            flush=True,
        )
    common.write(options.out, {"machine": facts, "options": vars(options), "found": found})


if __name__ == "__main__":
    common.command(main)
