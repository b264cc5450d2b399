"""Heatmap: every weight is a cell, names are escaped, and the page holds no script."""

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


def test_a_page_takes_one() -> None:
    assert "<svg" in render("title", [Heatmap("map", ["a"], ["b"], [[0.5]])])
