"""GPT folders end to end: pre-trained, gone on with, fine-tuned beside the next token, opened elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from finetune_toy import BAD, FILLER, GOOD, fields, write_tsv

from unmask import huggingface
from unmask.cli import main
from unmask.data import collate
from unmask.data.labelled.rows import Row
from unmask.data.text import byte_pairs, corpus
from unmask.data.text.reading import TextDocument
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search
from unmask.models.gpt import Gpt, Gpt2
from unmask.objectives import CausalLMConfig
from unmask.runs import recipes
from unmask.runs.evaluation import evaluate
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.pretraining import Pretrain
from unmask.serve import Predictor
from unmask.serve.continuation import Continuer
from unmask.tasks import Classification
from unmask.tasks.auxiliary import WithLanguageModel
from unmask.train.metrics import read as read_metrics

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {"dim": 24, "layers": 2, "heads": 2, "length": 48}


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
    corpus.build(texts, folder / "bytes", learn=byte_pairs.train, vocabulary_size=320, heldout=0.1)
    return folder


def config(name="gpt2-tiny", steps=60, **changes):
    training = {"minutes": None, "steps": steps, "device": "cpu", "evaluate_every": None, "log_every": 1}
    run = recipes.find(name).replace(model=SMALL, training=training, rows={"batch": 8, "heldout": 16})
    return run.override({"lr": 1e-2, "precision": "fp32", **changes})


@pytest.fixture(scope="module", params=["pieces", "bytes"])
def trained(request, corpora, tmp_path_factory):
    out = tmp_path_factory.mktemp("gpt") / request.param
    run = Pretrain(config(), [corpora / request.param], out, recipe="gpt2-tiny")
    return run, run.run()


def test_it_learns_more_than_word_frequencies_and_opens_in_transformers(trained):
    run, result = trained
    assert result.heldout["loss/next"] < 0.6 * run.baseline["loss/next"]
    assert "perplexity" in run.summary(result)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(run.out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.out)
    assert (theirs.config.bos_token_id, theirs.config.eos_token_id) == (run.processor.cls, run.processor.sep)
    ((ours,),) = Continuer(run.out, Search(limits=Limits(max_length=12)))(["the film was"])
    ids = tokenizer("the film was")["input_ids"]  # no token ends a prompt
    assert ids[:1] == [run.processor.cls]
    assert ids[-1] != run.processor.sep
    with torch.no_grad():
        texts = theirs.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, pad_token_id=run.processor.pad)
    assert tokenizer.decode(texts[0], skip_special_tokens=True) == ours.text
    assert ours.text.startswith("the film was")


@pytest.mark.parametrize("name", ["gpt-tiny", "gpt2-tiny"])
def test_the_loss_trace_is_the_golden_one(name, corpora, tmp_path):
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        Pretrain(config(name, steps=20), [corpora / "pieces"], tmp_path / "run").run()
    finally:
        torch.set_num_threads(threads)
    trace = [round(row["loss/next"], 4) for row in read_metrics(tmp_path / "run" / "metrics.jsonl", "train")]
    assert len(trace) == 20
    path = GOLDEN / f"pretrain-{name}.json"
    if not path.exists():
        path.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {path.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(path.read_text()), abs=2e-4)


def test_a_run_goes_on_from_a_folder_with_its_dropout(trained, corpora, tmp_path):
    run, _ = trained
    _, more = recipes.choose(None, str(run.out))
    assert isinstance(more.model, Gpt2)
    assert isinstance(more.objective, CausalLMConfig)
    more = more.replace(training={"minutes": None, "steps": 1, "device": "cpu"}, rows={"batch": 8, "heldout": 16})
    again = Pretrain(more.override({"lr": 1e-6, "embedding_dropout": 0.1}), [run.corpora[0].folder], tmp_path / "more")
    assert again.model.embedding.dropout.p == 0.1
    assert again.run().heldout["loss/next"] == pytest.approx(run.trainer.heldout["loss/next"], abs=1e-2)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name, number, seed in (("train", 96, 1), ("dev", 32, 2)):
        rng, found = np.random.default_rng(seed), []
        for i in range(number):
            words = [str(w) for w in rng.choice(FILLER, 4)]
            words.insert(int(rng.integers(5)), str(rng.choice(GOOD if i % 2 else BAD)))
            found.append((f"{seed}{i} {' '.join(words)}", str(i % 2)))
        write_tsv(folder / f"{name}.tsv", found)
    return folder


def fine_tuned(folder, files, out, **more):
    values = {**fields(folder, files), "seeds": 1, "lr": 1e-2, "epochs": 8, **more}
    return finetune(FineTuning().override(values), out)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_folder_learns_classes_from_the_last_token_and_opens_elsewhere(trained, rows, weight, tmp_path):
    run, _ = trained
    result = fine_tuned(run.out, rows, tmp_path / "out", language_model=weight)
    assert result.seeds[0]["dev"]["accuracy"] > (0.65 if weight else 0.9)
    metrics = read_metrics(tmp_path / "out" / "metrics.jsonl", "train")
    assert ("loss/next" in metrics[0]) == (weight > 0)
    loaded = huggingface.load(tmp_path / "out")
    assert set(loaded.model.heads) == {"classification"}
    texts, labels = zip(*(line.split("\t") for line in (rows / "dev.tsv").read_text().splitlines()[1:]), strict=True)
    answers = Predictor(tmp_path / "out")(texts)
    right = np.mean([answer["label"] == label for answer, label in zip(answers, labels, strict=True)])
    assert right == result.seeds[0]["dev"]["accuracy"]
    assert evaluate(tmp_path / "out", rows / "dev.tsv")["metrics"]["accuracy"] == right
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert type(theirs).__name__ == "GPT2ForSequenceClassification"
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert "token_type_ids" not in tokenizer.model_input_names  # GPT-2 would add the vectors of these ids to its input
    with torch.no_grad():
        p = theirs(**tokenizer(list(texts), padding=True, return_tensors="pt")).logits.softmax(-1)
    said = [answer["scores"][theirs.config.id2label[1]] for answer in answers]
    np.testing.assert_allclose(said, p[:, 1].numpy(), atol=1e-5)


def test_a_folder_tuned_with_lora_needs_no_merging(trained, rows, tmp_path):
    """Its maps lie side by side in the folder, and the additions to two of the three are in them."""
    base, out = trained[0].out, tmp_path / "run"
    result = fine_tuned(base, rows, out, strategy="lora", lr=2e-2)
    texts, labels = zip(*(line.split("\t") for line in (rows / "dev.tsv").read_text().splitlines()[1:]), strict=True)
    right = np.mean([answer["label"] == label for answer, label in zip(Predictor(out)(texts), labels, strict=True)])
    assert right == result.seeds[0]["dev"]["accuracy"]
    maps = [huggingface.load(place).model.stack.blocks[0].attention.f for place in (base, out)]
    moved = {name: not torch.equal(*(getattr(one, name).weight for one in maps)) for name in ("query", "key", "value")}
    assert moved == {"query": True, "key": False, "value": True}


def test_the_loss_beside_the_task_is_equation_5():
    tokenizer = Tokenizer.train(["good bad fine film"] * 5, 40)
    task = Classification(["0", "1"])
    aim = WithLanguageModel(task, 0.5)
    assert aim.weights == {"classification": 1.0, "next": 0.5}
    encoded = aim.prepare(task.encode([Row(text="good film", label="1"), Row(text="bad", label="0")], tokenizer, 16))
    model = Gpt(vocabulary=tokenizer.size, dim=8, layers=1, heads=2, length=16).build(aim.heads).eval()
    batch = collate.pack(encoded.examples, 16, tokenizer.pad)
    losses = aim.loss(model, batch)
    expected = 0.0
    for example in encoded.examples:
        tokens = torch.from_numpy(example.tokens)
        alone = collate.pad([example], tokenizer.pad, multiple=1)
        log_p = model.answer("next", model(alone), torch.arange(len(tokens))).log_softmax(-1)
        expected -= sum(log_p[i, tokens[i + 1]].item() for i in range(len(tokens) - 1))
    assert float(losses["next"].sum) == pytest.approx(expected, rel=1e-5)
    assert losses["next"].count == sum(len(e.tokens) - 1 for e in encoded.examples)
    assert float(losses["classification"].sum) == pytest.approx(float(task.loss(model, batch)["classification"].sum))
    with aim.projecting(model):
        assert "next" in model.heads
    assert "next" not in model.heads
    with pytest.raises(UnmaskError, match="above 0"):
        WithLanguageModel(task, -1.0)


def test_a_model_that_sees_all_words_has_no_next_one(rows, tmp_path):
    from finetune_toy import write_trunk

    trunk = write_trunk(tmp_path / "bert")
    with pytest.raises(UnmaskError, match="next"):
        fine_tuned(trunk, rows, tmp_path / "out", language_model=0.5)
    with pytest.raises(UnmaskError, match="cannot be combined"):
        fine_tuned(trunk, rows, tmp_path / "out", language_model=0.5, teacher=str(trunk))


def test_the_vocabulary_of_gpt2_reads_writes_and_classifies(trained, rows, tmp_path):
    """One special token for everything, and nothing that frames a text."""
    run, _ = trained
    if run.processor.continuation.any() and run.processor.pieces([4]) == ["<mask>"]:
        facts = json.loads(run.processor.raw.to_str())["model"]
        pieces = [*list(facts["vocab"])[5:], "<|endoftext|>"]
        (tmp_path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        (tmp_path / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in facts["merges"]))
        tokenizer = Tokenizer.load(tmp_path)
        model = Gpt2(vocabulary=tokenizer.size, dim=24, layers=2, heads=2, length=48, padding=tokenizer.pad).build()
        huggingface.save(tmp_path / "gpt2", model, tokenizer)
        ((text,),) = Continuer(tmp_path / "gpt2")([""])
        assert text.tokens > 0
        fine_tuned(tmp_path / "gpt2", rows, tmp_path / "out", epochs=1)
        assert Predictor(tmp_path / "out")(["the film"])[0]["label"] in ("0", "1")


def test_the_command_line_trains_and_writes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(review(i).text for i in range(40)), encoding="utf-8")
    main(["corpus", "build", "--data", "text.txt", "--kind", "bpe", "--vocabulary-size", "300", "--out", "corpus"])
    small = [f"--{name}={value}" for name, value in {**SMALL, "batch": 4, "device": "cpu"}.items()]
    main(["pretrain", "gpt-tiny", "--corpus", "corpus", "--out", "lm", "--steps", "2", *small])
    assert "bits per character" in capsys.readouterr().out
    main(["generate", "--model", "lm", "the film", "--max-length", "5"])
    assert capsys.readouterr().out.startswith("the film")
    assert json.loads((tmp_path / "lm" / "config.json").read_text())["model_type"] == "openai-gpt"
