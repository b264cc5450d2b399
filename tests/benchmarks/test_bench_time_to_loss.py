"""make bench time-to-loss: held-out rows that are the same for all sides, and clocks that stop when asked."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from bench import common, time_to_loss
from bench.preparation import LENGTH
from bench.row import Plan
from bench.time_to_loss import OURS, PUBLISHED, RATED, TimeToLoss, heldout, heldout_loss
from unmask import huggingface
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.huggingface.table import as_heads
from unmask.models.bert import SIZES, Bert


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """The settings of a turn, on a corpus of nonsense."""
    rng, words = np.random.default_rng(0), [f"w{i}" for i in range(60)]
    texts = [". ".join(" ".join(rng.choice(words, 12)).capitalize() for _ in range(30)) for _ in range(60)]
    stories = [TextDocument(f"{text}.", f"story-{i}") for i, text in enumerate(texts)]
    folder = tmp_path_factory.mktemp("time-to-loss") / "corpus"
    corpus.build(stories, folder, vocabulary_size=120, heldout=0.2)
    return {"corpus": str(folder), "size": "tiny", "rows": 2, "precision": "fp32", "seed": 0, "minutes": 0.01}


def test_a_seventh_of_the_words_is_hidden_and_the_rest_stands_as_it_is(given):
    tokens, places, values = heldout(given)
    tokenizer = corpus.Corpus(given["corpus"]).tokenizer
    split = corpus.Corpus(given["corpus"]).split("heldout")
    text = np.concatenate([tokenizer.join(np.concatenate(d.sentences))[0] for d in split])[: tokens.numel()]
    seen = tokens.flatten().numpy().copy()
    masked = (seen[places] == tokenizer.mask).mean()
    seen[places] = values
    assert tokens.shape[1] == LENGTH
    assert np.array_equal(seen, text)
    assert not np.isin(values, list(tokenizer.specials)).any()
    assert len(places) == pytest.approx(0.15 * np.isin(text, list(tokenizer.specials), invert=True).sum(), abs=1)
    assert 0.7 < masked < 0.9
    assert all(torch.equal(a, b) for a, b in zip(heldout(given), (tokens, places, values), strict=True))


def test_both_sides_have_the_same_loss_for_the_same_weights(given, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = corpus.Corpus(given["corpus"]).tokenizer
    ours = (
        Bert()
        .replace(**SIZES["tiny"], vocabulary=tokenizer.size, length=LENGTH)
        .build(as_heads({"mlm": 0}), seed=3)
        .eval()
    )
    huggingface.save(tmp_path, ours, tokenizer)
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path).eval()
    rows = heldout(given)
    found = heldout_loss(partial(time_to_loss._ours, ours), *rows)
    assert heldout_loss(partial(time_to_loss._theirs, theirs), *rows) == pytest.approx(found, abs=1e-5)
    tokens, places, values = rows
    with torch.inference_mode():
        whole = torch.nn.functional.cross_entropy(time_to_loss._theirs(theirs, tokens, places), values)
    assert found == pytest.approx(float(whole), abs=1e-5)


@pytest.mark.parametrize(("target", "reached"), [(100.0, True), (0.0, False)])
def test_a_side_stops_where_it_is_as_good_or_when_its_time_is_over(given, target, reached, monkeypatch):
    pytest.importorskip("accelerate")
    monkeypatch.setattr(time_to_loss, "LOOKS", 6)
    asked = {**given, "target": target, "budget": 0.01}
    found = time_to_loss.run_transformers(asked, rated=True)
    steps = time_to_loss.LOOKS
    assert found["reached"] == reached
    assert (found["steps"], len(found["curve"])) == ((1, 1) if reached else (steps, steps))
    assert found["figure"] == found["curve"][-1][0]


def test_ours_says_how_far_it_came(given):
    found = time_to_loss.run_unmask(given)
    assert found["steps"] >= 1
    assert 0 < found["figure"] < 60
    assert 2 < found["loss"] < 6


def test_others_are_given_their_time_by_ours(tmp_path, monkeypatch):
    asked = []

    def trial(place, name, settings, **_):
        asked.append((name, settings.get("target"), settings.get("budget"), settings.get("seed")))
        if name == "corpus":
            return {"corpus": "somewhere", "tokens": 5}
        if name == OURS:
            return {"figure": 10.0, "loss": 4.0 + settings["seed"]}
        return {"figure": 33.0, "loss": 4.5, "reached": name == RATED}

    monkeypatch.setattr(common, "trial", trial)
    found = time_to_loss.measure(TimeToLoss(patience=3.0), [OURS, PUBLISHED, RATED], Plan(1, 2, tmp_path))
    first, second = (4.0, 30.0, 0), (5.0, 30.0, 1)
    assert asked[1:4] == [(OURS, None, None, 0), (PUBLISHED, *first), (RATED, *first)]
    assert asked[4:] == [(OURS, None, None, 1), (PUBLISHED, *second), (RATED, *second)]
    assert found.notes[0] == "Held-out loss to be reached, in nats: 4.000, 5.000."
    (missed,) = found.notes[1:]
    assert missed.startswith("transformers did not reach it (4.500 after 33 s, 4.500 after 33 s): its time is a lower")
