"""`unmask cluster`: labels of frames of recordings, and all iterations of HuBERT."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli.ending import suggest
from unmask.cli.help import add_field, add_fields, needed
from unmask.cli.parser import Parser, add_verb, field_options, print_fields
from unmask.errors import UnmaskError

RECIPE = "hubert-tiny"
OWN = ("clusters", "sample", "layer")  # fields of the iterations that are not those of the runs


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "cluster",
        _cluster,
        "cluster the frames of recordings, as labels for HuBERT",
        about="Cluster the frames of recordings, as labels for HuBERT: unmask cluster --data FOLDER --out FOLDER.",
        fields=True,
    )
    sub.more_help = _cluster_help
    data = sub.group("what goes in")
    needed(data.add_argument("--data", nargs="+", default=[], metavar="FOLDER", help="folders of recordings"))
    model = sub.group("the model")
    add_field(model, "--model", "FOLDER", "model whose states are clustered (default: MFCC are)")
    add_field(model, "--layer", "N", "layer of the states, from 1 (default: the middle one)")
    frames = sub.group("frames and clusters")
    add_field(frames, "--clusters", "N", "number of clusters (100); with --iterations one for each, such as 100,500")
    add_field(frames, "--sample", "N", "most frames that the centres are computed from", default=200000)
    add_field(frames, "--rate", "N", "samples a second of the model that will learn the labels", default=16000)
    add_field(frames, "--hop", "N", "samples from one of its frames to the next", default=320)
    add_field(frames, "--window", "N", "samples of a frame", default=400)
    train = sub.group("training")
    train.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="train N models: on clusters of MFCC, then on those of a layer of the model before; the same command "
        "continues what was stopped",
    )
    train.add_argument(
        "--recipe", metavar="NAME", help=f"with --iterations: recipe of the models ({RECIPE}), whose fields follow"
    )
    output = sub.group("output")
    needed(output.add_argument("--out", metavar="FOLDER", help="folder for the labels, or of all iterations"))
    field_options(sub)


def _cluster_help(sub: Parser, _: list[str], __: dict[str, str], every: bool) -> None:
    if every:
        from unmask.runs.clustering import LabelMaking

        add_fields(sub, LabelMaking())


def _cluster(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.runs.clustering import LabelMaking, describe, make_labels
    from unmask.train.display import progress

    if options.iterations is not None:
        _iterate(options, overrides)
        return
    if options.recipe is not None:
        raise UnmaskError("--recipe is for --iterations: it names the models that are trained.")
    config = LabelMaking().override(overrides)
    if options.fields:
        print_fields(config)
        return
    _check(options)
    with progress() as show:
        labels = make_labels(config, options.data, options.out, show)
    print(describe(labels))
    data = " ".join(options.data)
    suggest(f"pretrain {RECIPE} --data {data} --labels {options.out} --out runs/mine --minutes 30")


def _iterate(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.runs import recipes
    from unmask.runs.clustering import Iterations, iterate
    from unmask.train.display import Terminal, progress

    own = {name: overrides.pop(name) for name in OWN if name in overrides}
    settings = Iterations().override({**own, "iterations": str(options.iterations)})
    recipe = options.recipe or RECIPE
    config = recipes.find(recipe)
    if {"steps", "minutes"} & set(overrides):
        config = config.override({"steps": None, "minutes": None})
    config = config.override(overrides, batch_size="rows.batch")
    if options.fields:
        print_fields(settings)
        print_fields(config)
        return
    _check(options)
    with progress() as show:
        result = iterate(settings, config, options.data, options.out, recipe=recipe, progress=show, display=Terminal())
    if result is not None and result.stopped is not None:
        print(f"Stopped by {result.stopped}: give the same command again to continue.")
    else:
        print(f"The models are in {Path(options.out)}: iteration-1/run to iteration-{settings.iterations}/run.")


def _check(options: argparse.Namespace) -> None:
    if not options.data or not options.out:
        raise UnmaskError("Give folders of recordings and one for the result: --data FOLDER --out FOLDER.")
