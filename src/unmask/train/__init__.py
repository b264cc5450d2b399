"""The training loop, its checkpoints, what it shows and what it reports; it names no model, objective or data set."""
