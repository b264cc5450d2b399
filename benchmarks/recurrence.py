"""A Transformer beside an LSTM of the same width and about as many parameters: training, and writing token by token.

    python benchmarks/recurrence.py --threads 1 --out recurrence.json

Both are language models with new weights. The two take turns in one process; the figure is the median over the turns,
of the seconds of the process, so that other programs count less. Rows are random tokens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.table import markdown
from unmask.errors import plural
from unmask.files import write_text

BATCH = 4  # rows of a step
WIDTH, VOCABULARY = 128, 2_000


def models() -> dict[str, Any]:
    """Name -> a language model. Three layers of an LSTM have 0.4 million weights, and two of a Transformer as many."""
    from unmask.models.gpt import Gpt2
    from unmask.models.recurrent import RecurrentNetwork

    recurrent = RecurrentNetwork(vocabulary=VOCABULARY, dim=WIDTH, hidden=WIDTH, layers=3, dropout=0.0)
    return {
        "Transformer": Gpt2(vocabulary=VOCABULARY, dim=WIDTH, layers=2, heads=2, length=512, dropout=0.0).build(),
        "LSTM": recurrent.build(),
    }


def training(model: Any, tokens_BT: Any) -> float:
    """Seconds of the process for one step without the update: forward, loss, backward."""
    import torch

    from unmask.objectives.next_token import NextToken
    from unmask.types import Batch, Target

    B, T = tokens_BT.shape
    at = torch.arange(B * T).view(B, T)[:, :-1].flatten()
    batch = Batch(tokens_BT, targets={"next": Target(at, tokens_BT.flatten()[at + 1])})
    began = time.process_time()
    loss = NextToken().loss(model.train(), batch)["next"]
    (loss.sum / loss.count).backward()
    return time.process_time() - began


def writing(model: Any, tokens_BT: Any) -> float:
    """Seconds of the process for writing T tokens one by one, for each of B rows, after a prompt of one."""
    from unmask.types import Batch

    state = model.eval().prefill(Batch(tokens_BT[:, :1]))
    began = time.process_time()
    for tokens_B in tokens_BT.T:
        model.decode_step(tokens_B, state)
    return time.process_time() - began


def measure(lengths: list[int], turns: int) -> Iterator[dict[str, Any]]:
    """For each kind of work and length: the tokens that both models read or write in a second, and the ratio."""
    import torch

    generator, sides = torch.Generator().manual_seed(0), models()
    kinds: dict[str, Callable[[Any, Any], float]] = {"training": training, "writing": writing}
    for name, work in kinds.items():
        for length in lengths:
            tokens_BT = torch.randint(VOCABULARY, (BATCH, length), generator=generator)
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            for turn in range(turns + 1):
                for side, model in sides.items():
                    taken = work(model, tokens_BT)
                    if turn:  # the first one allocates memory
                        seconds[side].append(taken)
            medians = {side: statistics.median(one) for side, one in seconds.items()}
            rates = {side: BATCH * length / taken for side, taken in medians.items()}
            yield {"work": name, "tokens": length, **rates, "ratio": rates["Transformer"] / rates["LSTM"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512], help="tokens of a row")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    parameters = {name: model.parameters_total for name, model in models().items()}
    rows = list(measure(options.lengths, options.turns))
    cells = [[f"{value:,.2f}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    print(f"Parameters: {parameters}. Tokens a second, on {plural(options.threads, 'thread')}:")
    print(markdown([list(rows[0]), *cells]))
    if options.out:
        write_text(options.out, json.dumps({"parameters": parameters, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
