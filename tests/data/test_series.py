"""Series from tables, folders and records, and their windows as examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.signals import synthetic_series
from unmask.data.signals.forecasts import ForecastExamples, origins
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.series import Columns, SeriesRow, filled, of_values, series_in
from unmask.errors import UnmaskError

PROCESSOR = SignalProcessor(rate=1, segment=3, normalise="none")


def written(path, text):
    path.write_text(text)
    return path


def values_of(dataset):
    return {row.id: row.values.tolist() for row in dataset}


def test_each_column_of_numbers_is_a_series(tmp_path):
    table = "date,a,place,b\n2024-01-31,1,x,2.5\n2024-02-29,,y,-3\n2024-03-31,4,z,1e2\n"
    found = series_in(written(tmp_path / "wide.csv", table))
    assert [row.id for row in found] == ["a", "b"]
    np.testing.assert_array_equal(found[0].values, [1, np.nan, 4])
    assert found[1].values.tolist() == [2.5, -3, 100]
    assert all(row.begin == row.end == 3 for row in found)
    assert found.columns == {"time": "date", "value": "a, b"}
    assert "without numbers, left out: place" in found.description
    assert "1 series with empty values" in found.description
    assert values_of(series_in(tmp_path / "wide.csv", Columns(value="B"))) == {"b": [2.5, -3, 100]}


def test_a_row_for_each_value(tmp_path):
    table = "unique_id,ds,y,price\np,1,1,9\nq,1,5,9\np,2,2,9\nq,2,6,9\np,4,3,9\n"
    found = series_in(written(tmp_path / "long.csv", table))
    assert values_of(found) == {"p": [1, 2, 3], "q": [5, 6]}
    assert "The times have gaps" not in found.description  # 2 is not more than 1.5 times the median, 1.5
    other = table.replace("unique_id", "shop").replace(",y,", ",sold,")
    named = Columns(series="shop", value="sold,price")
    found = values_of(series_in(written(tmp_path / "other.csv", other), named))
    assert found == {"p sold": [1, 2, 3], "p price": [9] * 3, "q sold": [5, 6], "q price": [9] * 2}


def test_a_folder_of_tables_and_records(tmp_path):
    written(tmp_path / "north.csv", "x\n1\n2\n")
    written(tmp_path / "notes.txt", "nothing")
    np.save(tmp_path / "south.npy", np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert values_of(series_in(tmp_path)) == {
        "north": [1, 2],
        "south lead 1": [1, 3, 5],
        "south lead 2": [2, 4, 6],
    }


def test_the_labels_of_records_are_no_series(tmp_path):
    written(tmp_path / "REFERENCE.csv", "one,N\ntwo,A\n")
    written(tmp_path / "one.csv", "a\n1\n2\n")
    assert values_of(series_in(tmp_path)) == {"one": [1, 2]}


def test_times_are_checked(tmp_path):
    back = written(tmp_path / "back.csv", "date,x\n2024-01-01,1\n2024-01-03,2\n2024-01-02,3\n")
    with pytest.raises(UnmaskError, match=r"back.csv:4: the time 2024-01-02 is not after the one before"):
        series_in(back)
    hole = "time,x\n1,1\n2,2\n3,3\n9,4\n"
    assert "The times have gaps" in series_in(written(tmp_path / "hole.csv", hole)).description
    assert "gaps" not in series_in(written(tmp_path / "odd.csv", "time,x\nMonday,1\nTuesday,2\n")).description


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,place\na,b\n", "has no column of numbers; it has name, place"),
        ("x\n1\nmany\n", r":3: 'many' in the column 'x' is no number"),
        ("1,2\n3,4\n", "must have a first line with the names"),
        ("series,y\na,\n", "the series a has no values"),
    ],
)
def test_tables_that_are_no_series(text, said, tmp_path):
    with pytest.raises(UnmaskError, match=said):
        series_in(written(tmp_path / "wrong.csv", text))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnmaskError, match="has no series"):
        series_in(tmp_path / "empty")


def test_numbers_of_a_request():
    assert of_values([1, None, 2.5], "Text 1").values.tolist()[::2] == [1, 2.5]
    for wrong in ("1, 2", [], [None], [1, "x"]):
        with pytest.raises(UnmaskError, match="Text 1"):
            of_values(wrong, "Text 1")


def test_gaps_are_filled_by_straight_lines():
    np.testing.assert_array_equal(filled(np.array([np.nan, 1, np.nan, np.nan, 4, np.nan])), [1, 1, 2, 3, 4, 4])


def test_series_that_are_made_are_the_same_again(tmp_path):
    synthetic_series.write(tmp_path / "one", count=2, steps=50)
    synthetic_series.write(tmp_path / "two", count=2, steps=50)
    one, two = (series_in(tmp_path / name / synthetic_series.FILE) for name in ("one", "two"))
    assert values_of(one) == values_of(two)
    assert [len(row.values) for row in one] == [50, 50]


# ------------------------------------------------------------------------------------------------ windows


def row(values, begin, end, horizon=4):
    return SeriesRow(values=np.asarray(values, np.float64), begin=begin, end=end, horizon=horizon, place="x")


def test_forecasts_begin_one_after_the_other():
    values = np.arange(40.0)
    assert origins(row(values, 28, 40), 9, 3, 4).tolist() == [28, 32, 36]
    assert origins(row(values, 0, 28), 9, 3, 1).tolist() == [*range(9, 25)]
    assert origins(row(values, 0, 10), 9, 3, 1).tolist() == [6]  # less than the context is before it
    assert origins(row(values, 40, 40), 9, 3, 4).tolist() == [40]
    with pytest.raises(UnmaskError, match="x has 40 values, too few: a forecast of 4 needs 3 before it"):
        origins(row(values, 0, 6), 9, 3, 1)
    with pytest.raises(UnmaskError, match="x has 2 values, but a forecast needs 3 before it"):
        origins(row(values[:2], 2, 2), 9, 3, 4)


def test_a_window_and_its_target_are_scaled_by_the_window():
    rng = np.random.default_rng(0)
    values = rng.normal(5, 2, 30)
    values[[12, 26]] = np.nan
    examples = ForecastExamples([row(values, 20, 30)], PROCESSOR, "forecasting", 9)
    assert examples.starts.tolist() == [20, 24]
    assert examples.lengths.tolist() == [3, 3]
    window = filled(values)[11:20]
    made = examples[0]
    np.testing.assert_allclose(made.signal[1].ravel(), (window - window.mean()) / window.std(), rtol=1e-6)
    places, target = made.targets["forecasting"]
    assert places.tolist() == [2]
    np.testing.assert_allclose(target[0], (values[20:24] - window.mean()) / window.std(), rtol=1e-6)
    np.testing.assert_allclose(examples.scaling[0], [window.mean(), window.std()])
    assert np.isnan(examples[1].targets["forecasting"][1][0]).tolist() == [False, False, True, False]
    assert examples[1:].starts.tolist() == [24]


@settings(max_examples=40)
@given(st.integers(3, 29), st.integers(0, 2**32 - 1))
def test_no_window_sees_what_is_forecast(origin, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=30)
    values[rng.uniform(size=30) < 0.2] = np.nan
    other = values.copy()
    other[origin:] = rng.normal(50, 9, 30 - origin)
    one, two = (ForecastExamples([row(x, origin, 30, 1)], PROCESSOR, "f", 9) for x in (values, other))
    np.testing.assert_array_equal(one[0].signal[1], two[0].signal[1])
    np.testing.assert_array_equal(one.scaling[0], two.scaling[0])


@pytest.mark.parametrize(("level", "scale"), [(0.0, 1.0), (-4.0, 4.0)])
def test_equal_values_are_scaled_by_their_size(level, scale):
    examples = ForecastExamples([row(np.full(20, level), 10, 20)], PROCESSOR, "f", 9)
    assert examples.scaling[0].tolist() == [level, scale]
    assert not examples[0].signal[1].any()
