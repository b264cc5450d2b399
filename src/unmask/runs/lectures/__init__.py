"""What the lectures show, as entries that can be run: figures, tables, equations, worked examples."""
