"""Backends: ONNX Runtime and compiled packages answer as PyTorch does; what each folder and task is refused."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from unmask import cli, huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.serve import Predictor, backends
from unmask.serve.http.pool import Pool
from unmask.serve.onnx import OnnxModel, export, graph_in

TEXTS = ["the film was good", "great", "a dull plot, and people talk of it", "good and bad " * 20]
SIZE = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 128, "std": 0.5}


def saved(folder, heads, *, seed=0, **how):
    tokenizer = Tokenizer.train(TEXTS * 5, 60)
    model = Bert(vocabulary=tokenizer.size, **SIZE).build(heads, seed=seed)
    huggingface.save(folder, model, tokenizer, **how)
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The folder of a classifier with its graphs."""
    folder = saved(tmp_path_factory.mktemp("x") / "m", as_heads({"classification": 2}), labels=("bad", "good"))
    export(folder)
    shutil.copyfile(folder / "onnx" / "model.onnx", folder / "onnx" / "model_optimized.onnx")  # fusing takes seconds
    return folder


@pytest.fixture
def folder(classifier, tmp_path):
    return shutil.copytree(classifier, tmp_path / "m")


def probabilities(predictor, texts=TEXTS):
    return np.array([list(answer["scores"].values()) for answer in predictor(texts)])


@pytest.fixture
def timed(monkeypatch):
    """The times that are measured: ONNX Runtime is faster for one text, PyTorch for many."""
    calls = []

    def measured(models, B, T):
        calls.append((B, T))
        return {"torch": 2.0, "onnx": 1.0} if B == 1 else {"torch": 1.0, "onnx": 2.0}

    monkeypatch.setattr(backends, "_measured", measured)
    return calls


def test_the_graphs_lie_in_the_folder_of_their_model_and_nothing_beside_them(classifier):
    assert {path.name for path in (classifier / "onnx").iterdir()} == {"model.onnx", "model_optimized.onnx"}


def test_onnx_runtime_answers_as_pytorch(folder):
    found = Predictor(folder, backend="onnx", precision="bf16")
    assert found.settled.precision == "fp32"
    wanted = Predictor(folder, precision="fp32")
    np.testing.assert_allclose(probabilities(found), probabilities(wanted), atol=1e-6)
    assert probabilities(found).std() > 0.01  # the texts differ


def test_batches_of_several_threads_are_answered_by_sessions_of_their_own(folder):
    wanted = probabilities(Predictor(folder, precision="fp32"), TEXTS * 20)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        predictor = Predictor(folder, backend="onnx")
        np.testing.assert_allclose(probabilities(predictor, TEXTS * 20), wanted, atol=1e-6)
        assert set(predictor.layout.sessions) == {1, 2}
    finally:
        torch.set_num_threads(threads)


def test_auto_keeps_the_faster_backend_for_each_size(folder, timed):
    predictor = Predictor(folder, backend="auto", precision="fp32")
    assert "One text is answered by ONNX Runtime in fp32, many by PyTorch in fp32" in predictor.settled.note
    assert isinstance(predictor.layout.alone, OnnxModel)
    wanted = Predictor(folder, precision="fp32")
    used = []
    predictor.layout.alone.register_forward_hook(lambda *_: used.append("onnx"))
    predictor.layout.together.register_forward_hook(lambda *_: used.append("torch"))
    for texts in (TEXTS[:1], TEXTS * 10):
        np.testing.assert_allclose(probabilities(predictor, texts), probabilities(wanted, texts), atol=1e-6)
    assert used[0] == "onnx"
    assert "torch" in used[1:]


def test_times_are_measured_once_for_a_processor_and_kept_beside_the_graph(folder, timed):
    Predictor(folder, backend="auto")
    assert timed == [(1, 16), (8, 64)]
    Predictor(folder, backend="auto")
    assert len(timed) == 2
    [[key, times]] = json.loads((folder / "onnx" / "backends.json").read_text()).items()
    assert "threads" in key
    assert times["alone"] == {"torch": 2.0, "onnx": 1.0}
    (folder / "onnx" / "backends.json").write_text(json.dumps({key: "nothing"}))
    Predictor(folder, backend="auto")
    assert len(timed) == 4


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the administrator writes anywhere")
def test_a_folder_that_cannot_be_written_is_measured_each_time(folder, timed):
    (folder / "onnx").chmod(0o500)
    Predictor(folder, backend="auto")
    Predictor(folder, backend="auto")
    assert len(timed) == 4


def test_measured_times_are_times(folder):
    predictor = Predictor(folder, precision="fp32")
    found = backends._measured({"torch": predictor.layout}, 2, 400)  # of texts as long as the model reads
    assert 0 < found["torch"] < 1e4


def test_a_folder_without_a_graph_says_which_command_writes_it(folder):
    shutil.rmtree(folder / "onnx")
    with pytest.raises(UnmaskError, match="write one with unmask export --model"):
        Predictor(folder, backend="onnx")
    found = Predictor(folder, backend="auto")
    assert "PyTorch computes all answers: " in found.settled.note
    assert probabilities(found).shape == (4, 2)


def test_a_graph_of_other_weights_is_refused(folder):
    saved(folder, as_heads({"classification": 2}), seed=1, labels=("bad", "good"))
    with pytest.raises(UnmaskError, match=r"model_optimized.onnx is not of the weights beside it"):
        Predictor(folder, backend="onnx")


def test_a_new_export_removes_the_times(folder, timed, monkeypatch):
    Predictor(folder, backend="auto")
    graph = (folder / "onnx" / "model.onnx").read_bytes()
    monkeypatch.setattr("unmask.serve.onnx.folder.write", lambda _, path: path.write_bytes(graph))
    export(folder)
    assert [path.name for path in (folder / "onnx").iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("content", ["{", "[]", "not JSON", None])
def test_damaged_times_are_measured_again(folder, timed, content):
    Predictor(folder, backend="auto")
    kept = folder / "onnx" / "backends.json"
    text = kept.read_text()
    kept.write_text(text.replace("2.0", '"fast"') if content is None else content)
    Predictor(folder, backend="auto")
    assert len(timed) == 4
    assert kept.read_text() == text


def test_a_folder_without_a_graph_is_told_how_to_get_one(tmp_path):
    with pytest.raises(UnmaskError, match=r"write one with unmask export --model '\S+/my model'\.$"):
        graph_in(tmp_path / "my model")
    with pytest.raises(UnmaskError, match=r"copy the model out of the cache of the hub, and then write one"):
        graph_in(tmp_path / "models--ann--small" / "snapshots" / "main")


def test_auto_answers_by_pytorch_where_the_graph_lacks_a_head(tmp_path):
    both = saved(tmp_path / "m", as_heads({"mlm": 0, "nsp": 2}))
    assert "answers also by nsp" in Predictor(both, backend="auto").settled.note


def test_a_model_that_writes_has_no_other_backend():
    with pytest.raises(UnmaskError, match="Only encoders have other backends"):
        backends.require_torch("onnx", "runs/x")
    backends.require_torch("auto", "runs/x")


def test_the_service_takes_a_backend(folder):
    served = Pool([folder], backend="onnx").get()
    assert isinstance(served.predictor.layout, OnnxModel)


def test_the_commands_take_a_backend(folder, capsys):
    cli.main(["predict", "--model", str(folder), "--backend", "onnx", "--json", "great"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["label"] in ("bad", "good")
    assert printed.err == "Computed in fp32 by ONNX Runtime.\n"
    with pytest.raises(SystemExit):
        cli.main(["embed", "--model", str(folder), "--out", "x.npy", "--backend", "tensorflow"])
    assert "torch, onnx, auto or a file FILE.pt2, not 'tensorflow'" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------ AOTInductor


@pytest.mark.slow  # a compiler takes half a minute
def test_a_compiled_package_answers_as_the_model(folder, tmp_path, capsys):
    cli.main(["export", "--model", str(folder), "--format", "aoti"])
    package = folder / "compiled" / "model.pt2"
    assert f"--backend {package}" in capsys.readouterr().out
    predictor = Predictor(folder, backend=package)
    assert str(package) in predictor.settled.note
    wanted = Predictor(folder, precision="fp32")
    for texts in (TEXTS, TEXTS[:1], TEXTS * 20):
        np.testing.assert_allclose(probabilities(predictor, texts), probabilities(wanted, texts), atol=1e-5)
    saved(folder, as_heads({"classification": 2}), seed=1, labels=("bad", "good"))
    with pytest.raises(UnmaskError, match=r"model.pt2 is not of the weights beside it"):
        Predictor(folder, backend=package)


def test_without_a_compiler_it_says_what_to_install(folder, monkeypatch):
    from torch._inductor import cpp_builder

    from unmask.serve.compiled import export_compiled

    def absent():
        raise RuntimeError("none")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", absent)
    with pytest.raises(UnmaskError, match=r"needs a C\+\+ compiler, such as g\+\+"):
        export_compiled(folder)
    assert not (folder / "compiled").exists()


def test_a_package_is_never_found_in_a_folder_and_a_damaged_one_is_named(folder):
    (folder / "model.pt2").write_bytes(b"nothing")
    for backend in ("torch", "onnx", "auto"):
        Predictor(folder, backend=backend)
    with pytest.raises(UnmaskError, match=r"model.pt2 cannot be opened"):
        Predictor(folder, backend=folder / "model.pt2")
    with pytest.raises(UnmaskError, match="There is no file"):
        Predictor(folder, backend=folder / "other.pt2")


@pytest.mark.parametrize(("format", "option"), [("aoti", "--int8"), ("aoti", "--fuse"), ("gguf", "--fuse")])
def test_options_of_other_formats_are_refused(folder, format, option, capsys):
    with pytest.raises(SystemExit):
        cli.main(["export", "--model", str(folder), "--format", format, option])
    assert f"{option} has no effect with --format {format}" in capsys.readouterr().err
