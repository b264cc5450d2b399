"""A teacher beside a pre-training run: its terms by their formulas, what a student inherits, resume, and refusals."""

from __future__ import annotations

from html import unescape
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file

from unmask import huggingface
from unmask.cli import main
from unmask.config import Config
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models import Albert, Bert
from unmask.models.gpt import Gpt2
from unmask.objectives import MaskedLM, WithTeacher
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.runs.pretraining.teacher import inherit
from unmask.runs.report import write_report
from unmask.train.metrics import read as read_metrics

SMALL = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "length": 32}
NAMES = ("cat", "dog", "bird", "horse", "fish", "mouse")


def story(number: int) -> TextDocument:
    rng = np.random.default_rng(number)
    lines = [f"The {rng.choice(NAMES)} sees the {rng.choice(NAMES)} near the {rng.choice(NAMES)}." for _ in range(12)]
    return TextDocument(" ".join(lines), f"story-{number}")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpora") / "stories"
    corpus.build([story(i) for i in range(80)], out, vocabulary_size=100, heldout=0.1)
    return out


def config(recipe: str = "bert-tiny", **changes: object) -> Pretraining:
    training = {"minutes": None, "steps": 12, "log_every": 1, "precision": "fp32", "device": "cpu"}
    run = recipes.find(recipe).replace(training=training, rows={"batch": 8, "heldout": 16})
    run = run.replace(model={name: value for name, value in SMALL.items() if name in run.model.to_dict()})
    return run.override({"evaluate_every": 6, "sentences": "none", **changes})


@pytest.fixture(scope="module")
def teacher(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers that have learned which names there are."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    Pretrain(config(steps=120, lr=5e-3, layers=4, evaluate_every=120, sentences="next"), [text], out).run()
    return out


def trace(out: Path, split: str = "train") -> list[dict[str, float]]:
    return [
        {k: v for k, v in row.items() if k.startswith("loss/")} for row in read_metrics(out / "metrics.jsonl", split)
    ]


def test_the_terms_are_those_of_the_formulas(text: Path, teacher: Path, tmp_path: Path) -> None:
    """Logits and hidden states of both come from transformers."""
    asked = {"teacher": teacher, "temperature": 3.0, "weight": 0.25, "states": 0.5, "attention": 2.0, "dropout": 0.0}
    run = Pretrain(config(**asked), [text], tmp_path / "run")
    run.save(tmp_path / "student")
    own, other = (
        transformers.AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
        for folder in (tmp_path / "student", teacher)
    )
    step, _ = next(run.data.batches(None))
    batch = step[0]
    assert run.objective.weights == {"mlm": 0.75, "soft": 0.25, "hidden": 0.5, "attention": 2.0}
    losses = run.objective.loss(run.model, batch)
    soft, hidden, attention, mlm, seen = 0.0, 0.0, 0.0, 0.0, 0
    flat = batch.targets["mlm"].places
    values = dict(zip(flat.tolist(), batch.targets["mlm"].values.tolist(), strict=True))
    T = batch.tokens.shape[1]
    for row, (tokens, documents) in enumerate(zip(batch.tokens, batch.documents, strict=True)):
        for number in documents[documents > 0].unique():
            places = (documents == number).nonzero().squeeze(1)
            with torch.no_grad():
                looked = {"output_hidden_states": True, "output_attentions": True}
                said, taught = (m(tokens[places][None], **looked) for m in (own, other))
            chosen = [i for i, p in enumerate(places.tolist()) if row * T + p in values]
            true = torch.tensor([values[row * T + places[i].item()] for i in chosen], dtype=torch.long)
            mine, theirs = said.logits[0, chosen], taught.logits[0, chosen]
            mlm += F.cross_entropy(mine, true, reduction="sum").item()
            soft += 9 * F.kl_div((mine / 3).log_softmax(-1), (theirs / 3).softmax(-1), reduction="sum").item()
            pairs = [(said.hidden_states[1], taught.hidden_states[2]), (said.hidden_states[2], taught.hidden_states[4])]
            hidden += sum((a - b).square().mean(-1).sum().item() for a, b in pairs) / 2
            for a, b in ((said.attentions[0], taught.attentions[1]), (said.attentions[1], taught.attentions[3])):
                attention += F.kl_div(a.log(), b, reduction="none").sum(-1).mean(1).sum().item() / 2
            seen += len(places)
    assert losses["mlm"].sum.item() == pytest.approx(mlm, rel=1e-4)
    assert losses["soft"].sum.item() == pytest.approx(soft, rel=1e-4)
    assert losses["hidden"].sum.item() == pytest.approx(hidden, rel=1e-4)
    assert losses["attention"].sum.item() == pytest.approx(attention, rel=1e-4)
    assert [losses[name].count for name in ("soft", "hidden", "attention")] == [len(flat), seen, seen]
    assert batch.counts == {name: loss.count for name, loss in losses.items()}


def test_the_gradient_of_a_student_is_the_teachers_opinion_alone(text: Path, teacher: Path, tmp_path: Path) -> None:
    run = Pretrain(config(teacher=teacher), [text], tmp_path / "run")
    assert isinstance(run.objective, WithTeacher)
    (batch,), _ = next(run.data.batches(None))
    before = [p.clone() for p in run.objective.teacher.parameters()]
    sum(loss.sum for loss in run.objective.loss(run.model, batch).values()).backward()
    assert all(p.grad is None for p in run.objective.teacher.parameters())
    assert not run.objective.teacher.training
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in run.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, run.objective.teacher.parameters(), strict=True))


def test_where_a_student_looks_is_learned(text: Path, teacher: Path, tmp_path: Path) -> None:
    run = Pretrain(config(teacher=teacher, weight=0.0, attention=1.0), [text], tmp_path / "run")
    (batch,), _ = next(run.data.batches(None))
    run.objective.loss(run.model, batch)["attention"].sum.backward()
    gradient = run.model.stack.blocks[1].attention.f.query.weight.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0
    with torch.no_grad():
        before = run.evaluate(run.model.eval(), 0).numbers["loss/attention"]
    assert run.run().heldout["loss/attention"] < before


def test_a_teacher_of_no_weight_changes_nothing(text: Path, teacher: Path, tmp_path: Path) -> None:
    for name, more in (("alone", {}), ("beside", {"teacher": teacher, "weight": 0.0})):
        Pretrain(config(**more), [text], tmp_path / name).run()
    assert trace(tmp_path / "alone") == trace(tmp_path / "beside")


@pytest.mark.parametrize(
    ("recipe", "more", "terms"),
    [
        ("bert-tiny", {}, {"soft", "hidden"}),
        # As Sun et al. 2020, section 3.4, teach it: where each head looks, and the states between the blocks.
        ("mobilebert-tiny", {"attention": 1.0, "bottleneck": 16, "factor": 16}, {"soft", "hidden", "attention"}),
    ],
)
def test_a_student_comes_nearer_to_its_teacher_than_without(
    text: Path, teacher: Path, tmp_path: Path, recipe: str, more: dict[str, object], terms: set[str]
) -> None:
    """Its folder is plain, and every term has a curve, on training and held-out text."""
    fields = {"recipe": recipe, "steps": 60, "lr": 5e-3, "evaluate_every": 30, "sentences": "next", "layers": 1}
    own = {name: size for name, size in more.items() if name != "attention"}
    run = Pretrain(config(teacher=teacher, weight=0.9, states=0.1, **fields, **more), [text], tmp_path / "taught")
    result = run.run()
    assert trace(tmp_path / "taught")[0].keys() == {"loss/nsp", "loss/mlm", *(f"loss/{term}" for term in terms)}
    assert trace(tmp_path / "taught", "heldout")[0].keys() >= {"loss/mlm", *(f"loss/{term}" for term in terms)}
    assert "Held-out masked tokens" in run.summary(result)
    Pretrain(config(**fields, **own), [text], tmp_path / "alone").run()
    objective, batch = run.objective, run.heldout[0]
    distances = {}
    for name in ("taught", "alone"):
        loaded = huggingface.load(tmp_path / name)
        assert sorted(loaded.model.heads) == ["mlm", "nsp"]
        with torch.no_grad():
            losses = objective.loss(loaded.model.eval(), batch)
        distances[name] = {term: losses[term].sum.item() / losses[term].count for term in terms}
    for term in terms:
        assert distances["taught"][term] < 0.8 * distances["alone"][term]
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "taught", output_loading_info=True)[1]
    assert not theirs["missing_keys"]


def test_next_tokens_are_taught_as_hidden_words_are(text: Path, tmp_path: Path) -> None:
    fields = {"recipe": "gpt2-tiny", "evaluate_every": None}
    Pretrain(config(**fields, layers=4), [text], tmp_path / "teacher").run()
    taught = config(**fields, teacher=tmp_path / "teacher", inherit=True)
    run = Pretrain(taught, [text], tmp_path / "run")
    result = run.run()
    assert {"loss/next", "next/nll", "loss/soft"} <= result.heldout.keys()
    assert "perplexity" in run.summary(result)


def test_a_student_begins_with_every_other_layer(text: Path, teacher: Path, tmp_path: Path) -> None:
    run = Pretrain(config(teacher=teacher, inherit=True), [text], tmp_path / "run")
    theirs = run.objective.teacher.state_dict()
    own = run.model.state_dict()
    for m, layer in ((0, 0), (1, 2)):
        names = [name for name in own if name.startswith(f"stack.blocks.{m}.")]
        assert names
        assert all(torch.equal(own[n], theirs[n.replace(f"blocks.{m}.", f"blocks.{layer}.")]) for n in names)
    others = [name for name in own if not name.startswith("stack.blocks.")]
    assert any(name.startswith("heads.mlm.") for name in others)
    assert any(name.startswith("embedding.") for name in others)
    assert all(torch.equal(own[name], theirs[name]) for name in others)


def test_shorter_rows_inherit_the_first_positions() -> None:
    page = Bert(vocabulary=40, dim=16, layers=2, heads=2, hidden=32, length=24)
    large, small = (
        page.build(as_heads({"mlm": 0}), seed=0),
        page.replace(length=10, layers=1).build(as_heads({"mlm": 0}), seed=1),
    )
    inherit(small, large)
    ours, theirs = small.state_dict(), large.state_dict()
    (name,) = [n for n in ours if n.startswith("embedding.position")]
    assert torch.equal(ours[name], theirs[name][:10])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            Bert(vocabulary=40, dim=24, layers=2, heads=2, hidden=32),
            "differ from its teacher only in depth, but dim is",
        ),
        (Bert(vocabulary=40, dim=16, layers=2, heads=4, hidden=32), "heads is 2, and 4 in the teacher"),
        (Albert(vocabulary=40, dim=16, layers=2, heads=2, hidden=32), "the kind is Bert, and Albert in the teacher"),
        (Bert(vocabulary=40, dim=16, layers=1, heads=2, hidden=32), "2 layers cannot inherit from a teacher of 1"),
        (Bert(vocabulary=40, dim=16, layers=2, heads=2, hidden=32, length=8), "more positions than its teacher"),
    ],
)
def test_what_cannot_be_inherited_is_one_sentence(other: Config, said: str) -> None:
    own = Bert(vocabulary=40, dim=16, layers=2, heads=2, hidden=32)
    with pytest.raises(UnmaskError, match=said):
        inherit(own.build(as_heads({"mlm": 0})), other.build(as_heads({"mlm": 0})))


def test_a_resumed_run_ends_where_the_whole_one_does(text: Path, teacher: Path, tmp_path: Path) -> None:
    asked = config(teacher=teacher, inherit=True, states=0.2, save_every=4.0, evaluate_every=None)
    Pretrain(asked, [text], tmp_path / "whole").run()
    part = Pretrain(asked, [text], tmp_path / "part", recipe="bert-tiny")
    take = part.data.batches
    part.data.batches = lambda position: islice(take(position), 6)
    with pytest.raises((RuntimeError, StopIteration, UnmaskError)):
        part.run()
    main(["pretrain", "--out", str(tmp_path / "part"), "--resume"])
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_the_command_takes_a_teacher(text: Path, teacher: Path, tmp_path: Path) -> None:
    sizes = [f"--model.{name}={value}" for name, value in SMALL.items()]
    asked = ["--teacher", str(teacher), "--inherit", "true", "--steps", "10", "--device", "cpu", *sizes]
    main(
        ["pretrain", "bert-tiny", "--corpus", str(text), "--sentences", "none", *asked, "--out", str(tmp_path / "run")]
    )
    assert "loss/soft" in trace(tmp_path / "run")[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temperature": 0.0}, "temperature of distillation must be above 0, not 0.0"),
        ({"weight": 1.5}, "between 0 and 1, not 1.5"),
        ({"states": -1.0}, "must be 0 or more, not -1.0"),
        ({"states": 1.0, "dim": 16}, "16 numbers in a hidden state and the teacher 32: leave --states at 0"),
        ({"attention": 1.0, "heads": 1}, "1 heads and the teacher 2: leave --attention at 0"),
        ({"attention": -1.0}, "teacher's attention must be 0 or more, not -1.0"),
        ({"length": 64}, "Rows of 64 tokens do not fit the teacher, which has 32 positions: set --rows.tokens 32"),
        ({"masked": False, "sentences": "next"}, "NextSentence cannot be learned from a teacher"),
        ({"recipe": "electra-tiny"}, "ReplacedToken cannot be learned from a teacher"),
        ({"recipe": "gpt2-tiny"}, "no head for next .its heads: "),
        ({"recipe": "t5-tiny", "sentences": "none", "tokens": 32}, "Only a T5 can teach a T5"),
        ({"attention": 1.0, "recompute": True}, "--attention needs attention weights that --recompute does not keep"),
        ({"recipe": "transformer-xl-tiny", "memory": 16, "tokens": 16}, "SegmentLM cannot be learned from a teacher"),
        ({"inherit": True, "dim": 16}, "only in depth, but dim is 16, and 32 in the teacher"),
        ({"teacher": "nowhere"}, "nowhere"),
        ({"temperature": float("inf")}, "must be above 0, not inf"),
        ({"states": float("inf")}, "must be 0 or more, not inf"),
        (
            {"recipe": "bilstm", "states": 1.0, "tokens": 32, "hidden": 16},
            "student is a RecurrentNetwork: leave",
        ),
        ({"recipe": "gpt2-tiny", "inherit": True}, "no head for next"),
        (
            {"teacher": None, "states": 1.0, "inherit": True},
            "--states needs a teacher: add --teacher",
        ),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(
    text: Path, teacher: Path, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    recipe = changes.pop("recipe", "bert-tiny") if "recipe" in changes else "bert-tiny"
    run = recipes.find(str(recipe))
    run = run.override({"teacher": teacher, "precision": "fp32", "device": "cpu", "sentences": "none"})
    known = {name: value for name, value in SMALL.items() if name in run.model.to_dict()}
    with pytest.raises(UnmaskError, match=said):
        Pretrain(run.replace(model=known).override(changes), [text], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_that_was_filled_up_is_no_other(text: Path, teacher: Path, tmp_path: Path) -> None:
    """Published tables often have a multiple of 64 entries, of which the last ones stand for nothing."""
    loaded = huggingface.load(teacher)
    page = loaded.model.config
    wide = page.replace(vocabulary=page.vocabulary + 28).build(as_heads({"mlm": 0}), seed=3)
    huggingface.save(tmp_path / "padded", wide, loaded.tokenizer)
    run = Pretrain(config(teacher=tmp_path / "padded", inherit=True), [text], tmp_path / "run")
    token = wide.state_dict()["embedding.token.weight"]
    assert torch.equal(run.model.embedding.token.weight, token[: page.vocabulary])
    assert "loss/soft" in run.run().heldout
    run = Pretrain(config(teacher=teacher).starting_from(tmp_path / "padded"), [text], tmp_path / "again")
    assert "loss/soft" in run.run().heldout


def test_what_goes_on_from_a_folder_inherits_nothing(text: Path, teacher: Path, tmp_path: Path) -> None:
    asked = config(teacher=teacher, inherit=True).starting_from(teacher)
    with pytest.raises(UnmaskError, match="leave --from or --inherit out"):
        Pretrain(asked, [text], tmp_path / "run")


def test_models_that_remember_are_not_compared_by_layer(text: Path, tmp_path: Path) -> None:
    xl = config("transformer-xl-tiny", written="next", memory=16, tokens=32, evaluate_every=None)
    Pretrain(xl, [text], tmp_path / "teacher").run()
    student = config("gpt2-tiny", teacher=tmp_path / "teacher", states=1.0)
    with pytest.raises(UnmaskError, match="the teacher is a TransformerXl: leave --states at 0"):
        Pretrain(student, [text], tmp_path / "run")


@pytest.mark.slow
def test_a_t5_learns_from_a_larger_one(text: Path, tmp_path: Path) -> None:
    """Its guesses of what was cut out, by the formula; a student inherits evenly spaced layers of either side."""
    small = {"tokens": 32, "head_dim": 8, "precision": "fp32", "evaluate_every": None}
    deep = config("t5-tiny", encoder_layers=4, decoder_layers=4, steps=30, lr=3e-2, **small)
    Pretrain(deep, [text], tmp_path / "teacher").run()
    asked = config("t5-tiny", teacher=tmp_path / "teacher", inherit=True, weight=0.25, temperature=3.0, **small)
    run = Pretrain(asked, [text], tmp_path / "run")
    alone = Pretrain(config("t5-tiny", **small), [text], tmp_path / "alone")
    assert run.baseline["loss/spans"] == pytest.approx(alone.baseline["loss/spans"], abs=0.05)
    assert run.probes
    assert isinstance(run.objective, WithTeacher)
    teacher = run.objective.teacher
    for side in ("encoder", "decoder"):
        for own, other in ((0, 0), (1, 2)):
            mine = getattr(run.model, side).blocks[own].feedforward.f.up.weight
            assert torch.equal(mine, getattr(teacher, side).blocks[other].feedforward.f.up.weight)
    run.model.encoder.blocks[0].feedforward.f.up.weight.data.mul_(1.5)  # or both would say nearly the same
    (batch,), _ = next(run.data.batches(None))
    with torch.no_grad():
        losses = run.objective.loss(run.model, batch)
        places = batch.targets["spans"].places
        said, taught = (one.answer("next", one(batch), places) / 3 for one in (run.model, teacher))
    soft = 9 * F.kl_div(said.log_softmax(-1), taught.softmax(-1), reduction="sum")
    assert losses["soft"].sum.item() == pytest.approx(soft.item(), rel=1e-4)
    assert run.objective.weights == {"spans": 0.75, "soft": 0.25}
    assert {"loss/spans", "loss/soft"} <= run.run().heldout.keys()
    for flag in ("states", "attention"):
        with pytest.raises(UnmaskError, match=f"--{flag} compares models with one stack.* the student is a T5"):
            Pretrain(asked.override({flag: 1.0}), [text], tmp_path / flag)
    with pytest.raises(UnmaskError, match="Only a T5 can teach a T5"):
        Pretrain(config("gpt2-tiny", teacher=tmp_path / "teacher"), [text], tmp_path / "gpt")
    with pytest.raises(UnmaskError, match="5 layers in its decoder cannot inherit from a teacher of 4"):
        Pretrain(asked.override({"decoder_layers": 5}), [text], tmp_path / "deep")


def test_heads_that_the_teacher_lacks_are_named(text: Path, tmp_path: Path) -> None:
    page = Bert(vocabulary=40, dim=16, layers=2, heads=2, hidden=32)
    teacher, student = page.build(as_heads({"mlm": 0}), seed=0), page.build(as_heads({"mlm": 0, "nsp": 2}), seed=1)
    assert inherit(student, teacher) == "New heads, which the teacher does not have: nsp."
    assert inherit(page.build(as_heads({"mlm": 0}), seed=1), teacher) == ""


def test_a_teacher_with_another_vocabulary_is_refused(text: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["other words"] * 20, 40)
    model = Bert(vocabulary=tokenizer.size, **SMALL).build(as_heads({"mlm": 0}), seed=0)
    huggingface.save(tmp_path / "teacher", model, tokenizer)
    with pytest.raises(UnmaskError, match="build it again with: unmask corpus build --tokenizer"):
        Pretrain(config(teacher=tmp_path / "teacher"), [text], tmp_path / "run")


def test_only_guesses_are_softened() -> None:
    learned = MaskedLM(mask=4, specials=[0, 1, 2, 3, 4], vocabulary=40)
    model = Gpt2(vocabulary=40, dim=16, layers=1, heads=2, hidden=32, length=8).build(as_heads({"next": 0}))
    with pytest.raises(UnmaskError, match="no head for mlm"):
        WithTeacher(learned, model)


def test_the_page_says_whose_guesses_a_curve_is_of(text: Path, teacher: Path, tmp_path: Path) -> None:
    Pretrain(config(teacher=teacher, states=0.1), [text], tmp_path / "run").run()
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "The teacher's predictions: loss" in unescape(page)
    assert "The teacher's hidden states: loss" in unescape(page)
