"""Question answering: windows, places, spans, losses; the same numbers as `transformers` and as a slow reference."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from unmask import huggingface, metrics
from unmask.data import collate
from unmask.data.labelled.rows import Question, Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.tasks import QuestionAnswering, task_of
from unmask.tasks.contexts import windows
from unmask.tasks.question_answering import Found, Span, as_answer

WORDS = (
    *("the", "film", "was", "good", "Normandy", "is", "a", "region", "of", "France", "1066", "(U.S.)", "don't", "A-B"),
    *(
        "서울은",
        "수도",
        "東京",
        "日本語",
        "caf\u00e9",
        "cafe\u0301",
        "Z\u00fcrich",
        "हिन्दी",
        "\u1112\u1161\u11ab",
        "🎉",
        "ﬁn",
    ),
    *("\u0130stanbul", "e\u0302\u0301"),
)
"""Syllables, ideographs, accents in one character and in two, vowel signs, jamo, a picture, a ligature, a dotted I."""

CORPUS = [" ".join(WORDS[:14]), " ".join(WORDS[:20]), "서울 은 수 도 film region"]


def byte_level(trim):
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=alphabet, show_progress=False),
    )
    raw.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=trim, add_prefix_space=False
    )
    return Tokenizer.of(raw, dict(zip(("cls", "pad", "sep", "unk", "mask"), names, strict=True)))


TOKENIZERS = {
    "accents kept": Tokenizer.train(CORPUS, 120),
    "accents stripped": Tokenizer.train(CORPUS, 120, strip_accents=True),
    "bytes": byte_level(True),
    "bytes with spaces": byte_level(False),
}
TOKENIZER = TOKENIZERS["accents kept"]
SPACES = st.sampled_from([" ", " ", " ", "  ", "\n", " \u00a0"])


@st.composite
def questions(draw, most=40):
    """A question whose answer is some words of its context."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=most))
    begins, text = [], draw(st.sampled_from(["", " "]))
    for word in words:
        begins.append(len(text))
        text += word + draw(SPACES)
    first = draw(st.integers(0, len(words) - 1))
    last = draw(st.integers(first, min(first + 3, len(words) - 1)))
    answer = text[begins[first] : begins[last] + len(words[last])]
    return Question(draw(st.sampled_from(["film", "수도 is"])), text, answers=((begins[first], answer),), id="q")


def question(context, answer, text="was the film good", id="1"):
    return Question(text, context, answers=((context.index(answer), answer),), id=id)


def oracle(encoded, row, sure=9.0):
    """Logits [T, 2] of each window of a row that point at its targets."""
    parts = []
    for example in encoded.examples[encoded.of_rows[row]]:
        logits = np.zeros((len(example.tokens), 2), np.float32)
        places, values = example.targets["span"]
        logits[places, values] = sure
        parts.append(logits)
    return parts


def noise(encoded, row, seed, steps=None):
    """Random logits [T, 2]; with `steps`, of few different values, so that many spans are equally likely."""
    rng = np.random.default_rng(seed)
    drawn = [rng.normal(size=(len(e.tokens), 2)).astype(np.float32) for e in encoded.examples[encoded.of_rows[row]]]
    return drawn if steps is None else [(logits * steps).round() / steps for logits in drawn]


def build(tokenizer, length=64, page=Bert):
    config = page(vocabulary=tokenizer.size, length=length, layers=2, dim=32, heads=2, hidden=64, std=0.2)
    return config.build(heads=QuestionAnswering.heads, seed=3).eval()


# ------------------------------------------------------------------------------------------------ windows


@given(st.integers(0, 200), st.integers(1, 40), st.integers(0, 60), st.integers(1, 40))
def test_windows_cover_every_token_and_share_out_where_answers_begin(tokens, room, stride, longest):
    found = windows(tokens, room, stride, longest=longest)
    assert {i for w in found for i in range(w.begin, w.begin + w.count)} == set(range(tokens))
    assert [i for w in found for i in range(w.low, w.high)] == list(range(tokens))
    for w in found:
        assert w.count <= room
        assert w.begin <= w.low <= w.high <= w.begin + w.count
    for before, after in pairwise(found):
        assert before.count == room
        assert before.begin + before.count - after.begin == min(stride, room // 2)
    for window in found:
        for begin in range(window.begin, window.begin + window.count):
            owner = next(w for w in found if w.low <= begin < w.high)
            end = min(begin + longest, window.begin + window.count) - 1  # the longest answer that this window holds
            assert end < owner.begin + owner.count


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=80), st.integers(0, 20), st.integers(14, 40))
def test_every_character_that_has_a_token_is_in_a_window(words, stride, length):
    row = Question("the film", " ".join(words))
    task = QuestionAnswering(stride=stride)
    encoded = task.encode([row], TOKENIZER, length)
    plain = TOKENIZER.encode(row.pair, special=False)
    asked = TOKENIZER.ids([row.text])[0]
    seen = set()
    for example, window in zip(encoded.examples, encoded.windows, strict=True):
        part = slice(window.begin, window.begin + window.count)
        tokens, segments = TOKENIZER.join(asked, plain.ids[part])
        np.testing.assert_array_equal(example.tokens, tokens)
        np.testing.assert_array_equal(example.segments, segments)
        inside = slice(window.lead, window.lead + window.count)
        np.testing.assert_array_equal(example.tokens[inside], plain.ids[part])
        assert (example.segments[inside] == 1).all()
        assert len(example.tokens) <= length
        seen |= {i for begin, end in plain.offsets[part].tolist() for i in range(begin, end)}
    assert seen == {i for begin, end in plain.offsets.tolist() for i in range(begin, end)}


def test_windows_are_those_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    TOKENIZER.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    context = " ".join(WORDS[i % 14] for i in range(70))
    wanted = theirs(
        *("was the film good", context),
        truncation="only_second",
        max_length=30,
        stride=9,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    encoded = QuestionAnswering(stride=9).encode([Question("was the film good", context)], TOKENIZER, 30)
    assert [e.tokens.tolist() for e in encoded.examples] == wanted["input_ids"]
    assert [e.segments.tolist() for e in encoded.examples] == wanted["token_type_ids"]
    assert len(encoded.examples) > 4
    for window, offsets in zip(encoded.windows, wanted["offset_mapping"], strict=True):
        places = encoded.contexts[0].places[window.begin : window.begin + window.count].tolist()
        assert [list(place) for place in offsets[window.lead : window.lead + window.count]] == places


# ------------------------------------------------------------------------------------------------ places and answers


@pytest.mark.parametrize("name", TOKENIZERS)
@given(row=questions(), length=st.integers(20, 60), stride=st.integers(0, 12))
@settings(max_examples=60)
def test_the_answer_that_is_annotated_comes_back_as_it_stands(name, row, length, stride):
    """Targets index the raw text, and logits that point at them give the annotated text, wherever it is."""
    task = QuestionAnswering(stride=stride, longest_answer=60, unanswerable=True)
    encoded = task.encode([row], TOKENIZERS[name], length)
    begin, answer = row.answers[0]
    whole = False
    for example, window in zip(encoded.examples, encoded.windows, strict=True):
        places, values = example.targets["span"]
        assert values.tolist() == [0, 1]
        if places.tolist() == [0, 0]:
            continue
        whole = True
        (first, _), (_, last) = encoded.contexts[0].places[places - window.lead + window.begin].tolist()
        assert (first, row.pair[first:last]) == (begin, answer)
    assume(whole)  # an answer can be longer than a window
    found = task.merge(oracle(encoded, 0), encoded, 0)
    assert (found.spans[0].begin, found.spans[0].text) == (begin, answer)
    assert row.pair[found.spans[0].begin : found.spans[0].end] == answer
    assert task.choose(found) == answer
    assert found.spans[0].score == pytest.approx(18)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_spaces_around_an_answer_are_left_out(name):
    row = question("the film  good of France", "film  ")
    task = QuestionAnswering()
    encoded = task.encode([row], TOKENIZERS[name], 64)
    span = task.merge(oracle(encoded, 0), encoded, 0).spans[0]
    assert (span.text, span.begin, span.score) == ("film", 4, 18.0)


@given(questions(), st.integers(0, 1000), st.sampled_from(list(TOKENIZERS)))
def test_spans_never_tear_a_character_or_begin_with_a_space(row, seed, name):
    task = QuestionAnswering(best=200)
    encoded = task.encode([row], TOKENIZERS[name], 40)
    found = task.merge(noise(encoded, 0, seed), encoded, 0)
    for span in found.spans:
        assert span.text == row.pair[span.begin : span.end] == span.text.strip() != ""
    assert len({(span.begin, span.end) for span in found.spans}) == len(found.spans)


def test_an_answer_is_found_in_the_window_that_holds_it():
    """A context of many windows, whose answer stands in different ones."""
    words = [f"{WORDS[i % 20]}" for i in range(120)]
    for place in range(0, 118, 7):
        marked = [*words[:place], "Answer", "here", *words[place:]]
        row = question(" ".join(marked), "Answer here")
        task = QuestionAnswering(stride=10, unanswerable=True)
        encoded = task.encode([row], TOKENIZER, 50)
        assert len(encoded.examples) > 3
        found = task.merge(oracle(encoded, 0), encoded, 0)
        assert found.spans[0].text == "Answer here"
        assert found.no_answer == 0.0  # the lowest over the windows: one holds the answer
        held = [e for e in encoded.examples if e.targets["span"][0].any()]
        assert 1 <= len(held) <= 2


def test_questions_without_an_answer_point_at_the_first_token():
    impossible = Question("was the film good", "Normandy is a region of France " * 16, possible=False, id="1")
    task = QuestionAnswering(unanswerable=True, stride=8)
    encoded = task.encode([impossible], TOKENIZER, 40)
    assert len(encoded.examples) > 2
    assert all(e.targets["span"][0].tolist() == [0, 0] for e in encoded.examples)
    found = task.merge(oracle(encoded, 0), encoded, 0)
    assert task.choose(found) == ""
    assert found.no_answer == 18.0
    assert found.doubt == pytest.approx(18.0)
    assert found.probability > 0.999
    answer = as_answer(found, task)
    assert (answer["answer"], answer["begin"], answer["end"]) == ("", None, None)
    assert answer["probability"] == answer["no_answer"] == found.probability
    task.threshold = 18.5
    assert task.choose(found) == found.spans[0].text != ""
    assert as_answer(found, task)["probability"] == found.spans[0].probability
    sure = QuestionAnswering(threshold=-100)
    assert sure.choose(sure.merge(oracle(encoded, 0), encoded, 0)) != ""  # where there always is one


def slow_spans(parts, encoded, task):
    """Every pair of a begin and an end of every window, one after the other."""
    context, text = encoded.contexts[0], encoded.rows[0].pair
    found = []
    for logits, window in zip(parts, encoded.windows, strict=True):
        for first in range(window.low, window.high):
            for last in range(first, window.begin + window.count):
                if last - first + 1 > task.longest_answer:
                    continue
                (begin, _), (_, end) = context.places[first], context.places[last]
                if first and context.places[first - 1, 0] == begin:
                    continue  # inside of a character
                if last + 1 < len(context.ids) and context.places[last + 1, 1] == end:
                    continue
                at = [window.lead + place - window.begin for place in (first, last)]
                score = float(logits[at[0], 0]) + float(logits[at[1], 1])
                found.append((-score, int(begin), int(end), text[begin:end]))
    return sorted(found)[: task.best]


@given(
    questions(),
    st.integers(0, 1000),
    st.integers(1, 12),
    st.integers(1, 30),
    st.sampled_from([None, 1, 4]),
    st.booleans(),
    st.sampled_from(["accents kept", "accents stripped"]),
)
def test_spans_are_the_best_of_all_pairs(row, seed, longest, best, steps, unanswerable, name):
    task = QuestionAnswering(longest_answer=longest, best=best, stride=6, unanswerable=unanswerable)
    encoded = task.encode([row], TOKENIZERS[name], 30)
    parts = noise(encoded, 0, seed, steps)
    found = task.merge(parts, encoded, 0)
    wanted = slow_spans(parts, encoded, task)
    assert [(-s.score, s.begin, s.end, s.text) for s in found.spans] == wanted
    scores = [-score for score, *_ in wanted]
    nothing = min(float(logits[0].astype(float).sum()) for logits in parts)
    assert found.no_answer == pytest.approx(nothing)
    shares = np.exp(np.array([*scores, nothing] if unanswerable else scores))
    shares /= shares.sum()
    probabilities = [s.probability for s in found.spans]
    np.testing.assert_allclose([*probabilities, found.probability] if unanswerable else probabilities, shares)
    assert sum(probabilities) + found.probability == pytest.approx(1)


def test_contexts_without_words():
    task = QuestionAnswering()
    encoded = task.encode([Question("film", "\u200b")], TOKENIZER, 32)
    found = task.merge(noise(encoded, 0, 1), encoded, 0)
    assert found.spans == ()
    assert task.choose(found) == ""
    assert as_answer(found, task) == {"answer": "", "begin": None, "end": None, "probability": 1.0, "spans": []}
    assert found.doubt == np.inf


# ------------------------------------------------------------------------------------------------ loss


def same_length_rows():
    contexts = ["the film was good of a region", "France is the region of a film", "good good the the of of is"]
    rows = [question(contexts[0], "good of"), question(contexts[1], "region", id="2")]
    return [*rows, Question("was the film good", contexts[2], possible=False, id="3")]


@pytest.mark.parametrize("page", ["bert", "roberta"])
def test_loss_and_gradients_are_those_of_transformers(tmp_path, page):
    transformers = pytest.importorskip("transformers")
    from unmask.models.bert import Roberta

    tokenizer, kind, name = {
        "bert": (TOKENIZER, Bert, "BertForQuestionAnswering"),
        "roberta": (TOKENIZERS["bytes"], Roberta, "RobertaForQuestionAnswering"),
    }[page]
    task, model = QuestionAnswering(), build(tokenizer, page=kind)
    huggingface.save(tmp_path, model, tokenizer, settings=task.settings())
    theirs = getattr(transformers, name).from_pretrained(tmp_path).eval()
    encoded = task.encode(same_length_rows(), tokenizer, 64)
    shortest = min(len(e.tokens) for e in encoded.examples)
    examples = [e for e in encoded.examples if len(e.tokens) == shortest]
    if page == "bert":
        assert len(examples) == 3
    batch = collate.pad(examples, tokenizer.pad, 1)
    loss = task.loss(model, batch)["span"]
    loss.sum.backward()
    places = torch.tensor(np.stack([e.targets["span"][0] for e in examples]))
    output = theirs(
        input_ids=batch.tokens,
        attention_mask=torch.ones_like(batch.tokens),
        token_type_ids=batch.segments if page == "bert" else None,
        start_positions=places[:, 0],
        end_positions=places[:, 1],
    )
    output.loss.backward()
    count = 2 * len(examples)
    assert loss.count == batch.counts["span"] == count
    assert loss.sum.item() / count == pytest.approx(output.loss.item(), rel=1e-5)
    both = torch.stack([output.start_logits, output.end_logits], 1)
    assert int(loss.metrics["correct"]) == int((both.argmax(-1) == places).sum())
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    compared = 0
    for ours, other in huggingface.names(model).items():
        mine = dict(model.named_parameters())[ours].grad
        torch.testing.assert_close(mine / count, gradients[other], rtol=1e-3, atol=1e-6)
        compared += mine.abs().max() > 1e-4
    assert compared > 20


def mixed_rows():
    contexts = ["the film", "Normandy is a region of France", "good film of the region " * 12, "a"]
    answers = ["film", "region of", "of the region good", "a"]
    pairs = enumerate(zip(contexts, answers, strict=True))
    return [question(context, answer, id=str(i)) for i, (context, answer) in pairs]


def test_packed_padded_and_alone_give_the_same():
    task, model = QuestionAnswering(stride=6), build(TOKENIZER)
    encoded = task.encode(mixed_rows(), TOKENIZER, 40)
    assert len({len(e.tokens) for e in encoded.examples}) > 3
    batches = {
        "packed": [collate.pack(encoded.examples, 64, TOKENIZER.pad)],
        "padded": [collate.pad(encoded.examples, TOKENIZER.pad)],
        "alone": [collate.pad([example], TOKENIZER.pad, 1) for example in encoded.examples],
    }
    sums, counts, gradients, answers = {}, {}, {}, {}
    for name, parts in batches.items():
        model.zero_grad()
        losses = [task.loss(model, batch)["span"] for batch in parts]
        sum(loss.sum for loss in losses).backward()
        sums[name] = sum(loss.sum.item() for loss in losses)
        counts[name] = sum(loss.count for loss in losses)
        gradients[name] = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        with torch.no_grad():
            answers[name] = [answer for batch in parts for answer in task.answers(model, batch)]
    for name in ("packed", "padded"):
        assert sums[name] == pytest.approx(sums["alone"], rel=1e-5)
        assert counts[name] == counts["alone"] == 2 * len(encoded.examples)
        for mine, wanted in zip(gradients[name], gradients["alone"], strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-5)
        for mine, wanted in zip(answers[name], answers["alone"], strict=True):
            np.testing.assert_allclose(mine, wanted, atol=1e-5)
    all_found = task.answer_all(model, encoded, TOKENIZER.pad)
    for row, found in enumerate(all_found):
        wanted = task.merge(answers["alone"][encoded.of_rows[row]], encoded, row)
        assert [s.text for s in found.spans[:3]] == [s.text for s in wanted.spans[:3]]
        assert found.spans[0].probability == pytest.approx(wanted.spans[0].probability, abs=1e-4)


def test_the_loss_of_dev_rows_is_that_of_training():
    rows = [*mixed_rows(), Question("who", "a film", possible=False, id="none")]
    task, model = QuestionAnswering(stride=6, unanswerable=True), build(TOKENIZER)
    encoded = task.encode(rows, TOKENIZER, 40)
    assert len(encoded.examples) > len(rows)
    loss = task.loss(model, collate.pad(encoded.examples, TOKENIZER.pad))["span"]
    found = task.evaluate(model, encoded, TOKENIZER.pad)
    assert found["loss"] == pytest.approx(loss.sum.item() / loss.count, rel=1e-5)
    # What stands nowhere in its context is scored, but there is nothing that the model should have learned.
    unplaced = Question("who", "a film " * 9, unplaced=("people",), id="nowhere")
    more = task.evaluate(model, task.encode([*rows, unplaced], TOKENIZER, 40), TOKENIZER.pad)
    assert more["loss"] == pytest.approx(found["loss"], rel=1e-6)
    alone = task.evaluate(model, task.encode([unplaced], TOKENIZER, 40), TOKENIZER.pad)
    assert "loss" not in alone
    assert alone["f1"] == 0.0


def test_it_learns():
    """A model of 20,000 parameters finds the word that it is asked for."""
    names = ("Normandy", "France", "region", "film")
    rows = []
    for i, name in enumerate(names):
        others = [n for n in names if n != name]
        context = " ".join(["the", *others[: i % 3], "is", name, "of", *others[i % 3 :]])
        rows.append(question(context, name, text="was good", id=str(i)))
    task, model = QuestionAnswering(), build(TOKENIZER)
    encoded = task.encode(rows, TOKENIZER, 64)
    before = task.evaluate(model, encoded, TOKENIZER.pad)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        loss = task.loss(model, collate.pack(encoded.examples, 64, TOKENIZER.pad))["span"]
        (loss.sum / loss.count).backward()
        optimizer.step()
    after = task.evaluate(model, encoded, TOKENIZER.pad)
    assert after["exact_match"] == after["f1"] == 1.0 > before["f1"]


# ------------------------------------------------------------------------------------------------ scores


def found(text, doubt, probability=0.5):
    return Found((Span(text, 0, len(text), 1.0, probability),), 1.0 + doubt, 1 - probability)


ROWS = [
    Question("?", "a cat", answers=((2, "cat"),), id="1"),
    Question("?", "a dog", answers=((2, "dog"),), id="2"),
    Question("?", "a cow", possible=False, id="3"),
    Question("?", "a sow", possible=False, id="4"),
]


def test_the_threshold_is_fitted():
    task = QuestionAnswering(unanswerable=True)
    assert task.metric == "best_f1"
    answers = [found("cat", -3.0), found("dog", -1.0), found("cow", 0.5), found("sow", -2.0)]
    before = task.metrics(answers, ROWS)
    assert before["f1"] == pytest.approx(3 / 4)  # the sow is said, too
    assert before["best_f1"] == pytest.approx(3 / 4)
    task.fitted(answers, ROWS)
    assert task.threshold == before["best_f1_threshold"] == -3.0  # cat and two times nothing: as good as cat, dog, cow
    assert task.metrics(answers, ROWS)["f1"] == before["best_f1"]
    answers[3] = found("sow", -0.5)
    task.fitted(answers, ROWS)
    assert task.threshold == -1.0
    assert task.metrics(answers, ROWS)["f1"] == 1.0
    assert task.settings()["threshold"] == -1.0


def test_nothing_is_answered_where_that_is_best():
    task = QuestionAnswering(unanswerable=True)
    answers = [found("bat", -3.0), found("log", -1.0), found("cow", -5.0), found("sow", -2.0)]
    task.fitted(answers, ROWS)
    assert [task.choose(answer) for answer in answers] == [""] * 4
    assert task.metrics(answers, ROWS)["f1"] == 0.5
    json.dumps(task.settings(), allow_nan=False)


def test_nothing_is_fitted_where_there_always_is_an_answer():
    task = QuestionAnswering()
    task.fitted([found("cat", -3.0)], ROWS[:1])
    assert task.threshold == 0.0
    scores = task.metrics([found("cat", 9.0), found("a dog", -1.0)], ROWS[:2])
    assert scores["exact_match"] == scores["f1"] == 1.0
    assert "best_f1" not in scores


def test_a_context_without_words_moves_no_threshold():
    task = QuestionAnswering(unanswerable=True)
    answers = [Found((), 0.0, 1.0), *[found(row.pair[2:], -1.0) for row in ROWS[1:]]]
    task.fitted(answers, ROWS)
    assert task.threshold == -1.0


def test_baselines():
    rows = [question("The film was good. Normandy is a region.", "good"), question("It rained.", "rained", id="2")]
    said = {"1": "The film was good.", "2": "It rained."}
    assert QuestionAnswering().baseline(rows, rows) == metrics.of_answers(said, rows)
    assert QuestionAnswering(unanswerable=True).baseline(ROWS, ROWS)["f1"] == 0.5


def test_f1_over_characters():
    rows = [Question("?", "서울특별시", answers=((0, "서울특별시"),), id="1")]
    answers = [found("서울", -1.0)]
    assert QuestionAnswering().metrics(answers, rows)["f1"] == 0.0
    assert QuestionAnswering(characters=True).metrics(answers, rows)["f1"] == pytest.approx(2 * 2 / 7)


# ------------------------------------------------------------------------------------------------ words and errors


def test_what_is_cut_and_split_is_said():
    task = QuestionAnswering(longest_question=4, stride=4)
    rows = [
        question("the film was good", "good", text="was the film of a region good"),
        question("Normandy is a region of France " * 10, "France"),
        question("the film", "film"),
    ]
    encoded = task.encode(rows, TOKENIZER, 40)
    assert encoded.cut == (0,)
    assert encoded.split == 1
    assert encoded.notice == (
        "1 of 3 rows (33.3%) have a long question, which was cut. "
        "1 of 3 rows (33.3%) are longer than 40 tokens and were split into windows."
    )
    lead = encoded.windows[0].lead
    assert lead == 4 + 2
    np.testing.assert_array_equal(encoded.examples[0].tokens[1:5], TOKENIZER.ids([rows[0].text])[0][:4])
    assert task.encode(rows[2:], TOKENIZER, 40).notice == ""


def test_answers_that_no_pieces_make_up_are_counted():
    context = "Normandy (U.S.) was good"
    sound, torn = question(context, "(U.S.) was", id="1"), question(context, "was goo", id="2")
    both = replace(torn, answers=(*torn.answers, (19, " good")), id="3")
    none = Question("film", context, possible=False, id="4")
    encoded = QuestionAnswering().encode([sound, torn, both, none, Row("film", context)], TOKENIZER, 64)
    assert encoded.torn == 1
    assert encoded.notice == (
        "1 of 5 rows (20.0%) have an answer that begins or ends inside a piece: no span can match it."
    )


def test_bad_input():
    task = QuestionAnswering()
    sound = question("the film was good", "good")
    with pytest.raises(UnmaskError, match=r"^f\.json: question 7 has an empty context"):
        task.encode([sound, Question("film", " ", place="f.json: question 7")], TOKENIZER, 64)
    with pytest.raises(UnmaskError, match="Question 1 has an empty context"):
        task.encode([Row("film")], TOKENIZER, 64)
    asked = len(TOKENIZER.ids([sound.text])[0])
    assert len(task.encode([sound], TOKENIZER, asked + 4).examples) > 1
    with pytest.raises(UnmaskError, match=rf"length of {asked + 3} leaves no room .* {asked} tokens; set --length 128"):
        task.encode([sound], TOKENIZER, asked + 3)
    with pytest.raises(UnmaskError, match="set --length 400"):
        QuestionAnswering(longest_question=200).encode([sound], TOKENIZER, 3)
    with pytest.raises(UnmaskError, match=r"x:3 is not a question"):
        task.metrics([found("cat", 1.0)], [Row("film", place="x:3")])
    with pytest.raises(UnmaskError, match="stride"):
        QuestionAnswering(stride=-1)
    with pytest.raises(UnmaskError, match="must be 1 or more"):
        QuestionAnswering(best=0)


# ------------------------------------------------------------------------------------------------ folders


def test_settings_come_back_from_a_folder(tmp_path):
    task = QuestionAnswering(
        stride=64, longest_question=32, longest_answer=8, best=5, unanswerable=True, threshold=-1.25, characters=True
    )
    huggingface.save(tmp_path, build(TOKENIZER), TOKENIZER, settings=task.settings())
    loaded = huggingface.load(tmp_path)
    again = task_of(loaded.model, loaded.labels, loaded.settings)
    assert isinstance(again, QuestionAnswering)
    assert again.settings() == task.settings() == loaded.settings
    assert (again.metric, again.threshold, again.stride) == ("best_f1", -1.25, 64)
    assert set(task.settings()) == set(QuestionAnswering.__init__.__kwdefaults__)
    plain = task_of(build(TOKENIZER))
    assert plain.settings() == QuestionAnswering().settings()


def opened(folder):
    loaded = huggingface.load(folder)
    return task_of(loaded.model, loaded.labels, loaded.settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"strid": 3},
            r"no setting of QuestionAnswering \(unmask_task in config.json\) 'strid'; did you mean 'stride'",
        ),
        ({"stride": "wide"}, "stride must be a whole number, not 'wide'"),
        ({"threshold": None}, "threshold must be a number"),
        ({"unanswerable": [1]}, "unanswerable must be true or false"),
        ({"stride": -4}, "must be 0 or more, not -4"),
        (["stride"], "must hold settings, not"),
        ({"labels": ["a"]}, "no setting"),
    ],
)
def test_damaged_settings_are_one_sentence(tmp_path, settings, message):
    huggingface.save(tmp_path, build(TOKENIZER), TOKENIZER, settings={"stride": 3})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "unmask_task": settings}))
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UnmaskError, match=message) as error:
        opened(tmp_path)
    assert str(error.value).endswith(".")


def test_questions_on_one_context_share_it():
    rows = [question("the film was good", "good"), question("the film was good", "film", id="2")]
    encoded = QuestionAnswering().encode([*rows, replace(rows[0], pair="a")], TOKENIZER, 64)
    assert encoded.contexts[0] is encoded.contexts[1]
    assert len(encoded.contexts[2].ids) == 1
