"""What the page shows of a model by itself, in a real browser: examples, the address, dev rows, comparison, files."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from unmask import huggingface
from unmask.nn import record_attention
from unmask.visualize import attention, reading

pytestmark = pytest.mark.browser
TEXT = "the law was just"
TABS = [
    ("bert", "try"),
    ("judged", "rows"),
    ("bert", "attention"),
    ("bert", "compare"),
    ("bert", "words"),
    ("lm", "beam"),
    ("bert", "inside"),
    ("bert", "runs"),
    ("judged", "try"),
    ("lm", "try"),
    ("pictures", "try"),
    ("waves", "try"),
    ("bert", "inside?topic=neurons"),
    ("bert", "inside?topic=block"),
    ("bert", "attention?view=heads&layer=2"),
    ("bert", "attention?view=matrix&layer=2"),
]


@pytest.fixture
def visit(page, address):
    def go(model, tab, **fields):
        said = "&".join(f"{name}={value}" for name, value in {"model": model, **fields}.items())
        page.goto("about:blank")
        page.goto(f"{address}/#{tab}{'&' if '?' in tab else '?'}{said}")
        page.locator("[role='tab'][aria-selected='true']").wait_for()
        page.wait_for_timeout(150)
        until(page, "!document.querySelector('.busy, [aria-busy]')")
        return page

    return go


def until(page, condition):
    """Wait for a condition of the page. `wait_for_function` would need `eval`, which the policy of the page forbids."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"{condition} did not come true")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe checks accessibility").Axe()
    wrong = {}
    for model, tab in TABS:
        page.emulate_media(color_scheme=scheme)
        visit(model, tab)
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        found = axe.run(page)
        for one in found.response["violations"]:
            wrong[f"{model} {tab}: {one['id']}"] = [node["html"] for node in one["nodes"]]
    assert wrong == {}


def test_an_example_is_answered_on_load(visit):
    page = visit("judged", "try")
    assert page.get_by_role("textbox", name="Text", exact=True).input_value() == "the law was just and too tired"
    page.locator(".bars li").first.wait_for()
    page.get_by_role("group", name="Examples").get_by_role("button").nth(1).click()
    until(page, "document.querySelector('textarea').value === 'the animal did not cross the street'")
    assert "text=the+animal+did" in page.url
    page.go_back()
    until(page, "document.querySelector('textarea')?.value === 'the law was just and too tired'")


def test_the_address_restores_a_view(visit):
    page = visit("bert", "attention", text=TEXT.replace(" ", "+"))
    page.get_by_role("button", name="Layer 3, head 2").click()
    page.get_by_role("button", name="Head 4", exact=True).click()
    page.get_by_text("(mean of the heads)").wait_for()
    said = page.locator(".readout").inner_text()
    assert "layer=3&head=2%2C4" in page.url
    page.reload()
    page.get_by_text("(mean of the heads)").wait_for()
    assert page.locator(".readout").inner_text() == said
    page.get_by_role("tab", name="Words").click()
    page.locator("canvas.cloud").wait_for()
    page.go_back()
    page.get_by_text("(mean of the heads)").wait_for()
    assert page.locator(".readout").inner_text() == said


def test_a_damaged_address_shows_the_first_tab(visit):
    page = visit("judged", "%")
    assert page.locator("[role='tab'][aria-selected='true']").inner_text() == "Try it"


def test_dev_rows_lead_to_their_attention(visit):
    page = visit("judged", "rows")
    errors = [float(one) for one in page.locator(".rows .wrong td:first-child").all_inner_texts()]
    assert len(errors) == 3
    assert errors == sorted(errors, reverse=True)
    assert page.locator(".rows tbody tr").count() == 8
    page.get_by_role("combobox", name="Show").select_option("wrong")
    assert page.locator(".rows tbody tr").count() == 3
    page.get_by_role("img", name="Confusion").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")  # bad, and found to be
    until(page, "!document.querySelector('.rows .wrong')")
    assert page.locator(".rows tbody tr").count() == 4
    text = page.locator(".rows tbody tr td:nth-child(4)").first.inner_text()
    page.locator(".rows").get_by_role("button", name="Attention").first.click()
    page.locator(".thumb").first.wait_for()
    assert page.get_by_role("textbox", name="Text", exact=True).input_value() == text


def test_two_texts_are_compared(visit, folders):
    page = visit("bert", "compare", text="the+law+was+just", second="the+street+was+just", layer=2, head=3)
    page.get_by_role("img", name="Difference of attention").focus()
    loaded = huggingface.load(folders.place / "bert")
    sides = [
        attention.weights(loaded.model, reading.read(loaded.model, loaded.tokenizer, text).batch, "encoder", [1])[0][2]
        for text in (TEXT, "the street was just")
    ]
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    told = page.locator(".matrix", has=page.get_by_role("img", name="Difference of attention")).locator(".readout")
    assert float(told.inner_text().split()[-1]) == pytest.approx((sides[1] - sides[0])[1, 1], abs=2e-3)


def test_temperature_one_is_the_model(visit, folders):
    page = visit("bert", "inside?topic=block", text=TEXT.replace(" ", "+"), layer=2, head=1)
    loaded = huggingface.load(folders.place / "bert")
    read = reading.read(loaded.model, loaded.tokenizer, TEXT)
    with record_attention(loaded.model) as maps:
        loaded.model.eval()(read.batch)
    weights = maps[1].weights[0, 0, len(read.tokens) // 2].tolist()
    bars = page.locator("#view ol.bars").nth(1).locator("output")
    assert bars.first.inner_text() == f"{100 * max(weights):.{0 if max(weights) > 0.1 else 1}f} %"
    slider = page.get_by_label("Temperature")
    slider.focus()
    slider.press("Home")
    cold = np.array(weights) ** 4 / (np.array(weights) ** 4).sum()
    assert bars.first.inner_text() == f"{100 * cold.max():.0f} %"


def test_an_answer_is_used_elsewhere(visit, address, tmp_path):
    page = visit("judged", "try")
    page.get_by_text("Use this answer").click()
    code = page.get_by_role("group", name="The request as a command")
    page.get_by_role("radio", name="Python").click()
    said = subprocess.run([sys.executable, "-c", code.inner_text()], capture_output=True, text=True, timeout=60)
    answers = {}
    for kind in ("JSON", "CSV", "PNG"):
        with page.expect_download() as download:
            page.get_by_role("button", name=kind, exact=True).click()
        download.value.save_as(tmp_path / kind)
        answers[kind] = (tmp_path / kind).read_bytes()
    found = json.loads(answers["JSON"])
    assert sorted(found["answers"][0]["scores"]) == ["bad", "good"]
    assert found["answers"][0]["label"] in said.stdout
    table = dict(list(csv.reader(io.StringIO(answers["CSV"].decode())))[:2])
    assert table.keys() == {"bad", "good"}
    Image = pytest.importorskip("PIL.Image")
    picture = np.asarray(Image.open(io.BytesIO(answers["PNG"])).convert("RGB"))
    assert picture.shape[1] > 600
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20


def test_thumbnails_can_be_touched(visit):
    page = visit("long", "attention", text="the+law")
    page.set_viewport_size({"width": 400, "height": 800})
    box = page.locator(".thumb").first.bounding_box()
    assert min(box["width"], box["height"]) >= 24
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_similar_contexts_are_found(visit):
    page = visit("bert", "words")
    section = page.locator("section", has=page.get_by_role("heading", name="Similar contexts"))
    section.get_by_label("Word", exact=True).fill("law")
    section.get_by_label("Sentence with the word").fill("the law was just")
    section.get_by_text("Texts to search").click()
    section.get_by_label("One a line").fill("its law was too tired\nthe street was just")
    section.get_by_role("button", name="Search").click()
    page.get_by_text("words in 2 texts").wait_for()
    assert section.locator("mark").count() == 2
