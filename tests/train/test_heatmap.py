"""Heatmap: every weight is a cell, names are escaped, and the page holds no script."""

import re

from unmask.train.report import Heatmap, render


def test_every_weight_is_a_cell_and_names_are_escaped() -> None:
    found = Heatmap("A <map>", ["<b>", "</s>"], ["x", "y", "z"], [[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]]).html()
    assert found.count("<rect") == 6
    assert 'fill-opacity="0.700"' in found
    assert "&lt;b&gt;" in found
    assert "<b>" not in found
    assert "A &lt;map&gt;" in found


def test_wide_letters_have_room() -> None:
    def left(name: str) -> float:
        page = Heatmap("", [name], ["x"], [[1.0]]).html()
        return float(page.partition('<rect class="bar" x="')[2].partition('"')[0])

    assert left("한국어") > left("abc")


def test_texts_stand_in_the_cells_and_the_matrix_keeps_its_size() -> None:
    names = ["<b>", "a name of more than 24 characters"]
    page = Heatmap("", names, names, [[0.0, 1.0], [0.5, 0.5]], texts=[["", "1234567"], ["3", "<i>"]]).html()
    assert re.findall(r'class="cell"[^>]*>([^<]*)<', page) == ["", "1234567", "3", "&lt;i&gt;"]
    assert re.findall(r'fill-opacity="([^"]+)"', page) == ["0.000", "0.550", "0.275", "0.275"]
    assert "<title>&lt;b&gt; · a name of more than 24 characters 1.000</title>" in page  # in full
    assert ">a name of more than 24 …<" in page
    width = int(re.search(r'viewBox="0 0 (\d+) ', page)[1])
    assert width > 24 * 8 + 2 * 7 * 8  # the name and two cells that are wide enough for the longest text
    assert f'style="width:{width}px"' in page
    assert 'style="max-width:' in Heatmap("", names, names, [[0.0, 1.0], [0.5, 0.5]]).html()


def test_a_page_takes_one() -> None:
    assert "<svg" in render("title", [Heatmap("map", ["a"], ["b"], [[0.5]])])
