"""The functions for batches in Ray Data and in Spark, with the real libraries: equal to the answers of one process."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.serve import Predictor
from unmask.serve.many import BatchEmbedder, BatchPredictor

pytestmark = pytest.mark.extras
ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["a good film", "dull", " ", "great people", "the plot of a great film was dull", "a film"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A classifier and a sentence encoder with random weights, which the workers open by their names."""
    place = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer.train(TEXTS * 5, 80)
    page = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=24, std=0.3)
    huggingface.save(
        place / "classifier", page.build(as_heads({"classification": 2})), tokenizer, labels=("bad", "good")
    )
    huggingface.save(place / "encoder", page.build(), tokenizer, settings={"pooling": "mean"})
    return place


@pytest.fixture(scope="module")
def wanted(folders):
    """(answers, vectors) of one process; None for the blank text."""
    predictors = [Predictor(folders / name, precision="fp32") for name in ("classifier", "encoder")]
    answers, vectors = ([one([text])[0] if text.strip() else None for text in TEXTS] for one in predictors)
    return answers, [None if one is None else one["embedding"] for one in vectors]


def check(rows, wanted):
    """Rows {"id", "text", "prediction", "embedding", "error"} of a framework, by their order."""
    answers, vectors = wanted
    assert [row["text"] for row in rows] == TEXTS
    assert [row["id"] for row in rows] == list(range(len(TEXTS)))
    for row, answer, vector in zip(rows, answers, vectors, strict=True):
        if answer is None:
            assert row["prediction"] is None
            assert row["embedding"] is None
            assert row["error"].endswith("is empty.")
            continue
        assert row["error"] is None
        found = json.loads(row["prediction"])
        assert found["label"] == answer["label"]
        assert found["probability"] == pytest.approx(answer["probability"], abs=1e-5)
        np.testing.assert_allclose(row["embedding"], vector, atol=1e-5)


@pytest.fixture
def here(folders, tmp_path, monkeypatch):
    """A folder with the rows and the models that the page names."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folders / "classifier", tmp_path / "runs" / "sentiment")
    shutil.copytree(folders / "encoder", tmp_path / "runs" / "sentences")
    parquet.write_table(pyarrow.table({"id": range(len(TEXTS)), "text": TEXTS}), "rows.parquet")
    return tmp_path


def example(name):
    """The block of docs/scaling.md that imports a library."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "scaling.md").read_text("utf-8"), re.DOTALL)
    [block] = [block for block in blocks if re.search(rf"^(import|from) {name}\b", block, re.MULTILINE)]
    return block


def test_the_example_of_ray_runs(here, wanted):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        exec(example("ray"), {})
    finally:
        ray.shutdown()
    found = parquet.read_table(here / "answers").sort_by("id").to_pylist()
    check([{**row, "embedding": vector} for row, vector in zip(found, wanted[1], strict=True)], wanted)


def test_the_example_of_spark_runs(here, wanted, monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    names = {}
    try:
        exec(example("pyspark"), names)
    finally:
        names["spark"].stop()
    found = parquet.read_table(here / "vectors").sort_by("id").to_pylist()
    answers = [None if one is None else json.dumps(one) for one in wanted[0]]
    check([{**row, "prediction": answer} for row, answer in zip(found, answers, strict=True)], wanted)


def test_ray_maps_batches(folders, wanted):
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        rows = ray.data.from_items([{"id": i, "text": text} for i, text in enumerate(TEXTS)], override_num_blocks=2)
        predictor = BatchPredictor(folders / "classifier", precision="fp32")
        found = rows.map_batches(predictor, batch_format="pyarrow").rename_columns({"error": "first"})
        found = found.map_batches(BatchEmbedder(folders / "encoder"), batch_format="pyarrow")
        check(found.take_all(), wanted)
    finally:
        ray.shutdown()


@pytest.mark.parametrize(("way", "name"), [("mapInPandas", "pandas"), ("mapInArrow", "arrow")])
def test_spark_maps_batches(folders, wanted, way, name, monkeypatch):
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string").repartition(1)
        functions = BatchPredictor(folders / "classifier", precision="fp32"), BatchEmbedder(folders / "encoder")
        found, schema = rows.sortWithinPartitions("id"), "id long, text string"
        for i, function in enumerate(functions):
            schema = f"{schema}, {function.columns}"
            found = getattr(found, way)(getattr(function, name), schema)
            if i == 0:
                found, schema = found.withColumnRenamed("error", "first"), schema.replace("error", "first")
        check([row.asDict() for row in found.collect()], wanted)
    finally:
        spark.stop()
