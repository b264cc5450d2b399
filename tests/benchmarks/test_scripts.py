"""What the scripts share: results that are begun or resumed, systems one after another, ratios, tables."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest

from bench import common
from bench.table import markdown
from unmask.errors import UnmaskError


def begun(out, *, resume=False, **run):
    return common.begin(Namespace(threads=1, out=out and str(out), resume=resume), run, systems={})


def test_a_system_that_fails_stops_no_other_and_is_measured_again(tmp_path, capsys):
    def measure(name):
        if name == failing:
            raise UnmaskError("no memory")
        return {"name": name}

    out, titles = tmp_path / "out.json", {"a": "First", "b": "Second"}
    failing = "a"
    facts = begun(out, seed=1)
    assert common.measure_systems(titles, facts, str(out), measure, str) == ["a"]
    assert list(json.loads(out.read_text("utf-8"))["systems"]) == ["b"]
    failing = "b"  # which the file holds
    facts = begun(out, resume=True, seed=1)
    assert common.measure_systems(titles, facts, str(out), measure, str) == []
    assert list(json.loads(out.read_text("utf-8"))["systems"]) == ["b", "a"]
    assert "b is in" in capsys.readouterr().out


def test_results_of_other_settings_are_not_resumed(tmp_path):
    out = tmp_path / "out.json"
    common.write(out, begun(out, seed=1))
    with pytest.raises(UnmaskError, match="with other seed"):
        begun(out, resume=True, seed=2)
    with pytest.raises(UnmaskError, match="give both"):
        begun(None, resume=True, seed=1)


def test_times_are_compared_turn_by_turn():
    assert common.compare_times([(1.0, 2.0), (2.0, 6.0), (4.0, 4.0)]) == (2.0, 4.0, "2.00 (1.00 to 3.00)")


def test_a_table_is_aligned_below_its_header():
    assert markdown([("a", "bcd"), ("ef", "g")]) == "| a  | bcd |\n| -- | --- |\n| ef | g   |"


@pytest.mark.parametrize(("error", "status"), [(UnmaskError("No."), "No."), (KeyboardInterrupt(), 130)])
def test_scripts_end_with_a_sentence(error, status):
    def stop():
        raise error

    with pytest.raises(SystemExit) as leaving:
        common.command(stop)
    assert leaving.value.code == status


def test_a_script_serves_its_own_turns(tmp_path, monkeypatch):
    request, answer = tmp_path / "settings.json", tmp_path / "result.json"
    request.write_text(json.dumps({"threads": 1, "x": 3}))
    monkeypatch.setattr("sys.argv", ["script.py", "--trial", "double", str(request), str(answer)])
    common.command(pytest.fail, {"double": lambda settings: {"x": 2 * settings["x"]}})
    assert json.loads(answer.read_text()) == {"x": 6}
