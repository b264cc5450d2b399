"""Recurrent folders end to end: pre-trained as language models or autoencoders, fine-tuned for classes and tags."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from finetune_toy import fields, write_tsv

from unmask import huggingface
from unmask.cli import main
from unmask.data.text import characters, corpus, whole_words
from unmask.data.text.corpus import Corpus
from unmask.data.text.reading import TextDocument
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.runs import recipes, vocabulary_extension
from unmask.runs.evaluation import evaluate
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.pretraining import Pretrain
from unmask.runs.report import write_report
from unmask.serve import Predictor
from unmask.train.events import Step
from unmask.train.metrics import read as read_metrics
from unmask.types import Batch

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "poor", "dull"]
FILLER = ["the", "film", "was", "and", "it", "had", "a", "plot", "of", "some", "kind", "in", "which", "people", "talk"]
SMALL = {"dim": 24, "hidden": 32, "layers": 1}


def review(number: int) -> TextDocument:
    """Sentences in which all that is judged is judged alike, so that a language model has something to remember."""
    rng = np.random.default_rng(number)
    words = GOOD if number % 2 else BAD
    lines = [f"the {rng.choice(['film', 'plot'])} was {rng.choice(words)}." for _ in range(4)]
    return TextDocument(" ".join(lines) + " " + " ".join(rng.choice(FILLER, 3)) + f" {number}.", f"review-{number}")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    texts = [review(i) for i in range(120)]
    corpus.build(texts, folder / "pieces", vocabulary_size=200, heldout=0.1)
    corpus.build(texts, folder / "characters", learn=characters.train, heldout=0.1)
    return folder


def config(name="lstm-lm", steps=50, **changes):
    training = {"minutes": None, "steps": steps, "device": "cpu", "evaluate_every": None, "log_every": 10}
    run = recipes.find(name).replace(model=SMALL, training=training, rows={"batch": 8, "tokens": 32, "heldout": 16})
    return run.override({"lr": 1e-2, **changes})


@pytest.fixture(scope="module")
def trained(corpora, tmp_path_factory):
    out = tmp_path_factory.mktemp("lm") / "lm"
    run = Pretrain(config(steps=120), [corpora / "pieces"], out, recipe="lstm-lm")
    return run, run.run()


def test_a_language_model_on_a_corpus_beats_word_frequencies_and_says_so(trained):
    run, result = trained
    found = result.heldout
    assert found["loss/next"] < 0.6 * run.baseline["loss/next"]
    assert found["next/perplexity"] == pytest.approx(math.exp(found["loss/next"]))
    assert "perplexity" in run.summary(result)
    assert "bits per character" in run.summary(result)
    assert "bits per character" in write_report(run.out).read_text()
    rows = read_metrics(run.out / "metrics.jsonl", "heldout")
    assert rows[-1]["next/bits_per_character"] == found["next/bits_per_character"]


def test_bits_per_character_count_the_characters_of_the_text(corpora, tmp_path):
    run = Pretrain(config(steps=1), [corpora / "characters"], tmp_path / "run")
    with torch.no_grad():
        found = run.evaluate(run.model.eval(), 0).numbers
    tokens = np.concatenate([batch.targets["next"].values.numpy() for batch in run.heldout])
    letters = tokens[tokens != run.processor.sep]  # the end of a text costs bits, but is no character
    nll = found["next/nll"] * len(tokens)
    assert found["next/bits_per_character"] == pytest.approx(nll / math.log(2) / len(letters))
    assert run.learned.derived({}, lambda: 1.0) == {}


def test_the_baseline_knows_how_often_texts_end(corpora, tmp_path):
    run = Pretrain(config(steps=1), [corpora / "pieces"], tmp_path / "run")
    split = run.corpora[0].split("train")
    share = (split.documents + 1) / (split.tokens + split.documents + run.processor.size)
    assert run.log_frequencies[run.processor.sep] == pytest.approx(math.log(share))


def test_truncated_rows_train_and_are_as_long_as_they_are(corpora, tmp_path):
    run = Pretrain(config(tbptt=8, tokens=64), [corpora / "pieces"], tmp_path / "run")
    assert run.run().heldout["loss/next"] < 0.8 * run.baseline["loss/next"]
    assert huggingface.load(tmp_path / "run").model.config.tbptt == 8


def test_a_run_resumes_to_the_same_weights(corpora, tmp_path):
    whole = Pretrain(config(steps=6, dropout=0.1), [corpora / "pieces"], tmp_path / "whole")
    whole.run()
    settings = config(steps=6, dropout=0.1, save_every=3)
    half = Pretrain(settings, [corpora / "pieces"], tmp_path / "half")
    half.trainer.evaluate = None
    half.trainer.train(lambda event: event == Step(3) and half.trainer.stop("a test"))
    Pretrain(settings, [corpora / "pieces"], tmp_path / "half", resume=True).run()
    first, second = (huggingface.load(tmp_path / name).model.state_dict() for name in ("whole", "half"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_characters_make_no_whole_words(corpora, tmp_path):
    """Every text was one word, which was hidden as a whole or not at all."""
    settings = config("bilstm", whole_words=True)
    assert Pretrain(settings, [corpora / "pieces"], tmp_path / "run").learned.continuation.any()
    with pytest.raises(UnmaskError, match="does not say where a word begins"):
        Pretrain(settings, [corpora / "characters"], tmp_path / "run")


@pytest.mark.parametrize("recipe", [None, "lstm-lm"])
def test_a_language_model_goes_on_from_a_folder(trained, corpora, tmp_path, recipe):
    """With or without a recipe: the folder says that it guesses the next token."""
    run, _ = trained
    _, going_on = recipes.choose(recipe, str(run.out))
    going_on = going_on.replace(
        training={"minutes": None, "steps": 1, "device": "cpu"}, rows={"batch": 8, "tokens": 32, "heldout": 16}
    ).override({"lr": 1e-6})
    more = Pretrain(going_on, [corpora / "pieces"], tmp_path / "more")
    result = more.run()
    assert result.heldout["loss/next"] == pytest.approx(run.trainer.heldout["loss/next"], abs=1e-2)
    assert "at the start" in more.summary(result)


def test_a_vocabulary_of_a_language_model_grows(trained, tmp_path):
    run, _ = trained
    found = vocabulary_extension.extend(run.out, ["zymurgy zymurgy zymurgy zymurgy zymurgy"] * 4, 2, tmp_path / "more")
    loaded = huggingface.load(tmp_path / "more")
    assert loaded.tokenizer.size == run.processor.size + len(found.pieces)
    logits = loaded.model.answer("next", loaded.model(Batch(torch.tensor([[2, 5]]))), torch.tensor([1]))
    assert logits.shape == (1, loaded.tokenizer.size)


def test_rows_need_a_length_where_the_model_has_none(corpora, tmp_path):
    with pytest.raises(UnmaskError, match=r"--rows\.tokens"):
        Pretrain(config().replace(rows={"tokens": None}), [corpora / "pieces"], tmp_path / "run")


# ------------------------------------------------------------------------------------------------ fine-tuning


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Texts of a few words, one of which decides; a number keeps them apart."""
    folder = tmp_path_factory.mktemp("rows")
    for name, number, seed in (("train", 96, 1), ("dev", 32, 2)):
        rng, found = np.random.default_rng(seed), []
        for i in range(number):
            words = [str(w) for w in rng.choice(FILLER, 4)]
            words.insert(int(rng.integers(5)), str(rng.choice(GOOD if i % 2 else BAD)))
            found.append((f"{seed}{i} {' '.join(words)}", str(i % 2)))
        write_tsv(folder / f"{name}.tsv", found)
    return folder


def write_tags(path, number, seed):
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(number):
        words = [str(w) for w in rng.choice([*GOOD, *BAD, *FILLER], rng.integers(3, 8))] + [str(i)]
        lines += [f"{w}\t{'JUDGED' if w in GOOD + BAD else 'OTHER'}" for w in words] + [""]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    for name, number, seed in (("train", 64, 1), ("dev", 24, 2)):
        write_tags(folder / f"{name}.conll", number, seed)
    return folder


@pytest.fixture(scope="module")
def both_ways(corpora, tmp_path_factory):
    """A bidirectional network that guessed hidden words."""
    out = tmp_path_factory.mktemp("bilstm") / "bilstm"
    Pretrain(config("bilstm", steps=20), [corpora / "pieces"], out).run()
    return out


@pytest.fixture(scope="module")
def autoencoder(corpora, tmp_path_factory):
    out = tmp_path_factory.mktemp("autoencoder") / "autoencoder"
    run = Pretrain(config("lstm-autoencoder", steps=20), [corpora / "pieces"], out)
    run.run()
    return out


def fine_tuned(folder, files, out, suffix="tsv", **more):
    values = {**fields(folder, files), "seeds": 1, "lr": 1e-2, "epochs": 8}
    values |= {"train": files / f"train.{suffix}", "dev": files / f"dev.{suffix}", **more}
    return finetune(FineTuning().override(values), out)


@pytest.mark.parametrize("source", ["trained", "both_ways", "autoencoder", "scratch", "gradual"])
def test_a_recurrent_folder_learns_classes(source, request, rows, tmp_path):
    folder = request.getfixturevalue(source if source in ("both_ways", "autoencoder") else "trained")
    folder = getattr(folder[0], "out", folder) if isinstance(folder, tuple) else folder
    more = {"scratch": {"from_scratch": True, "epochs": 16}, "gradual": {"strategy": "gradual", "epochs": 24}}.get(
        source, {}
    )
    result = fine_tuned(folder, rows, tmp_path / "out", **more)
    assert result.seeds[0]["dev"]["accuracy"] > 0.8
    loaded = huggingface.load(tmp_path / "out")
    assert set(loaded.model.heads) == {"classification"}
    texts, labels = zip(*(line.split("\t") for line in (rows / "dev.tsv").read_text().splitlines()[1:]), strict=True)
    said = [answer["label"] for answer in Predictor(tmp_path / "out")(texts)]
    assert np.mean([a == b for a, b in zip(said, labels, strict=True)]) == result.seeds[0]["dev"]["accuracy"]
    assert evaluate(tmp_path / "out", rows / "dev.tsv")["metrics"]["accuracy"] == result.seeds[0]["dev"]["accuracy"]


@pytest.mark.parametrize("source", ["trained", "both_ways"])
def test_a_recurrent_folder_learns_tags(source, request, tags, tmp_path):
    folder = request.getfixturevalue(source)
    folder = folder[0].out if isinstance(folder, tuple) else folder
    result = fine_tuned(folder, tags, tmp_path / "out", suffix="conll", task="tagging")
    assert result.seeds[0]["dev"]["accuracy"] > 0.95
    (answer,) = Predictor(tmp_path / "out")(["the film was awful"])
    assert [w["tag"] for w in answer["words"]] == ["OTHER", "OTHER", "OTHER", "JUDGED"]


def test_a_network_that_reads_from_both_ends_fills_masks(both_ways):
    (answer,) = Predictor(both_ways)(["the [MASK] was good."])
    assert len(answer["masks"][0]) == 5


def test_what_a_recurrent_network_cannot_be_is_said_before_anything_is_trained(trained, rows, tmp_path):
    run, _ = trained
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("sentence1\tsentence2\n" + "".join(f"a {i}\tb {i}\n" for i in range(40)))
    with pytest.raises(UnmaskError, match="start from a BERT"):
        fine_tuned(run.out, rows, tmp_path / "a", task="embedding", train=pairs, dev=pairs, allow_overlap=True)
    with pytest.raises(UnmaskError, match="linear layers, and this model has none"):
        fine_tuned(run.out, rows, tmp_path / "b", strategy="lora")


# ------------------------------------------------------------------------------------------------ characters


def test_every_character_is_a_token_and_comes_back(corpora, tmp_path):
    tokenizer = characters.train(["Ein Bär,\n 한국어!"], cased=True)
    ids = tokenizer.ids(["Bär\n\n한국"])[0]
    assert tokenizer.pieces(ids) == ["B", "ä", "r", " ", "한", "국"]
    assert tokenizer.decode(ids) == "Bär 한국"
    assert tokenizer.ids(["[SEP]"])[0].tolist() == [tokenizer.ids([c])[0].item() for c in "[SEP]"]
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint
    plain = characters.train(["Ein Bär, 한국어!"], strip_accents=True)
    assert plain.decode(plain.ids(["BÄR 한국어"])[0]) == "bar 한국어"
    few = characters.train(["aaa bb c"], 8)
    assert few.pieces(range(few.size))[5:] == [" ", "a", "b"]
    stored = Corpus(corpora / "characters")
    document = next(iter(stored.split("train")))
    text = stored.tokenizer.decode(np.concatenate(document.sentences))
    assert text in {review(i).text for i in range(120)}


@pytest.mark.parametrize(("texts", "size"), [([" \n"], 100), (["a"], 5)])
def test_no_characters_are_no_vocabulary(texts, size):
    with pytest.raises(UnmaskError, match="character"):
        characters.train(texts, size)


# ------------------------------------------------------------------------------------------------ words


def test_every_common_word_is_a_token(tmp_path):
    text = "Der Bär schläft, der Bär frisst. Der Hund!"
    tokenizer = whole_words.train([text])
    assert tokenizer.pieces(range(5, 8)) == ["der", "bär", "!"]  # the commonest first, then by their letters
    ids = tokenizer.ids(["Der Hund frisst!"])[0]
    assert tokenizer.pieces(ids) == ["der", "hund", "frisst", "!"]
    assert tokenizer.ids(["Der Bären schläf"])[0].tolist() == [5, tokenizer.unknown, tokenizer.unknown]
    assert tokenizer.decode(ids) == "der hund frisst!"
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint
    assert Tokenizer.load(tmp_path / "vocab.txt").pieces(ids) == tokenizer.pieces(ids)
    few = whole_words.train([text], 6, cased=True, strip_accents=True)
    assert few.pieces(range(few.size))[5:] == ["Bar"]
    long = "x" * 101
    assert long not in whole_words.train([f"{long} {long} y"]).pieces(range(6))


@pytest.mark.parametrize(("texts", "size"), [([" \n"], 100), (["a"], 5), (["x" * 101], 100)])
def test_no_words_are_no_vocabulary(texts, size):
    with pytest.raises(UnmaskError, match="word"):
        whole_words.train(texts, size)


@pytest.mark.parametrize("kind", ["character", "word"])
def test_the_command_line_builds_and_trains_a_model_of(kind, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(review(i).text for i in range(40)), encoding="utf-8")
    main(["corpus", "build", "--data", "text.txt", "--kind", kind, "--out", "corpus", "--heldout", "0.1"])
    assert "unmask pretrain lstm-lm" in capsys.readouterr().out
    small = [f"--{name}={value}" for name, value in {**SMALL, "rows.tokens": 64, "batch": 4, "device": "cpu"}.items()]
    main(["pretrain", "lstm-lm", "--corpus", "corpus", "--out", "lm", "--steps", "2", *small])
    assert "bits per character" in capsys.readouterr().out
    assert json.loads((tmp_path / "lm" / "config.json").read_text())["model_type"] == "unmask-recurrent"
