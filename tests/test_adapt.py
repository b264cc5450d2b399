"""Going on in another domain: losses of the start as in `transformers`, exact resumption, rows that are means."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from unmask import huggingface
from unmask.cli import main
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert, Roberta
from unmask.models.modernbert import ModernBert
from unmask.objectives.registry import selected
from unmask.runs import recipes, vocabulary_extension
from unmask.runs.pretraining import Pretrain
from unmask.train.events import Evaluated
from unmask.train.metrics import read as read_metrics
from unmask.types import Batch

transformers = pytest.importorskip("transformers")

GENERAL = ["The cat sat on the mat. A dog ran down the road.", "It rained on the house. Did the dog see the cat?"] * 4
DOMAIN = ["Tachycardia preceded the infarction. Myocarditis followed.", "Cardioversion ended the tachycardia."] * 8
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def documents() -> list[TextDocument]:
    """Different documents of several sentences."""
    rng = np.random.default_rng(0)
    sentences = [s.strip() + "." for text in GENERAL[:2] + DOMAIN[:2] for s in text.replace("?", ".").split(".") if s]
    return [TextDocument(" ".join(rng.choice(sentences, 6)) + f" It is {i}.", str(i)) for i in range(40)]


def wordpiece() -> Tokenizer:
    return Tokenizer.train(
        [*GENERAL, "abcdefghijklmnopqrstuvwxyz 0123456789 " + " ".join("abcdefghijklmnopqrstuvwxyz")], 110
    )


def byte_level() -> Tokenizer:
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    raw.train_from_iterator(GENERAL + DOMAIN, trainer)
    raw.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return Tokenizer.of(raw)


def write(folder: Path, theirs: transformers.PreTrainedModel, tokenizer: Tokenizer) -> Path:
    """A folder as `transformers` writes it, its weights and biases all far from zero, so that each counts."""
    torch.manual_seed(1)
    for parameter in theirs.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    theirs.eval().save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def their_bert(kind: str, tokenizer: Tokenizer, **more: int) -> transformers.PreTrainedModel:
    config = transformers.BertConfig(
        vocab_size=tokenizer.size, max_position_embeddings=32, **TINY, **{"type_vocab_size": 2} | more
    )
    return getattr(transformers, kind)(config)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model folders by kind, and a corpus for each tokenizer."""
    root = tmp_path_factory.mktemp("folders")
    pieces, merges = wordpiece(), byte_level()
    roberta = transformers.RobertaConfig(
        vocab_size=merges.size, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1, **TINY
    )
    found = {
        "mlm": write(root / "mlm", their_bert("BertForMaskedLM", pieces), pieces),
        "both": write(root / "both", their_bert("BertForPreTraining", pieces), pieces),
        "encoder": write(root / "encoder", their_bert("BertModel", pieces), pieces),
        "roberta": write(root / "roberta", transformers.RobertaForMaskedLM(roberta), merges),
    }
    for name, tokenizer in (("corpus", pieces), ("merged", merges)):
        corpus.build(documents(), root / name, tokenizer=tokenizer, heldout=0.2)
        found[name] = root / name
    return found


def config(folder: Path, **changes: object):
    """A short run from a folder."""
    values = {"steps": 6, "minutes": "none", "batch": 4, "micro_batch": 2, "heldout": 8, "log_every": 1, "lr": 1e-3}
    values |= {"precision": "fp32", "device": "cpu", "evaluate_every": 3, "save_every": 2, "keep": 9}
    return recipes.continued().starting_from(folder).override(values | changes)


def of(folders: dict[str, Path], name: str) -> Path:
    """The corpus for a model."""
    return folders["merged" if name == "roberta" else "corpus"]


# ------------------------------------------------------------------------------------------------ the start


def their_loss(theirs: torch.nn.Module, batches: list[Batch]) -> float:
    """Mean masked-word loss under `transformers`, one sequence at a time, with no packing and no padding."""
    total, count = 0.0, 0
    for batch in batches:
        width = batch.tokens.shape[1]
        documents = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
        labels = torch.full((batch.tokens.numel(),), -100)
        labels[batch.targets["mlm"].places] = batch.targets["mlm"].values
        for row in range(len(batch.tokens)):
            for number in range(1, int(documents[row].max()) + 1):
                here = documents[row] == number
                inputs = {"input_ids": batch.tokens[row][here][None]}
                if batch.segments is not None:
                    inputs["token_type_ids"] = batch.segments[row][here][None]
                found = theirs(**inputs)
                logits = found.logits if "logits" in found else found.prediction_logits
                wanted = labels[row * width : (row + 1) * width][here]
                loss = torch.nn.functional.cross_entropy(logits[0], wanted, ignore_index=-100, reduction="sum")
                total, count = total + loss.item(), count + int((wanted >= 0).sum())
    return total / count


@pytest.mark.parametrize(
    ("name", "kind"), [("mlm", "BertForMaskedLM"), ("both", "BertForPreTraining"), ("roberta", "RobertaForMaskedLM")]
)
def test_a_run_starts_at_the_loss_that_transformers_finds(folders, name, kind, tmp_path):
    run = Pretrain(config(folders[name]), [of(folders, name)], tmp_path / "run")
    theirs = getattr(transformers, kind).from_pretrained(folders[name]).eval()
    with torch.no_grad():
        expected = their_loss(theirs, run.heldout)
    run.run()
    first = read_metrics(tmp_path / "run" / "metrics.jsonl", "heldout")[0]
    assert first["step"] == 0
    assert first["loss/mlm"] == pytest.approx(expected, rel=1e-5)
    assert abs(expected - np.log(run.processor.size)) > 0.1, "as bad as a guess: the weights would not matter"


def test_objectives_and_dropout_are_the_folder_s_unless_told_otherwise(folders, tmp_path):
    runs = {name: Pretrain(config(folders[name]), [of(folders, name)], tmp_path) for name in ("mlm", "both", "roberta")}
    assert [selected(run.config.objective)["sentences"] for run in runs.values()] == ["none", "next", "none"]
    assert [sorted(run.model.heads) for run in runs.values()] == [["mlm"], ["mlm", "nsp"], ["mlm"]]
    assert [type(run.config.model) for run in runs.values()] == [Bert, Bert, Roberta]
    told = Pretrain(config(folders["both"], sentences="none", dropout=0.0), [folders["corpus"]], tmp_path)
    assert sorted(told.model.heads) == ["mlm"]
    assert (told.model.config.dropout, told.model.config.attention_dropout) == (0.0, 0.1)
    assert {m.p for m in told.model.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}
    fresh = recipes.bert_tiny().override({"sentences": "auto", "device": "cpu"})
    assert selected(Pretrain(fresh, [folders["corpus"]], tmp_path).config.objective)["sentences"] == "none"


class Notes:
    """A display that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def start(self, step: int, total: int) -> None: ...
    def show(self, row: dict) -> None: ...
    def close(self) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_new_head_and_parts_that_are_left_out_are_named(folders, tmp_path):
    display = Notes()
    run = Pretrain(config(folders["encoder"]), [folders["corpus"]], tmp_path / "run", display=display)
    (note,) = display.notes
    assert "encoder has no masked-token (mlm) head: it is new" in note
    assert note.endswith("so not part of the result: the pooler.")
    theirs = transformers.BertModel.from_pretrained(folders["encoder"]).state_dict()
    ours = huggingface.export(run.model)
    assert torch.equal(ours["bert.embeddings.word_embeddings.weight"], theirs["embeddings.word_embeddings.weight"])
    for name in ("mlm", "both"):
        display = Notes()
        Pretrain(config(folders[name]), [folders["corpus"]], tmp_path / "run", display=display)
        assert display.notes == []


def test_a_new_head_begins_with_the_frequencies_of_the_text(folders, tmp_path):
    tokenizer = Tokenizer.load(folders["mlm"])
    model = Bert(vocabulary=tokenizer.size + 3, dim=16, layers=1, heads=2, hidden=32, length=32).build({})
    huggingface.save(tmp_path / "padded", model, tokenizer)
    run = Pretrain(config(tmp_path / "padded"), [folders["corpus"]], tmp_path / "run")
    counts = 1 + corpus.Corpus(folders["corpus"]).split("train").unigrams()
    expected = np.log(counts / counts.sum())
    bias = run.model.heads["mlm"].bias.detach().numpy()
    np.testing.assert_allclose(bias[: tokenizer.size], expected, rtol=1e-6)
    np.testing.assert_allclose(bias[tokenizer.size :], expected.min(), rtol=1e-6)
    with torch.no_grad():
        assert run.evaluate(run.model.eval(), 0).numbers["loss/mlm"] < run.baseline["loss/mlm"] + 0.2


def test_another_tokenizer_is_refused_with_the_way_out(folders, tmp_path):
    with pytest.raises(UnmaskError) as caught:
        Pretrain(config(folders["mlm"]), [folders["corpus"], folders["merged"]], tmp_path / "run")
    message = str(caught.value)
    assert f"{folders['merged']} was not built with the tokenizer of {folders['mlm']}" in message
    assert f"unmask corpus build --tokenizer {folders['mlm']}" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("field", "value"), [("layers", 3), ("dim", 32), ("activation", "relu"), ("length", 64)])
def test_sizes_belong_to_the_weights(folders, field, value, tmp_path):
    with pytest.raises(UnmaskError, match=f"keeps the sizes of the model: {field} is"):
        Pretrain(config(folders["mlm"], **{f"model.{field}": value}), [folders["corpus"]], tmp_path / "run")


def test_a_modernbert_continues_with_longer_rows_and_another_base(folders, tmp_path):
    """The second phase of its training: rotary positions and windows have no weights."""
    tokenizer, start = wordpiece(), tmp_path / "start"
    sizes = {"dim": 16, "layers": 2, "heads": 2, "hidden": 32, "length": 16, "every": 2, "local": 6}
    model = ModernBert(vocabulary=tokenizer.size, padding=tokenizer.pad, global_base=1e4, **sizes).build()
    huggingface.save(start, model, tokenizer)
    arguments = ["pretrain", "--from", str(start), "--corpus", str(folders["corpus"]), "--steps", "1", "--batch", "2"]
    arguments += ["--micro-batch", "2", "--heldout", "4", "--device", "cpu", "--precision", "fp32", "--lr", "1e-9"]
    main([*arguments, "--out", str(tmp_path / "same")])
    main([*arguments, "--out", str(tmp_path / "far"), "--length", "32", "--global-base", "160000"])
    same, far = (huggingface.load(tmp_path / name).model for name in ("same", "far"))
    assert same.config == model.config
    assert far.config == model.config.replace(length=32, global_base=160_000.0)
    assert {b.attention.f.position.base for b in far.blocks} == {160_000.0, 10_000.0}
    torch.testing.assert_close(dict(far.named_parameters()), dict(model.named_parameters()), atol=1e-6, rtol=0)
    with pytest.raises(UnmaskError, match="keeps the sizes of the model: hidden is"):
        Pretrain(config(start, hidden=64), [folders["corpus"]], tmp_path / "other")


def test_sentence_pairs_may_be_asked_of_a_folder_that_has_not_learned_them(folders, tmp_path):
    display = Notes()
    run = Pretrain(config(folders["mlm"], sentences="order"), [folders["corpus"]], tmp_path, display=display)
    assert sorted(run.model.heads) == ["mlm", "sop"]
    assert "no sentence-order (sop) head" in display.notes[0]


# ------------------------------------------------------------------------------------------------ the run


@pytest.mark.parametrize("name", ["both", "roberta"])
def test_a_resumed_run_ends_where_the_whole_one_does_without_its_start(folders, name, tmp_path):
    start = tmp_path / "start"
    shutil.copytree(folders[name], start)
    Pretrain(config(start), [of(folders, name)], tmp_path / "whole").run()
    part = Pretrain(config(start), [of(folders, name)], tmp_path / "part")

    def stop_halfway(event):
        if isinstance(event, Evaluated) and event.step:
            part.trainer.stop("the test")

    assert part.run(stop_halfway).step == 3
    shutil.rmtree(start)
    again = Pretrain(
        config(folders[name]).replace(start=str(start)), [of(folders, name)], tmp_path / "part", resume=True
    )
    result = again.run()
    one, two = (huggingface.load(tmp_path / run).model for run in ("whole", "part"))
    assert type(one.config) is type(two.config) is (Roberta if name == "roberta" else Bert)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    facts = [json.loads((tmp_path / run / "run.json").read_text()) for run in ("whole", "part")]
    assert facts[0]["origin"] == facts[1]["origin"]
    assert "at the start: " in again.summary(result)


def test_a_damaged_checkpoint_is_passed_over(folders, tmp_path):
    run = Pretrain(config(folders["mlm"], steps=4), [folders["corpus"]], tmp_path / "run")
    run.run()
    (tmp_path / "run" / "checkpoints" / "step-00000004" / "model.safetensors").write_bytes(b"damaged")
    again = Pretrain(config(folders["mlm"], steps=4), [folders["corpus"]], tmp_path / "run", resume=True)
    assert again.origin.place.name == "step-00000002"
    assert again.run().step == 4


def test_the_run_knows_where_it_came_from(folders, tmp_path):
    Pretrain(config(folders["mlm"]), [folders["corpus"]], tmp_path / "run", recipe="continued").run()
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    weights = hashlib.sha256((folders["mlm"] / "model.safetensors").read_bytes()).hexdigest()
    assert facts["origin"] == {"folder": str(folders["mlm"]), "weights": {"model.safetensors": weights}}
    assert facts["config"]["start"] == str(folders["mlm"])
    transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "run")


def test_going_on_learns_the_domain(folders, tmp_path):
    run = Pretrain(config(folders["both"], steps=60, lr=3e-3, evaluate_every=60), [folders["corpus"]], tmp_path / "run")
    result = run.run()
    start = read_metrics(tmp_path / "run" / "metrics.jsonl", "heldout")[0]
    assert result.heldout["loss/mlm"] < 0.8 * start["loss/mlm"]


# ------------------------------------------------------------------------------------------------ byte-level text


def test_sentences_of_a_byte_level_corpus_join_to_the_text(folders):
    """A sentence within a document begins with its space, as the model has seen it."""
    tokenizer = Tokenizer.load(folders["roberta"])
    built = corpus.Corpus(folders["merged"])
    texts = {document.text for document in documents()}
    for document in built.split("train"):
        whole = tokenizer.decode(np.concatenate(document.sentences))
        assert whole in texts
        assert np.concatenate(document.sentences).tolist() == tokenizer.ids([whole])[0].tolist()


@pytest.mark.parametrize("whole_words", [False, True])
def test_masks_of_a_byte_level_corpus_are_its_own(folders, whole_words, tmp_path):
    run = Pretrain(config(folders["roberta"], whole_words=whole_words), [folders["merged"]], tmp_path)
    masks = targets = 0
    for batch in run.heldout:
        flat, target = batch.tokens.reshape(-1), batch.targets["mlm"]
        hidden = flat == run.processor.mask
        masks, targets = masks + int(hidden.sum()), targets + len(target.places)
        assert set(hidden.nonzero().flatten().tolist()) <= set(target.places.tolist())
        assert not set(target.values.tolist()) & run.processor.specials
        original = flat.clone()
        original[target.places] = target.values
        words = [piece.startswith("Ġ") for piece in run.processor.pieces(original)]
        if whole_words:  # the rest of a hidden word is hidden with it
            hit = set(target.places.tolist())
            for place in hit:
                ordinary = place + 1 < len(flat) and int(original[place + 1]) not in run.processor.specials
                assert not ordinary or words[place + 1] or place + 1 in hit
    assert 0.6 < masks / targets < 0.95


@pytest.mark.parametrize("sentences", ["next", "order"])
def test_pairs_of_a_byte_level_corpus_fit_their_rows_with_four_special_tokens(folders, sentences, tmp_path):
    changes = {"sentences": sentences, "length": 32, "first": "none", "batch": 4, "heldout": 8, "device": "cpu"}
    run = Pretrain(recipes.bert_tiny().override(changes), [folders["merged"]], tmp_path)
    assert run.heldout
    assert all(batch.tokens.shape[1] == 32 for batch in run.heldout)


# ------------------------------------------------------------------------------------------------ vocabulary


@pytest.fixture
def extended(folders, tmp_path) -> tuple[Path, vocabulary_extension.Extended]:
    return tmp_path / "larger", vocabulary_extension.extend(folders["both"], DOMAIN, 12, tmp_path / "larger", least=3)


def test_texts_without_new_pieces_have_the_same_logits(folders, extended):
    folder, result = extended
    before = transformers.AutoModelForPreTraining.from_pretrained(folders["both"]).eval()
    after = transformers.AutoModelForPreTraining.from_pretrained(folder).eval()
    old, new = (transformers.AutoTokenizer.from_pretrained(f) for f in (folders["both"], folder))
    size = len(old)
    for text in GENERAL[:2]:
        inputs = old(text, return_tensors="pt")
        assert new(text, return_tensors="pt")["input_ids"].tolist() == inputs["input_ids"].tolist()
        with torch.no_grad():
            one, two = before(**inputs), after(**inputs)
        torch.testing.assert_close(two.prediction_logits[..., :size], one.prediction_logits, atol=1e-6, rtol=0)
        torch.testing.assert_close(two.seq_relationship_logits, one.seq_relationship_logits, atol=1e-6, rtol=0)
    loaded = huggingface.load(folder)
    with torch.no_grad():
        hidden = loaded.model(Batch(inputs["input_ids"]))
        ours = loaded.model.answer("mlm", hidden, torch.arange(hidden.shape[1]))
    torch.testing.assert_close(ours, two.prediction_logits[0], atol=1e-4, rtol=1e-4)
    assert two.prediction_logits.shape[-1] == len(new) == size + len(result.pieces)


def test_new_rows_are_the_mean_of_the_pieces_that_they_replace(folders, extended):
    folder, result = extended
    before, after = (huggingface.export(huggingface.load(f).model) for f in (folders["both"], folder))
    old = transformers.AutoTokenizer.from_pretrained(folders["both"])
    size = len(old)
    whole = [piece for piece in result.pieces if not piece.startswith("##")]
    assert "tachycardia" in whole
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        assert torch.equal(after[name][:size], before[name])
        for piece in whole:
            torn = old(piece, add_special_tokens=False)["input_ids"]
            torch.testing.assert_close(after[name][result.tokenizer.raw.token_to_id(piece)], before[name][torn].mean(0))
    unchanged = before.keys() - {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"}
    assert all(torch.equal(before[name], after[name]) for name in unchanged)


def test_the_extension_is_noted(folders, extended):
    folder, result = extended
    facts = json.loads((folder / "extension.json").read_text(encoding="utf-8"))
    assert list(facts["pieces"]) == list(result.pieces)
    before = Tokenizer.load(folders["both"])
    assert facts["pieces"]["tachycardia"] == before.pieces(before.encode("tachycardia").ids)
    assert facts["pieces_per_word"]["after"] == result.after.per_word < result.before.per_word
    assert result.summary().startswith("7 new pieces (no other would be used 3 times): tachycardia, ")


def test_rows_beyond_the_tokenizer_are_used_before_new_ones_are_added(folders, tmp_path):
    tokenizer = Tokenizer.load(folders["mlm"])
    model = Bert(vocabulary=tokenizer.size + 5, dim=16, layers=1, heads=2, hidden=32, length=32).build(
        as_heads({"mlm": 0})
    )
    huggingface.save(tmp_path / "padded", model, tokenizer)
    for pieces, vocabulary in ((3, tokenizer.size + 5), (7, tokenizer.size + 7)):
        out = tmp_path / str(pieces)
        result = vocabulary_extension.extend(tmp_path / "padded", DOMAIN, pieces, out, least=3)
        assert len(result.pieces) == pieces
        grown = huggingface.load(out).model
        assert grown.config.vocabulary == vocabulary
        made_of = tokenizer.encode(result.pieces[0]).ids.tolist()
        old = model.embedding.token.weight
        torch.testing.assert_close(grown.embedding.token.weight[tokenizer.size], old[made_of].mean(0))
        assert torch.equal(grown.embedding.token.weight[tokenizer.size + 7 :], old[tokenizer.size + 7 :])


def test_a_larger_folder_goes_on(folders, extended, tmp_path):
    folder, _ = extended
    built = corpus.build(documents(), tmp_path / "corpus", tokenizer=Tokenizer.load(folder), heldout=0.2)
    Pretrain(config(folder, steps=2), [built.folder], tmp_path / "run").run()
    with pytest.raises(UnmaskError, match="--tokenizer"):
        Pretrain(config(folder), [folders["corpus"]], tmp_path / "other")


def test_nothing_is_written_where_nothing_can_be_learned(folders, tmp_path):
    for name, texts, message in (
        ("mlm", ["the cat sat"], "No new piece"),
        ("mlm", [""], "holds no words"),
        ("roberta", DOMAIN, "byte-level BPE"),
    ):
        with pytest.raises(UnmaskError, match=message):
            vocabulary_extension.extend(folders[name], texts, 5, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(UnmaskError, match="holds something already"):
        vocabulary_extension.extend(folders["mlm"], DOMAIN, 5, tmp_path / "taken")


def test_the_check_shows_what_new_pieces_would_bring(folders, tmp_path):
    tokenizer = Tokenizer.load(folders["mlm"])
    found = vocabulary_extension.check(tokenizer, DOMAIN, GENERAL, pieces=(2, 5))
    assert list(found) == ["this text", "reference", "+2 pieces", "+5 pieces"]
    rates = [f.per_word for f in found.values()]
    assert rates[0] > rates[2] > rates[3] > rates[1]
    result = vocabulary_extension.extend(folders["mlm"], DOMAIN, 5, tmp_path / "out")
    assert result.after == found["+5 pieces"]
    assert list(vocabulary_extension.check(Tokenizer.load(folders["roberta"]), DOMAIN)) == ["this text"]
    few = list(vocabulary_extension.check(tokenizer, DOMAIN, pieces=(1000, 2000)))
    assert len(few) == 2
    assert few[1].startswith("+")


# ------------------------------------------------------------------------------------------------ command line


@pytest.fixture
def domain(tmp_path) -> str:
    (tmp_path / "domain.txt").write_text("\n\n".join(DOMAIN))
    return str(tmp_path / "domain.txt")


def test_from_text_to_an_adapted_model(folders, domain, tmp_path, capsys):
    larger, built, run = (str(tmp_path / name) for name in ("larger", "corpus", "run"))
    text = str(tmp_path / "all.txt")
    Path(text).write_text("\n\n".join(d.text for d in documents()))
    main(["vocabulary", "check", "--model", str(folders["mlm"]), "--data", domain, "--reference", text])
    assert "pieces per word" in capsys.readouterr().out
    main(["vocabulary", "extend", "--model", str(folders["mlm"]), "--data", domain, "--pieces", "4", "--out", larger])
    printed = capsys.readouterr().out
    assert "4 new pieces: " in printed
    assert f"Next: unmask corpus build --tokenizer {larger}" in printed
    main(["corpus", "build", "--data", text, "--tokenizer", larger, "--out", built, "--heldout", "0.2"])
    assert f"Next: unmask pretrain --from {larger} --corpus {built}" in capsys.readouterr().out
    short = ["--steps", "2", "--batch", "2", "--heldout", "2", "--precision", "fp32", "--device", "cpu"]
    main(["pretrain", "--from", larger, "--corpus", built, "--out", run, *short, "--dropout", "0", "--dry-run"])
    assert not Path(run).exists()
    main(["pretrain", "--from", larger, "--corpus", built, "--out", run, *short, "--dropout", "0"])
    assert "at the start" in capsys.readouterr().out
    facts = json.loads((Path(run) / "run.json").read_text())
    assert (facts["recipe"], facts["config"]["model"]["dropout"]) == ("continued", 0.0)
    shutil.rmtree(larger)
    main(["pretrain", "--out", run, "--resume", "--steps", "3"])
    assert "Training from step 2 to 3." in capsys.readouterr().out
    again = json.loads((Path(run) / "run.json").read_text())
    assert again["origin"] == facts["origin"]


@pytest.mark.parametrize("name", recipes.names())
def test_a_run_from_any_folder_is_resumed_with_its_own_kind_of_model(name):
    model = recipes.find(name).model
    begun = replace(recipes.continued(), model=model, start="folder")
    facts = {"recipe": "continued", "model": type(model).__name__, "config": json.loads(json.dumps(begun.to_dict()))}
    assert recipes.choose(None, None, facts) == ("continued", begun)


def test_fields_show_the_sizes_of_the_folder(folders, capsys):
    main(["pretrain", "--from", str(folders["roberta"]), "--fields", "--attention-dropout", "0.3"])
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "--model.layers 2",
        "--model.padding 1",
        "--model.attention_dropout 0.3",
        f"--start {folders['roberta']}",
    ):
        assert line in shown


def test_a_recipe_gives_the_training_and_the_folder_the_model(folders, capsys):
    main(["pretrain", "bert-tiny", "--from", str(folders["mlm"]), "--fields"])
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "--model.dim 16",
        "--model.dropout 0.1",
        "--training.optimizer.lr 0.003",
        "--sentences next",
    ):
        assert line in shown


def test_the_check_as_json(folders, domain, capsys):
    main(["vocabulary", "check", "--model", str(folders["mlm"]), "--data", domain, "--json", "--pieces"])
    facts = json.loads(capsys.readouterr().out)
    assert list(facts) == ["this text"]
    assert facts["this text"]["per_word"] > 1


def test_a_file_of_another_encoding_is_named(folders, domain, tmp_path, capsys):
    """Accents in Latin-1 would be lost, and so would be those of the new pieces."""
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "new.txt").write_text("\n\n".join(DOMAIN))
    (texts / "old.txt").write_bytes("le café est fermé\n".encode("latin-1"))
    model, said = ["--model", str(folders["mlm"])], f"  {texts}/old.txt: passed over, line 1 is not UTF-8 text"
    main(["vocabulary", "check", *model, "--data", domain, "--reference", str(texts)])
    assert said in capsys.readouterr().out
    main(["vocabulary", "extend", *model, "--data", str(texts), "--pieces", "4", "--out", str(tmp_path / "larger")])
    assert said in capsys.readouterr().out
    main(["vocabulary", "check", *model, "--data", str(texts), "--json"])
    printed = capsys.readouterr()
    assert "this text" in json.loads(printed.out)
    assert said in printed.err
    main(["vocabulary", "check", *model, "--data", str(texts), "--encoding", "latin-1"])
    assert "UTF-8" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pretrain", "continued"], "with --from FOLDER"),
        (["pretrain"], "or --from FOLDER"),
        (["pretrain", "--from", "missing", "--corpus", "{corpus}", "--out", "out"], "There is no model folder missing"),
        (["pretrain", "--from", "{mlm}", "--corpus", "{merged}", "--out", "out"], "unmask corpus build --tokenizer"),
        (
            ["pretrain", "--from", "{mlm}", "--corpus", "{corpus}", "--out", "out", "--layers", "3"],
            "keeps the sizes of the model",
        ),
        (["pretrain", "--from", "{mlm}", "--out", "out"], "--corpus FOLDER"),
        (["pretrain", "--from", "{mlm}", "--corpus", "{corpus}"], "--out FOLDER"),
        (["vocabulary"], "required: verb"),
        (["vocabulary", "chekc"], "did you mean 'check'?"),
        (["vocabulary", "check", "--model", "missing", "--data", "{domain}"], "There is no tokenizer missing"),
        (["vocabulary", "check", "--model", "{mlm}", "--data", "missing"], "There is no file or folder missing"),
        (["vocabulary", "check", "--model", "{mlm}"], "required: --data"),
        (["vocabulary", "extend", "--model", "{mlm}", "--data", "{domain}", "--out", "out"], "required: --pieces"),
        (
            ["vocabulary", "extend", "--model", "{mlm}", "--data", "{domain}", "--pieces", "0", "--out", "out"],
            "at least 1, not 0",
        ),
        (
            ["vocabulary", "extend", "--model", "{roberta}", "--data", "{domain}", "--pieces", "3", "--out", "out"],
            "Only WordPiece vocabularies can be extended",
        ),
        (
            ["vocabulary", "extend", "--model", "missing", "--data", "{domain}", "--pieces", "3", "--out", "out"],
            "There is no model folder missing",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_one_sentence(arguments, sentence, folders, domain, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main([argument.format(**folders, domain=domain) for argument in arguments])
    printed = capsys.readouterr()
    assert exit.value.code == 2
    assert printed.err.startswith("unmask: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert not (tmp_path / "out").exists()


def test_a_run_is_not_resumed_from_another_start(folders, tmp_path, capsys):
    Pretrain(config(folders["mlm"], steps=1), [folders["corpus"]], tmp_path / "run").run()
    with pytest.raises(SystemExit):
        main(["pretrain", "--from", str(folders["both"]), "--out", str(tmp_path / "run"), "--resume"])
    assert f"This run started from {folders['mlm']}, not {folders['both']}" in capsys.readouterr().err
