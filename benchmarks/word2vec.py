"""word2vec: words a second and scores of `unmask` and of gensim, with the same settings on the same text, in turns.

python benchmarks/word2vec.py --data TEXTS --analogies questions-words.txt --pairs SCORED/*.txt --threads 4
python benchmarks/word2vec.py --ten-million DATA --analogies questions-words.txt --pairs SCORED/*.txt --threads 4

With --ten-million, the text is that of `lineage.py`: half of it books, half reviews of films.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import ten_million_text
from bench import common
from bench.common import Result, Settings

SIDES = ("unmask", "gensim", "gensim-file")


# ------------------------------------------------------------------------------------------------ trials


def of_unmask(settings: Settings) -> Result:
    """Text file to vectors with `train`; compiled before the clock starts, as gensim was when it was built."""
    from unmask.runs.word_vectors import Reading, Word2Vec, read, reading, train, write
    from unmask.runs.word_vectors.compiled import compiled

    config = Word2Vec().replace(**settings["config"])
    warm = config.replace(epochs=1, words={"min_count": 1})
    compiled(config.network)
    train([["warm", "up"]] * 10, warm, threads=1)
    began = time.perf_counter()
    lines = reading.read([settings["text"]], Reading(tokens="spaces", lower=False))
    found = train(lines, config, threads=settings["threads"])
    seconds = time.perf_counter() - began
    write(found.vectors, settings["vectors"])
    assert len(read(settings["vectors"])) == len(found.vectors)
    return {"seconds": seconds, "words_per_second": found.facts["words_per_second"], "words": len(found.vectors)}


def of_gensim(settings: Settings) -> Result:
    """As `unmask`'s, with gensim; its sentences are lists in memory, or, with "file", lines that its own code reads."""
    from gensim.models import Word2Vec

    config = settings["config"]
    words = config["words"]
    model = Word2Vec(
        vector_size=config["dim"],
        window=config["window"],
        min_count=words["min_count"],
        sample=words["subsample"],
        sg=int(config["network"] == "skip-gram"),
        hs=int(config["output"] == "hierarchical"),
        negative=0 if config["output"] == "hierarchical" else config["negative"],
        alpha=config["alpha"],
        min_alpha=config["min_alpha"],
        seed=config["seed"] + 1,
        workers=settings["threads"],
    )
    began = time.perf_counter()
    if settings["file"]:
        text: dict[str, Any] = {"corpus_file": settings["text"]}
    else:
        text = {"corpus_iterable": [line.split() for line in Path(settings["text"]).read_text("utf-8").splitlines()]}
    model.build_vocab(**text)
    training = time.perf_counter()
    model.train(
        **text, total_examples=model.corpus_count, total_words=model.corpus_total_words, epochs=config["epochs"]
    )
    ended = time.perf_counter()
    model.wv.save_word2vec_format(settings["vectors"], binary=True)
    speed = model.corpus_total_words * config["epochs"] / (ended - training)
    return {"seconds": ended - began, "words_per_second": speed, "words": len(model.wv)}


TRIALS = {"unmask": of_unmask, "gensim": of_gensim, "gensim-file": of_gensim}


# ------------------------------------------------------------------------------------------------ the comparison


def sentences(options: argparse.Namespace) -> Iterator[list[str]]:
    """The chosen text as sentences of words."""
    from unmask.data.text.reading import TextDocument
    from unmask.runs.word_vectors import reading

    if options.ten_million:
        texts = ten_million_text.documents(Path(options.ten_million), 10_000_000)
        return reading.cut(TextDocument(text, source) for text, source in texts)
    return reading.read(options.data) if options.data else reading.documentation()


def prepared(text: Iterator[list[str]], path: Path, limit: int | None) -> int:
    """Write the text that both sides read, one sentence a line, and return its words."""
    count = 0
    with open(path, "w", encoding="utf-8") as file:
        for sentence in text:
            file.write(" ".join(sentence) + "\n")
            count += len(sentence)
            if limit is not None and count >= limit:
                break
    return count


def scored(path: str, analogies: str | None, pairs: list[str]) -> dict[str, float]:
    """Scores of both sides' vectors by gensim's own evaluation: accuracy of analogies, mean Spearman over the sets."""
    import gzip
    import shutil

    from gensim.models import KeyedVectors

    vectors = KeyedVectors.load_word2vec_format(path, binary=True)
    scores = {}
    if analogies:
        with tempfile.NamedTemporaryFile(suffix=".txt") as plain:
            with gzip.open(analogies) if analogies.endswith(".gz") else open(analogies, "rb") as file:
                shutil.copyfileobj(file, plain)
            plain.flush()
            scores["analogies"] = vectors.evaluate_word_analogies(plain.name)[0]
    for file_name in pairs:
        with open(file_name, encoding="utf-8") as file:
            tabs = "\t" in next(islice(file, 1))
        found = vectors.evaluate_word_pairs(file_name, delimiter="\t" if tabs else " ")
        scores[Path(file_name).stem] = float(found[1].statistic)
    return scores


def compare(
    options: argparse.Namespace, network: str, output: str, text: Path, folder: Path
) -> dict[str, list[Result]]:
    """Let the sides take turns, `--turns` each. Every turn has a seed of its own, which is the same for all sides."""
    turns: dict[str, list[Result]] = {side: [] for side in SIDES}
    for turn in range(options.turns):
        for side in SIDES:
            config = {
                "network": network,
                "output": output,
                "dim": options.dim,
                "window": options.window,
                "negative": options.negative,
                "epochs": options.epochs,
                "alpha": 0.025,
                "min_alpha": 1e-4,
                "seed": turn,
                "words": {"min_count": options.min_count, "subsample": 1e-3},
            }
            vectors = str(folder / "vectors.bin")
            settings = {"config": config, "text": str(text), "vectors": vectors, "file": side == "gensim-file"}
            result = common.trial(__file__, side, settings, threads=options.threads)
            turns[side].append({**result, "scores": scored(vectors, options.analogies, options.pairs)})
    return turns


def show(network: str, output: str, turns: dict[str, list[Result]]) -> None:
    for side, results in turns.items():
        speed = common.spread(r["words_per_second"] for r in results)
        seconds = common.spread(r["seconds"] for r in results)
        ratio = common.spread(
            ours["words_per_second"] / theirs["words_per_second"]
            for ours, theirs in zip(turns["unmask"], results, strict=True)
        )
        print(
            f"{network:9} {output:12} {side:11} {speed['median'] / 1e6:6.3f} M words/s "
            f"({speed['least'] / 1e6:.3f} to {speed['greatest'] / 1e6:.3f})  {seconds['median']:6.1f} s in all  "
            f"unmask is {ratio['median']:.2f} times as fast ({ratio['least']:.2f} to {ratio['greatest']:.2f})",
            flush=True,
        )
        scores = common.summarise(results)["scores"]
        print("  " + "  ".join(f"{n} {s['mean']:.3f} ± {s['deviation']:.3f}" for n, s in scores.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=[], help="text; default: the documentation installed with Python")
    parser.add_argument("--ten-million", metavar="DATA", help="its books/ and imdb/ in place of --data")
    parser.add_argument("--words", type=int, help="stop reading after so many words")
    parser.add_argument("--analogies", help="questions-words.txt, or .gz of it")
    parser.add_argument("--pairs", nargs="+", default=[], help="files of pairs with scores")
    parser.add_argument("--networks", nargs="+", default=["skip-gram", "cbow"], choices=["skip-gram", "cbow"])
    parser.add_argument("--outputs", nargs="+", default=["negative"], choices=["negative", "hierarchical"])
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--negative", type=int, default=5)
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3, help="of each side, each with another seed")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="see that it runs: 100,000 words, one epoch, one turn")
    parser.add_argument("--out", help="JSON file for every turn")
    options = parser.parse_args()
    common.need("gensim", "numba")
    if options.quick:
        options.words, options.epochs, options.turns = 100_000, 1, 1
    facts = common.machine(options.threads)
    common.introduce(facts)
    with tempfile.TemporaryDirectory(prefix="unmask-word2vec-") as room:
        folder = Path(room)
        words = prepared(sentences(options), folder / "text.txt", options.words)
        print(f"{words:,} words, {options.epochs} epochs, {options.dim} numbers a vector")
        found: dict[str, Any] = {}
        for network in options.networks:
            for output in options.outputs:
                turns = compare(options, network, output, folder / "text.txt", folder)
                show(network, output, turns)
                found[f"{network} {output}"] = turns
    common.write(options.out, {"machine": facts, "options": vars(options), "words": words, "turns": found})


if __name__ == "__main__":
    common.command(main, TRIALS)
