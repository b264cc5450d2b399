"""`make bench`: the speed of unmask compared with other libraries on one machine. `rows.py` lists what is measured."""
