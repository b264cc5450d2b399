"""ALBERT, ELECTRA, MobileBERT, ModernBERT, RoBERTa end to end: trained, resumed, opened, fine-tuned, asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from finetune_toy import fields, reviews, write_sets
from torch import Tensor, nn

from unmask import huggingface
from unmask.data.collate import pack, pad
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.huggingface.table import OF_SEQUENCES, as_heads
from unmask.models.model import Model, ModelConfig
from unmask.runs import recipes, vocabulary_extension
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.runs.report import write_report
from unmask.serve import Predictor
from unmask.serve.http.pool import kind_of
from unmask.train.events import Step
from unmask.train.metrics import TIMED
from unmask.train.metrics import read as read_metrics
from unmask.types import Batch, Example

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
RECIPES = ("albert-tiny", "electra-tiny", "mobilebert", "modern-tiny", "roberta-tiny")
SMALL = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "length": 32}
OF_RECIPE: dict[str, dict[str, object]] = {
    "albert-tiny": {"factor": 16},
    "electra-tiny": {"factor": 16},
    "mobilebert": {"factor": 16, "bottleneck": 16, "feedforwards": 3},
    "modern-tiny": {"local": 8},
    "roberta-tiny": {},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of the words that the labelled rows have."""
    out = tmp_path_factory.mktemp("corpora") / "reviews"
    texts = [". ".join(text.capitalize() for text, _ in reviews(8, seed)) + "." for seed in range(80)]
    corpus.build([TextDocument(t, str(i)) for i, t in enumerate(texts)], out, vocabulary_size=150, heldout=0.1)
    return out


def config(recipe: str, **changes: object) -> Pretraining:
    training = {"minutes": None, "steps": 20, "log_every": 1, "precision": "fp32", "device": "cpu"}
    small = recipes.find(recipe).replace(
        model={**SMALL, **OF_RECIPE[recipe]},
        training={**training, "evaluate_every": 10},
        rows={"batch": 8, "heldout": 16, "first": None, "workers": 0},
    )
    return small.override(changes)


@pytest.fixture(scope="module", params=RECIPES)
def trained(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    """A run of twenty steps, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        asked = config(request.param, algorithm="adamw")  # Muon rounds to bfloat16 on some processors
        run = Pretrain(asked, [folder], tmp_path_factory.mktemp("runs") / request.param)
        run.recipe = request.param
        run.run()
    finally:
        torch.set_num_threads(threads)
    return run


def compared(path: Path, found: object) -> object:
    """What a golden file holds; where there is none, it is written, and the test fails once."""
    if not path.exists():
        path.write_text(json.dumps(found, indent=1) + "\n")
        pytest.fail(f"there was no {path.name}; it has been written now, look at it and run again")
    return json.loads(path.read_text())


def test_losses_and_parameters_are_the_golden_ones(trained: Pretrain) -> None:
    """A refactoring must not change them; after a change that is meant to, delete the files and run this twice."""
    rows = read_metrics(trained.out / "metrics.jsonl", "train")
    trace = [{k: round(v, 4) for k, v in row.items() if k.startswith("loss/")} for row in rows]
    tree = {name: " x ".join(map(str, p.shape)) for name, p in trained.model.named_parameters()}
    golden = compared(GOLDEN / f"pretrain-{trained.recipe}.json", {"parameters": tree, "losses": trace})
    assert tree == golden["parameters"]
    for step, (found, expected) in enumerate(zip(trace, golden["losses"], strict=True)):
        assert found == pytest.approx(expected, abs=2e-4), f"step {step + 1}"


def test_every_term_has_its_curve(trained: Pretrain) -> None:
    page = write_report(trained.out).read_text()
    names = {"mlm": "Masked tokens", "nsp": "Next sentence", "sop": "Sentence order", "rtd": "Replaced tokens"}
    assert all(f"{names[term]}: loss" in page for term in trained.objective.weights)


def test_a_run_resumes_to_the_same_weights(trained: Pretrain, folder: Path, tmp_path: Path) -> None:
    rate = "dropout" if "dropout" in trained.model.config.places() else "hidden_dropout"
    settings = config(trained.recipe, steps=8, save_every=4, evaluate_every=4, workers=0, **{rate: 0.1})
    whole, part = (Pretrain(settings, [folder], tmp_path / name) for name in ("whole", "part"))
    whole.run()
    assert part.run(lambda event: event == Step(4) and part.trainer.stop("the test")).step == 4
    again = Pretrain(settings, [folder], tmp_path / "part", resume=True)
    again.run()
    for (name, a), b in zip(whole.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b), name
    rows = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "part")]
    one, two = ([{k: v for k, v in row.items() if k not in TIMED} for row in r] for r in rows)
    assert one == two


def test_a_batch_without_a_pair_of_sentences_teaches_the_words(folder: Path, tmp_path: Path) -> None:
    run = Pretrain(config("albert-tiny", tokens=8, steps=2), [folder], tmp_path / "run")
    micro, _ = next(run.data.batches(None))
    assert all("sop" not in batch.targets for batch in micro)
    run.run()
    assert all("loss/sop" not in row for row in read_metrics(tmp_path / "run" / "metrics.jsonl", "train"))


def test_the_folder_opens_in_transformers_with_the_same_numbers(trained: Pretrain) -> None:
    (name,) = json.loads((trained.out / "config.json").read_text())["architectures"]
    theirs = getattr(transformers, name).from_pretrained(trained.out).eval()
    model = huggingface.load(trained.out).model
    tokens = torch.randint(5, 60, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output, hidden = theirs(tokens).to_tuple(), model(Batch(tokens))
        places = torch.arange(24)
        head = "rtd" if "rtd" in model.heads else "mlm"
        torch.testing.assert_close(
            model.answer(head, hidden, places).reshape(output[0].shape), output[0], atol=1e-5, rtol=1e-5
        )


# ------------------------------------------------------------------------------------------------ packing

HEADS = as_heads({"mlm": 0, "classification": 3, "tagging": 5, "span": 2, "choice": 1})


def pages() -> list[ModelConfig]:
    found = [config(recipe).model for recipe in RECIPES]
    new = {"positions": "normal"}  # of learned positions
    return [page.replace(vocabulary=60, std=0.2, **(new if hasattr(page, "positions") else {})) for page in found]


def said(model: Model, batch: Batch, lengths: list[int]) -> list[Tensor]:
    """What every head says of each sequence: at all of its places, or at its first."""
    hidden = model(batch)
    places = [torch.arange(int(start), int(start) + n) for start, n in zip(batch.starts, lengths, strict=True)]
    of = {head: [p[:1] if head in OF_SEQUENCES else p for p in places] for head in model.heads}
    return [torch.cat([model.answer(h, hidden, of[h][i]).flatten() for h in model.heads]) for i in range(len(lengths))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: type(page).__name__)
def test_packed_padded_and_single_sequences_give_the_same(page: ModelConfig) -> None:
    model = page.build(HEADS).eval()
    rng = np.random.default_rng(0)
    lengths = [9, 4, 14, 6, 11, 3]
    examples = [Example(rng.integers(5, 60, n), np.sort(rng.integers(0, 2, n))) for n in lengths]
    with torch.no_grad():
        single = [
            said(model, pad([example], 0, multiple=1), [n])[0] for example, n in zip(examples, lengths, strict=True)
        ]
        for batch in (pad(examples, 0), pack(examples, 24, 0)):
            for one, other in zip(said(model, batch, lengths), single, strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


# ------------------------------------------------------------------------------------------------ fine-tuning


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sets(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("strategy", ["full", "lora"])
def test_the_folder_is_fine_tuned_and_answers(trained: Pretrain, rows: Path, tmp_path: Path, strategy: str) -> None:
    values = {**fields(trained.out, rows), "seeds": 1, "epochs": 2, "strategy": strategy}
    result = finetune(FineTuning().override(values), tmp_path / "out")
    assert set(huggingface.load(tmp_path / "out").model.heads) == {"classification"}
    answers = Predictor(tmp_path / "out")([text for text, _ in reviews(24, 2)])
    right = np.mean([a["label"] == label for a, (_, label) in zip(answers, reviews(24, 2), strict=True)])
    assert right == result.seeds[0]["dev"]["accuracy"]


def test_a_mobilebert_learns_from_a_teacher(folder: Path, rows: Path, tmp_path: Path) -> None:
    for recipe in ("roberta-tiny", "mobilebert"):
        Pretrain(config(recipe, steps=1), [folder], tmp_path / recipe).run()
    values = {**fields(tmp_path / "roberta-tiny", rows), "seeds": 1, "epochs": 1}
    finetune(FineTuning().override(values), tmp_path / "teacher")
    taught = {
        "model": tmp_path / "mobilebert",
        "distillation.teacher": tmp_path / "teacher",
        "distillation.hidden": 1.0,
    }
    result = finetune(FineTuning().override({**values, **taught}), tmp_path / "student")
    assert set(huggingface.load(tmp_path / "student").model.heads) == {"classification"}
    assert 0 <= result.seeds[0]["dev"]["accuracy"] <= 1
    metrics = next(tmp_path.glob("student/**/metrics.jsonl"))
    assert {"loss/soft", "loss/hidden", "loss/classification"} <= read_metrics(metrics, "train")[-1].keys()


def test_a_vocabulary_of_a_mobilebert_grows_with_both_halves_of_its_output(trained: Pretrain, tmp_path: Path) -> None:
    if "mlm" not in trained.model.heads:
        return
    found = vocabulary_extension.extend(
        trained.out, ["zymurgy zymurgy zymurgy zymurgy zymurgy"] * 4, 2, tmp_path / "more"
    )
    loaded = huggingface.load(tmp_path / "more").model
    batch = Batch(torch.tensor([[2, 9, 4, 3]]))
    before = huggingface.load(trained.out).model
    with torch.no_grad():
        logits, old = (m.answer("mlm", m(batch), torch.tensor([2])) for m in (loaded, before))
    assert logits.shape[1] == old.shape[1] + len(found.pieces)
    torch.testing.assert_close(logits[:, : old.shape[1]], old)


# ------------------------------------------------------------------------------------------------ ELECTRA


@pytest.fixture(scope="module")
def electra(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    run = Pretrain(config("electra-tiny", steps=4), [folder], tmp_path_factory.mktemp("electra") / "run")
    run.run()
    return run


def test_the_generator_lies_beside_and_fills_masks(electra: Pretrain) -> None:
    loaded = huggingface.load(electra.out / "generator")
    assert set(loaded.model.heads) == {"mlm"}
    theirs, info = transformers.ElectraForMaskedLM.from_pretrained(electra.out / "generator", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokens = torch.arange(5, 15)[None]
    with torch.no_grad():
        logits = loaded.model.answer("mlm", loaded.model(Batch(tokens)), torch.arange(10))
        torch.testing.assert_close(logits, theirs.eval()(tokens).logits[0], atol=1e-5, rtol=1e-5)
    assert len(Predictor(electra.out / "generator")(["the film was [MASK]."])[0]["masks"][0]) == 5
    own = huggingface.load(electra.out).model
    assert torch.equal(own.embedding.token.weight, loaded.model.embedding.token.weight)  # they share it
    assert [one["token"] for one in Predictor(electra.out)(["the film"])[0]["tokens"]] == ["the", "film"]


def test_a_run_goes_on_from_the_folder_with_its_generator(electra: Pretrain, folder: Path, tmp_path: Path) -> None:
    small = {"rows": {"batch": 8, "heldout": 16}, "training": {"minutes": None, "steps": 1, "device": "cpu"}}
    _, going_on = recipes.choose(None, str(electra.out))
    more = Pretrain(going_on.replace(**small).override({"lr": 1e-7}), [folder], tmp_path / "more")
    found = more.run().heldout
    for term in ("loss/mlm", "loss/rtd"):
        assert found[term] == pytest.approx(electra.trainer.heldout[term], abs=1e-3)
    alone = tmp_path / "alone"
    model = huggingface.load(electra.out)
    huggingface.save(alone, model.model, model.tokenizer)
    _, going_on = recipes.choose(None, str(alone))
    without = Pretrain(going_on.replace(**small), [folder], tmp_path / "without")
    trained, fresh = electra.model.generator.stack.state_dict(), without.model.generator.stack.state_dict()
    assert not torch.equal(fresh["blocks.0.feedforward.f.up.weight"], trained["blocks.0.feedforward.f.up.weight"])
    assert torch.equal(without.model.embedding.token.weight, electra.model.embedding.token.weight)


def test_a_vocabulary_grows_with_that_of_the_generator(electra: Pretrain, folder: Path, tmp_path: Path) -> None:
    """Both read new words by the same new vectors, and what each has learned is there."""
    found = vocabulary_extension.extend(
        electra.out, ["zymurgy zymurgy zymurgy zymurgy zymurgy"] * 4, 2, tmp_path / "more"
    )
    pair = as_heads({"rtd": 1, "mlm": 0})
    old, new = (huggingface.load(place, heads=pair) for place in (electra.out, tmp_path / "more"))
    assert not new.new
    batch = Batch(torch.tensor([[2, 9, 4, 3]]))
    with torch.no_grad():
        before, after = (m.generator.answer("mlm", m.generator(batch), torch.arange(4)) for m in (old.model, new.model))
    assert after.shape[1] == before.shape[1] + len(found.pieces)
    torch.testing.assert_close(after[:, : before.shape[1]], before)
    for name, p in old.model.generator.stack.state_dict().items():
        assert torch.equal(new.model.generator.stack.state_dict()[name], p), name
    beside = huggingface.load(tmp_path / "more" / "generator")
    assert torch.equal(beside.model.embedding.token.weight, new.model.embedding.token.weight)
    assert beside.tokenizer is not None
    assert beside.tokenizer.fingerprint == found.tokenizer.fingerprint


def test_a_generator_of_another_model_is_refused(electra: Pretrain, tmp_path: Path) -> None:
    model = huggingface.load(electra.out)
    huggingface.save(tmp_path / "out", model.model, model.tokenizer)
    other = model.model.config.smaller.replace(dim=8).build(as_heads({"mlm": 0}))
    huggingface.save(tmp_path / "out" / "generator", other)
    with pytest.raises(UnmaskError, match="does not match the model"):
        huggingface.load(tmp_path / "out", heads=as_heads({"rtd": 1, "mlm": 0}))


@pytest.mark.parametrize(("sentences", "head"), [("next", "nsp"), ("order", "sop")])
def test_sentences_are_compared_beside_replaced_tokens(sentences: str, head: str, folder: Path, tmp_path: Path) -> None:
    """By the discriminator, in the text that the generator has filled; each term has its curve, and the folder all
    heads."""
    run = Pretrain(config("electra-tiny", sentences=sentences, steps=3), [folder], tmp_path / "run")
    batch = next(run.data.batches(None))[0][0]
    assert run.objective.weights == {head: 1.0, "mlm": 1.0, "rtd": 50.0}
    seen: list[Batch] = []
    forward = run.model.forward
    run.model.forward = lambda given: (seen.append(given), forward(given))[1]  # type: ignore[method-assign]
    losses = run.objective.loss(run.model, batch)
    (filled,) = seen
    assert not torch.equal(filled.tokens, batch.tokens)
    target = batch.targets[head]
    logits = run.model.answer(head, forward(filled), target.places)
    torch.testing.assert_close(losses[head].sum, nn.functional.cross_entropy(logits, target.values, reduction="sum"))
    assert set(losses) == {head, "mlm", "rtd"}
    del run.model.forward
    found = run.run().heldout
    assert {f"loss/{term}" for term in losses} <= found.keys()
    loaded = huggingface.load(tmp_path / "run")
    assert set(loaded.model.heads) == {"rtd", head}
    _, going_on = recipes.choose(None, str(tmp_path / "run"))
    small = {"rows": {"batch": 8, "heldout": 16}, "training": {"minutes": None, "steps": 1, "device": "cpu"}}
    more = Pretrain(going_on.replace(**small), [folder], tmp_path / "more")
    assert set(more.objective.heads) == {head, "rtd", "mlm"}
    assert kind_of(tmp_path / "run") == "replaced-tokens"
    assert [one["token"] for one in Predictor(tmp_path / "run")(["the film"])[0]["tokens"]] == ["the", "film"]


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("albert-tiny", {"replaced": True, "sentences": "none"}, "electra-tiny"),
        ("electra-tiny", {"masked": False}, "--masked true"),
    ],
)
def test_what_cannot_be_learned_together_is_said_before_the_first_step(
    recipe: str, changes: dict[str, object], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnmaskError, match=message):
        Pretrain(config(recipe, **changes), [folder], tmp_path / "run")


def test_published_recipes_are_of_the_published_sizes() -> None:
    small = recipes.find("electra-small").model
    with torch.device("meta"):
        model: nn.Module = small.replace(length=512).build({}, seed=None)
        theirs = transformers.AutoModel.from_config(transformers.ElectraConfig())
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert (small.smaller.dim, small.smaller.heads, small.smaller.hidden) == (64, 1, 256)
