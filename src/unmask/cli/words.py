"""Verbs of word vectors: `pretrain word2vec`, and `words` to query, score and convert vectors."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from unmask.cli.ending import suggest
from unmask.cli.options import encoding_option
from unmask.cli.parser import add_group, add_verb, print_fields
from unmask.cli.settings import Settings, print_config
from unmask.errors import UnmaskError, plural

RECIPES = {
    "word2vec": "Word vectors from --data: skip-gram, negative sampling (Mikolov et al. 2013).",
    "word2vec-cbow": "The same with CBOW: several times as fast.",
}


def pretrain(options: argparse.Namespace, overrides: dict[str, str], file: Settings | None = None) -> None:
    """Carry out `unmask pretrain word2vec`."""
    from unmask.runs.word_vectors import Word2Vec, checkpoint, train
    from unmask.train.display import Terminal

    for name in ("start", "dry_run", "corpus"):
        if getattr(options, name):
            option = name.replace("_", "-").replace("start", "from")
            raise UnmaskError(f"--{option} has no effect for word2vec: leave it out.")
    options.out = options.out or f"runs/{options.recipe}"
    threads = overrides.pop("threads", None)
    config = Word2Vec(network="cbow" if options.recipe == "word2vec-cbow" else "skip-gram")
    if options.resume and (Path(options.out) / checkpoint.RUN).is_file():
        begun = checkpoint.begun(Path(options.out)).config
        config = begun if options.recipe in (None, begun.recipe) else config
    if file is not None:
        usual = config
        config = file.config(lambda facts: usual.replace(**facts["config"]), lambda: usual)
    config = config.override(overrides)
    if options.print_config:
        print_config("pretrain", config, recipe=options.recipe)
        return
    if options.fields:
        print_fields(config)
        print(f"--{'threads':32} None")
        return
    if threads is not None and not threads.isdecimal():
        raise UnmaskError(f"--threads must be a whole number, not '{threads}'.")
    count = None if threads is None else int(threads)
    train(None, config, files=options.data, out=options.out, threads=count, display=Terminal(), resume=options.resume)
    suggest(f"words nearest --model {options.out} WORD")


def add_verbs(verbs: Any) -> None:
    group = add_group(verbs, "words", "query word vectors: nearest, analogy, similarity, odd, evaluate; convert files")
    queries = (
        ("nearest", _nearest, "The words nearest to a word, or to the sum of several.", "+"),
        ("analogy", _analogy, "The first word is to the second as the third is to …?", 3),
        ("similarity", _similarity, "The cosine similarity of two words.", 2),
        ("odd", _odd, "The word that does not match the others.", "+"),
    )
    for name, run, help, count in queries:
        sub = _verb(group, name, run, help)
        sub.add_argument("words", nargs=count, metavar="WORD", help="words that have vectors")
        if name in ("nearest", "analogy"):
            sub.add_argument("--top", type=int, default=10, help="how many words")
        if name == "nearest":
            sub.add_argument("--minus", nargs="+", default=[], metavar="WORD", help="words that are subtracted")
    sub = _verb(
        group,
        "evaluate",
        _evaluate,
        "Score vectors by analogies, pairs with human scores, groups, visits of patients, or baskets.",
    )
    sub.add_argument(
        "--analogies", nargs="+", default=[], metavar="FILE", help="questions in the format of questions-words.txt"
    )
    sub.add_argument("--pairs", nargs="+", default=[], metavar="FILE", help="two words and a score a line")
    sub.add_argument("--groups", metavar="FILE", help="a code and its group a line: do the nearest codes share it?")
    sub.add_argument("--visits", metavar="FILE", help="visits of patients: which codes does the next visit have?")
    sub.add_argument("--baskets", metavar="FILE", help="sets of items: which item was left out of a set?")
    sub.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="K",
        help="with --groups, --visits and --baskets: how many codes or items",
    )
    encoding_option(sub)
    sub = _verb(group, "convert", _convert, "Write vectors in another format: .bin is binary, .txt or .vec text.")
    sub.add_argument("--out", required=True, metavar="PLACE", help="FILE.bin, FILE.txt, FILE.vec, or a folder")
    sub = add_verb(group, "visits", _visits, "Write visits of made-up patients, for `pretrain word2vec --visits 1`.")
    sub.add_argument("--out", required=True, metavar="FOLDER", help="folder for train.jsonl, test.jsonl and groups.tsv")
    sub.add_argument("--patients", type=int, default=2_000, metavar="N", help="number of patients (2,000)")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the visits")
    sub = add_verb(group, "senses", _senses, "The senses of words in WordNet: synonyms, definitions, hypernyms.")
    sub.add_argument("words", nargs="+", metavar="WORD", help="words in their base form")
    sub.add_argument(
        "--wordnet", required=True, metavar="FOLDER", help="data.noun, index.noun, ...; or synsets.jsonl, entries.jsonl"
    )
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub = add_verb(group, "walk", _walk, "Write random walks on a graph, one a line, for `pretrain word2vec`.")
    sub.add_argument("--edges", required=True, metavar="FILE", help="two names a line")
    encoding_option(sub)
    sub.add_argument("--out", required=True, metavar="FILE", help="file for the walks")
    sub.add_argument("--walks", type=int, default=10, help="walks from every node")
    sub.add_argument("--length", type=int, default=40, help="most nodes of a walk")
    sub.add_argument("--directed", action="store_true", help="follow edges from the first name to the second only")
    sub.add_argument("--p", type=float, default=1.0, help="node2vec: above 1, a step seldom goes back")
    sub.add_argument("--q", type=float, default=1.0, help="node2vec: above 1, a walk stays near; below 1, it goes far")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the walks")


def _verb(group: Any, name: str, run: Any, help: str) -> argparse.ArgumentParser:
    sub = add_verb(group, name, run, help)
    sub.add_argument(
        "--model",
        required=True,
        metavar="FOLDER",
        help="folder of `pretrain word2vec`, or FILE.bin, FILE.txt of another program",
    )
    sub.add_argument("--json", action="store_true", help="print JSON")
    return sub


def _nearest(options: argparse.Namespace, _: dict[str, str]) -> None:
    _print_scores(options, vectors_of(options.model).most_similar(options.words, options.minus, options.top))


def _analogy(options: argparse.Namespace, _: dict[str, str]) -> None:
    _print_scores(options, vectors_of(options.model).analogy(*options.words, top=options.top))


def _similarity(options: argparse.Namespace, _: dict[str, str]) -> None:
    found = vectors_of(options.model).similarity(*options.words)
    print(json.dumps({"similarity": found}) if options.json else f"{found:.4f}")


def _odd(options: argparse.Namespace, _: dict[str, str]) -> None:
    found = vectors_of(options.model).odd_one_out(options.words)
    print(json.dumps({"odd": found}, ensure_ascii=False) if options.json else found)


def _evaluate(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.word_vectors import evaluation

    if not (options.analogies or options.pairs or options.groups or options.visits or options.baskets):
        raise UnmaskError("Give --analogies FILE, --pairs FILE, --groups FILE, --visits FILE or --baskets FILE.")
    vectors = vectors_of(options.model)
    codes = _codes(options, vectors)
    analogies = {file: evaluation.analogies(vectors, file, encoding=options.encoding) for file in options.analogies}
    pairs = {file: evaluation.agreement(vectors, file, encoding=options.encoding) for file in options.pairs}
    if options.json:
        sections_of = {file: [section.to_dict() for section in found] for file, found in analogies.items()}
        agreement_of = {file: found.to_dict() for file, found in pairs.items()}
        everything = {"analogies": sections_of, "pairs": agreement_of, **codes}
        print(json.dumps(everything, indent=2, ensure_ascii=False))
        return
    for file, sections in analogies.items():
        print(f"{Path(file).name}: accuracy on the questions whose words have vectors")
        for section in sections:
            share = f"{section.correct / section.asked:6.1%}" if section.asked else "     –"
            print(f"  {section.name:32} {share}  {section.correct:,} of {section.asked:,} (in all {section.total:,})")
    for file, found in pairs.items():
        known = f"{found.pairs - found.unknown:,} of {found.pairs:,} pairs"
        print(f"{Path(file).name}: Spearman {found.spearman:.3f}, Pearson {found.pearson:.3f} over {known}")

    if near := codes.get("groups"):
        print(
            f"{Path(options.groups).name}: of the {options.top} nearest codes, {near['precision']:.1%} share the group"
        )
        print(f"  by chance {near['chance']:.1%}; {near['codes']:,} codes, {near['unknown']:,} more without a vector")
    if recalls := codes.get("visits"):
        print(f"{Path(options.visits).name}: recall of the codes of the next visit, of {options.top} codes")
        print(f"  {'':36}{'all codes':>10}{'new codes':>11}")
        for name, of in recalls.items():
            print(f"  {name:36}{of['all']:>10.1%}" + (f"{of['new']:>11.1%}" if "new" in of else ""))
    if ranks := codes.get("baskets"):
        print(f"{Path(options.baskets).name}: the item left out of a basket, among the first {options.top}")
        print(f"  {'':36}{'hits':>10}{'NDCG':>11}")
        for name, of in ranks.items():
            print(f"  {name:36}{of['hit']:>10.1%}{of['ndcg']:>11.3f}")


def _codes(options: argparse.Namespace, vectors: Any) -> dict[str, Any]:
    """The scores of vectors of codes: `groups`, `visits` and `baskets`, if they are asked for."""
    from unmask.runs.word_vectors import visit_scores, visits

    found: dict[str, Any] = {}
    if options.groups:
        groups = visit_scores.groups_in(options.groups, options.encoding)
        found["groups"] = vars(visit_scores.neighbours(vectors, groups, options.top))
    if options.visits:
        patients = visits.read([options.visits], options.encoding)
        found["visits"] = visit_scores.next_visits(vectors, patients, options.top)
    if options.baskets:
        sets = visits.read([options.baskets], options.encoding, alone=True)
        found["baskets"] = visit_scores.left_out(vectors, (one for patient in sets for one in patient), options.top)
    return found


def _visits(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.word_vectors import visits

    train, test, groups = visits.write(Path(options.out), options.patients, options.seed)
    print(f"{plural(options.patients, 'patient')} -> {train}, {test}; groups of codes -> {groups}")
    suggest(f"pretrain word2vec --data {train} --visits 1 --subsample 0 --out FOLDER")


def _convert(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.word_vectors import write

    out = Path(options.out)
    if out.suffix not in ("", ".bin", ".txt", ".vec"):
        raise UnmaskError(f"--out must be a .bin, .txt or .vec file, or a folder, not {out.name}.")
    if not out.suffix and out.is_dir() and any(out.iterdir()):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")
    vectors = vectors_of(options.model)
    if out.suffix:
        write(vectors, out)
    else:
        vectors.save(out)
    facts = {"words": len(vectors), "dim": vectors.dim, "out": str(out)}
    print(json.dumps(facts) if options.json else f"{plural(len(vectors), 'vector')} of {vectors.dim} numbers -> {out}")


def _walk(options: argparse.Namespace, _: dict[str, str]) -> None:
    import numpy as np

    from unmask.files import atomic
    from unmask.runs.word_vectors import random_walks
    from unmask.runs.word_vectors.walks import edges

    if options.seed < 0:
        raise UnmaskError("--seed must not be negative.")
    graph, rng = edges(options.edges, options.encoding), np.random.default_rng(options.seed)
    numbers = {name: getattr(options, name) for name in ("walks", "length", "directed", "p", "q")}
    walks = random_walks(graph, rng, **numbers)
    with atomic(Path(options.out)) as temporary, open(temporary, "w", encoding="utf-8") as file:
        count = sum(bool(file.write(" ".join(walk) + "\n")) for walk in walks)
    print(f"{plural(count, 'walk')} -> {options.out}")
    suggest(f"pretrain word2vec --data {options.out} --tokens spaces --lower false --out FOLDER")


def _senses(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.word_vectors import wordnet

    lexicon = wordnet.read(options.wordnet)
    found = {
        word: [(sense, [one.words[0] for one in wordnet.above(lexicon, sense)]) for sense in senses]
        for word in options.words
        if (senses := wordnet.senses(lexicon, word))
    }
    if options.json:
        rows = {
            word: [{"part": s.part, "words": s.words, "definition": s.definition, "above": path} for s, path in of]
            for word, of in found.items()
        }
        print(json.dumps(rows, ensure_ascii=False))
        return
    for word, of in found.items():
        print(f"{word}: {plural(len(of), 'sense')}")
        for sense, path in of:
            print(f"  {sense.part}  {', '.join(sense.words)}: {sense.definition}")
            if path:
                print(f"     < {' < '.join(path)}")


def vectors_of(place: Path | str) -> Any:
    """The word vectors of a folder or a file. Words that were left out are reported on standard error."""
    from unmask.runs.word_vectors import read

    found = read(place)
    for note in found.notes:
        print(f"unmask: {note}", file=sys.stderr)
    return found


def _print_scores(options: argparse.Namespace, found: list[tuple[str, float]]) -> None:
    if options.json:
        print(json.dumps([{"word": word, "similarity": score} for word, score in found], ensure_ascii=False))
        return
    for word, score in found:
        print(f"{score:7.4f}  {word}")
