"""Translation runs end to end: files in; a folder, scores and a page out; resumed bit for bit; plain errors."""

from __future__ import annotations

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from command_line import run_cli, words
from safetensors.torch import load_file

from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.generate import Limits, Sampling, Search
from unmask.huggingface import load
from unmask.runs.report import write_report
from unmask.runs.translation import Scores, TrainTranslation, Translation, ending, evaluate_pairs, systems
from unmask.serve.alignment import Alignment, render_alignment
from unmask.serve.translator import Translator
from unmask.train.events import Step
from unmask.visualize import runs

WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}
WORDS |= {"seven": "sieben", "eight": "acht", "nine": "neun"}


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(list(WORDS), rng.integers(2, 7)).tolist() for _ in range(count)]
    return [(" ".join(words), " ".join(WORDS[word] for word in words)) for words in chosen]


def write(folder: Path, name: str, found: list[tuple[str, str]]) -> tuple[str, str]:
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for path, side in zip(paths, zip(*found, strict=True), strict=True):
        path.write_text("".join(text + "\n" for text in side), encoding="utf-8")
    return str(paths[0]), str(paths[1])


TINY = {"dim": 32, "dropout": 0.0}


def config(name: str, folder: Path, steps: int = 4, **changes) -> Translation:
    model = {**TINY, **changes}
    found = systems.find(name)
    if name.startswith("seq2seq"):
        model |= {"hidden": 32, "layers": 1}
    elif name.startswith("transformer"):
        model |= {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("heads", 2))}
        model |= {"encoder_hidden": 64, "decoder_hidden": 64}
    else:
        model |= {"encoder_widths": (32, 32), "decoder_widths": (32, 32), "pointwise": 0}
    return found.replace(
        model=model,
        texts={"train": write(folder, "train", pairs(300)), "dev": write(folder, "dev", pairs(20, 1)), "tokens": 128},
        vocabulary={"kind": "word", "size": 50},
        training={"minutes": None, "steps": steps, "precision": "fp32", "device": "cpu"},
        search={"beam_size": 2},
    )


SYSTEMS = ("seq2seq", "seq2seq-attention", "seq2seq-bahdanau", "convs2s-small", "transformer-tiny")


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_trains_and_its_folder_translates(name: str, tmp_path: Path) -> None:
    run = TrainTranslation(config(name, tmp_path), tmp_path / "run", recipe=name)
    result = run.run()
    assert result.step == 4
    assert {"loss/next", "next/nll", "perplexity", "bleu", "chrf"} <= result.heldout.keys()
    assert (tmp_path / "run" / "run.json").exists()
    assert not any("not read" in note for note in run.notes)
    translator = Translator(tmp_path / "run")
    assert translator.search.beam_size == 2
    texts = ["one two", "", "six six six"]
    first = list(translator.stream(texts))
    assert [bool(answer.translations) for answer in first] == [True, False, True]
    assert [translator([text])[0] for text in texts] == [answer.text for answer in first]


@pytest.mark.parametrize("name", ["convs2s-small", "transformer-tiny"])
def test_the_end_of_a_dev_pair_that_is_too_long_is_not_read(name: str, tmp_path: Path) -> None:
    long = " ".join(["one"] * 40), " ".join(["eins"] * 40)
    chosen = config(name, tmp_path, length=24).replace(texts={"dev": write(tmp_path, "long", [*pairs(19, 1), long])})
    run = TrainTranslation(chosen, tmp_path / "run")
    note = "Dev sources with more than 23 tokens, whose ends are not read: 1."
    assert run.notes.count(note) == 1
    assert run.run().heldout.keys() >= {"perplexity", "bleu"}
    assert note in read_json(tmp_path / "run" / "run.json")["notes"]
    translator = Translator(tmp_path / "run")
    [answer] = translator.stream([long[0]])
    assert answer.cut
    assert run.translations(run.model, 20, translator.search)[-1] == answer.text
    assert translator.alignment(*long).source == [*["one"] * 23, "</s>"]


def test_what_dev_pairs_lose_is_counted(tmp_path: Path) -> None:
    """A target that is longer than the loss takes, and words that no training pair has, on either side."""
    odd = [("one two", " ".join(["eins"] * 40)), ("one ten", "eins zehn"), ("ten", "zehn")]
    chosen = config("seq2seq-attention", tmp_path)
    chosen = chosen.replace(texts={"dev": write(tmp_path, "odd", [*pairs(17, 1), *odd]), "longest": 24})
    run = TrainTranslation(chosen, tmp_path / "run")
    assert "Dev pairs with more than 23 tokens on a side, cut there for the loss: 1." in run.notes
    lacking = "pairs with characters or words that the vocabulary lacks, read as <unk>"
    assert f"Dev {lacking}: 2 of 20." in run.notes
    assert not any(note.startswith(("Training pairs with", "Dev sources")) for note in run.notes)
    rare = write(tmp_path, "rare", [*pairs(300), ("eleven", "elf")])
    smaller = chosen.replace(texts={"train": rare}, vocabulary={"size": 20})
    assert any(
        lacking in note and note.startswith("Training") for note in TrainTranslation(smaller, tmp_path / "b").notes
    )


def test_scores_on_the_way_have_their_signatures(tmp_path: Path) -> None:
    TrainTranslation(config("seq2seq", tmp_path), tmp_path / "run").run()
    signatures = read_json(tmp_path / "run" / "run.json")["signatures"]
    assert signatures.keys() == {"bleu", "chrf"}
    assert all("version:" in signature for signature in signatures.values())


def test_every_named_system_has_a_first_line_and_a_config() -> None:
    assert set(SYSTEMS) < set(systems.names())
    for name, line in systems.names().items():
        assert line.endswith(".")
        found = systems.find(name)
        assert Translation(model=type(found.model)()).replace(**found.to_dict()).to_dict() == found.to_dict()
        systems.dates(found)
    with pytest.raises(UnmaskError, match="seq2seq"):
        systems.find("seq2sec")


def test_a_run_learns_its_words(tmp_path: Path) -> None:
    chosen = config("seq2seq-attention", tmp_path, steps=150).replace(training={"optimizer": {"lr": 1e-2}})
    run = TrainTranslation(chosen, tmp_path / "run")
    result = run.run()
    assert result.heldout["next/nll"] < 0.3
    found = evaluate_pairs(tmp_path / "run", chosen.texts.dev, out=tmp_path / "written.txt")
    assert found["scores"]["bleu"]["value"] > 60
    assert "nrefs:1" in found["scores"]["bleu"]["signature"]
    assert found["exact"] > 0.5
    assert sum(bucket["sentences"] for bucket in found["by_length"]) == found["sentences"] == 20
    lines = (tmp_path / "written.txt").read_text(encoding="utf-8").splitlines()
    assert lines == Translator(tmp_path / "run")([source for source, _ in pairs(20, 1)])
    assert f"BLEU {100:.1f}" in run.summary(result) or "BLEU" in run.summary(result)
    alignment = Translator(tmp_path / "run").alignment("one two three", "eins zwei drei")
    assert len(alignment.weights) == len(alignment.target) == 4
    np.testing.assert_allclose(np.sum(alignment.weights, 1), 1, rtol=1e-5)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    chosen = config("transformer-tiny", tmp_path, steps=8, dropout=0.1).replace(training={"save_every": 4})
    whole = TrainTranslation(chosen, tmp_path / "whole")
    whole.run()
    chosen_early = chosen.replace(training={"evaluate_every": 4})
    part = TrainTranslation(chosen_early, tmp_path / "part")
    assert part.run(lambda event: event == Step(4) and part.trainer.stop("as told")).step == 4
    assert runs.run(tmp_path / "part")["state"] == "stopped"
    again = TrainTranslation(chosen_early, tmp_path / "part", resume=True)
    assert again.run().step == 8
    assert runs.run(tmp_path / "part")["state"] == "finished"
    ours, theirs = (
        load_file(tmp_path / name / "checkpoints" / "step-00000008" / "model.safetensors") for name in ("part", "whole")
    )
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.equal(theirs[name]), name


@pytest.mark.parametrize("changed", [["train.en"], ["dev.de"], ["train.en", "train.de"]])
def test_a_run_does_not_go_on_with_other_pairs(changed: list[str], tmp_path: Path, capsys) -> None:
    chosen = config("seq2seq-attention", tmp_path, steps=2)
    TrainTranslation(chosen, tmp_path / "run", recipe="seq2seq-attention").run()
    asked = ("train", "--out", str(tmp_path / "run"), "--resume", "--steps", "3")
    before = {name: (tmp_path / name).read_text(encoding="utf-8") for name in changed}
    for name, text in before.items():
        (tmp_path / name).write_text("nine\n" + text.split("\n", 1)[1], encoding="utf-8")
    status, _, error = run_cli(capsys, *asked)
    assert (status, error.count("\n")) == (2, 1)
    names = ", ".join(str(tmp_path / name) for name in changed)
    assert f"The pairs of {names} are not those that this run began with: restore them" in error
    for name, text in before.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert run_cli(capsys, *asked)[0] == 0


def test_a_run_from_before_fingerprints_goes_on(tmp_path: Path) -> None:
    chosen = config("seq2seq-attention", tmp_path, steps=2)

    class Before(TrainTranslation):
        def save(self, folder: Path) -> None:
            super().save(folder)
            facts = read_json(folder / "run.json")
            del facts["fingerprints"]
            (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")

    Before(chosen, tmp_path / "run").run()
    longer = chosen.replace(training={"steps": 3})
    assert TrainTranslation(longer, tmp_path / "run", resume=True).run().step == 3
    assert read_json(tmp_path / "run" / "run.json")["fingerprints"].keys() == {"train", "dev"}


def test_the_weights_that_translate_best_are_kept(tmp_path: Path) -> None:
    chosen = config("transformer-tiny", tmp_path, steps=3).replace(
        training={"evaluate_every": 1, "save_every": 1, "keep": 3}, learning={"average": 3}
    )
    run = TrainTranslation(chosen, tmp_path / "run", scores=scored(5.0, 9.0, 7.0, 1.0))
    result = run.run()
    kept = load_file(tmp_path / "run" / "model.safetensors")
    best = load_file(tmp_path / "run" / "checkpoints" / "step-00000002" / "model.safetensors")
    assert all(kept[name].equal(best[name]) for name in best)
    assert "mean of the last 3 checkpoints" in run.summary(result)


def scored(*values: float) -> Scores:
    """Evaluations that find these scores, one after the other."""
    found = iter(values)
    return Scores("bleu", lambda outputs: {"bleu": next(found), "chrf": 0.0})


def test_the_summary_names_the_step_whose_weights_are_kept(tmp_path: Path) -> None:
    chosen = config("transformer-tiny", tmp_path, steps=3).replace(
        training={"evaluate_every": 1, "save_every": 1, "keep": 3}
    )
    run = TrainTranslation(chosen, tmp_path / "run", scores=scored(5.0, 5.0, 1.0, 1.0))
    said = run.summary(run.run())
    kept = load_file(tmp_path / "run" / "model.safetensors")
    second = load_file(tmp_path / "run" / "checkpoints" / "step-00000002" / "model.safetensors")
    assert all(kept[name].equal(second[name]) for name in second)
    rows = {row["step"]: row["perplexity"] for row in run.evaluations()}
    score = "BLEU 5.0, the best of 3 evaluations, at step 2 (the last: BLEU 1.0)"
    assert f"{score}; perplexity {rows[2]:.2f}." in said


@pytest.mark.parametrize(("at", "differ"), [(2, False), (3, True)])
def test_the_summary_of_a_stopped_run_says_where_the_best_weights_are(at: int, differ: bool, tmp_path: Path) -> None:
    chosen = config("transformer-tiny", tmp_path, steps=4).replace(training={"evaluate_every": 1})
    run = TrainTranslation(chosen, tmp_path / "run", scores=scored(5.0, 5.0, 1.0, 1.0))
    said = run.summary(run.run(lambda event: event == Step(at) and run.trainer.stop("as told"))).splitlines()[2:]
    out = tmp_path / "run"
    assert said == ([f"{out} holds the weights of step 3, and {out / 'best'} the best ones."] if differ else [])


def test_a_run_that_has_hardly_learned_says_so(tmp_path: Path) -> None:
    run = TrainTranslation(config("transformer-tiny", tmp_path), tmp_path / "run")
    said = run.summary(run.run()).splitlines()[-1]
    sides = run.processor.ids([target for _, target in pairs(300)]), run.dev_targets
    train, dev = (np.concatenate([[*ids, run.processor.end] for ids in side]) for side in sides)
    shares = (np.bincount(train, minlength=run.processor.size) + 1) / (len(train) + run.processor.size)
    floor = float(-np.log(shares[dev]).mean())
    loss = max(run.evaluations()[1:], key=lambda row: (row["bleu"], row["step"]))["next/nll"]
    assert loss > floor
    beside = f"{loss:.2f}, is not clearly better than word frequencies alone ({floor:.2f})"
    assert said == (
        f"The model has hardly learned after 4 steps: its loss on the dev pairs, {beside}. Train longer: raise --steps."
    )
    assert said in write_report(tmp_path / "run").read_text()


def test_a_run_whose_minutes_are_too_short_says_so(tmp_path: Path) -> None:
    short = config("transformer-tiny", tmp_path).replace(training={"steps": None, "minutes": 0.002})
    run = TrainTranslation(short, tmp_path / "run")
    few, learned = run.summary(run.run()).splitlines()[-2:]
    assert few.startswith("Only ")
    assert "fitted into 0.002 minutes, too few for a model to learn much: raise --minutes" in few
    assert learned.endswith("Train longer: raise --minutes.")


def row(step: int, **scores: float) -> dict[str, float]:
    return {"step": step, "next/nll": 1.0, "perplexity": 2.7, **scores}


@pytest.mark.parametrize(
    ("metric", "score", "said"),
    [
        ("exact", 0.2, "it has 20.0% exact on the dev pairs"),
        ("exact", 0.9, None),
        ("bleu", 1.5, "it has BLEU 1.5 on the dev pairs"),
        ("bleu", 20.0, None),
    ],
)
def test_a_score_that_is_of_no_use_is_named(metric: str, score: float, said: str | None) -> None:
    found = ending.hardly_learned([row(100, **{metric: score})], metric, 3.0, "--minutes")
    assert said is None if found is None else f"after 100 steps: {said}. Train longer: raise --minutes" in found
    assert (found is None) == (said is None)


def test_a_model_that_goes_on_is_measured_by_its_score_alone() -> None:
    rows = [row(10, bleu=30.0)]
    assert ending.warnings(rows, "bleu", 1.0, None) == []
    assert len(ending.warnings(rows, "bleu", 1.0, 1.0)) == 2
    assert ending.warnings([], "bleu", 1.0, 1.0) == []


def test_the_mean_of_checkpoints_is_kept_where_it_is_better(tmp_path: Path) -> None:
    chosen = config("transformer-tiny", tmp_path, steps=2).replace(
        training={"evaluate_every": 1, "save_every": 1, "keep": 2}, learning={"average": 2}
    )
    scores = iter([1.0, 2.0, 3.0])

    class Told(TrainTranslation):
        def _scores(self, translations):
            return {"bleu": next(scores), "chrf": 0.0}

    Told(chosen, tmp_path / "run").run()
    folders = [tmp_path / "run" / "checkpoints" / f"step-0000000{n}" for n in (1, 2)]
    first, second, kept = (load_file(f / "model.safetensors") for f in (*folders, tmp_path / "run"))
    name = "model.shared.weight"
    np.testing.assert_allclose(kept[name], (first[name] + second[name]) / 2, rtol=1e-6, atol=1e-8)


# ------------------------------------------------------------------------------------------------ the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("trained")
    chosen = config("seq2seq-attention", base, steps=150).replace(training={"optimizer": {"lr": 1e-2}})
    TrainTranslation(chosen, base / "run", recipe="seq2seq-attention").run()
    return base


def test_lines_in_lines_out(folder: Path, capsys) -> None:
    source = folder / "text.txt"
    source.write_text("one two three\n\nsix five\n", encoding="utf-8")
    status, out, _ = run_cli(capsys, "translate", "--model", str(folder / "run"), "--file", str(source))
    assert status == 0
    assert out == "eins zwei drei\n\nsechs fünf\n"


def test_n_best_with_scores_as_json(folder: Path, capsys) -> None:
    arguments = ("--beam-size", "3", "--n-best", "3", "--json")
    status, out, _ = run_cli(capsys, "translate", "--model", str(folder / "run"), "one two", *arguments)
    assert status == 0
    answer = json.loads(out)
    assert answer["source"] == "one two"
    found = answer["translations"]
    assert len(found) == 3
    assert found[0]["text"] == "eins zwei"
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    assert np.log(found[0]["probabilities"]).sum() == pytest.approx(found[0]["log_probability"], rel=1e-4)


def test_where_it_looked_is_shown(folder: Path, capsys) -> None:
    status, out, _ = run_cli(capsys, "translate", "--model", str(folder / "run"), "one two", "--align")
    assert status == 0
    assert "eins │" in out
    assert "</s> │" in out


def test_translations_are_drawn(folder: Path, capsys) -> None:
    asked = ("translate", "--model", str(folder / "run"), "one two", "--sample", "--samples", "3", "--json")

    def drawn(*more: str) -> list[str]:
        return [one["text"] for one in json.loads(run_cli(capsys, *asked, *more)[1])["translations"]]

    assert drawn("--top-k", "1") == ["eins zwei"] * 3
    hot = drawn("--temperature", "20")
    assert len(set(hot)) == 3
    assert hot == drawn("--temperature", "20") != drawn("--temperature", "20", "--seed", "1")
    assert "min_p" in run_cli(capsys, *asked, "--fields")[1]
    status, _, error = run_cli(capsys, *asked, "--beam-size", "2")
    assert (status, error) == (2, "unmask: --beam-size is for a search: leave out one of the two.\n")
    status, _, error = run_cli(capsys, *asked[:4], "--temperature", "2")
    assert (status, error) == (2, "unmask: --temperature is for sampling: add --sample.\n")


def test_the_draws_of_a_long_text_do_not_repeat(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("unmask.serve.translator.WAITING", 2)
    translator = Translator(folder / "run", Sampling(temperature=20.0, limits=Limits(max_length=8)))
    first, second = np.array(translator(["one two"] * 4)).reshape(2, 2).tolist()
    assert first != second


def test_what_does_not_end_by_itself_is_said(folder: Path, capsys) -> None:
    asked = ("translate", "--model", str(folder / "run"), "one two three", "six", "--max-length")
    _, out, error = run_cli(capsys, *asked, "2")
    assert out == "eins zwei\nsechs\n"
    assert error == "Texts that did not end within the limit of their length, and were cut there: 1.\n"
    assert run_cli(capsys, *asked, "9")[2] == ""


def test_a_text_that_is_not_utf8_is_named(folder: Path, tmp_path: Path, capsys) -> None:
    source = tmp_path / "text.txt"
    source.write_bytes(b"one two\n" + "fünf\n".encode("latin-1"))
    status, _, error = run_cli(capsys, "translate", "--model", str(folder / "run"), "--file", str(source))
    assert (status, error.count("\n")) == (2, 1)
    assert f"Line 2 of {source} is not UTF-8" in error


def test_tokenised_references_are_refused_before_anything_is_translated(folder: Path, capsys, monkeypatch) -> None:
    names = write(folder, "cut", [(a, f"{b} .") for a, b in pairs(20, 1)])
    asked = ["evaluate", "--model", str(folder / "run"), "--json", "--pairs", *names]
    status, out, _ = run_cli(capsys, *asked, "--force")
    assert (status, json.loads(out)["sentences"]) == (0, 20)
    monkeypatch.delattr(Translator, "stream")
    status, _, error = run_cli(capsys, *asked)
    assert (status, error.count("\n")) == (2, 1)
    assert "references look tokenised: 20 of 20 lines do" in error
    assert "--force" in error


def test_pairs_are_scored(folder: Path, capsys) -> None:
    names = [str(folder / "dev.en"), str(folder / "dev.de")]
    status, out, _ = run_cli(capsys, "evaluate", "--model", str(folder / "run"), "--pairs", *names)
    assert status == 0
    assert "BLEU" in out
    assert "nrefs:1|case:mixed" in out
    assert "log P(y)" in out
    status, out, _ = run_cli(
        capsys, "evaluate", "--model", str(folder / "run"), "--pairs", *names, "--json", "--beam-size", "1"
    )
    assert json.loads(out)["search"]["beam_size"] == 1


def test_the_file_of_translations_fits_the_references_line_by_line(folder: Path, tmp_path: Path, capsys) -> None:
    rows = [("one", "eins"), ("two", ""), ("", ""), ("six five", "sechs fünf"), ("", "vier")]
    table = tmp_path / "dev.tsv"
    table.write_text("en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    out = tmp_path / "out.txt"
    for names in (write(tmp_path, "gaps", rows), [str(table)]):
        asked = ["evaluate", "--model", str(folder / "run"), "--pairs", *names]
        status, said, _ = run_cli(capsys, *asked, "--out", str(out))
        assert status == 0
        assert f"Empty lines in {out}, for pairs that are left out: 3." in said
        assert out.read_text(encoding="utf-8") == "eins\n\n\nsechs fünf\n\n"
        assert "Empty lines" not in run_cli(capsys, *asked)[1]


def test_words_are_scored_where_they_stand_between_spaces(folder: Path, tmp_path: Path) -> None:
    scored = [
        evaluate_pairs(folder / "run", write(tmp_path, "some", [("one two", text)]))["scores"].keys()
        for text in ("eins zwei", "一二", "いち に")
    ]
    assert scored == [{"bleu", "chrf", "bleu_lowercase_tokens"}, *[{"bleu", "chrf"}] * 2]


def test_the_columns_of_a_table_are_named_where_it_is_scored(folder: Path, tmp_path: Path, capsys) -> None:
    table = tmp_path / "dev.tsv"
    rows = ["id\thyp_de\torig_en\n", *(f"{i}\t{b}\t{a}\n" for i, (a, b) in enumerate(pairs(20, 1)))]
    table.write_text("".join(rows), encoding="utf-8")
    asked = ["evaluate", "--model", str(folder / "run"), "--json", "--pairs"]
    aligned = [str(folder / "dev.en"), str(folder / "dev.de")]
    status, out, error = run_cli(capsys, *asked, str(table), "--columns", "orig_en,hyp_de")
    assert (status, error) == (0, "")
    wanted = json.loads(run_cli(capsys, *asked, *aligned)[1])
    found = json.loads(out)
    assert {name: found[name] for name in ("scores", "exact", "sentences")} == {
        name: wanted[name] for name in ("scores", "exact", "sentences")
    }
    for names, says in (
        ([str(table), "--columns", "orig_en"], "--columns must be 2 values"),
        ([*aligned, "--columns", "orig_en,hyp_de"], "belong to a table"),
        (["dates", "--columns", "1,2"], "belong to a table"),
    ):
        status, _, error = run_cli(capsys, *asked, *names)
        assert (status, error.count("\n")) == (2, 1)
        assert says in error


def test_a_tsv_trains_from_the_command_line_and_has_a_page(tmp_path: Path, capsys) -> None:
    table = tmp_path / "pairs.tsv.gz"
    with gzip.open(table, "wt", encoding="utf-8") as file:
        file.write("".join(f"{a}\t{b}\n" for a, b in pairs(200)))
    out = tmp_path / "run"
    small = words("--steps 2 --dim 16 --hidden 16 --size 40 --kind word --tokens 128 --heldout 10 --precision fp32")
    status, said, error = run_cli(
        capsys, "train", "seq2seq-attention", "--pairs", str(table), "--out", str(out), "--device", "cpu", *small
    )
    assert (status, error) == (0, "")
    assert "held out of training" in said
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Attention: " in page
    assert "Translations during training" in page
    run_cli(capsys, "report", str(out), "--no-open")
    assert (out / "report.html").read_text(encoding="utf-8") == page
    assert load(out).settings["search"]["beam_size"] == 5


def test_fields_make_other_systems(tmp_path: Path, capsys) -> None:
    small = words("--steps 1 --dim 16 --hidden 16 --most 300 --heldout 20 --scored 5 --precision fp32 --device cpu")
    other = words("--attention dot --input-feeding yes --reverse yes")
    status, _, error = run_cli(capsys, "train", "seq2seq-attention", "--out", str(tmp_path / "run"), *small, *other)
    assert (status, error) == (0, "")
    sizes = load(tmp_path / "run").model.config
    assert (sizes.attention, sizes.input_feeding, sizes.reverse) == ("dot", True, True)


def test_a_system_alone_learns_dates(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = words("--steps 2 --dim 16 --hidden 16 --most 300 --heldout 20 --scored 5 --precision fp32 --device cpu")
    status, out, error = run_cli(capsys, "train", "seq2seq-attention", *small)
    assert (status, error) == (0, "")
    assert "exact" in out
    assert "The model has hardly learned after 2 steps" in out
    assert " │" not in out  # where it looked is no news
    with monkeypatch.context() as patch:
        patch.setattr(TrainTranslation, "warnings", lambda self: [])
        assert " │" in run_cli(capsys, "train", "seq2seq-attention", *small, "--out", "runs/other")[1]
    run = "runs/seq2seq-attention"
    status, out, _ = run_cli(capsys, "evaluate", "--model", run, "--pairs", "dates", "--max-length", "2")
    assert status == 0
    assert "1,000 pairs" in out


BAD = {
    "another number of lines": (["train.en", "short.de"], [], "lines"),
    "no such file": (["nothing.en", "train.de"], [], "nothing.en"),
    "too few to hold some out": (["few.en", "few.de"], [], "--dev"),
    "three files": (["train.en", "train.de", "train.de"], [], "not as 3 files"),
    "not UTF-8": (["latin.en", "train.de"], [], "UTF-8"),
    "too long for every pair": (["train.en", "train.de"], ["--longest", "1"], "longer than"),
    "a vocabulary that holds nothing": (["train.en", "train.de"], ["--size", "2"], "too small"),
    "an unknown field": (["train.en", "train.de"], ["--beams", "3"], "beam_size"),
    "dev pairs from training": (["train.en", "train.de"], ["--dev", "train.en", "train.de"], "remove them"),
    "columns of two files": (["train.en", "train.de"], ["--columns", "en,de"], "belong to a table"),
    "a format of two files": (["train.en", "train.de"], ["--texts.format", "tsv"], "belong to a table"),
    "columns of dates": (["dates"], ["--columns", "1,2"], "belong to a table"),
    "dev pairs beside dates": (["dates"], ["--dev", "train.en", "train.de"], "Dev pairs need training pairs"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_pairs_end_in_one_sentence_and_leave_nothing(case: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(), "train", pairs(50))
    write(Path(), "few", pairs(3))
    Path("short.de").write_text("eins\n", encoding="utf-8")
    Path("latin.en").write_bytes("fünf\n".encode("latin-1") * 50)
    files, more, says = BAD[case]
    status, _, error = run_cli(capsys, "train", "seq2seq", "--out", "run", "--steps", "1", "--pairs", *files, *more)
    assert status == 2
    assert says in error
    assert error.count("\n") == 1
    assert not Path("run").exists()


def test_dev_pairs_without_training_pairs_are_refused(tmp_path: Path, capsys) -> None:
    dev = write(tmp_path, "dev", pairs(9))
    status, _, error = run_cli(
        capsys, "train", "seq2seq", "--out", str(tmp_path / "run"), "--steps", "1", "--dev", *dev
    )
    assert status == 2
    assert "Dev pairs need training pairs" in error
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_begun_with_columns_that_it_ignored_goes_on(tmp_path: Path) -> None:
    chosen = config("seq2seq", tmp_path).replace(texts={"columns": ("y", "x")})
    with pytest.raises(UnmaskError, match="belong to a table"):
        TrainTranslation(chosen, tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    assert len(TrainTranslation(chosen, tmp_path / "run", resume=True).dev) == 20


def test_columns_are_those_of_the_table_where_only_one_side_is_one(tmp_path: Path) -> None:
    table = tmp_path / "train.tsv"
    table.write_text("x\ty\n" + "".join(f"{b}\t{a}\n" for a, b in pairs(50)), encoding="utf-8")
    texts = {"train": (str(table),), "dev": write(tmp_path, "few", pairs(9, 1)), "columns": ("y", "x")}
    run = TrainTranslation(config("seq2seq", tmp_path).replace(texts=texts), tmp_path / "run")
    assert run.dev.sources == [source for source, _ in pairs(9, 1)]
    assert "Sources are the column y, targets x" in run.notes[0]


def test_a_folder_that_does_not_translate_says_so(tmp_path: Path, capsys) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    status, _, error = run_cli(capsys, "translate", "--model", str(tmp_path), "one")
    assert status == 2
    assert error.count("\n") == 1


def test_a_folder_that_translates_says_what_to_do_with_it(folder: Path, capsys) -> None:
    status, _, error = run_cli(capsys, "predict", "--model", str(folder / "run"), "one")
    assert status == 2
    assert "unmask translate" in error


def test_the_map_has_a_row_for_each_token_and_a_column_for_each_token() -> None:
    found = render_alignment(Alignment(["ab", "</s>"], ["한", "x"], [[1.0, 0.0], [0.45, 0.55]]))
    lines = found.split("\n")
    assert lines[0] == "한 │██"
    assert lines[1] == " x │▒▒▒▒"
    assert lines[3].split() == ["a", "<"]


def test_a_folder_for_the_translations_is_refused_before_any_is_made(folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(Translator, "stream", None)
    names = [str(folder / f"dev.{side}") for side in ("en", "de")]
    status, _, error = run_cli(
        capsys, "evaluate", "--model", str(folder / "run"), "--pairs", *names, "--out", str(folder)
    )
    assert status == 2
    assert "could not be written: Is a directory" in error


def test_alignments_that_are_asked_for_at_once_are_those_of_each_alone(folder: Path, monkeypatch) -> None:
    translator = Translator(folder / "run")
    asked = [("one two three", "eins zwei drei"), ("six", "sechs")]
    alone = [translator.alignment(*one) for one in asked]
    forward, both = type(translator.model).forward, threading.Barrier(2, timeout=30)

    def together(model, batch):
        both.wait()  # both look already, and neither has seen anything
        return forward(model, batch)

    monkeypatch.setattr(type(translator.model), "forward", together)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda one: translator.alignment(*one), asked)) == alone
    assert all(part.recorder is None for part in translator.model.modules() if hasattr(part, "recorder"))


def test_a_search_of_the_folder_can_be_changed(folder: Path) -> None:
    assert Translator(folder / "run", Search(beam_size=4, n_best=2)).search.n_best == 2
