"""Uploads to a stand-in of the hub that speaks its endpoints: what arrives, what stays, and the model by its name."""

from __future__ import annotations

import ast
import base64
import json
import re
import shlex
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
import yaml

import unmask
from unmask import huggingface
from unmask.cli import main
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.card import Card, Opened, Score, render, write_card
from unmask.huggingface.hub import name_of
from unmask.huggingface.opening import opened_by
from unmask.huggingface.push import OF_TRAINING, push, upload_of
from unmask.models.bert import Bert
from unmask.train.checkpoint import BEGUN, RUN

package = pytest.importorskip("huggingface_hub")
NAME, SHA = "ann/small-bert", "0123456789abcdef0123456789abcdef01234567"
PLACES = "/{repo_id}/resolve/{revision}/{filename}"


class Hub(BaseHTTPRequestHandler):
    """The endpoints that `huggingface_hub` asks for one upload and one download."""

    protocol_version = "HTTP/1.1"
    refused: int | None = None  # status of an answer to every change
    seen: list
    files: dict

    def log_message(self, *_):
        pass

    def answer(self, value, status=200, **headers):
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, one in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), one)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def change(self):
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        here = f"http://{self.headers['Host']}"
        given = [json.loads(line) for line in content.splitlines()] if content else [{}]
        self.seen.append((self.command, self.path, given[0]))
        if self.refused:
            return self.answer({"error": "no"}, self.refused)
        if self.path.endswith("/repos/create"):
            return self.answer({"url": f"{here}/{NAME}"})
        if "/preupload/" in self.path:
            files = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in given[0]["files"]]
            return self.answer({"files": files})
        if "/commit/" in self.path:
            self.seen[-1] = (self.command, self.path, given[0]["value"])
            self.files |= {
                one["value"]["path"]: base64.b64decode(one["value"]["content"]) for one in given if one["key"] == "file"
            }
            return self.answer({"commitUrl": f"{here}/{NAME}/commit/{SHA}", "commitOid": SHA})
        return self.answer({"errors": [], "warnings": []})

    do_POST = do_PUT = change

    def do_GET(self):
        if self.refused:
            return self.answer({"error": "no"}, self.refused)
        if "/tree/" in self.path:
            facts = {"type": "file", "oid": SHA}
            return self.answer([{**facts, "path": name, "size": len(one)} for name, one in self.files.items()])
        if self.path.startswith(f"/api/models/{NAME}"):
            return self.answer({"id": NAME, "sha": SHA, "siblings": [{"rfilename": name} for name in self.files]})
        content = self.files.get(self.path.partition(f"/resolve/{SHA}/")[2].partition("?")[0])
        if content is None:
            return self.answer({}, 404, X_Error_Code="RepoNotFound")
        return self.answer(content, ETag=f'"{hash(content):x}"', X_Repo_Commit=SHA)

    do_HEAD = do_GET


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The stand-in; the command line uploads to it, and models are downloaded from it."""
    handler = type("Here", (Hub,), {"seen": [], "files": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    for name, value in {"ENDPOINT": endpoint, "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + PLACES}.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)  # the library reads addresses of this hub alone
    monkeypatch.setattr(package, "HfApi", partial(package.HfApi, endpoint=endpoint, token="hf_ann"))
    how = {"endpoint": endpoint, "cache_dir": tmp_path / "cache", "token": False}
    monkeypatch.setattr(package, "snapshot_download", partial(package.snapshot_download, **how))
    yield handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path):
    """A finished run."""
    folder = tmp_path / "mine"
    tokenizer = Tokenizer.train(["some words of a small model"] * 9, 60)
    model = Bert(vocabulary=tokenizer.size, length=16, layers=1, dim=8, heads=2, hidden=16).build()
    huggingface.save(folder, model, tokenizer)
    command = ("predict", "'some [MASK] words'")
    write_card(folder, Card(pipeline="fill-mask", command=command), opened_by(folder, "fill-mask"))
    for name in ("checkpoints/step-00000001/optimizer.safetensors", "best/model.safetensors", "seeds/0/metrics.jsonl"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("x")
    for name in ("metrics.jsonl", "samples.jsonl", "report.html", "run.json", "picture.png", ".lock"):
        (folder / name).write_text("{}")
    return folder


def seen_by(asked):
    """Who sees a repository; older versions of the library ask whether it is private."""
    return asked["visibility"] if "visibility" in asked else ("public", "private")[asked["private"]]


def test_a_folder_arrives_and_is_read_by_its_name(folder, hub, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["push", str(folder), NAME, "--license", "mit", "--language", "en"])
    *_, uploaded, following = capsys.readouterr().out.splitlines()
    assert uploaded.endswith(f"/{NAME}")
    assert following.startswith(f"Next: unmask predict --model {NAME} ")
    assert hub.seen[0][:2] == ("POST", "/api/repos/create")
    assert seen_by(hub.seen[0][2]) == "private"
    assert hub.seen[-1][2]["summary"] == "Upload mine with unmask"
    model_files = {"config.json", "model.safetensors", "tokenizer.json", "manifest.json"}
    assert model_files <= hub.files.keys()
    assert {"README.md", "run.json"} == hub.files.keys() - model_files - {
        "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"
    }  # fmt: skip
    card = package.ModelCard(hub.files["README.md"].decode())
    assert (card.data.license, card.data.language, card.data.pipeline_tag) == ("mit", "en", "fill-mask")
    assert f'pipeline("fill-mask", model="{NAME}")' in card.text
    mine, theirs = unmask.load(folder).state_dict(), unmask.load(f"{NAME}@main").state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert name_of(huggingface.hub.model_folder(NAME)) == NAME


def test_who_sees_it_which_branch_and_which_message(folder, hub):
    main(["push", str(folder), NAME, "--public", "--revision", "v1", "--message", "The first one"])
    asked = {path: (verb, content) for verb, path, content in hub.seen}
    assert seen_by(asked["/api/repos/create"][1]) == seen_by(asked[f"/api/models/{NAME}/settings"][1]) == "public"
    assert f"/api/models/{NAME}/branch/v1" in asked
    assert asked[f"/api/models/{NAME}/commit/v1"][1]["summary"] == "The first one"


@pytest.mark.parametrize(
    ("license", "said"),
    [
        ("Apache 2.0", "did you mean 'apache-2.0'?"),
        ("MIT", "did you mean 'mit'?"),
        ("house rules", "'house rules'. For one that"),
    ],
)
def test_a_license_that_the_hub_does_not_know(folder, license, said):
    with pytest.raises(UnmaskError, match=re.escape(said)):
        upload_of(folder, NAME, {"license": license})


def test_a_dry_run_lists_what_stays_and_asks_nobody(folder, hub, capsys):
    main(["push", str(folder), NAME, "--dry-run"])
    listed = capsys.readouterr().out
    assert hub.seen == []
    uploaded, stays = listed.split("Not uploaded:\n")
    for name in ("checkpoints/: weights and optimizer", "best/:", "seeds/:", "metrics.jsonl:", "picture.png: no part"):
        assert f"  {name}" in stays
    assert ".lock" not in listed
    size = (folder / "model.safetensors").stat().st_size
    assert f"{size / 1000:.3g} kB  model.safetensors" in uploaded


def test_only_files_of_the_model_are_uploaded_at_any_depth(folder):
    before = upload_of(folder, NAME, {}).files.keys()
    stays = {
        "data/train.json": "data/",
        "wandb/wandb-metadata.json": "wandb/",
        "search/checkpoints/step-00000001/model.safetensors": "search/",
        "onnx/backends.json": "onnx/backends.json",
        "generator/checkpoints/model.safetensors": "generator/checkpoints/",
        "generator/data/rows.json": "generator/data/",
        "1_Pooling/notes.txt": "1_Pooling/notes.txt",
        **{name: name for name in ("notes.txt", "notes.md", "trackers.json", "curve.json", "onnx/model.pt2")},
    }
    kept = ("onnx/model.onnx", "gguf/model-F16.gguf", "generator/config.json", "1_Pooling/config.json", "LICENSE")
    for name in (*stays, *kept):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    upload = upload_of(folder, NAME, {})
    assert upload.files.keys() - before == set(kept)
    assert set(stays.values()) <= upload.left_out.keys()
    assert BEGUN - {RUN} <= OF_TRAINING.keys()


@pytest.mark.parametrize("old", ["my model", "modèle", "it's", "plain"])
def test_an_example_opens_the_model_by_its_new_name_whatever_it_was(tmp_path, old):
    tokenizer = Tokenizer.train(["some words"] * 9, 40)
    model = Bert(vocabulary=tokenizer.size, length=16, layers=1, dim=8, heads=2, hidden=16).build()
    huggingface.save(tmp_path / old, model, tokenizer)
    for command, pipeline in ((("predict", "'a text'"), "fill-mask"), (("serve", ""), "")):
        write_card(tmp_path / old, Card(command=command), opened_by(tmp_path / old, pipeline))
        for folder, text in (
            (old, (tmp_path / old / "README.md").read_text()),
            (NAME, upload_of(tmp_path / old, NAME, {}).files["README.md"].decode()),
        ):
            [shell] = re.findall(r"```bash\nunmask (.*?)\n```", text)
            assert shlex.split(shell)[:3] == [command[0], "--model", folder]
            [python] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
            strings = {node.value for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Constant)}
            assert folder in strings
            assert json.dumps(folder, ensure_ascii=False) in python


def test_a_score_that_is_no_number_is_not_in_the_metadata():
    scores = [Score("rows", "dev", f"m{value}", value) for value in (0.5, float("nan"), float("inf"))]
    text = render("mine", Card(scores=scores), Opened([], "unmask", {}))
    assert yaml.safe_load(text.split("---\n")[1])["metrics"] == ["m0.5"]


def test_a_card_that_is_no_text_is_one_sentence(folder):
    (folder / "README.md").write_bytes(b"---\nlicense: mit\n---\n# caf\xe9\n")
    with pytest.raises(UnmaskError, match=r"README\.md cannot be read: 'utf-8' codec"):
        upload_of(folder, NAME, {"license": "mit"})


@pytest.mark.parametrize(
    ("status", "why"),
    [(401, "refuses it: log in with hf auth login"), (403, "refuses it"), (500, "the upload failed: ")],
)
def test_a_refusal_is_one_sentence(folder, hub, status, why, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.refused = status
    with pytest.raises(UnmaskError, match=f"mine was not uploaded to {NAME}, and .*{why}") as caught:
        push(upload_of(folder, NAME, {}), NAME, api=package.HfApi())
    assert "\n" not in str(caught.value)


def test_a_hub_that_cannot_be_reached_is_one_sentence(folder):
    with pytest.raises(UnmaskError, match=f"mine was not uploaded to {NAME}, and the upload failed: ") as caught:
        push(upload_of(folder, NAME, {}), NAME, api=package.HfApi(endpoint="http://127.0.0.1:9", token="hf_x"))
    assert "\n" not in str(caught.value)


def test_what_is_no_model_or_no_name_is_refused(folder, tmp_path, capsys):
    for arguments, why in (
        ([str(tmp_path), NAME], "it has no config.json"),
        ([str(folder), "a/b/c"], "'a/b/c' is not a valid name on the Hugging Face hub"),
    ):
        with pytest.raises(SystemExit):
            main(["push", *arguments])
        assert why in capsys.readouterr().err
    (folder / "config.json").write_text("{}")
    with pytest.raises(UnmaskError, match="does not match its checksum"):
        upload_of(folder, NAME, {})
