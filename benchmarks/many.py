"""Many rows through each way of answering, each in a process of its own, and parts of them in several processes.

    python benchmarks/many.py --data train.tsv.gz --processes 1 2 --out many.json

The model is a BERT of 2 layers of 128 units with random weights, as classifier and as encoder of vectors; its
vocabulary of 4,000 is learned from the first texts. `seconds` is the time of a whole command, with the imports and the
model, and `cpu` its processor time, which is unknown for the workers of Ray and Spark (--with). Processes have one
thread each.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bench import common
from unmask.data.files.tables import guess_format, rows

VOCABULARY, LEARNED_FROM = 4_000, 5_000
ROW_GROUP = 30_000  # rows of a row group: not a multiple of a block
FRAMEWORKS = ("ray", "spark")


def prepare(folder: Path, data: Path, column: str, count: int) -> int:
    """Write the models and the rows as text, JSON lines and Parquet; returns the number of rows."""
    import pyarrow
    from pyarrow import parquet

    from unmask import huggingface
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.huggingface.table import as_heads
    from unmask.models import Bert

    texts = [values[column] for _, values in islice(rows(data, guess_format(data), column=column), count)]
    texts = [text if text.strip() else "." for text in texts]
    tokenizer = Tokenizer.train(texts[:LEARNED_FROM], VOCABULARY)
    page = Bert(vocabulary=tokenizer.size, dim=128, layers=2, heads=2, hidden=512, length=128)
    model = page.build(as_heads({"classification": 2}))
    huggingface.save(folder / "classifier", model, tokenizer, labels=("bad", "good"))
    huggingface.save(folder / "encoder", page.build(), tokenizer, settings={"pooling": "mean"})
    (folder / "rows.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    lines = (json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    (folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    parquet.write_table(pyarrow.table({"text": texts}), folder / "rows.parquet", row_group_size=ROW_GROUP)
    return len(texts)


def command(verb: str, model: str, file: str, out: str, *more: str) -> list[str]:
    given = ["--model", model, "--file", file, "--out", out, "--precision", "fp32"]
    return [sys.executable, "-m", "unmask", verb, *given, *more]


WAYS = {
    "predict, lines to JSON lines": command("predict", "classifier", "rows.txt", "out.jsonl"),
    "predict, JSON lines to JSON lines": command("predict", "classifier", "rows.jsonl", "out.jsonl"),
    "predict, Parquet to Parquet": command("predict", "classifier", "rows.parquet", "out.parquet"),
    "embed, lines to .npy": command("embed", "encoder", "rows.txt", "out.npy"),
    "embed, Parquet to Parquet": command("embed", "encoder", "rows.parquet", "out.parquet"),
    "BatchPredictor, in one process": [sys.executable, __file__, "--framework", "none"],
}
PARTS = command("predict", "classifier", "rows.parquet", "part.parquet")


def mapped(framework: str) -> None:
    """The rows of the folder through `BatchPredictor`, by this process or by a framework."""
    from pyarrow import parquet

    from unmask.serve.many import BatchPredictor

    function = BatchPredictor(str(Path("classifier").resolve()), precision="fp32")
    place = str(Path("rows.parquet").resolve())
    if framework == "ray":
        import ray

        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
        found = ray.data.read_parquet(place).map_batches(function, batch_size=1_024, batch_format="pyarrow")
        found.write_parquet(str(Path("ray").resolve()))
    elif framework == "spark":
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        read = spark.read.parquet(place)
        read.mapInArrow(function.arrow, f"text string, {function.columns}").write.parquet("spark")
    else:
        with parquet.ParquetFile(place) as file:
            batches = function.arrow(file.iter_batches(batch_size=1_024))
            first = next(batches)
            with parquet.ParquetWriter("mapped.parquet", first.schema) as writer:
                writer.write_batch(first)
                for batch in batches:
                    writer.write_batch(batch)


def timed(commands: Sequence[Sequence[str]], folder: Path) -> tuple[float, float]:
    """The wall-clock and processor seconds of commands that run at the same time. Exits with a message if one fails."""
    own = {**common.environment(1), "PYSPARK_PYTHON": sys.executable}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running = [
        subprocess.Popen(one, cwd=folder, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for one in commands
    ]
    said = [process.communicate()[1] for process in running]
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    failed = next((text for process, text in zip(running, said, strict=True) if process.returncode), None)
    if failed is not None:
        sys.exit(f"{' '.join(commands[0])} failed: {failed[-2_000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = arguments()
    if options.framework:
        mapped(options.framework)
        return
    results, facts = dict[str, Any](), common.machine(threads=1)
    common.introduce(facts)
    with tempfile.TemporaryDirectory(prefix="unmask-many-") as name:
        folder = Path(name)
        count = prepare(folder, Path(options.data).resolve(), options.column, options.rows)
        turns = {way: [given] for way, given in WAYS.items()}
        for one in options.with_:
            turns[f"BatchPredictor, {one}"] = [[sys.executable, __file__, "--framework", one]]
        for of in options.processes:
            turns[f"parts, {of} processes"] = [[*PARTS, "--part", f"{i}/{of}"] for i in range(1, of + 1)]
        for way, given in turns.items():
            seconds, cpu = timed(given, folder)
            known = not any(way.endswith(one) for one in options.with_)
            results[way] = {"seconds": seconds, **({"cpu": cpu} if known else {})}
            spent = f"{cpu:8.1f} s of processor {count / cpu:9,.0f} rows/s of processor" if known else ""
            print(f"{way:36} {seconds:8.1f} s {count / seconds:9,.0f} rows/s {spent}", flush=True)
    common.write(options.out, {"rows": count, "ways": results, "machine": facts})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", metavar="FILE", help="a table with a column of texts")
    parser.add_argument("--column", default="document", help="its name (default: that of NSMC)")
    parser.add_argument("--rows", type=int, default=100_000, help="the first rows")
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2], help="numbers of parts at the same time")
    parser.add_argument("--with", dest="with_", nargs="*", choices=FRAMEWORKS, default=[], help="frameworks to run")
    parser.add_argument("--out", metavar="FILE", help="JSON of all results")
    parser.add_argument("--framework", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.data or options.framework):
        parser.error("--data FILE is needed")
    return options


if __name__ == "__main__":
    main()
