"""Speed beside what people use instead, turn by turn on one machine: `make bench`. `rows.py` is the table."""
