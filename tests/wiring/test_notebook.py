"""The display of a run in a notebook, also in a real one, which nbclient runs."""

from __future__ import annotations

import pytest

from unmask.train.display import Terminal
from unmask.train.notebook import Notebook, usual

CELL = """
import unmask
from finetune_toy import reviews, write_trunk
from pathlib import Path
trunk = write_trunk(Path("trunk"))
unmask.finetune(trunk, reviews(32, 1), dev=reviews(8, 2), out="run", epochs=2, least_steps=1, seeds=1)
"""


def test_it_draws_a_bar_numbers_and_curves():
    display = Notebook()
    display._draw = lambda: None
    assert "before the first step" in display.html()
    display.start(0, 10)
    for step in (2, 4):
        display.show({"step": step, "seconds": 1.0, "split": "train", "loss/mlm": 3.0 / step, "lr": 1e-3})
        display.show({"step": step, "seconds": 1.0, "split": "heldout", "loss/mlm": 4.0 / step, "<f1>": 0.5})
    html = display.html()
    assert 'value="4" max="10"' in html
    assert "step 4 of 10" in html
    assert "mlm loss" in html
    assert "0.750" in html
    assert "1.000" in html
    assert html.count("data:image/svg+xml") > 0
    assert "&lt;f1&gt;" in html
    assert "<f1>" not in html


def test_a_terminal_has_another_display():
    assert isinstance(usual(), Terminal)


@pytest.mark.extras
def test_a_cell_shows_the_progress_and_the_result(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    import sys
    from pathlib import Path

    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2] / 'src'}:{Path(__file__).parent}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}, timeout=120)
    client.create_kernel_manager().kernel_spec.argv[0] = sys.executable
    client.execute()
    outputs = notebook.cells[0].outputs
    live = [one["data"]["text/html"] for one in outputs if one.output_type == "display_data"]
    assert live
    assert "step 4 of 4" in live[0] or "step 2 of 2" in live[0]
    result = next(one for one in outputs if one.output_type == "execute_result")
    assert "dev/accuracy" in result["data"]["text/html"]
    assert "<Trained in run" in result["data"]["text/plain"]
