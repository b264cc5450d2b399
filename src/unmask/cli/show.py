"""The verb `show`: a view of a model, its embeddings, its search or its runs, as one self-contained file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unmask.cli import generation
from unmask.cli.parser import add_group, add_verb, counted
from unmask.cli.show_recordings import add_part, clusters, features, part_of
from unmask.cli.signals import of_record, record_options
from unmask.cli.words import vectors_of
from unmask.errors import UnmaskError

ANIMAL = "The animal didn't cross the street because it was too tired"
MOST_DRAWS = 16
Data = dict[str, Any]


def add_verbs(verbs: Any) -> None:
    group = add_group(verbs, "show", "see inside a model, as a page or picture: attention, beam, embeddings, units")
    generation.add_units(group)
    sub = _verb(group, "attention", _attention, "Which tokens attend to which, in every layer and head.")
    _model(sub)
    sub.add_argument(
        "text",
        nargs="?",
        help=f"a text (default: {ANIMAL}); the source for a translator; the file of a picture or a "
        "recording for a model that reads these",
    )
    sub.add_argument(
        "--pair",
        metavar="TEXT",
        help="the second text of a pair; for a translator the target (default: the model's translation)",
    )
    sub.add_argument("--kind", choices=["encoder", "decoder", "cross"], help="which attention, if there are several")
    sub.add_argument(
        "--layer", type=int, metavar="L", help="the layer to show first, from 1; in a picture the only one (default: 1)"
    )
    sub.add_argument("--heads", type=int, nargs="+", metavar="H", help="the heads to show first, from 1 (default: all)")
    add_part(sub)
    sub = _verb(group, "beam", _beam, "The tree of a beam search: which hypotheses it keeps and which it drops.")
    _model(sub)
    sub.add_argument("text", help="a text to translate or continue")
    sub.add_argument("--beam-size", type=int, default=4, help="hypotheses that the search keeps")
    sub.add_argument("--length", type=int, default=30, help="most tokens to generate")
    sub = _verb(
        group, "embeddings", _embeddings, "Embeddings in two dimensions: of words and their neighbours, or the first."
    )
    _model(sub)
    sub.add_argument("words", nargs="*", help="words; without any, the first of the vocabulary")
    sub.add_argument("--method", choices=["pca", "tsne", "umap"], default="pca", help="how dimensions are reduced to 2")
    sub.add_argument("--count", type=int, default=300, help="points, at most 2,000")
    sub.add_argument("--in", dest="sentences", nargs="+", metavar="SENTENCE", help="show one word in these sentences")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random numbers")
    sub = _verb(
        group,
        "positions",
        _positions,
        "Position embeddings of a model of texts or pictures, the biases of a Swin, or sinusoids without a model.",
    )
    _model(sub, required=False)
    sub.add_argument("--length", type=int, default=64, metavar="N", help="positions of the sinusoids")
    sub.add_argument("--dim", type=int, default=128, metavar="N", help="features of the sinusoids")
    _add_picture_verbs(group)
    sub = _verb(
        group,
        "features",
        features,
        "A recording as a model reads it: spectrogram, masked frames, codebook entries, recognised words.",
    )
    _model(sub)
    sub.add_argument("recording", metavar="RECORDING", help="the file of a recording")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the masked frames")
    sub.add_argument("--labels", metavar="FOLDER", help="labels of unmask cluster, whose clusters are shown too")
    add_part(sub)
    sub = _verb(
        group,
        "signal",
        _signal,
        "A record, such as an electrocardiogram: its trace and beats, and where a model looked.",
    )
    _model(sub)
    sub.add_argument("record", metavar="RECORD", help="the file of a record")
    record_options(sub)
    sub = _verb(group, "forecast", _forecast, "What follows series, such as the columns of a table, with quantiles.")
    _model(sub)
    sub.add_argument("series", metavar="SERIES", help="the file of series: a table, or a record")
    sub = _verb(group, "clusters", clusters, "The clusters of frames beside letters, or beside words or speakers.")
    _model(sub, required=False)
    sub.add_argument("--labels", required=True, metavar="FOLDER", help="labels of frames, from unmask cluster")
    sub.add_argument("--data", required=True, metavar="FOLDER", help="the recordings; subfolders are classes")
    sub.add_argument("--count", type=int, default=500, metavar="N", help="most recordings to read")
    sub = _verb(group, "masking", _masking, "Which tokens of a text are masked (for a T5, which spans), in N draws.")
    _model(sub)
    sub.add_argument("text", help="a text")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random numbers")
    sub.add_argument("--draws", type=int, default=5, metavar="N", help="number of draws")
    sub.add_argument("--rate", type=float, default=0.15, help="share of tokens to mask")
    sub.add_argument("--whole-words", action="store_true", help="mask all pieces of a word together")
    sub.add_argument("--mean-span", type=float, metavar="N", help="mean tokens of a span, for a T5 (default: 3)")
    sub = _verb(group, "wordpiece", _wordpiece, "How a text is split into pieces, with ids and offsets.")
    _model(sub)
    sub.add_argument("text", help="a text")
    sub = _verb(group, "masks", _masks, "Which tokens attend to which: causal, padding, document and window masks.")
    _model(sub)
    sub.add_argument("text", help="a text")
    sub.add_argument("--pair", default="", metavar="TEXT", help="a second text, packed into the same row")
    sub.add_argument("--window", type=int, default=3, help="size of the window in tokens")
    sub = _verb(group, "complexity", _complexity, "The time of attention, recurrence and convolution on this machine.")
    sub.add_argument("--dim", type=int, default=128, help="width")
    sub = _verb(group, "run", _run, "Learning curves of runs, running or finished, and how their settings differ.")
    sub.add_argument("folders", nargs="+", metavar="FOLDER", help="folders of runs")


def _add_picture_verbs(group: Any) -> None:
    sub = _verb(group, "filters", _filters, "The filters of the first layer of a model of pictures.")
    _model(sub)
    sub = _verb(
        group, "reconstruction", _reconstruction, "What a model restores of masked patches, colours or details."
    )
    _model(sub)
    sub.add_argument("pictures", nargs="+", metavar="PICTURE", help="files of pictures")
    sub.add_argument(
        "--rates", type=float, nargs="+", metavar="R", help="shares of a picture to mask (default: that of the model)"
    )
    sub.add_argument("--draws", type=int, default=1, metavar="N", help="draws of masked patches, each by its own seed")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the first draw")
    sub = _verb(
        group,
        "augmentation",
        _augmentation,
        "What a recipe makes of a picture: crops, colours, masked patches.",
        fields=True,
    )
    sub.add_argument("picture", metavar="PICTURE", help="the file of a picture")
    sub.add_argument("--recipe", default="simclr-tiny", metavar="NAME", help="a recipe that learns from pictures")
    sub.add_argument("--count", type=int, default=16, metavar="N", help="how often the picture is read, at most 32")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random numbers")
    sub = _verb(group, "neighbours", _neighbours, "The pictures of a folder whose vectors are nearest to a picture's.")
    _model(sub)
    sub.add_argument("pictures", nargs="+", metavar="PICTURE", help="files of pictures")
    sub.add_argument("--data", required=True, metavar="FOLDER", help="a folder of pictures to search")
    sub.add_argument("--count", type=int, default=8, metavar="N", help="neighbours of each picture, at most 100")
    sub = _verb(group, "windows", _windows, "The windows of a Swin over a picture, and their shift, stage by stage.")
    _model(sub)
    sub.add_argument("picture", metavar="PICTURE", help="the file of a picture")


def _verb(
    group: Any, name: str, make: Callable[[argparse.Namespace], Data], help: str, *, fields: bool = False
) -> argparse.ArgumentParser:
    """A verb that shows what `make` returns; with `fields`, unknown options are in `options.fields`."""

    def run(options: argparse.Namespace, given: dict[str, str]) -> None:
        options.fields = given
        out = Path(options.out)
        if out.suffix not in (".html", ".png", ".svg"):
            raise UnmaskError(f"--out must end in .html, .png or .svg, unlike '{out.name}'.")
        data = make(options)
        if out.suffix == ".html":
            from unmask.visualize.standalone import write

            write(out, _title(name, options), data)
        else:
            from unmask.visualize.pictures import draw

            draw(out, data)
        print(f"{name.capitalize()} -> {out}")

    more = "Fields of the recipe are set as --NAME VALUE; `unmask pretrain RECIPE --help-all` lists them."
    sub = add_verb(group, name, run, help, fields=fields, more=more if fields else "")
    sub.add_argument("--out", required=True, metavar="FILE", help="FILE.html, FILE.png or FILE.svg")
    return sub


def _model(sub: argparse.ArgumentParser, *, required: bool = True) -> None:
    sub.add_argument("--model", required=required, metavar="FOLDER", help="a model folder")


def _title(name: str, options: argparse.Namespace) -> str:
    where = Path(options.model).name if getattr(options, "model", None) else ""
    return f"{name.capitalize()}: {where}" if where else name.capitalize()


def _attention(options: argparse.Namespace) -> Data:
    opened = _opened(options.model)
    if options.text is None and (opened.reads_pictures or opened.reads_recordings or opened.captions):
        items = "recordings" if opened.reads_recordings else "pictures"
        raise UnmaskError(f"This model reads {items}: name the file of one.")
    text = ANIMAL if options.text is None else options.text
    found = opened.attention(text, options.pair, options.kind, part_of(options))
    if "layers" not in found:
        return found
    layer = counted(options.layer, found["layers"], "layer") if options.layer is not None else 0
    heads = [counted(head, found["heads"], "head") for head in options.heads or []]
    start = {"layer": layer, "heads": heads or list(range(found["heads"])), "mode": "heads"}
    return found | ({"start": start} if options.layer is not None or heads else {})


def _beam(options: argparse.Namespace) -> Data:
    return _opened(options.model).beam(options.text, options.beam_size, options.length)


def _embeddings(options: argparse.Namespace) -> Data:
    from unmask.visualize import words
    from unmask.visualize.context import in_context

    if options.sentences:
        if len(options.words) != 1:
            raise UnmaskError("Give one word before --in, to find in the sentences.")
        opened = _opened(options.model)
        found = in_context(opened.model, opened.tokenizer, options.words[0], options.sentences)
        return {"view": "context", **found}
    return words.cloud(
        _vectors(options.model), options.words, method=options.method, count=options.count, seed=options.seed
    )


def _vectors(model: str) -> Any:
    """The word vectors of a word2vec folder or file, or the token embeddings of a model folder."""
    from unmask.visualize.words import Vectors, of_model

    if (Path(model) / "config.json").is_file():
        opened = _opened(model)
        return of_model(opened.model, opened.vocabulary)

    found = vectors_of(model)
    return Vectors(found.words, found.matrix)


def _positions(options: argparse.Namespace) -> Data:
    from unmask.visualize import positions

    if options.model:
        return positions.of_model(_opened(options.model).model)
    return positions.sinusoidal(options.length, options.dim)


def _signal(options: argparse.Namespace) -> Data:
    found: Data = _opened(options.model).signal(Path(options.record), **of_record(options))
    return found


def _forecast(options: argparse.Namespace) -> Data:
    return _opened(options.model).forecasts(Path(options.series))


def _filters(options: argparse.Namespace) -> Data:
    from unmask.visualize.filters import filters

    return filters(_opened(options.model).model)


def _reconstruction(options: argparse.Namespace) -> Data:
    from unmask.objectives import registry
    from unmask.runs.report import run_facts
    from unmask.visualize.reconstruction import reconstruction

    if not 1 <= options.draws <= MOST_DRAWS:
        raise UnmaskError(f"--draws must be from 1 to {MOST_DRAWS}, not {options.draws}.")
    opened = _opened(options.model)
    model, processor = opened.model, opened.image_processor
    config = registry.trained_by(model.config, tuple(model.heads), run_facts(opened.folder))
    objective: Any = None if config is None else config.build(processor)
    if config is None or not objective.restores:
        raise UnmaskError(f"{options.model} has no head that predicts pixels: use a model of masked patches, as MAE.")
    pictures = {name: _pixels(name, processor.channels) for name in options.pictures}
    if "rate" not in config.leaves():
        if options.rates or options.draws > 1:
            raise UnmaskError(f"--rates and --draws are for masked patches, and {options.model} masks none.")
        return reconstruction(model, {objective.given: objective}, pictures, range(1))
    rates = options.rates or [config.leaves()["rate"]]
    built: dict[str, Any] = {
        f"{100 * rate:.4g} % masked, seed {{seed}}": config.replace(rate=rate).build(processor) for rate in rates
    }
    return reconstruction(model, built, pictures, range(options.seed, options.seed + options.draws))


def _augmentation(options: argparse.Namespace) -> Data:
    from unmask.data.pictures.processor import ImageProcessor
    from unmask.runs import recipes, supervised_recipes
    from unmask.visualize.augmentation import augmentation

    if not 1 <= options.count <= 32:
        raise UnmaskError(f"--count must be from 1 to 32, not {options.count}.")
    if options.recipe in supervised_recipes.names():
        raise UnmaskError(
            f"The recipe '{options.recipe}' learns labels: choose one of `unmask pretrain` that learns from pictures, "
            "such as simclr-tiny."
        )
    recipe = recipes.find(options.recipe)
    if "pictures" not in recipe.model.offers:
        raise UnmaskError(
            f"The recipe '{options.recipe}' does not learn from pictures: choose one such as simclr-tiny."
        )
    objective = recipe.override(options.fields).objective
    processor = objective.processor(ImageProcessor())
    built: Any = objective.build(processor)
    picture = _pixels(options.picture, processor.channels)
    return augmentation(built, picture, count=options.count, seed=options.seed)


def _neighbours(options: argparse.Namespace) -> Data:
    import numpy as np

    from unmask.data.pictures.corpus import named_pictures
    from unmask.serve.vectors import item_vectors
    from unmask.visualize.neighbours import neighbours

    if not 1 <= options.count <= 100:
        raise UnmaskError(f"--count must be from 1 to 100, not {options.count}.")
    folder, asked = Path(options.data), [Path(name) for name in options.pictures]
    pictures, names = named_pictures(folder)
    vectors_ND = np.concatenate(list(item_vectors(options.model, [*asked, *pictures])))
    own = dict(zip(asked, vectors_ND, strict=False))
    return neighbours(own, folder, pictures, names, vectors_ND[len(asked) :], options.count)


def _windows(options: argparse.Namespace) -> Data:
    from unmask.visualize.windows import windows

    opened = _opened(options.model)
    processor = opened.image_processor
    return windows(opened.model, processor, _pixels(options.picture, processor.channels))


def _pixels(name: str, channels: int) -> Any:
    from unmask.data.pictures.decoding import decode

    return decode(Path(name), channels)


def _masking(options: argparse.Namespace) -> Data:
    how = {"seed": options.seed, "draws": options.draws, "rate": options.rate, "mean_span": options.mean_span}
    return _opened(options.model).masking(options.text, whole_words=options.whole_words, **how)


def _wordpiece(options: argparse.Namespace) -> Data:
    from unmask.visualize.masking import wordpiece

    return wordpiece(_opened(options.model).vocabulary, options.text)


def _masks(options: argparse.Namespace) -> Data:
    from unmask.visualize.masks import masks

    opened = _opened(options.model)
    return masks(opened.pieces(options.text), opened.pieces(options.pair), window=options.window)


def _complexity(options: argparse.Namespace) -> Data:
    from unmask.visualize.complexity import complexity

    return complexity(dim=options.dim)


def _run(options: argparse.Namespace) -> Data:
    from unmask.visualize.runs import compare

    return compare(options.folders)


def _opened(folder: str) -> Any:
    from unmask.serve.opened import open_model

    return open_model(folder)
