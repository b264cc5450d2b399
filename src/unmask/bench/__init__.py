"""`unmask bench`: speed beside what people use instead, turn by turn on one machine. `rows.py` is the table."""

from unmask.bench.rows import ROWS
from unmask.bench.run import Places, bench

__all__ = ["ROWS", "Places", "bench"]
