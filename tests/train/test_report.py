"""The report: one page that needs nothing else, with every text escaped, and charts that draw what they are given."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unmask.data.files.png import png
from unmask.errors import UnmaskError
from unmask.train.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, number
from unmask.train.drawing import svg
from unmask.train.report import (
    Bars,
    Captioned,
    Chart,
    Facts,
    Gallery,
    Heatmap,
    Sample,
    Samples,
    Section,
    Series,
    Table,
    Text,
    render,
    write,
)

EVIL = "<script>alert('x')</script> & \"quoted\""
PNG = b"\x89PNG\r\n\x1a\n and more bytes"
VOID = {"meta", "br", "hr", "link", "img", "input"}


class Checker(HTMLParser):
    """Collects tags and fails on those that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def everything(text: str) -> list[Section]:
    return [
        Text([text], title=text, kind="warning"),
        Chart(text, [Series(text, [(1, 2.0), (2, 3.0)], [0.1, 0.2])], x=text, y=text, floors={text: 2.5}, note=text),
        Bars(text, [text, "b"], {text: [1, 2]}, y=text, note=text),
        Table(text, [text, "n"], [[text, 1.5], [text, None]], note=text, best=["n"]),
        Facts(text, {text: text}),
        Facts(text, {text: text}, folded=True),
        Heatmap(text, [text], [text], [[0.5]], note=text, texts=[[text]]),
        Gallery(
            text, [Captioned(PNG, [text, text], about=text, good=True), Captioned(b"no picture", [text])], note=text
        ),
        Samples(text, [Sample(text, [(text, [(text, 0.5)])])], {text: [text]}, note=text),
    ]


def test_every_text_is_escaped_and_every_tag_closed() -> None:
    page = render(EVIL, everything(EVIL), subtitle=EVIL)
    assert "<script" not in page
    tags = {tag for tag, _ in Checker(page).tags}
    assert tags <= {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "section", "figure"),
        *("figcaption", "span", "svg", "path", "circle", "rect", "text", "table", "thead", "tbody", "tr", "th", "td"),
        *("details", "summary", "b", "small", "img"),
    }


def test_the_page_needs_nothing_else() -> None:
    page = render("Run", everything("text"))
    for _, attributes in Checker(page).tags:
        assert not {"href", "srcset", "onload", "onclick", "onerror", "xlink:href"} & set(attributes)
        assert (attributes.get("src") or "data:image/").startswith("data:image/")
    assert not re.search(r"https?://|url\(|@import", page)
    assert "default-src 'none'; img-src data:;" in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_a_gallery_holds_the_bytes_of_its_pictures() -> None:
    page = Gallery("g", [Captioned(PNG, ["cat", "90%"]), Captioned(b"\xff\xd8\xff\xe0", ["dog"], good=True)]).html()
    sources = [attributes["src"] or "" for tag, attributes in Checker(page).tags if tag == "img"]
    assert [source.partition(",")[0] for source in sources] == ["data:image/png;base64", "data:image/jpeg;base64"]
    assert base64.b64decode(sources[0].partition(",")[2]) == PNG
    assert page.count('class="good"') == 1
    assert "<img" not in Gallery("g", [Captioned(b"<svg onload=alert(1)>", ["cat"])]).html()


def test_write_replaces_the_page_as_a_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "run", "One", [])
    assert path == tmp_path / "run" / "report.html"
    write(tmp_path / "run", "Two \ud800", [Text(["lone \udfff surrogate"])])
    assert "Two" in path.read_text(encoding="utf-8")
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmaskError, match="could not be written"):
        write(tmp_path / "file", "Three", [])


def coordinates(html: str) -> list[tuple[float, float]]:
    """Places of the points of all lines."""
    lines = re.findall(r'class="line s\d" d="([^"]+)"', html)
    return [
        (float(x), float(y)) for line in lines for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", line) if y != "5H25"
    ]


def test_a_line_goes_where_its_numbers_are() -> None:
    html = Chart("c", [Series("a", [(0, 0.0), (5, 5.0), (10, 10.0)])]).html()
    drawing = html[html.index('class="chart"') :]
    assert coordinates(drawing) == [
        (LEFT, HEIGHT - BOTTOM),
        ((LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2),
        (WIDTH - RIGHT, TOP),
    ]
    assert "<title>a, 5: 5</title>" in drawing


def test_labels_of_many_powers_of_ten_do_not_overlap() -> None:
    html = Chart("c", [Series("a", [(0, 1e-14), (1, 100.0)])], log_y=True).html()
    heights = sorted(float(y) for y in re.findall(rf'class="grid" d="M{LEFT} ([\d.]+)H', html))
    assert len(heights) >= 3
    gap = min(b - a for a, b in pairwise(heights))
    assert gap > 20  # pixels; labels are larger on narrow screens


def test_gaps_and_values_that_cannot_be_drawn() -> None:
    points = [(0, 1.0), (1, None), (2, float("nan")), (3, 2.0), (4, 3.0)]
    html = Chart("c", [Series("a", points)]).html()
    (line,) = re.findall(r'class="line s0" d="(M[^"]+)"', html[html.index('class="chart"') :])
    assert line.count("M") == 2
    assert line.count("L") == 1
    below = Chart("c", [Series("a", [(0, 0.0), (1, 1.0), (2, 10.0)])], log_y=True).html()
    assert below.count("<title>a, ") == 2
    for series in ([], [Series("a", [])], [Series("a", [(1, None)])]):
        assert "Nothing has been measured yet" in Chart("c", series).html()
    assert "Nothing has been measured yet" in Bars("b", ["a"], {"x": [float("nan")]}).html()


def test_long_lines_are_averaged() -> None:
    html = Chart("c", [Series("a", [(i, float(i % 2)) for i in range(10_000)])]).html()
    assert len(html) < 60_000
    assert "0.5" in html


def test_more_series_than_colours_still_draw() -> None:
    html = Chart("c", [Series(str(i), [(0, i), (1, i + 1)]) for i in range(9)]).html()
    assert html.count('class="line') == 18


finite = st.floats(-1e12, 1e12).map(lambda x: round(x, 6))


@example([999999999000.0, 999999999001.0], True)
@given(st.lists(finite, min_size=1, max_size=20), st.booleans())
def test_axes_hold_all_values_and_label_few_of_them(values: list[float], log: bool) -> None:
    if log:
        values = [abs(v) + 1e-6 for v in values]
    for begin, end in ((0.0, 100.0), (100.0, 0.0)):
        axis = Axis.fit(values, begin, end, log=log)
        assert all(-1e-6 <= axis.place(v) <= 100 + 1e-6 for v in values)
        assert all(axis.low <= t <= axis.high for t in axis.ticks)
        assert len(axis.ticks) <= 25


def test_numbers_on_labels_are_short() -> None:
    found = [number(v) for v in (0, 0.25, 1500, 15_000, 2_000_000, 0.00012, 1e-5, -3.14159)]
    assert found == ["0", "0.25", "1,500", "15k", "2M", "1.2e-4", "1e-5", "-3.142"]


def test_a_column_has_one_number_of_decimals_and_its_best_in_bold() -> None:
    html = Table("t", ["n", "score"], [[32, 0.5], [100, 0.62], [4000, 0.7]], best=["score"]).html()
    assert ">0.50<" in html
    assert "<b>0.70</b>" in html
    assert ">4,000<" in html


def test_a_bar_says_its_value() -> None:
    html = Bars("b", ["x", "y"], {"a": [1, -2], "b": [3, 4]}).html()
    assert html.count("<rect") == 4
    assert "<title>y, a: -2</title>" in html


def test_figures_as_a_file_have_their_titles_colours_and_legends():
    chart = Chart(
        "Loss & more", [Series("a < b", [(1, 2.0), (2, 1.0)]), Series("other", [(1, 1.0)])], floors={"zero": 0}
    )
    bars = Bars("Shares", ["x", "y"], {"of all": [0.5, 1.0]})
    heat = Heatmap("Weights", ["one"], ["two"], [[0.5]])
    picture = Captioned(png(np.zeros((4, 4, 3), np.uint8)), ["black"], about="a.png")
    gallery = Gallery("Pictures", [picture] * 7)
    text = svg([chart, bars, heat, gallery])
    root = ElementTree.fromstring(text)  # well-formed
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Loss & more", "a < b", "other", "zero (0)", "Shares", "of all", "Weights", "Pictures", "black"} <= words
    assert "var(" not in text
    assert "<title>" not in text
    images = list(root.iter("{http://www.w3.org/2000/svg}image"))
    assert len({(image.get("x"), image.get("y")) for image in images}) == 7
    width, height = (int(root.get(name)) for name in ("width", "height"))
    assert width > 6 * 96
    assert height > 4 * 100


def test_an_empty_chart_as_a_file_keeps_its_title():
    assert "Nothing yet" in svg([Chart("Nothing yet", [])])
