"""Perplexity in strided windows, and answers in context, against plain loops over one sequence at a time."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask import huggingface
from unmask.cli import main
from unmask.data.labelled.rows import Choices, Row
from unmask.data.text import byte_pairs
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.gpt import Gpt, Gpt2
from unmask.models.recurrent import RecurrentNetwork
from unmask.runs.in_context import InContext, Prompts, answer_all, evaluate_in_context
from unmask.serve import Predictor
from unmask.serve.likelihood import Scorer, windows
from unmask.tasks.prompting import Prompting
from unmask.types import Batch, Head

TEXTS = ["The film was good, and the plot was bad.", "a plot of bad people", "Good! " * 20, "the"]
LENGTH = 16


def write(folder, kind):
    """A random language model over byte-level BPE or word pieces; sharp enough for a mistake to show."""
    tokenizer = Tokenizer.train(TEXTS * 3, 80) if kind == "lstm" else byte_pairs.train(TEXTS * 3, 300, cased=True)
    sizes = {"vocabulary": tokenizer.size, "dim": 16, "layers": 2, "padding": tokenizer.pad}
    if kind == "lstm":
        config = RecurrentNetwork(**sizes, hidden=24)
    else:
        config = {"gpt": Gpt, "gpt2": Gpt2}[kind](**sizes, heads=2, length=LENGTH)
    model = config.build(seed=None)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0.0, 0.3, generator=generator)
    huggingface.save(folder, model, tokenizer)
    return folder


@pytest.fixture(scope="module", params=["gpt", "gpt2", "lstm"])
def folder(request, tmp_path_factory):
    return write(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return write(tmp_path_factory.mktemp("gpt2"), "gpt2")


def log_p(model, tokens, place):
    """Of the token at a place, from the tokens before it that are given."""
    with torch.no_grad():
        hidden = model(Batch(torch.tensor([tokens[:place]])))
        logits = model.answer("next", hidden, torch.tensor([place - 1]))
    return float(logits.log_softmax(-1)[0, tokens[place]])


@given(st.integers(2, 80), st.integers(1, 20), st.data())
def test_windows_guess_every_token_once_with_the_context_that_they_promise(tokens, longest, data):
    stride = data.draw(st.integers(1, longest))
    guessed = []
    for begin, first, end in windows(tokens, longest, stride):
        assert 0 <= begin < end <= tokens - 1
        assert end - begin <= longest
        for place in range(first, end + 1):
            assert place - begin >= min(place, longest - stride + 1)
            guessed.append(place)
    assert guessed == list(range(1, tokens))


@pytest.mark.parametrize(("window", "stride"), [(None, None), (7, 3), (5, 1), (4, 4)])
def test_log_probabilities_are_those_of_a_plain_loop(folder, window, stride):
    scorer = Scorer(folder, window=window, stride=stride).language_model()
    model, tokenizer = scorer.model, scorer.tokenizer
    sequences = [np.array([tokenizer.cls, *ids, tokenizer.sep]) for ids in tokenizer.ids(TEXTS)]
    longest, step = scorer.window, scorer.stride
    for tokens, found in zip(sequences, scorer.of_sequences(sequences), strict=True):
        tokens = tokens.tolist()
        end = min(longest, len(tokens) - 1)
        for place in range(1, len(tokens)):
            while place > end:
                end = min(end + step, len(tokens) - 1)
            begin = max(0, end - longest)
            assert found[place - 1] == pytest.approx(log_p(model, tokens[begin : place + 1], place - begin), abs=1e-4)


def test_perplexities_are_means_over_tokens_words_and_characters(folder):
    scorer = Scorer(folder)
    found = scorer.perplexity(iter(TEXTS))
    model = scorer.language_model()
    ids = model.tokenizer.ids(TEXTS)
    framed = [np.array([model.tokenizer.cls, *x, model.tokenizer.sep]) for x in ids]
    nll = -sum(float(x.sum()) for x in model.of_sequences(framed))
    assert found.nll == pytest.approx(nll, rel=1e-6)
    assert found.documents == 4
    assert found.tokens == sum(len(x) + 1 for x in ids)
    assert found.words == sum(len(text.split()) for text in TEXTS)
    assert found.perplexity == pytest.approx(math.exp(nll / found.tokens))
    assert found.word_perplexity == pytest.approx(math.exp(nll / found.words))
    assert found.bits_per_character == pytest.approx(nll / math.log(2) / sum(map(len, TEXTS)))
    assert found.unknown == 0
    assert set(found.to_dict()) > {"perplexity", "nll"}


def test_tokens_that_the_model_does_not_know_are_counted(tmp_path):
    found = Scorer(write(tmp_path, "lstm")).perplexity(["the 한국 film"])
    assert found.unknown > 0
    assert "does not know 1 token, so" in found.render()


def test_what_makes_no_windows_and_no_text_is_said(folder, tmp_path):
    with pytest.raises(UnmaskError, match="stride"):
        Scorer(folder, window=4, stride=5)
    with pytest.raises(UnmaskError, match="not 0"):
        Scorer(folder, stride=0)
    with pytest.raises(UnmaskError, match="not 0"):
        Scorer(folder, window=0)
    with pytest.raises(UnmaskError, match="no text"):
        Scorer(folder).perplexity(["", " \n"])
    if "lstm" not in str(folder):
        with pytest.raises(UnmaskError, match="1 to 16"):
            Scorer(folder, window=17)
    bert = Bert(vocabulary=80, dim=8, layers=1, heads=2, hidden=8, length=8).build(as_heads({"mlm": 0}))
    huggingface.save(tmp_path, bert, Tokenizer.train(TEXTS, 80))
    with pytest.raises(UnmaskError, match="next token"):
        Scorer(tmp_path).perplexity(["the"])
    with pytest.raises(UnmaskError, match="next token"):
        evaluate_in_context(tmp_path, tmp_path / "rows.tsv")
    with pytest.raises(UnmaskError, match="--stride does not apply to a masked language model"):
        Scorer(tmp_path, stride=2)


def test_the_command_line_says_how_likely_a_file_is(gpt2, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS))
    main(["evaluate", "--model", str(gpt2), "--text", str(tmp_path / "text.txt"), "--stride", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    expected = Scorer(gpt2, stride=4).perplexity([text.strip() for text in TEXTS])
    assert found["nll"] == pytest.approx(expected.nll)
    main(["evaluate", "--model", str(gpt2), "--text", str(tmp_path / "text.txt"), "--per", "file"])
    assert "1 document, " in capsys.readouterr().out
    (tmp_path / "wrapped.txt").write_text("The film\nwas good.   A plot.")
    wrapped = ["evaluate", "--model", str(gpt2), "--text", str(tmp_path / "wrapped.txt"), "--json"]
    for more, text in (([], "The film\nwas good.   A plot."), (["--as-corpus"], "The film was good. A plot.")):
        main([*wrapped, *more])
        expected = Scorer(gpt2).perplexity([text])
        assert json.loads(capsys.readouterr().out) == pytest.approx(expected.to_dict())
    with pytest.raises(SystemExit):
        main(["evaluate", "--model", str(gpt2), "--text", str(tmp_path / "text.txt"), "--label", "x"])
    assert "--label" in capsys.readouterr().err


def test_what_a_foreign_head_says_is_not_taken_for_a_likelihood_or_an_answer():
    """A kind does not tell what another objective trained a head to say."""
    tokenizer = Tokenizer.train(TEXTS, 80)
    foreign = {"length": Head("sequence", 2, pretraining=True), "swapped": Head("token", 1, pretraining=True)}
    sizes = {"vocabulary": tokenizer.size, "dim": 8, "layers": 1, "heads": 2, "hidden": 8, "length": 8}
    loaded = huggingface.Loaded(Bert(**sizes).build(foreign).eval(), tokenizer, (), (), ())
    with pytest.raises(UnmaskError, match="No head of this model scores the likelihood of a text"):
        Scorer(loaded)
    with pytest.raises(UnmaskError, match="no head that answers"):
        Predictor(loaded)


# ------------------------------------------------------------------------------------------------ in context

ROWS = [Row(text=f"film {i}", label=str(i % 2), place=f"rows:{i}") for i in range(6)]


def test_a_prompt_is_examples_then_the_row_without_its_answer():
    how = InContext(shots=2, template="{text} {braces} => {answer}")
    prompts = Prompts(how, {"0": "bad", "1": "good"}, ROWS)
    prompt, candidates = prompts.of(3)
    first, second, last = prompt.split("\n\n")
    assert last == "film 3 {braces} =>"
    assert candidates == [" bad", " good"]
    for shown in (first, second):
        number = int(shown.split()[1])
        assert number != 3
        assert shown == f"film {number} {{braces}} => {['bad', 'good'][number % 2]}"
    assert prompts.of(3) == Prompts(how, {"0": "bad", "1": "good"}, ROWS).of(3)
    put = {"0": "bad", "1": "good"}
    several = {Prompts(how.replace(seed=seed), put, ROWS).of(3)[0] for seed in range(9)}
    assert len(several) > 3
    assert Prompts(InContext(), {"0": "0", "1": "1"}, ROWS).of(0)[0] == "Text: film 0\nLabel:"


def test_templates_fit_their_rows():
    pairs = [Row(text="a", pair="b", label="x")]
    choices = [Choices(text="a", choices=("b {text}", "c"), label="1", place="x:1")]
    assert "{pair}" in Prompting({}).template(pairs)
    assert Prompts(InContext(task="multiple-choice"), {}, choices).of(0) == ("a", [" b {text}", " c"])
    for template, sentence in (
        ("{text}", "at its end"),
        ("{answer} {text}", "at its end"),
        ("It is {answer}", "no text"),
    ):
        with pytest.raises(UnmaskError, match=sentence):
            InContext(template=template)
    with pytest.raises(UnmaskError, match="shots"):
        InContext(shots=-1)
    with pytest.raises(UnmaskError, match="5 rows for 6 examples"):
        Prompts(InContext(shots=6), {"0": "0", "1": "1"}, ROWS)
    with pytest.raises(UnmaskError, match="label"):
        Prompts(InContext(shots=1), {"0": "0"}, [ROWS[0]], [ROWS[1]]).of(0)


@pytest.mark.parametrize("normalise", ["sum", "mean"])
@pytest.mark.parametrize("shots", [0, 2])
def test_answers_are_those_of_a_plain_loop(folder, normalise, shots):
    scorer = Scorer(folder)
    put = {"0": "bad", "1": "the good film"}
    prompts = Prompts(InContext(shots=shots, template="{text}: {answer}"), put, ROWS)
    answers, cut = answer_all(scorer, prompts, ROWS, normalise)
    model = scorer.language_model()
    tokenizer = model.tokenizer
    for number, answer in enumerate(answers):
        prompt, candidates = prompts.of(number)
        scores = []
        for candidate in candidates:
            before, own = (x.tolist() for x in tokenizer.ids([prompt, candidate]))
            room = model.window - len(own)  # the last token is guessed, and not read
            tokens = [tokenizer.cls, *before[max(0, len(before) - room) :], *own]
            total = sum(log_p(model.model, tokens, i) for i in range(len(tokens) - len(own), len(tokens)))
            scores.append(total / len(own) if normalise == "mean" else total)
        expected = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(answer[0], expected, atol=1e-4)
    assert cut == (6 if shots and model.window == LENGTH else 0)


def test_a_file_is_scored_in_context_from_the_command_line(gpt2, tmp_path, capsys):
    rows = tmp_path / "rows.tsv"
    rows.write_text("sentence\tlabel\n" + "".join(f"film {i}\t{i % 2}\n" for i in range(8)))
    options = {"model": gpt2, "data": rows, "shots": 1, "names": "0=bad,1=good", "template": "{text} {answer}"}
    main(["evaluate", *[f"--{name}={value}" for name, value in options.items()], "--json"])
    found = json.loads(capsys.readouterr().out)
    how = InContext(shots=1, names=("0=bad", "1=good"), template="{text} {answer}")
    expected = evaluate_in_context(gpt2, rows, how)
    assert found["metrics"] == pytest.approx(expected["metrics"])
    assert found["rows"] == 8
    assert found["baseline"]["accuracy"] == 0.5
    main(["evaluate", *[f"--{name}={value}" for name, value in options.items()], "--examples", str(rows)])
    assert "The examples hold 8 of the 8 rows too" in capsys.readouterr().out
    with pytest.raises(UnmaskError, match="calls"):
        evaluate_in_context(gpt2, rows, InContext(names=("2=bad",)))


def test_multiple_choice_is_scored_in_context(gpt2, tmp_path):
    rows = tmp_path / "rows.jsonl"
    lines = [{"text": f"film {i}", "choices": ["bad", "good film", "the"], "label": i % 3} for i in range(6)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    how = InContext(task="multiple-choice", shots=1, normalise="mean")
    found = evaluate_in_context(gpt2, rows, how)
    assert found["task"] == "choice"
    assert 0 <= found["metrics"]["accuracy"] <= 1
    with pytest.raises(UnmaskError, match="--names"):
        evaluate_in_context(gpt2, rows, how.replace(names=("0=a",)))
