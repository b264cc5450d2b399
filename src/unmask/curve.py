"""Learning curve: how the score of a task grows with the number of training rows, over several seeds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.config import flatten, read_json
from unmask.errors import UnmaskError
from unmask.files import write_text
from unmask.finetune import INTERRUPTIONS, SEEDS, FineTuning, Prepared, Speaker, prepare, run_seed, summary
from unmask.tasks import Encoded
from unmask.train import distributed, report
from unmask.train.trainer import Display

NAME = "curve.json"
RUN = "run"  # folder of the run that is under way

Size = int | Literal["all"]
Found = dict[str, Any]
"""rows, seed, step, total, restarted, dev and (where there is one) test metrics of one run."""


def sizes_in(text: str) -> list[Size]:
    """Numbers of rows as the command line gives them: "100,300,all"."""
    sizes: list[Size] = []
    for part in text.split(","):
        part = part.strip()
        if part != "all" and not (part.isascii() and part.isdigit()):
            raise UnmaskError(
                f"A curve has numbers of rows, and maybe 'all', between commas (100,300,all), not '{text}'."
            )
        sizes.append("all" if part == "all" else int(part))
    return sizes


def curve(config: FineTuning, out: Path | str, sizes: Sequence[Size], *, display: Display | None = None) -> list[Found]:
    """Fine-tune on some training rows, for each number and seed, and score on the dev rows and the test rows.

    sizes  numbers of training rows; "all" is all there are

    A seed draws an order of the training rows, and each of its sets is the beginning of that order: a smaller set is
    part of a larger one. The labels of the task, and the baseline, are those of all training rows. `out` gets
    curve.json, which is written anew after each run, and report.html; models are not kept. The dev rows choose the
    best weights of each run, so that their scores are a little optimistic; the test rows choose nothing.

    Raises UnmaskError for a folder that is in use, sizes that the rows cannot give, and what `finetune` does.
    """
    out = Path(out)
    distributed.init(config.fit.device)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")
    distributed.barrier()  # every process has looked before the first one writes
    say = Speaker(display)
    if config.seeds is None:
        config = config.replace(seeds=SEEDS)  # for the small sets, however many rows there are in all
    prepared = prepare(config, say)
    whole = len(prepared.encoded["train"].rows)
    numbers = _numbers(sizes, whole)
    found: list[Found] = []
    for rows, seed in ((rows, seed) for rows in numbers for seed in _seeds(prepared.config)):
        say(f"{rows:,} training rows, seed {seed}:", note=False)
        row = _run(prepared, _drawn(whole, rows, seed), seed, out, display)
        if row["stopped"] in INTERRUPTIONS:
            say(f"Stopped by {row['stopped']}; the curve is of the {len(found)} runs so far.")
            break
        found.append({"rows": rows, **row})
        if distributed.is_main():
            _write(out, prepared, found, say)
    if not found:
        raise UnmaskError("The curve was stopped before its first run had ended.")
    again = [f"{row['rows']:,} rows, seed {row['seed']}" for row in found if row["restarted"]]
    if again:
        say(f"Started again, as the first try gave every dev row the same answer: {'; '.join(again)}.")
    if distributed.is_main():
        _write(out, prepared, found, say)
        write_curve(out)
        say(render(read_json(out / NAME)), note=False)
    return found


def _numbers(sizes: Sequence[Size], rows: int) -> list[int]:
    """The sizes as numbers, ascending, each once."""
    numbers = sorted({rows if size == "all" else size for size in sizes})
    if not numbers:
        raise UnmaskError("Say how many training rows the points of the curve have: --curve 100,300,all.")
    if numbers[0] < 1 or numbers[-1] > rows:
        wrong = numbers[0] if numbers[0] < 1 else numbers[-1]
        raise UnmaskError(f"A point of the curve cannot have {wrong:,} training rows: there are {rows:,} ('all').")
    return numbers


def _seeds(config: FineTuning) -> range:
    assert config.seeds is not None
    return range(config.seed, config.seed + config.seeds)


def _drawn(rows: int, wanted: int, seed: int) -> list[int]:
    """The first places of the seed's order, ascending."""
    order = np.random.default_rng([seed, rows]).permutation(rows)
    return sorted(order[:wanted].tolist())


def _part(whole: Encoded, places: Sequence[int]) -> Encoded:
    """Some rows of what was encoded."""
    examples = [whole.examples[whole.of_rows[place]] for place in places]
    return Encoded(
        [example for of_row in examples for example in of_row],
        np.repeat(np.arange(len(places)), [len(of_row) for of_row in examples]),
        [whole.rows[place] for place in places],
        whole.length,
        together=whole.together,
    )


def _run(prepared: Prepared, places: Sequence[int], seed: int, out: Path, display: Display | None) -> Found:
    """The row of results of one run; nothing else of it is kept."""
    part = _part(prepared.encoded["train"], places)
    prepared = replace(prepared, encoded={**prepared.encoded, "train": part})
    model, row, _ = run_seed(prepared, seed, out / RUN, display, Speaker(display))
    if "test" in prepared.encoded:
        row["test"] = prepared.task.evaluate(model, prepared.encoded["test"], prepared.tokenizer.pad)
    distributed.barrier()
    if distributed.is_main():
        shutil.rmtree(out / RUN)
    distributed.barrier()
    return row


def _write(out: Path, prepared: Prepared, found: Sequence[Found], say: Speaker) -> None:
    facts = {
        "task": prepared.config.task,
        "metric": found[0]["metric"],
        "all": len(prepared.encoded["train"].rows),
        "baseline": prepared.baseline,
        "runs": list(found),
        "notes": say.notes,
        "config": prepared.config.to_dict(),
    }
    write_text(out / NAME, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


# ------------------------------------------------------------------------------------------------ the report


def table(facts: Mapping[str, Any], split: str) -> dict[int, dict[str, dict[str, float]]]:
    """Number of training rows -> metric -> mean, std (of the sample) and worst over the seeds."""
    runs = facts["runs"]
    numbers = dict.fromkeys(run["rows"] for run in runs)
    return {number: summary([run[split] for run in runs if run["rows"] == number]) for number in numbers}


def render(facts: Mapping[str, Any]) -> str:
    """The deciding metric by number of training rows, and the baseline, as a table of text for each split."""
    metric, lines = facts["metric"], []
    for split, baseline in facts["baseline"].items():
        lines.append(f"{metric} on the {split} rows:")
        lines.append(f"{'rows':>12}{'mean':>10}{'std':>10}{'worst':>10}")
        for number, means in table(facts, split).items():
            lines.append(f"{number:12,}" + "".join(f"{means[metric][kind]:10.4f}" for kind in ("mean", "std", "worst")))
        if metric in baseline:
            lines.append(f"{'baseline':>12}{baseline[metric]:10.4f}")
    return "\n".join(lines)


def write_curve(folder: Path) -> Path:
    """Write report.html from the curve.json of a folder."""
    facts = read_json(folder / NAME)
    config, splits = facts["config"], list(facts["baseline"])
    sections: list[report.Section] = [_chart(facts, split) for split in reversed(splits)]
    sections += [_table(facts, split) for split in reversed(splits)]
    sections += [report.Text(facts["notes"]), report.Facts("Configuration", flatten(config), folded=True)]
    seeds = len({run["seed"] for run in facts["runs"]})
    subtitle = f"{config['model']} on {config['rows']['train']}, {seeds} seeds, {facts['all']:,} training rows in all"
    return report.write(folder, f"Learning curve: {facts['task']}", sections, subtitle=subtitle)


def _chart(facts: Mapping[str, Any], split: str) -> report.Chart:
    metric, means = facts["metric"], table(facts, split)
    baseline = facts["baseline"][split]
    points = [(number, values[metric]["mean"]) for number, values in means.items()]
    spread = [values[metric]["std"] for values in means.values()]
    return report.Chart(
        f"{metric} on the {split} rows",
        [report.Series("mean of the seeds", points, spread)],
        x="training rows",
        y=metric,
        log_x=True,
        floors={"baseline": baseline[metric]} if metric in baseline else {},
        note="The bars are one standard deviation." + (_OPTIMISTIC if split == "dev" else ""),
    )


_OPTIMISTIC = " These rows choose the weights that are kept, so the scores are a little optimistic."


def _table(facts: Mapping[str, Any], split: str) -> report.Table:
    means, baseline = table(facts, split), facts["baseline"][split]
    names = [name for name in next(iter(means.values())) if name in baseline or name == facts["metric"]]
    seeds = {number: sum(run["rows"] == number for run in facts["runs"]) for number in means}
    rows: list[list[Any]] = []
    for number, values in means.items():
        scores = [f"{values[name]['mean']:.4f} ± {values[name]['std']:.4f}" for name in names]
        rows.append([f"{number:,}", seeds[number], *scores, values[facts["metric"]]["worst"]])
    rows.append(["baseline", None, *(f"{baseline[name]:.4f}" if name in baseline else None for name in names), None])
    columns = ["rows", "seeds", *names, f"worst {facts['metric']}"]
    note = "Mean ± standard deviation over the seeds, by number of training rows."
    return report.Table(f"Scores on the {split} rows", columns, rows, note=note)
