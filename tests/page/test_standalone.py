"""Views as files that stand alone: nothing leaves them, nothing in the data can run, modules are linked once."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.cli import main
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface import save
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.visualize.standalone import FOLDER, linked, safe_json, standalone

TEXT = "the animal did not cross the street because it was too tired"
EVIL = '</script><img src=x onerror="document.title=1"><!--'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer.train([TEXT] * 3, 150)
    config = Bert(vocabulary=tokenizer.size, dim=16, layers=2, heads=2, hidden=32, length=40)
    save(place, config.build(as_heads({"mlm": 0})), tokenizer)
    return place


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda x: st.lists(x), max_leaves=5))
def test_json_comes_back_and_ends_no_element(value):
    text = safe_json({"a": value, "b": EVIL})
    assert json.loads(text) == {"a": value, "b": EVIL}
    assert not re.search("[<>&\u2028\u2029]", text)


def test_the_policy_names_what_is_there():
    page = standalone("a < b", {"view": "masks", "masks": [], "text": EVIL, "details": [{"text": EVIL}]})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'")
    for kind, pattern in (("style", r"<style>(.*?)</style>"), ("script", r"<script>(.*?)</script>")):
        inside = re.search(pattern, page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert page.count("<script") == page.count("</script>") == 3
    assert EVIL not in page
    assert "<title>a &lt; b</title>" in page


def test_modules_are_linked_once_and_whole():
    script = linked("alone.js")
    for module in ("dom", "matrix", "chart", "attention", "beam", "words", "inside", "runs", "timeline", "recording"):
        assert script.count(f"const ${module} = ") == 1
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert script.index("const $dom = ") < script.index("const $matrix = ") < script.index("const $attention = ")


def test_the_page_asks_nobody_else_and_makes_no_markup():
    sources = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert {"index.html", "app.js", "style.css"} <= sources.keys()
    for name, text in sources.items():
        assert len(text.splitlines()) <= 400, name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text), (
            name
        )
    assert not re.search(r"<script(?! type=\"module\" src=)|\son\w+=|style=", sources["index.html"])


def _contrast(a: str, b: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_keep_their_contrast():
    """WCAG 2.2 AA: 4.5 for text, 3 for lines and marks, by day and in the dark."""
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    schemes = [
        dict(re.findall(r"--([\w]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)
    ]
    assert len(schemes) == 2
    for colours in schemes:
        for text in ("ink", "soft", "bad"):
            assert min(_contrast(colours[text], colours[back]) for back in ("back", "card")) >= 4.5, text
        assert _contrast(colours["on"], colours["accent"]) >= 4.5
        assert min(_contrast(colours["edge"], colours[back]) for back in ("back", "card")) >= 3  # of fields and buttons
        for i in range(8):
            assert _contrast(colours[f"s{i}"], colours["card"]) >= 3
            assert _contrast(colours["on"], colours[f"s{i}"]) >= 4.5, f"s{i}"  # a pressed chip


VIEWS = {
    "attention": [TEXT, "--layer", "2", "--heads", "1"],
    "embeddings": ["street", "animal", "--count", "12"],
    "positions": [],
    "masking": [TEXT, "--draws", "2"],
    "wordpiece": [TEXT],
    "masks": [TEXT, "--pair", "it was"],
}


@pytest.mark.parametrize("view", VIEWS)
def test_show_writes_a_page(view, folder, tmp_path, capsys):
    out = tmp_path / "view.html"
    main(["show", view, "--model", str(folder), *VIEWS[view], "--out", str(out)])
    data = json.loads(re.search(r'id="data">(.*?)</script>', out.read_text(encoding="utf-8"), re.S)[1])
    assert data["view"] == {"embeddings": "words"}.get(view, view)
    assert str(out) in capsys.readouterr().out
    if view == "attention":
        assert data["start"] == {"layer": 1, "heads": [0], "mode": "heads"}
        page = out.read_text(encoding="utf-8")
        details = [json.loads(one) for one in re.findall(r'id="detail-\d">(.*?)</script>', page, re.S)]
        assert [(one["layer"], one["heads"]) for one in details] == [(0, [0]), (0, [1]), (1, [0]), (1, [1])]
        assert page.index("<script>") < page.index('id="detail-0"')  # drawn before the numbers are read


def test_show_writes_pages_of_what_writes_and_of_runs(folders, tmp_path):
    asked = {
        "beam": ["beam", "--model", str(folders.place / "writer"), "the animal", "--beam-size", "2", "--length", "5"],
        "following": ["beam", "--model", str(folders.place / "lm"), "the", "--beam-size", "2", "--length", "5"],
        "runs": ["run", str(folders.runs / "first"), str(folders.runs / "second")],
        "attention": ["attention", "--model", str(folders.place / "writer"), "the animal", "--kind", "decoder"],
        "endless": ["attention", "--model", str(folders.place / "t5"), "the animal"],
        "masking": ["masking", "--model", str(folders.place / "t5"), "the animal was tired"],
        "wordpiece": ["wordpiece", "--model", str(folders.place / "t5"), "the animal"],
        "masks": ["masks", "--model", str(folders.place / "t5"), "the animal"],
        "words": ["embeddings", "--model", str(folders.place / "t5"), "animal", "--count", "9"],
    }
    for name, arguments in asked.items():
        out = tmp_path / f"{name}.html"
        main(["show", *arguments, "--out", str(out)])
        data = json.loads(re.search(r'id="data">(.*?)</script>', out.read_text(encoding="utf-8"), re.S)[1])
        assert data["view"] == {"following": "beam", "endless": "attention", "masking": "spans"}.get(name, name)


def test_show_writes_pictures(folder, tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("one.png", "one.svg"):
        main(["show", "attention", "--model", str(folder), TEXT, "--out", str(tmp_path / name)])
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "one.svg").read_text(encoding="utf-8")
    main(
        [
            "show",
            "embeddings",
            "--model",
            str(folder),
            "--in",
            TEXT,
            f"{TEXT} $",
            "--out",
            str(tmp_path / "w.png"),
            "--",
            "it",
        ]
    )
    assert (tmp_path / "w.png").stat().st_size > 1000


BAD = [
    (["attention", TEXT, "--layer", "3"], "no layer 3: the model has 2, counted from 1"),
    (["attention", TEXT, "--heads", "0"], "no head 0"),
    (["attention", ""], "nothing to read: give a text"),
    (["beam", TEXT], "needs a model that writes"),
    (["masking", TEXT, "--rate", "2"], "rate between 0 and 1"),
    (["embeddings", "zebra"], "no vector for 'zebra'"),
    (["embeddings", "a", "b", "--in", TEXT], "Give one word before --in"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_show_says_what_is_wrong(arguments, message, folder, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["show", arguments[0], "--model", str(folder), "--out", str(tmp_path / "x.html"), *arguments[1:]])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_show_refuses_other_files(folder, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["show", "positions", "--out", str(tmp_path / "x.pdf")])
    assert "end in .html, .png or .svg" in capsys.readouterr().err
