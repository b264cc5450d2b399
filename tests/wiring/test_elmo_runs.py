"""ELMo end to end: spelled corpora, pre-training from both sides, frozen features for tags and classes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from finetune_toy import fields, reviews, write_sets

from unmask import huggingface
from unmask.cli import main
from unmask.data.text import corpus, spelling
from unmask.data.text.corpus import Corpus
from unmask.data.text.reading import TextDocument
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.elmo import Elmo
from unmask.objectives import BidirectionalLM
from unmask.objectives.bidirectional import EDGE, UNKNOWN
from unmask.runs import recipes, vocabulary_extension
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.minimal_pairs import evaluate_minimal_pairs
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.runs.pretraining.evaluation import plateau
from unmask.runs.report import write_report
from unmask.serve import Predictor
from unmask.serve.likelihood import Scorer
from unmask.train.events import Step
from unmask.train.metrics import read as read_metrics
from unmask.types import Batch, Document

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {"characters": 8, "widths": (1, 2, 3), "filters": (8, 8, 8), "dim": 16, "hidden": 24, "task": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpora") / "spelled"
    texts = [". ".join(text for text, _ in reviews(8, seed)) + "." for seed in range(80)]
    corpus.build([TextDocument(t, str(i)) for i, t in enumerate(texts)], out, learn=spelling.train, heldout=0.1)
    return out


def config(**changes: object) -> Pretraining:
    training = {"minutes": None, "steps": 20, "log_every": 1, "device": "cpu", "evaluate_every": None}
    run = recipes.find("elmo-tiny").replace(
        model=SMALL, training=training, rows={"batch": 8, "tokens": 64, "heldout": 16}, objective={"words": 30}
    )
    return run.override({"lr": 5e-3, **changes})


# ------------------------------------------------------------------------------------------------ spelled words


def test_every_word_is_spelled_and_comes_back() -> None:
    tokenizer = spelling.train(["Hello there, WORLD!", "the old world"])
    first = spelling.continues(tokenizer)
    (ids,) = tokenizer.ids(["hello, world"])
    assert tokenizer.pieces(ids) == ["h", "##e", "##l", "##l", "##o", ",", "w", "##o", "##r", "##l", "##d"]
    assert tokenizer.decode(ids) == "hello, world"
    assert spelling.words(ids, first) == [part.tobytes() for part in (ids[:5], ids[5:6], ids[6:])]
    assert tokenizer.ids(["héllo"])[0].tolist() == [tokenizer.unknown]
    assert tokenizer.encode_words(["old", "tree"]).words.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert spelling.train(["ab ab c"], 9, cased=True).pieces(range(9))[5:] == ["a", "b", "##a", "##b"]
    with pytest.raises(UnmaskError, match="at least 7"):
        spelling.train(["a"], 6)
    with pytest.raises(UnmaskError, match="no words"):
        spelling.train([" "])
    with pytest.raises(UnmaskError, match="--kind spelled"):
        spelling.continues(Tokenizer.train(["the old world and the other world"] * 9, 60))


def test_the_commonest_words_are_those_of_a_count(folder: Path) -> None:
    whole = Corpus(folder)
    first = spelling.continues(whole.tokenizer)
    found, others = spelling.commonest([whole.split("train")], first, 5)
    counts: dict[str, int] = {}
    for document in whole.split("train"):
        for word in whole.tokenizer.decode(np.concatenate(document.sentences)).replace(".", " . ").split():
            counts[word] = counts.get(word, 0) + 1
    said = [whole.tokenizer.decode(np.frombuffer(word, np.int32)) for word in found]
    assert list(found.values()) == [counts[word] for word in said] == sorted(counts.values(), reverse=True)[:5]
    assert others == sum(counts.values()) - sum(found.values())


# ------------------------------------------------------------------------------------------------ the objective


def objective(words: dict[bytes, int] | None = None) -> BidirectionalLM:
    counts = {np.array(word, np.int32).tobytes(): n for n, word in ((5, [5, 15]), (4, [6]), (2, [7, 16, 17]))}
    return BidirectionalLM(counts if words is None else words, spelling.words, 10, start=2, end=3, others=3)


def test_targets_are_the_neighbours_of_every_word() -> None:
    tokens = np.array([5, 15, 6, 7, 16, 17, 8, 19], np.uint16)
    (example,) = objective().sample([Document([tokens[:3], tokens[3:]], 0)], 20, np.random.default_rng(0))
    assert example.tokens.tolist() == [2, 5, 15, 6, 7, 16, 17, 8, 19, 3]
    places, values = example.targets["forward"]
    assert list(zip(places.tolist(), values.tolist(), strict=True)) == [(0, 2), (1, 3), (3, 4), (4, 0), (7, 1)]
    places, values = example.targets["backward"]
    assert list(zip(places.tolist(), values.tolist(), strict=True)) == [(1, 1), (3, 2), (4, 3), (7, 4), (9, 0)]


def test_long_texts_are_cut_between_words_and_long_words_within() -> None:
    tokens = np.array([5, 15, 6, 7, 16, 17, 18, 18, 18, 18, 8])
    found = objective().sample([Document([tokens], 0)], 6, np.random.default_rng(0))
    assert [e.tokens[1:-1].tolist() for e in found] == [[5, 15, 6], [7, 16, 17, 18], [18, 18, 18, 8]]
    assert found[2].targets["forward"][0].tolist() == [0, 1, 4]
    assert found[2].targets["forward"][1].tolist() == [0, 0, 1]
    with pytest.raises(UnmaskError, match="no words"):
        objective({})


# ------------------------------------------------------------------------------------------------ runs


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    run = Pretrain(config(steps=80), [folder], tmp_path_factory.mktemp("runs") / "elmo", recipe="elmo-tiny")
    run.run()
    return run


def test_it_learns_from_both_sides(trained: Pretrain, folder: Path) -> None:
    first, last = read_metrics(trained.out / "metrics.jsonl", "train")[0], trained.trainer.heldout
    for side in ("forward", "backward"):
        assert last[f"loss/{side}"] < 0.8 * first[f"loss/{side}"]
    assert "perplexity" in " ".join(trained.learned.summary(last, {}, {}))
    page = write_report(trained.out).read_text()
    assert "Next word: loss" in page
    assert "Previous word: loss" in page


def test_word_frequencies_are_those_of_what_is_to_be_guessed(trained: Pretrain, folder: Path) -> None:
    """Of all rows of the training text, counted; how many texts there are is not counted but worked out."""
    rng, documents = np.random.default_rng(0), list(Corpus(folder).split("train"))
    rows = trained.objective.sample(documents, trained.tokens, rng)
    counts = np.bincount(np.concatenate([row.targets["forward"][1] for row in rows]), minlength=32)
    found = trained.objective.expected(np.array([len(np.concatenate(d.sentences)) for d in documents]), trained.tokens)
    assert found[EDGE] == pytest.approx(counts[EDGE], rel=0.1)
    counts[EDGE] = found[EDGE]
    assert found.tolist() == counts.tolist()
    assert found[UNKNOWN] > 0
    shares = np.exp(trained.log_frequencies)
    assert shares == pytest.approx((found + 1) / (found + 1).sum())
    values = np.concatenate([batch.targets["backward"].values.numpy() for batch in trained.heldout])
    for side in ("forward", "backward"):
        assert trained.baseline[f"loss/{side}"] == pytest.approx(-np.log(shares[values]).mean())
        assert trained.baseline[f"{side}/correct"] == pytest.approx((values == shares.argmax()).mean())


def test_a_run_is_set_against_word_frequencies(trained: Pretrain) -> None:
    last, floor = trained.trainer.heldout, trained.baseline
    said = " ".join(trained.learned.summary(last, floor, {}))
    assert f"(word frequencies alone: {np.exp(floor['loss/forward']):.1f})" in said
    assert plateau(last, floor, trained.learned.terms) is None
    stuck = plateau({**last, "loss/backward": floor["loss/backward"]}, floor, trained.learned.terms)
    assert stuck is not None
    assert "held-out previous-word loss" in stuck
    page = write_report(trained.out).read_text()
    assert page.count("word frequencies alone, no context") == 2
    assert "each word from those after" in page


def test_the_loss_trace_is_the_golden_one(folder: Path, tmp_path: Path) -> None:
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        Pretrain(config(), [folder], tmp_path / "run").run()
    finally:
        torch.set_num_threads(threads)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl", "train")
    trace = [[round(row[f"loss/{side}"], 4) for side in ("forward", "backward")] for row in rows]
    path = GOLDEN / "pretrain-elmo-tiny.json"
    if not path.exists():
        path.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {path.name}; it has been written now, look at it and run again")
    for found, expected in zip(trace, json.loads(path.read_text()), strict=True):
        assert found == pytest.approx(expected, abs=2e-4)


def test_a_run_resumes_to_the_same_weights(folder: Path, tmp_path: Path) -> None:
    settings = config(steps=6, save_every=3, dropout=0.1)
    whole, part = (Pretrain(settings, [folder], tmp_path / name) for name in ("whole", "part"))
    whole.run()
    assert part.run(lambda event: event == Step(3) and part.trainer.stop("the test")).step == 3
    again = Pretrain(settings, [folder], tmp_path / "part", resume=True)
    again.run()
    for (name, a), b in zip(whole.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_a_resumed_run_guesses_its_own_words(
    trained: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though there be more text of the same letters: word number n of the head must stay word number n."""
    monkeypatch.setattr(
        "unmask.runs.pretraining.run.check_corpora", lambda *_: None
    )  # as of a run that did not write them down
    texts = [". ".join(text for text, _ in reviews(8, seed)) + "." for seed in range(80)]
    more = [TextDocument(t.replace("film", "plot"), str(i)) for i, t in enumerate(texts)]
    built = corpus.build(more, tmp_path / "more", tokenizer=trained.processor)
    shutil.copytree(trained.out, tmp_path / "run")
    again = Pretrain(config(), [built.folder], tmp_path / "run", resume=True)
    assert Pretrain(config(), [built.folder], tmp_path / "new").objective.words != trained.objective.words
    assert again.objective.words == trained.objective.words


def test_what_cannot_be_learned_is_said(
    trained: Pretrain, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = tmp_path / "pieces"
    corpus.build(
        [TextDocument("the film was good. " * 9 + str(i), str(i)) for i in range(20)], pieces, vocabulary_size=60
    )
    with pytest.raises(UnmaskError, match="--kind spelled"):
        Pretrain(config(), [pieces], tmp_path / "run")
    with pytest.raises(
        UnmaskError, match=r"Elmo learns words in both directions, not masked tokens: .* take bert-tiny"
    ):
        Pretrain(config().override({"written": "none"}), [folder], tmp_path / "run")
    with pytest.raises(UnmaskError, match="elmo-tiny"):
        Pretrain(recipes.find("gpt-tiny").override({"written": "both"}), [folder], tmp_path / "run")
    wordless = tmp_path / "wordless"
    huggingface.save(wordless, trained.model, trained.processor)
    with pytest.raises(UnmaskError, match=r"no words.txt of its own.*start from new weights"):
        Pretrain(config().starting_from(wordless), [folder], tmp_path / "run")
    with pytest.raises(UnmaskError, match=r"no words.txt of its own, the list of the words that it predicts"):
        Scorer(wordless)
    words = (trained.out / "words.txt").read_text().splitlines()
    for lines, said in ((words[1:], "no words.txt of its own"), (["##\u2603", *words[1:]], "Line 1 of words.txt")):
        (wordless / "words.txt").write_text("\n".join(lines))  # a last line without its end is a line
        with pytest.raises(UnmaskError, match=said):
            Scorer(wordless)
    (wordless / "words.txt").write_bytes(b"\xff\n")
    with pytest.raises(UnmaskError, match="not text in UTF-8"):
        Scorer(wordless)
    with pytest.raises(UnmaskError, match="use a pre-trained model"):
        Scorer(huggingface.load(wordless, heads=as_heads({"tagging": 2})))
    with pytest.raises(UnmaskError, match="at least 1, not 0"):
        Pretrain(config(words=0), [folder], tmp_path / "run")
    with pytest.raises(UnmaskError, match="character by character: it needs no new pieces"):
        vocabulary_extension.extend(trained.out, ["the plot was good"] * 9, 2, tmp_path / "more")
    with pytest.raises(SystemExit):
        main(["evaluate", "--model", str(trained.out), "--text", __file__, "--window", "8"])
    assert "--window does not apply to an ELMo" in capsys.readouterr().err
    model = recipes.find("lstm-lm").model.replace(vocabulary=50, dim=8, hidden=8).build()
    with pytest.raises(UnmaskError, match="elmo-tiny"):
        objective().loss(model, Batch(torch.zeros(1, 4, dtype=torch.long)))


def test_it_goes_on_with_the_words_that_it_knows(trained: Pretrain, folder: Path, tmp_path: Path) -> None:
    more = Pretrain(config(steps=4, words=7, evaluate_every=2).starting_from(trained.out), [folder], tmp_path / "more")
    assert isinstance(more.objective, BidirectionalLM)
    assert isinstance(trained.objective, BidirectionalLM)
    assert more.objective.words == trained.objective.words
    with torch.no_grad():
        before = more.evaluate(more.model.eval(), 0).numbers
    assert before["loss/forward"] == pytest.approx(trained.trainer.heldout["loss/forward"], abs=1e-5)
    said = more.summary(more.run())
    assert "at the start: " in said
    assert (more.out / "words.txt").read_bytes() == (trained.out / "words.txt").read_bytes()
    again = Pretrain(more.config, [folder], tmp_path / "more", resume=True)
    assert again.objective.words == more.objective.words


def test_other_words_than_it_knows_are_refused(
    trained: Pretrain, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["pretrain", "--from", str(trained.out), "--corpus", str(folder), "--out", str(tmp_path / "more")]
    with pytest.raises(SystemExit):
        main([*asked, "--words", "7"])
    assert "has its own list of words; leave it out" in capsys.readouterr().err
    assert not (tmp_path / "more").exists()


def test_texts_are_as_likely_as_their_words(trained: Pretrain, tmp_path: Path) -> None:
    texts = ["the film was good", "the plot was bad, and the film", "zzz \u2603", ""]
    scorer, model = Scorer(trained.out), trained.model.eval()
    first, sums = spelling.continues(trained.processor), []
    names = {word: i for i, word in enumerate(trained.objective.words, 2)}
    for text in texts:  # word by word, from the layers of the model
        (ids,) = trained.processor.ids([text])
        row = torch.tensor([[trained.processor.cls, *ids.tolist(), trained.processor.sep]])
        begins = [0, *(i + 1 for i, token in enumerate(ids.tolist()) if token < first), len(ids) + 1]
        said = [1, *(names.get(word, 0) for word in spelling.words(ids, first)), 1]
        with torch.no_grad():
            last_TE = model(Batch(row))[0].unflatten(-1, (-1, 2, SMALL["dim"]))[:, -1]
            left, right = (model.heads["words"](last_TE[:, side]).log_softmax(-1) for side in (0, 1))
        forward = sum(float(left[begins[k], said[k + 1]]) for k in range(len(said) - 1))
        backward = sum(float(right[begins[k + 1], said[k]]) for k in range(len(said) - 1))
        sums.append((forward + backward) / 2)
    assert scorer.scores(texts) == pytest.approx(sums, abs=1e-4)
    found = scorer.perplexity(texts)
    assert found.nll == pytest.approx(-sum(sums), abs=1e-3)
    assert found.documents == 4
    assert found.unknown >= 2
    assert scorer.perplexity(["\u2603 \u2603 film"]).unknown == 2  # a word of its own, and unknown all the same
    good, bad = sorted(texts[:2], key=lambda text: -scorer.scores([text])[0])
    pairs = tmp_path / "pairs.tsv"
    for first, second, accuracy in ((good, bad, 1.0), (bad, good, 0.0)):
        pairs.write_text(f"sentence_good\tsentence_bad\n{first}\t{second}\n")
        assert evaluate_minimal_pairs(trained.out, [pairs])["accuracy"] == accuracy


def test_the_command_line_spells_and_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(". ".join(text for text, _ in reviews(6, seed)) for seed in range(40)))
    main(["corpus", "build", "--data", str(texts), "--out", str(tmp_path / "c"), "--kind", "spelled"])
    assert "elmo-tiny" in capsys.readouterr().out
    small = ["--dim", "8", "--model.hidden", "16", "--batch", "4", "--tokens", "48", "--steps", "2", "--device", "cpu"]
    run = ["pretrain", "elmo-tiny", "--corpus", str(tmp_path / "c"), "--out", str(tmp_path / "r"), *small]
    main(run)
    assert "Held-out words: perplexity" in capsys.readouterr().out
    main(["evaluate", "--model", str(tmp_path / "r"), "--text", str(texts)])
    assert "bits per character" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ tasks


def tagged(folder: Path) -> dict[str, Path]:
    """Names are what follows a title, so that the words around tell more than the words."""
    found = {}
    for name, number, seed in (("train", 60, 1), ("dev", 20, 2)):
        rng, lines = np.random.default_rng(seed), []
        for _ in range(number):
            words = [(str(w), "O") for w in rng.choice(["the", "film", "was", "good", "and"], 3)]
            words += [("mr", "O"), (str(rng.choice(["plot", "film", "good"])), "B-PER")]
            lines.append("\n".join(f"{word} {tag}" for word, tag in words))
        found[name] = folder / f"{name}.conll"
        found[name].write_text("\n\n".join(lines) + "\n")
    return found


def test_frozen_features_serve_a_tagger_and_so_does_none_of_them(trained: Pretrain, tmp_path: Path) -> None:
    rows = tagged(tmp_path)
    bare = tmp_path / "bare"  # the same tagger without the language model
    huggingface.save(bare, trained.model.config.replace(layers=0).build({}), trained.processor)
    values = {
        "task": "tagging",
        "seeds": 1,
        "epochs": 6,
        "lr": 1e-2,
        "device": "cpu",
        "batch_size": 8,
        "least_steps": 1,
        "allow_overlap": True,
    }
    values |= {"train": rows["train"], "dev": rows["dev"]}
    for name, start, strategy in (("with", trained.out, "frozen"), ("without", bare, "full")):
        result = finetune(FineTuning().override({**values, "model": start, "strategy": strategy}), tmp_path / name)
        assert result.seeds[0]["dev"]["f1"] > 0.8
    model = huggingface.load(tmp_path / "with").model
    for name, p in trained.model.named_parameters():
        if not name.startswith("heads"):
            assert torch.equal(p, model.get_parameter(name)), name  # the language model is as it was
    assert isinstance(model.config, Elmo)
    answer = Predictor(tmp_path / "with")(["the film was good mr plot"])[0]
    assert [entity["text"] for entity in answer["entities"]] == ["plot"]


def test_frozen_features_serve_a_classifier(trained: Pretrain, tmp_path: Path) -> None:
    values = {**fields(trained.out, write_sets(tmp_path)), "seeds": 1, "epochs": 4, "strategy": "frozen", "lr": 1e-2}
    result = finetune(FineTuning().override(values), tmp_path / "out")
    answers = Predictor(tmp_path / "out")([text for text, _ in reviews(24, 2)])
    right = np.mean([a["label"] == label for a, (_, label) in zip(answers, reviews(24, 2), strict=True)])
    assert right == result.seeds[0]["dev"]["accuracy"]
    assert right > 0.6


def test_a_strategy_that_does_not_fit_leaves_no_file(trained: Pretrain, tmp_path: Path) -> None:
    asked = FineTuning().override({**fields(trained.out, write_sets(tmp_path)), "strategy": "lora"})
    with pytest.raises(UnmaskError, match="choose another --strategy"):
        finetune(asked, tmp_path / "run")
    assert not (tmp_path / "run").exists()
