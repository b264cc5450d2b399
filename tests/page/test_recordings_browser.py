"""Recordings in a real browser: panels, the timeline by keys and pointer, the microphone, and standalone files."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.visualize import attention

pytestmark = pytest.mark.browser
soundfile = pytest.importorskip("soundfile")
EVIL = "<img/src=x/onerror=document.title='run'>"
RATE = 8_000
SAMPLES = np.concatenate([np.zeros(RATE // 2), np.sin(2 * np.pi * 1_000 * np.arange(RATE // 2) / RATE) / 2]).astype(
    np.float32
)  # half a second of silence, then a tone


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    place = tmp_path_factory.mktemp("sounds")
    soundfile.write(place / "tone.wav", SAMPLES, RATE)
    soundfile.write(place / "noise.flac", np.random.default_rng(0).normal(0, 0.1, RATE), RATE)
    (place / "text.wav").write_bytes(b"no sound")
    (place / "text.m4a").write_bytes(b"no sound")
    return place


@pytest.fixture
def open_tab(page, address):
    def go(model, tab):
        page.goto(f"{address}/#{tab}?model={model}")
        page.locator(f"#model option[value='{model}']:checked").wait_for(state="attached")
        return page

    return go


def timeline(page):
    return page.get_by_role("img", name="Recording of")


def said(page):
    return page.locator(".timeline .readout").inner_text()


def test_a_recording_is_chosen_and_answered(open_tab, sound):
    page = open_tab("commands", "try")
    chooser = page.get_by_label("Recording", exact=True)
    chooser.set_input_files(sound / "noise.flac")
    page.locator(".bars").get_by_text(EVIL).wait_for()
    assert page.locator(".bars li").count() == 3
    timeline(page).wait_for()
    for name, sentence in (
        ("text.wav", "not a recording in a known format"),
        ("text.m4a", "The browser cannot decode text.m4a"),
    ):
        chooser.set_input_files(sound / name)
        page.locator(".error").get_by_text(sentence).wait_for()
    assert page.title().endswith("– unmask")
    assert page.locator("img").count() == 0


def test_a_recording_is_dropped(open_tab, sound):
    page = open_tab("commands", "try")
    page.get_by_label("Recording", exact=True).wait_for()
    page.evaluate(
        """bytes => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], "dropped.wav"));
          const how = { dataTransfer: data, bubbles: true, cancelable: true };
          document.querySelector("#view form").dispatchEvent(new DragEvent("drop", how));
        }""",
        list((sound / "tone.wav").read_bytes()),
    )
    page.get_by_text("Given: dropped.wav").wait_for()
    timeline(page).wait_for()


def test_the_microphone_is_heard(open_tab):
    """Chromium beeps each half second into its false microphone."""
    page = open_tab("commands", "try")
    page.get_by_role("button", name="Record", exact=True).click()
    page.wait_for_timeout(1_300)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("heading", name="the microphone").wait_for()
    timeline(page).wait_for()
    seconds = float(timeline(page).get_attribute("aria-label").split()[2])
    assert 0.5 < seconds < 4
    levels = []
    timeline(page).focus()
    page.keyboard.press("Home")
    for _ in range(int(seconds / 0.02)):
        page.keyboard.press("ArrowRight")  # a frame of 20 ms
        levels.append(float(said(page).split("level ")[1].split()[0]))
    assert max(levels) > 0.05


def test_a_refused_microphone_is_said(open_tab):
    page = open_tab("commands", "try")
    page.get_by_role("button", name="Record", exact=True).wait_for()
    for name, sentence in (
        ("NotAllowedError", "The browser refused the microphone"),
        ("NotFoundError", "There is no microphone"),
    ):
        refused = f"navigator.mediaDevices.getUserMedia = async () => {{ throw new DOMException('', '{name}'); }}"
        page.evaluate(f"() => {{ {refused}; }}")
        page.get_by_role("button", name="Record", exact=True).click()
        page.get_by_role("alert").get_by_text(sentence).wait_for()


def test_the_cursor_reads_the_sound(open_tab, sound):
    page = open_tab("waves", "try")
    page.get_by_label("Recording", exact=True).set_input_files(sound / "tone.wav")
    timeline(page).wait_for()
    assert said(page).startswith("0.000 s · level 0 · silent")
    timeline(page).focus()
    page.keyboard.press("End")
    assert said(page).startswith("1.000 s")
    for _ in range(20):
        page.keyboard.press("ArrowLeft")  # a frame of 8 ms each
    text = said(page)
    assert text.startswith("0.840 s · level 0.5")
    loudest = float(text.split("loudest at ")[1].split(" Hz")[0].replace(",", ""))
    assert loudest == pytest.approx(1_000, rel=0.06)
    assert "codebook 1: " in text
    page.keyboard.press("Home")
    assert said(page).startswith("0.000 s")
    box = timeline(page).bounding_box()
    timeline(page).click(position={"x": 58 + (box["width"] - 66) / 2, "y": 60})
    assert float(said(page).split()[0]) == pytest.approx(0.5, abs=0.005)
    for _ in range(3):
        page.keyboard.press("+")
    timeline(page).click(position={"x": box["width"] - 9, "y": 60})  # an eighth of a second around the middle
    assert float(said(page).split()[0]) == pytest.approx(0.5625, abs=0.002)
    page.keyboard.press("0")
    timeline(page).click(position={"x": box["width"] - 9, "y": 60})
    assert float(said(page).split()[0]) == pytest.approx(1, abs=0.005)


def test_it_plays_and_stops(open_tab, sound):
    page = open_tab("waves", "try")
    page.get_by_label("Recording", exact=True).set_input_files(sound / "tone.wav")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Play").wait_for()
    timeline(page).focus()
    page.keyboard.press(" ")
    page.get_by_role("button", name="Play").wait_for(timeout=5_000)  # it ends by itself
    assert float(said(page).split()[0]) > 0.2


def test_colours_are_those_of_the_sound(open_tab, sound):
    """The waveform is flat in the silent half; masked frames are faded."""
    page = open_tab("waves", "try")
    page.get_by_label("Recording", exact=True).set_input_files(sound / "tone.wav")
    timeline(page).wait_for()
    blue = page.evaluate(
        """() => {
          const canvas = document.querySelector(".timeline canvas"), ratio = canvas.width / canvas.clientWidth;
          const rows = { top: 24 * ratio, size: 80 * ratio };
          const data = canvas.getContext("2d").getImageData(0, rows.top, canvas.width, rows.size).data, found = [0, 0];
          for (let i = 0; i < data.length; i += 4) {
            const x = (i / 4) % canvas.width;
            if (data[i + 2] > data[i] + 20 && x > 64 * ratio) found[x < canvas.width / 2 ? 0 : 1]++;
          }
          return found;
        }"""
    )
    assert blue[1] > 10 * blue[0] > 0


def test_a_transcript_stands_over_its_letters(open_tab, sound):
    page = open_tab("spoken", "try")
    page.get_by_label("Recording", exact=True).set_input_files(sound / "noise.flac")
    timeline(page).wait_for()
    text = page.locator("#view b").inner_text()
    label = timeline(page).get_attribute("aria-label")
    assert "Words" in label
    assert "Letters" in label
    found = set()
    timeline(page).focus()
    for _ in range(60):
        page.keyboard.press("ArrowRight")
        found.update(part.split("words: ")[1] for part in said(page).split(" · ") if part.startswith("words: "))
    assert found <= set(text.split())
    assert found


def test_two_voices_are_compared(open_tab, sound):
    page = open_tab("voices", "try")
    for name in ("First recording", "Second recording"):
        page.get_by_label(name, exact=True).set_input_files(sound / "tone.wav")
    page.get_by_text("The same class").wait_for()
    assert page.locator(".bars output").inner_text().startswith("1.00")


def test_tabs_share_the_recording(open_tab, sound, folders):
    page = open_tab("waves", "try")
    page.get_by_label("Recording", exact=True).set_input_files(sound / "tone.wav")
    timeline(page).wait_for()
    page.get_by_role("tab", name="Attention").click()
    page.get_by_text("Given: tone.wav").wait_for()
    page.locator(".thumb").nth(3).wait_for()
    page.get_by_role("tab", name="How it works").click()
    page.get_by_role("radio", name="Features").wait_for()
    page.locator(".timeline").wait_for()
    first = timeline(page).get_attribute("aria-label")
    page.get_by_label("Seed of the masked frames").fill("5")
    page.keyboard.press("Enter")
    page.get_by_role("img", name="seed 5").wait_for()
    assert "seed 0" in first
    assert page.get_by_role("tab", name="Words").count() == 0


def test_attention_follows_the_cursor(page, folders, sound, tmp_path):
    out = tmp_path / "attention.html"
    main(["show", "attention", "--model", str(folders.place / "waves"), str(sound / "noise.flac"), "--out", str(out)])
    page.context.set_offline(True)
    page.goto(out.as_uri())
    page.get_by_text("a row for each").wait_for(state="detached")
    loaded = huggingface.load(folders.place / "waves")
    samples = soundfile.read(sound / "noise.flac", dtype="float32")[0]
    batch = loaded.processor.collate([loaded.processor.example(samples)])
    expected = attention.weights(loaded.model, batch, "encoder", [1])[0]
    box = timeline(page).bounding_box()
    frame = 40
    middle = (frame * 64 + 66 / 2) / RATE
    timeline(page).click(position={"x": 58 + middle * (box["width"] - 66), "y": 60})
    text = said(page)
    weights = [float(part.split()[-1]) for part in text.split(" · ")[-1].split(", ")]
    assert weights == pytest.approx(expected[:, frame, frame].tolist(), abs=2e-3)
    page.locator(".controls select").select_option("all: rollout")
    page.wait_for_timeout(100)
    assert "rollout " in said_at(page)
    page.get_by_role("radio", name="Matrix").click()
    page.get_by_role("img", name="Attention weights").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".matrix .readout").inner_text().startswith("0.00 s → 0.00 s · head 1 ")
    assert page.get_by_role("radio", name="Lines").count() == 0
    page.context.set_offline(False)


def test_a_part_counts_from_the_begin_of_the_whole(page, folders, sound, tmp_path):
    out = tmp_path / "features.html"
    asked = ["--model", str(folders.place / "waves"), str(sound / "tone.wav"), "--begin", "0.25", "--end", "0.75"]
    main(["show", "features", *asked, "--out", str(out)])
    page.goto(out.as_uri())
    timeline(page).focus()
    page.keyboard.press("Home")
    assert said(page).startswith("0.250 s · level 0 · silent")
    page.keyboard.press("End")
    assert said(page).startswith("0.750 s · level 0.5")


def said_at(page):
    """What the page says after the cursor moved by a frame."""
    timeline(page).focus()
    page.keyboard.press("ArrowRight")
    return said(page)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1_100, "light")])
def test_nothing_sticks_out(browser, address, sound, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    for model in ("waves", "spoken", "commands", "voices"):
        for tab in ("try", "attention", "inside"):
            page.goto(f"{address}/#{tab}")
            page.locator("#model select").select_option(model)
            if model == "commands" and tab == "attention":
                continue
            page.locator("#view input[type=file]").first.set_input_files(sound / "noise.flac")
            if model != "voices" or tab != "try":
                page.locator(".timeline canvas").wait_for()
            page.wait_for_timeout(100)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (model, tab)
    page.close()


def test_a_large_file_is_made_smaller(open_tab, tmp_path):
    """12 s of 48 kHz in two channels of 24 bit, 3.5 MB, are sent as one channel of 16 kHz."""
    times = np.arange(12 * 48_000) / 48_000
    stereo = np.stack([np.sin(2 * np.pi * 500 * times), np.sin(2 * np.pi * 500 * times)], 1) / 2
    soundfile.write(tmp_path / "large.wav", stereo, 48_000, subtype="PCM_24")
    assert (tmp_path / "large.wav").stat().st_size > 3_000_000
    page = open_tab("waves", "try")
    with page.expect_request("**/features") as asked:
        page.get_by_label("Recording", exact=True).set_input_files(tmp_path / "large.wav")
    sent = base64.b64decode(asked.value.post_data_json["recording"])
    samples, rate = soundfile.read(io.BytesIO(sent))
    assert (rate, samples.ndim) == (16_000, 1)
    assert len(samples) == pytest.approx(12 * 16_000, abs=20)
    spectrum = np.abs(np.fft.rfft(samples[16_000:32_000]))
    assert spectrum.argmax() == 500
    assert np.abs(samples[16_000:-16_000]).max() == pytest.approx(0.5, abs=0.01)
