"""Texts that a language model continues with, and what its units do along them, from a folder on disk."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.text import characters
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Limits, Sampling, Search
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.gpt import Gpt2
from unmask.models.recurrent import RecurrentNetwork
from unmask.serve.activations import Activations, activations, page, render, table
from unmask.serve.continuation import Continuer
from unmask.types import Batch

TEXT = "the film was good and the plot was bad"


def write(folder, tokenizer, heads=None, **changes):
    config = RecurrentNetwork(vocabulary=tokenizer.size, dim=8, hidden=12, layers=2, padding=tokenizer.pad)
    model = config.replace(**changes).build(heads, seed=4)
    huggingface.save(folder, model, tokenizer)
    return folder


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    return write(tmp_path_factory.mktemp("pieces"), Tokenizer.train([TEXT] * 5, 80))


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    return write(tmp_path_factory.mktemp("letters"), characters.train([TEXT]))


def test_greedy_is_the_likeliest_token_each_time(letters):
    loaded = huggingface.load(letters)
    (answer,) = Continuer(letters, Search(limits=Limits(max_length=5)))(["the fil"])[0]
    tokens = [loaded.tokenizer.cls, *loaded.tokenizer.ids(["the fil"])[0].tolist()]
    never = sorted(loaded.tokenizer.specials - {loaded.tokenizer.sep})
    for _ in range(answer.tokens):
        logits = loaded.model.answer(
            "next", loaded.model(Batch(torch.tensor([tokens]))), torch.tensor([len(tokens) - 1])
        )
        logits[:, never] = -torch.inf
        tokens.append(int(logits.argmax()))
    assert answer.text == loaded.tokenizer.decode(tokens)
    assert answer.text.startswith("the fil")
    assert Continuer(letters, Search(limits=Limits(max_length=5)))(["the fil"]) == [[answer]]


def test_a_file_has_a_beginning_a_line(letters, tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("the\nthe film\n")
    main(["generate", "--model", str(letters), "--file", str(tmp_path / "lines.txt"), "--search", "--max-length=3"])
    said = capsys.readouterr().out
    main(["generate", "--model", str(letters), "the", "the film", "--search", "--max-length=3"])
    assert capsys.readouterr().out == said
    assert said.count("\n") == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["a text", "--file", "lines.txt"], "Give texts or --file, not both"),
        (["--file", "missing.txt"], "There is no file missing.txt"),
        (["a text", "--device", "nowhere"], "There is no device 'nowhere'; use cpu, cuda"),
        (["a text", "--temperature", "0"], "--search"),
    ],
)
def test_what_cannot_be_gone_on_with_is_said(options, sentence, letters, capsys):
    with pytest.raises(SystemExit):
        main(["generate", "--model", str(letters), *options])
    assert sentence in capsys.readouterr().err


def test_a_beginning_that_is_too_long_is_named_before_anything_is_written(tmp_path, capsys):
    tokenizer = characters.train([TEXT])
    config = Gpt2(vocabulary=tokenizer.size, length=12, layers=1, dim=8, heads=2, hidden=16, padding=tokenizer.pad)
    huggingface.save(tmp_path / "lm", config.build(seed=0), tokenizer)
    (tmp_path / "lines.txt").write_text("the\nthe film was\nthe film was\n\n")
    asked = ["generate", "--model", str(tmp_path / "lm"), "--max-length", "3"]
    with pytest.raises(SystemExit):
        main([*asked, "--file", str(tmp_path / "lines.txt")])
    said = capsys.readouterr()
    where = f"Line 2 of {tmp_path / 'lines.txt'}"
    assert said.err == f"unmask: {where} has 12 tokens, and the model reads at most 11; shorten it.\n"
    assert not said.out
    with pytest.raises(SystemExit):
        main([*asked, "the", "the film was"])
    assert "Prompt 2 has 12 tokens" in capsys.readouterr().err
    main([*asked, "the film wa"])
    assert capsys.readouterr().out.startswith("the film wa")


def test_draws_follow_the_seed_and_the_text_begins_as_it_was_given(pieces):
    def texts(seed):
        how = Sampling(samples=3, seed=seed, limits=Limits(max_length=8))
        return [[a.text for a in some] for some in Continuer(pieces, how)(["The  Film was", "", "good zebra"])]

    first, again, other = texts(1), texts(1), texts(2)
    assert first == again != other
    assert all(text.startswith("The  Film was") for text in first[0])
    assert all(len(some) == 3 for some in first)
    special = ("[PAD]", "[MASK]", "[UNK]", "[CLS]")
    assert not any(word in text for some in first for text in some for word in special)


def test_special_tokens_are_never_written_though_the_model_likes_them(pieces):
    loaded = huggingface.load(pieces)
    with torch.no_grad():
        loaded.model.heads["next"].tied.bias[sorted(loaded.tokenizer.specials)] = 50.0
        loaded.model.heads["next"].tied.bias[loaded.tokenizer.sep] = -50.0
    (found,) = Continuer(loaded, Search(limits=Limits(max_length=5)))(["the"])
    assert found[0].tokens == 5
    assert "[" not in found[0].text
    assert len(loaded.tokenizer.ids([found[0].text])[0]) > 1  # what was written is text


def test_what_the_model_cannot_read_is_counted(letters):
    (found,) = Continuer(letters, Search(limits=Limits(max_length=2)))(["the zzz"])
    assert found[0].unknown == 3


@pytest.mark.parametrize("model", ["classifier", "bert"])
def test_a_model_that_does_not_write_is_named(tmp_path, model):
    tokenizer = Tokenizer.train([TEXT] * 5, 80)
    if model == "bert":
        size = {"dim": 8, "layers": 1, "heads": 1, "hidden": 8, "length": 8}
        huggingface.save(tmp_path, Bert(vocabulary=tokenizer.size, **size).build(), tokenizer)
    else:
        write(tmp_path, tokenizer, as_heads({"classification": 2}))
    with pytest.raises(UnmaskError, match="predicts the next token"):
        Continuer(tmp_path)


# ------------------------------------------------------------------------------------------------ units


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_units_are_those_of_the_states_in_the_place_of_their_token(tmp_path, cell, bidirectional):
    folder = write(tmp_path, Tokenizer.train([TEXT] * 5, 80), cell=cell, bidirectional=bidirectional)
    loaded = huggingface.load(folder)
    found = activations(loaded.model, loaded.tokenizer, "The film,  was bad")
    ids = loaded.tokenizer.ids(["The film,  was bad"])[0]
    assert found.values.shape == (len(ids), 2, 24 if bidirectional else 12)
    tokens, _ = loaded.tokenizer.join(ids)
    if not bidirectional:
        for t in range(len(ids)):  # read up to there, and ask torch's own network for its state
            state = loaded.model.stack(loaded.model.embedding(torch.from_numpy(tokens[: t + 2])[None]))[1]
            told = state.hidden if state.cell is None else state.cell.tanh()
            np.testing.assert_allclose(found.values[t], told[:, 0].detach().numpy(), atol=1e-5)
    of = found.of(3, 1)
    assert np.isnan(of[[3, 9, 10]]).all()  # the spaces
    assert of[0] == of[2] == found.values[0, 1, 3]


def test_the_unit_that_changes_most_is_found_and_wrong_ones_are_named():
    values = np.zeros((3, 1, 4), np.float32)
    values[:, 0, 2] = [-1, 1, -1]
    values[:, 0, 3] = [0.9, 1, 1]
    found = Activations("abc", np.array([[0, 1], [1, 2], [2, 3]]), values)
    assert found.liveliest(0, 2) == [2, 3]
    for unit, layer, message in ((4, 0, "units 0 to 3"), (-1, 0, "units 0 to 3"), (0, 1, "layers are 0 to 0")):
        with pytest.raises(UnmaskError, match=message):
            found.of(unit, layer)


def test_the_views_show_every_character_and_trust_none():
    values = np.array([[[1.0]], [[-0.5]], [[0.0]]], np.float32)
    found = Activations("<b> c", np.array([[0, 1], [1, 3], [4, 5]]), values)
    html = page(found, 0)
    assert "<b>" not in html
    assert '<span style="background: rgba(50, 100, 220, 1.000)" title="+1.000">&lt;</span>' in html
    assert "rgba(220, 60, 50, 0.500)" in html
    shown = render(found, 0)
    assert [shown.count(piece) for piece in ("m<\033", "mb>\033", "mc\033")] == [1, 1, 1]
    assert table(found, 0) == "+1.000\t'<'\n-0.500\t'b>'\n+0.000\t'c'"


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_likeliest_next_tokens_are_those_of_the_logits_after_each(tmp_path, bidirectional):
    loaded = huggingface.load(write(tmp_path, characters.train([TEXT]), bidirectional=bidirectional))
    found = activations(loaded.model, loaded.tokenizer, "the film", 3)
    if bidirectional:
        assert not found.next  # it has seen the next token, and does not predict it
        return
    state = loaded.model.prefill(Batch(torch.tensor([[loaded.tokenizer.cls]])))
    loaded.model.decode_step(state.first, state)
    for token, next in zip(loaded.tokenizer.ids(["the film"])[0].tolist(), found.next, strict=True):
        p_V = loaded.model.decode_step(torch.tensor([token]), state)[0].softmax(-1)
        order = p_V.argsort(descending=True)[:3]
        assert [name for name, _ in next] == loaded.tokenizer.pieces(order.tolist())
        np.testing.assert_allclose([p for _, p in next], p_V[order].detach().numpy(), atol=1e-6)


def test_the_likeliest_next_tokens_stand_below_their_token():
    values = np.array([[[1.0]], [[-0.5]]], np.float32)
    next = [[(" ", 0.5), ("x", 0.25)], [("<i>", 1.0), ("\n", 0.0)]]
    found = Activations("ab", np.array([[0, 1], [1, 2]]), values, next)
    assert table(found, 0) == "+1.000\t'a'\t' ' 0.500\t'x' 0.250\n-0.500\t'b'\t'<i>' 1.000\t'\\n' 0.000"
    plain = re.sub("\033.*?m", "", render(found, 0))
    assert [line.rstrip() for line in plain.splitlines()] == ["a b", "␣ <i>", "x ↵"]
    narrow = re.sub("\033.*?m", "", render(found, 0, width=5)).splitlines()
    assert [line.rstrip() for line in narrow] == ["a", "␣", "x", "", "b", "<i>", "↵"]
    html = page(found, 0)
    assert "<i>" not in html
    column = html.partition("<div>")[2].partition("</table>")[0]
    assert re.findall(r"rgba\((.*?)\)", column) == ["50, 100, 220, 1.000", "0, 0, 0, 0.300", "0, 0, 0, 0.150"]


def test_another_model_has_no_such_units(tmp_path):
    tokenizer = Tokenizer.train([TEXT] * 5, 80)
    model = Bert(vocabulary=tokenizer.size, dim=8, layers=1, heads=1, hidden=8, length=8).build()
    with pytest.raises(UnmaskError, match="recurrent"):
        activations(model, tokenizer, "a text")
    network = RecurrentNetwork(vocabulary=tokenizer.size, dim=8, hidden=8).build()
    with pytest.raises(UnmaskError, match="give a text"):
        activations(network, tokenizer, " ")


# ------------------------------------------------------------------------------------------------ the command line


def test_the_commands(letters, tmp_path, capsys):
    main(["generate", "--model", str(letters), "the ", "--max-length", "4", "--samples", "2", "--top-k", "5", "--json"])
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(a) >= {"text", "beginning", "log_probability"} for a in answers] == [True, True]
    main(["generate", "--model", str(letters), "the ü", "--search", "--beam-size", "2", "--max-length", "4"])
    out, err = capsys.readouterr()
    assert out.startswith("the ü")
    assert "does not know 1 of the tokens" in err
    main(["generate", "--fields"])
    assert "--temperature" in capsys.readouterr().out
    main(["units", "--model", str(letters), "the film", "--unit", "3", "--layer", "2"])
    assert len(shown := capsys.readouterr().out.splitlines()) == 8
    main(["units", "--model", str(letters), "the film", "--unit", "3"])
    assert capsys.readouterr().out.splitlines() != shown  # of the first layer
    (tmp_path / "text.txt").write_text("the plot", encoding="utf-8")
    main(["units", "--model", str(letters), f"@{tmp_path / 'text.txt'}", "--html", str(tmp_path / "page.html")])
    assert "rgba" in (tmp_path / "page.html").read_text(encoding="utf-8")
    main(["units", "--model", str(letters), "the plot", "--layer", "2", "--out", str(tmp_path / "two.html")])
    assert "of layer 2</h1>" in (tmp_path / "two.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "a text"], "--model FOLDER"),
        (["generate", "--model", "missing", "a text"], "missing"),
        (["generate", "--model", "missing", "--beam-size", "2"], "beam"),
        (["units", "--model", "MODEL", "@missing.txt"], "missing.txt"),
        (["units", "--model", "MODEL", "a", "--unit", "99"], "no unit 99: a layer has the units 0 to"),
        (["units", "--model", "MODEL", "a", "--layer", "9"], "layer 9: the model has 2, counted from 1"),
        (["units", "--model", "MODEL", "a", "--layer", "0"], "layer 0"),
        (["generate", "--model", "MODEL", "a", "--device", "gpu"], "no device 'gpu'; use cpu, cuda, cuda:1 or mps."),
        (["generate", "--model", "MODEL", "a", "--device", "cpu:x"], "device cpu:x cannot be used"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, letters, capsys):
    with pytest.raises(SystemExit):
        main([str(letters) if part == "MODEL" else part for part in arguments])
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
