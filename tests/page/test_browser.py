"""The page in a real browser: every tab draws, numbers are the model's, keys work, no token runs."""

from __future__ import annotations

import re

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.runs import probes
from unmask.train import report
from unmask.visualize import attention, gallery, reading, runs, standalone

pytestmark = pytest.mark.browser
EVIL = "<img/src=x/onerror=document.title='run'>"
TEXT = "it was the animal"


@pytest.fixture
def open_tab(page, address):
    def go(model, tab):
        page.goto(f"{address}/#{tab}?model={model}")
        page.locator(f"#model option[value='{model}']:checked").wait_for(state="attached")
        return page

    return go


def test_the_page_shows_every_model(page, address, folders):
    page.goto(address)
    page.locator("#model option").first.wait_for(state="attached")
    assert len(page.locator("#model option").all()) == len(folders.names)
    policy = page.locator('meta[http-equiv="Content-Security-Policy"]').get_attribute("content")
    assert "default-src 'none'" in policy
    page.get_by_role("tab", name="Try it").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Attention").get_attribute("aria-selected") == "true"
    assert "/#attention?model=" in page.url


def test_cells_are_the_weights_of_the_model(open_tab, folders):
    """What the reader is told of a cell, by keys alone, is the softmax that the model computes."""
    page = open_tab("bert", "attention")
    page.get_by_label("Text", exact=True).first.fill(TEXT)
    page.get_by_role("button", name="Show").click()
    page.get_by_role("radio", name="Matrix").click()
    canvas = page.get_by_role("img", name="Attention weights")
    canvas.focus()
    loaded = huggingface.load(folders.place / "bert")
    read = reading.read(loaded.model, loaded.tokenizer, TEXT)
    expected = attention.weights(loaded.model, read.batch, "encoder", [0])[0][0]
    for key, (i, j) in (("ArrowDown", (0, 0)), ("ArrowDown", (1, 0)), ("ArrowRight", (1, 1)), ("ArrowRight", (1, 2))):
        page.keyboard.press(key)
        said = page.locator(".readout").inner_text()
        assert said.startswith(f"{read.tokens[i]} → {read.tokens[j]} · head 1 ")
        assert float(said.split()[-1]) == pytest.approx(expected[i, j], abs=1.1e-3)


def test_lines_follow_the_keys_and_the_heads(open_tab):
    page = open_tab("bert", "attention")
    page.get_by_role("button", name="Layer 2, head 3").click()
    first = page.locator(".readout").inner_text()
    page.get_by_role("button", name="Head 1", exact=True).click()
    assert page.get_by_role("button", name="Head 1", exact=True).get_attribute("aria-pressed") == "true"
    page.get_by_text("mean of the heads").wait_for()
    page.locator(".tokens.from [tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".readout").inner_text() != first
    assert page.locator(".tokens.from [aria-selected='true']").count() == 1


def test_no_token_runs(open_tab):
    """The separator and a label are elements that would run, were they markup; a text has one, in pieces."""
    page = open_tab("bert", "attention")
    page.locator(".thumb").first.click()
    page.locator(".tokens.from").get_by_text(EVIL).wait_for()
    page = open_tab("bert", "inside")
    page.locator(".piece").get_by_text(EVIL).first.wait_for()
    page = open_tab("classifier", "try")
    page.get_by_role("button", name="Answer").click()
    page.locator(".bars").get_by_text(EVIL).wait_for()
    page.locator(".card h3").get_by_text(EVIL).wait_for()
    page.locator(".card .text").get_by_text(EVIL).first.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    page.locator(".card .text").get_by_text(EVIL).first.hover()
    page.locator(".tip").get_by_text(EVIL).wait_for()
    page = open_tab("writer", "attention")
    page.get_by_label("Source").fill(f"the {EVIL}")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("radio", name="Encoder", exact=True).click()
    page.locator(".thumb").first.click()
    page.locator(".tokens.from").get_by_text("onerror").wait_for()
    page.wait_for_timeout(100)
    assert page.title().endswith("– unmask")
    assert page.locator("img").count() == 0


def test_a_word_is_hidden_by_a_click(open_tab):
    page = open_tab("bert", "try")
    page.locator("textarea").fill("the street was just")
    page.get_by_role("button", name="Hide street").click()
    page.get_by_text("Masked word 1").wait_for()
    assert page.locator("textarea").input_value() == "the [MASK] was just"
    assert page.locator(".bars li").count() == 5


TRIES = {
    "classifier": ("Answer", "Gradient × input"),
    "tagger": ("Answer", ""),
    "mentions": ("Find clusters", ""),
    "reader": ("Answer", "%"),
    "encoder": ("Compare", "arrow keys"),
    "writer": ("Translate", ""),
    "lm": ("Continue", "Most probable next tokens"),
    "electra": ("Look", "%"),
    "elmo": ("Compare", "before the first"),
    "vectors": ("Find", "0."),
}


@pytest.mark.parametrize("model", TRIES)
def test_every_task_has_its_panel(open_tab, model):
    page = open_tab(model, "try")
    button, text = TRIES[model]
    if model == "reader":
        page.get_by_role("textbox", name="Question").fill("who crossed the street")
        page.get_by_role("textbox", name="Context").fill("the animal did not cross the street")
    if model == "vectors":
        page.get_by_label("A word, or a sum of words").fill("street - animal")
    if model == "elmo":
        page.get_by_label("Word", exact=True).fill("law")
        page.get_by_label("Sentences, one a line").fill("the law was just\nit was its law")
    page.get_by_role("button", name=button, exact=True).click()
    page.locator("#view").get_by_text(text).first.wait_for()
    page.locator(".busy").wait_for(state="detached")
    assert page.locator(".error").count() == 0


def test_mentions_inside_others_are_drawn_inside_them(open_tab):
    page = open_tab("mentions", "try")
    cluster = [{"begin": 0, "end": 8, "probability": None}, {"begin": 10, "end": 12, "probability": 0.5}]
    clusters = [cluster, [{"begin": 5, "end": 8, "probability": None}], [{"begin": 6, "end": 10, "probability": None}]]
    drawn = page.evaluate(
        """async (clusters) => (await import("./clusters.js")).clustered("😀 of Ann. He", clusters).innerHTML""",
        clusters,
    )
    bare = re.sub(r"<mark [^>]*>", "<mark>", drawn)
    assert bare == (
        "<mark>😀 of <mark>Ann<sub>2</sub></mark><sub>1</sub></mark>. <mark>He<sub>1</sub></mark>"
    )  # the third crosses the first


def test_a_picture_is_chosen_and_answered(open_tab, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    (tmp_path / "text.png").write_bytes(b"no picture")
    page = open_tab("pictures", "try")
    chooser = page.get_by_label("Picture", exact=True)
    chooser.set_input_files(tmp_path / "noise.png")
    page.locator(".bars").get_by_text(EVIL).wait_for()
    assert page.locator(".bars li").count() == 3
    assert page.get_by_role("img", name="noise.png").evaluate("one => [one.width, one.height]") == [90, 60]
    chooser.set_input_files(tmp_path / "text.png")
    page.locator(".error").get_by_text("not a picture in a known format").wait_for()
    assert page.title().endswith("– unmask")


def test_pictures_are_chosen_and_compared(open_tab, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for i in range(3):
        pixels = np.random.default_rng(i // 2).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"noise {i}.png")
    page = open_tab("faces", "try")
    chooser = page.get_by_label("Pictures", exact=True)
    chooser.set_input_files(sorted(tmp_path.glob("*.png")))
    page.get_by_role("img", name="Similarity").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")  # the first two files are the same picture
    said = page.locator(".readout").inner_text()
    assert said.startswith("noise 0.png · noise 1.png · ")
    assert float(said.split()[-1]) == pytest.approx(1)
    page.keyboard.press("ArrowRight")
    assert float(page.locator(".readout").inner_text().split()[-1]) < 1
    (tmp_path / "text.png").write_bytes(b"no picture")
    chooser.set_input_files(tmp_path / "text.png")
    page.locator(".error").get_by_text("not a picture in a known format").wait_for()


def test_every_tab_draws(open_tab):
    page = open_tab("bert", "words")
    page.locator("canvas.cloud").wait_for()
    page.get_by_label("A word, or a sum of words").fill("street + law - tired")
    page.get_by_role("button", name="Find").click()
    page.locator(".bars li").first.wait_for()
    page = open_tab("bert", "inside")
    for topic, text in (
        ("Subword tokens", "vocabulary of"),
        ("Masks", "attends to the token of the column"),
        ("Sinusoids", "Sinusoidal"),
    ):
        page.get_by_role("radio", name=topic).click()
        page.get_by_text(text).first.wait_for()
    page = open_tab("t5", "inside")
    page.get_by_text("The decoder learns to write").first.wait_for()
    page.get_by_role("radio", name="Subword tokens").click()
    page.get_by_text("vocabulary of").first.wait_for()
    page = open_tab("t5", "words")
    page.locator("canvas.cloud").wait_for()
    page = open_tab("writer", "beam")
    page.get_by_label("Source").fill("the animal")
    page.get_by_role("button", name="Show").click()
    page.locator(".node.best").first.wait_for()
    page = open_tab("bert", "runs")
    page.get_by_label("first").check()
    page.get_by_text("Differences of configuration").wait_for()
    assert page.locator("figure svg").count() >= 1
    assert page.get_by_role("row", name="rate").count() == 1


def test_a_word_is_replaced_by_what_the_generator_offers(open_tab):
    page = open_tab("electra", "try")
    page.get_by_label("Text;").fill("the law was just")
    page.get_by_role("button", name="Look").click()
    page.get_by_role("button", name="law").click()
    page.get_by_text("The generator's predictions for “law”").wait_for()
    offer = page.locator(".bars button").nth(1)
    word = offer.inner_text()
    offer.click()
    page.locator(".doubt").nth(1).wait_for()
    assert page.get_by_label("Text;").input_value() == f"the {word} was just"


@pytest.mark.parametrize(
    ("model", "tab"), [("vectors", "Attention"), ("elmo", "Attention"), ("bert", "Beam"), ("pictures", "Words")]
)
def test_a_tab_without_a_view_is_hidden(open_tab, model, tab):
    page = open_tab(model, "inside")
    page.get_by_role("radio", name="Sinusoids").wait_for()
    page.get_by_role("tab", name="How it works").wait_for()
    assert page.get_by_role("tab", name=tab).count() == 0
    assert page.locator(".error").count() == 0


def test_a_key_is_asked_for_kept_and_forgotten(page, locked):
    with locked as place:
        page.goto(place)
        key = page.get_by_label("Key", exact=True)
        key.fill("shut")
        page.keyboard.press("Enter")
        page.get_by_text("did not accept this key").wait_for()
        assert page.locator("#tabs button").count() == 0
        page.get_by_label("Key", exact=True).fill("open")
        page.get_by_role("button", name="Use it").click()
        page.get_by_role("tab", name="Attention").click()
        page.locator(".thumb").first.wait_for()
        page.reload()  # it is still there …
        page.locator(".thumb").first.wait_for()
        assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        page.get_by_role("button", name="Forget the key").click()
        page.get_by_label("Key", exact=True).wait_for()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_late_refusal_leaves_the_key_that_was_given_since(page, locked):
    with locked as place:
        page.goto(place)
        page.get_by_label("Key", exact=True).wait_for()
        assert page.evaluate(
            """async () => {
              const { ask, hasKey, useKey } = await import("/service.js");
              useKey("shut");
              const late = ask("models").catch(() => null);
              useKey("open");
              await late;
              return hasKey();
            }"""
        )


def test_an_address_that_names_no_tab_begins_with_the_first(page, address):
    page.goto(f"{address}/#constructor")
    chosen = page.locator("[role='tab'][aria-selected='true']")
    chosen.get_by_text("Try it").wait_for()
    page.evaluate("location.hash = '#toString'")
    page.evaluate("location.hash = '#words'")
    chosen.get_by_text("Words").wait_for()


def test_a_service_that_is_gone_is_said(page, locked):
    with locked as place:
        page.goto(place)
        page.get_by_label("Key", exact=True).fill("open")
        page.keyboard.press("Enter")
        page.get_by_role("tab", name="Attention").click()
        page.locator(".thumb").first.wait_for()
    page.get_by_role("button", name="Show").click()
    page.get_by_role("alert").get_by_text("The service does not answer.").wait_for()


def test_an_error_is_one_sentence(open_tab):
    page = open_tab("bert", "attention")
    page.get_by_label("Text", exact=True).first.fill("the " * 80)
    page.get_by_role("button", name="Show").click()
    assert "the model takes 64; shorten it" in page.get_by_role("alert").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1100, "light")])
def test_nothing_sticks_out(browser, address, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    for tab in ("try", "attention", "words", "inside", "runs"):
        page.goto(f"{address}/#{tab}")
        page.reload()
        page.locator("#view textarea, #view legend, #view canvas, #view input").first.wait_for()
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
    page.close()


def test_lines_between_long_tokens_stay_in_a_narrow_window(page, address):
    """Long tokens are cut and not pushed out to the left, and the lines end where the tokens do, at every width."""
    page.set_viewport_size({"width": 700, "height": 800})
    page.goto(address)
    page.get_by_role("tab", name="Attention").wait_for()
    page.evaluate(
        """async () => {
          const { attentionView } = await import("/attention.js");
          const rows = ["short", "w".repeat(40), "the"], kinds = { encoder: "a" };
          const weights = { kind: "float16", shape: [], data: btoa("\\0".repeat(18)) };
          const layer = async (_, heads) => [{ heads, weights }];
          const data = { rows, columns: rows, words: [], layers: 1, heads: 1, kind: "encoder", kinds };
          await attentionView(document.getElementById("view"), data, { layer }, { mode: "heads" });
        }"""
    )
    for width in (700, 390, 600, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(150)
        left, bottom = page.evaluate(
            """() => {
              const box = (name) => document.querySelector(name).getBoundingClientRect();
              const bottom = box(".lines").bottom - box(".from .token:last-child").bottom;
              return [box(".from .token:nth-child(2)").left, bottom];
            }"""
        )
        assert left >= 15, width
        assert bottom < 2, width


def test_a_file_stands_alone(page, folders, tmp_path):
    out = tmp_path / "view.html"
    main(["show", "attention", "--model", str(folders.place / "bert"), f"it was {EVIL}", "--out", str(out)])
    page.context.set_offline(True)
    page.goto(out.as_uri())
    page.locator(".thumb").nth(5).click()
    page.locator(".tokens .token").first.wait_for()
    page.wait_for_timeout(100)
    assert page.title() == "Attention: bert"
    assert page.locator("img").count() == 0
    page.context.set_offline(False)


def _pixels(canvas):
    """[[r, g, b], …] of a canvas, row by row."""
    values = canvas.evaluate(
        "one => Array.from(one.getContext('2d').getImageData(0, 0, one.width, one.height).data)",
    )
    return [values[i : i + 3] for i in range(0, len(values), 4)]


def test_pictures_and_maps_are_drawn(page, tmp_path):
    picture = np.zeros((2, 3, 3), np.uint8)
    picture[0, 1], picture[1, 2] = (200, 30, 10), (5, 6, 7)
    damaged = gallery.picture(picture, "damaged") | {"file": "AAAA"}
    cells = [gallery.picture(picture, EVIL), gallery.numbers(np.array([[2.0, 0.0, -2.0]]), "a map"), damaged]
    standalone.write(tmp_path / "x.html", "Cells", gallery.gallery("Three", [gallery.group(EVIL, cells, 2)], scale=2.0))
    page.goto((tmp_path / "x.html").as_uri())
    page.get_by_role("img", name="damaged (this picture cannot be decoded)").wait_for()
    assert _pixels(page.get_by_role("img", name=EVIL)) == picture.reshape(-1, 3).tolist()
    assert _pixels(page.get_by_role("img", name="a map")) == [[0, 114, 178], [245, 246, 248], [200, 82, 0]]
    page.get_by_role("img", name="a map").hover()
    page.locator(".tip").get_by_text("row 1, column 2: 0").wait_for()
    page.locator("h3").get_by_text(EVIL).wait_for()
    page.locator("small").get_by_text(EVIL).wait_for()
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(100)
    assert _pixels(page.get_by_role("img", name="a map"))[0] == [86, 180, 233]
    assert page.title() == "Cells"
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_run_shows_what_was_restored_at_each_evaluation(page, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 9, "seconds": 1, "loss/pixels": 1.0}\n')
    probe = probes.Probe("held-out picture 1", np.empty(0))
    for step in (0, 9):
        shown = {"picture": np.full((2, 2, 3), 50, np.uint8), "restored": np.full((2, 2, 3), 100 + step, np.uint8)}
        probes.note(tmp_path, step, probes.samples([probe], [[]], [shown]))
    standalone.write(tmp_path / "x.html", "Run", runs.compare([tmp_path]))
    page.goto((tmp_path / "x.html").as_uri())
    for name, value in (("picture", 50), ("step 0", 100), ("step 9", 109)):
        canvas = page.get_by_role("img", name=name, exact=True)
        page.wait_for_function("name => document.querySelector(`[aria-label='${name}']`).width === 2", arg=name)
        assert _pixels(canvas) == [[value] * 3] * 4


def test_a_run_shows_what_was_found_of_a_recording(page, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 9, "seconds": 1, "loss/clusters": 1.0}\n')
    probe, spectrogram = probes.Probe("held-out recording 1", np.empty(0)), np.full((32, 200, 3), 50, np.uint8)
    for step in (0, 9):
        shown = {"recording": spectrogram, "masked frames": spectrogram, "found frames": spectrogram}
        probes.note(tmp_path, step, probes.samples([probe], [[("found", step / 20)]], [shown]))
    standalone.write(tmp_path / "x.html", "Run", runs.compare([tmp_path]))
    page.goto((tmp_path / "x.html").as_uri())
    page.locator("small").get_by_text("45 % found").wait_for()
    first = page.get_by_role("img", name="recording", exact=True)
    page.wait_for_function("document.querySelector('.gallery canvas').width === 200")
    box = first.bounding_box()
    assert box["width"] == pytest.approx(200, abs=1)
    assert box["height"] == pytest.approx(32, abs=1)
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_positions_of_a_picture_are_maps(open_tab):
    page = open_tab("pictures", "inside")
    page.get_by_text("Each map shows the cosines").wait_for()
    assert page.locator(".gallery canvas").count() == 16
    assert page.get_by_role("radio", name="Masking").count() == 0
    page = open_tab("swin", "inside")
    page.get_by_text("Windows have no position embeddings").wait_for()
    assert page.locator(".gallery canvas").count() == 2 * 1 + 2 * 2  # heads of two blocks in each of two stages
    assert page.locator(".error").count() == 0


def test_attention_over_a_picture_follows_clicks_and_keys(page, folders, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    out = tmp_path / "attention.html"
    main(
        [
            "show",
            "attention",
            "--model",
            str(folders.place / "pictures"),
            str(tmp_path / "noise.png"),
            "--out",
            str(out),
        ]
    )
    page.goto(out.as_uri())
    readout = page.locator(".readout")
    readout.get_by_text("The CLS token →").wait_for()
    large = page.get_by_role("img", name="Attention over the picture")
    large.click(position={"x": 150, "y": 60})  # patches of 96 pixels
    readout.get_by_text("The patch in row 1, column 2 →").wait_for()
    page.keyboard.press("ArrowDown")
    readout.get_by_text("The patch in row 2, column 2 →").wait_for()
    page.keyboard.press("Escape")
    readout.get_by_text("The CLS token →").wait_for()
    page.get_by_role("radio", name="Heads").click()
    page.get_by_role("button", name="head 2").click()
    large.hover(position={"x": 10, "y": 10})
    folder = huggingface.load(folders.place / "pictures")
    batch = folder.processor.collate([folder.processor.example(pixels)])
    expected = attention.weights(folder.model, batch, "encoder", [1])[0][1, 0, 1]
    said = readout.inner_text()
    assert said.startswith("The CLS token → the patch in row 1, column 1 · layer 2, head 2 ")
    assert float(said.split()[-1]) == pytest.approx(expected, abs=1.1e-3)


def test_512_tokens_do_not_freeze(page, tmp_path):
    """12 layers of 12 heads: all thumbnails, and a layer of 3 million weights, each in about a second."""
    from unmask.visualize.numbers import packed, thumbnail
    from unmask.visualize.standalone import standalone

    weights = np.random.default_rng(0).dirichlet(np.full(512, 0.05), (12, 512)).astype(np.float32)
    small = np.repeat(thumbnail(weights)[None], 12, 0)
    names = [f"t{i}" for i in range(512)]
    details = [{"layer": i // 12, "heads": [i % 12], "weights": packed(weights[[i % 12]])} for i in range(144)]
    data = {"view": "attention", "kind": "encoder", "kinds": {"encoder": ""}, "rows": names, "columns": names}
    data |= {"words": list(range(512)), "layers": 12, "heads": 12, "thumbnails": packed(small, "uint8")}
    data |= {"rolls": False, "caution": "", "details": details}
    out = tmp_path / "long.html"
    out.write_text(standalone("long", data), encoding="utf-8")
    page.add_init_script(CLOCK)
    page.goto(out.as_uri())
    drawn = on_screen(page, "thumbs")
    page.evaluate("window.clicked = performance.now()")
    page.locator(".thumb").nth(3).click()
    opened = on_screen(page, "matrix") - page.evaluate("window.clicked")
    canvas = page.get_by_role("img", name="Attention weights")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".readout").inner_text().startswith("t0 → t0")
    print(f"a file: drawn {drawn:.0f} ms after it was opened, a layer {opened:.0f} ms after a click")
    assert drawn < 3_000  # generous: a shared core may be busy; docs/inside.md has what was measured
    assert opened < 3_000


def test_512_tokens_are_interactive_within_a_second_of_the_answer(page, address):
    """12 layers of 12 heads, from the first byte of the answer of the service to the picture on the screen."""
    page.add_init_script(CLOCK)
    page.goto(f"{address}/#attention")
    page.locator("#model select").select_option("long")
    page.locator(".thumb").first.wait_for()
    page.get_by_label("Text", exact=True).first.fill(("it " * 510).strip())
    page.evaluate("performance.clearResourceTimings(), (window.shown = {})")
    page.evaluate("document.querySelectorAll('.thumbs').forEach((old) => old.remove())")
    page.get_by_role("button", name="Show").click()
    seconds = {"thumbs": on_screen(page, "thumbs")}
    page.locator(".thumb").nth(3).click()
    seconds["matrix"] = on_screen(page, "matrix")
    asked = page.evaluate(
        "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/attention'))"
        ".map((one) => [one.responseStart, one.decodedBodySize])"
    )
    assert len(asked) == 2
    for (name, shown), (begin, size) in zip(seconds.items(), asked, strict=True):
        print(f"{name}: {shown - begin:.0f} ms after the first byte of {size / 1e6:.2f} MB")
        assert shown - begin < 1_000
        assert size < 1e6


def test_heads_that_are_looked_at_are_not_let_go(page, address):
    """So long a text that four heads are kept: those of the layer that is shown, though some are the oldest."""
    page.goto(address)
    page.get_by_role("tab", name="Attention").wait_for()
    asked = page.evaluate(
        """async () => {
          const { attentionView } = await import("/attention.js");
          const rows = Array.from({ length: 3600 }, (_, i) => `t${i}`), asked = [];
          const weights = { kind: "float16", shape: [], data: "" };
          const layer = async (layer, heads) => (asked.push([layer, heads]), [{ heads, weights }]);
          const kinds = { encoder: "a" };
          const data = { rows, columns: rows, words: [], layers: 2, heads: 3, kind: "encoder", kinds };
          const root = document.getElementById("view"), show = (i) => {
            const select = root.querySelector("select");
            select.value = i;
            select.dispatchEvent(new Event("change"));
            return new Promise((done) => setTimeout(done, 200));
          };
          await attentionView(root, data, { layer }, { mode: "heads", layer: 1, heads: [0] });
          root.querySelector(".chip.plain").click();
          for (const i of [0, 1]) await show(i);
          return asked;
        }"""
    )
    assert asked == [[1, [0]], [1, [1, 2]], [0, [0, 1, 2]], [1, [0, 1]]]  # the third of layer 1 was still there
    assert page.locator("#view .tokens.from [aria-selected='true']").count() == 1


CLOCK = """
window.shown = {};
new MutationObserver(() => {
  for (const [name, wanted] of [["thumbs", ".thumb:nth-of-type(144)"], ["matrix", ".matrix canvas"]]) {
    if (!(name in shown) && document.querySelector(wanted)) {
      shown[name] = 0;
      requestAnimationFrame(() => setTimeout(() => (shown[name] = performance.now())));
    }
  }
}).observe(document, { childList: true, subtree: true });
"""


def on_screen(page, name):
    """When something was painted, in milliseconds of the page's clock."""
    for _ in range(400):
        if found := page.evaluate("window.shown").get(name):
            return found
        page.wait_for_timeout(50)
    pytest.fail(f"{name} did not appear")


@pytest.mark.parametrize("width", [1100, 390])
def test_a_report_shows_its_pictures_and_fits_the_width(page, tmp_path, width):
    thumbnails = pytest.importorskip("unmask.data.pictures.thumbnails")
    pytest.importorskip("PIL.Image")
    pixels = (
        np.random.default_rng(0).integers(0, 256, (2, 200, 150, 3), dtype=np.uint8)
        // np.array([1, 99])[:, None, None, None]
    )
    shown = [report.Captioned(thumbnails.thumbnail(one.astype(np.uint8)), [EVIL, "90%"], EVIL) for one in pixels]
    names = [f"class {i}" for i in range(29)] + [EVIL]
    counts = [["12345"] * 30] * 30
    matrix = report.Heatmap("Matrix", names, names, [[0.5] * 30] * 30, texts=counts)
    path = report.write(tmp_path, "Report", [matrix, report.Gallery("Examples", shown * 12)])
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(path.as_uri())
    assert page.evaluate("[...document.images].map(one => one.naturalWidth)") == [72] * 24  # 96 x 72 pixels
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # the matrix scrolls, the page does not
    assert page.title() == "Report"
