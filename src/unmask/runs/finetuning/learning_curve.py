"""Learning curve: how the score of a task grows with the number of training rows, over several seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.config import read_json
from unmask.data.examples import take
from unmask.errors import Stopped, UnmaskError, plural
from unmask.files import sweep, write_text
from unmask.runs.finetuning.config import SEEDS, FineTuning
from unmask.runs.finetuning.encoder import PreparedEncoder, prepare, run_seed
from unmask.runs.finetuning.prepared import Notes, clear
from unmask.runs.finetuning.report import summary
from unmask.runs.finetuning.search import differing
from unmask.runs.report import Report, write_report
from unmask.tasks import Encoded
from unmask.train import checkpoint, distributed, report
from unmask.train.display import Display

NAME = "curve.json"
RUN = "run"  # folder of the current run
REPORT = "report.html"

Size = int | Literal["all"]
Found = dict[str, Any]
"""rows, seed, step, total, restarted, dev metrics and, if there are test rows, test metrics of one run."""


def sizes_in(text: str) -> list[Size]:
    """Numbers of rows in an option of the command line: "100,300,all"."""
    sizes: list[Size] = []
    for part in text.split(","):
        part = part.strip()
        if part != "all" and not (part.isascii() and part.isdigit()):
            raise UnmaskError(
                f"--curve takes numbers of rows, or 'all', separated by commas (100,300,all), not '{text}'."
            )
        sizes.append("all" if part == "all" else int(part))
    return sizes


def curve(config: FineTuning, out: Path | str, sizes: Sequence[Size], *, display: Display | None = None) -> list[Found]:
    """Fine-tune on a part of the training rows, for each size and seed, and score on the dev rows and the test rows.

    sizes  numbers of training rows; "all" means all rows

    A seed draws an order of the training rows, and each set is the beginning of that order: a smaller set is part of a
    larger one. The labels of the task, and the baseline, are those of all training rows. `out` gets curve.json, which
    is rewritten after each run, and report.html; models are not kept. The dev rows choose the best weights of each run,
    so their scores are slightly optimistic; nothing is chosen by the test rows.

    An interrupted curve (`begun(out)`), or one that gets more sizes or seeds, continues from the runs in curve.json.
    Returns the runs of the given sizes and seeds; curve.json and the report have all runs.

    Raises UnmaskError for a folder that holds something else, is in use by another process, or has a curve of other
    settings or rows, for sizes that are not possible, and as `finetune` does; Stopped if a signal ends it.
    """
    out = Path(out)
    distributed.init(config.fit.device)
    given, asked = _fixed(config), {"config": config.to_dict(), "sizes": list(sizes)}
    _begun(out, given, config)  # before anything takes long
    distributed.barrier()  # all processes check the folder before the first one writes
    say = Notes(display)
    if config.seeds is None:
        config = config.replace(seeds=SEEDS)  # as for small sets, whatever the number of all rows
    prepared = prepare(config, say)
    numbers = _numbers(sizes, len(prepared.encoded["train"].rows))
    wanted = [(rows, seed) for rows in numbers for seed in _seeds(prepared.config)]
    with checkpoint.going_on("finetune", out), checkpoint.alone(out) if distributed.is_main() else nullcontext():
        return _curve(given, asked, prepared, wanted, out, display, say)


def begun(out: Path) -> tuple[FineTuning, list[Size]]:
    """The settings and the sizes that the curve in a folder was started with. Raises UnmaskError if curve.json does not
    have them."""
    asked = read_json(out / NAME).get("asked")
    if not isinstance(asked, dict) or asked.keys() != {"config", "sizes"}:
        raise UnmaskError(f"{out / NAME} does not have the settings of the run; continue with the original command.")
    return FineTuning.of_run(asked["config"]), asked["sizes"]


def _curve(
    given: Mapping[str, Any],
    asked: Mapping[str, Any],
    prepared: PreparedEncoder,
    wanted: Sequence[tuple[int, int]],
    out: Path,
    display: Display | None,
    say: Notes,
) -> list[Found]:
    """Carry out the wanted runs, each (rows, seed), while this process has the lock of the folder.

    asked  the settings that `begun` reads
    """
    facts = _begun(out, given, prepared.config)  # read again: another process may have continued the curve meanwhile
    distributed.barrier()
    whole = len(prepared.encoded["train"].rows)
    known: dict[tuple[int, int], Found] = {(run["rows"], run["seed"]): run for run in facts.get("runs", ())}
    if known and facts.get("all") != whole:
        raise UnmaskError(
            f"{out} holds a curve of {facts.get('all')} training rows, but there are now {whole:,}; choose another "
            "folder, or delete it."
        )
    if known.keys() & set(wanted):
        say("The curve continues from the runs that were finished before.")
    if distributed.is_main():
        _write(out, given, asked, prepared, known, say)  # from here on, a killed run can be resumed
    for rows, seed in wanted:
        if (rows, seed) in known:
            continue
        say(f"{rows:,} training rows, seed {seed}:", note=False)
        try:
            row = _run(prepared, _drawn(whole, rows, seed), seed, out, display)
        except Stopped as stopped:
            clear(out / RUN)
            if known and distributed.is_main():
                say(f"{stopped}: the curve shows the {plural(len(known), 'run')} so far.")
                _write(out, given, asked, prepared, known, say)
                write_report(out)
            raise
        known[rows, seed] = {"rows": rows, **row}
        if distributed.is_main():
            _write(out, given, asked, prepared, known, say)
    restarted = [f"{rows:,} rows, seed {seed}" for (rows, seed), row in sorted(known.items()) if row["restarted"]]
    if restarted:
        say(f"Started again, as the first try gave every dev row the same answer: {'; '.join(restarted)}.")
    if distributed.is_main():
        _write(out, given, asked, prepared, known, say)
        write_report(out)
        say(render(read_json(out / NAME)), note=False)
    return [known[point] for point in wanted if point in known]


def _numbers(sizes: Sequence[Size], rows: int) -> list[int]:
    """The different sizes as numbers, in ascending order."""
    numbers = sorted({rows if size == "all" else size for size in sizes})
    if not numbers:
        raise UnmaskError("Give the numbers of training rows of the curve: --curve 100,300,all.")
    if numbers[0] < 1 or numbers[-1] > rows:
        wrong = numbers[0] if numbers[0] < 1 else numbers[-1]
        raise UnmaskError(f"A point of the curve cannot have {wrong:,} training rows: there are {rows:,} ('all').")
    return numbers


def _seeds(config: FineTuning) -> range:
    assert config.seeds is not None
    return range(config.seed, config.seed + config.seeds)


def _drawn(rows: int, wanted: int, seed: int) -> list[int]:
    """The first rows in the order of the seed, as ascending indices."""
    order = np.random.default_rng([seed, rows]).permutation(rows)
    return sorted(order[:wanted].tolist())


def _part(whole: Encoded, places: Sequence[int]) -> Encoded:
    """The encoded rows at some indices."""
    own = [range(len(whole.examples))[whole.of_rows[place]] for place in places]
    return Encoded(
        take(whole.examples, [i for of_row in own for i in of_row]),
        np.repeat(np.arange(len(places)), [len(of_row) for of_row in own]),
        [whole.rows[place] for place in places],
        whole.length,
        together=whole.together,
        classes=whole.classes and whole.classes.of(places),
        collate=whole.collate,
        targets=whole.targets,
    )


def _run(prepared: PreparedEncoder, places: Sequence[int], seed: int, out: Path, display: Display | None) -> Found:
    """The results of one run; its model is not kept."""
    part = _part(prepared.encoded["train"], places)
    prepared = replace(prepared, encoded={**prepared.encoded, "train": part})
    clear(out / RUN)  # left by a process that was killed
    model, row, _ = run_seed(prepared, seed, out / RUN, display, Notes(display))
    if "test" in prepared.encoded:
        row["test"] = prepared.task.evaluate(model, prepared.encoded["test"], prepared.processor.pad)
    clear(out / RUN)
    return row


# ------------------------------------------------------------------------------------------------ curve.json


def _begun(out: Path, given: Mapping[str, Any], config: FineTuning) -> dict[str, Any]:
    """curve.json of an earlier run of the same settings; empty for a new folder. Raises UnmaskError for any other."""
    sweep(out)
    there = {path.name for path in out.iterdir()} if out.is_dir() else {out.name} if out.exists() else set()
    there -= {checkpoint.LOCK}
    if there and (NAME not in there or there - {NAME, RUN, REPORT}):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")
    if not there:
        return {}
    facts = read_json(out / NAME)
    other = differing(facts.get("given"), given, config)
    if other:
        raise UnmaskError(f"{out} holds a curve with another {other}; choose another folder, or delete it.")
    runs = facts.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, dict) and run.keys() >= _PARTS for run in runs):
        raise UnmaskError(f"{out / NAME} is damaged: it lists no runs; delete the folder.")
    return facts


_PARTS = {"rows", "seed", "metric", "dev", "step", "total", "restarted"}


def _fixed(config: FineTuning) -> dict[str, Any]:
    """The settings that all runs of one curve share: all but the number of seeds."""
    places = json.loads(json.dumps(config.places(), default=str))
    return {name: value for name, value in places.items() if name != "seeds"}


def _write(
    out: Path,
    given: Mapping[str, Any],
    asked: Mapping[str, Any],
    prepared: PreparedEncoder,
    known: Mapping[tuple[int, int], Found],
    say: Notes,
) -> None:
    found = [known[point] for point in sorted(known)]
    facts = {
        "task": prepared.config.task,
        "metric": prepared.config.fit.metric or prepared.task.metric,
        "all": len(prepared.encoded["train"].rows),
        "baseline": prepared.baseline,
        "runs": found,
        "notes": say.notes,
        "given": dict(given),
        "asked": dict(asked),
        "config": prepared.config.to_dict(),
    }
    write_text(out / NAME, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


# ------------------------------------------------------------------------------------------------ the report


def table(facts: Mapping[str, Any], split: str) -> dict[int, dict[str, dict[str, float]]]:
    """Number of training rows -> metric -> mean, standard deviation (of the sample) and worst over the seeds."""
    runs = facts["runs"]
    numbers = dict.fromkeys(run["rows"] for run in runs)
    return {number: summary([run[split] for run in runs if run["rows"] == number]) for number in numbers}


def render(facts: Mapping[str, Any]) -> str:
    """The metric by number of training rows, and the baseline, as a table of text for each split."""
    metric, lines = facts["metric"], []
    for split, baseline in facts["baseline"].items():
        lines.append(f"{metric} on the {split} rows:")
        lines.append(f"{'rows':>12}{'mean':>10}{'std':>10}{'worst':>10}")
        for number, means in table(facts, split).items():
            lines.append(f"{number:12,}" + "".join(f"{means[metric][kind]:10.4f}" for kind in ("mean", "std", "worst")))
        if metric in baseline:
            lines.append(f"{'baseline':>12}{baseline[metric]:10.4f}")
        lines += [_OPTIMISTIC.strip()] if split == "dev" else []
    return "\n".join(lines)


def report_of(folder: Path, facts: Mapping[str, Any]) -> Report:
    """The report of a curve. Raises UnmaskError for a curve without a finished run."""
    if not facts["runs"]:
        raise UnmaskError(f"{folder} holds a curve whose first run has not ended; continue it with the same command.")
    config, splits = facts["config"], list(facts["baseline"])
    sections: list[report.Section] = [_chart(facts, split) for split in reversed(splits)]
    sections += [_table(facts, split) for split in reversed(splits)]
    sections.append(report.Text(facts["notes"]))
    seeds = len({run["seed"] for run in facts["runs"]})
    on = f"{config['model']} on {config['rows']['train']}"
    subtitle = f"{on}, {plural(seeds, 'seed')}, {facts['all']:,} training rows in all"
    return Report(f"Learning curve: {facts['task']}", subtitle, sections, config)


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


_OPTIMISTIC = " The dev rows choose the weights, so each score is that of the best evaluation, and is optimistic."


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
