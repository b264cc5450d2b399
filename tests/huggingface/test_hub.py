"""Models by their names on the hub: from its cache without a network, and one sentence where they cannot be had."""

from __future__ import annotations

import shutil
import sys

import pytest

import unmask
from unmask import huggingface
from unmask.cli import main
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface import hub
from unmask.models.bert import Bert

NAME, REVISION = "somebody/small-bert", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def trunk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    tokenizer = Tokenizer.train(["some words of a small model"] * 9, 60)
    model = Bert(vocabulary=tokenizer.size, length=16, layers=1, dim=8, heads=2, hidden=16).build()
    huggingface.save(folder, model, tokenizer)
    return folder


@pytest.fixture
def asked(trunk, monkeypatch, tmp_path):
    """What the library is asked for; it gives a folder of its cache, as it does once a model was downloaded."""
    package = pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    asked = []

    def snapshot_download(name, *, revision, allow_patterns):
        asked.append((name, revision))
        folder = tmp_path / "cache" / (revision or REVISION)
        if not folder.exists():
            ignore = shutil.ignore_patterns("*.safetensors") if "*.safetensors" not in allow_patterns else None
            shutil.copytree(trunk, folder, ignore=ignore)
        return str(folder)

    monkeypatch.setattr(package, "snapshot_download", snapshot_download)
    return asked


def test_a_name_is_no_folder_and_no_path_of_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "google").mkdir()
    (tmp_path / "google" / "bert").mkdir()
    for name in ("somebody/model", "somebody/model@main", "hub:bert-base-uncased", "hub:google/bert"):
        assert hub.is_name(name)
    for path in ("runs/mine", "google/bert", "missing", "a/b/c", "./a", "../a", "/a/b", tmp_path, "a b/c", ""):
        assert not hub.is_name(path)
        assert str(hub.model_folder(path)) == str(tmp_path.__class__(path))


def test_models_are_read_by_name(asked):
    assert unmask.load(NAME).config.dim == 8
    assert len(unmask.Predictor(f"hub:{NAME}@v1")(["some [MASK] of"])) == 1
    assert huggingface.config_of(f"{NAME}@v1").dim == 8
    assert asked == [(NAME, None), (NAME, "v1"), (NAME, "v1")]


@pytest.mark.parametrize(
    ("arguments", "times"),
    [
        (["predict", "--model", NAME, "some [MASK] of"], 1),
        (["vocabulary", "check", "--model", NAME, "--data", "text.txt"], 1),
        (["corpus", "build", "--tokenizer", NAME, "--data", "text.txt", "--out", "corpus"], 1),
        (["pretrain", "--from", NAME, "--teacher", f"hub:{NAME}", "--fields"], 2),
        (["finetune", "--model", NAME, "--fields"], 1),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_every_verb_takes_a_name_for_a_folder(arguments, times, asked, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("some words\n\nof a model\n\nsmall words\n")
    main(arguments)
    assert asked == [(NAME, None)] * times
    if "--fields" in arguments:
        assert str(tmp_path / "cache" / REVISION) in capsys.readouterr().out


def test_a_served_model_is_called_as_on_the_hub(asked, monkeypatch):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    names = []
    monkeypatch.setattr("unmask.serve.http.server.run", lambda app, host, port, begun: begun("here"))
    monkeypatch.setattr("unmask.cli.serve._begun", lambda address, pool: names.extend(pool.names()))
    main(["serve", "--model", NAME, f"other=hub:{NAME}@v1"])
    assert names == ["small-bert", "other"]


def test_a_name_that_cannot_be_read_is_one_sentence(asked, monkeypatch, capsys):
    import huggingface_hub
    from huggingface_hub import errors

    def failing(error):
        def snapshot_download(*_, **__):
            raise error

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)

    def made(kind):  # those of answers want an answer
        return kind.__new__(kind)

    for error, why in (
        (made(errors.RepositoryNotFoundError), "has no model of this name"),
        (made(errors.GatedRepoError), "is gated: request access on its page"),
        (made(errors.RevisionNotFoundError), "has no revision v1"),
        (
            errors.LocalEntryNotFoundError("no network"),
            "hub does not answer, and its cache does not hold the model",
        ),
        (errors.OfflineModeIsEnabled("offline"), "hub does not answer, and its cache does not hold the model"),
        (errors.HFValidationError("a\nb"), "hub failed: a."),
    ):
        failing(error)
        with pytest.raises(UnmaskError, match=f"^There is no model folder {NAME}@v1, and .*{why}"):
            hub.model_folder(f"{NAME}@v1")
    with pytest.raises(SystemExit):
        main(["predict", "--model", NAME, "a text"])
    assert capsys.readouterr().err.count("\n") == 1


def test_the_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UnmaskError, match=rf"no model folder {NAME}, .* run pip install 'unmask\[hub\]'"):
        unmask.load(NAME)


def test_what_was_downloaded_is_read_without_a_network(trunk, tmp_path, monkeypatch):
    package = pytest.importorskip("huggingface_hub")
    place = tmp_path / f"models--{NAME.replace('/', '--')}"
    shutil.copytree(trunk, place / "snapshots" / REVISION)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(REVISION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(package.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(package.constants, "HF_HUB_OFFLINE", True)
    assert hub.model_folder(NAME).samefile(place / "snapshots" / REVISION)
    assert hub.model_folder(f"{NAME}@{REVISION}") == hub.model_folder(NAME)
